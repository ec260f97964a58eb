//! The scheduler: which task starts next, and where.
//!
//! Owns the tasks from their submission to their end, the nodes whose resources it gives out (one
//! on a real node, all of them in [`crate::simulate`]), and what it knows of other nodes. Must not:
//! do anything itself. It is a state machine: [`Scheduler::handle`] takes what has happened,
//! [`Scheduler::poll_effect`] says what is to be done, [`Scheduler::poll_timeout`] when to come back.
//!
//! Invariants: equal events at equal times give equal effects; every unit is held by at most one
//! task; a task ends once; whenever `handle` returns, no task is ready that fits (except beside what
//! is kept for one that has been passed over for too long).
//!
//! The shape is quinn-proto's. The states are those of Ray's raylet; the ready tasks grouped by
//! what they ask for are Ray's scheduling classes.

mod actors;
mod call_order;
mod class;
mod dispatch;
mod event;
mod explain;
mod explain_text;
mod fuzz;
mod group_effects;
mod group_members;
mod group_news;
mod group_records;
mod group_view;
mod groups;
mod invariants;
mod lane;
mod nodes;
mod order;
mod peers;
mod place;
mod preempt;
mod quotas;
mod record;
mod room;
mod running;
mod settings;
mod starve;
mod status;
mod status_text;
mod stops;
mod succession;
mod table;
mod victims;
mod waiters;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use self::event::{Effect, Event, GroupFace, Message, NodeInfo, Outcome, PeerView};
pub use self::explain::{COUNTED, Explanation, NodeVerdict, Reason, SHOWN, Tied, Waits};
#[doc(hidden)]
pub use self::fuzz::fuzz;
pub use self::group_view::GroupView;
pub use self::invariants::check;
pub use self::preempt::{PausedFor, Pauses};
pub use self::room::{Demand, Holding, Room, Spare};
pub use self::settings::{Setting, Settings};
pub use self::status::{PhaseStatus, Status, TaskView};
pub use self::stops::Stops;
pub use self::waiters::NewWaiters;

use self::actors::Actors;
use self::class::{ClassIx, Classes, KeyLog};
use self::groups::GroupTable;
use self::peers::Peers;
use self::preempt::Preemption;
use self::record::{Gone, NewTask, Owner, TaskIx};
use self::starve::Starving;
use self::stops::StopTable;
use self::succession::Estate;
use self::table::Table;
use self::watch::Watches;
use crate::cluster::{Cluster, Mean, NodeIx, Strategy};
use crate::fairness::{Policy, TenantConfig, TenantIx, TenantName, Tenants};
use crate::id::{NodeId, ObjectId, TaskId};
use crate::random::Random;
use crate::task::{
    Attempt, BlockedOn, FailureKind, MAX_ALTERNATIVES, Phase, Place, TaskKind, TaskSpec, TaskState,
};
use crate::time::Instant;

