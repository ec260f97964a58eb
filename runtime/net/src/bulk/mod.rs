//! Bulk streams: ranges of bytes, straight into memory of whoever asks.
//!
//! Owns the bytes of these streams. Must not: know what the bytes are.
//!
//! The one who asks opens a connection of its own for it, and a stream for each range:
//!
//! ```text
//! there    a frame: offset and length of the range in postcard, then the request
//! back     one byte, 0 or why not, then exactly as many bytes as were asked for, then their checksum
//! ```
//!
//! The checksum is CRC-32 (ISO-HDLC), little-endian. What changes bytes on the way is kept out by TLS; it is for
//! what changes them before: the sender may know it from when the bytes were made ([`BulkSender::set_sum`]).
//!
//! Invariants: nobody holds more than the windows of the connection; a stream on which nothing moves is
//! given up; dropping either end stops the other.

mod pull;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use quinn::Connection;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

pub use pull::{Arrived, PullError, PullOptions, PullWhy};
pub(crate) use serve::serve;
pub use serve::{BulkSendError, BulkSender};

use crate::core::Core;
use crate::error::{Close, ConnectError};
use crate::hello::Purpose;
use crate::peer::PeerCore;

/// How many bulk connections one peer may have open to us. The oldest is closed for a further one.
const SERVED: usize = 4;

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Range {
    /// Where it begins.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// Why somebody does not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BulkRefusal {
    /// It does not have these bytes.
    #[error("the peer does not have these bytes: ask another holder")]
    NotHere,
    /// It has too much to do.
    #[error("the peer is busy: ask another holder, or later")]
    Busy,
    /// It does not understand the request.
    #[error("the peer could not decode the request: use the same wasmrun on both sides")]
    Malformed,
    /// Something broke.
    #[error("the peer could not read these bytes: ask another holder")]
    Failed,
}

/// The checksum of bytes that go over bulk streams: CRC-32, as in Ethernet.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

impl BulkRefusal {
    const ALL: [Self; 4] = [Self::NotHere, Self::Busy, Self::Malformed, Self::Failed];

    fn code(self) -> u8 {
        match self {
            Self::NotHere => 1,
            Self::Busy => 2,
            Self::Malformed => 3,
            Self::Failed => 4,
        }
    }

    fn of(code: u8) -> Self {
        let known = Self::ALL.into_iter().find(|why| why.code() == code);
        // One that a later version has.
        known.unwrap_or(Self::Failed)
    }
}

/// The connections with one peer that have this purpose, bulk or streams.
#[derive(Debug)]
pub(crate) struct BulkPool {
    purpose: Purpose,
    ours: Mutex<Option<Connection>>,
    theirs: Mutex<Vec<Connection>>,
    /// One dials, the others wait for it.
    dialling: Semaphore,
}

impl BulkPool {
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
            match crate::dial::apart(core, address, peer, self.purpose).await {
                Ok(connection) => {
                    *self.ours.lock() = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn serving(&self, connection: Connection) {
        let mut theirs = self.theirs.lock();
        theirs.retain(|other| other.close_reason().is_none());
        if theirs.len() >= SERVED {
            theirs.remove(0).close(Close::Replaced.code(), b"");
        }
        theirs.push(connection);
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
