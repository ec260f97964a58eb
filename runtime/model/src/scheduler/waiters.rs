//! The journal of who has begun to wait for others.
//!
//! Ends and wake-ups only remove edges of the graph of waits. So the search for deadlocks begins at the tasks in this
//! journal: a circle that was not there at the search before has one of them in it. Owns who is in it. Must not: know for
//! whom a task waits, or note running tasks that wait: the node notes these itself.

use super::Scheduler;
use super::record::TaskIx;
use crate::id::TaskId;
use crate::task::{Phase, TaskKind};

/// Those that have begun to wait for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewWaiters {
    /// These, some perhaps several times. Some of them may have ended, or wait no more.
    These(Vec<TaskId>),
    /// More than are noted: it may be anybody.
    TooMany,
}

/// How many are noted one by one.
const MOST_NOTED: usize = 10_000;

impl Default for NewWaiters {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl NewWaiters {
    /// Whether no task has begun to wait.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::These(tasks) if tasks.is_empty())
    }

    /// A task has begun to wait.
    pub fn note(&mut self, task: TaskId) {
        match self {
            // On its way through several phases.
            Self::These(tasks) if tasks.last() == Some(&task) => {}
            Self::These(tasks) if tasks.len() < MOST_NOTED => tasks.push(task),
            _ => *self = Self::TooMany,
        }
    }

    /// Those of another journal have, too.
    pub fn append(&mut self, others: Self) {
        match others {
            Self::These(tasks) => tasks.into_iter().for_each(|task| self.note(task)),
            Self::TooMany => *self = Self::TooMany,
        }
    }
}

impl Scheduler {
    /// The tasks that do not run and have begun to wait for others since they were taken: for arguments, and calls also
    /// for their actor or their turn.
    pub fn take_new_waiters(&mut self) -> NewWaiters {
        std::mem::take(&mut self.new_waiters)
    }

    /// A task has come to its phase.
    pub(super) fn note_waiter(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let waits = match task.phase() {
            Phase::Waiting => true,
            Phase::Placeable | Phase::WaitingForActorCreation | Phase::Ready => {
                matches!(task.kind, TaskKind::Call { .. })
            }
            _ => false,
        };
        if waits {
            self.new_waiters.note(task.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TaskId {
        crate::id::DriverId::from_bytes([1; 16]).task(number)
    }

    #[test]
    fn a_flood_is_anybody() {
        let mut noted = NewWaiters::default();
        assert!(noted.is_empty());
        for number in 0..MOST_NOTED as u64 {
            noted.note(id(number));
            noted.note(id(number));
        }
        assert!(matches!(&noted, NewWaiters::These(tasks) if tasks.len() == MOST_NOTED));
        let mut all = NewWaiters::These(vec![id(1)]);
        all.append(noted.clone());
        noted.note(id(0));
        assert!(all == NewWaiters::TooMany && noted == NewWaiters::TooMany);
    }
}
