//! Nodes that come, change and go.
//!
//! Owns what follows for tasks from a change of the cluster: whom a newcomer helps, what was lost
//! with a node, what no node can serve any more. Must not: choose a node for a task.

use super::class::{ClassIx, Wants};
use super::event::{NodeInfo, PeerView};
use super::explain::Reason;
use super::record::{Owner, TaskIx};
use super::{Outcome, Scheduler};
use crate::cluster::{
    Basis, Labels, NewNode, NodeFit, NodeIx, QueueReport, Selector, Strategy, Supply,
};
use crate::id::{Incarnation, NodeId};
use crate::resource::{Amount, Fit, NodeResources, ResourceName};
use crate::task::{FailureKind, Phase, Place, TaskKind, TaskState};

/// How many classes are looked at for a task that a node has room for.
const LOOKED_AT: usize = 64;

impl Scheduler {
    /// Whether there are nodes whose resources are given out elsewhere.
    pub(super) fn has_peers(&self) -> bool {
        self.cluster.len() > self.own.len()
    }

    pub(super) fn own_node(&mut self, node: NodeInfo, resources: NodeResources) {
        let id = node.id;
        if self.config.local.is_some_and(|local| local != id) {
            // Whoever serves one node serves no other.
            self.stale += 1;
            return;
        }
        let Some(ix) = self.join(node, Supply::Own(resources)) else {
            return;
        };
        self.own.push(ix);
        self.groups.add_own(ix, id);
        self.groups.node_joined(id);
        if self.config.local == Some(id) {
            self.local = Some(ix);
            self.cluster.set_local(Some(ix));
        }
        self.actors_found(id);
        self.after_change();
    }

    /// Takes a node into the view. What is not new is dropped.
    fn join(&mut self, node: NodeInfo, supply: Supply) -> Option<NodeIx> {
        let joined = self.cluster.join(NewNode {
            id: node.id,
            name: node.name,
            incarnation: node.incarnation,
            labels: node.labels,
            supply,
        });
        let Ok(ix) = joined else {
            self.stale += 1;
            return None;
        };
        Some(ix)
    }

    pub(super) fn node_expected(&mut self, node: NodeInfo) {
        let there = self.cluster.by_id(node.id);
        let there = there.map(|ix| self.cluster[ix].incarnation());
        if there >= Some(node.incarnation) {
            // It has sent a view, and new owners of groups have asked it for its bundles.
            self.stale += 1;
            return;
        }
        self.peers.note_back(node.id, node.incarnation);
        if self.peers.is_dead(node.id, node.incarnation) {
            self.stale += 1;
            return;
        }
        self.cluster.expect(node.id, node.incarnation, node.name);
        self.groups.node_joined(node.id);
        self.carry_out_groups();
    }

    pub(super) fn peer_view(&mut self, node: NodeInfo, view: PeerView) {
        let known = self.cluster.by_id(node.id);
        let known = known.map(|ix| (ix, self.cluster[ix].incarnation()));
        let mut has_changed = true;
        let mut has_joined = false;
        let (ix, is_newcomer) = match known {
            Some((ix, incarnation)) if incarnation == node.incarnation => {
                let is_new = self.peers.is_new_view(node.id, view.version);
                if self.cluster[ix].is_own() || !is_new {
                    self.stale += 1;
                    return;
                }
                let total = self.cluster[ix].total().clone();
                let is_relabelled = *self.cluster[ix].labels() != node.labels;
                if is_relabelled {
                    self.cluster.set_labels(ix, node.labels);
                }
                self.cluster.report(ix, view.resources);
                has_changed = is_relabelled || *self.cluster[ix].total() != total;
                (ix, !self.cluster[ix].total().is_subset(&total))
            }
            Some((_, incarnation)) if incarnation > node.incarnation => {
                self.stale += 1;
                return;
            }
            None if self.peers.is_dead(node.id, node.incarnation) => {
                self.stale += 1;
                return;
            }
            known => {
                if let Some((_, incarnation)) = known {
                    self.node_lost(node.id, incarnation, true);
                }
                let (id, version) = (node.id, view.version);
                let Some(ix) = self.join(node, Supply::Peer(view.resources)) else {
                    return;
                };
                self.peers.joined(id, version);
                self.start_counting();
                self.actors_found(id);
                has_joined = true;
                (ix, true)
            }
        };
        let id = self.cluster[ix].id();
        // What it has not answered for, its view cannot count.
        let offered = QueueReport::of(self.tasks.offered(id), self.run_time.get());
        self.cluster.set_queue(ix, view.queue, offered);
        let mut changed = self.tenants.set_remote(id, &view.usage);
        if changed.is_err() && self.tenants.forget_unused() {
            changed = self.tenants.set_remote(id, &view.usage);
        }
        match changed {
            Ok(changed) => changed
                .into_iter()
                .for_each(|tenant| self.has_given_back(tenant)),
            Err(_) => self.stale += 1,
        }
        if has_changed {
            self.after_change();
        } else if self.groups.has_owned() {
            // There may be room now for what waits.
            self.groups.set_changed();
        }
        if has_joined {
            self.groups.node_joined(id);
            self.carry_out_groups();
            self.place_members_at(id);
        }
        // One that has nothing to begin may begin something that waits here.
        if is_newcomer || view.queue.tasks == 0 && self.tasks.offered(id) == 0 {
            self.offer_ready_task(ix);
        }
    }

