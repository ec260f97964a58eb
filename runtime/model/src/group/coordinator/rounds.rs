//! The rounds of a coordinator: what follows when nodes have answered, refused, or are lost.
//!
//! Owns the way from one state to the next. Must not: be entered from outside; that is `coordinator.rs`.

use super::*;

impl<N: Copy + Ord> Coordinator<N> {
    /// A node says which bundles it has that an owner before has left.
    pub(super) fn handle_holds(
        &mut self,
        now: Instant,
        node: N,
        round: Round,
        bundles: &[(u32, Round)],
    ) {
        let Some(taken_over) = &mut self.taken_over else {
            return;
        };
        if taken_over.from != round || !taken_over.unheard.remove(&node) {
            return;
        }
        for (bundle, round) in bundles {
            self.keep_or_give_back(*bundle, node, *round);
        }
        if !bundles.is_empty() && !self.is_finding() {
            self.effects.push_back(CoordinatorEffect::Found);
            self.tell_if_ready(now);
        }
        self.look_if_found(now);
        self.tell_if_removed(now);
    }

    /// A bundle that can be used on a node stays there, unless it can be used on another already.
    pub(super) fn keep_or_give_back(&mut self, bundle: u32, node: N, round: Round) {
        let place = self.slots.get(bundle as usize).and_then(Slot::place);
        if place == Some((node, round)) {
            // It was asked twice.
            return;
        }
        if let (Lifecycle::Active, Some(Slot::Preparing { .. })) =
            (self.lifecycle, self.slots.get(bundle as usize))
        {
            // Nobody runs there yet.
            self.roll_back();
        }
        match self.slots.get_mut(bundle as usize) {
            Some(slot @ Slot::Unplaced) if self.lifecycle == Lifecycle::Active => {
                *slot = Slot::Ready { node, round };
            }
            _ => {
                let id = self.id(bundle, round);
                self.undo.insert((node, id));
                self.send(node, GroupRequest::Remove(id));
            }
        }
    }

    /// Goes on once everybody has said what it has.
    pub(super) fn look_if_found(&mut self, now: Instant) {
        let Some(taken_over) = &mut self.taken_over else {
            return;
        };
        if taken_over.is_found || !taken_over.unheard.is_empty() {
            return;
        }
        taken_over.is_found = true;
        if self.lifecycle == Lifecycle::Active {
            self.since = now;
            self.effects.push_back(CoordinatorEffect::Found);
            self.tell_if_ready(now);
        }
    }

    /// An answer about a reservation that is not wanted there any more, or never was.
    pub(super) fn answer_stale(&mut self, now: Instant, from: N, answer: GroupAnswer) {
        match answer {
            GroupAnswer::Refused { id, .. } | GroupAnswer::Gone(id) => {
                self.undo.remove(&(from, id));
                self.tell_if_removed(now);
            }
            // So are all rounds before it: several that wait for the same tasks to end are answered once.
            GroupAnswer::Removed(id) => {
                self.undo.retain(|(node, it)| {
                    (*node, it.bundle) != (from, id.bundle) || it.round > id.round
                });
                self.tell_if_removed(now);
            }
            // It was asked to give that back since.
            GroupAnswer::Prepared(_) | GroupAnswer::Committed(_) | GroupAnswer::Holds { .. } => {}
        }
    }

    pub(super) fn commit_if_all_prepared(&mut self, now: Instant) {
        let is_open = |slot: &Slot<N>| {
            matches!(
                slot,
                Slot::Preparing {
                    is_prepared: false,
                    ..
                }
            )
        };
        if self.slots.iter().any(is_open) {
            return;
        }
        for bundle in 0..self.slots.len() {
            if let Slot::Preparing { node, round, .. } = self.slots[bundle] {
                self.slots[bundle] = Slot::Committing { node, round };
                let id = self.id(bundle as u32, round);
                self.send(node, GroupRequest::Commit(id));
            }
        }
        self.prepare_until = None;
        self.since = now;
    }

    /// A round has failed: everything of it goes back, and the next plan waits a little, for each
    /// group a different time, so that two groups do not get into each other's way for ever.
    pub(super) fn refused(&mut self, now: Instant) {
        self.roll_back();
        let longest = BACKOFF * (1 << self.refusals.min(BACKOFF_DOUBLINGS));
        self.refusals += 1;
        let seed = self
            .group
            .as_bytes()
            .chunks_exact(8)
            .fold(self.round.0, |seed, part| {
                let part = part.try_into().expect("chunks of 8");
                Random::new(seed ^ u64::from_le_bytes(part)).next()
            });
        let longest_us = longest.as_micros() as usize;
        let wait_us = longest_us / 2 + Random::new(seed).below(longest_us);
        self.backoff_until = Some(now + Duration::from_micros(wait_us as u64));
    }

    pub(super) fn roll_back(&mut self) {
        for bundle in 0..self.slots.len() {
            if let Slot::Preparing { .. } = self.slots[bundle] {
                self.give_back(bundle as u32);
            }
        }
        self.prepare_until = None;
    }

    /// Asks the node of a bundle to give it back, if it has one.
    pub(super) fn give_back(&mut self, bundle: u32) {
        let slot = &mut self.slots[bundle as usize];
        if let Some((node, round)) = slot.place() {
            *slot = Slot::Unplaced;
            let id = self.id(bundle, round);
            self.undo.insert((node, id));
            self.send(node, GroupRequest::Remove(id));
        }
    }

    pub(super) fn lose(&mut self, now: Instant, bundle: u32, node: N) {
        self.slots[bundle as usize] = Slot::Unplaced;
        self.since = now;
        self.effects
            .push_back(CoordinatorEffect::Lost { bundle, node });
    }

    pub(super) fn tell_if_ready(&mut self, now: Instant) {
        if self.state() == GroupState::Ready {
            self.refusals = 0;
            self.last_refusal = None;
            self.since = now;
            self.effects.push_back(CoordinatorEffect::Ready);
        }
    }

    pub(super) fn tell_if_removed(&mut self, now: Instant) {
        let is_all_heard = self
            .taken_over
            .as_ref()
            .is_none_or(|it| it.unheard.is_empty());
        if self.lifecycle == Lifecycle::Removing && self.undo.is_empty() && is_all_heard {
            self.lifecycle = Lifecycle::Removed;
            self.since = now;
            self.effects.push_back(CoordinatorEffect::Removed);
        }
    }

    pub(super) fn is_preparing(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| matches!(slot, Slot::Preparing { .. }))
    }

    pub(super) fn send_prepare(&mut self, bundle: u32, node: N, round: Round) {
        let request = GroupRequest::Prepare {
            id: self.id(bundle, round),
            bundle: self.spec.bundles()[bundle as usize].clone(),
        };
        self.send(node, request);
    }

    pub(super) fn send(&mut self, to: N, request: GroupRequest) {
        self.effects
            .push_back(CoordinatorEffect::Send { to, request });
    }

    pub(super) fn id(&self, bundle: u32, round: Round) -> ReservationId {
        ReservationId {
            group: self.group,
            bundle,
            round,
        }
    }
}
