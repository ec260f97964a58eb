//! Detached tasks that outlive the node where they were submitted.
//!
//! In a cluster the server writes down each detached task before it answers with its id, and when the task has ended,
//! what came of it. When the node is lost another one takes the records over, and goes on with the tasks as if they had
//! been submitted there, under the same ids. A node that comes back goes on with what is still its own.
//!
//! Owns what is in a record, and when records are written, taken over and given up. Must not: be on the way of tasks
//! that are not detached; decide who owns a record, which is `cluster/records`.
//!
//! Invariants: what is answered without a warning is in the control store, and its module at another node if there is
//! one. A task whose record is another node's is cancelled and forgotten here.

mod actors;
mod adopt;
mod groups;
mod known;
mod once;
mod record;
mod results;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, GroupId, Incarnation, NodeId, ObjectId, TaskId};
use wasmrun_model::wire;

pub(super) use self::record::{Origin, Stored, StoredActor};

use self::actors::KeptActor;
use self::known::{Ended, Known, Task};
use self::record::Ending;
use self::results::Placed;
use super::Inner;
use crate::cluster::{Receipt, RecordCounts, RecordId, Records, Written};
use crate::records::job::Argument;
use crate::records::log::Log;
use crate::records::task::Report;

/// How long a submission waits to be durable. Then it is answered with a warning.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while the store is known not to answer.
const LITTLE_PATIENCE: Duration = Duration::from_millis(50);
/// Why a task is not durable yet.
const SILENT: &str = "the control store does not answer; when it does, the task will be kept";
/// The most bytes of a record. Arguments are in it.
const MOST_BYTES: usize = 256 << 10;

/// How long to wait until a change of a record is written.
fn patience<I: RecordId>(records: &Records<I>) -> Duration {
    match records.is_silent() {
        true => LITTLE_PATIENCE,
        false => PATIENCE,
    }
}

/// What a server keeps in the control store.
pub(super) struct Durable {
    records: Records,
    /// Of placement groups.
    groups: Records<GroupId>,
    known: Mutex<Known>,
    /// Actors that have records.
    actors: Mutex<HashMap<TaskId, KeptActor>>,
    /// Where large results are of tasks that have ended.
    placed: Mutex<HashMap<TaskId, Placed>>,
    /// The incarnation in which it was read last which records are this node's.
    read_in: Mutex<Option<Incarnation>>,
    /// The node is stopping: what ends now ends because of that, and is for others to go on with.
    is_closed: AtomicBool,
}

/// A task's record, as long as the task lives.
pub(super) struct Keeping {
    task: TaskId,
    stored: Stored,
}

/// A submission whose record is under way.
pub(super) struct Pending {
    task: TaskId,
    module: (Digest, u64),
    written: Option<Receipt>,
}

impl Durable {
    /// What is in the record of a task that a client submits; or why it has none.
    pub(super) fn record_of(
        inner: &Inner,
        submit: wire::Submit,
        origin: Origin,
        name: &str,
        tenant: &TenantName,
        values: &[Argument],
    ) -> Result<Stored, String> {
        let module_bytes = may_move(inner, &submit.grants, &submit.module, values)?;
        if submit.input == wire::Input::Stream {
            return Err("it reads a stream that comes to this node".to_owned());
        }
        let stored = Stored::new(submit, origin, name, tenant, module_bytes);
        match stored.to_value().len() {
            ..=MOST_BYTES => Ok(stored),
            bytes => Err(format!(
                "with its arguments it has {bytes} bytes, and {MOST_BYTES} are kept at most"
            )),
        }
    }

    /// Begins to write a record down.
    pub(super) fn begin(&self, task: TaskId, stored: Stored) -> (Pending, Keeping) {
        let module = (stored.submit.module, stored.module_bytes);
        self.note(task, module, false);
        let written = self.records.put(task, stored.to_value());
        tracing::debug!(%task, "the record of a detached task is under way");
        let pending = Pending {
            task,
            module,
            written,
        };
        (pending, Keeping { task, stored })
    }

