//! Nodes that are killed under load.

use super::world::{Three, Tree};

#[test]
fn a_worker_that_is_killed_under_load_costs_time_only() {
    let mut three = Three::new();
    let mut tree = Tree::start(&three.a);
    tree.wait_until_at("b", 30);
    three.b.kill();
    tree.ends_well();
    three.a.wait_for("b", "dead");
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
}

#[test]
fn a_worker_of_another_nodes_driver_is_killed() {
    let mut three = Three::new();
    let mut tree = Tree::start(&three.c);
    tree.wait_until_at("b", 60);
    three.b.kill();
    tree.ends_well();
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
}

#[test]
fn a_head_that_is_killed_and_started_again_under_load_costs_time_only() {
    let mut three = Three::new();
    let mut tree = Tree::start(&three.b);
    tree.wait_until_at("a", 30);
    three.a.kill();
    // Those who are left go on; what the head had is begun anew when it is there again.
    tree.wait_until_at("c", 60);
    three.a.start(&["--head"]);
    tree.ends_well();
    three.meet();
    for node in three.all() {
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
    // With what was in its store.
    assert_eq!(three.c.sees("a").expect("the head")["life"], 2);
    assert_eq!(three.a.sees("c").expect("a member")["life"], 1);
}

#[test]
fn when_the_driver_s_node_is_killed_all_that_it_had_started_ends() {
    let mut three = Three::new();
    let mut tree = Tree::start(&three.c);
    tree.wait_until_at("a", 30);
    tree.wait_until_at("b", 30);
    three.c.kill();
    tree.fails_saying("the connection");
    for node in [&three.a, &three.b] {
        node.wait_for("c", "dead");
        node.wait_for_rest();
    }
    // It comes back, and takes work again.
    three.c.start(&["--join"]);
    three.meet();
    Tree::start(&three.c).ends_well();
    for node in three.all() {
        node.wait_for_rest();
    }
}
