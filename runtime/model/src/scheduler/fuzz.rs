//! The invariants as one function, and random events to try them on: for `fuzz/` (libFuzzer), the
//! seeded simulation and the tests beside this module.
//!
//! Owns what must hold after every [`Scheduler::handle`]. Must not: change anything that it checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::class::{Gate, Wants};
use super::table::TaskIx;
use super::{
    Config, Effect, Event, Message, NodeInfo, Outcome, PeerView, Scheduler, Setting, Settings,
};
use crate::cluster::{Basis, NodeFit, NodeIx, QueueReport, Strategy};
use crate::fairness::{Policy, TenantConfig};
use crate::group::{GroupAnswer, GroupKind, GroupMessage, GroupRequest, GroupSpec, Round};
use crate::id::{ActorId, DriverId, GroupId, Incarnation, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{
    Allocation, Amount, Load, NodeResources, Request, ResourceId, ResourceName, ResourceSet,
};
use crate::task::{
    Argument, Attempt, BlockedOn, FailureKind, Phase, Place, Rule, TaskKind, TaskSpec, TaskState,
    Terms,
};
use crate::time::Instant;

/// Checks what must hold whenever [`Scheduler::handle`] has returned.
///
/// # Panics
/// If something does not hold.
pub fn check(scheduler: &Scheduler) {
    check_classes(scheduler);
    check_resources(scheduler);
    check_arguments(scheduler);
    check_calls(scheduler);
    scheduler.check_tasks_of_peers();
    scheduler.check_calls_of_actors();
    check_nothing_idles(scheduler);
}

fn live(scheduler: &Scheduler) -> impl Iterator<Item = TaskIx> {
    let phases = Phase::ALL[..Phase::LIVE].iter();
    phases.flat_map(|phase| scheduler.tasks.in_phase(*phase))
}

/// Whether somebody looks at it for a start: all that are ready, but of an actor's calls only one.
fn check_classes(scheduler: &Scheduler) {
    let mut counts: BTreeMap<_, [u32; Phase::LIVE]> = BTreeMap::new();
    let mut in_line: BTreeMap<_, u32> = BTreeMap::new();
    let mut resuming = 0;
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        counts.entry(task.class).or_default()[task.phase().index()] += 1;
        let is_call = matches!(task.kind, TaskKind::Call { .. });
        match task.state() {
            TaskState::Ready if is_call => {}
            TaskState::Ready => assert!(task.is_in_line, "ready task {} is in no line", task.id),
            TaskState::Blocked { on, .. } => {
                let wants_cpu = *on != BlockedOn::Others;
                assert_eq!(task.is_in_line, wants_cpu && task.doom.is_none());
            }
            other => assert!(!task.is_in_line, "task {} is in line: {other:?}", task.id),
        }
        match task.state() {
            TaskState::Blocked { .. } => resuming += u32::from(task.is_in_line),
            _ if task.is_in_line => *in_line.entry(task.class).or_default() += 1,
            _ => {}
        }
    }
    let (mut gated, mut open, mut resuming_in_line) = (0, 0, 0);
    for (ix, class) in scheduler.classes.iter() {
        let expected = counts.remove(&ix).unwrap_or_default();
        assert_eq!(class.counts, expected, "the counts of {ix:?}");
        if class.key.wants == Wants::Resume {
            resuming_in_line += class.in_line;
        } else {
            let expected = in_line.remove(&ix).unwrap_or_default();
            assert_eq!(class.in_line, expected, "the lines of {ix:?}");
        }
        let is_idle = matches!(class.gate, Gate::Idle);
        assert_eq!(is_idle, class.in_line == 0, "the gate of {ix:?}");
        gated += usize::from(!is_idle);
        if class.gate == Gate::Open {
            assert!(scheduler.open.contains(&ix), "{ix:?} is open, unlisted");
            open += 1;
        }
    }
    assert!(counts.is_empty() && in_line.is_empty(), "a class is gone");
    assert_eq!((gated, open), (scheduler.gated, scheduler.open.len()));
    assert_eq!(resuming, resuming_in_line);
    let members = |(_, class): &(_, &super::class::Class)| class.in_line > 0;
    for node in &scheduler.own {
        if let Some(cpu) = scheduler.cluster[*node].kept_cpu() {
            let mut waiting = scheduler.classes.iter().filter(members);
            let is_for = |class: &super::class::Class| {
                let key = &class.key;
                key.wants == Wants::Resume
                    && key.bound == Some(*node)
                    && key.rule.preferred() == cpu
            };
            assert!(
                waiting.any(|(_, class)| is_for(class)),
                "{cpu:?} is kept for nobody to go on"
            );
        }
        let Some(kept) = scheduler.cluster[*node].kept() else {
            continue;
        };
        let mut waiting = scheduler.classes.iter().filter(members);
        let is_for = |class: &super::class::Class| class.rule().alternatives.contains(kept);
        assert!(
            waiting.any(|(_, class)| is_for(class)) && scheduler.cluster[*node].is_feasible(kept),
            "{kept:?} is kept for nobody"
        );
    }
}

