//! The promises of a control store.
//!
//! Each function is one promise, over any store. They assert no times: where something must happen, they
//! wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wasmrun_control::{
    Changes, Condition, ControlStore, Error, Event, LeaseId, MAX_KEY_BYTES, MAX_TXN_OPS,
    MAX_VALUE_BYTES, Op, OpReply, Range, Revision, Txn, Watch,
};

use crate::Harness;

type Store = Arc<dyn ControlStore>;

async fn put(store: &Store, key: &str, value: &str) -> Revision {
    let (key, value) = (key.to_owned(), value.to_owned());
    store.put(key.into(), value.into(), None).await.unwrap()
}

async fn value(store: &Store, key: &str) -> Option<String> {
    let entry = store.get(key.as_bytes()).await.unwrap()?;
    Some(String::from_utf8(entry.value.to_vec()).unwrap())
}

async fn all(store: &Store, prefix: &str) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut range = Range::prefix(prefix.to_owned());
    let mut found = Vec::new();
    loop {
        let page = store.range(range.clone()).await.unwrap();
        found.extend(page.entries.iter().map(|e| (text(&e.key), text(&e.value))));
        match page.next {
            Some(next) => range.from = next,
            None => return found,
        }
    }
}

/// `+key=value` and `-key` of all events.
fn show(changes: &Changes) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let show = |event: &Event| match event {
        Event::Put(entry) => format!("+{}={}", text(&entry.key), text(&entry.value)),
        Event::Delete { key } => format!("-{}", text(key)),
    };
    changes.events.iter().map(show).collect()
}

async fn next(watch: &mut Watch) -> Vec<String> {
    show(&watch.next().await.unwrap())
}

pub async fn values_and_their_numbers(harness: &mut dyn Harness) {
    let store = harness.store();
    assert_eq!(store.get(b"a").await, Ok(None));
    let first = put(&store, "a", "1").await;
    let second = put(&store, "a", "2").await;
    assert_eq!(second, first.next());
    assert_eq!(store.revision().await, Ok(second));
    let entry = store.get(b"a").await.unwrap().unwrap();
    assert_eq!(
        (entry.created, entry.modified, entry.version),
        (first, second, 2)
    );
    assert_eq!((entry.value.as_ref(), entry.lease), (b"2".as_slice(), None));

    assert_eq!(store.delete("a".into()).await, Ok(true));
    assert_eq!(store.delete("a".into()).await, Ok(false));
    assert_eq!(
        store.revision().await,
        Ok(second.next()),
        "nothing to delete changes nothing"
    );
    let third = put(&store, "a", "").await;
    let entry = store.get(b"a").await.unwrap().unwrap();
    assert_eq!(
        (entry.created, entry.version, entry.value.len()),
        (third, 1, 0)
    );
}

pub async fn pages_cover_a_range(harness: &mut dyn Harness) {
    let store = harness.store();
    let names: Vec<String> = (0..250).map(|i| format!("p/{i:03}")).collect();
    for chunk in names.chunks(MAX_TXN_OPS) {
        let puts = chunk.iter().map(|name| Op::put(name.clone(), name.clone()));
        store.txn(Txn::of(puts)).await.unwrap();
    }
    put(&store, "o", "before").await;
    put(&store, "p0", "after: '0' comes after '/'").await;
    for limit in [1, 7, 64, 100, 249, 250, 251, 0] {
        let mut range = Range::prefix("p/");
        range.limit = limit;
        let mut found = Vec::new();
        loop {
            let page = store.range(range.clone()).await.unwrap();
            assert!(limit == 0 || page.entries.len() <= limit);
            found.extend(page.entries.into_iter().map(|entry| entry.key));
            match page.next {
                Some(next) => range.from = next,
                None => break,
            }
        }
        assert!(
            found.iter().eq(names.iter().map(String::as_bytes)),
            "pages of {limit}"
        );
        if limit == 1 {
            // Enough of one by one.
            continue;
        }
    }
    let page = store.range(Range::prefix("nothing")).await.unwrap();
    assert!(page.entries.is_empty() && page.next.is_none());
    assert_eq!(page.revision, store.revision().await.unwrap());
}

