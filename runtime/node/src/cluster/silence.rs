//! Which members cannot be spoken with, though nobody has counted them as dead.
//!
//! Owns the judgement, from how much goes over the connections and how much waits for them, and one loop. Must not: decide who lives. While the
//! control store is away nobody dies by its lease, and two nodes may be cut off from each other while both hold theirs:
//! work that is for such a member would wait as long as that lasts, where others could do it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use wasmrun_model::id::NodeId;
use wasmrun_net::Traffic;

use super::Cluster;
use crate::peers::Backlog;

/// How often members are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long nothing may come from a member to which something is sent, or with which there is no connection. A member
/// that dies is counted as dead after about as long, if the control store is there.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many messages wait for a member that takes none before that tells anything.
const MANY: u64 = 1 << 16;
/// So many datagrams are sent again and again to one that does not answer, within that time.
const UNANSWERED: u64 = 2;

/// What is known of a member.
#[derive(Debug)]
struct Watched {
    /// When something had come from it that had not before, and what went over the connection by then.
    heard: Instant,
    then: Option<Traffic>,
    /// When it had taken a message that it had not before, or there were few, and how many it had by then.
    moved: Instant,
    taken: u64,
}

impl Watched {
    fn new(now: Instant) -> Self {
        Self {
            heard: now,
            then: None,
            moved: now,
            taken: 0,
        }
    }

    /// Whether the member takes none of the many messages that wait for it.
    fn is_stuck(&mut self, now: Instant, backlog: Backlog) -> bool {
        if backlog.waiting < MANY || backlog.taken != self.taken {
            (self.moved, self.taken) = (now, backlog.taken);
        }
        now.duration_since(self.moved) >= PATIENCE
    }

    /// Whether the member is silent, by what has gone over its connection up to now.
    fn look(&mut self, now: Instant, traffic: Option<Traffic>) -> bool {
        let has_come = match (self.then, traffic) {
            (Some(then), Some(now)) => {
                then.connection != now.connection || then.received != now.received
            }
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if has_come {
            (self.heard, self.then) = (now, traffic);
            return false;
        }
        let is_asked = match (self.then, traffic) {
            (Some(then), Some(now)) => now.sent >= then.sent + UNANSWERED,
            _ => true,
        };
        is_asked && now.duration_since(self.heard) >= PATIENCE
    }
}

/// Watches the members until it is dropped.
pub(super) async fn watch(cluster: Arc<Cluster>) {
    let mut ticks = tokio::time::interval(LOOK);
    // After a pause of ours as good as nothing has been read.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watched: BTreeMap<NodeId, Watched> = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        if now.duration_since(last) > PATIENCE {
            // This process stood still, and so nothing was heard.
            watched.clear();
        }
        last = now;
        let ids = cluster.members.ids();
        watched.retain(|id, _| ids.binary_search(id).is_ok());
        for id in ids {
            let member = watched.entry(id).or_insert_with(|| Watched::new(now));
            let traffic = cluster.lines.find(id).and_then(|peer| peer.traffic());
            let is_silent = member.look(now, traffic);
            let backlog = cluster.members.work().map(|it| it.backlog(id));
            let is_stuck = member.is_stuck(now, backlog.unwrap_or_default());
            cluster.members.silent(id, is_silent || is_stuck);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(connection: u64, sent: u64, received: u64) -> Option<Traffic> {
        Some(Traffic {
            connection,
            sent,
            received,
        })
    }

    #[test]
    fn who_does_not_answer_is_silent() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut it = Watched::new(start);
        assert!(!it.look(at(1), traffic(1, 10, 10)));
        // Nothing is sent to it, so nothing need come.
        assert!(!it.look(at(60), traffic(1, 10, 10)));
        assert!(!it.look(at(61), traffic(1, 11, 10)));
        assert!(it.look(at(62), traffic(1, 12, 10)));
        // It is heard again.
        assert!(!it.look(at(63), traffic(1, 20, 11)));
        assert!(!it.look(at(65), traffic(1, 30, 11)));
        assert!(it.look(at(66), traffic(1, 30, 11)));
        // As on another connection.
        assert!(!it.look(at(67), traffic(2, 1, 1)));
    }

    #[test]
    fn who_takes_nothing_of_much_is_stuck() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let backlog = |waiting, taken| Backlog { waiting, taken };
        let mut it = Watched::new(start);
        assert!(!it.is_stuck(at(9), backlog(MANY - 1, 0)));
        assert!(!it.is_stuck(at(11), backlog(MANY, 0)));
        assert!(it.is_stuck(at(12), backlog(2 * MANY, 0)));
        // As long as it takes some, it may be slow.
        assert!(!it.is_stuck(at(13), backlog(2 * MANY, 1)));
        assert!(!it.is_stuck(at(15), backlog(9 * MANY, 1)));
        assert!(it.is_stuck(at(16), backlog(9 * MANY, 1)));
    }

    #[test]
    fn who_has_no_connection_is_silent_after_a_while() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut it = Watched::new(start);
        assert!(!it.look(at(2), None), "it is dialled");
        assert!(it.look(at(3), None));
        assert!(!it.look(at(4), traffic(1, 1, 1)));
        assert!(!it.look(at(5), None));
        assert!(it.look(at(7), None));
    }
}
