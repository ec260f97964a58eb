//! What nodes of one machine say to each other over a socket of it, and descriptors beside that.
//!
//! Owns the messages and reading and writing them. Must not: know what becomes of them, or trust a length.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId};
use wasmrun_model::wire::{self, HEADER_BYTES};
use wasmrun_store::{Beside, Place, SegmentNumber, View};

/// The longest message, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// How many checksums are told of an object.
const MOST_SUMS: usize = 2048;

/// A secret of two nodes, which came over their own connection.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Secret(pub(super) [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may stand in a log.
        f.write_str("Secret")
    }
}

/// What the one says who borrows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Say {
    /// First of all: I am the one to whom you have told this.
    Hello { node: NodeId, secret: Secret },
    /// Lend me this object of this tenant, which has so many bytes.
    Ask {
        object: ObjectId,
        tenant: TenantName,
        len: u64,
    },
    /// I do not look at it any more.
    Returned { loan: u64 },
}

/// What the one says who lends. Each [`Say::Ask`] is answered, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tell {
    /// To [`Say::Hello`]: I am the one who has told you this.
    Welcome { proof: Secret },
    /// It is there, in the segment whose descriptor is beside this message.
    Lent {
        loan: u64,
        segment: u64,
        segment_bytes: u64,
        offset_bytes: u64,
        /// What is known of its bytes' checksums: they go with an object from holder to holder.
        sums: Vec<(u64, u64, u32)>,
    },
    /// I have borrowed it myself, from this node.
    Elsewhere(NodeId),
    /// It cannot be had this way.
    Refused,
    /// I need room: return what you do not look at. Said unasked.
    Recall,
}

impl Tell {
    /// That an object is lent. `None` if it is a small one.
    pub(super) fn lent(loan: u64, view: &View) -> Option<Self> {
        let place = view.place()?;
        let mut sums = view.object().sums();
        sums.truncate(MOST_SUMS);
        Some(Self::Lent {
            loan,
            segment: place.segment.0,
            segment_bytes: place.segment_bytes,
            offset_bytes: place.offset_bytes,
            sums,
        })
    }
}

/// Where an object of this length is, by what was said.
pub(super) fn place(segment: u64, segment_bytes: u64, offset_bytes: u64, len_bytes: u64) -> Place {
    Place {
        segment: SegmentNumber(segment),
        segment_bytes,
        offset_bytes,
        len_bytes,
    }
}

/// The next message, and the descriptor that came beside it. Must not be cancelled if there is to be another.
pub(super) async fn read<T: DeserializeOwned>(
    socket: &UnixStream,
) -> io::Result<(T, Option<OwnedFd>)> {
    let mut descriptor = None;
    let mut header = [0; HEADER_BYTES];
    fill(socket, &mut header, &mut descriptor).await?;
    let len = wire::frame_len(header).map_err(io::Error::other)?;
    if len > MOST_BYTES {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = vec![0; len];
    fill(socket, &mut bytes, &mut descriptor).await?;
    let message = wire::decode(&bytes).map_err(io::Error::other)?;
    Ok((message, descriptor))
}

async fn fill(
    socket: &UnixStream,
    bytes: &mut [u8],
    descriptor: &mut Option<OwnedFd>,
) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let room = &mut bytes[at..];
        let received = socket.async_io(Interest::READABLE, || wasmrun_store::receive(socket, room));
        let (len, beside) = received.await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += len;
        match beside {
            // We have too many files open: what needs it finds that it is not there.
            Beside::Nothing | Beside::Lost => {}
            Beside::Descriptor(it) if descriptor.is_none() => *descriptor = Some(it),
            Beside::Descriptor(_) => return Err(io::Error::other("two descriptors for one")),
        }
    }
    Ok(())
}

/// Writes a message.
pub(super) async fn write<T: Serialize>(out: &mut OwnedWriteHalf, message: &T) -> io::Result<()> {
    let bytes = wire::encode(message).map_err(io::Error::other)?;
    out.write_all(&bytes).await
}

/// Writes a message with the descriptor of a view's segment beside it. What fails before anything was written is
/// `Ok(false)`: another message may follow.
pub(super) async fn write_beside<T: Serialize>(
    out: &mut OwnedWriteHalf,
    message: &T,
    view: &View,
) -> io::Result<bool> {
    let bytes = wire::encode(message).map_err(io::Error::other)?;
    let socket = out.as_ref();
    let send = || wasmrun_store::send(socket, &bytes, view);
    let Ok(sent) = socket.async_io(Interest::WRITABLE, send).await else {
        return Ok(false);
    };
    out.write_all(&bytes[sent..]).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_and_giant_lengths_are_not_believed() {
        let (one, other) = UnixStream::pair().unwrap();
        let (_reading, mut out) = one.into_split();
        let ask = Say::Ask {
            object: ObjectId::of(DriverId::from_bytes([1; 16]).task(7), 0),
            tenant: TenantName::default(),
            len: u64::MAX,
        };
        write(&mut out, &ask).await.unwrap();
        let (read_back, beside): (Say, _) = read(&other).await.unwrap();
        assert_eq!(read_back, ask);
        assert!(beside.is_none());
        for len in [MOST_BYTES as u32 + 1, u32::MAX] {
            out.write_all(&len.to_le_bytes()).await.unwrap();
            assert!(read::<Say>(&other).await.is_err());
        }
        // Half a message, and then nothing.
        out.write_all(&[9, 0, 0, 0, 1]).await.unwrap();
        drop(out);
        assert!(read::<Say>(&other).await.is_err());
    }
}
