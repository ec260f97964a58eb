//! The world around schedulers: time, executors, the network and faults, all from one seed.

mod executors;
mod faults;
mod records;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::cluster::QueueReport;
use wasmrun_model::fairness::{Policy, TenantConfig};
use wasmrun_model::id::{DriverId, Incarnation, NodeId, ObjectId, TaskId};
use wasmrun_model::random::Random;
use wasmrun_model::scheduler::{
    Config, Effect, Event, Message, NodeInfo, Outcome, PeerView, Scheduler, Settings, check,
};
use wasmrun_model::task::{Attempt, FailureKind, Phase, TaskKind, TaskSpec, Terms};
use wasmrun_model::time::Instant;

use self::records::{Group, Heard, OfGroup, Records};
use crate::work::{self, chance, pick};

/// Who schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every node for itself.
    Each,
    /// One for all.
    One,
}

type Run = (TaskId, Attempt);
/// An incarnation of a member.
type End = (usize, u64);

/// Something that is going to happen.
#[derive(Debug)]
enum Coming {
    /// To the scheduler of a member, in this incarnation of it.
    Event(usize, u64, Event),
    /// From an executor of a node, in this incarnation of it; only if it still has that attempt.
    Executor(usize, u64, Run, Executed),
    /// The next message from one member to another.
    Message {
        from: End,
        to: End,
    },
    /// What a node lacked to take a task in, its module say, is there.
    TakenIn {
        from: End,
        to: End,
        place: Message,
    },
    /// A view of a node in that incarnation, to a member.
    View {
        to: usize,
        node: NodeInfo,
        view: PeerView,
    },
    /// An incarnation of a node is a member, as a member hears unless that incarnation is over by then.
    Expected {
        to: usize,
        node: NodeInfo,
    },
    Lost {
        to: usize,
        node: usize,
        incarnation: u64,
    },
    Heartbeat(usize),
    Submit(usize),
    /// To all that are up, at once: what the control store tells of actors.
    Announce(ActorNews),
    OfGroup(usize, OfGroup),
    /// A member, in this incarnation, hears so much of what the control store says of groups.
    OfRecords {
        to: usize,
        incarnation: u64,
        until: usize,
    },
    Fault,
    Rejoin(usize),
    Heal,
    /// Actors and groups end, so that all work does.
    EndAll,
    GiveUp,
}

#[derive(Debug, Clone, Copy)]
enum ActorNews {
    Created { actor: usize, node: usize },
    Died { actor: usize, will_restart: bool },
}

