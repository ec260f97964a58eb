//! What a node counts for whoever watches it, where nothing else remembers it.
//!
//! Owns numbers that only grow. Must not: be read to decide anything. They are relaxed: each is right by itself, and
//! two of them may be of different moments.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens outside the ledger's lock, or between nodes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Attempts that were given to other nodes.
    pub(crate) tasks_sent: Counter,
    /// Attempts that others gave to us.
    pub(crate) tasks_taken: Counter,
    /// Attempts that others gave back unbegun.
    pub(crate) tasks_returned: Counter,
    /// Objects, and parts of them, that were brought here.
    pub(crate) transfers_in: Counter,
    /// Their bytes.
    pub(crate) bytes_in: Counter,
    /// Those that broke or were refused.
    pub(crate) transfers_failed: Counter,
    /// Those that brought other bytes than were once made.
    pub(crate) transfers_changed: Counter,
    /// Objects that other nodes of this machine have lent us.
    pub(crate) borrowed: Counter,
    /// Objects that such a node has, or had, and that were brought all the same.
    pub(crate) not_borrowed: Counter,
    /// What others took from us.
    pub(crate) transfers_out: Counter,
    /// Its bytes.
    pub(crate) bytes_out: Counter,
    /// Objects that were lost and are made again.
    pub(crate) objects_remade: Counter,
    /// Values that found no room in the store in time.
    pub(crate) no_room: Counter,
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// By the first of [`Latency::BOUNDS_US`] that it is not above, and those above all.
    counts: [Counter; Self::BOUNDS_US.len() + 1],
    sum_us: Counter,
    failures: Counter,
}

impl Latency {
    /// Bounds of the buckets, in microseconds.
    pub(crate) const BOUNDS_US: [u64; 10] = [
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_000_000, 10_000_000,
    ];

    pub(crate) fn observe(&self, took: Duration, is_failed: bool) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = Self::BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].add(1);
        self.sum_us.add(us);
        self.failures.add(is_failed.into());
    }

    /// How many there were up to each bound, and in all.
    pub(crate) fn cumulative(&self) -> [u64; Self::BOUNDS_US.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|at| {
            sum += self.counts[at].get();
            sum
        })
    }

    pub(crate) fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket() {
        let latency = Latency::default();
        for us in [0, 1_000, 1_001, 10_000_000, 10_000_001] {
            latency.observe(Duration::from_micros(us), us == 1_001);
        }
        let counts = latency.cumulative();
        assert_eq!((counts[0], counts[1]), (2, 3));
        assert_eq!(counts[Latency::BOUNDS_US.len() - 1..], [4, 5]);
        assert_eq!((latency.sum_us(), latency.failures()), (20_002_002, 1));
    }
}
