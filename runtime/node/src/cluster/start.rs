//! How a node comes into its cluster: a new one, one that it joins, or the one it was in before.
//!
//! Owns the steps from a state folder to a network, a control store and a name. Nobody knows of this node
//! until it is registered, which comes after.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use wasmrun_control::etcd::{Etcd, EtcdConfig, EtcdConfigError, EtcdTls};
use wasmrun_control::membership::MembershipError;
use wasmrun_control::remote::{Remote, RemoteConfig, Server, ServerLimits};
use wasmrun_control::{ClientId, ControlStore, Embedded, EmbeddedConfig, LeaseKeeper, OpenError};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::NodeId;
use wasmrun_net::{
    Authority, AuthorityError, ConnectError, Enrolment, Identity, IdentityError, JoinError,
    Refusal, Role, Token, TokenKind,
};
use wasmrun_oidc::People;

use super::door::Door;
use super::lines::{Lines, Plan};
use super::link::HeadLink;
use super::measured::Measured;
use super::members::Members;
use super::secrets::Keys;
use super::state::{CONTROL, Head, StateDir, StateError};
use super::tokens::StoreEnroll;
use super::views::Views;
use super::{Cluster, membership, removed, renew};
use crate::audit::Audit;

/// The port that a node listens at if nobody says otherwise.
pub const DEFAULT_PORT: u16 = 7461;
/// How long a head that does not answer is waited for.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How soon it is tried again.
const AGAIN: Duration = Duration::from_millis(250);

/// How a node is part of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Where the node keeps who it is.
    pub state_dir: PathBuf,
    /// Which part it has.
    pub part: Part,
    /// The control store's etcd servers; without them the head has the control store.
    pub etcd: Option<EtcdOptions>,
    /// How people log in at the head without a token.
    pub oidc: Option<wasmrun_oidc::Settings>,
    /// Where to listen; [`DEFAULT_PORT`] of the loopback address, or of the one that reaches the head.
    pub listen: Option<SocketAddr>,
    /// Where others reach this node; where it listens, if nothing is said. A port of 0 is the one where it
    /// listens. At most 8.
    pub advertise: Vec<SocketAddr>,
    /// How soon a node that says nothing counts as dead: 1 s to 24 h.
    pub lease_ttl: Duration,
}

/// The part of a node in its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Makes the cluster, lets others join, and has the control store unless etcd does.
    Head,
    /// Joins with a token, or comes back.
    Member(Option<Token>),
}

/// Where etcd is.
#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT` each.
    pub endpoints: Vec<String>,
    /// For `https`.
    pub tls: EtcdTls,
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        write!(f, "EtcdOptions({})", self.endpoints.join(","))
    }
}

/// Why a node is not in its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Its state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// The folder is not a head's.
    #[error(
        "{} is the folder of a node that joined a cluster, and not of a head: start it with --join, or give the head another --state-dir", path.display()
    )]
    NotHead {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is a head's.
    #[error(
        "{} is the folder of a cluster's head: start it with --head, or give this node another --state-dir", path.display()
    )]
    IsHead {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is of another cluster.
    #[error(
        "{} is the folder of a node of another cluster than the token's: remove it to leave that cluster, or give this node another --state-dir", path.display()
    )]
    OtherCluster {
        /// The folder.
        path: PathBuf,
    },
    /// There is neither a folder of a member nor a token.
    #[error(
        "{} is not the folder of a node that has joined a cluster: join with `--join TOKEN`, as the head prints it or `wasmrun node token create` does", path.display()
    )]
    NotJoined {
        /// The folder.
        path: PathBuf,
    },
    /// The token is for something else.
    #[error(
        "this token is for a client, and makes no node: use it with `wasmrun login TOKEN`, or make one for a node with \
         `wasmrun node token create`"
    )]
    ClientToken,
    /// The cluster's authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The node's identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Joining.
    #[error("this node cannot join: {0}")]
    Join(#[from] JoinError),
    /// The network.
    #[error(transparent)]
    Network(#[from] wasmrun_net::StartError),
    /// Others could not reach us.
    #[error(
        "{0} stands for all addresses of this machine, and others need one of them: name it with --advertise ADDRESS"
    )]
    Advertise(SocketAddr),
    /// The head is not there.
    #[error("the head at {} cannot be reached: {why}", addresses.join(", "))]
    Head {
        /// Where it was looked for.
        addresses: Vec<String>,
        /// What happened.
        why: String,
    },
    /// The embedded control store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// etcd's addresses.
    #[error(transparent)]
    Etcd(#[from] EtcdConfigError),
    /// The control store.
    #[error(transparent)]
    Store(#[from] wasmrun_control::Error),
    /// Registering.
    #[error(transparent)]
    Register(#[from] MembershipError),
    /// This node was taken out of the cluster.
    #[error(
        "this node was removed from its cluster (`wasmrun node remove`); to come back as another one, join with a token \
         (`wasmrun node token create`) and an empty --state-dir"
    )]
    Removed,
    /// Somebody else has the name.
    #[error("another node of the cluster is called '{0}': choose another --node-name")]
    Name(NodeName),
}

