//! The table of tenants.
//!
//! Owns who is in it, what each uses here and elsewhere, and what other nodes reported. Must
//! not: know tasks or queues, or decide what runs: the keeper of the queue takes the first in the
//! order of the tree (`order.rs`) that fits.
//!
//! Invariants: every key is up to date after every call; a [`TenantIx`] stays valid as long as something uses its tenant
//! ([`Tenants::forget_unused`]); usage elsewhere is the sum of the last report of each node that is not cleared; with each
//! tenant the table has its parent; what a tenant uses counts as used by all that it is part of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;

use crate::id::NodeId;
use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::time::Instant;

use super::key::{Column, ShareKey};
use super::policy::Policy;
use super::state::{OwnWork, Tenant, TenantCounters};
use super::tenant::{TenantConfig, TenantName};
use super::usage::{Part, Usage};

/// The most tenants in one table. One more is refused.
pub const MAX_TENANTS: usize = 65_536;

/// The most tenants that are part of one without parents, all levels together. Of one that is part of another there are a
/// quarter of that, and so on: so one team cannot take up the room of its organisation.
pub const MAX_BELOW: usize = MAX_TENANTS / 8;

/// The most that a tenant of this depth may have below it.
fn most_below(depth: usize) -> usize {
    MAX_BELOW >> (2 * depth)
}

/// A tenant in one [`Tenants`] table. Means nothing elsewhere. When its tenant is forgotten, another one gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIx(pub u32);

/// The error of a tenant that is one too many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooManyTenants {
    /// There are [`MAX_TENANTS`].
    #[error(
        "tenant {name} would be one too many: a cluster has at most {MAX_TENANTS} that have tasks, placement groups or \
         settings; use one of those that there are"
    )]
    InAll {
        /// The tenant that was refused.
        name: TenantName,
    },
    /// There are as many below one as there may be.
    #[error(
        "tenant {name} would be one too many: {most} that have tasks, placement groups or settings are part of {of}, and \
         no more may be; use one of those, or wait until tasks of some have ended"
    )]
    Below {
        /// The tenant that was refused.
        name: TenantName,
        /// The tenant that it would be part of.
        of: TenantName,
        /// How many may be part of that one.
        most: usize,
    },
}

/// All tenants, with what each uses over the whole cluster.
///
/// Usage is *own* (charged and refunded here, task by task) and *remote* (what each other node
/// reported last). A tenant that has not been configured has the default settings.
#[derive(Debug, Clone, Default)]
pub struct Tenants {
    policy: Policy,
    total: ResourceSet,
    /// The resources of the total, in the order of names.
    columns: Vec<Column>,
    generation: u64,
    /// By [`TenantIx`]; those in `free` are nobody's.
    pub(super) tenants: Vec<Tenant>,
    pub(super) free: Vec<TenantIx>,
    pub(super) by_name: BTreeMap<TenantName, TenantIx>,
    /// Those of which something that used them has ended since they were looked at, and those that came without a use.
    pub(super) idle: BTreeSet<TenantIx>,
    /// What those did that were forgotten.
    pub(super) forgotten: TenantCounters,
    /// How many have a quota.
    quotas: usize,
    remote: BTreeMap<NodeId, Report>,
}

/// What a node reported, by tenant.
type Report = BTreeMap<TenantIx, Reported>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Reported {
    amounts: ResourceSet,
    sandboxes: u64,
    /// In steps.
    cpu_of_actors: u64,
}

/// What nodes report beside resources, under names that no resource may have ([`ResourceName::RESERVED`]): sandboxes.
const SANDBOXES: &str = "wasmrun/sandboxes";
/// And what actors have of CPUs, for as long as they live.
const CPU_OF_ACTORS: &str = "wasmrun/actors";

fn reported_as(name: &str) -> ResourceName {
    name.parse().expect("it is a name")
}

impl Tenants {
    /// No tenants, and a cluster of nothing.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// The policy by which keys are made.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy, and so all keys.
    pub fn set_policy(&mut self, policy: Policy) {
        if policy != self.policy {
            self.policy = policy;
            self.rebuild_all();
        }
    }

    /// The total of the cluster that shares are of.
    pub fn total(&self) -> &ResourceSet {
        &self.total
    }

    /// Changes the total, and so all keys. Nothing happens if it is the same.
    ///
    /// Usage of a resource that is not in it does not count (its holders may still run). An amount
    /// at [`Amount::MAX`](crate::resource::Amount::MAX) is taken as it is, so beyond 1.6 PiB of
    /// memory shares of memory come out too large.
    pub fn set_total(&mut self, total: ResourceSet) {
        if total != self.total {
            self.total = total;
            self.rebuild_all();
        }
    }

