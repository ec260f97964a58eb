//! Bytes that are copied whole, not element by element.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A string of bytes in a message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bytes(#[serde(with = "crate::encoding::byte_string")] pub Vec<u8>);

impl fmt::Debug for Bytes {
    /// How many, not which: they may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}
