//! Statistics: what a run adds up while it goes.
//!
//! Owns counts, waits, peaks of shares and the time for which resources were there and busy, all
//! in integers. Must not: decide anything, or know why something happens.
//!
//! Invariants: time does not go back; a node's busy amount is what the tasks that started there
//! and have not ended asked for, but for the CPU of paused ones; a task ends where it started.
//!
//! Every method is told `now_ms`, the virtual time in milliseconds, wherever it matters.

use std::collections::BTreeMap;

use super::decimal::Decimal;
use super::scenario::{NodeNo, Scenario, TenantNo};
use super::summary::{Counts, NodeSummary, Summary, TenantSummary, Waits};
use crate::resource::{Amount, ResourceName, ResourceSet};

/// What a run has added up so far.
#[derive(Debug, Clone)]
pub struct Statistics {
    now_ms: u64,
    makespan_ms: u64,
    /// What all nodes that are there have.
    total: Sums,
    /// Changes whenever `total` does.
    generation: u64,
    tenants: Vec<TenantUse>,
    nodes: Vec<NodeUse>,
}

#[derive(Debug, Clone, Default)]
struct TenantUse {
    counts: Counts,
    used: Sums,
    /// The most of each resource that was used since `generation`: only more can be a new peak.
    peak: Sums,
    generation: u64,
    share_max: Decimal,
    waits_ms: Vec<u64>,
}

#[derive(Debug, Clone, Default)]
struct NodeUse {
    busy: Sums,
    /// Amount × ms up to `since_ms`.
    busy_time: Sums,
    since_ms: u64,
    capacity: ResourceSet,
    /// Every change of the capacity: when, of what, to how much.
    changes: Vec<(u64, ResourceName, Amount)>,
}

