//! Bytes as frames between nodes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_net::fuzz_frame(data));
