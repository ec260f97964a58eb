//! Changes of records that wait for the control store.
//!
//! Owns their order, and what two changes of one record come to. Must not: write anything.
//!
//! Invariant: of each record one change waits at most, besides one that is under way. So there are no more than there are
//! records, however long the store is away. A newer change joins the one that waits, at the place of that.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;
use wasmrun_control::{Condition, Op, Txn};

use super::{MOST_BYTES, RecordId, Written};

/// How many records a transaction changes at most.
const MOST_AT_ONCE: usize = 100;

/// What will have come of a change. All changes of a record that are written as one have the same.
pub(crate) type Receipt = Shared<oneshot::Receiver<Written>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Put(Bytes),
    /// Only where it is there.
    Replace(Bytes),
    Delete,
}

/// What is written of a record at once.
pub(super) struct Write<I> {
    pub(super) id: I,
    pub(super) change: Change,
    pub(super) done: oneshot::Sender<Written>,
    receipt: Receipt,
    /// Whether one of the changes that it stands for is a deletion.
    is_ending: bool,
}

impl<I: RecordId> Write<I> {
    fn new(id: I, change: Change) -> Self {
        let (done, written) = oneshot::channel();
        Self {
            id,
            is_ending: change == Change::Delete,
            change,
            done,
            receipt: written.shared(),
        }
    }

    /// It and then another change of the same record.
    fn join(&mut self, newer: Change) -> Receipt {
        self.is_ending |= newer == Change::Delete;
        self.change = match (&self.change, newer) {
            // There will be nothing to replace.
            (Change::Delete, Change::Replace(_)) => return receipt(Written::Taken),
            (Change::Put(_), Change::Replace(value)) => Change::Put(value),
            (_, newer) => newer,
        };
        self.receipt.clone()
    }

    fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(value) | Change::Replace(value) => 128 + value.len(),
            Change::Delete => 128,
        }
    }

    pub(super) fn add_to(&self, txn: Txn, key: Bytes) -> Txn {
        match &self.change {
            Change::Put(value) => txn.then(Op::put(key, value.clone())),
            Change::Replace(value) => {
                let put = Op::put(key.clone(), value.clone());
                txn.and(key, Condition::Present).then(put)
            }
            Change::Delete => txn.then(Op::delete(key)),
        }
    }
}

/// Of a change of which it is known what came.
fn receipt(written: Written) -> Receipt {
    let (done, receipt) = oneshot::channel();
    // Its receiver is below.
    let _ = done.send(written);
    receipt.shared()
}

/// See the module.
pub(super) struct Queue<I> {
    /// Records whose changes wait, the oldest first.
    order: VecDeque<I>,
    waiting: HashMap<I, Write<I>>,
    /// Records whose changes are under way, and whether they are ending.
    under_way: HashMap<I, bool>,
}

impl<I> Default for Queue<I> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            waiting: HashMap::new(),
            under_way: HashMap::new(),
        }
    }
}

impl<I: RecordId> Queue<I> {
    pub(super) fn add(&mut self, id: I, change: Change) -> Receipt {
        match self.waiting.entry(id) {
            Entry::Occupied(mut entry) => entry.get_mut().join(change),
            Entry::Vacant(entry) => {
                self.order.push_back(id);
                entry.insert(Write::new(id, change)).receipt.clone()
            }
        }
    }

