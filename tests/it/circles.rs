//! Waits that would never end, through several nodes and for some of many: found, told, and nobody else's ended.

use wasmrun_tests::{Stream, Wasmrun, assert_says};

use crate::cluster::{Member, wait_for_rest};
use crate::spread::call;

const CIRCLE: &str = "tasks wait for each other in a circle: ";

/// Two nodes that see each other.
fn two() -> (Member, Member) {
    let (a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    (a, b)
}

/// Two nodes with this flag, such as memory for two tasks each, that see each other; and a token for more.
fn small(flag: &[&str]) -> (Member, Member, String) {
    let (mut a, mut b) = (Member::new("a"), Member::new("b"));
    a.start(&[&["--head", "--listen", "127.0.0.1:0"], flag].concat());
    let token = a.token(&["--many"]);
    b.start(&[&["--join", &token], flag].concat());
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    (a, b, token)
}

const MEMORY: [&str; 2] = ["--node-memory", "150MiB"];

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
    wait_for_rest([&a, &b]);
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
    alone(r#"ring-either(["", ""], 0)"#)
        .fails_saying(5, &[CIRCLE, "#asker.ask-either (", "waits for the first"]);
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

#[test]
fn recursion_that_fills_all_nodes_is_told_with_who_waits_for_whom() {
    for (flag, lacks) in [
        (MEMORY, "memory (needs 64MiB, 22MiB free)"),
        (["--max-sandboxes", "2"], "one of 2 sandboxes"),
    ] {
        let (a, b, _) = small(&flag);
        // What fits is done.
        assert_eq!(call(&a, "nest(3, false)").ok(), "ok(3)\n");
        for at in [&a, &b] {
            let said = call(at, "nest(10, false)").fails(5);
            let parts = [
                "deadlock(",
                ") at node a waits for ",
                ") at node b waits for ",
                "which cannot start because of what 4 tasks hold that wait for others: ",
                &format!("at node a it lacks {lacks}"),
                &format!("at node b it lacks {lacks}"),
                "nest less deep",
            ];
            for part in parts {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
        wait_for_rest([&a, &b]);
    }
}

#[test]
fn several_that_nest_too_deep_all_end() {
    let (a, b, _) = small(&MEMORY);
    let running: Vec<_> = [&a, &b, &a]
        .map(|at| call(at, "nest(10, false)").start())
        .into_iter()
        .collect();
    for one in running {
        let ended = one.end();
        assert_eq!(ended.code, Some(5), "{ended}");
        assert_says(&ended.stderr, &["deadlock(", "which cannot start"]);
    }
}

#[test]
fn who_can_start_on_one_node_alone_is_told_by_what_is_held_there() {
    let (a, b, _) = small(&MEMORY);
    // Two of three fit at b, though a is empty.
    let said = call(&a, r#"nest-at("b", 5)"#).fails(5);
    // The node finds it by itself: no other one has a say in it.
    assert_says(
        &said,
        &["deadlock(", "node b: unavailable: memory", "nest less deep"],
    );
    drop(b);
}

#[test]
fn actors_of_those_who_wait_make_no_room_either() {
    let (a, b, _) = small(&MEMORY);
    assert_eq!(call(&a, "nest(1, true)").ok(), "ok(1)\n");
    call(&a, "nest(3, true)").fails_saying(5, &["deadlock(", "and 2 actors of theirs hold"]);
    drop(b);
}

#[test]
fn nothing_is_told_where_somebody_runs_who_holds_some_of_it() {
    let (a, b, _) = small(&MEMORY);
    // It ends after the others have waited long enough to be looked at.
    let late = call(&b, "late(6000)")
        .args(["--strategy", "node:b"])
        .start();
    while b.command(&["list", "tasks", "-f", "state=running"]).json(0)["tasks"]
        .as_array()
        .expect("a list")
        .is_empty()
    {}
    assert_eq!(call(&a, "nest(3, false)").ok(), "ok(3)\n");
    assert_eq!(late.end().code, Some(0));
}

#[test]
fn nothing_is_told_where_a_node_joins_that_has_room() {
    let (a, b, token) = small(&MEMORY);
    let mut stays = call(&b, r#"stay("never")"#)
        .args(["--strategy", "node:b"])
        .start();
    stays.wait_for(Stream::Err, "stays at b");
    let nested = call(&a, "nest(3, false)").start();
    // Until the last of them waits, with all three.
    while a.command(&["list", "tasks", "-f", "state=blocked"]).json(0)["tasks"]
        .as_array()
        .expect("a list")
        .len()
        < 3
    {}
    let mut c = Member::new("c");
    c.start(&[&["--join", &token], &MEMORY[..]].concat());
    let ended = nested.end();
    assert_eq!(ended.stdout_text(), "ok(3)\n", "{ended}");
    drop((stays, c));
}
