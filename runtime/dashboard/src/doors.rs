//! Who may come in: links of use once, and the sessions of browsers that came with one.
//!
//! Owns the secrets of both, of which only hashes are kept, in memory. Must not: know HTTP, read a clock.
//!
//! Invariants: a link is of use once, and for [`LINK`]; there are at most [`MOST_LINKS`] and [`MOST_SESSIONS`], and the oldest
//! makes room.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use wasmrun_model::id::Digest;

/// How long a link is of use.
const LINK: Duration = Duration::from_secs(10 * 60);
/// How long a browser is let in.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// How many links there may be that nobody has used yet.
const MOST_LINKS: usize = 16;
/// How many browsers there may be.
const MOST_SESSIONS: usize = 64;

/// Who may come in.
#[derive(Debug, Default)]
pub struct Doors {
    links: Keys,
    sessions: Keys,
}

impl Doors {
    /// The key of a new link.
    pub fn link(&mut self, now: Instant) -> String {
        self.links.make(now, LINK, MOST_LINKS)
    }

    /// The secret of a new session, for the key of a link, which is used up.
    pub fn enter(&mut self, key: &str, now: Instant) -> Option<String> {
        let is_known = self.links.take(key, now);
        is_known.then(|| self.sessions.make(now, SESSION, MOST_SESSIONS))
    }

    /// Whether this is the secret of a session.
    pub fn knows(&mut self, secret: &str, now: Instant) -> bool {
        self.sessions.has(secret, now)
    }
}

/// Secrets and when they end, the oldest first. Hashes are compared: how long that takes tells nothing.
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
        let (mut doors, now) = (Doors::default(), Instant::now());
        let key = doors.link(now);
        assert_eq!(key.len(), 32);
        assert_ne!(key, doors.link(now));
        let session = doors.enter(&key, now).expect("it is new");
        assert!(doors.enter(&key, now).is_none());
        assert!(doors.enter("", now).is_none());
        assert!(doors.knows(&session, now));
        assert!(!doors.knows(&key, now) && !doors.knows("", now));
        assert!(!doors.knows(&session, now + SESSION));
        let late = doors.link(now);
        assert!(doors.enter(&late, now + LINK).is_none());
    }

    #[test]
    fn the_oldest_makes_room() {
        let (mut doors, now) = (Doors::default(), Instant::now());
        let enter = |doors: &mut Doors| {
            let key = doors.link(now);
            doors.enter(&key, now).expect("it is new")
        };
        let first = enter(&mut doors);
        let second = enter(&mut doors);
        for _ in 1..MOST_SESSIONS {
            enter(&mut doors);
        }
        assert!(!doors.knows(&first, now) && doors.knows(&second, now));
    }
}
