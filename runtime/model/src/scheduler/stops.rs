//! Tasks that run are stopped and tried again, and actors leave, so that a tenant gets what it is guaranteed.
//!
//! Owns which tasks stop for one that waits, and how often each has. A pause frees CPU alone: here all comes free that a
//! task holds, and what it has done is done again. An actor is its creation, which runs for as long as it lives: where that may
//! be tried again, the actor has checkpoints, and goes on from the last. It leaves between two calls (`actors.rs`). Must not:
//! stop a task that may not be tried again, or count that among its retries; decide who is due what (`preempt.rs`).
//!
//! Invariants: no tenant comes below its minimum by it, of anything; an attempt has run for [`RUN_MIN`] before it is stopped,
//! and for twice as long each time that the task was stopped before. So a task that takes so long that it could be stopped
//! `n` times is stopped `n` times at most, where `n` grows with the logarithm of that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::class::Wants;
use super::preempt::{Claim, PausedFor};
use super::record::{Owner, TaskIx};
use super::victims::{Freed, Holders, Lack, whole};
use super::{Effect, Scheduler};
use crate::cluster::NodeIx;
use crate::fairness::TenantIx;
use crate::id::TaskId;
use crate::resource::{Amount, PoolReport, Request, ResourceName};
use crate::task::{Attempt, FailureKind, Phase, TaskKind};
use crate::time::Instant;

/// How long an attempt runs before it is stopped for the first time. Twice as long before each further time.
pub(super) const RUN_MIN: Duration = Duration::from_secs(1);
/// How often it doubles at most: to some decades.
const DOUBLED: u32 = 30;

/// The tasks that were told to stop, and have not ended.
#[derive(Debug, Default)]
pub(super) struct StopTable(BTreeMap<TaskIx, Stops>);

/// How often a task was stopped for another tenant, and tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stops {
    /// How often.
    pub times: u32,
    /// How long its attempts had run by then, in all.
    pub in_all: Duration,
    /// Why it was told to stop here last; `None` if that was elsewhere alone.
    pub why: Option<PausedFor>,
    /// Whether it was told to, and has not stopped yet.
    is_due: bool,
}

/// What is to stop for a claim.
#[derive(Debug)]
pub(super) struct ToStop {
    /// Which of the variants of its request then fits.
    alternative: usize,
    tasks: Vec<TaskIx>,
    why: PausedFor,
}

impl StopTable {
    /// Whether a task was told to stop, and has not yet.
    pub(super) fn is_due(&self, ix: TaskIx) -> bool {
        self.0.get(&ix).is_some_and(|it| it.is_due)
    }

