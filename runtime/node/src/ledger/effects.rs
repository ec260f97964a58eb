//! What the scheduler wants, carried out as far as that takes no time.
//!
//! Owns starts, ends and what failures mean. Must not: run, wake or drop anything: what is left to do is a
//! [`Todo`].

use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::HeldResource;
use wasmrun_model::cluster::{Strategy, Unschedulable};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::resource::Allocation;
use wasmrun_model::scheduler::{Effect, Event, NodeVerdict, Reason, Tied};
use wasmrun_model::task::{Attempt, FailureKind, Phase as State, Rule};
use wasmrun_model::time::Instant as ModelInstant;

use super::arguments::{Tie, missing};
use super::moves::{is_move, preempted};
use super::{Ended, Entry, Ledger, Resuming, Start, Todo};
use crate::records::actor::ActorCell;
use crate::records::dead::Dead;
use crate::records::job::Call;
use crate::records::object::Reference;
use crate::records::task::{Report, TaskCell, Work};

impl Ledger {
    /// Does what the scheduler wants. `report` is of the attempt that has just ended, if one has.
    pub(super) fn carry_out(
        &mut self,
        now: ModelInstant,
        mut report: Option<Box<Report>>,
        todo: &mut Todo,
    ) {
        loop {
            self.carry_out_effects(now, &mut report, todo);
            // Only now is it decided who gets what came free: those go first who waited for what has ended.
            if !self.scheduler.dispatch() {
                break;
            }
        }
        todo.preempts_at = self.preempts_at();
        self.blocked.activity().note();
        // It came too late for its task.
        todo.trash.reports.extend(report);
    }

    fn carry_out_effects(
        &mut self,
        now: ModelInstant,
        report: &mut Option<Box<Report>>,
        todo: &mut Todo,
    ) {
        while let Some(effect) = self.scheduler.poll_effect() {
            match effect {
                Effect::Dispatch {
                    task,
                    attempt,
                    mark,
                    ..
                } => {
                    self.changes += 1;
                    todo.start.push(self.start(&task, attempt, mark));
                }
                Effect::Stop { task, .. } => self.stop_task(now, &task, todo),
                Effect::Ended {
                    task,
                    attempt,
                    phase,
                    why,
                } => {
                    let of_task = report.take_if(|report| report.id == task);
                    if self.is_clustered
                        && let Some(report) = &of_task
                    {
                        self.note_recipe(&task, attempt, report, todo);
                    }
                    let why = why.map(|why| *why);
                    self.end(now, (&task, attempt), phase, why, of_task, todo);
                }
                // It waits for a node that can.
                Effect::Infeasible { .. } if self.is_clustered => {}
                Effect::Infeasible { why, .. } => todo.refused = Some(*why),
                // What has failed is tried again: nobody hears of the attempt.
                Effect::Retried { task, attempt } => {
                    self.counts.retried += 1;
                    let of_task = report.take_if(|report| report.id == task);
                    todo.retried.extend(self.retried(&task, attempt, of_task));
                }
                Effect::Pause { task, attempt } => self.pauses.ask(task, attempt),
                Effect::Preempt { task, attempt } => self.preempt(now, &task, attempt, todo),
                Effect::Resume { task, .. } => {
                    let entry = self.tasks.get_mut(&task);
                    todo.resume
                        .extend(entry.and_then(|entry| entry.resuming.resumes()));
                }
                Effect::Fetch { task, objects } => self.fetch(&task, &objects, todo),
                Effect::Send { to, message } => self.send(to, *message, report, todo),
                Effect::GroupChanged(group) => self.group_changed(group),
            }
        }
    }

    /// What a call of an actor gets that has died, or lived at a node that is lost: which of these an actor of another
    /// node's came to is known there, perhaps later than here.
    fn died(&self, actor: &ActorCell) -> TaskError {
        match (actor.died(), &self.losing) {
            (TaskError::ActorDied { actor, cause: None }, Some(loss)) => {
                let node = (self.name_of)(loss.node);
                let why = format!("node {node}, on which it lived, is lost");
                let cause = Some(Box::new(TaskError::Sandbox(why)));
                TaskError::ActorDied { actor, cause }
            }
            (died, _) => died,
        }
    }

