//! Which nodes changed, for readers that come now and then.
//!
//! Owns the log of changed places. Must not: know what changed there, or who reads.
//!
//! Invariants: a reader that was up to date at [`ChangeLog::end`] and reads all changes since then
//! meets every node that changed. A node that changes many times before anyone reads stands in the
//! log once; of several entries of one node only the last counts.

use std::collections::VecDeque;

use super::name::NodeIx;

/// The log. Entries are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    entries: VecDeque<NodeIx>,
    /// How many entries have been dropped, which is the number before that of the first one kept.
    dropped: u64,
    /// Per place the number of its last entry; 0 for none.
    last: Vec<u64>,
    /// Where the last reader stopped: entries up to here have been seen by someone.
    read: u64,
}

/// The log is at least this long before it forgets, also in a small cluster.
const LENGTH_MIN: usize = 64;

impl ChangeLog {
    /// Makes room for places up to this one.
    pub(super) fn grow(&mut self, places: usize) {
        self.last.resize(places.max(self.last.len()), 0);
    }

    /// Notes that a node changed. Forgets the oldest entries beyond the number of places: to look
    /// at every node is cheaper than to read so many.
    pub(super) fn mark(&mut self, node: NodeIx) {
        let last = &mut self.last[node.index()];
        if *last > self.read {
            return;
        }
        if self.entries.len() >= LENGTH_MIN.max(self.last.len()) {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(node);
        self.last[node.index()] = self.end();
    }

    /// The number of the last entry.
    pub(super) fn end(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    /// Notes that somebody reads up to the end, so that later changes are new.
    pub(super) fn read(&mut self) -> u64 {
        self.read = self.end();
        self.read
    }

    /// The number of the last entry of this node; 0 if there was none.
    pub(super) fn last_of(&self, node: NodeIx) -> u64 {
        self.last[node.index()]
    }

    /// Whether all entries after this number are still there.
    pub(super) fn reaches(&self, since: u64) -> bool {
        since >= self.dropped
    }

    /// The nodes that changed after this number, each once, where the log still reaches.
    pub(super) fn since(&self, since: u64) -> impl Iterator<Item = NodeIx> {
        let skipped = since.saturating_sub(self.dropped) as usize;
        let numbered = self.entries.range(skipped.min(self.entries.len())..);
        let first = self.dropped + skipped as u64 + 1;
        numbered
            .zip(first..)
            .filter(|(node, number)| self.last_of(**node) == *number)
            .map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> ChangeLog {
        let mut log = ChangeLog::default();
        log.grow(4);
        log
    }

    fn since(log: &ChangeLog, number: u64) -> Vec<u32> {
        log.since(number).map(|node| node.0).collect()
    }

    #[test]
    fn every_reader_sees_every_change_once() {
        let mut log = log();
        [1, 1, 2, 1]
            .into_iter()
            .for_each(|node| log.mark(NodeIx(node)));
        assert_eq!(log.end(), 2);
        let early = log.read();
        [1, 3, 1]
            .into_iter()
            .for_each(|node| log.mark(NodeIx(node)));
        assert_eq!(since(&log, early), [1, 3]);
        // For one who has seen nothing, node 1 comes once, with its last change.
        assert_eq!(since(&log, 0), [2, 1, 3]);
        let late = log.read();
        assert!(since(&log, late).is_empty());
        log.mark(NodeIx(3));
        assert_eq!(since(&log, late), [3]);
        assert_eq!(since(&log, early), [1, 3]);
    }

    #[test]
    fn the_log_is_bounded_and_says_so() {
        let mut log = log();
        for at in 0..1_000 {
            log.mark(NodeIx(at % 4));
            log.read();
        }
        assert_eq!(log.entries.len(), LENGTH_MIN);
        assert!(log.reaches(log.end() - LENGTH_MIN as u64));
        assert!(!log.reaches(log.end() - LENGTH_MIN as u64 - 1));
        assert_eq!(since(&log, log.end() - 2), [2, 3]);
    }
}
