//! A link: one connection with a peer, while messages go over it.
//!
//! Owns what waits to be written to this connection, and the four loops that read and write it: requests
//! and answers on one stream both ways, one-way messages on another each way, so that a service which is
//! slow with the latter does not hold up the former. Invariant: reading requests and answers never
//! waits for a service or for room to write, so two peers cannot wait for each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use quinn::{Connection, SendStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout};

use super::answers::{Admit, Answer};
use super::{Accepted, Adopted, Core, PeerCore, Traffic};
use crate::wire::frame::{
    Failure, FrameReader, HEAD_ROOM, HEADER_BYTES, Head, ReadError, head_frame, put_frame,
    split_head,
};
use crate::wire::{Close, Lost};

/// How much is written at a time, in bytes.
const WRITE_BYTES: usize = 256 << 10;
/// Messages that are at most this long are copied together before they are written, in bytes.
const COPY_BYTES: usize = 4 << 10;
/// Answers that may wait to be written, in bytes; further ones are dropped, and asked for again from
/// what is kept.
const ANSWER_BYTES: usize = 32 << 20;
/// Accepted one-way messages are confirmed when there are this many, or bytes, …
const CONFIRM_COUNT: u64 = 512;
const CONFIRM_BYTES: usize = 128 << 10;
/// … or when this long nothing more came.
const CONFIRM_AFTER: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) nonce: u64,
    pub(crate) is_ours: bool,
    connection: Connection,
    queue: Mutex<Queue>,
    /// Something is to be written.
    ready: Notify,
    /// The number of the first one-way message to write, once the other side has said so.
    start: watch::Sender<Option<u64>>,
    /// We had a link with this incarnation of the peer before.
    pub(super) knew: bool,
    max_items: usize,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    answer_bytes: usize,
    /// One-way messages up to this one are to be confirmed.
    received: Option<u64>,
}

#[derive(Debug)]
enum Item {
    Call {
        id: u64,
        /// Its place is taken until it was written, even if nobody waits for it any more.
        _slot: Option<Arc<OwnedSemaphorePermit>>,
    },
    Answer(u64, Answer),
    Cancel(u64),
}

impl Link {
    pub(super) fn new(
        connection: Connection,
        nonce: u64,
        is_ours: bool,
        knew: bool,
        max_requests: usize,
    ) -> Self {
        Self {
            nonce,
            is_ours,
            connection,
            queue: Mutex::default(),
            ready: Notify::new(),
            start: watch::Sender::new(None),
            knew,
            // Requests, cancels, answers, and answers that are refusals.
            max_items: 4 * max_requests.max(super::MAX_REQUESTS / 16) + 64,
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let stats = self.connection.stats();
        Traffic {
            connection: self.nonce,
            sent: stats.udp_tx.datagrams,
            received: stats.udp_rx.datagrams,
        }
    }

    /// What came and went, in bytes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let stats = self.connection.stats();
        (stats.udp_rx.bytes, stats.udp_tx.bytes)
    }

    pub(crate) fn close(&self, why: Close) {
        self.connection.close(why.code(), b"");
    }

    pub(super) fn call(&self, id: u64, slot: Arc<OwnedSemaphorePermit>) {
        self.push(Item::Call {
            id,
            _slot: Some(slot),
        });
    }

    pub(super) fn cancel(&self, id: u64) {
        self.push(Item::Cancel(id));
    }

