//! The resources of one node: its own truth, and what others know of it.
//!
//! Owns [`NodeResources`] (pools and load) and [`NodeReport`], their summary that travels. Must
//! not: choose between nodes or tasks.
//!
//! Invariants: `total = available + held - backlog` for every resource; acquire and release act on
//! what is available, placement is judged on what is *truly free*, which is that less the load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::allocation::Allocation;
use super::amount::Amount;
use super::fit::{AcquireError, Fit, PoolReport, judge};
use super::id_set::{AddResourceError, ResourceIdSet};
use super::indexed::CapacityError;
use super::load::Load;
use super::name::ResourceName;
use super::pool::Pool;
use super::request::Request;
use super::set::ResourceSet;

/// The resources of one node, kept by that node. After Ray's node resources (total, available,
/// load), on pools with ids.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct NodeResources {
    pools: ResourceIdSet,
    load: Load,
}

impl NodeResources {
    /// A node without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node that has these amounts, of the default kinds.
    ///
    /// # Errors
    /// The first that its kind cannot have.
    pub fn of(amounts: &ResourceSet) -> Result<Self, CapacityError> {
        let mut node = Self::new();
        for (name, capacity) in amounts.iter() {
            node.set_capacity(name, capacity)?;
        }
        Ok(node)
    }

    /// The pools with their ids.
    pub fn pools(&self) -> &ResourceIdSet {
        &self.pools
    }

    /// What the node has in all.
    pub fn total(&self) -> ResourceSet {
        self.pools.total()
    }

    /// What no task holds.
    pub fn available(&self) -> ResourceSet {
        self.pools.available()
    }

    /// What tasks hold, also of resources that were deleted.
    pub fn held(&self) -> ResourceSet {
        self.pools.held()
    }

    /// What tasks hold above what the node has.
    pub fn backlog(&self) -> ResourceSet {
        self.pools.backlog()
    }

    /// What placed tasks that have not started will need.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// What is available less the load, never below zero. What fits is judged finer.
    pub fn truly_free(&self) -> ResourceSet {
        let mut free = self.available();
        free.subtract_clamped(&self.load.amounts());
        free
    }

    /// Whether the node can take one more such request, and if not, why: judged on what is truly
    /// free, by the same rule as [`NodeReport::judge`].
    pub fn judge(&self, request: &Request) -> Fit {
        judge(request, |name| self.pools.report(name), Some(&self.load))
    }

    /// What is truly free of one resource; `None` if the node does not have it.
    pub fn free(&self, name: &ResourceName) -> Option<PoolReport> {
        let report = self.pools.report(name)?;
        let claims = self.load.of(name);
        Some(claims.map_or(report, |claims| claims.leave_of(report)))
    }

    /// Whether [`NodeResources::acquire`] would succeed: what a dispatch of a placed task asks.
    pub fn can_acquire(&self, request: &Request) -> bool {
        self.pools.contains(request)
    }

    /// Takes all that is asked for from what is available, or nothing. The load stays as it is.
    pub fn acquire(&mut self, request: &Request) -> Result<Allocation, AcquireError> {
        self.pools.acquire(request)
    }

    /// Gives back what was taken.
    ///
    /// # Panics
    /// If it was not taken from this node, as far as that shows.
    pub fn release(&mut self, allocation: Allocation) {
        self.pools.release(allocation);
    }

    /// Gives the CPU part alone back: for a task that becomes blocked.
    pub fn release_cpu(&mut self, allocation: &mut Allocation) {
        self.pools.release_cpu(allocation);
    }

    /// Takes the CPU part of the request again for a task that was blocked, maybe with other ids.
    /// If it is not there, nothing changes.
    ///
    /// # Panics
    /// If the allocation holds a CPU part.
    pub fn reacquire_cpu(
        &mut self,
        request: &Request,
        allocation: &mut Allocation,
    ) -> Result<(), AcquireError> {
        self.pools.reacquire_cpu(request, allocation)
    }

    /// Counts a task that was placed here and has not started.
    pub fn add_load(&mut self, request: &Request) {
        self.load.add(request);
    }

    /// Stops counting a task that has started or gone.
    ///
    /// # Panics
    /// If it was not counted.
    pub fn remove_load(&mut self, request: &Request) {
        assert!(
            self.load.remove(request),
            "{request:?} is not part of the load"
        );
    }

    /// Adds a resource; see [`ResourceIdSet::add`].
    pub fn add(&mut self, name: ResourceName, pool: Pool) -> Result<(), AddResourceError> {
        self.pools.add(name, pool)
    }

    /// Moves what the node has in all of a resource by the difference, and what is available with
    /// it, never below zero: the rest becomes a backlog. A resource that is not there is added, of
    /// its default kind.
    pub fn set_capacity(
        &mut self,
        name: &ResourceName,
        capacity: Amount,
    ) -> Result<(), CapacityError> {
        self.pools.set_capacity(name, capacity)
    }

    /// Deletes a resource; false if there is none. Tasks keep what they hold until they finish.
    pub fn delete(&mut self, name: &ResourceName) -> bool {
        self.pools.delete(name)
    }

    /// What the node tells others now.
    pub fn report(&self) -> NodeReport {
        let reports = self
            .pools
            .iter()
            .map(|(name, pool)| (name.clone(), pool.report()));
        NodeReport {
            pools: reports.collect(),
            load: self.load.clone(),
        }
    }
}

/// What a node tells others about its resources: per indexed pool the whole free ids and the
/// largest share, per sum what is free, and the load.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeReport {
    pools: BTreeMap<ResourceName, PoolReport>,
    load: Load,
}

