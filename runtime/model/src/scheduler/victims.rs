//! Which tasks are paused for one that is due CPU.
//!
//! Owns what that one lacks of the CPUs of a node, who has those, and the choice. Must not: decide who is due CPU, or
//! pause anything (`preempt.rs`).

use std::collections::BTreeMap;

use super::Scheduler;
use super::preempt::{Claim, Due, RUN_MIN};
use super::record::TaskIx;
use crate::cluster::{Basis, NodeIx};
use crate::fairness::{CpuParts, TenantIx};
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

/// What comes free of a node's CPUs when some tasks pause.
struct Freed<'a> {
    on: &'a Holders,
    needs: Needs,
    by_cpu: BTreeMap<ResourceId, u64>,
    /// How many CPUs are free as far as that is needed, because of this.
    enough: u64,
}

impl Freed<'_> {
    fn is_enough(&self) -> bool {
        self.enough >= self.needs.cpus
    }

    /// One more task pauses, or one less.
    fn change(&mut self, allocation: &Allocation, pauses: bool) {
        let least = self.needs.steps;
        for (id, steps) in cpus(allocation) {
            let held = self.on.held.get(&id).copied().unwrap_or_default();
            let is_free = |freed: u64| {
                let free = (Amount::STEPS_PER_UNIT + freed).saturating_sub(held);
                freed > 0 && free >= least
            };
            let freed = self.by_cpu.entry(id).or_default();
            self.enough -= u64::from(is_free(*freed));
            *freed = match pauses {
                true => *freed + steps,
                false => *freed - steps,
            };
            self.enough += u64::from(is_free(*freed));
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
            let is_within_quota = || {
                let (rule, wants) = (class.rule(), class.key.wants);
                self.at_quota(claim.tenant, rule, wants, request).is_none()
            };
            let may_have = it.is_feasible(request) && lacks_cpu_alone;
            cpu_steps(request) > 0 && may_have && is_within_quota()
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
            });
            let cpu = self.cpu_of(*ix);
            if !*gives || !self.tenants.may_give(task.tenant, cpu, &given) {
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
                Due::Minimum(_) => last,
                // By turns: else three tenants that share two CPUs would share one.
                Due::Share => last.reverse(),
            })
        });
        let mut freed = Freed {
            on,
            needs,
            by_cpu: BTreeMap::new(),
            enough: 0,
        };
        let mut chosen: Vec<TaskIx> = Vec::new();
        for ix in tasks {
            if freed.is_enough() {
                break;
            }
            let tenant = self.tasks[ix].tenant;
            let cpu = self.cpu_of(ix);
            if self.tenants.may_give(tenant, cpu, &given) {
                self.tenants.give(tenant, cpu, &mut given);
                freed.change(self.allocation(ix), true);
                chosen.push(ix);
            }
        }
        if !freed.is_enough() {
            return Err(later);
        }
        // Those that were chosen for nothing: a later one has more.
        chosen.retain(|ix| {
            freed.change(self.allocation(*ix), false);
            let is_needed = !freed.is_enough();
            if is_needed {
                freed.change(self.allocation(*ix), true);
            }
            is_needed
        });
        Ok(chosen)
    }

    fn allocation(&self, ix: TaskIx) -> &Allocation {
        let held = self.tasks[ix].state().held();
        &held.expect("it is with an executor").allocation
    }

    /// How much CPU a task has.
    fn cpu_of(&self, ix: TaskIx) -> u64 {
        cpus(self.allocation(ix)).map(|(_, steps)| steps).sum()
    }
}
