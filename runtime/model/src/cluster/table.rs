//! The table of nodes behind the view.
//!
//! Owns the places of nodes, the look-ups by id and name, the logs of changes, the cached scores and
//! the sum of totals. Must not: let a node change without noting it; the view's methods see to that.
//!
//! Invariants: ids and names are unique; a cached score is that of the node since its last change;
//! the total is the sum over the nodes that are there.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::changes::ChangeLog;
use super::name::{NodeIx, NodeName};
use super::node::{Basis, Node, Supply};
use super::order::Order;
use crate::id::{Incarnation, NodeId};
use crate::resource::{Amount, ResourceName, ResourceSet};

/// The settings of placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Below this utilisation nodes count as equally empty (the spread threshold). Default one half.
    pub spread_threshold: Share,
    /// The default strategy chooses at random among this share of the nodes (top-k). Default one fifth.
    pub top_share: Share,
    /// And among so many of them at least; 0 is as 1. Default 1.
    pub top_nodes: u32,
}

/// A part of a whole, from 0 to 1, as an amount of one unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Amount", into = "Amount")]
pub struct Share(u16);

/// The whole, in the unit of [`Share`].
pub(super) const WHOLE: u16 = Amount::STEPS_PER_UNIT as u16;

impl Share {
    /// In parts of [`WHOLE`].
    pub(super) fn parts(self) -> u16 {
        self.0
    }
}

/// The error of what is more than the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is more than the whole: a share is from 0 to 1")]
pub struct ShareError(pub Amount);

impl TryFrom<Amount> for Share {
    type Error = ShareError;

    fn try_from(amount: Amount) -> Result<Self, ShareError> {
        match amount <= Amount::ONE {
            true => Ok(Self(amount.steps() as u16)),
            false => Err(ShareError(amount)),
        }
    }
}

impl From<Share> for Amount {
    fn from(share: Share) -> Self {
        Self::from_steps(share.0.into())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount::from(*self).fmt(f)
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            spread_threshold: Share(WHOLE / 2),
            top_share: Share(WHOLE / 5),
            top_nodes: 1,
        }
    }
}

/// The table of nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) slots: Vec<Option<Node>>,
    pub(super) free: Vec<NodeIx>,
    pub(super) by_id: BTreeMap<NodeId, NodeIx>,
    pub(super) by_name: BTreeMap<NodeName, NodeIx>,
    pub(super) order: Order,
    /// Members that have not said yet what they have.
    pub(super) expected: BTreeMap<NodeId, (Incarnation, NodeName)>,
    pub(super) own: usize,
    pub(super) local: Option<NodeIx>,
    /// Of each place: which choice of the strategy that spreads, of whatever request, was this node last.
    pub(super) turns: Vec<u64>,
    /// How many such choices there were.
    pub(super) turn: u64,
    pub(super) total: Total,
    pub(super) tuning: Tuning,
    /// What decides whether and how well a node can serve something now.
    pub(super) now: ChangeLog,
    /// What decides whether it ever can, and how long one would wait.
    pub(super) later: ChangeLog,
    /// Per basis and node: the score, and the entry of `now` after which it was computed.
    pub(super) scores: [Vec<(u64, u64)>; 2],
}

impl Nodes {
    pub(super) fn get(&self, ix: NodeIx) -> Option<&Node> {
        self.slots.get(ix.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, ix: NodeIx) -> &mut Node {
        self.slots[ix.index()]
            .as_mut()
            .expect("a node that is there")
    }

    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The nodes that a basis looks at, also draining ones.
    pub(super) fn live(&self, basis: Basis) -> usize {
        match basis {
            Basis::Acquirable => self.own,
            Basis::TrulyFree => self.by_id.len(),
        }
    }

    pub(super) fn by_id(&self, id: NodeId) -> Option<NodeIx> {
        self.by_id.get(&id).copied()
    }

    /// The first node whose id comes after this one.
    pub(super) fn after(&self, id: NodeId) -> Option<NodeIx> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut after = self.by_id.range((Excluded(id), Unbounded));
        after.next().map(|(_, ix)| *ix)
    }

    pub(super) fn resolve(&self, name: &NodeName) -> Option<NodeIx> {
        let by_name = self.by_name.get(name).copied();
        by_name.or_else(|| self.by_id(name.as_str().parse().ok()?))
    }

    /// Whether somebody calls so a member that has not said yet what it has.
    pub(super) fn is_expected(&self, name: &NodeName) -> bool {
        let id: Option<NodeId> = name.as_str().parse().ok();
        let mut expected = self.expected.iter();
        expected.any(|(node, (_, called))| called == name || Some(*node) == id)
    }

    /// The score of a node that is there. The log `now` must have been read to its end.
    pub(super) fn score(&mut self, ix: NodeIx, basis: Basis) -> u64 {
        let last = self.now.last_of(ix);
        let node = self.slots[ix.index()]
            .as_ref()
            .expect("a node that is there");
        let cached = &mut self.scores[basis as usize][ix.index()];
        if cached.0 != last {
            *cached = (
                last,
                node.score(basis, self.tuning.spread_threshold.parts()),
            );
        }
        cached.1
    }

    pub(super) fn mark_both(&mut self, ix: NodeIx) {
        self.now.mark(ix);
        self.later.mark(ix);
    }

    /// After a change of what a node may have in all.
    pub(super) fn update_total(&mut self, ix: NodeIx) {
        let node = self.slots[ix.index()]
            .as_mut()
            .expect("a node that is there");
        let total = match &node.supply {
            Supply::Own(own) => own.total(),
            Supply::Peer(report) => report.total(),
        };
        if total != node.total {
            self.total.replace(&node.total, &total);
            node.total = total;
        }
        self.later.mark(ix);
    }
}

/// The sum of the totals of many nodes.
#[derive(Debug, Default)]
pub(super) struct Total {
    /// In steps; wide enough for any number of nodes.
    steps: BTreeMap<ResourceName, u128>,
    /// The same, where a sum above the largest amount shows as that.
    pub(super) shown: ResourceSet,
}

impl Total {
    pub(super) fn replace(&mut self, old: &ResourceSet, new: &ResourceSet) {
        for (name, amount) in new.iter() {
            let steps = u128::from(amount.steps());
            match self.steps.get_mut(name) {
                Some(sum) => *sum += steps,
                None => drop(self.steps.insert(name.clone(), steps)),
            }
        }
        for (name, amount) in old.iter() {
            let sum = self.steps.get_mut(name).expect("part of the sum");
            *sum -= u128::from(amount.steps());
            if *sum == 0 {
                self.steps.remove(name);
            }
        }
        for (name, _) in new.iter().chain(old.iter()) {
            let steps = self.steps.get(name).copied().unwrap_or_default();
            let shown = Amount::from_steps(u64::try_from(steps).unwrap_or(u64::MAX));
            if self.shown.get(name) != shown {
                self.shown.set(name.clone(), shown);
            }
        }
    }
}
