//! What a guest prints.
//!
//! Output goes to whoever listens, in the order written, over a bounded channel: a slow listener
//! slows the guest down and nothing piles up in memory. Without a listener it is dropped, but
//! for the end of standard error, which tells why a guest failed. Either way the total is
//! limited.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, error::TrySendError};
use wasmrun_model::failure::{LimitHit, LimitKind};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use crate::listener::{Listener, OutputChunk, OutputSource};

/// How much of the end of standard error is kept for error reports, in bytes.
const TAIL_BYTES: usize = 8 << 10;

/// The most a guest may write in one call, in bytes.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Where the output of one task goes.
#[derive(Debug)]
pub struct TaskOutput {
    /// No two have the same.
    number: u64,
    attempt: u32,
    limit: u64,
    written: AtomicU64,
    listener: Option<Listener>,
    stderr_tail: Mutex<VecDeque<u8>>,
    waiting: Mutex<Waiting>,
}

impl TaskOutput {
    /// Output of a first attempt or of an actor, that goes to `listener`, if there is one, up to `limit` bytes in all.
    pub fn new(limit: u64, listener: Option<Listener>) -> Arc<Self> {
        Self::of_attempt(1, limit, listener)
    }

    /// The same, of this attempt.
    pub fn of_attempt(attempt: u32, limit: u64, listener: Option<Listener>) -> Arc<Self> {
        static OUTPUTS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: OUTPUTS.fetch_add(1, Ordering::Relaxed),
            attempt,
            limit,
            written: AtomicU64::new(0),
            listener,
            stderr_tail: Mutex::default(),
            waiting: Mutex::default(),
        })
    }

    /// The end of what the guest wrote to standard error (8 KiB at most).
    pub fn stderr_tail(&self) -> String {
        let mut tail = lock(&self.stderr_tail);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }

    /// The limit, if the guest tried to write more than that.
    pub(crate) fn hit(&self) -> Option<LimitHit> {
        let is_over = self.written.load(Ordering::Relaxed) > self.limit;
        is_over.then_some(LimitHit {
            kind: LimitKind::Output,
            limit: self.limit,
            wanted: None,
        })
    }

    /// Accounts for bytes about to be written.
    fn account(&self, source: OutputSource, bytes: &[u8]) -> Result<(), LimitHit> {
        self.written
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(hit) = self.hit() {
            return Err(hit);
        }
        if source == OutputSource::Stderr {
            self.remember(bytes);
        }
        Ok(())
    }

    fn remember(&self, bytes: &[u8]) {
        let mut tail = lock(&self.stderr_tail);
        tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let excess = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..excess);
    }

    /// Adds a line of the host's to standard error. It counts for no limit, and nobody waits: a listener without room
    /// does not get it, its log does.
    pub(crate) fn say(&self, line: &str) {
        self.remember(line.as_bytes());
        if let Some(listener) = &self.listener {
            let chunk = OutputChunk {
                tag: listener.tag,
                writer: self.number,
                attempt: self.attempt,
                source: OutputSource::Stderr,
                bytes: Bytes::copy_from_slice(line.as_bytes()),
            };
            listener.keep(&chunk);
            let _ = listener.chunks.try_send(chunk);
        }
    }
}

/// Who waits for room, of one task: at most one place in the listener's queue is theirs, and what comes of it is
/// that they look once more.
#[derive(Debug, Default)]
struct Waiting {
    /// By handle.
    wakers: BTreeMap<u64, Waker>,
    /// Stands in the queue for all of them.
    usher: Option<AbortOnDropJoinHandle<()>>,
}

impl TaskOutput {
    /// Wakes this handle when there was room. Nothing of the room is taken: a guest may never write.
    fn wait_for_room(self: &Arc<Self>, handle: u64, listener: &Listener, waker: &Waker) {
        let mut waiting = lock(&self.waiting);
        waiting.wakers.insert(handle, waker.clone());
        if waiting.usher.is_some() {
            return;
        }
        let (chunks, output) = (listener.chunks.clone(), Arc::downgrade(self));
        waiting.usher = Some(wasmtime_wasi::runtime::spawn(async move {
            drop(chunks.reserve_owned().await);
            if let Some(output) = output.upgrade() {
                let mut waiting = lock(&output.waiting);
                // It ends here, and who waits again gets another one.
                waiting.usher = None;
                let wakers = std::mem::take(&mut waiting.wakers);
                drop(waiting);
                wakers.into_values().for_each(Waker::wake);
            }
        }));
    }

