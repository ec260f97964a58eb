//! Resources: how much a task asks for, what a node has, and which units a task holds.
//!
//! Owns two levels. *How much*: [`Amount`], [`ResourceSet`], [`Request`]. *Which ones*:
//! [`ResourceIds`], [`Pool`], [`ResourceIdSet`], and [`NodeResources`] that adds load and reports
//! to them. The second refines the first: every id-level state reduces to a plain set.
//!
//! Must not: use floats, do I/O, read a clock, draw a random number, let the iteration order of a
//! hash map decide anything.
//!
//! Invariants: no unit is given out twice; `total = available + held - backlog` for every pool at
//! all times; a refused operation changes nothing; an [`Allocation`] goes back to the node that
//! gave it, exactly once.
//!
//! The model is the one of Ray's raylet (fixed-point quantities, resource ids with fractions, a
//! decrement backlog), with HyperQueue's distinction of indexed and sum pools and its groups.

mod allocation;
mod amount;
mod amount_text;
mod bundle;
#[cfg(test)]
mod bundle_properties;
mod fit;
mod groups;
mod id_bits;
mod id_set;
mod ids;
mod indexed;
mod load;
mod name;
mod node;
mod pool;
#[cfg(test)]
mod properties;
mod request;
mod set;
mod share;

pub use allocation::{Allocation, Holding, PoolAllocation};
pub use amount::Amount;
pub use amount_text::ParseAmountError;
pub(crate) use amount_text::gcd;
pub use bundle::Bundle;
pub use fit::{AcquireError, Fit, Infeasibility, PoolReport, Shortage};
pub use groups::{Groups, GroupsError};
pub use id_set::{AddResourceError, ResourceIdSet};
pub use ids::{ResourceId, ResourceIds};
pub use indexed::{CapacityError, IndexedPool};
pub use load::Load;
pub use name::{ParseResourceNameError, ResourceName};
pub use node::{NodeReport, NodeResources};
pub use pool::{ParsePoolError, Pool, SumPool};
pub use request::{IndexedDemand, PoolKind, Request, RequestError};
pub use set::{AddError, MAX_RESOURCES, ResourceSet, SubtractError};
pub use share::Share;
