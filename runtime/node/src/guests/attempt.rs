//! One attempt of a task or call, as its guest's services see it.
//!
//! Owns [`Attempt`]: who asks, what it holds, and the ids of its children and objects. Two attempts of a task have an id in
//! common only for the same call, or the same bytes. Must not: submit or wait.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use wasmrun_engine::{Entry, HandleSlot, Listener, Module, ServiceError};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, ObjectId, ObjectName, TaskId};
use wasmrun_model::task::Attempt as Try;
use wasmrun_model::trace::TraceContext;
use wasmrun_model::value::codec::handles;
use wasmrun_model::value::{Encoded, Handle, ValueType};

use crate::guests::clock::Clock;
use crate::guests::shared::Shared;
use crate::records::actor_ref::ActorRef;
use crate::records::handles::HandleTable;
use crate::records::job::{Argument, Job, Parent, value_hash};
use crate::records::object::{Reference, Value};
use crate::records::reach::{Holds, Referent};
use crate::records::task::{Nested, TaskCell, Work};

/// The most that one attempt may start in all: their numbers are part of their ids.
const MOST_STARTED: u64 = 1 << 32;

/// One attempt of a task or call, as its guest's services see it.
pub(crate) struct Attempt {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cell: Arc<TaskCell>,
    pub(crate) number: Try,
    pub(crate) driver: DriverId,
    pub(crate) listener: Option<Listener>,
    /// What it starts belongs to the same trace.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) handles: Arc<HandleTable>,
    /// Whether it is among [those with handles](WithHandles).
    pub(crate) is_listed: AtomicBool,
    /// Handles that it was given without asking: in arguments, and in values that it got.
    pub(crate) lent: Mutex<BTreeSet<HandleSlot>>,
    /// How many it has started.
    pub(crate) started: AtomicU64,
    /// How many of those have not ended; made when it starts the first.
    pub(crate) in_flight: OnceLock<Arc<AtomicU64>>,
    /// How many objects it has stored.
    pub(crate) stored: AtomicU32,
    /// See [`Self::id_base()`].
    pub(crate) id_base: OnceLock<TaskId>,
    /// Arguments that others may be reached from, with how often each is held.
    pub(crate) arguments: Mutex<Vec<(Referent, usize)>>,
    pub(crate) clock: Clock,
    pub(crate) this: Weak<Self>,
}

/// The attempts of tasks that have got handles while they ran: for the question who needs an object. What actors have is with them.
#[derive(Default)]
pub(crate) struct WithHandles(Mutex<HashMap<TaskId, Weak<Attempt>>>);

impl WithHandles {
    pub(crate) fn get(&self, task: &TaskId) -> Option<Weak<Attempt>> {
        self.0.lock().get(task).cloned()
    }

    fn add(&self, attempt: &Attempt) {
        self.0.lock().insert(attempt.id(), attempt.this.clone());
    }

    fn remove(&self, attempt: &Attempt) {
        let mut all = self.0.lock();
        // A later attempt may have come since.
        let is_it = |it: &Weak<Attempt>| it.ptr_eq(&attempt.this);
        if all.get(&attempt.id()).is_some_and(is_it) {
            all.remove(&attempt.id());
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if *self.is_listed.get_mut() {
            self.shared.with_handles.remove(self);
        }
        for slot in std::mem::take(self.lent.get_mut()) {
            self.handles.release(slot);
        }
    }
}

impl Holds for Attempt {
    fn holds(&self) -> Vec<(Referent, usize)> {
        let mut held = self.arguments.lock().clone();
        // An actor's handles are the actor's, not the call's.
        if matches!(self.cell.work, Work::Task(_)) {
            held.extend(self.handles.referents().into_iter().map(|held| (held, 1)));
        }
        held
    }
}

impl Attempt {
    /// The guest may name this, as long as the attempt lasts, and for longer if it takes a handle.
    pub(crate) fn lend(&self, reference: &Reference) {
        let slot = self.hold(reference.clone());
        // Once is enough: what is lent stays until the attempt ends.
        if !self.lent.lock().insert(slot) {
            self.handles.release(slot);
        }
    }

    /// The guest gets a handle to this.
    pub(super) fn hold(&self, reference: Reference) -> HandleSlot {
        let is_task = matches!(self.cell.work, Work::Task(_));
        if is_task && !self.is_listed.swap(true, Ordering::Relaxed) {
            self.shared.with_handles.add(self);
        }
        self.handles.add(reference)
    }

    /// An argument that is held here from now on, besides the `times` that the executor holds it until the attempt ends.
    pub(crate) fn note_argument(&self, held: Referent, times: usize) {
        self.arguments.lock().push((held, times + 1));
    }

    pub(super) fn id(&self) -> TaskId {
        self.cell.id
    }

    pub(super) fn parent(&self) -> Parent<'_> {
        match &self.cell.work {
            Work::Task(job) => job.parent(),
            Work::Create(actor) => actor.parent(),
            Work::Call(actor, _) => actor.parent(),
            Work::Elsewhere(_) => unreachable!("it runs here"),
        }
    }

    pub(super) fn module(&self) -> &Module {
        self.parent().module
    }

