//! Load: what tasks that are placed but not started will need.
//!
//! Owns the sum of such requests and what it leaves of a pool. Must not: take anything; a load is
//! a claim, and only an acquire decides.
//!
//! Invariant: what was added and removed again leaves no trace.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::amount::Amount;
use super::fit::{Fit, PoolReport, judge};
use super::name::ResourceName;
use super::request::{IndexedDemand, Request};
use super::set::ResourceSet;
use super::share::Share;

/// The sum of many requests. It never overflows: a long queue may ask for more than any node has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Load {
    claims: SortedMap<ResourceName, Claims>,
}

/// What is claimed of one resource.
///
/// The sum alone would not do for units with ids (0.4 + 0.4 leave no 0.75), so whole units and
/// shares are also counted apart. For a pool without ids only the sum counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Claims {
    /// In steps of 1/10,000 of a unit.
    steps: u128,
    units: u64,
    shares: SortedMap<Share, u64>,
}

impl Load {
    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.claims.0.is_empty()
    }

    /// What is claimed of each resource. A sum above [`Amount::MAX`] shows as that.
    pub fn amounts(&self) -> ResourceSet {
        self.claims
            .0
            .iter()
            .map(|(name, claims)| (name.clone(), claims.amount()))
            .collect()
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) {
        for (name, amount) in request.amounts().iter() {
            self.claims.at_or_default(name).add(amount);
        }
    }

    /// Takes a request out again. False if it was not all there; then what was there is gone,
    /// which is right for a view of another node that a fresh report has replaced meanwhile.
    #[must_use]
    pub fn remove(&mut self, request: &Request) -> bool {
        self.remove_all(request, 1)
    }

    /// The same of so many that are alike.
    #[must_use]
    pub(super) fn remove_all(&mut self, request: &Request, count: u64) -> bool {
        let mut was_there = true;
        for (name, amount) in request.amounts().iter() {
            let Ok(at) = self.claims.find(name) else {
                was_there = false;
                continue;
            };
            let claims = &mut self.claims.0[at].1;
            was_there &= claims.remove(amount, count);
            if claims.is_empty() {
                self.claims.0.remove(at);
            }
        }
        was_there
    }

    /// What is claimed of one resource. A sum above [`Amount::MAX`] shows as that.
    pub fn amount(&self, name: &ResourceName) -> Amount {
        self.of(name).map_or(Amount::ZERO, Claims::amount)
    }

    /// Whether pools with these reports can take such a request beside this load and what is kept for others, and if
    /// not, why.
    ///
    /// While units that are kept wait for ids to become whole, nobody gets a share: it could be of the next one to be
    /// whole, and by their sum shares of ids of which somebody holds a little for ever would seem to do.
    pub fn judge_beside<'a>(
        mut self,
        kept: impl Iterator<Item = &'a Request> + Clone,
        report: impl Fn(&ResourceName) -> Option<PoolReport>,
        request: &Request,
    ) -> Fit {
        kept.clone().for_each(|kept| self.add(kept));
        let units = |name: &ResourceName| {
            let amounts = kept.clone().map(|kept| kept.amounts().get(name));
            amounts.map(Amount::whole_units).sum()
        };
        let report = |name: &ResourceName| Some(report(name)?.gathering(units(name)));
        judge(request, report, Some(&self))
    }

    pub(super) fn of(&self, name: &ResourceName) -> Option<&Claims> {
        let at = self.claims.find(name).ok()?;
        Some(&self.claims.0[at].1)
    }
}

impl Claims {
    fn is_empty(&self) -> bool {
        self.steps == 0 && self.units == 0 && self.shares.0.is_empty()
    }

    fn amount(&self) -> Amount {
        Amount::from_steps(u64::try_from(self.steps).unwrap_or(u64::MAX))
    }

    // Counts that arrive from outside may be anything, so nothing here may overflow.
    fn add(&mut self, amount: Amount) {
        self.steps = self.steps.saturating_add(amount.steps().into());
        match IndexedDemand::new(amount) {
            Some(IndexedDemand::Units(units)) => {
                self.units = self.units.saturating_add(units.get());
            }
            Some(IndexedDemand::Share(share)) => {
                let count = self.shares.at_or_default(&share);
                *count = count.saturating_add(1);
            }
            None => {}
        }
    }

