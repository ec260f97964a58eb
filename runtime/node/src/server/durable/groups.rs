//! Detached placement groups that outlive the node where they were created.
//!
//! Owns writing their records, and the loop that takes over those of nodes that are lost, and of earlier incarnations
//! of this one. One node adopts all groups of a lost one, in the order of `adopt`. Must not: know what is reserved where;
//! the coordinator asks for that (`model/src/group`).
//!
//! Invariants: what is created and answered without a warning is in the control store; a group is this node's only
//! while its record is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_control::Error;
use wasmrun_control::records::Record as _;
use wasmrun_model::id::{GroupId, NodeId};

use super::adopt::durable;
use super::patience;
use crate::cluster::{Cluster, Found, Heir, Records, Written, look};
use crate::ledger::GroupRecord;
use crate::server::Inner;
use crate::server::stored::{Durable, MOST_BYTES};

/// Why a group is not durable yet.
const SILENT: &str = "the control store does not answer; when it does, the group will be kept";

/// How often is looked whether all nodes are known.
const LOOK: Duration = Duration::from_millis(100);

/// Who looks for groups without an owner.
struct Looking {
    inner: Weak<Inner>,
    cluster: Arc<Cluster>,
}

impl Inner {
    /// Waits until a group that was created here outlives this node. Else why it does not, for whoever has created it.
    pub(in crate::server) async fn keep_group(
        &self,
        group: GroupId,
        record: GroupRecord,
    ) -> Result<(), String> {
        let Some(durable) = self.durable.get() else {
            return Ok(());
        };
        let value = record.to_value();
        if value.len() > MOST_BYTES {
            let bytes = value.len();
            return Err(format!(
                "its bundles have {bytes} bytes, and {MOST_BYTES} are kept at most"
            ));
        }
        let Some(written) = durable.groups.put(group, value) else {
            return Err("too many records wait for the control store".to_owned());
        };
        match tokio::time::timeout(patience(&durable.groups), written).await {
            // Where another has it, it is taken over there, and the scheduler hears of that.
            Ok(Ok(Written::Done | Written::Taken)) => Ok(()),
            Ok(Ok(Written::Refused(why))) => Err(why),
            Ok(Err(_)) => Err("the node is stopping".to_owned()),
            Err(_) => {
                durable.groups.set_silent();
                Err(SILENT.to_owned())
            }
        }
    }

    /// Ends the record of a group that this node owns, and then the group: one that was removed is not there again when
    /// this node is lost. Where the store does not answer the group ends, and the record later. False, and nothing ends,
    /// where another node has taken it over, while this one counted as dead.
    pub(in crate::server) async fn end_group(self: &Arc<Self>, group: GroupId) -> bool {
        if let Some(durable) = self.durable.get() {
            let deleted = durable.groups.delete(group);
            let deleted = tokio::time::timeout(patience(&durable.groups), deleted).await;
            if matches!(deleted, Ok(Ok(Written::Taken))) {
                return false;
            }
        }
        self.shared.remove_groups(&[group]);
        true
    }

    /// Ends the record of a group that this node owns, without waiting for that.
    pub(in crate::server) fn forget_group(&self, group: GroupId) {
        if let Some(durable) = self.durable.get() {
            drop(durable.groups.delete(group));
        }
    }

    /// Begins to look for groups without an owner.
    pub(super) fn look_for_groups(self: &Arc<Self>, cluster: &Arc<Cluster>) {
        let looking = Looking {
            inner: Arc::downgrade(self),
            cluster: cluster.clone(),
        };
        // It ends with the server.
        self.shared.control.spawn(look(looking, cluster.reasons()));
    }
}

#[async_trait]
impl Heir<GroupId> for Looking {
    type Server = Inner;

    fn server(&self) -> Option<Arc<Inner>> {
        let inner = self.inner.upgrade()?;
        let is_open = inner.durable.get().is_some_and(|it| !it.is_closed());
        is_open.then_some(inner)
    }

    fn records(inner: &Inner) -> &Records<GroupId> {
        &durable(inner).groups
    }

    fn is_willing(inner: &Inner) -> bool {
        !inner.is_draining.load(Ordering::Acquire)
    }

    async fn look_at_own(&mut self, inner: &Arc<Inner>) -> Result<bool, Error> {
        let durable = durable(inner);
        let mut found = durable.groups.own().await?;
        inner.shared.ask(|ledger| {
            found.retain(|it: &Found<GroupId>| !ledger.scheduler().owns_group(&it.id));
        });
        self.take_over(inner, durable, self.cluster.id(), found)
            .await?;
        Ok(false)
    }

    async fn inherit(
        &mut self,
        inner: &Arc<Inner>,
        owner: NodeId,
        found: Vec<Found<GroupId>>,
    ) -> Result<(), Error> {
        self.take_over(inner, durable(inner), owner, found).await
    }
}

impl Looking {
    /// Waits until all nodes are known here that were there when the groups became this node's: each may have something
    /// of them, and is asked. Nobody who comes later has anything that an owner before has reserved.
    async fn meet_all(&self, inner: &Inner, durable: &Durable) -> Result<(), Error> {
        // Whoever ends meets nobody any more.
        while !durable.is_closed() {
            let registered = self.cluster.registered().await?;
            let are_known = inner.shared.ask(|ledger| {
                let nodes = ledger.scheduler().cluster();
                registered.iter().all(|node: &NodeId| nodes.is_there(*node))
            });
            if are_known {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn take_over(
        &self,
        inner: &Arc<Inner>,
        durable: &Durable,
        owner: NodeId,
        found: Vec<Found<GroupId>>,
    ) -> Result<(), Error> {
        let (mut records, mut values) = (Vec::new(), Vec::new());
        for found in found {
            match GroupRecord::from_value(found.value()) {
                Ok(mut record) => {
                    record.takeovers = record.takeovers.saturating_add(1);
                    values.push((found, record.to_value()));
                    records.push(record);
                }
                Err(error) => {
                    tracing::warn!(group = %found.id, %error, "the record of a placement group is left");
                }
            }
        }
        if values.is_empty() {
            return Ok(());
        }
        let taken = durable.groups.take(owner, &values).await?;
        self.meet_all(inner, durable).await?;
        for ((found, _), record) in values.iter().zip(records) {
            if taken.contains(&found.id) {
                tracing::info!(group = %found.id, node = %owner, "a placement group is taken over");
                let driver = inner.detached.driver();
                inner.shared.take_group_over(found.id, record, driver);
            }
        }
        Ok(())
    }
}
