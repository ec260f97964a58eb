//! Dialling: from an address to a link or a bulk connection, and staying connected.
//!
//! Owns the dialling side of the hello, and back-off. Invariant: one dial per peer at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, SendStream};
use tokio::time::{Instant, timeout};

use super::{Candidate, Core, PeerCore, PeerInfo, Serving};
use crate::config::Timing;
use crate::identity::{ROLE_NODE_DNS, Role};
use crate::transport::{Kind, tls};
use crate::wire::frame::FrameReader;
use crate::wire::hello::{self, Answer, Hello, HelloAnswer, HelloError, Purpose, Refusal, Welcome};
use crate::wire::{Close, ConnectError};

/// How long to wait between attempts to dial: exponential, bounded, from half of that to all of it at random, so that
/// nodes do not come back in step. A connection that is lost within moments is a failed attempt, too: a peer that
/// accepts all and keeps none would be dialled without pause.
#[derive(Debug, Default)]
struct Backoff {
    /// How many attempts have failed in a row.
    failures: u32,
    /// Since when there is a connection, if there is one.
    connected: Option<Instant>,
}

impl Backoff {
    /// An attempt has failed. How long to wait before the next one, by a number that was drawn.
    fn failed(&mut self, timing: &Timing, drawn: u64) -> Duration {
        let doubled = timing
            .backoff_min
            .saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let most = doubled.min(timing.backoff_max);
        let half_us = u64::try_from(most.as_micros() / 2).unwrap_or(u64::MAX);
        let extra = drawn % half_us.saturating_add(1);
        Duration::from_micros(half_us.saturating_add(extra))
    }

    /// There is a connection, whoever has dialled.
    fn connected(&mut self, now: Instant) {
        self.connected = Some(now);
    }

    /// There is no connection. Whether the last one was too brief to dial again at once. One that lasted for the
    /// longest wait was not: it was as long until it is dialled again.
    fn was_brief(&mut self, timing: &Timing, now: Instant) -> bool {
        let lasted = self.connected.take().map(|since| now - since);
        if lasted.is_some_and(|it| it >= timing.backoff_max) {
            self.failures = 0;
            return false;
        }
        lasted.is_some()
    }
}

/// A connection on which both have said who they are.
struct Greeted {
    connection: Connection,
    writer: SendStream,
    reader: FrameReader,
    info: PeerInfo,
}

/// Keeps a peer connected for as long as both live, and until it is let go of: that may have been before this begins.
pub(crate) async fn keep_connected(core: Arc<Core>, peer: Arc<PeerCore>) {
    let mut watch = peer.watch();
    let mut backoff = Backoff::default();
    loop {
        let to_do = watch.wait_for(|status| status.is_closed || status.info.is_none());
        let is_over = match to_do.await {
            Ok(status) => status.is_closed,
            Err(_) => true,
        };
        if is_over || core.is_closing() {
            return;
        }
        if !backoff.was_brief(&core.timing, Instant::now()) && dial(&core, &peer).await {
            backoff.connected(Instant::now());
            continue;
        }
        let wait = backoff.failed(&core.timing, core.draw());
        // A new address is a reason to try at once; the other side may connect.
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = peer.hurried() => {}
            _ = watch.wait_for(|status| status.is_closed || status.info.is_some()) => {
                backoff.connected(Instant::now());
            }
        }
    }
}

/// Dials the addresses of a peer in turn. Whether one of them has led to it.
async fn dial(core: &Arc<Core>, peer: &Arc<PeerCore>) -> bool {
    let addresses = peer.addresses();
    if addresses.is_empty() {
        peer.dial_failed(ConnectError::NoAddress);
    }
    for address in addresses {
        match control(core, address, Some(peer)).await {
            Ok(_) => return true,
            Err(error) => peer.dial_failed(error),
        }
    }
    false
}

