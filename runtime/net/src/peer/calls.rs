//! Requests to a peer: from `call` until the response is there or nobody waits for it.
//!
//! Owns who waits for which response. Must not: know connections; a link writes what is waiting.
//! Invariants: ids only grow, and go out in their order; a request keeps its bytes until it is
//! answered, so that it can be sent again under the same id.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::wire::frame::{Failure, Head};
use crate::wire::{CallError, LinkHint};

#[derive(Debug)]
pub(crate) struct Calls {
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    next: u64,
    calls: BTreeMap<u64, Call>,
    is_closed: bool,
}

#[derive(Debug)]
struct Call {
    body: Bytes,
    deadline: Instant,
    answer: oneshot::Sender<Result<Bytes, CallError>>,
    /// It is for one incarnation of the peer only.
    is_for_one: bool,
    /// It was written to some link.
    was_sent: bool,
}

/// Where an answer arrives.
pub(crate) type Waiter = oneshot::Receiver<Result<Bytes, CallError>>;

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                next: 1,
                calls: BTreeMap::new(),
                is_closed: false,
            }),
        }
    }

    /// A new request: its id, and where its answer will be. `is_for_one`: it is for the incarnation of the peer that
    /// there is now, and no other.
    pub(crate) fn begin(
        &self,
        body: Bytes,
        deadline: Instant,
        is_for_one: bool,
    ) -> Result<(u64, Waiter), CallError> {
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(CallError::Closed);
        }
        let id = waiting.next;
        waiting.next += 1;
        let call = Call {
            body,
            deadline,
            answer,
            is_for_one,
            was_sent: false,
        };
        waiting.calls.insert(id, call);
        Ok((id, receiver))
    }

    /// What is to be written for a request, now; `None` if nobody waits for it any more.
    pub(crate) fn write(&self, id: u64, now: Instant) -> Option<(Head, Bytes)> {
        let mut waiting = self.waiting.lock();
        let floor = *waiting.calls.first_key_value()?.0;
        let call = waiting.calls.get_mut(&id)?;
        call.was_sent = true;
        let left = call.deadline.saturating_duration_since(now);
        let head = Head::Request {
            id,
            floor,
            timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        };
        Some((head, call.body.clone()))
    }

    /// All that wait, in order: for a new link.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.waiting.lock().calls.keys().copied().collect()
    }

    /// The answer is there.
    pub(crate) fn answer(&self, id: u64, answer: Result<Bytes, Failure>) {
        let call = self.waiting.lock().calls.remove(&id);
        if let Some(call) = call {
            let answer = answer.map_err(|why| match why {
                Failure::Busy => CallError::Busy,
                Failure::Malformed => CallError::NotUnderstood,
                Failure::TooLong => CallError::ResponseTooLong,
                Failure::Forgotten => CallError::ResponseLost,
                // Both sides count the same time; the caller's own timer says the same in a moment.
                Failure::Expired => CallError::TimedOut {
                    after: std::time::Duration::ZERO,
                    state: LinkHint::Connected,
                },
            });
            // If nobody waits any more, so be it.
            let _ = call.answer.send(answer);
        }
    }

    /// Nobody waits for this any more. Whether the peer may know of it.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let call = self.waiting.lock().calls.remove(&id);
        call.is_some_and(|call| call.was_sent)
    }

    /// Another process took the peer's place: what the old one may have begun fails, and what was for it only.
    pub(crate) fn restarted(&self) {
        let mut waiting = self.waiting.lock();
        let calls = std::mem::take(&mut waiting.calls);
        for (id, call) in calls {
            if call.was_sent {
                let _ = call.answer.send(Err(CallError::Restarted));
            } else if call.is_for_one {
                let _ = call.answer.send(Err(CallError::OtherIncarnation));
            } else {
                waiting.calls.insert(id, call);
            }
        }
    }

    /// There will be no answers.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        for (_, call) in std::mem::take(&mut waiting.calls) {
            let _ = call.answer.send(Err(CallError::Closed));
        }
    }
}
