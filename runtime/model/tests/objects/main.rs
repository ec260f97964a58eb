//! Objects across nodes under faults, from a seed: nodes that put, pass on, nest, read and drop objects, run tasks for
//! each other and keep what comes of them; nodes that crash and come back, or are cut off and begin a new incarnation;
//! links that are slow, each in its order, and cut for a while. What is decided is [`wasmrun_model::reference`]'s, as
//! in a node; what stands around it there (cells, messages, tasks) is here as short as can be. Every step is checked, a
//! run is made twice.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (200), `WASMRUN_SEED` the first; one seed alone
//! (`WASMRUN_SEEDS=1`) prints its trace.

#[path = "../seeds/mod.rs"]
mod seeds;
mod things;
mod world;

use world::World;

/// How many seeds are tried if nobody says how many.
const SEEDS: u64 = 200;

#[test]
fn objects_across_nodes() {
    let mut seen = world::Coverage::default();
    let seeds = seeds::explore((SEEDS, SEEDS), "objects", |seed, is_traced| {
        let (trace, of_seed) = World::new(seed, is_traced).run();
        let (again, _) = World::new(seed, false).run();
        assert_eq!(trace, again, "the same seed gives another trace");
        seen.add(&of_seed);
    });
    println!("{seen:?}");
    if seeds >= SEEDS {
        assert!(seen.is_everything(), "some things do not happen: {seen:?}");
    }
}
