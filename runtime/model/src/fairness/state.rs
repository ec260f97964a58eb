//! One tenant of the table.
//!
//! Owns its settings, what it and those below it use, its counters and its keys. Must not: know other tenants.

use smallvec::SmallVec;

use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::time::Instant;

use super::key::{Column, Ranking, ShareKey, Term};
use super::policy::Policy;
use super::ratio::{Ratio, Scale};
use super::tenant::{TenantConfig, TenantName};
use super::tenants::TenantIx;
use super::usage::Usage;

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
    /// Paused while they ran, so that another tenant got their CPU.
    pub paused: u64,
    /// Attempts that were stopped so that another tenant got what they held, and are tried again.
    pub preempted: u64,
    /// How long those had run, in microseconds: work that is repeated.
    pub repeated_us: u64,
}

impl TenantCounters {
    /// Adds those of another tenant.
    pub fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.started += other.started;
        self.finished += other.finished;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.paused += other.paused;
        self.preempted += other.preempted;
        self.repeated_us = self.repeated_us.saturating_add(other.repeated_us);
    }
}

/// One tenant, with all that are part of it.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub(super) name: TenantName,
    pub(super) parent: Option<TenantIx>,
    /// How many tenants are part of it, all levels together.
    pub(super) below: u32,
    /// How many tasks and groups of it are here, without those of tenants below it.
    pub(super) uses: u32,
    pub(super) config: TenantConfig,
    /// With those below it.
    pub(super) usage: Usage,
    /// As many as the table has columns.
    pub(super) terms: SmallVec<[Term; 4]>,
    /// Its own work, once there is a tenant below it.
    pub(super) own: Option<Box<OwnWork>>,
    /// How many sandboxes it has itself, in tasks that are accounted here.
    pub(super) own_sandboxes: u32,
    /// How many it and those below it have, here and elsewhere.
    pub(super) sandboxes: u64,
    /// What actors of it and those below it have of CPUs at other nodes, in steps.
    pub(super) actors_elsewhere: u128,
    /// How many tasks of it and those below it wait here.
    pub(super) waiting: u64,
    pub(super) first_submission: Option<Instant>,
    /// Of it or those below it.
    pub(super) first_of_all: Option<Instant>,
    pub(super) counters: TenantCounters,
    pub(super) dominant_share: Ratio,
    pub(super) dominant_share_max: Ratio,
    pub(super) key: ShareKey,
}

/// The work of a tenant that others are part of: beside them it counts as one more, of weight 1 and without a guarantee.
#[derive(Debug, Clone)]
pub(super) struct OwnWork {
    pub(super) usage: Usage,
    pub(super) terms: SmallVec<[Term; 4]>,
    pub(super) key: ShareKey,
}

impl Tenant {
    pub(super) fn new(name: &TenantName, parent: Option<TenantIx>) -> Self {
        Self {
            name: name.clone(),
            parent,
            below: 0,
            uses: 0,
            config: TenantConfig::default(),
            usage: Usage::default(),
            terms: SmallVec::new(),
            own: None,
            own_sandboxes: 0,
            sandboxes: 0,
            actors_elsewhere: 0,
            waiting: 0,
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

    /// What of a resource it and those below it use over the whole cluster, as far as is known here.
    pub fn used(&self, name: &ResourceName) -> Amount {
        self.usage.get(name)
    }

    /// How many sandboxes it and those below it have: here, and at other nodes where some quota bounds them.
    pub fn sandboxes(&self) -> u64 {
        self.sandboxes
    }

    /// What actors of it and those below it have of CPUs at other nodes, where some quota bounds their CPU.
    pub fn cpu_of_actors_elsewhere(&self) -> Amount {
        u64::try_from(self.actors_elsewhere).map_or(Amount::MAX, Amount::from_steps)
    }

    /// How many tasks of it and those below it wait here.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// How many tasks and groups of it are here, without those of tenants below it.
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// Whether there are, or were, tenants that are part of it.
    pub(super) fn has_parts(&self) -> bool {
        self.own.is_some()
    }

    pub(super) fn own_work(&self) -> &Usage {
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
    pub(super) fn rebuild(&mut self, policy: Policy, columns: &[Column]) {
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
    pub(super) fn refresh(&mut self, columns: &[Column]) {
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
