//! A cluster of gossiping nodes in virtual time.
//!
//! Owns the network (what is lost, doubled, late, cut off), the leases (who is told when that a node came or
//! went), what the nodes do, and what went over the wire. The oracles that always hold: nobody hears of a
//! view older than one heard before, or of an incarnation that it was not told of; all hear the same of one version.
//!
//! Used by the tests and by `examples/gossip.rs`, which measures.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wasmrun_model::cluster::QueueReport;
use wasmrun_model::gossip::{Gossip, Input, Message, Output};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::random::Random;
use wasmrun_model::resource::{
    Allocation, Amount, NodeResources, Request, ResourceName, ResourceSet,
};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_model::time::Instant;

/// What the network does to messages, in percent and microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    pub lost: usize,
    pub doubled: usize,
    pub delay_us: (usize, usize),
}

/// A network as in one data centre.
pub const GOOD: Faults = Faults {
    lost: 0,
    doubled: 0,
    delay_us: (200, 800),
};

/// What went over the wire and what it took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
    pub largest: usize,
    pub handled: u64,
    pub handled_ns: u64,
    pub encoded_ns: u64,
    pub decoded_ns: u64,
}

/// What a node has and does.
pub struct Work {
    pub info: NodeInfo,
    pub resources: NodeResources,
    held: Vec<(usize, Allocation)>,
    pub queue: QueueReport,
}

pub struct Node {
    pub gossip: Gossip,
    pub work: Work,
    pub told: PeerView,
    wake: Option<Instant>,
    leases: BTreeMap<NodeId, Incarnation>,
    /// What was heard: of whom, which incarnation, the view.
    pub views: BTreeMap<NodeId, (NodeInfo, PeerView)>,
}

#[derive(Debug)]
enum Event {
    Deliver {
        from: NodeId,
        to: NodeId,
        bytes: Vec<u8>,
    },
    Wake(NodeId),
    /// Somebody learns that a node has come.
    Joined(NodeId, NodeId, Incarnation),
    /// Somebody learns that a node has gone.
    Left(NodeId, NodeId, Incarnation),
}

pub struct World {
    pub now: Instant,
    pub random: Random,
    pub faults: Faults,
    pub nodes: BTreeMap<NodeId, Node>,
    /// Who is on this side of a cut, if there is one.
    pub cut: Option<BTreeSet<NodeId>>,
    pub traffic: Traffic,
    /// By the mark in its queue: when each node first heard of a view.
    pub heard: BTreeMap<u64, BTreeMap<NodeId, Instant>>,
    wire: BTreeMap<(Instant, u64), Event>,
    events: u64,
    told: BTreeMap<(NodeId, Incarnation, u64), (NodeInfo, PeerView)>,
    has_oracles: bool,
    pub trace: Option<Vec<String>>,
    /// Whether what happens is printed.
    pub is_shown: bool,
}

pub fn id(n: u64) -> NodeId {
    let mut bytes = [0; 16];
    let mut random = Random::new(n);
    bytes[..8].copy_from_slice(&random.next().to_le_bytes());
    bytes[8..].copy_from_slice(&random.next().to_le_bytes());
    NodeId::from_bytes(bytes)
}

impl Work {
    fn new(node: NodeId, incarnation: Incarnation, name: String) -> Self {
        let mut resources = NodeResources::new();
        for (name, amount) in [("CPU", "16"), ("GPU", "4"), ("memory", "68719476736")] {
            let name = name.parse().unwrap();
            resources
                .set_capacity(&name, amount.parse().unwrap())
                .unwrap();
        }
        let labels = format!(
            "wasmrun.io/node-id={node},wasmrun.io/hostname={name}.cluster,wasmrun.io/accelerator-type=A100,zone=a"
        );
        let info = NodeInfo {
            id: node,
            incarnation,
            name: name.parse().unwrap(),
            labels: labels.parse().unwrap(),
        };
        let queue = QueueReport::default();
        Self {
            info,
            resources,
            held: Vec::new(),
            queue,
        }
    }

    pub fn view(&self) -> PeerView {
        let mut usage = BTreeMap::new();
        for (tenant, held) in &self.held {
            let tenant = ["default", "research", "web"][*tenant].parse().unwrap();
            let used: &mut ResourceSet = usage.entry(tenant).or_default();
            used.add(&held.amounts()).unwrap();
        }
        PeerView {
            version: 0,
            resources: self.resources.report(),
            queue: self.queue,
            usage,
        }
    }

