//! What a service counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

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
    /// Those that have given the client a piece of a response, and since when it has not taken that.
    unread: Mutex<BTreeMap<usize, Instant>>,
}

impl Requests {
    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn ever(&self) -> usize {
        self.ever.load(Ordering::Relaxed)
    }

    /// Since when the client has not taken a piece of a response.
    pub(super) fn unread_since(&self) -> Option<Instant> {
        self.unread.lock().values().min().copied()
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct OneOf {
    requests: Arc<Requests>,
    number: usize,
}

impl OneOf {
    pub(super) fn new(requests: &Arc<Requests>) -> Self {
        requests.now.fetch_add(1, Ordering::Relaxed);
        Self {
            number: requests.ever.fetch_add(1, Ordering::Relaxed),
            requests: requests.clone(),
        }
    }

    /// The client was given a piece of the response.
    pub(super) fn is_unread(&self) {
        let mut unread = self.requests.unread.lock();
        unread.entry(self.number).or_insert_with(Instant::now);
    }

    /// The client has taken what it was given.
    pub(super) fn is_read(&self) {
        self.requests.unread.lock().remove(&self.number);
    }
}

impl Drop for OneOf {
    fn drop(&mut self) {
        self.is_read();
        self.requests.now.fetch_sub(1, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_is_seen_until_it_does() {
        let requests = Arc::new(Requests::default());
        let [one, other] = [OneOf::new(&requests), OneOf::new(&requests)];
        assert_eq!(requests.unread_since(), None);
        one.is_unread();
        let since = requests.unread_since();
        assert!(since.is_some());
        other.is_unread();
        // What comes behind does not make it later.
        one.is_unread();
        assert_eq!(requests.unread_since(), since);
        one.is_read();
        assert!(requests.unread_since() >= since, "that of the other");
        drop(other);
        assert_eq!((requests.unread_since(), requests.now()), (None, 1));
    }
}
