//! Sessions of clients: a connection with one stream both ways, and nothing else.
//!
//! Owns both ends of it, and how many there may be. Must not: know what goes over the stream. A client's
//! certificate opens this and [`crate::renew`]; a node's does not open it.
//!
//! Invariants: a client holds no more of our memory here than the windows of its connection; a session that has
//! ended here has a second to take what was written last; one whose client is silent for [`Timing::idle`] ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use wasmrun_model::access::Access;

use crate::config::{Limits, Timing};
use crate::identity::{ClientId, Identity, Names, ROLE_NODE_DNS, Role};
use crate::transport::tls::{self, ALPN_CLIENT};
use crate::transport::{self, Kind};
use crate::wire::hello::Refusal;
use crate::wire::{Close, ConnectError, FAREWELL, Lost};

/// How many bytes may be on their way to a client that it has not confirmed.
const SEND_WINDOW: u64 = 2 << 20;

/// A session, as either side has it.
#[derive(Debug)]
pub struct Session {
    /// Whose it is.
    pub client: ClientId,
    /// What that may do, if its certificate says.
    pub access: Option<Access>,
    /// When that ends, in seconds since 1970; 0 if it does not say. The session goes on.
    pub until_s: u64,
    /// Where the other side is.
    pub remote: SocketAddr,
    /// What comes from there.
    pub reader: SessionReader,
    /// What goes there.
    pub writer: SessionWriter,
}

/// The bytes that come. Dropping it tells the other side that no more are wanted.
#[derive(Debug)]
pub struct SessionReader {
    stream: RecvStream,
    connection: Connection,
    idle: std::time::Duration,
}

/// The way to the other side. Dropping it ends what goes there; what was written still arrives.
#[derive(Debug)]
pub struct SessionWriter(SendStream);

impl Session {
    fn new(
        (client, access, until_s): (ClientId, Option<Access>, u64),
        connection: &Connection,
        (writer, reader): (SendStream, RecvStream),
        timing: &Timing,
    ) -> Self {
        Self {
            client,
            access,
            until_s,
            remote: connection.remote_address(),
            reader: SessionReader {
                stream: reader,
                connection: connection.clone(),
                idle: timing.idle,
            },
            writer: SessionWriter(writer),
        }
    }

    /// Opens a session with the node at this address. To be called in a tokio runtime, which drives it. The node
    /// hears of it with the first bytes that are written, and closes it then if it does not want it.
    ///
    /// # Errors
    /// When nobody answers there, it is no node of the identity's cluster, or the identity is no client's or has ended.
    pub async fn open(
        identity: &Identity,
        address: SocketAddr,
        timing: &Timing,
    ) -> Result<Self, ConnectError> {
        let unfit = |why: String| ConnectError::Identity { why };
        let Role::Client(client) = identity.role() else {
            return Err(unfit("it is a node's, and not a client's".into()));
        };
        let local: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let refused = |why: String| ConnectError::Address { address, why };
        let endpoint = transport::endpoint(SocketAddr::new(local, 0), Handle::current());
        let endpoint = endpoint.map_err(|error| refused(error.to_string()))?;
        let tls = tls::client(identity, ALPN_CLIENT).map_err(|error| unfit(error.to_string()))?;
        let config = transport::client(tls, address.ip(), Kind::Control, timing);
        let connecting = endpoint
            .connect_with(config, address, ROLE_NODE_DNS)
            .map_err(|error| refused(error.to_string()))?;
        let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(address, &error);
        let connected = timeout(timing.handshake, connecting).await;
        let connection = connected.map_err(|_| ConnectError::Unreachable { address })?;
        let connection = connection.map_err(from_quinn)?;
        let streams = connection.open_bi().await.map_err(from_quinn)?;
        let who = (client, identity.access().cloned(), identity.valid_until_s());
        Ok(Self::new(who, &connection, streams, timing))
    }
}

impl Session {
    /// Ends it with the words that clients are not served now.
    pub fn turn_away(self) {
        let connection = &self.reader.connection;
        connection.close(Close::NotServing.code(), b"");
    }
}

impl SessionReader {
    /// Why the connection has ended, if it has.
    pub fn ended(&self) -> Option<ConnectError> {
        let error = self.connection.close_reason()?;
        let address = self.connection.remote_address();
        Some(match ConnectError::from_quinn(address, &error) {
            // Once there is a connection.
            ConnectError::Unreachable { .. } => ConnectError::Lost {
                address,
                why: Lost::Silent { after: self.idle },
            },
            error => error,
        })
    }
}

impl AsyncRead for SessionReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.stream), cx, buffer)
    }
}

impl AsyncWrite for SessionWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

