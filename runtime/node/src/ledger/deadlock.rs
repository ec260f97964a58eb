//! Tasks that wait for each other for ever: found, and told.
//!
//! Owns the look at this node; circles through several nodes are looked for by [`crate::peers`], with what this says of
//! the waits here.
//!
//! Two ways lead there. Tasks wait in a circle: an actor's method waits for a call of an actor whose
//! method waits for the first. Or everything that runs waits for tasks that cannot start, because what
//! runs holds what they need (see [`super::standstill`], where other nodes could start them). In both, one wait
//! ends with an error that says so; which task it is does not matter to the others, so the one that began
//! to wait last is chosen.
//!
//! A wait with a timeout ends by itself, and counts as one that will end. So does the life of an actor that a
//! driver, a name or whatever else can reach: it may be killed. What such an actor holds is not what this
//! looks for; `explain` says who has what a task waits for. An actor that only those can reach who wait
//! (see `reach`) lives as long as they do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::Room;
use wasmrun_model::task::Phase as State;

pub(crate) use super::blocked::{Activity, Blocked, BlockedTasks};
pub(crate) use super::search::{Search, SearchOutcome};

use super::graph::{Graph, Needs};
use super::standstill::{self, Lacking, Waits};

use crate::ledger::Ledger;
use crate::records::reach::{Reach, Referent};
use crate::records::wait::Countdown;

/// A wait of a task for others, and how it can be ended.
pub(crate) struct Wait {
    pub(crate) countdown: Arc<Countdown>,
    deadlock: Mutex<Option<String>>,
    pub(crate) number: WaitNumber,
    began: Instant,
}

impl Wait {
    pub(crate) fn new(countdown: Arc<Countdown>, number: WaitNumber) -> Arc<Self> {
        Arc::new(Self {
            countdown,
            deadlock: Mutex::default(),
            number,
            began: Instant::now(),
        })
    }

    /// Why it would never have ended, if that is so.
    pub(crate) fn deadlock(&self) -> Option<String> {
        self.deadlock.lock().take()
    }

    fn break_off(&self, why: String) {
        *self.deadlock.lock() = Some(why);
        self.countdown.finish();
    }
}

/// A task, and the node where it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) task: TaskId,
}

/// The number of a wait: no two of a node have the same. By it and then by their nodes waits are ordered, and the one that
/// is to end is the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct WaitNumber(pub(crate) u64);

/// Numbers the waits of a node, so that a wait comes after all that the node has heard of, whatever the clocks of
/// the nodes say (Lamport, 1978).
#[derive(Default)]
pub(crate) struct WaitNumbers(AtomicU64);

impl WaitNumbers {
    /// A number above all those before.
    pub(crate) fn next(&self) -> WaitNumber {
        WaitNumber(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// There are waits of other nodes with these numbers.
    pub(crate) fn note(&self, heard: impl Iterator<Item = WaitNumber>) {
        // None can be so high but by an error, and then there would be none above it.
        let heard = heard.map(|it| it.0).filter(|it| *it < u64::MAX / 2);
        if let Some(highest) = heard.max() {
            self.0.fetch_max(highest + 1, Ordering::Relaxed);
        }
    }
}

/// A task that waits, for other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub(crate) task: TaskId,
    /// What people call it.
    pub(crate) name: String,
    /// Its wait, if it has begun and waits for others; it may also be in line.
    pub(crate) wait: Option<WaitNumber>,
    pub(crate) needs: Vec<Place>,
    /// How many of those must end.
    pub(crate) count: u64,
}

/// How many waits one answer has at most, and for how many others they wait in all: of more, nothing is found.
pub(super) const MOST_WAITERS: usize = 4_000;
const MOST_NEEDS: usize = 40_000;
/// For how many of those that lack something times how many nodes it says with what they could start there, about.
const MOST_DEMANDS: usize = 10_000;

/// How many tasks of a circle the text names.
pub(super) const SHOWN: usize = 8;

impl Ledger {
    /// Ends a wait that would never end, if there is one. `is_unchanged`: nothing has started, ended or
    /// begun to wait for a while. Whether there was one, and what it looked at, to be dropped where no lock is held.
    pub(super) fn break_deadlock(&mut self, is_unchanged: bool) -> (bool, Reach) {
        let mut reach = Reach::default();
        let mut standstill = |ledger: &mut Self| match is_unchanged {
            true => ledger.find_standstill(&mut reach),
            false => None,
        };
        let found = self.find_circle().or_else(|| standstill(self));
        let has_found = found.is_some();
        if let Some((task, why)) = found
            && let Some(blocked) = self.blocked.get(&task)
        {
            blocked.wait.break_off(why);
        }
        (has_found, reach)
    }

