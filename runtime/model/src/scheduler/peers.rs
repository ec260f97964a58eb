//! Tasks that run at other nodes, and tasks of other nodes that run here.
//!
//! Owns the messages between schedulers. Must not: choose a node, or decide what a failure means.
//!
//! Messages between two incarnations arrive once, in the order in which they were sent, for as long as both are alive and
//! know each other: nothing is said twice. Each `Place` is answered by one `Settled` of its attempt, whatever happens. A
//! message names the attempt that it is about, since it may cross one the other way that ends that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::event::{Message, Outcome};
use super::explain::Reason;
use super::record::{Owner, PeerClaim, TaskIx};
use super::{Effect, Scheduler};
use crate::cluster::NodeIx;
use crate::id::{GroupId, Incarnation, NodeId, TaskId};
use crate::resource::Request;
use crate::task::{Argument, Attempt, Phase, Place, TaskKind, TaskSpec, TaskState};
use crate::time::Instant;

/// What is under way between this scheduler and others.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The latest view that each sent.
    views: BTreeMap<NodeId, u64>,
    timers: BTreeSet<(Instant, Timer)>,
    /// Claims of tasks that peers have handed back, in the order in which they end.
    refused: VecDeque<Refused>,
    /// The last incarnation of each node that is known to be over, of [`MOST_DEAD`] nodes: a late view does not revive it.
    dead: BTreeMap<NodeId, Incarnation>,
    /// Nodes that are not seen any more, and may live.
    unseen_nodes: BTreeSet<NodeId>,
    /// Groups whose owners nobody here knows, and which are waited for.
    ownerless: BTreeSet<GroupId>,
}

/// A peer had no room for a task that it was thought to have room for. It says so itself with its next view, which may
/// be on its way; until then, or for a while, the claim of that task stands for what is not known. Without it the same
/// task would be sent there again at once.
#[derive(Debug)]
struct Refused {
    until: Instant,
    node: NodeId,
    /// The last view of the node by then.
    version: u64,
    request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Group(GroupId),
    Rest(TaskId, Attempt),
    Owner(GroupId),
}

/// How many nodes are remembered whose last incarnation is over.
const MOST_DEAD: usize = 4096;
/// How long the owner of a group may take to be known here: it may have joined just now. An id that nobody has made
/// names no node at all, and what waits for it fails then.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

impl Peers {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let refused = self.refused.front().map(|refused| refused.until);
        timer.into_iter().chain(refused).min()
    }

    /// Whether a view is newer than what is known. It is the known one from then on.
    pub(crate) fn is_new_view(&mut self, node: NodeId, version: u64) -> bool {
        let known = self.views.entry(node).or_default();
        let is_new = version > *known;
        *known = version.max(*known);
        is_new
    }

    fn version(&self, node: NodeId) -> u64 {
        self.views.get(&node).copied().unwrap_or_default()
    }

    pub(crate) fn joined(&mut self, node: NodeId, version: u64) {
        self.views.insert(node, version);
        self.unseen_nodes.remove(&node);
    }

    pub(crate) fn note_dead(&mut self, node: NodeId, incarnation: Incarnation) {
        let last = self.dead.entry(node).or_default();
        *last = incarnation.max(*last);
        if self.dead.len() > MOST_DEAD
            && let Some(other) = self.dead.keys().copied().find(|it| *it != node)
        {
            self.dead.remove(&other);
        }
        self.unseen_nodes.remove(&node);
    }

    /// A node is not seen any more, and may live.
    pub(crate) fn note_unseen(&mut self, node: NodeId) {
        self.unseen_nodes.insert(node);
    }

    pub(crate) fn note_back(&mut self, node: NodeId, incarnation: Incarnation) {
        if self.dead.get(&node) == Some(&incarnation) {
            self.dead.remove(&node);
        }
    }

    /// Whether this incarnation of a node is known to be over.
    pub(crate) fn is_dead(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.dead
            .get(&node)
            .is_some_and(|last| *last >= incarnation)
    }

    /// Whether the only node that may own a group is known to be gone.
    pub(crate) fn is_without_owner(&self, group: &GroupId) -> bool {
        self.dead.keys().any(|node| group.may_be_of(*node))
    }

    fn forget(&mut self, node: NodeId) {
        self.views.remove(&node);
        self.refused.retain(|refused| refused.node != node);
    }
}

impl Scheduler {
    /// Asks after a while again about a group, if there is no answer by then.
    pub(super) fn ask_later(&mut self, group: GroupId) {
        let at = self.now + self.config.recheck;
        self.peers.timers.insert((at, Timer::Group(group)));
    }

