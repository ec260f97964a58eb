//! Bringing the bytes of objects: what a [`Search`] says is done, by questions that are answered at once or not at all.

use std::rc::Rc;
use std::time::Duration;

use wasmrun_model::id::{NodeId, ObjectId, TaskId};
use wasmrun_model::reference::{Next, OwnerSaid, Search};

use super::{Coming, World};
use crate::things::{
    Body, Bytes, Cell, Copy, Failure, Loan, Message, Remote, Value, at_of, node_id,
};

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Done {
    /// A driver, which has all that is named in it from then on.
    Driver,
    /// This attempt of a task.
    Run((usize, TaskId), u32),
    /// The owner, for this reader of a node in that process.
    Asked(usize, u64, u64),
}

/// What a reader is to do.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Bring,
    Ask,
    Reconstruct,
    Waited,
    /// The owner has answered: who has it.
    Told(Result<Vec<NodeId>, Failure>),
}

pub(super) struct Reader {
    cell: Rc<Cell>,
    value: Rc<Value>,
    search: Search,
    done: Done,
    state: State,
}

enum State {
    Acts,
    /// For the owner to have it reconstructed.
    Awaits(usize),
    /// For a task to run again, and which ones do.
    Reconstructs(Rc<Cell>, Vec<TaskId>),
}

impl Reader {
    fn remote(&self) -> &Remote {
        self.value.as_remote().expect("what is elsewhere is read")
    }

    pub(super) fn name(&self) -> ObjectId {
        self.remote().id
    }
}

impl World {
    /// Has the bytes of an object here.
    pub(super) fn read(&mut self, at: usize, cell: Rc<Cell>, done: Done) {
        self.seen.reads += 1;
        let Some(Ok(value)) = cell.result() else {
            unreachable!("there is something to read")
        };
        if value.is_here() {
            return self.has_read(at, &value, done, Ok(()));
        }
        let remote = value.as_remote().expect("it is not here");
        let search = Search::new(node_id(at), remote.owner);
        let reader = Reader {
            cell,
            search,
            done,
            state: State::Acts,
            value: value.clone(),
        };
        self.counter += 1;
        let number = self.counter;
        self.nodes[at].readers.insert(number, reader);
        self.act(at, number, Act::Bring);
    }

    fn act(&mut self, at: usize, reader: u64, act: Act) {
        let boot = self.nodes[at].boot;
        self.come(1, 20, Coming::Read(at, boot, reader, act));
    }

    fn act_in(&mut self, at: usize, reader: u64, pause: Duration, act: Act) {
        let boot = self.nodes[at].boot;
        let us = Duration::from_micros(self.random.below(5_000) as u64);
        self.at(self.now + pause + us, Coming::Read(at, boot, reader, act));
    }

    fn next(&mut self, at: usize, number: u64, next: Next) {
        match next {
            Next::Bring => self.act(at, number, Act::Bring),
            Next::AskOwner => self.act(at, number, Act::Ask),
            Next::Reconstruct(pause) => self.act_in(at, number, pause, Act::Reconstruct),
            Next::Pause(pause, silent) => {
                self.seen.silent += silent.len() as u64;
                self.act_in(at, number, pause, Act::Waited);
            }
            Next::Lost => {
                let name = self.nodes[at].readers[&number].cell.name;
                self.end_reader(at, number, Err(Failure::Lost(name)));
            }
        }
    }

    pub(super) fn read_on(&mut self, at: usize, number: u64, act: Act) {
        let Some(reader) = self.nodes[at].readers.get_mut(&number) else {
            return;
        };
        if reader.value.is_here() {
            return self.end_reader(at, number, Ok(()));
        }
        match act {
            Act::Bring => self.bring(at, number),
            Act::Ask => self.ask(at, number),
            Act::Waited => {
                let next = reader.search.waited();
                self.next(at, number, next);
            }
            Act::Reconstruct => self.reconstruct(at, number),
            Act::Told(told) => {
                reader.state = State::Acts;
                match told {
                    Ok(holders) => self.owner_said(at, number, holders),
                    Err(failure) => self.end_reader(at, number, Err(failure)),
                }
            }
        }
    }