    /// After nodes or what they have in all have changed.
    fn after_change(&mut self) {
        self.topology += 1;
        if self.tenants.total() != self.cluster.total() {
            self.tenants.set_total(self.cluster.total().clone());
            self.keys.note_all();
        }
        self.replace_unservable();
        self.stop_keeping_in_vain();
        self.open_all();
        self.retry_infeasible();
        self.groups.set_changed();
    }

    /// Places the waiting tasks again that the nodes here can never serve any more.
    fn replace_unservable(&mut self) {
        let waiting = self.classes.iter().filter(|(_, class)| {
            let counts = &class.counts;
            let placed = counts[Phase::Ready.index()] + counts[Phase::Waiting.index()];
            let (bound, rule) = (class.key.bound, class.rule());
            placed > 0 && !class.is_grouped() && !self.can_ever_serve(bound, rule)
        });
        let classes: Vec<_> = waiting.map(|(ix, _)| ix).collect();
        if classes.is_empty() {
            return;
        }
        let mut tasks = Vec::new();
        for phase in [Phase::Ready, Phase::Waiting] {
            let meant = self.tasks.in_phase(phase).filter(|ix| {
                let task = &self.tasks[*ix];
                classes.contains(&task.class) && !matches!(task.kind, TaskKind::Call { .. })
            });
            tasks.extend(meant);
        }
        for ix in tasks {
            self.unplace(ix);
            self.place(ix);
        }
    }

    /// Takes a task that is placed here back to where it is decided where it belongs.
    pub(super) fn unplace(&mut self, ix: TaskIx) {
        self.leave_line(ix);
        let home = self
            .classes
            .of_rule(&self.tasks[ix].terms.rule.clone(), self.tasks[ix].kind);
        self.reclassify(ix, home);
        self.change(ix, TaskState::Placeable(Place::Undecided));
        self.call_ended(ix);
    }

    /// Whether a node here could serve a rule if nothing were taken.
    fn can_ever_serve(&self, bound: Option<NodeIx>, rule: &crate::task::Rule) -> bool {
        let mut nodes = self
            .own
            .iter()
            .filter(|node| bound.is_none_or(|bound| bound == **node));
        nodes.any(|node| {
            let node = &self.cluster[*node];
            let selectors = rule.selectors.as_slice();
            let has_labels = has_labels(selectors, node.labels());
            let is_meant = match &rule.strategy {
                Strategy::NodeAffinity { node: name, soft } => {
                    *soft || self.cluster.resolve(name) == self.cluster.by_id(node.id())
                }
                _ => true,
            };
            has_labels
                && is_meant
                && !node.is_draining()
                && rule
                    .alternatives
                    .iter()
                    .any(|request| node.is_feasible(request))
        })
    }

