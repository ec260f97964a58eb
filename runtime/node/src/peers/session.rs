//! What is to be said to one incarnation of a peer.
//!
//! Owns the queue of each peer that is alive, its order, and its bound. Must not: decide what is said; an item becomes a
//! message when its turn comes, and nothing waits for room meanwhile.
//!
//! Invariants: messages are sent in the order in which they were queued, as long as both incarnations live. None is
//! dropped, since counts of references depend on each. So the queue is bounded where it is filled: output waits for
//! room, and a peer that takes nothing gets no new work (`cluster/silence`). The other messages are bounded by the
//! records that this node has of tasks, objects and actors of the peer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wasmrun_model::id::{Incarnation, NodeId, ObjectId};
use wasmrun_net::SendError;

use super::Exchange;
use super::arguments::SentArguments;
use super::oversize::Instead;
use super::protocol::{OneWay, Output};
use crate::ledger::Outgoing;
use crate::peers::Backlog;
use crate::records::actor::ActorCell;
use crate::records::object::Value;

/// How many bytes of output may wait for a peer.
const OUTPUT_BYTES: usize = 4 << 20;

/// What waits to be said.
pub(super) enum Queued {
    Message(OneWay),
    Outgoing(Box<Outgoing>),
    /// The state of an actor, as it is when its turn comes.
    Checkpoint(Arc<ActorCell>),
    /// What a task of the peer's wrote, with the room that it takes.
    Output(Box<Output>, OwnedSemaphorePermit),
}

/// See the [module](self).
pub(super) struct PeerSession {
    /// `None` once the peer has left: so the task that sends ends, and drops the session.
    queue: Mutex<Option<mpsc::UnboundedSender<Queued>>>,
    /// How many messages were queued, and how many of them the peer has taken.
    said: AtomicU64,
    taken: AtomicU64,
    output_room: Arc<Semaphore>,
    /// Whether the peer has left. Its messages are dropped then.
    is_over: AtomicBool,
    /// Arguments of its tasks that the peer is to fetch.
    pub(super) arguments: SentArguments,
}

/// The other end of a [`PeerSession`].
pub(super) type Queue = mpsc::UnboundedReceiver<Queued>;

impl PeerSession {
    fn new() -> (Arc<Self>, Queue) {
        let (queue, other_end) = mpsc::unbounded_channel();
        let session = Self {
            queue: Mutex::new(Some(queue)),
            said: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            output_room: Arc::new(Semaphore::new(OUTPUT_BYTES)),
            is_over: AtomicBool::new(false),
            arguments: SentArguments::default(),
        };
        (Arc::new(session), other_end)
    }

    /// False if the peer has left.
    pub(super) fn say(&self, queued: Queued) -> bool {
        let queue = self.queue.lock();
        let is_said = queue.as_ref().is_some_and(|it| it.send(queued).is_ok());
        drop(queue);
        self.said.fetch_add(u64::from(is_said), Ordering::Relaxed);
        is_said
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let queue = self.queue.lock().take();
        drop(queue);
        // Tasks that write to it go on.
        self.output_room.close();
    }

    fn backlog(&self) -> Backlog {
        let taken = self.taken.load(Ordering::Relaxed);
        let waiting = self.said.load(Ordering::Relaxed).saturating_sub(taken);
        Backlog { waiting, taken }
    }
}

/// The sessions of all peers that are alive.
#[derive(Default)]
pub(super) struct PeerSessions(Mutex<BTreeMap<NodeId, Arc<PeerSession>>>);

impl PeerSessions {
    /// A peer has come.
    pub(super) fn open(&self, peer: NodeId) -> (Arc<PeerSession>, Queue) {
        let (session, queue) = PeerSession::new();
        self.0.lock().insert(peer, session.clone());
        (session, queue)
    }

    /// A peer has left.
    pub(super) fn close(&self, peer: &NodeId) {
        let session = self.0.lock().remove(peer);
        session.inspect(|it| it.end());
    }

    pub(super) fn get(&self, peer: &NodeId) -> Option<Arc<PeerSession>> {
        self.0.lock().get(peer).cloned()
    }

    pub(super) fn has(&self, peer: &NodeId) -> bool {
        self.0.lock().contains_key(peer)
    }

    pub(super) fn peers(&self) -> Vec<NodeId> {
        self.0.lock().keys().copied().collect()
    }

    pub(super) fn backlog(&self, peer: &NodeId) -> Backlog {
        self.get(peer)
            .map_or_else(Backlog::default, |it| it.backlog())
    }

    /// An argument that was given to some peer.
    pub(super) fn argument(&self, id: &ObjectId) -> Option<Value> {
        let sessions = self.0.lock();
        sessions.values().find_map(|it| it.arguments.find(id))
    }
}

