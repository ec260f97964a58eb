//! Seeded simulation of groups: owners and nodes that talk over a bad network.
//!
//! Owns the network (messages between two nodes are late and in order, as long as both live), the nodes that die and join,
//! and the tasks inside bundles. The oracles: nothing is committed unless all of its round was
//! prepared; no unit is given out twice; a node holds exactly what is reserved on it; a group that
//! says it is ready is; once faults stop, every group becomes ready, each bundle on one node; once groups are removed,
//! every node has everything back; same seed, same trace.
//!
//! Half of the groups have records, and outlive their owners: another node takes them over. What runs in a bundle of
//! such a group is never killed as long as its record is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::id::GroupId;
use crate::random::Random;
use crate::resource::{
    Allocation, Amount, NodeReport, NodeResources, Request, ResourceId, ResourceName, ResourceSet,
};
use crate::time::Instant;

/// The owner that lives for ever, and the one that may die.
const OWNERS: [u32; 2] = [0, 1];
const DEATH_NOTICE: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Task {
    group: GroupId,
    bundle: u32,
    wanted: Request,
    held: Allocation,
    is_blocked: bool,
    is_killed: bool,
}

#[derive(Debug, Default)]
struct Member {
    node: NodeResources,
    participant: Participant<u32>,
    tasks: Vec<Task>,
}

#[derive(Debug, Clone)]
enum Event {
    Deliver {
        from: u32,
        to: u32,
        message: GroupMessage,
    },
    /// Everybody learns that a node is dead.
    Death(u32),
    /// Somebody takes a group over whose owner is dead. It may be the first to know.
    TakeOver(GroupId),
    /// Everybody learns that a group has no record any more.
    Unrecorded(GroupId),
}

/// What is in the control store of a group.
#[derive(Debug, Clone)]
struct Recorded {
    owner: u32,
    spec: GroupSpec,
    takeovers: u32,
}

