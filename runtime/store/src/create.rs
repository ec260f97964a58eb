//! Creating objects: the writer, and waiting for room.
//!
//! Owns an unfinished object's bytes. Invariant: nobody can read before [`Writer::seal`], and after
//! it nobody can write; whatever ends a writer otherwise gives its room back.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;
use wasmrun_model::units::bytes;

use crate::object::{Copy, Handle, Object};
use crate::segment::{Extent, Untouched};
use crate::state::{Grant, Request, Ticket};
use crate::store::Shared;

/// From which length on memory is touched ahead of writing, in bytes.
const AHEAD_FROM_BYTES: u64 = 4 << 20;

/// An object that is being written: its bytes, writable. [`Writer::seal`] makes it an object;
/// dropping the writer gives it up.
///
/// The bytes may be anything that the same tenant had in the store before, or zeros. Never another
/// tenant's. Large amounts are best written by [`Writer::write_at`], which knows how to fill memory
/// that was never touched.
pub struct Writer {
    shared: Arc<Shared>,
    request: Request,
    serial: u64,
    fresh: bool,
    /// `None` once it is sealed.
    extent: Option<Extent>,
    touching: Touching,
}

/// What is still to be touched of an object's memory.
type Touching = Arc<Mutex<Option<Untouched>>>;

/// Has the kernel make the pages of an object that is being written, ahead of whoever writes it: on another thread.
/// Made by [`Writer::ahead`]; it ends with the writer.
#[derive(Debug)]
pub struct Ahead(Touching);

impl Ahead {
    /// Touches a little more; false when all of it was touched, or the writer is gone. It blocks.
    pub fn touch_more(&mut self) -> bool {
        // Who seals or drops the writer waits for a step: memory that is given back must not be touched again.
        let mut untouched = self.0.lock();
        untouched.as_mut().is_some_and(Untouched::touch_more)
    }
}

/// Waits for room. Made by [`crate::Store::create`].
#[must_use = "a future does nothing unless it is polled"]
pub struct CreateFuture {
    shared: Arc<Shared>,
    request: Request,
    ticket: Option<Ticket>,
}

/// Why an object could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is one with this id, sealed or not.
    #[error("object {id} exists already: an object is written once; get it instead")]
    Exists {
        /// The id.
        id: ObjectId,
    },
    /// More than the whole store.
    #[error(
        "object {id} of {} can never fit into the object store of {}: \
         make it smaller, or raise --object-memory",
        bytes(*len_bytes), bytes(*capacity_bytes)
    )]
    TooLarge {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// The store's capacity.
        capacity_bytes: u64,
    },
    /// More than the tenant, or one that it is part of, may have in memory at once.
    #[error(
        "object {id} of {} can never fit under the quota of tenant {tenant}, {} of memory for objects at a node: \
         make it smaller, or have the quota raised (`wasmrun tenant set {tenant} --max-objects`)",
        bytes(*len_bytes), bytes(*quota_bytes)
    )]
    AboveQuota {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// The tenant whose quota it is.
        tenant: TenantName,
        /// The quota.
        quota_bytes: u64,
    },
    /// There is no room now.
    #[error("object {id} of {} does not fit into the object store now: {store}", bytes(*len_bytes))]
    Full {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// How full the store is.
        store: Fullness,
    },
    /// The system gives no memory although the store may have more.
    #[error(
        "object {id} of {} got no memory from the system: give this process more memory, \
         files or disk space, or lower --object-memory",
        bytes(*len_bytes)
    )]
    Memory {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// How full a store is, as an error says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fullness {
    /// What objects may take in memory.
    pub capacity_bytes: u64,
    /// What they take.
    pub used_bytes: u64,
    /// What of that somebody has a view of.
    pub pinned_bytes: u64,
    /// How many others wait for room.
    pub waiting: usize,
    /// What is taken on disk; `None` without spilling.
    pub spilled_bytes: Option<u64>,
    /// What may be taken on disk; `None` without spilling.
    pub spill_capacity_bytes: Option<u64>,
    /// Why nothing more could be written there when that was last tried, and the folder.
    pub disk_fault: Option<Box<str>>,
    /// What bounds the tenant, beside other tenants.
    pub limits: Option<Box<TenantLimits>>,
}

/// What keeps an object of a tenant out of memory where other tenants are in the store, or it has a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// A quota that there is no room under.
    pub quota: Option<QuotaUsed>,
    /// What it has of its part.
    pub part: Option<PartUsed>,
}

/// A quota of memory that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUsed {
    /// The tenant whose quota it is: the one that has no room, or one that it is part of.
    pub tenant: TenantName,
    /// What it has in memory, and the quota; `None` for a tenant that is part of this one.
    pub bytes: Option<(u64, u64)>,
}

/// What a tenant has of its part of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartUsed {
    /// The tenant.
    pub tenant: TenantName,
    /// What it has in memory.
    pub used_bytes: u64,
    /// What it may have without taking room from others.
    pub part_bytes: u64,
}

