//! Tasks that wait for each other for ever: found, and told.
//!
//! Owns the look at this node; what several have to do with is looked for by [`crate::cluster`], with what this says of
//! the waits here.
//!
//! Two ways lead there. Tasks wait in a circle: an actor's method waits for a call of an actor whose
//! method waits for the first. Or everything that runs waits for tasks that cannot start, because what
//! runs holds what they need (see [`standstill`], where other nodes could start them). In both, one wait
//! ends with an error that says so; which task it is does not matter to the others, so the one that began
//! to wait last is chosen.
//!
//! A wait with a timeout ends by itself, and counts as one that will end. So does the life of an actor that a
//! driver, a name or whatever else can reach: it may be killed. What such an actor holds is not what this
//! looks for; `explain` says who has what a task waits for. An actor that only those can reach who wait
//! (see `reach`) lives as long as they do.

pub(crate) mod graph;
pub(crate) mod standstill;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use wasmrun_model::id::{NodeId, ObjectName, TaskId};
use wasmrun_model::scheduler::Room;
use wasmrun_model::task::Phase as State;

use self::graph::{Graph, Needs};
use self::standstill::{Lacking, Waits};

use crate::actor::object_of;
use crate::ledger::Ledger;
use crate::object::{Object, Reference};
use crate::reach::{Held, Reach};
use crate::task::{Argument, Work};
use crate::wait::Countdown;

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

/// When circles through other nodes are looked for: seldom, and more seldom the longer nothing changes.
pub(crate) struct Elsewhere {
    next: Instant,
    delay: Duration,
    /// The number of the last wait that was looked at.
    newest: Option<WaitNumber>,
    looking: Option<JoinHandle<()>>,
}

/// How long somebody waits before that is worth to ask others.
const LONG: Duration = Duration::from_secs(1);
/// The longest time between two looks.
const SELDOM: Duration = Duration::from_secs(30);

impl Elsewhere {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::now() + LONG,
            delay: LONG,
            newest: None,
            looking: None,
        }
    }

    /// For whom to look now, if it is time.
    pub(crate) fn due(&mut self, ledger: &Ledger) -> Option<Vec<TaskId>> {
        let is_looking = self.looking.as_ref().is_some_and(|it| !it.is_finished());
        let now = Instant::now();
        if !ledger.is_clustered() || is_looking || now < self.next {
            return None;
        }
        let long = ledger.long_waiters(LONG);
        let newest = long.iter().filter_map(|it| ledger.wait_number(it)).max();
        self.delay = match newest > self.newest || long.is_empty() {
            true => LONG,
            false => (self.delay * 2).min(SELDOM),
        };
        self.newest = self.newest.max(newest);
        self.next = now + self.delay;
        (!long.is_empty()).then_some(long)
    }

    /// It is being done.
    pub(crate) fn looks(&mut self, looking: JoinHandle<()>) {
        self.looking = Some(looking);
    }
}

/// How many waits one answer has at most, and for how many others they wait in all: of more, nothing is found.
const MOST_WAITERS: usize = 4_000;
const MOST_NEEDS: usize = 40_000;
/// For how many of those that lack something times how many nodes it says with what they could start there, about.
const MOST_DEMANDS: usize = 10_000;

/// How many tasks of a circle the text names.
const SHOWN: usize = 8;

impl Ledger {
    /// Ends a wait that would never end, if there is one. `is_unchanged`: nothing has started, ended or
    /// begun to wait for a while. What it looked at is to be dropped where no lock is held.
    #[must_use]
    pub(crate) fn break_deadlock(&mut self, is_unchanged: bool) -> Reach {
        let mut reach = Reach::default();
        let mut standstill = |ledger: &mut Self| match is_unchanged {
            true => ledger.find_standstill(&mut reach),
            false => None,
        };
        let Some((task, why)) = self.find_circle().or_else(|| standstill(self)) else {
            return reach;
        };
        if let Some(blocked) = self.blocked.get(&task) {
            blocked.wait.break_off(why);
        }
        reach
    }

    /// Whether something waits without end in sight, so that it is worth to look.
    pub(crate) fn may_be_stuck(&self) -> bool {
        self.blocked.values().any(|blocked| !blocked.is_bounded)
    }

