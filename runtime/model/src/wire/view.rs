//! What a node tells about itself: rows of lists and the status. Plain data, bounded in length.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::failure::WireError;
use super::tenancy::{AccessRow, AuditRow, DueRow, TenantRow, TokenRow};
use super::work::HeldResource;
use crate::fairness::TenantName;
use crate::group::GroupKind;
use crate::id::{ActorId, Digest, DriverId, GroupId, NodeId, ObjectId, TaskId};
use crate::resource::{Amount, ResourceName};
use crate::trace::TraceContext;

/// Amounts by resource.
pub type Amounts = BTreeMap<ResourceName, Amount>;

/// The rows of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // Named after what they hold.
pub enum Rows {
    Tasks(Vec<TaskRow>),
    Actors(Vec<ActorRow>),
    Objects(Vec<ObjectRow>),
    Jobs(Vec<JobRow>),
    Modules(Vec<ModuleRow>),
    Nodes(Vec<NodeStatus>),
    Tenants(Vec<TenantRow>),
    Members(Vec<MemberRow>),
    Tokens(Vec<TokenRow>),
    Groups(Vec<GroupRow>),
    Due(Vec<DueRow>),
    Access(Vec<AccessRow>),
    Services(Vec<ServiceRow>),
    Audit(Vec<AuditRow>),
}

impl Rows {
    /// The most rows of one list. What is more is left out.
    pub const MAX: usize = 2000;
}

/// What a list shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The rows, of all nodes that have answered.
    pub rows: Rows,
    /// Where the next page begins, if there may be one: for [`List::after`](super::List::after).
    pub next: Option<String>,
    /// The nodes of the cluster that have not.
    pub silent: Vec<Silent>,
}

/// A node that did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// Its name.
    pub node: String,
    /// Why, for people.
    pub why: String,
}

/// A task or call, or one attempt of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Its id.
    pub id: TaskId,
    /// What people call it.
    pub name: String,
    /// `ready`, `running`, … or how it ended: `finished`, `failed`, `cancelled`; `retried` of an attempt that another
    /// one followed.
    pub state: String,
    /// Whose it is.
    pub tenant: TenantName,
    /// The job that it belongs to: see [`JobRow`].
    pub job: DriverId,
    /// The task that started it, if one did.
    pub parent: Option<TaskId>,
    /// Which attempt of that task did; 0 if none did, or that is not known.
    pub parent_attempt: u32,
    /// The trace that a client has given, which it belongs to.
    pub trace: Option<TraceContext>,
    /// The actor that it creates or is a call of.
    pub actor: Option<ActorId>,
    /// Its index, if it is one of an array.
    pub array_index: Option<u64>,
    /// Which attempt this is, from 1; 0 if none has begun.
    pub attempt: u32,
    /// Whether it goes on without the session that submitted it.
    pub is_detached: bool,
    /// When it was submitted, in microseconds since 1970, by the clock of the node where that was.
    pub submitted_us: u64,
    /// How long ago that was, in milliseconds.
    pub age_ms: u64,
    /// Where it is: the node that runs it or has it in its queue; when it has ended, where it ran last.
    pub node: String,
    /// The objects that it was given as arguments or waits for: the first [`TaskRow::MOST_INPUTS`].
    pub inputs: Vec<ObjectId>,
    /// What it holds; what it held if it has ended.
    pub held: Vec<HeldResource>,
    /// How it ran, if it has ended and did.
    pub run: Option<Run>,
    /// How it failed, for people: the first line.
    pub error: Option<String>,
}

impl TaskRow {
    /// How many inputs a row names.
    pub const MOST_INPUTS: usize = 32;

    /// A task that has finished at the node `n1`, for tests: they change the fields that they are about.
    #[doc(hidden)]
    pub fn example(id: TaskId) -> Self {
        Self {
            id,
            name: "f".to_owned(),
            state: "finished".to_owned(),
            tenant: TenantName::default(),
            job: DriverId::from_bytes([1; 16]),
            parent: None,
            parent_attempt: 0,
            trace: None,
            actor: None,
            array_index: None,
            attempt: 1,
            is_detached: false,
            submitted_us: 0,
            age_ms: 0,
            node: "n1".to_owned(),
            inputs: Vec::new(),
            held: Vec::new(),
            run: None,
            error: None,
        }
    }
}

/// How an attempt ran that has ended. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// From when it was submitted until it had what it asked for.
    pub waited_us: u64,
    /// From then to its end; `None` if it did not run, or nobody knows how long: then it has waited to its end.
    pub ran_us: Option<u64>,
    /// When it ended, since 1970, by the clock of the node where it was submitted.
    pub ended_us: u64,
    /// What part of that went where.
    pub phases: Phases,
    /// The most that its memories and tables came to, in bytes; 0 if it failed.
    pub memory_peak_bytes: u64,
}