/// No unit twice, nothing lost, load is that of the tasks, and usage that of the tasks outside of groups and of groups.
fn check_resources(scheduler: &Scheduler) {
    let mut held_on: BTreeMap<NodeIx, ResourceSet> = BTreeMap::new();
    let mut ids = Ids::new();
    let mut usage: BTreeMap<_, ResourceSet> = BTreeMap::new();
    let mut held_in: BTreeMap<_, ResourceSet> = BTreeMap::new();
    let mut loads: BTreeMap<NodeIx, Load> = BTreeMap::new();
    let mut with_executors = 0;
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        if matches!(task.phase(), Phase::Ready | Phase::Waiting) {
            let class = &scheduler.classes[task.class].key;
            let is_grouped = matches!(class.rule.strategy, Strategy::PlacementGroup { .. });
            let local = scheduler
                .local
                .filter(|_| !is_grouped && scheduler.counts_local);
            if let Some(node) = class.bound.or(local) {
                loads
                    .entry(node)
                    .or_default()
                    .add(&task.terms.rule.alternatives[usize::from(task.counts_as)]);
            }
        }
        let Some(held) = task.state().held() else {
            continue;
        };
        with_executors += u32::from(Wants::of(task.kind) == Wants::Start);
        let amounts = held.allocation.amounts();
        let mut asked = task.terms.rule.alternatives[usize::from(held.alternative)]
            .amounts()
            .clone();
        if task.phase() == Phase::Blocked || held.lacks_cpu {
            asked.remove(&ResourceName::CPU);
        }
        assert_eq!(amounts, asked, "what task {} holds", task.id);
        if held.bundle.is_none() {
            let tenant = scheduler.tenants.get(task.tenant).name().clone();
            let used = usage.entry(tenant).or_default();
            used.add(&amounts).expect("small amounts");
        }
        if let Some(bundle) = held.bundle {
            if amounts.is_empty() {
                // Its bundle may be gone while an executor stops it.
                continue;
            }
            let inside = held_in.entry((held.node, bundle)).or_default();
            inside.add(&amounts).expect("small amounts");
            continue;
        }
        held_on
            .entry(held.node)
            .or_default()
            .add(&amounts)
            .expect("small amounts");
        count_ids(&mut ids, held.node, &held.allocation);
    }
    assert_eq!(with_executors, scheduler.with_executors);
    for owned in scheduler.groups.owned.values() {
        let used = usage.entry(owned.tenant.clone()).or_default();
        for bundle in owned.coordinator.reserved() {
            let bundle = &owned.coordinator.spec().bundles()[bundle as usize];
            used.add(bundle.amounts()).expect("small amounts");
        }
    }
    usage.retain(|_, usage| !usage.is_empty());
    assert_eq!(scheduler.tenants.own_usage(), usage);
    for node in &scheduler.own {
        let own = scheduler.cluster.own(*node).expect("an own node");
        let mut held = held_on.remove(node).unwrap_or_default();
        for (at, bundle) in scheduler.groups.bundles(*node) {
            let reserved = bundle.allocation();
            held.add(&reserved.amounts()).expect("small amounts");
            count_ids(&mut ids, *node, reserved);
            let mut inside = held_in.remove(&(*node, at)).unwrap_or_default();
            inside.add(&bundle.available()).expect("small amounts");
            assert_eq!(inside, bundle.total(), "bundle {at:?}");
        }
        assert_eq!(own.held(), held, "what tasks hold of a node");
        let plus = |mut one: ResourceSet, other: ResourceSet| {
            one.add(&other).expect("small amounts");
            one
        };
        assert_eq!(
            plus(own.total(), own.backlog()),
            plus(own.available(), own.held()),
            "total = available + held - backlog"
        );
        assert_eq!(*own.load(), loads.remove(node).unwrap_or_default());
    }
    assert!(
        held_on.is_empty() && held_in.is_empty() && loads.is_empty(),
        "of nodes that are gone"
    );
}

