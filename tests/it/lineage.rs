//! Results that were at nodes which are silent or lost: those of actors' calls, and what is kept to make results again.

use rustix::process::Signal;
use wasmrun_tests::{Stream, assert_says, guest};

use crate::cluster::{Member, wait_for_rest};
use crate::spread::{Three, call};

/// What is said at a node when another one is killed as soon as something was made there.
fn when_lost(three: &mut Three, what: &str) -> String {
    let mut running = call(&three.a, what).start();
    running.wait_for(Stream::Err, "made");
    three.b.kill();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    ended.stdout_text()
}

#[test]
fn what_a_deterministic_actor_made_is_made_again() {
    for (owner, class, next) in [
        // It lives anew without its state, and with it; and is not disturbed by those who want what it made before.
        ("a", "series", "11"),
        ("a", "marked", "200320011.5"),
        // Where neither the results nor the actor were created.
        ("c", "series", "11"),
    ] {
        let mut three = Three::new();
        let said = when_lost(&mut three, &format!("{class}-again(\"{owner}\", \"b\")"));
        assert_eq!(
            said,
            format!("ok([200320010.5, 200300010.5, 20010, {next}])\n")
        );
        wait_for_rest([&three.a, &three.c]);
    }
}

#[test]
fn what_another_actor_made_is_lost_and_the_error_says_where_and_why() {
    let mut three = Three::new();
    let said = when_lost(&mut three, "read-lost(\"b\")");
    assert_says(
        &said,
        &[
            "is lost: ",
            "node b, which had it",
            "#tally",
            "is not declared deterministic",
        ],
    );
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn what_a_node_has_that_does_not_answer_is_waited_for() {
    let (a, token) = Member::head("a");
    let mut b = Member::new("b");
    // It counts as alive while it says nothing.
    b.start(&["--join", &token, "--lease-time", "120s"]);
    for (one, other) in [(&a, "b"), (&b, "a")] {
        one.wait_for_incarnation(other, 1);
    }
    let mut reading = call(&a, "read-late(\"b\")").start();
    reading.wait_for(Stream::Err, "made");
    b.signal(Signal::STOP);
    let create = a.command(&["actor", "create"]).arg(guest("spread"));
    create
        .args(["tally", "0", "--name", "go", "--strategy", "node:a"])
        .ok();
    reading.wait_for(Stream::Err, "time is up");
    // Each look is a command, which takes its time.
    loop {
        let tasks = a.command(&["list", "tasks", "-f", "node=a"]).json(0);
        let tasks = tasks["tasks"].as_array().expect("a list").clone();
        let mut late = tasks.iter().filter(|it| {
            let name = it["name"].as_str().expect("a name");
            name == "read-late"
        });
        let id = late.next().expect("it runs")["id"].clone();
        let why = a
            .command(&["explain", id.as_str().expect("an id")])
            .run()
            .stdout_text();
        if why.contains("can be had at b only: there is no answer from there") {
            break;
        }
    }
    b.signal(Signal::CONT);
    let ended = reading.end();
    assert_eq!(ended.stdout_text(), "ok(4999950000)\n", "{ended}");
    a.command(&["actor", "kill", "go"]).ok();
    wait_for_rest([&a, &b]);
}

#[test]
fn what_is_kept_to_make_results_again_has_a_limit() {
    let mut a = Member::new("a");
    a.start(&[
        "--head",
        "--listen",
        "127.0.0.1:0",
        "--object-memory",
        "16MiB",
    ]);
    let token = a.token(&["--many"]);
    let (b, c) = (Member::joined("b", &token), Member::joined("c", &token));
    for one in [&a, &b, &c] {
        for other in ["a", "b", "c"] {
            one.wait_for_incarnation(other, 1);
        }
    }
    let mut three = Three { a, b, c };
    let said = when_lost(&mut three, "much-lost(\"b\")");
    assert_says(
        &said,
        &[
            "is lost: node b, which had it",
            "was not kept",
            "--object-memory",
            ", 1000000))",
        ],
    );
    wait_for_rest([&three.a, &three.c]);
}