/// The sessions that there are.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_client: Mutex<BTreeMap<ClientId, usize>>,
    count: watch::Sender<usize>,
    /// Whether all are to end.
    ending: watch::Sender<bool>,
    /// Whose certificates were taken back.
    revoked: watch::Sender<BTreeSet<ClientId>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            by_client: Mutex::default(),
            count: watch::Sender::new(0),
            ending: watch::Sender::new(false),
            revoked: watch::Sender::default(),
        }
    }
}

/// The place of a session among those that there may be.
struct Seat {
    sessions: Arc<Sessions>,
    client: ClientId,
}

impl Seat {
    fn take(sessions: &Arc<Sessions>, client: ClientId, limits: &Limits) -> Option<Self> {
        let mut by_client = sessions.by_client.lock();
        let all: usize = by_client.values().sum();
        let own = by_client.get(&client).copied().unwrap_or(0);
        if all >= limits.sessions || own >= limits.sessions_of_one || *sessions.ending.borrow() {
            return None;
        }
        by_client.insert(client, own + 1);
        sessions.count.send_replace(all + 1);
        drop(by_client);
        let sessions = sessions.clone();
        Some(Self { sessions, client })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut by_client = self.sessions.by_client.lock();
        if let Some(own) = by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                by_client.remove(&self.client);
            }
        }
        let all = by_client.values().sum();
        self.sessions.count.send_replace(all);
    }
}

impl Sessions {
    /// From now on these have no sessions here, and those that they have end.
    pub(crate) fn set_revoked(&self, revoked: BTreeSet<ClientId>) {
        self.revoked.send_replace(revoked);
    }

    /// Whether somebody's certificate was taken back.
    pub(crate) fn is_revoked(&self, role: Option<Role>) -> bool {
        matches!(role, Some(Role::Client(client)) if self.revoked.borrow().contains(&client))
    }

    /// Lets all end, and waits until their clients have what was written for them.
    pub(crate) async fn end(&self) {
        self.ending.send_replace(true);
        // The sender is ours.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A session that was let in, and is to be served.
pub(crate) struct Admitted {
    session: Session,
    connection: Connection,
    seat: Seat,
}

/// Lets a client in.
pub(crate) async fn admit(
    sessions: &Arc<Sessions>,
    (limits, timing): (&Limits, &Timing),
    connection: Connection,
    names: Option<Names>,
) -> Result<Admitted, ConnectError> {
    let role = names.as_ref().and_then(|it| it.role);
    let address = connection.remote_address();
    let closed = |why: Close, error: ConnectError| {
        connection.close(why.code(), b"");
        error
    };
    if sessions.is_revoked(role) {
        let why = match role {
            Some(Role::Client(client)) => format!("the certificate of client {client} was revoked"),
            _ => "its certificate was revoked".to_owned(),
        };
        let error = ConnectError::Untrusted { address, why };
        return Err(closed(Close::Revoked, error));
    }
    let client = match role {
        Some(Role::Client(client)) => client,
        other => {
            let (close, why) = match other {
                None => (Close::NoCertificate, "it has no certificate"),
                Some(_) => (Close::NotClient, "its certificate is no client's"),
            };
            let why = why.into();
            return Err(closed(close, ConnectError::Untrusted { address, why }));
        }
    };
    let Some(seat) = Seat::take(sessions, client, limits) else {
        let why = Refusal::Full;
        return Err(closed(Close::Full, ConnectError::WeRefuse { address, why }));
    };
    connection.set_send_window(SEND_WINDOW);
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(0));
    let streams = connection.accept_bi().await;
    let streams = streams.map_err(|error| ConnectError::from_quinn(address, &error))?;
    let (access, until_s) = names.map_or((None, 0), |it| (it.access, it.until));
    let who = (client, access, until_s);
    Ok(Admitted {
        session: Session::new(who, &connection, streams, timing),
        connection,
        seat,
    })
}

impl Admitted {
    /// Has the session served to its end.
    pub(crate) async fn run(self, serve: impl FnOnce(Session) -> BoxFuture<'static, ()>) {
        let Self {
            session,
            connection,
            seat,
        } = self;
        let (client, from) = (session.client, session.remote);
        tracing::info!(%client, %from, "a client is connected");
        let mut ending = seat.sessions.ending.subscribe();
        let mut revoked = seat.sessions.revoked.subscribe();
        let mut serving = serve(session);
        tokio::select! {
            () = &mut serving => {}
            _ = ending.wait_for(|is_ending| *is_ending) => {}
            _ = revoked.wait_for(|revoked| revoked.contains(&client)) => {
                // Before its streams end with the service, which would say less.
                connection.close(Close::Revoked.code(), b"");
            }
        }
        drop(serving);
        // What was written last is still to arrive; the client closes when it has it.
        let _ = timeout(FAREWELL, connection.closed()).await;
        connection.close(Close::Finished.code(), b"");
        tracing::info!(%client, %from, "a client has left");
        drop(seat);
    }
}
