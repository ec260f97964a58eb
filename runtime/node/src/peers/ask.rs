//! What clients of one node ask of all: the messages.
//!
//! Owns the types. Must not: know what the answers are made of; that is behind [`Desk`]. All of it is postcard, as in `protocol`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use wasmrun_model::access::Tenants;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId, GroupId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::wire::{
    GroupRow, Holder, List, Output, Refusal, Rows, Silent, Submit, TaskDetail,
};

use crate::records::object::Reference;

/// What a client of another node wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Whose things it may name.
    pub(crate) tenant: TenantName,
    /// Its session, whose things it may name too.
    pub(crate) driver: DriverId,
    /// Whose things it may see.
    pub(crate) tenants: Tenants,
    pub(crate) question: Question,
}

/// See [`Asked`]. Things are named by the beginning of their ids, where nothing else is said.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Question {
    /// `Rows`.
    List(List),
    /// `Task`.
    Describe(TaskId),
    /// The task is to end, and all that it has started. `Done`.
    Cancel(TaskId),
    /// Of a task, or of the actor that it has created. `Outputs`.
    Logs(TaskId),
    /// A placement group that the node owns, by its name or the beginning of its id. `Group`.
    Group(String),
    /// A placement group that the node owns is to end. `Done`.
    RemoveGroup(GroupId),
    /// An object that the node keeps for the tenant. `Object`.
    Object(String),
    /// The node is to keep an object no more that it keeps for the tenant. `Done`.
    Delete(ObjectId),
    /// What a text may stand for: the name of an actor, or the beginning of the id of an actor, a task or a job.
    /// `Things`.
    Things(String),
    /// The live tasks of a job that were submitted at the node are to end. `Count`: how many those are.
    CancelJob(DriverId),
    /// Of what is kept of the output of these tasks, as much as there is room for in an answer. `OutputsOf`.
    LogsOf(Vec<TaskId>),
    /// The node has so much of a resource from now on; none if not given. `Text`: what has come of it.
    SetResource {
        name: ResourceName,
        amount: Option<Amount>,
        /// Whether it persists over restarts.
        is_kept: bool,
    },
    /// What the node's scheduler has. `Text`.
    Scheduler,
    /// Who needs an object. `Holders`.
    Holders(ObjectId),
    /// What a detached task was submitted with, to be submitted again. `Given`.
    Given(TaskId),
}

/// Something that has an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ThingId {
    Task(TaskId),
    Actor(ActorId),
    Job(DriverId),
}

/// Something that a node knows, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(crate) id: ThingId,
    /// What it is called, if it is called anything.
    pub(crate) name: String,
    /// As lists show it; none of a job.
    pub(crate) state: String,
    /// The node that says so.
    pub(crate) node: String,
}

/// What is said to [`Asked`]. Rows and outputs are as many as a client may get from one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    Rows(Rows),
    Task {
        detail: Box<TaskDetail>,
        /// Whether it was submitted here.
        is_own: bool,
    },
    Outputs(Vec<Output>),
    Done,
    Refused(Refusal),
    /// The node answers no clients.
    NotServed,
    Group(Box<GroupRow>),
    /// It can be borrowed: [`Exchange::borrow_kept`](super::Exchange::borrow_kept).
    Object(ObjectName),
    Things(Vec<Thing>),
    Count(u64),
    OutputsOf {
        /// Of those that the node knows, in order: what is kept, or why nothing is.
        of: Vec<(TaskId, Result<Vec<Output>, Refusal>)>,
        /// How many of those that were asked for it has looked at. At least one.
        looked_at: u32,
    },
    /// For people.
    Text(String),
    Holders {
        named: Vec<Holder>,
        /// How many others there are.
        more: u64,
    },
    Given {
        /// Without objects and actors.
        submit: Box<Submit>,
        /// How long its module is, if the node has that as a file.
        module_bytes: Option<u64>,
    },
}

/// Who answers clients, at each node.
pub(crate) trait Desk: Send + Sync {
    /// Answers, without waiting for anything.
    fn answer(&self, asked: &Asked) -> Answer;

    /// An object of ours that is kept for a tenant.
    fn detached_object(&self, tenant: &TenantName, object: &ObjectId) -> Option<Reference>;

    /// Whether another node goes on with a result of ours when this one is lost.
    fn outlives(&self, object: &ObjectId) -> bool;

    /// Such a result is somewhere else now.
    fn has_moved(self: Arc<Self>, object: &ObjectId);

    /// A node that has a copy of such a result gives it up.
    fn has_left(self: Arc<Self>, object: &ObjectId, node: NodeId);

    /// A node is there, perhaps again: it may have such results of ours, and not know whose they are.
    fn has_come(&self, node: NodeId);

    /// A node keeps a copy of such a result for us again. Whether we need that.
    fn is_kept_by(&self, node: NodeId, object: &ObjectId) -> bool;

    /// Has others keep such results that are here only.
    fn place_results(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// What came of asking all others.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) answers: Vec<(NodeId, Answer)>,
    pub(crate) silent: Vec<Silent>,
}
