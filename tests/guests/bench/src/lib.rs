//! The guest of `wasmrun bench`: a no-op, countable work, and bytes in and out.
//!
//! Must stay what a small real guest looks like (std linked in, tens of KiB of code), because
//! start-up time depends on it.

#[allow(missing_docs, reason = "documented in wit/bench.wit")]
mod bindings {
    wit_bindgen::generate!({ world: "bench" });
}

use std::collections::HashMap;
use std::hint::black_box;

struct Bench;

impl bindings::Guest for Bench {
    fn noop() {}

    fn busy_iterations(n: u64) -> u64 {
        // xorshift64: every step needs the one before, so the loop cannot be shortened.
        let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
        for _ in 0..n {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        x
    }

    fn echo(data: Vec<u8>) -> Vec<u8> {
        data
    }

    fn make(n: u32) -> Vec<u8> {
        vec![7; n as usize]
    }

    fn sum(data: Vec<u8>) -> u64 {
        data.iter().map(|&byte| u64::from(byte)).sum()
    }

    fn word_counts(text: String) -> Vec<(String, u32)> {
        let mut counts: HashMap<String, u32> = HashMap::new();
        for word in text.split_whitespace() {
            *counts.entry(word.to_ascii_lowercase()).or_default() += 1;
        }
        if counts.is_empty() {
            eprintln!("word-counts: the text has no words ({} bytes)", text.len());
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }
}

bindings::export!(Bench with_types_in bindings);
