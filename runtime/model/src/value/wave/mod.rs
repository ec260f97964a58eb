//! WAVE, the text that people type and read: `{name: "x", points: [{x: 1.5}], kind: some(red)}`.
//!
//! The syntax is read by the `wasm-wave` crate into its untyped tree; the tree is then walked
//! along our types, so an error names the part: `args[1].points[3].x: expected f32, found "abc"`.
//! As in WAVE itself, `some(..)` and `ok(..)` may be left off a value that is not an option or
//! result, fields that are none may be left out, and so may options at the end of the arguments.
//!
//! wasm-wave's lexer recurses for each character of a token unless it is compiled with optimisation
//! (any level above 0; the workspace's dev profile does that for dependencies). Its syntax tree
//! nests at most 100 deep.
//!
//! Printing gives wasm-wave's canonical style, and printed text reads back as the same value (NaN
//! loses its payload).

mod parse;
mod print;

pub use parse::{Invocation, WaveError, parse, parse_with};
pub use print::Wave;

use super::types::ValueType;
use super::value::{TypeError, Value};

/// The longest text that is read, in bytes. The untyped tree takes up to 30 bytes for each byte of
/// text, so this bounds it to about 250 MiB.
pub const TEXT_MAX_BYTES: usize = 8 << 20;

/// A value as WAVE text. Errors: the value does not have the type.
pub fn print(ty: &ValueType, value: &Value) -> Result<String, TypeError> {
    Ok(Wave::new(ty, value)?.to_string())
}
