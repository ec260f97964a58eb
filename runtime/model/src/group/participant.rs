//! A node's side of groups: reserving bundles, giving them back, and what runs inside.
//!
//! Owns every bundle that is reserved on one node. Must not: decide
//! where bundles go, run or kill tasks.
//!
//! Invariants: a bundle of a group is reserved at most once here, by its newest round; a bundle goes back to the node
//! exactly once, when no allocation in it is left; a group that was claimed here takes no requests of earlier owners. What
//! owners send arrives once and in order: a round is not prepared after it was removed.
//!
//! ```text
//!   Prepare: room ------> Prepared ---- Commit ----> Committed (tasks run inside)
//!   Prepare: no room         |                           |
//!        |                   | Remove, owner lost,       | Remove, owner lost
//!        v                   v newer round, 60 s         v
//!     none <------------ given back <-- idle -------- Ending (tasks are killed)
//! ```
//!
//! A group that may be taken over by another node outlives its owner: what is committed of it stays when that is lost,
//! and what runs in it, until the next owner claims it, or for [`ORPHAN_LIMIT`].

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::message::{GroupAnswer, GroupRequest, Refusal, ReservationId, Round};
use crate::id::GroupId;
use crate::resource::{AcquireError, Allocation, Bundle, Fit, NodeResources, Request};
use crate::time::Instant;

/// After how long without a commit a prepared bundle is given back: its owner counts as alive and cannot be spoken with. An
/// owner decides much earlier; should the commit come yet, the answer is that the bundle is gone.
const HOLD_LIMIT: Duration = Duration::from_secs(60);
/// How long a committed bundle is kept whose owner is lost, for the next owner. That comes seconds after the loss, and
/// as late as the control store is back if that is away; whoever restarts it should find all as it was. Nobody comes
/// when the store is lost for good.
pub const ORPHAN_LIMIT: Duration = Duration::from_secs(600);
/// How many groups are remembered that were claimed here; the one with the lowest id is forgotten then, and what its
/// owners before have sent is dropped by the caller alone.
const CLAIMED_LIMIT: usize = 16_384;

/// All bundles that groups have reserved on one node. `N` names nodes, one incarnation of each; the
/// caller drops messages from incarnations that are over.
#[derive(Debug)]
pub struct Participant<N> {
    reservations: BTreeMap<Key, Reservation<N>>,
    /// Who has claimed a group, from which round on.
    claimed: BTreeMap<GroupId, (Round, N)>,
    /// When the first bundle is given back that has waited for too long.
    kept_until: Option<Instant>,
    effects: VecDeque<ParticipantEffect<N>>,
}

/// The group and the number of the bundle.
type Key = (GroupId, u32);

#[derive(Debug)]
struct Reservation<N> {
    owner: N,
    round: Round,
    phase: Phase,
    bundle: Bundle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reserved since then, and promised to its owner.
    Prepared { since: Instant },
    /// Tasks may run in it.
    Committed,
    /// The same; its owner is lost since then, and the next one has not claimed it yet.
    Orphaned { since: Instant },
    /// What runs in it is to be killed; then it is given back, and the owner is told that this
    /// round of it is removed, if it has asked.
    Ending { asked: Option<Round> },
}

/// What a node has to do for groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParticipantEffect<N> {
    /// Send this to an owner.
    Answer {
        /// Which one.
        to: N,
        /// What.
        answer: GroupAnswer,
    },
    /// Tasks may run in a bundle.
    Usable {
        /// The group.
        group: GroupId,
        /// The number of the bundle.
        bundle: u32,
    },
    /// Kill what runs in a bundle, also what holds nothing of it (blocked or without a request),
    /// and release what is held.
    Ended {
        /// The group.
        group: GroupId,
        /// The number of the bundle.
        bundle: u32,
    },
}

impl<N> Default for Participant<N> {
    fn default() -> Self {
        Self {
            reservations: BTreeMap::new(),
            claimed: BTreeMap::new(),
            kept_until: None,
            effects: VecDeque::new(),
        }
    }
}

