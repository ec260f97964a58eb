//! The side that asks: a control store that is somewhere else.
//!
//! Owns retries. Every change has an id; it is sent until it is answered or patience ends, and done once.
//! Invariant: at most [`CLIENT_WINDOW`] changes are on their way, so the server remembers all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::{EventLink, Link, LinkError};
use super::protocol::{Request, Response, WatchMessage, WatchRequest};
use crate::backoff::Backoff;
use crate::embedded::{Answer, CLIENT_WINDOW, ClientId, Mutation, RequestId, wrong_answer};
use crate::error::Error;
use crate::store::{ControlStore, Watch, WatchSource, first_watched};
use crate::types::{
    Changes, Entry, Lease, LeaseId, Page, Range, Revision, Txn, TxnReply, check_key, check_prefix,
    ttl_seconds,
};

/// Settings of a remote store.
#[derive(Debug, Clone, Copy)]
pub struct RemoteConfig {
    /// How long a request is tried before it is given up.
    pub patience: Duration,
    /// How long one try may take.
    pub attempt: Duration,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(15),
            attempt: Duration::from_secs(5),
        }
    }
}

/// A control store behind a [`Link`].
#[derive(Debug)]
pub struct Remote {
    link: Arc<dyn Link>,
    client: ClientId,
    config: RemoteConfig,
    window: Mutex<Window>,
    window_moved: Notify,
}

/// The numbers of requests.
#[derive(Debug, Default)]
struct Window {
    last: u64,
    open: BTreeSet<u64>,
    /// The server knows us.
    is_introduced: bool,
}

impl Window {
    fn floor(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.last + 1)
    }
}

/// A number in use, until it is dropped.
struct Number<'r> {
    remote: &'r Remote,
    number: u64,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.remote.window.lock().open.remove(&self.number);
        self.remote.window_moved.notify_waiters();
    }
}

impl Remote {
    /// A store behind this link. The client's id must be drawn at random, anew for each process.
    pub fn new(link: Arc<dyn Link>, client: ClientId, config: RemoteConfig) -> Self {
        Self {
            link,
            client,
            config,
            window: Mutex::default(),
            window_moved: Notify::new(),
        }
    }

