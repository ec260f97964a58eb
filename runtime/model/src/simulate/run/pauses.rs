//! Pauses: tasks that run give their CPU to another tenant for a while, and what is left of them comes later. Or all of them
//! comes later: they are stopped, and tried again.
//!
//! Owns what that changes of the run. Must not: decide who pauses or stops, or when it goes on.

use std::cmp::Reverse;

use super::super::trace::{TraceEvent, TraceLine};
use super::super::work::{Stage, TaskKey};
use super::{Finish, Run};
use crate::id::TaskId;
use crate::scheduler::Event;
use crate::task::Attempt;

impl<E, T: FnMut(&TraceLine<'_>) -> Result<(), E>> Run<'_, T> {
    /// A running task pauses at once.
    pub(super) fn pause(&mut self, id: TaskId) -> Result<(), E> {
        let task = TaskKey::of(&id);
        let Stage::Running {
            node,
            attempt,
            alternative,
            ends_ms,
            ..
        } = *self.work.stage(task)
        else {
            panic!("task {task:?} is to pause: {:?}", self.work.stage(task));
        };
        let cpu = self.request(task, alternative).cpu_part();
        let tenant = self.scenario.tasks[task.entry.0 as usize].tenant;
        self.statistics.paused(self.now_ms, tenant, node, &cpu);
        *self.work.stage_mut(task) = Stage::Paused {
            node,
            attempt,
            alternative,
            left_ms: ends_ms.saturating_sub(self.now_ms),
        };
        self.paused.insert(task);
        self.tell(task, TraceEvent::Pause)?;
        let event = Event::Paused { task: id, attempt };
        self.scheduler.note(self.now(), event);
        self.has_paused = true;
        Ok(())
    }

    /// A paused task has its CPU again.
    pub(super) fn go_on(&mut self, task: TaskKey) -> Result<(), E> {
        let Stage::Paused {
            node,
            attempt,
            alternative,
            left_ms,
        } = *self.work.stage(task)
        else {
            panic!("task {task:?} goes on: {:?}", self.work.stage(task));
        };
        let cpu = self.request(task, alternative).cpu_part();
        let tenant = self.scenario.tasks[task.entry.0 as usize].tenant;
        self.statistics.resumed(self.now_ms, tenant, node, &cpu);
        self.paused.remove(&task);
        self.starts += 1;
        let (start, at_ms) = (self.starts, self.now_ms + left_ms);
        *self.work.stage_mut(task) = Stage::Running {
            start,
            node,
            attempt,
            alternative,
            ends_ms: at_ms,
        };
        self.finishes.push(Reverse(Finish { at_ms, start, task }));
        self.tell(task, TraceEvent::Resume)
    }

    /// A task that runs or is paused stops at once, to be tried again.
    pub(super) fn preempt(&mut self, id: TaskId, attempt: Attempt) -> Result<(), E> {
        let task = TaskKey::of(&id);
        let entry = &self.scenario.tasks[task.entry.0 as usize];
        let left_ms = match *self.work.stage(task) {
            Stage::Running { ends_ms, .. } => ends_ms.saturating_sub(self.now_ms),
            Stage::Paused { left_ms, .. } => left_ms,
            _ => panic!("task {task:?} is to stop: {:?}", self.work.stage(task)),
        };
        self.lose(task);
        self.statistics
            .preempted(entry.tenant, entry.duration_ms.saturating_sub(left_ms));
        self.tell(task, TraceEvent::Preempt)?;
        let event = Event::Preempted { task: id, attempt };
        self.scheduler.note(self.now(), event);
        self.has_paused = true;
        Ok(())
    }
}
