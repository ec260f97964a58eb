//! The choice of a node for a request.
//!
//! Owns the rules of the strategies, labels, locality and alternatives. Must not: change what a
//! node has; the caller acquires or claims what was chosen.
//!
//! Invariants: `Now` names a node that can serve the alternative now, on the basis asked for, and
//! that every rule allows; the same view, demand and random numbers give the same choice.
//!
//! Selectors are tried in their order and within each the alternatives in theirs: the first pair for
//! which some node is available wins. If none is, the first pair that some node can ever serve.

use super::candidates::{By, Class, Index};
use super::explain::{NodeFit, Unschedulable};
use super::name::{NodeIx, NodeName};
use super::node::Basis;
use super::selector::Selector;
use super::strategy::Strategy;
use super::table::{Nodes, WHOLE};
use super::view::Cluster;
use super::wait;
use crate::id::{Digest, NodeId};
use crate::random::Random;
use crate::resource::Request;

/// From this many bytes of arguments on, the node that holds most of them is preferred: 100 KiB.
pub const LOCALITY_BYTES_MIN: u64 = 100 * 1024;

/// What wants a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A task: runs once, near its arguments.
    Task,
    /// An actor: stays.
    Actor,
}

impl Kind {
    /// Whether the default strategy takes any node that fits, and not first the one where it was submitted: an actor
    /// that asks for nothing. It costs no score, so all would gather on one node.
    pub fn is_scattered(self, request: &Request) -> bool {
        self == Self::Actor && request.amounts().is_empty()
    }
}

/// Where a node is wanted for.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// What is asked for: variants in the order of preference.
    pub alternatives: &'a [Request],
    /// What the node's labels must be: fallbacks in their order; none for any node.
    pub selectors: &'a [Selector],
    /// How the node is chosen.
    pub strategy: &'a Strategy,
    /// The module that will run, so that nodes which run it already win among equals.
    pub module: Option<&'a Digest>,
    /// What wants it.
    pub kind: Kind,
    /// Which judgement counts. The random strategy always looks at what is truly free.
    pub basis: Basis,
    /// How many bytes the arguments are in all.
    pub argument_bytes: u64,
    /// Who holds how many of these bytes; each node once.
    pub holders: &'a [(NodeId, u64)],
}

impl<'a> Demand<'a> {
    /// A task by the default strategy on any node, without arguments.
    pub fn of(alternatives: &'a [Request], basis: Basis) -> Self {
        Self {
            alternatives,
            selectors: &[],
            strategy: &Strategy::Default,
            module: None,
            kind: Kind::Task,
            basis,
            argument_bytes: 0,
            holders: &[],
        }
    }

    fn selectors(&self) -> impl Iterator<Item = Option<&'a Selector>> + use<'a> {
        let any = self.selectors.is_empty().then_some(None);
        let selectors = self.selectors.iter();
        // One that every node satisfies is the same as none, also as a class.
        let selectors = selectors.map(|selector| Some(selector).filter(|it| !it.is_any()));
        any.into_iter().chain(selectors)
    }

    /// What was chosen from, in order: selector, place of the alternative, alternative.
    pub(super) fn pairs(
        &self,
    ) -> impl Iterator<Item = (Option<&'a Selector>, usize, &'a Request)> + use<'a> {
        let alternatives = self.alternatives;
        self.selectors().flat_map(move |selector| {
            let numbered = alternatives.iter().enumerate();
            numbered.map(move |(at, request)| (selector, at, request))
        })
    }

    fn class(&self, selector: Option<&'a Selector>, request: &'a Request, by: By) -> Class<'a> {
        let basis = match self.strategy {
            Strategy::Random => Basis::TrulyFree,
            _ => self.basis,
        };
        Class {
            request,
            selector,
            module: self.module.filter(|_| by == By::Score),
            basis,
            by,
        }
    }

    /// The order in which the available nodes are kept for this demand.
    fn by(&self, request: &Request) -> By {
        match self.strategy {
            Strategy::Random | Strategy::Spread => By::Id,
            Strategy::Default if self.kind.is_scattered(request) => By::Id,
            Strategy::Default | Strategy::NodeAffinity { .. } | Strategy::PlacementGroup { .. } => {
                By::Score
            }
        }
    }
}

/// The choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This node can serve this alternative now.
    Now {
        /// The node.
        node: NodeIx,
        /// Which of the alternatives, from 0.
        alternative: usize,
    },
    /// No node can now; this one is the best to wait for.
    Later {
        /// The node.
        node: NodeIx,
        /// Which of the alternatives, from 0.
        alternative: usize,
    },
    /// No node that is there can ever serve it. A node may join or change.
    Infeasible,
    /// It can never run: the one node that it may run on is gone or cannot serve it.
    Unschedulable(Unschedulable),
}

