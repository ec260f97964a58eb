//! Tenants: what each is due, and what it has.

use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::resource::ResourceSet;
use wasmrun_model::wire::{
    self, Amounts, ChangeTenant, DueRow, List, Request, Response, Rows, Weights, What,
};

use crate::Client;
use crate::error::Error;

/// What is to change of what a tenant is due, and of its quota. What is not named stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    weight: Option<Weight>,
    min: Option<ResourceSet>,
    resource_weights: Option<Weights>,
    max: Option<Amounts>,
    max_objects: Option<Option<u64>>,
    max_detached: Option<Option<u64>>,
    max_tasks: Option<Option<u32>>,
    max_waiting: Option<Option<u32>>,
    no_preempt: Option<bool>,
}

impl TenantChange {
    /// Nothing changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much it counts beside the others, by default 1: one of weight 2 is due twice what one of weight 1 is.
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = Some(weight);
        self
    }

    /// What it is guaranteed, of at most [`wire::MAX_MINIMA`] resources, by default nothing; instead of all that it was
    /// guaranteed before. As long as it uses less than that of its dominant resource it goes before tenants that have
    /// what they are guaranteed. Nothing is reserved.
    #[must_use]
    pub fn min(mut self, min: ResourceSet) -> Self {
        self.min = Some(min);
        self
    }

    /// How much it counts beside the others for single resources, of which there may be [`wire::MAX_MINIMA`], on top of
    /// its weight; instead of all that was set before.
    #[must_use]
    pub fn resource_weights(mut self, weights: Weights) -> Self {
        self.resource_weights = Some(weights);
        self
    }

    /// What it may use at once, with all that are part of it, of at most [`wire::MAX_MINIMA`] resources, by default anything;
    /// instead of the whole quota of before.
    #[must_use]
    pub fn max(mut self, max: Amounts) -> Self {
        self.max = Some(max);
        self
    }

    /// How many bytes of objects it may have in the memory of each node, with all that are part of it, by default any number: with
    /// `None` again. What is above it goes to disk or waits.
    #[must_use]
    pub fn max_objects(mut self, most: Option<u64>) -> Self {
        self.max_objects = Some(most);
        self
    }

    /// How many detached tasks that have not ended it may have at each node, with all that are part of it, by default any number:
    /// with `None` again.
    #[must_use]
    pub fn max_detached(mut self, most: Option<u64>) -> Self {
        self.max_detached = Some(most);
        self
    }

    /// How many sandboxes it may have at once, by default any number: with `None` again.
    #[must_use]
    pub fn max_tasks(mut self, most: Option<u32>) -> Self {
        self.max_tasks = Some(most);
        self
    }

    /// How many of its tasks may wait at one node, by default any number: with `None` again. One more is refused.
    #[must_use]
    pub fn max_waiting(mut self, most: Option<u32>) -> Self {
        self.max_waiting = Some(most);
        self
    }

    /// Whether its tasks may ask not to be paused or stopped for others ([`wire::Terms::no_preempt`]), by default not.
    #[must_use]
    pub fn no_preempt(mut self, is_allowed: bool) -> Self {
        self.no_preempt = Some(is_allowed);
        self
    }
}

impl Client {
    /// Changes what a tenant is due, for all nodes of the cluster. A node that is in none knows it until it stops. What
    /// it is due from now on, and what is to be known of that.
    ///
    /// # Errors
    /// When the client is no operator, the cluster has too many tenants, or the control store does not do it: then
    /// nothing is changed, unless the error says that nobody knows. To say it again is right.
    pub async fn set_tenant(
        &self,
        tenant: &TenantName,
        change: TenantChange,
    ) -> Result<wire::TenantChanged, Error> {
        let min = change.min.map(|min| {
            let min = min.iter();
            min.map(|(name, amount)| (name.clone(), amount)).collect()
        });
        let change = ChangeTenant {
            tenant: tenant.clone(),
            weight: change.weight,
            min,
            resource_weights: change.resource_weights,
            max: change.max,
            max_tasks: change.max_tasks,
            max_waiting: change.max_waiting,
            max_objects: change.max_objects,
            max_detached: change.max_detached,
            no_preempt: change.no_preempt,
        };
        match self
            .request(Request::ChangeTenant(Box::new(change)))
            .await?
        {
            Response::TenantChanged(changed) => Ok(*changed),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Gives a tenant back what it is due by default, for all nodes of the cluster: weight 1, no guarantee and no quota. Its
    /// work goes on.
    ///
    /// # Errors
    /// When nothing is set for it, and as of [`Client::set_tenant`].
    pub async fn remove_tenant(&self, tenant: &TenantName) -> Result<(), Error> {
        self.done(Request::RemoveTenant(tenant.clone())).await
    }

    /// What the tenants of a list are due of the whole cluster and what they have, as far as the node knows, by name; the first
    /// [`Rows::MAX`]. For other lists than that of tenants it is empty, and the node is not asked: see
    /// [`rows::list`](crate::rows::list).
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn due(&self, list: &List) -> Result<Vec<DueRow>, Error> {
        if list.what != What::Tenants {
            return Ok(Vec::new());
        }
        let named = list.filters.iter().filter(|(field, _)| field == "name");
        let due = List {
            filters: named.cloned().collect(),
            ..List::of(What::Due)
        };
        match self.list(due).await?.rows {
            Rows::Due(rows) => Ok(rows),
            _ => Err(Error::Unexpected("another list".into())),
        }
    }
}
