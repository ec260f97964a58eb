//! Which tasks are paused for one that is due CPU.
//!
//! Owns what that one lacks of the CPUs of a node, who has those, and the choice. Must not: decide who is due CPU, or
//! pause anything (`preempt.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use super::preempt::{Claim, Due, RUN_MIN};
use super::record::TaskIx;
use crate::cluster::{Basis, NodeIx};
use crate::fairness::TenantIx;
use crate::resource::{Allocation, Amount, PoolReport, Request, ResourceId, ResourceName};
use crate::task::{Phase, TaskKind};
use crate::time::Instant;

/// What a claim lacks of the CPUs of a node: so many of them, and of each so much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    cpus: u64,
    steps: u64,
}

/// Who has the CPUs of a node.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Tasks that can be told to pause.
    tasks: Vec<TaskIx>,
    /// How much of each CPU is held, by whomever.
    held: BTreeMap<ResourceId, u64>,
}

impl Holders {
    fn add(&mut self, allocation: &Allocation) {
        for (id, steps) in cpus(allocation) {
            *self.held.entry(id).or_default() += steps;
        }
    }
}

/// The CPUs of an allocation, and how much of each.
fn cpus(allocation: &Allocation) -> impl Iterator<Item = (ResourceId, u64)> + '_ {
    let part = allocation.get(&ResourceName::CPU).into_iter();
    part.flat_map(|part| part.ids().map(|(id, amount)| (id, amount.steps())))
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
    /// What a task lacks of the CPUs of a node, if it lacks nothing else there.
    pub(super) fn needs(&self, claim: &Claim, node: NodeIx) -> Option<Needs> {
        let class = &self.classes[claim.class];
        let goes_on = class.key.wants.is_to_go_on();
        let it = &self.cluster[node];
        if !goes_on {
            let fit = self.fit_on(node, claim.task, Basis::Acquirable);
            let may_run = fit.is_some_and(|fit| fit.is_ever()) && !it.is_draining();
            let is_full = self.with_executors >= self.config.max_running;
            if !may_run || is_full {
                return None;
            }
        }
        let mut asked = class.rule().alternatives.iter();
        let request = asked.find(|request| {
            let lacks_cpu_alone = goes_on || self.can_take(node, &without_cpu(request));
            cpu_steps(request) > 0 && it.is_feasible(request) && lacks_cpu_alone
        })?;
        // What is kept there comes free before it is this one's turn.
        let kept = it.kept().filter(|kept| *kept != request);
        let kept_cpu = it.kept_cpu();
        let kept_cpu = kept_cpu.filter(|kept| cpu_steps(request) < cpu_steps(kept));
        let kept = [kept, kept_cpu].into_iter().flatten().filter(|_| !goes_on);
        let whole = |steps: u64| steps.div_ceil(Amount::STEPS_PER_UNIT);
        let beside: u64 = kept.map(|kept| whole(cpu_steps(kept))).sum();
        let free = match self.own_resources(node).free(&ResourceName::CPU) {
            Some(PoolReport::Indexed { whole_ids, .. }) => u64::from(whole_ids),
            _ => 0,
        };
        let cpus = whole(cpu_steps(request)) + beside;
        // Where enough is free by the count, it is something else that it waits for.
        (cpus > free).then(|| Needs {
            cpus: cpus - free,
            steps: cpu_steps(request).min(Amount::STEPS_PER_UNIT),
        })
    }

    /// Who has which CPUs.
    pub(super) fn cpu_holders(&self) -> BTreeMap<NodeIx, Holders> {
        let mut nodes: BTreeMap<NodeIx, Holders> = BTreeMap::new();
        for phase in [Phase::Dispatching, Phase::Running] {
            for ix in self.tasks.in_phase(phase) {
                let task = &self.tasks[ix];
                let held = task.state().held().expect("it is with an executor");
                if held.bundle.is_some() {
                    continue;
                }
                let on = nodes.entry(held.node).or_default();
                on.add(&held.allocation);
                // An actor has its CPU for as long as it lives, and a call has none.
                let may_pause = task.kind == TaskKind::Task
                    && phase == Phase::Running
                    && task.doom.is_none()
                    && !self.preemption.is_asked(ix);
                if may_pause && cpus(&held.allocation).next().is_some() {
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
        needs: Needs,
        among: &BTreeSet<TenantIx>,
    ) -> Result<Vec<TaskIx>, Option<Instant>> {
        let (mut tasks, mut later) = (Vec::new(), None);
        for ix in &on.tasks {
            let task = &self.tasks[*ix];
            if !self.may_give(claim, task.tenant, &[*ix], among) {
                continue;
            }
            match task.since + RUN_MIN {
                at if at > self.now => {
                    later = Some(later.map_or(at, |other: Instant| other.min(at)))
                }
                _ => tasks.push(*ix),
            }
        }
        tasks.sort_by(|one, other| {
            let (one, other) = (&self.tasks[*one], &self.tasks[*other]);
            let (key, other_key) = (self.tenants.key(one.tenant), self.tenants.key(other.tenant));
            let last = (other.since, other.sequence).cmp(&(one.since, one.sequence));
            other_key.cmp_shares(key).then(match claim.due {
                Due::Minimum => last,
                // By turns: else three tenants that share two CPUs would share one.
                Due::Share => last.reverse(),
            })
        });
        let mut chosen: Vec<TaskIx> = Vec::new();
        for ix in tasks {
            if self.suffice(&chosen, on, needs) {
                break;
            }
            chosen.push(ix);
            if !self.may_give(claim, self.tasks[ix].tenant, &chosen, among) {
                chosen.pop();
            }
        }
        if !self.suffice(&chosen, on, needs) {
            return Err(later);
        }
        // Those that came to be chosen for nothing: a later one has more.
        let mut at = 0;
        while at < chosen.len() {
            let ix = chosen.remove(at);
            if !self.suffice(&chosen, on, needs) {
                chosen.insert(at, ix);
                at += 1;
            }
        }
        Ok(chosen)
    }

    /// Whether a tenant may give back what its tasks among these have, for a claim.
    fn may_give(
        &self,
        claim: &Claim,
        tenant: TenantIx,
        tasks: &[TaskIx],
        among: &BTreeSet<TenantIx>,
    ) -> bool {
        let own = tasks.iter().filter(|ix| self.tasks[**ix].tenant == tenant);
        let amounts = own.filter_map(|ix| self.tasks[*ix].state().held());
        let steps = amounts.flat_map(|held| cpus(&held.allocation));
        let steps: u64 = steps.map(|(_, steps)| steps).sum();
        tenant != claim.tenant
            && self.tenants.is_above_min(tenant, Amount::from_steps(steps))
            && (claim.due == Due::Minimum || self.tenants.is_above_share(tenant, among))
    }

    /// Whether enough is free without these tasks.
    fn suffice(&self, tasks: &[TaskIx], on: &Holders, needs: Needs) -> bool {
        let mut freed: BTreeMap<ResourceId, u64> = BTreeMap::new();
        let held = tasks.iter().filter_map(|ix| self.tasks[*ix].state().held());
        for (id, steps) in held.flat_map(|held| cpus(&held.allocation)) {
            *freed.entry(id).or_default() += steps;
        }
        let enough = freed.iter().filter(|(id, freed)| {
            let held = on.held.get(id).copied().unwrap_or_default();
            (Amount::STEPS_PER_UNIT + **freed).saturating_sub(held) >= needs.steps
        });
        enough.count() as u64 >= needs.cpus
    }
}
