//! The network as the node uses it: start, find peers, close.
//!
//! Owns the public face of a [`Core`], and how the parts are put together. Invariant: nothing of it runs on after
//! [`Network::close`], or after the last clone was dropped.

use std::collections::BTreeSet;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use quinn::AsyncUdpSocket;
use tokio::runtime::Handle;
use wasmrun_model::id::{Incarnation, NodeId};

use crate::accept::{self, Acceptor};
use crate::bulk::BulkServer;
use crate::config::Config;
use crate::event;
use crate::identity::{self, ClientId, Identity, IdentityError, Role};
use crate::peer::{Changes, Core, Me, Parts, Peer, dial};
use crate::service::{Handler, Service, Typed};
use crate::session::Sessions;
use crate::transport;
use crate::transport::socket;
use crate::transport::tls::Tls;
use crate::wire::hello::{MAX_ADDRESSES, Refusal};
use crate::wire::{ConnectError, Protocol};

/// All connections of one process. Cheap to clone; closed when the last clone is dropped.
pub struct Network<P> {
    owner: Arc<Owner>,
    protocol: PhantomData<fn() -> P>,
}

struct Owner {
    core: Arc<Core>,
    sessions: Arc<Sessions>,
    /// Those of the endpoints for messages and for bulk.
    sockets: [Weak<dyn AsyncUdpSocket>; 2],
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.core.stop();
    }
}

impl<P> Clone for Network<P> {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner.clone(),
            protocol: PhantomData,
        }
    }
}

impl<P> std::fmt::Debug for Network<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Network({})", self.owner.core.me.id)
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be used.
    #[error("{address} cannot be listened on: name a free UDP port of this machine")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The identity cannot be used.
    #[error("this identity cannot be used for TLS ({0}): join the cluster again")]
    Identity(String),
    /// Something is set that cannot work.
    #[error("{0}")]
    Config(&'static str),
}

impl<P: Protocol> Network<P> {
    /// Opens the sockets and begins to accept. To be called in a tokio runtime, which all of it runs on.
    ///
    /// # Errors
    /// When the address is taken, or the configuration makes no sense.
    pub fn start(config: Config, service: Arc<impl Service<P>>) -> Result<Self, StartError> {
        check(&config)?;
        let Role::Node(id) = config.identity.role() else {
            return Err(StartError::Config(
                "only a node has a network; a client opens sessions",
            ));
        };
        let tls = Tls::new(&config.identity);
        let tls = tls.map_err(|error| StartError::Identity(error.to_string()))?;
        let here = Handle::current();
        let bulk_lane = config.bulk.unwrap_or_else(|| here.clone());
        let listen = |address, lane| {
            transport::watched_endpoint(address, lane)
                .map_err(|source| StartError::Listen { address, source })
        };
        let (endpoint, socket) = listen(config.listen, here)?;
        let any: IpAddr = match config.listen.ip() {
            ip if ip.is_loopback() => ip,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (bulk_endpoint, bulk_socket) = listen(SocketAddr::new(any, 0), bulk_lane.clone())?;
        endpoint.set_server_config(Some(transport::server(&tls, any, &config.timing)));
        let (changes, refusals) = Changes::new();
        let max_bytes = config.limits.message_bytes;
        let handler = Arc::new(Typed::<P, _>::new(service, max_bytes));
        let core = Core::new(Parts {
            me: Me {
                cluster: config.identity.cluster(),
                id,
                incarnation: config.incarnation,
                version: P::VERSION,
                advertise: config.advertise,
            },
            inbound: handler.clone(),
            limits: config.limits,
            timing: config.timing,
            endpoint,
            bulk_endpoint,
            tls,
            changes,
            seed: config
                .seed
                .unwrap_or_else(|| u64::from_le_bytes(identity::random())),
        });
        let sessions = Arc::new(Sessions::default());
        let bulk = BulkServer::new(core.clone(), handler.clone());
        let acceptor = Acceptor::new(
            core.clone(),
            handler.clone(),
            sessions.clone(),
            config.enrolment,
            (bulk, bulk_lane),
        );
        let tell = move |event| handler.event(event);
        core.tasks.spawn(event::tell(core.clone(), refusals, tell));
        core.tasks.spawn(accept::listen(Arc::new(acceptor)));
        Ok(Self {
            owner: Arc::new(Owner {
                core,
                sessions,
                sockets: [socket, bulk_socket],
            }),
            protocol: PhantomData,
        })
    }

    /// Where we listen.
    ///
    /// # Errors
    /// When the socket is out of order.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.core().endpoint.local_addr()
    }

    /// Who we are to others.
    pub fn id(&self) -> NodeId {
        self.core().me.id
    }

    /// A node, dialled at these addresses in turn whenever there is no connection, until it is
    /// forgotten. Without addresses it is waited for.
    ///
    /// # Errors
    /// When there are as many nodes as there may be, when it is ourselves, and when we are closed.
    pub fn peer(&self, node: NodeId, addresses: Vec<SocketAddr>) -> Result<Peer<P>, ConnectError> {
        let peer = self.core().peer(node);
        let peer = peer.map_err(|why| match (why, addresses.first()) {
            (Refusal::Closing, _) | (_, None) => ConnectError::Closed,
            (why, Some(&address)) => ConnectError::WeRefuse { address, why },
        })?;
        if !addresses.is_empty() {
            peer.dial_at(addresses);
        }
        Ok(Peer::new(peer))
    }

