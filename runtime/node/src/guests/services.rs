//! What the node answers when a guest asks for tasks, objects and actors.
//!
//! Owns the [`Services`] of an [`Attempt`]: starting, waiting, getting and putting. Must not: decide who runs when.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::{
    ClassIndex, FunctionIndex, GuestArgument, HandleSlot, Listener, Pause, Readable, ServiceError,
    Services, Waiting, Wishes,
};
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::task::{Attempt as Try, Cancellation, TaskKind};
use wasmrun_model::value::{Encoded, FunctionType, Handle, ValueType};

use tokio::time::Instant;

use crate::guests::attempt::Attempt;
use crate::guests::block::BlockGuard;
use crate::guests::names::{NameState, Naming};
use crate::ledger::Submission;
use crate::ledger::deadlock::{Blocked, Wait};
use crate::records::actor::{ActorCell, Creator};
use crate::records::actor_ref::ActorRef;
use crate::records::derive;
use crate::records::handles::Readiness;
use crate::records::job::{Argument, Call, Job};
use crate::records::log::{ActorLog, Log};
use crate::records::object::{LoadError, Loaded, Object, PutObject, Reference, Value, is_fit};
use crate::records::task::{Nested, TaskCell, Work};
use crate::records::wait::Countdown;

impl Attempt {
    /// The arguments that a guest gives, for a function of this type.
    fn arguments(
        &self,
        ty: &FunctionType,
        given: Vec<GuestArgument>,
    ) -> Result<Vec<Argument>, ServiceError> {
        let takes = ty.params().len();
        let behind = given.get(takes..);
        if !behind.is_some_and(|all| all.iter().all(|it| matches!(it, GuestArgument::Object(_)))) {
            let found = given.len();
            return Err(ServiceError::Refused(format!(
                "the function takes {takes} arguments and {found} were given: {ty}"
            )));
        }
        let limit = self.parent().limits.arguments;
        let bytes = given.iter().map(|given| match given {
            GuestArgument::Value(bytes) => bytes.len() as u64,
            GuestArgument::Object(_) => 0,
        });
        let bytes: u64 = bytes.sum();
        if bytes > limit {
            return Err(ServiceError::Refused(format!(
                "argument limit of {limit} bytes reached: the arguments have {bytes}; put large values and pass \
                 the objects, or submit the first task with a larger --max-arguments"
            )));
        }
        let given = given.into_iter().enumerate();
        given
            .map(|(at, given)| {
                let param = ty.params().get(at);
                let argument = self.argument(param.map(|(_, ty)| ty), given);
                argument.map_err(|error| match (error, param) {
                    (ServiceError::Refused(why), Some((name, _))) => {
                        ServiceError::Refused(format!("{name}: {why}"))
                    }
                    (error, _) => error,
                })
            })
            .collect()
    }

    /// An argument for a parameter of this type. One without a parameter is an object, and a dependency.
    fn argument(
        &self,
        ty: Option<&ValueType>,
        given: GuestArgument,
    ) -> Result<Argument, ServiceError> {
        match given {
            GuestArgument::Value(bytes) => {
                let ty = ty.expect("only objects are given without a parameter");
                let value = Encoded::in_form(ty, bytes);
                let references = self.references(ty, &value)?;
                let (account, tenant) = (&self.shared.waiting_bytes, &self.parent().terms.tenant);
                let value = Value::charged(value, references, account, tenant);
                value
                    .map(Argument::Value)
                    .map_err(|error| ServiceError::Refused(error.to_string()))
            }
            GuestArgument::Object(slot) => {
                let reference = self.reference(slot)?;
                let wanted = ty.filter(|ty| !matches!(ty, ValueType::Handle(_)));
                match (reference.ty(), wanted) {
                    (Some(made), Some(ty)) if !is_fit(made, ty) => {
                        Err(ServiceError::Refused(format!(
                            "it is of type {ty}, and the object will be of type {made}; pass another, or \
                             convert it in a task"
                        )))
                    }
                    _ => Ok(Argument::Object(Object(reference))),
                }
            }
        }
    }

