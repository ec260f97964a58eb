//! Sharing between tenants: max-min, dominant resource fairness, guarantees.
//!
//! Owns who is next: [`Tenants`] accounts what each tenant uses over the whole cluster, with all that are part of it, and
//! keeps a [`ShareKey`] for each, whose order is the order of service among those that are part of the same; [`max_min`]
//! divides one resource, [`Parts`] bytes in the tree, and [`check_place`] leaves places for others. [`Quota`]s bound what a
//! tenant may use at once.
//! Must not: know tasks, queues or nodes' pools, read a clock, use floats.
//!
//! Invariants: a tenant's key depends on that tenant, those below it and the cluster's total alone, never on others, so
//! keys can sit in ordered structures; equal shares are equal [`Ratio`]s, however they
//! came about; what is refunded was charged.
//!
//! Sources: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource
//! Types", NSDI 2011 (progressive filling, weights, the four properties); Hadoop YARN's fair
//! scheduler (minimum shares and ties).

mod due;
mod explain;
mod key;
mod max_min;
mod order;
mod parts;
mod places;
mod policy;
#[cfg(test)]
mod properties;
mod quota;
mod ratio;
#[cfg(test)]
mod reference;
mod state;
mod tenant;
mod tenants;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_properties;
mod turns;
mod unused;
mod usage;
mod weight;

pub use due::{CpuParts, Reclaim};
pub use explain::{Ahead, WhyAhead};
pub use key::ShareKey;
pub use max_min::max_min;
pub use order::Seat;
pub use parts::{Demands, Parts, Share};
pub use places::{NoPlace, check_place};
pub use policy::{ParsePolicyError, Policy};
pub use quota::{Ask, AtQuota, BeyondQuota, Bound, Quota, TooManyWaiting};
pub use ratio::{Ratio, Scale};
pub use state::{Tenant, TenantCounters};
pub use tenant::{ParseTenantNameError, TenantConfig, TenantName};
pub use tenants::{MAX_BELOW, MAX_TENANTS, TenantIx, Tenants, TooManyTenants};
pub use turns::Turns;
pub use weight::{Weight, WeightError};