    /// Waits for the owner of a group that nobody here has heard of, though not for ever.
    pub(super) fn await_owner(&mut self, group: GroupId) {
        if self.peers.ownerless.insert(group) {
            let at = self.now + OWNER_PATIENCE;
            self.peers.timers.insert((at, Timer::Owner(group)));
        }
    }

    /// The owner of a group should be known by now, if there is one: else there is no such group.
    fn owner_overdue(&mut self, group: GroupId) {
        self.peers.ownerless.remove(&group);
        if !self.is_group_unheard_of(&group) {
            return;
        }
        let is_owner = |node: &NodeId| group.may_be_of(*node);
        let may_come = self.cluster.expected().any(|node| is_owner(&node))
            || self.peers.unseen_nodes.iter().any(is_owner);
        match may_come {
            true => self.await_owner(group),
            false => self.end_members(group, Reason::NoGroup(group)),
        }
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message) {
        let message = Box::new(message);
        self.effects.push_back(Effect::Send { to, message });
    }

    /// Nodes have handed a task to and fro: it is looked at again after a while, so that two that are of two minds about
    /// it do not talk of nothing else.
    pub(super) fn rest(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let timer = Timer::Rest(task.id, task.attempt);
        let at = task.since + self.config.rest;
        self.peers.timers.insert((at, timer));
    }

    /// Gives a task that may be placed to another node.
    pub(super) fn hand_over(&mut self, ix: TaskIx, node: NodeIx) {
        if self.tasks[ix].owner != Owner::Here {
            // It is never handed on: its owner keeps track of it.
            return self.end_with(ix, Phase::Cancelled, Outcome::HandedBack, None);
        }
        let node = self.cluster[node].id();
        let task = &mut self.tasks[ix];
        task.hops = task.hops.saturating_add(1);
        let place = Place::Peer {
            node,
            is_accepted: false,
        };
        self.change(ix, TaskState::Placeable(place));
        self.send_place(ix, node);
    }

    fn send_place(&mut self, ix: TaskIx, to: NodeId) {
        let task = &self.tasks[ix];
        let args = task.args.iter().map(|arg| Argument {
            is_local: false,
            ..arg.clone()
        });
        let message = Message::Place {
            spec: TaskSpec {
                id: task.id,
                driver: task.driver,
                job: task.job,
                terms: task.terms.clone(),
                kind: task.kind,
                args: args.collect(),
            },
            attempt: task.attempt,
            hops: task.hops,
        };
        self.send(to, message);
    }

    /// Tells an owner what came of an attempt that it gave to this node.
    pub(super) fn settle(
        &mut self,
        owner: NodeId,
        task: TaskId,
        attempt: Attempt,
        outcome: Outcome,
    ) {
        if !self.cluster.is_there(owner) {
            return;
        }
        self.send(
            owner,
            Message::Settled {
                task,
                attempt,
                outcome,
            },
        );
    }

    /// Tells a node that the attempt which it has is not wanted any more.
    pub(super) fn withdraw(&mut self, ix: TaskIx, node: NodeId) {
        let (task, attempt) = (self.tasks[ix].id, self.tasks[ix].attempt);
        self.send(node, Message::Withdraw { task, attempt });
    }

    pub(super) fn message(&mut self, from: NodeId, message: Message) {
        // Also one that has not said yet what it has: nothing is said twice.
        if !self.cluster.is_there(from) {
            // It is not part of the cluster (any more).
            self.stale += 1;
            return;
        }
        match message {
            Message::Place {
                spec,
                attempt,
                hops,
            } => self.place_for(from, spec, attempt, hops),
            Message::Placed { task, attempt } => self.placed(from, &task, attempt),
            Message::Settled {
                task,
                attempt,
                outcome,
            } => self.settled(from, task, attempt, outcome),
            Message::Withdraw { task, attempt } => self.withdrawn(from, task, attempt),
            Message::Group(message) => self.group_message(from, message),
            Message::WantGroup(group) => self.group_wanted(from, group),
            Message::GroupStands { group, face } => self.group_stands(from, group, face),
        }
    }

