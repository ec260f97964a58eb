//! Placement groups: bundles of resources that are reserved together, all or nothing.
//!
//! Owns what a group is ([`GroupSpec`]), where its bundles go ([`plan`]), and how they are reserved
//! in two phases: the owner's side ([`Coordinator`]), the side of each node ([`Participant`]), and
//! what the two tell each other ([`GroupMessage`]). Must not: run tasks, know labels or tenants,
//! choose between groups.
//!
//! Invariants: nothing is committed unless every bundle of its round is prepared; a bundle that was
//! taken from a node is given back to it exactly once; messages may be lost, doubled, late and out
//! of order, and every one names the reservation it is about, so a stale one changes nothing; what can be used stays
//! where it is when another node takes a group over whose owner is lost.
//!
//! The four kinds and their meaning are those of Ray's placement groups, as are the two phases; the
//! protocol is two-phase commit as in Gray's "Notes on Data Base Operating Systems" (1978), with
//! "node lost" in place of recovery, because a node that dies takes its reservations along.

mod coordinator;
#[cfg(test)]
mod coordinator_tests;
mod matching;
mod message;
mod participant;
mod plan;
mod plan_error;
#[cfg(test)]
mod plan_tests;
mod room;
#[cfg(test)]
mod simulation;
mod spec;

pub use coordinator::{Coordinator, CoordinatorEffect, GroupState};
pub use message::{GroupAnswer, GroupMessage, GroupRequest, Refusal, ReservationId, Round};
pub use participant::{BundleError, ORPHAN_LIMIT, Participant, ParticipantEffect};
pub use plan::{Wanted, plan, plan_among, plan_beside};
pub use plan_error::{Impossible, PlanError, Unplaced};
pub use room::Offer;
pub use spec::{GroupKind, GroupSpec, GroupSpecError, MAX_BUNDLES, ParseGroupKindError};
