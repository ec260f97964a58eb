//! Bytes as a scenario of `wasmrun simulate`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::simulate::fuzz_scenario(data));
