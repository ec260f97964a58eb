//! Messages between peers that mean well, over links that do not.

use std::time::Duration;

use wasmrun_model::id::Incarnation;
use wasmrun_net::{CallError, Event, Lost, SendError};

use crate::harness::{Ask, Cluster, End, PATIENCE, node_id, soon, start};
use crate::proxy::{Faults, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_both_ways_and_events() {
    let cluster = Cluster::new();
    let (mut one, mut two) = (cluster.node(1), cluster.node(2));
    let peer = one
        .network
        .peer(node_id(2), vec![two.address])
        .expect("a peer");
    let info = soon(peer.connected()).await.expect("connected");
    assert_eq!(info.id, node_id(2));
    peer.send(&(7, vec![1])).await.expect("sent");
    assert_eq!(two.told().await, (node_id(1), 7));
    let answer = peer.call(&Ask::Echo(3, vec![1, 2]), PATIENCE).await;
    assert_eq!(answer, Ok((3, vec![1, 2])));
    // The way back needs no address.
    let back = two.network.find(node_id(1)).expect("known");
    back.send(&(8, vec![])).await.expect("sent");
    assert_eq!(one.told().await, (node_id(2), 8));
    assert_eq!(
        back.call(&Ask::Echo(4, vec![]), PATIENCE).await,
        Ok((4, vec![]))
    );
    let is_connected = |event: &Event<_>| matches!(event, Event::Connected { .. });
    one.event(is_connected).await;
    two.event(is_connected).await;
    soon(two.network.close()).await;
    one.event(|event| matches!(event, Event::Lost { .. })).await;
    assert_eq!(back.try_send(&(9, vec![])), Err(SendError::Closed));
    soon(one.network.close()).await;
}

/// Of two connections one is closed. That is no loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_lost_where_both_dial_at_once() {
    for _ in 0..30 {
        let cluster = Cluster::new();
        let (mut one, mut two) = (cluster.node(1), cluster.node(2));
        let dial = |from: &End, n, at| from.network.peer(node_id(n), vec![at]).expect("a peer");
        let to_two = dial(&one, 2, two.address);
        let to_one = dial(&two, 1, one.address);
        to_two.send(&(1, vec![])).await.expect("sent");
        to_one.send(&(2, vec![])).await.expect("sent");
        assert_eq!(two.told().await, (node_id(1), 1));
        assert_eq!(one.told().await, (node_id(2), 2));
        for end in [&mut one, &mut two] {
            while let Ok(event) = end.events.try_recv() {
                if let Event::Lost { why, .. } = event {
                    assert_eq!(why, Lost::Replaced);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_link_loses_nothing_and_doubles_nothing() {
    const COUNT: u64 = 400;
    let cluster = Cluster::new();
    let (one, mut two) = (cluster.node(1), cluster.node(2));
    let proxy = Proxy::start(two.address, Faults::BAD, 42).await;
    let peer = one
        .network
        .peer(node_id(2), vec![proxy.address])
        .expect("a peer");
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..COUNT {
        let peer = peer.clone();
        calls.spawn(async move {
            let bytes = vec![number as u8; (number as usize * 37) % 9000];
            let answer = peer.call(&Ask::Echo(number, bytes.clone()), PATIENCE).await;
            assert_eq!(answer, Ok((number, bytes)));
        });
    }
    for number in 0..COUNT {
        peer.send(&(number, vec![0; 300])).await.expect("sent");
    }
    for number in 0..COUNT {
        assert_eq!(two.told().await.1, number);
    }
    while let Some(called) = soon(calls.join_next()).await {
        called.expect("an answer");
    }
    let asked = two.memory.asked.lock();
    assert_eq!(asked.len() as u64, COUNT);
    assert!(asked.values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_heals_and_messages_go_on() {
    let cluster = Cluster::new();
    let (mut one, mut two) = (cluster.node(1), cluster.node(2));
    let proxy = Proxy::start(two.address, Faults::default(), 1).await;
    let peer = one
        .network
        .peer(node_id(2), vec![proxy.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    for round in 0..3_u64 {
        peer.send(&(3 * round, vec![])).await.expect("sent");
        assert_eq!(two.told().await.1, 3 * round);
        proxy.cut(true);
        // Into the void, and kept.
        peer.send(&(3 * round + 1, vec![0; 10_000]))
            .await
            .expect("sent");
        let asking = tokio::spawn({
            let peer = peer.clone();
            async move { peer.call(&Ask::Echo(round, vec![]), PATIENCE).await }
        });
        one.event(|event| matches!(event, Event::Lost { .. })).await;
        two.event(|event| matches!(event, Event::Lost { .. })).await;
        peer.send(&(3 * round + 2, vec![])).await.expect("sent");
        proxy.cut(false);
        assert_eq!(two.told().await.1, 3 * round + 1);
        assert_eq!(two.told().await.1, 3 * round + 2);
        assert_eq!(asking.await.expect("no panic"), Ok((round, vec![])));
    }
    assert!(two.memory.asked.lock().values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dialling_from_both_sides_settles() {
    const COUNT: u64 = 200;
    let cluster = Cluster::new();
    for _ in 0..10 {
        let (mut one, mut two) = (cluster.node(1), cluster.node(2));
        let there = one
            .network
            .peer(node_id(2), vec![two.address])
            .expect("a peer");
        let back = two
            .network
            .peer(node_id(1), vec![one.address])
            .expect("a peer");
        let both = async {
            for number in 0..COUNT {
                there.send(&(number, vec![0; 100])).await.expect("sent");
                back.send(&(number, vec![0; 100])).await.expect("sent");
            }
            let (one_asks, two_asks) = (Ask::Echo(1, vec![]), Ask::Echo(2, vec![]));
            let (a, b) = tokio::join!(
                there.call(&one_asks, PATIENCE),
                back.call(&two_asks, PATIENCE),
            );
            assert_eq!((a, b), (Ok((1, vec![])), Ok((2, vec![]))));
            for number in 0..COUNT {
                assert_eq!(two.told().await.1, number);
                assert_eq!(one.told().await.1, number);
            }
        };
        soon(both).await;
        soon(async { tokio::join!(one.network.close(), two.network.close()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_incarnation_begins_with_nothing_and_the_old_one_is_refused() {
    let cluster = Cluster::new();
    let mut one = cluster.node(1);
    let old = start::<1, 0>(cluster.node_config(2, 5));
    let address = old.address;
    let peer = one.network.peer(node_id(2), vec![address]).expect("a peer");
    soon(peer.connected()).await.expect("connected");
    let hanging = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call(&Ask::Never, PATIENCE).await }
    });
    soon(old.memory.hanging.subscribe().wait_for(|count| *count == 1))
        .await
        .expect("open");
    soon(old.network.close()).await;
    drop(old);
    // quinn closes the socket a moment after its last user is gone.
    let free = async {
        while std::net::UdpSocket::bind(address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(free).await;
    let mut config = cluster.node_config(2, 6);
    config.listen = address;
    let mut new = start::<1, 0>(config);
    assert_eq!(hanging.await.expect("no panic"), Err(CallError::Restarted));
    one.event(|event| {
        matches!(event, Event::Connected { info, .. } if info.incarnation == Incarnation(6))
    })
    .await;
    peer.send(&(1, vec![])).await.expect("sent");
    assert_eq!(new.told().await.1, 1);
    // One that was thought dead comes back.
    let zombie = start::<1, 0>(cluster.node_config(2, 5));
    let refused = soon(zombie.network.connect(vec![one.address])).await;
    let text = refused.expect_err("it is out of date").to_string();
    assert!(
        text.contains("incarnation 6") && text.contains("must stop"),
        "{text}"
    );
    one.event(|event| matches!(event, Event::Refused { .. }))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_to_an_incarnation_goes_to_that_one_though_it_is_not_connected_yet() {
    let cluster = Cluster::new();
    let (one, mut old) = (cluster.node(1), start::<1, 0>(cluster.node_config(2, 1)));
    let peer = old
        .network
        .peer(node_id(1), vec![one.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    let two = one.network.find(node_id(2)).expect("it has dialled");
    let send = |incarnation, what| {
        let two = two.clone();
        async move { two.send_in(Incarnation(incarnation), &(what, vec![])).await }
    };
    assert_eq!(send(2, 0).await, Err(SendError::OtherIncarnation));
    send(1, 1).await.expect("it is there");
    assert_eq!(old.told().await.1, 1);
    // It is said from elsewhere that it is in its next incarnation, before it comes in that, and while it still dials.
    one.network.expect(node_id(2), Incarnation(2));
    assert_eq!(two.info(), None);
    assert_eq!(send(1, 2).await, Err(SendError::OtherIncarnation));
    send(2, 3).await.expect("it is expected");
    soon(old.network.close()).await;
    let mut new = start::<1, 0>(cluster.node_config(2, 2));
    let peer = new
        .network
        .peer(node_id(1), vec![one.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    assert_eq!(new.told().await.1, 3);
    send(2, 4).await.expect("it is there");
    assert_eq!(new.told().await.1, 4);
    // One that was let go of is as one that was never there, but for its incarnation.
    one.network.forget(node_id(2));
    let two = one.network.peer(node_id(2), vec![]).expect("a peer");
    let old = two.send_in(Incarnation(1), &(5, vec![])).await;
    assert_eq!(old, Err(SendError::OtherIncarnation));
    two.send_in(Incarnation(2), &(6, vec![]))
        .await
        .expect("it is expected");
    assert_eq!(new.told().await.1, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_counts_for_the_incarnation_that_sent_it() {
    let cluster = Cluster::new();
    let mut one = cluster.node(1);
    let gate = one.memory.gate.acquire().await.expect("it is open");
    for incarnation in [1, 2] {
        let two = start::<1, 0>(cluster.node_config(2, incarnation));
        let there = two
            .network
            .peer(node_id(1), vec![one.address])
            .expect("a peer");
        for number in [10 * incarnation, 10 * incarnation + 1] {
            there.send(&(number, vec![])).await.expect("sent");
        }
        soon(there.flushed()).await;
        soon(two.network.close()).await;
    }
    drop(gate);
    for number in [10, 11, 20, 21] {
        assert_eq!(one.told().await.1, number);
    }
    let [old, new] = [Incarnation(1), Incarnation(2)];
    let expected = [(10, old), (11, old), (20, new), (21, new)];
    assert_eq!(*one.memory.senders.lock(), expected);
}

/// It may be asked before it has connected; and what waits for an incarnation that is over is not asked the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_incarnation_is_asked_is_answered_by_that_one_only() {
    let cluster = Cluster::new();
    let one = cluster.node(1);
    let two = one.network.peer(node_id(2), vec![]).expect("a peer");
    let ask = |incarnation, what| {
        let two = two.clone();
        let question = Ask::Echo(what, vec![]);
        async move {
            two.call_in(Incarnation(incarnation), &question, PATIENCE)
                .await
        }
    };
    assert_eq!(
        ask(1, 1).await,
        Err(CallError::OtherIncarnation),
        "not known yet"
    );
    one.network.expect(node_id(2), Incarnation(1));
    assert_eq!(ask(2, 2).await, Err(CallError::OtherIncarnation));
    let waiting = tokio::spawn(ask(1, 3));
    let whoever = tokio::spawn({
        let two = two.clone();
        async move { two.call(&Ask::Echo(4, vec![]), PATIENCE).await }
    });
    tokio::task::yield_now().await;
    let early = start::<1, 0>(cluster.node_config(2, 2));
    one.network.expect(node_id(2), Incarnation(2));
    let late = soon(waiting).await.expect("no panic");
    assert_eq!(late, Err(CallError::OtherIncarnation));
    let asked = tokio::spawn(ask(2, 5));
    early
        .network
        .peer(node_id(1), vec![one.address])
        .expect("a peer");
    assert_eq!(soon(asked).await.expect("no panic"), Ok((5, vec![])));
    assert_eq!(soon(whoever).await.expect("no panic"), Ok((4, vec![])));
    assert_eq!(ask(2, 6).await, Ok((6, vec![])));
    assert_eq!(early.memory.asked.lock().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_errors_and_not_memory() {
    let cluster = Cluster::new();
    let mut config = cluster.node_config(1, 1);
    config.limits.one_way_bytes = 64 << 10;
    config.limits.requests = 4;
    let one = start::<1, 0>(config);
    let two = cluster.node(2);
    let peer = one
        .network
        .peer(node_id(2), vec![two.address])
        .expect("a peer");
    soon(peer.connected()).await.expect("connected");
    let large = peer.try_send(&(0, vec![0; 2 << 20]));
    assert!(matches!(large, Err(SendError::Message(_))), "{large:?}");
    let answer = peer.call(&Ask::Bytes(2 << 20), PATIENCE).await;
    assert_eq!(answer, Err(CallError::ResponseTooLong));
    // A service that does not go on: what it has not taken waits here, and no more than that.
    let closed = two.memory.gate.acquire().await.expect("open");
    let mut sent = 0;
    let full = soon(async {
        loop {
            match tokio::time::timeout(
                Duration::from_millis(300),
                peer.send(&(sent, vec![0; 4096])),
            )
            .await
            {
                Ok(sending) => sending.expect("open"),
                Err(_) => return,
            }
            sent += 1;
        }
    })
    .await;
    assert_eq!(full, ());
    assert_eq!(peer.try_send(&(sent, vec![0; 4096])), Err(SendError::Full));
    // Requests do not wait behind them.
    assert_eq!(
        peer.call(&Ask::Echo(1, vec![]), PATIENCE).await,
        Ok((1, vec![]))
    );
    drop(closed);
    soon(peer.flushed()).await;
    // Nobody waits for an answer: the request is dropped at the other end.
    let waiting = two.memory.hanging.subscribe();
    let short = peer.call(&Ask::Never, Duration::from_millis(200)).await;
    assert!(
        matches!(short, Err(CallError::TimedOut { .. })),
        "{short:?}"
    );
    soon(waiting.clone().wait_for(|count| *count == 0))
        .await
        .expect("open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_lets_in_and_hangs_up_is_not_dialled_without_pause() {
    let cluster = Cluster::new();
    let (mut hangs_up, friend) = (cluster.node(1), cluster.node(3));
    let mut config = cluster.node_config(2, 1);
    // Longer than the test may take.
    let hour = std::time::Duration::from_secs(3600);
    (config.timing.backoff_min, config.timing.backoff_max) = (hour, hour);
    let dials = start::<1, 0>(config);
    let is_it =
        |event: &Event<_>| matches!(event, Event::Connected { info, .. } if info.id == node_id(2));
    for _ in 0..3 {
        // The first time, or because somebody knows better than to wait.
        let peer = dials.network.peer(node_id(1), vec![hangs_up.address]);
        assert!(peer.is_ok());
        hangs_up.event(is_it).await;
        hangs_up.network.forget(node_id(2));
        // Time enough to dial a hundred times.
        for _ in 0..100 {
            let to = vec![hangs_up.address];
            soon(friend.network.connect(to)).await.expect("a friend");
            friend.network.forget(node_id(1));
        }
        let more = std::iter::from_fn(|| hangs_up.events.try_recv().ok());
        assert_eq!(more.filter(is_it).count(), 0);
    }
}

/// Connections over which packets are under way for long are kept by quinn for several times as long after their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_closed_has_given_its_port_back() {
    let cluster = Cluster::new();
    let (mut one, mut two) = (cluster.node(1), cluster.node(2));
    let far = Faults {
        latency: Duration::from_millis(250),
        ..Faults::default()
    };
    let proxy = Proxy::start(two.address, far, 5).await;
    let there = one
        .network
        .peer(node_id(2), vec![proxy.address])
        .expect("a peer");
    soon(there.connected()).await.expect("connected");
    assert_eq!(
        there.call(&Ask::Echo(1, vec![]), PATIENCE).await,
        Ok((1, vec![]))
    );
    // Whoever still has something of it does not keep its port.
    let back = two.network.find(node_id(1)).expect("known");
    let other = two.network.clone();
    soon(two.network.close()).await;
    let mut config = cluster.node_config(2, 2);
    config.listen = two.address;
    two = start(config);
    one.event(
        |event| matches!(event, Event::Connected { info, .. } if info.incarnation == Incarnation(2)),
    )
    .await;
    there.send(&(2, vec![])).await.expect("sent");
    assert_eq!(two.told().await, (node_id(1), 2));
    assert_eq!(back.try_send(&(9, vec![])), Err(SendError::Closed));
    drop(other);
}
