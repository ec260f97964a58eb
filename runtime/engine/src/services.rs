//! What a running guest can ask of the node it runs on: other tasks, objects, actors.
//!
//! Owns the boundary, [`Services`]: the engine turns a guest's calls of `wasmrun:runtime` into calls of
//! it, and the node answers. Must not: know what a task, an object or an actor is beyond its slot and name.
//!
//! Handles are counted: every handle that a guest gets counts its [`HandleSlot`] once, and the engine says
//! [`Services::release`] for every one that the guest drops. What a guest leaves behind is released by
//! whoever made the services, when the task or actor ends.

use std::fmt;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Cancellation;
use wasmrun_model::value::{Encoded, EncodedRef, Handle};

use crate::class::ClassIndex;
use crate::module::FunctionIndex;
pub use crate::spare::Spares;

/// A value that somebody holds: bytes that do not change.
pub trait Readable: Send + Sync {
    /// The value.
    fn encoded(&self) -> EncodedRef<'_>;

    /// The memory pages it lies in, if it has whole ones for itself.
    fn pages(&self) -> Option<Pages<'_>> {
        None
    }
}

impl Readable for Encoded {
    fn encoded(&self) -> EncodedRef<'_> {
        self.into()
    }
}

/// Whole pages of a file that hold a value, with zeros after its end.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Where in it the value starts, in bytes: a multiple of the page size.
    pub offset: u64,
    /// How long the value is, in bytes.
    pub len: u64,
    /// What guests have left of the file: kept with the file, and dropped with it.
    pub spares: &'a Spares,
}

/// A slot of the handle table that the node keeps for a task or actor: what the host has behind each of the guest's
/// handles. A guest cannot make one up: the number stands in wasmtime's table, of which the guest has indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleSlot(pub u32);

/// An argument of a task or call that a guest starts.
#[derive(Debug, Clone, PartialEq)]
pub enum GuestArgument {
    /// A value, encoded by its parameter's type; not checked yet.
    Value(Vec<u8>),
    /// An object that the guest has a handle to.
    Object(HandleSlot),
}

/// What a guest asks for in place of what the module declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Amounts by resource, as text.
    pub resources: Vec<(String, String)>,
    /// How often a task is tried again.
    pub retries: Option<u32>,
    /// Whether it is after an error that its function returns, too.
    pub retry_on_error: Option<bool>,
    /// How long an attempt of a task, or an actor's constructor, may take.
    pub time_limit: Option<Duration>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// What labels the node must have, as text.
    pub label_selector: Option<String>,
    /// How a node is chosen, as text.
    pub strategy: Option<String>,
    /// The name of an actor.
    pub name: Option<String>,
    /// How often an actor is started again.
    pub restarts: Option<u32>,
    /// How often a call that was under way then is retried.
    pub call_retries: Option<u32>,
}

/// Why a guest does not get what it asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ServiceError {
    /// What was to make the object failed.
    #[error("{error}")]
    Failed {
        /// The task where it began.
        origin: TaskId,
        /// How it failed, with what led to it.
        error: Arc<TaskError>,
    },
    /// Time is up.
    #[error("timed out: what was waited for is not there yet; wait for longer, or cancel it")]
    TimedOut,
    /// The wait would never end.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The request cannot be served.
    #[error("{0}")]
    Refused(String),
}

/// What comes of waiting.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// What a guest waits for that is paused: its CPU.
pub type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a guest can ask for. One per task, or per call of an actor.
pub trait Services: Send + Sync {
    /// The sandbox is there, and its guest begins.
    fn sandbox_made(&self) {}

    /// Asked whenever the guest gives way, some 100 times a second: what it waits for before it goes on, if its CPU is to
    /// be another's for a while.
    fn pause(&self) -> Option<Pause> {
        None
    }

    /// For how long it was paused in all.
    fn paused(&self) -> Duration {
        Duration::ZERO
    }

    /// One more handle of the guest to what has this name. `None` if the guest was never given that.
    fn open(&self, handle: &Handle) -> Option<HandleSlot>;

    /// One more handle of the guest to what is in this slot.
    fn duplicate(&self, slot: HandleSlot);

    /// One handle less.
    fn release(&self, slot: HandleSlot);

    /// What is in a slot, by its name. `None` if the guest has come to its end.
    fn handle(&self, slot: HandleSlot) -> Option<Handle>;

