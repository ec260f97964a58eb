//! Bytes as what happens to a node's gossip, its invariants checked after each.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::gossip::fuzz(data));
