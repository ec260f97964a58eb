//! The network of the incarnation that this node is in.
//!
//! Owns starting it, and starting it anew for the next incarnation: nothing that was sent in one arrives in another.
//! Must not: know members or messages.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{ClientId, Config, Enrolment, Identity, Network, Peer, StartError, Timing};

use super::door::{Clients, Door};
use super::protocol::{self, ClusterProtocol};
use super::state::StateDir;

/// How soon a network is tried again that could not be started.
const AGAIN: Duration = Duration::from_millis(200);

/// How the network is started.
pub(super) struct Plan {
    /// Where to listen. Its port is 0 until the system has chosen one.
    pub(super) listen: SocketAddr,
    /// Where others reach us; a port of 0 is the one that we listen at.
    pub(super) advertise: Vec<SocketAddr>,
    /// Lets others join, at the head.
    pub(super) enrolment: Option<Enrolment>,
}

/// The network, once it is started and until it is closed.
pub(super) struct Lines {
    plan: Mutex<Plan>,
    door: Arc<Door>,
    /// Where objects come and go.
    bulk: Handle,
    network: Mutex<Option<Network<ClusterProtocol>>>,
    /// Whose certificates were taken back.
    revoked: Mutex<BTreeSet<ClientId>>,
    /// Who was taken out of the cluster.
    removed: Mutex<BTreeSet<NodeId>>,
    /// Whose control store we use, if it is another's, and where that is.
    head: Mutex<Option<(NodeId, Vec<SocketAddr>)>>,
}

impl Lines {
    pub(super) fn new(plan: Plan, door: Arc<Door>, bulk: Handle) -> Self {
        Self {
            plan: Mutex::new(plan),
            door,
            bulk,
            network: Mutex::default(),
            revoked: Mutex::default(),
            removed: Mutex::default(),
            head: Mutex::default(),
        }
    }

    /// Opens the network for an incarnation.
    pub(super) fn open(
        &self,
        identity: Identity,
        incarnation: Incarnation,
    ) -> Result<(), StartError> {
        let mut plan = self.plan.lock();
        let mut config = Config::new(identity, incarnation, plan.listen);
        config.advertise = plan.advertise.clone();
        config.enrolment = plan.enrolment.clone();
        config.limits = protocol::limits();
        config.bulk = Some(self.bulk.clone());
        let network = Network::start(config, self.door.clone())?;
        if let Ok(address) = network.local_address() {
            // The next incarnation listens at the same port, where others look for us.
            plan.listen.set_port(address.port());
        }
        network.set_revoked(self.revoked.lock().clone());
        network.set_removed(self.removed.lock().clone());
        *self.network.lock() = Some(network);
        Ok(())
    }

    /// From now on these clients are not let in, in this incarnation and the next ones, and their sessions end.
    pub(super) fn set_revoked(&self, clients: BTreeSet<ClientId>) {
        self.revoked.lock().clone_from(&clients);
        if let Some(network) = self.network() {
            network.set_revoked(clients);
        }
    }

    /// From now on these nodes are not talked to, in this incarnation and the next ones.
    pub(super) fn set_removed(&self, nodes: BTreeSet<NodeId>) {
        self.removed.lock().clone_from(&nodes);
        if let Some(network) = self.network() {
            network.set_removed(nodes);
        }
    }

    /// Who serves clients of other machines, in this incarnation and the next ones.
    pub(super) fn serve_clients(&self, clients: Weak<dyn Clients>) {
        self.door.serve_clients(clients);
    }

    /// Where others reach us.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let plan = self.plan.lock();
        let mut addresses = plan.advertise.clone();
        if addresses.is_empty() {
            addresses.push(plan.listen);
        }
        for address in &mut addresses {
            if address.port() == 0 {
                address.set_port(plan.listen.port());
            }
        }
        addresses
    }

    /// Closes the network of the incarnation before and opens that of the next. Tried until it is done.
    pub(super) async fn reopen(&self, state: &StateDir, incarnation: Incarnation) {
        self.close().await;
        loop {
            let opened = match Identity::load(state.path()) {
                Ok(identity) => self
                    .open(identity, incarnation)
                    .map_err(|it| it.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match opened {
                Ok(()) => return,
                Err(error) => tracing::warn!(error, "the network cannot be started anew"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    pub(super) async fn close(&self) {
        let network = self.network.lock().take();
        if let Some(network) = network {
            network.close().await;
        }
    }

    /// The network, unless it is closed.
    pub(super) fn network(&self) -> Option<Network<ClusterProtocol>> {
        self.network.lock().clone()
    }

    /// Where objects come and go.
    pub(super) fn bulk(&self) -> &Handle {
        &self.bulk
    }

    /// A peer that is known.
    pub(super) fn find(&self, node: NodeId) -> Option<Peer<ClusterProtocol>> {
        self.network.lock().as_ref()?.find(node)
    }

    /// From now on this node's control store is ours.
    pub(super) fn set_head(&self, node: NodeId, addresses: Vec<SocketAddr>) {
        *self.head.lock() = Some((node, addresses));
    }

    pub(super) fn head_id(&self) -> Option<NodeId> {
        self.head.lock().as_ref().map(|(node, _)| *node)
    }

    /// The node whose control store is ours, connected or not.
    pub(super) fn head(&self) -> Option<Peer<ClusterProtocol>> {
        let (node, addresses) = self.head.lock().clone()?;
        if let Some(head) = self.find(node) {
            return Some(head);
        }
        self.network()?.peer(node, addresses).ok()
    }

    pub(super) fn timing() -> Timing {
        Timing::default()
    }
}
