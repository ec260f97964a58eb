//! One connection: its greeting, and what is to be written.
//!
//! Owns the two tasks that read and write; they end with the connection. Must not: know what the
//! requests mean.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, NodeId};
use wasmrun_model::version::Version;
use wasmrun_model::wire::{
    self, Address, Frame, FrameError, HEADER_BYTES, Hello, MAGIC, ObjectRef, PROTOCOL, Request,
    Welcome,
};

use crate::error::{ConnectError, Error};
use crate::identity::Identity;
use crate::line;
use crate::reader::Reader;
use crate::routes::{Answers, Routes};
use crate::submit::random;

/// How many frames may wait to be written.
const FRAMES_OUT: usize = 64;
/// How many bytes are gathered before they are written, unless there are no more.
const GATHERED_BYTES: usize = 128 << 10;
/// How long a node on the network may take to hear that a session is over, and what it says last to arrive.
const FAREWELL: Duration = Duration::from_secs(1);
/// For how many values a connection waits at a time. The node takes 4,096 requests that wait, others among them, and refuses more.
const WAITED_FOR: usize = 4_000;
/// How many dropped objects are told in one frame.
const RELEASED: usize = 10_000;

/// A connection to a node. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    node: String,
    /// The version that both sides know.
    spoken: Version,
    /// Which node: the owner of what the session makes.
    pub(crate) owner: NodeId,
    /// Where it is, and who pays: to begin another session like this one.
    pub(crate) address: Address,
    pub(crate) tenant: TenantName,
    identity: Option<Arc<Identity>>,
    /// What the session is called, and what outlives it is submitted as.
    pub(crate) job: wire::Job,
    /// How many tasks that is to have, if that is known.
    pub(crate) tasks: AtomicU64,
    frames: mpsc::Sender<Vec<u8>>,
    pub(crate) routes: Arc<Routes>,
    next: AtomicU64,
    waits: Arc<Semaphore>,
    reading: JoinHandle<()>,
    writing: JoinHandle<()>,
    /// What it lives on, if that is a blocking client's. Values that are mapped keep it.
    pub(crate) runtime: OnceLock<Weak<crate::blocking::SharedRuntime>>,
}

