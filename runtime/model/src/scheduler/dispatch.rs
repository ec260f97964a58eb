//! The loop that starts tasks: whose turn it is, and on which node.
//!
//! Owns the gates of classes and the start of tasks. Must not: decide where a task belongs that is
//! not ready (`place.rs`), or what follows from its end (`running.rs`).

use super::class::{ClassIx, Gate, Wants, Watch};
use super::lane::Turn;
use super::place::Holders;
use super::record::TaskIx;
use super::{Effect, Scheduler};
use crate::cluster::{Basis, Choice, NodeIx, Strategy};
use crate::fairness::{Ask, TenantIx};
use crate::id::GroupId;
use crate::resource::{Amount, NodeResources, Request, ResourceName};
use crate::task::{Assignment, Phase, TaskKind, TaskState};

/// Where a task would start.
#[derive(Debug, Clone, Copy)]
struct Spot {
    node: NodeIx,
    bundle: Option<(GroupId, u32)>,
    alternative: usize,
}

/// Whether a task can start now.
#[derive(Debug, Clone, Copy)]
enum Fits {
    Nowhere,
    /// Here.
    At(Spot),
    /// On some node that is to be chosen.
    Somewhere,
}

impl Scheduler {
    /// Starts whatever can start.
    pub(super) fn pump(&mut self) {
        self.tell_of_groups();
        let mut waiting = self.waiting_groups();
        self.succeed();
        self.tell_leavers();
        self.end_round();
        loop {
            let next = self.pick();
            if !waiting.is_empty() {
                let task = next.and_then(|(class, lane, _)| self.classes[class].head(lane));
                if self.try_group_before(task.map(|(_, task)| task), &mut waiting) {
                    continue;
                }
            }
            let Some((class, lane, spot)) = next else {
                break;
            };
            self.start(class, lane, spot);
        }
        self.preempt();
        self.tell_of_groups();
    }

    /// The next task that can start: of the tenant whose turn it is, the first that fits.
    ///
    /// Looks at the open classes, and at the parked ones that may fit by what they watch. Those that
    /// come after the best so far are not even judged.
    fn pick(&mut self) -> Option<(ClassIx, TenantIx, Spot)> {
        let is_full = self.with_executors >= self.config.max_running;
        let mut found = std::mem::take(&mut self.found);
        found.extend_from_slice(&self.open);
        if let Some(node) = self.hot {
            let pools = self.own_resources(node).pools();
            self.watches.find(node, pools, &mut found);
        }
        let mut best: Option<(ClassIx, TenantIx, Turn, Fits)> = None;
        let mut keeps_other = false;
        for ix in found.drain(..) {
            if is_full && self.classes[ix].key.wants == Wants::Start {
                continue;
            }
            let Some(tenant) = self.turn_to_start_in(ix) else {
                keeps_other |= self.hold(ix);
                continue;
            };
            let head = self.classes[ix].head(tenant);
            let (turn, task) = head.expect("somebody in line");
            if let Some((_, first, best, _)) = &best {
                let is_before = match tenant == *first {
                    true => turn < *best,
                    false => self.tenants.is_before(tenant, *first),
                };
                if !is_before {
                    continue;
                }
            }
            match self.fits(ix, task) {
                Fits::Nowhere => {
                    self.park(ix);
                    self.note_held(ix, tenant, task);
                    keeps_other |= self.keep_for_resume(ix);
                }
                fits => best = Some((ix, tenant, turn, fits)),
            }
        }
        self.found = found;
        if keeps_other {
            // Who was seen to fit may not fit beside that, and who did not may.
            return self.pick();
        }
        let Some((class, tenant, _, fits)) = best else {
            self.hot = None;
            return None;
        };
        let spot = match fits {
            Fits::At(spot) => spot,
            Fits::Somewhere | Fits::Nowhere => self.choose_spot(class, tenant),
        };
        Some((class, tenant, spot))
    }

