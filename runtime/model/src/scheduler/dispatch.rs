//! The loop that starts tasks: whose turn it is, and on which node.
//!
//! Owns the gates of classes and the start of tasks. Must not: decide where a task belongs that is
//! not ready (`place.rs`), or what follows from its end (`running.rs`).

use super::class::{ClassIx, Gate, Watch};
use super::place::Holders;
use super::table::TaskIx;
use super::{Effect, Scheduler};
use crate::cluster::{Basis, Choice, NodeIx, Strategy};
use crate::fairness::TenantIx;
use crate::id::GroupId;
use crate::resource::{Amount, NodeResources, Request, ResourceName};
use crate::task::{Held, TaskKind, TaskState};

/// Where a task would start.
#[derive(Debug, Clone, Copy)]
struct Spot {
    node: NodeIx,
    bundle: Option<(GroupId, u32)>,
    alternative: usize,
}

impl Scheduler {
    /// Starts whatever can start.
    pub(super) fn pump(&mut self) {
        self.pump_groups();
        while let Some((class, tenant, spot)) = self.pick() {
            self.start(class, tenant, spot);
        }
    }

    /// The next task that can start: of the tenant whose turn it is, the first that fits.
    fn pick(&mut self) -> Option<(ClassIx, TenantIx, Spot)> {
        loop {
            let is_full = self.with_executors >= self.config.max_running;
            let (class, tenant) = self.whose_turn(is_full)?;
            let (_, task) = self.classes[class].head(tenant).expect("somebody in line");
            match self.spot_for(class, task) {
                Some(spot) => return Some((class, tenant, spot)),
                None => self.park(class),
            }
        }
    }

    /// Among the open classes, the tenant whose turn it is, and its first class.
    fn whose_turn(&mut self, is_full: bool) -> Option<(ClassIx, TenantIx)> {
        if let ([only], false) = (&self.open[..], is_full) {
            let tenant = self.classes[*only].first_tenant(&self.tenants, &self.keys)?;
            return Some((*only, tenant));
        }
        let mut first: Option<TenantIx> = None;
        for ix in &self.open {
            let class = &mut self.classes[*ix];
            if is_full && !class.key.is_resuming {
                continue;
            }
            let Some(tenant) = class.first_tenant(&self.tenants, &self.keys) else {
                continue;
            };
            let is_first = first.is_none_or(|best| {
                best != tenant && self.tenants.key(tenant) < self.tenants.key(best)
            });
            if is_first {
                first = Some(tenant);
            }
        }
        let tenant = first?;
        let turns = self.open.iter().filter_map(|ix| {
            let class = &self.classes[*ix];
            let is_meant = !is_full || class.key.is_resuming;
            let (turn, _) = class.head(tenant).filter(|_| is_meant)?;
            Some((turn, *ix))
        });
        turns.min().map(|(_, class)| (class, tenant))
    }

    /// Where the first task of a class can start now.
    fn spot_for(&mut self, class: ClassIx, task: TaskIx) -> Option<Spot> {
        let key = &self.classes[class].key;
        if key.is_resuming {
            return self.resuming_spot(task);
        }
        let rule = &key.rule;
        let on = |node, alternative| Spot {
            node,
            bundle: None,
            alternative,
        };
        if let Strategy::PlacementGroup { group, bundle } = rule.strategy {
            return self.bundle_spot(group, bundle, &rule.alternatives);
        }
        let only = match self.own[..] {
            [only] => Some(only),
            _ => key.bound,
        };
        if let Some(node) = only {
            if self.cluster[node].is_draining() && self.tasks[task].kind == TaskKind::Task {
                return None;
            }
            // That its labels and total can serve the class was seen when the task came here.
            let mut requests = rule.alternatives.iter();
            let fits = |request: &Request| self.can_take(node, request);
            return Some(on(node, requests.position(fits)?));
        }
        let rule = rule.clone();
        let member = &self.tasks[task];
        let holders = Holders::of(member);
        let demand = holders.demand(member, &rule, Basis::Acquirable);
        if !self.cluster.is_available_somewhere(&demand) {
            return None;
        }
        match self.cluster.choose(&demand, &mut self.random) {
            Choice::Now { node, alternative } => Some(on(node, alternative)),
            _ => None,
        }
    }

    /// Where a blocked task gets its CPU back: where the rest of what it holds is.
    fn resuming_spot(&self, task: TaskIx) -> Option<Spot> {
        let held = self.tasks[task]
            .state()
            .held()
            .expect("a blocked task holds");
        let cpu = self.request_of(task, held).cpu_part();
        let fits = match held.bundle {
            Some(at) => self.groups.can_acquire(held.node, at, &cpu),
            // Whatever is kept there: who waits for more may wait for what this task holds.
            None => self.own_resources(held.node).can_acquire(&cpu),
        };
        fits.then_some(Spot {
            node: held.node,
            bundle: held.bundle,
            alternative: held.alternative.into(),
        })
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
    pub(super) fn request_of(&self, task: TaskIx, held: &Held) -> &Request {
        &self.tasks[task].terms.rule.alternatives[usize::from(held.alternative)]
    }

    /// Starts the first task of a lane.
    fn start(&mut self, class: ClassIx, lane: TenantIx, spot: Spot) {
        self.note_passed_over(class, lane);
        let task = self.classes[class].pop(&mut self.tasks, lane);
        let task = task.expect("somebody in line");
        self.close_if_empty(class);
        self.stop_keeping_for(class);
        if self.classes[class].key.is_resuming {
            return self.resume(task);
        }
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
            let home = self.classes.of_rule(&terms.rule);
            self.reclassify(task, home);
        }
        let held = Box::new(Held {
            node: spot.node,
            bundle: spot.bundle,
            alternative: u16::try_from(spot.alternative).expect("few alternatives"),
            allocation,
        });
        self.change(task, TaskState::Dispatching(held));
        let (id, attempt, tenant) = {
            let task = &self.tasks[task];
            (task.id, task.attempt, task.tenant)
        };
        self.tenants.charge(tenant, request.amounts());
        self.tenants.note_started(tenant);
        self.keys.note(tenant);
        self.with_executors += 1;
        if let Some(module) = &terms.rule.module {
            self.cluster.module_started(spot.node, *module);
        }
        self.effects.push_back(Effect::Dispatch {
            task: id,
            attempt,
            node: spot.node,
        });
    }

