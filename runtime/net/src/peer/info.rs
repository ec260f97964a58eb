//! What is known of a peer and of its connections, as it is told to others.
//!
//! Must not: change anything.

use std::net::SocketAddr;

use wasmrun_model::id::{Incarnation, NodeId};

use crate::wire::hello::Version;
use crate::wire::{ConnectError, Lost};

/// Who and what a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Who.
    pub id: NodeId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// The version that is spoken with it.
    pub version: Version,
    /// Its version of wasmrun, as it calls it.
    pub software: String,
    /// Where it says it can be dialled.
    pub addresses: Vec<SocketAddr>,
    /// Where this connection comes from or goes to.
    pub remote: SocketAddr,
}

/// How it is with a peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// There is a connection.
    pub(crate) info: Option<PeerInfo>,
    /// Why the last one was lost.
    pub(crate) lost: Option<Lost>,
    /// Why the last attempt to dial failed.
    pub(crate) error: Option<ConnectError>,
    pub(crate) is_closed: bool,
}

/// What has gone over all connections with a peer, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many connections there were.
    pub connections: u64,
    /// One-way messages of this incarnation of the peer that came.
    pub messages_received: u64,
    /// One-way messages that were taken to be sent, in this incarnation of the peer.
    pub messages_sent: u64,
    /// Bytes of datagrams that came.
    pub bytes_received: u64,
    /// Bytes of datagrams that were sent.
    pub bytes_sent: u64,
}

/// How much has gone over a connection. A peer that lives answers all that comes: one that is sent to and sends nothing is
/// gone, or cannot be reached. That shows long before the connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Which connection: it differs from that of any other with the peer.
    pub connection: u64,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that came.
    pub received: u64,
}