/// What a node says of itself before it has an id.
pub(crate) struct Face {
    pub(crate) name: NodeName,
    /// Nobody has said that it must be this one.
    pub(crate) is_name_proposed: bool,
}

/// A node that is in its cluster, and not registered yet.
pub(crate) struct Opened {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) name: NodeName,
    pub(crate) keeper: LeaseKeeper,
}

/// Who this node is.
struct Found {
    identity: Identity,
    authority: Option<Arc<Authority>>,
    /// Where the head is, at the others.
    head: Option<Head>,
}

/// Opens all that a node needs in its cluster. Must be called within the node's runtime.
pub(crate) async fn open(
    config: &ClusterConfig,
    face: Face,
    bulk: &Handle,
    audit: &Arc<Audit>,
) -> Result<Opened, ClusterError> {
    let state = StateDir::open(&config.state_dir)?;
    let found = match &config.part {
        Part::Head => find_head(&state)?,
        Part::Member(token) => find_member(&state, token.as_ref()).await?,
    };
    let Role::Node(id) = found.identity.role() else {
        return Err(IdentityError::Malformed("it is a client's").into());
    };
    let incarnation = state.next_incarnation()?;
    let members = Arc::new(Members::new());
    let (own, embedded) = own_store(config, &state, &found).await?;
    let server = embedded.clone();
    let server = server.map(|store| Server::new(store, ServerLimits::default()));
    let enrolment = match (&found.authority, &own) {
        (Some(authority), Some(store)) => Some(enrolment(config, authority, store, audit)),
        _ => None,
    };
    let plan = plan(config, found.head.as_ref(), enrolment).await?;
    let views = Arc::new(Views::new(id, incarnation));
    let keys = Arc::new(Keys::new(state.path(), found.authority.is_some()));
    let door = Door::new(
        members.clone(),
        views.clone(),
        keys.clone(),
        server,
        audit.clone(),
    );
    let door = Arc::new(door);
    let lines = Arc::new(Lines::new(plan, door, bulk.clone()));
    if let Some(own) = &own {
        // Before anybody can come in.
        lines.set_removed(removed::all(own.as_ref()).await?);
    }
    lines.open(found.identity, incarnation)?;
    let store = match (own, &found.head) {
        (Some(store), _) => store,
        (None, head) => {
            let head = head.clone().expect("who has no store has joined");
            reach_head(&state, &lines, head).await?;
            let client = ClientId(crate::records::ids::random());
            let link = Arc::new(HeadLink(lines.clone()));
            Arc::new(Remote::new(link, client, RemoteConfig::default()))
        }
    };
    let (store, latency) = Measured::around(store);
    if removed::is_removed(store.as_ref(), id).await? {
        return Err(ClusterError::Removed);
    }
    let lease = store.grant(config.lease_ttl).await?;
    let keeper = LeaseKeeper::new(store.clone(), lease);
    let is_proposed = face.is_name_proposed;
    let name = membership::claim_name(store.as_ref(), id, &keeper, &face.name, is_proposed);
    let name = name.await?;
    let cluster = Arc::new(Cluster::new(super::Parts {
        id,
        incarnation,
        state,
        lines,
        members,
        views,
        store,
        latency,
        embedded,
        authority: found.authority,
        keys,
        lease_ttl: config.lease_ttl,
    }));
    Ok(Opened {
        cluster,
        name,
        keeper,
    })
}

