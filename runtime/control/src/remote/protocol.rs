//! What is said between a remote store and its server.
//!
//! Owns the messages; their bytes are postcard's, in frames of the link. Must not: do I/O. A change to these
//! types raises the version of the cluster's protocol.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::embedded::{Answer, Mutation, RequestId};
use crate::error::Error;
use crate::types::{
    Changes, Entry, LeaseId, MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_OPS, Page, Range, Revision,
};

/// No message is longer than this, in bytes: the largest transaction, with what each of its parts may
/// add. A link must carry it.
pub const MAX_MESSAGE_BYTES: usize = MAX_TXN_BYTES + MAX_TXN_OPS * (MAX_KEY_BYTES + 64);

/// What a remote store asks. Has one [`Response`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To read a key.
    Get(Bytes),
    /// To read a page of keys.
    Range(Range),
    /// To change something. The id makes it happen once; without one it must be harmless twice.
    Change(Option<RequestId>, Mutation),
    /// To begin a lease's time anew.
    KeepAlive(LeaseId),
    /// To say which revision the store has reached.
    Revision,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// To `Get`.
    Entry(Option<Entry>),
    /// To `Range`.
    Page(Page),
    /// To `Change`.
    Answer(Answer),
    /// To `KeepAlive`.
    Alive,
    /// To `Revision`.
    Revision(Revision),
    /// To any: it was not done.
    Failed(Error),
}

/// Asks for a stream of [`WatchMessage`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRequest {
    /// What the keys begin with.
    pub prefix: Bytes,
    /// The first revision that counts; zero for from now on.
    pub from: Revision,
}

/// One message of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchMessage {
    /// The watch has begun, or has moved on without changes: all below this revision was said.
    Position(Revision),
    /// Changes of the next revision that has some.
    Changes(Changes),
    /// There will be no more.
    Ended(Error),
}

/// What the fuzz target `control_wire` does: bytes as any of the messages. Whatever can be decoded can be
/// encoded and is then the same.
///
/// # Panics
/// When that is not so.
pub fn fuzz(data: &[u8]) {
    fn try_as<T>(data: &[u8])
    where
        T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug,
    {
        if let Ok(message) = postcard::from_bytes::<T>(data) {
            let bytes = postcard::to_allocvec(&message).expect("it has an encoding");
            let again: T = postcard::from_bytes(&bytes).expect("what we wrote can be read");
            assert_eq!(message, again);
        }
    }
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => try_as::<Request>(data),
        1 => try_as::<Response>(data),
        2 => try_as::<WatchRequest>(data),
        _ => try_as::<WatchMessage>(data),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{Op, Txn};

    #[test]
    fn a_request_has_these_bytes() {
        let txn = Txn::of([Op::put("k", "v")]);
        let request = Request::Change(None, Mutation::Txn(txn));
        let bytes = postcard::to_allocvec(&request).unwrap();
        assert_eq!(bytes, b"\x02\x00\x00\x00\x01\x01\x01k\x01v\x00\x00");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(data in prop::collection::vec(any::<u8>(), 0..64)) {
            fuzz(&data);
        }

        /// Small numbers are variants and lengths, so these get further in.
        #[test]
        fn nor_small_numbers(data in prop::collection::vec(0..8_u8, 0..64)) {
            fuzz(&data);
        }
    }
}
