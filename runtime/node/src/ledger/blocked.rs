//! The attempts that wait for others.
//!
//! Owns the table of them, and the list of those that have begun to wait since the last search for deadlocks. Must not:
//! drop what a task waits for: it may be the last reference, and the ledger's lock is held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::scheduler::NewWaiters;

use super::deadlock::Wait;
use crate::records::reach::Holds;
use crate::records::task::TaskCell;

/// An attempt that waits for others.
pub(crate) struct Blocked {
    /// What it waits for; also what has ended since it began to wait.
    pub(crate) needs: Arc<[Arc<TaskCell>]>,
    /// An object that is there, and which it reads.
    pub(crate) reads: Option<ObjectId>,
    /// For how many of them.
    pub(crate) count: usize,
    /// Whether it stops waiting by itself some time.
    pub(crate) is_bounded: bool,
    /// How to tell it that this will never end.
    pub(crate) wait: Arc<Wait>,
    /// Who waits, with what it holds.
    pub(crate) attempt: Weak<dyn Holds>,
}

/// The attempts that wait for others, by their tasks.
#[derive(Default)]
pub(crate) struct BlockedTasks {
    by_task: HashMap<TaskId, Blocked>,
    /// How many wait without a timeout.
    unbounded: usize,
    /// Those that have begun to, and tasks that do not run and have begun to wait.
    new: NewWaiters,
    activity: Arc<Activity>,
    /// At how many tasks the searches for circles have looked.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

impl BlockedTasks {
    /// Who begins to wait. What that task waited for before is for the caller to drop outside the lock.
    #[must_use]
    pub(crate) fn insert(&mut self, task: TaskId, blocked: Blocked) -> Option<Blocked> {
        self.activity.note();
        if !blocked.is_bounded {
            self.unbounded += 1;
            self.new.note(task);
        }
        let before = self.by_task.insert(task, blocked);
        self.count_out(before.as_ref());
        before
    }

    /// Who waits no more. What it waited for is for the caller to drop outside the lock.
    #[must_use]
    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<Blocked> {
        // As it mostly is when a task ends.
        if self.by_task.is_empty() {
            return None;
        }
        let before = self.by_task.remove(task)?;
        self.activity.note();
        self.count_out(Some(&before));
        Some(before)
    }

    fn count_out(&mut self, before: Option<&Blocked>) {
        self.unbounded -= usize::from(before.is_some_and(|it| !it.is_bounded));
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&Blocked> {
        self.by_task.get(task)
    }

    pub(crate) fn contains(&self, task: &TaskId) -> bool {
        self.by_task.contains_key(task)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskId, &Blocked)> {
        self.by_task.iter()
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.by_task.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_task.len()
    }

    /// Whether a task waits without a timeout.
    pub(crate) fn has_unbounded(&self) -> bool {
        self.unbounded > 0
    }

    /// Whether a task waits with a timeout, or for what ends by itself.
    pub(crate) fn has_bounded(&self) -> bool {
        self.unbounded < self.by_task.len()
    }

    /// Those that have begun to wait since they were [forgotten](Self::forget_new).
    pub(super) fn new_ones(&self) -> &NewWaiters {
        &self.new
    }

    pub(super) fn add_new(&mut self, others: NewWaiters) {
        self.new.append(others);
    }

    pub(super) fn forget_new(&mut self) {
        self.new = NewWaiters::default();
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

/// Whether anything has happened in the ledger: it can be asked without its lock.
#[derive(Default)]
pub(crate) struct Activity(AtomicBool);

impl Activity {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether something has happened since this was last called.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Acquire)
    }
}
