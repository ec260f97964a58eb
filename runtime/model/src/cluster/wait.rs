//! The estimated wait: how long a request would wait on a node that is busy now.
//!
//! Owns the means that are learnt and the estimate. Must not: measure; what was seen comes in.
//!
//! Invariants: integers only, nothing overflows, nothing divides by zero; a mean that has seen
//! nothing is its named initial value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::resource::{Amount, IndexedDemand, PoolReport, Request, ResourceName};

/// What a task is taken to run for until some have been seen, in microseconds: 100 ms.
pub const INITIAL_RUN_TIME_US: u64 = 100_000;

/// What a node is taken to send until transfers have been seen, in bytes per second: 100 MB/s.
pub const INITIAL_BANDWIDTH: u64 = 100_000_000;

/// An exponential average: each new value counts one eighth. Kept as eight times the mean, as in
/// Jacobson, "Congestion Avoidance and Control" (1988), so that small steps are not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mean {
    /// Eight times the mean; `None` until something was seen.
    eightfold: Option<u64>,
    initial: u64,
}

/// How much of the mean a new value replaces, as a power of two.
const SHIFT: u32 = 3;

impl Mean {
    /// A mean that has seen nothing and stands at `initial`.
    pub const fn new(initial: u64) -> Self {
        Self {
            eightfold: None,
            initial,
        }
    }

    /// The mean of run times, in microseconds.
    pub const fn of_run_times() -> Self {
        Self::new(INITIAL_RUN_TIME_US)
    }

    /// The mean of bandwidths, in bytes per second.
    pub const fn of_bandwidths() -> Self {
        Self::new(INITIAL_BANDWIDTH)
    }

    /// Takes a value in. The first one replaces the initial value.
    pub fn observe(&mut self, value: u64) {
        let value = value.min(u64::MAX >> SHIFT);
        self.eightfold = Some(match self.eightfold {
            None => value << SHIFT,
            Some(old) => old - (old >> SHIFT) + value,
        });
    }

    /// The mean, rounded down.
    pub fn get(&self) -> u64 {
        self.eightfold
            .map_or(self.initial, |eightfold| eightfold >> SHIFT)
    }
}

/// What a node says of the tasks that wait there, placed and not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueReport {
    /// How many they are.
    pub tasks: u64,
    /// The sum of the mean run times of what they run, in microseconds.
    pub run_time_us: u64,
}

impl QueueReport {
    /// Counts a task with this mean run time, in microseconds.
    pub fn add(&mut self, run_time_us: u64) {
        self.tasks = self.tasks.saturating_add(1);
        self.run_time_us = self.run_time_us.saturating_add(run_time_us);
    }

    /// This queue and another one.
    pub fn and(self, other: Self) -> Self {
        Self {
            tasks: self.tasks.saturating_add(other.tasks),
            run_time_us: self.run_time_us.saturating_add(other.run_time_us),
        }
    }

    /// A queue of so many tasks with this mean run time, in microseconds.
    pub fn of(tasks: u64, run_time_us: u64) -> Self {
        Self {
            tasks,
            run_time_us: tasks.saturating_mul(run_time_us),
        }
    }

    /// Stops counting a task with this mean run time, in microseconds.
    pub fn remove(&mut self, run_time_us: u64) {
        self.tasks = self.tasks.saturating_sub(1);
        self.run_time_us = self.run_time_us.saturating_sub(run_time_us);
    }
}

/// How many such requests the resources of a node in all can serve at once; [`u64::MAX`] for one
/// that asks for nothing.
pub fn slots(request: &Request, pool_of: impl Fn(&ResourceName) -> Option<PoolReport>) -> u64 {
    let slots_of = |(name, amount): (&ResourceName, Amount)| match pool_of(name) {
        None => 0,
        Some(PoolReport::Sum { capacity, .. }) => capacity.steps() / amount.steps().max(1),
        Some(PoolReport::Indexed { capacity, .. }) => match IndexedDemand::new(amount) {
            None => 0,
            Some(IndexedDemand::Units(units)) => u64::from(capacity) / units,
            Some(IndexedDemand::Share(share)) => {
                u64::from(capacity) * (Amount::STEPS_PER_UNIT / share.amount().steps())
            }
        },
    };
    let slots = request.amounts().iter().map(slots_of);
    slots.min().unwrap_or(u64::MAX)
}

/// How long a request would wait behind that queue, in microseconds: the run times of what waits
/// there, divided among the slots.
pub fn queue_wait_us(queue: QueueReport, slots: u64) -> u64 {
    queue.run_time_us / slots.max(1)
}

/// How long these bytes take at this many bytes per second, in microseconds.
pub fn transfer_us(bytes: u64, bandwidth: u64) -> u64 {
    let us = u128::from(bytes) * 1_000_000 / u128::from(bandwidth.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}

/// The bandwidth of a transfer that was seen, in bytes per second.
pub fn bandwidth(bytes: u64, took: Duration) -> u64 {
    let us = took.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / us).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Share;

    #[test]
    fn a_mean_starts_at_its_initial_value_and_follows() {
        let mut mean = Mean::of_run_times();
        assert_eq!(mean.get(), 100_000);
        mean.observe(800);
        assert_eq!(mean.get(), 800);
        mean.observe(1_600);
        assert_eq!(mean.get(), 900);
        (0..100).for_each(|_| mean.observe(10));
        // It gets there, although one eighth of the last steps is less than one.
        assert_eq!(mean.get(), 10);
        mean.observe(u64::MAX);
        mean.observe(u64::MAX);
        assert!(mean.get() > u64::MAX >> 8);
    }

    #[test]
    fn slots_are_what_the_totals_give() {
        let request = |json: &str| serde_json::from_str::<Request>(json).unwrap();
        let pools = |name: &ResourceName| match name.as_str() {
            "GPU" => Some(PoolReport::Indexed {
                capacity: 4,
                available: Amount::ZERO,
                whole_ids: 0,
                largest_share: None::<Share>,
            }),
            "memory" => Some(PoolReport::Sum {
                capacity: Amount::units(100),
                available: Amount::ZERO,
            }),
            _ => None,
        };
        for (json, expected) in [
            (r#"{"GPU": 1}"#, 4),
            (r#"{"GPU": 3}"#, 1),
            // Two shares of 0.4 fit one unit, not two and a half.
            (r#"{"GPU": "0.4"}"#, 8),
            (r#"{"GPU": 1, "memory": 30}"#, 3),
            (r#"{"CPU": 1}"#, 0),
            ("{}", u64::MAX),
        ] {
            assert_eq!(slots(&request(json), pools), expected, "{json}");
        }
    }

    #[test]
    fn waits() {
        let mut queue = QueueReport::default();
        (0..6).for_each(|_| queue.add(INITIAL_RUN_TIME_US));
        queue.remove(INITIAL_RUN_TIME_US);
        assert_eq!((queue.tasks, queue_wait_us(queue, 4)), (5, 125_000));
        assert_eq!(queue_wait_us(queue, 0), 500_000);
        assert_eq!(queue_wait_us(queue, u64::MAX), 0);
        assert_eq!(transfer_us(50_000_000, INITIAL_BANDWIDTH), 500_000);
        assert_eq!(transfer_us(u64::MAX, 0), u64::MAX);
        assert_eq!(bandwidth(1_000, Duration::from_millis(2)), 500_000);
        assert_eq!(bandwidth(1, Duration::ZERO), 1_000_000);
    }
}
