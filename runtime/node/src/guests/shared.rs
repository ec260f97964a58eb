//! A node, as its parts share it, and the door to its ledger.
//!
//! Owns [`Shared`], what it is made from ([`Parts`]), the one way to what the ledger knows ([`Shared::ask`],
//! [`Shared::tell`]), and the way from what it decides to what is done about that, outside its lock
//! ([`Shared::carry_out`]). Must not: hold that lock while anything else is called; start threads.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::Instant;
use wasmrun_engine::Engine;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::resource::NodeResources;
use wasmrun_model::scheduler::NodeInfo;
use wasmrun_model::task::Cancellation;
use wasmrun_store::Store;

use crate::guests::attempt::WithHandles;
use crate::guests::counters::Counters;
use crate::guests::executor::{Spawner, Weight};
use crate::guests::loading::Loading;
use crate::guests::names::Names;
use crate::guests::others::{Directory, Others};
use crate::guests::run;
use crate::guests::secrets::Vault;
use crate::history::{Failure, History, Outcome, Record};
use crate::ledger::deadlock::WaitNumbers;
use crate::ledger::{Ended, Ledger, Outbox, Pauses, Start, Submission, SubmitError, Todo};
use crate::records::actor::ActorCell;
use crate::records::actor_ref::ActorNode;
use crate::records::ids::Ids;
use crate::records::log::ActorLogs;
use crate::records::object::LoadError;
use crate::records::policy::Policy;
use crate::records::task::{Home, TaskCell, Work};
use crate::records::waiting_bytes::WaitingBytes;

/// How often a thread tries to take the ledger's lock before it yields, and how often it yields before it sleeps.
const LOOKS: u32 = 100;
const YIELDS: u32 = 20;

/// Arguments that wait may take this part of what objects may.
const WAITING_PART: u64 = 4;

/// What a node is put together from, in this process or in the simulation.
pub(crate) struct Parts {
    pub(crate) info: NodeInfo,
    pub(crate) resources: NodeResources,
    /// How many tasks may run at a time, whatever they ask for.
    pub(crate) max_running: u32,
    pub(crate) engine: Engine,
    pub(crate) spawner: Spawner,
    pub(crate) store: Store,
    pub(crate) room_patience: Duration,
    pub(crate) policy: Policy,
    /// How many bytes its history may have.
    pub(crate) history_bytes: u64,
    pub(crate) control: Handle,
    /// What its ids follow from.
    pub(crate) random: [u8; 16],
}

/// What clients, running tasks and the node itself share.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) engine: Engine,
    pub(crate) loading: Loading,
    pub(crate) spawner: Spawner,
    ledger: Mutex<Ledger>,
    /// What the ledger wants other nodes to know.
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) store: Store,
    /// How long a value waits for room there.
    pub(crate) room_patience: Duration,
    pub(crate) policy: Arc<Policy>,
    pub(crate) control: Handle,
    /// The attempts that have ended.
    pub(crate) history: History,
    pub(crate) home: Arc<Home>,
    /// Actors that have names, which keep them.
    pub(crate) names: Names,
    pub(crate) actor_logs: ActorLogs,
    pub(crate) with_handles: WithHandles,
    /// What arguments of tasks that have not ended take.
    pub(crate) waiting_bytes: Arc<WaitingBytes>,
    /// What is numbered here.
    pub(crate) ids: Ids,
    pub(crate) waits: WaitNumbers,
    /// Secrets of tenants, for attempts that begin here.
    pub(crate) secrets: Arc<Vault>,
    /// Counters for metrics.
    pub(crate) counters: Counters,
    /// Whether a search for deadlocks is under way.
    pub(crate) is_looking: AtomicBool,
    /// Whether a timer tells the scheduler of a node without a cluster the time.
    pub(crate) is_ticking: AtomicBool,
    /// Whether a timer does because a tenant may be due CPU.
    pub(crate) is_ticking_for_pauses: AtomicBool,
    /// The attempts that are to pause.
    pub(crate) pauses: Arc<Pauses>,
    /// The other nodes, if it is in a cluster,
    pub(crate) others: OnceLock<Arc<dyn Others>>,
    /// and what they are called.
    pub(crate) directory: OnceLock<Arc<dyn Directory>>,
    /// What the simulation runs in place of guests.
    #[cfg(test)]
    pub(crate) guests: OnceLock<Arc<dyn crate::testing::Guests>>,
}

/// What an actor's references know of the node.
pub(crate) type WeakShared = Weak<Shared>;

