//! What carries a client's bytes: the machine's socket, or a session on the network.
//!
//! Owns the writing half. Must not: know what is written.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use wasmrun_net::SessionWriter;

/// The writing half of a connection.
pub(super) enum Way {
    /// Of a client on this machine. Descriptors can go beside the bytes.
    Socket(OwnedWriteHalf),
    /// Of one elsewhere.
    Network(SessionWriter),
}

impl Way {
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.write_all(bytes).await,
            Self::Network(session) => session.write_all(bytes).await,
        }
    }

    /// Says that nothing more comes.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.shutdown().await,
            Self::Network(session) => session.shutdown().await,
        }
    }

    /// What descriptors can be sent over, if it is that.
    pub(super) fn socket(&self) -> Option<&UnixStream> {
        match self {
            Self::Socket(socket) => Some(socket.as_ref()),
            Self::Network(_) => None,
        }
    }
}
