//! Text as a WAVE value and call.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::value::fuzz::wave(data));
