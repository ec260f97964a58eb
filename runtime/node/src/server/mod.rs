//! A node's door for clients: a unix socket for those of its machine, and sessions of its network for others.
//!
//! Owns the socket ([`Server`]), the connections (`session`), and what outlives them (`registry`). What a
//! session submits is submitted by a [`Client`], as of a driver in this process. Must not: run guest code
//! or compile on the control thread; trust a length, or a peer that is another user. Who may have a session on the
//! network is the business of `net`, what it may ask for from there that of `origin`.
//!
//! Invariants: what a connection submitted ends with it, unless it is detached. Every queue of a
//! connection has a limit, and a client that does not read stops only itself. Whatever bytes come, only
//! their own connection suffers.

mod actors;
mod again;
mod audit;
mod caller;
mod changes;
mod cluster;
mod durable;
mod everywhere;
mod gather;
mod groups;
mod handed;
mod holding;
mod lists;
mod live;
mod loaded;
mod logs;
mod lookup;
mod merge;
mod metrics;
mod operands;
mod out;
mod receive;
mod registry;
mod requests;
mod resources;
mod rows;
mod scheduling;
mod seats;
mod secrets;
mod send;
mod services;
mod session;
mod socket;
mod stored;
mod tasks;
mod tenants;
mod users;
mod views;
mod wanted;
mod watch;
mod way;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::sync::watch::Sender;
use tokio::task::{JoinHandle, JoinSet};
use wasmrun_model::access::Tenants;
use wasmrun_model::id::DriverId;
use wasmrun_model::wire::{Address, TaskRow};
use wasmrun_net::{ByteStream, Session};

pub use self::metrics::{DEFAULT_METRICS_PORT, Metrics, ServeMetricsError};
pub use self::socket::ServeError;
pub use self::users::{Users, UsersError};

use self::registry::{Ends, Registry};
use self::socket::Bound;
use self::stored::Durable;
use crate::audit::Audit;
use crate::client::Client;
use crate::cluster::{Clients, Cluster};
use crate::guests::shared::Shared;
use crate::history::Following;
use crate::node::Node;
use crate::peers::ask::Desk;
use crate::peers::{Exchange, StrandedObject};
use crate::records::ids::random;
use crate::records::task::Work;

/// The most connections at a time. More wait in the socket's own queue. Other users have fewer (`seats`).
const MOST_SESSIONS: usize = 1000;
/// The most modules that come from the network at a time: each is in memory until it is whole. More wait.
const MOST_UPLOADS: usize = 4;
/// The most values that come through memory of their own at a time. More come over their sockets.
const MOST_STAGINGS: usize = 16;
/// How often a node that is about to stop looks whether all has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long a node that is about to stop waits for clients to take what is theirs.
const FLUSH: Duration = Duration::from_secs(5);
/// How long it waits, after that, for others to bring what they need of it.
const MOVING: Duration = Duration::from_secs(60);
/// How many of the objects that stay behind are named in the log.
const MOST_NAMED: usize = 20;

/// A node that can be reached at an address. Dropping it closes all connections, which ends what they
/// submitted; the node itself stays.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    accepting: JoinHandle<()>,
    _bound: Bound,
}

/// Attempts of a node's tasks as they end.
#[derive(Debug)]
pub struct EndedAttempts {
    inner: Arc<Inner>,
    following: Following,
}

impl EndedAttempts {
    /// The next ones, at most so many, in the order in which they ended.
    pub async fn next(&mut self, most: usize) -> Vec<TaskRow> {
        let ended = self.following.next(most).await;
        rows::ended_rows(&self.inner, &Tenants::All, &ended)
    }

    /// How many were left out since this was asked last, because nobody read them in time.
    pub fn take_missed(&self) -> u64 {
        self.following.take_missed()
    }
}

/// Stops a server, from any thread.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Inner>);

/// How far the end of a server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Not,
    Draining,
    Now,
}

/// What all sessions share.
struct Inner {
    shared: Arc<Shared>,
    /// The cluster of the node, if it is in one,
    cluster: Option<Arc<Cluster>>,
    /// and what it exchanges with others there.
    exchange: Option<Arc<Exchange>>,
    /// The driver of objects and groups that outlive their session. Tasks and actors that do have jobs of their own.
    detached: Client,
    /// What of that outlives the node, if it is in a cluster.
    durable: OnceLock<Arc<Durable>>,
    /// Held while a task is started whose id somebody else has chosen.
    once: Mutex<()>,
    registry: Mutex<Registry>,
    /// How tasks ended, on its way there.
    ends: Arc<Ends>,
    stop: Sender<Stop>,
    is_draining: AtomicBool,
    /// Whether nobody is served any more.
    closed: Sender<bool>,
    /// Places of modules on their way here from the network.
    uploads: Semaphore,
    /// How many values more may come through memory of their own.
    stagings: Arc<Semaphore>,
    /// Serialises changes of resources that persist.
    lasting: parking_lot::Mutex<()>,
    /// Those that there are, by their drivers.
    sessions: Mutex<BTreeMap<DriverId, Weak<session::Session>>>,
    /// Frames and reports that are on their way to clients.
    pending: Arc<AtomicUsize>,
    started: Instant,
    /// What makes a link to the node's page, if it has one.
    dashboard: OnceLock<DashboardLink>,
    /// HTTP that is answered here.
    services: services::Services,
    /// The other users of the machine who may use the socket.
    users: Option<Users>,
    /// The places that these have taken.
    seats: seats::Seats,
    audit: Arc<Audit>,
}

