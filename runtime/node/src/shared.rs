//! What clients and running tasks ask of the node: the doors to the ledger.
//!
//! Owns the way from a decision of the ledger to what is done about it, outside its lock
//! ([`Shared::carry_out`]). Must not: hold that lock while anything else is called.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::task::{Attempt, Cancellation};
use wasmrun_model::value::{Encoded, EncodedRef};
use wasmrun_store::{Copy, CreateError, Form, ReadError, Writer};

use crate::actor::ActorCell;
use crate::deadlock::{Blocked, Search, SearchOutcome};
use crate::executor::Weight;
use crate::ledger::{Ledger, Submission, Todo};
use crate::node::{Shared, SubmitError, WeakShared};
use crate::object::{LoadError, Loaded, Reference, Value};
use crate::run;
use crate::task::{Home, TaskCell, Work};
use crate::wait::Countdown;

/// Values up to this many bytes stay with whoever holds them; larger ones live in the store.
pub(crate) const INLINE_BYTES: usize = 64 << 10;

/// How soon is looked again whether what is late will come.
const LOOK: Duration = Duration::from_millis(100);

/// How soon is looked again for an object that somebody else is about to have.
const SOON: Duration = Duration::from_millis(5);

/// How often a thread looks whether the ledger is free before it lets others run, and how often it does that
/// before it sleeps.
const LOOKS: u32 = 100;
const YIELDS: u32 = 20;

