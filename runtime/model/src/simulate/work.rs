//! The work of a run: every task, and what it waits for.
//!
//! Owns where each task stands as far as the run must know, who comes after whom, and what the
//! scheduler is told about a task. Must not: know the order of time, or the trace.
//!
//! Invariant: an entry is free once all instances of those that it comes after have finished.

use std::sync::Arc;

use super::scenario::{EntryNo, NodeNo, Placement, Scenario, TaskEntry};
use crate::cluster::Strategy;
use crate::group::GroupSpec;
use crate::id::{DriverId, GroupId, JobId, NodeId, ObjectId, TaskId};
use crate::random::Random;
use crate::task::{Argument, Attempt, Rule, TaskKind, TaskSpec, Terms};

/// Whoever submits all the tasks.
const DRIVER: DriverId = DriverId::from_bytes([0; 16]);

/// Nodes are numbered in the order in which they join first, and ids decide between equals.
pub(super) fn node_id(node: NodeNo) -> NodeId {
    let mut id = [0; 16];
    id[12..].copy_from_slice(&node.0.to_be_bytes());
    NodeId::from_bytes(id)
}

/// One instance of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    pub entry: EntryNo,
    pub index: u32,
}

impl TaskKey {
    /// The scheduler's name for it: both numbers, after eight bytes that look random since task
    /// ids are used as hashes.
    pub fn id(self) -> TaskId {
        let (entry, index) = (self.entry.0, self.index);
        let mixed = Random::new(u64::from(entry) << 32 | u64::from(index)).next();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&mixed.to_le_bytes());
        id[8..12].copy_from_slice(&entry.to_be_bytes());
        id[12..].copy_from_slice(&index.to_be_bytes());
        TaskId::from_bytes(id)
    }

    /// The instance that [`TaskKey::id`] named so.
    pub fn of(id: &TaskId) -> Self {
        let number = |at: usize| {
            let bytes = id.as_bytes()[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        Self {
            entry: EntryNo(number(8)),
            index: number(12),
        }
    }
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for others, or for its turn.
    Waiting,
    /// It was reported that no node can serve it; maybe one can by now.
    Infeasible,
    /// It runs.
    Running {
        /// The number of its start.
        start: u64,
        node: NodeNo,
        attempt: Attempt,
        /// Which of the entry's requests it holds.
        alternative: u16,
        ends_ms: u64,
    },
    /// It is paused, and holds all but its CPU.
    Paused {
        node: NodeNo,
        attempt: Attempt,
        alternative: u16,
        /// How long it has yet to run.
        left_ms: u64,
    },
    /// It ran on a node that is gone, or was stopped there, and it is not decided yet what becomes of it.
    Lost { node: NodeNo },
    /// It has finished, or was given up.
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Work {
    entries: Vec<Entry>,
    instances: Vec<Instance>,
}

#[derive(Debug)]
struct Entry {
    /// Where its instances begin.
    first: usize,
    terms: Arc<Terms>,
    job: JobId,
    args: Vec<Argument>,
    group: Option<Group>,
    is_submitted: bool,
    /// How many entries that it comes after have not finished.
    waits_for: u32,
    /// The entries that come after it.
    followers: Vec<EntryNo>,
    unfinished: u32,
    unended: u32,
}

#[derive(Debug, Clone, Copy)]
struct Instance {
    /// Since when it could have started, for all it knew.
    since_ms: u64,
    stage: Stage,
}

/// The placement group of an entry.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub id: GroupId,
    pub spec: GroupSpec,
}

impl Work {
    /// The work of a scenario, of which nothing is submitted.
    pub fn new(scenario: &Scenario) -> Self {
        let mut first = 0;
        let mut entries = Vec::with_capacity(scenario.tasks.len());
        for (number, of_file) in (0..).map(EntryNo).zip(&scenario.tasks) {
            entries.push(Entry::new(scenario, number, of_file, first));
            first += of_file.count as usize;
        }
        for (number, of_file) in (0..).map(EntryNo).zip(&scenario.tasks) {
            for before in &of_file.after {
                entries[before.0 as usize].followers.push(number);
            }
        }
        let instance = Instance {
            since_ms: 0,
            stage: Stage::Waiting,
        };
        Self {
            entries,
            instances: vec![instance; first],
        }
    }

    pub fn stage(&self, task: TaskKey) -> &Stage {
        &self.instances[self.place(task)].stage
    }

    pub fn stage_mut(&mut self, task: TaskKey) -> &mut Stage {
        let place = self.place(task);
        &mut self.instances[place].stage
    }

    /// Since when a task waits, in milliseconds.
    pub fn since_mut(&mut self, task: TaskKey) -> &mut u64 {
        let place = self.place(task);
        &mut self.instances[place].since_ms
    }

    fn place(&self, task: TaskKey) -> usize {
        self.entries[task.entry.0 as usize].first + task.index as usize
    }

    /// An entry is submitted; false if it was before.
    pub fn submit(&mut self, entry: EntryNo) -> bool {
        !std::mem::replace(&mut self.entry_mut(entry).is_submitted, true)
    }

    /// Whether all that an entry comes after has finished.
    pub fn is_free(&self, entry: EntryNo) -> bool {
        self.entry(entry).waits_for == 0
    }

    /// One instance has finished. True if it was the last.
    pub fn finished(&mut self, entry: EntryNo) -> bool {
        let entry = self.entry_mut(entry);
        entry.unfinished -= 1;
        entry.unfinished == 0
    }

    /// The entries that come after one, which are then told so; once.
    pub fn followers(&mut self, entry: EntryNo) -> Vec<EntryNo> {
        std::mem::take(&mut self.entry_mut(entry).followers)
    }

    /// One of those that an entry comes after has finished. True if the entry waits for no other
    /// and was submitted.
    pub fn wait_is_over(&mut self, entry: EntryNo) -> bool {
        let entry = self.entry_mut(entry);
        entry.waits_for -= 1;
        entry.waits_for == 0 && entry.is_submitted
    }

    /// One instance has ended in whatever way. Returns the entry's group if it was the last.
    pub fn ended(&mut self, entry: EntryNo) -> Option<GroupId> {
        let entry = self.entry_mut(entry);
        entry.unended -= 1;
        let group = entry.group.as_ref().filter(|_| entry.unended == 0);
        group.map(|group| group.id)
    }

    /// Whether any instance has not ended.
    pub fn is_open(&self, entry: EntryNo) -> bool {
        self.entry(entry).unended > 0
    }

    /// The group of an entry.
    pub fn group(&self, entry: EntryNo) -> Option<&Group> {
        self.entry(entry).group.as_ref()
    }

    /// What the scheduler is told about a task.
    pub fn spec(&self, task: TaskKey) -> TaskSpec {
        let entry = self.entry(task.entry);
        TaskSpec {
            id: task.id(),
            driver: DRIVER,
            job: entry.job,
            terms: entry.terms.clone(),
            kind: TaskKind::Task,
            args: entry.args.clone(),
        }
    }

    fn entry(&self, entry: EntryNo) -> &Entry {
        &self.entries[entry.0 as usize]
    }

    fn entry_mut(&mut self, entry: EntryNo) -> &mut Entry {
        &mut self.entries[entry.0 as usize]
    }
}

impl Entry {
    fn new(scenario: &Scenario, number: EntryNo, of_file: &TaskEntry, first: usize) -> Self {
        let group = match &of_file.placement {
            Placement::PlacementGroup {
                kind,
                bundles,
                selectors,
            } => {
                let spec = GroupSpec::new(*kind, bundles.clone());
                let spec = spec.and_then(|it| it.with_selectors(selectors.clone()));
                Some(Group {
                    id: GroupId::from_bytes(numbered(number)),
                    spec: spec.expect("the scenario was checked"),
                })
            }
            _ => None,
        };
        let strategy = match &of_file.placement {
            Placement::Default => Strategy::Default,
            Placement::Random => Strategy::Random,
            Placement::Spread => Strategy::Spread,
            Placement::NodeAffinity { node, soft } => {
                let name = scenario.node_name(*node).parse();
                Strategy::NodeAffinity {
                    node: name.expect("checked when the scenario was read"),
                    soft: *soft,
                }
            }
            Placement::PlacementGroup { .. } => Strategy::PlacementGroup {
                group: GroupId::from_bytes(numbered(number)),
                bundle: None,
            },
        };
        let rule = Rule {
            alternatives: of_file.requests.clone(),
            selectors: of_file.selectors.clone(),
            strategy,
            module: None,
        };
        let terms = Terms {
            tenant: scenario.tenants[of_file.tenant.0 as usize].name.clone(),
            priority: of_file.priority,
            retries: of_file.retries.unwrap_or(u32::MAX),
            retry_on_error: false,
            no_preempt: false,
            rule: Arc::new(rule),
        };
        let args = of_file.args.iter().zip(0..).map(|(arg, index)| Argument {
            object: ObjectId::of(TaskId::from_bytes(numbered(number)), index),
            bytes: arg.bytes,
            holders: vec![node_id(arg.on)],
            // A transfer takes no time.
            is_local: true,
        });
        Self {
            first,
            terms: Arc::new(terms),
            job: JobId::from_bytes(numbered(number)),
            args: args.collect(),
            group,
            is_submitted: false,
            waits_for: of_file.after.len() as u32,
            followers: Vec::new(),
            unfinished: of_file.count,
            unended: of_file.count,
        }
    }
}

/// The id that stands for an entry, among ids of its kind.
fn numbered(entry: EntryNo) -> [u8; 16] {
    u128::from(entry.0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_for_their_instances() {
        for (entry, index) in [(0, 0), (7, 1), (1, 7), (u32::MAX, u32::MAX)] {
            let entry = EntryNo(entry);
            let task = TaskKey { entry, index };
            assert_eq!(TaskKey::of(&task.id()), task);
        }
    }
}
