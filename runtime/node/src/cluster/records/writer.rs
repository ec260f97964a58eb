//! Who writes this node's records down.
//!
//! Owns the retries. Must not: write anything that an incarnation of this node has begun when
//! another node may have taken it over since.
//!
//! Invariants: each transaction holds only for the incarnation, by its lease, in which it was sent, however late it
//! arrives, and is made once ([`Fence`]). What was made in an incarnation that is over, without an answer, is not made
//! again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmrun_control::{Condition, Error, MAX_TXN_OPS, Op, OpReply, Txn};
use wasmrun_model::id::NodeId;

use super::fence::{Fence, Tried};
use super::queue::{Change, Queue, Write};
use super::{RecordId, Standing, Written, owners};
use crate::guests::counters::Counter;

/// How soon something is tried again that the store did not do.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// How far the changes of a node have come.
pub(super) struct State<I> {
    pub(super) queue: Mutex<Queue<I>>,
    /// The store did not do what it was asked for last.
    pub(super) is_silent: AtomicBool,
    /// Changes that were made.
    pub(super) written: Counter,
    /// Changes that the store has refused, or that there was no room for.
    pub(super) failed: Counter,
    /// Records that were another node's.
    pub(super) taken_over: Counter,
}

impl<I> Default for State<I> {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            is_silent: AtomicBool::default(),
            written: Counter::default(),
            failed: Counter::default(),
            taken_over: Counter::default(),
        }
    }
}

/// What came of some changes.
#[derive(Clone)]
enum Made<I> {
    /// They are made. These are another node's by now, or still.
    Done(HashSet<I>),
    /// One of them at least is of a record that is not this node's.
    Otherwise,
    /// The store will not make them.
    Refused(String),
}

/// Who writes.
pub(super) struct Writer<I> {
    fence: Fence,
    cluster: Arc<dyn Standing>,
    state: Arc<State<I>>,
}

impl<I: RecordId> Writer<I> {
    pub(super) fn new(cluster: Arc<dyn Standing>, state: Arc<State<I>>) -> Self {
        let fence = Fence::new(cluster.clone(), format_args!("{}written", I::PREFIX));
        Self {
            fence,
            cluster,
            state,
        }
    }

    /// Writes what waits, each time that it is woken, until the [`Records`](super::Records) are dropped.
    pub(super) async fn run(mut self, mut woken: mpsc::Receiver<()>) {
        while woken.recv().await.is_some() {
            loop {
                let batch = self.state.queue.lock().take();
                if batch.is_empty() {
                    break;
                }
                self.write(batch).await;
            }
        }
    }

    async fn write(&mut self, batch: Vec<Write<I>>) {
        let count = batch.len();
        let made = self.make(&batch).await;
        for write in batch {
            let made = match &made {
                // One of them is not as it should be: which?
                Made::Otherwise | Made::Refused(_) if count > 1 => {
                    let one = std::slice::from_ref(&write);
                    self.make(one).await
                }
                made => made.clone(),
            };
            let written = match made {
                Made::Done(others) if others.contains(&write.id) => Written::Taken,
                Made::Done(_) => Written::Done,
                Made::Otherwise => Written::Taken,
                Made::Refused(why) => Written::Refused(why),
            };
            match &written {
                Written::Done => self.state.written.add(1),
                Written::Refused(_) => self.state.failed.add(1),
                Written::Taken => {}
            }
            self.state.queue.lock().finished(&write.id);
            let _ = write.done.send(written);
        }
    }

