//! What tasks are to do.
//!
//! Owns [`Job`], which the tasks of a submission share, and [`Call`], what each has of its own. Must not: know tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmrun_engine::{Entry, FunctionIndex, Grants, Input, Limits, Listener, Module};
use wasmrun_model::id::Digest;
use wasmrun_model::task::Terms;
use wasmrun_model::trace::TraceContext;
use wasmrun_model::value::{Encoded, FunctionType, Handle};

use crate::records::object::{Object, Value};
use crate::records::policy::Policy;

/// What tasks have in common: made once, submitted any number of times.
#[derive(Clone)]
pub struct Job {
    /// What people call it.
    pub name: String,
    /// The module.
    pub module: Module,
    /// What of it to run.
    pub entry: Entry,
    /// Whose it is and what it asks for, and so what it gets.
    pub terms: Arc<Terms>,
    /// What it may use besides. Its memory follows from what it asks for.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// What the node gives and allows those.
    pub(crate) policy: Arc<Policy>,
    /// Jobs of tasks that tasks of this one start.
    pub(crate) derived: Derived,
}

/// A hash of what a value is.
pub(crate) fn value_hash(value: &Encoded) -> Digest {
    let (form, bytes) = match value {
        Encoded::Postcard(bytes) => (0, bytes),
        Encoded::Buffer { kind, bytes } => (1 + *kind as u8, bytes),
    };
    Digest::of(&[&[form], &Digest::of(bytes).as_bytes()[..]].concat())
}

impl Job {
    /// A hash of a task of it that is given these: of what names its arguments, or their bytes.
    pub(crate) fn hash(&self, values: &[Argument]) -> Digest {
        let mut told = self.module.digest().as_bytes().to_vec();
        if let Entry::Function(index) = self.entry {
            told.extend(self.module.function(index).full_name().as_bytes());
        }
        for argument in values {
            told.push(0);
            match argument {
                Argument::Value(value) => match (value.as_inline(), value.stored_id()) {
                    (Some(encoded), _) => told.extend(value_hash(encoded).as_bytes()),
                    (None, stored) => told.extend(stored.iter().flat_map(|it| it.as_bytes())),
                },
                Argument::Object(Object(reference)) => match reference.handle() {
                    Handle::Object(name) => told.extend(name.to_bytes()),
                    Handle::Actor(name) => told.extend(name.to_bytes()),
                },
            }
        }
        Digest::of(&told)
    }

    /// What tasks that its tasks start have from it.
    pub(crate) fn parent(&self) -> Parent<'_> {
        Parent {
            module: &self.module,
            grants: &self.grants,
            terms: &self.terms,
            limits: &self.limits,
            policy: &self.policy,
            derived: &self.derived,
        }
    }

    /// The parameters of its function, if it is one.
    pub(crate) fn function_type(&self) -> Option<&FunctionType> {
        match self.entry {
            Entry::Program | Entry::Http => None,
            Entry::Function(index) => Some(&self.module.function(index).ty),
        }
    }
}

/// What the tasks and actors that a task or an actor starts have from it.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'a> {
    pub(crate) module: &'a Module,
    pub(crate) grants: &'a Grants,
    pub(crate) terms: &'a Terms,
    pub(crate) limits: &'a Limits,
    pub(crate) policy: &'a Arc<Policy>,
    pub(crate) derived: &'a Derived,
}

/// Jobs that were made for tasks that others started, by function. Each clone starts empty.
#[derive(Default)]
pub(crate) struct Derived(pub(crate) Mutex<HashMap<FunctionIndex, Arc<Job>>>);

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// An argument of a task or call.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// A value, encoded by its parameter's type.
    Value(Value),
    /// An object: the task starts when it is there. A parameter that is a handle gets the handle,
    /// any other the value.
    Object(Object),
}

impl Argument {
    /// How many bytes it has for itself: those of an object are the object's.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Value(value) => value.size_bytes(),
            Self::Object(_) => 0,
        }
    }
}

impl From<Encoded> for Argument {
    fn from(encoded: Encoded) -> Self {
        Self::Value(encoded.into())
    }
}

/// What is particular to one task of a job.
#[derive(Default)]
pub struct Call {
    /// A function's arguments.
    pub values: Vec<Argument>,
    /// A program's arguments, its name first.
    pub args: Vec<String>,
    /// Its index, if it is one of an array.
    pub array_index: Option<u64>,
    /// What it reads.
    pub input: Input,
    /// Who listens to what it prints.
    pub listener: Option<Listener>,
    /// How long an attempt of an actor's call may take. Of tasks their job says that.
    pub time_limit: Option<Duration>,
    /// The trace that a client has given.
    pub trace: Option<TraceContext>,
}

impl Call {
    /// The same once more, unless it reads what can be read only once.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        let input = match &self.input {
            Input::Empty => Input::Empty,
            Input::Bytes(bytes) => Input::Bytes(bytes.clone()),
            Input::Stream(_) | Input::Http(_) => return None,
        };
        Some(Self {
            values: self.values.clone(),
            args: self.args.clone(),
            array_index: self.array_index,
            input,
            listener: self.listener.clone(),
            time_limit: self.time_limit,
            trace: self.trace.clone(),
        })
    }
}
