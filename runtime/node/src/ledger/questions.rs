//! What others ask of the ledger.
//!
//! Owns the answers. Must not: change anything, but for the scheduler's clock where times are shown.

use std::ops::Range;
use std::sync::Arc;

use wasmrun_engine::HeldResource;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, IdPrefix, ObjectId, TaskId};
use wasmrun_model::scheduler::{Event, Explanation};
use wasmrun_model::task::{Cancellation, Phase as State};

use super::effects::parts;
use super::entry::Starter;
use super::{InputSummary, Ledger};
use crate::records::actor_ref::ActorRef;
use crate::records::job::{Argument, Call};
use crate::records::object::{Object, Reference};
use crate::records::task::{TaskCell, Work};

impl Ledger {
    /// How many actors live here.
    pub(crate) fn living(&self) -> usize {
        self.living
    }

    /// The tasks of a driver that have not ended.
    pub(crate) fn of_driver(&self, driver: &DriverId) -> Vec<TaskId> {
        self.scheduler.of_driver(driver).collect()
    }

    /// Those of a driver's tasks that it has submitted itself here, and that have not ended.
    pub(crate) fn submitted_by(&self, driver: &DriverId) -> Vec<Arc<TaskCell>> {
        let tasks = self.scheduler.of_driver(driver);
        let entries = tasks.filter_map(|task| self.tasks.get(&task));
        let own = entries.filter(|it| it.parent.is_none() && it.from.is_none());
        own.map(|entry| entry.cell.clone()).collect()
    }

    /// All tasks that have not ended.
    pub(crate) fn all(&self) -> Vec<TaskId> {
        self.tasks.values().map(|entry| entry.cell.id).collect()
    }

    pub(crate) fn explain(&mut self, task: &TaskId) -> Option<Explanation> {
        // So that the times in it are those of now.
        let now = self.now();
        self.scheduler.note(now, Event::Tick);
        self.scheduler.explain(task)
    }

    /// The objects that a task reads, or needs for its next attempt, and whose bytes are elsewhere.
    pub(crate) fn reads(&self, task: &TaskId) -> Vec<ObjectId> {
        let blocked = self.blocked.get(task).and_then(|it| it.reads);
        let call = self.tasks.get(task).and_then(|it| it.call.as_ref());
        let values = call.into_iter().flat_map(|call| &call.values);
        let elsewhere = values.filter_map(|value| match value {
            Argument::Object(Object(Reference::Task(cell))) => cell.value(),
            _ => None,
        });
        let elsewhere = elsewhere.filter(|value| !value.is_here());
        let needed = elsewhere.filter_map(|value| value.stored_id());
        blocked.into_iter().chain(needed).collect()
    }

    /// Where the task stands that has been ready for the longest.
    pub(crate) fn explain_oldest(&mut self) -> Option<Explanation> {
        let oldest = self.scheduler.in_phase(State::Ready).next()?;
        self.explain(&oldest)
    }