/// How a scheduler decides. The default is what a node starts with.
#[derive(Debug, Clone)]
pub struct Config {
    /// What operators may choose.
    pub settings: Settings,
    /// What all random choices follow from.
    pub seed: u64,
    /// The node that this scheduler serves, where it serves one.
    pub local: Option<NodeId>,
    /// How many tasks may be with executors at a time, whatever they ask for.
    pub max_running: u32,
    /// Whether executors take all that they are given: then nobody has to say so, task by task.
    pub accepts_all: bool,
    /// How often a task is handed from node to node before it stays for a while.
    pub max_hops: u8,
    /// How long a task stays that was handed on that often: its next move comes with better news of the nodes.
    pub rest: Duration,
    /// How often a task is tried again because its node was lost.
    pub max_losses: u32,
    /// How soon a group of another node is asked about again, and how long a claim outlives a task that was handed back.
    pub recheck: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            seed: 0,
            local: None,
            max_running: u32::MAX,
            accepts_all: false,
            max_hops: 4,
            rest: Duration::from_secs(1),
            max_losses: 3,
            recheck: Duration::from_millis(200),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    now: Instant,
    random: Random,
    tasks: Table,
    classes: Classes,
    /// The classes that may fit.
    open: Vec<ClassIx>,
    /// How many classes have somebody in line: those in `open` and the parked ones.
    gated: usize,
    watches: Watches,
    tenants: Tenants,
    keys: KeyLog,
    cluster: Cluster,
    /// The nodes whose resources are given out here, in the order in which they came.
    own: Vec<NodeIx>,
    /// The node that this scheduler serves, once it is there.
    local: Option<NodeIx>,
    /// Whether what is placed here counts in the load of `local`: as soon as there is somebody to
    /// tell it.
    counts_local: bool,
    /// How often nodes came, went, or changed what they have in all.
    topology: u64,
    /// How many tasks are with executors.
    with_executors: u32,
    /// The live tasks that an object is an argument of.
    dependents: BTreeMap<ObjectId, BTreeSet<TaskIx>>,
    actors: Actors,
    groups: GroupTable,
    peers: Peers,
    starving: Starving,
    preemption: Preemption,
    stops: StopTable,
    /// What the task held that has just ended, if the next of its line gets it.
    estate: Option<Estate>,
    /// How long tasks take here, which is also what they are taken to need elsewhere.
    run_time: Mean,
    /// How many tasks of placement groups are in each live state.
    grouped: [usize; Phase::LIVE],
    ended: [u64; Phase::ALL.len() - Phase::LIVE],
    stale: u64,
    effects: VecDeque<Effect>,
    new_waiters: NewWaiters,
    /// The classes in which somebody waits for room under a quota.
    quota_held: BTreeSet<ClassIx>,
    /// Whether something was noted since it was last looked what can start.
    is_noted: bool,
    /// The one node here, if something was given back on it since nothing more fitted.
    hot: Option<NodeIx>,
    /// Room for classes that are looked at, kept from one look to the next.
    found: Vec<ClassIx>,
    /// From which class on a node with room is offered something next.
    offered_from: usize,
}

impl Scheduler {
    /// A scheduler without nodes and tasks.
    pub fn new(config: Config) -> Self {
        let mut random = Random::new(config.seed);
        Self {
            now: Instant::ZERO,
            tasks: Table::default(),
            classes: Classes::default(),
            open: Vec::new(),
            gated: 0,
            watches: Watches::default(),
            tenants: Tenants::new(config.settings.policy),
            keys: KeyLog::default(),
            cluster: Cluster::new(config.settings.tuning()),
            own: Vec::new(),
            local: None,
            counts_local: false,
            // 0 is that of a class that was never looked at.
            topology: 1,
            with_executors: 0,
            dependents: BTreeMap::new(),
            actors: Actors::default(),
            groups: GroupTable::default(),
            peers: Peers::default(),
            starving: Starving::default(),
            preemption: Preemption::default(),
            stops: StopTable::default(),
            estate: None,
            run_time: Mean::of_run_times(),
            grouped: [0; Phase::LIVE],
            ended: [0; Phase::ALL.len() - Phase::LIVE],
            stale: 0,
            effects: VecDeque::new(),
            new_waiters: NewWaiters::default(),
            quota_held: BTreeSet::new(),
            is_noted: false,
            hot: None,
            found: Vec::new(),
            offered_from: 0,
            random: random.split(),
            config,
        }
    }

    /// Takes in what has happened and decides all that can be decided now.
    ///
    /// `now` never goes back; if it does, the latest time so far counts.
    #[inline]
    pub fn handle(&mut self, now: Instant, event: Event) {
        self.note(now, event);
        self.dispatch();
    }

    /// Takes in what has happened, and starts nothing yet: for several events of one instant. After the
    /// last, [`Scheduler::dispatch`].
    #[inline]
    pub fn note(&mut self, now: Instant, event: Event) {
        self.is_noted = true;
        self.now = self.now.max(now);
        if !matches!(event, Event::Tick) {
            self.preemption.has_news();
        }
        self.settle_estate();
        self.apply(event);
        self.end_patience();
        self.recheck();
        self.time_groups();
    }

