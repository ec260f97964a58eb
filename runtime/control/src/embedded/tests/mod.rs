//! Tests of what only the embedded store promises, or what only its insides can show.

mod disk;
mod faults;
mod model;
mod time;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::types::{Condition, Op};

async fn open(path: &Path) -> Arc<Embedded> {
    Embedded::open(path, EmbeddedConfig::default())
        .await
        .unwrap()
}

fn put(key: &str, value: &str) -> Mutation {
    Mutation::Txn(Txn::of([Op::put(key.to_owned(), value.to_owned())]))
}

fn request(number: u64, floor: u64) -> Option<RequestId> {
    let client = ClientId([7; 16]);
    Some(RequestId {
        client,
        number,
        floor,
    })
}

#[tokio::test]
async fn a_request_that_comes_twice_is_done_once_even_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let stranger = store.change(request(1, 1), put("a", "1")).await;
    assert_eq!(stranger, Ok(Answer::Stranger));
    assert_eq!(store.get(b"a").await, Ok(None));

    let hello = Mutation::Introduce(ClientId([7; 16]));
    store.change(None, hello).await.unwrap();
    let once = Mutation::Txn(
        Txn::when("a", Condition::Absent)
            .then(Op::put("a", "1"))
            .otherwise(Op::put("a", "twice")),
    );
    let first = store.change(request(1, 1), once.clone()).await.unwrap();
    assert_eq!(
        store.change(request(1, 1), once.clone()).await,
        Ok(first.clone())
    );
    store.close().await;
    let store = open(folder.path()).await;
    assert_eq!(store.change(request(1, 1), once.clone()).await, Ok(first));
    assert_eq!(store.get(b"a").await.unwrap().unwrap().version, 1);

    // A floor lets go of answers; a request from below it is not done again.
    store.change(request(2, 2), put("b", "1")).await.unwrap();
    let late = store.change(request(1, 1), once).await;
    assert!(matches!(late, Err(Error::Invalid { .. })), "{late:?}");
    assert_eq!(store.get(b"a").await.unwrap().unwrap().version, 1);
    let beyond = store
        .change(request(2 + CLIENT_WINDOW, 2), put("b", "2"))
        .await;
    assert!(matches!(beyond, Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn the_oldest_clients_are_forgotten_and_may_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let id = |n: u64| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&n.to_le_bytes());
        ClientId(id)
    };
    let mut hellos = tokio::task::JoinSet::new();
    let first = store.change(None, Mutation::Introduce(id(u64::MAX))).await;
    first.unwrap();
    for n in 0..MAX_CLIENTS {
        let store = Arc::clone(&store);
        hellos.spawn(async move {
            store
                .change(None, Mutation::Introduce(id(n)))
                .await
                .unwrap()
        });
    }
    hellos.join_all().await;
    let ask = |client| {
        let id = RequestId {
            client,
            number: 1,
            floor: 1,
        };
        store.change(Some(id), put("k", "v"))
    };
    assert_eq!(ask(id(u64::MAX)).await, Ok(Answer::Stranger));
    assert!(matches!(ask(id(5)).await, Ok(Answer::Txn(_))));
}

#[tokio::test]
async fn history_is_kept_to_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig {
        history_revisions: 10,
        ..EmbeddedConfig::default()
    };
    let store = Embedded::open(folder.path(), config).await.unwrap();
    let mut slow = store.watch(b"", Revision(1)).await.unwrap();
    for i in 0..2_000 {
        // Nobody waits for each: many share a sync.
        let (answer, _) = oneshot::channel();
        let command = Command::Change {
            request: None,
            mutation: put("k", &i.to_string()),
            answer,
        };
        store.shared.commands.send(command).await.unwrap();
    }
    store.put("k".into(), "last".into(), None).await.unwrap();
    let next = Revision(2_001 - 10 + 1);
    assert_eq!(slow.next().await, Err(Error::Compacted { next }));
    let mut watch = store.watch(b"", next).await.unwrap();
    for revision in next.0..=2_001 {
        assert_eq!(watch.next().await.unwrap().revision, Revision(revision));
    }
    drop(store);
    // From the file alone.
    let store = open(folder.path()).await;
    let mut watch = store.watch(b"", next).await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, next);
}

#[tokio::test]
async fn a_folder_has_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let config = EmbeddedConfig::default();
    let second = Embedded::open(folder.path(), config.clone()).await;
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    let said = second.unwrap_err().to_string();
    assert!(said.contains("another process"), "{said}");
    drop(store);
    Embedded::open(folder.path(), config).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_said() {
    for damage in ["no database at all", "", "cut", "header"] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        for i in 0..100 {
            let value = vec![i; 4_000].into();
            store.put(format!("{i}").into(), value, None).await.unwrap();
        }
        store.close().await;
        let file = folder.path().join("control.redb");
        let mut bytes = std::fs::read(&file).unwrap();
        match damage {
            "cut" => bytes.truncate(bytes.len() / 3),
            "header" => bytes[..200].fill(0xa5),
            text => bytes = text.as_bytes().to_vec(),
        }
        std::fs::write(&file, &bytes).unwrap();
        let opened = Embedded::open(folder.path(), EmbeddedConfig::default()).await;
        match (damage, opened) {
            // As after a crash before anything was written.
            ("", Ok(store)) => assert_eq!(store.get(b"1").await, Ok(None)),
            (_, Err(error @ OpenError::Corrupt { .. })) => {
                let said = error.to_string();
                assert!(
                    said.contains("control.redb") && said.contains("backup"),
                    "{said}"
                );
            }
            (damage, other) => panic!("{damage}: {other:?}"),
        }
    }
}
