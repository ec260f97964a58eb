//! References between nodes.
//!
//! Owns who has been given what: a node that sends a message in which an object is named keeps the object
//! until the receiver has given that reference back. So there is always a chain of nodes, from whoever needs an
//! object to its owner, each of which keeps it for the next (the reference tree of Ray's ownership, NSDI 2021;
//! counts are per message, so nothing is lost when a reference goes out while another comes back).
//! Must not: fetch bytes.
//!
//! Invariants: an object of another node is one [`TaskCell`] here, however often its name comes in. It is
//! given back when that is dropped, as often as it came, to whom it came from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, NodeId, ObjectId, ObjectName};
use wasmrun_model::value::{Encoded, Handle, ValueType};
use wasmrun_model::wire::WireError;

use super::protocol::{Carried, Made, Named, OneWay};
use super::{Exchange, Queued};
use crate::actor::object_of;
use crate::object::{Reference, Value};
use crate::task::{Report, TaskCell, Work};
use crate::wait::Countdown;

/// What was given to a node, and how often.
type Lent = HashMap<ObjectName, (Reference, u64)>;

/// What was given to other nodes, and what came from them.
#[derive(Default)]
pub(super) struct Borrowed {
    /// What was given to whom, and how often.
    lent: Mutex<HashMap<NodeId, Lent>>,
    /// Objects of other nodes that are named here.
    foreign: Mutex<HashMap<ObjectName, Weak<TaskCell>>>,
    /// Who has copies of our objects.
    holders: Mutex<HashMap<ObjectId, Vec<NodeId>>>,
}

/// How long a name may come before its owner is known here. A node that has left comes no more.
pub(super) const UNKNOWN: Duration = Duration::from_secs(10);

/// An object that another node owns, as long as it is named here. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Foreign(Arc<Inner>);

struct Inner {
    name: ObjectName,
    exchange: Weak<Exchange>,
    /// Who has given it to us, and how often.
    lenders: Mutex<HashMap<NodeId, u64>>,
    is_wanted: AtomicBool,
    ty: OnceLock<ValueType>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.upgrade() else {
            return;
        };
        let mut foreign = exchange.borrowed.foreign.lock();
        if foreign
            .get(&self.name)
            .is_some_and(|it| it.strong_count() == 0)
        {
            foreign.remove(&self.name);
        }
        drop(foreign);
        for (lender, count) in self.lenders.get_mut().drain() {
            let message = OneWay::Release(self.name, count);
            exchange.queue(lender, Queued::Message(message));
        }
    }
}

impl Foreign {
    pub(crate) fn name(&self) -> ObjectName {
        self.0.name
    }

    /// The type that it was made as, once that is known.
    pub(crate) fn ty(&self) -> Option<&ValueType> {
        self.0.ty.get()
    }

    /// Asks its owner to cancel what is to make it. Nothing where that is there, or the owner is gone.
    pub(crate) fn cancel(&self) {
        if let Some(exchange) = self.0.exchange.upgrade() {
            let message = OneWay::Cancel(self.0.name);
            exchange.queue(self.0.name.owner, Queued::Message(message));
        }
    }

    /// Asks its owner to say what becomes of it: the first time.
    pub(crate) fn want(&self) {
        if self.0.is_wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(exchange) = self.0.exchange.upgrade() {
            exchange.ask(self.0.name);
        }
    }
}

impl Borrowed {
    /// An object of ours that somebody else has been given.
    pub(super) fn find(&self, name: &ObjectName) -> Option<Reference> {
        let lent = self.lent.lock();
        lent.values()
            .find_map(|of_node| of_node.get(name).map(|(reference, _)| reference.clone()))
    }

    pub(super) fn released(&self, by: NodeId, name: ObjectName, count: u64) {
        let mut lent = self.lent.lock();
        let Some(of_node) = lent.get_mut(&by) else {
            return;
        };
        let Some((_, left)) = of_node.get_mut(&name) else {
            return;
        };
        *left = left.saturating_sub(count);
        let last = match *left {
            0 => of_node.remove(&name),
            _ => None,
        };
        if of_node.is_empty() {
            lent.remove(&by);
        }
        drop(lent);
        drop(last);
    }

