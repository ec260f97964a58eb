//! A peer: another node, through all its connections.
//!
//! Owns what outlives a connection: messages that wait, requests and answers, who the peer is; that it is dialled; and
//! what all peers share ([`Core`]). Must not: know types of messages, below [`Peer`]; accept connections; or read what goes
//! over those that are apart from messages ([`Pool`]). What a peer sends is handed to an [`Inbound`].
//!
//! Invariants: at most one link is current; messages are accepted from the current link only; all
//! state belongs to one incarnation of the peer, and a new incarnation begins with none, from when it is known: be that
//! by a connection, or by what the node has heard of before there is one.

mod answers;
mod calls;
mod changes;
pub(crate) mod dial;
mod handle;
mod inbound;
mod info;
mod link;
mod outbox;
mod pool;
mod shared;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use quinn::Connection;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wasmrun_model::id::{Incarnation, NodeId};

pub(crate) use changes::{Changes, Refusals};
pub use handle::Peer;
pub(crate) use inbound::Inbound;
pub use info::{PeerInfo, Tally, Traffic};
pub(crate) use link::Serving;
pub(crate) use shared::{Core, Me, Parts};

use crate::wire::frame::{Batch, Resume};
use crate::wire::hello::{Purpose, Refusal, Version};
use crate::wire::{CallError, Close, ConnectError, Lost};
use answers::{Admit, AnswerLimits, Answers};
use calls::Calls;
use info::Status;
use link::Link;
use outbox::Outbox;
use pool::Pool;

/// How many batches of one-way messages may wait for the service.
const BATCHES: usize = 8;
/// How many requests a peer may allow us at most; what it says is cut to this.
const MAX_REQUESTS: usize = 1 << 16;

pub(crate) struct PeerCore {
    pub(crate) id: NodeId,
    pub(crate) core: Weak<Core>,
    pub(crate) bulk: Pool,
    pub(crate) streams: Pool,
    max_message_bytes: usize,
    outbox: Outbox,
    calls: Calls,
    /// A permit for each request that may be under way.
    slots: Arc<Semaphore>,
    answers: Mutex<Answers>,
    state: Mutex<State>,
    status: watch::Sender<Status>,
    /// With the incarnation of the peer that sent each.
    batches: mpsc::Sender<(Incarnation, Batch)>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// Addresses have changed.
    redial: Notify,
}

#[derive(Debug, Default)]
struct State {
    incarnation: Incarnation,
    /// What we speak with this incarnation of the peer; none before its first link.
    version: Option<Version>,
    link: Option<Arc<Link>>,
    /// The last link that is no more.
    last: Option<u64>,
    /// There was a link in this incarnation of the peer.
    had_link: bool,
    /// The peer has confirmed a link in this incarnation.
    was_heard: bool,
    /// The last one-way message that was accepted in this incarnation.
    received: Option<u64>,
    addresses: Vec<SocketAddr>,
    is_dialled: bool,
    /// How many requests the peer allows.
    granted: usize,
    is_closed: bool,
    /// How many links there were.
    links: u64,
    /// What came and went over those that are no more, in bytes.
    bytes: (u64, u64),
}

impl State {
    /// A link is current no more.
    fn retire(&mut self, link: &Link) {
        let (received, sent) = link.bytes();
        self.bytes.0 += received;
        self.bytes.1 += sent;
    }
}

/// A connection whose hello is done, and which may become the peer's link.
pub(crate) struct Candidate {
    pub(crate) connection: Connection,
    pub(crate) nonce: u64,
    /// We dialled.
    pub(crate) is_ours: bool,
    pub(crate) info: PeerInfo,
    /// The link that the peer had last, and has no more.
    pub(crate) peers_last: Option<u64>,
}

/// A link, and what is to be said first on it.
pub(crate) struct Adopted {
    pub(crate) link: Arc<Link>,
    pub(crate) resume: Resume,
}

/// What has come of a batch.
pub(crate) enum Accepted {
    Yes,
    /// The link is not current any more.
    Stale,
    /// Messages are missing.
    Gap,
}

