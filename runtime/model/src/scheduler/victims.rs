//! Which tasks pause, or stop, for one that is due what they hold.
//!
//! Owns what that one lacks of a node, who has that, and the choice of those that pause. Must not: decide who is due what, or
//! pause anything (`preempt.rs`); choose those that stop (`stops.rs`).

use std::collections::BTreeMap;

use super::Scheduler;
use super::preempt::{Claim, Due, RUN_MIN};
use super::record::TaskIx;
use crate::cluster::{Basis, NodeIx};
use crate::fairness::{CpuParts, TenantIx};
use crate::resource::{
    Allocation, Amount, PoolReport, Request, ResourceId, ResourceName, ResourceSet,
};
use crate::task::{Phase, TaskKind};
use crate::time::Instant;

/// What a claim lacks of a resource of a node.
#[derive(Debug, Clone)]
pub(super) struct Lack {
    pub(super) name: ResourceName,
    /// So many units, of a resource with ids; and of each so much as `steps` says.
    pub(super) units: Option<u64>,
    pub(super) steps: u64,
}

impl Lack {
    /// When so much of it has come free, as [`Freed`] counts it, nothing is lacking.
    fn enough(&self) -> u64 {
        self.units.unwrap_or(self.steps)
    }
}

/// Who has what of a node.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Tasks that can be told to pause.
    tasks: Vec<TaskIx>,
    /// Tasks that can be told to stop, since they may be tried again; and creations of actors that can leave.
    pub(super) stoppable: Vec<TaskIx>,
    /// How much of each unit with an id is held, by whomever.
    held: BTreeMap<(ResourceName, ResourceId), u64>,
}

impl Holders {
    fn add(&mut self, allocation: &Allocation) {
        for (name, part) in allocation.iter() {
            for (id, amount) in part.ids() {
                *self.held.entry((name.clone(), id)).or_default() += amount.steps();
            }
        }
    }
}

/// What comes free of a node when some tasks pause or stop, of what is lacking.
pub(super) struct Freed<'a> {
    on: &'a Holders,
    lacks: &'a [Lack],
    by_id: BTreeMap<(ResourceName, ResourceId), u64>,
    /// Of each that is lacking: how many units are free as far as that is needed, because of this; or how much.
    got: Vec<u64>,
}

impl<'a> Freed<'a> {
    pub(super) fn new(on: &'a Holders, lacks: &'a [Lack]) -> Self {
        Self {
            on,
            lacks,
            by_id: BTreeMap::new(),
            got: vec![0; lacks.len()],
        }
    }

    pub(super) fn is_enough(&self) -> bool {
        let mut pairs = self.lacks.iter().zip(&self.got);
        pairs.all(|(lack, got)| *got >= lack.enough())
    }

    /// One more task gives this back, or one less.
    pub(super) fn change(&mut self, allocation: &Allocation, gives: bool) {
        for (lack, got) in self.lacks.iter().zip(&mut self.got) {
            let Some(part) = allocation.get(&lack.name) else {
                continue;
            };
            if lack.units.is_none() {
                *got = match gives {
                    true => *got + part.amount().steps(),
                    false => *got - part.amount().steps(),
                };
                continue;
            }
            for (id, amount) in part.ids() {
                let key = (lack.name.clone(), id);
                let held = self.on.held.get(&key).copied().unwrap_or_default();
                let is_free = |freed: u64| {
                    let free = (Amount::STEPS_PER_UNIT + freed).saturating_sub(held);
                    freed > 0 && free >= lack.steps
                };
                let freed = self.by_id.entry(key).or_default();
                *got -= u64::from(is_free(*freed));
                *freed = match gives {
                    true => *freed + amount.steps(),
                    false => *freed - amount.steps(),
                };
                *got += u64::from(is_free(*freed));
            }
        }
    }
}

/// How many units so much is a part of.
pub(super) fn whole(steps: u64) -> u64 {
    steps.div_ceil(Amount::STEPS_PER_UNIT)
}

fn cpu_steps(request: &Request) -> u64 {
    request.amounts().get(&ResourceName::CPU).steps()
}

fn without_cpu(request: &Request) -> Request {
    let mut rest = request.amounts().clone();
    rest.remove(&ResourceName::CPU);
    Request::new(rest).expect("a part of a request")
}