    pub(super) fn set_holder(&self, node: NodeId, object: ObjectId, is_held: bool) {
        let mut holders = self.holders.lock();
        if is_held {
            let holders = holders.entry(object).or_default();
            if !holders.contains(&node) {
                holders.push(node);
            }
        } else if let Some(of_object) = holders.get_mut(&object) {
            of_object.retain(|it| *it != node);
            if of_object.is_empty() {
                holders.remove(&object);
            }
        }
    }

    /// Who has copies of an object of ours, as far as they have said so.
    pub(super) fn holders(&self, object: &ObjectId) -> Vec<NodeId> {
        let holders = self.holders.lock();
        holders.get(object).cloned().unwrap_or_default()
    }
}

impl Exchange {
    /// Keeps an object for a node that is about to be told its name: of an actor, what its creation makes.
    pub(super) fn lend(&self, to: NodeId, reference: &Reference) -> ObjectName {
        let name = match reference.handle() {
            Handle::Object(name) => name,
            Handle::Actor(name) => object_of(name),
        };
        let mut lent = self.borrowed.lent.lock();
        let of_node = lent.entry(to).or_default();
        let entry = of_node.entry(name);
        let (_, count) = entry.or_insert_with(|| (reference.clone(), 0));
        *count += 1;
        name
    }

    /// Lends an object of ours to a node that has it from another one so far.
    pub(super) fn lend_directly(&self, to: NodeId, name: ObjectName) {
        if let Some(reference) = self.borrowed.find(&name) {
            self.lend(to, &reference);
            self.queue(to, Queued::Message(OneWay::Lent(name)));
        }
    }

    /// Takes a name that came from a node, which has kept the object for us.
    ///
    /// # Errors
    /// When it is ours and nobody has it any more: a node that says such things is out of order.
    pub(super) fn borrow(&self, from: NodeId, name: ObjectName) -> Result<Reference, TaskError> {
        if name.owner == self.me {
            // It has come home: nobody need keep it for us.
            self.queue(from, Queued::Message(OneWay::Release(name, 1)));
            return self.borrowed.find(&name).ok_or(TaskError::Lost(name.id));
        }
        let mut foreign = self.borrowed.foreign.lock();
        let known = foreign.get(&name).and_then(Weak::upgrade);
        let cell = known.unwrap_or_else(|| {
            let inner = Inner {
                name,
                exchange: self.this.clone(),
                lenders: Mutex::default(),
                is_wanted: AtomicBool::new(false),
                ty: OnceLock::new(),
            };
            let cell = Arc::new(self.cell_of(Foreign(Arc::new(inner))));
            cell.share();
            foreign.insert(name, Arc::downgrade(&cell));
            cell
        });
        if let Work::Elsewhere(it) = &cell.work {
            *it.0.lenders.lock().entry(from).or_default() += 1;
        }
        drop(foreign);
        Ok(Reference::Task(cell))
    }

    fn cell_of(&self, foreign: Foreign) -> TaskCell {
        let id = foreign.name().id.task();
        let home = match self.shared.upgrade() {
            Some(shared) => shared.home(),
            None => crate::task::Home::new(self.me),
        };
        TaskCell::new(
            id,
            DriverId::from_bytes([0; 16]),
            Work::Elsewhere(foreign),
            home,
        )
    }

    /// Asks the owner of an object what becomes of it. One that is not there (any more) may still come to be
    /// known: for as long as that may take, and no longer.
    fn ask(&self, name: ObjectName) {
        if self.queue(name.owner, Queued::Message(OneWay::Want(name))) {
            return;
        }
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        shared.control.spawn(async move {
            tokio::time::sleep(UNKNOWN).await;
            let Some(exchange) = this.upgrade() else {
                return;
            };
            if exchange.queues.lock().contains_key(&name.owner) {
                // It was asked when it came.
                return;
            }
            let cell = exchange.borrowed.foreign.lock().get(&name).cloned();
            if let Some(cell) = cell.and_then(|cell| cell.upgrade()) {
                exchange.end_foreign(&cell, Err(TaskError::Lost(name.id)));
            }
        });
    }

