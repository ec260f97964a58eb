//! Where work goes when nodes stop, cannot be reached, or become free.

use rustix::process::Signal;
use wasmrun_tests::{Wasmrun, guest};

use super::world::{Node, Three, eventually};

/// A function of a guest, at a node.
fn submit(at: &Node, call: &str, args: &[&str]) -> Wasmrun {
    let submit = at.command(&["submit", "-q"]).arg(guest("spread"));
    submit.args(["--invoke", call]).args(args)
}

/// The same, left to the cluster. Its id.
fn detached(at: &Node, call: &str, args: &[&str]) -> String {
    let id = submit(at, call, args).args(["--detach"]).ok();
    id.trim().to_owned()
}

/// Waits until a task is in this state. Where it is.
#[track_caller]
fn wait_for(at: &Node, task: &str, state: &str) -> String {
    eventually(&format!("{task} {state}"), || {
        let seen = at.command(&["get", task]).json(0);
        match seen["state"] == state {
            true => Ok(seen["node"].as_str().expect("a name").to_owned()),
            false => Err(seen),
        }
    })
}

/// A task that runs on a node until it is cancelled, and has all of its CPU.
fn occupied(at: &Node, node: &str) -> String {
    let strategy = format!("node:{node}");
    let task = detached(at, "spin()", &["--cpus", "1", "--strategy", &strategy]);
    wait_for(at, &task, "running");
    task
}

#[test]
fn a_node_that_stops_is_given_no_more_work() {
    let mut three = Three::new();
    let spin = detached(&three.a, "spin()", &["--strategy", "node:b"]);
    wait_for(&three.a, &spin, "running");
    three.b.running().signal(Signal::TERM);
    for node in [&three.a, &three.c] {
        node.wait_for("b", "draining");
    }
    let array = ["--array", "0-8", "--strategy", "spread"];
    let places = submit(&three.a, "place()", &array).ok();
    assert_eq!(places.lines().count(), 9, "{places}");
    assert!(!places.contains("\"b\""), "{places}");
    // A preference for it is one for none.
    let soft = submit(&three.c, "place()", &["--strategy", "node:b:soft"]).ok();
    assert!(!soft.contains('b'), "{soft}");
    three.a.command(&["cancel", &spin]).ok();
    assert_eq!(three.b.stopped().code, Some(0));
    three.a.wait_for("b", "dead");
    // In its next life it takes work again.
    three.b.start(&["--join"]);
    three.meet();
    assert_eq!(
        submit(&three.a, "place()", &["--strategy", "node:b"]).ok(),
        "\"b\"\n"
    );
    for node in three.all() {
        node.wait_for_rest();
    }
}

#[test]
fn what_waits_at_a_node_that_stops_begins_elsewhere() {
    let mut three = Three::new();
    let spins = ["a", "b", "c"].map(|node| occupied(&three.b, node));
    // One that only the node that stops can run, and one that any can.
    let only = detached(
        &three.a,
        "place()",
        &["--cpus", "1", "--strategy", "node:b"],
    );
    let any = detached(&three.b, "place()", &["--cpus", "1"]);
    three.b.running().signal(Signal::TERM);
    three.a.wait_for("b", "draining");
    three.a.command(&["cancel", &spins[2]]).ok();
    assert_eq!(wait_for(&three.a, &any, "finished"), "c");
    three.a.command(&["cancel", &only]).ok();
    for spin in &spins[..2] {
        three.a.command(&["cancel", spin]).ok();
    }
    assert_eq!(three.b.stopped().code, Some(0));
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
    }
}

#[test]
fn work_goes_to_those_who_answer_while_the_head_is_away() {
    let mut three = Three::new();
    three.a.kill();
    // Nobody can be counted as dead, and some of these are given to the head at first.
    let array = ["--array", "0-11", "--cpus", "0.5"];
    for strategy in ["default", "spread"] {
        let places = submit(&three.b, "place()", &array);
        let places = places.args(["--strategy", strategy]).ok();
        assert_eq!(places.lines().count(), 12, "{places}");
        assert!(!places.contains("\"a\""), "{places}");
    }
    three.b.wait_for("a", "unreachable");
    // What is meant for it alone says for what it waits.
    let bound = detached(&three.b, "place()", &["--strategy", "node:a"]);
    let why = three.b.command(&["explain", &bound]).ok();
    assert!(why.contains("there is no connection to it"), "{why}");
    three.b.command(&["cancel", &bound]).ok();
    three.a.start(&["--head"]);
    three.meet();
    for node in three.all() {
        node.wait_for_rest();
    }
}

#[test]
fn what_waits_behind_a_long_task_goes_where_there_is_room() {
    let three = Three::new();
    let spins = ["a", "b", "c"].map(|node| occupied(&three.a, node));
    let waiting: Vec<String> = three
        .all()
        .map(|node| detached(node, "place()", &["--cpus", "1"]))
        .into();
    three.a.command(&["cancel", &spins[2]]).ok();
    // The other two run on.
    for task in &waiting {
        assert_eq!(wait_for(&three.a, task, "finished"), "c");
    }
    for spin in &spins[..2] {
        three.a.command(&["cancel", spin]).ok();
    }
    for node in three.all() {
        node.wait_for_rest();
    }
}
