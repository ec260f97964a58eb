//! Accepting: from a datagram of somebody unknown to a link, a bulk connection, a session or a certificate.
//!
//! Owns the accepting side of the hello. Invariants: without a certificate of our cluster there is
//! nothing but enrolment; with a client's nothing but that and a session; until the hello is done a peer can make us hold a few KiB and one task, of which
//! there is a limited number; whoever is turned away is told why, in words where it can understand them.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use quinn::{Connection, Incoming};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::bulk::BulkServer;
use crate::config::Enrolment;
use crate::enroll::Issuer;
use crate::identity::Role;
use crate::peer::{Adopted, Candidate, Core, PeerCore, PeerInfo, Serving};
use crate::service::Handler;
use crate::session::{self, Admitted, Sessions};
use crate::streams;
use crate::transport;
use crate::transport::lane::Switch;
use crate::transport::tls::{self, ALPN_CLIENT, ALPN_JOIN, ALPN_MEMBER};
use crate::wire::frame::FrameReader;
use crate::wire::hello::{
    self, Answer, Hello, HelloAnswer, HelloError, MAX_ADDRESSES, Purpose, Refusal, Welcome,
};
use crate::wire::{Close, ConnectError, Lost, farewell};

/// What connections that others open lead to.
pub(crate) struct Acceptor {
    core: Arc<Core>,
    handler: Arc<dyn Handler>,
    sessions: Arc<Sessions>,
    issuer: Issuer,
    bulk: Arc<BulkServer>,
    /// Where bulk connections and streams are driven and served.
    bulk_lane: Handle,
    /// A permit for each connection that may be set up at a time.
    handshakes: Arc<Semaphore>,
}

impl Acceptor {
    pub(crate) fn new(
        core: Arc<Core>,
        handler: Arc<dyn Handler>,
        sessions: Arc<Sessions>,
        enrolment: Option<Enrolment>,
        (bulk, bulk_lane): (Arc<BulkServer>, Handle),
    ) -> Self {
        Self {
            handshakes: Arc::new(Semaphore::new(core.limits.handshakes)),
            issuer: Issuer::new(core.me.cluster, enrolment, sessions.clone()),
            core,
            handler,
            sessions,
            bulk,
            bulk_lane,
        }
    }
}

/// Accepts connections until the network is closed.
pub(crate) async fn listen(acceptor: Arc<Acceptor>) {
    let core = &acceptor.core;
    while let Some(incoming) = core.endpoint.accept().await {
        let Ok(place) = acceptor.handshakes.clone().try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        // With many under way, addresses must be shown to be real before any work is done for them.
        let is_crowded = acceptor.handshakes.available_permits() < core.limits.handshakes / 2;
        if is_crowded && !incoming.remote_address_validated() && incoming.may_retry() {
            // It may be done, as was just asked.
            let _ = incoming.retry();
            continue;
        }
        let from = incoming.remote_address();
        let acceptor = acceptor.clone();
        core.tasks.spawn(async move {
            let core = &acceptor.core;
            let connected = OnceLock::new();
            let greeted = greet(&acceptor, incoming, &connected);
            let greeted = timeout(core.timing.handshake, greeted).await;
            drop(place);
            // Unless it is closed already. Dropped without a word, it would seem that we have stopped.
            let close = |why: Close| {
                let connection: Option<&Connection> = connected.get();
                connection.inspect(|it| it.close(why.code(), b""));
            };
            match greeted {
                Ok(Ok(Some(next))) => {
                    drop(connected);
                    next.run(&acceptor).await;
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    close(Close::Protocol);
                    core.refused(from, error);
                }
                Err(_) => {
                    close(Close::Late);
                    let after = core.timing.handshake;
                    let why = Lost::Silent { after };
                    core.refused(from, ConnectError::Lost { address: from, why });
                }
            }
        });
    }
}

/// What an accepted connection is used for.
enum Next {
    Link(Box<Serving>),
    Bulk(Connection, Arc<PeerCore>),
    Streams(Connection, Arc<PeerCore>),
    Session(Box<Admitted>),
}

impl Next {
    async fn run(self, acceptor: &Acceptor) {
        let Acceptor {
            core,
            handler,
            bulk,
            bulk_lane,
            ..
        } = acceptor;
        match self {
            Self::Link(serving) => serving.run(core.clone()).await,
            Self::Session(admitted) => {
                let handler = handler.clone();
                admitted.run(move |session| handler.session(session)).await;
            }
            Self::Bulk(connection, peer) => {
                let serving = bulk.clone().serve(peer, connection);
                core.tasks.spawn_on(serving, bulk_lane);
            }
            Self::Streams(connection, peer) => {
                let (handler, from) = (handler.clone(), peer.clone());
                let take = move |stream| handler.stream(from.clone(), stream);
                let serving = streams::serve(peer, connection, take);
                core.tasks.spawn_on(serving, bulk_lane);
            }
        }
    }
}