    /// The report of a task that was stopped because of its placement group, or its actor's, says so.
    pub(super) fn say_why_stopped(&self, report: &mut Report) {
        // A call is stopped before or after its actor is known to end.
        let (Err(TaskError::Cancelled) | Err(TaskError::ActorDied { cause: None, .. })) =
            &report.result
        else {
            return;
        };
        let why = match self.work(&report.id) {
            Some(Work::Call(actor, _)) => {
                let why = self.group_ended(&actor.creation());
                why.map(|why| TaskError::ActorDied {
                    actor: actor.id,
                    cause: Some(Box::new(why)),
                })
            }
            _ => self.group_ended(&report.id),
        };
        if let Some(why) = why {
            report.result = Err(why);
        }
    }

    /// What a task fails with that must stop because its placement group has ended.
    pub(super) fn group_ended(&self, task: &TaskId) -> Option<TaskError> {
        match self.scheduler.why_stopped(task)? {
            why @ (Reason::GroupRemoved(_) | Reason::GroupLost(_) | Reason::BundleLost(_)) => {
                Some(TaskError::Unschedulable(why.to_string()))
            }
            _ => None,
        }
    }

    /// An attempt must stop so that another tenant gets what it holds, if its task can be begun once more: what has read its
    /// input cannot be given it again. An actor leaves at once.
    fn preempt(&mut self, now: ModelInstant, task: &TaskId, attempt: Attempt, todo: &mut Todo) {
        let Some(entry) = self.tasks.get(task) else {
            return;
        };
        if let Work::Create(actor) = &entry.cell.work {
            let actor = actor.clone();
            return self.move_actor(now, (*task, attempt), &actor, todo);
        }
        if entry.call.is_some() && !self.is_stopping {
            todo.preempt.push((entry.cell.clone(), attempt));
        }
    }

    /// The report of an attempt that was stopped for another tenant says so. One without a number never ran: its node stops.
    pub(super) fn say_why_preempted(&self, attempt: Attempt, report: &mut Report) {
        if let Err(TaskError::Cancelled) = &report.result
            && report.attempt > 0
            && let Some(why) = self.scheduler.why_preempted(&report.id, attempt)
        {
            report.result = Err(preempted(why));
        }
    }

    /// A task that runs, or an actor that lives, must stop.
    fn stop_task(&mut self, now: ModelInstant, task: &TaskId, todo: &mut Todo) {
        let group_ended = self.group_ended(task);
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        let cell = entry.cell.clone();
        if let Work::Call(actor, _) = &cell.work
            && !actor.is_ending()
        {
            // The actor would end with it.
            return todo.orphans.push(cell);
        }
        entry.is_stopped = true;
        if let Work::Create(actor) = &cell.work {
            match actor.is_foreign() {
                true => actor.stop_generation(),
                false => drop(actor.ends()),
            }
            match actor.current().filter(|call| !call.has_ended()) {
                // What the actor holds is somebody else's only when its guest has stopped.
                Some(call) => todo.stop.push(call),
                None => self.dies(now, &actor.clone(), group_ended, todo),
            }
        }
        todo.stop.push(cell);
    }

