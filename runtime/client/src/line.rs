//! What carries a session's bytes: a socket of this machine, or a session on the network.
//!
//! Owns opening both, and who may be at the other end. Must not: know what goes over them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use wasmrun_model::wire::{Address, HostPort, SocketPath};
use wasmrun_net::{Identity, Session, SessionReader, SessionWriter, Timing};

use crate::error::ConnectError;

/// Where bytes come from.
#[derive(Debug)]
pub(crate) enum LineReader {
    /// Descriptors may come beside them.
    Socket(OwnedReadHalf),
    Network(SessionReader),
}

/// Where they go. Dropping it says that no more come.
#[derive(Debug)]
pub(crate) enum LineWriter {
    Socket(OwnedWriteHalf),
    Network(SessionWriter),
}

/// A connection to the node at this address. `identity` says who we are on the network.
pub(crate) async fn open(
    address: &Address,
    identity: Option<&Arc<Identity>>,
) -> Result<(LineReader, LineWriter), ConnectError> {
    match (address, identity) {
        (Address::Unix(path), _) => open_socket(address, path).await,
        (Address::Network(host), Some(identity)) => open_network(address, host, identity).await,
        (Address::Network(_), None) => Err(ConnectError::NoIdentity {
            address: address.clone(),
        }),
    }
}

async fn open_socket(
    address: &Address,
    path: &SocketPath,
) -> Result<(LineReader, LineWriter), ConnectError> {
    let io_error = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ConnectError::NotRunning {
            address: address.clone(),
        },
        _ => ConnectError::Io {
            address: address.clone(),
            error,
        },
    };
    let stream = UnixStream::connect(path.as_str()).await.map_err(io_error)?;
    let peer = stream.peer_cred().map_err(io_error)?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(ConnectError::NotOurs {
            address: address.clone(),
        });
    }
    let (reader, writer) = stream.into_split();
    Ok((LineReader::Socket(reader), LineWriter::Socket(writer)))
}

async fn open_network(
    address: &Address,
    host: &HostPort,
    identity: &Identity,
) -> Result<(LineReader, LineWriter), ConnectError> {
    let found = tokio::net::lookup_host(host.as_str()).await;
    let found = found.map_err(|error| ConnectError::Name {
        address: address.clone(),
        error,
    })?;
    let mut last = wasmrun_net::ConnectError::NoAddress;
    for at in found {
        match Session::open(identity, at, &Timing::default()).await {
            Ok(session) => {
                let reader = LineReader::Network(session.reader);
                return Ok((reader, LineWriter::Network(session.writer)));
            }
            Err(error) => last = error,
        }
    }
    Err(ConnectError::on_network(address, last))
}

impl LineReader {
    /// Why the node does not want us any more, if it has closed the connection and said so.
    pub(crate) fn told(&self) -> Option<String> {
        let Self::Network(session) = self else {
            return None;
        };
        match session.ended()? {
            wasmrun_net::ConnectError::NotAccepted { why, .. } => {
                Some(format!("it does not accept your certificate ({why})"))
            }
            wasmrun_net::ConnectError::Refused { why, .. } => Some(why.to_string()),
            _ => None,
        }
    }

    /// Why nothing more comes, where that is known.
    pub(crate) fn ended(&self, address: &Address) -> Option<ConnectError> {
        match self {
            Self::Socket(_) => None,
            Self::Network(session) => {
                let error = session.ended()?;
                Some(ConnectError::on_network(address, error))
            }
        }
    }
}

impl AsyncRead for LineReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Network(session) => Pin::new(session).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for LineWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Network(session) => Pin::new(session).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Self::Network(session) => Pin::new(session).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Network(session) => Pin::new(session).poll_shutdown(cx),
        }
    }
}
