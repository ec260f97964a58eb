//! Where a task belongs: on a node here, on another one, or nowhere yet.
//!
//! Owns the two-level decision and the wait for arguments. Must not: start anything.
//!
//! The levels are those of bottom-up scheduling (Ray, OSDI 2018): a node takes what is submitted to
//! it if it can serve it soon, and looks at the others only if not.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::class::{ClassIx, ClassKey, Wants};
use super::explain::Reason;
use super::group_news::Whereabouts;
use super::record::{Owner, TaskIx};
use super::table::Task;
use super::{Effect, Outcome, Scheduler};
use crate::cluster::{
    Basis, Choice, Demand, Kind, LOCALITY_BYTES_MIN, NodeFit, NodeIx, QueueReport, Strategy,
};
use crate::id::{GroupId, NodeId, ObjectId};
use crate::random::Random;
use crate::resource::Fit;
use crate::task::{Phase, Place, Rule, TaskKind, TaskState};

/// Where the arguments of a task are.
pub(super) struct Holders {
    bytes: u64,
    by_node: SmallVec<[(NodeId, u64); 4]>,
}

impl Holders {
    pub(super) fn of(task: &Task) -> Self {
        let mut by_node: SmallVec<[(NodeId, u64); 4]> = SmallVec::new();
        let mut bytes = 0u64;
        for arg in &task.args {
            bytes = bytes.saturating_add(arg.bytes);
            for holder in &arg.holders {
                match by_node.iter_mut().find(|(node, _)| node == holder) {
                    Some((_, held)) => *held = held.saturating_add(arg.bytes),
                    None => by_node.push((*holder, arg.bytes)),
                }
            }
        }
        Self { bytes, by_node }
    }

    /// What a task asks of the cluster.
    pub(super) fn demand<'a>(&'a self, task: &Task, rule: &'a Rule, basis: Basis) -> Demand<'a> {
        Demand {
            alternatives: &rule.alternatives,
            selectors: rule.selectors.as_slice(),
            strategy: &rule.strategy,
            module: rule.module.as_ref(),
            kind: kind_of(task),
            basis,
            argument_bytes: self.bytes,
            holders: &self.by_node,
        }
    }
}

fn kind_of(task: &Task) -> Kind {
    match task.kind {
        TaskKind::Actor(_) => Kind::Actor,
        TaskKind::Task | TaskKind::Call { .. } => Kind::Task,
    }
}

/// What was decided for a task.
enum Decision {
    /// It waits here, for any of the nodes here. What it counts as is seen when it is here.
    Here,
    /// It waits here for a certain node, and counts there as this one of its alternatives.
    At(NodeIx, usize),
    /// Another node is to run it.
    There(NodeIx),
    /// It has been handed on so often that it stays for a moment, and is then decided on again.
    Rest,
    /// No node can ever serve it, as things are.
    Infeasible(Reason),
    /// It can never run, whatever comes.
    Unschedulable(Reason),
}

impl Scheduler {
    /// Decides where a task belongs that may be placed.
    pub(super) fn place(&mut self, ix: TaskIx) {
        if let TaskKind::Call { actor, .. } = self.tasks[ix].kind {
            return self.place_call(ix, actor);
        }
        match self.decide(ix) {
            Decision::Here => self.arrive(ix, None, self.counts_as(ix)),
            Decision::At(node, alternative) => self.arrive(ix, Some(node), alternative),
            Decision::There(node) => self.hand_over(ix, node),
            Decision::Rest => self.rest(ix),
            Decision::Infeasible(why) => self.infeasible(ix, why),
            Decision::Unschedulable(why) => self.end(ix, Phase::Failed, Some(why)),
        }
    }

    /// Whether there is never more than one own node, to which nothing need be bound.
    pub(super) fn serves_one(&self) -> bool {
        self.config.local.is_some()
    }

    fn decide(&mut self, ix: TaskIx) -> Decision {
        let rule = self.tasks[ix].terms.rule.clone();
        if let Strategy::PlacementGroup { group, bundle } = rule.strategy {
            return self.decide_in_group(ix, group, bundle, &rule);
        }
        if !self.has_peers() {
            return self.decide_here(ix, &rule);
        }
        if let Some(local) = self.local
            && self.takes_own(ix, local, &rule)
        {
            return Decision::Here;
        }
        if let Owner::Peer(_) = self.tasks[ix].owner {
            return self.decide_for_peer(ix);
        }
        match self.choose(ix, &rule, Basis::TrulyFree) {
            Choice::Now { node, alternative } | Choice::Later { node, alternative } => {
                self.here_or_there(ix, node, alternative)
            }
            Choice::Infeasible => self.nowhere(ix),
            Choice::Unschedulable(why) => Decision::Unschedulable(why.into()),
        }
    }

