//! The cases of `wasmrun bench`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use wasmrun_engine::{Entry, FunctionIndex, Grants, Module};
use wasmrun_model::resource::ResourceName;
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Encoded, Value, ValueType};
use wasmrun_node::{Call, Client, Job, Node, Overrides, TaskHandle, wait_all};

use crate::args::NodeOptions;
use crate::bench::Sample;
use crate::bench::hostile::Attack;
use crate::bench::nodes::Pair;
use crate::fail::Failure;
use crate::local;
use crate::printer::Printer;

/// Something to measure.
pub struct Case {
    pub name: &'static str,
    pub unit: &'static str,
    pub what: &'static str,
    /// Whether it needs the guest that starts tasks and actors of its own.
    pub needs_flow: bool,
    pub run: Run,
}

type Run = fn(&Setting) -> Result<Sample, Failure>;

/// A case: its name, its unit, what is measured, and how.
const fn case(name: &'static str, unit: &'static str, what: &'static str, run: Run) -> Case {
    Case {
        name,
        unit,
        what,
        needs_flow: false,
        run,
    }
}

/// One that needs the guest that starts tasks and actors of its own.
const fn flow(name: &'static str, unit: &'static str, what: &'static str, run: Run) -> Case {
    Case {
        needs_flow: true,
        ..case(name, unit, what, run)
    }
}