    fn new_cell(&self, id: TaskId, work: Work, nested: Nested) -> Arc<TaskCell> {
        let cell = TaskCell::new(id, self.driver, work, self.shared.home()).nested(nested);
        cell.share();
        Arc::new(cell)
    }

    fn submit(&self, submission: Submission) -> Result<Arc<TaskCell>, ServiceError> {
        let submitted = self.shared.submit(submission);
        submitted.map_err(|error| ServiceError::Refused(error.to_string()))
    }

    fn call_of(&self, values: Vec<Argument>) -> Call {
        Call {
            values,
            listener: self.listener.clone(),
            trace: self.trace.clone(),
            ..Call::default()
        }
    }

    /// Starts a task of a job that was made for this one.
    fn spawn_job(
        &self,
        job: &Arc<Job>,
        given: Vec<GuestArgument>,
    ) -> Result<HandleSlot, ServiceError> {
        let ty = job.function_type().expect("only functions are spawned");
        let values = self.arguments(ty, given)?;
        let nested = self.nest()?;
        let cell = self.new_cell(
            self.next_task(job, &values)?,
            Work::Task(job.clone()),
            nested,
        );
        let cell = self.submit(Submission {
            driver: self.driver,
            parent: Some(self.id()),
            terms: job.terms.clone(),
            kind: TaskKind::Task,
            call: self.call_of(values),
            cell,
            keeps: None,
            first: self.shared.ids.first_under(self.number),
        })?;
        Ok(self.hold(Reference::Task(cell)))
    }

    /// Waits until `count` of these have ended, with the CPU given back. False if time is up before.
    async fn wait_for(
        &self,
        pending: Arc<[Arc<TaskCell>]>,
        count: usize,
        timeout: Option<Duration>,
    ) -> Result<bool, ServiceError> {
        if count == 0 {
            return Ok(true);
        }
        if timeout == Some(Duration::ZERO) {
            return Ok(false);
        }
        let watch = Watch::of(&pending, count, Some((self.id(), self.number)));
        let wait = Wait::new(watch.countdown.clone(), self.shared.waits.next());
        let blocked = Blocked {
            needs: pending.clone(),
            reads: None,
            count,
            is_bounded: timeout.is_some(),
            wait: wait.clone(),
            attempt: self.this.clone(),
        };
        let guard = self.shared.block(self.id(), self.number, blocked);
        let done = watch.countdown.done();
        let is_done = match timeout {
            None => {
                done.await;
                true
            }
            Some(limit) => tokio::time::timeout(limit, done).await.is_ok(),
        };
        drop(watch);
        match is_done {
            true => guard.resume(&self.clock).await,
            // Whoever has all CPUs may have them for ever.
            false => guard.go_ahead(&self.clock),
        }
        match wait.deadlock() {
            Some(why) => Err(ServiceError::Deadlock(why)),
            None => Ok(is_done),
        }
    }

