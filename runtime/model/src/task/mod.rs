//! A task as the scheduler sees it: what it asks for, and its state.
//!
//! Owns [`TaskSpec`] (what is submitted), [`TaskState`] and [`Phase`] (where a task stands, and
//! which changes are legal), [`Cancellation`]. Must not: know what a task runs; whoever submits keeps that.

mod cancellation;
mod spec;
mod state;

pub use cancellation::Cancellation;
pub use spec::{Argument, MAX_ALTERNATIVES, Rule, TaskKind, TaskSpec, Terms, alternative, shared};
pub use state::{Assignment, Attempt, BlockedOn, FailureKind, Phase, Place, TaskState};