impl Cluster {
    /// Chooses a node.
    ///
    /// # Panics
    /// If the strategy is a placement group: a group's bundles are reserved, so its owner knows the
    /// nodes and nothing is to be chosen among all.
    pub fn choose(&mut self, demand: &Demand<'_>, random: &mut Random) -> Choice {
        match demand.strategy {
            Strategy::PlacementGroup { group, .. } => {
                panic!("the nodes of placement group {group} are known to its owner")
            }
            Strategy::NodeAffinity { node, soft } => {
                let choice = self.choose_affine(demand, node);
                if !soft || !self.gives_way(node, demand) {
                    return choice;
                }
                let strategy = &Strategy::Default;
                let any = Demand {
                    strategy,
                    ..*demand
                };
                match (self.choose_any(&any, random), choice) {
                    // The drain may end.
                    (Choice::Infeasible, choice @ Choice::Later { .. }) => choice,
                    (choice, _) => choice,
                }
            }
            Strategy::Default | Strategy::Random | Strategy::Spread => {
                self.choose_any(demand, random)
            }
        }
    }

    /// Whether a node is available now for what this demand asks. Cheaper than a choice, and it
    /// prepares one.
    ///
    /// # Panics
    /// If the strategy is a placement group.
    pub fn is_available_somewhere(&mut self, demand: &Demand<'_>) -> bool {
        if let Strategy::NodeAffinity { node, soft } = demand.strategy {
            let choice = self.choose_affine(demand, node);
            if matches!(choice, Choice::Now { .. }) {
                return true;
            }
            let strategy = &Strategy::Default;
            return *soft
                && self.gives_way(node, demand)
                && self.is_available_somewhere(&Demand {
                    strategy,
                    ..*demand
                });
        }
        demand.pairs().any(|(selector, _, request)| {
            let class = demand.class(selector, request, demand.by(request));
            self.indexes.of(class, &mut self.nodes).len() > 0
        })
    }

    /// Whether another node may do for a demand with a soft affinity to this one: it is no member, or takes no new work,
    /// or cannot be reached, or can never serve the demand. Whoever chooses, judges one node or explains asks this: were
    /// they of two minds, a task would be handed to and fro.
    pub(super) fn gives_way(&self, preferred: &NodeName, demand: &Demand<'_>) -> bool {
        let Some(ix) = self.resolve(preferred) else {
            return !self.is_expected(preferred);
        };
        let node = &self[ix];
        let is_never = |(selector, _, request): (Option<&Selector>, usize, &Request)| {
            let fit = NodeFit::of(node, selector, request, demand.basis);
            matches!(fit, NodeFit::Infeasible(_) | NodeFit::Label(_))
        };
        node.is_closed() || demand.pairs().all(is_never)
    }

    /// The node by any strategy but those that name one.
    fn choose_any(&mut self, demand: &Demand<'_>, random: &mut Random) -> Choice {
        let Self { nodes, indexes } = self;
        for (selector, alternative, request) in demand.pairs() {
            let by = demand.by(request);
            let class = demand.class(selector, request, by);
            let index = indexes.of(class, nodes);
            let node = match demand.strategy {
                _ if index.len() == 0 => None,
                Strategy::Spread => next_in_turn(index, nodes),
                _ if by == By::Id => index.select(random.below(index.len())),
                _ => nearest(index, nodes, demand).or_else(|| hybrid(index, nodes, class, random)),
            };
            if let Some(node) = node {
                return Choice::Now { node, alternative };
            }
        }
        for (selector, alternative, request) in demand.pairs() {
            let class = demand.class(selector, request, By::Wait);
            let index = indexes.of(class, nodes);
            let node = match demand.strategy {
                _ if index.len() == 0 => None,
                Strategy::Random => index.select(random.below(index.len())),
                _ => least_wait(index, nodes, demand),
            };
            if let Some(node) = node {
                return Choice::Later { node, alternative };
            }
        }
        Choice::Infeasible
    }

    /// The one node that is named, or `Unschedulable`.
    fn choose_affine(&self, demand: &Demand<'_>, name: &NodeName) -> Choice {
        let gone = || Choice::Unschedulable(Unschedulable::Gone { node: name.clone() });
        let Some(ix) = self.resolve(name) else {
            return match self.is_expected(name) {
                true => Choice::Infeasible,
                false => gone(),
            };
        };
        let node = &self[ix];
        let mut later = None;
        let mut reason = None;
        let mut is_drained = false;
        for (selector, alternative, request) in demand.pairs() {
            let fit = NodeFit::of(node, selector, request, demand.basis);
            match fit {
                // It would give it back at once.
                NodeFit::Draining if !node.is_own() => is_drained = true,
                // What is handed over to it would wait there, and no other decision could be made.
                NodeFit::Unreachable => is_drained = true,
                NodeFit::Available if demand.basis == Basis::TrulyFree || node.is_own() => {
                    return Choice::Now {
                        node: ix,
                        alternative,
                    };
                }
                // A drain may end, or the node will be gone: then it is decided. A peer is no place to
                // start anything from here.
                NodeFit::Available
                | NodeFit::Unavailable(_)
                | NodeFit::Kept(_)
                | NodeFit::Draining => {
                    later = later.or(Some(Choice::Later {
                        node: ix,
                        alternative,
                    }));
                }
                NodeFit::Infeasible(_) | NodeFit::Label(_) | NodeFit::Elsewhere { .. } => {
                    reason = reason.or(Some(fit));
                }
            }
        }
        let node = name.clone();
        match (later, reason) {
            (Some(later), _) => later,
            (None, _) if is_drained => Choice::Infeasible,
            (None, Some(why)) => Choice::Unschedulable(Unschedulable::Infeasible { node, why }),
            (None, None) => gone(),
        }
    }
}