/// From the first datagram to a known peer; `None` when all is done already. The connection is left where whoever
/// gives it up finds it.
async fn greet(
    acceptor: &Acceptor,
    incoming: Incoming,
    connected: &OnceLock<Connection>,
) -> Result<Option<Next>, ConnectError> {
    let core = &acceptor.core;
    let from = incoming.remote_address();
    let config = {
        let tls = core.tls.lock();
        transport::server(&tls, from.ip(), &core.timing)
    };
    let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(from, &error);
    let lane = &acceptor.bulk_lane;
    let (connecting, to_bulk) = Switch::over(lane, || incoming.accept_with(Arc::new(config)));
    let connecting = connecting.map_err(from_quinn)?;
    let connection = connecting.await.map_err(from_quinn)?;
    let connection = connected.get_or_init(|| connection).clone();
    match alpn(&connection).as_deref() {
        Some(ALPN_JOIN) => {
            acceptor.issuer.answer(&connection, from).await?;
            Ok(None)
        }
        Some(ALPN_CLIENT) => {
            let names = tls::names(&connection, core.me.cluster);
            let bounds = (&core.limits, &core.timing);
            let admitted = session::admit(&acceptor.sessions, bounds, connection, names).await?;
            // A client may send and get a lot, which nodes' messages should not wait behind.
            to_bulk.turn();
            Ok(Some(Next::Session(Box::new(admitted))))
        }
        Some(ALPN_MEMBER) => greet_member(core, connection, from, &to_bulk).await,
        _ => {
            connection.close(Close::Protocol.code(), b"");
            let error = HelloError::NotWasmrun;
            Err(ConnectError::Hello {
                address: from,
                error,
            })
        }
    }
}

/// The rest of it, with a node.
async fn greet_member(
    core: &Arc<Core>,
    connection: Connection,
    from: SocketAddr,
    to_bulk: &Switch,
) -> Result<Option<Next>, ConnectError> {
    let Some(role) = tls::certified(&connection, core.me.cluster) else {
        connection.close(Close::NoCertificate.code(), b"a certificate is needed");
        return Err(ConnectError::Untrusted {
            address: from,
            why: "it has no certificate".into(),
        });
    };
    let accepted = connection.accept_bi().await;
    let accepted = accepted.map_err(|error| ConnectError::from_quinn(from, &error));
    let (mut writer, reader) = accepted?;
    let mut reader = FrameReader::new(reader, hello::MAX_BYTES);
    let words = match reader.one().await {
        Ok(words) => words,
        Err(error) => {
            connection.close(Close::Protocol.code(), b"");
            return Err(ConnectError::from_read(from, &error));
        }
    };
    let answer = |answer: &HelloAnswer| hello::frame(core.me.version, hello::SOFTWARE, answer);
    let why = match decide(core, &connection, from, role, &words) {
        Ok(Decided::Link(peer, adopted)) => {
            let first = answer(&welcome(core));
            return Ok(Some(Next::Link(Box::new(Serving {
                peer,
                adopted,
                writer,
                reader,
                first: Some(first),
            }))));
        }
        Ok(Decided::Apart(peer, purpose)) => {
            to_bulk.turn();
            // If it fails, so will accepting streams.
            let _ = writer.write_chunk(answer(&welcome(core))).await;
            return Ok(Some(match purpose {
                Purpose::Streams => Next::Streams(connection, peer),
                _ => Next::Bulk(connection, peer),
            }));
        }
        Err(why) => why,
    };
    let refusal = match &why {
        ConnectError::WeRefuse { why, .. } => *why,
        // It reads our version before these words.
        ConnectError::Hello {
            error: HelloError::Version { .. },
            ..
        } => Refusal::Version,
        _ => Refusal::Malformed,
    };
    if writer
        .write_chunk(answer(&Answer::No(refusal)))
        .await
        .is_ok()
    {
        farewell(&connection, writer).await;
    }
    match refusal {
        // The usual end of dialling from both sides at once.
        Refusal::Duplicate => Ok(None),
        _ => Err(why),
    }
}

fn welcome(core: &Core) -> HelloAnswer {
    Answer::Yes(Welcome {
        cluster: core.me.cluster,
        id: core.me.id,
        incarnation: core.me.incarnation,
        addresses: core.me.advertise.clone(),
    })
}

enum Decided {
    Link(Arc<PeerCore>, Adopted),
    Apart(Arc<PeerCore>, Purpose),
}

/// Who it is, and whether we want it.
fn decide(
    core: &Arc<Core>,
    connection: &Connection,
    from: SocketAddr,
    role: Role,
    words: &[u8],
) -> Result<Decided, ConnectError> {
    let hello = hello::decode::<Hello>(core.me.version, words);
    let (preamble, version, hello) = hello.map_err(|error| ConnectError::Hello {
        address: from,
        error,
    })?;
    let refuse = |why| ConnectError::WeRefuse { address: from, why };
    if hello.cluster != core.me.cluster {
        let cluster = core.me.cluster;
        return Err(refuse(Refusal::Cluster { cluster }));
    }
    if role != Role::Node(hello.id) {
        return Err(refuse(Refusal::Certificate { certified: role }));
    }
    if hello.addresses.len() > MAX_ADDRESSES {
        return Err(refuse(Refusal::Malformed));
    }
    core.saw(hello.id, hello.incarnation).map_err(refuse)?;
    let peer = core.peer(hello.id).map_err(refuse)?;
    let info = PeerInfo {
        id: hello.id,
        incarnation: hello.incarnation,
        version,
        software: preamble.software,
        addresses: hello.addresses,
        remote: from,
    };
    match hello.purpose {
        purpose @ (Purpose::Bulk | Purpose::Streams) => Ok(Decided::Apart(peer, purpose)),
        Purpose::Control {
            connection: nonce,
            last,
        } => {
            let candidate = Candidate {
                connection: connection.clone(),
                nonce,
                is_ours: false,
                info,
                peers_last: last,
            };
            let adopted = peer.adopt(core, candidate).map_err(refuse)?;
            Ok(Decided::Link(peer, adopted))
        }
    }
}

fn alpn(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?;
    let data = data
        .downcast::<quinn::crypto::rustls::HandshakeData>()
        .ok()?;
    data.protocol
}
