//! What tests of several modules of this crate share.
//!
//! Owns the guests that they run, and how simulations go through seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmrun_engine::{Invocation, Outcome};
use wasmrun_model::failure::TaskError;

/// Runs a simulation with many seeds, each of them twice: it must give the same trace. `run` is given the seed and whether
/// to print the trace. `WASMRUN_SEEDS` is how many are tried, this many if it is not set; `WASMRUN_SEED` is the first, and
/// alone if how many is not said.
pub(crate) fn replay(seeds: u64, filter: &str, run: impl Fn(u64, bool) -> Vec<String>) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let number: Result<u64, _> = text.parse();
        Some(number.unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")))
    };
    let first = number("WASMRUN_SEED");
    let seeds = number("WASMRUN_SEEDS").unwrap_or(if first.is_some() { 1 } else { seeds });
    let first = first.unwrap_or(1);
    for seed in first..first + seeds {
        let replayed = || {
            let trace = run(seed, seeds == 1);
            let again = run(seed, false);
            let differ = trace.iter().zip(&again).position(|(one, two)| one != two);
            if let Some(at) = differ {
                // What came before may say why.
                let from = at.saturating_sub(5);
                panic!(
                    "the same seed gives another trace:\n{}\nor\n{}",
                    trace[from..=at].join("\n"),
                    again[from..=at].join("\n")
                );
            }
            assert_eq!(
                trace.len(),
                again.len(),
                "the same seed gives another trace"
            );
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(replayed)) {
            eprintln!(
                "seed {seed} fails; replay it with\n    WASMRUN_SEED={seed} cargo test --workspace \
                 --lib {filter} -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// What runs in place of guests.
#[async_trait::async_trait]
pub(crate) trait Guests: Send + Sync {
    /// One attempt of a task.
    async fn run(&self, invocation: Invocation<'_>) -> Result<Outcome, TaskError>;
}

/// A component with a function `f`, and a class `counter` whose method `call` takes a list of bytes.
pub(crate) const COUNTER: &str = r#"(component
    (core module $m
      (memory (export "memory") 2)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
      (func (export "f"))
      (func (export "create") (result i32) (i32.const 7))
      (func (export "call") (param i32 i32 i32)))
    (type $counter (resource (rep i32)))
    (core func $new (canon resource.new $counter))
    (core instance $i (instantiate $m))
    (core module $wrap
      (import "m" "create" (func $create (result i32)))
      (import "m" "new" (func $new (param i32) (result i32)))
      (func (export "create") (result i32) (call $new (call $create))))
    (core instance $w (instantiate $wrap (with "m" (instance
      (export "create" (func $i "create"))
      (export "new" (func $new))))))
    (func (export "f") (canon lift (core func $i "f")))
    (func $create (result (own $counter)) (canon lift (core func $w "create")))
    (func $call (param "self" (borrow $counter)) (param "bytes" (list u8)) (canon lift (core func $i "call")
      (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
    (component $shim
      (import "t" (type $t (sub resource)))
      (import "create" (func $create (result (own $t))))
      (import "call" (func $call (param "self" (borrow $t)) (param "bytes" (list u8))))
      (export $c "counter" (type $t))
      (export "[constructor]counter" (func $create) (func (result (own $c))))
      (export "[method]counter.call" (func $call) (func (param "self" (borrow $c)) (param "bytes" (list u8)))))
    (instance $api (instantiate $shim
      (with "t" (type $counter))
      (with "create" (func $create))
      (with "call" (func $call))))
    (export "test:counters/api" (instance $api)))"#;
