//! Actors, for drivers in this process.
//!
//! Owns [`Actor`], their handle. Must not: know how actors run.

use std::fmt;

use wasmrun_model::id::ActorId;
use wasmrun_model::task::{Attempt, TaskKind};
use wasmrun_model::value::Handle;

use crate::client::{CallError, Client, check};
use crate::ledger::Submission;
use crate::records::actor_ref::ActorRef;
use crate::records::class::ActorJob;
use crate::records::derive;
use crate::records::derive::WishError;
use crate::records::job::{Argument, Call, Derived, Parent};
use crate::records::object::Object;
use crate::records::policy::Policy;
use crate::records::task::{TaskHandle, Work};
use std::sync::Arc;
use wasmrun_engine::{ClassIndex, Grants, Limits, Module, Wishes};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::Request;
use wasmrun_model::task::{Rule, Terms};

/// What an actor gets besides what its class declares.
#[derive(Debug, Clone, Default)]
pub struct ActorOptions {
    /// Whose share pays for it.
    pub tenant: TenantName,
    /// Higher goes first among the tenant's; its calls have the same.
    pub priority: i32,
    /// What it may reach.
    pub grants: Grants,
    /// What it asks for over what is declared. A name here counts for nothing: see
    /// [`Client::create_actor`].
    pub wishes: Wishes,
    /// The most that it and its calls may write, take and return. Memory follows from what it asks for.
    pub limits: Limits,
    /// What the node gives and allows: see [`crate::Node::policy`].
    pub policy: Arc<Policy>,
}

impl ActorJob {
    /// An actor of a class, with what the module declares for it, but for the wishes.
    ///
    /// # Errors
    /// When a wish cannot be read, or asks for what no node could ever be asked for.
    pub fn new(
        module: &Module,
        class: ClassIndex,
        options: ActorOptions,
    ) -> Result<Self, WishError> {
        let terms = Terms {
            tenant: options.tenant,
            priority: options.priority,
            retries: 0,
            retry_on_error: false,
            no_preempt: false,
            rule: Arc::new(Rule::of(Request::default())),
        };
        let parent = Parent {
            module,
            grants: &options.grants,
            terms: &terms,
            limits: &options.limits,
            policy: &options.policy,
            derived: &Derived::default(),
        };
        derive::actor(parent, class, options.wishes)
    }
}

/// A handle to an actor. Cheap to clone; the actor ends when the last is dropped and it has no name.
#[derive(Clone)]
pub struct Actor {
    pub(crate) actor: ActorRef,
    pub(crate) client: Client,
}

impl Actor {
    /// Its id.
    pub fn id(&self) -> ActorId {
        self.actor.id
    }

    /// Its handle in values.
    pub fn handle(&self) -> Handle {
        Handle::Actor(self.actor.name())
    }

    /// The same actor, called by another session.
    pub(crate) fn with(&self, client: &Client) -> Self {
        client.actor(self.actor.clone())
    }

    /// Calls a method. Calls of one session run in the order in which they are made.
    ///
    /// # Errors
    /// When there is no such method, the arguments do not fit, or the node is stopping. A call of an
    /// actor that is dead is no error here: its object fails.
    pub fn call(&self, method: &str, values: Vec<Argument>) -> Result<Object, CallError> {
        let call = Call {
            values,
            ..Call::default()
        };
        Ok(self.start(method, call)?.object())
    }

    /// As [`Actor::call`], with all that can be said about a call and its report at the end.
    ///
    /// # Errors
    /// As of `call`.
    pub fn start(&self, method: &str, mut call: Call) -> Result<TaskHandle, CallError> {
        let face = &self.actor.face;
        let index = face.find(method).ok_or_else(|| CallError::NoMethod {
            class: face.class.clone(),
            method: method.chars().take(80).collect(),
            methods: face.method_names().map(str::to_owned).collect(),
        })?;
        check(&face.methods[index].1, &call.values)?;
        let policy = &self.client.shared().policy;
        call.time_limit = policy.actor_time("call", call.time_limit)?;
        let cell = self
            .client
            .new_cell(Work::Call(self.actor.cell().clone(), index));
        self.client.shared().submit(Submission {
            driver: self.client.driver(),
            parent: None,
            terms: face.call_terms.clone(),
            kind: TaskKind::Call {
                actor: self.actor.id,
                caller: None,
            },
            call,
            cell: cell.clone(),
            keeps: Some(self.actor.clone()),
            first: Attempt::FIRST,
        })?;
        Ok(TaskHandle(cell))
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.actor.fmt(f)
    }
}
