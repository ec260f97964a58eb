//! The trait that all control stores implement, and the watch that they all give.
//!
//! Owns what is promised. Every promise here is tried on each implementation by the conformance suite
//! (`tests/conformance`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Error;
use crate::types::{
    Changes, Entry, Lease, LeaseId, Op, OpReply, Page, Range, Revision, Txn, TxnReply,
};

/// The cluster's small, slow-changing truth: an ordered map from keys to values with a history.
///
/// - **Durable before it answers.** What was answered survives the death of any process.
/// - **Linearizable.** A read that begins after an answer sees what was answered.
/// - **One history.** Each transaction that changes something makes one [`Revision`]; a transaction that
///   changes nothing makes none.
/// - **Futures may be dropped.** A change whose future was dropped may be made or not.
#[async_trait]
pub trait ControlStore: fmt::Debug + Send + Sync {
    /// Reads one key.
    ///
    /// # Errors
    /// See [`Error`]; as for all methods.
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error>;

    /// Reads the keys of a range in order, as one page of it.
    async fn range(&self, range: Range) -> Result<Page, Error>;

    /// Does all steps of a transaction, or none. [`Error::Uncertain`] if the store went away while it was
    /// at it.
    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error>;

    /// What changes under a prefix, from this revision on (inclusive); [`Revision::ZERO`] is "from now on".
    /// A revision that is yet to come is waited for.
    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error>;

    /// A new lease, of this time to live or up to a second (with etcd: some seconds) more.
    async fn grant(&self, ttl: Duration) -> Result<Lease, Error>;

    /// Begins the lease's time to live anew.
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error>;

    /// Ends a lease and deletes all keys under it. That there is none is fine.
    async fn revoke(&self, lease: LeaseId) -> Result<(), Error>;

    /// Lets go of the history up to this revision (inclusive). Keys and values stay. Watches from later
    /// revisions are not affected.
    async fn compact(&self, through: Revision) -> Result<(), Error>;

    /// Puts one key. Returns the revision that this made.
    async fn put(
        &self,
        key: Bytes,
        value: Bytes,
        lease: Option<LeaseId>,
    ) -> Result<Revision, Error> {
        let txn = Txn::of([Op::Put { key, value, lease }]);
        Ok(self.txn(txn).await?.revision)
    }

    /// Deletes one key. Returns whether it was there.
    async fn delete(&self, key: Bytes) -> Result<bool, Error> {
        let reply = self.txn(Txn::of([Op::delete(key)])).await?;
        Ok(reply.replies == [OpReply::Deleted(true)])
    }

    /// The revision that the store has reached.
    async fn revision(&self) -> Result<Revision, Error> {
        // A transaction without steps reads it.
        Ok(self.txn(Txn::default()).await?.revision)
    }
}

/// Where a watch begins: "from now on" begins with the call, not when a stream is open, so that nothing is
/// missed if that takes several tries.
pub(crate) async fn first_watched(
    store: &dyn ControlStore,
    from: Revision,
) -> Result<Revision, Error> {
    match from {
        Revision::ZERO => Ok(store.revision().await?.next()),
        from => Ok(from),
    }
}

/// Where a [`Watch`] gets its changes from. Whoever implements a store implements this.
#[async_trait]
pub trait WatchSource: Send {
    /// The next changes: see [`Watch::next`].
    async fn next(&mut self) -> Result<Changes, Error>;
}

/// Changes under a prefix, as they are made: each revision once, in order, none left out, however
/// often connections break meanwhile.
pub struct Watch {
    source: Box<dyn WatchSource>,
    prefix: Bytes,
    ended: Option<Error>,
}

impl Watch {
    /// A watch that gets its changes from `source`.
    pub fn new(prefix: impl Into<Bytes>, source: impl WatchSource + 'static) -> Self {
        Self {
            source: Box::new(source),
            prefix: prefix.into(),
            ended: None,
        }
    }

    /// Waits for the next changes. A store that cannot be reached is waited for. May be dropped and
    /// called again: nothing is lost.
    ///
    /// # Errors
    /// The watch is over, and all later calls say the same. [`Error::Compacted`] if the history that it
    /// needs is gone; [`Error::Unavailable`] if the store was closed in this process.
    pub async fn next(&mut self) -> Result<Changes, Error> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let next = self.source.next().await;
        self.ended = next.as_ref().err().cloned();
        next
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("prefix", &self.prefix)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
