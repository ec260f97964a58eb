//! Placement groups as the scheduler sees them: it owns groups, and takes part in those of others.
//!
//! Owns the two sides of each reservation and the messages between them, those to itself included.
//! Must not: know how a reservation is made; that is [`crate::group`].
//!
//! Groups come before tasks: whenever something was freed, those that wait for a plan are tried
//! first, in the order of their ids. A group that does not fit holds nothing meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::event::Message;
use super::explain::Reason;
use super::group_news::{Known, Telling, WAITING};
use super::group_records::Recorded;
use super::table::TaskIx;
use super::{Effect, Scheduler};
use crate::cluster::{Basis, Demand, Node, NodeIx, Strategy, Supply};
use crate::fairness::TenantName;
use crate::group::{
    Coordinator, CoordinatorEffect, GroupAnswer, GroupMessage, GroupSpec, Impossible, Offer,
    Participant, ParticipantEffect, PlanError,
};
use crate::id::{GroupId, NodeId};
use crate::resource::{
    Allocation, Bundle, Fit, NodeResources, PoolReport, Request, ResourceName, ResourceSet,
};
use crate::task::{Held, Phase, TaskState};
use crate::time::Instant;

/// The groups that are owned here, and the bundles that are reserved here.
#[derive(Debug, Default)]
pub(crate) struct GroupTable {
    pub(super) owned: BTreeMap<GroupId, Owned>,
    /// What is known of those of others.
    pub(super) known: Known,
    /// Which outlive their owners.
    pub(super) recorded: Recorded,
    /// Owned ones with which it may stand otherwise than was told.
    pub(super) touched: BTreeSet<GroupId>,
    /// Why bundles end, if that is because the node that owns them is gone.
    lost: Option<fn(GroupId) -> Reason>,
    /// By own node.
    parts: BTreeMap<NodeIx, Part>,
    /// Messages from one side here to the other: to whom, from whom, what.
    inbox: VecDeque<(NodeId, NodeId, GroupMessage)>,
    /// Whether a plan that failed may succeed now.
    has_changed: bool,
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) coordinator: Coordinator<NodeId>,
    /// Why the last plan failed.
    pub(super) failed: Option<PlanError>,
    /// Whose tasks may run in it.
    pub(super) tenant: TenantName,
    /// How often it was taken over before it was owned here.
    pub(super) takeovers: u32,
    pub(super) telling: Telling,
}

#[derive(Debug)]
struct Part {
    id: NodeId,
    participant: Participant<NodeId>,
}

/// A bundle among those reserved here.
pub(crate) type BundleRef = (GroupId, u32);

impl Offer for Node {
    fn free(&self, name: &ResourceName) -> Option<PoolReport> {
        match self.supply() {
            Supply::Own(own) => own.free(name),
            Supply::Peer(report) => report.free(name),
        }
    }

    fn judge(&self, request: &Request) -> Fit {
        self.fit(request, Basis::TrulyFree)
    }
}

impl GroupTable {
    pub(crate) fn add_own(&mut self, ix: NodeIx, id: NodeId) {
        let participant = Participant::new();
        self.parts.insert(ix, Part { id, participant });
    }

    /// A bundle here, if tasks can run in it.
    pub(crate) fn usable(&self, node: NodeIx, at: BundleRef) -> Option<&Bundle> {
        let part = self.parts.get(&node)?;
        part.participant.usable(at.0, at.1)
    }

    /// Whether a bundle here can serve a request now.
    pub(crate) fn can_acquire(&self, node: NodeIx, at: BundleRef, request: &Request) -> bool {
        let bundle = self.usable(node, at);
        bundle.is_some_and(|bundle| bundle.can_acquire(request))
    }

    /// What a bundle here has in all.
    pub(crate) fn total(&self, node: NodeIx, at: BundleRef) -> ResourceSet {
        self.usable(node, at).map(Bundle::total).unwrap_or_default()
    }

