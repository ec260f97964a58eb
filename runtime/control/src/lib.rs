//! The control store of a cluster: its small, slow-changing truth.
//!
//! Owns the trait [`ControlStore`] (an ordered map with transactions, a history to watch, and leases) and
//! three ways to have one: [`Embedded`] in a file of the head, [`Remote`](remote::Remote) for the other
//! nodes of such a cluster, [`Etcd`](etcd::Etcd) in an etcd server; tests have one more, [`simulated`].
//! Must not: know tasks, actors or nodes (keys and values are bytes; [`records`] puts types on top), know
//! QUIC, or be on the path of a single task. `docs/decisions/control-store.md` says why it is built so.
//!
//! ```
//! # async fn example(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use wasmrun_control::{Condition, ControlStore, Embedded, EmbeddedConfig, Op, Txn};
//!
//! let store = Embedded::open(folder, EmbeddedConfig::default()).await?;
//! let mut watch = store.watch(b"nodes/", store.revision().await?.next()).await?;
//! let first = Txn::when("nodes/a", Condition::Absent).then(Op::put("nodes/a", "here"));
//! assert!(store.txn(first).await?.succeeded);
//! assert_eq!(watch.next().await?.events.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: what was answered is durable; a watch sees each revision once, in order; a lease that has
//! ended never lives again.

mod backoff;
mod clock;
mod embedded;
mod error;
pub mod etcd;
mod keeper;
pub mod membership;
pub mod records;
pub mod remote;
pub mod simulated;
mod store;
mod types;

pub use clock::{Clock, MonotonicClock};
pub use embedded::{
    Answer, CLIENT_WINDOW, ClientId, Embedded, EmbeddedConfig, MAX_CLIENTS, Mutation, OpenError,
    RequestId,
};
pub use error::Error;
pub use keeper::{Health, LeaseKeeper};
pub use store::{ControlStore, Watch, WatchSource};
pub use types::{
    Changes, Compare, Condition, Entry, Event, Lease, LeaseId, MAX_KEY_BYTES, MAX_PAGE_BYTES,
    MAX_PAGE_ENTRIES, MAX_TTL, MAX_TXN_BYTES, MAX_TXN_OPS, MAX_VALUE_BYTES, MIN_TTL, Op, OpReply,
    Page, Range, Revision, Txn, TxnReply,
};
