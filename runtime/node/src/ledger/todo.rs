//! What goes into the ledger, and what comes out of it to be done.
//!
//! Owns the types. Must not: do any of it: that is [`Shared::carry_out`](crate::guests::shared::Shared::carry_out)'s.

use std::sync::Arc;

use tokio::time::Instant;
use wasmrun_engine::{ActorInstance, HeldResource, TaskOutput};
use wasmrun_model::fairness::TooManyWaiting;
use wasmrun_model::id::{DriverId, NodeId, TaskId};
use wasmrun_model::scheduler::{Message, Reason};
use wasmrun_model::task::{Attempt, TaskKind, Terms};

use crate::ledger::deadlock::Blocked;
use crate::ledger::entry::{InputSummary, Starter};
use crate::records::actor_ref::ActorRef;
use crate::records::job::Call;
use crate::records::lineage::Ingredients;
use crate::records::object::Reference;
use crate::records::task::{Report, TaskCell};
use crate::records::wait::Countdown;

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
    /// As many of its tenant wait as may.
    #[error(transparent)]
    Waiting(#[from] TooManyWaiting),
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
    pub end: Vec<Ended>,
    /// Attempts of these have ended, and others follow.
    pub retried: Vec<Ended>,
    /// These are to stop.
    pub stop: Vec<Arc<TaskCell>>,
    /// These attempts are to stop, and their tasks to be tried again.
    pub preempt: Vec<(Arc<TaskCell>, Attempt)>,
    /// This one was not taken.
    pub refused: Option<Reason>,
    /// Calls that run and whose callers are gone: see [`crate::guests::orphans`].
    pub orphans: Vec<Arc<TaskCell>>,
    /// These have their CPU again.
    pub resume: Vec<Arc<Countdown>>,
    /// When the scheduler is to be told the time, because a tenant may be due CPU.
    pub preempts_at: Option<Instant>,
    /// Tasks here wait for these objects.
    pub fetch: Vec<Arc<TaskCell>>,
    /// What nobody needs any more. To drop it may take time, or another lock.
    pub trash: Trash,
}

/// A task that was submitted here, or an attempt of it, that has ended, with what the history says of it.
pub(crate) struct Ended {
    pub cell: Arc<TaskCell>,
    pub report: Box<Report>,
    pub parent: Option<Starter>,
    pub given: Option<Box<InputSummary>>,
}

/// See [`Todo::trash`].
#[derive(Default)]
pub(crate) struct Trash {
    pub(super) calls: Vec<Call>,
    #[expect(
        clippy::vec_box,
        reason = "they come in boxes, and are not moved out of them"
    )]
    pub(super) reports: Vec<Box<Report>>,
    pub(super) generations: Vec<ActorInstance>,
    pub(super) references: Vec<Reference>,
    pub(super) outputs: Vec<Arc<TaskOutput>>,
    pub(super) recipes: Vec<Ingredients>,
    pub(super) waits: Vec<Blocked>,
}

impl Trash {
    /// Frees what generations of actors have in memory, before somebody starts who got what they held.
    pub(crate) fn end_generations(&mut self) {
        self.generations.clear();
    }
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
    /// Cancels what this task has left behind there.
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
