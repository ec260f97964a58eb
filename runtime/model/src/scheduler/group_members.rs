//! The tasks of placement groups.
//!
//! Owns finding them, and what becomes of them when their group's bundles are somewhere else, or gone. Must not: know how
//! groups come to be.

use super::Scheduler;
use super::explain::Reason;
use super::record::{Owner, TaskIx};
use crate::cluster::Strategy;
use crate::id::GroupId;
use crate::task::Phase;

/// The states in which tasks wait for their group, or for room in it.
pub(super) const WAITING: [Phase; 3] = [Phase::Ready, Phase::Waiting, Phase::Infeasible];

impl Scheduler {
    /// There is news of where bundles are: the tasks that wait for that go where theirs are.
    pub(super) fn place_members(&mut self, group: GroupId) {
        // Each once, whatever becomes of it.
        let waiting = WAITING.map(|phase| self.members(group, phase));
        for ix in waiting.into_iter().flatten() {
            let rule = self.tasks[ix].terms.rule.clone();
            let Strategy::PlacementGroup { bundle, .. } = rule.strategy else {
                continue;
            };
            let is_placed = self.tasks[ix].phase() != Phase::Infeasible
                && self.groups.serves((&group, bundle), &rule.alternatives);
            if !is_placed {
                self.unplace(ix);
                self.place(ix);
            }
        }
        self.open_group(group);
    }

    /// Looks again at the classes whose tasks run in a group.
    pub(super) fn open_group(&mut self, group: GroupId) {
        let of_group = self.classes.iter();
        let of_group = of_group.filter(|(_, class)| class.group() == Some(group));
        let of_group: Vec<_> = of_group.map(|(ix, _)| ix).collect();
        of_group.into_iter().for_each(|class| self.open(class));
    }

    /// Ends the tasks of a group that no executor here has.
    pub(super) fn end_members(&mut self, group: GroupId, why: Reason) {
        let mut members = self.members(group, Phase::Placeable);
        for phase in WAITING {
            members.extend(self.members(group, phase));
        }
        for ix in members {
            if self.tasks[ix].owner != Owner::Here {
                // Whose it is hears of the group's end, and of why.
                self.unplace(ix);
                self.place(ix);
                continue;
            }
            if let Some(node) = self.tasks[ix].peer() {
                self.withdraw(ix, node);
            }
            self.doom(ix, Phase::Failed, Some(why.clone()));
        }
    }

    /// How many tasks of a group are in a state.
    pub(super) fn count_members(&self, group: GroupId, phase: Phase) -> usize {
        let of_group = self.classes.iter();
        let of_group = of_group.filter(|(_, class)| class.group() == Some(group));
        let counts = of_group.map(|(_, class)| class.counts[phase.index()] as usize);
        counts.sum()
    }

    /// The tasks of a group that are in a state. Where there are none, no task is looked at.
    pub(super) fn members(&self, group: GroupId, phase: Phase) -> Vec<TaskIx> {
        let count = self.count_members(group, phase);
        let of_group = |ix: &TaskIx| self.group_of(*ix) == Some(group);
        let in_phase = self.tasks.in_phase(phase);
        in_phase.filter(of_group).take(count).collect()
    }

    pub(super) fn group_of(&self, ix: TaskIx) -> Option<GroupId> {
        match self.tasks[ix].terms.rule.strategy {
            Strategy::PlacementGroup { group, .. } => Some(group),
            _ => None,
        }
    }
}
