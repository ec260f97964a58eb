//! The table of live tasks: slots, look-ups, and one queue per state.
//!
//! Owns where a task's record is and in which lists it is: its state's queue, its job's, its actor's, and that of
//! the peer with which this node shares it. All are lists through the records, so adding, finding and removing cost
//! the same with one task as with a million. Must not: decide anything.
//!
//! Invariants: a task is in the queue of the state that it is in, and every change of state is a
//! legal one, or two that are at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::class::ClassIx;
use super::record::{Doom, Gone, NewTask, Owner, PeerClaim, Sequence, TaskIx};
use crate::fairness::TenantIx;
use crate::id::{ActorId, DriverId, JobId, NodeId, OfTask, TaskId, TaskMap};
use crate::task::{Argument, Attempt, Phase, Place, TaskKind, TaskState, Terms};
use crate::time::Instant;

#[cfg(test)]
thread_local! {
    /// How many records this thread has looked at, for tests of what an event costs.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What is known of a live task.
#[derive(Debug)]
pub(crate) struct Task {
    pub id: TaskId,
    pub terms: Arc<Terms>,
    pub job: JobId,
    pub driver: DriverId,
    pub kind: TaskKind,
    pub owner: Owner,
    pub class: ClassIx,
    pub tenant: TenantIx,
    pub sequence: Sequence,
    pub attempt: Attempt,
    pub retries_left: u32,
    /// How it ends as soon as its executor has let go of it, if that is decided.
    pub doom: Option<Box<Doom>>,
    /// What it claims of the peer that it was given to.
    pub claim: Option<PeerClaim>,
    /// How often it was tried again because a node was lost.
    pub losses: u32,
    /// How often it was handed from node to node.
    pub hops: u8,
    /// Which of its alternatives it counts as where it is placed and has not started.
    pub counts_as: u16,
    pub submitted: Instant,
    pub since: Instant,
    /// When its attempt began, once one has.
    pub began: Instant,
    pub args: SmallVec<[Argument; 0]>,
    /// Which entry of a ready line is valid for it; see `lane.rs`.
    pub entry: u32,
    /// Whether such an entry exists.
    pub is_in_line: bool,
    /// What the caller has said of it.
    pub mark: u32,
    state: TaskState,
    links: [Link; LISTS],
}

impl Task {
    pub(crate) fn state(&self) -> &TaskState {
        &self.state
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// The node that it was given to.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        match &self.state {
            TaskState::Placeable(Place::Peer { node, .. }) => Some(*node),
            _ => None,
        }
    }

    /// The node that it was given to, if that has not said that it has it.
    pub(crate) fn offered_to(&self) -> Option<NodeId> {
        match &self.state {
            TaskState::Placeable(Place::Peer {
                node,
                is_accepted: false,
                ..
            }) => Some(*node),
            _ => None,
        }
    }

    pub(crate) fn actor(&self) -> Option<ActorId> {
        match self.kind {
            TaskKind::Task => None,
            TaskKind::Actor(actor) | TaskKind::Call { actor, .. } => Some(actor),
        }
    }
}

impl OfTask for Task {
    fn task(&self) -> &TaskId {
        &self.id
    }
}

const LISTS: usize = 4;
const BY_STATE: usize = 0;
const BY_JOB: usize = 1;
const BY_ACTOR: usize = 2;
const BY_PEER: usize = 3;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link {
    before: NONE,
    after: NONE,
};

/// A list through the records, in the order of insertion.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
    len: 0,
};

#[derive(Debug)]
struct Job {
    driver: DriverId,
    tasks: List,
}

/// A driver. One that only submits is forgotten with its last task: nobody says that it has gone.
#[derive(Debug, Default)]
struct Driver {
    /// Whether it has come, and not gone.
    is_here: bool,
    /// Its jobs that have live tasks.
    jobs: BTreeSet<JobId>,
}

impl Driver {
    fn is_over(&self) -> bool {
        !self.is_here && self.jobs.is_empty()
    }
}

/// The tasks that this node shares with a peer.
#[derive(Debug)]
struct PeerTasks {
    /// Ours, that were given to it.
    given: List,
    /// How many of these it has not said that it has.
    offered: u64,
    /// Its own, that it gave to us.
    taken: List,
}

const NO_PEER_TASKS: PeerTasks = PeerTasks {
    given: EMPTY,
    offered: 0,
    taken: EMPTY,
};

impl PeerTasks {
    fn is_empty(&self) -> bool {
        self.given.len == 0 && self.taken.len == 0
    }
}

