//! The owner's side of a group: from a plan to bundles that are ready, and back.
//!
//! Owns where each bundle is reserved and how far that is, what was rolled back and may still be
//! held somewhere. Must not: know resources of nodes beyond a plan, read a clock, send anything itself.
//!
//! Invariants: a bundle is committed only after every bundle of its round was prepared; a node that
//! was ever asked to prepare a bundle is asked to give it back, unless the bundle is wanted there; an answer counts only for
//! the node and round it was asked of; what an owner before has reserved is known of every node before anything is planned.
//! What is sent to a node arrives, once and in order, or the node is lost: so nothing is sent twice.
//!
//! ```text
//!            plan              all prepared           all committed
//!  Pending --------> Preparing -------------> Committing ----------> Ready
//!     ^                  |                        |                    |
//!     |  refused, lost,  |      node lost: its bundles alone           |
//!     +---- no answer ---+<--------- start again at Pending -----------+
//!
//!  any state -- remove --> Removing -- all given back --> Removed
//! ```
//!
//! Whoever takes a group over ([`Coordinator::take_over`]) begins by asking all nodes what they have of it. That stays
//! where it is, and the group goes on from there.

mod rounds;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::message::{GroupAnswer, GroupRequest, Refusal, ReservationId, Round};
use super::plan::{Wanted, plan_among};
use super::plan_error::PlanError;
use super::room::Offer;
use super::spec::GroupSpec;
use crate::id::GroupId;
use crate::random::Random;
use crate::time::Instant;

/// After how long a node that does not answer a prepare counts as one that refused, so that it
/// does not keep the other bundles from everybody else.
pub(super) const PREPARE_LIMIT: Duration = Duration::from_secs(10);
/// The wait after a first refusal, before the next plan. It doubles with each refusal in a row.
pub(super) const BACKOFF: Duration = Duration::from_millis(50);
/// How often the wait doubles: up to 3.2 s. The actual wait is between half of it and one and a half.
pub(super) const BACKOFF_DOUBLINGS: u32 = 6;

/// A placement group, as its owner keeps it. `N` names nodes, one incarnation of each.
///
/// Feed it with [`Coordinator::plan`] while [`Coordinator::wants_plan`], with answers, lost nodes
/// and the time; do what [`Coordinator::poll_effect`] says.
#[derive(Debug)]
pub struct Coordinator<N> {
    group: GroupId,
    spec: GroupSpec,
    lifecycle: Lifecycle,
    /// By number of the bundle.
    slots: Vec<Slot<N>>,
    round: Round,
    /// What is to be given back and may still be held.
    undo: BTreeSet<(N, ReservationId)>,
    /// What an owner before has left, if there was one.
    taken_over: Option<TakenOver<N>>,
    /// How often in a row a round was refused.
    refusals: u32,
    last_refusal: Option<(u32, Refusal)>,
    /// No plan before, after a refusal.
    backoff_until: Option<Instant>,
    prepare_until: Option<Instant>,
    since: Instant,
    effects: VecDeque<CoordinatorEffect<N>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    Active,
    Removing,
    Removed,
}

/// Where a bundle is, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot<N> {
    Unplaced,
    Preparing {
        node: N,
        round: Round,
        is_prepared: bool,
    },
    Committing {
        node: N,
        round: Round,
    },
    Ready {
        node: N,
        round: Round,
    },
}

/// The finding of what an owner before has left.
#[derive(Debug)]
struct TakenOver<N> {
    /// The first round of this owner.
    from: Round,
    /// Who has not said yet what it has.
    unheard: BTreeSet<N>,
    /// All that were there have said it, or are lost. Who joins later is asked too, and does not keep plans waiting.
    is_found: bool,
}

/// How far a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupState {
    /// Some bundles have no node; it waits for a plan.
    Pending,
    /// Nodes are asked to reserve the bundles.
    Preparing,
    /// All bundles are reserved; the nodes are told so.
    Committing,
    /// Tasks can run in all bundles.
    Ready,
    /// The bundles are being given back.
    Removing,
    /// All bundles were given back.
    Removed,
}

/// What an owner has to do for a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorEffect<N> {
    /// Send this to a node.
    Send {
        /// Which one.
        to: N,
        /// What.
        request: GroupRequest,
    },
    /// All bundles are ready, for the first time or again.
    Ready,
    /// Bundles that an owner before has left are ready, perhaps not all.
    Found,
    /// A bundle that was committed is not there any more, and what ran in it has to be tried again
    /// or fails. It gets a new place with the next plan.
    Lost {
        /// Its number.
        bundle: u32,
        /// Where it was.
        node: N,
    },
    /// Nothing of the group is held anywhere; it can be forgotten.
    Removed,
}

