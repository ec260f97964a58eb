//! A node's place in a cluster: who else is there, and how to talk to them.
//!
//! Owns what brings `net` and `control` together: the state folder (`state`), coming into a cluster (`start`),
//! the network of one incarnation (`lines`, `door`), the head's control store at the other nodes (`link`), the lease
//! and the watch of nodes (`membership`, `members`), tokens, what tenants are due (`tenants`), their secrets (`secrets`), views. Must not: know tasks, objects or actors;
//! that is behind [`Work`], and the exchange ([`crate::peers`]) is it.
//!
//! ```text
//!   Cluster ── lines ── net ──▶ door ─┐                  lease lost: a new incarnation
//!      │                              ├─▶ members ─▶ Work      ▲
//!      └── store ── membership ───────┘                        │
//!            │          └── keeper ────────────────────────────┘
//!            └ Embedded at the head; Remote over `link` at the others; Etcd
//! ```
//!
//! Invariants: an incarnation is used once, so nothing that was sent in one arrives in another; [`Work`] hears of a
//! member's incarnation in this order: joined, then views and messages, then left.

mod ask;
mod clients;
mod clock;
mod door;
mod fabric;
#[cfg(test)]
mod faulty;
mod groups;
mod lines;
mod link;
mod measured;
pub(crate) mod members;
mod membership;
mod named;
mod prompt;
mod protocol;
mod records;
mod removed;
mod renew;
mod scheduling;
mod secrets;
mod services;
mod silence;
#[cfg(test)]
mod simulation;
mod standing;
mod start;
mod state;
mod tenants;
mod tokens;
mod turns;
mod views;
mod watched;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use wasmrun_control::membership::MembershipError;
use wasmrun_control::{Clock, ControlStore, Embedded, LeaseId, LeaseKeeper, MonotonicClock};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::resource::{Pool, ResourceName};
use wasmrun_model::scheduler::NodeInfo;
use wasmrun_model::wire::MemberRow;
use wasmrun_net::{Authority, Identity, Peer, Tally};

pub use self::start::{ClusterConfig, ClusterError, DEFAULT_PORT, EtcdOptions, Part};
pub use self::state::StateError;
pub use self::tokens::TokensError;
pub use wasmrun_control::etcd::EtcdTls;
pub use wasmrun_net::{ParseTokenError, Token as JoinToken};

pub(crate) use self::clients::ClientsError;
pub(crate) use self::clock::now_s;
pub(crate) use self::door::Clients;
use self::prompt::STORE_PATIENCE;
pub(crate) use self::protocol::ClusterProtocol;
pub(crate) use self::records::{Found, Receipt, RecordCounts, RecordId, Records, Written};
pub(crate) use self::scheduling::Scheduling;
pub(crate) use self::services::{ServiceKey, ServiceRecord, ServicesError, Wanted};
pub(crate) use self::start::{Face, Opened, open};
pub(crate) use self::tenants::{Tenants, TenantsError};
pub(crate) use self::turns::{Heir, Reasons, look};

use crate::guests::counters::Latency;
use crate::guests::secrets::Vault;

use crate::peers::Work;

use self::lines::Lines;
use self::members::{Members, NodeRecord};
use self::removed::Removed;
use self::secrets::{Keys, Secrets};
use self::state::{CONTROL, StateDir};
use self::tenants::{Follower, Tell};
use self::views::Views;

/// How long giving up our lease may take when we leave.
const LEAVING: Duration = Duration::from_secs(1);

