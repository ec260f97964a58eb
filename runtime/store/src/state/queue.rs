//! Who waits for room, and in which order they get it.
//!
//! Owns both queues. Restores go before creates, because what waits for a restore often has other
//! objects pinned, unless nothing is making room for them; within each it is first come, first
//! served, except that restores which nothing makes room for let others pass, and that between tenants creates go by their
//! parts: who will have least of its part is first. What waits for a quota holds up those that the quota is of too, and nobody
//! else. Invariant: when the lock is released, whoever is first cannot be served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use crate::arena::{Layout, Room};
use crate::segment::Extent;

use super::disk::FileNumber;
use super::error::{CreateError, Fullness, ReadError, TenantLimits};
use super::kind::Form;
use super::room::Means;
use super::sharing::{below, is_part_of};
use super::{Location, State};

/// The place of one future in a queue.
pub(crate) type Ticket = u64;

/// How many restores that nothing makes room for are looked at, of all tenants together: each costs a search for room, whenever
/// anything changes.
const MAX_PASSED: usize = 64;
/// How many of them of each tenant, however many tenants there are.
const MIN_PASSED: usize = 8;

/// What somebody wants to create.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) tenant: TenantName,
    pub(crate) id: ObjectId,
    pub(crate) len: u64,
    pub(crate) form: Form,
}

/// What a writer begins with.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) serial: u64,
    pub(crate) room: Room,
}

pub(super) type Granted = Result<Grant, CreateError>;

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: Request,
    waker: Waker,
}

/// An object of some tenant that is to be read back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restore {
    /// Whose is smallest has waited for longest.
    number: u64,
    id: ObjectId,
    serial: u64,
}

impl State {
    /// Creates an object now or not at all. Does not overtake those who wait.
    pub(crate) fn try_create(&mut self, request: &Request) -> Granted {
        let grant = self.create_now(request)?;
        grant.ok_or_else(|| self.full(request, None))
    }

    fn create_now(&mut self, request: &Request) -> Result<Option<Grant>, CreateError> {
        let layout = self.check_request(request)?;
        match self.would_overtake(&request.tenant) || self.is_restore_coming(&request.tenant) {
            true => Ok(None),
            false => self.grant(request, layout, Means::Now),
        }
    }