impl Scheduler {
    /// Whether a node could run a new task, if it had nothing else to do.
    pub(super) fn may_run(&self, task: TaskIx, node: NodeIx) -> bool {
        let fit = self.fit_on(node, task, Basis::Acquirable);
        let is_full = self.with_executors >= self.config.max_running;
        fit.is_some_and(|fit| fit.is_ever()) && !self.cluster[node].is_draining() && !is_full
    }

    /// What is kept on a node for others than those who ask for this, and comes free before it is their turn.
    pub(super) fn kept_beside(&self, node: NodeIx, request: &Request) -> [Option<&Request>; 2] {
        let it = &self.cluster[node];
        let kept = it.kept().filter(|kept| *kept != request);
        let kept_cpu = it.kept_cpu();
        let kept_cpu = kept_cpu.filter(|kept| cpu_steps(request) < cpu_steps(kept));
        [kept, kept_cpu]
    }

    /// What a task lacks of the CPUs of a node, if it lacks nothing else there.
    pub(super) fn needs(&self, claim: &Claim, node: NodeIx) -> Option<Lack> {
        let class = &self.classes[claim.class];
        let goes_on = class.key.wants.is_to_go_on();
        let it = &self.cluster[node];
        if !goes_on && !self.may_run(claim.task, node) {
            return None;
        }
        let mut asked = class.rule().alternatives.iter();
        let request = asked.find(|request| {
            let lacks_cpu_alone = goes_on || self.can_take(node, &without_cpu(request));
            let is_within_quota = || {
                let (rule, wants) = (class.rule(), class.key.wants);
                self.at_quota(claim.tenant, rule, wants, request).is_none()
            };
            let may_have = it.is_feasible(request) && lacks_cpu_alone;
            cpu_steps(request) > 0 && may_have && is_within_quota()
        })?;
        let kept = self.kept_beside(node, request);
        let kept = kept.into_iter().flatten().filter(|_| !goes_on);
        let beside: u64 = kept.map(|kept| whole(cpu_steps(kept))).sum();
        let free = match self.own_resources(node).free(&ResourceName::CPU) {
            Some(PoolReport::Indexed { whole_ids, .. }) => u64::from(whole_ids),
            _ => 0,
        };
        let cpus = whole(cpu_steps(request)) + beside;
        // Where enough is free by the count, it is something else that it waits for.
        (cpus > free).then(|| Lack {
            name: ResourceName::CPU,
            units: Some(cpus - free),
            steps: cpu_steps(request).min(Amount::STEPS_PER_UNIT),
        })
    }