impl Exchange {
    /// Queues something for a peer. False if that is not there, or has left.
    pub(super) fn queue(&self, to: NodeId, queued: Queued) -> bool {
        self.sessions.get(&to).is_some_and(|it| it.say(queued))
    }

    /// Queues a message for a peer. False if that is not there, or has left.
    pub(super) fn send(&self, to: NodeId, message: OneWay) -> bool {
        self.queue(to, Queued::Message(message))
    }

    /// Queues output of a peer's task, when there is room for it.
    pub(super) async fn send_output(this: &Weak<Self>, to: NodeId, output: Output) {
        let Some(session) = this.upgrade().and_then(|it| it.sessions.get(&to)) else {
            return;
        };
        let bytes = output.bytes.0.len().clamp(1, OUTPUT_BYTES);
        let room = session.output_room.clone().acquire_many_owned(bytes as u32);
        if let Ok(room) = room.await {
            session.say(Queued::Output(Box::new(output), room));
        }
    }

    /// Sends what is queued to an incarnation of a peer, at the pace at which that takes it.
    pub(super) async fn talk(
        this: Weak<Self>,
        to: (NodeId, Incarnation),
        session: Arc<PeerSession>,
        mut queue: Queue,
    ) {
        while let Some(queued) = queue.recv().await {
            let Some(exchange) = this.upgrade().filter(|_| !session.is_over()) else {
                return;
            };
            let mut room = None;
            let message = match queued {
                Queued::Message(message) => Some(message),
                Queued::Outgoing(outgoing) => Some(exchange.encode(to.0, &session, *outgoing)),
                Queued::Checkpoint(actor) => exchange.state_order(&actor),
                Queued::Output(output, its_room) => {
                    room = Some(its_room);
                    Some(OneWay::Output(output))
                }
            };
            drop(exchange);
            if let Some(message) = message {
                Self::transmit(&this, to, message).await;
            }
            session.taken.fetch_add(1, Ordering::Relaxed);
            drop(room);
        }
    }

    async fn transmit(this: &Weak<Self>, to: (NodeId, Incarnation), message: OneWay) {
        let fabric = this.upgrade().and_then(|exchange| exchange.fabric());
        let Some(fabric) = fabric else {
            return;
        };
        let instead = Instead::of(&message);
        match fabric.send(to, message).await {
            Ok(()) => {}
            Err(SendError::Message(error)) => {
                tracing::warn!(node = %to.0, %error, "a message to another node is too long");
                // The receiver, or the task's owner, hears why.
                match (instead, this.upgrade()) {
                    (Some(Instead::Say(shorter, lent)), exchange) => {
                        let _ = fabric.send(to, shorter).await;
                        if let Some(exchange) = exchange {
                            exchange.unsaid(to.0, &lent);
                        }
                    }
                    (Some(Instead::Fail(unsent)), Some(exchange)) => {
                        exchange.cannot_be_sent(to.0, unsent, &error);
                    }
                    _ => {}
                }
            }
            Err(error) => {
                tracing::info!(node = %to.0, %error, "a message is dropped: its receiver has left")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use wasmrun_model::id::TaskId;
    use wasmrun_model::wire::Bytes;

    use super::*;

    const PEER: NodeId = NodeId::from_bytes([2; 16]);

    fn output(bytes: usize) -> Output {
        Output {
            task: TaskId::from_bytes([3; 16]),
            writer: 0,
            attempt: 1,
            is_stderr: false,
            bytes: Bytes(vec![0; bytes]),
        }
    }

    #[test]
    fn output_waits_until_the_peer_takes_some_or_has_left() {
        let exchange = Exchange::alone(NodeId::from_bytes([1; 16]));
        let (_, mut queue) = exchange.sessions.open(PEER);
        let this = Arc::downgrade(&exchange);
        let write = |bytes| Exchange::send_output(&this, PEER, output(bytes));
        // Of one chunk there may be more than there is room.
        assert!(write(2 * OUTPUT_BYTES).now_or_never().is_some());
        let mut next = pin!(write(1));
        assert!(next.as_mut().now_or_never().is_none());
        // What else is said does not wait.
        assert!(exchange.send(PEER, OneWay::EndLeft(TaskId::from_bytes([3; 16]))));
        drop(queue.try_recv());
        assert!(next.now_or_never().is_some());
        let mut last = pin!(write(OUTPUT_BYTES));
        assert!(last.as_mut().now_or_never().is_none());
        exchange.sessions.close(&PEER);
        assert!(last.now_or_never().is_some());
        // Its task ends, and drops its arguments.
        while let Ok(queued) = queue.try_recv() {
            drop(queued);
        }
        assert!(queue.is_closed());
        assert!(!exchange.send(PEER, OneWay::EndLeft(TaskId::from_bytes([3; 16]))));
    }
}
