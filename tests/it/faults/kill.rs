//! Nodes that are killed under load.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use wasmrun_tests::Stream;

use super::world::{Three, Tree, rest_without_failures, wait_for_rest};

/// Longer than a lease lives.
const FROZEN: Duration = Duration::from_secs(6);

#[test]
fn a_worker_that_is_killed_under_load_costs_time_only() {
    let mut three = Three::new();
    let mut tree = Tree::start_large(&three.a);
    tree.wait_until_at("b", 40);
    three.b.kill();
    tree.ends_well();
    three.a.wait_for("b", "dead");
    rest_without_failures([&three.a, &three.c]);
    // Whoever reads a log hears which one it was.
    for node in [&mut three.a, &mut three.c] {
        node.wait_for_log(&[" a node has left or is lost", " name=b"]);
    }
}

#[test]
fn a_worker_of_another_nodes_driver_is_killed() {
    let mut three = Three::new();
    let mut tree = Tree::start_large(&three.c);
    tree.wait_until_at("b", 79);
    three.b.kill();
    tree.ends_well();
    rest_without_failures([&three.a, &three.c]);
}

#[test]
fn a_head_that_is_killed_and_started_again_under_load_costs_time_only() {
    let mut three = Three::new();
    let mut tree = Tree::start_large(&three.b);
    tree.wait_until_at("a", 30);
    three.a.kill();
    // Those who are left go on; what the head had is begun anew when it is there again.
    tree.goes_on(10);
    three.a.start(&["--head"]);
    tree.ends_well();
    three.meet();
    rest_without_failures(three.all());
    // With what was in its store.
    assert_eq!(three.c.sees("a").expect("the head")["incarnation"], 2);
    assert_eq!(three.a.sees("c").expect("a member")["incarnation"], 1);
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
    wait_for_rest(three.all());
}

/// A node that does nothing for longer than its lease lives, and then goes on as if nothing had been.
fn frozen(driver: &str, frozen: &str) {
    let mut three = Three::new();
    let mut tree = Tree::start_large(three.node(driver));
    tree.wait_until_at(frozen, 20);
    three.node_mut(frozen).running().signal(Signal::STOP);
    if frozen == "a" {
        // Nobody can be counted as dead meanwhile. How long it takes is the fault.
        thread::sleep(FROZEN);
    } else {
        three.a.wait_for(frozen, "dead");
    }
    three.node_mut(frozen).running().signal(Signal::CONT);
    tree.ends_well();
    three.meet();
    rest_without_failures(three.all());
}

#[test]
fn what_a_frozen_worker_does_when_it_is_counted_as_dead_does_not_count() {
    frozen("a", "b");
}

#[test]
fn a_driver_s_node_that_was_frozen_goes_on() {
    frozen("c", "c");
}

#[test]
fn a_head_that_was_frozen_goes_on() {
    frozen("b", "a");
}

#[test]
fn results_on_a_frozen_head_are_reconstructed() {
    let mut three = Three::new();
    let mut tree = three.b.call("tree-of(\"a\", 80, 10000, 1500)").start();
    tree.wait_for(Stream::Err, "made\n");
    three.a.running().signal(Signal::STOP);
    // A connection that nobody answers is given up after some seconds.
    three
        .b
        .wait_for_log(&["an object is lost, and reconstructed"]);
    // The others are read where they are, by all at once.
    three.a.running().signal(Signal::CONT);
    let ended = tree.end();
    assert_eq!(ended.stdout_text(), "ok([80, 0])\n", "{ended}");
    three.meet();
    rest_without_failures(three.all());
}
