//! Forms of serialised values that many types share: names as text, bytes as one string of bytes.
//!
//! Owns how they are written and read. Must not: know what is a name, or what the bytes are.

pub(crate) mod byte_string;
pub(crate) mod text;
