//! Quotas: which tasks wait since their tenant may have no more.
//!
//! Owns the count of them. Must not: decide what a quota holds up; the scheduler does.

use super::super::scenario::{Placement, TaskEntry};
use super::super::trace::TraceLine;
use super::super::work::{Stage, TaskKey};
use super::Run;
use crate::fairness::Ask;

impl<E, T: FnMut(&TraceLine<'_>) -> Result<(), E>> Run<'_, T> {
    /// At the end of an instant: counts the tasks submitted in it that wait for room under a quota.
    pub(super) fn count_at_quota(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        if !self.scheduler.tenants().has_quotas() {
            return;
        }
        for entry in fresh {
            let of_file = &self.scenario.tasks[entry.0 as usize];
            if !self.is_at_quota(of_file) {
                continue;
            }
            let instances = (0..of_file.count).map(|index| TaskKey { entry, index });
            let is_waiting = |task: &TaskKey| matches!(self.work.stage(*task), Stage::Waiting);
            let waiting = instances.filter(is_waiting).count() as u64;
            self.statistics.at_quota(of_file.tenant, waiting);
        }
    }

    /// Whether no variant of an entry has room under the quotas of its tenant and of all that this is part of.
    fn is_at_quota(&self, entry: &TaskEntry) -> bool {
        let tenants = self.scheduler.tenants();
        let name = &self.scenario.tenants[entry.tenant.0 as usize].name;
        // A group is charged for its bundles.
        let is_grouped = matches!(entry.placement, Placement::PlacementGroup { .. });
        tenants.find(name).is_some_and(|tenant| {
            entry.requests.iter().all(|request| {
                let ask = Ask {
                    amounts: (!is_grouped).then(|| request.amounts()),
                    needs_sandbox: true,
                };
                tenants.at_quota(tenant, ask).is_some()
            })
        })
    }
}
