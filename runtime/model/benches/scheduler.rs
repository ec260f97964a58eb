//! How many decisions per second one scheduler makes: submit, dispatch, accept, finish, on one core.
//!
//! `cargo bench -p wasmrun-model --bench scheduler`. The figure is tasks per second; each run takes
//! [`TASKS`] of them through a node that is full all the time.

use std::collections::VecDeque;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use wasmrun_model::cluster::Labels;
use wasmrun_model::id::{DriverId, Incarnation, JobId, NodeId, TaskId};
use wasmrun_model::resource::{Amount, NodeResources, Pool, Request, ResourceName, ResourceSet};
use wasmrun_model::scheduler::{Config, Effect, Event, NodeInfo, Scheduler};
use wasmrun_model::task::{Attempt, Phase, TaskKind, TaskSpec, Terms};
use wasmrun_model::time::Instant;

fn main() {
    divan::main();
}

/// Tasks per run.
const TASKS: u64 = 200_000;

const CPUS: [&str; 4] = ["1", "0.5", "2", "0.25"];

fn request(cpu: &str, memory: u32) -> Request {
    let amounts = ResourceSet::new()
        .with(ResourceName::CPU, cpu.parse().unwrap())
        .with(ResourceName::MEMORY, Amount::units(memory));
    Request::new(amounts).unwrap()
}