impl<N: Copy + Ord> Coordinator<N> {
    /// A group that waits for its first plan.
    pub fn new(group: GroupId, spec: GroupSpec, now: Instant) -> Self {
        Self {
            group,
            lifecycle: Lifecycle::Active,
            slots: vec![Slot::Unplaced; spec.bundles().len()],
            spec,
            round: Round::default(),
            undo: BTreeSet::new(),
            taken_over: None,
            refusals: 0,
            last_refusal: None,
            backoff_until: None,
            prepare_until: None,
            since: now,
            effects: VecDeque::new(),
        }
    }

    /// A group that had another owner, or this node in an earlier incarnation. `from` is higher than every round of
    /// earlier owners. All nodes are asked first which of its bundles they have.
    pub fn take_over(
        group: GroupId,
        spec: GroupSpec,
        from: Round,
        nodes: impl IntoIterator<Item = N>,
        now: Instant,
    ) -> Self {
        let mut it = Self::new(group, spec, now);
        it.round = from;
        it.taken_over = Some(TakenOver {
            from,
            unheard: BTreeSet::new(),
            is_found: false,
        });
        for node in nodes {
            it.node_joined(node);
        }
        it.look_if_found(now);
        it
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// What was asked for.
    pub fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    /// How far it is: as far as the bundle that is least far.
    pub fn state(&self) -> GroupState {
        match self.lifecycle {
            Lifecycle::Removing => return GroupState::Removing,
            Lifecycle::Removed => return GroupState::Removed,
            Lifecycle::Active if self.is_finding() => return GroupState::Pending,
            Lifecycle::Active => {}
        }
        let state = |slot: &Slot<N>| match slot {
            Slot::Unplaced => GroupState::Pending,
            Slot::Preparing { .. } => GroupState::Preparing,
            Slot::Committing { .. } => GroupState::Committing,
            Slot::Ready { .. } => GroupState::Ready,
        };
        // While some bundles are prepared no others are planned.
        if self.is_preparing() {
            return GroupState::Preparing;
        }
        let states = self.slots.iter().map(state);
        states.min().expect("a group has bundles")
    }

    /// Since when it is in its state, or since when it has been trying to get there.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// The node in whose bundle of this number tasks can run; `None` while there is none.
    pub fn ready_node(&self, bundle: u32) -> Option<N> {
        match self.slots.get(bundle as usize)? {
            Slot::Ready { node, .. } => Some(*node),
            Slot::Unplaced | Slot::Preparing { .. } | Slot::Committing { .. } => None,
        }
    }

    /// By number of the bundle: the node that has it or is asked for it.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Option<N>> {
        self.slots
            .iter()
            .map(|slot| slot.place().map(|(node, _)| node))
    }

    /// The numbers of the bundles that nodes have or are asked for, and of those that may not have been given back yet:
    /// one that is reserved twice comes twice. In order.
    pub fn reserved(&self) -> Vec<u32> {
        let placed = (0..).zip(self.nodes());
        let placed = placed.filter_map(|(bundle, node)| node.map(|_| bundle));
        // A node may say that it has one that the group never had.
        let is_ours = |bundle: &u32| self.slots.len() > *bundle as usize;
        let undone = self.undo.iter().map(|(_, id)| id.bundle).filter(is_ours);
        let mut reserved: Vec<u32> = placed.chain(undone).collect();
        reserved.sort_unstable();
        reserved
    }

    /// The bundle and reason of the last refusal, while the group is not ready: for people.
    pub fn last_refusal(&self) -> Option<(u32, &Refusal)> {
        self.last_refusal
            .as_ref()
            .map(|(bundle, why)| (*bundle, why))
    }

    /// Whether it is not known yet which bundles an owner before has left.
    pub fn is_finding(&self) -> bool {
        self.taken_over.as_ref().is_some_and(|it| !it.is_found)
    }

    /// Whether bundles wait for [`Coordinator::plan`].
    pub fn wants_plan(&self) -> bool {
        self.lifecycle == Lifecycle::Active
            && !self.is_finding()
            && self.backoff_until.is_none()
            && !self.is_preparing()
            && self.slots.contains(&Slot::Unplaced)
    }