/// This node in its cluster.
pub(crate) struct Cluster {
    id: NodeId,
    incarnation: AtomicU64,
    state: StateDir,
    lines: Arc<Lines>,
    members: Arc<Members>,
    store: Arc<dyn ControlStore>,
    /// By which is waited for the store.
    clock: Arc<dyn Clock>,
    /// How long that takes to answer.
    latency: Arc<Latency>,
    /// The store itself, at the head without etcd.
    embedded: Option<Arc<Embedded>>,
    /// At the head.
    authority: Option<Arc<Authority>>,
    lease_ttl: Duration,
    views: Arc<Views>,
    /// What we say of ourselves; none before we are registered.
    own: Mutex<Option<NodeRecord>>,
    /// The lease of this incarnation.
    lease: Mutex<Option<LeaseId>>,
    is_confirmed: AtomicBool,
    has_left: AtomicBool,
    /// Work that is here already may run here yet, though the others know that this node takes none.
    is_stopping: AtomicBool,
    /// Moves when it has begun a new incarnation within this process, and when it is known to live again.
    returns: watch::Sender<u64>,
    tenants: Arc<Tenants>,
    scheduling: Arc<Scheduling>,
    secrets: Arc<Secrets>,
    keys: Arc<Keys>,
    services: Arc<services::Services>,
    clients: Arc<clients::Clients>,
    removed: Arc<Removed>,
    since: Mutex<Instant>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// What a [`Cluster`] is made of.
struct Parts {
    id: NodeId,
    incarnation: Incarnation,
    state: StateDir,
    lines: Arc<Lines>,
    members: Arc<Members>,
    views: Arc<Views>,
    store: Arc<dyn ControlStore>,
    latency: Arc<Latency>,
    embedded: Option<Arc<Embedded>>,
    authority: Option<Arc<Authority>>,
    keys: Arc<Keys>,
    lease_ttl: Duration,
}

/// What a node says of itself.
pub(crate) struct Offer {
    pub(crate) info: NodeInfo,
    pub(crate) total: wasmrun_model::wire::Amounts,
}

impl Cluster {
    fn new(parts: Parts) -> Self {
        Self {
            id: parts.id,
            incarnation: AtomicU64::new(parts.incarnation.0),
            state: parts.state,
            clients: Arc::new(clients::Clients::new(
                parts.store.clone(),
                parts.lines.clone(),
            )),
            removed: Arc::new(Removed::new(
                parts.id,
                parts.store.clone(),
                parts.lines.clone(),
            )),
            lines: parts.lines,
            members: parts.members,
            tenants: Arc::new(Tenants::new(parts.store.clone())),
            scheduling: Arc::new(Scheduling::new(parts.store.clone())),
            secrets: Arc::new(Secrets::new(parts.store.clone())),
            keys: parts.keys,
            services: Arc::new(services::Services::new(parts.store.clone())),
            store: parts.store,
            clock: Arc::new(MonotonicClock::default()),
            latency: parts.latency,
            embedded: parts.embedded,
            authority: parts.authority,
            lease_ttl: parts.lease_ttl,
            views: parts.views,
            own: Mutex::default(),
            lease: Mutex::default(),
            is_confirmed: AtomicBool::new(true),
            has_left: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            returns: watch::Sender::new(0),
            since: Mutex::new(Instant::now()),
            tasks: Mutex::default(),
        }
    }

    /// Registers the node, and begins to tell its work of the others. Called once.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        keeper: LeaseKeeper,
        offer: Offer,
        work: Arc<dyn Work>,
        vault: Arc<Vault>,
    ) -> Result<(), ClusterError> {
        self.members.set_work(work);
        *self.own.lock() = Some(NodeRecord {
            name: offer.info.name,
            labels: offer.info.labels,
            incarnation: self.incarnation(),
            addresses: self.lines.addresses(),
            is_head: self.authority.is_some(),
            is_draining: false,
            total: offer.total,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        // The first task that is placed here is placed by what its tenant is due.
        let (tenants, tenant_changes) =
            Follower::begin(self.tenants.clone(), self.tell_work()).await?;
        let (scheduling, choices) =
            scheduling::Follower::begin(self.scheduling.clone(), self.tell_of_scheduling()).await?;
        let (secrets, secret_changes) =
            secrets::Follower::begin(self.secrets.clone(), vault).await?;
        let (services, published) = services::Follower::begin(self.services.clone()).await?;
        // And who was removed, or whose certificate was taken back, is never let in.
        let (removed, removals) = removed::Follower::begin(self.removed.clone()).await?;
        let (clients, revocations) = clients::Follower::begin(self.clients.clone()).await?;
        // What it has of a group once it is a member is kept as long as that is to be.
        let (groups, group_changes) =
            groups::Follower::begin(self.store.clone(), self.tell_of_groups()).await?;
        let registered = membership::register(self.as_ref(), keeper).await?;
        let clock = || self.clock.clone();
        let tasks = [
            tokio::spawn(watched::run(tenants, tenant_changes, clock())).abort_handle(),
            tokio::spawn(watched::run(scheduling, choices, clock())).abort_handle(),
            tokio::spawn(watched::run(secrets, secret_changes, clock())).abort_handle(),
            tokio::spawn(watched::run(services, published, clock())).abort_handle(),
            tokio::spawn(watched::run(clients, revocations, clock())).abort_handle(),
            tokio::spawn(watched::run(removed, removals, clock())).abort_handle(),
            tokio::spawn(watched::run(groups, group_changes, clock())).abort_handle(),
            tokio::spawn(membership::run(self.clone(), registered)).abort_handle(),
            tokio::spawn(views::tell(self.clone())).abort_handle(),
            tokio::spawn(silence::watch(self.clone())).abort_handle(),
            tokio::spawn(renew::run(self.clone())).abort_handle(),
        ];
        self.tasks.lock().extend(tasks);
        Ok(())
    }

    fn tell_work(&self) -> Tell {
        let members = self.members.clone();
        Box::new(move |tenant, config| {
            if let Some(work) = members.work() {
                work.set_tenant(tenant, config);
            }
        })
    }

    fn tell_of_scheduling(&self) -> scheduling::Tell {
        let members = self.members.clone();
        Box::new(move |settings| {
            if let Some(work) = members.work() {
                work.configure(settings);
            }
        })
    }

    fn tell_of_groups(&self) -> groups::Tell {
        let members = self.members.clone();
        Box::new(move |news| {
            if let Some(work) = members.work() {
                work.group_news(news);
            }
        })
    }

    /// How the cluster schedules, as far as operators choose.
    pub(crate) fn scheduling(&self) -> &Scheduling {
        &self.scheduling
    }

    /// HTTP services that every node serves.
    pub(crate) fn services(&self) -> &services::Services {
        &self.services
    }

    /// The address at which others reach this node.
    pub(crate) fn advertised(&self) -> Option<IpAddr> {
        self.lines.addresses().first().map(SocketAddr::ip)
    }

    /// What tenants are due, for all nodes.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Takes a node out of the cluster, for good: nobody talks to it any more, and what it did begins elsewhere.
    ///
    /// # Errors
    /// When the store does not do it. To do it again is fine.
    pub(crate) async fn remove(
        &self,
        node: NodeId,
        name: Option<NodeName>,
    ) -> Result<(), wasmrun_control::Error> {
        let now_s = self.clock_for_change().await?;
        self.changed(self.removed.remove(node, name, now_s)).await
    }

    /// Waits until this node was taken out of the cluster, for ever if it never is.
    pub(crate) async fn removed(&self) {
        self.removed.own().await;
    }

    /// Whether it was.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.contains(self.id)
    }

    /// Leaves: the others learn of it at once. Nothing of it runs on, and the folder is free. Once is enough.
    pub(crate) async fn leave(&self) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        // If the store does not answer, the lease ends by itself.
        let _ = tokio::time::timeout(LEAVING, self.unregister()).await;
        self.lines.close().await;
        if let Some(embedded) = &self.embedded {
            embedded.close().await;
        }
        self.state.release();
    }

