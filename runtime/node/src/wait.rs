//! Waiting for several things at once.
//!
//! Owns [`Countdown`]: a number of endings that somebody waits for, however many of them there are, with
//! one wake-up at the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Wakes one waiter when so many things have happened.
#[derive(Debug)]
pub(crate) struct Countdown {
    left: AtomicUsize,
    waker: AtomicWaker,
}

impl Countdown {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(count),
            waker: AtomicWaker::new(),
        })
    }

    /// One of the things has happened. More than were waited for change nothing.
    pub(crate) fn hit(&self) {
        let before = self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(1)
            });
        if before == Ok(1) {
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
}
