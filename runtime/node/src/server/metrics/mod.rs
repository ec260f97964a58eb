//! What a node tells those who watch it: numbers for Prometheus, and whether it is fit for work.
//!
//! Owns the endpoint (`http`), its format (`text`), and which numbers there are (`sample`, and `nodes` for
//! those of the cluster). They are read when somebody asks, so a node that nobody watches does nothing for it.

mod http;
mod ledger;
mod nodes;
mod process;
mod sample;
mod services;
mod text;

pub use self::http::{DEFAULT_METRICS_PORT, Metrics, ServeMetricsError};
