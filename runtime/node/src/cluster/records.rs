//! Records of detached tasks, actors and placement groups in the control store: who owns which, in the whole cluster.
//!
//! Owns the keys, the order in which they are written, and their change of hands, by compare-and-swap. Must not: know
//! what is in a record; that is the server's (`server/durable`).
//!
//! A record is at `tasks/OWNER/TASK`, or `groups/OWNER/GROUP`. Writes go one behind the other, as many in a transaction as fit, so that many
//! submissions cost one sync of a disk. What the store does not take now is kept and tried again; changes of one record
//! that wait are written as one (`queue`).
//!
//! Invariants: a record has one owner, for it is moved in one transaction, and only while its owner is not
//! registered: a node that lives keeps what it has. An owner writes and takes over only while it is registered, each
//! incarnation under its own lease, and changes a record only as long as it has it. Each transaction is made once, or
//! not (`fence`).

mod fence;
mod queue;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use wasmrun_control::records::{self, GROUPS, TASKS};
use wasmrun_control::{Clock, Condition, ControlStore, Entry, Error, LeaseId, Op, Range, Txn};
use wasmrun_model::id::{GroupId, NodeId, TaskId};

use self::fence::{Fence, Tried};
use self::queue::Change;
pub(crate) use self::queue::Receipt;
use self::writer::{AGAIN, State, Writer};

/// How many bytes of records a transaction has at most, about.
const MOST_BYTES: usize = 1 << 20;
/// How many records are taken over in a transaction: each is two steps and a comparison.
const MOST_TAKEN: usize = 50;
/// Of how many records changes may wait for the store. Of more nothing is kept.
const MOST_WAITING: usize = 100_000;

/// What is needed of a node by whatever of it is in the control store.
pub(crate) trait Standing: Send + Sync + 'static {
    fn id(&self) -> NodeId;

    fn store(&self) -> &dyn ControlStore;

    /// By which is waited for the store.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// Under which lease this node was registered last.
    fn lease(&self) -> Option<LeaseId>;

    /// Other nodes that live, as far as this one knows.
    fn others(&self) -> Vec<NodeId>;
}

/// Something that can have a record.
pub(crate) trait RecordId:
    Copy + Eq + Hash + Display + FromStr + Send + Sync + 'static
{
    /// What the keys of all of them begin with.
    const PREFIX: &'static str;
    /// What they are called.
    const NAME: &'static str;

    /// The key of its record.
    fn key(self, owner: NodeId) -> Bytes;

    /// What the keys of all that an owner has begin with.
    fn keys_of(owner: NodeId) -> Bytes;
}

impl RecordId for TaskId {
    const PREFIX: &'static str = TASKS;
    const NAME: &'static str = "detached tasks";

    fn key(self, owner: NodeId) -> Bytes {
        records::task(owner, self)
    }

    fn keys_of(owner: NodeId) -> Bytes {
        records::tasks_of(owner)
    }
}

impl RecordId for GroupId {
    const PREFIX: &'static str = GROUPS;
    const NAME: &'static str = "placement groups";

    fn key(self, owner: NodeId) -> Bytes {
        records::group(owner, self)
    }

    fn keys_of(owner: NodeId) -> Bytes {
        records::groups_of(owner)
    }
}

/// The records of this node, of one kind.
pub(crate) struct Records<I = TaskId> {
    cluster: Arc<dyn Standing>,
    state: Arc<State<I>>,
    /// Wakes the writer. It ends when this is dropped.
    wake: mpsc::Sender<()>,
    /// One after the other are taken over.
    takes: tokio::sync::Mutex<Fence>,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is made, durably.
    Done,
    /// The record is not this node's any more: another one has taken it over.
    Taken,
    /// The store will not make it.
    Refused(String),
}

/// How many records a node has changed since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RecordCounts {
    /// Changes that wait for the store now: those of one record that wait are one.
    pub(crate) waiting: u64,
    /// Changes that are made.
    pub(crate) written: u64,
    /// Changes that are not made, and will not be.
    pub(crate) failed: u64,
    /// Records that were taken over from other nodes.
    pub(crate) taken_over: u64,
}

impl std::ops::Add for RecordCounts {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            waiting: self.waiting + more.waiting,
            written: self.written + more.written,
            failed: self.failed + more.failed,
            taken_over: self.taken_over + more.taken_over,
        }
    }
}

/// A record as it is in the store.
#[derive(Debug, Clone)]
pub(crate) struct Found<I = TaskId> {
    pub(crate) id: I,
    entry: Entry,
}

