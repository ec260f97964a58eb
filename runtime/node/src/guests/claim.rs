//! Claims to names of actors, in the whole cluster.
//!
//! Owns the record of a claim, and what those who want a name and those who have it say. Must not: know the store that has
//! the records, or how others are asked.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmrun_control::records::{Form, Record};
use wasmrun_control::{Error, LeaseId};
use wasmrun_model::id::{ActorId, Digest, NodeId, TaskId};
use wasmrun_model::task::Attempt;

use crate::records::actor::ActorCell;
use crate::records::actor_ref::ActorRef;

/// Who has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The node where the actor was created.
    pub(crate) owner: NodeId,
    pub(crate) actor: ActorId,
    /// Its class, by its full name. For people who look into the store, as is the module.
    pub(crate) class: String,
    module: Digest,
    /// The attempt of a task that has created it, if one has.
    creator: Option<(TaskId, Attempt)>,
}

impl Record for Claim {
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

impl Claim {
    /// The claim of an actor that this node owns.
    pub(crate) fn of(owner: NodeId, actor: &ActorCell) -> Self {
        Self {
            owner,
            actor: actor.id,
            class: actor.face.class.clone(),
            module: actor.job().module.digest(),
            creator: actor.creator.map(|it| (it.task, it.attempt)),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test(owner: NodeId, actor: ActorId) -> Self {
        Self {
            owner,
            actor,
            class: "sample:app/app#tally".into(),
            module: Digest::from_bytes([3; 32]),
            creator: None,
        }
    }

    /// Whether what has made `this` has made the other one in an earlier attempt, so that it is on its way out.
    pub(crate) fn is_of_earlier_attempt(&self, this: &Self) -> bool {
        match (self.creator, this.creator) {
            (Some((task, attempt)), Some((this, later))) => task == this && attempt < later,
            _ => false,
        }
    }

    /// It as a value in the store.
    pub(crate) fn to_value(&self) -> Bytes {
        Record::to_value(self)
    }
}

/// Who wants a name for an actor.
#[async_trait]
pub(crate) trait Wants: Send + Sync {
    /// Whether the name is kept for the actor at this node. As long as it is, a claim of this node's that is another
    /// actor's is over.
    fn is_wanted(&self) -> bool;

    /// Asks the node that has claimed the name whether it is still taken. `None` if that node is not there, as far as is
    /// known here: then it is tried again.
    async fn is_held(&self, by: &Claim) -> Option<bool>;

    /// This is why it takes longer.
    fn waits_for(&self, what: WaitsFor);
}

/// Why a name takes longer to be claimed.
#[derive(Debug, Clone)]
pub(crate) enum WaitsFor {
    /// The control store does not do it now.
    Store(Error),
    /// The node that has the name has not answered yet.
    Owner(NodeId),
}

/// What came of wanting a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is claimed, under this lease.
    Ours(LeaseId),
    /// Another actor has it.
    Taken(Claim),
    /// It is not wanted any more.
    Unwanted,
}

/// What the owner of a name says.
pub(crate) enum Sought {
    /// It is this actor's.
    Actor(ActorRef),
    /// It is the actor's that has claimed it, which is not to be found (yet), or was not asked for.
    Claimant,
    /// It is nobody's any more.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(creator: Option<(u8, u32)>) -> Claim {
        Claim {
            owner: NodeId::from_bytes([1; 16]),
            actor: ActorId::from_bytes([2; 16]),
            class: "sample:app/app#tally".into(),
            module: Digest::from_bytes([3; 32]),
            creator: creator.map(|(task, n)| (TaskId::from_bytes([task; 16]), Attempt::new(0, n))),
        }
    }

    #[test]
    fn a_claim_reads_as_it_was_written() {
        for claim in [claim(None), claim(Some((7, 2)))] {
            assert_eq!(Claim::from_value(&claim.to_value()), Ok(claim));
        }
        assert!(Claim::from_value(b"j\x01{}").is_err());
    }

    #[test]
    fn only_a_later_attempt_of_the_same_task_may_take_a_name_over() {
        let first = claim(Some((7, 1)));
        assert!(first.is_of_earlier_attempt(&claim(Some((7, 2)))));
        for other in [None, Some((7, 1)), Some((8, 2))] {
            assert!(!first.is_of_earlier_attempt(&claim(other)), "{other:?}");
        }
        assert!(!claim(None).is_of_earlier_attempt(&claim(Some((7, 2)))));
    }
}