    /// False if it is known already.
    fn note(&self, task: TaskId, (module, module_bytes): (Digest, u64), is_kept: bool) -> bool {
        let known = Task {
            module,
            module_bytes,
            is_kept,
            ended: None,
        };
        let mut tasks = self.known.lock();
        match tasks.tasks.entry(task) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(known);
                true
            }
        }
    }

    fn knows(&self, task: &TaskId) -> bool {
        self.known.lock().tasks.contains_key(task)
    }

    /// Whether a task's record is in the store; `None` if it has none, nor is about to.
    fn is_kept(&self, task: &TaskId) -> Option<bool> {
        self.known.lock().tasks.get(task).map(|task| task.is_kept)
    }

    /// Tasks whose records are in the store, by what that has said.
    fn kept(&self) -> Vec<TaskId> {
        let known = self.known.lock();
        let kept = known.tasks.iter().filter(|(_, task)| task.is_kept);
        kept.map(|(task, _)| *task).collect()
    }

    /// Modules of tasks that have not ended, or may be run again for their results, with their lengths; and the nodes
    /// without which they must be found.
    fn modules(&self) -> BTreeSet<(Digest, u64, Vec<NodeId>)> {
        let placed = self.placed.lock();
        let may_run_again = placed.values().filter_map(Placed::module);
        let mut modules: BTreeSet<_> = may_run_again.collect();
        drop(placed);
        let known = self.known.lock();
        let live = known.tasks.values().filter(|task| task.ended.is_none());
        modules.extend(live.map(|it| (it.module, it.module_bytes, Vec::new())));
        modules
    }

    /// How many bytes records have that keep what results were made of, and how many records have given that up for
    /// others.
    pub(super) fn lineage(&self) -> (u64, u64) {
        let known = self.known.lock();
        (known.lineage_bytes as u64, known.lineage_dropped)
    }

    /// Whether what this node takes for its own is that, by what was read in this incarnation. At its beginning it may
    /// be others' by now.
    pub(super) fn knows_own_in(&self, incarnation: Incarnation) -> bool {
        *self.read_in.lock() == Some(incarnation)
    }

    /// It was read in that incarnation, and what is others' is given up.
    fn own_is_known_in(&self, incarnation: Incarnation) {
        *self.read_in.lock() = Some(incarnation);
    }

    /// Nothing more is written.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// How many records were changed.
    pub(super) fn counts(&self) -> RecordCounts {
        self.records.counts() + self.groups.counts()
    }

    /// Whether nothing waits for the store.
    pub(super) fn is_written(&self) -> bool {
        self.records.is_written() && self.groups.is_written()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A task's result was deleted, or an actor has ended.
    pub(super) fn forget(&self, task: &TaskId) {
        let actor = self.actors.lock().remove(task);
        drop(actor);
        drop(self.unplace(task));
        let mut known = self.known.lock();
        if known.remove(task) {
            drop(known);
            drop(self.records.delete(*task));
        }
    }
}

/// Whether another node could go on with what has this; or why not. How long its module is.
fn may_move(
    inner: &Inner,
    grants: &wire::Grants,
    digest: &Digest,
    values: &[Argument],
) -> Result<u64, String> {
    if !grants.dirs.is_empty() {
        return Err("it has a folder of this machine".to_owned());
    }
    let is_plain = |value: &Argument| match value {
        Argument::Value(value) => value.references().is_empty(),
        Argument::Object(_) => false,
    };
    if !values.iter().all(is_plain) {
        return Err(
            "its arguments are kept at this node: objects, actors, or values of more than 64 KiB"
                .to_owned(),
        );
    }
    let exchange = inner.exchange();
    let len = exchange.and_then(|exchange| exchange.modules().len(digest));
    Ok(len.ok_or("its module is not in the node's state folder")?)
}