    /// Whether this handle still waits.
    fn is_waiting(&self, handle: u64) -> bool {
        lock(&self.waiting).wakers.contains_key(&handle)
    }

    fn waits_no_more(&self, handle: u64) {
        lock(&self.waiting).wakers.remove(&handle);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why bytes were not written.
enum Unwritten {
    /// The listener has no room for them now.
    Full(Bytes),
    /// The listener is gone.
    Closed,
    /// They are more than the task may write.
    Limit(LimitHit),
}

impl From<Unwritten> for StreamError {
    fn from(why: Unwritten) -> Self {
        match why {
            Unwritten::Full(bytes) => Self::Trap(NoRoom(bytes).into()),
            Unwritten::Closed => Self::Closed,
            Unwritten::Limit(hit) => Self::Trap(hit.into()),
        }
    }
}

/// The place for a chunk in a listener's channel: none is needed where what is written is only kept.
fn place<T>(listener: &Listener, place: Option<T>) -> Result<Option<T>, Unwritten> {
    match place {
        None if !listener.is_kept() => Err(Unwritten::Closed),
        place => Ok(place),
    }
}

/// Bytes that a guest may write, and for which the room has gone to somebody else since it asked. Whoever gets this
/// from a [`Writer`] gives them to its `blocking_write_and_flush`: see `host::streams`.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for {} bytes of output now", .0.len())]
pub(crate) struct NoRoom(pub(crate) Bytes);

/// One handle to one of a guest's outputs, for all versions of WASI.
///
/// Invariant: it has no room while the guest is not in a call that writes. That it has asked for some is a number here,
/// and takes nothing from other handles or tasks.
pub(crate) struct Writer {
    output: Arc<TaskOutput>,
    source: OutputSource,
    /// No two of a process have the same.
    handle: u64,
    /// How many bytes the next write may have.
    permitted: usize,
    /// It has waited for room, and there was some: its next write need not wait for the same again.
    has_waited: bool,
}

impl Writer {
    fn new(output: Arc<TaskOutput>, source: OutputSource) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        Self {
            output,
            source,
            handle: HANDLES.fetch_add(1, Ordering::Relaxed),
            permitted: 0,
            has_waited: false,
        }
    }

    fn is_closed(&self) -> bool {
        let listener = self.output.listener.as_ref();
        listener.is_some_and(Listener::is_closed)
    }

    /// Whether a write may begin now.
    fn may_begin(&self) -> bool {
        let listener = self.output.listener.as_ref();
        let has_room = |it: &Listener| it.chunks.capacity() > 0 || it.chunks.is_closed();
        self.has_waited || listener.is_none_or(has_room)
    }

    /// Waits until a write may begin, or the listener is gone.
    fn poll_room(&mut self, cx: &mut Context<'_>, is_waiting: &mut bool) -> Poll<()> {
        if *is_waiting && !self.output.is_waiting(self.handle) {
            *is_waiting = false;
            self.has_waited = true;
        }
        let Some(listener) = &self.output.listener else {
            return Poll::Ready(());
        };
        if self.is_closed() || self.may_begin() {
            return Poll::Ready(());
        }
        *is_waiting = true;
        self.output.wait_for_room(self.handle, listener, cx.waker());
        Poll::Pending
    }

    fn chunk(&self, listener: &Listener, bytes: Bytes) -> OutputChunk {
        OutputChunk {
            tag: listener.tag,
            writer: self.output.number,
            attempt: self.output.attempt,
            source: self.source,
            bytes,
        }
    }

    /// Writes, if there is room.
    fn put(&mut self, bytes: Bytes) -> Result<(), Unwritten> {
        if bytes.is_empty() {
            return Ok(());
        }
        let room = match &self.output.listener {
            None => None,
            Some(listener) => match listener.chunks.try_reserve() {
                Ok(room) => Some((listener, Some(room))),
                Err(TrySendError::Full(())) => return Err(Unwritten::Full(bytes)),
                Err(TrySendError::Closed(())) => Some((listener, place(listener, None)?)),
            },
        };
        self.pass_on(bytes, room)?;
        self.has_waited = false;
        Ok(())
    }

    /// Gives bytes to who listens, in a place that they have there.
    fn pass_on(
        &self,
        bytes: Bytes,
        to: Option<(&Listener, Option<mpsc::Permit<'_, OutputChunk>>)>,
    ) -> Result<(), Unwritten> {
        let accounted = self.output.account(self.source, &bytes);
        accounted.map_err(Unwritten::Limit)?;
        if let Some((listener, room)) = to {
            let chunk = self.chunk(listener, bytes);
            listener.keep(&chunk);
            if let Some(room) = room {
                room.send(chunk);
            }
        }
        Ok(())
    }

    /// Writes, as soon as there is room: who came first is first.
    async fn put_soon(&mut self, bytes: Bytes) -> Result<(), Unwritten> {
        let bytes = match self.put(bytes) {
            Err(Unwritten::Full(bytes)) => bytes,
            other => return other,
        };
        let Some(listener) = &self.output.listener else {
            unreachable!("there is room for what nobody hears")
        };
        let room = place(listener, listener.chunks.reserve().await.ok())?;
        self.pass_on(bytes, Some((listener, room)))?;
        self.has_waited = false;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.output.waits_no_more(self.handle);
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {
        let mut is_waiting = false;
        std::future::poll_fn(|cx| self.poll_room(cx, &mut is_waiting)).await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let permitted = std::mem::take(&mut self.permitted);
        if self.is_closed() {
            return Err(StreamError::Closed);
        }
        if bytes.len() > permitted {
            return Err(StreamError::trap(&format!(
                "it wrote {} bytes to its {} where `check-write` had permitted {permitted}",
                bytes.len(),
                self.source.name(),
            )));
        }
        Ok(self.put(bytes)?)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.permitted = 0;
        if self.is_closed() {
            return Err(StreamError::Closed);
        }
        if self.may_begin() {
            self.permitted = CHUNK_BYTES;
        }
        Ok(self.permitted)
    }

    fn write_zeroes(&mut self, count: usize) -> StreamResult<()> {
        // More is refused, and needs no memory here.
        let count = count.min(CHUNK_BYTES + 1);
        self.write(vec![0; count].into())
    }

    async fn write_ready(&mut self) -> StreamResult<usize> {
        loop {
            self.ready().await;
            match self.check_write()? {
                // Somebody else was faster.
                0 => {}
                permitted => return Ok(permitted),
            }
        }
    }

    async fn blocking_write_and_flush(&mut self, mut bytes: Bytes) -> StreamResult<()> {
        self.permitted = 0;
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            self.put_soon(chunk).await?;
        }
        Ok(())
    }
}

/// A [`Writer`] as a stream of WASI 0.3.
struct Piped {
    writer: Writer,
    is_waiting: bool,
}

impl AsyncWrite for Piped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { writer, is_waiting } = &mut *self;
        loop {
            ready!(writer.poll_room(cx, is_waiting));
            let bytes = &bytes[..bytes.len().min(CHUNK_BYTES)];
            return Poll::Ready(match writer.put(Bytes::copy_from_slice(bytes)) {
                Ok(()) => Ok(bytes.len()),
                Err(Unwritten::Full(_)) => {
                    // Somebody else was faster.
                    writer.has_waited = false;
                    continue;
                }
                Err(Unwritten::Closed) => Err(io::ErrorKind::BrokenPipe.into()),
                // The task fails with it when the call is over: see `TaskOutput::hit`.
                Err(Unwritten::Limit(hit)) => Err(io::Error::other(hit)),
            });
        }
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
        Writer::new(self.output.clone(), self.source)
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(Piped {
            writer: self.writer(),
            is_waiting: false,
        })
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.writer())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::listener::OutputLog;

