//! Bytes as the first words between nodes, and as join tokens.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wasmrun_net::fuzz_hello(data));
