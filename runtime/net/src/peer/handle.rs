//! What the node holds of a peer.
//!
//! Owns the typed side of sending. Must not: keep the network alive, or know links.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use wasmrun_model::id::{Incarnation, NodeId};

use super::{PeerCore, PeerInfo, Tally, Traffic};
use crate::wire::frame::{self, FrameError};
use crate::wire::hello::Version;
use crate::wire::{CallError, ConnectError, LinkHint, Protocol, SendError, TooNew};

/// Another node, whether or not it is connected now. Cheap to clone; it does not keep the network open.
pub struct Peer<P> {
    core: Arc<PeerCore>,
    protocol: PhantomData<fn() -> P>,
}

impl<P> Clone for Peer<P> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
            protocol: PhantomData,
        }
    }
}

impl<P> std::fmt::Debug for Peer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer({})", self.core.id)
    }
}

impl<P: Protocol> Peer<P> {
    pub(crate) fn new(core: Arc<PeerCore>) -> Self {
        Self {
            core,
            protocol: PhantomData,
        }
    }

    pub(crate) fn core(&self) -> &Arc<PeerCore> {
        &self.core
    }

    /// Who it is.
    pub fn id(&self) -> NodeId {
        self.core.id
    }

    /// Who and what is connected; `None` while nobody is.
    pub fn info(&self) -> Option<PeerInfo> {
        self.core.status().info
    }

    /// The protocol version of both sides: the lower one. `None` until this incarnation of the peer has connected.
    pub fn speaks(&self) -> Option<Version> {
        self.core.version()
    }

    /// How much has gone over the connection that there is; `None` if there is none. Bulk does not count.
    pub fn traffic(&self) -> Option<Traffic> {
        self.core.traffic()
    }

    /// What has gone over all connections with it, for people. Bulk does not count.
    pub fn tally(&self) -> Tally {
        self.core.tally()
    }

