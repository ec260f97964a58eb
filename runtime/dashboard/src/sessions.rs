//! Authentication: one-time links, and the sessions of browsers that opened one.
//!
//! Owns the secrets of both, as hashes in memory. Must not: know HTTP, read a clock.
//!
//! Invariants: a link works once, and for [`LINK`]; there are at most [`MOST_LINKS`] and [`MOST_SESSIONS`], and the oldest
//! makes room.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use wasmrun_model::id::Digest;

/// How long a link works.
const LINK: Duration = Duration::from_secs(10 * 60);
/// How long a session lasts.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How many unused links there may be.
const MOST_LINKS: usize = 16;
/// How many sessions there may be.
const MOST_SESSIONS: usize = 64;

/// Links that were not opened yet, and sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    links: Keys,
    sessions: Keys,
}

impl Sessions {
    /// The key of a new link.
    pub fn link(&mut self, now: Instant) -> String {
        self.links.make(now, LINK, MOST_LINKS)
    }

    /// The secret of a new session, for the key of a link, which does not work again.
    pub fn enter(&mut self, key: &str, now: Instant) -> Option<String> {
        let is_known = self.links.take(key, now);
        is_known.then(|| self.sessions.make(now, SESSION, MOST_SESSIONS))
    }

    /// Whether this is the secret of a session.
    pub fn knows(&mut self, secret: &str, now: Instant) -> bool {
        self.sessions.has(secret, now)
    }
}

/// Secrets and when they end, the oldest first. Hashes are compared, so the time that takes tells nothing of a secret.
#[derive(Debug, Default)]
struct Keys(VecDeque<(Digest, Instant)>);

impl Keys {
    fn make(&mut self, now: Instant, lifetime: Duration, most: usize) -> String {
        while self.0.len() >= most {
            self.0.pop_front();
        }
        let secret = random();
        self.0.push_back((digest(&secret), now + lifetime));
        secret
    }

    fn has(&mut self, secret: &str, now: Instant) -> bool {
        self.0.retain(|(_, end)| *end > now);
        let hash = digest(secret);
        self.0.iter().any(|(it, _)| *it == hash)
    }

    fn take(&mut self, secret: &str, now: Instant) -> bool {
        let is_known = self.has(secret, now);
        let hash = digest(secret);
        self.0.retain(|(it, _)| *it != hash);
        is_known
    }
}

fn digest(secret: &str) -> Digest {
    Digest::of(secret.as_bytes())
}

/// 128 random bits in hexadecimal digits.
///
/// # Panics
/// When the system has no randomness to give.
fn random() -> String {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(drawn, Ok(bytes.len()), "the kernel has randomness");
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lets_one_browser_in_and_only_in_time() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let key = sessions.link(now);
        assert_eq!(key.len(), 32);
        assert_ne!(key, sessions.link(now));
        let session = sessions.enter(&key, now).expect("it is new");
        assert!(sessions.enter(&key, now).is_none());
        assert!(sessions.enter("", now).is_none());
        assert!(sessions.knows(&session, now));
        assert!(!sessions.knows(&key, now) && !sessions.knows("", now));
        assert!(!sessions.knows(&session, now + SESSION));
        let late = sessions.link(now);
        assert!(sessions.enter(&late, now + LINK).is_none());
    }

    #[test]
    fn the_oldest_makes_room() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let enter = |sessions: &mut Sessions| {
            let key = sessions.link(now);
            sessions.enter(&key, now).expect("it is new")
        };
        let first = enter(&mut sessions);
        let second = enter(&mut sessions);
        for _ in 1..MOST_SESSIONS {
            enter(&mut sessions);
        }
        assert!(!sessions.knows(&first, now) && sessions.knows(&second, now));
    }
}
