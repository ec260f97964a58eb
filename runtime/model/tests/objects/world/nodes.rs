//! What a node does with references: the messages, and what follows when something ends or is dropped.

use std::cell::RefMut;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wasmrun_model::id::{NodeId, ObjectId, ObjectName};
use wasmrun_model::reference::{Answer, Keepers, Peers, Taken, Token, Want};

use super::{Coming, Link, World};
use crate::things::{
    Body, Bytes, Carried, CarriedResult, Cell, Copy, Ended, Failure, Loan, Message, Remote, Todo,
    Value, at_of, node_id,
};

/// How long a name may come before its owner is known.
const UNKNOWN: Duration = Duration::from_secs(10);

impl World {
    /// Who is there for a node, and what it keeps for each. Nothing is to be dropped as long as this is borrowed.
    pub(super) fn peers(&self, at: usize) -> RefMut<'_, Peers<Loan, Rc<Value>>> {
        self.nodes[at].home.peers.borrow_mut()
    }

    /// What of a node's somebody was told this name of.
    pub(super) fn lent_as(&self, at: usize, name: &ObjectName) -> Option<Loan> {
        self.peers(at).lent_as(name).cloned()
    }

    pub(super) fn joined(&mut self, at: usize, node: usize, incarnation: u64) {
        let known = self.nodes[at].known.get(&node).copied();
        let is_now = self.nodes[node].is_up && self.nodes[node].incarnation == incarnation;
        // Of an incarnation that is over nobody hears any more.
        if !self.nodes[at].is_up || !is_now || known == Some(incarnation) {
            return;
        }
        if known.is_some() {
            self.left(at, node);
        }
        let it = &mut self.nodes[at];
        it.known.insert(node, incarnation);
        it.home.peers.borrow_mut().joined(node_id(node));
        for name in it.borrowed.joined(node_id(node)) {
            self.say(at, node_id(node), Message::Want(name));
        }
    }

    pub(super) fn left(&mut self, at: usize, node: usize) {
        let id = node_id(node);
        let it = &mut self.nodes[at];
        it.known.remove(&node);
        let dropped = it.home.peers.borrow_mut().left(id);
        self.tasks_left(at, node);
        let it = &mut self.nodes[at];
        it.holders.remove_node(id);
        let over: Vec<_> = it
            .borrowed
            .left(id)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        drop(dropped);
        for cell in over {
            assert!(
                cell.is_broken.get(),
                "{at}: {} is lost, and its owner lives",
                cell.name.id
            );
            cell.end(Err(Failure::Lost(cell.name)));
        }
        self.readers_left(at, node);
    }

    /// Nobody that is not there hears anything.
    pub(super) fn say(&mut self, at: usize, to: NodeId, message: Message) {
        let node = at_of(to);
        let Some(incarnation) = self.nodes[at].known.get(&node).copied() else {
            return;
        };
        let link = ((at, self.nodes[at].incarnation), (node, incarnation));
        self.note(&(link, &message));
        if !self.nodes[node].is_up || self.nodes[node].incarnation != incarnation {
            return;
        }
        let delay = match self.random.below(10) {
            0 => 400_000,
            1..3 => 50_000,
            _ => 2_000,
        };
        let delay = Duration::from_micros(200 + self.random.below(delay) as u64);
        let line = self.lines.entry(link).or_default();
        line.last = line.last.max(self.now + delay);
        line.messages.push_back(message);
        let last = line.last;
        self.at(last, Coming::Deliver(link));
    }

    /// In order, once the receiver has heard of the sender and the link is whole.
    pub(super) fn deliver(&mut self, link: Link) {
        let ((from, from_incarnation), (to, _)) = link;
        if !self.lines.contains_key(&link) {
            return;
        }
        let known = self.nodes[to].known.get(&from).copied();
        if self.is_cut(from, to) || known.is_none_or(|known| known < from_incarnation) {
            return self.at(self.now + Duration::from_millis(50), Coming::Deliver(link));
        }
        let line = self.lines.get_mut(&link).expect("it is there");
        if let Some(message) = line.messages.pop_front() {
            self.note(&(link, &message));
            self.hear(to, from, message);
        }
    }

    fn hear(&mut self, at: usize, from: usize, message: Message) {
        let id = node_id(from);
        match message {
            Message::Place {
                task,
                attempt,
                args,
                does,
            } => self.placed(at, from, task, attempt, args, does),
            Message::Settled {
                task,
                attempt,
                result,
            } => {
                let result = result.and_then(|carried| self.take(at, from, carried));
                self.settled(at, from, task, attempt, result);
            }
            Message::Want(name) => self.wanted(at, from, name),
            Message::Made(name, told) => self.made(at, from, name, told, false),
            Message::Release(name, count) => {
                let dropped = self.peers(at).released(id, &name, count);
                drop(dropped);
            }
            Message::Holding(object, is_held) => {
                let owner = node_id(at);
                let name = ObjectName { id: object, owner };
                if !is_held || self.lent_as(at, &name).is_some() {
                    self.nodes[at].holders.set(id, object, is_held);
                }
            }
            Message::Drop(object) => {
                let dropped = self.peers(at).unkeep(id, &object);
                drop(dropped);
            }
            Message::Lend(name) => {
                if let Some(Loan(cell)) = self.lent_as(at, &name) {
                    self.lend(at, id, &cell);
                    self.say(at, id, Message::Lent(name));
                }
            }
            Message::Lent(name) => drop(self.borrow(at, from, name)),
        }
    }

    pub(super) fn lend(&mut self, at: usize, to: NodeId, cell: &Rc<Cell>) -> ObjectName {
        let held = Loan(cell.clone());
        self.peers(at).lend(to, cell.name, held);
        cell.name
    }

    /// Takes a name that came from a node, which has kept the object for us.
    pub(super) fn borrow(
        &mut self,
        at: usize,
        from: usize,
        name: ObjectName,
    ) -> Result<Rc<Cell>, Failure> {
        let (me, from_id) = (node_id(at), node_id(from));
        if name.owner == me {
            self.say(at, from_id, Message::Release(name, 1));
            let found = self.lent_as(at, &name);
            if found.is_none() {
                let is_sound = self.is_sound_from(from, at, &name);
                assert!(!is_sound, "{at}: {} comes home and is not kept", name.id);
            }
            return found.map(|held| held.0).ok_or(Failure::Lost(name));
        }
        let is_sound = self.is_sound_from(from, at, &name);
        let home = self.nodes[at].home.clone();
        let make = |token| {
            let cell = Cell::new(&home, name, Some(token));
            cell.is_broken.set(!is_sound);
            (Rc::downgrade(&cell), cell)
        };
        let borrowed = &mut self.nodes[at].borrowed;
        let (cell, taken) = borrowed.take(from_id, name, Weak::upgrade, make);
        match taken {
            Taken::Kept => {}
            Taken::GiveBack => {
                self.seen.given_back += 1;
                self.say(at, from_id, Message::Release(name, 1));
            }
            Taken::Ask => {
                self.seen.asked_to_lend += 1;
                self.say(at, name.owner, Message::Lend(name));
                self.say(at, from_id, Message::Release(name, 1));
            }
        }
        Ok(cell)
    }

    /// Somebody here waits for an object.
    pub(super) fn want(&mut self, at: usize, cell: &Rc<Cell>) {
        let Some(token) = cell.token else {
            return;
        };
        let is_there = self.peers(at).is_there(&cell.name.owner);
        let borrowed = &mut self.nodes[at].borrowed;
        match borrowed.want(&cell.name, token, is_there) {
            Want::Ask => self.say(at, cell.name.owner, Message::Want(cell.name)),
            Want::Wait => {
                let boot = self.nodes[at].boot;
                let unknown = Coming::Unknown(at, boot, cell.name, token);
                self.at(self.now + UNKNOWN, unknown);
            }
            Want::Known => {}
        }
    }

    pub(super) fn unknown(&mut self, at: usize, name: &ObjectName, token: Token) {
        let is_there = self.peers(at).is_there(&name.owner);
        let cell = self.nodes[at].borrowed.unknown(name, token, is_there);
        if let Some(cell) = cell.and_then(|cell| cell.upgrade())
            && !cell.has_ended()
        {
            assert!(cell.is_broken.get(), "{at}: the owner of {} lives", name.id);
            cell.end(Err(Failure::Lost(*name)));
        }
    }

    fn wanted(&mut self, at: usize, by: usize, name: ObjectName) {
        match self.lent_as(at, &name) {
            None => self.say(at, node_id(by), Message::Made(name, None)),
            Some(Loan(cell)) => {
                self.want(at, &cell);
                self.nodes[at].watching.push((by, cell));
            }
        }
    }

    /// What became of an object, for a node that wants to know.
    pub(super) fn tell(&mut self, at: usize, to: NodeId, cell: &Cell) -> CarriedResult {
        let value = cell.result().expect("it has ended")?;
        Ok(self.carry(at, to, &value))
    }

    /// The owner of an object says what became of it; `is_along`: beside something else.
    pub(super) fn made(
        &mut self,
        at: usize,
        from: usize,
        name: ObjectName,
        told: Option<CarriedResult>,
        is_along: bool,
    ) {
        let is_gone = told.is_none();
        let result = told.unwrap_or(Err(Failure::Lost(name)));
        let result = result.and_then(|carried| self.take(at, from, carried));
        let answer = match &result {
            Err(Failure::Lost(lost)) if *lost == name => Answer::Gone,
            Ok(_) | Err(_) => Answer::Ended,
        };
        let borrowed = &mut self.nodes[at].borrowed;
        let cell = match is_along {
            true => borrowed.announced(node_id(from), &name),
            false => borrowed.answered(node_id(from), &name, answer),
        };
        let Some(cell) = cell.and_then(|cell| cell.upgrade()) else {
            return;
        };
        if is_gone && !cell.has_ended() {
            self.seen.gone += 1;
            let is_broken = cell.is_broken.get();
            assert!(
                is_broken,
                "{at}: {} was not kept for those who have it",
                name.id
            );
        }
        cell.end(result);
    }

    pub(super) fn carry(&mut self, at: usize, to: NodeId, value: &Value) -> Carried {
        let names = value.names.iter().map(|cell| self.lend(at, to, cell));
        let names = names.collect();
        let body = self.body(at, value);
        Carried { body, names }
    }

    pub(super) fn body(&self, at: usize, value: &Value) -> Body {
        let me = node_id(at);
        let (id, owner, mut holders) = match &value.bytes {
            Bytes::Inline => return Body::Inline,
            Bytes::Stored(stored, _) => (*stored, me, vec![me]),
            Bytes::Remote(remote) => {
                let mut holders = remote.holders.borrow().clone();
                holders.extend(remote.here.borrow().is_some().then_some(me));
                (remote.id, remote.owner, holders)
            }
        };
        if owner == me {
            let others = self.nodes[at].holders.of(&id);
            let others = others.iter().filter(|it| !holders.contains(it));
            let others: Vec<_> = others.copied().collect();
            holders.extend(others);
        }
        Body::At { id, owner, holders }
    }

    /// A value that came in a message.
    pub(super) fn take(&mut self, at: usize, from: usize, carried: Carried) -> Ended {
        let names = carried.names.into_iter();
        let names: Vec<_> = names.map(|name| self.borrow(at, from, name)).collect();
        let home = &self.nodes[at].home;
        let bytes = match carried.body {
            Body::Inline => Bytes::Inline,
            Body::At { id, owner, holders } => Bytes::Remote(Remote {
                id,
                owner,
                keepers: match owner == node_id(at) {
                    true => Keepers::new(&holders, &home.peers.borrow()).into(),
                    false => Keepers::default().into(),
                },
                holders: holders.into(),
                here: None.into(),
                origin: None.into(),
                reconstructed: None.into(),
                home: home.clone(),
            }),
        };
        // Also where it is of no use: what is kept for us need not be.
        let names = names.into_iter().collect::<Result<_, _>>()?;
        let value = Rc::new(Value { bytes, names });
        if value.as_remote().is_some() {
            let mut remotes = home.remotes.borrow_mut();
            remotes.retain(|it| it.strong_count() > 0);
            remotes.push(Rc::downgrade(&value));
        }
        Ok(value)
    }

    /// A value that is made here.
    pub(super) fn value(
        &self,
        at: usize,
        id: ObjectId,
        is_large: bool,
        names: Vec<Rc<Cell>>,
    ) -> Rc<Value> {
        let bytes = match is_large {
            true => Bytes::Stored(id, Copy::new(&self.nodes[at].home, id)),
            false => Bytes::Inline,
        };
        Rc::new(Value { bytes, names })
    }

    /// What follows from what has just happened, until nothing does.
    pub(super) fn follow(&mut self) {
        for at in 0..self.nodes.len() {
            while self.nodes[at].is_up
                && (self.say_dropped(at) | self.tell_watchers(at) | self.go_on(at))
            {}
        }
    }

    fn say_dropped(&mut self, at: usize) -> bool {
        let home = self.nodes[at].home.clone();
        let next = || {
            let mut todo = home.todo.borrow_mut();
            (!todo.is_empty()).then(|| todo.remove(0))
        };
        let mut has_more = false;
        while let Some(todo) = next() {
            has_more = true;
            match todo {
                Todo::Say(to, message) => self.say(at, to, message),
                Todo::Dropped(name, token) => {
                    let mut lenders = self.nodes[at].borrowed.dropped(&name, token);
                    for (lender, count) in lenders.give_back() {
                        self.say(at, lender, Message::Release(name, count));
                    }
                }
            }
        }
        has_more
    }

    fn tell_watchers(&mut self, at: usize) -> bool {
        let watching = &mut self.nodes[at].watching;
        let ended: Vec<_> = watching
            .extract_if(.., |(_, cell)| cell.has_ended())
            .collect();
        for (by, cell) in &ended {
            let told = self.tell(at, node_id(*by), cell);
            self.say(at, node_id(*by), Message::Made(cell.name, Some(told)));
        }
        !ended.is_empty()
    }
}