struct World {
    now: Instant,
    random: Random,
    has_faults: bool,
    members: BTreeMap<u32, Member>,
    /// What is known of nodes: old, as views are. A dead one stays until the notice.
    view: BTreeMap<u32, NodeReport>,
    groups: BTreeMap<GroupId, (u32, Coordinator<u32>)>,
    recorded: BTreeMap<GroupId, Recorded>,
    wire: BTreeMap<(Instant, u64), Event>,
    /// When the last message from one node to another arrives.
    last: BTreeMap<(u32, u32), Instant>,
    events: u64,
    nodes: u32,
    asked: BTreeMap<(GroupId, Round), BTreeSet<(u32, ReservationId)>>,
    prepared: BTreeSet<(u32, ReservationId)>,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            now: Instant::ZERO,
            random: Random::new(seed),
            has_faults: true,
            members: BTreeMap::new(),
            view: BTreeMap::new(),
            groups: BTreeMap::new(),
            recorded: BTreeMap::new(),
            wire: BTreeMap::new(),
            last: BTreeMap::new(),
            events: 0,
            nodes: 0,
            asked: BTreeMap::new(),
            prepared: BTreeSet::new(),
            trace: Vec::new(),
        };
        for _ in 0..6 {
            world.join(4 + world.nodes % 3, world.nodes % 3);
        }
        world
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.trace.push(format!("{} {what}", self.now));
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn join(&mut self, cpus: u32, gpus: u32) {
        let mut node = NodeResources::new();
        for (name, units) in [(ResourceName::CPU, cpus), (ResourceName::GPU, gpus)] {
            node.set_capacity(&name, Amount::units(units)).unwrap();
        }
        let text = format!("node {} with {}", self.nodes, node.total());
        self.note(text);
        self.view.insert(self.nodes, node.report());
        let member = Member {
            node,
            ..Member::default()
        };
        self.members.insert(self.nodes, member);
        for (_, coordinator) in self.groups.values_mut() {
            coordinator.node_joined(self.nodes);
        }
        self.nodes += 1;
    }

    fn kill_node(&mut self, at: u32) {
        let Some(member) = self.members.remove(&at) else {
            return;
        };
        self.note(format_args!("node {at} dies"));
        member
            .tasks
            .into_iter()
            .for_each(|task| task.held.abandon());
        member.participant.abandon();
        self.groups.retain(|_, (owner, _)| *owner != at);
        self.post(DEATH_NOTICE, Event::Death(at));
        let of_it = self.recorded.iter().filter(|(_, it)| it.owner == at);
        let of_it: Vec<GroupId> = of_it.map(|(group, _)| *group).collect();
        for group in of_it {
            let delay_ms = 2_000 + self.random.below(4_000) as u64;
            self.post(Duration::from_millis(delay_ms), Event::TakeOver(group));
        }
    }

    fn take_over(&mut self, group: GroupId) {
        let at = self.random.below(self.members.len());
        let Some(recorded) = self.recorded.get_mut(&group) else {
            return;
        };
        let before = recorded.owner;
        recorded.owner = *self.members.keys().nth(at).unwrap();
        recorded.takeovers += 1;
        let Recorded {
            owner,
            spec,
            takeovers,
        } = recorded.clone();
        let nodes = self.view.keys().copied().filter(|node| *node != before);
        let from = Round::of_takeover(takeovers);
        let coordinator = Coordinator::take_over(group, spec, from, nodes, self.now);
        self.groups.insert(group, (owner, coordinator));
        self.note(format_args!("{owner} takes {group} over"));
    }

    fn post(&mut self, delay: Duration, event: Event) {
        self.events += 1;
        self.wire.insert((self.now + delay, self.events), event);
    }

    fn send(&mut self, from: u32, to: u32, message: GroupMessage) {
        self.note(format_args!("{from} -> {to}: {message:?}"));
        // One in five takes longer than an owner waits.
        let is_slow = self.has_faults && self.chance(20);
        let longest_us = match (self.has_faults, is_slow) {
            (true, true) => 15_000_000,
            (true, false) => 2_000_000,
            (false, _) => 2_000,
        };
        let delay = Duration::from_micros(self.random.below(longest_us) as u64);
        let last = self.last.entry((from, to)).or_default();
        *last = (*last).max(self.now + delay);
        let delay = *last - self.now;
        self.post(delay, Event::Deliver { from, to, message });
    }

    fn add_group(&mut self) {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.random.next().to_be_bytes());
        let group = GroupId::from_bytes(id);
        let kind = GroupKind::ALL[self.random.below(4)];
        let bundles = (0..1 + self.random.below(5)).map(|_| {
            let gpus = [0, 0, 2_500, 5_000, 6_000, 10_000][self.random.below(6)];
            let cpus = 1 + self.random.below(3) as u32;
            let amounts = ResourceSet::new()
                .with(ResourceName::CPU, Amount::units(cpus))
                .with(ResourceName::GPU, Amount::from_steps(gpus));
            Request::new(amounts).unwrap()
        });
        let spec = GroupSpec::new(kind, bundles.collect()).unwrap();
        let owner = OWNERS[self.random.below(2)];
        if self.members.contains_key(&owner) {
            self.note(format_args!("group {group} of {owner}: {spec:?}"));
            if self.chance(50) {
                let recorded = Recorded {
                    owner,
                    spec: spec.clone(),
                    takeovers: 0,
                };
                self.recorded.insert(group, recorded);
            }
            let coordinator = Coordinator::new(group, spec, self.now);
            self.groups.insert(group, (owner, coordinator));
        }
    }

    fn some_group(&mut self) -> Option<GroupId> {
        let at = self.random.next() as usize;
        let at = at.checked_rem(self.groups.len())?;
        self.groups.keys().nth(at).copied()
    }

    fn some_member(&mut self) -> &mut Member {
        let at = self.random.below(self.members.len());
        self.members.values_mut().nth(at).unwrap()
    }

    /// Something that happens outside: groups and nodes come and go, tasks run.
    fn act(&mut self) {
        match self.random.below(20) {
            0 | 1 if self.groups.len() < 6 => self.add_group(),
            2 => {
                if let Some(group) = self.some_group() {
                    self.remove(group);
                }
            }
            3 => {
                let at = 1 + self.random.below(self.nodes as usize - 1) as u32;
                // The mortal owner dies late, so that it has done something before.
                if at != OWNERS[1] || self.now > Instant::ZERO + Duration::from_secs(20) {
                    self.kill_node(at);
                }
            }
            4 if self.members.len() < 7 => {
                let (cpus, gpus) = (self.random.below(8) as u32, self.random.below(3) as u32);
                self.join(cpus, gpus);
            }
            5..8 => {
                self.view = self.reports();
            }
            8..14 => self.start_task(),
            14..17 => self.end_task(),
            _ => self.block_task(),
        }
    }

    fn remove(&mut self, group: GroupId) {
        self.note(format_args!("remove {group}"));
        self.groups.get_mut(&group).unwrap().1.remove(self.now);
        if self.recorded.remove(&group).is_some() {
            let delay_ms = self.random.below(1_000) as u64;
            self.post(Duration::from_millis(delay_ms), Event::Unrecorded(group));
        }
    }

    fn reports(&self) -> BTreeMap<u32, NodeReport> {
        let reports = self.members.iter();
        reports.map(|(at, it)| (*at, it.node.report())).collect()
    }

    fn start_task(&mut self) {
        let Some(group) = self.some_group() else {
            return;
        };
        let steps = [2_500, 5_000, 10_000, 20_000][self.random.below(4)];
        let amounts = ResourceSet::new().with(ResourceName::CPU, Amount::from_steps(steps));
        let wanted = Request::new(amounts).unwrap();
        let member = self.some_member();
        let bundles = member.participant.usable_bundles(group);
        let Some(bundle) = bundles.map(|(bundle, _)| bundle).last() else {
            return;
        };
        if let Ok(held) = member.participant.acquire(group, bundle, &wanted) {
            member.tasks.push(Task {
                group,
                bundle,
                wanted,
                held,
                is_blocked: false,
                is_killed: false,
            });
        }
    }

    fn end_task(&mut self) {
        let at = self.random.next() as usize;
        let Member {
            node,
            participant,
            tasks,
        } = self.some_member();
        if let Some(at) = at.checked_rem(tasks.len()) {
            let task = tasks.swap_remove(at);
            participant.release(node, task.group, task.bundle, task.held);
        }
    }

    fn block_task(&mut self) {
        let at = self.random.next() as usize;
        let Member {
            node,
            participant,
            tasks,
        } = self.some_member();
        let Some(at) = at.checked_rem(tasks.len()) else {
            return;
        };
        let task = &mut tasks[at];
        let (group, bundle, held) = (task.group, task.bundle, &mut task.held);
        if task.is_blocked {
            let done = participant.reacquire_cpu(group, bundle, &task.wanted, held);
            task.is_blocked = done.is_err();
            assert!(done.is_err() || !task.is_killed, "a killed task goes on");
        } else {
            participant.release_cpu(node, group, bundle, held);
            task.is_blocked = true;
        }
    }

    /// Killed tasks are gone a while after they were killed.
    fn bury_tasks(&mut self) {
        for Member {
            node,
            participant,
            tasks,
        } in self.members.values_mut()
        {
            for task in tasks.extract_if(.., |task| task.is_killed) {
                participant.release(node, task.group, task.bundle, task.held);
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            self.pump();
            self.check();
            let owners = self.groups.values().map(|(_, it)| it.poll_timeout());
            let members = self
                .members
                .values()
                .map(|it| it.participant.poll_timeout());
            let wire = self.wire.keys().next().map(|(at, _)| *at);
            let timeouts = owners.chain(members).flatten().chain(wire);
            let Some(next) = timeouts.min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            for (_, coordinator) in self.groups.values_mut() {
                coordinator.handle_timeout(self.now);
            }
            for member in self.members.values_mut() {
                member
                    .participant
                    .handle_timeout(self.now, &mut member.node);
            }
            while let Some(entry) = self.wire.first_entry().filter(|it| it.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
                self.pump();
            }
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Death(lost) => {
                self.view.remove(&lost);
                for (_, coordinator) in self.groups.values_mut() {
                    coordinator.node_lost(now, lost);
                }
                let outlives = |group| self.recorded.contains_key(&group);
                for Member {
                    node, participant, ..
                } in self.members.values_mut()
                {
                    participant.owner_lost(now, node, lost, outlives);
                }
            }
            Event::TakeOver(group) => self.take_over(group),
            Event::Unrecorded(group) => {
                for member in self.members.values_mut() {
                    member.participant.disown(&mut member.node, group, None);
                }
            }
            // Who is known to be dead is not listened to.
            Event::Deliver { from, .. } if !self.view.contains_key(&from) => {}
            Event::Deliver { from, to, message } => match message {
                GroupMessage::Request(request) => {
                    if let Some(member) = self.members.get_mut(&to) {
                        let node = &mut member.node;
                        member.participant.handle(now, node, from, request);
                    }
                }
                GroupMessage::Answer(answer) => match self.groups.get_mut(&answer.group()) {
                    Some((owner, coordinator)) if *owner == to => {
                        coordinator.answer(now, from, answer);
                    }
                    // To one that has owned it before.
                    Some(_) => {}
                    None => {}
                },
            },
        }
    }

    /// Does what owners and nodes want done, and plans.
    fn pump(&mut self) {
        let mut removed = Vec::new();
        let mut sends = Vec::new();
        for (group, (owner, coordinator)) in &mut self.groups {
            if coordinator.wants_plan() {
                // The error is an answer too: nothing has changed.
                let _ = coordinator.plan(self.now, self.view.iter().map(|(at, it)| (*at, it)));
            }
            while let Some(effect) = coordinator.poll_effect() {
                match effect {
                    CoordinatorEffect::Send { to, request } => {
                        match &request {
                            GroupRequest::Prepare { id, .. } => {
                                let round = self.asked.entry((id.group, id.round)).or_default();
                                round.insert((to, *id));
                            }
                            GroupRequest::Commit(id) => {
                                let round = self.asked.entry((id.group, id.round)).or_default();
                                let is_all = round.is_subset(&self.prepared);
                                assert!(is_all, "{id:?} is committed, but not all was prepared");
                            }
                            GroupRequest::Remove(_) | GroupRequest::Claim { .. } => {}
                        }
                        sends.push((*owner, to, request.into()));
                    }
                    CoordinatorEffect::Ready => check_ready(coordinator, &self.members),
                    CoordinatorEffect::Lost { .. } | CoordinatorEffect::Found => {}
                    CoordinatorEffect::Removed => removed.push(*group),
                }
            }
        }
        for group in removed {
            self.groups.remove(&group);
            self.note(format_args!("removed {group}"));
        }
        for (at, member) in &mut self.members {
            while let Some(effect) = member.participant.poll_effect() {
                match effect {
                    ParticipantEffect::Answer { to, answer } => {
                        if let GroupAnswer::Prepared(id) = answer {
                            self.prepared.insert((*at, id));
                        }
                        sends.push((*at, to, answer.into()));
                    }
                    ParticipantEffect::Usable { group, bundle } => {
                        assert!(member.participant.usable(group, bundle).is_some());
                    }
                    ParticipantEffect::Ended { group, bundle } => {
                        let is_recorded = self.recorded.contains_key(&group);
                        assert!(!is_recorded, "bundle {bundle} of {group} ends at {at}");
                        let mut tasks = member.tasks.iter_mut();
                        tasks
                            .by_ref()
                            .filter(|task| (task.group, task.bundle) == (group, bundle))
                            .for_each(|task| task.is_killed = true);
                    }
                }
            }
        }
        for (from, to, message) in sends {
            self.send(from, to, message);
        }
    }

    fn check(&self) {
        for (at, member) in &self.members {
            let mut reserved = ResourceSet::new();
            let mut limits: BTreeMap<(GroupId, u32), ResourceSet> = BTreeMap::new();
            for (id, _, bundle) in member.participant.iter() {
                reserved.add(&bundle.total()).unwrap();
                limits.insert((id.group, id.bundle), bundle.total());
            }
            assert_eq!(reserved, member.node.held(), "node {at}");
            let mut units: BTreeMap<(ResourceName, ResourceId), u64> = BTreeMap::new();
            let mut used: BTreeMap<(GroupId, u32), ResourceSet> = BTreeMap::new();
            for task in &member.tasks {
                let sum = used.entry((task.group, task.bundle)).or_default();
                sum.add(&task.held.amounts()).unwrap();
                for (name, part) in task.held.iter() {
                    for (id, amount) in part.ids() {
                        *units.entry((name.clone(), id)).or_default() += amount.steps();
                    }
                }
            }
            let one = Amount::ONE.steps();
            assert!(units.values().all(|steps| *steps <= one), "{units:?}");
            for (bundle, used) in used {
                let limit = limits.get(&bundle).cloned().unwrap_or_default();
                assert!(used.is_subset(&limit), "{bundle:?}: {used} of {limit}");
            }
        }
    }

    fn heal(&mut self) {
        self.has_faults = false;
        for _ in 0..8 {
            self.join(100, 40);
        }
    }

    /// Every bundle of every group is reserved once.
    fn check_all_there(&self) {
        let mut there: BTreeMap<(GroupId, u32), usize> = BTreeMap::new();
        for member in self.members.values() {
            for (id, owner, _) in member.participant.iter() {
                *there.entry((id.group, id.bundle)).or_default() += 1;
                assert_eq!(owner, self.groups[&id.group].0, "{id:?}");
            }
        }
        for (group, (_, coordinator)) in &self.groups {
            assert_eq!(coordinator.state(), GroupState::Ready, "{coordinator:?}");
            for (bundle, _) in (0..).zip(coordinator.spec().bundles()) {
                let count = there.get(&(*group, bundle));
                assert_eq!(count, Some(&1), "bundle {bundle} of {coordinator:?}");
            }
        }
        for group in self.recorded.keys() {
            assert!(self.groups.contains_key(group), "{group} is nobody's");
        }
    }

    /// Time passes without anything new from outside.
    fn settle(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.view = self.reports();
            self.bury_tasks();
            self.run_until(self.now + Duration::from_millis(500));
        }
    }
}