impl<I> Found<I> {
    pub(crate) fn value(&self) -> &Bytes {
        &self.entry.value
    }
}

impl<I: RecordId> Records<I> {
    /// Begins to write. Ends when nobody has it any more.
    pub(crate) fn start(cluster: Arc<dyn Standing>, control: &Handle) -> Self {
        let (wake, woken) = mpsc::channel(1);
        let state = Arc::<State<I>>::default();
        let writer = Writer::new(cluster.clone(), state.clone());
        control.spawn(writer.run(woken));
        let takes = Fence::new(cluster.clone(), format_args!("{}taken", I::PREFIX));
        Self {
            takes: tokio::sync::Mutex::new(takes),
            cluster,
            state,
            wake,
        }
    }

    /// By which is waited for the store.
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        self.cluster.clock()
    }

    /// Which of all that live is to act first where one is enough, with regard to a node that is lost: 0 is the
    /// first. All see the same order as long as they see the same members.
    pub(super) fn rank_for(&self, lost: NodeId) -> usize {
        let distance = |node: &NodeId| {
            let bytes = node.as_bytes().iter().zip(lost.as_bytes());
            bytes.map(|(one, other)| one ^ other).collect::<Vec<u8>>()
        };
        let ours = distance(&self.cluster.id());
        let others = self.cluster.others();
        others.iter().filter(|it| distance(it) < ours).count()
    }

    /// Writes a record of what this node owns. `None` if too much is waiting.
    pub(crate) fn put(&self, id: I, value: Bytes) -> Option<Receipt> {
        if self.state.queue.lock().len() >= MOST_WAITING {
            self.state.failed.add(1);
            return None;
        }
        Some(self.write(id, Change::Put(value)))
    }

    /// Changes a record, if it is this node's.
    pub(crate) fn replace(&self, id: I, value: Bytes) -> Receipt {
        self.write(id, Change::Replace(value))
    }

    /// Ends a record. From now on it is none of [`own`](Self::own).
    pub(crate) fn delete(&self, id: I) -> Receipt {
        self.write(id, Change::Delete)
    }

    fn write(&self, id: I, change: Change) -> Receipt {
        let receipt = self.state.queue.lock().add(id, change);
        // Where it is full the writer has not heard of those before yet.
        let _ = self.wake.try_send(());
        receipt
    }

    /// Whether nothing waits for the store.
    pub(crate) fn is_written(&self) -> bool {
        self.state.queue.lock().len() == 0
    }

    /// How many changes there were, and what came of them.
    pub(crate) fn counts(&self) -> RecordCounts {
        let state = &self.state;
        RecordCounts {
            waiting: state.queue.lock().len() as u64,
            written: state.written.get(),
            failed: state.failed.get(),
            taken_over: state.taken_over.get(),
        }
    }

    /// Whether the store did not do what it was asked for last.
    pub(crate) fn is_silent(&self) -> bool {
        self.state.is_silent.load(Ordering::Acquire)
    }

    /// The store has kept somebody waiting for too long.
    pub(crate) fn set_silent(&self) {
        self.state.is_silent.store(true, Ordering::Release);
    }

    /// Nodes that own records and do not live, by what the store says now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn lost_owners(&self) -> Result<Vec<NodeId>, Error> {
        let store = self.cluster.store();
        let alive = self.cluster.others();
        let mut lost = Vec::new();
        for owner in owners::<I>(store).await? {
            let is_known = owner == self.cluster.id() || alive.contains(&owner);
            if !is_known && store.get(&records::node(owner)).await?.is_none() {
                lost.push(owner);
            }
        }
        Ok(lost)
    }

    /// All records of an owner.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn of(&self, owner: NodeId) -> Result<Vec<Found<I>>, Error> {
        let mut range = Range::prefix(I::keys_of(owner));
        let mut all = Vec::new();
        loop {
            let page = self.cluster.store().range(range.clone()).await?;
            all.extend(page.entries.into_iter().filter_map(|entry| {
                let (_, id) = parts(&entry.key)?;
                Some(Found { id, entry })
            }));
            match page.next {
                Some(next) => range.from = next,
                None => return Ok(all),
            }
        }
    }

    /// All records of this node but those that it is about to end.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn own(&self) -> Result<Vec<Found<I>>, Error> {
        let mut found = self.of(self.cluster.id()).await?;
        // Those that have ended since they were read cannot be taken over: see `take`.
        let queue = self.state.queue.lock();
        found.retain(|found| !queue.is_ending(&found.id));
        Ok(found)
    }

    /// Takes records over, each with its new value, from a node that does not live, or this node's own from an
    /// earlier process. Which of them are this node's now: the others have another owner by now, or none, or are to end
    /// here: whether they have is said there.
    ///
    /// # Errors
    /// When the store does not do it, and when this node's incarnation ends before it has said whether it did: then
    /// some of them may be its own in the next incarnation.
    pub(crate) async fn take(
        &self,
        owner: NodeId,
        records: &[(Found<I>, Bytes)],
    ) -> Result<HashSet<I>, Error> {
        let mut fence = self.takes.lock().await;
        let mut taken = HashSet::new();
        let records: Vec<_> = {
            let queue = self.state.queue.lock();
            let wanted = records.iter().filter(|(it, _)| !queue.is_ending(&it.id));
            wanted.cloned().collect()
        };
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take(MOST_TAKEN).take_while(|(_, value)| {
                let is_first = bytes == 0;
                bytes += value.len() + 256;
                is_first || bytes <= MOST_BYTES
            });
            let (some, others) = rest.split_at(fit.count());
            rest = others;
            if self.move_all(&mut fence, owner, some).await? {
                taken.extend(some.iter().map(|(found, _)| found.id));
                continue;
            }
            // Somebody has been faster with one of them at least.
            for one in some {
                let one_alone = std::slice::from_ref(one);
                if self.move_all(&mut fence, owner, one_alone).await? {
                    taken.insert(one.0.id);
                }
            }
        }
        if owner != self.cluster.id() {
            self.state.taken_over.add(taken.len() as u64);
        }
        Ok(taken)
    }

    /// Moves all of them or none. Asks until it is known which.
    async fn move_all(
        &self,
        fence: &mut Fence,
        owner: NodeId,
        some: &[(Found<I>, Bytes)],
    ) -> Result<bool, Error> {
        let txn = self.moving(owner, some);
        let not_registered = || Error::Unavailable {
            why: "this node is not registered there".to_owned(),
        };
        let lease = self.cluster.lease().ok_or_else(not_registered)?;
        fence.begin();
        loop {
            match fence.attempt(lease, &txn).await {
                Ok(Tried::Made(_) | Tried::MadeBefore) => return Ok(true),
                Ok(Tried::Otherwise) => return Ok(false),
                // In the next incarnation it is asked anew what is there.
                Ok(Tried::NotRegistered) => return Err(not_registered()),
                Err(error) if !fence.is_unsure() => return Err(error),
                Err(error) => tracing::debug!(%error, "it is asked again what is taken over"),
            }
            self.clock().sleep(AGAIN).await;
        }
    }

    fn moving(&self, owner: NodeId, some: &[(Found<I>, Bytes)]) -> Txn {
        let me = self.cluster.id();
        let mut txn = match owner == me {
            true => Txn::default(),
            false => Txn::when(records::node(owner), Condition::Absent),
        };
        for (found, value) in some {
            let (from, to) = (&found.entry.key, found.id.key(me));
            txn = txn.and(from.clone(), Condition::Modified(found.entry.modified));
            if owner != me {
                txn = txn.then(Op::delete(from.clone()));
            }
            txn = txn.then(Op::put(to, value.clone()));
        }
        txn
    }
}

/// Whose it is, and what has the record, in its key.
pub(super) fn parts<I: RecordId>(key: &[u8]) -> Option<(NodeId, I)> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(I::PREFIX)?;
    let (owner, id) = rest.split_once('/')?;
    Some((owner.parse().ok()?, id.parse().ok()?))
}

/// Nodes that own records, whether they live or not.
async fn owners<I: RecordId>(store: &dyn ControlStore) -> Result<Vec<NodeId>, Error> {
    let mut owners = Vec::new();
    let mut range = Range::prefix(I::PREFIX);
    range.limit = 1;
    loop {
        let page = store.range(range.clone()).await?;
        let Some(entry) = page.entries.first() else {
            return Ok(owners);
        };
        let Some((owner, _)) = parts::<I>(&entry.key) else {
            tracing::warn!(key = ?entry.key, "a record of {} has a key that none can have", I::NAME);
            range.from = [&entry.key[..], &[0]].concat().into();
            continue;
        };
        owners.push(owner);
        // After all of its: '0' follows '/'.
        range.from = format!("{}{owner}0", I::PREFIX).into();
    }
}
