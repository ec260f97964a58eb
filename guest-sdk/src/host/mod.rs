//! The host, as the rest of this crate sees it: objects, tasks and actors as bytes.
//!
//! Owns the one interface to two hosts. On WebAssembly it is the node, through the imports of
//! `wit/`; elsewhere `native` plays its part inside this process. Both have the same names.

#[cfg(target_family = "wasm")]
mod wasm;
#[cfg(target_family = "wasm")]
pub use wasm::*;

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(not(target_family = "wasm"))]
pub use native::*;

/// The length of an object's name in bytes.
pub const OBJECT_NAME_BYTES: usize = 36;

/// The length of an actor's name in bytes.
pub const ACTOR_NAME_BYTES: usize = 32;

/// What stands for an object's handle inside a value.
pub type ObjectName = [u8; OBJECT_NAME_BYTES];

/// What stands for an actor's handle inside a value.
pub type ActorName = [u8; ACTOR_NAME_BYTES];
