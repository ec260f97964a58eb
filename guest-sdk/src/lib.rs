//! What a wasmrun guest depends on: tasks, actors and objects as plain Rust.
//!
//! A guest is an ordinary Rust crate of type `cdylib`, compiled to `wasm32-wasip2` (or
//! `wasm32-wasip1`). [`#[module]`](macro@module) makes of a `mod` in it a module that a node runs: its
//! functions become tasks, its structs actors. The Rust types are the contract. The attribute writes the
//! WIT world from them, the exports, the manifest, and functions that start tasks elsewhere.
//!
//! ```
//! #[wasmrun_guest::module]
//! mod app {
//!     use wasmrun_guest::prelude::*;
//!
//!     pub struct Part {
//!         pub seed: u64,
//!         pub samples: u64,
//!     }
//!
//!     /// How many of so many random points of a square lie in its circle.
//!     #[task(cpus = "0.5", memory = "64MiB", retries = 3, time_limit = "30s")]
//!     pub fn sample(part: Part) -> u64 {
//!         let mut state = part.seed | 1;
//!         let mut random = || {
//!             state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
//!             (state >> 11) as f64 / (1_u64 << 53) as f64
//!         };
//!         (0..part.samples).filter(|_| random().powi(2) + random().powi(2) < 1.0).count() as u64
//!     }
//!
//!     #[task]
//!     pub fn pi(parts: u32, samples: u64) -> Result<f64, Error> {
//!         let futures: Vec<Future<u64>> = (0..parts)
//!             .map(|part| sample::remote(Part { seed: part.into(), samples }))
//!             .collect();
//!         let hits: u64 = get_all(&futures)?.into_iter().sum();
//!         Ok(4.0 * hits as f64 / (u64::from(parts) * samples) as f64)
//!     }
//! }
//!
//! // Natively, as in `cargo test`, everything runs in this process.
//! let pi = app::pi::remote(4, 1000).get().unwrap();
//! assert!((2.9..3.4).contains(&pi));
//! ```
//!
//! # Tasks
//!
//! `#[task]` makes a task of a function. Beside the function `sample` there is then a module of the same
//! name: `sample::remote(…)` starts the task somewhere and gives a [`Future`] of what it returns, at
//! once. An argument may be a value, a reference to one, or a future of one: a task with futures among its
//! arguments starts when they are there, so that futures make the graph of a computation. Calling
//! `sample(…)` itself is a plain call.
//!
//! `sample::options()` asks for something else than what the attribute declares:
//!
//! ```
//! # #[wasmrun_guest::module]
//! # mod app {
//! #     use wasmrun_guest::prelude::*;
//! #     #[task]
//! #     pub fn double(n: u64) -> u64 { 2 * n }
//! # }
//! # use app::*;
//! let four = double::remote(2);
//! let eight = double::options().cpus(2).memory("1GiB").retries(1).remote(&four);
//! assert_eq!(eight.get(), Ok(8));
//! ```
//!
//! `#[task(…)]` takes `cpus`, `gpus` and `memory`, `resources(name = amount, …)` for others,
//! `alternative(cpus = 4, …)` (as often as there are alternatives, in order of preference), `retries`,
//! `retry_on_error` (an error that the function returns is a failure like others) and `time_limit`.
//! `#[module(…)]` takes the same for all tasks of the module; besides, `package` and
//! `interface` for the names of the exports (`crate:crate` and the name of the `mod` otherwise), and
//! `dirs(…)`, `net(…)`, `http(…)`, `env(…)` and `secrets(…)` for what the module would like to be granted.
//!
//! # Waiting
//!
//! [`get`] waits for a value, [`get_all`] for several, [`wait`] for the first of many;
//! [`Future::get_timeout`] does not wait for ever, and [`cancel`] ends what is not wanted any more. Whoever
//! waits gives back its CPU meanwhile. [`put`] stores a value, so that many tasks can share it.
//!
//! A task that returns a `Result` fails when it returns its error: `get` gives the ok value, or an
//! [`Error`] with the message, the causes in other tasks that led to it, and the returned value as
//! [`Error::payload`]. The `?` operator works in tasks that return `Result<_, Error>` or
//! `Result<_, String>`.
//!
//! ```
//! # use wasmrun_guest::prelude::*;
//! #[wasmrun_guest::module]
//! mod app {
//!     use wasmrun_guest::prelude::*;
//!
//!     pub enum Refusal {
//!         Empty,
//!         TooLarge { most: u32 },
//!     }
//!
//!     #[task]
//!     pub fn check(n: u32) -> Result<u32, Refusal> {
//!         match n {
//!             0 => Err(Refusal::Empty),
//!             1..=10 => Ok(n),
//!             _ => Err(Refusal::TooLarge { most: 10 }),
//!         }
//!     }
//! }
//!
//! let error = app::check::remote(11).get().unwrap_err();
//! assert_eq!(error.kind(), Some(FailureKind::Guest));
//! assert!(matches!(error.payload(), Some(app::Refusal::TooLarge { most: 10 })));
//! ```
//!
//! # Actors
//!
//! An actor is a struct that lives somewhere and keeps its state between calls. Its `impl` has a
//! constructor, `new`, and the calls: public methods with `&self` or `&mut self`. Calls of one caller run
//! in the order in which they were made, and an actor runs one at a time. Whoever has a handle, here a
//! `CounterHandle`, can call; handles can be passed on.
//!
//! ```
//! #[wasmrun_guest::module]
//! mod app {
//!     #[actor(memory = "64MiB", restarts = 2)]
//!     pub struct Counter {
//!         n: u64,
//!     }
//!
//!     #[actor]
//!     impl Counter {
//!         pub fn new(start: u64) -> Self {
//!             Counter { n: start }
//!         }
//!
//!         pub fn incr(&mut self, by: u64) -> u64 {
//!             self.n += by;
//!             self.n
//!         }
//!
//!         // Optional, and only together: what survives when the actor is started again.
//!         pub fn checkpoint(&self) -> Vec<u8> {
//!             self.n.to_le_bytes().to_vec()
//!         }
//!
//!         pub fn restore(state: Vec<u8>) -> Self {
//!             Counter { n: u64::from_le_bytes(state.try_into().unwrap()) }
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), wasmrun_guest::Error> {
//! use app::Counter;
//! let counter = Counter::create(5)?;
//! let (six, eight) = (counter.incr(1), counter.incr(2));
//! assert_eq!((six.get()?, eight.get()?), (6, 8));
//!
//! Counter::options().name("visits").create(0)?;
//! let visits = Counter::find("visits")?;
//! assert_eq!(visits.incr(1).get()?, 1);
//! visits.kill();
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! Signatures may have numbers (`u8` to `i64`, `f32`, `f64`), `bool`, `char`, `String`, `Vec`, `Option`,
//! `Result`, tuples, futures, handles of actors, [`Error`], and structs and enums of these that are declared
//! in the module. A type from elsewhere in the crate takes part with [`#[value]`](macro@value) on it and
//! its path in `#[module(types(…))]`. Anything else is an error at the place where it stands.
//!
//! ```
//! mod shapes {
//!     #[wasmrun_guest::value]
//!     pub enum Shape {
//!         Dot,
//!         Circle(f64),
//!     }
//! }
//!
//! #[wasmrun_guest::module(types(crate::shapes::Shape))]
//! mod app {
//!     use crate::shapes::Shape;
//!
//!     #[task]
//!     pub fn area(shape: Shape) -> f64 {
//!         match shape {
//!             Shape::Dot => 0.0,
//!             Shape::Circle(radius) => 3.14 * radius * radius,
//!         }
//!     }
//! }
//! # fn main() { assert_eq!(app::area::remote(shapes::Shape::Circle(1.0)).get(), Ok(3.14)); }
//! ```
//!
//! A value that is as a whole a list of numbers crosses as it lies in memory, in one copy. Larger ones need
//! none: a parameter of type [`Mapped<f64>`](Mapped) is given like a `Vec<f64>` and reads the stored object
//! in place, and [`Future::map`] does that with any future of such a list.
//!
//! # What a task knows
//!
//! [`context`] has a task's id, its attempt, the node it is on, its index in an array and the resources
//! that it holds. A guest without `#[module]`, such as a program or one that brings its own WIT, can use
//! that too, and [`manifest!`] to declare what it needs.
//!
//! # Tests
//!
//! Outside WebAssembly this crate plays the node, in the same process and thread: a task runs when it is
//! started, values cross as bytes as they do on a node, a panic is a failure, and tasks that wait for each
//! other are found. So `cargo test` tests a guest. What is not there: limits, retries and restarts,
//! options (they are taken and ignored), time that runs out, and cancelling a task that runs. Each thread
//! has objects and actors of its own: tests do not meet.
//!
//! # Limits of the attribute
//!
//! One `#[module]` per crate: it is what the component exports. WIT has no generics, no recursive types, and
//! functions and types of a module share their names there. Threads do not exist in a guest, so futures and
//! handles stay on theirs.
//!
//! What this crate must not do: depend on anything under `runtime/`, or define a contract of its
//! own. The contract is `wit/`, and the bindings here are generated from it.

// Generated code names this crate, here too.
#[cfg(test)]
extern crate self as wasmrun_guest;

mod actor;
mod argument;
pub mod context;
mod error;
mod future;
mod host;
#[doc(hidden)]
pub mod json;
mod manifest;
mod mapped;
mod module;
mod options;
pub mod prelude;
#[cfg(test)]
mod tests;
#[cfg(target_family = "wasm")]
mod typed;
mod value;

pub use actor::{ActorHandle, LimitCalls};
pub use argument::IntoArgument;
pub use error::{Error, Failure, FailureKind};
pub use future::{Cancellation, Future, cancel, get, get_all, get_all_timeout, put, wait};
pub use mapped::Mapped;
pub use value::{Element, Value};
pub use wasmrun_guest_macros::{actor, module, task, value};

/// What generated code uses. Not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use wasmrun_guest_macros::__with_type;
    pub use wit_bindgen;

    use crate::argument::Argument;
    use crate::future::Future;
    #[cfg(target_family = "wasm")]
    pub use crate::host::bindings;
    pub use crate::module::{Arguments, CallError, Called, Instance, Made, Module, Returned};
    pub use crate::options::{ActorSettings, TaskSettings, set as set_resource};
    #[cfg(target_family = "wasm")]
    pub use crate::typed::Typed;
    pub use crate::value::bytes;

    /// Starts a task: what `f::remote` does.
    pub fn spawn<T>(
        module: &'static Module,
        function: &'static str,
        arguments: Vec<Argument>,
        settings: Option<&TaskSettings>,
    ) -> Future<T> {
        Future::new(crate::host::spawn(module, function, arguments, settings))
    }
}

/// Makes a value of a type with serde's traits.
#[doc(hidden)]
#[macro_export]
macro_rules! __plain_value {
    ($type:ident) => {
        impl $crate::Value for $type {
            type Output = Self;

            fn into_output(self) -> ::core::result::Result<Self, $crate::Error> {
                ::core::result::Result::Ok(self)
            }
        }
    };
}