    /// Makes all changes or none. Tries until the store says something.
    async fn make(&mut self, batch: &[Write<I>]) -> Made<I> {
        self.fence.begin();
        let me = self.cluster.id();
        let txn = batch.iter().fold(Txn::default(), |txn, write| {
            write.add_to(txn, write.id.key(me))
        });
        loop {
            match self.attempt(&txn).await {
                Ok(Tried::Made(replies)) => {
                    // What was not there to be deleted may be where it was taken over.
                    let is_missing = |at: usize| replies.get(at) == Some(&OpReply::Deleted(false));
                    let missing = batch.iter().enumerate().filter(|(at, _)| is_missing(*at));
                    let missing: Vec<_> = missing.map(|(_, write)| write).collect();
                    return match missing.is_empty() {
                        true => self.made(HashSet::new()),
                        false => self.look_at(batch, &missing).await,
                    };
                }
                Ok(Tried::MadeBefore) => {
                    let is_deleted = |it: &&Write<I>| matches!(it.change, Change::Delete);
                    let deleted: Vec<_> = batch.iter().filter(is_deleted).collect();
                    return self.look_at(batch, &deleted).await;
                }
                Ok(Tried::Otherwise) => {
                    self.state.is_silent.store(false, Ordering::Release);
                    return Made::Otherwise;
                }
                Ok(Tried::NotRegistered) => self.wait("this node is not registered there").await,
                Err(error @ Error::Uncertain { .. }) => self.wait(error).await,
                Err(error) if error.is_retryable() => self.wait(error).await,
                Err(error) => return Made::Refused(error.to_string()),
            }
        }
    }

    async fn attempt(&mut self, txn: &Txn) -> Result<Tried, Error> {
        match self.cluster.lease() {
            Some(lease) => self.fence.attempt(lease, txn).await,
            None => Ok(Tried::NotRegistered),
        }
    }

    /// The store has not done it: waits to try again.
    async fn wait(&self, why: impl std::fmt::Display) {
        if !self.state.is_silent.swap(true, Ordering::AcqRel) {
            tracing::warn!(error = %why, "records of {} wait for the control store", I::NAME);
        }
        self.cluster.clock().sleep(AGAIN).await;
    }

    /// All is made, and these are another node's.
    fn made(&self, others: HashSet<I>) -> Made<I> {
        self.state.is_silent.store(false, Ordering::Release);
        Made::Done(others)
    }

    /// All is made. Of these that were deleted, and of all that was put, it must be seen whose they are now: another node
    /// may have taken them over, since they were made or before.
    async fn look_at(&self, batch: &[Write<I>], deleted: &[&Write<I>]) -> Made<I> {
        let mut others = HashSet::new();
        for write in deleted {
            let is_gone = loop {
                match self.is_gone(write.id).await {
                    Ok(is_gone) => break is_gone,
                    Err(error) => self.wait(error).await,
                }
            };
            if !is_gone {
                others.insert(write.id);
            }
        }
        // At last, and all at once: that may have taken longer than this node has lived.
        loop {
            match self.taken_of(batch).await {
                Ok(taken) => others.extend(taken),
                Err(error) => {
                    self.wait(error).await;
                    continue;
                }
            }
            return self.made(others);
        }
    }

    /// What was put and is not this node's any more.
    async fn taken_of(&self, batch: &[Write<I>]) -> Result<Vec<I>, Error> {
        let put = batch
            .iter()
            .filter(|it| !matches!(it.change, Change::Delete));
        let put: Vec<I> = put.map(|write| write.id).collect();
        if put.is_empty() {
            return Ok(put);
        }
        let me = self.cluster.id();
        let txn = Txn::of(put.iter().map(|id| Op::get(id.key(me))));
        let replies = self.cluster.store().txn(txn).await?.replies;
        let is_there = |reply: &OpReply| matches!(reply, OpReply::Got(Some(_)));
        let both = put.into_iter().zip(&replies);
        Ok(both
            .filter(|(_, reply)| !is_there(reply))
            .map(|(id, _)| id)
            .collect())
    }

    /// Whether what was deleted is nobody's.
    async fn is_gone(&self, id: I) -> Result<bool, Error> {
        let (me, store) = (self.cluster.id(), self.cluster.store());
        let mut looked_at = BTreeSet::new();
        loop {
            let before = looked_at.len();
            looked_at.extend(owners::<I>(store).await?);
            looked_at.extend(self.cluster.others());
            // This node may have taken it over again, too.
            looked_at.insert(me);
            let all: Vec<NodeId> = looked_at.iter().copied().collect();
            for some in all.chunks(MAX_TXN_OPS) {
                let txn = some.iter().fold(Txn::default(), |txn, owner| {
                    txn.and(id.key(*owner), Condition::Absent)
                });
                if !store.txn(txn).await?.succeeded {
                    return Ok(false);
                }
            }
            // Since it was asked who owns something it may have gone to one who owned nothing then.
            if looked_at.len() == before {
                return Ok(true);
            }
        }
    }
}
