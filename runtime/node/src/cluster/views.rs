//! How this node's view of itself reaches the others.
//!
//! Owns when a view is told and to whom. Must not: know what is in one. It goes straight to each member:
//! every half second, and soon after something has changed that matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Cluster;
use super::protocol::{OneWay, Told};

/// How often a view is told in which nothing has changed.
const EVERY: Duration = Duration::from_millis(500);
/// How soon a change is told; changes meanwhile go with it.
const SOON: Duration = Duration::from_millis(20);

/// What is known of our view.
#[derive(Debug, Default)]
pub(super) struct Views {
    changed: Notify,
    version: AtomicU64,
}

impl Views {
    /// Our view is worth telling.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }
}

/// Tells views until it is dropped.
pub(super) async fn tell(cluster: Arc<Cluster>) {
    loop {
        let next = Instant::now() + EVERY;
        tell_once(&cluster);
        tokio::select! {
            () = cluster.views.changed.notified() => tokio::time::sleep(SOON).await,
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

fn tell_once(cluster: &Cluster) {
    let Some(work) = cluster.members.work() else {
        return;
    };
    let members = cluster.members.ids();
    if members.is_empty() {
        return;
    }
    let mut view = work.own_view();
    view.version = cluster.views.version.fetch_add(1, Ordering::Relaxed) + 1;
    let life = cluster.life();
    let told = OneWay::View(Box::new(Told { life, view }));
    for node in members {
        if let Some(peer) = cluster.lines.find(node) {
            // Who does not take it gets the next one.
            let _ = peer.try_send(&told);
        }
    }
}
