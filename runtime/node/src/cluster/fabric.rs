//! The cluster as what connects the node's work with others: members over QUIC.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{Arrived, CallError, PullError, PullOptions, SendError};

use super::Cluster;
use super::protocol::{OneWay, Request, Response};
use crate::peers::{self, Fabric};

#[async_trait]
impl Fabric for Cluster {
    async fn send(
        &self,
        (to, incarnation): (NodeId, Incarnation),
        message: peers::OneWay,
    ) -> Result<(), SendError> {
        let peer = self.peer(to).ok_or(SendError::Closed)?;
        peer.send_in(incarnation, &OneWay::Work(message)).await
    }

    async fn request(
        &self,
        to: NodeId,
        request: peers::Request,
        wait: Duration,
    ) -> Result<peers::Response, CallError> {
        let incarnation = self.members.incarnation(to).ok_or(CallError::Closed)?;
        let peer = self.peer(to).ok_or(CallError::Closed)?;
        let request = Request::Work(request);
        match peer.call_in(incarnation, &request, wait).await? {
            Response::Work(response) => Ok(response),
            // It did not begin with it.
            _ => Err(CallError::Busy),
        }
    }

    async fn pull(
        &self,
        from: NodeId,
        what: &peers::Bulk,
        offset: u64,
        to: &mut [u8],
        options: &PullOptions,
    ) -> Option<Result<Vec<Arrived>, PullError>> {
        Some(self.peer(from)?.pull(what, offset, to, options).await)
    }

    async fn pull_whole(
        &self,
        from: NodeId,
        what: peers::Bulk,
        len: u64,
    ) -> Option<Result<Vec<u8>, PullError>> {
        let from = self.peer(from)?;
        // In a set, which ends it when nobody waits for it any more.
        let mut pulling = JoinSet::new();
        let pull = async move {
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            let options = PullOptions::default();
            let pulled = from.pull(&what, 0, &mut bytes, &options).await;
            pulled.map(|_| bytes)
        };
        pulling.spawn_on(pull, self.bulk());
        match pulling.join_next().await {
            Some(Ok(pulled)) => Some(pulled),
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The node is stopping.
            _ => std::future::pending().await,
        }
    }

    fn bulk(&self) -> &Handle {
        self.lines.bulk()
    }

    fn others(&self) -> Vec<NodeId> {
        self.others()
    }

    fn open_nodes(&self) -> Vec<NodeId> {
        self.members.open()
    }

    fn name_of(&self, node: NodeId) -> String {
        self.name_of(node)
    }

    fn is_leaving(&self) -> bool {
        let own = self.own.lock();
        self.is_stopping.load(Ordering::Acquire) || own.as_ref().is_some_and(|it| it.is_draining)
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed()
    }

    fn view_changed(&self) {
        self.view_changed();
    }
}