/// Dials for a link.
pub(crate) async fn control(
    core: &Arc<Core>,
    address: SocketAddr,
    expected: Option<&Arc<PeerCore>>,
) -> Result<Arc<PeerCore>, ConnectError> {
    let nonce = core.draw();
    let last = expected.and_then(|peer| peer.last_link());
    let purpose = Purpose::Control {
        connection: nonce,
        last,
    };
    let greeted = greet(core, address, purpose, Kind::Control);
    let greeted = timeout(core.timing.handshake, greeted).await;
    let greeted = greeted.map_err(|_| ConnectError::Unreachable { address })??;
    let Greeted {
        connection,
        writer,
        reader,
        info,
    } = greeted;
    let we_refuse = |why| {
        // The other side has taken it for its link.
        let close = match why {
            Refusal::Duplicate => Close::Replaced,
            _ => Close::Finished,
        };
        connection.close(close.code(), b"");
        ConnectError::WeRefuse { address, why }
    };
    check_id(&connection, address, expected, &info)?;
    let peer = match expected {
        // One that was let go of meanwhile refuses it, and no other is to take its place.
        Some(peer) => peer.clone(),
        None => core.peer(info.id).map_err(we_refuse)?,
    };
    let candidate = Candidate {
        connection: connection.clone(),
        nonce,
        is_ours: true,
        info,
        peers_last: None,
    };
    let adopted = peer.adopt(core, candidate).map_err(we_refuse)?;
    let serving = Serving {
        peer: peer.clone(),
        adopted,
        writer,
        reader,
        first: None,
    };
    let served = core.tasks.spawn(serving.run(core.clone()));
    served.ok_or(ConnectError::Closed)?;
    Ok(peer)
}

/// Dials a peer for something that goes apart from messages.
pub(crate) async fn apart(
    core: &Arc<Core>,
    address: SocketAddr,
    peer: &Arc<PeerCore>,
    purpose: Purpose,
) -> Result<Connection, ConnectError> {
    let greeted = greet(core, address, purpose, Kind::Bulk);
    let greeted = timeout(core.timing.handshake, greeted).await;
    let greeted = greeted.map_err(|_| ConnectError::Unreachable { address })??;
    let connection = greeted.connection;
    check_id(&connection, address, Some(peer), &greeted.info)?;
    let saw = core.saw(greeted.info.id, greeted.info.incarnation);
    if let Err(why) = saw {
        connection.close(Close::Finished.code(), b"");
        return Err(ConnectError::WeRefuse { address, why });
    }
    Ok(connection)
}

fn check_id(
    connection: &Connection,
    address: SocketAddr,
    expected: Option<&Arc<PeerCore>>,
    info: &PeerInfo,
) -> Result<(), ConnectError> {
    match expected.map(|peer| peer.id) {
        Some(expected) if expected != info.id => {
            connection.close(Close::Finished.code(), b"");
            Err(ConnectError::WrongNode {
                address,
                expected,
                found: info.id,
            })
        }
        _ => Ok(()),
    }
}

async fn greet(
    core: &Core,
    address: SocketAddr,
    purpose: Purpose,
    kind: Kind,
) -> Result<Greeted, ConnectError> {
    let endpoint = match kind {
        Kind::Control => &core.endpoint,
        Kind::Bulk => &core.bulk_endpoint,
    };
    let config = core.dial_config(address.ip(), kind);
    let connecting = endpoint
        .connect_with(config, address, ROLE_NODE_DNS)
        .map_err(|error| match error {
            quinn::ConnectError::EndpointStopping => ConnectError::Closed,
            error => ConnectError::Address {
                address,
                why: error.to_string(),
            },
        })?;
    let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(address, &error);
    let connection = connecting.await.map_err(from_quinn)?;
    let (mut writer, reader) = connection.open_bi().await.map_err(from_quinn)?;
    let hello = Hello {
        cluster: core.me.cluster,
        id: core.me.id,
        incarnation: core.me.incarnation,
        addresses: core.me.advertise.clone(),
        purpose,
    };
    let version = core.me.version;
    let frame = hello::frame(version, hello::SOFTWARE, &hello);
    // If it fails, reading says why.
    let _ = writer.write_chunk(frame).await;
    let mut reader = FrameReader::new(reader, hello::MAX_BYTES);
    let answer = match reader.one().await {
        Ok(answer) => answer,
        Err(error) => {
            let error = match connection.close_reason() {
                Some(reason) => from_quinn(reason),
                None => ConnectError::from_read(address, &error),
            };
            connection.close(Close::Protocol.code(), b"");
            return Err(error);
        }
    };
    match understand(core, &connection, address, &answer) {
        Ok(info) => Ok(Greeted {
            connection,
            writer,
            reader,
            info,
        }),
        Err(error) => {
            connection.close(Close::Finished.code(), b"");
            Err(error)
        }
    }
}