pub async fn transactions_are_all_or_nothing(harness: &mut dyn Harness) {
    let store = harness.store();
    let create = || {
        Txn::when("lock", Condition::Absent)
            .then(Op::put("lock", "mine"))
            .then(Op::put("log", "taken"))
            .then(Op::get("log"))
            .otherwise(Op::get("lock"))
            .otherwise(Op::delete("nobody"))
    };
    let first = store.txn(create()).await.unwrap();
    assert!(first.succeeded);
    assert_eq!(first.replies[..2], [OpReply::Put, OpReply::Put]);
    let OpReply::Got(Some(log)) = &first.replies[2] else {
        panic!("a step sees what steps before it did: {first:?}")
    };
    assert_eq!(
        (log.value.as_ref(), log.modified),
        (b"taken".as_slice(), first.revision)
    );

    let second = store.txn(create()).await.unwrap();
    assert!(!second.succeeded);
    assert_eq!(second.revision, first.revision, "it changed nothing");
    let [OpReply::Got(Some(lock)), OpReply::Deleted(false)] = &second.replies[..] else {
        panic!("{second:?}")
    };
    assert_eq!(
        (lock.value.as_ref(), lock.modified),
        (b"mine".as_slice(), first.revision)
    );

    // One revision for both; the step without a lease that lives stops all of it.
    let gone = LeaseId(0x7777_7777);
    let refused = Txn::of([Op::put("lock", "x"), Op::put_leased("other", "y", gone)]);
    assert_eq!(
        store.txn(refused).await,
        Err(Error::LeaseLost { lease: gone })
    );
    assert_eq!(value(&store, "lock").await.as_deref(), Some("mine"));
    assert_eq!(store.get(b"other").await, Ok(None));
}

pub async fn conditions_hold_or_not(harness: &mut dyn Harness) {
    let store = harness.store();
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    let revision = store
        .put("k".into(), "v".into(), Some(lease.id))
        .await
        .unwrap();
    let cases = [
        ("k", Condition::Absent, false),
        ("k", Condition::Present, true),
        ("k", Condition::Version(1), true),
        ("k", Condition::Version(2), false),
        ("k", Condition::Modified(revision), true),
        ("k", Condition::Modified(revision.next()), false),
        ("k", Condition::Value("v".into()), true),
        ("k", Condition::Value("".into()), false),
        ("k", Condition::Lease(lease.id), true),
        ("k", Condition::Lease(LeaseId(lease.id.0 + 1)), false),
        ("no", Condition::Absent, true),
        ("no", Condition::Present, false),
        ("no", Condition::Version(0), false),
        ("no", Condition::Modified(Revision(0)), false),
        ("no", Condition::Value("".into()), false),
        ("no", Condition::Lease(LeaseId(0)), false),
    ];
    for (key, condition, expected) in cases {
        let reply = store.txn(Txn::when(key, condition.clone())).await.unwrap();
        assert_eq!(reply.succeeded, expected, "{key}: {condition:?}");
    }
    let both = Txn::when("k", Condition::Present).and("no", Condition::Present);
    assert!(!store.txn(both).await.unwrap().succeeded);
}

