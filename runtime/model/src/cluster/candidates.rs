//! The nodes that can serve a request, in order, without looking at all of them.
//!
//! Owns one index per *placement class*: what is asked for, of which nodes, and in which order. Must
//! not: choose.
//!
//! Invariants: a fresh index holds exactly the nodes that fit, as a look at every node would find
//! them. An index is brought up to date when somebody asks, from the log of changed nodes: it looks
//! again only at those, once each; where the log does not reach back, it looks at every node.
//!
//! Cost, for n nodes of which c changed since the class was asked for last: c judgements and O(c √n)
//! to sort them in, and a choice is O(√n), all with small constants. At most [`INDEXES_MAX`] classes
//! are kept; when more are in use by turns, the one not asked for the longest goes, and costs a look
//! at every node (O(n log n)) when it comes back.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use super::name::NodeIx;
use super::node::Basis;
use super::order;
use super::selector::Selector;
use super::sorted::SortedKeys;
use super::table::Nodes;
use crate::id::{Digest, NodeId};
use crate::resource::Request;

/// The most placement classes that are kept.
const INDEXES_MAX: usize = 256;

/// Which nodes an index holds, and by what they are sorted before their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// Those that can serve it now, by score, then local first, then those that run the module.
    Score,
    /// Those that can serve it now, by nothing else.
    Id,
    /// Those that can ever serve it, by how long it would wait behind their queues.
    Wait,
}

/// What an index is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Class<'a> {
    pub request: &'a Request,
    pub selector: Option<&'a Selector>,
    /// Only with [`By::Score`], where it makes a difference.
    pub module: Option<&'a Digest>,
    pub basis: Basis,
    pub by: By,
}

/// The nodes of one class, in order.
#[derive(Debug)]
pub(super) struct Index {
    request: Request,
    selector: Option<Selector>,
    module: Option<Digest>,
    basis: Basis,
    by: By,
    hash: u64,
    /// By place: the key in `sorted`; [`NOT_IN`] for a node that is not there.
    keys: Vec<u128>,
    sorted: SortedKeys,
    /// The last entry of the log that was read; `None` if every node is to be looked at.
    seen: Option<u64>,
    generation: u64,
    used: u64,
    /// The node that the spread strategy chose last.
    pub cursor: Option<NodeId>,
}

/// No key: more than any.
const NOT_IN: u128 = u128::MAX;

impl Index {
    fn new(class: Class<'_>, hash: u64) -> Self {
        Self {
            request: class.request.clone(),
            selector: class.selector.cloned(),
            module: class.module.copied(),
            basis: class.basis,
            by: class.by,
            hash,
            keys: Vec::new(),
            sorted: SortedKeys::default(),
            seen: None,
            generation: 0,
            used: 0,
            cursor: None,
        }
    }

    fn is_of(&self, class: Class<'_>) -> bool {
        let own = Class {
            request: &self.request,
            selector: self.selector.as_ref(),
            module: self.module.as_ref(),
            basis: self.basis,
            by: self.by,
        };
        own == class
    }

    /// How many nodes it holds.
    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The node that `rank` nodes come before.
    pub(super) fn select(&self, rank: usize) -> Option<NodeIx> {
        self.sorted.select(rank).map(order::node)
    }

    /// What the node is sorted by before its id, if it is in.
    pub(super) fn major(&self, ix: NodeIx) -> Option<u64> {
        let key = self.keys.get(ix.index()).filter(|key| **key != NOT_IN);
        key.map(|key| order::major(*key))
    }

    /// The first node from this one on, in an index that is sorted by id alone.
    pub(super) fn first_from(&self, nodes: &Nodes, ix: NodeIx) -> Option<NodeIx> {
        debug_assert_eq!(self.by, By::Id);
        let key = nodes.order.key(0, ix);
        self.sorted.first_from(key).map(order::node)
    }

