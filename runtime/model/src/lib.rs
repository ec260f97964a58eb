//! The pure core of wasmrun: what a task asks for, what a node has, what a value is.
//!
//! Owns: [`resource`] (amounts, sets, ids, pools, node resources), [`value`] (WIT types and
//! values, their bytes, their text), [`manifest`] (what a module declares), [`wire`] (what nodes and drivers say to each other),
//! [`access`] (what a client may do, for which tenants), [`secret`] (secrets by name),
//! [`http`] (which servers guests may call, and how requests call functions), [`trace`] (trace context), [`id`] and
//! [`failure`]. Must not: do I/O, read a clock, draw a random number, start a thread. Whatever depends on the outside comes in as an argument, so one model serves a real
//! node, the deterministic simulation and capacity planning.

pub mod access;
pub mod cluster;
mod encoding;
pub mod failure;
pub mod fairness;
pub mod gossip;
pub mod group;
pub mod http;
pub mod id;
pub mod manifest;
pub mod random;
pub mod reference;
pub mod resource;
pub mod scheduler;
pub mod secret;
pub mod simulate;
pub mod task;
pub mod time;
pub mod trace;
pub mod units;
pub mod value;
pub mod version;
pub mod wire;
