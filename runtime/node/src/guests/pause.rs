//! Attempts that pause while another tenant has their CPU, and the time that the scheduler is told for that.
//!
//! Owns what a guest does that is told to pause, and the timer. Must not: decide who pauses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::guests::attempt::Attempt;
use crate::guests::shared::Shared;
use crate::ledger::Todo;
use crate::records::wait::Countdown;

/// How often it is looked whether the scheduler wants to be told the time sooner.
const STEP: Duration = Duration::from_millis(20);
/// How often it is at most.
const LEAST: Duration = Duration::from_millis(1);

impl Attempt {
    /// Gives its CPU back, and waits until it has it again.
    pub(super) async fn stand_aside(&self) {
        self.clock.pauses();
        let resumed = Countdown::new(1);
        let (task, attempt) = (self.cell.id, self.number);
        self.shared
            .tell(|ledger| ledger.paused(task, attempt, &resumed));
        resumed.done().await;
        self.clock.goes_on();
    }
}

impl Shared {
    /// Tells the scheduler the time when a tenant may be due CPU, for as long as there is such a time.
    pub(super) fn tick_for_pauses(self: &Arc<Self>, at: Instant) {
        if self.is_ticking_for_pauses.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::downgrade(self);
        self.control.spawn(async move {
            let mut next = Some(at);
            while let Some(at) = next {
                let now = Instant::now();
                tokio::time::sleep_until(at.clamp(now + LEAST, now + STEP)).await;
                let Some(shared) = this.upgrade() else {
                    return;
                };
                next = shared.tell_and(|ledger| {
                    let is_due = ledger.preempts_at().is_some_and(|at| at <= Instant::now());
                    let todo = match is_due {
                        true => ledger.tick(),
                        false => Todo::default(),
                    };
                    let next = ledger.preempts_at();
                    if next.is_none() {
                        // Under the lock: a later claim starts another timer.
                        shared.is_ticking_for_pauses.store(false, Ordering::Release);
                    }
                    (todo, next)
                });
            }
        });
    }
}
