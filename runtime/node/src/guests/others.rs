//! What a node asks of the others in its cluster, and tells them.
//!
//! Owns the two traits by which what runs here reaches other nodes: [`Others`], the exchange of tasks and objects, and
//! [`Directory`], the names of nodes and actors. A node that is alone has neither. Must not: know how they are reached.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use wasmrun_control::{Error, LeaseId};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorName, DriverId, NodeId, ObjectId, TaskId};

use crate::guests::claim::{Claim, Settled, Sought, Wants};
use crate::ledger::{Outbound, Start};
use crate::records::actor::ActorCell;
use crate::records::call_log::Ran;
use crate::records::job::Argument;
use crate::records::task::TaskCell;

/// See the [module](self).
#[async_trait]
pub(crate) trait Others: Send + Sync {
    /// An attempt that is about to start. Back if it may: calls of some actors wait until it is known whose those are.
    fn hold_back(&self, start: Start) -> Option<Start>;

    /// Says what the ledger wants other nodes to know.
    fn tell_others(&self, outbound: Outbound);

    /// What this node tells of itself may have changed.
    fn view_changed(&self);

    /// Asks the owner of an actor to end it.
    fn kill(&self, actor: ActorName);

    /// The last reference to another node's actor is gone. The caller may hold the ledger's lock.
    fn actor_dropped(&self, actor: &Arc<ActorCell>);

    /// A driver has gone, and what tasks of its own elsewhere has to end.
    fn driver_gone(&self, driver: DriverId);

    /// An actor that another node owns has a new state.
    fn checkpointed(&self, actor: &Arc<ActorCell>);

    /// An actor that another node owns has made a call. `position`: which it is in this generation, from 1.
    fn tell_call(
        &self,
        actor: &Arc<ActorCell>,
        cell: &Arc<TaskCell>,
        values: &[Argument],
        ran: Ran,
        position: u64,
    );

    /// Whether an object is waited for because nodes do not answer without which it cannot be had.
    fn is_stalled(&self, object: &ObjectId) -> bool;

    /// Looks whether tasks here wait in a circle through other nodes, or for what is held in one, and ends one wait of it.
    async fn look_for_circle(&self, from: &[TaskId]);

    /// Asks who has claimed a name for the actor that has it. Waits as long as that node lives; `None` if it does not,
    /// as far as is known here.
    async fn seek(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        is_wanted: bool,
    ) -> Option<Sought>;
}

/// See the [module](self).
#[async_trait]
pub(crate) trait Directory: Send + Sync {
    /// A node by the name that people know it by, if it is known here.
    fn name_of(&self, node: NodeId) -> String;

    /// The lease under which this node claims names.
    fn lease(&self) -> Option<LeaseId>;

    /// Claims a name, as long as it takes, unless another has it.
    ///
    /// # Errors
    /// When the store refuses it.
    async fn claim(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        wants: &dyn Wants,
    ) -> Result<Settled, Error>;

    /// Who has a name.
    ///
    /// # Errors
    /// When the store does not say.
    async fn claim_of(&self, tenant: &TenantName, name: &str) -> Result<Option<Claim>, Error>;

    /// Gives a name up, as long as it takes, if this is still the claim to it.
    async fn unclaim(&self, tenant: &TenantName, name: &str, claim: &Bytes);
}
