//! Who came and who went.
//!
//! Owns the events and their order. Must not: decide what is done about them. Events are worked out from what is: for
//! each peer what was told last is compared with what holds now, so nothing is lost, and a connection that was replaced
//! by another within the same incarnations is not told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use wasmrun_model::id::{Incarnation, NodeId};

use crate::peer::{Core, Peer, PeerCore, PeerInfo, Refusals};
use crate::wire::{ConnectError, Lost, Protocol};

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

/// Tells events, for ever.
pub(crate) async fn tell(
    core: Arc<Core>,
    mut refusals: Refusals,
    event: impl Fn(CoreEvent) + Send + 'static,
) {
    let mut told: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
    // Between two connections with the same incarnation.
    let mut replaced: BTreeMap<NodeId, Incarnation> = BTreeMap::new();
    loop {
        tokio::select! {
            () = core.changes.changed() => {}
            refused = refusals.recv() => {
                if let Some((from, why)) = refused {
                    event(CoreEvent::Refused(from, why));
                }
                continue;
            }
        }
        while let Some(id) = core.changes.take() {
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
                event(CoreEvent::Lost(id, before, why));
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
                event(CoreEvent::Connected(peer, info));
            }
        }
    }
}
