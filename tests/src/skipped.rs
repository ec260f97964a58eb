//! Tests that this machine has no part for: they say so, and whoever runs them all hears of it.

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that gets a line for each test that was skipped. `cargo xtask test` reads it, since nobody sees what
/// tests print that pass.
const FILE: &str = "WASMRUN_SKIPPED";

/// Says that a test is skipped, and why.
///
/// # Panics
/// When the environment variable `required` is set: then it must not be skipped. When the file cannot be written.
pub fn skipped(required: &str, why: &str) {
    assert!(
        std::env::var_os(required).is_none(),
        "{required} is set, and {why}"
    );
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(file);
    let line = format!("{}\n", why.trim().replace('\n', " "));
    // In one call, since several tests write at once.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the list of skipped tests can be written");
}
