//! Why the bundles of a group have no nodes, in words.
//!
//! Owns the reasons. Must not: find them; [`super::plan`] does.

use serde::{Deserialize, Serialize};

use super::spec::GroupKind;
use crate::resource::{Amount, Infeasibility, ResourceName};

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PlanError {
    /// Not now; try again when something was released or a node joins.
    #[error(transparent)]
    Unavailable(Unplaced),
    /// Never, as the nodes are; try again when a node joins or grows.
    #[error(transparent)]
    Infeasible(Impossible),
}

/// What has no place now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unplaced {
    /// A bundle.
    #[error("bundle {bundle}: no node has room for it now, beside the bundles before it")]
    Bundle {
        /// Its number.
        bundle: u32,
    },
    /// All of them on one node.
    #[error(
        "{}: no node has room for all {bundles} bundles now",
        GroupKind::StrictPack
    )]
    OneNode {
        /// How many they are.
        bundles: usize,
    },
    /// Each on a node of its own.
    #[error(
        "{}: only {placed} of {bundles} bundles find a node of their own now; bundle {bundle} \
         does not",
        GroupKind::StrictSpread
    )]
    OwnNode {
        /// The number of the first bundle that does not.
        bundle: u32,
        /// How many bundles have to be placed.
        bundles: usize,
        /// How many of them can be at the same time.
        placed: usize,
    },
}

/// What can never have a place, as the nodes are.
///
/// Not everything that is impossible is noticed, as that is bin packing; what is reported is
/// impossible for certain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Impossible {
    /// A bundle that fits no node, were it empty.
    #[error(
        "bundle {bundle} fits none of {nodes} nodes, not even an empty one{}",
        because(why)
    )]
    Bundle {
        /// Its number.
        bundle: u32,
        /// How many nodes there are.
        nodes: usize,
        /// Why it does not fit the first of them.
        why: Option<Infeasibility>,
    },
    /// A bundle that no node may have, or that fits none of those, were it empty.
    #[error(
        "{}",
        by_labels(*.bundle, selectors, *.of, *.nodes, why)
    )]
    Labels {
        /// Its number.
        bundle: u32,
        /// What labels its node must have, as they are typed.
        selectors: String,
        /// How many nodes there are.
        of: usize,
        /// How many of them have such labels.
        nodes: usize,
        /// Why it does not fit the first of these.
        why: Option<Infeasibility>,
    },
    /// Bundles that are to be on one node, and no node may have all.
    #[error(
        "{}: no node has the labels that all {bundles} bundles demand",
        GroupKind::StrictPack
    )]
    OneNodeByLabels {
        /// How many they are.
        bundles: usize,
    },
    /// More of a resource than all nodes have.
    #[error(
        "the bundles need {} of {name} together, all nodes have {}",
        needs.display_for(name), total.display_for(name)
    )]
    Together {
        /// The resource.
        name: ResourceName,
        /// What they ask for; [`Amount::MAX`] if it is more.
        needs: Amount,
        /// What all nodes have; [`Amount::MAX`] if it is more.
        total: Amount,
    },
    /// More than any one node has.
    #[error(
        "{}: no node has enough in total for all {bundles} bundles",
        GroupKind::StrictPack
    )]
    OneNode {
        /// How many they are.
        bundles: usize,
    },
    /// More bundles than nodes that could serve them.
    #[error(
        "{}: {bundles} bundles need a node each, and at most {nodes} can have one, even if all \
         nodes were empty",
        GroupKind::StrictSpread
    )]
    OwnNode {
        /// How many bundles have to be placed.
        bundles: usize,
        /// How many of them could be at the same time.
        nodes: usize,
    },
}

fn by_labels(
    bundle: u32,
    selectors: &str,
    of: usize,
    nodes: usize,
    why: &Option<Infeasibility>,
) -> String {
    match nodes {
        0 => format!("bundle {bundle}: label {selectors} matches none of {of} nodes"),
        _ => format!(
            "bundle {bundle} fits none of the {nodes} nodes whose labels match {selectors}, not even an empty one{}",
            because(why)
        ),
    }
}

fn because(why: &Option<Infeasibility>) -> String {
    why.as_ref()
        .map_or(String::new(), |why| format!(" ({why})"))
}
