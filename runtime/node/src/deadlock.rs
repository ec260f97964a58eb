//! Tasks that wait for each other for ever: found, and told.
//!
//! Two ways lead there. Tasks wait in a circle: an actor's method waits for a call of an actor whose
//! method waits for the first. Or everything that runs waits for tasks that cannot start, because what
//! runs holds what they need. In both, one wait ends with an error that says so; which task it
//! is does not matter to the others, so the one that began to wait last is chosen.
//!
//! A wait with a timeout ends by itself, and counts as one that will end. So does the life of an actor that a
//! driver, a name or whatever else can reach: it may be killed. What such an actor holds is not what this
//! looks for; `explain` says who has what a task waits for. An actor that only those can reach who wait
//! (see `reach`) lives as long as they do.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::task::Phase as State;

use crate::ledger::Ledger;
use crate::reach::{Held, Reach};
use crate::task::Work;
use crate::wait::Countdown;

/// A wait of a task for others, and how it can be ended.
pub(crate) struct Wait {
    pub(crate) countdown: Arc<Countdown>,
    deadlock: Mutex<Option<String>>,
    /// Grows with every wait.
    pub(crate) number: u64,
}

impl Wait {
    pub(crate) fn new(countdown: Arc<Countdown>, number: u64) -> Arc<Self> {
        Arc::new(Self {
            countdown,
            deadlock: Mutex::default(),
            number,
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

/// The longest circle that is found.
const LONGEST: usize = 1_000;

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

    /// Whether somebody here waits for what another node does.
    fn waits_for_others(&self) -> bool {
        let mut needs = self.blocked.values().flat_map(|it| &it.needs);
        self.is_clustered()
            && needs.any(|task| {
                matches!(
                    self.phase(task),
                    None | Some(State::Placeable | State::WaitingForActorCreation)
                )
            })
    }

    fn find_circle(&self) -> Option<(TaskId, String)> {
        let mut cleared = HashSet::new();
        for task in self.blocked.keys() {
            let mut path = Vec::new();
            if let Some(at) = self.follow(*task, &mut path, &mut cleared) {
                let circle = &path[at..];
                let waits = circle.iter().filter(|it| self.blocked.contains_key(it));
                let last = waits.max_by_key(|it| self.blocked[it].wait.number);
                // Where nobody in it can be told, whoever waits for it is.
                return Some((*last.unwrap_or(task), self.describe(circle)));
            }
        }
        None
    }

    /// Follows what a task waits for. Where it comes back to a task of the path, that one's place in it.
    fn follow(
        &self,
        task: TaskId,
        path: &mut Vec<TaskId>,
        cleared: &mut HashSet<TaskId>,
    ) -> Option<usize> {
        if let Some(at) = path.iter().position(|it| *it == task) {
            return Some(at);
        }
        if cleared.contains(&task) || path.len() >= LONGEST {
            return None;
        }
        path.push(task);
        for next in self.waits_for(task) {
            if let Some(at) = self.follow(next, path, cleared) {
                return Some(at);
            }
        }
        path.pop();
        cleared.insert(task);
        None
    }

    /// The tasks each of which must end before this one goes on.
    fn waits_for(&self, task: TaskId) -> Vec<TaskId> {
        if let Some(blocked) = self.blocked.get(&task) {
            return match blocked.is_for_all && !blocked.is_bounded {
                true => blocked.needs.clone(),
                false => Vec::new(),
            };
        }
        match self.phase(&task) {
            Some(State::Waiting) => {
                let lacking = self.lacking(&task);
                lacking.iter().map(ObjectId::task).collect()
            }
            Some(State::WaitingForActorCreation) => match self.work(&task) {
                Some(Work::Call(actor, _)) => vec![actor.creation()],
                _ => Vec::new(),
            },
            Some(State::Ready) => match self.work(&task) {
                Some(Work::Call(actor, _)) => {
                    let current = actor.current().map(|call| call.id);
                    current
                        .into_iter()
                        .chain(self.scheduler().held_up_by(&task))
                        .collect()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn describe(&self, circle: &[TaskId]) -> String {
        let mut text = String::from("tasks wait for each other in a circle: ");
        for task in circle.iter().take(SHOWN) {
            let name = self.work(task).map_or_else(String::new, Work::name);
            let _ = write!(text, "{name} ({task}) waits for ");
        }
        match circle.len() > SHOWN {
            true => text.push_str("others, and so on"),
            false => text.push_str("the first"),
        }
        text.push_str("; wait with a timeout, or pass the object on instead of waiting for it");
        text
    }

    /// Nothing runs but what waits, for good, and what it waits for cannot start because of what that
    /// holds.
    fn find_standstill(&mut self, reach: &mut Reach) -> Option<(TaskId, String)> {
        let nobody_waits = self.scheduler().len_in(State::Ready) == 0;
        if nobody_waits
            || self.waits_for_others()
            || !self.is_still()
            || self.blocked.values().any(|blocked| blocked.is_bounded)
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

/// What else helps where actors hold what others need.
const ACTORS: &str = " kill actors that have done their work,";

/// How many of those that are ready are looked at.
const MOST_READY: usize = 1_000;