    /// Requests from before this link. Their places are held by those who wait for them.
    pub(super) fn call_again(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            let mut queue = self.queue.lock();
            // What was put here meanwhile is among them.
            queue
                .items
                .retain(|item| !matches!(item, Item::Call { .. }));
            queue
                .items
                .extend(ids.into_iter().map(|id| Item::Call { id, _slot: None }));
            drop(queue);
            self.ready.notify_one();
        }
    }

    fn answer(&self, id: u64, answer: Answer) {
        self.push(Item::Answer(id, answer));
    }

    fn confirm(&self, through: u64) {
        self.queue.lock().received = Some(through);
        self.ready.notify_one();
    }

    fn push(&self, item: Item) {
        let mut queue = self.queue.lock();
        if queue.items.len() >= self.max_items {
            drop(queue);
            tracing::warn!("a peer asks for more than it reads and is disconnected");
            return self.close(Close::Limit);
        }
        let item = match item {
            Item::Answer(id, Ok(bytes)) if queue.answer_bytes + bytes.len() > ANSWER_BYTES => {
                Item::Answer(id, Err(Failure::Forgotten))
            }
            Item::Answer(id, Ok(bytes)) => {
                queue.answer_bytes += bytes.len();
                Item::Answer(id, Ok(bytes))
            }
            other => other,
        };
        queue.items.push_back(item);
        drop(queue);
        self.ready.notify_one();
    }
}

/// Frames that are written together, small ones copied into one piece.
#[derive(Default)]
struct Pieces {
    whole: Vec<Bytes>,
    open: BytesMut,
    len: usize,
}

impl Pieces {
    fn add(&mut self, head: Head, message: &Bytes) {
        let frame = head_frame(
            head,
            if message.len() <= COPY_BYTES {
                message
            } else {
                &[]
            },
        );
        if message.len() <= COPY_BYTES {
            self.len += frame.len();
            self.open.extend_from_slice(&frame);
            return;
        }
        // The length counts the message, which follows as a piece of its own.
        let mut start = BytesMut::from(&frame[..]);
        let payload = start.len() - HEADER_BYTES + message.len();
        let payload = u32::try_from(payload).expect("payloads are limited");
        start[..HEADER_BYTES].copy_from_slice(&payload.to_le_bytes());
        self.open.extend_from_slice(&start);
        self.whole.push(self.open.split().freeze());
        self.whole.push(message.clone());
        self.len += start.len() + message.len();
    }

    fn take(&mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.whole.push(self.open.split().freeze());
        }
        self.len = 0;
        std::mem::take(&mut self.whole)
    }
}

/// A link with its streams, ready to be used.
pub(crate) struct Serving {
    pub(crate) peer: Arc<PeerCore>,
    pub(crate) adopted: Adopted,
    pub(crate) writer: SendStream,
    pub(crate) reader: FrameReader,
    /// What is to be written before anything else.
    pub(crate) first: Option<Bytes>,
}

impl Serving {
    /// Serves the link until it ends.
    pub(crate) async fn run(self, core: Arc<Core>) {
        let Self {
            peer,
            adopted: Adopted { link, resume },
            writer,
            mut reader,
            first,
        } = self;
        reader.allow(core.limits.message_bytes + HEAD_ROOM);
        let mut pieces = Pieces::default();
        pieces.whole.extend(first);
        pieces.add(Head::Resume(resume), &Bytes::new());
        let ended = tokio::select! {
            ended = write_calls(&core, &peer, &link, pieces, writer) => ended,
            ended = read_calls(&core, &peer, &link, reader) => ended,
            ended = write_one_ways(&peer, &link) => ended,
            ended = read_one_ways(&core, &peer, &link) => ended,
        };
        peer.outbox.look_again();
        let why = match link.connection.close_reason() {
            Some(error) => Lost::from_quinn(&error, core.timing.idle),
            None => {
                let (close, why) = ended.unwrap_or((Close::Finished, Lost::Closed));
                link.close(close);
                why
            }
        };
        peer.lost(&link, why);
    }
}

/// Why a loop ended, if not for the connection.
type Ended = Option<(Close, Lost)>;

