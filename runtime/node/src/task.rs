//! A task as its submitter sees it: what to run, and a handle to what comes of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use wasmrun_engine::{Entry, Grants, HeldResource, Input, Limits, Listener, Module};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Terms;
use wasmrun_model::value::Encoded;

/// What tasks have in common: made once, submitted any number of times.
#[derive(Clone)]
pub struct Job {
    /// What people call it.
    pub name: String,
    /// The module.
    pub module: Module,
    /// What of it to run.
    pub entry: Entry,
    /// Whose it is and what it asks for, and so what it gets.
    pub terms: Arc<Terms>,
    /// What it may use besides. Its memory follows from what it asks for.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
}

/// What is particular to one task of a job.
#[derive(Default)]
pub struct Call {
    /// A function's arguments, encoded by its parameters' types.
    pub values: Vec<Encoded>,
    /// A program's arguments, its name first.
    pub args: Vec<String>,
    /// Its index, if it is one of an array.
    pub array_index: Option<u64>,
    /// What it reads.
    pub input: Input,
    /// Who listens to what it prints.
    pub listener: Option<Listener>,
}

impl Call {
    /// The same once more, unless it reads what can be read only once.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        let input = match &self.input {
            Input::Empty => Input::Empty,
            Input::Bytes(bytes) => Input::Bytes(bytes.clone()),
            Input::Stream(_) => return None,
        };
        Some(Self {
            values: self.values.clone(),
            args: self.args.clone(),
            array_index: self.array_index,
            input,
            listener: self.listener.clone(),
        })
    }
}

/// What came of a task.
#[derive(Debug, Clone)]
pub struct Report {
    /// The task's id.
    pub id: TaskId,
    /// The function's result, encoded by its result type (`None` if it has none, and for
    /// programs), or why there is none.
    pub result: Result<Option<Encoded>, TaskError>,
    /// How long it waited for resources.
    pub waited: Duration,
    /// How long it ran, setting up its sandbox included; zero if it never did.
    pub ran: Duration,
    /// What it held while it ran.
    pub held: Vec<HeldResource>,
    /// The most that its memories and tables came to, in bytes; 0 if it failed.
    pub memory_peak: u64,
    /// The end of what it wrote to standard error, if it failed.
    pub stderr_tail: String,
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
    pub(crate) submitted: Instant,
    pressure: Arc<Pressure>,
    phase: AtomicU8,
    cancelled: AtomicBool,
    /// Wakes the running task, so that it sees that it is cancelled.
    runner: AtomicWaker,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    report: Option<Report>,
    waiter: Option<Waker>,
}

const READY: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

impl TaskCell {
    pub(crate) fn new(id: TaskId, pressure: Arc<Pressure>) -> Self {
        Self {
            id,
            pressure,
            submitted: Instant::now(),
            phase: AtomicU8::new(READY),
            cancelled: AtomicBool::new(false),
            runner: AtomicWaker::new(),
            outcome: Mutex::default(),
        }
    }

    pub(crate) fn set_running(&self) {
        self.phase.store(RUNNING, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Asks the task to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.runner.wake();
    }

    /// Gives the report to whoever waits for it. A task ends once.
    pub(crate) fn end(&self, report: Report) {
        let mut outcome = self.outcome.lock();
        let before = self.phase.swap(ENDED, Ordering::AcqRel);
        assert_ne!(before, ENDED, "task {} ends a second time", self.id);
        outcome.report = Some(report);
        let waiter = outcome.waiter.take();
        drop(outcome);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// `future`'s output, or `None` as soon as the task is cancelled.
    pub(crate) async fn unless_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if self.is_cancelled() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            self.runner.register(cx.waker());
            if self.is_cancelled() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Report {
    /// The report of a task that did not get to its end.
    pub(crate) fn never_ran(cell: &TaskCell, error: TaskError) -> Self {
        Self {
            id: cell.id,
            result: Err(error),
            waited: cell.submitted.elapsed(),
            ran: Duration::ZERO,
            held: Vec::new(),
            memory_peak: 0,
            stderr_tail: String::new(),
        }
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

/// How many tasks of a node wait for resources.
#[derive(Debug, Default)]
pub(crate) struct Pressure(AtomicUsize);

impl Pressure {
    pub(crate) fn set(&self, waiting: usize) {
        self.0.store(waiting, Ordering::Relaxed);
    }

    fn waiting(&self) -> usize {
        self.0.load(Ordering::Relaxed)
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

    /// Blocks this thread until the task has ended.
    pub fn wait(self) -> Report {
        let started = Instant::now();
        // Where others wait for a CPU, looking would take it from them.
        while self.phase() != Phase::Ended
            && self.0.pressure.waiting() == 0
            && started.elapsed() < SPIN
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
        match outcome.report.take() {
            Some(report) => Poll::Ready(report),
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