    /// Offers each peer one ready task that it has room for, as far as is known: what waits there needs something else.
    pub(super) fn offer_to_all(&mut self) {
        if self.tasks.count(Phase::Ready) == 0 || !self.has_peers() {
            return;
        }
        let open = self.cluster.iter();
        let open = open.filter(|(_, node)| !node.is_own() && !node.is_closed());
        for ix in open.map(|(ix, _)| ix).collect::<Vec<_>>() {
            self.offer_ready_task(ix);
        }
    }

    /// Offers a newcomer, or a peer that has room, one ready task. One alone, so that a node is not stampeded: its next
    /// view shows whether it has room for another. One of another owner goes back to that, which sees the same node.
    ///
    /// Looks at the first task of each class, not at the first tasks of all: many that the node has nothing for would
    /// hide those behind them. Of very many classes some at a time, by turns.
    fn offer_ready_task(&mut self, node: NodeIx) {
        if self.cluster[node].is_closed() || self.tasks.count(Phase::Ready) == 0 {
            return;
        }
        let slots = self.classes.slots();
        let looked_at = slots.min(LOOKED_AT);
        let from = self.offered_from;
        self.offered_from = (from + looked_at) % slots.max(1);
        let classes = (from..from + looked_at).map(|at| ClassIx((at % slots) as u32));
        let waiting = classes
            .filter_map(|ix| self.classes.get(ix))
            .filter(|class| {
                class.in_line > 0 && class.key.wants == Wants::Start && !class.is_grouped()
            });
        let firsts = waiting.filter_map(|class| {
            let tenant = self.turn_lately_in(class)?;
            let (turn, task) = class.head(tenant)?;
            Some((tenant, turn, task))
        });
        let suiting = firsts.filter_map(|(tenant, turn, task)| {
            let alternative = self.suits_elsewhere(task, node)?;
            Some((tenant, turn, task, alternative))
        });
        let next = suiting.min_by(|one, other| {
            let by_tenant = self.tenants.order(one.0, other.0);
            by_tenant.then(one.1.cmp(&other.1))
        });
        if let Some((_, _, ix, alternative)) = next {
            self.send_away(ix, node, alternative);
        }
    }

    /// The alternative with which a task that waits here could start on another node now, if it may go there.
    fn suits_elsewhere(&self, ix: TaskIx, node: NodeIx) -> Option<usize> {
        let rule = &self.tasks[ix].terms.rule;
        let may_go = match rule.strategy {
            Strategy::Default | Strategy::Spread | Strategy::Random => true,
            // Only where the node that it names gives way.
            Strategy::NodeAffinity { soft, .. } => soft,
            Strategy::PlacementGroup { .. } => false,
        };
        if !may_go
            || self.rests(ix)
            || self.fit_on(node, ix, Basis::TrulyFree) != Some(NodeFit::Available)
        {
            return None;
        }
        let fits = |request| self.cluster[node].fit(request, Basis::TrulyFree) == Fit::Available;
        rule.alternatives.iter().position(fits)
    }

    /// A node is gone. `is_over`: so is that incarnation of it, as far as anybody knows.
    pub(super) fn node_lost(&mut self, id: NodeId, incarnation: Incarnation, is_over: bool) {
        match is_over {
            true => self.peers.note_dead(id, incarnation),
            false => self.peers.note_unseen(id),
        }
        let known = self.cluster.by_id(id);
        let was_expected = self.cluster.expect_no_more(id, incarnation);
        if is_over && known.is_none() {
            // Of one that was not seen for a while, or never, it was not known before.
            self.end_groups_of(id);
        }
        if known.is_none() && (is_over || was_expected) {
            self.groups.node_stays_away(self.now, id);
            // It may have reserved bundles here, and given tasks to this node, before its first view.
            self.group_owner_lost(id, is_over);
            self.peer_lost(id);
            self.after_change();
        }
        let Some(ix) = known.filter(|ix| self.cluster[*ix].incarnation() <= incarnation) else {
            self.stale += 1;
            return;
        };
        let was_own = self.cluster[ix].is_own();
        self.forget_kept_on(ix);
        if was_own {
            self.own.retain(|own| *own != ix);
            self.hot = self.hot.filter(|hot| *hot != ix);
            self.local = self.local.filter(|local| *local != ix);
        }
        if !is_over {
            self.let_go_of_groups();
        }
        self.groups.node_lost(self.now, ix, id);
        self.group_owner_lost(id, is_over);
        self.cluster.leave(ix);
        for tenant in self.tenants.clear_remote(id) {
            self.has_given_back(tenant);
        }
        self.actors_lost(id);
        match was_own {
            true => self.own_node_lost(ix),
            false => self.peer_lost(id),
        }
        match is_over {
            true => self.end_groups_of(id),
            false => self.doubt_groups_of(id),
        }
        self.after_change();
    }

