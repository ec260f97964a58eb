//! A task as its submitter sees it: what to run, and a handle to what comes of it.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;
use wasmrun_engine::HeldResource;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, DriverId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::task::{Attempt, Terms};
use wasmrun_model::value::{Encoded, FunctionType, ValueType};
use wasmrun_model::wire::Phases;

use crate::records::actor::ActorCell;
use crate::records::job::Job;
use crate::records::lineage::Recipe;
use crate::records::object::{Object, Reference, Value};
use crate::records::wait::Countdown;

/// What came of a task.
#[derive(Debug, Clone)]
pub struct Report {
    /// The task's id.
    pub id: TaskId,
    /// The function's result, encoded by its result type (`None` if it has none, and for
    /// programs), or why there is none.
    pub result: Result<Option<Value>, TaskError>,
    /// How long it waited for resources.
    pub waited: Duration,
    /// How long it ran, setting up its sandbox included; zero if it never did, or its node is lost.
    pub ran: Duration,
    /// What it held while it ran.
    pub held: Vec<HeldResource>,
    /// The most that its memories and tables came to, in bytes; 0 if it failed.
    pub memory_peak: u64,
    /// The end of what it wrote to standard error, if it failed.
    pub stderr_tail: String,
    /// Which other node it ran at, if it did not run here.
    pub ran_at: Option<NodeId>,
    /// Which attempt it is of, from 1; 0 if none began.
    pub attempt: u32,
    /// Where its time went.
    pub phases: Phases,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits for resources.
    Ready,
    /// It runs.
    Running,
    /// Its report is there.
    Ended,
}

/// A submitted task. A future of its [`Report`]; dropping it leaves the task alone.
pub struct TaskHandle(pub(crate) Arc<TaskCell>);

/// What the handle and the node share of a task.
pub(crate) struct TaskCell {
    pub(crate) id: TaskId,
    pub(crate) driver: DriverId,
    pub(crate) work: Work,
    /// When it was submitted, or came from another node.
    pub(crate) submitted: Instant,
    /// When it was submitted at another node, in microseconds since 1970 by the clock there.
    elsewhere_us: Option<NonZeroU64>,
    home: Arc<Home>,
    /// Whether the scheduler has tasks that need what this one makes.
    has_dependents: AtomicBool,
    /// Whether others than the handle look at the report.
    is_shared: AtomicBool,
    phase: AtomicU8,
    cancelled: AtomicBool,
    /// The number of the attempt that was told last to stop, to be tried again; 0 if none was.
    pub(super) preempted: AtomicU32,
    /// Whether another node has taken it over: how it ends here counts for nothing.
    given_up: AtomicBool,
    /// Wakes the running task, so that it sees that it is cancelled.
    pub(super) runner: AtomicWaker,
    outcome: Mutex<Outcome>,
    /// Who notes its end.
    notes: OnceLock<Arc<dyn Notes>>,
    /// How to make its result again, where that may get lost.
    recipe: OnceLock<Arc<Recipe>>,
}

/// Who notes how tasks end. It is told in whatever thread that happens, and must be quick.
pub(crate) trait Notes: Send + Sync {
    /// The task has ended.
    fn ended(&self, report: &Report);
}

/// An object that another node owns, as long as it is named here.
pub(crate) trait Foreign: Send + Sync {
    fn name(&self) -> ObjectName;

    /// The type that it was made as, once that is known.
    fn ty(&self) -> &OnceLock<ValueType>;

    /// Asks its owner to cancel what is to make it. Nothing where that is there, or the owner is gone.
    fn cancel(&self);

    /// Asks its owner to say what becomes of it: the first time.
    fn want(&self);
}

/// One of those that an attempt has started and that have not ended: counted until it is dropped.
pub(crate) struct Nested(pub(crate) Arc<AtomicU64>);

