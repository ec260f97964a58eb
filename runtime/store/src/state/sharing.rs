//! Which tenants give room: sharing of the memory by weights, and quotas.
//!
//! Owns whose objects may leave memory for a create or a restore of a tenant. Must not: choose among the objects of one.
//!
//! Invariants: a create takes nothing from a tenant that is within its part, except its own; what is needed under a quota
//! comes from those whom the quota is of. A tenant without anything in memory may always read one object: else one that is larger
//! than its part could not be read any more.

use std::collections::BTreeSet;

use wasmrun_model::fairness::{Demands, Share, TenantName, Weight};

use crate::arena::Layout;

use super::State;
use super::error::{PartUsed, QuotaUsed};
use super::lru::Sums;
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
    /// What may go of all whose objects would make room, if they have to give.
    pub(super) may_go: Sums,
    /// The quota under which it is not. `None`: it is not in the whole store.
    pub(super) quota: Option<(TenantName, u64)>,
}

/// Whose objects may make room. Found once for many objects: see [`Givers::gave`].
#[derive(Debug)]
pub(super) struct Givers {
    /// The quota under which there is to be room.
    pub(super) quota: Option<(TenantName, u64)>,
    /// Who is above its part, the farthest first.
    above: Vec<(Owner, Share)>,
    /// Who gives something after these, above its part or not.
    last: Vec<Owner>,
    /// What may go of these.
    pub(super) sums: Sums,
    /// What of that is of those above their parts.
    sums_above: Sums,
    /// Whether parts are by more than what tenants use, so that they are found again for each object.
    is_fleeting: bool,
}

/// What has just left memory, or is about to.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) owner: Owner,
    pub(super) bytes: Sums,
}

