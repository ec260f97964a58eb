//! Where large results of detached tasks are.
//!
//! A result that is too large for its task's record is in the stores of nodes, and the record says in whose. Who keeps it
//! goes on with that when the owner is lost, and whoever takes the record over finds it there.
//!
//! Owns what the records say of that, and having results kept elsewhere when this node leaves. Must not: move bytes.
//!
//! Invariant: what is here only is said to be here, so nobody waits for it elsewhere.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tokio::task::JoinHandle;
use wasmrun_model::id::{NodeId, ObjectId, TaskId};

use super::Durable;
use super::record::Stored;
use crate::cluster::{CopyAt, Whereabouts};
use crate::object::{Value, WeakValue};
use crate::server::Inner;

/// How many results are given to others at a time.
const AT_A_TIME: usize = 8;

/// A result that is not in its record.
pub(super) struct Placed {
    stored: Stored,
    value: WeakValue,
    /// Who has said that it keeps the result beyond this node.
    safe_at: Option<NodeId>,
    /// What keeps it there, where the value does not.
    copy: Option<CopyAt>,
}

impl Durable {
    /// A task is not known any more.
    pub(super) fn unplace(&self, task: &TaskId) {
        let placed = self.placed.lock().remove(task);
        drop(placed);
    }

    pub(in crate::server) fn is_placed(&self, task: &TaskId) -> bool {
        self.placed.lock().contains_key(task)
    }
}

impl Inner {
    /// Where the result of a task is, if it is in stores and others may have it.
    pub(super) fn where_is(&self, task: TaskId, value: &Value) -> Option<Whereabouts> {
        let exchange = self.shared.exchange.get()?;
        exchange.whereabouts_of(ObjectId::of(task, 0), value)
    }

    /// A task has ended, or was taken over, and its result is where its record says.
    pub(super) fn note_place(&self, task: TaskId, stored: Stored, value: &Value) {
        let ending = stored.ending.as_ref();
        let (Some(durable), Some(exchange), Some(place)) = (
            self.durable.get(),
            self.shared.exchange.get(),
            ending.and_then(|it| it.place()),
        ) else {
            return;
        };
        // Before the record can be read that says so.
        exchange.let_outlive(ObjectId::of(task, 0), &place.holders);
        let placed = Placed {
            stored,
            value: value.downgrade(),
            safe_at: None,
            copy: None,
        };
        durable.placed.lock().insert(task, placed);
    }

    /// Says once more to all who keep results for us that those outlive us.
    pub(super) fn claim_places(&self, durable: &Durable) {
        let Some(exchange) = self.shared.exchange.get() else {
            return;
        };
        for (task, placed) in &*durable.placed.lock() {
            let ending = placed.stored.ending.as_ref();
            if let Some(place) = ending.and_then(|it| it.place()) {
                exchange.let_outlive(ObjectId::of(*task, 0), &place.holders);
            }
        }
    }

    /// Has the record say where a result is now. What ends when it does; `None` if it does already.
    pub(in crate::server) fn place_again(self: &Arc<Self>, task: TaskId) -> Option<JoinHandle<()>> {
        let durable = self.durable.get()?;
        let value = {
            let placed = durable.placed.lock();
            placed.get(&task).and_then(|it| it.value.upgrade())
        };
        let mut place = value.and_then(|value| self.where_is(task, &value))?;
        let mut placed = durable.placed.lock();
        let it = placed.get_mut(&task)?;
        if let Some(copy) = &it.copy {
            place.holders.insert(0, copy.node);
        }
        let ending = it.stored.ending.as_mut()?;
        if ending.place() == Some(&place) {
            return None;
        }
        ending.set_place(place);
        let value = it.stored.to_value();
        drop(placed);
        Some(self.replace(durable, task, value))
    }

    /// A node gives up its copy of a result of ours.
    pub(in crate::server) fn copy_has_left(self: &Arc<Self>, task: TaskId, node: NodeId) {
        let Some(durable) = self.durable.get() else {
            return;
        };
        let copy = {
            let mut placed = durable.placed.lock();
            let Entry::Occupied(mut entry) = placed.entry(task) else {
                return;
            };
            let it = entry.get_mut();
            if it.safe_at == Some(node) {
                it.safe_at = None;
            }
            it.copy.take_if(|copy| copy.node == node)
        };
        if copy.is_some() {
            drop(copy);
            drop(self.place_again(task));
        }
    }

    /// Has others keep the results that would be lost with this node. Those that none keeps, and why.
    pub(in crate::server) async fn place_all(self: &Arc<Self>) -> Vec<(ObjectId, String)> {
        let (Some(durable), Some(exchange)) = (self.durable.get(), self.shared.exchange.get())
        else {
            return Vec::new();
        };
        let due: Vec<TaskId> = {
            let placed = durable.placed.lock();
            let is_due = |it: &Placed| it.safe_at.is_none_or(|node| !exchange.is_alive(&node));
            let due = placed.iter().filter(|(_, it)| is_due(it));
            due.map(|(task, _)| *task).collect()
        };
        let placing = due.into_iter().map(|task| async move {
            let placed = self.place_one(durable, task).await;
            placed.map_err(|why| (ObjectId::of(task, 0), why))
        });
        let placing = stream::iter(placing).buffer_unordered(AT_A_TIME);
        let placed: Vec<Result<(), _>> = placing.collect().await;
        let kept = placed.iter().filter(|it| it.is_ok()).count();
        if kept > 0 {
            tracing::info!(
                kept,
                "other nodes keep results of detached tasks for this one"
            );
        }
        placed.into_iter().filter_map(Result::err).collect()
    }

    async fn place_one(self: &Arc<Self>, durable: &Durable, task: TaskId) -> Result<(), String> {
        let value = {
            let placed = durable.placed.lock();
            placed.get(&task).and_then(|it| it.value.upgrade())
        };
        let (Some(value), Some(exchange)) = (value, self.shared.exchange.get()) else {
            // Nobody needs it any more.
            return Ok(());
        };
        let (node, copy) = exchange.keep_beyond(ObjectId::of(task, 0), &value).await?;
        let before = match durable.placed.lock().get_mut(&task) {
            Some(it) => {
                it.safe_at = Some(node);
                std::mem::replace(&mut it.copy, copy)
            }
            // It was deleted meanwhile.
            None => copy,
        };
        drop(before);
        if let Some(written) = self.place_again(task) {
            // Before that nobody would find it there. It cannot fail but with the node.
            let _ = written.await;
        }
        Ok(())
    }
}
