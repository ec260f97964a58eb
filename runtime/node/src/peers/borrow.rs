//! References between nodes.
//!
//! Owns what stands for objects of other nodes here, and the messages. Who keeps what for whom, for how long, and which
//! answer counts, is [`wasmrun_model::reference`]'s. Must not: fetch bytes.
//!
//! Invariants: an object of another node is one [`TaskCell`] here, however often its name comes in. It is
//! given back when that is dropped, as often as it is owed, to whom it came from.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, NodeId, ObjectId, ObjectName};
use wasmrun_model::reference::{self, Answer, Holders, Taken, Token, Want};
use wasmrun_model::value::{Encoded, Handle, ValueType};
use wasmrun_model::wire::WireError;

use super::Exchange;
use super::protocol::{Carried, KeptFor, Made, Named, OneWay};
use crate::records::actor::object_of;
use crate::records::object::{Reference, Value};
use crate::records::task::{Foreign, Report, TaskCell, Work};
use crate::records::wait::Countdown;

/// What came from other nodes, and who has copies of what is ours. What was given to them is in `Exchange::peers`.
#[derive(Default)]
pub(super) struct Borrowed {
    /// Objects of other nodes that are named here.
    foreign: Mutex<reference::Borrowed<Weak<TaskCell>>>,
    /// Who has copies of our objects.
    holders: Mutex<Holders>,
}

/// What is kept for another node.
#[derive(Clone)]
pub(super) struct Lending(Reference);

impl PartialEq for Lending {
    /// Whether it keeps the same thing.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Reference::Task(one), Reference::Task(two)) => Arc::ptr_eq(one, two),
            (Reference::Put(one), Reference::Put(two)) => Arc::ptr_eq(one, two),
            (Reference::Actor(one), Reference::Actor(two)) => one.address() == two.address(),
            _ => false,
        }
    }
}

/// How long a name may come before its owner is known here. A node that has left comes no more.
pub(super) const UNKNOWN: Duration = Duration::from_secs(10);

/// An object that another node owns, as long as it is named here.
struct BorrowedObject {
    name: ObjectName,
    /// Which of those that had this name.
    token: Token,
    exchange: Weak<Exchange>,
    ty: OnceLock<ValueType>,
}

impl Drop for BorrowedObject {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.upgrade() else {
            return;
        };
        let mut foreign = exchange.borrowed.foreign.lock();
        let mut lenders = foreign.dropped(&self.name, self.token);
        drop(foreign);
        for (lender, count) in lenders.give_back() {
            let message = OneWay::Release(self.name, count);
            exchange.send(lender, message);
        }
    }
}

impl Foreign for BorrowedObject {
    fn name(&self) -> ObjectName {
        self.name
    }

    fn ty(&self) -> &OnceLock<ValueType> {
        &self.ty
    }

    fn cancel(&self) {
        if let Some(exchange) = self.exchange.upgrade() {
            exchange.send(self.name.owner, OneWay::Cancel(self.name));
        }
    }

    fn want(&self) {
        if let Some(exchange) = self.exchange.upgrade() {
            exchange.ask(self.name, self.token);
        }
    }
}

impl Borrowed {
    /// What stands for an object of another node's here.
    pub(super) fn foreign(&self, name: &ObjectName) -> Option<Arc<TaskCell>> {
        let foreign = self.foreign.lock();
        foreign.get(name)?.upgrade()
    }

    /// Whether nothing is borrowed.
    #[cfg(test)]
    pub(super) fn check_nothing_is_left(&self, me: NodeId) {
        let foreign = self.foreign.lock();
        let foreign: Vec<_> = foreign.iter().map(|(name, ..)| *name).collect();
        assert!(
            foreign.is_empty(),
            "{me} has objects of others: {foreign:?}"
        );
        assert!(self.holders.lock().is_empty(), "{me}: holders");
    }

    pub(super) fn set_holder(&self, node: NodeId, object: ObjectId, is_held: bool) {
        self.holders.lock().set(node, object, is_held);
    }

    /// Who has copies of an object of ours, as far as they have said so.
    pub(super) fn holders(&self, object: &ObjectId) -> Vec<NodeId> {
        self.holders.lock().of(object).to_vec()
    }
}

