//! What ready tasks need of which nodes, and who has what of a node: for whoever looks for tasks that can never start.
//!
//! Must not: change anything. All of it is by sums, so that what fits by this may still not fit, where units have ids.
//! What is held in bundles of placement groups counts as free: groups end when somebody says so.

use serde::{Deserialize, Serialize};

use super::Scheduler;
use super::class::Wants;
use super::record::TaskIx;
use crate::cluster::{Basis, NodeIx, Strategy};
use crate::id::{NodeId, TaskId};
use crate::resource::ResourceSet;
use crate::task::{Attempt, Phase, TaskKind};

/// With what a task could start on a node, some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The node.
    pub node: NodeId,
    /// What it would hold there.
    pub amounts: ResourceSet,
}

/// What a node gives out, and who has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// All that it has.
    pub total: ResourceSet,
    /// How many tasks and actors it has at a time, at most.
    pub slots: u32,
    /// Who has something of it, by task.
    pub holders: Vec<Holding>,
}

/// What a task, or an actor since its creation, has of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Whether it creates an actor, or has.
    pub is_actor: bool,
    /// What it holds, apart from what is of a bundle.
    pub amounts: ResourceSet,
}

/// What a node has beside some of those who hold something of it.
#[derive(Debug)]
pub struct Spare<'a> {
    room: &'a Room,
    free: ResourceSet,
    slots: u32,
}

impl Room {
    /// What is free when all have ended but those of whom `stays` says so.
    pub fn beside(&self, stays: impl Fn(&TaskId) -> bool) -> Spare<'_> {
        let mut spare = Spare {
            room: self,
            free: self.total.clone(),
            slots: self.slots,
        };
        for holding in self.holders.iter().filter(|it| stays(&it.task)) {
            spare.free.subtract_clamped(&holding.amounts);
            spare.slots = spare.slots.saturating_sub(1);
        }
        spare
    }
}

impl Spare<'_> {
    /// Whether a task that asks for this could start.
    pub fn serves(&self, amounts: &ResourceSet) -> bool {
        self.slots > 0
            && amounts
                .iter()
                .all(|(name, amount)| amount <= self.free.get(name))
    }

    /// What a task lacks that asks for this, for people.
    pub fn lacking(&self, amounts: &ResourceSet) -> Vec<String> {
        let short = amounts
            .iter()
            .map(|(name, needs)| (name, needs, self.free.get(name)))
            .filter(|(_, needs, free)| needs > free);
        let short = short.map(|(name, needs, free)| {
            let (needs, free) = (needs.display_for(name), free.display_for(name));
            format!("{name} (needs {needs}, {free} free)")
        });
        let slot = (self.slots == 0).then(|| format!("one of {} sandboxes", self.room.slots));
        short.chain(slot).collect()
    }
}

impl Scheduler {
    /// With what a ready task could start, if others did not hold that: on which nodes, this one among them, or on one
    /// alone. Nothing if it does not wait for resources of nodes, but for a group or its actor; or if a node joins that
    /// may have some.
    pub fn demands(&self, task: &TaskId, only: Option<NodeId>) -> Vec<Demand> {
        let Some(ix) = self.lacks_room(task) else {
            return Vec::new();
        };
        let alternatives = &self.tasks[ix].terms.rule.alternatives;
        let nodes = self.cluster.iter().filter(|(at, node)| {
            only.is_none_or(|only| only == node.id()) && self.may_ever_start(ix, *at)
        });
        let demands = nodes.flat_map(|(_, node)| {
            let fit = alternatives.iter().filter(|it| node.is_feasible(it));
            fit.map(|request| Demand {
                node: node.id(),
                amounts: request.amounts().clone(),
            })
        });
        demands.collect()
    }

    /// Whether a ready task may yet start on another node, or on one that has not said yet what it has.
    pub fn may_start_elsewhere(&self, task: &TaskId) -> bool {
        let mut others = self.cluster.iter().filter(|(_, node)| !node.is_own());
        self.waits_for_room(task).is_some_and(|ix| {
            self.cluster.expected().next().is_some()
                || others.any(|(node, _)| self.may_ever_start(ix, node))
        })
    }

    /// A ready task that waits for resources of nodes, all of which are known.
    fn lacks_room(&self, task: &TaskId) -> Option<TaskIx> {
        let are_known = self.cluster.expected().next().is_none();
        self.waits_for_room(task).filter(|_| are_known)
    }

    /// A ready task that waits for resources of nodes.
    fn waits_for_room(&self, task: &TaskId) -> Option<TaskIx> {
        let ix = self.tasks.find(task)?;
        let task = &self.tasks[ix];
        let is_grouped = matches!(task.terms.rule.strategy, Strategy::PlacementGroup { .. });
        let waits = task.phase() == Phase::Ready && Wants::of(task.kind) == Wants::Start;
        (waits && !is_grouped).then_some(ix)
    }

    fn may_ever_start(&self, task: TaskIx, node: NodeIx) -> bool {
        // Nobody drains a node for ever.
        let fit = self.fit_on(node, task, Basis::TrulyFree);
        fit.is_some_and(|fit| fit.is_ever())
    }

    /// What the node that this scheduler serves gives out, and who has it; `None` as long as there is no node.
    pub fn room(&self) -> Option<Room> {
        let own = *self.own.first()?;
        let phases = [Phase::Dispatching, Phase::Running, Phase::Blocked];
        let tasks = phases.into_iter().flat_map(|it| self.tasks.in_phase(it));
        let holders = tasks.filter_map(|ix| {
            let task = &self.tasks[ix];
            let assignment = task.state().assignment()?;
            let amounts = match assignment.bundle {
                None => assignment.allocation.amounts(),
                Some(_) => ResourceSet::default(),
            };
            (assignment.node == own && Wants::of(task.kind) == Wants::Start).then(|| Holding {
                task: task.id,
                attempt: task.attempt,
                is_actor: matches!(task.kind, TaskKind::Actor(_)),
                amounts,
            })
        });
        let mut holders: Vec<Holding> = holders.collect();
        holders.sort_unstable_by_key(|it| it.task);
        Some(Room {
            total: self.cluster[own].total().clone(),
            slots: self.config.max_running,
            holders,
        })
    }
}
