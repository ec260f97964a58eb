//! Which leases live, and until when.
//!
//! Owns the deadlines, which are in memory only: after a restart every lease has its full time again.
//! Must not: delete keys. That an overdue lease ends is a change like any other, made by the writer;
//! from the moment when it is asked for, the lease can no longer be kept alive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wasmrun_model::time::Instant;

use crate::error::Error;
use crate::types::{Lease, LeaseId};

/// How long after a failure to end a lease it is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Leases {
    leases: BTreeMap<LeaseId, State>,
    /// Every lease, by the time at which something is to be done about it.
    times: BTreeSet<(Instant, LeaseId)>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Alive {
        ttl: Duration,
        deadline: Instant,
    },
    /// The writer was asked to end it. If that fails it is asked again.
    Ending {
        again: Instant,
    },
}

impl State {
    fn time(&self) -> Instant {
        match self {
            Self::Alive { deadline, .. } => *deadline,
            Self::Ending { again } => *again,
        }
    }
}

impl Leases {
    fn set(&mut self, id: LeaseId, state: State) {
        self.remove(id);
        self.times.insert((state.time(), id));
        self.leases.insert(id, state);
    }

    /// A new lease, or one found at the start.
    pub fn insert(&mut self, lease: Lease, now: Instant) {
        let deadline = now + lease.ttl;
        let ttl = lease.ttl;
        self.set(lease.id, State::Alive { ttl, deadline });
    }

    /// A lease is no more.
    pub fn remove(&mut self, id: LeaseId) {
        if let Some(old) = self.leases.remove(&id) {
            self.times.remove(&(old.time(), id));
        }
    }

    /// Begins its time to live anew.
    pub fn renew(&mut self, id: LeaseId, now: Instant) -> Result<(), Error> {
        match self.leases.get(&id) {
            Some(&State::Alive { ttl, .. }) => {
                let deadline = now + ttl;
                self.set(id, State::Alive { ttl, deadline });
                Ok(())
            }
            Some(State::Ending { .. }) | None => Err(Error::LeaseLost { lease: id }),
        }
    }

    /// The leases to end now. They cannot be renewed from here on.
    pub fn take_due(&mut self, now: Instant) -> Vec<LeaseId> {
        let due: Vec<LeaseId> = self
            .times
            .iter()
            .take_while(|(time, _)| *time <= now)
            .map(|(_, id)| *id)
            .collect();
        let again = now + RETRY;
        for id in &due {
            self.set(*id, State::Ending { again });
        }
        due
    }

    /// When [`Self::take_due`] has something to say.
    pub fn next_time(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Gives all leases more time: for a while nobody could have renewed any.
    pub fn extend(&mut self, by: Duration) {
        let alive: Vec<_> = self
            .leases
            .iter()
            .map(|(id, state)| (*id, *state))
            .collect();
        for (id, state) in alive {
            if let State::Alive { ttl, deadline } = state {
                let deadline = deadline + by;
                self.set(id, State::Alive { ttl, deadline });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn lease(id: u64, ttl: u64) -> Lease {
        Lease {
            id: LeaseId(id),
            ttl: Duration::from_secs(ttl),
        }
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_due_once_and_then_lost() {
        let mut leases = Leases::default();
        leases.insert(lease(1, 3), at(0));
        leases.insert(lease(2, 3), at(0));
        leases.renew(LeaseId(2), at(2)).unwrap();
        assert_eq!(leases.next_time(), Some(at(3)));
        assert!(leases.take_due(at(2)).is_empty());
        assert_eq!(leases.take_due(at(3)), [LeaseId(1)]);
        let lost = LeaseId(1);
        assert_eq!(
            leases.renew(lost, at(3)),
            Err(Error::LeaseLost { lease: lost })
        );
        assert!(leases.take_due(at(3)).is_empty());
        // The writer could not do it: once more.
        assert_eq!(leases.take_due(at(4)), [LeaseId(1)]);
        leases.remove(lost);
        assert_eq!(leases.next_time(), Some(at(5)));
    }

    #[test]
    fn time_in_which_nobody_could_renew_does_not_count() {
        let mut leases = Leases::default();
        leases.insert(lease(1, 3), at(0));
        leases.extend(Duration::from_secs(60));
        assert!(leases.take_due(at(60)).is_empty());
        assert_eq!(leases.take_due(at(63)), [LeaseId(1)]);
    }
}
