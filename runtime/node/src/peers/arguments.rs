//! Arguments of tasks that go to other nodes.
//!
//! Owns which values travel with the message that begins a task, and keeps the others until that attempt is over: the peer
//! fetches them. Must not: take room in the store. Two stores full of arguments for each other's tasks would wait for
//! each other. In the memory of the caller they are anyway, and those that guests give are counted there
//! ([`crate::records::waiting_bytes`]).

use std::collections::HashMap;

use parking_lot::Mutex;
use wasmrun_engine::Readable;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId, TaskId};
use wasmrun_model::task::Attempt;
use wasmrun_model::value::Encoded;

use super::protocol::{At, Body, Carried};
use super::{Exchange, remote};
use crate::records::job::Argument;
use crate::records::object::{Loaded, Value};

/// How much of values goes with the message that begins a task; the rest is fetched.
const MESSAGE_BYTES: usize = 1 << 20;
/// Arguments are numbered from here: what the task itself stores is numbered from 0, and may lie in the same store.
const ARGUMENTS_FROM: u32 = 1 << 30;

/// What an argument of a task is called where it is fetched.
pub(super) fn argument_id(task: TaskId, index: u32) -> ObjectId {
    ObjectId::put_by(task, ARGUMENTS_FROM | index)
}

/// Which values go with a message, and how many bytes more could.
pub(super) fn travelling(values: &[Argument]) -> (Vec<bool>, usize) {
    let mut room = MESSAGE_BYTES;
    let travels = values.iter().map(|argument| {
        let bytes = match argument {
            Argument::Value(value) => value.as_inline().map_or(0, Encoded::size_bytes),
            Argument::Object(_) => 0,
        };
        let fits = bytes <= remote::MAX_INLINE.min(room);
        room -= if fits { bytes } else { 0 };
        fits
    });
    (travels.collect(), room)
}

/// What an incarnation of a peer is to fetch.
#[derive(Default)]
pub(super) struct SentArguments(Mutex<HashMap<TaskId, SentTo>>);

/// The last attempt of a task that was given them: all are given the same.
struct SentTo {
    attempt: Attempt,
    values: Vec<(ObjectId, Value)>,
}

impl SentArguments {
    /// Keeps values until [`Self::settled`] with this attempt.
    pub(super) fn keep(&self, task: TaskId, attempt: Attempt, values: Vec<(ObjectId, Value)>) {
        if !values.is_empty() {
            let before = self.0.lock().insert(task, SentTo { attempt, values });
            drop(before);
        }
    }

    /// An attempt is over.
    pub(super) fn settled(&self, task: &TaskId, attempt: Attempt) {
        let mut sent = self.0.lock();
        let is_last = sent.get(task).is_some_and(|it| it.attempt == attempt);
        let values = is_last.then(|| sent.remove(task));
        drop(sent);
        // What they name may go with them.
        drop(values);
    }

    /// One of them.
    pub(super) fn find(&self, id: &ObjectId) -> Option<Value> {
        let sent = self.0.lock();
        let mut values = sent.get(&id.task())?.values.iter();
        values.find_map(|(it, value)| (it == id).then(|| value.clone()))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The bytes of an argument, as long as they are being sent.
pub(super) struct ArgumentBytes(Loaded);

impl AsRef<[u8]> for ArgumentBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.encoded().bytes()
    }
}

impl Exchange {
    /// What a message says of an argument that the receiver fetches from here.
    pub(super) fn carry_apart(
        &self,
        to: NodeId,
        id: ObjectId,
        tenant: &TenantName,
        value: &Value,
    ) -> Carried {
        let numbers = match value.as_inline() {
            Some(Encoded::Buffer { kind, .. }) => Some(*kind),
            Some(Encoded::Postcard(_)) | None => None,
        };
        let body = Body::At(Box::new(At {
            id,
            owner: self.me,
            tenant: tenant.clone(),
            numbers,
            len: value.size_bytes(),
            holders: vec![self.me],
        }));
        let names = self.lend_names(to, value);
        Carried { body, names }
    }

    /// An argument that some peer is to fetch, and how long it is.
    pub(super) fn argument(&self, id: &ObjectId) -> Option<(ArgumentBytes, u64)> {
        let value = self.sessions.argument(id)?;
        let loaded = value.load().ok()?;
        Some((ArgumentBytes(loaded), value.size_bytes()))
    }
}
