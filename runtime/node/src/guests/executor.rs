//! The threads that guests run on, and whose turn it is.
//!
//! Guest code never runs on the threads of the control work (timers, sockets, messages), so a
//! busy guest delays no heartbeat. Every running task is a future; a guest gives way at the next
//! epoch tick, some 10 ms, by returning to this queue.
//!
//! Turns are weighted fair queueing: a task that asked for twice the CPU gets twice the time
//! when the threads are contended. Each has a virtual time that advances by run time ÷ weight,
//! and the smallest runs next (the scheme of Linux's CFS, and of stride scheduling before it).
//! Idle threads take whatever there is, so nothing is held back on an idle machine.
//!
//! Owns also what guests wait for: their timers, sockets, and the threads on which their file calls and name look-ups
//! block, in a runtime of their own. Must not: let work of the node wait for a thread that a guest can block.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_task::Runnable;
use parking_lot::{Condvar, Mutex};

/// The CPU that a task asked for, in 1/10,000 of a core, as a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight(u64);

impl Weight {
    /// One whole core.
    const CORE: u64 = 10_000;
    /// What a task that asked for no CPU gets when the threads are contended: a 1/100 of a core.
    const LEAST: u64 = Self::CORE / 100;

    pub(crate) fn of_cpu(amount: u64) -> Self {
        // A task runs on one thread at a time: more than a core is of no use to it.
        Self(amount.clamp(Self::LEAST, Self::CORE))
    }

    /// How far virtual time moves while a task of this weight runs for `time`.
    fn virtual_time(self, time: Duration) -> u64 {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        ns.saturating_mul(Self::CORE / Self::LEAST) / (self.0 / Self::LEAST)
    }
}

/// How long an idle thread looks for work before it sleeps: a wake-up takes longer than most
/// gaps between tasks.
const SPIN: Duration = Duration::from_micros(40);

/// How many threads may block in calls that guests have made whose tenants have no threads of their own (`blocking` of the
/// engine). A guest whose call finds none free waits for one.
const MAX_BLOCKED: usize = 4096;

/// How long guest threads are waited for at the end. One that is stuck in the kernel is left behind.
const DRAIN: Duration = Duration::from_secs(5);

thread_local! {
    static THREAD: Cell<u16> = const { Cell::new(0) };
}

/// The number of the guest thread that this is, from 0.
pub(crate) fn thread() -> u16 {
    THREAD.get()
}

/// Guest threads. Dropping it stops them; tasks that have not ended are dropped.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// What guests wait for. `None` once it ends.
    io: Option<tokio::runtime::Runtime>,
}

struct Shared {
    queue: Mutex<RunQueue>,
    work: Condvar,
    /// How many are in the queue, for threads that look without the lock.
    queued: AtomicUsize,
    /// How many threads sleep.
    sleeping: AtomicUsize,
    stop: AtomicBool,
    /// How many threads have not ended.
    running: Mutex<usize>,
    ended: Condvar,
}

#[derive(Default)]
struct RunQueue {
    heap: BinaryHeap<Reverse<Entry>>,
    /// The virtual time of whatever ran last: where newcomers start.
    now: u64,
    sequence: u64,
}

/// A task that wants to run. Ordered by virtual time, then by who came first.
struct Entry {
    virtual_time: u64,
    sequence: u64,
    runnable: Runnable,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.virtual_time, self.sequence).cmp(&(other.virtual_time, other.sequence))
    }
}

impl Executor {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(threads: usize) -> std::io::Result<Self> {
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(MAX_BLOCKED)
            .thread_name("wasmrun-guest-io")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            queued: AtomicUsize::new(0),
            sleeping: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            running: Mutex::new(0),
            ended: Condvar::new(),
        });
        let handle = io.handle().clone();
        let mut executor = Self {
            shared: shared.clone(),
            threads: Vec::with_capacity(threads),
            io: Some(io),
        };
        for n in 0..threads {
            let (shared, io) = (shared.clone(), handle.clone());
            let thread = std::thread::Builder::new().name(format!("wasmrun-guest-{n}"));
            executor.threads.push(thread.spawn(move || {
                THREAD.set(u16::try_from(n).unwrap_or(u16::MAX));
                let _context = io.enter();
                shared.work();
                *shared.running.lock() -= 1;
                shared.ended.notify_all();
            })?);
            *executor.shared.running.lock() += 1;
        }
        Ok(executor)
    }

    /// Runs all that is in line, on this thread.
    #[cfg(test)]
    pub(crate) fn run_all(&self) {
        loop {
            let next = self.shared.pop(&mut self.shared.queue.lock());
            match next {
                Some(runnable) => runnable.run(),
                None => return,
            };
        }
    }

    /// What starts tasks on these threads.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(self.shared.clone())
    }
}

