//! Capacity planning: the scheduler in virtual time.
//!
//! Owns the input and the output of `wasmrun simulate`: the [`Scenario`] and its JSON, the trace of
//! what happens ([`TraceLine`]), the [`run`] between them, and the figures ([`Statistics`]) with
//! their [`Summary`] for programs and for people. Must not: decide anything that the scheduler
//! decides, read a file, print, or use floats.
//!
//! Invariant: the same scenario gives the same output, byte for byte.

mod compare;
mod decimal;
mod fuzz;
mod run;
#[cfg(test)]
mod run_properties;
#[cfg(test)]
mod run_tests;
pub mod scenario;
mod statistics;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod trace;
mod work;

pub use decimal::Decimal;
#[doc(hidden)]
pub use fuzz::fuzz_scenario;
pub use run::run;
pub use scenario::{Scenario, ScenarioError};
pub use statistics::Statistics;
pub use summary::{Counts, NodeSummary, Summary, TenantSummary, VERSION, Waits};
pub use trace::{HeldIds, TraceEvent, TraceLine};
