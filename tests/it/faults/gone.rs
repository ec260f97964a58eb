//! Clients that vanish in the middle of their work.

use rustix::process::Signal;
use wasmrun_tests::Stream;

use super::world::{Three, eventually, wait_for_rest};

#[test]
fn all_that_a_vanished_client_had_started_ends_everywhere() {
    let three = Three::new();
    let mut growing = three.a.call(r#"grow(2, ["a", "b", "c"])"#).start();
    for node in ["a", "b", "c"] {
        growing.wait_for(Stream::Err, &format!("grown 0 at {node}"));
    }
    growing.signal(Signal::KILL);
    growing.end();
    wait_for_rest(three.all());
}

#[test]
fn what_is_detached_goes_on_without_its_client() {
    let three = Three::new();
    let detached = three.b.call("tree(60, 512, 40)").arg("--detach").ok();
    let id = detached.trim();
    assert!(!id.is_empty());
    eventually("finished", || {
        let task = three.b.command(&["get", id]).json(0);
        match task["state"] == "finished" {
            true => Ok(()),
            false => Err(task),
        }
    });
    let given = three.b.command(&["object", "get", id]).ok();
    assert_eq!(given, "ok([60, 0])\n");
    // Its result is kept, and nothing else.
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn what_a_task_left_behind_ends_with_it_on_every_node() {
    let three = Three::new();
    // A task at `a` has others started at `b` and `c`, which end and leave some behind that never do.
    let mut orphans = three.a.call(r#"orphans(["b", "c"])"#).start();
    orphans.wait_for(Stream::Err, "left 2");
    for node in [&three.b, &three.c] {
        node.wait_for_running("spin");
    }
    orphans.signal(Signal::INT);
    orphans.end();
    wait_for_rest(three.all());
}

#[test]
fn cancelling_a_task_reaches_what_its_children_left_behind() {
    let three = Three::new();
    // Started and run at one node; run at another one; and with one between that has ended too.
    for (at, call) in [
        ("a", r#"orphans(["b", "c"])"#),
        ("b", r#"orphans(["b", "c"])"#),
        ("a", r#"ancestor("b", ["b", "c"])"#),
    ] {
        let root = three.a.call_on(at, call).arg("--detach").ok();
        let root = root.trim();
        // Its children have ended at the other nodes, and what they had started runs there.
        eventually("left", || {
            let logs = three.a.command(&["logs", root]).run();
            match logs.stdout_text().contains("left 2") {
                true => Ok(()),
                false => Err(logs),
            }
        });
        for node in [&three.b, &three.c] {
            node.wait_for_running("spin");
        }
        three.c.command(&["cancel", root]).ok();
        wait_for_rest(three.all());
        let task = three.b.command(&["get", root]).json(0);
        assert_eq!(task["state"], "cancelled", "{task}");
    }
}

#[test]
fn what_a_task_left_behind_ends_with_the_node_of_its_driver() {
    let mut three = Three::new();
    let mut orphans = three.c.call(r#"orphans(["a", "b"])"#).start();
    orphans.wait_for(Stream::Err, "left 2");
    for node in [&three.a, &three.b] {
        node.wait_for_running("spin");
    }
    three.c.kill();
    orphans.end();
    wait_for_rest([&three.a, &three.b]);
}

#[test]
fn what_was_given_away_can_be_cancelled_where_it_is() {
    let three = Three::new();
    // It is `b`'s, runs at `c`, and is cancelled at `a`: and so on.
    for (owner, runner, canceller) in [("b", "c", "a"), ("c", "c", "b"), ("a", "b", "c")] {
        let call = format!(r#"cancelled("{owner}", "{runner}", "{canceller}")"#);
        assert_eq!(three.a.call(&call).ok(), "ok(true)\n");
    }
    wait_for_rest(three.all());
}
