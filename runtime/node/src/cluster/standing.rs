//! What this node is to the control store, and whom it knows to be registered there.
//!
//! Owns what records, names and takeovers need of the cluster. Must not: know what is in a record.

use std::sync::Arc;

use wasmrun_control::records::NODES;
use wasmrun_control::{Clock, ControlStore, Error, LeaseId};
use wasmrun_model::id::NodeId;

use super::records::Standing;
use super::{Cluster, Reasons, watched};

impl Standing for Cluster {
    fn id(&self) -> NodeId {
        self.id
    }

    fn store(&self) -> &dyn ControlStore {
        self.store.as_ref()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn lease(&self) -> Option<LeaseId> {
        self.lease()
    }

    fn others(&self) -> Vec<NodeId> {
        self.members.ids().into_iter().collect()
    }
}

impl Cluster {
    /// Who lives besides this node, those first where others join.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        self.members.heads_first()
    }

    /// All nodes that are registered, by what the store says now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn registered(&self) -> Result<Vec<NodeId>, Error> {
        let (entries, _) = watched::entries(self.store.as_ref(), NODES).await?;
        let ids = entries.iter().filter_map(|entry| {
            let id = entry.key.strip_prefix(NODES.as_bytes())?;
            std::str::from_utf8(id).ok()?.parse().ok()
        });
        Ok(ids.collect())
    }

    /// What is a reason to look for records without an owner.
    pub(crate) fn reasons(&self) -> Reasons {
        Reasons::new(self.members.count(), self.returns.subscribe())
    }
}
