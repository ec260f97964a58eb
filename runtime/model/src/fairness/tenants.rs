//! The table of tenants.
//!
//! Owns each tenant's settings, what it uses here and elsewhere, its counters and its keys. Must
//! not: know tasks or queues, or decide what runs: whoever keeps the queue takes the first in the
//! order of the tree (`order.rs`) that fits.
//!
//! Invariants: every key is up to date after every call; a [`TenantIx`] stays valid for the life
//! of the table; usage elsewhere is the sum of the last report of each node that is not cleared; whoever is in the table,
//! its parent is; what a tenant uses counts as used by all that it is part of.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::id::NodeId;
use crate::resource::{ResourceName, ResourceSet};
use crate::time::Instant;

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

/// One tenant, with all that are part of it.
#[derive(Debug, Clone)]
pub struct Tenant {
    name: TenantName,
    parent: Option<TenantIx>,
    config: TenantConfig,
    /// With those below it.
    usage: Usage,
    /// As many as the table has columns.
    terms: SmallVec<[Term; 4]>,
    /// Its own work, once there is a tenant below it.
    own: Option<Box<OwnWork>>,
    first_submission: Option<Instant>,
    /// Of it or those below it.
    first_of_all: Option<Instant>,
    counters: TenantCounters,
    dominant_share: Ratio,
    dominant_share_max: Ratio,
    key: ShareKey,
}

/// The work of a tenant that others are part of: beside them it counts as one more, of weight 1 and without a guarantee.
#[derive(Debug, Clone)]
struct OwnWork {
    usage: Usage,
    terms: SmallVec<[Term; 4]>,
    key: ShareKey,
}

impl Tenant {
    fn new(name: &TenantName, parent: Option<TenantIx>) -> Self {
        Self {
            name: name.clone(),
            parent,
            config: TenantConfig::default(),
            usage: Usage::default(),
            terms: SmallVec::new(),
            own: None,
            first_submission: None,
            first_of_all: None,
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

    /// The tenant that it is part of.
    pub fn parent(&self) -> Option<TenantIx> {
        self.parent
    }

    /// What it is due.
    pub fn config(&self) -> &TenantConfig {
        &self.config
    }

    /// What it and those below it use over the whole cluster, as far as is known here. An amount above the largest
    /// one is shown as that.
    pub fn usage(&self) -> ResourceSet {
        self.usage.all()
    }

    /// What it uses in tasks that are accounted here, without those below it: what other nodes are to be told.
    pub fn own_usage(&self) -> ResourceSet {
        self.own_work().own()
    }

    fn own_work(&self) -> &Usage {
        self.own.as_ref().map_or(&self.usage, |own| &own.usage)
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

    /// Where it stands among those that are part of the same: the smaller key is served first.
    pub fn key(&self) -> &ShareKey {
        &self.key
    }

    /// Where its own work stands among those below it.
    pub(super) fn own_key(&self) -> &ShareKey {
        self.own.as_ref().map_or(&self.key, |own| &own.key)
    }

    /// Its resources in its own order, and what its settings say of them.
    pub(super) fn ranking(&self, columns: &[Column]) -> (Ranking, &[Term]) {
        let ranking = Ranking::new(columns, &self.terms, &self.usage);
        (ranking, &self.terms[..])
    }

    /// The same of its own work, beside those below it.
    pub(super) fn own_ranking(&self, columns: &[Column]) -> (Ranking, &[Term]) {
        match &self.own {
            Some(own) => {
                let ranking = Ranking::new(columns, &own.terms, &own.usage);
                (ranking, &own.terms[..])
            }
            None => self.ranking(columns),
        }
    }

    /// After a change of settings, policy or total.
    fn rebuild(&mut self, policy: Policy, columns: &[Column]) {
        let config = &self.config;
        let term = |column: &Column| Term {
            scale: Scale::new(config.weight, config.resource_weight(&column.name)),
            minimum: config.min_share.get(&column.name),
        };
        self.terms = columns.iter().map(term).collect();
        let key = |submitted| match policy {
            Policy::Fifo => ShareKey::common(),
            Policy::Drf | Policy::Fair => ShareKey::of(&self.name, submitted),
        };
        self.key = key(self.first_of_all);
        if let Some(own) = &mut self.own {
            own.key = key(self.first_submission);
            own.terms = columns.iter().map(|_| Term::default()).collect();
        }
        self.refresh(columns);
    }

    /// After a change of usage.
    fn refresh(&mut self, columns: &[Column]) {
        let ranking = Ranking::new(columns, &self.terms, &self.usage);
        self.dominant_share = ranking.dominant;
        self.dominant_share_max = self.dominant_share_max.max(ranking.dominant);
        self.key.update(&ranking.places);
        if let Some(own) = &mut self.own {
            let ranking = Ranking::new(columns, &own.terms, &own.usage);
            own.key.update(&ranking.places);
        }
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
    /// change only of the tenant that a call names, of those that it returns, and of all that these are part of.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The resources that shares are of.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The tenant of this name, which is added if it is new, and before it all that it is part of.
    pub fn intern(&mut self, name: &TenantName) -> Result<TenantIx, TooManyTenants> {
        if let Some(&ix) = self.by_name.get(name) {
            return Ok(ix);
        }
        let mut new = BTreeSet::new();
        self.add_new(name, &mut new);
        if self.tenants.len() + new.len() > MAX_TENANTS {
            return Err(TooManyTenants { name: name.clone() });
        }
        // Whoever a name is part of comes before it.
        new.into_iter().for_each(|name| self.insert(name));
        Ok(self.by_name[name])
    }

    /// Adds a name to those that are not in the table, with all that it is part of.
    fn add_new(&self, name: &TenantName, new: &mut BTreeSet<TenantName>) {
        let mut next = Some(name.clone());
        while let Some(name) = next.filter(|it| !self.by_name.contains_key(it)) {
            next = name.parent();
            new.insert(name);
        }
    }

    /// Adds a tenant whose parent is there.
    fn insert(&mut self, name: TenantName) {
        let ix = TenantIx(self.tenants.len() as u32);
        let parent = name.parent().map(|parent| self.by_name[&parent]);
        let mut tenant = Tenant::new(&name, parent);
        tenant.rebuild(self.policy, &self.columns);
        self.tenants.push(tenant);
        self.by_name.insert(name, ix);
        if let Some(TenantIx(parent)) = parent {
            let parent = &mut self.tenants[parent as usize];
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
            if self.tenants.len() + new.len() > MAX_TENANTS {
                return Err(TooManyTenants { name: name.clone() });
            }
        }
        let mut report = Report::new();
        for (name, amounts) in usage.iter().filter(|(_, amounts)| !amounts.is_empty()) {
            report.insert(self.intern(name)?, amounts.clone());
        }
        Ok(self.replace_remote(node, report))
    }

    /// Forgets what tenants use on another node, which is gone. Returns whose usage has changed.
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

    fn replace_remote(&mut self, node: NodeId, report: Report) -> Vec<TenantIx> {
        let old = self.remote.remove(&node).unwrap_or_default();
        let both: BTreeSet<TenantIx> = old.keys().chain(report.keys()).copied().collect();
        let changed: Vec<TenantIx> = both
            .into_iter()
            .filter(|ix| old.get(ix) != report.get(ix))
            .collect();
        for ix in &changed {
            self.change_usage(*ix, |usage| {
                if let Some(amounts) = old.get(ix) {
                    usage.remove(amounts, Part::Remote);
                }
                if let Some(amounts) = report.get(ix) {
                    usage.add(amounts, Part::Remote);
                }
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