impl Exchange {
    /// Keeps an object for a node that is about to be told its name: of an actor, what its creation makes.
    pub(super) fn lend(&self, to: NodeId, reference: &Reference) -> ObjectName {
        let name = match reference.handle() {
            Handle::Object(name) => name,
            Handle::Actor(name) => object_of(name),
        };
        // If that node has left, nothing is kept, and it hears nothing either.
        let lending = Lending(reference.clone());
        self.peers.lock().lend(to, name, lending);
        name
    }

    /// An own object that some peer borrows.
    pub(super) fn lent_as(&self, name: &ObjectName) -> Option<Reference> {
        let peers = self.peers.lock();
        peers.lent_as(name).map(|lending| lending.0.clone())
    }

    /// Own objects that are there, by the peers that borrow them.
    pub(super) fn lent_and_made(&self) -> Vec<(NodeId, ObjectName)> {
        let peers = self.peers.lock();
        let is_made = |lending: &Lending| match &lending.0 {
            Reference::Put(_) => true,
            Reference::Task(cell) => cell.has_ended() && !matches!(cell.work, Work::Elsewhere(_)),
            Reference::Actor(_) => false,
        };
        let made = peers.loans().filter(|(.., kept)| kept.iter().any(is_made));
        made.map(|(node, name, _)| (node, *name)).collect()
    }

    /// The nodes that borrow an object from this one, and those that own it and have it kept here: how each needs it.
    pub(crate) fn needed_by(&self, object: &ObjectId) -> Vec<(NodeId, &'static str)> {
        let peers = self.peers.lock();
        let borrowers = peers.borrowers(object).map(|node| (node, "borrowed"));
        let owners = peers.owners(object).map(|node| (node, "result"));
        borrowers.chain(owners).collect()
    }

    /// A borrower releases an object, so many times.
    pub(super) fn released(&self, by: NodeId, name: &ObjectName, count: u64) {
        let last = self.peers.lock().released(by, name, count);
        drop(last);
    }

    /// Lends an object of ours to a node that has it from another one so far.
    pub(super) fn lend_directly(&self, to: NodeId, name: ObjectName) {
        if let Some(reference) = self.lent_as(&name) {
            self.lend(to, &reference);
            self.send(to, OneWay::Lent(name));
        }
    }

    /// The owner of an object keeps it for us now, as we have asked.
    pub(super) fn has_lent(&self, from: NodeId, name: ObjectName) {
        if !self.lent_actor(from, name) {
            // Whoever does not need it any more gives it back at once.
            drop(self.borrow(from, name));
        }
    }

    /// Takes a name that came from a node, which has kept the object for us.
    ///
    /// # Errors
    /// When it is ours and nobody has it any more: a node that says such things is out of order.
    pub(super) fn borrow(&self, from: NodeId, name: ObjectName) -> Result<Reference, TaskError> {
        if name.owner == self.me {
            // It has come home: nobody need keep it for us.
            self.release(from, name);
            return self.lent_as(&name).ok_or(TaskError::Lost(name.id));
        }
        let mut foreign = self.borrowed.foreign.lock();
        let make = |token| self.object_cell(name, token);
        let (cell, taken) = foreign.take(from, name, Weak::upgrade, make);
        drop(foreign);
        match taken {
            Taken::Kept => {}
            Taken::GiveBack => self.release(from, name),
            Taken::Ask => {
                self.send(name.owner, OneWay::Lend(name));
                self.release(from, name);
            }
        }
        Ok(Reference::Task(cell))
    }

    /// One of the times that a node has named something to us, it need not be kept for.
    pub(super) fn release(&self, to: NodeId, name: ObjectName) {
        self.send(to, OneWay::Release(name, 1));
    }

    fn object_cell(&self, name: ObjectName, token: Token) -> (Weak<TaskCell>, Arc<TaskCell>) {
        let object = BorrowedObject {
            name,
            token,
            exchange: self.this.clone(),
            ty: OnceLock::new(),
        };
        let cell = Arc::new(self.cell_of(Arc::new(object)));
        cell.share();
        (Arc::downgrade(&cell), cell)
    }

    /// An object that another node keeps for a tenant. If it does so no more when it hears of this, it is lost.
    pub(crate) fn borrow_kept(&self, name: ObjectName, tenant: &TenantName) -> Reference {
        let make = |token| self.object_cell(name, token);
        let mut foreign = self.borrowed.foreign.lock();
        let cell = foreign.take_unlent(name, Weak::upgrade, make);
        drop(foreign);
        let tenant = tenant.clone();
        // Whoever asks what becomes of it does so behind this.
        let message = OneWay::LendKept(Box::new(KeptFor { name, tenant }));
        self.send(name.owner, message);
        Reference::Task(cell)
    }