    /// What ran on a node here is tried again, what was bound to it is placed anew.
    fn own_node_lost(&mut self, node: NodeIx) {
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            let is_there = |ix: &TaskIx| {
                let assignment = self.tasks[*ix].state().assignment();
                assignment.is_some_and(|it| it.node == node)
            };
            let lost: Vec<TaskIx> = self.tasks.in_phase(phase).filter(is_there).collect();
            for ix in lost {
                self.lost(ix);
            }
        }
        for phase in [Phase::Ready, Phase::Waiting] {
            let is_bound =
                |ix: &TaskIx| self.classes[self.tasks[*ix].class].key.bound == Some(node);
            let bound: Vec<TaskIx> = self.tasks.in_phase(phase).filter(is_bound).collect();
            for ix in bound {
                self.unplace(ix);
                self.place(ix);
            }
        }
    }

    /// An attempt went down with its node.
    pub(super) fn lost(&mut self, ix: TaskIx) {
        if self.meet_doom(ix) {
            return;
        }
        if self.tasks[ix].owner != Owner::Here {
            // Its owner counts the losses.
            return self.end_with(ix, Phase::Cancelled, Outcome::Cancelled, None);
        }
        if let TaskKind::Call { actor, .. } = self.tasks[ix].kind {
            // It may have had effects: it is retried only if `call_retries` says so.
            return match self.tasks[ix].retries_left {
                0 => self.end(ix, Phase::Failed, Some(Reason::ActorDied(actor))),
                _ => self.attempt_failed(ix, FailureKind::Retryable),
            };
        }
        let task = &mut self.tasks[ix];
        if task.losses >= self.config.max_losses {
            return self.attempt_failed(ix, FailureKind::Retryable);
        }
        task.losses += 1;
        self.retry(ix);
    }

    pub(super) fn set_capacity(
        &mut self,
        node: NodeId,
        name: &ResourceName,
        capacity: Option<Amount>,
    ) {
        let own = self
            .cluster
            .by_id(node)
            .filter(|ix| self.cluster[*ix].is_own());
        let Some(ix) = own else {
            self.stale += 1;
            return;
        };
        let is_done = self.cluster.resize(ix, |resources| match capacity {
            Some(capacity) => resources.set_capacity(name, capacity).is_ok(),
            None => resources.delete(name),
        });
        if is_done {
            self.after_change();
        } else {
            self.stale += 1;
        }
    }

    pub(super) fn set_labels(&mut self, node: NodeId, labels: Labels) {
        match self.cluster.by_id(node) {
            Some(ix) => {
                self.cluster.set_labels(ix, labels);
                self.after_change();
            }
            None => self.stale += 1,
        }
    }

    pub(super) fn set_draining(&mut self, node: NodeId, is_draining: bool) {
        match self.cluster.by_id(node) {
            Some(ix) => {
                self.cluster.set_draining(ix, is_draining);
                self.after_change();
            }
            None => self.stale += 1,
        }
    }

    pub(super) fn set_reachable(&mut self, node: NodeId, is_reachable: bool) {
        let peer = self
            .cluster
            .by_id(node)
            .filter(|ix| !self.cluster[*ix].is_own());
        let Some(ix) = peer else {
            self.stale += 1;
            return;
        };
        if self.cluster[ix].is_unreachable() != is_reachable {
            return;
        }
        self.cluster.set_unreachable(ix, !is_reachable);
        if !is_reachable {
            self.take_back(node);
        }
        self.after_change();
    }
}

fn has_labels(selectors: &[Selector], labels: &Labels) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
}
