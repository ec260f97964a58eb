//! The connections with a peer that are apart from messages: for bulk, and for streams.
//!
//! Owns dialling one when it is needed, and how many the peer may have open. Must not: know what goes over them.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use quinn::Connection;
use tokio::sync::Semaphore;

use super::{Core, PeerCore, dial};
use crate::wire::hello::Purpose;
use crate::wire::{Close, ConnectError};

/// How many connections with one purpose one peer may have open to us. The oldest is closed for a further one.
const SERVED: usize = 4;

/// The connections with one peer that have this purpose, bulk or streams.
#[derive(Debug)]
pub(crate) struct Pool {
    purpose: Purpose,
    ours: Mutex<Option<Connection>>,
    theirs: Mutex<Vec<Connection>>,
    /// One dials, the others wait for it.
    dialling: Semaphore,
}

impl Pool {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            ours: Mutex::default(),
            theirs: Mutex::default(),
            dialling: Semaphore::new(1),
        }
    }

    /// A connection to ask on. Ends when the peer is forgotten: one that is gone does not answer, and there is no
    /// need to wait for as long as others may take.
    pub(crate) async fn get(
        &self,
        core: &Arc<Core>,
        peer: &Arc<PeerCore>,
    ) -> Result<Connection, ConnectError> {
        let mut status = peer.watch();
        tokio::select! {
            connection = self.connect(core, peer) => connection,
            // Its sender is the peer's own.
            _ = status.wait_for(|status| status.is_closed) => Err(ConnectError::Closed),
        }
    }

    async fn connect(
        &self,
        core: &Arc<Core>,
        peer: &Arc<PeerCore>,
    ) -> Result<Connection, ConnectError> {
        let alive = || {
            let ours = self.ours.lock();
            ours.clone().filter(|ours| ours.close_reason().is_none())
        };
        if let Some(connection) = alive() {
            return Ok(connection);
        }
        let dialling = self.dialling.acquire().await;
        let _one = dialling.map_err(|_| ConnectError::Closed)?;
        if let Some(connection) = alive() {
            return Ok(connection);
        }
        let mut last = ConnectError::NoAddress;
        for address in addresses(peer) {
            match dial::apart(core, address, peer, self.purpose).await {
                Ok(connection) => {
                    *self.ours.lock() = Some(connection.clone());
                    if peer.is_closed() {
                        // What there was then has ended; this one came later.
                        self.close(Close::Forgotten);
                        return Err(ConnectError::Closed);
                    }
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A connection that the peer has opened is to be served: it is closed if the peer was let go of meanwhile.
    pub(crate) fn serving(&self, peer: &PeerCore, connection: Connection) {
        let mut theirs = self.theirs.lock();
        theirs.retain(|other| other.close_reason().is_none());
        if theirs.len() >= SERVED {
            theirs.remove(0).close(Close::Replaced.code(), b"");
        }
        theirs.push(connection);
        drop(theirs);
        if peer.is_closed() {
            // What there was then has ended; this one came later.
            self.close(Close::Forgotten);
        }
    }

    /// Ends all of them.
    pub(crate) fn close(&self, why: Close) {
        let ours = self.ours.lock().take();
        let theirs = std::mem::take(&mut *self.theirs.lock());
        for connection in ours.into_iter().chain(theirs) {
            connection.close(why.code(), b"");
        }
    }
}

/// Where a peer can be dialled, as far as is known.
fn addresses(peer: &PeerCore) -> Vec<SocketAddr> {
    let mut addresses = peer.addresses();
    if let Some(info) = peer.status().info {
        for address in info.addresses {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    addresses
}
