//! The whole of a scheduler in numbers, for people and metrics.
//!
//! Owns counts and sums. Must not: change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::record::Owner;
use super::{PeerView, Scheduler};
use crate::cluster::{Cluster, NodeIx, QueueReport};
use crate::fairness::{TenantIx, TenantName, Tenants, TooManyTenants};
use crate::group::GroupState;
use crate::id::{ActorId, DriverId, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{NodeReport, NodeResources, Request, ResourceSet};
use crate::task::{Attempt, Phase};

/// How many tasks are in a state, and what they ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseStatus {
    /// The state.
    pub phase: Phase,
    /// How many are in it; for the terminal ones, how many ever came to it.
    pub tasks: u64,
    /// What these ask for, each what it likes best; nothing for the terminal ones. An amount above
    /// the largest one shows as that.
    pub asks: ResourceSet,
}

/// The whole, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The states, live ones first.
    pub phases: Vec<PhaseStatus>,
    /// Drivers that have not gone, or have live tasks.
    pub drivers: usize,
    /// Scheduling classes that have tasks.
    pub classes: usize,
    /// Of these, those that have ready tasks which do not fit.
    pub parked_classes: usize,
    /// Events and messages that came too late and changed nothing.
    pub stale: u64,
}

/// A live task, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskView {
    /// The task.
    pub id: TaskId,
    /// Its job.
    pub job: JobId,
    /// Its driver.
    pub driver: DriverId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Its state.
    pub phase: Phase,
    /// For how long it has been in it.
    pub since: Duration,
    /// How long ago it was submitted.
    pub age: Duration,
    /// Whether it was submitted here, not at another node.
    pub is_own: bool,
}

impl Scheduler {
    /// The whole, in numbers. Costs as much as there are classes, not tasks.
    pub fn status(&self) -> Status {
        let phases = Phase::ALL.iter().map(|phase| {
            if phase.is_terminal() {
                return PhaseStatus {
                    phase: *phase,
                    tasks: self.ended[phase.index() - Phase::LIVE],
                    asks: ResourceSet::new(),
                };
            }
            PhaseStatus {
                phase: *phase,
                tasks: self.tasks.count(*phase) as u64,
                asks: self.asks(*phase),
            }
        });
        let used = self.classes.iter().filter(|(_, class)| class.members() > 0);
        Status {
            phases: phases.collect(),
            drivers: self.tasks.drivers().count(),
            classes: used.count(),
            parked_classes: self.gated - self.open.len(),
            stale: self.stale,
        }
    }

    /// How many tasks of some tenants are in each state; of the terminal ones, how many have come to it since their tenant is
    /// known here. Costs as much as there are live tasks.
    pub fn counts_of(&self, is_one: impl Fn(&TenantName) -> bool) -> Vec<(Phase, u64)> {
        let tenants = self.tenants.iter();
        let tenants = tenants.filter(|(_, tenant)| is_one(tenant.name()));
        let tenants: BTreeSet<TenantIx> = tenants.map(|(ix, _)| ix).collect();
        let count = |phase: Phase| -> u64 {
            if !phase.is_terminal() {
                let tasks = self.tasks.in_phase(phase);
                let ours = tasks.filter(|ix| tenants.contains(&self.tasks[*ix].tenant));
                return ours.count() as u64;
            }
            let counters = tenants.iter().map(|ix| self.tenants.get(*ix).counters());
            let ended = counters.map(|it| match phase {
                Phase::Finished => it.finished,
                Phase::Failed => it.failed,
                _ => it.cancelled,
            });
            ended.sum()
        };
        Phase::ALL.iter().map(|it| (*it, count(*it))).collect()
    }

