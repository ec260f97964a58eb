//! Functions that are async in the sense of the component model: tasks like others, which start tasks and wait too.

use wasmrun_tests::{Wasmrun, assemble, assert_says, scratch};

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