impl Inner {
    /// Waits until a task that was submitted outlives this node. Else why it does not, for whoever submitted it.
    pub(super) async fn kept(self: &Arc<Self>, pending: Pending) -> Result<(), String> {
        let Pending {
            task,
            module: (digest, len),
            written,
        } = pending;
        let Some(durable) = self.durable.get() else {
            return Ok(());
        };
        let Some(written) = written else {
            durable.known.lock().remove(&task);
            return Err("too many records wait for the control store".to_owned());
        };
        let inner = self.clone();
        // Also when the client is answered before.
        let recorded = self.shared.control.spawn(async move {
            // Where nobody writes any more the node is stopping.
            let written = written.await.unwrap_or(Written::Done);
            let durable = inner.durable.get().expect("it was there before");
            match &written {
                Written::Done => {
                    if let Some(known) = durable.known.lock().tasks.get_mut(&task) {
                        known.is_kept = true;
                    }
                }
                Written::Taken => inner.is_taken(task),
                Written::Refused(_) => {
                    durable.known.lock().remove(&task);
                }
            }
            written
        });
        let shared = async {
            match self.exchange() {
                Some(exchange) => exchange.share_module(digest, len, &[], PATIENCE).await,
                None => true,
            }
        };
        let patience = patience(&durable.records);
        let recorded = async { tokio::time::timeout(patience, recorded).await };
        let is_shared = async { tokio::time::timeout(PATIENCE, shared).await };
        let (recorded, is_shared) = tokio::join!(recorded, is_shared);
        match recorded {
            Ok(Ok(Written::Done)) => {}
            Ok(Ok(Written::Refused(why))) => return Err(why),
            // It is kept, and it was shared where it is gone on with.
            Ok(Ok(Written::Taken)) => return Ok(()),
            Ok(Err(_)) => return Err("the node is stopping".to_owned()),
            Err(_) => {
                durable.records.set_silent();
                return Err(SILENT.to_owned());
            }
        }
        match is_shared {
            Ok(true) => Ok(()),
            _ => Err("no other node has taken its module yet; it is tried again".to_owned()),
        }
    }
}

impl Keeping {
    /// Its task has ended.
    pub(super) fn ended(self, inner: &Arc<Inner>, report: &Report, log: &Log) {
        let Self { task, stored } = self;
        let Some(durable) = inner.durable.get() else {
            return;
        };
        if !durable.knows(&task) || durable.is_closed.load(Ordering::Acquire) {
            return;
        }
        let result = report.result.as_ref().ok().and_then(Option::as_ref);
        let place = result.and_then(|value| inner.where_is(task, value));
        let stored = stored.ended(Ending::of(report, inner.shared.home.node, log, place));
        let value = stored.to_value();
        inner.count_ended(durable, task, &stored, value.len());
        if let Some(result) = result {
            inner.note_place(task, stored, result);
        }
        drop(inner.replace(durable, task, value));
    }
}

impl Inner {
    /// The record of a task that has ended has so many bytes. The oldest are let go.
    fn count_ended(
        self: &Arc<Self>,
        durable: &Durable,
        task: TaskId,
        stored: &Stored,
        bytes: usize,
    ) {
        let ended = Ended {
            bytes,
            has_lineage: stored.has_lineage(),
        };
        let over = durable.known.lock().add_ended(task, ended);
        for task in over.tasks {
            drop(durable.unplace(&task));
            drop(durable.records.delete(task));
        }
        for task in over.lineage {
            self.forget_lineage(durable, task);
        }
    }

    /// Writes what came of a task. It ends when that is written, or the task is another node's.
    fn replace(
        self: &Arc<Self>,
        durable: &Durable,
        task: TaskId,
        value: bytes::Bytes,
    ) -> JoinHandle<()> {
        let written = durable.records.replace(task, value);
        let inner = self.clone();
        // It ends when the store has answered, at the latest with the node.
        self.shared.control.spawn(async move {
            if written.await == Ok(Written::Taken) {
                inner.give_up(task);
            }
        })
    }

    /// Another node has taken a task over, while this one counted as dead: it is nothing of ours any more.
    fn give_up(self: &Arc<Self>, task: TaskId) {
        let Some(durable) = self.durable.get() else {
            return;
        };
        if durable.is_kept(&task) == Some(true) {
            self.is_taken(task);
        }
    }

    /// The same, where its record was on its way.
    fn is_taken(self: &Arc<Self>, task: TaskId) {
        let Some(durable) = self.durable.get() else {
            return;
        };
        if !durable.known.lock().remove(&task) {
            return;
        }
        tracing::info!(%task, "a detached task is another node's now");
        drop(durable.actors.lock().remove(&task));
        if let (Some(value), Some(exchange)) = (durable.unplace(&task), self.exchange()) {
            exchange.leave(ObjectId::of(task, 0), value);
        }
        let cell = self.shared.ask(|ledger| ledger.cell(&task));
        cell.inspect(|cell| cell.give_up());
        self.shared.history.give_up(task);
        self.shared.cancel(task);
        let forgotten = self.registry().forget(&task);
        if let Some(record) = forgotten
            && let Some(end) = &record.end
        {
            let phase = end.phase();
            self.shared
                .ask(|ledger| ledger.jobs.taken(&record.driver, phase));
        }
    }
}