/// Starts tasks on the threads of an [`Executor`]. Once that is gone, it drops them instead.
#[derive(Clone)]
pub(crate) struct Spawner(Arc<Shared>);

impl Spawner {
    /// Runs `future` to its end, in turns with all others.
    pub(crate) fn spawn<F>(&self, weight: Weight, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_with(weight, |_| future);
    }

    /// Runs a future to its end, in turns with all others, which may do one task after the other.
    pub(crate) fn spawn_with<F>(&self, weight: Weight, future: impl FnOnce(Turn) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let meter = Arc::new(AtomicU64::new(0));
        let turn = Turn {
            weight,
            meter: meter.clone(),
            shared: self.0.clone(),
        };
        let metered = Metered {
            future: future(turn),
            weight,
            meter: meter.clone(),
        };
        let shared = self.0.clone();
        let schedule = move |runnable| shared.push(&meter, runnable);
        let (runnable, task) = async_task::spawn(metered, schedule);
        task.detach();
        runnable.schedule();
    }
}

/// The place of a future among the others.
pub(crate) struct Turn {
    weight: Weight,
    meter: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Turn {
    /// Whether the thread, instead of starting a task of this weight as another future, may as well
    /// go on with it: nobody else's turn is next.
    pub(crate) fn may_go_on(&self, weight: Weight) -> bool {
        weight == self.weight
            && self.shared.queued.load(Ordering::Acquire) == 0
            && !self.shared.stop.load(Ordering::Relaxed)
    }

    /// From here on it is another task, which has had no time yet.
    pub(crate) fn begin_anew(&self) {
        self.meter.store(0, Ordering::Relaxed);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _queue = self.shared.queue.lock();
            self.shared.work.notify_all();
        }
        // The last handle to a node may be dropped by a task on one of these very threads.
        let here = std::thread::current().id();
        let is_ours = |thread: &JoinHandle<()>| thread.thread().id() == here;
        let left = usize::from(self.threads.iter().any(is_ours));
        let mut running = self.shared.running.lock();
        let many = |running: &mut usize| *running > left;
        let waited = self.shared.ended.wait_while_for(&mut running, many, DRAIN);
        drop(running);
        if !waited.timed_out() {
            let others = self.threads.drain(..).filter(|thread| !is_ours(thread));
            others.for_each(|thread| drop(thread.join()));
        }
        // Tasks in the queue hold futures that hold this very queue.
        let left = std::mem::take(&mut self.shared.queue.lock().heap);
        drop(left);
        if let Some(io) = self.io.take() {
            // A file call or name look-up may be stuck in the kernel: its thread is left behind.
            io.shutdown_background();
        }
    }
}

impl Shared {
    /// Puts a task in line. `meter` holds its virtual time.
    fn push(&self, meter: &AtomicU64, runnable: Runnable) {
        let mut queue = self.queue.lock();
        if self.stop.load(Ordering::SeqCst) {
            drop(queue);
            return drop(runnable);
        }
        queue.sequence += 1;
        // Newcomers start now, and who has slept does not save up turns.
        let virtual_time = meter.load(Ordering::Relaxed).max(queue.now);
        meter.store(virtual_time, Ordering::Relaxed);
        let sequence = queue.sequence;
        queue.heap.push(Reverse(Entry {
            virtual_time,
            sequence,
            runnable,
        }));
        self.queued.store(queue.heap.len(), Ordering::Release);
        if self.sleeping.load(Ordering::Relaxed) > 0 {
            self.work.notify_one();
        }
    }

