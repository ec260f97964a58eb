//! Free ids of an indexed pool.
//!
//! Owns which units are free, whole or in part, and the choice of the ones to give out. Must not:
//! know how many units there should be ([`super::IndexedPool`] does).
//!
//! Invariants: an id is whole or has one remaining share, never both; what one id gives out and
//! has left is one unit, so giving back more is a bug of the caller and panics.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::allocation::{PoolAllocation, Portion};
use super::amount::Amount;
use super::groups::Groups;
use super::id_bits::IdBits;
use super::request::IndexedDemand;
use super::share::Share;

/// The most units that an indexed pool may have. More of something is a sum, not things with ids.
pub const MAX_IDS: u32 = 1 << 20;

/// The id of one unit of an indexed pool: 0, 1, …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceId(u32);

impl ResourceId {
    /// The id with this number.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The number of the id.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The free ids of an indexed pool: whole ones, and ids of which a share is left.
///
/// After the resource ids of Ray's raylet. Taking and giving back whole units is a few word
/// operations each; shares are searched among the ids that are shared right now.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct ResourceIds {
    whole: IdBits,
    /// What is left of each shared id, smallest first, then by id.
    shares: SmallVec<[(Share, u32); 4]>,
    /// The sum of `shares`.
    shares_amount: Amount,
}

impl ResourceIds {
    /// The ids 0 to `units - 1`, all whole.
    ///
    /// # Panics
    /// If there are more than 1,048,576.
    pub fn new(units: u32) -> Self {
        assert!(
            units <= MAX_IDS,
            "{units} ids are more than the limit of {MAX_IDS}"
        );
        Self {
            whole: IdBits::up_to(units),
            ..Self::default()
        }
    }

    /// How many whole ids are free.
    pub fn whole_ids(&self) -> u32 {
        self.whole.len()
    }

    /// The most that is left of a shared id.
    pub fn largest_share(&self) -> Option<Share> {
        self.shares.last().map(|(share, _)| *share)
    }

    /// What is free in all. It says less than it seems: two halves of different ids do not serve
    /// three quarters.
    pub fn amount(&self) -> Amount {
        let whole = Amount::units(self.whole.len());
        whole
            .checked_add(self.shares_amount)
            .expect("at most MAX_IDS units")
    }

    /// Whether a demand can be served: enough whole ids, or one id with enough left.
    pub fn contains(&self, demand: IndexedDemand) -> bool {
        match demand {
            IndexedDemand::Units(units) => u64::from(self.whole.len()) >= units.get(),
            IndexedDemand::Share(share) => {
                self.whole.len() > 0 || self.largest_share().is_some_and(|left| left >= share)
            }
        }
    }

    /// Takes what is asked for, or nothing (`None`) if it is not there.
    ///
    /// Units come from one group where possible, lowest ids first. A share comes from the shared
    /// id that has the least left that serves (best fit; the lowest id among equals), else from a
    /// whole id.
    pub fn acquire(&mut self, demand: IndexedDemand, groups: &Groups) -> Option<PoolAllocation> {
        if !self.contains(demand) {
            return None;
        }
        let held = match demand {
            IndexedDemand::Units(units) => Portion::Units(self.take_units(units.get(), groups)),
            IndexedDemand::Share(share) => {
                let best = self.shares.partition_point(|(left, _)| *left < share);
                let (left, id) = if best < self.shares.len() {
                    let (left, id) = self.take_share_at(best);
                    (left.minus(share), id)
                } else {
                    let id = self.take_units(1, groups)[0].get();
                    (Some(share.rest_of_one()), id)
                };
                if let Some(left) = left {
                    self.put_share(left, id);
                }
                Portion::Share(ResourceId(id), share)
            }
        };
        Some(PoolAllocation::new(held))
    }

    /// Gives back what was taken. Shares merge, and an id of which nothing is taken any more is
    /// whole again.
    ///
    /// # Panics
    /// If this makes more than one unit of an id, or if it was taken from a pool without ids.
    pub fn release(&mut self, allocation: PoolAllocation) {
        match allocation.into_portion() {
            Portion::Nothing => {}
            Portion::Units(ids) => ids.into_iter().for_each(|id| self.give_back_unit(id)),
            Portion::Share(id, share) => drop(self.give_back_share(id, share)),
            Portion::Sum(amount) => {
                panic!("{amount} without ids cannot go back to a pool with ids")
            }
        }
    }

    /// Makes an id free and whole.
    pub(super) fn give_back_unit(&mut self, id: ResourceId) {
        let is_shared = self.shares.iter().any(|(_, other)| *other == id.0);
        assert!(
            !is_shared && self.whole.insert(id.0),
            "more than one unit of id {id} was released"
        );
    }