    /// Refuses what untrusted code may not do, if this is declared to run such: start what outlasts its own limits, and find
    /// actors that are not among its arguments.
    pub(super) fn check_isolation(&self) -> Result<(), ServiceError> {
        let manifest = self.module().manifest();
        let is_isolated = match &self.cell.work {
            Work::Task(job) => match job.entry {
                Entry::Function(index) => {
                    let name = job.module.function(index).full_name();
                    manifest.settings(&name).any(|it| it.isolated)
                }
                Entry::Program | Entry::Http => false,
            },
            Work::Create(actor) | Work::Call(actor, _) => manifest
                .class(&actor.face.class)
                .is_some_and(|it| it.isolated),
            Work::Elsewhere(_) => unreachable!("it runs here"),
        };
        match is_isolated {
            false => Ok(()),
            true => Err(ServiceError::Refused(
                "this code is isolated, as its module says: it can start no tasks, create no actors, and find none by name"
                    .into(),
            )),
        }
    }

    /// The id from which those of its children and objects are derived: the task's in its first attempt, a fresh one in later
    /// attempts and in actors. Handles to children of an earlier attempt may still be around, and must not lead to these.
    fn id_base(&self) -> TaskId {
        match (&self.cell.work, self.number) {
            (Work::Task(_), Try::FIRST) => self.id(),
            _ => *self.id_base.get_or_init(|| self.shared.ids.task()),
        }
    }

    /// Whether a later attempt is to find the children of this one.
    fn may_be_retried(&self) -> bool {
        matches!(&self.cell.work, Work::Task(job) if job.terms.retries > 0)
    }

    /// The id of the next task that it submits. A later attempt that submits the same call gets the same id, and so the task
    /// that may still run.
    pub(super) fn next_task(&self, job: &Job, values: &[Argument]) -> Result<TaskId, ServiceError> {
        let number = self.next_number()?;
        Ok(match self.may_be_retried() {
            true => self.id().task_given(number, job.hash(values)),
            false => self.id_base().task(number),
        })
    }

    /// The id of the next actor that it creates, or call that it makes: another one in each attempt.
    pub(super) fn next_actor_task(&self) -> Result<TaskId, ServiceError> {
        Ok(self.id_base().task(self.next_number()?))
    }

    fn next_number(&self) -> Result<u64, ServiceError> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        if number >= MOST_STARTED {
            return Err(ServiceError::Refused(format!(
                "one task may start {MOST_STARTED} others in all; let some of those start the rest"
            )));
        }
        Ok(number)
    }

    /// One more that it starts, if it may.
    pub(super) fn nest(&self) -> Result<Nested, ServiceError> {
        let in_flight = self.in_flight.get_or_init(Arc::default).clone();
        let before = in_flight.fetch_add(1, Ordering::Relaxed);
        let nested = Nested(in_flight);
        let most = self.parent().policy.most_nested();
        if before < most {
            return Ok(nested);
        }
        Err(ServiceError::Refused(format!(
            "limit of {most} nested tasks, calls and actors in flight reached: as many as this task has started \
             have not ended; wait for some, let some of those start the rest, or start the node with \
             --max-nested {}",
            most.saturating_mul(2).max(1)
        )))
    }

    /// The name of the next object that it puts. A later attempt that puts the same bytes gets the same name.
    pub(super) fn next_stored(&self, value: &Encoded) -> ObjectName {
        let number = self.stored.fetch_add(1, Ordering::Relaxed);
        let by = match self.may_be_retried() {
            true => self.id().storing(number.into(), value_hash(value)),
            false => self.id_base(),
        };
        ObjectName {
            id: ObjectId::put_by(by, number),
            owner: self.shared.home.node,
        }
    }

    /// What a handle of the guest's stands for: something, as long as the guest may run.
    pub(super) fn reference(&self, slot: HandleSlot) -> Result<Reference, ServiceError> {
        let gone = || ServiceError::Refused("its actor has ended, and so have its handles".into());
        self.handles.get(slot).ok_or_else(gone)
    }

    /// What a name in a value stands for.
    pub(super) fn named(&self, handle: &Handle) -> Result<Reference, ServiceError> {
        self.handles.find(handle).ok_or_else(|| {
            ServiceError::Refused(format!(
                "{handle} is no {} that this task was given or has made",
                handle.kind()
            ))
        })
    }

    pub(super) fn actor(&self, slot: HandleSlot) -> Result<ActorRef, ServiceError> {
        match self.reference(slot)? {
            Reference::Actor(actor) => Ok(actor),
            Reference::Task(_) | Reference::Put(_) => unreachable!("the handle is an actor's"),
        }
    }

    /// What the handles in a value stand for, after a check that it is of its type.
    pub(super) fn references(
        &self,
        ty: &ValueType,
        value: &Encoded,
    ) -> Result<Vec<Reference>, ServiceError> {
        let handles =
            handles(ty, value).map_err(|error| ServiceError::Refused(error.to_string()))?;
        handles.iter().map(|handle| self.named(handle)).collect()
    }

    /// A result that the guest returned, with what it names.
    pub(crate) async fn result(&self, ty: &ValueType, value: Encoded) -> Result<Value, TaskError> {
        let references = match ty.has_handles() {
            true => self
                .references(ty, &value)
                .map_err(|error| TaskError::Trap {
                    message: format!("its result has a wrong handle: {error}"),
                    frames: Vec::new(),
                })?,
            false => Vec::new(),
        };
        let tenant = self.parent().terms.tenant.clone();
        let id = ObjectId::of(self.id(), 0);
        let kept = self
            .shared
            .keep(&tenant, id, Cow::Owned(value), references)
            .await;
        kept.map_err(|error| TaskError::Sandbox(format!("its result cannot be kept: {error}")))
    }
}
