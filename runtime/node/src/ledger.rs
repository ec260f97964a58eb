//! The node's tasks: the scheduler that decides, and what each task is to do.
//!
//! Owns the one lock under which events go into the scheduler and its effects are carried out as
//! far as that takes no time: what is left to do outside the lock comes back as [`Todo`]. Must not:
//! run tasks, or decide anything itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmrun_engine::{ActorInstance, HeldResource, TaskOutput};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, JobId, NodeId, ObjectId, OfTask, TaskId, TaskMap};
use wasmrun_model::resource::NodeResources;
use wasmrun_model::scheduler::{Config, Event, Message, NewWaiters, NodeInfo, Reason, Scheduler};
use wasmrun_model::task::{Attempt, Phase as State, TaskKind, TaskSpec, Terms};
use wasmrun_model::time::Instant as ModelInstant;

pub(crate) use self::groups::{GroupNews, GroupRecord, MOST_GROUPS, OwnGroup, RecordedGroup};
pub(crate) use self::outbox::{Outbound, Outbox};

use self::arguments::{Tie, has_failed, needs};
use self::behind::Behind;
use self::groups::Groups;
use crate::ledger::deadlock::{Blocked, BlockedTasks};
use crate::records::actor::{ActorCell, ActorRef};
use crate::records::dead::DeadActors;
use crate::records::lineage::{Kept, Lineage};
use crate::records::object::Reference;
use crate::records::task::{Call, Report, TaskCell, Work};
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
    behind: Behind,
    /// A new attempt of another node's task, to take the place of the one that is here.
    incoming: Option<Box<Entry>>,
    /// Attempts that wait for others.
    pub(crate) blocked: BlockedTasks,
    /// Placement groups that were created here.
    groups: Groups,
    /// Actors that live: their creations count as running, and wait for nobody.
    living: usize,
    /// The node whose loss is being dealt with.
    losing: Option<NodeId>,
    /// Actors of ours that have failed.
    pub(crate) dead: DeadActors,
    /// Moves with every start, end and wait.
    pub(crate) changes: u64,
    /// What is counted for whoever watches.
    pub(crate) counts: Counts,
}

/// What people call a node.
pub(crate) type NodeNames = Box<dyn Fn(NodeId) -> String + Send>;

/// What a ledger counts for whoever watches. All of it only grows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Attempts after which the task was tried again.
    pub(crate) retried: u64,
    /// Lives of actors that began.
    pub(crate) born: u64,
    /// Lives that ended and were followed by another.
    pub(crate) restarted: u64,
}

/// What is known of a task besides what the scheduler knows.
struct Entry {
    /// What it is to do; gone once it has started for the last time.
    call: Option<Call>,
    cell: Arc<TaskCell>,
    /// The task that started it.
    parent: Option<TaskId>,
    /// Tasks that it has started, and that those left behind, which are cancelled with it.
    children: Vec<TaskId>,
    /// Whether it was told to stop: it starts nothing more.
    is_stopped: bool,
    /// Whether it is to have its CPU again.
    resuming: Resuming,
    /// The actor that it calls, which lives until then at least.
    keeps: Option<ActorRef>,
    /// The node that owns it and has given it to us, if it is not ours.
    from: Option<NodeId>,
}

impl OfTask for Entry {
    fn task(&self) -> &TaskId {
        &self.cell.id
    }
}

/// How a task that has waited gets its CPU again. What it waits for ends here, in one step with who gets the CPU
/// of that; the thread that waits hears of it later.
#[derive(Default)]
enum Resuming {
    /// It has its CPU, or waits for others.
    #[default]
    No,
    /// What it waits for has ended, and its thread has not heard of that.
    Due {
        /// Whether it has its CPU by now.
        has_cpu: bool,
    },
    /// Its thread waits for the CPU.
    Asked(Arc<Countdown>),
    /// Its thread has gone on without the CPU: the time was up that it wanted to wait.
    Ahead,
}

impl Resuming {
    /// It has its CPU again. Who is to be told so.
    fn resumes(&mut self) -> Option<Arc<Countdown>> {
        match std::mem::take(self) {
            Self::No | Self::Ahead => None,
            Self::Due { .. } => {
                *self = Self::Due { has_cpu: true };
                None
            }
            Self::Asked(resumed) => Some(resumed),
        }
    }

    /// Its thread asks for the CPU: false if the scheduler is still to be told.
    fn asks(&mut self, resumed: &Arc<Countdown>, todo: &mut Todo) -> bool {
        match self {
            Self::Due { has_cpu: true } => {
                *self = Self::No;
                todo.resume.push(resumed.clone());
                true
            }
            before => matches!(
                std::mem::replace(before, Self::Asked(resumed.clone())),
                Self::Due { .. }
            ),
        }
    }

