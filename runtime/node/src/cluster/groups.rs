//! Which placement groups outlive their owners, by the control store: the same at all nodes.
//!
//! Owns what is in the record of a group, and the watch by which a node's scheduler hears whose each group is
//! ([`Work`](super::Work)). Must not: write records, which is the server's (`server/durable/groups`), or decide who takes
//! one over.
//!
//! All nodes know all records, for there are few: so whoever has something of a group knows whether that outlives its
//! owner, and whom to ask afterwards, without a question to anybody.
//!
//! Invariant: a record that changes hands is never seen to be away.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmrun_control::records::{GROUPS, Record};
use wasmrun_control::{Changes, ControlStore, Entry, Error, Event, Revision, Watch};
use wasmrun_model::id::{GroupId, NodeId};

use super::records::parts;
use super::watched::{self, Follow};
use crate::ledger::{GroupNews, GroupRecord};

/// Who is told.
pub(super) type Tell = Box<dyn Fn(GroupNews) + Send + Sync>;

/// Follows the records.
pub(super) struct Follower {
    store: Arc<dyn ControlStore>,
    tell: Tell,
    /// Whose each group is, as it was told last.
    owners: BTreeMap<GroupId, NodeId>,
}

impl Follower {
    /// Tells what is there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn begin(
        store: Arc<dyn ControlStore>,
        tell: Tell,
    ) -> Result<(Self, Watch), Error> {
        let mut follower = Self {
            store,
            tell,
            owners: BTreeMap::new(),
        };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn put(&mut self, entry: &Entry) {
        let Some((owner, group)) = parts::<GroupId>(&entry.key) else {
            return;
        };
        match GroupRecord::from_value(&entry.value) {
            Ok(record) => {
                tracing::debug!(%group, node = %owner, takeovers = record.takeovers, "a placement group has a record");
                self.owners.insert(group, owner);
                (self.tell)(GroupNews::Recorded(group, owner, Box::new(record)));
            }
            Err(error) => {
                tracing::warn!(%group, %error, "the record of a placement group cannot be read, and does not count");
            }
        }
    }

    fn remove(&mut self, group: GroupId, owner: NodeId) {
        if self.owners.get(&group) == Some(&owner) {
            self.owners.remove(&group);
            tracing::debug!(%group, node = %owner, "a placement group has no record any more");
            (self.tell)(GroupNews::Unrecorded(group, owner));
        }
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = GROUPS;
    const WHAT: &'static str = "records of placement groups";

    fn store(&self) -> &dyn ControlStore {
        self.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], _: Revision) {
        let before = self.owners.clone();
        // A page may be older than the next, with a record that was taken over between them: the later one counts.
        for entry in entries {
            self.put(entry);
        }
        let keys = entries
            .iter()
            .filter_map(|entry| parts::<GroupId>(&entry.key));
        let there: BTreeMap<GroupId, NodeId> = keys.map(|(owner, group)| (group, owner)).collect();
        for (group, owner) in before {
            if !there.contains_key(&group) {
                self.remove(group, owner);
            }
        }
    }

    /// A record that has another owner is put there and deleted here.
    fn changed(&mut self, changes: Changes) {
        let mut gone = Vec::new();
        for event in changes.events {
            match event {
                Event::Put(entry) => self.put(&entry),
                Event::Delete { key } => gone.extend(parts::<GroupId>(&key)),
            }
        }
        for (owner, group) in gone {
            self.remove(group, owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;
    use wasmrun_control::{Condition, Embedded, EmbeddedConfig, Op, Txn, records};

    use wasmrun_model::fairness::TenantName;

    use super::*;

    const GROUP: GroupId = GroupId::from_bytes([3; 16]);
    const ONE: NodeId = NodeId::from_bytes([1; 16]);
    const OTHER: NodeId = NodeId::from_bytes([2; 16]);

    fn record(takeovers: u32) -> GroupRecord {
        let spec = r#"{"kind": "spread", "bundles": [{"CPU": "0.5"}]}"#;
        GroupRecord {
            spec: serde_json::from_str(spec).unwrap(),
            tenant: TenantName::default(),
            name: None,
            takeovers,
        }
    }

    #[test]
    fn a_record_has_these_bytes_and_reads_as_it_was_written() {
        let value = record(7).to_value();
        let text = r#"{"spec":{"kind":"spread","bundles":[{"CPU":"0.5"}]},"tenant":"default","takeovers":7}"#;
        assert_eq!(&value[..2], b"j\x01");
        assert_eq!(std::str::from_utf8(&value[2..]).unwrap(), text);
        assert_eq!(GroupRecord::from_value(&value), Ok(record(7)));
    }

    #[tokio::test]
    async fn a_record_that_changes_hands_is_never_away() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default())
            .await
            .unwrap();
        let put =
            |owner, takeovers| Op::put(records::group(owner, GROUP), record(takeovers).to_value());
        store.txn(Txn::default().then(put(ONE, 0))).await.unwrap();
        let told = Arc::<Mutex<Vec<GroupNews>>>::default();
        let tell: Tell = Box::new({
            let told = told.clone();
            move |news| told.lock().push(news)
        });
        let (mut follower, mut watch) = Follower::begin(store.clone(), tell).await.unwrap();
        let recorded = |owner, it| GroupNews::Recorded(GROUP, owner, Box::new(record(it)));
        assert_eq!(std::mem::take(&mut *told.lock()), [recorded(ONE, 0)]);
        let from: Bytes = records::group(ONE, GROUP);
        let taken = Txn::when(from.clone(), Condition::Present)
            .then(Op::delete(from))
            .then(put(OTHER, 1));
        store.txn(taken).await.unwrap();
        follower.changed(watch.next().await.unwrap());
        assert_eq!(std::mem::take(&mut *told.lock()), [recorded(OTHER, 1)]);
        // The same where it was not followed meanwhile.
        drop(watched::begin(&mut follower).await.unwrap());
        assert_eq!(std::mem::take(&mut *told.lock()), [recorded(OTHER, 1)]);
        store.delete(records::group(OTHER, GROUP)).await.unwrap();
        drop(watched::begin(&mut follower).await.unwrap());
        let gone = GroupNews::Unrecorded(GROUP, OTHER);
        assert_eq!(std::mem::take(&mut *told.lock()), [gone]);
    }
}
