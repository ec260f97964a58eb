//! The parts of a task's record that stand alone.
//!
//! Owns the slot number, the sequence number, the owner, and what a record begins with and leaves behind. Must not: decide
//! anything.

use std::sync::Arc;

use smallvec::SmallVec;

use super::class::ClassIx;
use super::explain::Reason;
use crate::fairness::TenantIx;
use crate::id::{DriverId, JobId, NodeId, TaskId};
use crate::task::{Argument, Assignment, Attempt, Phase, TaskKind, TaskState, Terms};

/// The slot of a live task. Reused when the task has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskIx(pub(crate) u32);

/// Where a task stands in the order of submission to this scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Sequence(pub(crate) u64);

/// Who gave a task to this scheduler, and hears of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A client or task here.
    Here,
    /// Another node, which keeps the task's retries.
    Peer(NodeId),
}

/// What was counted as taken at a peer when a task was given to it: which says so itself from its next view on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerClaim {
    /// The last view of the peer by then.
    pub version: u64,
    /// For which of the variants.
    pub alternative: u16,
}

/// How a task that an executor has will end, whatever it does until it stops.
#[derive(Debug)]
pub(crate) struct Doom {
    pub phase: Phase,
    pub why: Option<Reason>,
}

/// A task that has ended, for the messages about its end.
#[derive(Debug)]
pub(crate) struct Gone {
    pub id: TaskId,
    pub attempt: Attempt,
    pub owner: Owner,
    pub tenant: TenantIx,
    /// The state that it was in.
    pub phase: Phase,
    pub is_in_line: bool,
    /// What it held.
    pub assignment: Option<Box<Assignment>>,
}

/// What a new task's record starts with.
pub(crate) struct NewTask {
    pub id: TaskId,
    pub terms: Arc<Terms>,
    pub job: JobId,
    pub driver: DriverId,
    pub kind: TaskKind,
    pub owner: Owner,
    pub class: ClassIx,
    pub tenant: TenantIx,
    pub attempt: Attempt,
    pub hops: u8,
    pub args: SmallVec<[Argument; 0]>,
    pub state: TaskState,
}

impl NewTask {
    /// How often it may be tried again. How often an actor is started again is counted with the actor.
    pub(crate) fn retries(&self) -> u32 {
        match self.kind {
            TaskKind::Actor(_) => 0,
            TaskKind::Task | TaskKind::Call { .. } => self.terms.retries,
        }
    }
}
