//! A node: takes tasks, admits them by resources, runs them on guest threads, reports.
//!
//! Owns: the life of a task on one machine ([`Node`], [`Client`]), the guest threads
//! (`executor`), the scheduler and what its tasks are to do (`ledger`), what the machine has ([`Machine`]). It is the
//! only place where engine and model meet, and where net and control do (`cluster`). Must not: parse arguments or print; know how wasm runs.
//!
//! ```no_run
//! use std::sync::Arc;
//! use wasmrun_engine::{Entry, Grants};
//! use wasmrun_node::{Call, Job, Node, NodeConfig, Overrides, wait_all};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(NodeConfig::default())?;
//! let client = node.client();
//! let module = node.engine().load(&std::fs::read("module.wasm")?)?;
//! let entry = Entry::Function(module.find("noop")?);
//! let job = Job::new("noop", &module, entry, &Overrides::default(), Grants::default())?;
//! let job = Arc::new(job);
//! let tasks: Vec<_> =
//!     (0..100).map(|_| client.submit(&job, Call::default())).collect::<Result<_, _>>()?;
//! for report in wait_all(tasks) {
//!     report.result?; // or `task.await?` one by one
//! }
//! # Ok(())
//! # }
//! ```

// Objects know how they were made, of which actors and objects, and so on: that those may be sent to other threads takes
// the compiler more steps to see than it takes by default.
#![recursion_limit = "256"]

mod actor;
mod audit;
mod client;
mod cluster;
mod groups;
mod guests;
mod history;
mod ledger;
mod machine;
mod node;
mod offer;
mod peers;
mod records;
mod serve;
mod server;
#[cfg(test)]
mod testing;

pub use crate::actor::Actor;
pub use crate::actor::ActorOptions;
pub use crate::audit::{
    AuditBreak, AuditCheck, AuditConfig, AuditError, LineFiles, audit_dir, stamp, verify_audit,
};
pub use crate::client::{CallError, Client, GetError};
pub use crate::cluster::{
    ClusterConfig, ClusterError, DEFAULT_PORT, EtcdOptions, EtcdTls, JoinToken, ParseTokenError,
    Part, StateError, TokensError,
};
pub use crate::guests::groups::{GroupError, NotReady};
pub use crate::guests::names::{FindError, NameError, Silent};
pub use crate::history::DEFAULT_HISTORY_BYTES;
pub use crate::ledger::SubmitError;
pub use crate::machine::Machine;
pub use crate::node::{
    ModuleError, Node, NodeConfig, ParseOfferError, ROOM_PATIENCE, ResourceOffer, StartError,
};
pub use crate::peers::Moved;
pub use crate::records::class::ActorJob;
pub use crate::records::derive::WishError;
pub use crate::records::job::{Argument, Call, Job};
pub use crate::records::object::{LoadError, Loaded, Object, Value};
pub use crate::records::options::{JobError, Overrides};
pub use crate::records::policy::{Policy, PolicyConfig, PolicyError, TooMuch};
pub use crate::records::task::{Phase, Report, TaskHandle, wait_all};
pub use crate::serve::{
    AccessLog, Answers, AnswersError, Served, Service, ServiceConfig, ServiceStats,
    StartServiceError,
};
pub use crate::server::{
    DEFAULT_METRICS_PORT, DashboardLink, EndedAttempts, Metrics, ServeError, ServeMetricsError,
    Server, Stopper, Users, UsersError,
};
pub use wasmrun_engine::Readable;
pub use wasmrun_oidc::{Settings as OidcSettings, SettingsError as OidcError};
pub use wasmrun_store::SpillConfig;