impl Statistics {
    /// Statistics of a run that has not begun, before any node is there.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            now_ms: 0,
            makespan_ms: 0,
            total: Sums::default(),
            generation: 0,
            tenants: vec![TenantUse::default(); scenario.tenants.len()],
            nodes: vec![NodeUse::default(); scenario.node_names.len()],
        }
    }

    /// A node joins with these resources.
    pub fn node_joined(&mut self, now_ms: u64, node: NodeNo, total: &ResourceSet) {
        for (name, amount) in total.iter() {
            self.node_changed(now_ms, node, name, amount);
        }
    }

    /// A node is gone. What ran there was [`Statistics::lost`] before.
    pub fn node_left(&mut self, now_ms: u64, node: NodeNo) {
        let capacity = self.nodes[node.0 as usize].capacity.clone();
        for (name, _) in capacity.iter() {
            self.node_changed(now_ms, node, name, Amount::ZERO);
        }
    }

    /// A node has this much of a resource from now on.
    pub fn node_changed(
        &mut self,
        now_ms: u64,
        node: NodeNo,
        name: &ResourceName,
        capacity: Amount,
    ) {
        self.set_time(now_ms);
        let node = &mut self.nodes[node.0 as usize];
        let before = node.capacity.get(name);
        if before == capacity {
            return;
        }
        node.capacity.set(name.clone(), capacity);
        node.changes.push((now_ms, name.clone(), capacity));
        self.total.subtract(name, before.steps().into());
        self.total.add(name, capacity.steps().into());
        self.generation += 1;
    }

    /// A task was submitted.
    pub fn submitted(&mut self, tenant: TenantNo) {
        self.tenants[tenant.0 as usize].counts.submitted += 1;
    }

    /// A task starts, `wait_ms` after it could have started for all it knew: since it was
    /// submitted and what it comes after had finished, or since it was to be retried.
    pub fn started(
        &mut self,
        now_ms: u64,
        tenant: TenantNo,
        node: NodeNo,
        held: &ResourceSet,
        wait_ms: u64,
    ) {
        self.set_time(now_ms);
        let node = &mut self.nodes[node.0 as usize];
        node.settle(now_ms);
        node.busy.add_set(held);
        let tenant = &mut self.tenants[tenant.0 as usize];
        tenant.counts.started += 1;
        tenant.waits_ms.push(wait_ms);
        tenant.used.add_set(held);
        tenant.note_shares(held, &self.total, self.generation);
    }

    /// What a tenant uses now in all, of which its tasks may be the smaller part: what its groups have reserved counts.
    pub fn used(&mut self, tenant: TenantNo, usage: &ResourceSet) {
        let tenant = &mut self.tenants[tenant.0 as usize];
        for (name, used) in usage.iter() {
            let share = Decimal::quotient(used.steps().into(), self.total.get(name));
            tenant.share_max = tenant.share_max.max(share);
        }
    }

    /// So many tasks of a tenant wait that were submitted now, since there is no room under a quota.
    pub fn at_quota(&mut self, tenant: TenantNo, tasks: u64) {
        self.tenants[tenant.0 as usize].counts.at_quota += tasks;
    }

    /// A task that had started has run to its end.
    pub fn finished(&mut self, now_ms: u64, tenant: TenantNo, node: NodeNo, held: &ResourceSet) {
        self.ended(now_ms, tenant, node, held);
        self.tenants[tenant.0 as usize].counts.finished += 1;
    }

    /// A task that had started is lost with its node. Whether it is tried again says
    /// [`Statistics::retried`] or [`Statistics::unschedulable`].
    pub fn lost(&mut self, now_ms: u64, tenant: TenantNo, node: NodeNo, held: &ResourceSet) {
        self.ended(now_ms, tenant, node, held);
    }

    /// A task that had started is paused, and gives these amounts back.
    pub fn paused(&mut self, now_ms: u64, tenant: TenantNo, node: NodeNo, cpu: &ResourceSet) {
        self.set_time(now_ms);
        let node = &mut self.nodes[node.0 as usize];
        node.settle(now_ms);
        node.busy.subtract_set(cpu);
        let tenant = &mut self.tenants[tenant.0 as usize];
        tenant.used.subtract_set(cpu);
        tenant.counts.paused += 1;
    }

    /// A task that was lost was stopped for another tenant, after it had run for so long.
    pub fn preempted(&mut self, tenant: TenantNo, ran_ms: u64) {
        let counts = &mut self.tenants[tenant.0 as usize].counts;
        counts.preempted += 1;
        counts.repeated_ms += ran_ms;
    }

    /// A task that was paused goes on, and holds these amounts again.
    pub fn resumed(&mut self, now_ms: u64, tenant: TenantNo, node: NodeNo, cpu: &ResourceSet) {
        self.set_time(now_ms);
        let node = &mut self.nodes[node.0 as usize];
        node.settle(now_ms);
        node.busy.add_set(cpu);
        let tenant = &mut self.tenants[tenant.0 as usize];
        tenant.used.add_set(cpu);
        tenant.note_shares(cpu, &self.total, self.generation);
    }

    /// A task that was lost waits again.
    pub fn retried(&mut self, tenant: TenantNo) {
        self.tenants[tenant.0 as usize].counts.retried += 1;
    }

    /// A task waits for a node that could ever serve it.
    pub fn infeasible(&mut self, tenant: TenantNo) {
        self.tenants[tenant.0 as usize].counts.infeasible += 1;
    }

    /// A task that was infeasible is not any more.
    ///
    /// # Panics
    /// If none of the tenant's was.
    pub fn feasible_again(&mut self, tenant: TenantNo) {
        let counts = &mut self.tenants[tenant.0 as usize].counts;
        let rest = counts.infeasible.checked_sub(1);
        counts.infeasible = rest.expect("a task became feasible that was not infeasible");
    }

    /// A task will never run (again).
    pub fn unschedulable(&mut self, tenant: TenantNo) {
        self.tenants[tenant.0 as usize].counts.unschedulable += 1;
    }

    /// Ends the run and sums it up.
    ///
    /// # Panics
    /// If a task still runs.
    pub fn summary(self, scenario: &Scenario) -> Summary {
        let makespan_ms = self.makespan_ms;
        let mut all = BTreeMap::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (node, name) in self.nodes.into_iter().zip(&scenario.node_names) {
            let times = node.times(makespan_ms);
            let utilisation = times
                .iter()
                .map(|(name, (busy, there))| (name.clone(), Decimal::quotient(*busy, *there)));
            nodes.push(NodeSummary {
                name: name.clone(),
                utilisation: utilisation.collect(),
            });
            for (name, (busy, there)) in times {
                let sum: &mut (u128, u128) = all.entry(name).or_default();
                *sum = (sum.0 + busy, sum.1 + there);
            }
        }
        let summary_of = |(tenant, entry): (TenantUse, &super::scenario::Tenant)| TenantSummary {
            name: entry.name.clone(),
            counts: tenant.counts,
            dominant_share_max: tenant.share_max,
            waits: Waits::of(tenant.waits_ms),
        };
        let tenants = self.tenants.into_iter().zip(&scenario.tenants);
        let mut tenants: Vec<TenantSummary> = tenants.map(summary_of).collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        let mut counts = Counts::default();
        tenants.iter().for_each(|tenant| counts.add(&tenant.counts));
        let quotient = |(name, (busy, there))| (name, Decimal::quotient(busy, there));
        Summary {
            makespan_ms,
            counts,
            utilisation: all.into_iter().map(quotient).collect(),
            tenants,
            nodes,
        }
    }

    fn ended(&mut self, now_ms: u64, tenant: TenantNo, node: NodeNo, held: &ResourceSet) {
        self.set_time(now_ms);
        self.makespan_ms = now_ms;
        let node = &mut self.nodes[node.0 as usize];
        node.settle(now_ms);
        node.busy.subtract_set(held);
        self.tenants[tenant.0 as usize].used.subtract_set(held);
    }

    fn set_time(&mut self, now_ms: u64) {
        assert!(
            self.now_ms <= now_ms,
            "time went back from {} ms to {now_ms} ms",
            self.now_ms
        );
        self.now_ms = now_ms;
    }
}

