//! Which tenants give room: sharing of the memory by weights, and quotas.
//!
//! Owns whose objects may leave memory for a create or a restore of a tenant. Must not: choose among the objects of one.
//!
//! Invariants: a create takes nothing from a tenant that is within its part, except its own; what is needed under a quota
//! comes from those whom the quota is of. A tenant without anything in memory may always read one object: else one that is larger
//! than its part could not be read any more.

use wasmrun_model::fairness::{Demands, TenantName, Weight};

use crate::create::{PartUsed, QuotaUsed};
use crate::layout::Layout;

use super::State;
use super::room::Means;

/// A tenant that has something in the store, for as long as it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) u64);

/// Room that there is not.
#[derive(Debug)]
pub(super) struct Shortage {
    /// How much, above zero.
    pub(super) bytes: u64,
    /// What of that is on its way.
    pub(super) coming: u64,
    /// Whose objects may make more, the next to give something first.
    pub(super) giving: Vec<Owner>,
}

impl State {
    /// Says how much a tenant counts beside others, and what it may have in memory, with all that are part of it.
    pub(crate) fn set_tenant(&mut self, tenant: &TenantName, weight: Weight, max: Option<u64>) {
        self.parts.set_weight(tenant, weight);
        match max {
            Some(max) => self.quotas.insert(tenant.clone(), max),
            None => self.quotas.remove(tenant),
        };
        self.has_changed = true;
    }

    /// Whether something waits for a quota, and for nothing else.
    pub(super) fn quota_shortage(
        &self,
        tenant: &TenantName,
        bytes: u64,
        means: Means,
    ) -> Option<Shortage> {
        if means == Means::Return && self.arena.used_of(tenant) == 0 {
            return None;
        }
        let (of, most) = self.quota_without_room(tenant, bytes)?;
        let mut demands = self.in_memory();
        demands.retain(|it, _| is_part_of(it, of));
        *demands.entry(tenant.clone()).or_default() += bytes;
        let below = self.tenants.iter().filter(|(it, _)| is_part_of(it, of));
        Some(Shortage {
            bytes: (self.used_below(of) + bytes).saturating_sub(most),
            coming: below.map(|(_, counts)| counts.spilling_bytes).sum(),
            giving: self.giving(tenant, most, &demands),
        })
    }

    /// The room that the whole store has not.
    pub(super) fn shortage(&self, tenant: &TenantName, layout: Layout, means: Means) -> Shortage {
        Shortage {
            bytes: self.arena.shortfall(layout),
            coming: self.spilling_bytes,
            giving: self.giving_room(tenant, layout.bytes, means),
        }
    }

    /// Whose objects may go for so much of a tenant's.
    fn giving_room(&self, tenant: &TenantName, bytes: u64, means: Means) -> Vec<Owner> {
        let own = self.tenants.get(tenant).map(|it| it.owner);
        if let (1, Some(own)) = (self.tenants.len(), own) {
            return vec![own];
        }
        let capacity = self.arena.capacity();
        let mut demands = self.in_memory();
        *demands.entry(tenant.clone()).or_default() += bytes;
        if demands.values().sum::<u64>() <= capacity {
            // What is short is free, in segments that can only be given back as a whole: it counts for whose these are.
            for (tenant, free) in self.arena.warm_by_tenant() {
                *demands.entry(tenant.clone()).or_default() += free;
            }
        }
        let mut giving = self.giving(tenant, capacity, &demands);
        if means == Means::Return && self.arena.used_of(tenant) == 0 {
            let all = self.tenants.values().map(|it| it.owner);
            let others: Vec<Owner> = all.filter(|it| !giving.contains(it)).collect();
            giving.extend(others);
        }
        giving
    }

    /// Of those above their parts of this, the farthest first; last the tenant itself.
    fn giving(&self, tenant: &TenantName, capacity: u64, demands: &Demands) -> Vec<Owner> {
        let above = self.parts.above(capacity, demands).into_iter();
        let above = above.filter_map(|it| self.tenants.get(it));
        let mut giving: Vec<Owner> = above.map(|it| it.owner).collect();
        let own = self.tenants.get(tenant).map(|it| it.owner);
        let own = own.filter(|it| !giving.contains(it));
        giving.extend(own);
        giving
    }

    /// What each tenant has in memory, without what is about to leave it.
    pub(super) fn in_memory(&self) -> Demands {
        let all = self.arena.used_by_tenant();
        let all = all.map(|(tenant, used)| {
            let counts = self.tenants.get(tenant);
            let leaving = counts.map_or(0, |it| it.spilling_bytes);
            (tenant.clone(), used - leaving)
        });
        all.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// The quota that so much more of a tenant's has no room under, and what that is.
    pub(super) fn quota_without_room(
        &self,
        tenant: &TenantName,
        bytes: u64,
    ) -> Option<(&TenantName, u64)> {
        let mut quotas = self.quotas_of(tenant);
        quotas.find(|(of, most)| self.used_below(of).saturating_add(bytes) > *most)
    }

    /// The quota under which so much is never possible.
    pub(super) fn quota_below(
        &self,
        tenant: &TenantName,
        bytes: u64,
    ) -> Option<(&TenantName, u64)> {
        self.quotas_of(tenant).find(|(_, most)| bytes > *most)
    }

    /// The quotas of a tenant and of all that it is part of.
    fn quotas_of(&self, tenant: &TenantName) -> impl Iterator<Item = (&TenantName, u64)> {
        let first = (!self.quotas.is_empty()).then(|| tenant.clone());
        let names = std::iter::successors(first, TenantName::parent);
        names.filter_map(|name| {
            self.quotas
                .get_key_value(&name)
                .map(|(of, most)| (of, *most))
        })
    }

    fn used_below(&self, of: &TenantName) -> u64 {
        let all = self.arena.used_by_tenant();
        all.filter(|(it, _)| is_part_of(it, of))
            .map(|(_, used)| used)
            .sum()
    }

    /// What keeps so much of a tenant's out of memory beside how full that is.
    pub(super) fn limits_of(
        &self,
        tenant: &TenantName,
        bytes: u64,
    ) -> (Option<QuotaUsed>, Option<PartUsed>) {
        let quota = self
            .quota_without_room(tenant, bytes)
            .map(|(of, most)| QuotaUsed {
                tenant: of.clone(),
                // What others have of it is not for this one to know.
                bytes: (of == tenant).then(|| (self.used_below(of), most)),
            });
        let demands = self.in_memory();
        let is_shared = demands.keys().any(|it| it != tenant);
        let part = is_shared.then(|| PartUsed {
            tenant: tenant.clone(),
            used_bytes: demands.get(tenant).copied().unwrap_or_default(),
            part_bytes: self.parts.most(self.arena.capacity(), &demands, tenant),
        });
        (quota, part)
    }
}

/// Whether a tenant is this one, or part of it.
fn is_part_of(tenant: &TenantName, of: &TenantName) -> bool {
    let rest = tenant.as_str().strip_prefix(of.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
