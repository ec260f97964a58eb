//! Values and modules on their way in and out, chunk by chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::Instant;
use wasmrun_engine::Readable;
use wasmrun_model::id::{Digest, ObjectId};
use wasmrun_model::value::{Encoded, EncodedRef, Handle};
use wasmrun_model::wire::{
    Bytes, CHUNK_BYTES, Form, Gotten, INLINE_BYTES, MAX_GETS, MAX_ROOM_MS, ObjectRef, PutWith,
    Refusal, RefusalKind, Request, Response, STAGED_BYTES, STAGED_FROM_BYTES, ValueWith,
};
use wasmrun_store::{Form as Stored, Staging, View};

use super::origin::Origin;
use super::out::{Gone, ToMap};
use super::registry::{Kept, Registry};
use super::session::{Session, refusal};
use super::views::one;
use crate::client::GetError;
use crate::object::{LoadError, Object, PutObject, Reference, Value};

/// How many chunks may wait to be stored.
const CHUNKS: usize = 4;
/// How long staging memory is, in bytes: what a processor's caches hold.
const STAGING_BYTES: u64 = 4 * STAGED_BYTES;
/// Why a part is refused.
const NOT_STAGED: &str = "bytes are said to lie in staging memory, and are not there";
/// How long a client of another machine may take for the next chunk of what it has announced: room is kept for that.
const STALLED: Duration = Duration::from_secs(60);

/// Where the chunks of a transfer go.
pub(super) struct Transfer {
    chunks: Sender<Part>,
    may_come: Arc<AtomicBool>,
}

/// Where they come from.
pub(super) struct Chunks {
    queue: Receiver<Part>,
    may_come: Arc<AtomicBool>,
}

/// The next bytes of a value.
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// They lie in staging memory.
    Staged {
        offset: u64,
        len: u64,
    },
}

/// Parts that may come.
struct Coming {
    queue: Receiver<Part>,
    /// How long the next one may take, if there is a limit.
    patience: Option<Duration>,
}

impl Transfer {
    /// Both ends.
    pub(super) fn new() -> (Self, Chunks) {
        let (chunks, queue) = mpsc::channel(CHUNKS);
        let may_come = Arc::<AtomicBool>::default();
        let transfer = Self {
            chunks,
            may_come: may_come.clone(),
        };
        (transfer, Chunks { queue, may_come })
    }

    /// Whether no chunk is wanted any more.
    pub(super) fn is_over(&self) -> bool {
        self.chunks.is_closed()
    }

    /// Whether chunks may come. Whoever waited for room in the queue before that would wait for as long as
    /// the store has none, and not see that the connection has ended.
    pub(super) fn may_come(&self) -> bool {
        self.may_come.load(Ordering::Acquire) || self.is_over()
    }

    /// Passes a part on. False if it is not wanted any more.
    pub(super) async fn pass(&self, part: Part) -> bool {
        self.chunks.send(part).await.is_ok()
    }
}

/// What a client is about to send.
pub(super) enum Announced {
    Module { digest: Digest, len: u64 },
    Value(NewValue),
}

/// A value that a client is about to send.
pub(super) struct NewValue {
    form: Form,
    len: u64,
    is_kept: bool,
    /// Whether the client can write it to staging memory.
    can_stage: bool,
    /// How long it waits for room in the store; as long as the node says if not given.
    room: Option<Duration>,
    /// What it names.
    references: Vec<Reference>,
}

impl Session {
    /// What a request announces. In the order of the requests: the client may give back what the value names as soon
    /// as it has said so, and from here on the value keeps it.
    pub(super) fn announced(&self, request: Request) -> Result<Announced, Refusal> {
        Ok(match request {
            Request::Upload { digest, len } => Announced::Module { digest, len },
            Request::Put {
                form,
                len,
                is_kept,
                room_ms,
            } => Announced::Value(NewValue {
                form,
                len,
                is_kept,
                can_stage: false,
                room: room_ms.map(room_patience),
                references: Vec::new(),
            }),
            Request::PutWith(put) => self.new_value(&put, false)?,
            Request::PutStaged(put) => self.new_value(&put, self.origin.is_here())?,
            _ => unreachable!("nothing else is announced"),
        })
    }

    fn new_value(&self, put: &PutWith, can_stage: bool) -> Result<Announced, Refusal> {
        Ok(Announced::Value(NewValue {
            form: put.form,
            len: put.len,
            is_kept: put.is_kept,
            can_stage,
            room: put.room_ms.map(room_patience),
            references: self.all_named(&put.objects, &put.actors)?,
        }))
    }

