//! What carries requests to the store's server.
//!
//! Owns the two traits that `node` implements over its connections.

use std::fmt;

use async_trait::async_trait;

use super::protocol::{Request, Response, WatchMessage, WatchRequest};

/// The other side did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the control store's node: {why}")]
pub struct LinkError {
    /// What happened.
    pub why: String,
    /// The request was certainly never sent. If in doubt: false.
    pub is_unsent: bool,
}

impl LinkError {
    /// The connection broke, and the request may have arrived or not.
    pub fn broken(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            is_unsent: false,
        }
    }

    /// There was no connection to send it on.
    pub fn unsent(why: impl ToString) -> Self {
        Self {
            why: why.to_string(),
            is_unsent: true,
        }
    }
}

/// A way to the store's server. Connects and reconnects by itself. Requests may arrive twice, late or
/// never, in any order; what arrives is whole.
#[async_trait]
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Sends a request and waits for its answer. May be dropped.
    async fn call(&self, request: Request) -> Result<Response, LinkError>;

    /// Opens a watch: a stream of its own.
    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn EventLink>, LinkError>;
}

/// The stream of a watch: messages in order, without gaps, until it breaks.
#[async_trait]
pub trait EventLink: Send {
    /// The next message. May be dropped and called again without losing one.
    async fn next(&mut self) -> Result<WatchMessage, LinkError>;
}
