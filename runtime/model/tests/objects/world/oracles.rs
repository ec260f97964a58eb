//! What must hold.
//!
//! - What a node keeps for another is what that owes it, or has been told and has not heard, or has given back.
//! - What is kept for its owner is kept until that says that it need not be.
//! - What is named by somebody is kept for it, unless somebody between it and the owner was lost.
//! - What can be reconstructed is reconstructed; what cannot be is reported with those who had it.
//! - When nobody names anything any more, nothing is left.

use std::collections::BTreeMap;

use wasmrun_model::id::{NodeId, ObjectId, ObjectName};

use super::World;
use crate::things::{Cell, Failure, Message, Value, at_of, node_id};

impl World {
    /// Whether a node that has just named an object keeps it, and so do all up to its owner.
    pub(super) fn is_sound_from(&self, from: usize, to: usize, name: &ObjectName) -> bool {
        let sender = &self.nodes[from];
        let is_now = sender.is_up && self.nodes[to].known.get(&from) == Some(&sender.incarnation);
        let owner = at_of(name.owner);
        let lives = |at: usize| {
            let known = self.nodes[at].known.get(&owner);
            let of_owner = &self.nodes[owner];
            // Who has not heard of it will.
            let is_known = known.is_none_or(|incarnation| *incarnation == of_owner.incarnation);
            at == owner || of_owner.is_up && is_known
        };
        let me = node_id(to);
        let peers = sender.home.peers.borrow();
        let mut kept = peers.loans().filter(|(to, it, _)| *to == me && *it == name);
        let mut is_kept = || kept.any(|(_, _, kept)| kept.iter().any(|it| !it.0.is_broken.get()));
        is_now && lives(from) && lives(to) && is_kept()
    }

    /// An incarnation of a node ends: what it owned, had or passed on need not be kept from now on.
    pub(super) fn break_chains(&mut self, at: usize) {
        let id = node_id(at);
        for (name, cell, _) in self.nodes[at].borrowed.iter() {
            debug_assert!(name.owner != id);
            cell.upgrade().inspect(|cell| cell.is_broken.set(true));
        }
        loop {
            let mut has_changed = false;
            for (node, it) in self.nodes.iter().enumerate() {
                for (name, cell, lenders) in it.borrowed.iter() {
                    let Some(cell) = cell.upgrade().filter(|it| !it.is_broken.get()) else {
                        continue;
                    };
                    let is_sound = |lender: NodeId| {
                        let lender = at_of(lender);
                        lender != at && self.is_sound_from(lender, node, name)
                    };
                    if name.owner == id || !lenders.iter().any(is_sound) {
                        cell.is_broken.set(true);
                        has_changed = true;
                    }
                }
            }
            if !has_changed {
                return;
            }
        }
    }

    /// What is kept for somebody is what it has, or has been told, or gives back.
    pub(super) fn check_counts(&self) {
        let mut under_way: BTreeMap<(usize, usize, ObjectName), u64> = BTreeMap::new();
        for (((from, _), (to, _)), line) in &self.lines {
            for message in &line.messages {
                for name in message.lends() {
                    *under_way.entry((*from, *to, name)).or_default() += 1;
                }
                if let Message::Release(name, count) = message {
                    *under_way.entry((*to, *from, *name)).or_default() += count;
                }
            }
        }
        for (lender, it) in self.nodes.iter().enumerate() {
            let peers = it.home.peers.borrow();
            for (to, name, _) in peers.loans() {
                let to = at_of(to);
                let other = &self.nodes[to];
                let is_known = |one: usize, two: usize| {
                    self.nodes[one].known.get(&two) == Some(&self.nodes[two].incarnation)
                };
                if !other.is_up || !is_known(lender, to) || !is_known(to, lender) {
                    continue;
                }
                let has = other.borrowed.count(node_id(lender), name);
                let coming = under_way.get(&(lender, to, *name)).copied();
                let kept = peers.lent_times(node_id(to), name);
                let owed = has + coming.unwrap_or_default();
                assert_eq!(kept, owed, "{lender} keeps {} for {to}", name.id);
            }
        }
    }

