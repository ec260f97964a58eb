//! Sealed objects: references, and views of their bytes.
//!
//! Owns counting: an [`Object`] keeps an object in the store, a [`View`] keeps its bytes in memory.
//! Invariant: a view's bytes never change or move while it lives.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use crate::arena::WHOLE_PAGES_FROM_BYTES;
use crate::segment::{Extent, Listeners, SegmentNumber};
use crate::state::{Copy, Form, Handle, ReadError, Ticket};

/// A counted reference to a sealed object. When the last one is dropped the bytes go at once,
/// wherever they are.
#[derive(Clone)]
pub struct Object(Arc<Handle>);

/// The bytes of an object. While it or a clone lives, the object is neither dropped nor spilled.
#[derive(Clone)]
pub struct View(Arc<Pinned>);

struct Pinned {
    /// `None` only while it is being dropped.
    extent: Option<Arc<Extent>>,
    object: Object,
}

/// Where a view's bytes can be mapped: whole pages that are nobody else's, zeros after the last
/// byte.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// The segment.
    pub fd: BorrowedFd<'a>,
    /// Which one it is: two views in the same segment need one mapping.
    pub segment: SegmentNumber,
    /// The length of the whole segment, in bytes.
    pub segment_bytes: u64,
    /// Where the object starts in the segment, in bytes: a multiple of the page size.
    pub offset_bytes: u64,
    /// The length of the object, in bytes; what is mapped is that, rounded up to whole pages.
    pub len_bytes: u64,
}

/// Waits until an object is in memory. Made by [`Object::restore`].
#[must_use = "a future does nothing unless it is polled"]
pub struct RestoreFuture {
    object: Object,
    ticket: Option<Ticket>,
    /// Whether to wait even if nothing is about to make room.
    is_patient: bool,
}

impl Object {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// How long a reader should wait for room for it, as the store was told ([`crate::StoreConfig::patience`]).
    pub fn patience(&self) -> Duration {
        self.0.shared.patience
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)] // An object without bytes is nothing special.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// What its bytes are.
    pub fn form(&self) -> Form {
        self.0.form
    }

    /// Whose it is.
    pub fn tenant(&self) -> &TenantName {
        &self.0.tenant
    }

    /// The checksum of some of its bytes, if somebody has said what it is.
    pub fn sum(&self, offset: u64, len: u64) -> Option<u32> {
        let sums = self.0.sums.lock();
        let (of, sum) = sums.get(&offset)?;
        (*of == len).then_some(*sum)
    }

    /// All checksums that somebody has said, as they were: where the bytes start, how many they are, and the sum.
    pub fn sums(&self) -> Vec<(u64, u64, u32)> {
        let sums = self.0.sums.lock();
        let all = sums.iter().map(|(start, (len, sum))| (*start, *len, *sum));
        all.collect()
    }

    /// Keeps the checksum of some of its bytes with the object, for as long as it lives: of the same parts for all
    /// who ask, since one is kept for each start. Which checksum that is, is the caller's. The first that is said stays.
    pub fn set_sum(&self, offset: u64, len: u64, sum: u32) {
        let mut sums = self.0.sums.lock();
        sums.entry(offset).or_insert((len, sum));
    }

    /// Whether it must not be lost. A copy that was dropped is secondary.
    pub fn copy(&self) -> Copy {
        let Handle { id, serial, .. } = *self.0;
        let copy = self.0.shared.with(|state| state.copy(id, serial));
        copy.unwrap_or(Copy::Secondary)
    }

    /// Makes it a copy that must not be lost, or one that may. Does nothing to one that was
    /// dropped.
    pub fn set_copy(&self, copy: Copy) {
        let Handle { id, serial, .. } = *self.0;
        self.0.shared.with(|state| state.set_copy(id, serial, copy));
    }

    /// Its bytes are not what they should be: its id is free for another object, whatever kind of copy this is, and
    /// reading it says [`ReadError::Dropped`] from now on. False, and nothing is done, while there are views of it,
    /// somebody waits for one, or it is on its way to or from the disk.
    pub fn give_up(&self) -> bool {
        let Handle { id, serial, .. } = *self.0;
        self.0.shared.with(|state| state.give_up(id, serial))
    }

    /// Whether reading it says [`ReadError::Dropped`], from now on.
    pub fn was_dropped(&self) -> bool {
        let Handle { id, serial, .. } = *self.0;
        let copy = self.0.shared.with(|state| state.copy(id, serial));
        copy.is_none()
    }

    /// Whether [`Object::view`] gives the bytes at once: they are in memory now. That can change.
    pub fn is_resident(&self) -> bool {
        let Handle { id, serial, .. } = *self.0;
        self.0
            .shared
            .with(|state| state.is_resident(id, serial))
            .unwrap_or(false)
    }

    /// The bytes, if they are in memory: a look-up, whatever the size. `None` when they are on disk
    /// or were dropped; [`Object::restore`] then waits, or says so.
    pub fn try_view(&self) -> Option<View> {
        let Handle { id, serial, .. } = *self.0;
        let extent = self.0.shared.with(|state| state.pin(id, serial))?;
        Some(View::new(extent, self.clone()))
    }

    /// The bytes. If they are on disk this blocks until they are in memory, for as long as other
    /// objects are making room; [`Object::restore`] is the way to wait without a thread.
    ///
    /// # Errors
    /// [`ReadError::Full`] when nothing is about to make room; the other two as they say.
    pub fn view(&self) -> Result<View, ReadError> {
        match self.try_view() {
            Some(view) => Ok(view),
            None => {
                let object = self.clone();
                block_on(RestoreFuture {
                    object,
                    ticket: None,
                    is_patient: false,
                })
            }
        }
    }

    /// Waits for the bytes to be in memory, and for room for them. Never says [`ReadError::Full`];
    /// put a limit on the time around it, and ask [`RestoreFuture::lacks_room`] when it is over. Can be
    /// dropped at any time.
    pub fn restore(&self) -> RestoreFuture {
        RestoreFuture {
            object: self.clone(),
            ticket: None,
            is_patient: true,
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {} bytes)", self.0.id, self.0.len)
    }
}

