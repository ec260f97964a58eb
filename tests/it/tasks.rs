//! Tasks that start tasks: futures as arguments, waiting, failures and their causes, cancelling, and
//! standstills that are found.

use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assert_says};

/// A call of one of the graph's functions.
fn graph(call: &str) -> Wasmrun {
    Wasmrun::submit("graph").args(["--invoke", call])
}

#[test]
fn tasks_start_tasks_and_wait_for_them() {
    for (call, result) in [
        ("fib(12)", "144\n"),
        ("chain(100)", "100\n"),
        ("spawn-many(2000)", "2000\n"),
        ("spawn-many(0)", "0\n"),
        ("wait-often(50, 20)", "1000\n"),
        ("sum-of-range(1000000)", "499999500000\n"),
    ] {
        assert_eq!(graph(call).ok(), result, "{call}");
    }
}

#[test]
fn one_cpu_is_enough_for_those_that_wait() {
    for (call, result) in [("fib(10)", "55\n"), ("chain(20)", "20\n")] {
        assert_eq!(graph(call).args(["--node-cpus", "1"]).ok(), result);
    }
}

#[test]
fn who_waits_lends_its_cpu_and_goes_on_when_its_time_is_up() {
    let on = |cpus, call| graph(call).args(["--node-cpus", cpus]).ok();
    // The only CPU goes to the task that is waited for. Time is up long before that is over: then it goes on all the
    // same, and with another CPU, too.
    for cpus in ["1", "2"] {
        let said = on(cpus, "taken(600000)");
        assert_eq!(said, "[\"timed out\", \"over: 0\"]\n", "{cpus}");
    }
    // What stands behind, and would never end, has not started.
    let ahead = "[\"timed out\", \"Cancellation::Cancelled\"]\n";
    assert_eq!(on("1", "ahead()"), ahead);
}

#[test]
fn who_waits_gets_the_cpu_of_what_it_waited_for_before_what_has_not_started() {
    // Else the only CPU would go to the task behind them, which never ends.
    for n in [1, 2, 100] {
        let run = graph(&format!("go-on({n})")).args(["--node-cpus", "1"]);
        assert_eq!(run.ok(), format!("{n}\n"));
    }
}

#[test]
fn futures_are_arguments_whether_they_are_there_or_not() {
    for when in ["there", "later"] {
        let run = graph(&format!("argument(\"{when}\")")).args(["--node-cpus", "1"]);
        assert_eq!(run.ok(), "[\"8\", \"8\"]\n", "{when}");
    }
    // The object of a function that returns result<u64, string> is a u64 for who needs one.
    assert_eq!(graph("futures(1, 3)").ok(), "ok(9)\n");
}

#[test]
fn a_failed_argument_fails_the_task_with_the_cause() {
    for when in ["failed", "failing"] {
        let run = graph(&format!("argument(\"{when}\")")).args(["--node-cpus", "1"]);
        assert_says(
            &run.ok(),
            &[
                "Dependency): argument 1 could not be made: task ",
                "(number) failed: the guest trapped",
                "Dependency): argument 1 could not be made: task ",
                "(double-even) failed: the function returned an error",
                "3 is odd",
            ],
        );
    }
    // Twice removed.
    graph("futures(1, 2)").fails_saying(
        5,
        &[
            "argument 1 could not be made",
            "(double-even) failed",
            "3 is odd",
        ],
    );
}

#[test]
fn a_failure_says_where_it_began() {
    assert_eq!(graph("origins()").ok(), "[true, true, true]\n");
}

#[test]
fn waiting_is_for_as_many_as_are_asked_for() {
    assert_eq!(graph("wait-for-one()").ok(), "1\n");
    let said = graph("odd-waits()").args(["--node-cpus", "2"]).ok();
    assert_eq!(said, "[[], [0, 1], [0, 1], [0], [], [1, 2, 3]]\n");
}

