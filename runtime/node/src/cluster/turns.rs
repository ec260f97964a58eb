//! When records are looked at that others had, and whose turn it is to take them over.
//!
//! Owns the loop and its waits, which are the same for all kinds of records ([`look`]): one node takes all that a lost
//! one had; where it does not, the next does after a while, in an order that all know. Must not: know what a record is
//! for; whoever goes on with it is an [`Heir`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wasmrun_control::Error;
use wasmrun_model::id::NodeId;
use wasmrun_model::time::Instant;

use super::records::{Found, RecordId, Records};

/// How often is looked at least.
const EVERY: Duration = Duration::from_secs(30);
/// How soon again where something could not be done.
const AGAIN: Duration = Duration::from_secs(1);
/// How much later than the one before it each node takes over what a lost one had.
const STEP: Duration = Duration::from_secs(2);

/// Who goes on with records of one kind that have no owner that lives.
#[async_trait]
pub(crate) trait Heir<I: RecordId>: Send {
    /// For whom it does that.
    type Server: Send + Sync;

    /// That one; `None` when it is about to be gone.
    fn server(&self) -> Option<Arc<Self::Server>>;

    /// Its records.
    fn records(server: &Self::Server) -> &Records<I>;

    /// Whether it goes on with what others had. One that is about to end does not.
    fn is_willing(server: &Self::Server) -> bool;

    /// Adopts the records of earlier incarnations of this node, and gives up those that others have adopted. Whether
    /// something has to wait.
    ///
    /// # Errors
    /// When the store does not do it, or does not know whether it did.
    async fn look_at_own(&mut self, server: &Arc<Self::Server>) -> Result<bool, Error>;

    /// Takes over all that was found of a lost node, as far as it can, and goes on with it.
    ///
    /// # Errors
    /// When the store does not do it, or does not know whether it did.
    async fn inherit(
        &mut self,
        server: &Arc<Self::Server>,
        owner: NodeId,
        found: Vec<Found<I>>,
    ) -> Result<(), Error>;

    /// What else is to be done now and then.
    async fn look_around(&mut self, _server: &Arc<Self::Server>) {}
}

/// Looks for records without an owner that lives, until there is nobody any more to go on with them.
pub(crate) async fn look<I: RecordId, H: Heir<I>>(mut heir: H, mut reasons: Reasons) {
    let mut turns = Turns::default();
    loop {
        let Some(server) = heir.server() else {
            return;
        };
        let clock = H::records(&server).clock().clone();
        let mut next = EVERY;
        if reasons.is_own_due {
            match heir.look_at_own(&server).await {
                Ok(is_left) => reasons.is_own_due = is_left,
                Err(error) => {
                    tracing::warn!(%error, "records of {} cannot be read", I::NAME);
                    next = AGAIN;
                }
            }
        }
        match look_at_lost(&mut heir, &server, &mut turns).await {
            Ok(due) => next = next.min(due),
            // It is said by whoever writes.
            Err(error) => {
                tracing::debug!(%error, "records of {} of lost nodes cannot be taken over", I::NAME);
                // Some may be this node's by now.
                reasons.is_own_due = true;
                next = AGAIN;
            }
        }
        heir.look_around(&server).await;
        drop(server);
        if !reasons.wait(clock.sleep(next)).await {
            return;
        }
    }
}

/// Takes over what lost nodes had, where it is this node's turn. When to look again.
async fn look_at_lost<I: RecordId, H: Heir<I>>(
    heir: &mut H,
    server: &Arc<H::Server>,
    turns: &mut Turns,
) -> Result<Duration, Error> {
    let records = H::records(server);
    let (due, next) = turns.due(records).await?;
    for owner in due {
        if !H::is_willing(server) {
            continue;
        }
        let found = records.of(owner).await?;
        let count = found.len();
        tracing::info!(node = %owner, count, "taking over the {} of a lost node", I::NAME);
        heir.inherit(server, owner, found).await?;
    }
    Ok(next)
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    /// Since when nodes are known to be lost whose records are there.
    since: HashMap<NodeId, Instant>,
}

impl Turns {
    /// The lost nodes whose records are this node's to take over now, and when to look again.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn due<I: RecordId>(
        &mut self,
        records: &Records<I>,
    ) -> Result<(Vec<NodeId>, Duration), Error> {
        let lost = records.lost_owners().await?;
        let now = records.clock().now();
        self.since.retain(|node, _| lost.contains(node));
        let (mut due, mut next) = (Vec::new(), EVERY);
        for owner in lost {
            let since = *self.since.entry(owner).or_insert(now);
            let rank = u32::try_from(records.rank_for(owner)).unwrap_or(u32::MAX);
            let wait = STEP.saturating_mul(rank).saturating_sub(now.since(since));
            match wait.is_zero() {
                true => due.push(owner),
                false => next = next.min(wait),
            }
        }
        Ok((due, next))
    }
}

/// What is a reason to look.
pub(crate) struct Reasons {
    others: watch::Receiver<usize>,
    returns: watch::Receiver<u64>,
    /// Whether an earlier incarnation of this node may have records that are to be gone on with, or others may have
    /// taken some.
    is_own_due: bool,
}

impl Reasons {
    /// Looks whenever another joins or leaves, and when this node has begun a new incarnation or is known to live
    /// again.
    pub(crate) fn new(others: watch::Receiver<usize>, returns: watch::Receiver<u64>) -> Self {
        Self {
            others,
            returns,
            is_own_due: true,
        }
    }

    /// Waits for one, or for the end of this. False when there will be none any more.
    async fn wait(&mut self, longest: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            changed = self.returns.changed() => {
                self.is_own_due |= changed.is_ok();
                changed.is_ok()
            }
            changed = self.others.changed() => changed.is_ok(),
            () = longest => true,
        }
    }
}
