//! The thread that writes lines to standard error.
//!
//! Owns the queue before it. Whoever says something never waits: while nobody reads our standard error, lines
//! are left out, and the next one that gets through says how many.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// How many lines may wait.
const MOST_WAITING: usize = 4096;
/// How long the end waits for lines to be written.
const FLUSH: Duration = Duration::from_secs(1);
/// How long it waits before it looks again whether a full queue has room for it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Writes lines until it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Sender,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    flush: Duration,
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
        Self::to(std::io::stderr, note, FLUSH)
    }

    /// Writes to what `open` gives for each line, and at the end for at most `flush`.
    fn to<W: Write>(
        open: impl FnMut() -> W + Send + 'static,
        note: impl Fn(u64) -> String + Send + 'static,
        flush: Duration,
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
            flush,
        }
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let until = Instant::now() + self.flush;
        let left = || until.saturating_duration_since(Instant::now());
        // A queue that is full may be on its way out all the same: only time tells whether anybody reads.
        while let Err(TrySendError::Full(_)) = self.sender.lines.try_send(Message::End) {
            if left().is_zero() {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        // It says nothing: it is closed when all is written, or time is up.
        let _ = self.ended.recv_timeout(left());
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
    loop {
        let message = waiting.recv();
        // A log that cannot be written is nobody's failure.
        if let Ok(Message::Line(line)) = &message {
            let _ = open().write_all(line.as_bytes());
        }
        let left_out = left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = open().write_all(note(left_out).as_bytes());
        }
        if !matches!(message, Ok(Message::Line(_))) {
            return;
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

    /// Longer than any machine is held up.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn writer(slow: &Slow, flush: Duration) -> Writer {
        let out = slow.clone();
        Writer::to(move || out.clone(), |n| format!("{n} left out\n"), flush)
    }

    #[test]
    fn who_says_something_never_waits_and_hears_later_what_is_left_out() {
        let slow = Slow::default();
        let stuck = slow.may.lock().unwrap();
        let writer = writer(&slow, PATIENCE);
        let all = MOST_WAITING + 100;
        (0..all).for_each(|at| writer.sender().send(format!("{at}\n")));
        drop(stuck);
        // It is full still, whenever the thread began: what waits is written all the same before the end.
        drop(writer);
        let text = slow.text.lock().unwrap();
        let lines = text.lines().filter(|line| !line.ends_with(" left out"));
        let written = lines.count();
        assert!(written >= MOST_WAITING, "{written}");
        assert!(text.starts_with("0\n"), "{text}");
        let left_out = text.lines().filter_map(|line| {
            let count = line.strip_suffix(" left out")?;
            Some(count.parse::<usize>().unwrap())
        });
        // Every line is either there or counted.
        assert_eq!(left_out.sum::<usize>(), all - written);
    }

    #[test]
    fn the_end_waits_no_longer_than_it_may_for_a_reader_that_is_stuck() {
        let slow = Slow::default();
        let stuck = slow.may.lock().unwrap();
        let writer = writer(&slow, Duration::ZERO);
        (0..MOST_WAITING + 100).for_each(|at| writer.sender().send(format!("{at}\n")));
        drop(writer);
        assert!(slow.text.lock().unwrap().is_empty());
        drop(stuck);
    }
}
