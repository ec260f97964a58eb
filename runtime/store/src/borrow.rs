//! Objects whose bytes another store of this machine has: borrowed, not copied.
//!
//! Owns the mappings of other stores' segments ([`Lender`]) and what becomes of an object whose lender ends: it is
//! copied ([`Object::adopt`]). Must not: know the protocol around it, which decides who lends what to whom.
//!
//! What the protocol must do: borrow only what the lender keeps pinned until the `keep` of [`Store::borrow`] is dropped,
//! and what is of the same tenant there. A mapping shows its bytes after the lender's process has ended, too.
//!
//! Invariants: bytes of others are never written. They take no room in this store: they are in none of its sums but
//! those of what is borrowed.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use crate::create::{CreateError, CreateFuture, Writer};
use crate::layout::{Layout, WHOLE_PAGES_FROM_BYTES, page_bytes};
use crate::object::{Form, Handle, Object, ReadError};
use crate::segment::{Companion, Extent, SegmentNumber, SharedMapping};
use crate::share::{Listeners, Place};
use crate::state::Request;
use crate::store::Store;

/// Another store of this machine: its segments that are mapped here, each once, for as long as something in them is
/// borrowed.
#[derive(Debug, Default)]
pub struct Lender {
    /// By its own numbers.
    segments: Mutex<BTreeMap<SegmentNumber, Weak<Foreign>>>,
}

/// A segment of another store.
struct Foreign {
    /// Its number here: see [`SegmentNumber`].
    number: SegmentNumber,
    len: u64,
    fd: OwnedFd,
    mapping: SharedMapping,
    companion: OnceLock<Companion>,
    listeners: Arc<Mutex<Listeners>>,
}

/// The bytes of one object in it, which are lent to us.
pub(crate) struct Lent {
    segment: Arc<Foreign>,
    offset: u64,
    len: u64,
    /// Says, when it is dropped, that they are not needed any more. After the mapping's last use: it is the last field.
    _keep: Box<dyn Any + Send + Sync>,
}

/// Bytes that stay in memory as long as this lives.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    /// Of this store.
    Own(Arc<Extent>),
    /// Of another.
    Lent(Arc<Lent>),
}

/// Why an object could not be borrowed.
#[derive(Debug, thiserror::Error)]
pub enum BorrowError {
    /// There is one with this id here.
    #[error("object {0} is here already: get it instead")]
    Exists(ObjectId),
    /// It is said to be where it cannot be.
    #[error("object {0} is said to be where no object can be: bring its bytes instead")]
    Place(ObjectId),
    /// The segment cannot be mapped.
    #[error("the memory of object {id} cannot be mapped: bring its bytes instead")]
    Map {
        /// The object.
        id: ObjectId,
        /// What the system said.
        source: io::Error,
    },
}

/// Waits for room for a borrowed object. Made by [`Object::adopt`].
#[must_use = "a future does nothing unless it is polled"]
pub struct AdoptFuture {
    room: CreateFuture,
    object: Object,
}

/// Room for a borrowed object in this store; dropping it gives that up.
#[derive(Debug)]
pub struct Adoption {
    writer: Writer,
    object: Object,
}

impl Lender {
    /// Maps a segment, unless it is.
    fn segment(&self, store: &Store, place: &Place, fd: OwnedFd) -> io::Result<Arc<Foreign>> {
        let mut segments = self.segments.lock();
        let known = segments.get(&place.segment).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|it| it.len == place.segment_bytes) {
            return Ok(known);
        }
        let segment = Arc::new(Foreign {
            number: store.shared().next_foreign(),
            len: place.segment_bytes,
            mapping: SharedMapping::new(fd.as_fd(), place.segment_bytes)?,
            fd,
            companion: OnceLock::new(),
            listeners: Arc::default(),
        });
        segments.retain(|_, it| it.strong_count() > 0);
        segments.insert(place.segment, Arc::downgrade(&segment));
        Ok(segment)
    }
}

impl Store {
    /// Makes an object of bytes that are in a segment of another store, in place: as a copy that may be dropped. `keep`
    /// is dropped when nobody needs them there any more; in any thread, and it must be quick.
    ///
    /// # Errors
    /// When the id is taken, the place cannot be an object's, or the segment cannot be mapped. `keep` is dropped then.
    pub fn borrow(
        &self,
        lender: &Lender,
        (id, tenant, form): (ObjectId, &TenantName, Form),
        (place, fd): (&Place, OwnedFd),
        keep: Box<dyn Any + Send + Sync>,
    ) -> Result<Object, BorrowError> {
        let Place {
            segment_bytes,
            offset_bytes: offset,
            len_bytes: len,
            ..
        } = *place;
        // Guests map whole pages.
        let pages = len.checked_next_multiple_of(page_bytes());
        let end = pages.and_then(|pages| offset.checked_add(pages));
        let is_place = len >= WHOLE_PAGES_FROM_BYTES
            && offset.is_multiple_of(page_bytes())
            && end.is_some_and(|end| end <= segment_bytes);
        let layout = Layout::of(len, self.usage().capacity_bytes);
        let (true, Some(layout)) = (is_place, layout) else {
            return Err(BorrowError::Place(id));
        };
        let segment = lender.segment(self, place, fd);
        let lent = Arc::new(Lent {
            segment: segment.map_err(|source| BorrowError::Map { id, source })?,
            offset,
            len,
            _keep: keep,
        });
        let shared = self.shared().clone();
        let handle = |serial| {
            Arc::new(Handle {
                shared,
                id,
                serial,
                len,
                form,
                tenant: tenant.clone(),
                sums: Mutex::default(),
            })
        };
        let request = Request {
            tenant: tenant.clone(),
            id,
            len,
            form,
            replaces: None,
        };
        let borrowed = self
            .shared()
            .with(|state| state.borrow(&request, layout, lent, handle));
        match borrowed {
            Some(handle) => Ok(Object::new(handle)),
            None => Err(BorrowError::Exists(id)),
        }
    }
}

