//! A control store of tests, in which something goes wrong.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_control::{
    ControlStore, Embedded, Entry, Error, Lease, LeaseId, Page, Range, Revision, Txn, TxnReply,
    Watch,
};

/// What goes wrong.
#[async_trait]
pub(super) trait Transact: Send + Sync {
    /// What becomes of a question of what is below a prefix.
    async fn range(&self, store: &Embedded, range: Range) -> Result<Page, Error> {
        store.range(range).await
    }

    /// What becomes of a transaction.
    async fn txn(&self, store: &Embedded, txn: Txn) -> Result<TxnReply, Error>;
}

/// A store in a file, but for its transactions.
pub(super) struct Faulty<T> {
    pub(super) store: Arc<Embedded>,
    pub(super) way: T,
}

impl<T> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl<T: Transact> ControlStore for Faulty<T> {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        self.store.get(key).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.way.range(&self.store, range).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        self.way.txn(&self.store, txn).await
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        self.store.watch(prefix, from).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        self.store.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.revoke(lease).await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.store.compact(through).await
    }
}
