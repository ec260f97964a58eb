//! Pauses between tries: short at first, then longer, never all at the same moment.
//!
//! Owns the numbers. The jitter needs no good randomness: the hash of an address that differs between
//! processes and tasks is enough to keep a cluster from knocking in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// The pauses of one series of tries.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    tries: u32,
    /// Since when it works, if it does.
    works: Option<Instant>,
}

impl Backoff {
    /// From now on it works. What breaks within moments again was a try like the others: only after the longest pause do
    /// they begin anew.
    pub fn works(&mut self) {
        self.works = Some(Instant::now());
    }

    /// The next pause: doubled each time, between half of that and all of it.
    pub fn pause(&mut self) -> Duration {
        self.pause_at(Instant::now())
    }

    fn pause_at(&mut self, now: Instant) -> Duration {
        let worked = self.works.take().map(|since| now - since);
        if worked.is_some_and(|it| it >= LONGEST) {
            self.tries = 0;
        }
        let whole = FIRST.saturating_mul(1 << self.tries.min(10)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        let half = whole / 2;
        let spread = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_micros(RandomState::new().hash_one(self.tries) % spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut backoff = Backoff::default();
        assert!(backoff.pause() < FIRST);
        let last = (0..20).map(|_| backoff.pause()).last().unwrap();
        assert!(last >= LONGEST / 2 && last <= LONGEST);
    }

    #[test]
    fn they_begin_anew_after_it_has_worked_for_a_while() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        for _ in 0..20 {
            backoff.works = Some(now);
            backoff.pause_at(now + LONGEST / 2);
        }
        assert!(backoff.pause() >= LONGEST / 2, "it never worked for long");
        backoff.works = Some(now);
        assert!(backoff.pause_at(now + LONGEST) < FIRST);
    }
}
