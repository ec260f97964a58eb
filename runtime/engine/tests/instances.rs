//! Instances of components: which way calls take, and what runs when there is no room for one.

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use wasmrun_engine::{Engine, Limits, Module, Outcome};
use wasmrun_model::failure::TaskError;
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Encoded, Value, ValueType};

use crate::common::{engine, load, runtime};

/// Calls a function, with the usual limits.
async fn call(
    engine: &Engine,
    module: &Module,
    name: &str,
    values: &[Encoded],
) -> Result<Outcome, TaskError> {
    common::call(engine, module, name, values, Limits::default()).await
}

/// A component whose fast lane has this function `call`, beside `pick`, whose parameter no direct call can
/// pass: 7 by its own types, a trap by the lane.
fn with_lane(params: &str, param_types: &str) -> String {
    format!(
        r#"(component
          (core module $m
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func (export "pick") (param i32 i32 i32) (result i32) (i32.const 7))
            (func (export "call") {params} (result i32) unreachable)
            (func (export "create") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "invoke") (param i32 i32 i32 i32 i32) (result i32) unreachable)
            (func (export "checkpoint") (param i32) (result i32) unreachable)
            (func (export "restore") (param i32 i32 i32 i32) (result i32) unreachable))
          (core instance $i (instantiate $m))
          (alias core export $i "memory" (core memory $memory))
          (alias core export $i "realloc" (core func $realloc))
          (func (export "pick") (param "from" (tuple u32 u32 u32)) (result u32)
            (canon lift (core func $i "pick")))
          (func $call {param_types} (result (list u8))
            (canon lift (core func $i "call") (memory $memory) (realloc $realloc)))
          (func $create (param "class" string) (param "arguments" (list (list u8))) (result u32)
            (canon lift (core func $i "create") (memory $memory) (realloc $realloc)))
          (func $invoke (param "instance" u32) (param "method" string)
            (param "arguments" (list (list u8))) (result (list u8))
            (canon lift (core func $i "invoke") (memory $memory) (realloc $realloc)))
          (func $checkpoint (param "instance" u32) (result (option (list u8)))
            (canon lift (core func $i "checkpoint") (memory $memory) (realloc $realloc)))
          (func $restore (param "class" string) (param "state" (list u8)) (result u32)
            (canon lift (core func $i "restore") (memory $memory) (realloc $realloc)))
          (instance $lane
            (export "call" (func $call))
            (export "create" (func $create))
            (export "invoke" (func $invoke))
            (export "checkpoint" (func $checkpoint))
            (export "restore" (func $restore)))
          (export "wasmrun:runtime/calls@0.1.0" (instance $lane)))"#
    )
}

/// What `pick` gives.
fn pick(engine: &Engine, module: &Module) -> Result<Value, TaskError> {
    let ty = &module.function(module.find("pick").unwrap()).ty;
    let given = Value::Tuple(vec![Value::U32(1), Value::U32(2), Value::U32(3)]);
    let given = encode(&ty.params()[0].1, &given).unwrap();
    let outcome = runtime().block_on(call(engine, module, "pick", &[given]))?;
    let result = outcome.result.unwrap();
    Ok(decode(ty.result().unwrap(), &result, DecodeLimits::default()).unwrap())
}

#[test]
fn a_fast_lane_of_other_types_is_not_taken() {
    let engine = engine();
    let right = with_lane(
        "(param i32 i32 i32 i32)",
        r#"(param "function" string) (param "arguments" (list (list u8)))"#,
    );
    let module = load(&engine, &right);
    assert!(module.skipped().is_empty());
    let by_lane = pick(&engine, &module);
    assert!(
        matches!(by_lane, Err(TaskError::Trap { .. })),
        "{by_lane:?}"
    );
    let others = [
        ("(param i32 i32)", r#"(param "function" string)"#),
        (
            "(param i32 i32 i32 i32)",
            r#"(param "function" string) (param "arguments" (list (list u16)))"#,
        ),
        (
            "(param i32 i32 i32 i32)",
            r#"(param "arguments" (list (list u8))) (param "function" string)"#,
        ),
    ];
    for (params, types) in others {
        let module = load(&engine, &with_lane(params, types));
        let skipped = module.skipped();
        assert_eq!(skipped.len(), 1, "{skipped:?}");
        assert_eq!(skipped[0].name, "wasmrun:runtime/calls@0.1.0");
        let why = "its function call is of another type than in wasmrun:runtime";
        assert!(skipped[0].reason.starts_with(why), "{}", skipped[0].reason);
        assert_eq!(pick(&engine, &module), Ok(Value::U32(7)));
    }
}

#[test]
fn a_lane_that_lacks_a_function_is_not_taken() {
    let engine = engine();
    let types = r#"(param "function" string) (param "arguments" (list (list u8)))"#;
    let text = with_lane("(param i32 i32 i32 i32)", types);
    let text = text.replace(r#"(export "invoke" (func $invoke))"#, "");
    let module = load(&engine, &text);
    let why = &module.skipped()[0].reason;
    assert!(why.starts_with("it has no function invoke"), "{why}");
    assert_eq!(pick(&engine, &module), Ok(Value::U32(7)));
}

/// A component with so many memories that runs until it is dropped.
fn spinning(memories: usize) -> String {
    let more = "(core instance (instantiate $m))".repeat(memories - 1);
    format!(
        r#"(component
          (core module $m (memory 1) (func (export "f") (loop $l (br $l))))
          (core instance $i (instantiate $m)) {more}
          (func (export "f") (canon lift (core func $i "f"))))"#
    )
}

/// A component with two memories, whose first instance traps when it starts, if it does.
const STARTS: &str = r#"(component
    (core module $first (memory 1) (func $start unreachable) (start $start))
    (core module $second (memory 1) (func (export "f")))
    (core instance (instantiate $first))
    (core instance $i (instantiate $second))
    (func (export "f") (canon lift (core func $i "f"))))"#;

