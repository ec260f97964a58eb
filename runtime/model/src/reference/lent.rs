//! What a node keeps for others.
//!
//! Owns the counts. Must not: know what is kept, or drop it: that may take time, or come back here, so whoever
//! calls does it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::id::{NodeId, ObjectName};

/// What is kept under one name: nearly always one thing. After the owner of an object has begun a new incarnation, the
/// name may stand for another object while some still have the first.
pub type LentAs<K> = SmallVec<[K; 1]>;

/// What is kept for other nodes, because they were told its name.
///
/// Invariant: there is nothing for who is not there.
#[derive(Debug)]
pub struct Lent<K> {
    nodes: BTreeMap<NodeId, BTreeMap<ObjectName, Entry<K>>>,
}

#[derive(Debug)]
struct Entry<K> {
    kept: LentAs<K>,
    count: u64,
}

impl<K> Default for Lent<K> {
    fn default() -> Self {
        let nodes = BTreeMap::new();
        Self { nodes }
    }
}

impl<K: PartialEq> Lent<K> {
    /// An incarnation of a node begins.
    pub fn joined(&mut self, node: NodeId) {
        self.nodes.entry(node).or_default();
    }

    /// An incarnation of a node is over. What was kept for it.
    pub fn left(&mut self, node: NodeId) -> Vec<K> {
        let of_node = self.nodes.remove(&node).into_iter().flatten();
        of_node.flat_map(|(_, entry)| entry.kept).collect()
    }

    /// Keeps something for a node that is about to be told its name, once more. False if that node is not there:
    /// nothing is kept, and nothing that is said to it will arrive.
    pub fn lend(&mut self, to: NodeId, name: ObjectName, it: K) -> bool {
        let Some(of_node) = self.nodes.get_mut(&to) else {
            return false;
        };
        let entry = of_node.entry(name).or_insert_with(|| Entry {
            kept: LentAs::new(),
            count: 0,
        });
        entry.count += 1;
        if !entry.kept.contains(&it) {
            entry.kept.push(it);
        }
        true
    }

    /// A node needs something no more, so many of the times that it was named to it. What is not kept any more.
    pub fn released(&mut self, by: NodeId, name: &ObjectName, count: u64) -> LentAs<K> {
        let Some(of_node) = self.nodes.get_mut(&by) else {
            return LentAs::new();
        };
        let Some(entry) = of_node.get_mut(name) else {
            return LentAs::new();
        };
        entry.count = entry.count.saturating_sub(count);
        if entry.count > 0 {
            return LentAs::new();
        }
        of_node.remove(name).map(|it| it.kept).unwrap_or_default()
    }

    /// What somebody else was told this name of.
    pub fn find(&self, name: &ObjectName) -> Option<&K> {
        let mut all = self.nodes.values();
        // What was told last is of the latest incarnation.
        all.find_map(|of_node| of_node.get(name)?.kept.last())
    }

    /// How often a node was told a name and has not given it back.
    pub fn count(&self, to: NodeId, name: &ObjectName) -> u64 {
        let entry = self.nodes.get(&to).and_then(|of_node| of_node.get(name));
        entry.map_or(0, |entry| entry.count)
    }

    /// Everything, by whom it is kept for.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &ObjectName, &[K])> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(node, of_node)| {
            let all = of_node.iter();
            all.map(|(name, entry)| (*node, name, entry.kept.as_slice()))
        })
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.nodes.values().all(BTreeMap::is_empty)
    }
}
