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
use tokio::time::Instant;
use wasmrun_model::id::{NodeId, ObjectId};

/// How many others bring an object from one node, while others that will have it still bring it.
const BRANCHES: usize = 2;
/// How long somebody is kept waiting for others, who may be slow, or gone without a word.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long somebody counts who brings it: that it does so no longer may have been said before it was known.
const LONGEST: Duration = Duration::from_secs(600);
/// For how many objects that nobody brings just now it is remembered who has sent them.
const REMEMBERED: usize = 1024;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Spread {
    trees: Mutex<HashMap<ObjectId, Tree>>,
    /// Somebody brings something no longer.
    changed: Notify,
}

/// One object.
#[derive(Default)]
struct Tree {
    /// Who brings it, from whom, and since when.
    bringing: BTreeMap<NodeId, (NodeId, Instant)>,
    /// How often each was asked since nobody brought it.
    asked: BTreeMap<NodeId, usize>,
    /// How often each was asked in all: readers may come one after the other, too.
    sent: BTreeMap<NodeId, usize>,
}

impl Tree {
    /// Of these who may be asked, the one who has sent it least, the first of several. `None` if it is better to
    /// wait.
    fn choose(&self, holders: &[NodeId]) -> Option<NodeId> {
        let asked = |holder: &NodeId| self.asked.get(holder).copied().unwrap_or_default();
        let is_free = |holder: &NodeId| asked(holder) < BRANCHES || self.bringing.is_empty();
        self.least(holders.iter().copied().filter(is_free))
    }

    /// The one who has sent it least.
    fn least(&self, holders: impl Iterator<Item = NodeId>) -> Option<NodeId> {
        holders.min_by_key(|holder| self.sent.get(holder).copied().unwrap_or_default())
    }

    /// Somebody brings it no longer.
    fn rest(&mut self) {
        if self.bringing.is_empty() {
            self.asked.clear();
        }
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
                let holders = holders();
                let mut trees = self.trees.lock();
                let tree = trees.entry(object).or_default();
                let holder = tree.least(holders.into_iter())?;
                tree.take(reader, holder);
                Some(holder)
            }
        }
    }

    fn try_source(&self, object: ObjectId, reader: NodeId, holders: &[NodeId]) -> Option<NodeId> {
        let mut trees = self.trees.lock();
        let tree = trees.entry(object).or_default();
        // It asks anew: what it was told before did not do.
        let before = tree.bringing.len();
        tree.bringing
            .retain(|it, (_, since)| *it != reader && since.elapsed() < LONGEST);
        let has_changed = tree.bringing.len() < before;
        let chosen = tree.choose(holders);
        if let Some(holder) = chosen {
            tree.take(reader, holder);
        }
        if has_changed {
            self.changed.notify_waiters();
        }
        tree.rest();
        Self::tidy(&mut trees);
        chosen
    }

    /// Who brings an object just now.
    pub(super) fn bringing(&self, object: &ObjectId) -> Vec<NodeId> {
        let trees = self.trees.lock();
        let tree = trees.get(object);
        tree.map_or_else(Vec::new, |tree| tree.bringing.keys().copied().collect())
    }

    /// A node brings an object no longer: it has it, or not.
    pub(super) fn ended(&self, object: &ObjectId, reader: NodeId) {
        let mut trees = self.trees.lock();
        if let Some(tree) = trees.get_mut(object)
            && tree.bringing.remove(&reader).is_some()
        {
            self.changed.notify_waiters();
            tree.rest();
        }
    }

    /// A node is gone.
    pub(super) fn remove_node(&self, node: NodeId) {
        let mut trees = self.trees.lock();
        for tree in trees.values_mut() {
            tree.bringing
                .retain(|reader, (holder, _)| *reader != node && *holder != node);
            tree.sent.remove(&node);
            tree.rest();
        }
        self.changed.notify_waiters();
    }

    fn tidy(trees: &mut HashMap<ObjectId, Tree>) {
        if trees.len() > REMEMBERED {
            trees.retain(|_, tree| !tree.bringing.is_empty());
        }
    }
}

impl Tree {
    fn take(&mut self, reader: NodeId, holder: NodeId) {
        self.bringing.insert(reader, (holder, Instant::now()));
        *self.asked.entry(holder).or_default() += 1;
        *self.sent.entry(holder).or_default() += 1;
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

    fn is_idle(spread: &Spread) -> bool {
        let trees = spread.trees.lock();
        let mut trees = trees.values();
        trees.all(|tree| tree.bringing.is_empty() && tree.asked.is_empty())
    }

    #[test]
    fn readers_who_come_one_after_the_other_share_it_out_as_well() {
        let spread = Spread::default();
        let mut holders = vec![node(0)];
        let mut asked = BTreeMap::<_, usize>::new();
        for reader in (1..=50).map(node) {
            let source = spread.try_source(object(), reader, &holders);
            *asked
                .entry(source.expect("nobody else wants it"))
                .or_default() += 1;
            holders.push(reader);
            spread.ended(&object(), reader);
        }
        assert!(asked.values().all(|times| *times <= 1), "{asked:?}");
    }

    #[test]
    fn only_so_many_objects_are_remembered() {
        let spread = Spread::default();
        for n in 0..3 * REMEMBERED as u64 {
            let object = ObjectId::of(DriverId::from_bytes([1; 16]).task(n), 0);
            spread.try_source(object, node(1), &[node(0)]);
            spread.ended(&object, node(1));
        }
        assert!(spread.trees.lock().len() <= REMEMBERED + 1);
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
        assert!(is_idle(&spread));
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
        spread.remove_node(node(1));
        spread.remove_node(node(2));
        assert_eq!(
            spread.try_source(object(), node(3), &holders),
            Some(node(0))
        );
        // Who could not have it from there asks anew, and keeps nobody waiting.
        assert_eq!(spread.try_source(object(), node(3), &[]), None);
        assert!(is_idle(&spread));
    }
}
