//! Placement groups as the scheduler sees them: it owns groups, and takes part in those of others.
//!
//! Owns the two sides of each reservation and the messages between them, those to itself included.
//! Must not: know how a reservation is made; that is [`crate::group`].
//!
//! Whenever something was freed, those that wait for a plan are tried by the shares of their tenants, each before the
//! tasks of its own tenant and of those who come later. A group that does not fit holds nothing meanwhile. What it has
//! reserved counts as used by its tenant, at its owner; what runs inside does not count once more.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Scheduler;
use super::explain::Reason;
use super::group_news::{Known, Telling};
use super::group_records::Recorded;
use super::record::{Sequence, TaskIx};
use crate::cluster::{Basis, Demand, Node, NodeIx, Selector, Supply};
use crate::fairness::{TenantIx, TenantName, Tenants};
use crate::group::{
    Coordinator, GroupMessage, GroupSpec, Impossible, Offer, Participant, PlanError,
};
use crate::id::{GroupId, NodeId};
use crate::resource::{
    Allocation, Bundle, Fit, NodeResources, PoolReport, Request, ResourceName, ResourceSet,
};
use crate::task::Phase;
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
    pub(super) lost: Option<fn(GroupId) -> Reason>,
    /// By own node.
    pub(super) parts: BTreeMap<NodeIx, Part>,
    /// Messages from one side here to the other: to whom, from whom, what.
    pub(super) inbox: VecDeque<(NodeId, NodeId, GroupMessage)>,
    /// Whether a plan that failed may succeed now.
    pub(super) has_changed: bool,
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) coordinator: Coordinator<NodeId>,
    /// Why the last plan failed.
    pub(super) failed: Option<PlanError>,
    /// Whose tasks may run in it.
    pub(super) tenant: TenantName,
    /// The numbers of the bundles that its tenant is charged for.
    pub(super) charged: Vec<u32>,
    /// When it came here, among the tasks.
    pub(super) sequence: Sequence,
    /// How often it was taken over before it was owned here.
    pub(super) takeovers: u32,
    pub(super) telling: Telling,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) id: NodeId,
    pub(super) participant: Participant<NodeId>,
    /// CPU that is kept in bundles here for blocked tasks that are to go on.
    kept_cpu: BTreeMap<BundleRef, Request>,
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

    fn has_labels(&self, selector: &Selector) -> bool {
        selector.matches(self.labels())
    }
}

