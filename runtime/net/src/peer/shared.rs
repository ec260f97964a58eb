//! What all peers of a network share.
//!
//! Owns the peers, the endpoints that they are dialled from, the tasks, and what is known of incarnations. Must not: know
//! types of messages, or clients.
//! Invariant: all that is spawned is in [`Tasks`], and ends when the network is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use quinn::{ClientConfig, Endpoint};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::random::Random;

use super::{Changes, Inbound, PeerCore};
use crate::config::{Limits, Timing};
use crate::identity::ClusterId;
use crate::transport::tls::Tls;
use crate::transport::{self, Kind};
use crate::wire::hello::{Refusal, Version};
use crate::wire::{Close, ConnectError};

/// Who we are to others.
#[derive(Debug, Clone)]
pub(crate) struct Me {
    pub(crate) cluster: ClusterId,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) version: Version,
    pub(crate) advertise: Vec<SocketAddr>,
}

pub(crate) struct Core {
    pub(crate) me: Me,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) inbound: Arc<dyn Inbound>,
    pub(crate) endpoint: Endpoint,
    /// Bulk data arrives on a socket of its own, so that messages do not wait behind it.
    pub(crate) bulk_endpoint: Endpoint,
    pub(crate) tls: Mutex<Tls>,
    pub(crate) tasks: Tasks,
    pub(crate) changes: Changes,
    pub(crate) closing: watch::Sender<bool>,
    peers: Mutex<BTreeMap<NodeId, Arc<PeerCore>>>,
    incarnations: Mutex<BTreeMap<NodeId, Incarnation>>,
    /// Who is none of us any more.
    removed: Mutex<BTreeSet<NodeId>>,
    random: Mutex<Random>,
}

/// What a core is made of that it does not make itself.
pub(crate) struct Parts {
    pub(crate) me: Me,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) inbound: Arc<dyn Inbound>,
    pub(crate) endpoint: Endpoint,
    pub(crate) bulk_endpoint: Endpoint,
    pub(crate) tls: Tls,
    pub(crate) changes: Changes,
    pub(crate) seed: u64,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let [id @ .., _, _, _, _, _, _, _, _] = *parts.me.id.as_bytes();
        // Two nodes that are given the same seed must not give two connections with each other one name.
        let seed = parts.seed ^ u64::from_le_bytes(id);
        Arc::new(Self {
            me: parts.me,
            limits: parts.limits,
            timing: parts.timing,
            inbound: parts.inbound,
            endpoint: parts.endpoint,
            bulk_endpoint: parts.bulk_endpoint,
            tls: Mutex::new(parts.tls),
            tasks: Tasks::default(),
            changes: parts.changes,
            closing: watch::Sender::new(false),
            peers: Mutex::default(),
            incarnations: Mutex::default(),
            removed: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
        })
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    pub(crate) fn known_peer(&self, id: NodeId) -> Option<Arc<PeerCore>> {
        self.peers.lock().get(&id).cloned()
    }

    pub(crate) fn all_peers(&self) -> Vec<Arc<PeerCore>> {
        self.peers.lock().values().cloned().collect()
    }

    /// The peer with this id, made if need be and if there is room.
    pub(crate) fn peer(self: &Arc<Self>, id: NodeId) -> Result<Arc<PeerCore>, Refusal> {
        if id == self.me.id {
            return Err(Refusal::Itself);
        }
        let mut peers = self.peers.lock();
        if self.is_closing() {
            return Err(Refusal::Closing);
        }
        if let Some(peer) = peers.get(&id) {
            return Ok(peer.clone());
        }
        if peers.len() >= self.limits.nodes {
            return Err(Refusal::Full);
        }
        let peer = PeerCore::start(self, id);
        peers.insert(id, peer.clone());
        // Who sees a later one from now on finds the peer.
        if let Some(known) = self.incarnations.lock().get(&id) {
            peer.expect(*known);
        }
        Ok(peer)
    }

    /// Lets go of a peer: what waits for it fails, and what is known of it is gone, but for its
    /// incarnation.
    pub(crate) fn forget(&self, id: NodeId) {
        let peer = self.peers.lock().remove(&id);
        if let Some(peer) = peer {
            peer.close(Close::Forgotten);
            self.changes.peer(id);
        }
    }

    /// An incarnation of a node is known; older ones are refused from now on.
    ///
    /// # Errors
    /// When a later one is known, or the node was removed.
    pub(crate) fn saw(&self, id: NodeId, incarnation: Incarnation) -> Result<(), Refusal> {
        if self.removed.lock().contains(&id) {
            return Err(Refusal::Removed);
        }
        let mut incarnations = self.incarnations.lock();
        let known = incarnations.entry(id).or_insert(incarnation);
        if incarnation < *known {
            return Err(Refusal::OldIncarnation { known: *known });
        }
        *known = incarnation;
        Ok(())
    }

    /// From now on these, and no others, are refused, and let go of.
    pub(crate) fn set_removed(&self, nodes: BTreeSet<NodeId>) {
        // First: a connection that is being made looks at this, and then whether its peer was let go of.
        self.removed.lock().clone_from(&nodes);
        for node in nodes {
            self.forget(node);
        }
    }

    pub(crate) fn draw(&self) -> u64 {
        self.random.lock().next()
    }

    /// How to dial a member.
    pub(crate) fn dial_config(&self, to: IpAddr, kind: Kind) -> ClientConfig {
        let tls = self.tls.lock().member.clone();
        transport::client(tls, to, kind, &self.timing)
    }

    /// Ends all of it, at once.
    pub(crate) fn stop(&self) {
        self.stop_connections();
        self.tasks.stop();
    }

    /// Ends all connections; the tasks end by that, or are to be ended.
    pub(crate) fn stop_connections(&self) {
        self.closing.send_replace(true);
        let peers = std::mem::take(&mut *self.peers.lock());
        for peer in peers.values() {
            peer.close(Close::Done);
        }
        for endpoint in [&self.endpoint, &self.bulk_endpoint] {
            endpoint.close(Close::Done.code(), b"");
        }
    }

    pub(crate) fn refused(&self, from: SocketAddr, why: ConnectError) {
        self.changes.refused(from, why);
    }
}

/// All that is spawned.
#[derive(Debug)]
pub(crate) struct Tasks(Mutex<Option<JoinSet<()>>>);

impl Default for Tasks {
    fn default() -> Self {
        Self(Mutex::new(Some(JoinSet::new())))
    }
}

impl Tasks {
    /// Starts a task; not when all has been stopped.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        self.spawn_on(task, &Handle::current())
    }

    /// The same on another runtime.
    pub(crate) fn spawn_on(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
        runtime: &Handle,
    ) -> Option<AbortHandle> {
        let mut tasks = self.0.lock();
        let tasks = tasks.as_mut()?;
        // What has ended is let go of here; a panic in it was reported by the runtime.
        while tasks.try_join_next().is_some() {}
        Some(tasks.spawn_on(task, runtime))
    }

    fn stop(&self) {
        // Dropped, it aborts all of them.
        drop(self.0.lock().take());
    }

    /// Stops all and waits until they have ended.
    pub(crate) async fn finish(&self) {
        let tasks = self.0.lock().take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }
}
