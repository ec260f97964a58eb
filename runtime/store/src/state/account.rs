//! What is used, by whom, and whether the sums are right.
//!
//! Owns counting and its checks. Must not: change anything else.

use std::sync::Arc;

use wasmrun_model::fairness::TenantName;

use crate::usage::{ObjectInfo, ObjectPlace, TenantUsage, Usage};

use super::{Entry, Location, State};

/// What one tenant has in the store. Goes when all of it is zero.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    objects: u64,
    spilled_bytes: u64,
}

/// How many objects an operation may look at only to check them.
const CHECKED_PER_OPERATION: usize = 16;

impl State {
    pub(crate) fn usage(&self) -> Usage {
        let mut tenants: std::collections::BTreeMap<_, TenantUsage> = Default::default();
        for (tenant, used_bytes) in self.arena.used_by_tenant() {
            tenants.entry(tenant.clone()).or_default().used_bytes = used_bytes;
        }
        for (tenant, counts) in &self.tenants {
            let usage = tenants.entry(tenant.clone()).or_default();
            usage.objects = counts.objects;
            usage.spilled_bytes = counts.spilled_bytes;
        }
        tenants.retain(|_, usage| *usage != TenantUsage::default());
        Usage {
            capacity_bytes: self.arena.capacity(),
            used_bytes: self.arena.used(),
            free_bytes: self.arena.capacity() - self.arena.used(),
            warm_bytes: self.arena.warm(),
            unsealed_bytes: self.unsealed_bytes,
            spilling_bytes: self.spilling_bytes,
            pinned_bytes: self.pinned_bytes(),
            droppable_bytes: self.lru.secondary_bytes(),
            spilled_bytes: self.disk.as_ref().map_or(0, |disk| disk.used),
            spill_capacity_bytes: self.disk.as_ref().map_or(0, |disk| disk.capacity),
            spills: self.disk.as_ref().map_or(0, |disk| disk.spills),
            spill_bytes: self.disk.as_ref().map_or(0, |disk| disk.spill_bytes),
            restores: self.disk.as_ref().map_or(0, |disk| disk.restores),
            restore_bytes: self.disk.as_ref().map_or(0, |disk| disk.restore_bytes),
            disk_errors: self.disk.as_ref().map_or(0, |disk| disk.errors),
            objects: self.objects.len() as u64,
            waiting_creates: self.waiting.len() as u64,
            waiting_restores: self.restores.len() as u64,
            tenants,
        }
    }

    pub(crate) fn objects(&self) -> Vec<ObjectInfo> {
        let infos = self.objects.iter().map(|(id, entry)| ObjectInfo {
            id: *id,
            tenant: entry.tenant.clone(),
            len_bytes: entry.len,
            form: entry.form,
            copy: entry.copy,
            place: entry.place(),
            references: entry.handle.strong_count() as u64,
            pins: u64::from(entry.pins),
        });
        infos.collect()
    }

    /// What cannot go because somebody looks at it.
    pub(super) fn pinned_bytes(&self) -> u64 {
        let may_go = self.lru.secondary_bytes() + self.lru.primary_bytes();
        self.arena.used() - may_go - self.unsealed_bytes - self.spilling_bytes
    }

    /// After an operation, for debug builds: looks at everything where there is little, and otherwise once in as many
    /// operations as make that cheap. Inequalities of sums are looked at each time.
    ///
    /// # Panics
    /// If a sum is not what it is the sum of.
    pub(crate) fn check_as_cheap(&mut self) {
        self.unchecked += 1;
        if self.unchecked * CHECKED_PER_OPERATION < self.objects.len() {
            return self.check_sums();
        }
        self.unchecked = 0;
        self.check();
    }

    /// The sums that can be checked without looking at every object.
    fn check_sums(&self) {
        let may_go = self.lru.secondary_bytes() + self.lru.primary_bytes();
        let accounted = may_go + self.unsealed_bytes + self.spilling_bytes;
        assert!(
            accounted <= self.arena.used(),
            "more is accounted for than used"
        );
        assert!(
            self.arena.used() <= self.arena.capacity(),
            "more is used than there is"
        );
        if let Some(disk) = &self.disk {
            assert!(
                disk.used <= disk.capacity + self.arena.capacity(),
                "more is spilled than may be"
            );
        }
    }

    /// Looks at everything: used and free bytes are the capacity, of each segment and all together.
    ///
    /// # Panics
    /// If a sum is not what it is the sum of.
    pub(crate) fn check(&self) {
        self.check_sums();
        self.arena.check();
        let mut parked = 0;
        let mut pinned = 0;
        let mut tenants: std::collections::BTreeMap<TenantName, Counts> = Default::default();
        for (id, entry) in &self.objects {
            let counts = tenants.entry(entry.tenant.clone()).or_default();
            counts.objects += 1;
            match &entry.location {
                Location::Resident(extent) if entry.pins == 0 => {
                    parked += 1;
                    assert!(self.lru.contains(entry.rank(), entry.tick, *id));
                    assert_eq!(
                        Arc::strong_count(extent),
                        1,
                        "an unpinned extent has one holder"
                    );
                }
                Location::Resident(_) => pinned += entry.layout.bytes,
                Location::Spilled(_) | Location::Queued { .. } => counts.spilled_bytes += entry.len,
                Location::Writing | Location::Spilling(_) | Location::Restoring => {}
            }
        }
        assert_eq!(
            parked,
            self.lru.len(),
            "what may go is in the order, and nothing else"
        );
        assert_eq!(pinned, self.pinned_bytes());
        assert_eq!(tenants, self.tenants);
    }

    pub(super) fn count_object(&mut self, tenant: &TenantName, is_new: bool) {
        self.count(tenant, |counts| match is_new {
            true => counts.objects += 1,
            false => counts.objects -= 1,
        });
    }

    pub(super) fn count_spilled(&mut self, tenant: &TenantName, len: u64, is_new: bool) {
        self.count(tenant, |counts| match is_new {
            true => counts.spilled_bytes += len,
            false => counts.spilled_bytes -= len,
        });
    }

    fn count(&mut self, tenant: &TenantName, change: impl FnOnce(&mut Counts)) {
        let counts = self.tenants.entry(tenant.clone()).or_default();
        change(counts);
        if *counts == Counts::default() {
            self.tenants.remove(tenant);
        }
    }
}

impl Entry {
    fn place(&self) -> ObjectPlace {
        match self.location {
            Location::Writing => ObjectPlace::Writing,
            Location::Resident(_) | Location::Spilling(_) => ObjectPlace::Memory,
            Location::Spilled(_) | Location::Queued { .. } | Location::Restoring => {
                ObjectPlace::Disk
            }
        }
    }
}
