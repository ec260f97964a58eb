//! What whoever uses the network brings: the types of its messages, and what becomes of them.
//!
//! Owns the traits [`Protocol`] and [`Service`], and the step between typed messages and bytes: below
//! it, nothing knows the types. Must not: do I/O.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmrun_model::id::Incarnation;

use crate::bulk::{BulkRefusal, BulkSender, Range};
use crate::event::Event;
use crate::frame::{self, Batch, Failure};
use crate::hello::Version;
use crate::peer::{Peer, PeerCore};
use crate::session::Session;
use crate::streams::ByteStream;

/// The messages that two sides exchange.
///
/// Messages are postcard, which says nothing about itself: whoever reads must have the very type that was written. So
/// a variant may be added to an enum, behind the others, and that is all that a minor version may do. A message that is
/// to have another field becomes a new variant beside the old one. What is new says with which minor number it came, and
/// is not sent to a peer that speaks an older one: [`Peer::send`] and the others refuse it, and [`Peer::speaks`] says
/// beforehand which of the two to send. What came with an earlier version than ours may be sent to all.
pub trait Protocol: Send + Sync + 'static {
    /// The version of these types. Raise the minor number when a message is added, the major one when
    /// an old one changes.
    const VERSION: Version;
    /// Sent without an answer, in order.
    type OneWay: Serialize + DeserializeOwned + Send + 'static;
    /// Has one [`Self::Response`].
    type Request: Serialize + DeserializeOwned + Send + 'static;
    /// Answers a [`Self::Request`].
    type Response: Serialize + DeserializeOwned + Send + 'static;
    /// Asks for bytes in bulk.
    type Bulk: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The minor number of the version that this message came with, and all that is in it.
    fn one_way_since(_message: &Self::OneWay) -> u16 {
        0
    }

    /// As [`Self::one_way_since`].
    fn request_since(_request: &Self::Request) -> u16 {
        0
    }

    /// As [`Self::one_way_since`]. A service asks [`Peer::speaks`] before it gives what is new; if it gives
    /// that nevertheless, the response is lost.
    fn response_since(_response: &Self::Response) -> u16 {
        0
    }

    /// As [`Self::one_way_since`].
    fn bulk_since(_request: &Self::Bulk) -> u16 {
        0
    }
}

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

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`Service`] without its types.
pub(crate) trait Handler: Send + Sync {
    fn one_ways(
        &self,
        from: Arc<PeerCore>,
        incarnation: Incarnation,
        batch: Batch,
    ) -> BoxFuture<()>;
    fn request(&self, from: Arc<PeerCore>, body: Bytes) -> BoxFuture<Result<Bytes, Failure>>;
    fn bulk(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
        range: Range,
        to: BulkSender,
    ) -> BoxFuture<(BulkSender, Result<(), BulkRefusal>)>;
    fn stream(&self, from: Arc<PeerCore>, stream: ByteStream) -> BoxFuture<()>;
    fn session(&self, session: Session) -> BoxFuture<()>;
    fn event(&self, event: crate::event::CoreEvent);
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

impl<P: Protocol, S: Service<P>> Handler for Typed<P, S> {
    fn one_ways(
        &self,
        from: Arc<PeerCore>,
        incarnation: Incarnation,
        batch: Batch,
    ) -> BoxFuture<()> {
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

    fn request(&self, from: Arc<PeerCore>, body: Bytes) -> BoxFuture<Result<Bytes, Failure>> {
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

    fn bulk(
        &self,
        from: Arc<PeerCore>,
        body: Bytes,
        range: Range,
        mut to: BulkSender,
    ) -> BoxFuture<(BulkSender, Result<(), BulkRefusal>)> {
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

    fn stream(&self, from: Arc<PeerCore>, stream: ByteStream) -> BoxFuture<()> {
        let service = self.service.clone();
        Box::pin(async move { service.stream(&Peer::new(from), stream).await })
    }

    fn session(&self, session: Session) -> BoxFuture<()> {
        let service = self.service.clone();
        Box::pin(async move { service.session(session).await })
    }

    fn event(&self, event: crate::event::CoreEvent) {
        self.service.event(Event::new(event));
    }
}