/// The live tasks.
#[derive(Debug, Default)]
pub(crate) struct Table {
    tasks: TaskMap<Task>,
    states: Lists,
    jobs: BTreeMap<JobId, Job>,
    /// The drivers that have come and not gone, and those that have live tasks.
    drivers: BTreeMap<DriverId, Driver>,
    actors: BTreeMap<ActorId, List>,
    sequence: u64,
    /// By peer, where there are any.
    peers: BTreeMap<NodeId, PeerTasks>,
}

#[derive(Debug)]
struct Lists([List; Phase::LIVE]);

impl Default for Lists {
    fn default() -> Self {
        Self([EMPTY; Phase::LIVE])
    }
}

impl Table {
    /// A task is with its executor, who will soon speak of it.
    #[inline]
    pub(crate) fn expect(&mut self, ix: TaskIx) {
        let id = self[ix].id;
        self.tasks.expect(&id, ix.0);
    }

    pub(crate) fn find(&self, id: &TaskId) -> Option<TaskIx> {
        self.tasks.find(id).map(TaskIx)
    }

    pub(crate) fn get(&self, ix: TaskIx) -> Option<&Task> {
        self.tasks.at(ix.0)
    }

    /// How many are live.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// How many are in this state, which is a live one.
    pub(crate) fn count(&self, phase: Phase) -> usize {
        self.states.0[phase.index()].len as usize
    }

    /// Those in this state, which is a live one, in the order in which they came to it.
    pub(crate) fn in_phase(&self, phase: Phase) -> impl Iterator<Item = TaskIx> {
        self.walk(self.states.0[phase.index()], BY_STATE)
    }

    /// The live tasks of a job, in the order of submission.
    pub(crate) fn of_job(&self, job: &JobId) -> impl Iterator<Item = TaskIx> {
        let list = self.jobs.get(job).map_or(EMPTY, |job| job.tasks);
        self.walk(list, BY_JOB)
    }

    /// The live tasks of an actor: its creation and its calls, in the order of submission.
    pub(crate) fn of_actor(&self, actor: &ActorId) -> impl Iterator<Item = TaskIx> {
        let list = self.actors.get(actor).copied().unwrap_or(EMPTY);
        self.walk(list, BY_ACTOR)
    }

    /// The live tasks that were given to a peer, in that order.
    pub(crate) fn given_to(&self, peer: NodeId) -> impl Iterator<Item = TaskIx> {
        let list = self.peers.get(&peer).map_or(EMPTY, |it| it.given);
        self.walk(list, BY_PEER)
    }

    /// The live tasks that a peer gave to this node, in that order.
    pub(crate) fn taken_from(&self, peer: NodeId) -> impl Iterator<Item = TaskIx> {
        let list = self.peers.get(&peer).map_or(EMPTY, |it| it.taken);
        self.walk(list, BY_PEER)
    }

