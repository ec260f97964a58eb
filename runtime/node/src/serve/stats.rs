//! What a service counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::guests::counters::{Counter, Latency};

/// Numbers of one service, which only grow, and how many requests it has now.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// By the first digit of the status, from 1 to 5.
    by_class: [Counter; 5],
    refused: Counter,
    bytes: Counter,
    took: Latency,
    pub(super) waiting: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) connections: AtomicU64,
}

impl Stats {
    pub(super) fn served(&self, status: u16, bytes: u64, took: Duration) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.by_class[class].add(1);
        self.bytes.add(bytes);
        self.took.observe(took, status >= 500);
    }

    pub(super) fn refused(&self) {
        self.refused.add(1);
    }

    pub(super) fn read(&self) -> ServiceStats {
        ServiceStats {
            by_class: std::array::from_fn(|class| self.by_class[class].get()),
            refused: self.refused.get(),
            bytes: self.bytes.get(),
            took: self.took.cumulative().to_vec(),
            took_us: self.took.sum_us(),
            waiting: self.waiting.load(Ordering::Relaxed),
            running: self.running.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// How many requests a connection has under way, and has had.
#[derive(Debug, Default)]
pub(super) struct Requests {
    now: AtomicUsize,
    ever: AtomicUsize,
}

impl Requests {
    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn ever(&self) -> usize {
        self.ever.load(Ordering::Relaxed)
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct OneOf(Arc<Requests>);

impl OneOf {
    pub(super) fn new(requests: &Arc<Requests>) -> Self {
        requests.now.fetch_add(1, Ordering::Relaxed);
        requests.ever.fetch_add(1, Ordering::Relaxed);
        Self(requests.clone())
    }
}

impl Drop for OneOf {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a service has served so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Requests by the first digit of their status, from 1xx to 5xx.
    pub by_class: [u64; 5],
    /// Those of them that were refused because too many waited.
    pub refused: u64,
    /// Bytes of the bodies that clients were sent.
    pub bytes: u64,
    /// How many requests took up to each of [`ServiceStats::BOUNDS_US`], and all.
    pub took: Vec<u64>,
    /// How long all took together, in microseconds.
    pub took_us: u64,
    /// How many wait for their turn.
    pub waiting: usize,
    /// How many are under way.
    pub running: usize,
    /// How many clients are connected.
    pub connections: u64,
}

impl ServiceStats {
    /// Bounds of [`ServiceStats::took`], in microseconds.
    pub const BOUNDS_US: [u64; 10] = Latency::BOUNDS_US;

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.by_class.iter().sum()
    }
}
