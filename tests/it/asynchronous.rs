//! Functions that are async in the sense of the component model: tasks like others, which start tasks and wait too,
//! and methods of actors.

use serde_json::Value as Json;
use wasmrun_tests::{Wasmrun, assemble, assert_says, scratch};

use crate::node::Node;

/// Two async functions: `there` returns 300, and `waits` starts it, waits until it is there, and returns its size:
/// 2 bytes. It calls what it imports as ordinary functions, which is what `wasmrun:runtime` has.
const TEXT: &str = r#"(component
    (import "wasmrun:runtime/objects@0.1.0" (instance $objects
        (export "object" (type $object (sub resource)))
        (type $kinds (enum "guest" "trap" "exit" "limit" "arguments" "cancelled" "dependency"
            "actor-died" "system"))
        (export "failure-kind" (type $kind (eq $kinds)))
        (type $failures (record (field "kind" $kind) (field "message" string)
            (field "origin" string) (field "payload" (option (list u8)))))
        (export "failure" (type $failure (eq $failures)))
        (type $errors (variant (case "failed" $failure) (case "timed-out") (case "deadlock" string)
            (case "refused" string)))
        (export "error" (type $error (eq $errors)))
        (export "[method]object.size" (func (param "self" (borrow $object))
            (param "timeout-ms" (option u64)) (result (result u64 (error $error)))))))
    (alias export $objects "object" (type $object))
    (alias export $objects "error" (type $error))
    (import "wasmrun:runtime/tasks@0.1.0" (instance $tasks
        (alias outer 1 $object (type $object-outside))
        (export "object" (type $object (eq $object-outside)))
        (alias outer 1 $error (type $error-outside))
        (export "error" (type $error (eq $error-outside)))
        (type $arguments (variant (case "value" (list u8)) (case "object" (borrow $object))))
        (export "argument" (type $argument (eq $arguments)))
        (type $all-options (record (field "resources" (list (tuple string string)))
            (field "retries" (option u32)) (field "retry-on-error" (option bool))
            (field "time-limit-ms" (option u64))
            (field "priority" (option s32)) (field "label-selector" (option string))
            (field "strategy" (option string))))
        (export "options" (type $options (eq $all-options)))
        (export "spawn" (func (param "function" string) (param "arguments" (list $argument))
            (param "options" (option $options)) (result (result (own $object) (error $error)))))))

    (core module $memory
        (memory (export "memory") 1)
        (data (i32.const 512) "there")
        (global $top (mut i32) (i32.const 4096))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            global.get $top
            (global.set $top (i32.and
                (i32.add (i32.add (global.get $top) (local.get 3)) (i32.const 7))
                (i32.const -8)))))
    (core instance $m (instantiate $memory))
    (core func $spawn (canon lower (func $tasks "spawn")
        (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (core func $size (canon lower (func $objects "[method]object.size")
        (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (core func $return (canon task.return (result u32)))

    (core module $code
        (import "m" "memory" (memory 1))
        (import "host" "spawn" (func $spawn (param i32 i32)))
        (import "host" "size" (func $size (param i32 i32 i64 i32)))
        (import "host" "return" (func $return (param i32)))
        (func (export "there") (result i32) (call $return (i32.const 300)) (i32.const 0))
        (func (export "waits") (result i32)
            ;; The name, no arguments and no options.
            (i32.store (i32.const 0) (i32.const 512))
            (i32.store (i32.const 4) (i32.const 5))
            (call $spawn (i32.const 0) (i32.const 256))
            (if (i32.load8_u (i32.const 256)) (then unreachable))
            (call $size (i32.load (i32.const 260)) (i32.const 0) (i64.const 0) (i32.const 272))
            (if (i32.load8_u (i32.const 272)) (then unreachable))
            (call $return (i32.load (i32.const 280)))
            (i32.const 0))
        (func (export "callback") (param i32 i32 i32) (result i32) unreachable))
    (core instance $i (instantiate $code (with "m" (instance $m)) (with "host" (instance
        (export "spawn" (func $spawn)) (export "size" (func $size)) (export "return" (func $return))))))
    (func (export "there") async (result u32)
        (canon lift (core func $i "there") async (callback (core func $i "callback"))))
    (func (export "waits") async (result u32)
        (canon lift (core func $i "waits") async (callback (core func $i "callback")))))"#;

#[test]
fn they_start_tasks_and_wait_for_them() {
    let dir = scratch();
    let module = assemble(dir.path(), "async", TEXT);
    let run = |call: &str| Wasmrun::submit_file(&module).args(["--invoke", call]);
    assert_eq!(run("there()").ok(), "300\n");
    assert_eq!(run("waits()").ok(), "2\n");
    // While it waits, its CPU is for the other.
    assert_eq!(run("waits()").args(["--node-cpus", "1"]).ok(), "2\n");
    let array = run("waits()").args(["--array", "0-19"]).ok();
    assert_eq!(array.lines().count(), 20, "{array}");
}

#[test]
fn they_are_listed_as_tasks() {
    let dir = scratch();
    let module = assemble(dir.path(), "async", TEXT);
    let inspect = Wasmrun::new(["inspect"]).arg(&module).ok();
    assert_says(&inspect, &["there: func() -> u32", "waits: func() -> u32"]);
}

/// A class whose methods are async, what gives and takes its state too; a constructor cannot be. Each gives its turn
/// back once, and does what it does when it has the next: `add` adds, `die` traps. `hang` never gives it back, and
/// `idle` always does.
const CLASS: &str = r#"(component
    (core module $memory
        (memory (export "memory") 1)
        (global $top (mut i32) (i32.const 4096))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            global.get $top
            (global.set $top (i32.and
                (i32.add (i32.add (global.get $top) (local.get 3)) (i32.const 7))
                (i32.const -8)))))
    (core instance $m (instantiate $memory))
    (type $counter (resource (rep i32)))
    (core func $new (canon resource.new $counter))
    (core func $return (canon task.return))
    (core func $return-sum (canon task.return (result u64)))
    (core func $return-bytes (canon task.return (result (list u8))
        (memory (core memory $m "memory"))))
    (core func $return-own (canon task.return (result (own $counter))))

    (core module $code
        (import "m" "memory" (memory 1))
        (import "host" "new" (func $new (param i32) (result i32)))
        (import "host" "return-sum" (func $return-sum (param i64)))
        (import "host" "return-bytes" (func $return-bytes (param i32 i32)))
        (import "host" "return-own" (func $return-own (param i32)))
        ;; What it has counted to is at 0.
        (global $by (mut i64) (i64.const 0))
        (func (export "create") (param i64) (result i32)
            (i64.store (i32.const 0) (local.get 0))
            (call $new (i32.const 7)))
        (func (export "add") (param i32 i64) (result i32)
            (global.set $by (local.get 1))
            (i32.const 1))
        (func (export "added") (param i32 i32 i32) (result i32)
            (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (global.get $by)))
            (call $return-sum (i64.load (i32.const 0)))
            (i32.const 0))
        (func (export "later") (param i32) (result i32) (i32.const 1))
        (func (export "dead") (param i32 i32 i32) (result i32) unreachable)
        (func (export "hang") (param i32) (result i32) (loop $l (br $l)) unreachable)
        (func (export "idle") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "state") (param i32 i32 i32) (result i32)
            (call $return-bytes (i32.const 0) (i32.const 8))
            (i32.const 0))
        (func (export "restore") (param i32 i32) (result i32)
            (i64.store (i32.const 0) (i64.load (local.get 0)))
            (i32.const 1))
        (func (export "restored") (param i32 i32 i32) (result i32)
            (call $return-own (call $new (i32.const 7)))
            (i32.const 0)))
    (core instance $i (instantiate $code (with "m" (instance $m)) (with "host" (instance
        (export "new" (func $new)) (export "return-sum" (func $return-sum))
        (export "return-bytes" (func $return-bytes)) (export "return-own" (func $return-own))))))
    (func $create (param "start" u64) (result (own $counter))
        (canon lift (core func $i "create")))
    (func $add async (param "self" (borrow $counter)) (param "n" u64) (result u64)
        (canon lift (core func $i "add") async (callback (core func $i "added"))))
    (func $die async (param "self" (borrow $counter))
        (canon lift (core func $i "later") async (callback (core func $i "dead"))))
    (func $hang async (param "self" (borrow $counter))
        (canon lift (core func $i "hang") async (callback (core func $i "dead"))))
    (func $idle async (param "self" (borrow $counter))
        (canon lift (core func $i "later") async (callback (core func $i "idle"))))
    (func $checkpoint async (param "self" (borrow $counter)) (result (list u8))
        (canon lift (core func $i "later") async (callback (core func $i "state"))
            (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (func $restore async (param "state" (list u8)) (result (own $counter))
        (canon lift (core func $i "restore") async (callback (core func $i "restored"))
            (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (component $shim
        (import "t" (type $t (sub resource)))
        (import "create" (func $create (param "start" u64) (result (own $t))))
        (import "add" (func $add async (param "self" (borrow $t)) (param "n" u64) (result u64)))
        (import "die" (func $die async (param "self" (borrow $t))))
        (import "hang" (func $hang async (param "self" (borrow $t))))
        (import "idle" (func $idle async (param "self" (borrow $t))))
        (import "checkpoint" (func $checkpoint async (param "self" (borrow $t)) (result (list u8))))
        (import "restore" (func $restore async (param "state" (list u8)) (result (own $t))))
        (export $c "counter" (type $t))
        (export "[constructor]counter" (func $create)
            (func (param "start" u64) (result (own $c))))
        (export "[method]counter.add" (func $add)
            (func async (param "self" (borrow $c)) (param "n" u64) (result u64)))
        (export "[method]counter.die" (func $die) (func async (param "self" (borrow $c))))
        (export "[method]counter.hang" (func $hang) (func async (param "self" (borrow $c))))
        (export "[method]counter.idle" (func $idle) (func async (param "self" (borrow $c))))
        (export "[method]counter.checkpoint" (func $checkpoint)
            (func async (param "self" (borrow $c)) (result (list u8))))
        (export "[static]counter.restore" (func $restore)
            (func async (param "state" (list u8)) (result (own $c)))))
    (instance $api (instantiate $shim
        (with "t" (type $counter))
        (with "create" (func $create))
        (with "add" (func $add))
        (with "die" (func $die))
        (with "hang" (func $hang))
        (with "idle" (func $idle))
        (with "checkpoint" (func $checkpoint))
        (with "restore" (func $restore))))
    (export "test:counters/api" (instance $api)))"#;

#[test]
fn their_classes_are_actors() {
    let dir = scratch();
    let module = assemble(dir.path(), "async-class", CLASS);
    let inspect = Wasmrun::new(["inspect"]).arg(&module).json(0);
    assert_eq!(inspect["actors"][0]["can_checkpoint"], true, "{inspect}");
    let node = Node::start();
    let create = node.wasmrun(["actor", "create"]).arg(&module);
    let create = create.args(["counter", "40", "--name", "total"]);
    create.args(["--restarts", "2"]).ok();
    let call = |call: &str| node.wasmrun(["actor", "call", "total", call]);
    assert_eq!(call("add(1)").ok(), "41\n");
    assert_eq!(call("add(1)").ok(), "42\n");
    // Its next generation begins with its last state.
    call("die()").fails_saying(5, &["the guest trapped"]);
    assert_eq!(call("add(1)").ok(), "43\n");
    let idle = call("idle()").args(["--time-limit", "100ms"]).fails(6);
    assert_says(&idle, &["time limit of 100ms reached"]);
    assert_eq!(call("add(1)").ok(), "44\n");
    call("die()").fails(5);
    call("add(1)").fails_saying(2, &["there is no actor 'total'"]);
}

#[test]
fn their_calls_end_with_their_actor() {
    let dir = scratch();
    let module = assemble(dir.path(), "async-class", CLASS);
    let node = Node::start();
    for method in ["hang", "idle"] {
        let create = node.wasmrun(["actor", "create"]).arg(&module);
        let create = create.args(["counter", "0", "--name", method]);
        create.args(["--restarts", "1"]).ok();
        let call = |call: &str| node.wasmrun(["actor", "call", method, call]);
        let under_way = call(&format!("{method}()")).start();
        let name = format!("counter.{method}");
        // Each look is a command, which takes its time.
        let running = loop {
            let list = node.wasmrun(["list", "tasks", "-f", "state=running"]);
            let tasks = list.json(0)["tasks"].as_array().expect("a list").clone();
            let is_it = |it: &&Json| it["name"].as_str().is_some_and(|it| it.ends_with(&name));
            if let Some(task) = tasks.iter().find(is_it) {
                break task["id"].as_str().expect("an id").to_owned();
            }
        };
        let waits = call("add(1)").start();
        node.wait_for("ready", 1);
        // It goes on, for the actor's sake.
        node.wasmrun(["cancel", &running])
            .fails_saying(2, &["comes to its own end", "`wasmrun actor kill "]);
        node.wasmrun(["actor", "kill", method]).ok();
        for call in [under_way, waits] {
            let ended = call.end();
            assert_eq!(ended.code, Some(5), "{ended}");
            assert_says(&ended.stderr, &["was ended"]);
        }
    }
    let status = node.wasmrun(["status"]).json(0);
    assert_eq!(status["available"], status["total"], "{status}");
}
