//! What most commands do: reach a node or start one, find what arguments name, print.

pub mod local;
pub mod names;
pub mod printer;
pub mod remote;
