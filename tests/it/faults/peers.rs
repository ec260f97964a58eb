//! Peers that send nonsense, nothing, or what they have no right to: nodes go on, and say why they refuse.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::Runtime;
use wasmrun_net::{Identity, Role};
use wasmrun_tests::{Running, Wasmrun, assert_says};

use super::world::{Node, Random, eventually, wait_for_rest};

/// By how much a node's memory may grow, whatever strangers do.
const MOST_GROWN_KIB: u64 = 96 << 10;

/// A head with a node that has joined it, and the folder of one that has joined and is dead.
struct Pair {
    a: Node,
    b: Node,
    dead: Node,
    token: String,
}

impl Pair {
    fn new() -> Self {
        let (mut a, mut b, mut dead) = (Node::new("a"), Node::new("b"), Node::new("d"));
        a.start(&["--head"]);
        let token = a.token(&["--many"]);
        b.start(&["--join", &token]);
        dead.start(&["--join", &token]);
        a.wait_for("d", "alive");
        dead.kill();
        a.wait_for("b", "alive");
        b.wait_for("a", "alive");
        Self { a, b, dead, token }
    }

    /// Both nodes work, and for each other, and nothing is left of it.
    #[track_caller]
    fn works(&self) {
        for (at, on) in [(&self.a, "b"), (&self.b, "a")] {
            assert_eq!(at.call_on(on, "leaf(7, 2, 0)").ok(), "[7, 7]\n");
        }
        wait_for_rest([&self.a, &self.b]);
    }
}

fn memory_kib(node: &mut Node) -> u64 {
    let process = node.running().process().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let amount = line.expect("it has memory").trim().trim_end_matches(" kB");
    amount.parse().expect("a number")
}

/// Speaks QUIC by hand.
struct Raw {
    endpoint: Endpoint,
    cluster: [u8; 16],
    node: [u8; 16],
}

impl Raw {
    /// With the certificate of the node that has this folder, or with none.
    fn new(state: &Path, has_certificate: bool, alpn: &str) -> Self {
        Self::trusting(state, state, has_certificate, alpn)
    }

    /// The same, of a node that takes those of another one's cluster for members of its own.
    fn trusting(others: &Path, state: &Path, has_certificate: bool, alpn: &str) -> Self {
        let identity = Identity::load(state).expect("a node's folder");
        let Role::Node(node) = identity.role() else {
            panic!("it is a node's");
        };
        let (pem, chain) = certificates(state);
        let mut roots = rustls::RootCertStore::empty();
        let authority = certificates(others).1.remove(1);
        roots.add(authority).expect("the authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots);
        let mut tls = match has_certificate {
            true => {
                let key = PrivateKeyDer::from_pem_slice(&pem).expect("a key");
                let tls = builder.with_client_auth_cert(chain, key);
                tls.expect("an identity")
            }
            false => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![alpn.into()];
        let tls = QuicClientConfig::try_from(tls).expect("a cipher");
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let mut endpoint = Endpoint::client(any).expect("a socket");
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        Self {
            endpoint,
            cluster: *identity.cluster().as_bytes(),
            node: *node.as_bytes(),
        }
    }

    async fn connect(&self, to: SocketAddr) -> Result<Connection, ConnectionError> {
        let connecting = self.endpoint.connect(to, "node.wasmrun");
        connecting.expect("an address").await
    }

    /// After a hello in this version, in an incarnation of the node's.
    async fn greeted(
        &self,
        to: SocketAddr,
        version: [u8; 2],
        incarnation: u8,
    ) -> (Connection, SendStream, RecvStream) {
        let connection = self.connect(to).await.expect("a connection");
        let (mut writer, reader) = connection.open_bi().await.expect("a stream");
        let mut hello = b"wasmrunQ".to_vec();
        hello.extend(version);
        hello.extend(b"\x03raw");
        hello.extend(self.cluster);
        // This node, in this incarnation, without addresses, for messages: connection 77, and none before.
        hello.extend(self.node);
        hello.extend([incarnation, 0, 0, 77, 0]);
        writer.write_all(&frame(&hello)).await.expect("written");
        (connection, writer, reader)
    }
}

/// What a node's folder has of its identity: all of it as it is, and the certificates, the authority's last.
fn certificates(state: &Path) -> (Vec<u8>, Vec<CertificateDer<'static>>) {
    let pem = fs::read(state.join("identity.pem")).expect("a node's folder");
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    (pem, chain.expect("certificates"))
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..], payload].concat()
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// Nothing here takes so long.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    let timely = tokio::time::timeout(Duration::from_secs(60), what);
    timely.await.expect("in time")
}