    async fn unregister(&self) {
        let key = wasmrun_control::records::node(self.id);
        let entry = self.store.get(&key).await;
        if let Ok(Some(entry)) = entry
            && let Some(lease) = entry.lease
            && let Err(error) = self.store.revoke(lease).await
        {
            tracing::info!(%error, "the lease could not be given up, and ends by itself");
        }
    }

    /// Says who serves clients of other machines.
    pub(crate) fn serve_clients(&self, clients: Weak<dyn Clients>) {
        self.lines.serve_clients(clients);
    }

    /// Who we are.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// Which incarnation of this node this is.
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    fn set_incarnation(&self, incarnation: Incarnation) {
        self.incarnation.store(incarnation.0, Ordering::Release);
        if let Some(own) = &mut *self.own.lock() {
            own.incarnation = incarnation;
        }
        *self.since.lock() = Instant::now();
    }

    /// How long the control store takes to answer.
    pub(crate) fn latency(&self) -> &Latency {
        &self.latency
    }

    /// How many messages of gossip came, and how many were sent.
    pub(crate) fn gossip(&self) -> [u64; 2] {
        self.views.counts()
    }

    /// What has gone over connections with another node, if it was ever spoken with.
    pub(crate) fn tally(&self, node: NodeId) -> Option<Tally> {
        self.lines.find(node).map(|peer| peer.tally())
    }

