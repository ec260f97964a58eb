//! A set of small ids as a bitmap.
//!
//! Owns the fast set behind free and existing ids: lowest, highest, next absent in a few word
//! operations. Must not: know what an id means.
//!
//! Invariants: no zero word at the end, and `first_word` is the first non-zero word, so equal sets
//! are equal values.

use std::fmt;

/// A set of ids.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct IdBits {
    words: Vec<u64>,
    first_word: usize,
    len: u32,
}

const WORD_BITS: usize = u64::BITS as usize;

impl IdBits {
    /// The ids 0 to `end - 1`.
    pub(super) fn up_to(end: u32) -> Self {
        let mut words = vec![u64::MAX; end as usize / WORD_BITS];
        let (_, bit) = place(end);
        if bit > 1 {
            words.push(bit - 1);
        }
        Self {
            words,
            first_word: 0,
            len: end,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        let (word, bit) = place(id);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds an id; false if it was there.
    pub(super) fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = place(id);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if self.words[word] & bit != 0 {
            return false;
        }
        self.first_word = if self.len == 0 {
            word
        } else {
            self.first_word.min(word)
        };
        self.words[word] |= bit;
        self.len += 1;
        true
    }

    /// Takes an id out; false if it was not there.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        if !self.contains(id) {
            return false;
        }
        let (word, bit) = place(id);
        self.words[word] &= !bit;
        self.len -= 1;
        if self.len == 0 {
            self.words.clear();
            self.first_word = 0;
            return true;
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        while self.words[self.first_word] == 0 {
            self.first_word += 1;
        }
        true
    }

    /// Takes the lowest id out.
    pub(super) fn pop_lowest(&mut self) -> Option<u32> {
        let word = self.words.get(self.first_word)?;
        let id = id_of(self.first_word, word.trailing_zeros());
        self.remove(id);
        Some(id)
    }

    /// The highest id.
    pub(super) fn highest(&self) -> Option<u32> {
        let word = self.words.last()?;
        Some(id_of(
            self.words.len() - 1,
            u64::BITS - 1 - word.leading_zeros(),
        ))
    }

    /// The lowest id, from `from`, that is not in the set.
    pub(super) fn next_absent(&self, from: u32) -> u32 {
        let (first, bit) = place(from);
        let below = bit - 1;
        for index in first..self.words.len() {
            let skipped = if index == first { below } else { 0 };
            let word = self.words[index] | skipped;
            if word != u64::MAX {
                return id_of(index, word.trailing_ones());
            }
        }
        from.max(id_of(self.words.len(), 0))
    }

    /// The ids, from low to high.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let bits = |(index, word): (usize, &u64)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(id_of(index, bit))
            })
        };
        self.words.iter().enumerate().flat_map(bits)
    }
}

fn place(id: u32) -> (usize, u64) {
    (id as usize / WORD_BITS, 1 << (id as usize % WORD_BITS))
}

fn id_of(word: usize, bit: u32) -> u32 {
    (word * WORD_BITS) as u32 + bit
}

impl fmt::Debug for IdBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0u8..3, 0u32..200), 0..200)) {
            let mut bits = IdBits::default();
            let mut set = BTreeSet::new();
            for (step, id) in steps {
                match step {
                    0 => prop_assert_eq!(bits.insert(id), set.insert(id)),
                    1 => prop_assert_eq!(bits.remove(id), set.remove(&id)),
                    _ => prop_assert_eq!(bits.pop_lowest(), set.pop_first()),
                }
                prop_assert_eq!(bits.len() as usize, set.len());
                prop_assert_eq!(bits.highest(), set.last().copied());
                prop_assert_eq!(bits.contains(id), set.contains(&id));
                for from in [0, id] {
                    let absent = (from..).find(|id| !set.contains(id)).unwrap();
                    prop_assert_eq!(bits.next_absent(from), absent);
                }
                prop_assert!(bits.iter().eq(set.iter().copied()));
                // Equal sets are equal values, whatever happened before.
                let mut same = IdBits::default();
                set.iter().rev().for_each(|id| { same.insert(*id); });
                prop_assert_eq!(&bits, &same);
            }
        }
    }

    #[test]
    fn up_to_is_all_of_them() {
        for end in [0, 1, 63, 64, 65, 128, 1000] {
            let bits = IdBits::up_to(end);
            assert!(bits.iter().eq(0..end));
            assert_eq!((bits.len(), bits.next_absent(0)), (end, end));
        }
    }
}
