//! What happens to a task between its start and its end.
//!
//! Owns acceptance, blocking, ends, retries and cancelling: whatever gives back what a task holds.
//! Must not: decide who gets it next (`dispatch.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::{ClassIx, ClassKey, Wants};
use super::explain::Reason;
use super::groups::BundleRef;
use super::record::{Doom, Gone, Owner, TaskIx};
use super::{Effect, Outcome, Scheduler};
use crate::cluster::{NodeIx, Strategy};
use crate::fairness::TenantIx;
use crate::id::{DriverId, TaskId};
use crate::resource::{Bundle, NodeResources, ResourceName, ResourceSet};
use crate::task::{
    self, Assignment, Attempt, BlockedOn, FailureKind, Phase, Rule, TaskKind, TaskState,
};

/// Where a task holds something: of a node, or of a bundle there.
pub(super) type Place = (NodeIx, Option<BundleRef>);

/// Who gives something back.
pub(super) struct Holder {
    pub(super) tenant: TenantIx,
    pub(super) rule: Arc<Rule>,
    /// Whether it counts among those that executors have.
    pub(super) needs_slot: bool,
    /// Whether it has its CPU.
    pub(super) has_cpu: bool,
}

impl Scheduler {
    pub(super) fn accepted(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.current(task, attempt) else {
            return;
        };
        match self.tasks[ix].phase() {
            Phase::Dispatching => self.accept(ix),
            _ => self.stale += 1,
        }
    }

    /// The executor has a task that it was given.
    pub(super) fn accept(&mut self, ix: TaskIx) {
        self.change_with(ix, |state| match state {
            TaskState::Dispatching(assignment) => TaskState::Running(assignment),
            other => other,
        });
    }

    pub(super) fn refused(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.current(task, attempt) else {
            return;
        };
        if self.tasks[ix].phase() != Phase::Dispatching {
            self.stale += 1;
            return;
        }
        if self.meet_doom(ix) {
            return;
        }
        if self.tasks[ix].owner != Owner::Here {
            // Its owner numbers the attempts.
            return self.end_with(ix, Phase::Cancelled, Outcome::HandedBack, None);
        }
        let assignment = self.tasks[ix].state().assignment();
        let node = assignment.expect("a dispatched task holds").node;
        // The refused attempt may still answer late; the next one is another.
        self.give_back(ix);
        self.tasks[ix].attempt = attempt.next();
        self.ready_again(ix, node);
    }

    pub(super) fn finished(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        if self.meet_doom(ix) {
            return;
        }
        if matches!(self.tasks[ix].kind, TaskKind::Actor(_)) {
            // The actor lives on, with what it holds, until it dies.
            self.stale += 1;
            return;
        }
        match self.has_heir(ix) {
            true => self.conclude(ix, Phase::Finished, Outcome::Finished, None, true),
            false => self.end(ix, Phase::Finished, None),
        }
    }