    /// The decision for a task of a group: where a bundle of it is.
    fn decide_in_group(
        &mut self,
        ix: TaskIx,
        group: GroupId,
        bundle: Option<u32>,
        rule: &Rule,
    ) -> Decision {
        let at = (&group, bundle);
        if let Owner::Peer(_) = self.tasks[ix].owner {
            // Whose it is asks the group's owner where else it may be.
            return match self.groups.serves(at, &rule.alternatives) {
                true => Decision::Here,
                false => Decision::Infeasible(Reason::NoGroup(group)),
            };
        }
        let tenant = &self.tasks[ix].terms.tenant;
        match self.groups.whereabouts(at, tenant, &rule.alternatives) {
            Ok(Whereabouts::There(node)) => match self.cluster.by_id(node) {
                Some(_) if self.rests(ix) => Decision::Rest,
                Some(node) => Decision::There(node),
                None => {
                    self.await_news(group);
                    Decision::Here
                }
            },
            Ok(Whereabouts::Here) => {
                self.await_news(group);
                Decision::Here
            }
            Ok(Whereabouts::Unknown) => match self.ask_owner(group) {
                true => Decision::Here,
                // Its owner may join yet, as after this node was cut off.
                false if self.may_have_owner(&group) => {
                    self.await_owner(group);
                    Decision::Infeasible(Reason::NoGroup(group))
                }
                false => Decision::Unschedulable(Reason::NoGroup(group)),
            },
            Err(why @ Reason::GroupImpossible { .. }) => Decision::Infeasible(why),
            Err(why) => Decision::Unschedulable(why),
        }
    }

    /// The decision where all nodes are given out here: a task is bound to one of them when it can
    /// start there, except under `random`, which chooses at once.
    fn decide_here(&mut self, ix: TaskIx, rule: &Rule) -> Decision {
        if rule.strategy == Strategy::Random && !self.serves_one() {
            return match self.choose(ix, rule, Basis::TrulyFree) {
                Choice::Now { node, alternative } | Choice::Later { node, alternative } => {
                    Decision::At(node, alternative)
                }
                Choice::Infeasible => self.nowhere(ix),
                Choice::Unschedulable(why) => Decision::Unschedulable(why.into()),
            };
        }
        let class = self.tasks[ix].class;
        if self.classes[class].feasible_at == self.topology {
            return Decision::Here;
        }
        match self.foresee(ix, rule, Basis::Acquirable) {
            Choice::Now { .. } | Choice::Later { .. } => {
                self.classes[class].feasible_at = self.topology;
                Decision::Here
            }
            Choice::Infeasible => self.nowhere(ix),
            Choice::Unschedulable(why) => Decision::Unschedulable(why.into()),
        }
    }

    /// Whether a node takes a task that was submitted to it without looking elsewhere.
    fn takes_own(&self, ix: TaskIx, local: NodeIx, rule: &Rule) -> bool {
        let task = &self.tasks[ix];
        let is_plain = rule.strategy == Strategy::Default && rule.selectors.is_any();
        let bytes: u64 = task.args.iter().map(|arg| arg.bytes).sum();
        let is_drained = self.cluster[local].is_draining();
        let is_short = self.queued_in(Phase::Ready) < self.config.settings.local_queue as usize;
        let fits = |request| self.cluster[local].fit(request, Basis::TrulyFree) == Fit::Available;
        is_plain
            && !kind_of(task).is_scattered(rule.preferred())
            && !is_drained
            && bytes < LOCALITY_BYTES_MIN
            && is_short
            // Another alternative only where no node has this one free.
            && fits(rule.preferred())
    }

    fn here_or_there(&mut self, ix: TaskIx, node: NodeIx, alternative: usize) -> Decision {
        if self.cluster[node].is_own() {
            return match self.serves_one() {
                true => Decision::Here,
                false => Decision::At(node, alternative),
            };
        }
        // A task that has been handed on often enough stays, if it can.
        let is_tired = self.tasks[ix].hops >= self.config.max_hops;
        if is_tired
            && let Some(local) = self.local
            && self.is_feasible_on(local, ix)
        {
            return Decision::Here;
        }
        if self.rests(ix) {
            return Decision::Rest;
        }
        self.claim(ix, node, alternative);
        Decision::There(node)
    }

