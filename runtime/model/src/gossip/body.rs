//! Bytes that are encoded once and copied on, from node to node.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Something encoded, by the node that it is of. Whoever passes it on need not decode it again, and who has
/// it already need not decode it at all. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body(#[serde(with = "crate::encoding::byte_string")] Arc<[u8]>);

impl Body {
    /// The encoding of a value.
    pub(super) fn of<T: Serialize>(value: &T) -> Self {
        let bytes = postcard::to_stdvec(value).expect("plain data can be encoded");
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value that these bytes are exactly the encoding of.
    pub(super) fn decode<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(&self.0).ok()?;
        rest.is_empty().then_some(value)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Body {
    /// How many, not which: they may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({})", self.0.len())
    }
}
