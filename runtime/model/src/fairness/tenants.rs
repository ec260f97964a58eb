//! The table of tenants.
//!
//! Owns each tenant's settings, what it uses here and elsewhere, its counters and its key. Must
//! not: know tasks or queues, or decide what runs: whoever keeps the queue takes the smallest key
//! that fits.
//!
//! Invariants: every key is up to date after every call; a [`TenantIx`] stays valid for the life
//! of the table; usage elsewhere is the sum of the last report of each node that is not cleared.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::id::NodeId;
use crate::resource::{ResourceName, ResourceSet};
use crate::time::Instant;

use super::explain::{Ahead, Side};
use super::key::{Column, Ranking, ShareKey, Term};
use super::policy::Policy;
use super::ratio::{Ratio, Scale};
use super::tenant::{TenantConfig, TenantName};
use super::usage::{Part, Usage};

/// The most tenants in one table. One more is refused.
pub const MAX_TENANTS: usize = 65_536;

/// A tenant in one [`Tenants`] table; dense from 0. Means nothing elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIx(pub u32);

/// The error of a tenant that is one too many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant {name} would be one too many: a cluster has at most {MAX_TENANTS}; \
     use one of those that there are"
)]
pub struct TooManyTenants {
    /// The tenant that was refused.
    pub name: TenantName,
}

/// How many tasks of a tenant did what, as seen by this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantCounters {
    /// Submitted.
    pub submitted: u64,
    /// Started; a task that is retried counts again.
    pub started: u64,
    /// Ended well.
    pub finished: u64,
    /// Ended badly, for good.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

/// One tenant.
#[derive(Debug, Clone)]
pub struct Tenant {
    name: TenantName,
    config: TenantConfig,
    usage: Usage,
    /// As many as the table has columns.
    terms: SmallVec<[Term; 4]>,
    first_submission: Option<Instant>,
    counters: TenantCounters,
    dominant_share: Ratio,
    dominant_share_max: Ratio,
    key: ShareKey,
}

