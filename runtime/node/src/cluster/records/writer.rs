//! Who writes this node's records down.
//!
//! Owns the order of changes and trying them again. Must not: write anything that a life of this node has begun when
//! another node may have taken it over since.
//!
//! Invariants: each transaction holds only for the life, by its lease, in which it was sent, however late it arrives.
//! What may have been made in a life that is over is looked for at all other owners before it is made again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use wasmrun_control::{Condition, Error, LeaseId, MAX_TXN_OPS, Op, OpReply, Txn, records};

use super::{MOST_BYTES, RecordId, Standing, Written, owners};
use crate::counters::Counter;

/// How many records a transaction changes at most.
const MOST_AT_ONCE: usize = 100;
/// How soon something is tried again that the store did not do.
const AGAIN: Duration = Duration::from_millis(200);

/// How far the changes of a node have come.
pub(super) struct State<I> {
    /// How many wait.
    pub(super) waiting: AtomicUsize,
    /// The store did not do what it was asked for last.
    pub(super) is_silent: AtomicBool,
    /// Records that are about to be deleted, and by how many changes.
    pub(super) ending: Mutex<HashMap<I, usize>>,
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
            waiting: AtomicUsize::default(),
            is_silent: AtomicBool::default(),
            ending: Mutex::default(),
            written: Counter::default(),
            failed: Counter::default(),
            taken_over: Counter::default(),
        }
    }
}

/// A change that waits.
pub(super) struct Write<I> {
    pub(super) id: I,
    pub(super) change: Change,
    pub(super) done: oneshot::Sender<Written>,
}

pub(super) enum Change {
    Put(Bytes),
    /// Only where it is there.
    Replace(Bytes),
    Delete,
}

impl<I> Write<I> {
    fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(value) | Change::Replace(value) => 128 + value.len(),
            Change::Delete => 128,
        }
    }

    fn add_to(&self, txn: Txn, key: Bytes) -> Txn {
        match &self.change {
            Change::Put(value) => txn.then(Op::put(key, value.clone())),
            Change::Replace(value) => {
                let put = Op::put(key.clone(), value.clone());
                txn.and(key, Condition::Present).then(put)
            }
            Change::Delete => txn.then(Op::delete(key)),
        }
    }
}

/// What came of one try.
enum Tried {
    Written(Written),
    /// This node is not registered, or not as it was when it began.
    NotRegistered,
}

/// Who writes.
pub(super) struct Writer<I> {
    cluster: Arc<dyn Standing>,
    state: Arc<State<I>>,
}

impl<I: RecordId> Writer<I> {
    pub(super) fn new(cluster: Arc<dyn Standing>, state: Arc<State<I>>) -> Self {
        Self { cluster, state }
    }

