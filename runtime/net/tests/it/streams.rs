//! Streams both ways: that bytes go both ways at once, and one that nobody reads holds up nothing else.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wasmrun_net::PullOptions;

use crate::harness::{Ask, Cluster, PATIENCE, node_id, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_both_ways_and_the_end_comes_after_them() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let peer = one.network.peer(node_id(2), vec![two.address]);
    let peer = peer.expect("a peer");
    let mut stream = soon(peer.open()).await.expect("a stream");
    for _ in 0..3 {
        soon(stream.write_all(b"there")).await.expect("it is taken");
        let mut back = [0; 5];
        soon(stream.read_exact(&mut back)).await.expect("it comes");
        assert_eq!(&back, b"there");
    }
    stream.write_all(b"last").await.expect("it is taken");
    stream.shutdown().await.expect("it ends");
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.expect("the end");
    assert_eq!(rest, b"last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_reads_holds_up_no_message_and_no_object() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let peer = one.network.peer(node_id(2), vec![two.address]);
    let peer = peer.expect("a peer");
    let mut full = soon(peer.open()).await.expect("a stream");
    let filling = tokio::spawn(async move {
        // It comes back, and is not read: more than both windows hold.
        let _ = full.write_all(&vec![0; 64 << 20]).await;
    });
    let mut to = vec![0; 100_000];
    let options = PullOptions::default();
    let pulled = peer.pull(&0, 0, &mut to, &options);
    soon(pulled).await.expect("the bytes");
    let answered = soon(peer.call(&Ask::Echo(1, vec![2]), PATIENCE)).await;
    assert_eq!(answered.expect("an answer"), (1, vec![2]));
    assert!(!filling.is_finished());
    filling.abort();
}
