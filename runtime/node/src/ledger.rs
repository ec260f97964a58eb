//! The node's tasks: the scheduler that decides, and what each task is to do.
//!
//! Owns the one lock under which events go into the scheduler and its effects are carried out as
//! far as that takes no time: what is left to do outside the lock comes back as [`Todo`]. Must not:
//! run tasks, or decide anything itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmrun_engine::ActorInstance;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, ObjectId, TaskId, TaskMap};
use wasmrun_model::resource::NodeResources;
use wasmrun_model::scheduler::{Config, Event, NewWaiters, NodeInfo, Scheduler};
use wasmrun_model::task::{Attempt, Phase as State};
use wasmrun_model::time::Instant as ModelInstant;

pub(crate) use self::entry::InputSummary;
pub(crate) use self::groups::{GroupNews, GroupRecord, MOST_GROUPS, OwnGroup, RecordedGroup};
pub(crate) use self::moves::MOST_INLINE;
pub(crate) use self::outbox::{Outbound, Outbox};
pub use self::todo::SubmitError;
pub(crate) use self::todo::{Ended, Incoming, Outgoing, Start, Submission, Todo};

use self::ages::Ages;
use self::estates::Estates;
use self::groups::Groups;
use self::moves::is_move;
pub(crate) use self::pauses::Pauses;
use crate::ledger::deadlock::{Blocked, BlockedTasks};
use crate::ledger::entry::{Entry, Resuming};
use crate::ledger::jobs::Jobs;
use crate::ledger::unreported::Loss;
use crate::records::actor::ActorCell;
use crate::records::dead::DeadActors;
use crate::records::lineage::Lineage;
use crate::records::task::{Report, TaskCell};
use crate::records::wait::Countdown;

/// The id of a node that is alone in its process: nobody else has to tell it from others.
pub(crate) const LOCAL: NodeId = NodeId::from_bytes([0; 16]);

/// The tasks of a node that have not ended.
pub(crate) struct Ledger {
    scheduler: Scheduler,
    /// The node.
    id: NodeId,
    started: Instant,
    tasks: TaskMap<Entry>,
    /// What lists have seen of their ages.
    pub(crate) ages: Ages,
    is_stopping: bool,
    /// What other nodes are to be told.
    outbox: Arc<Outbox>,
    /// Whether other nodes may come to help.
    is_clustered: bool,
    lineage: Lineage,
    name_of: NodeNames,
    /// The task that is being submitted.
    submitting: Option<TaskId>,
    /// What tasks have left behind at other nodes, or others' here.
    estates: Estates,
    /// A new attempt of another node's task, to take the place of the one that is here.
    incoming: Option<Box<Entry>>,
    /// Attempts that wait for others.
    pub(crate) blocked: BlockedTasks,
    /// Attempts that are to pause.
    pauses: Arc<Pauses>,
    /// Placement groups that were created here.
    groups: Groups,
    /// Actors that live: their creations count as running, and wait for nobody.
    living: usize,
    /// The node whose loss is being dealt with.
    losing: Option<Loss>,
    /// Actors of ours that have failed.
    pub(crate) dead: DeadActors,
    /// Moves with every start, end and wait.
    pub(crate) changes: u64,
    /// What is counted for whoever watches.
    pub(crate) counts: Counts,
    pub(crate) jobs: Jobs,
}

/// What people call a node.
pub(crate) type NodeNames = Box<dyn Fn(NodeId) -> String + Send>;

/// What a ledger counts for whoever watches. All of it only grows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Attempts after which the task was tried again.
    pub(crate) retried: u64,
    /// Generations of actors that began.
    pub(crate) born: u64,
    /// Generations of actors that ended and were followed by another.
    pub(crate) restarted: u64,
}

