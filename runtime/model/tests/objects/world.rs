//! The world around references: time, links, who lives, faults, all from one seed.

mod drivers;
mod nodes;
mod oracles;
mod readers;
mod tasks;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::rc::{Rc, Weak};
use std::time::Duration;

use wasmrun_model::id::{ObjectName, TaskId};
use wasmrun_model::random::Random;
use wasmrun_model::reference::{Borrowed, Holders, Token};
use wasmrun_model::time::Instant;

use crate::things::{Cell, Home, Message, node_id};
use readers::{Act, Reader};
use tasks::{Run, Task};

/// Between these incarnations of two nodes.
type Link = ((usize, u64), (usize, u64));

/// Something that is going to happen. Nodes are given with the process (`boot`) that it is for.
#[derive(Debug)]
enum Coming {
    /// The first message of a link arrives.
    Deliver(Link),
    Joined(usize, usize, u64),
    Lost(usize, usize, u64),
    Unknown(usize, u64, ObjectName, Token),
    Finish(usize, u64, (usize, TaskId), u32),
    Read(usize, u64, u64, Act),
    Do(usize),
    Fault,
    Start(usize),
    Rejoin(usize, u64),
    Mend(usize, usize),
    Heal,
    /// Drivers need nothing any more.
    End,
}

#[derive(Default)]
struct Line {
    messages: VecDeque<Message>,
    /// When the last of them arrives at the earliest.
    last: Instant,
}

struct Node {
    is_up: bool,
    incarnation: u64,
    /// Which process.
    boot: u64,
    home: Rc<Home>,
    /// Who lives, in which incarnation, as it has heard.
    known: BTreeMap<usize, u64>,
    borrowed: Borrowed<Weak<Cell>>,
    holders: Holders,
    /// What was submitted here.
    tasks: BTreeMap<TaskId, Task>,
    /// What runs here, and whose it is.
    runs: BTreeMap<(usize, TaskId), Run>,
    /// Who is to be told how something ends.
    watching: Vec<(usize, Rc<Cell>)>,
    readers: BTreeMap<u64, Reader>,
    reconstructing: BTreeMap<TaskId, Rc<Cell>>,
    /// What drivers here have.
    hands: Vec<Rc<Cell>>,
    /// What they wait for, to read it.
    gets: Vec<Rc<Cell>>,
}

impl Node {
    fn new(at: usize) -> Self {
        Self {
            is_up: false,
            incarnation: 0,
            boot: 0,
            home: Home::new(node_id(at)),
            known: BTreeMap::new(),
            borrowed: Borrowed::default(),
            holders: Holders::default(),
            tasks: BTreeMap::new(),
            runs: BTreeMap::new(),
            watching: Vec::new(),
            readers: BTreeMap::new(),
            reconstructing: BTreeMap::new(),
            hands: Vec::new(),
            gets: Vec::new(),
        }
    }
}

/// What has happened in all seeds: all of it should.
#[derive(Default, Clone, Copy, Debug)]
pub struct Coverage {
    pub reads: u64,
    pub brought: u64,
    pub reconstructed: u64,
    pub reconstructed_before: u64,
    pub named_holder: u64,
    pub gone: u64,
    pub given_back: u64,
    pub asked_to_lend: u64,
    pub silent: u64,
    pub owner_reconstructed: u64,
    pub crashes: u64,
    pub reborn: u64,
}

impl Coverage {
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.all().into_iter().zip((*other).clone().all()) {
            *sum += *more;
        }
    }

    fn all(&mut self) -> [&mut u64; 12] {
        [
            &mut self.reads,
            &mut self.brought,
            &mut self.reconstructed,
            &mut self.reconstructed_before,
            &mut self.named_holder,
            &mut self.gone,
            &mut self.given_back,
            &mut self.asked_to_lend,
            &mut self.silent,
            &mut self.owner_reconstructed,
            &mut self.crashes,
            &mut self.reborn,
        ]
    }

    pub fn is_everything(mut self) -> bool {
        self.all().iter().all(|count| **count > 0)
    }
}

