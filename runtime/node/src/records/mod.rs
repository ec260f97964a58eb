//! What a node has one of for each task, object and actor, and what they are made of.
//!
//! Owns the records, and who keeps whom by references. Must not: decide, run anything, or know other nodes: where a record
//! leads there it holds a trait of this folder's.

pub(crate) mod actor;
pub(crate) mod actor_ref;
pub(crate) mod call_log;
pub(crate) mod class;
pub(crate) mod dead;
pub(crate) mod derive;
pub(crate) mod handles;
pub(crate) mod ids;
pub(crate) mod job;
pub(crate) mod lineage;
pub(crate) mod log;
pub(crate) mod object;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod reach;
mod stop;
pub(crate) mod submitted;
pub(crate) mod task;
pub(crate) mod wait;
pub(crate) mod waiting_bytes;