impl Connection {
    pub(crate) async fn open(
        address: &Address,
        tenant: TenantName,
        identity: Option<Arc<Identity>>,
        job: &str,
    ) -> Result<Self, ConnectError> {
        let frame_error = |error| ConnectError::Frame {
            address: address.clone(),
            error,
        };
        let (mut reader, mut writer) = line::open(address, identity.as_ref()).await?;
        let hello = Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            tenant: tenant.clone(),
            job: job.to_owned(),
        };
        let hello = wire::encode(&hello).map_err(frame_error)?;
        // If it fails, reading says why.
        let _ = writer.write_all(&hello).await;
        let bytes = match read_frame(&mut reader).await {
            Ok(bytes) => bytes.map_err(frame_error)?,
            Err(_) => {
                let why = reader.ended(address);
                // It hangs up on what it does not know.
                return Err(why.unwrap_or_else(|| frame_error(FrameError::NotWasmrun)));
            }
        };
        let (welcome, spoken) = wire::decode_greeting::<Welcome>(&bytes).map_err(frame_error)?;
        let (frames, queue) = mpsc::channel(FRAMES_OUT);
        let routes = Routes::new();
        Ok(Self {
            node: welcome.node,
            spoken,
            owner: welcome.id,
            address: address.clone(),
            tenant,
            identity,
            job: wire::Job {
                id: DriverId::detached(random()),
                name: job.to_owned(),
                tasks: 0,
            },
            tasks: AtomicU64::new(0),
            frames,
            next: AtomicU64::new(1),
            waits: Arc::new(Semaphore::new(WAITED_FOR)),
            reading: tokio::spawn(Reader::new(reader, routes.clone()).run()),
            writing: tokio::spawn(write(writer, queue, routes.clone())),
            routes,
            runtime: OnceLock::new(),
        })
    }

    /// Another one, like this.
    pub(crate) async fn again(&self) -> Result<Self, ConnectError> {
        let (tenant, identity) = (self.tenant.clone(), self.identity.clone());
        let mut again = Self::open(&self.address, tenant, identity, &self.job.name).await?;
        again.job.id = self.job.id;
        if let Some(runtime) = self.runtime.get() {
            // It is new, and has none.
            let _ = again.runtime.set(runtime.clone());
        }
        Ok(again)
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Ends the session, and waits until the node knows, so that nothing depends on what becomes of our runtime.
    pub(crate) async fn leave(&self) {
        // With its end of the stream, the node's ends too.
        self.writing.abort();
        let _ = tokio::time::timeout(FAREWELL, self.routes.closed()).await;
    }

    pub(crate) fn is_on_network(&self) -> bool {
        matches!(self.address, Address::Network(_))
    }

    /// Sends a request.
    pub(crate) async fn start(&self, request: Request) -> Result<Answers, Error> {
        knows(self.spoken, request.since())?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answers = self.routes.expect(id)?;
        self.send(id, request).await?;
        Ok(answers)
    }

    /// The turn of a request that waits for a value, once others have theirs.
    pub(crate) async fn turn_to_wait(&self) -> OwnedSemaphorePermit {
        let turn = self.waits.clone().acquire_owned().await;
        turn.expect("it is never closed")
    }

    /// Sends a request that starts a task or call, and together with it one for the value of that: the answers to each. Without the
    /// second where so many are waited for that it would be refused.
    pub(crate) async fn start_and_get(
        &self,
        request: Request,
    ) -> Result<(Answers, Option<Answers>), Error> {
        let Ok(turn) = self.waits.clone().try_acquire_owned() else {
            return Ok((self.start(request).await?, None));
        };
        knows(self.spoken, request.since())?;
        let id = self.next.fetch_add(2, Ordering::Relaxed);
        let (started, got) = (self.routes.expect(id)?, self.routes.expect(id + 1)?);
        let get = Request::Get {
            object: ObjectRef::Started(id),
            timeout_ms: None,
            can_map: true,
        };
        let mut frames = Vec::new();
        for (id, message) in [(id, request), (id + 1, get)] {
            frames.extend(wire::encode(&Frame { id, message })?);
        }
        // Nothing comes between them.
        self.send_frames(frames).await?;
        Ok((started, Some(got.holding(turn))))
    }

    pub(crate) async fn send(&self, id: u64, message: Request) -> Result<(), Error> {
        self.send_frames(wire::encode(&Frame { id, message })?)
            .await
    }

    async fn send_frames(&self, frames: Vec<u8>) -> Result<(), Error> {
        if self.frames.send(frames).await.is_ok() {
            return Ok(());
        }
        // The node takes no more. What it said before that, and why, is still being read.
        let _ = tokio::time::timeout(FAREWELL, self.routes.closed()).await;
        Err(self.routes.ended())
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

/// Writes frames, as many at once as there are, and behind them what was dropped: also while there are
/// always more, or the node would keep in place what nobody looks at.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Vec<u8>>,
    routes: Arc<Routes>,
) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => batch.push(frame),
                None => return,
            },
            // Who drops one result often makes the next call: that goes in the same write, in front of it.
            () = routes.has_dropped.notified() => tokio::task::yield_now().await,
        }
        let dropped = released(&routes);
        // Frames that name what was dropped were sent before: they are among the first of those that there
        // was room for.
        for _ in 0..FRAMES_OUT {
            let Ok(frame) = frames.try_recv() else {
                break;
            };
            batch.push(frame);
        }
        batch.extend(dropped);
        if write_all(&mut writer, &mut batch).await.is_err() {
            return;
        }
    }
}

