//! What must be so, at each step and at the end.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use wasmrun_control::membership::{Member, member};
use wasmrun_control::records::{self, GROUPS, NAMED, NODES, Record as _, TASKS};
use wasmrun_control::simulated::{Process, Time};
use wasmrun_control::{Condition, ControlStore, Embedded, LeaseId, Op, Range, Txn, TxnReply};
use wasmrun_model::id::{ActorId, GroupId, Incarnation, NodeId, TaskId};

use super::super::members::NodeRecord;
use super::super::records::{RecordId, parts};
use super::names;
use super::node::Said;
use crate::guests::claim::Claim;

/// What was promised of one record.
#[derive(Debug, Clone, Default)]
struct Promised {
    /// The changes that were acknowledged.
    changes: u64,
    /// How many have decided that it is to end, who may have believed to own it at the same time.
    ends: u32,
    /// That it has ended was acknowledged.
    has_ended: bool,
}

#[derive(Default)]
struct State {
    trace: Vec<String>,
    violation: Option<String>,
    /// By prefix and id.
    promised: BTreeMap<String, Promised>,
    /// What each record said last.
    said: BTreeMap<String, Said>,
    /// Which process each node was last registered by, under which lease and as what.
    registered: BTreeMap<NodeId, (Process, LeaseId, Incarnation)>,
    /// Which node each process is of.
    nodes: BTreeMap<Process, NodeId>,
    moves: u64,
    /// Which names actors were given and have not given back, by which process, and under which lease at last.
    names: BTreeMap<(String, ActorId), (Process, LeaseId)>,
}

/// See the module.
pub(super) struct Oracle {
    time: Arc<Time>,
    is_loud: bool,
    state: Mutex<State>,
}

fn thing(prefix: &str, id: impl Display) -> String {
    format!("{prefix}{id}")
}

/// The owner and the id in the key of a record.
fn owner_of(key: &[u8]) -> Option<(NodeId, String)> {
    if key.starts_with(TASKS.as_bytes()) {
        let (owner, id) = parts::<TaskId>(key)?;
        return Some((owner, thing(TaskId::PREFIX, id)));
    }
    let (owner, id) = parts::<GroupId>(key)?;
    Some((owner, thing(GroupId::PREFIX, id)))
}

impl Oracle {
    pub(super) fn new(time: &Arc<Time>, is_loud: bool) -> Arc<Self> {
        Arc::new(Self {
            time: time.clone(),
            is_loud,
            state: Mutex::default(),
        })
    }

    pub(super) fn note(&self, what: impl Display) {
        let line = format!("{} {what}", self.time.now());
        if self.is_loud {
            eprintln!("{line}");
        }
        self.state.lock().trace.push(line);
    }

    /// Something is not as it must be; the first of it counts.
    pub(super) fn violated(&self, why: impl Display) {
        self.note(format_args!("VIOLATED: {why}"));
        let mut state = self.state.lock();
        let why = format!("{}: {why}", self.time.now());
        state.violation.get_or_insert(why);
    }

    /// # Panics
    /// If something was not as it must be.
    pub(super) fn check(&self) {
        if let Some(why) = &self.state.lock().violation {
            panic!("{why}");
        }
    }