    async fn create_actor(
        &self,
        class: ClassIndex,
        arguments: Vec<GuestArgument>,
        mut wishes: Wishes,
    ) -> Result<HandleSlot, ServiceError> {
        self.check_isolation()?;
        let name = wishes.name.take();
        let job = derive::actor(self.parent(), class, wishes)
            .map_err(|error| ServiceError::Refused(error.to_string()))?;
        let ty = &self.module().class(class).constructor.ty;
        let values = self.arguments(ty, arguments)?;
        let nested = self.nest()?;
        let id = self.next_actor_task()?;
        let creator = Creator {
            task: self.id(),
            attempt: self.number,
        };
        // One with a name has a log of its own; what it writes goes to who listens to its creator all the same.
        let log = name.as_ref().map(|_| Arc::<Log>::default());
        let listener = match &log {
            Some(log) => Some(Listener::with_log(log.clone(), self.listener.clone())),
            None => self.listener.clone(),
        };
        let (home, job) = (self.shared.home.node, Arc::new(job));
        let actor = ActorCell::new(id.actor(), home, job, listener.clone()).made_by(creator);
        let actor = ActorRef::new(Arc::new(actor), Arc::downgrade(&self.shared));
        let naming = match name.clone() {
            Some(name) => Some(self.name_actor(name, &actor).await?),
            None => None,
        };
        let cell = self.new_cell(id, Work::Create(actor.cell().clone()), nested);
        let submitted = self.submit(Submission {
            driver: self.driver,
            parent: Some(self.id()),
            terms: actor.job().terms.clone(),
            kind: TaskKind::Actor(actor.id),
            call: Call {
                listener,
                ..self.call_of(values)
            },
            cell,
            keeps: None,
            first: Try::FIRST,
        });
        if let Err(error) = submitted {
            // It gives its name free.
            self.shared.kill(actor.cell());
            return Err(error);
        }
        if let Some(log) = log {
            self.shared.actor_logs.add(ActorLog {
                id: actor.id,
                tenant: actor.job().terms.tenant.clone(),
                driver: self.driver,
                name,
                log,
            });
        }
        actor.publish();
        if let Some(naming) = naming {
            naming.keep();
        }
        Ok(self.hold(Reference::Actor(actor)))
    }

    async fn name_actor(&self, name: String, actor: &ActorRef) -> Result<Naming, ServiceError> {
        let naming = self.shared.name_actor(name, actor);
        let naming = match self.shared.are_names_elsewhere() {
            true => self.aside(None, naming).await,
            false => naming.await,
        };
        naming.map_err(|error| ServiceError::Refused(error.to_string()))
    }

    async fn find_actor(&self, name: &str) -> Result<HandleSlot, ServiceError> {
        self.check_isolation()?;
        let tenant = &self.parent().terms.tenant;
        let found = self.shared.find_actor(tenant, name);
        let is_here = || matches!(self.shared.names.find(tenant, name), NameState::Public(_));
        let found = match self.shared.are_names_elsewhere() && !is_here() {
            true => self.aside(None, found).await,
            false => found.await,
        };
        let actor = found.map_err(|error| ServiceError::Refused(error.to_string()))?;
        Ok(self.hold(Reference::Actor(actor)))
    }

    /// Waits for something that ends by itself, with the CPU given back.
    async fn aside<T>(&self, reads: Option<ObjectId>, waiting: impl Future<Output = T>) -> T {
        let guard = self.step_aside(reads);
        let done = waiting.await;
        guard.resume(&self.clock).await;
        done
    }

    /// Gives the CPU back, to wait for something that ends by itself.
    fn step_aside(&self, reads: Option<ObjectId>) -> BlockGuard {
        let blocked = Blocked {
            needs: Arc::default(),
            reads,
            count: 0,
            is_bounded: true,
            wait: Wait::new(Countdown::new(1), self.shared.waits.next()),
            attempt: self.this.clone(),
        };
        self.shared.block(self.id(), self.number, blocked)
    }

    /// A value in memory. While it is fetched or reconstructed, the task's CPU is released.
    pub(crate) async fn read(&self, value: &Value) -> Result<Loaded, LoadError> {
        if value.is_here() {
            return value.read().await;
        }
        // The bytes come, or no node gives them.
        self.aside(value.stored_id(), value.read()).await
    }

    /// As `read`. `None` if time is up, and nobody who has it answers.
    async fn read_by(
        &self,
        value: &Value,
        deadline: Option<Instant>,
    ) -> Option<Result<Loaded, LoadError>> {
        match deadline {
            Some(deadline) if !value.is_here() => {
                let reading = self.shared.read_by(value, deadline);
                let guard = self.step_aside(value.stored_id());
                let read = reading.await;
                match read {
                    Some(_) => guard.resume(&self.clock).await,
                    None => guard.go_ahead(&self.clock),
                }
                read
            }
            _ => Some(self.read(value).await),
        }
    }