fn check_ready(coordinator: &Coordinator<u32>, members: &BTreeMap<u32, Member>) {
    assert_eq!(coordinator.state(), GroupState::Ready);
    let bundles = coordinator.spec().bundles().len();
    let mut nodes = BTreeSet::new();
    for (bundle, wanted) in (0..).zip(coordinator.spec().bundles()) {
        let at = coordinator.ready_node(bundle).unwrap();
        nodes.insert(at);
        // It may have died, and nobody knows yet.
        if let Some(member) = members.get(&at) {
            let usable = member.participant.usable(coordinator.group(), bundle);
            assert_eq!(&usable.unwrap().total(), wanted.amounts());
        }
    }
    match coordinator.spec().kind() {
        GroupKind::StrictPack => assert_eq!(nodes.len(), 1),
        GroupKind::StrictSpread => assert_eq!(nodes.len(), bundles),
        GroupKind::Pack | GroupKind::Spread => {}
    }
}

impl Drop for World {
    /// A failure shows its own message, not that of the allocations it leaves.
    fn drop(&mut self) {
        for (_, member) in std::mem::take(&mut self.members) {
            member
                .tasks
                .into_iter()
                .for_each(|task| task.held.abandon());
            member.participant.abandon();
        }
    }
}

/// How far the groups of a run have come, to see that runs are of any use.
#[derive(Default)]
struct Coverage {
    ready: usize,
    refused: usize,
    lost: usize,
    taken_over: usize,
    /// Bundles that were there when a group was taken over.
    found: usize,
}

