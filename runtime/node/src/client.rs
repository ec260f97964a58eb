//! A session that submits to a node: tasks, objects and actors, for drivers in this process.
//!
//! Owns [`Client`] and what it hands out. The server's sessions (`server`) are clients too: there is no
//! second way in. Must not: decide who runs when; hold the ledger's lock while anything else is called.
//!
//! Invariants: the ids of what a client makes follow from its driver and the order. Arguments are
//! checked for their number, and objects for their type, before anything is submitted.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmrun_engine::Listener;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, GroupId, ObjectId, ObjectName, TaskId};
use wasmrun_model::scheduler::Explanation;
use wasmrun_model::task::{Attempt, Cancellation, TaskKind};
use wasmrun_model::value::{Encoded, FunctionType, Handle, ValueType};
use wasmrun_store::CreateError;

use crate::actor::Actor;
use crate::guests::names::{FindError, NameError};
use crate::guests::services::Watch;
use crate::guests::shared::Shared;
use crate::ledger::{Submission, SubmitError};
use crate::records::actor::{ActorCell, Checkpoint};
use crate::records::actor_ref::ActorRef;
use crate::records::class::ActorJob;
use crate::records::job::{Argument, Call, Job};
use crate::records::object::{LoadError, Loaded, Object, PutObject, Reference, Value, is_fit};
use crate::records::policy::TooMuch;
use crate::records::task::{TaskCell, TaskHandle, Work};

/// A session that submits tasks. Cheap to clone; clones are one session.
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

struct ClientInner {
    shared: Arc<Shared>,
    driver: DriverId,
    submitted: AtomicU64,
}

/// Why there is no value to get.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GetError {
    /// What was to make it failed.
    #[error("{error}")]
    Failed {
        /// The task that was to make it.
        origin: TaskId,
        /// How that failed, with what led to it.
        error: TaskError,
    },
    /// Time is up.
    #[error("timed out: it is not there yet; wait for longer, or cancel what makes it")]
    TimedOut,
}