    /// Another node wants a task of its run here.
    fn place_for(&mut self, owner: NodeId, spec: TaskSpec, attempt: Attempt, hops: u8) {
        let task = spec.id;
        if let Some(ix) = self.tasks.find(&task) {
            let known = &self.tasks[ix];
            if known.owner == Owner::Peer(owner) {
                if known.attempt >= attempt {
                    self.stale += 1;
                    return;
                }
                // The owner has begun a new attempt: this one does not count any more.
                self.cancel(ix);
            }
            if self.tasks.find(&task).is_some() {
                // An executor still has it, or it is another owner's.
                return self.settle(owner, task, attempt, Outcome::HandedBack);
            }
        }
        self.send(owner, Message::Placed { task, attempt });
        self.submit(spec, Owner::Peer(owner), attempt, hops);
    }

    fn placed(&mut self, from: NodeId, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.current(task, attempt) else {
            return;
        };
        if !self.tasks.accept(ix, from) {
            self.stale += 1;
        }
    }

    /// Counts a task in the queue of the peer that it is with now, and no longer in that of the one before.
    pub(super) fn queue_at(&mut self, before: Option<NodeId>, after: Option<NodeId>) {
        if before == after {
            return;
        }
        let run_time = self.run_time.get();
        let known = |id: Option<NodeId>| id.and_then(|id| self.cluster.by_id(id));
        let (before, after) = (known(before), known(after));
        if let Some(node) = before {
            self.cluster.unqueued(node);
        }
        if let Some(node) = after {
            self.cluster.queued(node, run_time);
        }
    }

    /// Counts what a task asks for as taken at the peer that it is about to be given to, until that tells of it.
    pub(super) fn claim(&mut self, ix: TaskIx, node: NodeIx, alternative: usize) {
        let terms = self.tasks[ix].terms.clone();
        self.cluster
            .claim(node, &terms.rule.alternatives[alternative]);
        let version = self.peers.version(self.cluster[node].id());
        let alternative = u16::try_from(alternative).expect("few alternatives");
        self.tasks[ix].claim = Some(PeerClaim {
            version,
            alternative,
        });
    }

    /// A task is not with a peer any more. Had that not told anything new since, it might do so only when something
    /// else happens there: for short tasks its views before and after are the same.
    pub(super) fn unclaim(&mut self, ix: TaskIx, peer: Option<NodeId>) {
        let Some(peer) = peer else {
            return;
        };
        let task = &mut self.tasks[ix];
        let Some(claim) = task.claim.take() else {
            return;
        };
        if claim.version == self.peers.version(peer)
            && let Some(node) = self.cluster.by_id(peer)
        {
            let rule = &self.tasks[ix].terms.rule;
            let request = &rule.alternatives[usize::from(claim.alternative)];
            self.cluster.unclaim(node, request);
        }
    }

    /// A peer has handed a task back: its claim stands for a while, as [`Refused`] says.
    fn keep_claim(&mut self, ix: TaskIx, peer: NodeId) {
        let version = self.peers.version(peer);
        let task = &mut self.tasks[ix];
        let Some(claim) = task.claim.take_if(|claim| claim.version == version) else {
            return;
        };
        self.peers.refused.push_back(Refused {
            until: self.now + self.config.recheck,
            node: peer,
            version,
            request: task.terms.rule.alternatives[usize::from(claim.alternative)].clone(),
        });
    }

    fn end_refused(&mut self) {
        let now = self.now;
        while let Some(refused) = self.peers.refused.pop_front_if(|it| it.until <= now) {
            if refused.version == self.peers.version(refused.node)
                && let Some(node) = self.cluster.by_id(refused.node)
            {
                self.cluster.unclaim(node, &refused.request);
            }
        }
    }

    /// A node says what came of an attempt that it had.
    fn settled(&mut self, from: NodeId, task: TaskId, attempt: Attempt, outcome: Outcome) {
        let Some(ix) = self.current(&task, attempt) else {
            return;
        };
        let is_there = matches!(
            self.tasks[ix].state(),
            TaskState::Placeable(Place::Peer { node, .. }) if *node == from
        );
        if !is_there {
            self.stale += 1;
            return;
        }
        match outcome {
            Outcome::Finished => self.end(ix, Phase::Finished, None),
            Outcome::Failed(kind) => self.attempt_failed(ix, kind),
            Outcome::Cancelled => self.lost(ix),
            Outcome::HandedBack if self.meet_doom(ix) => {}
            Outcome::HandedBack => {
                self.doubt_group(ix, from);
                self.keep_claim(ix, from);
                self.tasks[ix].attempt = attempt.next();
                self.change(ix, TaskState::Placeable(Place::Undecided));
                self.place(ix);
            }
        }
    }