/// Whether a node that speaks this knows what came with this minor version of ours.
fn knows(spoken: Version, since: u16) -> Result<(), Error> {
    match spoken.has(since) {
        true => Ok(()),
        false => Err(Error::TooNew {
            since: Version {
                minor: since,
                ..PROTOCOL
            },
            spoken,
        }),
    }
}

/// Writes frames, small ones together.
async fn write_all(
    writer: &mut (impl AsyncWrite + Unpin),
    batch: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let mut gathered = Vec::new();
    for frame in batch.drain(..) {
        if gathered.len() + frame.len() > GATHERED_BYTES {
            writer.write_all(&gathered).await?;
            gathered.clear();
        }
        match (gathered.is_empty(), frame.len()) {
            (true, GATHERED_BYTES..) => writer.write_all(&frame).await?,
            (true, _) => gathered = frame,
            (false, _) => gathered.extend_from_slice(&frame),
        }
    }
    writer.write_all(&gathered).await
}

/// What tells the node what was dropped.
fn released(routes: &Routes) -> Vec<Vec<u8>> {
    let dropped = routes.take_dropped();
    let pins = dropped.pins.chunks(RELEASED);
    let pins = pins.map(|ids| Request::Unpin(ids.to_vec()));
    let objects = dropped.objects.chunks(RELEASED);
    let objects = objects.map(|ids| Request::Release(ids.to_vec()));
    let actors = dropped.actors.iter().map(|id| Request::ReleaseActor(*id));
    let messages = pins.chain(objects).chain(actors);
    let messages = messages.map(|message| Frame { id: 0, message });
    // An empty chunk ends a transfer. The node takes no notice if it is over.
    let transfers = dropped.transfers.iter().map(|id| Frame {
        id: *id,
        message: Request::Chunk(wire::Bytes(Vec::new())),
    });
    let frames = messages.chain(transfers).map(|frame| wire::encode(&frame));
    frames
        .map(|frame| frame.expect("a bounded list fits a frame"))
        .collect()
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;
    use wasmrun_model::id::{Digest, ObjectId, TaskId};
    use wasmrun_model::value::Encoded;

    use super::*;
    use crate::queue::{self, Queue, Slot, Wanted};
    use crate::{Client, Submit};

    /// More frames than a writer has in hand at a time, several times over.
    const MOST: usize = 10 * FRAMES_OUT;

    /// A node greets a client.
    async fn greet(socket: &mut UnixStream, protocol: Version) {
        let welcome = wire::encode(&Welcome {
            magic: MAGIC,
            protocol,
            version: "0".into(),
            node: "n".into(),
            id: NodeId::from_bytes([1; 16]),
        });
        read_frame(socket).await.unwrap().unwrap();
        socket.write_all(&welcome.unwrap()).await.unwrap();
    }

    /// A node that greets, takes one request and ends the session with these words.
    async fn refuses(mut socket: UnixStream, why: &str) {
        greet(&mut socket, PROTOCOL).await;
        read_frame(&mut socket).await.unwrap().unwrap();
        let message = wire::Response::Refused(wire::Refusal {
            kind: wire::RefusalKind::Usage,
            message: why.to_owned(),
        });
        let last = wire::encode(&Frame { id: 0, message }).unwrap();
        socket.write_all(&last).await.unwrap();
    }

    async fn next(socket: &mut UnixStream) -> Frame<Request> {
        let bytes = read_frame(socket).await.unwrap().unwrap();
        wire::decode(&bytes).unwrap()
    }

    async fn answer(socket: &mut UnixStream, id: u64, message: wire::Response) {
        let frame = wire::encode(&Frame { id, message }).unwrap();
        socket.write_all(&frame).await.unwrap();
    }

    /// A node that is called once and asked for the value, and then hears that this is let go.
    async fn serves_one_call(mut socket: UnixStream, is_together: bool) {
        greet(&mut socket, PROTOCOL).await;
        let task = TaskId::from_bytes([7; 16]);
        let call = next(&mut socket).await;
        assert!(matches!(call.message, Request::Submit(_)), "{call:?}");
        let submitted = wire::Response::Submitted(task);
        let (get, object) = match is_together {
            true => {
                let get = next(&mut socket).await;
                answer(&mut socket, call.id, submitted).await;
                (get, ObjectRef::Started(call.id))
            }
            false => {
                answer(&mut socket, call.id, submitted).await;
                (
                    next(&mut socket).await,
                    ObjectRef::Id(ObjectId::of(task, 0)),
                )
            }
        };
        let asked = Request::Get {
            object,
            timeout_ms: None,
            can_map: true,
        };
        assert_eq!(get.message, asked);
        let head = wire::Response::Value {
            form: wire::Form::Postcard,
            len: 1,
            ty: None,
            objects: Vec::new(),
            actors: Vec::new(),
        };
        answer(&mut socket, get.id, head).await;
        let chunk = wire::Response::Chunk(wire::Bytes(vec![3]));
        answer(&mut socket, get.id, chunk).await;
        let last = next(&mut socket).await;
        assert!(matches!(last.message, Request::Release(_)), "{last:?}");
    }

    #[tokio::test]
    async fn a_request_goes_in_front_of_what_was_dropped_just_before() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_reader, writer) = ours.into_split();
        let (frames, queue) = mpsc::channel(FRAMES_OUT);
        let routes = Routes::new();
        let writing = tokio::spawn(write(writer, queue, routes.clone()));
        // It waits for something to write.
        tokio::task::yield_now().await;
        drop(routes.pin(7));
        // Another task, which runs behind the writer's.
        let message = Request::Status;
        let call = wire::encode(&Frame { id: 1, message }).unwrap();
        tokio::spawn(async move { frames.send(call).await });
        let first = next(&mut theirs).await;
        assert!(matches!(first.message, Request::Status), "{first:?}");
        let second = next(&mut theirs).await;
        assert!(matches!(second.message, Request::Unpin(_)), "{second:?}");
        writing.abort();
    }

    #[tokio::test]
    async fn a_call_that_is_awaited_at_once_takes_one_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        for is_together in [true, false] {
            let heard = tokio::sync::Notify::new();
            let node = async {
                let (socket, _) = listener.accept().await.unwrap();
                serves_one_call(socket, is_together).await;
                heard.notify_one();
            };
            let client = async {
                let opened = Connection::open(&address, TenantName::default(), None, "").await;
                let client = Client(Arc::new(opened.unwrap()));
                let module = wire::Module {
                    digest: Digest::from_bytes([9; 32]),
                    has_program: false,
                    functions: Vec::new(),
                    classes: Vec::new(),
                };
                let slot = Arc::<Slot>::default();
                let early = is_together.then(|| Wanted::new(slot.clone(), None));
                let queue = Arc::<Queue>::default();
                queue.push([queue::Command {
                    what: queue::What::Task(Arc::new(Submit::function(&module, "f"))),
                    values: Vec::new(),
                    slot: slot.clone(),
                }]);
                let sending = tokio::spawn(queue::send_all(queue.clone(), client.clone()));
                let wanted = match early {
                    Some(early) => early,
                    None => {
                        slot.future().await.unwrap();
                        Wanted::new(slot.clone(), None)
                    }
                };
                let (value, ty) = wanted.value(true).await.unwrap();
                assert!(value[..] == [3] && ty.is_none(), "{value:?}");
                drop(slot);
                heard.notified().await;
                sending.abort();
            };
            tokio::join!(node, client);
        }
    }

    #[test]
    fn what_is_newer_than_the_node_is_not_asked_for() {
        let spoken = Version { major: 1, minor: 4 };
        assert!(knows(spoken, 0).is_ok() && knows(spoken, 4).is_ok());
        let error = knows(spoken, 5).unwrap_err().to_string();
        assert!(error.contains("1.4") && error.contains(".5"), "{error}");
    }

    #[tokio::test]
    async fn the_node_hears_of_bytes_that_do_not_come() {
        let is_end_of = |frame: &Frame<Request>, id| {
            frame.id == id && matches!(&frame.message, Request::Chunk(bytes) if bytes.0.is_empty())
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        let (asked, heard) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let node = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            greet(&mut socket, PROTOCOL).await;
            let put = next(&mut socket).await.id;
            answer(&mut socket, put, wire::Response::Continue).await;
            assert!(is_end_of(&next(&mut socket).await, put));
            heard.notify_one();
            // The room for the other comes after its future was dropped.
            let put = next(&mut socket).await.id;
            asked.notify_one();
            next(&mut socket).await;
            answer(&mut socket, put, wire::Response::Continue).await;
            assert!(is_end_of(&next(&mut socket).await, put));
            heard.notify_one();
        };
        let client = async {
            let opened = Connection::open(&address, TenantName::default(), None, "").await;
            let client = Client(Arc::new(opened.unwrap()));
            let (form, options) = (wire::Form::Postcard, crate::PutOptions::default());
            let failed = client.put_from(form, 5, options, io::empty()).await;
            assert!(matches!(failed, Err(Error::Source(_))), "{failed:?}");
            heard.notified().await;
            let value = Encoded::Postcard(vec![7]);
            tokio::select! {
                put = client.put(&value) => panic!("{put:?}"),
                () = asked.notified() => {}
            }
            let _later = client.0.start(Request::Status).await.unwrap();
            heard.notified().await;
        };
        tokio::join!(node, client);
    }

    #[tokio::test]
    async fn whoever_waits_hears_why_the_node_ends_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        let is_it = |error: &Error| matches!(error, Error::Ended { why } if why == "no more");
        for _ in 0..100 {
            let node = async {
                let (socket, _) = listener.accept().await.unwrap();
                refuses(socket, "no more").await;
            };
            let client = async {
                let opened = Connection::open(&address, TenantName::default(), None, "").await;
                let connection = opened.unwrap();
                let mut waits = connection.start(Request::Status).await.unwrap();
                let error = waits.next().await.unwrap_err();
                assert!(is_it(&error), "{error}");
                // And whoever comes later, whatever has become of the socket.
                for _ in 0..2 * FRAMES_OUT {
                    let late = connection.start(Request::Status).await;
                    let error = late.expect_err("it is over");
                    assert!(is_it(&error), "{error}");
                }
            };
            tokio::join!(node, client);
        }
    }

    #[tokio::test]
    async fn what_was_dropped_is_told_while_the_client_sends_without_pause() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_reader, writer) = ours.into_split();
        let (frames, queue) = mpsc::channel(FRAMES_OUT);
        let routes = Routes::new();
        let frame = |id, message| wire::encode(&Frame { id, message }).unwrap();
        // Whenever there is room for a frame, there is one: the socket takes fewer than wait.
        let chunk = Request::Chunk(wire::Bytes(vec![0; 16 << 10]));
        let busy = frame(1, chunk);
        for _ in 0..FRAMES_OUT {
            frames.try_send(busy.clone()).unwrap();
        }
        let senders: Vec<_> = (0..FRAMES_OUT)
            .map(|_| {
                let (frames, busy) = (frames.clone(), busy.clone());
                tokio::spawn(async move { while frames.send(busy.clone()).await.is_ok() {} })
            })
            .collect();
        let writing = tokio::spawn(write(writer, queue, routes.clone()));
        drop(routes.pin(7));
        let mut before = 0;
        loop {
            let bytes = read_frame(&mut theirs).await.unwrap().unwrap();
            match wire::decode::<Frame<Request>>(&bytes).unwrap().message {
                Request::Chunk(_) => before += 1,
                Request::Unpin(ids) => {
                    assert_eq!(ids, [7]);
                    break;
                }
                other => panic!("{other:?}"),
            }
            assert!(before < MOST, "it waits for a pause");
        }
        // What was sent before something was dropped names it, and goes first.
        assert!(before >= FRAMES_OUT);
        writing.abort();
        senders.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
