//! A service of WASI 0.3: an async export that answers requests (`wasi:http/handler`), and sends some on
//! (`wasi:http/client`).

// Names of exports have characters in them that a native linker does not take.
#[cfg(target_family = "wasm")]
mod service;