    /// Starts all that can start now. False if nothing was noted since the last time.
    #[inline]
    pub fn dispatch(&mut self) -> bool {
        let is_noted = std::mem::take(&mut self.is_noted);
        if is_noted {
            self.pump();
        }
        is_noted
    }

    /// Notes a number with a live task, which comes back when the task starts: so who keeps a table of tasks, too, need
    /// not look for it in there, after it has perhaps waited for long.
    pub fn mark(&mut self, task: &TaskId, mark: u32) {
        if let Some(ix) = self.tasks.find(task) {
            self.tasks[ix].mark = mark;
        }
    }

    /// What is to be done next. Call it until it has no more.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Scheduler::handle`] with [`Event::Tick`], if nothing else happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let starving = self.starving.deadline();
        let peers = self.peers.deadline();
        let groups = self.groups.deadline();
        let preemption = self.preempts_at();
        let all = [starving, peers, groups, preemption];
        all.into_iter().flatten().min()
    }

    #[inline]
    fn apply(&mut self, event: Event) {
        match event {
            Event::DriverJoined(driver) => self.tasks.add_driver(driver),
            Event::DriverGone(driver) => self.driver_gone(driver),
            Event::Submit(spec) => self.submit(spec, Owner::Here, Attempt::FIRST, 0),
            Event::Resubmit(spec, attempt) => self.submit(spec, Owner::Here, attempt, 0),
            Event::ArgumentReady(object) => self.argument_ready(object),
            Event::ArgumentFailed(object) => self.argument_failed(object),
            Event::ArgumentLost(object) => self.argument_lost(object),
            Event::Accepted { task, attempt } => self.accepted(&task, attempt),
            Event::Refused { task, attempt } => self.refused(&task, attempt),
            Event::Finished { task, attempt } => self.finished(&task, attempt),
            Event::Failed {
                task,
                attempt,
                kind,
            } => self.failed(&task, attempt, kind),
            Event::Blocked { task, attempt } => self.blocked(&task, attempt),
            Event::Unblocked { task, attempt } => self.unblocked(&task, attempt, BlockedOn::Cpu),
            Event::Paused { task, attempt } => self.paused(&task, attempt),
            Event::Preempted { task, attempt } => self.preempted(&task, attempt),
            Event::Stays { task, attempt } => self.stays(&task, attempt),
            Event::Overdue { task, attempt } => self.unblocked(&task, attempt, BlockedOn::Nothing),
            Event::Cancel(task) => match self.tasks.find(&task) {
                Some(ix) => self.cancel(ix),
                None => self.stale += 1,
            },
            Event::CancelJob(job) => {
                let tasks: Vec<TaskIx> = self.tasks.of_job(&job).collect();
                self.cancel_all(&tasks);
            }
            Event::OwnNode { node, resources } => self.own_node(node, *resources),
            Event::PeerView { node, view } => self.peer_view(node, *view),
            Event::NodeLost { node, incarnation } => self.node_lost(node, incarnation, true),
            Event::NodeUnseen { node, incarnation } => self.node_lost(node, incarnation, false),
            Event::NodeExpected(node) => self.node_expected(node),
            Event::SetCapacity {
                node,
                name,
                capacity,
            } => self.set_capacity(node, &name, Some(capacity)),
            Event::DeleteResource { node, name } => self.set_capacity(node, &name, None),
            Event::SetLabels { node, labels } => self.set_labels(node, labels),
            Event::SetDraining { node, is_draining } => self.set_draining(node, is_draining),
            Event::SetReachable { node, is_reachable } => self.set_reachable(node, is_reachable),
            Event::ActorCreated { actor, node } => self.actor_created(actor, node),
            Event::ActorDied {
                actor,
                will_restart,
            } => self.actor_died(actor, will_restart),
            Event::CreateGroup {
                group,
                spec,
                tenant,
            } => self.create_group(group, spec, tenant),
            Event::RemoveGroup(group) => self.remove_group(group),
            Event::WantGroup(group) => self.want_group(group),
            Event::GroupRecorded {
                group,
                owner,
                takeovers,
            } => self.group_recorded(group, owner, takeovers),
            Event::GroupUnrecorded { group, owner } => self.group_unrecorded(group, owner),
            Event::TakeOverGroup {
                group,
                spec,
                tenant,
                takeovers,
            } => self.take_group_over(group, spec, tenant, takeovers),
            Event::SetTenant { tenant, config } => self.set_tenant(&tenant, *config),
            Event::Configure(settings) => self.configure(*settings),
            Event::Message { from, message } => self.message(from, *message),
            Event::Tick => self.offer_to_all(),
        }
    }

    fn set_tenant(&mut self, tenant: &TenantName, config: TenantConfig) {
        self.make_room_for(tenant);
        if self.tenants.set_config(tenant, config).is_err() {
            self.stale += 1;
        }
        self.keys.note_all();
        self.open_held();
        self.groups.set_changed();
    }

    fn submit(&mut self, spec: TaskSpec, owner: Owner, attempt: Attempt, hops: u8) {
        if self.tasks.find(&spec.id).is_some() {
            self.stale += 1;
            return;
        }
        let variants = spec.terms.rule.alternatives.len();
        if !(1..=MAX_ALTERNATIVES).contains(&variants) {
            let why = Reason::Alternatives(variants);
            return self.turn_away(&spec, owner, attempt, why);
        }
        let rule = &spec.terms.rule;
        if let (Owner::Here, Strategy::PlacementGroup { group, .. }) = (owner, &rule.strategy)
            && !rule.selectors.is_any()
        {
            let why = Reason::SelectorInGroup(*group);
            return self.turn_away(&spec, owner, attempt, why);
        }
        let tenant = match self.tenant(&spec.terms.tenant) {
            Ok(tenant) => tenant,
            Err(why) => return self.turn_away(&spec, owner, attempt, why.into()),
        };
        let new = (owner, attempt);
        // What was taken once is not refused later.
        let is_new = new == (Owner::Here, Attempt::FIRST);
        if is_new && spec.terms.no_preempt && !self.tenants.allows_no_preempt(tenant) {
            let why = Reason::NoPreempt(spec.terms.tenant.clone());
            return self.turn_away(&spec, owner, attempt, why);
        }
        if let Some(why) = self.never_within_quota(tenant, &spec, new) {
            return self.turn_away(&spec, owner, attempt, Reason::Quota(why.into()));
        }
        if self.tenants.get(tenant).first_submission().is_none() {
            self.keys.note(tenant);
        }
        self.tenants.note_submission(tenant, self.now);
        self.preemption.note_priority(spec.terms.priority);
        let class = self.classes.of_rule(&spec.terms.rule, spec.kind);
        let state = match spec.kind {
            TaskKind::Call { .. } => TaskState::WaitingForActorCreation,
            TaskKind::Task | TaskKind::Actor(_) => TaskState::Placeable(Place::Undecided),
        };
        self.count_in(class, state.phase());
        let new = NewTask {
            id: spec.id,
            terms: spec.terms,
            job: spec.job,
            driver: spec.driver,
            kind: spec.kind,
            owner,
            class,
            tenant,
            attempt,
            hops,
            args: spec.args.into(),
            state,
        };
        let ix = self.tasks.insert(new, self.now);
        self.tenants.note_use(tenant, true);
        self.tenants.note_waiting(tenant, true);
        for arg in &self.tasks[ix].args {
            self.dependents.entry(arg.object).or_default().insert(ix);
        }
        self.note_waiter(ix);
        self.place(ix);
    }

    /// A task that is not even taken in.
    fn turn_away(&mut self, spec: &TaskSpec, owner: Owner, attempt: Attempt, why: Reason) {
        self.ended[Phase::Failed.index() - Phase::LIVE] += 1;
        match owner {
            Owner::Here => self.effects.push_back(Effect::Ended {
                task: spec.id,
                attempt,
                phase: Phase::Failed,
                why: Some(Box::new(why)),
            }),
            Owner::Peer(node) => {
                let outcome = Outcome::Failed(FailureKind::Final);
                self.settle(node, spec.id, attempt, outcome);
            }
        }
    }

    /// Moves a task to another state, which holds what it held or nothing.
    fn change(&mut self, ix: TaskIx, state: TaskState) {
        self.change_with(ix, |_| state);
    }

    /// Moves a task to the state that `next` makes of the one it is in.
    fn change_with(&mut self, ix: TaskIx, next: impl FnOnce(TaskState) -> TaskState) {
        let class = self.tasks[ix].class;
        let before = self.tasks[ix].peer();
        let was_waiting = self.is_waiting(ix);
        let (from, to) = self.tasks.change(ix, self.now, next);
        let after = self.tasks[ix].peer();
        let is_waiting = self.is_waiting(ix);
        if was_waiting != is_waiting {
            self.tenants.note_waiting(self.tasks[ix].tenant, is_waiting);
        }
        self.queue_at(before, after);
        if before != after {
            self.unclaim(ix, before);
        }
        self.count_out(class, from);
        self.count_in(class, to);
        self.note_waiter(ix);
        self.forget_pause(ix, to);
    }

    /// Moves a task to another class: its state stays.
    fn reclassify(&mut self, ix: TaskIx, class: ClassIx) {
        let (before, phase) = (self.tasks[ix].class, self.tasks[ix].phase());
        if before == class {
            return;
        }
        self.count_out(before, phase);
        self.count_in(class, phase);
        self.tasks[ix].class = class;
        if self.classes[before].members() == 0 {
            self.classes.retire(before);
        }
    }

    /// A task of a class has come to a live state.
    fn count_in(&mut self, class: ClassIx, phase: Phase) {
        let class = &mut self.classes[class];
        class.counts[phase.index()] += 1;
        self.grouped[phase.index()] += usize::from(class.is_grouped());
    }

    /// A task of a class has left a live state.
    fn count_out(&mut self, class: ClassIx, phase: Phase) {
        let class = &mut self.classes[class];
        class.counts[phase.index()] -= 1;
        self.grouped[phase.index()] -= usize::from(class.is_grouped());
    }

    /// Takes a task out: it has ended. It is in no line and holds nothing any more.
    fn remove(&mut self, ix: TaskIx, end: Phase) -> Gone {
        let class = self.tasks[ix].class;
        self.forget_arguments(ix);
        let peer = self.tasks[ix].peer();
        self.queue_at(peer, None);
        self.unclaim(ix, peer);
        if self.is_waiting(ix) {
            self.tenants.note_waiting(self.tasks[ix].tenant, false);
        }
        self.forget_pause(ix, end);
        let task = self.tasks.remove(ix, end);
        assert!(
            !task.is_in_line,
            "task {} ends while it is in line",
            task.id
        );
        self.count_out(class, task.phase);
        if self.classes[class].members() == 0 {
            self.classes.retire(class);
        }
        self.tenants.note_use(task.tenant, false);
        self.ended[end.index() - Phase::LIVE] += 1;
        match end {
            Phase::Finished => self.tenants.note_finished(task.tenant),
            Phase::Failed => self.tenants.note_failed(task.tenant),
            _ => self.tenants.note_cancelled(task.tenant),
        }
        task
    }

    /// The live task of an attempt; what is late is counted and dropped.
    fn current(&mut self, task: &TaskId, attempt: Attempt) -> Option<TaskIx> {
        let found = self.tasks.find(task);
        let found = found.filter(|ix| self.tasks[*ix].attempt == attempt);
        if found.is_none() {
            self.stale += 1;
        }
        found
    }

    /// Which tenant's lane a task stands in.
    fn lane_of(&self, ix: TaskIx) -> TenantIx {
        self.lane_of_tenant(self.tasks[ix].tenant)
    }

    /// The lane of a tenant: under first come, first served all share one.
    fn lane_of_tenant(&self, tenant: TenantIx) -> TenantIx {
        match self.tenants.policy() {
            Policy::Fifo => TenantIx(0),
            Policy::Drf | Policy::Fair => tenant,
        }
    }
}
