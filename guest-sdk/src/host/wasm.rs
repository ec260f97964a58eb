//! The node as the host: the imports of `wasmrun:runtime`.
//!
//! Owns the bindings and the conversions between their types and this crate's. No thought of its
//! own: what a call does is said in `wit/`.

use std::time::Duration;

use crate::argument::Argument;
use crate::error::{Error, Failure, FailureKind};
use crate::future::Cancellation;
use crate::host::{ACTOR_NAME_BYTES, ActorName, OBJECT_NAME_BYTES, ObjectName};
use crate::module::Module;
use crate::options::{ActorSettings, TaskSettings};
use crate::value::{Encoded, Form, Number};

/// Generated from `wit/`; documented there.
#[allow(missing_docs)]
pub mod bindings {
    wit_bindgen::generate!({ path: "../wit", world: "task" });
}

pub use bindings::wasmrun::runtime::context;
use bindings::wasmrun::runtime::{actors, objects, tasks};

/// A handle to an object.
pub struct Object(objects::Object);

/// A handle to an actor.
pub struct Actor(actors::Actor);

impl Object {
    /// The handle that a typed call brought.
    pub fn from_resource(object: objects::Object) -> Self {
        Self(object)
    }

    /// The handle for a typed call.
    pub fn into_resource(self) -> objects::Object {
        self.0
    }

    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn name(&self) -> ObjectName {
        fixed::<OBJECT_NAME_BYTES>(self.0.name())
    }

    pub fn named(name: &ObjectName) -> Result<Self, Error> {
        Ok(Self(objects::Object::named(name)?))
    }

    pub fn duplicate(&self) -> Self {
        Self(self.0.duplicate())
    }

    pub fn size(&self, timeout: Option<Duration>) -> Result<u64, Error> {
        Ok(self.0.size(milliseconds(timeout))?)
    }

    pub fn get(&self, timeout: Option<Duration>) -> Result<Encoded, Error> {
        let value = self.0.get(milliseconds(timeout))?;
        Ok(Encoded {
            form: value.form.into(),
            bytes: value.bytes,
        })
    }

    pub fn map(&self, window: &[u8], timeout: Option<Duration>) -> Result<u64, Error> {
        Ok(self.0.map(window, milliseconds(timeout))?)
    }

    pub fn cancel(&self) -> Cancellation {
        match self.0.cancel() {
            objects::Cancellation::Cancelled => Cancellation::Cancelled,
            objects::Cancellation::RunsOn => Cancellation::RunsOn,
            objects::Cancellation::Over => Cancellation::Over,
            objects::Cancellation::Asked => Cancellation::Asked,
        }
    }
}

pub fn unmap(window: &[u8]) -> Result<(), Error> {
    Ok(objects::unmap(window)?)
}

pub fn put(value: &Encoded, names: &[Vec<u8>]) -> Result<Object, Error> {
    let (form, bytes) = (value.form.into(), &value.bytes);
    Ok(Object(objects::put_with(form, bytes, names)?))
}

pub fn wait(
    waited_for: &[&Object],
    count: u32,
    timeout: Option<Duration>,
) -> Result<Vec<u32>, Error> {
    let handles: Vec<&objects::Object> = waited_for.iter().map(|object| &object.0).collect();
    Ok(objects::wait(&handles, count, milliseconds(timeout))?)
}

pub fn spawn(
    module: &'static Module,
    function: &'static str,
    arguments: Vec<Argument>,
    settings: Option<&TaskSettings>,
) -> Result<Object, Error> {
    let name = full_name(module, function);
    let options = settings.map(tasks::Options::from);
    with_arguments(arguments, |arguments| {
        Ok(Object(tasks::spawn(&name, arguments, options.as_ref())?))
    })
}

pub fn create(
    module: &'static Module,
    class: &'static str,
    arguments: Vec<Argument>,
    settings: Option<&ActorSettings>,
) -> Result<Actor, Error> {
    let name = full_name(module, class);
    let options = settings.map(actors::Options::from);
    with_arguments(arguments, |arguments| {
        Ok(Actor(actors::create(&name, arguments, options.as_ref())?))
    })
}

pub fn find(name: &str) -> Result<Actor, Error> {
    Ok(Actor(actors::find(name)?))
}

impl Actor {
    /// The handle that a typed call brought.
    pub fn from_resource(actor: actors::Actor) -> Self {
        Self(actor)
    }

    /// The handle for a typed call.
    pub fn into_resource(self) -> actors::Actor {
        self.0
    }

    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn name(&self) -> ActorName {
        fixed::<ACTOR_NAME_BYTES>(self.0.name())
    }

    pub fn named(name: &ActorName) -> Result<Self, Error> {
        Ok(Self(actors::Actor::named(name)?))
    }

    pub fn duplicate(&self) -> Self {
        Self(self.0.duplicate())
    }

