//! The pools of one node, by name.
//!
//! Owns all-or-nothing acquire and release over whole resource sets, and which resources exist.
//! Must not: know load, tasks or other nodes.
//!
//! Invariants: a refused acquire changes nothing; a deleted resource is invisible, but its pool
//! stays until everything that is held of it has come back, so no unit is given out twice even if
//! the resource is added again meanwhile.

use super::allocation::Allocation;
use super::amount::Amount;
use super::fit::{AcquireError, Fit, PoolReport, judge};
use super::indexed::CapacityError;
use super::name::ResourceName;
use super::pool::Pool;
use super::request::{PoolKind, Request};
use super::set::{MAX_RESOURCES, ResourceSet};

/// The pools of one node, by name.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct ResourceIdSet {
    /// Sorted by name, each once.
    slots: Vec<(ResourceName, Slot)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Slot {
    pool: Pool,
    /// Then it has no capacity, and is gone once nothing of it is held any more.
    is_deleted: bool,
}

impl ResourceIdSet {
    /// No resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pool of a resource.
    pub fn get(&self, name: &ResourceName) -> Option<&Pool> {
        let slot = &self.slots[self.find(name).ok()?].1;
        (!slot.is_deleted).then_some(&slot.pool)
    }

    /// The pools, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, &Pool)> {
        let live = self.slots.iter().filter(|(_, slot)| !slot.is_deleted);
        live.map(|(name, slot)| (name, &slot.pool))
    }

    /// What there is in all.
    pub fn total(&self) -> ResourceSet {
        self.iter()
            .map(|(name, pool)| (name.clone(), pool.capacity()))
            .collect()
    }

    /// What is free, as a plain set: of units with ids that is not what fits.
    pub fn available(&self) -> ResourceSet {
        self.iter()
            .map(|(name, pool)| (name.clone(), pool.available()))
            .collect()
    }

    /// What is held, also of resources that were deleted.
    pub fn held(&self) -> ResourceSet {
        self.slots
            .iter()
            .map(|(name, slot)| (name.clone(), slot.pool.held()))
            .collect()
    }

    /// What is held above the capacity, also of resources that were deleted.
    pub fn backlog(&self) -> ResourceSet {
        self.slots
            .iter()
            .map(|(name, slot)| (name.clone(), slot.pool.backlog()))
            .collect()
    }

    /// Whether whoever asks for as much as this, after it is given back, gets just this.
    pub(crate) fn passes_on(&self, allocation: &Allocation) -> bool {
        let mut parts = allocation.iter();
        parts.all(|(name, part)| {
            let slot = self.find(name).map(|at| &self.slots[at].1);
            slot.is_ok_and(|slot| !slot.is_deleted && slot.pool.passes_on(part))
        })
    }

    /// Whether a request can be served now.
    pub fn contains(&self, request: &Request) -> bool {
        let mut amounts = request.amounts().iter();
        amounts.all(|(name, amount)| self.get(name).is_some_and(|pool| pool.contains(amount)))
    }

    /// Whether a request can be served now, and if not, why.
    pub fn judge(&self, request: &Request) -> Fit {
        judge(request, |name| self.report(name), None)
    }

    /// What others are told about a resource.
    pub fn report(&self, name: &ResourceName) -> Option<PoolReport> {
        self.get(name).map(Pool::report)
    }

    /// Takes all that is asked for, or nothing.
    pub fn acquire(&mut self, request: &Request) -> Result<Allocation, AcquireError> {
        if !self.contains(request) {
            return Err(match self.judge(request) {
                Fit::Unavailable(why) => AcquireError::Unavailable(why),
                Fit::Infeasible(why) => AcquireError::Infeasible(why),
                Fit::Available => unreachable!("{request:?} fits a report, but not the pools"),
            });
        }
        let mut allocation = Allocation::nothing();
        for (name, amount) in request.amounts().iter() {
            let at = self.find(name).expect("was checked above");
            let part = self.slots[at].1.pool.acquire(amount);
            allocation.push(name.clone(), part.expect("was checked above"));
        }
        Ok(allocation)
    }

    /// Gives back what was taken, never above the capacity.
    ///
    /// # Panics
    /// If it was not taken from these pools, as far as that shows.
    pub fn release(&mut self, allocation: Allocation) {
        for (name, part) in allocation.into_parts() {
            let at = self.find(&name);
            let at = at.unwrap_or_else(|_| panic!("{name} was released to a node without it"));
            let slot = &mut self.slots[at].1;
            slot.pool.release(part);
            if slot.is_deleted && slot.pool.held().is_zero() {
                self.slots.remove(at);
            }
        }
    }

    /// Gives the CPU part alone back: for a task that waits in a get or wait.
    pub fn release_cpu(&mut self, allocation: &mut Allocation) {
        self.release(allocation.take_cpu_part());
    }

    /// Takes the CPU part of the request again for a task that goes on, maybe with other ids. If
    /// it is not there, nothing changes.
    ///
    /// # Panics
    /// If the allocation holds a CPU part.
    pub fn reacquire_cpu(
        &mut self,
        request: &Request,
        allocation: &mut Allocation,
    ) -> Result<(), AcquireError> {
        allocation.join(self.acquire(&request.cpu_part())?);
        Ok(())
    }

    /// Adds a resource. One that was deleted and is still held in part comes back with the
    /// capacity of the new pool, as the same units.
    pub fn add(&mut self, name: ResourceName, pool: Pool) -> Result<(), AddResourceError> {
        let kind = pool.kind();
        if PoolKind::fixed(&name).is_some_and(|fixed| fixed != kind) {
            return Err(AddResourceError::Kind { name });
        }
        match self.find(&name) {
            Err(_) if self.slots.len() == MAX_RESOURCES => Err(AddResourceError::TooMany { name }),
            Err(at) => {
                self.slots.insert(at, (name, Slot::new(pool)));
                Ok(())
            }
            Ok(at) => {
                let slot = &mut self.slots[at].1;
                if !slot.is_deleted {
                    return Err(AddResourceError::Exists { name });
                }
                if slot.pool.kind() != kind {
                    return Err(AddResourceError::Held { name });
                }
                slot.pool.revive(pool);
                slot.is_deleted = false;
                Ok(())
            }
        }
    }

    /// Sets the capacity of a resource; one that is not there is added, of its default kind.
    /// Units in use above a smaller capacity become a backlog that releases pay first.
    pub fn set_capacity(
        &mut self,
        name: &ResourceName,
        capacity: Amount,
    ) -> Result<(), CapacityError> {
        match self.find(name) {
            Ok(at) => {
                let slot = &mut self.slots[at].1;
                slot.pool.set_capacity(name, capacity)?;
                slot.is_deleted = false;
                Ok(())
            }
            Err(_) if self.slots.len() == MAX_RESOURCES => {
                Err(CapacityError::TooManyResources { name: name.clone() })
            }
            Err(at) => {
                let pool = Pool::for_name(name, capacity)?;
                self.slots.insert(at, (name.clone(), Slot::new(pool)));
                Ok(())
            }
        }
    }

    /// Deletes a resource; false if there is none. Whoever holds some of it keeps that until it is
    /// released, which does not bring the resource back.
    pub fn delete(&mut self, name: &ResourceName) -> bool {
        let Ok(at) = self.find(name) else {
            return false;
        };
        let slot = &mut self.slots[at].1;
        if slot.is_deleted {
            return false;
        }
        slot.pool.close();
        slot.is_deleted = true;
        if slot.pool.held().is_zero() {
            self.slots.remove(at);
        }
        true
    }

    fn find(&self, name: &ResourceName) -> Result<usize, usize> {
        self.slots.binary_search_by(|(other, _)| other.cmp(name))
    }
}