impl Shared {
    /// The ledger, for what happens with every task. Whoever has it needs it for some microseconds, and to
    /// sleep and be woken takes many times that: so this looks again for a while.
    pub(crate) fn ledger_soon(&self) -> MutexGuard<'_, Ledger> {
        for _ in 0..YIELDS {
            for _ in 0..LOOKS {
                if let Some(ledger) = self.ledger.try_lock() {
                    return ledger;
                }
                std::hint::spin_loop();
            }
            // Whoever has it may not be running.
            std::thread::yield_now();
        }
        self.ledger.lock()
    }

    pub(crate) fn home(&self) -> Arc<Home> {
        self.home.clone()
    }

    /// Takes a task. What it is known by from now on: where the same task lives already, because another
    /// attempt of its parent started it, that one.
    pub(crate) fn submit(
        self: &Arc<Self>,
        submission: Submission,
    ) -> Result<Arc<TaskCell>, SubmitError> {
        let mut ledger = self.ledger_soon();
        if ledger.is_stopping() {
            return Err(SubmitError::Stopping);
        }
        if let Some(parent) = &submission.parent
            && ledger.is_stopped(parent)
        {
            return Err(SubmitError::Stopped);
        }
        // A driver never uses an id twice. But another node may have given us the task since its id was looked for.
        if let Some(known) = ledger.cell(&submission.cell.id) {
            return Ok(known);
        }
        let cell = submission.cell.clone();
        let mut todo = ledger.submit(submission);
        self.home.set_waiting(ledger.waiting());
        drop(ledger);
        let refused = todo.refused.take();
        self.carry_out(todo);
        refused.map_or(Ok(cell), |why| Err(SubmitError::Unschedulable(why)))
    }

    /// Does what is left to do when the lock is released.
    pub(crate) fn carry_out(self: &Arc<Self>, todo: Todo) {
        // One by one, not one inside the other: what fails may fail a long chain.
        let mut all = Vec::new();
        self.carry_out_one(todo, &mut all);
        while let Some(todo) = all.pop() {
            self.carry_out_one(todo, &mut all);
        }
    }

    /// Does what is left to do. What comes of that is added to `more`.
    fn carry_out_one(self: &Arc<Self>, todo: Todo, more: &mut Vec<Todo>) {
        for cell in todo.stop {
            cell.cancel();
        }
        if !todo.orphans.is_empty() {
            self.give_grace(todo.orphans);
        }
        for resumed in todo.resume {
            resumed.finish();
        }
        let mut told = Vec::new();
        for (cell, report) in todo.end {
            let tenant = &cell.work.terms().tenant;
            // What kind of failure it was is all that is said: what guests say may be anybody's secret.
            match (&report.result, &cell.work) {
                (Ok(_), _) => tracing::debug!(task = %cell.id, %tenant, "a task has finished"),
                (Err(_), Work::Create(actor)) if let Some(why) = self.failure_of(actor) => {
                    let (kind, has_lived) = (why.kind(), actor.has_lived());
                    tracing::info!(actor = %actor.id, %tenant, kind, has_lived, "an actor has failed");
                }
                (Err(error), _) => {
                    let kind = error.kind();
                    tracing::debug!(task = %cell.id, %tenant, kind, "a task has failed");
                }
            }
            if let Work::Create(actor) = &cell.work {
                self.unname(actor);
            }
            let is_there = report.result.is_ok();
            if cell.end(report) {
                told.push((cell, is_there));
            }
        }
        for start in todo.start {
            let start = match self.exchange.get() {
                Some(exchange) => exchange.hold_back(start),
                None => Some(start),
            };
            let Some(start) = start else {
                continue;
            };
            let shared = self.clone();
            self.spawner
                .spawn_with(start.weight(), |turn| run::start(shared, start, turn));
        }
        drop(todo.trash);
        for (cell, is_there) in told {
            more.extend(self.made(&cell, is_there));
        }
        if let Some(exchange) = self.exchange.get() {
            self.outbox.empty(|outbound| exchange.tell_others(outbound));
        }
        for cell in todo.fetch {
            cell.want();
            // Another reader may have fetched it since: then no event comes that would make the task ready.
            let is_there = match cell.result() {
                None => continue,
                Some(Err(_)) => false,
                Some(Ok(Some(value))) if !value.is_here() => {
                    self.bring(cell);
                    continue;
                }
                Some(Ok(_)) => true,
            };
            more.push(self.ledger.lock().made(cell.object().id, is_there));
        }
        if let Some(cluster) = self.cluster.get() {
            cluster.view_changed();
        }
    }

    /// What a task makes is there, or will never be: tells those who need it. Nothing if it must be brought
    /// here first.
    fn made(self: &Arc<Self>, cell: &Arc<TaskCell>, is_there: bool) -> Option<Todo> {
        let object = cell.object().id;
        let is_elsewhere = is_there && cell.value().is_some_and(|value| !value.is_here());
        let mut ledger = self.ledger.lock();
        if is_elsewhere && ledger.scheduler().is_awaited(&object) {
            drop(ledger);
            self.bring(cell.clone());
            return None;
        }
        let todo = ledger.made(object, is_there);
        self.home.set_waiting(ledger.waiting());
        Some(todo)
    }

    /// What another node made is there, or will never be.
    pub(crate) fn tell_dependents(self: &Arc<Self>, cell: &Arc<TaskCell>, is_there: bool) {
        if let Some(todo) = self.made(cell, is_there) {
            self.carry_out(todo);
        }
    }

    /// Brings the value of an object here that tasks here need, and tells them.
    fn bring(self: &Arc<Self>, cell: Arc<TaskCell>) {
        let shared = self.clone();
        // It ends when the bytes are there, or no node gives them; at the latest with the node.
        self.control.spawn(async move {
            let is_there = match cell.value() {
                Some(value) => match value.read().await {
                    // Where there is no room for it, whoever needs it waits for room once more when it
                    // starts, and says so if none comes.
                    Ok(_) | Err(LoadError::Room(_) | LoadError::Read(_)) => true,
                    Err(LoadError::Lost(_)) => false,
                },
                None => false,
            };
            let object = cell.object().id;
            let mut ledger = shared.ledger.lock();
            let todo = ledger.made(object, is_there);
            shared.home.set_waiting(ledger.waiting());
            drop(ledger);
            shared.carry_out(todo);
        });
    }

    /// Why an actor of ours has failed, if it has.
    fn failure_of(&self, actor: &ActorCell) -> Option<TaskError> {
        let ledger = self.ledger.lock();
        ledger.dead.get(&actor.id).map(|dead| dead.why.clone())
    }

    /// Cancels a task and all that it has started.
    pub(crate) fn cancel(self: &Arc<Self>, task: TaskId) {
        let mut ledger = self.ledger.lock();
        let todo = self.cancel_in(&mut ledger, task);
        drop(ledger);
        self.carry_out(todo);
    }

    fn cancel_in(&self, ledger: &mut Ledger, task: TaskId) -> Todo {
        let family = ledger.family(task);
        ledger.end_what_was_left(&family);
        let todo = ledger.cancel(&family);
        self.home.set_waiting(ledger.waiting());
        todo
    }

    /// Cancels what is to make an object, wherever its owner is.
    pub(crate) fn cancel_maker(self: &Arc<Self>, cell: &TaskCell) -> Cancellation {
        if cell.has_ended() {
            return Cancellation::Over;
        }
        if let Work::Elsewhere(foreign) = &cell.work {
            foreign.cancel();
            return Cancellation::Asked;
        }
        let mut ledger = self.ledger.lock();
        // As it stands before: what is decided here may end with this.
        let outcome = ledger.would_cancel(&cell.id);
        let todo = self.cancel_in(&mut ledger, cell.id);
        drop(ledger);
        self.carry_out(todo);
        outcome
    }

    /// Ends an actor. Its calls fail, the one that runs included.
    pub(crate) fn kill(self: &Arc<Self>, actor: &Arc<ActorCell>) {
        if actor.is_foreign() {
            if let Some(exchange) = self.exchange.get() {
                exchange.kill(actor.name());
            }
            return;
        }
        actor.ends();
        let mut ledger = self.ledger.lock();
        let todo = ledger.cancel(&[actor.creation()]);
        drop(ledger);
        self.carry_out(todo);
        // Also where it never came to be.
        self.unname(actor);
    }

    /// Keeps a value: a small one with whoever holds it, a large one in the store, once there is room.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn keep(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        value: Cow<'_, Encoded>,
        references: Vec<Reference>,
    ) -> Result<Value, CreateError> {
        if value.size_bytes() <= INLINE_BYTES {
            return Ok(Value::inline(value.into_owned(), references));
        }
        self.store_value(tenant, id, value, references).await
    }

    /// Keeps a value in the store, however small it is.
    ///
    /// # Errors
    /// When there is no room in time.
    pub(crate) async fn store_value(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        value: Cow<'_, Encoded>,
        references: Vec<Reference>,
    ) -> Result<Value, CreateError> {
        let until = tokio::time::Instant::now() + self.room_patience;
        let writer = loop {
            let mut creating =
                self.store
                    .create(tenant, id, value.size_bytes() as u64, form(&value));
            match tokio::time::timeout(self.room_patience, &mut creating).await {
                Ok(Ok(writer)) => break writer,
                // An attempt before this one has stored it, and somebody still has that.
                Ok(Err(CreateError::Exists { .. })) if let Some(object) = self.store.get(&id) => {
                    match self.found(&object, until).await {
                        Found::AsMade => {}
                        Found::Gone => continue,
                        Found::Changed if given_up(&object, until).await => {
                            tracing::warn!(object = %id, "its bytes have changed since they were made: it is stored anew");
                            continue;
                        }
                        Found::Changed => {
                            tracing::warn!(object = %id, "its bytes have changed since they were made, and it cannot be stored anew while it is read");
                        }
                    }
                    // It may be a copy of another node's that is gone.
                    object.set_copy(Copy::Primary);
                    return Ok(Value::stored(object, references));
                }
                // It is being written, or has just gone.
                Ok(Err(CreateError::Exists { .. })) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(SOON).await;
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let (error, bytes) = (creating.error(), value.size_bytes());
                    tracing::warn!(%tenant, bytes, %error, "an object found no room in time");
                    self.counters.no_room.add(1);
                    return Err(error);
                }
            }
        };
        Ok(Value::stored(fill(writer, &value), references))
    }

    /// Does something on a thread that it may keep for a while. None when the node is stopping.
    async fn on_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        #[cfg(test)]
        if self.guests.get().is_some() {
            // The simulation has one thread.
            return Some(act());
        }
        self.control.spawn_blocking(act).await.ok()
    }

    /// Whether an object is what it was, as far as that is known by this time.
    async fn found(&self, object: &wasmrun_store::Object, until: tokio::time::Instant) -> Found {
        use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
        let sums = object.sums();
        if sums.is_empty() && object.is_resident() {
            return Found::AsMade;
        }
        let view = match tokio::time::timeout_at(until, object.restore()).await {
            Ok(Ok(view)) => view,
            Ok(Err(ReadError::Dropped { .. })) => return Found::Gone,
            Ok(Err(ReadError::Disk { source, .. })) => {
                return match source.kind() {
                    InvalidData | NotFound | UnexpectedEof => Found::Changed,
                    // It may be had later.
                    _ => Found::AsMade,
                };
            }
            Ok(Err(ReadError::Full { .. })) | Err(_) => return Found::AsMade,
        };
        let check = move || {
            sums.iter().all(|(start, len, sum)| {
                let part = view.get(*start as usize..(*start + *len) as usize);
                part.is_some_and(|part| wasmrun_net::checksum(part) == *sum)
            })
        };
        match self.on_thread(check).await.unwrap_or(true) {
            true => Found::AsMade,
            false => Found::Changed,
        }
    }

    /// A value in memory. `None` if this time has come and nobody who has it answers: what is on its way may come later.
    pub(crate) async fn read_by(
        &self,
        value: &Value,
        deadline: tokio::time::Instant,
    ) -> Option<Result<Loaded, LoadError>> {
        let mut reading = std::pin::pin!(value.read());
        let mut until = deadline;
        loop {
            if let Ok(loaded) = tokio::time::timeout_at(until, &mut reading).await {
                return Some(loaded);
            }
            let (exchange, id) = (self.exchange.get(), value.stored_id());
            let stalled = exchange.zip(id);
            if stalled.is_some_and(|(exchange, id)| exchange.stalled_by(&id).is_some()) {
                return None;
            }
            until = tokio::time::Instant::now() + LOOK;
        }
    }

    /// A running attempt waits for others from now on, until the guard says otherwise.
    pub(crate) fn block(
        self: &Arc<Self>,
        task: TaskId,
        attempt: Attempt,
        blocked: Blocked,
    ) -> BlockGuard {
        let is_bounded = blocked.is_bounded;
        let mut ledger = self.ledger.lock();
        let todo = ledger.block(task, attempt, blocked);
        self.home.set_waiting(ledger.waiting());
        drop(ledger);
        self.carry_out(todo);
        if !is_bounded {
            self.look_for_deadlock();
        }
        BlockGuard {
            shared: self.clone(),
            task,
            attempt,
        }
    }

    /// Looks in a while whether those who wait will ever go on, and again as long as somebody waits.
    fn look_for_deadlock(self: &Arc<Self>) {
        if self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        self.control.spawn(async move {
            let mut search = Search::new(&shared.ledger.lock());
            loop {
                tokio::time::sleep(search.rest()).await;
                if !search.is_due() {
                    continue;
                }
                let mut ledger = shared.ledger.lock();
                let Some(looked) = search.look(&mut ledger) else {
                    // Under the lock: who blocks after this starts another.
                    shared.is_looking.store(false, Ordering::Release);
                    return;
                };
                drop(ledger);
                let SearchOutcome { long, reach } = looked;
                drop(reach);
                if let (Some(long), Some(exchange)) = (long, shared.exchange.get()) {
                    let exchange = exchange.clone();
                    // It ends when all who are asked have answered, or their time is up.
                    let asking = async move { exchange.look_for_circle(&long).await };
                    search.asks(shared.control.spawn(asking));
                }
            }
        });
    }
}

