//! Pools: one resource of one node.
//!
//! Owns the capacity of a resource and what of it is free, for both kinds. Must not: know load or
//! other resources.
//!
//! Invariants: `capacity = available + held - backlog`, by construction: a pool keeps its capacity
//! and what exists or is held, and the backlog is what that exceeds the capacity by. No more is
//! given out than the capacity allows.

use super::allocation::{PoolAllocation, Portion};
use super::amount::Amount;
use super::amount_text::ParseAmountError;
use super::fit::PoolReport;
use super::groups::{Groups, GroupsError};
use super::indexed::{CapacityError, IndexedPool};
use super::name::ResourceName;
use super::request::{IndexedDemand, PoolKind};

/// One resource of one node.
///
/// The two kinds are HyperQueue's; the backlog of a shrunk pool is Ray's.
#[derive(Debug, PartialEq, Eq)]
pub enum Pool {
    /// Units with ids.
    Indexed(IndexedPool),
    /// A quantity without ids.
    Sum(SumPool),
}

/// A pool without ids.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct SumPool {
    capacity: Amount,
    held: Amount,
}

impl Pool {
    /// A pool of the kind that the resource has by default: a sum for `memory`, units with ids for
    /// all else. Those need a whole number, of at most 1,048,576.
    pub fn for_name(name: &ResourceName, capacity: Amount) -> Result<Self, CapacityError> {
        if name.is_reserved() {
            return Err(CapacityError::Reserved { name: name.clone() });
        }
        match PoolKind::fixed(name).unwrap_or(PoolKind::Indexed) {
            PoolKind::Indexed => IndexedPool::new(name, capacity).map(Self::Indexed),
            PoolKind::Sum => Ok(Self::sum(capacity)),
        }
    }

    /// A pool without ids.
    pub fn sum(capacity: Amount) -> Self {
        Self::Sum(SumPool {
            capacity,
            held: Amount::ZERO,
        })
    }

    /// A pool of units whose ids come in groups that requests should not straddle: each inner list
    /// is a group, and together they are the ids 0 to n-1.
    pub fn grouped(groups: &[Vec<u32>]) -> Result<Self, GroupsError> {
        Groups::new(groups).map(|groups| Self::Indexed(IndexedPool::grouped(groups)))
    }

    /// Parses a declaration as it stands after `name=`: an amount, of the default kind, or
    /// `sum:` and an amount.
    pub fn parse(name: &ResourceName, text: &str) -> Result<Self, ParsePoolError> {
        let Some(text) = text.strip_prefix("sum:") else {
            return Ok(Self::for_name(name, Amount::parse_for(name, text)?)?);
        };
        if PoolKind::fixed(name) == Some(PoolKind::Indexed) {
            return Err(ParsePoolError::NotASum {
                name: name.clone(),
                rest: text.into(),
            });
        }
        if name.is_reserved() {
            return Err(CapacityError::Reserved { name: name.clone() }.into());
        }
        Ok(Self::sum(Amount::parse_for(name, text)?))
    }

    /// The kind.
    pub fn kind(&self) -> PoolKind {
        match self {
            Self::Indexed(_) => PoolKind::Indexed,
            Self::Sum(_) => PoolKind::Sum,
        }
    }

    /// What the pool is meant to have in all.
    pub fn capacity(&self) -> Amount {
        match self {
            Self::Indexed(pool) => pool.capacity(),
            Self::Sum(pool) => pool.capacity,
        }
    }

    /// What is free now. Of units with ids the sum is not what fits: see [`Pool::report`].
    pub fn available(&self) -> Amount {
        match self {
            Self::Indexed(pool) => pool.available(),
            Self::Sum(pool) => pool.capacity.saturating_sub(pool.held),
        }
    }

    /// What has been taken and not released.
    pub fn held(&self) -> Amount {
        match self {
            Self::Indexed(pool) => pool.held(),
            Self::Sum(pool) => pool.held,
        }
    }