pub async fn what_is_too_large_is_refused(harness: &mut dyn Harness) {
    let store = harness.store();
    let longest = "k".repeat(MAX_KEY_BYTES);
    put(&store, &longest, "v").await;
    assert_eq!(value(&store, &longest).await.as_deref(), Some("v"));
    assert_eq!(all(&store, &longest).await.len(), 1);

    let too_large = |error| matches!(error, Error::TooLarge { .. });
    let longer = "k".repeat(MAX_KEY_BYTES + 1);
    assert!(too_large(store.get(longer.as_bytes()).await.unwrap_err()));
    let large = vec![0; MAX_VALUE_BYTES + 1];
    assert!(too_large(
        store.put("k".into(), large.into(), None).await.unwrap_err()
    ));
    let ops = (0..=MAX_TXN_OPS).map(|i| Op::put(format!("{i}"), ""));
    assert!(too_large(store.txn(Txn::of(ops)).await.unwrap_err()));
    let half = vec![0; MAX_VALUE_BYTES * 3 / 4];
    let sum = [Op::put("a", half.clone()), Op::put("b", half)];
    assert!(too_large(store.txn(Txn::of(sum)).await.unwrap_err()));
    let invalid = |error| matches!(error, Error::Invalid { .. });
    assert!(invalid(store.get(b"").await.unwrap_err()));
    let twice = [Op::put("a", "1"), Op::delete("a")];
    assert!(invalid(store.txn(Txn::of(twice)).await.unwrap_err()));
    let future = store.revision().await.unwrap().next();
    assert!(invalid(store.compact(future).await.unwrap_err()));
}

pub async fn large_values_survive(harness: &mut dyn Harness) {
    let store = harness.store();
    for i in 0..5_u8 {
        let large: Vec<u8> = (0..MAX_VALUE_BYTES).map(|at| at as u8 ^ i).collect();
        store
            .put(format!("big/{i}").into(), large.into(), None)
            .await
            .unwrap();
    }
    let mut range = Range::prefix("big/");
    let mut seen = 0;
    loop {
        let page = store.range(range.clone()).await.unwrap();
        for entry in &page.entries {
            let right = (0..MAX_VALUE_BYTES).all(|at| entry.value[at] == at as u8 ^ seen);
            assert!(right && entry.value.len() == MAX_VALUE_BYTES);
            seen += 1;
        }
        match page.next {
            Some(next) => range.from = next,
            None => break,
        }
    }
    assert_eq!(seen, 5);
    let mut watch = store.watch(b"big/", Revision(1)).await.unwrap();
    for _ in 0..5 {
        let changes = watch.next().await.unwrap();
        let [Event::Put(entry)] = &changes.events[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(entry.value.len(), MAX_VALUE_BYTES);
    }
}

pub async fn watches_see_each_revision_once(harness: &mut dyn Harness) {
    let store = harness.store();
    put(&store, "a", "before").await;
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    put(&store, "a", "1").await;
    let both = Txn::of([Op::delete("a"), Op::put("c", "2"), Op::put("b", "3")]);
    let revision = store.txn(both).await.unwrap().revision;
    put(&store, "a", "4").await;
    assert_eq!(next(&mut watch).await, ["+a=1"]);
    let changes = watch.next().await.unwrap();
    assert_eq!(
        (show(&changes), changes.revision),
        (vec!["-a".into(), "+c=2".into(), "+b=3".into()], revision)
    );
    assert_eq!(next(&mut watch).await, ["+a=4"]);

    // Dropping a wait in the middle loses nothing.
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for i in 0..200 {
                put(&store, "n", &i.to_string()).await;
            }
        }
    });
    let mut expected = 0;
    let mut patience = Duration::ZERO;
    while expected < 200 {
        if let Ok(changes) = tokio::time::timeout(patience, watch.next()).await {
            assert_eq!(show(&changes.unwrap()), [format!("+n={expected}")]);
            expected += 1;
        } else {
            patience += Duration::from_micros(50);
        }
    }
    writer.await.unwrap();
}

pub async fn a_watch_from_the_past(harness: &mut dyn Harness) {
    let store = harness.store();
    let start = put(&store, "x", "0").await;
    let mut tasks = JoinSet::new();
    for i in 0..50 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for j in 0..10 {
                put(&store, &format!("x/{i}"), &j.to_string()).await;
            }
        });
    }
    tasks.join_all().await;
    let mut watch = store.watch(b"x/", start.next()).await.unwrap();
    let mut last = start;
    let mut seen = BTreeMap::new();
    for _ in 0..500 {
        let changes = watch.next().await.unwrap();
        assert_eq!(changes.revision, last.next());
        last = changes.revision;
        for event in changes.events {
            let Event::Put(entry) = event else {
                panic!("nothing was deleted")
            };
            let count = seen.entry(entry.key).or_insert(0_u64);
            assert_eq!(entry.value.as_ref(), count.to_string().as_bytes());
            *count += 1;
        }
    }
    assert!(seen.len() == 50 && seen.values().all(|count| *count == 10));
    // One that begins in the future waits for it.
    let mut later = store.watch(b"", last.next().next()).await.unwrap();
    put(&store, "y", "not yet").await;
    put(&store, "y", "now").await;
    assert_eq!(next(&mut later).await, ["+y=now"]);
}

