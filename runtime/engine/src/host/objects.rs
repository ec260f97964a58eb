//! `wasmrun:runtime/objects`, `tasks` and `actors`: a guest's calls, put to the node's [`Services`].
//!
//! Here names become indexes and WIT's types the engine's. What cannot be served is an error that the
//! guest sees; a guest traps only where it breaks the rules of handles.
//!
//! [`Services`]: crate::services::Services

use std::time::Duration;

use wasmrun_model::failure;
use wasmrun_model::id::{ActorName, ObjectName};
use wasmrun_model::task::Cancellation;
use wasmrun_model::value::{Encoded, EncodedRef, Handle, NumberKind};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};

use super::bindings::wasmrun::runtime::actors::{self, HostActor};
use super::bindings::wasmrun::runtime::objects::{
    self, Error, Failure, FailureKind, Form, HostObject, Number, Value,
};
use super::bindings::wasmrun::runtime::tasks::{self, Argument};
use crate::handle::{ActorHandle, BorrowedObjects, ObjectHandle, has_ended, resource, slot};
use crate::module::LookupError;
use crate::services::{GuestArgument, ServiceError, Wishes};
use crate::state::TaskState;

/// The interface whose `wait`, `map` and `unmap` are ours, and not what is generated.
pub(super) const INTERFACE: &str = "wasmrun:runtime/objects@0.1.0";

type Answer<T> = wasmtime::Result<Result<T, Error>>;

impl objects::Host for TaskState {
    fn unmap(&mut self, _: Vec<u8>) -> Answer<()> {
        unreachable!("map::add_to_linker puts its own in place")
    }

    async fn put(&mut self, form: Form, bytes: Vec<u8>) -> Answer<Resource<ObjectHandle>> {
        self.put_with(form, bytes, Vec::new()).await
    }

    async fn put_with(
        &mut self,
        form: Form,
        bytes: Vec<u8>,
        names: Vec<Vec<u8>>,
    ) -> Answer<Resource<ObjectHandle>> {
        let value = match form {
            Form::Postcard => Encoded::Postcard(bytes),
            Form::Buffer(number) => {
                let kind = number_kind(number);
                let width = kind.width_bytes();
                if !bytes.len().is_multiple_of(width) {
                    let length = bytes.len();
                    return Ok(Err(Error::Refused(format!(
                        "a buffer of {kind} cannot be {length} bytes long; its length must be a \
                         multiple of {width}"
                    ))));
                }
                Encoded::Buffer { kind, bytes }
            }
        };
        let handles: Result<Vec<Handle>, Error> =
            names.iter().map(|name| handle_named(name)).collect();
        let handles = match handles {
            Ok(handles) => handles,
            Err(error) => return Ok(Err(error)),
        };
        let services = self.services();
        match services.put(value, handles).await {
            Ok(made) => Ok(Ok(resource(made))),
            Err(error) => Ok(Err(error.into())),
        }
    }

    async fn wait(
        &mut self,
        _: Vec<Resource<ObjectHandle>>,
        _: u32,
        _: Option<u64>,
    ) -> Answer<Vec<u32>> {
        unreachable!("`add_to_linker` puts its own in place")
    }
}

impl HostObject for TaskState {
    fn id(&mut self, object: Resource<ObjectHandle>) -> wasmtime::Result<String> {
        let handle = self.services.handle(slot(&object));
        handle.map(id_text).ok_or_else(has_ended)
    }

    fn name(&mut self, object: Resource<ObjectHandle>) -> wasmtime::Result<Vec<u8>> {
        let handle = self.services.name(slot(&object));
        handle.map(name_bytes).ok_or_else(has_ended)
    }

    fn named(&mut self, name: Vec<u8>) -> Answer<Resource<ObjectHandle>> {
        let name = <&[u8; ObjectName::BYTES]>::try_from(&name[..]).ok();
        let opened = name.and_then(|name| {
            self.services
                .open(&Handle::Object(ObjectName::from_bytes(name)))
        });
        match opened {
            Some(opened) => Ok(Ok(resource(opened))),
            None => Ok(Err(not_given("an object", ObjectName::BYTES))),
        }
    }