pub const CASES: &[Case] = &[
    case(
        "engine_raw_1",
        "1/s",
        "fresh sandbox and a call of nothing, straight on wasmtime, one thread: the limit",
        |setting| setting.engine_raw(1),
    ),
    case("engine_raw", "1/s", "the same on all cores", |setting| {
        setting.engine_raw(setting.cpus)
    }),
    case(
        "tasks_sync",
        "1/s",
        "submit a task that does nothing and wait, one at a time, fresh sandbox each",
        Setting::tasks_sync,
    ),
    case(
        "serve_neighbour",
        "1/s",
        "tasks_sync while 64 connections flood a service of another tenant",
        Setting::serve_neighbour,
    ),
    flow(
        "hostile_spawn",
        "1/s",
        "tasks_sync while tasks of another tenant, two for each CPU, start 10,000 tasks each, again and again",
        |setting| setting.beside(Attack::Spawn),
    ),
    flow(
        "hostile_put",
        "1/s",
        "tasks_sync while tasks of another tenant, two for each CPU, store 32 MiB each, and sum it",
        |setting| setting.beside(Attack::Put),
    ),
    case(
        "hostile_memory",
        "1/s",
        "tasks_sync while tasks of another tenant, two for each CPU, take 64 MiB each, and return it",
        |setting| setting.beside(Attack::Memory),
    ),
    case(
        "hostile_output",
        "1/s",
        "tasks_sync while tasks of another tenant, two for each CPU, write 16 MiB each",
        |setting| setting.beside(Attack::Output),
    ),
    case(
        "hostile_compile",
        "1/s",
        "tasks_sync while two threads for each CPU compile a module each",
        |setting| setting.beside(Attack::Compile),
    ),
    case(
        "tasks_async",
        "1/s",
        "submit 100,000 tasks that do nothing, wait for all, fresh sandbox each",
        Setting::tasks_async,
    ),
    case(
        "tasks_history",
        "ratio",
        "the same at a node that keeps a history of its tasks, by one that keeps none",
        Setting::tasks_history,
    ),
    flow(
        "tasks_nested",
        "1/s",
        "one task starts 10,000 that do nothing and waits for all",
        Setting::tasks_nested,
    ),
    flow(
        "actor_create",
        "us",
        "a task creates an actor and calls it once",
        Setting::actor_create,
    ),
    flow(
        "actor_sync",
        "1/s",
        "a task calls an actor and waits, one call at a time",
        Setting::actor_sync,
    ),
    flow(
        "actor_async",
        "1/s",
        "a task calls an actor 100,000 times, then waits for all",
        Setting::actor_async,
    ),
    flow(
        "wait_1k",
        "1/s",
        "a task waits for 1,000 objects that are there",
        Setting::wait_1k,
    ),
    case(
        "put_1k",
        "GB/s",
        "store 1 KiB, in memory that has been used",
        |setting| setting.put(1 << 10),
    ),
    case(
        "put_1m",
        "GB/s",
        "store 1 MiB, in memory that has been used",
        |setting| setting.put(1 << 20),
    ),
    case(
        "put_100m",
        "GB/s",
        "store 100 MiB, in memory that has been used",
        |setting| setting.put(100 << 20),
    ),
    case(
        "put_1g",
        "GB/s",
        "store 1 GiB, in memory that has been used",
        |setting| setting.put(1 << 30),
    ),
    case(
        "memcpy_1g",
        "GB/s",
        "copy 1 GiB to memory that has been used, with one thread: the limit of the line above",
        Setting::memcpy_1g,
    ),
    case(
        "put_1k_first",
        "GB/s",
        "store 1 KiB in memory that nobody has touched",
        |setting| setting.put_first(1 << 10),
    ),
    case(
        "put_1m_first",
        "GB/s",
        "store 1 MiB in memory that nobody has touched",
        |setting| setting.put_first(1 << 20),
    ),
    case(
        "put_100m_first",
        "GB/s",
        "store 100 MiB in memory that nobody has touched",
        |setting| setting.put_first(100 << 20),
    ),
    case(
        "put_1g_first",
        "GB/s",
        "store 1 GiB in memory that nobody has touched",
        |setting| setting.put_first(1 << 30),
    ),
    case(
        "memcpy_1g_first",
        "GB/s",
        "copy 1 GiB to memory that nobody has touched: the limit of the line above",
        Setting::memcpy_1g_first,
    ),
    case(
        "get_1k",
        "us",
        "a readable view of a stored object of 1 KiB",
        |setting| setting.get(1 << 10),
    ),
    case(
        "get_1m",
        "us",
        "a readable view of a stored object of 1 MiB",
        |setting| setting.get(1 << 20),
    ),
    case(
        "get_100m",
        "us",
        "a readable view of a stored object of 100 MiB",
        |setting| setting.get(100 << 20),
    ),
    case(
        "get_1g",
        "us",
        "a readable view of a stored object of 1 GiB",
        |setting| setting.get(1 << 30),
    ),
    flow(
        "arg_100m_copied",
        "ms",
        "a fresh task sums a stored argument of 100 MiB, which it gets as a copy",
        |setting| setting.arg_100m(false),
    ),
    flow(
        "arg_100m_mapped",
        "ms",
        "the same, attached to its memory",
        |setting| setting.arg_100m(true),
    ),
    case(
        "tasks_async_2nodes",
        "1/s",
        "submit 100,000 tasks that do nothing to one of two nodes, wait for all",
        Setting::tasks_async_2nodes,
    ),
    case(
        "transfer_1m",
        "GB/s",
        "bring 1 MiB from one node to another, encrypted, to memory that has been used",
        |setting| setting.transfer(1 << 20),
    ),
    case(
        "transfer_100m",
        "GB/s",
        "the same with 100 MiB",
        |setting| setting.transfer(100 << 20),
    ),
    case("transfer_1g", "GB/s", "the same with 1 GiB", |setting| {
        setting.transfer(1 << 30)
    }),
    case(
        "transfer_1g_first",
        "GB/s",
        "the same, the first between two nodes that have just started",
        Setting::transfer_1g_first,
    ),
    case(
        "recover_chain",
        "s",
        "3 tasks, 10 MiB each, of a node that is killed: from there until the last value is back",
        Setting::recover_chain,
    ),
    flow(
        "memory_actor",
        "bytes",
        "proportional set size of each of 500 actors that idle",
        Setting::memory_actor,
    ),
    case(
        "busy_1ms",
        "ratio",
        "10,000 tasks of 1 ms of CPU: ideal time by measured time",
        Setting::busy_1ms,
    ),
    case(
        "memory_idle",
        "bytes",
        "proportional set size of a node that has run tasks and idles",
        Setting::memory_idle,
    ),
    case(
        "start_cold",
        "ms",
        "`wasmrun submit` as a whole process, nothing in the code cache",
        Setting::start_cold,
    ),
    case(
        "start_warm",
        "ms",
        "`wasmrun submit` as a whole process, code in the cache",
        Setting::start_warm,
    ),
];

