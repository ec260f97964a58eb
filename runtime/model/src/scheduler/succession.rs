//! What a task held that has ended goes to the next of its line as it is, where that would get just that.
//!
//! Owns the question whether it would. Must not: change what is decided. Whoever goes this way ends as by the long one,
//! on which everything is given back, the tenant's share and its turn are worked out twice, and the pools are searched
//! for what they have just got back. A node that works through a long line of tasks of one kind goes this way with
//! nearly all of them.

use super::Scheduler;
use super::class::{ClassIx, Gate, Wants};
use super::record::TaskIx;
use super::running::Holder;
use crate::fairness::TenantIx;
use crate::task::{Assignment, TaskState};

/// What a task held that has ended: nobody's until it is looked who starts, or until the next event.
#[derive(Debug)]
pub(super) struct Estate {
    class: ClassIx,
    lane: TenantIx,
    tenant: TenantIx,
    assignment: Box<Assignment>,
}

impl Scheduler {
    /// Whether the first of the line of a task that ends is the next to start, and would get just what that one holds.
    pub(super) fn has_heir(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let (TaskState::Running(assignment), [own]) = (task.state(), &self.own[..]) else {
            return false;
        };
        // Nobody else waits, and this one waits for just what is held.
        let class = &self.classes[task.class];
        let lane = self.lane_of(ix);
        let is_next = self.gated == 1
            && class.gate == Gate::Parked
            && class.key.wants == Wants::Start
            && class.key.bound.is_none()
            && class.rule().alternatives.len() == 1
            && class.only_lane() == Some(lane);
        let heir = class.head(lane).filter(|_| is_next);
        let is_plain =
            assignment.bundle.is_none() && !assignment.lacks_cpu && assignment.node == *own;
        // Nor is it the time of those who have other claims.
        is_plain
            && heir.is_some_and(|(_, heir)| self.tasks[heir].tenant == task.tenant)
            && !self.tenants.is_above_quota(task.tenant)
            && self.starving.is_idle()
            && self.groups.is_idle()
            && self.cluster[*own].passes_on(&assignment.allocation)
    }

    /// Keeps what a task held that has ended, and that has an heir.
    pub(super) fn leave(&mut self, class: ClassIx, tenant: TenantIx, assignment: Box<Assignment>) {
        let lane = self.lane_of_tenant(tenant);
        self.estate = Some(Estate {
            class,
            lane,
            tenant,
            assignment,
        });
    }

    /// Starts the heir, if what somebody held is kept for it.
    pub(super) fn succeed(&mut self) {
        let Some(estate) = self.estate.take() else {
            return;
        };
        self.note_passed_over(estate.class, estate.lane);
        let class = &mut self.classes[estate.class];
        let heir = class.pop(&mut self.tasks, &self.tenants, estate.lane);
        let heir = heir.expect("it was there, and nothing has happened since");
        self.close_if_empty(estate.class);
        self.uncount(heir);
        self.begin(heir, estate.assignment);
    }

    /// Something else happens: gives back what is kept for an heir, so that all are asked who it is for.
    pub(super) fn settle_estate(&mut self) {
        let Some(estate) = self.estate.take() else {
            return;
        };
        let holder = Holder {
            tenant: estate.tenant,
            rule: self.classes[estate.class].key.rule.clone(),
            needs_slot: true,
            has_cpu: true,
        };
        self.return_assignment(holder, *estate.assignment);
    }
}