impl Givers {
    /// The next to give something first.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        let above = self.above.iter().map(|(owner, _)| *owner);
        above.chain(self.last.iter().copied())
    }

    /// One of them gave something. False if others are to be asked from now on: who comes down to its part changes those of
    /// others, and who stays above it does not ([`wasmrun_model::fairness::Parts::above`]).
    pub(super) fn gave(&mut self, gone: &Gone) -> bool {
        let bytes = gone.bytes.all();
        self.sums.subtract(gone.bytes);
        let Some(at) = self.above.iter().position(|it| it.0 == gone.owner) else {
            return self.sums_above.all() == 0 && !self.is_fleeting;
        };
        self.sums_above.subtract(gone.bytes);
        let (owner, mut share) = self.above.remove(at);
        share.has = share.has.saturating_sub(bytes);
        let behind = self.above[at..].partition_point(|it| it.1.compare(share).is_gt());
        self.above.insert(at + behind, (owner, share));
        share.is_above() && !self.is_fleeting
    }
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
        let counts = || below(of, self.tenants.range(of.clone()..)).map(|(_, counts)| counts);
        Some(Shortage {
            bytes: self
                .used_below(of)
                .saturating_add(bytes)
                .saturating_sub(most),
            coming: counts().map(|it| it.spilling_bytes).sum(),
            may_go: self.lru.sums_of(counts().map(|it| it.owner)),
            quota: Some((of.clone(), most)),
        })
    }

    /// The room that the whole store has not.
    pub(super) fn shortage(&self, layout: Layout) -> Shortage {
        Shortage {
            bytes: self.arena.shortfall(layout),
            coming: self.spilling_bytes,
            may_go: self.lru.sums(),
            quota: None,
        }
    }

    /// The quota that an object waits for which is to be read back, unless that is the whole store; and how much room is on its way.
    pub(super) fn on_its_way(&self, tenant: &TenantName, bytes: u64) -> (Option<TenantName>, u64) {
        match self.quota_shortage(tenant, bytes, Means::Return) {
            Some(short) => (short.quota.map(|(of, _)| of), short.coming),
            None => (None, self.spilling_bytes),
        }
    }

    /// Whose objects may go for so much of a tenant's: under a quota, or in the whole store.
    pub(super) fn givers(
        &self,
        tenant: &TenantName,
        bytes: u64,
        means: Means,
        quota: Option<(TenantName, u64)>,
    ) -> Givers {
        let own = self.tenants.get(tenant).map(|it| it.owner);
        if let (1, Some(own)) = (self.tenants.len(), own) {
            return self.givers_of(quota, Vec::new(), vec![own], false);
        }
        let mut demands = self.in_memory(quota.as_ref().map(|(of, _)| of));
        *demands.entry(tenant.clone()).or_default() += bytes;
        let capacity = quota.as_ref().map_or(self.arena.capacity(), |it| it.1);
        let is_free = demands.values().sum::<u64>() <= capacity && quota.is_none();
        if is_free {
            // What is short is free, in segments that can only be given back as a whole: it counts for whose these are.
            for (tenant, free) in self.arena.warm_by_tenant() {
                *demands.entry(tenant.clone()).or_default() += free;
            }
        }
        let above = self.parts.above(capacity, &demands).into_iter();
        let above = above.filter_map(|(it, share)| Some((self.tenants.get(it)?.owner, share)));
        let above: Vec<(Owner, Share)> = above.collect();
        let mut known: BTreeSet<Owner> = above.iter().map(|it| it.0).collect();
        let mut last: Vec<Owner> = own.into_iter().filter(|it| known.insert(*it)).collect();
        if means == Means::Return && self.arena.used_of(tenant) == 0 {
            let all = self.tenants.values().map(|it| it.owner);
            last.extend(all.filter(|it| known.insert(*it)));
        }
        self.givers_of(quota, above, last, is_free)
    }

    fn givers_of(
        &self,
        quota: Option<(TenantName, u64)>,
        above: Vec<(Owner, Share)>,
        last: Vec<Owner>,
        is_fleeting: bool,
    ) -> Givers {
        let sums_above = self.lru.sums_of(above.iter().map(|it| it.0));
        let mut sums = self.lru.sums_of(last.iter().copied());
        sums.add(sums_above);
        Givers {
            quota,
            above,
            last,
            sums,
            sums_above,
            is_fleeting,
        }
    }

    /// What each tenant has in memory, without what is about to leave it: of all, or of this one and those that are part of it.
    pub(super) fn in_memory(&self, of: Option<&TenantName>) -> Demands {
        let all: Vec<_> = match of {
            None => self.arena.used_by_tenant().collect(),
            Some(of) => below(of, self.arena.used_from(of)).collect(),
        };
        let all = all.into_iter().map(|(tenant, used)| {
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
        let all = below(of, self.arena.used_from(of));
        all.map(|(_, used)| used).sum()
    }

    /// What keeps so much of a tenant's out of memory beside how full that is.
    pub(super) fn limits_of(
        &self,
        tenant: &TenantName,
        bytes: u64,
        means: Means,
    ) -> (Option<QuotaUsed>, Option<PartUsed>) {
        let quota = self.quota_shortage(tenant, bytes, means);
        let quota = quota.and_then(|short| short.quota).or_else(|| {
            // There is room under it, and others wait for more.
            let mut quotas = self.quotas_waited_for().flatten();
            let (of, most) = quotas.find(|(of, _)| is_part_of(tenant, of))?;
            (means != Means::Return).then(|| (of.clone(), most))
        });
        let quota = quota.map(|(of, most)| QuotaUsed {
            // What others have of it is not for this one to know.
            bytes: (of == *tenant).then(|| (self.used_below(&of), most)),
            tenant: of,
        });
        let demands = self.in_memory(None);
        let is_shared = demands.keys().any(|it| it != tenant);
        let part = is_shared.then(|| PartUsed {
            tenant: tenant.clone(),
            used_bytes: demands.get(tenant).copied().unwrap_or_default(),
            part_bytes: self.parts.most(self.arena.capacity(), &demands, tenant),
        });
        (quota, part)
    }
}

/// Those of a tenant, of all from its name on in the order of names.
pub(super) fn below<'a, V>(
    of: &TenantName,
    all: impl Iterator<Item = (&'a TenantName, V)>,
) -> impl Iterator<Item = (&'a TenantName, V)> {
    let all = all.take_while(move |(it, _)| it.as_str().starts_with(of.as_str()));
    all.filter(move |(it, _)| is_part_of(it, of))
}

/// Whether a tenant is this one, or part of it.
pub(super) fn is_part_of(tenant: &TenantName, of: &TenantName) -> bool {
    let rest = tenant.as_str().strip_prefix(of.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