async fn write_calls(
    core: &Core,
    peer: &PeerCore,
    link: &Link,
    mut pieces: Pieces,
    mut writer: SendStream,
) -> Ended {
    loop {
        collect(peer, link, &mut pieces);
        let mut bytes = pieces.take();
        if bytes.is_empty() {
            link.ready.notified().await;
            continue;
        }
        match timeout(core.timing.write_stall, writer.write_all_chunks(&mut bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Some((Close::Protocol, Lost::Protocol("it stopped a stream"))),
            Err(_) => return Some((Close::Slow, Lost::Slow)),
        }
    }
}

/// Takes what waits, up to what is written at a time.
fn collect(peer: &PeerCore, link: &Link, pieces: &mut Pieces) {
    let mut queue = link.queue.lock();
    if let Some(through) = queue.received.take() {
        pieces.add(Head::Received { through }, &Bytes::new());
    }
    // Requests wait until it is known where they go on.
    if link.start.borrow().is_none() {
        return;
    }
    let now = Instant::now();
    while pieces.len < WRITE_BYTES
        && let Some(item) = queue.items.pop_front()
    {
        match item {
            Item::Call { id, .. } => {
                if let Some((head, body)) = peer.calls.write(id, now) {
                    pieces.add(head, &body);
                }
            }
            Item::Answer(id, Ok(bytes)) => {
                queue.answer_bytes -= bytes.len();
                pieces.add(Head::Response { id }, &bytes);
            }
            Item::Answer(id, Err(why)) => pieces.add(Head::Failed { id, why }, &Bytes::new()),
            Item::Cancel(id) => pieces.add(Head::Cancel { id }, &Bytes::new()),
        }
    }
    if !queue.items.is_empty() {
        link.ready.notify_one();
    }
}

async fn read_calls(
    core: &Arc<Core>,
    peer: &Arc<PeerCore>,
    link: &Arc<Link>,
    mut reader: FrameReader,
) -> Ended {
    loop {
        let batch = match reader.next().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return Some((Close::Protocol, Lost::Protocol("it ended a stream"))),
            Err(error) => return broken(&error),
        };
        for payload in batch {
            let Ok((head, message)) = split_head(payload) else {
                return Some((Close::Protocol, Lost::Protocol("a message has no head")));
            };
            let is_first = link.start.borrow().is_none();
            match head {
                Head::Resume(resume) if is_first => match peer.resumed(link, resume) {
                    Some(start) => {
                        link.start.send_replace(Some(start));
                        link.ready.notify_one();
                    }
                    None => return None,
                },
                Head::Resume(_) => {
                    return Some((Close::Protocol, Lost::Protocol("it resumed twice")));
                }
                _ if is_first => {
                    return Some((Close::Protocol, Lost::Protocol("it did not resume first")));
                }
                Head::Request {
                    id,
                    floor,
                    timeout_ms,
                } => {
                    let wait = Duration::from_millis(timeout_ms);
                    request(core, peer, link, (id, floor), wait, message);
                }
                Head::Response { id } => peer.calls.answer(id, Ok(message)),
                Head::Failed { id, why } => peer.calls.answer(id, Err(why)),
                Head::Cancel { id } => peer.cancelled(link, id),
                Head::Received { through } => peer.outbox.accept(through),
            }
        }
    }
}

/// Begins with a request, or says what became of it before.
fn request(
    core: &Arc<Core>,
    peer: &Arc<PeerCore>,
    link: &Link,
    (id, floor): (u64, u64),
    wait: Duration,
    body: Bytes,
) {
    let Some((admitted, epoch)) = peer.admit(link, id, floor, body.len()) else {
        return;
    };
    match admitted {
        Admit::Wait => return,
        Admit::Say(answer) => return link.answer(id, answer),
        Admit::Run => {}
    }
    // A copy, so that a short request does not keep all that arrived with it.
    let body = Bytes::copy_from_slice(&body);
    let (inbound, peer) = (core.inbound.clone(), peer.clone());
    let asked = peer.clone();
    let task = core.tasks.spawn(async move {
        let answer = match timeout(wait, inbound.request(peer.clone(), body)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Expired),
        };
        let is_wanted = peer.answers.lock().ended(epoch, id, answer.clone());
        // Without a link it is kept, and asked for again.
        if is_wanted && let Some(link) = peer.link() {
            link.answer(id, answer);
        }
    });
    if let Some(task) = task {
        asked.answers.lock().started(epoch, id, task);
    }
}

