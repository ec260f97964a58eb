//! Actors: handles, creation and calls.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, ActorName};
use wasmrun_model::trace::TraceContext;
use wasmrun_model::units;
use wasmrun_model::value::{FunctionType, Handle};
use wasmrun_model::wire::{self, Module, Request, Response};

use crate::Client;
use crate::connection::Connection;
use crate::error::Error;
use crate::future::{Future, Task};
use crate::routes::Answers;
use crate::submit::Argument;

/// A handle to an actor. Cheap to clone; an actor without a name ends with the last.
#[derive(Debug, Clone)]
pub struct Actor(Arc<ActorReference>);

#[derive(Debug)]
struct ActorReference {
    actor: wire::Actor,
    connection: Arc<Connection>,
    why_not_durable: Option<String>,
}

/// What can be said about a call besides its arguments.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// Whether its report is asked for.
    pub is_watched: bool,
    /// How long an attempt may take. A call that is stopped in the middle ends this generation of the actor: the
    /// actor starts again if it has restarts left.
    pub time_limit: Option<Duration>,
    /// The trace that it, and the tasks that it starts, belong to.
    pub trace: Option<TraceContext>,
}

impl Drop for ActorReference {
    fn drop(&mut self) {
        self.connection.routes.release_actor(self.actor.name.id);
    }
}

/// Why an actor does not live (yet).
#[derive(Debug, thiserror::Error)]
pub enum ActorError {
    /// It never will.
    #[error("actor {actor} does not come to be: {error}")]
    Failed {
        /// Which.
        actor: ActorId,
        /// Why.
        error: TaskError,
    },
    /// Time is up; what it waits for, for people.
    #[error("time is up, and it does not live yet: {0}")]
    TimedOut(String),
    /// The node does not say.
    #[error(transparent)]
    Request(#[from] Error),
}

/// An actor to be created.
#[derive(Debug, Clone)]
pub struct CreateActor {
    /// All that can be said about it, but its arguments.
    pub wire: wire::Create,
    /// The arguments of its constructor.
    pub values: Vec<Argument>,
}

impl CreateActor {
    /// An actor of a class, by any name that is unique in its module.
    pub fn new(module: &Module, class: &str, values: Vec<Argument>) -> Self {
        Self {
            wire: wire::Create::new(module.digest, class.to_owned()),
            values,
        }
    }

    /// Gives it a name within its tenant, which keeps it.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.wire.name = Some(name.to_owned());
        self
    }

    /// Has its creation belong to this trace, below the span of the client that creates it. Calls say so for themselves.
    #[must_use]
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.wire.trace = Some(trace);
        self
    }

    /// Lets it live when the session ends, until it is killed.
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.wire.is_detached = true;
        self
    }
}

impl Client {
    /// Creates an actor.
    ///
    /// # Errors
    /// When the arguments do not fit, the name is taken, or no node can ever hold it.
    pub async fn create_actor(&self, create: CreateActor) -> Result<Actor, Error> {
        let (values, _stored) = self.arguments(create.values).await?;
        let wire = wire::Create {
            values,
            ..create.wire
        };
        self.actor(Request::Create(Box::new(wire))).await
    }

    /// The actor of the session's tenant with this name, or one with a name by its id.
    ///
    /// # Errors
    /// When there is none.
    pub async fn find_actor(&self, name: &str) -> Result<Actor, Error> {
        self.actor(Request::FindActor(name.to_owned())).await
    }

    pub(crate) async fn actor(&self, request: Request) -> Result<Actor, Error> {
        let (actor, why_not_durable) = match self.request(request).await? {
            Response::Actor(actor) => (actor, None),
            Response::ActorHere { actor, why } => (actor, Some(why)),
            other => return Err(Error::unexpected(&other)),
        };
        Ok(Actor(Arc::new(ActorReference {
            actor: *actor,
            connection: self.0.clone(),
            why_not_durable,
        })))
    }

