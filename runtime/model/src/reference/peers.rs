//! The peers that are there, with the references of each.
//!
//! Owns one record per incarnation of a peer, from its join to its loss: the objects that it borrows from this node, and
//! the replicas of its results that are here. Must not: know what an object is, or drop one. A drop takes time and may come
//! back here, so the caller does it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::id::{NodeId, ObjectId, ObjectName};

/// The objects of one name: nearly always one. After the owner has begun a new incarnation, the name may stand for another
/// object while the first one is still borrowed.
pub type LentAs<K> = SmallVec<[K; 1]>;

/// One incarnation of a node, as this node has seen it: one that was out of sight in between counts as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenIncarnation(u64);

/// The peers of a node. `K`: an object that a peer borrows, since a message has named it. `V`: a result of a peer's task,
/// which stays here until its owner releases it.
#[derive(Debug)]
pub struct Peers<K, V> {
    there: BTreeMap<NodeId, Peer<K, V>>,
    /// How often one has joined.
    joined: u64,
}

/// The record of one incarnation of a peer.
#[derive(Debug)]
pub struct Peer<K, V> {
    incarnation: SeenIncarnation,
    lent: BTreeMap<ObjectName, Lending<K>>,
    /// Each with how often its owner has heard of it.
    kept: BTreeMap<ObjectId, (V, u64)>,
}

#[derive(Debug)]
struct Lending<K> {
    kept: LentAs<K>,
    count: u64,
}

impl<K, V> Default for Peers<K, V> {
    fn default() -> Self {
        let there = BTreeMap::new();
        Self { there, joined: 0 }
    }
}

impl<K, V> Peer<K, V> {
    /// Removes one of its results.
    pub fn take_kept(&mut self, object: &ObjectId) -> Option<V> {
        self.kept.remove(object).map(|(value, _)| value)
    }

    /// What it borrowed, and its results.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (Vec<K>, Vec<V>) {
        let lent = self.lent.into_values().flat_map(|lending| lending.kept);
        let kept = self.kept.into_values().map(|(value, _)| value);
        (lent.collect(), kept.collect())
    }
}

impl<K, V> Peers<K, V> {
    /// An incarnation of a node begins, or goes on after this node has lost sight of it.
    pub fn joined(&mut self, node: NodeId) {
        self.joined += 1;
        let peer = Peer {
            incarnation: SeenIncarnation(self.joined),
            lent: BTreeMap::new(),
            kept: BTreeMap::new(),
        };
        let before = self.there.insert(node, peer);
        debug_assert!(before.is_none(), "{node} has joined twice");
    }

    /// An incarnation of a node is over, or out of sight. Its record.
    pub fn left(&mut self, node: NodeId) -> Option<Peer<K, V>> {
        self.there.remove(&node)
    }

    /// Whether an incarnation of a node goes on, as far as is known here.
    pub fn is_there(&self, node: &NodeId) -> bool {
        self.there.contains_key(node)
    }

    pub(super) fn incarnation(&self, node: &NodeId) -> Option<SeenIncarnation> {
        self.there.get(node).map(|peer| peer.incarnation)
    }

    /// Whether no peer borrows anything, or has a result here.
    pub fn is_empty(&self) -> bool {
        let mut peers = self.there.values();
        peers.all(|peer| peer.lent.is_empty() && peer.kept.is_empty())
    }
}

/// Objects that peers borrow.
impl<K: PartialEq, V> Peers<K, V> {
    /// A message to a peer is about to name an object. False if the peer is not there: the message will not arrive.
    pub fn lend(&mut self, to: NodeId, name: ObjectName, it: K) -> bool {
        let Some(peer) = self.there.get_mut(&to) else {
            return false;
        };
        let lending = peer.lent.entry(name).or_insert_with(|| Lending {
            kept: LentAs::new(),
            count: 0,
        });
        lending.count += 1;
        if !lending.kept.contains(&it) {
            lending.kept.push(it);
        }
        true
    }