    /// What was kept for its owner is, until that says that it need not be.
    pub(super) fn check_keepers(&self) {
        for (at, it) in self.nodes.iter().enumerate() {
            let remotes = it.home.remotes.borrow();
            let values: Vec<_> = remotes.iter().filter_map(|it| it.upgrade()).collect();
            let peers = it.home.peers.borrow();
            for remote in values.iter().filter_map(|value| value.as_remote()) {
                // Asked of a copy, so that nobody is told.
                let keepers = remote.keepers.borrow().clone().let_go(&peers);
                for keeper in keepers.into_iter().map(at_of) {
                    let other = &self.nodes[keeper];
                    let is_now = other.is_up && it.known.get(&keeper) == Some(&other.incarnation);
                    let is_known = other.known.get(&at) == Some(&it.incarnation);
                    let peers = other.home.peers.borrow();
                    let mut kept = peers.results();
                    let is_kept = kept.any(|(of, id, _)| of == node_id(at) && *id == remote.id);
                    let id = remote.id;
                    assert!(
                        !is_now || !is_known || is_kept,
                        "{keeper} does not keep {id} for {at}"
                    );
                }
            }
        }
    }

    /// An object of ours that cannot be reconstructed is reported as gone.
    pub(super) fn check_gone(&mut self, at: usize, id: ObjectId, had: &[NodeId]) {
        self.seen.named_holder += 1;
        assert!(!had.is_empty(), "{at}: nobody is named who had {id}");
        for holder in had {
            let other = &self.nodes[at_of(*holder)];
            let is_known = self.nodes[at].known.get(&at_of(*holder)) == Some(&other.incarnation);
            let has = other.is_up && is_known && other.home.has(&id);
            assert!(!has, "{at}: {id} is gone, and {holder} has it");
        }
    }

    /// A reader does not get an object.
    pub(super) fn check_failure(&self, at: usize, cell: &Cell, value: &Value, failure: &Failure) {
        let remote = value.as_remote().expect("it was looked for");
        let is_own = remote.owner == node_id(at);
        let id = remote.id;
        match failure {
            Failure::Lost(name) if *name == cell.name => {
                assert!(!is_own, "{at}: {id} is ours and lost without a word");
                assert!(
                    cell.is_broken.get(),
                    "{at}: {id} is lost, and all are there"
                );
            }
            Failure::Gone { id: gone, .. } if *gone == id => {
                let is_reconstructed = remote.origin.borrow().is_some();
                assert!(!is_reconstructed, "{at}: {id} could be made again");
            }
            // What it is made of.
            Failure::Lost(_) | Failure::Gone { .. } => {}
        }
    }

    /// All has ended, and nobody names anything.
    pub(super) fn check_rest(&self) {
        let mut left = Vec::new();
        for (at, it) in self.nodes.iter().enumerate() {
            let known = it.known.len() + 1;
            assert_eq!(known, self.nodes.len(), "{at} does not know all");
            let tasks = it.tasks.keys().map(|task| format!("task {task}"));
            let runs = it.runs.keys().map(|(_, task)| format!("run of {task}"));
            let readers = it
                .readers
                .values()
                .map(|it| format!("reader of {}", it.name()));
            let watching = it
                .watching
                .iter()
                .map(|(by, cell)| format!("{by} wants {}", cell.name.id));
            let reconstructing = it.reconstructing.keys().map(|task| format!("{task} again"));
            let peers = it.home.peers.borrow();
            let lent = peers
                .loans()
                .map(|(to, name, _)| format!("{} lent to {}", name.id, at_of(to)));
            let names = it.borrowed.iter().map(|(name, _, lenders)| {
                let of: Vec<_> = lenders.iter().map(at_of).collect();
                format!("{} of {of:?}", name.id)
            });
            let kept = peers
                .results()
                .map(|(of, id, _)| format!("{id} kept for {}", at_of(of)));
            let store = it.home.store.borrow();
            let bytes = store.keys().map(|id| format!("bytes of {id}"));
            let all = tasks
                .chain(runs)
                .chain(readers)
                .chain(watching)
                .chain(reconstructing);
            let all = all.chain(lent).chain(names).chain(kept).chain(bytes);
            left.extend(all.map(|what| format!("\n{at}: {what}")));
            let is_rest = it.borrowed.is_empty() && it.holders.is_empty();
            let cells = it.home.cells.get();
            if left.is_empty() && (!is_rest || cells > 0 || !it.gets.is_empty()) {
                left.push(format!(
                    "\n{at}: {cells} cells, {:?}, {:?}",
                    it.borrowed, it.holders
                ));
            }
        }
        assert!(
            left.is_empty(),
            "nobody needs anything, and something is left:{}",
            left.concat()
        );
    }
}