    fn remove(&mut self, amount: Amount, count: u64) -> bool {
        let steps = u128::from(amount.steps()) * u128::from(count);
        let mut was_there = self.steps >= steps;
        self.steps = self.steps.saturating_sub(steps);
        match IndexedDemand::new(amount) {
            Some(IndexedDemand::Units(units)) => {
                let units = units.get().saturating_mul(count);
                was_there &= self.units >= units;
                self.units = self.units.saturating_sub(units);
            }
            Some(IndexedDemand::Share(share)) => match self.shares.find(&share) {
                Ok(at) if self.shares.0[at].1 <= count => {
                    was_there &= self.shares.0[at].1 == count;
                    self.shares.0.remove(at);
                }
                Ok(at) => self.shares.0[at].1 -= count,
                Err(_) => was_there = false,
            },
            None => {}
        }
        was_there
    }

    /// What of a pool is truly free when these claims come first.
    ///
    /// The claims are packed as an acquire would serve them, shares from large to small, into the
    /// whole ids and the one share that a report knows. Shared ids that it does not know are taken
    /// to be of no use, so this may say less than there is.
    pub(super) fn leave_of(&self, pool: PoolReport) -> PoolReport {
        let claimed = self.amount();
        match pool {
            PoolReport::Sum {
                capacity,
                available,
            } => PoolReport::Sum {
                capacity,
                available: available.saturating_sub(claimed),
            },
            PoolReport::Indexed {
                capacity,
                available,
                whole_ids,
                largest_share,
            } => {
                let available = available.saturating_sub(claimed);
                let largest = largest_share.map_or(0, |share| share.amount().steps());
                let (whole, largest) = self.pack(whole_ids, largest);
                // What no id-level packing sees: claims that wait for ids to become whole.
                let fits = |whole: u32| u64::from(whole) <= available.whole_units();
                let whole_ids = if fits(whole) {
                    whole
                } else {
                    available.whole_units() as u32
                };
                let largest = Amount::from_steps(largest).min(available);
                let one_below = Amount::from_steps(Amount::STEPS_PER_UNIT - 1);
                let largest_share = Share::new(largest.min(one_below));
                PoolReport::Indexed {
                    capacity,
                    available,
                    whole_ids,
                    largest_share,
                }
            }
        }
    }

    /// The whole ids, and the largest share in steps, that are left of these by the claims.
    fn pack(&self, whole_ids: u32, mut largest: u64) -> (u32, u64) {
        const UNIT: u64 = Amount::STEPS_PER_UNIT;
        let mut whole = u64::from(whole_ids).saturating_sub(self.units);
        for (share, count) in self.shares.0.iter().rev() {
            let share = share.amount().steps();
            let in_largest = (*count).min(largest / share);
            largest -= in_largest * share;
            let count = count - in_largest;
            if count == 0 {
                continue;
            }
            let per_id = UNIT / share;
            let ids = count.div_ceil(per_id);
            if ids > whole {
                return (0, 0);
            }
            whole -= ids;
            let in_last = count - (ids - 1) * per_id;
            largest = largest.max(UNIT - in_last * share);
        }
        (whole as u32, largest)
    }
}

/// A map of a few entries, sorted by key, without an allocation up to two. Serialised as a map.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SortedMap<K, V>(SmallVec<[(K, V); 2]>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<K: Ord + Clone, V: Default> SortedMap<K, V> {
    /// Where the key is, or belongs. Maps are short in truth: a scan beats a binary search, but a
    /// long one that came from outside must not make it slow.
    fn find(&self, key: &K) -> Result<usize, usize> {
        const SHORT: usize = 8;
        if self.0.len() > SHORT {
            return self.0.binary_search_by(|(other, _)| other.cmp(key));
        }
        for (at, (other, _)) in self.0.iter().enumerate() {
            match other.cmp(key) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(at),
                Ordering::Greater => return Err(at),
            }
        }
        Err(self.0.len())
    }

    fn at_or_default(&mut self, key: &K) -> &mut V {
        let at = self.find(key).unwrap_or_else(|at| {
            self.0.insert(at, (key.clone(), V::default()));
            at
        });
        &mut self.0[at].1
    }
}