    /// Chooses nodes for the bundles that have none and begins to reserve them. On an error
    /// nothing changes; it is to be tried again when resources change.
    ///
    /// # Panics
    /// If no plan is wanted, or if a node is offered twice.
    pub fn plan<'a, O: Offer + ?Sized + 'a>(
        &mut self,
        now: Instant,
        nodes: impl IntoIterator<Item = (N, &'a O)>,
    ) -> Result<(), PlanError> {
        assert!(self.wants_plan(), "group {} wants no plan", self.group);
        let bundles = (0..).zip(self.spec.bundles()).zip(&self.slots);
        let unplaced: Vec<Wanted<'_>> = bundles
            .filter(|(_, slot)| **slot == Slot::Unplaced)
            .map(|((number, request), _)| Wanted {
                number,
                request,
                selectors: self.spec.selectors(number),
            })
            .collect();
        let kept: Vec<N> = self.nodes().flatten().collect();
        let places = plan_among(self.spec.kind(), &unplaced, &kept, nodes)?;
        self.round = self.round.next();
        self.since = now;
        for (bundle, node) in places {
            self.slots[bundle as usize] = Slot::Preparing {
                node,
                round: self.round,
                is_prepared: false,
            };
            self.send_prepare(bundle, node, self.round);
        }
        self.prepare_until = Some(now + PREPARE_LIMIT);
        Ok(())
    }

    /// Takes a node's answer. A stale one changes nothing.
    ///
    /// # Panics
    /// If it is about another group.
    pub fn answer(&mut self, now: Instant, from: N, answer: GroupAnswer) {
        assert_eq!(answer.group(), self.group, "an answer of another group");
        if let GroupAnswer::Holds {
            from: round,
            bundles,
            ..
        } = &answer
        {
            return self.handle_holds(now, from, *round, bundles);
        }
        let Some(id) = answer.id() else {
            return;
        };
        let place = self.slots.get(id.bundle as usize).and_then(Slot::place);
        if place != Some((from, id.round)) {
            return self.answer_stale(now, from, answer);
        }
        let slot = &mut self.slots[id.bundle as usize];
        match (answer, *slot) {
            (GroupAnswer::Prepared(_), Slot::Preparing { node, round, .. }) => {
                *slot = Slot::Preparing {
                    node,
                    round,
                    is_prepared: true,
                };
                self.commit_if_all_prepared(now);
            }
            (GroupAnswer::Committed(_), Slot::Committing { node, round }) => {
                *slot = Slot::Ready { node, round };
                self.tell_if_ready(now);
            }
            (GroupAnswer::Refused { why, .. }, Slot::Preparing { .. }) => {
                *slot = Slot::Unplaced;
                self.last_refusal = Some((id.bundle, why));
                self.refused(now);
            }
            (GroupAnswer::Gone(_), Slot::Preparing { .. }) => {
                *slot = Slot::Unplaced;
                self.refused(now);
            }
            (GroupAnswer::Gone(_), Slot::Committing { .. } | Slot::Ready { .. }) => {
                self.lose(now, id.bundle, from);
            }
            // A node out of order.
            _ => {}
        }
    }

    /// A node has joined: it may have something that an owner before has left. Otherwise nothing changes.
    pub fn node_joined(&mut self, node: N) {
        let Some(taken_over) = &mut self.taken_over else {
            return;
        };
        let from = taken_over.from;
        if self.lifecycle != Lifecycle::Removed && taken_over.unheard.insert(node) {
            let group = self.group;
            self.send(node, GroupRequest::Claim { group, from });
        }
    }

    /// A node is gone, with all it held. Its bundles get new places; the others stay.
    pub fn node_lost(&mut self, now: Instant, lost: N) {
        self.undo.retain(|(node, _)| *node != lost);
        if let Some(taken_over) = &mut self.taken_over {
            taken_over.unheard.remove(&lost);
        }
        self.effects
            .retain(|effect| !matches!(effect, CoordinatorEffect::Send { to, .. } if *to == lost));
        let mut was_preparing = false;
        for bundle in 0..self.slots.len() {
            match self.slots[bundle] {
                Slot::Preparing { node, .. } if node == lost => {
                    self.slots[bundle] = Slot::Unplaced;
                    was_preparing = true;
                }
                Slot::Committing { node, .. } | Slot::Ready { node, .. } if node == lost => {
                    self.lose(now, bundle as u32, node);
                }
                Slot::Unplaced
                | Slot::Preparing { .. }
                | Slot::Committing { .. }
                | Slot::Ready { .. } => {}
            }
        }
        if was_preparing {
            self.roll_back();
        }
        self.look_if_found(now);
        self.tell_if_removed(now);
    }

    /// The group is not wanted any more: every node gives its bundles back and kills what runs in
    /// them. More than once is the same as once.
    pub fn remove(&mut self, now: Instant) {
        if self.lifecycle != Lifecycle::Active {
            return;
        }
        self.lifecycle = Lifecycle::Removing;
        self.since = now;
        for bundle in 0..self.slots.len() {
            self.give_back(bundle as u32);
        }
        self.backoff_until = None;
        self.prepare_until = None;
        self.tell_if_removed(now);
    }

    /// When [`Coordinator::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let times = [self.prepare_until, self.backoff_until];
        times.into_iter().flatten().min()
    }

    /// Gives up waiting, allows the next plan.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        is_over(&mut self.backoff_until);
        if is_over(&mut self.prepare_until) {
            self.refused(now);
        }
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<CoordinatorEffect<N>> {
        self.effects.pop_front()
    }
}

impl<N: Copy> Slot<N> {
    fn place(&self) -> Option<(N, Round)> {
        match self {
            Self::Unplaced => None,
            Self::Preparing { node, round, .. }
            | Self::Committing { node, round }
            | Self::Ready { node, round } => Some((*node, *round)),
        }
    }
}