    /// Goes up whenever all keys may have changed at once (a new policy or total). Otherwise keys
    /// change only of the tenant that a call names, of those that it returns, and of all that these are part of.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The resources that shares are of.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The tenant of this name, which is added if it is new, and before it all that it is part of.
    ///
    /// # Errors
    /// If there are too many, in all or below one that it would be part of. [`Tenants::forget_unused`] may make room.
    pub fn intern(&mut self, name: &TenantName) -> Result<TenantIx, TooManyTenants> {
        if let Some(&ix) = self.by_name.get(name) {
            return Ok(ix);
        }
        let mut new = BTreeSet::new();
        self.add_new(name, &mut new);
        let known = new.first().and_then(TenantName::parent);
        let mut next = known.and_then(|known| self.find(&known));
        while let Some(ix) = next {
            let above = self.get(ix);
            let most = most_below(above.name.depth());
            if above.below as usize + new.len() > most {
                return Err(TooManyTenants::Below {
                    name: name.clone(),
                    of: above.name.clone(),
                    most,
                });
            }
            next = above.parent;
        }
        self.add_all(name, new)
    }

    /// The same, however many are below those that it is part of: for what operators say.
    fn add(&mut self, name: &TenantName) -> Result<TenantIx, TooManyTenants> {
        let mut new = BTreeSet::new();
        self.add_new(name, &mut new);
        self.add_all(name, new)
    }

    /// Adds those that are not in the table, of which `name` is the last, if it is none that is.
    fn add_all(
        &mut self,
        name: &TenantName,
        new: BTreeSet<TenantName>,
    ) -> Result<TenantIx, TooManyTenants> {
        if self.len() + new.len() > MAX_TENANTS {
            return Err(TooManyTenants::InAll { name: name.clone() });
        }
        // Parents come before their children.
        new.into_iter().for_each(|name| self.insert(name));
        Ok(self.by_name[name])
    }

    /// Adds a name to those that are not in the table, with all that it is part of.
    pub(super) fn add_new(&self, name: &TenantName, new: &mut BTreeSet<TenantName>) {
        let mut next = Some(name.clone());
        while let Some(name) = next.filter(|it| !self.by_name.contains_key(it)) {
            next = name.parent();
            new.insert(name);
        }
    }

    /// Adds a tenant whose parent is there.
    fn insert(&mut self, name: TenantName) {
        let parent = name.parent().map(|parent| self.by_name[&parent]);
        let mut tenant = Tenant::new(&name, parent);
        tenant.rebuild(self.policy, &self.columns);
        let ix = match self.free.pop() {
            Some(ix) => {
                self.tenants[ix.0 as usize] = tenant;
                ix
            }
            None => {
                self.tenants.push(tenant);
                TenantIx(self.tenants.len() as u32 - 1)
            }
        };
        self.by_name.insert(name, ix);
        self.idle.insert(ix);
        if let Some(parent) = parent {
            self.for_all_above(parent, |above| above.below += 1);
            let parent = &mut self.tenants[parent.0 as usize];
            if parent.own.is_none() {
                parent.own = Some(Box::new(OwnWork {
                    usage: parent.usage.clone(),
                    terms: SmallVec::new(),
                    key: ShareKey::common(),
                }));
                parent.rebuild(self.policy, &self.columns);
            }
        }
    }

    /// Changes what a tenant is due, and so its key. A new tenant is added.
    pub fn set_config(
        &mut self,
        name: &TenantName,
        config: TenantConfig,
    ) -> Result<TenantIx, TooManyTenants> {
        let ix = self.add(name)?;
        self.idle.insert(ix);
        let tenant = &mut self.tenants[ix.0 as usize];
        self.quotas -= usize::from(!tenant.config.quota.is_empty());
        self.quotas += usize::from(!config.quota.is_empty());
        tenant.config = config;
        tenant.rebuild(self.policy, &self.columns);
        Ok(ix)
    }

    /// The tenant of this name, if there is one.
    pub fn find(&self, name: &TenantName) -> Option<TenantIx> {
        self.by_name.get(name).copied()
    }

    /// A tenant of this table.
    ///
    /// # Panics
    /// As all calls with a [`TenantIx`]: if it is of another table.
    pub fn get(&self, ix: TenantIx) -> &Tenant {
        &self.tenants[ix.0 as usize]
    }