impl Drop for Nested {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a task runs.
#[derive(Clone)]
pub(crate) enum Work {
    /// A function or a program.
    Task(Arc<Job>),
    /// The creation of an actor.
    Create(Arc<ActorCell>),
    /// A method of an actor, by its place among the methods of its [`crate::records::class::Face`].
    Call(Arc<ActorCell>, usize),
    /// Nothing: another node owns what is made.
    Elsewhere(Arc<dyn Foreign>),
}

impl Work {
    /// The actor that is created or called.
    pub(crate) fn actor(&self) -> Option<ActorId> {
        match self {
            Self::Create(actor) | Self::Call(actor, _) => Some(actor.id),
            Self::Task(_) | Self::Elsewhere(_) => None,
        }
    }

    /// What people call it.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Task(job) => job.name.as_str().into(),
            Self::Create(actor) => actor.face.class.as_str().into(),
            Self::Call(actor, method) => {
                let face = &actor.face;
                format!("{}.{}", face.class, face.methods[*method].0).into()
            }
            Self::Elsewhere(foreign) => format!("at node {}", foreign.name().owner).into(),
        }
    }

    /// Whose it is, and what it asks for.
    pub(crate) fn terms(&self) -> &Terms {
        match self {
            Self::Task(job) => &job.terms,
            Self::Create(actor) => &actor.job().terms,
            Self::Call(actor, _) => &actor.face.call_terms,
            Self::Elsewhere(_) => unreachable!("only what is submitted here has terms here"),
        }
    }

    /// Parameters and result, if it is a function, constructor or method.
    pub(crate) fn function_type(&self) -> Option<&FunctionType> {
        match self {
            Self::Task(job) => job.function_type(),
            Self::Create(actor) => Some(&actor.class().constructor.ty),
            Self::Call(actor, method) => Some(&actor.face.methods[*method].1),
            Self::Elsewhere(_) => None,
        }
    }

    /// The type of what it makes.
    pub(crate) fn result_type(&self) -> Option<&ValueType> {
        if let Self::Elsewhere(foreign) = self {
            return foreign.ty().get();
        }
        self.function_type()?.result()
    }
}

#[derive(Default)]
struct Outcome {
    report: Option<Box<Report>>,
    /// Whether the ledger knows of the end. `report` follows when its lock is released.
    is_decided: bool,
    waiter: Option<Waker>,
    countdowns: Vec<Arc<Countdown>>,
    /// Its part of what the task that started it has in flight, until it ends.
    nested: Option<Nested>,
}

const READY: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

impl TaskCell {
    pub(crate) fn new(id: TaskId, driver: DriverId, work: Work, home: Arc<Home>) -> Self {
        Self {
            id,
            driver,
            work,
            home,
            has_dependents: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            submitted: Instant::now(),
            elsewhere_us: None,
            phase: AtomicU8::new(READY),
            cancelled: AtomicBool::new(false),
            preempted: AtomicU32::new(0),
            given_up: AtomicBool::new(false),
            runner: AtomicWaker::new(),
            outcome: Mutex::default(),
            notes: OnceLock::new(),
            recipe: OnceLock::new(),
        }
    }

    /// The same, which was submitted at another node, in microseconds since 1970 by the clock there.
    pub(crate) fn submitted_elsewhere(mut self, us: u64) -> Self {
        self.elsewhere_us = NonZeroU64::new(us);
        self
    }

    /// When it was submitted, if that was at another node, in microseconds since 1970 by the clock there.
    pub(crate) fn elsewhere_us(&self) -> Option<u64> {
        self.elsewhere_us.map(NonZeroU64::get)
    }

    /// The same, started by another, which counts it until it ends.
    pub(crate) fn nested(mut self, nested: Nested) -> Self {
        self.outcome.get_mut().nested = Some(nested);
        self
    }

    /// Lets somebody note its end: the first who asks, once.
    pub(crate) fn note(&self, notes: Arc<dyn Notes>) {
        let outcome = self.outcome.lock();
        if let Some(report) = &outcome.report {
            notes.ended(report);
        }
        // Under the lock: its end comes before or after.
        let _ = self.notes.set(notes);
    }

