//! Making room: what is dropped, what is spilled, what comes back.
//!
//! Owns the choice of what leaves memory, among the objects of those tenants that give something (`sharing.rs`). Nothing
//! leaves in vain: first the sums must say that enough can go.

use std::io;
use std::sync::Arc;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use crate::arena::{Layout, Room};
use crate::segment::Extent;

use super::disk::{FileNumber, Job, OnDisk};
use super::lru::Sums;
use super::sharing::{Givers, Gone, Shortage};
use super::{Entry, Location, State, sole};

/// What may be done to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    /// What takes no time: dropping secondary copies.
    Now,
    /// Also what makes room later: spilling.
    Later,
    /// The same, for an object that is read back: a tenant that has nothing else in memory takes from all.
    Return,
}

impl State {
    /// Room for an object. `None`: not now; with [`Means::Later`] it may be on its way. `going`: what its own file gives
    /// back on disk once it has the room.
    pub(super) fn make_room(
        &mut self,
        tenant: &TenantName,
        layout: Layout,
        means: Means,
        going: u64,
    ) -> io::Result<Option<Room>> {
        let mut found: Option<Givers> = None;
        loop {
            let shortage = match self.quota_shortage(tenant, layout.bytes, means) {
                Some(shortage) => shortage,
                None => {
                    let leftovers = &mut self.after.memory;
                    if let Some(room) = self.arena.allocate(tenant, layout, leftovers)? {
                        return Ok(Some(room));
                    }
                    self.shortage(layout)
                }
            };
            let Shortage {
                bytes: short,
                coming,
                may_go,
                quota,
            } = shortage;
            let coming = if means == Means::Now { 0 } else { coming };
            // Cheap to find out, and true for most that have to wait.
            if self.may_go(may_go, means, going) + coming < short || coming >= short {
                return Ok(None);
            }
            let mut givers = match found.take() {
                Some(givers) if givers.quota == quota => givers,
                _ => self.givers(tenant, layout.bytes, means, quota),
            };
            if self.may_go(givers.sums, means, going) + coming < short {
                return Ok(None);
            }
            let copy = match givers.sums.secondary_bytes {
                0 => None,
                _ => givers.owners().find_map(|it| self.lru.first_secondary(it)),
            };
            let gone = match copy {
                Some(id) => Some(self.drop_copy(id)),
                None if means == Means::Now => None,
                None => self.spill_one(&givers, going),
            };
            let Some(gone) = gone else {
                return Ok(None);
            };
            found = givers.gave(&gone).then_some(givers);
        }
    }

    /// An object was written to disk, or could not be. `extent` is the disk's share of it.
    pub(crate) fn spilled(&mut self, it: OnDisk, extent: Arc<Extent>, result: io::Result<()>) {
        self.count_spilling(&it.tenant, extent.len(), false);
        self.has_changed = true;
        let is_written = result.is_ok();
        if let Some(disk) = &mut self.disk {
            disk.fault = result.err().map(Arc::new);
        }
        let Some(entry) = self.entry(it.id, it.serial) else {
            // All references went meanwhile.
            self.release(sole(extent));
            return self.remove_file(it.file, it.len);
        };
        drop(extent);
        let is_unpinned = entry.pins == 0;
        let Location::Spilling(extent) = std::mem::replace(&mut entry.location, Location::Writing)
        else {
            unreachable!("nothing but the disk changes the state of what it writes")
        };
        if is_written && is_unpinned {
            entry.location = Location::Spilled(it.file);
            let tenant = entry.tenant.clone();
            self.count_spilled(&tenant, it.len, true);
            if let Some(disk) = &mut self.disk {
                disk.spills += 1;
                disk.spill_bytes += it.len;
            }
            return self.release(sole(extent));
        }
        entry.location = Location::Resident(extent);
        if is_unpinned {
            self.park(it.id);
        }
        self.remove_file(it.file, it.len);
        if !is_written {
            self.disk_failed();
        }
    }

