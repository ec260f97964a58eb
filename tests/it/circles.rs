//! Waits that would never end, through several nodes and for some of many: found, told, and nobody else's ended.

use wasmrun_tests::{Wasmrun, assert_says};

use crate::cluster::Member;
use crate::spread::call;

const CIRCLE: &str = "tasks wait for each other in a circle: ";

/// Two nodes that see each other.
fn two() -> (Member, Member) {
    let (a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    a.wait_for_life("b", 1);
    b.wait_for_life("a", 1);
    (a, b)
}

fn alone(call: &str) -> Wasmrun {
    Wasmrun::submit("spread").args(["--invoke", call])
}

#[test]
fn a_circle_through_two_nodes_is_told_with_all_who_are_in_it() {
    let (a, b) = two();
    // Each call of each is answered, as often as they are.
    assert_eq!(call(&a, r#"ring-ask(["a", "b"], 1)"#).ok(), "ok(1)\n");
    for (at, ring, depth) in [
        (&a, r#"["a", "b"]"#, 2),
        (&b, r#"["b", "a"]"#, 5),
        (&a, r#"["b", "a", "b"]"#, 3),
        (&b, r#"["a", "b", "b"]"#, 3),
    ] {
        let said = call(at, &format!("ring-ask({ring}, {depth})")).fails(5);
        // It may begin with any of them.
        for part in [
            CIRCLE,
            ") at node a waits for ",
            ") at node b waits for ",
            "the first;",
        ] {
            assert_says(&said, &[part]);
        }
    }
    // What was told is over, and nothing is left of it.
    for member in [&a, &b] {
        member.wait_for_rest();
    }
}

#[test]
fn who_waits_for_one_of_two_is_stuck_only_if_both_are() {
    let (a, b) = two();
    // One of them ends after the others have waited for each other long enough to be looked at.
    for at in [&a, &b] {
        let said = call(at, r#"ring-either(["a", "b"], 4000)"#).ok();
        assert_eq!(said, "ok(7)\n");
        let said = call(at, r#"ring-either(["a", "b"], 0)"#).fails(5);
        assert_says(&said, &[CIRCLE, "#asker.ask-either ("]);
        assert_says(&said, &[CIRCLE, "at node b"]);
    }
}

#[test]
fn on_one_node_a_wait_for_one_of_two_is_stuck_only_if_both_are() {
    assert_eq!(alone(r#"ring-either(["", ""], 1000)"#).ok(), "ok(7)\n");
    let said = alone(r#"ring-either(["", ""], 0)"#).fails(5);
    assert_says(
        &said,
        &[CIRCLE, "#asker.ask-either (", "waits for the first"],
    );
}

#[test]
fn explain_names_those_who_are_waited_for() {
    let (a, b) = two();
    let ring = call(&a, r#"ring-either(["a", "b"], 600000)"#).start();
    // The call at b, and at whose place in line it waits.
    let asks = loop {
        let listed = b.command(&["list", "tasks", "-f", "state=blocked"]).json(0);
        let tasks = listed["tasks"].as_array().expect("a list").clone();
        let mut asks = tasks
            .iter()
            .filter(|it| it["name"].as_str().is_some_and(|it| it.ends_with(".ask")));
        if let Some(ask) = asks.next() {
            break ask["id"].as_str().expect("an id").to_owned();
        }
    };
    for at in [&a, &b] {
        let said = at.command(&["explain", &asks]).ok();
        assert_says(
            &said,
            &[
                "others, on node b",
                "that is ",
                "#asker.ask (",
                ") at node a",
            ],
        );
    }
    let listed = a.command(&["list", "tasks", "-f", "state=blocked"]).json(0);
    let tasks = listed["tasks"].as_array().expect("a list").clone();
    let mut either = tasks.iter().filter(|it| {
        it["name"]
            .as_str()
            .is_some_and(|it| it.ends_with(".ask-either"))
    });
    let either = either.next().expect("it waits")["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let said = a.command(&["explain", &either]).ok();
    assert_says(
        &said,
        &[
            "that is 1 of these 2: ",
            "#asker.ask (",
            ") at node b, ",
            "late (",
        ],
    );
    drop(ring);
}
