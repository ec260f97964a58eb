//! Objects in other processes of the same machine, without a copy.
//!
//! Owns the message that carries a segment's descriptor over a unix socket (SCM_RIGHTS), and the
//! client's side of it. Must not: know the protocol around it, which decides who gets what, and for
//! how long.
//!
//! What the protocol must do: send a view only to a client of the object's tenant; keep that
//! [`View`] for as long as the client may read, which is until the client says that it has dropped
//! its [`ClientView`]s of the object, or its connection ends. Afterwards the room is used again,
//! and a client that still looks sees other bytes of its own tenant.
//!
//! ```text
//! byte  0        8              16           24          32
//!       segment  segment_bytes  offset_bytes len_bytes      u64 each, little-endian
//! ```
//! and one descriptor beside them.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::object::View;
use crate::segment::{SegmentNumber, SharedMapping};

/// The length of the message.
const MESSAGE_BYTES: usize = 32;

/// What a client was told about one object.
#[derive(Debug)]
pub struct Received {
    /// The segment: of one tenant of one store.
    pub segment: SegmentNumber,
    /// Its length in bytes.
    pub segment_bytes: u64,
    /// Where the object starts in it.
    pub offset_bytes: u64,
    /// How long the object is.
    pub len_bytes: u64,
    /// The descriptor. It can be mapped read-only or private.
    pub fd: OwnedFd,
}

/// The segments of one store that this process has mapped: each once, while there are views of it.
/// Another store numbers its segments anew, so this is for one connection.
#[derive(Debug, Default)]
pub struct Segments {
    mapped: BTreeMap<SegmentNumber, Weak<SharedMapping>>,
}

/// The bytes of an object of another process, in place. See the head of [`crate::send`]'s module
/// for how long they may be read.
#[derive(Debug, Clone)]
pub struct ClientView {
    mapping: Arc<SharedMapping>,
    offset_bytes: u64,
    len_bytes: u64,
}

/// Sends a view's descriptor and place over a unix stream or packet socket. Says `false`, and sends
/// nothing, for a small object: its bytes are to be sent instead. Blocks if the socket does.
///
/// The caller keeps the view for as long as the client may read, and sends it to clients of the
/// object's tenant only.
///
/// # Errors
/// When the segment cannot be sealed or the message cannot be sent.
pub fn send(socket: impl AsFd, view: &View) -> io::Result<bool> {
    let Some(pages) = view.shareable_pages()? else {
        return Ok(false);
    };
    let mut message = [0; MESSAGE_BYTES];
    let fields = [
        pages.segment.0,
        pages.segment_bytes,
        pages.offset_bytes,
        pages.len_bytes,
    ];
    for (field, number) in message.chunks_exact_mut(8).zip(fields) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    let fds = [pages.fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(&fds)),
        "there is space for one"
    );
    let parts = [IoSlice::new(&message)];
    // So few bytes are taken whole or not at all.
    let sent = rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    match sent {
        MESSAGE_BYTES => Ok(true),
        _ => Err(io::Error::new(
            io::ErrorKind::WriteZero,
            "the socket took part of a message",
        )),
    }
}

/// Receives what [`send`] sent.
///
/// # Errors
/// When the socket fails or was closed, or something else was sent.
pub fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut message = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut message)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)?;
    let mut fds = control.drain().filter_map(|it| match it {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.next().and_then(|mut fds| fds.next());
    let is_whole = received.bytes == MESSAGE_BYTES && !received.flags.contains(ReturnFlags::CTRUNC);
    let fd = fd.filter(|_| is_whole).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the message does not carry an object",
        )
    })?;
    let field = |at: usize| {
        let bytes = message[at * 8..at * 8 + 8]
            .try_into()
            .expect("a field has eight bytes");
        u64::from_le_bytes(bytes)
    };
    Ok(Received {
        segment: SegmentNumber(field(0)),
        segment_bytes: field(1),
        offset_bytes: field(2),
        len_bytes: field(3),
        fd,
    })
}

impl Segments {
    /// The bytes of an object, in a mapping that all objects of its segment share.
    ///
    /// # Errors
    /// When the segment cannot be mapped, or the object would not lie within it.
    pub fn view(&mut self, received: &Received) -> io::Result<ClientView> {
        let Received {
            segment,
            segment_bytes,
            offset_bytes,
            len_bytes,
            ..
        } = *received;
        let mapping = match self.mapped.get(&segment).and_then(Weak::upgrade) {
            Some(mapping) => mapping,
            None => {
                self.mapped.retain(|_, mapping| mapping.strong_count() > 0);
                let mapping = Arc::new(SharedMapping::new(received.fd.as_fd(), segment_bytes)?);
                self.mapped.insert(segment, Arc::downgrade(&mapping));
                mapping
            }
        };
        match mapping.bytes(offset_bytes, len_bytes) {
            Some(_) => Ok(ClientView {
                mapping,
                offset_bytes,
                len_bytes,
            }),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the object is not in its segment",
            )),
        }
    }
}

impl Deref for ClientView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.mapping.bytes(self.offset_bytes, self.len_bytes);
        bytes.expect("it was checked when the view was made")
    }
}
