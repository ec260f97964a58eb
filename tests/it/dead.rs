//! Actors and detached tasks that fail: whoever asks for them hears why, however they fail, as long as that is
//! remembered.

use std::path::PathBuf;

use wasmrun_tests::{Stream, Wasmrun, assemble, assert_says, guest};

use crate::cluster::Member;
use crate::faults::eventually;
use crate::node::Node;

/// A class `c`. Its constructor traps when it gets 1, and never comes to its end when it gets 2. Its method `m` traps
/// when it gets 1.
const CLASS: &str = r#"(component
  (core module $m
    (memory 1)
    (func (export "new") (param $x i32) (result i32)
      (if (i32.eq (local.get $x) (i32.const 1)) (then unreachable))
      (loop $again (br_if $again (i32.eq (local.get $x) (i32.const 2))))
      (i32.const 7))
    (func (export "m") (param i32 i32) (result i32) (if (local.get 1) (then unreachable)) (i32.const 5)))
  (core instance $i (instantiate $m))
  (type $c_ (resource (rep i32)))
  (core func $mk (canon resource.new $c_))
  (core module $w
    (import "i" "mk" (func $mk (param i32) (result i32)))
    (import "i" "new" (func $new (param i32) (result i32)))
    (func (export "new") (param i32) (result i32) (call $mk (call $new (local.get 0)))))
  (core instance $wi (instantiate $w (with "i" (instance (export "mk" (func $mk)) (export "new" (func $i "new"))))))
  (func $ctor (param "x" u32) (result (own $c_)) (canon lift (core func $wi "new")))
  (func $meth (param "self" (borrow $c_)) (param "x" u32) (result u32) (canon lift (core func $i "m")))
  (component $shim
    (import "t" (type $t (sub resource)))
    (import "new" (func $new (param "x" u32) (result (own $t))))
    (import "m" (func $m (param "self" (borrow $t)) (param "x" u32) (result u32)))
    (export $c "c" (type $t))
    (export "[constructor]c" (func $new) (func (param "x" u32) (result (own $c))))
    (export "[method]c.m" (func $m) (func (param "self" (borrow $c)) (param "x" u32) (result u32))))
  (instance $x (instantiate $shim (with "t" (type $c_)) (with "new" (func $ctor)) (with "m" (func $meth))))
  (export "test:dead/classes@0.1.0" (instance $x)))"#;

fn class(node: &Node) -> PathBuf {
    assemble(node.dir.path(), "class", CLASS)
}

fn create(node: &Node, start: &str, name: &str) -> Wasmrun {
    let create = node.wasmrun(["actor", "create"]).arg(class(node));
    create.args(["c", start, "--name", name])
}

/// The actor of this name has failed, and whoever asks for it hears this.
#[track_caller]
fn says_why(command: &dyn Fn(&[&str]) -> Wasmrun, name: &str, why: &[&str]) {
    for asked in [
        &["actor", "call", name, "m(0)"][..],
        &["actor", "kill", name],
        &["cancel", name],
    ] {
        let said = command(asked).fails(2);
        assert_says(&said, &[&format!("there is no actor '{name}' any more")]);
        assert_says(&said, why);
    }
    for asked in [["explain", name], ["get", name]] {
        let said = command(&asked).ok();
        assert_says(&said, &["failed"]);
        assert_says(&said, why);
    }
    let logs = command(&["logs", name]).run();
    assert_eq!(logs.code, Some(0), "{logs}");
    assert_says(&logs.stderr, why);
    let filter = format!("name={name}");
    let listed = command(&["list", "actors", "-f", &filter]).json(0);
    assert_eq!(listed["actors"][0]["state"], "failed", "{listed}");
}

