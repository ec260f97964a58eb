//! What owners of groups and nodes tell each other.
//!
//! Owns the messages and what they name. Must not: send them.
//!
//! Invariant: a message names one [`ReservationId`], and its meaning does not depend on the order
//! in which messages arrive, nor on how often this one does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::GroupId;
use crate::resource::{Infeasibility, Request, Shortage};

/// Which try of a group it is, from 1: higher for every plan of it. What is of an older round is
/// stale.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Round(pub u64);

impl Round {
    /// The round after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One try to reserve one bundle on the node that a message goes to or comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReservationId {
    /// The group.
    pub group: GroupId,
    /// The number of the bundle in it.
    pub bundle: u32,
    /// The try.
    pub round: Round,
}

/// A message about a placement group. It may be lost, doubled, late and out of order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupMessage {
    /// From the owner to a node.
    Request(GroupRequest),
    /// From a node to the owner.
    Answer(GroupAnswer),
}

impl GroupMessage {
    /// What it is about.
    pub fn id(&self) -> ReservationId {
        match self {
            Self::Request(request) => request.id(),
            Self::Answer(answer) => answer.id(),
        }
    }
}

impl From<GroupRequest> for GroupMessage {
    fn from(request: GroupRequest) -> Self {
        Self::Request(request)
    }
}

impl From<GroupAnswer> for GroupMessage {
    fn from(answer: GroupAnswer) -> Self {
        Self::Answer(answer)
    }
}

/// What an owner asks of a node. Repeated until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRequest {
    /// Reserve a bundle. Answered by `Prepared` or `Refused`.
    Prepare {
        /// The reservation.
        id: ReservationId,
        /// What the bundle has.
        bundle: Request,
    },
    /// All bundles are prepared: tasks may run in this one. Answered by `Committed` or `Gone`.
    Commit(ReservationId),
    /// Give the bundle back, if it is reserved by this round or an older one; and refuse those
    /// rounds from now on. What runs in it is killed. Rolls back and removes alike (as in Ray).
    /// Answered by `Removed`.
    Remove(ReservationId),
}

impl GroupRequest {
    /// What it is about.
    pub fn id(&self) -> ReservationId {
        match self {
            Self::Prepare { id, .. } | Self::Commit(id) | Self::Remove(id) => *id,
        }
    }
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupAnswer {
    /// The bundle is reserved. Repeated until a commit or remove comes.
    Prepared(ReservationId),
    /// The bundle is not reserved, and this round of it never will be.
    Refused {
        /// The reservation.
        id: ReservationId,
        /// Why.
        why: Refusal,
    },
    /// Tasks may run in the bundle.
    Committed(ReservationId),
    /// There is no such reservation to commit (any more).
    Gone(ReservationId),
    /// Nothing is reserved for this round, nor will be.
    Removed(ReservationId),
}

impl GroupAnswer {
    /// What it is about.
    pub fn id(&self) -> ReservationId {
        match self {
            Self::Prepared(id) | Self::Committed(id) | Self::Gone(id) | Self::Removed(id) => *id,
            Self::Refused { id, .. } => *id,
        }
    }

    /// What to tell a node whose answer is about a group that nobody knows here, or about a
    /// reservation that its group does not want (any more): to give it back, if it holds it.
    pub fn reply_to_stray(&self) -> Option<GroupRequest> {
        match self {
            Self::Prepared(id) | Self::Committed(id) => Some(GroupRequest::Remove(*id)),
            Self::Refused { .. } | Self::Gone(_) | Self::Removed(_) => None,
        }
    }
}

/// Why a node did not reserve a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Not enough is free now.
    #[error(transparent)]
    Unavailable(Shortage),
    /// It never fits this node, as the node is.
    #[error(transparent)]
    Infeasible(Infeasibility),
    /// The round was removed, or there is a newer one.
    #[error("this round of the bundle is over")]
    Stale,
    /// The node still has to give an earlier reservation of the same bundle back.
    #[error("tasks still run in an earlier reservation of this bundle; they are being ended")]
    Ending,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceName;

    #[test]
    fn messages_travel() {
        let id = ReservationId {
            group: GroupId::from_bytes([7; 16]),
            bundle: 3,
            round: Round(300),
        };
        let bundle: Request = serde_json::from_str(r#"{"CPU": 2, "tpu": "1.5"}"#).unwrap();
        let why = Refusal::Unavailable(Shortage::Units {
            name: ResourceName::GPU,
            needs: crate::resource::Amount::ONE,
            free: 0,
        });
        let messages: [GroupMessage; 9] = [
            GroupRequest::Prepare { id, bundle }.into(),
            GroupRequest::Commit(id).into(),
            GroupRequest::Remove(id).into(),
            GroupAnswer::Prepared(id).into(),
            GroupAnswer::Refused { id, why }.into(),
            GroupAnswer::Refused {
                id,
                why: Refusal::Stale,
            }
            .into(),
            GroupAnswer::Committed(id).into(),
            GroupAnswer::Gone(id).into(),
            GroupAnswer::Removed(id).into(),
        ];
        for message in messages {
            assert_eq!(message.id(), id);
            let bytes = postcard::to_allocvec(&message).unwrap();
            assert_eq!(
                postcard::from_bytes::<GroupMessage>(&bytes).unwrap(),
                message
            );
            for end in 0..bytes.len() {
                assert!(postcard::from_bytes::<GroupMessage>(&bytes[..end]).is_err());
            }
        }
    }
}
