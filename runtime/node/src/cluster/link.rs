//! The control store of another node, over the cluster's connections.
//!
//! Owns how its requests become messages. A watch is no stream: it is asked for what comes next, again and
//! again, and the other side keeps nothing in between, so that a break anywhere costs one question.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_control::Revision;
use wasmrun_control::remote::{
    EventLink, Link, LinkError, Request as StoreRequest, Response as StoreResponse, Session,
    WatchMessage, WatchRequest,
};
use wasmrun_net::CallError;

use super::lines::Lines;
use super::protocol::{Request, Response};

/// How long a question for changes waits at the other side for some.
const POLL: Duration = Duration::from_secs(8);
/// How long an answer may take beside that.
const ANSWER: Duration = Duration::from_secs(5);
/// An answer with changes ends when it has this many.
const MOST_MESSAGES: usize = 64;
/// It also ends when it has this many bytes, about: with the largest change after that it still is a message.
const ENOUGH_BYTES: usize = 1 << 20;

/// The way to the head's control store.
pub(super) struct HeadLink(pub(super) Arc<Lines>);

impl fmt::Debug for HeadLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeadLink")
    }
}

impl HeadLink {
    async fn ask(&self, request: &Request, wait: Duration) -> Result<Response, LinkError> {
        ask(&self.0, request, wait).await
    }
}

async fn ask(lines: &Lines, request: &Request, wait: Duration) -> Result<Response, LinkError> {
    let head = lines.head();
    let head = head.ok_or_else(|| LinkError::unsent("this node is closed"))?;
    head.call(request, wait).await.map_err(|error| match error {
        CallError::Message(_)
        | CallError::TooNew(_)
        | CallError::Busy
        | CallError::NotUnderstood
        | CallError::OtherIncarnation => LinkError::unsent(error),
        CallError::TimedOut { .. }
        | CallError::ResponseTooLong
        | CallError::ResponseLost
        | CallError::Restarted
        | CallError::Closed => LinkError::broken(error),
    })
}

fn no_store() -> LinkError {
    LinkError::unsent("the node that was asked has no control store")
}

#[async_trait]
impl Link for HeadLink {
    async fn call(&self, request: StoreRequest) -> Result<StoreResponse, LinkError> {
        match self.ask(&Request::Control(request), ANSWER).await? {
            Response::Control(response) => Ok(response),
            _ => Err(no_store()),
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn EventLink>, LinkError> {
        Ok(Box::new(Polled {
            lines: self.0.clone(),
            watch: request,
            is_first: true,
            come: VecDeque::new(),
        }))
    }
}

/// A watch that is polled.
struct Polled {
    lines: Arc<Lines>,
    /// What to ask for next.
    watch: WatchRequest,
    is_first: bool,
    come: VecDeque<WatchMessage>,
}

#[async_trait]
impl EventLink for Polled {
    async fn next(&mut self) -> Result<WatchMessage, LinkError> {
        loop {
            if let Some(message) = self.come.pop_front() {
                match &message {
                    WatchMessage::Position(next) => {
                        self.watch.from = self.watch.from.max(*next);
                    }
                    WatchMessage::Changes(changes) => {
                        self.watch.from = self.watch.from.max(changes.revision.next());
                    }
                    WatchMessage::Ended(_) => {}
                }
                return Ok(message);
            }
            let request = Request::Watch {
                watch: self.watch.clone(),
                is_first: self.is_first,
            };
            match ask(&self.lines, &request, POLL + ANSWER).await? {
                Response::Watched(messages) => self.come = messages.into(),
                _ => return Err(no_store()),
            }
            self.is_first = false;
        }
    }
}

/// The other side: what has changed, once there is something.
pub(super) async fn poll(session: &Session, watch: WatchRequest, is_first: bool) -> Response {
    let mut open = match session.watch(watch) {
        Ok(open) => open,
        Err(error) => return Response::Watched(vec![WatchMessage::Ended(error)]),
    };
    let mut messages: Vec<WatchMessage> = Vec::new();
    // The position comes at once.
    messages.extend(open.next().await);
    if is_first {
        return Response::Watched(messages);
    }
    let (mut wait, mut bytes) = (POLL, 0);
    while messages.len() < MOST_MESSAGES && bytes < ENOUGH_BYTES {
        match tokio::time::timeout(wait, open.next()).await {
            Ok(Some(message)) => {
                bytes += size(&message);
                messages.push(message);
                // What else is there already comes with it.
                wait = Duration::ZERO;
            }
            Ok(None) | Err(_) => break,
        }
    }
    Response::Watched(messages)
}

fn size(message: &WatchMessage) -> usize {
    match message {
        WatchMessage::Changes(changes) => changes.events.iter().map(event_size).sum(),
        WatchMessage::Position(Revision(_)) | WatchMessage::Ended(_) => 0,
    }
}

fn event_size(event: &wasmrun_control::Event) -> usize {
    match event {
        wasmrun_control::Event::Put(entry) => entry.key.len() + entry.value.len(),
        wasmrun_control::Event::Delete { key } => key.len(),
    }
}