    /// The name of what it makes.
    pub(crate) fn object(&self) -> ObjectName {
        if let Work::Elsewhere(foreign) = &self.work {
            return foreign.name();
        }
        ObjectName {
            id: ObjectId::of(self.id, 0),
            owner: self.home.node,
        }
    }

    pub(crate) fn set_running(&self) {
        // Not over its end: an actor may have died while its call was on the way to a thread.
        let _ = self
            .phase
            .compare_exchange(READY, RUNNING, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Another node has taken it over.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Asks the task to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.runner.wake();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == RUNNING
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == ENDED
    }

    /// Says that the scheduler must hear of its end. True if it has ended already.
    pub(crate) fn add_dependent(&self) -> bool {
        self.has_dependents.store(true, Ordering::SeqCst);
        self.has_ended()
    }

    /// Gives the report to whoever waits for it. A task ends once. True if the scheduler must hear of
    /// it.
    pub(crate) fn end(&self, report: Box<Report>) -> bool {
        let mut outcome = self.outcome.lock();
        let before = self.phase.swap(ENDED, Ordering::SeqCst);
        assert_ne!(before, ENDED, "task {} ends a second time", self.id);
        if let Some(notes) = self.notes.get() {
            notes.ended(&report);
        }
        outcome.report = Some(report);
        let waiter = outcome.waiter.take();
        let countdowns = std::mem::take(&mut outcome.countdowns);
        let is_decided = outcome.is_decided;
        // Before anybody who waits for it goes on, and starts others.
        outcome.nested = None;
        drop(outcome);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        for countdown in &countdowns {
            if !is_decided {
                countdown.decide();
            }
            countdown.hit();
        }
        // Whoever sets this looks at the phase next.
        self.has_dependents.load(Ordering::SeqCst)
    }

    /// It is decided that it ends: [`TaskCell::end`] follows. The attempts that need to wait for nothing else.
    pub(crate) fn decide(&self) -> Vec<(TaskId, Attempt)> {
        let mut outcome = self.outcome.lock();
        if std::mem::replace(&mut outcome.is_decided, true) {
            return Vec::new();
        }
        let waiting = outcome.countdowns.iter();
        waiting.filter_map(|countdown| countdown.decide()).collect()
    }

    /// As [`TaskCell::end`], where it may have been ended before: then nothing happens.
    pub(crate) fn end_once(&self, report: Box<Report>) -> bool {
        let claimed =
            self.phase
                .compare_exchange(READY, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() && self.end(report)
    }

    /// Lets others than the handle look at the report.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// What it made, if it has ended well.
    pub(crate) fn value(&self) -> Option<Value> {
        let result = self.result()?.ok()?;
        Some(result.unwrap_or_else(|| Encoded::Postcard(Vec::new()).into()))
    }

    /// From now on its result can be reconstructed.
    pub(crate) fn set_recipe(&self, recipe: Arc<Recipe>) {
        // The one from the first end is as good.
        let _ = self.recipe.set(recipe);
    }

    /// How to make its result again, where that may get lost.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.get()
    }

    /// Sees to it that this node hears of its end, if another one owns it.
    pub(crate) fn want(&self) {
        if let Work::Elsewhere(foreign) = &self.work {
            foreign.want();
        }
    }

    /// What came of it, if it has ended.
    pub(crate) fn result(&self) -> Option<Result<Option<Value>, TaskError>> {
        let outcome = self.outcome.lock();
        Some(outcome.report.as_ref()?.result.clone())
    }

    /// What came of it and how, if it has ended and others than its handle may look.
    pub(crate) fn report(&self) -> Option<Box<Report>> {
        self.outcome.lock().report.clone()
    }

    /// Counts `countdown` down when it ends. True if it has ended already, and nothing will.
    pub(crate) fn watch(&self, countdown: &Arc<Countdown>) -> bool {
        let mut outcome = self.outcome.lock();
        if self.has_ended() {
            return true;
        }
        if outcome.is_decided {
            countdown.decide();
        }
        outcome.countdowns.push(countdown.clone());
        false
    }

    /// Takes back one [`TaskCell::watch`].
    pub(crate) fn unwatch(&self, countdown: &Arc<Countdown>) {
        let countdowns = &mut self.outcome.lock().countdowns;
        let at = countdowns.iter().rposition(|it| Arc::ptr_eq(it, countdown));
        if let Some(at) = at {
            countdowns.swap_remove(at);
        }
    }
}

impl Report {
    /// The report of a task that did not get to its end.
    pub(crate) fn never_ran(cell: &TaskCell, error: TaskError) -> Box<Self> {
        let mut report = Self::without_run(cell.id, Err(error));
        report.waited = cell.submitted.elapsed();
        report
    }

