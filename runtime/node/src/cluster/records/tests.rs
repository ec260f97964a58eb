//! Records in a real control store, whose answers can be held back, lost or come too late.

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use wasmrun_control::{Embedded, EmbeddedConfig, MonotonicClock, TxnReply, membership};
use wasmrun_model::id::{Incarnation, NodeId, TaskId};

use super::super::faulty::{Faulty, Transact};
use super::*;

const ME: NodeId = NodeId::from_bytes([1; 16]);
const OTHER: NodeId = NodeId::from_bytes([2; 16]);
const TASK: TaskId = TaskId::from_bytes([3; 16]);

#[test]
fn a_key_says_whose_and_which() {
    assert_eq!(parts(&records::task(ME, TASK)), Some((ME, TASK)));
    for wrong in ["tasks/", "tasks/x/y", "nodes/1", "tasks/01"] {
        assert_eq!(parts::<TaskId>(wrong.as_bytes()), None, "{wrong}");
    }
    // What `owners` goes on from.
    let next = format!("{TASKS}{ME}0");
    assert!(records::task(ME, TaskId::from_bytes([0xff; 16])) < next.as_bytes());
    assert!(records::tasks_of(ME) < next.as_bytes());
}

/// What becomes of the next changes of records.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// They are not made.
    Away,
    /// One is made, and nobody hears of it; then the store is away.
    Unheard,
    /// One is not made, and nobody hears of it; then the store is away.
    Unmade,
    /// One is not made yet, when its sender gives up; then all is well.
    Late,
}

/// Something goes wrong between the node and its store.
struct Doubtful {
    fault: Mutex<Fault>,
    /// What has not arrived yet.
    late: Mutex<Option<Txn>>,
}

fn away() -> Error {
    let why = "the network is gone".to_owned();
    Error::Unavailable { why }
}

#[async_trait]
impl Transact for Doubtful {
    async fn txn(&self, store: &Embedded, txn: Txn) -> Result<TxnReply, Error> {
        let fault = *self.fault.lock();
        match fault {
            Fault::None => return store.txn(txn).await,
            Fault::Away => return Err(away()),
            Fault::Unheard => drop(store.txn(txn).await?),
            Fault::Unmade => {}
            Fault::Late => *self.late.lock() = Some(txn),
        }
        *self.fault.lock() = match fault {
            Fault::Late => Fault::None,
            _ => Fault::Away,
        };
        let why = "the network has gone".to_owned();
        Err(Error::Uncertain { why })
    }
}

/// A node of which only its records are there.
struct Place {
    me: NodeId,
    store: Faulty<Doubtful>,
    clock: Arc<dyn Clock>,
    lease: Mutex<Option<LeaseId>>,
}

impl Standing for Place {
    fn id(&self) -> NodeId {
        self.me
    }

    fn store(&self) -> &dyn ControlStore {
        &self.store
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn lease(&self) -> Option<LeaseId> {
        *self.lease.lock()
    }

    fn others(&self) -> Vec<NodeId> {
        Vec::new()
    }
}

impl Place {
    fn new(me: NodeId, store: &Arc<Embedded>) -> Arc<Self> {
        Arc::new(Self {
            me,
            store: Faulty {
                store: store.clone(),
                way: Doubtful {
                    fault: Mutex::new(Fault::None),
                    late: Mutex::default(),
                },
            },
            clock: Arc::new(MonotonicClock::default()),
            lease: Mutex::new(None),
        })
    }

    async fn live(&self) {
        let store = self.store.store.as_ref();
        let lease = store.grant(Duration::from_secs(3600)).await.unwrap().id;
        let incarnation = membership::register(store, self.me, lease, ()).await;
        assert_ne!(incarnation, Ok(Incarnation(0)));
        *self.lease.lock() = Some(lease);
    }

    async fn die(&self) {
        let lease = self.lease().unwrap();
        self.store.revoke(lease).await.unwrap();
    }

    fn fail(&self, fault: Fault) {
        *self.store.way.fault.lock() = fault;
    }

    /// What was late arrives.
    async fn arrive(&self) {
        let late = self.store.way.late.lock().take().unwrap();
        self.store.store.txn(late).await.unwrap();
    }

    async fn failed(&self) {
        while *self.store.way.fault.lock() != Fault::Away {
            tokio::task::yield_now().await;
        }
    }