    /// Whether the first task of a class can start now.
    fn fits(&mut self, class: ClassIx, task: TaskIx) -> Fits {
        let key = &self.classes[class].key;
        let at = |spot: Option<Spot>| spot.map_or(Fits::Nowhere, Fits::At);
        if key.wants.is_to_go_on() {
            return at(self.resuming_spot(task));
        }
        let rule = &key.rule;
        if let Strategy::PlacementGroup { group, bundle } = rule.strategy {
            return at(self.bundle_spot(group, bundle, &rule.alternatives));
        }
        let only = match self.own[..] {
            [only] => Some(only),
            _ => key.bound,
        };
        if let Some(node) = only {
            if self.cluster[node].is_draining() && self.tasks[task].kind == TaskKind::Task {
                return Fits::Nowhere;
            }
            // That its labels and total can serve the class was seen when the task came here.
            let mut requests = rule.alternatives.iter();
            let (tenant, wants) = (self.tasks[task].tenant, key.wants);
            let fits = |request: &Request| {
                self.can_take(node, request)
                    && self.at_quota(tenant, rule, wants, request).is_none()
            };
            return at(requests.position(fits).map(|alternative| Spot {
                node,
                bundle: None,
                alternative,
            }));
        }
        let all = rule.clone();
        let within = self.rule_within_quota(task, &all);
        let rule = within.as_ref().map_or(&*all, |(rule, _)| rule);
        let task = &self.tasks[task];
        let holders = Holders::of(task);
        let demand = holders.demand(task, rule, Basis::Acquirable);
        match self.cluster.is_available_somewhere(&demand) {
            true => Fits::Somewhere,
            false => Fits::Nowhere,
        }
    }

    /// The node for the first task of a lane, of which some fit.
    fn choose_spot(&mut self, class: ClassIx, lane: TenantIx) -> Spot {
        let (_, task) = self.classes[class].head(lane).expect("somebody in line");
        let all = self.classes[class].key.rule.clone();
        let within = self.rule_within_quota(task, &all);
        let rule = within.as_ref().map_or(&*all, |(rule, _)| rule);
        match self.choose(task, rule, Basis::Acquirable) {
            Choice::Now { node, alternative } => Spot {
                node,
                bundle: None,
                alternative: within.map_or(alternative, |(_, places)| places[alternative]),
            },
            other => panic!("a node was available, and now: {other:?}"),
        }
    }

    /// Where a blocked task gets its CPU back: where the rest of what it holds is.
    fn resuming_spot(&self, task: TaskIx) -> Option<Spot> {
        let assignment = self.tasks[task]
            .state()
            .assignment()
            .expect("a blocked task holds");
        let cpu = self.request_of(task, assignment).cpu_part();
        let fits = match assignment.bundle {
            Some(at) => self.groups.can_acquire(assignment.node, at, &cpu),
            // Whatever is kept there: who waits for more may wait for what this task holds.
            None => self.own_resources(assignment.node).can_acquire(&cpu),
        };
        // Who has its turn beyond a quota goes on without.
        let fits =
            fits || !self.may_get(assignment, &cpu) || self.lacks_quota(task, assignment, &cpu);
        fits.then_some(Spot {
            node: assignment.node,
            bundle: assignment.bundle,
            alternative: assignment.alternative.into(),
        })
    }

    /// Whether a blocked task has no room for its CPU under a quota.
    pub(super) fn lacks_quota(&self, task: TaskIx, assignment: &Assignment, cpu: &Request) -> bool {
        let ask = Ask {
            amounts: Some(cpu.amounts()),
            needs_sandbox: false,
        };
        let is_bounded = assignment.bundle.is_none() && self.tenants.has_quotas();
        is_bounded
            && self
                .tenants
                .at_quota(self.tasks[task].tenant, ask)
                .is_some()
    }

    /// Whether the CPU that a blocked task gave back may come free again while it waits: not where
    /// actors have it for as long as they live, which may be until this very task ends, or where the
    /// node has less than it had. A CPU is a share of time: to go on without one takes it from nobody.
    pub(super) fn may_get(&self, assignment: &Assignment, cpu: &Request) -> bool {
        let total = match assignment.bundle {
            Some(at) => self.groups.total(assignment.node, at),
            None => self.own_resources(assignment.node).total(),
        };
        let (total, wanted) = (
            total.get(&ResourceName::CPU).steps(),
            cpu.amounts().get(&ResourceName::CPU).steps(),
        );
        let of_actors = self.cpu_of_actors(assignment).steps();
        wanted <= total.saturating_sub(of_actors)
    }