pub struct World {
    random: Random,
    is_traced: bool,
    now: Instant,
    coming: BTreeMap<(Instant, u64), Coming>,
    sequence: u64,
    nodes: Vec<Node>,
    lines: BTreeMap<Link, Line>,
    /// Pairs that do not hear each other for a while.
    cuts: Vec<(usize, usize)>,
    counter: u64,
    has_healed: bool,
    has_ended: bool,
    trace: DefaultHasher,
    steps: u64,
    seen: Coverage,
}

const FAULTS_UNTIL: Duration = Duration::from_secs(12);
/// More steps than any seed needs.
const MOST_STEPS: u64 = 200_000;

impl World {
    pub fn new(seed: u64, is_traced: bool) -> Self {
        let mut random = Random::new(seed);
        let count = 2 + random.below(4);
        let mut world = Self {
            is_traced,
            now: Instant::ZERO,
            coming: BTreeMap::new(),
            sequence: 0,
            nodes: (0..count).map(Node::new).collect(),
            lines: BTreeMap::new(),
            cuts: Vec::new(),
            counter: 0,
            has_healed: false,
            has_ended: false,
            trace: DefaultHasher::new(),
            steps: 0,
            seen: Coverage::default(),
            random,
        };
        for node in 0..count {
            world.come(0, 200, Coming::Start(node));
        }
        for _ in 0..60 + world.random.below(200) {
            let node = world.random.below(count);
            world.come(100, 11_000, Coming::Do(node));
        }
        for _ in 0..world.random.below(16) {
            world.come(1_000, 11_500, Coming::Fault);
        }
        let heal = Instant::ZERO + FAULTS_UNTIL;
        world.at(heal, Coming::Heal);
        world.at(heal + Duration::from_secs(20), Coming::End);
        world
    }

    /// Lets something come after `from_ms` at the earliest and `until_ms` at the latest.
    fn come(&mut self, from_ms: usize, until_ms: usize, coming: Coming) {
        let us = from_ms * 1_000 + self.random.below((until_ms - from_ms) * 1_000 + 1);
        self.at(self.now + Duration::from_micros(us as u64), coming);
    }