    /// What the control store takes on the disk of this node, and what is free there, in bytes; none where it is
    /// elsewhere.
    pub(crate) fn control_room(&self) -> Option<(u64, u64)> {
        self.embedded.as_ref()?;
        let path = self.state.path().join(CONTROL);
        let files = std::fs::read_dir(&path).ok()?.flatten();
        let used = files
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum();
        let disk = rustix::fs::statvfs(&path).ok()?;
        Some((used, disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    /// Until when our certificate is valid, in seconds since 1970, if it can be read.
    pub(crate) fn certificate_until_s(&self) -> Option<u64> {
        let identity = Identity::load(self.state.path()).ok()?;
        Some(identity.valid_until_s())
    }

    /// The lease of this incarnation, once it is registered.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        *self.lease.lock()
    }

    /// Whether our lease is known to live.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Acquire)
    }

    /// A member that lives.
    fn peer(&self, node: NodeId) -> Option<Peer<ClusterProtocol>> {
        match self.members.is_alive(node) {
            true => self.lines.find(node),
            false => None,
        }
    }

    /// The changes of `node resource --persist`.
    pub(crate) fn changed_resources(
        &self,
    ) -> Result<BTreeMap<ResourceName, Option<Pool>>, ClusterError> {
        Ok(self.state.resources()?)
    }

    /// Persists how much the node has of a resource; `None`: it was deleted. Call it under a lock.
    pub(crate) fn keep_resource(
        &self,
        name: &ResourceName,
        pool: Option<Pool>,
    ) -> Result<(), StateError> {
        self.state.keep_resource(name, pool)
    }

    /// The folder of what outlives an incarnation.
    pub(crate) fn state_path(&self) -> &std::path::Path {
        self.state.path()
    }

    /// What [`Work::own_view`] gives is worth telling.
    pub(crate) fn view_changed(&self) {
        self.views.changed();
    }

    /// All members, this node first.
    pub(crate) fn members(&self) -> Vec<MemberRow> {
        let is_connected = |node| {
            let peer = self.lines.find(node);
            peer.is_some_and(|peer| peer.info().is_some())
        };
        let mut rows = Vec::new();
        let own = self.own.lock().clone();
        if let Some(own) = own {
            let state = self.state_of(&own);
            let view = self.members.work().map(|work| work.own_view());
            let free = view.as_ref().map(|view| view.resources.available());
            let since = *self.since.lock();
            let total = view.as_ref().map(|view| view.resources.total());
            let mut row = members::row(self.id, &own, state, since, total.zip(free));
            row.is_own = true;
            rows.push(row);
        }
        rows.extend(self.members.rows(is_connected));
        for row in &mut rows {
            if self.removed.contains(row.id) {
                row.state = "removed".to_owned();
            }
        }
        rows
    }

    /// How it is with this node: as in `members`; nothing before it is registered.
    pub(crate) fn own_state(&self) -> Option<&'static str> {
        let own = self.own.lock();
        own.as_ref().map(|own| self.state_of(own))
    }

    fn state_of(&self, own: &NodeRecord) -> &'static str {
        match () {
            () if !self.is_confirmed() => "unconfirmed",
            () if own.is_draining => "draining",
            () => "alive",
        }
    }

    /// Waits until so many nodes live, this one counted.
    pub(crate) async fn wait_for_members(&self, count: usize) {
        let mut living = self.members.count();
        // The sender lives as long as we do.
        let _ = living.wait_for(|others| others + 1 >= count).await;
    }

    /// Says, for all nodes, whether a node is to take no new work. False if it does not live.
    ///
    /// # Errors
    /// When the store does not do it.
    pub(crate) async fn drain(
        &self,
        node: NodeId,
        is_draining: bool,
    ) -> Result<bool, MembershipError> {
        let change = |record: &mut NodeRecord| record.is_draining = is_draining;
        let amended = wasmrun_control::membership::amend(self.store.as_ref(), node, change);
        self.changed(amended).await
    }

    /// Says, for all nodes, that this one stops, and places anew what waits here to begin. What only this node can run it
    /// runs yet.
    ///
    /// # Errors
    /// When the store does not do it.
    pub(crate) async fn hand_over(&self) -> Result<(), MembershipError> {
        self.is_stopping.store(true, Ordering::Release);
        // That it has just died is for others to say.
        let _ = self.drain(self.id, true).await?;
        if let Some(work) = self.members.work() {
            for is_draining in [true, false] {
                work.set_draining(self.id, is_draining);
            }
        }
        Ok(())
    }

    /// Who we are, as others see it; `None` before we are registered.
    fn own_info(&self) -> Option<NodeInfo> {
        let own = self.own.lock();
        own.as_ref().map(|own| own.info(self.id))
    }

    /// What we say of ourselves, now.
    fn record(&self) -> NodeRecord {
        let mut own = self.own.lock();
        let own = own.as_mut().expect("it is set before we register");
        own.addresses = self.lines.addresses();
        own.clone()
    }

    /// Somebody has changed what is said of us.
    fn amend_own(&self, record: NodeRecord) {
        let is_draining = record.is_draining;
        let before = self.own.lock().replace(record);
        let is_known = before.is_some_and(|before| before.is_draining) == is_draining;
        if is_known || self.is_stopping.load(Ordering::Acquire) {
            return;
        }
        match is_draining {
            true => tracing::info!("this node is drained: it takes no new work"),
            false => tracing::info!("this node takes work again"),
        }
        if let Some(work) = self.members.work() {
            work.set_draining(self.id, is_draining);
        }
    }

    fn set_confirmed(&self, is_confirmed: bool) {
        let was_confirmed = self.is_confirmed.swap(is_confirmed, Ordering::AcqRel);
        if was_confirmed == is_confirmed {
            return;
        }
        match is_confirmed {
            true => tracing::info!("this node's lease is confirmed again"),
            false => {
                tracing::warn!("this node's lease is not confirmed; others may count it as dead")
            }
        }
        if let Some(work) = self.members.work() {
            work.is_lease_confirmed(is_confirmed);
        }
        if is_confirmed {
            // What is this node's own is looked at again.
            self.returns.send_modify(|count| *count += 1);
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Cluster(node {}, incarnation {})",
            self.id,
            self.incarnation()
        )
    }
}
