//! A node in this process, and the clients that submit to it.
//!
//! A submission goes: [`Client::submit`] → the scheduler → a guest thread → the task's
//! [`TaskHandle`]. Nothing in between polls or waits for a tick: whoever frees resources starts the
//! next task, on the thread that has just become free.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wasmrun_engine::{
    Engine, EngineConfig, EngineError, Invocation, Limits, TaskContext, TaskOutput,
};
use wasmrun_model::cluster::{HOSTNAME, Labels, NODE_ID, NodeName, ParseLabelError};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::DriverId;
use wasmrun_model::resource::{
    AddResourceError, Amount, CapacityError, NodeResources, ParsePoolError, ParseResourceNameError,
    Pool, ResourceName, ResourceSet,
};
use wasmrun_model::scheduler::{Explanation, Reason, Status};
use wasmrun_model::task::Attempt;

use crate::executor::{Executor, Spawner, Weight};
use crate::ledger::{LOCAL, Ledger, Start, Todo};
use crate::machine::Machine;
use crate::task::{Call, Job, Pressure, Report, TaskCell, TaskHandle};

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
}

/// A resource of the operator's: `name=4` (with ids) or `name=sum:2.5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceOffer {
    name: ResourceName,
    amount: String,
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
    /// Tasks could not run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system refuses threads or sockets.
    #[error("cannot start the node's threads: {0}; see ulimit -u and the memory that is free")]
    Threads(#[from] std::io::Error),
}

/// Why a task cannot be submitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It can never run: no node has what it asks for, or the one node it names is not there.
    #[error("{0}")]
    Unschedulable(Reason),
    /// The node is stopping.
    #[error("the node is stopping and takes no more tasks")]
    Stopping,
}

/// A running node. Dropping it cancels its tasks and stops its threads.
pub struct Node {
    shared: Arc<Shared>,
    /// Before the runtime: guest threads use its timers to their end.
    executor: Option<Executor>,
    control: Option<tokio::runtime::Runtime>,
}

struct Shared {
    name: Arc<str>,
    engine: Engine,
    spawner: Spawner,
    ledger: Mutex<Ledger>,
    pressure: Arc<Pressure>,
}