/// Lets nodes and clients in, and people who log in without a token, if they may.
fn enrolment(
    config: &ClusterConfig,
    authority: &Arc<Authority>,
    store: &Arc<dyn ControlStore>,
    audit: &Arc<Audit>,
) -> Enrolment {
    let people = config.oidc.clone().map(|settings| {
        let (issuer, authority) = (settings.issuer(), authority.fingerprint());
        tracing::info!(
            issuer,
            "people log in with `wasmrun login --oidc HOST:PORT --authority {authority}`"
        );
        People::new(settings)
    });
    Enrolment {
        authority: authority.clone(),
        enroll: Arc::new(StoreEnroll::new(store.clone(), audit.clone(), people)),
        lifetime: renew::LIFETIME,
    }
}

fn find_head(state: &StateDir) -> Result<Found, ClusterError> {
    let path = state.path();
    let is_known = state.has("authority.pem");
    if !is_known && state.has("identity.pem") {
        return Err(ClusterError::NotHead { path: path.into() });
    }
    let authority = match is_known {
        true => Authority::load(path)?,
        false => Authority::create(path)?,
    };
    let issue = |id| -> Result<Identity, ClusterError> {
        let identity = authority.issue(Role::Node(id), renew::LIFETIME)?;
        identity.save(path)?;
        Ok(identity)
    };
    // A crash may have come between the two files.
    let identity = match state.has("identity.pem") {
        false => issue(NodeId::from_bytes(crate::records::ids::random()))?,
        true => {
            let identity = Identity::load(path)?;
            if identity.fingerprint() != authority.fingerprint() {
                return Err(ClusterError::OtherCluster { path: path.into() });
            }
            match identity.role() {
                Role::Node(id) if renew::is_due(&identity) => issue(id)?,
                _ => identity,
            }
        }
    };
    Ok(Found {
        identity,
        authority: Some(Arc::new(authority)),
        head: None,
    })
}

async fn find_member(state: &StateDir, token: Option<&Token>) -> Result<Found, ClusterError> {
    let path = || state.path().to_path_buf();
    if state.has("authority.pem") {
        return Err(ClusterError::IsHead { path: path() });
    }
    let is_known = state.has("identity.pem");
    let identity = match (is_known, token) {
        (true, _) => Identity::load(state.path())?,
        (false, None) => return Err(ClusterError::NotJoined { path: path() }),
        // Before it is used up.
        (false, Some(token)) if token.kind == TokenKind::Client => {
            return Err(ClusterError::ClientToken);
        }
        (false, Some(token)) => wasmrun_net::join(token, &Lines::timing()).await?,
    };
    let head = match token {
        Some(token) if token.authority != identity.fingerprint() => {
            return Err(ClusterError::OtherCluster { path: path() });
        }
        // Where it is now, says whoever gave the token.
        Some(token) => Head {
            addresses: token.addresses.clone(),
            node: state.head()?.and_then(|head| head.node),
        },
        None => state
            .head()?
            .ok_or(ClusterError::NotJoined { path: path() })?,
    };
    state.set_head(&head)?;
    if !is_known {
        // Last: a folder with an identity has all.
        identity.save(state.path())?;
    }
    Ok(Found {
        identity,
        authority: None,
        head: Some(head),
    })
}

/// A store that a node reaches by itself, and the same where it is embedded.
type OwnStore = (Option<Arc<dyn ControlStore>>, Option<Arc<Embedded>>);