impl fmt::Display for Fullness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits.as_deref();
        if let Some(quota) = limits.and_then(|it| it.quota.as_ref()) {
            return write!(f, "{quota}");
        }
        let (used, capacity) = (bytes(self.used_bytes), bytes(self.capacity_bytes));
        write!(f, "{used} of {capacity} are in use")?;
        if self.pinned_bytes > 0 {
            write!(
                f,
                ", {} of that by tasks and clients",
                bytes(self.pinned_bytes)
            )?;
        }
        if let Some(part) = limits.and_then(|it| it.part.as_ref()) {
            write!(
                f,
                ", tenant {} has {} of its part of {}",
                part.tenant,
                bytes(part.used_bytes),
                bytes(part.part_bytes)
            )?;
        }
        if self.waiting > 0 {
            let waiting = self.waiting;
            match waiting {
                1 => f.write_str(", another one waits for room")?,
                _ => write!(f, ", {waiting} others wait for room")?,
            }
        }
        match (self.spilled_bytes, self.spill_capacity_bytes) {
            (Some(spilled), Some(_)) if let Some(fault) = &self.disk_fault => write!(
                f,
                ", {} on disk, and {fault}; free space there, drop objects that are not needed, or \
                 raise --object-memory",
                bytes(spilled)
            ),
            (Some(spilled), Some(capacity)) => write!(
                f,
                ", and {} of {} on disk; drop objects that are not needed, or raise \
                 --object-memory or --spill-size",
                bytes(spilled),
                bytes(capacity)
            ),
            _ => f.write_str(
                "; drop objects that are not needed, raise --object-memory, or let objects go to \
                 disk with --spill-dir",
            ),
        }
    }
}

impl fmt::Display for QuotaUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = &self.tenant;
        write!(
            f,
            "tenant {tenant} is at its quota of memory for objects at this node"
        )?;
        if let Some((used, quota)) = self.bytes {
            write!(f, ", {} of {}", bytes(used), bytes(quota))?;
        }
        write!(
            f,
            "; drop objects that are not needed, or have the quota raised (`wasmrun tenant set {tenant} --max-objects`)"
        )
    }
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        request: Request,
        grant: Grant,
    ) -> Result<Self, CreateError> {
        let (id, len_bytes) = (request.id, request.len);
        let Grant { serial, room } = grant;
        let mut writer = Self {
            shared,
            request,
            serial,
            fresh: room.fresh,
            extent: Some(room.extent),
            touching: Touching::default(),
        };
        let reserved = writer.extent_mut().reserve();
        reserved.map_err(|source| CreateError::Memory {
            id,
            len_bytes,
            source,
        })?;
        Ok(writer)
    }

    /// Writes the whole object, by the fastest way there is.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from(&mut self, bytes: &[u8]) {
        assert_eq!(
            bytes.len() as u64,
            self.request.len,
            "an object is written whole"
        );
        self.write_at(0, bytes);
    }

    /// Writes bytes from an offset on, by the fastest way there is.
    ///
    /// # Panics
    /// If they reach beyond the object's end.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.request.len),
            "an object has its length"
        );
        let fresh = self.fresh;
        self.extent_mut().write(offset, bytes, fresh);
    }

    /// To touch its memory ahead of writing. `None` if that is not worth the while: it is small, or was touched before.
    pub fn ahead(&self) -> Option<Ahead> {
        if self.request.len < AHEAD_FROM_BYTES {
            return None;
        }
        *self.touching.lock() = Some(self.extent().untouched(self.fresh)?);
        Some(Ahead(self.touching.clone()))
    }

    /// Makes it an object, which can be read and never changes: the copy that must not be lost.
    pub fn seal(self) -> Object {
        self.seal_as(Copy::Primary)
    }

    /// Makes it an object of this kind.
    pub fn seal_as(mut self, copy: Copy) -> Object {
        self.touching.lock().take();
        let mut extent = self.extent.take().expect(UNSEALED);
        extent.clear_from(self.request.len);
        let Request {
            tenant,
            id,
            len,
            form,
        } = self.request.clone();
        let shared = self.shared.clone();
        let handle = Arc::new(Handle {
            shared,
            id,
            serial: self.serial,
            len,
            form,
            tenant,
            sums: Mutex::default(),
        });
        self.shared
            .with(|state| state.seal(id, &handle, extent, copy));
        Object::new(handle)
    }

    fn extent(&self) -> &Extent {
        self.extent.as_ref().expect(UNSEALED)
    }

    fn extent_mut(&mut self) -> &mut Extent {
        self.extent.as_mut().expect(UNSEALED)
    }
}

const UNSEALED: &str = "a writer has its extent until it is sealed";

impl Deref for Writer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.extent().bytes()[..self.request.len as usize]
    }
}

impl DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.request.len as usize;
        &mut self.extent_mut().bytes_mut()[..len]
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.touching.lock().take();
        if let Some(extent) = self.extent.take() {
            self.shared
                .with(|state| state.abort(self.request.id, extent));
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({}, {} bytes)", self.request.id, self.request.len)
    }
}

impl CreateFuture {
    pub(crate) fn new(shared: Arc<Shared>, request: Request) -> Self {
        Self {
            shared,
            request,
            ticket: None,
        }
    }

    /// What to say if it is not waited for any longer: a [`CreateError::Full`] with sizes.
    pub fn error(&self) -> CreateError {
        self.shared
            .with(|state| state.full(&self.request, self.ticket))
    }
}

impl Future for CreateFuture {
    type Output = Result<Writer, CreateError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            shared,
            request,
            ticket,
        } = self.get_mut();
        let polled = shared.with(|state| state.poll_create(request, ticket, context.waker()));
        polled.map(|granted| Writer::new(shared.clone(), request.clone(), granted?))
    }
}

impl Drop for CreateFuture {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared
                .with(|state| state.cancel_create(&self.request, ticket));
        }
    }
}