    /// The nodes in order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = NodeIx> {
        self.sorted.iter().map(order::node)
    }

    /// Where a node belongs, from what is known of it now.
    fn key_of(&self, nodes: &mut Nodes, ix: NodeIx) -> u128 {
        let Some(node) = nodes.get(ix) else {
            return NOT_IN;
        };
        let fits = match self.by {
            By::Score | By::Id => node.is_available(&self.request, self.basis),
            By::Wait => node.is_feasible(&self.request),
        };
        let is_looked_at = !node.is_closed() && (self.basis == Basis::TrulyFree || node.is_own());
        let matches = |selector: &Selector| selector.matches(node.labels());
        if !fits || !is_looked_at || !self.selector.as_ref().is_none_or(matches) {
            return NOT_IN;
        }
        let major = match self.by {
            By::Id => 0,
            By::Wait => node.queue_wait_us(&self.request),
            By::Score => {
                let module = self.module.as_ref();
                let runs = module.is_some_and(|module| node.modules().contains_key(module));
                let is_local = nodes.local == Some(ix);
                nodes.score(ix, self.basis) << 2 | u64::from(!is_local) << 1 | u64::from(!runs)
            }
        };
        nodes.order.key(major, ix)
    }

    fn refresh(&mut self, nodes: &mut Nodes) {
        let log = match self.by {
            By::Score | By::Id => &mut nodes.now,
            By::Wait => &mut nodes.later,
        };
        let end = log.read();
        let since = self.seen.replace(end);
        let is_current = self.generation == nodes.order.generation();
        self.generation = nodes.order.generation();
        let log = match self.by {
            By::Score | By::Id => &nodes.now,
            By::Wait => &nodes.later,
        };
        match since {
            Some(since) if since == end && is_current => {}
            Some(since) if is_current && log.reaches(since) => {
                let changed: SmallVec<[NodeIx; 32]> = log.since(since).collect();
                self.keys.resize(nodes.places(), NOT_IN);
                changed.into_iter().for_each(|ix| self.update(nodes, ix));
            }
            _ => self.rebuild(nodes),
        }
    }

    fn update(&mut self, nodes: &mut Nodes, ix: NodeIx) {
        let key = self.key_of(nodes, ix);
        let old = std::mem::replace(&mut self.keys[ix.index()], key);
        if old == key {
            return;
        }
        if old != NOT_IN {
            self.sorted.remove(old);
        }
        if key != NOT_IN {
            self.sorted.insert(key);
        }
    }

    fn rebuild(&mut self, nodes: &mut Nodes) {
        let places = u32::try_from(nodes.places()).expect("fewer than 2^32 nodes");
        self.keys = (0..places)
            .map(|ix| self.key_of(nodes, NodeIx(ix)))
            .collect();
        let keys = self.keys.iter().copied();
        let mut keys: Vec<u128> = keys.filter(|key| *key != NOT_IN).collect();
        self.sorted.rebuild(&mut keys);
    }
}

/// The indexes of all classes that were asked for lately.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    indexes: Vec<Index>,
    by_hash: BTreeMap<u64, SmallVec<[u32; 1]>>,
    clock: u64,
}

impl Indexes {
    /// The index of a class, up to date.
    pub(super) fn of(&mut self, class: Class<'_>, nodes: &mut Nodes) -> &mut Index {
        let mut hasher = Mixer::default();
        class.hash(&mut hasher);
        let at = self.find_or_add(class, hasher.finish());
        self.clock += 1;
        let index = &mut self.indexes[at];
        index.used = self.clock;
        index.refresh(nodes);
        index
    }

    fn find_or_add(&mut self, class: Class<'_>, hash: u64) -> usize {
        let same_hash = self.by_hash.entry(hash).or_default();
        let mut places = same_hash.iter().map(|at| *at as usize);
        if let Some(at) = places.find(|at| self.indexes[*at].is_of(class)) {
            return at;
        }
        let index = Index::new(class, hash);
        if self.indexes.len() < INDEXES_MAX {
            same_hash.push(self.indexes.len() as u32);
            self.indexes.push(index);
            return self.indexes.len() - 1;
        }
        let by_use = self
            .indexes
            .iter()
            .enumerate()
            .min_by_key(|(_, index)| index.used);
        let at = by_use.expect("there are INDEXES_MAX").0;
        let old = std::mem::replace(&mut self.indexes[at], index);
        self.by_hash.entry(hash).or_default().push(at as u32);
        // The same entry, if both have one hash: it has both now.
        let entry = self
            .by_hash
            .get_mut(&old.hash)
            .expect("every index is listed");
        let stale = entry.iter().position(|other| *other as usize == at);
        entry.remove(stale.expect("every index is listed"));
        if entry.is_empty() {
            self.by_hash.remove(&old.hash);
        }
        at
    }
}

/// A hash that is quick and the same in every run (the mixing step of Firefox's). Nothing but speed
/// depends on it, and a class that collides with others costs a comparison with each, of at most
/// [`INDEXES_MAX`].
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
