//! Guests, and what they and clients ask of the node.
//!
//! Owns running attempts, the services that they see, and the one door to the ledger ([`shared`]). Must not: know how other
//! nodes are reached: they are behind the traits of [`others`].

pub(crate) mod attempt;
pub(crate) mod block;
pub(crate) mod claim;
mod clock;
pub(crate) mod counters;
pub(crate) mod executor;
pub(crate) mod groups;
mod loading;
pub(crate) mod names;
pub(crate) mod orphans;
pub(crate) mod others;
mod pause;
mod run;
pub(crate) mod secrets;
pub(crate) mod services;
pub(crate) mod shared;
pub(crate) mod storing;