    /// All tenants, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TenantIx, &Tenant)> {
        self.by_name.values().map(|&ix| (ix, self.get(ix)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Where the tenant stands among those that are part of the same: the smaller key is served first.
    pub fn key(&self, ix: TenantIx) -> &ShareKey {
        &self.get(ix).key
    }

    /// Accounts what a task of the tenant has got. Changes its keys, and those of all that it is part of.
    pub fn charge(&mut self, ix: TenantIx, amounts: &ResourceSet) {
        self.change_usage(ix, |usage| usage.add(amounts, Part::Own));
    }

    /// Accounts what a task of the tenant has given back. Changes its keys, and those of all that it is part of.
    ///
    /// # Panics
    /// If it is more than was charged.
    pub fn refund(&mut self, ix: TenantIx, amounts: &ResourceSet) {
        self.change_usage(ix, |usage| usage.remove(amounts, Part::Own));
    }

    /// Counts a sandbox of a tenant, or one less.
    pub fn note_sandbox(&mut self, ix: TenantIx, is_more: bool) {
        let tenant = &mut self.tenants[ix.0 as usize];
        match is_more {
            true => tenant.own_sandboxes += 1,
            false => tenant.own_sandboxes -= 1,
        }
        self.for_all_above(ix, |tenant| match is_more {
            true => tenant.sandboxes += 1,
            false => tenant.sandboxes -= 1,
        });
    }

    /// Counts a task of a tenant that waits here, or one less.
    pub fn note_waiting(&mut self, ix: TenantIx, is_more: bool) {
        self.for_all_above(ix, |tenant| match is_more {
            true => tenant.waiting += 1,
            false => tenant.waiting -= 1,
        });
    }

    /// Whether anybody has a quota.
    pub fn has_quotas(&self) -> bool {
        self.quotas > 0
    }

    pub(super) fn for_all_above(&mut self, ix: TenantIx, change: impl Fn(&mut Tenant)) {
        let mut next = Some(ix);
        while let Some(ix) = next {
            let tenant = &mut self.tenants[ix.0 as usize];
            change(tenant);
            next = tenant.parent;
        }
    }

    fn change_usage(&mut self, ix: TenantIx, change: impl Fn(&mut Usage)) {
        if let Some(own) = &mut self.tenants[ix.0 as usize].own {
            change(&mut own.usage);
        }
        let mut next = Some(ix);
        while let Some(ix) = next {
            let tenant = &mut self.tenants[ix.0 as usize];
            change(&mut tenant.usage);
            tenant.refresh(&self.columns);
            next = tenant.parent;
        }
    }

    /// Replaces what tenants use on another node. Returns whose usage has changed: their keys may have, and those of all
    /// that they are part of.
    ///
    /// If that would make too many tenants, nothing changes.
    pub fn set_remote(
        &mut self,
        node: NodeId,
        usage: &BTreeMap<TenantName, ResourceSet>,
    ) -> Result<Vec<TenantIx>, TooManyTenants> {
        let mut new = BTreeSet::new();
        for name in usage.keys() {
            self.add_new(name, &mut new);
            if self.len() + new.len() > MAX_TENANTS {
                return Err(TooManyTenants::InAll { name: name.clone() });
            }
        }
        let [sandboxes, actors] = [SANDBOXES, CPU_OF_ACTORS].map(reported_as);
        let mut report = Report::new();
        for (name, amounts) in usage.iter().filter(|(_, amounts)| !amounts.is_empty()) {
            let mut amounts = amounts.clone();
            // No node has more than that, and so no sum overflows, whatever it says.
            let sandboxes = amounts.remove(&sandboxes).whole_units();
            let reported = Reported {
                sandboxes: sandboxes.min(u32::MAX.into()),
                cpu_of_actors: amounts.remove(&actors).steps(),
                amounts,
            };
            report.insert(self.add(name)?, reported);
        }
        Ok(self.replace_remote(node, report))
    }

    /// Forgets what tenants use on another node, which is gone. Returns whose usage has changed.
    pub fn clear_remote(&mut self, node: NodeId) -> Vec<TenantIx> {
        self.replace_remote(node, Report::new())
    }

    /// What other nodes are to be told, the argument of [`Tenants::set_remote`] there: what each tenant uses in tasks that
    /// are accounted here, and of those whose sandboxes a quota bounds how many they have.
    pub fn report(&self) -> BTreeMap<TenantName, ResourceSet> {
        let mut report = self.own_usage();
        if !self.has_quotas() {
            return report;
        }
        let name = reported_as(SANDBOXES);
        let is_bounded = |tenant: &Tenant| tenant.config.quota.max_tasks.is_some();
        for (ix, tenant) in self.iter().filter(|(_, it)| it.own_sandboxes > 0) {
            if self.above(ix).any(is_bounded) {
                let amounts = report.entry(tenant.name.clone()).or_default();
                amounts.set(name.clone(), Amount::units(tenant.own_sandboxes));
            }
        }
        report
    }

    /// Adds to a report what an actor of a tenant has of CPUs here, if a quota bounds that: a task that waits for that CPU waits
    /// in vain.
    pub fn report_actor(
        &self,
        report: &mut BTreeMap<TenantName, ResourceSet>,
        ix: TenantIx,
        cpu: Amount,
    ) {
        let is_bounded = |tenant: &Tenant| tenant.config.quota.max.contains_key(&ResourceName::CPU);
        if cpu.is_zero() || !self.above(ix).any(is_bounded) {
            return;
        }
        let name = reported_as(CPU_OF_ACTORS);
        let amounts = report.entry(self.get(ix).name.clone()).or_default();
        let sum = amounts.get(&name).checked_add(cpu);
        amounts.set(name, sum.unwrap_or(Amount::MAX));
    }

    /// What each tenant uses in tasks that are accounted here, those that use nothing left out.
    pub fn own_usage(&self) -> BTreeMap<TenantName, ResourceSet> {
        self.tenants
            .iter()
            .map(|tenant| (tenant.name.clone(), tenant.own_usage()))
            .filter(|(_, usage)| !usage.is_empty())
            .collect()
    }

    /// Counts a submission. The tenant's first one decides ties, so it changes its keys, and those of all that it is part
    /// of.
    pub fn note_submission(&mut self, ix: TenantIx, now: Instant) {
        let tenant = &mut self.tenants[ix.0 as usize];
        tenant.counters.submitted += 1;
        if tenant.first_submission.is_some() {
            return;
        }
        tenant.first_submission = Some(now);
        let mut next = Some(ix);
        while let Some(ix) = next {
            let tenant = &mut self.tenants[ix.0 as usize];
            let first = tenant.first_of_all.map_or(now, |first| first.min(now));
            tenant.first_of_all = Some(first);
            tenant.rebuild(self.policy, &self.columns);
            next = tenant.parent;
        }
    }

    /// Counts a start.
    pub fn note_started(&mut self, ix: TenantIx) {
        self.tenants[ix.0 as usize].counters.started += 1;
    }

    /// Counts a task that ended well.
    pub fn note_finished(&mut self, ix: TenantIx) {
        self.tenants[ix.0 as usize].counters.finished += 1;
    }

    /// Counts a task that failed for good.
    pub fn note_failed(&mut self, ix: TenantIx) {
        self.tenants[ix.0 as usize].counters.failed += 1;
    }

    /// Counts a cancelled task.
    pub fn note_cancelled(&mut self, ix: TenantIx) {
        self.tenants[ix.0 as usize].counters.cancelled += 1;
    }

    /// Counts a pause of a task.
    pub fn note_paused(&mut self, ix: TenantIx) {
        self.tenants[ix.0 as usize].counters.paused += 1;
    }

    /// Counts an attempt that was stopped for another tenant after it had run for so long.
    pub fn note_preempted(&mut self, ix: TenantIx, ran: Duration) {
        let counters = &mut self.tenants[ix.0 as usize].counters;
        counters.preempted += 1;
        let ran_us = u64::try_from(ran.as_micros()).unwrap_or(u64::MAX);
        counters.repeated_us = counters.repeated_us.saturating_add(ran_us);
    }

    fn replace_remote(&mut self, node: NodeId, report: Report) -> Vec<TenantIx> {
        let old = self.remote.remove(&node).unwrap_or_default();
        let both: BTreeSet<TenantIx> = old.keys().chain(report.keys()).copied().collect();
        let changed: Vec<TenantIx> = both
            .into_iter()
            .filter(|ix| old.get(ix) != report.get(ix))
            .collect();
        for ix in &changed {
            self.idle.insert(*ix);
            self.change_usage(*ix, |usage| {
                if let Some(before) = old.get(ix) {
                    usage.remove(&before.amounts, Part::Remote);
                }
                if let Some(now) = report.get(ix) {
                    usage.add(&now.amounts, Part::Remote);
                }
            });
            let of = |report: &Report| {
                let of = report.get(ix);
                of.map_or((0, 0), |it| (it.sandboxes, it.cpu_of_actors))
            };
            let (before, now) = (of(&old), of(&report));
            self.for_all_above(*ix, |tenant| {
                tenant.sandboxes = tenant.sandboxes - before.0 + now.0;
                let others = tenant.actors_elsewhere - u128::from(before.1);
                tenant.actors_elsewhere = others + u128::from(now.1);
            });
        }
        if !report.is_empty() {
            self.remote.insert(node, report);
        }
        changed
    }

    fn rebuild_all(&mut self) {
        let counts = |name: &ResourceName| match self.policy {
            Policy::Drf => true,
            Policy::Fair => name.is_memory(),
            Policy::Fifo => false,
        };
        let column = |(name, total): (&ResourceName, _)| Column {
            name: name.clone(),
            total,
            counts: counts(name),
        };
        self.columns = self.total.iter().map(column).collect();
        for tenant in &mut self.tenants {
            tenant.rebuild(self.policy, &self.columns);
        }
        self.generation += 1;
    }
}
