//! Peers that mean ill: strangers with datagrams, and members with valid certificates who send what
//! they should not. In each case the others go on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wasmrun_model::id::NodeId;
use wasmrun_net::{Config, PullOptions, Role};

use crate::harness::{Ask, Cluster, End, LOCAL, PATIENCE, node_id, soon, start};

/// Speaks QUIC by hand.
struct Raw {
    endpoint: Endpoint,
    cluster: [u8; 16],
}

impl Raw {
    /// With the certificate of a node of this cluster, or with none.
    fn new(cluster: &Cluster, node: Option<u8>, alpn: &str) -> Self {
        Self::with(cluster, node.map(|node| Role::Node(node_id(node))), alpn)
    }

    /// With a certificate for this role, or with none.
    fn with(cluster: &Cluster, certified: Option<Role>, alpn: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let role = certified.unwrap_or(Role::Node(node_id(0)));
        cluster.identity(role).save(folder.path()).expect("saved");
        let pem = std::fs::read(folder.path().join("identity.pem")).expect("read");
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .expect("certificates");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(chain[1].clone()).expect("the authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots);
        let mut tls = match certified {
            Some(_) => {
                let key = PrivateKeyDer::from_pem_slice(&pem).expect("a key");
                builder
                    .with_client_auth_cert(chain, key)
                    .expect("an identity")
            }
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![alpn.into()];
        let tls = QuicClientConfig::try_from(tls).expect("a cipher");
        let mut endpoint = Endpoint::client(LOCAL).expect("a socket");
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        Self {
            endpoint,
            cluster: *cluster.authority.cluster().as_bytes(),
        }
    }

    async fn connect(&self, to: SocketAddr) -> Connection {
        let connecting = self
            .endpoint
            .connect(to, "node.wasmrun")
            .expect("an address");
        soon(connecting).await.expect("a connection")
    }

    /// With a hello that is right.
    async fn greeted(&self, to: SocketAddr, node: u8) -> (Connection, SendStream, RecvStream) {
        let connection = self.connect(to).await;
        let (mut writer, mut reader) = connection.open_bi().await.expect("a stream");
        let hello = hello(self.cluster, node_id(node));
        writer.write_all(&frame(&hello)).await.expect("written");
        // The welcome.
        let mut length = [0; 4];
        soon(reader.read_exact(&mut length))
            .await
            .expect("an answer");
        (connection, writer, reader)
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..], payload].concat()
}

/// The bytes of a hello for messages, as `wire/hello.rs` lays them out.
fn hello(cluster: [u8; 16], node: NodeId) -> Vec<u8> {
    hello_for(cluster, node, &(0_u8, 4711_u64, None::<u64>))
}

/// The same for any purpose.
fn hello_for(cluster: [u8; 16], node: NodeId, purpose: &impl serde::Serialize) -> Vec<u8> {
    let preamble = (*b"wasmrunQ", (1_u16, 0_u16), "raw");
    let mut bytes = postcard::to_stdvec(&preamble).expect("bytes");
    let id = node;
    let no_addresses: [SocketAddr; 0] = [];
    let hello = (cluster, id, 1_u64, &no_addresses[..], purpose);
    bytes.extend(postcard::to_stdvec(&hello).expect("bytes"));
    bytes
}

/// The first frame after a hello.
fn resume() -> Vec<u8> {
    frame(&postcard::to_stdvec(&(0_u8, false, 0_u64, 8_u32)).expect("bytes"))
}

fn request(id: u64) -> Vec<u8> {
    let head = (1_u8, id, 1_u64, 1000_u64);
    let mut bytes = postcard::to_stdvec(&head).expect("bytes");
    bytes.extend(postcard::to_stdvec(&Ask::Bytes(60_000)).expect("bytes"));
    frame(&bytes)
}

/// A node and a friend of it, which must not notice anything.
async fn friends(cluster: &Cluster) -> (End, End) {
    befriended(cluster, cluster.node_config(1, 1)).await
}

/// The same, of a node that is set up so.
async fn befriended(cluster: &Cluster, config: Config) -> (End, End) {
    let (node, friend) = (start(config), cluster.node(2));
    let peer = friend
        .network
        .peer(node_id(1), vec![node.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    (node, friend)
}

async fn still_works(friend: &End) {
    let peer = friend.network.find(node_id(1)).expect("known");
    let answer = peer.call(&Ask::Echo(1, vec![1]), PATIENCE).await;
    assert_eq!(answer, Ok((1, vec![1])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_nonsense() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let socket = tokio::net::UdpSocket::bind(LOCAL).await.expect("a socket");
    let mut random = wasmrun_model::random::Random::new(3);
    for round in 0..500 {
        let mut bytes: Vec<u8> = (0..random.below(1400))
            .map(|_| random.next() as u8)
            .collect();
        // Half of them look like the beginning of a connection.
        if round % 2 == 0 && bytes.len() > 5 {
            bytes[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        }
        let _ = socket.send_to(&bytes, node.address).await;
    }
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_certificate_there_is_nothing() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let stranger = Raw::new(&cluster, None, "wasmrun");
    let connection = stranger.connect(node.address).await;
    let why = soon(connection.closed()).await.to_string();
    assert!(why.contains("a certificate is needed"), "{why}");
    // To join, a stranger may speak once; nonsense is not answered with anything but words.
    let stranger = Raw::new(&cluster, None, "wasmrun-join");
    let connection = stranger.connect(node.address).await;
    let (mut writer, mut reader) = connection.open_bi().await.expect("a stream");
    writer
        .write_all(&frame(&hello([0; 16], node_id(1))))
        .await
        .expect("written");
    let answer = soon(reader.read_to_end(1 << 16)).await;
    assert!(answer.is_ok_and(|answer| answer.len() < 100));
    soon(connection.closed()).await;
    // What is neither is refused by TLS.
    let other = Raw::new(&cluster, Some(3), "h3");
    let connecting = other
        .endpoint
        .connect(node.address, "node.wasmrun")
        .expect("an address");
    assert!(soon(connecting).await.is_err());
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_than_the_certificate_says() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let raw = Raw::new(&cluster, Some(3), "wasmrun");
    let connection = raw.connect(node.address).await;
    let (mut writer, mut reader) = connection.open_bi().await.expect("a stream");
    // The friend, by name.
    let hello = hello(raw.cluster, node_id(2));
    writer.write_all(&frame(&hello)).await.expect("written");
    soon(reader.read_to_end(1 << 16)).await.expect("an answer");
    soon(connection.closed()).await;
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_would_be_a_node() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let client = Role::Client(wasmrun_net::ClientId::from_bytes([7; 16]));
    // In its own name, in a node's that is there, and in one's that is not; for messages and for bulk.
    for id in [7, 2, 9] {
        let raw = Raw::with(&cluster, Some(client), "wasmrun");
        let control = hello(raw.cluster, node_id(id));
        let bulk = hello_for(raw.cluster, node_id(id), &1_u8);
        for words in [control, bulk] {
            let connection = raw.connect(node.address).await;
            let (mut writer, mut reader) = connection.open_bi().await.expect("a stream");
            writer.write_all(&frame(&words)).await.expect("written");
            // What it would ask for next is not read.
            let _ = writer.write_all(&[resume(), request(1)].concat()).await;
            let answer = soon(reader.read_to_end(1 << 16)).await.unwrap_or_default();
            assert!(answer.len() < 200, "{answer:?}");
            soon(connection.closed()).await;
        }
    }
    assert_eq!(node.network.peers().len(), 1, "the friend");
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_for_clients() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    for (certified, why) in [
        (Some(Role::Node(node_id(3))), "closed by peer: 8"),
        (None, "closed by peer: 3"),
    ] {
        let raw = Raw::with(&cluster, certified, "wasmrun-client");
        let connection = raw.connect(node.address).await;
        // It may be closed already.
        if let Ok((mut writer, _)) = connection.open_bi().await {
            let _ = writer.write_all(b"hello").await;
        }
        let closed = soon(connection.closed()).await.to_string();
        assert!(closed.contains(why), "{closed}");
    }
    assert_eq!(*node.memory.sessions.borrow(), 0);
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_opens_more_than_a_session() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let client = Role::Client(wasmrun_net::ClientId::from_bytes([7; 16]));
    let raw = Raw::with(&cluster, Some(client), "wasmrun-client");
    let connection = raw.connect(node.address).await;
    let (mut writer, mut reader) = connection.open_bi().await.expect("a stream");
    writer.write_all(b"one").await.expect("written");
    let mut back = [0; 3];
    soon(reader.read_exact(&mut back)).await.expect("it serves");
    let more = tokio::time::timeout(Duration::from_millis(300), connection.open_bi()).await;
    assert!(more.is_err(), "one stream is all there is");
    // Gone without a word.
    drop((writer, reader));
    connection.close(77_u32.into(), b"");
    let mut sessions = node.memory.sessions.subscribe();
    let over = soon(sessions.wait_for(|count| *count == 0)).await;
    drop(over.expect("it is ours"));
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_none() {
    let cluster = Cluster::new();
    let (node, friend) = friends(&cluster).await;
    let giant = [&u32::MAX.to_le_bytes()[..], b"x"].concat();
    let twice = [resume(), resume()].concat();
    let nonsense = [resume(), frame(&[0xff; 40])].concat();
    let after_giant = [resume(), giant.clone()].concat();
    let early = request(1);
    for bytes in [giant, twice, nonsense, after_giant, early] {
        let raw = Raw::new(&cluster, Some(3), "wasmrun");
        let (connection, mut writer, _reader) = raw.greeted(node.address, 3).await;
        // It may be closed before all is written.
        let _ = writer.write_all(&bytes).await;
        let why = soon(connection.closed()).await;
        assert!(
            matches!(why, quinn::ConnectionError::ApplicationClosed(_)),
            "{why}"
        );
    }
    // A stream that ends in the middle of a frame.
    let raw = Raw::new(&cluster, Some(3), "wasmrun");
    let (connection, mut writer, _reader) = raw.greeted(node.address, 3).await;
    writer
        .write_all(&[9, 0, 0, 0, 1, 2])
        .await
        .expect("written");
    writer.finish().expect("open");
    soon(connection.closed()).await;
    // One-way messages with no number, and with nonsense in it, which only that message suffers from.
    for (bytes, is_closed) in [
        (frame(&[1, 2, 3]), true),
        ([frame(&0_u64.to_le_bytes()), frame(&[1])].concat(), true),
        (
            [frame(&1_u64.to_le_bytes()), frame(&[0xff; 20])].concat(),
            false,
        ),
    ] {
        let raw = Raw::new(&cluster, Some(3), "wasmrun");
        let (connection, mut writer, _reader) = raw.greeted(node.address, 3).await;
        writer.write_all(&resume()).await.expect("written");
        let mut one_way = connection.open_uni().await.expect("a stream");
        one_way.write_all(&bytes).await.expect("written");
        if is_closed {
            soon(connection.closed()).await;
        } else {
            assert_eq!(connection.close_reason(), None);
        }
    }
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_says_nothing_is_let_go() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.handshake = Duration::from_millis(500);
    let node = start::<1, 0>(config);
    let raw = Raw::new(&cluster, Some(3), "wasmrun");
    let connection = raw.connect(node.address).await;
    soon(connection.closed()).await;
    let connection = raw.connect(node.address).await;
    let (mut writer, _reader) = connection.open_bi().await.expect("a stream");
    writer.write_all(&[1, 0]).await.expect("written");
    soon(connection.closed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_asks_and_never_reads() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.write_stall = Duration::from_millis(500);
    let (node, friend) = befriended(&cluster, config).await;
    let raw = Raw::new(&cluster, Some(3), "wasmrun");
    let (connection, mut writer, reader) = raw.greeted(node.address, 3).await;
    writer.write_all(&resume()).await.expect("written");
    // Each answer is long, and none of them is read.
    let asking = async {
        for id in 1.. {
            if writer.write_all(&request(id)).await.is_err() {
                return;
            }
        }
    };
    soon(asking).await;
    soon(connection.closed()).await;
    drop(reader);
    still_works(&friend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_asks_for_bulk_and_never_reads() {
    /// More than is ever under way to one who does not read.
    const LEN: u64 = 64 << 20;
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.bulk_stall = Duration::from_millis(500);
    let (node, friend) = befriended(&cluster, config).await;
    let raw = Raw::new(&cluster, Some(3), "wasmrun");
    let connection = raw.connect(node.address).await;
    let (mut writer, _welcome) = connection.open_bi().await.expect("a stream");
    let hello = hello_for(raw.cluster, node_id(3), &1_u8);
    writer.write_all(&frame(&hello)).await.expect("written");
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (mut writer, reader) = connection.open_bi().await.expect("a stream");
        let request = postcard::to_stdvec(&(0_u64, LEN, 0_u8)).expect("bytes");
        writer.write_all(&frame(&request)).await.expect("written");
        streams.push((writer, reader));
    }
    // Others get all they ask for, and then each of these is given up.
    still_works(&friend).await;
    let mut to = vec![0; 1 << 20];
    let peer = friend.network.find(node_id(1)).expect("known");
    let pulled = soon(peer.pull(&0, 0, &mut to, &PullOptions::default())).await;
    pulled.expect("the bytes");
    for (_, reader) in &mut streams {
        let reset = soon(reader.received_reset()).await.expect("it is open");
        assert!(reset.is_some(), "not all of it can have come");
    }
    still_works(&friend).await;
}