    /// A task has ended for good.
    fn end(
        &mut self,
        now: ModelInstant,
        (task, attempt): (&TaskId, Attempt),
        phase: State,
        why: Option<Reason>,
        mut report: Option<Box<Report>>,
        todo: &mut Todo,
    ) {
        let is_new = self.submitting == Some(*task) && phase == State::Failed;
        let Some(entry) = self.tasks.remove(task) else {
            todo.trash.reports.extend(report);
            return;
        };
        let Entry {
            call,
            cell,
            resuming,
            keeps,
            parent,
            children,
            given,
            ..
        } = entry;
        self.pauses.forget(task);
        self.leave_to_parent(*task, parent, children);
        todo.resume.extend(resuming.abandon());
        todo.trash.references.extend(keeps.map(Reference::Actor));
        let tie = call.as_ref().and_then(|call| Tie::of(&cell.work, call));
        let why = why.map(|why| match tie {
            Some(tie) => self.say_what_ties(why, &cell.work.terms().rule, tie),
            None => why,
        });
        let error = match (&why, &cell.work) {
            (Some(Reason::ArgumentFailed(object)), _) => {
                Some(missing(call.as_ref(), object, &self.name_of).unwrap_or(TaskError::Cancelled))
            }
            (Some(Reason::ActorDied(_)), Work::Call(actor, _)) => Some(self.died(actor)),
            (Some(_), _) if is_new => {
                todo.refused = why;
                todo.trash.calls.extend(call);
                return;
            }
            (Some(why), _) => Some(TaskError::Unschedulable(why.to_string())),
            (None, _) => None,
        };
        let (driver, is_driven) = (&cell.driver, parent.is_none());
        let ended = self.started + Duration::from_micros(now.as_micros());
        match cell.is_given_up() {
            true => self.jobs.refused(driver, is_driven, ended),
            false => self.jobs.ended(driver, is_driven, phase, ended),
        }
        todo.trash.calls.extend(call);
        if let Work::Create(actor) = &cell.work {
            let death = report.as_ref().and_then(|it| it.result.as_ref().err());
            let death = death.filter(|it| !is_move(it)).or(error.as_ref()).cloned();
            self.actor_ended(now, actor, (&cell, phase), death, todo);
        }
        let is_running = report.is_none() && cell.is_running();
        if is_running {
            // Its executor does not know yet that nobody wants what it does.
            todo.stop.push(cell.clone());
        }
        // Its node was told to stop it, because of that.
        if let (Some(report), Some(Reason::ActorDied(_)), Some(error)) = (&mut report, &why, &error)
            && matches!(report.result, Err(TaskError::Cancelled))
        {
            report.result = Err(error.clone());
        }
        let report = self.final_report(&cell, (attempt, phase), report, error);
        self.unblock_waiters(now, &cell, todo);
        todo.end.push(Ended {
            cell,
            report,
            parent,
            given,
        });
    }

    /// The report of a task that has ended so: its executor's, completed, or one that says that it never ran.
    fn final_report(
        &mut self,
        cell: &Arc<TaskCell>,
        (attempt, phase): (Attempt, State),
        report: Option<Box<Report>>,
        error: Option<TaskError>,
    ) -> Box<Report> {
        let report = self.completed(cell, attempt.number(), report, error.as_ref());
        let error = error.unwrap_or(TaskError::Cancelled);
        let mut report = report.unwrap_or_else(|| Report::never_ran(cell, error));
        if phase == State::Cancelled {
            report.cancel();
        }
        report
    }

    /// The creation of an actor has ended for good, and the actor with it.
    fn actor_ended(
        &mut self,
        now: ModelInstant,
        actor: &Arc<ActorCell>,
        (creation, phase): (&TaskCell, State),
        death: Option<TaskError>,
        todo: &mut Todo,
    ) {
        actor.ends();
        self.bury(actor, death, todo);
        if phase == State::Failed {
            self.remember(actor, creation);
        }
        self.tell_standing(actor);
        let event = Event::ActorDied {
            actor: actor.id,
            will_restart: false,
        };
        self.scheduler.note(now, event);
    }

    /// Nobody has asked for the affinity that keeps a task at this node: what is told is why it has to stay, and whether
    /// another node could run it.
    pub(super) fn say_what_ties(&self, why: Reason, rule: &Rule, tie: Tie) -> Reason {
        let Reason::Unschedulable(Unschedulable::Infeasible { node, why: fit }) = &why else {
            return why;
        };
        let mut rule = rule.clone();
        if let Strategy::NodeAffinity { .. } = rule.strategy {
            rule.strategy = Strategy::Default;
        }
        let others = self.scheduler.cluster().len().saturating_sub(1);
        Reason::Tied(Box::new(Tied {
            here: NodeVerdict {
                node: node.clone(),
                fit: fit.clone(),
            },
            elsewhere: self.scheduler.could_serve(&rule).cloned().ok_or(others),
            tie: tie.said(node),
            remedy: tie.remedy(),
        }))
    }

