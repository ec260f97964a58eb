//! Which seeds a simulation tries.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")),
    )
}

/// Tries a part of so many seeds, or of `WASMRUN_SEEDS`, from `WASMRUN_SEED` on: that one alone, if it is set and the other
/// is not. `one` is told whether its seed is the only one, to print the trace. One that fails is named, for this test. How
/// many seeds there were.
pub fn explore((part, of): (u64, u64), test: &str, mut one: impl FnMut(u64, bool)) -> u64 {
    let first = number("WASMRUN_SEED");
    let seeds = number("WASMRUN_SEEDS").unwrap_or(if first.is_some() { 1 } else { of });
    let seeds = (seeds * part).div_ceil(of);
    let first = first.unwrap_or(1);
    for seed in first..first + seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| one(seed, seeds == 1))) {
            eprintln!(
                "seed {seed} fails; replay it with\n    WASMRUN_SEED={seed} cargo test -p \
                 wasmrun-model --test {test}"
            );
            resume_unwind(panic);
        }
    }
    seeds
}