    /// Of a task that did not run here.
    pub(crate) fn without_run(id: TaskId, result: Result<Option<Value>, TaskError>) -> Box<Self> {
        Box::new(Self {
            id,
            result,
            waited: Duration::ZERO,
            ran: Duration::ZERO,
            held: Vec::new(),
            memory_peak: 0,
            stderr_tail: String::new(),
            ran_at: None,
            attempt: 0,
            phases: Phases::default(),
        })
    }

    /// Whatever came of it comes too late: the task was cancelled while it ran.
    pub(crate) fn cancel(&mut self) {
        self.result = Err(TaskError::Cancelled);
        self.memory_peak = 0;
    }
}

/// Blocks this thread until all tasks have ended. Their reports, in the order of `tasks`.
///
/// Cheaper than waiting for one after the other: it starts with the last, which usually ends
/// last, so the thread sleeps once instead of once per task.
pub fn wait_all(
    tasks: impl IntoIterator<Item = TaskHandle, IntoIter: DoubleEndedIterator>,
) -> Vec<Report> {
    let mut reports: Vec<Report> = tasks.into_iter().rev().map(TaskHandle::wait).collect();
    reports.reverse();
    reports
}

/// The node that a task was submitted to, as its tasks see it.
#[derive(Debug)]
pub(crate) struct Home {
    /// Who owns what is submitted here.
    pub(crate) node: NodeId,
    /// How many tasks wait for resources.
    waiting: AtomicUsize,
}

impl Home {
    pub(crate) fn new(node: NodeId) -> Arc<Self> {
        let waiting = AtomicUsize::new(0);
        Arc::new(Self { node, waiting })
    }

    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// How long a waiting thread looks before it sleeps: most short tasks end within that.
const SPIN: Duration = Duration::from_micros(50);

impl TaskHandle {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.0.id
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Acquire) {
            READY => Phase::Ready,
            RUNNING => Phase::Running,
            _ => Phase::Ended,
        }
    }

    /// What the task will make, to be an argument of others.
    pub fn object(&self) -> Object {
        self.0.share();
        Object(Reference::Task(self.0.clone()))
    }

    /// Blocks this thread until the task has ended.
    pub fn wait(self) -> Report {
        let started = Instant::now();
        // Where others wait for a CPU, looking would take it from them.
        while self.phase() != Phase::Ended && self.0.home.waiting() == 0 && started.elapsed() < SPIN
        {
            std::hint::spin_loop();
        }
        block_on(self)
    }
}

impl Future for TaskHandle {
    type Output = Report;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Report> {
        let mut outcome = self.0.outcome.lock();
        let report = match self.0.is_shared.load(Ordering::Acquire) {
            true => outcome.report.clone(),
            false => outcome.report.take(),
        };
        match report {
            Some(report) => Poll::Ready(*report),
            None => {
                outcome.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskHandle({}, {:?})", self.0.id, self.phase())
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread, which sleeps in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
