//! When live tasks were submitted, as far as a list of the youngest has seen: so the next page need not look at all of them.
//!
//! Owns a span for each block of slots, until a task comes into it; tasks that have ended leave it too wide at most. Must not:
//! look at tasks, or cost more than a write where one comes.

use std::cmp::Reverse;
use std::ops::Range;

/// How many slots are a block: for so many tasks a list locks the ledger at a time.
const BLOCK: usize = 1000;

/// When the first and the last of a block were submitted, in microseconds since 1970. Of an empty one the first is later.
pub(crate) type Span = (u64, u64);

/// The span of no task.
pub(crate) const NONE: Span = (u64::MAX, 0);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Ages {
    /// By block. Nothing is known of those behind the last.
    spans: Vec<Option<Span>>,
}

impl Ages {
    /// A task has come into this slot.
    pub(super) fn came(&mut self, slot: u32) {
        if let Some(span) = self.spans.get_mut(slot as usize / BLOCK) {
            *span = None;
        }
    }

    /// The blocks of so many slots: those first where the youngest may be.
    pub(super) fn blocks(&self, slots: usize) -> Vec<usize> {
        let mut blocks: Vec<usize> = (0..slots.div_ceil(BLOCK)).collect();
        let last = |block: &usize| self.span(*block).map_or(u64::MAX, |(_, last)| last);
        blocks.sort_by_key(|block| Reverse(last(block)));
        blocks
    }

    /// Within which span all of a block are, if that is known.
    pub(crate) fn span(&self, block: usize) -> Option<Span> {
        self.spans.get(block).copied().flatten()
    }

    /// All of a block have been looked at.
    pub(crate) fn saw(&mut self, block: usize, span: Span) {
        if block >= self.spans.len() {
            self.spans.resize(block + 1, None);
        }
        self.spans[block] = Some(span);
    }
}

/// The slots of a block.
pub(crate) fn slots_of(block: usize) -> Range<usize> {
    block * BLOCK..(block + 1) * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_known_until_a_task_comes() {
        let mut ages = Ages::default();
        assert_eq!(ages.blocks(2 * BLOCK + 1), [0, 1, 2]);
        ages.came(7);
        for (block, last) in [(0, 5), (2, 9), (1, 7)] {
            ages.saw(block, (1, last));
        }
        assert_eq!(ages.blocks(3 * BLOCK), [2, 1, 0]);
        // What nothing is known of may have the youngest.
        assert_eq!(ages.blocks(3 * BLOCK + 1), [3, 2, 1, 0]);
        ages.came(BLOCK as u32);
        assert_eq!((ages.span(0), ages.span(1)), (Some((1, 5)), None));
        assert_eq!(ages.blocks(3 * BLOCK), [1, 2, 0]);
    }
}
