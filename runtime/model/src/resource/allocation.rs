//! Allocations: what a task holds.
//!
//! Owns the move-only proof that units were taken, and its description as plain data. Must not:
//! be copied, cloned, serialised or made outside this module's siblings that take from a pool.
//!
//! Invariant: every allocation ends in exactly one release (or [`Allocation::abandon`]). Dropping
//! one that holds something panics in debug builds.

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::amount::Amount;
use super::ids::ResourceId;
use super::name::ResourceName;
use super::set::ResourceSet;
use super::share::Share;

/// What was taken from one pool. Give it back to that pool.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is taken from a pool must be released to it"]
pub struct PoolAllocation(Portion);

/// What a [`PoolAllocation`] holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// Nothing any more.
    Nothing,
    /// Whole units.
    Units(SmallVec<[ResourceId; 4]>),
    /// A part of one unit.
    Share(ResourceId, Share),
    /// A quantity without ids.
    Sum(Amount),
}

impl PoolAllocation {
    pub(super) fn new(portion: Portion) -> Self {
        Self(portion)
    }

    /// Ends the allocation. The caller takes what it held back.
    pub(super) fn into_portion(mut self) -> Portion {
        mem::replace(&mut self.0, Portion::Nothing)
    }

    /// Whether it is whole units with ids.
    pub(super) fn is_units(&self) -> bool {
        matches!(self.0, Portion::Units(_))
    }

    /// Whether it is nothing.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.0, Portion::Nothing)
    }

    /// How much it is.
    pub fn amount(&self) -> Amount {
        match &self.0 {
            Portion::Nothing => Amount::ZERO,
            Portion::Units(ids) => Amount::units(ids.len() as u32),
            Portion::Share(_, share) => share.amount(),
            Portion::Sum(amount) => *amount,
        }
    }

    /// The ids and how much of each; none for a pool without ids.
    pub fn ids(&self) -> impl Iterator<Item = (ResourceId, Amount)> {
        let (units, share) = match &self.0 {
            Portion::Nothing | Portion::Sum(_) => (&[][..], None),
            Portion::Units(ids) => (&ids[..], None),
            Portion::Share(id, share) => (&[][..], Some((*id, share.amount()))),
        };
        units.iter().map(|id| (*id, Amount::ONE)).chain(share)
    }
}

impl Drop for PoolAllocation {
    fn drop(&mut self) {
        debug_assert!(
            matches!(self.0, Portion::Nothing) || std::thread::panicking(),
            "an allocation was dropped without being released: {:?}",
            self.0
        );
    }
}

/// What a task holds of a node, of all resources. Give it back to that node.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "what is taken from a node must be released to it"]
pub struct Allocation {
    /// In the order of the names, each once.
    parts: SmallVec<[(ResourceName, PoolAllocation); 3]>,
}

impl Allocation {
    /// An allocation of nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What it holds of each resource, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, &PoolAllocation)> {
        self.parts.iter().map(|(name, part)| (name, part))
    }

    /// What it holds of one resource.
    pub fn get(&self, name: &ResourceName) -> Option<&PoolAllocation> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, part)| part)
    }

    /// How much it holds.
    pub fn amounts(&self) -> ResourceSet {
        self.iter()
            .map(|(name, part)| (name.clone(), part.amount()))
            .collect()
    }

    /// What it holds as plain data, to show to the task and to people.
    pub fn holdings(&self) -> BTreeMap<ResourceName, Holding> {
        let holding = |part: &PoolAllocation| Holding {
            amount: part.amount(),
            ids: part.ids().collect(),
        };
        self.iter()
            .map(|(name, part)| (name.clone(), holding(part)))
            .collect()
    }

    /// Splits the CPU part off: what a blocked task gives back while it waits. Empty if there is
    /// none.
    pub fn take_cpu_part(&mut self) -> Self {
        let cpu = self.parts.iter().position(|(name, _)| name.is_cpu());
        Self {
            parts: cpu.map(|at| self.parts.remove(at)).into_iter().collect(),
        }
    }

    /// Joins another allocation of the same node to this one.
    ///
    /// # Panics
    /// If both hold some of the same resource: a task asks for a resource once.
    pub fn join(&mut self, other: Self) {
        for (name, part) in other.into_parts() {
            let place = self.parts.binary_search_by(|(held, _)| held.cmp(&name));
            match place {
                Ok(_) => panic!("{name} is held already and would be held twice: {part:?}"),
                Err(at) => self.parts.insert(at, (name, part)),
            }
        }
    }

    /// Ends the allocation when the node that gave it is gone, so that there is nothing left to
    /// give it back to.
    pub fn abandon(self) {
        for (_, part) in self.parts {
            part.into_portion();
        }
    }

    /// Adds a part of a resource that comes after all others in the order of names.
    pub(super) fn push(&mut self, name: ResourceName, part: PoolAllocation) {
        debug_assert!(self.parts.last().is_none_or(|(last, _)| *last < name));
        self.parts.push((name, part));
    }

    pub(super) fn into_parts(self) -> impl Iterator<Item = (ResourceName, PoolAllocation)> {
        self.parts.into_iter()
    }
}

/// What is held of one resource, as plain data. It proves nothing and may be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// How much in all.
    pub amount: Amount,
    /// The ids, from low to high, and how much of each; empty for a resource without ids.
    pub ids: Vec<(ResourceId, Amount)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn dropping_without_release_panics() {
        let dropped = std::panic::catch_unwind(|| {
            let mut allocation = Allocation::nothing();
            allocation.push(
                ResourceName::CPU,
                PoolAllocation::new(Portion::Sum(Amount::ONE)),
            );
            // Two of them: the second must not panic while the first one does.
            allocation.push(
                ResourceName::MEMORY,
                PoolAllocation::new(Portion::Sum(Amount::ONE)),
            );
        });
        let message = *dropped.unwrap_err().downcast::<String>().unwrap();
        assert!(
            message.contains("dropped without being released"),
            "{message}"
        );
    }

    #[test]
    fn holding_nothing_or_abandoning_is_fine() {
        drop(Allocation::nothing());
        let mut allocation = Allocation::nothing();
        allocation.push(
            ResourceName::CPU,
            PoolAllocation::new(Portion::Sum(Amount::ONE)),
        );
        allocation.abandon();
    }

    #[test]
    fn holdings_are_names_amounts_and_ids() {
        let mut allocation = Allocation::nothing();
        let half = Share::new(Amount::from_steps(5_000)).unwrap();
        let units = [0, 2].map(ResourceId::new);
        allocation.push(
            ResourceName::CPU,
            PoolAllocation::new(Portion::Units(units[..].into())),
        );
        let share = Portion::Share(ResourceId::new(1), half);
        allocation.push(ResourceName::GPU, PoolAllocation::new(share));
        allocation.push(
            ResourceName::MEMORY,
            PoolAllocation::new(Portion::Sum(Amount::units(64))),
        );
        let holdings = allocation.holdings();
        assert_eq!(
            serde_json::to_string(&holdings).unwrap(),
            r#"{"CPU":{"amount":"2","ids":[[0,"1"],[2,"1"]]},"GPU":{"amount":"0.5","ids":[[1,"0.5"]]},"memory":{"amount":"64","ids":[]}}"#
        );
        assert_eq!(
            allocation.amounts().to_string(),
            "{CPU: 2, GPU: 0.5, memory: 64}"
        );
        allocation.abandon();
    }
}
