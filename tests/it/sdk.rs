//! What the guest SDK makes of plain Rust, on a node: values through the fast lane, tasks, objects,
//! failures and actors, in both ways of building a guest.

use std::fs;

use serde_json::json;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::anywhere::cluster;

/// A call of one of the module's functions, by both ways of building it.
fn sdk(call: &str) -> [Wasmrun; 2] {
    ["sdk", "sdk-p1"].map(|guest| Wasmrun::submit(guest).args(["--invoke", call]))
}

/// Asserts what a call's result is.
#[track_caller]
fn assert_result(call: &str, result: &str) {
    for run in sdk(call) {
        assert_eq!(run.ok(), format!("{result}\n"), "{call}");
    }
}

#[test]
fn values_come_back_as_they_were() {
    let everything = "{flag: true, letter: 'ß', text: \"text\", small: -1, \
         wide: -9223372036854775808, real: 0.5, maybe: some({seed: 1, samples: 2}), \
         outcome: err(\"no\"), nothing: ok, pair: (7, [\"a\", \"\"]), numbers: [1.5, -2.5], \
         bytes: [0, 1, 255], shapes: [dot, circle(1), rect((2, 3)), star({points: 5, radius: 1})], \
         trust: high, type: 12}";
    assert_result(&format!("echo({everything})"), everything);
    assert_result("echo-bytes([0, 1, 255])", "[0, 1, 255]");
    assert_result("echo-bytes([])", "[]");
    assert_result("echo-result(ok([1.5, -2]))", "ok([1.5, -2])");
    assert_result("area([rect((2, 3)), dot])", "6");
    for run in sdk("echo-result(err(\"no\"))") {
        run.fails_saying(5, &["the function returned an error: \"no\""]);
    }
}

