//! Bulk ranges: that they arrive whole, and what is said when they do not.

use std::time::Duration;

use wasmrun_net::{BulkRefusal, PullOptions, PullWhy, Range};

use crate::harness::{Ask, Cluster, End, PATIENCE, SLOWLY, byte_at, node_id, soon, start};
use crate::proxy::{Faults, Proxy};

fn is_right(bytes: &[u8], offset: u64) -> bool {
    bytes
        .iter()
        .zip(offset..)
        .all(|(byte, at)| *byte == byte_at(at))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_all_sizes() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let peer = one
        .network
        .peer(node_id(2), vec![two.address])
        .expect("a peer");
    for (len, offset, streams) in [(0, 0, 4), (1, 5, 4), (100_000, 7, 1), (3_000_001, 11, 5)] {
        let mut to = vec![0; len];
        let options = PullOptions {
            streams,
            piece_bytes: 256 << 10,
            retries: 0,
        };
        soon(peer.pull(&0, offset, &mut to, &options))
            .await
            .expect("the bytes");
        assert!(is_right(&to, offset), "{len} from {offset}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_has_threads_of_its_own() {
    let cluster = Cluster::new();
    let threads = || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        runtime.expect("a runtime")
    };
    let runtimes = [threads(), threads()];
    let ends: [End; 2] = [1, 2].map(|n| {
        let mut config = cluster.node_config(n, 1);
        let runtime = &runtimes[usize::from(n) - 1];
        config.bulk = Some(runtime.handle().clone());
        start(config)
    });
    let peer = ends[0].network.peer(node_id(2), vec![ends[1].address]);
    let peer = peer.expect("a peer");
    // Messages go on where they were.
    soon(peer.connected()).await.expect("connected");
    for _ in 0..2 {
        let peer = peer.clone();
        let pulled = runtimes[0].spawn(async move {
            let mut to = vec![0; 3_000_001];
            let options = PullOptions::for_len(to.len() as u64);
            let arrived = soon(peer.pull(&0, 11, &mut to, &options)).await;
            (arrived.expect("the bytes"), to)
        });
        let (arrived, bytes) = pulled.await.expect("no panic");
        assert!(is_right(&bytes, 11));
        let came: u64 = arrived.iter().map(|it| it.range.len).sum();
        assert_eq!(came, bytes.len() as u64);
    }
    for end in &ends {
        end.network.close().await;
    }
    for runtime in runtimes {
        runtime.shutdown_background();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_removed_while_its_connection_is_let_in_gets_nothing_by_it() {
    let cluster = Cluster::new();
    let lane = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let lane = lane.expect("a runtime");
    let mut config = cluster.node_config(1, 1);
    config.bulk = Some(lane.handle().clone());
    let one: End = start(config);
    let two = cluster.node(2);
    let peer = two.network.peer(node_id(1), vec![one.address]);
    let peer = peer.expect("a peer");
    soon(peer.connected()).await.expect("connected");
    // What is let in for bulk is served by a thread that is held up.
    let (free, is_free) = std::sync::mpsc::channel::<()>();
    let held = lane.spawn(async move { is_free.recv() });
    let tasks = lane.metrics().num_alive_tasks();
    let pulling = tokio::spawn(async move {
        let options = PullOptions {
            retries: 0,
            ..PullOptions::default()
        };
        peer.pull(&0, 0, &mut [0; 100], &options).await
    });
    soon(async {
        while lane.metrics().num_alive_tasks() == tasks {
            tokio::task::yield_now().await;
        }
    })
    .await;
    one.network.set_removed([node_id(2)].into());
    free.send(()).expect("it waits");
    let freed = held.await.expect("no panic");
    assert_eq!(freed, Ok(()));
    let pulled = soon(pulling).await.expect("no panic");
    assert!(pulled.is_err(), "{pulled:?}");
    one.network.close().await;
    lane.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_link_brings_all_bytes() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let proxy = Proxy::start(two.address, Faults::BAD, 7).await;
    let peer = one
        .network
        .peer(node_id(2), vec![proxy.address])
        .expect("a peer");
    let mut to = vec![0; 2 << 20];
    let options = PullOptions::default();
    soon(peer.pull(&0, 99, &mut to, &options))
        .await
        .expect("the bytes");
    assert!(is_right(&to, 99));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_named() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.bulk_stall = Duration::from_millis(300);
    let (one, two) = (start::<1, 0>(config), cluster.node(2));
    let peer = one
        .network
        .peer(node_id(2), vec![two.address])
        .expect("a peer");
    let options = PullOptions {
        streams: 2,
        piece_bytes: 64 << 10,
        retries: 1,
    };
    let mut to = vec![0; 200_000];
    let whole = Range {
        offset: 10,
        len: 200_000,
    };
    let error = soon(peer.pull(&1, 10, &mut to, &options))
        .await
        .expect_err("not there");
    assert_eq!(
        (error.why, error.missing),
        (BulkRefusal::NotHere.into(), vec![whole])
    );
    // Half of each piece, then a reset, and so again.
    let error = soon(peer.pull(&2, 10, &mut to, &options))
        .await
        .expect_err("broken");
    assert!(matches!(error.why, PullWhy::Broken), "{error:?}");
    for (byte, at) in to.iter().zip(10..) {
        let is_missing = error
            .missing
            .iter()
            .any(|range| (range.offset..range.offset + range.len).contains(&at));
        assert!(is_missing || *byte == byte_at(at), "{at}");
    }
    let error = soon(peer.pull(&3, 0, &mut to, &options))
        .await
        .expect_err("silent");
    assert!(matches!(error.why, PullWhy::Stalled { .. }), "{error:?}");
    // Messages go on beside it.
    assert_eq!(
        peer.call(&Ask::Echo(1, vec![]), PATIENCE).await,
        Ok((1, vec![]))
    );
    soon(two.network.close()).await;
    let error = soon(peer.pull(&0, 0, &mut to, &options))
        .await
        .expect_err("gone");
    assert_eq!(
        error.missing,
        vec![Range {
            offset: 0,
            len: 200_000
        }]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_that_has_changed_is_missing() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let peer = one
        .network
        .peer(node_id(2), vec![two.address])
        .expect("a peer");
    let options = PullOptions {
        streams: 1,
        piece_bytes: 64 << 10,
        retries: 1,
    };
    let mut to = vec![0; 200_000];
    let error = soon(peer.pull(&4, 0, &mut to, &options))
        .await
        .expect_err("a flipped bit");
    assert_eq!(error.why, PullWhy::Changed);
    assert_eq!(error.missing[0].offset, 64 << 10);
    // What came before it stays, with its checksum; the rest can be had from another.
    let first = &error.arrived[0];
    assert_eq!((first.range.offset, first.range.len), (0, 64 << 10));
    assert_eq!(first.sum, crc32fast::hash(&to[..64 << 10]));
    for range in error.missing {
        let (from, end) = (range.offset as usize, (range.offset + range.len) as usize);
        let arrived = soon(peer.pull(&0, range.offset, &mut to[from..end], &options)).await;
        let arrived = arrived.expect("the rest");
        assert_eq!(
            arrived.iter().map(|it| it.range.len).sum::<u64>(),
            range.len
        );
    }
    assert!(is_right(&to, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_ends_when_its_peer_is_forgotten() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    // Nothing else ends it in time.
    config.timing.handshake = Duration::from_secs(3600);
    let one = start::<1, 0>(config);
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await;
    let silent = silent.expect("a socket");
    let address = silent.local_addr().expect("it is bound");
    let peer = one.network.peer(node_id(2), vec![address]).expect("a peer");
    let mut to = vec![0; 1000];
    let options = PullOptions::default();
    let pull = peer.pull(&0, 0, &mut to, &options);
    let forget = async {
        // Whoever dials has said something by then.
        silent.readable().await.expect("a datagram");
        one.network.forget(node_id(2));
    };
    let (pulled, ()) = soon(async { tokio::join!(pull, forget) }).await;
    assert_eq!(pulled.expect_err("nobody is there").missing.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_stalls_holds_up_nothing_else() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    // The stream stays as it is until the test is over.
    config.timing.bulk_stall = Duration::from_secs(3600);
    let mut one = start::<1, 0>(config);
    let mut two = cluster.node(2);
    let peer = one.network.peer(node_id(2), vec![two.address]);
    let peer = peer.expect("a peer");
    soon(peer.connected()).await.expect("connected");
    let back = two.network.find(node_id(1)).expect("it is connected");
    let options = PullOptions {
        streams: 2,
        piece_bytes: 64 << 10,
        retries: 0,
    };
    let stalled = tokio::spawn({
        let (peer, options) = (peer.clone(), options.clone());
        async move {
            let mut to = vec![0; 128 << 10];
            peer.pull(&5, 0, &mut to, &options).await
        }
    });
    let mut hanging = two.memory.hanging.subscribe();
    let in_the_middle = soon(hanging.wait_for(|count| *count == 2)).await;
    drop(in_the_middle.expect("it is ours"));
    for number in 0..20 {
        // What is asked and told, in both directions.
        for (from, to, id) in [(&peer, &mut two, 1), (&back, &mut one, 2)] {
            let answer = from.call(&Ask::Echo(number, vec![1]), PATIENCE).await;
            assert_eq!(answer, Ok((number, vec![1])));
            soon(from.send(&(number, vec![]))).await.expect("sent");
            assert_eq!(to.told().await, (node_id(id), number));
        }
        // And other transfers from the same peer, over the same connection.
        let mut to = vec![0; 300_000];
        let pulled = soon(peer.pull(&0, number, &mut to, &options)).await;
        pulled.expect("the bytes");
        assert!(is_right(&to, number));
    }
    assert!(!stalled.is_finished(), "it stalls all the time");
    stalled.abort();
    // Whoever waits no longer is waited for no longer.
    let let_go = soon(hanging.wait_for(|count| *count == 0)).await;
    drop(let_go.expect("it is ours"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_its_turn_is_not_stalled() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    // Less than each of them takes, and far more than is between two parts of it.
    config.timing.bulk_stall = SLOWLY / 3 * 2;
    let mut serving = cluster.node_config(2, 1);
    serving.limits.bulk_streams = 1;
    let (one, two): (End, End) = (start(config), start(serving));
    let peer = one.network.peer(node_id(2), vec![two.address]);
    let peer = peer.expect("a peer");
    let options = PullOptions {
        retries: 0,
        ..PullOptions::default()
    };
    let pull = async || {
        let mut to = vec![0; 30_000];
        let pulled = soon(peer.pull(&6, 0, &mut to, &options)).await;
        pulled.expect("the bytes");
        assert!(is_right(&to, 0));
    };
    tokio::join!(pull(), pull());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stalled_peer_still_has_to_send_comes_from_another() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.timing.bulk_stall = Duration::from_millis(300);
    let (one, two, three) = (start::<1, 0>(config), cluster.node(2), cluster.node(3));
    let from = |end: &End, id| one.network.peer(node_id(id), vec![end.address]);
    let (stalls, serves) = (from(&two, 2), from(&three, 3));
    let options = PullOptions {
        streams: 3,
        piece_bytes: 64 << 10,
        retries: 1,
    };
    let mut to = vec![0; 200_000];
    let pulled = soon(stalls.expect("a peer").pull(&5, 7, &mut to, &options)).await;
    let error = pulled.expect_err("half of each piece is missing");
    assert!(matches!(error.why, PullWhy::Stalled { .. }), "{error:?}");
    assert!(!error.missing.is_empty(), "{error:?}");
    let serves = serves.expect("a peer");
    for range in error.missing {
        let start = (range.offset - 7) as usize;
        let part = &mut to[start..start + range.len as usize];
        let pulled = soon(serves.pull(&0, range.offset, part, &options)).await;
        pulled.expect("the rest");
    }
    assert!(is_right(&to, 7));
}
