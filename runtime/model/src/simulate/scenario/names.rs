//! The nodes of a scenario by name, through time.
//!
//! Owns which names there are, which of them are there now, and what the last of each name was
//! declared with. Must not: read JSON.
//!
//! Invariant: a name is that of one node or of a counted entry, never of both, so a name alone
//! says what is meant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::{Fault, clip, nearest};
use super::limits::{NAME_BYTES_MAX, NODES_MAX};
use super::{Capacity, NodeNo};
use crate::resource::{MAX_RESOURCES, PoolKind, ResourceName};

/// The nodes by name.
#[derive(Default)]
pub struct NodeNames {
    /// By number.
    names: Vec<Arc<str>>,
    by_name: BTreeMap<Arc<str>, NodeNo>,
    /// How many instances the entries with a `count` above 1 have, by their name.
    counted: BTreeMap<Box<str>, u32>,
    /// By number: whether the node is there now, and which of `shapes` it has.
    states: Vec<State>,
    /// The kinds of resources that each entry declared.
    shapes: Vec<Vec<(ResourceName, PoolKind)>>,
    /// All resources that nodes ever have.
    resources: BTreeSet<ResourceName>,
    joined: u64,
}

struct State {
    is_there: bool,
    shape: usize,
}

impl NodeNames {
    /// Lets the nodes of an entry join. Its name was checked.
    pub fn join(
        &mut self,
        name: &str,
        count: u32,
        resources: &[Capacity],
    ) -> Result<Vec<NodeNo>, Fault> {
        self.joined += u64::from(count);
        if self.joined > NODES_MAX {
            return Err(Fault::TooMany {
                found: self.joined,
                what: "nodes, with those that events add,",
                limit: NODES_MAX,
            });
        }
        self.declare_resources(resources)?;
        if count == 1 {
            if let Some(count) = self.counted.get(name) {
                let by = format!("{count} nodes, {name}-0 to {name}-{}", count - 1);
                let name = name.into();
                return Err(Fault::NameTaken { name, by });
            }
            return Ok(vec![self.join_one(name)?]);
        }
        if self.by_name.contains_key(name) {
            return Err(Fault::NameTaken {
                name: name.into(),
                by: "a single node".into(),
            });
        }
        let most = self.counted.entry(name.into()).or_default();
        *most = count.max(*most);
        (0..count)
            .map(|at| self.join_one(&format!("{name}-{at}")))
            .collect()
    }

    /// The number of the node with this name, there now or not.
    pub fn find(&self, name: &str) -> Result<NodeNo, Fault> {
        if let Some(node) = self.by_name.get(name) {
            return Ok(*node);
        }
        if let Some(count) = self.counted.get(name) {
            return Err(Fault::NameOfMany {
                name: name.into(),
                count: *count,
                what: "nodes",
                advice: "name one of them",
            });
        }
        Err(Fault::UnknownName {
            what: "node",
            name: clip(name),
            nearest: nearest(name, self.names.iter().map(AsRef::as_ref)).map(Into::into),
            advice: "name one of `nodes`, or one that an event adds",
        })
    }

    /// The number of the node with this name, which must be there now.
    pub fn find_there(&self, name: &str, at_ms: u64) -> Result<NodeNo, Fault> {
        let node = self.find(name)?;
        match self.states[node.0 as usize].is_there {
            true => Ok(node),
            false => Err(Fault::NodeNotThere {
                name: name.into(),
                at_ms,
            }),
        }
    }

    /// Lets a node that is there leave.
    pub fn leave(&mut self, node: NodeNo) {
        self.states[node.0 as usize].is_there = false;
    }

    /// The kind that a resource of this node has, or would have if it were added now.
    pub fn kind(&self, node: NodeNo, name: &ResourceName) -> PoolKind {
        let shape = &self.shapes[self.states[node.0 as usize].shape];
        let declared = shape.iter().find(|(other, _)| other == name);
        let default = PoolKind::fixed(name).unwrap_or(PoolKind::Indexed);
        declared.map_or(default, |(_, kind)| *kind)
    }

    /// Notes that some node has this resource. There are so few of them in all that no node can
    /// have too many.
    pub fn declare_resource(&mut self, name: &ResourceName) -> Result<(), Fault> {
        if !self.resources.contains(name) {
            self.resources.insert(name.clone());
        }
        if self.resources.len() > MAX_RESOURCES {
            return Err(Fault::TooMany {
                found: self.resources.len() as u64,
                what: "different resources of nodes",
                limit: MAX_RESOURCES as u64,
            });
        }
        Ok(())
    }

    /// All names, by number.
    pub fn into_names(self) -> Vec<Arc<str>> {
        self.names
    }

    fn declare_resources(&mut self, resources: &[Capacity]) -> Result<(), Fault> {
        for capacity in resources {
            self.declare_resource(&capacity.name)?;
        }
        let kinds = resources.iter().map(|it| (it.name.clone(), it.kind));
        self.shapes.push(kinds.collect());
        Ok(())
    }

    fn join_one(&mut self, name: &str) -> Result<NodeNo, Fault> {
        let state = State {
            is_there: true,
            shape: self.shapes.len() - 1,
        };
        if let Some(node) = self.by_name.get(name) {
            let before = &mut self.states[node.0 as usize];
            if before.is_there {
                return Err(Fault::NameTaken {
                    name: name.into(),
                    by: "a node that is there already".into(),
                });
            }
            *before = state;
            return Ok(*node);
        }
        let node = NodeNo(self.names.len() as u32);
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), node);
        self.names.push(name);
        self.states.push(state);
        Ok(node)
    }
}

/// Checks the name of a node or task.
pub fn check_name(name: &str, what: &'static str) -> Result<(), Fault> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_inner) {
        true => Ok(()),
        false => Err(Fault::Name {
            name: clip(name),
            what,
        }),
    }
}
