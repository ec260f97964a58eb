//! The objects of other nodes that are named at this one.
//!
//! Owns whom each of them is to be given back to, and what was asked of its owner. Must not: know what stands for an
//! object here; whoever calls makes that, and says when it is gone.

use std::collections::BTreeMap;

use super::lenders::{Lenders, Taken};
use crate::id::{NodeId, ObjectName};

/// Which of the things that had one name, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

/// What is to be done for somebody here who wants an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Its owner is to be asked what becomes of it.
    Ask,
    /// Its owner is not known (yet): [`Borrowed::unknown`] after a while.
    Wait,
    /// Nothing: that was done before.
    Known,
}

/// What the owner of an object answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What became of it: its value, or why there is none.
    Ended,
    /// Nobody has it.
    Gone,
}

/// What is named here and others own. `C` is what stands for it.
///
/// Invariants: a name stands for one thing at a time, however often it comes in. What is owed to lenders is given
/// back once, when that is gone.
#[derive(Debug)]
pub struct Borrowed<C> {
    names: BTreeMap<ObjectName, Entry<C>>,
    /// Borrowed from earlier incarnations of owners, and still referenced here.
    past: BTreeMap<(ObjectName, Token), Lenders>,
    last: u64,
}

#[derive(Debug)]
struct Entry<C> {
    now: Option<Now<C>>,
    /// How often the owner was asked and has not answered.
    asked: u32,
}

#[derive(Debug)]
struct Now<C> {
    token: Token,
    cell: C,
    lenders: Lenders,
    is_wanted: bool,
}

impl<C> Default for Borrowed<C> {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            past: BTreeMap::new(),
            last: 0,
        }
    }
}

impl<C: Clone> Borrowed<C> {
    /// An incarnation of a node begins. Which of its objects are wanted here already: the caller asks it for them.
    pub fn joined(&mut self, node: NodeId) -> Vec<ObjectName> {
        let of_it = self.names.iter_mut().filter(|(name, entry)| {
            name.owner == node && entry.now.as_ref().is_some_and(|now| now.is_wanted)
        });
        let of_it = of_it.map(|(name, entry)| {
            entry.asked += 1;
            *name
        });
        of_it.collect()
    }

    /// An incarnation of a node is over. Its objects that are not known here are lost: they are returned, to be ended.
    ///
    /// Its next incarnation is owed no releases of this one. It may use the same names for other objects, while those of
    /// this one are still referenced here.
    pub fn left(&mut self, node: NodeId) -> Vec<C> {
        for lenders in self.past.values_mut() {
            lenders.remove_node(node);
        }
        let mut over = Vec::new();
        for (name, entry) in self.names.extract_if(.., |name, _| name.owner == node) {
            let Some(mut now) = entry.now else {
                continue;
            };
            now.lenders.remove_node(node);
            self.past.insert((name, now.token), now.lenders);
            over.push(now.cell);
        }
        let others = self.names.values_mut().filter_map(|it| it.now.as_mut());
        others.for_each(|now| now.lenders.remove_node(node));
        over
    }

    /// A node has named another one's object to us, and keeps it for us. `live` says what stands for it, if that is
    /// not gone; `make` makes it anew.
    pub fn take<T>(
        &mut self,
        from: NodeId,
        name: ObjectName,
        live: impl FnOnce(&C) -> Option<T>,
        make: impl FnOnce(Token) -> (C, T),
    ) -> (T, Taken) {
        // An object of an earlier incarnation with that name may have been passed on from here. The sender may mean that
        // one.
        let mut past = self.past.range((name, Token(0))..=(name, Token(u64::MAX)));
        let lenders = match past.next() {
            Some(_) => Lenders::owner_only,
            None => Lenders::default,
        };
        let (it, now) = self.named(name, lenders, live, make);
        let taken = now.lenders.take(from, name.owner);
        (it, taken)
    }

    /// As [`Borrowed::take`], where nobody keeps it for us before the owner is asked to.
    pub fn take_unlent<T>(
        &mut self,
        name: ObjectName,
        live: impl FnOnce(&C) -> Option<T>,
        make: impl FnOnce(Token) -> (C, T),
    ) -> T {
        self.named(name, Lenders::owner_only, live, make).0
    }

