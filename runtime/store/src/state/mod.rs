//! What the store knows: every object, where its bytes are, who waits. All of it is behind one
//! lock.
//!
//! Owns the life of an object and the rules for it. Must not: touch bytes, files or clocks, wake
//! anybody or wait; whatever is slow is left for later ([`After`]), which [`Shared`] does once the lock is released, or
//! sent to the disk's thread. Knows nothing of stores, writers or views.
//!
//! ```text
//!   create ──▶ Writing ──seal──▶ Resident ◀──────────▶ Spilling ──▶ Spilled ◀──▶ Queued ──▶ Restoring
//!                │                  │  ▲                                                        │
//!              abort              gone └────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: an object is in `lru` exactly if it is resident and unpinned, and only those leave
//! memory. An unpinned object's extent has one holder, this state (while it is being spilled the
//! disk has it too). An entry goes when the last [`crate::Object`] does, or, for a secondary copy,
//! when its room is needed. `serial` tells an entry from an earlier one with the same id.

mod account;
mod disk;
mod error;
mod kind;
mod lru;
mod queue;
mod room;
mod shared;
mod sharing;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::task::Waker;

use wasmrun_model::fairness::{Parts, TenantName};
use wasmrun_model::id::ObjectId;

use crate::arena::{Arena, Class, Layout, Leftovers, Room};
use crate::segment::Extent;
pub(crate) use disk::{Disk, DiskThread, FileNumber, Job};
pub use error::{CreateError, Fullness, PartUsed, QuotaUsed, ReadError, TenantLimits};
pub use kind::{Copy, Form};
use lru::{Lru, Rank};
pub(crate) use queue::{Grant, Request, Ticket};
pub(crate) use shared::{Core, Handle, Shared};
use sharing::Owner;
pub use usage::{ObjectInfo, ObjectPlace, TenantUsage, Usage};

#[derive(Debug)]
pub(crate) struct State {
    arena: Arena,
    objects: BTreeMap<ObjectId, Entry>,
    lru: Lru,
    serials: u64,
    /// Extents of objects that are being written or restored.
    unsealed_bytes: u64,
    /// Extents that are being written to disk.
    spilling_bytes: u64,
    disk: Option<Disk>,
    /// By tenant. Tickets come from `serials`, so within one it is first come, first served.
    waiting: BTreeMap<TenantName, BTreeMap<Ticket, queue::Waiter>>,
    granted: BTreeMap<Ticket, queue::Granted>,
    /// By tenant.
    restores: BTreeMap<TenantName, VecDeque<queue::Restore>>,
    /// Something happened for which those who wait may be waiting.
    has_changed: bool,
    tenants: BTreeMap<TenantName, account::Counts>,
    /// By which the memory is divided when all of it is in use.
    parts: Parts,
    /// What some tenants may have in memory, each with all that are part of it, in bytes.
    quotas: BTreeMap<TenantName, u64>,
    after: After,
    /// Operations since all of it was checked, in debug builds.
    unchecked: usize,
}

/// What is known of one object.
#[derive(Debug)]
struct Entry {
    serial: u64,
    tenant: TenantName,
    owner: Owner,
    form: Form,
    len: u64,
    layout: Layout,
    copy: Copy,
    /// Views, and futures that wait for one.
    pins: u32,
    /// Its place in `lru`, while it has one.
    tick: u64,
    handle: Weak<Handle>,
    location: Location,
    /// Who waits for it to be restored.
    wakers: Vec<(Ticket, Waker)>,
    /// Why it could not be restored when that was last tried.
    fault: Option<Arc<io::Error>>,
}

/// Where the bytes of an object are.
#[derive(Debug)]
enum Location {
    /// A [`crate::Writer`] has them.
    Writing,
    Resident(Arc<Extent>),
    /// In memory, and on their way to disk. Whoever pins it now, stops that.
    Spilling(Arc<Extent>),
    Spilled(FileNumber),
    /// On disk, and wanted. `is_stuck`: there was no room, and nothing could go.
    Queued {
        file: FileNumber,
        is_stuck: bool,
    },
    /// The disk's thread has an extent and reads into it.
    Restoring,
}

/// What is to be done once the lock is released.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) memory: Leftovers,
}

impl After {
    pub(crate) fn is_empty(&self) -> bool {
        let Leftovers { closing, leaving } = &self.memory;
        self.wakers.is_empty() && closing.is_empty() && leaving.is_empty()
    }
}

