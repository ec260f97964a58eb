//! What `#[module]` makes of a Rust module: calls of its functions and actors as bytes.
//!
//! Owns the types that generated code fills, and the instances of actors that live in this module's
//! memory. Not part of the public interface. Invariant: a call takes exactly the arguments that the
//! function has, each decoded by its type; a wrong one never reaches the user's code.

use std::cell::RefCell;
use std::fmt;

use crate::value::{Encoded, ReturnedError, Value};

/// A module of tasks and actors.
pub struct Module {
    /// The interface with its exports, as `package:name/interface`.
    pub interface: &'static str,
    /// Calls a function.
    pub call: fn(&str, Arguments) -> Called,
    /// Creates an instance of an actor class by its constructor.
    pub create: fn(&str, Arguments) -> Made,
    /// Makes an instance of an actor class of its state.
    pub restore: fn(&str, Vec<u8>) -> Made,
}

/// What a call gives.
pub type Called = Result<Returned, CallError>;

/// What a constructor gives.
pub type Made = Result<Box<dyn Instance>, CallError>;

/// An actor's state.
pub trait Instance {
    /// Calls a method.
    fn invoke(&mut self, method: &str, arguments: Arguments) -> Called;

    /// Its state, where its class can give it.
    fn checkpoint(&self) -> Option<Vec<u8>> {
        None
    }
}

/// What a call returned.
pub struct Returned {
    /// The value.
    pub value: Encoded,
    /// Set when the value is the error case of a result. The node looks for itself.
    pub error: Option<ReturnedError>,
}

/// Why a call did not reach the user's code, or its value did not come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError(String);

/// The arguments of a call.
pub struct Arguments {
    of: &'static str,
    position: usize,
    rest: std::vec::IntoIter<Vec<u8>>,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CallError {
    /// There is no such thing in this module. `kind` is its kind, such as `function`.
    pub fn unknown(kind: &str, name: &str) -> Self {
        Self(format!(
            "this module has no {kind} `{name}`: host and module disagree"
        ))
    }

    /// The class cannot be made of a state.
    pub fn no_restore(class: &str) -> Self {
        Self(format!(
            "the actor class `{class}` has no `restore`: add `checkpoint` and `restore` to it"
        ))
    }
}

impl Arguments {
    /// The arguments as they came.
    pub fn new(arguments: Vec<Vec<u8>>) -> Self {
        Self {
            of: "",
            position: 0,
            rest: arguments.into_iter(),
        }
    }

    /// Says whose arguments they are.
    ///
    /// # Errors
    /// When they are not so many.
    pub fn expect(mut self, function: &'static str, count: usize) -> Result<Self, CallError> {
        self.of = function;
        if self.rest.len() == count {
            Ok(self)
        } else {
            Err(CallError(format!(
                "`{function}` takes {count} arguments and was given {}",
                self.rest.len()
            )))
        }
    }

    /// The next argument.
    ///
    /// # Errors
    /// When its bytes are not a `T`.
    pub fn take<T: Value>(&mut self) -> Result<T, CallError> {
        let bytes = self.rest.next().unwrap_or_default();
        self.position += 1;
        T::decode(bytes).map_err(|error| {
            CallError(format!(
                "argument {} of `{}`: {error}",
                self.position, self.of
            ))
        })
    }
}

impl Returned {
    /// A value that a function returned.
    ///
    /// # Errors
    /// When it holds a future whose task was refused.
    pub fn new<T: Value>(value: T) -> Called {
        // On the node's side of the call the type says where the error is.
        let error = if cfg!(target_family = "wasm") {
            None
        } else {
            value.returned_error()
        };
        let value = Encoded::of(value).map_err(|error| {
            CallError(format!("what was returned cannot be passed on: {error}"))
        })?;
        Ok(Self { value, error })
    }
}

thread_local! {
    /// The instances that the host created through the fast lane: their numbers are positions here.
    /// A component has one thread and, as a rule, one instance.
    static INSTANCES: RefCell<Vec<Option<Box<dyn Instance>>>> = const { RefCell::new(Vec::new()) };
}

/// The fast lane (`wasmrun:runtime/calls`) of a module. The host has checked what it passes: where it
/// is wrong nonetheless, these panic, which the host reports as a trap with the message on stderr.
impl Module {
    /// Calls a function: its result.
    pub fn fast_call(&self, function: &str, arguments: Vec<Vec<u8>>) -> Vec<u8> {
        ok((self.call)(short(function), Arguments::new(arguments)))
            .value
            .bytes
    }

    /// Creates an instance: its number.
    pub fn fast_create(&self, class: &str, arguments: Vec<Vec<u8>>) -> u32 {
        keep(ok((self.create)(short(class), Arguments::new(arguments))))
    }

    /// Makes an instance of a state: its number.
    pub fn fast_restore(&self, class: &str, state: Vec<u8>) -> u32 {
        keep(ok((self.restore)(short(class), state)))
    }

    /// Calls a method of an instance: its result.
    pub fn fast_invoke(instance: u32, method: &str, arguments: Vec<Vec<u8>>) -> Vec<u8> {
        // Out of the table for as long as it runs: the table stays free for others.
        let mut running = take(instance);
        let returned = running.invoke(method, Arguments::new(arguments));
        put_back(instance, running);
        ok(returned).value.bytes
    }

    /// The state of an instance, where its class can give it.
    pub fn fast_checkpoint(instance: u32) -> Option<Vec<u8>> {
        let idle = take(instance);
        let state = idle.checkpoint();
        put_back(instance, idle);
        state
    }
}

/// The name without its interface: a module has one.
fn short(name: &str) -> &str {
    name.rsplit_once('#').map_or(name, |(_, short)| short)
}

fn ok<T>(result: Result<T, CallError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn keep(instance: Box<dyn Instance>) -> u32 {
    INSTANCES.with_borrow_mut(|instances| {
        instances.push(Some(instance));
        u32::try_from(instances.len() - 1).expect("fewer instances than memory has bytes")
    })
}

fn take(instance: u32) -> Box<dyn Instance> {
    let taken = INSTANCES
        .with_borrow_mut(|instances| instances.get_mut(instance as usize).and_then(Option::take));
    taken.unwrap_or_else(|| {
        panic!("there is no idle instance {instance}: the host broke its contract")
    })
}

fn put_back(instance: u32, idle: Box<dyn Instance>) {
    INSTANCES.with_borrow_mut(|instances| instances[instance as usize] = Some(idle));
}
