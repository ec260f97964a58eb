//! The attempts that are to pause.
//!
//! Owns the table of them. It is filled under the ledger's lock, and read without it: each guest asks whenever it gives
//! way. Must not: know why.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Attempt;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Pauses {
    by_task: Mutex<HashMap<TaskId, Attempt>>,
    /// How many are in the table, for guests that ask.
    count: AtomicUsize,
}

impl Pauses {
    /// An attempt is to pause.
    pub(super) fn ask(&self, task: TaskId, attempt: Attempt) {
        self.change(|all| all.insert(task, attempt));
    }

    /// A task has ended or waits for others: it need not pause.
    pub(super) fn forget(&self, task: &TaskId) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.change(|all| all.remove(task));
        }
    }

    /// Whether an attempt is to pause. Once: it does so then.
    pub(crate) fn take(&self, task: &TaskId, attempt: Attempt) -> bool {
        // As it mostly is.
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.change(|all| match all.get(task) {
            Some(asked) if *asked == attempt => all.remove(task),
            _ => None,
        })
        .is_some()
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<TaskId, Attempt>) -> T) -> T {
        let mut all = self.by_task.lock();
        let changed = change(&mut all);
        self.count.store(all.len(), Ordering::Release);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_told_once() {
        let id = |number| wasmrun_model::id::DriverId::from_bytes([1; 16]).task(number);
        let (first, second) = (Attempt::FIRST, Attempt::FIRST.next());
        let pauses = Pauses::default();
        assert!(!pauses.take(&id(1), first));
        pauses.ask(id(1), first);
        assert!(!pauses.take(&id(1), second) && !pauses.take(&id(2), first));
        assert!(pauses.take(&id(1), first) && !pauses.take(&id(1), first));
        pauses.ask(id(1), first);
        pauses.forget(&id(1));
        assert!(!pauses.take(&id(1), first));
    }
}
