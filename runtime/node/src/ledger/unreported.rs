//! Attempts that have ended without a whole report: their node is lost or sent none, or they were generations of actors.
//!
//! Owns what is known of such an attempt all the same. Must not: decide what becomes of its task.

use std::collections::BTreeSet;
use std::time::Duration;

use wasmrun_engine::HeldResource;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};
use wasmrun_model::task::Attempt;

use super::moves::is_move;
use super::{Ended, Ledger, Todo};
use crate::records::task::{Report, TaskCell, Work};

/// A node whose loss is being dealt with.
pub(super) struct Loss {
    pub(super) node: NodeId,
    /// The tasks owned here that were placed there.
    pub(super) had: BTreeSet<TaskId>,
}

impl Ledger {
    /// An attempt came to nothing, and this one follows. `None` if nothing is known of it.
    pub(super) fn retried(
        &mut self,
        task: &TaskId,
        next: Attempt,
        report: Option<Box<Report>>,
    ) -> Option<Ended> {
        let entry = self.tasks.get(task)?;
        let (cell, parent, given) = (entry.cell.clone(), entry.parent, entry.given.clone());
        let error = match &cell.work {
            Work::Create(actor) => {
                let death = actor.death();
                if death.as_ref().is_some_and(is_move) {
                    // Said once, here: it is no failure.
                    actor.set_death(None);
                }
                death
            }
            _ => None,
        };
        let number = next.number().saturating_sub(1);
        let report = self.completed(&cell, number, report, error.as_ref())?;
        Some(Ended {
            cell,
            report,
            parent,
            given,
        })
    }

    /// What came of an attempt that another node ran for us, without a report: it was withdrawn or handed back.
    pub(crate) fn settled_unreported(&mut self, from: NodeId, message: Message) -> Todo {
        let ended = match &message {
            Message::Settled {
                task,
                attempt,
                outcome,
            } if self.scheduler.is_at(task, *attempt, from) => {
                let entry = self.tasks.get(task);
                entry.map(|entry| (entry.cell.clone(), attempt.number(), *outcome))
            }
            _ => None,
        };
        let name = (self.name_of)(from);
        let (cell, attempt, error) = match ended {
            Some((cell, attempt, Outcome::Finished | Outcome::Failed(_))) => {
                let why = format!("node {name} ran it, and sent no report; submit it again");
                (cell, attempt, TaskError::Sandbox(why))
            }
            Some((cell, attempt, Outcome::Cancelled)) => match &cell.work {
                // It is an attempt if the actor has lived there.
                Work::Create(_) => return self.message(from, message),
                // What has become of its actor says why.
                Work::Call(..) => (cell, attempt, TaskError::Cancelled),
                Work::Task(_) | Work::Elsewhere(_) => {
                    let why =
                        format!("node {name}, on which it was, cancelled it and sent no report");
                    (cell, attempt, TaskError::Sandbox(why))
                }
            },
            Some((_, _, Outcome::HandedBack)) | None => return self.message(from, message),
        };
        let mut report = Report::never_ran(&cell, error);
        report.attempt = attempt;
        report.ran_at = Some(from);
        self.settled(from, message, report)
    }

    /// The report of an attempt that has ended, and `error` if nobody has reported how. `None` if it is not known to have begun.
    pub(super) fn completed(
        &mut self,
        cell: &TaskCell,
        attempt: u32,
        report: Option<Box<Report>>,
        error: Option<&TaskError>,
    ) -> Option<Box<Report>> {
        // Another attempt of it may end because of the same loss.
        let lost_with = self.losing.as_mut().filter(|_| report.is_none());
        let lost_with = lost_with.and_then(|it| it.had.remove(&cell.id).then_some(it.node));
        let lived = match &cell.work {
            Work::Create(actor) => actor.take_lived(),
            _ => None,
        };
        if lost_with.is_none() && lived.is_none() {
            return report;
        }
        let error = || match (error, lost_with) {
            (Some(error), _) => error.clone(),
            (None, Some(node)) => {
                let node = (self.name_of)(node);
                TaskError::Sandbox(format!("node {node}, on which it was, is lost"))
            }
            (None, None) => TaskError::Cancelled,
        };
        let mut report = report.unwrap_or_else(|| Report::never_ran(cell, error()));
        report.attempt = attempt;
        report.ran_at = report.ran_at.or(lost_with);
        if lived.is_some() && report.held.is_empty() {
            report.held = asked_for(cell);
        }
        // When a node was lost is not known.
        report.ran = match lost_with {
            Some(_) => Duration::ZERO,
            None => lived.unwrap_or_default(),
        };
        report.waited = report.waited.saturating_sub(lived.unwrap_or(report.ran));
        Some(report)
    }
}

/// What an actor that is gone has held, which has been given back: as much as it asked for first, of units that nobody knows.
fn asked_for(cell: &TaskCell) -> Vec<HeldResource> {
    let first = cell.work.terms().rule.alternatives.first();
    let amounts = first
        .into_iter()
        .flat_map(|request| request.amounts().iter());
    let held = amounts.map(|(name, amount)| HeldResource {
        name: name.clone(),
        amount: amount.steps(),
        units: Vec::new(),
    });
    held.collect()
}
