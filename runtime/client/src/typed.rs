//! Calls, futures and arguments with types of Rust, for the code that `wasmrun-bindgen` generates for a module.
//!
//! Owns how such values become bytes and back, and the check that a module is the one that the code was generated for. Must
//! not: know any module. Invariant: with serde and postcard a generated type has the bytes of its WIT type; the two exceptions,
//! whole lists of numbers and handles, are here.

mod actor;
mod value;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::resource::ResourceName;
use wasmrun_model::value::FunctionType;
use wasmrun_model::wire::{self, Terms};

pub use self::actor::{Class, Create, Instance, actor};
pub use self::value::{ActorHandle, Object, Value};
pub use crate::actor::{Actor, CallOptions};
pub use crate::error::{Error, GetError};
pub use crate::{Client, CreateActor, Submit};
pub use wasmrun_model::resource::Amount;

use self::value::{decode, encode};
use crate::submit::Argument;

/// A module that a node has, and that exports what was generated for it.
#[derive(Debug, Clone)]
pub struct Module {
    client: Client,
    module: Arc<wire::Module>,
}

impl Module {
    /// Loads a module, and checks that it exports these: a line for each function and class, with its name and its type
    /// as WIT has it.
    ///
    /// # Errors
    /// As of [`Client::load`], and [`Error::OtherTypes`].
    pub async fn load(client: &Client, bytes: &[u8], exports: &str) -> Result<Self, Error> {
        let module = client.load(bytes).await?;
        check("the module", exports, |name| {
            let mut all = module.functions.iter().chain(&module.classes);
            all.find(|(it, _)| it == name).map(|(_, ty)| ty)
        })?;
        Ok(Self {
            client: client.clone(),
            module: Arc::new(module),
        })
    }

    /// A call of a function, by its full name.
    pub fn call<T: Value>(&self, function: &str, args: Args) -> Call<T> {
        Call {
            client: self.client.clone(),
            submit: Submit::function(&self.module, function),
            args,
            of: PhantomData,
        }
    }

    /// An actor to be created.
    pub fn create<C: Class>(&self, args: Args) -> Create<C> {
        let create = CreateActor::new(&self.module, C::NAME, Vec::new());
        Create::new(self.client.clone(), create, args)
    }
}

/// Whether `found` has each of these lines: a name and a type.
fn check<'a>(
    whose: &str,
    expected: &str,
    found: impl Fn(&str) -> Option<&'a FunctionType>,
) -> Result<(), Error> {
    for (name, ty) in expected.lines().filter_map(|line| line.split_once(' ')) {
        let why = match found(name).map(ToString::to_string) {
            Some(found) if found == ty => continue,
            Some(found) => format!("of {whose} is {found}, where {ty} is expected"),
            None => format!("is not what {whose} exports"),
        };
        return Err(Error::OtherTypes(format!("{name} {why}")));
    }
    Ok(())
}

/// The arguments of a call, in their order, or why one of them cannot be passed.
#[derive(Debug)]
pub struct Args(Result<Vec<Argument>, Error>);

impl Default for Args {
    fn default() -> Self {
        Self(Ok(Vec::new()))
    }
}

impl Args {
    /// Adds an argument.
    pub fn push<T>(&mut self, arg: Arg<T>) {
        let Ok(values) = &mut self.0 else { return };
        match arg.argument {
            Ok(value) => values.push(value),
            Err(error) => self.0 = Err(error),
        }
    }

    /// Adds an argument for a parameter that is an object: it gets the handle, not the value.
    pub fn push_object(&mut self, object: Object) {
        self.push(Arg::<Object>::new(Ok(object.into_future().into())));
    }
}

/// An argument for a parameter of type `T`: a value, a reference to one, a [`Future`] of one, or a future of a function that
/// returns `Result<T, _>`: where that is an error, the call fails.
pub struct Arg<T> {
    argument: Result<Argument, Error>,
    of: PhantomData<fn(T)>,
}

