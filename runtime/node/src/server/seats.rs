//! Places for connections of the machine's other users, so that none of them takes all that the node accepts.
//!
//! Owns their limits. The node's own user needs no place: the limits leave it the rest of what the node accepts.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmrun_model::wire::{Refusal, RefusalKind};

use super::MOST_SESSIONS;
use super::session::refusal;

/// The most connections of one user at a time.
const MOST_OF_ONE: usize = 64;
/// The most of all these users together.
const MOST_OF_ALL: usize = 512;
/// The most connections at a time that are told why they are refused. Further ones are closed without a word.
const MOST_REFUSED: usize = 64;

const _: () = assert!(MOST_OF_ALL + MOST_REFUSED < MOST_SESSIONS);

/// The places that are taken.
#[derive(Debug)]
pub(super) struct Seats {
    by_user: Mutex<BTreeMap<u32, usize>>,
    refused: Semaphore,
}

/// The place of a connection. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    seats: &'a Seats,
    user: u32,
}

impl Default for Seats {
    fn default() -> Self {
        Self {
            by_user: Mutex::default(),
            refused: Semaphore::new(MOST_REFUSED),
        }
    }
}

impl Seats {
    /// A place for a connection of this user.
    ///
    /// # Errors
    /// When the user has as many as it may, or all other users together have.
    pub(super) fn take(&self, user: u32) -> Result<Seat<'_>, Refusal> {
        let mut by_user = self.by_user.lock();
        let own = by_user.get(&user).copied().unwrap_or(0);
        if own >= MOST_OF_ONE {
            let why = format_args!(
                "user {user} has {own} connections to this node, and may have no more: close some of them"
            );
            return Err(refusal(RefusalKind::Full, why));
        }
        let all: usize = by_user.values().sum();
        if all >= MOST_OF_ALL {
            let why = format_args!(
                "users of this machine have {all} connections to this node, and may have no more: try again when some \
                 are closed"
            );
            return Err(refusal(RefusalKind::Full, why));
        }
        by_user.insert(user, own + 1);
        drop(by_user);
        Ok(Seat { seats: self, user })
    }

    /// A place for a connection that is to be told why it is refused, if there is one.
    pub(super) fn take_refused(&self) -> Option<SemaphorePermit<'_>> {
        self.refused.try_acquire().ok()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut by_user = self.seats.by_user.lock();
        if let Some(own) = by_user.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_places_to_others() {
        let seats = Seats::default();
        let mut ann: Vec<_> = (0..MOST_OF_ONE).map(|_| seats.take(1).unwrap()).collect();
        let refused = seats.take(1).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Full);
        assert!(
            refused.message.contains("user 1 has 64 connections"),
            "{refused}"
        );
        let _bob = seats.take(2).unwrap();
        ann.pop();
        ann.push(seats.take(1).unwrap());
        seats.take(1).unwrap_err();
        drop(ann);
        assert_eq!(seats.by_user.lock().len(), 1, "nothing is kept of who left");
    }

    #[test]
    fn many_users_leave_places_to_the_nodes_own() {
        let seats = Seats::default();
        let users = (1..).take(MOST_OF_ALL);
        let mut taken: Vec<_> = users.map(|user| seats.take(user).unwrap()).collect();
        let refused = seats.take(u32::MAX).unwrap_err();
        assert!(
            refused.message.contains("have 512 connections"),
            "{refused}"
        );
        taken.pop();
        seats.take(u32::MAX).unwrap();
        let told: Vec<_> = (0..MOST_REFUSED).map(|_| seats.take_refused()).collect();
        assert!(told.iter().all(Option::is_some));
        assert!(seats.take_refused().is_none());
    }
}
