//! Who goes first when room is needed.
//!
//! Owns the order of what may go. Must not: decide whether something must go. Invariant: each
//! object is in it at most once, and the sums are those of what is in it.

use std::collections::BTreeMap;

use wasmrun_model::id::ObjectId;

/// Who goes before whom; within a rank the least recently used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Costs nothing to drop.
    Secondary,
    /// A file for each, written in one go.
    LargePrimary,
    /// Many files for little room.
    SmallPrimary,
}

#[derive(Debug, Default)]
pub(super) struct Lru {
    order: BTreeMap<(Rank, u64), ObjectId>,
    secondary_bytes: u64,
    primary_bytes: u64,
}

impl Lru {
    /// Room that comes of dropping all secondary copies in it.
    pub(super) fn secondary_bytes(&self) -> u64 {
        self.secondary_bytes
    }

    /// Room that comes of spilling all primary copies in it.
    pub(super) fn primary_bytes(&self) -> u64 {
        self.primary_bytes
    }

    /// The next secondary copy to go.
    pub(super) fn first_secondary(&self) -> Option<ObjectId> {
        let (at, id) = self.order.first_key_value()?;
        (at.0 == Rank::Secondary).then_some(*id)
    }

    /// Primary copies, the next to go first.
    pub(super) fn primaries(&self) -> impl Iterator<Item = ObjectId> {
        self.order
            .range((Rank::LargePrimary, 0)..)
            .map(|(_, id)| *id)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn contains(&self, rank: Rank, tick: u64, id: ObjectId) -> bool {
        self.order.get(&(rank, tick)) == Some(&id)
    }

    pub(super) fn insert(&mut self, rank: Rank, tick: u64, id: ObjectId, bytes: u64) {
        *self.bytes_of(rank) += bytes;
        let before = self.order.insert((rank, tick), id);
        assert!(before.is_none(), "two objects were used at the same tick");
    }

    pub(super) fn remove(&mut self, rank: Rank, tick: u64, bytes: u64) {
        *self.bytes_of(rank) -= bytes;
        self.order
            .remove(&(rank, tick))
            .expect("only what is in the order is removed");
    }

    fn bytes_of(&mut self, rank: Rank) -> &mut u64 {
        match rank {
            Rank::Secondary => &mut self.secondary_bytes,
            Rank::LargePrimary | Rank::SmallPrimary => &mut self.primary_bytes,
        }
    }
}
