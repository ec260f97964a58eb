//! Quotas: what a tenant, with all that are part of it, may have at once.
//!
//! Owns the settings, and the questions whether there is room under them. Must not: know tasks or nodes; the keeper of the
//! queue asks before it charges.
//!
//! Invariant: nothing is room under a tenant's quota that is none under the quota of one that it is part of.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resource::{Amount, ResourceName, ResourceSet};

use super::state::Tenant;
use super::tenant::TenantName;
use super::tenants::{TenantIx, Tenants};

/// What a tenant may have at once, with all that are part of it. By default anything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// What its tasks may use, by resource. What is not named has no bound; 0 is none of it.
    #[serde(default)]
    pub max: BTreeMap<ResourceName, Amount>,
    /// How many sandboxes it may have.
    #[serde(default)]
    pub max_tasks: Option<u32>,
    /// How many tasks may wait at one node.
    #[serde(default)]
    pub max_waiting: Option<u32>,
    /// How many bytes of objects it may have in memory at each node.
    #[serde(default)]
    pub max_objects: Option<u64>,
    /// How many detached tasks that have not ended it may have at each node.
    #[serde(default)]
    pub max_detached: Option<u64>,
    /// Whether its tasks may ask not to be paused or stopped for others.
    #[serde(default)]
    pub no_preempt: bool,
}

impl Quota {
    /// Whether it bounds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What somebody would use on top.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Amounts, unless something else is charged for them.
    pub amounts: Option<&'a ResourceSet>,
    /// Whether it needs a sandbox.
    pub needs_sandbox: bool,
}

/// A tenant has no room for something now: `tenant research is at its quota: CPU 8 of 8`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tenant {tenant} is at its quota: {bound}")]
pub struct AtQuota {
    /// The tenant whose quota it is: the one whose work it is, or one that this is part of.
    pub tenant: TenantName,
    /// What there is no room under.
    pub bound: Bound,
}

/// A bound that there is no room under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// Of a resource.
    Amount {
        /// The resource.
        resource: ResourceName,
        /// What is used of it.
        used: Amount,
        /// What is asked for.
        asked: Amount,
        /// What may be used.
        most: Amount,
    },
    /// Of sandboxes.
    Sandboxes {
        /// How many there are.
        used: u64,
        /// How many there may be.
        most: u32,
    },
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amount {
                resource,
                used,
                asked,
                most,
            } => {
                let shown = |amount: &Amount| amount.display_for(resource).to_string();
                write!(f, "{resource} {} of {}", shown(used), shown(most))?;
                match used < most {
                    true => write!(f, ", and it asks for {}", shown(asked)),
                    false => Ok(()),
                }
            }
            Self::Sandboxes { used, most } => write!(f, "{used} of {most} sandboxes"),
        }
    }
}

/// A quota under which something is never possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct BeyondQuota(pub AtQuota);

impl fmt::Display for BeyondQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtQuota { tenant, bound } = &self.0;
        match bound {
            Bound::Amount {
                resource,
                asked,
                most,
                ..
            } => write!(
                f,
                "the quota of tenant {tenant} is {resource} {} at once, and this asks for {}: ask for less, or have \
                 the quota raised (`wasmrun tenant set {tenant} --max`)",
                most.display_for(resource),
                asked.display_for(resource)
            ),
            Bound::Sandboxes { most, .. } => write!(
                f,
                "the quota of tenant {tenant} is {most} sandboxes at once: have it raised \
                 (`wasmrun tenant set {tenant} --max-tasks`)"
            ),
        }
    }
}

/// As many tasks of a tenant wait as may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant {tenant} has as many tasks waiting at this node as its quota lets wait, {most}: submit more when some have \
     started, or have the quota raised (`wasmrun tenant set {tenant} --max-waiting`)"
)]
pub struct TooManyWaiting {
    /// The tenant whose quota it is.
    pub tenant: TenantName,
    /// How many may wait.
    pub most: u32,
}

