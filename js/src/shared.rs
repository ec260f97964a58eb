//! A session, as all that goes on in it shares it.
//!
//! Owns how commands are carried out and what of them is told. Must not: block the thread of JavaScript.
//!
//! Invariant: what runs beside JavaScript has no [`Line`], so that its end ends all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use napi::bindgen_prelude::Uint8ArraySlice;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::queue::{self, Command, Outcome, Queue, QueuedArgument, Slot, What};
use wasmrun_client::wire::{self, Form, Refusal, RefusalKind};
use wasmrun_client::{
    Actor, Argument, CallOptions, CreateActor, Error, Future, GetError, Handles, PutOptions,
    Submit, Value,
};
use wasmrun_model::value::codec::handles;
use wasmrun_model::value::{Handle, ValueType};

use crate::failure::Failure;
use crate::items::{Expected, Function, Item, Items, Living, Object};
use crate::mail::{Bell, Mailbox, Named};
use crate::packet::{self, Reader};

/// See the [module](self).
pub(crate) struct Shared {
    pub(crate) mail: Mailbox,
    pub(crate) items: Mutex<Items>,
    /// None before there is a session and after its end.
    pub(crate) line: Mutex<Option<Arc<Line>>>,
    numbers: AtomicU64,
}

/// The connection to the node, and the calls that are not with it yet.
pub(crate) struct Line {
    pub(crate) client: Client,
    queue: Arc<Queue>,
}

/// Who waits for a value.
struct Wanted {
    id: u64,
    /// Whether the object is let go with it.
    is_call: bool,
    expected: Expected,
}

/// What a packet asks for, until all of it is read.
#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    wanted: Vec<(Wanted, Arc<Slot>)>,
}

impl Shared {
    pub(crate) fn new(bell: Bell) -> Arc<Self> {
        /// JavaScript numbers what it asks for from 1.
        const FIRST: u64 = 1 << 52;
        Arc::new(Self {
            mail: Mailbox::new(bell),
            items: Mutex::default(),
            line: Mutex::default(),
            numbers: AtomicU64::new(FIRST),
        })
    }

    /// The session begins.
    pub(crate) fn begin(&self, client: Client) {
        let queue = Arc::<Queue>::default();
        let sending = queue::send_all(queue.clone(), (*client).clone());
        client.handle().spawn(sending);
        *self.line.lock() = Some(Arc::new(Line { client, queue }));
    }

    pub(crate) fn line(&self) -> Result<Arc<Line>, String> {
        let line = self.line.lock().clone();
        line.ok_or_else(|| "this session was closed: connect again".to_owned())
    }

    /// The number of something that JavaScript has not asked for by one.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps something under a number that JavaScript is to be told.
    pub(crate) fn keep(&self, item: Item) -> u64 {
        let id = self.number();
        self.items.lock().insert(id, item);
        id
    }

    /// What is made of what came of a request.
    pub(crate) fn answer<T>(&self, id: u64, done: Result<T, Error>, json: impl FnOnce(T) -> Json) {
        match done {
            Ok(it) => self.mail.json(id, &json(it)),
            Err(error) => self.mail.failed(id, &error),
        }
    }