#[test]
fn every_failure_is_told_by_its_kind() {
    let errors = [
        (
            "error-of(\"trap\")",
            "failed (FailureKind::Trap): the guest trapped",
        ),
        (
            "error-of(\"error\")",
            "failed (FailureKind::Guest): the function returned an error: \\\"3 is odd",
        ),
        (
            "error-of(\"cancelled\")",
            "failed (FailureKind::Cancelled): the task was cancelled",
        ),
        (
            "error-of(\"dependency\")",
            "failed (FailureKind::Dependency): argument 1",
        ),
        ("error-of(\"timeout\")", "timed out"),
        (
            "ended-by(\"trap\")",
            "failed (FailureKind::Trap): the guest trapped",
        ),
        (
            "ended-by(\"memory\")",
            "failed (FailureKind::Limit): memory limit of 16 MiB reached",
        ),
        (
            "ended-by(\"time\")",
            "failed (FailureKind::Limit): time limit of 300ms reached",
        ),
        (
            "ended-by(\"cancelled\")",
            "failed (FailureKind::Cancelled): the task was cancelled",
        ),
        ("ended-by(\"return\")", "returned"),
    ];
    for (call, error) in errors {
        let said = graph(call).ok();
        assert!(said.starts_with(&format!("\"{error}")), "{call}: {said}");
    }
}

#[test]
fn what_cannot_be_started_is_refused() {
    let refused = [
        (
            "type",
            "the function takes 2 arguments and 1 were given: func(a: u64, b: u64) -> u64",
        ),
        (
            "unknown",
            "no function \\'ad\\'; did you mean wasmrun:graph/tests@0.1.0#add?",
        ),
        (
            "object",
            "a: it is of type u64, and the object will be of type list<u32>",
        ),
        ("bytes", "a: "),
        ("more", "b: "),
        ("resources", "CPU: needs 100000, node has"),
    ];
    for (what, why) in refused {
        let said = graph(&format!("error-of(\"{what}\")")).ok();
        assert_says(&said, &["\"refused: ", why]);
    }
}

#[test]
fn cancelling_reaches_what_the_task_has_started() {
    // The last task gets both CPUs only when the child that spins is stopped.
    let said = graph("cancel-brood()").args(["--node-cpus", "2"]).ok();
    assert_says(&said, &["FailureKind::Cancelled", "\"returned\"]"]);
}

#[test]
fn ctrl_c_stops_a_task_and_its_children() {
    let mut running = graph("brood-for-ever()").start();
    running.wait_for(Stream::Err, "the child runs");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert!(ended.stderr.contains("cancelled"), "{ended}");
}

#[test]
fn a_time_limit_stops_a_task_that_waits() {
    graph("brood-for-ever()")
        .args(["--time-limit", "500ms"])
        .fails_saying(6, &["time limit of 500ms reached"]);
}

#[test]
fn what_a_task_leaves_behind_ends_with_the_driver() {
    for what in ["task", "name", "busy"] {
        let run = graph(&format!("leave-behind(\"{what}\")"));
        assert_eq!(run.ok(), format!("\"{what}\"\n"));
    }
}

#[test]
fn a_second_attempt_makes_the_same_tasks_and_objects() {
    let ended = graph("name-children(1)").args(["--retries", "1"]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let lines = ended.stderr.lines();
    let ids: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("child "))
        .collect();
    // A task, an object that was stored, an actor, a call of it.
    let (first, second) = ids.split_at(4);
    assert_eq!(first[..2], second[..2], "{ended}");
    assert_eq!(second.len(), 4, "{ended}");
    // What an actor does is not pure, so each attempt has its own.
    assert!(first[2] != second[2] && first[3] != second[3], "{ended}");
}

#[test]
fn recursion_that_the_node_has_no_room_for_is_found() {
    for (room, why) in [
        (["--max-sandboxes", "3"], "one of 3 sandboxes"),
        (
            ["--node-memory", "40MiB"],
            "memory: needs 4MiB, node has 0 free",
        ),
    ] {
        graph("fib(10)").args(room).fails_saying(
            5,
            &[
                "Deadlock",
                "tasks that run wait for others",
                why,
                "nest less deep",
            ],
        );
    }
}

#[test]
fn large_results_are_limited() {
    graph("range(0, 20000000)")
        .args(["--memory", "512MiB"])
        .fails_saying(
            5,
            &["result limit of 64 MiB reached", "use --max-result 128MiB"],
        );
}
