//! A sorted list with order statistics.
//!
//! Owns the structure behind the candidate indexes. Must not: know what its keys mean.
//!
//! The keys lie in chunks of at most [`CHUNK`], the first key of each chunk in a list of its own.
//! Finding a place is two binary searches, inserting and removing moves part of one chunk, finding
//! the n-th key adds up the lengths of the chunks before it. That is O(√n) with such small
//! constants that a tree does not pay before millions of keys. (The structure is that of Python's
//! `sortedcontainers`.)

/// Keys from small to large, none twice.
#[derive(Debug, Default)]
pub(super) struct SortedKeys {
    /// None of them empty.
    chunks: Vec<Vec<u128>>,
    /// The first key of each chunk.
    firsts: Vec<u128>,
    len: usize,
}

/// The most keys in a chunk. One that would grow beyond is split in two.
const CHUNK: usize = 256;

/// How full chunks are made of many keys at once.
const FILL: usize = CHUNK * 5 / 8;

impl SortedKeys {
    /// The list of these keys, in any order, none twice.
    pub(super) fn rebuild(&mut self, keys: &mut [u128]) {
        keys.sort_unstable();
        self.chunks.clear();
        self.chunks.extend(keys.chunks(FILL).map(|chunk| {
            let mut keys = Vec::with_capacity(CHUNK);
            keys.extend_from_slice(chunk);
            keys
        }));
        self.firsts.clear();
        self.firsts.extend(self.chunks.iter().map(|chunk| chunk[0]));
        self.len = keys.len();
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The chunk where the key is or belongs.
    fn chunk_of(&self, key: u128) -> usize {
        self.firsts
            .partition_point(|first| *first <= key)
            .saturating_sub(1)
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, key: u128) {
        self.len += 1;
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            let mut chunk = Vec::with_capacity(CHUNK);
            chunk.push(key);
            self.chunks.push(chunk);
            self.firsts.push(key);
            return;
        };
        let place = chunk.partition_point(|other| *other < key);
        debug_assert!(chunk.get(place) != Some(&key), "a key was inserted twice");
        if chunk.len() < CHUNK {
            chunk.insert(place, key);
            self.firsts[at] = chunk[0];
            return;
        }
        let mut upper = Vec::with_capacity(CHUNK);
        upper.extend(chunk.drain(CHUNK / 2..));
        match place.checked_sub(CHUNK / 2) {
            Some(place) => upper.insert(place, key),
            None => chunk.insert(place, key),
        }
        self.firsts[at] = chunk[0];
        self.firsts.insert(at + 1, upper[0]);
        self.chunks.insert(at + 1, upper);
    }

    /// Takes a key out.
    ///
    /// # Panics
    /// If it is not there.
    pub(super) fn remove(&mut self, key: u128) {
        let at = self.chunk_of(key);
        let chunk = self.chunks.get_mut(at).expect("a key that is there");
        let place = chunk.binary_search(&key).expect("a key that is there");
        chunk.remove(place);
        self.len -= 1;
        match chunk.first() {
            Some(first) => self.firsts[at] = *first,
            None => {
                self.chunks.remove(at);
                self.firsts.remove(at);
            }
        }
    }

    /// The key that `rank` keys come before.
    pub(super) fn select(&self, mut rank: usize) -> Option<u128> {
        for chunk in &self.chunks {
            match chunk.get(rank) {
                Some(key) => return Some(*key),
                None => rank -= chunk.len(),
            }
        }
        None
    }

    /// The smallest key that is at least this one.
    pub(super) fn first_from(&self, key: u128) -> Option<u128> {
        let at = self.chunk_of(key);
        let chunk = self.chunks.get(at)?;
        let place = chunk.partition_point(|other| *other < key);
        let next = || self.firsts.get(at + 1);
        chunk.get(place).or_else(next).copied()
    }

    /// The keys from small to large.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = u128> {
        self.chunks.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn check(list: &SortedKeys, set: &BTreeSet<u128>) {
        assert!(list.iter().eq(set.iter().copied()));
        assert_eq!(list.len(), set.len());
        assert!(
            list.chunks
                .iter()
                .all(|chunk| (1..=CHUNK).contains(&chunk.len()))
        );
        assert!(
            list.chunks
                .iter()
                .map(|chunk| chunk[0])
                .eq(list.firsts.iter().copied())
        );
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_set(seed: u64, start in 0..2_000_usize, steps in 0..3_000_usize) {
            let mut random = Random::new(seed);
            let mut set: BTreeSet<u128> = (0..start).map(|_| random.below(5_000) as u128).collect();
            let mut keys: Vec<u128> = set.iter().rev().copied().collect();
            let mut list = SortedKeys::default();
            list.rebuild(&mut keys);
            check(&list, &set);
            // Grows in one place, then shrinks, so chunks split and vanish.
            for step in 0..steps {
                let key = random.below(if step % 2 == 0 { 5_000 } else { 600 }) as u128;
                if step < steps / 2 {
                    if set.insert(key) {
                        list.insert(key);
                    }
                } else if set.remove(&key) {
                    list.remove(key);
                }
            }
            check(&list, &set);
            for (rank, key) in set.iter().enumerate() {
                prop_assert_eq!(list.select(rank), Some(*key));
            }
            prop_assert_eq!(list.select(set.len()), None);
            for key in 0..5_001 {
                prop_assert_eq!(list.first_from(key), set.range(key..).next().copied());
            }
        }
    }
}