    /// The decrement backlog: what is held above the capacity. Releases pay it before anything
    /// becomes available.
    pub fn backlog(&self) -> Amount {
        match self {
            Self::Indexed(pool) => pool.backlog(),
            Self::Sum(pool) => pool.held.saturating_sub(pool.capacity),
        }
    }

    /// What this node tells others about the pool.
    pub fn report(&self) -> PoolReport {
        match self {
            Self::Indexed(pool) => pool.report(),
            Self::Sum(pool) => PoolReport::Sum {
                capacity: pool.capacity,
                available: self.available(),
            },
        }
    }

    /// Whether this much can be taken now. Zero always can; 1.5 of units with ids never.
    pub fn contains(&self, amount: Amount) -> bool {
        match self {
            Self::Indexed(pool) => {
                amount.is_zero() || IndexedDemand::new(amount).is_some_and(|it| pool.contains(it))
            }
            Self::Sum(_) => amount <= self.available(),
        }
    }

    /// Takes this much, or nothing (`None`) where [`Pool::contains`] says no. Zero is taken as an
    /// allocation of nothing.
    pub fn acquire(&mut self, amount: Amount) -> Option<PoolAllocation> {
        match self {
            _ if amount.is_zero() => Some(PoolAllocation::new(Portion::Nothing)),
            Self::Indexed(pool) => pool.acquire(IndexedDemand::new(amount)?),
            Self::Sum(pool) => {
                let held = pool.held.checked_add(amount);
                pool.held = held.filter(|held| *held <= pool.capacity)?;
                Some(PoolAllocation::new(Portion::Sum(amount)))
            }
        }
    }

    /// Whether whoever asks for as much as this, after it is given back, gets just this.
    pub(super) fn passes_on(&self, part: &PoolAllocation) -> bool {
        match self {
            Self::Indexed(pool) => part.is_nothing() || part.is_units() && pool.has_none_free(),
            Self::Sum(pool) => pool.held <= pool.capacity,
        }
    }

    /// Gives back what was taken, never above the capacity: a backlog is paid first.
    ///
    /// # Panics
    /// If it was not taken from this pool, as far as that shows.
    pub fn release(&mut self, allocation: PoolAllocation) {
        match (self, allocation.into_portion()) {
            (_, Portion::Nothing) => {}
            (Self::Indexed(pool), Portion::Units(ids)) => {
                ids.into_iter().for_each(|id| pool.release_unit(id));
            }
            (Self::Indexed(pool), Portion::Share(id, share)) => pool.release_share(id, share),
            (Self::Sum(pool), Portion::Sum(amount)) => {
                let held = pool.held.checked_sub(amount);
                pool.held = held.expect("more was released than was taken");
            }
            (Self::Indexed(_), held @ Portion::Sum(_))
            | (Self::Sum(_), held @ (Portion::Units(_) | Portion::Share(..))) => {
                panic!("{held:?} was released to a pool of the other kind")
            }
        }
    }

    /// Changes the capacity. Growing cancels a backlog first and then adds ids, the lowest that
    /// nobody uses. Shrinking takes free whole ids away, the highest first; what is in use
    /// becomes a backlog.
    pub fn set_capacity(
        &mut self,
        name: &ResourceName,
        capacity: Amount,
    ) -> Result<(), CapacityError> {
        match self {
            Self::Indexed(pool) => pool.set_capacity(name, capacity)?,
            Self::Sum(pool) => pool.capacity = capacity,
        }
        Ok(())
    }

    /// Brings a pool that had its capacity taken away back to the capacity and groups of a fresh
    /// one of the same kind.
    pub(super) fn revive(&mut self, fresh: Self) {
        assert!(fresh.held().is_zero(), "a pool that is in use was added");
        match (self, fresh) {
            (Self::Indexed(pool), Self::Indexed(fresh)) => pool.revive(fresh),
            (Self::Sum(pool), Self::Sum(fresh)) => pool.capacity = fresh.capacity,
            (Self::Indexed(_), Self::Sum(_)) | (Self::Sum(_), Self::Indexed(_)) => {
                panic!("a pool cannot change its kind while some of it is held")
            }
        }
    }

