//! What a wasmrun guest depends on.
//!
//! A guest is an ordinary Rust crate compiled to `wasm32-wasip2` (or `wasm32-wasip1`). It needs
//! nothing from here to run: any exported function is a task. This crate adds two things:
//!
//! - [`context`]: what a running task can ask about itself — its id, its attempt, the node it is
//!   on, its index in an array and the resources it holds.
//! - [`manifest!`]: a declaration, kept inside the module, of what its functions need.
//!
//! ```
//! use wasmrun_guest::context;
//!
//! // The functions of this module get one CPU and 64 MiB unless `wasmrun submit` says otherwise.
//! wasmrun_guest::manifest!(
//!     r#"{"version": 1, "functions": {"*": {"resources": {"CPU": "1", "memory": "64MiB"}}}}"#
//! );
//!
//! fn greet() -> String {
//!     match context::array_index() {
//!         Some(index) => format!("part {index} on {}", context::node()),
//!         None => format!("task {} on {}", context::task_id(), context::node()),
//!     }
//! }
//! ```
//!
//! The functions in [`context`] are host calls. Outside wasmrun there is no host to answer them:
//! a module that uses them is refused by other runtimes, and a native build panics when it
//! calls one. The types around them ([`Amount`](context::Amount) and friends) work anywhere.
//!
//! What this crate must not do: depend on anything under `runtime/`, or define a contract of its
//! own. The contract is `wit/`, and the bindings here are generated from it.

pub mod context;
#[doc(hidden)]
pub mod json;
mod manifest;
