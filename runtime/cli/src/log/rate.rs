//! How often the same line of code may say something.
//!
//! Owns the counts. Whoever can make a node say something, such as a stranger who knocks at its port, must not be
//! able to fill its disk. What was asked for, `debug` and `trace`, has no such limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;

/// How many times in [`WINDOW`].
const MOST: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// The counts of those that have said something.
#[derive(Debug, Default)]
pub(super) struct Rate(HashMap<Identifier, Said>);

#[derive(Debug)]
struct Said {
    since: Instant,
    count: u32,
}

/// What becomes of something that is said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Write,
    /// Write it, and how many like it were left out before.
    WriteAfter(u32),
    LeaveOut,
}

impl Rate {
    /// Somebody says something. There are as many of them as lines in our code that do: the table is bounded.
    pub(super) fn says(&mut self, who: Identifier, now: Instant) -> Verdict {
        let fresh = Said {
            since: now,
            count: 0,
        };
        let said = self.0.entry(who).or_insert(fresh);
        let left_out = said.count.saturating_sub(MOST);
        if now.duration_since(said.since) >= WINDOW {
            *said = Said {
                since: now,
                count: 1,
            };
            return match left_out {
                0 => Verdict::Write,
                left_out => Verdict::WriteAfter(left_out),
            };
        }
        said.count = said.count.saturating_add(1);
        match said.count {
            ..=MOST => Verdict::Write,
            _ => Verdict::LeaveOut,
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    struct Line;

    impl Callsite for Line {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}

        fn metadata(&self) -> &tracing::Metadata<'_> {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn who_says_too_much_is_heard_again_later() {
        static LINE: Line = Line;
        let who = || Identifier(&LINE);
        let (mut rate, now) = (Rate::default(), Instant::now());
        for _ in 0..MOST {
            assert_eq!(rate.says(who(), now), Verdict::Write);
        }
        for _ in 0..7 {
            assert_eq!(rate.says(who(), now), Verdict::LeaveOut);
        }
        assert_eq!(rate.says(who(), now + WINDOW), Verdict::WriteAfter(7));
        assert_eq!(rate.says(who(), now + WINDOW), Verdict::Write);
        assert_eq!(rate.says(who(), now + 3 * WINDOW), Verdict::Write);
    }
}
