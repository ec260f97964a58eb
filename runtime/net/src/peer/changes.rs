//! Which peers may have come or gone, and who was turned away: what is still to be told.
//!
//! Owns that list. Invariant: at most one change waits for each peer, and no more refusals than a few.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use wasmrun_model::id::NodeId;

use crate::wire::ConnectError;

/// How many refusals may wait to be told; more are only logged.
const REFUSALS: usize = 64;

/// What is still to be told.
#[derive(Debug)]
pub(crate) struct Changes {
    changed: Mutex<BTreeSet<NodeId>>,
    wake: Notify,
    refusals: mpsc::Sender<(SocketAddr, ConnectError)>,
}

/// The other end.
pub(crate) type Refusals = mpsc::Receiver<(SocketAddr, ConnectError)>;

impl Changes {
    pub(crate) fn new() -> (Self, Refusals) {
        let (refusals, receiver) = mpsc::channel(REFUSALS);
        let changes = Self {
            changed: Mutex::default(),
            wake: Notify::new(),
            refusals,
        };
        (changes, receiver)
    }

    /// Waits until a peer may have changed.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// The next peer that may have changed.
    pub(crate) fn take(&self) -> Option<NodeId> {
        self.changed.lock().pop_first()
    }

    pub(crate) fn peer(&self, id: NodeId) {
        self.changed.lock().insert(id);
        self.wake.notify_one();
    }

    pub(crate) fn refused(&self, from: SocketAddr, why: ConnectError) {
        match &why {
            // The task that has dialled is gone: a node that is told to stop while it dials, for one.
            ConnectError::Lost { .. } => {
                tracing::info!(%from, error = %why, "somebody left before being let in");
            }
            _ => tracing::warn!(%from, error = %why, "somebody was turned away"),
        }
        // A flood of refusals is not worth memory.
        let _ = self.refusals.try_send((from, why));
    }
}