    /// Merges a share into an id; true if the id is whole again.
    pub(super) fn give_back_share(&mut self, id: ResourceId, share: Share) -> bool {
        assert!(
            !self.whole.contains(id.0),
            "more than one unit of id {id} was released"
        );
        let at = self.shares.iter().position(|(_, other)| *other == id.0);
        let left = at.map_or(Amount::ZERO, |at| self.take_share_at(at).0.amount());
        let merged = left.checked_add(share.amount()).expect("two shares");
        assert!(
            merged <= Amount::ONE,
            "more than one unit of id {id} was released"
        );
        match Share::new(merged) {
            Some(merged) => {
                self.put_share(merged, id.0);
                false
            }
            None => self.whole.insert(id.0),
        }
    }

    /// Takes a whole id out for good.
    pub(super) fn retire(&mut self, id: ResourceId) {
        assert!(
            self.whole.remove(id.0),
            "id {id} is retired while it is in use"
        );
    }

    /// The highest whole id.
    pub(super) fn highest_whole(&self) -> Option<ResourceId> {
        self.whole.highest().map(ResourceId)
    }

    fn take_units(&mut self, units: u64, groups: &Groups) -> SmallVec<[ResourceId; 4]> {
        // The common case goes without a search.
        if groups.ids() == 0 && units == 1 {
            return smallvec![ResourceId(self.whole.pop_lowest().expect("was checked"))];
        }
        let ids = groups.choose(&self.whole, units);
        for id in &ids {
            self.whole.remove(id.0);
        }
        ids
    }

    fn take_share_at(&mut self, at: usize) -> (Share, u32) {
        let (share, id) = self.shares.remove(at);
        let rest = self.shares_amount.checked_sub(share.amount());
        self.shares_amount = rest.expect("the sum of what is in the list");
        (share, id)
    }

    fn put_share(&mut self, share: Share, id: u32) {
        let at = self.shares.partition_point(|other| *other < (share, id));
        self.shares.insert(at, (share, id));
        let sum = self.shares_amount.checked_add(share.amount());
        self.shares_amount = sum.expect("at most MAX_IDS units");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(text: &str) -> IndexedDemand {
        IndexedDemand::new(text.parse().unwrap()).unwrap()
    }

    fn take(ids: &mut ResourceIds, text: &str) -> Option<PoolAllocation> {
        ids.acquire(demand(text), &Groups::none())
    }

    fn numbers(allocation: &PoolAllocation) -> Vec<u32> {
        allocation.ids().map(|(id, _)| id.get()).collect()
    }

    #[test]
    fn two_halves_do_not_serve_three_quarters() {
        let mut ids = ResourceIds::new(2);
        // 0.4 + 0.4 of two units: what the sum says is not what fits.
        let first = take(&mut ids, "0.6").unwrap();
        let second = take(&mut ids, "0.6").unwrap();
        assert_eq!(ids.amount().to_string(), "0.8");
        assert!(!ids.contains(demand("0.75")));
        assert_eq!(take(&mut ids, "0.75"), None);
        let third = take(&mut ids, "0.4").unwrap();
        assert_eq!(numbers(&third), [0]);
        [first, second, third]
            .into_iter()
            .for_each(|held| ids.release(held));
        assert_eq!(ids, ResourceIds::new(2));
    }

    #[test]
    fn a_share_takes_the_best_fit_before_it_splits() {
        let mut ids = ResourceIds::new(3);
        let seven = take(&mut ids, "0.7").unwrap();
        let five = take(&mut ids, "0.5").unwrap();
        assert_eq!((numbers(&seven), numbers(&five)), (vec![0], vec![1]));
        // 0.3 are left of id 0 and 0.5 of id 1.
        let quarter = take(&mut ids, "0.25").unwrap();
        let fit = take(&mut ids, "0.5").unwrap();
        let split = take(&mut ids, "0.1").unwrap();
        assert_eq!(
            (numbers(&quarter), numbers(&fit), numbers(&split)),
            (vec![0], vec![1], vec![2])
        );
        assert!(!ids.contains(demand("1")));
        for held in [quarter, five, split, seven, fit] {
            ids.release(held);
        }
        assert_eq!(ids, ResourceIds::new(3));
    }

    #[test]
    fn units_are_exclusive_and_lowest_first() {
        let mut ids = ResourceIds::new(3);
        let held = take(&mut ids, "2").unwrap();
        assert_eq!(numbers(&held), [0, 1]);
        assert_eq!(take(&mut ids, "2"), None);
        ids.release(held);
        assert_eq!(take(&mut ids, "4"), None);
        assert_eq!(ids, ResourceIds::new(3));
    }

    #[test]
    #[should_panic(expected = "more than one unit of id 0")]
    fn releasing_a_unit_twice_is_a_bug() {
        ResourceIds::new(1).give_back_unit(ResourceId(0));
    }

    #[test]
    #[should_panic(expected = "more than one unit of id 0")]
    fn releasing_too_large_shares_is_a_bug() {
        let mut ids = ResourceIds::default();
        let share = Share::new("0.6".parse().unwrap()).unwrap();
        assert!(!ids.give_back_share(ResourceId(0), share));
        ids.give_back_share(ResourceId(0), share);
    }
}
