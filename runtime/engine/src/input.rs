//! What a guest reads from standard input.
//!
//! A read that fails is not the end: the guest hears of it, and of the end only when somebody has said that it is there.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use wasmtime_wasi::cli::{IsTerminal, StdinStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

use crate::http_answer::HttpExchange;
use crate::stdio::lock;

/// What a guest reads from standard input.
#[derive(Debug, Default)]
pub enum Input {
    /// Nothing: the end comes at once.
    #[default]
    Empty,
    /// These bytes. Cheap to give to many tasks.
    Bytes(Bytes),
    /// Whatever arrives.
    Stream(Intake),
    /// A request to answer, and nothing on standard input.
    Http(Box<HttpExchange>),
}

/// Room for so many chunks between who has what a guest reads as it comes, and the guest.
pub fn intake(chunks: usize) -> (Feed, Intake) {
    let (sender, arriving) = mpsc::channel(chunks);
    let (ask, asked) = mpsc::channel(1);
    let feed = Feed {
        chunks: sender,
        asked: Arc::new(tokio::sync::Mutex::new(asked)),
    };
    (
        feed,
        Intake {
            chunks: arriving,
            ask,
        },
    )
}

/// Where a guest's standard input comes in.
#[derive(Debug)]
pub struct Intake {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    /// Says that the guest wants what is not there yet.
    ask: mpsc::Sender<()>,
}

impl Intake {
    /// The next chunk, which is asked for.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Ok(chunk) = self.chunks.try_recv() {
            return Some(chunk);
        }
        // One who has been told and has not looked yet needs no more.
        let _ = self.ask.try_send(());
        self.chunks.recv().await
    }
}

/// What gives a guest its standard input. What is read nowhere is best left where it is: wait for
/// [`Feed::wanted`] before taking more from whom it belongs to.
#[derive(Debug, Clone)]
pub struct Feed {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    asked: Arc<tokio::sync::Mutex<mpsc::Receiver<()>>>,
}

impl Feed {
    /// Waits until the guest wants more than has come. False once it reads no more.
    pub async fn wanted(&self) -> bool {
        self.asked.lock().await.recv().await.is_some()
    }

    /// As [`Feed::wanted`], for a thread without a runtime.
    pub fn blocking_wanted(&self) -> bool {
        self.asked.blocking_lock().blocking_recv().is_some()
    }

    /// Gives it the next chunk, once there is room: bytes that are none are the end, an error is a read that fails, and
    /// nothing comes behind either. A feed that is dropped without either is a read that failed. False if the guest
    /// reads no more.
    pub async fn send(&self, read: io::Result<Bytes>) -> bool {
        self.chunks.send(read).await.is_ok()
    }

    /// Whether the guest reads no more, or has ended.
    pub fn is_closed(&self) -> bool {
        self.chunks.is_closed()
    }

    /// As [`Feed::send`], for a thread without a runtime.
    pub fn blocking_send(&self, read: io::Result<Bytes>) -> bool {
        self.chunks.blocking_send(read).is_ok()
    }
}

impl Input {
    /// As a stream for WASI; `None` where the default (empty) will do.
    pub(crate) fn into_stream(self) -> Option<Box<dyn StdinStream + Sync>> {
        match self {
            Self::Empty | Self::Http(_) => None,
            Self::Bytes(bytes) => Some(Box::new(MemoryInputPipe::new(bytes))),
            Self::Stream(intake) => Some(Box::new(Stdin(Arc::new(Source::new(intake))))),
        }
    }
}

/// What all handles of a guest's standard input have in common.
struct Source {
    arrived: Mutex<Arrived>,
    waiting: Arc<Waiting>,
}

struct Arrived {
    intake: Intake,
    /// Whether more was asked for, and has not come yet.
    has_asked: bool,
    rest: Bytes,
    end: Option<End>,
}

/// How the input ended.
#[derive(Clone, Copy)]
enum End {
    Whole,
    Failed(io::ErrorKind, Option<i32>),
}

/// The handles that wait for more, each by its number.
#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, Waker>>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *lock(&self.0));
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Source {
    fn new(intake: Intake) -> Self {
        let arrived = Arrived {
            intake,
            has_asked: false,
            rest: Bytes::new(),
            end: None,
        };
        Self {
            arrived: Mutex::new(arrived),
            waiting: Arc::default(),
        }
    }

    fn reader(self: &Arc<Self>) -> Reader {
        static READERS: AtomicU64 = AtomicU64::new(0);
        Reader {
            source: self.clone(),
            number: READERS.fetch_add(1, Ordering::Relaxed),
            has_failed: false,
        }
    }
}

/// One handle to a guest's standard input, for all versions of WASI.
struct Reader {
    source: Arc<Source>,
    number: u64,
    /// Whether it has told of a read that failed: after that a stream is closed.
    has_failed: bool,
}