/// Makes a link to a node's page, which is of use once.
pub type DashboardLink = Arc<dyn Fn() -> String + Send + Sync>;

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.shared.name)
    }
}

impl Node {
    /// Listens for clients at this address.
    ///
    /// # Errors
    /// When another node does, the folder is not ours alone, or the system refuses.
    pub fn serve(&self, address: &Address) -> Result<Server, ServeError> {
        self.serve_users(address, None)
    }

    /// Listens for clients at this address, also for other users of the machine, if there are some.
    ///
    /// # Errors
    /// As of [`Node::serve`]; and when others cannot find the socket who are to use it.
    pub fn serve_users(
        &self,
        address: &Address,
        users: Option<Users>,
    ) -> Result<Server, ServeError> {
        let control = self.shared.control.clone();
        let _context = control.enter();
        let (bound, listener) = socket::bind(address, users.is_some())?;
        let inner = Arc::new(Inner {
            shared: self.shared.clone(),
            cluster: self.cluster.clone(),
            exchange: self.exchange.clone(),
            detached: Client::new(self.shared.clone(), DriverId::detached(random())),
            durable: OnceLock::new(),
            once: Mutex::default(),
            registry: Mutex::default(),
            ends: Arc::default(),
            stop: Sender::new(Stop::Not),
            is_draining: AtomicBool::new(false),
            closed: Sender::new(false),
            uploads: Semaphore::new(MOST_UPLOADS),
            stagings: Arc::new(Semaphore::new(MOST_STAGINGS)),
            lasting: parking_lot::Mutex::default(),
            sessions: Mutex::default(),
            pending: Arc::default(),
            started: Instant::now(),
            dashboard: OnceLock::new(),
            services: services::Services::default(),
            users,
            seats: seats::Seats::default(),
            audit: self.audit.clone(),
        });
        if let Some(exchange) = inner.exchange() {
            let desk: Arc<dyn Desk> = inner.clone();
            exchange.set_desk(Arc::downgrade(&desk));
        }
        if let Some(cluster) = inner.cluster() {
            let clients: Arc<dyn Clients> = inner.clone();
            cluster.serve_clients(Arc::downgrade(&clients));
        }
        inner.keep_durable();
        inner.serve_what_is_published();
        let accepting = control.spawn(accept(inner.clone(), listener));
        Ok(Server {
            inner,
            accepting,
            _bound: bound,
        })
    }
}

impl Server {
    /// The attempts of this node's tasks from now on, as they end. So many may wait to be read.
    pub fn ended_attempts(&self, waiting: usize) -> EndedAttempts {
        EndedAttempts {
            following: self.inner.shared.history.follow(waiting),
            inner: self.inner.clone(),
        }
    }

    /// The node has a page, and clients on its machine may have links to it. Once.
    pub fn set_dashboard(&self, link: DashboardLink) {
        // The first one stays.
        let _ = self.inner.dashboard.set(link);
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.inner.clone())
    }

    /// Blocks this thread until it is to end: somebody has said so, and, unless it is to be at once, the others have
    /// been told, all tasks have ended, and other nodes have what they need of this one, as far as they can. Actors that
    /// live on do not count. Also when it was [removed](Node::is_removed) from its cluster. Whether it is to be at once.
    ///
    /// # Panics
    /// When it is called in a thread of a tokio runtime.
    pub fn wait(&self) -> bool {
        let inner = &self.inner;
        let mut stop = inner.stop.subscribe();
        let told = async {
            // The sender is ours: neither wait can fail.
            let _ = stop.wait_for(|stop| *stop > Stop::Not).await;
            tokio::select! {
                _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
                () = async {
                    // The store of a head ends with it: what is said through it is said first.
                    tokio::join!(inner.hand_over(), inner.drained());
                    inner.move_out().await;
                } => {}
            }
            *stop.borrow() == Stop::Now
        };
        inner.shared.control.block_on(async {
            tokio::select! {
                is_now = told => is_now,
                () = inner.removed() => true,
            }
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The sessions are the accepting task's, and end with it.
        self.accepting.abort();
        self.inner.closed.send_replace(true);
        if let Some(durable) = self.inner.durable.get() {
            // What ends from here on ends because the node does.
            durable.close();
        }
        self.inner.cancel_detached();
    }
}

impl Stopper {
    /// Ends the server: it takes no new work and waits for what runs, or ends at once.
    pub fn stop(&self, is_now: bool) {
        self.0.is_draining.store(true, Ordering::Release);
        self.0.services.leave();
        let wanted = if is_now { Stop::Now } else { Stop::Draining };
        self.0.stop.send_modify(|stop| *stop = wanted.max(*stop));
    }
}

impl Clients for Inner {
    fn serve(self: Arc<Self>, session: Session) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut closed = self.closed.subscribe();
            tokio::select! {
                () = session::run_from_network(self.clone(), session) => {}
                _ = closed.wait_for(|is_closed| *is_closed) => {}
            }
        })
    }

    fn take(self: Arc<Self>, stream: ByteStream) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.take_request(stream).await })
    }
}