type Ids = BTreeMap<(NodeIx, ResourceName, ResourceId), Amount>;

fn count_ids(ids: &mut Ids, node: NodeIx, allocation: &Allocation) {
    for (name, part) in allocation.iter() {
        for (id, amount) in part.ids() {
            let sum = ids.entry((node, name.clone(), id)).or_default();
            *sum = sum.checked_add(amount).expect("small amounts");
            assert!(*sum <= Amount::ONE, "{name} {id:?} of {node:?} twice");
        }
    }
}

/// Who has which arguments is known to whom it concerns.
fn check_arguments(scheduler: &Scheduler) {
    let mut dependents: BTreeMap<ObjectId, BTreeSet<TaskIx>> = BTreeMap::new();
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        let lacking = task.args.iter().filter(|arg| !arg.is_local).count();
        match task.state() {
            TaskState::Waiting { missing } => {
                assert!(
                    lacking > 0 && *missing as usize == lacking,
                    "{missing} != {lacking}"
                );
            }
            TaskState::Ready => assert_eq!(lacking, 0, "task {} is ready", task.id),
            _ => {}
        }
        for arg in &task.args {
            dependents.entry(arg.object).or_default().insert(ix);
        }
    }
    assert_eq!(scheduler.dependents, dependents);
}

/// A ready call that is in no line waits for another one; who waits for a decision is a call, or was handed to and fro.
fn check_calls(scheduler: &Scheduler) {
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        let TaskKind::Call { actor, .. } = task.kind else {
            let is_undecided = matches!(task.state(), TaskState::Placeable(Place::Undecided));
            let rests = task.hops >= scheduler.config.max_hops;
            assert!(!is_undecided || rests, "task {} waits for nothing", task.id);
            continue;
        };
        if task.phase() != Phase::Ready || task.is_in_line {
            continue;
        }
        let mut calls = scheduler.tasks.of_actor(&actor);
        let holds_up = calls.any(|other| {
            let call = &scheduler.tasks[other];
            let is_current = call.is_in_line || call.phase().holds();
            let is_before = call.driver == task.driver && call.sequence < task.sequence;
            other != ix
                && matches!(call.kind, TaskKind::Call { .. })
                && (is_current || is_before && call.phase() == Phase::Waiting)
        });
        assert!(holds_up, "nothing holds up call {}", task.id);
    }
}

/// No task is ready that some node could run now.
fn check_nothing_idles(scheduler: &Scheduler) {
    let is_full = scheduler.with_executors >= scheduler.config.max_running;
    let mut seen = BTreeSet::new();
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        if !task.is_in_line {
            continue;
        }
        if let TaskState::Blocked { held, .. } = task.state() {
            let cpu = scheduler.request_of(ix, held).cpu_part();
            let own = scheduler.cluster.own(held.node).expect("an own node");
            let is_free = match held.bundle {
                Some(at) => scheduler.groups.can_acquire(held.node, at, &cpu),
                None => own.can_acquire(&cpu),
            };
            let is_free = is_free || !scheduler.may_get(held, &cpu);
            assert!(!is_free, "task {} could go on", task.id);
            continue;
        }
        let needs_slot = Wants::of(task.kind) == Wants::Start;
        if is_full && needs_slot || !seen.insert((task.class, task.actor().is_some())) {
            continue;
        }
        let rule = &task.terms.rule;
        if let Strategy::PlacementGroup { group, bundle } = rule.strategy {
            let spot = |request| scheduler.groups.spot(&group, bundle, request);
            let spot = rule.alternatives.iter().find_map(spot);
            assert!(spot.is_none(), "task {} could run in {spot:?}", task.id);
            continue;
        }
        let bound = scheduler.classes[task.class].key.bound;
        for node in scheduler
            .own
            .iter()
            .filter(|node| bound.is_none_or(|bound| bound == **node))
        {
            let fit = scheduler.fit_on(*node, ix, Basis::Acquirable);
            let fits = fit == Some(NodeFit::Available);
            assert!(!fits, "task {} could run on {node:?}: {scheduler}", task.id);
        }
    }
}

/// Bytes that are used up one by one; zeros when there are no more.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.next() % bound
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::from(self.below(of.len() as u8))].clone()
    }
}

/// Few ids of each kind, so that they meet again.
struct Fuzz<'a> {
    bytes: Bytes<'a>,
    scheduler: Scheduler,
    now: Instant,
    /// What was submitted here and has not ended.
    submitted: BTreeSet<TaskId>,
}