impl Object {
    /// Whether its bytes are in another store.
    pub fn is_borrowed(&self) -> bool {
        let Handle { id, serial, .. } = *self.handle();
        self.handle()
            .shared
            .with(|state| state.is_borrowed(id, serial))
    }

    /// Gives a borrowed object back, if it is a copy that may be dropped and nobody looks at it. It is dropped then.
    /// Whether it was.
    pub fn give_back(&self) -> bool {
        let Handle { id, serial, .. } = *self.handle();
        self.handle()
            .shared
            .with(|state| state.give_back(id, serial))
    }

    /// Waits for room to copy a borrowed object into this store; as [`Store::create`] does. It says
    /// [`CreateError::Exists`] of one that is not borrowed any more.
    pub fn adopt(&self) -> AdoptFuture {
        let handle = self.handle();
        let request = Request {
            tenant: handle.tenant.clone(),
            id: handle.id,
            len: handle.len,
            form: handle.form,
            replaces: Some(handle.serial),
        };
        AdoptFuture {
            room: CreateFuture::new(handle.shared.clone(), request),
            object: self.clone(),
        }
    }
}

impl AdoptFuture {
    /// What to say if it is not waited for any longer.
    pub fn error(&self) -> CreateError {
        self.room.error()
    }
}

impl Future for AdoptFuture {
    type Output = Result<Adoption, CreateError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { room, object } = self.get_mut();
        Pin::new(room).poll(context).map(|writer| {
            Ok(Adoption {
                writer: writer?,
                object: object.clone(),
            })
        })
    }
}

impl Adoption {
    /// Copies the object. From now on it is this store's own; who looks at it goes on looking at the lender's bytes.
    /// It takes as long as a copy takes.
    ///
    /// # Errors
    /// [`ReadError::Dropped`] when it was given back meanwhile.
    pub fn copy(mut self) -> Result<(), ReadError> {
        let view = self.object.view()?;
        self.writer.copy_from(&view);
        self.writer.replace();
        Ok(())
    }
}

impl Lent {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Held {
    /// The first `len` bytes.
    pub(crate) fn bytes(&self, len: u64) -> &[u8] {
        match self {
            Self::Own(extent) => &extent.bytes()[..len as usize],
            Self::Lent(lent) => {
                let bytes = lent.segment.mapping.bytes(lent.offset, len);
                bytes.expect("it was checked when it was borrowed")
            }
        }
    }

    /// As [`Extent::fd`]; one that is lent cannot write in any case.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(extent) => extent.fd(),
            Self::Lent(lent) => lent.segment.fd.as_fd(),
        }
    }

    pub(crate) fn shared_fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Own(extent) => extent.shared_fd(),
            Self::Lent(lent) => Ok(lent.segment.fd.as_fd()),
        }
    }

    pub(crate) fn companion(&self, make: impl FnOnce() -> Companion) -> &(dyn Any + Send + Sync) {
        match self {
            Self::Own(extent) => extent.companion(make),
            Self::Lent(lent) => &**lent.segment.companion.get_or_init(make),
        }
    }

    pub(crate) fn segment_listeners(&self) -> &Arc<Mutex<Listeners>> {
        match self {
            Self::Own(extent) => extent.segment_listeners(),
            Self::Lent(lent) => &lent.segment.listeners,
        }
    }

    pub(crate) fn segment_number(&self) -> SegmentNumber {
        match self {
            Self::Own(extent) => extent.segment_number(),
            Self::Lent(lent) => lent.segment.number,
        }
    }

    pub(crate) fn segment_len(&self) -> u64 {
        match self {
            Self::Own(extent) => extent.segment_len(),
            Self::Lent(lent) => lent.segment.len,
        }
    }

    /// Where it starts in its segment, in bytes.
    pub(crate) fn start(&self) -> u64 {
        match self {
            Self::Own(extent) => extent.start(),
            Self::Lent(lent) => lent.offset,
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        Listeners::tell(&self.listeners);
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({:?}, {} bytes)", self.number, self.len)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({:?}, {} bytes)", self.segment, self.len)
    }
}

impl fmt::Debug for AdoptFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdoptFuture({:?})", self.object)
    }
}