struct Actor {
    creation: TaskId,
    /// The member, in this incarnation, that owns it.
    owner: (usize, u64),
    node: Option<usize>,
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Executed {
    Accept,
    Refuse,
    Block,
    Unblock,
    /// It goes on though what it waited for is not there.
    Overdue,
    Pause,
    /// It has stopped, as it was told to.
    Preempt,
    Finish,
    Fail(FailureKind),
    /// What creates an actor has done so; it lives from then on.
    Live,
    Die,
}

struct Node {
    incarnation: u64,
    is_alive: bool,
    /// What its executor has.
    runs: BTreeSet<Run>,
    /// Of these, who has gone on without its CPU.
    ahead: BTreeSet<Run>,
    /// Of these, who was told to pause and has not done so,
    pausing: BTreeSet<Run>,
    /// and who is paused.
    paused: BTreeSet<Run>,
    objects: BTreeSet<ObjectId>,
}

struct Member {
    scheduler: Scheduler,
    /// What was submitted here and has not ended.
    submitted: BTreeSet<TaskId>,
    version: u64,
    woken_at: Option<Instant>,
    heard: Heard,
    /// The incarnations of nodes that it knows to be over.
    lost: BTreeSet<End>,
    /// Attempts of others that are not taken in yet.
    arriving: BTreeSet<(End, Run)>,
}

pub struct World {
    random: Random,
    mode: Mode,
    is_traced: bool,
    now: Instant,
    coming: BTreeMap<(Instant, u64), Coming>,
    sequence: u64,
    nodes: Vec<Node>,
    members: Vec<Member>,
    terms: Vec<Arc<Terms>>,
    actors: Vec<Actor>,
    /// The tasks of actors: which one's.
    of_actor: BTreeMap<TaskId, usize>,
    /// The last call that was started of a driver to an actor, by its number.
    last_calls: BTreeMap<(usize, DriverId), u64>,
    calls: BTreeMap<TaskId, (usize, DriverId, u64)>,
    groups: Vec<Group>,
    records: Records,
    /// What members have said and others have not heard yet.
    unheard: BTreeMap<(End, End), VecDeque<Message>>,
    /// What no node can ever serve.
    impossible: BTreeSet<TaskId>,
    /// Attempts that an executor has or had; each is begun once, wherever.
    dispatched: BTreeSet<Run>,
    /// Attempts that an executor said are finished.
    finished: BTreeSet<Run>,
    counter: u64,
    has_healed: bool,
    trace: DefaultHasher,
    steps: u64,
}

const FAULTS_UNTIL: Duration = Duration::from_secs(12);
/// All tasks have ended that long after the faults have.
const DRAINED_AFTER: Duration = Duration::from_secs(600);

impl World {
    pub fn new(seed: u64, mode: Mode, is_traced: bool) -> Self {
        let mut random = Random::new(seed);
        let count = 1 + random.below(5);
        let nodes = (0..count).map(|_| Node {
            incarnation: 0,
            is_alive: false,
            runs: BTreeSet::new(),
            ahead: BTreeSet::new(),
            pausing: BTreeSet::new(),
            paused: BTreeSet::new(),
            objects: BTreeSet::new(),
        });
        let mut world = Self {
            mode,
            is_traced,
            now: Instant::ZERO,
            coming: BTreeMap::new(),
            sequence: 0,
            nodes: nodes.collect(),
            members: Vec::new(),
            terms: work::all_terms(),
            actors: Vec::new(),
            of_actor: BTreeMap::new(),
            last_calls: BTreeMap::new(),
            calls: BTreeMap::new(),
            groups: Vec::new(),
            records: Records::default(),
            unheard: BTreeMap::new(),
            impossible: BTreeSet::new(),
            dispatched: BTreeSet::new(),
            finished: BTreeSet::new(),
            counter: 0,
            has_healed: false,
            trace: DefaultHasher::new(),
            steps: 0,
            random,
        };
        let members = if mode == Mode::One { 1 } else { count };
        world.members = (0..members).map(|at| world.member(at)).collect();
        for node in 0..count {
            world.come(0, 300, Coming::Rejoin(node));
        }
        for _ in 0..20 + world.random.below(150) {
            let driver = world.random.below(4);
            world.come(0, 8_000, Coming::Submit(driver));
        }
        for _ in 0..world.random.below(25) {
            world.come(500, 11_000, Coming::Fault);
        }
        let heal = Instant::ZERO + FAULTS_UNTIL;
        world.at(heal, Coming::Heal);
        world.at(heal + Duration::from_secs(8), Coming::EndAll);
        world.at(heal + DRAINED_AFTER, Coming::GiveUp);
        world
    }

