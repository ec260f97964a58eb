//! Who brings an object of ours from whom, while several nodes bring it at a time.
//!
//! Owns the choice: a node that has got the object is asked next, so that copies spread as a tree and the first holder
//! sends two of them, however many want it. Whoever asks while all that have it are busy waits for the next that
//! gets it. Must not: know where bytes are; move them.
//!
//! Invariant: nobody waits unless somebody else is bringing the object, and then not for ever.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wasmrun_model::id::{NodeId, ObjectId};

/// How many others bring an object from one node, while others that will have it still bring it.
const BRANCHES: usize = 2;
/// How long somebody is kept waiting for others, who may be slow, or gone without a word.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Spread {
    trees: Mutex<HashMap<ObjectId, Tree>>,
    /// Somebody brings something no longer.
    changed: Notify,
}

/// One object, as long as somebody brings it.
#[derive(Default)]
struct Tree {
    /// Who brings it, and from whom.
    bringing: BTreeMap<NodeId, NodeId>,
    /// How often each was asked since nobody brought it.
    asked: BTreeMap<NodeId, usize>,
}

impl Tree {
    /// The one of these who has been asked least, the first of several. `None` if it is better to wait.
    fn choose(&self, holders: &[NodeId]) -> Option<NodeId> {
        let asked = |holder: &NodeId| self.asked.get(holder).copied().unwrap_or_default();
        let least = holders.iter().copied().min_by_key(asked)?;
        let is_free = asked(&least) < BRANCHES || self.bringing.is_empty();
        is_free.then_some(least)
    }
}

impl Spread {
    /// From whom a node brings an object: one of these. They are asked for again after a while of waiting.
    pub(super) async fn source(
        &self,
        object: ObjectId,
        reader: NodeId,
        holders: impl Fn() -> Vec<NodeId>,
    ) -> Option<NodeId> {
        let waiting = async {
            loop {
                // From here on no change is missed.
                let changed = self.changed.notified();
                let holders = holders();
                match self.try_source(object, reader, &holders) {
                    Some(source) => return Some(source),
                    None if holders.is_empty() => return None,
                    None => changed.await,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(source) => source,
            Err(_) => {
                let holder = holders().first().copied()?;
                let mut trees = self.trees.lock();
                trees.entry(object).or_default().take(reader, holder);
                Some(holder)
            }
        }
    }

    fn try_source(&self, object: ObjectId, reader: NodeId, holders: &[NodeId]) -> Option<NodeId> {
        let mut trees = self.trees.lock();
        let tree = trees.entry(object).or_default();
        // It asks anew: what it was told before did not do.
        let has_changed = tree.bringing.remove(&reader).is_some();
        let chosen = tree.choose(holders);
        if let Some(holder) = chosen {
            tree.take(reader, holder);
        }
        if has_changed {
            self.changed.notify_waiters();
        }
        Self::tidy(&mut trees, &object);
        chosen
    }

    /// A node brings an object no longer: it has it, or not.
    pub(super) fn ended(&self, object: &ObjectId, reader: NodeId) {
        let mut trees = self.trees.lock();
        if let Some(tree) = trees.get_mut(object)
            && tree.bringing.remove(&reader).is_some()
        {
            self.changed.notify_waiters();
            Self::tidy(&mut trees, object);
        }
    }

    /// A node is gone.
    pub(super) fn left(&self, node: NodeId) {
        let mut trees = self.trees.lock();
        trees.retain(|_, tree| {
            tree.bringing
                .retain(|reader, holder| *reader != node && *holder != node);
            !tree.bringing.is_empty()
        });
        self.changed.notify_waiters();
    }

    fn tidy(trees: &mut HashMap<ObjectId, Tree>, object: &ObjectId) {
        if trees
            .get(object)
            .is_some_and(|tree| tree.bringing.is_empty())
        {
            trees.remove(object);
        }
    }
}

impl Tree {
    fn take(&mut self, reader: NodeId, holder: NodeId) {
        self.bringing.insert(reader, holder);
        *self.asked.entry(holder).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmrun_model::id::DriverId;

    fn node(n: u8) -> NodeId {
        NodeId::from_bytes([n; 16])
    }

    fn object() -> ObjectId {
        ObjectId::of(DriverId::from_bytes([1; 16]).task(0), 0)
    }

    /// All readers at once, whoever brings it ends in this order: how often each holder was asked.
    fn wave(readers: u8, is_last_first: bool) -> BTreeMap<NodeId, usize> {
        let spread = Spread::default();
        let mut holders = vec![node(0)];
        let mut waiting: Vec<NodeId> = (1..=readers).map(node).collect();
        let (mut bringing, mut asked) = (Vec::new(), BTreeMap::new());
        while !waiting.is_empty() || !bringing.is_empty() {
            waiting.retain(|reader| {
                let source = spread.try_source(object(), *reader, &holders);
                if let Some(source) = source {
                    *asked.entry(source).or_default() += 1;
                    bringing.push(*reader);
                }
                source.is_none()
            });
            let done = match is_last_first {
                true => bringing.pop().expect("somebody brings it"),
                false => bringing.remove(0),
            };
            holders.push(done);
            spread.ended(&object(), done);
        }
        assert!(spread.trees.lock().is_empty(), "nothing is left");
        asked
    }

    #[test]
    fn copies_spread_as_a_tree() {
        for readers in [1, 2, 3, 7, 50, 200] {
            for is_last_first in [false, true] {
                let asked = wave(readers, is_last_first);
                assert!(asked.values().all(|times| *times <= BRANCHES), "{asked:?}");
                assert_eq!(asked.values().sum::<usize>(), usize::from(readers));
            }
        }
    }

    #[test]
    fn nobody_waits_for_one_that_is_gone() {
        let spread = Spread::default();
        let holders = [node(0)];
        for reader in [1, 2] {
            assert_eq!(
                spread.try_source(object(), node(reader), &holders),
                Some(node(0))
            );
        }
        assert_eq!(spread.try_source(object(), node(3), &holders), None);
        spread.left(node(1));
        spread.left(node(2));
        assert_eq!(
            spread.try_source(object(), node(3), &holders),
            Some(node(0))
        );
        // Who could not have it from there asks anew, and keeps nobody waiting.
        assert_eq!(spread.try_source(object(), node(3), &[]), None);
        assert!(spread.trees.lock().is_empty());
    }
}
