//! Parts of what is counted in bytes: the weights of the tree, for those who have some of it or want some.
//!
//! Owns the division, who has more than its part, and how far. Must not: know objects, or take anything away.
//!
//! Invariants: parts add up to the capacity, or to all that is asked for if that is less; what somebody does not ask for goes
//! to the others of its row, then to other rows. So who asks for no more than its weight gives it of the capacity is in no case
//! above its part.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::resource::Amount;

use super::max_min::max_min;
use super::tenant::TenantName;
use super::weight::Weight;

/// How much each tenant counts, where something is divided by bytes.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Those that are not 1.
    weights: BTreeMap<String, Weight>,
}

/// What tenants have of something, or have and want, in bytes.
pub type Demands = BTreeMap<TenantName, u64>;

/// What a tenant has, or has and wants, beside its part, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// What it has, or has and wants.
    pub has: u64,
    /// Its part.
    pub part: u64,
}

impl Share {
    /// Whether it is more than the part.
    pub fn is_above(self) -> bool {
        self.has > self.part
    }

    /// Which of two has less of its part: has ÷ part. No two that are zero of zero are to be compared.
    pub fn compare(self, other: Self) -> Ordering {
        let (a, b) = (self, other);
        (u128::from(a.has) * u128::from(b.part)).cmp(&(u128::from(b.has) * u128::from(a.part)))
    }
}

impl Parts {
    /// Says how much a tenant counts.
    pub fn set_weight(&mut self, tenant: &TenantName, weight: Weight) {
        match weight == Weight::ONE {
            true => self.weights.remove(tenant.as_str()),
            false => self.weights.insert(tenant.as_str().to_owned(), weight),
        };
    }

    /// Divides a capacity: level by level of the tree, at each level by max-min fairness ([`max_min`]). What is nearest the root
    /// is divided first, each by what all of its subtree asks for.
    pub fn divide<'a>(&self, capacity: u64, demands: &'a Demands) -> BTreeMap<&'a TenantName, u64> {
        let mut parts = BTreeMap::new();
        self.row(capacity, demands.iter().collect(), 0, &mut parts);
        parts
    }

    /// Who asks for more than its part, the one that is farthest above it first: by demand ÷ part.
    ///
    /// While one of them asks for less, but not for less than its part, all parts stay what they are.
    pub fn above<'a>(&self, capacity: u64, demands: &'a Demands) -> Vec<(&'a TenantName, Share)> {
        let all = self.divide(capacity, demands).into_iter();
        let all = all.map(|(tenant, part)| {
            let has = demands[tenant];
            (tenant, Share { has, part })
        });
        let mut above: Vec<_> = all.filter(|(_, share)| share.is_above()).collect();
        above.sort_by(|a, b| b.1.compare(a.1));
        above
    }

    /// The part of a tenant that asks for as much as it can get, beside what the others ask for.
    pub fn most(&self, capacity: u64, demands: &Demands, tenant: &TenantName) -> u64 {
        let mut demands = demands.clone();
        demands.insert(tenant.clone(), capacity);
        self.divide(capacity, &demands)[tenant]
    }

    /// Who wait for so much more each, beside what all have: who will have least of its part goes first, among equals the
    /// earlier in the list. With each whether it will be within its part.
    pub fn in_turn<'a>(
        &self,
        capacity: u64,
        has: &Demands,
        wants: &[(&'a TenantName, u64)],
    ) -> Vec<(&'a TenantName, bool)> {
        let mut demands = has.clone();
        for (tenant, more) in wants {
            let demand = demands.entry((*tenant).clone()).or_default();
            *demand = demand.saturating_add(*more);
        }
        let parts = self.divide(capacity, &demands);
        let turn = |(tenant, _): &(&'a TenantName, u64)| {
            let (has, part) = (demands[*tenant], parts[*tenant]);
            (*tenant, Share { has, part })
        };
        let mut turns: Vec<_> = wants.iter().map(turn).collect();
        turns.sort_by(|a, b| a.1.compare(b.1));
        let turns = turns.into_iter();
        turns
            .map(|(tenant, share)| (tenant, !share.is_above()))
            .collect()
    }

    /// Divides among those whose names begin with the same parts, so many.
    fn row<'a>(
        &self,
        capacity: u64,
        among: Vec<(&'a TenantName, &'a u64)>,
        depth: usize,
        parts: &mut BTreeMap<&'a TenantName, u64>,
    ) {
        if let [(tenant, demand)] = among[..] {
            parts.insert(tenant, capacity.min(*demand));
            return;
        }
        let mut seats: BTreeMap<&str, Vec<(&TenantName, &u64)>> = BTreeMap::new();
        for (tenant, demand) in among {
            let seat = seats.entry(start(tenant.as_str(), depth)).or_default();
            seat.push((tenant, demand));
        }
        let sum =
            |seat: &Vec<(_, &u64)>| seat.iter().fold(0_u64, |sum, it| sum.saturating_add(*it.1));
        let demands: Vec<_> = seats
            .values()
            .map(|it| Amount::from_steps(sum(it)))
            .collect();
        let weights: Vec<_> = seats.keys().map(|name| self.weight(name, depth)).collect();
        let given = max_min(Amount::from_steps(capacity), &demands, &weights);
        for (seat, given) in seats.into_values().zip(given) {
            self.row(given.steps(), seat, depth + 1, parts);
        }
    }

    /// The own of a tenant counts beside those that are part of it as one of weight 1.
    pub(super) fn weight(&self, name: &str, depth: usize) -> Weight {
        let is_own = name.matches('/').count() < depth;
        let weight = self.weights.get(name).filter(|_| !is_own);
        weight.copied().unwrap_or(Weight::ONE)
    }
}