/// Where the time of an attempt went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// The guest thread on which it began, from 0.
    pub thread: u16,
    /// Until its arguments were in memory, in microseconds.
    pub arguments_us: u32,
    /// From then until its sandbox was made.
    pub sandbox_us: u32,
    /// How long it waited for others while it ran.
    pub blocked_us: u32,
    /// How long it was paused for other tenants, in all.
    pub paused_us: u32,
    /// How long it took to keep its result.
    pub result_us: u32,
}

/// Everything about one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDetail {
    /// As lists show it: its last attempt.
    pub row: TaskRow,
    /// The attempts before that, the first one first.
    pub retried: Vec<TaskRow>,
    /// How it failed, if it did.
    pub error: Option<WireError>,
    /// The end of what it wrote to standard error, if it failed.
    pub stderr_tail: String,
    /// What it made, if that is kept.
    pub object: Option<ObjectId>,
    /// Where it stands and why, if it is live; how the actor failed that it created.
    pub explanation: Option<String>,
}

/// An actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorRow {
    /// Its id.
    pub id: ActorId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its class.
    pub class: String,
    /// `ready`, `running`, …: the state of its creation, which runs as long as it lives; `failed`.
    pub state: String,
    /// Whose it is.
    pub tenant: TenantName,
    /// The job that it belongs to.
    pub job: DriverId,
    /// The node that says so.
    pub node: String,
    /// Which generation of it lives or is about to, from 1.
    pub generation: u64,
    /// How many of its calls have not ended, as far as the node knows.
    pub calls: u64,
    /// How long its last checkpoint is, in bytes, if it has one.
    pub state_bytes: Option<u64>,
    /// Why its last generation ended, if that failed.
    pub failure: Option<String>,
}

/// Everything about one actor that lives, is about to, or has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorDetail {
    /// As lists show it, at the node where it lives.
    pub row: ActorRow,
    /// Whether it lives on without the session.
    pub is_detached: bool,
    /// How long ago it was created, in milliseconds.
    pub age_ms: u64,
    /// Where its creation stands and why; it runs as long as the actor lives. Of one that has failed, how.
    pub explanation: Option<String>,
}

/// Everything about one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetail {
    /// As lists show it.
    pub row: JobRow,
    /// Its tasks, also those that have ended and are remembered; the youngest first, at most [`Rows::MAX`].
    pub tasks: Vec<TaskRow>,
    /// The nodes of the cluster that have not said what they know of it.
    pub silent: Vec<Silent>,
}

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Its id.
    pub id: GroupId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// How its bundles lie to each other.
    pub kind: GroupKind,
    /// `pending`, `preparing`, `committing`, `ready`, `removing`; `unowned` where its owner is lost and no other node
    /// has taken it over yet.
    pub state: String,
    /// For how long, in milliseconds. Of one that is unowned, how long its record is known, as it is.
    pub since_ms: u64,
    /// Its bundles, by number.
    pub bundles: Vec<GroupBundle>,
    /// What it waits for, if it is not ready, for people.
    pub why: Option<String>,
    /// Whose it is.
    pub tenant: TenantName,
    /// The session that created it; all zero of one that is unowned.
    pub job: DriverId,
    /// Whether it stays without the session.
    pub is_detached: bool,
    /// How long ago it was created or taken over, in milliseconds, as far as the node knows that says so.
    pub age_ms: u64,
    /// The node that owns it, or has owned it last.
    pub node: String,
}

/// A bundle of a placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBundle {
    /// What it has.
    pub amounts: Amounts,
    /// The node on which tasks can run in it.
    pub node: Option<String>,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// Its id.
    pub id: ObjectId,
    /// How long it is, in bytes.
    pub size_bytes: u64,
    /// `memory`, `disk`, `writing`, or `inline` for a small one.
    pub place: String,
    /// Whose it is.
    pub tenant: TenantName,
    /// Whether it stays until it is deleted.
    pub is_kept: bool,
    /// The node that has it, or a copy of it.
    pub node: String,
    /// `primary`, or `secondary` of a copy that goes when its room is needed. This and the next two: none where it is not in
    /// the node's store.
    pub copy: Option<String>,
    /// How many values and reads of the node have it.
    pub references: Option<u64>,
    /// How many of those read it, or have it mapped: it stays in memory for them.
    pub pins: Option<u64>,
}

/// Everything about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectDetail {
    /// Its copies, as lists show them, that which must not be lost first. At least one.
    pub copies: Vec<ObjectRow>,
    /// Who needs it, as far as nodes know: at most some hundred of each node.
    pub holders: Vec<Holder>,
    /// How many others need it.
    pub more_holders: u64,
    /// The nodes of the cluster that have not said what they know of it.
    pub silent: Vec<Silent>,
}

