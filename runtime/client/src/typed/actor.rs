//! Actors of classes that were generated.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;

use super::{Args, Future, check};
use crate::Client;
use crate::actor::{Actor, CallOptions, CreateActor};
use crate::error::Error;
use crate::submit::Argument;

/// A class of a module. It is generated; what is here is for that.
pub trait Class: Sized {
    /// Its full name.
    const NAME: &'static str;
    /// Its methods that can be called: a line for each, with its name and its type as WIT has it.
    const METHODS: &'static str;

    /// One of it.
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
        let values = given(args.values, args.refused)?;
        let task = self.actor.start(method, values, self.options).await?;
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
    refused: Option<Error>,
    of: PhantomData<fn() -> C>,
}

impl<C> Create<C> {
    pub(super) fn new(client: Client, create: CreateActor, refused: Option<Error>) -> Self {
        Self {
            client,
            create,
            refused,
            of: PhantomData,
        }
    }

    /// Gives it a name within its tenant, by which others find it.
    pub fn named(self, name: &str) -> Self {
        self.with(|create| create.named(name))
    }

    /// All else that can be said of an actor: `create.with(CreateActor::detached)`.
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
            create.values = given(create.values, self.refused)?;
            actor(self.client.create_actor(create).await?)
        })
    }
}

fn given(values: Vec<Argument>, refused: Option<Error>) -> Result<Vec<Argument>, Error> {
    match refused {
        None => Ok(values),
        Some(error) => Err(error),
    }
}
