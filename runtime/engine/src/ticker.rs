//! The clock that makes busy guests take turns: one thread that bumps the engines' epochs.
//!
//! A guest checks its engine's epoch at loop heads and function entries and gives way when it
//! has moved on. While nothing runs the thread sleeps, so that an idle node uses no CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::EngineWeak;

/// How long a guest runs before it gives way.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Ticks without any running task after which the thread goes to sleep.
const IDLE_TICKS: u32 = 50;

/// Bumps epochs every [`TICK`] while tasks run.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

struct Shared {
    /// How many tasks have started so far; a change means that somebody needs ticks.
    started: AtomicU64,
    running: AtomicU64,
    asleep: AtomicBool,
    stop: AtomicBool,
    engines: Mutex<Vec<EngineWeak>>,
}

/// Held while a task runs: keeps the epochs moving.
pub(crate) struct Ticking<'a>(&'a Ticker);

impl Ticker {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            started: AtomicU64::new(0),
            running: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            engines: Mutex::new(Vec::new()),
        });
        let for_thread = shared.clone();
        let thread = thread::Builder::new()
            .name("wasmrun-epoch".into())
            .spawn(move || for_thread.tick())
            .expect("the system can start one more thread");
        Self {
            shared,
            thread: thread.thread().clone(),
        }
    }

    /// From now on `engine` gets ticks.
    pub(crate) fn add(&self, engine: &wasmtime::Engine) {
        self.shared
            .engines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(engine.weak());
    }

    /// Keeps the epochs moving until the result is dropped.
    pub(crate) fn start(&self) -> Ticking<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        self.shared.started.fetch_add(1, Ordering::Relaxed);
        // SeqCst pairs with `doze`: either it sees the task, or we see it asleep.
        if self.shared.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Ticking(self)
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

impl Shared {
    fn tick(&self) {
        let (mut seen, mut idle) = (0, 0);
        while !self.stop.load(Ordering::SeqCst) {
            thread::park_timeout(TICK);
            for engine in self
                .engines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
            {
                if let Some(engine) = engine.upgrade() {
                    engine.increment_epoch();
                }
            }
            let started = self.started.load(Ordering::Relaxed);
            let busy = started != seen || self.running.load(Ordering::Relaxed) > 0;
            (seen, idle) = (started, if busy { 0 } else { idle + 1 });
            if idle >= IDLE_TICKS {
                self.doze();
                idle = 0;
            }
        }
    }

    fn doze(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}