impl<N: Copy + Ord> Participant<N> {
    /// A node without reservations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a request of an owner. `node` must always be the same node's resources. Who has owned the group before
    /// somebody else has claimed it gets no answer.
    pub fn handle(
        &mut self,
        now: Instant,
        node: &mut NodeResources,
        from: N,
        request: GroupRequest,
    ) {
        if let GroupRequest::Claim { group, from: round } = request {
            return self.claim(node, from, group, round);
        }
        let claimed = self.claimed.get(&request.group());
        if claimed.is_some_and(|(_, owner)| *owner != from) {
            return;
        }
        let answer = match request {
            GroupRequest::Claim { .. } => unreachable!("it was dealt with"),
            GroupRequest::Prepare { id, bundle } => {
                Some(match self.prepare(now, node, from, id, &bundle) {
                    Ok(()) => GroupAnswer::Prepared(id),
                    Err(why) => GroupAnswer::Refused { id, why },
                })
            }
            GroupRequest::Commit(id) => Some(match self.commit(id) {
                true => GroupAnswer::Committed(id),
                false => GroupAnswer::Gone(id),
            }),
            GroupRequest::Remove(id) => self.remove(node, id).then_some(GroupAnswer::Removed(id)),
        };
        if let Some(answer) = answer {
            self.answer(from, answer);
        }
    }

    /// A node is gone: the groups that it owned end here, committed or not. Of those that `outlives` names only what is
    /// not committed does: the rest waits for the next owner.
    pub fn owner_lost(
        &mut self,
        now: Instant,
        node: &mut NodeResources,
        lost: N,
        outlives: impl Fn(GroupId) -> bool,
    ) {
        let of_lost = self.reservations.iter_mut();
        let mut over = Vec::new();
        for (key, it) in of_lost.filter(|(_, it)| it.owner == lost) {
            match it.phase {
                Phase::Committed if outlives(key.0) => it.phase = Phase::Orphaned { since: now },
                Phase::Orphaned { .. } if outlives(key.0) => {}
                _ => over.push(*key),
            }
        }
        for key in over {
            self.end(node, key, None);
        }
        self.effects.retain(
            |effect| !matches!(effect, ParticipantEffect::Answer { to, .. } if *to == lost),
        );
        self.note_waiting();
    }

    /// A group is not there any more, or `owner` is not its owner: what it had here and nobody has claimed ends.
    pub fn disown(&mut self, node: &mut NodeResources, group: GroupId, owner: Option<N>) {
        let of_group = self.reservations.range((group, 0)..=(group, u32::MAX));
        let unclaimed = of_group.filter(|(_, it)| match owner {
            Some(owner) => it.owner == owner,
            None => matches!(it.phase, Phase::Orphaned { .. }),
        });
        let keys: Vec<Key> = unclaimed.map(|(key, _)| *key).collect();
        for key in keys {
            self.end(node, key, None);
        }
        self.note_waiting();
    }