impl Slot {
    fn new(pool: Pool) -> Self {
        Self {
            pool,
            is_deleted: false,
        }
    }
}

/// Why a resource was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddResourceError {
    /// It is there.
    #[error("{name} exists already; set its capacity instead")]
    Exists {
        /// The resource.
        name: ResourceName,
    },
    /// A standard resource of the wrong kind.
    #[error(
        "{name} cannot be of this kind: CPU and GPU have ids, memory is a sum; use its own kind"
    )]
    Kind {
        /// The resource.
        name: ResourceName,
    },
    /// Deleted, still held, and of the other kind before.
    #[error(
        "{name} was deleted, but tasks still hold some of it, so it cannot change its kind; \
         wait for them to finish, or add it as it was"
    )]
    Held {
        /// The resource.
        name: ResourceName,
    },
    /// Above [`MAX_RESOURCES`].
    #[error(
        "{name}: this node has {MAX_RESOURCES} resources, which is the limit; delete one first"
    )]
    TooMany {
        /// The resource.
        name: ResourceName,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(json: &str) -> ResourceIdSet {
        let mut pools = ResourceIdSet::new();
        for (name, capacity) in serde_json::from_str::<ResourceSet>(json).unwrap().iter() {
            pools.set_capacity(name, capacity).unwrap();
        }
        pools
    }

    fn request(json: &str) -> Request {
        serde_json::from_str(json).unwrap()
    }

    fn ids(allocation: &Allocation, name: &ResourceName) -> String {
        let holdings = allocation.holdings();
        let ids = holdings[name].ids.iter().map(|(id, _)| id.to_string());
        ids.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn all_or_nothing() {
        let mut pools = pools(r#"{"CPU": 4, "GPU": 1, "memory": "1GiB"}"#);
        let refused = pools.acquire(&request(r#"{"CPU": 1, "GPU": 1, "memory": "2GiB"}"#));
        let error = refused.unwrap_err().to_string();
        assert_eq!(error, "memory: needs 2GiB, node has 1GiB in total");
        assert_eq!(pools.available(), pools.total());
        let held = pools
            .acquire(&request(r#"{"CPU": 1, "GPU": "0.5", "memory": 64}"#))
            .unwrap();
        assert_eq!(pools.held(), held.amounts());
        let refused = pools.acquire(&request(r#"{"GPU": 1}"#)).unwrap_err();
        assert!(matches!(refused, AcquireError::Unavailable(_)));
        pools.release(held);
        assert_eq!(pools.available(), pools.total());
    }

    #[test]
    fn a_blocked_task_gives_its_cpu_back_and_gets_another() {
        let mut pools = pools(r#"{"CPU": 2, "GPU": 1}"#);
        let wanted = request(r#"{"CPU": 1, "GPU": 1}"#);
        let mut task = pools.acquire(&wanted).unwrap();
        assert_eq!(ids(&task, &ResourceName::CPU), "0");
        pools.release_cpu(&mut task);
        assert_eq!(task.amounts().to_string(), "{GPU: 1}");
        let both = pools.acquire(&request(r#"{"CPU": 2}"#)).unwrap();
        assert!(pools.reacquire_cpu(&wanted, &mut task).is_err());
        assert_eq!(task.amounts().to_string(), "{GPU: 1}");
        pools.release(both);
        let first = pools.acquire(&request(r#"{"CPU": 1}"#)).unwrap();
        pools.reacquire_cpu(&wanted, &mut task).unwrap();
        assert_eq!(ids(&task, &ResourceName::CPU), "1");
        assert_eq!(&task.amounts(), wanted.amounts());
        pools.release(first);
        pools.release(task);
        assert!(pools.held().is_empty());
    }

    #[test]
    fn a_release_does_not_bring_a_deleted_resource_back() {
        let mut pools = pools(r#"{"CPU": 1, "GPU": 2}"#);
        let held = pools.acquire(&request(r#"{"GPU": "0.5"}"#)).unwrap();
        assert!(pools.delete(&ResourceName::GPU));
        assert!(!pools.delete(&ResourceName::GPU));
        assert_eq!(pools.total().to_string(), "{CPU: 1}");
        let refused = pools.acquire(&request(r#"{"GPU": "0.5"}"#)).unwrap_err();
        assert_eq!(refused.to_string(), "GPU: needs 0.5, node has none");
        assert_eq!(pools.held().to_string(), "{GPU: 0.5}");
        pools.release(held);
        let mut left = ResourceIdSet::new();
        left.set_capacity(&ResourceName::CPU, Amount::ONE).unwrap();
        assert_eq!(pools, left);
    }

    #[test]
    fn a_resource_that_returns_does_not_give_held_units_out_again() {
        let mut pools = pools(r#"{"GPU": 2}"#);
        let held = pools.acquire(&request(r#"{"GPU": 1}"#)).unwrap();
        assert!(pools.delete(&ResourceName::GPU));
        let gpus = Pool::for_name(&ResourceName::GPU, Amount::units(2)).unwrap();
        pools.add(ResourceName::GPU, gpus).unwrap();
        let other = pools.acquire(&request(r#"{"GPU": 1}"#)).unwrap();
        assert_eq!(
            (
                ids(&held, &ResourceName::GPU),
                ids(&other, &ResourceName::GPU)
            ),
            ("0".into(), "1".into())
        );
        assert!(pools.acquire(&request(r#"{"GPU": "0.1"}"#)).is_err());
        pools.release(held);
        pools.release(other);
        assert_eq!(pools.available().to_string(), "{GPU: 2}");
    }

    #[test]
    fn adding_is_checked() {
        let mut pools = pools(r#"{"tpu": 2}"#);
        let tpu: ResourceName = "tpu".parse().unwrap();
        let sum = || Pool::sum(Amount::ONE);
        assert!(matches!(
            pools.add(tpu.clone(), sum()),
            Err(AddResourceError::Exists { .. })
        ));
        let error = pools.add(ResourceName::CPU, sum()).unwrap_err();
        assert!(matches!(error, AddResourceError::Kind { .. }));
        let held = pools.acquire(&request(r#"{"tpu": 1}"#)).unwrap();
        assert!(pools.delete(&tpu));
        assert!(matches!(
            pools.add(tpu.clone(), sum()),
            Err(AddResourceError::Held { .. })
        ));
        pools.release(held);
        pools.add(tpu.clone(), sum()).unwrap();
        assert!(pools.contains(&request(r#"{"tpu": "0.3"}"#)));
        for at in pools.slots.len()..MAX_RESOURCES {
            pools
                .set_capacity(&format!("r{at}").parse().unwrap(), Amount::ONE)
                .unwrap();
        }
        assert!(matches!(
            pools.set_capacity(&ResourceName::GPU, Amount::ONE),
            Err(CapacityError::TooManyResources { .. })
        ));
        assert!(matches!(
            pools.add(ResourceName::GPU, Pool::grouped(&[vec![0]]).unwrap()),
            Err(AddResourceError::TooMany { .. })
        ));
    }

    #[test]
    fn one_and_a_half_of_a_users_indexed_resource_is_infeasible() {
        let mut pools = pools(r#"{"tpu": 4}"#);
        let refused = pools.acquire(&request(r#"{"tpu": "1.5"}"#)).unwrap_err();
        assert!(
            refused.to_string().starts_with("tpu: 1.5 is not possible"),
            "{refused}"
        );
        assert!(matches!(refused, AcquireError::Infeasible(_)));
    }
}