/// What a blocked attempt has to say when it needs to wait no more.
pub(crate) struct BlockGuard {
    shared: Arc<Shared>,
    task: TaskId,
    attempt: Attempt,
}

impl BlockGuard {
    /// Waits until the attempt has its CPU again.
    pub(crate) async fn resume(self) {
        self.unblock().done().await;
    }

    /// The attempt goes on without its CPU: it has waited as long as it wanted to.
    pub(crate) fn go_ahead(self) {
        self.tell(|ledger| ledger.overdue(self.task, self.attempt));
    }

    fn unblock(&self) -> Arc<Countdown> {
        let resumed = Countdown::new(1);
        self.tell(|ledger| ledger.unblock(self.task, self.attempt, &resumed));
        resumed
    }

    fn tell(&self, what: impl FnOnce(&mut Ledger) -> Todo) {
        let mut ledger = self.shared.ledger.lock();
        let todo = what(&mut ledger);
        self.shared.home.set_waiting(ledger.waiting());
        drop(ledger);
        self.shared.carry_out(todo);
    }
}

/// Kills an actor that nobody refers to any more, but not on this thread, which may hold a lock.
pub(crate) fn kill_later(shared: &WeakShared, actor: Arc<ActorCell>) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let weight = Weight::of_cpu(0);
    let spawner = shared.spawner.clone();
    // Not the node itself: the last one to hold it must not be a task of its own executor.
    let shared = Arc::downgrade(&shared);
    spawner.spawn(weight, async move {
        if let Some(shared) = shared.upgrade() {
            shared.kill(&actor);
        }
    });
}

