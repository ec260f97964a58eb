//! The view of a cluster, and every change of it.
//!
//! Owns joining and leaving, and the methods by which what is known of a node changes. Must not:
//! choose; that is `choose`, on the indexes of `candidates`.
//!
//! Invariant: every change goes through a method that notes it, so that indexes see it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::candidates::Indexes;
use super::labels::Labels;
use super::name::{NodeIx, NodeName};
use super::node::{NewNode, Node, Supply, have_same_totals};
use super::table::{Nodes, Tuning};
use super::wait::{self, Mean, QueueReport};
use crate::id::{Digest, Incarnation, NodeId};
use crate::resource::{NodeReport, NodeResources, Request, ResourceSet};

/// Why a node did not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It is there, in this incarnation or a later one.
    #[error(
        "node {id} is there already, as incarnation {there}, so incarnation {incarnation} of it is \
         not new; ignore it"
    )]
    Stale {
        /// The node.
        id: NodeId,
        /// The incarnation that wants to join.
        incarnation: Incarnation,
        /// The incarnation that is there.
        there: Incarnation,
    },
    /// It is there in an earlier incarnation.
    #[error("an earlier incarnation of node {id} has not left yet; let that one leave first")]
    StillThere {
        /// The node.
        id: NodeId,
    },
    /// Another node has the name.
    #[error("a node called {name} is there already; choose another name")]
    NameTaken {
        /// The name.
        name: NodeName,
    },
}

/// The view of a cluster: its nodes, what they have and what is free, and the choice of a node
/// for a request ([`Cluster::choose`]).
#[derive(Debug, Default)]
pub struct Cluster {
    pub(super) nodes: Nodes,
    pub(super) indexes: Indexes,
}

impl Cluster {
    /// A cluster without nodes.
    pub fn new(tuning: Tuning) -> Self {
        let nodes = Nodes {
            tuning,
            ..Nodes::default()
        };
        Self {
            nodes,
            indexes: Indexes::default(),
        }
    }

