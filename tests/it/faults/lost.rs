//! What is lost with a node that is killed, and cannot be had again: calls that were under way, stored values, actors that
//! were ended. Whoever waits for it hears at which node it was, or why it ended.

use wasmrun_tests::{Ended, Stream, Wasmrun, assert_says, guest};

use super::world::{Node, Three, eventually, wait_for_rest};

/// What a task at `a` says when `b` is killed as soon as the task has written something.
#[track_caller]
fn when_killed(three: &mut Three, call: &str, written: &str) -> Ended {
    let mut running = three.a.call(call).start();
    running.wait_for(Stream::Err, written);
    three.b.kill();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    ended
}

#[track_caller]
fn rests(three: &Three) {
    three.a.wait_for("b", "dead");
    wait_for_rest([&three.a, &three.c]);
}

/// Calls of an actor at `b` that `a` owns, made at another node, when `b` is killed.
fn calls(caller: &str, retries: u32, has_states: bool) -> (Three, Ended) {
    let mut three = Three::new();
    let call = format!(r#"retried("{caller}", "b", {retries}, {has_states})"#);
    let ended = when_killed(&mut three, &call, "hangs 10 at b");
    (three, ended)
}

#[test]
fn a_call_that_may_be_made_again_is_when_its_node_is_lost() {
    for (caller, has_states, answers) in [
        // From the beginning, and from the state after the call before.
        ("a", false, r#"["10", "110", "1110"]"#),
        ("a", true, r#"["11", "111", "1111"]"#),
        // By a node that does not own the actor.
        ("c", false, r#"["10", "110", "1110"]"#),
        ("c", true, r#"["11", "111", "1111"]"#),
    ] {
        let (three, ended) = calls(caller, 1, has_states);
        assert_eq!(ended.stdout_text(), format!("ok({answers})\n"), "{ended}");
        // Once in each generation.
        assert_eq!(ended.stderr.matches("hangs 10 at ").count(), 2, "{ended}");
        rests(&three);
    }
}

#[test]
fn a_call_that_may_not_be_made_again_fails_and_is_made_once() {
    for (caller, has_states, before) in [("a", false, 0), ("a", true, 1), ("c", true, 1)] {
        let (three, ended) = calls(caller, 0, has_states);
        let said = ended.stdout_text();
        assert_says(&said, &["node b, on which it lived, is lost"]);
        assert_eq!(ended.stderr.matches("hangs 10 at ").count(), 1, "{ended}");
        // The one behind it was sent there, too, and nobody knows whether it had begun; unless that came too late.
        let of_next_generation = match said.matches("is lost").count() {
            1 => format!(r#", "{}", "{}"])"#, before + 100, before + 1100),
            _ => format!(r#", "{}"])"#, before + 1000),
        };
        assert_says(&said, &[&of_next_generation]);
        rests(&three);
    }
}

#[test]
fn a_stored_value_that_is_lost_names_its_node() {
    for count in [8, 100_000] {
        let mut three = Three::new();
        let ended = when_killed(&mut three, &format!(r#"lost-puts("b", {count})"#), "stored");
        let said = ended.stdout_text();
        // What is small and was asked for before is at whoever has asked.
        let (lost, passed) = match count {
            8 => (1, "\"4\""),
            _ => (2, "(at node b) failed: "),
        };
        let named = said.matches("node b, which owned it, is lost").count();
        assert_eq!(named, lost, "{said}");
        assert_says(&said, &[passed]);
        rests(&three);
    }
}

/// Creates a detached actor of `c`'s, which lives at `b` and may live again, often.
fn create(three: &Three, name: &str) {
    let create = three.c.command(&["actor", "create"]).arg(guest("faults"));
    let create = create.args(["tally", "--name", name, "--strategy", "node:b:soft"]);
    create.args(["--restarts", "9", "--call-retries", "9"]).ok();
    assert_eq!(add(&three.c, name).ok(), "1\n");
}

fn add(at: &Node, name: &str) -> Wasmrun {
    at.command(&["actor", "call", name, "add(1)"])
}

/// Waits until nobody knows of an actor any more.
#[track_caller]
fn is_gone(at: &Node, name: &str) {
    eventually("was ended", || {
        let list = at.command(&["list", "actors"]).json(0);
        let actors = list["actors"].as_array().expect("a list");
        match actors.iter().any(|it| it["name"] == name) {
            true => Err(list),
            false => Ok(()),
        }
    });
    add(at, name).fails_saying(2, &[&format!("there is no actor '{name}'")]);
}

#[test]
fn a_cancelled_actor_does_not_live_again_wherever_it_was() {
    let mut three = Three::new();
    for name in ["cancelled", "goes-on"] {
        create(&three, name);
    }
    // In the middle of a call, from a node that has nothing to do with it.
    let hang = r#"hang(10, "b")"#;
    let calls = [&three.a, &three.c].map(|at| {
        let call = at.command(&["actor", "call", "cancelled", hang]);
        call.start()
    });
    // One runs, and the other waits behind it.
    eventually("both were there", || {
        let list = three.b.command(&["list", "tasks"]).json(0);
        let tasks = list["tasks"].as_array().expect("a list");
        let is_call = |name: &str| name.ends_with("#tally.hang");
        let names = tasks.iter().filter_map(|it| it["name"].as_str());
        match names.filter(|name| is_call(name)).count() {
            2 => Ok(()),
            _ => Err(list),
        }
    });
    three.a.command(&["cancel", "cancelled"]).ok();
    for call in calls {
        let ended = call.end();
        assert_eq!(ended.code, Some(5), "{ended}");
        assert_says(&ended.stderr, &["was ended"]);
    }
    for node in three.all() {
        is_gone(node, "cancelled");
    }
    // Neither with the node where it was, nor with the one that had created it and wrote it down: others take over
    // what is to go on.
    three.b.kill();
    three.a.wait_for("b", "dead");
    let answers = |at: &Node| {
        eventually("it answered", || match add(at, "goes-on").run() {
            ended if ended.code == Some(0) => Ok(()),
            ended => Err(ended),
        });
    };
    answers(&three.c);
    is_gone(&three.c, "cancelled");
    three.c.kill();
    three.a.wait_for("c", "dead");
    answers(&three.a);
    is_gone(&three.a, "cancelled");
    three.a.command(&["actor", "kill", "goes-on"]).ok();
    is_gone(&three.a, "goes-on");
    three.a.wait_for_rest();
}
