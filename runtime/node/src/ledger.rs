//! The node's tasks: the scheduler that decides, and what each task is to do.
//!
//! Owns the one lock under which events go into the scheduler and its effects are carried out as
//! far as that takes no time: what is left to do outside the lock comes back as [`Todo`]. Must not:
//! run tasks, or decide anything itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use wasmrun_engine::HeldResource;
use wasmrun_model::cluster::{Labels, NodeName};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, Incarnation, JobId, NodeId, TaskId};
use wasmrun_model::resource::{NodeResources, ResourceName};
use wasmrun_model::scheduler::{Config, Effect, Event, Explanation, NodeInfo, Reason, Scheduler};
use wasmrun_model::task::{Attempt, FailureKind, Phase as State, TaskKind, TaskSpec};
use wasmrun_model::time::Instant as ModelInstant;

use crate::task::{Call, Job, Report, TaskCell};

/// The id of a node that is alone in its process: nobody else has to tell it from others.
pub(crate) const LOCAL: NodeId = NodeId::from_bytes([0; 16]);

/// The tasks of a node that have not ended.
pub(crate) struct Ledger {
    scheduler: Scheduler,
    started: Instant,
    tasks: HashMap<TaskId, Entry>,
    /// The names of resources as guests see them.
    names: HashMap<ResourceName, Arc<str>>,
    is_stopping: bool,
}

/// What is known of a task besides what the scheduler knows.
struct Entry {
    job: Arc<Job>,
    /// What it is to do; gone once it has started for the last time.
    call: Option<Call>,
    cell: Arc<TaskCell>,
}

/// What is left to do when the lock is released.
#[derive(Default)]
pub(crate) struct Todo {
    /// These have what they asked for: run them.
    pub start: Vec<Start>,
    /// These have ended: tell who waits for them.
    pub end: Vec<(Arc<TaskCell>, Report)>,
    /// These are to stop.
    pub stop: Vec<Arc<TaskCell>>,
    /// This one was not taken.
    pub refused: Option<Reason>,
}

/// A task that can run.
pub(crate) struct Start {
    pub job: Arc<Job>,
    pub call: Call,
    pub cell: Arc<TaskCell>,
    pub attempt: Attempt,
    pub held: Vec<HeldResource>,
}

