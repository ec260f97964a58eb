//! Requests about what tenants are due and what they have.
//!
//! In a cluster it is in the control store, and each node's watch of it tells the schedulers
//! (`cluster/tenants.rs`). A node that is alone has no state folder, and keeps it as it keeps all else: as long as it
//! runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmrun_model::access;
use wasmrun_model::fairness::{
    Quota, Tenant, TenantConfig, TenantIx, TenantName, Tenants, TooManyTenants,
};
use wasmrun_model::resource::{Amount, ResourceName, ResourceSet};
use wasmrun_model::wire::{
    ChangeTenant, DueRow, List, MAX_FRAME_BYTES, MAX_MINIMA, Refusal, RefusalKind, Response, Rows,
    TenantChanged, Weights,
};

use super::Inner;
use super::lists::passes;
use super::session::{Session, refusal};
use super::views::amounts;
use crate::cluster::TenantsError;
use crate::guests::shared::Shared;

/// How many bytes the rows of one list may have, about: they are one frame.
const MOST_BYTES: usize = MAX_FRAME_BYTES / 2;

impl Session {
    /// Changes what a tenant is due, and its quota. What both are from now on.
    pub(super) async fn change_tenant(&self, change: ChangeTenant) -> Result<Response, Refusal> {
        let ChangeTenant {
            tenant,
            weight,
            min,
            resource_weights,
            max,
            max_tasks,
            max_waiting,
            max_objects,
            max_detached,
            no_preempt,
        } = change;
        if max.as_ref().is_some_and(|max| max.len() > MAX_MINIMA) {
            let why = format_args!("a tenant may have a quota of {MAX_MINIMA} resources at most");
            return Err(refusal(RefusalKind::Usage, why));
        }
        if min.as_ref().is_some_and(|min| min.len() > MAX_MINIMA) {
            let why = format_args!(
                "a tenant may be guaranteed something of {MAX_MINIMA} resources at most"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        let weights = resource_weights.as_ref().map_or(0, Weights::len);
        if weights > MAX_MINIMA {
            let why = format_args!(
                "a tenant may have weights of {MAX_MINIMA} single resources at most, and these are {weights}"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        let min_share: Option<ResourceSet> = min.map(FromIterator::from_iter);
        let shared = &self.inner.shared;
        has_room(shared, &tenant)?;
        let change = |config: TenantConfig| TenantConfig {
            weight: weight.unwrap_or(config.weight),
            resource_weights: resource_weights.clone().unwrap_or(config.resource_weights),
            min_share: min_share.clone().unwrap_or(config.min_share),
            quota: Quota {
                max: max.clone().unwrap_or(config.quota.max),
                max_tasks: max_tasks.unwrap_or(config.quota.max_tasks),
                max_waiting: max_waiting.unwrap_or(config.quota.max_waiting),
                max_objects: max_objects.unwrap_or(config.quota.max_objects),
                max_detached: max_detached.unwrap_or(config.quota.max_detached),
                no_preempt: no_preempt.unwrap_or(config.quota.no_preempt),
            },
        };
        let mut notes = Vec::new();
        let config = match self.inner.cluster() {
            Some(cluster) => {
                let changed = cluster.changed(cluster.tenants().change(&tenant, change));
                changed.await.map_err(refused)?
            }
            None => {
                notes.push(format!(
                    "node {} is in no cluster: it knows this until it stops",
                    self.inner.name()
                ));
                shared.change_tenant(&tenant, change)
            }
        };
        tracing::info!(%tenant, weight = %config.weight, min = %config.min_share, "what a tenant is due was set");
        notes.extend(promises(shared, &tenant, &config.min_share));
        Ok(Response::TenantChanged(Box::new(TenantChanged {
            tenant,
            weight: config.weight,
            min: amounts(&config.min_share),
            quota: config.quota,
            notes,
        })))
    }

    pub(super) async fn remove_tenant(&self, tenant: TenantName) -> Result<Response, Refusal> {
        let shared = &self.inner.shared;
        match self.inner.cluster() {
            Some(cluster) => {
                let removed = cluster.changed(cluster.tenants().remove(&tenant));
                removed.await.map_err(refused)?;
            }
            None => {
                let is_set = shared.ask(|ledger| {
                    let tenants = ledger.scheduler().tenants();
                    let known = tenants.find(&tenant).map(|ix| tenants.get(ix).config());
                    known.is_some_and(|config| *config != TenantConfig::default())
                });
                if !is_set {
                    return Err(refused(TenantsError::Unset(tenant)));
                }
                shared.change_tenant(&tenant, |_| TenantConfig::default());
            }
        }
        tracing::info!(%tenant, "a tenant was given its defaults again");
        Ok(Response::Done)
    }
}

impl Shared {
    /// Changes what a tenant is due, at this node alone. What it is from now on.
    fn change_tenant(
        self: &Arc<Self>,
        tenant: &TenantName,
        change: impl FnOnce(TenantConfig) -> TenantConfig,
    ) -> TenantConfig {
        let config = self.tell_and(|ledger| {
            let tenants = ledger.scheduler().tenants();
            let known = tenants.find(tenant).map(|ix| tenants.get(ix).config());
            let config = change(known.cloned().unwrap_or_default());
            let todo = ledger.set_tenant(tenant.clone(), config.clone());
            (todo, config)
        });
        self.share_store(tenant, &config);
        config
    }
}

/// Refuses a tenant that would be one too many for the scheduler of this node.
fn has_room(shared: &Shared, tenant: &TenantName) -> Result<(), Refusal> {
    match shared.decide(|ledger| ledger.make_room_for(tenant)) {
        true => Ok(()),
        false => {
            let name = tenant.clone();
            Err(refusal(RefusalKind::Full, TooManyTenants::InAll { name }))
        }
    }
}

/// What cannot be kept now of a guarantee, in words.
fn promises(shared: &Shared, tenant: &TenantName, min: &ResourceSet) -> Vec<String> {
    shared.ask(|ledger| {
        let tenants = ledger.scheduler().tenants();
        let parent = tenant.parent().and_then(|parent| tenants.find(&parent));
        let note = |(resource, amount): (&ResourceName, Amount)| {
            let all = match parent {
                None => guaranteed(tenants, None, resource),
                Some(_) => Amount::ZERO,
            };
            promise(resource, amount, tenants.total().get(resource), all)
        };
        let notes = min.iter().filter_map(note);
        let around = [parent, tenants.find(tenant)].into_iter().flatten();
        let around = around.flat_map(|it| shortfalls(tenants, it));
        notes.chain(around).collect()
    })
}

/// What all that are part of a tenant, or of none, are guaranteed together.
fn guaranteed(tenants: &Tenants, parent: Option<TenantIx>, resource: &ResourceName) -> Amount {
    let all = tenants.iter().filter(|(_, it)| it.parent() == parent);
    let each = all.map(|(_, it)| it.config().min_share.get(resource));
    Amount::from_steps(each.fold(0_u64, |sum, it| sum.saturating_add(it.steps())))
}

/// Of what those that are part of a tenant are guaranteed more than that is itself, in words.
fn shortfalls(tenants: &Tenants, parent: TenantIx) -> Vec<String> {
    let below = tenants.iter().map(|(_, it)| it);
    let below = below.filter(|it| it.parent() == Some(parent));
    let names = below.flat_map(|it| it.config().min_share.iter().map(|(name, _)| name));
    let names: BTreeSet<&ResourceName> = names.collect();
    let parent_min = &tenants.get(parent).config().min_share;
    let note = |resource: &ResourceName| {
        let (all, own) = (
            guaranteed(tenants, Some(parent), resource),
            parent_min.get(resource),
        );
        (all > own).then(|| {
            format!(
                "all that are part of tenant {} are guaranteed {resource} {}, and it is guaranteed {} itself: the rest \
                 counts among them alone, and not beside other tenants",
                tenants.get(parent).name(),
                all.display_for(resource),
                own.display_for(resource)
            )
        })
    };
    names.into_iter().filter_map(note).collect()
}

/// What to know of a guarantee of so much, where there is so much in total, and all tenants are guaranteed so much.
fn promise(resource: &ResourceName, amount: Amount, total: Amount, all: Amount) -> Option<String> {
    let shown = |amount: Amount| amount.display_for(resource);
    match () {
        () if total.is_zero() => Some(format!(
            "no node has {resource} now: the guarantee of it counts as soon as one has"
        )),
        () if amount > total => Some(format!(
            "{resource} {} is more than all nodes have now, {}: the tenant goes before those without a minimum \
             whatever it uses of it",
            shown(amount),
            shown(total)
        )),
        () if all > total => Some(format!(
            "all tenants together are guaranteed {resource} {}, and all nodes have {} now: who has the smallest part \
             of its own goes first",
            shown(all),
            shown(total)
        )),
        () => None,
    }
}

fn refused(error: TenantsError) -> Refusal {
    let kind = match &error {
        TenantsError::Unset(_) => RefusalKind::NotFound,
        TenantsError::Store(_) | TenantsError::Record { .. } => RefusalKind::Full,
    };
    let source = match &error {
        TenantsError::Record { source, .. } => format!(": {source}"),
        TenantsError::Store(_) | TenantsError::Unset(_) => String::new(),
    };
    refusal(kind, format_args!("{error}{source}"))
}

/// What each tenant is due and has of the whole cluster, and its quota, as this node knows it.
pub(super) fn due(inner: &Inner, seen: &access::Tenants, list: &List) -> Vec<DueRow> {
    inner.shared.ask(|ledger| {
        let all = ledger.scheduler().tenants().iter();
        let all = all.filter(|(_, tenant)| seen.covers(tenant.name()));
        let all = all.map(|(_, tenant)| row(tenant));
        let all = all.filter(|it| passes(list, &[("name", &it.name), ("weight", &it.weight)]));
        let mut bytes = 0;
        let fit = all.take(Rows::MAX).take_while(|it| {
            let names = it
                .min
                .keys()
                .chain(it.used.keys())
                .chain(it.quota.max.keys());
            // An amount has ten bytes at most, all else of a row less than what is added.
            bytes += 128 + it.name.as_str().len();
            bytes += names.map(|name| name.as_str().len() + 12).sum::<usize>();
            bytes <= MOST_BYTES
        });
        fit.collect()
    })
}

fn row(tenant: &Tenant) -> DueRow {
    let config = tenant.config();
    DueRow {
        name: tenant.name().clone(),
        weight: config.weight,
        min: amounts(&config.min_share),
        share: tenant.dominant_share().to_string(),
        used: amounts(&tenant.usage()),
        quota: config.quota.clone(),
        tasks: tenant.sandboxes(),
        waiting: tenant.waiting(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_promises_more_than_there_is_is_told() {
        let of = |amount, total, all| {
            let [amount, total, all] = [amount, total, all].map(Amount::units);
            promise(&ResourceName::CPU, amount, total, all)
        };
        assert_eq!(of(2, 8, 8), None);
        for (said, starts) in [
            (of(2, 0, 2), "no node has CPU now"),
            (of(9, 8, 9), "CPU 9 is more than all nodes have now, 8"),
            (of(5, 8, 9), "all tenants together are guaranteed CPU 9"),
        ] {
            let said = said.expect("a note");
            assert!(said.starts_with(starts), "{said}");
        }
    }
}