impl Tenant {
    fn new(name: &TenantName) -> Self {
        Self {
            name: name.clone(),
            config: TenantConfig::default(),
            usage: Usage::default(),
            terms: SmallVec::new(),
            first_submission: None,
            counters: TenantCounters::default(),
            dominant_share: Ratio::ZERO,
            dominant_share_max: Ratio::ZERO,
            key: ShareKey::common(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &TenantName {
        &self.name
    }

    /// What it is due.
    pub fn config(&self) -> &TenantConfig {
        &self.config
    }

    /// What it uses over the whole cluster, as far as is known here. An amount above the largest
    /// one is shown as that.
    pub fn usage(&self) -> ResourceSet {
        self.usage.all()
    }

    /// What it uses in tasks that are accounted here: what other nodes are to be told.
    pub fn own_usage(&self) -> ResourceSet {
        self.usage.own()
    }

    /// When it first submitted something here, if it did.
    pub fn first_submission(&self) -> Option<Instant> {
        self.first_submission
    }

    /// How many of its tasks did what.
    pub fn counters(&self) -> TenantCounters {
        self.counters
    }

    /// The largest, over all resources of the cluster, of what it uses ÷ the total; without
    /// weights, whatever the policy.
    pub fn dominant_share(&self) -> Ratio {
        self.dominant_share
    }

    /// The largest that [`Tenant::dominant_share`] has ever been.
    pub fn dominant_share_max(&self) -> Ratio {
        self.dominant_share_max
    }

    /// Where it stands: the smaller key is served first.
    pub fn key(&self) -> &ShareKey {
        &self.key
    }

    /// After a change of settings, policy or total.
    fn rebuild(&mut self, policy: Policy, columns: &[Column]) {
        let config = &self.config;
        let term = |column: &Column| Term {
            scale: Scale::new(config.weight, config.resource_weight(&column.name)),
            minimum: config.min_share.get(&column.name),
        };
        self.terms = columns.iter().map(term).collect();
        self.key = match policy {
            Policy::Fifo => ShareKey::common(),
            Policy::Drf | Policy::Fair => ShareKey::of(&self.name, self.first_submission),
        };
        self.refresh(columns);
    }

    /// After a change of usage.
    fn refresh(&mut self, columns: &[Column]) {
        let ranking = Ranking::new(columns, &self.terms, &self.usage);
        self.dominant_share = ranking.dominant;
        self.dominant_share_max = self.dominant_share_max.max(ranking.dominant);
        self.key.update(&ranking.places);
    }
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
    tenants: Vec<Tenant>,
    by_name: BTreeMap<TenantName, TenantIx>,
    remote: BTreeMap<NodeId, Report>,
}

/// What a node reported, by tenant.
type Report = BTreeMap<TenantIx, ResourceSet>;

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
    /// change only of the tenant that a call names, and of those that it returns.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The tenant of this name, which is added if it is new.
    pub fn intern(&mut self, name: &TenantName) -> Result<TenantIx, TooManyTenants> {
        if let Some(&ix) = self.by_name.get(name) {
            return Ok(ix);
        }
        if self.tenants.len() == MAX_TENANTS {
            return Err(TooManyTenants { name: name.clone() });
        }
        let ix = TenantIx(self.tenants.len() as u32);
        let mut tenant = Tenant::new(name);
        tenant.rebuild(self.policy, &self.columns);
        self.tenants.push(tenant);
        self.by_name.insert(name.clone(), ix);
        Ok(ix)
    }

    /// Changes what a tenant is due, and so its key. A new tenant is added.
    pub fn set_config(
        &mut self,
        name: &TenantName,
        config: TenantConfig,
    ) -> Result<TenantIx, TooManyTenants> {
        let ix = self.intern(name)?;
        let tenant = &mut self.tenants[ix.0 as usize];
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
        self.tenants.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Where the tenant stands: the smaller key is served first.
    pub fn key(&self, ix: TenantIx) -> &ShareKey {
        &self.get(ix).key
    }

    /// Accounts what a task of the tenant has got. Changes its key.
    pub fn charge(&mut self, ix: TenantIx, amounts: &ResourceSet) {
        let tenant = &mut self.tenants[ix.0 as usize];
        tenant.usage.add(amounts, Part::Own);
        tenant.refresh(&self.columns);
    }

    /// Accounts what a task of the tenant has given back. Changes its key.
    ///
    /// # Panics
    /// If it is more than was charged.
    pub fn refund(&mut self, ix: TenantIx, amounts: &ResourceSet) {
        let tenant = &mut self.tenants[ix.0 as usize];
        tenant.usage.remove(amounts, Part::Own);
        tenant.refresh(&self.columns);
    }

    /// Replaces what tenants use on another node. Returns those whose key may have changed.
    ///
    /// If that would make too many tenants, nothing changes.
    pub fn set_remote(
        &mut self,
        node: NodeId,
        usage: &BTreeMap<TenantName, ResourceSet>,
    ) -> Result<Vec<TenantIx>, TooManyTenants> {
        let is_new = |name: &&TenantName| !self.by_name.contains_key(*name);
        let room = MAX_TENANTS - self.tenants.len();
        if let Some(name) = usage.keys().filter(is_new).nth(room) {
            return Err(TooManyTenants { name: name.clone() });
        }
        let mut report = Report::new();
        for (name, amounts) in usage.iter().filter(|(_, amounts)| !amounts.is_empty()) {
            report.insert(self.intern(name)?, amounts.clone());
        }
        Ok(self.replace_remote(node, report))
    }

    /// Forgets what tenants use on another node, which is gone. Returns those whose key may have
    /// changed.
    pub fn clear_remote(&mut self, node: NodeId) -> Vec<TenantIx> {
        self.replace_remote(node, Report::new())
    }

    /// What each tenant uses in tasks that are accounted here, those that use nothing left out: the
    /// argument of [`Tenants::set_remote`] on other nodes.
    pub fn own_usage(&self) -> BTreeMap<TenantName, ResourceSet> {
        self.tenants
            .iter()
            .map(|tenant| (tenant.name.clone(), tenant.own_usage()))
            .filter(|(_, usage)| !usage.is_empty())
            .collect()
    }

    /// Counts a submission. The tenant's first one decides ties, so it changes its key.
    pub fn note_submission(&mut self, ix: TenantIx, now: Instant) {
        let tenant = &mut self.tenants[ix.0 as usize];
        tenant.counters.submitted += 1;
        if tenant.first_submission.is_none() {
            tenant.first_submission = Some(now);
            tenant.rebuild(self.policy, &self.columns);
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

    /// Which of two tenants is served first, and why. `None` if neither is before the other: they
    /// are the same, or the policy is `fifo`.
    pub fn compare(&self, a: TenantIx, b: TenantIx) -> Option<Ahead> {
        let (a, b) = (self.side(a), self.side(b));
        match a.key.cmp(b.key) {
            std::cmp::Ordering::Less => Some(Ahead::new(&a, &b, &self.columns)),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Ahead::new(&b, &a, &self.columns)),
        }
    }

    fn side(&self, ix: TenantIx) -> Side<'_> {
        let tenant = self.get(ix);
        Side {
            name: &tenant.name,
            key: &tenant.key,
            ranking: Ranking::new(&self.columns, &tenant.terms, &tenant.usage),
            terms: &tenant.terms,
        }
    }

    fn replace_remote(&mut self, node: NodeId, report: Report) -> Vec<TenantIx> {
        let old = self.remote.remove(&node).unwrap_or_default();
        let both: BTreeSet<TenantIx> = old.keys().chain(report.keys()).copied().collect();
        let changed: Vec<TenantIx> = both
            .into_iter()
            .filter(|ix| old.get(ix) != report.get(ix))
            .collect();
        for ix in &changed {
            let tenant = &mut self.tenants[ix.0 as usize];
            if let Some(amounts) = old.get(ix) {
                tenant.usage.remove(amounts, Part::Remote);
            }
            if let Some(amounts) = report.get(ix) {
                tenant.usage.add(amounts, Part::Remote);
            }
            tenant.refresh(&self.columns);
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
