//! The engine on small modules written as text: what end-to-end tests cannot see from outside.

mod common;

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wasmrun_engine::{CacheStatus, Engine, EngineConfig, Limits, Module};
use wasmrun_model::failure::{LimitKind, TaskError};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Value};

use crate::common::{call, engine, load, runtime};

fn run(
    engine: &Engine,
    module: &Module,
    name: &str,
    values: &[Value],
) -> Result<Option<Value>, TaskError> {
    let ty = &module.function(module.find(name).unwrap()).ty;
    let encoded: Vec<_> = ty
        .params()
        .iter()
        .zip(values)
        .map(|((_, ty), v)| encode(ty, v).unwrap())
        .collect();
    let outcome = runtime().block_on(call(engine, module, name, &encoded, Limits::default()))?;
    let limits = DecodeLimits::default();
    Ok(outcome
        .result
        .map(|result| decode(ty.result().unwrap(), &result, limits).unwrap()))
}

/// An export that is async by the component model's own ABI.
const ASYNC: &str = r#"
    (component
      (core module $m
        (import "" "return" (func $return (param i32)))
        (func (export "f") (param i32) (result i32)
          (call $return (i32.add (local.get 0) (i32.const 1)))
          (i32.const 0))
        (func (export "callback") (param i32 i32 i32) (result i32) unreachable))
      (core func $return (canon task.return (result u32)))
      (core instance $i (instantiate $m (with "" (instance (export "return" (func $return))))))
      (func (export "f") async (param "n" u32) (result u32)
        (canon lift (core func $i "f") async (callback (core func $i "callback")))))
"#;

#[test]
fn async_exports_are_tasks() {
    let engine = engine();
    let module = load(&engine, ASYNC);
    assert_eq!(
        run(&engine, &module, "f", &[Value::U32(41)]),
        Ok(Some(Value::U32(42)))
    );
}

/// Returns a list whose pointer or length is not within memory.
fn bad_list(pointer: u32, length: u32) -> String {
    format!(
        r#"(component
          (core module $m
            (memory (export "memory") 1)
            (data (i32.const 16) "\{:02x}\{:02x}\{:02x}\{:02x}\{:02x}\{:02x}\{:02x}\{:02x}")
            (func (export "f") (result i32) (i32.const 16)))
          (core instance $i (instantiate $m))
          (func (export "f") (result (list u32))
            (canon lift (core func $i "f") (memory (core memory $i "memory")))))"#,
        pointer as u8,
        (pointer >> 8) as u8,
        (pointer >> 16) as u8,
        (pointer >> 24) as u8,
        length as u8,
        (length >> 8) as u8,
        (length >> 16) as u8,
        (length >> 24) as u8,
    )
}

#[test]
fn lists_outside_of_memory_are_refused() {
    let engine = engine();
    let good = load(&engine, &bad_list(16, 2));
    assert!(matches!(run(&engine, &good, "f", &[]), Ok(Some(Value::Numbers(n))) if n.len() == 2));
    for (pointer, length) in [
        (0xffff_fffc, 1),
        (65_532, 2),
        (0, u32::MAX),
        (4, 1 << 30),
        (2, 1),
    ] {
        let module = load(&engine, &bad_list(pointer, length));
        let result = run(&engine, &module, "f", &[]);
        assert!(
            matches!(result, Err(TaskError::Trap { .. })),
            "{pointer} {length}: {result:?}"
        );
    }
}

/// An allocator that gives away memory that is not there.
#[test]
fn an_allocator_that_lies_is_caught() {
    let engine = engine();
    let text = r#"(component
        (core module $m
          (memory (export "memory") 1)
          (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65528))
          (func (export "f") (param i32 i32)))
        (core instance $i (instantiate $m))
        (func (export "f") (param "l" (list u8))
          (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#;
    let module = load(&engine, text);
    let bytes = |n| {
        let kind = wasmrun_model::value::NumberKind::U8;
        Value::Numbers(wasmrun_model::value::NumberList::from_le_bytes(kind, vec![7; n]).unwrap())
    };
    assert_eq!(run(&engine, &module, "f", &[bytes(8)]), Ok(None));
    let result = run(&engine, &module, "f", &[bytes(9)]);
    assert!(matches!(result, Err(TaskError::Trap { .. })), "{result:?}");
}

const SPIN: &str = r#"(component
    (core module $m (memory 1) (func (export "f") (loop $l (br $l))))
    (core instance $i (instantiate $m))
    (func (export "f") (canon lift (core func $i "f"))))"#;

#[test]
fn a_busy_guest_gives_way_and_can_be_dropped() {
    let engine = engine();
    let module = load(&engine, SPIN);
    // More often than there are slots: each one dropped must be free again.
    for _ in 0..10 {
        let mut running = Box::pin(call(&engine, &module, "f", &[], Limits::default()));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            // It returns at all only because of the epoch.
            assert!(matches!(running.as_mut().poll(&mut cx), Poll::Pending));
        }
    }
}