/// A name without what comes behind its first `depth + 1` parts.
pub(super) fn start(name: &str, depth: usize) -> &str {
    let end = name.match_indices('/').nth(depth);
    end.map_or(name, |(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 6] = ["a", "a/x", "a/y", "a-b", "b", "c/d/e"];

    fn demands(of: &[(&str, u64)]) -> Demands {
        of.iter()
            .map(|(name, bytes)| (name.parse().unwrap(), *bytes))
            .collect()
    }

    fn weighing(of: &[(&str, u64)]) -> Parts {
        let mut parts = Parts::default();
        for (name, weight) in of {
            let weight = Weight::new(Amount::from_units(*weight).unwrap()).unwrap();
            parts.set_weight(&name.parse().unwrap(), weight);
        }
        parts
    }

    fn divided(parts: &Parts, capacity: u64, of: &[(&str, u64)]) -> Vec<u64> {
        parts.divide(capacity, &demands(of)).into_values().collect()
    }

    #[test]
    fn parts_are_by_weight_level_by_level() {
        let parts = weighing(&[("org", 2), ("org/vision", 3)]);
        let all = [("org/speech", 99), ("org/vision", 99), ("web", 99)];
        assert_eq!(divided(&parts, 120, &all), [20, 60, 40]);
        // Own work counts as one of weight 1, whatever the tenant's weight is.
        let all = [("org", 99), ("org/vision", 99), ("web", 99)];
        assert_eq!(divided(&parts, 120, &all), [20, 60, 40]);
        // What one leaves goes to its siblings first.
        let all = [("org/speech", 5), ("org/vision", 99), ("web", 99)];
        assert_eq!(divided(&parts, 120, &all), [5, 75, 40]);
        assert_eq!(divided(&parts, 120, &[("web", 200)]), [120]);
        assert_eq!(
            parts.most(120, &demands(&[("web", 200)]), &"org/x".parse().unwrap()),
            80
        );
    }

    #[test]
    fn the_one_that_is_farthest_above_gives_first() {
        let parts = weighing(&[("a", 2)]);
        let of = demands(&[("a", 80), ("b", 45), ("c", 5)]);
        let above: Vec<_> = parts
            .above(120, &of)
            .into_iter()
            .map(|(tenant, _)| tenant.as_str())
            .collect();
        assert_eq!(above, ["b", "a"]);
        assert!(parts.above(130, &of).is_empty(), "there is room for all");
    }

    #[test]
    fn who_will_have_least_is_first_in_turn() {
        let parts = weighing(&[("a", 2)]);
        let has = demands(&[("a", 50), ("b", 60)]);
        let names = ["d", "c", "b", "a"].map(|it| it.parse::<TenantName>().unwrap());
        let wants: Vec<_> = names.iter().zip([3, 50, 10, 7]).collect();
        let turns = parts.in_turn(120, &has, &wants);
        let turns: Vec<_> = turns
            .into_iter()
            .map(|(tenant, is_within)| (tenant.as_str(), is_within))
            .collect();
        // Of 120 a and d have all that they ask for, and b and c half of the rest each.
        let says = [("d", true), ("a", true), ("c", false), ("b", false)];
        assert_eq!(turns, says);
    }

    /// Bytes and weights of some tenants.
    fn cases() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..200, 1_u64..5), NAMES.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_of_it_is_given_and_nobody_gets_more_than_it_asks(capacity in 0_u64..600, of in cases()) {
            let weights: Vec<_> = NAMES.into_iter().zip(of.iter().map(|it| it.1)).collect();
            let asked: Vec<_> = NAMES.into_iter().zip(of.iter().map(|it| it.0)).collect();
            let (parts, asked) = (weighing(&weights), demands(&asked));
            let given = parts.divide(capacity, &asked);
            prop_assert!(given.iter().all(|(tenant, part)| *part <= asked[*tenant]));
            let sum: u64 = asked.values().sum();
            prop_assert_eq!(given.values().sum::<u64>(), sum.min(capacity));
            prop_assert_eq!(parts.above(capacity, &asked).is_empty(), sum <= capacity);
        }

        /// So whose objects go is found once for many of them.
        #[test]
        fn who_gives_down_to_its_part_changes_no_part(capacity in 0_u64..600, of in cases(), at in 0..NAMES.len(), less in 0_u64..200) {
            let weights: Vec<_> = NAMES.into_iter().zip(of.iter().map(|it| it.1)).collect();
            let asked: Vec<_> = NAMES.into_iter().zip(of.iter().map(|it| it.0)).collect();
            let (parts, mut asked) = (weighing(&weights), demands(&asked));
            let tenant: TenantName = NAMES[at].parse().unwrap();
            let owned = |asked: &Demands| {
                let given = parts.divide(capacity, asked).into_iter();
                given.map(|(tenant, part)| (tenant.clone(), part)).collect::<Demands>()
            };
            let before = owned(&asked);
            let demand = asked.get_mut(&tenant).unwrap();
            *demand = (*demand).min(before[&tenant].max(demand.saturating_sub(less)));
            let after = owned(&asked);
            for (name, part) in &before {
                // To what is rounded at two levels.
                prop_assert!(after[name].abs_diff(*part) <= 2, "{name}: {part}, then {}", after[name]);
            }
        }

        /// A store into which tenants put objects of one size, in any order at first, then in turn. Whoever loses one for another
        /// is above its part before, so it keeps that to one object; in the end each has what the weights say, to a few.
        #[test]
        fn puts_take_nothing_from_who_is_within_its_part(
            of in cases(),
            size in 4_u64..12,
            puts in prop::collection::vec(0..NAMES.len(), 1..40),
        ) {
            const CAPACITY: u64 = 100;
            let weights: Vec<_> = NAMES.into_iter().zip(of.iter().map(|it| it.1)).collect();
            let parts = weighing(&weights);
            let all: Vec<TenantName> = NAMES.iter().map(|it| it.parse().unwrap()).collect();
            let mut has: Demands = all.iter().map(|it| (it.clone(), 0)).collect();
            let in_turn = (0..NAMES.len()).cycle().take(NAMES.len() * 25);
            for tenant in puts.into_iter().chain(in_turn).map(|at| &all[at]) {
                while has.values().sum::<u64>() + size > CAPACITY {
                    let mut asked = has.clone();
                    *asked.get_mut(tenant).unwrap() += size;
                    let given = parts.divide(CAPACITY, &asked);
                    let above = parts.above(CAPACITY, &asked);
                    let mut above = above.into_iter().map(|(it, _)| it);
                    let first = above.find(|it| has[*it] > 0).unwrap_or(tenant);
                    prop_assert!(first == tenant || has[first] > given[first]);
                    if has[first] == 0 {
                        break; // One object is more than its part: it is refused.
                    }
                    *has.get_mut(first).unwrap() -= size;
                }
                if has.values().sum::<u64>() + size <= CAPACITY {
                    *has.get_mut(tenant).unwrap() += size;
                }
            }
            let ample = all.iter().map(|it| (it.clone(), CAPACITY)).collect();
            for (tenant, part) in parts.divide(CAPACITY, &ample) {
                prop_assert!(has[tenant].abs_diff(part) <= 3 * size, "{tenant}: {} of {part}", has[tenant]);
            }
        }
    }
}
