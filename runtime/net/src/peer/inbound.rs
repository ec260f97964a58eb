//! What takes what peers send: a service without its types.
//!
//! Owns the trait through which what has arrived leaves this folder. Must not: know who takes it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use wasmrun_model::id::Incarnation;

use super::PeerCore;
use crate::wire::frame::{Batch, Failure};

pub(crate) trait Inbound: Send + Sync {
    /// One-way messages of this incarnation of a peer. The next ones come when this is done.
    fn one_ways(
        &self,
        from: Arc<PeerCore>,
        incarnation: Incarnation,
        batch: Batch,
    ) -> BoxFuture<'static, ()>;

    /// A request, and its response.
    fn request(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Failure>>;
}