    /// As many of the oldest as fit into a transaction: one at least, if there is one. Each is under way until it is
    /// [`finished`](Self::finished).
    pub(super) fn take(&mut self) -> Vec<Write<I>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MOST_AT_ONCE
            && let Some(write) = self.order.front().and_then(|id| self.waiting.get(id))
        {
            bytes += write.bytes();
            if bytes > MOST_BYTES && !batch.is_empty() {
                break;
            }
            self.under_way.insert(write.id, write.is_ending);
            batch.extend(
                self.order
                    .pop_front()
                    .and_then(|id| self.waiting.remove(&id)),
            );
        }
        batch
    }

    /// Something came of what was under way of a record.
    pub(super) fn finished(&mut self, id: &I) {
        self.under_way.remove(id);
    }

    /// Whether a record is about to be deleted.
    pub(super) fn is_ending(&self, id: &I) -> bool {
        self.under_way.get(id).is_some_and(|is_ending| *is_ending)
            || self.waiting.get(id).is_some_and(|write| write.is_ending)
    }

    /// How many changes wait, those that are under way included.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::TaskId;

    use super::*;

    fn id(number: u8) -> TaskId {
        TaskId::from_bytes([number; 16])
    }

    fn put(value: &'static str) -> Change {
        Change::Put(value.into())
    }

    fn replace(value: &'static str) -> Change {
        Change::Replace(value.into())
    }

    #[test]
    fn two_changes_of_a_record_are_written_as_one() {
        for (older, newer, both) in [
            (put("a"), put("b"), put("b")),
            (put("a"), replace("b"), put("b")),
            (put("a"), Change::Delete, Change::Delete),
            (replace("a"), put("b"), put("b")),
            (replace("a"), replace("b"), replace("b")),
            (replace("a"), Change::Delete, Change::Delete),
            (Change::Delete, put("b"), put("b")),
            (Change::Delete, Change::Delete, Change::Delete),
        ] {
            let mut queue = Queue::default();
            let is_ending = older == Change::Delete || newer == Change::Delete;
            let receipts = [queue.add(id(1), older), queue.add(id(1), newer)];
            assert_eq!(queue.is_ending(&id(1)), is_ending);
            let mut batch = queue.take();
            let write = batch.pop().unwrap();
            assert!(batch.is_empty() && queue.take().is_empty());
            assert_eq!(write.change, both);
            assert_eq!(queue.is_ending(&id(1)), is_ending);
            let _ = write.done.send(Written::Done);
            for receipt in receipts {
                assert_eq!(receipt.now_or_never(), Some(Ok(Written::Done)));
            }
            queue.finished(&id(1));
            assert!(!queue.is_ending(&id(1)));
            assert_eq!(queue.len(), 0);
        }
    }

    #[test]
    fn what_is_to_be_deleted_is_not_replaced() {
        let mut queue = Queue::default();
        let deleted = queue.add(id(1), Change::Delete);
        let replaced = queue.add(id(1), replace("a"));
        assert_eq!(replaced.now_or_never(), Some(Ok(Written::Taken)));
        assert_eq!(deleted.now_or_never(), None);
        assert_eq!(queue.take()[0].change, Change::Delete);
    }

    #[test]
    fn what_is_under_way_stays_as_it_is() {
        let mut queue = Queue::default();
        drop(queue.add(id(1), put("a")));
        let under_way = queue.take();
        for _ in 0..1000 {
            drop(queue.add(id(2), replace("c")));
            drop(queue.add(id(1), replace("b")));
        }
        assert_eq!(under_way[0].change, put("a"));
        assert_eq!(queue.len(), 3);
        queue.finished(&id(1));
        let ids: Vec<_> = queue.take().into_iter().map(|it| it.id).collect();
        assert_eq!(ids, [id(2), id(1)], "in the order of the oldest");
    }

    #[test]
    fn a_transaction_has_as_many_as_fit() {
        let mut queue = Queue::default();
        for number in 0..4 {
            let bytes = match number {
                0 => 2 * MOST_BYTES,
                _ => MOST_BYTES / 2,
            };
            drop(queue.add(id(number), Change::Put(vec![0; bytes].into())));
        }
        for number in 4..250 {
            drop(queue.add(id(number), Change::Delete));
        }
        let counts = std::iter::repeat_with(|| queue.take().len());
        let counts: Vec<_> = counts.take_while(|count| *count > 0).collect();
        // What is too long alone has one of its own.
        assert_eq!(counts, [1, 1, 1, MOST_AT_ONCE, MOST_AT_ONCE, 47]);
    }
}