    /// The peers with which there are such tasks.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &NodeId> {
        self.peers.keys()
    }

    /// The live tasks of a driver, job by job.
    pub(crate) fn of_driver(&self, driver: &DriverId) -> impl Iterator<Item = TaskIx> {
        let driver = self.drivers.get(driver).into_iter();
        driver.flat_map(|driver| driver.jobs.iter().flat_map(|job| self.of_job(job)))
    }

    /// The drivers that have come and not gone, and those that have live tasks.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = &DriverId> {
        self.drivers.keys()
    }

    /// Remembers a driver, which is tracked like a task that holds nothing.
    pub(crate) fn add_driver(&mut self, driver: DriverId) {
        self.drivers.entry(driver).or_default().is_here = true;
    }

    /// Forgets a driver, as soon as it has no live tasks.
    pub(crate) fn forget_driver(&mut self, driver: &DriverId) {
        self.change_driver(driver, |driver| driver.is_here = false);
    }

    fn change_driver(&mut self, id: &DriverId, change: impl FnOnce(&mut Driver)) {
        let Some(driver) = self.drivers.get_mut(id) else {
            return;
        };
        change(driver);
        if driver.is_over() {
            self.drivers.remove(id);
        }
    }

    /// A place in the order of submission for what is no task.
    pub(crate) fn next_sequence(&mut self) -> Sequence {
        self.sequence += 1;
        Sequence(self.sequence)
    }

    /// Adds a task whose id is not live.
    #[inline]
    pub(crate) fn insert(&mut self, new: NewTask, now: Instant) -> TaskIx {
        self.sequence += 1;
        let task = Task {
            id: new.id,
            job: new.job,
            driver: new.driver,
            kind: new.kind,
            owner: new.owner,
            class: new.class,
            tenant: new.tenant,
            sequence: Sequence(self.sequence),
            attempt: new.attempt,
            retries_left: new.retries(),
            doom: None,
            claim: None,
            losses: 0,
            hops: new.hops,
            counts_as: 0,
            submitted: now,
            since: now,
            began: now,
            args: new.args,
            entry: 0,
            is_in_line: false,
            mark: 0,
            state: new.state,
            links: [UNLINKED; LISTS],
            terms: new.terms,
        };
        let (phase, job, driver, actor) = (task.phase(), task.job, task.driver, task.actor());
        let at = self.tasks.insert(task);
        append(
            &mut self.tasks,
            &mut self.states.0[phase.index()],
            BY_STATE,
            at,
        );
        let jobs = self.jobs.entry(job).or_insert_with(|| {
            self.drivers.entry(driver).or_default().jobs.insert(job);
            let tasks = EMPTY;
            Job { driver, tasks }
        });
        append(&mut self.tasks, &mut jobs.tasks, BY_JOB, at);
        if let Some(actor) = actor {
            let list = self.actors.entry(actor).or_insert(EMPTY);
            append(&mut self.tasks, list, BY_ACTOR, at);
        }
        if let Owner::Peer(peer) = new.owner {
            let of_peer = self.peers.entry(peer).or_insert(NO_PEER_TASKS);
            append(&mut self.tasks, &mut of_peer.taken, BY_PEER, at);
        }
        TaskIx(at)
    }

    /// Takes a task out: it has ended.
    pub(crate) fn remove(&mut self, ix: TaskIx, end: Phase) -> Gone {
        let at = ix.0;
        let task = &self[ix];
        let phase = task.phase();
        // What is with another node took the steps to its end there.
        let is_elsewhere = matches!(task.state, TaskState::Placeable(Place::Peer { .. }));
        assert!(
            phase.may_become(end) || is_elsewhere && end.is_terminal(),
            "task {} cannot become {end}: it is {phase}",
            task.id
        );
        let (job, actor) = (task.job, task.actor());
        self.moves_offer(self[ix].offered_to(), None);
        match self[ix].owner {
            Owner::Here => self.moves_peer(ix, self[ix].peer(), None),
            Owner::Peer(peer) => self.leaves_peer(ix, peer, |it| &mut it.taken),
        }
        unlink(
            &mut self.tasks,
            &mut self.states.0[phase.index()],
            BY_STATE,
            at,
        );
        let jobs = self.jobs.get_mut(&job).expect("a live task's job");
        unlink(&mut self.tasks, &mut jobs.tasks, BY_JOB, at);
        if jobs.tasks.len == 0 {
            let driver = jobs.driver;
            self.jobs.remove(&job);
            self.change_driver(&driver, |driver| {
                driver.jobs.remove(&job);
            });
        }
        if let Some(actor) = actor {
            let list = self.actors.get_mut(&actor).expect("a live task's actor");
            unlink(&mut self.tasks, list, BY_ACTOR, at);
            if list.len == 0 {
                self.actors.remove(&actor);
            }
        }
        let task = &mut self[ix];
        let assignment = match std::mem::replace(&mut task.state, TaskState::Infeasible) {
            TaskState::Dispatching(assignment)
            | TaskState::Running(assignment)
            | TaskState::Blocked { assignment, .. } => Some(assignment),
            _ => None,
        };
        let gone = Gone {
            id: task.id,
            attempt: task.attempt,
            owner: task.owner,
            tenant: task.tenant,
            phase,
            is_in_line: task.is_in_line,
            assignment,
        };
        // Dropped where it is: a record is too large to be moved for nothing.
        self.tasks.clear(at);
        gone
    }

    /// How many tasks of ours were given to a node that has not said that it has them.
    pub(crate) fn offered(&self, node: NodeId) -> u64 {
        self.peers.get(&node).map_or(0, |it| it.offered)
    }

    /// The node to which a task was given says that it has it. False if it was not given to that one.
    pub(crate) fn accept(&mut self, ix: TaskIx, by: NodeId) -> bool {
        let offered = self[ix].offered_to();
        match self.state_mut(ix) {
            TaskState::Placeable(Place::Peer {
                node, is_accepted, ..
            }) if *node == by => *is_accepted = true,
            _ => return false,
        }
        self.moves_offer(offered, None);
        true
    }

    fn moves_offer(&mut self, before: Option<NodeId>, after: Option<NodeId>) {
        if before == after {
            return;
        }
        if let Some(node) = after {
            self.peers.entry(node).or_insert(NO_PEER_TASKS).offered += 1;
        }
        if let Some(node) = before {
            self.peers.get_mut(&node).expect("counted").offered -= 1;
        }
    }

    /// A task that this node owns is with another peer, or with none.
    fn moves_peer(&mut self, ix: TaskIx, before: Option<NodeId>, after: Option<NodeId>) {
        if before == after {
            return;
        }
        if let Some(peer) = before {
            self.leaves_peer(ix, peer, |it| &mut it.given);
        }
        if let Some(peer) = after {
            let of_peer = self.peers.entry(peer).or_insert(NO_PEER_TASKS);
            append(&mut self.tasks, &mut of_peer.given, BY_PEER, ix.0);
        }
    }

    fn leaves_peer(&mut self, ix: TaskIx, peer: NodeId, list: fn(&mut PeerTasks) -> &mut List) {
        let of_peer = self.peers.get_mut(&peer).expect("a peer with tasks");
        unlink(&mut self.tasks, list(of_peer), BY_PEER, ix.0);
        if of_peer.is_empty() {
            self.peers.remove(&peer);
        }
    }

    /// Moves a task to the state that `next` makes of the one it is in. Returns both names.
    pub(crate) fn change(
        &mut self,
        ix: TaskIx,
        now: Instant,
        next: impl FnOnce(TaskState) -> TaskState,
    ) -> (Phase, Phase) {
        let task = &mut self[ix];
        let from = task.phase();
        let (peer, offered) = (task.peer(), task.offered_to());
        let before = std::mem::replace(&mut task.state, TaskState::Infeasible);
        task.state = next(before);
        let to = task.phase();
        let (peer_now, offered_now) = (task.peer(), task.offered_to());
        assert!(
            from.may_become(to) || at_once(from, to),
            "task {} cannot become {to}: it is {from}",
            task.id
        );
        task.since = now;
        if from != to {
            unlink(
                &mut self.tasks,
                &mut self.states.0[from.index()],
                BY_STATE,
                ix.0,
            );
            append(
                &mut self.tasks,
                &mut self.states.0[to.index()],
                BY_STATE,
                ix.0,
            );
        }
        self.moves_offer(offered, offered_now);
        self.moves_peer(ix, peer, peer_now);
        (from, to)
    }

    /// Puts a task that is in no line after all others in the order of submission.
    pub(crate) fn send_to_back(&mut self, ix: TaskIx) {
        self.sequence += 1;
        let sequence = Sequence(self.sequence);
        let task = &mut self[ix];
        assert!(!task.is_in_line, "task {} stands in line", task.id);
        task.sequence = sequence;
    }

    /// The state of a task, to change what is in it but not which one it is.
    pub(crate) fn state_mut(&mut self, ix: TaskIx) -> &mut TaskState {
        &mut self[ix].state
    }

    fn walk(&self, list: List, which: usize) -> impl Iterator<Item = TaskIx> {
        let task = move |at: u32| self.tasks.at(at).expect("a live task");
        let mut next = list.first;
        std::iter::from_fn(move || {
            let at = (next != NONE).then_some(next)?;
            next = task(at).links[which].after;
            Some(TaskIx(at))
        })
    }
}