impl TenantUse {
    /// Looks whether what has just been taken makes a share that is larger than any before.
    fn note_shares(&mut self, taken: &ResourceSet, total: &Sums, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.peak = Sums::default();
        }
        for (name, _) in taken.iter() {
            let used = self.used.get(name);
            if used > self.peak.get(name) {
                self.peak.set(name, used);
                let share = Decimal::quotient(used, total.get(name));
                self.share_max = self.share_max.max(share);
            }
        }
    }
}

impl NodeUse {
    /// Adds what was busy since the last change.
    fn settle(&mut self, now_ms: u64) {
        let passed_ms = u128::from(now_ms - self.since_ms);
        if passed_ms > 0 {
            for (name, amount) in &self.busy.0 {
                self.busy_time.add(name, amount * passed_ms);
            }
            self.since_ms = now_ms;
        }
    }

    /// For each resource that the node ever had: amount × ms that was busy, and that was there,
    /// until the end.
    fn times(&self, end_ms: u64) -> BTreeMap<ResourceName, (u128, u128)> {
        let is_idle = self.busy.0.iter().all(|(_, amount)| *amount == 0);
        assert!(is_idle, "the run ended while tasks ran: {:?}", self.busy);
        let mut there: BTreeMap<&ResourceName, (u128, u64, Amount)> = BTreeMap::new();
        let add = |sum: &mut (u128, u64, Amount), until_ms: u64| {
            let until_ms = until_ms.min(end_ms);
            sum.0 += u128::from(sum.2.steps()) * u128::from(until_ms.saturating_sub(sum.1));
            sum.1 = until_ms;
        };
        for (at_ms, name, amount) in &self.changes {
            let sum = there.entry(name).or_default();
            add(sum, *at_ms);
            sum.2 = *amount;
        }
        let ended = there.into_iter().map(|(name, mut sum)| {
            add(&mut sum, end_ms);
            (name.clone(), (self.busy_time.get(name), sum.0))
        });
        ended.collect()
    }
}

/// Sums by resource that may be larger than an amount. Few, sorted by name; zeros may stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sums(Vec<(ResourceName, u128)>);

impl Sums {
    fn get(&self, name: &ResourceName) -> u128 {
        self.find(name).map_or(0, |at| self.0[at].1)
    }

    fn set(&mut self, name: &ResourceName, sum: u128) {
        match self.find(name) {
            Ok(at) => self.0[at].1 = sum,
            Err(at) => self.0.insert(at, (name.clone(), sum)),
        }
    }

    fn add(&mut self, name: &ResourceName, more: u128) {
        match self.find(name) {
            Ok(at) => self.0[at].1 += more,
            Err(at) => self.0.insert(at, (name.clone(), more)),
        }
    }

    fn subtract(&mut self, name: &ResourceName, less: u128) {
        if less > 0 {
            let rest = self.get(name).checked_sub(less);
            self.set(name, rest.expect("more ended than had begun"));
        }
    }

    fn add_set(&mut self, set: &ResourceSet) {
        for (name, amount) in set.iter() {
            self.add(name, amount.steps().into());
        }
    }

    fn subtract_set(&mut self, set: &ResourceSet) {
        for (name, amount) in set.iter() {
            self.subtract(name, amount.steps().into());
        }
    }

    fn find(&self, name: &ResourceName) -> Result<usize, usize> {
        // Short lists: a scan beats a binary search.
        let at = self.0.iter().position(|(other, _)| other >= name);
        match at {
            Some(at) if self.0[at].0 == *name => Ok(at),
            at => Err(at.unwrap_or(self.0.len())),
        }
    }
}