    pub fn call(
        &self,
        method: &'static str,
        arguments: Vec<Argument>,
        time_limit: Option<Duration>,
    ) -> Result<Object, Error> {
        let options = actors::CallOptions {
            time_limit_ms: milliseconds(time_limit),
        };
        with_arguments(arguments, |arguments| {
            Ok(Object(self.0.call_with(method, arguments, options)?))
        })
    }

    pub fn kill(&self) {
        self.0.kill();
    }
}

/// With its interface: no other export of the module has this name then.
fn full_name(module: &Module, name: &str) -> String {
    format!("{}#{name}", module.interface)
}

fn with_arguments<T>(
    mut arguments: Vec<Argument>,
    call: impl FnOnce(&[tasks::Argument<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut lowered = Vec::with_capacity(arguments.len());
    for argument in &mut arguments {
        lowered.push(match argument {
            Argument::Value(bytes) => tasks::Argument::Value(std::mem::take(bytes)),
            Argument::Object(object) => tasks::Argument::Object(&object.0),
            Argument::Refused(error) => return Err(error.clone()),
        });
    }
    call(&lowered)
}

/// Rounded up: a wait is never shorter than asked for.
fn milliseconds(timeout: Option<Duration>) -> Option<u64> {
    timeout.map(|time| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn fixed<const N: usize>(name: Vec<u8>) -> [u8; N] {
    let length = name.len();
    name.try_into().unwrap_or_else(|_| {
        panic!("the host broke its contract: a name of {length} bytes, where {N} were due")
    })
}

impl From<&TaskSettings> for tasks::Options {
    fn from(settings: &TaskSettings) -> Self {
        Self {
            resources: settings.resources.clone(),
            retries: settings.retries,
            retry_on_error: settings.retry_on_error,
            time_limit_ms: milliseconds(settings.time_limit),
            priority: settings.priority,
            label_selector: settings.label_selector.clone(),
            strategy: settings.strategy.clone(),
        }
    }
}

impl From<&ActorSettings> for actors::Options {
    fn from(settings: &ActorSettings) -> Self {
        Self {
            resources: settings.resources.clone(),
            name: settings.name.clone(),
            restarts: settings.restarts,
            call_retries: settings.call_retries,
            label_selector: settings.label_selector.clone(),
            strategy: settings.strategy.clone(),
            time_limit_ms: milliseconds(settings.time_limit),
        }
    }
}

/// Each pair of types has the same cases, both ways.
macro_rules! same_cases {
    ($ours:ident, $theirs:ident: $($our_case:ident = $their_case:ident),* $(,)?) => {
        impl From<objects::$theirs> for $ours {
            fn from(case: objects::$theirs) -> Self {
                match case {
                    $(objects::$theirs::$their_case => Self::$our_case,)*
                }
            }
        }

        impl From<$ours> for objects::$theirs {
            fn from(case: $ours) -> Self {
                match case {
                    $($ours::$our_case => Self::$their_case,)*
                }
            }
        }
    };
}

same_cases!(Number, Number:
    U8 = U8, I8 = S8, U16 = U16, I16 = S16, U32 = U32,
    I32 = S32, U64 = U64, I64 = S64, F32 = F32, F64 = F64,
);

same_cases!(FailureKind, FailureKind:
    Guest = Guest, Trap = Trap, Exit = Exit, Limit = Limit, Arguments = Arguments,
    Cancelled = Cancelled, Dependency = Dependency, ActorDied = ActorDied, System = System,
);

impl From<objects::Form> for Form {
    fn from(form: objects::Form) -> Self {
        match form {
            objects::Form::Postcard => Self::Postcard,
            objects::Form::Buffer(number) => Self::Buffer(number.into()),
        }
    }
}

impl From<Form> for objects::Form {
    fn from(form: Form) -> Self {
        match form {
            Form::Postcard => Self::Postcard,
            Form::Buffer(number) => Self::Buffer(number.into()),
        }
    }
}

impl From<objects::Error> for Error {
    fn from(error: objects::Error) -> Self {
        match error {
            objects::Error::Failed(failure) => Self::Failed(Failure {
                kind: failure.kind.into(),
                message: failure.message,
                origin: failure.origin,
                payload: failure.payload,
            }),
            objects::Error::TimedOut => Self::TimedOut,
            objects::Error::Deadlock(message) => Self::Deadlock(message),
            objects::Error::Refused(message) => Self::Refused(message),
        }
    }
}

impl From<Error> for objects::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(failure) => Self::Failed(objects::Failure {
                kind: failure.kind.into(),
                message: failure.message,
                origin: failure.origin,
                payload: failure.payload,
            }),
            Error::TimedOut => Self::TimedOut,
            Error::Deadlock(message) => Self::Deadlock(message),
            Error::Refused(message) => Self::Refused(message),
        }
    }
}