pub async fn prefixes_do_not_mix(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut ab = store.watch(b"ab", Revision(1)).await.unwrap();
    let mut high = store.watch(b"\xff", Revision(1)).await.unwrap();
    for key in ["a", "aa", "ab", "ab/", "abc", "ac", "b"] {
        put(&store, key, key).await;
    }
    store
        .put(b"\xff\xff".to_vec().into(), "h".into(), None)
        .await
        .unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.extend(next(&mut ab).await);
    }
    assert_eq!(seen, ["+ab=ab", "+ab/=ab/", "+abc=abc"]);
    assert_eq!(high.next().await.unwrap().events.len(), 1);
    let page = store.range(Range::prefix(b"\xff".to_vec())).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let keys: Vec<_> = all(&store, "ab")
        .await
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, ["ab", "ab/", "abc"]);
}

pub async fn compacted_history_is_said(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut revisions = Vec::new();
    for i in 0..20 {
        revisions.push(put(&store, "k", &i.to_string()).await);
    }
    store.delete("k".into()).await.unwrap();
    let through = revisions[9];
    store.compact(through).await.unwrap();
    store.compact(revisions[3]).await.unwrap();
    let refused = |from| {
        let store = Arc::clone(&store);
        async move {
            match store.watch(b"", from).await {
                Ok(mut watch) => watch.next().await.unwrap_err(),
                Err(error) => error,
            }
        }
    };
    for from in [revisions[1], revisions[5], through] {
        let next = through.next();
        assert_eq!(refused(from).await, Error::Compacted { next });
    }
    let mut watch = store.watch(b"", through.next()).await.unwrap();
    assert_eq!(next(&mut watch).await, ["+k=10"]);
    // All of history, a deletion at its end included.
    let now = store.revision().await.unwrap();
    store.compact(now).await.unwrap();
    assert_eq!(refused(now).await, Error::Compacted { next: now.next() });
    let mut watch = store.watch(b"", now.next()).await.unwrap();
    put(&store, "k", "on").await;
    assert_eq!(next(&mut watch).await, ["+k=on"]);
    assert_eq!(value(&store, "k").await.as_deref(), Some("on"));
}

pub async fn leases_end_and_take_their_keys(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut watch = store.watch(b"l/", Revision(1)).await.unwrap();
    let lease = store.grant(Duration::from_secs(1)).await.unwrap();
    assert!(lease.ttl >= Duration::from_secs(1));
    store
        .put("l/a".into(), "1".into(), Some(lease.id))
        .await
        .unwrap();
    store
        .put("l/b".into(), "2".into(), Some(lease.id))
        .await
        .unwrap();
    put(&store, "l/stays", "3").await;
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.extend(next(&mut watch).await);
    }
    assert_eq!(seen, ["+l/a=1", "+l/b=2", "+l/stays=3", "-l/a", "-l/b"]);
    let lost = Error::LeaseLost { lease: lease.id };
    assert_eq!(store.keep_alive(lease.id).await, Err(lost.clone()));
    let late = store.put("l/c".into(), "4".into(), Some(lease.id)).await;
    assert_eq!(late, Err(lost));
    assert_eq!(all(&store, "l/").await.len(), 1);
    // It makes no difference that it is gone.
    assert_eq!(store.revoke(lease.id).await, Ok(()));
}

