//! What of the CPUs a tenant is due, for whoever takes some from another tenant.
//!
//! Owns the questions. Must not: choose a tenant or a task.

use std::collections::BTreeSet;

use crate::resource::{Amount, ResourceName};

use super::tenants::{TenantIx, Tenants};

impl Tenants {
    /// Whether a tenant uses less CPU than it is guaranteed.
    pub fn is_below_min(&self, ix: TenantIx) -> bool {
        let tenant = self.get(ix);
        let minimum = tenant.config().min_share.get(&ResourceName::CPU);
        !minimum.is_zero() && tenant.usage().get(&ResourceName::CPU) < minimum
    }

    /// Whether a tenant has the CPU that it is guaranteed without so much of what it uses.
    pub fn is_above_min(&self, ix: TenantIx, without: Amount) -> bool {
        let tenant = self.get(ix);
        let minimum = tenant.config().min_share.get(&ResourceName::CPU);
        let used = tenant.usage().get(&ResourceName::CPU);
        used.saturating_sub(without) >= minimum
    }

    /// Whether a tenant uses more CPU than its part by weights among these, of whom it is one.
    pub fn is_above_share(&self, ix: TenantIx, among: &BTreeSet<TenantIx>) -> bool {
        let weight = |ix: TenantIx| {
            let config = self.get(ix).config();
            let of_cpu = config.resource_weight(&ResourceName::CPU);
            u128::from(config.weight.steps()) * u128::from(of_cpu.steps())
        };
        let all: u128 = among.iter().map(|ix| weight(*ix)).sum();
        let used = self.get(ix).usage().get(&ResourceName::CPU).steps();
        let total = self.total().get(&ResourceName::CPU).steps();
        // In this order no product is above 2^128, but for totals that no cluster has.
        u128::from(used).saturating_mul(all) > u128::from(total).saturating_mul(weight(ix))
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
        assert!(tenants.is_below_min(b) && !tenants.is_below_min(a));
        let one = Amount::ONE;
        assert!(tenants.is_above_min(a, one) && !tenants.is_above_min(b, one));
        let (tenants, [_, b]) = two(min, ["{}", r#"{"CPU": 3}"#]);
        assert!(!tenants.is_below_min(b));
        assert!(tenants.is_above_min(b, one) && !tenants.is_above_min(b, Amount::units(2)));
        let of_memory = r#"{"min_share": {"memory": 2}}"#;
        let (tenants, [_, b]) = two(of_memory, ["{}", "{}"]);
        assert!(!tenants.is_below_min(b));
    }

    #[test]
    fn a_share_is_by_weight_of_those_who_want_some() {
        let used = [r#"{"CPU": 3}"#, r#"{"CPU": 1}"#];
        let (tenants, [a, b]) = two("{}", used);
        let both = BTreeSet::from([a, b]);
        assert!(tenants.is_above_share(a, &both) && !tenants.is_above_share(b, &both));
        assert!(!tenants.is_above_share(a, &BTreeSet::from([a])));
        let (tenants, [a, b]) = two(r#"{"weight": "0.25"}"#, used);
        assert!(!tenants.is_above_share(a, &both) && tenants.is_above_share(b, &both));
    }
}
