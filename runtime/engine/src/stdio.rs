//! What a guest prints and reads.
//!
//! Output goes to whoever listens, in the order written, over a bounded channel: a slow listener
//! slows the guest down and nothing piles up in memory. Without a listener it is dropped, but
//! for the end of standard error, which tells why a guest failed. Either way the total is
//! limited.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{self, OwnedPermit};
use wasmrun_model::failure::{LimitHit, LimitKind};
use wasmtime_wasi::cli::{AsyncStdinStream, IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Which of its two outputs a guest wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Some bytes that a guest wrote, as it wrote them.
#[derive(Debug, Clone)]
pub struct OutputChunk {
    /// The listener's tag: which task wrote them, or started the one that did.
    pub tag: u64,
    /// Which output of this process's: of all that share a tag, one task's or actor's.
    pub writer: u64,
    /// Where it wrote them.
    pub source: OutputSource,
    /// What it wrote.
    pub bytes: Bytes,
}

/// Somebody who wants a task's output as it comes. Many tasks may share a channel.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Put on every chunk, to tell tasks apart.
    pub tag: u64,
    /// Where chunks go. While it is full, the guest waits.
    pub chunks: mpsc::Sender<OutputChunk>,
}

/// How much of the end of standard error is kept for error reports, in bytes.
const TAIL_BYTES: usize = 8 << 10;

/// The most a guest may write in one call, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Where the output of one task goes.
#[derive(Debug)]
pub struct TaskOutput {
    /// No two have the same.
    number: u64,
    limit: u64,
    written: AtomicU64,
    listener: Option<Listener>,
    stderr_tail: Mutex<VecDeque<u8>>,
}

impl TaskOutput {
    /// Output that goes to `listener`, if there is one, up to `limit` bytes in all.
    pub fn new(limit: u64, listener: Option<Listener>) -> Arc<Self> {
        static OUTPUTS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: OUTPUTS.fetch_add(1, Ordering::Relaxed),
            limit,
            written: AtomicU64::new(0),
            listener,
            stderr_tail: Mutex::default(),
        })
    }

    /// The end of what the guest wrote to standard error (8 KiB at most).
    pub fn stderr_tail(&self) -> String {
        let mut tail = self
            .stderr_tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }

    /// Accounts for bytes about to be written.
    fn account(&self, source: OutputSource, bytes: &[u8]) -> Result<(), LimitHit> {
        let before = self
            .written
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if before.saturating_add(bytes.len() as u64) > self.limit {
            let kind = LimitKind::Output;
            return Err(LimitHit {
                kind,
                limit: self.limit,
                wanted: None,
            });
        }
        if source == OutputSource::Stderr {
            let mut tail = self
                .stderr_tail
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
            let excess = tail.len().saturating_sub(TAIL_BYTES);
            tail.drain(..excess);
        }
        Ok(())
    }
}

type Reserving = Pin<Box<dyn Future<Output = Option<OwnedPermit<OutputChunk>>> + Send + Sync>>;

enum Slot {
    /// Nobody listens: writes succeed and go nowhere.
    Nobody,
    /// Not asked yet.
    Unasked,
    /// Waiting for the listener to take something.
    Waiting(Reserving),
    /// There is room for one chunk.
    Ready(OwnedPermit<OutputChunk>),
    /// The listener is gone.
    Closed,
}

/// One handle to one of a guest's outputs, for all versions of WASI.
pub(crate) struct Writer {
    output: Arc<TaskOutput>,
    source: OutputSource,
    slot: Slot,
}

impl Writer {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.slot = match &mut self.slot {
                Slot::Nobody | Slot::Ready(_) | Slot::Closed => return Poll::Ready(()),
                Slot::Unasked => match &self.output.listener {
                    None => Slot::Nobody,
                    Some(listener) => match listener.chunks.clone().try_reserve_owned() {
                        Ok(permit) => Slot::Ready(permit),
                        Err(mpsc::error::TrySendError::Closed(_)) => Slot::Closed,
                        Err(mpsc::error::TrySendError::Full(chunks)) => {
                            Slot::Waiting(Box::pin(async { chunks.reserve_owned().await.ok() }))
                        }
                    },
                },
                Slot::Waiting(reserving) => match ready!(reserving.as_mut().poll(cx)) {
                    Some(permit) => Slot::Ready(permit),
                    None => Slot::Closed,
                },
            };
        }
    }

    /// Writes where there is room; `false` if the listener is gone.
    fn put(&mut self, bytes: Bytes) -> Result<bool, LimitHit> {
        self.output.account(self.source, &bytes)?;
        match std::mem::replace(&mut self.slot, Slot::Unasked) {
            Slot::Ready(permit) => {
                if !bytes.is_empty() {
                    let tag = self
                        .output
                        .listener
                        .as_ref()
                        .map_or(0, |listener| listener.tag);
                    permit.send(OutputChunk {
                        tag,
                        writer: self.output.number,
                        source: self.source,
                        bytes,
                    });
                }
            }
            Slot::Nobody => self.slot = Slot::Nobody,
            Slot::Closed => {
                self.slot = Slot::Closed;
                return Ok(false);
            }
            Slot::Unasked | Slot::Waiting(_) => unreachable!("written without room"),
        }
        Ok(true)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.poll_room(cx)).await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        match self.put(bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StreamError::Closed),
            Err(hit) => Err(StreamError::Trap(hit.into())),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.poll_room(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Pending => Ok(0),
            Poll::Ready(()) if matches!(self.slot, Slot::Closed) => Err(StreamError::Closed),
            Poll::Ready(()) => Ok(CHUNK_BYTES),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx));
        let bytes = &bytes[..bytes.len().min(CHUNK_BYTES)];
        Poll::Ready(match self.put(Bytes::copy_from_slice(bytes)) {
            Ok(true) => Ok(bytes.len()),
            Ok(false) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(hit) => Err(io::Error::other(hit)),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Makes [`Writer`]s for one of a guest's outputs.
pub(crate) struct Stream {
    pub(crate) output: Arc<TaskOutput>,
    pub(crate) source: OutputSource,
}

impl Stream {
    fn writer(&self) -> Writer {
        Writer {
            output: self.output.clone(),
            source: self.source,
            slot: Slot::Unasked,
        }
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.writer())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.writer())
    }
}

/// What a guest reads from standard input.
#[derive(Debug, Default)]
pub enum Input {
    /// Nothing: the end comes at once.
    #[default]
    Empty,
    /// These bytes. Cheap to give to many tasks.
    Bytes(Bytes),
    /// Whatever arrives, until the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
}

impl Input {
    /// As a stream for WASI; `None` where the default (empty) will do.
    pub(crate) fn into_stream(self) -> Option<Box<dyn StdinStream + Sync>> {
        match self {
            Self::Empty => None,
            Self::Bytes(bytes) => Some(Box::new(MemoryInputPipe::new(bytes))),
            Self::Stream(chunks) => {
                let reader = ChunkReader {
                    chunks,
                    rest: Bytes::new(),
                };
                Some(Box::new(AsyncStdinStream::new(reader)))
            }
        }
    }
}

struct ChunkReader {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl AsyncRead for ChunkReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.chunks.poll_recv(cx)) {
                Some(chunk) => self.rest = chunk,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(n));
        Poll::Ready(Ok(()))
    }
}
