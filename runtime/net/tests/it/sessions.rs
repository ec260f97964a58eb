//! Sessions of clients: bytes both ways, how many there may be, and how they end.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wasmrun_net::{ConnectError, Identity, Refusal, Role, Session, Timing};

use crate::harness::{Cluster, LOCAL, node_id, soon, start};

/// More than all windows together.
const MANY: usize = 12 << 20;

async fn open(identity: &Identity, to: SocketAddr) -> Session {
    let session = Session::open(identity, to, &Timing::default()).await;
    session.expect("a session")
}

/// Opens a session where all comes back that is sent.
pub async fn echoes(identity: &Identity, to: SocketAddr) -> Session {
    let mut session = open(identity, to).await;
    session.writer.write_all(b"hello").await.expect("written");
    let mut back = [0; 5];
    session.reader.read_exact(&mut back).await.expect("read");
    assert_eq!(&back, b"hello");
    session
}

/// Why nothing comes back.
async fn refused(identity: &Identity, to: SocketAddr) -> ConnectError {
    let mut session = match Session::open(identity, to, &Timing::default()).await {
        Ok(session) => session,
        Err(error) => return error,
    };
    let _ = session.writer.write_all(b"hello").await;
    let read = session.reader.read_exact(&mut [0; 5]).await;
    assert!(read.is_err());
    session.reader.ended().expect("it was closed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_both_ways_and_both_sides_hear_the_end() {
    let cluster = Cluster::new();
    let node = cluster.node(1);
    let mut sessions = node.memory.sessions.subscribe();
    let identity = cluster.client(1);
    let session = soon(echoes(&identity, node.address)).await;
    assert_eq!(session.until_s, identity.valid_until_s());
    let (mut reader, mut writer) = (session.reader, session.writer);
    let sent: Vec<u8> = (0..MANY).map(|at| (at % 251) as u8).collect();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&sent).await.expect("written");
        writer
    });
    let mut back = vec![0; MANY];
    soon(reader.read_exact(&mut back)).await.expect("read");
    assert!(back == expected);
    // With the end of one way the service ends the other.
    drop(writing.await.expect("it ends"));
    let end = soon(reader.read(&mut [0; 1])).await;
    assert_eq!(end.expect("it is said"), 0);
    drop(reader);
    let over = soon(sessions.wait_for(|count| *count == 0)).await;
    assert!(over.is_ok());
    assert!(node.network.peers().is_empty(), "a client is no peer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_stops_only_itself() {
    let cluster = Cluster::new();
    let node = cluster.node(1);
    let mut stuck = soon(echoes(&cluster.client(1), node.address)).await;
    // What comes back is not read, so at some point nothing more is taken.
    let chunk = vec![7; 64 << 10];
    let mut written = 0;
    while let Ok(sent) = tokio::time::timeout(
        std::time::Duration::from_millis(500),
        stuck.writer.write_all(&chunk),
    )
    .await
    {
        sent.expect("it is open");
        written += chunk.len();
        assert!(written < 64 << 20, "somebody keeps all of it");
    }
    soon(echoes(&cluster.client(2), node.address)).await;
    drop(stuck);
    let mut sessions = node.memory.sessions.subscribe();
    let over = soon(sessions.wait_for(|count| *count == 0)).await;
    assert!(over.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sessions_than_there_may_be() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.limits.sessions = 3;
    config.limits.sessions_of_one = 2;
    let node = start::<1, 0>(config);
    let (one, other) = (cluster.client(1), cluster.client(2));
    let first = soon(echoes(&one, node.address)).await;
    let _second = soon(echoes(&one, node.address)).await;
    let is_full = |error: &ConnectError| {
        let full = Refusal::Full;
        matches!(error, ConnectError::Refused { why, .. } if *why == full)
    };
    let error = soon(refused(&one, node.address)).await;
    assert!(is_full(&error), "{error:?}");
    let _third = soon(echoes(&other, node.address)).await;
    let error = soon(refused(&other, node.address)).await;
    assert!(is_full(&error), "{error:?}");
    // Nodes are counted by themselves, and who leaves makes room.
    soon(cluster.node(2).network.connect(vec![node.address]))
        .await
        .expect("room");
    drop(first);
    soon(async {
        // The node hears of it soon.
        loop {
            let mut session = open(&other, node.address).await;
            let _ = session.writer.write_all(b"x").await;
            if session.reader.read_exact(&mut [0; 1]).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_hears_that_it_took_too_long() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.handshake = std::time::Duration::from_millis(100);
    let node = start::<1, 0>(config);
    let client = cluster.client(1);
    for _ in 0..5 {
        let told = async {
            // On a busy machine it may be over before there is a connection.
            loop {
                let opened = Session::open(&client, node.address, &Timing::default()).await;
                let Ok(mut session) = opened else { continue };
                assert!(session.reader.read(&mut [0; 1]).await.is_err());
                let why = session.reader.ended().expect("it was closed");
                if why.to_string().contains("in time") {
                    return;
                }
            }
        };
        soon(told).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_arrives_though_the_network_is_closed() {
    let cluster = Cluster::new();
    let node = cluster.node(1);
    let mut session = soon(echoes(&cluster.client(1), node.address)).await;
    session
        .writer
        .write_all(&[3; 1 << 20])
        .await
        .expect("written");
    // All of it has come back as far as the windows; nothing of it was read.
    let mut first = [0; 1];
    soon(session.reader.read_exact(&mut first))
        .await
        .expect("read");
    let closing = tokio::spawn(async move { node.network.close().await });
    let mut rest = Vec::new();
    let end = soon(session.reader.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "{end:?}");
    drop(session);
    soon(closing).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_certificate_is_not_right_gets_none() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let node = cluster.node(1);
    let stranger = soon(refused(&other.client(1), node.address)).await;
    assert!(
        matches!(stranger, ConnectError::Untrusted { .. }),
        "{stranger:?}"
    );
    let a_node = cluster.identity(Role::Node(node_id(4)));
    let error = soon(refused(&a_node, node.address)).await;
    assert!(matches!(error, ConnectError::Identity { .. }), "{error:?}");
    let day_over = std::time::Duration::ZERO;
    let role = Role::Client(wasmrun_net::ClientId::from_bytes([1; 16]));
    let late = cluster
        .authority
        .issue(role, day_over)
        .expect("an identity");
    let error = soon(async {
        // One that ends this second may still be valid when it is shown.
        loop {
            let opened = Session::open(&late, node.address, &Timing::default()).await;
            let mut session = match opened {
                Ok(session) => session,
                Err(error) => return error,
            };
            let _ = session.writer.write_all(b"x").await;
            if session.reader.read_exact(&mut [0; 1]).await.is_err() {
                return session.reader.ended().expect("it was closed");
            }
        }
    })
    .await;
    assert!(
        matches!(error, ConnectError::NotAccepted { .. }),
        "{error:?}"
    );
    // Nobody is there.
    let silent = tokio::net::UdpSocket::bind(LOCAL).await.expect("a socket");
    let timing = Timing {
        handshake: std::time::Duration::from_millis(200),
        ..Timing::default()
    };
    let to = silent.local_addr().expect("an address");
    let error = soon(Session::open(&cluster.client(1), to, &timing)).await;
    let error = error.expect_err("nobody");
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "{error:?}"
    );
    drop(silent);
}