    /// The same, for a guest that asks: it may put the name into what it returns, even when it has dropped the
    /// handle by then.
    fn name(&self, slot: HandleSlot) -> Option<Handle>;

    /// Starts a function of the same module. The guest gets a handle to what it will make.
    fn spawn(
        &self,
        function: FunctionIndex,
        arguments: Vec<GuestArgument>,
        wishes: Wishes,
    ) -> Result<HandleSlot, ServiceError>;

    /// Creates an actor of the same module. The guest gets a handle to it.
    fn create(
        &self,
        class: ClassIndex,
        arguments: Vec<GuestArgument>,
        wishes: Wishes,
    ) -> Waiting<'_, HandleSlot>;

    /// The actor of the tenant that has this name. The guest gets a handle to it.
    fn find<'a>(&'a self, name: &'a str) -> Waiting<'a, HandleSlot>;

    /// Calls a method, for so long at most. The guest gets a handle to what it will make.
    fn call(
        &self,
        actor: HandleSlot,
        method: &str,
        arguments: Vec<GuestArgument>,
        time_limit: Option<Duration>,
    ) -> Result<HandleSlot, ServiceError>;

    /// Ends an actor.
    fn kill(&self, actor: HandleSlot);

    /// Cancels what is to make an object.
    fn cancel(&self, object: HandleSlot) -> Cancellation;

    /// Stores a value, which keeps what these handles stand for: the guest says that it names them. The guest
    /// gets a handle to it.
    fn put(&self, value: Encoded, handles: Vec<Handle>) -> Waiting<'_, HandleSlot>;

    /// The value of an object, once it is there.
    fn get(&self, object: HandleSlot, timeout: Option<Duration>) -> Waiting<'_, Arc<dyn Readable>>;

    /// Waits for `count` of the objects: the indexes of those that are there or have failed.
    fn wait(
        &self,
        objects: Vec<HandleSlot>,
        count: usize,
        timeout: Option<Duration>,
    ) -> Waiting<'_, Vec<u32>>;
}

impl fmt::Debug for dyn Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Services")
    }
}

/// Services of nobody: a guest that runs without a node has no tasks, objects or actors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

/// The services of nobody, shared.
pub(crate) fn alone() -> Arc<dyn Services> {
    static ALONE: OnceLock<Arc<dyn Services>> = OnceLock::new();
    ALONE.get_or_init(|| Arc::new(Alone)).clone()
}

impl Alone {
    fn refuse<T>() -> Result<T, ServiceError> {
        Err(ServiceError::Refused(
            "this guest runs without a node, so there are no other tasks, objects or actors".into(),
        ))
    }
}

impl Services for Alone {
    fn open(&self, _: &Handle) -> Option<HandleSlot> {
        None
    }

    fn duplicate(&self, _: HandleSlot) {}

    fn release(&self, _: HandleSlot) {}

    fn handle(&self, _: HandleSlot) -> Option<Handle> {
        None
    }

    fn name(&self, _: HandleSlot) -> Option<Handle> {
        None
    }

    fn spawn(
        &self,
        _: FunctionIndex,
        _: Vec<GuestArgument>,
        _: Wishes,
    ) -> Result<HandleSlot, ServiceError> {
        Self::refuse()
    }

    fn create(&self, _: ClassIndex, _: Vec<GuestArgument>, _: Wishes) -> Waiting<'_, HandleSlot> {
        Box::pin(async { Self::refuse() })
    }

    fn find<'a>(&'a self, _: &'a str) -> Waiting<'a, HandleSlot> {
        Box::pin(async { Self::refuse() })
    }

    fn call(
        &self,
        _: HandleSlot,
        _: &str,
        _: Vec<GuestArgument>,
        _: Option<Duration>,
    ) -> Result<HandleSlot, ServiceError> {
        Self::refuse()
    }

    fn kill(&self, _: HandleSlot) {}

    fn cancel(&self, _: HandleSlot) -> Cancellation {
        Cancellation::Over
    }

    fn put(&self, _: Encoded, _: Vec<Handle>) -> Waiting<'_, HandleSlot> {
        Box::pin(async { Self::refuse() })
    }

    fn get(&self, _: HandleSlot, _: Option<Duration>) -> Waiting<'_, Arc<dyn Readable>> {
        Box::pin(async { Self::refuse() })
    }

    fn wait(&self, _: Vec<HandleSlot>, _: usize, _: Option<Duration>) -> Waiting<'_, Vec<u32>> {
        Box::pin(async { Self::refuse() })
    }
}