    /// Ends an actor, by its name or a prefix of its id. [`Actor::kill`] needs neither.
    ///
    /// # Errors
    /// When there is none.
    pub async fn kill(&self, actor: &str) -> Result<(), Error> {
        self.done(Request::Kill(actor.to_owned())).await
    }
}

impl Actor {
    /// Its id.
    pub fn id(&self) -> ActorId {
        self.0.actor.name.id
    }

    /// Its id, and the node that owns it.
    pub fn name(&self) -> ActorName {
        self.0.actor.name
    }

    /// What stands for it inside a value; to pass it on, see [`Handles`](crate::Handles).
    pub fn handle(&self) -> Handle {
        Handle::Actor(self.0.actor.name)
    }

    /// Ends it, at once. Its calls fail, and it is not started again.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn kill(&self) -> Result<(), Error> {
        let client = Client(self.0.connection.clone());
        client.done(Request::KillActor(self.id())).await
    }

    /// Why it is lost if its node is, where it was created as detached and with restarts at a node of a cluster, and so
    /// should live on at another one.
    pub fn why_not_durable(&self) -> Option<&str> {
        self.0.why_not_durable.as_deref()
    }

    /// Waits until its constructor is through, and it lives; so long at most, if that is limited.
    ///
    /// # Errors
    /// When it never comes to be, or time is up, and why in both cases.
    pub async fn ready(&self, timeout: Option<Duration>) -> Result<(), ActorError> {
        let client = Client(self.0.connection.clone());
        let request = Request::ActorReady {
            actor: self.id(),
            timeout_ms: timeout.map(units::ms),
        };
        match client.request(request).await? {
            Response::Done => Ok(()),
            Response::Failed { error, .. } => Err(ActorError::Failed {
                actor: self.id(),
                error: error.into(),
            }),
            Response::NotReady(why) => Err(ActorError::TimedOut(why)),
            other => Err(Error::unexpected(&other).into()),
        }
    }

    /// Its class.
    pub fn class(&self) -> &str {
        &self.0.actor.class
    }

    /// The type of a method, if there is one of that name.
    pub fn method(&self, name: &str) -> Option<&FunctionType> {
        let mut methods = self.0.actor.methods.iter();
        methods.find(|(it, _)| it == name).map(|(_, ty)| ty)
    }

    /// All its methods.
    pub fn methods(&self) -> impl Iterator<Item = (&str, &FunctionType)> {
        let methods = self.0.actor.methods.iter();
        methods.map(|(name, ty)| (name.as_str(), ty))
    }

    /// Calls a method. Calls of one session run in the order in which they are made.
    ///
    /// # Errors
    /// When there is no such method or the arguments do not fit. The call of a dead actor is taken: its
    /// future fails.
    pub async fn call(&self, method: &str, values: Vec<Argument>) -> Result<Future, Error> {
        let task = self.start(method, values, CallOptions::default());
        Ok(task.await?.future())
    }

    /// As [`Actor::call`], with all that can be said about a call.
    ///
    /// # Errors
    /// As of `call`.
    pub async fn start(
        &self,
        method: &str,
        values: Vec<Argument>,
        options: CallOptions,
    ) -> Result<Task, Error> {
        let (task, _) = self.start_wanted(method, values, options, false).await?;
        Ok(task)
    }

    /// As [`Actor::start`]; if `is_wanted`, the value is asked for together with the call.
    pub(crate) async fn start_wanted(
        &self,
        method: &str,
        values: Vec<Argument>,
        options: CallOptions,
        is_wanted: bool,
    ) -> Result<(Task, Option<Answers>), Error> {
        let client = Client(self.0.connection.clone());
        let (values, _stored) = client.arguments(values).await?;
        let call = wire::Call {
            actor: self.id(),
            method: method.to_owned(),
            values,
            is_watched: options.is_watched,
            time_ms: options.time_limit.map(units::ms),
            trace: options.trace,
        };
        Task::start(&client.0, Request::Call(Box::new(call)), is_wanted).await
    }
}