    /// The decision for a task that another node handed over: it is taken if it can ever run here,
    /// else handed back. It is never handed on: its owner keeps track of it.
    fn decide_for_peer(&self, ix: TaskIx) -> Decision {
        match self.local {
            Some(local) if self.is_feasible_on(local, ix) => Decision::Here,
            _ => self.nowhere(ix),
        }
    }

    /// Whether a node can ever serve a task, by its total and its labels.
    fn is_feasible_on(&self, node: NodeIx, ix: TaskIx) -> bool {
        matches!(
            self.fit_on(node, ix, Basis::TrulyFree),
            Some(NodeFit::Available | NodeFit::Unavailable(_) | NodeFit::Kept(_))
        )
    }

    fn nowhere(&self, ix: TaskIx) -> Decision {
        Decision::Infeasible(self.why_nowhere(ix))
    }

    /// Chooses a node for a task.
    pub(super) fn choose(&mut self, ix: TaskIx, rule: &Rule, basis: Basis) -> Choice {
        if let Some(local) = self.local.filter(|_| self.has_peers()) {
            // Kept for nobody else: so it is enough that it is right here.
            let queue = self.own_queue();
            self.cluster.set_queue(local, queue, QueueReport::default());
        }
        let task = &self.tasks[ix];
        let holders = Holders::of(task);
        self.cluster
            .choose(&holders.demand(task, rule, basis), &mut self.random)
    }

    /// Whether some node can ever serve a task: what [`Scheduler::choose`] would find, without
    /// drawing a random number.
    fn foresee(&mut self, ix: TaskIx, rule: &Rule, basis: Basis) -> Choice {
        let task = &self.tasks[ix];
        let holders = Holders::of(task);
        let mut demand = holders.demand(task, rule, basis);
        if *demand.strategy == Strategy::Spread {
            // Nor does it take a turn.
            demand.strategy = &Strategy::Default;
        }
        self.cluster.choose(&demand, &mut Random::new(0))
    }

    /// What a node is for a task.
    pub(super) fn fit_on(&self, node: NodeIx, ix: TaskIx, basis: Basis) -> Option<NodeFit> {
        let task = &self.tasks[ix];
        let holders = Holders::of(task);
        self.cluster
            .fit_on(node, &holders.demand(task, &task.terms.rule, basis))
    }

    /// A task is placed here, and counts as one of its alternatives: it waits for its arguments, then for its turn.
    pub(super) fn arrive(&mut self, ix: TaskIx, bound: Option<NodeIx>, alternative: usize) {
        self.bind(ix, bound);
        self.tasks[ix].counts_as = u16::try_from(alternative).expect("few alternatives");
        let task = &self.tasks[ix];
        if task.args.iter().all(|arg| arg.is_local) {
            self.change(ix, TaskState::Ready);
            self.count(ix);
            return self.is_ready(ix);
        }
        let lacking = task.args.iter().filter(|arg| !arg.is_local);
        let lacking: Vec<ObjectId> = lacking.map(|arg| arg.object).collect();
        let missing = u32::try_from(lacking.len()).expect("few arguments");
        let id = task.id;
        self.change(ix, TaskState::Waiting { missing });
        self.count(ix);
        self.call_waits(ix);
        self.effects.push_back(Effect::Fetch {
            task: id,
            objects: lacking,
        });
    }

    /// All arguments of a task are here.
    fn make_ready(&mut self, ix: TaskIx) {
        self.change(ix, TaskState::Ready);
        self.is_ready(ix);
    }

    /// A task is ready, and in no line yet.
    fn is_ready(&mut self, ix: TaskIx) {
        match self.tasks[ix].kind {
            TaskKind::Call { .. } => self.call_waits(ix),
            _ => self.enqueue(ix, self.tasks[ix].class),
        }
    }

    /// An executor has not taken a task, which is ready and counted nowhere yet. It gets in line
    /// again, unless an argument was lost meanwhile or its strategy chooses a node at once.
    pub(super) fn ready_again(&mut self, ix: TaskIx, node: NodeIx) {
        let task = &self.tasks[ix];
        let missing = task.args.iter().filter(|arg| !arg.is_local).count();
        let is_chosen = task.terms.rule.strategy == Strategy::Random && !self.serves_one();
        if matches!(task.kind, TaskKind::Call { .. }) {
            self.bind(ix, (!self.serves_one()).then_some(node));
            self.count(ix);
            if missing > 0 {
                let missing = u32::try_from(missing).expect("few arguments");
                self.change(ix, TaskState::Waiting { missing });
            }
            return self.call_waits(ix);
        }
        self.count(ix);
        if is_chosen || missing > 0 {
            self.unplace(ix);
            return self.place(ix);
        }
        self.enqueue(ix, self.tasks[ix].class);
    }

