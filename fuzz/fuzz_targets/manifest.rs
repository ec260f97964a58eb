//! Bytes as a module's manifest.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::manifest::fuzz(data));
