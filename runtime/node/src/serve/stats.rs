//! What a service counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::guests::counters::{Counter, Latency};

/// The requests that take no route.
const NO_ROUTE: &str = "*";

/// Numbers of one service, which only grow, and how many requests it has now.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Requests by route, and by the first digit of the status, from 1 to 5. [`NO_ROUTE`] is always there.
    by_route: RwLock<BTreeMap<Arc<str>, [Counter; 5]>>,
    refused: Counter,
    pub(super) passed_on: Counter,
    bytes: Counter,
    took: Latency,
    pub(super) connections: AtomicU64,
}

impl Stats {
    /// Of a service with these routes.
    pub(super) fn new(routes: &[Arc<str>]) -> Self {
        let stats = Self::default();
        stats.set_routes(routes);
        stats
    }

    /// The service has these routes now. Requests of routes that are gone count as those of none.
    pub(super) fn set_routes(&self, routes: &[Arc<str>]) {
        let mut by_route = self.by_route.write();
        let mut old = std::mem::take(&mut *by_route);
        let routes = routes.iter().cloned().chain([Arc::from(NO_ROUTE)]);
        by_route.extend(routes.map(|route| {
            let counts = old.remove(&route).unwrap_or_default();
            (route, counts)
        }));
        let rest = &by_route[NO_ROUTE];
        for (count, gone) in old.values().flat_map(|gone| rest.iter().zip(gone)) {
            count.add(gone.get());
        }
    }

    pub(super) fn served(&self, route: Option<&str>, status: u16, bytes: u64, took: Duration) {
        self.bytes.add(bytes);
        self.took.observe(took, status >= 500);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        let by_route = self.by_route.read();
        let counts = route.and_then(|it| by_route.get(it));
        counts.unwrap_or(&by_route[NO_ROUTE])[class].add(1);
    }

    pub(super) fn refused(&self) {
        self.refused.add(1);
    }

    /// All but how many requests wait and run now.
    pub(super) fn read(&self) -> ServiceStats {
        let by_route = self.by_route.read();
        let counts = by_route.iter().map(|(route, counts)| {
            let counts = std::array::from_fn(|class| counts[class].get());
            (route.clone(), counts)
        });
        ServiceStats {
            by_route: counts.collect(),
            refused: self.refused.get(),
            passed_on: self.passed_on.get(),
            bytes: self.bytes.get(),
            took: self.took.cumulative().to_vec(),
            took_us: self.took.sum_us(),
            connections: self.connections.load(Ordering::Relaxed),
            ..ServiceStats::default()
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
    /// Requests by route, as `METHOD /path`, and by the first digit of their status, from 1xx to 5xx. `*` has those that take
    /// no route, as all of a handler.
    pub by_route: Vec<(Arc<str>, [u64; 5])>,
    /// Those of them that were refused because too many waited.
    pub refused: u64,
    /// Requests that other nodes have answered, and count.
    pub passed_on: u64,
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
        self.by_route.iter().flat_map(|(_, counts)| counts).sum()
    }

    /// Those that failed at the service's side (5xx).
    pub fn failed(&self) -> u64 {
        self.by_route.iter().map(|(_, counts)| counts[4]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_by_route_and_none_is_lost_when_routes_change() {
        let routes = |all: [&str; 2]| all.map(Arc::<str>::from);
        let stats = Stats::new(&routes(["GET /a", "GET /b"]));
        let served = |route, status| stats.served(route, status, 0, Duration::ZERO);
        served(Some("GET /a"), 200);
        served(Some("GET /b"), 500);
        served(None, 404);
        stats.set_routes(&routes(["GET /b", "GET /c"]));
        // It began before.
        served(Some("GET /a"), 204);
        let read = stats.read();
        let by_route = read
            .by_route
            .iter()
            .map(|(route, counts)| (&**route, *counts));
        let expected = [
            ("*", [0, 2, 0, 1, 0]),
            ("GET /b", [0, 0, 0, 0, 1]),
            ("GET /c", [0; 5]),
        ];
        assert_eq!(by_route.collect::<Vec<_>>(), expected);
        assert_eq!((read.requests(), read.failed()), (4, 1));
    }

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