impl Reader {
    /// Takes up to `most` bytes, none at the end. Whoever waits for more is woken if `cx` is given.
    fn poll_take(&mut self, cx: Option<&Context<'_>>, most: usize) -> Poll<io::Result<Bytes>> {
        let Source { arrived, waiting } = &*self.source;
        let arrived = &mut *lock(arrived);
        while arrived.rest.is_empty() && arrived.end.is_none() {
            if let Some(cx) = cx {
                lock(&waiting.0).insert(self.number, cx.waker().clone());
            }
            // A channel knows one who waits, and there may be many.
            let all = Waker::from(waiting.clone());
            let polled = arrived
                .intake
                .chunks
                .poll_recv(&mut Context::from_waker(&all));
            if polled.is_pending() && !arrived.has_asked {
                arrived.has_asked = true;
                let _ = arrived.intake.ask.try_send(());
            }
            let chunk = ready!(polled);
            arrived.has_asked = false;
            match chunk {
                Some(Ok(bytes)) if bytes.is_empty() => arrived.end = Some(End::Whole),
                Some(Ok(bytes)) => arrived.rest = bytes,
                Some(Err(error)) => {
                    arrived.end = Some(End::Failed(error.kind(), error.raw_os_error()));
                }
                None => arrived.end = Some(End::Failed(io::ErrorKind::ConnectionAborted, None)),
            }
            all.wake();
        }
        let taken = arrived.rest.split_to(most.min(arrived.rest.len()));
        Poll::Ready(match arrived.end {
            Some(End::Failed(kind, errno))
                if arrived.rest.is_empty() && taken.is_empty() && !self.has_failed && most > 0 =>
            {
                self.has_failed = true;
                Err(errno.map_or(kind.into(), io::Error::from_raw_os_error))
            }
            _ => Ok(taken),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.source.waiting.0).remove(&self.number);
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {
        // To take nothing waits for something to be there.
        let _ = std::future::poll_fn(|cx| self.poll_take(Some(cx), 0)).await;
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        match self.poll_take(None, size) {
            Poll::Pending => Ok(Bytes::new()),
            Poll::Ready(Ok(bytes)) if bytes.is_empty() && size > 0 => Err(StreamError::Closed),
            Poll::Ready(Ok(bytes)) => Ok(bytes),
            Poll::Ready(Err(error)) => Err(StreamError::LastOperationFailed(error.into())),
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.poll_take(Some(cx), buffer.remaining()))?;
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

/// Makes [`Reader`]s.
struct Stdin(Arc<Source>);

impl IsTerminal for Stdin {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stdin {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(self.0.reader())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.0.reader())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdin() -> (Feed, Arc<Source>) {
        let (feed, intake) = intake(4);
        (feed, Arc::new(Source::new(intake)))
    }

    #[test]
    fn nothing_is_asked_for_that_nobody_reads() {
        let (feed, source) = stdin();
        let is_asked = || feed.asked.try_lock().unwrap().try_recv().is_ok();
        let mut reader = source.reader();
        assert!(!is_asked());
        for _ in 0..3 {
            assert!(reader.read(9).unwrap().is_empty());
        }
        assert!(is_asked() && !is_asked(), "once, however often it looks");
        feed.chunks.try_send(Ok("hello".into())).unwrap();
        assert_eq!(reader.read(4).unwrap(), "hell");
        assert_eq!(reader.read(4).unwrap(), "o");
        assert!(!is_asked(), "that was there");
        assert!(reader.read(4).unwrap().is_empty());
        assert!(is_asked());
        assert!(!feed.is_closed());
        drop((reader, source));
        assert!(feed.is_closed());
        assert!(!feed.blocking_wanted(), "nobody reads any more");
    }

    #[test]
    fn the_end_is_what_is_said_to_be_it() {
        let (sender, source) = stdin();
        let mut reader = source.reader();
        assert!(reader.read(9).unwrap().is_empty(), "nothing is there yet");
        sender.chunks.try_send(Ok("hello".into())).unwrap();
        sender.chunks.try_send(Ok(Bytes::new())).unwrap();
        drop(sender);
        assert_eq!(reader.read(4).unwrap(), "hell");
        assert_eq!(source.reader().read(4).unwrap(), "o");
        assert!(matches!(reader.read(4), Err(StreamError::Closed)));
    }

    #[test]
    fn what_fails_is_not_the_end_for_any_handle() {
        let (sender, source) = stdin();
        let mut reader = source.reader();
        sender.chunks.try_send(Ok("a".into())).unwrap();
        sender
            .chunks
            .try_send(Err(io::Error::from_raw_os_error(21)))
            .unwrap();
        assert_eq!(reader.read(4).unwrap(), "a");
        for mut reader in [reader, source.reader()] {
            let Err(StreamError::LastOperationFailed(error)) = reader.read(4) else {
                panic!("the read has failed")
            };
            let error: io::Error = error.downcast().unwrap();
            assert_eq!(error.raw_os_error(), Some(21));
            assert!(matches!(reader.read(4), Err(StreamError::Closed)));
        }
        let (sender, source) = stdin();
        drop(sender);
        let read = source.reader().read(4);
        assert!(matches!(read, Err(StreamError::LastOperationFailed(_))));
    }

    #[test]
    fn all_handles_that_wait_are_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let (sender, source) = stdin();
            let (mut one, mut other) = (source.reader(), source.reader());
            // The last who waits leaves, and the first one hears all the same.
            let first = one.ready();
            let second = other.ready();
            tokio::pin!(first);
            {
                tokio::pin!(second);
                std::future::poll_fn(|cx| {
                    assert!(first.as_mut().poll(cx).is_pending());
                    assert!(second.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            drop(other);
            assert!(sender.send(Ok("x".into())).await);
            first.await;
        });
    }
}
