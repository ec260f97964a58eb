//! What this node has in the control store of detached tasks, actors and groups.
//!
//! Owns what is in a record (`record`), and which records there are (`inventory`, [`Durable`]). Must not: know the server;
//! see `durable` for when they are written, taken over and given up.

mod inventory;
mod record;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use wasmrun_model::id::{Digest, GroupId, Incarnation, NodeId, TaskId};

pub(super) use self::inventory::Ended;
pub(super) use self::record::{
    End, Ending, Lineage, Origin, State, Stored, StoredActor, StoredRecord, encoded,
};

use self::inventory::{Inventory, Task};
use crate::cluster::{Receipt, RecordCounts, Records};
use crate::peers::CopyAt;
use crate::records::actor::ActorCell;
use crate::records::object::{Value, WeakValue};

/// The most bytes of a record. Arguments are in it.
pub(super) const MOST_BYTES: usize = 256 << 10;

/// What a server keeps in the control store.
pub(super) struct Durable {
    pub(super) records: Records,
    /// Of placement groups.
    pub(super) groups: Records<GroupId>,
    pub(super) inventory: Mutex<Inventory>,
    /// Actors that have records.
    pub(super) actors: Mutex<HashMap<TaskId, KeptActor>>,
    /// Where large results are of tasks that have ended.
    pub(super) placed: Mutex<HashMap<TaskId, Placed>>,
    /// The incarnation in which it was read last which records are this node's.
    pub(super) read_in: Mutex<Option<Incarnation>>,
    /// The node is stopping: what ends now ends because of that, and is for others to go on with.
    pub(super) is_closed: AtomicBool,
}

/// A task's record, as long as the task lives.
pub(super) struct Keeping {
    pub(super) task: TaskId,
    pub(super) stored: Stored,
}

/// A submission whose record is under way.
pub(super) struct Pending {
    pub(super) task: TaskId,
    pub(super) module: (Digest, u64),
    pub(super) written: Option<Receipt>,
}

/// An actor that has a record.
pub(super) struct KeptActor {
    pub(super) cell: Weak<ActorCell>,
    pub(super) stored: StoredActor,
    /// Whether a change is on its way to the store: what comes meanwhile waits, as one.
    pub(super) is_writing: bool,
}

/// A result that is not in its record.
pub(super) struct Placed {
    pub(super) stored: Stored,
    pub(super) value: WeakValue,
    /// Who has said that it keeps the result beyond this node.
    pub(super) safe_at: Option<NodeId>,
    /// What keeps it there, where the value does not.
    pub(super) copy: Option<CopyAt>,
}

impl Durable {
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
    pub(super) fn note(
        &self,
        task: TaskId,
        (module, module_bytes): (Digest, u64),
        is_kept: bool,
    ) -> bool {
        let known = Task {
            module,
            module_bytes,
            is_kept,
            ended: None,
        };
        let mut tasks = self.inventory.lock();
        match tasks.tasks.entry(task) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(known);
                true
            }
        }
    }

    pub(super) fn knows(&self, task: &TaskId) -> bool {
        self.inventory.lock().tasks.contains_key(task)
    }

    /// Whether a task's record is in the store; `None` if it has none, nor is about to.
    pub(super) fn is_kept(&self, task: &TaskId) -> Option<bool> {
        self.inventory
            .lock()
            .tasks
            .get(task)
            .map(|task| task.is_kept)
    }

    /// Tasks whose records are in the store, by what that has said.
    pub(super) fn stored_tasks(&self) -> Vec<TaskId> {
        let inventory = self.inventory.lock();
        let kept = inventory.tasks.iter().filter(|(_, task)| task.is_kept);
        kept.map(|(task, _)| *task).collect()
    }

    /// Modules of tasks that have not ended, or may be run again for their results, with their lengths; and the nodes
    /// without which they must be found.
    pub(super) fn modules(&self) -> BTreeSet<(Digest, u64, Vec<NodeId>)> {
        let placed = self.placed.lock();
        let may_run_again = placed.values().filter_map(Placed::module);
        let mut modules: BTreeSet<_> = may_run_again.collect();
        drop(placed);
        let inventory = self.inventory.lock();
        let live = inventory.tasks.values().filter(|task| task.ended.is_none());
        modules.extend(live.map(|it| (it.module, it.module_bytes, Vec::new())));
        modules
    }

    /// How many bytes records have that keep what results were made of, and how many records have given that up for
    /// others.
    pub(super) fn lineage(&self) -> (u64, u64) {
        let inventory = self.inventory.lock();
        (inventory.lineage_bytes as u64, inventory.lineage_dropped)
    }

    /// Whether what this node takes for its own is that, by what was read in this incarnation. At its beginning it may
    /// be others' by now.
    pub(super) fn knows_own_in(&self, incarnation: Incarnation) -> bool {
        *self.read_in.lock() == Some(incarnation)
    }

    /// It was read in that incarnation, and what is others' is given up.
    pub(super) fn own_is_known_in(&self, incarnation: Incarnation) {
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

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A task's result was deleted, or an actor has ended.
    pub(super) fn forget(&self, task: &TaskId) {
        let actor = self.actors.lock().remove(task);
        drop(actor);
        drop(self.unplace(task));
        let mut inventory = self.inventory.lock();
        if inventory.remove(task) {
            drop(inventory);
            drop(self.records.delete(*task));
        }
    }

    /// A task is not known any more. Its result, if there is one that somebody still has.
    pub(super) fn unplace(&self, task: &TaskId) -> Option<Value> {
        let placed = self.placed.lock().remove(task)?;
        placed.value.upgrade()
    }

    /// A node keeps a copy of a result for us that it has had before. Whether we have asked it to.
    pub(super) fn has_copy_again(&self, task: &TaskId, node: NodeId) -> bool {
        let mut placed = self.placed.lock();
        let copy = placed.get_mut(task).and_then(|it| it.copy.as_mut());
        copy.filter(|copy| copy.node == node)
            .map(CopyAt::is_kept_again)
            .is_some()
    }

    pub(super) fn is_placed(&self, task: &TaskId) -> bool {
        self.placed.lock().contains_key(task)
    }
}

impl Placed {
    /// What is needed to make the result again, if it can be: the module and its length, and the nodes that may be lost
    /// when that is needed.
    pub(super) fn module(&self) -> Option<(Digest, u64, Vec<NodeId>)> {
        if !self.stored.has_lineage() {
            return None;
        }
        let place = self.stored.ending.as_ref()?.place()?;
        let (digest, len) = (self.stored.submit.module, self.stored.module_bytes);
        Some((digest, len, place.holders.clone()))
    }
}
