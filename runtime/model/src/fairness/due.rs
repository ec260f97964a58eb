//! What tenants are due, and what they may give: the questions of preemption.
//!
//! Owns the questions. Must not: choose a tenant or a task.

use std::collections::{BTreeMap, BTreeSet};

use crate::resource::{Amount, ResourceName, ResourceSet};

use super::order::Seat;
use super::tenants::{TenantIx, Tenants};
use super::weight::Weight;

/// Into how many parts a step is divided on the way from level to level.
const FINER: u128 = 1_000_000;

/// What of the CPUs tenants are due by weights, among those who want some.
#[derive(Debug)]
pub struct CpuParts(BTreeMap<TenantIx, u64>);

/// What tenants give back for one that is due it. What all that they are part of have stays above its minimum, but for
/// those that the one who gets it is part of, too: they lose nothing.
#[derive(Debug)]
pub struct Reclaim {
    losing_nothing: BTreeSet<TenantIx>,
    amounts: BTreeMap<TenantIx, ResourceSet>,
}

impl Tenants {
    /// Who uses less of a resource than it is guaranteed, of a tenant and all that it is part of.
    pub fn below_min(&self, ix: TenantIx, name: &ResourceName) -> Option<TenantIx> {
        self.and_above(ix).find(|ix| {
            let tenant = self.get(*ix);
            tenant.used(name) < tenant.config().min_share.get(name)
        })
    }

    /// Whether a tenant, or one that it is part of, uses less of anything than it is guaranteed.
    pub fn is_below_some_min(&self, ix: TenantIx) -> bool {
        self.and_above(ix).any(|ix| {
            let tenant = self.get(ix);
            let mut minima = tenant.config().min_share.iter();
            minima.any(|(name, minimum)| tenant.used(name) < minimum)
        })
    }

    /// Whether tasks of a tenant may ask not to be paused or stopped for others: where the quota of any says so that it is part of.
    pub fn allows_no_preempt(&self, ix: TenantIx) -> bool {
        let mut all = self.and_above(ix);
        all.any(|ix| self.get(ix).config().quota.no_preempt)
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
    pub fn given_to(&self, ix: TenantIx) -> Reclaim {
        Reclaim {
            losing_nothing: self.and_above(ix).collect(),
            amounts: BTreeMap::new(),
        }
    }

    /// Whether a tenant may give so much more.
    pub fn may_give(&self, ix: TenantIx, amounts: &ResourceSet, reclaim: &Reclaim) -> bool {
        let mut losing = self.and_above(ix);
        losing.all(|ix| {
            let tenant = self.get(ix);
            let before = reclaim.amounts.get(&ix);
            reclaim.losing_nothing.contains(&ix)
                || amounts.iter().all(|(name, amount)| {
                    let minimum = tenant.config().min_share.get(name);
                    let before = before.map_or(Amount::ZERO, |before| before.get(name));
                    let left = tenant.used(name).saturating_sub(before);
                    left.saturating_sub(amount) >= minimum
                })
        })
    }

    /// A tenant gives so much more.
    pub fn give(&self, ix: TenantIx, amounts: &ResourceSet, reclaim: &mut Reclaim) {
        for ix in self.and_above(ix) {
            let sum = reclaim.amounts.entry(ix).or_default();
            sum.add(amounts).expect("a part of what nodes have");
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
        let (cpu, memory) = (ResourceName::CPU, ResourceName::MEMORY);
        assert_eq!(
            (tenants.below_min(b, &cpu), tenants.below_min(a, &cpu)),
            (Some(b), None)
        );
        let [one, more] = [r#"{"CPU": 1}"#, r#"{"CPU": 2}"#].map(amounts);
        assert!(tenants.may_give(a, &one, &tenants.given_to(b)));
        assert!(!tenants.may_give(b, &one, &tenants.given_to(a)));
        let (tenants, [a, b]) = two(min, ["{}", r#"{"CPU": 3}"#]);
        assert!(tenants.below_min(b, &cpu).is_none() && !tenants.is_below_some_min(b));
        let mut given = tenants.given_to(a);
        assert!(tenants.may_give(b, &one, &given) && !tenants.may_give(b, &more, &given));
        tenants.give(b, &one, &mut given);
        assert!(!tenants.may_give(b, &one, &given));
        let of_memory = r#"{"min_share": {"memory": 2}}"#;
        let (tenants, [a, b]) = two(
            of_memory,
            [r#"{"memory": 9}"#, r#"{"CPU": 9, "memory": 1}"#],
        );
        assert!(tenants.below_min(b, &cpu).is_none() && tenants.is_below_some_min(b));
        assert_eq!(tenants.below_min(b, &memory), Some(b));
        // What has no minimum may be given, and all of it at once or nothing.
        let given = tenants.given_to(a);
        let both = amounts(r#"{"CPU": 1, "memory": 1}"#);
        assert!(tenants.may_give(b, &one, &given) && !tenants.may_give(b, &both, &given));
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
        let cpu = ResourceName::CPU;
        assert_eq!(tenants.below_min(y, &cpu), Some(org));
        assert_eq!(tenants.below_min(web, &cpu), None);
        let one = of(1);
        // Another of the same may have it, and others may not.
        assert!(tenants.may_give(x, &one, &tenants.given_to(y)));
        assert!(!tenants.may_give(x, &one, &tenants.given_to(web)));
        assert!(tenants.may_give(web, &one, &tenants.given_to(y)));
    }
}