impl PeerCore {
    pub(crate) fn start(core: &Arc<Core>, id: NodeId) -> Arc<Self> {
        let limits = &core.limits;
        let (batches, queue) = mpsc::channel(BATCHES);
        let peer = Arc::new(Self {
            id,
            core: Arc::downgrade(core),
            bulk: Pool::new(Purpose::Bulk),
            streams: Pool::new(Purpose::Streams),
            max_message_bytes: limits.message_bytes,
            outbox: Outbox::new(limits.one_way_bytes),
            calls: Calls::new(),
            slots: Arc::new(Semaphore::new(limits.requests)),
            answers: Mutex::new(Answers::new(AnswerLimits {
                running: limits.requests,
                running_bytes: limits.request_bytes,
                kept: limits.answers,
                kept_bytes: limits.answer_bytes,
            })),
            state: Mutex::new(State {
                granted: limits.requests,
                ..State::default()
            }),
            status: watch::Sender::new(Status::default()),
            batches,
            tasks: Mutex::default(),
            redial: Notify::new(),
        });
        let task = core
            .tasks
            .spawn(deliver(peer.clone(), core.inbound.clone(), queue));
        peer.tasks.lock().extend(task);
        peer
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Which incarnation of the peer is connected.
    pub(crate) fn connected_incarnation(&self) -> Option<Incarnation> {
        let status = self.status.borrow();
        status.info.as_ref().map(|info| info.incarnation)
    }

    /// What we speak with this incarnation of the peer.
    pub(crate) fn version(&self) -> Option<Version> {
        self.state.lock().version
    }

    /// How much has gone over the connection that there is.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        let link = self.state.lock().link.clone();
        link.map(|link| link.traffic())
    }

