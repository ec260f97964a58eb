//! What goes into the scheduler and what comes out of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::explain::Reason;
use super::settings::Settings;
use crate::cluster::{Labels, NodeIx, NodeName, QueueReport};
use crate::fairness::{TenantConfig, TenantName};
use crate::group::{GroupMessage, GroupSpec};
use crate::id::{ActorId, DriverId, GroupId, Incarnation, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{Amount, NodeReport, NodeResources, ResourceName, ResourceSet};
use crate::task::{Attempt, FailureKind, Phase, TaskSpec};

/// Something that has happened. Events that come too late (for a task that has ended, for an
/// earlier attempt, for a node that has gone) change nothing.
///
/// What is large and seldom is in a box: an event is copied on its way, and most are of one task.
#[derive(Debug)]
pub enum Event {
    /// A driver has come. One that only submits need not say so.
    DriverJoined(DriverId),
    /// A driver has gone: its tasks are cancelled.
    DriverGone(DriverId),
    /// A task was submitted here.
    Submit(TaskSpec),
    /// A task that has ended was submitted here once more: its attempts are counted on from this one, so
    /// that none is taken for one of before.
    Resubmit(TaskSpec, Attempt),
    /// An object is here now.
    ArgumentReady(ObjectId),
    /// An object is not here any more.
    ArgumentLost(ObjectId),
    /// An object will never be there: what was to make it has failed.
    ArgumentFailed(ObjectId),
    /// The executor has taken a dispatched task.
    Accepted {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// The executor has not taken a dispatched task; it is ready again.
    Refused {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A running task has ended with a result.
    Finished {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A running task has ended without one.
    Failed {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// Whether it makes sense to try again.
        kind: FailureKind,
    },
    /// A running task waits for others; its CPU is given back.
    Blocked {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// What a blocked task waited for is there.
    Unblocked {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A running task has paused, as [`Effect::Pause`] told it to. [`Effect::Resume`] lets it go on.
    Paused {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// An attempt has stopped, as [`Effect::Preempt`] told it to. The task is tried again, and no retry is counted. Of the
    /// creation of an actor: that has left, and its calls wait for its next generation.
    Preempted {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// An actor that [`Effect::Preempt`] told to leave cannot: it lives on, and is not told again.
    Stays {
        /// Its creation.
        task: TaskId,
        /// The attempt of that.
        attempt: Attempt,
    },
    /// A blocked task waits no more, though what it waited for is not there: it goes on at once, and gets its CPU as
    /// soon as one is free. If it waits for others again before that, it is blocked as before.
    Overdue {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// Somebody wants a task to end, in whatever state it is.
    Cancel(TaskId),
    /// Somebody wants all tasks of a job to end.
    CancelJob(JobId),
    /// A node whose resources this scheduler gives out.
    OwnNode {
        /// Which one.
        node: NodeInfo,
        /// What it has.
        resources: Box<NodeResources>,
    },
    /// Another node has joined, or tells again what it has and does. What is older than what is
    /// known is dropped.
    PeerView {
        /// Which one.
        node: NodeInfo,
        /// What it tells.
        view: Box<PeerView>,
    },
    /// A node is gone: what ran there is lost.
    NodeLost {
        /// Which one.
        node: NodeId,
        /// Which incarnation of it.
        incarnation: Incarnation,
    },
    /// As `NodeLost`, because this node was cut off: what the other did for us is lost, but it may live. If it does,
    /// it joins again; if not, `NodeLost` follows.
    NodeUnseen {
        /// Which one.
        node: NodeId,
        /// Which incarnation of it.
        incarnation: Incarnation,
    },
    /// Another node is a member, and what it has comes with its first view: what is bound to it waits for that. A
    /// incarnation that was lost counts again: it was this node that was cut off, and not the other.
    NodeExpected(NodeInfo),
    /// An own node has more or less of a resource.
    SetCapacity {
        /// The node.
        node: NodeId,
        /// The resource; added if the node has none.
        name: ResourceName,
        /// How much there is now.
        capacity: Amount,
    },
    /// An own node has none of a resource any more.
    DeleteResource {
        /// The node.
        node: NodeId,
        /// The resource.
        name: ResourceName,
    },
    /// A node has other labels.
    SetLabels {
        /// The node.
        node: NodeId,
        /// All of them.
        labels: Labels,
    },
    /// Whether a node takes new work.
    SetDraining {
        /// The node.
        node: NodeId,
        /// Whether it takes none.
        is_draining: bool,
    },
    /// A peer can be spoken with again, or not any more, while nobody counts it as dead. What it has not said that it
    /// took goes elsewhere.
    SetReachable {
        /// The node.
        node: NodeId,
        /// Whether it can.
        is_reachable: bool,
    },
    /// An actor lives, on this node.
    ActorCreated {
        /// The actor.
        actor: ActorId,
        /// Where.
        node: NodeId,
    },
    /// An actor does not live any more.
    ActorDied {
        /// The actor.
        actor: ActorId,
        /// Whether it will be created again; else its calls fail.
        will_restart: bool,
    },
    /// Somebody wants bundles of resources reserved together.
    CreateGroup {
        /// The group.
        group: GroupId,
        /// Its bundles, and how they lie to each other.
        spec: GroupSpec,
        /// Whose tasks may run in it.
        tenant: TenantName,
    },
    /// A group is not needed any more: what runs in it is killed.
    RemoveGroup(GroupId),
    /// Somebody here wants to know how it stands with a group, which may be another node's.
    WantGroup(GroupId),
    /// The control store has a record of a group: it outlives its owner, which is this one now.
    GroupRecorded {
        /// The group.
        group: GroupId,
        /// Who owns it. If that is lost, another is about to take the group over.
        owner: NodeId,
        /// How often it was taken over: higher is newer.
        takeovers: u32,
    },
    /// The control store has no record any more of a group.
    GroupUnrecorded {
        /// The group.
        group: GroupId,
        /// Who owned it.
        owner: NodeId,
    },
    /// This node has taken a group over, from another or from an earlier incarnation of its own.
    TakeOverGroup {
        /// The group.
        group: GroupId,
        /// Its bundles, and how they lie to each other.
        spec: GroupSpec,
        /// Whose tasks may run in it.
        tenant: TenantName,
        /// How often it was taken over, with this time.
        takeovers: u32,
    },
    /// A tenant's weight or guarantees have changed.
    SetTenant {
        /// The tenant.
        tenant: TenantName,
        /// Its settings.
        config: Box<TenantConfig>,
    },
    /// Operators have chosen anew.
    Configure(Box<Settings>),
    /// Another scheduler says something.
    Message {
        /// Which one.
        from: NodeId,
        /// What.
        message: Box<Message>,
    },
    /// Nothing has happened but time.
    Tick,
}

/// Who a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its id.
    pub id: NodeId,
    /// Which incarnation of it.
    pub incarnation: Incarnation,
    /// What people call it; one node of a cluster.
    pub name: NodeName,
    /// Its labels.
    pub labels: Labels,
}

/// What a node tells the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    /// Which of the node's views this is: higher is newer.
    pub version: u64,
    /// What it has.
    pub resources: NodeReport,
    /// What waits there.
    pub queue: QueueReport,
    /// What each tenant uses there.
    pub usage: BTreeMap<TenantName, ResourceSet>,
}

/// Something that somebody else must do, or hear of.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand this task to the executor of an own node, and answer with [`Event::Accepted`] or
    /// [`Event::Refused`]. What it holds is [`super::Scheduler::assignment`].
    Dispatch {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// The node.
        node: NodeIx,
        /// What [`Scheduler::mark`](super::Scheduler::mark) said of it; 0 where nothing was said.
        mark: u32,
    },
    /// A running task is to pause as soon as it can, and to answer with [`Event::Paused`]: another tenant is due its CPU.
    /// If it waits for others or ends before that, no answer is needed.
    Pause {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// An attempt of a task that may be tried again is to stop as soon as it can, and to be answered with
    /// [`Event::Preempted`]: another tenant is due what it holds. If it ends before that, no answer is needed.
    ///
    /// Where the task is the creation of an actor, that is to leave: it has no call with an executor, and none begins before
    /// the answer. Its next generation begins from its checkpoint, and [`Event::Stays`] is the answer where that cannot be.
    Preempt {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A task that was blocked, or has paused, has its CPU again.
    Resume {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// A task that an executor has must stop: nobody wants what it does.
    Stop {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// The node.
        node: NodeIx,
    },
    /// Bring these objects here, for a task.
    Fetch {
        /// The task.
        task: TaskId,
        /// What it lacks.
        objects: Vec<ObjectId>,
    },
    /// A task that was submitted here has ended, once and for all.
    Ended {
        /// The task.
        task: TaskId,
        /// The attempt whose end this is.
        attempt: Attempt,
        /// [`Phase::Finished`], [`Phase::Failed`] or [`Phase::Cancelled`].
        phase: Phase,
        /// Why, where it did not end by itself.
        why: Option<Box<Reason>>,
    },
    /// An attempt of a task came to nothing, and it is tried again.
    Retried {
        /// The task.
        task: TaskId,
        /// The attempt to come.
        attempt: Attempt,
    },
    /// No node can serve a task, as things are. It waits.
    Infeasible {
        /// The task.
        task: TaskId,
        /// Why.
        why: Box<Reason>,
    },
    /// It stands otherwise with a group now, as [`super::Scheduler::group`] says; or there is no such group.
    GroupChanged(GroupId),
    /// Tell another scheduler this.
    Send {
        /// Which one.
        to: NodeId,
        /// What.
        message: Box<Message>,
    },
}

/// What schedulers tell each other. Messages between two incarnations of nodes arrive once and in order, or never again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Run this task. One `Settled` answers it, with a `Placed` before if the node has taken it.
    Place {
        /// The task.
        spec: TaskSpec,
        /// The attempt that this is.
        attempt: Attempt,
        /// How often it was handed on.
        hops: u8,
    },
    /// The task is here.
    Placed {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// An attempt is over.
    Settled {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
        /// What came of it.
        outcome: Outcome,
    },
    /// The owner does not want an attempt any more.
    Withdraw {
        /// The task.
        task: TaskId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// About a placement group.
    Group(GroupMessage),
    /// How does it stand with this group of yours? Repeated until it is answered by `GroupStands`, which comes
    /// again whenever that changes.
    WantGroup(GroupId),
    /// How it stands with a group of the sender's.
    GroupStands {
        /// The group.
        group: GroupId,
        /// How; `None`: there is no such group (any more).
        face: Option<Box<GroupFace>>,
    },
}

/// How it stands with a placement group, as its owner tells others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFace {
    /// Which news of it this is: higher is newer.
    pub version: u64,
    /// Whose tasks may run in it.
    pub tenant: TenantName,
    /// What was asked for.
    pub spec: GroupSpec,
    /// By number of the bundle: the node on which tasks can run in it.
    pub nodes: Vec<Option<NodeId>>,
    /// What it waits for, if it is not ready.
    pub why: Option<String>,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Outcome {
    /// It has a result.
    Finished,
    /// It has failed.
    Failed(FailureKind),
    /// It was withdrawn.
    Cancelled,
    /// The node cannot run it (in time), and gives it back.
    HandedBack,
}