    /// # Panics
    /// If the bundle cannot serve it.
    pub(crate) fn acquire(&mut self, node: NodeIx, at: BundleRef, request: &Request) -> Allocation {
        let got = self.participant(node).acquire(at.0, at.1, request);
        got.expect("what was seen to fit into the bundle")
    }

    /// # Panics
    /// If the bundle cannot serve it.
    pub(crate) fn reacquire_cpu(
        &mut self,
        node: NodeIx,
        at: BundleRef,
        request: &Request,
        allocation: &mut Allocation,
    ) {
        let got = self
            .participant(node)
            .reacquire_cpu(at.0, at.1, request, allocation);
        got.expect("what was seen to fit into the bundle");
    }

    pub(crate) fn release_cpu(
        &mut self,
        resources: &mut NodeResources,
        node: NodeIx,
        at: BundleRef,
        allocation: &mut Allocation,
    ) {
        self.participant(node)
            .release_cpu(resources, at.0, at.1, allocation);
    }

    pub(crate) fn release(
        &mut self,
        resources: &mut NodeResources,
        node: NodeIx,
        at: BundleRef,
        allocation: Allocation,
    ) {
        self.participant(node)
            .release(resources, at.0, at.1, allocation);
    }

    pub(super) fn part_mut(&mut self, node: NodeIx) -> Option<&mut Participant<NodeId>> {
        let part = self.parts.get_mut(&node);
        part.map(|part| &mut part.participant)
    }

    fn participant(&mut self, node: NodeIx) -> &mut Participant<NodeId> {
        let part = self.parts.get_mut(&node).expect("an own node");
        &mut part.participant
    }

    /// What is reserved on an own node: by group and number, each bundle.
    pub(crate) fn bundles(&self, node: NodeIx) -> impl Iterator<Item = (BundleRef, &Bundle)> {
        let part = self.parts.get(&node).into_iter();
        part.flat_map(|part| part.participant.iter())
            .map(|(id, _, bundle)| ((id.group, id.bundle), bundle))
    }

    /// The first bundle here, of a group or the one that is named, that can serve a request now.
    pub(crate) fn spot(
        &self,
        group: &GroupId,
        bundle: Option<u32>,
        request: &Request,
    ) -> Option<(NodeIx, u32)> {
        self.parts.iter().find_map(|(ix, part)| {
            let mut usable = part.participant.usable_bundles(*group);
            let (number, _) = usable.find(|(number, it)| {
                bundle.is_none_or(|bundle| bundle == *number) && it.can_acquire(request)
            })?;
            Some((*ix, number))
        })
    }

    pub(super) fn has_bundle_here(&self, group: &GroupId, bundle: Option<u32>) -> bool {
        let mut usable = self.usable_here(*group);
        usable.any(|(number, _)| bundle.is_none_or(|bundle| bundle == number))
    }

    /// The bundles of a group in which tasks can run here.
    pub(super) fn usable_here(&self, group: GroupId) -> impl Iterator<Item = (u32, &Bundle)> {
        let parts = self.parts.values();
        parts.flat_map(move |part| part.participant.usable_bundles(group))
    }

    /// Whether a node's resources are given out here.
    pub(super) fn is_own(&self, node: NodeId) -> bool {
        self.parts.values().any(|part| part.id == node)
    }

    /// Why a group can never be reserved, as the nodes are.
    pub(crate) fn impossible(&self, group: &GroupId) -> Option<Impossible> {
        match &self.owned.get(group)?.failed {
            Some(PlanError::Infeasible(why)) => Some(why.clone()),
            _ => None,
        }
    }

    /// When something here wants to be woken.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// After anything was done with either side.
    fn note_deadline(&mut self) {
        let owned = self.owned.values();
        let owned = owned.filter_map(|owned| owned.coordinator.poll_timeout());
        let parts = self.parts.values();
        let parts = parts.filter_map(|part| part.participant.poll_timeout());
        self.deadline = owned.chain(parts).min();
    }

    pub(crate) fn set_changed(&mut self) {
        self.has_changed = true;
    }

