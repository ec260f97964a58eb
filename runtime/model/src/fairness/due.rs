//! What of the CPUs a tenant is due: the questions of preemption.
//!
//! Owns the questions. Must not: choose a tenant or a task.

use std::collections::{BTreeMap, BTreeSet};

use crate::resource::{Amount, ResourceName};

use super::order::Seat;
use super::tenants::{TenantIx, Tenants};
use super::weight::Weight;

/// Into how many parts a step is divided on the way from level to level.
const FINER: u128 = 1_000_000;

/// What of the CPUs tenants are due by weights, among those who want some.
#[derive(Debug)]
pub struct CpuParts(BTreeMap<TenantIx, u64>);

/// What CPU tenants give back for one that is due it. What all that they are part of have stays above its minimum, but for
/// those that the one who gets it is part of, too: they lose nothing.
#[derive(Debug)]
pub struct Given {
    losing_nothing: BTreeSet<TenantIx>,
    steps: BTreeMap<TenantIx, u64>,
}

impl Tenants {
    /// Who uses less CPU than it is guaranteed, of a tenant and all that it is part of.
    pub fn below_min(&self, ix: TenantIx) -> Option<TenantIx> {
        self.and_above(ix).find(|ix| {
            let tenant = self.get(*ix);
            let minimum = tenant.config().min_share.get(&ResourceName::CPU);
            !minimum.is_zero() && tenant.used(&ResourceName::CPU) < minimum
        })
    }

    /// Whether a tenant is this one, or part of it.
    pub fn is_part_of(&self, ix: TenantIx, of: TenantIx) -> bool {
        self.and_above(ix).any(|it| it == of)
    }

    /// What CPU the work of a tenant itself uses, without that of tenants that are part of it.
    pub fn cpu_of_own_work(&self, ix: TenantIx) -> Amount {
        self.get(ix).own_work().get(&ResourceName::CPU)
    }

    /// What each of these is due: of what its parent is, the part that its weight is among those with work among these.
    pub fn cpu_parts(&self, among: &BTreeSet<TenantIx>) -> CpuParts {
        let seats: BTreeSet<Seat> = among.iter().flat_map(|ix| self.seats(*ix)).collect();
        let mut rows: BTreeMap<Option<TenantIx>, u128> = BTreeMap::new();
        for seat in &seats {
            *rows.entry(self.row_of(*seat)).or_default() += self.cpu_weight(*seat);
        }
        let total = u128::from(self.total().get(&ResourceName::CPU).steps());
        let part = |ix: TenantIx| {
            // From the leaf up: each level takes its part. No product is above 2^128, but for totals that no cluster has.
            let parts = self.seats(ix).fold(total * FINER, |rest, seat| {
                rest.saturating_mul(self.cpu_weight(seat)) / rows[&self.row_of(seat)]
            });
            u64::try_from((parts + FINER / 2) / FINER).unwrap_or(u64::MAX)
        };
        CpuParts(among.iter().map(|ix| (*ix, part(*ix))).collect())
    }

    /// How many times its part a tenant has, in millionths.
    pub fn cpu_of_part(&self, ix: TenantIx, parts: &CpuParts) -> u128 {
        let part = parts.0.get(&ix).copied().unwrap_or_default();
        let used = u128::from(self.cpu_of_own_work(ix).steps());
        used * 1_000_000 / u128::from(part.max(1))
    }

    /// Whether a tenant has more than its part.
    pub fn is_above_part(&self, ix: TenantIx, parts: &CpuParts) -> bool {
        let part = parts.0.get(&ix).copied().unwrap_or_default();
        self.cpu_of_own_work(ix).steps() > part
    }

    /// Nothing yet, for the work of this tenant.
    pub fn given_to(&self, ix: TenantIx) -> Given {
        Given {
            losing_nothing: self.and_above(ix).collect(),
            steps: BTreeMap::new(),
        }
    }

    /// Whether a tenant may give so much more.
    pub fn may_give(&self, ix: TenantIx, steps: u64, given: &Given) -> bool {
        let mut losing = self.and_above(ix);
        losing.all(|ix| {
            let tenant = self.get(ix);
            let minimum = tenant.config().min_share.get(&ResourceName::CPU);
            let before = given.steps.get(&ix).copied().unwrap_or_default();
            let used = tenant.used(&ResourceName::CPU);
            given.losing_nothing.contains(&ix)
                || used.saturating_sub(Amount::from_steps(before + steps)) >= minimum
        })
    }

    /// A tenant gives so much more.
    pub fn give(&self, ix: TenantIx, steps: u64, given: &mut Given) {
        for ix in self.and_above(ix) {
            *given.steps.entry(ix).or_default() += steps;
        }
    }