    /// An object was read from disk, or could not be.
    pub(crate) fn restored(&mut self, it: OnDisk, extent: Extent, result: io::Result<()>) {
        self.unsealed_bytes -= extent.len();
        self.has_changed = true;
        if let Some(disk) = &mut self.disk {
            match &result {
                Ok(()) => {
                    disk.restores += 1;
                    disk.restore_bytes += it.len;
                }
                Err(_) => disk.errors += 1,
            }
        }
        let Some(entry) = self.entry(it.id, it.serial) else {
            // `begin_restore` has taken its bytes out of what is counted as spilled.
            self.release(extent);
            return self.remove_file(it.file, it.len);
        };
        let (tenant, pins) = (entry.tenant.clone(), entry.pins);
        let wakers = std::mem::take(&mut entry.wakers);
        match result {
            Ok(()) => {
                entry.location = Location::Resident(Arc::new(extent));
                if pins == 0 {
                    self.park(it.id);
                }
                self.remove_file(it.file, it.len);
            }
            Err(error) => {
                entry.location = Location::Spilled(it.file);
                entry.fault = Some(Arc::new(error));
                self.count_spilled(&tenant, it.len, true);
                self.release(extent);
            }
        }
        self.after
            .wakers
            .extend(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Sends the disk's thread to read an object that has room now.
    pub(super) fn begin_restore(&mut self, id: ObjectId, file: FileNumber, room: Room) {
        self.unsealed_bytes += room.extent.len();
        let entry = self.objects.get_mut(&id).expect("it is wanted");
        entry.location = Location::Restoring;
        let it = OnDisk {
            tenant: entry.tenant.clone(),
            id,
            serial: entry.serial,
            file,
            len: entry.len,
        };
        self.count_spilled(&it.tenant, it.len, false);
        let disk = self.disk.as_ref().expect("files need a disk");
        // The thread ends only with the store.
        let _ = disk.jobs.send(Job::Restore { it, room });
    }

    /// An object is not what it should be: it is forgotten, and references find that it was dropped. False while somebody
    /// looks at it, or the disk has to do with it.
    pub(crate) fn give_up(&mut self, id: ObjectId, serial: u64) -> bool {
        let Some(entry) = self.entry(id, serial) else {
            return true;
        };
        match entry.location {
            Location::Resident(_) if entry.pins == 0 => {
                self.drop_copy(id);
            }
            // Who has waited for it, and has not heard yet that it cannot be read, pins it.
            Location::Spilled(file) if entry.pins == 0 => {
                let entry = self.take_out(&id);
                self.count_spilled(&entry.tenant, entry.len, false);
                self.remove_file(file, entry.len);
            }
            _ => return false,
        }
        true
    }

    /// Forgets an object while there are references: they find that it was dropped.
    fn drop_copy(&mut self, id: ObjectId) -> Gone {
        self.unpark(id);
        let entry = self.take_out(&id);
        let gone = entry.gone();
        let Location::Resident(extent) = entry.location else {
            unreachable!("only resident objects may go")
        };
        self.release(sole(extent));
        gone
    }

    /// How much room there may be of what may go, as far as the sums tell.
    fn may_go(&self, sums: Sums, means: Means, going: u64) -> u64 {
        let spillable = match &self.disk {
            Some(disk) if means != Means::Now && !disk.has_failed => {
                sums.primary_bytes.min(disk.left(going))
            }
            _ => 0,
        };
        sums.secondary_bytes + spillable
    }

    /// Begins to spill the next object of these tenants that the disk has room for.
    fn spill_one(&mut self, givers: &Givers, going: u64) -> Option<Gone> {
        let left = self.disk.as_ref()?.left(going);
        let mut primaries = givers.owners().flat_map(|it| self.lru.primaries(it));
        let id = primaries.find(|id| self.objects[id].len <= left)?;
        drop(primaries);
        self.unpark(id);
        let disk = self.disk.as_mut().expect("it has just been there");
        let entry = self.objects.get_mut(&id).expect("what may go is there");
        let gone = entry.gone();
        disk.used += entry.len;
        disk.files += 1;
        let file = FileNumber(disk.files);
        let Location::Resident(extent) = std::mem::replace(&mut entry.location, Location::Writing)
        else {
            unreachable!("only resident objects may go")
        };
        entry.location = Location::Spilling(extent.clone());
        let it = OnDisk {
            tenant: entry.tenant.clone(),
            id,
            serial: entry.serial,
            file,
            len: entry.len,
        };
        let (tenant, bytes) = (it.tenant.clone(), extent.len());
        let _ = disk.jobs.send(Job::Spill { it, extent });
        self.count_spilling(&tenant, bytes, true);
        Some(gone)
    }

    fn disk_failed(&mut self) {
        let disk = self.disk.as_mut().expect("files need a disk");
        disk.errors += 1;
        disk.has_failed = true;
    }
}

impl Entry {
    fn gone(&self) -> Gone {
        Gone {
            owner: self.owner,
            bytes: Sums::one(self.rank(), self.layout.bytes),
        }
    }
}
