//! `cargo xtask bench`: our micro-benchmarks, on a release build of this checkout.

use anyhow::Result;

use crate::{demo, guests, shell};

/// Builds everything and hands over to `wasmrun bench` with the arguments given.
pub fn run(args: &[String]) -> Result<()> {
    let wasmrun = demo::build_wasmrun()?;
    guests::build()?;
    let mut bench = shell::command(wasmrun);
    bench
        .args(["bench", "--module", "target/guests/bench.wasm"])
        .args(args);
    eprintln!("$ {}", shell::show(&bench));
    shell::run(&mut bench)
}
