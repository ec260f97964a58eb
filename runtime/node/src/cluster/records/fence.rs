//! Makes a transaction at most once, however often it is sent.
//!
//! Owns a key of this node that says which transaction was made last through the fence, in which incarnation. Each one
//! demands that the key says what it said before, and that the node is registered under the lease of the incarnation
//! that sends it. So one that was given up and arrives late changes nothing after the next one, or in another incarnation;
//! and a sender without an answer learns from the key whether it was made, also in a later incarnation. Must not: be used for two transactions at the same time.
//!
//! Invariant: once [`Fence::attempt`] has said what became of a transaction, no copy of it is made any more.

use std::sync::Arc;

use bytes::Bytes;
use wasmrun_control::{Condition, Entry, Error, LeaseId, Op, OpReply, Txn, TxnReply, records};

use super::Standing;

/// What came of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tried {
    /// It is made by this try. What its steps answered.
    Made(Vec<OpReply>),
    /// It was made by a try before this one, maybe in an earlier incarnation.
    MadeBefore,
    /// Something that it compares is otherwise: it is not made, and will not be.
    Otherwise,
    /// This node is not registered under this lease: it will not be made in this incarnation any more.
    NotRegistered,
}

/// See the module.
pub(super) struct Fence {
    cluster: Arc<dyn Standing>,
    key: Bytes,
    /// The incarnation that the rest is of.
    lease: Option<LeaseId>,
    /// What the key says, if it is there.
    last: Option<Bytes>,
    /// How many were made in this incarnation.
    count: u64,
    /// What the key says if that was made of which nobody has heard.
    pending: Option<Bytes>,
}

impl Fence {
    pub(super) fn new(cluster: Arc<dyn Standing>, what: impl std::fmt::Display) -> Self {
        let key = records::fence(cluster.id(), what);
        Self {
            cluster,
            key,
            lease: None,
            last: None,
            count: 0,
            pending: None,
        }
    }

    /// The next transaction is another than the last one.
    pub(super) fn begin(&mut self) {
        self.pending = None;
    }

    /// Whether the transaction may have been made without anybody having heard of it.
    pub(super) fn is_unsure(&self) -> bool {
        self.pending.is_some()
    }

    /// Tries to make a transaction in the incarnation of this lease. After [`Error::Uncertain`] the same one is to be
    /// tried until something else is said.
    ///
    /// # Errors
    /// When the store does not do it, or does not know whether it did.
    pub(super) async fn attempt(&mut self, lease: LeaseId, txn: &Txn) -> Result<Tried, Error> {
        if self.lease != Some(lease) && self.begin_incarnation(lease).await? {
            return Ok(Tried::MadeBefore);
        }
        loop {
            let made = self.next("made");
            let reply = self.send(lease, txn.clone(), &made, true).await?;
            if reply.succeeded {
                self.moved(made);
                return Ok(Tried::Made(reply.replies));
            }
            let mut there = reply.replies.into_iter().map(entry_of);
            let node = there.next().flatten();
            if node.and_then(|entry| entry.lease) != Some(lease) {
                return Ok(Tried::NotRegistered);
            }
            let said = there.next().flatten().map(|entry| entry.value);
            let left_out = self.next("left out");
            if said.as_ref() == Some(&made) {
                self.moved(made);
                return Ok(Tried::MadeBefore);
            }
            if said.as_ref() == Some(&left_out) {
                // It was given up below, and that was not heard.
                self.moved(left_out);
                continue;
            }
            if !self.is_unsure() {
                return Ok(Tried::Otherwise);
            }
            // It is otherwise now, and may not be when a copy of it arrives.
            let reply = self.send(lease, Txn::default(), &left_out, false).await?;
            if reply.succeeded {
                self.moved(left_out);
                return Ok(Tried::Otherwise);
            }
        }
    }

    /// Nothing is made any more in the incarnations before, as this one is registered. Whether what was pending was.
    async fn begin_incarnation(&mut self, lease: LeaseId) -> Result<bool, Error> {
        let entry = self.cluster.store().get(&self.key).await?;
        self.last = entry.map(|entry| entry.value);
        (self.lease, self.count) = (Some(lease), 0);
        let pending = self.pending.take();
        Ok(pending.is_some() && pending == self.last)
    }

    /// What the key says after the next one.
    fn next(&self, how: &str) -> Bytes {
        let lease = self.lease.map_or(0, |lease| lease.0);
        format!("{lease:x} {} {how}", self.count + 1).into()
    }

    fn moved(&mut self, said: Bytes) {
        self.last = Some(said);
        self.count += 1;
        self.pending = None;
    }

    async fn send(
        &mut self,
        lease: LeaseId,
        txn: Txn,
        next: &Bytes,
        is_pending: bool,
    ) -> Result<TxnReply, Error> {
        let node = records::node(self.cluster.id());
        let is_last = match &self.last {
            None => Condition::Absent,
            Some(last) => Condition::Value(last.clone()),
        };
        let mut fenced = txn
            .and(node.clone(), Condition::Lease(lease))
            .and(self.key.clone(), is_last)
            .then(Op::put(self.key.clone(), next.clone()));
        fenced.otherwise = vec![Op::get(node), Op::get(self.key.clone())];
        let reply = self.cluster.store().txn(fenced).await;
        if is_pending && matches!(reply, Err(Error::Uncertain { .. })) {
            self.pending = Some(next.clone());
        }
        reply
    }
}

fn entry_of(reply: OpReply) -> Option<Entry> {
    match reply {
        OpReply::Got(entry) => entry,
        OpReply::Put | OpReply::Deleted(_) => None,
    }
}
