//! Calls whose callers are gone, or do not want them any more: what becomes of them and of their actors.

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Running, Wasmrun, assert_says, guest};

use crate::cluster::Member;
use crate::node::Node;
use crate::spread::Three;

/// Says commands to one node.
type Say<'a> = &'a dyn Fn(&[&str]) -> Wasmrun;

fn create(say: Say<'_>, restarts: &str, more: &[&str]) {
    let create = say(&["actor", "create"]).arg(guest("sdk"));
    let create = create.args(["counter", "10", "--name", "total", "--restarts", restarts]);
    create.args(more).ok();
}

fn call(say: Say<'_>, method: &str) -> Wasmrun {
    say(&["actor", "call", "total", method])
}

/// The calls of `spin` there are in a state.
fn spinning(say: Say<'_>, state: &str) -> Vec<Json> {
    let listed = say(&["list", "tasks", "-f", &format!("state={state}")]).json(0);
    let listed = listed["tasks"].as_array().expect("a list").clone();
    let is_spin = |task: &Json| {
        task["name"]
            .as_str()
            .is_some_and(|it| it.ends_with(".spin"))
    };
    listed.into_iter().filter(is_spin).collect()
}

/// Begins a call that never ends, and its id. Each look is a command, which takes its time.
fn spin(say: Say<'_>) -> (Running, String) {
    let driver = call(say, "spin()").start();
    loop {
        if let Some(task) = spinning(say, "running").first() {
            let id = task["id"].as_str().expect("an id").to_owned();
            return (driver, id);
        }
    }
}

/// What is said to a node that is alone.
fn to(node: &Node) -> impl Fn(&[&str]) -> Wasmrun {
    |args| node.wasmrun([]).args(args)
}

#[test]
fn a_call_of_a_driver_that_is_gone_takes_that_generation_with_it() {
    let node = Node::start();
    let say = to(&node);
    create(&say, "2", &[]);
    assert_eq!(call(&say, "incr(1)").ok(), "11\n");
    let (driver, id) = spin(&say);
    driver.signal(Signal::KILL);
    drop(driver);
    // It waits for the next generation, which begins with the last state.
    assert_eq!(call(&say, "incr(1)").ok(), "12\n");
    assert_eq!(say(&["get", &id]).json(0)["state"], "cancelled");
}

#[test]
fn whoever_waits_for_the_actor_hears_that_a_caller_is_gone() {
    let node = Node::start();
    let say = to(&node);
    create(&say, "0", &[]);
    let (driver, _) = spin(&say);
    let waiting = call(&say, "incr(1)").start();
    node.wait_for("ready", 1);
    // With a signal that could be heard as with an end that nobody has planned. Ctrl-C is no other, but is ignored where
    // the tests were begun in the background of a shell.
    driver.signal(Signal::TERM);
    driver.end();
    let ended = waiting.end();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(
        &ended.stderr,
        &[
            "its caller was gone for 2s in the middle of call ",
            ".spin (",
        ],
    );
    assert_says(
        &call(&say, "incr(1)").fails(2),
        &["there is no actor 'total'"],
    );
}

#[test]
fn a_driver_that_goes_does_not_end_an_actor_that_is_soon_done() {
    let node = Node::start();
    let say = to(&node);
    create(&say, "0", &[]);
    for _ in 0..20 {
        let driver = call(&say, "incr(1)").start();
        driver.signal(Signal::KILL);
        driver.end();
    }
    // It has no other generation.
    call(&say, "incr(1)").ok();
}

#[test]
fn to_cancel_a_call_that_runs_is_refused_and_says_what_helps() {
    let node = Node::start();
    let say = to(&node);
    create(&say, "0", &[]);
    let (driver, id) = spin(&say);
    let waiting = call(&say, "incr(1)").start();
    node.wait_for("ready", 1);
    say(&["cancel", &id]).fails_saying(
        2,
        &[
            ".spin (",
            "runs",
            "it comes to its own end",
            "`wasmrun actor kill ",
        ],
    );
    // One that waits ends at once, and the actor does not notice.
    let ready = say(&["list", "tasks", "-f", "state=ready"]).json(0);
    let other = ready["tasks"][0]["id"].as_str().expect("an id").to_owned();
    say(&["cancel", &other]).ok();
    assert_says(&waiting.end().stderr, &["cancelled"]);
    assert_eq!(spinning(&say, "running").len(), 1);
    say(&["actor", "kill", "total"]).ok();
    assert_eq!(driver.end().code, Some(5));
}

fn at(member: &Member) -> impl Fn(&[&str]) -> Wasmrun {
    |args| member.command(args)
}

#[test]
fn a_call_at_another_node_ends_when_its_driver_is_gone() {
    let mut three = Three::new();
    {
        let (a, c) = (at(&three.a), at(&three.c));
        create(&a, "3", &["--strategy", "node:b"]);
        assert_eq!(call(&c, "incr(1)").ok(), "11\n");
        // The driver is gone; then one at a third node, neither the actor's owner nor its host.
        for (say, sum) in [(&a as Say<'_>, "12\n"), (&c, "13\n")] {
            let (driver, _) = spin(say);
            driver.signal(Signal::KILL);
            drop(driver);
            assert_eq!(call(&a, "incr(1)").ok(), sum);
        }
        let (driver, _) = spin(&c);
        std::mem::forget(driver);
    }
    // And the node of a driver.
    three.c.kill();
    assert_eq!(call(&at(&three.a), "incr(1)").ok(), "14\n");
}
