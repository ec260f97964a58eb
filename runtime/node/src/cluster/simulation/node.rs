//! A process of a node: all of it that has to do with the control store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use wasmrun_control::records::{GROUPS, TASKS};
use wasmrun_control::simulated::{Faults, Line, Process, Store, Time, Way};
use wasmrun_control::{
    Changes, Clock, ControlStore, Entry, Error, Event, LeaseId, LeaseKeeper, Revision,
};
use wasmrun_model::cluster::Labels;
use wasmrun_model::id::{GroupId, Incarnation, NodeId, TaskId};
use wasmrun_model::random::Random;
use wasmrun_model::wire::Amounts;

use super::super::members::{Members, NodeRecord};
use super::super::membership::{self, Host, Registered};
use super::super::records::{Found, Receipt, RecordId, Records, Standing, Written};
use super::super::turns::{Heir, Reasons, look};
use super::super::watched::{self, Follow};
use super::names::{Book, Names};
use super::oracles::Oracle;

/// How long leases live here.
pub(super) const TTL: Duration = Duration::from_secs(3);

/// What a record says here: how often it was changed, and how often it was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) changes: u64,
    pub(super) takeovers: u64,
}

impl Said {
    pub(super) fn to_value(self) -> Bytes {
        format!("{} {}", self.changes, self.takeovers).into()
    }

    pub(super) fn from_value(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).expect("it is text");
        let (changes, takeovers) = text.split_once(' ').expect("it is two numbers");
        let number = |text: &str| text.parse().expect("it is a number");
        Self {
            changes: number(changes),
            takeovers: number(takeovers),
        }
    }
}

/// What a node believes to own.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    said: Said,
    /// Whether the store has said that it has the record.
    is_kept: bool,
}

/// Records of one kind at a node, and what it does with them: as a server does with tasks (`server/durable`).
pub(super) struct Shelf<I> {
    me: NodeId,
    pub(super) records: Records<I>,
    held: Mutex<BTreeMap<I, Ownership>>,
    oracle: Arc<Oracle>,
}

impl<I: RecordId + Ord> Shelf<I> {
    pub(super) fn ids(&self) -> Vec<I> {
        self.held.lock().keys().copied().collect()
    }

    pub(super) fn stored_ids(&self) -> BTreeSet<String> {
        let held = self.held.lock();
        let kept = held.iter().filter(|(_, it)| it.is_kept);
        kept.map(|(id, _)| id.to_string()).collect()
    }

    /// Begins something that is to have a record.
    pub(super) fn begin(self: &Arc<Self>, id: I) {
        let said = Said {
            changes: 1,
            takeovers: 0,
        };
        let held = Ownership {
            said,
            is_kept: false,
        };
        self.held.lock().insert(id, held);
        let written = self.records.put(id, said.to_value());
        let written = written.expect("there is room");
        self.follow(id, said, written);
    }

    /// Changes a record, if it is kept.
    pub(super) fn change(self: &Arc<Self>, id: I) {
        let said = match self.held.lock().get_mut(&id) {
            Some(held) if held.is_kept => {
                held.said.changes += 1;
                held.said
            }
            _ => return,
        };
        let written = self.records.replace(id, said.to_value());
        self.follow(id, said, written);
    }

    /// Ends what has a record.
    pub(super) fn end(self: &Arc<Self>, id: I) {
        self.held.lock().remove(&id);
        self.oracle.ends(I::PREFIX, id);
        let written = self.records.delete(id);
        let shelf = self.clone();
        tokio::spawn(async move {
            match written.await {
                Ok(Written::Done) => shelf.oracle.ended(I::PREFIX, id),
                Ok(Written::Refused(why)) => shelf.oracle.violated(why),
                // Who has it now goes on with it.
                Ok(Written::Taken) => shelf.oracle.lives_on(I::PREFIX, id),
                Err(_) => {}
            }
        });
    }

    fn follow(self: &Arc<Self>, id: I, said: Said, written: Receipt) {
        let shelf = self.clone();
        tokio::spawn(async move {
            match written.await {
                Ok(Written::Done) => {
                    shelf.oracle.promises(I::PREFIX, id, said);
                    if let Some(held) = shelf.held.lock().get_mut(&id) {
                        held.is_kept = true;
                    }
                }
                Ok(Written::Taken) => drop(shelf.held.lock().remove(&id)),
                Ok(Written::Refused(why)) => shelf.oracle.violated(why),
                Err(_) => {}
            }
        });
    }

    async fn adopt(&self, owner: NodeId, found: Vec<Found<I>>) -> Result<(), Error> {
        let next = found.into_iter().map(|found| {
            let mut said = Said::from_value(found.value());
            said.takeovers += 1;
            (found, said)
        });
        let next: Vec<_> = next.collect();
        let values = next
            .iter()
            .map(|(found, said)| (found.clone(), said.to_value()));
        let values: Vec<_> = values.collect();
        let taken = self.records.take(owner, &values).await?;
        for (found, said) in next {
            if taken.contains(&found.id) {
                let held = Ownership {
                    said,
                    is_kept: true,
                };
                self.held.lock().entry(found.id).or_insert(held);
            }
        }
        Ok(())
    }
}

