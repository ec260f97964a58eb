//! Where work goes when nodes stop, cannot be reached, or become free.

use rustix::process::Signal;
use wasmrun_tests::{Running, Stream, Wasmrun, assert_says, guest};

use super::world::{Node, Three, Tree, eventually, wait_for_rest};

/// A function of a guest, at a node.
fn submit(at: &Node, call: &str, args: &[&str]) -> Wasmrun {
    let submit = at.command(&["submit", "-q"]).arg(guest("spread"));
    submit.args(["--invoke", call]).args(args)
}

/// The same, left to the cluster. Its id.
pub(super) fn detached(at: &Node, call: &str, args: &[&str]) -> String {
    let id = submit(at, call, args).args(["--detach"]).ok();
    id.trim().to_owned()
}

/// Waits until a task is in this state. Where it is.
#[track_caller]
pub(super) fn wait_for(at: &Node, task: &str, state: &str) -> String {
    eventually(&format!("{task} {state}"), || {
        let seen = at.command(&["get", task]).json(0);
        match seen["state"] == state {
            true => Ok(seen["node"].as_str().expect("a name").to_owned()),
            false => Err(seen),
        }
    })
}

/// A task that runs on a node until it is cancelled, and has all of its CPU.
pub(super) fn occupied(at: &Node, node: &str) -> String {
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
    // In its next incarnation it takes work again.
    three.b.start(&["--join"]);
    three.meet();
    assert_eq!(
        submit(&three.a, "place()", &["--strategy", "node:b"]).ok(),
        "\"b\"\n"
    );
    wait_for_rest(three.all());
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
    wait_for_rest([&three.a, &three.c]);
}

/// What waits there to begin is what others elsewhere wait for, and those leave it room.
#[test]
fn what_depends_on_tasks_at_a_node_that_is_taken_for_good_ends() {
    let three = Three::new();
    let spin = occupied(&three.b, "c");
    Tree::start_large(&three.b).ends_well();
    three.b.command(&["cancel", &spin]).ok();
    wait_for_rest(three.all());
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
    wait_for_rest(three.all());
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
    wait_for_rest(three.all());
}

/// What [`left_behind`] gives: 0 + 1 + … below 100,000 and below 50,000, and so many halves.
const LEFT_BEHIND: &str = "ok([4999950000, 1249975000, 40000, 4])\n";

/// A task at a node that reads what is on b when that is gone, and has had it made by now.
fn left_behind(at: &Node) -> Running {
    let strategy = format!("node:{}", at.name);
    let mut running = submit(at, "left-behind(\"b\")", &["--strategy", &strategy]).start();
    running.wait_for(Stream::Err, "made");
    running
}

/// What a task says at its end.
#[track_caller]
fn said(running: Running) -> String {
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    ended.stdout_text()
}