#[test]
fn an_actor_that_fails_says_why_to_whoever_asks() {
    let mut node = Node::new();
    node.start_with(&["--log", "info"]);
    let command = |args: &[&str]| node.wasmrun([]).args(args);
    let trapped = ["the guest trapped", "unreachable"];
    // In its constructor, where whoever creates it waits for that, and where nobody does.
    create(&node, "1", "y").fails_saying(
        5,
        &[
            "actor 'y' (",
            "does not come to be: the guest trapped",
            "wasmrun logs",
        ],
    );
    says_why(&command, "y", &trapped);
    create(&node, "1", "z").arg("--no-wait").ok();
    eventually("z was over", || {
        let said = node.wasmrun(["get", "z"]).ok();
        said.contains("state     failed").then_some(()).ok_or(said)
    });
    says_why(&command, "z", &["it never came to be: the guest trapped"]);
    // At a limit.
    let late = create(&node, "2", "late").args(["--time-limit", "50ms"]);
    late.fails_saying(6, &["does not come to be", "time limit"]);
    says_why(&command, "late", &["it never came to be", "time limit"]);
    let small = create(&node, "0", "small").args(["--memory", "1KiB"]);
    small.fails_saying(5, &["does not come to be"]);
    says_why(&command, "small", &["it never came to be"]);
    // In a call.
    let id = create(&node, "0", "x").ok();
    let id = id.trim();
    node.wasmrun(["actor", "call", "x", "m(1)"]).fails(5);
    says_why(&command, "x", &["it has died: the guest trapped"]);
    let by_id = node.wasmrun(["explain", &id[..16]]).ok();
    assert_says(&by_id, &[id, "has failed", "unreachable"]);
    node.wasmrun(["actor", "call", id, "m(0)"])
        .fails_saying(2, &["there is no actor 'x' any more", id, "has died"]);
    // Who has the name now is meant.
    create(&node, "0", "y").ok();
    assert_eq!(node.wasmrun(["actor", "call", "y", "m(0)"]).ok(), "5\n");
    assert_eq!(node.wasmrun(["get", "y"]).json(0)["state"], "running");
    // One that was ended has not failed.
    node.wasmrun(["actor", "kill", "y"]).ok();
    let listed = node
        .wasmrun(["list", "actors", "-f", "state=running"])
        .json(0);
    assert_eq!(listed["actors"], serde_json::json!([]), "{listed}");
    // The node's log names it, and says nothing that a guest has said.
    let log = node.running.as_mut().expect("it runs");
    for kind in ["trap", "limit"] {
        let is_said = |log: &str| {
            let mut lines = log.lines();
            lines.any(|line| line.contains("an actor has failed") && line.contains(kind))
        };
        log.wait_until(Stream::Err, kind, is_said);
    }
    assert!(!log.written(Stream::Err).contains("unreachable"));
}

#[test]
fn an_actor_that_takes_its_time_is_created_and_comes_later() {
    let node = Node::start();
    let slow = create(&node, "2", "slow").args(["--wait", "100ms"]).run();
    assert_eq!(slow.code, Some(0), "{slow}");
    assert_says(&slow.stderr, &["does not live yet", "wasmrun explain slow"]);
    assert_eq!(slow.stdout_text().trim().len(), 32, "{slow}");
    // Who ends it meanwhile tells whoever waits.
    let waiting = create(&node, "2", "ended").args(["--wait", "1h"]).start();
    eventually("it was known", || {
        let ended = node.wasmrun(["actor", "kill", "ended"]).run();
        (ended.code == Some(0)).then_some(()).ok_or(ended)
    });
    let ended = waiting.end();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(&ended.stderr, &["actor 'ended' (", "does not come to be"]);
}

#[test]
fn a_detached_task_that_fails_says_why_to_whoever_asks() {
    let node = Node::start();
    let submit = node.wasmrun(["submit"]).arg(guest("prog"));
    let id = submit.args(["--detach", "--", "panic", "oh"]).ok();
    let id = id.trim();
    node.wait_for("failed", 1);
    let explained = node.wasmrun(["explain", id]).ok();
    assert_says(&explained, &["has ended: failed: ", "the guest trapped"]);
    assert_says(
        &node.wasmrun(["get", id]).ok(),
        &["error     the guest trapped"],
    );
    let logs = node.wasmrun(["logs", id]).run();
    let says = [
        "oh",
        id,
        "(prog.wasm) has failed at node ",
        ": the guest trapped",
    ];
    assert_says(&logs.stderr, &says);
    let logs = node.wasmrun(["logs", id]).json(0);
    assert_says(
        logs["failure"].as_str().expect("why"),
        &["the guest trapped"],
    );
}

#[test]
fn an_actor_that_fails_is_explained_at_every_node() {
    let (a, token) = Member::head("a");
    let mut b = Member::joined("b", &token);
    a.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    // Owned by one, and to live at the other.
    let create = a
        .command(&["actor", "create"])
        .arg(assemble(&a.state(), "class", CLASS));
    create
        .args(["c", "1", "--name", "y", "--strategy", "node:b"])
        .fails_saying(5, &["does not come to be: the guest trapped"]);
    for at in [&a, &b] {
        says_why(
            &|args| at.command(args),
            "y",
            &["it never came to be: the guest trapped"],
        );
    }
    let create = a.command(&["actor", "create"]).arg(guest("graph"));
    create
        .args(["counter", "1", "--name", "x", "--strategy", "node:b"])
        .ok();
    assert_eq!(a.command(&["actor", "call", "x", "add(1)"]).ok(), "2\n");
    b.kill();
    eventually("it was gone", || {
        let said = a.command(&["get", "x"]).run();
        said.stdout_text()
            .contains("state     failed")
            .then_some(())
            .ok_or(said)
    });
    says_why(
        &|args| a.command(args),
        "x",
        &["it has died", "node b, on which it lived, is lost"],
    );
    let said = a.command(&["get", "x"]).json(0);
    assert_eq!(said["node"], "b", "{said}");
    // What nobody who is left knows may have been that node's.
    a.command(&["get", "nobody"]).fails_saying(
        2,
        &["there is no task, actor or job 'nobody'", "node b is lost"],
    );
}
