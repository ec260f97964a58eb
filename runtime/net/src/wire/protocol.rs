//! The types of the messages that two sides exchange.
//!
//! Owns the rules for how they may change. Must not: know what becomes of them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hello::Version;

/// The messages that two sides exchange.
///
/// Messages are postcard, which says nothing about itself: a reader must have the very type that was written. So
/// a variant may be added to an enum, behind the others, and that is all that a minor version may do. A message that is
/// to have another field becomes a new variant beside the old one. What is new says with which minor number it came, and
/// is not sent to a peer that speaks an older one: [`Peer::send`](crate::Peer::send) and the others refuse it, and
/// [`Peer::speaks`](crate::Peer::speaks) says beforehand which of the two to send. What came with an earlier version than
/// ours may be sent to all.
pub trait Protocol: Send + Sync + 'static {
    /// The version of these types. Raise the minor number when a message is added, the major one when
    /// an old one changes.
    const VERSION: Version;
    /// Sent without an answer, in order.
    type OneWay: Serialize + DeserializeOwned + Send + 'static;
    /// Has one [`Self::Response`].
    type Request: Serialize + DeserializeOwned + Send + 'static;
    /// Answers a [`Self::Request`].
    type Response: Serialize + DeserializeOwned + Send + 'static;
    /// Asks for bytes in bulk.
    type Bulk: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The minor number of the version that this message came with, and all that is in it.
    fn one_way_since(_message: &Self::OneWay) -> u16 {
        0
    }

    /// As [`Self::one_way_since`].
    fn request_since(_request: &Self::Request) -> u16 {
        0
    }

    /// As [`Self::one_way_since`]. A service asks [`Peer::speaks`](crate::Peer::speaks) before it gives what is new; if it gives
    /// that nevertheless, the response is lost.
    fn response_since(_response: &Self::Response) -> u16 {
        0
    }

    /// As [`Self::one_way_since`].
    fn bulk_since(_request: &Self::Bulk) -> u16 {
        0
    }
}
