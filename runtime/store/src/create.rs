//! Creating objects: the writer, and waiting for room.
//!
//! Owns an unfinished object's bytes. Invariant: nobody can read before [`Writer::seal`], and after
//! it nobody can write; whatever ends a writer otherwise gives its room back.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;

use crate::object::Object;
use crate::segment::{Extent, Untouched};
use crate::state::{Copy, CreateError, Grant, Handle, Request, Shared, Ticket};

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
