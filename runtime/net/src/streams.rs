//! Streams of bytes both ways with a peer, for what is neither a message nor a range of bytes.
//!
//! Owns their connections, which carry nothing else: a stream that nobody reads holds up no message and no object. Must not:
//! know what they carry. Who opens one says that with its first bytes; before those the other side hears nothing of it.
//!
//! Invariant: a peer has at most [`MOST_STREAMS`] open to us at a time, and waits with more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;

use crate::peer::{Peer, PeerCore};
use crate::wire::{ConnectError, Protocol};

/// How many streams one peer may have open to us.
const MOST_STREAMS: u32 = 1024;

/// A stream. Dropping it ends both of its ways.
#[derive(Debug)]
pub struct ByteStream {
    reader: RecvStream,
    writer: SendStream,
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.reader), cx, buffer)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.writer), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.writer), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.writer), cx)
    }
}

impl<P: Protocol> Peer<P> {
    /// Opens a stream. The peer hears of it when something is written.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn open(&self) -> Result<ByteStream, ConnectError> {
        let peer = self.core();
        let core = peer.core.upgrade().ok_or(ConnectError::Closed)?;
        let connection = peer.streams.get(&core, peer).await?;
        let opened = connection.open_bi().await;
        let (writer, reader) = opened.map_err(|_| ConnectError::Closed)?;
        Ok(ByteStream { reader, writer })
    }
}

/// Takes the streams of a peer's connection until it ends.
pub(crate) async fn serve(
    peer: Arc<PeerCore>,
    connection: Connection,
    take: impl Fn(ByteStream) -> BoxFuture<'static, ()> + Send + 'static,
) {
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(MOST_STREAMS));
    peer.streams.serving(&peer, connection.clone());
    let mut streams = JoinSet::new();
    loop {
        while streams.try_join_next().is_some() {}
        let Ok((writer, reader)) = connection.accept_bi().await else {
            return;
        };
        let stream = ByteStream { reader, writer };
        streams.spawn(take(stream));
    }
}
