//! Bytes as frames of the protocol between nodes and drivers.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_model::wire::fuzz(data));