/// Who looks for records without an owner.
struct Looking<I>(Arc<Shelf<I>>);

#[async_trait]
impl<I: RecordId + Ord> Heir<I> for Looking<I> {
    type Server = Shelf<I>;

    fn server(&self) -> Option<Arc<Shelf<I>>> {
        Some(self.0.clone())
    }

    fn records(shelf: &Shelf<I>) -> &Records<I> {
        &shelf.records
    }

    fn is_willing(_: &Shelf<I>) -> bool {
        true
    }

    async fn look_at_own(&mut self, shelf: &Arc<Shelf<I>>) -> Result<bool, Error> {
        let kept = shelf.stored_ids();
        let found = shelf.records.own().await?;
        let there: BTreeSet<String> = found.iter().map(|it| it.id.to_string()).collect();
        let is_gone = |id: &I| kept.contains(&id.to_string()) && !there.contains(&id.to_string());
        shelf.held.lock().retain(|id, _| !is_gone(id));
        let is_new = |it: &Found<I>| !shelf.held.lock().contains_key(&it.id);
        let new = found.into_iter().filter(is_new).collect();
        shelf.adopt(shelf.me, new).await?;
        Ok(false)
    }

    async fn inherit(
        &mut self,
        shelf: &Arc<Shelf<I>>,
        owner: NodeId,
        found: Vec<Found<I>>,
    ) -> Result<(), Error> {
        shelf.adopt(owner, found).await
    }
}

/// All that is below a prefix, as a node hears of it.
struct View<const TASK: bool> {
    way: Arc<Way>,
    seen: Arc<Mutex<BTreeMap<Bytes, Bytes>>>,
}

impl<const TASK: bool> Follow for View<TASK> {
    const PREFIX: &'static str = if TASK { TASKS } else { GROUPS };
    const WHAT: &'static str = "records";

    fn store(&self) -> &dyn ControlStore {
        self.way.as_ref()
    }

    fn all(&mut self, entries: &[Entry], _: Revision) {
        let all = entries.iter().map(|it| (it.key.clone(), it.value.clone()));
        *self.seen.lock() = all.collect();
    }

    fn changed(&mut self, changes: Changes) {
        let mut seen = self.seen.lock();
        for event in changes.events {
            match event {
                Event::Put(entry) => drop(seen.insert(entry.key, entry.value)),
                Event::Delete { key } => drop(seen.remove(&key)),
            }
        }
    }
}

/// What is in a process.
struct Body {
    id: NodeId,
    members: Members,
    lease: Mutex<Option<LeaseId>>,
    own: Mutex<NodeRecord>,
    /// Which incarnations the node has had: on its disk.
    incarnations: Arc<AtomicU64>,
    returns: watch::Sender<u64>,
    is_up: AtomicBool,
    is_confirmed: AtomicBool,
    names: OnceLock<Weak<Names>>,
}

/// One part of a process, with its own way to the store.
pub(super) struct Place {
    body: Arc<Body>,
    way: Arc<Way>,
    clock: Arc<dyn Clock>,
}

impl Standing for Place {
    fn id(&self) -> NodeId {
        self.body.id
    }

    fn store(&self) -> &dyn ControlStore {
        self.way.as_ref()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn lease(&self) -> Option<LeaseId> {
        *self.body.lease.lock()
    }

    fn others(&self) -> Vec<NodeId> {
        self.body.members.ids()
    }
}

#[async_trait]
impl Host for Place {
    fn shared_store(&self) -> Arc<dyn ControlStore> {
        self.way.clone()
    }

    fn lease_ttl(&self) -> Duration {
        TTL
    }

    fn members(&self) -> &Members {
        &self.body.members
    }

    fn record(&self) -> NodeRecord {
        self.body.own.lock().clone()
    }

    fn amend_own(&self, record: NodeRecord) {
        *self.body.own.lock() = record;
    }

    fn set_lease(&self, lease: LeaseId) {
        *self.body.lease.lock() = Some(lease);
    }

    fn set_confirmed(&self, is_confirmed: bool) {
        let was_confirmed = self.body.is_confirmed.swap(is_confirmed, Ordering::AcqRel);
        if is_confirmed && !was_confirmed {
            let names = self.body.names.get().and_then(Weak::upgrade);
            names.expect("it has a table").claim_again();
        }
    }

    fn meet(&self, _: NodeId, _: &NodeRecord) {}

    fn met(&self, _: NodeId, _: Incarnation) {}

    fn left(&self, _: NodeId, _: Incarnation) {}

    fn forget(&self, _: NodeId) {}

    async fn begin_incarnation(&self) {
        self.body.own.lock().incarnation = next_incarnation(&self.body.incarnations);
        self.clock.sleep(Duration::from_millis(10)).await;
    }

    async fn look_if_removed(&self) {}