impl std::ops::Index<TaskIx> for Table {
    type Output = Task;

    fn index(&self, ix: TaskIx) -> &Task {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        self.tasks.at(ix.0).expect("a live task")
    }
}

impl std::ops::IndexMut<TaskIx> for Table {
    fn index_mut(&mut self, ix: TaskIx) -> &mut Task {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        self.tasks.at_mut(ix.0).expect("a live task")
    }
}

/// Whether this is two legal changes at once: the state between them is one that nobody would see.
fn at_once(from: Phase, to: Phase) -> bool {
    let between = match (from, to) {
        // It needs nothing that is not there.
        (Phase::Placeable, Phase::Ready) => Phase::Waiting,
        // Its executor takes all that it is given.
        (Phase::Ready, Phase::Running) => Phase::Dispatching,
        _ => return false,
    };
    from.may_become(between) && between.may_become(to)
}

fn link(tasks: &mut TaskMap<Task>, which: usize, at: u32) -> &mut Link {
    &mut tasks.at_mut(at).expect("a live task").links[which]
}

fn append(tasks: &mut TaskMap<Task>, list: &mut List, which: usize, at: u32) {
    *link(tasks, which, at) = Link {
        before: list.last,
        after: NONE,
    };
    match list.last {
        NONE => list.first = at,
        last => link(tasks, which, last).after = at,
    }
    list.last = at;
    list.len += 1;
}

fn unlink(tasks: &mut TaskMap<Task>, list: &mut List, which: usize, at: u32) {
    let Link { before, after } = std::mem::replace(link(tasks, which, at), UNLINKED);
    match before {
        NONE => list.first = after,
        before => link(tasks, which, before).after = after,
    }
    match after {
        NONE => list.last = before,
        after => link(tasks, which, after).before = before,
    }
    list.len -= 1;
}
