//! Objects in other processes of the same machine, without a copy.
//!
//! Owns where an object is ([`Place`]), bytes with a segment's descriptor beside them on a unix socket
//! (SCM_RIGHTS), and the client's side: the segments that it has mapped. Must not: know the protocol
//! around it, which decides who gets what, and for how long.
//!
//! What the protocol must do: send a place only to a client of the object's tenant; keep the
//! [`View`] for as long as the client may read, which is until the client says that it has dropped
//! its [`ClientView`], or its connection ends. Afterwards the room is used again, and a client that
//! still looks sees other bytes of its own tenant. And tell a client that keeps a segment when it is
//! closed ([`View::watch_segment`]): its memory goes back to the system only when all have unmapped it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use memmap2::MmapMut;
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::object::View;
use crate::segment::{Listeners, SegmentNumber, SharedMapping};

/// Where the bytes of an object are, for a process that has its segment's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The segment: of one tenant of one store.
    pub segment: SegmentNumber,
    /// Its length in bytes.
    pub segment_bytes: u64,
    /// Where the object starts in it.
    pub offset_bytes: u64,
    /// How long the object is.
    pub len_bytes: u64,
}

/// Segments of one store that this process has mapped, each once. Another store numbers its segments
/// anew, so this is for one connection. Views stay valid when their segment is forgotten.
#[derive(Debug, Default)]
pub struct Segments {
    mapped: BTreeMap<SegmentNumber, Arc<SharedMapping>>,
}

/// The bytes of an object of another process, in place. See the head of [`crate::send`]'s module
/// for how long they may be read.
#[derive(Debug, Clone)]
pub struct ClientView {
    mapping: Arc<SharedMapping>,
    offset_bytes: u64,
    len_bytes: u64,
}

/// The bytes of an object of another process, mapped for this one alone: pages that it writes to are copied first, and the object
/// stays as it is. They may be read for as long as those of the [`ClientView`], which is to be kept.
#[derive(Debug)]
pub struct PrivateView(MmapMut);

/// As long as it lives, somebody is told when a segment is closed. Made by [`View::watch_segment`].
pub struct SegmentWatch {
    listeners: Weak<Mutex<Listeners>>,
    key: u64,
}

/// Sends bytes over a unix stream socket, with the descriptor of a view's segment beside the first.
/// How many were sent: at least one, and with it the descriptor. Does not block if the socket does not.
///
/// The caller keeps the view for as long as the client may read, and sends it to clients of the
/// object's tenant only.
///
/// # Errors
/// When the object is a small one, which shares pages with others, the segment cannot be sealed, or the
/// socket takes nothing.
pub fn send(socket: impl AsFd, bytes: &[u8], view: &View) -> io::Result<usize> {
    let Some(pages) = view.shareable_pages()? else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a small object has no pages of its own",
        ));
    };
    send_beside(socket, bytes, pages.fd)
}

/// Sends bytes over a unix stream socket, with a descriptor beside the first. How many were sent: at least one, and with it
/// the descriptor. Does not block if the socket does not.
///
/// # Errors
/// When the socket takes nothing.
pub fn send_beside(socket: impl AsFd, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(&fds)),
        "there is space for one"
    );
    let parts = [IoSlice::new(bytes)];
    let sent = rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(sent)
}

/// What came beside some bytes.
#[derive(Debug)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A segment's descriptor.
    Descriptor(OwnedFd),
    /// A descriptor that this process could not take: it has as many files open as it may.
    Lost,
}

/// Receives what is there, up to the length of `bytes`, and the descriptor that came beside it. A call
/// gives at most one descriptor: the kernel ends it there. No bytes: the other side has closed.
///
/// # Errors
/// When the socket fails, or there were more descriptors.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Beside)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)?;
    let mut fds = control.drain().filter_map(|it| match it {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.next().and_then(|mut fds| fds.next());
    // The kernel says the same of descriptors that there is no room for here, and of those that could not
    // be opened.
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    let beside = match (fd, is_cut) {
        (Some(_), true) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more descriptors came than belong here",
            ));
        }
        (Some(fd), false) => Beside::Descriptor(fd),
        (None, true) => Beside::Lost,
        (None, false) => Beside::Nothing,
    };
    Ok((received.bytes, beside))
}

