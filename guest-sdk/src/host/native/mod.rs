//! The host outside WebAssembly: this process plays its part, so that `cargo test` tests guests.
//!
//! Owns objects, calls and actors of a thread; other threads have their own, so tests do not meet.
//! A task runs at once, on the thread that starts it, unless it needs an object that is not there
//! yet: then it runs as soon as that is there. So everything happens in one order, always the same.
//! Values cross as bytes, as they do on a node. Not here: limits, retries and restarts, options
//! (accepted and ignored), timeouts (nothing happens while one waits, so what is not there now will
//! never be), and cancelling what runs. What was made is kept until the thread ends: a name in some
//! bytes may be all that is left of a handle.
//!
//! Invariant: no borrow of the tables is held while a guest's code runs.

mod actors;

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use crate::argument::Argument;
use crate::error::{Error, Failure, FailureKind};
use crate::future::Cancellation;
use crate::host::{OBJECT_NAME_BYTES, ObjectName};
use crate::module::{Arguments, CallError, Module, Returned};
use crate::options::TaskSettings;
use crate::value::Encoded;

use actors::ActorState;
pub use actors::{Actor, create, find};

/// A handle to an object.
pub struct Object(Rc<ObjectState>);

struct ObjectState {
    index: u64,
    outcome: RefCell<Outcome>,
    /// What runs as soon as there is an outcome.
    waiters: RefCell<Vec<Box<dyn FnOnce()>>>,
}

enum Outcome {
    Pending,
    There(Result<Encoded, Failure>),
}

#[derive(Default)]
struct World {
    objects: Vec<Rc<ObjectState>>,
    actors: Vec<Rc<ActorState>>,
    actor_names: BTreeMap<String, usize>,
    tasks: u64,
    /// The tasks that run, each started by the one before it.
    running: Vec<String>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// The id of the task that runs, if one does.
pub fn running_task() -> Option<String> {
    WORLD.with_borrow(|world| world.running.last().cloned())
}

impl World {
    fn add_object(&mut self, outcome: Outcome) -> Rc<ObjectState> {
        let object = Rc::new(ObjectState {
            index: self.objects.len() as u64,
            outcome: RefCell::new(outcome),
            waiters: RefCell::default(),
        });
        self.objects.push(object.clone());
        object
    }

    fn next_task(&mut self) -> String {
        self.tasks += 1;
        format!("local-{}", self.tasks)
    }
}

impl ObjectState {
    fn is_there(&self) -> bool {
        matches!(*self.outcome.borrow(), Outcome::There(_))
    }

    fn value(&self) -> Result<Encoded, Error> {
        match &*self.outcome.borrow() {
            Outcome::There(Ok(value)) => Ok(value.clone()),
            Outcome::There(Err(failure)) => Err(Error::Failed(failure.clone())),
            Outcome::Pending => Err(deadlock(&self.id())),
        }
    }

    fn id(&self) -> String {
        format!("local-object-{}", self.index)
    }

    /// Sets the outcome, unless there is one, and runs what waited for it.
    fn finish(&self, result: Result<Encoded, Failure>) {
        if self.is_there() {
            return;
        }
        *self.outcome.borrow_mut() = Outcome::There(result);
        for waiter in self.waiters.take() {
            waiter();
        }
    }
}

fn deadlock(id: &str) -> Error {
    Error::Deadlock(format!(
        "{id} is made by something that waits for this very task: neither would ever go on; \
         pass the future on instead of waiting for it here"
    ))
}

impl Object {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn name(&self) -> ObjectName {
        number_as_name::<OBJECT_NAME_BYTES>(self.0.index)
    }

    pub fn named(name: &ObjectName) -> Result<Self, Error> {
        let found = WORLD.with_borrow(|world| {
            let index = name_as_number(name)?;
            world.objects.get(index).cloned()
        });
        found.map(Self).ok_or_else(|| {
            Error::Refused(
                "no object of this thread has this name: pass futures on as they are".to_owned(),
            )
        })
    }

    /// The value's size in bytes.
    pub fn size(&self, _timeout: Option<Duration>) -> Result<u64, Error> {
        Ok(self.0.value()?.bytes.len() as u64)
    }

    pub fn get(&self, _timeout: Option<Duration>) -> Result<Encoded, Error> {
        self.0.value()
    }