async fn write_one_ways(peer: &PeerCore, link: &Link) -> Ended {
    let mut start = link.start.subscribe();
    let Ok(next) = start.wait_for(Option::is_some).await.map(|start| *start) else {
        return None;
    };
    let mut next = next.unwrap_or(1);
    let mut writer = match link.connection.open_uni().await {
        Ok(writer) => writer,
        Err(_) => return None,
    };
    let mut pieces = Vec::new();
    let mut is_begun = false;
    loop {
        let ready = peer.outbox.ready();
        let Some((first, after)) = peer.outbox.take_from(next, &mut pieces) else {
            ready.await;
            continue;
        };
        if !is_begun {
            // The number of the first message, as a frame of its own.
            let mut header = BytesMut::new();
            put_frame(&mut header, &first.to_le_bytes());
            pieces.insert(0, header.freeze());
            is_begun = true;
        }
        next = after;
        // No limit on the time: a service that is slow with these makes the sender wait.
        if writer.write_all_chunks(&mut pieces).await.is_err() {
            return Some((Close::Protocol, Lost::Protocol("it stopped a stream")));
        }
        pieces.clear();
    }
}

async fn read_one_ways(core: &Core, peer: &PeerCore, link: &Link) -> Ended {
    let Ok(stream) = link.connection.accept_uni().await else {
        return None;
    };
    let mut start = link.start.subscribe();
    // What was accepted before is known only then.
    if start.wait_for(Option::is_some).await.is_err() {
        return None;
    }
    let mut reader = FrameReader::new(stream, core.limits.message_bytes);
    let first = match reader.one().await {
        Ok(first) => first,
        Err(error) => return broken(&error),
    };
    let Ok(first) = <[u8; 8]>::try_from(&first[..]) else {
        return Some((
            Close::Protocol,
            Lost::Protocol("one-way messages have no number"),
        ));
    };
    let mut next = u64::from_le_bytes(first);
    if next == 0 || next > u64::MAX / 2 {
        return Some((
            Close::Protocol,
            Lost::Protocol("one-way messages have no number"),
        ));
    }
    let (mut count, mut bytes) = (0, 0);
    loop {
        let batch = if count == 0 {
            reader.next().await
        } else {
            match timeout(CONFIRM_AFTER, reader.next()).await {
                Ok(batch) => batch,
                Err(_) => {
                    link.confirm(next - 1);
                    (count, bytes) = (0, 0);
                    continue;
                }
            }
        };
        let batch = match batch {
            Ok(Some(batch)) => batch,
            Ok(None) => return Some((Close::Protocol, Lost::Protocol("it ended a stream"))),
            Err(error) => return broken(&error),
        };
        (count, bytes) = (count + batch.count, bytes + batch.len());
        let after = next + batch.count;
        // Waits while the service is behind.
        let Ok(permit) = peer.batches.reserve().await else {
            return None;
        };
        match peer.accept(link, next, batch, permit) {
            Accepted::Yes => next = after,
            Accepted::Stale => return None,
            Accepted::Gap => {
                return Some((
                    Close::Protocol,
                    Lost::Protocol("one-way messages are missing"),
                ));
            }
        }
        if count >= CONFIRM_COUNT || bytes >= CONFIRM_BYTES {
            link.confirm(next - 1);
            (count, bytes) = (0, 0);
        }
    }
}

fn broken(error: &ReadError) -> Ended {
    match error {
        // The connection says why.
        ReadError::Stream(quinn::ReadError::ConnectionLost(_)) => None,
        ReadError::Stream(_) => Some((Close::Protocol, Lost::Protocol("it reset a stream"))),
        ReadError::Cut => Some((Close::Protocol, Lost::Protocol("a message is cut off"))),
        ReadError::Frame(_) => Some((Close::Protocol, Lost::Protocol("a message is too long"))),
    }
}