/// Bytes as events. Whatever comes in whatever order: the invariants hold, and every submission
/// ends at most once.
///
/// # Panics
/// If they do not.
pub fn fuzz(data: &[u8]) {
    let mut bytes = Bytes(data.iter());
    let kind = bytes.next();
    let config = Config {
        settings: Settings {
            policy: [Policy::Drf, Policy::Fair, Policy::Fifo][usize::from(kind % 3)],
            local_queue: 2,
            patience: Duration::from_secs(1),
            ..Settings::default()
        },
        seed: kind.into(),
        local: (kind & 4 != 0).then(|| node_id(0)),
        max_running: if kind & 8 != 0 { 3 } else { u32::MAX },
        ..Config::default()
    };
    let mut fuzz = Fuzz {
        bytes,
        scheduler: Scheduler::new(config),
        now: Instant::ZERO,
        submitted: BTreeSet::new(),
    };
    while fuzz.bytes.0.len() > 0 {
        fuzz.step();
    }
    // What is held is not to be dropped.
    for own in fuzz.scheduler.own.clone() {
        let node = &fuzz.scheduler.cluster[own];
        let (node, incarnation) = (node.id(), node.incarnation());
        fuzz.handle(Event::NodeLost { node, incarnation });
    }
}

fn node_id(at: u8) -> NodeId {
    NodeId::from_bytes([at; 16])
}