    /// Whether no group has anything to do with what comes free here.
    pub(crate) fn is_idle(&self) -> bool {
        self.owned.is_empty() && self.deadline.is_none()
    }

    pub(crate) fn has_owned(&self) -> bool {
        !self.owned.is_empty()
    }

    /// A node is gone. If it was an own one, what was reserved there goes with it.
    pub(crate) fn node_lost(&mut self, now: Instant, ix: NodeIx, id: NodeId) {
        if let Some(part) = self.parts.remove(&ix) {
            part.participant.abandon();
        }
        for (group, owned) in &mut self.owned {
            owned.coordinator.node_lost(now, id);
            owned.telling.watchers.remove(&id);
            self.touched.insert(*group);
        }
        self.known.node_lost(id);
        self.inbox.retain(|(to, from, _)| *to != id && *from != id);
        self.has_changed = true;
        self.note_deadline();
    }
}

impl Scheduler {
    /// What owners and nodes of this scheduler call it.
    pub(super) fn own_id(&self) -> NodeId {
        self.config.local.unwrap_or(NodeId::from_bytes([0xff; 16]))
    }

    pub(super) fn create_group(&mut self, group: GroupId, spec: GroupSpec, tenant: TenantName) {
        let is_there = self.groups.owned.contains_key(&group);
        if is_there || self.tenants.intern(&tenant).is_err() {
            self.stale += 1;
            return;
        }
        let coordinator = Coordinator::new(group, spec, self.now);
        let owned = Owned {
            coordinator,
            failed: None,
            tenant,
            takeovers: 0,
            telling: Telling::default(),
        };
        self.groups.owned.insert(group, owned);
        self.groups.touched.insert(group);
        self.groups.has_changed = true;
        self.pump_groups();
    }

    pub(super) fn remove_group(&mut self, group: GroupId) {
        let Some(owned) = self.groups.owned.get_mut(&group) else {
            self.stale += 1;
            return;
        };
        owned.coordinator.remove(self.now);
        self.groups.touched.insert(group);
        self.end_members(group, Reason::GroupRemoved(group));
        self.carry_out_groups();
    }

    pub(super) fn group_message(&mut self, from: NodeId, message: GroupMessage) {
        let to = self.own_id();
        self.groups.inbox.push_back((to, from, message));
        self.carry_out_groups();
    }

    /// The owner of these bundles is gone, or (`is_over: false`) was not seen for a while: they are given back. Where
    /// another takes the group over they wait for that, unless it was this node that was cut off: then others count
    /// them as lost.
    pub(super) fn group_owner_lost(&mut self, owner: NodeId, is_over: bool) {
        let now = self.now;
        for ix in self.own.clone() {
            if let Some(part) = self.groups.parts.get_mut(&ix) {
                let recorded = &self.groups.recorded;
                let outlives = |group| is_over && recorded.contains(&group);
                part.participant
                    .owner_lost(now, self.cluster.own_mut(ix), owner, outlives);
            }
        }
        self.carry_out_lost(match is_over {
            true => Reason::GroupLost,
            false => Reason::BundleLost,
        });
    }

    /// Carries out what is due for groups. Bundles that end now do so because of this.
    pub(super) fn carry_out_lost(&mut self, why: fn(GroupId) -> Reason) {
        self.groups.lost = Some(why);
        self.carry_out_groups();
        self.groups.lost = None;
    }

    pub(super) fn time_groups(&mut self) {
        let now = self.now;
        if self.groups.deadline().is_none_or(|at| at > now) {
            return;
        }
        for owned in self.groups.owned.values_mut() {
            owned.coordinator.handle_timeout(now);
        }
        for ix in self.own.clone() {
            if let Some(part) = self.groups.parts.get_mut(&ix)
                && part.participant.poll_timeout().is_some_and(|at| at <= now)
            {
                part.participant
                    .handle_timeout(now, self.cluster.own_mut(ix));
                self.wake(ix);
            }
        }
        self.groups.has_changed = true;
        // What ends by itself is what nobody has taken over.
        self.carry_out_lost(Reason::GroupLost);
    }