    /// As which of its alternatives a task counts that waits here: as the first that the node which is served here has
    /// free, else as the first that it can serve. Counted as another it would seem to take nothing there.
    fn counts_as(&self, ix: TaskIx) -> usize {
        let alternatives = &self.tasks[ix].terms.rule.alternatives;
        let (Some(local), true) = (self.local, alternatives.len() > 1) else {
            return 0;
        };
        let node = &self.cluster[local];
        let is_free = |request| node.fit(request, Basis::TrulyFree) == Fit::Available;
        let free = alternatives.iter().position(is_free);
        let served = || alternatives.iter().position(|it| node.is_feasible(it));
        free.or_else(served).unwrap_or_default()
    }

    /// Moves a task to the class of those that can only run on this node.
    fn bind(&mut self, ix: TaskIx, node: Option<NodeIx>) {
        if node.is_some() {
            let rule = self.tasks[ix].terms.rule.clone();
            let class = self.classes.intern(ClassKey {
                rule,
                bound: node,
                wants: Wants::of(self.tasks[ix].kind),
            });
            self.reclassify(ix, class);
        }
    }

    pub(super) fn argument_ready(&mut self, object: ObjectId) {
        let dependents = self.dependents.get(&object).into_iter().flatten();
        for ix in dependents.copied().collect::<Vec<_>>() {
            for arg in &mut self.tasks[ix].args {
                if arg.object == object {
                    arg.is_local = true;
                }
            }
            let task = &self.tasks[ix];
            if task.phase() != Phase::Waiting {
                continue;
            }
            let missing = task.args.iter().filter(|arg| !arg.is_local).count();
            if missing > 0 {
                let missing = u32::try_from(missing).expect("few arguments");
                *self.tasks.state_mut(ix) = TaskState::Waiting { missing };
            } else if !self.hand_back(ix) {
                self.make_ready(ix);
            }
        }
    }

    /// An object will never be: what needs it fails.
    pub(super) fn argument_failed(&mut self, object: ObjectId) {
        let dependents = self.dependents.get(&object).into_iter().flatten();
        for ix in dependents.copied().collect::<Vec<_>>() {
            if self.tasks[ix].phase().holds() {
                // It has started, so it has what it needs.
                continue;
            }
            if let Some(node) = self.tasks[ix].peer() {
                self.withdraw(ix, node);
            }
            self.end(ix, Phase::Failed, Some(Reason::ArgumentFailed(object)));
        }
    }

    pub(super) fn argument_lost(&mut self, object: ObjectId) {
        let dependents = self.dependents.get(&object).into_iter().flatten();
        for ix in dependents.copied().collect::<Vec<_>>() {
            for arg in &mut self.tasks[ix].args {
                if arg.object == object {
                    arg.is_local = false;
                }
            }
            let task = &self.tasks[ix];
            let id = task.id;
            let missing = task.args.iter().filter(|arg| !arg.is_local).count();
            let missing = u32::try_from(missing).expect("few arguments");
            match task.phase() {
                Phase::Waiting => *self.tasks.state_mut(ix) = TaskState::Waiting { missing },
                Phase::Ready => {
                    self.leave_line(ix);
                    self.change(ix, TaskState::Waiting { missing });
                    self.count(ix);
                    self.call_waits(ix);
                }
                // What runs has its arguments.
                _ => continue,
            }
            self.effects.push_back(Effect::Fetch {
                task: id,
                objects: vec![object],
            });
        }
    }

    /// Nobody needs to tell this task about its arguments any more.
    pub(super) fn forget_arguments(&mut self, ix: TaskIx) {
        let args = std::mem::take(&mut self.tasks[ix].args);
        for arg in &args {
            if let Some(tasks) = self.dependents.get_mut(&arg.object) {
                tasks.remove(&ix);
                if tasks.is_empty() {
                    self.dependents.remove(&arg.object);
                }
            }
        }
        self.tasks[ix].args = args;
    }

    /// The node on whose load a task that is placed counts.
    fn counted_on(&self, ix: TaskIx) -> Option<NodeIx> {
        let class = &self.classes[self.tasks[ix].class];
        match class.key.bound {
            Some(node) => Some(node),
            None if class.is_grouped() || !self.counts_local => None,
            None => self.local,
        }
    }