impl Tenant {
    /// What of its own quota something has no room under, beside what it uses.
    fn lacks_room(&self, ask: Ask<'_>) -> Option<AtQuota> {
        let quota = &self.config().quota;
        let bounds = quota.max.iter().map(|(name, most)| (name, *most));
        let amount = bounds.filter_map(|(name, most)| {
            let asked = ask.amounts?.get(name);
            let used = self.used(name);
            let sum = used.steps().saturating_add(asked.steps());
            (!asked.is_zero() && sum > most.steps()).then(|| Bound::Amount {
                resource: name.clone(),
                used,
                asked,
                most,
            })
        });
        let sandboxes = quota.max_tasks.filter(|_| ask.needs_sandbox);
        let used = self.sandboxes();
        let sandboxes = sandboxes.filter(|most| used >= u64::from(*most));
        let sandboxes = sandboxes.map(|most| Bound::Sandboxes { used, most });
        let bound = amount.chain(sandboxes).next()?;
        Some(AtQuota {
            tenant: self.name().clone(),
            bound,
        })
    }

    /// The same of a tenant that uses nothing.
    fn never_has_room(&self, ask: Ask<'_>) -> Option<AtQuota> {
        let quota = &self.config().quota;
        let too_much = quota.max.iter().find_map(|(name, most)| {
            let asked = ask.amounts?.get(name);
            (asked > *most).then(|| Bound::Amount {
                resource: name.clone(),
                used: Amount::ZERO,
                asked,
                most: *most,
            })
        });
        let none = quota
            .max_tasks
            .filter(|most| ask.needs_sandbox && *most == 0);
        let none = none.map(|most| Bound::Sandboxes { used: 0, most });
        Some(AtQuota {
            tenant: self.name().clone(),
            bound: too_much.or(none)?,
        })
    }

    /// Whether it uses more than its own quota, which was larger before, or elsewhere at the same time.
    fn is_above(&self) -> bool {
        let quota = &self.config().quota;
        let mut bounds = quota.max.iter();
        bounds.any(|(name, most)| self.used(name) > *most)
            || quota
                .max_tasks
                .is_some_and(|most| self.sandboxes() > u64::from(most))
    }
}

impl Tenants {
    /// The quota that something of a tenant has no room under now: the tenant's, or that of one which it is part of.
    pub fn at_quota(&self, ix: TenantIx, ask: Ask<'_>) -> Option<AtQuota> {
        self.above(ix).find_map(|tenant| tenant.lacks_room(ask))
    }

    /// The same of the tenant's own quota alone.
    pub fn is_at_own_quota(&self, ix: TenantIx, ask: Ask<'_>) -> bool {
        self.get(ix).lacks_room(ask).is_some()
    }

    /// The quota under which something of a tenant is never possible.
    pub fn beyond_quota(&self, ix: TenantIx, ask: Ask<'_>) -> Option<BeyondQuota> {
        let mut above = self.above(ix);
        above
            .find_map(|tenant| tenant.never_has_room(ask))
            .map(BeyondQuota)
    }

    /// Whether a tenant, or one that it is part of, uses more than its quota.
    pub fn is_above_quota(&self, ix: TenantIx) -> bool {
        self.has_quotas() && self.above(ix).any(Tenant::is_above)
    }

    /// Whether one more task of a tenant may wait here.
    ///
    /// # Errors
    /// If as many wait as may.
    pub fn may_wait(&self, name: &TenantName) -> Result<(), TooManyWaiting> {
        // One that is not there may be part of one that is.
        let mut names = std::iter::successors(Some(name.clone()), TenantName::parent);
        let Some(ix) = names.find_map(|name| self.find(&name)) else {
            return Ok(());
        };
        let full = self.above(ix).find_map(|tenant| {
            let most = tenant.config().quota.max_waiting?;
            (tenant.waiting() >= u64::from(most)).then(|| TooManyWaiting {
                tenant: tenant.name().clone(),
                most,
            })
        });
        full.map_or(Ok(()), Err)
    }

