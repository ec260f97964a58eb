//! Text as a route, and bytes as a request of a function of any type.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::http::fuzz(data));