/// How long a dropped node waits for its tasks to notice that they are cancelled.
const DRAIN: Duration = Duration::from_secs(5);

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// When what it should offer is impossible, or the system refuses what it needs.
    pub fn start(config: NodeConfig) -> Result<Self, StartError> {
        let machine = Machine::detect();
        let resources = offered(&config, &machine)?;
        let cpus = resources.total().get(&ResourceName::CPU).whole_units();
        let threads = usize::try_from(cpus.clamp(1, 4096)).expect("within the range");
        let max_running = config.engine.max_sandboxes;
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-control")
            .enable_all()
            .build()?;
        let executor = Executor::start(threads, control.handle())?;
        let name = node_name(config.name.as_deref().unwrap_or(&machine.name));
        let labels = labels(&name, &config.labels)?;
        let ledger = Ledger::new(&name, labels, resources, max_running);
        let shared = Shared {
            name: name.as_str().into(),
            engine: Engine::new(config.engine)?,
            spawner: executor.spawner(),
            pressure: Arc::default(),
            ledger: Mutex::new(ledger),
        };
        Ok(Self {
            shared: Arc::new(shared),
            executor: Some(executor),
            control: Some(control),
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What loads modules and runs tasks.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// What the node has in all.
    pub fn total(&self) -> ResourceSet {
        self.shared
            .ledger
            .lock()
            .scheduler()
            .cluster()
            .total()
            .clone()
    }

    /// What no task holds.
    pub fn available(&self) -> ResourceSet {
        let ledger = self.shared.ledger.lock();
        let scheduler = ledger.scheduler();
        let own = scheduler.own_nodes().first();
        let own = own.and_then(|ix| scheduler.cluster().own(*ix));
        own.map(NodeResources::available).unwrap_or_default()
    }

    /// How many tasks are in which state, and what they ask for.
    pub fn status(&self) -> Status {
        self.shared.ledger.lock().scheduler().status()
    }

    /// A client session of its own.
    ///
    /// # Panics
    /// When the system has no randomness to give.
    pub fn client(&self) -> Client {
        let mut id = [0; 16];
        let drawn = rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty());
        assert_eq!(drawn, Ok(id.len()), "the kernel has randomness");
        self.client_as(DriverId::from_bytes(id))
    }

    /// A client session with this id, which determines the ids of its tasks.
    pub fn client_as(&self, driver: DriverId) -> Client {
        Client(Arc::new(ClientInner {
            shared: self.shared.clone(),
            driver,
            submitted: AtomicU64::new(0),
        }))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut ledger = self.shared.ledger.lock();
        ledger.stop();
        let all = ledger.all();
        let todo = ledger.cancel(&all);
        drop(ledger);
        self.shared.carry_out(todo);
        let started = Instant::now();
        while self.shared.ledger.lock().running() > 0 && started.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(self.executor.take());
        if let Some(control) = self.control.take() {
            // A file or name look-up may be stuck in the kernel: its thread is left behind.
            control.shutdown_background();
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.shared.name)
    }
}

/// The resources that a node offers: what it is told to, else what the machine has.
fn offered(config: &NodeConfig, machine: &Machine) -> Result<NodeResources, StartError> {
    let units = |n| Amount::from_units(n).unwrap_or(Amount::MAX);
    let standard = [
        (
            ResourceName::CPU,
            config.cpus.unwrap_or(units(machine.cpus)),
        ),
        (
            ResourceName::GPU,
            config.gpus.unwrap_or(units(machine.gpus)),
        ),
        (
            ResourceName::MEMORY,
            config.memory.unwrap_or(units(machine.task_memory_bytes())),
        ),
    ];
    let mut resources = NodeResources::new();
    let refused = |name: &ResourceName, reason: &dyn fmt::Display| StartError::Offer {
        name: name.clone(),
        reason: reason.to_string(),
    };
    for (name, amount) in standard {
        let pool =
            Pool::for_name(&name, amount).map_err(|error: CapacityError| refused(&name, &error))?;
        let added: Result<(), AddResourceError> = resources.add(name.clone(), pool);
        added.map_err(|error| refused(&name, &error))?;
    }
    for ResourceOffer { name, amount } in &config.resources {
        let pool = Pool::parse(name, amount).map_err(|error| refused(name, &error))?;
        resources
            .add(name.clone(), pool)
            .map_err(|error| refused(name, &error))?;
    }
    Ok(resources)
}

/// A session that submits tasks. Cheap to clone; clones are one session.
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

struct ClientInner {
    shared: Arc<Shared>,
    driver: DriverId,
    submitted: AtomicU64,
}

impl Client {
    /// Submits a task. It starts as soon as the node has what it asks for.
    ///
    /// # Errors
    /// When no node can ever run it, or the node is stopping.
    pub fn submit(&self, job: &Arc<Job>, call: Call) -> Result<TaskHandle, SubmitError> {
        let ClientInner {
            shared,
            driver,
            submitted,
        } = &*self.0;
        let id = driver.task(submitted.fetch_add(1, Ordering::Relaxed));
        let cell = Arc::new(TaskCell::new(id, shared.pressure.clone()));
        let mut ledger = shared.ledger.lock();
        if ledger.is_stopping() {
            return Err(SubmitError::Stopping);
        }
        let mut todo = ledger.submit(*driver, job, call, &cell);
        shared.pressure.set(ledger.waiting());
        drop(ledger);
        let refused = todo.refused.take();
        shared.carry_out(todo);
        match refused {
            Some(why) => Err(SubmitError::Unschedulable(why)),
            None => Ok(TaskHandle(cell)),
        }
    }

    /// Cancels a task: one that waits ends at once, one that runs at its next turn.
    pub fn cancel(&self, task: &TaskHandle) {
        let todo = self.0.shared.ledger.lock().cancel(&[task.id()]);
        self.0.shared.carry_out(todo);
    }

    /// Cancels everything that this session has submitted and that has not ended.
    pub fn cancel_all(&self) {
        let mut ledger = self.0.shared.ledger.lock();
        let mine = ledger.of_driver(&self.0.driver);
        let todo = ledger.cancel(&mine);
        self.0.shared.pressure.set(ledger.waiting());
        drop(ledger);
        self.0.shared.carry_out(todo);
    }

    /// Where a task stands and what it waits for; `None` if it has ended.
    pub fn explain(&self, task: &TaskHandle) -> Option<Explanation> {
        self.0.shared.ledger.lock().explain(&task.id())
    }

    /// Where the task stands that has waited for resources for the longest, on this node; `None` if
    /// none waits.
    pub fn explain_oldest(&self) -> Option<Explanation> {
        self.0.shared.ledger.lock().explain_oldest()
    }
}

/// The name of a node, made from whatever the machine or person calls it.
fn node_name(text: &str) -> NodeName {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fit: String = text
        .chars()
        .map(|c| if is_fit(c) { c } else { '-' })
        .collect();
    let fit = fit.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let fit = &fit[..fit.len().min(NodeName::MAX_LEN)];
    let name = fit.parse().or_else(|_| "node".parse());
    name.expect("'node' is a name")
}

/// The labels of a node: its id, its name and what the operator gave it.
fn labels(name: &NodeName, own: &Labels) -> Result<Labels, StartError> {
    let mut labels = own.clone();
    if let (Ok(key), Ok(value)) = (NODE_ID.parse(), LOCAL.to_string().parse())
        && labels.get(NODE_ID).is_none()
    {
        labels.set(key, value)?;
    }
    if let (Ok(key), Ok(value)) = (HOSTNAME.parse(), name.as_str().parse())
        && labels.get(HOSTNAME).is_none()
    {
        labels.set(key, value)?;
    }
    Ok(labels)
}

impl Shared {
    /// Does what is left to do when the lock is released.
    fn carry_out(self: &Arc<Self>, todo: Todo) {
        for cell in todo.stop {
            cell.cancel();
        }
        for (cell, report) in todo.end {
            cell.end(report);
        }
        for start in todo.start {
            let weight = start.weight();
            self.spawner.spawn(weight, run_task(self.clone(), start));
        }
    }
}

impl Start {
    /// The part of the CPU that it asked for and holds.
    fn weight(&self) -> Weight {
        let cpu = self
            .held
            .iter()
            .find(|held| &*held.name == ResourceName::CPU.as_str());
        Weight::of_cpu(cpu.map_or(0, |held| held.amount))
    }

    /// The memory that it asked for and holds, in bytes.
    fn memory(&self) -> u64 {
        let memory = self
            .held
            .iter()
            .find(|held| &*held.name == ResourceName::MEMORY.as_str());
        memory.map_or(0, |held| Amount::from_steps(held.amount).whole_units())
    }
}

/// What a running task holds. Whatever way the task ends, it is given back and the task's waiter
/// hears of it, once.
struct Lease {
    shared: Arc<Shared>,
    cell: Arc<TaskCell>,
    attempt: Attempt,
    is_held: bool,
}

impl Lease {
    fn end(mut self, report: Report) {
        self.give_back(report);
    }

    fn give_back(&mut self, report: Report) {
        if !std::mem::replace(&mut self.is_held, false) {
            return;
        }
        let mut ledger = self.shared.ledger.lock();
        let todo = ledger.ended(self.cell.id, self.attempt, report);
        self.shared.pressure.set(ledger.waiting());
        drop(ledger);
        self.shared.carry_out(todo);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Only where the future was dropped before its end: the node is stopping.
        let report = Report::never_ran(&self.cell, TaskError::Cancelled);
        self.give_back(report);
    }
}

async fn run_task(shared: Arc<Shared>, start: Start) {
    let started = Instant::now();
    let memory = start.memory();
    let Start {
        job,
        call,
        cell,
        attempt,
        held,
    } = start;
    let lease = Lease {
        shared: shared.clone(),
        cell: cell.clone(),
        attempt,
        is_held: true,
    };
    // Its request is its limit, whichever of the variants it got.
    let limits = Limits {
        memory,
        ..job.limits.clone()
    };
    cell.set_running();
    let context = Arc::new(TaskContext {
        task: cell.id,
        attempt: attempt.0 - 1,
        node: shared.name.clone(),
        array_index: call.array_index,
        resources: held,
    });
    let output = TaskOutput::new(job.limits.output, call.listener);
    let invocation = Invocation {
        module: &job.module,
        entry: job.entry,
        values: &call.values,
        args: &call.args,
        context: context.clone(),
        grants: &job.grants,
        limits: &limits,
        output: &output,
        input: call.input,
    };
    let outcome = cell.unless_cancelled(shared.engine.run(invocation)).await;
    let outcome = outcome.unwrap_or(Err(TaskError::Cancelled));
    let memory_peak = outcome.as_ref().map_or(0, |outcome| outcome.memory_peak);
    let stderr_tail = if outcome.is_err() {
        output.stderr_tail()
    } else {
        String::new()
    };
    // Whoever listens to the output must see its end before the report.
    drop(output);
    let report = Report {
        id: cell.id,
        result: outcome.map(|outcome| outcome.result),
        waited: started.duration_since(cell.submitted),
        ran: started.elapsed(),
        held: Arc::try_unwrap(context).map_or_else(|c| c.resources.clone(), |c| c.resources),
        memory_peak,
        stderr_tail,
    };
    lease.end(report);
}
