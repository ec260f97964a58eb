//! Names of actors in the control store: who has which, in the whole cluster.
//!
//! Owns the record and its changes, by compare-and-swap. A name is under the lease of the node that has claimed it, and
//! so free again when that is lost. Must not: know which actors live; whoever wants a name that another has ([`Wants`])
//! asks that node.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, Form, Record};
use wasmrun_control::{Condition, Error, LeaseId, Op, OpReply, Txn};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, Digest, NodeId, TaskId};
use wasmrun_model::task::Attempt;

use super::Cluster;
use super::records::Standing;
use crate::actor::ActorCell;

/// Who has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The node where the actor was created.
    pub(crate) owner: NodeId,
    pub(crate) actor: ActorId,
    /// Its class, by its full name. For people who look into the store, as is the module.
    class: String,
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
    pub(super) fn for_test(owner: NodeId, actor: ActorId) -> Self {
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

/// A claim as it is in the store.
#[derive(Debug, Clone)]
struct Known {
    claim: Claim,
    value: Bytes,
}

/// How soon the store, or a node, is asked again that has not answered.
const AGAIN: Duration = Duration::from_millis(100);

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

/// What came of claiming a name once.
#[derive(Debug)]
enum Claimed {
    /// It is claimed, under this lease.
    Ours(LeaseId),
    /// Somebody else has it, or had it.
    Taken(Known),
}

impl Cluster {
    /// Claims a name, as long as it takes, unless another has it.
    ///
    /// # Errors
    /// When the store refuses it.
    pub(crate) async fn claim(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        wants: &dyn Wants,
    ) -> Result<Settled, Error> {
        claim_at(self, records::named(tenant, name), claim, wants).await
    }

    /// Who has a name.
    ///
    /// # Errors
    /// When the store does not say.
    pub(crate) async fn claim_of(
        &self,
        tenant: &TenantName,
        name: &str,
    ) -> Result<Option<Claim>, Error> {
        let entry = self.store.get(&records::named(tenant, name)).await?;
        entry.map(|entry| known(&entry.value)).transpose()
    }

    /// Gives a name up, as long as it takes, if this is still the claim to it.
    pub(crate) async fn unclaim(&self, tenant: &TenantName, name: &str, claim: &Bytes) {
        unclaim_at(self, records::named(tenant, name), claim).await;
    }

    /// A node by the name that people know it by, if it is known here.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        match self.members.name(node) {
            Some(name) => name.to_string(),
            None => node.to_string(),
        }
    }
}

/// As [`Cluster::claim`], for any node, and by the key of the name.
pub(super) async fn claim_at(
    at: &dyn Standing,
    key: Bytes,
    claim: &Claim,
    wants: &dyn Wants,
) -> Result<Settled, Error> {
    // What may be replaced.
    let mut over = None;
    while wants.is_wanted() {
        let other = match claim_once(at, key.clone(), claim, over.take()).await {
            Ok(Claimed::Ours(lease)) => return Ok(Settled::Ours(lease)),
            Ok(Claimed::Taken(other)) => other,
            Err(error) if error.is_retryable() => {
                wants.waits_for(WaitsFor::Store(error));
                at.clock().sleep(AGAIN).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_over = other.claim.owner == at.id() || other.claim.is_of_earlier_attempt(claim);
        if !is_over {
            wants.waits_for(WaitsFor::Owner(other.claim.owner));
            match wants.is_held(&other.claim).await {
                Some(false) => {}
                Some(true) => return Ok(Settled::Taken(other.claim)),
                None => {
                    at.clock().sleep(AGAIN).await;
                    continue;
                }
            }
        }
        over = Some(other);
    }
    Ok(Settled::Unwanted)
}

/// As [`Cluster::unclaim`], for any node, and by the key of the name.
pub(super) async fn unclaim_at(at: &dyn Standing, key: Bytes, claim: &Bytes) {
    let give_up = Txn::when(key.clone(), Condition::Value(claim.clone())).then(Op::delete(key));
    while let Err(error) = at.store().txn(give_up.clone()).await {
        tracing::debug!(%error, "the name of an actor cannot be given up yet");
        at.clock().sleep(AGAIN).await;
    }
}

/// Claims a name, unless another has it; also if `over` has, whose time is known to be over.
///
/// # Errors
/// When the store does not do it, or this node has no lease that lives now. It may have been done nevertheless: to try
/// again is right.
async fn claim_once(
    at: &dyn Standing,
    key: Bytes,
    claim: &Claim,
    over: Option<Known>,
) -> Result<Claimed, Error> {
    let ours = claim.to_value();
    let mut condition = match over {
        Some(over) => Condition::Value(over.value),
        None => Condition::Absent,
    };
    loop {
        let lease = at.lease().ok_or_else(no_lease)?;
        let mut txn = Txn::when(key.clone(), condition);
        txn.then = vec![Op::put_leased(key.clone(), ours.clone(), lease)];
        txn.otherwise = vec![Op::get(key.clone())];
        let reply = match at.store().txn(txn).await {
            // Who reads what is there finds ours, or not.
            Err(Error::Uncertain { .. }) => {
                condition = Condition::Absent;
                continue;
            }
            // Another one is about to be there.
            Err(Error::LeaseLost { .. }) => return Err(no_lease()),
            reply => reply?,
        };
        if reply.succeeded {
            return Ok(Claimed::Ours(lease));
        }
        let Some(OpReply::Got(Some(entry))) = reply.replies.into_iter().next() else {
            // It has gone meanwhile.
            condition = Condition::Absent;
            continue;
        };
        if entry.value != ours {
            let claim = known(&entry.value)?;
            let value = entry.value;
            return Ok(Claimed::Taken(Known { claim, value }));
        }
        if entry.lease == Some(lease) {
            return Ok(Claimed::Ours(lease));
        }
        // From a life of ours whose lease has not ended yet.
        condition = Condition::Value(entry.value);
    }
}

fn known(value: &[u8]) -> Result<Claim, Error> {
    Claim::from_value(value).map_err(|error| Error::Invalid {
        why: error.to_string(),
    })
}

fn no_lease() -> Error {
    Error::Unavailable {
        why: "this node has lost its lease, and is about to begin a new life".into(),
    }
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
        assert!(known(b"j\x01{}").is_err());
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
