//! The world of simulated nodes: who lives, what is submitted, what goes wrong, and what must be so at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;
use wasmrun_engine::{Engine, EngineConfig, Entry, Grants, Module, Readable as _, Wishes};
use wasmrun_model::cluster::Labels;
use wasmrun_model::id::{DriverId, Incarnation, NodeId};
use wasmrun_model::random::Random;
use wasmrun_model::resource::{Amount, NodeResources, Pool, ResourceName};
use wasmrun_model::scheduler::NodeInfo;
use wasmrun_model::value::{Encoded, NumberKind};
use wasmrun_model::wire::Amounts;
use wasmrun_store::{Backing, Store, StoreConfig};

use super::super::{Exchange, Fabric};
use super::fabric::{End, Lines, Network, Place};
use super::guests::{Guests, MODULE, Plan, decoded};
use crate::actor::ActorOptions;
use crate::client::Client;
use crate::cluster::members::{Members, NodeRecord};
use crate::guests::executor::Executor;
use crate::guests::shared::{Parts, Shared};
use crate::peers::Work as _;
use crate::records::class::ActorJob;
use crate::records::job::{Argument, Call, Job};
use crate::records::options::Overrides;
use crate::records::policy::Policy;
use crate::testing::COUNTER;

const FAULTS_UNTIL: Duration = Duration::from_secs(20);
/// All work is done that long after faults have ended.
const DONE_AFTER: Duration = Duration::from_secs(600);
/// What is under way by then comes to its end.
const SETTLES_IN: Duration = Duration::from_secs(60);

/// Runs a seed. What was said, in order.
pub(super) fn run(seed: u64, is_traced: bool) -> Vec<String> {
    let runtime = Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let trace = runtime.block_on(World::run(seed, is_traced));
    runtime.shutdown_background();
    trace
}

/// The modules of tasks and of actors. They are compiled once, for all seeds.
fn modules() -> (Engine, [Module; 2]) {
    static ALL: OnceLock<(Engine, [Module; 2])> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let engine = Engine::new(EngineConfig::default()).expect("an engine");
        let modules = [MODULE, COUNTER].map(|text| {
            let module = engine.load(&wat::parse_str(text).expect("a text"));
            module.expect("a module")
        });
        (engine, modules)
    });
    all.clone()
}

/// What a node is besides what others reach.
struct Own {
    executor: Executor,
    /// The way to others.
    lines: Arc<Lines>,
    views: u64,
    drivers: Vec<AbortHandle>,
}

struct World {
    network: Arc<Network>,
    ids: Vec<NodeId>,
    own: Mutex<BTreeMap<NodeId, Own>>,
    incarnations: Mutex<BTreeMap<NodeId, u64>>,
    has_healed: Mutex<bool>,
}

fn id(at: usize) -> NodeId {
    NodeId::from_bytes([at as u8 + 1; 16])
}

/// What the node with this number has.
fn resources(at: u8) -> NodeResources {
    let mut resources = NodeResources::new();
    let memory = Amount::parse_memory("64GiB").expect("an amount");
    let cpus = Amount::units(2 + u32::from(at % 3));
    for (name, amount) in [(ResourceName::CPU, cpus), (ResourceName::MEMORY, memory)] {
        let pool = Pool::for_name(&name, amount).expect("a pool");
        resources.add(name, pool).expect("it is new");
    }
    resources
}

