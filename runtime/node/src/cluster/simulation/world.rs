//! The world: a few nodes, what they do, and what is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use wasmrun_control::records::{NODES, node as node_key};
use wasmrun_control::simulated::{Faults, Hand, Process, Store, Time};
use wasmrun_control::{Clock, ControlStore, Embedded, EmbeddedConfig, Error, Range};
use wasmrun_model::id::{ActorId, GroupId, NodeId, TaskId};
use wasmrun_model::random::Random;
use wasmrun_model::time::Instant;

use super::super::records::RecordId;
use super::names::Book;
use super::node::{Node, Shelf, TTL};
use super::oracles::Oracle;

/// The world itself, and the store.
const WORLD: Process = Process(0);
/// By when all must be well after the last fault, and stay so.
const REST: Duration = Duration::from_secs(180);
/// As long as the longest that anybody waits before looking again, and more.
const PEACE: Duration = Duration::from_secs(45);
/// The names that actors may have.
const NAMES: usize = 3;

/// Where a node is, which has at most one process at a time.
struct Seat {
    id: NodeId,
    /// On its disk.
    incarnations: Arc<AtomicU64>,
    node: Option<Arc<Node>>,
    /// When it is started again, goes on, or is heard again.
    back: Option<Instant>,
}

struct World {
    time: Arc<Time>,
    clock: Hand,
    store: Arc<Store>,
    oracle: Arc<Oracle>,
    book: Arc<Book>,
    random: Random,
    faults: Faults,
    seats: Vec<Seat>,
    /// When the store is there again.
    store_back: Option<Instant>,
    processes: u64,
    things: u128,
    /// Takeovers that processes have counted which are no more.
    taken_over: u64,
}

/// Runs the world of a seed. What has happened in it.
pub(super) fn run(seed: u64, is_loud: bool) -> Vec<String> {
    let time = Time::new(Duration::from_secs(3600));
    let oracle = Oracle::new(&time, is_loud);
    let world = (time.clone(), oracle.clone());
    time.run(async move {
        let (time, oracle) = world;
        World::new(seed, time, oracle).await.live().await;
    });
    oracle.trace()
}

impl World {
    async fn new(seed: u64, time: Arc<Time>, oracle: Arc<Oracle>) -> Self {
        let mut random = Random::new(seed);
        let config = EmbeddedConfig {
            history_revisions: 20 + random.below(200) as u64,
            ..EmbeddedConfig::default()
        };
        let leases = Arc::new(time.hand(WORLD, 1));
        let store = Store::new(config, leases).await;
        let looks_on = oracle.clone();
        store.observe(Box::new(move |from, store, txn, reply| {
            looks_on.made(from, store, txn, reply);
        }));
        let faults = Faults {
            delay: Duration::from_millis(1 + random.below(150) as u64),
            lost: random.below(40),
            unheard: random.below(40),
            late: random.below(20),
            breaks: random.below(30),
            patience: Duration::from_millis(500 + random.below(1500) as u64),
        };
        let seats = (0..3 + random.below(3) as u8).map(|number| Seat {
            id: NodeId::from_bytes([number + 1; 16]),
            incarnations: Arc::default(),
            node: None,
            back: None,
        });
        Self {
            clock: time.hand(WORLD, 0),
            book: Book::new(&time),
            seats: seats.collect(),
            time,
            store,
            oracle,
            random,
            faults,
            store_back: None,
            processes: 0,
            things: 0,
            taken_over: 0,
        }
    }

    async fn live(mut self) {
        for seat in 0..self.seats.len() {
            self.start(seat);
        }
        for _ in 0..100 + self.random.below(200) {
            let step = Duration::from_millis(self.random.below(500) as u64);
            self.clock.sleep(step).await;
            self.come_back().await;
            match self.random.below(100) {
                0..60 => self.work(),
                60..90 => {}
                _ => self.harm().await,
            }
            self.oracle.check();
        }
        self.heal().await;
        self.come_to_rest().await;
    }

