//! Time for leases and for trying again: monotonic, and given by whoever opens a store or keeps a lease.
//!
//! Owns the trait and the real clock. Invariant: the clock of one machine is never compared with
//! that of another, nor with itself across a restart.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_model::time::Instant;

/// A monotonic clock that can be waited for.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// What it shows now.
    fn now(&self) -> Instant;

    /// Waits until it shows `deadline` or later.
    async fn sleep_until(&self, deadline: Instant);

    /// Waits for so long.
    async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }
}

/// The machine's clock.
#[derive(Debug)]
pub struct MonotonicClock {
    start: tokio::time::Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }
}

#[async_trait]
impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    async fn sleep_until(&self, deadline: Instant) {
        let after = deadline.since(Instant::ZERO);
        tokio::time::sleep_until(self.start + after).await;
    }
}
