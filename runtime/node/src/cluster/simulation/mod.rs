//! What nodes have in the control store, under faults, from a seed: their places, the records of detached tasks and
//! groups, the names of actors.
//!
//! Owns a world of nodes ([`world`]) each of which is what the product has ([`node`]): its loop of membership and its
//! lease's keeper, its writers, its looking for lost owners, its followers, over ways of its own to one store
//! (`wasmrun_control::simulated`). Nodes are killed, frozen, cut off and started anew; requests and answers are lost or
//! late; the store restarts and forgets its history. What must be so at each step, and once all is well again, is in
//! [`oracles`]. A seed is run twice and must give the same trace.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (40), `WASMRUN_SEED` the first; one seed alone prints its trace.

mod names;
mod node;
mod oracles;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::world::run;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")),
    )
}

#[test]
fn what_is_in_the_store_has_one_owner() {
    let first = number("WASMRUN_SEED");
    let seeds = number("WASMRUN_SEEDS").unwrap_or(if first.is_some() { 1 } else { 40 });
    let first = first.unwrap_or(1);
    for seed in first..first + seeds {
        let replayed = || {
            let trace = run(seed, seeds == 1);
            let again = run(seed, false);
            let differ = trace.iter().zip(&again).position(|(one, two)| one != two);
            if let Some(at) = differ {
                panic!(
                    "the same seed gives another trace:\n{}\n{}",
                    trace[at], again[at]
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
                 --lib cluster::simulation -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
}