    /// Plans the groups that wait for that.
    pub(super) fn pump_groups(&mut self) {
        if !std::mem::take(&mut self.groups.has_changed) || self.groups.owned.is_empty() {
            return;
        }
        let wanting = self.groups.owned.iter();
        let wanting = wanting.filter(|(_, owned)| owned.coordinator.wants_plan());
        let wanting: Vec<GroupId> = wanting.map(|(group, _)| *group).collect();
        for group in wanting {
            self.plan_group(group);
        }
        self.tell_of_groups();
    }

    fn plan_group(&mut self, group: GroupId) {
        let owned = self
            .groups
            .owned
            .get_mut(&group)
            .expect("a group that wants a plan");
        // Cheap to see, and most often what is wrong: a bundle that fits nowhere now.
        let bundles = owned.coordinator.spec().bundles();
        let was_unavailable = matches!(owned.failed, Some(PlanError::Unavailable(_)));
        let fits = |bundle: &Request| {
            let demand = Demand::of(std::slice::from_ref(bundle), Basis::TrulyFree);
            self.cluster.is_available_somewhere(&demand)
        };
        if was_unavailable && !bundles.iter().all(fits) {
            return;
        }
        let nodes = self.cluster.iter().filter(|(_, node)| !node.is_draining());
        let nodes = nodes.map(|(_, node)| (node.id(), node));
        owned.failed = owned.coordinator.plan(self.now, nodes).err();
        self.groups.touched.insert(group);
        if owned.failed.is_none() {
            self.carry_out_groups();
        }
    }

    /// Does what both sides of reservations want, until nothing is left to do here.
    pub(super) fn carry_out_groups(&mut self) {
        loop {
            let mut is_quiet = true;
            let owned = self.groups.owned.keys().copied().collect::<Vec<_>>();
            for group in owned {
                is_quiet &= self.carry_out_owned(group);
            }
            for ix in self.own.clone() {
                is_quiet &= self.carry_out_part(ix);
            }
            while let Some((to, from, message)) = self.groups.inbox.pop_front() {
                is_quiet = false;
                self.deliver(to, from, message);
            }
            if is_quiet {
                self.groups.note_deadline();
                return self.tell_of_groups();
            }
        }
    }

    /// The owner's side of a group. True if there was nothing to do.
    fn carry_out_owned(&mut self, group: GroupId) -> bool {
        let mut is_quiet = true;
        loop {
            let owned = self.groups.owned.get_mut(&group);
            let Some(effect) = owned.and_then(|owned| owned.coordinator.poll_effect()) else {
                return is_quiet;
            };
            is_quiet = false;
            self.groups.touched.insert(group);
            match effect {
                CoordinatorEffect::Send { to, request } => self.post(to, request.into()),
                CoordinatorEffect::Ready => self.place_members(group),
                CoordinatorEffect::Found => {
                    self.groups.has_changed = true;
                    self.place_members(group);
                }
                // Its tasks are lost with their node; what waits for it waits on.
                CoordinatorEffect::Lost { .. } => self.groups.has_changed = true,
                CoordinatorEffect::Removed => {
                    let gone = self.groups.owned.remove(&group);
                    // Some may not have heard that it was being removed.
                    for to in gone.into_iter().flat_map(|it| it.telling.watchers) {
                        let face = None;
                        self.send(to, Message::GroupStands { group, face });
                    }
                }
            }
        }
    }

