//! What tasks, objects and results do across nodes.
//!
//! Owns the node's side of [`Work`]: what becomes of what peers say and do. Must not: know certificates,
//! leases or the control store.

mod protocol;

use std::sync::Weak;

use async_trait::async_trait;
use wasmrun_model::cluster::QueueReport;
use wasmrun_model::id::{Incarnation, NodeId, ObjectName};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

pub(crate) use protocol::{OneWay, Request, Response};

use super::Work;
use crate::node::Shared;

/// The work of a node that is in a cluster.
pub(crate) struct Across(pub(crate) Weak<Shared>);

#[async_trait]
impl Work for Across {
    fn one_way(&self, _from: NodeId, message: OneWay) {
        match message {}
    }

    async fn request(&self, _from: NodeId, request: Request) -> Response {
        match request {}
    }

    async fn bulk(
        &self,
        _from: NodeId,
        _name: ObjectName,
        _range: Range,
        _to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        Err(BulkRefusal::NotHere)
    }

    fn joined(&self, _node: &NodeInfo) {}

    fn left(&self, _node: NodeId, _incarnation: Incarnation) {}

    fn view(&self, _node: NodeInfo, _view: PeerView) {}

    fn own_view(&self) -> PeerView {
        let mut view = PeerView {
            version: 0,
            resources: Default::default(),
            queue: QueueReport::default(),
            usage: Default::default(),
        };
        if let Some(shared) = self.0.upgrade() {
            let ledger = shared.ledger.lock();
            let scheduler = ledger.scheduler();
            let own = scheduler.own_nodes().first();
            if let Some(own) = own.and_then(|ix| scheduler.cluster().own(*ix)) {
                view.resources = own.report();
            }
            view.queue.tasks = ledger.waiting() as u64;
            view.usage = scheduler.tenants().own_usage();
        }
        view
    }

    fn is_lease_confirmed(&self, _is_confirmed: bool) {}
}