fn form(value: &Encoded) -> Form {
    match value {
        Encoded::Postcard(_) => Form::Postcard,
        Encoded::Buffer { kind, .. } => Form::Buffer(*kind),
    }
}

/// What an object is that a store has already.
enum Found {
    /// What it was, as far as is known.
    AsMade,
    /// Not what it was when it was first sent from here, or came here; or the disk has not kept it.
    Changed,
    /// A copy whose room was needed just now.
    Gone,
}

/// Whether an object's id is free by this time.
async fn given_up(object: &wasmrun_store::Object, until: tokio::time::Instant) -> bool {
    let gone = async {
        while !object.give_up() {
            tokio::time::sleep(SOON).await;
        }
    };
    tokio::time::timeout_at(until, gone).await.is_ok()
}

fn fill(mut writer: Writer, value: &Encoded) -> wasmrun_store::Object {
    writer.copy_from(EncodedRef::from(value).bytes());
    writer.seal()
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::*;
    use crate::node::{Node, NodeConfig};

    #[test]
    fn what_was_there_and_goes_does_not_keep_a_value_from_being_stored() {
        let node = Node::start(NodeConfig::default()).unwrap();
        let shared = &node.shared;
        let (tenant, id) = (
            TenantName::default(),
            ObjectId::of(DriverId::from_bytes([1; 16]).task(1), 0),
        );
        let value = Encoded::Postcard(vec![7; 100_000]);
        // One that is on its way, and does not come.
        let writer = shared
            .store
            .try_create(&tenant, id, 100_000, Form::Postcard);
        let stored = shared.control.block_on(async {
            let storing = shared.store_value(&tenant, id, Cow::Borrowed(&value), Vec::new());
            let giving_up = async {
                tokio::task::yield_now().await;
                drop(writer.unwrap());
            };
            tokio::join!(storing, giving_up).0
        });
        assert_eq!(stored.unwrap().size_bytes(), 100_000);
    }
}
