//! What nodes of a cluster say to each other.
//!
//! Owns the messages and their version. Must not: know how they travel, or what becomes of them. The order
//! of variants and fields is a layout on the wire: a variant at the end raises the minor number of
//! [`ClusterProtocol::VERSION`] and says so in `one_way_since` or its neighbours, any other change raises the major
//! one; see `docs/decisions/versions.md`. Before the first release it stays as it is: nodes of one cluster are of one
//! build.

use serde::{Deserialize, Serialize};
use wasmrun_control::remote;
use wasmrun_model::gossip;
use wasmrun_net::{Limits, Protocol, SecretKey, Version};

use crate::peers;

/// The longest message, in bytes: the largest of the control store, and room for its neighbours in an
/// answer to a watch.
const MESSAGE_BYTES: usize = 4 << 20;

const _: () = assert!(remote::MAX_MESSAGE_BYTES * 2 < MESSAGE_BYTES);

/// The messages between nodes.
#[derive(Debug)]
pub(crate) struct ClusterProtocol;

impl Protocol for ClusterProtocol {
    const VERSION: Version = Version { major: 1, minor: 0 };
    type OneWay = OneWay;
    type Request = Request;
    type Response = Response;
    type Bulk = peers::Bulk;
}

/// Sent without an answer, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum OneWay {
    /// About tasks and objects.
    Work(peers::OneWay),
    /// About what nodes have and do.
    View(Box<gossip::Message>),
}

/// Has one [`Response`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    /// About tasks and objects.
    Work(peers::Request),
    /// To the control store that the receiver has. `Control`.
    Control(remote::Request),
    /// What changes in it. Answered when there is something, or after a while. `Watched`.
    Watch {
        /// What is watched, and from where.
        watch: remote::WatchRequest,
        /// Whether to answer at once with the position, to say that the watch is possible.
        is_first: bool,
    },
    /// What time is it, by your clock? `Clock`.
    Clock,
    /// The key with which the cluster's secrets are sealed. `SecretKey` or `NotMember`.
    SecretKey,
}

/// Answers a [`Request`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Response {
    /// To `Work`.
    Work(peers::Response),
    /// To `Control`.
    Control(remote::Response),
    /// To `Watch`: what a stream would have brought, in order.
    Watched(Vec<remote::WatchMessage>),
    /// The receiver does not know the sender as a member that lives. Nothing was done.
    NotMember,
    /// The receiver has no control store.
    NoStore,
    /// To `Clock`: in seconds since 1970.
    Clock(u64),
    /// To `SecretKey`: none if the receiver does not have it.
    SecretKey(Option<SecretKey>),
}

/// What peers may take from us.
pub(crate) fn limits() -> Limits {
    Limits {
        message_bytes: MESSAGE_BYTES,
        one_way_bytes: 16 << 20,
        answer_bytes: 32 << 20,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests;