    fn lives_again(&self) {
        self.body.returns.send_modify(|count| *count += 1);
    }
}

fn next_incarnation(incarnations: &AtomicU64) -> Incarnation {
    Incarnation(incarnations.fetch_add(1, Ordering::Relaxed) + 1)
}

/// A process of a node.
pub(super) struct Node {
    pub(super) process: Process,
    pub(super) line: Arc<Line>,
    pub(super) tasks: Arc<Shelf<TaskId>>,
    pub(super) groups: Arc<Shelf<GroupId>>,
    body: Arc<Body>,
    place: Arc<Place>,
    /// What it has heard of all records.
    pub(super) seen: [Arc<Mutex<BTreeMap<Bytes, Bytes>>>; 2],
    follows: [Arc<Way>; 2],
    pub(super) names: Arc<Names>,
}

impl Node {
    /// Starts a process of a node over a line with these faults.
    pub(super) fn start(
        (id, incarnations): (NodeId, &Arc<AtomicU64>),
        process: Process,
        (time, store): (&Arc<Time>, &Arc<Store>),
        (faults, mut random): (Faults, Random),
        (book, oracle): (&Arc<Book>, &Arc<Oracle>),
    ) -> Arc<Self> {
        let number = id.as_bytes()[0];
        let own = NodeRecord {
            name: format!("node-{number}").parse().expect("this is a name"),
            labels: Labels::new(),
            incarnation: next_incarnation(incarnations),
            addresses: Vec::new(),
            is_head: false,
            is_draining: false,
            total: Amounts::new(),
            version: String::new(),
        };
        let body = Arc::new(Body {
            id,
            members: Members::new(),
            lease: Mutex::default(),
            own: Mutex::new(own),
            incarnations: incarnations.clone(),
            returns: watch::Sender::new(0),
            is_up: AtomicBool::default(),
            is_confirmed: AtomicBool::new(true),
            names: OnceLock::new(),
        });
        let line = Line::new(faults);
        let mut way = || Way::new(store, &line, (time, process), random.split());
        let ways = [way(), way(), way(), way(), way()];
        let mut places = ways[..3].iter().map(|way| {
            Arc::new(Place {
                body: body.clone(),
                way: way.clone(),
                clock: Arc::new(time.hand(process, random.next())),
            })
        });
        let mut place = || places.next().expect("there are three");
        let (tasks, groups) = (shelf(id, place(), oracle), shelf(id, place(), oracle));
        let place = place();
        let names = Names::new(process, place.clone(), &line, book, oracle);
        let _ = body.names.set(Arc::downgrade(&names));
        let node = Arc::new(Self {
            process,
            tasks,
            groups,
            place,
            seen: Default::default(),
            follows: [ways[3].clone(), ways[4].clone()],
            names,
            body,
            line,
        });
        tokio::spawn(node.clone().run());
        node
    }

    pub(super) fn id(&self) -> NodeId {
        self.body.id
    }

    /// Whether it does its work, as far as it knows.
    pub(super) fn is_up(&self) -> bool {
        self.body.is_up.load(Ordering::Acquire)
    }

    pub(super) fn others(&self) -> Vec<NodeId> {
        self.body.members.ids()
    }

    async fn run(self: Arc<Self>) {
        let registered = loop {
            match self.enter().await {
                Some(registered) => break registered,
                None => self.place.clock.sleep(Duration::from_millis(500)).await,
            }
        };
        tokio::spawn(membership::run(self.place.clone(), registered));
        let reasons = || Reasons::new(self.body.members.count(), self.body.returns.subscribe());
        tokio::spawn(look(Looking(self.tasks.clone()), reasons()));
        tokio::spawn(look(Looking(self.groups.clone()), reasons()));
        self.body.is_up.store(true, Ordering::Release);
    }

    /// Comes into the cluster, as `open` and `begin` do.
    async fn enter(&self) -> Option<Registered> {
        let (place, store) = (self.place.as_ref(), self.place.shared_store());
        let lease = store.grant(TTL).await.ok()?;
        let keeper = LeaseKeeper::with_clock(store.clone(), lease, place.clock.clone());
        let name = place.record().name;
        let claimed =
            membership::claim_name(store.as_ref(), self.id(), &keeper, &name, false).await;
        claimed.ok()?;
        let [tasks, groups] = &self.follows;
        let [see_tasks, see_groups] = &self.seen;
        follow::<true>(tasks, see_tasks, place).await.ok()?;
        follow::<false>(groups, see_groups, place).await.ok()?;
        membership::register(place, keeper).await.ok()
    }
}

fn shelf<I: RecordId>(me: NodeId, place: Arc<Place>, oracle: &Arc<Oracle>) -> Arc<Shelf<I>> {
    Arc::new(Shelf {
        me,
        records: Records::start(place, &Handle::current()),
        held: Mutex::default(),
        oracle: oracle.clone(),
    })
}

async fn follow<const TASK: bool>(
    way: &Arc<Way>,
    seen: &Arc<Mutex<BTreeMap<Bytes, Bytes>>>,
    place: &Place,
) -> Result<(), Error> {
    let mut view = View::<TASK> {
        way: way.clone(),
        seen: seen.clone(),
    };
    let watch = watched::begin(&mut view).await?;
    tokio::spawn(watched::run(view, watch, place.clock.clone()));
    Ok(())
}