    /// A bundle of a group on an own node in which one of the variants fits.
    fn bundle_spot(
        &self,
        group: GroupId,
        bundle: Option<u32>,
        alternatives: &[Request],
    ) -> Option<Spot> {
        let mut alternatives = alternatives.iter().enumerate();
        alternatives.find_map(|(alternative, request)| {
            let (node, bundle) = self.groups.spot(&group, bundle, request)?;
            Some(Spot {
                node,
                bundle: Some((group, bundle)),
                alternative,
            })
        })
    }

    /// What a task that holds something asked for.
    pub(super) fn request_of(&self, task: TaskIx, assignment: &Assignment) -> &Request {
        &self.tasks[task].terms.rule.alternatives[usize::from(assignment.alternative)]
    }

    /// Starts the first task of a lane.
    fn start(&mut self, class: ClassIx, lane: TenantIx, spot: Spot) {
        self.note_passed_over(class, lane);
        let task = self.classes[class].pop(&mut self.tasks, &self.tenants, lane);
        let task = task.expect("somebody in line");
        self.close_if_empty(class);
        self.stop_keeping_for(class);
        if self.classes[class].key.wants.is_to_go_on() {
            return self.resume(task);
        }
        let wants = self.classes[class].key.wants;
        self.uncount(task);
        let terms = self.tasks[task].terms.clone();
        let request = &terms.rule.alternatives[spot.alternative];
        let allocation = match spot.bundle {
            Some(at) => self.groups.acquire(spot.node, at, request),
            None => {
                let got = self.cluster.own_mut(spot.node).acquire(request);
                got.expect("what was seen to fit")
            }
        };
        if self.classes[class].key.bound.is_some() {
            let home = self.classes.of_rule(&terms.rule, self.tasks[task].kind);
            self.reclassify(task, home);
        }
        let assignment = Box::new(Assignment {
            node: spot.node,
            bundle: spot.bundle,
            alternative: u16::try_from(spot.alternative).expect("few alternatives"),
            allocation,
            lacks_cpu: false,
        });
        let tenant = self.tasks[task].tenant;
        if spot.bundle.is_none() {
            self.tenants.charge(tenant, request.amounts());
        }
        self.keys.note(tenant);
        if wants == Wants::Start {
            self.with_executors += 1;
            self.tenants.note_sandbox(tenant, true);
        }
        if let Some(module) = &terms.rule.module {
            self.cluster.module_started(spot.node, *module);
        }
        self.begin(task, assignment);
    }

    /// A task has all that it asked for: its executor gets it.
    pub(super) fn begin(&mut self, ix: TaskIx, assignment: Box<Assignment>) {
        let node = assignment.node;
        self.tasks[ix].began = self.now;
        self.change(
            ix,
            match self.config.accepts_all {
                true => TaskState::Running(assignment),
                false => TaskState::Dispatching(assignment),
            },
        );
        self.tasks.expect(ix);
        let task = &self.tasks[ix];
        let (id, attempt, mark) = (task.id, task.attempt, task.mark);
        self.tenants.note_started(task.tenant);
        if let TaskKind::Actor(actor) = task.kind
            && self.actors.is_alive(&actor)
        {
            // It begins anew before its end was heard of, and is counted among those that live.
            self.open_resumes();
        }
        self.effects.push_back(Effect::Dispatch {
            task: id,
            attempt,
            node,
            mark,
        });
    }

    /// Starts a task, or lets it go on, out of turn, if it is the first of its lane and fits.
    pub(super) fn start_first(&mut self, class: ClassIx, task: TaskIx) {
        let (Some(it), Some(_)) = (self.classes.get(class), self.tasks.get(task)) else {
            return;
        };
        let lane = self.lane_of(task);
        let is_full = self.with_executors >= self.config.max_running;
        let may_start = it.key.wants.is_to_go_on() || !is_full;
        if !may_start || it.head(lane).is_none_or(|(_, first)| first != task) {
            return;
        }
        // Others of its tenant may have come to be at the quota meanwhile.
        if self.tenants.has_quotas() && !self.lane_has_room(it, lane) {
            return;
        }
        let spot = match self.fits(class, task) {
            Fits::At(spot) => spot,
            Fits::Somewhere => self.choose_spot(class, lane),
            Fits::Nowhere => return,
        };
        self.start(class, lane, spot);
    }

