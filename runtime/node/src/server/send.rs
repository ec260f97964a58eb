//! Values on their way out: mapped, whole, or chunk by chunk.
//!
//! Owns which of these a client gets. Must not: let a client map what is not its tenant's.

use std::time::Duration;

use tokio::time::Instant;
use wasmrun_engine::Readable;
use wasmrun_model::id::ObjectId;
use wasmrun_model::value::{Encoded, EncodedRef, Handle};
use wasmrun_model::wire::{
    Bytes, CHUNK_BYTES, Form, Gotten, INLINE_BYTES, MAX_GETS, ObjectRef, Refusal, RefusalKind,
    Request, Response,
};
use wasmrun_store::View;

use super::out::{ConnectionClosed, ToMap};
use super::registry::Registry;
use super::session::{Session, refusal};
use super::views::one;
use crate::client::GetError;
use crate::records::object::{LoadError, Object};

impl Session {
    /// Sends a value, once it is there.
    pub(super) async fn get(
        &self,
        id: u64,
        object: ObjectRef,
        timeout_ms: Option<u64>,
        can_map: bool,
    ) -> Result<(), ConnectionClosed> {
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
        let handles = match self.lend(&value) {
            Ok(handles) => handles,
            Err(why) => return self.refuse(id, why).await,
        };
        let (mut objects, mut actors) = (Vec::new(), Vec::new());
        // Without the type the client cannot see which handles it has.
        for handle in handles.into_iter().filter(|_| ty.is_none()) {
            match handle {
                Handle::Object(name) => objects.push(name),
                Handle::Actor(name) => actors.push(name),
            }
        }
        let head = Response::Value {
            form,
            len: encoded.bytes().len() as u64,
            ty,
            objects,
            actors,
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
    ) -> Result<(), ConnectionClosed> {
        let found = match objects.len() {
            ..=MAX_GETS => self.resolve_objects(objects),
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
        let ready = self.client.wait(&objects, objects.len(), timeout);
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

    /// Whether the client may map a value: it is the node's own user, at the socket, and with the value it sees all that its
    /// tenant has in that segment. What it submitted for another tenant comes in chunks.
    fn may_map(&self, view: &View) -> bool {
        self.caller.is_own() && view.object().tenant() == &self.tenant && view.place().is_some()
    }

    /// An object that the client has a handle of, or one of its tenant's that is kept, at whichever node.
    async fn object(&self, object: &ObjectRef) -> Result<Object, Refusal> {
        match object {
            ObjectRef::Id(id) => {
                let objects = self.objects.lock();
                objects.get(id).cloned().ok_or_else(|| unknown(id))
            }
            ObjectRef::Prefix(prefix) => self.kept_anywhere(prefix).await,
            ObjectRef::Started(by) => {
                let why = format_args!(
                    "request {by} is not the last that has started a task or call: get what it makes by its id"
                );
                Err(refusal(RefusalKind::NotFound, why))
            }
        }
    }

    /// Says by its id what the last request has started. In the order of the requests: the next starts something else.
    pub(super) fn resolve(&self, request: &mut Request) {
        if let Request::Get { object, .. } = request
            && let ObjectRef::Started(by) = *object
            && let Some((last, id)) = *self.last_started.lock()
            && last == by
        {
            *object = ObjectRef::Id(id);
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
        let access = &self.caller.access;
        let others = others.filter(|(_, of)| **of != self.tenant && access.covers(of));
        // People forget to say for which of their tenants.
        match one(&self.tenant, prefix, "object", others, |(it, _)| it.id()) {
            Ok((object, tenant)) if missing.kind == RefusalKind::NotFound => {
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