    /// A task begins or ends.
    pub fn change(&mut self, random: &mut Random) {
        let ends = self.held.len() >= 8 + random.below(9);
        if ends && !self.held.is_empty() {
            let (_, held) = self.held.swap_remove(random.below(self.held.len()));
            self.resources.release(held);
        } else {
            let wanted = ResourceSet::new()
                .with(ResourceName::CPU, Amount::units(1))
                .with(
                    ResourceName::MEMORY,
                    Amount::units(1 + random.below(1 << 31) as u32),
                );
            let wanted = Request::new(wanted).unwrap();
            if let Ok(held) = self.resources.acquire(&wanted) {
                self.held.push((random.below(3), held));
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for node in std::mem::take(&mut self.nodes).into_values() {
            abandon(node);
        }
    }
}

fn abandon(node: Node) {
    node.work
        .held
        .into_iter()
        .for_each(|(_, held)| held.abandon());
}

impl World {
    pub fn new(seed: u64, faults: Faults, has_oracles: bool) -> Self {
        Self {
            now: Instant::ZERO,
            random: Random::new(seed),
            faults,
            nodes: BTreeMap::new(),
            cut: None,
            traffic: Traffic::default(),
            heard: BTreeMap::new(),
            wire: BTreeMap::new(),
            events: 0,
            told: BTreeMap::new(),
            has_oracles,
            trace: None,
            is_shown: false,
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.is_none() && !self.is_shown {
            return;
        }
        let line = format!("{} {}", self.now, what());
        if self.is_shown {
            println!("{line}");
        }
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    fn post(&mut self, at: Instant, event: Event) {
        self.events += 1;
        self.wire.insert((at, self.events), event);
    }

    fn delay(&mut self) -> Duration {
        let (least, most) = self.faults.delay_us;
        Duration::from_micros((least + self.random.below(most - least + 1)) as u64)
    }

    /// An incarnation of a node begins. The others learn of it within `notice`, each in its time, and it of them.
    pub fn join(&mut self, n: u64, incarnation: u64, notice: Duration) {
        let (own, incarnation) = (id(n), Incarnation(incarnation));
        let work = Work::new(own, incarnation, format!("node-{n:04}"));
        let seed = self.random.next();
        self.note(|| format!("{own} {incarnation} joins"));
        let others: Vec<_> = self
            .nodes
            .iter()
            .map(|(id, node)| (*id, node.work.info.incarnation))
            .collect();
        let node = Node {
            gossip: Gossip::new(self.now, own, incarnation, seed),
            told: work.view(),
            work,
            wake: None,
            leases: BTreeMap::new(),
            views: BTreeMap::new(),
        };
        self.nodes.insert(own, node);
        for (other, theirs) in others {
            for (to, about, which) in [(other, own, incarnation), (own, other, theirs)] {
                let late = self.random.below(notice.as_micros() as usize + 1) as u64;
                let at = self.now + Duration::from_micros(late);
                self.post(at, Event::Joined(to, about, which));
            }
        }
        self.tell(own);
    }

    /// A node ends. The others learn of it within `notice`.
    pub fn kill(&mut self, node: NodeId, notice: Duration) {
        let Some(dead) = self.nodes.remove(&node) else {
            return;
        };
        let incarnation = dead.work.info.incarnation;
        abandon(dead);
        self.note(|| format!("{node} {incarnation} dies"));
        for to in self.nodes.keys().copied().collect::<Vec<_>>() {
            let late = self.random.below(notice.as_micros() as usize + 1) as u64;
            let at = self.now + Duration::from_micros(late);
            self.post(at, Event::Left(to, node, incarnation));
        }
    }

    /// A node's work changes somehow.
    pub fn change(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.work.change(&mut self.random);
        self.tell(id);
    }

    /// A node tells what it has and does now.
    pub fn tell(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let (info, view) = (node.work.info.clone(), node.work.view());
        node.told = view.clone();
        let view = Box::new(view);
        self.handle(id, Input::OwnView { node: info, view });
    }

    pub fn handle(&mut self, id: NodeId, input: Input) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let began = std::time::Instant::now();
        node.gossip.handle(self.now, input);
        let mut outputs = Vec::new();
        while let Some(output) = node.gossip.poll() {
            outputs.push(output);
        }
        let timeout = node.gossip.poll_timeout();
        self.traffic.handled_ns += began.elapsed().as_nanos() as u64;
        self.traffic.handled += 1;
        let wakes = timeout != node.wake;
        node.wake = timeout;
        if let Some(at) = timeout.filter(|_| wakes) {
            self.post(at.max(self.now), Event::Wake(id));
        }
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(id, to, &message),
                Output::View { node, view } => self.hear(id, node, *view),
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &Message) {
        let began = std::time::Instant::now();
        let bytes = postcard::to_stdvec(message).expect("a message can be encoded");
        self.traffic.encoded_ns += began.elapsed().as_nanos() as u64;
        self.traffic.messages += 1;
        self.traffic.bytes += bytes.len() as u64;
        self.traffic.largest = self.traffic.largest.max(bytes.len());
        self.note(|| format!("{from} -> {to}: {message:?}"));
        let is_cut = self
            .cut
            .as_ref()
            .is_some_and(|side| side.contains(&from) != side.contains(&to));
        if is_cut || self.random.below(100) < self.faults.lost {
            return;
        }
        let copies = 1 + usize::from(self.random.below(100) < self.faults.doubled);
        for _ in 0..copies {
            let at = self.now + self.delay();
            let bytes = bytes.clone();
            self.post(at, Event::Deliver { from, to, bytes });
        }
    }

    fn hear(&mut self, by: NodeId, node: NodeInfo, view: PeerView) {
        self.note(|| format!("{by} hears of {} {}", node.id, view.version));
        let heard = self.heard.entry(view.queue.run_time_us).or_default();
        heard.entry(by).or_insert(self.now);
        if !self.has_oracles {
            return;
        }
        let hearer = self.nodes.get_mut(&by).expect("a node");
        assert_eq!(
            hearer.leases.get(&node.id),
            Some(&node.incarnation),
            "a stranger"
        );
        if let Some((old, known)) = hearer.views.get(&node.id) {
            let old = (old.incarnation, known.version);
            assert!(old < (node.incarnation, view.version), "an older view");
        }
        let key = (node.id, node.incarnation, view.version);
        let heard = (node, view);
        let told = self.told.entry(key).or_insert_with(|| heard.clone());
        assert_eq!(*told, heard, "one version, two views");
        hearer.views.insert(heard.0.id, heard);
    }

    /// Lets what is to happen until then happen.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(entry) = self.wire.first_entry() {
            let (at, _) = *entry.key();
            if at > until {
                break;
            }
            let event = entry.remove();
            self.now = at;
            match event {
                Event::Deliver { from, to, bytes } => {
                    let began = std::time::Instant::now();
                    let message = postcard::from_bytes(&bytes).expect("what was sent is read");
                    self.traffic.decoded_ns += began.elapsed().as_nanos() as u64;
                    self.handle(to, Input::Message { from, message });
                }
                Event::Wake(node) => {
                    // A time that was replaced by another is no time.
                    if let Some(woken) = self.nodes.get_mut(&node)
                        && woken.wake.is_some_and(|wake| wake <= at)
                    {
                        woken.wake = None;
                        self.handle(node, Input::Tick);
                    }
                }
                Event::Joined(to, node, incarnation) => {
                    if let Some(told) = self.nodes.get_mut(&to)
                        && told
                            .leases
                            .get(&node)
                            .is_none_or(|known| *known < incarnation)
                    {
                        told.leases.insert(node, incarnation);
                        self.handle(to, Input::Joined { node, incarnation });
                    }
                }
                Event::Left(to, node, incarnation) => {
                    if let Some(told) = self.nodes.get_mut(&to) {
                        // A late notice of a join does not bring it back.
                        let known = told.leases.entry(node).or_default();
                        if *known <= incarnation {
                            *known = incarnation;
                            told.views.remove(&node);
                        }
                        self.handle(to, Input::Left { node, incarnation });
                    }
                }
            }
        }
        self.now = self.now.max(until);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Whether everybody knows everybody's latest view; if not, who lacks whose.
    pub fn lacking(&self) -> Option<(NodeId, NodeId)> {
        let pairs = self
            .nodes
            .keys()
            .flat_map(|by| self.nodes.keys().map(move |of| (*by, *of)));
        let mut pairs = pairs.filter(|(by, of)| by != of);
        pairs.find(|(by, of)| {
            let subject = &self.nodes[of];
            let heard = self.nodes[by].views.get(of);
            !heard.is_some_and(|(info, view)| {
                *info == subject.work.info
                    && view.resources == subject.told.resources
                    && view.queue == subject.told.queue
                    && view.usage == subject.told.usage
            })
        })
    }
}