impl View {
    fn new(extent: Arc<Extent>, object: Object) -> Self {
        Self(Arc::new(Pinned {
            extent: Some(extent),
            object,
        }))
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// Where to map the bytes in this process. `None` for small objects, which share pages with
    /// others.
    ///
    /// The descriptor can write. It is for `MAP_PRIVATE` mappings of this process and must not
    /// leave it: [`View::shareable_pages`] is for others.
    pub fn pages(&self) -> Option<Pages<'_>> {
        self.has_pages().then(|| self.pages_of(self.extent().fd()))
    }

    /// Where another process can map the bytes, with a descriptor that cannot write. `None` for
    /// small objects.
    ///
    /// Whoever gets it can read everything that the *same tenant* has in this segment, so it is for
    /// that tenant only. From now on memory in this segment that was never touched is filled at
    /// half the speed, and is given back to the system only with the whole segment.
    ///
    /// # Errors
    /// When the system does not seal the segment.
    pub fn shareable_pages(&self) -> io::Result<Option<Pages<'_>>> {
        match self.has_pages() {
            true => Ok(Some(self.pages_of(self.extent().shared_fd()?))),
            false => Ok(None),
        }
    }

    /// Something of the caller's that is kept with the segment and dropped with it: made now if there
    /// is none. It is for what holds the segment's memory, such as mappings of its pages, which must go
    /// when the store gives the segment up.
    ///
    /// # Panics
    /// If something of another type is kept there.
    pub fn companion<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let companion = self.extent().companion(|| Box::new(make()));
        companion
            .downcast_ref()
            .expect("a segment has companions of one type")
    }

    pub(crate) fn segment_listeners(&self) -> &Arc<Mutex<Listeners>> {
        self.extent().segment_listeners()
    }

    fn extent(&self) -> &Extent {
        self.0
            .extent
            .as_ref()
            .expect("a view has its bytes until it is dropped")
    }

    fn has_pages(&self) -> bool {
        self.0.object.len() >= WHOLE_PAGES_FROM_BYTES
    }

    fn pages_of<'a>(&'a self, fd: BorrowedFd<'a>) -> Pages<'a> {
        Pages {
            fd,
            segment: self.extent().segment_number(),
            segment_bytes: self.extent().segment_len(),
            offset_bytes: self.extent().start(),
            len_bytes: self.0.object.len(),
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.extent().bytes()[..self.0.object.len() as usize]
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "View({}, {} bytes)",
            self.0.object.id(),
            self.0.object.len()
        )
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // First the share of the extent: the state relies on that.
        self.extent = None;
        let Handle {
            shared, id, serial, ..
        } = &*self.object.0;
        shared.with(|state| state.unpin(*id, *serial));
    }
}

impl RestoreFuture {
    /// Why it waits, as [`ReadError::Full`], while it waits for room; `None` while the bytes come.
    pub fn lacks_room(&self) -> Option<ReadError> {
        let Handle {
            shared, id, serial, ..
        } = &*self.object.0;
        shared.with(|state| state.lacks_room(*id, *serial))
    }
}

impl Future for RestoreFuture {
    type Output = Result<View, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            object,
            ticket,
            is_patient,
        } = self.get_mut();
        let Handle {
            shared, id, serial, ..
        } = &*object.0;
        let name = (*id, *serial);
        let polled =
            shared.with(|state| state.poll_view(name, ticket, *is_patient, context.waker()));
        polled.map(|extent| Ok(View::new(extent?, object.clone())))
    }
}

impl Drop for RestoreFuture {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let Handle { shared, id, .. } = &*self.object.0;
            shared.with(|state| state.cancel_view(*id, ticket));
        }
    }
}

/// Drives a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