pub async fn leases_can_be_kept_and_revoked(harness: &mut dyn Harness) {
    let store = harness.store();
    let kept = store.grant(Duration::from_secs(2)).await.unwrap();
    let other = store.grant(Duration::from_secs(1)).await.unwrap();
    assert_ne!(kept.id, other.id);
    store
        .put("kept".into(), "".into(), Some(kept.id))
        .await
        .unwrap();
    store
        .put("other".into(), "".into(), Some(other.id))
        .await
        .unwrap();
    let mut watch = store.watch(b"", Revision(1)).await.unwrap();
    let mut deleted = Vec::new();
    // The other one ends by itself while this one is kept. It would have ended too: three times.
    for _ in 0..30 {
        store.keep_alive(kept.id).await.unwrap();
        let wait = Duration::from_millis(200);
        if let Ok(changes) = tokio::time::timeout(wait, watch.next()).await {
            deleted.extend(show(&changes.unwrap()));
        }
    }
    deleted.retain(|event| event.starts_with('-'));
    assert_eq!(deleted, ["-other"]);
    store.revoke(kept.id).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-kept"]);
    assert_eq!(
        store.keep_alive(kept.id).await,
        Err(Error::LeaseLost { lease: kept.id })
    );
}

pub async fn a_key_leaves_its_lease(harness: &mut dyn Harness) {
    let store = harness.store();
    let first = store.grant(Duration::from_secs(60)).await.unwrap().id;
    let second = store.grant(Duration::from_secs(60)).await.unwrap().id;
    for key in ["stays", "moves", "dies", "deleted"] {
        store
            .put(key.into(), "1".into(), Some(first))
            .await
            .unwrap();
    }
    put(&store, "stays", "2").await;
    store
        .put("moves".into(), "2".into(), Some(second))
        .await
        .unwrap();
    store.delete("deleted".into()).await.unwrap();
    put(&store, "deleted", "again, under none").await;
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    store.revoke(first).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-dies"]);
    assert_eq!(
        store.get(b"moves").await.unwrap().unwrap().lease,
        Some(second)
    );
    store.revoke(second).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-moves"]);
    assert_eq!(store.get(b"stays").await.unwrap().unwrap().lease, None);
}

/// Adds one to a counter, exactly once, and leaves a mark under this name.
async fn increment(store: &Store, name: &str) {
    loop {
        match try_increment(store, name).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(Error::Uncertain { .. }) => loop {
                match store.get(format!("mark/{name}").as_bytes()).await {
                    Ok(Some(_)) => return,
                    Ok(None) => break,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            },
            Err(error) => panic!("{error}"),
        }
    }
}

async fn try_increment(store: &Store, name: &str) -> Result<bool, Error> {
    let entry = store.get(b"counter").await?;
    let (condition, count) = match entry {
        None => (Condition::Absent, 0),
        Some(entry) => {
            let text = String::from_utf8(entry.value.to_vec()).unwrap();
            (
                Condition::Modified(entry.modified),
                text.parse::<u64>().unwrap(),
            )
        }
    };
    let txn = Txn::when("counter", condition)
        .and(format!("mark/{name}"), Condition::Absent)
        .then(Op::put("counter", (count + 1).to_string()))
        .then(Op::put(format!("mark/{name}"), ""));
    Ok(store.txn(txn).await?.succeeded)
}

async fn check_counter(store: &Store, expected: usize) {
    assert_eq!(value(store, "counter").await, Some(expected.to_string()));
    assert_eq!(all(store, "mark/").await.len(), expected);
}

pub async fn counters_lose_nothing(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for i in 0..10 {
                increment(&store, &format!("{task}-{i}")).await;
            }
        });
    }
    tasks.join_all().await;
    check_counter(&store, 80).await;
}