    /// What the tasks in a live state ask for.
    fn asks(&self, phase: Phase) -> ResourceSet {
        let mut sums: BTreeMap<_, u128> = BTreeMap::new();
        for (_, class) in self.classes.iter() {
            let count = class.counts[phase.index()];
            if count == 0 || class.key.wants.is_to_go_on() {
                continue;
            }
            for (name, amount) in class.rule().preferred().amounts().iter() {
                *sums.entry(name.clone()).or_default() +=
                    u128::from(amount.steps()) * u128::from(count);
            }
        }
        let amount = |steps: u128| {
            crate::resource::Amount::from_steps(u64::try_from(steps).unwrap_or(u64::MAX))
        };
        sums.into_iter()
            .map(|(name, sum)| (name, amount(sum)))
            .collect()
    }

    /// The nodes.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The nodes whose resources are given out here, in the order in which they came.
    pub fn own_nodes(&self) -> &[NodeIx] {
        &self.own
    }

    /// Whether another node has this attempt of a task that was submitted here.
    pub fn is_at(&self, task: &TaskId, attempt: Attempt, node: NodeId) -> bool {
        let found = self.tasks.find(task);
        found.is_some_and(|ix| {
            self.tasks[ix].attempt == attempt && self.tasks[ix].peer() == Some(node)
        })
    }

    /// The other node that a task which was submitted here was given to, if it is with one.
    pub fn peer(&self, task: &TaskId) -> Option<NodeId> {
        self.tasks[self.tasks.find(task)?].peer()
    }

    /// Takes in how long a node took to send some bytes.
    pub fn note_transfer(&mut self, from: NodeId, bytes: u64, took: Duration) {
        if let Some(node) = self.cluster.by_id(from) {
            self.cluster.note_transfer(node, bytes, took);
        }
    }

    /// Whether a task here waits for an object.
    pub fn is_awaited(&self, object: &ObjectId) -> bool {
        let dependents = self.dependents.get(object).into_iter().flatten();
        let mut phases = dependents.map(|ix| self.tasks[*ix].phase());
        phases.any(|phase| phase == Phase::Waiting)
    }

    /// What the node that this scheduler serves tells the others. Its version is 0: whoever sends it
    /// numbers it. Empty as long as there is no node.
    pub fn own_view(&self) -> PeerView {
        PeerView {
            version: 0,
            resources: self.own_report(),
            queue: self.own_queue(),
            usage: self.usage_report(),
        }
    }

    /// Whether the node itself has free what is asked for.
    pub fn has_room(&self, request: &Request) -> bool {
        let own = self.own.first().and_then(|ix| self.cluster.own(*ix));
        own.is_some_and(|own| own.can_acquire(request))
    }

    /// What the node itself has, and what will be needed of it by the tasks that could begin. What waits for its arguments
    /// is in the queue and does not count as load for others: a task that they have may be what it waits for, and would
    /// else find no node that is free.
    fn own_report(&self) -> NodeReport {
        let Some(ix) = self.own.first() else {
            return NodeReport::default();
        };
        let own = self.cluster.own(*ix);
        let mut report = own.map(NodeResources::report).unwrap_or_default();
        for (_, class) in self.classes.iter() {
            let waiting = u64::from(class.counts[Phase::Waiting.index()]);
            let is_counted = match class.key.bound {
                Some(bound) => bound == *ix,
                None => self.counts_local && !class.is_grouped(),
            };
            if waiting > 0 && is_counted {
                report.remove_loads(class.rule().preferred(), waiting);
            }
        }
        report
    }

    /// What waits here for the node itself.
    pub(super) fn own_queue(&self) -> QueueReport {
        let tasks = self.queued_in(Phase::Ready) + self.queued_in(Phase::Waiting);
        QueueReport::of(tasks as u64, self.run_time.get())
    }

    /// How many tasks in a live state are for the node itself: not for the bundle of a placement group, which
    /// nobody else waits for.
    pub(super) fn queued_in(&self, phase: Phase) -> usize {
        self.len_in(phase) - self.grouped[phase.index()]
    }