impl Shared {
    /// A node that runs nothing yet and is in no cluster.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let object_memory = parts.store.usage().capacity_bytes;
        let (id, name) = (parts.info.id, parts.info.name.as_str().into());
        let ledger = Ledger::new(parts.info, parts.resources, parts.max_running);
        Arc::new(Self {
            name,
            engine: parts.engine,
            loading: Loading::new(),
            spawner: parts.spawner,
            home: Home::new(id),
            outbox: ledger.outbox(),
            pauses: ledger.pauses(),
            ledger: Mutex::new(ledger),
            store: parts.store,
            room_patience: parts.room_patience,
            policy: Arc::new(parts.policy),
            control: parts.control,
            history: History::new(parts.history_bytes),
            names: Names::default(),
            actor_logs: ActorLogs::default(),
            with_handles: WithHandles::default(),
            waiting_bytes: WaitingBytes::new(object_memory / WAITING_PART),
            ids: Ids::new(parts.random),
            waits: WaitNumbers::default(),
            secrets: Arc::default(),
            counters: Counters::default(),
            is_looking: AtomicBool::new(false),
            is_ticking: AtomicBool::new(false),
            is_ticking_for_pauses: AtomicBool::new(false),
            others: OnceLock::new(),
            directory: OnceLock::new(),
            #[cfg(test)]
            guests: OnceLock::new(),
        })
    }

    /// The ledger. It is held for some microseconds at a time, and to sleep and be woken takes many times that: so this spins
    /// for a while.
    fn locked(&self) -> MutexGuard<'_, Ledger> {
        for _ in 0..YIELDS {
            for _ in 0..LOOKS {
                if let Some(ledger) = self.ledger.try_lock() {
                    return ledger;
                }
                std::hint::spin_loop();
            }
            // The thread that holds it may not be running.
            std::thread::yield_now();
        }
        self.ledger.lock()
    }

    /// Reads the ledger, or changes what nothing follows from. All else is [told](Self::tell).
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&mut Ledger) -> T) -> T {
        question(&mut self.locked())
    }

    /// Tells the ledger what has happened, and carries out what follows from it.
    pub(crate) fn tell(self: &Arc<Self>, event: impl FnOnce(&mut Ledger) -> Todo) {
        let todo = self.decide(event);
        self.carry_out(todo);
    }

    /// As [`Self::tell`], with an answer, which is there once all is carried out.
    pub(crate) fn tell_and<T>(self: &Arc<Self>, event: impl FnOnce(&mut Ledger) -> (Todo, T)) -> T {
        let (todo, answer) = self.decide(event);
        self.carry_out(todo);
        answer
    }

    /// What follows from an event, for the caller to [carry out](Self::carry_out).
    pub(crate) fn decide<T>(&self, event: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.locked();
        let decided = event(&mut ledger);
        self.home.set_waiting(ledger.waiting());
        decided
    }

    /// It is in a cluster from now on. Once.
    pub(crate) fn join(&self, others: Arc<dyn Others>, directory: Arc<dyn Directory>) {
        self.others.get_or_init(|| others);
        self.directory.get_or_init(|| directory);
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
        let cell = submission.cell.clone();
        // What is not taken is dropped outside the lock.
        let mut submission = Some(submission);
        let known = self.tell_and(|ledger| {
            let new = submission.as_ref().expect("it was given");
            let known = ledger.may_submit(new);
            if !matches!(known, Ok(None)) {
                return (Todo::default(), known);
            }
            let mut todo = ledger.submit(submission.take().expect("it was given"));
            let refused = todo.refused.take();
            let refused = refused.map(SubmitError::Unschedulable);
            (todo, refused.map_or(known, Err))
        })?;
        Ok(known.unwrap_or(cell))
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
    fn carry_out_one(self: &Arc<Self>, mut todo: Todo, more: &mut Vec<Todo>) {
        for cell in todo.stop {
            cell.cancel();
        }
        for (cell, attempt) in todo.preempt {
            cell.preempt(attempt);
        }
        if let Some(at) = todo.preempts_at {
            self.tick_for_pauses(at);
        }
        if !todo.orphans.is_empty() {
            self.give_grace(todo.orphans);
        }
        for resumed in todo.resume {
            resumed.finish();
        }
        let mut told = Vec::new();
        for retried in todo.retried {
            self.remember(&retried, true);
        }
        for ended in todo.end {
            self.remember(&ended, false);
            let Ended { cell, report, .. } = ended;
            let tenant = &cell.work.terms().tenant;
            // Only the kind of the failure is logged: what guests say may be a tenant's secret.
            match (&report.result, &cell.work) {
                (Ok(_), _) => tracing::debug!(task = %cell.id, %tenant, "a task has finished"),
                (Err(_), Work::Create(actor)) if let Some(why) = self.failure_of(actor) => {
                    let (kind, has_lived) = (why.kind(), actor.lived_at().is_some());
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
        todo.trash.end_generations();
        self.start_all(todo.start);
        drop(todo.trash);
        for (cell, is_there) in told {
            more.extend(self.made(&cell, is_there));
        }
        if let Some(others) = self.others.get() {
            self.outbox.empty(|outbound| others.tell_others(outbound));
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
            let object = cell.object().id;
            more.push(self.decide(|ledger| ledger.made(object, is_there)));
        }
        if let Some(others) = self.others.get() {
            others.view_changed();
        }
    }

    /// Runs these, but for calls of actors that have to wait: see `Exchange::hold_back`.
    fn start_all(self: &Arc<Self>, starts: Vec<Start>) {
        for start in starts {
            let start = match self.others.get() {
                Some(others) => others.hold_back(start),
                None => Some(start),
            };
            let Some(start) = start else {
                continue;
            };
            let shared = self.clone();
            self.spawner
                .spawn_with(start.weight(), |turn| run::start(shared, start, turn));
        }
    }

    /// What a task makes is there, or will never be: tells those who need it. Nothing if it must be brought
    /// here first.
    fn made(self: &Arc<Self>, cell: &Arc<TaskCell>, is_there: bool) -> Option<Todo> {
        let object = cell.object().id;
        let is_elsewhere = is_there && cell.value().is_some_and(|value| !value.is_here());
        let todo = self.decide(|ledger| {
            let is_to_come = is_elsewhere && ledger.scheduler().is_awaited(&object);
            (!is_to_come).then(|| ledger.made(object, is_there))
        });
        if todo.is_none() {
            self.bring(cell.clone());
        }
        todo
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
                    // Where there is no room for it, the task waits for room once more when it starts, and
                    // fails if none comes.
                    Ok(_) | Err(LoadError::Room(_) | LoadError::Read(_)) => true,
                    Err(LoadError::Lost(_)) => false,
                },
                None => false,
            };
            let object = cell.object().id;
            shared.tell(|ledger| ledger.made(object, is_there));
        });
    }

    /// When a task was submitted, in microseconds since 1970, by the clock of the node where that was.
    pub(crate) fn submitted_us(&self, cell: &TaskCell) -> u64 {
        let here = || self.history.unix_us(cell.submitted);
        cell.elsewhere_us().unwrap_or_else(here)
    }

    /// Adds an attempt that has ended to the history.
    fn remember(&self, ended: &Ended, is_retried: bool) {
        let Ended { cell, report, .. } = ended;
        if cell.is_given_up() {
            return;
        }
        let ended_us = self.history.unix_us(Instant::now());
        let given = ended.given.as_deref();
        // An actor that has failed was created all the same: why it ended is what counts.
        let death = match &cell.work {
            Work::Create(actor) => self.failure_of(actor),
            _ => None,
        };
        let error = death.as_ref().or(report.result.as_ref().err());
        let failure = error.map(|error| Failure::of(error, report.stderr_tail.clone()));
        self.history.add(&Record {
            id: cell.id,
            attempt: report.attempt,
            outcome: match error {
                _ if is_retried => Outcome::Retried,
                None => Outcome::Finished,
                Some(TaskError::Cancelled) => Outcome::Cancelled,
                Some(_) => Outcome::Failed,
            },
            job: cell.driver.job(),
            tenant: cell.work.terms().tenant.clone(),
            name: cell.work.name(),
            parent: ended.parent.map(|it| it.task),
            parent_attempt: ended.parent.map_or(0, |it| it.attempt),
            actor: cell.work.actor(),
            trace: given.and_then(|it| it.trace.clone()),
            array_index: given.and_then(|it| it.array_index),
            submitted_us: self.history.unix_us(cell.submitted),
            ended_us,
            waited_us: micros(report.waited),
            ran_us: micros(report.ran),
            phases: report.phases,
            memory_peak_bytes: report.memory_peak,
            held: Cow::Borrowed(&report.held),
            inputs: Cow::Borrowed(given.map_or(&[], |it| &it.inputs)),
            ran_at: report.ran_at,
            failure,
        });
    }

    /// Why an actor that this node owns has failed, if it has.
    fn failure_of(&self, actor: &ActorCell) -> Option<TaskError> {
        self.ask(|ledger| Some(ledger.dead.get(&actor.id)?.why.clone()))
    }

    /// Cancels a task and all that it has started.
    pub(crate) fn cancel(self: &Arc<Self>, task: TaskId) {
        self.tell(|ledger| ledger.cancel_family(task));
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
        self.tell_and(|ledger| {
            // As it stands before: what is decided here may end with this.
            let outcome = ledger.would_cancel(&cell.id);
            (ledger.cancel_family(cell.id), outcome)
        })
    }

    /// Ends an actor. Its calls fail, the one that runs included.
    pub(crate) fn kill(self: &Arc<Self>, actor: &Arc<ActorCell>) {
        if actor.is_foreign() {
            if let Some(others) = self.others.get() {
                others.kill(actor.name());
            }
            return;
        }
        actor.ends();
        self.tell(|ledger| ledger.cancel(&[actor.creation()]));
        // Also where it never came to be.
        self.unname(actor);
    }
}

impl ActorNode for Shared {
    fn unreferenced(self: Arc<Self>, actor: &Arc<ActorCell>) {
        if actor.is_foreign() {
            if let Some(others) = self.others.get() {
                others.actor_dropped(actor);
            }
            return;
        }
        if actor.is_over() {
            return;
        }
        // Not on this thread, which may hold a lock. And not the node itself: the last one to hold it must not be a task of
        // its own executor.
        let (spawner, shared, actor) = (self.spawner.clone(), Arc::downgrade(&self), actor.clone());
        drop(self);
        spawner.spawn(Weight::of_cpu(0), async move {
            if let Some(shared) = shared.upgrade() {
                shared.kill(&actor);
            }
        });
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
