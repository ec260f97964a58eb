//! Groups of ids: which units of a pool lie close together.
//!
//! Owns the choice of ids where a pool has groups (GPUs by NUMA node, say). Must not: change what
//! is free.
//!
//! Invariant: an id is in at most one group; ids that no group lists form one more, the last.
//! Groups are a preference: they never decide *whether* a request is served.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::id_bits::IdBits;
use super::ids::{MAX_IDS, ResourceId};

/// The groups of an indexed pool; [`Groups::none`] for a pool without any.
///
/// The idea is HyperQueue's: a request for whole units is served from one group where one has
/// enough, from as few as possible otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// The group of each id from 0; empty if there are no groups.
    group_of: Vec<u16>,
    count: u16,
}

impl Groups {
    /// No groups.
    pub fn none() -> Self {
        Self::default()
    }

    /// Groups with these ids. Together they must be the ids 0 to n-1, each once.
    pub fn new(groups: &[Vec<u32>]) -> Result<Self, GroupsError> {
        let ids: usize = groups.iter().map(Vec::len).sum();
        if ids > MAX_IDS as usize || groups.len() >= usize::from(u16::MAX) {
            return Err(GroupsError::TooMany {
                ids,
                groups: groups.len(),
            });
        }
        let count = groups.len() as u16;
        let mut group_of = vec![count; ids];
        for (group, id) in (0..count)
            .zip(groups)
            .flat_map(|(g, ids)| ids.iter().map(move |id| (g, id)))
        {
            match group_of.get_mut(*id as usize) {
                Some(place) if *place == count => *place = group,
                Some(_) => return Err(GroupsError::Twice { id: *id }),
                None => return Err(GroupsError::Gap { id: *id, ids }),
            }
        }
        Ok(Self { group_of, count })
    }

    /// How many ids the groups list.
    pub(super) fn ids(&self) -> u32 {
        self.group_of.len() as u32
    }

    /// Chooses `wanted` of the free ids, of which there are enough: from the group that has just
    /// enough, else from the groups with most; always the lowest ids of a group. The choice is
    /// sorted. Without groups this takes a step per chosen id, with groups one per free id.
    pub(super) fn choose(&self, free: &IdBits, wanted: u64) -> SmallVec<[ResourceId; 4]> {
        debug_assert!(u64::from(free.len()) >= wanted);
        let wanted = wanted as usize;
        if self.count == 0 {
            return free.iter().take(wanted).map(ResourceId::new).collect();
        }
        let mut free_in = vec![0; usize::from(self.count) + 1];
        for id in free.iter() {
            free_in[self.group(id)] += 1;
        }
        let of_group = |group| free.iter().filter(move |id| self.group(*id) == group);
        let tightest = (0..free_in.len())
            .filter(|group| free_in[*group] >= wanted)
            .min_by_key(|group| free_in[*group]);
        if let Some(group) = tightest {
            return of_group(group).take(wanted).map(ResourceId::new).collect();
        }
        let mut by_size: Vec<usize> = (0..free_in.len()).collect();
        by_size.sort_by_key(|group| Reverse(free_in[*group]));
        let spread = by_size
            .into_iter()
            .flat_map(of_group)
            .take(wanted)
            .map(ResourceId::new);
        let mut ids: SmallVec<_> = spread.collect();
        ids.sort_unstable();
        ids
    }

    fn group(&self, id: u32) -> usize {
        usize::from(
            self.group_of
                .get(id as usize)
                .copied()
                .unwrap_or(self.count),
        )
    }
}

/// Why lists of ids are not the groups of a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// An id stands in two groups, or twice in one.
    #[error("id {id} is listed twice: an id belongs to one group; remove one of them")]
    Twice {
        /// The id.
        id: u32,
    },
    /// The ids are not 0 to n-1.
    #[error("id {id} is out of place: {ids} ids are listed, so number them from 0 without gaps")]
    Gap {
        /// The first id that is too high.
        id: u32,
        /// How many ids are listed.
        ids: usize,
    },
    /// More than a pool can have.
    #[error("{groups} groups with {ids} ids are too many: use at most 65534 groups, {MAX_IDS} ids")]
    TooMany {
        /// How many ids are listed.
        ids: usize,
        /// How many groups.
        groups: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(groups: &Groups, free: &[u32], wanted: u64) -> Vec<u32> {
        let mut bits = IdBits::default();
        free.iter().for_each(|id| assert!(bits.insert(*id)));
        groups
            .choose(&bits, wanted)
            .into_iter()
            .map(ResourceId::get)
            .collect()
    }

    #[test]
    fn one_group_is_preferred_and_the_tightest() {
        let groups = Groups::new(&[vec![0, 2, 4, 6], vec![1, 3, 5]]).unwrap();
        assert_eq!(chosen(&groups, &[0, 1, 2, 3, 4, 6], 2), [1, 3]);
        assert_eq!(chosen(&groups, &[0, 1, 2, 3, 4, 6], 3), [0, 2, 4]);
        assert_eq!(chosen(&groups, &[0, 1, 2, 3, 4, 6], 5), [0, 1, 2, 4, 6]);
        // Ids beyond the groups are a group of their own.
        assert_eq!(chosen(&groups, &[0, 1, 2, 3, 7], 1), [7]);
        assert_eq!(chosen(&Groups::none(), &[3, 1, 2], 2), [1, 2]);
    }

    #[test]
    fn groups_are_a_partition() {
        assert_eq!(
            Groups::new(&[vec![0, 1], vec![1]]),
            Err(GroupsError::Twice { id: 1 })
        );
        assert_eq!(
            Groups::new(&[vec![0, 2]]),
            Err(GroupsError::Gap { id: 2, ids: 2 })
        );
        assert_eq!(Groups::new(&[]), Ok(Groups::none()));
    }
}