    fn later(&mut self, least: Duration, most: Duration) -> Instant {
        let span = usize::try_from((most - least).as_millis()).expect("it is short");
        self.clock.now() + least + Duration::from_millis(self.random.below(span) as u64)
    }

    fn start(&mut self, at: usize) {
        self.processes += 1;
        let process = Process(self.processes);
        let (seat, world) = (&mut self.seats[at], (&self.time, &self.store));
        self.oracle
            .note(format_args!("node {} starts as {process}", seat.id));
        self.oracle.begins(process, seat.id);
        let how = (self.faults, self.random.split());
        let others = (&self.book, &self.oracle);
        let node = Node::start((seat.id, &seat.incarnations), process, world, how, others);
        (seat.node, seat.back) = (Some(node), None);
    }

    /// Whose time has come is there again.
    async fn come_back(&mut self) {
        let now = self.clock.now();
        if self.store_back.is_some_and(|back| back <= now) {
            self.store_back = None;
            self.store.start().await;
            self.oracle.note("the store is there again");
        }
        for at in 0..self.seats.len() {
            if self.seats[at].back.is_some_and(|back| back <= now) {
                self.end_harm(at);
            }
        }
    }

    fn end_harm(&mut self, at: usize) {
        self.seats[at].back = None;
        match &self.seats[at].node {
            Some(node) => {
                self.oracle.note(format_args!("{} goes on", node.process));
                self.time.go_on(node.process);
                node.line.set_cut(false);
            }
            None => self.start(at),
        }
    }

    /// A node does something.
    fn work(&mut self) {
        let at = self.random.below(self.seats.len());
        let Some(node) = self.seats[at].node.clone() else {
            return;
        };
        if !node.is_up() || self.time.is_stopped(node.process) {
            return;
        }
        match self.random.below(10) {
            0..4 => self.work_on(&node.tasks, TaskId::from_bytes),
            4..7 => self.work_on(&node.groups, GroupId::from_bytes),
            _ => self.name(&node),
        }
    }

    /// An actor is created that is to have a name, or the one ends that has it.
    fn name(&mut self, node: &Node) {
        let name = format!("name-{}", self.random.below(NAMES));
        match node.names.has(&name) {
            true if self.random.below(3) == 0 => node.names.end(&name),
            true => {}
            false => drop(self.give(node, name)),
        }
    }

    fn give(&mut self, node: &Node, name: String) -> ActorId {
        self.things += 1;
        let actor = ActorId::from_bytes(self.things.to_be_bytes());
        node.names.give(name, actor);
        actor
    }

    fn work_on<I: RecordId + Ord>(&mut self, shelf: &Arc<Shelf<I>>, id: fn([u8; 16]) -> I) {
        // Several at once, so that they share a transaction.
        for _ in 0..1 + self.random.below(4) {
            let ids = shelf.ids();
            let some = ids.get(self.random.below(ids.len().max(1))).copied();
            match (some, self.random.below(10)) {
                (Some(some), 0..3) => shelf.change(some),
                (Some(some), 3..5) => shelf.end(some),
                _ => {
                    self.things += 1;
                    shelf.begin(id(self.things.to_be_bytes()));
                }
            }
        }
    }