impl Entry {
    fn rank(&self) -> Rank {
        match (self.copy, self.layout.class) {
            (Copy::Secondary, _) => Rank::Secondary,
            (Copy::Primary, Class::Pages | Class::HugePages) => Rank::LargePrimary,
            (Copy::Primary, Class::Packed) => Rank::SmallPrimary,
        }
    }
}

impl State {
    pub(crate) fn new(arena: Arena, disk: Option<Disk>) -> Self {
        Self {
            arena,
            objects: BTreeMap::new(),
            lru: Lru::default(),
            serials: 0,
            unsealed_bytes: 0,
            spilling_bytes: 0,
            disk,
            waiting: BTreeMap::new(),
            granted: BTreeMap::new(),
            restores: BTreeMap::new(),
            has_changed: false,
            tenants: BTreeMap::new(),
            parts: Parts::default(),
            quotas: BTreeMap::new(),
            after: After::default(),
            unchecked: 0,
        }
    }

    /// What is to be done after the lock; asked for as long as there is something.
    pub(crate) fn take_after(&mut self) -> After {
        std::mem::take(&mut self.after)
    }

    /// Pages were given back, or could not be.
    pub(crate) fn pages_released(&mut self, extent: Extent, is_given_back: bool) {
        self.arena
            .released(extent, is_given_back, &mut self.after.memory);
    }

    /// The object of an id, unless it is unfinished or about to go.
    pub(crate) fn get(&self, id: &ObjectId) -> Option<Arc<Handle>> {
        self.objects.get(id)?.handle.upgrade()
    }

    /// The bytes are complete: from now on they are read.
    pub(crate) fn seal(&mut self, id: ObjectId, handle: &Arc<Handle>, extent: Extent, copy: Copy) {
        let entry = self
            .objects
            .get_mut(&id)
            .expect("an unfinished object stays");
        assert!(
            matches!(entry.location, Location::Writing),
            "an object is sealed once"
        );
        self.unsealed_bytes -= extent.len();
        entry.handle = Arc::downgrade(handle);
        entry.copy = copy;
        entry.location = Location::Resident(Arc::new(extent));
        self.park(id);
    }

    /// The writer gave up.
    pub(crate) fn abort(&mut self, id: ObjectId, extent: Extent) {
        self.unsealed_bytes -= extent.len();
        self.take_out(&id);
        self.release(extent);
    }

    /// Nobody refers to the object any more: its bytes go at once, wherever they are.
    pub(crate) fn forget(&mut self, id: ObjectId, serial: u64) {
        let Some(entry) = self.entry(id, serial) else {
            return; // A secondary copy that went before, or a new object took the id over.
        };
        if matches!(entry.location, Location::Resident(_)) {
            self.unpark(id);
        }
        let entry = self.take_out(&id);
        match entry.location {
            Location::Writing => unreachable!("an unfinished object has no references"),
            Location::Resident(extent) => self.release(sole(extent)),
            Location::Spilled(file) | Location::Queued { file, .. } => {
                self.count_spilled(&entry.tenant, entry.len, false);
                self.remove_file(file, entry.len);
            }
            // The disk's thread has them, and finds that they are not wanted any more.
            Location::Spilling(_) | Location::Restoring => {}
        }
    }

    /// Makes a copy the one that must not be lost, or one that may.
    pub(crate) fn set_copy(&mut self, id: ObjectId, serial: u64, copy: Copy) {
        let Some(entry) = self.entry(id, serial) else {
            return;
        };
        let is_parked = entry.pins == 0 && matches!(entry.location, Location::Resident(_));
        if is_parked {
            self.unpark(id);
        }
        self.objects
            .get_mut(&id)
            .expect("it has just been there")
            .copy = copy;
        if is_parked {
            self.park(id);
        }
    }

    /// What kind of copy it is; `None` when it was dropped.
    pub(crate) fn copy(&mut self, id: ObjectId, serial: u64) -> Option<Copy> {
        self.entry(id, serial).map(|entry| entry.copy)
    }

    /// Whether the bytes are in memory; `None` when they were dropped.
    pub(crate) fn is_resident(&mut self, id: ObjectId, serial: u64) -> Option<bool> {
        let entry = self.entry(id, serial)?;
        Some(matches!(
            entry.location,
            Location::Resident(_) | Location::Spilling(_)
        ))
    }

