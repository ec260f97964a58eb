//! The cluster as a scheduler sees it: nodes, labels, and the choice between them.
//!
//! Owns what a request may say about where it wants to run ([`Strategy`], [`Selector`]), the view
//! of all nodes ([`Cluster`]) and the choice of one ([`Cluster::choose`]). Must not: start, queue or
//! move a task, or decide between tasks or tenants.
//!
//! Invariants: a choice depends only on the view, the demand and the random numbers that came in;
//! a decision costs much less than a look at every node, because the nodes that fit a request are
//! kept in order and only nodes that changed are looked at again.

mod candidates;
mod changes;
mod choose;
mod explain;
mod labels;
mod name;
mod node;
mod order;
mod selector;
mod sorted;
mod strategy;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod wait;

pub use choose::{Choice, Demand, Kind, LOCALITY_BYTES_MIN};
pub use explain::{NodeFit, Unschedulable};
pub use labels::{
    ACCELERATOR_TYPE, HOSTNAME, LabelKey, LabelValue, Labels, NODE_ID, ParseLabelError,
};
pub use name::{NodeIx, NodeName, ParseNodeNameError};
pub use node::{Basis, NewNode, Node, Supply};
#[doc(hidden)]
pub use selector::fuzz as fuzz_selectors;
pub use selector::{ParseSelectorError, Rule, Selector, Selectors, Term};
pub use strategy::{ParseStrategyError, Strategy};
pub use table::{Share, ShareError, Tuning};
pub use view::{Cluster, JoinError};
pub use wait::{INITIAL_BANDWIDTH, INITIAL_RUN_TIME_US, Mean, QueueReport};
