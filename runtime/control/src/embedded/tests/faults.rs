//! Disks that are full, break, or lose their power.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use wasmrun_model::random::Random;

use super::disk::MemoryDisk;
use super::*;

async fn open_on(disk: &MemoryDisk) -> Arc<Embedded> {
    let clock = Arc::new(MonotonicClock::default());
    let disk = Arc::new(disk.clone());
    let config = EmbeddedConfig::default();
    Embedded::open_disk(disk, config, clock, Place::Threads)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_full_disk_is_said_and_the_store_goes_on_when_there_is_room() {
    let disk = MemoryDisk::default();
    let store = open_on(&disk).await;
    store.put("a".into(), "1".into(), None).await.unwrap();
    let room = usize::try_from(redb::StorageBackend::len(&disk).unwrap()).unwrap();
    disk.0.lock().room = Some(room);
    let mut watch = store.watch(b"a", Revision::ZERO).await.unwrap();
    let large = Bytes::from(vec![1; 900_000]);
    let mut written = 0;
    let error = loop {
        match store
            .put(format!("big/{written}").into(), large.clone(), None)
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    // Reading goes on, nothing of the failed change is there, and small changes still fit.
    assert_eq!(store.get(b"a").await.unwrap().unwrap().value, "1");
    let revision = store.revision().await.unwrap();
    assert_eq!(revision, Revision(1 + written));
    let failed = format!("big/{written}");
    assert_eq!(store.get(failed.as_bytes()).await, Ok(None));
    let again = store.put(failed.clone().into(), large.clone(), None).await;
    assert!(matches!(again, Err(Error::Full { .. })));

    disk.0.lock().room = None;
    store.put(failed.into(), large, None).await.unwrap();
    store.put("a".into(), "2".into(), None).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, Revision(3 + written));
}

#[tokio::test]
async fn a_disk_that_breaks_is_said_and_watches_and_leases_agree_with_it() {
    let disk = MemoryDisk::default();
    let store = open_on(&disk).await;
    let lease = store.grant(Duration::from_secs(100)).await.unwrap();
    store
        .put("a".into(), "1".into(), Some(lease.id))
        .await
        .unwrap();
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    for left in 0..12 {
        disk.0.lock().writes_left = Some(left);
        let before = store.revision().await.unwrap();
        let change = store.put("b".into(), left.to_string().into(), None).await;
        disk.0.lock().writes_left = None;
        // Whatever it says, what is there and what is watched are one.
        let entry = store.get(b"b").await.unwrap();
        let is_made = entry.is_some_and(|entry| entry.value == left.to_string());
        match change {
            Ok(revision) => assert_eq!((is_made, revision), (true, before.next())),
            Err(Error::Unavailable { .. }) => assert!(!is_made),
            Err(Error::Uncertain { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let mark = store.put("mark".into(), "".into(), None).await.unwrap();
        let expected = before.0 + 1 + u64::from(is_made);
        assert_eq!(mark, Revision(expected));
        for revision in before.0 + 1..=expected {
            assert_eq!(watch.next().await.unwrap().revision, Revision(revision));
        }
    }
    assert_eq!(store.keep_alive(lease.id).await, Ok(()));
}

/// Writes until the disk is gone; whatever was answered is there after the crash.
async fn crash_once(seed: u64) {
    let mut random = Random::new(seed);
    let disk = MemoryDisk::default();
    let store = open_on(&disk).await;
    disk.0.lock().writes_left = Some(random.below(200) as u64);
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut answered = None;
            for i in 0_u64.. {
                let value = i.to_le_bytes().repeat(1 + (i as usize * 37) % 400);
                let key = format!("{writer}").into();
                match store.put(key, value.into(), None).await {
                    Ok(revision) => answered = Some((i, revision)),
                    Err(_) => break,
                }
            }
            (writer, answered)
        });
    }
    let answered: BTreeMap<_, _> = writers.join_all().await.into_iter().collect();
    drop(store);

    let disk = disk.after_crash(&mut random);
    let store = open_on(&disk).await;
    let mut last = store.revision().await.unwrap();
    for (writer, answered) in answered {
        let entry = store.get(writer.to_string().as_bytes()).await.unwrap();
        let Some((i, revision)) = answered else {
            continue;
        };
        let entry = entry.expect("it was answered");
        let found = u64::from_le_bytes(entry.value[..8].try_into().unwrap());
        assert!(
            found >= i,
            "seed {seed}: writer {writer} was told {i}, found {found}"
        );
        assert!(last >= revision, "seed {seed}");
    }
    let mut watch = store.watch(b"", Revision(1)).await.unwrap();
    for revision in 1..=last.0 {
        assert_eq!(
            watch.next().await.unwrap().revision,
            Revision(revision),
            "seed {seed}"
        );
    }
    last = last.next();
    assert_eq!(
        store.put("on".into(), "".into(), None).await,
        Ok(last),
        "seed {seed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_crash_at_any_point() {
    let seeds: u64 = std::env::var("WASMRUN_SEEDS").map_or(60, |text| text.parse().unwrap());
    for seed in 0..seeds {
        crash_once(seed).await;
    }
}

#[tokio::test]
async fn writers_at_the_same_time_share_a_sync() {
    let disk = MemoryDisk::default();
    let store = open_on(&disk).await;
    let before = disk.0.lock().syncs;
    let held = disk.0.lock();
    // The first is at the disk, which waits for us; the others queue up behind it.
    let mut writers = Vec::new();
    for i in 0..64 {
        let (answer, answered) = oneshot::channel();
        let command = Command::Change {
            request: None,
            mutation: put(&i.to_string(), ""),
            answer,
        };
        assert!(store.shared.commands.try_send(command).is_ok());
        writers.push(answered);
    }
    drop(held);
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    let syncs = disk.0.lock().syncs - before;
    // One for the first and one for the rest, or three if the thread was between two looks.
    assert!(syncs < 10, "{syncs} syncs for 64 changes");
    assert_eq!(store.revision().await, Ok(Revision(64)));
}