    /// Connects to whichever node is at one of these addresses, and stays connected to that node.
    ///
    /// # Errors
    /// The last reason, when none of them can be connected to now.
    pub async fn connect(&self, addresses: Vec<SocketAddr>) -> Result<Peer<P>, ConnectError> {
        let mut last = ConnectError::NoAddress;
        for address in &addresses {
            match dial::control(self.core(), *address, None).await {
                Ok(peer) => {
                    peer.dial_at(addresses);
                    return Ok(Peer::new(peer));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The peer with this id, if we know it.
    pub fn find(&self, id: NodeId) -> Option<Peer<P>> {
        self.core().known_peer(id).map(Peer::new)
    }

    /// All peers that we know, connected or not, by id.
    pub fn peers(&self) -> Vec<Peer<P>> {
        self.core().all_peers().into_iter().map(Peer::new).collect()
    }

    /// Lets go of a peer: it is not dialled any more, what waits for it fails, and its one-way messages
    /// and answers are forgotten. It may come back as if for the first time.
    pub fn forget(&self, id: NodeId) {
        self.core().forget(id);
    }

    /// From now on incarnations of a node before this one are refused, and a connection with one is closed. What a peer
    /// is sent from then on is for this incarnation.
    pub fn expect(&self, node: NodeId, incarnation: Incarnation) {
        let core = self.core();
        // An error means that it is refused already, which is as good.
        let _ = core.saw(node, incarnation);
        if let Some(peer) = core.known_peer(node) {
            peer.expect(incarnation);
        }
    }

    /// Uses a renewed identity for connections from now on; those that are there stay.
    ///
    /// # Errors
    /// When it is another role's or cluster's, or cannot be used.
    pub fn set_identity(&self, identity: &Identity) -> Result<(), IdentityError> {
        let me = &self.core().me;
        if identity.role() != Role::Node(me.id) || identity.cluster() != me.cluster {
            return Err(IdentityError::Malformed("it is somebody else's"));
        }
        let tls = Tls::new(identity);
        let tls =
            tls.map_err(|_| IdentityError::Malformed("its key and certificate do not fit"))?;
        *self.core().tls.lock() = tls;
        Ok(())
    }

    /// From now on these clients have no sessions here and get no further certificates, and sessions that they have end.
    /// Instead of all that were named before.
    pub fn set_revoked(&self, clients: BTreeSet<ClientId>) {
        self.owner.sessions.set_revoked(clients);
    }

    /// From now on these nodes are refused, whoever dials, and connections with them are closed. Instead of all that were
    /// named before.
    pub fn set_removed(&self, nodes: BTreeSet<NodeId>) {
        self.core().set_removed(nodes);
    }

    /// Sends what is waiting for connected peers and clients, for as long as `Timing::close` says, and ends
    /// everything. Its ports are free then.
    pub async fn close(&self) {
        let core = self.core();
        let flushed = async {
            for peer in core.all_peers() {
                if peer.status().info.is_some() {
                    peer.flushed().await;
                }
            }
        };
        // Who does not read does not keep us.
        let ended = async { tokio::join!(flushed, self.owner.sessions.end()) };
        let _ = tokio::time::timeout(core.timing.close, ended).await;
        core.stop_connections();
        // A service that blocks its thread does not keep us either.
        let _ = tokio::time::timeout(core.timing.close, core.tasks.finish()).await;
        let idle = async {
            core.endpoint.wait_idle().await;
            core.bulk_endpoint.wait_idle().await;
        };
        let _ = tokio::time::timeout(core.timing.close, idle).await;
        let [socket, bulk_socket] = &self.owner.sockets;
        let freed = async {
            tokio::join!(
                socket::take_from(&core.endpoint, socket),
                socket::take_from(&core.bulk_endpoint, bulk_socket),
            )
        };
        let _ = tokio::time::timeout(core.timing.close, freed).await;
    }

    fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }
}

fn check(config: &Config) -> Result<(), StartError> {
    let limits = &config.limits;
    if limits.message_bytes < 1024 || limits.message_bytes > 1 << 30 {
        return Err(StartError::Config(
            "messages have at least 1 KiB and at most 1 GiB",
        ));
    }
    if limits.one_way_bytes < 1024 || limits.one_way_bytes > 1 << 30 {
        return Err(StartError::Config(
            "the queue of one-way messages has at least 1 KiB and at most 1 GiB",
        ));
    }
    if limits.requests == 0 || limits.handshakes == 0 || limits.bulk_serving == 0 {
        return Err(StartError::Config("limits of 0 would let nobody through"));
    }
    if config.advertise.len() > MAX_ADDRESSES {
        return Err(StartError::Config("at most 8 addresses can be advertised"));
    }
    Ok(())
}
