//! A node in this process, and the clients that submit to it.
//!
//! A submission goes: [`Client::submit`] → the scheduler → a guest thread → the task's
//! [`TaskHandle`]. Nothing in between polls or waits for a tick: whoever frees resources starts the
//! next task, on the thread that has just become free.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmrun_engine::{Engine, EngineConfig, EngineError, Module};
use wasmrun_model::cluster::{Labels, ParseLabelError};
use wasmrun_model::id::{DriverId, NodeId};
use wasmrun_model::resource::{
    Amount, NodeResources, ParsePoolError, ParseResourceNameError, Pool, ResourceName, ResourceSet,
};
use wasmrun_net::TokenKind;
use wasmrun_store::{Backing, SpillConfig, Store, StoreConfig};

use crate::audit::{Audit, AuditConfig, AuditError};
use crate::client::Client;
use crate::cluster::{
    self, Cluster, ClusterConfig, ClusterError, Face, JoinToken, Offer, Opened, TokensError,
};
use crate::guests::executor::Executor;
use crate::guests::shared::{Parts, Shared};
use crate::history::DEFAULT_HISTORY_BYTES;
use crate::machine::Machine;
use crate::offer::{accelerator_type, change, info, node_name, offered};
use crate::peers::{Exchange, Moved};
use crate::records::ids::random;
use crate::records::policy::{Policy, PolicyConfig, PolicyError};

/// What a node is started with. The default offers what the machine has.
#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// The node's name; the host's if not given.
    pub name: Option<String>,
    /// CPUs to offer, a whole number.
    pub cpus: Option<Amount>,
    /// GPUs to offer, a whole number.
    pub gpus: Option<Amount>,
    /// Memory to offer, in bytes.
    pub memory: Option<Amount>,
    /// Other resources to offer.
    pub resources: Vec<ResourceOffer>,
    /// The node's labels, besides its name.
    pub labels: Labels,
    /// How tasks run.
    pub engine: EngineConfig,
    /// How much memory objects may take, in bytes; 30 % of the machine's if not given.
    pub object_memory: Option<u64>,
    /// The folder whose files they are in; memory of no file if not given.
    pub object_dir: Option<PathBuf>,
    /// Where objects go when that is full; nowhere if not given.
    pub spill: Option<SpillConfig>,
    /// How long a value waits for room in the store; [`ROOM_PATIENCE`] if not given.
    pub room_patience: Option<Duration>,
    /// How many bytes the history of tasks that have ended may take; [`DEFAULT_HISTORY_BYTES`] if not given.
    pub history_bytes: Option<u64>,
    /// Where it writes down who has changed what; nowhere if not given.
    pub audit: Option<AuditConfig>,
    /// How it is part of a cluster; alone if not given.
    pub cluster: Option<ClusterConfig>,
    /// What tasks and actors get that ask for nothing, and the most that one may ask for.
    pub policy: PolicyConfig,
}

/// A resource of the operator's: `name=4` (with ids) or `name=sum:2.5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceOffer {
    pub(crate) name: ResourceName,
    pub(crate) amount: String,
}

/// Why a text is no offer of a resource.
#[derive(Debug, thiserror::Error)]
pub enum ParseOfferError {
    /// There is no `=`.
    #[error("'{0}' must be NAME=COUNT, such as tpu=4, or NAME=sum:AMOUNT, such as bw=sum:2.5")]
    Form(String),
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] ParseResourceNameError),
    /// The amount cannot be one.
    #[error(transparent)]
    Pool(#[from] ParsePoolError),
}

impl std::str::FromStr for ResourceOffer {
    type Err = ParseOfferError;

