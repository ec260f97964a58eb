//! Bytes as events of the scheduler, its invariants checked after each.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::scheduler::fuzz(data));
