//! Who waits for which answer, and what the driver has dropped.
//!
//! Owns what the handles of a connection share with the two tasks that read and write. Must not: do I/O.
//!
//! Invariants: at most [`ANSWERS`] answers to one request wait to be taken; what was dropped is told once.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use wasmrun_model::id::{ActorId, ObjectId};
use wasmrun_model::wire::{self, Response};
use wasmrun_store::{ClientView, StagingWriter};

use crate::error::Error;

/// How many answers to one request may wait to be taken.
const ANSWERS: usize = 64;

/// What answers a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Said(Response),
    /// A value that is mapped.
    Mapped(Box<wire::Mapped>, View),
    /// A value that cannot be mapped here.
    Unmappable,
    /// Memory for the bytes of a value.
    Staging(StagingWriter),
}

impl Answer {
    /// Whether the node waits for bytes of a value now.
    fn wants_bytes(&self) -> bool {
        matches!(self, Self::Staging(_) | Self::Said(Response::Continue))
    }

    /// Why it is not what was asked for.
    pub(crate) fn unexpected(&self) -> Error {
        match self {
            Self::Said(response) => Error::unexpected(response),
            Self::Mapped(..) | Self::Unmappable => Error::Unexpected("a mapped value".into()),
            Self::Staging(_) => Error::Unexpected("staging memory".into()),
        }
    }
}

/// Bytes of the node, in place. They stay there until it is dropped.
#[derive(Debug)]
pub(crate) struct View {
    /// Before the pin: nobody looks when the node hears of it.
    pub(crate) bytes: ClientView,
    pub(crate) _pin: Pin,
}

/// What the node keeps in its place for us. Dropping it tells the node.
#[derive(Debug)]
pub(crate) struct Pin {
    request: u64,
    routes: Arc<Routes>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.routes.dropped.lock().pins.push(self.request);
        self.routes.has_dropped.notify_one();
    }
}

#[derive(Debug)]
pub(crate) struct Routes {
    waiting: Mutex<Waiting>,
    /// Somebody has taken an answer where there was no room for more.
    has_room: Notify,
    dropped: Mutex<Dropped>,
    pub(crate) has_dropped: Notify,
    is_open: watch::Sender<bool>,
}

/// Who waits for answers.
#[derive(Debug, Default)]
struct Waiting {
    routes: HashMap<u64, Route>,
    /// Set once there will be no more than have come.
    end: Option<End>,
}

/// How a connection has ended.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// It is not known why.
    Lost,
    /// The node has said why.
    Told(String),
}

impl End {
    fn error(&self) -> Error {
        match self {
            Self::Lost => Error::Closed,
            Self::Told(why) => Error::Ended { why: why.clone() },
        }
    }
}

#[derive(Debug, Default)]
struct Route {
    answers: VecDeque<Answer>,
    waker: Option<Waker>,
}

/// What the driver has no handle of any more.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) objects: Vec<ObjectId>,
    pub(crate) actors: Vec<ActorId>,
    /// Requests whose values were mapped.
    pub(crate) pins: Vec<u64>,
    /// Requests whose bytes the node waits for, and that do not come any more.
    pub(crate) transfers: Vec<u64>,
}

/// The answers to a request. Dropping it, the rest is not waited for.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) id: u64,
    routes: Arc<Routes>,
    /// Until the node has answered, of those of which it takes so many at a time.
    turn: Option<OwnedSemaphorePermit>,
}

impl Answers {
    /// Has this until the node has answered.
    pub(crate) fn holding(mut self, turn: OwnedSemaphorePermit) -> Self {
        self.turn = Some(turn);
        self
    }

    /// The next answer; a refusal is an error.
    pub(crate) async fn next(&mut self) -> Result<Response, Error> {
        match self.next_answer().await? {
            Answer::Said(response) => Ok(response),
            other => Err(other.unexpected()),
        }
    }

