//! Whose fault it is: a guest that uses the host wrongly fails as one that traps, in one line, with frames where
//! there are some.

use serde_json::json;
use wasmrun_tests::{Wasmrun, assemble, assert_says, scratch};

use crate::node::Node;

/// A program of preview 1 whose `main` calls a function of WASI.
fn program(function: &str, params: &str, body: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "{function}" (func $wasi (param {params}) (result i32)))
            (memory (export "memory") 1)
            (func $main (export "_start") (drop (call $wasi {body}))))"#
    )
}

#[test]
fn a_wrong_call_of_wasi_is_a_trap_with_frames() {
    let dir = scratch();
    for (function, params, body) in [
        (
            "clock_time_get",
            "i32 i64 i32",
            "(i32.const 9) (i64.const 1) (i32.const 0)",
        ),
        ("random_get", "i32 i32", "(i32.const 65530) (i32.const 100)"),
        (
            "fd_write",
            "i32 i32 i32 i32",
            "(i32.const 1) (i32.const -8) (i32.const 1) (i32.const 0)",
        ),
        (
            "poll_oneoff",
            "i32 i32 i32 i32",
            "(i32.const 0) (i32.const 65500) (i32.const 9) (i32.const 0)",
        ),
    ] {
        let module = assemble(dir.path(), function, &program(function, params, body));
        let stderr = Wasmrun::submit_file(&module).fails(5);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{stderr}");
        let said = format!("error: {function}.wasm: the guest trapped: ");
        assert!(lines[0].starts_with(&said), "{stderr}");
        assert_eq!(lines[1], "    at main", "{stderr}");
        assert!(lines[2].starts_with("    in task "), "{stderr}");
        let json = Wasmrun::submit_file(&module).json(5);
        assert_eq!(json["error"]["kind"], "trap");
        assert_eq!(json["error"]["backtrace"], json!(["main"]));
    }
}

#[test]
fn a_wrong_call_before_the_program_starts_is_a_trap_too() {
    let dir = scratch();
    let text = r#"(module
        (import "wasi_snapshot_preview1" "random_get" (func $wasi (param i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func $early (drop (call $wasi (i32.const -1) (i32.const 9))))
        (start $early)
        (func (export "_start")))"#;
    let module = assemble(dir.path(), "early", text);
    Wasmrun::submit_file(&module)
        .fails_saying(5, &["early.wasm: the guest trapped: ", "\n    at early\n"]);
}

/// Functions and a class that give or do what the component model does not allow.
const WRONG: &str = r#"(component
    (core module $m (memory (export "memory") 1) (data (i32.const 64) "\ff\fe\00\d8")
        (func (export "far") (param i32 i32 i32 i32) (result i32) (i32.const -8))
        (func (export "text") (result i32)
            (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 2)) (i32.const 0))
        (func (export "outside") (result i32)
            (i32.store (i32.const 0) (i32.const 65530)) (i32.store (i32.const 4) (i32.const 100)) (i32.const 0))
        (func (export "odd") (result i32)
            (i32.store (i32.const 0) (i32.const 65)) (i32.store (i32.const 4) (i32.const 1)) (i32.const 0))
        (func (export "far-result") (result i32) (i32.const -4))
        (func (export "surrogate") (result i32) (i32.const 55296))
        (func (export "many") (result i32) (i32.const 99))
        (func (export "take") (param i32 i32)))
    (core instance $i (instantiate $m))
    (alias core export $i "memory" (core memory $mem))
    (type $e_ (enum "a" "b")) (export $e "e" (type $e_))
    (func (export "text") (result string) (canon lift (core func $i "text") (memory $mem)))
    (func (export "outside") (result string) (canon lift (core func $i "outside") (memory $mem)))
    (func (export "odd") (result (list u32)) (canon lift (core func $i "odd") (memory $mem)))
    (func (export "far-result") (result (list string)) (canon lift (core func $i "far-result") (memory $mem)))
    (func (export "surrogate") (result char) (canon lift (core func $i "surrogate")))
    (func (export "many") (result $e) (canon lift (core func $i "many")))
    (func (export "take") (param "s" string)
        (canon lift (core func $i "take") (memory $mem) (realloc (core func $i "far"))))

    (type $c_ (resource (rep i32)))
    (core func $new (canon resource.new $c_))
    (core func $drop (canon resource.drop $c_))
    (core module $class
        (import "i" "new" (func $new (param i32) (result i32)))
        (import "i" "drop" (func $drop (param i32)))
        (func $wrong (call $drop (i32.const 77)))
        (func (export "create") (param i32) (result i32)
            (if (local.get 0) (then (call $wrong)))
            (call $new (i32.const 7)))
        (func (export "use") (param i32 i32) (result i32)
            (if (local.get 1) (then (call $wrong)))
            (i32.const 5)))
    (core instance $class (instantiate $class
        (with "i" (instance (export "new" (func $new)) (export "drop" (func $drop))))))
    (func $create (param "x" u32) (result (own $c_)) (canon lift (core func $class "create")))
    (func $use (param "self" (borrow $c_)) (param "x" u32) (result u32) (canon lift (core func $class "use")))
    (component $shim
        (import "t" (type $t (sub resource)))
        (import "create" (func $create (param "x" u32) (result (own $t))))
        (import "use" (func $use (param "self" (borrow $t)) (param "x" u32) (result u32)))
        (export $c "thing" (type $t))
        (export "[constructor]thing" (func $create) (func (param "x" u32) (result (own $c))))
        (export "[method]thing.use" (func $use) (func (param "self" (borrow $c)) (param "x" u32) (result u32))))
    (instance $api (instantiate $shim (with "t" (type $c_)) (with "create" (func $create)) (with "use" (func $use))))
    (export "test:wrong/things@0.1.0" (instance $api)))"#;

#[test]
fn a_wrong_value_is_a_trap() {
    let dir = scratch();
    let module = assemble(dir.path(), "wrong", WRONG);
    for (call, said) in [
        ("text()", "invalid utf-8 sequence"),
        ("outside()", "out of bounds of memory"),
        ("odd()", "not aligned"),
        ("far-result()", "out of bounds of memory"),
        ("surrogate()", "out of range for `char`"),
        ("many()", "discriminant 99 out of range"),
        ("take(\"abc\")", "realloc return: beyond end of memory"),
    ] {
        let stderr = Wasmrun::submit_file(&module)
            .args(["--invoke", call])
            .fails(5);
        assert_says(&stderr, &[": the guest trapped: ", said]);
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
    }
}

#[test]
fn a_wrong_use_of_a_handle_ends_an_actor() {
    let dir = scratch();
    let module = assemble(dir.path(), "wrong", WRONG);
    let node = Node::start();
    let said = "the guest trapped: unknown handle index 77";
    let create = |arg: &str, name: &str| {
        let create = node.wasmrun(["actor", "create"]).arg(&module);
        create.args(["thing", arg, "--name", name])
    };
    create("0", "good").ok();
    let call = node.wasmrun(["actor", "call", "good", "use(0)"]);
    assert_eq!(call.ok(), "5\n");
    let stderr = node.wasmrun(["actor", "call", "good", "use(1)"]).fails(5);
    assert_says(&stderr, &[said, "\n    at wrong\n"]);
    assert!(!stderr.contains("backtrace"), "{stderr}");
}