    /// Who has what of the nodes here.
    pub(super) fn holders(&self) -> BTreeMap<NodeIx, Holders> {
        let mut nodes: BTreeMap<NodeIx, Holders> = BTreeMap::new();
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            for ix in self.tasks.in_phase(phase) {
                let task = &self.tasks[ix];
                let assignment = task.state().assignment().expect("it is with an executor");
                if assignment.bundle.is_some() {
                    continue;
                }
                let on = nodes.entry(assignment.node).or_default();
                on.add(&assignment.allocation);
                let is_spared =
                    task.terms.no_preempt && self.tenants.allows_no_preempt(task.tenant);
                // A call holds nothing: it has its actor's.
                let is_call = matches!(task.kind, TaskKind::Call { .. });
                if is_call || task.doom.is_some() || is_spared {
                    continue;
                }
                if phase != Phase::Dispatching && self.may_stop(ix) {
                    on.stoppable.push(ix);
                }
                // An actor has its CPU for as long as it lives.
                let runs = phase == Phase::Running && task.kind == TaskKind::Task;
                let has_cpu = assignment.allocation.get(&ResourceName::CPU).is_some();
                if runs && has_cpu && !self.preemption.is_asked(ix) {
                    on.tasks.push(ix);
                }
            }
        }
        for (node, on) in &mut nodes {
            let bundles = self.groups.bundles(*node);
            bundles.for_each(|(_, bundle)| on.add(bundle.allocation()));
        }
        nodes
    }

    /// The tasks to pause for a claim: of tenants above what they are due, those with the largest share first. Else when
    /// there may be some.
    pub(super) fn victims(
        &self,
        claim: &Claim,
        on: &Holders,
        needs: &Lack,
        parts: &CpuParts,
    ) -> Result<Vec<TaskIx>, Option<Instant>> {
        let mut gives: BTreeMap<TenantIx, bool> = BTreeMap::new();
        let mut given = self.tenants.given_to(claim.tenant);
        let (mut tasks, mut later) = (Vec::new(), None);
        for ix in &on.tasks {
            let task = &self.tasks[*ix];
            let gives = gives.entry(task.tenant).or_insert_with(|| match claim.due {
                // What those that are part of it give each other makes it no larger.
                Due::Minimum(below) => !self.tenants.is_part_of(task.tenant, below),
                Due::Share => {
                    task.tenant != claim.tenant && self.tenants.is_above_part(task.tenant, parts)
                }
                Due::Priority(_) => task.tenant == claim.tenant,
                Due::Back => false,
            });
            let is_lower = match claim.due {
                Due::Priority(priority) => task.terms.priority < priority,
                Due::Minimum(_) | Due::Share | Due::Back => true,
            };
            if !*gives
                || !is_lower
                || !self
                    .tenants
                    .may_give(task.tenant, &self.cpu_of(*ix), &given)
            {
                continue;
            }
            match task.since + RUN_MIN {
                at if at > self.now => {
                    later = Some(later.map_or(at, |other: Instant| other.min(at)));
                }
                _ => tasks.push(*ix),
            }
        }
        tasks.sort_by(|one, other| {
            let (one, other) = (&self.tasks[*one], &self.tasks[*other]);
            let of_part = |tenant| self.tenants.cpu_of_part(tenant, parts);
            let most = of_part(other.tenant).cmp(&of_part(one.tenant));
            let last = (other.since, other.sequence).cmp(&(one.since, one.sequence));
            most.then(match claim.due {
                Due::Minimum(_) | Due::Back => last,
                // By turns: else three tenants that share two CPUs would share one.
                Due::Share => last.reverse(),
                Due::Priority(_) => {
                    let lowest = one.terms.priority.cmp(&other.terms.priority);
                    lowest.then(last)
                }
            })
        });
        let mut freed = Freed::new(on, std::slice::from_ref(needs));
        let mut chosen: Vec<TaskIx> = Vec::new();
        for ix in tasks {
            if freed.is_enough() {
                break;
            }
            let tenant = self.tasks[ix].tenant;
            let cpu = self.cpu_of(ix);
            if self.tenants.may_give(tenant, &cpu, &given) {
                self.tenants.give(tenant, &cpu, &mut given);
                freed.change(self.allocation(ix), true);
                chosen.push(ix);
            }
        }
        if !freed.is_enough() {
            return Err(later);
        }
        self.retain_needed(&mut chosen, &mut freed);
        Ok(chosen)
    }

    /// Whether enough CPU comes free where all of these pause that can, now or in a moment.
    pub(super) fn pauses_suffice(
        &self,
        claim: &Claim,
        on: &Holders,
        lacks: &[Lack],
        of: impl Fn(TaskIx) -> bool,
    ) -> bool {
        let mut given = self.tenants.given_to(claim.tenant);
        let mut freed = Freed::new(on, lacks);
        for ix in on.tasks.iter().copied().filter(|ix| of(*ix)) {
            if freed.is_enough() {
                break;
            }
            let (tenant, cpu) = (self.tasks[ix].tenant, self.cpu_of(ix));
            if self.tenants.may_give(tenant, &cpu, &given) {
                self.tenants.give(tenant, &cpu, &mut given);
                freed.change(self.allocation(ix), true);
            }
        }
        freed.is_enough()
    }

    /// Without those that were chosen for nothing: a later one has more.
    pub(super) fn retain_needed(&self, chosen: &mut Vec<TaskIx>, freed: &mut Freed<'_>) {
        chosen.retain(|ix| {
            freed.change(self.allocation(*ix), false);
            let is_needed = !freed.is_enough();
            if is_needed {
                freed.change(self.allocation(*ix), true);
            }
            is_needed
        });
    }

    pub(super) fn allocation(&self, ix: TaskIx) -> &Allocation {
        let assignment = self.tasks[ix].state().assignment();
        &assignment.expect("it is with an executor").allocation
    }

    /// How much CPU a task has.
    fn cpu_of(&self, ix: TaskIx) -> ResourceSet {
        self.allocation(ix).amounts().cpu_part()
    }
}
