//! What the node holds of a peer.
//!
//! Owns the typed side of sending. Must not: keep the network alive, or know links.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{PeerCore, PeerInfo, Tally, Traffic};
use wasmrun_model::id::{Incarnation, NodeId};

use crate::error::{CallError, ConnectError, LinkHint, Lost, SendError};
use crate::frame::{self, FrameError};
use crate::service::Protocol;

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

    /// How much has gone over the connection that there is; `None` if there is none. Bulk does not count.
    pub fn traffic(&self) -> Option<Traffic> {
        self.core.traffic()
    }

    /// What has gone over all connections with it, for people. Bulk does not count.
    pub fn tally(&self) -> Tally {
        self.core.tally()
    }

    /// Which life of it is connected; `None` while nobody is.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.core.connected_life()
    }

    /// Why the last connection was lost, if one was.
    pub fn lost(&self) -> Option<Lost> {
        self.core.status().lost
    }

    /// Where it is dialled.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.core.addresses()
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
    /// long as this process and the peer's live and neither forgets the other.
    ///
    /// # Errors
    /// When it is too long, or the peer is closed.
    pub async fn send(&self, message: &P::OneWay) -> Result<(), SendError> {
        let bytes = self.encode(message)?;
        self.core.outbox.send(&bytes).await
    }

    /// Sends a one-way message if it can be taken at once; else as [`Self::send`].
    ///
    /// # Errors
    /// As there, and when too much is waiting.
    pub fn try_send(&self, message: &P::OneWay) -> Result<(), SendError> {
        let bytes = self.encode(message)?;
        self.core.outbox.try_send(&bytes)
    }

    /// Waits until the peer has accepted all one-way messages, or is closed.
    pub async fn flushed(&self) {
        self.core.outbox.flushed().await;
    }

    /// Sends a request and waits for its response. It is carried out at most once in a life of the peer,
    /// however often connections are lost meanwhile. Dropping the future stops it at the peer.
    ///
    /// # Errors
    /// See [`CallError`], which says for each what is known about the request.
    pub async fn call(
        &self,
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
        let slot = timeout_at(deadline, self.core.slots.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| timed_out())?;
        let slot = Arc::new(slot.map_err(|_| CallError::Closed)?);
        let (id, answer) = self.core.call(body, deadline, slot.clone())?;
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