    /// The incarnation that is connected, if any.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.core.connected_incarnation()
    }

    /// Waits until it is connected.
    ///
    /// # Errors
    /// When dialling it fails in a way that time alone does not mend, or the peer is closed.
    pub async fn connected(&self) -> Result<PeerInfo, ConnectError> {
        let mut watch = self.core.watch();
        let status = watch
            .wait_for(|status| {
                status.is_closed
                    || status.info.is_some()
                    || status
                        .error
                        .as_ref()
                        .is_some_and(ConnectError::is_permanent)
            })
            .await;
        let status = status.map_err(|_| ConnectError::Closed)?;
        match (&status.info, &status.error) {
            (Some(info), _) => Ok(info.clone()),
            (None, Some(error)) if !status.is_closed => Err(error.clone()),
            (None, _) => Err(ConnectError::Closed),
        }
    }

    /// Sends a one-way message: returns when it is taken, which may wait for the peer to accept earlier
    /// ones. What one caller sends arrives in its order, once, whatever happens to connections, as
    /// long as this process and the peer's live and neither forgets the other. A message that is new in our version
    /// waits for the first connection, which shows whether the peer knows it.
    ///
    /// # Errors
    /// When it is too long or too new, or the peer is closed.
    pub async fn send(&self, message: &P::OneWay) -> Result<(), SendError> {
        self.send_to(None, message).await
    }

    /// Sends a one-way message to this incarnation of the peer, which was connected or
    /// [expected](crate::Network::expect).
    ///
    /// # Errors
    /// As [`Self::send`], and when the peer is in another incarnation by the time that there is room.
    pub async fn send_in(
        &self,
        incarnation: Incarnation,
        message: &P::OneWay,
    ) -> Result<(), SendError> {
        self.send_to(Some(incarnation), message).await
    }

    async fn send_to(
        &self,
        incarnation: Option<Incarnation>,
        message: &P::OneWay,
    ) -> Result<(), SendError> {
        let since = P::one_way_since(message);
        self.greeted(since).await.map_err(|_| SendError::Closed)?;
        self.knows(since)?;
        let bytes = self.encode(message)?;
        self.core.outbox.send(&bytes, incarnation).await
    }

    /// Sends a one-way message if it can be taken at once; else as [`Self::send`].
    ///
    /// # Errors
    /// As there, and when too much is waiting, or the message would have to wait for the first connection.
    pub fn try_send(&self, message: &P::OneWay) -> Result<(), SendError> {
        self.knows(P::one_way_since(message))?;
        let bytes = self.encode(message)?;
        self.core.outbox.try_send(&bytes)
    }

    /// Waits until the peer has accepted all one-way messages, or is closed.
    pub async fn flushed(&self) {
        self.core.outbox.flushed().await;
    }

    /// Sends a request and waits for its response. It is carried out at most once in an incarnation of the peer,
    /// however often connections are lost meanwhile. Dropping the future stops it at the peer.
    ///
    /// # Errors
    /// See [`CallError`], which says for each what is known about the request.
    pub async fn call(
        &self,
        request: &P::Request,
        wait: Duration,
    ) -> Result<P::Response, CallError> {
        self.call_to(None, request, wait).await
    }

    /// Asks this incarnation of the peer, which was connected or [expected](crate::Network::expect).
    ///
    /// # Errors
    /// As [`Self::call`], and [`CallError::OtherIncarnation`] when the peer is in another incarnation before the
    /// request is sent.
    pub async fn call_in(
        &self,
        incarnation: Incarnation,
        request: &P::Request,
        wait: Duration,
    ) -> Result<P::Response, CallError> {
        self.call_to(Some(incarnation), request, wait).await
    }

    async fn call_to(
        &self,
        incarnation: Option<Incarnation>,
        request: &P::Request,
        wait: Duration,
    ) -> Result<P::Response, CallError> {
        let deadline = Instant::now() + wait;
        let body = Bytes::from(self.encode(request)?);
        let timed_out = || CallError::TimedOut {
            after: wait,
            state: match self.core.status().info {
                Some(_) => LinkHint::Connected,
                None => LinkHint::NotConnected,
            },
        };
        let since = P::request_since(request);
        let greeted = timeout_at(deadline, self.greeted(since)).await;
        greeted
            .map_err(|_| timed_out())?
            .map_err(|_| CallError::Closed)?;
        self.knows(since)?;
        let slot = timeout_at(deadline, self.core.slots.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| timed_out())?;
        let slot = Arc::new(slot.map_err(|_| CallError::Closed)?);
        let (id, answer) = self.core.call(incarnation, body, deadline, slot.clone())?;
        let mut guard = CancelOnDrop {
            core: &self.core,
            id: Some(id),
        };
        let answer = match timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => return Err(timed_out()),
        };
        guard.id = None;
        drop(slot);
        match answer {
            Ok(Ok(bytes)) => Ok(frame::decode(&bytes)?),
            Ok(Err(CallError::TimedOut { .. })) => Err(timed_out()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::Closed),
        }
    }

    /// Whether the peer knows what came with this minor number of ours.
    pub(crate) fn knows(&self, since: u16) -> Result<(), TooNew> {
        if P::VERSION.is_old(since) {
            return Ok(());
        }
        match self.speaks() {
            Some(spoken) if spoken.has(since) => Ok(()),
            spoken => Err(TooNew {
                since: Version {
                    minor: since,
                    ..P::VERSION
                },
                spoken,
            }),
        }
    }

    /// Waits until it can be said whether the peer knows what came with this minor number of ours.
    ///
    /// # Errors
    /// When the peer is closed.
    pub(crate) async fn greeted(&self, since: u16) -> Result<(), ConnectError> {
        if P::VERSION.is_old(since) || self.speaks().is_some() {
            return Ok(());
        }
        let mut watch = self.core.watch();
        let status = watch
            .wait_for(|status| status.is_closed || status.info.is_some())
            .await;
        match status {
            Ok(status) if !status.is_closed => Ok(()),
            _ => Err(ConnectError::Closed),
        }
    }

    fn encode<T: serde::Serialize>(&self, message: &T) -> Result<Vec<u8>, FrameError> {
        frame::encode(message, self.core.max_message_bytes)
    }
}

/// Tells the peer when nobody waits any more.
struct CancelOnDrop<'a> {
    core: &'a PeerCore,
    id: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.core.cancel(id);
        }
    }
}