#[test]
fn a_time_limit_ends_a_busy_guest() {
    let engine = engine();
    let module = load(&engine, SPIN);
    let limits = Limits {
        time: Some(Duration::from_millis(20)),
        ..Limits::default()
    };
    let result = runtime().block_on(call(&engine, &module, "f", &[], limits));
    assert!(
        matches!(&result, Err(TaskError::Limit { hit, .. }) if hit.kind == LimitKind::Time && hit.limit == 20),
        "{result:?}"
    );
}

#[test]
fn the_next_user_of_a_sandbox_sees_zeros() {
    // Writes to its memory after looking whether anybody else has.
    let text = r#"(component
        (core module $m
          (memory (export "memory") 64)
          (func (export "f") (param $at i32) (result i32)
            (i32.load (local.get $at))
            (i32.store (local.get $at) (i32.const -1))))
        (core instance $i (instantiate $m))
        (func (export "f") (param "at" u32) (result u32) (canon lift (core func $i "f"))))"#;
    let engine = engine();
    let module = load(&engine, text);
    // Below and above what is kept resident (2 MiB), many times the number of slots.
    for round in 0..20 {
        for at in [0, 4096, (2 << 20) - 4, 2 << 20, (4 << 20) - 4] {
            let seen = run(&engine, &module, "f", &[Value::U32(at)]);
            assert_eq!(seen, Ok(Some(Value::U32(0))), "round {round} at {at}");
        }
    }
}

#[test]
fn both_ways_of_calling_agree() {
    // The same core function, once with a type for the direct path, once for the dynamic one.
    let text = r#"(component
        (core module $m
          (memory (export "memory") 1)
          (global $next (mut i32) (i32.const 1024))
          (func (export "realloc") (param $old i32) (param i32) (param $align i32) (param $size i32) (result i32)
            (global.set $next (i32.and (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
                                       (i32.sub (i32.const 0) (local.get $align))))
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (local.get $size))))
          (func (export "echo") (param $p i32) (param $n i32) (result i32)
            (i32.store (i32.const 16) (local.get $p))
            (i32.store (i32.const 20) (local.get $n))
            (i32.const 16)))
        (core instance $i (instantiate $m))
        (func (export "direct") (param "l" (list f64)) (result (list f64))
          (canon lift (core func $i "echo") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
        (func (export "dynamic") (param "l" (list (tuple f64))) (result (list (tuple f64)))
          (canon lift (core func $i "echo") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#;
    let engine = engine();
    let module = load(&engine, text);
    let numbers = [0.0, -0.0, 1.5, f64::MAX, f64::INFINITY, f64::MIN_POSITIVE];
    let direct = Value::Numbers(wasmrun_model::value::NumberList::from_elements(numbers));
    let dynamic = Value::List(
        numbers
            .iter()
            .map(|n| Value::Tuple(vec![Value::F64(*n)]))
            .collect(),
    );
    assert_eq!(
        run(&engine, &module, "direct", std::slice::from_ref(&direct)),
        Ok(Some(direct))
    );
    assert_eq!(
        run(&engine, &module, "dynamic", std::slice::from_ref(&dynamic)),
        Ok(Some(dynamic))
    );
}

#[test]
fn code_comes_from_the_cache_the_second_time() {
    let dir = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        cache_dir: Some(dir.path().join("code")),
        ..EngineConfig::default()
    };
    let first = Engine::new(config.clone()).unwrap();
    assert!(matches!(first.cache_status(), CacheStatus::Ready(_)));
    assert!(!load(&first, SPIN).origin().unwrap().cached);
    // Also in another engine, as in another process.
    let second = Engine::new(config).unwrap();
    assert!(load(&second, SPIN).origin().unwrap().cached);
    load(&second, ASYNC);
    assert!(load(&second, ASYNC).origin().unwrap().cached);
}

#[test]
fn settings_out_of_range_are_refused() {
    for config in [
        EngineConfig {
            stack_bytes: 1,
            ..EngineConfig::default()
        },
        EngineConfig {
            max_sandboxes: 0,
            ..EngineConfig::default()
        },
        EngineConfig {
            max_sandboxes: 5_001,
            ..EngineConfig::default()
        },
    ] {
        assert!(Engine::new(config).is_err());
    }
}

#[test]
fn any_damage_to_a_module_is_an_error_not_a_panic() {
    let engine = engine();
    let whole = wat::parse_str(ASYNC).unwrap();
    for at in 4..whole.len() {
        // Only what comes after the last section that counts may be missing.
        if let Ok(module) = engine.load(&whole[..at]) {
            assert!(module.find("f").is_ok(), "cut at {at}");
        }
    }
    // A changed byte may leave it valid; what matters is that nothing falls over.
    for at in 8..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        let _ = engine.load(&bytes);
    }
}