impl<K: Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de, K, V> Deserialize<'de> for SortedMap<K, V>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
{
    /// Entries in any order; of a key that comes twice the last one counts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::<K, V>::deserialize(deserializer)?;
        Ok(Self(entries.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(requests: &[(&str, usize)]) -> Load {
        let mut load = Load::default();
        for (amount, count) in requests {
            (0..*count).for_each(|_| load.add(&request(amount)));
        }
        load
    }

    fn request(gpus: &str) -> Request {
        let amounts = ResourceSet::new().with(ResourceName::GPU, gpus.parse().unwrap());
        Request::new(amounts).unwrap()
    }

    fn free_of(whole_ids: u32, largest: &str, load: &Load) -> (u32, String) {
        let largest_share = Share::new(largest.parse().unwrap());
        let shared = largest_share.map_or(Amount::ZERO, Share::amount);
        let available = Amount::units(whole_ids).checked_add(shared).unwrap();
        let pool = PoolReport::Indexed {
            capacity: 9,
            available,
            whole_ids,
            largest_share,
        };
        match load.of(&ResourceName::GPU).unwrap().leave_of(pool) {
            PoolReport::Indexed {
                whole_ids,
                largest_share,
                ..
            } => (
                whole_ids,
                largest_share.map_or("0".into(), |share| share.to_string()),
            ),
            PoolReport::Sum { .. } => unreachable!(),
        }
    }

    #[test]
    fn many_that_are_alike_are_taken_out_at_once() {
        for amount in ["0.25", "2"] {
            let mut many = load(&[(amount, 5), ("0.5", 1)]);
            assert!(many.remove_all(&request(amount), 3));
            assert_eq!(many, load(&[(amount, 2), ("0.5", 1)]));
            assert!(!many.remove_all(&request(amount), 3), "two are left");
            assert_eq!(
                many.of(&ResourceName::GPU).map(|it| it.shares.0.len()),
                Some(1)
            );
        }
    }

    #[test]
    fn claims_are_packed_as_they_would_be_served() {
        type Case = (
            u32,
            &'static str,
            &'static [(&'static str, usize)],
            u32,
            &'static str,
        );
        let cases: [Case; 9] = [
            (2, "0", &[("0.75", 1)], 1, "0.25"),
            (2, "0", &[("0.75", 2)], 0, "0.25"),
            (2, "0", &[("0.75", 3)], 0, "0"),
            (2, "0.8", &[("0.75", 1)], 2, "0.05"),
            (2, "0", &[("0.25", 5)], 0, "0.75"),
            (4, "0", &[("3", 1)], 1, "0"),
            (1, "0.5", &[("2", 1)], 0, "0"),
            (3, "0.5", &[("2", 1)], 1, "0.5"),
            (3, "0", &[("0.6", 1), ("0.4", 1)], 2, "0"),
        ];
        for (whole, largest, claims, whole_left, largest_left) in cases {
            let found = free_of(whole, largest, &load(claims));
            assert_eq!(
                found,
                (whole_left, largest_left.into()),
                "{whole} {largest} {claims:?}"
            );
        }
    }

    #[test]
    fn removing_undoes_adding() {
        let mut load = load(&[("2", 2), ("0.5", 3)]);
        assert_eq!(load.amounts().to_string(), "{GPU: 5.5}");
        assert!(load.remove(&request("2")) && load.remove(&request("0.5")));
        assert!(load.remove(&request("0.5")) && load.remove(&request("0.5")));
        assert!(!load.remove(&request("0.5")));
        assert!(!load.is_empty());
        let json = serde_json::to_string(&load).unwrap();
        assert_eq!(serde_json::from_str::<Load>(&json).unwrap(), load);
    }

    #[test]
    fn a_long_queue_does_not_overflow() {
        let mut load = Load::default();
        let all = ResourceSet::new().with(ResourceName::MEMORY, Amount::MAX);
        let all = Request::new(all).unwrap();
        load.add(&all);
        load.add(&all);
        assert_eq!(load.amounts().get(&ResourceName::MEMORY), Amount::MAX);
        assert!(load.remove(&all) && load.remove(&all) && load.is_empty());
    }
}