    fn from_str(text: &str) -> Result<Self, ParseOfferError> {
        let (name, amount) = text
            .split_once('=')
            .ok_or_else(|| ParseOfferError::Form(text.into()))?;
        let name: ResourceName = name.parse()?;
        Pool::parse(&name, amount)?;
        Ok(Self {
            name,
            amount: amount.into(),
        })
    }
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What it should offer is impossible.
    #[error(
        "the node cannot offer that: {reason} (CPU, GPU and memory are set with --node-cpus, \
         --node-gpus and --node-memory)"
    )]
    Offer {
        /// Which resource.
        name: ResourceName,
        /// Why not.
        reason: String,
    },
    /// Its labels are impossible.
    #[error(transparent)]
    Labels(#[from] ParseLabelError),
    /// What tasks get and what they may ask for do not go together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Tasks could not run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There can be no object store.
    #[error("the object store: {0}")]
    Store(#[from] wasmrun_store::OpenError),
    /// It could not write down who changes what.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// It does not come into its cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The system refuses threads or sockets.
    #[error("cannot start the node's threads: {0}; see ulimit -u and the memory that is free")]
    Threads(#[from] std::io::Error),
}

/// Why a module cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// It is none that can run.
    #[error(transparent)]
    Load(#[from] wasmrun_engine::LoadError),
    /// Other nodes could not have it.
    #[error("the module cannot be kept for other nodes: {0}; see the free space of --state-dir")]
    Keep(#[from] std::io::Error),
}

/// A running node. Dropping it cancels its tasks and stops its threads.
pub struct Node {
    pub(crate) shared: Arc<Shared>,
    /// The cluster that it is in, if it is,
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// and what it exchanges with others there.
    pub(crate) exchange: Option<Arc<Exchange>>,
    pub(crate) audit: Arc<Audit>,
    executor: Option<Executor>,
    control: Option<tokio::runtime::Runtime>,
    /// Where objects come and go, in a cluster. On two cores it is one thread: several would wake each other for each
    /// datagram while the other node, or a task, needs the core. Dropped after what uses it.
    bulk: Option<tokio::runtime::Runtime>,
}

/// How long a value waits for room in the store, if nobody says otherwise.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(30);

/// How long a dropped node waits for its tasks to notice that they are cancelled.
const DRAIN: Duration = Duration::from_secs(5);

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// When what it should offer is impossible, or the system refuses what it needs.
    pub fn start(config: NodeConfig) -> Result<Self, StartError> {
        // What a node has left that was killed.
        wasmrun_engine::sweep_secrets();
        let machine = Machine::detect();
        let mut resources = offered(&config, &machine)?;
        let max_running = config.engine.max_sandboxes;
        let control_threads = if config.cluster.is_some() { 2 } else { 1 };
        let control = runtime("wasmrun-control", control_threads)?;
        let name = node_name(config.name.as_deref().unwrap_or(&machine.name));
        let audit = Arc::new(Audit::new(config.audit.clone()));
        let mut bulk = None;
        let opened = match &config.cluster {
            Some(cluster) => {
                let face = Face {
                    name: name.clone(),
                    is_name_proposed: config.name.is_none(),
                };
                let threads = if machine.cpus > 2 { 2 } else { 1 };
                let bulk = &*bulk.insert(runtime("wasmrun-bulk", threads)?);
                Some(control.block_on(cluster::open(cluster, face, bulk.handle(), &audit))?)
            }
            None => None,
        };
        if let Some(opened) = &opened {
            change(&mut resources, opened.cluster.changed_resources()?)?;
        }
        let cpus = resources.total().get(&ResourceName::CPU).whole_units();
        let threads = usize::try_from(cpus.clamp(1, 4096)).expect("within the range");
        let executor = Executor::start(threads)?;
        let gpus = resources.total().get(&ResourceName::GPU);
        let accelerator = machine.gpu_model.as_deref().filter(|_| !gpus.is_zero());
        let accelerator = accelerator.and_then(accelerator_type);
        let info = info(opened.as_ref(), name, &config.labels, accelerator)?;
        audit.begin(info.name.as_str())?;
        let offer = Offer {
            info: info.clone(),
            total: resources
                .total()
                .iter()
                .map(|(name, it)| (name.clone(), it))
                .collect(),
        };
        let object_memory = config.object_memory;
        let object_memory = object_memory.unwrap_or(machine.object_memory_bytes());
        let room_patience = config.room_patience.unwrap_or(ROOM_PATIENCE);
        let shared = Shared::new(Parts {
            info,
            resources,
            max_running,
            engine: Engine::new(config.engine)?,
            spawner: executor.spawner(),
            store: Store::open(StoreConfig {
                backing: config.object_dir.map_or(Backing::Memfd, Backing::Dir),
                spill: config.spill,
                patience: room_patience,
                ..StoreConfig::new(object_memory)
            })?,
            room_patience,
            policy: Policy::new(&config.policy)?,
            history_bytes: config.history_bytes.unwrap_or(DEFAULT_HISTORY_BYTES),
            control: control.handle().clone(),
            random: random(),
        });
        // From here on its drop ends all of it.
        let mut node = Self {
            shared,
            cluster: None,
            exchange: None,
            audit,
            executor: Some(executor),
            control: Some(control),
            bulk,
        };
        if let Some(opened) = opened {
            node.join(opened, offer)?;
        }
        Ok(node)
    }

    /// Begins to work for its cluster, and lets it work for this node.
    fn join(&mut self, opened: Opened, offer: Offer) -> Result<(), ClusterError> {
        let Opened {
            cluster, keeper, ..
        } = opened;
        let fabric = Arc::downgrade(&cluster);
        let exchange = Exchange::start(&self.shared, fabric, cluster.state_path());
        self.shared.join(exchange.clone(), cluster.clone());
        self.shared.secrets.join(cluster.clone());
        self.exchange = Some(exchange.clone());
        self.cluster = Some(cluster.clone());
        let secrets = self.shared.secrets.clone();
        let begun = cluster.begin(keeper, offer, exchange, secrets);
        self.shared.control.block_on(begun)
    }

    /// Leaves its cluster, for good: the others learn of it at once, and its state folder is free. What it runs
    /// for others is theirs to run again. Its drop does the same.
    pub fn leave_cluster(&self) {
        if let Some(cluster) = &self.cluster {
            self.shared.control.block_on(cluster.leave());
        }
    }

    /// Whether it was taken out of its cluster, by `wasmrun node remove` at another node: nobody talks to it any more.
    pub fn is_removed(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.is_removed())
    }

    /// Makes a token with which others join this node's cluster; `None` if it is in none.
    ///
    /// # Errors
    /// When the control store does not keep it, or there is no head to join at.
    pub fn join_token(
        &self,
        is_reusable: bool,
        lifetime: Duration,
    ) -> Option<Result<JoinToken, TokensError>> {
        let cluster = self.cluster.as_ref()?;
        let made = cluster.create_token(TokenKind::Node, is_reusable, lifetime, None);
        Some(self.shared.control.block_on(made))
    }

    /// Waits until so many nodes of its cluster live, itself counted, or time is up. Whether they do.
    pub fn wait_for_members(&self, count: usize, patience: Duration) -> bool {
        let Some(cluster) = &self.cluster else {
            return count <= 1;
        };
        let living = cluster.wait_for_members(count);
        let waited = async { tokio::time::timeout(patience, living).await.is_ok() };
        self.shared.control.block_on(waited)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The node's id: in its cluster, or all zero where it is alone.
    pub fn id(&self) -> NodeId {
        self.shared.home.node
    }

    /// What loads modules and runs tasks.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Loads a module whose tasks may run on any node of the cluster: the others fetch it from here. One that is
    /// loaded by the [`engine`](Self::engine) alone can run here only.
    ///
    /// # Errors
    /// When it is no module that can run, or its bytes cannot be kept.
    pub fn load(&self, bytes: &[u8]) -> Result<Module, ModuleError> {
        let module = self.shared.engine.load(bytes)?;
        if let Some(exchange) = &self.exchange {
            exchange.modules().keep(&module.digest(), bytes)?;
        }
        Ok(module)
    }

    /// What the node gives tasks and actors that ask for nothing, and the most that one may ask for: for
    /// [`crate::Overrides`] and [`crate::ActorOptions`].
    pub fn policy(&self) -> Arc<Policy> {
        self.shared.policy.clone()
    }

    /// What the node has in all.
    pub fn total(&self) -> ResourceSet {
        self.shared
            .ask(|ledger| ledger.scheduler().cluster().total().clone())
    }

    /// What no task holds.
    pub fn available(&self) -> ResourceSet {
        self.shared.ask(|ledger| {
            let own = ledger.own_resources();
            own.map(NodeResources::available).unwrap_or_default()
        })
    }

    /// How much of objects and modules came from other nodes, and of objects went to them, since it was started.
    pub fn moved(&self) -> Moved {
        let counters = &self.shared.counters;
        Moved {
            received_bytes: counters.bytes_in.get(),
            sent_bytes: counters.bytes_out.get(),
            changed: counters.transfers_changed.get(),
            modules: counters.modules_in.get(),
            module_bytes: counters.module_bytes_in.get(),
        }
    }

    /// A client session of its own.
    ///
    /// # Panics
    /// When the system has no randomness to give.
    pub fn client(&self) -> Client {
        self.client_as(new_driver())
    }

    /// A client session with this id, which determines the ids of its tasks.
    pub fn client_as(&self, driver: DriverId) -> Client {
        Client::new(self.shared.clone(), driver)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.tell(|ledger| {
            ledger.stop();
            let all = ledger.all();
            ledger.cancel(&all)
        });
        let started = Instant::now();
        while self.shared.ask(|ledger| ledger.running()) > 0 && started.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(self.executor.take());
        self.leave_cluster();
        self.audit.end();
        // Connections that moved there have their timers where the network is, so nothing of it may run any more when
        // that ends. In a thread, because whoever drops the node may be in a runtime, where nobody may wait.
        if let Some(bulk) = self.bulk.take() {
            let ending = std::thread::Builder::new().spawn(|| bulk.shutdown_timeout(DRAIN));
            let _ = ending.map(std::thread::JoinHandle::join);
        }
        if let Some(control) = self.control.take() {
            // Whoever drops the node may be in a runtime, where nobody may wait.
            control.shutdown_background();
        }
        // What still runs there may have references to the store.
        self.shared.store.end_spilling();
    }
}

fn runtime(name: &str, threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.shared.name)
    }
}

/// The id of a new session, drawn at random.
///
/// # Panics
/// When the system has no randomness to give.
pub(crate) fn new_driver() -> DriverId {
    DriverId::session(random())
}
