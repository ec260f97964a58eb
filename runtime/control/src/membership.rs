//! Who is in the cluster: registering a node and declaring it dead, by compare-and-swap.
//!
//! Owns two keys of a node: the one under its lease that says that it lives, with a record of `node`'s in
//! it, and the number of its last incarnation, which stays. Invariants: an incarnation is given once;
//! at most one incarnation of a node lives; only the incarnation that was meant is declared dead.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmrun_model::id::{Incarnation, NodeId};

use crate::error::Error;
use crate::records::{self, Form, Record, RecordError};
use crate::store::ControlStore;
use crate::types::{Condition, LeaseId, Op, Txn};

/// What stands under the key of a node that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member<T> {
    /// Which incarnation of the node this is.
    pub incarnation: Incarnation,
    /// What `node` says of it.
    pub info: T,
}

impl<T: Serialize + for<'de> Deserialize<'de>> Record for Member<T> {
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

#[derive(Serialize, Deserialize)]
struct Last(Incarnation);

impl Record for Last {
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

/// Why a node was not registered or declared dead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error("the entry of node {node} is no such entry")]
    Record {
        /// The node.
        node: NodeId,
        /// What is wrong with it.
        #[source]
        source: RecordError,
    },
}

/// Registers this node under its lease, as a new incarnation: one higher than the last. An entry of an
/// earlier incarnation that has not expired yet is replaced. Where the store does not know whether it did it,
/// an incarnation may be left out.
///
/// # Errors
/// [`Error::LeaseLost`] if the lease has ended: take another.
pub async fn register<T>(
    store: &dyn ControlStore,
    node: NodeId,
    lease: LeaseId,
    info: T,
) -> Result<Incarnation, MembershipError>
where
    T: Serialize + for<'de> Deserialize<'de>,
{
    let counter = records::incarnation(node);
    let mut member = Member {
        incarnation: Incarnation(0),
        info,
    };
    loop {
        let last = store.get(&counter).await?;
        let (condition, number) = match &last {
            None => (Condition::Absent, 0),
            Some(entry) => {
                let Last(last) = read(node, &entry.value)?;
                (Condition::Modified(entry.modified), last.0)
            }
        };
        member.incarnation = Incarnation(number + 1);
        let txn = Txn::when(counter.clone(), condition)
            .then(Op::put(
                counter.clone(),
                Last(member.incarnation).to_value(),
            ))
            .then(Op::put_leased(
                records::node(node),
                member.to_value(),
                lease,
            ));
        match store.txn(txn).await {
            Ok(reply) if reply.succeeded => return Ok(member.incarnation),
            // Somebody was faster, or it was made and the answer lost: with the number after that.
            Ok(_) | Err(Error::Uncertain { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Changes what is said of a node that lives, whoever asks for it. False if it does not live.
///
/// # Errors
/// When the store does not do it. After [`Error::Uncertain`] it may be called again.
pub async fn amend<T>(
    store: &dyn ControlStore,
    node: NodeId,
    change: impl Fn(&mut T) + Send + Sync,
) -> Result<bool, MembershipError>
where
    T: Serialize + for<'de> Deserialize<'de> + Send,
{
    let key = records::node(node);
    loop {
        let Some(entry) = store.get(&key).await? else {
            return Ok(false);
        };
        let mut member: Member<T> = read(node, &entry.value)?;
        change(&mut member.info);
        let unchanged = Condition::Modified(entry.modified);
        let put = Op::Put {
            key: key.clone(),
            value: member.to_value(),
            lease: entry.lease,
        };
        match store.txn(Txn::when(key.clone(), unchanged).then(put)).await {
            Ok(reply) if reply.succeeded => return Ok(true),
            // Somebody was faster, or the node has just died.
            Ok(_) | Err(Error::LeaseLost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The member in a node's entry, as a watch or a range gives it.
///
/// # Errors
/// When it is none.
pub fn member<T>(value: &Bytes) -> Result<Member<T>, RecordError>
where
    T: Serialize + for<'de> Deserialize<'de>,
{
    Member::from_value(value)
}

fn read<R: Record>(node: NodeId, value: &[u8]) -> Result<R, MembershipError> {
    R::from_value(value).map_err(|source| MembershipError::Record { node, source })
}