impl Fuzz<'_> {
    fn step(&mut self) {
        let step = [0, 1, 1_000, 300_000, 2_000_000][usize::from(self.bytes.below(5))];
        self.now = self.now + Duration::from_micros(step);
        let event = self.event();
        self.handle(event);
    }

    fn handle(&mut self, event: Event) {
        if let Event::Submit(spec) = &event
            && self.scheduler.tasks.find(&spec.id).is_none()
        {
            self.submitted.insert(spec.id);
        }
        self.scheduler.handle(self.now, event);
        check(&self.scheduler);
        while let Some(effect) = self.scheduler.poll_effect() {
            match effect {
                Effect::Ended { task, phase, .. } => {
                    assert!(phase.is_terminal() && self.submitted.remove(&task));
                }
                Effect::Dispatch {
                    task,
                    attempt,
                    node,
                    ..
                } => {
                    let view = self.scheduler.task(&task).expect("a dispatched task");
                    assert_eq!((view.attempt, view.phase), (attempt, Phase::Dispatching));
                    assert!(self.scheduler.cluster.own(node).is_some());
                }
                Effect::Stop { node, .. } => {
                    assert!(self.scheduler.cluster.own(node).is_some());
                }
                _ => {}
            }
        }
        let own = |id: &TaskId| self.scheduler.task(id).is_some_and(|task| task.is_own);
        assert!(
            self.submitted.iter().all(own),
            "a submission is gone, unended"
        );
        let live: Vec<TaskId> = live(&self.scheduler)
            .map(|ix| self.scheduler.tasks[ix].id)
            .collect();
        for id in live {
            let text = self
                .scheduler
                .explain(&id)
                .expect("a live task")
                .to_string();
            assert!(text.contains("it waits for"));
        }
    }

    fn event(&mut self) -> Event {
        let task = self.task();
        let attempt = match self.scheduler.tasks.find(&task) {
            Some(ix) if self.bytes.below(8) > 0 => self.scheduler.tasks[ix].attempt,
            _ => Attempt::new(0, self.bytes.below(4).into()),
        };
        let node = node_id(self.bytes.below(4));
        let driver = DriverId::from_bytes([self.bytes.below(2); 16]);
        let actor = ActorId::from_bytes([self.bytes.below(2); 16]);
        match self.bytes.below(40) {
            0..=7 => Event::Submit(self.spec(task)),
            8..=10 => Event::Accepted { task, attempt },
            11 => Event::Refused { task, attempt },
            12..=14 => Event::Finished { task, attempt },
            15 => {
                let kind = self
                    .bytes
                    .pick(&[FailureKind::Final, FailureKind::Retryable]);
                Event::Failed {
                    task,
                    attempt,
                    kind,
                }
            }
            16..=17 => Event::Blocked { task, attempt },
            18 => Event::Unblocked { task, attempt },
            19 => Event::Overdue { task, attempt },
            20 => Event::ArgumentReady(self.object()),
            21 => Event::ArgumentLost(self.object()),
            22 if self.bytes.below(4) == 0 => Event::ArgumentFailed(self.object()),
            22 => Event::Cancel(task),
            23 => match self.bytes.below(3) {
                0 => Event::CancelJob(JobId::from_bytes([self.bytes.below(2); 16])),
                1 => Event::DriverGone(driver),
                _ => Event::DriverJoined(driver),
            },
            kind @ 24..=32 => self.node_event(kind, node),
            33 => Event::ActorCreated { actor, node },
            34 => Event::ActorDied {
                actor,
                will_restart: self.bytes.below(2) == 0,
            },
            35 => match self.bytes.below(2) {
                0 => {
                    let settings = self.scheduler.settings();
                    let policies = [Policy::Drf, Policy::Fair, Policy::Fifo];
                    let setting = match self.bytes.next() % 4 {
                        0 => Setting::TopNodes(self.bytes.next().into()),
                        1 => Setting::LocalQueue(self.bytes.next().into()),
                        2 => Setting::Patience(Duration::from_millis(self.bytes.next().into())),
                        _ => Setting::Policy(self.bytes.pick(&policies)),
                    };
                    Event::Configure(settings.with(setting).into())
                }
                _ => Event::SetTenant {
                    tenant: self.bytes.pick(&["a", "b"]).parse().expect("a name"),
                    config: Box::new(TenantConfig {
                        min_share: self.amounts(),
                        ..TenantConfig::default()
                    }),
                },
            },
            36 => self.group_event(node),
            37..=38 => Event::Message {
                from: node,
                message: self.message(task, attempt).into(),
            },
            _ => Event::Tick,
        }
    }

    fn group_event(&mut self, owner: NodeId) -> Event {
        let group = GroupId::from_bytes([self.bytes.below(2); 16]);
        let takeovers = self.bytes.below(4).into();
        let kind = self.bytes.below(6);
        match kind {
            0 => {
                return Event::GroupRecorded {
                    group,
                    owner,
                    takeovers,
                };
            }
            1 => return Event::GroupUnrecorded { group, owner },
            _ => {}
        }
        let bundles = (0..1 + self.bytes.below(3)).map(|_| self.amounts());
        let bundles = bundles.map(|bundle| Request::new(bundle).expect("whole units"));
        let bundles = bundles.collect();
        let tenant = self.bytes.pick(&["a", "b"]).parse().expect("a name");
        match GroupSpec::new(self.bytes.pick(&GroupKind::ALL), bundles) {
            Ok(spec) if kind == 2 => Event::TakeOverGroup {
                group,
                spec,
                tenant,
                takeovers,
            },
            Ok(spec) => Event::CreateGroup {
                group,
                spec,
                tenant,
            },
            Err(_) => Event::RemoveGroup(group),
        }
    }

    /// What is said of a claim to a group.
    fn group_message(&mut self) -> GroupMessage {
        let group = GroupId::from_bytes([self.bytes.below(2); 16]);
        let from = Round::of_takeover(self.bytes.below(4).into());
        match self.bytes.below(2) {
            0 => GroupRequest::Claim { group, from }.into(),
            _ => GroupAnswer::Holds {
                group,
                from,
                bundles: vec![(self.bytes.below(4).into(), Round(1))],
            }
            .into(),
        }
    }

    /// What happens to a node: by 24 to 32.
    fn node_event(&mut self, kind: u8, node: NodeId) -> Event {
        match kind {
            24..=25 => Event::OwnNode {
                node: self.node(node),
                resources: self.resources().into(),
            },
            26..=27 => Event::PeerView {
                node: self.node(node),
                view: Box::new(PeerView {
                    version: self.bytes.below(4).into(),
                    resources: self.resources().report(),
                    queue: QueueReport::default(),
                    usage: BTreeMap::from([("a".parse().expect("a name"), self.amounts())]),
                }),
            },
            28 => {
                let incarnation = Incarnation(self.bytes.below(3).into());
                match self.bytes.below(4) {
                    0 => Event::NodeExpected(NodeInfo {
                        incarnation,
                        ..self.node(node)
                    }),
                    1 => Event::NodeUnseen { node, incarnation },
                    _ => Event::NodeLost { node, incarnation },
                }
            }
            29 => Event::SetCapacity {
                node,
                name: self.name(),
                capacity: Amount::units(self.bytes.below(6).into()),
            },
            30 => Event::DeleteResource {
                node,
                name: self.name(),
            },
            31 => Event::SetLabels {
                node,
                labels: self.node(node).labels,
            },
            _ => match self.bytes.below(4) {
                at @ 0..=1 => Event::SetDraining {
                    node,
                    is_draining: at == 0,
                },
                at => Event::SetReachable {
                    node,
                    is_reachable: at == 2,
                },
            },
        }
    }

    fn message(&mut self, task: TaskId, attempt: Attempt) -> Message {
        match self.bytes.below(6) {
            0 | 1 => Message::Place {
                spec: self.spec(task),
                attempt,
                hops: self.bytes.below(6),
            },
            2 => Message::Placed { task, attempt },
            3 => Message::Settled {
                task,
                attempt,
                outcome: self.bytes.pick(&[
                    Outcome::Finished,
                    Outcome::Failed(FailureKind::Retryable),
                    Outcome::Cancelled,
                    Outcome::HandedBack,
                ]),
            },
            4 => Message::Group(self.group_message()),
            _ => Message::Withdraw { task, attempt },
        }
    }

    fn task(&mut self) -> TaskId {
        TaskId::from_bytes([self.bytes.below(24); 16])
    }

    fn object(&mut self) -> ObjectId {
        ObjectId::from_bytes([self.bytes.below(4); 20])
    }

    fn name(&mut self) -> ResourceName {
        self.bytes
            .pick(&[ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY])
    }

    fn amounts(&mut self) -> ResourceSet {
        let share = self.bytes.pick(&["0", "0.3", "0.5", "1", "2"]);
        ResourceSet::new()
            .with(ResourceName::CPU, Amount::units(self.bytes.below(4).into()))
            .with(ResourceName::GPU, share.parse().expect("an amount"))
            .with(
                ResourceName::MEMORY,
                Amount::units(self.bytes.below(8).into()),
            )
    }

    fn resources(&mut self) -> NodeResources {
        let mut resources = NodeResources::new();
        for name in [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY] {
            let capacity = Amount::units(self.bytes.below(6).into());
            resources
                .set_capacity(&name, capacity)
                .expect("a small capacity");
        }
        resources
    }

    fn node(&mut self, id: NodeId) -> NodeInfo {
        NodeInfo {
            id,
            incarnation: Incarnation(self.bytes.below(3).into()),
            name: format!("n{}", id.as_bytes()[0]).parse().expect("a name"),
            labels: self
                .bytes
                .pick(&["", "zone=a", "zone=b"])
                .parse()
                .expect("labels"),
        }
    }

    fn spec(&mut self, id: TaskId) -> TaskSpec {
        let mut alternatives = vec![Request::new(self.amounts()).expect("whole units")];
        if self.bytes.below(4) == 0 {
            alternatives.push(Request::new(self.amounts()).expect("whole units"));
        }
        let strategy = match self.bytes.below(10) {
            0 => "random",
            1 => "spread",
            2 => "node:n0",
            3 => "node:n1:soft",
            4 => "group:00000000000000000000000000000000",
            5 => "group:01010101010101010101010101010101:1",
            _ => "default",
        };
        let actor = ActorId::from_bytes([self.bytes.below(2); 16]);
        let rule = Rule {
            alternatives,
            selectors: self
                .bytes
                .pick(&["*", "*", "zone=a", "zone=a;zone=b"])
                .parse()
                .expect("one"),
            strategy: strategy.parse().expect("a strategy"),
            module: None,
        };
        let args = (0..self.bytes.below(3)).map(|at| Argument {
            object: ObjectId::from_bytes([at; 20]),
            bytes: if at == 0 { 1 << 20 } else { 10 },
            holders: vec![node_id(at)],
            is_local: at == 0,
        });
        TaskSpec {
            id,
            args: args.collect(),
            driver: DriverId::from_bytes([id.as_bytes()[0] % 2; 16]),
            job: JobId::from_bytes([id.as_bytes()[0] % 2; 16]),
            terms: Arc::new(Terms {
                tenant: self.bytes.pick(&["a", "b", "c"]).parse().expect("a name"),
                priority: i32::from(self.bytes.below(3)) - 1,
                retries: self.bytes.below(3).into(),
                retry_on_error: false,
                rule: Arc::new(rule),
            }),
            kind: match self.bytes.below(6) {
                0 => TaskKind::Actor(actor),
                1 | 2 => TaskKind::Call {
                    actor,
                    caller: (self.bytes.below(3) == 0).then(|| self.task()),
                },
                _ => TaskKind::Task,
            },
        }
    }
}
