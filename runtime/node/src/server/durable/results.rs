//! Where large results of detached tasks are.
//!
//! A result that is too large for its task's record is in the stores of nodes, and the record says in whose. Who keeps it
//! goes on with that when the owner is lost, and whoever takes the record over finds it there.
//!
//! Owns what the records say of that, and having results kept elsewhere when this node leaves. Must not: move bytes, or
//! reconstruct results: who has a record says to `peers` how that is done.
//!
//! Invariant: what is here only is said to be here, so nobody waits for it elsewhere.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tokio::task::JoinHandle;
use wasmrun_model::id::{NodeId, ObjectId, TaskId};

use super::PATIENCE;
use crate::peers::Whereabouts;
use crate::records::object::Value;
use crate::server::Inner;
use crate::server::stored::{Durable, Lineage, Placed, Stored};

/// How many results are given to others at a time.
const AT_A_TIME: usize = 8;

impl Inner {
    /// Where the result of a task is, if it is in stores and others may have it.
    pub(super) fn where_is(&self, task: TaskId, value: &Value) -> Option<Whereabouts> {
        let exchange = self.exchange()?;
        exchange.whereabouts_of(ObjectId::of(task, 0), value)
    }

    /// A task has ended, or was taken over, and its result is where its record says.
    pub(super) fn note_place(&self, task: TaskId, stored: Stored, value: &Value) {
        let ending = stored.ending.as_ref();
        let (Some(durable), Some(exchange), Some(place)) = (
            self.durable.get(),
            self.exchange(),
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
        let module = placed.module();
        durable.placed.lock().insert(task, placed);
        if let Some((digest, len, holders)) = module {
            let exchange = exchange.clone();
            // It ends within that time. What none has taken by then is tried again.
            self.shared.control.spawn(async move {
                exchange.share_module(digest, len, &holders, PATIENCE).await;
            });
        }
    }

    /// There is no room any more for what a result was made of.
    pub(super) fn forget_lineage(self: &Arc<Self>, durable: &Durable, task: TaskId) {
        let mut placed = durable.placed.lock();
        let Some(it) = placed.get_mut(&task) else {
            return;
        };
        it.stored.forget_lineage(Lineage::LetGo);
        let (stored, value) = (it.stored.clone(), it.stored.to_value());
        drop(placed);
        tracing::debug!(%task, "what a result was made of is not kept any longer");
        self.count_ended(durable, task, &stored, value.len());
        drop(self.replace(durable, task, value));
    }

    /// Says once more to those of these nodes who keep results for us that those are ours, and outlive us.
    pub(in crate::server) fn claim_places(
        &self,
        durable: &Durable,
        is_asked: impl Fn(NodeId) -> bool,
    ) {
        let Some(exchange) = self.exchange() else {
            return;
        };
        for (task, placed) in &*durable.placed.lock() {
            let ending = placed.stored.ending.as_ref();
            if let Some(place) = ending.and_then(|it| it.place()) {
                let holders = place.holders.iter().copied();
                let asked: Vec<NodeId> = holders.filter(|it| is_asked(*it)).collect();
                exchange.let_outlive(ObjectId::of(*task, 0), &asked);
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
        // Before the record can be read that says so.
        if let Some(exchange) = self.exchange() {
            exchange.let_outlive(ObjectId::of(task, 0), &place.holders);
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
        let (Some(durable), Some(exchange)) = (self.durable.get(), self.exchange()) else {
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
        let placed: Vec<Result<bool, _>> = placing.collect().await;
        let kept = placed.iter().filter(|it| **it == Ok(true)).count();
        if kept > 0 {
            tracing::info!(
                kept,
                "other nodes keep results of detached tasks for this one"
            );
        }
        placed.into_iter().filter_map(Result::err).collect()
    }

    /// False if there is nothing that another node could keep.
    async fn place_one(self: &Arc<Self>, durable: &Durable, task: TaskId) -> Result<bool, String> {
        let (value, has_lineage) = {
            let placed = durable.placed.lock();
            let it = placed.get(&task);
            let has_lineage = it.is_some_and(|it| it.stored.has_lineage());
            (it.and_then(|it| it.value.upgrade()), has_lineage)
        };
        let (Some(value), Some(exchange)) = (value, self.exchange()) else {
            // Nobody needs it any more.
            return Ok(false);
        };
        if has_lineage && !exchange.is_somewhere(&value) {
            // Whoever goes on with the record makes it again when somebody needs it, as this node would.
            return Ok(false);
        }
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
            // Before that nobody would find it there. A store that does not answer is not waited for: others go before the
            // node ends, and the record is written as soon as it can be.
            let _ = tokio::time::timeout(PATIENCE, written).await;
        }
        Ok(true)
    }
}
