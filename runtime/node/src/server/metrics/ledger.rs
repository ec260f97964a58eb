//! What metrics tell of the ledger.
//!
//! Owns what is copied under its lock. Must not: write metrics.

use std::collections::BTreeMap;

use wasmrun_model::fairness::{TenantCounters, TenantIx, TenantName};
use wasmrun_model::resource::{NodeResources, ResourceSet};
use wasmrun_model::scheduler::Status;

use crate::ledger::Counts;
use crate::server::groups;
use crate::server::metrics::sample::MOST_TENANTS;

/// What is copied under the ledger's lock.
pub(super) struct Ledger {
    pub(super) status: Status,
    pub(super) total: ResourceSet,
    pub(super) free: ResourceSet,
    pub(super) living: usize,
    /// How many of our groups are in each state.
    pub(super) groups: BTreeMap<&'static str, usize>,
    pub(super) bundles: usize,
    pub(super) counts: Counts,
    pub(super) recipes_dropped: u64,
    pub(super) lineage_bytes: u64,
    pub(super) tenants: Vec<Tenant>,
    pub(super) others: TenantCounters,
    /// Of all tenants.
    pub(super) started: u64,
    /// The same.
    pub(super) paused: u64,
    pub(super) preempted: u64,
    pub(super) repeated_us: u64,
}

pub(super) struct Tenant {
    pub(super) name: TenantName,
    pub(super) counters: TenantCounters,
    pub(super) used: ResourceSet,
    pub(super) share: String,
}

impl Ledger {
    pub(super) fn read(ledger: &crate::ledger::Ledger) -> Self {
        let scheduler = ledger.scheduler();
        let own = ledger.own_resources();
        // With those that nothing uses any more.
        let (mut tenants, mut others) = (Vec::new(), scheduler.tenants().forgotten());
        let (mut started, mut paused) = (others.started, others.paused);
        let (mut preempted, mut repeated_us) = (others.preempted, others.repeated_us);
        for (TenantIx(at), tenant) in scheduler.tenants().iter() {
            let counters = tenant.counters();
            started += counters.started;
            paused += counters.paused;
            preempted += counters.preempted;
            repeated_us = repeated_us.saturating_add(counters.repeated_us);
            if at < MOST_TENANTS {
                tenants.push(Tenant {
                    name: tenant.name().clone(),
                    counters,
                    used: tenant.own_usage(),
                    share: tenant.dominant_share().to_string(),
                });
                continue;
            }
            others.add(&counters);
        }
        // Those that no group is in now are shown too.
        let mut groups = BTreeMap::from(groups::STATES.map(|state| (state, 0)));
        for state in scheduler.group_states() {
            *groups.entry(groups::state(state)).or_default() += 1;
        }
        Self {
            status: scheduler.status(),
            groups,
            bundles: scheduler.reserved_bundles(),
            total: own.map(NodeResources::total).unwrap_or_default(),
            free: own.map(NodeResources::available).unwrap_or_default(),
            living: ledger.living(),
            counts: ledger.counts,
            recipes_dropped: ledger.lineage().forgotten(),
            lineage_bytes: ledger.lineage().used(),
            tenants,
            others,
            started,
            paused,
            preempted,
            repeated_us,
        }
    }
}