#[test]
fn strangers_get_nothing_and_cost_little() {
    let mut pair = Pair::new();
    let at = pair.a.listen();
    let before = memory_kib(&mut pair.a);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let mut random = Random::new(5);
    for round in 0..20_000 {
        let len = 1 + random.next() % 1400;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // Two thirds look like the beginning of a connection, or like one that is there.
        match round % 3 {
            0 if len > 6 => bytes[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]),
            1 => bytes[0] = 0x40 | (bytes[0] & 0x3f),
            _ => {}
        }
        // A full buffer is a lost datagram.
        let _ = socket.send_to(&bytes, at);
    }
    pair.works();
    runtime().block_on(async {
        // They connect, and say nothing: as many as may be set up at a time, many times over.
        let mut held = Vec::new();
        let mut endpoints = Vec::new();
        for alpn in ["wasmrun", "wasmrun-join"] {
            let raw = Raw::new(pair.dead.state(), false, alpn);
            for _ in 0..150 {
                // Beyond its limit they are refused at once.
                if let Ok(connection) = soon(raw.connect(at)).await {
                    held.push((connection, alpn));
                }
            }
            endpoints.push(raw.endpoint);
        }
        assert!(held.len() > 100, "{}", held.len());
        for (connection, alpn) in held {
            let why = soon(connection.closed()).await.to_string();
            if alpn == "wasmrun" {
                assert!(why.contains("a certificate is needed"), "{why}");
            }
        }
    });
    pair.works();
    let grown = memory_kib(&mut pair.a).saturating_sub(before);
    assert!(grown < MOST_GROWN_KIB, "by {grown} KiB");
    // Whoever has a right to can join.
    let mut c = Node::new("c");
    c.start(&["--join", &pair.token]);
    pair.a.wait_for("c", "alive");
}

/// What a connection is closed with when what came over it is not understood: `net/src/wire/close.rs` has it.
const PROTOCOL: u32 = 4;

