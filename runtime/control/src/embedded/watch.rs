//! Watches of the embedded store.
//!
//! Owns where a watch has got to. A watch pulls: it has no queue that could be full, and a slow one costs
//! nothing. What it needs is in memory if it keeps up and in the log if not; once history has passed it,
//! it ends with [`Error::Compacted`].

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::shared::{Extent, ReadError, Shared};
use super::tables::{LOG, decode_events};
use crate::error::Error;
use crate::store::WatchSource;
use crate::types::{Changes, Event, Revision};

/// How many revisions of the log, and how many bytes, a watch reads at a time.
const READ_REVISIONS: usize = 128;
const READ_BYTES: usize = 1 << 20;

/// A watch that has seen all before `next`.
#[derive(Debug)]
pub struct EmbeddedWatch {
    shared: Arc<Shared>,
    extent: watch::Receiver<Extent>,
    prefix: Bytes,
    next: u64,
    /// Read from the log, from `next` on.
    backlog: VecDeque<Arc<Changes>>,
}

impl EmbeddedWatch {
    /// A watch from a revision on, or from now on if it is zero.
    ///
    /// # Errors
    /// When what it needs is no longer there.
    pub fn new(shared: Arc<Shared>, prefix: Bytes, from: Revision) -> Result<Self, Error> {
        let extent = shared.extent.subscribe();
        let now = *extent.borrow();
        let next = match from {
            Revision::ZERO => now.revision + 1,
            Revision(from) => from,
        };
        let watch = Self {
            shared,
            extent,
            prefix,
            next,
            backlog: VecDeque::new(),
        };
        watch.check(now)?;
        Ok(watch)
    }

    /// The revision that it looks at next. Resuming from there misses nothing.
    pub fn position(&self) -> Revision {
        Revision(self.next)
    }

    fn check(&self, now: Extent) -> Result<(), Error> {
        match self.next <= now.compacted {
            true => Err(Error::Compacted {
                next: Revision(now.compacted + 1),
            }),
            false => Ok(()),
        }
    }

    /// What a revision changed under the prefix. Moves on to the next revision.
    fn take(&mut self, changes: &Changes) -> Option<Changes> {
        self.next = changes.revision.0 + 1;
        let ours = |event: &&Event| event.key().starts_with(&self.prefix);
        let events: Vec<_> = changes.events.iter().filter(ours).cloned().collect();
        (!events.is_empty()).then_some(Changes {
            revision: changes.revision,
            events,
        })
    }

    async fn read_log(&mut self) -> Result<(), Error> {
        let from = self.next;
        let read = move |transaction: &redb::ReadTransaction| {
            let mut found = VecDeque::new();
            let mut bytes = 0;
            let log = transaction.open_table(LOG)?;
            for row in log.range(from..)?.take(READ_REVISIONS) {
                let (revision, events) = row?;
                bytes += events.value().len();
                found.push_back(Arc::new(Changes {
                    revision: Revision(revision.value()),
                    events: decode_events(events.value())?,
                }));
                if bytes >= READ_BYTES {
                    break;
                }
            }
            Ok::<_, ReadError>(found)
        };
        self.backlog = self.shared.read(read).await?;
        Ok(())
    }

    /// The next changes, or `None` if it has moved over `revisions` that have nothing for it.
    pub async fn next_within(&mut self, revisions: u64) -> Result<Option<Changes>, Error> {
        let stop = self.next.saturating_add(revisions);
        loop {
            let now = *self.extent.borrow_and_update();
            while self.next <= now.revision {
                if self.next >= stop {
                    return Ok(None);
                }
                self.check(now)?;
                if let Some(changes) = self.backlog.pop_front() {
                    // The log may have lost its beginning since `check`.
                    if changes.revision.0 != self.next {
                        self.backlog.clear();
                        self.check(*self.extent.borrow())?;
                        return Err(Error::corrupt("the log has a gap"));
                    }
                    if let Some(ours) = self.take(&changes) {
                        return Ok(Some(ours));
                    }
                    continue;
                }
                let recent = self.shared.recent.lock().get(self.next);
                match recent {
                    Some(changes) => {
                        if let Some(ours) = self.take(&changes) {
                            return Ok(Some(ours));
                        }
                    }
                    None => {
                        self.read_log().await?;
                        if self.backlog.is_empty() {
                            self.check(*self.extent.borrow())?;
                            return Err(Error::corrupt("the log ends too early"));
                        }
                    }
                }
            }
            if now.is_closed || self.extent.changed().await.is_err() {
                return Err(Error::unavailable("it was closed"));
            }
        }
    }
}

#[async_trait]
impl WatchSource for EmbeddedWatch {
    async fn next(&mut self) -> Result<Changes, Error> {
        loop {
            if let Some(changes) = self.next_within(u64::MAX).await? {
                return Ok(changes);
            }
        }
    }
}