    /// What the node knows of the tasks that have not ended, in no order.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Arc<TaskCell>> {
        self.tasks.values().map(|entry| &entry.cell)
    }

    /// The same of those in these slots, of so many.
    pub(crate) fn cells_in(&self, slots: Range<usize>) -> impl Iterator<Item = &Arc<TaskCell>> {
        self.tasks.values_in(slots).map(|entry| &entry.cell)
    }

    /// How many slots there are for tasks.
    pub(crate) fn slots(&self) -> usize {
        self.tasks.slots()
    }

    /// The [blocks](super::ages) of slots, those first where the youngest tasks may be.
    pub(crate) fn blocks(&self) -> Vec<usize> {
        self.ages.blocks(self.tasks.slots())
    }

    /// The tasks of a job that have not ended.
    pub(crate) fn of_job(&self, job: DriverId) -> Vec<TaskId> {
        let drivers = self.scheduler.drivers();
        let drivers = drivers.filter(|driver| driver.job() == job);
        let tasks = drivers.flat_map(|driver| self.of_driver(&driver));
        tasks.collect()
    }

    /// The same of those whose ids begin so.
    pub(crate) fn cells_with(&self, prefix: IdPrefix) -> impl Iterator<Item = &Arc<TaskCell>> {
        let whole = prefix.whole().map(TaskId::from_bytes);
        let one = whole.and_then(|id| self.tasks.get(&id));
        let all = whole.is_none().then(|| self.tasks.values());
        let all = all.into_iter().flatten().map(|entry| &entry.cell);
        let fit = all.filter(move |cell| prefix.begins(&cell.id));
        one.map(|entry| &entry.cell).into_iter().chain(fit)
    }

    /// What each task that has not ended holds besides its attempt: its arguments, as far as they are not
    /// with the attempt, and the actor that it calls.
    pub(crate) fn holdings(&self) -> impl Iterator<Item = (&[Argument], Option<&ActorRef>)> {
        self.tasks.values().map(|entry| {
            let values = entry.call.as_ref().map_or(&[][..], |call| &call.values);
            (values, entry.keeps.as_ref())
        })
    }

    /// The state of a task that has not ended.
    pub(crate) fn phase(&self, task: &TaskId) -> Option<State> {
        self.scheduler.phase(task)
    }

    /// Whether no attempt runs without waiting for others.
    pub(crate) fn is_still(&self) -> bool {
        self.running() == self.living
    }

    /// Whether a task may not start others: it has ended, or is about to.
    pub(crate) fn is_stopped(&self, task: &TaskId) -> bool {
        self.tasks.get(task).is_none_or(|entry| entry.is_stopped)
    }

    /// A task that has not ended.
    pub(crate) fn cell(&self, task: &TaskId) -> Option<Arc<TaskCell>> {
        self.tasks.get(task).map(|entry| entry.cell.clone())
    }

    /// Whether a task runs here, or is to, for another node.
    pub(crate) fn is_of_other(&self, task: &TaskId) -> bool {
        self.tasks.get(task).is_some_and(|it| it.from.is_some())
    }

    /// What a task that has not ended runs.
    pub(crate) fn work(&self, task: &TaskId) -> Option<&Work> {
        self.tasks.get(task).map(|entry| &entry.cell.work)
    }

    /// Whose a task is that has not ended.
    pub(crate) fn tenant(&self, task: &TaskId) -> Option<&TenantName> {
        let cell = &self.tasks.get(task)?.cell;
        Some(&cell.work.terms().tenant)
    }

    /// What has started a task that lives, if it is not the driver's.
    pub(crate) fn parent(&self, task: &TaskId) -> Option<Starter> {
        self.tasks.get(task)?.parent
    }

    /// What a live task was given, as lists say it, if there is anything to say.
    pub(crate) fn input_summary(&self, task: &TaskId) -> Option<&InputSummary> {
        self.tasks.get(task)?.given.as_deref()
    }

    /// What a live task holds.
    pub(crate) fn holds(&self, task: &TaskId) -> Vec<HeldResource> {
        match self.scheduler.assignment(task) {
            Some(assignment) => parts(&assignment.allocation),
            None => Vec::new(),
        }
    }

    /// What a task is to do, as long as it may be started (again).
    pub(crate) fn call(&self, task: &TaskId) -> Option<&Call> {
        self.tasks.get(task)?.call.as_ref()
    }

    /// What a task has started, as far as it has not ended; others may stand beside that.
    pub(crate) fn children(&self, task: &TaskId) -> &[TaskId] {
        self.tasks.get(task).map_or(&[], |entry| &entry.children)
    }

    /// A task and all that it has started, and so on.
    pub(crate) fn family(&self, task: TaskId) -> Vec<TaskId> {
        let mut family = vec![task];
        let mut at = 0;
        while let Some(task) = family.get(at) {
            // The call that an actor is in the middle of goes on, with all that it needs: to stop it would be to end
            // the actor.
            if let Some(entry) = self.tasks.get(task)
                && !self.is_running_call(task)
            {
                family.extend_from_slice(&entry.children);
            }
            at += 1;
        }
        family.retain(|task| !self.is_running_call(task));
        family
    }

    /// What would come of cancelling a task that was submitted here.
    pub(crate) fn would_cancel(&self, task: &TaskId) -> Cancellation {
        let Some(entry) = self.tasks.get(task) else {
            return Cancellation::Over;
        };
        match entry.cell.work {
            Work::Call(..) if self.is_running_call(task) => Cancellation::RunsOn,
            _ => Cancellation::Cancelled,
        }
    }

    pub(crate) fn is_running_call(&self, task: &TaskId) -> bool {
        let entry = self.tasks.get(task);
        entry.is_some_and(|entry| matches!(entry.cell.work, Work::Call(..)))
            && self.scheduler.assignment(task).is_some()
    }
}
