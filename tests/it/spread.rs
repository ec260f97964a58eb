//! Work on several nodes: where tasks run, how objects get there, and what becomes of both when a node is lost.

use rustix::process::Signal;
use wasmrun_tests::{Ended, Stream, Wasmrun, assert_says, guest};

use crate::anywhere::cluster;
use crate::cluster::{Member, wait_for_rest};

/// Three nodes that see each other.
pub(crate) struct Three {
    pub(crate) a: Member,
    pub(crate) b: Member,
    pub(crate) c: Member,
}

impl Three {
    pub(crate) fn new() -> Self {
        let [a, b, c] = cluster(["a", "b", "c"]);
        Self { a, b, c }
    }
}

/// A function of the guest, called at a node.
pub(crate) fn call(at: &Member, call: &str) -> Wasmrun {
    let submit = at.command(&["submit", "-q"]).arg(guest("spread"));
    submit.args(["--invoke", call])
}

fn on(at: &Member, node: &str, what: &str) -> Ended {
    call(at, what)
        .args(["--strategy", &format!("node:{node}")])
        .run()
}

#[test]
fn tasks_run_where_they_are_wanted_and_their_objects_follow() {
    let three = Three::new();
    assert_eq!(on(&three.a, "b", "place()").stdout_text(), "\"b\"\n");
    // From any node to any other: no one of them is special.
    assert_eq!(on(&three.c, "a", "place()").stdout_text(), "\"a\"\n");
    let places = call(&three.b, r#"places(["a", "b", "c", "a"])"#).ok();
    assert_eq!(places, "ok([\"a\", \"b\", \"c\", \"a\"])\n");
    // In messages, and by streams; from one to the other and back, also where the one who starts it all is a third.
    for (count, sum) in [(20, "190"), (200_000, "19999900000")] {
        let want = format!("ok([{sum}, {sum}, {sum}])\n");
        let what = format!(r#"there-and-back("b", "c", {count})"#);
        assert_eq!(call(&three.a, &what).ok(), want);
        assert_eq!(on(&three.c, "a", &what).stdout_text(), want);
    }
    // Handles in results and in arguments, of objects that a third node owns.
    let handed_on = r#"handed-on("b", "c", 100000)"#;
    assert_eq!(call(&three.a, handed_on).ok(), "ok(5000000000)\n");
    assert_eq!(
        on(&three.a, "c", handed_on).stdout_text(),
        "ok(5000000000)\n"
    );
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn many_tasks_spread_over_the_nodes() {
    let three = Three::new();
    let spread = call(&three.a, "place()").args(["--strategy", "spread", "--array", "0-59"]);
    let places = spread.ok();
    for node in ["a", "b", "c"] {
        let there = places.matches(&format!("\"{node}\"")).count();
        assert!(there > 0, "none ran at {node}: {places}");
    }
}

#[test]
fn output_and_failures_come_back_from_other_nodes() {
    let three = Three::new();
    let said = on(&three.a, "b", "say(3)");
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(said.stderr, "0 at b\n1 at b\n2 at b\n");
    let failed = on(&three.a, "c", "fail()");
    assert_ne!(failed.code, Some(0));
    // With the place in the guest where that was.
    let says = [
        "as it was told to",
        "trapped",
        "    at spread:spread/app#fail",
        "    in task ",
        " at node c\n",
    ];
    assert_says(&failed.stderr, &says);
    let panics = failed.stderr.matches("as it was told to").count();
    assert_eq!(panics, 1, "{failed}");
    let nowhere = on(&three.a, "d", "place()");
    assert_ne!(nowhere.code, Some(0));
    assert_says(&nowhere.stderr, &["node d is not in the cluster"]);
    // What only this node has cannot go elsewhere, and says so.
    let folder = call(&three.a, "place()").args(["--strategy", "node:b", "--dir", "/::/all:ro"]);
    let folder = folder.run();
    assert_says(
        &folder.stderr,
        &["runs where it is submitted", "submit it at b"],
    );
}

#[test]
fn another_node_is_told_whether_an_error_is_a_failure() {
    let three = Three::new();
    let run = |args: &[&str]| {
        let submit = three.a.command(&["submit"]).arg(guest("fixture"));
        let submit = submit.args(["--invoke", "succeed-at(1, error, \"\", [])"]);
        let there = ["--strategy", "node:b", "--retries", "1"];
        submit.args(there).args(args).run()
    };
    let answered = run(&[]);
    assert_eq!(answered.code, Some(5), "{answered}");
    assert_says(&answered.stderr, &["the function returned an error"]);
    let again = run(&["--retry-on-error"]);
    assert_eq!(again.stdout_text(), "ok((1, \"\", []))\n", "{again}");
}

#[test]
fn a_cancelled_task_stops_on_its_node() {
    let three = Three::new();
    let spinning = call(&three.a, "spin()")
        .args(["--strategy", "node:b"])
        .start();
    loop {
        let tasks = three.b.command(&["list", "tasks"]).json(0);
        if tasks.to_string().contains("running") {
            break;
        }
    }
    spinning.signal(Signal::INT);
    assert_eq!(spinning.end().code, Some(130));
    wait_for_rest([&three.a, &three.b]);
}

#[test]
fn what_a_lost_node_had_made_is_made_again() {
    let mut three = Three::new();
    let mut running = call(&three.a, r#"recovered("b", 3)"#).start();
    running.wait_for(Stream::Err, "made");
    three.b.kill();
    let ended = running.end();
    assert_eq!(ended.stdout_text(), "ok(5000250000)\n", "{ended}");
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn actors_live_on_other_nodes_and_are_called_from_all() {
    let three = Three::new();
    // From where it was created, from the node where it lives, from a third.
    for (node, other) in [("b", "c"), ("c", "a"), ("a", "b"), ("b", "b")] {
        let what = format!(r#"tallied("{node}", "{other}", 200)"#);
        // The calls of both callers, two sums, and its own.
        let want = format!("ok((\"{node}\", true, 403))\n");
        assert_eq!(call(&three.a, &what).ok(), want);
    }
    // Owned by a task on one node, which has ended, alive on another, called from a third.
    for (one, other) in [("b", "c"), ("b", "a"), ("a", "c"), ("c", "c")] {
        let adopted = call(&three.a, &format!(r#"adopted("{one}", "{other}")"#)).ok();
        assert_eq!(adopted, format!("ok((\"{other}\", 1))\n"));
    }
    // Nobody refers to them any more: they are gone, and nothing of them is held.
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn actors_on_other_nodes_die_and_live_again_as_they_do_on_this_one() {
    let three = Three::new();
    let here = call(&three.a, r#"generations("a")"#).json(0);
    let there = call(&three.a, r#"generations("b")"#).json(0);
    let said = |generations: &serde_json::Value| -> Vec<String> {
        let said = generations["result"]["ok"]
            .as_array()
            .expect("a list")
            .clone();
        said.iter()
            .map(|it| it.as_str().expect("a text").to_owned())
            .collect()
    };
    let (here, there) = (said(&here), said(&there));
    assert_eq!(here.len(), there.len());
    assert_eq!((&*there[0], &*there[2], &*there[5]), ("1", "2", "1"));
    for at in [1, 3] {
        assert_says(&there[at], &["trapped"]);
        assert_eq!(here[at], there[at]);
    }
    assert_says(&there[4], &["has died"]);
    for said in [&there[6], &there[7]] {
        assert_says(said, &["was ended"]);
    }
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn an_actor_whose_node_is_lost_goes_on_elsewhere_from_its_last_state() {
    // In messages, and by streams.
    for ballast in [0, 2_000_000] {
        let mut three = Three::new();
        let mut running = call(&three.a, &format!(r#"moved("b", {ballast})"#)).start();
        running.wait_for(Stream::Err, "counted");
        three.b.kill();
        let ended = running.end();
        // A large state is brought behind the calls, and the last ones may have been on their way.
        let may_lag = if ballast > 0 { 3 } else { 0 };
        let mut all = (0..=may_lag).map(|lag| format!("ok((10, {}, true))\n", 11 - lag));
        assert!(all.any(|said| said == ended.stdout_text()), "{ended}");
        wait_for_rest([&three.a, &three.c]);
    }
}

#[test]
fn an_actor_ends_with_the_node_that_owns_it() {
    for is_busy in [false, true] {
        let mut three = Three::new();
        let what = format!(r#"keep-tally("b", "c", {is_busy})"#);
        let mut held = call(&three.a, &what).start();
        held.wait_for(Stream::Err, "made");
        three.b.kill();
        let ended = held.end();
        assert_says(&ended.stdout_text(), &["has died"]);
        wait_for_rest([&three.a, &three.c]);
    }
}