fn run(seed: u64) -> (Vec<String>, Coverage) {
    let mut world = World::new(seed);
    for _ in 0..300 {
        let time = Duration::from_micros(world.random.below(400_000) as u64);
        world.run_until(world.now + time);
        world.act();
        if world.chance(50) {
            world.bury_tasks();
        }
    }
    world.heal();
    world.settle(Duration::from_secs(90));
    world.check_all_there();
    let mut seen = Coverage {
        ready: world.groups.len(),
        ..Coverage::default()
    };
    let groups: Vec<GroupId> = world.groups.keys().copied().collect();
    for group in groups {
        world.remove(group);
    }
    world.settle(Duration::from_secs(90));
    assert!(world.groups.is_empty(), "{:?}", world.groups.keys());
    for (at, member) in &world.members {
        assert_eq!(member.participant.iter().len(), 0, "node {at}");
        assert_eq!(member.node.available(), member.node.total(), "node {at}");
        // Also a blocked task, which holds nothing, was told to go.
        assert!(member.tasks.is_empty(), "node {at}: {:?}", member.tasks);
    }
    let count = |what: &str| {
        world
            .trace
            .iter()
            .filter(|line| line.contains(what))
            .count()
    };
    seen.refused = count("Refused");
    seen.lost = count("dies");
    seen.taken_over = count("over");
    seen.found = count("bundles: [(");
    (std::mem::take(&mut world.trace), seen)
}

#[test]
fn groups_are_all_or_nothing_and_leak_nothing() {
    let seeds = std::env::var("WASMRUN_SEEDS").map_or(24, |text| text.parse().unwrap());
    let mut total = Coverage::default();
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| run(seed).1);
        let seen = result.unwrap_or_else(|_| panic!("seed {seed} fails; run it alone"));
        total.ready += seen.ready;
        total.refused += seen.refused;
        total.lost += seen.lost;
        total.taken_over += seen.taken_over;
        total.found += seen.found;
    }
    // Else the runs would show nothing.
    assert!(total.ready > 0 && total.refused > 0 && total.lost > 0);
    assert!(total.taken_over > 0 && total.found > 0);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, _) = run(7);
    assert!(first.len() > 100);
    assert_eq!(first, run(7).0);
    assert_ne!(first, run(8).0);
}
