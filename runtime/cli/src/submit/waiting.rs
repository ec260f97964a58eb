//! Tells a person who asked for more what the oldest waiting task waits for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmrun_node::Client;

use crate::printer::Printer;

/// When to look for the first time: what waits for less is not worth a word.
const FIRST: Duration = Duration::from_millis(300);
/// How often to look again.
const AGAIN: Duration = Duration::from_secs(5);

/// A thread that looks now and then, until this is dropped.
pub struct Watch {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks, if the person wants details; else does nothing.
    pub fn start(client: &Client, printer: &Printer) -> Option<Self> {
        if !printer.is_verbose() {
            return None;
        }
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let (client, printer, shared) = (client.clone(), *printer, is_over.clone());
        let look = move || {
            let (lock, changed) = &*shared;
            let mut wait = FIRST;
            loop {
                let is_over = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(is_over, wait, |is_over| !*is_over);
                let (is_over, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *is_over {
                    return;
                }
                drop(is_over);
                if let Some(explanation) = client.explain_oldest() {
                    printer.detail(explanation);
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
