//! Who goes first when room is needed.
//!
//! Owns the order of what may go, for each tenant. Must not: decide whether something must go, or whose. Invariant: each
//! object is in it at most once, and the sums are those of what is in it.

use std::collections::BTreeMap;

use wasmrun_model::id::ObjectId;

use super::sharing::Owner;

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
    owners: BTreeMap<Owner, Order>,
    all: Sums,
}

/// What may go of one tenant.
#[derive(Debug, Default)]
struct Order {
    order: BTreeMap<(Rank, u64), ObjectId>,
    sums: Sums,
}

/// Room that comes of what is in an order.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sums {
    /// Of dropping all secondary copies.
    pub(super) secondary_bytes: u64,
    /// Of spilling all primary copies.
    pub(super) primary_bytes: u64,
}

impl Lru {
    /// All that may go.
    pub(super) fn sums(&self) -> Sums {
        self.all
    }

    /// What may go of these tenants.
    pub(super) fn sums_of(&self, owners: impl Iterator<Item = Owner>) -> Sums {
        let mut sums = Sums::default();
        for order in owners.filter_map(|it| self.owners.get(&it)) {
            sums.add(order.sums);
        }
        sums
    }

    /// The next secondary copy of a tenant to go.
    pub(super) fn first_secondary(&self, owner: Owner) -> Option<ObjectId> {
        let (at, id) = self.owners.get(&owner)?.order.first_key_value()?;
        (at.0 == Rank::Secondary).then_some(*id)
    }

    /// Primary copies of a tenant, the next to go first.
    pub(super) fn primaries(&self, owner: Owner) -> impl Iterator<Item = ObjectId> {
        let order = self.owners.get(&owner).into_iter();
        let order = order.flat_map(|it| it.order.range((Rank::LargePrimary, 0)..));
        order.map(|(_, id)| *id)
    }

    pub(super) fn len(&self) -> usize {
        self.owners.values().map(|it| it.order.len()).sum()
    }

    pub(super) fn contains(&self, owner: Owner, rank: Rank, tick: u64, id: ObjectId) -> bool {
        let order = self.owners.get(&owner);
        order.is_some_and(|it| it.order.get(&(rank, tick)) == Some(&id))
    }

    pub(super) fn insert(&mut self, owner: Owner, rank: Rank, tick: u64, id: ObjectId, bytes: u64) {
        let order = self.owners.entry(owner).or_default();
        *order.sums.of(rank) += bytes;
        *self.all.of(rank) += bytes;
        let before = order.order.insert((rank, tick), id);
        assert!(before.is_none(), "two objects were used at the same tick");
    }

    pub(super) fn remove(&mut self, owner: Owner, rank: Rank, tick: u64, bytes: u64) {
        const THERE: &str = "only what is in the order is removed";
        let order = self.owners.get_mut(&owner).expect(THERE);
        *order.sums.of(rank) -= bytes;
        *self.all.of(rank) -= bytes;
        order.order.remove(&(rank, tick)).expect(THERE);
    }

    /// A tenant has nothing any more.
    pub(super) fn forget(&mut self, owner: Owner) {
        let order = self.owners.remove(&owner);
        assert!(
            order.is_none_or(|it| it.order.is_empty()),
            "it has something"
        );
    }
}

impl Sums {
    /// What comes of one object.
    pub(super) fn one(rank: Rank, bytes: u64) -> Self {
        let mut sums = Self::default();
        *sums.of(rank) = bytes;
        sums
    }

    /// Of all.
    pub(super) fn all(self) -> u64 {
        self.secondary_bytes + self.primary_bytes
    }

    pub(super) fn add(&mut self, other: Self) {
        self.secondary_bytes += other.secondary_bytes;
        self.primary_bytes += other.primary_bytes;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.secondary_bytes -= other.secondary_bytes;
        self.primary_bytes -= other.primary_bytes;
    }

    fn of(&mut self, rank: Rank) -> &mut u64 {
        match rank {
            Rank::Secondary => &mut self.secondary_bytes,
            Rank::LargePrimary | Rank::SmallPrimary => &mut self.primary_bytes,
        }
    }
}