const RAW_CALLS: u64 = 50_000;
const SYNC_TASKS: usize = 5_000;
pub(super) const ASYNC_TASKS: usize = 100_000;
const BUSY_TASKS: usize = 10_000;
const BUSY: Duration = Duration::from_millis(1);
const WARM_UP_TASKS: usize = 1_000;

/// What the cases work with.
pub struct Setting {
    pub(super) node: Node,
    client: Client,
    pub(super) module: Module,
    pub(super) module_path: PathBuf,
    /// The guest that starts tasks and actors of its own.
    flow: Option<(PathBuf, Module)>,
    noop: FunctionIndex,
    busy: FunctionIndex,
    noop_job: Arc<Job>,
    busy_job: Arc<Job>,
    cpus: u64,
    pub(super) scratch: PathBuf,
    pub(super) fresh_dirs: AtomicU32,
    /// What nodes are started with.
    pub(super) options: NodeOptions,
    /// Two nodes, for the runs of a case that needs them.
    pub(super) pair: Mutex<Option<Pair>>,
    /// Whether a few of each thing are enough.
    is_short: bool,
}

impl Setting {
    pub fn new(
        options: &NodeOptions,
        module_path: &Path,
        flow_path: Option<&Path>,
        scratch: &Path,
        printer: &Printer,
    ) -> Result<Self, Failure> {
        let node = local::start(options, printer)?;
        let module = local::load(node.engine(), module_path, options, printer)?;
        let flow = match flow_path {
            Some(path) => {
                let module = local::load(node.engine(), path, options, printer)?;
                Some((std::path::absolute(path)?, module))
            }
            None => None,
        };
        let find = |name| {
            let shown = module_path.display();
            module
                .find(name)
                .with_context(|| format!("{shown} is no guest for the bench"))
        };
        let (noop, busy) = (find("noop")?, find("busy-iterations")?);
        let job = |name: &str, function| {
            let entry = Entry::Function(function);
            Job::new(
                name,
                &module,
                entry,
                &Overrides::default(),
                Grants::default(),
            )
            .map(Arc::new)
        };
        let (noop_job, busy_job) = (job("noop", noop)?, job("busy", busy)?);
        let cpus = node.total().get(&ResourceName::CPU).whole_units();
        Ok(Self {
            client: node.client(),
            node,
            module,
            module_path: std::path::absolute(module_path)?,
            flow,
            noop,
            busy,
            noop_job,
            busy_job,
            cpus,
            scratch: scratch.to_owned(),
            fresh_dirs: AtomicU32::new(0),
            options: options.clone(),
            pair: Mutex::default(),
            is_short: false,
        })
    }

    /// From now on a few of each thing are enough.
    pub fn shorten(&mut self) {
        self.is_short = true;
    }

    /// How many of something a case does.
    pub(super) fn count<T: Ord + From<u8>>(&self, full: T) -> T {
        match self.is_short {
            true => full.min(T::from(10)),
            false => full,
        }
    }

    /// How many bytes a case works on.
    pub(super) fn bytes(&self, full: usize) -> usize {
        match self.is_short {
            true => full.min(1 << 20),
            false => full,
        }
    }