    /// Creates an object as soon as there is room. The first call takes a ticket if it must wait.
    pub(crate) fn poll_create(
        &mut self,
        request: &Request,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Granted> {
        let Some(number) = *ticket else {
            if let Some(result) = self.create_now(request).transpose() {
                return Poll::Ready(result);
            }
            self.serials += 1;
            *ticket = Some(self.serials);
            let waiter = Waiter {
                request: request.clone(),
                waker: waker.clone(),
            };
            let waiting = self.waiting.entry(request.tenant.clone()).or_default();
            waiting.insert(self.serials, waiter);
            if let Some(disk) = &mut self.disk {
                disk.has_failed = false; // Worth another try.
            }
            self.has_changed = true;
            return Poll::Pending;
        };
        if let Some(granted) = self.granted.remove(&number) {
            *ticket = None;
            return Poll::Ready(granted);
        }
        let waiting = self.waiting.get_mut(&request.tenant);
        let waiter = waiting.and_then(|it| it.get_mut(&number));
        let waiter = waiter.expect("a ticket is in one of the two maps");
        waiter.waker.clone_from(waker);
        Poll::Pending
    }

    /// Somebody does not wait any longer.
    pub(crate) fn cancel_create(&mut self, request: &Request, ticket: Ticket) {
        self.end_wait(&request.tenant, ticket);
        if let Some(Ok(grant)) = self.granted.remove(&ticket) {
            self.abort(request.id, grant.room.extent);
        }
        self.has_changed = true;
    }

    /// Why a create cannot go on now, which may have a ticket.
    pub(crate) fn full(&self, request: &Request, ticket: Option<Ticket>) -> CreateError {
        let bytes = self.room_bytes(request);
        let mut store = self.fullness(&request.tenant, bytes, Means::Later);
        // It is not one of the others that wait.
        let waiting = self.waiting.get(&request.tenant);
        let waits = ticket.is_some_and(|it| waiting.is_some_and(|all| all.contains_key(&it)));
        store.waiting -= usize::from(waits);
        CreateError::Full {
            id: request.id,
            len_bytes: request.len,
            store,
        }
    }

    /// The bytes of an object, once they are in memory. A future that gets `Pending` has a ticket,
    /// and its pin, until it gets something else or calls [`State::cancel_view`].
    pub(crate) fn poll_view(
        &mut self,
        (id, serial): (ObjectId, u64),
        ticket: &mut Option<Ticket>,
        is_patient: bool,
        waker: &Waker,
    ) -> Poll<Result<Arc<Extent>, ReadError>> {
        if ticket.is_none()
            && let Some(extent) = self.pin(id, serial)
        {
            return Poll::Ready(Ok(extent));
        }
        let known = self.objects.get_mut(&id);
        let Some(entry) = known.filter(|entry| entry.serial == serial) else {
            return Poll::Ready(Err(ReadError::Dropped { id }));
        };
        match (&entry.location, *ticket) {
            (Location::Writing, _) => unreachable!("an unfinished object has no references"),
            (Location::Resident(extent) | Location::Spilling(extent), _) => {
                let extent = extent.clone();
                entry.wakers.retain(|(it, _)| Some(*it) != *ticket);
                *ticket = None; // The pin goes over to the view.
                Poll::Ready(Ok(extent))
            }
            (Location::Spilled(_), Some(number)) => {
                let source = entry
                    .fault
                    .clone()
                    .expect("a restore that ended without success failed");
                *ticket = None;
                self.stop_waiting(id, number);
                Poll::Ready(Err(ReadError::Disk { id, source }))
            }
            (Location::Queued { is_stuck: true, .. }, number) if !is_patient => {
                let error = self.no_room_to_read(id);
                *ticket = None;
                if let Some(number) = number {
                    self.stop_waiting(id, number);
                }
                Poll::Ready(Err(error))
            }
            (Location::Spilled(file), None) => {
                if let Some(disk) = &mut self.disk {
                    disk.has_failed = false; // Worth another try.
                }
                entry.location = Location::Queued {
                    file: *file,
                    is_stuck: false,
                };
                self.serials += 1;
                let restore = Restore {
                    number: self.serials,
                    id,
                    serial,
                };
                let all = self.restores.entry(entry.tenant.clone()).or_default();
                all.push_back(restore);
                self.has_changed = true;
                self.wait_for_restore(id, ticket, waker)
            }
            (Location::Queued { .. } | Location::Restoring, _) => {
                self.wait_for_restore(id, ticket, waker)
            }
        }
    }

    /// Why an object that somebody waits for is not read back yet, unless it is being read.
    pub(crate) fn lacks_room(&self, id: ObjectId, serial: u64) -> Option<ReadError> {
        let entry = self.objects.get(&id).filter(|it| it.serial == serial)?;
        entry.location.queued()?;
        Some(self.no_room_to_read(id))
    }

    fn no_room_to_read(&self, id: ObjectId) -> ReadError {
        let entry = &self.objects[&id];
        ReadError::Full {
            id,
            len_bytes: entry.len,
            store: self.fullness(&entry.tenant, entry.layout.bytes, Means::Return),
        }
    }

    /// A future with a ticket is not interested any more.
    pub(crate) fn cancel_view(&mut self, id: ObjectId, ticket: Ticket) {
        self.stop_waiting(id, ticket);
    }

    /// Serves whoever can be served now.
    pub(crate) fn settle(&mut self) {
        while std::mem::take(&mut self.has_changed) {
            if let Some(held) = self.serve_restores() {
                self.serve_creates(&held);
            }
        }
    }

    /// Reads back what there is room for. None if creates are to wait: somebody who wants an object back waits for room that is on
    /// its way; else the quotas under which that is so. Room that only others can make may take for ever, and what is restored
    /// or created meanwhile can be spilled again.
    fn serve_restores(&mut self) -> Option<Vec<TenantName>> {
        let mut held = Vec::new();
        let mut passed: BTreeMap<TenantName, usize> = BTreeMap::new();
        let most = (MAX_PASSED / self.restores.len().max(1)).max(MIN_PASSED);
        while let Some((tenant, at)) = self.next_restore(&passed, most) {
            if held.iter().any(|of| is_part_of(&tenant, of)) {
                passed.insert(tenant, most);
                continue;
            }
            let Restore { id, serial, .. } = self.restores[&tenant][at];
            if let Some((file, layout, len)) = self.wanted(id, serial) {
                match self.make_room(&tenant, layout, Means::Return, len) {
                    Ok(Some(room)) => self.begin_restore(id, file, room),
                    Ok(None) => {
                        let (quota, coming) = self.on_its_way(&tenant, layout.bytes);
                        self.mark_stuck(id, file, coming == 0);
                        if coming > 0 {
                            held.push(quota?);
                        }
                        *passed.entry(tenant).or_default() += 1;
                        continue;
                    }
                    Err(error) => self.restore_failed(id, file, error),
                }
            }
            self.end_restore(&tenant, at);
        }
        Some(held)
    }

    /// The tenant whose restore is next, and which of its restores that is, where so many of each have been passed.
    fn next_restore(
        &self,
        passed: &BTreeMap<TenantName, usize>,
        most: usize,
    ) -> Option<(TenantName, usize)> {
        let nexts = self.restores.iter().filter_map(|(tenant, all)| {
            let at = passed.get(tenant).copied().unwrap_or_default();
            let next = all.get(at).filter(|_| at < most)?;
            Some((next.number, tenant, at))
        });
        let (_, tenant, at) = nexts.min()?;
        Some((tenant.clone(), at))
    }

    fn end_restore(&mut self, tenant: &TenantName, at: usize) {
        if let Some(all) = self.restores.get_mut(tenant) {
            all.remove(at);
            if all.is_empty() {
                self.restores.remove(tenant);
            }
        }
    }

    /// What is to be read back and into what, unless nobody wants it any more. While the disk is overdrawn it is read back
    /// even for nobody: that gives the disk back what its room has cost there.
    fn wanted(&mut self, id: ObjectId, serial: u64) -> Option<(FileNumber, Layout, u64)> {
        let is_overdrawn = self.is_overdrawn();
        let entry = self.entry(id, serial)?;
        let file = entry.location.queued()?;
        if entry.pins == 0 && !is_overdrawn {
            entry.location = Location::Spilled(file);
            return None;
        }
        Some((file, entry.layout, entry.len))
    }

    fn serve_creates(&mut self, held: &[TenantName]) {
        while let Some((tenant, ticket, granted)) = self.serve_one(held) {
            let waiter = self.end_wait(&tenant, ticket).expect("it was served");
            self.granted.insert(ticket, granted);
            self.after.wakers.push(waiter.waker);
        }
    }

    /// The first create that can be served, but under none of these quotas. One that waits for room holds up those that are above
    /// their parts; one that waits for a quota holds up those that are above their parts of that.
    fn serve_one(&mut self, held: &[TenantName]) -> Option<(TenantName, Ticket, Granted)> {
        let mut is_held_up = false;
        let mut quotas: BTreeSet<TenantName> = BTreeSet::new();
        let mut held_up: BTreeSet<TenantName> = BTreeSet::new();
        for (tenant, is_within) in self.in_turn(None) {
            if is_held_up && !is_within {
                break;
            }
            if held_up.contains(&tenant) || held.iter().any(|of| is_part_of(&tenant, of)) {
                continue;
            }
            let (&ticket, waiter) = self.waiting[&tenant].first_key_value()?;
            let request = waiter.request.clone();
            let granted = match self.check_request(&request) {
                Ok(layout) => self.grant(&request, layout, Means::Later).transpose(),
                Err(error) => Some(Err(error)),
            };
            if let Some(granted) = granted {
                return Some((tenant, ticket, granted));
            }
            let bytes = self.room_bytes(&request);
            match self.quota_without_room(&tenant, bytes) {
                None => is_held_up = true,
                Some((of, most)) if quotas.insert(of.clone()) => {
                    let turns = self.in_turn(Some((of, most))).into_iter();
                    held_up.extend(turns.filter(|it| !it.1).map(|it| it.0));
                }
                Some(_) => {}
            }
        }
        None
    }

    /// The tenants that wait to create something, in the order in which they are served, and whether each is within its part with
    /// its first: of the whole memory, or under a quota.
    fn in_turn(&self, quota: Option<(&TenantName, u64)>) -> Vec<(TenantName, bool)> {
        let waiting: Vec<_> = match quota {
            None => self.waiting.iter().collect(),
            Some((of, _)) => below(of, self.waiting.range(of.clone()..)).collect(),
        };
        let firsts = waiting.into_iter().filter_map(|(tenant, all)| {
            let (ticket, waiter) = all.first_key_value()?;
            Some((*ticket, tenant, self.room_bytes(&waiter.request)))
        });
        let mut firsts: Vec<(Ticket, &TenantName, u64)> = firsts.collect();
        if firsts.len() <= 1 {
            let only = firsts.into_iter();
            return only.map(|(_, tenant, _)| (tenant.clone(), true)).collect();
        }
        firsts.sort_unstable();
        let wants = firsts.into_iter().map(|(_, tenant, bytes)| (tenant, bytes));
        let wants: Vec<(&TenantName, u64)> = wants.collect();
        let has = self.in_memory(quota.map(|(of, _)| of));
        let capacity = quota.map_or(self.arena.capacity(), |(_, most)| most);
        let turns = self.parts.in_turn(capacity, &has, &wants).into_iter();
        turns
            .map(|(tenant, is_within)| (tenant.clone(), is_within))
            .collect()
    }

    /// Whether somebody waits whom a create of a tenant would overtake: for room, or for a quota that is the tenant's, too.
    fn would_overtake(&self, tenant: &TenantName) -> bool {
        let mut quotas = self.quotas_waited_for();
        quotas.any(|quota| quota.is_none_or(|(of, _)| is_part_of(tenant, of)))
    }

    /// For each tenant that waits to create something: the quota that its first waits for, unless that is room.
    pub(super) fn quotas_waited_for(&self) -> impl Iterator<Item = Option<(&TenantName, u64)>> {
        self.waiting.iter().map(|(tenant, all)| {
            let first = all.first_key_value();
            let bytes = first.map_or(0, |(_, waiter)| self.room_bytes(&waiter.request));
            self.quota_without_room(tenant, bytes)
        })
    }

    fn room_bytes(&self, request: &Request) -> u64 {
        let layout = Layout::of(request.len, self.arena.capacity());
        layout.map_or(request.len, |it| it.bytes)
    }

    fn end_wait(&mut self, tenant: &TenantName, ticket: Ticket) -> Option<Waiter> {
        let waiting = self.waiting.get_mut(tenant)?;
        let waiter = waiting.remove(&ticket);
        if waiting.is_empty() {
            self.waiting.remove(tenant);
        }
        waiter
    }

    /// How many objects are to be read back.
    pub(super) fn waiting_restores(&self) -> usize {
        self.restores.values().map(VecDeque::len).sum()
    }

    /// How many creates wait for room.
    pub(super) fn waiting_creates(&self) -> usize {
        self.waiting.values().map(|all| all.len()).sum()
    }

    fn check_request(&mut self, request: &Request) -> Result<Layout, CreateError> {
        let Request {
            id, len: len_bytes, ..
        } = *request;
        if let Some(entry) = self.objects.get(&id) {
            let is_alive =
                matches!(entry.location, Location::Writing) || entry.handle.strong_count() > 0;
            if is_alive {
                return Err(CreateError::Exists { id });
            }
            // Its last reference is just being dropped.
            let serial = entry.serial;
            self.forget(id, serial);
        }
        let capacity_bytes = self.arena.capacity();
        let layout = Layout::of(len_bytes, capacity_bytes)
            .filter(|layout| layout.whole_pages() <= capacity_bytes)
            .ok_or(CreateError::TooLarge {
                id,
                len_bytes,
                capacity_bytes,
            })?;
        match self.quota_below(&request.tenant, layout.bytes) {
            Some((tenant, quota_bytes)) => Err(CreateError::AboveQuota {
                id,
                len_bytes,
                tenant: tenant.clone(),
                quota_bytes,
            }),
            None => Ok(layout),
        }
    }

    fn grant(
        &mut self,
        request: &Request,
        layout: Layout,
        means: Means,
    ) -> Result<Option<Grant>, CreateError> {
        let Request {
            id, len: len_bytes, ..
        } = *request;
        let room = self
            .make_room(&request.tenant, layout, means, 0)
            .map_err(|source| CreateError::Memory {
                id,
                len_bytes,
                source,
            })?;
        Ok(room.map(|room| Grant {
            serial: self.begin(request, layout, &room),
            room,
        }))
    }

    fn wait_for_restore(
        &mut self,
        id: ObjectId,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<Arc<Extent>, ReadError>> {
        self.serials += 1;
        let fresh = self.serials;
        let entry = self.objects.get_mut(&id).expect("it is wanted");
        let number = *ticket.get_or_insert_with(|| {
            entry.pins += 1;
            fresh
        });
        entry.wakers.retain(|(it, _)| *it != number);
        entry.wakers.push((number, waker.clone()));
        Poll::Pending
    }

    fn stop_waiting(&mut self, id: ObjectId, ticket: Ticket) {
        let entry = self.objects.get_mut(&id).expect("a pinned object stays");
        entry.wakers.retain(|(it, _)| *it != ticket);
        let serial = entry.serial;
        self.unpin(id, serial);
    }

    /// Says whether there is nothing to wait for, and tells those who would rather fail than wait.
    fn mark_stuck(&mut self, id: ObjectId, file: FileNumber, is_stuck: bool) {
        let entry = self.objects.get_mut(&id).expect("it is queued");
        let was_stuck = matches!(entry.location, Location::Queued { is_stuck: true, .. });
        entry.location = Location::Queued { file, is_stuck };
        if is_stuck && !was_stuck {
            let wakers = entry.wakers.iter().map(|(_, waker)| waker.clone());
            self.after.wakers.extend(wakers);
        }
    }

    /// Whether room is being made for an object that somebody wants back, and that a create of a tenant could take.
    fn is_restore_coming(&self, tenant: &TenantName) -> bool {
        let is_coming = |(of, all): (&TenantName, &VecDeque<Restore>)| {
            let queued = all.iter().find_map(|it| {
                let entry = self.objects.get(&it.id)?;
                let is_queued = entry.serial == it.serial && entry.location.queued().is_some();
                is_queued.then_some(entry.layout.bytes)
            });
            let Some(bytes) = queued else {
                return false;
            };
            let (quota, coming) = self.on_its_way(of, bytes);
            coming > 0 && quota.is_none_or(|quota| is_part_of(tenant, &quota))
        };
        self.spilling_bytes > 0 && self.restores.iter().any(is_coming)
    }

    fn restore_failed(&mut self, id: ObjectId, file: FileNumber, error: std::io::Error) {
        let entry = self.objects.get_mut(&id).expect("it is queued");
        entry.location = Location::Spilled(file);
        entry.fault = Some(Arc::new(error));
        let wakers = std::mem::take(&mut entry.wakers);
        self.after
            .wakers
            .extend(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Why nothing more goes to disk although there should be room.
    fn disk_fault(&self) -> Option<Box<str>> {
        let disk = self.disk.as_ref()?;
        let fault = disk.fault.as_ref()?;
        let why = match fault.kind() {
            std::io::ErrorKind::StorageFull => "the disk is full",
            _ => "the last write failed",
        };
        Some(format!("{why} ({}: {fault})", disk.dir.display()).into())
    }

    /// How full it is for so much of a tenant's.
    fn fullness(&self, tenant: &TenantName, bytes: u64, means: Means) -> Fullness {
        let (quota, part) = self.limits_of(tenant, bytes, means);
        let limits = TenantLimits { quota, part };
        Fullness {
            capacity_bytes: self.arena.capacity(),
            used_bytes: self.arena.used(),
            pinned_bytes: self.pinned_bytes(),
            waiting: self.waiting_creates(),
            spilled_bytes: self.disk.as_ref().map(|disk| disk.used),
            spill_capacity_bytes: self.disk.as_ref().map(|disk| disk.capacity),
            disk_fault: self.disk_fault(),
            limits: (limits != TenantLimits::default()).then(|| Box::new(limits)),
        }
    }
}

impl Location {
    fn queued(&self) -> Option<FileNumber> {
        match self {
            Self::Queued { file, .. } => Some(*file),
            _ => None,
        }
    }
}