    /// A peer releases an object, so many times. What it borrows no more.
    pub fn released(&mut self, by: NodeId, name: &ObjectName, count: u64) -> LentAs<K> {
        let Some(peer) = self.there.get_mut(&by) else {
            return LentAs::new();
        };
        let Some(lending) = peer.lent.get_mut(name) else {
            return LentAs::new();
        };
        lending.count = lending.count.saturating_sub(count);
        if lending.count > 0 {
            return LentAs::new();
        }
        peer.lent.remove(name).map(|it| it.kept).unwrap_or_default()
    }

    /// The borrowed object of this name.
    pub fn lent_as(&self, name: &ObjectName) -> Option<&K> {
        let mut all = self.there.values();
        // The last one is of the latest incarnation.
        all.find_map(|peer| peer.lent.get(name)?.kept.last())
    }

    /// How often a peer has to release a name.
    pub fn lent_times(&self, to: NodeId, name: &ObjectName) -> u64 {
        let lending = self.there.get(&to).and_then(|peer| peer.lent.get(name));
        lending.map_or(0, |lending| lending.count)
    }

    /// The borrowers of an object of this id, with any owner.
    pub fn borrowers(&self, object: &ObjectId) -> impl Iterator<Item = NodeId> {
        let [first, last] = [0, u8::MAX].map(|byte| ObjectName {
            id: *object,
            owner: NodeId::from_bytes([byte; 16]),
        });
        let peers = self.there.iter();
        let borrow = peers.filter(move |(_, peer)| peer.lent.range(first..=last).next().is_some());
        borrow.map(|(node, _)| *node)
    }

    /// All that is borrowed, by borrower.
    pub fn loans(&self) -> impl Iterator<Item = (NodeId, &ObjectName, &[K])> {
        let peers = self.there.iter();
        peers.flat_map(|(node, peer)| {
            let all = peer.lent.iter();
            all.map(|(name, lending)| (*node, name, lending.kept.as_slice()))
        })
    }
}

/// Results of peers' tasks.
impl<K, V> Peers<K, V> {
    /// Keeps a result for its owner, once more.
    ///
    /// # Errors
    /// The value, if the owner is not there, or the result is here already.
    pub fn keep(&mut self, owner: NodeId, object: ObjectId, value: V) -> Result<(), V> {
        let Some(peer) = self.there.get_mut(&owner) else {
            return Err(value);
        };
        match peer.kept.get_mut(&object) {
            Some((_, count)) => {
                *count += 1;
                Err(value)
            }
            None => {
                peer.kept.insert(object, (value, 1));
                Ok(())
            }
        }
    }

    /// Replaces a result that was dropped by its reconstruction. The one before; this one if there was none.
    pub fn replace_kept(&mut self, owner: NodeId, object: &ObjectId, value: V) -> V {
        let peer = self.there.get_mut(&owner);
        match peer.and_then(|peer| peer.kept.get_mut(object)) {
            Some((kept, _)) => std::mem::replace(kept, value),
            None => value,
        }
    }

    /// Its owner releases a result, once. The value after the last time.
    pub fn unkeep(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        let peer = self.there.get_mut(&owner)?;
        let (_, count) = peer.kept.get_mut(object)?;
        *count -= 1;
        match *count {
            0 => peer.take_kept(object),
            _ => None,
        }
    }

    /// Its owner does not know of it. The value, if it was here.
    pub fn forget_kept(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        self.there.get_mut(&owner)?.take_kept(object)
    }

    /// A result of a peer's task.
    pub fn kept_for(&self, owner: NodeId, object: &ObjectId) -> Option<&V> {
        let (value, _) = self.there.get(&owner)?.kept.get(object)?;
        Some(value)
    }

    /// For whom a result is kept.
    pub fn owners(&self, object: &ObjectId) -> impl Iterator<Item = NodeId> {
        let peers = self.there.iter();
        let own = peers.filter(|(_, peer)| peer.kept.contains_key(object));
        own.map(|(node, _)| *node)
    }

    /// All results, by owner.
    pub fn results(&self) -> impl Iterator<Item = (NodeId, &ObjectId, &V)> {
        let peers = self.there.iter();
        peers.flat_map(|(node, peer)| {
            let all = peer.kept.iter();
            all.map(|(object, (value, _))| (*node, object, value))
        })
    }
}