#[test]
fn what_others_need_of_a_node_that_stops_is_there_afterwards() {
    let mut three = Three::new();
    // Of an owner that is the head, and of one that is not.
    let reading = [left_behind(&three.a), left_behind(&three.c)];
    three.b.running().signal(Signal::TERM);
    let ended = three.b.stopped();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!ended.stderr.contains("goes with this one"), "{ended}");
    for running in reading {
        assert_eq!(said(running), LEFT_BEHIND);
    }
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn what_others_need_of_a_drained_node_outlives_its_loss() {
    let mut three = Three::new();
    let reading = left_behind(&three.a);
    let is_at = |node: &str| {
        let list = ["list", "objects", "-f", &format!("node={node}")];
        let list = three.a.command(&list).json(0);
        list["objects"].as_array().expect("a list").len()
    };
    assert_eq!((is_at("a") + is_at("c"), is_at("b")), (0, 3));
    three.c.command(&["node", "drain", "b"]).ok();
    eventually("copied", || match is_at("a") + is_at("c") {
        3 => Ok(()),
        few => Err(few),
    });
    // The small one came in a message.
    let running = three.b.running();
    running.wait_for(Stream::Err, "other nodes have what they need of this one");
    three.b.kill();
    assert_eq!(said(reading), LEFT_BEHIND);
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn what_finds_no_room_elsewhere_is_named_in_the_log() {
    let small = |name| Node::new(name).with_store("8MiB");
    let mut three = Three::with([small("a"), Node::new("b"), small("c")]);
    // 16 MB, which a owns.
    let large = detached(
        &three.a,
        "ramp(2000000)",
        &["--strategy", "node:b", "--memory", "128MiB"],
    );
    wait_for(&three.a, &large, "finished");
    three.b.running().signal(Signal::TERM);
    let ended = three.b.stopped();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(
        &ended.stderr,
        &["goes with this one", "node=a", "it has room for", "16000"],
    );
    three.a.command(&["object", "delete", &large]).ok();
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn a_node_that_waits_for_others_stops_at_once_if_it_is_told_twice() {
    let patient = |name| Node::new(name).with(&["--lease-time", "120s"]);
    let mut three = Three::with(["a", "b", "c"].map(patient));
    let large = detached(&three.c, "ramp(100000)", &["--strategy", "node:b"]);
    wait_for(&three.a, &large, "finished");
    // It counts as alive, and does not say what is to become of its result.
    three.c.running().signal(Signal::STOP);
    three.b.running().signal(Signal::TERM);
    three.a.wait_for("b", "draining");
    three.b.running().signal(Signal::TERM);
    assert_eq!(three.b.stopped().code, Some(0));
    three.c.running().signal(Signal::CONT);
    three.c.wait_for("b", "dead");
    three.c.command(&["object", "delete", &large]).ok();
    wait_for_rest([&three.a, &three.c]);
}

/// Waits until a node gives a result of so many numbers.
#[track_caller]
pub(super) fn has_numbers(at: &Node, task: &str, count: usize) {
    eventually(&format!("{task} has a result"), || {
        let got = at.command(&["object", "get", task]).run();
        match got.code {
            Some(0) => {
                assert_eq!(got.stdout_text().matches(',').count() + 1, count);
                Ok(())
            }
            _ => Err(got.to_string()),
        }
    });
}

/// Has numbers made at a node, of a task that others go on with when its owner is lost. Its id.
fn ramp(owner: &Node, at: &str, count: usize) -> String {
    let strategy = format!("node:{at}");
    let task = detached(owner, &format!("ramp({count})"), &["--strategy", &strategy]);
    wait_for(owner, &task, "finished");
    task
}

#[test]
fn results_of_detached_tasks_outlive_nodes_that_stop() {
    let mut three = Three::new();
    // Of both kinds: in messages, and in the store of whom the node that stops has, or another.
    let made: Vec<(String, usize)> = [("b", 6_000), ("b", 100_000), ("c", 100_001)]
        .into_iter()
        .map(|(at, count)| (ramp(&three.b, at, count), count))
        .collect();
    let kept = ramp(&three.c, "b", 100_002);
    three.b.running().signal(Signal::TERM);
    let ended = three.b.stopped();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!ended.stderr.contains("goes with this"), "{ended}");
    for (task, count) in &made {
        has_numbers(&three.a, task, *count);
    }
    has_numbers(&three.a, &kept, 100_002);
    // The next one that stops is the owner of some of them, or has them.
    three.c.running().signal(Signal::TERM);
    let ended = three.c.stopped();
    assert_eq!(ended.code, Some(0), "{ended}");
    for (task, count) in &made {
        has_numbers(&three.a, task, *count);
        three.a.command(&["object", "delete", task]).ok();
    }
    has_numbers(&three.a, &kept, 100_002);
    three.a.command(&["object", "delete", &kept]).ok();
    three.a.wait_for_rest();
}

#[test]
fn the_result_of_a_detached_task_outlives_the_loss_of_its_owner_where_another_node_has_it() {
    let mut three = Three::new();
    let task = ramp(&three.b, "c", 100_000);
    // What came of it is written down before this is answered.
    let next = detached(&three.b, "place()", &[]);
    wait_for(&three.b, &next, "finished");
    three.b.kill();
    three.a.wait_for("b", "dead");
    has_numbers(&three.a, &task, 100_000);
    three.c.command(&["object", "delete", &task]).ok();
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn the_result_of_a_detached_task_outlives_the_loss_of_a_drained_owner() {
    let mut three = Three::new();
    let task = ramp(&three.b, "b", 100_000);
    three.c.command(&["node", "drain", "b"]).ok();
    three
        .b
        .running()
        .wait_for(Stream::Err, "results of detached tasks");
    three.b.kill();
    three.a.wait_for("b", "dead");
    has_numbers(&three.c, &task, 100_000);
    three.c.command(&["object", "delete", &task]).ok();
    wait_for_rest([&three.a, &three.c]);
}