    fn bring(&mut self, at: usize, number: u64) {
        let me = node_id(at);
        let reader = &self.nodes[at].readers[&number];
        let (remote, mut gone) = (reader.remote(), reader.search.misses().to_vec());
        let (id, owner) = (remote.id, remote.owner);
        let mut holders = remote.holders.borrow().clone();
        if owner == me {
            holders.extend(self.nodes[at].holders.of(&id));
        }
        // Another incarnation of this node may have been one of them.
        holders.retain(|it| *it != me && !gone.contains(it));
        let mut silent = Vec::new();
        while !holders.is_empty() {
            let holder = holders.swap_remove(self.random.below(holders.len()));
            let node = at_of(holder);
            let known = self.nodes[at].known.get(&node).copied();
            let other = &self.nodes[node];
            let is_heard =
                other.is_up && known == Some(other.incarnation) && !self.is_cut(at, node);
            if is_heard && other.home.has(&id) {
                self.seen.brought += 1;
                let home = self.nodes[at].home.clone();
                let remote = self.nodes[at].readers[&number].remote();
                remote.here.replace(Some(Copy::new(&home, id)));
                if owner != me {
                    self.say(at, owner, Message::Holding(id, true));
                }
                return self.end_reader(at, number, Ok(()));
            }
            if !is_heard && known.is_some() {
                silent.push(holder);
            }
            gone.push(holder);
        }
        let reader = self.nodes[at].readers.get_mut(&number).expect("it reads");
        let can_be_reconstructed = reader.remote().origin.borrow().is_some();
        let next = reader
            .search
            .not_brought(gone, silent, can_be_reconstructed);
        self.next(at, number, next);
    }

    fn ask(&mut self, at: usize, number: u64) {
        let reader = self.nodes[at].readers.get_mut(&number).expect("it asks");
        let (name, cell) = (reader.cell.name, reader.cell.clone());
        let gone = reader.search.misses().to_vec();
        let owner = at_of(reader.remote().owner);
        let known = self.nodes[at].known.get(&owner).copied();
        let Some(known) = known else {
            assert!(cell.is_broken.get(), "{at}: the owner of {} lives", name.id);
            return self.end_reader(at, number, Err(Failure::Lost(name)));
        };
        let other = &mut self.nodes[owner];
        if !other.is_up || other.incarnation != known || self.is_cut(at, owner) {
            let reader = self.nodes[at].readers.get_mut(&number).expect("it asks");
            let next = reader.search.owner_said(OwnerSaid::Silent);
            return self.next(at, number, next);
        }
        for holder in &gone {
            self.nodes[owner].holders.set(*holder, name.id, false);
        }
        let found = self.lent_as(owner, &name);
        let Some((Loan(found), Some(Ok(value)))) = found.map(|it| (it.clone(), it.0.result()))
        else {
            assert!(
                cell.is_broken.get(),
                "{at}: {} was not kept for its reader",
                name.id
            );
            return self.end_reader(at, number, Err(Failure::Lost(name)));
        };
        if let Some(remote) = value.as_remote()
            && remote.holders.borrow().iter().all(|it| gone.contains(it))
            && !value.is_here()
        {
            self.seen.owner_reconstructed += 1;
            let boot = self.nodes[at].boot;
            let reader = self.nodes[at].readers.get_mut(&number).expect("it asks");
            reader.state = State::Awaits(owner);
            return self.read(owner, found, Done::Asked(at, boot, number));
        }
        let holders = self.holders(owner, &value);
        self.owner_said(at, number, holders);
    }

    fn holders(&self, at: usize, value: &Value) -> Vec<NodeId> {
        match self.body(at, value) {
            Body::At { holders, .. } => holders,
            Body::Inline => unreachable!("it is large"),
        }
    }

    fn owner_said(&mut self, at: usize, number: u64, holders: Vec<NodeId>) {
        let reader = self.nodes[at].readers.get_mut(&number).expect("it asks");
        let gone = reader.search.misses();
        let is_new = !holders.iter().all(|it| gone.contains(it));
        reader.remote().holders.replace(holders);
        let next = reader.search.owner_said(OwnerSaid::At { is_new });
        self.next(at, number, next);
    }

    /// Makes an object of ours again that no node has any more.
    fn reconstruct(&mut self, at: usize, number: u64) {
        let reader = &self.nodes[at].readers[&number];
        let remote = reader.remote();
        let had = remote.holders.borrow().clone();
        let (id, origin) = (remote.id, remote.origin.borrow().clone());
        // One at a time: it is another who has it made.
        let readers = self.nodes[at].readers.values();
        let mut others = readers.filter(|it| Rc::ptr_eq(&it.value, &reader.value));
        if others.any(|it| matches!(it.state, State::Reconstructs(..))) {
            return self.act_in(at, number, Duration::from_millis(50), Act::Reconstruct);
        }
        let Some(recipe) = origin else {
            self.check_gone(at, id, &had);
            return self.end_reader(at, number, Err(Self::unrecoverable(id, had)));
        };
        self.seen.reconstructed += 1;
        let (cell, again) = self.run_again(at, recipe);
        let reader = self.nodes[at].readers.get_mut(&number).expect("it reads");
        reader.state = State::Reconstructs(cell, again);
    }

