//! Which actors nobody can reach but tasks that wait.
//!
//! Owns a count of references, as garbage collectors make it to find circles (trial deletion:
//! Christopher, 1984): whatever has more holders than those found from what waits is somebody else's too,
//! a driver's or a name's, and so is all that can be reached from there. What remains can be called, named
//! and killed by those who wait, and they do nothing.
//!
//! Must not: take anybody for stuck who is not. Holders that are not known here only make it find less.

use std::collections::HashMap;
use std::sync::Arc;

use wasmrun_model::id::{ObjectId, TaskId};

use crate::records::actor_ref::ActorRef;
use crate::records::job::Argument;
use crate::records::object::{Object, PutObject, Reference, Value};
use crate::records::task::TaskCell;

/// The most that is looked at: beyond it nothing is found.
const MOST: usize = 100_000;

/// What is found from those who wait. To be dropped where no lock is held: it may hold the last reference.
#[derive(Default)]
pub(crate) struct Reach {
    nodes: HashMap<usize, Node>,
    /// Those whose own references have not been counted yet.
    open: Vec<usize>,
    /// Kept while it is looked at.
    attempts: Vec<Arc<dyn Holds>>,
}

struct Node {
    it: Referent,
    /// How many of its holders have been found.
    counted: usize,
    keeps: Vec<usize>,
}

/// An attempt that holds references.
pub(crate) trait Holds: Send + Sync {
    /// What it holds, and how often.
    fn holds(&self) -> Vec<(Referent, usize)>;
}

/// What is held, and holds others.
#[derive(Clone)]
pub(crate) enum Referent {
    Actor(ActorRef),
    Task(Arc<TaskCell>),
    Put(Arc<PutObject>),
    Value(Value),
}

impl From<&Reference> for Referent {
    fn from(reference: &Reference) -> Self {
        match reference {
            Reference::Actor(actor) => Self::Actor(actor.clone()),
            Reference::Task(cell) => Self::Task(cell.clone()),
            Reference::Put(object) => Self::Put(object.clone()),
        }
    }
}

impl From<&Argument> for Referent {
    fn from(argument: &Argument) -> Self {
        match argument {
            Argument::Value(value) => Self::Value(value.clone()),
            Argument::Object(Object(reference)) => reference.into(),
        }
    }
}

impl Referent {
    /// The object that it is, or whose bytes it has.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Actor(_) => None,
            Self::Task(cell) => Some(cell.object().id),
            Self::Put(object) => Some(object.name.id),
            Self::Value(value) => value.stored_id(),
        }
    }

    /// Which it is: no two that live have the same.
    pub(crate) fn key(&self) -> usize {
        match self {
            Self::Actor(actor) => actor.address(),
            Self::Task(cell) => Arc::as_ptr(cell).addr(),
            Self::Put(object) => Arc::as_ptr(object).addr(),
            Self::Value(value) => value.address(),
        }
    }

    /// How many hold it, this one included.
    fn holders(&self) -> usize {
        match self {
            Self::Actor(actor) => actor.holders(),
            Self::Task(cell) => Arc::strong_count(cell),
            Self::Put(object) => Arc::strong_count(object),
            Self::Value(value) => value.holders(),
        }
    }

    /// What it holds itself.
    pub(crate) fn keeps(&self) -> Vec<Self> {
        match self {
            Self::Actor(actor) => actor.handles.referents(),
            Self::Task(cell) => match cell.result() {
                Some(Ok(Some(value))) => vec![Self::Value(value)],
                _ => Vec::new(),
            },
            Self::Put(object) => vec![Self::Value(object.value.clone())],
            Self::Value(value) => value.references().iter().map(Self::from).collect(),
        }
    }
}

impl Reach {
    /// Somebody who waits holds this, so many times.
    pub(crate) fn count(&mut self, it: Referent, times: usize) -> usize {
        let key = it.key();
        match self.nodes.get_mut(&key) {
            Some(node) => node.counted += times,
            None => {
                self.open.push(key);
                let node = Node {
                    it,
                    counted: times,
                    keeps: Vec::new(),
                };
                self.nodes.insert(key, node);
            }
        }
        key
    }

    /// An attempt waits, with all that it has.
    pub(crate) fn count_attempt(&mut self, attempt: Arc<dyn Holds>) {
        for (held, times) in attempt.holds() {
            self.count(held, times);
        }
        self.attempts.push(attempt);
    }

    /// The creations of the actors that only those can reach who wait.
    pub(crate) fn captives(&mut self) -> Vec<TaskId> {
        while let Some(key) = self.open.pop() {
            if self.nodes.len() > MOST {
                return Vec::new();
            }
            let keeps = self.nodes[&key].it.keeps();
            let keeps = keeps.into_iter().map(|it| self.count(it, 1)).collect();
            self.nodes.get_mut(&key).expect("it is there").keeps = keeps;
        }
        // We hold each once ourselves.
        let is_others = |node: &Node| node.it.holders() > node.counted + 1;
        let nodes = self.nodes.iter();
        let mut open: Vec<usize> = nodes
            .filter(|(_, node)| is_others(node))
            .map(|(key, _)| *key)
            .collect();
        let mut free = std::collections::HashSet::new();
        while let Some(key) = open.pop() {
            if free.insert(key) {
                open.extend(&self.nodes[&key].keeps);
            }
        }
        let captives = self.nodes.iter().filter(|(key, _)| !free.contains(*key));
        let captives = captives.filter_map(|(_, node)| match &node.it {
            Referent::Actor(actor) => Some(actor.creation()),
            _ => None,
        });
        captives.collect()
    }
}
