//! Scenarios: what is simulated.
//!
//! Owns the shape of a scenario, its JSON, the limits and every check, so that the run meets only
//! possible values and names that exist. Must not: run anything, or decide how a task is placed.
//!
//! Invariants of a [`Scenario`] that [`Scenario::parse`] returned: every number ([`NodeNo`],
//! [`TenantNo`], [`EntryNo`]) is within its table; a node joins only while it is not there and
//! leaves or changes only while it is; `after` has no circle; `events` are in the order of time;
//! the run ends before the last [`crate::time::Instant`], whatever the order of the tasks.

mod check;
mod error;
mod json;
pub mod limits;
mod names;
mod read;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::cluster::{Labels, Selectors};
use crate::fairness::{MAX_TENANTS, Policy, TenantConfig, TenantName};
use crate::group::GroupKind;
use crate::resource::{
    Amount, CapacityError, NodeResources, Pool, PoolKind, Request, ResourceName, ResourceSet,
};

pub use error::{Fault, Found, ScenarioError};

/// What is simulated: nodes, tenants, tasks and what happens to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Where all random choices of the run come from.
    pub seed: u64,
    /// How tenants share.
    pub policy: Policy,
    /// The names of all nodes that are ever there, by [`NodeNo`], in the order of the file: first
    /// those of the start, then those that events add, in the order of time.
    pub node_names: Vec<Arc<str>>,
    /// The nodes that are there from the start.
    pub nodes: Vec<NodeEntry>,
    /// All tenants, by [`TenantNo`]: the listed ones, then those that only tasks name.
    pub tenants: Vec<Tenant>,
    /// The tasks in the order of the file, by [`EntryNo`].
    pub tasks: Vec<TaskEntry>,
    /// What happens to the nodes, in the order of time, then of the file.
    pub events: Vec<Event>,
}

/// The number of a node: its place in [`Scenario::node_names`]. A node that leaves and joins again
/// under its name keeps its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNo(pub u32);

/// The number of a tenant: its place in [`Scenario::tenants`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNo(pub u32);

/// The number of a task's entry: its place in [`Scenario::tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNo(pub u32);

/// Some equal nodes that join together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// The nodes. One plain `n1`, or `n-0`, `n-1`, … for a `count` above 1.
    pub instances: Vec<NodeNo>,
    /// What each of them has, in the order of the names.
    pub resources: Vec<Capacity>,
    /// What they are labelled with.
    pub labels: Labels,
}

/// What a node has of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// The resource.
    pub name: ResourceName,
    /// Whether its units have ids.
    pub kind: PoolKind,
    /// How much of it there is; whole units if they have ids.
    pub amount: Amount,
}

/// Who submits tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// The name.
    pub name: TenantName,
    /// How it shares: the defaults, if the scenario does not list it.
    pub config: TenantConfig,
}

/// Some equal tasks that are submitted together: `name-0`, `name-1`, …
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEntry {
    /// The name, without the number of an instance.
    pub name: Arc<str>,
    /// Who submits them.
    pub tenant: TenantNo,
    /// How many there are, at least 1.
    pub count: u32,
    /// When they are submitted, in milliseconds.
    pub submit_at_ms: u64,
    /// How long each runs, in milliseconds.
    pub duration_ms: u64,
    /// What each needs: the variants in the order of preference, at least one.
    pub requests: Vec<Request>,
    /// Those of higher priority go first within their tenant.
    pub priority: i32,
    /// How their nodes are chosen.
    pub placement: Placement,
    /// Which nodes may serve them, by their labels; fallbacks in order.
    pub selectors: Selectors,
    /// The objects that they read.
    pub args: Vec<Argument>,
    /// What must have finished, all instances of it, before they can start.
    pub after: Vec<EntryNo>,
    /// How often an instance whose node was removed is tried again; `None` is always.
    pub retries: Option<u32>,
}

/// An object that a task reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Its size.
    pub bytes: u64,
    /// The node that holds it.
    pub on: NodeNo,
}

/// How the node of a task is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// The hybrid rule.
    Default,
    /// Any node.
    Random,
    /// Round the nodes.
    Spread,
    /// One node.
    NodeAffinity {
        /// Which one.
        node: NodeNo,
        /// Whether another one serves if this one cannot.
        soft: bool,
    },
    /// In the bundles of a placement group, one group for all instances of the entry. It is
    /// reserved when they are submitted and given back when the last of them has ended.
    PlacementGroup {
        /// How the bundles lie.
        kind: GroupKind,
        /// What each bundle has, at least one.
        bundles: Vec<Request>,
        /// What labels its node must have: one for each, or none for any nodes.
        selectors: Vec<Selectors>,
    },
}

/// Something that happens to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds.
    pub at_ms: u64,
    /// What.
    pub change: Change,
}

/// What happens to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nodes join.
    AddNode(NodeEntry),
    /// A node is gone, with all that runs on it.
    RemoveNode(NodeNo),
    /// A node has another amount of a resource, maybe of one that it did not have.
    SetResource {
        /// The node.
        node: NodeNo,
        /// The resource.
        name: ResourceName,
        /// How much of it there is from now on; whole units if they have ids.
        capacity: Amount,
    },
}

impl Scenario {
    /// Reads a scenario from its JSON.
    ///
    /// Takes time in proportion to the length of the text: about 5 us per entry of `tasks`.
    ///
    /// # Errors
    /// When the text is no JSON, too large, or says something impossible; see [`ScenarioError`].
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        read::scenario(text)
    }

    /// What a tenant is due and may have, to be changed. One that the scenario does not name is added.
    ///
    /// # Errors
    /// When there are too many to add one.
    pub fn tenant_mut(&mut self, name: &TenantName) -> Result<&mut TenantConfig, Fault> {
        let found = self.tenants.iter().position(|it| it.name == *name);
        let at = found.unwrap_or(self.tenants.len());
        if at == MAX_TENANTS {
            return Err(Fault::TooMany {
                found: MAX_TENANTS as u64 + 1,
                what: "tenants, with those that are added,",
                limit: MAX_TENANTS as u64,
            });
        }
        if found.is_none() {
            self.tenants.push(Tenant {
                name: name.clone(),
                config: TenantConfig::default(),
            });
        }
        Ok(&mut self.tenants[at].config)
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeNo) -> &str {
        &self.node_names[node.0 as usize]
    }
}

impl NodeEntry {
    /// The resources of one such node, all of them free.
    pub fn node_resources(&self) -> NodeResources {
        let mut node = NodeResources::new();
        for capacity in &self.resources {
            let pool = capacity.pool().expect("checked when the scenario was read");
            let added = node.add(capacity.name.clone(), pool);
            added.expect("no resource is listed twice, and there are few");
        }
        node
    }

    /// What one such node has in all.
    pub fn total(&self) -> ResourceSet {
        let amounts = self.resources.iter();
        amounts.map(|it| (it.name.clone(), it.amount)).collect()
    }
}

impl Capacity {
    fn pool(&self) -> Result<Pool, CapacityError> {
        match self.kind {
            PoolKind::Sum => Ok(Pool::sum(self.amount)),
            PoolKind::Indexed => Pool::for_name(&self.name, self.amount),
        }
    }
}

impl TaskEntry {
    /// The name of an instance.
    pub fn instance(&self, index: u32) -> TaskLabel<'_> {
        TaskLabel {
            entry: &self.name,
            index,
        }
    }
}

/// The name of an instance of a task, such as `a-0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabel<'a> {
    /// The name of the entry.
    pub entry: &'a str,
    /// Which instance, from 0.
    pub index: u32,
}

impl fmt::Display for TaskLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.entry, self.index)
    }
}
