//! What JavaScript knows by number: objects, actors, functions and classes.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::AbortHandle;
use wasmrun_client::queue::Slot;
use wasmrun_client::{Actor, CreateActor, Submit};
use wasmrun_model::value::{FunctionType, ValueType};

/// What is known of the type of what is to come.
#[derive(Clone)]
pub(crate) enum Expected {
    Nothing,
    Value(ValueType),
    /// The node knows it.
    Unknown,
}

impl Expected {
    pub(crate) fn of(function: &FunctionType) -> Self {
        match function.result() {
            Some(ty) => Self::Value(ty.clone()),
            None => Self::Nothing,
        }
    }
}

/// An object that is there or will be.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) slot: Arc<Slot>,
    pub(crate) expected: Expected,
}

/// A function, with what is asked for its calls.
pub(crate) struct Function {
    pub(crate) submit: Arc<Submit>,
    pub(crate) result: Expected,
}

/// An actor, and its methods in the order in which JavaScript was told of them.
pub(crate) struct Living {
    pub(crate) actor: Actor,
    pub(crate) methods: Vec<(Arc<str>, Expected)>,
}

#[derive(Clone)]
pub(crate) enum Item {
    Object(Object),
    Actor(Arc<Living>),
    Function(Arc<Function>),
    /// A class, with what is asked for its actors.
    Class(Arc<CreateActor>),
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Items {
    all: HashMap<u64, Item>,
    /// What waits alone, and can be told not to.
    pub(crate) waits: HashMap<u64, AbortHandle>,
}

impl Items {
    pub(crate) fn insert(&mut self, id: u64, item: Item) {
        self.all.insert(id, item);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Item> {
        self.all.remove(&id)
    }

    pub(crate) fn get(&self, id: u64) -> Result<&Item, String> {
        self.all
            .get(&id)
            .ok_or_else(|| format!("there is no item {id}"))
    }

    pub(crate) fn object(&self, id: u64) -> Result<&Object, String> {
        match self.get(id)? {
            Item::Object(object) => Ok(object),
            _ => Err(format!("item {id} is no object")),
        }
    }

    /// Says of what type an object is.
    pub(crate) fn set_type(&mut self, id: u64, ty: ValueType) -> Result<(), String> {
        match self.all.get_mut(&id) {
            Some(Item::Object(object)) => object.expected = Expected::Value(ty),
            _ => return Err(format!("item {id} is no object")),
        }
        Ok(())
    }

    pub(crate) fn actor(&self, id: u64) -> Result<&Arc<Living>, String> {
        match self.get(id)? {
            Item::Actor(actor) => Ok(actor),
            _ => Err(format!("item {id} is no actor")),
        }
    }

    pub(crate) fn function(&self, id: u64) -> Result<&Arc<Function>, String> {
        match self.get(id)? {
            Item::Function(function) => Ok(function),
            _ => Err(format!("item {id} is no function")),
        }
    }

    pub(crate) fn class(&self, id: u64) -> Result<&Arc<CreateActor>, String> {
        match self.get(id)? {
            Item::Class(class) => Ok(class),
            _ => Err(format!("item {id} is no class")),
        }
    }
}
