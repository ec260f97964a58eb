//! Values on their way into the store, and back.
//!
//! Owns where a value is kept, and the wait for room ([`Shared::keep`], [`Shared::store_value`]). Must not: know tasks.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use wasmrun_model::fairness::{TenantConfig, TenantName};
use wasmrun_model::id::ObjectId;
use wasmrun_model::value::{Encoded, EncodedRef};
use wasmrun_store::{Copy, CreateError, Form, ReadError, Writer};

use crate::guests::shared::Shared;
use crate::records::object::{LoadError, Loaded, Reference, Value};

/// Values up to this many bytes are held inline; larger ones live in the store.
pub(crate) const INLINE_BYTES: usize = 64 << 10;

/// How soon is looked again whether what is late will come.
const LOOK: Duration = Duration::from_millis(100);

/// How soon an object that is being stored or dropped is looked for again.
const SOON: Duration = Duration::from_millis(5);

impl Shared {
    /// Tells the store what a tenant is due from now on.
    pub(crate) fn share_store(&self, tenant: &TenantName, config: &TenantConfig) {
        self.store
            .set_tenant(tenant, config.weight, config.quota.max_objects);
    }

    /// Keeps a value: a small one inline, a large one in the store, once there is room.
    ///
    /// # Errors
    /// When there is none in time.
    pub(crate) async fn keep(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        value: Cow<'_, Encoded>,
        references: Vec<Reference>,
    ) -> Result<Value, CreateError> {
        if value.size_bytes() <= INLINE_BYTES {
            return Ok(Value::inline(value.into_owned(), references));
        }
        self.store_value(tenant, id, value, references).await
    }

    /// Keeps a value in the store, however small it is.
    ///
    /// # Errors
    /// When there is no room in time.
    pub(crate) async fn store_value(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        value: Cow<'_, Encoded>,
        references: Vec<Reference>,
    ) -> Result<Value, CreateError> {
        let until = tokio::time::Instant::now() + self.room_patience;
        let writer = loop {
            let mut creating =
                self.store
                    .create(tenant, id, value.size_bytes() as u64, form(&value));
            match tokio::time::timeout(self.room_patience, &mut creating).await {
                Ok(Ok(writer)) => break writer,
                // An earlier attempt has stored it, and it is still referred to.
                Ok(Err(CreateError::Exists { .. })) if let Some(object) = self.store.get(&id) => {
                    match self.found(&object, until).await {
                        Found::AsMade => {}
                        Found::Gone => continue,
                        Found::Changed if given_up(&object, until).await => {
                            tracing::warn!(object = %id, "its bytes have changed since they were made: it is stored anew");
                            continue;
                        }
                        Found::Changed => {
                            tracing::warn!(object = %id, "its bytes have changed since they were made, and it cannot be stored anew while it is read");
                        }
                    }
                    // It may be a copy of another node's that is gone.
                    object.set_copy(Copy::Primary);
                    return Ok(Value::stored(object, references));
                }
                // It is being written, or has just gone.
                Ok(Err(CreateError::Exists { .. })) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(SOON).await;
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let (error, bytes) = (creating.error(), value.size_bytes());
                    tracing::warn!(%tenant, bytes, %error, "an object found no room in time");
                    self.counters.no_room.add(1);
                    return Err(error);
                }
            }
        };
        Ok(Value::stored(fill(writer, &value), references))
    }

    /// Does something on a thread that it may keep for a while. None when the node is stopping.
    async fn on_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        #[cfg(test)]
        if self.guests.get().is_some() {
            // The simulation has one thread.
            return Some(act());
        }
        self.control.spawn_blocking(act).await.ok()
    }

    /// Whether an object is what it was, as far as that is known by this time.
    async fn found(&self, object: &wasmrun_store::Object, until: tokio::time::Instant) -> Found {
        use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
        let sums = object.sums();
        if sums.is_empty() && object.is_resident() {
            return Found::AsMade;
        }
        let view = match tokio::time::timeout_at(until, object.restore()).await {
            Ok(Ok(view)) => view,
            Ok(Err(ReadError::Dropped { .. })) => return Found::Gone,
            Ok(Err(ReadError::Disk { source, .. })) => {
                return match source.kind() {
                    InvalidData | NotFound | UnexpectedEof => Found::Changed,
                    // It may be had later.
                    _ => Found::AsMade,
                };
            }
            Ok(Err(ReadError::Full { .. })) | Err(_) => return Found::AsMade,
        };
        let check = move || {
            sums.iter().all(|(start, len, sum)| {
                let part = view.get(*start as usize..(*start + *len) as usize);
                part.is_some_and(|part| wasmrun_net::checksum(part) == *sum)
            })
        };
        match self.on_thread(check).await.unwrap_or(true) {
            true => Found::AsMade,
            false => Found::Changed,
        }
    }

    /// A value in memory. `None` if this time has come and nobody who has it answers: what is on its way may come later.
    pub(crate) async fn read_by(
        &self,
        value: &Value,
        deadline: tokio::time::Instant,
    ) -> Option<Result<Loaded, LoadError>> {
        let mut reading = std::pin::pin!(value.read());
        let mut until = deadline;
        loop {
            if let Ok(loaded) = tokio::time::timeout_at(until, &mut reading).await {
                return Some(loaded);
            }
            let stalled = self.others.get().zip(value.stored_id());
            if stalled.is_some_and(|(others, id)| others.is_stalled(&id)) {
                return None;
            }
            until = tokio::time::Instant::now() + LOOK;
        }
    }
}

fn form(value: &Encoded) -> Form {
    match value {
        Encoded::Postcard(_) => Form::Postcard,
        Encoded::Buffer { kind, .. } => Form::Buffer(*kind),
    }
}

/// What an object is that a store has already.
enum Found {
    /// What it was, as far as is known.
    AsMade,
    /// Not what it was when it was first sent from here, or came here; or the disk has not kept it.
    Changed,
    /// A copy whose room was needed just now.
    Gone,
}

/// Whether an object's id is free by this time.
async fn given_up(object: &wasmrun_store::Object, until: tokio::time::Instant) -> bool {
    let gone = async {
        while !object.give_up() {
            tokio::time::sleep(SOON).await;
        }
    };
    tokio::time::timeout_at(until, gone).await.is_ok()
}

fn fill(mut writer: Writer, value: &Encoded) -> wasmrun_store::Object {
    writer.copy_from(EncodedRef::from(value).bytes());
    writer.seal()
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::*;
    use crate::node::{Node, NodeConfig};

    #[test]
    fn what_was_there_and_goes_does_not_keep_a_value_from_being_stored() {
        let node = Node::start(NodeConfig::default()).unwrap();
        let shared = &node.shared;
        let (tenant, id) = (
            TenantName::default(),
            ObjectId::of(DriverId::from_bytes([1; 16]).task(1), 0),
        );
        let value = Encoded::Postcard(vec![7; 100_000]);
        // One that is on its way, and does not come.
        let writer = shared
            .store
            .try_create(&tenant, id, 100_000, Form::Postcard);
        let stored = shared.control.block_on(async {
            let storing = shared.store_value(&tenant, id, Cow::Borrowed(&value), Vec::new());
            let giving_up = async {
                tokio::task::yield_now().await;
                drop(writer.unwrap());
            };
            tokio::join!(storing, giving_up).0
        });
        assert_eq!(stored.unwrap().size_bytes(), 100_000);
    }
}