    /// Its thread waits no more, whether it has the CPU or not. Whether it has.
    fn goes_ahead(&mut self) -> bool {
        match std::mem::replace(self, Self::Ahead) {
            Self::Due { has_cpu: true } => {
                *self = Self::No;
                true
            }
            _ => false,
        }
    }

    /// The task is gone, and its thread is about to notice.
    fn abandon(self) -> Option<Arc<Countdown>> {
        match self {
            Self::No | Self::Due { .. } | Self::Ahead => None,
            Self::Asked(resumed) => Some(resumed),
        }
    }
}

/// A new task.
pub(crate) struct Submission {
    pub(crate) driver: DriverId,
    /// The task that submits it, if it is not the driver itself.
    pub(crate) parent: Option<TaskId>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) kind: TaskKind,
    pub(crate) call: Call,
    pub(crate) cell: Arc<TaskCell>,
    /// The actor that it calls.
    pub(crate) keeps: Option<ActorRef>,
    /// The number of its first attempt here: higher than all that there may have been before.
    pub(crate) first: Attempt,
}

/// Why a task cannot be submitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It can never run: no node has what it asks for, or the one node it names is not there.
    #[error("{0}")]
    Unschedulable(Reason),
    /// The node is stopping.
    #[error("the node is stopping and takes no more tasks")]
    Stopping,
    /// The task that starts it was stopped.
    #[error("the task that starts it was cancelled or stopped, and may start nothing more")]
    Stopped,
}

/// What is left to do when the lock is released. [`Shared::tell`](crate::guests::shared::Shared::tell) does it.
#[derive(Default)]
#[must_use]
pub(crate) struct Todo {
    /// These have what they asked for: run them.
    pub start: Vec<Start>,
    /// These have ended: tell who waits for them.
    pub end: Vec<(Arc<TaskCell>, Box<Report>)>,
    /// These are to stop.
    pub stop: Vec<Arc<TaskCell>>,
    /// This one was not taken.
    pub refused: Option<Reason>,
    /// Calls that run and whose callers are gone: see [`crate::orphans`].
    pub orphans: Vec<Arc<TaskCell>>,
    /// These have their CPU again.
    pub resume: Vec<Arc<Countdown>>,
    /// Tasks here wait for these objects.
    pub fetch: Vec<Arc<TaskCell>>,
    /// What nobody needs any more. To drop it may take time, or another lock.
    pub trash: Trash,
}

/// See [`Todo::trash`].
#[derive(Default)]
pub(crate) struct Trash {
    calls: Vec<Call>,
    #[expect(
        clippy::vec_box,
        reason = "they come in boxes, and are not moved out of them"
    )]
    reports: Vec<Box<Report>>,
    lives: Vec<ActorInstance>,
    references: Vec<Reference>,
    outputs: Vec<Arc<TaskOutput>>,
    recipes: Vec<Kept>,
    waits: Vec<Blocked>,
}

/// What another node is told.
pub(crate) enum Outgoing {
    /// What its scheduler needs to know.
    Message(Message),
    /// The same, and what the task that it is to run is to do.
    Place(Message, Arc<TaskCell>, Call),
    /// The same, and what came of the attempt, unless that was said before.
    Settled(Message, Option<Box<Report>>),
    /// A task of its has ended here and has left something behind, or that is over.
    LeftBehind(TaskId, bool),
    /// What this task of ours has left there is to end.
    EndLeft(TaskId),
}

/// A task that another node gives to this one.
pub(crate) struct Incoming {
    pub(crate) from: NodeId,
    pub(crate) call: Call,
    pub(crate) cell: Arc<TaskCell>,
}