    /// The guest that starts tasks and actors of its own, and where it is.
    pub(super) fn flow(&self) -> Option<&(PathBuf, Module)> {
        self.flow.as_ref()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The guest, where it is.
    pub(super) fn module_path(&self) -> &Path {
        &self.module_path
    }

    /// What nodes are started with.
    pub(super) fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// How many CPUs there are.
    pub(super) fn cpus(&self) -> u64 {
        self.cpus
    }

    /// Ends what the runs of a case have shared.
    pub fn end_case(&self) {
        let pair = self.pair.lock();
        drop(pair.expect("no case panics").take());
    }

    /// Runs some tasks, so that pools and caches are as in a node at work.
    pub fn warm_up(&self) -> Result<(), Failure> {
        self.run_all(&self.noop_job, &[], WARM_UP_TASKS).map(drop)
    }

    fn run_all(
        &self,
        job: &Arc<Job>,
        values: &[Encoded],
        count: usize,
    ) -> Result<Duration, Failure> {
        let started = Instant::now();
        let mut handles: Vec<TaskHandle> = Vec::with_capacity(count);
        for _ in 0..count {
            let call = Call {
                values: values.iter().cloned().map(Into::into).collect(),
                ..Call::default()
            };
            handles.push(self.client.submit(job, call)?);
        }
        wait_all(handles)
            .into_iter()
            .try_for_each(|report| report.result.map(drop))?;
        Ok(started.elapsed())
    }

    /// Calls straight on the engine on `threads` threads at once; the time of the slowest.
    fn raw(
        &self,
        threads: u64,
        function: FunctionIndex,
        values: &[Encoded],
        count: u64,
    ) -> Result<Duration, Failure> {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
        };
        let started = Instant::now();
        std::thread::scope(|scope| {
            let call = || -> Result<(), Failure> {
                let calls = self
                    .node
                    .engine()
                    .call_raw(&self.module, function, values, count);
                Ok(runtime()?.block_on(calls)?)
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(call)).collect();
            let mut ended = threads.into_iter().map(|thread| thread.join());
            ended.try_for_each(|result| result.expect("a bench thread does not panic"))
        })?;
        Ok(started.elapsed())
    }

    fn engine_raw(&self, threads: u64) -> Result<Sample, Failure> {
        let calls = self.count(RAW_CALLS);
        let took = self.raw(threads, self.noop, &[], calls)?;
        Ok(Sample::from((calls * threads) as f64 / took.as_secs_f64()))
    }

    pub(super) fn tasks_sync(&self) -> Result<Sample, Failure> {
        self.one_by_one(self.count(SYNC_TASKS))
    }

    /// So many tasks that do nothing, each submitted when the one before has ended.
    pub(super) fn one_by_one(&self, tasks: usize) -> Result<Sample, Failure> {
        let mut latencies = Vec::with_capacity(tasks);
        let all = Instant::now();
        for _ in 0..tasks {
            let started = Instant::now();
            self.client
                .submit(&self.noop_job, Call::default())?
                .wait()
                .result?;
            latencies.push(started.elapsed());
        }
        Ok(Sample {
            value: tasks as f64 / all.elapsed().as_secs_f64(),
            latencies,
        })
    }

    fn tasks_async(&self) -> Result<Sample, Failure> {
        let tasks = self.count(ASYNC_TASKS);
        let took = self.run_all(&self.noop_job, &[], tasks)?;
        Ok(Sample::from(tasks as f64 / took.as_secs_f64()))
    }

    fn busy_1ms(&self) -> Result<Sample, Failure> {
        // The machine's speed drifts, so it is calibrated before each run, with all cores at work.
        let tasks = self.count(BUSY_TASKS);
        let iterations = |n: u64| encode(&ValueType::U64, &Value::U64(n));
        let probe = 20_000_000;
        let took = self.raw(self.cpus, self.busy, &[iterations(probe)?], 5)?;
        let per_iteration = took.as_secs_f64() / 5.0 / probe as f64;
        let n = (BUSY.as_secs_f64() / per_iteration) as u64;
        let work = per_iteration * n as f64 * tasks as f64 / self.cpus as f64;
        let took = self.run_all(&self.busy_job, &[iterations(n)?], tasks)?;
        Ok(Sample::from(work / took.as_secs_f64()))
    }
}
