//! Values and modules on their way in: in chunks, or through memory that the client shares with the node.
//!
//! Owns the bytes of a transfer until they are an object or a module, and how much memory staging takes. Must not: wait for a
//! client of another machine for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Receiver, Sender};
use wasmrun_model::id::{Digest, ObjectId};
use wasmrun_model::wire::{
    Form, INLINE_BYTES, MAX_ROOM_MS, Put, Refusal, RefusalKind, Response, STAGED_BYTES,
    STAGED_FROM_BYTES,
};
use wasmrun_store::{Form as Stored, Staging};

use super::out::ConnectionClosed;
use super::registry::PutRecord;
use super::session::{Session, refusal};
use crate::records::object::{Object, PutObject, Reference, Value};

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
    /// Where those lie that are staged.
    stage: Option<Stage>,
}

/// Staging memory of a transfer, and its place among those that may be.
struct Stage {
    memory: Arc<Staging>,
    _place: OwnedSemaphorePermit,
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
    /// The value that a request announces. In the order of the requests: the client may give back what the value names as
    /// soon as it has said so, and from here on the value keeps it.
    pub(super) fn announced(&self, put: &Put) -> Result<Announced, Refusal> {
        Ok(Announced::Value(NewValue {
            form: put.form,
            len: put.len,
            is_kept: put.is_kept,
            can_stage: put.can_stage && self.caller.is_own(),
            room: put.room_ms.map(room_patience),
            references: self.resolve_names(&put.objects, &put.actors)?,
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
        let place = match self.caller.is_own() {
            true => None,
            // Nobody closes it.
            false => uploads.acquire().await.ok(),
        };
        let mut chunks = self.go_on(id, chunks, None).await?;
        let bytes = collect(len, &mut chunks).await?;
        drop(place);
        // Compiling takes seconds and all cores.
        let loading = &self.inner.shared.loading;
        let exchange = self.inner.exchange().cloned();
        let loaded = loading.run(move || {
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
        match loaded.await {
            Ok(Some(Ok(module))) => {
                self.inner.registry().modules.add(module.clone());
                self.modules.lock().add(module.clone());
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

    /// Says that parts may come: in chunks, or through this memory.
    async fn go_on(
        &self,
        id: u64,
        chunks: Chunks,
        stage: Option<Stage>,
    ) -> Result<Coming, Refusal> {
        chunks.may_come.store(true, Ordering::Release);
        let sent = match &stage {
            Some(stage) => self.out.stage(id, stage.memory.clone()).await,
            None => self.out.send(id, Response::Continue).await,
        };
        sent.map_err(client_gone)?;
        Ok(Coming {
            queue: chunks.queue,
            patience: (!self.caller.is_own()).then_some(STALLED),
            stage,
        })
    }

    /// Memory for the bytes of a value, if that is worth the while and there may be more of it.
    fn stage(&self, new: &NewValue) -> Option<Stage> {
        if !new.can_stage || new.len < STAGED_FROM_BYTES {
            return None;
        }
        let place = self.inner.stagings.clone().try_acquire_owned().ok()?;
        let memory = Staging::new(STAGING_BYTES).inspect_err(|error| {
            tracing::warn!(%error, "a value comes over its socket: there is no memory to stage it");
        });
        Some(Stage {
            memory: Arc::new(memory.ok()?),
            _place: place,
        })
    }

    async fn put(&self, id: u64, new: NewValue, chunks: Chunks) -> Result<Response, Refusal> {
        let NewValue { len, is_kept, .. } = new;
        let name = match is_kept {
            true => self.inner.detached.new_object(),
            false => self.client.new_object(),
        };
        let value = if len <= INLINE_BYTES as u64 {
            let mut chunks = self.go_on(id, chunks, None).await?;
            let encoded = new.form.encoded(collect(len, &mut chunks).await?);
            Value::inline(encoded, new.references)
        } else {
            let stored = self.store(id, name.id, &new, chunks).await?;
            Value::stored(stored, new.references)
        };
        let object = Object(Reference::Put(Arc::new(PutObject { name, value })));
        if is_kept {
            self.inner.registry().keep(PutRecord {
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
        let mut chunks = self.go_on(id, chunks, self.stage(new)).await?;
        let mut at = 0;
        while at < len {
            let part = next(len - at, &mut chunks).await?;
            at += match part {
                Part::Bytes(bytes) => {
                    writer.write_at(at, &bytes);
                    bytes.len() as u64
                }
                Part::Staged { offset, len } => {
                    let stage = chunks.stage.as_ref();
                    let staged = stage.and_then(|it| it.memory.bytes(offset, len));
                    let staged = staged.ok_or_else(|| refusal(RefusalKind::Usage, NOT_STAGED))?;
                    writer.write_at(at, staged);
                    self.out
                        .send(id, Response::Continue)
                        .await
                        .map_err(client_gone)?;
                    // The client is to hear of it before the next part is copied.
                    tokio::task::yield_now().await;
                    len
                }
            };
        }
        Ok(writer.seal())
    }
}

fn client_gone(_: ConnectionClosed) -> Refusal {
    refusal(RefusalKind::Usage, "the client is gone")
}

/// How long a client's value waits for room if the client says `room_ms`. A client may live for long and
/// never ask what became of it.
fn room_patience(room_ms: u64) -> Duration {
    Duration::from_millis(room_ms.min(MAX_ROOM_MS))
}

/// The next chunk, of at most so many bytes.
async fn next(most: u64, chunks: &mut Coming) -> Result<Part, Refusal> {
    let next = match chunks.patience {
        None => chunks.queue.recv().await,
        Some(patience) => match tokio::time::timeout(patience, chunks.queue.recv()).await {
            Ok(next) => next,
            Err(_) => {
                let why = format!(
                    "nothing more of the bytes has come for {}s",
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
