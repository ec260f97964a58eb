//! The peers that are there, and what is kept for each.
//!
//! Owns one record per peer, from when it joins until it leaves: nothing is kept for who is not there. Must not: know what
//! is kept, or drop it: that may take time, or come back here, so whoever calls does it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::id::{NodeId, ObjectId, ObjectName};

/// What is kept under one name: nearly always one thing. After the owner of an object has begun a new incarnation, the
/// name may stand for another object while some still have the first.
pub type LentAs<K> = SmallVec<[K; 1]>;

/// One incarnation of a node, as this node has seen it: one that was out of sight in between counts as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenIncarnation(u64);

/// The peers of a node. `K` is what was lent to one, because it was told the name of that; `V` is a result of a task of
/// one, which is kept for it until it says that it need not be.
#[derive(Debug)]
pub struct Peers<K, V> {
    there: BTreeMap<NodeId, Peer<K, V>>,
    /// How often one has joined.
    joined: u64,
}

/// What is kept for one incarnation of a peer.
#[derive(Debug)]
pub struct Peer<K, V> {
    incarnation: SeenIncarnation,
    lent: BTreeMap<ObjectName, Lending<K>>,
    /// Each with how often its owner was told of it.
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
    /// Takes a result that was kept for it.
    pub fn take_kept(&mut self, object: &ObjectId) -> Option<V> {
        self.kept.remove(object).map(|(value, _)| value)
    }

    /// What it was lent, and what was kept for it.
    pub fn into_parts(self) -> (Vec<K>, Vec<V>) {
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

    /// An incarnation of a node is over, or out of sight. What was kept for it.
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

    /// Whether nothing is kept for anybody.
    pub fn keep_nothing(&self) -> bool {
        let mut peers = self.there.values();
        peers.all(|peer| peer.lent.is_empty() && peer.kept.is_empty())
    }
}

/// What was lent.
impl<K: PartialEq, V> Peers<K, V> {
    /// Keeps something for a peer that is about to be told its name, once more. False if it is not there: nothing is
    /// kept, and nothing that is said to it will arrive.
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

    /// A peer needs something no more, so many of the times that it was named to it. What is not kept any more.
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

    /// What somebody was told this name of.
    pub fn lent_as(&self, name: &ObjectName) -> Option<&K> {
        let mut all = self.there.values();
        // What was told last is of the latest incarnation.
        all.find_map(|peer| peer.lent.get(name)?.kept.last())
    }

    /// How often a peer was told a name and has not given it back.
    pub fn lent_times(&self, to: NodeId, name: &ObjectName) -> u64 {
        let lending = self.there.get(&to).and_then(|peer| peer.lent.get(name));
        lending.map_or(0, |lending| lending.count)
    }

    /// All that was lent, and to whom.
    pub fn lent(&self) -> impl Iterator<Item = (NodeId, &ObjectName, &[K])> {
        let peers = self.there.iter();
        peers.flat_map(|(node, peer)| {
            let all = peer.lent.iter();
            all.map(|(name, lending)| (*node, name, lending.kept.as_slice()))
        })
    }
}

/// Results that are kept for their owners.
impl<K, V> Peers<K, V> {
    /// Keeps a result for its owner, once more.
    ///
    /// # Errors
    /// The value that is not kept: the owner is not there, or it is kept already.
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

    /// What is kept is none any more, and was reconstructed: this is kept instead, however often that was. The one
    /// before; this one where nothing was kept.
    pub fn replace_kept(&mut self, owner: NodeId, object: &ObjectId, value: V) -> V {
        let peer = self.there.get_mut(&owner);
        match peer.and_then(|peer| peer.kept.get_mut(object)) {
            Some((kept, _)) => std::mem::replace(kept, value),
            None => value,
        }
    }

    /// Its owner needs it here no more, once. The value, if it is not kept any more.
    pub fn unkeep(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        let peer = self.there.get_mut(&owner)?;
        let (_, count) = peer.kept.get_mut(object)?;
        *count -= 1;
        match *count {
            0 => peer.take_kept(object),
            _ => None,
        }
    }

    /// Its owner does not know of it, however often it was told. The value, if it was kept.
    pub fn forget_kept(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        self.there.get_mut(&owner)?.take_kept(object)
    }

    /// A result that is kept for its owner.
    pub fn kept_for(&self, owner: NodeId, object: &ObjectId) -> Option<&V> {
        let (value, _) = self.there.get(&owner)?.kept.get(object)?;
        Some(value)
    }

    /// All that is kept, and for whom.
    pub fn kept(&self) -> impl Iterator<Item = (NodeId, &ObjectId, &V)> {
        let peers = self.there.iter();
        peers.flat_map(|(node, peer)| {
            let all = peer.kept.iter();
            all.map(|(object, (value, _))| (*node, object, value))
        })
    }
}