/// What the answer to our hello says, checked against the certificate.
fn understand(
    core: &Core,
    connection: &Connection,
    address: SocketAddr,
    answer: &[u8],
) -> Result<PeerInfo, ConnectError> {
    let answer = hello::decode::<HelloAnswer>(core.me.version, answer);
    let (preamble, version, answer) =
        answer.map_err(|error| ConnectError::Hello { address, error })?;
    let welcome = match answer {
        Answer::Yes(welcome) => welcome,
        Answer::No(why) => return Err(ConnectError::Refused { address, why }),
    };
    let Welcome {
        cluster,
        id,
        incarnation,
        mut addresses,
    } = welcome;
    let untrusted = |why: &str| ConnectError::Untrusted {
        address,
        why: why.into(),
    };
    let role = tls::certified(connection, core.me.cluster);
    let role = role.ok_or_else(|| untrusted("its certificate has no role"))?;
    if cluster != core.me.cluster {
        return Err(untrusted("it says that it is of another cluster"));
    }
    if role != Role::Node(id) {
        return Err(untrusted("its certificate is another's"));
    }
    if addresses.len() > hello::MAX_ADDRESSES {
        let error = HelloError::Malformed;
        return Err(ConnectError::Hello { address, error });
    }
    addresses.shrink_to_fit();
    Ok(PeerInfo {
        id,
        incarnation,
        version,
        software: preamble.software,
        addresses,
        remote: address,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;
    use tokio::runtime::Handle;
    use wasmrun_model::id::{Incarnation, NodeId};

    use super::*;
    use crate::config::Limits;
    use crate::identity::Authority;
    use crate::peer::{Changes, Inbound, Me, Parts};
    use crate::transport;
    use crate::transport::tls::Tls;
    use crate::wire::frame::{Batch, Failure};
    use crate::wire::hello::Version;

    fn timing(min_ms: u64, max_ms: u64) -> Timing {
        Timing {
            backoff_min: Duration::from_millis(min_ms),
            backoff_max: Duration::from_millis(max_ms),
            ..Timing::default()
        }
    }

    /// What nothing is sent to.
    struct Nobody;

    impl Inbound for Nobody {
        fn one_ways(&self, _: Arc<PeerCore>, _: Incarnation, _: Batch) -> BoxFuture<'static, ()> {
            std::future::ready(()).boxed()
        }

        fn request(
            &self,
            _: Arc<PeerCore>,
            _: Bytes,
        ) -> BoxFuture<'static, Result<Bytes, Failure>> {
            std::future::pending().boxed()
        }
    }

    fn core() -> Arc<Core> {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::create(folder.path()).expect("the first one");
        let id = NodeId::from_bytes([1; 16]);
        let identity = authority.issue(Role::Node(id), Duration::from_secs(3600));
        let tls = Tls::new(&identity.expect("issued")).expect("it fits");
        let endpoint = || {
            let address = ([127, 0, 0, 1], 0).into();
            transport::endpoint(address, Handle::current()).expect("a free port")
        };
        Core::new(Parts {
            me: Me {
                cluster: authority.cluster(),
                id,
                incarnation: Incarnation::default(),
                version: Version { major: 1, minor: 0 },
                advertise: Vec::new(),
            },
            limits: Limits::default(),
            timing: Timing::default(),
            inbound: Arc::new(Nobody),
            endpoint: endpoint(),
            bulk_endpoint: endpoint(),
            tls,
            changes: Changes::new().0,
            seed: 1,
        })
    }

    #[tokio::test]
    async fn a_peer_that_was_forgotten_is_not_dialled() {
        let core = core();
        let peer = core.peer(NodeId::from_bytes([2; 16])).expect("a new one");
        core.forget(peer.id);
        // As where it is told of addresses at once with that, and begins to be dialled after its tasks were stopped.
        let dialled = keep_connected(core.clone(), peer.clone());
        assert!(dialled.now_or_never().is_some(), "it goes on");
        assert!(core.known_peer(peer.id).is_none());
        core.stop();
    }

    /// The longest waits after one failure, two, and so on.
    fn longest(backoff: &mut Backoff, timing: &Timing, count: usize) -> Vec<u128> {
        let mut half_us = timing.backoff_min.as_micros() as u64 / 2;
        let cap_us = timing.backoff_max.as_micros() as u64 / 2;
        let mut next = || {
            // The most that can be added to half of it.
            let wait = backoff.failed(timing, half_us);
            half_us = (half_us * 2).min(cap_us);
            wait.as_millis()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn backoff_doubles_up_to_its_limit_and_begins_anew_after_a_connection_that_lasted() {
        let timing = timing(50, 3000);
        let mut backoff = Backoff::default();
        let grown = [50, 100, 200, 400, 800, 1600, 3000, 3000];
        assert_eq!(longest(&mut backoff, &timing, 8), grown);
        let now = Instant::now();
        backoff.connected(now);
        let brief = timing.backoff_max - Duration::from_millis(1);
        assert!(backoff.was_brief(&timing, now + brief));
        assert_eq!(backoff.failures, 8, "it was as good as none");
        backoff.connected(now);
        assert!(!backoff.was_brief(&timing, now + timing.backoff_max));
        assert_eq!(longest(&mut backoff, &timing, 8), grown);
        // There was none in between.
        assert!(!backoff.was_brief(&timing, now));
    }

    #[test]
    fn backoff_of_a_peer_that_stays_away_keeps_its_limit() {
        let timing = timing(50, 3000);
        let mut backoff = Backoff {
            failures: u32::MAX,
            ..Backoff::default()
        };
        for _ in 0..3 {
            let wait = backoff.failed(&timing, 0);
            assert_eq!(wait, timing.backoff_max / 2);
        }
    }

    proptest! {
        #[test]
        fn backoff_is_drawn_from_half_of_it_to_all_of_it(
            min_ms in 0_u64..100_000,
            more_ms in 0_u64..100_000,
            failures in any::<u32>(),
            drawn in any::<u64>(),
        ) {
            let timing = timing(min_ms, min_ms + more_ms);
            let most = timing.backoff_min.saturating_mul(1 << failures.min(16));
            let most = most.min(timing.backoff_max);
            let mut backoff = Backoff { failures, ..Backoff::default() };
            let wait = backoff.failed(&timing, drawn);
            prop_assert!(wait >= most / 2 && wait <= most, "{wait:?} of {most:?}");
        }

        #[test]
        fn nodes_do_not_come_back_in_step(seed in any::<u64>()) {
            let mut random = wasmrun_model::random::Random::new(seed);
            let timing = timing(50, 3000);
            let mut waits: Vec<_> = (0..64)
                .map(|_| {
                    let mut backoff = Backoff { failures: 9, ..Backoff::default() };
                    backoff.failed(&timing, random.next())
                })
                .collect();
            waits.sort();
            // Of 1.5 s, by chance: nowhere near all at once.
            prop_assert!(waits[63] - waits[0] > Duration::from_millis(500));
        }
    }
}