    /// Why an actor of ours has failed can be asked for a while.
    fn remember(&mut self, actor: &ActorCell, creation: &TaskCell) {
        let death = actor.death().filter(|why| *why != TaskError::Cancelled);
        let Some(why) = death.filter(|_| !actor.is_foreign()) else {
            return;
        };
        let lived_at = actor.lived_at();
        let elsewhere = lived_at.filter(|node| *node != actor.name().owner);
        let node = elsewhere.map(|node| (self.name_of)(node));
        self.dead.add(Dead {
            id: actor.id,
            name: actor.public_name().map(ToOwned::to_owned),
            class: actor.face.class.clone(),
            tenant: actor.tenant().clone(),
            driver: creation.driver,
            submitted: creation.submitted,
            has_lived: lived_at.is_some(),
            node,
            why: why.in_short(),
        });
    }

    /// There will be no other generation of an actor on this node.
    pub(super) fn bury(&mut self, actor: &ActorCell, why: Option<TaskError>, todo: &mut Todo) {
        if actor.is_here() {
            self.living -= 1;
        }
        let remains = actor.buried(why);
        todo.trash
            .generations
            .extend(remains.instance.map(|it| *it));
        todo.trash.outputs.extend(remains.output);
        // Actors may refer to each other.
        todo.trash.references.extend(actor.handles.clear());
    }

    /// Starts a task, which is in this slot, or has moved.
    fn start(&mut self, task: &TaskId, attempt: Attempt, slot: u32) -> Start {
        let held = self.held_resources(task);
        let slot = self.tasks.find_at(task, slot);
        let slot = slot.expect("a live task has an entry");
        self.tasks.expect(task, slot);
        let entry = self.tasks.at_mut(slot).expect("what was found");
        // What may be tried again is kept, as far as it can be read twice.
        let retries = match &entry.cell.work {
            Work::Task(job) => job.terms.retries,
            // What its constructor gets is the actor's.
            Work::Create(_) => 1,
            Work::Call(actor, _) => actor.face.call_terms.retries,
            Work::Elsewhere(_) => unreachable!("it is run by its owner"),
        };
        let again = match retries {
            0 if !self.is_clustered => None,
            _ => entry.call.as_ref().and_then(Call::try_clone),
        };
        let call = std::mem::replace(&mut entry.call, again);
        // The attempt before this one may have left something.
        entry.resuming = Resuming::No;
        Start {
            call: call.expect("a task that is started has something to do"),
            cell: entry.cell.clone(),
            attempt,
            held,
        }
    }

    fn held_resources(&self, task: &TaskId) -> Vec<HeldResource> {
        let assignment = self
            .scheduler
            .assignment(task)
            .expect("a dispatched task holds");
        parts(&assignment.allocation)
    }

    /// Whether a failure is the task's own. A guest's typed error is an answer unless its terms say otherwise, and bad
    /// arguments stay bad; what has read its input to the end cannot be given it again.
    pub(super) fn kind_of(&self, task: &TaskId, error: &TaskError) -> FailureKind {
        let entry = self.tasks.get(task);
        let has_call = entry.is_some_and(|entry| entry.call.is_some());
        let is_on_error = || {
            entry.is_some_and(|entry| match &entry.cell.work {
                Work::Task(job) => job.terms.retry_on_error,
                _ => false,
            })
        };
        match error {
            TaskError::Guest { .. } if has_call && is_on_error() => FailureKind::Retryable,
            TaskError::Guest { .. } | TaskError::Arguments(_) | TaskError::Cancelled => {
                FailureKind::Final
            }
            TaskError::Dependency { .. }
            | TaskError::ActorDied { .. }
            | TaskError::Unschedulable(_) => FailureKind::Final,
            _ if !has_call => FailureKind::Final,
            TaskError::Trap { .. }
            | TaskError::Exit { .. }
            | TaskError::Limit { .. }
            | TaskError::Sandbox(_) => FailureKind::Retryable,
            // The scheduler counts none of its retries for it.
            TaskError::Preempted { .. } => FailureKind::Retryable,
            // Its owner has tried to have it reconstructed.
            TaskError::Lost(_) | TaskError::Gone { .. } => FailureKind::Final,
        }
    }
}

/// What is given out, resource by resource.
pub(super) fn parts(allocation: &Allocation) -> Vec<HeldResource> {
    let parts = allocation.iter().map(|(name, part)| HeldResource {
        name: name.clone(),
        amount: part.amount().steps(),
        units: part
            .ids()
            .map(|(id, amount)| (id.get(), amount.steps()))
            .collect(),
    });
    parts.collect()
}