/// Somebody who needs an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// What it is: `driver`, `task`, `actor`, `node`, `object`, `tenant` or `lineage`.
    pub kind: String,
    /// Its id, if it has one: of a driver that of its job.
    pub id: Option<String>,
    /// What people call it.
    pub name: String,
    /// Of a task how far it is.
    pub state: Option<String>,
    /// How it holds the object: `handle`, `mapped`, `argument`, `waits`, `makes`, `kept`, `result`, `borrowed`, `recipe`; `inside`
    /// if it holds a value that names it.
    pub how: String,
    /// The node that says so.
    pub node: String,
}

/// A job: what one session submits, or one detached submission, with all that its tasks start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id.
    pub id: DriverId,
    /// What people call it.
    pub name: String,
    /// `running`, or how it ended: `finished`, `failed`, `cancelled`.
    pub state: String,
    /// Whose it is.
    pub tenant: TenantName,
    /// Who submitted it, for people.
    pub by: String,
    /// Whether it goes on without the session that submitted it.
    pub is_detached: bool,
    /// When it was submitted, in microseconds since 1970, by the clock of the node where that was.
    pub submitted_us: u64,
    /// How long ago that was, in milliseconds.
    pub age_ms: u64,
    /// How long it took, in milliseconds, if it has ended.
    pub took_ms: Option<u64>,
    /// Its tasks, those that others started included.
    pub tasks: JobTasks,
    /// The node where it was submitted, or that has adopted it.
    pub node: String,
}

/// How many tasks of a job are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTasks {
    /// How many the driver itself is to submit, where that is known: the length of an array. The other numbers count also what
    /// its tasks start, so together they may be more.
    pub expected: u64,
    /// How many have not begun.
    pub waiting: u64,
    /// How many have begun, actors that live included.
    pub running: u64,
    /// How many have ended well.
    pub finished: u64,
    /// How many have failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
}

/// A module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRow {
    /// What it is.
    pub digest: Digest,
    /// How many functions and classes it has.
    pub exports: u32,
    /// Whether it has a program.
    pub has_program: bool,
    /// The node that says so.
    pub node: String,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRow {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: TenantName,
    /// Where clients find it.
    pub url: String,
    /// The node that serves it.
    pub node: String,
    /// The module that answers.
    pub module: Digest,
    /// The job that its requests are tasks of.
    pub job: DriverId,
    /// Whether it goes on without the session that started it.
    pub is_detached: bool,
    /// How long ago it was started, in milliseconds.
    pub age_ms: u64,
    /// Requests that have ended.
    pub requests: u64,
    /// Those of them that failed at the service's side (5xx).
    pub failed: u64,
    /// Those of them that were refused because too many waited.
    pub refused: u64,
    /// How long they took on average, in microseconds.
    pub mean_us: u64,
    /// Requests under way.
    pub running: u32,
    /// Requests that wait for their turn.
    pub waiting: u32,
    /// Clients that are connected.
    pub connections: u32,
    /// How it is with it at this node: `listening`, `outdated` where the module before still answers, `failed` where it
    /// does not listen, `ending`.
    pub state: String,
    /// Why it is so, or why only this node serves it.
    pub why: Option<String>,
    /// Which module since its name was free, from 1; 0 if it is no service of the whole cluster.
    pub generation: u64,
    /// Requests that have ended at all nodes that are listed.
    pub all_requests: u64,
}

/// A node of the cluster, as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its name.
    pub name: String,
    /// Its id; all zero for a node that is alone.
    pub id: NodeId,
    /// `alive`, `draining`, `unreachable` (it lives, and there is no connection), `unconfirmed` (the node that
    /// is asked cannot confirm its own lease), `dead`.
    pub state: String,
    /// Which incarnation of it: how often it was started.
    pub incarnation: u64,
    /// Where the others reach it.
    pub address: Option<SocketAddr>,
    /// Whether it lets others join.
    pub is_head: bool,
    /// Whether it is the node that was asked.
    pub is_own: bool,
    /// What it has.
    pub total: Amounts,
    /// What of that no task holds, as far as is known.
    pub available: Amounts,
    /// How long the node that was asked has seen this incarnation of it alive or dead, in milliseconds.
    pub since_ms: u64,
    /// The version of wasmrun.
    pub version: String,
}

/// A node in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The version of wasmrun.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// How long it has run, in milliseconds.
    pub up_ms: u64,
    /// Whether it takes no new work.
    pub is_draining: bool,
    /// Connections.
    pub sessions: u64,
    /// What it has.
    pub total: Amounts,
    /// What of that no task holds.
    pub available: Amounts,
    /// How many tasks are in which state, those that have ended too.
    pub tasks: Vec<(String, u64)>,
    /// The object store.
    pub store: StoreStatus,
}

/// An object store in numbers. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // As of the store's own usage.
pub struct StoreStatus {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub pinned_bytes: u64,
    pub spilled_bytes: u64,
    pub objects: u64,
}
