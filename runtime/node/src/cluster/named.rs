//! Names of actors in the control store: who has which, in the whole cluster.
//!
//! Owns the record and its changes, by compare-and-swap. A name is under the lease of the node that has claimed it, and
//! so free again when that is lost. Must not: know which actors live; whoever wants a name that another has ([`Wants`])
//! asks that node.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use wasmrun_control::records::{self, Record};
use wasmrun_control::{Condition, Error, LeaseId, Op, OpReply, Txn};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::NodeId;

use super::Cluster;
use super::records::Standing;
use crate::guests::claim::{Claim, Settled, WaitsFor, Wants};
use crate::guests::others::Directory;

/// A claim as it is in the store.
#[derive(Debug, Clone)]
struct StoredClaim {
    claim: Claim,
    value: Bytes,
}

/// How soon the store, or a node, is asked again that has not answered.
const AGAIN: Duration = Duration::from_millis(100);

/// What came of claiming a name once.
#[derive(Debug)]
enum Claimed {
    /// It is claimed, under this lease.
    Ours(LeaseId),
    /// Somebody else has it, or had it.
    Taken(StoredClaim),
}

#[async_trait]
impl Directory for Cluster {
    fn name_of(&self, node: NodeId) -> String {
        self.name_of(node)
    }

    fn lease(&self) -> Option<LeaseId> {
        self.lease()
    }

    async fn claim(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        wants: &dyn Wants,
    ) -> Result<Settled, Error> {
        claim_at(self, records::named(tenant, name), claim, wants).await
    }

    async fn claim_of(&self, tenant: &TenantName, name: &str) -> Result<Option<Claim>, Error> {
        let entry = self.store.get(&records::named(tenant, name)).await?;
        entry.map(|entry| decode_claim(&entry.value)).transpose()
    }

    async fn unclaim(&self, tenant: &TenantName, name: &str, claim: &Bytes) {
        unclaim_at(self, records::named(tenant, name), claim).await;
    }
}

impl Cluster {
    /// A node by the name that people know it by, if it is known here.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        match self.members.name(node) {
            Some(name) => name.to_string(),
            None => node.to_string(),
        }
    }
}

/// As [`Directory::claim`], for any node, and by the key of the name.
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
    over: Option<StoredClaim>,
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
            let claim = decode_claim(&entry.value)?;
            let value = entry.value;
            return Ok(Claimed::Taken(StoredClaim { claim, value }));
        }
        if entry.lease == Some(lease) {
            return Ok(Claimed::Ours(lease));
        }
        // Of an earlier incarnation of this node, whose lease has not expired yet.
        condition = Condition::Value(entry.value);
    }
}

fn decode_claim(value: &[u8]) -> Result<Claim, Error> {
    Claim::from_value(value).map_err(|error| Error::Invalid {
        why: error.to_string(),
    })
}

fn no_lease() -> Error {
    Error::Unavailable {
        why: "this node has lost its lease, and is about to begin a new incarnation".into(),
    }
}