    /// Gives a blocked task its CPU back.
    fn resume(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let (id, attempt, tenant, terms) = (task.id, task.attempt, task.tenant, task.terms.clone());
        let assignment = task.state().assignment().expect("it is blocked");
        let request = &terms.rule.alternatives[usize::from(assignment.alternative)];
        let cpu = request.cpu_part();
        let lacks_quota = self.lacks_quota(ix, assignment, &cpu);
        let TaskState::Blocked { assignment, .. } = self.tasks.state_mut(ix) else {
            panic!("task {id} resumes, so it was blocked");
        };
        assignment.lacks_cpu = lacks_quota
            || match assignment.bundle {
                Some(at) => !self.groups.can_acquire(assignment.node, at, &cpu),
                None => {
                    let resources = self.cluster.own(assignment.node).expect("an own node");
                    !resources.can_acquire(&cpu)
                }
            };
        match assignment.bundle {
            _ if assignment.lacks_cpu => {}
            Some(at) => {
                let allocation = &mut assignment.allocation;
                self.groups
                    .reacquire_cpu(assignment.node, at, request, allocation);
            }
            None => {
                let resources = self.cluster.own_mut(assignment.node);
                let got = resources.reacquire_cpu(request, &mut assignment.allocation);
                got.expect("what was seen to fit");
            }
        }
        if !assignment.lacks_cpu && assignment.bundle.is_none() {
            self.tenants.charge(tenant, cpu.amounts());
        }
        self.keys.note(tenant);
        self.change_with(ix, |state| match state {
            TaskState::Blocked { assignment, .. } => TaskState::Running(assignment),
            other => other,
        });
        self.note_resumed(ix);
        self.effects.push_back(Effect::Resume { task: id, attempt });
    }

    /// Puts a task, which is ready or wants its CPU back, into the line of a class.
    pub(super) fn enqueue(&mut self, ix: TaskIx, class: ClassIx) {
        let lane = self.lane_of(ix);
        self.classes[class].push(&mut self.tasks, &self.tenants, lane, ix);
        if self.classes[class].gate == Gate::Idle {
            self.classes[class].gate = Gate::Open;
            self.open.push(class);
            self.gated += 1;
        }
        self.line_has_changed(class);
    }

    /// Takes a task out of the line of a class.
    pub(super) fn dequeue(&mut self, ix: TaskIx, class: ClassIx) {
        let lane = self.lane_of(ix);
        self.classes[class].remove(&mut self.tasks, &self.tenants, lane, ix);
        self.close_if_empty(class);
        self.line_has_changed(class);
    }

    /// A class in whose lines nobody is any more is not looked at.
    pub(super) fn close_if_empty(&mut self, ix: ClassIx) {
        if self.classes[ix].in_line > 0 {
            return;
        }
        self.stop_keeping_for(ix);
        let gate = std::mem::take(&mut self.classes[ix].gate);
        self.gated -= usize::from(gate != Gate::Idle);
        if gate == Gate::Open {
            self.open.retain(|open| *open != ix);
        }
        for watch in std::mem::take(&mut self.classes[ix].watches) {
            self.watches.remove(ix, &watch);
        }
        if self.classes[ix].members() == 0 {
            self.classes.retire(ix);
        }
    }