    /// Sends a request until it is answered. `is_harmless`: doing it twice is as good as once.
    async fn ask(&self, request: Request, is_harmless: bool) -> Result<Response, Error> {
        let deadline = Instant::now() + self.config.patience;
        let mut backoff = Backoff::default();
        let mut may_be_done = false;
        loop {
            let attempt = self.config.attempt.min(deadline - Instant::now());
            let answer = tokio::time::timeout(attempt, self.link.call(request.clone())).await;
            let why = match answer {
                Ok(Ok(Response::Failed(Error::Unavailable { why }))) => why,
                Ok(Ok(Response::Failed(Error::Uncertain { why }))) => {
                    may_be_done = true;
                    why
                }
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(LinkError { why, is_unsent })) => {
                    may_be_done |= !is_unsent;
                    why
                }
                Err(_) => {
                    may_be_done = true;
                    "it takes too long to answer".to_owned()
                }
            };
            let pause = backoff.pause();
            if Instant::now() + pause >= deadline {
                return Err(match may_be_done && !is_harmless {
                    true => Error::uncertain(why),
                    false => Error::unavailable(why),
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Makes a change, once.
    async fn change(&self, mutation: Mutation) -> Result<Answer, Error> {
        loop {
            if !self.window.lock().is_introduced {
                let hello = Request::Change(None, Mutation::Introduce(self.client));
                answer_of(self.ask(hello, true).await?)?;
                self.window.lock().is_introduced = true;
            }
            let number = self.number().await;
            let floor = self.window.lock().floor();
            let id = RequestId {
                client: self.client,
                number: number.number,
                floor,
            };
            let first = Request::Change(Some(id), mutation.clone());
            match answer_of(self.ask(first, false).await?)? {
                // Nothing was done, this time. An earlier try of this request cannot have been done and then
                // forgotten: thousands of clients would have come in between.
                Answer::Stranger => self.window.lock().is_introduced = false,
                Answer::Lost => {
                    return Err(Error::uncertain(
                        "it was made, but the answer was lost on its way",
                    ));
                }
                answer => return Ok(answer),
            }
        }
    }

    async fn number(&self) -> Number<'_> {
        loop {
            let moved = self.window_moved.notified();
            tokio::pin!(moved);
            // Registered before looking: a place that becomes free in between wakes us.
            moved.as_mut().enable();
            {
                let mut window = self.window.lock();
                let number = window.last + 1;
                let floor = window.floor();
                if number - floor < CLIENT_WINDOW {
                    window.last = number;
                    window.open.insert(number);
                    return Number {
                        remote: self,
                        number,
                    };
                }
            }
            moved.await;
        }
    }
}

fn answer_of(response: Response) -> Result<Answer, Error> {
    match response {
        Response::Answer(answer) => Ok(answer),
        other => Err(unexpected(other)),
    }
}

fn unexpected(response: Response) -> Error {
    match response {
        Response::Failed(error) => error,
        other => Error::invalid(format_args!(
            "the answer is of another kind than the question: {other:?}"
        )),
    }
}

#[async_trait]
impl ControlStore for Remote {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let request = Request::Get(Bytes::copy_from_slice(key));
        match self.ask(request, true).await? {
            Response::Entry(entry) => Ok(entry),
            other => Err(unexpected(other)),
        }
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        range.check()?;
        match self.ask(Request::Range(range), true).await? {
            Response::Page(page) => Ok(page),
            other => Err(unexpected(other)),
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        txn.check()?;
        match self.change(Mutation::Txn(txn)).await? {
            Answer::Txn(reply) => Ok(reply),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        check_prefix(prefix)?;
        let from = first_watched(self, from).await?;
        let prefix = Bytes::copy_from_slice(prefix);
        let mut source = RemoteWatch {
            link: Arc::clone(&self.link),
            prefix: prefix.clone(),
            next: from,
            attempt: self.config.attempt,
            backoff: Backoff::default(),
            stream: None,
        };
        // The first try is ours, so that the caller learns at once of what cannot be.
        match tokio::time::timeout(self.config.attempt, source.connect()).await {
            Ok(Err(Broken::Ended(error))) => return Err(error),
            Ok(Ok(()) | Err(Broken::Link)) | Err(_) => {}
        }
        Ok(Watch::new(prefix, source))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let ttl_s = ttl_seconds(ttl)?;
        match self.change(Mutation::Grant { ttl_s }).await? {
            Answer::Granted(lease) => Ok(lease),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        match self.ask(Request::KeepAlive(lease), true).await? {
            Response::Alive => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let request = Request::Change(None, Mutation::Revoke(lease));
        answer_of(self.ask(request, true).await?).map(|_| ())
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        let request = Request::Change(None, Mutation::Compact(through));
        answer_of(self.ask(request, true).await?).map(|_| ())
    }

    async fn revision(&self) -> Result<Revision, Error> {
        match self.ask(Request::Revision, true).await? {
            Response::Revision(revision) => Ok(revision),
            other => Err(unexpected(other)),
        }
    }
}

/// A watch that comes back after every break.
struct RemoteWatch {
    link: Arc<dyn Link>,
    prefix: Bytes,
    /// The first revision that was not seen.
    next: Revision,
    attempt: Duration,
    backoff: Backoff,
    stream: Option<Box<dyn EventLink>>,
}

/// Why a stream gives no more.
enum Broken {
    /// The link broke: try again.
    Link,
    /// The watch is over.
    Ended(Error),
}

impl RemoteWatch {
    /// Opens a stream, up to its first message. Keeps it only then.
    async fn connect(&mut self) -> Result<(), Broken> {
        let request = WatchRequest {
            prefix: self.prefix.clone(),
            from: self.next,
        };
        let stream = self.link.watch(request).await;
        let mut stream = stream.map_err(|_| Broken::Link)?;
        let first = stream.next().await.map_err(|_| Broken::Link)?;
        match first {
            WatchMessage::Position(_) => {
                self.backoff.works();
                self.stream = Some(stream);
                Ok(())
            }
            message => Err(ended(message)),
        }
    }

    /// Changes that were not seen yet, if the message has some.
    fn take(&mut self, message: WatchMessage) -> Result<Option<Changes>, Broken> {
        match message {
            WatchMessage::Position(next) => {
                self.next = self.next.max(next);
                Ok(None)
            }
            WatchMessage::Changes(changes) if changes.revision < self.next => Ok(None),
            WatchMessage::Changes(changes) => {
                self.next = changes.revision.next();
                Ok(Some(changes))
            }
            ended_ @ WatchMessage::Ended(_) => Err(ended(ended_)),
        }
    }
}

fn ended(message: WatchMessage) -> Broken {
    match message {
        // The server is closed or has no place; another may come.
        WatchMessage::Ended(Error::Unavailable { .. }) => Broken::Link,
        WatchMessage::Ended(error) => Broken::Ended(error),
        WatchMessage::Position(_) | WatchMessage::Changes(_) => Broken::Link,
    }
}

#[async_trait]
impl WatchSource for RemoteWatch {
    async fn next(&mut self) -> Result<Changes, Error> {
        loop {
            let taken = match &mut self.stream {
                None => {
                    let attempt = self.attempt;
                    match tokio::time::timeout(attempt, self.connect()).await {
                        Ok(Ok(())) => Ok(None),
                        Ok(Err(broken)) => Err(broken),
                        Err(_) => Err(Broken::Link),
                    }
                }
                Some(stream) => match stream.next().await {
                    Ok(message) => self.take(message),
                    Err(_) => Err(Broken::Link),
                },
            };
            match taken {
                Ok(Some(changes)) => return Ok(changes),
                Ok(None) => {}
                Err(Broken::Ended(error)) => return Err(error),
                Err(Broken::Link) => {
                    self.stream = None;
                    let pause = self.backoff.pause();
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}
