//! One connection: who waits for which answer, what is to be written, what was dropped.
//!
//! Owns the two tasks that read and write; they end with the connection. Must not: know what the
//! requests mean.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, ObjectId};
use wasmrun_model::wire::{
    self, Address, Frame, FrameError, HEADER_BYTES, Hello, MAGIC, PROTOCOL, Request, Response,
    Welcome,
};

use crate::error::{ConnectError, Error};

/// How many frames may wait to be written.
const FRAMES_OUT: usize = 64;
/// How many answers to one request may wait to be taken.
const ANSWERS: usize = 64;
/// How many dropped objects are told in one frame.
const RELEASED: usize = 10_000;

/// A connection to a node. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    node: String,
    frames: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    next: AtomicU64,
    reading: JoinHandle<()>,
    writing: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Who waits for answers; `None` when there will be no more.
    routes: Mutex<Option<HashMap<u64, mpsc::Sender<Response>>>>,
    dropped: Mutex<Dropped>,
    has_dropped: Notify,
    is_open: watch::Sender<bool>,
}

/// What the driver has no handle of any more.
#[derive(Debug, Default)]
struct Dropped {
    objects: Vec<ObjectId>,
    actors: Vec<ActorId>,
}

/// The answers to a request. Dropping it, the rest is not waited for.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) id: u64,
    queue: mpsc::Receiver<Response>,
    shared: Arc<Shared>,
}

impl Answers {
    /// The next answer; a refusal is an error.
    pub(crate) async fn next(&mut self) -> Result<Response, Error> {
        match self.queue.recv().await {
            Some(Response::Refused(why)) => Err(Error::Refused(why)),
            Some(answer) => Ok(answer),
            None => Err(Error::Closed),
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Some(routes) = &mut *self.shared.routes.lock() {
            routes.remove(&self.id);
        }
    }
}

impl Connection {
    pub(crate) async fn open(address: &Address, tenant: TenantName) -> Result<Self, ConnectError> {
        let io_error = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ConnectError::NotRunning {
                    address: address.clone(),
                }
            }
            _ => ConnectError::Io {
                address: address.clone(),
                error,
            },
        };
        let frame_error = |error| ConnectError::Frame {
            address: address.clone(),
            error,
        };
        let mut stream = UnixStream::connect(address.path())
            .await
            .map_err(io_error)?;
        let peer = stream.peer_cred().map_err(io_error)?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(ConnectError::NotOurs {
                address: address.clone(),
            });
        }
        let hello = Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            tenant,
        };
        let hello = wire::encode(&hello).map_err(frame_error)?;
        stream.write_all(&hello).await.map_err(io_error)?;
        let bytes = match read_frame(&mut stream).await {
            Ok(bytes) => bytes.map_err(frame_error)?,
            // It hangs up on what it does not know.
            Err(_) => return Err(frame_error(FrameError::NotWasmrun)),
        };
        let welcome: Welcome = wire::decode_greeting(&bytes).map_err(frame_error)?;
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::channel(FRAMES_OUT);
        let shared = Arc::new(Shared {
            routes: Mutex::new(Some(HashMap::new())),
            dropped: Mutex::default(),
            has_dropped: Notify::new(),
            is_open: watch::Sender::new(true),
        });
        Ok(Self {
            node: welcome.node,
            frames,
            next: AtomicU64::new(1),
            reading: tokio::spawn(read(reader, shared.clone())),
            writing: tokio::spawn(write(writer, queue, shared.clone())),
            shared,
        })
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Sends a request.
    pub(crate) async fn start(&self, request: Request) -> Result<Answers, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, queue) = mpsc::channel(ANSWERS);
        match &mut *self.shared.routes.lock() {
            Some(routes) => drop(routes.insert(id, sender)),
            None => return Err(Error::Closed),
        }
        let answers = Answers {
            id,
            queue,
            shared: self.shared.clone(),
        };
        self.send(id, request).await?;
        Ok(answers)
    }

    pub(crate) async fn send(&self, id: u64, message: Request) -> Result<(), Error> {
        let frame = wire::encode(&Frame { id, message })?;
        self.frames.send(frame).await.map_err(|_| Error::Closed)
    }

    /// Waits until the node has closed the connection.
    pub(crate) async fn closed(&self) {
        // The sender is ours.
        let _ = self
            .shared
            .is_open
            .subscribe()
            .wait_for(|is_open| !is_open)
            .await;
    }

    /// The driver has dropped its last handle of this.
    pub(crate) fn release_object(&self, id: ObjectId) {
        self.shared.dropped.lock().objects.push(id);
        self.shared.has_dropped.notify_one();
    }

    /// The driver has dropped its last handle of this.
    pub(crate) fn release_actor(&self, id: ActorId) {
        self.shared.dropped.lock().actors.push(id);
        self.shared.has_dropped.notify_one();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

/// The bytes of one frame.
async fn read_frame(
    reader: &mut (impl AsyncReadExt + Unpin),
) -> io::Result<Result<Vec<u8>, FrameError>> {
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await?;
    let len = match wire::frame_len(header) {
        Ok(len) => len,
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; len];
    reader.read_exact(&mut bytes).await?;
    Ok(Ok(bytes))
}

/// Brings answers to whoever waits for them, until the node is gone or talks nonsense.
async fn read(reader: OwnedReadHalf, shared: Arc<Shared>) {
    let mut reader = BufReader::new(reader);
    while let Ok(Ok(bytes)) = read_frame(&mut reader).await {
        let Ok(Frame { id, message }) = wire::decode::<Frame<Response>>(&bytes) else {
            break;
        };
        let route = match &*shared.routes.lock() {
            Some(routes) => routes.get(&id).cloned(),
            None => None,
        };
        if let Some(route) = route {
            // Nobody waits any more: so be it.
            let _ = route.send(message).await;
        }
    }
    *shared.routes.lock() = None;
    shared.is_open.send_replace(false);
}

/// Writes frames, and now and then what was dropped.
async fn write(
    mut writer: OwnedWriteHalf,
    mut frames: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    loop {
        let written = tokio::select! {
            biased;
            frame = frames.recv() => match frame {
                Some(frame) => writer.write_all(&frame).await,
                None => return,
            },
            () = shared.has_dropped.notified() => {
                // Frames that name what was dropped were sent before.
                write_rest(&mut writer, &mut frames, &shared).await
            }
        };
        if written.is_err() {
            return;
        }
    }
}

async fn write_rest(
    writer: &mut OwnedWriteHalf,
    frames: &mut mpsc::Receiver<Vec<u8>>,
    shared: &Shared,
) -> io::Result<()> {
    let dropped = std::mem::take(&mut *shared.dropped.lock());
    while let Ok(frame) = frames.try_recv() {
        writer.write_all(&frame).await?;
    }
    let objects = dropped
        .objects
        .chunks(RELEASED)
        .map(|ids| Request::Release(ids.to_vec()));
    let actors = dropped.actors.iter().map(|id| Request::ReleaseActor(*id));
    for message in objects.chain(actors) {
        let frame = wire::encode(&Frame { id: 0, message }).map_err(io::Error::other)?;
        writer.write_all(&frame).await?;
    }
    Ok(())
}
