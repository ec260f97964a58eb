//! What the exchange with other nodes is told by the cluster.
//!
//! Owns the trait by which members, their messages and the records of the control store come ([`Work`]). The exchange is one;
//! tests of the cluster have others. Must not: know how members are found, or reached.

use async_trait::async_trait;
use wasmrun_model::fairness::{TenantConfig, TenantName};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::scheduler::{NodeInfo, PeerView, Settings};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

use super::protocol::{Bulk, OneWay, Request, Response};
use crate::ledger::GroupNews;

/// What the rest of the node does with what peers say and do. All but `request` and `bulk` must be quick and
/// never block: they are called in the order in which things happen, while the next waits.
#[async_trait]
pub(crate) trait Work: Send + Sync + 'static {
    /// A message of a member.
    fn one_way(&self, from: NodeId, message: OneWay);

    /// A request of a member. Dropped when it waits no longer.
    async fn request(&self, from: NodeId, request: Request) -> Response;

    /// Sends a member this range of bytes.
    async fn bulk(
        &self,
        from: NodeId,
        what: Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal>;

    /// A node is alive by its lease. Before any view or message of it. An incarnation that has left joins again only
    /// if it was this node that was counted as dead, and not the other.
    fn joined(&self, node: &NodeInfo);

    /// These incarnations of nodes are dead, or (`is_over: false`) this node was for the others, for all of them
    /// at once. Those have joined again soon, or are said to have left once more.
    fn left(&self, incarnations: &[(NodeId, Incarnation)], is_over: bool);

    /// What a member tells of itself, newer than all before.
    fn view(&self, node: NodeInfo, view: PeerView);

    /// What we tell. The version is filled in by the caller.
    fn own_view(&self) -> PeerView;

    /// `false`: our lease could not be confirmed for one time to live, and we may be counted as dead.
    fn is_lease_confirmed(&self, is_confirmed: bool);

    /// A node, which may be this one, is to take no new work, or may again.
    fn set_draining(&self, _node: NodeId, _is_draining: bool) {}

    /// A member cannot be spoken with, though it counts as alive, or can again.
    fn set_reachable(&self, _node: NodeId, _is_reachable: bool) {}

    /// How far a member is behind with what is said to it.
    fn backlog(&self, _node: NodeId) -> Backlog {
        Backlog::default()
    }

    /// What a tenant is due from now on, in the whole cluster. Told before this node is registered, and whenever it
    /// changes.
    fn set_tenant(&self, _tenant: TenantName, _config: TenantConfig) {}

    /// How this node's scheduler is to decide from now on. Told as of tenants.
    fn configure(&self, _settings: Settings) {}

    /// Which placement groups have records, and whose. Told before this node is registered, and whenever it changes.
    fn group_news(&self, _news: GroupNews) {}
}

/// How far a member is behind with the messages for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backlog {
    /// How many it has not taken.
    pub(crate) waiting: u64,
    /// How many it has.
    pub(crate) taken: u64,
}