/// Why a call or an actor is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The class has no such method.
    #[error("the class {class} has no method '{method}'; it has {}", .methods.join(", "))]
    NoMethod {
        /// The class.
        class: String,
        /// What was asked for.
        method: String,
        /// What there is.
        methods: Vec<String>,
    },
    /// More or fewer arguments than parameters.
    #[error("it takes {expected} arguments and {given} were given: {signature}")]
    Count {
        /// How many it takes.
        expected: usize,
        /// How many were given.
        given: usize,
        /// Its type.
        signature: String,
    },
    /// An object of another type than the parameter's.
    #[error(
        "{parameter}: it is of type {wanted}, and the object will be of type {made}; pass another"
    )]
    Type {
        /// The parameter.
        parameter: String,
        /// Its type.
        wanted: String,
        /// The object's.
        made: String,
    },
    /// The name of the actor cannot be given.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The node gives no call that much time.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// The node does not take it.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, driver: DriverId) -> Self {
        Self(Arc::new(ClientInner {
            shared,
            driver,
            submitted: AtomicU64::new(0),
        }))
    }

    /// Who this session is.
    pub fn driver(&self) -> DriverId {
        self.0.driver
    }

    /// Submits a task. It starts as soon as the node has what it asks for and its arguments are there.
    ///
    /// # Errors
    /// When no node can ever run it, or the node is stopping.
    pub fn submit(&self, job: &Arc<Job>, call: Call) -> Result<TaskHandle, SubmitError> {
        self.submit_as(self.next_id(), Attempt::FIRST, job, call)
    }

    /// Why no task of this job could ever run, if that is so. `is_request` if its tasks answer requests by themselves.
    pub(crate) fn why_never(&self, job: &Job, is_request: bool) -> Option<String> {
        let shared = self.shared();
        shared.ask(|ledger| ledger.why_never(job, is_request))
    }

    /// As [`Client::submit`], under an id that no task has that lives here, from this attempt on.
    pub(crate) fn submit_as(
        &self,
        id: TaskId,
        first: Attempt,
        job: &Arc<Job>,
        call: Call,
    ) -> Result<TaskHandle, SubmitError> {
        let cell = self.cell_of(id, Work::Task(job.clone()));
        self.0.shared.submit(Submission {
            driver: self.0.driver,
            parent: None,
            terms: job.terms.clone(),
            kind: TaskKind::Task,
            call,
            cell: cell.clone(),
            keeps: None,
            first,
        })?;
        Ok(TaskHandle(cell))
    }

    /// What it has submitted here and has not ended, without what that has started.
    pub(crate) fn unended(&self) -> Vec<TaskHandle> {
        let driver = &self.0.driver;
        let cells = self.0.shared.ask(|ledger| ledger.submitted_by(driver));
        cells.into_iter().map(TaskHandle).collect()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The id of a group that is about to be created.
    pub(crate) fn next_group(&self) -> GroupId {
        let id = self.next_id();
        let unique = id.as_bytes().first_chunk().expect("an id has 16 bytes");
        GroupId::of(self.0.shared.home.node, *unique)
    }

    pub(crate) fn next_id(&self) -> TaskId {
        let number = self.0.submitted.fetch_add(1, Ordering::Relaxed);
        self.0.driver.task(number)
    }

    pub(crate) fn new_cell(&self, work: Work) -> Arc<TaskCell> {
        self.cell_of(self.next_id(), work)
    }

    fn cell_of(&self, id: TaskId, work: Work) -> Arc<TaskCell> {
        let home = self.0.shared.home();
        Arc::new(TaskCell::new(id, self.0.driver, work, home))
    }

    /// Stores a value: a small one with its handle, others in the node's store. Waits for room there,
    /// as long as the node says at most. Blocks this thread.
    ///
    /// # Errors
    /// When there is no room in time, or there never can be.
    ///
    /// # Panics
    /// When it is called in a thread of a tokio runtime.
    pub fn put<'a>(
        &self,
        tenant: &TenantName,
        value: impl Into<Cow<'a, Encoded>>,
    ) -> Result<Object, CreateError> {
        self.put_with(tenant, value, &[], &[])
    }

    /// As [`Client::put`], of a value that holds the handles of these objects and actors, which it keeps.
    ///
    /// # Errors
    /// As of `put`.
    ///
    /// # Panics
    /// As `put`.
    pub fn put_with<'a>(
        &self,
        tenant: &TenantName,
        value: impl Into<Cow<'a, Encoded>>,
        objects: &[Object],
        actors: &[Actor],
    ) -> Result<Object, CreateError> {
        let name = self.new_object();
        let references = references(objects, actors);
        let shared = &self.0.shared;
        let keeping = shared.keep(tenant, name.id, value.into(), references);
        let value = shared.control.block_on(keeping)?;
        Ok(Object(Reference::Put(Arc::new(PutObject { name, value }))))
    }

    /// The name of a value that is about to be stored.
    pub(crate) fn new_object(&self) -> ObjectName {
        ObjectName {
            id: ObjectId::put_by(self.next_id(), 0),
            owner: self.0.shared.home.node,
        }
    }

    /// The value of an object, once it is there. To be awaited where tokio's timers run.
    ///
    /// # Errors
    /// When what was to make it failed, or time is up.
    pub async fn get_async(
        &self,
        object: &Object,
        timeout: Option<Duration>,
    ) -> Result<Value, GetError> {
        let cell = match &object.0 {
            Reference::Put(object) => return Ok(object.value.clone()),
            Reference::Task(cell) => cell,
            Reference::Actor(_) => unreachable!("an actor is no object"),
        };
        if !wait_for(std::slice::from_ref(cell), 1, timeout).await {
            return Err(GetError::TimedOut);
        }
        match cell.result() {
            // A function without a result makes an object of no bytes.
            Some(Ok(value)) => Ok(value.unwrap_or_else(|| Encoded::Postcard(Vec::new()).into())),
            Some(Err(error)) => Err(GetError::Failed {
                origin: error.origin(cell.id),
                error,
            }),
            None => unreachable!("it was waited for"),
        }
    }

    /// As [`Client::get_async`]; blocks this thread.
    ///
    /// # Errors
    /// As of `get_async`.
    ///
    /// # Panics
    /// When it is called in a thread of a tokio runtime.
    pub fn get(&self, object: &Object, timeout: Option<Duration>) -> Result<Value, GetError> {
        self.0
            .shared
            .control
            .block_on(self.get_async(object, timeout))
    }

    /// A value in memory: brought here if it is at another node, read back if it is on disk. Waits for room.
    /// Blocks this thread.
    ///
    /// # Errors
    /// When no node has it any more and it cannot be reconstructed, or there is no room for it here in time.
    ///
    /// # Panics
    /// When it is called in a thread of a tokio runtime.
    pub fn load(&self, value: &Value) -> Result<Loaded, LoadError> {
        self.0.shared.control.block_on(value.read())
    }

    /// Waits until `count` of the objects are there or have failed, or time is up. The indexes of all
    /// that are by then: maybe more than `count`, maybe fewer.
    pub async fn wait(
        &self,
        objects: &[Object],
        count: usize,
        timeout: Option<Duration>,
    ) -> Vec<usize> {
        let pending: Vec<_> = objects
            .iter()
            .filter_map(|object| match &object.0 {
                Reference::Task(cell) if !cell.has_ended() => Some(cell.clone()),
                _ => None,
            })
            .collect();
        let there = objects.len() - pending.len();
        let lacking = count.min(objects.len()).saturating_sub(there);
        wait_for(&pending, lacking, timeout).await;
        let is_there = |object: &Object| match &object.0 {
            Reference::Task(cell) => cell.has_ended(),
            Reference::Put(_) | Reference::Actor(_) => true,
        };
        (0..objects.len())
            .filter(|&at| is_there(&objects[at]))
            .collect()
    }

    /// Creates an actor. It lives until nobody refers to it: a name does, for as long as this session
    /// goes on. In a cluster this waits for the control store if there is a name, for some seconds at most. To be
    /// awaited where tokio's timers run.
    ///
    /// # Errors
    /// When the arguments do not fit its constructor, the name is taken, or the node does not take it.
    pub async fn create_actor(
        &self,
        job: &Arc<ActorJob>,
        values: Vec<Argument>,
        name: Option<String>,
        listener: Option<Listener>,
    ) -> Result<Actor, CallError> {
        let call = Call {
            values,
            listener,
            ..Call::default()
        };
        self.create_actor_as(self.next_id(), job, call, name, None)
            .await
    }

    /// As [`Client::create_actor`], by a task that does not live here, and from a state if there is one.
    pub(crate) async fn create_actor_as(
        &self,
        id: TaskId,
        job: &Arc<ActorJob>,
        call: Call,
        name: Option<String>,
        state: Option<Checkpoint>,
    ) -> Result<Actor, CallError> {
        check(&job.module.class(job.class).constructor.ty, &call.values)?;
        let shared = &self.0.shared;
        let listener = call.listener.clone();
        let cell = ActorCell::new(id.actor(), shared.home.node, job.clone(), listener);
        if let Some(state) = state {
            cell.set_checkpoint(state);
        }
        let cell = Arc::new(cell);
        let actor = ActorRef::new(cell, Arc::downgrade(shared));
        let naming = match name {
            Some(name) => Some(shared.name_actor(name, &actor).await?),
            None => None,
        };
        let submission = Submission {
            driver: self.0.driver,
            parent: None,
            terms: job.terms.clone(),
            kind: TaskKind::Actor(actor.id),
            call,
            cell: self.cell_of(id, Work::Create(actor.cell().clone())),
            keeps: None,
            first: Attempt::FIRST,
        };
        if let Err(error) = shared.submit(submission) {
            // It gives its name free.
            shared.kill(actor.cell());
            return Err(error.into());
        }
        actor.publish();
        if let Some(naming) = naming {
            naming.keep();
        }
        Ok(self.actor(actor))
    }

    pub(crate) fn actor(&self, actor: ActorRef) -> Actor {
        Actor {
            actor,
            client: self.clone(),
        }
    }

    /// The actor of a tenant that has this name, on whichever node it was created. Waits for the control store and
    /// that node, for some seconds at most. To be awaited where tokio's timers run.
    ///
    /// # Errors
    /// When there is none, or nobody can say.
    pub async fn find_actor(&self, tenant: &TenantName, name: &str) -> Result<Actor, FindError> {
        let found = self.0.shared.find_actor(tenant, name).await?;
        Ok(self.actor(found))
    }

    /// What a handle in a value stands for: an object. `None` if the value does not name it.
    pub fn object(&self, value: &Value, handle: &Handle) -> Option<Object> {
        let named = value
            .references()
            .iter()
            .find(|it| it.handle() == *handle)?;
        matches!(handle, Handle::Object(_)).then(|| Object(named.clone()))
    }

    /// Ends an actor. Its calls fail, the one that runs included.
    pub fn kill(&self, actor: &Actor) {
        self.0.shared.kill(actor.actor.cell());
    }

    /// Cancels a task and all that it has started: what waits ends at once, what runs at its next
    /// turn. The call that an actor is in the middle of goes on, for the actor's sake.
    pub fn cancel(&self, task: &TaskHandle) {
        self.0.shared.cancel(task.id());
    }

    /// Cancels what is to make an object, with all that this has started.
    pub fn cancel_object(&self, object: &Object) -> Cancellation {
        match &object.0 {
            Reference::Task(cell) => self.0.shared.cancel_maker(cell),
            Reference::Put(_) | Reference::Actor(_) => Cancellation::Over,
        }
    }

    /// Cancels everything that this session has submitted and that has not ended. Its actors end. A call of
    /// another's actor that is under way has two seconds to come to its end; after that it is stopped, which ends
    /// that generation of the actor.
    pub fn cancel_all(&self) {
        self.0.shared.end_work_of(self.0.driver);
        // Not before its tasks: those would say that their group was removed.
        self.0.shared.remove_groups_of(self.0.driver);
        if let Some(others) = self.0.shared.others.get() {
            others.driver_gone(self.0.driver);
        }
    }

    /// The session is over: cancels everything that it has submitted, and what calls that go on for a while start
    /// until they end.
    pub(crate) fn is_over(&self) {
        self.cancel_all();
        self.0.shared.sweep_after(self.0.driver);
    }

    /// Where a task stands and what it waits for; `None` if it has ended.
    pub fn explain(&self, task: &TaskHandle) -> Option<Explanation> {
        self.0.shared.ask(|ledger| ledger.explain(&task.id()))
    }

    /// Where the task stands that has waited for resources for the longest, on this node; `None` if
    /// none waits.
    pub fn explain_oldest(&self) -> Option<Explanation> {
        self.0.shared.ask(|ledger| ledger.explain_oldest())
    }
}

