//! Effects of coordinators and participants of placement groups.
//!
//! Owns carrying them out: messages, those to this node included, bundles on its own nodes, and what follows for tasks.
//! Must not: plan, or know how a reservation is made.

use super::event::Message;
use super::explain::Reason;
use super::{Effect, Scheduler};
use crate::cluster::NodeIx;
use crate::group::{CoordinatorEffect, GroupAnswer, GroupMessage, ParticipantEffect};
use crate::id::{GroupId, NodeId};
use crate::task::{Assignment, Phase};

impl Scheduler {
    /// Does what both sides of reservations want, until nothing is left to do here.
    pub(super) fn carry_out_groups(&mut self) {
        loop {
            let mut is_quiet = true;
            let owned = self.groups.owned.keys().copied().collect::<Vec<_>>();
            for group in owned {
                is_quiet &= self.carry_out_owned(group);
            }
            for ix in self.own.clone() {
                is_quiet &= self.carry_out_part(ix);
            }
            while let Some((to, from, message)) = self.groups.inbox.pop_front() {
                is_quiet = false;
                self.deliver(to, from, message);
            }
            if is_quiet {
                self.groups.note_deadline();
                return self.tell_of_groups();
            }
        }
    }

    /// The owner's side of a group. True if there was nothing to do.
    fn carry_out_owned(&mut self, group: GroupId) -> bool {
        let mut is_quiet = true;
        loop {
            let owned = self.groups.owned.get_mut(&group);
            let Some(effect) = owned.and_then(|owned| owned.coordinator.poll_effect()) else {
                return is_quiet;
            };
            is_quiet = false;
            self.groups.touched.insert(group);
            match effect {
                CoordinatorEffect::Send { to, request } => self.post(to, request.into()),
                CoordinatorEffect::Ready => self.place_members(group),
                CoordinatorEffect::Found => {
                    self.groups.has_changed = true;
                    self.place_members(group);
                }
                // Its tasks are lost with their node; what waits for it waits on.
                CoordinatorEffect::Lost { .. } => self.groups.has_changed = true,
                CoordinatorEffect::Removed => {
                    let gone = self.forget_owned(&group);
                    // Some may not have heard that it was being removed.
                    for to in gone.into_iter().flat_map(|it| it.telling.watchers) {
                        let face = None;
                        self.send(to, Message::GroupStands { group, face });
                    }
                }
            }
        }
    }

    /// A node's side. True if there was nothing to do.
    fn carry_out_part(&mut self, ix: NodeIx) -> bool {
        let mut is_quiet = true;
        loop {
            let part = self.groups.parts.get_mut(&ix);
            let Some(effect) = part.and_then(|part| part.participant.poll_effect()) else {
                return is_quiet;
            };
            is_quiet = false;
            match effect {
                ParticipantEffect::Answer { to, answer } => {
                    let from = self.groups.parts[&ix].id;
                    if to == self.own_id() {
                        self.groups.inbox.push_back((to, from, answer.into()));
                    } else {
                        let message = Box::new(Message::Group(answer.into()));
                        self.effects.push_back(Effect::Send { to, message });
                    }
                }
                ParticipantEffect::Usable { group, .. } => self.open_group(group),
                ParticipantEffect::Ended { group, bundle } => {
                    self.end_bundle(ix, group, bundle);
                }
            }
        }
    }

    /// Sends a request of an owner here to a node, which may be here too.
    fn post(&mut self, to: NodeId, message: GroupMessage) {
        let is_own = self
            .cluster
            .by_id(to)
            .is_some_and(|ix| self.cluster[ix].is_own());
        if is_own {
            let from = self.own_id();
            self.groups.inbox.push_back((to, from, message));
        } else {
            let message = Box::new(Message::Group(message));
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    fn deliver(&mut self, to: NodeId, from: NodeId, message: GroupMessage) {
        match message {
            GroupMessage::Answer(answer) => self.deliver_answer(from, answer),
            GroupMessage::Request(request) => {
                let Some(ix) = self.cluster.by_id(to) else {
                    return;
                };
                if let Some(part) = self.groups.parts.get_mut(&ix) {
                    let resources = self.cluster.own_mut(ix);
                    part.participant.handle(self.now, resources, from, request);
                    self.wake(ix);
                }
            }
        }
    }

    fn deliver_answer(&mut self, from: NodeId, answer: GroupAnswer) {
        let group = answer.group();
        match self.groups.owned.get_mut(&group) {
            Some(owned) => {
                self.groups.touched.insert(group);
                owned.coordinator.answer(self.now, from, answer);
            }
            // Its owner now asks for it.
            None => self.stale += 1,
        }
    }

    /// A bundle is taken away: what runs in it is killed, what waits for it belongs elsewhere.
    fn end_bundle(&mut self, node: NodeIx, group: GroupId, bundle: u32) {
        let why = self.groups.lost.unwrap_or(Reason::GroupRemoved)(group);
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            for ix in self.members(group, phase) {
                let assignment = self.tasks[ix].state().assignment();
                let is_in_it =
                    |it: &Assignment| it.node == node && it.bundle == Some((group, bundle));
                if assignment.is_some_and(is_in_it) {
                    self.doom(ix, Phase::Failed, Some(why.clone()));
                }
            }
        }
        self.place_members(group);
    }
}
