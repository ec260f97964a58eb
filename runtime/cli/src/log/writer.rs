//! The thread that writes lines to standard error.
//!
//! Owns the queue before it. Whoever says something never waits: while nobody reads our standard error, lines
//! are left out, and the next one that gets through says how many.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// How many lines may wait.
const MOST_WAITING: usize = 4096;
/// How long the end waits for lines to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// Writes lines until it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Sender,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

/// Where lines go.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    lines: SyncSender<Message>,
    left_out: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    End,
}

impl Writer {
    /// `note` is the line that says how many are left out.
    pub(super) fn start(note: impl Fn(u64) -> String + Send + 'static) -> Self {
        Self::to(std::io::stderr, note)
    }

    /// Writes to what `open` gives for each line.
    fn to<W: Write>(
        open: impl FnMut() -> W + Send + 'static,
        note: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        let (lines, waiting) = mpsc::sync_channel(MOST_WAITING);
        let (running, ended) = mpsc::channel();
        let left_out = Arc::<AtomicU64>::default();
        let counted = left_out.clone();
        let work = move || {
            write(&waiting, &counted, open, note);
            drop(running);
        };
        // Without the thread there is no log, and all else works.
        let _ = std::thread::Builder::new()
            .name("wasmrun-log".into())
            .spawn(work);
        Self {
            sender: Sender { lines, left_out },
            ended,
        }
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // With a full queue the thread is stuck, and there is nothing to wait for.
        if self.sender.lines.try_send(Message::End).is_ok() {
            let ended = self.ended.recv_timeout(FLUSH);
            debug_assert_ne!(ended, Ok(()));
            let _: Result<(), RecvTimeoutError> = ended;
        }
    }
}

impl Sender {
    pub(super) fn send(&self, line: String) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write<W: Write>(
    waiting: &Receiver<Message>,
    left_out: &AtomicU64,
    mut open: impl FnMut() -> W,
    note: impl Fn(u64) -> String,
) {
    while let Ok(Message::Line(line)) = waiting.recv() {
        // A log that cannot be written is nobody's failure.
        let _ = open().write_all(line.as_bytes());
        let left_out = left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = open().write_all(note(left_out).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes what is written once it may.
    #[derive(Clone, Default)]
    struct Slow {
        may: Arc<Mutex<()>>,
        text: Arc<Mutex<String>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _may = self.may.lock().unwrap();
            let text = std::str::from_utf8(bytes).unwrap();
            self.text.lock().unwrap().push_str(text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_says_something_never_waits_and_hears_later_what_is_left_out() {
        let slow = Slow::default();
        let stuck = slow.may.lock().unwrap();
        let out = slow.clone();
        let note = |count| format!("{count} left out\n");
        let writer = Writer::to(move || out.clone(), note);
        let all = MOST_WAITING + 100;
        (0..all).for_each(|at| writer.sender().send(format!("{at}\n")));
        drop(stuck);
        // The queue is full still: only when there is room can it be told to end.
        while writer
            .sender
            .lines
            .try_send(Message::Line("last\n".into()))
            .is_err()
        {
            std::thread::yield_now();
        }
        drop(writer);
        let text = slow.text.lock().unwrap();
        assert!(text.starts_with("0\n"), "{text}");
        assert!(text.contains(" left out\n"));
        assert!(text.ends_with("last\n"));
        let written = text.lines().filter(|line| line.parse::<usize>().is_ok());
        assert!(written.count() >= MOST_WAITING);
    }
}
