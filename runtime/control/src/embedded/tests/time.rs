//! Leases against a clock that the tests turn.

use std::sync::Arc;

use tokio::sync::watch;
use wasmrun_model::time::Instant;

use super::*;

/// A clock that stands until it is turned.
#[derive(Debug)]
struct Hands(watch::Sender<Instant>);

impl Hands {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Instant::ZERO)))
    }

    /// Turns it in small steps; whoever waits for it has its turn after each.
    async fn advance(&self, by: Duration) {
        let end = *self.0.borrow() + by;
        while *self.0.borrow() < end {
            let step = Duration::from_millis(100).min(end.since(*self.0.borrow()));
            self.jump(step).await;
        }
    }

    /// Turns it at once, as if the process had been stopped meanwhile.
    async fn jump(&self, by: Duration) {
        self.0.send_modify(|now| *now = *now + by);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Clock for Hands {
    fn now(&self) -> Instant {
        *self.0.borrow()
    }

    async fn sleep_until(&self, deadline: Instant) {
        let mut hand = self.0.subscribe();
        let _ = hand.wait_for(|now| *now >= deadline).await;
    }
}

async fn open_at(path: &Path, clock: &Arc<Hands>) -> Arc<Embedded> {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let config = EmbeddedConfig::default();
    Embedded::open_with_clock(path, config, clock)
        .await
        .unwrap()
}

async fn leased(store: &Embedded, key: &str, ttl_s: u64) -> LeaseId {
    let lease = store.grant(Duration::from_secs(ttl_s)).await.unwrap().id;
    let key = Bytes::copy_from_slice(key.as_bytes());
    store.put(key, "".into(), Some(lease)).await.unwrap();
    lease
}

#[tokio::test]
async fn a_lease_lives_for_its_time_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let store = open_at(folder.path(), &clock).await;
    let short = leased(&store, "short", 3).await;
    let long = leased(&store, "long", 4).await;
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    clock.advance(Duration::from_millis(2_900)).await;
    store.keep_alive(long).await.unwrap();
    assert!(store.get(b"short").await.unwrap().is_some());
    clock.advance(Duration::from_millis(200)).await;
    let changes = watch.next().await.unwrap();
    assert_eq!(
        changes.events,
        [crate::Event::Delete {
            key: "short".into()
        }]
    );
    assert_eq!(
        store.keep_alive(short).await,
        Err(Error::LeaseLost { lease: short })
    );
    clock.advance(Duration::from_millis(3_500)).await;
    store.keep_alive(long).await.unwrap();
    assert!(store.get(b"long").await.unwrap().is_some());
}

#[tokio::test]
async fn after_a_restart_a_lease_has_its_full_time() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let store = open_at(folder.path(), &clock).await;
    let lease = leased(&store, "k", 3).await;
    clock.advance(Duration::from_millis(2_900)).await;
    store.close().await;
    let store = open_at(folder.path(), &clock).await;
    clock.advance(Duration::from_millis(2_900)).await;
    assert!(store.get(b"k").await.unwrap().is_some());
    store.keep_alive(lease).await.unwrap();
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    clock.advance(Duration::from_millis(3_100)).await;
    assert_eq!(watch.next().await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_process_that_was_stopped_gives_leases_the_time_back() {
    for has_changed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let clock = Hands::new();
        let store = open_at(folder.path(), &clock).await;
        let lease = leased(&store, "k", 3).await;
        clock.advance(Duration::from_secs(1)).await;
        if has_changed {
            // The keeper hears of that and of the time at once.
            store.shared.leases_changed.notify_one();
        }
        clock.jump(Duration::from_secs(60)).await;
        clock.advance(Duration::from_secs(1)).await;
        assert_eq!(store.keep_alive(lease).await, Ok(()));
        assert!(store.get(b"k").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_lease_with_many_keys_ends_in_pieces_that_can_be_sent() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let store = open_at(folder.path(), &clock).await;
    let lease = store.grant(Duration::from_secs(3)).await.unwrap().id;
    for chunk in 0..10 {
        let puts = (0..120).map(|i| Op::put_leased(format!("{chunk}/{i}"), "", lease));
        store.txn(Txn::of(puts)).await.unwrap();
    }
    let mut watch = store.watch(b"", Revision::ZERO).await.unwrap();
    clock.advance(Duration::from_millis(3_100)).await;
    let mut deleted = Vec::new();
    while deleted.len() < 3 {
        deleted.push(watch.next().await.unwrap().events.len());
    }
    assert_eq!(deleted, [512, 512, 1_200 - 1_024]);
    let page = store.range(Range::prefix("")).await.unwrap();
    assert!(page.entries.is_empty());
}
