//! Who has copies of objects.
//!
//! Owns what others have said that they hold ([`Holders`]), and who holds something for us ([`Keepers`]). Must not: move
//! bytes.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::peers::{Peers, SeenIncarnation};
use crate::id::{NodeId, ObjectId};

/// Who has copies of the objects of this node, as far as they have said so.
#[derive(Debug, Default)]
pub struct Holders(BTreeMap<ObjectId, Vec<NodeId>>);

impl Holders {
    /// A node has a copy of an object now, or none any more.
    pub fn set(&mut self, node: NodeId, object: ObjectId, is_held: bool) {
        if is_held {
            let holders = self.0.entry(object).or_default();
            if !holders.contains(&node) {
                holders.push(node);
            }
        } else if let Some(of_object) = self.0.get_mut(&object) {
            of_object.retain(|it| *it != node);
            if of_object.is_empty() {
                self.0.remove(&object);
            }
        }
    }

    /// Who has copies of an object, in the order in which they said so.
    pub fn of(&self, object: &ObjectId) -> &[NodeId] {
        self.0.get(object).map_or(&[], Vec::as_slice)
    }

    /// An incarnation of a node is over.
    pub fn remove_node(&mut self, node: NodeId) {
        self.0.retain(|_, of_object| {
            of_object.retain(|it| *it != node);
            !of_object.is_empty()
        });
    }

    /// Whether nobody has a copy of anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Who keeps one result for this node, which owns it.
///
/// Invariant: each is told that it need not keep it any longer as often as it is here, if it has kept it until then. One
/// that has left keeps nothing for us until it says so; if it has come back and has made the result again, that is kept for
/// who was told so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keepers(SmallVec<[(NodeId, SeenIncarnation); 1]>);

impl Keepers {
    /// These, as they are now.
    pub fn new<K, V>(nodes: &[NodeId], peers: &Peers<K, V>) -> Self {
        let there = nodes
            .iter()
            .filter_map(|node| Some((*node, peers.incarnation(node)?)));
        Self(there.collect())
    }

    /// This one has said that it keeps it now, once more if it did before.
    pub fn add<K, V>(&mut self, node: NodeId, peers: &Peers<K, V>) {
        let incarnation = peers.incarnation(&node);
        self.0.extend(incarnation.map(|it| (node, it)));
    }

    /// Nobody need keep it any longer: who is to be told.
    pub fn let_go<K, V>(&mut self, peers: &Peers<K, V>) -> SmallVec<[NodeId; 1]> {
        let keepers = std::mem::take(&mut self.0);
        let left = keepers
            .iter()
            .filter(|(node, incarnation)| peers.incarnation(node) == Some(*incarnation));
        left.map(|(node, _)| *node).collect()
    }
}