    /// Gives a blocked task its CPU back.
    fn resume(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let (id, attempt, tenant, terms) = (task.id, task.attempt, task.tenant, task.terms.clone());
        let TaskState::Blocked { held, .. } = self.tasks.state_mut(ix) else {
            panic!("task {id} resumes, so it was blocked");
        };
        let request = &terms.rule.alternatives[usize::from(held.alternative)];
        match held.bundle {
            Some(at) => {
                let allocation = &mut held.allocation;
                self.groups.reacquire_cpu(held.node, at, request, allocation);
            }
            None => {
                let resources = self.cluster.own_mut(held.node);
                let got = resources.reacquire_cpu(request, &mut held.allocation);
                got.expect("what was seen to fit");
            }
        }
        self.tenants.charge(tenant, request.cpu_part().amounts());
        self.keys.note(tenant);
        self.change_with(ix, |state| match state {
            TaskState::Blocked { held, .. } => TaskState::Running(held),
            other => other,
        });
        self.effects.push_back(Effect::Resume { task: id, attempt });
    }

    /// Puts a task, which is ready or wants its CPU back, into the line of a class.
    pub(super) fn enqueue(&mut self, ix: TaskIx, class: ClassIx) {
        let lane = self.lane_of(ix);
        self.classes[class].push(&mut self.tasks, &self.tenants, lane, ix);
        if matches!(self.classes[class].gate, Gate::Idle) {
            self.classes[class].gate = Gate::Open;
            self.open.push(class);
            self.gated += 1;
        }
    }

    /// Takes a task out of the line of a class.
    pub(super) fn dequeue(&mut self, ix: TaskIx, class: ClassIx) {
        let lane = self.lane_of(ix);
        self.classes[class].remove(&mut self.tasks, lane, ix);
        self.close_if_empty(class);
    }

    /// A class in whose lines nobody is any more is not looked at.
    fn close_if_empty(&mut self, ix: ClassIx) {
        if self.classes[ix].in_line > 0 {
            return;
        }
        self.stop_keeping_for(ix);
        let gate = std::mem::take(&mut self.classes[ix].gate);
        self.gated -= usize::from(!matches!(gate, Gate::Idle));
        match gate {
            Gate::Idle => {}
            Gate::Open => self.open.retain(|open| *open != ix),
            Gate::Parked(watches) => {
                for watch in &watches {
                    self.watches.remove(ix, watch);
                }
            }
        }
        if self.classes[ix].members() == 0 {
            self.classes.retire(ix);
        }
    }

    /// Stops looking at a class until what it lacks may be there.
    fn park(&mut self, ix: ClassIx) {
        let key = &self.classes[ix].key;
        let scope = match self.own[..] {
            [only] if key.bound == Some(only) => None,
            _ => key.bound,
        };
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
        for watch in &watches {
            self.watches.add(ix, watch);
        }
        self.open.retain(|open| *open != ix);
        self.classes[ix].gate = Gate::Parked(watches);
    }

    /// Whether an own node can start such a request now, beside what is kept there.
    pub(super) fn can_take(&self, node: NodeIx, request: &Request) -> bool {
        self.cluster[node].is_available(request, Basis::Acquirable)
    }

    fn own_resources(&self, node: NodeIx) -> &NodeResources {
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

    /// Looks again at the classes that something given back on a node may help.
    pub(super) fn wake(&mut self, node: NodeIx) {
        if self.groups.has_owned() {
            self.groups.set_changed();
        }
        let mut woken = std::mem::take(&mut self.woken);
        if let Some(resources) = self.cluster.own(node) {
            self.watches.wake(node, resources.pools(), &mut woken);
        }
        for class in woken.drain(..) {
            self.open(class);
        }
        self.woken = woken;
    }

    /// Looks at a class again.
    pub(super) fn open(&mut self, ix: ClassIx) {
        if let Gate::Parked(watches) = &self.classes[ix].gate {
            for watch in watches {
                self.watches.remove(ix, watch);
            }
            self.classes[ix].gate = Gate::Open;
            self.open.push(ix);
        }
    }

    /// Looks at all classes again: a node came, grew, or changed its labels.
    pub(super) fn open_all(&mut self) {
        let parked: Vec<ClassIx> = self
            .classes
            .iter()
            .filter(|(_, class)| matches!(class.gate, Gate::Parked(_)))
            .map(|(ix, _)| ix)
            .collect();
        parked.into_iter().for_each(|class| self.open(class));
    }
}
