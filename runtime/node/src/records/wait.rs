//! Waiting for several things at once.
//!
//! Owns [`Countdown`]: a number of endings that somebody waits for, however many of them there are, with
//! one wake-up at the end.
//!
//! A task's end is *decided* under the ledger's lock, and *told* after that, when the lock is released. Whoever waits
//! hears of what is told; the ledger looks at what is decided, so that an attempt that waited for what has just ended is
//! not behind those that begin.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Attempt;

/// Wakes one waiter when so many things have happened.
#[derive(Debug)]
pub(crate) struct Countdown {
    left: AtomicUsize,
    /// How many are not decided.
    undecided: AtomicUsize,
    /// The attempt that waits, if one does.
    waiter: Option<(TaskId, Attempt)>,
    waker: AtomicWaker,
}

impl Countdown {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Self::of(count, None)
    }

    /// For which a task waits.
    pub(crate) fn of(count: usize, waiter: Option<(TaskId, Attempt)>) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            undecided: AtomicUsize::new(count),
            waiter,
            waker: AtomicWaker::new(),
        })
    }

    /// One of the things is about to happen. Who waits for no more than what is, the first time that is so.
    pub(crate) fn decide(&self) -> Option<(TaskId, Attempt)> {
        match count_down(&self.undecided) {
            true => self.waiter,
            false => None,
        }
    }

    /// Whether all have happened or are about to.
    pub(crate) fn is_decided(&self) -> bool {
        self.undecided.load(Ordering::Acquire) == 0
    }

    /// One of the things has happened. More than were waited for change nothing.
    pub(crate) fn hit(&self) {
        if count_down(&self.left) {
            self.waker.wake();
        }
    }

    /// Nothing more needs to happen.
    pub(crate) fn finish(&self) {
        self.left.store(0, Ordering::Release);
        self.waker.wake();
    }

    /// Waits until all have happened.
    pub(crate) fn done(self: &Arc<Self>) -> Done {
        Done(self.clone())
    }
}

/// True if that was the last.
fn count_down(left: &AtomicUsize) -> bool {
    let before = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
        left.checked_sub(1)
    });
    before == Ok(1)
}

/// See [`Countdown::done`].
pub(crate) struct Done(Arc<Countdown>);

impl Future for Done {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.left.load(Ordering::Acquire) == 0 {
            return Poll::Ready(());
        }
        self.0.waker.register(cx.waker());
        match self.0.left.load(Ordering::Acquire) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_all_have_happened() {
        let countdown = Countdown::new(2);
        let mut done = std::pin::pin!(countdown.done());
        let mut context = Context::from_waker(std::task::Waker::noop());
        countdown.hit();
        assert!(done.as_mut().poll(&mut context).is_pending());
        countdown.hit();
        assert!(done.as_mut().poll(&mut context).is_ready());
        // What comes late changes nothing.
        countdown.hit();
        assert!(done.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn who_waits_is_said_once_when_the_last_is_decided() {
        let task = wasmrun_model::id::DriverId::from_bytes([3; 16]).task(1);
        let waiter = (task, Attempt::FIRST);
        let countdown = Countdown::of(2, Some(waiter));
        assert_eq!(countdown.decide(), None);
        assert!(!countdown.is_decided());
        assert_eq!(countdown.decide(), Some(waiter));
        assert!(countdown.is_decided());
        // Of three, for two of which it waits.
        assert_eq!(countdown.decide(), None);
    }
}
