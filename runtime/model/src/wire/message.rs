//! Requests and what answers them. The order of variants and fields is a wire layout (golden tests):
//! a change of it is a new [`super::PROTOCOL`].

use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use super::failure::WireError;
use super::list::List;
use super::tenancy::{ChangeTenant, ClientToken, SecretRow, TenantChanged, Weights, WhoAmI};
use super::view::{
    ActorDetail, JobDetail, Listed, NodeStatus, ObjectDetail, ServiceRow, TaskDetail,
};
use super::work::{
    Argument, Call, Create, CreateGroup, Job, ObjectRef, Output, Report, Serve, SetResource, Submit,
};
use crate::fairness::TenantName;
use crate::id::{ActorId, ActorName, Digest, GroupId, ObjectId, ObjectName, TaskId};
use crate::scheduler::{Setting, Settings};
use crate::secret::SecretName;
use crate::task::Cancellation;
use crate::value::{Encoded, FunctionType, NumberKind, ValueType};

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Whether the node has a module. `Module` or `Unknown`.
    Module(Digest),
    /// Gives it one. `Continue`, then `Module` when all chunks are there.
    Upload {
        /// What it is.
        digest: Digest,
        /// How long it is, in bytes.
        len: u64,
    },
    /// The next bytes of an `Upload` or a `Put`, after its `Continue`.
    Chunk(Bytes),
    /// Runs a function or program. `Submitted`.
    Submit(Box<Submit>),
    /// More for the standard input of a task that reads a stream. `Done` when it is taken.
    Input {
        /// The task.
        task: TaskId,
        /// What it reads; nothing is the end.
        bytes: Bytes,
    },
    /// Stores a value, and keeps what the handles in it stand for as long as the value. `Continue` or `Staging`, then
    /// `Object` when all bytes are there.
    Put(Box<Put>),
    /// The value of an object, once it is there. `Value` and chunks, `Mapped`, `Failed` or `TimedOut`.
    Get {
        /// The object.
        object: ObjectRef,
        /// How long to wait, in milliseconds; for ever if not given.
        timeout_ms: Option<u64>,
        /// Whether the client would map it.
        can_map: bool,
    },
    /// Waits for objects of this session. `Ready`.
    Wait {
        /// The objects.
        objects: Vec<ObjectId>,
        /// How many of them.
        count: u32,
        /// How long to wait, in milliseconds; for ever if not given.
        timeout_ms: Option<u64>,
    },
    /// The client has dropped its handles of these objects.
    Release(Vec<ObjectId>),
    /// The client has dropped its handle of this actor.
    ReleaseActor(ActorId),
    /// Creates an actor. `Actor`.
    Create(Box<Create>),
    /// The actor of the session's tenant with this name, or a unique prefix of its id. `Actor`.
    FindActor(String),
    /// Calls a method of an actor that the session has a handle of. `Submitted`.
    Call(Box<Call>),
    /// Ends an actor of the session's tenant, by its name or a unique prefix of its id. `Done`.
    Kill(String),
    /// Cancels a task of the session or its tenant, or all live tasks of a job, or ends an actor: by a unique prefix of
    /// its id, or the actor's name. `Done`.
    Cancel(String),
    /// Cancels all that the session has submitted, but for what is detached. `Done`.
    CancelMine,
    /// What there is, at all nodes of the cluster. `Listed`.
    List(List),
    /// Everything about one task, job, actor or object of the session or its tenant, by a unique prefix of its id, or the
    /// actor's name. `Task`, `ActorDetail`, `Job` or `ObjectDetail`. The beginning of an object's id is its task's, too, which is
    /// what it stands for as long as that is remembered.
    Describe(String),
    /// Where such a thing, or a placement group, stands and why. `Text`.
    Explain(String),
    /// What is kept of the output of a detached task, of all those of a job, or of an actor. `Output` and `Done`.
    Logs(String),
    /// Deletes an object that is kept, by a unique prefix of its id. `Done`.
    Delete(String),
    /// The node in numbers. `Status`.
    Status,
    /// Ends the node: when all that runs has ended, or at once. `Done`.
    Stop {
        /// Whether to wait for nothing.
        is_now: bool,
    },
    /// The client looks no more at what these `Get`s have let it map.
    Unpin(Vec<u64>),
    /// Runs a function once with each of these arguments: all of them, or none. `SubmittedAll`. There are
    /// no reports.
    SubmitAll {
        /// What all have in common.
        submit: Box<Submit>,
        /// The arguments of each.
        calls: Vec<Vec<Argument>>,
    },
    /// The values of objects of this session, once all are there. `Values` and `Done`, or `TimedOut`.
    GetAll {
        /// The objects.
        objects: Vec<ObjectId>,
        /// How long to wait, in milliseconds; for ever if not given.
        timeout_ms: Option<u64>,
    },
    /// Makes a join token for nodes. `Text`: the token.
    CreateToken {
        /// Whether it serves more than once.
        is_reusable: bool,
        /// How long it serves, in milliseconds.
        lifetime_ms: u64,
    },
    /// Takes back a join token, by a unique prefix of its id. `Done`.
    RevokeToken(String),
    /// A node is to take no new work, or may again. `Done`.
    Drain {
        /// Its name, or a unique prefix of its id.
        node: String,
        /// Whether it is to take none.
        is_draining: bool,
    },
    /// Creates a placement group, of the session's tenant. `Group`.
    CreateGroup(Box<CreateGroup>),
    /// Ends a placement group of the session's tenant, by its name or a unique prefix of its id. `Done`.
    RemoveGroup(String),
    /// Waits until tasks can run in all bundles of a placement group. `Done` or `NotReady`.
    GroupReady {
        /// Its name, or a unique prefix of its id.
        group: String,
        /// How long to wait, in milliseconds; for ever if not given.
        timeout_ms: Option<u64>,
    },
    /// Runs a function or program that is detached, once, however often this is said. `Submitted` or `SubmittedHere`.
    SubmitOnce {
        /// Its id, drawn at random.
        task: TaskId,
        /// What to run.
        submit: Box<Submit>,
        /// The job that it belongs to.
        job: Job,
        /// Whether it was said before, in another session, and not answered.
        is_again: bool,
    },
    /// Cancels what is to make an object that the session has a handle of. `Cancelled`.
    CancelObject(ObjectId),
    /// Ends an actor that the session has a handle of. `Done`.
    KillActor(ActorId),
    /// An actor that the session has a handle of, for instance because a value names it. `Actor`: another handle.
    Actor(ActorId),
    /// A handle of an object of the session's tenant that is kept, by a unique prefix of its id. `Found`.
    FindObject(String),
    /// Changes what a tenant is due and may have, for all nodes of the cluster. `TenantChanged`.
    ChangeTenant(Box<ChangeTenant>),
    /// Gives a tenant back what it is due by default, for all nodes of the cluster. `Done`.
    RemoveTenant(TenantName),
    /// Takes back the certificate of a client, by its name, its id or a unique prefix of that. `Text`: its id.
    RevokeClient(String),
    /// Takes a node out of the cluster, for good. `Text`: its id.
    RemoveNode {
        /// Its name, its id, or a unique prefix of that.
        node: String,
        /// Though it lives.
        is_forced: bool,
    },
    /// The standard input of a task that reads a stream cannot be read any further: the task's read fails. `Done` when it
    /// is taken.
    InputFailed {
        /// The task.
        task: TaskId,
        /// Why, as Linux numbers errors.
        errno: i32,
    },
    /// Waits until an actor lives that the session has a handle of. `Done`, `Failed`, or `NotReady`.
    ActorReady {
        /// The actor.
        actor: ActorId,
        /// How long to wait, in milliseconds; for ever if not given.
        timeout_ms: Option<u64>,
    },
    /// Waits until a task that reads a stream wants more of it than has come. `Done`, or a refusal if it reads no more.
    InputWanted(TaskId),
    /// At which node a task or call of the session ran, for the last time, that has ended. `Text`: its name; that of the
    /// node that is asked if it did not run.
    RanAt(TaskId),
    /// Changes what a node has of a resource, from now on. `Text`: what has come of it, for people.
    SetResource(Box<SetResource>),
    /// How the cluster schedules is to change in these, if any. `Scheduling`.
    Scheduling(Vec<Setting>),
    /// What the schedulers of all nodes have, to find faults. `Text`.
    SchedulerState,
    /// The next bytes of a `Put` lie in its staging memory. `Continue` when that part of it can be written anew.
    Staged {
        /// Where they start there.
        offset: u64,
        /// How many they are, at least one.
        len: u64,
    },
    /// A link to the page that the node serves, of use once. `Text`.
    Dashboard,
    /// What a detached task of the session's tenant was submitted with, to be submitted again. `Given`.
    Given(TaskId),
    /// Starts a service, or has another module answer for the one of that name. `Service`.
    Serve(Box<Serve>),
    /// Ends a service of the session's tenant. `Done` once its requests have ended, or were cut off.
    StopService {
        /// Its name.
        name: String,
        /// How long requests under way may take, in milliseconds.
        patience_ms: u64,
    },
    /// Makes a join token for clients, and says what these may do. `Text`: the token.
    CreateClientToken(Box<ClientToken>),
    /// Who the node takes the client for. `WhoAmI`.
    WhoAmI,
    /// Sets a secret of the session's tenant, of at most [`secret::MAX_BYTES`](crate::secret::MAX_BYTES). `Done`.
    SetSecret {
        /// Its name.
        name: SecretName,
        /// Its value.
        value: Bytes,
    },
    /// Removes a secret of the session's tenant. `Done`.
    RemoveSecret(SecretName),
    /// The secrets that work of the session's tenant may use, without their values. `Secrets`.
    Secrets,
    /// Has another key seal the secrets of all tenants, at the head of the cluster. `Text`: what was done, for people.
    RotateSecrets,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// It is done.
    Done,
    /// It is not done, and why.
    Refused(Refusal),
    /// Chunks may come.
    Continue,
    /// What a module exports.
    Module(Box<Module>),
    /// The node does not have it.
    Unknown,
    /// The task is with the node.
    Submitted(TaskId),
    /// Something that a task wrote.
    Output(Output),
    /// What came of a task.
    Ended(Box<Report>),
    /// What is stored.
    Object(ObjectId),
    /// A value follows, in chunks.
    Value {
        /// What its bytes are.
        form: Form,
        /// How many they are.
        len: u64,
        /// Its type, where that is known.
        ty: Option<ValueType>,
        /// The objects in it, where its type does not say them. The client has one more handle of each.
        objects: Vec<ObjectName>,
        /// The actors in it, likewise.
        actors: Vec<ActorName>,
    },
    /// The next bytes of a value.
    Chunk(Bytes),
    /// There is no value: what was to make it failed.
    Failed {
        /// The task.
        origin: TaskId,
        /// How it failed.
        error: WireError,
    },
    /// Time is up.
    TimedOut,
    /// The indexes of the objects that are there or have failed.
    Ready(Vec<u32>),
    /// An actor.
    Actor(Box<Actor>),
    /// A list.
    Listed(Box<Listed>),
    /// A task.
    Task(Box<TaskDetail>),
    /// Something to read.
    Text(String),
    /// The node in numbers.
    Status(Box<NodeStatus>),
    /// Where a value can be mapped. It is pinned until the client says `Unpin`.
    Mapped(Box<Mapped>),
    /// A segment of which the client has no descriptor any more, as far as the node is concerned: it is
    /// closed, or was used longest ago. Belongs to no request.
    Forget(u64),
    /// The tasks are with the node.
    SubmittedAll(Vec<TaskId>),
    /// The next of the objects that were asked for, in that order.
    Values(Vec<Gotten>),
    /// A placement group.
    Group(GroupId),
    /// Time is up, and why a placement group is not ready, or an actor does not live.
    NotReady(String),
    /// The task is with the node, and is lost with it, because of this.
    SubmittedHere {
        /// The task.
        task: TaskId,
        /// Why it is not kept elsewhere.
        why: String,
    },
    /// The actor is with the node, and is lost with it though it has restarts, because of this.
    ActorHere {
        /// The actor.
        actor: Box<Actor>,
        /// Why it is not kept elsewhere.
        why: String,
    },
    /// All about an actor.
    ActorDetail(Box<ActorDetail>),
    /// All about a job.
    Job(Box<JobDetail>),
    /// What came of cancelling what was to make an object.
    Cancelled(Cancellation),
    /// An object, by its id and the node that owns it.
    Found(ObjectName),
    /// What a tenant is due and may have from now on.
    TenantChanged(Box<TenantChanged>),
    /// The placement group is with the node, and ends with it, because of this.
    GroupHere {
        /// The group.
        group: GroupId,
        /// Why it is not kept elsewhere.
        why: String,
    },
    /// How the cluster schedules from now on.
    Scheduling(Box<Scheduling>),
    /// As `Continue`, with memory of this length that both sides map, for the bytes: its descriptor comes beside this.
    Staging(u64),
    /// All about an object.
    ObjectDetail(Box<ObjectDetail>),
    /// What a task was submitted with. It names nothing that another session does not have.
    Given(Box<Submit>),
    /// A service.
    Service(Box<ServiceRow>),
    /// Who the client is to the node.
    WhoAmI(Box<WhoAmI>),
    /// Secrets, by tenant and name; and how many more there are than one answer has room for.
    Secrets(Vec<SecretRow>, u32),
}