    /// Nodes are chosen by other numbers from now on.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        if tuning != self.nodes.tuning {
            self.nodes.tuning = tuning;
            let all: Vec<NodeIx> = self.nodes.by_id.values().copied().collect();
            all.into_iter().for_each(|ix| self.nodes.mark_both(ix));
        }
    }

    /// Takes a node in.
    pub fn join(&mut self, new: NewNode) -> Result<NodeIx, JoinError> {
        let (id, incarnation) = (new.id, new.incarnation);
        if let Some(node) = self.by_id(id).and_then(|ix| self.get(ix)) {
            let there = node.incarnation;
            return Err(match there < incarnation {
                true => JoinError::StillThere { id },
                false => JoinError::Stale {
                    id,
                    incarnation,
                    there,
                },
            });
        }
        if self.nodes.by_name.contains_key(&new.name) {
            return Err(JoinError::NameTaken { name: new.name });
        }
        let nodes = &mut self.nodes;
        let ix = nodes.free.pop().unwrap_or_else(|| {
            nodes.slots.push(None);
            let places = nodes.slots.len();
            nodes.now.grow(places);
            nodes.later.grow(places);
            nodes.turns.resize(places, 0);
            let scores = &mut nodes.scores;
            scores
                .iter_mut()
                .for_each(|scores| scores.resize(places, (0, 0)));
            NodeIx(u32::try_from(places - 1).expect("fewer than 2^32 nodes"))
        });
        let before = nodes.by_id.range(..id).next_back().map(|(_, ix)| *ix);
        let after = nodes.by_id.range(id..).next().map(|(_, ix)| *ix);
        if !nodes.order.insert(ix, before, after) {
            let in_order = nodes.by_id.range(..id).map(|(_, ix)| *ix);
            let in_order = in_order.chain([ix]);
            let in_order = in_order.chain(nodes.by_id.range(id..).map(|(_, ix)| *ix));
            nodes.order.respace(in_order);
        }
        nodes.turns[ix.index()] = 0;
        nodes.own += usize::from(matches!(new.supply, Supply::Own(_)));
        nodes.expected.remove(&id);
        nodes.by_id.insert(id, ix);
        nodes.by_name.insert(new.name.clone(), ix);
        nodes.slots[ix.index()] = Some(Node {
            id,
            name: new.name,
            incarnation,
            labels: new.labels,
            supply: new.supply,
            total: ResourceSet::new(),
            queue: QueueReport::default(),
            placed: QueueReport::default(),
            modules: BTreeMap::new(),
            bandwidth: Mean::of_bandwidths(),
            kept: None,
            kept_cpu: None,
            is_draining: false,
            is_unreachable: false,
        });
        nodes.update_total(ix);
        nodes.mark_both(ix);
        Ok(ix)
    }

    /// A node is a member and will say what it has: whatever is bound to it is [infeasible](super::Choice::Infeasible)
    /// until it [joins](Cluster::join), and not unschedulable. Of incarnations of it that are not later than one that
    /// is there nothing is noted.
    pub fn expect(&mut self, id: NodeId, incarnation: Incarnation, name: NodeName) {
        let there = self.by_id(id).map(|ix| self[ix].incarnation);
        if there < Some(incarnation) {
            self.nodes.expected.insert(id, (incarnation, name));
        }
    }

    /// An incarnation of a node, or an earlier one, will not come. Whether it was [expected](Cluster::expect).
    pub fn expect_no_more(&mut self, id: NodeId, incarnation: Incarnation) -> bool {
        let expected = &mut self.nodes.expected;
        let is_meant = expected.get(&id).is_some_and(|(it, _)| *it <= incarnation);
        is_meant && expected.remove(&id).is_some()
    }

    /// Whether a node is part of the cluster or [expected](Cluster::expect).
    pub fn is_there(&self, node: NodeId) -> bool {
        self.by_id(node).is_some() || self.nodes.expected.contains_key(&node)
    }

    /// The incarnation in which a node is part of the cluster, or else [expected](Cluster::expect).
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        let there = self.by_id(node).map(|ix| self[ix].incarnation);
        there.or_else(|| Some(self.nodes.expected.get(&node)?.0))
    }

    /// The nodes that are [expected](Cluster::expect).
    pub fn expected(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.expected.keys().copied()
    }

    /// Whether the node that somebody calls so, by its name or id, is [expected](Cluster::expect).
    pub fn is_expected(&self, name: &NodeName) -> bool {
        self.nodes.is_expected(name)
    }

    /// Lets a node go; `None` if it is not there. What tasks hold of an own node that is gone is to
    /// be [abandoned](crate::resource::Allocation::abandon).
    pub fn leave(&mut self, ix: NodeIx) -> Option<Node> {
        let nodes = &mut self.nodes;
        let node = nodes.slots.get_mut(ix.index())?.take()?;
        nodes.own -= usize::from(node.is_own());
        nodes.by_id.remove(&node.id);
        nodes.by_name.remove(&node.name);
        nodes.total.replace(&node.total, &ResourceSet::new());
        nodes.free.push(ix);
        nodes.mark_both(ix);
        if nodes.local == Some(ix) {
            nodes.local = None;
        }
        Some(node)
    }

    /// A node, if it is there.
    pub fn get(&self, ix: NodeIx) -> Option<&Node> {
        self.nodes.get(ix)
    }

    /// The nodes, in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeIx, &Node)> {
        self.nodes.by_id.values().map(|ix| (*ix, &self[*ix]))
    }

    /// How many nodes are there.
    pub fn len(&self) -> usize {
        self.nodes.by_id.len()
    }

    /// Whether no node is there.
    pub fn is_empty(&self) -> bool {
        self.nodes.by_id.is_empty()
    }

    /// The node with this id.
    pub fn by_id(&self, id: NodeId) -> Option<NodeIx> {
        self.nodes.by_id(id)
    }

    /// The node that somebody calls so: by its name, or by its id in hexadecimal digits.
    pub fn resolve(&self, name: &NodeName) -> Option<NodeIx> {
        self.nodes.resolve(name)
    }

    /// What the nodes have in all. A sum above [`Amount::MAX`](crate::resource::Amount::MAX) shows as that.
    pub fn total(&self) -> &ResourceSet {
        &self.nodes.total.shown
    }

    /// The settings.
    pub fn tuning(&self) -> Tuning {
        self.nodes.tuning
    }

    /// The node where this view is kept, which the default strategy prefers among equals.
    pub fn local(&self) -> Option<NodeIx> {
        self.nodes.local
    }

    /// Says which node is the local one.
    pub fn set_local(&mut self, local: Option<NodeIx>) {
        let before = std::mem::replace(&mut self.nodes.local, local);
        for ix in [before, local].into_iter().flatten() {
            self.nodes.now.mark(ix);
        }
    }

    /// The resources of an own node.
    pub fn own(&self, ix: NodeIx) -> Option<&NodeResources> {
        match &self.get(ix)?.supply {
            Supply::Own(own) => Some(own),
            Supply::Peer(_) => None,
        }
    }

    /// The resources of an own node, to acquire, release or count load. What the node has in all
    /// is not to be changed by this: see [`Cluster::resize`].
    ///
    /// # Panics
    /// If it is not there or not an own one.
    pub fn own_mut(&mut self, ix: NodeIx) -> &mut NodeResources {
        self.nodes.now.mark(ix);
        match &mut self.nodes.get_mut(ix).supply {
            Supply::Own(own) => own,
            Supply::Peer(_) => panic!("the resources of another node are not handed out here"),
        }
    }

    /// Changes what an own node has in all.
    ///
    /// # Panics
    /// If it is not there or not an own one.
    pub fn resize<R>(&mut self, ix: NodeIx, change: impl FnOnce(&mut NodeResources) -> R) -> R {
        let result = change(self.own_mut(ix));
        self.nodes.update_total(ix);
        result
    }

    /// Takes in what a peer says of itself. Claims that were made since its last report are
    /// replaced by its own load.
    ///
    /// # Panics
    /// If it is not there, or an own one.
    pub fn report(&mut self, ix: NodeIx, report: NodeReport) {
        let node = self.nodes.get_mut(ix);
        assert!(!node.is_own(), "an own node's resources are the truth");
        let before = std::mem::replace(&mut node.supply, Supply::Peer(report));
        self.nodes.now.mark(ix);
        if let (Supply::Peer(before), Supply::Peer(now)) = (before, &self[ix].supply)
            && !have_same_totals(&before, now)
        {
            self.nodes.update_total(ix);
        }
    }

    /// Counts a task that was placed on a node and has not started, at once, so that the next
    /// decision sees it.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn claim(&mut self, ix: NodeIx, request: &Request) {
        self.nodes.now.mark(ix);
        match &mut self.nodes.get_mut(ix).supply {
            Supply::Own(own) => own.add_load(request),
            Supply::Peer(report) => report.add_load(request),
        }
    }

    /// Stops counting a task that was placed on a node: it has started or gone. For a peer, a
    /// report may have come without it.
    ///
    /// # Panics
    /// If the node is not there, or is an own one and the task was not counted.
    pub fn unclaim(&mut self, ix: NodeIx, request: &Request) {
        self.nodes.now.mark(ix);
        match &mut self.nodes.get_mut(ix).supply {
            Supply::Own(own) => own.remove_load(request),
            Supply::Peer(report) => report.remove_load(request),
        }
    }

    /// Keeps what becomes free on a node for one request that has waited too long, or (`None`) no
    /// longer. Every other request is judged on what is left beside it.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn keep(&mut self, ix: NodeIx, request: Option<Request>) {
        self.nodes.now.mark(ix);
        self.nodes.get_mut(ix).kept = request;
    }

    /// Keeps CPU besides, for blocked tasks that are to go on: every request is judged on what is left beside it.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn keep_cpu(&mut self, ix: NodeIx, cpu: Option<Request>) {
        self.nodes.now.mark(ix);
        self.nodes.get_mut(ix).kept_cpu = cpu;
    }

    /// Replaces a node's labels.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn set_labels(&mut self, ix: NodeIx, labels: Labels) {
        self.nodes.mark_both(ix);
        self.nodes.get_mut(ix).labels = labels;
    }

    /// Takes in what waits on a node, as it says; and what was placed there that it has not heard of yet.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn set_queue(&mut self, ix: NodeIx, queue: QueueReport, placed: QueueReport) {
        let node = self.nodes.get_mut(ix);
        let sum = queue.and(placed);
        node.placed = placed;
        if node.queue != sum {
            node.queue = sum;
            self.nodes.later.mark(ix);
        }
    }

    /// Counts a task that was placed in the queue of a node, at once, so that the next decision sees it.
    /// `run_time_us`: how long it is taken to run.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn queued(&mut self, ix: NodeIx, run_time_us: u64) {
        let node = self.nodes.get_mut(ix);
        node.queue.add(run_time_us);
        node.placed.add(run_time_us);
        self.nodes.later.mark(ix);
    }

    /// Stops counting a task that was placed on a node: it has ended or gone. Only one that the node's last
    /// report is too early for: that knows of the others.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn unqueued(&mut self, ix: NodeIx) {
        let node = self.nodes.get_mut(ix);
        // What was expected of them may have changed since: their mean leaves nothing behind with the last.
        if let Some(run_time_us) = node.placed.run_time_us.checked_div(node.placed.tasks) {
            node.queue.remove(run_time_us);
            node.placed.remove(run_time_us);
            self.nodes.later.mark(ix);
        }
    }

    /// Says whether a node gets no new work.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn set_draining(&mut self, ix: NodeIx, is_draining: bool) {
        self.nodes.mark_both(ix);
        self.nodes.get_mut(ix).is_draining = is_draining;
    }

    /// Says whether a node is unreachable from here. Its next incarnation counts as reachable.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn set_unreachable(&mut self, ix: NodeIx, is_unreachable: bool) {
        self.nodes.mark_both(ix);
        self.nodes.get_mut(ix).is_unreachable = is_unreachable;
    }

    /// Counts a task that began to run this module on a node.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn module_started(&mut self, ix: NodeIx, module: Digest) {
        let count = self.nodes.get_mut(ix).modules.entry(module).or_default();
        *count = count.saturating_add(1);
        if *count == 1 {
            self.nodes.now.mark(ix);
        }
    }

    /// Stops counting one.
    ///
    /// # Panics
    /// If the node is not there, or none was counted.
    pub fn module_stopped(&mut self, ix: NodeIx, module: Digest) {
        let modules = &mut self.nodes.get_mut(ix).modules;
        let count = modules.get_mut(&module).expect("a module that runs there");
        *count -= 1;
        if *count == 0 {
            modules.remove(&module);
            self.nodes.now.mark(ix);
        }
    }

    /// Takes in how long a node took to send some bytes.
    ///
    /// # Panics
    /// If the node is not there.
    pub fn note_transfer(&mut self, from: NodeIx, bytes: u64, took: Duration) {
        let node = self.nodes.get_mut(from);
        node.bandwidth.observe(wait::bandwidth(bytes, took));
    }
}

impl std::ops::Index<NodeIx> for Cluster {
    type Output = Node;

    /// # Panics
    /// If the node is not there.
    fn index(&self, ix: NodeIx) -> &Node {
        self.get(ix).expect("a node that is there")
    }
}
