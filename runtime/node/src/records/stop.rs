//! Tasks, or attempts of them, that are told to stop while they run.
//!
//! Owns how the thread that runs one notices. Must not: decide who stops, or what follows.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::task::Poll;

use wasmrun_model::task::Attempt;

use super::task::TaskCell;

impl TaskCell {
    /// Asks an attempt to stop, since the task is to be tried again. A later one goes on.
    pub(crate) fn preempt(&self, attempt: Attempt) {
        self.preempted.store(attempt.number(), Ordering::Release);
        self.runner.wake();
    }

    /// `future`'s output, or `None` as soon as the task is cancelled.
    pub(crate) async fn unless_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        self.unless(|| self.is_cancelled(), future).await
    }

    /// The same, or as soon as this attempt is to stop.
    pub(crate) async fn unless_stopped<F: Future>(
        &self,
        attempt: Attempt,
        future: F,
    ) -> Option<F::Output> {
        let is_preempted = || self.preempted.load(Ordering::Acquire) == attempt.number();
        self.unless(|| self.is_cancelled() || is_preempted(), future)
            .await
    }

    async fn unless<F: Future>(&self, is_over: impl Fn() -> bool, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            if is_over() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            self.runner.register(cx.waker());
            if is_over() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}
