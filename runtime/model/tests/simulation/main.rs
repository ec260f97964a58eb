//! Schedulers under faults, from a seed: several nodes with a scheduler each, or one scheduler that
//! owns all nodes; executors that refuse, fail and wait; nodes that crash and come back; a network
//! that delays messages, and loses them with their nodes. Every step is checked, a run is made twice.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (200), `WASMRUN_SEED` the first; one seed alone
//! (`WASMRUN_SEEDS=1`) prints its trace.

#[path = "../seeds/mod.rs"]
mod seeds;
mod work;
mod world;

use world::{Mode, World};

/// How many seeds are tried if nobody says how many.
const SEEDS: u64 = 200;

fn explore(mode: Mode, test: &str) {
    let test = format!("simulation {test}");
    seeds::explore((SEEDS, SEEDS), &test, |seed, is_traced| {
        let trace = World::new(seed, mode, is_traced).run();
        let again = World::new(seed, mode, false).run();
        assert_eq!(trace, again, "the same seed gives another trace");
    });
}

#[test]
fn a_scheduler_per_node() {
    explore(Mode::Each, "a_scheduler_per_node");
}

#[test]
fn one_scheduler_for_all_nodes() {
    explore(Mode::One, "one_scheduler_for_all_nodes");
}