    /// Takes a module or a value.
    pub(super) async fn receive(
        &self,
        id: u64,
        announced: Announced,
        chunks: Chunks,
    ) -> Result<Response, Refusal> {
        match announced {
            Announced::Module { digest, len } => self.upload(id, digest, len, chunks).await,
            Announced::Value(value) => self.put(id, value, chunks).await,
        }
    }

    async fn upload(
        &self,
        id: u64,
        digest: Digest,
        len: u64,
        chunks: Chunks,
    ) -> Result<Response, Refusal> {
        let engine = self.inner.shared.engine.clone();
        let most = engine.config().module_bytes as u64;
        if len > most {
            let why = format!(
                "the module has {len} bytes, and the node takes {most}; start it with a larger --max-module"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        let uploads = &self.inner.uploads;
        let place = match self.origin {
            Origin::Here => None,
            // Nobody closes it.
            Origin::Network(_) => uploads.acquire().await.ok(),
        };
        let mut chunks = self.go_on(id, chunks).await?;
        let bytes = collect(len, &mut chunks).await?;
        drop(place);
        // Compiling takes seconds and all cores.
        let loading = self.inner.shared.loading.acquire().await;
        let exchange = self.inner.shared.exchange.get().cloned();
        let loaded = tokio::task::spawn_blocking(move || {
            if Digest::of(&bytes) != digest {
                return None;
            }
            if let Some(exchange) = exchange
                && let Err(error) = exchange.modules().keep(&digest, &bytes)
            {
                // It runs here all the same.
                tracing::warn!(%digest, %error, "a module cannot be kept for other nodes");
            }
            Some(engine.load(&bytes))
        });
        let loaded = loaded.await;
        drop(loading);
        match loaded {
            Ok(Some(Ok(module))) => {
                self.inner.registry().add_module(module.clone());
                Ok(Response::Module(Box::new(super::views::module(&module))))
            }
            Ok(Some(Err(error))) => Err(refusal(RefusalKind::Usage, error)),
            Ok(None) => {
                let why = "the module's bytes are not those of its digest; send it again";
                Err(refusal(RefusalKind::Usage, why))
            }
            Err(error) => Err(refusal(RefusalKind::Usage, error)),
        }
    }

    /// Says that chunks may come.
    async fn go_on(&self, id: u64, chunks: Chunks) -> Result<Coming, Refusal> {
        chunks.may_come.store(true, Ordering::Release);
        self.proceed(id).await?;
        Ok(Coming {
            queue: chunks.queue,
            patience: (!self.origin.is_here()).then_some(STALLED),
        })
    }

    async fn proceed(&self, id: u64) -> Result<(), Refusal> {
        let sent = self.out.send(id, Response::Continue).await;
        sent.map_err(|Gone| refusal(RefusalKind::Usage, "the client is gone"))
    }

    /// Memory for the bytes of a value, if that is worth the while and there may be more of it.
    fn staging(&self, new: &NewValue) -> Option<(Arc<Staging>, OwnedSemaphorePermit)> {
        if !new.can_stage || new.len < STAGED_FROM_BYTES {
            return None;
        }
        let permit = self.inner.stagings.clone().try_acquire_owned().ok()?;
        let staging = Staging::new(STAGING_BYTES);
        let staging = staging.inspect_err(
            |error| tracing::warn!(%error, "a value comes over a socket: no memory for it"),
        );
        Some((Arc::new(staging.ok()?), permit))
    }

    async fn put(&self, id: u64, new: NewValue, chunks: Chunks) -> Result<Response, Refusal> {
        let NewValue { len, is_kept, .. } = new;
        let name = match is_kept {
            true => self.inner.detached.new_object(),
            false => self.client.new_object(),
        };
        let value = if len <= INLINE_BYTES as u64 {
            let mut chunks = self.go_on(id, chunks).await?;
            let encoded = new.form.encoded(collect(len, &mut chunks).await?);
            Value::inline(encoded, new.references)
        } else {
            let stored = self.store(id, name.id, &new, chunks).await?;
            Value::stored(stored, new.references)
        };
        let object = Object(Reference::Put(Arc::new(PutObject { name, value })));
        if is_kept {
            self.inner.registry().keep(Kept {
                object: object.clone(),
                tenant: self.tenant.clone(),
                size_bytes: len,
            });
        }
        Ok(Response::Object(self.add_object(object)?))
    }

    /// Receives straight into the store.
    async fn store(
        &self,
        id: u64,
        object: ObjectId,
        new: &NewValue,
        chunks: Chunks,
    ) -> Result<wasmrun_store::Object, Refusal> {
        let len = new.len;
        let form = match new.form {
            Form::Postcard => Stored::Postcard,
            Form::Buffer(kind) => Stored::Buffer(kind),
        };
        let shared = &self.inner.shared;
        let mut creating = shared.store.create(&self.tenant, object, len, form);
        let room = new.room.unwrap_or(shared.room_patience);
        let created = tokio::time::timeout(room, &mut creating).await;
        let created = created.unwrap_or_else(|_| {
            let error = creating.error();
            tracing::warn!(tenant = %self.tenant, bytes = len, %error, "a put found no room in time");
            shared.counters.no_room.add(1);
            Err(error)
        });
        let mut writer = created.map_err(|error| refusal(RefusalKind::Full, error))?;
        let staging = self.staging(new);
        let mut chunks = match &staging {
            Some((staging, _)) => {
                chunks.may_come.store(true, Ordering::Release);
                let sent = self.out.stage(id, staging.clone()).await;
                sent.map_err(|Gone| refusal(RefusalKind::Usage, "the client is gone"))?;
                Coming {
                    queue: chunks.queue,
                    patience: None,
                }
            }
            None => self.go_on(id, chunks).await?,
        };
        let mut at = 0;
        while at < len {
            let part = next(len - at, &mut chunks).await?;
            at += match part {
                Part::Bytes(bytes) => {
                    writer.write_at(at, &bytes);
                    bytes.len() as u64
                }
                Part::Staged { offset, len } => {
                    let staged = staging.as_ref().and_then(|(it, _)| it.bytes(offset, len));
                    let staged = staged.ok_or_else(|| refusal(RefusalKind::Usage, NOT_STAGED))?;
                    writer.write_at(at, staged);
                    self.proceed(id).await?;
                    // The client is to hear of it before the next part is copied.
                    tokio::task::yield_now().await;
                    len
                }
            };
        }
        Ok(writer.seal())
    }

    /// Sends a value, once it is there. `says_names` if the client can be told what it names.
    pub(super) async fn get(
        &self,
        id: u64,
        object: ObjectRef,
        timeout_ms: Option<u64>,
        can_map: bool,
        says_names: bool,
    ) -> Result<(), Gone> {
        let timeout = timeout_ms.map(Duration::from_millis);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let found = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, self.object(&object)).await,
            None => Ok(self.object(&object).await),
        };
        let object = match found {
            Ok(Ok(object)) => object,
            Ok(Err(why)) => return self.refuse(id, why).await,
            Err(_) => return self.out.send(id, Response::TimedOut).await,
        };
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let value = match self.client.get_async(&object, rest).await {
            Ok(value) => value,
            Err(GetError::TimedOut) => return self.out.send(id, Response::TimedOut).await,
            Err(GetError::Failed { origin, error }) => {
                let error = (&error).into();
                return self.out.send(id, Response::Failed { origin, error }).await;
            }
        };
        let loaded = match deadline {
            Some(deadline) => self.inner.shared.read_by(&value, deadline).await,
            None => Some(value.read().await),
        };
        let loaded = match loaded {
            Some(Ok(loaded)) => loaded,
            None => return self.out.send(id, Response::TimedOut).await,
            Some(Err(LoadError::Lost(error))) => {
                let (origin, error) = (object.id().task(), (&error).into());
                return self.out.send(id, Response::Failed { origin, error }).await;
            }
            Some(Err(error)) => {
                let why = refusal(RefusalKind::Full, error);
                return self.refuse(id, why).await;
            }
        };
        let encoded = loaded.encoded();
        let form = form_of(encoded);
        let ty = object.0.ty().cloned();
        // One that names something comes at once: its handles count, and it must not be asked for twice.
        if let Some(view) = loaded.view().filter(|_| can_map)
            && value.references().is_empty()
            && self.may_map(view)
            && self.pin(id, view)
        {
            let view = view.clone();
            return self.out.map(id, ToMap { form, ty, view }).await;
        }
        // Without the type the client must be told of what it has handles.
        let handles = match ty.is_some() || says_names {
            true => self.lend(&value),
            false => Ok(Vec::new()),
        };
        let handles = match handles {
            Ok(handles) => handles,
            Err(why) => return self.refuse(id, why).await,
        };
        let len = encoded.bytes().len() as u64;
        let head = match ty.is_some() || handles.is_empty() {
            true => Response::Value { form, len, ty },
            false => value_with(form, len, handles),
        };
        self.out.send(id, head).await?;
        for chunk in encoded.bytes().chunks(CHUNK_BYTES) {
            let chunk = Response::Chunk(Bytes(chunk.to_vec()));
            self.out.send(id, chunk).await?;
        }
        Ok(())
    }

