//! The side that answers: an embedded store for the other nodes.
//!
//! Owns the limits of what others may ask of it. Invariant: whatever comes in is checked by the store
//! as if it came from this process; nothing that a peer sends makes it panic or keep more than its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::protocol::{Request, Response, WatchMessage, WatchRequest};
use crate::embedded::{Embedded, EmbeddedWatch};
use crate::error::Error;
use crate::store::ControlStore;
use crate::types::Revision;

/// After so many revisions without changes for it, a watch says where it is: whoever resumes it later
/// does not ask for history that is gone.
const POSITION_EVERY: u64 = 256;

/// What each session may have.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Requests that are being answered.
    pub requests: usize,
    /// Open watches.
    pub watches: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            requests: 1_024,
            watches: 4_096,
        }
    }
}

/// Answers for an embedded store.
#[derive(Debug, Clone)]
pub struct Server {
    store: Arc<Embedded>,
    limits: ServerLimits,
}

impl Server {
    /// A server of this store.
    pub fn new(store: Arc<Embedded>, limits: ServerLimits) -> Self {
        Self { store, limits }
    }

    /// A session: what one connection asks counts together.
    pub fn session(&self) -> Session {
        Session {
            store: Arc::clone(&self.store),
            limits: self.limits,
            requests: Arc::default(),
            watches: Arc::default(),
        }
    }
}

/// What one peer asks.
#[derive(Debug, Clone)]
pub struct Session {
    store: Arc<Embedded>,
    limits: ServerLimits,
    requests: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
}

/// One of a limited number, until it is dropped.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, limit: usize, what: &str) -> Result<Self, Error> {
        let place = Self(Arc::clone(taken));
        if taken.fetch_add(1, Ordering::Relaxed) >= limit {
            // Dropping the place gives it back.
            return Err(Error::unavailable(format_args!(
                "this node has {limit} {what} open already"
            )));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    /// Answers a request. If it is dropped, a change may be made or not.
    pub async fn answer(&self, request: Request) -> Response {
        let place = Place::take(&self.requests, self.limits.requests, "requests");
        let answer = match place {
            Ok(_place) => self.try_answer(request).await,
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(Response::Failed)
    }

    async fn try_answer(&self, request: Request) -> Result<Response, Error> {
        Ok(match request {
            Request::Get(key) => Response::Entry(self.store.get(&key).await?),
            Request::Range(range) => Response::Page(self.store.range(range).await?),
            Request::Change(id, mutation) => {
                Response::Answer(self.store.change(id, mutation).await?)
            }
            Request::KeepAlive(lease) => {
                self.store.keep_alive(lease).await?;
                Response::Alive
            }
            Request::Revision => Response::Revision(self.store.revision().await?),
        })
    }

    /// Opens a watch. The caller sends on what [`WatchSession::next`] gives, and drops it when its stream
    /// breaks or takes nothing for too long: the other side comes back and misses nothing.
    ///
    /// # Errors
    /// What to send instead, as [`WatchMessage::Ended`].
    pub fn watch(&self, request: WatchRequest) -> Result<WatchSession, Error> {
        let place = Place::take(&self.watches, self.limits.watches, "watches")?;
        let watch = self.store.open_watch(&request.prefix, request.from)?;
        Ok(WatchSession {
            state: State::Begins,
            watch,
            _place: place,
        })
    }
}

/// An open watch of a peer.
#[derive(Debug)]
pub struct WatchSession {
    state: State,
    watch: EmbeddedWatch,
    _place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begins,
    Runs,
    Ended,
}

impl WatchSession {
    /// The next message to send; `None` after the last. May be dropped and called again.
    pub async fn next(&mut self) -> Option<WatchMessage> {
        match self.state {
            State::Begins => {
                self.state = State::Runs;
                Some(WatchMessage::Position(self.position()))
            }
            State::Ended => None,
            State::Runs => Some(match self.watch.next_within(POSITION_EVERY).await {
                Ok(Some(changes)) => WatchMessage::Changes(changes),
                Ok(None) => WatchMessage::Position(self.position()),
                Err(error) => {
                    self.state = State::Ended;
                    WatchMessage::Ended(error)
                }
            }),
        }
    }

    fn position(&self) -> Revision {
        self.watch.position()
    }
}