    /// Under which quotas of detached tasks one more of a tenant has to be: whose each is, and how many it allows.
    pub fn max_detached(&self, name: &TenantName) -> Vec<(TenantName, u64)> {
        let names = std::iter::successors(Some(name.clone()), TenantName::parent);
        let bounds = names.filter_map(|name| {
            let most = self.get(self.find(&name)?).config().quota.max_detached?;
            Some((name, most))
        });
        bounds.collect()
    }

    /// A tenant and all that it is part of.
    pub(super) fn above(&self, ix: TenantIx) -> impl Iterator<Item = &Tenant> {
        let first = Some(self.get(ix));
        std::iter::successors(first, |tenant| Some(self.get(tenant.parent()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::{Policy, TenantConfig};
    use crate::id::NodeId;

    fn set(json: &str) -> ResourceSet {
        serde_json::from_str(json).unwrap()
    }

    fn ask(amounts: &ResourceSet) -> Ask<'_> {
        Ask {
            amounts: Some(amounts),
            needs_sandbox: true,
        }
    }

    fn table(quotas: &[(&str, &str)]) -> Tenants {
        let mut tenants = Tenants::new(Policy::Drf);
        for (name, json) in quotas {
            let config = TenantConfig {
                quota: serde_json::from_str(json).unwrap(),
                ..TenantConfig::default()
            };
            tenants.set_config(&name.parse().unwrap(), config).unwrap();
        }
        tenants
    }

    #[test]
    fn a_quota_bounds_all_that_are_part_of_a_tenant() {
        let mut tenants = table(&[("a", r#"{"max":{"CPU":8,"GPU":0},"max_tasks":3}"#)]);
        let [x, y, b] = ["a/x", "a/y", "b"].map(|it| tenants.intern(&it.parse().unwrap()).unwrap());
        let (three, five) = (set(r#"{"CPU":3}"#), set(r#"{"CPU":5,"memory":1}"#));
        tenants.charge(x, &five);
        assert_eq!(tenants.at_quota(y, ask(&three)), None);
        tenants.charge(y, &three);
        let text = |found: Option<AtQuota>| found.unwrap().to_string();
        let found = tenants.at_quota(x, ask(&three));
        assert_eq!(text(found), "tenant a is at its quota: CPU 8 of 8");
        tenants.refund(y, &set(r#"{"CPU":1}"#));
        let found = tenants.at_quota(x, ask(&three));
        let says = "tenant a is at its quota: CPU 7 of 8, and it asks for 3";
        assert_eq!(text(found), says);
        // What is not asked for is no matter, nor is a tenant beside it.
        assert_eq!(tenants.at_quota(x, ask(&set(r#"{"memory":9}"#))), None);
        assert_eq!(tenants.at_quota(b, ask(&five)), None);
        let found = tenants.at_quota(x, ask(&set(r#"{"GPU":1}"#)));
        assert_eq!(text(found), "tenant a is at its quota: GPU 0 of 0");
        for ix in [x, y, x] {
            tenants.note_sandbox(ix, true);
        }
        let found = tenants.at_quota(y, ask(&ResourceSet::new()));
        assert_eq!(text(found), "tenant a is at its quota: 3 of 3 sandboxes");
        tenants.note_sandbox(x, false);
        assert_eq!(tenants.at_quota(y, ask(&ResourceSet::new())), None);
    }

    #[test]
    fn what_is_never_possible_is_said() {
        let mut tenants = table(&[
            ("a", r#"{"max":{"memory":4294967296}}"#),
            ("a/x", r#"{"max_tasks":0}"#),
        ]);
        let [x, y] = ["a/x", "a/y"].map(|it| tenants.intern(&it.parse().unwrap()).unwrap());
        let large = set(r#"{"memory":"5GiB"}"#);
        let error = tenants.beyond_quota(y, ask(&large)).unwrap().to_string();
        assert_eq!(
            error,
            "the quota of tenant a is memory 4GiB at once, and this asks for 5GiB: ask for less, or have the quota \
             raised (`wasmrun tenant set a --max`)"
        );
        let small = set(r#"{"memory":"4GiB"}"#);
        assert_eq!(tenants.beyond_quota(y, ask(&small)), None);
        let error = tenants.beyond_quota(x, ask(&small)).unwrap().to_string();
        assert!(error.contains("tenant a/x is 0 sandboxes"), "{error}");
    }

    #[test]
    fn what_no_task_asks_for_holds_up_none() {
        let tenants = table(&[("a", r#"{"max_objects":4096,"max_detached":7}"#)]);
        let of = |name: &str| tenants.max_detached(&name.parse().unwrap());
        assert_eq!(of("a/x/1"), vec![("a".parse().unwrap(), 7)]);
        assert!(of("b").is_empty());
        let a = tenants.find(&"a".parse().unwrap()).unwrap();
        let large = set(r#"{"memory":"5GiB"}"#);
        assert_eq!(tenants.at_quota(a, ask(&large)), None);
        assert_eq!(tenants.beyond_quota(a, ask(&large)), None);
    }

    #[test]
    fn who_waits_is_counted_for_all_above() {
        let mut tenants = table(&[("a", r#"{"max_waiting":2}"#)]);
        let [x, y] = ["a/x", "a/y"].map(|it| tenants.intern(&it.parse().unwrap()).unwrap());
        for ix in [x, y] {
            tenants.note_waiting(ix, true);
        }
        for name in ["a", "a/x", "a/new"] {
            let error = tenants.may_wait(&name.parse().unwrap()).unwrap_err();
            assert!(error.to_string().starts_with("tenant a has as many"));
        }
        assert_eq!(tenants.may_wait(&"b".parse().unwrap()), Ok(()));
        tenants.note_waiting(x, false);
        assert_eq!(tenants.may_wait(&"a/new".parse().unwrap()), Ok(()));
    }

    #[test]
    fn sandboxes_elsewhere_count_where_a_quota_bounds_them() {
        let quota = [("a", r#"{"max_tasks":3}"#)];
        let (mut here, mut there) = (table(&quota), table(&quota));
        let [x, b] = ["a/x", "b"].map(|it| there.intern(&it.parse().unwrap()).unwrap());
        for ix in [x, x, b] {
            there.note_sandbox(ix, true);
        }
        let report = there.report();
        assert_eq!(report.len(), 1, "nobody asks how many b has");
        let node = NodeId::from_bytes([1; 16]);
        here.set_remote(node, &report).unwrap();
        let a = here.find(&"a".parse().unwrap()).unwrap();
        assert_eq!(here.get(a).sandboxes(), 2);
        assert!(here.get(a).usage().is_empty(), "they are no resource");
        here.note_sandbox(a, true);
        assert!(here.at_quota(a, ask(&ResourceSet::new())).is_some());
        here.clear_remote(node);
        assert_eq!(here.get(a).sandboxes(), 1);
    }

    #[test]
    fn no_report_makes_sums_overflow() {
        let mut tenants = table(&[("a", r#"{"max_tasks":3}"#)]);
        let all = |name: &str| ResourceSet::new().with(name.parse().unwrap(), Amount::MAX);
        let mut usage = all("wasmrun/sandboxes");
        usage.add(&all("wasmrun/actors")).unwrap();
        let report: BTreeMap<TenantName, ResourceSet> = (0..20_000)
            .map(|at| (format!("a/{at}").parse().unwrap(), usage.clone()))
            .collect();
        let nodes = [1, 2].map(|byte| NodeId::from_bytes([byte; 16]));
        for node in nodes {
            tenants.set_remote(node, &report).unwrap();
        }
        let a = tenants.find(&"a".parse().unwrap()).unwrap();
        assert_eq!(tenants.get(a).cpu_of_actors_elsewhere(), Amount::MAX);
        for node in nodes {
            tenants.clear_remote(node);
        }
        assert_eq!(tenants.get(a).sandboxes(), 0);
        assert_eq!(tenants.get(a).cpu_of_actors_elsewhere(), Amount::ZERO);
    }
}
