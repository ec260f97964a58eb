//! What carries a session's bytes: a socket of this machine, or a session on the network.
//!
//! Owns opening both, and who may be at the other end. Must not: know what goes over them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
    if !is_trusted(path.as_str(), peer.uid()) {
        return Err(ConnectError::NotOurs {
            address: address.clone(),
        });
    }
    let (reader, writer) = stream.into_split();
    Ok((LineReader::Socket(reader), LineWriter::Socket(writer)))
}

/// Whether the node of this user may be the one that is meant by a path. Another user's may if somebody has named the path,
/// and only that user can have put the socket there.
fn is_trusted(path: &str, user: u32) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    if user == ours {
        return true;
    }
    let runtime_dir = std::env::var("XDG_RUNTIME_DIR").ok();
    if Address::default_for(runtime_dir.as_deref(), ours).to_string() == format!("unix:{path}") {
        return false;
    }
    let folder = Path::new(path).parent();
    let meta = folder.and_then(|folder| std::fs::metadata(folder).ok());
    meta.is_some_and(|meta| [0, user].contains(&meta.uid()) && meta.mode() & 0o022 == 0)
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
    pub(crate) fn close_reason(&self) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn another_users_node_is_one_where_that_user_alone_can_put_a_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.sock");
        let path = path.to_str().unwrap();
        let ours = rustix::process::geteuid().as_raw();
        set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(is_trusted(path, ours));
        assert!(!is_trusted(path, ours + 1));
        set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        // It is our folder, or root's: what is in it is neither another's doing.
        assert_eq!(is_trusted(path, ours + 1), ours == 0);
        let default = Address::default_for(std::env::var("XDG_RUNTIME_DIR").ok().as_deref(), ours);
        let default = default.to_string();
        assert!(!is_trusted(
            default.strip_prefix("unix:").unwrap(),
            ours + 1
        ));
    }
}