impl GroupTable {
    pub(crate) fn add_own(&mut self, ix: NodeIx, id: NodeId) {
        let part = Part {
            id,
            participant: Participant::new(),
            kept_cpu: BTreeMap::new(),
        };
        self.parts.insert(ix, part);
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

    /// The first bundle here, of a group or the one that is named, that can serve a request now, beside what is kept in it.
    pub(crate) fn spot(
        &self,
        group: &GroupId,
        bundle: Option<u32>,
        request: &Request,
    ) -> Option<(NodeIx, u32)> {
        let cpu = |request: &Request| request.amounts().get(&ResourceName::CPU);
        let fits = |part: &Part, number, bundle: &Bundle| match part.kept_cpu.get(&(*group, number))
        {
            Some(kept) if cpu(request) < cpu(kept) => bundle.can_acquire_beside(kept, request),
            _ => bundle.can_acquire(request),
        };
        self.parts.iter().find_map(|(ix, part)| {
            let mut usable = part.participant.usable_bundles(*group);
            let (number, _) = usable.find(|(number, it)| {
                bundle.is_none_or(|bundle| bundle == *number) && fits(part, *number, it)
            })?;
            Some((*ix, number))
        })
    }

    /// Keeps CPU in a bundle for blocked tasks that are to go on, or (`None`) no longer.
    pub(super) fn keep_cpu(&mut self, node: NodeIx, at: BundleRef, cpu: Option<Request>) {
        if let Some(part) = self.parts.get_mut(&node) {
            match cpu {
                Some(cpu) => part.kept_cpu.insert(at, cpu),
                None => part.kept_cpu.remove(&at),
            };
        }
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
    pub(super) fn note_deadline(&mut self) {
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

/// Charges a tenant for what a group is to be charged for, instead of these bundles.
fn recharge(tenants: &mut Tenants, tenant: TenantIx, owned: &Owned, before: &[u32]) {
    let mut more: BTreeMap<u32, i64> = BTreeMap::new();
    owned
        .charged
        .iter()
        .for_each(|bundle| *more.entry(*bundle).or_default() += 1);
    before
        .iter()
        .for_each(|bundle| *more.entry(*bundle).or_default() -= 1);
    for (bundle, more) in more {
        let amounts = owned.coordinator.spec().bundles()[bundle as usize].amounts();
        (0..more).for_each(|_| tenants.charge(tenant, amounts));
        (more..0).for_each(|_| tenants.refund(tenant, amounts));
    }
}

impl Scheduler {
    /// What owners and nodes of this scheduler call it.
    pub(super) fn own_id(&self) -> NodeId {
        self.config.local.unwrap_or(NodeId::from_bytes([0xff; 16]))
    }

    pub(super) fn create_group(&mut self, group: GroupId, spec: GroupSpec, tenant: TenantName) {
        let is_there = self.groups.owned.contains_key(&group);
        if is_there || !self.has_group_more(&tenant) {
            self.stale += 1;
            return;
        }
        let coordinator = Coordinator::new(group, spec, self.now);
        let owned = Owned {
            coordinator,
            failed: None,
            tenant,
            charged: Vec::new(),
            sequence: self.tasks.next_sequence(),
            takeovers: 0,
            telling: Telling::default(),
        };
        self.groups.owned.insert(group, owned);
        self.groups.touched.insert(group);
        self.groups.has_changed = true;
        if self.gated == 0 {
            // Nobody waits who might come before it.
            self.pump_groups();
        }
    }

    /// What a group has reserved is used by its tenant, whoever runs in it: charges what has come since this was looked
    /// at last, and refunds what has gone.
    pub(super) fn charge_group(&mut self, group: &GroupId) {
        let Some(owned) = self.groups.owned.get_mut(group) else {
            return;
        };
        let reserved = owned.coordinator.reserved();
        if reserved == owned.charged {
            return;
        }
        let before = std::mem::replace(&mut owned.charged, reserved);
        let tenant = self.tenants.find(&owned.tenant).expect("it was made known");
        recharge(&mut self.tenants, tenant, owned, &before);
        self.has_given_back(tenant);
    }

    /// A group is not owned here any more, and its tenant not charged for it.
    pub(super) fn forget_owned(&mut self, group: &GroupId) -> Option<Owned> {
        let mut owned = self.groups.owned.remove(group)?;
        let before = std::mem::take(&mut owned.charged);
        let tenant = self.tenants.find(&owned.tenant).expect("it was made known");
        recharge(&mut self.tenants, tenant, &owned, &before);
        self.tenants.note_use(tenant, false);
        self.has_given_back(tenant);
        Some(owned)
    }

    /// A tenant has a group more from now on, if there is room for the tenant.
    pub(super) fn has_group_more(&mut self, tenant: &TenantName) -> bool {
        let found = self.tenant(tenant);
        if let Ok(tenant) = found {
            self.tenants.note_use(tenant, true);
        }
        found.is_ok()
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
    fn pump_groups(&mut self) {
        let mut waiting = self.waiting_groups();
        while let Some(group) = waiting.pop() {
            self.plan_group(group);
        }
        self.tell_of_groups();
    }

    /// The groups that wait for a plan, if one that failed may succeed now: the last is the next to be tried, by the
    /// shares of their tenants, then by age.
    pub(super) fn waiting_groups(&mut self) -> Vec<GroupId> {
        if !std::mem::take(&mut self.groups.has_changed) || self.groups.owned.is_empty() {
            return Vec::new();
        }
        let owned = self.groups.owned.iter();
        let waiting = owned.filter(|(_, owned)| owned.coordinator.wants_plan());
        let mut waiting: Vec<GroupId> = waiting.map(|(group, _)| *group).collect();
        self.sort_groups(&mut waiting);
        waiting
    }

    fn sort_groups(&self, waiting: &mut [GroupId]) {
        let place = |group: &GroupId| {
            let owned = &self.groups.owned[group];
            let tenant = self.tenants.find(&owned.tenant).expect("it was made known");
            (tenant, owned.sequence)
        };
        waiting.sort_by(|one, other| {
            let ((tenant, age), (other, other_age)) = (place(other), place(one));
            let by_share = self.tenants.cmp_shares(tenant, other);
            by_share.then(age.cmp(&other_age))
        });
    }

    /// Tries the next of some groups that wait, if that comes before a task that would start now. Whether it was tried.
    pub(super) fn try_group_before(
        &mut self,
        task: Option<TaskIx>,
        waiting: &mut Vec<GroupId>,
    ) -> bool {
        let Some(group) = waiting.pop_if(|group| self.is_group_before(group, task)) else {
            return false;
        };
        if self.plan_group(group) {
            // Its tenant has more than before.
            waiting.retain(|group| self.groups.owned.contains_key(group));
            self.sort_groups(waiting);
        }
        true
    }

    /// Whether a group is planned before a task starts: a tenant's own before its tasks, others by the tenants' shares,
    /// and where these are equal or do not count by age. So whoever has just given all back does not get it again before
    /// those who have waited meanwhile.
    fn is_group_before(&self, group: &GroupId, task: Option<TaskIx>) -> bool {
        let (Some(owned), Some(task)) = (self.groups.owned.get(group), task) else {
            return true;
        };
        let task = &self.tasks[task];
        let tenant = self.tenants.find(&owned.tenant).expect("it was made known");
        if tenant == task.tenant {
            // What blocked task needs its CPU again has the rest of what it needs already.
            return task.phase() != Phase::Blocked;
        }
        let by_share = self.tenants.cmp_shares(tenant, task.tenant);
        let age = (Reverse(0), owned.sequence);
        let other_age = (Reverse(task.terms.priority), task.sequence);
        by_share.then(age.cmp(&other_age)) == Ordering::Less
    }

    /// Tries to plan a group. Whether that was possible.
    fn plan_group(&mut self, group: GroupId) -> bool {
        if self.group_at_quota(&group).is_some() {
            return false;
        }
        let owned = self.groups.owned.get_mut(&group);
        let Some(owned) = owned.filter(|owned| owned.coordinator.wants_plan()) else {
            return false;
        };
        // Cheap to see, and most often what is wrong: a bundle that fits nowhere now.
        let spec = owned.coordinator.spec();
        let was_unavailable = matches!(owned.failed, Some(PlanError::Unavailable(_)));
        let fits = |(number, bundle): (u32, &Request)| {
            let demand = Demand {
                selectors: spec.selectors(number),
                ..Demand::of(std::slice::from_ref(bundle), Basis::TrulyFree)
            };
            self.cluster.is_available_somewhere(&demand)
        };
        if was_unavailable && !(0..).zip(spec.bundles()).all(fits) {
            return false;
        }
        // What was reserved before may stand, and serve.
        let is_first = owned.failed.is_none() && owned.charged.is_empty();
        let nodes = self.cluster.iter().filter(|(_, node)| !node.is_draining());
        let nodes = nodes.map(|(_, node)| (node.id(), node));
        owned.failed = owned.coordinator.plan(self.now, nodes).err();
        self.groups.touched.insert(group);
        match &owned.failed {
            None => {
                self.carry_out_groups();
                return true;
            }
            // What waits for it is told so.
            Some(PlanError::Infeasible(_)) if is_first => self.place_members(group),
            Some(_) => {}
        }
        false
    }
}
