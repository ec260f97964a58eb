//! Who is turned away, and that both sides are told why.

use std::time::Duration;

use wasmrun_model::id::Incarnation;
use wasmrun_net::{
    ConnectError, Event, HelloError, Network, Peer, Refusal, Role, StartError, Version,
};

use crate::harness::{Cluster, End, LOCAL, Memory, Test, node_id, soon, start};

async fn refused_here<const A: u16, const B: u16>(end: &mut End<Test<A, B>>) -> ConnectError {
    match end
        .event(|event| matches!(event, Event::Refused { .. }))
        .await
    {
        Event::Refused { why, .. } => why,
        other => panic!("not a refusal: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_minor_version_apart_is_understood() {
    let cluster = Cluster::new();
    let new = start::<1, 1>(cluster.node_config(1, 1));
    let old = start::<1, 0>(cluster.node_config(2, 1));
    let peer = soon(old.network.connect(vec![new.address]))
        .await
        .expect("understood");
    let spoken = peer.info().expect("connected").version;
    assert_eq!(spoken, Version { major: 1, minor: 0 });
    let back = new.network.find(old.network.id()).expect("known");
    assert_eq!(back.info().expect("connected").version, spoken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_that_do_not_fit_are_named_on_both_sides() {
    let cluster = Cluster::new();
    let mut node = start::<1, 2>(cluster.node_config(1, 1));
    let mut old = start::<1, 0>(cluster.node_config(2, 1));
    let text = soon(old.network.connect(vec![node.address]))
        .await
        .expect_err("too old")
        .to_string();
    assert!(
        text.contains("1.2") && text.contains("1.0") && text.contains("same wasmrun"),
        "{text}"
    );
    let there = refused_here(&mut node).await;
    assert!(
        matches!(&there, ConnectError::Hello { error: HelloError::Version { ours, theirs, .. }, .. }
            if *ours == Version { major: 1, minor: 2 } && *theirs == Version { major: 1, minor: 0 }),
        "{there:?}"
    );
    // Nodes dial each other, so the older one turns the newer one away as well, which is what it logs.
    soon(node.network.connect(vec![old.address]))
        .await
        .expect_err("too new");
    let there = refused_here(&mut old).await.to_string();
    assert!(
        there.contains("version 1.2") && there.contains("and we 1.0"),
        "{there}"
    );
    let next = start::<2, 2>(cluster.node_config(3, 1));
    let text = soon(next.network.connect(vec![node.address]))
        .await
        .expect_err("too new")
        .to_string();
    assert!(text.contains("1.2") && text.contains("2.2"), "{text}");
    // A peer that is dialled for ever says so too.
    let peer = old
        .network
        .peer(node_id(1), vec![node.address])
        .expect("a peer");
    let error = soon(peer.connected()).await.expect_err("too old");
    assert!(error.is_permanent(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused_by_its_certificate() {
    let (ours, theirs) = (Cluster::new(), Cluster::new());
    let mut node = ours.node(1);
    let stranger = theirs.node(2);
    let error = soon(stranger.network.connect(vec![node.address]))
        .await
        .expect_err("a stranger");
    assert!(matches!(error, ConnectError::Untrusted { .. }), "{error:?}");
    assert!(
        error.to_string().contains("no member of our cluster"),
        "{error}"
    );
    let there = refused_here(&mut node).await;
    assert!(
        matches!(there, ConnectError::NotAccepted { .. }),
        "{there:?}"
    );
    // Others are not disturbed.
    let friend = ours.node(3);
    soon(friend.network.connect(vec![node.address]))
        .await
        .expect("a friend");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_refused() {
    let cluster = Cluster::new();
    let mut node = cluster.node(1);
    let mut config = cluster.node_config(2, 1);
    let role = Role::Node(node_id(2));
    config.identity = cluster
        .authority
        .issue(role, Duration::ZERO)
        .expect("an identity");
    let late = start::<1, 0>(config);
    // A certificate that ends this second may still be valid when it is shown.
    let error = soon(async {
        loop {
            if let Err(error) = late.network.connect(vec![node.address]).await {
                return error;
            }
            late.network.forget(node.network.id());
        }
    })
    .await;
    assert!(
        matches!(error, ConnectError::NotAccepted { .. }),
        "{error:?}"
    );
    // Of the attempts before, some may have been given up half way.
    let is_it = |event: &Event<_>| {
        let Event::Refused { why, .. } = event else {
            return false;
        };
        matches!(why, ConnectError::NotValidNow { .. })
    };
    let Event::Refused { why: there, .. } = node.event(is_it).await else {
        unreachable!("this was asked for");
    };
    // It may as well be that one of the clocks is wrong.
    for error in [error, there] {
        let error = error.to_string();
        let says = ["certificate expired", "compare the clocks of both machines"];
        assert!(says.iter().all(|it| error.contains(it)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_node_at_an_address() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node(1), cluster.node(2));
    let peer = one
        .network
        .peer(node_id(7), vec![two.address])
        .expect("a peer");
    let error = soon(peer.connected()).await.expect_err("somebody else");
    assert!(matches!(error, ConnectError::WrongNode { .. }), "{error:?}");
    let myself = soon(one.network.connect(vec![one.address]))
        .await
        .expect_err("nobody else");
    assert!(
        matches!(
            myself,
            ConnectError::Refused {
                why: Refusal::Itself,
                ..
            }
        ),
        "{myself:?}"
    );
}

/// Two nodes of which the second has dialled the first, and the first as the second sees it.
async fn connected(cluster: &Cluster) -> (End, End, Peer<Test>) {
    let (mut one, two) = (cluster.node(1), cluster.node(2));
    let peer = two
        .network
        .peer(node_id(1), vec![one.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    one.event(|event| matches!(event, Event::Connected { .. }))
        .await;
    (one, two, peer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incarnation_that_is_known_to_be_over() {
    let cluster = Cluster::new();
    let (mut one, _two, _peer) = connected(&cluster).await;
    one.network.expect(node_id(2), Incarnation(2));
    one.event(|event| matches!(event, Event::Lost { .. })).await;
    let there = refused_here(&mut one).await;
    assert!(
        matches!(
            there,
            ConnectError::WeRefuse {
                why: Refusal::OldIncarnation { .. },
                ..
            }
        ),
        "{there:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_removed_is_let_go_of_and_refused_whoever_dials() {
    let cluster = Cluster::new();
    let (mut one, two, peer) = connected(&cluster).await;
    one.network.set_removed([node_id(2)].into());
    one.event(|event| matches!(event, Event::Lost { .. })).await;
    // It dials again, and hears why not.
    let there = refused_here(&mut one).await;
    assert!(
        matches!(
            there,
            ConnectError::WeRefuse {
                why: Refusal::Removed,
                ..
            }
        ),
        "{there:?}"
    );
    let heard = soon(async {
        loop {
            match peer.connected().await {
                // Of before.
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    })
    .await;
    assert!(
        matches!(
            heard,
            ConnectError::Refused {
                why: Refusal::Removed,
                ..
            }
        ),
        "{heard:?}"
    );
    let dialled = soon(one.network.connect(vec![two.address])).await;
    assert!(
        matches!(
            dialled,
            Err(ConnectError::WeRefuse {
                why: Refusal::Removed,
                ..
            })
        ),
        "{dialled:?}"
    );
    // Who is not named any more is as any other.
    one.network.set_removed([].into());
    soon(one.network.connect(vec![two.address]))
        .await
        .expect("connected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_peers_than_there_may_be() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.limits.nodes = 1;
    let node = start::<1, 0>(config);
    let (first, second) = (cluster.node(2), cluster.node(3));
    soon(first.network.connect(vec![node.address]))
        .await
        .expect("room");
    let full = soon(second.network.connect(vec![node.address]))
        .await
        .expect_err("full");
    assert!(
        matches!(
            full,
            ConnectError::Refused {
                why: Refusal::Full,
                ..
            }
        ),
        "{full:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_and_settings_that_make_no_sense() {
    let cluster = Cluster::new();
    let other = cluster.node(1);
    let silent = tokio::net::UdpSocket::bind(LOCAL).await.expect("a socket");
    let mut config = cluster.node_config(2, 1);
    config.timing.handshake = Duration::from_millis(200);
    let hasty = start::<1, 0>(config);
    let address = silent.local_addr().expect("an address");
    let error = soon(hasty.network.connect(vec![address]))
        .await
        .expect_err("nobody");
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "{error:?}"
    );
    let none = soon(other.network.connect(Vec::new()))
        .await
        .expect_err("nowhere");
    assert_eq!(none, ConnectError::NoAddress);
    let mut config = cluster.node_config(3, 1);
    config.limits.requests = 0;
    let started = Network::<Test>::start(config, other.memory.clone());
    assert!(matches!(started, Err(StartError::Config(_))));
    let mut config = cluster.node_config(3, 1);
    config.identity = cluster.client(3);
    let started = Network::<Test>::start(config, other.memory.clone());
    assert!(matches!(started, Err(StartError::Config(_))));
    let mut config = cluster.node_config(3, 1);
    config.listen = address;
    let taken =
        Network::<Test>::start(config, other.memory.clone() as std::sync::Arc<Memory<Test>>);
    assert!(matches!(taken, Err(StartError::Listen { .. })));
}