    /// A node has come: what it owns and somebody wants, it is asked for.
    pub(super) fn want_again(&self, node: NodeId) {
        let foreign = self.borrowed.foreign.lock();
        let of_it = foreign.iter().filter(|(name, _)| name.owner == node);
        let of_it: Vec<_> = of_it.filter_map(|(_, cell)| cell.upgrade()).collect();
        drop(foreign);
        for cell in of_it.iter().filter(|cell| !cell.has_ended()) {
            if let Work::Elsewhere(foreign) = &cell.work
                && foreign.0.is_wanted.load(Ordering::Acquire)
            {
                self.queue(node, Queued::Message(OneWay::Want(foreign.name())));
            }
        }
    }

    /// Another node wants to hear of an object of ours.
    pub(super) fn wanted(&self, by: NodeId, name: ObjectName) {
        let cell = match self.borrowed.find(&name) {
            Some(Reference::Task(cell)) => cell,
            Some(reference) => {
                let made = self.tell(by, name, &reference);
                self.queue(by, Queued::Message(OneWay::Made(Box::new(made))));
                return;
            }
            None => {
                let made = gone(name);
                self.queue(by, Queued::Message(OneWay::Made(Box::new(made))));
                return;
            }
        };
        if cell.has_ended() {
            let made = self.tell(by, name, &Reference::Task(cell));
            self.queue(by, Queued::Message(OneWay::Made(Box::new(made))));
            return;
        }
        let (Some(shared), this) = (self.shared.upgrade(), self.this.clone()) else {
            return;
        };
        // It ends with the task, and all tasks end with the node.
        shared.control.spawn(async move {
            let countdown = Countdown::new(1);
            if !cell.watch(&countdown) {
                cell.want();
                countdown.done().await;
            }
            if let Some(exchange) = this.upgrade() {
                let made = exchange.tell(by, name, &Reference::Task(cell));
                exchange.queue(by, Queued::Message(OneWay::Made(Box::new(made))));
            }
        });
    }

    /// What became of an object, for a node that wants to know.
    pub(super) fn tell(&self, to: NodeId, name: ObjectName, reference: &Reference) -> Made {
        let result = match reference {
            Reference::Put(object) => Ok(object.value.clone()),
            Reference::Task(cell) => match cell.result() {
                Some(Ok(value)) => {
                    Ok(value.unwrap_or_else(|| Encoded::Postcard(Vec::new()).into()))
                }
                Some(Err(error)) => Err(error),
                None => Err(TaskError::Lost(name.id)),
            },
            Reference::Actor(_) => Err(TaskError::Lost(name.id)),
        };
        let result = result.map(|value| self.carry(to, name.id, &value));
        Made {
            name,
            result: result.map_err(|error| WireError::from(&error)),
            ty: reference.ty().cloned(),
        }
    }

    /// An object of another node's is there, or will never be.
    pub(super) fn made(&self, from: NodeId, made: Made) {
        let known = self.borrowed.foreign.lock().get(&made.name).cloned();
        let cell = known.and_then(|cell| cell.upgrade());
        let result = made.result.map_err(TaskError::from);
        let result = result.and_then(|carried| self.take(from, carried));
        let Some(cell) = cell.filter(|_| made.name.owner == from) else {
            return;
        };
        if let (Work::Elsewhere(foreign), Some(ty)) = (&cell.work, made.ty) {
            let _ = foreign.0.ty.set(ty);
        }
        self.end_foreign(&cell, result.map(Some));
    }

    /// What is known of an object of another node's that a message brought along.
    pub(super) fn made_along(&self, from: NodeId, made: Made) {
        let known = self.borrowed.foreign.lock().get(&made.name).cloned();
        if let Some(cell) = known.and_then(|cell| cell.upgrade())
            && let Work::Elsewhere(foreign) = &cell.work
        {
            // Nobody need ask.
            foreign.0.is_wanted.store(true, Ordering::Release);
        }
        self.made(from, made);
    }

