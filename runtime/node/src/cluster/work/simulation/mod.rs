//! Whole nodes under faults, from a seed: each has the product's ledger, exchange, references, members and store. The
//! network and the guests are simulated, time is virtual, and all runs on one thread.
//!
//! Owns a world of such nodes ([`world`]), the network between them ([`fabric`]) and what runs in place of guests
//! ([`guests`]). Tasks start tasks, wait for them or leave them behind, put objects, give them on and return large
//! values. Nodes are killed and started anew, cut off for a while, and drained. All that is left must come to its end
//! with the right result, and then nothing may be left anywhere.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (40), `WASMRUN_SEED` the first; one seed alone prints its trace.

mod fabric;
mod guests;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")),
    )
}

#[test]
fn whole_nodes_under_faults() {
    let first = number("WASMRUN_SEED");
    let seeds = number("WASMRUN_SEEDS").unwrap_or(if first.is_some() { 1 } else { 40 });
    let first = first.unwrap_or(1);
    for seed in first..first + seeds {
        let replayed = || {
            let trace = world::run(seed, seeds == 1);
            let again = world::run(seed, false);
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
                 --lib work::simulation -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
}
