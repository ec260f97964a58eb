//! Which tasks have records, and how much of those that have ended is kept.
//!
//! Owns the limits. Must not: write anything.

use std::collections::{HashMap, VecDeque};

use wasmrun_model::id::{Digest, TaskId};

/// How many tasks that have ended this node keeps in the store, the last ones,
const MOST_ENDED: usize = 2_000;
/// and how many bytes of them.
const MOST_ENDED_BYTES: usize = 16 << 20;
/// How many of these bytes may be of records that keep what results were made of. The oldest of them give that up and
/// stay, so that no arguments take the place of what came of other tasks.
pub(in crate::server) const MOST_LINEAGE_BYTES: usize = MOST_ENDED_BYTES / 2;

/// Tasks that have records, or are about to.
///
/// Invariant: what is counted, and in order, is of tasks that are known.
#[derive(Default)]
pub(in crate::server) struct Inventory {
    pub(in crate::server) tasks: HashMap<TaskId, Task>,
    /// Those that have ended, the first one first.
    ended: VecDeque<TaskId>,
    ended_bytes: usize,
    /// Those of them that keep what their results were made of, likewise.
    with_lineage: VecDeque<TaskId>,
    pub(in crate::server) lineage_bytes: usize,
    /// How many have given that up for others.
    pub(in crate::server) lineage_dropped: u64,
}

/// What is known of a task that has a record, or is about to have one.
#[derive(Clone, Copy)]
pub(in crate::server) struct Task {
    pub(in crate::server) module: Digest,
    pub(in crate::server) module_bytes: u64,
    /// Whether the store has said that it has the record.
    pub(in crate::server) is_kept: bool,
    pub(in crate::server) ended: Option<Ended>,
}

/// The record of a task that has ended.
#[derive(Clone, Copy)]
pub(in crate::server) struct Ended {
    pub(in crate::server) bytes: usize,
    /// Whether it keeps what the result was made of.
    pub(in crate::server) has_lineage: bool,
}

/// What there is no room for any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Over {
    /// Tasks whose records go.
    pub(in crate::server) tasks: Vec<TaskId>,
    /// Those whose records are to keep no more what their results were made of.
    pub(in crate::server) lineage: Vec<TaskId>,
}

impl Inventory {
    /// A task is not known any more. False if it was not.
    pub(in crate::server) fn remove(&mut self, task: &TaskId) -> bool {
        let Some(known) = self.tasks.remove(task) else {
            return false;
        };
        if let Some(ended) = known.ended {
            self.uncount(ended);
            self.ended.retain(|it| it != task);
            if ended.has_lineage {
                self.with_lineage.retain(|it| it != task);
            }
        }
        true
    }

    fn uncount(&mut self, ended: Ended) {
        self.ended_bytes -= ended.bytes;
        if ended.has_lineage {
            self.lineage_bytes -= ended.bytes;
        }
    }

    /// A task has ended, or its record has changed since: what goes for that, the oldest first.
    pub(in crate::server) fn add_ended(&mut self, task: TaskId, now: Ended) -> Over {
        let mut over = Over::default();
        let Some(known) = self.tasks.get_mut(&task) else {
            return over;
        };
        match known.ended.replace(now) {
            Some(before) => self.uncount(before),
            None => {
                self.ended.push_back(task);
                if now.has_lineage {
                    self.with_lineage.push_back(task);
                }
            }
        }
        self.ended_bytes += now.bytes;
        if now.has_lineage {
            self.lineage_bytes += now.bytes;
        }
        while self.lineage_bytes > MOST_LINEAGE_BYTES
            && let Some(oldest) = self.with_lineage.pop_front()
        {
            let known = self.tasks.get_mut(&oldest);
            if let Some(ended) = known.and_then(|it| it.ended.as_mut()) {
                // It has its size until its record is rewritten.
                ended.has_lineage = false;
                self.lineage_bytes -= ended.bytes;
                self.lineage_dropped += 1;
                over.lineage.push(oldest);
            }
        }
        while (self.ended.len() > MOST_ENDED || self.ended_bytes > MOST_ENDED_BYTES)
            && let Some(oldest) = self.ended.front().copied()
        {
            self.remove(&oldest);
            over.tasks.push(oldest);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: usize) -> TaskId {
        TaskId::from_bytes((number as u128).to_be_bytes())
    }

    /// Adds a task that has ended. What goes for it.
    fn add(inventory: &mut Inventory, number: usize, bytes: usize, has_lineage: bool) -> Over {
        let is_new = Task {
            module: Digest::from_bytes([1; 32]),
            module_bytes: 7,
            is_kept: true,
            ended: None,
        };
        inventory.tasks.entry(task(number)).or_insert(is_new);
        inventory.add_ended(task(number), Ended { bytes, has_lineage })
    }

    fn over(tasks: &[usize], lineage: &[usize]) -> Over {
        let ids = |numbers: &[usize]| numbers.iter().map(|it| task(*it)).collect();
        Over {
            tasks: ids(tasks),
            lineage: ids(lineage),
        }
    }

    #[test]
    fn the_oldest_give_up_what_their_results_were_made_of_and_stay() {
        const SOME: usize = MOST_LINEAGE_BYTES / 4;
        let mut inventory = Inventory::default();
        assert_eq!(add(&mut inventory, 1, 1000, false), over(&[], &[]));
        for number in 2..6 {
            assert_eq!(add(&mut inventory, number, SOME, true), over(&[], &[]));
        }
        assert_eq!(add(&mut inventory, 6, 2 * SOME, true), over(&[], &[2, 3]));
        assert_eq!(inventory.lineage_bytes, MOST_LINEAGE_BYTES);
        // Their records are rewritten.
        for number in [2, 3] {
            assert_eq!(add(&mut inventory, number, 100, false), over(&[], &[]));
        }
        assert_eq!(inventory.ended_bytes, 1200 + MOST_LINEAGE_BYTES);
        assert_eq!((inventory.tasks.len(), inventory.lineage_dropped), (6, 2));
        // What is forgotten makes room.
        assert!(inventory.remove(&task(4)) && !inventory.remove(&task(4)));
        assert_eq!(add(&mut inventory, 7, SOME, true), over(&[], &[]));
        for number in [1, 2, 3, 5, 6, 7] {
            assert!(inventory.remove(&task(number)));
        }
        assert_eq!((inventory.ended_bytes, inventory.lineage_bytes), (0, 0));
        assert!(inventory.ended.is_empty() && inventory.with_lineage.is_empty());
    }

    #[test]
    fn so_many_are_kept_and_so_many_bytes() {
        let mut inventory = Inventory::default();
        for number in 0..MOST_ENDED {
            assert_eq!(add(&mut inventory, number, 1, false), over(&[], &[]));
        }
        assert_eq!(add(&mut inventory, MOST_ENDED, 1, true), over(&[0], &[]));
        let most = MOST_ENDED_BYTES - MOST_ENDED + 2;
        assert_eq!(
            add(&mut inventory, MOST_ENDED + 1, most, false),
            over(&[1, 2], &[])
        );
        assert_eq!(inventory.ended_bytes, MOST_ENDED_BYTES);
        // One that nobody knows any more, as another node has it, counts for nothing.
        let ended = Ended {
            bytes: 1,
            has_lineage: true,
        };
        assert_eq!(inventory.add_ended(task(0), ended), over(&[], &[]));
        assert_eq!(
            (inventory.tasks.len(), inventory.lineage_bytes),
            (MOST_ENDED - 1, 1)
        );
    }
}
