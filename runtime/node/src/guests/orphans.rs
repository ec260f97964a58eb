//! Orphaned calls: they run, and their driver has ended, or the node of their caller is lost.
//!
//! A call cannot be stopped alone: its actor's memory would be half changed, so that generation ends with it. Most
//! calls are short, and other drivers use the actor: so each has [`GRACE`] to come to its end, with all that it
//! has started, before it is stopped. Owns that time, and what ends after it. Must not: know how it was found out
//! that a caller is gone.
//!
//! Invariant: what ends a generation so was told to stop by its scheduler, so its call is not retried.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, TaskId};

use crate::guests::shared::Shared;
use crate::ledger::{Ledger, Todo};
use crate::records::task::{TaskCell, Work};

/// How long a call may go on when its caller is gone.
const GRACE: Duration = Duration::from_secs(2);

/// What a call, and the generation of its actor, ended with.
pub(crate) fn ended(call: &TaskCell) -> TaskError {
    TaskError::Sandbox(format!(
        "its caller was gone for {}s in the middle of call {} ({}), and a call is not stopped without its actor",
        GRACE.as_secs(),
        call.work.name(),
        call.id
    ))
}

impl Ledger {
    /// Ends what a driver has here of its own, and what it calls here. Calls of other drivers' actors that run go on
    /// for a while, with all that they have started: see [`Todo::orphans`].
    pub(crate) fn end_work_of(&mut self, driver: &DriverId, todo: &mut Todo) {
        let mut of_driver = self.of_driver(driver);
        // Others' tasks are theirs to end: they hear of it too.
        of_driver.retain(|task| !self.is_of_other(task) || self.is_running_call(task));
        let is_orphan = |task: &TaskId| match self.work(task) {
            Some(Work::Call(actor, _)) => {
                let creation = self.cell(&actor.creation());
                self.is_running_call(task) && creation.is_some_and(|it| it.driver != *driver)
            }
            _ => false,
        };
        let orphans: Vec<TaskId> = of_driver.iter().copied().filter(is_orphan).collect();
        let mut goes_on = HashSet::new();
        let mut next: Vec<TaskId> = orphans.clone();
        while let Some(task) = next.pop() {
            let children = self.children(&task).iter().copied();
            next.extend(children.filter(|child| goes_on.insert(*child)));
        }
        let orphans: HashSet<TaskId> = orphans.into_iter().collect();
        of_driver.retain(|task| {
            let is_ours = !goes_on.contains(task) && !self.is_running_call(task);
            is_ours || orphans.contains(task)
        });
        self.cancel_too(&of_driver, todo);
    }
}

impl Shared {
    /// Ends what a driver has here: it is gone, or wants that.
    pub(crate) fn end_work_of(self: &Arc<Self>, driver: DriverId) {
        self.tell(|ledger| {
            let mut todo = Todo::default();
            ledger.end_work_of(&driver, &mut todo);
            todo
        });
    }

    /// A driver is gone for good: what its calls start while they go on ends after them.
    pub(crate) fn sweep_after(self: &Arc<Self>, driver: DriverId) {
        if self.ask(|ledger| ledger.of_driver(&driver).is_empty()) {
            return;
        }
        let shared = Arc::downgrade(self);
        // It ends when nothing is left of the driver, which has no more than its calls can start in their time; or
        // with the node.
        self.control.spawn(async move {
            loop {
                tokio::time::sleep(GRACE).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                shared.end_work_of(driver);
                if shared.ask(|ledger| ledger.of_driver(&driver).is_empty()) {
                    return;
                }
            }
        });
    }

    /// Lets calls that were told to stop go on for a while.
    pub(crate) fn give_grace(self: &Arc<Self>, calls: Vec<Arc<TaskCell>>) {
        let shared = Arc::downgrade(self);
        // It ends in that time, or with the node.
        self.control.spawn(async move {
            tokio::time::sleep(GRACE).await;
            if let Some(shared) = shared.upgrade() {
                calls.iter().for_each(|call| shared.end_orphan(call));
            }
        });
    }

    /// Ends a call whose time is up, what it has started, and the generation of its actor.
    fn end_orphan(self: &Arc<Self>, call: &Arc<TaskCell>) {
        let Work::Call(actor, _) = &call.work else {
            unreachable!("only calls are given time");
        };
        if call.has_ended() {
            return;
        }
        actor.abandon(call);
        tracing::info!(
            task = %call.id, actor = %actor.id, tenant = %actor.tenant(),
            "a call whose caller is gone is stopped, and this generation of its actor with it"
        );
        let todo = self.decide(|ledger| {
            let is_it = ledger
                .cell(&call.id)
                .is_some_and(|it| Arc::ptr_eq(&it, call));
            if !is_it {
                return Todo::default();
            }
            let mut started = Vec::new();
            for child in ledger.children(&call.id).to_vec() {
                started.extend(ledger.family(child));
            }
            ledger.end_what_was_left(&[call.id]);
            ledger.end_what_was_left(&started);
            ledger.cancel(&started)
        });
        // Before it hears what became of those.
        call.cancel();
        self.carry_out(todo);
    }
}