/// Whether a run has ended, once it has had a turn.
fn poll<T>(running: &mut Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match running
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn nothing_runs_before_there_is_room_for_all() {
    let runtime = runtime();
    let _context = runtime.enter();
    // The pool has two memories a sandbox, and 16: of 24, one is left here.
    let engine = engine();
    let (large, small) = (load(&engine, &spinning(16)), load(&engine, &spinning(7)));
    let starts = load(&engine, STARTS);
    let mut large = Box::pin(call(&engine, &large, "f", &[]));
    let mut small = pin!(call(&engine, &small, "f", &[]));
    assert!(poll(&mut large.as_mut()).is_none() && poll(&mut small).is_none());
    let mut waiting = pin!(call(&engine, &starts, "f", &[]));
    for _ in 0..3 {
        // With one memory for its first instance, it would have started that again and again.
        assert!(poll(&mut waiting).is_none());
    }
    drop(large);
    match poll(&mut waiting) {
        Some(Err(TaskError::Trap { .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// A component whose `waits` calls `wait` with the list of so many handles at a place of its memory, which is all
/// zeros: 1 if it was refused.
const WAITS: &str = r#"(component
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
        (export "wait" (func (param "objects" (list (borrow $object))) (param "count" u32)
            (param "timeout-ms" (option u64)) (result (result (list u32) (error $error)))))))
    (core module $memory
        (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096)))
    (core instance $m (instantiate $memory))
    (core func $wait (canon lower (func $objects "wait")
        (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
    (core module $code
        (import "m" "memory" (memory 1))
        (import "host" "wait" (func $wait (param i32 i32 i32 i32 i64 i32)))
        (func (export "waits") (param i32 i32) (result i32)
            (call $wait (local.get 0) (local.get 1)
                (i32.const 1) (i32.const 0) (i64.const 0) (i32.const 256))
            (i32.load8_u (i32.const 256))))
    (core instance $i (instantiate $code (with "m" (instance $m))
        (with "host" (instance (export "wait" (func $wait))))))
    (func (export "waits") (param "at" u32) (param "count" u32) (result u32)
        (canon lift (core func $i "waits"))))"#;

#[test]
fn a_list_of_handles_is_checked() {
    let engine = engine();
    let module = load(&engine, WAITS);
    let waits = |at: u32, count: u32| {
        let given = [at, count].map(|it| encode(&ValueType::U32, &Value::U32(it)).unwrap());
        let outcome = runtime().block_on(call(&engine, &module, "waits", &given))?;
        let result = outcome.result.unwrap();
        Ok::<_, TaskError>(decode(&ValueType::U32, &result, DecodeLimits::default()).unwrap())
    };
    // Nobody is there to wait for anything.
    assert_eq!(waits(0, 0), Ok(Value::U32(1)));
    let wrong = [
        ((2, 1), "list pointer is not aligned"),
        ((0, 16_385), "list pointer/length out of bounds of memory"),
        ((65_536, 1), "list pointer/length out of bounds of memory"),
        (
            (u32::MAX - 3, u32::MAX),
            "list pointer/length out of bounds of memory",
        ),
        ((512, 1), "unknown handle index 0"),
    ];
    for ((at, count), why) in wrong {
        match waits(at, count) {
            Err(TaskError::Trap { message, .. }) => {
                assert!(message.contains(why), "{at}, {count}: {message}");
            }
            other => panic!("{at}, {count}: {other:?}"),
        }
    }
}
