//! Schedulers under faults, from a seed: several nodes with a scheduler each, or one scheduler that
//! owns all nodes; executors that refuse, fail and wait; nodes that crash and come back; a network
//! that delays messages, and loses them with their nodes. Every step is checked, a run is made twice.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (200), `WASMRUN_SEED` the first; one seed alone
//! (`WASMRUN_SEEDS=1`) prints its trace.

mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Mode, World};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")),
    )
}

fn explore(mode: Mode, test: &str) {
    let first = number("WASMRUN_SEED");
    let seeds = number("WASMRUN_SEEDS").unwrap_or(if first.is_some() { 1 } else { 200 });
    let first = first.unwrap_or(1);
    let is_traced = seeds == 1;
    for seed in first..first + seeds {
        let run = || {
            let trace = World::new(seed, mode, is_traced).run();
            let again = World::new(seed, mode, false).run();
            assert_eq!(trace, again, "the same seed gives another trace");
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            eprintln!(
                "seed {seed} fails; replay it with\n    WASMRUN_SEED={seed} cargo test -p \
                 wasmrun-model --test simulation {test}"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_scheduler_per_node() {
    explore(Mode::Each, "a_scheduler_per_node");
}

#[test]
fn one_scheduler_for_all_nodes() {
    explore(Mode::One, "one_scheduler_for_all_nodes");
}
