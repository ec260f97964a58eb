//! Arguments of tasks that go to other nodes, before they are named there.
//!
//! Owns which values travel with the message that begins a task, and putting the others into the store, where the other
//! node fetches them. Must not: lend anything. There may be no room in the store, and then the message is never sent:
//! what was lent for it would be kept for a node that never heard of it.

use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ObjectId, TaskId};

use super::{Exchange, remote};
use crate::object::Value;
use crate::task::{Argument, TaskCell};

/// How much of values goes with the message that begins a task; the rest is fetched.
const MESSAGE_BYTES: usize = 1 << 20;
/// Arguments that are stored to be sent count from here: a task's own objects are numbered from 0.
const SENT_FROM: u32 = 1 << 31;

/// Arguments that can be sent.
pub(super) struct Staged {
    pub(super) values: Vec<Argument>,
    /// Those that were put into the store for that.
    pub(super) stored: Vec<Value>,
    /// For how many bytes there is room left in the message.
    pub(super) room: usize,
}

/// What an argument of a task is stored as.
pub(super) fn stored_as(task: TaskId, index: u32) -> ObjectId {
    ObjectId::put_by(task, SENT_FROM | index)
}

impl Exchange {
    /// Makes the arguments of a task ready to be sent.
    ///
    /// # Errors
    /// When there is no room in the store in time.
    pub(super) async fn stage(
        &self,
        cell: &TaskCell,
        values: &[Argument],
    ) -> Result<Staged, TaskError> {
        let mut staged = Staged {
            values: Vec::with_capacity(values.len()),
            stored: Vec::new(),
            room: MESSAGE_BYTES,
        };
        let tenant = &cell.work.terms().tenant;
        for (index, value) in (0..).zip(values) {
            let value = match value {
                Argument::Value(value) => {
                    let id = stored_as(cell.id, index);
                    Argument::Value(self.stage_value(tenant, id, value, &mut staged).await?)
                }
                Argument::Object(_) => value.clone(),
            };
            staged.values.push(value);
        }
        Ok(staged)
    }

    async fn stage_value(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        value: &Value,
        staged: &mut Staged,
    ) -> Result<Value, TaskError> {
        let shared = self.shared.upgrade().ok_or(TaskError::Cancelled)?;
        let Some(encoded) = value.as_inline() else {
            return Ok(value.clone());
        };
        let bytes = encoded.size_bytes();
        if bytes <= remote::MAX_INLINE && bytes <= staged.room {
            staged.room -= bytes;
            return Ok(value.clone());
        }
        let references = value.references().to_vec();
        let stored = shared
            .store_value(tenant, id, encoded.into(), references)
            .await;
        let stored = stored.map_err(|error| {
            TaskError::Sandbox(format!("an argument cannot be stored to be sent: {error}"))
        })?;
        staged.stored.push(stored.clone());
        Ok(stored)
    }
}
