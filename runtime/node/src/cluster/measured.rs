//! How long the control store takes to answer.
//!
//! Owns a store around another that looks at the clock. Must not: change what is asked or answered. Watches are not
//! measured: they wait on purpose.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use wasmrun_control::{
    ControlStore, Entry, Error, Lease, LeaseId, Page, Range, Revision, Txn, TxnReply, Watch,
};

use crate::guests::counters::Latency;

/// A store whose answers are timed.
pub(super) struct Measured {
    inner: Arc<dyn ControlStore>,
    latency: Arc<Latency>,
}

impl Measured {
    /// The store, and what will be known of its answers.
    pub(super) fn around(inner: Arc<dyn ControlStore>) -> (Arc<dyn ControlStore>, Arc<Latency>) {
        let latency = Arc::<Latency>::default();
        let measured = Self {
            inner,
            latency: latency.clone(),
        };
        (Arc::new(measured), latency)
    }

    async fn time<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let asked = Instant::now();
        let answer = answer.await;
        self.latency.observe(asked.elapsed(), answer.is_err());
        answer
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ControlStore for Measured {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        self.time(self.inner.get(key)).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.time(self.inner.range(range)).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        self.time(self.inner.txn(txn)).await
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        self.inner.watch(prefix, from).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        self.time(self.inner.grant(ttl)).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.time(self.inner.keep_alive(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        self.time(self.inner.revoke(lease)).await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.time(self.inner.compact(through)).await
    }
}
