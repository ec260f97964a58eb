//! A task that has not ended, as the ledger has it besides what the scheduler knows.
//!
//! Owns [`Entry`], and how a task that has waited gets its CPU again ([`Resuming`]). Must not: wake threads.

use std::sync::Arc;

use wasmrun_model::id::{NodeId, ObjectId, OfTask, TaskId};
use wasmrun_model::trace::TraceContext;
use wasmrun_model::wire::TaskRow;

use crate::ledger::todo::Todo;
use crate::records::actor_ref::ActorRef;
use crate::records::job::{Argument, Call};
use crate::records::task::TaskCell;
use crate::records::wait::Countdown;

/// What is known of a task besides what the scheduler knows.
pub(super) struct Entry {
    /// What it is to do; gone once it has started for the last time.
    pub(super) call: Option<Call>,
    pub(super) cell: Arc<TaskCell>,
    /// What started it, if no driver did.
    pub(super) parent: Option<Starter>,
    /// Tasks that it has started, and that those left behind, which are cancelled with it.
    pub(super) children: Vec<TaskId>,
    /// Whether it was told to stop: it starts nothing more.
    pub(super) is_stopped: bool,
    /// Whether it is to have its CPU again.
    pub(super) resuming: Resuming,
    /// The actor that it calls, which lives until then at least.
    pub(super) keeps: Option<ActorRef>,
    /// The node that owns it and has given it to us, if it is not ours.
    pub(super) from: Option<NodeId>,
    /// What lists and the history say of it besides, if there is anything.
    pub(super) given: Option<Box<InputSummary>>,
}

/// An attempt of a task that has started another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Starter {
    pub(crate) task: TaskId,
    /// From 1; 0 if it is not known.
    pub(crate) attempt: u32,
}

/// What a task that was submitted here was given, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputSummary {
    pub(crate) array_index: Option<u64>,
    pub(crate) trace: Option<TraceContext>,
    /// The objects, also those that are there from the start: the first [`TaskRow::MOST_INPUTS`].
    pub(crate) inputs: Vec<ObjectId>,
}

impl InputSummary {
    /// Of a task that is to do this; `None` where there is nothing to say.
    pub(super) fn of(call: &Call) -> Option<Box<Self>> {
        let objects = call.values.iter().filter_map(|value| match value {
            Argument::Object(object) => Some(object.id()),
            Argument::Value(_) => None,
        });
        let inputs: Vec<ObjectId> = objects.take(TaskRow::MOST_INPUTS).collect();
        if call.array_index.is_none() && call.trace.is_none() && inputs.is_empty() {
            return None;
        }
        Some(Box::new(Self {
            array_index: call.array_index,
            trace: call.trace.clone(),
            inputs,
        }))
    }
}

impl OfTask for Entry {
    fn task(&self) -> &TaskId {
        &self.cell.id
    }
}

/// How a task that has waited gets its CPU again. What it waits for ends here, in one step with who gets the CPU
/// of that; the thread that waits hears of it later.
#[derive(Default)]
pub(super) enum Resuming {
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
    pub(super) fn resumes(&mut self) -> Option<Arc<Countdown>> {
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
    pub(super) fn asks(&mut self, resumed: &Arc<Countdown>, todo: &mut Todo) -> bool {
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
    pub(super) fn goes_ahead(&mut self) -> bool {
        match std::mem::replace(self, Self::Ahead) {
            Self::Due { has_cpu: true } => {
                *self = Self::No;
                true
            }
            _ => false,
        }
    }

    /// The task is gone, and its thread is about to notice.
    pub(super) fn abandon(self) -> Option<Arc<Countdown>> {
        match self {
            Self::No | Self::Due { .. } | Self::Ahead => None,
            Self::Asked(resumed) => Some(resumed),
        }
    }
}