    /// Whether everything that runs waits, and others cannot start.
    pub(super) fn may_stand_still(&self) -> bool {
        self.scheduler().len_in(State::Ready) > 0 && self.is_still() && !self.blocked.has_bounded()
    }

    /// Whether somebody here waits for what another node does, or for one who does.
    fn waits_for_others(&self) -> bool {
        if !self.is_clustered() {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut next: Vec<Place> = self.blocked.tasks().map(|it| self.here(it)).collect();
        while let Some(place) = next.pop() {
            let is_elsewhere = place.node != self.id()
                || matches!(
                    self.phase(&place.task),
                    None | Some(State::Placeable | State::WaitingForActorCreation)
                );
            if is_elsewhere {
                return true;
            }
            if seen.insert(place.task) {
                let needs = self.needs_of(&place.task);
                next.extend(needs.into_iter().flat_map(|it| it.of));
            }
        }
        false
    }

    /// The waits here that these tasks are part of, and those that they lead to.
    pub(crate) fn waits(&self, from: &[TaskId]) -> Waits {
        let mut found = Waits::default();
        let (mut needed, mut demanded) = (0, 0);
        let mut seen: BTreeSet<TaskId> = from.iter().copied().collect();
        let mut next: Vec<TaskId> = from.to_vec();
        while let Some(task) = next.pop() {
            let Some(needs) = self.waits_for(&task) else {
                if demanded < MOST_DEMANDS {
                    // All nodes are looked at for each.
                    demanded += self.scheduler().cluster().iter().count();
                    found.lacking.extend(self.lacks(&task, None));
                }
                continue;
            };
            needed += needs.of.len();
            if found.waiters.len() >= MOST_WAITERS || needed > MOST_NEEDS {
                // Whoever is not named counts as one that goes on.
                break;
            }
            let here = needs.of.iter().filter(|it| it.node == self.id());
            next.extend(here.map(|it| it.task).filter(|it| seen.insert(*it)));
            found.waiters.push(Waiter {
                task,
                name: self
                    .work(&task)
                    .map_or_else(String::new, |work| work.name().into_owned()),
                wait: self.blocked.get(&task).map(|it| it.wait.number),
                needs: needs.of,
                count: needs.count as u64,
            });
        }
        found
    }

    /// Those that have waited for so long, for ever, and that nothing on this node sets free. They may wait for each other
    /// through other nodes.
    pub(super) fn long_waiters(&self, so_long: Duration) -> Vec<TaskId> {
        let old = self
            .blocked
            .iter()
            .filter(|(_, blocked)| !blocked.is_bounded && blocked.wait.began.elapsed() >= so_long);
        let old: Vec<TaskId> = old.map(|(task, _)| *task).collect();
        let mut graph = Graph::new();
        let mut lacking: BTreeMap<Place, Lacking> = BTreeMap::new();
        let mut next = old.clone();
        while let Some(task) = next.pop() {
            let place = self.here(task);
            if graph.contains_key(&place) || lacking.contains_key(&place) {
                continue;
            }
            let Some(needs) = self.waits_for(&task) else {
                // What other nodes have is for them to say. Whoever is not named counts as one that goes on.
                if lacking.len() < MOST_WAITERS {
                    let own = self.lacks(&task, Some(self.id()));
                    lacking.extend(own.map(|it| (place, it)));
                }
                continue;
            };
            for needed in &needs.of {
                match needed.node == self.id() {
                    true => next.push(needed.task),
                    // What is there may never end.
                    false => drop(graph.insert(*needed, Needs::itself(*needed))),
                }
            }
            graph.insert(place, needs);
        }
        let mut rooms: BTreeMap<NodeId, Room> = BTreeMap::new();
        if !lacking.is_empty()
            && let Some(room) = self.scheduler().room()
        {
            // Whether somebody can reach an actor who does not wait is looked at when all are asked.
            let actors = room.holders.iter().filter(|it| it.is_actor);
            for actor in actors.map(|it| self.here(it.task)) {
                graph.entry(actor).or_insert(Needs::itself(actor));
            }
            rooms.insert(self.id(), room);
        }
        let stuck = standstill::stuck(&graph, &lacking, &rooms);
        let is_stuck = |task: &TaskId| stuck.contains(&self.here(*task));
        let mut found: Vec<TaskId> = old.into_iter().filter(is_stuck).collect();
        found.sort_unstable();
        found.truncate(MOST_WAITERS);
        found
    }

    /// The number of the wait of a task.
    pub(super) fn wait_number(&self, task: &TaskId) -> Option<WaitNumber> {
        self.blocked.get(task).map(|it| it.wait.number)
    }

    /// Ends a wait, if it is still that one.
    pub(crate) fn break_wait(&self, task: &TaskId, number: WaitNumber, why: String) {
        if let Some(blocked) = self.blocked.get(task)
            && blocked.wait.number == number
            && !blocked.is_bounded
        {
            blocked.wait.break_off(why);
        }
    }

    /// Nothing runs but what waits, for good, and what it waits for cannot start because of what that
    /// holds.
    fn find_standstill(&mut self, reach: &mut Reach) -> Option<(TaskId, String)> {
        if !self.may_stand_still() || self.may_start_elsewhere() || self.waits_for_others() {
            return None;
        }
        let last = self.blocked.iter().max_by_key(|(_, it)| it.wait.number);
        let task = *last?.0;
        let mut holders: Vec<TaskId> = self.blocked.tasks().collect();
        let mut captives = 0;
        let mut held_up = self.held_up_by(&holders);
        if held_up.is_none() {
            let mut of_waiting = self.captives(reach);
            of_waiting.retain(|it| self.scheduler().assignment(it).is_some());
            captives = of_waiting.len();
            holders.extend(of_waiting);
            held_up = self.held_up_by(&holders);
        }
        let held_up = held_up?;
        let count = self.blocked.len();
        // Whoever reads this may know of the other only if it is its own.
        let tenant = self.tenant(&task).cloned();
        let is_own = self.tenant(&held_up) == tenant.as_ref();
        let which = match is_own {
            true => {
                let why = self.explain(&held_up)?;
                let why = why.seen_by(|it| tenant.as_ref() == Some(it));
                format!("one of those: {why}")
            }
            false => "they are another tenant's".to_owned(),
        };
        let (holders, more) = match captives {
            0 => ("these".to_owned(), ""),
            1 => ("these and an actor of theirs".to_owned(), ACTORS),
            n => (format!("these and {n} actors of theirs"), ACTORS),
        };
        Some((
            task,
            format!(
                "all {count} tasks that run wait for others, and those cannot start because of what \
                 {holders} hold; {which}. Ask for less, nest less deep,{more} or give the node more"
            ),
        ))
    }

    /// A task that would start if these held nothing.
    fn held_up_by(&self, holders: &[TaskId]) -> Option<TaskId> {
        let scheduler = self.scheduler();
        let mut ready = scheduler.in_phase(State::Ready).take(MOST_READY);
        ready.find(|ready| scheduler.would_start_without(ready, holders))
    }

    /// Whether some that are ready may yet start on another node, after which others would have room here: what other nodes
    /// have is for them to say.
    fn may_start_elsewhere(&self) -> bool {
        let scheduler = self.scheduler();
        let mut ready = scheduler.in_phase(State::Ready).take(MOST_READY);
        self.is_clustered()
            && (scheduler.len_in(State::Ready) > MOST_READY
                || ready.any(|it| scheduler.may_start_elsewhere(&it)))
    }

    /// The actors that only those can reach who wait: for others, for arguments, or for their start.
    pub(super) fn captives(&self, reach: &mut Reach) -> Vec<TaskId> {
        for (arguments, calls) in self.holdings() {
            for argument in arguments {
                reach.count(argument.into(), 1);
            }
            if let Some(actor) = calls {
                reach.count(Referent::Actor(actor.clone()), 1);
            }
        }
        for (_, blocked) in self.blocked.iter() {
            if let Some(attempt) = blocked.attempt.upgrade() {
                reach.count_attempt(attempt);
            }
        }
        reach.captives()
    }
}

/// What of a circle is told: all who are in it, one after the other.
pub(crate) fn describe(members: impl ExactSizeIterator<Item = String>) -> String {
    let count = members.len();
    let mut text = String::from("tasks wait for each other in a circle: ");
    for member in members.take(SHOWN) {
        let _ = write!(text, "{member} waits for ");
    }
    match count > SHOWN {
        true => text.push_str("others, and so on"),
        false => text.push_str("the first"),
    }
    text.push_str("; wait with a timeout, or pass the object on instead of waiting for it");
    text
}

/// What else helps where actors hold what others need.
pub(super) const ACTORS: &str = " kill actors that have done their work,";

/// How many of those that are ready are looked at.
const MOST_READY: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_comes_after_all_that_its_node_has_heard_of() {
        let numbers = WaitNumbers::default();
        let first = numbers.next();
        numbers.note([WaitNumber(7), WaitNumber(3)].into_iter());
        let second = numbers.next();
        assert!(first < WaitNumber(3) && second > WaitNumber(7));
        numbers.note([first, WaitNumber(u64::MAX)].into_iter());
        assert!((second..WaitNumber(u64::MAX)).contains(&numbers.next()));
    }
}