    /// Lends an object that is kept here for a tenant.
    pub(super) fn lend_kept(&self, to: NodeId, kept: &KeptFor) {
        let desk = self.desk().filter(|_| kept.name.owner == self.me);
        if let Some(reference) =
            desk.and_then(|desk| desk.detached_object(&kept.tenant, &kept.name.id))
        {
            self.lend(to, &reference);
            self.send(to, OneWay::Lent(kept.name));
        }
    }

    fn cell_of(&self, foreign: Arc<dyn Foreign>) -> TaskCell {
        let id = foreign.name().id.task();
        let home = match self.shared.upgrade() {
            Some(shared) => shared.home(),
            None => crate::records::task::Home::new(self.me),
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
    fn ask(&self, name: ObjectName, token: Token) {
        let want = {
            let mut foreign = self.borrowed.foreign.lock();
            // Once this is locked: who joins after that hears what is wanted.
            let is_there = self.is_alive(&name.owner);
            foreign.want(&name, token, is_there)
        };
        match want {
            Want::Known => return,
            Want::Ask => {
                self.send(name.owner, OneWay::Want(name));
                return;
            }
            Want::Wait => {}
        }
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        shared.control.spawn(async move {
            tokio::time::sleep(UNKNOWN).await;
            let Some(exchange) = this.upgrade() else {
                return;
            };
            let cell = {
                let foreign = exchange.borrowed.foreign.lock();
                // As in `ask`. What is ended, and dropped, comes back to this lock.
                let is_there = exchange.is_alive(&name.owner);
                foreign.unknown(&name, token, is_there)
            };
            if let Some(cell) = cell.and_then(|cell| cell.upgrade()) {
                exchange.end_foreign(&cell, Err(TaskError::Lost(name.id)));
            }
        });
    }

    /// A node has come: what it owns and somebody wants, it is asked for.
    pub(super) fn want_again(&self, node: NodeId) {
        let wanted = self.borrowed.foreign.lock().joined(node);
        for name in wanted {
            self.send(node, OneWay::Want(name));
        }
    }

    /// Another node wants to hear of an object of ours.
    pub(super) fn wanted(&self, by: NodeId, name: ObjectName) {
        let cell = match self.lent_as(&name) {
            Some(Reference::Task(cell)) => cell,
            Some(reference) => {
                let made = self.made_of(by, name, &reference);
                self.send(by, OneWay::Made(Box::new(made)));
                return;
            }
            None => {
                let made = lost_answer(name);
                self.send(by, OneWay::Made(Box::new(made)));
                return;
            }
        };
        if cell.has_ended() {
            let made = self.made_of(by, name, &Reference::Task(cell));
            self.send(by, OneWay::Made(Box::new(made)));
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
                let made = exchange.made_of(by, name, &Reference::Task(cell));
                exchange.send(by, OneWay::Made(Box::new(made)));
            }
        });
    }

    /// What became of an object, for a node that wants to know.
    pub(super) fn made_of(&self, to: NodeId, name: ObjectName, reference: &Reference) -> Made {
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
        let (name, ty) = (made.name, made.ty);
        let result = made.result.map_err(TaskError::from);
        let answer = match &result {
            Err(TaskError::Lost(id)) if *id == name.id => Answer::Gone,
            Ok(_) | Err(_) => Answer::Ended,
        };
        let result = result.and_then(|carried| self.take(from, carried));
        let cell = self.borrowed.foreign.lock().answered(from, &name, answer);
        self.end_made(cell, ty, result);
    }

    /// What is known of an object of another node's that a message brought along: nobody need ask.
    pub(super) fn made_along(&self, from: NodeId, made: Made) {
        let (name, ty) = (made.name, made.ty);
        let result = made.result.map_err(TaskError::from);
        let result = result.and_then(|carried| self.take(from, carried));
        let cell = self.borrowed.foreign.lock().announced(from, &name);
        self.end_made(cell, ty, result);
    }

    fn end_made(
        &self,
        cell: Option<Weak<TaskCell>>,
        ty: Option<ValueType>,
        result: Result<Value, TaskError>,
    ) {
        let Some(cell) = cell.and_then(|cell| cell.upgrade()) else {
            return;
        };
        if let (Work::Elsewhere(foreign), Some(ty)) = (&cell.work, ty) {
            let _ = foreign.ty().set(ty);
        }
        self.end_foreign(&cell, result.map(Some));
    }