    /// Stops looking at a class until what it lacks may be there.
    pub(super) fn park(&mut self, ix: ClassIx) {
        let key = &self.classes[ix].key;
        // With one node every watch is of that node.
        let scope = key.bound.filter(|_| self.own.len() > 1);
        let any = Watch::Release { node: scope };
        let is_grouped = matches!(key.rule.strategy, Strategy::PlacementGroup { .. });
        let single = match self.own[..] {
            [only] => Some(only),
            _ => scope,
        };
        let mut watches = smallvec::SmallVec::new();
        for request in &key.rule.alternatives {
            let short = match single {
                Some(node) if !is_grouped => self.short_of(node, request),
                None if !is_grouped => self.scarcest(request),
                _ => None,
            };
            watches.push(match short {
                Some((name, amount)) => Watch::Reach {
                    node: scope,
                    name,
                    amount,
                },
                None => any.clone(),
            });
        }
        if self.classes[ix].watches != watches {
            for watch in &watches {
                self.watches.add(ix, watch);
            }
            // Two variants may watch the same; then it is registered once.
            let before = std::mem::replace(&mut self.classes[ix].watches, watches);
            let now = &self.classes[ix].watches;
            for watch in before.iter().filter(|watch| !now.contains(watch)) {
                self.watches.remove(ix, watch);
            }
        }
        if self.classes[ix].gate == Gate::Open {
            self.open.retain(|open| *open != ix);
            self.classes[ix].gate = Gate::Parked;
        }
    }

    /// Whether an own node can start such a request now, beside what is kept there.
    pub(super) fn can_take(&self, node: NodeIx, request: &Request) -> bool {
        self.cluster[node].is_available(request, Basis::Acquirable)
    }

    pub(super) fn own_resources(&self, node: NodeIx) -> &NodeResources {
        self.cluster.own(node).expect("an own node")
    }

    /// What a node cannot serve of a request, whatever is kept there for others.
    fn short_of(&self, node: NodeIx, request: &Request) -> Option<(ResourceName, Amount)> {
        let pools = self.own_resources(node).pools();
        let mut asked = request.amounts().iter();
        let short = asked.find(|(name, amount)| {
            pools
                .report(name)
                .is_none_or(|pool| !pool.is_available(*amount))
        });
        short.map(|(name, amount)| (name.clone(), amount))
    }

    /// What of a request is the largest part of all that there is: likely to be what nodes lack.
    fn scarcest(&self, request: &Request) -> Option<(ResourceName, Amount)> {
        let total = self.cluster.total();
        let part = |name: &ResourceName, amount: Amount| {
            (u128::from(amount.steps()) << 64) / u128::from(total.get(name).steps().max(1))
        };
        let asked = request.amounts().iter();
        let scarcest = asked.max_by_key(|(name, amount)| part(name, *amount));
        scarcest.map(|(name, amount)| (name.clone(), amount))
    }

    /// Something was given back on a node: looks again at the classes that it may help.
    pub(super) fn wake(&mut self, node: NodeIx) {
        if self.groups.has_owned() {
            self.groups.set_changed();
        }
        if self.own.len() == 1 {
            // They are found by what they watch when a task is picked.
            self.hot = Some(node);
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        if let Some(resources) = self.cluster.own(node) {
            self.watches.find(node, resources.pools(), &mut found);
        }
        for class in found.drain(..) {
            self.open(class);
        }
        self.found = found;
    }

    /// Looks at a class again.
    pub(super) fn open(&mut self, ix: ClassIx) {
        if self.classes[ix].gate == Gate::Parked {
            self.classes[ix].gate = Gate::Open;
            self.open.push(ix);
        }
    }

    /// Looks again at those who wait for their CPU.
    pub(super) fn open_resumes(&mut self) {
        if self.tasks.count(Phase::Blocked) == 0 {
            return;
        }
        let resumes = self
            .classes
            .iter()
            .filter(|(_, class)| class.gate == Gate::Parked && class.key.wants.is_to_go_on());
        let resumes: Vec<ClassIx> = resumes.map(|(ix, _)| ix).collect();
        resumes.into_iter().for_each(|class| self.open(class));
    }

    /// Looks at all classes again: a node came, grew, or changed its labels.
    pub(super) fn open_all(&mut self) {
        let parked: Vec<ClassIx> = self
            .classes
            .iter()
            .filter(|(_, class)| class.gate == Gate::Parked)
            .map(|(ix, _)| ix)
            .collect();
        parked.into_iter().for_each(|class| self.open(class));
    }
}