    fn at(&mut self, at: Instant, coming: Coming) {
        self.sequence += 1;
        self.coming.insert((at, self.sequence), coming);
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    /// Some of these, in their order.
    fn some<T: Clone>(&mut self, of: &[T], percent: usize) -> Vec<T> {
        let some = of.iter().filter(|_| self.random.below(100) < percent);
        some.cloned().collect()
    }

    fn note(&mut self, what: &dyn fmt::Debug) {
        let text = format!("{} {what:?}", self.now);
        self.trace.write(text.as_bytes());
        if self.is_traced {
            eprintln!("{text}");
        }
    }

    /// Runs until nothing happens any more. A hash of everything that has happened.
    pub fn run(mut self) -> (u64, Coverage) {
        while let Some(((at, _), coming)) = self.coming.pop_first() {
            self.now = at;
            self.steps += 1;
            assert!(self.steps < MOST_STEPS, "it does not come to rest");
            self.note(&coming);
            self.happen(coming);
            self.follow();
            self.check_counts();
            self.check_keepers();
        }
        self.check_rest();
        (self.trace.finish(), self.seen)
    }

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Deliver(link) => self.deliver(link),
            Coming::Joined(at, node, incarnation) => self.joined(at, node, incarnation),
            Coming::Lost(at, node, incarnation) => {
                if self.nodes[at].known.get(&node) == Some(&incarnation) {
                    self.left(at, node);
                }
            }
            Coming::Unknown(at, boot, name, token) if self.is(at, boot) => {
                self.unknown(at, &name, token);
            }
            Coming::Finish(at, boot, run, attempt) if self.is(at, boot) => {
                self.finish(at, run, attempt);
            }
            Coming::Read(at, boot, reader, act) if self.is(at, boot) => {
                self.read_on(at, reader, act);
            }
            Coming::Unknown(..) | Coming::Finish(..) | Coming::Read(..) => {}
            Coming::Do(at) => {
                if self.nodes[at].is_up && !self.has_ended {
                    self.drive(at);
                }
            }
            Coming::Fault => {
                if !self.has_healed {
                    self.fault();
                }
            }
            Coming::Start(at) => self.start(at),
            Coming::Rejoin(at, incarnation) => {
                if self.nodes[at].is_up && self.nodes[at].incarnation == incarnation {
                    self.introduce(at);
                }
            }
            Coming::Mend(one, two) => self.cuts.retain(|cut| *cut != (one, two)),
            Coming::Heal => {
                self.has_healed = true;
                self.cuts.clear();
                (0..self.nodes.len()).for_each(|at| self.start(at));
            }
            Coming::End => {
                self.has_ended = true;
                for node in &mut self.nodes {
                    let dropped = (
                        std::mem::take(&mut node.hands),
                        std::mem::take(&mut node.gets),
                    );
                    drop(dropped);
                }
            }
        }
    }

    fn is(&self, at: usize, boot: u64) -> bool {
        self.nodes[at].is_up && self.nodes[at].boot == boot
    }

    /// Whether two nodes do not hear each other.
    fn is_cut(&self, one: usize, two: usize) -> bool {
        self.cuts.contains(&(one.min(two), one.max(two)))
    }

    fn fault(&mut self) {
        let at = self.random.below(self.nodes.len());
        if !self.nodes[at].is_up {
            return;
        }
        match self.random.below(10) {
            0..3 => self.crash(at),
            3 | 4 => self.be_reborn(at),
            _ => {
                let other = self.random.below(self.nodes.len());
                if other != at {
                    let cut = (at.min(other), at.max(other));
                    self.cuts.push(cut);
                    self.come(200, 2_500, Coming::Mend(cut.0, cut.1));
                }
            }
        }
    }

    /// The process ends, with all that it has.
    fn crash(&mut self, at: usize) {
        self.seen.crashes += 1;
        self.break_chains(at);
        let (incarnation, boot) = (self.nodes[at].incarnation, self.nodes[at].boot);
        // What it says while it ends, nobody hears.
        let before = std::mem::replace(&mut self.nodes[at], Node::new(at));
        drop(before);
        (self.nodes[at].incarnation, self.nodes[at].boot) = (incarnation, boot);
        self.tell_lost(at, incarnation);
        self.come(50, 5_000, Coming::Start(at));
    }

    /// The others count it as dead, and it notices: its process goes on in another incarnation.
    fn be_reborn(&mut self, at: usize) {
        self.seen.reborn += 1;
        self.break_chains(at);
        let incarnation = self.nodes[at].incarnation;
        let known: Vec<usize> = self.nodes[at].known.keys().copied().collect();
        known.iter().for_each(|node| self.left(at, *node));
        // Nothing that was said in one incarnation arrives in another.
        self.tell_lost(at, incarnation);
        self.nodes[at].incarnation += 1;
        self.come(50, 1_000, Coming::Rejoin(at, incarnation + 1));
    }

    fn tell_lost(&mut self, at: usize, incarnation: u64) {
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            self.come(300, 3_000, Coming::Lost(other, at, incarnation));
        }
        self.lines
            .retain(|(from, to), _| *from != (at, incarnation) && *to != (at, incarnation));
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].is_up {
            return;
        }
        let node = &mut self.nodes[at];
        node.is_up = true;
        node.incarnation += 1;
        node.boot += 1;
        self.introduce(at);
    }

    /// It and the others hear of each other, each at its time.
    fn introduce(&mut self, at: usize) {
        let incarnation = self.nodes[at].incarnation;
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            self.come(0, 1_500, Coming::Joined(other, at, incarnation));
            if self.nodes[other].is_up {
                let incarnation = self.nodes[other].incarnation;
                self.come(0, 1_500, Coming::Joined(at, other, incarnation));
            }
        }
    }
}