    /// The value of an object that is there.
    async fn value(
        &self,
        reference: Reference,
        deadline: Option<Instant>,
    ) -> Result<Arc<dyn Readable>, ServiceError> {
        let value = match &reference {
            Reference::Put(object) => Some(object.value.clone()),
            Reference::Task(cell) => match cell.result() {
                Some(Ok(value)) => value,
                Some(Err(error)) => {
                    return Err(ServiceError::Failed {
                        origin: error.origin(cell.id),
                        error: Arc::new(error),
                    });
                }
                None => unreachable!("it was waited for"),
            },
            Reference::Actor(_) => unreachable!("the handle is an object's"),
        };
        // A function without a result makes an object of no bytes.
        let value = value.unwrap_or_else(|| Encoded::Postcard(Vec::new()).into());
        // What it names, the guest may name from now on.
        value.references().iter().for_each(|it| self.lend(it));
        let Some(loaded) = self.read_by(&value, deadline).await else {
            return Err(ServiceError::TimedOut);
        };
        match loaded {
            Ok(loaded) => Ok(Arc::new(loaded)),
            Err(LoadError::Lost(error)) => Err(ServiceError::Failed {
                origin: Object(reference).id().task(),
                error: Arc::new(error),
            }),
            Err(error) => Err(ServiceError::Refused(error.to_string())),
        }
    }
}

impl Services for Attempt {
    fn sandbox_made(&self) {
        self.clock.sandbox_made();
    }

    fn pause(&self) -> Option<Pause> {
        let is_due = self.shared.pauses.take(&self.id(), self.number);
        let attempt = self.this.upgrade().filter(|_| is_due)?;
        Some(Box::pin(async move { attempt.stand_aside().await }))
    }

    fn paused(&self) -> Duration {
        self.clock.paused()
    }

    fn open(&self, handle: &Handle) -> Option<HandleSlot> {
        self.handles.open(handle)
    }

    fn duplicate(&self, slot: HandleSlot) {
        self.handles.duplicate(slot);
    }

    fn release(&self, slot: HandleSlot) {
        self.handles.release(slot);
    }

    fn handle(&self, slot: HandleSlot) -> Option<Handle> {
        Some(self.handles.get(slot)?.handle())
    }

    fn name(&self, slot: HandleSlot) -> Option<Handle> {
        if self.lent.lock().insert(slot) {
            self.handles.duplicate(slot);
        }
        self.handle(slot)
    }

    fn spawn(
        &self,
        function: FunctionIndex,
        arguments: Vec<GuestArgument>,
        wishes: Wishes,
    ) -> Result<HandleSlot, ServiceError> {
        self.check_isolation()?;
        let job = derive::job(self.parent(), function, wishes)
            .map_err(|error| ServiceError::Refused(error.to_string()))?;
        self.spawn_job(&job, arguments)
    }

