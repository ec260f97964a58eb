//! What nodes say to each other about views.
//!
//! Owns the messages. Must not: know when they are sent.

use serde::{Deserialize, Serialize};

use super::body::Body;
use crate::id::{Incarnation, NodeId};

/// What one node says to another about views. May be lost, repeated or overtaken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Views that are new, as far as the sender knows. They are passed on.
    News(Vec<Update>),
    /// Checksums of all that the sender knows, by parts of the cluster; a power of two of them. No answer if
    /// they agree, else a digest of the parts that do not.
    Compare(Vec<Checksum>),
    /// What the sender knows of some nodes. The answer is a repair, if there is anything to say.
    Digest(Vec<ViewVersion>),
    /// The end of a comparison.
    Repair {
        /// What the other side lacked.
        updates: Vec<Update>,
        /// What the sender lacks: it has this and knows or believes that there is more. The answer is a repair.
        wants: Vec<ViewVersion>,
    },
}

/// A checksum of which views are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checksum(pub [u8; 8]);

/// Which view of a node is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewVersion {
    /// The node.
    pub node: NodeId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// The version of its view; 0 if none is known.
    pub version: u64,
    /// The version in which its name or labels changed last; 0 if they are not known.
    pub info_version: u64,
}

/// A view of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// The node.
    pub node: NodeId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// Which of its views this is: higher is newer. From 1.
    pub version: u64,
    /// The version in which its name or labels changed last.
    pub info_version: u64,
    /// The encoded [`NodeInfo`](crate::scheduler::NodeInfo). Left out where the other side probably has it.
    pub info: Option<Body>,
    /// The encoded [`PeerView`](crate::scheduler::PeerView).
    pub view: Body,
}

impl Update {
    /// How long it is in a message, in bytes; a little more than it is.
    pub(super) fn encoded_bytes(&self) -> usize {
        const HEAD: usize = 56;
        let info = self.info.as_ref().map_or(0, |info| info.as_bytes().len());
        HEAD + info + self.view.as_bytes().len()
    }
}
