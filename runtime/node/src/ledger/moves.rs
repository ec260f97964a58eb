//! Actors that leave this node, so that another tenant gets what they hold.
//!
//! Owns the end of such a generation, and what the owner of the actor hears of it. Must not: choose who leaves, or end a call:
//! the scheduler tells an actor to leave between two calls. The state after the last one is known by then: it is asked for
//! after each call, and is at the owner, or on its way there before all that follows.

use std::sync::Arc;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::{Event, Message, Outcome, PausedFor};
use wasmrun_model::task::Attempt;
use wasmrun_model::time::Instant as ModelInstant;

use super::{Ledger, Todo};
use crate::records::actor::ActorCell;
use crate::records::task::{Report, Work};

/// How many bytes of a state go with the message that tells its actor's owner of it. More is fetched later, while the actor goes
/// on: such an actor does not leave for others.
pub(crate) const MOST_INLINE: usize = 256 << 10;

/// What an attempt ends with that was stopped for another tenant.
pub(super) fn preempted(why: &PausedFor) -> TaskError {
    TaskError::Preempted {
        tenant: Some(why.tenant().clone()),
        why: why.to_string(),
    }
}

impl Ledger {
    /// An actor leaves this node, if it can.
    pub(super) fn move_actor(
        &mut self,
        now: ModelInstant,
        (task, attempt): (TaskId, Attempt),
        actor: &Arc<ActorCell>,
        todo: &mut Todo,
    ) {
        let is_idle = actor.is_here() && actor.current().is_none();
        let is_ending = self.is_stopping || actor.is_ending();
        let may_leave = is_idle && !is_ending && has_owner_state(actor);
        let why = self.scheduler.why_preempted(&task, attempt);
        let Some(why) = why.filter(|_| may_leave).map(preempted) else {
            return self.scheduler.note(now, Event::Stays { task, attempt });
        };
        self.generation_ends(actor, Some(why), todo);
        self.scheduler.note(now, Event::Preempted { task, attempt });
    }

    /// Another node says what came of an attempt of a task owned here. It counts if it was stopped there for another tenant, or
    /// is an actor that has left there.
    pub(super) fn count_stop(&mut self, from: NodeId, message: &Message, report: &Report) {
        if let Message::Settled {
            task,
            attempt,
            outcome: Outcome::HandedBack,
        } = message
            && report.result.as_ref().is_err_and(is_move)
            && self.scheduler.is_at(task, *attempt, from)
        {
            self.scheduler.stopped_elsewhere(task, report.ran);
        }
    }

    /// What the owner of an actor hears of a generation that has left this node: that it is followed by another, and that
    /// this counts as no restart. `None` if it has not left so.
    pub(super) fn why_moved(&self, message: &Message) -> Option<Box<Report>> {
        let Message::Settled {
            task,
            attempt,
            outcome: Outcome::HandedBack,
        } = message
        else {
            return None;
        };
        let cell = &self.tasks.get(task)?.cell;
        let Work::Create(actor) = &cell.work else {
            return None;
        };
        let why = actor.death().filter(is_move)?;
        let lived = actor.take_lived()?;
        actor.set_death(None);
        Some(Box::new(Report {
            ran: lived,
            stderr_tail: actor.stderr_tail(),
            attempt: attempt.number(),
            ..*Report::never_ran(cell, why)
        }))
    }
}

/// Whether this is how a generation ends that leaves for another tenant: no failure.
pub(super) fn is_move(error: &TaskError) -> bool {
    matches!(error, TaskError::Preempted { .. })
}

/// Whether the owner of an actor has its last state before it hears anything that is said from now on.
fn has_owner_state(actor: &ActorCell) -> bool {
    let state = actor.checkpoint();
    !actor.is_foreign() || state.is_none_or(|it| it.state.len() <= MOST_INLINE)
}