impl View {
    /// Where the bytes are, for another process. `None` for small objects: their bytes are to be sent.
    pub fn place(&self) -> Option<Place> {
        let pages = self.pages()?;
        Some(Place {
            segment: pages.segment,
            segment_bytes: pages.segment_bytes,
            offset_bytes: pages.offset_bytes,
            len_bytes: pages.len_bytes,
        })
    }

    /// Calls `told` when the segment is closed: nothing is in it any more. It may be called in any
    /// thread, and must be quick.
    pub fn watch_segment(&self, told: impl FnOnce() + Send + 'static) -> SegmentWatch {
        let listeners = self.segment_listeners();
        let mut held = listeners.lock();
        let key = held.next;
        held.next += 1;
        held.told.insert(key, Box::new(told));
        drop(held);
        SegmentWatch {
            listeners: Arc::downgrade(listeners),
            key,
        }
    }
}

impl fmt::Debug for SegmentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentWatch({})", self.key)
    }
}

impl Drop for SegmentWatch {
    fn drop(&mut self) {
        let Some(listeners) = self.listeners.upgrade() else {
            return;
        };
        let told = listeners.lock().told.remove(&self.key);
        drop(told);
    }
}

impl Segments {
    /// Maps a segment, in place of what had its number before.
    ///
    /// # Errors
    /// When it cannot be mapped, or is shorter than it is said to be.
    pub fn add(&mut self, place: &Place, fd: impl AsFd) -> io::Result<()> {
        let mapping = SharedMapping::new(fd.as_fd(), place.segment_bytes)?;
        self.mapped.insert(place.segment, Arc::new(mapping));
        Ok(())
    }

    /// Lets a segment go: it is unmapped when nobody looks at it.
    pub fn forget(&mut self, segment: SegmentNumber) {
        self.mapped.remove(&segment);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.mapped.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }

    /// The bytes of an object, in a mapping that all objects of its segment share.
    ///
    /// # Errors
    /// When its segment is not mapped, or the object would not lie within it.
    pub fn view(&self, place: &Place) -> io::Result<ClientView> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let Place {
            offset_bytes,
            len_bytes,
            ..
        } = *place;
        let mapping = self.mapped.get(&place.segment);
        let mapping = mapping.ok_or_else(|| wrong("the segment is not mapped"))?;
        match mapping.bytes(offset_bytes, len_bytes) {
            Some(_) => Ok(ClientView {
                mapping: mapping.clone(),
                offset_bytes,
                len_bytes,
            }),
            None => Err(wrong("the object is not in its segment")),
        }
    }
}

impl ClientView {
    /// The same bytes, which may be written to.
    ///
    /// # Errors
    /// When there is no room for another mapping.
    pub fn private(&self) -> io::Result<PrivateView> {
        if PRIVATE.load(Ordering::Relaxed) >= MOST_PRIVATE {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let bytes = self.mapping.private(self.offset_bytes, self.len_bytes)?;
        PRIVATE.fetch_add(1, Ordering::Relaxed);
        Ok(PrivateView(bytes))
    }
}

/// Linux gives a process 65,530 mappings, and without one its allocators fail.
const MOST_PRIVATE: usize = 1 << 14;
static PRIVATE: AtomicUsize = AtomicUsize::new(0);

impl Drop for PrivateView {
    fn drop(&mut self) {
        PRIVATE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for PrivateView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for PrivateView {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Deref for ClientView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.mapping.bytes(self.offset_bytes, self.len_bytes);
        bytes.expect("it was checked when the view was made")
    }
}