    /// Sends many values, once all are there.
    pub(super) async fn get_all(
        &self,
        id: u64,
        objects: &[ObjectId],
        timeout_ms: Option<u64>,
    ) -> Result<(), Gone> {
        let found = match objects.len() {
            ..=MAX_GETS => self.all_known(objects),
            more => {
                let why =
                    format_args!("{more} objects are too many at once; get {MAX_GETS} at most");
                Err(refusal(RefusalKind::Usage, why))
            }
        };
        let objects = match found {
            Ok(objects) => objects,
            Err(why) => return self.refuse(id, why).await,
        };
        let timeout = timeout_ms.map(Duration::from_millis);
        let ready = self.client.wait_async(&objects, objects.len(), timeout);
        if ready.await.len() < objects.len() {
            return self.out.send(id, Response::TimedOut).await;
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for object in &objects {
            let gotten = match self.gotten(object).await {
                Ok(gotten) => gotten,
                Err(why) => return self.refuse(id, why).await,
            };
            // With room for what stands around it.
            bytes += 64
                + match &gotten {
                    Gotten::Value { bytes, .. } => bytes.0.len(),
                    Gotten::Large | Gotten::Failed { .. } => 0,
                };
            batch.push(gotten);
            if bytes >= CHUNK_BYTES {
                let values = Response::Values(std::mem::take(&mut batch));
                self.out.send(id, values).await?;
                bytes = 0;
            }
        }
        self.out.send(id, Response::Values(batch)).await?;
        self.out.send(id, Response::Done).await
    }

    /// What came of an object that is there.
    async fn gotten(&self, object: &Object) -> Result<Gotten, Refusal> {
        let value = match self.client.get_async(object, None).await {
            Ok(value) => value,
            Err(GetError::Failed { origin, error }) => {
                let error = (&error).into();
                return Ok(Gotten::Failed { origin, error });
            }
            Err(GetError::TimedOut) => unreachable!("it is waited for without end"),
        };
        // The type of what names something must come with it.
        if value.size_bytes() > INLINE_BYTES as u64 || !value.references().is_empty() {
            return Ok(Gotten::Large);
        }
        let loaded = match value.read().await {
            Ok(loaded) => loaded,
            Err(LoadError::Lost(error)) => {
                let (origin, error) = (object.id().task(), (&error).into());
                return Ok(Gotten::Failed { origin, error });
            }
            Err(error) => return Err(refusal(RefusalKind::Full, error)),
        };
        let encoded = loaded.encoded();
        Ok(Gotten::Value {
            form: form_of(encoded),
            bytes: Bytes(encoded.bytes().to_vec()),
        })
    }

    /// Whether the client may map a value: it is on this machine, and with the value it sees all that its tenant has in that
    /// segment. What
    /// it submitted for another tenant comes in chunks. So does what a neighbour has lent: that uses the memory anew
    /// when this node ends, which the client may outlive.
    fn may_map(&self, view: &View) -> bool {
        self.origin.is_here()
            && view.object().tenant() == &self.tenant
            && view.place().is_some()
            && !view.is_lent()
    }

    /// An object that the client has a handle of, or one of its tenant's that is kept, at whichever node.
    async fn object(&self, object: &ObjectRef) -> Result<Object, Refusal> {
        match object {
            ObjectRef::Id(id) => {
                let objects = self.objects.lock();
                objects.get(id).cloned().ok_or_else(|| unknown(id))
            }
            ObjectRef::Prefix(prefix) => self.kept_anywhere(prefix).await,
        }
    }

    /// A handle of one of its tenant's objects that are kept, for the client.
    pub(super) async fn find_object(&self, prefix: String) -> Result<Response, Refusal> {
        let object = self.object(&ObjectRef::Prefix(prefix)).await?;
        let name = object.name();
        self.add_object(object)?;
        Ok(Response::Found(name))
    }

    /// One of its tenant's objects that are kept, by the beginning of its id.
    pub(super) fn kept_object<'a>(
        &self,
        registry: &'a Registry,
        prefix: &str,
    ) -> Result<&'a Object, Refusal> {
        let missing = match registry.kept_by_prefix(&self.tenant, prefix) {
            Ok(object) => return Ok(object),
            Err(why) => why,
        };
        let others = registry.objects();
        let others = others.filter(|(_, tenant)| **tenant != self.tenant);
        // People forget to say whose it is, and tenants of a socket are no secret to each other.
        let is_unknown = !registry
            .objects()
            .any(|(it, tenant)| *tenant == self.tenant && it.id().to_string().starts_with(prefix));
        match one(&self.tenant, prefix, "object", others, |(it, _)| it.id()) {
            Ok((object, tenant)) if is_unknown => {
                let why = format!(
                    "object {} belongs to tenant '{tenant}', and this session is of '{}'; say --tenant \
                     {tenant}",
                    object.id(),
                    self.tenant
                );
                Err(refusal(RefusalKind::Tenant, why))
            }
            _ => Err(missing),
        }
    }
}

