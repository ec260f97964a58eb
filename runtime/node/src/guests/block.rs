//! Blocking attempts: they give up their CPU while they wait for others.
//!
//! Owns what an attempt tells the ledger when it begins to wait and when it goes on ([`Shared::block`], [`BlockGuard`]), and
//! the task that searches for deadlocks meanwhile. Must not: know who waits for whom, which is
//! [`crate::ledger::deadlock`]'s.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Attempt;

use crate::guests::clock::Clock;
use crate::guests::shared::Shared;
use crate::ledger::deadlock::{Blocked, Search, SearchOutcome};
use crate::records::wait::Countdown;

impl Shared {
    /// A running attempt waits for others from now on, until the guard says otherwise.
    pub(crate) fn block(
        self: &Arc<Self>,
        task: TaskId,
        attempt: Attempt,
        blocked: Blocked,
    ) -> BlockGuard {
        let is_bounded = blocked.is_bounded;
        self.tell(|ledger| ledger.block(task, attempt, blocked));
        if !is_bounded {
            self.look_for_deadlock();
        }
        BlockGuard {
            shared: self.clone(),
            task,
            attempt,
            since: Instant::now(),
        }
    }

    /// Searches for deadlocks from time to time, as long as a task waits without a timeout.
    fn look_for_deadlock(self: &Arc<Self>) {
        if self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        self.control.spawn(async move {
            let mut search = shared.ask(|ledger| Search::new(ledger));
            loop {
                tokio::time::sleep(search.rest()).await;
                if !search.is_due() {
                    continue;
                }
                let looked = shared.ask(|ledger| {
                    let looked = search.look(ledger);
                    if looked.is_none() {
                        // Under the lock: an attempt that blocks after this starts another search.
                        shared.is_looking.store(false, Ordering::Release);
                    }
                    looked
                });
                let Some(SearchOutcome { long, reach }) = looked else {
                    return;
                };
                drop(reach);
                if let (Some(long), Some(others)) = (long, shared.others.get()) {
                    let others = others.clone();
                    // It ends when all who are asked have answered, or their time is up.
                    let asking = async move { others.look_for_circle(&long).await };
                    search.asks(shared.control.spawn(asking));
                }
            }
        });
    }
}

/// A blocked attempt. It ends the wait.
pub(crate) struct BlockGuard {
    shared: Arc<Shared>,
    task: TaskId,
    attempt: Attempt,
    since: Instant,
}

impl BlockGuard {
    /// Waits until the attempt, whose clock this is, has its CPU again.
    pub(crate) async fn resume(self, clock: &Clock) {
        self.unblock().done().await;
        clock.waited_since(self.since);
    }

    /// The attempt goes on without its CPU: it has waited as long as it wanted to.
    pub(crate) fn go_ahead(self, clock: &Clock) {
        clock.waited_since(self.since);
        let (task, attempt) = (self.task, self.attempt);
        self.shared.tell(|ledger| ledger.overdue(task, attempt));
    }

    fn unblock(&self) -> Arc<Countdown> {
        let resumed = Countdown::new(1);
        let (task, attempt) = (self.task, self.attempt);
        self.shared
            .tell(|ledger| ledger.unblock(task, attempt, &resumed));
        resumed
    }
}