    pub(super) fn trace(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().trace)
    }

    pub(super) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// A process of a node begins.
    pub(super) fn begins(&self, process: Process, node: NodeId) {
        self.state.lock().nodes.insert(process, node);
    }

    pub(super) fn promises(&self, prefix: &str, id: impl Display, said: Said) {
        let thing = thing(prefix, id);
        self.note(format_args!(
            "{thing} is kept with {} changes",
            said.changes
        ));
        let mut state = self.state.lock();
        let promised = state.promised.entry(thing).or_default();
        promised.changes = promised.changes.max(said.changes);
    }

    pub(super) fn ends(&self, prefix: &str, id: impl Display) {
        let thing = thing(prefix, id);
        self.note(format_args!("{thing} is to end"));
        self.state.lock().promised.entry(thing).or_default().ends += 1;
    }

    /// That a record is deleted was acknowledged.
    pub(super) fn ended(&self, prefix: &str, id: impl Display) {
        let thing = thing(prefix, id);
        self.note(format_args!("{thing} has ended"));
        let is_there = self.state.lock().said.contains_key(&thing);
        if is_there {
            self.violated(format_args!("{thing} has ended, and is there"));
        }
        self.state
            .lock()
            .promised
            .entry(thing)
            .or_default()
            .has_ended = true;
    }

    /// A record that was to end has another owner, who goes on with it.
    pub(super) fn lives_on(&self, prefix: &str, id: impl Display) {
        let thing = thing(prefix, id);
        self.note(format_args!("{thing} is another's, and lives on"));
        self.state.lock().promised.entry(thing).or_default().ends -= 1;
    }

    /// A process is no more, and all its actors with it.
    pub(super) fn dies(&self, process: Process) {
        let mut state = self.state.lock();
        state.names.retain(|_, (of, _)| *of != process);
    }

    /// An actor was given a name, or has it in another incarnation of its node.
    pub(super) fn named(&self, process: Process, name: &str, actor: ActorId, lease: LeaseId) {
        self.note(format_args!("{process}: {actor} has the name {name}"));
        let names = &mut self.state.lock().names;
        names.insert((name.to_owned(), actor), (process, lease));
    }

    /// An actor has its name no more: it has ended, or never came to be.
    pub(super) fn unnamed(&self, name: &str, actor: ActorId) {
        self.note(format_args!("{actor} gives the name {name} back"));
        self.state.lock().names.remove(&(name.to_owned(), actor));
    }

    /// An actor finds its name taken in an incarnation of its node under this lease.
    pub(super) fn loses(&self, name: &str, actor: ActorId, lease: Option<LeaseId>) {
        let state = self.state.lock();
        let held = state.names.get(&(name.to_owned(), actor));
        let is_same_incarnation = held.is_some_and(|(_, under)| Some(*under) == lease);
        drop(state);
        if is_same_incarnation {
            self.violated(format_args!(
                "{actor} loses the name {name} in the incarnation in which it got it"
            ));
        }
    }

    /// All names that actors have.
    pub(super) fn names(&self) -> Vec<(String, ActorId)> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// A claim is put into the store, or deleted there. Who has the name while its node holds its lease keeps it.
    fn claimed(&self, key: &Bytes, by: Option<ActorId>, txn: &Txn, store: &Embedded) {
        let is_compared = |actor: &ActorId| {
            txn.compares.iter().any(|it| match &it.condition {
                Condition::Value(value) if it.key == *key => {
                    Claim::from_value(value).expect("it is a claim").actor == *actor
                }
                _ => false,
            })
        };
        let state = self.state.lock();
        let others = state.names.iter().filter(|((name, actor), _)| {
            names::key(name) == *key && by != Some(*actor) && (by.is_some() || is_compared(actor))
        });
        let alive = others.filter(|(_, (process, lease))| {
            let node = state.nodes.get(process).expect("it has begun");
            let entry = now(store.get(&records::node(*node)));
            entry.is_some_and(|entry| entry.lease == Some(*lease))
        });
        let taken = alive.map(|((name, actor), _)| format!("{name} is taken from {actor}"));
        let taken: Vec<_> = taken.collect();
        drop(state);
        taken.into_iter().for_each(|why| self.violated(why));
    }

    /// A transaction was made.
    pub(super) fn made(&self, from: Process, store: &Embedded, txn: &Txn, reply: &TxnReply) {
        let ops = if reply.succeeded {
            &txn.then
        } else {
            &txn.otherwise
        };
        let changes: Vec<_> = ops
            .iter()
            .filter(|op| !matches!(op, Op::Get { .. }))
            .collect();
        let shown: Vec<String> = changes.iter().map(|op| show(op)).collect();
        let result = if reply.succeeded { "" } else { "not " };
        self.note(format_args!(
            "{from}, revision {}: {result}as compared: {}",
            reply.revision,
            shown.join(", ")
        ));
        let me = self.state.lock().nodes.get(&from).copied();
        let Some(me) = me else {
            return;
        };
        for op in changes {
            match op {
                Op::Put { key, value, lease } if key.starts_with(NODES.as_bytes()) => {
                    self.registered(from, me, value, *lease);
                }
                Op::Put { key, value, .. } if key.starts_with(NAMED.as_bytes()) => {
                    let claim = Claim::from_value(value).expect("it is a claim");
                    self.claimed(key, Some(claim.actor), txn, store);
                }
                Op::Put { key, value, .. } => {
                    if let Some((owner, thing)) = owner_of(key) {
                        self.writes(from, me, owner, store);
                        self.put(&thing, Said::from_value(value), txn);
                    }
                }
                Op::Delete { key } if key.starts_with(NAMED.as_bytes()) => {
                    self.claimed(key, None, txn, store);
                }
                Op::Delete { key } => {
                    if let Some((owner, thing)) = owner_of(key) {
                        self.writes(from, me, me, store);
                        self.deleted(me, owner, &thing, store, txn);
                    }
                }
                Op::Get { .. } => {}
            }
        }
    }

    fn registered(&self, from: Process, me: NodeId, value: &Bytes, lease: Option<LeaseId>) {
        let entry: Member<NodeRecord> = member(value).expect("it is a member");
        let Some(lease) = lease else {
            return self.violated(format_args!("{from} is registered under no lease"));
        };
        let new = (from, lease, entry.incarnation);
        let old = self.state.lock().registered.insert(me, new);
        if let Some((_, _, incarnation)) = old
            && incarnation >= entry.incarnation
        {
            self.violated(format_args!(
                "{from} is registered as {} after {incarnation}",
                entry.incarnation
            ));
        }
    }

    /// A process has changed a record of an owner.
    fn writes(&self, from: Process, me: NodeId, owner: NodeId, store: &Embedded) {
        if owner != me {
            self.violated(format_args!("{from} makes a record of node {owner}"));
        }
        let entry = now(store.get(&records::node(me)));
        let registered = self.state.lock().registered.get(&me).copied();
        let is_alive = match (entry, registered) {
            (Some(entry), Some((process, lease, _))) => {
                process == from && entry.lease == Some(lease)
            }
            _ => false,
        };
        if !is_alive {
            self.violated(format_args!("{from} writes in an incarnation that is over"));
        }
    }

    fn put(&self, thing: &str, said: Said, txn: &Txn) {
        let mut state = self.state.lock();
        let is_move = txn.then.iter().any(
            |op| matches!(op, Op::Delete { key } if owner_of(key).is_some_and(|it| it.1 == thing)),
        );
        let before = state.said.insert(thing.to_owned(), said);
        state.moves += u64::from(is_move);
        let has_ended = state.promised.get(thing).is_some_and(|it| it.has_ended);
        drop(state);
        if has_ended {
            self.violated(format_args!("{thing} has ended, and is back"));
        }
        match before {
            Some(before) if is_move && said.takeovers != before.takeovers + 1 => {
                self.violated(format_args!(
                    "{thing}: {before:?} is taken over as {said:?}"
                ));
            }
            None if is_move => self.violated(format_args!("{thing} is taken over from nobody")),
            _ => {}
        }
    }

    fn deleted(&self, me: NodeId, owner: NodeId, thing: &str, store: &Embedded, txn: &Txn) {
        if owner == me {
            // What is not there any more is as good as deleted; where another has it, that one's stays.
            let is_elsewhere = self.keys(store).iter().any(|(_, it, _)| it == thing);
            if !is_elsewhere {
                self.state.lock().said.remove(thing);
            }
            return;
        }
        if now(store.get(&records::node(owner))).is_some() {
            self.violated(format_args!(
                "{thing} is taken from node {owner}, which lives"
            ));
        }
        let is_put = |op: &Op| matches!(op, Op::Put { key, .. } if owner_of(key).is_some_and(|it| it.1 == thing));
        if !txn.then.iter().any(is_put) {
            self.violated(format_args!(
                "{thing} of node {owner} is deleted by another"
            ));
        }
    }

    /// All records: whose, which, and what they say.
    pub(super) fn keys(&self, store: &Embedded) -> Vec<(NodeId, String, Said)> {
        let mut all = Vec::new();
        for prefix in [TASKS, GROUPS] {
            let mut range = Range::prefix(prefix);
            loop {
                let page = now(store.range(range.clone()));
                all.extend(page.entries.iter().filter_map(|entry| {
                    let (owner, thing) = owner_of(&entry.key)?;
                    Some((owner, thing, Said::from_value(&entry.value)))
                }));
                match page.next {
                    Some(next) => range.from = next,
                    None => break,
                }
            }
        }
        all
    }

    /// What was promised and is not there, of what is there.
    pub(super) fn lacking(&self, there: &BTreeMap<String, Said>) -> Option<String> {
        let state = self.state.lock();
        for (thing, promised) in &state.promised {
            match there.get(thing) {
                Some(_) if promised.has_ended => {
                    return Some(format!("{thing} has ended, and is there"));
                }
                Some(said) if said.changes < promised.changes => {
                    let changes = promised.changes;
                    return Some(format!("{thing} was kept with {changes} changes: {said:?}"));
                }
                None if promised.ends == 0 && promised.changes > 0 => {
                    return Some(format!("{thing} was kept, and is lost"));
                }
                _ => {}
            }
        }
        None
    }
}

/// What the store says at once, as one without a disk does.
fn now<T>(asked: impl Future<Output = Result<T, wasmrun_control::Error>>) -> T {
    let said = asked.now_or_never().expect("it waits for nothing");
    said.expect("the store is there")
}

fn show(op: &Op) -> String {
    match op {
        Op::Get { key } => format!("?{}", key.escape_ascii()),
        Op::Put { key, value, lease } => {
            let lease = lease.map_or(String::new(), |it| format!(" under {it}"));
            let value = &value[..value.len().min(40)];
            format!("+{}={}{lease}", key.escape_ascii(), value.escape_ascii())
        }
        Op::Delete { key } => format!("-{}", key.escape_ascii()),
    }
}
