//! When records are looked at that others had, and whose turn it is to take them over.
//!
//! Owns the order and the waits, which are the same for all kinds of records: one node takes all that a lost one had;
//! where it does not, the next does after a while, in an order that all know. Must not: take anything over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wasmrun_control::Error;
use wasmrun_model::id::NodeId;

use crate::cluster::{Cluster, RecordId, Records};

/// How often is looked at least.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// How soon again where something could not be done.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How much later than the one before it each node takes over what a lost one had.
const STEP: Duration = Duration::from_secs(2);

/// Whose turn it is.
pub(super) struct Turns {
    cluster: Arc<Cluster>,
    /// Since when nodes are known to be lost whose records are there.
    since: HashMap<NodeId, Instant>,
}

impl Turns {
    pub(super) fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: cluster.clone(),
            since: HashMap::new(),
        }
    }

    /// The lost nodes whose records are this node's to take over now, and when to look again.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn due<I: RecordId>(
        &mut self,
        records: &Records<I>,
    ) -> Result<(Vec<NodeId>, Duration), Error> {
        let lost = records.lost_owners().await?;
        self.since.retain(|node, _| lost.contains(node));
        let (mut due, mut next) = (Vec::new(), EVERY);
        for owner in lost {
            let since = *self.since.entry(owner).or_insert_with(Instant::now);
            let rank = u32::try_from(self.cluster.rank_for(owner)).unwrap_or(u32::MAX);
            let wait = STEP.saturating_mul(rank).saturating_sub(since.elapsed());
            match wait.is_zero() {
                true => due.push(owner),
                false => next = next.min(wait),
            }
        }
        Ok((due, next))
    }
}

/// What is a reason to look.
pub(super) struct Reasons {
    others: watch::Receiver<usize>,
    rebirths: watch::Receiver<u64>,
    /// Whether an earlier life of this node may have records that are to be gone on with.
    pub(super) is_own_due: bool,
}

impl Reasons {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self {
            others: cluster.others_changed(),
            rebirths: cluster.rebirths(),
            is_own_due: true,
        }
    }

    /// Waits for one, or so long. False when there will be none any more.
    pub(super) async fn wait(&mut self, longest: Duration) -> bool {
        tokio::select! {
            changed = self.others.changed() => changed.is_ok(),
            changed = self.rebirths.changed() => {
                self.is_own_due |= changed.is_ok();
                changed.is_ok()
            }
            () = tokio::time::sleep(longest) => true,
        }
    }
}
