//! Pools of units with ids.
//!
//! Owns which units of one resource exist and how many should, so also the growing and shrinking.
//! Must not: know other resources or load.
//!
//! Invariants: `existing` is what is free and what is held; it exceeds `capacity` (the backlog)
//! only while no whole id is free.

use super::allocation::PoolAllocation;
use super::amount::Amount;
use super::fit::PoolReport;
use super::groups::Groups;
use super::id_bits::IdBits;
use super::ids::{MAX_IDS, ResourceId, ResourceIds};
use super::name::ResourceName;
use super::request::IndexedDemand;
use super::share::Share;

/// A pool of units with ids.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct IndexedPool {
    free: ResourceIds,
    /// Every id that exists: free, shared or held. More than `capacity` while shrinking waits for
    /// releases; then no whole id is free.
    existing: IdBits,
    capacity: u32,
    groups: Groups,
}
impl IndexedPool {
    pub(super) fn new(name: &ResourceName, capacity: Amount) -> Result<Self, CapacityError> {
        let units = CapacityError::check_units(name, capacity)?;
        Ok(Self::with_units(units, Groups::none()))
    }

    pub(super) fn grouped(groups: Groups) -> Self {
        Self::with_units(groups.ids(), groups)
    }

    fn with_units(units: u32, groups: Groups) -> Self {
        let free = ResourceIds::new(units);
        Self {
            free,
            existing: IdBits::up_to(units),
            capacity: units,
            groups,
        }
    }

    /// The free ids. While ids wait to be taken away, not all of these may be given out.
    pub fn free(&self) -> &ResourceIds {
        &self.free
    }

    pub(super) fn capacity(&self) -> Amount {
        Amount::units(self.capacity)
    }

    pub(super) fn available(&self) -> Amount {
        self.free
            .amount()
            .saturating_sub(Amount::units(self.excess()))
    }

    pub(super) fn held(&self) -> Amount {
        let existing = Amount::units(self.existing.len());
        existing
            .checked_sub(self.free.amount())
            .expect("what is free exists")
    }

    /// Whether all units are taken that there should be, and no more.
    pub(super) fn has_none_free(&self) -> bool {
        self.excess() == 0 && self.free.whole_ids() == 0
    }

    pub(super) fn backlog(&self) -> Amount {
        Amount::units(self.excess()).saturating_sub(self.free.amount())
    }

    pub(super) fn report(&self) -> PoolReport {
        PoolReport::Indexed {
            capacity: self.capacity,
            available: self.available(),
            whole_ids: self.free.whole_ids(),
            largest_share: self.largest_share(),
        }
    }

    /// Whether the demand can be served now. While units wait to be taken away no whole one is
    /// free, and the shares that are left serve only what keeps within the capacity.
    pub(super) fn contains(&self, demand: IndexedDemand) -> bool {
        match demand {
            IndexedDemand::Share(share) if self.excess() > 0 => {
                self.largest_share().is_some_and(|largest| largest >= share)
            }
            IndexedDemand::Share(_) | IndexedDemand::Units(_) => self.free.contains(demand),
        }
    }

    pub(super) fn acquire(&mut self, demand: IndexedDemand) -> Option<PoolAllocation> {
        if !self.contains(demand) {
            return None;
        }
        self.free.acquire(demand, &self.groups)
    }

    pub(super) fn release_unit(&mut self, id: ResourceId) {
        self.check_exists(id);
        self.free.give_back_unit(id);
        self.pay_with(id);
    }

    pub(super) fn release_share(&mut self, id: ResourceId, share: Share) {
        self.check_exists(id);
        if self.free.give_back_share(id, share) {
            self.pay_with(id);
        }
    }

    pub(super) fn set_capacity(
        &mut self,
        name: &ResourceName,
        capacity: Amount,
    ) -> Result<(), CapacityError> {
        self.resize(CapacityError::check_units(name, capacity)?);
        Ok(())
    }

    /// Takes the capacity and groups of a fresh pool; the units stay the same ones.
    pub(super) fn revive(&mut self, fresh: Self) {
        self.groups = fresh.groups;
        self.resize(fresh.capacity);
    }

    pub(super) fn close(&mut self) {
        self.resize(0);
    }

    /// Units that exist above the capacity: the backlog, with what is left of shared ones.
    fn excess(&self) -> u32 {
        self.existing.len() - self.capacity
    }

    /// The largest share of a shared id that can be taken now.
    fn largest_share(&self) -> Option<Share> {
        let largest = self.free.largest_share()?;
        if self.excess() == 0 {
            return Some(largest);
        }
        Share::new(largest.amount().min(self.available()))
    }

    fn resize(&mut self, units: u32) {
        self.capacity = units;
        let mut id = 0;
        while self.existing.len() < units {
            id = self.existing.next_absent(id);
            self.existing.insert(id);
            self.free.give_back_unit(ResourceId::new(id));
        }
        while self.existing.len() > units
            && let Some(id) = self.free.highest_whole()
        {
            self.take_away(id);
        }
    }

    /// Uses an id that has just become whole to pay the backlog, if there is one.
    fn pay_with(&mut self, id: ResourceId) {
        if self.excess() > 0 {
            self.take_away(id);
        }
    }

    fn take_away(&mut self, id: ResourceId) {
        self.free.retire(id);
        self.existing.remove(id.get());
    }

    fn check_exists(&self, id: ResourceId) {
        assert!(
            self.existing.contains(id.get()),
            "id {id} was released to a pool without it"
        );
    }
}

/// Why a pool cannot have a capacity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// Part of a unit, of units with ids.
    #[error(
        "{name}: a capacity of {capacity} is not possible: its units have ids, so it is a whole \
         number{}", advice(name, *capacity)
    )]
    NotWhole {
        /// The resource.
        name: ResourceName,
        /// The capacity.
        capacity: Amount,
    },
    /// More units with ids than are kept.
    #[error(
        "{name}: a capacity of {capacity} is not possible: at most {MAX_IDS} units can have \
         ids{}", advice(name, *capacity)
    )]
    TooManyIds {
        /// The resource.
        name: ResourceName,
        /// The capacity.
        capacity: Amount,
    },
    /// More resources on a node than are kept.
    #[error(
        "{name}: this node has {} resources already, which is the limit; delete one first",
        super::set::MAX_RESOURCES
    )]
    TooManyResources {
        /// The resource.
        name: ResourceName,
    },
    /// A name of wasmrun's own.
    #[error(
        "{name} cannot be a resource: names that begin with {} are wasmrun's own; choose another one",
        ResourceName::RESERVED
    )]
    Reserved {
        /// The name.
        name: ResourceName,
    },
}

impl CapacityError {
    fn check_units(name: &ResourceName, capacity: Amount) -> Result<u32, Self> {
        if !capacity.is_whole() {
            return Err(Self::NotWhole {
                name: name.clone(),
                capacity,
            });
        }
        match u32::try_from(capacity.whole_units()) {
            Ok(units) if units <= MAX_IDS => Ok(units),
            _ => Err(Self::TooManyIds {
                name: name.clone(),
                capacity,
            }),
        }
    }
}

fn advice(name: &ResourceName, capacity: Amount) -> String {
    match name.is_user() {
        true => format!("; declare it as {name}=sum:{capacity} if its units need no ids"),
        false => "; give a smaller or whole number".into(),
    }
}