/// How long a client's value waits for room if the client says `room_ms`. A client may live for long and
/// never ask what became of it.
fn room_patience(room_ms: u64) -> Duration {
    Duration::from_millis(room_ms.min(MAX_ROOM_MS))
}

fn form_of(value: EncodedRef<'_>) -> Form {
    match value {
        EncodedRef::Postcard(_) => Form::Postcard,
        EncodedRef::Buffer { kind, .. } => Form::Buffer(kind),
    }
}

/// The client has no handle of this.
pub(super) fn unknown(id: &ObjectId) -> Refusal {
    let why = format_args!("there is no object {id} that this session has made or was given");
    refusal(RefusalKind::NotFound, why)
}

/// The next chunk, of at most so many bytes.
async fn next(most: u64, chunks: &mut Coming) -> Result<Part, Refusal> {
    let next = match chunks.patience {
        None => chunks.queue.recv().await,
        Some(patience) => match tokio::time::timeout(patience, chunks.queue.recv()).await {
            Ok(next) => next,
            Err(_) => {
                let why = format!(
                    "nothing more of the bytes has come for {} s",
                    patience.as_secs()
                );
                return Err(refusal(RefusalKind::Usage, why));
            }
        },
    };
    let len = match &next {
        Some(Part::Bytes(bytes)) => bytes.len() as u64,
        Some(Part::Staged { len, .. }) => *len,
        None => 0,
    };
    match next {
        Some(_) if !(1..=most).contains(&len) => {
            let why = "a chunk is empty, or there are more bytes than were announced";
            Err(refusal(RefusalKind::Usage, why))
        }
        Some(part) => Ok(part),
        None => Err(refusal(
            RefusalKind::Usage,
            "the rest of the bytes has not come",
        )),
    }
}