impl Ledger {
    /// The ledger of one node that has these resources.
    pub(crate) fn new(node: NodeInfo, resources: NodeResources, max_running: u32) -> Self {
        let id = node.id;
        let mut scheduler = Scheduler::new(Config {
            local: Some(id),
            max_running,
            // Our executor does.
            accepts_all: true,
            recheck: Duration::from_secs(5),
            ..Config::default()
        });
        scheduler.handle(
            ModelInstant::ZERO,
            Event::OwnNode {
                node,
                resources: resources.into(),
            },
        );
        Self {
            scheduler,
            id,
            started: Instant::now(),
            tasks: TaskMap::default(),
            ages: Ages::default(),
            is_stopping: false,
            outbox: Arc::default(),
            is_clustered: false,
            lineage: Lineage::new(0),
            name_of: Box::new(|node| node.to_string()),
            submitting: None,
            incoming: None,
            blocked: BlockedTasks::default(),
            pauses: Arc::default(),
            groups: Groups::default(),
            estates: Estates::default(),
            living: 0,
            losing: None,
            dead: DeadActors::default(),
            changes: 0,
            counts: Counts::default(),
            jobs: Jobs::default(),
        }
    }

    /// Adds a task. Its slot.
    fn insert(&mut self, entry: Entry) -> u32 {
        let slot = self.tasks.insert(entry);
        self.ages.came(slot);
        slot
    }