    /// When [`Participant::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.kept_until
    }

    /// Gives back what has waited for too long, for a commit or for the next owner.
    pub fn handle_timeout(&mut self, now: Instant, node: &mut NodeResources) {
        if self.kept_until.is_none_or(|at| at > now) {
            return;
        }
        let over = self.reservations.iter();
        let over = over.filter(|(_, it)| it.phase.kept_until().is_some_and(|at| at <= now));
        let over: Vec<Key> = over.map(|(key, _)| *key).collect();
        for key in over {
            self.end(node, key, None);
        }
        self.note_waiting();
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<ParticipantEffect<N>> {
        self.effects.pop_front()
    }

    /// The bundle of this number, if tasks may run in it.
    pub fn usable(&self, group: GroupId, bundle: u32) -> Option<&Bundle> {
        let it = self.reservations.get(&(group, bundle))?;
        it.phase.is_usable().then_some(&it.bundle)
    }

    /// The bundles of a group in which tasks may run here, by number.
    pub fn usable_bundles(&self, group: GroupId) -> impl Iterator<Item = (u32, &Bundle)> {
        let all = self.reservations.range((group, 0)..=(group, u32::MAX));
        let usable = all.filter(|(_, it)| it.phase.is_usable());
        usable.map(|((_, bundle), it)| (*bundle, &it.bundle))
    }

    /// Every reservation, in the order of groups and bundles: whose it is, its round, and what it
    /// holds.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ReservationId, N, &Bundle)> {
        self.reservations.iter().map(|((group, bundle), it)| {
            let id = ReservationId {
                group: *group,
                bundle: *bundle,
                round: it.round,
            };
            (id, it.owner, &it.bundle)
        })
    }

    /// Whether a request fits a bundle now, and if not, why.
    pub fn judge(
        &self,
        group: GroupId,
        bundle: u32,
        request: &Request,
    ) -> Result<Fit, BundleError> {
        let it = self.usable(group, bundle);
        it.map(|it| it.judge(request))
            .ok_or(BundleError::NotUsable { group, bundle })
    }

    /// Takes all that is asked for from a bundle, or nothing.
    pub fn acquire(
        &mut self,
        group: GroupId,
        bundle: u32,
        request: &Request,
    ) -> Result<Allocation, BundleError> {
        Ok(self.usable_mut(group, bundle)?.acquire(request)?)
    }

    /// Gives back to a bundle what was taken from it. The last part of one that is ending gives it
    /// back to the node.
    ///
    /// # Panics
    /// If it was not taken from this bundle, as far as that shows.
    pub fn release(
        &mut self,
        node: &mut NodeResources,
        group: GroupId,
        bundle: u32,
        allocation: Allocation,
    ) {
        if allocation.is_empty() {
            return;
        }
        self.held_mut(group, bundle).release(allocation);
        self.finish_if_idle(node, (group, bundle));
    }

    /// Gives the CPU part alone back: for a task inside that becomes blocked.
    ///
    /// # Panics
    /// If it was not taken from this bundle, as far as that shows.
    pub fn release_cpu(
        &mut self,
        node: &mut NodeResources,
        group: GroupId,
        bundle: u32,
        allocation: &mut Allocation,
    ) {
        self.release(node, group, bundle, allocation.take_cpu_part());
    }

    /// Takes the CPU part of the request again for a task that was blocked. If it is not there, or
    /// if the bundle is ending, nothing changes.
    ///
    /// # Panics
    /// If the allocation holds a CPU part.
    pub fn reacquire_cpu(
        &mut self,
        group: GroupId,
        bundle: u32,
        request: &Request,
        allocation: &mut Allocation,
    ) -> Result<(), BundleError> {
        Ok(self
            .usable_mut(group, bundle)?
            .reacquire_cpu(request, allocation)?)
    }

    /// Ends everything when this node itself is gone, with what tasks hold inside.
    pub fn abandon(self) {
        self.reservations
            .into_values()
            .for_each(|it| it.bundle.abandon());
    }

    fn prepare(
        &mut self,
        now: Instant,
        node: &mut NodeResources,
        owner: N,
        id: ReservationId,
        request: &Request,
    ) -> Result<(), Refusal> {
        let key = (id.group, id.bundle);
        match self.reservations.get(&key).map(|it| it.round) {
            Some(round) if round == id.round => return Ok(()),
            Some(round) if round > id.round => return Err(Refusal::Stale),
            Some(_) => self.end(node, key, None),
            None => {}
        }
        if self.reservations.contains_key(&key) {
            return Err(Refusal::Ending);
        }
        let held = node.acquire(request).map_err(|why| match why {
            AcquireError::Unavailable(why) => Refusal::Unavailable(why),
            AcquireError::Infeasible(why) => Refusal::Infeasible(why),
        })?;
        let reservation = Reservation {
            owner,
            round: id.round,
            phase: Phase::Prepared { since: now },
            bundle: Bundle::new(held),
        };
        self.reservations.insert(key, reservation);
        self.note_waiting();
        Ok(())
    }

    /// False if there is no such reservation.
    fn commit(&mut self, id: ReservationId) -> bool {
        let Some(it) = self.reservations.get_mut(&(id.group, id.bundle)) else {
            return false;
        };
        match it.phase {
            _ if it.round != id.round => false,
            Phase::Prepared { .. } => {
                it.phase = Phase::Committed;
                self.effects.push_back(ParticipantEffect::Usable {
                    group: id.group,
                    bundle: id.bundle,
                });
                true
            }
            Phase::Committed | Phase::Orphaned { .. } => true,
            Phase::Ending { .. } => false,
        }
    }

    /// Somebody owns a group from this round on.
    fn claim(&mut self, node: &mut NodeResources, owner: N, group: GroupId, from: Round) {
        let before = self.claimed.get(&group);
        if before.is_some_and(|(round, _)| *round > from) {
            return;
        }
        self.claimed.insert(group, (from, owner));
        if self.claimed.len() > CLAIMED_LIMIT {
            self.claimed.pop_first();
        }
        let of_group = self
            .reservations
            .range_mut((group, 0)..=(group, u32::MAX))
            .filter(|(_, it)| it.round < from);
        let (mut bundles, mut over) = (Vec::new(), Vec::new());
        for (key, it) in of_group {
            it.owner = owner;
            match it.phase {
                Phase::Committed | Phase::Orphaned { .. } => {
                    it.phase = Phase::Committed;
                    bundles.push((key.1, it.round));
                }
                Phase::Prepared { .. } => over.push(*key),
                Phase::Ending { .. } => {}
            }
        }
        for key in over {
            self.end(node, key, None);
        }
        self.note_waiting();
        let holds = GroupAnswer::Holds {
            group,
            from,
            bundles,
        };
        self.answer(owner, holds);
    }

    fn note_waiting(&mut self) {
        let waiting = self.reservations.values();
        self.kept_until = waiting.filter_map(|it| it.phase.kept_until()).min();
    }

    /// False if the answer has to wait for tasks inside.
    fn remove(&mut self, node: &mut NodeResources, id: ReservationId) -> bool {
        let key = (id.group, id.bundle);
        let held = self.reservations.get(&key);
        if held.is_some_and(|it| it.round <= id.round) {
            self.end(node, key, Some(id.round));
            return !self.reservations.contains_key(&key);
        }
        true
    }

    /// Ends a reservation, now or when what runs in it was killed.
    fn end(&mut self, node: &mut NodeResources, key: Key, asked: Option<Round>) {
        let (group, bundle) = key;
        let it = self.reservations.get_mut(&key).expect("is reserved");
        match &mut it.phase {
            Phase::Prepared { .. } => {}
            phase @ (Phase::Committed | Phase::Orphaned { .. }) => {
                *phase = Phase::Ending { asked };
                self.effects
                    .push_back(ParticipantEffect::Ended { group, bundle });
            }
            Phase::Ending { asked: before } => *before = (*before).max(asked),
        }
        if self.reservations[&key].bundle.is_idle() {
            let it = self.reservations.remove(&key).expect("is reserved");
            node.release(it.bundle.into_allocation());
        }
    }

    fn finish_if_idle(&mut self, node: &mut NodeResources, key: Key) {
        let it = &self.reservations[&key];
        let (Phase::Ending { asked }, true) = (it.phase, it.bundle.is_idle()) else {
            return;
        };
        let it = self.reservations.remove(&key).expect("was looked up");
        node.release(it.bundle.into_allocation());
        if let Some(round) = asked {
            let (group, bundle) = key;
            let id = ReservationId {
                group,
                bundle,
                round,
            };
            self.answer(it.owner, GroupAnswer::Removed(id));
        }
    }

    fn usable_mut(&mut self, group: GroupId, bundle: u32) -> Result<&mut Bundle, BundleError> {
        match self.reservations.get_mut(&(group, bundle)) {
            Some(it) if it.phase.is_usable() => Ok(&mut it.bundle),
            Some(_) | None => Err(BundleError::NotUsable { group, bundle }),
        }
    }

    fn held_mut(&mut self, group: GroupId, bundle: u32) -> &mut Bundle {
        match self.reservations.get_mut(&(group, bundle)) {
            Some(it) => &mut it.bundle,
            None => {
                panic!("a part of bundle {bundle} of group {group} was released, but it is gone")
            }
        }
    }

    fn answer(&mut self, to: N, answer: GroupAnswer) {
        self.effects
            .push_back(ParticipantEffect::Answer { to, answer });
    }
}

impl Phase {
    /// When a bundle is given back that waits, if it does.
    fn kept_until(self) -> Option<Instant> {
        match self {
            Self::Prepared { since } => Some(since + HOLD_LIMIT),
            Self::Orphaned { since } => Some(since + ORPHAN_LIMIT),
            Self::Committed | Self::Ending { .. } => None,
        }
    }

    /// Whether tasks may run in the bundle.
    fn is_usable(self) -> bool {
        matches!(self, Self::Committed | Self::Orphaned { .. })
    }
}

/// Why nothing was taken from a bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is not reserved here, not committed yet, or ending.
    #[error("bundle {bundle} of placement group {group} is not ready on this node; wait for it")]
    NotUsable {
        /// The group.
        group: GroupId,
        /// The number of the bundle.
        bundle: u32,
    },
    /// It has not enough.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

#[cfg(test)]
mod tests;
