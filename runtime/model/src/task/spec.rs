//! What is submitted: one task, and the terms that the tasks of a job share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Selectors, Strategy};
use crate::fairness::TenantName;
use crate::id::{ActorId, Digest, DriverId, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{Request, ResourceName, ResourceSet};

/// The most variants that a task may ask for.
pub const MAX_ALTERNATIVES: usize = 64;

/// What decides where a task can run. Tasks with equal rules are of one *scheduling class*: where
/// one does not fit, none does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Rule {
    /// What it asks for: 1 to [`MAX_ALTERNATIVES`] variants in the order of preference.
    pub alternatives: Vec<Request>,
    /// What labels a node must have: selectors that are tried in order.
    pub selectors: Selectors,
    /// How a node is chosen.
    pub strategy: Strategy,
    /// The module that it runs, if nodes that run it already are a little preferred.
    pub module: Option<Digest>,
}

impl Rule {
    /// The default rule for one request.
    pub fn of(request: Request) -> Self {
        Self {
            alternatives: vec![request],
            ..Self::default()
        }
    }

    /// The variant it likes best.
    ///
    /// # Panics
    /// If there is none, which [`TaskSpec`]s are checked for.
    pub fn preferred(&self) -> &Request {
        &self.alternatives[0]
    }
}

/// What an alternative asks for: what it was declared with, and of what it does not name only CPU and memory, which every
/// task needs, as the main request has them. Nodes and scenarios alike read alternatives so.
pub fn alternative(main: &ResourceSet, declared: &ResourceSet) -> ResourceSet {
    let mut set = declared.clone();
    for name in [ResourceName::CPU, ResourceName::MEMORY] {
        if declared.get(&name).is_zero() {
            set.set(name.clone(), main.get(&name));
        }
    }
    set
}

/// What the tasks of a job have in common. Shared, so that a million tasks cost one of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Who pays with its share.
    pub tenant: TenantName,
    /// Higher goes first among the tasks of the tenant.
    pub priority: i32,
    /// How often it is tried again after a failure that is not its own. Of the creation of an actor: above 0 where that may
    /// leave for another tenant, since its next generation goes on from a checkpoint. A failure is never followed by another
    /// attempt there.
    pub retries: u32,
    /// Whether an error that its function returns is such a failure. Its executor looks at that, the scheduler does not.
    pub retry_on_error: bool,
    /// Whether it is not to be paused or stopped for others, where its [quota](crate::fairness::Quota::no_preempt) allows that.
    pub no_preempt: bool,
    /// Where it can run.
    #[serde(with = "shared")]
    pub rule: Arc<Rule>,
}

impl Terms {
    /// The default terms for one request: the default tenant, priority 0, no retry.
    pub fn of(request: Request) -> Self {
        Self {
            tenant: TenantName::default(),
            priority: 0,
            retries: 0,
            retry_on_error: false,
            no_preempt: false,
            rule: Arc::new(Rule::of(request)),
        }
    }
}

/// What kind of work a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TaskKind {
    /// A function or program, run once.
    #[default]
    Task,
    /// The creation of an actor. It holds its resources until the actor dies.
    Actor(ActorId),
    /// A call of an actor's method. Calls of one caller run in the order made, one at a time.
    Call {
        /// The actor.
        actor: ActorId,
        /// The task that makes the call; `None` for the driver itself.
        caller: Option<TaskId>,
    },
}

/// An object that a task needs before it can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: u64,
    /// Which nodes hold a copy, as far as the submitter knows.
    pub holders: Vec<NodeId>,
    /// Whether it is there already at the node that the task is submitted to.
    pub is_local: bool,
}

/// A task as it is submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its id. Submitting the same id again changes nothing while the task lives.
    pub id: TaskId,
    /// Whose it is: it is cancelled when its driver goes.
    pub driver: DriverId,
    /// The job that it is part of.
    pub job: JobId,
    /// What it shares with others.
    #[serde(with = "shared")]
    pub terms: Arc<Terms>,
    /// What kind of work it is.
    pub kind: TaskKind,
    /// The objects it needs.
    pub args: Vec<Argument>,
}

/// Something shared travels as a value of its own.
/// For fields that many values share: each is written out.
pub mod shared {
    use super::{Arc, Deserialize, Serialize};

    /// As what is shared.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<T: Serialize, S: serde::Serializer>(
        shared: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(shared, serializer)
    }

    /// As what is shared, by this one alone.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}