    /// What other nodes are to be told.
    pub(crate) fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }

    /// The attempts that are to pause.
    pub(crate) fn pauses(&self) -> Arc<Pauses> {
        self.pauses.clone()
    }

    /// When the scheduler is to be told the time, because a tenant may be due CPU.
    pub(crate) fn preempts_at(&self) -> Option<Instant> {
        let at = self.scheduler.preempts_at()?;
        Some(self.started + Duration::from_micros(at.as_micros()))
    }

    /// The node.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// See [`Scheduler::take_new_waiters`].
    pub(crate) fn take_new_waiters(&mut self) -> NewWaiters {
        self.scheduler.take_new_waiters()
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

    /// An attempt of a task has ended.
    pub(crate) fn ended(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        mut report: Box<Report>,
    ) -> Todo {
        let now = self.now();
        self.say_why_stopped(&mut report);
        self.say_why_preempted(attempt, &mut report);
        let mut todo = Todo::default();
        let event = self.end_of(task, attempt, &report, &mut todo);
        self.scheduler.note(now, event);
        self.carry_out(now, Some(report), &mut todo);
        if self.is_clustered {
            self.sweep(&task, &mut todo);
        }
        todo
    }

    /// A call has failed, and its actor is lost with it. Nobody else's call gets its turn in between.
    pub(crate) fn ended_fatally(
        &mut self,
        call: TaskId,
        attempt: Attempt,
        mut report: Box<Report>,
        actor: &Arc<ActorCell>,
    ) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.say_why_stopped(&mut report);
        let group_ended = self.group_ended(&actor.creation());
        let why = group_ended.or_else(|| report.result.clone().err());
        // First the call, which may be retried; then the actor, whose other calls wait or fail.
        let event = self.end_of(call, attempt, &report, &mut todo);
        self.scheduler.note(now, event);
        self.dies(now, actor, why, &mut todo);
        self.carry_out(now, Some(report), &mut todo);
        if self.is_clustered {
            // Where the owner of either is gone, nobody is told of its end.
            self.sweep(&call, &mut todo);
            self.sweep(&actor.creation(), &mut todo);
        }
        todo
    }

    fn end_of(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        report: &Report,
        todo: &mut Todo,
    ) -> Event {
        todo.trash.waits.extend(self.blocked.remove(&task));
        self.pauses.forget(&task);
        self.changes += 1;
        self.scheduler.note_run_time(report.ran);
        match &report.result {
            Ok(_) => Event::Finished { task, attempt },
            Err(TaskError::Preempted { .. }) => Event::Preempted { task, attempt },
            Err(error) => Event::Failed {
                task,
                attempt,
                kind: self.kind_of(&task, error),
            },
        }
    }

    /// The attempt that creates an actor has done so. From now on it holds what it holds for the actor.
    ///
    /// # Errors
    /// Gives the instance back when the actor was ended meanwhile.
    pub(crate) fn born(
        &mut self,
        actor: &Arc<ActorCell>,
        instance: Box<ActorInstance>,
        attempt: Attempt,
    ) -> Result<Todo, Box<ActorInstance>> {
        actor.born(instance, self.id, attempt)?;
        let now = self.now();
        self.living += 1;
        self.counts.born += 1;
        self.changes += 1;
        let event = Event::ActorCreated {
            actor: actor.id,
            node: self.id,
        };
        self.scheduler.note(now, event);
        let mut todo = Todo::default();
        self.carry_out(now, None, &mut todo);
        match actor.is_foreign() {
            true => self.outbox.push(Outbound::Born(actor.clone(), attempt)),
            false => self.tell_standing(actor),
        }
        Ok(todo)
    }

    /// Others are to hear where an actor of ours stands now.
    fn tell_standing(&self, actor: &Arc<ActorCell>) {
        if self.is_clustered && !actor.is_foreign() {
            let stands = Outbound::Stands(actor.clone(), actor.standing());
            self.outbox.push(stands);
        }
    }

    fn dies(
        &mut self,
        now: ModelInstant,
        actor: &Arc<ActorCell>,
        why: Option<TaskError>,
        todo: &mut Todo,
    ) {
        let Some(will_restart) = self.generation_ends(actor, why, todo) else {
            return;
        };
        let event = Event::ActorDied {
            actor: actor.id,
            will_restart,
        };
        self.scheduler.note(now, event);
    }

    /// A generation of an actor has ended. Whether another follows, as far as is known here; `None` if there was none.
    fn generation_ends(
        &mut self,
        actor: &Arc<ActorCell>,
        why: Option<TaskError>,
        todo: &mut Todo,
    ) -> Option<bool> {
        let is_move = why.as_ref().is_some_and(is_move);
        let death = actor.dies(why, self.id)?;
        todo.trash.generations.extend(death.instance.map(|it| *it));
        self.living -= usize::from(death.was_here);
        // Of another node's actor, that node counts it.
        let is_restart = death.is_followed && !actor.is_foreign() && !is_move;
        self.counts.restarted += u64::from(is_restart);
        self.changes += 1;
        self.tell_standing(actor);
        Some(death.is_followed)
    }

    /// What a task makes is there, or will never be.
    pub(crate) fn made(&mut self, object: ObjectId, is_there: bool) -> Todo {
        let now = self.now();
        let event = match is_there {
            true => Event::ArgumentReady(object),
            false => Event::ArgumentFailed(object),
        };
        self.scheduler.note(now, event);
        let mut todo = Todo::default();
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// A running attempt waits for others; its CPU goes to who can use it.
    pub(crate) fn block(&mut self, task: TaskId, attempt: Attempt, blocked: Blocked) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.changes += 1;
        if let Some(entry) = self.tasks.get_mut(&task) {
            let has_cpu = !matches!(entry.resuming, Resuming::Ahead);
            let is_decided = blocked.wait.countdown.is_decided();
            match is_decided {
                // What it waits for has ended just now, and it is about to be told so.
                true => entry.resuming = Resuming::Due { has_cpu },
                false => {
                    entry.resuming = Resuming::No;
                    todo.trash.waits.extend(self.blocked.insert(task, blocked));
                }
            }
            if is_decided && has_cpu {
                return todo;
            }
            self.pauses.forget(&task);
            self.scheduler.note(now, Event::Blocked { task, attempt });
            if is_decided {
                self.scheduler.note(now, Event::Unblocked { task, attempt });
            }
        }
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// An attempt has paused, as it was told to: `resumed` is counted down when it has its CPU again.
    pub(crate) fn paused(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        resumed: &Arc<Countdown>,
    ) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        let known = self.scheduler.task(&task);
        let runs = known.is_some_and(|it| it.attempt == attempt && it.phase == State::Running);
        match self.tasks.get_mut(&task) {
            Some(entry) if runs && matches!(entry.resuming, Resuming::No) => {
                entry.resuming = Resuming::Asked(resumed.clone());
            }
            // It has ended or waited since it was told, and goes on.
            _ => {
                todo.resume.push(resumed.clone());
                return todo;
            }
        }
        self.changes += 1;
        self.scheduler.note(now, Event::Paused { task, attempt });
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// A blocked attempt needs to wait no more: `resumed` is counted down when it has its CPU again.
    pub(crate) fn unblock(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        resumed: &Arc<Countdown>,
    ) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        todo.trash.waits.extend(self.blocked.remove(&task));
        self.changes += 1;
        let is_known = match self.tasks.get_mut(&task) {
            Some(entry) => entry.resuming.asks(resumed, &mut todo),
            None => {
                // It has ended, and is about to notice.
                todo.resume.push(resumed.clone());
                true
            }
        };
        if !is_known {
            self.scheduler.note(now, Event::Unblocked { task, attempt });
            self.carry_out(now, None, &mut todo);
        }
        todo
    }

    /// The time is up that a blocked attempt wanted to wait: it goes on at once, and has its CPU when one is free.
    pub(crate) fn overdue(&mut self, task: TaskId, attempt: Attempt) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        todo.trash.waits.extend(self.blocked.remove(&task));
        self.changes += 1;
        let entry = self.tasks.get_mut(&task);
        // One that is gone is about to notice.
        if entry.is_some_and(|entry| !entry.resuming.goes_ahead()) {
            self.scheduler.note(now, Event::Overdue { task, attempt });
            self.carry_out(now, None, &mut todo);
        }
        todo
    }

    /// A task has ended. Who waited for just that goes on: its thread hears of it soon, and until then nobody who has not
    /// started gets the CPU that came free.
    fn unblock_waiters(&mut self, now: ModelInstant, ended: &TaskCell, todo: &mut Todo) {
        for (task, attempt) in ended.decide() {
            // Else it is about to wait, or to have done with it.
            let Some(blocked) = self.blocked.remove(&task) else {
                continue;
            };
            todo.trash.waits.push(blocked);
            if let Some(entry) = self.tasks.get_mut(&task) {
                entry.resuming = Resuming::Due { has_cpu: false };
                self.scheduler.note(now, Event::Unblocked { task, attempt });
            }
        }
    }

    /// Ends tasks, whether they wait or run.
    pub(crate) fn cancel(&mut self, tasks: &[TaskId]) -> Todo {
        let mut todo = Todo::default();
        self.cancel_too(tasks, &mut todo);
        todo
    }

    /// The same, besides what else there is to do.
    pub(crate) fn cancel_too(&mut self, tasks: &[TaskId], todo: &mut Todo) {
        let now = self.now();
        for task in tasks {
            self.scheduler.note(now, Event::Cancel(*task));
        }
        self.carry_out(now, None, todo);
    }

    /// Ends a task and all that it has started.
    pub(crate) fn cancel_family(&mut self, task: TaskId) -> Todo {
        let family = self.family(task);
        self.end_what_was_left(&family);
        self.cancel(&family)
    }

    fn now(&self) -> ModelInstant {
        self.at(Instant::now())
    }

    fn at(&self, instant: Instant) -> ModelInstant {
        let micros = instant.saturating_duration_since(self.started).as_micros();
        ModelInstant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

pub(crate) mod ages;
mod arguments;
mod blocked;
mod circle;
pub(crate) mod deadlock;
mod effects;
mod entry;
mod estates;
pub(crate) mod graph;
mod groups;
pub(crate) mod jobs;
mod moves;
mod outbox;
mod pauses;
mod peers;
mod questions;
mod recipes;
mod search;
pub(crate) mod standstill;
mod submit;
#[cfg(test)]
mod tests;
mod todo;
mod unreported;
