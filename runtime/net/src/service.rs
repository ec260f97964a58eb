//! What the user of a network brings: what becomes of the messages of its [`Protocol`].
//!
//! Owns the trait [`Service`], and the step between typed messages and bytes: below it, nothing knows the types. Must
//! not: do I/O.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use wasmrun_model::id::Incarnation;

use crate::bulk::{BulkRefusal, BulkSender, Range, Source};
use crate::event::{CoreEvent, Event};
use crate::peer::{Inbound, Peer, PeerCore};
use crate::session::Session;
use crate::streams::ByteStream;
use crate::wire::Protocol;
use crate::wire::frame::{self, Batch, Failure};

/// What becomes of messages. All futures may be dropped when the network is closed.
pub trait Service<P: Protocol>: Send + Sync + 'static {
    /// A one-way message of this incarnation of a peer, which may have been followed by another since. The next message of
    /// the peer comes when this future is done; until then the peer's messages pile up at the peer.
    fn one_way(
        &self,
        from: &Peer<P>,
        incarnation: Incarnation,
        message: P::OneWay,
    ) -> impl Future<Output = ()> + Send;

    /// A request. Many run at a time. Dropped when the peer waits no longer.
    fn request(
        &self,
        from: &Peer<P>,
        request: P::Request,
    ) -> impl Future<Output = P::Response> + Send;

    /// Sends a range of bytes to whoever asks for it, exactly as long as asked for. Dropped when the
    /// peer waits no longer.
    fn bulk(
        &self,
        from: &Peer<P>,
        request: P::Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> impl Future<Output = Result<(), BulkRefusal>> + Send;

    /// A stream that a peer has opened. Closed at once unless the service does something else. Dropped when its connection
    /// ends; who needs the stream for longer than this runs keeps it elsewhere.
    fn stream(&self, _from: &Peer<P>, stream: ByteStream) -> impl Future<Output = ()> + Send {
        async { drop(stream) }
    }

    /// The session of a client, to its end. Dropped when the network is closed; the client gets what was written
    /// until then. Closed at once unless the service does something else.
    fn session(&self, session: Session) -> impl Future<Output = ()> + Send {
        async { drop(session) }
    }

    /// Somebody came or went. The next event waits for the return.
    fn event(&self, _event: Event<P>) {}
}

/// A [`Service`] without its types, as far as [`Inbound`] and [`Source`] do not have it.
pub(crate) trait Handler: Send + Sync {
    fn stream(&self, from: Arc<PeerCore>, stream: ByteStream) -> BoxFuture<'static, ()>;
    fn session(&self, session: Session) -> BoxFuture<'static, ()>;
    fn event(&self, event: CoreEvent);
}

pub(crate) struct Typed<P, S> {
    service: Arc<S>,
    max_message_bytes: usize,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol, S: Service<P>> Typed<P, S> {
    pub(crate) fn new(service: Arc<S>, max_message_bytes: usize) -> Self {
        Self {
            service,
            max_message_bytes,
            protocol: PhantomData,
        }
    }
}

impl<P: Protocol, S: Service<P>> Inbound for Typed<P, S> {
    fn one_ways(
        &self,
        from: Arc<PeerCore>,
        incarnation: Incarnation,
        batch: Batch,
    ) -> BoxFuture<'static, ()> {
        let service = self.service.clone();
        Box::pin(async move {
            let from = Peer::new(from);
            for payload in batch {
                match frame::decode(&payload) {
                    Ok(message) => service.one_way(&from, incarnation, message).await,
                    // The frame is whole, so the next message can be read. The versions fit, so this is a bug
                    // or malice at the other end, which sends nothing newer than we speak.
                    Err(_) => tracing::warn!(
                        peer = %from.id(), bytes = payload.len(),
                        "a one-way message cannot be decoded and is left out"
                    ),
                }
            }
        })
    }

    fn request(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Failure>> {
        let service = self.service.clone();
        let max_bytes = self.max_message_bytes;
        Box::pin(async move {
            let request = frame::decode(&body).map_err(|_| Failure::Malformed)?;
            drop(body);
            let from = Peer::<P>::new(from);
            let response = service.request(&from, request).await;
            if let Err(error) = from.knows(P::response_since(&response)) {
                tracing::error!(peer = %from.id(), %error, "a response is not for this peer");
                return Err(Failure::Forgotten);
            }
            let bytes = frame::encode(&response, max_bytes).map_err(|_| Failure::TooLong)?;
            Ok(Bytes::from(bytes))
        })
    }
}

impl<P: Protocol, S: Service<P>> Source for Typed<P, S> {
    fn bulk(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
        range: Range,
        mut to: BulkSender,
    ) -> BoxFuture<'static, (BulkSender, Result<(), BulkRefusal>)> {
        let service = self.service.clone();
        Box::pin(async move {
            let sent = match frame::decode(&body) {
                Ok(request) => {
                    service
                        .bulk(&Peer::new(from), request, range, &mut to)
                        .await
                }
                Err(_) => Err(BulkRefusal::Malformed),
            };
            (to, sent)
        })
    }
}

impl<P: Protocol, S: Service<P>> Handler for Typed<P, S> {
    fn stream(&self, from: Arc<PeerCore>, stream: ByteStream) -> BoxFuture<'static, ()> {
        let service = self.service.clone();
        Box::pin(async move { service.stream(&Peer::new(from), stream).await })
    }

    fn session(&self, session: Session) -> BoxFuture<'static, ()> {
        let service = self.service.clone();
        Box::pin(async move { service.session(session).await })
    }

    fn event(&self, event: CoreEvent) {
        self.service.event(Event::new(event));
    }
}
