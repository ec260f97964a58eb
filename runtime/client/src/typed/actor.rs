//! Actors of generated classes.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;

use super::{Args, Future, check};
use crate::Client;
use crate::actor::{Actor, CallOptions, CreateActor};
use crate::error::Error;

/// A class of a module. Generated code implements it.
pub trait Class: Sized {
    /// Its full name.
    const NAME: &'static str;
    /// Its methods that can be called: a line for each, with its name and its type as WIT has it.
    const METHODS: &'static str;

    /// The class of this actor.
    fn new(instance: Instance) -> Self;
}

/// An actor whose class is known.
#[derive(Debug, Clone)]
pub struct Instance {
    actor: Actor,
    options: CallOptions,
}

impl Instance {
    /// Calls a method. Calls of one session run in the order in which they are made.
    ///
    /// # Errors
    /// As of [`Actor::call`].
    pub async fn call<T>(&self, method: &str, args: Args) -> Result<Future<T>, Error> {
        let options = self.options.clone();
        let task = self.actor.start(method, args.0?, options).await?;
        Ok(Future::of(task.future()))
    }

    /// The same actor, whose calls have these options.
    pub fn with(&self, options: CallOptions) -> Self {
        Self {
            actor: self.actor.clone(),
            options,
        }
    }

    /// The actor.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }
}

/// An actor, as one of a class: `let total: Counter = actor(client.find_actor("total").await?)?`.
///
/// # Errors
/// [`Error::OtherTypes`] when it is of another class, or that has other methods.
pub fn actor<C: Class>(actor: Actor) -> Result<C, Error> {
    if actor.class() != C::NAME {
        let (id, class, expected) = (actor.id(), actor.class(), C::NAME);
        let why = format!("actor {id} is of class {class}, where {expected} is expected");
        return Err(Error::OtherTypes(why));
    }
    check(C::NAME, C::METHODS, |name| actor.method(name))?;
    let options = CallOptions::default();
    Ok(C::new(Instance { actor, options }))
}

/// An actor that is created when this is awaited.
#[derive(Debug)]
#[must_use = "it is created when this is awaited"]
pub struct Create<C> {
    client: Client,
    create: CreateActor,
    args: Args,
    of: PhantomData<fn() -> C>,
}

impl<C> Create<C> {
    pub(super) fn new(client: Client, create: CreateActor, args: Args) -> Self {
        Self {
            client,
            create,
            args,
            of: PhantomData,
        }
    }

    /// Gives it a name within its tenant, by which others find it.
    pub fn named(self, name: &str) -> Self {
        self.with(|create| create.named(name))
    }

    /// Changes all else of the actor: `create.with(CreateActor::detached)`.
    pub fn with(self, change: impl FnOnce(CreateActor) -> CreateActor) -> Self {
        Self {
            create: change(self.create),
            ..self
        }
    }
}

impl<C: Class + 'static> IntoFuture for Create<C> {
    type Output = Result<C, Error>;
    type IntoFuture = Pin<Box<dyn std::future::Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut create = self.create;
            create.values = self.args.0?;
            actor(self.client.create_actor(create).await?)
        })
    }
}