impl World {
    async fn run(seed: u64, is_traced: bool) -> Vec<String> {
        let mut random = Random::new(seed);
        let count = 1 + random.below(5);
        let world = Arc::new(Self {
            network: Network::new(random.split(), is_traced),
            ids: (0..count).map(id).collect(),
            own: Mutex::default(),
            incarnations: Mutex::default(),
            has_healed: Mutex::new(false),
        });
        for node in &world.ids {
            world.start(*node);
        }
        let helpers = [
            tokio::spawn(world.clone().pump()),
            tokio::spawn(world.clone().tell()),
            tokio::spawn(world.clone().break_things(random.split())),
        ];
        let mut drivers = Vec::new();
        for at in 0..2 + random.below(4) {
            let node = world.ids[random.below(count)];
            let driver = tokio::spawn(world.clone().drive(node, at as u8, random.split()));
            if let Some(own) = world.own.lock().get_mut(&node) {
                own.drivers.push(driver.abort_handle());
            }
            drivers.push(driver);
        }
        tokio::time::sleep(FAULTS_UNTIL).await;
        world.heal().await;
        for driver in drivers {
            match tokio::time::timeout(DONE_AFTER, driver).await {
                Ok(Ok(())) => {}
                // Its node died.
                Ok(Err(error)) if error.is_cancelled() => {}
                Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                Err(_) => world.give_up(),
            }
        }
        tokio::time::sleep(SETTLES_IN).await;
        world.check_nothing_is_left();
        for helper in helpers {
            if helper.is_finished() {
                helper.await.expect("it has not failed");
            } else {
                helper.abort();
            }
        }
        for node in &world.ids {
            world.kill(*node);
        }
        world.network.take_trace()
    }

    /// An incarnation of a node begins.
    fn start(self: &Arc<Self>, node: NodeId) {
        let incarnation = {
            let mut incarnations = self.incarnations.lock();
            let incarnation = incarnations.entry(node).or_default();
            *incarnation += 1;
            Incarnation(*incarnation)
        };
        self.network
            .note(|| format!("{node} starts, incarnation {incarnation}"));
        let (engine, modules) = modules();
        let at = node.as_bytes()[0];
        let executor = Executor::start(0).expect("an executor");
        let mut random = [at; 16];
        random[1] = incarnation.0 as u8;
        let shared = Shared::new(Parts {
            info: NodeInfo {
                id: node,
                incarnation,
                name: format!("n{at}").parse().expect("a name"),
                labels: Labels::new(),
            },
            resources: resources(at),
            max_running: 1000,
            engine,
            spawner: executor.spawner(),
            store: Store::open(StoreConfig {
                backing: Backing::Memfd,
                // In some there is hardly room.
                ..StoreConfig::new(if at.is_multiple_of(2) {
                    3 << 20
                } else {
                    16 << 20
                })
            })
            .expect("a store"),
            room_patience: Duration::from_secs(2),
            policy: Policy::new(&Default::default()).expect("a policy"),
            history_bytes: 1 << 20,
            control: Handle::current(),
            random,
        });
        assert!(shared.guests.set(Arc::new(Guests)).is_ok());
        let members = Arc::new(Members::new());
        let lines = Arc::new(Lines {
            me: Mutex::new((node, incarnation)),
            network: self.network.clone(),
            members: members.clone(),
            control: Handle::current(),
        });
        let fabric: Arc<dyn Fabric> = lines.clone();
        let folder = std::env::temp_dir();
        let exchange = Exchange::start(&shared, Arc::downgrade(&fabric), &folder);
        for module in modules {
            let pause = Duration::from_millis(self.network.below(4_000) as u64);
            tokio::spawn(exchange.modules().put_after(module, pause));
        }
        assert!(shared.others.set(exchange.clone()).is_ok());
        members.set_work(exchange.clone());
        let place = Place {
            shared,
            exchange,
            members,
        };
        self.joins((node, incarnation), place);
        let own = Own {
            executor,
            lines,
            views: 0,
            drivers: Vec::new(),
        };
        self.own.lock().insert(node, own);
    }

    /// An incarnation of a node is registered. It and the others hear of each other.
    fn joins(self: &Arc<Self>, (node, incarnation): End, place: Place) {
        let others = self.network.alive();
        self.network.add((node, incarnation), place.clone());
        for (other, there) in others {
            for (at, met) in [(place.clone(), other), (there, (node, incarnation))] {
                let world = self.clone();
                tokio::spawn(async move {
                    world.network.wait(0, 1_500).await;
                    world.meets(&at, met);
                });
            }
        }
    }