    /// A tenant and all that it is part of.
    fn and_above(&self, ix: TenantIx) -> impl Iterator<Item = TenantIx> + '_ {
        std::iter::successors(Some(ix), |ix| self.get(*ix).parent())
    }

    /// Where the own work of a tenant stands, and all that it is part of.
    fn seats(&self, ix: TenantIx) -> impl Iterator<Item = Seat> + '_ {
        let own = self.get(ix).has_parts().then_some(Seat::Own(ix));
        own.into_iter().chain(self.and_above(ix).map(Seat::Tenant))
    }

    /// The own work of a tenant with others that are part of it counts as one of weight 1.
    fn cpu_weight(&self, seat: Seat) -> u128 {
        let weight = |weight: Weight| u128::from(weight.steps());
        match seat {
            Seat::Own(_) => weight(Weight::ONE) * weight(Weight::ONE),
            Seat::Tenant(ix) => {
                let config = self.get(ix).config();
                weight(config.weight) * weight(config.resource_weight(&ResourceName::CPU))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::{Policy, TenantConfig};
    use crate::resource::ResourceSet;

    fn amounts(json: &str) -> ResourceSet {
        serde_json::from_str(json).unwrap()
    }

    /// A with this much, and B with that much, of a cluster of four CPUs.
    fn two(config: &str, used: [&str; 2]) -> (Tenants, [TenantIx; 2]) {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.set_total(amounts(r#"{"CPU": 4}"#));
        let config: TenantConfig = serde_json::from_str(config).unwrap();
        let b = tenants.set_config(&"B".parse().unwrap(), config).unwrap();
        let a = tenants.intern(&"A".parse().unwrap()).unwrap();
        tenants.charge(a, &amounts(used[0]));
        tenants.charge(b, &amounts(used[1]));
        (tenants, [a, b])
    }

    #[test]
    fn a_minimum_is_of_cpu() {
        let min = r#"{"min_share": {"CPU": 2}}"#;
        let (tenants, [a, b]) = two(min, [r#"{"CPU": 3}"#, r#"{"CPU": 1}"#]);
        assert_eq!(
            (tenants.below_min(b), tenants.below_min(a)),
            (Some(b), None)
        );
        let one = Amount::STEPS_PER_UNIT;
        assert!(tenants.may_give(a, one, &tenants.given_to(b)));
        assert!(!tenants.may_give(b, one, &tenants.given_to(a)));
        let (tenants, [a, b]) = two(min, ["{}", r#"{"CPU": 3}"#]);
        assert_eq!(tenants.below_min(b), None);
        let mut given = tenants.given_to(a);
        assert!(tenants.may_give(b, one, &given) && !tenants.may_give(b, 2 * one, &given));
        tenants.give(b, one, &mut given);
        assert!(!tenants.may_give(b, one, &given));
        let of_memory = r#"{"min_share": {"memory": 2}}"#;
        let (tenants, [_, b]) = two(of_memory, ["{}", "{}"]);
        assert_eq!(tenants.below_min(b), None);
    }

    #[test]
    fn a_share_is_by_weight_of_those_who_want_some() {
        let used = [r#"{"CPU": 3}"#, r#"{"CPU": 1}"#];
        let (tenants, [a, b]) = two("{}", used);
        let parts = tenants.cpu_parts(&BTreeSet::from([a, b]));
        assert!(tenants.is_above_part(a, &parts) && !tenants.is_above_part(b, &parts));
        assert_eq!(tenants.cpu_of_part(a, &parts), 1_500_000);
        let alone = tenants.cpu_parts(&BTreeSet::from([a]));
        assert!(!tenants.is_above_part(a, &alone));
        let (tenants, [a, b]) = two(r#"{"weight": "0.25"}"#, used);
        let parts = tenants.cpu_parts(&BTreeSet::from([a, b]));
        assert!(!tenants.is_above_part(a, &parts) && tenants.is_above_part(b, &parts));
    }

    #[test]
    fn in_the_tree_parts_are_those_of_the_parents_and_minima_hold_at_each_level() {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.set_total(amounts(r#"{"CPU": 8}"#));
        let min: TenantConfig = serde_json::from_str(r#"{"min_share": {"CPU": 4}}"#).unwrap();
        let org = tenants.set_config(&"org".parse().unwrap(), min).unwrap();
        let [x, y, web] =
            ["org/x", "org/y", "web"].map(|it| tenants.intern(&it.parse().unwrap()).unwrap());
        let of = |cpus: u32| ResourceSet::from_iter([(ResourceName::CPU, Amount::units(cpus))]);
        tenants.charge(x, &of(2));
        tenants.charge(org, &of(1));
        tenants.charge(web, &of(5));
        // Half for each of the two at the root; of that of org a third for its own work and for each part of it.
        let parts = tenants.cpu_parts(&BTreeSet::from([org, x, y, web]));
        let third = Amount::STEPS_PER_UNIT * 4 / 3;
        assert_eq!(
            [org, x, y, web].map(|ix| parts.0[&ix].abs_diff(third) <= 1),
            [true, true, true, false]
        );
        assert!(tenants.is_above_part(x, &parts) && tenants.is_above_part(web, &parts));
        assert_eq!(tenants.below_min(y), Some(org));
        assert_eq!(tenants.below_min(web), None);
        let one = Amount::STEPS_PER_UNIT;
        // Another of the same may have it, and others may not.
        assert!(tenants.may_give(x, one, &tenants.given_to(y)));
        assert!(!tenants.may_give(x, one, &tenants.given_to(web)));
        assert!(tenants.may_give(web, one, &tenants.given_to(y)));
    }
}