    fn records(self: &Arc<Self>) -> Records {
        Records::start(self.clone(), &Handle::current())
    }
}

async fn store() -> (tempfile::TempDir, Arc<Embedded>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let store = Embedded::open(&path, EmbeddedConfig::default()).await;
    (folder, store.unwrap())
}

async fn owners_of(store: &Embedded) -> Vec<NodeId> {
    let mut having = Vec::new();
    for owner in [ME, OTHER] {
        if store
            .get(&records::task(owner, TASK))
            .await
            .unwrap()
            .is_some()
        {
            having.push(owner);
        }
    }
    having
}

/// Two nodes that live.
async fn two(store: &Arc<Embedded>) -> (Arc<Place>, Arc<Place>) {
    let (me, other) = (Place::new(ME, store), Place::new(OTHER, store));
    me.live().await;
    other.live().await;
    (me, other)
}

/// What there is to be taken over.
async fn found(records: &Records) -> Vec<(Found<TaskId>, Bytes)> {
    let found = records.of(ME).await.unwrap();
    found.into_iter().map(|it| (it, "taken".into())).collect()
}

async fn take_over(place: &Arc<Place>) -> HashSet<TaskId> {
    let records = place.records();
    assert_eq!(records.lost_owners().await, Ok(vec![ME]));
    let found = found(&records).await;
    let taken = records.take(ME, &found).await.unwrap();
    assert_eq!(records.counts().taken_over, taken.len() as u64);
    taken
}

#[tokio::test]
async fn what_may_have_been_written_in_an_incarnation_that_is_over_is_not_written_twice() {
    let (_folder, store) = store().await;
    let (me, other) = two(&store).await;
    let records = me.records();
    me.fail(Fault::Unheard);
    let written = records.put(TASK, "mine".into()).unwrap();
    me.failed().await;
    me.die().await;
    assert_eq!(take_over(&other).await, HashSet::from([TASK]));
    me.live().await;
    me.fail(Fault::None);
    assert_eq!(written.await, Ok(Written::Taken));
    assert_eq!(owners_of(&store).await, [OTHER]);
    assert_eq!(records.counts(), RecordCounts::default());
}

#[tokio::test]
async fn what_was_not_written_in_an_incarnation_that_is_over_is_written_in_the_next() {
    let (_folder, store) = store().await;
    let me = Place::new(ME, &store);
    me.live().await;
    let records = me.records();
    for fault in [Fault::Away, Fault::Unmade, Fault::Unheard] {
        me.fail(fault);
        let written = records.put(TASK, "mine".into()).unwrap();
        me.failed().await;
        me.die().await;
        me.live().await;
        me.fail(Fault::None);
        assert_eq!(written.await, Ok(Written::Done), "{fault:?}");
        assert_eq!(owners_of(&store).await, [ME]);
        store.delete(records::task(ME, TASK)).await.unwrap();
    }
}

#[tokio::test]
async fn who_counts_as_dead_writes_nothing_until_it_lives_again() {
    let (_folder, store) = store().await;
    let me = Place::new(ME, &store);
    me.live().await;
    let records = me.records();
    me.die().await;
    let written = records.put(TASK, "mine".into()).unwrap();
    while !records.is_silent() {
        tokio::task::yield_now().await;
    }
    assert_eq!(owners_of(&store).await, []);
    assert_eq!(records.counts().waiting, 1);
    me.live().await;
    assert_eq!(written.await, Ok(Written::Done));
    assert_eq!(records.counts().written, 1);
    assert_eq!(owners_of(&store).await, [ME]);
}

#[tokio::test]
async fn what_is_about_to_end_is_not_gone_on_with() {
    let (_folder, store) = store().await;
    let me = Place::new(ME, &store);
    me.live().await;
    let records = me.records();
    let written = records.put(TASK, "mine".into()).unwrap();
    assert_eq!(written.await, Ok(Written::Done));
    assert_eq!(records.own().await.unwrap().len(), 1);
    me.fail(Fault::Away);
    drop(records.delete(TASK));
    assert_eq!(owners_of(&store).await, [ME]);
    assert!(records.own().await.unwrap().is_empty());
    me.fail(Fault::None);
    while !records.is_written() {
        tokio::task::yield_now().await;
    }
    assert_eq!(owners_of(&store).await, []);
    // Nor is anything remembered of it.
    let written = records.put(TASK, "mine".into()).unwrap();
    assert_eq!(written.await, Ok(Written::Done));
    assert_eq!(records.own().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_arrives_late_is_not_made_a_second_time() {
    let (_folder, store) = store().await;
    let me = Place::new(ME, &store);
    me.live().await;
    let records = me.records();
    me.fail(Fault::Late);
    let written = records.put(TASK, "first".into()).unwrap();
    assert_eq!(written.await, Ok(Written::Done));
    assert_eq!(records.delete(TASK).await, Ok(Written::Done));
    me.arrive().await;
    assert_eq!(owners_of(&store).await, []);
}

#[tokio::test]
async fn what_has_ended_at_another_node_is_not_begun_again() {
    let (_folder, store) = store().await;
    let (me, other) = two(&store).await;
    let records = me.records();
    me.fail(Fault::Unheard);
    let written = records.put(TASK, "mine".into()).unwrap();
    me.failed().await;
    me.die().await;
    take_over(&other).await;
    let ended = other.records().delete(TASK).await;
    assert_eq!(ended, Ok(Written::Done));
    me.live().await;
    me.fail(Fault::None);
    assert_eq!(written.await, Ok(Written::Taken));
    assert_eq!(owners_of(&store).await, []);
}

#[tokio::test]
async fn what_another_node_has_is_not_said_to_be_deleted() {
    let (_folder, store) = store().await;
    let (me, other) = two(&store).await;
    let records = me.records();
    let written = records.put(TASK, "mine".into()).unwrap();
    assert_eq!(written.await, Ok(Written::Done));
    me.die().await;
    take_over(&other).await;
    me.live().await;
    assert_eq!(records.delete(TASK).await, Ok(Written::Taken));
    assert_eq!(owners_of(&store).await, [OTHER]);
    // Of what nobody has it can be said.
    let nobodys = TaskId::from_bytes([9; 16]);
    assert_eq!(records.delete(nobodys).await, Ok(Written::Done));
}

#[tokio::test]
async fn only_a_node_that_lives_takes_over_and_knows_what() {
    let (_folder, store) = store().await;
    let (me, other) = two(&store).await;
    let written = me.records().put(TASK, "mine".into()).unwrap();
    assert_eq!(written.await, Ok(Written::Done));
    me.die().await;
    other.die().await;
    let records = other.records();
    let found = found(&records).await;
    let taken = records.take(ME, &found).await;
    assert!(matches!(taken, Err(Error::Unavailable { .. })), "{taken:?}");
    assert_eq!(owners_of(&store).await, [ME]);
    other.live().await;
    other.fail(Fault::Unheard);
    let heard_later = async {
        other.failed().await;
        other.fail(Fault::None);
    };
    let (taken, ()) = tokio::join!(records.take(ME, &found), heard_later);
    assert_eq!(taken, Ok(HashSet::from([TASK])));
    assert_eq!(owners_of(&store).await, [OTHER]);
    assert_eq!(records.counts().taken_over, 1);
}

#[tokio::test]
async fn what_waits_for_a_store_that_does_not_answer_is_bounded_by_the_records() {
    let (_folder, store) = store().await;
    let me = Place::new(ME, &store);
    me.live().await;
    let records = me.records();
    me.fail(Fault::Away);
    let first = records.put(TASK, "first".into()).unwrap();
    while !records.is_silent() {
        tokio::task::yield_now().await;
    }
    let second = records.replace(TASK, "second".into());
    for number in 0..100_000 {
        drop(records.replace(TASK, number.to_string().into()));
    }
    let last = records.replace(TASK, "last".into());
    assert_eq!(records.counts().waiting, 2, "one of them is under way");
    me.fail(Fault::None);
    assert_eq!(first.await, Ok(Written::Done));
    assert_eq!(second.await, Ok(Written::Done));
    assert_eq!(last.await, Ok(Written::Done));
    assert_eq!(records.own().await.unwrap()[0].value(), "last");
    assert_eq!(records.counts().written, 2);

    me.fail(Fault::Away);
    for number in 0..100_000 {
        drop(records.replace(TASK, number.to_string().into()));
        drop(records.delete(TASK));
    }
    let ended = records.delete(TASK);
    assert!(records.own().await.unwrap().is_empty());
    assert_eq!(records.counts().waiting, 1);
    me.fail(Fault::None);
    assert_eq!(ended.await, Ok(Written::Done));
    assert_eq!(owners_of(&store).await, []);
    assert!(records.is_written());
}
