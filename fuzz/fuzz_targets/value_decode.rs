//! Bytes as an encoded value.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::value::fuzz::decode(data));