/// A task that can run.
pub(crate) struct Start {
    pub call: Call,
    pub cell: Arc<TaskCell>,
    pub attempt: Attempt,
    pub held: Vec<HeldResource>,
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
            is_stopping: false,
            outbox: Arc::default(),
            is_clustered: false,
            lineage: Lineage::new(0),
            name_of: Box::new(|node| node.to_string()),
            submitting: None,
            incoming: None,
            blocked: BlockedTasks::default(),
            groups: Groups::default(),
            behind: Behind::default(),
            living: 0,
            losing: None,
            dead: DeadActors::default(),
            changes: 0,
            counts: Counts::default(),
        }
    }

    /// What other nodes are to be told.
    pub(crate) fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
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

    /// Whether a task may be submitted: if it lives here already, because another attempt of its parent started it, that
    /// one is it.
    ///
    /// # Errors
    /// When the node or its parent is stopping.
    pub(crate) fn may_submit(
        &self,
        submission: &Submission,
    ) -> Result<Option<Arc<TaskCell>>, SubmitError> {
        let mut parent = submission.parent.iter();
        match () {
            () if self.is_stopping => Err(SubmitError::Stopping),
            () if parent.any(|it| self.is_stopped(it)) => Err(SubmitError::Stopped),
            // A driver never uses an id twice. But another node may have given us the task since its id was looked for.
            () => Ok(self.cell(&submission.cell.id)),
        }
    }

    /// Takes a task. One that this node can never run is refused, unless others can come to help.
    pub(crate) fn submit(&mut self, submission: Submission) -> Todo {
        let Submission {
            driver,
            parent,
            terms,
            kind,
            call,
            cell,
            keeps,
            first,
        } = submission;
        if let Work::Call(actor, _) = &cell.work
            && match actor.is_foreign() {
                true => actor.is_over(),
                // The scheduler knows nothing of it any more.
                false => !self.tasks.contains(&actor.creation()),
            }
        {
            // Dead for good.
            let report = Report::never_ran(&cell, actor.died());
            let mut todo = Todo::default();
            todo.trash.calls.push(call);
            todo.end.push((cell, report));
            return todo;
        }
        let tie = Tie::of(&cell.work, &call).filter(|_| self.is_clustered);
        let terms = match tie {
            Some(_) => match self.stays(&terms) {
                Ok(terms) => terms,
                Err(why) => {
                    let mut todo = Todo::default();
                    let error = TaskError::Unschedulable(why);
                    todo.end
                        .push((cell.clone(), Report::never_ran(&cell, error)));
                    todo.trash.calls.push(call);
                    return todo;
                }
            },
            None => terms,
        };
        if let Work::Create(actor) = &cell.work {
            self.dead.forget(&actor.id);
        }
        let spec = TaskSpec {
            id: cell.id,
            driver,
            job: JobId::from_bytes(*driver.as_bytes()),
            terms,
            kind,
            args: needs(&call),
        };
        // What has failed already will not be told again.
        let lost = spec.args.iter().filter(|needed| !needed.is_local);
        let lost: Vec<ObjectId> = lost
            .map(|needed| needed.object)
            .filter(|it| has_failed(&call, it))
            .collect();
        let entry = Entry {
            call: Some(call),
            cell: cell.clone(),
            parent,
            children: Vec::new(),
            is_stopped: false,
            resuming: Resuming::No,
            keeps,
            from: None,
        };
        if let Some(parent) = parent {
            self.add_child(&parent, cell.id);
        }
        let slot = self.tasks.insert(entry);
        let now = self.at(cell.submitted);
        self.submitting = Some(cell.id);
        let event = match first {
            Attempt::FIRST => Event::Submit(spec),
            first => Event::Resubmit(spec, first),
        };
        self.scheduler.note(now, event);
        self.scheduler.mark(&cell.id, slot);
        for object in lost {
            self.scheduler.note(now, Event::ArgumentFailed(object));
        }
        let mut todo = Todo::default();
        self.carry_out(now, None, &mut todo);
        self.submitting = None;
        if todo.refused.is_some()
            && let Some(entry) = self.tasks.remove(&cell.id)
        {
            // It waits as infeasible, and nobody can help it.
            todo.trash.calls.extend(entry.call);
            self.scheduler.note(now, Event::Cancel(cell.id));
            self.carry_out(now, None, &mut todo);
        }
        todo
    }

    fn add_child(&mut self, parent: &TaskId, child: TaskId) {
        let Some(entry) = self.tasks.get_mut(parent) else {
            return;
        };
        let children = &mut entry.children;
        if children.len() < children.capacity().max(MANY_CHILDREN) {
            return children.push(child);
        }
        // Before more is taken for them: most have ended where a task starts others all its life.
        let mut children = std::mem::take(children);
        children.retain(|child| self.tasks.contains(child));
        children.reserve(children.len().max(MANY_CHILDREN));
        children.push(child);
        if let Some(entry) = self.tasks.get_mut(parent) {
            entry.children = children;
        }
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
        // First the call, which may be made again; then the actor, whose other calls wait or fail.
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
        self.changes += 1;
        self.scheduler.note_run_time(report.ran);
        match &report.result {
            Ok(_) => Event::Finished { task, attempt },
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
        let Some(death) = actor.dies(why, self.id) else {
            return;
        };
        todo.trash.lives.extend(death.instance.map(|it| *it));
        self.living -= usize::from(death.was_here);
        // Of another node\'s actor, that node counts it.
        let is_restart = death.is_followed && !actor.is_foreign();
        self.counts.restarted += u64::from(is_restart);
        self.changes += 1;
        self.tell_standing(actor);
        let event = Event::ActorDied {
            actor: actor.id,
            will_restart: death.is_followed,
        };
        self.scheduler.note(now, event);
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
            self.scheduler.note(now, Event::Blocked { task, attempt });
            if is_decided {
                self.scheduler.note(now, Event::Unblocked { task, attempt });
            }
        }
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

/// How many children a task has before those that have ended are looked for.
const MANY_CHILDREN: usize = 1024;

mod arguments;
mod behind;
mod blocked;
mod circle;
pub(crate) mod deadlock;
mod effects;
pub(crate) mod graph;
mod groups;
mod outbox;
mod peers;
mod questions;
mod search;
pub(crate) mod standstill;
#[cfg(test)]
mod tests;
