//! Text as a JSON value.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::value::fuzz::json(data));
