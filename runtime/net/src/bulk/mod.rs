//! Bulk streams: ranges of bytes, straight into memory of whoever asks.
//!
//! Owns the bytes of these streams. Must not: know what the bytes are; a [`Source`] gives them.
//!
//! The one who asks opens a connection of its own for it, and a stream for each range:
//!
//! ```text
//! there    a frame: offset and length of the range in postcard, then the request
//! back     one byte, 0 or why not, then exactly as many bytes as were asked for, then their checksum
//! ```
//!
//! The checksum is CRC-32 (ISO-HDLC), little-endian. What changes bytes on the way is kept out by TLS; it is for
//! what changes them before: the sender may know it from when the bytes were made ([`BulkSender::set_sum`]).
//!
//! Invariants: nobody holds more than the windows of the connection; a stream on which nothing moves is
//! given up; dropping either end stops the other.

mod pull;
mod serve;

use serde::{Deserialize, Serialize};

pub use pull::{Arrived, PullError, PullOptions, PullWhy};
pub use serve::{BulkSendError, BulkSender};
pub(crate) use serve::{BulkServer, Source};

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Range {
    /// Where it begins.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// Why somebody does not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BulkRefusal {
    /// It does not have these bytes.
    #[error("the peer does not have these bytes: ask another holder")]
    NotHere,
    /// It has too much to do.
    #[error("the peer is busy: ask another holder, or later")]
    Busy,
    /// It does not understand the request.
    #[error("the peer could not decode the request: use the same wasmrun on both sides")]
    Malformed,
    /// Something broke.
    #[error("the peer could not read these bytes: ask another holder")]
    Failed,
}

/// The checksum of bytes that go over bulk streams: CRC-32, as in Ethernet.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

impl BulkRefusal {
    const ALL: [Self; 4] = [Self::NotHere, Self::Busy, Self::Malformed, Self::Failed];

    fn code(self) -> u8 {
        match self {
            Self::NotHere => 1,
            Self::Busy => 2,
            Self::Malformed => 3,
            Self::Failed => 4,
        }
    }

    fn of(code: u8) -> Self {
        let known = Self::ALL.into_iter().find(|why| why.code() == code);
        // One that a later version has.
        known.unwrap_or(Self::Failed)
    }
}
