//! What one tenant uses.
//!
//! Owns the sums by resource, apart for here and for other nodes. Must not: know weights or
//! totals.
//!
//! Invariants: sorted by name, no name twice, no entry of nothing; what is taken off was added.

use smallvec::SmallVec;

use crate::resource::{Amount, ResourceName, ResourceSet};

/// Which of the two sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Tasks that this process accounts.
    Own,
    /// What other nodes reported.
    Remote,
}

/// In steps. Wider than an amount, so that a sum over a whole cluster cannot overflow and taking
/// off is exact.
#[derive(Debug, Clone)]
struct Entry {
    name: ResourceName,
    own: u128,
    remote: u128,
}

impl Entry {
    fn part(&mut self, part: Part) -> &mut u128 {
        match part {
            Part::Own => &mut self.own,
            Part::Remote => &mut self.remote,
        }
    }
}

/// What a tenant uses of each resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    entries: SmallVec<[Entry; 4]>,
}

/// The largest amount, if it is more.
fn amount(steps: u128) -> Amount {
    u64::try_from(steps).map_or(Amount::MAX, Amount::from_steps)
}

impl Usage {
    pub(super) fn add(&mut self, set: &ResourceSet, part: Part) {
        let mut at = 0;
        for (name, more) in set.iter() {
            at = self.seek(at, name);
            if self.entries.get(at).is_none_or(|entry| entry.name != *name) {
                let entry = Entry {
                    name: name.clone(),
                    own: 0,
                    remote: 0,
                };
                self.entries.insert(at, entry);
            }
            *self.entries[at].part(part) += u128::from(more.steps());
        }
    }

    /// # Panics
    /// If there is less of something than is taken off.
    pub(super) fn remove(&mut self, set: &ResourceSet, part: Part) {
        let mut at = 0;
        for (name, less) in set.iter() {
            at = self.seek(at, name);
            let entry = self.entries.get_mut(at).filter(|entry| entry.name == *name);
            let rest = entry.and_then(|entry| {
                let sum = entry.part(part);
                *sum = sum.checked_sub(less.steps().into())?;
                Some(entry.own | entry.remote)
            });
            match rest {
                Some(0) => drop(self.entries.remove(at)),
                Some(_) => {}
                None => panic!("{name}: {less} is given back, which is more than was charged"),
            }
        }
    }

    /// Whether it is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Here and elsewhere together, in the order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceName, Amount)> {
        let sum = |entry: &Entry| amount(entry.own + entry.remote);
        self.entries
            .iter()
            .map(move |entry| (&entry.name, sum(entry)))
    }

    /// Here and elsewhere together, of one resource.
    pub(super) fn get(&self, name: &ResourceName) -> Amount {
        let mut entries = self.iter();
        let found = entries.find(|(of, _)| *of == name);
        found.map_or(Amount::ZERO, |(_, amount)| amount)
    }

    pub(super) fn all(&self) -> ResourceSet {
        self.iter()
            .map(|(name, amount)| (name.clone(), amount))
            .collect()
    }

    pub(super) fn own(&self) -> ResourceSet {
        self.entries
            .iter()
            .map(|entry| (entry.name.clone(), amount(entry.own)))
            .collect()
    }

    /// The first entry from `at` on that is not before `name`.
    fn seek(&self, mut at: usize, name: &ResourceName) -> usize {
        while self.entries.get(at).is_some_and(|entry| entry.name < *name) {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sets() -> impl Strategy<Value = ResourceSet> {
        let name = prop::sample::select(vec!["CPU", "GPU", "memory", "bw", "tpu"]);
        prop::collection::vec((name, 0u64..9), 0..5).prop_map(|amounts| {
            let amounts = amounts.into_iter();
            amounts
                .map(|(name, steps)| (name.parse().unwrap(), Amount::from_steps(steps)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn sums_are_those_of_sets(own in prop::collection::vec(sets(), 0..6),
                                  remote in prop::collection::vec(sets(), 0..6)) {
            let mut usage = Usage::default();
            let mut sums = [ResourceSet::new(), ResourceSet::new()];
            for set in &own {
                usage.add(set, Part::Own);
                sums[0].add(set).unwrap();
            }
            for set in &remote {
                usage.add(set, Part::Remote);
                sums[1].add(set).unwrap();
            }
            prop_assert_eq!(&usage.own(), &sums[0]);
            let [sum_own, mut sum_all] = sums;
            sum_all.add(&sum_own).unwrap();
            prop_assert_eq!(&usage.all(), &sum_all);
            remote.iter().for_each(|set| usage.remove(set, Part::Remote));
            prop_assert_eq!(&usage.all(), &sum_own);
            own.iter().rev().for_each(|set| usage.remove(set, Part::Own));
            prop_assert!(usage.entries.is_empty());
        }
    }

    #[test]
    fn a_sum_beyond_the_largest_amount_is_not_lost() {
        let mut usage = Usage::default();
        let huge = ResourceSet::new().with(ResourceName::MEMORY, Amount::MAX);
        usage.add(&huge, Part::Own);
        usage.add(&huge, Part::Own);
        assert_eq!(usage.all(), huge);
        usage.remove(&huge, Part::Own);
        assert_eq!(usage.own(), huge);
    }

    #[test]
    #[should_panic(expected = "more than was charged")]
    fn what_others_use_is_not_given_back_here() {
        let mut usage = Usage::default();
        let one = ResourceSet::new().with(ResourceName::CPU, Amount::ONE);
        usage.add(&one, Part::Remote);
        usage.remove(&one, Part::Own);
    }
}
