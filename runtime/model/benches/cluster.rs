//! How fast nodes are chosen: `cargo bench -p wasmrun-model --bench cluster`.

use std::collections::VecDeque;

use divan::Bencher;
use divan::counter::ItemsCount;
use wasmrun_model::cluster::{
    Basis, Choice, Cluster, Demand, NewNode, NodeIx, Strategy, Supply, Tuning,
};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::random::Random;
use wasmrun_model::resource::{Allocation, Load, NodeReport, NodeResources, Request};

fn main() {
    divan::main();
}

const NODES: [usize; 3] = [100, 1_000, 10_000];

/// A cluster at work: what runs, the oldest first.
struct World {
    cluster: Cluster,
    random: Random,
    demands: Vec<Vec<Request>>,
    strategy: Strategy,
    running: VecDeque<(NodeIx, Allocation)>,
    placed: VecDeque<(NodeIx, usize)>,
    next: usize,
}

fn resources() -> NodeResources {
    let amounts = r#"{"CPU": 16, "GPU": 4, "memory": "64GiB"}"#;
    NodeResources::of(&serde_json::from_str(amounts).unwrap()).unwrap()
}

/// The `n`-th request: each differs from all others.
fn request(n: usize) -> Request {
    let memory = 1_000_000_000 + n;
    serde_json::from_str(&format!(r#"{{"CPU": 1, "memory": "{memory}"}}"#)).unwrap()
}

impl World {
    fn new(nodes: usize, classes: usize, strategy: &str, is_own: bool) -> Self {
        let mut random = Random::new(7);
        let mut cluster = Cluster::new(Tuning::default());
        for at in 0..nodes {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&random.next().to_be_bytes());
            let new = NewNode {
                id: NodeId::from_bytes(id),
                name: format!("n{at}").parse().unwrap(),
                incarnation: Incarnation(1),
                labels: "zone=a".parse().unwrap(),
                supply: match is_own {
                    true => Supply::Own(resources()),
                    false => Supply::Peer(NodeReport::clone(&resources().report())),
                },
            };
            cluster.join(new).unwrap();
        }
        Self {
            cluster,
            random,
            demands: (0..classes).map(|n| vec![request(n)]).collect(),
            strategy: strategy.parse().unwrap(),
            running: VecDeque::new(),
            placed: VecDeque::new(),
            next: 0,
        }
    }

    fn choose(&mut self, basis: Basis) -> (NodeIx, usize) {
        let class = self.next % self.demands.len();
        self.next += 1;
        let demand = Demand {
            strategy: &self.strategy,
            ..Demand::of(&self.demands[class], basis)
        };
        match self.cluster.choose(&demand, &mut self.random) {
            Choice::Now { node, .. } => (node, class),
            other => panic!("{other:?}"),
        }
    }

    /// Chooses a node and takes the resources there.
    fn start(&mut self) {
        let (node, class) = self.choose(Basis::Acquirable);
        let taken = self.cluster.own_mut(node).acquire(&self.demands[class][0]);
        self.running.push_back((node, taken.unwrap()));
    }

    fn finish(&mut self) {
        let (node, allocation) = self.running.pop_front().unwrap();
        self.cluster.own_mut(node).release(allocation);
    }

    /// Chooses a node and counts the task there.
    fn place(&mut self) {
        let (node, class) = self.choose(Basis::TrulyFree);
        self.cluster.claim(node, &self.demands[class][0]);
        self.placed.push_back((node, class));
    }

    fn unplace(&mut self) {
        let (node, class) = self.placed.pop_front().unwrap();
        self.cluster.unclaim(node, &self.demands[class][0]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.running.drain(..).for_each(|(_, held)| held.abandon());
    }
}

/// One decision with the acquire that follows it and the release of an older task, 60 % full.
fn turnover(bencher: Bencher, nodes: usize, classes: usize, strategy: &str) {
    let mut world = World::new(nodes, classes, strategy, true);
    (0..nodes * 16 * 6 / 10).for_each(|_| world.start());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        world.finish();
        world.start();
    });
}

#[divan::bench(args = NODES, sample_size = 1_000)]
fn default_1_class(bencher: Bencher, nodes: usize) {
    turnover(bencher, nodes, 1, "default");
}

#[divan::bench(args = NODES, sample_size = 1_000)]
fn default_8_classes(bencher: Bencher, nodes: usize) {
    turnover(bencher, nodes, 8, "default");
}

#[divan::bench(args = NODES, sample_size = 1_000)]
fn spread_1_class(bencher: Bencher, nodes: usize) {
    turnover(bencher, nodes, 1, "spread");
}

/// The random strategy as it places: on what is truly free, counted as load.
#[divan::bench(args = NODES, sample_size = 1_000)]
fn random_1_class_own(bencher: Bencher, nodes: usize) {
    let mut world = World::new(nodes, 1, "random", true);
    (0..nodes * 16 * 6 / 10).for_each(|_| world.place());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        world.unplace();
        world.place();
    });
}

/// The default strategy among nodes that are known by their reports.
#[divan::bench(args = NODES, sample_size = 1_000)]
fn default_1_class_peers(bencher: Bencher, nodes: usize) {
    let mut world = World::new(nodes, 1, "default", false);
    (0..nodes * 16 * 6 / 10).for_each(|_| world.place());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        world.unplace();
        world.place();
    });
}

/// The least estimated wait where nothing is free.
#[divan::bench(args = NODES, sample_size = 1_000)]
fn later_1_class(bencher: Bencher, nodes: usize) {
    let mut world = World::new(nodes, 1, "default", true);
    (0..nodes * 16).for_each(|_| world.start());
    let demands = world.demands[0].clone();
    bencher.bench_local(|| {
        let demand = Demand::of(&demands, Basis::Acquirable);
        let choice = world.cluster.choose(&demand, &mut world.random);
        assert!(matches!(choice, Choice::Later { .. }));
    });
}

/// Taking and giving back on one node, with the change noted.
#[divan::bench(sample_size = 1_000)]
fn acquire_release(bencher: Bencher) {
    let mut world = World::new(1, 1, "default", true);
    let request = request(0);
    bencher.bench_local(|| {
        let held = world.cluster.own_mut(NodeIx(0)).acquire(&request).unwrap();
        world.cluster.own_mut(NodeIx(0)).release(held);
    });
}

/// Counting a request for two resources as load, and no longer.
#[divan::bench(args = [0, 1, 100])]
fn load_add_remove(bencher: Bencher, others: usize) {
    let (mut load, request) = (Load::default(), request(0));
    (0..others).for_each(|_| load.add(&request));
    bencher.bench_local(|| {
        load.add(divan::black_box(&request));
        assert!(load.remove(divan::black_box(&request)));
    });
}
