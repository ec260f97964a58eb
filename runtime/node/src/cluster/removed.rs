//! Nodes that were taken out of the cluster: nobody talks to them any more, whatever certificate they have.
//!
//! Owns the record at `removed/ID`, and the watch by which a node hears whom it is not to talk to. Must not: refuse
//! connections or close them; that is `net`'s, which is told who is removed.
//!
//! Invariants: a removal is never taken back, as the certificate is not: who is to come again joins anew and is another
//! node. A record that cannot be read removes its node nevertheless: that it is there says so. A record is forgotten when no
//! certificate of its node can be valid any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use wasmrun_control::records::{self, Form, REMOVED, Record};
use wasmrun_control::{
    Changes, Condition, ControlStore, Entry, Error, Event, Op, Revision, Txn, Watch,
};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::NodeId;

use super::lines::Lines;
use super::renew::LIFETIME;
use super::watched::{self, Applied, Follow};

/// For how long after its last certificate can have ended a removed node is remembered.
const REMEMBERED_S: u64 = 24 * 3600;

/// What is kept of a removed node. Time in seconds since 1970, by the clock of the head, which makes certificates end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Tombstone {
    /// What it was called, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<NodeName>,
    /// [`u64::MAX`] where the head has not said what time it is: then it is kept for good.
    removed_s: u64,
}

impl Record for Tombstone {
    // Nodes of two versions read it.
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

impl Tombstone {
    fn is_over(&self, now_s: u64) -> bool {
        // Its certificate was not renewed since.
        let ends_s = self.removed_s.saturating_add(LIFETIME.as_secs());
        ends_s.saturating_add(REMEMBERED_S) <= now_s
    }
}

/// The removed nodes, as the store has them.
pub(crate) struct Removed {
    own: NodeId,
    store: Arc<dyn ControlStore>,
    lines: Arc<Lines>,
    nodes: watch::Sender<BTreeSet<NodeId>>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Removed {
    pub(super) fn new(own: NodeId, store: Arc<dyn ControlStore>, lines: Arc<Lines>) -> Self {
        Self {
            own,
            store,
            lines,
            nodes: watch::Sender::default(),
            applied: Applied::default(),
        }
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.borrow().contains(&node)
    }

    /// Waits until this node was removed, for ever if it never is.
    pub(super) async fn own(&self) {
        // The sender is ours.
        let _ = self
            .nodes
            .subscribe()
            .wait_for(|nodes| nodes.contains(&self.own))
            .await;
    }

    /// Somebody who goes by it has said that this node was removed.
    pub(super) fn hear(&self) {
        self.nodes.send_if_modified(|nodes| nodes.insert(self.own));
    }

    /// Takes a node out of the cluster, for all others; the lease that it has ends. This node goes by it then, unless the
    /// store has stopped answering just now. `now_s` is by the clock of the head, if that has said it.
    ///
    /// # Errors
    /// When the store does not do it. To do it again is fine.
    pub(super) async fn remove(
        &self,
        node: NodeId,
        name: Option<NodeName>,
        now_s: Option<u64>,
    ) -> Result<(), Error> {
        let store = self.store.as_ref();
        let removed_s = now_s.unwrap_or(u64::MAX);
        let key = records::removed(node);
        let put = Op::put(key.clone(), Tombstone { name, removed_s }.to_value());
        // The first removal counts: the certificate is no older for a second one.
        let reply = store
            .txn(Txn::when(key, Condition::Absent).then(put))
            .await?;
        // It cannot keep it alive any more; so the others need not wait until it ends.
        let lease = store.get(&records::node(node)).await?;
        if let Some(lease) = lease.and_then(|entry| entry.lease) {
            store.revoke(lease).await?;
        }
        if let Some(now_s) = now_s
            && let Err(error) = forget(store, now_s).await
        {
            tracing::debug!(%error, "removed nodes are remembered for longer");
        }
        self.applied.reach_soon(reply.revision).await;
        Ok(())
    }
}

/// Whether a node was removed, by what the store has.
pub(super) async fn is_removed(store: &dyn ControlStore, node: NodeId) -> Result<bool, Error> {
    Ok(store.get(&records::removed(node)).await?.is_some())
}

/// All that were removed, by what the store has.
pub(super) async fn all(store: &dyn ControlStore) -> Result<BTreeSet<NodeId>, Error> {
    let (entries, _) = watched::entries(store, REMOVED).await?;
    let nodes = entries.iter().filter_map(|entry| node_of(&entry.key));
    Ok(nodes.collect())
}

/// Forgets those that cannot come any more.
async fn forget(store: &dyn ControlStore, now_s: u64) -> Result<(), Error> {
    let is_over = |entry: &Entry| {
        let known = Tombstone::from_value(&entry.value);
        known.is_ok_and(|known| known.is_over(now_s))
    };
    watched::prune(store, REMOVED, is_over).await
}

fn node_of(key: &[u8]) -> Option<NodeId> {
    let id = key.strip_prefix(REMOVED.as_bytes())?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// Has the network go by what is in the store.
pub(super) struct Follower(Arc<Removed>);

impl Follower {
    /// Goes by what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(removed: Arc<Removed>) -> Result<(Self, Watch), Error> {
        let mut follower = Self(removed);
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn apply(&self, nodes: BTreeSet<NodeId>, revision: Revision) {
        for node in nodes.difference(&self.0.nodes.borrow()) {
            tracing::info!(%node, "a node was removed from the cluster");
        }
        self.0.lines.set_removed(nodes.clone());
        self.0.nodes.send_replace(nodes);
        self.0.applied.set(revision);
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = REMOVED;
    const WHAT: &'static str = "which nodes were removed";

    fn store(&self) -> &dyn ControlStore {
        self.0.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        let nodes = entries.iter().filter_map(|entry| node_of(&entry.key));
        self.apply(nodes.collect(), revision);
    }

    fn changed(&mut self, changes: Changes) {
        let mut nodes = self.0.nodes.borrow().clone();
        for event in changes.events {
            match event {
                Event::Put(entry) => {
                    nodes.extend(node_of(&entry.key));
                }
                Event::Delete { key } => {
                    node_of(&key).map(|node| nodes.remove(&node));
                }
            }
        }
        self.apply(nodes, changes.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_these_bytes_and_reads_as_it_was_written() {
        let known = Tombstone {
            name: Some("b".parse().unwrap()),
            removed_s: 1,
        };
        let value = known.to_value();
        assert_eq!(&value[..2], b"j\x01");
        let text = std::str::from_utf8(&value[2..]);
        assert_eq!(text, Ok(r#"{"name":"b","removed_s":1}"#));
        assert_eq!(Tombstone::from_value(&value), Ok(known));
        // What a later version adds is skipped.
        let later = Tombstone::from_value(b"j\x01{\"removed_s\":3,\"by\":1}").unwrap();
        assert_eq!(later.removed_s, 3);
        let node = NodeId::from_bytes([7; 16]);
        assert_eq!(node_of(&records::removed(node)), Some(node));
        assert_eq!(node_of(b"removed/x"), None);
    }

    #[test]
    fn a_node_is_remembered_while_it_could_have_a_certificate() {
        let known = Tombstone {
            name: None,
            removed_s: 100,
        };
        let last_s = 100 + LIFETIME.as_secs() + REMEMBERED_S;
        assert!(!known.is_over(last_s - 1));
        assert!(known.is_over(last_s));
        let for_good = Tombstone {
            removed_s: u64::MAX,
            ..known
        };
        assert!(!for_good.is_over(u64::MAX - 1));
    }
}
