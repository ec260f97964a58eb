//! Bytes as messages between a node and the control store's server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_control::remote::fuzz(data));
