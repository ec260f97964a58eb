//! Arguments of tasks that go to other nodes.
//!
//! Owns which arguments travel with the message that begins a task. The others stay here until that attempt is over, and
//! the peer fetches them. Must not: take room in the store. Two stores that are full of arguments for each other's tasks
//! would wait for each other. The caller's memory has the arguments anyway; those of guests count there
//! ([`crate::records::waiting_bytes`]).

use std::collections::HashMap;

use parking_lot::Mutex;
use wasmrun_engine::Readable;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId, TaskId};
use wasmrun_model::task::Attempt;
use wasmrun_model::value::Encoded;

use super::protocol::{At, Body, Carried, CarriedArgument};
use super::session::PeerSession;
use super::{Exchange, remote};
use crate::records::job::Argument;
use crate::records::object::{Loaded, Object, Reference, Value};
use crate::records::task::TaskCell;

/// How many bytes of values travel with the message that begins a task.
const MESSAGE_BYTES: usize = 1 << 20;
/// Arguments are numbered from here: the task's own objects are numbered from 0, and may be in the same store.
const ARGUMENTS_FROM: u32 = 1 << 30;

/// The arguments that one incarnation of a peer is to fetch.
#[derive(Default)]
pub(super) struct SentArguments(Mutex<HashMap<TaskId, Sent>>);

/// The last attempt of a task that was sent there. All attempts have the same arguments.
struct Sent {
    attempt: Attempt,
    values: Vec<(ObjectId, Value)>,
}

impl SentArguments {
    /// Keeps values until [`Self::settled`] with this attempt.
    fn keep(&self, task: TaskId, attempt: Attempt, values: Vec<(ObjectId, Value)>) {
        if !values.is_empty() {
            let before = self.0.lock().insert(task, Sent { attempt, values });
            drop(before);
        }
    }

    /// An attempt is over.
    pub(super) fn settled(&self, task: &TaskId, attempt: Attempt) {
        let mut sent = self.0.lock();
        let is_last = sent.get(task).is_some_and(|it| it.attempt == attempt);
        let values = is_last.then(|| sent.remove(task));
        drop(sent);
        // Not under the lock: their references may be the last ones.
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

/// The bytes of an argument while they are sent.
pub(super) struct ArgumentBytes(Loaded);

impl AsRef<[u8]> for ArgumentBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.encoded().bytes()
    }
}

/// Which arguments fit into a message, and how many bytes are left in it.
fn fit(values: &[Argument]) -> (Vec<bool>, usize) {
    let mut left = MESSAGE_BYTES;
    let fits = values.iter().map(|argument| {
        let bytes = match argument {
            Argument::Value(value) => value.as_inline().map_or(0, Encoded::size_bytes),
            Argument::Object(_) => 0,
        };
        let fits = bytes <= remote::MAX_INLINE.min(left);
        left -= if fits { bytes } else { 0 };
        fits
    });
    (fits.collect(), left)
}

impl Exchange {
    /// What the message that begins an attempt says of its arguments. The peer fetches those that do not fit.
    pub(super) fn give(
        &self,
        to: NodeId,
        session: &PeerSession,
        (cell, attempt): (&TaskCell, Attempt),
        values: &[Argument],
    ) -> Vec<CarriedArgument> {
        let (fits, mut left) = fit(values);
        let mut too_long = Vec::new();
        let values = (0..).zip(values).zip(fits);
        let given = values.map(|((index, argument), fits)| match argument {
            Argument::Value(value) => {
                let id = ObjectId::put_by(cell.id, ARGUMENTS_FROM | index);
                if fits {
                    return CarriedArgument::Value(self.carry(to, id, value));
                }
                too_long.push((id, value.clone()));
                CarriedArgument::Value(self.carry_name(to, id, &cell.work.terms().tenant, value))
            }
            Argument::Object(Object(reference)) => {
                let name = self.lend(to, reference);
                let is_known = match reference {
                    // Its owner says what became of it.
                    _ if name.owner != self.me => false,
                    Reference::Task(made) => made.has_ended(),
                    Reference::Put(_) | Reference::Actor(_) => true,
                };
                // What does not fit is asked for.
                let made = is_known && left > remote::MAX_INLINE;
                let made = made.then(|| Box::new(self.made_of(to, name, reference)));
                let inline = made.as_ref().map_or(0, |made| made.inline_bytes());
                left = left.saturating_sub(inline);
                CarriedArgument::Object(name, made)
            }
        });
        let given = given.collect();
        session.arguments.keep(cell.id, attempt, too_long);
        given
    }

    /// A value that the receiver fetches from here.
    fn carry_name(&self, to: NodeId, id: ObjectId, tenant: &TenantName, value: &Value) -> Carried {
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

    /// The bytes of an argument that a peer is to fetch, and how many they are.
    pub(super) fn argument(&self, id: &ObjectId) -> Option<(ArgumentBytes, u64)> {
        let value = self.sessions.argument(id)?;
        let loaded = value.load().ok()?;
        Some((ArgumentBytes(loaded), value.size_bytes()))
    }
}