    fn member(&mut self, at: usize) -> Member {
        let settings = Settings {
            policy: pick(&mut self.random, &[Policy::Drf, Policy::Fair, Policy::Fifo]),
            local_queue: 1 + self.random.below(8) as u32,
            patience: Duration::from_millis(500 + self.random.below(2_000) as u64),
            ..Settings::default()
        };
        let config = Config {
            seed: self.random.next(),
            local: (self.mode == Mode::Each).then(|| work::node_id(at)),
            settings,
            max_running: if chance(&mut self.random, 20) {
                6
            } else {
                u32::MAX
            },
            ..Config::default()
        };
        let mut scheduler = Scheduler::new(config);
        if chance(&mut self.random, 50) {
            let config: TenantConfig =
                serde_json::from_str(r#"{"min_share": {"CPU": 2, "GPU": 1}}"#).expect("settings");
            let (tenant, config) = ("a".parse().expect("a name"), Box::new(config));
            scheduler.handle(self.now, Event::SetTenant { tenant, config });
        }
        Member {
            scheduler,
            submitted: BTreeSet::new(),
            version: 0,
            woken_at: None,
            heard: Heard::default(),
            lost: BTreeSet::new(),
            arriving: BTreeSet::new(),
        }
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

    /// Runs until all work has ended. Returns a hash of everything that the schedulers did.
    pub fn run(mut self) -> u64 {
        while let Some(((at, _), coming)) = self.coming.pop_first() {
            self.now = at;
            self.steps += 1;
            if self.is_traced {
                eprintln!("{at} {coming:?}");
            }
            self.happen(coming);
            if self.has_healed && self.members.iter().all(|it| it.submitted.is_empty()) {
                break;
            }
        }
        self.settle_down();
        self.trace.finish()
    }

    /// All work has ended: nothing is left of it anywhere.
    fn settle_down(&mut self) {
        // What executors have that nobody wants, and messages that are under way.
        let until = self.now + Duration::from_secs(30);
        while let Some(entry) = self
            .coming
            .first_entry()
            .filter(|entry| entry.key().0 <= until)
        {
            self.now = entry.key().0;
            let coming = entry.remove();
            self.happen(coming);
        }
        for member in &self.members {
            let scheduler = &member.scheduler;
            assert_eq!(scheduler.live(), 0, "work is left: {scheduler}");
            for ix in scheduler.own_nodes() {
                let own = scheduler.cluster().own(*ix).expect("an own node");
                assert!(
                    own.load().is_empty() && own.held().is_empty(),
                    "{scheduler}"
                );
                assert_eq!(own.available(), own.total());
            }
            for (_, tenant) in scheduler.tenants().iter() {
                assert!(tenant.own_usage().is_empty());
                let count = tenant.counters();
                let ended = count.finished + count.failed + count.cancelled;
                assert_eq!(count.submitted, ended, "{scheduler}");
            }
        }
    }

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Event(member, incarnation, event) => {
                if self.incarnation_of(member) == incarnation {
                    self.handle(member, event);
                }
            }
            Coming::Executor(node, incarnation, run, what) => {
                self.executed(node, incarnation, run, what)
            }
            Coming::Message { from, to } => self.deliver(from, to),
            Coming::TakenIn { from, to, place } => self.take_in(from, to, place),
            Coming::View { to, node, view } => {
                if self.is_up(to) {
                    self.handle(
                        to,
                        Event::PeerView {
                            node,
                            view: view.into(),
                        },
                    );
                }
            }
            Coming::Expected { to, node } => {
                let at = (0..self.nodes.len()).find(|at| work::node_id(*at) == node.id);
                let it = &self.nodes[at.expect("a node")];
                if self.is_up(to) && it.is_alive && Incarnation(it.incarnation) == node.incarnation
                {
                    self.handle(to, Event::NodeExpected(node));
                }
            }
            Coming::Lost {
                to,
                node,
                incarnation,
            } => {
                if self.is_up(to) {
                    self.members[to].lost.insert((node, incarnation));
                    self.members[to]
                        .arriving
                        .retain(|(from, _)| *from != (node, incarnation));
                    let (node, incarnation) = (work::node_id(node), Incarnation(incarnation));
                    self.handle(to, Event::NodeLost { node, incarnation });
                }
            }
            Coming::Heartbeat(node) => self.heartbeat(node),
            Coming::Submit(driver) => self.submit(driver),
            Coming::Announce(news) => self.announce(news),
            Coming::OfGroup(group, what) => self.of_group(group, what),
            Coming::OfRecords {
                to,
                incarnation,
                until,
            } => self.hear(to, incarnation, until),
            Coming::EndAll => self.end_all(),
            Coming::Fault if self.has_healed => {}
            Coming::Fault => self.fault(),
            Coming::Rejoin(node) => self.rejoin(node),
            Coming::Heal => self.heal(),
            Coming::GiveUp => {
                let left = self
                    .members
                    .iter()
                    .map(|it| it.submitted.len())
                    .sum::<usize>();
                for member in &self.members {
                    for id in &member.submitted {
                        eprintln!("{}", member.scheduler.explain(id).expect("a live task"));
                    }
                    eprintln!("{}", member.scheduler);
                }
                panic!("{left} tasks have not ended");
            }
        }
    }

    /// Which incarnation a member is in: that of its node; one that has all nodes never ends.
    fn incarnation_of(&self, member: usize) -> u64 {
        match self.mode {
            Mode::Each => self.nodes[member].incarnation,
            Mode::One => 0,
        }
    }