    /// Takes all capacity away: what is held stays held until it is released.
    pub(super) fn close(&mut self) {
        match self {
            Self::Indexed(pool) => pool.close(),
            Self::Sum(pool) => pool.capacity = Amount::ZERO,
        }
    }
}

/// Why a text does not declare a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePoolError {
    /// The amount is none.
    #[error(transparent)]
    Amount(#[from] ParseAmountError),
    /// The amount is no capacity for this resource.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// A sum of a resource whose units always have ids.
    #[error("{name}=sum:{rest} is not possible: units of {name} have ids; write {name}={rest}")]
    NotASum {
        /// The resource.
        name: ResourceName,
        /// What followed `sum:`.
        rest: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    fn gpus(units: u32) -> Pool {
        Pool::for_name(&ResourceName::GPU, Amount::units(units)).unwrap()
    }

    fn resize(pool: &mut Pool, text: &str) {
        pool.set_capacity(&ResourceName::GPU, amount(text)).unwrap();
    }

    fn numbers(allocation: &PoolAllocation) -> Vec<u32> {
        allocation.ids().map(|(id, _)| id.get()).collect()
    }

    fn state(pool: &Pool) -> String {
        let (capacity, available) = (pool.capacity(), pool.available());
        format!(
            "{capacity} = {available} + {} - {}",
            pool.held(),
            pool.backlog()
        )
    }

    #[test]
    fn shrinking_remembers_what_is_in_use_and_releases_pay_first() {
        let mut pool = gpus(4);
        let a = pool.acquire(amount("2")).unwrap();
        let b = pool.acquire(amount("1")).unwrap();
        resize(&mut pool, "1");
        assert_eq!(state(&pool), "1 = 0 + 3 - 2");
        pool.release(a);
        assert_eq!(state(&pool), "1 = 0 + 1 - 0");
        assert!(!pool.contains(amount("0.1")));
        pool.release(b);
        assert_eq!(state(&pool), "1 = 1 + 0 - 0");
        // Id 2 is the one that stayed; growing adds the lowest unused ones.
        resize(&mut pool, "3");
        let all = pool.acquire(amount("3")).unwrap();
        assert_eq!(numbers(&all), [0, 1, 2]);
        pool.release(all);
    }

    #[test]
    fn growing_cancels_the_backlog_before_it_adds_ids() {
        let mut pool = gpus(3);
        let held = pool.acquire(amount("3")).unwrap();
        resize(&mut pool, "1");
        assert_eq!(state(&pool), "1 = 0 + 3 - 2");
        resize(&mut pool, "2");
        assert_eq!(state(&pool), "2 = 0 + 3 - 1");
        resize(&mut pool, "4");
        assert_eq!(state(&pool), "4 = 1 + 3 - 0");
        // Held ids are in use: the fresh one is none of them.
        let fresh = pool.acquire(amount("1")).unwrap();
        assert_eq!(numbers(&fresh), [3]);
        pool.release(held);
        pool.release(fresh);
        assert_eq!(pool, gpus(4));
    }

    #[test]
    fn what_is_left_of_a_shared_id_counts_against_the_backlog() {
        let mut pool = gpus(1);
        let half = pool.acquire(amount("0.5")).unwrap();
        resize(&mut pool, "0");
        // The other half is there, but a node without GPUs starts nothing on one.
        assert_eq!(state(&pool), "0 = 0 + 0.5 - 0.5");
        assert!(!pool.contains(amount("0.1")) && pool.acquire(amount("0.5")).is_none());
        resize(&mut pool, "1");
        assert_eq!(state(&pool), "1 = 0.5 + 0.5 - 0");
        let other = pool.acquire(amount("0.5")).unwrap();
        assert_eq!(numbers(&other), [0]);
        resize(&mut pool, "0");
        pool.release(half);
        assert_eq!(state(&pool), "0 = 0 + 0.5 - 0.5");
        pool.release(other);
        assert_eq!(pool, gpus(0));
    }

    #[test]
    fn shares_keep_within_a_shrunk_capacity() {
        let mut pool = gpus(3);
        let held: Vec<_> = (0..3)
            .map(|_| pool.acquire(amount("0.6")).unwrap())
            .collect();
        resize(&mut pool, "2");
        // 1.2 are left on three ids, but only 0.2 within the capacity.
        assert_eq!(state(&pool), "2 = 0.2 + 1.8 - 0");
        assert!(!pool.contains(amount("0.3")));
        let little = pool.acquire(amount("0.2")).unwrap();
        assert_eq!(state(&pool), "2 = 0 + 2 - 0");
        held.into_iter().for_each(|held| pool.release(held));
        pool.release(little);
        assert_eq!(state(&pool), "2 = 2 + 0 - 0");
    }

    #[test]
    fn a_sum_has_any_amount_and_the_same_backlog() {
        let bandwidth: ResourceName = "bw".parse().unwrap();
        let mut pool = Pool::parse(&bandwidth, "sum:2.5").unwrap();
        let held = pool.acquire(amount("1.75")).unwrap();
        assert_eq!(pool.acquire(amount("0.7501")), None);
        pool.set_capacity(&bandwidth, amount("1.5")).unwrap();
        assert_eq!(state(&pool), "1.5 = 0 + 1.75 - 0.25");
        pool.set_capacity(&bandwidth, amount("2")).unwrap();
        assert_eq!(state(&pool), "2 = 0.25 + 1.75 - 0");
        pool.release(held);
        assert_eq!(state(&pool), "2 = 2 + 0 - 0");
    }

    #[test]
    fn units_come_from_one_group() {
        let mut pool = Pool::grouped(&[vec![0, 1], vec![2, 3]]).unwrap();
        let one = pool.acquire(amount("1")).unwrap();
        let two = pool.acquire(amount("2")).unwrap();
        assert_eq!((numbers(&one), numbers(&two)), (vec![0], vec![2, 3]));
        pool.release(one);
        // A share splits the group that is broken already.
        pool.release(two);
        let one = pool.acquire(amount("1")).unwrap();
        let share = pool.acquire(amount("0.5")).unwrap();
        assert_eq!(numbers(&share), [1]);
        pool.release(one);
        pool.release(share);
    }

    #[test]
    fn declarations() {
        let name = |text: &str| text.parse::<ResourceName>().unwrap();
        let parse = |name: &ResourceName, text| Pool::parse(name, text);
        assert_eq!(parse(&name("tpu"), "4").unwrap().kind(), PoolKind::Indexed);
        assert_eq!(
            parse(&name("memory"), "2GiB").unwrap().capacity(),
            Amount::units(2 << 30)
        );
        assert_eq!(
            parse(&name("memory"), "sum:1").unwrap().kind(),
            PoolKind::Sum
        );
        let error = parse(&name("tpu"), "2.5").unwrap_err().to_string();
        assert!(
            error.ends_with("declare it as tpu=sum:2.5 if its units need no ids"),
            "{error}"
        );
        let error = parse(&ResourceName::CPU, "sum:4").unwrap_err().to_string();
        assert!(error.ends_with("write CPU=4"), "{error}");
        for amount in ["4", "sum:4"] {
            let error = parse(&name("wasmrun/sandboxes"), amount).unwrap_err();
            assert!(error.to_string().contains("are wasmrun's own"), "{error}");
        }
        assert!(parse(&name("tokens"), "1048576").is_ok());
        assert!(
            parse(&name("tokens"), "1048577")
                .unwrap_err()
                .to_string()
                .contains("1048576")
        );
    }

    #[test]
    #[should_panic(expected = "pool without it")]
    fn an_id_of_another_pool_is_a_bug() {
        let mut pool = gpus(2);
        let _first = std::mem::ManuallyDrop::new(pool.acquire(Amount::ONE).unwrap());
        let second = pool.acquire(Amount::ONE).unwrap();
        gpus(1).release(second);
    }
}