    fn end_foreign(&self, cell: &Arc<TaskCell>, result: Result<Option<Value>, TaskError>) {
        if cell.has_ended() {
            return;
        }
        let is_there = result.is_ok();
        let report = Report::without_run(cell.id, result);
        if cell.end_once(report)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.tell_dependents(cell, is_there);
        }
    }

    /// A node is gone, and its copies with it.
    pub(super) fn lost_holder(&self, node: NodeId) {
        self.borrowed.holders.lock().remove_node(node);
    }

    /// An incarnation of a node is gone. Its objects that have not come here are lost.
    pub(super) fn lost_owner(&self, node: NodeId) {
        let over = self.borrowed.foreign.lock().left(node);
        for cell in over.iter().filter_map(Weak::upgrade) {
            let lost = self.lost_with(node, cell.object().id);
            self.end_foreign(&cell, Err(lost));
        }
    }

    /// What a message says of a value, and names in it are kept for the receiver.
    pub(super) fn carry(&self, to: NodeId, id: ObjectId, value: &Value) -> Carried {
        let names = self.lend_names(to, value);
        let body = self.body(id, value);
        Carried { body, names }
    }

    /// Keeps what a value names for the receiver of it.
    pub(super) fn lend_names(&self, to: NodeId, value: &Value) -> Vec<Named> {
        let names = value.references().iter().map(|it| {
            let object = self.lend(to, it);
            match it {
                Reference::Actor(actor) => Named::Actor(Box::new(self.named(actor))),
                Reference::Task(_) | Reference::Put(_) => Named::Object(object),
            }
        });
        names.collect()
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
        match references {
            Ok(references) => Ok(self.value(carried.body, references)),
            Err(error) => {
                // Its bytes may be kept for us: they need not be, says its end.
                drop(self.value(carried.body, Vec::new()));
                Err(error)
            }
        }
    }
}

/// What whoever wants an object that is not there hears.
pub(super) fn lost_answer(name: ObjectName) -> Made {
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
    use crate::peers::session::Queued;

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
    fn what_a_node_gives_in_its_next_incarnation_is_not_what_was_lost_with_the_one_before() {
        let exchange = Exchange::alone(NodeId::from_bytes([1; 16]));
        let (_, mut said) = exchange.sessions.open(OTHER);
        let before = borrowed(&exchange);
        exchange.lost_owner(OTHER);
        let Some(Err(TaskError::Gone { object, why })) = before.result() else {
            panic!("it is lost");
        };
        assert_eq!(object, name().id);
        assert!(why.contains(&OTHER.to_string()), "{why}");
        // The same name, while somebody still has what it was before.
        let after = borrowed(&exchange);
        assert!(!after.has_ended());
        // And nothing of before is given back to the incarnation that never gave it.
        drop(before);
        assert!(said.try_recv().is_err());
        let again = borrowed(&exchange);
        assert!(Arc::ptr_eq(&after, &again), "its name is still known");
        drop((after, again));
        let given_back = said.try_recv().expect("it was given twice");
        assert!(matches!(given_back, Queued::Message(OneWay::Release(it, 2)) if it == name()));
    }

    #[test]
    fn two_nodes_that_pass_an_object_to_and_fro_do_not_keep_it_for_each_other() {
        let exchange = Exchange::alone(NodeId::from_bytes([1; 16]));
        let third = NodeId::from_bytes([3; 16]);
        exchange.peers.lock().joined(third);
        let (_, mut said) = exchange.sessions.open(third);
        let ours = borrowed(&exchange);
        exchange.lend(third, &Reference::Task(ours.clone()));
        let back = exchange.borrow(third, name());
        let given_back = said.try_recv().expect("its owner has given it to us");
        assert!(matches!(given_back, Queued::Message(OneWay::Release(it, 1)) if it == name()));
        drop((ours, back));
        assert!(exchange.lent_as(&name()).is_some(), "the third needs it");
        exchange.released(third, &name(), 1);
        assert!(exchange.lent_as(&name()).is_none());
        assert!(exchange.borrowed.foreign.lock().is_empty());
    }

    #[test]
    fn nothing_is_kept_for_a_node_that_has_left() {
        let exchange = Exchange::alone(NodeId::from_bytes([1; 16]));
        let ours = borrowed(&exchange);
        exchange.lend(OTHER, &Reference::Task(ours));
        assert!(exchange.lent_as(&name()).is_none());
    }
}