impl<T> Arg<T> {
    fn new(argument: Result<Argument, Error>) -> Self {
        Self {
            argument,
            of: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Arg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.argument.fmt(f)
    }
}

impl<T: Value> From<T> for Arg<T> {
    fn from(value: T) -> Self {
        Self::new(encode(&value))
    }
}

impl<T: Value> From<&T> for Arg<T> {
    fn from(value: &T) -> Self {
        Self::new(encode(value))
    }
}

impl From<&str> for Arg<String> {
    fn from(text: &str) -> Self {
        Self::new(encode(&text.to_owned()))
    }
}

impl<T: Value, const N: usize> From<[T; N]> for Arg<Vec<T>> {
    fn from(list: [T; N]) -> Self {
        Self::new(encode(&Vec::from(list)))
    }
}

impl From<&Actor> for Arg<ActorHandle> {
    fn from(actor: &Actor) -> Self {
        Self::new(Ok(actor.into()))
    }
}

impl<T> From<Future<T>> for Arg<T> {
    fn from(future: Future<T>) -> Self {
        Self::from(&future)
    }
}

impl<T> From<&Future<T>> for Arg<T> {
    fn from(future: &Future<T>) -> Self {
        Self::new(Ok((&future.future).into()))
    }
}

impl<T, E> From<&Future<Result<T, E>>> for Arg<T> {
    fn from(future: &Future<Result<T, E>>) -> Self {
        Self::new(Ok((&future.future).into()))
    }
}

/// A call of a function that is not made yet.
#[derive(Debug)]
#[must_use = "it is made by `remote`"]
pub struct Call<T> {
    client: Client,
    submit: Submit,
    args: Args,
    of: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    /// The resources and policies that it asks for, over those that the module declares.
    pub fn options(self, terms: Terms) -> Self {
        self.with(|submit| submit.terms(terms))
    }

    /// How many CPUs it asks for: `"0.5".parse()?`, or `Amount::units(2)`.
    pub fn cpus(mut self, cpus: Amount) -> Self {
        let terms = &mut self.submit.wire.terms;
        terms.resources.insert(ResourceName::CPU, cpus);
        self
    }

    /// Changes all else of the task: `call.with(|it| it.limits(limits).grants(grants))`.
    pub fn with(self, change: impl FnOnce(Submit) -> Submit) -> Self {
        Self {
            submit: change(self.submit),
            ..self
        }
    }

    /// Submits it. The future is of its result.
    ///
    /// # Errors
    /// As of [`Client::submit`], and when an argument cannot be passed.
    pub async fn remote(self) -> Result<Future<T>, Error> {
        let submit = self.submit.values(self.args.0?);
        let task = self.client.submit(submit).await?;
        Ok(Future::of(task.future()))
    }
}

/// A value that is there or will be. Cheap to clone; the node keeps it as long as there is one.
#[derive(Debug)]
pub struct Future<T> {
    future: crate::Future,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Future<T> {
    fn clone(&self) -> Self {
        Self::of(self.future.clone())
    }
}

impl<T> Future<T> {
    /// A future whose value has this type, which is checked when it is got.
    pub fn of(future: crate::Future) -> Self {
        Self {
            future,
            of: PhantomData,
        }
    }

    /// The same without its type: to wait for several, to cancel it, to get it part by part.
    pub fn untyped(&self) -> &crate::Future {
        &self.future
    }
}

impl<T: Value> Future<T> {
    /// The value, once it is there. Of a function that returns a `result` it is a [`Result`], also where that is the error.
    ///
    /// # Errors
    /// When what was to make it failed otherwise, or the node is gone; [`Error::OtherTypes`] when it is not a `T`.
    pub async fn get(&self) -> Result<T, GetError> {
        self.read(None).await
    }

    /// The value, if it is there within this time.
    ///
    /// # Errors
    /// As of [`Future::get`], and when time is up.
    pub async fn get_timeout(&self, timeout: Duration) -> Result<T, GetError> {
        self.read(Some(timeout)).await
    }

    async fn read(&self, timeout: Option<Duration>) -> Result<T, GetError> {
        match self.future.get(timeout).await {
            Ok(value) => Ok(decode(&value)?),
            Err(GetError::Failed { origin, error }) => match T::of_failure(&error) {
                Some(value) => Ok(value),
                None => Err(GetError::Failed { origin, error }),
            },
            Err(error) => Err(error),
        }
    }
}
