//! WIT types and values, and every form in which a value leaves or enters the system.
//!
//! Owns: [`ValueType`] and [`Value`] (independent of wasmtime, whose component types and values the
//! engine converts to and from these), the bytes ([`codec`]), the text people type and read
//! ([`wave`]) and JSON ([`json`], with its [`schema`]). Must not: know a runtime, a guest or a store.
//!
//! Invariants:
//! - Everything is directed by a type. A value holds no names; field, case and flag names live in
//!   the type only.
//! - A list of fixed-width numbers is always a [`Value::Numbers`], never a [`Value::List`]: one
//!   value has one representation.
//! - Every [`ValueType`] is one that WIT can express (see [`types`]), nested at most
//!   [`TYPE_DEPTH_MAX`] deep, so each walk over types or values is bounded in stack, and every
//!   value takes at least one encoded byte, so a list can never claim more elements than there
//!   are bytes.
//! - Bytes and text come from outside: decoding returns errors, never panics, and allocates in
//!   proportion to what is really there.

pub mod codec;
#[doc(hidden)]
pub mod fuzz;
pub mod json;
mod keys;
mod numbers;
mod path;
pub mod schema;
mod text;
mod type_table;
pub mod types;
#[allow(clippy::module_inception)]
// `value::value::Value` is re-exported; the file is about the value.
mod value;
pub mod wave;

#[cfg(test)]
pub(crate) mod tests;

pub use codec::{DecodeError, DecodeFault, DecodeLimits, Encoded, EncodedRef};
pub use keys::{check_json, is_json, read_json, read_json_within};
pub use numbers::{Element, NumberKind, NumberList};
pub use path::{Path, Root, Segment};
pub use text::{TextError, TextFault};
pub(crate) use text::{excerpt, names};
pub use types::{FunctionType, HandleKind, InvalidType, TYPE_DEPTH_MAX, TYPE_SIZE_MAX, ValueType};
pub use value::{Handle, TypeError, TypeFault, Value};
