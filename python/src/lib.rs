//! The compiled part of the Python package `wasmrun`.
//!
//! Owns what must be fast: a session with a node ([`session`]), futures and actor handles ([`refs`]), what a module exports
//! ([`module`]), and values between Python and their WIT types ([`types`], [`convert`]). Must not: know how people write it
//! down; names, decorators, asyncio and the classes of errors are Python's (`wasmrun/*.py`).

#![allow(
    missing_docs,
    reason = "what Python sees is documented in `wasmrun/_wasmrun.pyi`"
)]

mod asynchronous;
mod bind;
mod convert;
mod failure;
mod group;
mod module;
mod names;
mod numbers;
mod options;
mod refs;
mod session;
mod types;
mod values;

use pyo3::prelude::*;

/// What `import wasmrun._wasmrun` gives.
#[pymodule]
mod _wasmrun {
    #[pymodule_export]
    use crate::asynchronous::{Completions, Early};
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::module::{Callable, Class, Method, Module};
    #[pymodule_export]
    use crate::refs::{Actor, Ref};
    #[pymodule_export]
    use crate::session::Session;

    /// The version of the package, of the program in it, and of what they speak.
    #[allow(non_upper_case_globals, reason = "it is Python's name for it")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