/// The control store that this node reaches by itself, if it does: etcd, or the head's embedded one, which others reach by it.
async fn own_store(
    config: &ClusterConfig,
    state: &StateDir,
    found: &Found,
) -> Result<OwnStore, ClusterError> {
    if let Some(etcd) = etcd(config, &found.identity)? {
        return Ok((Some(etcd), None));
    }
    if found.head.is_some() {
        return Ok((None, None));
    }
    let path = state.path().join(CONTROL);
    let embedded = Embedded::open(&path, EmbeddedConfig::default()).await?;
    Ok((Some(embedded.clone()), Some(embedded)))
}

fn etcd(
    config: &ClusterConfig,
    identity: &Identity,
) -> Result<Option<Arc<dyn ControlStore>>, ClusterError> {
    let Some(options) = &config.etcd else {
        return Ok(None);
    };
    // Several clusters may share the servers.
    let cluster = identity.cluster().to_string();
    let config = EtcdConfig {
        tls: options.tls.clone(),
        ..EtcdConfig::new(options.endpoints.iter().cloned(), &cluster)
    };
    Ok(Some(Arc::new(Etcd::new(&config)?)))
}

/// Where to listen and what to tell others.
async fn plan(
    config: &ClusterConfig,
    head: Option<&Head>,
    enrolment: Option<Enrolment>,
) -> Result<Plan, ClusterError> {
    // The address of ours that the head is reached from.
    let route = match head {
        Some(head) => match resolve(&head.addresses).await.first() {
            Some(address) => local_address_to(*address),
            None => None,
        },
        None => None,
    };
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    let listen = config.listen.unwrap_or(match (head, route) {
        (None, _) => SocketAddr::new(loopback, DEFAULT_PORT),
        // There may be many on this machine.
        (Some(_), Some(ip)) if ip.is_loopback() => SocketAddr::new(ip, 0),
        (Some(_), Some(ip)) => SocketAddr::new(ip, DEFAULT_PORT),
        (Some(_), None) => SocketAddr::new(loopback, 0),
    });
    let mut advertise = config.advertise.clone();
    if advertise.is_empty() && listen.ip().is_unspecified() {
        let ip = route.ok_or(ClusterError::Advertise(listen))?;
        advertise.push(SocketAddr::new(ip, 0));
    }
    Ok(Plan {
        listen,
        advertise,
        enrolment,
    })
}

/// The address of this machine that packets to another one come from. Nothing is sent.
fn local_address_to(address: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(address).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

async fn resolve(names: &[String]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for name in names {
        if let Ok(found) = tokio::net::lookup_host(name).await {
            addresses.extend(found);
        }
    }
    addresses
}

/// Connects to the head, whose control store we need.
async fn reach_head(state: &StateDir, lines: &Lines, head: Head) -> Result<(), ClusterError> {
    let deadline = Instant::now() + HEAD_PATIENCE;
    loop {
        let tried = tokio::time::timeout_at(deadline, connect_head(lines, &head)).await;
        let (why, is_permanent) = match tried {
            Ok(Ok(node)) => {
                let node = Some(node);
                if head.node != node {
                    state.set_head(&Head { node, ..head })?;
                }
                return Ok(());
            }
            Ok(Err(ConnectError::Refused {
                why: Refusal::Removed,
                ..
            })) => return Err(ClusterError::Removed),
            Ok(Err(error)) => (error.to_string(), error.is_permanent()),
            Err(_) => ("it does not answer".to_owned(), true),
        };
        if is_permanent || Instant::now() + AGAIN >= deadline {
            let addresses = head.addresses;
            return Err(ClusterError::Head { addresses, why });
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect_head(lines: &Lines, head: &Head) -> Result<NodeId, ConnectError> {
    let network = lines.network().ok_or(ConnectError::Closed)?;
    let addresses = resolve(&head.addresses).await;
    let node = match head.node {
        Some(node) => {
            network.peer(node, addresses.clone())?.connected().await?;
            node
        }
        None => network.connect(addresses.clone()).await?.id(),
    };
    lines.set_head(node, addresses);
    Ok(node)
}
