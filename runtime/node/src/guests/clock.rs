//! Where the time of an attempt goes.
//!
//! Owns the moments of one attempt. Must not: decide by them: they are for people.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wasmrun_model::wire::Phases;

use crate::guests::executor;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Clock {
    thread: u16,
    started: Instant,
    loaded: OnceLock<Instant>,
    made: OnceLock<Instant>,
    blocked_us: AtomicU32,
    paused: Mutex<Paused>,
}

/// The pauses of an attempt.
#[derive(Debug, Default)]
struct Paused {
    /// How long those were that are over.
    in_all: Duration,
    /// Since when it is paused, if it is.
    since: Option<Instant>,
}

impl Clock {
    /// An attempt has started on this thread.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            thread: executor::thread(),
            started,
            loaded: OnceLock::new(),
            made: OnceLock::new(),
            blocked_us: AtomicU32::new(0),
            paused: Mutex::default(),
        }
    }

    /// Its arguments are in memory.
    pub(crate) fn arguments_loaded(&self) {
        self.loaded.get_or_init(Instant::now);
    }

    /// Its sandbox is there.
    pub(crate) fn sandbox_made(&self) {
        self.made.get_or_init(Instant::now);
    }

    /// It has waited for others since then.
    pub(crate) fn waited_since(&self, since: Instant) {
        self.blocked_us
            .fetch_add(us(since.elapsed()), Ordering::Relaxed);
    }

    /// It is paused from now on.
    pub(crate) fn pauses(&self) {
        self.paused.lock().since = Some(Instant::now());
    }

    /// It goes on.
    pub(crate) fn goes_on(&self) {
        let mut paused = self.paused.lock();
        if let Some(since) = paused.since.take() {
            paused.in_all += since.elapsed();
        }
    }

    /// For how long it was paused in all, with the pause that it is in.
    pub(crate) fn paused(&self) -> Duration {
        let paused = self.paused.lock();
        let now = paused.since.map_or(Duration::ZERO, |since| since.elapsed());
        paused.in_all + now
    }

    /// Its guest came to its end at `returned`, and its result is kept by now.
    pub(crate) fn phases(&self, returned: Instant) -> Phases {
        let after = |at: &OnceLock<Instant>, before: Instant| {
            at.get().map_or(0, |at| us(at.duration_since(before)))
        };
        Phases {
            thread: self.thread,
            arguments_us: after(&self.loaded, self.started),
            sandbox_us: after(&self.made, *self.loaded.get().unwrap_or(&self.started)),
            blocked_us: self.blocked_us.load(Ordering::Relaxed),
            paused_us: us(self.paused()),
            result_us: us(returned.elapsed()),
        }
    }
}

fn us(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_wait_for_others() {
        let past = Duration::from_millis(5);
        let clock = Clock::new(Instant::now());
        clock.pauses();
        clock.paused.lock().since = Some(Instant::now() - past);
        clock.goes_on();
        let phases = clock.phases(Instant::now());
        assert!(phases.paused_us >= us(past), "{phases:?}");
        assert_eq!(phases.blocked_us, 0);
        clock.waited_since(Instant::now() - past);
        assert!(clock.phases(Instant::now()).blocked_us >= us(past));
    }
}