    fn end_foreign(&self, cell: &Arc<TaskCell>, result: Result<Option<Value>, TaskError>) {
        if cell.has_ended() {
            return;
        }
        let is_there = result.is_ok();
        let report = Report {
            id: cell.id,
            result,
            waited: Duration::ZERO,
            ran: Duration::ZERO,
            held: Vec::new(),
            memory_peak: 0,
            stderr_tail: String::new(),
            ran_at: None,
        };
        if cell.end_once(report)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.tell_dependents(cell, is_there);
        }
    }

    /// A node is gone: what was kept for it is kept no longer.
    pub(super) fn lost_borrower(&self, node: NodeId) {
        let lent = self.borrowed.lent.lock().remove(&node);
        drop(lent);
        let mut holders = self.borrowed.holders.lock();
        holders.retain(|_, of_object| {
            of_object.retain(|it| *it != node);
            !of_object.is_empty()
        });
    }

    /// A life of a node is gone: what it owned and we have not seen, nobody will. Nothing that it has given us is
    /// owed to its next life, which may well give us the same names: they are other objects then, even while
    /// somebody here still has those of before.
    pub(super) fn lost_owner(&self, node: NodeId) {
        let mut foreign = self.borrowed.foreign.lock();
        // Outside of the lock, should one of these be the last: its end takes the lock.
        let all: Vec<_> = foreign.values().filter_map(Weak::upgrade).collect();
        foreign.retain(|name, _| name.owner != node);
        drop(foreign);
        for cell in &all {
            if let Work::Elsewhere(it) = &cell.work {
                it.0.lenders.lock().remove(&node);
            }
        }
        for cell in all.iter().filter(|cell| cell.object().owner == node) {
            let lost = TaskError::Lost(cell.object().id);
            self.end_foreign(cell, Err(lost));
        }
    }

    /// What a message says of a value, and names in it are kept for the receiver.
    pub(super) fn carry(&self, to: NodeId, id: ObjectId, value: &Value) -> Carried {
        let names = value.references().iter().map(|it| {
            let object = self.lend(to, it);
            match it {
                Reference::Actor(actor) => Named::Actor(Box::new(self.named(actor))),
                Reference::Task(_) | Reference::Put(_) => Named::Object(object),
            }
        });
        let names = names.collect();
        let body = self.body(id, value);
        Carried { body, names }
    }

    /// A value that came in a message.
    pub(super) fn take(&self, from: NodeId, carried: Carried) -> Result<Value, TaskError> {
        let names = carried.names.into_iter();
        // All of them before the first error: each was kept for us, and is given back.
        let references = names.map(|name| match name {
            Named::Object(name) => self.borrow(from, name),
            Named::Actor(actor) => self.borrow_actor(from, *actor),
        });
        let references: Vec<_> = references.collect();
        let references: Result<Vec<_>, _> = references.into_iter().collect();
        if !carried.body.is_whole() {
            let why = format!("node {from} sent a list of numbers whose last one is cut off");
            return Err(TaskError::Sandbox(why));
        }
        Ok(self.value(carried.body, references?))
    }
}

/// What whoever wants an object that is not there hears.
pub(super) fn gone(name: ObjectName) -> Made {
    Made {
        name,
        result: Err(WireError::from(&TaskError::Lost(name.id))),
        ty: None,
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::TaskId;

    use super::*;
    use crate::cluster::work::Queue;

    const OTHER: NodeId = NodeId::from_bytes([2; 16]);

    fn name() -> ObjectName {
        ObjectName {
            id: ObjectId::of(TaskId::from_bytes([3; 16]), 0),
            owner: OTHER,
        }
    }

    fn borrowed(exchange: &Exchange) -> Arc<TaskCell> {
        match exchange.borrow(OTHER, name()) {
            Ok(Reference::Task(cell)) => cell,
            _ => panic!("it is another node's"),
        }
    }

    #[test]
    fn what_a_node_gives_in_its_next_life_is_not_what_was_lost_with_the_one_before() {
        let exchange = Exchange::alone(NodeId::from_bytes([1; 16]));
        let (queue, mut said) = Queue::new();
        exchange.queues.lock().insert(OTHER, queue);
        let before = borrowed(&exchange);
        exchange.lost_owner(OTHER);
        assert!(matches!(before.result(), Some(Err(TaskError::Lost(_)))));
        // The same name, while somebody still has what it was before.
        let after = borrowed(&exchange);
        assert!(!after.has_ended());
        // And nothing of before is given back to the life that never gave it.
        drop(before);
        assert!(said.try_recv().is_err());
        let again = borrowed(&exchange);
        assert!(Arc::ptr_eq(&after, &again), "its name is still known");
        drop((after, again));
        let given_back = said.try_recv().expect("it was given twice");
        assert!(matches!(given_back, Queued::Message(OneWay::Release(it, 2)) if it == name()));
    }
}
