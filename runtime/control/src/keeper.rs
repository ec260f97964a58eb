//! Keeps a lease alive, and says how sure we can be that it is.
//!
//! Owns the task that renews and when it does. Invariant: [`Health::Confirmed`] is said only for less than one
//! time to live after the last answer was *asked* for, so that a node which hears nothing knows that it
//! may be counted as dead before anybody counts it so.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Clock, MonotonicClock};
use crate::error::Error;
use crate::store::ControlStore;
use crate::types::Lease;

/// What is known of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It lives.
    Confirmed,
    /// The store was not heard for one time to live. It may be gone; it is asked on, and may turn out to
    /// be alive, as after a restart of the store.
    Unconfirmed,
    /// It is gone, for ever.
    Lost,
}

/// Renews a lease until it is dropped. The lease then ends by itself; revoke it to end it at once.
#[derive(Debug)]
pub struct LeaseKeeper {
    lease: Lease,
    health: watch::Receiver<Health>,
    task: tokio::task::JoinHandle<()>,
}

impl LeaseKeeper {
    /// Keeps a lease that was granted just now. Renews it three times in each time to live. Must be called
    /// within a tokio runtime.
    pub fn new(store: Arc<dyn ControlStore>, lease: Lease) -> Self {
        Self::with_clock(store, lease, Arc::new(MonotonicClock::default()))
    }

    /// As [`Self::new`], by a clock of the caller's.
    pub fn with_clock(store: Arc<dyn ControlStore>, lease: Lease, clock: Arc<dyn Clock>) -> Self {
        let (sender, health) = watch::channel(Health::Confirmed);
        let task = tokio::spawn(keep(store, lease, clock, sender));
        Self {
            lease,
            health,
            task,
        }
    }

    /// The lease.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// What is known of it now.
    pub fn health(&self) -> Health {
        *self.health.borrow()
    }

    /// What is known of it, to wait for changes.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(
    store: Arc<dyn ControlStore>,
    lease: Lease,
    clock: Arc<dyn Clock>,
    health: watch::Sender<Health>,
) {
    let pause = lease.ttl / 3;
    let mut confirmed = clock.now();
    let set = |now| {
        health.send_if_modified(|health| std::mem::replace(health, now) != now);
    };
    loop {
        clock.sleep(pause).await;
        loop {
            let asked = clock.now();
            let doubt = confirmed + lease.ttl;
            let answer = tokio::select! {
                // An answer that comes at the last moment has come.
                biased;
                answer = store.keep_alive(lease.id) => answer,
                () = clock.sleep_until(doubt), if asked < doubt => {
                    set(Health::Unconfirmed);
                    continue;
                }
            };
            match answer {
                Ok(()) => {
                    confirmed = asked;
                    set(Health::Confirmed);
                    break;
                }
                Err(Error::LeaseLost { .. }) => {
                    set(Health::Lost);
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, lease = %lease.id, "the lease could not be renewed");
                    if clock.now() >= doubt {
                        set(Health::Unconfirmed);
                    }
                    clock.sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}
