//! Watches of etcd that come back after every break.
//!
//! Owns where a watch has got to. Each watch is a stream of its own. It asks for one revision before the one
//! that it needs: etcd says "compacted" only to those who ask for less than what it has compacted, and
//! at that very revision a deletion may be missing.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tonic::Streaming;

use super::connection::Connection;
use super::{entry_of, pb, range_end};
use crate::backoff::Backoff;
use crate::error::Error;
use crate::store::WatchSource;
use crate::types::{Changes, Event, Revision};

/// A watch that has seen all before `next`.
#[derive(Debug)]
pub struct EtcdWatch {
    connection: Arc<Connection>,
    /// Of all our keys.
    inner: Bytes,
    /// Of the keys that are watched, as they stand in etcd.
    prefix: Bytes,
    next: Revision,
    stream: Option<Streaming<pb::WatchResponse>>,
    /// Received and not yet given out.
    ready: VecDeque<Changes>,
    backoff: Backoff,
}

impl EtcdWatch {
    pub fn new(connection: Arc<Connection>, inner: &Bytes, prefix: Bytes, next: Revision) -> Self {
        Self {
            connection,
            inner: inner.clone(),
            prefix,
            next,
            stream: None,
            ready: VecDeque::new(),
            backoff: Backoff::default(),
        }
    }

    /// The same watch, after a first try, so that the caller learns at once of what cannot be.
    pub async fn checked(mut self) -> Result<Self, Error> {
        match self.open().await {
            Ok(()) | Err(Error::Unavailable { .. }) => Ok(self),
            Err(error) => Err(error),
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        let create = pb::WatchCreateRequest {
            key: self.prefix.clone(),
            range_end: range_end(&self.prefix),
            start_revision: self.next.0.saturating_sub(1).max(1).cast_signed(),
            progress_notify: true,
        };
        let request = pb::WatchRequest {
            create: Some(create),
        };
        let path = "/etcdserverpb.Watch/Watch";
        let mut stream = self.connection.stream(path, request).await?;
        // It is only a watch once etcd says so.
        let first = stream.message().await;
        let first = first.map_err(|status| self.connection.stream_broke(&status))?;
        let first: pb::WatchResponse =
            first.ok_or_else(|| Error::unavailable("etcd closed the watch"))?;
        self.take(first)?;
        self.backoff.works();
        self.stream = Some(stream);
        Ok(())
    }

    /// Puts what is new in a message among what is ready.
    fn take(&mut self, response: pb::WatchResponse) -> Result<(), Error> {
        if response.compact_revision > 0 {
            return Err(Error::Compacted {
                next: Revision(response.compact_revision.cast_unsigned()).next(),
            });
        }
        if response.canceled {
            return Err(match response.cancel_reason.contains("permission") {
                true => Error::Denied {
                    why: response.cancel_reason,
                },
                false => Error::unavailable(response.cancel_reason),
            });
        }
        let is_progress = response.events.is_empty() && !response.created;
        for event in response.events {
            let kv = event
                .kv
                .ok_or_else(|| Error::invalid("etcd sent a change of no key"))?;
            let revision = Revision(kv.mod_revision.cast_unsigned());
            if revision < self.next && !self.is_last(revision) {
                continue;
            }
            let is_delete = event.kind == pb::DELETE;
            let entry = entry_of(&self.inner, kv)?;
            let event = match is_delete {
                true => Event::Delete { key: entry.key },
                false => Event::Put(entry),
            };
            if self.is_last(revision) {
                let last = self.ready.back_mut().expect("there is a last one");
                last.events.push(event);
            } else {
                self.ready.push_back(Changes {
                    revision,
                    events: vec![event],
                });
                self.next = revision.next();
            }
        }
        if is_progress && let Some(header) = response.header {
            // All up to this revision was sent.
            let reached = Revision(header.revision.cast_unsigned()).next();
            self.next = self.next.max(reached);
        }
        Ok(())
    }

    /// Whether this revision is the one that was received last. etcd never splits one between
    /// messages, but the events of one message come one by one.
    fn is_last(&self, revision: Revision) -> bool {
        let last = self.ready.back();
        last.is_some_and(|last| last.revision == revision)
    }
}

#[async_trait]
impl WatchSource for EtcdWatch {
    async fn next(&mut self) -> Result<Changes, Error> {
        loop {
            if let Some(changes) = self.ready.pop_front() {
                return Ok(changes);
            }
            let done = match &mut self.stream {
                None => self.open().await,
                Some(stream) => match stream.message().await {
                    Ok(Some(response)) => self.take(response),
                    Ok(None) => Err(Error::unavailable("etcd closed the watch")),
                    Err(status) => Err(self.connection.stream_broke(&status)),
                },
            };
            match done {
                Ok(()) => {}
                Err(Error::Unavailable { .. }) => {
                    self.stream = None;
                    tokio::time::sleep(self.backoff.pause()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