    fn create(
        &self,
        class: ClassIndex,
        arguments: Vec<GuestArgument>,
        wishes: Wishes,
    ) -> Waiting<'_, HandleSlot> {
        Box::pin(self.create_actor(class, arguments, wishes))
    }

    fn find<'a>(&'a self, name: &'a str) -> Waiting<'a, HandleSlot> {
        Box::pin(self.find_actor(name))
    }

    fn call(
        &self,
        actor: HandleSlot,
        method: &str,
        arguments: Vec<GuestArgument>,
        time_limit: Option<Duration>,
    ) -> Result<HandleSlot, ServiceError> {
        let actor = self.actor(actor)?;
        let time_limit = self.shared.policy.actor_time("call", time_limit);
        let time_limit = time_limit.map_err(|error| ServiceError::Refused(error.to_string()))?;
        let face = &actor.face;
        let index = face.find(method).ok_or_else(|| {
            let methods: Vec<&str> = face.method_names().collect();
            ServiceError::Refused(format!(
                "the class {} has no method '{method}'; it has {}",
                face.class,
                methods.join(", ")
            ))
        })?;
        let values = self.arguments(&face.methods[index].1, arguments)?;
        let nested = self.nest()?;
        let id = self.next_actor_task()?;
        let cell = self.new_cell(id, Work::Call(actor.cell().clone(), index), nested);
        self.submit(Submission {
            driver: self.driver,
            parent: Some(self.id()),
            terms: actor.face.call_terms.clone(),
            kind: TaskKind::Call {
                actor: actor.id,
                caller: Some(self.id()),
            },
            call: Call {
                time_limit,
                ..self.call_of(values)
            },
            cell: cell.clone(),
            keeps: Some(actor.clone()),
            first: Try::FIRST,
        })?;
        Ok(self.hold(Reference::Task(cell)))
    }

    fn kill(&self, actor: HandleSlot) {
        if let Ok(actor) = self.actor(actor) {
            self.shared.kill(actor.cell());
        }
    }

    fn cancel(&self, object: HandleSlot) -> Cancellation {
        match self.reference(object) {
            Ok(Reference::Task(cell)) => self.shared.cancel_maker(&cell),
            _ => Cancellation::Over,
        }
    }

    fn put(&self, value: Encoded, handles: Vec<Handle>) -> Waiting<'_, HandleSlot> {
        Box::pin(async move {
            // Each once, however often the guest says it.
            let handles: BTreeSet<Handle> = handles.into_iter().collect();
            let references: Result<Vec<Reference>, ServiceError> =
                handles.iter().map(|handle| self.named(handle)).collect();
            let references = references?;
            let name = self.next_stored(&value);
            let tenant = self.parent().terms.tenant.clone();
            let value = self
                .shared
                .keep(&tenant, name.id, Cow::Owned(value), references)
                .await;
            let value = value.map_err(|error| ServiceError::Refused(error.to_string()))?;
            let object = Reference::Put(Arc::new(PutObject { name, value }));
            Ok(self.hold(object))
        })
    }

    fn get(&self, object: HandleSlot, timeout: Option<Duration>) -> Waiting<'_, Arc<dyn Readable>> {
        Box::pin(async move {
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let reference = self.reference(object)?;
            if let Reference::Task(cell) = &reference
                && !cell.has_ended()
            {
                // Also who only looks wants to see it some time.
                cell.want();
                if !self.wait_for([cell.clone()].into(), 1, timeout).await? {
                    return Err(ServiceError::TimedOut);
                }
            }
            self.value(reference, deadline).await
        })
    }

    fn wait(
        &self,
        objects: Vec<HandleSlot>,
        count: usize,
        timeout: Option<Duration>,
    ) -> Waiting<'_, Vec<u32>> {
        let Readiness {
            mut ready,
            pending,
            places,
        } = self.handles.readiness(&objects);
        pending.iter().for_each(|cell| cell.want());
        if ready.len() >= count {
            return Box::pin(std::future::ready(Ok(ready)));
        }
        Box::pin(async move {
            let count = count - ready.len();
            let pending: Arc<[_]> = pending.into();
            self.wait_for(pending.clone(), count, timeout).await?;
            let ended = pending.iter().zip(places);
            let ended = ended.filter(|(cell, _)| cell.has_ended());
            ready.extend(ended.map(|(_, place)| place));
            ready.sort_unstable();
            Ok(ready)
        })
    }
}

/// A countdown that tasks count down when they end, until it is dropped.
pub(crate) struct Watch<'a> {
    pub(crate) countdown: Arc<Countdown>,
    tasks: &'a [Arc<TaskCell>],
}

impl<'a> Watch<'a> {
    pub(crate) fn new(tasks: &'a [Arc<TaskCell>], count: usize) -> Self {
        Self::of(tasks, count, None)
    }

    /// The same, for an attempt that waits for it.
    fn of(tasks: &'a [Arc<TaskCell>], count: usize, waiter: Option<(TaskId, Try)>) -> Self {
        let countdown = Countdown::of(count, waiter);
        for task in tasks {
            if task.watch(&countdown) {
                countdown.decide();
                countdown.hit();
            } else {
                task.want();
            }
        }
        Self { countdown, tasks }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for task in self.tasks {
            task.unwatch(&self.countdown);
        }
    }
}