    /// From now on, what is placed here counts in the load of the node that this scheduler serves.
    pub(super) fn start_counting(&mut self) {
        if std::mem::replace(&mut self.counts_local, true) {
            return;
        }
        for phase in [Phase::Waiting, Phase::Ready] {
            let placed: Vec<TaskIx> = self.tasks.in_phase(phase).collect();
            for ix in placed {
                // Those that are bound to a node count already.
                if self.classes[self.tasks[ix].class].key.bound.is_none() {
                    self.count(ix);
                }
            }
        }
    }

    /// Counts a task that is placed in its node's load.
    pub(super) fn count(&mut self, ix: TaskIx) {
        if let Some(node) = self.counted_on(ix) {
            let task = &self.tasks[ix];
            let request = &task.terms.rule.alternatives[usize::from(task.counts_as)];
            self.cluster.claim(node, request);
        }
    }

    /// Stops counting a task that starts or goes.
    pub(super) fn uncount(&mut self, ix: TaskIx) {
        if let Some(node) = self
            .counted_on(ix)
            .filter(|node| self.cluster.get(*node).is_some())
        {
            let task = &self.tasks[ix];
            let request = &task.terms.rule.alternatives[usize::from(task.counts_as)];
            self.cluster.unclaim(node, request);
        }
    }

    fn infeasible(&mut self, ix: TaskIx, why: Reason) {
        let task = &self.tasks[ix];
        if let Owner::Peer(owner) = task.owner {
            let (id, attempt) = (task.id, task.attempt);
            self.remove(ix, Phase::Cancelled);
            self.settle(owner, id, attempt, Outcome::HandedBack);
            return;
        }
        let id = task.id;
        self.change(ix, TaskState::Infeasible);
        let why = Box::new(why);
        self.effects.push_back(Effect::Infeasible { task: id, why });
    }

    /// Places the tasks again that no node could serve: something has changed.
    pub(super) fn retry_infeasible(&mut self) {
        if self.tasks.count(Phase::Infeasible) == 0 {
            return;
        }
        let mut by_class: BTreeMap<ClassIx, Vec<TaskIx>> = BTreeMap::new();
        for ix in self.tasks.in_phase(Phase::Infeasible) {
            by_class.entry(self.tasks[ix].class).or_default().push(ix);
        }
        // Most will be infeasible still: nobody needs to hear of that again.
        let mut tasks: Vec<TaskIx> = Vec::new();
        for members in by_class.into_values() {
            let rule = self.tasks[members[0]].terms.rule.clone();
            let is_hopeless = match rule.strategy {
                Strategy::PlacementGroup { group, .. } => self.is_group_hopeless(&group),
                _ => self.foresee(members[0], &rule, Basis::TrulyFree) == Choice::Infeasible,
            };
            if !is_hopeless {
                tasks.extend(members);
            }
        }
        tasks.sort_by_key(|ix| self.tasks[*ix].sequence);
        for ix in tasks {
            self.change(ix, TaskState::Placeable(Place::Undecided));
            self.place(ix);
        }
    }

    /// A task that is ready here, but cannot be served while another node could: it goes there.
    /// True if it does.
    fn hand_back(&mut self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let rule = task.terms.rule.clone();
        let is_free = rule.strategy == Strategy::Default && task.kind == TaskKind::Task;
        let (true, Some(local)) = (is_free && self.has_peers(), self.local) else {
            return false;
        };
        let can_take = |request| self.can_take(local, request);
        if self.rests(ix) || rule.alternatives.iter().any(can_take) {
            return false;
        }
        let Choice::Now { node, alternative } = self.choose(ix, &rule, Basis::TrulyFree) else {
            return false;
        };
        if node == local {
            return false;
        }
        self.send_away(ix, node, alternative);
        true
    }

    /// Whether a task has been handed on so often that it stays where it is for now. Not for good: the views by which it
    /// was sent to and fro may have been late, and this node may never serve it.
    pub(super) fn rests(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        task.hops >= self.config.max_hops && self.now < task.since + self.config.rest
    }

    /// Hands a task that is placed here to another node, where it counts as this one of its alternatives, or back to its
    /// owner.
    pub(super) fn send_away(&mut self, ix: TaskIx, node: NodeIx, alternative: usize) {
        self.unplace(ix);
        match self.tasks[ix].owner {
            Owner::Here => {
                self.claim(ix, node, alternative);
                self.hand_over(ix, node);
            }
            Owner::Peer(owner) => {
                let task = self.remove(ix, Phase::Cancelled);
                self.settle(owner, task.id, task.attempt, Outcome::HandedBack);
            }
        }
    }
}