/// What came of one of many objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Gotten {
    /// Its value.
    Value {
        /// What its bytes are.
        form: Form,
        /// The bytes.
        bytes: Bytes,
    },
    /// Its value is a large one: get it by itself.
    Large,
    /// There is no value: what was to make it failed.
    Failed {
        /// The task.
        origin: TaskId,
        /// How it failed.
        error: WireError,
    },
}

/// A value in the node's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// What its bytes are.
    pub form: Form,
    /// Its type, where that is known.
    pub ty: Option<ValueType>,
    /// The segment: its number in this node.
    pub segment: u64,
    /// How long that is, in bytes.
    pub segment_bytes: u64,
    /// Where the value starts in it, in bytes.
    pub offset_bytes: u64,
    /// How long the value is, in bytes.
    pub len_bytes: u64,
    /// Whether the segment's descriptor comes beside this message. It does when the client has not had
    /// it, or was told to forget it.
    pub has_descriptor: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of reason it is.
    pub kind: RefusalKind,
    /// What happened, why, what to do.
    pub message: String,
}

/// What kind of reason a [`Refusal`] has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The request is wrong.
    Usage,
    /// There is no such thing.
    NotFound,
    /// No node can ever serve it.
    Unschedulable,
    /// The node is stopping.
    Stopping,
    /// There is no room, or too much at a time.
    Full,
    /// It is another tenant's.
    Tenant,
    /// There is more than one such thing.
    Ambiguous,
}

