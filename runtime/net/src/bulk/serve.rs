//! The sending side of bulk streams.
//!
//! Owns the streams that a peer has opened. Invariant: a range is sent whole or its stream is reset, so a
//! reader never takes a part for the whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BulkRefusal, Range};
use crate::peer::{Core, PeerCore};
use crate::transport::BULK_WINDOW;
use crate::wire::Close;
use crate::wire::frame::FrameReader;

/// Gives the bytes that peers ask for: a service without its types.
pub(crate) trait Source: Send + Sync {
    /// Sends a range, and gives the sender back.
    fn bulk(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
        range: Range,
        to: BulkSender,
    ) -> BoxFuture<'static, (BulkSender, Result<(), BulkRefusal>)>;
}

/// Serves the bulk connections of all peers.
pub(crate) struct BulkServer {
    core: Arc<Core>,
    source: Arc<dyn Source>,
    /// A permit for each stream that may be served at a time.
    places: Arc<Semaphore>,
}

/// Takes the bytes of one range, in order.
#[derive(Debug)]
pub struct BulkSender {
    stream: SendStream,
    left: u64,
    is_begun: bool,
    sum: Sum,
    stall: Duration,
}

/// The checksum of what is sent.
#[derive(Debug)]
enum Sum {
    /// As it is found on the way.
    Counted(crc32fast::Hasher),
    /// As it ought to be.
    Known(u32),
}

/// Why bytes could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BulkSendError {
    /// The other side wants no more, or is gone.
    #[error("the peer does not want the rest, or is gone")]
    Stopped,
    /// The other side does not read.
    #[error("the peer has read nothing for {}s: the stream is given up", after.as_secs())]
    Stalled {
        /// How long it was waited for.
        after: Duration,
    },
    /// More than the range has.
    #[error("{bytes} bytes more than were asked for: send exactly the range")]
    TooMany {
        /// How many too many.
        bytes: u64,
    },
}

impl BulkSender {
    /// The checksum that all bytes of the range ought to have, if that is known: then the peer finds out whether
    /// they still are what they were. If nobody says so it is counted as the bytes are sent.
    pub fn set_sum(&mut self, sum: u32) {
        self.sum = Sum::Known(sum);
    }

    /// The checksum as it was said, or of what was given to be sent so far.
    pub fn sum(&self) -> u32 {
        match &self.sum {
            Sum::Counted(hasher) => hasher.clone().finalize(),
            Sum::Known(sum) => *sum,
        }
    }

    /// Sends bytes without copying them; returns when they are under way, which may be before they have
    /// arrived.
    ///
    /// # Errors
    /// When the peer does not want them, does not read, or they are more than asked for.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), BulkSendError> {
        let len = bytes.len() as u64;
        if len > self.left {
            let bytes = len - self.left;
            return Err(BulkSendError::TooMany { bytes });
        }
        self.left -= len;
        if let Sum::Counted(hasher) = &mut self.sum {
            hasher.update(&bytes);
        }
        self.write_whole(bytes).await
    }

    async fn write_whole(&mut self, bytes: Bytes) -> Result<(), BulkSendError> {
        let mut pieces = [Bytes::new(), bytes];
        if !std::mem::replace(&mut self.is_begun, true) {
            pieces[0] = Bytes::from_static(&[0]);
        }
        let mut rest = &mut pieces[..];
        if rest[0].is_empty() {
            rest = &mut rest[1..];
        }
        while !rest.is_empty() && !rest[0].is_empty() {
            let written = timeout(self.stall, self.stream.write_chunks(rest)).await;
            let written = written.map_err(|_| BulkSendError::Stalled { after: self.stall })?;
            let written = written.map_err(|_| BulkSendError::Stopped)?;
            rest = &mut rest[written.chunks..];
        }
        Ok(())
    }

    /// Sends what comes after the bytes.
    async fn write_sum(&mut self) -> Result<(), BulkSendError> {
        let sum = Bytes::copy_from_slice(&self.sum().to_le_bytes());
        self.write_whole(sum).await
    }
}

impl BulkServer {
    pub(crate) fn new(core: Arc<Core>, source: Arc<dyn Source>) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(core.limits.bulk_serving));
        Arc::new(Self {
            core,
            source,
            places,
        })
    }

    /// Serves a peer's bulk connection until it ends.
    pub(crate) async fn serve(self: Arc<Self>, peer: Arc<PeerCore>, connection: Connection) {
        let limits = &self.core.limits;
        connection.set_send_window(u64::from(BULK_WINDOW));
        connection.set_max_concurrent_bi_streams(VarInt::from_u32(limits.bulk_streams));
        peer.bulk.serving(&peer, connection.clone());
        let mut streams = JoinSet::new();
        loop {
            while streams.try_join_next().is_some() {}
            let Ok((writer, reader)) = connection.accept_bi().await else {
                return;
            };
            let Ok(place) = self.places.clone().acquire_owned().await else {
                return;
            };
            let (server, peer) = (self.clone(), peer.clone());
            let connection = connection.clone();
            streams.spawn(async move {
                if server.serve_one(peer, writer, reader).await.is_none() {
                    connection.close(Close::Protocol.code(), b"");
                }
                drop(place);
            });
        }
    }

    /// `None` if the peer does not know the protocol.
    async fn serve_one(
        &self,
        peer: Arc<PeerCore>,
        writer: SendStream,
        reader: RecvStream,
    ) -> Option<()> {
        let Core { limits, timing, .. } = &*self.core;
        let mut reader = FrameReader::new(reader, limits.message_bytes);
        let Ok(Ok(request)) = timeout(timing.handshake, reader.one()).await else {
            return None;
        };
        let (range, body) = postcard::take_from_bytes::<Range>(&request).ok()?;
        let body = request.slice_ref(body);
        let sender = BulkSender {
            stream: writer,
            left: range.len,
            is_begun: false,
            sum: Sum::Counted(crc32fast::Hasher::new()),
            stall: timing.bulk_stall,
        };
        let stopped = sender.stream.stopped();
        let (mut sender, sent) = tokio::select! {
            sent = self.source.bulk(peer.clone(), body, range, sender) => sent,
            // The sender is dropped with the service's future, and that resets the stream.
            _ = stopped => return Some(()),
        };
        match sent {
            Ok(()) if sender.left == 0 => {
                // If it cannot be sent, the side that asked notices by itself.
                let _ = sender.write_sum().await;
            }
            Err(why) if !sender.is_begun => {
                let _ = sender
                    .stream
                    .write_chunk(Bytes::copy_from_slice(&[why.code()]))
                    .await;
            }
            // Part of it is there: only a reset tells it from the whole.
            Ok(()) | Err(_) => {
                tracing::warn!(peer = %peer.id, left = sender.left, "a bulk stream was not sent whole");
                let _ = sender
                    .stream
                    .reset(VarInt::from_u32(u32::from(BulkRefusal::Failed.code())));
                return Some(());
            }
        }
        let _ = sender.stream.finish();
        // Until the other side has it all; a stream that is dropped before would be reset.
        let _ = timeout(timing.bulk_stall, sender.stream.stopped()).await;
        Some(())
    }
}
