//! Actors: order of calls, generations that end and begin again, names, limits, and circles that are found.

use wasmrun_tests::{Wasmrun, assert_says};

/// A call of one of the graph's functions.
fn graph(call: &str) -> Wasmrun {
    Wasmrun::submit("graph").args(["--invoke", call])
}

const TRAP: &str = "failed (FailureKind::Trap): the guest trapped";
const DIED: &str = "failed (FailureKind::ActorDied): actor ";

#[test]
fn an_actor_keeps_its_state() {
    for (call, result) in [
        ("count(1)", "1\n"),
        ("count(1000)", "1000\n"),
        ("count-together(300)", "600\n"),
        ("by-name(\"one\")", "42\n"),
    ] {
        assert_eq!(graph(call).ok(), result, "{call}");
    }
}

#[test]
fn calls_of_one_caller_run_in_order() {
    assert_eq!(graph("in-order(500)").ok(), "true\n");
}

#[test]
fn a_crash_ends_an_actor() {
    let said = graph("survive(0)").ok();
    assert_says(
        &said,
        &[
            "[\"11\", ",
            TRAP,
            DIED,
            "has died: the guest trapped",
            "give it restarts",
        ],
    );
}

#[test]
fn an_actor_that_may_be_started_again_goes_on_from_its_checkpoint() {
    let said = graph("survive(1)").ok();
    assert_says(&said, &["[\"11\", ", TRAP, ", \"12\"]"]);
    assert!(!said.contains(DIED), "{said}");
}

#[test]
fn without_a_checkpoint_it_begins_anew() {
    // It held 100; the call that crashed it is not made again.
    let said = graph("call-again(1, 1, 0)").ok();
    assert_says(&said, &["[\"100\", \"failed", "Trap", "\"1\"]"]);
    // Here it is, in its second generation.
    assert_eq!(
        graph("call-again(1, 1, 1)").ok(),
        "[\"100\", \"1\", \"1\"]\n"
    );
    assert_eq!(
        graph("call-again(3, 5, 3)").ok(),
        "[\"100\", \"3\", \"1\"]\n"
    );
    // Nothing crashes in the first.
    assert_eq!(
        graph("call-again(0, 0, 0)").ok(),
        "[\"100\", \"0\", \"101\"]\n"
    );
}

#[test]
fn a_call_is_made_again_only_as_often_as_was_said() {
    // There are generations left, and none for that call.
    let said = graph("call-again(3, 5, 1)").ok();
    assert_says(&said, &["[\"100\", \"failed", "Trap", "\"1\"]"]);
    // The call could be made again, and there is no generation left.
    let said = graph("call-again(3, 1, 5)").ok();
    assert_says(&said, &["[\"100\", ", DIED, DIED]);
}

#[test]
fn futures_are_arguments_of_constructors_and_calls() {
    let said = graph("born-of()").ok();
    assert_says(
        &said,
        &[
            "[\"8\", ",
            // The actor that was never born says why.
            DIED,
            "(number) failed: the guest trapped",
            "failed (FailureKind::Dependency): argument 1 could not be made",
            "(number) failed: the guest trapped",
            ", \"9\"]",
        ],
    );
}

#[test]
fn killing_ends_a_busy_actor_and_all_its_calls() {
    let said = graph("kill-busy()").ok();
    // The one that ran, the one that waited, and a later one. It is not started again.
    assert_eq!(said.matches(DIED).count(), 3, "{said}");
    assert_says(&graph("call-the-dead()").ok(), &[DIED, "was ended"]);
}

#[test]
fn cancelling_a_call_spares_the_actor() {
    // One that waits never runs; one that runs comes to its end.
    let said = graph("cancel-calls()").ok();
    assert_says(
        &said,
        &[
            "[\"Cancellation::Cancelled: failed (FailureKind::Cancelled)",
            "\"Cancellation::RunsOn: ",
            "\"Cancellation::Over\"",
            ", \"1\"]",
        ],
    );
}

#[test]
fn an_actor_that_nobody_knows_any_more_ends() {
    // Each needs the sandbox of the one before.
    let run = graph("let-go(100)").args(["--max-sandboxes", "2"]);
    assert_eq!(run.ok(), "200\n");
}

#[test]
fn hundreds_of_actors_live_side_by_side() {
    assert_eq!(graph("count-with(600)").ok(), "1200\n");
    // They hold no CPU.
    assert_eq!(
        graph("count-with(50)").args(["--node-cpus", "1"]).ok(),
        "100\n"
    );
}

#[test]
fn actors_that_the_node_has_no_room_for_are_found() {
    for (room, why) in [
        (["--max-sandboxes", "50"], "one of 50 sandboxes"),
        (["--node-memory", "256MiB"], "memory: needs 4MiB"),
    ] {
        graph("count-with(100)")
            .args(room)
            .fails_saying(5, &["Deadlock", why]);
    }
}

#[test]
fn the_memory_limit_is_for_life() {
    // 8 MiB, of which each call keeps one.
    let said = graph("hold(1, 20)").ok();
    assert_says(
        &said,
        &[
            "[\"1048576\", \"2097152\", ",
            "failed (FailureKind::Limit): memory limit of 8 MiB reached",
            DIED,
            "has died: memory limit of 8 MiB reached",
        ],
    );
}

#[test]
fn what_no_actor_can_do_is_refused() {
    for (what, why) in [
        (
            "class",
            "no class \\'countr\\'; did you mean wasmrun:graph/tests@0.1.0#counter?",
        ),
        (
            "constructor",
            "takes 1 arguments and 2 were given: func(start: u64)",
        ),
        ("method", "#counter has no method \\'ad\\'; it has add, "),
        (
            "call",
            "takes 1 arguments and 0 were given: func(n: u64) -> u64",
        ),
        (
            "name",
            "these bytes do not name an actor that this task was given or has made",
        ),
        ("find", "there is no actor named \\'nobody\\'"),
    ] {
        let said = graph(&format!("actor-error(\"{what}\")")).ok();
        assert_says(&said, &["\"refused: ", why]);
    }
}

#[test]
fn actors_that_wait_for_each_other_are_told() {
    let said = graph("circle()").ok();
    let waits = "tasks wait for each other in a circle: ";
    assert_says(
        &said,
        &[waits, "#counter.relay", "waits for", "waits for the first"],
    );
}

#[test]
fn a_wait_for_what_ones_own_actors_hold_is_found() {
    let crowd = |how: &str, count: u32| {
        let call = format!("crowd(\"{how}\", {count})");
        graph(&call).args(["--node-cpus", "2"])
    };
    assert_eq!(crowd("own", 1).ok(), "3\n", "a CPU is left");
    for how in ["own", "passed", "got"] {
        let said = crowd(how, 2).fails(5);
        let parts = [
            "deadlock: ",
            "hold",
            "2 actors of theirs",
            "CPU: needs 1",
            "kill actors",
        ];
        for part in parts {
            assert!(said.contains(part), "{how}: {said}");
        }
    }
    // The third never comes to be.
    crowd("own", 3).fails_saying(5, &["deadlock: ", "these and 2 actors of theirs hold"]);
}
