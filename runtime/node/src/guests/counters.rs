//! What a node counts for whoever watches it, where nothing else remembers it.
//!
//! Owns numbers that only grow. Must not: be read to decide anything. They are relaxed: each is right by itself, and
//! two of them may be of different moments.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// What others took from us.
    pub(crate) transfers_out: Counter,
    /// Its bytes.
    pub(crate) bytes_out: Counter,
    /// Modules that were brought here from other nodes.
    pub(crate) modules_in: Counter,
    /// Their bytes.
    pub(crate) module_bytes_in: Counter,
    /// Objects that were lost and are reconstructed.
    pub(crate) objects_reconstructed: Counter,
    /// Values that found no room in the store in time.
    pub(crate) no_room: Counter,
    /// How long attempts that ran here have waited here, and run.
    pub(crate) times: TaskTimes,
}

/// How many threads can count without meeting others.
const PARTS: usize = 16;

/// How long tasks wait and run. Each ends in some microseconds, on any of several threads: each of those has a part of
/// its own, so that none waits for memory which another one writes to.
#[derive(Debug, Default)]
pub(crate) struct TaskTimes([PartTimes; PARTS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct PartTimes {
    waited: Times,
    ran: Times,
}

/// How often something took how long: by the first of [`Times::BOUNDS_US`] that it is not above, and those above all.
#[derive(Debug, Default)]
pub(crate) struct Times {
    counts: [Counter; Times::BUCKETS],
    sum_us: Counter,
}

impl Times {
    /// Bounds of the buckets, in microseconds: tasks take from some microseconds to days.
    pub(crate) const BOUNDS_US: [u64; 15] = [
        10,
        50,
        100,
        500,
        1_000,
        5_000,
        10_000,
        50_000,
        100_000,
        500_000,
        1_000_000,
        10_000_000,
        60_000_000,
        600_000_000,
        3_600_000_000,
    ];
    const BUCKETS: usize = Self::BOUNDS_US.len() + 1;

    fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = Self::BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].add(1);
        self.sum_us.add(us);
    }
}

impl TaskTimes {
    /// An attempt has ended.
    pub(crate) fn observe(&self, waited: Duration, ran: Duration) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PARTS;
        }
        let part = &self.0[PART.with(|part| *part)];
        part.waited.observe(waited);
        part.ran.observe(ran);
    }

    /// How many attempts had waited up to each bound, and in all; and how long all had, in microseconds.
    pub(crate) fn waited(&self) -> (Vec<u64>, u64) {
        self.cumulative(|part| &part.waited)
    }

    /// The same, of how long they had run.
    pub(crate) fn ran(&self) -> (Vec<u64>, u64) {
        self.cumulative(|part| &part.ran)
    }

    fn cumulative(&self, times: impl Fn(&PartTimes) -> &Times) -> (Vec<u64>, u64) {
        let count = |at: usize| self.0.iter().map(|part| times(part).counts[at].get()).sum();
        let counts = (0..Times::BUCKETS).map(count);
        let counts = counts.scan(0, |sum, more: u64| {
            *sum += more;
            Some(*sum)
        });
        let sum_us = self.0.iter().map(|part| times(part).sum_us.get()).sum();
        (counts.collect(), sum_us)
    }
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
    fn times_of_all_threads_count() {
        let times = TaskTimes::default();
        let ms = Duration::from_millis;
        std::thread::scope(|scope| {
            for _ in 0..PARTS + 1 {
                scope.spawn(|| times.observe(ms(1), ms(7_200_000)));
            }
        });
        let all = PARTS as u64 + 1;
        let (waited, sum_us) = times.waited();
        assert_eq!((waited[3], waited[4], waited[15]), (0, all, all));
        assert_eq!(sum_us, all * 1_000);
        let (ran, _) = times.ran();
        assert_eq!((ran[14], ran[15]), (0, all));
    }

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
