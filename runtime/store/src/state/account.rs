//! What is used, by whom, and whether the sums are right.
//!
//! Owns counting and its checks. Must not: change anything else.

use std::sync::Arc;

use wasmrun_model::fairness::TenantName;

use super::sharing::Owner;
use super::usage::{ObjectInfo, ObjectPlace, TenantUsage, Usage};
use super::{Entry, Location, State};

/// What one tenant has in the store. Goes when all of it is zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) owner: Owner,
    objects: u64,
    spilled_bytes: u64,
    /// Extents that are being written to disk, also of objects that are gone meanwhile.
    pub(super) spilling_bytes: u64,
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
            droppable_bytes: self.lru.sums().secondary_bytes,
            spilled_bytes: self.disk.as_ref().map_or(0, |disk| disk.used),
            spill_capacity_bytes: self.disk.as_ref().map_or(0, |disk| disk.capacity),
            spills: self.disk.as_ref().map_or(0, |disk| disk.spills),
            spill_bytes: self.disk.as_ref().map_or(0, |disk| disk.spill_bytes),
            restores: self.disk.as_ref().map_or(0, |disk| disk.restores),
            restore_bytes: self.disk.as_ref().map_or(0, |disk| disk.restore_bytes),
            disk_errors: self.disk.as_ref().map_or(0, |disk| disk.errors),
            objects: self.objects.len() as u64,
            waiting_creates: self.waiting_creates() as u64,
            waiting_restores: self.waiting_restores() as u64,
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
        let sums = self.lru.sums();
        let may_go = sums.secondary_bytes + sums.primary_bytes;
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
        let sums = self.lru.sums();
        let may_go = sums.secondary_bytes + sums.primary_bytes;
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
        let mut tenants: std::collections::BTreeMap<TenantName, (u64, u64)> = Default::default();
        for (id, entry) in &self.objects {
            let counts = tenants.entry(entry.tenant.clone()).or_default();
            counts.0 += 1;
            match &entry.location {
                Location::Resident(extent) if entry.pins == 0 => {
                    parked += 1;
                    assert!(
                        self.lru
                            .contains(entry.owner, entry.rank(), entry.tick, *id)
                    );
                    assert_eq!(
                        Arc::strong_count(extent),
                        1,
                        "an unpinned extent has one holder"
                    );
                }
                Location::Resident(_) => pinned += entry.layout.bytes,
                Location::Spilled(_) | Location::Queued { .. } => counts.1 += entry.len,
                Location::Writing | Location::Spilling(_) | Location::Restoring => {}
            }
        }
        assert_eq!(
            parked,
            self.lru.len(),
            "what may go is in the order, and nothing else"
        );
        assert_eq!(pinned, self.pinned_bytes());
        let counts = self.tenants.iter();
        let counts = counts.map(|(tenant, it)| (tenant.clone(), (it.objects, it.spilled_bytes)));
        let counts = counts.filter(|(_, it)| *it != (0, 0));
        let counts: std::collections::BTreeMap<TenantName, (u64, u64)> = counts.collect();
        assert_eq!(tenants, counts);
        let spilling = self.tenants.values().map(|it| it.spilling_bytes);
        assert_eq!(spilling.sum::<u64>(), self.spilling_bytes);
    }

    pub(super) fn count_object(&mut self, tenant: &TenantName, is_new: bool) -> Owner {
        self.count(tenant, |counts| match is_new {
            true => counts.objects += 1,
            false => counts.objects -= 1,
        })
    }

    pub(super) fn count_spilled(&mut self, tenant: &TenantName, len: u64, is_new: bool) {
        self.count(tenant, |counts| match is_new {
            true => counts.spilled_bytes += len,
            false => counts.spilled_bytes -= len,
        });
    }

    pub(super) fn count_spilling(&mut self, tenant: &TenantName, bytes: u64, is_new: bool) {
        let sum = &mut self.spilling_bytes;
        *sum = if is_new { *sum + bytes } else { *sum - bytes };
        self.count(tenant, |counts| match is_new {
            true => counts.spilling_bytes += bytes,
            false => counts.spilling_bytes -= bytes,
        });
    }

    fn count(&mut self, tenant: &TenantName, change: impl FnOnce(&mut Counts)) -> Owner {
        let serials = &mut self.serials;
        let counts = self.tenants.entry(tenant.clone()).or_insert_with(|| {
            *serials += 1;
            Counts {
                owner: Owner(*serials),
                objects: 0,
                spilled_bytes: 0,
                spilling_bytes: 0,
            }
        });
        change(counts);
        let owner = counts.owner;
        if counts.objects + counts.spilled_bytes + counts.spilling_bytes == 0 {
            self.tenants.remove(tenant);
            self.lru.forget(owner);
        }
        owner
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