async fn collect(len: u64, chunks: &mut Coming) -> Result<Vec<u8>, Refusal> {
    // Grows with what is there, not with what is announced.
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        match next(len - bytes.len() as u64, chunks).await? {
            Part::Bytes(more) => bytes.extend(more),
            Part::Staged { .. } => return Err(refusal(RefusalKind::Usage, NOT_STAGED)),
        }
    }
    Ok(bytes)
}

/// The head of a value that names these.
fn value_with(form: Form, len: u64, handles: Vec<Handle>) -> Response {
    let (mut objects, mut actors) = (Vec::new(), Vec::new());
    for handle in handles {
        match handle {
            Handle::Object(name) => objects.push(name),
            Handle::Actor(name) => actors.push(name),
        }
    }
    Response::ValueWith(Box::new(ValueWith {
        form,
        len,
        objects,
        actors,
    }))
}

/// Bytes that a client sends with its task, in the form that their type asks for.
pub(super) fn inline(value: Encoded) -> Result<Encoded, Refusal> {
    match value.size_bytes() {
        ..=INLINE_BYTES => Ok(value),
        bytes => {
            let why = format!(
                "an argument has {bytes} bytes: store what has more than {INLINE_BYTES} first, and pass the object"
            );
            Err(refusal(RefusalKind::Usage, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_waits_for_room_for_ever() {
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(room_patience(u64::MAX), hour);
        assert_eq!(room_patience(MAX_ROOM_MS), hour);
        assert_eq!(room_patience(20), Duration::from_millis(20));
    }
}