fn node(number: u64) -> (NodeInfo, NodeResources) {
    let mut resources = NodeResources::new();
    let offers = [
        (ResourceName::CPU, 64),
        (ResourceName::GPU, 8),
        (ResourceName::MEMORY, 1 << 30),
    ];
    for (name, units) in offers {
        let pool = Pool::for_name(&name, Amount::units(units)).unwrap();
        resources.add(name, pool).unwrap();
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let info = NodeInfo {
        id: NodeId::from_bytes(id),
        incarnation: Incarnation::default(),
        name: format!("n{number}").parse().unwrap(),
        labels: Labels::new(),
    };
    (info, resources)
}

/// A scheduler, what to submit to it, and what runs.
struct World {
    scheduler: Scheduler,
    terms: Vec<Arc<Terms>>,
    ids: Vec<TaskId>,
    running: VecDeque<(TaskId, Attempt)>,
    micros: u64,
    /// How many tasks are in the scheduler at a time.
    window: u64,
}

const DRIVER: DriverId = DriverId::from_bytes([1; 16]);

impl World {
    fn new(nodes: u64, shapes: usize, tenants: usize) -> Self {
        let names: Vec<String> = (0..tenants).map(|at| format!("t{at}")).collect();
        Self::of_tenants(nodes, shapes, &names)
    }

    fn of_tenants(nodes: u64, shapes: usize, tenants: &[String]) -> Self {
        let local = (nodes == 1).then(|| node(0).0.id);
        let mut scheduler = Scheduler::new(Config {
            local,
            ..Config::default()
        });
        for number in 0..nodes {
            let (node, resources) = node(number);
            scheduler.handle(
                Instant::ZERO,
                Event::OwnNode {
                    node,
                    resources: resources.into(),
                },
            );
        }
        let mut terms = Vec::new();
        for tenant in tenants {
            for shape in 0..shapes {
                let memory = 1 << 16 | u32::try_from(shape).unwrap();
                let mut of = Terms::of(request(CPUS[shape % 4], memory));
                of.tenant = tenant.parse().unwrap();
                terms.push(Arc::new(of));
            }
        }
        Self {
            scheduler,
            terms,
            ids: (0..TASKS).map(|number| DRIVER.task(number)).collect(),
            running: VecDeque::new(),
            micros: 0,
            window: (256 * nodes).max(4 * tenants.len() as u64),
        }
    }

    /// A million tasks of a thousand shapes wait for GPUs, all of which one task holds.
    fn with_parked(mut self, tasks: u64) -> Self {
        let gpus = |units| ResourceSet::new().with(ResourceName::GPU, Amount::units(units));
        let all = Arc::new(Terms::of(Request::new(gpus(8)).unwrap()));
        self.submit(DRIVER.task(u64::MAX), &all);
        self.running.clear();
        let shapes: Vec<Arc<Terms>> = (0..1000)
            .map(|shape| {
                let amounts =
                    gpus(1 + shape % 8).with(ResourceName::MEMORY, Amount::units(1000 + shape));
                Arc::new(Terms::of(Request::new(amounts).unwrap()))
            })
            .collect();
        for number in 0..tasks {
            let terms = shapes[usize::try_from(number).unwrap() % shapes.len()].clone();
            self.submit(DRIVER.task(1 << 40 | number), &terms);
        }
        assert_eq!(self.scheduler.len_in(Phase::Ready) as u64, tasks);
        self
    }

    fn submit(&mut self, id: TaskId, terms: &Arc<Terms>) {
        let spec = TaskSpec {
            id,
            driver: DRIVER,
            job: JobId::from_bytes([2; 16]),
            terms: terms.clone(),
            kind: TaskKind::Task,
            args: Vec::new(),
        };
        self.handle(Event::Submit(spec));
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::from_micros(self.micros);
        self.scheduler.handle(now, event);
        while let Some(effect) = self.scheduler.poll_effect() {
            if let Effect::Dispatch { task, attempt, .. } = effect {
                self.scheduler.note(now, Event::Accepted { task, attempt });
                self.running.push_back((task, attempt));
            }
        }
    }

    /// Takes all tasks from their submission to their end.
    fn run(mut self) -> Self {
        let (mut submitted, mut ended) = (0, 0);
        while ended < TASKS {
            self.micros += 1;
            while submitted < TASKS && submitted - ended < self.window {
                let at = usize::try_from(submitted).unwrap();
                let terms = self.terms[at * 7 % self.terms.len()].clone();
                self.submit(self.ids[at], &terms);
                submitted += 1;
            }
            let (task, attempt) = self.running.pop_front().expect("something runs");
            self.handle(Event::Finished { task, attempt });
            ended += 1;
        }
        self
    }
}

fn bench(bencher: Bencher, world: impl Fn() -> World + Sync) {
    bencher
        .counter(ItemsCount::new(TASKS))
        .with_inputs(world)
        .bench_local_values(World::run);
}

/// One node, this many shapes.
#[divan::bench(args = [1, 8, 64], sample_count = 9, sample_size = 1)]
fn local(bencher: Bencher, shapes: usize) {
    bench(bencher, || World::new(1, shapes, 1));
}

/// One node, 8 shapes, while a million tasks of a thousand other shapes do not fit.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn local_beside_a_million(bencher: Bencher) {
    bench(bencher, || World::new(1, 8, 1).with_parked(1_000_000));
}

/// One node, 4 shapes, this many tenants by dominant resource fairness.
#[divan::bench(args = [10, 1000], sample_count = 9, sample_size = 1)]
fn drf(bencher: Bencher, tenants: usize) {
    bench(bencher, || World::new(1, 4, tenants));
}

/// This many nodes, 4 shapes, a thousand tenants in ten organisations of ten teams.
#[divan::bench(args = [1, 10_000], sample_count = 5, sample_size = 1)]
fn drf_tree(bencher: Bencher, nodes: u64) {
    let path = |at: usize| format!("o{}/t{}/p{}", at % 10, at / 10 % 10, at / 100);
    let tenants: Vec<String> = (0..1000).map(path).collect();
    bench(bencher, || World::of_tenants(nodes, 4, &tenants));
}

/// All nodes of a cluster by one scheduler, as `wasmrun simulate` does it; 8 shapes.
#[divan::bench(args = [100, 1000], sample_count = 5, sample_size = 1)]
fn cluster_wide(bencher: Bencher, nodes: u64) {
    bench(bencher, || World::new(nodes, 8, 1));
}
