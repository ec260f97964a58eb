//! What owners of groups and nodes tell each other.
//!
//! Owns the messages and what they name. Must not: send them.
//!
//! Invariant: a message names one [`ReservationId`], or a group and the round from which on it has another owner.

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

    /// The round with which somebody becomes the group's owner who is the `takeovers`-th to do so: higher than all of
    /// owners before, of which each has less than 2^32 plans.
    #[must_use]
    pub const fn of_takeover(takeovers: u32) -> Self {
        Self((takeovers as u64) << 32)
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

/// A message about a placement group. Between two incarnations of nodes all of them arrive, once and in order, or one of the
/// nodes is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupMessage {
    /// From the owner to a node.
    Request(GroupRequest),
    /// From a node to the owner.
    Answer(GroupAnswer),
}

impl GroupMessage {
    /// The group that it is about.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Request(request) => request.group(),
            Self::Answer(answer) => answer.group(),
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

/// What an owner asks of a node.
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
    /// Give the bundle back, if it is reserved by this round or an older one. What runs in it is killed. Rolls back and
    /// removes alike (as in Ray). Answered by `Removed`.
    Remove(ReservationId),
    /// The sender has taken the group over and owns it from this round on: which bundles of it can be used there? They
    /// stay, and what runs in them; what is not committed is given back. Who owned it before is not heard any more.
    /// Answered by `Holds`.
    Claim {
        /// The group.
        group: GroupId,
        /// The first round of its new owner.
        from: Round,
    },
}

impl GroupRequest {
    /// The group that it is about.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Prepare { id, .. } | Self::Commit(id) | Self::Remove(id) => id.group,
            Self::Claim { group, .. } => *group,
        }
    }
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupAnswer {
    /// The bundle is reserved.
    Prepared(ReservationId),
    /// The bundle is not reserved.
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
    /// Nothing is reserved for this round, or one before it.
    Removed(ReservationId),
    /// To a claim: these bundles can be used here, and no others are reserved that will be.
    Holds {
        /// The group.
        group: GroupId,
        /// The round that was claimed.
        from: Round,
        /// Each bundle's number and round.
        bundles: Vec<(u32, Round)>,
    },
}

impl GroupAnswer {
    /// The group that it is about.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Holds { group, .. } => *group,
            Self::Prepared(id) | Self::Committed(id) | Self::Gone(id) | Self::Removed(id) => {
                id.group
            }
            Self::Refused { id, .. } => id.group,
        }
    }

    /// The reservation that it is about, if it is about one.
    pub fn id(&self) -> Option<ReservationId> {
        match self {
            Self::Prepared(id) | Self::Committed(id) | Self::Gone(id) | Self::Removed(id) => {
                Some(*id)
            }
            Self::Refused { id, .. } => Some(*id),
            Self::Holds { .. } => None,
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
    /// There is a newer round.
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
        let (group, from) = (id.group, Round::of_takeover(3));
        let messages: [GroupMessage; 11] = [
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
            GroupRequest::Claim { group, from }.into(),
            GroupAnswer::Holds {
                group,
                from,
                bundles: vec![(0, Round(7)), (255, from.next())],
            }
            .into(),
        ];
        for message in messages {
            assert_eq!(message.group(), id.group);
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