/// A value that is to be stored. In its bytes the node does not see handles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// What its bytes are.
    pub form: Form,
    /// How many they are.
    pub len: u64,
    /// Whether it stays when the session ends, until it is deleted.
    pub is_kept: bool,
    /// How long it may wait for room, in milliseconds, of which [`super::MAX_ROOM_MS`] count; as long as the node says
    /// if not given.
    pub room_ms: Option<u64>,
    /// Whether the client can write to staging memory, which the node may offer if both are on one machine.
    pub can_stage: bool,
    /// The objects in it, which the session has handles of.
    pub objects: Vec<ObjectName>,
    /// The actors in it, which the session has handles of; with the objects, at most [`super::MAX_NAMES`].
    pub actors: Vec<ActorName>,
}

/// What the bytes of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Postcard.
    Postcard,
    /// Numbers, little-endian.
    Buffer(NumberKind),
}

impl Form {
    /// The form of a value.
    pub fn of(value: &Encoded) -> Self {
        match value {
            Encoded::Postcard(_) => Self::Postcard,
            Encoded::Buffer { kind, .. } => Self::Buffer(*kind),
        }
    }

    /// Bytes in this form.
    pub fn encoded(self, bytes: Vec<u8>) -> Encoded {
        match self {
            Self::Postcard => Encoded::Postcard(bytes),
            Self::Buffer(kind) => Encoded::Buffer { kind, bytes },
        }
    }
}

/// How the cluster schedules, as far as operators choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// What all nodes go by.
    pub settings: Settings,
    /// Tenants that have weights of single resources.
    pub resource_weights: Vec<(TenantName, Weights)>,
    /// What whoever has changed it should know, for people.
    pub notes: Vec<String>,
}

/// What a module exports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Module {
    /// What it is.
    pub digest: Digest,
    /// Whether it has a program.
    pub has_program: bool,
    /// Functions by their full names.
    pub functions: Vec<(String, FunctionType)>,
    /// Classes by their full names, with constructors.
    pub classes: Vec<(String, FunctionType)>,
}

/// An actor, as a session gets to know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Actor {
    /// Its id, and the node that owns it.
    pub name: ActorName,
    /// Its class's full name.
    pub class: String,
    /// Its methods by name.
    pub methods: Vec<(String, FunctionType)>,
}