    fn output(chunks: mpsc::Sender<OutputChunk>) -> Arc<TaskOutput> {
        TaskOutput::new(1 << 30, Some(Listener::new(0, chunks)))
    }

    fn writer(output: &Arc<TaskOutput>) -> Writer {
        Writer::new(output.clone(), OutputSource::Stdout)
    }

    fn piped(output: &Arc<TaskOutput>) -> Piped {
        Piped {
            writer: writer(output),
            is_waiting: false,
        }
    }

    async fn ask(pipe: &mut Piped) -> Poll<io::Result<usize>> {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *pipe).poll_write(cx, b"x"))).await
    }

    fn in_tokio(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn who_waits_and_does_not_look_takes_no_room() {
        in_tokio(async {
            let (chunks, mut listener) = mpsc::channel(2);
            let idle = output(chunks.clone());
            let mut full = writer(&idle);
            for _ in 0..2 {
                assert!(full.put("full".into()).is_ok());
            }
            let mut pipes: Vec<Piped> = (0..100).map(|_| piped(&idle)).collect();
            for pipe in &mut pipes {
                assert!(ask(pipe).await.is_pending());
            }
            let other = output(chunks);
            for _ in 0..100 {
                // The listener takes one, and another task has its room.
                listener.recv().await.unwrap();
                writer(&other)
                    .blocking_write_and_flush("x".into())
                    .await
                    .unwrap();
            }
            // It was awake all the time, and nobody looked: now somebody does.
            listener.recv().await.unwrap();
            assert!(matches!(
                ask(pipes.last_mut().unwrap()).await,
                Poll::Ready(Ok(1))
            ));
        });
    }

    #[test]
    fn all_who_wait_hear_that_there_is_room_or_nobody_to_listen() {
        in_tokio(async {
            let (chunks, mut listener) = mpsc::channel(1);
            let output = output(chunks);
            let mut writers: Vec<Writer> = (0..3).map(|_| writer(&output)).collect();
            assert!(writers[0].put("full".into()).is_ok());
            assert_eq!(writers[1].check_write().unwrap(), 0);
            let [_, one, other] = &mut writers[..] else {
                unreachable!()
            };
            let ((), (), _) = tokio::join!(one.ready(), other.ready(), listener.recv());
            // Both may write now: who comes second waits until the first one's is taken.
            assert_eq!(one.check_write().unwrap(), CHUNK_BYTES);
            assert_eq!(other.check_write().unwrap(), CHUNK_BYTES);
            assert!(one.write("one".into()).is_ok());
            let Err(StreamError::Trap(error)) = other.write("two".into()) else {
                panic!("there is no room")
            };
            let NoRoom(bytes) = error.downcast().unwrap();
            let (written, _) = tokio::join!(other.blocking_write_and_flush(bytes), listener.recv());
            written.unwrap();
            drop(listener);
            one.ready().await;
            assert!(matches!(one.check_write(), Err(StreamError::Closed)));
            assert!(matches!(other.write("x".into()), Err(StreamError::Closed)));
        });
    }

    /// How often something was kept.
    #[derive(Debug, Default)]
    struct Count(AtomicU64);

    impl OutputLog for Count {
        fn keep(&self, _: &OutputChunk) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_kept_is_written_also_when_nobody_listens() {
        in_tokio(async {
            let (log, (chunks, mut heard)) = (Arc::<Count>::default(), mpsc::channel(1));
            let listener = Listener::with_log(log.clone(), Some(Listener::new(7, chunks)));
            let output = TaskOutput::of_attempt(2, 1 << 30, Some(listener));
            let mut writer = writer(&output);
            assert!(writer.put("heard".into()).is_ok());
            let chunk = heard.recv().await.unwrap();
            assert_eq!((chunk.tag, chunk.attempt), (7, 2));
            assert!(writer.put("full".into()).is_ok());
            // What waits for room is kept when there is some.
            assert!(matches!(writer.put("x".into()), Err(Unwritten::Full(_))));
            drop(heard);
            assert_eq!(writer.check_write().unwrap(), CHUNK_BYTES);
            assert!(writer.write("x".into()).is_ok());
            writer.blocking_write_and_flush("y".into()).await.unwrap();
            assert_eq!(log.0.load(Ordering::Relaxed), 4);
            let alone = Listener::with_log(log.clone(), None);
            let output = TaskOutput::new(1 << 30, Some(alone));
            assert!(self::writer(&output).put("alone".into()).is_ok());
            assert_eq!(log.0.load(Ordering::Relaxed), 5);
        });
    }
}