#[test]
fn large_bytes_pass_through() {
    let dir = scratch();
    let (input, output) = (dir.path().join("input"), dir.path().join("output"));
    let bytes: Vec<u8> = (0..10_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(&input, &bytes).unwrap();
    for guest in ["sdk", "sdk-p1"] {
        Wasmrun::submit(guest)
            .args(["--invoke", "echo-bytes()", "-O"])
            .arg(&output)
            .arg("--arg-file")
            .arg(format!("1={}", input.display()))
            .ok();
        assert!(fs::read(&output).unwrap() == bytes, "{guest}");
    }
}

#[test]
fn tasks_start_tasks() {
    assert_result("fib(10)", "ok(55)");
    assert_result("chain(30)", "ok(1073741824)");
    assert_result("spread-out(500)", "ok(500)");
    for run in sdk("pi(8, 20000)") {
        let said = run.ok();
        assert!(said.starts_with("ok(3.1"), "{said}");
    }
    for run in sdk("pi-plus(2, 1)") {
        let said = run.ok();
        assert!(said.starts_with("ok(4."), "{said}");
    }
}

#[test]
fn objects_are_handed_around() {
    // As value, handle, future and mapped; small ones stay inline, large ones do not.
    assert_result("objects(4)", "ok([6, 6, 3, 6, 32, 24, 7])");
    let sum = "499999500000";
    let large = format!("ok([{sum}, {sum}, 3, {sum}, 8000000, 6000000, 13])");
    assert_result("objects(1000000)", &large);
    assert_result("lend(4)", "ok((6, 4))");
    assert_result("lend(1000000)", &format!("ok(({sum}, 1000000))"));
    assert_result("churn(20, 1024)", "ok(190)");
    // What an attempt stores or starts is its own, also where one before stored or started something else.
    for are_stored in [true, false] {
        assert_result(&format!("make-twice(8, {are_stored})"), "ok((16, 8))");
        let large = format!("make-twice(100000, {are_stored})");
        assert_result(&large, "ok((200000, 100000))");
    }
    assert_result("gather([])", "ok(0)");
}

#[test]
fn stored_values_keep_what_they_name() {
    // Small ones stay inline, large ones do not.
    for (count, sum) in [(8, 20), (4000, 10_000)] {
        for run in sdk(&format!("use-stored({count}, \"here\")")) {
            let said = run.args(["--node-name", "here"]).ok();
            assert_eq!(said, format!("ok([15, {sum}, {sum}, 17])\n"));
        }
    }
}

#[test]
fn stored_values_keep_what_they_name_at_other_nodes() {
    let members = cluster(["a", "b"]);
    for (count, sum) in [(8, 20), (4000, 10_000)] {
        let call = format!("use-stored({count}, \"b\")");
        let submit = members[0].command(&["submit"]).arg(guest("sdk"));
        let submit = submit.args(["--strategy", "node:a", "--invoke", &call]);
        assert_eq!(submit.ok(), format!("ok([15, {sum}, {sum}, 17])\n"));
    }
}

#[test]
fn failures_say_what_happened() {
    assert_result("read-payload(11)", "ok(too-large({most: 10}))");
    assert_result("read-payload(0)", "ok(empty)");
    assert_result("cancel-spin()", "ok(\"Cancelled, Some(Cancelled), Over\")");
    // `slow` takes a minute, if it may: it ends with its caller.
    assert_result("impatient(60000, 20)", "ok((true, true))");
    let trap = "ok(\"Some(Trap): the guest trapped";
    let dependency = "ok(\"Some(Dependency): argument 1 could not be made: task ";
    for (call, start, says) in [
        ("read-panic(\"ouch\")", trap, ""),
        (
            "read-dependency(\"ouch\")",
            dependency,
            "(panic) failed: the guest trapped",
        ),
    ] {
        for run in sdk(call) {
            let ended = run.run();
            let said = ended.stdout_text();
            assert!(said.starts_with(start) && said.contains(says), "{ended}");
            // The panic's message is what the guest printed.
            assert_says(&ended.stderr, &["ouch"]);
        }
    }
    for run in sdk("pi-plus(0, 1)") {
        run.fails_saying(
            5,
            &[
                "argument 1 could not be made",
                "(pi) failed",
                "pi needs at least one part",
            ],
        );
    }
}

#[test]
fn a_task_is_tried_again_as_often_as_its_caller_says() {
    assert_result("retrying()", "ok(2)");
    // Where an error that is returned is a failure, too.
    for run in sdk("right-in-the-end()") {
        assert_says(&run.ok(), &["[\"2\", ", "too early: 2", "too early: 0"]);
    }
    for run in sdk("succeed-at(1)") {
        run.fails_saying(5, &["the guest trapped"]);
    }
    for run in sdk("succeed-at(1)") {
        assert_eq!(run.args(["--retries", "1"]).ok(), "1\n");
    }
}

#[test]
fn options_of_a_call_count_instead_of_what_is_declared() {
    let node = ["--node-gpus", "1", "--node-resource", "probe=3"];
    let labels = ["--node-label", "zone=a", "--node-name", "here"];
    for run in sdk("with-options()") {
        let json = run.args(node).args(labels).json(0);
        let held = json!(["0.25", "33554432", "0.5", "2", "nothing", "here"]);
        assert_eq!(json["result"]["ok"], held, "{json:#}");
    }
    for run in sdk("labelled(\"zone=b\")") {
        run.args(labels)
            .fails_saying(5, &["label zone=b does not match"]);
    }
    for run in sdk("labelled(\"zone in a\")") {
        run.fails_saying(5, &["zone in a"]);
    }
    for run in sdk("in-order()") {
        let said = run.args(["--node-cpus", "1", "--cpus", "1"]).run();
        assert_eq!(said.code, Some(0), "{said}");
        assert_eq!(said.stderr, "urgent\nfirst\nlast\n", "{said}");
    }
    for run in sdk("limited(200)") {
        run.fails_saying(5, &["time limit of 200ms reached"]);
    }
    assert_result("calling-again(2)", "ok(2)");
}

#[test]
fn an_actors_calls_are_made_again_as_its_class_declares() {
    assert_result("calling-again-as-declared()", "ok(1)");
}

#[test]
fn all_values_have_one_deadline() {
    // Each of ten comes within half the time, all of them only in five times as much.
    for run in sdk("in-time(10, 100, 200)") {
        run.fails_saying(5, &["the function returned an error: timed-out"]);
    }
    assert_result("in-time(3, 1, 60000)", "ok([1, 2, 3])");
    assert_result("in-time(0, 0, 0)", "ok([])");
}

#[test]
fn actors_keep_their_state() {
    assert_result("count(200)", "ok(200)");
    assert_result("share-counter()", "ok(76)");
    assert_result("reviving(5)", "ok(6)");
}

#[test]
fn actors_are_found_by_name() {
    for run in sdk("named(\"one\")") {
        let said = run.ok();
        assert_says(
            &said,
            &[
                "ok([\"2\", ",
                "the name \\'one\\' belongs to actor ",
                "there is no actor named \\'one-unknown\\'",
            ],
        );
    }
}

#[test]
fn calls_and_constructors_have_time_limits() {
    for run in sdk("overdue(300)") {
        let limit = "time limit of 300ms reached";
        let died = "Some(ActorDied): ";
        assert_says(
            &run.ok(),
            &["ok([\"Some(Limit): ", limit, "\"3\"", died, limit],
        );
    }
    for run in sdk("overdue(2000)") {
        // The node has the last word.
        run.args(["--max-time-limit", "1s"]).fails_saying(
            5,
            &["time limit of 1s for one constructor on this node: 2s"],
        );
    }
}

#[test]
fn actors_die_of_a_panic() {
    for run in sdk("dying()") {
        let said = run.ok();
        assert_says(
            &said,
            &[
                "ok([\"1 is less than 2\", \"Some(Trap): the guest trapped",
                "\"Some(ActorDied): actor ",
                "has died: the guest trapped",
            ],
        );
    }
}

#[test]
fn circles_are_found() {
    assert_result("circle(1)", "ok(1)");
    for run in sdk("circle(2)") {
        let waits = "tasks wait for each other in a circle: ";
        run.fails_saying(5, &[waits, "#caller.ask", "waits for the first"]);
    }
}

#[test]
fn recursion_that_the_node_has_no_room_for_is_found() {
    // Each task asks for 64 MiB, as the module declares.
    for (room, why) in [
        (["--max-sandboxes", "3"], "one of 3 sandboxes"),
        (
            ["--node-memory", "192MiB"],
            "memory: needs 64MiB, node has 0 free",
        ),
    ] {
        for run in sdk("fib(10)") {
            run.args(room).fails_saying(5, &["deadlock", why]);
        }
    }
}

#[test]
fn failures_that_are_passed_on_do_not_grow() {
    let said = |call: &str| sdk(call).map(|run| run.fails(5));
    let of = |depth| said(&format!("passes({depth})"));
    for (near, far) in of(2).into_iter().zip(of(12)) {
        assert_says(&far, &["it passed on how task ", "they said \"no\""]);
        assert_eq!(near.len(), far.len(), "{near}\n{far}");
    }
    let of = |depth| said(&format!("quotes({depth})"));
    for (near, far) in of(2).into_iter().zip(of(12)) {
        assert_says(&far, &["they said \"no\""]);
        // Each quotes the one before it, in as many words.
        assert!(far.len() < near.len() + 10 * 60, "{near}\n{far}");
    }
}

#[test]
fn a_submitted_function_may_return_a_handle() {
    for run in sdk("hand-out(4)") {
        let said = run.ok();
        assert!(said.starts_with('"') && said.contains('@'), "{said}");
    }
}

#[test]
fn a_submitted_function_may_return_an_actor() {
    for run in sdk("make-counter(3)") {
        let said = run.ok();
        assert!(said.starts_with("ok(\"") && said.contains('@'), "{said}");
    }
}

#[test]
fn the_module_declares_what_it_needs() {
    for guest in ["sdk", "sdk-p1"] {
        let run = Wasmrun::submit(guest).args(["--invoke", "whoami()", "--node-name", "here"]);
        let json = run.json(0);
        assert_eq!(json["result"][1], 0, "{json:#}");
        assert_eq!(json["result"][2], "here", "{json:#}");
        let held = Wasmrun::submit(guest).args(["--invoke", "held(\"CPU\")"]);
        assert_eq!(held.json(0)["result"], json!("0.1"));
        let held = Wasmrun::submit(guest).args(["--invoke", "held(\"memory\")"]);
        assert_eq!(held.json(0)["result"], json!("67108864"));
    }
}