    pub(super) fn failed(&mut self, task: &TaskId, attempt: Attempt, kind: FailureKind) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        if !self.meet_doom(ix) {
            self.attempt_failed(ix, kind);
        }
    }

    /// An attempt came to nothing: try again, or give up.
    pub(super) fn attempt_failed(&mut self, ix: TaskIx, kind: FailureKind) {
        let task = &self.tasks[ix];
        // The owner has the retries: it alone decides.
        let is_final = kind == FailureKind::Final || task.retries_left == 0;
        if is_final || task.owner != Owner::Here {
            self.end_with(ix, Phase::Failed, Outcome::Failed(kind), None);
            return;
        }
        self.tasks[ix].retries_left -= 1;
        self.leave_line(ix);
        // At the end of its line: what fails again and again must not keep others from their turn. But the
        // calls of one caller start in the order in which they were made, however often.
        if !matches!(self.tasks[ix].kind, TaskKind::Call { .. }) {
            self.tasks.send_to_back(ix);
        }
        self.retry(ix);
    }

    /// Places a task anew, as another attempt.
    pub(super) fn retry(&mut self, ix: TaskIx) {
        if self.meet_doom(ix) {
            return;
        }
        if self.tasks[ix].owner != Owner::Here {
            // Its owner numbers the attempts.
            return self.end_with(ix, Phase::Cancelled, Outcome::HandedBack, None);
        }
        if self.tasks[ix].phase() == Phase::Dispatching {
            // It was with the executor, so it counts as accepted.
            let (id, attempt) = (self.tasks[ix].id, self.tasks[ix].attempt);
            self.accepted(&id, attempt);
        }
        self.release(ix);
        let task = &mut self.tasks[ix];
        task.attempt = task.attempt.next();
        let (id, attempt) = (task.id, task.attempt);
        self.effects
            .push_back(Effect::Retried { task: id, attempt });
        self.place(ix);
    }

    pub(super) fn blocked(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        if let TaskState::Blocked { on, .. } = self.tasks.state_mut(ix)
            && *on == BlockedOn::Nothing
        {
            // It has gone on without its CPU, and has none to give back.
            *on = BlockedOn::Others;
            return self.leave_line(ix);
        }
        if self.tasks[ix].phase() != Phase::Running {
            self.stale += 1;
            return;
        }
        self.give_cpu_back(ix, BlockedOn::Others);
    }

    /// A running task is blocked from now on, and its CPU is somebody else's.
    pub(super) fn give_cpu_back(&mut self, ix: TaskIx, on: BlockedOn) {
        let task = &self.tasks[ix];
        let (tenant, terms) = (task.tenant, task.terms.clone());
        let TaskState::Running(assignment) = self.tasks.state_mut(ix) else {
            unreachable!("it runs");
        };
        let node = assignment.node;
        let request = &terms.rule.alternatives[usize::from(assignment.alternative)];
        let resources = self.cluster.own_mut(node);
        let had_cpu = !std::mem::take(&mut assignment.lacks_cpu);
        match assignment.bundle {
            _ if !had_cpu => {}
            Some(at) => {
                let allocation = &mut assignment.allocation;
                self.groups.release_cpu(resources, node, at, allocation);
            }
            None => resources.release_cpu(&mut assignment.allocation),
        }
        if had_cpu && assignment.bundle.is_none() {
            self.tenants.refund(tenant, request.cpu_part().amounts());
        }
        self.has_given_back(tenant);
        self.change_with(ix, |state| match state {
            TaskState::Running(assignment) => TaskState::Blocked { assignment, on },
            other => other,
        });
        self.wake(node);
    }

    /// A blocked task needs its CPU again, to go on or (`BlockedOn::Nothing`) because it does already.
    pub(super) fn unblocked(&mut self, task: &TaskId, attempt: Attempt, now_on: BlockedOn) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        let TaskState::Blocked { on, .. } = self.tasks.state_mut(ix) else {
            self.stale += 1;
            return;
        };
        match (*on, now_on) {
            (BlockedOn::Others, _) => *on = now_on,
            (BlockedOn::Cpu, BlockedOn::Nothing) => {
                // It stands in line already.
                *on = now_on;
                return;
            }
            _ => {
                self.stale += 1;
                return;
            }
        }
        if self.tasks[ix].doom.is_some() && !self.may_outlive_doom(ix) {
            return;
        }
        let class = self.resuming_class(ix);
        self.enqueue(ix, class);
    }

    /// The class in whose line a blocked task waits for its CPU.
    pub(super) fn resuming_class(&mut self, ix: TaskIx) -> ClassIx {
        let TaskState::Blocked { assignment, on } = self.tasks[ix].state() else {
            unreachable!("it is blocked");
        };
        let wants = match on {
            BlockedOn::Pause => Wants::Continue,
            BlockedOn::Others | BlockedOn::Cpu | BlockedOn::Nothing => Wants::Resume,
        };
        let cpu = self.request_of(ix, assignment).cpu_part();
        let bound = Some(assignment.node);
        let strategy = assignment
            .bundle
            .map(|(group, bundle)| Strategy::PlacementGroup {
                group,
                bundle: Some(bundle),
            });
        let rule = Rule {
            strategy: strategy.unwrap_or_default(),
            ..Rule::of(cpu)
        };
        self.classes.intern(ClassKey {
            rule: Arc::new(rule),
            bound,
            wants,
        })
    }

    /// Ends a task in whatever state it is.
    pub(super) fn cancel(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        if let (TaskState::Placeable(task::Place::Peer { node, .. }), Owner::Here) =
            (task.state(), task.owner)
        {
            self.withdraw(ix, *node);
        }
        self.doom(ix, Phase::Cancelled, None);
    }

    /// Ends a task for good: at once, or as soon as its executor has let go of it. What it holds
    /// is nobody else's before that.
    pub(super) fn doom(&mut self, ix: TaskIx, phase: Phase, why: Option<Reason>) {
        let task = &self.tasks[ix];
        let Some(assignment) = task.state().assignment() else {
            return self.end(ix, phase, why);
        };
        if task.doom.is_some() {
            self.stale += 1;
            return;
        }
        let stop = Effect::Stop {
            task: task.id,
            attempt: task.attempt,
            node: assignment.node,
        };
        if !self.may_outlive_doom(ix) {
            self.leave_line(ix);
        }
        self.effects.push_back(stop);
        self.tasks[ix].doom = Some(Box::new(Doom { phase, why }));
    }

    /// Whether an executor may let a task that is to stop come to its end: a call, for its actor's sake. It may
    /// have to wait on its way there, and goes on as others do.
    fn may_outlive_doom(&self, ix: TaskIx) -> bool {
        matches!(self.tasks[ix].kind, TaskKind::Call { .. })
    }

    /// The executor has let go of a task: it ends now, if that was decided. True if it was.
    pub(super) fn meet_doom(&mut self, ix: TaskIx) -> bool {
        let Some(doom) = self.tasks[ix].doom.take() else {
            return false;
        };
        self.end(ix, doom.phase, doom.why);
        true
    }

    pub(super) fn cancel_all(&mut self, tasks: &[TaskIx]) {
        tasks.iter().for_each(|ix| self.cancel(*ix));
    }

    pub(super) fn driver_gone(&mut self, driver: DriverId) {
        let tasks: Vec<TaskIx> = self.tasks.of_driver(&driver).collect();
        self.cancel_all(&tasks);
        self.tasks.forget_driver(&driver);
    }

    /// Ends a task: out of all lines, everything given back, everybody told.
    pub(super) fn end(&mut self, ix: TaskIx, phase: Phase, why: Option<Reason>) {
        let outcome = match phase {
            Phase::Finished => Outcome::Finished,
            Phase::Cancelled => Outcome::Cancelled,
            _ => Outcome::Failed(FailureKind::Final),
        };
        self.end_with(ix, phase, outcome, why);
    }

    pub(super) fn end_with(
        &mut self,
        ix: TaskIx,
        phase: Phase,
        outcome: Outcome,
        why: Option<Reason>,
    ) {
        self.conclude(ix, phase, outcome, why, false);
    }

    /// Ends a task. Where it has an heir that gets what it held; nothing else may come of the same event then.
    fn conclude(
        &mut self,
        ix: TaskIx,
        phase: Phase,
        outcome: Outcome,
        why: Option<Reason>,
        has_heir: bool,
    ) {
        let class = self.tasks[ix].class;
        self.leave_line(ix);
        if !has_heir {
            self.release_assignment(ix);
        }
        self.call_ended(ix);
        let call = self.call(ix);
        let Gone {
            id,
            attempt,
            owner,
            tenant,
            assignment,
            ..
        } = self.remove(ix, phase);
        if let Some(assignment) = assignment.filter(|_| has_heir) {
            self.leave(class, tenant, assignment);
        }
        match owner {
            Owner::Here => self.effects.push_back(Effect::Ended {
                task: id,
                attempt,
                phase,
                why: why.map(Box::new),
            }),
            Owner::Peer(node) => self.settle(node, id, attempt, outcome),
        }
        if let Some(call) = call {
            self.stray_ended(call);
        }
    }

    /// The class in whose line a task stands.
    pub(super) fn line_of(&mut self, ix: TaskIx) -> ClassIx {
        match self.tasks[ix].phase() {
            Phase::Blocked => self.resuming_class(ix),
            _ => self.tasks[ix].class,
        }
    }

    /// Takes a task out of whatever line it stands in, and out of its node's load.
    pub(super) fn leave_line(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let phase = task.phase();
        if task.is_in_line {
            let class = self.line_of(ix);
            self.dequeue(ix, class);
        }
        if matches!(phase, Phase::Waiting | Phase::Ready) {
            self.uncount(ix);
        }
    }

    /// A task in an executor gives back what it holds and may be placed again.
    pub(super) fn release(&mut self, ix: TaskIx) {
        self.leave_line(ix);
        self.release_assignment(ix);
        self.change(ix, TaskState::Placeable(task::Place::Undecided));
        self.call_ended(ix);
    }

    /// A dispatched task gives back what it was to hold and is ready again. It is in no line yet.
    fn give_back(&mut self, ix: TaskIx) {
        self.release_assignment(ix);
        self.change(ix, TaskState::Ready);
    }

    /// Gives back what a task holds, if anything, and wakes who waits for that.
    fn release_assignment(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let mut holder = Holder {
            tenant: task.tenant,
            rule: task.terms.rule.clone(),
            needs_slot: Wants::of(task.kind) == Wants::Start,
            // Its CPU was given back when it was blocked.
            has_cpu: task.phase() != Phase::Blocked,
        };
        let (TaskState::Dispatching(assignment)
        | TaskState::Running(assignment)
        | TaskState::Blocked { assignment, .. }) = self.tasks.state_mut(ix)
        else {
            return;
        };
        holder.has_cpu &= !assignment.lacks_cpu;
        let assignment = Assignment {
            allocation: std::mem::take(&mut assignment.allocation),
            ..**assignment
        };
        self.return_assignment(holder, assignment);
    }

    /// Gives back what was held, and wakes who waits for that.
    pub(super) fn return_assignment(&mut self, holder: Holder, assignment: Assignment) {
        let Holder { tenant, rule, .. } = holder;
        let Assignment {
            node,
            bundle,
            alternative,
            allocation,
            ..
        } = assignment;
        let request = &rule.alternatives[usize::from(alternative)];
        match (bundle, holder.has_cpu) {
            // Its group is charged for.
            (Some(_), _) => {}
            (None, true) => self.tenants.refund(tenant, request.amounts()),
            (None, false) => {
                let mut rest = request.amounts().clone();
                rest.remove(&ResourceName::CPU);
                self.tenants.refund(tenant, &rest);
            }
        }
        if holder.needs_slot {
            self.with_executors -= 1;
            self.tenants.note_sandbox(tenant, false);
        }
        self.has_given_back(tenant);
        if self.cluster.own(node).is_none() {
            allocation.abandon();
            return;
        }
        match bundle {
            Some(at) => {
                let resources = self.cluster.own_mut(node);
                self.groups.release(resources, node, at, allocation);
            }
            None => self.cluster.own_mut(node).release(allocation),
        }
        if let Some(module) = &rule.module {
            self.cluster.module_stopped(node, *module);
        }
        if bundle.is_some() {
            // The last one out of a bundle that is taken away gives it back.
            self.carry_out_groups();
        }
        self.wake(node);
    }

    /// The task of an attempt that is with an executor, who says something of it: so it was accepted, whether or not
    /// we heard of that.
    pub(super) fn executing(&mut self, task: &TaskId, attempt: Attempt) -> Option<TaskIx> {
        let ix = self.current(task, attempt)?;
        let phase = self.tasks[ix].phase();
        if phase == Phase::Dispatching {
            self.accept(ix);
        }
        if !phase.holds() {
            self.stale += 1;
        }
        phase.holds().then_some(ix)
    }

    /// Whether a ready task could start if these, which hold something, held nothing: by the sums of what
    /// is there, so that of pools with ids it may not be quite true. A task of a placement group can only start
    /// in a bundle that is here: while there is none, it waits for its group, and not for these.
    pub fn would_start_without(&self, task: &TaskId, holders: &[TaskId]) -> bool {
        let Some(ix) = self.tasks.find(task) else {
            return false;
        };
        let task = &self.tasks[ix];
        if matches!(task.kind, TaskKind::Call { .. }) {
            return false;
        }
        let rule = &task.terms.rule;
        let assignments = holders.iter().filter_map(|holder| self.assignment(holder));
        let mut places: BTreeMap<Place, ResourceSet> = BTreeMap::new();
        for assignment in assignments {
            let place = (assignment.node, assignment.bundle);
            // Too much to be counted is more than enough.
            let _ = places
                .entry(place)
                .or_default()
                .add(&assignment.allocation.amounts());
        }
        let would_fit = |(place, held): (&Place, &ResourceSet)| {
            let available = self.available_at(*place, &rule.strategy);
            available.is_some_and(|available| {
                let mut alternatives = rule.alternatives.iter();
                alternatives.any(|request| {
                    let mut asked = request.amounts().iter();
                    asked.all(|(name, amount)| {
                        let there = available.get(name).steps();
                        amount.steps() <= there.saturating_add(held.get(name).steps())
                    })
                })
            })
        };
        places.iter().any(would_fit)
    }

    /// What is available at a place, if tasks of this strategy can run there.
    fn available_at(&self, (node, bundle): Place, strategy: &Strategy) -> Option<ResourceSet> {
        match (bundle, strategy) {
            (Some(at), Strategy::PlacementGroup { group, bundle }) => {
                let is_meant = at.0 == *group && bundle.is_none_or(|bundle| bundle == at.1);
                let there = self.groups.usable(node, at).filter(|_| is_meant);
                there.map(Bundle::available)
            }
            (None, Strategy::PlacementGroup { .. }) | (Some(_), _) => None,
            (None, _) => self.cluster.own(node).map(NodeResources::available),
        }
    }

    /// Why a task that is with an executor must stop, where it is not that somebody has cancelled it.
    pub fn why_stopped(&self, task: &TaskId) -> Option<&Reason> {
        let ix = self.tasks.find(task)?;
        self.tasks[ix].doom.as_ref()?.why.as_ref()
    }

    /// The state of a task that has not ended.
    pub fn phase(&self, task: &TaskId) -> Option<Phase> {
        self.tasks.find(task).map(|ix| self.tasks[ix].phase())
    }

    /// What a task with an executor holds.
    pub fn assignment(&self, task: &TaskId) -> Option<&Assignment> {
        let ix = self.tasks.find(task)?;
        self.tasks[ix].state().assignment()
    }
}
