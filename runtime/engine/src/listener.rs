//! Who gets what a guest prints, and in which pieces.
//!
//! Must not: write, or know of limits: that is `stdio`.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Which of its two outputs a guest wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputSource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
        }
    }
}

/// Some bytes that a guest wrote, as it wrote them.
#[derive(Debug, Clone)]
pub struct OutputChunk {
    /// The listener's tag: which task wrote them, or started the one that did.
    pub tag: u64,
    /// Which output of this process's: of all that share a tag, one task's or actor's.
    pub writer: u64,
    /// Which attempt of the task that wrote them, from 1; 1 of an actor.
    pub attempt: u32,
    /// Where it wrote them.
    pub source: OutputSource,
    /// What it wrote.
    pub bytes: Bytes,
}

/// Keeps what a guest writes. Nothing waits for it.
pub trait OutputLog: fmt::Debug + Send + Sync {
    /// More was written.
    fn keep(&self, chunk: &OutputChunk);
}

/// Somebody who wants a task's output as it comes. Many tasks may share a channel.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Put on every chunk, to tell tasks apart.
    pub tag: u64,
    /// Where chunks go. While it is full, the guest waits.
    pub chunks: mpsc::Sender<OutputChunk>,
    /// Where they are kept before that, also when nobody listens any more.
    log: Option<Arc<dyn OutputLog>>,
}

impl Listener {
    /// Somebody who gets chunks with this tag.
    pub fn new(tag: u64, chunks: mpsc::Sender<OutputChunk>) -> Self {
        let log = None;
        Self { tag, chunks, log }
    }

    /// What is written is kept, and a listener gets it too.
    pub fn with_log(log: Arc<dyn OutputLog>, listener: Option<Self>) -> Self {
        let listener = listener.unwrap_or_else(|| Self::new(0, mpsc::channel(1).0));
        Self {
            log: Some(log),
            ..listener
        }
    }

    /// Passes on what was written elsewhere, when there is room. The listener may be gone.
    pub async fn send(&self, chunk: OutputChunk) {
        self.keep(&chunk);
        let _ = self.chunks.send(chunk).await;
    }

    pub(crate) fn keep(&self, chunk: &OutputChunk) {
        if let Some(log) = &self.log {
            log.keep(chunk);
        }
    }

    /// Whether nobody takes what is written any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.log.is_none() && self.chunks.is_closed()
    }

    /// Whether it is written for a log, also when nobody listens.
    pub(crate) fn is_kept(&self) -> bool {
        self.log.is_some()
    }
}
