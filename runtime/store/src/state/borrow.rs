//! Objects whose bytes are in other stores: coming, going, and being made our own.
//!
//! Owns the rules for [`Location::Borrowed`]. Must not: map memory.

use std::sync::Arc;

use wasmrun_model::id::ObjectId;

use crate::borrow::Lent;
use crate::layout::Layout;
use crate::object::{Copy, Handle};
use crate::segment::Extent;

use super::{Entry, Location, Request, State};

/// How much is borrowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Sum {
    pub(super) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

impl State {
    /// Gives an object its entry. `None` if there is one.
    pub(crate) fn borrow(
        &mut self,
        request: &Request,
        layout: Layout,
        lent: Arc<Lent>,
        handle: impl FnOnce(u64) -> Arc<Handle>,
    ) -> Option<Arc<Handle>> {
        // One whose last reference is just being dropped goes soon enough, too.
        if self.objects.contains_key(&request.id) {
            self.after.lent.push(lent);
            return None;
        }
        self.serials += 1;
        let handle = handle(self.serials);
        self.borrowed.add(request.len);
        let entry = Entry {
            serial: self.serials,
            tenant: request.tenant.clone(),
            form: request.form,
            len: request.len,
            layout,
            copy: Copy::Secondary,
            pins: 0,
            tick: 0,
            handle: Arc::downgrade(&handle),
            location: Location::Borrowed(lent),
            wakers: Vec::new(),
            fault: None,
        };
        self.objects.insert(request.id, entry);
        self.count_object(&request.tenant, true);
        Some(handle)
    }

    pub(crate) fn is_borrowed(&mut self, id: ObjectId, serial: u64) -> bool {
        let entry = self.entry(id, serial);
        entry.is_some_and(|entry| matches!(entry.location, Location::Borrowed(_)))
    }

    /// Forgets a borrowed object while there are references, if nobody looks at it: they find that it was dropped.
    pub(crate) fn give_back(&mut self, id: ObjectId, serial: u64) -> bool {
        let Some(entry) = self.entry(id, serial) else {
            return false;
        };
        let may_go = entry.pins == 0 && entry.copy == Copy::Secondary;
        if !may_go || !matches!(entry.location, Location::Borrowed(_)) {
            return false;
        }
        if let Location::Borrowed(lent) = self.take_out(&id).location {
            self.put_back(lent);
        }
        true
    }

    /// A borrowed object was copied. Views of what was borrowed stay as they are.
    pub(crate) fn adopted(&mut self, id: ObjectId, serial: u64, extent: Extent) {
        self.unsealed_bytes -= extent.len();
        if !self.is_borrowed(id, serial) {
            // It was given back meanwhile, or nobody refers to it any more.
            return self.release(extent);
        }
        let entry = self.entry(id, serial).expect("it has just been there");
        let is_unpinned = entry.pins == 0;
        let own = Location::Resident(Arc::new(extent));
        if let Location::Borrowed(lent) = std::mem::replace(&mut entry.location, own) {
            self.put_back(lent);
        }
        if is_unpinned {
            self.park(id);
        }
    }

    /// What was borrowed is not needed any more: its lender hears of it after the lock.
    pub(super) fn put_back(&mut self, lent: Arc<Lent>) {
        self.borrowed.objects -= 1;
        self.borrowed.bytes -= lent.len();
        self.after.lent.push(lent);
    }
}
