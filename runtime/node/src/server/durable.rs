//! Detached tasks that outlive the node where they were submitted.
//!
//! In a cluster the server writes down each detached task before it answers with its id, and when the task has ended,
//! what came of it. When the node is lost another one takes the records over, and goes on with the tasks as if they had
//! been submitted there, under the same ids. A node that comes back goes on with what is still its own.
//!
//! Owns when records are written, taken over and given up; what is in them is in `stored`. Must not: be on the way of
//! tasks that are not detached; decide who owns a record, which is `cluster/records`.
//!
//! Invariants: what is answered without a warning is in the control store, and its module at another node if there is
//! one. A task whose record is another node's is cancelled and forgotten here.

mod actors;
mod adopt;
mod groups;
mod once;
mod results;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, ObjectId, TaskId};
use wasmrun_model::wire;

use super::Inner;
use super::stored::{Durable, Ended, Ending, Keeping, MOST_BYTES, Origin, Pending, Stored};
use crate::cluster::{RecordId, Records, Written};
use crate::records::job::Argument;
use crate::records::log::Log;
use crate::records::task::Report;

/// How long a submission waits to be durable. Then it is answered with a warning.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while the store is known not to answer.
const LITTLE_PATIENCE: Duration = Duration::from_millis(50);
/// Why a task is not durable yet.
const SILENT: &str = "the control store does not answer; when it does, the task will be kept";

/// How long to wait until a change of a record is written.
fn patience<I: RecordId>(records: &Records<I>) -> Duration {
    match records.is_silent() {
        true => LITTLE_PATIENCE,
        false => PATIENCE,
    }
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
    pub(super) async fn wait_until_durable(
        self: &Arc<Self>,
        pending: Pending,
    ) -> Result<(), String> {
        let Pending {
            task,
            module: (digest, len),
            written,
        } = pending;
        let Some(durable) = self.durable.get() else {
            return Ok(());
        };
        let Some(written) = written else {
            durable.inventory.lock().remove(&task);
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
                    if let Some(known) = durable.inventory.lock().tasks.get_mut(&task) {
                        known.is_kept = true;
                    }
                }
                Written::Taken => inner.is_taken(task),
                Written::Refused(_) => {
                    durable.inventory.lock().remove(&task);
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
        let over = durable.inventory.lock().add_ended(task, ended);
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
        if !durable.inventory.lock().remove(&task) {
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