/// What these handles stand for.
fn references(objects: &[Object], actors: &[Actor]) -> Vec<Reference> {
    let objects = objects.iter().map(|object| object.0.clone());
    let actors = actors.iter().map(|it| Reference::Actor(it.actor.clone()));
    objects.chain(actors).collect()
}

/// Checks that arguments are as many as parameters, and that objects will be of their types. Objects behind the last
/// parameter are dependencies.
///
/// # Errors
/// The first that does not fit.
pub(crate) fn check(ty: &FunctionType, values: &[Argument]) -> Result<(), CallError> {
    let behind = values.get(ty.params().len()..);
    if !behind.is_some_and(|all| all.iter().all(|it| matches!(it, Argument::Object(_)))) {
        return Err(CallError::Count {
            expected: ty.params().len(),
            given: values.len(),
            signature: ty.to_string(),
        });
    }
    for ((name, wanted), value) in ty.params().iter().zip(values) {
        if let Argument::Object(object) = value
            && !matches!(wanted, ValueType::Handle(_))
            && let Some(made) = object.0.ty()
            && !is_fit(made, wanted)
        {
            return Err(CallError::Type {
                parameter: name.to_string(),
                wanted: wanted.to_string(),
                made: made.to_string(),
            });
        }
    }
    Ok(())
}

/// Waits until `count` of these have ended. False if time is up before.
async fn wait_for(cells: &[Arc<TaskCell>], count: usize, timeout: Option<Duration>) -> bool {
    if count == 0 {
        return true;
    }
    cells.iter().for_each(|cell| cell.share());
    let watch = Watch::new(cells, count);
    let done = watch.countdown.done();
    match timeout {
        None => {
            done.await;
            true
        }
        Some(limit) => tokio::time::timeout(limit, done).await.is_ok(),
    }
}