    fn is_up(&self, member: usize) -> bool {
        self.mode == Mode::One || self.nodes[member].is_alive
    }

    fn member_of(&self, node: usize) -> usize {
        if self.mode == Mode::One { 0 } else { node }
    }

    fn handle(&mut self, at: usize, event: Event) {
        if let Event::ArgumentReady(object) = &event {
            self.nodes[at].objects.insert(*object);
        }
        let member = &mut self.members[at];
        member.scheduler.handle(self.now, event);
        check(&member.scheduler);
        while let Some(effect) = self.members[at].scheduler.poll_effect() {
            self.trace.write(format!("{at} {effect:?}").as_bytes());
            if self.is_traced {
                eprintln!("    {at}: {effect:?}");
            }
            self.carry_out(at, effect);
        }
        let member = &mut self.members[at];
        let timeout = member.scheduler.poll_timeout().map(|at| at.max(self.now));
        let is_new = timeout.is_some_and(|at| member.woken_at.is_none_or(|known| at < known));
        if let Some(timeout) = timeout.filter(|_| is_new) {
            member.woken_at = Some(timeout);
            let incarnation = self.incarnation_of(at);
            self.at(timeout, Coming::Event(at, incarnation, Event::Tick));
        } else if timeout.is_none() || member.woken_at.is_some_and(|known| known <= self.now) {
            member.woken_at = None;
            if let Some(timeout) = timeout {
                self.members[at].woken_at = Some(timeout);
                let incarnation = self.incarnation_of(at);
                self.at(timeout, Coming::Event(at, incarnation, Event::Tick));
            }
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        let scheduler = &self.members[at].scheduler;
        match effect {
            Effect::Dispatch {
                task,
                attempt,
                node,
                ..
            } => {
                let assignment = scheduler.assignment(&task);
                assert!(assignment.is_some_and(|it| it.node == node));
                let id = scheduler.cluster()[node].id();
                self.dispatch(usize::from(id.as_bytes()[0]), (task, attempt));
            }
            Effect::Stop {
                task,
                attempt,
                node,
            } => {
                self.check_outlives(at, scheduler.why_stopped(&task));
                let id = scheduler.cluster()[node].id();
                self.stop(usize::from(id.as_bytes()[0]), (task, attempt));
            }
            Effect::Pause { task, attempt } => {
                let node = self.holder(at, &task);
                // One in a call of the host takes its time.
                let within = pick(&mut self.random, &[5, 20, 3_000]);
                self.nodes[node].pausing.insert((task, attempt));
                self.execute(node, (task, attempt), Executed::Pause, within);
            }
            Effect::Preempt { task, attempt } => {
                let node = self.holder(at, &task);
                self.execute(node, (task, attempt), Executed::Preempt, 50);
            }
            Effect::Resume { task, attempt } => {
                let node = self.holder(at, &task);
                let it = &mut self.nodes[node];
                let was_paused = it.paused.remove(&(task, attempt));
                if was_paused || !it.ahead.remove(&(task, attempt)) {
                    self.continue_run(node, (task, attempt));
                }
            }
            Effect::Fetch { objects, .. } => {
                for object in objects {
                    let incarnation = self.incarnation_of(at);
                    let event = Coming::Event(at, incarnation, Event::ArgumentReady(object));
                    self.come(1, 600, event);
                }
            }
            Effect::Ended {
                task,
                attempt,
                phase,
                why,
            } => {
                self.check_outlives(at, why.as_deref());
                let was_there = self.members[at].submitted.remove(&task);
                assert!(was_there && phase.is_terminal(), "{task} ends twice");
                let is_true = phase != Phase::Finished || self.finished.contains(&(task, attempt));
                assert!(
                    is_true,
                    "no executor has finished attempt {attempt} of {task}"
                );
                let actor = self.of_actor.get(&task).copied();
                if let Some(actor) = actor.filter(|actor| self.actors[*actor].creation == task) {
                    let will_restart = false;
                    self.at(
                        self.now,
                        Coming::Announce(ActorNews::Died {
                            actor,
                            will_restart,
                        }),
                    );
                }
            }
            Effect::Send { to, message } => self.send(at, to, *message),
            Effect::Retried { .. } | Effect::Infeasible { .. } | Effect::GroupChanged(_) => {}
        }
    }

    /// The node on which a task of a member's holds something.
    fn holder(&self, at: usize, task: &TaskId) -> usize {
        let scheduler = &self.members[at].scheduler;
        let assignment = scheduler.assignment(task).expect("it holds something");
        usize::from(scheduler.cluster()[assignment.node].id().as_bytes()[0])
    }

    /// A session is between two incarnations: what is said in it arrives once, in order, as long as both live.
    fn send(&mut self, from: usize, to: NodeId, message: Message) {
        let Some(incarnation) = self.known_incarnation(from, to) else {
            return;
        };
        let from = (from, self.incarnation_of(from));
        let to = (usize::from(to.as_bytes()[0]), incarnation);
        self.unheard
            .entry((from, to))
            .or_default()
            .push_back(message);
        let slow = match self.random.below(100) {
            // For so long the link is down.
            0..5 if !self.has_healed => 5_000,
            5..10 => 2_000,
            _ => 40,
        };
        self.come(1, slow, Coming::Message { from, to });
    }

    /// The incarnation in which a member knows a node.
    fn known_incarnation(&self, member: usize, node: NodeId) -> Option<u64> {
        let cluster = self.members[member].scheduler.cluster();
        Some(cluster.incarnation(node)?.0)
    }

    /// A message waits until its receiver knows that its sender lives, and is dropped if that incarnation is over.
    fn deliver(&mut self, from: End, to: End) {
        let is_heard = self.is_up(to.0) && self.incarnation_of(to.0) == to.1;
        let lives = is_heard && !self.members[to.0].lost.contains(&from);
        if !lives {
            self.unheard.remove(&(from, to));
            return;
        }
        let node = work::node_id(from.0);
        if self.known_incarnation(to.0, node) != Some(from.1) {
            return self.come(5, 20, Coming::Message { from, to });
        }
        let next = self.unheard.get_mut(&(from, to));
        let Some(message) = next.and_then(VecDeque::pop_front) else {
            return;
        };
        match &message {
            Message::Place { spec, attempt, .. }
                if spec.kind == TaskKind::Task && chance(&mut self.random, 20) =>
            {
                let run = (spec.id, *attempt);
                self.members[to.0].arriving.insert((from, run));
                let place = message;
                self.come(1, 1_000, Coming::TakenIn { from, to, place });
            }
            Message::Withdraw { task, attempt }
                if self.members[to.0]
                    .arriving
                    .remove(&(from, (*task, *attempt))) =>
            {
                let (task, attempt, outcome) = (*task, *attempt, Outcome::Cancelled);
                let settled = Message::Settled {
                    task,
                    attempt,
                    outcome,
                };
                self.send(to.0, node, settled);
            }
            _ => self.hear_message(from, to, message),
        }
    }

    fn take_in(&mut self, from: End, to: End, place: Message) {
        let Message::Place { spec, attempt, .. } = &place else {
            unreachable!("only tasks are taken in");
        };
        let run = (spec.id, *attempt);
        let is_there = self.is_up(to.0) && self.incarnation_of(to.0) == to.1;
        if is_there && self.members[to.0].arriving.remove(&(from, run)) {
            self.hear_message(from, to, place);
        }
    }

    fn hear_message(&mut self, from: End, to: End, message: Message) {
        let from = work::node_id(from.0);
        let message = message.into();
        self.handle(to.0, Event::Message { from, message });
    }

    /// Makes a task one of an actor or group, now and then.
    fn vary(&mut self, at: usize, spec: &mut TaskSpec) {
        let incarnation = self.incarnation_of(at);
        // Also those of other nodes, and those that have ended.
        let groups: Vec<usize> = (0..self.groups.len()).rev().take(8).collect();
        match self.random.below(100) {
            0..5 if self.actors.len() < 200 => {
                let actor = self.actors.len();
                spec.kind = TaskKind::Actor(work::actor_id(actor));
                spec.terms = self.terms[1 + self.random.below(4)].clone();
                self.of_actor.insert(spec.id, actor);
                self.actors.push(Actor {
                    creation: spec.id,
                    owner: (at, incarnation),
                    node: None,
                    is_over: false,
                });
            }
            5..25 if !self.actors.is_empty() => {
                let actor = self.random.below(self.actors.len());
                if !self.actors[actor].is_over {
                    spec.kind = TaskKind::Call {
                        actor: work::actor_id(actor),
                        caller: None,
                    };
                    spec.terms = self.terms[0].clone();
                    self.of_actor.insert(spec.id, actor);
                    self.calls
                        .insert(spec.id, (actor, spec.driver, self.counter));
                }
            }
            25..30 => self.create_group(at),
            30..42 if !groups.is_empty() => {
                let group = pick(&mut self.random, &groups);
                let group = self.groups[group].id;
                spec.terms = work::terms_in(&mut self.random, group);
            }
            _ => {}
        }
    }

    fn submit(&mut self, driver: usize) {
        let up: Vec<usize> = (0..self.members.len())
            .filter(|at| self.is_up(*at))
            .collect();
        if up.is_empty() {
            return;
        }
        // A driver is at one node, or asks another if that is gone.
        let at = up[driver % up.len()];
        self.counter += 1;
        let objects = &self.nodes[at].objects;
        let is_local = |object| objects.contains(&object);
        let random = &mut self.random;
        let mut spec = work::task(random, &self.terms, driver, self.counter, is_local);
        self.vary(at, &mut spec);
        let random = &mut self.random;
        self.members[at].submitted.insert(spec.id);
        let again = chance(random, 10).then(|| spec.clone());
        let id = spec.id;
        if Arc::ptr_eq(&spec.terms, self.terms.last().expect("terms")) {
            self.impossible.insert(id);
        }
        self.handle(at, Event::Submit(spec));
        if let Some(spec) = again.filter(|_| self.members[at].submitted.contains(&id)) {
            self.handle(at, Event::Submit(spec));
        }
        if chance(&mut self.random, 6) {
            let incarnation = self.incarnation_of(at);
            self.come(0, 1_500, Coming::Event(at, incarnation, Event::Cancel(id)));
        }
    }

    fn heartbeat(&mut self, node: usize) {
        if !self.nodes[node].is_alive || self.mode == Mode::One {
            return;
        }
        self.come(80, 120, Coming::Heartbeat(node));
        self.check_attempts(node);
        let incarnation = self.nodes[node].incarnation;
        let member = &mut self.members[node];
        let scheduler = &member.scheduler;
        let cluster = scheduler.cluster();
        let own = &cluster[scheduler.own_nodes()[0]];
        let info = NodeInfo {
            id: own.id(),
            incarnation: Incarnation(incarnation),
            name: own.name().clone(),
            labels: own.labels().clone(),
        };
        let waiting = scheduler.len_in(Phase::Ready) + scheduler.len_in(Phase::Waiting);
        member.version += 1;
        let view = PeerView {
            version: member.version,
            resources: cluster
                .own(scheduler.own_nodes()[0])
                .expect("an own node")
                .report(),
            queue: QueueReport {
                tasks: waiting as u64,
                run_time_us: 100_000 * waiting as u64,
            },
            usage: scheduler.tenants().own_usage(),
        };
        for to in (0..self.nodes.len()).filter(|to| *to != node) {
            if !chance(&mut self.random, 10) {
                let slow = if chance(&mut self.random, 5) {
                    3_000
                } else {
                    30
                };
                let (node, view) = (info.clone(), view.clone());
                self.come(1, slow, Coming::View { to, node, view });
            }
        }
    }

    /// The owner numbers the attempts: nobody else begins one.
    fn check_attempts(&self, node: usize) {
        let scheduler = &self.members[node].scheduler;
        for phase in &Phase::ALL[..Phase::LIVE] {
            for id in scheduler.in_phase(*phase) {
                let here = scheduler.task(&id).expect("a live task");
                let owner = self.members.iter().find(|it| it.submitted.contains(&id));
                let there = owner.and_then(|it| it.scheduler.task(&id));
                assert!(
                    there.is_none_or(|there| here.attempt <= there.attempt),
                    "{here:?}"
                );
            }
        }
    }
}
