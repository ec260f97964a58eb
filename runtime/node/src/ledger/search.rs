//! When deadlocks are looked for.
//!
//! Owns the pace: every 100 ms at most, while a task waits without a timeout. Circles are looked for when a task has begun to
//! wait, a standstill when nothing else happens, and circles through other nodes when a task has waited for a second. The
//! ledger's lock is held meanwhile, so all searches together take a fiftieth of the time at most.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use wasmrun_model::id::TaskId;
use wasmrun_model::scheduler::NewWaiters;

use super::deadlock::{Activity, WaitNumber};
use crate::ledger::Ledger;
use crate::records::reach::Reach;

/// How long everything must stand still before that counts as a deadlock.
const STANDSTILL: Duration = Duration::from_millis(100);
/// The pause after a search, in times of how long that took.
const REST: u32 = 50;
/// How often the search begins at all waiting tasks. It is a safety net: a circle that is missed is a wait for ever, and code
/// that adds a way to wait may forget to note when the wait begins.
const SWEEP: Duration = Duration::from_secs(10);
/// How long a task waits before other nodes are asked.
const LONG: Duration = Duration::from_secs(1);
/// The longest time between two looks through other nodes.
const SELDOM: Duration = Duration::from_secs(30);

/// The looks of a node.
pub(crate) struct Search {
    activity: Arc<Activity>,
    /// How often something had started, ended or begun to wait at the look before.
    changes: Option<u64>,
    /// Whether the next look may find something though nothing happens until then.
    is_due: bool,
    swept: Instant,
    rest: Duration,
    elsewhere: Elsewhere,
}

/// What came of a search.
#[derive(Default)]
pub(crate) struct SearchOutcome {
    /// Who may wait for each other through other nodes, if it is time to ask those.
    pub(crate) long: Option<Vec<TaskId>>,
    /// To be dropped where no lock is held.
    pub(crate) reach: Reach,
}

impl Search {
    pub(crate) fn new(ledger: &Ledger) -> Self {
        Self {
            activity: ledger.blocked.activity().clone(),
            changes: None,
            is_due: true,
            swept: Instant::now(),
            rest: STANDSTILL,
            elsewhere: Elsewhere::new(),
        }
    }

    /// How long to wait before the next look.
    pub(crate) fn rest(&self) -> Duration {
        self.rest
    }

    /// Whether to look: nothing can be found otherwise.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        // Always asked: what has happened before the look is looked at with it.
        self.activity.take()
            || self.is_due
            || self.elsewhere.is_due(now)
            || now.duration_since(self.swept) >= SWEEP
    }

    /// Searches, and ends a wait that would never end. `None` if no task waits without a timeout.
    pub(crate) fn look(&mut self, ledger: &mut Ledger) -> Option<SearchOutcome> {
        if !ledger.blocked.has_unbounded() {
            return None;
        }
        let began = Instant::now();
        if began.duration_since(self.swept) >= SWEEP {
            self.swept = began;
            ledger.blocked.add_new(NewWaiters::TooMany);
        }
        // A standstill only where nothing has happened since the last look: what ends now may be on its way.
        let is_unchanged = self.changes == Some(ledger.changes);
        let (has_found, reach) = ledger.break_deadlock(is_unchanged);
        self.changes = Some(ledger.changes);
        self.is_due = has_found || ledger.may_stand_still();
        let long = self.elsewhere.due(ledger);
        self.rest = STANDSTILL.max(began.elapsed() * REST);
        Some(SearchOutcome { long, reach })
    }

    /// Others are being asked.
    pub(crate) fn asks(&mut self, asking: JoinHandle<()>) {
        self.elsewhere.asking = Some(asking);
    }
}

/// When circles through other nodes are looked for: seldom, and more seldom the longer nothing changes.
struct Elsewhere {
    next: Instant,
    delay: Duration,
    /// The number of the last wait that was looked at.
    newest: Option<WaitNumber>,
    asking: Option<JoinHandle<()>>,
}

impl Elsewhere {
    fn new() -> Self {
        Self {
            next: Instant::now() + LONG,
            delay: LONG,
            newest: None,
            asking: None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.next && self.asking.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// For whom to look now, if it is time.
    fn due(&mut self, ledger: &Ledger) -> Option<Vec<TaskId>> {
        let now = Instant::now();
        if !self.is_due(now) {
            return None;
        }
        let long = match ledger.is_clustered() {
            true => ledger.long_waiters(LONG),
            false => Vec::new(),
        };
        let newest = long.iter().filter_map(|it| ledger.wait_number(it)).max();
        self.delay = match newest > self.newest || long.is_empty() {
            true => LONG,
            false => (self.delay * 2).min(SELDOM),
        };
        self.newest = self.newest.max(newest);
        self.next = now + self.delay;
        (!long.is_empty()).then_some(long)
    }
}