impl Inner {
    /// Ends what outlives its session, with the node.
    fn cancel_detached(&self) {
        let drivers: Vec<DriverId> = self.shared.ask(|ledger| {
            let is_own = |driver: &DriverId| {
                let job = ledger.jobs.get(driver);
                driver.is_detached() && job.is_some_and(|job| job.about.is_some())
            };
            ledger.scheduler().drivers().filter(is_own).collect()
        });
        for driver in drivers.into_iter().chain([self.detached.driver()]) {
            Client::new(self.shared.clone(), driver).cancel_all();
        }
    }

    /// The node's name, as rows have it.
    fn name(&self) -> String {
        self.shared.name.to_string()
    }

    fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.as_ref()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.ends.noted(&self.registry)
    }

    /// Waits until this node was removed from its cluster: nobody waits for what it does any more.
    async fn removed(&self) {
        match self.cluster() {
            Some(cluster) => cluster.removed().await,
            None => std::future::pending().await,
        }
        tracing::error!("this node was removed from its cluster");
    }

    /// Lets the cluster know that this node takes no new work, and gives what has not begun here to who can begin it.
    async fn hand_over(&self) {
        let Some(cluster) = self.cluster() else {
            return;
        };
        match tokio::time::timeout(FLUSH, cluster.hand_over()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the others do not hear that this node stops"),
            Err(_) => tracing::warn!(
                "the others do not hear that this node stops: the store does not answer"
            ),
        }
    }

    /// Waits until no task is left but actors that live, and clients have what is theirs.
    async fn drained(self: &Arc<Self>) {
        while !self.is_idle() {
            tokio::time::sleep(LOOK).await;
        }
        self.flushed().await;
    }

    /// Waits until clients have what is theirs, and the control store what it is to have.
    async fn flushed(self: &Arc<Self>) {
        let idle = Instant::now();
        // What actors came to since it was looked at last, too.
        let is_written = || self.durable.get().is_none_or(|it| it.flush(self));
        while (self.pending.load(Ordering::Acquire) > 0 || !is_written()) && idle.elapsed() < FLUSH
        {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Has other nodes keep what they need of this one.
    async fn move_out(self: &Arc<Self>) {
        let Some(exchange) = self.exchange() else {
            return;
        };
        let until = tokio::time::Instant::now() + MOVING;
        match tokio::time::timeout_at(until, self.place_all()).await {
            Ok(here) => {
                for (object, why) in here.iter().take(MOST_NAMED) {
                    tracing::warn!(%object, %why, "the result of a detached task goes with this node");
                }
            }
            Err(_) => tracing::warn!(
                "there was no time to have others keep the results of all detached tasks"
            ),
        }
        let (moved, left) = exchange.move_out(until).await;
        if moved > 0 {
            tracing::info!(moved, "other nodes keep what they need of this one");
        }
        for StrandedObject {
            object,
            needed_by,
            why,
        } in left.iter().take(MOST_NAMED)
        {
            tracing::warn!(%object, node = %needed_by, %why, "an object that another node needs goes with this one");
        }
        if left.len() > MOST_NAMED {
            let more = left.len() - MOST_NAMED;
            tracing::warn!(more, "more objects that other nodes need go with this one");
        }
        self.flushed().await;
    }

    fn is_idle(&self) -> bool {
        self.shared.ask(|ledger| {
            let mut cells = ledger.cells();
            cells.all(|cell| matches!(cell.work, Work::Create(_)))
        })
    }
}

/// Takes connections until it is aborted. Owns their tasks.
async fn accept(inner: Arc<Inner>, listener: UnixListener) {
    let mut sessions = JoinSet::new();
    loop {
        if sessions.len() >= MOST_SESSIONS {
            sessions.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    sessions.spawn(session::run(inner.clone(), stream));
                }
                // Too many open files, most likely: some may be closed soon.
                Err(_) => tokio::time::sleep(LOOK).await,
            },
            Some(_) = sessions.join_next() => {}
        }
    }
}