pub async fn a_thousand_watches(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut tasks = JoinSet::new();
    for i in 0..1_000 {
        let store = Arc::clone(&store);
        let mut watch = store
            .watch(format!("w/{}", i % 10).as_bytes(), Revision(1))
            .await
            .unwrap();
        tasks.spawn(async move {
            for round in 0..5 {
                assert_eq!(next(&mut watch).await, [format!("+w/{}={round}", i % 10)]);
            }
        });
    }
    for round in 0..5 {
        for i in 0..10 {
            put(&store, &format!("w/{i}"), &round.to_string()).await;
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

pub async fn a_restart_loses_nothing(harness: &mut dyn Harness) {
    let store = harness.store();
    for i in 0..50 {
        put(&store, &format!("r/{i:02}"), &i.to_string()).await;
    }
    store.delete("r/07".into()).await.unwrap();
    let before = all(&store, "").await;
    let entry = store.get(b"r/08").await.unwrap();
    let revision = store.revision().await.unwrap();
    drop(store);
    harness.restart().await;
    let store = harness.store();
    assert_eq!(all(&store, "").await, before);
    assert_eq!(store.get(b"r/08").await.unwrap(), entry);
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(put(&store, "r/08", "on").await, revision.next());
    let mut watch = store.watch(b"r/0", revision).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-r/07"]);
    assert_eq!(next(&mut watch).await, ["+r/08=on"]);
}

pub async fn watches_survive_a_restart(harness: &mut dyn Harness) {
    let store = harness.store();
    let mut watch = store.watch(b"w", Revision::ZERO).await.unwrap();
    let mut position = store.revision().await.unwrap().next();
    let mut expected = 0;
    for round in 0..3 {
        for i in 0..10 {
            put(&harness.store(), "w", &(round * 10 + i).to_string()).await;
        }
        harness.restart().await;
        while expected < (round + 1) * 10 {
            match watch.next().await {
                Ok(changes) => {
                    assert_eq!(show(&changes), [format!("+w={expected}")]);
                    position = changes.revision.next();
                    expected += 1;
                }
                // A store of this very process: its watches end with it.
                Err(Error::Unavailable { .. }) => {
                    watch = harness.store().watch(b"w", position).await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub async fn counters_survive_restarts(harness: &mut dyn Harness) {
    let (stores, current) = tokio::sync::watch::channel(harness.store());
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let current = current.clone();
        tasks.spawn(async move {
            for i in 0..40 {
                let name = format!("{task}-{i}");
                loop {
                    let store = Arc::clone(&current.borrow());
                    // A closed store stays closed: with the next one, and the same mark.
                    let once =
                        tokio::time::timeout(Duration::from_secs(3), increment(&store, &name));
                    if once.await.is_ok() {
                        break;
                    }
                    let store = Arc::clone(&current.borrow());
                    let mark = format!("mark/{name}");
                    if matches!(store.get(mark.as_bytes()).await, Ok(Some(_))) {
                        break;
                    }
                }
            }
        });
    }
    drop(current);
    for _ in 0..2 {
        let store = harness.store();
        let before = all(&store, "mark/").await.len();
        // In the midst of it: some more were made since the last time.
        while all(&store, "mark/").await.len() < (before + 10).min(160) {
            tokio::task::yield_now().await;
        }
        drop(store);
        harness.restart().await;
        stores.send_replace(harness.store());
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    check_counter(&harness.store(), 160).await;
}

pub async fn leases_survive_a_restart(harness: &mut dyn Harness) {
    let store = harness.store();
    let kept = store.grant(Duration::from_secs(10)).await.unwrap();
    let left = store.grant(Duration::from_secs(2)).await.unwrap();
    store
        .put("kept".into(), "".into(), Some(kept.id))
        .await
        .unwrap();
    let put = store.put("left".into(), "".into(), Some(left.id));
    let revision = put.await.unwrap();
    drop(store);
    harness.restart().await;
    let store = harness.store();
    store.keep_alive(kept.id).await.unwrap();
    let mut watch = store.watch(b"", revision.next()).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-left"]);
    store.keep_alive(kept.id).await.unwrap();
    assert!(store.get(b"kept").await.unwrap().is_some());
    store.revoke(kept.id).await.unwrap();
    assert_eq!(next(&mut watch).await, ["-kept"]);
}