    pub fn cancel(&self) -> Cancellation {
        if self.0.is_there() {
            return Cancellation::Over;
        }
        self.0.finish(Err(Failure {
            kind: FailureKind::Cancelled,
            message: format!("{} was cancelled", self.0.id()),
            origin: self.0.id(),
            payload: None,
        }));
        Cancellation::Cancelled
    }
}

/// The names are kept as all others are.
pub fn put(value: &Encoded, _names: &[Vec<u8>]) -> Result<Object, Error> {
    let outcome = Outcome::There(Ok(value.clone()));
    Ok(Object(
        WORLD.with_borrow_mut(|world| world.add_object(outcome)),
    ))
}

pub fn wait(objects: &[&Object], count: u32, timeout: Option<Duration>) -> Result<Vec<u32>, Error> {
    let ready: Vec<u32> = (0..)
        .zip(objects)
        .filter(|(_, object)| object.0.is_there())
        .map(|(index, _)| index)
        .collect();
    if ready.len() < objects.len().min(count as usize) && timeout.is_none() {
        let missing = objects.iter().find(|object| !object.0.is_there());
        return Err(deadlock(
            &missing.map_or_else(String::new, |object| object.id()),
        ));
    }
    Ok(ready)
}

pub fn spawn(
    module: &'static Module,
    function: &'static str,
    arguments: Vec<Argument>,
    _settings: Option<&TaskSettings>,
) -> Result<Object, Error> {
    refuse_refused(&arguments)?;
    let (object, task) =
        WORLD.with_borrow_mut(|world| (world.add_object(Outcome::Pending), world.next_task()));
    run_when_ready(
        object.clone(),
        task,
        arguments,
        move |arguments| (module.call)(function, arguments),
        function,
    );
    Ok(Object(object))
}

fn run_when_ready(
    object: Rc<ObjectState>,
    task: String,
    arguments: Vec<Argument>,
    call: impl FnOnce(Arguments) -> Result<Returned, CallError> + 'static,
    function: &'static str,
) {
    if let Some(missing) = first_missing(&arguments) {
        let waiter = move || run_when_ready(object, task, arguments, call, function);
        missing.waiters.borrow_mut().push(Box::new(waiter));
        return;
    }
    let result = read_arguments(&arguments, &task)
        .and_then(|arguments| run(&task, function, || call(arguments)));
    object.finish(result.and_then(|returned| value_or_error(returned, &task, function)));
}

/// Runs a guest's code as a task: a panic is a trap, and what cannot be called is the arguments' fault.
fn run<T>(
    task: &str,
    function: &str,
    call: impl FnOnce() -> Result<T, CallError>,
) -> Result<T, Failure> {
    WORLD.with_borrow_mut(|world| world.running.push(task.to_owned()));
    let result = catch_unwind(AssertUnwindSafe(call));
    WORLD.with_borrow_mut(|world| world.running.pop());
    let failure = |kind, message| Failure {
        kind,
        message,
        origin: task.to_owned(),
        payload: None,
    };
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(
            FailureKind::Arguments,
            format!("{task} (`{function}`) could not be called: {error}"),
        )),
        Err(panic) => Err(failure(
            FailureKind::Trap,
            format!("{task} (`{function}`) panicked: {}", panic_message(&*panic)),
        )),
    }
}

/// The error case of a result is a failure.
fn value_or_error(returned: Returned, task: &str, function: &str) -> Result<Encoded, Failure> {
    let Some(error) = returned.error else {
        return Ok(returned.value);
    };
    // It began elsewhere; as on a node, whoever gets it gets the same.
    if let Some(passed) = error.passed {
        return Err(passed);
    }
    let text = match error.message {
        Some(text) => format!("returned an error: {text}"),
        None => "returned an error; its payload says which".to_owned(),
    };
    Err(Failure {
        kind: FailureKind::Guest,
        message: format!("{task} (`{function}`) {text}"),
        origin: task.to_owned(),
        payload: Some(error.payload),
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "with something that is not a text",
    }
}

fn refuse_refused(arguments: &[Argument]) -> Result<(), Error> {
    let refused = arguments.iter().find_map(|argument| match argument {
        Argument::Refused(error) => Some(error.clone()),
        Argument::Value(_) | Argument::Object(_) => None,
    });
    refused.map_or(Ok(()), Err)
}

fn first_missing(arguments: &[Argument]) -> Option<Rc<ObjectState>> {
    arguments.iter().find_map(|argument| match argument {
        Argument::Object(object) if !object.0.is_there() => Some(object.0.clone()),
        _ => None,
    })
}

/// The bytes of the arguments, whose objects are all there; one that failed fails the call.
fn read_arguments(arguments: &[Argument], task: &str) -> Result<Arguments, Failure> {
    let mut bytes = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let read = match argument {
            Argument::Value(bytes) => Ok(bytes.clone()),
            Argument::Object(object) => object.get(None).and_then(|_| (object.read)(object)),
            Argument::Refused(error) => Err(error.clone()),
        };
        bytes.push(read.map_err(|error| {
            let origin = match error.failure() {
                Some(failure) => failure.origin.clone(),
                None => task.to_owned(),
            };
            Failure {
                kind: FailureKind::Dependency,
                message: format!("an argument of {task} could not be made: {error}"),
                origin,
                payload: None,
            }
        })?);
    }
    Ok(Arguments::new(bytes))
}

fn number_as_name<const N: usize>(number: u64) -> [u8; N] {
    let mut name = [0; N];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name
}

fn name_as_number(name: &[u8]) -> Option<usize> {
    let (number, rest) = name.split_first_chunk::<8>()?;
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    usize::try_from(u64::from_le_bytes(*number)).ok()
}
