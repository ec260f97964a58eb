//! What an object is: the form of its bytes, and the kind of copy.

use wasmrun_model::value::NumberKind;

/// What the bytes of an object are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// A value in postcard's form.
    Postcard,
    /// Fixed-width numbers, little-endian, one after the other. They start at a multiple of
    /// [`wasmrun_model::value::codec::BUFFER_ALIGN_BYTES`], as all objects do.
    Buffer(NumberKind),
}

/// Whether an object can be had elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// The one that must not be lost: it is spilled when its room is needed.
    Primary,
    /// Another node has the primary: it is dropped when its room is needed, and reading it then
    /// says [`crate::ReadError::Dropped`].
    Secondary,
}
