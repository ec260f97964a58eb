//! What time it is.
//!
//! Owns the one place where the clock of one machine is read for another. Clocks of machines differ, by minutes or by
//! hours, and are never compared: what tokens, certificates and records of clients say of times is by the clock of the
//! head, which issues and checks them, and who is to add to it or to show it asks the head. Must not: be used to measure
//! how long something takes.

use std::time::{SystemTime, UNIX_EPOCH};

use wasmrun_control::Error;

use super::protocol::{Request, Response};
use super::{Cluster, STORE_PATIENCE};

/// Seconds since 1970, by the clock of this machine.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Cluster {
    /// Seconds since 1970, by the clock of the head. None if it does not answer.
    async fn clock_of_head(&self) -> Option<u64> {
        if self.authority.is_some() {
            return Some(now_s());
        }
        let head = self.peer(self.members.head()?)?;
        match head.call(&Request::Clock, STORE_PATIENCE).await {
            Ok(Response::Clock(now_s)) => Some(now_s),
            _ => None,
        }
    }

    /// The same for a change of the control store; both are asked at once, so that nobody waits for one after the other.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn clock_for_change(&self) -> Result<Option<u64>, Error> {
        let is_there = self.query(self.store.revision());
        let (is_there, now_s) = tokio::join!(is_there, self.clock_of_head());
        is_there.map(|_| now_s)
    }

    /// The same for what is only shown: by the clock of this machine where the head does not answer.
    pub(super) async fn about_now_s(&self) -> u64 {
        let now_s = self.clock_of_head().await;
        now_s.unwrap_or_else(self::now_s)
    }
}