    /// An owner does not want an attempt any more. One that has ended here is settled already.
    fn withdrawn(&mut self, owner: NodeId, task: TaskId, attempt: Attempt) {
        match self.current(&task, attempt) {
            Some(ix) if self.tasks[ix].owner == Owner::Peer(owner) => self.cancel(ix),
            Some(_) => self.stale += 1,
            None => {}
        }
    }

    /// What a peer has not said that it took goes elsewhere, if it is no call: those are for their actor. Should it have
    /// come there after all, it hears that nobody wants it.
    pub(super) fn take_back(&mut self, peer: NodeId) {
        let offered = self.tasks.given_to(peer).filter(|ix| {
            let task = &self.tasks[*ix];
            let is_call = matches!(task.kind, TaskKind::Call { .. });
            !is_call && task.offered_to() == Some(peer)
        });
        for ix in offered.collect::<Vec<_>>() {
            self.withdraw(ix, peer);
            if !self.meet_doom(ix) {
                self.tasks[ix].attempt = self.tasks[ix].attempt.next();
                self.change(ix, TaskState::Placeable(Place::Undecided));
                self.place(ix);
            }
        }
    }

    /// What was with a node that is gone is placed anew; what it had here is nobody's any more.
    pub(super) fn peer_lost(&mut self, peer: NodeId) {
        self.peers.forget(peer);
        for ix in self.tasks.given_to(peer).collect::<Vec<_>>() {
            let is_call = matches!(self.tasks[ix].kind, TaskKind::Call { .. });
            // What is not known to have come there is placed anew. But a call may have been begun, and nobody
            // said that it may be made twice.
            if self.tasks[ix].offered_to().is_none() || is_call {
                self.lost(ix);
            } else if !self.meet_doom(ix) {
                self.tasks[ix].attempt = self.tasks[ix].attempt.next();
                self.change(ix, TaskState::Placeable(Place::Undecided));
                self.place(ix);
            }
        }
        let orphans: Vec<_> = self.tasks.taken_from(peer).collect();
        self.cancel_all(&orphans);
    }

    /// Checks that each task that is shared with a peer is in the one list in which it belongs.
    ///
    /// # Panics
    /// If it is not.
    pub(super) fn check_tasks_of_peers(&self) {
        let mut shared: BTreeMap<_, [BTreeSet<TaskIx>; 3]> = BTreeMap::new();
        let live = Phase::ALL[..Phase::LIVE].iter();
        for ix in live.flat_map(|phase| self.tasks.in_phase(*phase)) {
            let task = &self.tasks[ix];
            let taken_from = match task.owner {
                Owner::Here => None,
                Owner::Peer(node) => Some(node),
            };
            let lists = [task.peer(), task.offered_to(), taken_from];
            for (list, peer) in lists.into_iter().enumerate() {
                if let Some(peer) = peer {
                    shared.entry(peer).or_default()[list].insert(ix);
                }
            }
        }
        assert!(self.tasks.peers().eq(shared.keys()));
        for (peer, [given, offered, taken]) in shared {
            assert!(self.tasks.given_to(peer).collect::<BTreeSet<_>>() == given);
            assert!(self.tasks.taken_from(peer).collect::<BTreeSet<_>>() == taken);
            assert_eq!(self.tasks.offered(peer), offered.len() as u64);
        }
    }

    /// Looks again at what waits for others. Tasks in the order in which they were submitted.
    pub(super) fn recheck(&mut self) {
        self.end_refused();
        let mut due = Vec::new();
        while let Some((at, timer)) = self.peers.timers.first().copied() {
            if at > self.now {
                break;
            }
            self.peers.timers.pop_first();
            due.push(timer);
        }
        due.sort_by_cached_key(|timer| match timer {
            Timer::Rest(task, _) => self.tasks.find(task).map(|ix| self.tasks[ix].sequence),
            Timer::Group(_) | Timer::Owner(_) => None,
        });
        for timer in due {
            match timer {
                Timer::Group(group) => self.ask_again(group),
                Timer::Owner(group) => self.owner_overdue(group),
                Timer::Rest(task, attempt) => {
                    if let Some(ix) = self.current(&task, attempt)
                        && matches!(
                            self.tasks[ix].state(),
                            TaskState::Placeable(Place::Undecided)
                        )
                    {
                        self.place(ix);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_nodes_are_remembered_as_dead() {
        let mut peers = Peers::default();
        for number in (0..MOST_DEAD as u32 + 9).rev() {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let node = NodeId::from_bytes(id);
            peers.note_dead(node, Incarnation(2));
            assert!(peers.is_dead(node, Incarnation(1)), "{number}");
        }
        assert_eq!(peers.dead.len(), MOST_DEAD);
    }
}