    /// Whether somebody here waits for what another node does, or for one who does.
    fn waits_for_others(&self) -> bool {
        if !self.is_clustered() {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut next: Vec<Place> = self.blocked.keys().map(|it| self.here(*it)).collect();
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

    /// A circle within this node: the task whose wait is to end, and why.
    fn find_circle(&self) -> Option<(TaskId, String)> {
        let mut graph = Graph::new();
        let mut next: Vec<TaskId> = self.blocked.keys().copied().collect();
        while let Some(task) = next.pop() {
            let place = self.here(task);
            if graph.contains_key(&place) {
                continue;
            }
            if let Some(needs) = self.waits_for(&task) {
                let here = needs.of.iter().filter(|it| it.node == self.id());
                next.extend(here.map(|it| it.task));
                graph.insert(place, needs);
            }
        }
        let stuck = graph::stuck(&graph);
        let from = self.blocked.keys().map(|task| self.here(*task));
        let from = from.filter(|it| stuck.contains(it)).min()?;
        let circle: Vec<TaskId> = graph::circle(&graph, &stuck, from)
            .into_iter()
            .map(|it| it.task)
            .collect();
        let waits = circle.iter().filter(|it| self.blocked.contains_key(it));
        let last = waits.max_by_key(|it| self.blocked[it].wait.number);
        // Where nobody in it can be told, whoever waits for it is.
        let names = circle.iter().map(|task| {
            let name = self.work(task).map_or_else(String::new, Work::name);
            format!("{name} ({task})")
        });
        Some((*last.unwrap_or(&from.task), describe(names)))
    }

    fn here(&self, task: TaskId) -> Place {
        Place {
            node: self.id(),
            task,
        }
    }

    /// Where it is known what becomes of an object.
    fn maker(&self, name: &ObjectName) -> Place {
        let task = name.id.task();
        match self.work(&task).is_some() {
            true => self.here(task),
            false => Place {
                node: name.owner,
                task,
            },
        }
    }

    /// Of which others some must end before a task goes on. `None` if it does not wait, or not for ever.
    fn waits_for(&self, task: &TaskId) -> Option<Needs<Place>> {
        match self.blocked.get(task) {
            Some(blocked) if blocked.is_bounded => None,
            _ => self.needs_of(task),
        }
    }

    /// Of which others some must end before a task goes on, or time is up. `None` if it does not wait for any.
    pub(crate) fn needs_of(&self, task: &TaskId) -> Option<Needs<Place>> {
        if let Some(blocked) = self.blocked.get(task) {
            let needs = blocked.needs.iter();
            return Some(Needs {
                of: needs.map(|name| self.maker(name)).collect(),
                count: blocked.count,
            });
        }
        let of: Vec<Place> = match self.phase(task)? {
            State::Waiting => {
                let values = self.call(task).into_iter().flat_map(|call| &call.values);
                let objects = values.filter_map(|value| match value {
                    Argument::Object(Object(Reference::Task(cell))) if !cell.has_ended() => {
                        Some(cell.object())
                    }
                    _ => None,
                });
                objects.map(|name| self.maker(&name)).collect()
            }
            State::WaitingForActorCreation | State::Placeable => {
                match (self.scheduler().peer(task), self.work(task)) {
                    (Some(node), _) => vec![Place { node, task: *task }],
                    (None, Some(Work::Call(actor, _))) => {
                        vec![self.maker(&object_of(actor.name()))]
                    }
                    (None, _) => Vec::new(),
                }
            }
            State::Ready => match self.work(task) {
                Some(Work::Call(actor, _)) => {
                    let current = actor.current().map(|call| call.id);
                    let held_up_by = self.scheduler().held_up_by(task);
                    let before = current.into_iter().chain(held_up_by);
                    before.map(|task| self.here(task)).collect()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        let count = of.len();
        (count > 0).then_some(Needs { of, count })
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
                name: self.work(&task).map_or_else(String::new, Work::name),
                wait: self.blocked.get(&task).map(|it| it.wait.number),
                needs: needs.of,
                count: needs.count as u64,
            });
        }
        found
    }

    /// Those that have waited for so long, for ever, and that nothing on this node sets free. They may wait for each other
    /// through other nodes.
    pub(crate) fn long_waiters(&self, so_long: Duration) -> Vec<TaskId> {
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
    pub(crate) fn wait_number(&self, task: &TaskId) -> Option<WaitNumber> {
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
        let nobody_waits = self.scheduler().len_in(State::Ready) == 0;
        if nobody_waits
            || self.waits_for_others()
            || !self.is_still()
            || self.blocked.values().any(|blocked| blocked.is_bounded)
            || self.may_start_elsewhere()
        {
            return None;
        }
        let last = self.blocked.iter().max_by_key(|(_, it)| it.wait.number);
        let task = *last?.0;
        let mut holders: Vec<TaskId> = self.blocked.keys().copied().collect();
        let mut captives = 0;
        let mut held_up = self.held_up_by(&holders);
        if held_up.is_none() {
            let mut of_waiting = self.captives(reach);
            of_waiting.retain(|it| self.scheduler().held(it).is_some());
            captives = of_waiting.len();
            holders.extend(of_waiting);
            held_up = self.held_up_by(&holders);
        }
        let held_up = held_up?;
        let count = self.blocked.len();
        // Whoever reads this may know of the other only if it is its own.
        let is_own = self.tenant(&held_up) == self.tenant(&task);
        let which = match is_own {
            true => format!("one of those: {}", self.explain(&held_up)?),
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
    fn captives(&self, reach: &mut Reach) -> Vec<TaskId> {
        for (arguments, calls) in self.holdings() {
            for argument in arguments {
                reach.count(argument.into(), 1);
            }
            if let Some(actor) = calls {
                reach.count(Held::Actor(actor.clone()), 1);
            }
        }
        for blocked in self.blocked.values() {
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
const ACTORS: &str = " kill actors that have done their work,";

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