    /// Writes what comes, until nothing more can.
    pub(super) async fn run(self, mut writes: mpsc::UnboundedReceiver<Write<I>>) {
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(write) => write,
                None => match writes.recv().await {
                    Some(write) => write,
                    None => return,
                },
            };
            let mut bytes = first.bytes();
            let mut ids = HashSet::from([first.id]);
            let mut batch = vec![first];
            while batch.len() < MOST_AT_ONCE {
                let Ok(write) = writes.try_recv() else {
                    break;
                };
                bytes += write.bytes();
                // A transaction changes a key once.
                if bytes > MOST_BYTES || !ids.insert(write.id) {
                    next = Some(write);
                    break;
                }
                batch.push(write);
            }
            self.write(batch).await;
        }
    }

    async fn write(&self, batch: Vec<Write<I>>) {
        let count = batch.len();
        let mut unsure = None;
        let written = self.make(&batch, &mut unsure).await;
        for write in batch {
            let written = match &written {
                // One of them is not as it should be: which?
                Written::Taken | Written::Refused(_) if count > 1 => {
                    let one = std::slice::from_ref(&write);
                    self.make(one, &mut unsure.clone()).await
                }
                written => written.clone(),
            };
            match &written {
                Written::Done => self.state.written.add(1),
                Written::Refused(_) => self.state.failed.add(1),
                Written::Taken => {}
            }
            self.ended(&write);
            let _ = write.done.send(written);
        }
        self.state.waiting.fetch_sub(count, Ordering::AcqRel);
    }

    fn ended(&self, write: &Write<I>) {
        let mut ending = self.state.ending.lock();
        if let Change::Delete = write.change
            && let Some(count) = ending.get_mut(&write.id)
        {
            *count -= 1;
            if *count == 0 {
                ending.remove(&write.id);
            }
        }
    }

    /// Makes all changes or none. Tries until the store says something. `unsure`: the life in which they may have been
    /// made without an answer.
    async fn make(&self, batch: &[Write<I>], unsure: &mut Option<LeaseId>) -> Written {
        loop {
            let lease = self.cluster.lease();
            let why = match self.attempt(batch, lease, *unsure).await {
                Ok(Tried::Written(written)) => {
                    self.state.is_silent.store(false, Ordering::Release);
                    return written;
                }
                Ok(Tried::NotRegistered) => "this node is not registered there".to_owned(),
                // All of them may be made twice, in one life.
                Err(error @ Error::Uncertain { .. }) => {
                    *unsure = lease;
                    error.to_string()
                }
                Err(error) if error.is_retryable() => error.to_string(),
                Err(error) => return Written::Refused(error.to_string()),
            };
            if !self.state.is_silent.swap(true, Ordering::AcqRel) {
                tracing::warn!(error = %why, "records of {} wait for the control store", I::NAME);
            }
            self.cluster.clock().sleep(AGAIN).await;
        }
    }

    async fn attempt(
        &self,
        batch: &[Write<I>],
        lease: Option<LeaseId>,
        unsure: Option<LeaseId>,
    ) -> Result<Tried, Error> {
        let Some(lease) = lease else {
            return Ok(Tried::NotRegistered);
        };
        let is_over = unsure.is_some_and(|life| life != lease);
        if is_over {
            let elsewhere = self.is_elsewhere(batch).await;
            // Whatever became of the question, it has changed nothing.
            let is_elsewhere = elsewhere.map_err(|error| match error {
                Error::Uncertain { why } => Error::Unavailable { why },
                error => error,
            })?;
            if is_elsewhere {
                return Ok(Tried::Written(Written::Taken));
            }
        }
        let me = self.cluster.id();
        let node = records::node(me);
        let ours = Txn::when(node.clone(), Condition::Lease(lease)).otherwise(Op::get(node));
        let txn = batch
            .iter()
            .fold(ours, |txn, write| write.add_to(txn, write.id.key(me)));
        let reply = self.cluster.store().txn(txn).await?;
        if reply.succeeded {
            return Ok(Tried::Written(Written::Done));
        }
        // One may be another node's, or this node has lost its own place.
        Ok(match reply.replies.first() {
            Some(OpReply::Got(Some(entry))) if entry.lease == Some(lease) => {
                Tried::Written(Written::Taken)
            }
            _ => Tried::NotRegistered,
        })
    }

    /// Whether another node has a record that one of these makes.
    async fn is_elsewhere(&self, batch: &[Write<I>]) -> Result<bool, Error> {
        let me = self.cluster.id();
        let store = self.cluster.store();
        let mut others = owners::<I>(store).await?;
        others.extend(self.cluster.others());
        others.retain(|other| *other != me);
        others.sort_unstable();
        others.dedup();
        let made = batch
            .iter()
            .filter(|it| matches!(it.change, Change::Put(_)));
        let keys: Vec<Bytes> = made
            .flat_map(|it| others.iter().map(|other| it.id.key(*other)))
            .collect();
        for keys in keys.chunks(MAX_TXN_OPS) {
            let txn = keys.iter().fold(Txn::default(), |txn, key| {
                txn.and(key.clone(), Condition::Absent)
            });
            if !store.txn(txn).await?.succeeded {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
