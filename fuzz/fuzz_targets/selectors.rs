//! Text as label selectors.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::cluster::fuzz_selectors(data));