    fn pop(&self, queue: &mut RunQueue) -> Option<Runnable> {
        let Reverse(entry) = queue.heap.pop()?;
        queue.now = queue.now.max(entry.virtual_time);
        self.queued.store(queue.heap.len(), Ordering::Release);
        Some(entry.runnable)
    }

    fn work(&self) {
        while let Some(runnable) = self.next() {
            // A panic is a fault of ours. It ends the task, not the thread that others need.
            let run = std::panic::AssertUnwindSafe(|| runnable.run());
            let _ = std::panic::catch_unwind(run);
        }
    }

    /// The next task whose turn it is; `None` when it is time to stop.
    fn next(&self) -> Option<Runnable> {
        let mut looking_since = None;
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if self.queued.load(Ordering::Acquire) > 0
                && let Some(runnable) = self.pop(&mut self.queue.lock())
            {
                return Some(runnable);
            }
            let since = looking_since.get_or_insert_with(Instant::now);
            if since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            let mut queue = self.queue.lock();
            while queue.heap.is_empty() && !self.stop.load(Ordering::SeqCst) {
                self.sleeping.fetch_add(1, Ordering::Relaxed);
                self.work.wait(&mut queue);
                self.sleeping.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

pin_project_lite::pin_project! {
    /// Counts the time that a future takes.
    struct Metered<F> {
        #[pin]
        future: F,
        weight: Weight,
        meter: Arc<AtomicU64>,
    }
}

impl<F: Future<Output = ()>> Future for Metered<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let started = tokio::time::Instant::now();
        let polled = this.future.poll(cx);
        if polled.is_pending() {
            let moved = this.weight.virtual_time(started.elapsed());
            this.meter.fetch_add(moved, Ordering::Relaxed);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Gives way once.
    async fn give_way() {
        let mut gave = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut gave, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn everything_spawned_runs() {
        let executor = Executor::start(3).unwrap();
        let (done, all_done) = mpsc::channel();
        for n in 0..1000 {
            let done = done.clone();
            executor
                .spawner()
                .spawn(Weight::of_cpu(n * 20), async move {
                    for _ in 0..n % 7 {
                        give_way().await;
                    }
                    if n % 100 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    done.send(n).unwrap();
                });
        }
        let mut seen: Vec<u64> = all_done.iter().take(1000).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn time_is_shared_by_weight() {
        // One thread, two tasks that take turns of the same length for as long as both run.
        let executor = Executor::start(1).unwrap();
        let (done, all_done) = mpsc::channel();
        // What counts is the time that each had, in microseconds: where the machine takes the thread away in the
        // middle of a turn, that turn is long, and the next is the other's for as long.
        let had: Arc<[AtomicU64; 2]> = Arc::default();
        for (which, cpu) in [(0, 10_000), (1, 2_500)] {
            let (done, had) = (done.clone(), had.clone());
            executor.spawner().spawn(Weight::of_cpu(cpu), async move {
                while had.iter().map(|t| t.load(Ordering::Relaxed)).sum::<u64>() < 200_000 {
                    let started = Instant::now();
                    while started.elapsed() < Duration::from_micros(200) {}
                    let time = started.elapsed().as_micros() as u64;
                    had[which].fetch_add(time, Ordering::Relaxed);
                    give_way().await;
                }
                done.send(()).unwrap();
            });
        }
        all_done.iter().take(2).for_each(drop);
        let [big, small] = [0, 1].map(|n| had[n].load(Ordering::Relaxed));
        // 4 to 1, but for what the machine adds: an unfair queue gives 1 to 1.
        assert!(big >= 2 * small, "{big} to {small}");
        assert!(small > 0);
    }

    #[test]
    fn dropping_it_drops_what_it_runs() {
        struct SetOnDrop(Arc<AtomicBool>);
        impl Drop for SetOnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let executor = Executor::start(1).unwrap();
        let dropped = Arc::new(AtomicBool::new(false));
        let guard = SetOnDrop(dropped.clone());
        executor.spawner().spawn(Weight::of_cpu(0), async move {
            let _guard = guard;
            loop {
                give_way().await;
            }
        });
        drop(executor);
        assert!(dropped.load(Ordering::SeqCst));
    }
}