    /// Those that waited for a task to run again. Whether one goes on.
    pub(super) fn readers_go_on(&mut self, at: usize) -> bool {
        let readers = self.nodes[at].readers.iter();
        let mut ready = readers.filter(|(_, reader)| match &reader.state {
            State::Reconstructs(cell, _) => cell.has_ended(),
            State::Acts | State::Awaits(_) => false,
        });
        let Some(number) = ready.next().map(|(number, _)| *number) else {
            return false;
        };
        let reader = self.nodes[at]
            .readers
            .get_mut(&number)
            .expect("it is ready");
        let state = std::mem::replace(&mut reader.state, State::Acts);
        let State::Reconstructs(cell, again) = state else {
            unreachable!("it is ready")
        };
        match cell.result().expect("it has ended") {
            Ok(value) => {
                reader.remote().was_reconstructed(value);
                let next = reader.search.reconstructed();
                self.next(at, number, next);
            }
            Err(failure) => self.end_reader(at, number, Err(failure)),
        }
        self.reconstructed(at, &again);
        true
    }

    pub(super) fn readers_left(&mut self, at: usize, node: usize) {
        let readers = self.nodes[at].readers.iter();
        let waiting = readers.filter(|(_, it)| matches!(it.state, State::Awaits(it) if it == node));
        let waiting: Vec<_> = waiting
            .map(|(number, it)| (*number, it.cell.clone()))
            .collect();
        for (number, cell) in waiting {
            assert!(
                cell.is_broken.get(),
                "{at}: {} is lost with its owner",
                cell.name.id
            );
            self.end_reader(at, number, Err(Failure::Lost(cell.name)));
        }
    }

    fn end_reader(&mut self, at: usize, number: u64, result: Result<(), Failure>) {
        let reader = self.nodes[at]
            .readers
            .remove(&number)
            .expect("it ends once");
        if let State::Reconstructs(_, again) = &reader.state {
            self.reconstructed(at, again);
        }
        if let Err(failure) = &result {
            self.check_failure(at, &reader.cell, &reader.value, failure);
        }
        self.has_read_of(at, &reader.value, reader.done, result);
    }

    fn has_read_of(&mut self, at: usize, value: &Value, done: Done, result: Result<(), Failure>) {
        if let Done::Asked(by, boot, number) = done {
            let told = result.map(|()| self.holders(at, value));
            if self.is(by, boot) {
                let act = Coming::Read(by, boot, number, Act::Told(told));
                self.come(1, 20, act);
            }
            return;
        }
        self.has_read(at, value, done, result);
    }

    fn has_read(&mut self, at: usize, value: &Value, done: Done, result: Result<(), Failure>) {
        match done {
            Done::Driver => {
                let is_wanted = result.is_ok() && !self.has_ended;
                let names = value.names.iter().filter(|_| is_wanted);
                self.nodes[at].hands.extend(names.cloned());
            }
            Done::Run(key, attempt) => self.run_has_read(at, key, attempt, result),
            Done::Asked(..) => unreachable!("what is asked for is not here"),
        }
    }

    /// A copy that nobody reads makes room for another.
    pub(super) fn evict(&mut self, at: usize) {
        let home = self.nodes[at].home.clone();
        let values: Vec<_> = home
            .remotes
            .borrow()
            .iter()
            .filter_map(|it| it.upgrade())
            .collect();
        let copies = values.iter().filter_map(|value| match &value.bytes {
            Bytes::Remote(remote) if remote.reconstructed.borrow().is_none() => Some(remote),
            Bytes::Remote(_) | Bytes::Stored(..) | Bytes::Inline => None,
        });
        let copies: Vec<_> = copies.filter(|it| it.here.borrow().is_some()).collect();
        if copies.is_empty() {
            return;
        }
        let copy = copies[self.random.below(copies.len())];
        drop(copy.here.take());
        if copy.owner != node_id(at) {
            self.say(at, copy.owner, Message::Holding(copy.id, false));
        }
    }
}