    /// A node's side. True if there was nothing to do.
    fn carry_out_part(&mut self, ix: NodeIx) -> bool {
        let mut is_quiet = true;
        loop {
            let part = self.groups.parts.get_mut(&ix);
            let Some(effect) = part.and_then(|part| part.participant.poll_effect()) else {
                return is_quiet;
            };
            is_quiet = false;
            match effect {
                ParticipantEffect::Answer { to, answer } => {
                    let from = self.groups.parts[&ix].id;
                    if to == self.own_id() {
                        self.groups.inbox.push_back((to, from, answer.into()));
                    } else {
                        let message = Box::new(Message::Group(answer.into()));
                        self.effects.push_back(Effect::Send { to, message });
                    }
                }
                ParticipantEffect::Usable { group, .. } => self.open_group(group),
                ParticipantEffect::Ended { group, bundle } => {
                    self.end_bundle(ix, group, bundle);
                }
            }
        }
    }

    /// Sends a request of an owner here to a node, which may be here too.
    fn post(&mut self, to: NodeId, message: GroupMessage) {
        let is_own = self
            .cluster
            .by_id(to)
            .is_some_and(|ix| self.cluster[ix].is_own());
        if is_own {
            let from = self.own_id();
            self.groups.inbox.push_back((to, from, message));
        } else {
            let message = Box::new(Message::Group(message));
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    fn deliver(&mut self, to: NodeId, from: NodeId, message: GroupMessage) {
        match message {
            GroupMessage::Answer(answer) => self.deliver_answer(from, answer),
            GroupMessage::Request(request) => {
                let Some(ix) = self.cluster.by_id(to) else {
                    return;
                };
                if let Some(part) = self.groups.parts.get_mut(&ix) {
                    let resources = self.cluster.own_mut(ix);
                    part.participant.handle(self.now, resources, from, request);
                    self.wake(ix);
                }
            }
        }
    }

    fn deliver_answer(&mut self, from: NodeId, answer: GroupAnswer) {
        let group = answer.group();
        match self.groups.owned.get_mut(&group) {
            Some(owned) => {
                self.groups.touched.insert(group);
                owned.coordinator.answer(self.now, from, answer);
            }
            // Whoever owns it now asks for it.
            None if self.groups.recorded.contains(&group) => {}
            None => {
                if let Some(reply) = answer.reply_to_stray() {
                    self.post(from, reply.into());
                }
            }
        }
    }

    /// There is news of where bundles are: the tasks that wait for that go where theirs are.
    pub(super) fn place_members(&mut self, group: GroupId) {
        for phase in WAITING {
            for ix in self.members(group, phase) {
                let rule = self.tasks[ix].terms.rule.clone();
                let Strategy::PlacementGroup { bundle, .. } = rule.strategy else {
                    continue;
                };
                let is_placed = phase != Phase::Infeasible
                    && self.groups.serves((&group, bundle), &rule.alternatives);
                if !is_placed {
                    self.unplace(ix);
                    self.place(ix);
                }
            }
        }
        self.open_group(group);
    }

    /// Looks again at the classes whose tasks run in a group.
    fn open_group(&mut self, group: GroupId) {
        let of_group = self.classes.iter();
        let of_group = of_group.filter(|(_, class)| class.group() == Some(group));
        let of_group: Vec<_> = of_group.map(|(ix, _)| ix).collect();
        of_group.into_iter().for_each(|class| self.open(class));
    }

    /// A bundle is taken away: what runs in it is killed, what waits for it belongs elsewhere.
    fn end_bundle(&mut self, node: NodeIx, group: GroupId, bundle: u32) {
        let why = self.groups.lost.unwrap_or(Reason::GroupRemoved)(group);
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            for ix in self.members(group, phase) {
                let held = self.tasks[ix].state().held();
                let is_in_it =
                    |held: &Held| held.node == node && held.bundle == Some((group, bundle));
                if held.is_some_and(is_in_it) {
                    self.doom(ix, Phase::Failed, Some(why.clone()));
                }
            }
        }
        self.place_members(group);
    }

    /// The node that a task is with, if it is another.
    pub(super) fn peer_of(&self, ix: TaskIx) -> Option<NodeId> {
        match self.tasks[ix].state() {
            TaskState::Placeable(crate::task::Place::Peer { node, .. }) => Some(*node),
            _ => None,
        }
    }
}
