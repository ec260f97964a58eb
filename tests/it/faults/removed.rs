//! Nodes that are taken out of the cluster: their work goes on elsewhere, and they do not come back.

use wasmrun_tests::assert_says;

use super::etcd::Etcd;
use super::world::{Node, Three, Tree, wait_for_rest};

const REMOVED: &str = "removed from its cluster";

/// Asks a node to remove another.
fn remove(at: &Node, node: &str, more: &[&str]) -> wasmrun_tests::Wasmrun {
    at.command(&["node", "remove", node]).args(more)
}

/// What becomes of a cluster one of whose nodes is removed while it works.
fn removed_under_load(mut three: Three) {
    let mut tree = Tree::start_large(&three.a);
    tree.wait_until_at("b", 40);
    remove(&three.c, "b", &[]).fails_saying(2, &["'b' lives", "wasmrun node drain b", "--force"]);
    remove(&three.c, "b", &["--force"]).ok();
    // It ends by itself, and says why.
    let ended = three.b.stopped();
    assert_eq!(ended.code, Some(2), "{ended}");
    assert_says(&ended.stderr, &[REMOVED, "node token create"]);
    tree.ends_well();
    for node in [&three.a, &three.c] {
        node.wait_for("b", "removed");
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
    // Its certificate is valid yet.
    three.b.starting(&["--join"]).fails_saying(2, &[REMOVED]);
    let token = three.a.token(&[]);
    three
        .b
        .starting(&["--join", &token])
        .fails_saying(2, &[REMOVED]);
    // Another one may have its name, and gets work.
    let mut other = Node::new("b").with(&three.b.options());
    other.start(&["--join", &token]);
    three.a.wait_for("b", "alive");
    let mut tree = Tree::start(&three.a);
    tree.wait_until_at("b", 10);
    tree.ends_well();
    wait_for_rest([&three.a, &other, &three.c]);
}

#[test]
fn a_node_that_is_removed_under_load_costs_time_only_and_does_not_come_back() {
    removed_under_load(Three::new());
}

#[test]
fn with_etcd_a_removed_node_ends_too() {
    let Some(etcd) = Etcd::new() else { return };
    removed_under_load(etcd.three());
}

#[test]
fn a_dead_node_is_removed_and_only_that() {
    let mut three = Three::new();
    let id = three.a.sees("b").expect("it lives")["id"].clone();
    let id = id.as_str().expect("text");
    three.b.kill();
    three.c.wait_for("b", "dead");
    remove(&three.c, "c", &["--force"])
        .fails_saying(2, &["the one that you ask", "wasmrun node stop"]);
    remove(&three.c, "a", &["--force"]).fails_saying(2, &["'a' is the head"]);
    remove(&three.c, "nobody", &[]).fails_saying(2, &["there is no node 'nobody'"]);
    remove(&three.c, "b", &[]).ok();
    // By its id as well, again, and by a head of a later incarnation, which goes by it from its first moment.
    remove(&three.a, id, &[]).ok();
    three.a.kill();
    three.a.start(&["--head"]);
    three.b.starting(&["--join"]).fails_saying(2, &[REMOVED]);
    three.a.wait_for("c", "alive");
    Tree::start(&three.c).ends_well();
    wait_for_rest([&three.a, &three.c]);
}