/// What breaks the protocol once a connection is there, and what is said of it.
fn nonsense() -> [(Vec<u8>, &'static str); 4] {
    let resume = frame(&[0, 0, 0, 8]);
    let giant = [&u32::MAX.to_le_bytes()[..], b"x"].concat();
    [
        (giant.clone(), "a message is too long"),
        ([&resume[..], &giant].concat(), "a message is too long"),
        ([&resume[..], &resume].concat(), "it resumed twice"),
        (
            [&resume[..], &frame(&[0xff; 40])].concat(),
            "a message has no head",
        ),
    ]
}

/// Waits until somebody closes a connection because it does not understand what came.
async fn not_understood(connection: &Connection) {
    let why = soon(connection.closed()).await;
    let ConnectionError::ApplicationClosed(close) = &why else {
        panic!("not by the other side: {why}");
    };
    assert_eq!(close.error_code, PROTOCOL.into(), "{why}");
}

#[test]
fn a_member_that_sends_nonsense_is_let_go() {
    let mut pair = Pair::new();
    // Whoever counts as dead later is let go then.
    pair.a.wait_for("d", "dead");
    let at = pair.a.listen();
    let before = memory_kib(&mut pair.a);
    runtime().block_on(async {
        let raw = Raw::new(pair.dead.state(), true, "wasmrun");
        let peer: String = raw.node.iter().map(|it| format!("{it:02x}")).collect();
        let peer = format!(" peer={peer} ");
        // The log says what was wrong, each time. Its lines are few, or some would be left out.
        for (bytes, said) in nonsense() {
            let (connection, mut writer, mut reader) = raw.greeted(at, [1, 0], 2).await;
            soon(until(&mut reader, b"wasmrunQ")).await;
            let _ = writer.write_all(&bytes).await;
            not_understood(&connection).await;
            let why = format!("why=\"it broke the protocol ({said}) and was disconnected\"");
            pair.a.wait_for_log(&[" a peer is lost", &peer, &why]);
        }
        // Other versions are told which is ours, and an incarnation that is over that it is. The log has theirs too.
        for version in [[0, 9], [1, 7], [9, 0]] {
            let (_connection, _writer, mut reader) = raw.greeted(at, version, 2).await;
            let answer = soon(reader.read_to_end(1 << 16)).await.expect("an answer");
            assert_eq!(&answer[4..14], b"wasmrunQ\x01\x00", "{answer:?}");
            let [major, minor] = version;
            let theirs = format!("it speaks version {major}.{minor} of the protocol (wasmrun raw)");
            let turned_away = " somebody was turned away";
            pair.a
                .wait_for_log(&[turned_away, "from=", &theirs, "and we 1.0"]);
        }
        let (_connection, _writer, mut reader) = raw.greeted(at, [1, 0], 1).await;
        let answer = soon(reader.read_to_end(1 << 16)).await.expect("an answer");
        // The refusal that is for an old incarnation, and the one that is known.
        assert!(answer.ends_with(&[1, 2, 2]), "{answer:?}");
        let nonsense = nonsense();
        for round in 0..40 {
            let (bytes, _) = &nonsense[round % nonsense.len()];
            let (connection, mut writer, _reader) = raw.greeted(at, [1, 0], 2).await;
            // It may be closed before all is written.
            let _ = writer.write_all(bytes).await;
            not_understood(&connection).await;
        }
        // Half a frame, and its end.
        let (connection, mut writer, _reader) = raw.greeted(at, [1, 0], 2).await;
        let written = writer.write_all(&[9, 0, 0, 0, 1, 2]).await;
        written.expect("it is open");
        writer.finish().expect("it is open");
        soon(connection.closed()).await;
        // Half a hello, and nothing: many of them, until they are let go.
        let mut silent = Vec::new();
        for _ in 0..80 {
            let Ok(connection) = soon(raw.connect(at)).await else {
                continue;
            };
            let (mut writer, reader) = connection.open_bi().await.expect("a stream");
            let _ = writer.write_all(&[200, 0, 0, 0, b'w']).await;
            silent.push((connection, writer, reader));
        }
        for (connection, ..) in &silent {
            soon(connection.closed()).await;
        }
    });
    pair.works();
    let grown = memory_kib(&mut pair.a).saturating_sub(before);
    assert!(grown < MOST_GROWN_KIB, "by {grown} KiB");
}

#[test]
fn a_node_of_another_cluster_is_told_so() {
    let mut pair = Pair::new();
    let (mut z, mut y) = (Node::new("z"), Node::new("y"));
    z.start(&["--head"]);
    y.start(&["--join", &z.token(&[])]);
    y.kill();
    // Somebody has given the other head's address to ours.
    let path = y.state().join("cluster.json");
    let cluster = fs::read_to_string(&path).expect("a member's folder");
    let (theirs, ours) = (z.listen().to_string(), pair.a.listen().to_string());
    assert!(cluster.contains(&theirs), "{cluster}");
    fs::write(&path, cluster.replace(&theirs, &ours)).expect("written");
    let said = y.starting(&["--join"]).fails(4);
    let head = format!("the head at {ours} cannot be reached");
    assert_says(&said, &[&head, "no member of our cluster"]);
    // The one that it came to says who it was, and why it goes again.
    let from = format!("from={}", y.listen());
    let turned_away = " somebody was turned away";
    let why = "does not accept our certificate";
    pair.a.wait_for_log(&[turned_away, &from, why]);
    // One that takes ours for its own is refused all the same, by its certificate.
    let from = runtime().block_on(async {
        let raw = Raw::trusting(pair.dead.state(), y.state(), true, "wasmrun");
        let why = match soon(raw.connect(pair.a.listen())).await {
            // It hears so after its own part of the handshake.
            Ok(connection) => soon(connection.closed()).await,
            Err(why) => why,
        };
        let ConnectionError::ConnectionClosed(close) = &why else {
            panic!("not refused: {why}");
        };
        let alert = u8::from(rustls::AlertDescription::UnknownCA);
        let code = quinn::TransportErrorCode::crypto(alert);
        assert_eq!(close.error_code, code, "{why}");
        let own = raw.endpoint.local_addr().expect("it has an address");
        format!("from={own}")
    });
    let why = "is no member of our cluster (";
    pair.a
        .wait_for_log(&[turned_away, &from, why, "UnknownIssuer"]);
    pair.works();
    // With the right one it comes back.
    fs::write(&path, cluster).expect("written");
    y.start(&["--join"]);
    z.wait_for_incarnation("y", 2);
}

#[test]
fn a_token_that_is_used_up_or_too_old_lets_nobody_in() {
    let pair = Pair::new();
    let once = pair.a.token(&[]);
    let brief = pair.a.token(&["--lifetime", "1s"]);
    let mut c = Node::new("c");
    c.start(&["--join", &once]);
    Node::new("e").starting(&["--join", &once]).fails_saying(
        4,
        &[
            "this token was used already, and serves once",
            "token create",
        ],
    );
    eventually("expired", || {
        let list = pair.b.command(&["node", "token", "list"]).json(0);
        let tokens = list["tokens"].as_array().expect("a list");
        let is_over = tokens.iter().any(|it| it["state"] == "expired");
        if is_over {
            Ok(())
        } else {
            Err(list.to_string())
        }
    });
    Node::new("e")
        .starting(&["--join", &brief])
        .fails_saying(4, &["this token has expired", "token create"]);
    // Whoever guesses has to wait. All at once: one after the other they may be slow enough to be let off.
    let guessers: Vec<Node> = (0..24).map(|_| Node::new("e")).collect();
    let guesses = guessers.iter().map(|it| it.starting(&["--join", &once]));
    let guesses: Vec<_> = guesses.map(Wasmrun::start).collect();
    let mut ends: Vec<_> = guesses.into_iter().map(Running::end).collect();
    // They may all have asked before the first had failed.
    ends.push(Node::new("e").starting(&["--join", &once]).run());
    let refused: Vec<String> = ends
        .into_iter()
        .map(|ended| {
            assert_eq!(ended.code, Some(4), "{ended}");
            ended.stderr
        })
        .collect();
    let has_to_wait = refused
        .iter()
        .find(|it| it.contains("too many attempts to join"));
    assert_says(has_to_wait.expect("one of them"), &["try again in"]);
    pair.works();
}

/// What a node answers, as frames: their payloads, until one begins so.
async fn until(reader: &mut RecvStream, begins: &[u8]) -> Vec<u8> {
    loop {
        let mut length = [0; 4];
        reader.read_exact(&mut length).await.expect("a frame");
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        reader.read_exact(&mut payload).await.expect("a frame");
        if payload.starts_with(begins) {
            return payload;
        }
    }
}

#[test]
fn a_peer_that_is_a_minor_version_ahead_is_understood_as_far_as_it_goes() {
    let pair = Pair::new();
    // Whoever counts as dead later is let go then.
    pair.a.wait_for("d", "dead");
    let at = pair.a.listen();
    runtime().block_on(async {
        let raw = Raw::new(pair.dead.state(), true, "wasmrun");
        let (connection, mut writer, mut reader) = raw.greeted(at, [1, 1], 2).await;
        // It is welcome, and told which version is spoken.
        let welcome = soon(until(&mut reader, b"wasmrunQ")).await;
        assert_eq!(welcome[8..10], [1, 0], "{welcome:?}");
        writer.write_all(&frame(&[0, 0, 0, 8])).await.expect("open");
        // A one-way message and a request, each of a kind that does not exist yet.
        let mut one_way = connection.open_uni().await.expect("a stream");
        let first = 1_u64.to_le_bytes();
        for payload in [&first[..], &[77, 1, 2, 3]] {
            one_way.write_all(&frame(payload)).await.expect("open");
        }
        let unknown = [1, 1, 1, 0xe0, 0xd4, 3, 77, 1, 2, 3];
        writer.write_all(&frame(&unknown)).await.expect("open");
        let failed = soon(until(&mut reader, &[3, 1])).await;
        assert_eq!(failed, [3, 1, 2], "it is not understood");
        // What both know: for which tasks do none wait? Nobody is told so who is no member.
        let known = [1, 2, 2, 0xe0, 0xd4, 3, 0, 4, 0];
        writer.write_all(&frame(&known)).await.expect("open");
        let answer = soon(until(&mut reader, &[2, 2])).await;
        assert_eq!(answer, [2, 2, 3], "it was understood");
        assert_eq!(connection.close_reason(), None);
    });
    pair.works();
}