    /// Takes in how long an attempt ran here.
    pub fn note_run_time(&mut self, ran: Duration) {
        let us = u64::try_from(ran.as_micros());
        self.run_time.observe(us.unwrap_or(u64::MAX));
    }

    /// The states of the placement groups that are owned here.
    pub fn group_states(&self) -> impl Iterator<Item = GroupState> {
        let owned = self.groups.owned.values();
        owned.map(|owned| owned.coordinator.state())
    }

    /// How many bundles of placement groups, of any node's, are reserved on the nodes here.
    pub fn reserved_bundles(&self) -> usize {
        let own = self.own.iter();
        own.map(|node| self.groups.bundles(*node).count()).sum()
    }

    /// Takes in a tenant that is about to have something here.
    ///
    /// # Errors
    /// If there are too many.
    pub fn admit(&mut self, tenant: &TenantName) -> Result<(), TooManyTenants> {
        self.tenant(tenant).map(|_| ())
    }

    /// Whether there is room for what operators say of a tenant. Those that nothing uses make room.
    pub fn make_room_for(&mut self, tenant: &TenantName) -> bool {
        self.tenants.has_room_for(tenant)
            || self.tenants.forget_unused() && self.tenants.has_room_for(tenant)
    }

    /// The tenant of this name, which is made known. Those that nothing uses make room.
    pub(super) fn tenant(&mut self, name: &TenantName) -> Result<TenantIx, TooManyTenants> {
        match self.tenants.intern(name) {
            Err(_) if self.tenants.forget_unused() => self.tenants.intern(name),
            found => found,
        }
    }

    /// The tenants.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// How many tasks are live.
    pub fn live(&self) -> usize {
        self.tasks.len()
    }

    /// How many tasks are in a live state.
    pub fn len_in(&self, phase: Phase) -> usize {
        self.tasks.count(phase)
    }

    /// A live task.
    pub fn task(&self, id: &TaskId) -> Option<TaskView> {
        let task = &self.tasks[self.tasks.find(id)?];
        Some(TaskView {
            id: task.id,
            job: task.job,
            driver: task.driver,
            attempt: task.attempt,
            phase: task.phase(),
            since: self.now - task.since,
            age: self.now - task.submitted,
            is_own: task.owner == Owner::Here,
        })
    }

    /// The tasks in a live state, in the order in which they came to it.
    pub fn in_phase(&self, phase: Phase) -> impl Iterator<Item = TaskId> {
        self.tasks.in_phase(phase).map(|ix| self.tasks[ix].id)
    }

    /// The live tasks of a job, in the order of submission.
    pub fn of_job(&self, job: &JobId) -> impl Iterator<Item = TaskId> {
        self.tasks.of_job(job).map(|ix| self.tasks[ix].id)
    }

    /// The live tasks of an actor, its creation and its calls, in the order of submission.
    pub fn of_actor(&self, actor: &ActorId) -> impl Iterator<Item = TaskId> {
        self.tasks.of_actor(actor).map(|ix| self.tasks[ix].id)
    }

    /// The live tasks that were given to another node, in that order.
    pub fn given_to(&self, peer: NodeId) -> impl Iterator<Item = TaskId> {
        self.tasks.given_to(peer).map(|ix| self.tasks[ix].id)
    }

    /// The live tasks that another node gave to this one, in that order.
    pub fn taken_from(&self, peer: NodeId) -> impl Iterator<Item = TaskId> {
        self.tasks.taken_from(peer).map(|ix| self.tasks[ix].id)
    }

    /// The live tasks of a driver.
    pub fn of_driver(&self, driver: &DriverId) -> impl Iterator<Item = TaskId> {
        self.tasks.of_driver(driver).map(|ix| self.tasks[ix].id)
    }

    /// The drivers that have not gone, or have live tasks.
    pub fn drivers(&self) -> impl Iterator<Item = DriverId> {
        self.tasks.drivers().copied()
    }
}