    /// No executor has a task any more.
    pub(super) fn left(&mut self, ix: TaskIx, to: Phase) {
        if to.is_terminal() {
            self.0.remove(&ix);
        } else if let Some(stops) = self.0.get_mut(&ix) {
            stops.is_due = false;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A task need not stop after all.
    pub(super) fn spare(&mut self, ix: TaskIx) {
        if let Some(stops) = self.0.get_mut(&ix) {
            stops.is_due = false;
            if stops.times == 0 {
                self.0.remove(&ix);
            }
        }
    }
}

impl Scheduler {
    /// How often a live task was stopped for other tenants, if it was told to.
    pub fn stops(&self, task: &TaskId) -> Option<&Stops> {
        self.stops_of(self.tasks.find(task)?)
    }

    pub(super) fn stops_of(&self, ix: TaskIx) -> Option<&Stops> {
        self.stops.0.get(&ix)
    }

    /// Why an attempt must stop that is to be tried again, if it is to stop for that.
    pub fn why_preempted(&self, task: &TaskId, attempt: Attempt) -> Option<&PausedFor> {
        let ix = self.tasks.find(task)?;
        let task = &self.tasks[ix];
        let stops = self.stops_of(ix).filter(|it| it.is_due)?;
        let why = stops.why.as_ref();
        why.filter(|_| task.attempt == attempt && task.doom.is_none())
    }

    /// Whether a task may be told to stop, however long it has run.
    pub(super) fn may_stop(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let is_able = || match task.kind {
            TaskKind::Task => true,
            TaskKind::Actor(actor) => self.actors.may_leave(&actor),
            TaskKind::Call { .. } => false,
        };
        task.terms.retries > 0 && !self.stops.is_due(ix) && is_able()
    }

    /// Whether a task that was told to stop some time ago is still to: the tenant for which it is lacks that, something waits that
    /// would get it here, and the tenant of the task keeps its minima.
    pub(super) fn is_wanted_to_stop(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let stops = self.stops_of(ix).filter(|it| it.is_due);
        let (Some(stops), Some(assignment)) = (stops, task.state().assignment()) else {
            return false;
        };
        let Some(PausedFor::Minimum {
            tenant, resource, ..
        }) = &stops.why
        else {
            return false;
        };
        if task.doom.is_some() || !self.preempts() {
            return false;
        }
        let is_due = |below: TenantIx| {
            let tenant = self.tenants.get(below);
            let given = self.tenants.given_to(below);
            let amounts = assignment.allocation.amounts();
            tenant.used(resource) < tenant.config().min_share.get(resource)
                && self.tenants.may_give(task.tenant, &amounts, &given)
                && self.is_claimed(resource, below, assignment.node)
        };
        self.tenants.find(tenant).is_some_and(is_due)
    }

    /// Whether some of these are actors that leave when a call has ended.
    pub(super) fn are_leaving(&self, tasks: &BTreeSet<TaskIx>) -> bool {
        let mut due = tasks.iter().filter(|ix| self.stops.is_due(**ix));
        due.any(|ix| matches!(self.tasks[*ix].kind, TaskKind::Actor(_)))
    }

    /// Whether a task that a node could run waits for a resource: of a tenant, or of one that is part of it.
    fn is_claimed(&self, resource: &ResourceName, by: TenantIx, node: NodeIx) -> bool {
        let asks = |request: &Request| !request.amounts().get(resource).is_zero();
        let mut classes = self.classes.iter().map(|(_, class)| class);
        classes.any(|class| {
            let is_there = class.key.bound.is_none_or(|bound| bound == node);
            let starts = class.key.wants == Wants::Start && !class.is_grouped();
            let may_get = |task: TaskIx| {
                self.tenants.is_part_of(self.tasks[task].tenant, by) && self.may_run(task, node)
            };
            is_there
                && starts
                && class.rule().alternatives.iter().any(asks)
                && class.heads().any(|(_, _, task)| may_get(task))
        })
    }

    /// The tasks to stop for a claim of one that is below its minimum: those that have run for the shortest time, of tenants that
    /// keep their minima without them. Else when there may be some.
    pub(super) fn to_stop(
        &self,
        claim: &Claim,
        node: NodeIx,
        on: &Holders,
    ) -> Result<ToStop, Option<Instant>> {
        let class = &self.classes[claim.class];
        if class.key.wants.is_to_go_on() || !self.may_run(claim.task, node) {
            return Err(None);
        }
        let (rule, wants) = (class.rule(), class.key.wants);
        let mut later: Option<Instant> = None;
        for (alternative, request) in rule.alternatives.iter().enumerate() {
            let is_at_quota = || self.at_quota(claim.tenant, rule, wants, request).is_some();
            if !self.cluster[node].is_feasible(request) || is_at_quota() {
                continue;
            }
            match self.to_stop_for(claim, on, &self.lacks(node, request)) {
                Ok((tasks, why)) => {
                    return Ok(ToStop {
                        alternative,
                        tasks,
                        why,
                    });
                }
                Err(at) => later = later.into_iter().chain(at).min(),
            }
        }
        Err(later)
    }

    /// What a request lacks of a node, beside what is kept there.
    fn lacks(&self, node: NodeIx, request: &Request) -> Vec<Lack> {
        let kept = self.kept_beside(node, request);
        let pools = self.own_resources(node).pools();
        let lacks = request.amounts().iter().filter_map(|(name, amount)| {
            let kept = kept.iter().flatten().map(|it| it.amounts().get(name));
            let steps = amount.steps();
            let pool = pools.report(name)?;
            match pool {
                PoolReport::Indexed { whole_ids, .. } => {
                    let beside: u64 = kept.map(|it| whole(it.steps())).sum();
                    let lacks = (whole(steps) + beside).saturating_sub(whole_ids.into());
                    let is_free = beside == 0 && pool.is_available(amount);
                    (lacks > 0 && !is_free).then(|| Lack {
                        name: name.clone(),
                        units: Some(lacks),
                        steps: steps.min(Amount::STEPS_PER_UNIT),
                    })
                }
                PoolReport::Sum { available, .. } => {
                    let beside = kept.fold(0_u64, |sum, it| sum.saturating_add(it.steps()));
                    let lacks = steps.saturating_add(beside);
                    let lacks = lacks.saturating_sub(available.steps());
                    (lacks > 0).then(|| Lack {
                        name: name.clone(),
                        units: None,
                        steps: lacks,
                    })
                }
            }
        });
        lacks.collect()
    }

    /// The tasks to stop so that nothing of this is lacking.
    fn to_stop_for(
        &self,
        claim: &Claim,
        on: &Holders,
        lacks: &[Lack],
    ) -> Result<(Vec<TaskIx>, PausedFor), Option<Instant>> {
        // Nothing else is taken for it, but for what those hold besides who hold this.
        let below = lacks.iter().filter_map(|lack| {
            let below = self.tenants.below_min(claim.tenant, &lack.name)?;
            Some((&lack.name, below))
        });
        let below: Vec<(&ResourceName, TenantIx)> = below.collect();
        let Some((name, tenant)) = below.first().copied() else {
            return Err(None);
        };
        let helps = |ix: TaskIx| {
            let (of, allocation) = (self.tasks[ix].tenant, self.allocation(ix));
            // What those that are part of it give each other makes it no larger.
            below.iter().any(|(name, below)| {
                allocation.get(name).is_some() && !self.tenants.is_part_of(of, *below)
            })
        };
        // Who lacks CPU alone gets it by pauses, but of those that were told to pause and cannot; and of actors where pauses
        // do not do.
        let lacks_cpu_alone = lacks.iter().all(|lack| lack.name.is_cpu());
        let is_actor = |ix: TaskIx| matches!(self.tasks[ix].kind, TaskKind::Actor(_));
        let are_actors_meant = !lacks_cpu_alone
            || on.stoppable.iter().any(|ix| is_actor(*ix))
                && !self.pauses_suffice(claim, on, lacks, helps);
        let is_meant = |ix: TaskIx| match is_actor(ix) {
            true => are_actors_meant,
            false => !lacks_cpu_alone || self.preemption.is_asked(ix),
        };
        let mut given = self.tenants.given_to(claim.tenant);
        let (mut tasks, mut later) = (Vec::new(), None::<Instant>);
        for ix in on.stoppable.iter().copied().filter(|ix| helps(*ix)) {
            let amounts = self.allocation(ix).amounts();
            let may_give = self
                .tenants
                .may_give(self.tasks[ix].tenant, &amounts, &given);
            if !may_give || !is_meant(ix) {
                continue;
            }
            let (ran, least) = (self.ran(ix), self.run_min(ix));
            if ran < least {
                let at = self.now + (least - ran);
                later = later.into_iter().chain([at]).min();
                continue;
            }
            tasks.push((ran, Reverse(self.tasks[ix].sequence), ix));
        }
        tasks.sort_unstable();
        let mut freed = Freed::new(on, lacks);
        let mut chosen = Vec::new();
        for (_, _, ix) in tasks {
            if freed.is_enough() {
                break;
            }
            let (tenant, amounts) = (self.tasks[ix].tenant, self.allocation(ix).amounts());
            if self.tenants.may_give(tenant, &amounts, &given) {
                self.tenants.give(tenant, &amounts, &mut given);
                freed.change(self.allocation(ix), true);
                chosen.push(ix);
            }
        }
        if !freed.is_enough() {
            return Err(later);
        }
        // Those that have done the most are spared first.
        chosen.reverse();
        self.retain_needed(&mut chosen, &mut freed);
        Ok((chosen, self.below(tenant, name)))
    }

    /// A tenant has less of a resource than it is guaranteed.
    pub(super) fn below(&self, tenant: TenantIx, resource: &ResourceName) -> PausedFor {
        let tenant = self.tenants.get(tenant);
        PausedFor::Minimum {
            tenant: tenant.name().clone(),
            resource: resource.clone(),
            used: tenant.used(resource),
            minimum: tenant.config().min_share.get(resource),
        }
    }

    /// For how long the attempt of a task has run, without pauses.
    fn ran(&self, ix: TaskIx) -> Duration {
        let paused = self.pauses_of(ix).map(|it| self.paused_for(it).1);
        let since = self.now - self.tasks[ix].began;
        since.saturating_sub(paused.unwrap_or_default())
    }

    /// How long an attempt of a task runs before it is stopped.
    fn run_min(&self, ix: TaskIx) -> Duration {
        let task = &self.tasks[ix];
        let times = match task.owner {
            Owner::Here => self.stops_of(ix).map_or(0, |it| it.times),
            // Its owner alone knows how often it was stopped, wherever that was. At most as often as it was tried.
            Owner::Peer(_) => task.attempt.number().saturating_sub(1),
        };
        RUN_MIN.saturating_mul(1 << times.min(DOUBLED))
    }

    /// Tells tasks to stop for a claim. Where there are several, what comes free of one after the other is kept for it.
    pub(super) fn begin_stops(&mut self, claim: &Claim, node: NodeIx, to_stop: ToStop) {
        let ToStop {
            alternative,
            tasks,
            why,
        } = to_stop;
        for ix in &tasks {
            let stops = self.stops.0.entry(*ix).or_insert_with(|| Stops {
                times: 0,
                in_all: Duration::ZERO,
                why: None,
                is_due: true,
            });
            stops.is_due = true;
            stops.why = Some(why.clone());
            let task = &self.tasks[*ix];
            if let TaskKind::Actor(actor) = task.kind
                && !self.actors.leave(&actor)
            {
                // It is told when the call under way has ended.
                continue;
            }
            self.effects.push_back(Effect::Preempt {
                task: task.id,
                attempt: task.attempt,
            });
        }
        let keeps = tasks.len() > 1 && self.keep_for_round(claim.class, alternative, node);
        self.open_round(claim, tasks, keeps);
    }

    /// An executor has stopped an attempt, as it was told to. It is tried again, which counts as none of the retries.
    pub(super) fn preempted(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        if self.meet_doom(ix) {
            return;
        }
        let (ran, tenant) = (self.ran(ix), self.tasks[ix].tenant);
        let Some(stops) = self.stops.0.get_mut(&ix).filter(|it| it.is_due) else {
            // Nobody has told it to.
            return self.attempt_failed(ix, FailureKind::Retryable);
        };
        stops.is_due = false;
        stops.times = stops.times.saturating_add(1);
        stops.in_all = stops.in_all.saturating_add(ran);
        match self.tasks[ix].kind {
            TaskKind::Actor(actor) => {
                // Nothing is repeated.
                self.tenants.note_preempted(tenant, Duration::ZERO);
                self.actor_left(actor, ix);
            }
            TaskKind::Task | TaskKind::Call { .. } => {
                self.tenants.note_preempted(tenant, ran);
                self.retry(ix);
            }
        }
    }

    /// The node that had an attempt of a task owned here, for so long, has stopped it for another tenant. What that node says of
    /// the attempt comes next.
    pub fn stopped_elsewhere(&mut self, task: &TaskId, ran: Duration) {
        let Some(ix) = self.tasks.find(task) else {
            return;
        };
        let stops = self.stops.0.entry(ix).or_insert(Stops {
            times: 0,
            in_all: Duration::ZERO,
            why: None,
            is_due: false,
        });
        stops.times = stops.times.saturating_add(1);
        stops.in_all = stops.in_all.saturating_add(ran);
    }

    /// Only what an executor has is told to stop.
    pub(super) fn check_stops(&self) {
        for (ix, stops) in &self.stops.0 {
            let task = &self.tasks[*ix];
            let is_there = task.phase().holds() && task.terms.retries > 0;
            assert!(is_there || !stops.is_due, "{} is to stop", task.id);
        }
    }
}
