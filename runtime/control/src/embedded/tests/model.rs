//! Random operations on the store and on an ordered map; both must say the same.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::types::{Compare, Event, OpReply};

#[derive(Debug, Clone)]
enum Step {
    Txn(Txn),
    Range(Range),
    Compact(u64),
    Reopen,
    Grant,
    Revoke(usize),
}

/// Few keys, so that they meet.
fn key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "ab", "abc", "b", "ba", "c"]).prop_map(Bytes::from)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        key().prop_map(|key| Op::Get { key }),
        key().prop_map(|key| Op::Delete { key }),
        // The lease is one of those granted, by number; see `Model::txn`.
        (key(), any::<u8>(), prop::option::of(0..4_u64)).prop_map(|(key, value, lease)| Op::Put {
            key,
            value: vec![value].into(),
            lease: lease.map(LeaseId),
        }),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    let condition = prop_oneof![
        Just(Condition::Absent),
        Just(Condition::Present),
        (0..4_u64).prop_map(Condition::Version),
        (0..40_u64).prop_map(|revision| Condition::Modified(Revision(revision))),
        any::<u8>().prop_map(|value| Condition::Value(vec![value].into())),
    ];
    (key(), condition).prop_map(|(key, condition)| Compare { key, condition })
}

fn txn() -> impl Strategy<Value = Txn> {
    let ops = || prop::collection::vec(op(), 0..4);
    (prop::collection::vec(compare(), 0..2), ops(), ops()).prop_map(
        |(compares, then, otherwise)| Txn {
            compares,
            then,
            otherwise,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => txn().prop_map(Step::Txn),
        3 => (prop::sample::select(vec!["", "a", "ab", "b"]), key(), 0..4_usize).prop_map(
            |(prefix, from, limit)| Step::Range(Range { prefix: prefix.into(), from, limit })
        ),
        1 => (0..30_u64).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        2 => Just(Step::Grant),
        1 => (0..4_usize).prop_map(Step::Revoke),
    ]
}

/// The store as an ordered map.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Bytes, Entry>,
    history: Vec<Changes>,
    compacted: u64,
    leases: Vec<(LeaseId, bool)>,
}

use crate::types::Changes;

impl Model {
    fn revision(&self) -> u64 {
        self.history.len() as u64
    }

    fn record(&mut self, events: Vec<Event>) {
        if !events.is_empty() {
            let revision = Revision(self.revision() + 1);
            self.history.push(Changes { revision, events });
        }
    }

    /// The lease that a generated transaction means.
    fn lease(&self, number: LeaseId) -> LeaseId {
        let lease = self.leases.get(usize::try_from(number.0).unwrap());
        lease.map_or(LeaseId(1_000 + number.0), |(lease, _)| *lease)
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnReply, Error> {
        txn.check()?;
        let succeeded = txn
            .compares
            .iter()
            .all(|compare| compare.condition.holds(self.entries.get(&compare.key)));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        for op in ops {
            if let Op::Put {
                lease: Some(lease), ..
            } = op
                && !self.leases.contains(&(*lease, true))
            {
                return Err(Error::LeaseLost { lease: *lease });
            }
        }
        let revision = Revision(self.revision() + 1);
        let mut events = Vec::new();
        let mut replies = Vec::new();
        for op in ops {
            replies.push(match op {
                Op::Get { key } => OpReply::Got(self.entries.get(key).cloned()),
                Op::Put { key, value, lease } => {
                    let old = self.entries.get(key);
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created: old.map_or(revision, |old| old.created),
                        modified: revision,
                        version: old.map_or(0, |old| old.version) + 1,
                        lease: *lease,
                    };
                    self.entries.insert(key.clone(), entry.clone());
                    events.push(Event::Put(entry));
                    OpReply::Put
                }
                Op::Delete { key } => {
                    let was_there = self.entries.remove(key).is_some();
                    events.extend(was_there.then(|| Event::Delete { key: key.clone() }));
                    OpReply::Deleted(was_there)
                }
            });
        }
        self.record(events);
        Ok(TxnReply {
            revision: Revision(self.revision()),
            succeeded,
            replies,
        })
    }

    fn revoke(&mut self, lease: LeaseId) {
        let dead: Vec<Bytes> = self
            .entries
            .values()
            .filter(|entry| entry.lease == Some(lease))
            .map(|entry| entry.key.clone())
            .collect();
        dead.iter().for_each(|key| drop(self.entries.remove(key)));
        self.record(dead.into_iter().map(|key| Event::Delete { key }).collect());
        for known in &mut self.leases {
            known.1 &= known.0 != lease;
        }
    }

    fn page(&self, range: &Range) -> Page {
        let mut found = self
            .entries
            .range(range.start().clone()..)
            .filter(|(key, _)| key.starts_with(&range.prefix));
        let entries: Vec<Entry> = found
            .by_ref()
            .take(range.limit())
            .map(|(_, entry)| entry.clone())
            .collect();
        let next = found.next().and_then(|_| entries.last());
        Page {
            next: next.map(|last| after_key(&last.key)),
            entries,
            revision: Revision(self.revision()),
        }
    }
}

async fn run(path: &Path, steps: Vec<Step>) {
    let mut store = open(path).await;
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Txn(mut txn) => {
                for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
                    if let Op::Put { lease, .. } = op {
                        *lease = lease.map(|number| model.lease(number));
                    }
                }
                assert_eq!(store.txn(txn.clone()).await, model.txn(&txn), "{txn:?}");
            }
            Step::Range(range) => {
                assert_eq!(store.range(range.clone()).await, Ok(model.page(&range)));
            }
            Step::Compact(through) => {
                let done = store.compact(Revision(through)).await;
                assert_eq!(done.is_ok(), through <= model.revision());
                if done.is_ok() {
                    model.compacted = model.compacted.max(through);
                }
            }
            Step::Reopen => {
                store.close().await;
                store = open(path).await;
            }
            Step::Grant => {
                let lease = store.grant(Duration::from_secs(1_000)).await.unwrap().id;
                model.leases.push((lease, true));
            }
            Step::Revoke(number) => {
                if let Some((lease, _)) = model.leases.get(number).copied() {
                    store.revoke(lease).await.unwrap();
                    model.revoke(lease);
                }
            }
        }
    }
    let from = model.compacted + 1;
    let mut watch = store.watch(b"", Revision(from)).await.unwrap();
    for changes in &model.history[usize::try_from(model.compacted).unwrap()..] {
        assert_eq!(watch.next().await.as_ref(), Ok(changes));
    }
    if model.compacted > 0 {
        let too_early = store.watch(b"", Revision(model.compacted)).await;
        assert_eq!(
            too_early.unwrap_err(),
            Error::Compacted {
                next: Revision(from)
            }
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_store_is_an_ordered_map(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(run(folder.path(), steps));
    }
}