    /// The bytes, if they are in memory. They stay until [`State::unpin`].
    pub(crate) fn pin(&mut self, id: ObjectId, serial: u64) -> Option<Arc<Extent>> {
        let entry = self.objects.get_mut(&id)?;
        if entry.serial != serial {
            return None;
        }
        let extent = match &entry.location {
            Location::Resident(extent) => {
                if entry.pins == 0 {
                    let (owner, rank) = (entry.owner, entry.rank());
                    self.lru.remove(owner, rank, entry.tick, entry.layout.bytes);
                }
                extent.clone()
            }
            Location::Spilling(extent) => extent.clone(),
            _ => return None,
        };
        entry.pins += 1;
        Some(extent)
    }

    /// A view ended, and with it its share of the extent.
    pub(crate) fn unpin(&mut self, id: ObjectId, serial: u64) {
        let is_overdrawn = self.is_overdrawn();
        let entry = self.entry(id, serial).expect("a pinned object stays");
        entry.pins -= 1;
        if entry.pins == 0 {
            match entry.location {
                Location::Resident(_) => self.park(id),
                Location::Queued { file, .. } if !is_overdrawn => {
                    entry.location = Location::Spilled(file);
                }
                _ => {}
            }
        }
        self.has_changed = true;
    }

    fn is_overdrawn(&self) -> bool {
        self.disk.as_ref().is_some_and(Disk::is_overdrawn)
    }

    fn entry(&mut self, id: ObjectId, serial: u64) -> Option<&mut Entry> {
        self.objects
            .get_mut(&id)
            .filter(|entry| entry.serial == serial)
    }

    fn take_out(&mut self, id: &ObjectId) -> Entry {
        let entry = self
            .objects
            .remove(id)
            .expect("only what is there is taken out");
        self.count_object(&entry.tenant, false);
        entry
    }

    /// Puts a resident object that nobody looks at among those that may go, as the latest.
    fn park(&mut self, id: ObjectId) {
        self.serials += 1;
        let entry = self
            .objects
            .get_mut(&id)
            .expect("only known objects are parked");
        entry.tick = self.serials;
        let (owner, bytes) = (entry.owner, entry.layout.bytes);
        self.lru.insert(owner, entry.rank(), entry.tick, id, bytes);
        self.has_changed = true;
    }

    fn unpark(&mut self, id: ObjectId) {
        let entry = &self.objects[&id];
        if entry.pins == 0 {
            let (owner, bytes) = (entry.owner, entry.layout.bytes);
            self.lru.remove(owner, entry.rank(), entry.tick, bytes);
        }
    }

    fn release(&mut self, extent: Extent) {
        self.arena.release(extent, &mut self.after.memory);
        self.has_changed = true;
    }

    fn remove_file(&mut self, file: FileNumber, len: u64) {
        let disk = self.disk.as_mut().expect("files need a disk");
        disk.used -= len;
        disk.has_failed = false;
        self.has_changed = true;
        // The thread ends only with the store, and removes the whole folder then.
        let _ = disk.jobs.send(Job::Remove(file));
    }

    /// Sends the disk's thread to remove all files for good. The sender goes when there are none.
    pub(crate) fn end_disk(&self, ended: Sender<()>) {
        if let Some(disk) = &self.disk {
            let _ = disk.jobs.send(Job::End(ended));
        }
    }

    /// Gives an object its entry: from now on the id exists.
    fn begin(&mut self, request: &Request, layout: Layout, room: &Room) -> u64 {
        let owner = self.count_object(&request.tenant, true);
        self.serials += 1;
        self.unsealed_bytes += room.extent.len();
        let entry = Entry {
            serial: self.serials,
            tenant: request.tenant.clone(),
            owner,
            form: request.form,
            len: request.len,
            layout,
            copy: Copy::Primary,
            pins: 0,
            tick: 0,
            handle: Weak::new(),
            location: Location::Writing,
            wakers: Vec::new(),
            fault: None,
        };
        self.objects.insert(request.id, entry);
        self.serials
    }
}

/// The extent of an object that is not pinned.
fn sole(extent: Arc<Extent>) -> Extent {
    Arc::into_inner(extent).expect("an unpinned object's extent has one holder")
}