    /// What has gone over all connections.
    pub(crate) fn tally(&self) -> Tally {
        let state = self.state.lock();
        let (received, sent) = state.link.as_ref().map_or((0, 0), |link| link.bytes());
        Tally {
            connections: state.links,
            messages_received: state.received.unwrap_or(0),
            messages_sent: self.outbox.taken(),
            bytes_received: state.bytes.0 + received,
            bytes_sent: state.bytes.1 + sent,
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.state.lock().addresses.clone()
    }

    /// Whether it was let go of.
    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// What a hello says about the connections before.
    pub(crate) fn last_link(&self) -> Option<u64> {
        self.state.lock().last
    }

    /// From now on it is dialled at these addresses whenever there is no connection.
    pub(crate) fn dial_at(self: &Arc<Self>, addresses: Vec<SocketAddr>) {
        {
            let mut state = self.state.lock();
            state.addresses = addresses;
            if std::mem::replace(&mut state.is_dialled, true) || state.is_closed {
                self.redial.notify_one();
                return;
            }
        }
        if let Some(core) = self.core.upgrade() {
            let task = core
                .tasks
                .spawn(dial::keep_connected(core.clone(), self.clone()));
            self.tasks.lock().extend(task);
        }
    }

    /// Waits for a reason to dial earlier than planned.
    pub(crate) async fn hurried(&self) {
        self.redial.notified().await;
    }

    pub(crate) fn dial_failed(&self, error: ConnectError) {
        tracing::debug!(peer = %self.id, %error, "a peer cannot be reached");
        self.status.send_modify(|status| status.error = Some(error));
    }

    /// Decides whether a connection becomes the peer's link. Both sides decide alike: of two that were
    /// dialled from both sides at once, the one of the lower id stays.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        core: &Core,
        candidate: Candidate,
    ) -> Result<Adopted, Refusal> {
        let Candidate {
            connection,
            nonce,
            is_ours,
            info,
            peers_last,
        } = candidate;
        core.saw(self.id, info.incarnation)?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Refusal::Closing);
        }
        if info.incarnation < state.incarnation {
            return Err(Refusal::OldIncarnation {
                known: state.incarnation,
            });
        }
        if info.incarnation > state.incarnation {
            self.is_in(&mut state, info.incarnation);
        } else if let Some(link) = &state.link
            && link.is_ours != is_ours
            && peers_last != Some(link.nonce)
            && (core.me.id < self.id) != is_ours
        {
            return Err(Refusal::Duplicate);
        }
        state.links += 1;
        if let Some(old) = state.link.take() {
            state.retire(&old);
            state.last = Some(old.nonce);
            old.close(Close::Replaced);
        }
        let resume = Resume {
            knows: state.had_link,
            received: state.received.unwrap_or(0),
            max_requests: u32::try_from(core.limits.requests).unwrap_or(u32::MAX),
        };
        let max_requests = core.limits.requests;
        let link = Link::new(connection, nonce, is_ours, resume.knows, max_requests);
        let link = Arc::new(link);
        state.version = Some(info.version);
        state.had_link = true;
        state.link = Some(link.clone());
        self.status.send_modify(|status| {
            status.info = Some(info);
            status.error = None;
        });
        drop(state);
        core.changes.peer(self.id);
        Ok(Adopted { link, resume })
    }

    /// The other side has said where messages go on. From which one we write.
    fn resumed(&self, link: &Link, theirs: Resume) -> Option<u64> {
        let mut state = self.state.lock();
        if !state.is_current(link) {
            return None;
        }
        if state.was_heard && !theirs.knows {
            // It has forgotten us, as a new process would have.
            let (version, link) = (state.version, state.link.take());
            let incarnation = state.incarnation;
            self.begin_anew(&mut state, incarnation);
            (state.version, state.link, state.had_link) = (version, link, true);
        }
        state.was_heard = true;
        let granted = (theirs.max_requests as usize).clamp(1, MAX_REQUESTS);
        if granted > state.granted {
            self.slots.add_permits(granted - state.granted);
        } else {
            self.slots.forget_permits(state.granted - granted);
        }
        state.granted = granted;
        // What it says about messages of ours from before we knew it is not about us.
        let through = if link.knew && theirs.knows {
            theirs.received
        } else {
            0
        };
        self.outbox.accept(through);
        // Still under the lock, so that requests keep their order.
        link.call_again(self.calls.all());
        Some(through + 1)
    }

    /// A batch of one-way messages, of which the first has this number, has arrived on a link.
    fn accept(
        &self,
        link: &Link,
        first: u64,
        mut batch: Batch,
        to: mpsc::Permit<'_, (Incarnation, Batch)>,
    ) -> Accepted {
        let mut state = self.state.lock();
        if !state.is_current(link) {
            return Accepted::Stale;
        }
        let through = first + batch.count - 1;
        if let Some(received) = state.received {
            if first > received + 1 {
                return Accepted::Gap;
            }
            batch.leave_out(received + 1 - first);
            if batch.count == 0 {
                return Accepted::Yes;
            }
        }
        state.received = Some(through);
        to.send((state.incarnation, batch));
        Accepted::Yes
    }

    /// A request has arrived on a link: what to do with it, and the epoch of its id. `None` if the link is not
    /// current any more: the peer asks again on the next, or another process has taken its place.
    fn admit(&self, link: &Link, id: u64, floor: u64, bytes: usize) -> Option<(Admit, u64)> {
        let state = self.state.lock();
        if !state.is_current(link) {
            return None;
        }
        // Still under the lock, so that no id of before comes after those of another process.
        let mut answers = self.answers.lock();
        let admitted = answers.admit(id, floor, bytes);
        Some((admitted, answers.epoch()))
    }

    /// The peer has said on a link that it does not wait for a request any more.
    fn cancelled(&self, link: &Link, id: u64) {
        let state = self.state.lock();
        if state.is_current(link) {
            self.answers.lock().cancel(id);
        }
    }

    /// A link has ended.
    pub(crate) fn lost(&self, link: &Link, why: Lost) {
        let mut state = self.state.lock();
        if !state.is_current(link) {
            return;
        }
        state.retire(link);
        state.last = Some(link.nonce);
        state.link = None;
        self.status.send_modify(|status| {
            status.info = None;
            status.lost = Some(why);
        });
        drop(state);
        if let Some(core) = self.core.upgrade() {
            core.changes.peer(self.id);
        }
    }

    /// A new request, on its way if there is a link: for whatever incarnation of the peer there is then, or for this
    /// one only.
    fn call(
        &self,
        incarnation: Option<Incarnation>,
        body: Bytes,
        deadline: Instant,
        slot: Arc<OwnedSemaphorePermit>,
    ) -> Result<(u64, calls::Waiter), CallError> {
        // Under the lock, so that requests go out in the order of their ids.
        let state = self.state.lock();
        if incarnation.is_some_and(|incarnation| incarnation != state.incarnation) {
            return Err(CallError::OtherIncarnation);
        }
        let (id, waiter) = self.calls.begin(body, deadline, incarnation.is_some())?;
        if let Some(link) = &state.link {
            link.call(id, slot);
        }
        Ok((id, waiter))
    }

    fn cancel(&self, id: u64) {
        if self.calls.cancel(id)
            && let Some(link) = self.link()
        {
            link.cancel(id);
        }
    }

    /// The link to write to, if there is one.
    fn link(&self) -> Option<Arc<Link>> {
        self.state.lock().link.clone()
    }

    /// Waits until the peer has accepted all one-way messages.
    pub(crate) async fn flushed(&self) {
        self.outbox.flushed().await;
    }

    pub(crate) fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    /// This incarnation of the peer is known to be there, or a later one. What is sent from now on is for it, and
    /// arrives though it may not be connected yet.
    pub(crate) fn expect(&self, incarnation: Incarnation) {
        let mut state = self.state.lock();
        if incarnation <= state.incarnation {
            return;
        }
        let had_link = state.link.is_some();
        self.is_in(&mut state, incarnation);
        if had_link {
            self.status.send_modify(|status| {
                status.info = None;
                status.lost = Some(Lost::Restarted);
            });
        }
        drop(state);
        if let (true, Some(core)) = (had_link, self.core.upgrade()) {
            core.changes.peer(self.id);
        }
    }

    /// Ends all that concerns the peer.
    pub(crate) fn close(&self, why: Close) {
        let link = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.link.take()
        };
        if let Some(link) = link {
            link.close(why);
        }
        self.bulk.close(why);
        self.streams.close(why);
        self.outbox.close();
        self.calls.close();
        self.slots.close();
        self.answers.lock().reset();
        self.status.send_modify(|status| {
            status.info = None;
            status.lost = Some(Lost::Closed);
            status.is_closed = true;
        });
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }

    /// The peer is in this incarnation, which is later than what was known.
    fn is_in(&self, state: &mut State, incarnation: Incarnation) {
        if state.incarnation == Incarnation::default() {
            // It was not known in which: what waits is for whichever there is.
            self.outbox.is_for(incarnation);
        } else {
            self.begin_anew(state, incarnation);
        }
        state.incarnation = incarnation;
    }

    /// Drops what belongs to an incarnation of the peer that is over, and begins this one.
    fn begin_anew(&self, state: &mut State, incarnation: Incarnation) {
        self.outbox.begin_anew(incarnation);
        self.calls.restarted();
        self.answers.lock().reset();
        self.bulk.close(Close::Replaced);
        self.streams.close(Close::Replaced);
        if let Some(link) = state.link.take() {
            state.retire(&link);
            link.close(Close::Replaced);
        }
        (state.received, state.last, state.version) = (None, None, None);
        (state.had_link, state.was_heard) = (false, false);
    }
}

impl State {
    fn is_current(&self, link: &Link) -> bool {
        self.link
            .as_ref()
            .is_some_and(|current| std::ptr::eq(&**current, link))
    }
}

/// Hands one-way messages to the service, one after the other, whatever link they came by.
async fn deliver(
    peer: Arc<PeerCore>,
    inbound: Arc<dyn Inbound>,
    mut batches: mpsc::Receiver<(Incarnation, Batch)>,
) {
    while let Some((incarnation, batch)) = batches.recv().await {
        inbound.one_ways(peer.clone(), incarnation, batch).await;
    }
}