    /// An incarnation of a node is over. The others hear of it, each at its time.
    fn is_over(self: &Arc<Self>, (node, incarnation): End) {
        for (_, other) in self.network.alive() {
            let world = self.clone();
            tokio::spawn(async move {
                world.network.wait(500, 3_000).await;
                if other.members.incarnation(node) == Some(incarnation) {
                    other.members.leave(node);
                }
            });
        }
    }

    /// A node was cut off from the control store for longer than its lease: others take it for dead, and it begins
    /// another incarnation within its process.
    async fn cut_off(self: &Arc<Self>, node: NodeId) {
        let Some((incarnation, place)) = self.network.remove(node) else {
            return;
        };
        self.network.note(|| format!("{node} is cut off"));
        self.is_over((node, incarnation));
        self.network.wait(0, 3_000).await;
        place.members.lose_sight();
        let incarnation = Incarnation(incarnation.0 + 1);
        let lines = match self.own.lock().get(&node) {
            Some(own) => own.lines.clone(),
            None => return,
        };
        self.incarnations.lock().insert(node, incarnation.0);
        *lines.me.lock() = (node, incarnation);
        self.network.wait(0, 1_000).await;
        self.network
            .note(|| format!("{node} is back, incarnation {incarnation}"));
        self.joins((node, incarnation), place.clone());
        self.network.wait(1_500, 1_600).await;
        place.members.give_up_unseen();
    }

    /// A node hears from the control store that an incarnation of another is a member.
    fn meets(&self, at: &Place, (node, incarnation): End) {
        if self.network.place((node, incarnation)).is_none()
            || at.members.incarnation(node) == Some(incarnation)
        {
            return;
        }
        // It hears of the incarnations of a node in their order.
        at.members.leave(node);
        let record = NodeRecord {
            name: format!("n{}", node.as_bytes()[0]).parse().expect("a name"),
            labels: Labels::new(),
            incarnation,
            addresses: Vec::new(),
            is_head: false,
            is_draining: false,
            total: Amounts::new(),
            version: String::new(),
        };
        at.members.join(node, incarnation, record);
    }

    /// A node dies.
    fn kill(self: &Arc<Self>, node: NodeId) {
        let Some((incarnation, place)) = self.network.remove(node) else {
            return;
        };
        self.network.note(|| format!("{node} dies"));
        let own = self.own.lock().remove(&node);
        // What its tasks hold must not be dropped.
        drop(place.shared.ask(|ledger| ledger.lose_own()));
        if let Some(own) = own {
            own.drivers.iter().for_each(AbortHandle::abort);
            drop(own.executor);
        }
        drop(place);
        self.is_over((node, incarnation));
    }

