//! Who has copies of objects.
//!
//! Owns what others have said that they hold ([`Holders`]), what is held here for whoever owns it ([`KeptFor`]), and
//! who holds something for us ([`Keepers`]). Must not: move bytes, or drop what is kept: whoever calls does that.

use std::collections::BTreeMap;

use smallvec::SmallVec;

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
    pub fn left(&mut self, node: NodeId) {
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

/// Results that are kept here for who owns them, until those say that they need not be, as often as they were told of
/// them.
///
/// Invariant: there is nothing for who is not there.
#[derive(Debug)]
pub struct KeptFor<V> {
    nodes: BTreeMap<NodeId, BTreeMap<ObjectId, (V, u64)>>,
}

impl<V> Default for KeptFor<V> {
    fn default() -> Self {
        let nodes = BTreeMap::new();
        Self { nodes }
    }
}

impl<V> KeptFor<V> {
    /// An incarnation of a node begins.
    pub fn joined(&mut self, node: NodeId) {
        self.nodes.entry(node).or_default();
    }

    /// An incarnation of a node is over. What was kept for it.
    pub fn left(&mut self, node: NodeId) -> Vec<V> {
        let of_node = self.nodes.remove(&node).into_iter().flatten();
        of_node.map(|(_, (value, _))| value).collect()
    }

    /// Keeps a result for its owner, once more.
    ///
    /// # Errors
    /// The value that is not kept: the owner is not there, or it is kept already.
    pub fn keep(&mut self, owner: NodeId, object: ObjectId, value: V) -> Result<(), V> {
        let Some(of_node) = self.nodes.get_mut(&owner) else {
            return Err(value);
        };
        match of_node.get_mut(&object) {
            Some((_, count)) => {
                *count += 1;
                Err(value)
            }
            None => {
                of_node.insert(object, (value, 1));
                Ok(())
            }
        }
    }

    /// What is kept is none any more, and was made again: this is kept instead, however often that was. The one before;
    /// this one where nothing was kept.
    pub fn replace(&mut self, owner: NodeId, object: &ObjectId, value: V) -> V {
        let of_node = self.nodes.get_mut(&owner);
        match of_node.and_then(|of_node| of_node.get_mut(object)) {
            Some((kept, _)) => std::mem::replace(kept, value),
            None => value,
        }
    }

    /// Its owner needs it here no more, once. The value, if it is not kept any more.
    pub fn unkeep(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        let of_node = self.nodes.get_mut(&owner)?;
        let (_, count) = of_node.get_mut(object)?;
        *count -= 1;
        match *count {
            0 => of_node.remove(object).map(|(value, _)| value),
            _ => None,
        }
    }

    /// A result that is kept for its owner.
    pub fn get(&self, owner: NodeId, object: &ObjectId) -> Option<&V> {
        let (value, _) = self.nodes.get(&owner)?.get(object)?;
        Some(value)
    }

    /// Its owner does not know of it, however often it was told. The value, if it was kept.
    pub fn forget(&mut self, owner: NodeId, object: &ObjectId) -> Option<V> {
        let (value, _) = self.nodes.get_mut(&owner)?.remove(object)?;
        Some(value)
    }

    /// What is kept, and for whom.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &ObjectId, &V)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(node, of_node)| {
            let all = of_node.iter();
            all.map(|(object, (value, _))| (*node, object, value))
        })
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.nodes.values().all(BTreeMap::is_empty)
    }
}

/// One incarnation of a node, as this node has seen it: one that was out of sight in between counts as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenIncarnation(u64);

/// Who is there, in which incarnation.
#[derive(Debug, Default)]
pub struct Incarnations {
    nodes: BTreeMap<NodeId, SeenIncarnation>,
    last: u64,
}

impl Incarnations {
    /// An incarnation of a node begins, or goes on after this node has lost sight of it.
    pub fn joined(&mut self, node: NodeId) {
        self.last += 1;
        self.nodes.insert(node, SeenIncarnation(self.last));
    }

    /// An incarnation of a node is over, or out of sight.
    pub fn left(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Whether an incarnation of a node goes on, as far as is known here.
    pub fn is_there(&self, node: &NodeId) -> bool {
        self.nodes.contains_key(node)
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
    pub fn new(nodes: &[NodeId], incarnations: &Incarnations) -> Self {
        let alive = nodes.iter().filter_map(|node| {
            let incarnation = incarnations.nodes.get(node)?;
            Some((*node, *incarnation))
        });
        Self(alive.collect())
    }

    /// This one has said that it keeps it now, once more if it did before.
    pub fn add(&mut self, node: NodeId, incarnations: &Incarnations) {
        let incarnation = incarnations.nodes.get(&node);
        self.0
            .extend(incarnation.map(|incarnation| (node, *incarnation)));
    }

    /// Nobody need keep it any longer: who is to be told.
    pub fn let_go(&mut self, incarnations: &Incarnations) -> SmallVec<[NodeId; 1]> {
        let keepers = std::mem::take(&mut self.0);
        let left = keepers
            .iter()
            .filter(|(node, incarnation)| incarnations.nodes.get(node) == Some(incarnation));
        left.map(|(node, _)| *node).collect()
    }
}