impl Ledger {
    /// The ledger of one node that has these resources.
    pub(crate) fn new(
        name: &NodeName,
        labels: Labels,
        resources: NodeResources,
        max_running: u32,
    ) -> Self {
        let id = LOCAL;
        let mut scheduler = Scheduler::new(Config {
            local: Some(id),
            max_running,
            ..Config::default()
        });
        let total = resources.total();
        let names = total
            .iter()
            .map(|(name, _)| (name.clone(), name.as_str().into()));
        let node = NodeInfo {
            id,
            incarnation: Incarnation::default(),
            name: name.clone(),
            labels,
        };
        let names = names.collect();
        scheduler.handle(ModelInstant::ZERO, Event::OwnNode { node, resources });
        Self {
            scheduler,
            started: Instant::now(),
            tasks: HashMap::new(),
            names,
            is_stopping: false,
        }
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Takes no more tasks.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// How many wait for resources.
    pub(crate) fn waiting(&self) -> usize {
        self.scheduler.len_in(State::Ready)
    }

    /// How many are with the executor.
    pub(crate) fn running(&self) -> usize {
        self.scheduler.len_in(State::Running) + self.scheduler.len_in(State::Dispatching)
    }

    /// Takes a task. One that this node can never run is refused: no other can come to help.
    pub(crate) fn submit(
        &mut self,
        driver: DriverId,
        job: &Arc<Job>,
        call: Call,
        cell: &Arc<TaskCell>,
    ) -> Todo {
        let spec = TaskSpec {
            id: cell.id,
            driver,
            job: JobId::from_bytes(*driver.as_bytes()),
            terms: job.terms.clone(),
            kind: TaskKind::Task,
            args: Vec::new(),
        };
        let entry = Entry {
            job: job.clone(),
            call: Some(call),
            cell: cell.clone(),
        };
        self.tasks.insert(cell.id, entry);
        let now = self.at(cell.submitted);
        self.scheduler.handle(now, Event::Submit(spec));
        let mut todo = Todo::default();
        self.carry_out(now, None, &mut todo);
        if todo.refused.is_some() && self.tasks.remove(&cell.id).is_some() {
            // It waits as infeasible, and nobody can help it.
            self.scheduler.handle(now, Event::Cancel(cell.id));
            self.carry_out(now, None, &mut todo);
        }
        todo
    }

    /// An attempt of a task has ended.
    pub(crate) fn ended(&mut self, task: TaskId, attempt: Attempt, report: Report) -> Todo {
        let now = self.now();
        let event = match &report.result {
            Ok(_) => Event::Finished { task, attempt },
            Err(error) => Event::Failed {
                task,
                attempt,
                kind: self.kind_of(&task, error),
            },
        };
        self.scheduler.handle(now, event);
        let mut todo = Todo::default();
        self.carry_out(now, Some(report), &mut todo);
        todo
    }

    /// Ends tasks, whether they wait or run.
    pub(crate) fn cancel(&mut self, tasks: &[TaskId]) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        for task in tasks {
            self.scheduler.note(now, Event::Cancel(*task));
        }
        self.scheduler.handle(now, Event::Tick);
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// The tasks of a driver that have not ended.
    pub(crate) fn of_driver(&self, driver: &DriverId) -> Vec<TaskId> {
        self.scheduler.of_driver(driver).collect()
    }

    /// All tasks that have not ended.
    pub(crate) fn all(&self) -> Vec<TaskId> {
        self.tasks.keys().copied().collect()
    }

    pub(crate) fn explain(&mut self, task: &TaskId) -> Option<Explanation> {
        // So that the times in it are those of now.
        let now = self.now();
        self.scheduler.note(now, Event::Tick);
        self.scheduler.explain(task)
    }

    /// Where the task stands that has been ready for the longest.
    pub(crate) fn explain_oldest(&mut self) -> Option<Explanation> {
        let oldest = self.scheduler.in_phase(State::Ready).next()?;
        self.explain(&oldest)
    }

    /// Does what the scheduler wants. `report` is of the attempt that has just ended, if one has.
    fn carry_out(&mut self, now: ModelInstant, mut report: Option<Report>, todo: &mut Todo) {
        while let Some(effect) = self.scheduler.poll_effect() {
            match effect {
                Effect::Dispatch { task, attempt, .. } => {
                    // Our executor takes everything.
                    self.scheduler.note(now, Event::Accepted { task, attempt });
                    todo.start.push(self.start(&task, attempt));
                }
                Effect::Stop { task, .. } => {
                    if let Some(entry) = self.tasks.get(&task) {
                        todo.stop.push(entry.cell.clone());
                    }
                }
                Effect::Ended {
                    task, phase, why, ..
                } => {
                    let of_task = |report: &Report| report.id == task;
                    let report = report.take_if(|report| of_task(report));
                    match (self.tasks.remove(&task), why) {
                        (Some(_), Some(why)) => todo.refused = Some(*why),
                        (Some(Entry { cell, .. }), None) => {
                            let mut report = report
                                .unwrap_or_else(|| Report::never_ran(&cell, TaskError::Cancelled));
                            if phase == State::Cancelled {
                                report.cancel();
                            }
                            todo.end.push((cell, report));
                        }
                        (None, _) => {}
                    }
                }
                Effect::Infeasible { why, .. } => todo.refused = Some(*why),
                // What has failed is tried again: nobody hears of the attempt.
                Effect::Retried { .. } => drop(report.take()),
                Effect::Resume { .. }
                | Effect::Fetch { .. }
                | Effect::GroupReady(_)
                | Effect::Send { .. } => {}
            }
        }
    }

    fn start(&mut self, task: &TaskId, attempt: Attempt) -> Start {
        let held = self.held(task);
        let entry = self.tasks.get_mut(task).expect("a live task has an entry");
        // What may be tried again is kept, as far as it can be read twice.
        let again = match entry.job.terms.retries {
            0 => None,
            _ => entry.call.as_ref().and_then(Call::try_clone),
        };
        let call = std::mem::replace(&mut entry.call, again);
        Start {
            job: entry.job.clone(),
            call: call.expect("a task that is started has something to do"),
            cell: entry.cell.clone(),
            attempt,
            held,
        }
    }

    fn held(&self, task: &TaskId) -> Vec<HeldResource> {
        let held = self.scheduler.held(task).expect("a dispatched task holds");
        let parts = held.allocation.iter().map(|(name, part)| HeldResource {
            name: self
                .names
                .get(name)
                .cloned()
                .unwrap_or_else(|| name.as_str().into()),
            amount: part.amount().steps(),
            units: part
                .ids()
                .map(|(id, amount)| (id.get(), amount.steps()))
                .collect(),
        });
        parts.collect()
    }

    /// Whether a failure is the task's own. A guest's typed error is an answer, and bad arguments
    /// stay bad; what has read its input to the end cannot be given it again.
    fn kind_of(&self, task: &TaskId, error: &TaskError) -> FailureKind {
        let has_call = self
            .tasks
            .get(task)
            .is_some_and(|entry| entry.call.is_some());
        match error {
            TaskError::Guest { .. } | TaskError::Arguments(_) | TaskError::Cancelled => {
                FailureKind::Final
            }
            _ if !has_call => FailureKind::Final,
            TaskError::Trap { .. }
            | TaskError::Exit { .. }
            | TaskError::Limit { .. }
            | TaskError::Sandbox(_) => FailureKind::Retryable,
        }
    }

    fn now(&self) -> ModelInstant {
        self.at(Instant::now())
    }

    fn at(&self, instant: Instant) -> ModelInstant {
        let micros = instant.saturating_duration_since(self.started).as_micros();
        ModelInstant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
