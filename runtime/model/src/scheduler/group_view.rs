//! How it stands with a placement group, for who asks.
//!
//! Owns [`GroupView`]. Must not: change anything.

use std::time::Duration;

use super::Scheduler;
use crate::fairness::TenantName;
use crate::group::{GroupSpec, GroupState};
use crate::id::{GroupId, NodeId};

/// How it stands with a group, as far as is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Whether it is owned here.
    pub is_own: bool,
    /// Whose tasks may run in it.
    pub tenant: TenantName,
    /// What was asked for.
    pub spec: GroupSpec,
    /// How far it is. Of another node's group it is known whether it is ready.
    pub state: GroupState,
    /// For how long, if that is known.
    pub since: Option<Duration>,
    /// By number of the bundle: the node on which tasks can run in it.
    pub nodes: Vec<Option<NodeId>>,
    /// What it waits for, if it is not ready.
    pub why: Option<String>,
    /// Whether it can never be ready, as the nodes are.
    pub is_impossible: bool,
}

impl Scheduler {
    /// How it stands with a group; `None`: as far as is known here there is none.
    pub fn group(&self, group: &GroupId) -> Option<GroupView> {
        if let Some(owned) = self.groups.owned.get(group) {
            let coordinator = &owned.coordinator;
            let bundles = coordinator.spec().bundles().len();
            let numbers = 0..u32::try_from(bundles).expect("few bundles");
            return Some(GroupView {
                is_own: true,
                tenant: owned.tenant.clone(),
                spec: coordinator.spec().clone(),
                state: coordinator.state(),
                since: Some(self.now - coordinator.since()),
                nodes: numbers.map(|it| coordinator.ready_node(it)).collect(),
                why: self.why_group_waits(group),
                is_impossible: self.groups.impossible(group).is_some(),
            });
        }
        let face = self.groups.known.face(group)??;
        let is_ready = self.groups.is_ready(group);
        Some(GroupView {
            is_own: false,
            tenant: face.tenant.clone(),
            spec: face.spec.clone(),
            state: match is_ready {
                true => GroupState::Ready,
                false => GroupState::Pending,
            },
            since: None,
            nodes: face.nodes.clone(),
            why: face.why.clone(),
            is_impossible: false,
        })
    }

    /// Whether an answer is awaited of how it stands with a group, or an owner that is to come.
    pub fn is_group_asked_for(&self, group: &GroupId) -> bool {
        match self.groups.known.face(group) {
            Some(face) => face.is_none(),
            None => self.groups.recorded.contains(group),
        }
    }
}