    /// The next answer; a refusal is an error.
    pub(crate) async fn next_answer(&mut self) -> Result<Answer, Error> {
        let answer = poll_fn(|cx| self.routes.poll(self.id, cx.waker())).await;
        self.turn = None;
        match answer {
            Some(Answer::Said(Response::Refused(why))) => Err(Error::Refused(why)),
            Some(answer) => Ok(answer),
            None => Err(self.routes.ended()),
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let route = self.routes.waiting.lock().routes.remove(&self.id);
        if let Some(route) = route {
            if route.answers.len() >= ANSWERS {
                self.routes.has_room.notify_one();
            }
            if route.answers.iter().any(Answer::wants_bytes) {
                self.routes.abandon(self.id);
            }
            drop(route);
        }
    }
}

impl Routes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            has_room: Notify::new(),
            dropped: Mutex::default(),
            has_dropped: Notify::new(),
            is_open: watch::Sender::new(true),
        })
    }

    /// Expects answers to a request.
    pub(crate) fn expect(self: &Arc<Self>, id: u64) -> Result<Answers, Error> {
        let mut waiting = self.waiting.lock();
        if let Some(end) = &waiting.end {
            return Err(end.error());
        }
        waiting.routes.insert(id, Route::default());
        drop(waiting);
        Ok(Answers {
            id,
            routes: self.clone(),
            turn: None,
        })
    }

    fn poll(&self, id: u64, waker: &Waker) -> Poll<Option<Answer>> {
        let mut waiting = self.waiting.lock();
        let Waiting { routes, end } = &mut *waiting;
        let Some(route) = routes.get_mut(&id) else {
            return Poll::Ready(None);
        };
        let was_full = route.answers.len() >= ANSWERS;
        match route.answers.pop_front() {
            Some(answer) => {
                drop(waiting);
                if was_full {
                    self.has_room.notify_one();
                }
                Poll::Ready(Some(answer))
            }
            None if end.is_some() => Poll::Ready(None),
            None => {
                route.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Brings an answer to whoever waits for it, once there is room. If nobody does it is dropped.
    pub(crate) async fn deliver(&self, id: u64, mut answer: Answer) {
        while let Err(back) = self.try_deliver(id, answer) {
            answer = back;
            self.has_room.notified().await;
        }
    }

    fn try_deliver(&self, id: u64, answer: Answer) -> Result<(), Answer> {
        let mut waiting = self.waiting.lock();
        let Some(route) = waiting.routes.get_mut(&id) else {
            drop(waiting);
            if answer.wants_bytes() {
                self.abandon(id);
            }
            // Outside the lock: it may be a pin.
            drop(answer);
            return Ok(());
        };
        if route.answers.len() >= ANSWERS {
            return Err(answer);
        }
        route.answers.push_back(answer);
        let waker = route.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// The connection has ended: nobody gets more than has come.
    pub(crate) fn close(&self, end: End) {
        let mut waiting = self.waiting.lock();
        waiting.end = Some(end);
        let wakers = waiting.routes.values_mut().filter_map(|it| it.waker.take());
        let wakers: Vec<Waker> = wakers.collect();
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
        self.is_open.send_replace(false);
    }

    /// Why nothing more comes, as the error of whoever waits for something.
    pub(crate) fn ended(&self) -> Error {
        let waiting = self.waiting.lock();
        waiting.end.as_ref().map_or(Error::Closed, End::error)
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.borrow()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(&self) {
        // The sender is ours.
        let _ = self.is_open.subscribe().wait_for(|is_open| !is_open).await;
    }

    pub(crate) fn pin(self: &Arc<Self>, request: u64) -> Pin {
        Pin {
            request,
            routes: self.clone(),
        }
    }

    /// The driver has dropped its last handle of this.
    pub(crate) fn release_object(&self, id: ObjectId) {
        self.dropped.lock().objects.push(id);
        self.has_dropped.notify_one();
    }

    /// The driver has dropped its last handle of this.
    pub(crate) fn release_actor(&self, id: ActorId) {
        self.dropped.lock().actors.push(id);
        self.has_dropped.notify_one();
    }

    /// The node has said that the bytes of this request may come, and they do not, or no more of them.
    pub(crate) fn abandon(&self, request: u64) {
        self.dropped.lock().transfers.push(request);
        self.has_dropped.notify_one();
    }

    pub(crate) fn take_dropped(&self) -> Dropped {
        std::mem::take(&mut *self.dropped.lock())
    }
}
