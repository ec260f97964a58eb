//! Names of actors in a cluster: each is one actor's, at whichever node it is given and looked for.

use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest};

use crate::cluster::Member;
use crate::spread::{Three, call};

fn create(at: &Member, name: &str) -> Wasmrun {
    let create = at.command(&["actor", "create"]).arg(guest("spread"));
    create.args(["tally", "0", "--name", name])
}

fn next(at: &Member, name: &str) -> Wasmrun {
    at.command(&["actor", "call", name, "next()"])
}

fn kill(at: &Member, name: &str) {
    at.command(&["actor", "kill", name]).ok();
}

/// Waits until a node finds no actor of this name. Each look is a command, which takes its time.
fn wait_until_free(at: &Member, name: &str) {
    loop {
        let ended = next(at, name).run();
        if ended.code != Some(0) && ended.stderr.contains("there is no actor") {
            return;
        }
    }
}

#[test]
fn an_actor_is_found_by_its_name_at_every_node() {
    let three = Three::new();
    let Three { a, b, c } = &three;
    // Created at one, alive at another.
    create(a, "total").args(["--strategy", "node:b"]).ok();
    for (at, count) in [(a, "1\n"), (b, "2\n"), (c, "3\n"), (c, "4\n")] {
        assert_eq!(next(at, "total").ok(), count);
    }
    // By guests as well.
    for (at, on, count) in [(a, "c", "5"), (c, "b", "6"), (b, "a", "7")] {
        let strategy = format!("node:{on}");
        let found = call(at, "found(\"total\")").args(["--strategy", &strategy]);
        assert_eq!(found.ok(), format!("ok({count})\n"));
    }
    // It is taken for all.
    for at in [a, b, c] {
        create(at, "total")
            .fails_saying(2, &["'total' belongs to actor ", " of node a", "kill that"]);
    }
    // Another tenant's is another name, and nobody else's.
    next(b, "total")
        .args(["--tenant", "blue"])
        .fails_saying(2, &["there is no actor"]);
    create(b, "total").args(["--tenant", "blue"]).ok();
    let blue = next(c, "total").args(["--tenant", "blue"]);
    assert_eq!(blue.ok(), "1\n");
    // Free at once for whoever has killed it, and for the others.
    kill(c, "total");
    create(c, "total").ok();
    assert_eq!(next(b, "total").ok(), "1\n");
    kill(b, "total");
    create(a, "total").ok();
    kill(a, "total");
    b.command(&["actor", "kill", "total", "--tenant", "blue"])
        .ok();
    for member in [a, b, c] {
        wait_until_free(member, "total");
        member.wait_for_rest();
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let three = Three::new();
    let long = "x".repeat(129);
    for name in ["", "two words", "tab\tbed", "bell\u{7}", &long] {
        assert_says(
            &create(&three.b, name).fails(2),
            &["is no name for an actor"],
        );
        let said = next(&three.b, name).run();
        assert_ne!(said.code, Some(0), "{said}");
        assert_says(&said.stderr, &["there is no actor"]);
        assert!(said.stderr.len() < 400, "{said}");
    }
    // As long as it may be, with slashes and all.
    let longest = format!("a/../{}", "ü".repeat(61));
    create(&three.b, &longest).ok();
    assert_eq!(next(&three.c, &longest).ok(), "1\n");
}

#[test]
fn of_two_who_want_a_name_at_once_one_gets_it() {
    let three = Three::new();
    for round in 0..6 {
        let name = format!("wanted-{round}");
        let all = [&three.a, &three.b, &three.c];
        let creating = all.map(|at| create(at, &name).start());
        let ended = creating.map(wasmrun_tests::Running::end);
        let (won, lost): (Vec<_>, Vec<_>) = ended.iter().partition(|it| it.code == Some(0));
        assert_eq!((won.len(), lost.len()), (1, 2), "{ended:?}");
        for it in lost {
            assert_says(
                &it.stderr,
                &["belongs to actor ", won[0].stdout_text().trim()],
            );
        }
        assert_eq!(next(&three.b, &name).ok(), "1\n");
    }
}

#[test]
fn a_name_is_free_when_its_driver_or_its_node_is_gone() {
    let mut three = Three::new();
    let keeping = |three: &Three| {
        let mut keeping = call(&three.a, "keep-named(\"kept\")")
            .args(["--strategy", "node:b:soft"])
            .start();
        keeping.wait_for(Stream::Err, "made at b");
        keeping
    };
    let of_driver = keeping(&three);
    assert_says(&create(&three.c, "kept").fails(2), &["of node b"]);
    of_driver.signal(Signal::INT);
    assert_eq!(of_driver.end().code, Some(130));
    wait_until_free(&three.c, "kept");
    // A task that is tried again because its node is lost creates the actor anew, elsewhere.
    let mut of_node = keeping(&three);
    three.b.kill();
    of_node.wait_for(Stream::Err, "made at a");
    assert_says(&create(&three.c, "kept").fails(2), &["of node a"]);
    of_node.signal(Signal::INT);
    of_node.end();
    for member in [&three.a, &three.c] {
        wait_until_free(member, "kept");
        member.wait_for_rest();
    }
}

#[test]
fn a_task_that_is_tried_again_gets_its_name_again() {
    let three = Three::new();
    for on in ["a", "b"] {
        let strategy = format!("node:{on}");
        let twice = call(&three.a, "named-twice(\"again\")").args(["--strategy", &strategy]);
        assert_eq!(twice.ok(), "ok(1)\n");
        wait_until_free(&three.c, "again");
    }
}

#[test]
fn without_the_control_store_names_of_this_node_are_found_and_others_are_not_known() {
    let three = Three::new();
    create(&three.b, "here").args(["--strategy", "node:b"]).ok();
    create(&three.c, "there")
        .args(["--strategy", "node:c"])
        .ok();
    three.a.signal(Signal::STOP);
    assert_eq!(next(&three.b, "here").ok(), "1\n");
    for said in [next(&three.b, "there").run(), create(&three.b, "new").run()] {
        assert_ne!(said.code, Some(0), "{said}");
        assert_says(&said.stderr, &["is not known", "control store"]);
    }
    three.a.signal(Signal::CONT);
    // As soon as it answers: nobody has died, and what was refused has left nothing behind.
    while next(&three.b, "there").run().code != Some(0) {}
    create(&three.c, "new").ok();
    assert_eq!(next(&three.b, "new").ok(), "1\n");
    assert_eq!(next(&three.c, "here").ok(), "2\n");
}

#[test]
fn a_node_in_a_new_incarnation_claims_its_names_again() {
    let three = Three::new();
    for name in ["mine", "contested"] {
        create(&three.c, name).args(["--strategy", "node:c"]).ok();
        assert_eq!(next(&three.c, name).ok(), "1\n");
    }
    three.c.signal(Signal::STOP);
    // Its lease ends, and its names are free.
    while create(&three.b, "contested").run().code != Some(0) {}
    three.c.signal(Signal::CONT);
    three.a.wait_for_incarnation("c", 2);
    while next(&three.a, "mine").run().stdout_text() != "2\n" {}
    // Who has taken it meanwhile keeps it.
    assert_eq!(next(&three.a, "contested").ok(), "1\n");
    loop {
        let ended = next(&three.c, "contested").run();
        if ended.stdout_text() == "2\n" {
            break;
        }
    }
}

#[test]
fn the_tasks_of_an_actor_are_listed_by_its_name_or_id() {
    let (a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    create(&a, "total").ok();
    create(&b, "other").ok();
    for _ in 0..2 {
        next(&b, "total").ok();
    }
    let states = |at: &Member, actor: &str| {
        let filter = format!("actor={actor}");
        let listed = at.command(&["list", "tasks", "-f", &filter]).json(0);
        let rows = listed["tasks"].as_array().expect("a list").clone();
        let states = rows
            .iter()
            .map(|row| row["state"].as_str().unwrap().to_owned());
        let mut states: Vec<String> = states.collect();
        states.sort_unstable();
        states
    };
    // Its creation, for as long as it lives, and its calls, wherever they came from.
    for at in [&a, &b] {
        assert_eq!(states(at, "total"), ["finished", "finished", "running"]);
        assert_eq!(states(at, "other"), ["running"]);
        assert!(states(at, "nobody").is_empty());
    }
    let id = a.command(&["list", "actors", "-f", "name=total"]).json(0)["actors"][0]["id"].clone();
    let id = id.as_str().expect("an id");
    for text in [id, &id[..12]] {
        assert_eq!(states(&b, text).len(), 3);
    }
}