    /// Does what a packet says. What is before a fault in it is done.
    pub(crate) fn carry_out(
        self: &Arc<Self>,
        line: &Line,
        packet: &[u8],
        buffers: &[Uint8ArraySlice<'_>],
    ) -> Result<(), String> {
        let mut reader = Reader::new(packet, buffers);
        let mut batch = Batch::default();
        let mut done = Ok(());
        while done.is_ok() && !reader.is_empty() {
            done = self.command(line, &mut reader, &mut batch);
        }
        // Alone, it is asked for together with its call.
        let alone = match batch.wanted.len() {
            1 => batch.wanted.pop(),
            _ => None,
        };
        let alone = alone.map(|(wanted, slot)| (wanted, queue::Wanted::new(slot, None)));
        if !batch.commands.is_empty() {
            line.queue.push(batch.commands);
        }
        if let Some((wanted, value)) = alone {
            let shared = self.clone();
            line.client.handle().spawn(async move {
                let found = value.value(true).await;
                shared.deliver(wanted, found.map(|it| it.0));
            });
        }
        while !batch.wanted.is_empty() {
            // None of them waits for one of another's.
            let rest = batch.wanted.len().min(queue::TOGETHER);
            let rest = batch.wanted.split_off(rest);
            let wanted = std::mem::replace(&mut batch.wanted, rest);
            let (shared, client) = (self.clone(), (*line.client).clone());
            line.client.handle().spawn(async move {
                let found = |wanted, value| shared.deliver(wanted, value);
                queue::each(&client, wanted, found).await;
            });
        }
        done
    }

    fn command(
        self: &Arc<Self>,
        line: &Line,
        reader: &mut Reader<'_>,
        batch: &mut Batch,
    ) -> Result<(), String> {
        match reader.u8()? {
            packet::CALL => {
                let (flags, id, function) = (reader.u8()?, reader.id()?, reader.id()?);
                let (what, expected, values) = {
                    let items = self.items.lock();
                    let function = items.function(function)?;
                    let what = What::Task(function.submit.clone());
                    (what, function.result.clone(), reader.values(&items)?)
                };
                self.call(line, batch, (flags, id), (what, values), expected);
            }
            packet::METHOD => {
                let (flags, id, actor) = (reader.u8()?, reader.id()?, reader.id()?);
                let (method, limit) = (reader.u32()?, limit(reader.f64()?));
                let (what, expected, values) = {
                    let items = self.items.lock();
                    let living = items.actor(actor)?;
                    let method = living.methods.get(method as usize);
                    let (method, expected) = method.ok_or("there is no such method")?;
                    let what = What::Call {
                        actor: living.actor.clone(),
                        method: method.clone(),
                        options: CallOptions {
                            time_limit: limit,
                            ..CallOptions::default()
                        },
                    };
                    (what, expected.clone(), reader.values(&items)?)
                };
                self.call(line, batch, (flags, id), (what, values), expected);
            }
            packet::CREATE => {
                let (id, class) = (reader.id()?, reader.id()?);
                let items = self.items.lock();
                let create = (**items.class(class)?).clone();
                let values = reader.values(&items)?;
                drop(items);
                self.create(line, id, create, values);
            }
            packet::PUT => {
                let (id, ty) = (reader.id()?, reader.bytes()?);
                let ty = serde_json::from_slice(ty).map_err(|error| error.to_string())?;
                let value = reader.value(&self.items.lock())?;
                self.put(line, id, ty, value);
            }
            packet::GET => {
                let (flags, id, object) = (reader.u8()?, reader.id()?, reader.id()?);
                let Object { slot, expected } = self.items.lock().object(object)?.clone();
                let wanted = Wanted {
                    id,
                    is_call: false,
                    expected,
                };
                self.want(line, batch, flags, wanted, slot);
            }
            other => self.command_on(other, line, reader)?,
        }
        Ok(())
    }

    /// Cancels what is to make these objects.
    fn cancel(self: &Arc<Self>, line: &Line, id: u64, objects: &[u64]) {
        let items = self.items.lock();
        // One that is not there any more has ended: JavaScript may not have heard of it.
        let objects = objects.iter().filter_map(|id| items.object(*id).ok());
        let slots: Vec<_> = objects.map(|it| it.slot.clone()).collect();
        drop(items);
        let shared = self.clone();
        line.client.handle().spawn(async move {
            for slot in slots {
                if let Ok(future) = slot.future().await
                    && let Err(error) = future.cancel().await
                {
                    return shared.mail.failed(id, &error);
                }
            }
            shared.mail.nothing(id);
        });
    }

    /// A command on what is there.
    fn command_on(
        self: &Arc<Self>,
        command: u8,
        line: &Line,
        reader: &mut Reader<'_>,
    ) -> Result<(), String> {
        match command {
            packet::WAIT => {
                let (id, count) = (reader.id()?, reader.u32()? as usize);
                let timeout = limit(reader.f64()?);
                let slots = self.slots(&reader.ids()?)?;
                let (shared, client) = (self.clone(), (*line.client).clone());
                // Held until it is known, so that it can be forgotten.
                let mut items = self.items.lock();
                let wait = line.client.handle().spawn(async move {
                    let found = queue::ready(&client, &slots, count, timeout).await;
                    shared.items.lock().waits.remove(&id);
                    match found {
                        Ok(ready) => shared.mail.indexes(id, &ready),
                        Err(error) => shared.mail.failed(id, &error),
                    }
                });
                items.waits.insert(id, wait.abort_handle());
            }
            packet::CANCEL => {
                let id = reader.id()?;
                self.cancel(line, id, &reader.ids()?);
            }
            packet::FORGET => {
                let id = reader.id()?;
                let mut items = self.items.lock();
                if let Some(wait) = items.waits.remove(&id) {
                    wait.abort();
                    // Of a call that is not waited for any more.
                    items.remove(id);
                }
            }
            packet::RELEASE => {
                let id = reader.id()?;
                let item = self.items.lock().remove(id);
                drop(item);
            }
            packet::TYPE => {
                let (object, ty) = (reader.id()?, reader.bytes()?);
                let ty = serde_json::from_slice(ty).map_err(|error| error.to_string())?;
                self.items.lock().set_type(object, ty)?;
            }
            packet::REFUSE => {
                let (id, why) = (reader.id()?, reader.bytes()?);
                self.refuse(id, &String::from_utf8_lossy(why));
            }
            packet::KILL => {
                let (id, actor) = (reader.id()?, reader.id()?);
                let living = self.items.lock().actor(actor)?.clone();
                let shared = self.clone();
                line.client.handle().spawn(async move {
                    match living.actor.kill().await {
                        Ok(()) => shared.mail.nothing(id),
                        Err(error) => shared.mail.failed(id, &error),
                    }
                });
            }
            other => return Err(format!("there is no command {other}")),
        }
        Ok(())
    }

    /// Keeps an object that cannot be made.
    fn refuse(&self, id: u64, why: &str) {
        let refusal = Refusal {
            kind: RefusalKind::Usage,
            message: why.to_owned(),
        };
        let object = Object {
            slot: Arc::default(),
            expected: Expected::Unknown,
        };
        object.slot.fill(Err(Arc::new(refusal.into())));
        self.items.lock().insert(id, Item::Object(object));
    }

    fn slots(&self, ids: &[u64]) -> Result<Vec<Arc<Slot>>, String> {
        let items = self.items.lock();
        let slots = ids.iter().map(|id| Ok(items.object(*id)?.slot.clone()));
        slots.collect()
    }

    fn call(
        self: &Arc<Self>,
        line: &Line,
        batch: &mut Batch,
        (flags, id): (u8, u64),
        (what, values): (What, Vec<QueuedArgument>),
        expected: Expected,
    ) {
        let object = Object {
            slot: Arc::default(),
            expected,
        };
        batch.commands.push(Command {
            what,
            values,
            slot: object.slot.clone(),
        });
        self.items.lock().insert(id, Item::Object(object.clone()));
        if flags & packet::IS_WANTED != 0 {
            let wanted = Wanted {
                id,
                is_call: true,
                expected: object.expected,
            };
            self.want(line, batch, flags, wanted, object.slot);
        }
    }

    /// Waits for a value: with others, or alone where that must be.
    fn want(
        self: &Arc<Self>,
        line: &Line,
        batch: &mut Batch,
        flags: u8,
        wanted: Wanted,
        slot: Arc<Slot>,
    ) {
        let is_plain = match &wanted.expected {
            Expected::Nothing => true,
            Expected::Value(ty) => !ty.has_handles(),
            Expected::Unknown => false,
        };
        if is_plain && flags & packet::IS_ALONE == 0 {
            batch.wanted.push((wanted, slot));
            return;
        }
        let (id, shared) = (wanted.id, self.clone());
        let value = queue::Wanted::new(slot, None);
        // Held until it is known: it may be told at once not to wait.
        let mut items = self.items.lock();
        let wait = line.client.handle().spawn(async move {
            let is_known = !matches!(wanted.expected, Expected::Unknown);
            let found = value.value(is_known).await;
            shared.items.lock().waits.remove(&wanted.id);
            shared.deliver_named(wanted, found).await;
        });
        items.waits.insert(id, wait.abort_handle());
    }

    /// Tells of a value that names nothing.
    fn deliver(&self, wanted: Wanted, found: Result<Value, GetError>) {
        let Wanted {
            id,
            is_call,
            expected,
        } = wanted;
        if is_call {
            let item = self.items.lock().remove(id);
            drop(item);
        }
        match (found, expected) {
            (Ok(_), Expected::Nothing) => self.mail.nothing(id),
            (Ok(value), _) => self.mail.value(id, None, &[], value),
            (Err(error), _) => self.mail.failed(id, &error),
        }
    }

    /// Tells of a value that may name something, or whose type is not known.
    async fn deliver_named(self: &Arc<Self>, wanted: Wanted, found: Outcome) {
        let (value, found) = match (found, &wanted.expected) {
            (Ok((value, ty)), Expected::Unknown) => (value, ty),
            (Ok((value, _)), Expected::Value(ty)) if ty.has_handles() => (value, Some(ty.clone())),
            (other, _) => return self.deliver(wanted, other.map(|it| it.0)),
        };
        let is_empty = value.is_empty() && matches!(value.form(), Form::Postcard);
        let named = match &found {
            Some(ty) => self.named(ty, &value).await,
            None => Ok(Vec::new()),
        };
        let (is_unknown, id) = (matches!(wanted.expected, Expected::Unknown), wanted.id);
        match (named, &found) {
            (Err(why), _) => {
                let failed = GetError::Request(Error::Unexpected(why));
                self.deliver(wanted, Err(failed));
            }
            (Ok(_), None) if is_empty => self.mail.nothing(id),
            (Ok(_), None) if matches!(value.form(), Form::Postcard) => {
                self.mail.failed(
                    id,
                    Failure::other(
                        "the type of this object is not known, so it cannot be read here; pass it to a task",
                    ),
                );
            }
            (Ok(named), ty) => {
                if wanted.is_call {
                    let item = self.items.lock().remove(id);
                    drop(item);
                }
                let ty = ty.as_ref().filter(|_| is_unknown);
                self.mail.value(id, ty, &named, value);
            }
        }
    }

    /// What a value names, in the order in which it does. It is kept until JavaScript lets it go.
    async fn named(self: &Arc<Self>, ty: &ValueType, value: &Value) -> Result<Vec<Named>, String> {
        const GONE: &str = "a value names what was not kept for us";
        let mut named = Vec::new();
        for handle in handles(ty, value.encoded()).map_err(|error| error.to_string())? {
            named.push(match &handle {
                Handle::Object(_) => {
                    let future = value.future(&handle).ok_or(GONE)?;
                    let object = Object {
                        slot: Slot::filled(future),
                        expected: Expected::Unknown,
                    };
                    (self.keep(Item::Object(object)), None)
                }
                Handle::Actor(_) => {
                    let actor = value.actor(&handle).await;
                    let actor = actor.map_err(|error| error.to_string())?.ok_or(GONE)?;
                    let id = self.number();
                    (id, Some(self.living(id, actor)))
                }
            });
        }
        Ok(named)
    }

    /// Keeps an actor, and says what it is.
    pub(crate) fn living(&self, id: u64, actor: Actor) -> Json {
        let methods: Vec<_> = actor.methods().collect();
        let json = json!({
            "number": id,
            "id": actor.id().to_string(),
            "class": actor.class(),
            "methods": methods,
        });
        let methods = methods.into_iter();
        let methods = methods.map(|(name, ty)| (name.into(), Expected::of(ty)));
        let methods = methods.collect();
        let living = Arc::new(Living { actor, methods });
        self.items.lock().insert(id, Item::Actor(living));
        json
    }

    fn create(
        self: &Arc<Self>,
        line: &Line,
        id: u64,
        mut create: CreateActor,
        values: Vec<QueuedArgument>,
    ) {
        let (shared, client) = (self.clone(), (*line.client).clone());
        line.client.handle().spawn(async move {
            for value in values {
                match value.argument().await {
                    Ok(value) => create.values.push(value),
                    Err(error) => return shared.mail.failed(id, &*error),
                }
            }
            let created = client.create_actor(create).await;
            shared.answer(id, created, |actor| shared.living(id, actor));
        });
    }

    fn put(self: &Arc<Self>, line: &Line, id: u64, ty: ValueType, value: QueuedArgument) {
        let (shared, client) = (self.clone(), (*line.client).clone());
        line.client.handle().spawn(async move {
            match stored(&client, value).await {
                Ok(future) => {
                    let object = Object {
                        slot: Slot::filled(future),
                        expected: Expected::Value(ty),
                    };
                    shared.items.lock().insert(id, Item::Object(object));
                    shared.mail.nothing(id);
                }
                Err(error) => shared.mail.failed(id, &*error),
            }
        });
    }

    /// Keeps what a module exports, and says what that is.
    pub(crate) fn module(&self, module: &wire::Module) -> Json {
        let functions = module.functions.iter().map(|(name, ty)| {
            let function = Function {
                submit: Arc::new(Submit::function(module, name)),
                result: Expected::of(ty),
            };
            json!([name, self.keep(Item::Function(Arc::new(function))), ty])
        });
        let functions: Json = functions.collect();
        let classes = module.classes.iter().map(|(name, ty)| {
            let create = Arc::new(CreateActor::new(module, name, Vec::new()));
            json!([name, self.keep(Item::Class(create)), ty])
        });
        let classes: Json = classes.collect();
        json!({ "functions": functions, "classes": classes })
    }
}

/// Stores a value that may name what is not with the node yet.
async fn stored(
    client: &wasmrun_client::Client,
    value: QueuedArgument,
) -> Result<Future, Arc<Error>> {
    let stored = match value.argument().await? {
        Argument::Value(value) => client.put(&value).await,
        Argument::Naming(value, handles) => {
            let handles: &Handles = &handles;
            client
                .put_with(&value, handles, PutOptions::default())
                .await
        }
        Argument::Future(future) => Ok(future),
    };
    stored.map_err(Arc::new)
}

/// A time in milliseconds; not a number is none, and so is one that never ends. TypeScript refuses negative ones.
fn limit(given: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(given / 1000.0).ok()
}
