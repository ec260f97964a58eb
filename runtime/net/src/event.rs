//! Who came and who went.
//!
//! Owns the events and their order. Events are worked out from what is: for each peer what was told last
//! is compared with what holds now, so at most one peer's change waits for each peer, nothing is lost, and
//! a connection that was replaced by another within the same incarnations is not told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use wasmrun_model::id::{Incarnation, NodeId};

use crate::core::Core;
use crate::error::{ConnectError, Lost};
use crate::peer::{Peer, PeerCore, PeerInfo};
use crate::service::Protocol;

/// How many refusals may wait to be told; more are only logged.
const REFUSALS: usize = 64;

/// Something about peers that the node should know.
#[derive(Debug)]
pub enum Event<P: Protocol> {
    /// A peer is there, for the first time or again.
    Connected {
        /// The peer.
        peer: Peer<P>,
        /// Who and what it is.
        info: PeerInfo,
    },
    /// There is no connection to it any more. It is dialled again if an address is known.
    Lost {
        /// Which.
        id: NodeId,
        /// Which incarnation of it.
        incarnation: Incarnation,
        /// Why.
        why: Lost,
    },
    /// Somebody was turned away, or broke the protocol before it was a peer.
    Refused {
        /// From where.
        from: SocketAddr,
        /// Why.
        why: ConnectError,
    },
}

pub(crate) enum CoreEvent {
    Connected(Arc<PeerCore>, PeerInfo),
    Lost(NodeId, Incarnation, Lost),
    Refused(SocketAddr, ConnectError),
}

impl<P: Protocol> Event<P> {
    pub(crate) fn new(event: CoreEvent) -> Self {
        match event {
            CoreEvent::Connected(peer, info) => Self::Connected {
                peer: Peer::new(peer),
                info,
            },
            CoreEvent::Lost(id, incarnation, why) => Self::Lost {
                id,
                incarnation,
                why,
            },
            CoreEvent::Refused(from, why) => Self::Refused { from, why },
        }
    }
}

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Changes {
    changed: Mutex<BTreeSet<NodeId>>,
    wake: Notify,
    refusals: mpsc::Sender<(SocketAddr, ConnectError)>,
}

/// The other end.
pub(crate) type Refusals = mpsc::Receiver<(SocketAddr, ConnectError)>;

impl Changes {
    pub(crate) fn new() -> (Self, Refusals) {
        let (refusals, receiver) = mpsc::channel(REFUSALS);
        let changes = Self {
            changed: Mutex::default(),
            wake: Notify::new(),
            refusals,
        };
        (changes, receiver)
    }

    pub(crate) fn peer(&self, id: NodeId) {
        self.changed.lock().insert(id);
        self.wake.notify_one();
    }

    pub(crate) fn refused(&self, from: SocketAddr, why: ConnectError) {
        match &why {
            // Whoever has dialled is gone: a node that is told to stop while it dials, for one.
            ConnectError::Lost { .. } => {
                tracing::info!(%from, error = %why, "somebody left before being let in");
            }
            _ => tracing::warn!(%from, error = %why, "somebody was turned away"),
        }
        // A flood of refusals is not worth memory.
        let _ = self.refusals.try_send((from, why));
    }
}

/// Tells events, for ever.
pub(crate) async fn tell(core: Arc<Core>, mut refusals: Refusals) {
    let mut told: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
    // Between two connections with the same incarnation.
    let mut replaced: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
    loop {
        tokio::select! {
            () = core.changes.wake.notified() => {}
            refused = refusals.recv() => {
                if let Some((from, why)) = refused {
                    core.handler.event(CoreEvent::Refused(from, why));
                }
                continue;
            }
        }
        while let Some(id) = core.changes.changed.lock().pop_first() {
            let now = core
                .known_peer(id)
                .map(|peer| (peer.clone(), peer.status()));
            let info = now.as_ref().and_then(|(_, status)| status.info.clone());
            let before = told.get(&id).copied();
            if let Some(before) = before
                && info.as_ref().map(|info| info.incarnation) != Some(before)
            {
                let why = match (&info, &now) {
                    (Some(_), _) => Lost::Restarted,
                    (None, Some((_, status))) => status.lost.clone().unwrap_or(Lost::Closed),
                    (None, None) => Lost::Closed,
                };
                match why {
                    Lost::Replaced => {
                        tracing::debug!(peer = %id, %why, "a connection with a peer has ended");
                        replaced.insert(id, before);
                    }
                    _ => {
                        tracing::info!(peer = %id, incarnation = before.0, %why, "a peer is lost");
                    }
                }
                told.remove(&id);
                core.handler.event(CoreEvent::Lost(id, before, why));
            }
            if let (Some(info), Some((peer, _))) = (info, now)
                && before != Some(info.incarnation)
            {
                let incarnation = info.incarnation.0;
                match replaced.remove(&id) == Some(info.incarnation) {
                    true => tracing::debug!(peer = %id, incarnation, "a peer is connected"),
                    false => tracing::info!(peer = %id, incarnation, "a peer is connected"),
                }
                told.insert(id, info.incarnation);
                core.handler.event(CoreEvent::Connected(peer, info));
            }
        }
    }
}
