//! The way to other nodes: messages, requests, bytes, and which members there are.
//!
//! Owns the trait by which the exchange of tasks and objects reaches them ([`Fabric`]). It is the cluster, over QUIC, or the
//! network of the simulation. Must not: know what is in a message.

use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{Arrived, CallError, PullError, PullOptions, SendError};

use super::protocol::{Bulk, OneWay, Request, Response};

/// The members that live, as this node knows them, and the ways to them.
#[async_trait]
pub(crate) trait Fabric: Send + Sync + 'static {
    /// Sends a message to an incarnation of a member, after those before. Waits as long as too much is waiting for it.
    ///
    /// # Errors
    /// When there is no such member, it is in another incarnation, or the message is too long.
    async fn send(&self, to: (NodeId, Incarnation), message: OneWay) -> Result<(), SendError>;

    /// Sends a request to a member, in the incarnation that is known here, and waits so long for the response.
    ///
    /// # Errors
    /// [`CallError::Closed`] if there is no such member.
    async fn request(
        &self,
        to: NodeId,
        request: Request,
        wait: Duration,
    ) -> Result<Response, CallError>;

    /// Pulls bytes of something from this offset on, as many as there is room for. `None` if there is no such member.
    async fn pull(
        &self,
        from: NodeId,
        what: &Bulk,
        offset: u64,
        to: &mut [u8],
        options: &PullOptions,
    ) -> Option<Result<Vec<Arrived>, PullError>>;

    /// Pulls all of something that has no place of its own yet. `None` if there is no such member.
    async fn pull_whole(
        &self,
        from: NodeId,
        what: Bulk,
        len: u64,
    ) -> Option<Result<Vec<u8>, PullError>>;

    /// The runtime on which objects are pulled.
    fn bulk(&self) -> &Handle;

    /// All members besides this node, those first that let others join.
    fn others(&self) -> Vec<NodeId>;

    /// Who could keep something from now on: members besides this node that answer and are not drained.
    fn open_nodes(&self) -> Vec<NodeId>;

    /// What people call a member, or one that left not long ago.
    fn name_of(&self, node: NodeId) -> String;

    /// Whether this node is drained, or about to end.
    fn is_leaving(&self) -> bool;

    /// Whether this node is known to count as alive.
    fn is_confirmed(&self) -> bool;

    /// What this node tells of itself may have changed.
    fn view_changed(&self) {}
}
