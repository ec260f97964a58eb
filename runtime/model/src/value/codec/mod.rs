//! The bytes of a value: type-directed postcard, and buffer objects.
//!
//! | type | bytes |
//! |---|---|
//! | `bool`, `u8`, `s8` | one byte (`bool`: 0 or 1) |
//! | other integers | LEB128 varint; signed ones zigzag first |
//! | `f32`, `f64` | little-endian |
//! | `string`, `char` | length in bytes as a varint, UTF-8 |
//! | `list` | length as a varint, elements |
//! | `option` | 0, or 1 and the value |
//! | `result` | 0 for ok or 1 for err, the payload if there is one |
//! | `record`, `tuple` | the parts in order |
//! | `variant`, `enum` | number of the case as a varint, the payload if there is one |
//! | `flags` | one bool for each flag, in order |
//! | `object`, `actor` | the name: 36 bytes, 32 bytes |
//!
//! These are the bytes that the `postcard` crate gives for a Rust type of the same shape. A value has
//! exactly one encoding: an overlong varint or a trailing byte is an error.
//!
//! A whole argument or result that is a list of fixed-width numbers is not postcard but a *buffer
//! object*: [`Encoded::Buffer`]. [`encode`] and [`decode`] choose by the type; the `_postcard`
//! functions never make or take a buffer.

mod decode;
mod encode;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use decode::{
    DecodeError, DecodeFault, decode, decode_postcard, handles, validate, validate_postcard,
};
pub use encode::{encode, encode_postcard, encoded_size_bytes};

use super::numbers::NumberKind;
use super::types::ValueType;

/// Where the store must place a buffer object's bytes: at a multiple of this, so that any element
/// type and any vector instruction can work on them in place. The `Vec`s here are not so aligned.
pub const BUFFER_ALIGN_BYTES: usize = 64;

/// A value as it moves and is stored. Which form it takes is decided by its type.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoded {
    /// Any value but a list of fixed-width numbers.
    Postcard(#[serde(with = "crate::encoding::byte_string")] Vec<u8>),
    /// A list of fixed-width numbers.
    Buffer {
        /// What the elements are.
        kind: NumberKind,
        /// The elements, little-endian, one after the other; a whole number of them.
        #[serde(with = "crate::encoding::byte_string")]
        bytes: Vec<u8>,
    },
}

/// A borrowed [`Encoded`]: bytes that lie in a frame or a mapped object.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // As in `Encoded`.
pub enum EncodedRef<'a> {
    Postcard(&'a [u8]),
    Buffer { kind: NumberKind, bytes: &'a [u8] },
}

/// What decoding may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The most memory, in bytes, that the decoded value may take. A value takes up to some 32 times
    /// its encoded size (one byte of postcard can be one [`super::Value`]); number lists and
    /// strings take what they are long.
    pub memory_bytes: usize,
}

impl Default for DecodeLimits {
    /// 256 MiB.
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
        }
    }
}

impl Encoded {
    /// Bytes in the form that their type asks for. Whether they are a value of it is not checked.
    pub fn in_form(ty: &ValueType, bytes: Vec<u8>) -> Self {
        match ty.buffer_kind() {
            Some(kind) => Self::Buffer { kind, bytes },
            None => Self::Postcard(bytes),
        }
    }

    /// How many bytes the value takes, without what is said about it.
    pub fn size_bytes(&self) -> usize {
        EncodedRef::from(self).bytes().len()
    }
}

impl<'a> EncodedRef<'a> {
    /// The bytes of either form.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Postcard(bytes) | Self::Buffer { bytes, .. } => bytes,
        }
    }
}

impl From<Encoded> for Cow<'_, Encoded> {
    fn from(encoded: Encoded) -> Self {
        Cow::Owned(encoded)
    }
}

impl<'a> From<&'a Encoded> for Cow<'a, Encoded> {
    fn from(encoded: &'a Encoded) -> Self {
        Cow::Borrowed(encoded)
    }
}

impl<'a> From<&'a Encoded> for EncodedRef<'a> {
    fn from(encoded: &'a Encoded) -> Self {
        match encoded {
            Encoded::Postcard(bytes) => Self::Postcard(bytes),
            Encoded::Buffer { kind, bytes } => Self::Buffer { kind: *kind, bytes },
        }
    }
}

impl From<EncodedRef<'_>> for Encoded {
    fn from(encoded: EncodedRef<'_>) -> Self {
        match encoded {
            EncodedRef::Postcard(bytes) => Self::Postcard(bytes.to_vec()),
            EncodedRef::Buffer { kind, bytes } => Self::Buffer {
                kind,
                bytes: bytes.to_vec(),
            },
        }
    }
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        EncodedRef::from(self).fmt(f)
    }
}

impl std::fmt::Debug for EncodedRef<'_> {
    /// The form and the size, not the bytes: they may be many.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Postcard(bytes) => write!(f, "Postcard({} bytes)", bytes.len()),
            Self::Buffer { kind, bytes } => write!(f, "Buffer({kind}, {} bytes)", bytes.len()),
        }
    }
}
