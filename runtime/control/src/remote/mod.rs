//! The embedded store for other nodes: messages, the side that answers and the side that asks.
//!
//! Owns the protocol over a [`Link`], which may lose, double and delay whatever it carries. Must not: know what
//! the link is made of; `node` makes one of the cluster's connections.

mod client;
mod link;
mod protocol;
mod server;

pub use client::{Remote, RemoteConfig};
pub use link::{EventLink, Link, LinkError};
pub use protocol::{MAX_MESSAGE_BYTES, Request, Response, WatchMessage, WatchRequest, fuzz};
pub use server::{Server, ServerLimits, Session, WatchSession};