    /// Lets guests run.
    async fn pump(self: Arc<Self>) {
        loop {
            for node in &self.ids {
                if let Some(own) = self.own.lock().get(node) {
                    own.executor.run_all();
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Nodes tell each other what they have and do.
    async fn tell(self: Arc<Self>) {
        loop {
            self.network.wait(80, 120).await;
            let all = self.network.alive();
            for ((node, incarnation), place) in &all {
                let version = match self.own.lock().get_mut(node) {
                    Some(own) => {
                        own.views += 1;
                        own.views
                    }
                    None => continue,
                };
                let mut view = place.exchange.own_view();
                view.version = version;
                for ((other, _), there) in &all {
                    let (node, incarnation, view) = (*node, *incarnation, view.clone());
                    if *other == node
                        || self.network.is_down(*other, node)
                        || self.network.below(10) == 0
                    {
                        continue;
                    }
                    let (network, members) = (self.network.clone(), there.members.clone());
                    tokio::spawn(async move {
                        network.wait(0, 50).await;
                        members.view(node, incarnation, view);
                    });
                }
            }
        }
    }

    async fn break_things(self: Arc<Self>, mut random: Random) {
        for _ in 0..random.below(8) {
            self.network.wait(500, 5_000).await;
            if *self.has_healed.lock() {
                return;
            }
            let node = self.ids[random.below(self.ids.len())];
            let other = self.ids[random.below(self.ids.len())];
            match random.below(5) {
                3 => self.cut_off(node).await,
                0 => {
                    self.kill(node);
                    self.network.wait(50, 6_000).await;
                    if !self.own.lock().contains_key(&node) {
                        self.start(node);
                    }
                }
                1 if node != other => {
                    self.network
                        .note(|| format!("{node} and {other} are parted"));
                    self.network.set_down(node, other, true);
                    let world = self.clone();
                    tokio::spawn(async move {
                        world.network.wait(100, 1_500).await;
                        world.set_silent(node, other, true);
                        world.network.wait(100, 6_000).await;
                        world.network.set_down(node, other, false);
                        world.set_silent(node, other, false);
                    });
                }
                2 => {
                    let is_draining = random.below(2) == 0;
                    self.network
                        .note(|| format!("{node} drains: {is_draining}"));
                    for (_, place) in self.network.alive() {
                        place.exchange.set_draining(node, is_draining);
                    }
                }
                _ => {}
            }
        }
    }

    fn set_silent(&self, one: NodeId, other: NodeId, is_silent: bool) {
        for ((node, _), place) in self.network.alive() {
            match () {
                () if node == one => place.members.silent(other, is_silent),
                () if node == other => place.members.silent(one, is_silent),
                () => {}
            }
        }
    }

    async fn heal(self: &Arc<Self>) {
        *self.has_healed.lock() = true;
        self.network.note(|| "all is well".to_owned());
        for one in &self.ids {
            for other in &self.ids {
                self.network.set_down(*one, *other, false);
                self.set_silent(*one, *other, false);
            }
        }
        for node in &self.ids {
            if !self.own.lock().contains_key(node) {
                self.start(*node);
            }
        }
        // By then nodes that were cut off are back.
        self.network.wait(9_000, 10_000).await;
        for node in &self.ids {
            for (_, place) in self.network.alive() {
                place.exchange.set_draining(*node, false);
            }
        }
    }

    /// Submits tasks at a node, and waits for what comes of them.
    async fn drive(self: Arc<Self>, node: NodeId, at: u8, mut random: Random) {
        let Some((_, place)) = self
            .network
            .alive()
            .into_iter()
            .find(|((id, _), _)| *id == node)
        else {
            return;
        };
        let mut bytes = [at; 16];
        bytes[..8].copy_from_slice(&random.next().to_le_bytes());
        let client = Client::new(place.shared.clone(), DriverId::from_bytes(bytes));
        drop(place);
        let (_, [module, actors]) = modules();
        let entry = Entry::Function(module.find("f").expect("it has that"));
        let mut waiting = Vec::new();
        for _ in 0..1 + random.below(16) {
            self.network.wait(0, 2_500).await;
            let plan = Plan {
                seed: random.next(),
                depth: random.below(4) as u8,
            };
            let overrides = Overrides {
                retries: Some(50),
                ..Overrides::default()
            };
            let job = Job::new("f", &module, entry, &overrides, Grants::default());
            let value = Encoded::Buffer {
                kind: NumberKind::U8,
                bytes: plan.to_bytes(random.below(6) == 0),
            };
            let call = Call {
                values: vec![Argument::Value(value.into())],
                ..Call::default()
            };
            let task = client.submit(&Arc::new(job.expect("a job")), call);
            let task = task.expect("it is taken");
            if random.below(8) == 0 {
                self.network.wait(0, 1_000).await;
                client.cancel(&task);
            } else {
                waiting.push((plan, task.object()));
            }
        }
        if random.below(3) == 0 {
            self.use_actor(&client, &actors, random.split()).await;
        }
        if random.below(5) == 0 {
            // It does not wait for what it has submitted.
            return client.cancel_all();
        }
        for (plan, object) in waiting {
            let came = client.get_async(&object, None).await;
            let result = match came {
                Ok(value) => {
                    let loaded = value.read().await;
                    let loaded = loaded.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
                    Ok(decoded(loaded.encoded().bytes()))
                }
                Err(error) => Err(error.to_string()),
            };
            self.network
                .note(|| format!("{plan:?} has come to {result:?}"));
            match (plan.expected(), result) {
                (Some(expected), Ok(result)) => assert_eq!(result, expected, "{plan:?}"),
                (None, Err(why)) if why.contains("planned") && !why.contains("not planned") => {}
                (expected, result) => panic!("{plan:?}: {result:?} instead of {expected:?}"),
            }
        }
    }

    /// Creates an actor, which may live anywhere, and calls it.
    async fn use_actor(&self, client: &Client, module: &Module, mut random: Random) {
        let class = module.find_class("counter").expect("it has that");
        let options = ActorOptions {
            wishes: Wishes {
                resources: vec![("CPU".into(), ["0.5", "1", "2"][random.below(3)].into())],
                restarts: Some(50),
                call_retries: Some(50),
                strategy: (random.below(2) == 0).then(|| "spread".into()),
                ..Wishes::default()
            },
            ..ActorOptions::default()
        };
        let job = Arc::new(ActorJob::new(module, class, options).expect("a job"));
        let actor = client.create_actor(&job, Vec::new(), None, None).await;
        let actor = actor.expect("it is taken");
        let mut calls = Vec::new();
        for _ in 0..1 + random.below(12) {
            self.network.wait(0, 1_000).await;
            let value = Encoded::Buffer {
                kind: NumberKind::U8,
                bytes: vec![7; [10, 70_000][usize::from(random.below(6) == 0)]],
            };
            let call = actor.call("call", vec![Argument::Value(value.into())]);
            calls.push(call.expect("it is taken"));
        }
        for call in calls {
            let came = client.get_async(&call, None).await;
            assert!(came.is_ok(), "a call of {}: {came:?}", actor.id());
        }
    }

    fn give_up(&self) -> ! {
        for ((node, _), place) in self.network.alive() {
            place.shared.ask(|ledger| {
                eprintln!("{node}: {}", ledger.scheduler());
                for id in ledger.all() {
                    if let Some(why) = ledger.explain(&id) {
                        eprintln!("{why}");
                    }
                }
            });
        }
        panic!("work is not done");
    }

    fn check_nothing_is_left(&self) {
        for ((node, _), place) in self.network.alive() {
            if place.shared.ask(|ledger| ledger.scheduler().live()) > 0 {
                self.give_up();
            }
            place.shared.ask(|ledger| {
                let own = ledger.own_resources().expect("an own node");
                assert_eq!(own.available(), own.total(), "{node}");
            });
            place.exchange.check_nothing_is_left();
            let objects = place.shared.store.objects();
            assert!(objects.is_empty(), "{node}: {objects:?}");
        }
    }
}

impl Exchange {
    /// Whether this node keeps nothing for others and has nothing of theirs.
    fn check_nothing_is_left(&self) {
        let me = self.me;
        let has_given = |peer: &NodeId| {
            let session = self.sessions.get(peer);
            session.is_some_and(|it| !it.arguments.is_empty())
        };
        let given: Vec<_> = self
            .sessions
            .peers()
            .into_iter()
            .filter(has_given)
            .collect();
        assert!(given.is_empty(), "{me} keeps arguments for {given:?}");
        assert!(self.arriving.lock().is_empty(), "{me}: attempts arrive");
        let peers = self.peers.lock();
        let lent: Vec<_> = peers.loans().map(|(to, name, _)| (to, *name)).collect();
        assert!(lent.is_empty(), "{me} keeps objects for others: {lent:?}");
        assert!(peers.is_empty(), "{me}: results");
        drop(peers);
        self.borrowed.check_nothing_is_left(me);
    }
}