/// Locality: the available node that holds the most bytes of large arguments, the first by id among
/// equals.
fn nearest(index: &Index, nodes: &Nodes, demand: &Demand<'_>) -> Option<NodeIx> {
    let is_local = demand.kind == Kind::Task
        && *demand.strategy == Strategy::Default
        && demand.argument_bytes >= LOCALITY_BYTES_MIN;
    if !is_local {
        return None;
    }
    let holders = demand.holders.iter().filter(|(_, bytes)| *bytes > 0);
    let available = holders.filter_map(|(id, bytes)| {
        let ix = nodes.by_id(*id)?;
        index.major(ix)?;
        Some((*bytes, std::cmp::Reverse(*id), ix))
    });
    available.max().map(|(_, _, ix)| ix)
}

/// The hybrid of packing and levelling (Ray's default): the local node if it scores 0, else one at
/// random of the first k.
fn hybrid(index: &Index, nodes: &Nodes, class: Class<'_>, random: &mut Random) -> Option<NodeIx> {
    let local = nodes
        .local
        .filter(|ix| index.major(*ix).is_some_and(is_idle));
    if local.is_some() {
        return local;
    }
    let top = nodes.live(class.basis) as u64 * u64::from(nodes.tuning.top_share.parts());
    let top = top
        .div_ceil(WHOLE.into())
        .max(nodes.tuning.top_nodes.into())
        .max(1) as usize;
    index.select(random.below(top.min(index.len())))
}

/// Whether this first part of a key of [`By::Score`] is of a score of 0.
fn is_idle(major: u64) -> bool {
    major >> 2 == 0
}

/// Spread: the next available node by id after the one chosen last for this class. The first of a class goes where for
/// the longest nothing was spread to, whatever was: else many classes of few tasks would all begin at the same node. Among
/// equals that is the first behind the local node: else many nodes that spread few tasks each would.
fn next_in_turn(index: &mut Index, nodes: &mut Nodes) -> Option<NodeIx> {
    let ids = |ix: NodeIx| nodes.get(ix).map(|node| node.id());
    let node = match index.cursor {
        Some(last) => {
            let next = nodes.after(last);
            let next = next.and_then(|from| index.first_from(nodes, from));
            next.or_else(|| index.select(0))?
        }
        None => {
            let local = nodes.local.and_then(ids);
            let available = (0..index.len()).filter_map(|rank| index.select(rank));
            available.min_by_key(|ix| (nodes.turns[ix.index()], ids(*ix) <= local, ids(*ix)))?
        }
    };
    index.cursor = ids(node);
    nodes.turn += 1;
    nodes.turns[node.index()] = nodes.turn;
    Some(node)
}

/// The node of the lowest estimated wait, the first by id among equals.
///
/// Nodes that hold none of the arguments differ only by their queues, in whose order the index is:
/// so the first of these and every holder are all that can win.
fn least_wait(index: &Index, nodes: &Nodes, demand: &Demand<'_>) -> Option<NodeIx> {
    if demand.argument_bytes == 0 {
        return index.select(0);
    }
    let held = |ix: NodeIx| {
        let id = nodes.get(ix)?.id();
        demand
            .holders
            .iter()
            .find(|(holder, _)| *holder == id)
            .map(|(_, bytes)| *bytes)
    };
    let transfer_us = |ix: NodeIx| {
        let missing = demand.argument_bytes.saturating_sub(held(ix).unwrap_or(0));
        wait::transfer_us(missing, bandwidth_to(nodes, ix, demand))
    };
    let estimate = |ix: NodeIx| {
        let wait = index.major(ix)?.saturating_add(transfer_us(ix));
        Some((wait, nodes.get(ix)?.id(), ix))
    };
    let by_queue = (0..index.len()).map_while(|rank| index.select(rank));
    let other = by_queue.into_iter().find(|ix| held(*ix).is_none());
    let holders = demand.holders.iter().filter_map(|(id, _)| nodes.by_id(*id));
    let best = holders.chain(other).filter_map(estimate).min();
    best.map(|(_, _, ix)| ix)
}

/// The mean of the bandwidths of all holders but this node.
fn bandwidth_to(nodes: &Nodes, to: NodeIx, demand: &Demand<'_>) -> u64 {
    let holders = demand.holders.iter().filter_map(|(id, _)| nodes.by_id(*id));
    let holders = holders
        .filter(|ix| *ix != to)
        .filter_map(|ix| nodes.get(ix));
    let (count, sum) = holders.fold((0, 0_u128), |(count, sum), holder| {
        (count + 1, sum + u128::from(holder.bandwidth()))
    });
    match sum.checked_div(count) {
        Some(mean) => mean as u64,
        None => wait::INITIAL_BANDWIDTH,
    }
}