    /// Something bad happens.
    async fn harm(&mut self) {
        let at = self.random.below(self.seats.len());
        match self.random.below(10) {
            0..2 => self.kill(at),
            2..4 => self.freeze(at),
            4..7 => self.cut(at),
            7 => self.stop_store().await,
            8 => self.compact().await,
            _ => {
                // Somebody is declared dead that lives.
                let (id, store) = (self.seats[at].id, self.store.itself());
                if let Ok(store) = store {
                    self.oracle.note(format_args!("node {id} is declared dead"));
                    let _ = store.delete(node_key(id)).await;
                }
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let Some(node) = self.seats[at].node.take() else {
            return;
        };
        self.oracle.note(format_args!("{} is killed", node.process));
        self.time.stop(node.process);
        self.oracle.dies(node.process);
        self.taken_over += taken_over(&node);
        // At once, or when the others have taken over what it had.
        self.seats[at].back = Some(self.later(Duration::from_millis(50), TTL * 5));
    }

    fn freeze(&mut self, at: usize) {
        let back = self.later(Duration::from_millis(200), TTL * 4);
        if let (Some(node), None) = (&self.seats[at].node, self.seats[at].back) {
            self.oracle.note(format_args!("{} is frozen", node.process));
            self.time.stop(node.process);
            self.seats[at].back = Some(back);
        }
    }

    fn cut(&mut self, at: usize) {
        let back = self.later(Duration::from_millis(200), TTL * 4);
        if let (Some(node), None) = (&self.seats[at].node, self.seats[at].back) {
            self.oracle
                .note(format_args!("{} is cut off", node.process));
            node.line.set_cut(true);
            self.seats[at].back = Some(back);
        }
    }

    async fn stop_store(&mut self) {
        if self.store_back.is_none() {
            self.oracle.note("the store stops");
            self.store.stop().await;
            self.store_back = Some(self.later(Duration::from_millis(10), TTL * 2));
        }
    }

    async fn compact(&mut self) {
        if let Ok(store) = self.store.itself() {
            self.oracle.note("the history is forgotten");
            let revision = store.revision().await;
            let compacted = store.compact(revision.expect("it is there")).await;
            compacted.expect("there is nothing against it");
        }
    }

    /// No more harm. Some nodes stay dead.
    async fn heal(&mut self) {
        self.oracle.note("no more faults");
        self.faults = Faults::NONE;
        self.store_back = None;
        self.store.start().await;
        for at in 0..self.seats.len() {
            let is_dead = self.seats[at].node.is_none();
            let others = self.seats.iter().any(|seat| seat.node.is_some());
            if is_dead && others && self.random.below(2) == 0 {
                self.seats[at].back = None;
                continue;
            }
            self.end_harm(at);
            if let Some(node) = &self.seats[at].node {
                node.line.set_faults(Faults::NONE);
            }
        }
    }

    async fn come_to_rest(&mut self) {
        self.rest().await;
        self.oracle.note("all is well");
        self.clock.sleep(PEACE).await;
        self.oracle.check();
        let why = self.unrest().await.expect("the store is there");
        assert_eq!(why, None, "all was well before");
        let nodes = self.alive().into_iter();
        let counted = self.taken_over + nodes.map(|node| taken_over(&node)).sum::<u64>();
        let made = self.oracle.moves();
        assert!(counted <= made, "{counted} takeovers are counted of {made}");
        self.name_again().await;
    }

    /// Each name is given back, if an actor has it, and to another one, at any node: it is free.
    async fn name_again(&mut self) {
        for number in 0..NAMES {
            let name = format!("name-{number}");
            let alive = self.alive();
            alive.iter().for_each(|node| node.names.end(&name));
            let node = alive[self.random.below(alive.len())].clone();
            let actor = self.give(&node, name.clone());
            self.rest().await;
            let has_it = node.names.actor(&name) == Some(actor);
            assert!(has_it, "{}: {name} is not free", node.process);
        }
    }

    /// Waits until all is as it must be.
    async fn rest(&self) {
        let until = self.clock.now() + REST;
        loop {
            self.clock.sleep(Duration::from_millis(500)).await;
            self.oracle.check();
            match self.unrest().await {
                Ok(None) => break,
                Ok(Some(why)) if self.clock.now() >= until => panic!("it does not end: {why}"),
                Ok(Some(_)) => {}
                Err(error) => panic!("the store is there: {error}"),
            }
        }
    }

    fn alive(&self) -> Vec<Arc<Node>> {
        let nodes = self.seats.iter().filter_map(|seat| seat.node.clone());
        nodes.collect()
    }

    /// What is not yet as it must be when nothing goes wrong any more.
    async fn unrest(&self) -> Result<Option<String>, Error> {
        let store = self.store.itself()?;
        let alive = self.alive();
        let ids: BTreeSet<NodeId> = alive.iter().map(|node| node.id()).collect();
        let registered = store.range(Range::prefix(NODES)).await?.entries.len();
        if registered != ids.len() {
            return Ok(Some(format!("{registered} of {ids:?} are registered")));
        }
        let (mut there, mut of) = (BTreeMap::new(), BTreeMap::<NodeId, BTreeSet<String>>::new());
        for (owner, thing, said) in self.oracle.keys(&store) {
            if !ids.contains(&owner) {
                return Ok(Some(format!("{thing} is node {owner}'s, which is dead")));
            }
            of.entry(owner).or_default().insert(thing.clone());
            if there.insert(thing.clone(), said).is_some() {
                return Ok(Some(format!("{thing} has two owners")));
            }
        }
        if let Some(why) = self.oracle.lacking(&there) {
            return Ok(Some(why));
        }
        for node in &alive {
            let owned = of.remove(&node.id()).unwrap_or_default();
            if let Some(why) = unrest_of(node, &owned, &ids) {
                return Ok(Some(format!("{}: {why}", node.process)));
            }
            for (prefix, seen) in ["tasks/", "groups/"].into_iter().zip(&node.seen) {
                let page = store.range(Range::prefix(prefix)).await?;
                let all = page.entries.into_iter().map(|it| (it.key, it.value));
                if *seen.lock() != all.collect() {
                    return Ok(Some(format!("{} sees other {prefix}", node.process)));
                }
            }
        }
        self.unrest_of_names(&store, &alive).await
    }
}

impl World {
    /// What is not yet well with names: each that was given, and not given back, is that actor's, wherever it is looked
    /// for. Of those that nobody has the store may say what it likes, as they can be taken.
    async fn unrest_of_names(
        &self,
        store: &Embedded,
        alive: &[Arc<Node>],
    ) -> Result<Option<String>, Error> {
        let unsettled = |node: &Arc<Node>| Some((node.process, node.names.unsettled()?));
        if let Some((process, name)) = alive.iter().find_map(unsettled) {
            return Ok(Some(format!("{process}: {name} is not settled")));
        }
        for (name, actor) in self.oracle.names() {
            for node in alive {
                let found = node.names.find(store, &name).await?;
                if found != Some(actor) {
                    let process = node.process;
                    let why = format!("{name} is {actor}'s, and {process} finds {found:?}");
                    return Ok(Some(why));
                }
            }
        }
        Ok(None)
    }
}

fn taken_over(node: &Node) -> u64 {
    node.tasks.records.counts().taken_over + node.groups.records.counts().taken_over
}

/// What is not yet well with a node that has these records.
fn unrest_of(node: &Node, owned: &BTreeSet<String>, ids: &BTreeSet<NodeId>) -> Option<String> {
    if !node.is_up() {
        return Some("it has not begun".to_owned());
    }
    let mut known: BTreeSet<NodeId> = node.others().into_iter().collect();
    known.insert(node.id());
    if known != *ids {
        return Some(format!("it knows {known:?}, and there are {ids:?}"));
    }
    if !node.tasks.records.is_written() || !node.groups.records.is_written() {
        return Some("something is not written".to_owned());
    }
    let tasks = node
        .tasks
        .stored_ids()
        .into_iter()
        .map(|id| format!("tasks/{id}"));
    let groups = node.groups.stored_ids().into_iter();
    let held: BTreeSet<String> = tasks
        .chain(groups.map(|id| format!("groups/{id}")))
        .collect();
    let mut differ = held.symmetric_difference(owned);
    let one = differ.next()?;
    Some(match held.contains(one) {
        true => format!("it believes to own {one}"),
        false => format!("it does not know that it owns {one}"),
    })
}