    fn duplicate(
        &mut self,
        object: Resource<ObjectHandle>,
    ) -> wasmtime::Result<Resource<ObjectHandle>> {
        let slot = slot(&object);
        self.services.duplicate(slot);
        Ok(resource(slot))
    }

    async fn size(
        &mut self,
        object: Resource<ObjectHandle>,
        timeout_ms: Option<u64>,
    ) -> Answer<u64> {
        let services = self.services();
        let value = services.get(slot(&object), duration(timeout_ms)).await;
        Ok(value
            .map(|value| value.encoded().bytes().len() as u64)
            .map_err(Error::from))
    }

    async fn get(
        &mut self,
        object: Resource<ObjectHandle>,
        timeout_ms: Option<u64>,
    ) -> Answer<Value> {
        let services = self.services();
        match services.get(slot(&object), duration(timeout_ms)).await {
            Ok(value) => {
                // The host copies it first: not what the guest has no room for.
                let (bytes, limit) = (value.encoded().bytes().len() as u64, self.limiter.limit());
                match bytes > limit {
                    true => Ok(Err(Error::Refused(format!(
                        "the object has {bytes} bytes, more than this task's memory of {limit}: ask for more \
                         with --memory, the module's manifest, or the options of `spawn`"
                    )))),
                    false => Ok(Ok(value_of(value.encoded()))),
                }
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    async fn map(&mut self, _: Resource<ObjectHandle>, _: Vec<u8>, _: Option<u64>) -> Answer<u64> {
        unreachable!("map::add_to_linker puts its own in place")
    }

    fn cancel(
        &mut self,
        object: Resource<ObjectHandle>,
    ) -> wasmtime::Result<objects::Cancellation> {
        Ok(match self.services.cancel(slot(&object)) {
            Cancellation::Cancelled => objects::Cancellation::Cancelled,
            Cancellation::RunsOn => objects::Cancellation::RunsOn,
            Cancellation::Over => objects::Cancellation::Over,
            Cancellation::Asked => objects::Cancellation::Asked,
        })
    }

    fn drop(&mut self, object: Resource<ObjectHandle>) -> wasmtime::Result<()> {
        self.services.release(slot(&object));
        Ok(())
    }
}

impl tasks::Host for TaskState {
    fn spawn(
        &mut self,
        function: String,
        arguments: Vec<Argument>,
        options: Option<tasks::Options>,
    ) -> Answer<Resource<ObjectHandle>> {
        let function = match self.module.find(&function) {
            Ok(function) => function,
            Err(error) => return Ok(Err(unknown(&error))),
        };
        let arguments = guest_arguments(arguments);
        let wishes = options.map(Wishes::from).unwrap_or_default();
        match self.services.spawn(function, arguments, wishes) {
            Ok(made) => Ok(Ok(resource(made))),
            Err(error) => Ok(Err(error.into())),
        }
    }
}

impl actors::Host for TaskState {
    async fn create(
        &mut self,
        class: String,
        arguments: Vec<Argument>,
        options: Option<actors::Options>,
    ) -> Answer<Resource<ActorHandle>> {
        let class = match self.module.find_class(&class) {
            Ok(class) => class,
            Err(error) => return Ok(Err(unknown(&error))),
        };
        let arguments = guest_arguments(arguments);
        let wishes = options.map(Wishes::from).unwrap_or_default();
        let services = self.services();
        match services.create(class, arguments, wishes).await {
            Ok(made) => Ok(Ok(resource(made))),
            Err(error) => Ok(Err(error.into())),
        }
    }

    async fn find(&mut self, name: String) -> Answer<Resource<ActorHandle>> {
        let services = self.services();
        match services.find(&name).await {
            Ok(made) => Ok(Ok(resource(made))),
            Err(error) => Ok(Err(error.into())),
        }
    }
}

impl HostActor for TaskState {
    fn id(&mut self, actor: Resource<ActorHandle>) -> wasmtime::Result<String> {
        let handle = self.services.handle(slot(&actor));
        handle.map(id_text).ok_or_else(has_ended)
    }

    fn name(&mut self, actor: Resource<ActorHandle>) -> wasmtime::Result<Vec<u8>> {
        let handle = self.services.name(slot(&actor));
        handle.map(name_bytes).ok_or_else(has_ended)
    }

    fn named(&mut self, name: Vec<u8>) -> Answer<Resource<ActorHandle>> {
        let name = <&[u8; ActorName::BYTES]>::try_from(&name[..]).ok();
        let opened = name.and_then(|name| {
            self.services
                .open(&Handle::Actor(ActorName::from_bytes(name)))
        });
        match opened {
            Some(opened) => Ok(Ok(resource(opened))),
            None => Ok(Err(not_given("an actor", ActorName::BYTES))),
        }
    }

    fn duplicate(
        &mut self,
        actor: Resource<ActorHandle>,
    ) -> wasmtime::Result<Resource<ActorHandle>> {
        let slot = slot(&actor);
        self.services.duplicate(slot);
        Ok(resource(slot))
    }

    fn call(
        &mut self,
        actor: Resource<ActorHandle>,
        method: String,
        arguments: Vec<Argument>,
    ) -> Answer<Resource<ObjectHandle>> {
        let options = actors::CallOptions {
            time_limit_ms: None,
        };
        self.call_with(actor, method, arguments, options)
    }

    fn call_with(
        &mut self,
        actor: Resource<ActorHandle>,
        method: String,
        arguments: Vec<Argument>,
        options: actors::CallOptions,
    ) -> Answer<Resource<ObjectHandle>> {
        let arguments = guest_arguments(arguments);
        let time_limit = duration(options.time_limit_ms);
        let services = self.services();
        match services.call(slot(&actor), &method, arguments, time_limit) {
            Ok(made) => Ok(Ok(resource(made))),
            Err(error) => Ok(Err(error.into())),
        }
    }

    fn kill(&mut self, actor: Resource<ActorHandle>) -> wasmtime::Result<()> {
        self.services.kill(slot(&actor));
        Ok(())
    }

    fn drop(&mut self, actor: Resource<ActorHandle>) -> wasmtime::Result<()> {
        self.services.release(slot(&actor));
        Ok(())
    }
}

type WaitArgs = (BorrowedObjects, u32, Option<u64>);

/// Puts `wait` into a linker, in place of the one that would make a resource of each handle.
pub(super) fn add_to_linker(linker: &mut Linker<TaskState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(INTERFACE)?.func_wrap_async(
        "wait",
        |store: StoreContextMut<'_, TaskState>, (objects, count, timeout_ms): WaitArgs| {
            let services = store.data().services();
            Box::new(async move {
                let objects = objects.0;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let count = count.min(objects.len());
                let ready = services.wait(objects, count, duration(timeout_ms)).await;
                Ok((ready.map_err(Error::from),))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn guest_arguments(arguments: Vec<Argument>) -> Vec<GuestArgument> {
    let arguments = arguments.into_iter().map(|argument| match argument {
        Argument::Value(bytes) => GuestArgument::Value(bytes),
        Argument::Object(object) => GuestArgument::Object(slot(&object)),
    });
    arguments.collect()
}

fn id_text(handle: Handle) -> String {
    match handle {
        Handle::Object(name) => name.id.to_string(),
        Handle::Actor(name) => name.id.to_string(),
    }
}

fn name_bytes(handle: Handle) -> Vec<u8> {
    match handle {
        Handle::Object(name) => name.to_bytes().to_vec(),
        Handle::Actor(name) => name.to_bytes().to_vec(),
    }
}

pub(super) fn duration(ms: Option<u64>) -> Option<Duration> {
    ms.map(Duration::from_millis)
}

/// What bytes name that are an object's or an actor's name; whether the guest knows it is not said.
fn handle_named(name: &[u8]) -> Result<Handle, Error> {
    if let Ok(name) = <&[u8; ObjectName::BYTES]>::try_from(name) {
        return Ok(Handle::Object(ObjectName::from_bytes(name)));
    }
    if let Ok(name) = <&[u8; ActorName::BYTES]>::try_from(name) {
        return Ok(Handle::Actor(ActorName::from_bytes(name)));
    }
    Err(Error::Refused(format!(
        "{} bytes are no name of a handle: an object's has {}, an actor's {}; pass what `name` returned",
        name.len(),
        ObjectName::BYTES,
        ActorName::BYTES
    )))
}

fn not_given(what: &str, bytes: usize) -> Error {
    Error::Refused(format!(
        "these bytes do not name {what} that this task was given or has made; pass the {bytes} bytes \
         that `name` returned, and pass them on inside values of the handle's type"
    ))
}

fn unknown(error: &LookupError) -> Error {
    Error::Refused(error.to_string())
}

fn value_of(encoded: EncodedRef<'_>) -> Value {
    let form = match encoded {
        EncodedRef::Postcard(_) => Form::Postcard,
        EncodedRef::Buffer { kind, .. } => Form::Buffer(number(kind)),
    };
    Value {
        form,
        bytes: encoded.bytes().to_vec(),
    }
}

impl From<tasks::Options> for Wishes {
    fn from(options: tasks::Options) -> Self {
        Self {
            resources: options.resources,
            retries: options.retries,
            retry_on_error: options.retry_on_error,
            time_limit: duration(options.time_limit_ms),
            priority: options.priority,
            label_selector: options.label_selector,
            strategy: options.strategy,
            ..Self::default()
        }
    }
}

impl From<actors::Options> for Wishes {
    fn from(options: actors::Options) -> Self {
        Self {
            resources: options.resources,
            label_selector: options.label_selector,
            strategy: options.strategy,
            name: options.name,
            restarts: options.restarts,
            call_retries: options.call_retries,
            time_limit: duration(options.time_limit_ms),
            ..Self::default()
        }
    }
}

impl From<ServiceError> for Error {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Failed { origin, error } => {
                let failure = failure::Failure::of(&error, origin);
                Self::Failed(Failure {
                    kind: failure_kind(failure.kind),
                    message: failure.message,
                    origin: failure.origin.to_string(),
                    payload: failure.payload,
                })
            }
            ServiceError::TimedOut => Self::TimedOut,
            ServiceError::Deadlock(why) => Self::Deadlock(why),
            ServiceError::Refused(why) => Self::Refused(why),
        }
    }
}

fn failure_kind(kind: failure::FailureKind) -> FailureKind {
    match kind {
        failure::FailureKind::Guest => FailureKind::Guest,
        failure::FailureKind::Trap => FailureKind::Trap,
        failure::FailureKind::Exit => FailureKind::Exit,
        failure::FailureKind::Limit => FailureKind::Limit,
        failure::FailureKind::Arguments => FailureKind::Arguments,
        failure::FailureKind::Cancelled => FailureKind::Cancelled,
        failure::FailureKind::Dependency => FailureKind::Dependency,
        failure::FailureKind::ActorDied => FailureKind::ActorDied,
        failure::FailureKind::System => FailureKind::System,
    }
}

fn number_kind(number: Number) -> NumberKind {
    match number {
        Number::U8 => NumberKind::U8,
        Number::S8 => NumberKind::S8,
        Number::U16 => NumberKind::U16,
        Number::S16 => NumberKind::S16,
        Number::U32 => NumberKind::U32,
        Number::S32 => NumberKind::S32,
        Number::U64 => NumberKind::U64,
        Number::S64 => NumberKind::S64,
        Number::F32 => NumberKind::F32,
        Number::F64 => NumberKind::F64,
    }
}

fn number(kind: NumberKind) -> Number {
    match kind {
        NumberKind::U8 => Number::U8,
        NumberKind::S8 => Number::S8,
        NumberKind::U16 => Number::U16,
        NumberKind::S16 => Number::S16,
        NumberKind::U32 => Number::U32,
        NumberKind::S32 => Number::S32,
        NumberKind::U64 => Number::U64,
        NumberKind::S64 => Number::S64,
        NumberKind::F32 => Number::F32,
        NumberKind::F64 => Number::F64,
    }
}
