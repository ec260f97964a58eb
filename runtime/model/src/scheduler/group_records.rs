//! Groups that outlive their owners, because the control store has records of them.
//!
//! Owns what is known of these records, which come from outside, and what follows from them: what is kept when an owner
//! is lost, whom it is asked of then, and a group that this node takes over or has lost to another. Must not: read or
//! write records, or decide who takes a group over.
//!
//! Invariants: what is known of a record only goes forward, by the number of its takeovers; a group of which there is a
//! record ends by a word of its owner, or with its record, and not with a node.

use std::collections::BTreeMap;

use super::groups::{GroupTable, Owned};
use super::{Effect, Scheduler};
use crate::cluster::Cluster;
use crate::fairness::TenantName;
use crate::group::{Coordinator, GroupSpec, Round};
use crate::id::{GroupId, NodeId};
use crate::time::Instant;

use super::explain::Reason;
use super::group_news::Telling;

/// Which groups have records.
#[derive(Debug, Default)]
pub(crate) struct Recorded(BTreeMap<GroupId, Record>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    owner: NodeId,
    takeovers: u32,
}

impl Recorded {
    pub(super) fn contains(&self, group: &GroupId) -> bool {
        self.0.contains_key(group)
    }

    pub(super) fn owner(&self, group: &GroupId) -> Option<NodeId> {
        self.0.get(group).map(|record| record.owner)
    }
}

impl GroupTable {
    /// A node has joined, or is about to: whoever has taken a group over asks what it has of it.
    pub(super) fn node_joined(&mut self, node: NodeId) {
        for owned in self.owned.values_mut() {
            owned.coordinator.node_joined(node);
        }
    }

    /// A node that was about to join does not.
    pub(super) fn node_stays_away(&mut self, now: Instant, node: NodeId) {
        for (group, owned) in &mut self.owned {
            owned.coordinator.node_lost(now, node);
            self.touched.insert(*group);
        }
    }
}

impl Scheduler {
    /// Whether this scheduler keeps a group. One that is recorded as this node's and is not kept waits to be taken up.
    pub fn owns_group(&self, group: &GroupId) -> bool {
        self.groups.owned.contains_key(group)
    }

    /// Whose a group is by its record, if it has one.
    pub fn recorded_owner(&self, group: &GroupId) -> Option<NodeId> {
        self.groups.recorded.owner(group)
    }

    /// The control store has a record of a group.
    pub(super) fn group_recorded(&mut self, group: GroupId, owner: NodeId, takeovers: u32) {
        let record = Record { owner, takeovers };
        let before = self.groups.recorded.0.get(&group).copied();
        if before.is_some_and(|before| before.takeovers > takeovers || before == record) {
            self.stale += 1;
            return;
        }
        self.groups.recorded.0.insert(group, record);
        let own = self.own_id();
        if owner != own {
            let owned = self.groups.owned.get(&group);
            if owned.is_some_and(|owned| owned.takeovers < takeovers) {
                self.forget_owned(&group);
                self.effects.push_back(Effect::GroupChanged(group));
            }
            if !self.owns_group(&group) {
                // The group lives, with another bundle instead of what was here.
                self.disown(group, Some(own), Reason::BundleLost);
            }
        }
        if before.is_some() {
            self.follow_owner(group, owner);
        }
        self.retry_infeasible();
    }

    /// The control store has no record of a group any more, which was this node's.
    pub(super) fn group_unrecorded(&mut self, group: GroupId, owner: NodeId) {
        if self.groups.recorded.owner(&group) != Some(owner) {
            self.stale += 1;
            return;
        }
        self.groups.recorded.0.remove(&group);
        self.disown(group, None, Reason::GroupRemoved);
        if !self.owns_group(&group) {
            let own = self.own_id();
            self.disown(group, Some(own), Reason::GroupRemoved);
        }
        if self.groups.known.has_lost_owner(&group) {
            self.end_known(group, Reason::GroupRemoved(group));
        }
        self.retry_infeasible();
    }

    /// This node owns a group from now on, which another has owned, or an earlier incarnation of this one. What nodes
    /// have of it stays as it is.
    pub(super) fn take_group_over(
        &mut self,
        group: GroupId,
        spec: GroupSpec,
        tenant: TenantName,
        takeovers: u32,
    ) {
        let owned = self.groups.owned.get(&group);
        let is_known = owned.is_some_and(|owned| owned.takeovers >= takeovers);
        if is_known || !self.has_group_more(&tenant) {
            self.stale += 1;
            return;
        }
        let own = self.own_id();
        self.group_recorded(group, own, takeovers);
        let from = Round::of_takeover(takeovers);
        let coordinator = Coordinator::take_over(group, spec, from, all(&self.cluster), self.now);
        let owned = Owned {
            coordinator,
            failed: None,
            tenant,
            charged: Vec::new(),
            sequence: self.tasks.next_sequence(),
            takeovers,
            telling: Telling::default(),
        };
        self.forget_owned(&group);
        self.groups.owned.insert(group, owned);
        self.groups.known.forget(&group);
        self.groups.touched.insert(group);
        self.groups.set_changed();
        self.carry_out_groups();
        self.place_members(group);
        self.retry_infeasible();
    }

    /// This node was cut off, and another may have taken its groups over: those with records wait until the control
    /// store has said whose they are.
    pub(super) fn let_go_of_groups(&mut self) {
        let owned = self.groups.owned.keys();
        let recorded = owned.filter(|group| self.groups.recorded.contains(group));
        let recorded: Vec<GroupId> = recorded.copied().collect();
        for group in recorded {
            self.forget_owned(&group);
            self.effects.push_back(Effect::GroupChanged(group));
        }
    }

    /// Ends what is here of a group, and whose next owner nobody is: that of `owner`, or what has none.
    fn disown(&mut self, group: GroupId, owner: Option<NodeId>, why: fn(GroupId) -> Reason) {
        for ix in self.own.clone() {
            if let Some(part) = self.groups.part_mut(ix) {
                part.disown(self.cluster.own_mut(ix), group, owner);
                self.wake(ix);
            }
        }
        self.carry_out_lost(why);
    }
}

/// All nodes that there are, those included that have not said yet what they have.
fn all(cluster: &Cluster) -> Vec<NodeId> {
    let known = cluster.iter().map(|(_, node)| node.id());
    known.chain(cluster.expected()).collect()
}
