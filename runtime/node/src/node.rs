//! A node in this process, and the clients that submit to it.
//!
//! A submission goes: [`Client::submit`] → admission (by resources) → a guest thread → the
//! task's [`TaskHandle`]. Nothing in between polls or waits for a tick: whoever frees resources
//! starts the next task, on the thread that has just become free.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wasmrun_engine::{
    Engine, EngineConfig, EngineError, HeldResource, Invocation, TaskContext, TaskOutput,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::resource::{
    AddResourceError, Allocation, Amount, CapacityError, Infeasibility, NodeResources,
    ParsePoolError, ParseResourceNameError, Pool, ResourceName, ResourceSet,
};

use crate::admission::Admission;
use crate::executor::{Executor, Spawner, Weight};
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
    /// No node can ever serve it.
    #[error(
        "no node can ever run this task: {why} ({node}); ask for less, or use a node that has it"
    )]
    Infeasible {
        /// What is lacking.
        why: Infeasibility,
        /// The node that was asked.
        node: String,
    },
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
    state: Mutex<State>,
    pressure: Arc<Pressure>,
    /// The names of resources as guests see them.
    names: HashMap<ResourceName, Arc<str>>,
}

struct State {
    admission: Admission<Queued>,
    running: HashMap<TaskId, Running>,
    stopping: bool,
}

/// A task that has not ended, to be found when it is cancelled.
struct Running {
    driver: DriverId,
    cell: Arc<TaskCell>,
}

struct Queued {
    driver: DriverId,
    job: Arc<Job>,
    call: Call,
    cell: Arc<TaskCell>,
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
        let max_running = config.engine.max_sandboxes as usize;
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-control")
            .enable_all()
            .build()?;
        let executor = Executor::start(threads, control.handle())?;
        let name = config.name.clone().unwrap_or(machine.name);
        let total = resources.total();
        let names = total
            .iter()
            .map(|(name, _)| (name.clone(), name.as_str().into()));
        let shared = Shared {
            name: name.into(),
            engine: Engine::new(config.engine)?,
            spawner: executor.spawner(),
            pressure: Arc::default(),
            names: names.collect(),
            state: Mutex::new(State {
                admission: Admission::new(resources, max_running),
                running: HashMap::new(),
                stopping: false,
            }),
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
        self.shared.state.lock().admission.resources().total()
    }

    /// What no task holds.
    pub fn available(&self) -> ResourceSet {
        self.shared.state.lock().admission.resources().available()
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
        self.shared.state.lock().stopping = true;
        self.shared.cancel_where(|_, _| true);
        let started = Instant::now();
        while self.shared.state.lock().admission.running() > 0 && started.elapsed() < DRAIN {
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
        let queued = Queued {
            driver: *driver,
            job: job.clone(),
            call,
            cell: cell.clone(),
        };
        let mut state = shared.state.lock();
        if state.stopping {
            return Err(SubmitError::Stopping);
        }
        state
            .admission
            .push(&job.request, queued)
            .map_err(|why| SubmitError::Infeasible {
                why,
                node: format!("node {}", shared.name),
            })?;
        let next = state.start_next();
        shared.pressure.set(state.admission.waiting());
        drop(state);
        shared.start(next);
        Ok(TaskHandle(cell))
    }

    /// Cancels a task: one that waits ends at once, one that runs at its next turn.
    pub fn cancel(&self, task: &TaskHandle) {
        let id = task.id();
        self.0.shared.cancel_where(|_, cell| cell.id == id);
    }

    /// Cancels everything that this session has submitted and that has not ended.
    pub fn cancel_all(&self) {
        let mine = self.0.driver;
        self.0.shared.cancel_where(|driver, _| driver == mine);
    }
}

impl Queued {
    /// Ends a task that has not started.
    fn cancel(self) {
        self.cell.cancel();
        self.cell
            .end(Report::never_ran(&self.cell, TaskError::Cancelled));
    }
}

impl State {
    /// The next task that can start, if any, now counted as running.
    fn start_next(&mut self) -> Option<(Queued, Allocation)> {
        let (queued, allocation) = self.admission.next()?;
        let (driver, cell) = (queued.driver, queued.cell.clone());
        self.running.insert(cell.id, Running { driver, cell });
        Some((queued, allocation))
    }
}

impl Shared {
    /// Hands tasks to the guest threads: `next`, and whatever else fits.
    fn start(self: &Arc<Self>, mut next: Option<(Queued, Allocation)>) {
        while let Some((queued, allocation)) = next {
            let cpu = queued.job.request.amounts().get(&ResourceName::CPU);
            let task = run_task(self.clone(), queued, allocation);
            self.spawner.spawn(Weight::of_cpu(cpu.steps()), task);
            next = self.state.lock().start_next();
        }
    }

    /// Cancels those of the waiting and the running for whom `is_meant` holds.
    fn cancel_where(&self, is_meant: impl Fn(DriverId, &TaskCell) -> bool) {
        let mut state = self.state.lock();
        let waiting = state
            .admission
            .take_where(|queued| is_meant(queued.driver, &queued.cell));
        let running = state.running.values();
        let running: Vec<_> = running
            .filter(|task| is_meant(task.driver, &task.cell))
            .map(|task| task.cell.clone())
            .collect();
        self.pressure.set(state.admission.waiting());
        drop(state);
        waiting.into_iter().for_each(Queued::cancel);
        running.iter().for_each(|cell| cell.cancel());
    }

    fn held(&self, allocation: &Allocation) -> Vec<HeldResource> {
        let held = allocation.iter().map(|(name, part)| HeldResource {
            name: self
                .names
                .get(name)
                .cloned()
                .unwrap_or_else(|| name.as_str().into()),
            amount: part.amount().steps(),
            units: part
                .ids()
                .map(|(id, amount)| (id.get(), amount.steps()))
                .collect(),
        });
        held.collect()
    }
}

/// What a running task holds. Whatever way the task ends, it is given back and the task's waiter
/// hears of it, once.
struct Lease {
    shared: Arc<Shared>,
    cell: Arc<TaskCell>,
    allocation: Option<Allocation>,
}

impl Lease {
    fn end(mut self, report: Report) {
        self.give_back(report);
    }

    fn give_back(&mut self, report: Report) {
        let Some(allocation) = self.allocation.take() else {
            return;
        };
        let mut state = self.shared.state.lock();
        state.admission.release(allocation);
        state.running.remove(&self.cell.id);
        let next = state.start_next();
        self.shared.pressure.set(state.admission.waiting());
        drop(state);
        self.cell.end(report);
        self.shared.start(next);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Only where the future was dropped before its end: the node is stopping.
        let report = Report::never_ran(&self.cell, TaskError::Cancelled);
        self.give_back(report);
    }
}

async fn run_task(shared: Arc<Shared>, queued: Queued, allocation: Allocation) {
    let started = Instant::now();
    let Queued {
        job, call, cell, ..
    } = queued;
    let held = shared.held(&allocation);
    let lease = Lease {
        shared: shared.clone(),
        cell: cell.clone(),
        allocation: Some(allocation),
    };
    cell.set_running();
    let context = Arc::new(TaskContext {
        task: cell.id,
        attempt: 0,
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
        limits: &job.limits,
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