    fn named<T>(
        &mut self,
        name: ObjectName,
        lenders: impl FnOnce() -> Lenders,
        live: impl FnOnce(&C) -> Option<T>,
        make: impl FnOnce(Token) -> (C, T),
    ) -> (T, &mut Now<C>) {
        let entry = self.names.entry(name).or_insert(Entry {
            now: None,
            asked: 0,
        });
        if let Some(now) = &mut entry.now
            && let Some(it) = live(&now.cell)
        {
            let now = entry.now.as_mut().expect("it is there");
            return (it, now);
        }
        self.last += 1;
        let token = Token(self.last);
        let (cell, it) = make(token);
        // What stood for it is gone and has not said so yet. What it owed is owed by this.
        let lenders = match entry.now.take() {
            Some(before) => before.lenders,
            None => lenders(),
        };
        let now = entry.now.insert(Now {
            token,
            cell,
            lenders,
            is_wanted: false,
        });
        (it, now)
    }

    /// What stands for an object of another node's now.
    pub fn get(&self, name: &ObjectName) -> Option<&C> {
        let now = self.names.get(name)?.now.as_ref()?;
        Some(&now.cell)
    }

    /// What stands for an object is gone. What is to be given back, to whom, how often.
    pub fn dropped(&mut self, name: &ObjectName, token: Token) -> Lenders {
        if let Some(entry) = self.names.get_mut(name)
            && let Some(now) = entry.now.take_if(|now| now.token == token)
        {
            if entry.asked == 0 {
                self.names.remove(name);
            }
            return now.lenders;
        }
        self.past.remove(&(*name, token)).unwrap_or_default()
    }

    /// A reader here waits for an object. `is_there`: whether its owner is ([`Peers::is_there`]). If not, its
    /// [`Self::joined`] comes after this.
    ///
    /// [`Peers::is_there`]: super::Peers::is_there
    pub fn want(&mut self, name: &ObjectName, token: Token, is_there: bool) -> Want {
        let Some(entry) = self.names.get_mut(name) else {
            return Want::Known;
        };
        let Some(now) = entry.now.as_mut().filter(|now| now.token == token) else {
            return Want::Known;
        };
        if std::mem::replace(&mut now.is_wanted, true) {
            return Want::Known;
        }
        match is_there {
            true => {
                entry.asked += 1;
                Want::Ask
            }
            false => Want::Wait,
        }
    }

    /// A while has gone by since [`Want::Wait`]. What is to be ended: its owner has not come.
    pub fn unknown(&self, name: &ObjectName, token: Token, is_there: bool) -> Option<C> {
        if is_there {
            // It was asked when it came.
            return None;
        }
        let now = self.names.get(name)?.now.as_ref();
        now.filter(|now| now.token == token)
            .map(|now| now.cell.clone())
    }

    /// A node has said what becomes of an object. What is to be ended so.
    ///
    /// That nobody has it may be the answer to a question of before, when nobody did: it counts only if it is
    /// the last that is awaited, and somebody wants it now.
    pub fn answered(&mut self, from: NodeId, name: &ObjectName, answer: Answer) -> Option<C> {
        if name.owner != from {
            return None;
        }
        let entry = self.names.get_mut(name)?;
        entry.asked = entry.asked.saturating_sub(1);
        let is_last = entry.asked == 0;
        let Some(now) = &entry.now else {
            if is_last {
                self.names.remove(name);
            }
            return None;
        };
        let counts = match answer {
            Answer::Ended => true,
            Answer::Gone => is_last && now.is_wanted,
        };
        counts.then(|| now.cell.clone())
    }

    /// A node has said what became of an object of its own, beside something else. What is to be ended so: nobody
    /// need ask.
    pub fn announced(&mut self, from: NodeId, name: &ObjectName) -> Option<C> {
        let entry = self.names.get_mut(name).filter(|_| name.owner == from)?;
        let now = entry.now.as_mut()?;
        now.is_wanted = true;
        Some(now.cell.clone())
    }

    /// How often a node has given us a name and was not given it back.
    pub fn count(&self, from: NodeId, name: &ObjectName) -> u64 {
        let now = self.names.get(name).and_then(|entry| entry.now.as_ref());
        let now = now.map(|now| &now.lenders);
        let past = self.past.iter().filter(|((it, _), _)| it == name);
        let all = now.into_iter().chain(past.map(|(_, lenders)| lenders));
        all.map(|lenders| lenders.count(from)).sum()
    }

    /// All that have a name now, and who keeps them for us.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectName, &C, &Lenders)> {
        let all = self.names.iter();
        all.filter_map(|(name, entry)| {
            let now = entry.now.as_ref()?;
            Some((name, &now.cell, &now.lenders))
        })
    }

    /// Whether nothing is named and nothing awaited.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.past.is_empty()
    }
}