impl NodeReport {
    /// The reports of the pools.
    pub fn pools(&self) -> &BTreeMap<ResourceName, PoolReport> {
        &self.pools
    }

    /// What the node has in all.
    pub fn total(&self) -> ResourceSet {
        self.pools
            .iter()
            .map(|(name, pool)| (name.clone(), pool.capacity()))
            .collect()
    }

    /// What no task held.
    pub fn available(&self) -> ResourceSet {
        self.pools
            .iter()
            .map(|(name, pool)| (name.clone(), pool.available()))
            .collect()
    }

    /// What placed tasks that have not started will need.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// What is available less the load, never below zero.
    pub fn truly_free(&self) -> ResourceSet {
        let mut free = self.available();
        free.subtract_clamped(&self.load.amounts());
        free
    }

    /// Whether the node can take one more such request, and if not, why.
    pub fn judge(&self, request: &Request) -> Fit {
        judge(
            request,
            |name| self.pools.get(name).copied(),
            Some(&self.load),
        )
    }

    /// What is truly free of one resource; `None` if the node does not have it.
    pub fn free(&self, name: &ResourceName) -> Option<PoolReport> {
        let report = *self.pools.get(name)?;
        let claims = self.load.of(name);
        Some(claims.map_or(report, |claims| claims.leave_of(report)))
    }

    /// Counts a task that has been placed there since, so that the next decision sees it.
    pub fn add_load(&mut self, request: &Request) {
        self.load.add(request);
    }

    /// Stops counting a task, as far as this report counts it.
    pub fn remove_load(&mut self, request: &Request) {
        self.remove_loads(request, 1);
    }

    /// Stops counting so many tasks that are alike, as far as this report counts them.
    pub fn remove_loads(&mut self, request: &Request, count: u64) {
        // A newer report may have come without them.
        let _ = self.load.remove_all(request, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(json: &str) -> NodeResources {
        NodeResources::of(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn request(json: &str) -> Request {
        serde_json::from_str(json).unwrap()
    }

    fn unavailable(fit: Fit) -> String {
        match fit {
            Fit::Unavailable(why) => why.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn load_is_a_claim_on_what_is_available() {
        let mut node = node(r#"{"CPU": 4, "memory": "1GiB"}"#);
        let wanted = request(r#"{"CPU": 3, "memory": "512MiB"}"#);
        node.add_load(&wanted);
        assert_eq!(node.truly_free().to_string(), "{CPU: 1, memory: 512MiB}");
        assert_eq!(
            unavailable(node.judge(&wanted)),
            "CPU: needs 3, node has 1 whole units free"
        );
        // The placed task itself starts on what is available.
        let held = node.acquire(&wanted).unwrap();
        node.remove_load(&wanted);
        assert_eq!(node.truly_free(), node.available());
        assert_eq!(node.judge(&request(r#"{"CPU": 1}"#)), Fit::Available);
        node.release(held);
    }

    #[test]
    fn a_sum_is_not_enough_for_ids() {
        let mut node = node(r#"{"GPU": 2}"#);
        let share = request(r#"{"GPU": "0.6"}"#);
        let held = [node.acquire(&share).unwrap(), node.acquire(&share).unwrap()];
        let wanted = request(r#"{"GPU": "0.75"}"#);
        assert!(wanted.amounts().is_subset(&node.truly_free()));
        let expected = "GPU: needs 0.75 of one unit, node has at most 0.4 of one free";
        assert_eq!(unavailable(node.judge(&wanted)), expected);
        assert_eq!(unavailable(node.report().judge(&wanted)), expected);
        held.into_iter().for_each(|held| node.release(held));
    }

    #[test]
    fn a_choice_counts_at_once_in_the_view_of_others() {
        let node = node(r#"{"GPU": 2}"#);
        let mut view = node.report();
        let wanted = request(r#"{"GPU": "0.75"}"#);
        for _ in 0..2 {
            assert_eq!(view.judge(&wanted), Fit::Available);
            view.add_load(&wanted);
        }
        assert!(matches!(view.judge(&wanted), Fit::Unavailable(_)));
        view.remove_load(&wanted);
        assert_eq!(view.judge(&wanted), Fit::Available);
        view.remove_load(&wanted);
        view.remove_load(&wanted);
        assert_eq!(view, node.report());
    }

    #[test]
    fn infeasible_goes_before_unavailable() {
        let mut node = node(r#"{"CPU": 1, "GPU": 1}"#);
        let held = node.acquire(&request(r#"{"CPU": 1}"#)).unwrap();
        let fit = node.judge(&request(r#"{"CPU": 1, "GPU": 2}"#));
        match fit {
            Fit::Infeasible(why) => {
                assert_eq!(why.to_string(), "GPU: needs 2, node has 1 in total")
            }
            other => panic!("{other:?}"),
        }
        node.release(held);
    }

    #[test]
    fn reports_travel() {
        let mut node = node(r#"{"CPU": 4, "GPU": 2, "memory": "1GiB", "tpu": 1}"#);
        let held = node
            .acquire(&request(r#"{"CPU": 1, "GPU": "0.25"}"#))
            .unwrap();
        node.add_load(&request(r#"{"GPU": "0.5", "memory": "1.5"}"#));
        let report = node.report();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<NodeReport>(&json).unwrap(), report);
        let bytes = postcard::to_allocvec(&report).unwrap();
        assert_eq!(postcard::from_bytes::<NodeReport>(&bytes).unwrap(), report);
        node.release(held);
    }
}
