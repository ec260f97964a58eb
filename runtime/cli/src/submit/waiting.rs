//! Says what the oldest waiting task waits for: to a person who asked for more, whatever it is; to everybody, once, if
//! no node can run it as things are.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmrun_client::blocking;
use wasmrun_client::wire::{List, Rows, What};
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Phase;
use wasmrun_node::Client;

use crate::printer::Printer;

/// When to look for the first time, for who asked for more: what waits for less is not worth a word.
const FIRST: Duration = Duration::from_millis(300);
/// The same for everybody else: a node may be about to join.
const FIRST_HINT: Duration = Duration::from_secs(2);
/// How often to look again.
const AGAIN: Duration = Duration::from_secs(5);
/// How many lines of an explanation are shown unasked: the first says what it is about, the others are one per node.
const SHOWN_LINES: usize = 6;

/// The tasks at a running node that have not ended, in the order in which they were submitted.
#[derive(Default)]
pub struct Pending(Mutex<(u64, BTreeMap<u64, TaskId>)>);

impl Pending {
    /// One more; what [`Pending::ended`] wants to know.
    pub fn submitted(&self, task: TaskId) -> u64 {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.0 += 1;
        let at = pending.0;
        pending.1.insert(at, task);
        at
    }

    pub fn ended(&self, at: u64) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.1.remove(&at);
    }

    fn oldest(&self) -> Option<TaskId> {
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.1.values().next().copied()
    }
}

/// Who knows why a task waits.
pub enum Source {
    /// The node in this process. It fails at once what no node can run.
    Local(Client),
    /// A node that runs already.
    Remote(Arc<blocking::Client>, Arc<Pending>),
}

/// Why the oldest task does not run.
struct Why {
    task: Option<TaskId>,
    is_infeasible: bool,
    text: String,
}

impl Source {
    fn why(&self) -> Option<Why> {
        let (client, task) = match self {
            Self::Local(client) => {
                return Some(Why {
                    task: None,
                    is_infeasible: false,
                    text: client.explain_oldest()?.to_string(),
                });
            }
            Self::Remote(client, pending) => (client, pending.oldest()?),
        };
        let list = List::of(What::Tasks).with("id", task);
        // A node that does not answer says so where the task is waited for.
        let listed = client.wait(client.list(list)).ok()?;
        let Rows::Tasks(rows) = listed.rows else {
            return None;
        };
        let state = rows.first()?.state.as_str();
        if state == Phase::Running.name() || state == Phase::Blocked.name() {
            return None;
        }
        Some(Why {
            task: Some(task),
            is_infeasible: state == Phase::Infeasible.name(),
            text: client.wait(client.explain(&task.to_string())).ok()?,
        })
    }
}

/// A thread that looks now and then, until this is dropped.
pub struct Watch {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks, if there is somebody to tell.
    pub fn start(source: Source, printer: &Printer) -> Option<Self> {
        let has_more = printer.is_verbose();
        if !has_more && (printer.is_quiet() || matches!(source, Source::Local(_))) {
            return None;
        }
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let (printer, shared) = (*printer, is_over.clone());
        let look = move || {
            let (lock, changed) = &*shared;
            let mut wait = if has_more { FIRST } else { FIRST_HINT };
            loop {
                let is_over = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(is_over, wait, |is_over| !*is_over);
                let (is_over, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *is_over {
                    return;
                }
                drop(is_over);
                match source.why() {
                    Some(why) if has_more => printer.detail(why.text),
                    Some(why) if why.is_infeasible => return warn(&why, &printer),
                    _ => {}
                }
                wait = AGAIN;
            }
        };
        let thread = std::thread::Builder::new().name("wasmrun-waiting".into());
        // Without it everything goes on, and nobody misses more than words.
        let thread = thread.spawn(look).ok();
        Some(Self { is_over, thread })
    }
}

/// Tells that a task will wait for a node that is not there yet.
fn warn(why: &Why, printer: &Printer) {
    let mut lines = why.text.lines();
    let shown: Vec<&str> = lines.by_ref().take(SHOWN_LINES).collect();
    let more = match (lines.count(), why.task) {
        (0, _) | (_, None) => String::new(),
        (left, Some(task)) => format!("\n  {left} more: wasmrun explain {task}"),
    };
    printer.warn(format_args!("{}{more}", shown.join("\n")));
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (lock, changed) = &*self.is_over;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did, the tasks would be none the worse.
            let _ = thread.join();
        }
    }
}
