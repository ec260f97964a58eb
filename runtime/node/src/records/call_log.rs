//! What an actor was called with, so that the results of its calls can be reconstructed.
//!
//! Owns [`CallLog`]: at the node that owns an actor whose class is declared deterministic, the calls that its
//! generations at other nodes have made, in the order in which they began, and the states before them. Must not: make
//! calls.
//!
//! Invariants: the calls of a segment follow each other without a gap, from its state on. There are at most
//! [`MOST_CALLS`] calls and [`MOST_BYTES`] bytes in the log of an actor; the oldest go first. Objects among the
//! arguments count with those of all logs of the node. A call that cannot be kept ends a segment; the next begins with
//! the next state that comes. When the last handle to the actor is gone so is the log.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::task::Attempt;

use crate::records::actor::Checkpoint;
use crate::records::job::Argument;
use crate::records::lineage::{CallRecipe, Counted};
use crate::records::object::Value;

/// The most calls that are kept of an actor.
pub(crate) const MOST_CALLS: usize = 1000;
/// The most bytes that those and the states before them may take.
const MOST_BYTES: u64 = 16 << 20;
/// From half of that on, a state that comes begins another segment: so at least half stays.
const PART: usize = 2;

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ran {
    /// It gave its result.
    Well,
    /// It gave an error, and the actor went on.
    Badly,
    /// It never reached the actor: an argument could not be had.
    Never,
}

/// A call as it was made.
pub(crate) struct Logged {
    pub(crate) task: TaskId,
    pub(crate) driver: DriverId,
    pub(crate) method: usize,
    pub(crate) values: Vec<Argument>,
    /// The objects among those.
    pub(crate) _objects: Option<Counted>,
    pub(crate) ran: Ran,
    /// What its arguments take, but for objects.
    pub(crate) bytes: u64,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct CallLog(Mutex<Inner>);

/// Making the calls of a segment again.
///
/// What a call is made of is older than the call: of an earlier one of its segment, whose result is here as soon as it
/// is made, or of an older segment, which has another of these. So nobody waits for itself.
#[derive(Default)]
pub(crate) struct Again {
    /// Held while calls are replayed.
    pub(crate) replaying: tokio::sync::Mutex<()>,
    fresh: Mutex<Fresh>,
    /// More of that is there.
    pub(crate) changed: Notify,
}

/// What calls have given that were replayed.
#[derive(Default)]
struct Fresh {
    /// Only what later calls of the story need, and what somebody waits for.
    values: HashMap<TaskId, Value>,
    /// How many wait for the results of these.
    asked: HashMap<TaskId, usize>,
}

/// Somebody waits for the result of a call.
pub(crate) struct Asked<'a> {
    again: &'a Again,
    task: TaskId,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut fresh = self.again.fresh.lock();
        let Some(asked) = fresh.asked.get_mut(&self.task) else {
            return;
        };
        *asked -= 1;
        if *asked == 0 {
            fresh.asked.remove(&self.task);
        }
    }
}

/// Calls are being replayed, until this goes.
pub(crate) struct Replaying<'a>(&'a Again);

impl Drop for Replaying<'_> {
    fn drop(&mut self) {
        let mut fresh = self.0.fresh.lock();
        let Fresh { values, asked } = &mut *fresh;
        let over: Vec<_> = values
            .extract_if(|task, _| !asked.contains_key(task))
            .collect();
        drop(fresh);
        drop(over);
    }
}

impl Again {
    /// Somebody waits for the result of this call from now on.
    pub(crate) fn ask(&self, task: TaskId) -> Asked<'_> {
        *self.fresh.lock().asked.entry(task).or_default() += 1;
        Asked { again: self, task }
    }

    /// Calls are replayed from now on, by who has `replaying`.
    pub(crate) fn replays(&self) -> Replaying<'_> {
        Replaying(self)
    }

    /// A call that was replayed has given this.
    pub(crate) fn has_made(&self, task: TaskId, value: Value, is_needed: bool) {
        let mut fresh = self.fresh.lock();
        if !is_needed && !fresh.asked.contains_key(&task) {
            return;
        }
        let before = fresh.values.insert(task, value);
        drop(fresh);
        drop(before);
        self.changed.notify_waiters();
    }

    /// What a call has given that was replayed just now.
    pub(crate) fn made(&self, task: &TaskId) -> Option<Value> {
        self.fresh.lock().values.get(task).cloned()
    }
}

#[derive(Default)]
struct Inner {
    /// The oldest first.
    segments: VecDeque<Segment>,
    /// Results of this node's that may be reconstructed, by their calls.
    recipes: HashMap<TaskId, Weak<CallRecipe>>,
}

/// Calls of one generation that followed each other.
struct Segment {
    /// The attempt of the actor's creation that lived.
    attempt: Attempt,
    /// The number of the state that the generation began with.
    first_state: u64,
    /// How many calls of the generation there were before.
    before: u64,
    /// The state then; the constructor's if there is none.
    state: Option<Checkpoint>,
    arguments: Vec<Argument>,
    calls: Vec<Arc<Logged>>,
    /// Whether a call is missing behind these.
    is_closed: bool,
    bytes: u64,
    again: Arc<Again>,
}

/// What is to be done to have the result of a call again.
pub(crate) struct Story {
    pub(crate) again: Arc<Again>,
    pub(crate) state: Option<Checkpoint>,
    pub(crate) arguments: Vec<Argument>,
    /// The call is the last of these.
    pub(crate) calls: Vec<Arc<Logged>>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.before + self.calls.len() as u64
    }

    fn push(&mut self, call: Arc<Logged>) {
        self.bytes += call.bytes;
        self.calls.push(call);
    }
}

impl CallLog {
    /// A generation begins elsewhere, with this state or else these arguments.
    pub(crate) fn begins(
        &self,
        attempt: Attempt,
        state: Option<Checkpoint>,
        arguments: &[Argument],
    ) {
        let mut inner = self.0.lock();
        if inner
            .segments
            .back()
            .is_some_and(|it| it.attempt == attempt)
        {
            // It was sent twice.
            return;
        }
        let bytes = match &state {
            Some(state) => state.state.len() as u64,
            None => arguments.iter().map(Argument::size_bytes).sum(),
        };
        inner.segments.push_back(Segment {
            attempt,
            first_state: state.as_ref().map_or(0, |it| it.number),
            before: 0,
            arguments: match state {
                Some(_) => Vec::new(),
                None => arguments.to_vec(),
            },
            state,
            calls: Vec::new(),
            is_closed: false,
            bytes,
            again: Arc::default(),
        });
        inner.limit();
    }

    /// A call of a generation was made; `None` if it cannot be kept. `position`: which it is of them, from 1. `state` is the
    /// latest that is known.
    pub(crate) fn add(
        &self,
        attempt: Attempt,
        position: u64,
        call: Option<Logged>,
        state: Option<Checkpoint>,
    ) {
        let mut inner = self.0.lock();
        let Some(last) = inner.segments.back_mut().filter(|it| it.attempt == attempt) else {
            return;
        };
        if position <= last.end() {
            // Said again.
            return;
        }
        match call {
            Some(call) if !last.is_closed && position == last.end() + 1 => {
                last.push(Arc::new(call))
            }
            _ => last.is_closed = true,
        }
        if let Some(state) = state {
            last.followed_by(position, state)
                .into_iter()
                .for_each(|next| inner.segments.push_back(next));
        }
        inner.limit();
    }

    /// How to have the result of a call again; `None` if that call is not among those that are kept.
    pub(crate) fn story(&self, task: &TaskId) -> Option<Story> {
        let inner = self.0.lock();
        // The latest that has it: with the fewest calls before.
        inner.segments.iter().rev().find_map(|segment| {
            let at = segment.calls.iter().position(|call| call.task == *task)?;
            Some(Story {
                again: segment.again.clone(),
                state: segment.state.clone(),
                arguments: segment.arguments.clone(),
                calls: segment.calls[..=at].to_vec(),
            })
        })
    }

    /// What a call has given that was replayed along with another.
    pub(crate) fn made_along(&self, task: &TaskId) -> Option<Value> {
        self.wanted(task)?.take()
    }

    /// The result of a call is to be reconstructed if it is lost.
    pub(crate) fn want(&self, task: TaskId, recipe: &Arc<CallRecipe>) {
        let recipes = &mut self.0.lock().recipes;
        if recipes.len() == recipes.capacity() {
            recipes.retain(|_, it| it.strong_count() > 0);
        }
        recipes.insert(task, Arc::downgrade(recipe));
    }

    /// Whose result of a call may be reconstructed.
    pub(crate) fn wanted(&self, task: &TaskId) -> Option<Arc<CallRecipe>> {
        self.0.lock().recipes.get(task)?.upgrade()
    }

    /// Nobody can call the actor any more, and nobody who could has it. What it keeps may be what keeps it.
    pub(crate) fn clear(&self) {
        let before = std::mem::take(&mut *self.0.lock());
        drop(before);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let inner = self.0.lock();
        inner.segments.iter().map(|it| it.calls.len()).sum()
    }
}

impl Segment {
    /// Another segment that begins with a later state, if that is worth it: this one is long, or over and nothing is
    /// missing after that state. `position` is of the last call that was made.
    fn followed_by(&self, position: u64, state: Checkpoint) -> Option<Self> {
        let before = state.number.checked_sub(self.first_state)?;
        let is_long =
            self.calls.len() >= MOST_CALLS / PART || self.bytes >= MOST_BYTES / PART as u64;
        let is_worth_it = match self.is_closed {
            true => before >= position,
            false => is_long && before > self.before && before <= self.end(),
        };
        if !is_worth_it {
            return None;
        }
        let mut next = Self {
            attempt: self.attempt,
            first_state: self.first_state,
            before,
            bytes: state.state.len() as u64,
            state: Some(state),
            arguments: Vec::new(),
            calls: Vec::new(),
            is_closed: false,
            again: Arc::default(),
        };
        if !self.is_closed {
            let skipped = usize::try_from(before - self.before).unwrap_or(usize::MAX);
            for call in self.calls.iter().skip(skipped) {
                next.push(call.clone());
            }
        }
        Some(next)
    }
}

impl Inner {
    /// Lets go of the oldest, as far as there is too much.
    fn limit(&mut self) {
        loop {
            let calls: usize = self.segments.iter().map(|it| it.calls.len()).sum();
            let bytes: u64 = self.segments.iter().map(|it| it.bytes).sum();
            if calls <= MOST_CALLS && bytes <= MOST_BYTES {
                return;
            }
            if self.segments.len() > 1 {
                self.segments.pop_front();
                continue;
            }
            let Some(last) = self.segments.back_mut() else {
                return;
            };
            last.is_closed = true;
            match last.calls.pop() {
                Some(call) => last.bytes -= call.bytes,
                // Its state alone is too much.
                None => self.segments.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Attempt = Attempt::new(0, 3);

    fn task(n: u64) -> TaskId {
        DriverId::from_bytes([1; 16]).task(n)
    }

    fn call(n: u64, bytes: u64) -> Option<Logged> {
        Some(Logged {
            task: task(n),
            driver: DriverId::from_bytes([1; 16]),
            method: 0,
            values: Vec::new(),
            _objects: None,
            ran: Ran::Well,
            bytes,
        })
    }

    fn state(number: u64) -> Option<Checkpoint> {
        Some(Checkpoint {
            number,
            state: number.to_le_bytes().as_slice().into(),
        })
    }

    /// The state before the calls that lead to one, and how many there are.
    fn story(log: &CallLog, n: u64) -> Option<(u64, usize)> {
        let story = log.story(&task(n))?;
        assert_eq!(story.calls.last().unwrap().task, task(n));
        Some((story.state.map_or(0, |it| it.number), story.calls.len()))
    }

    #[test]
    fn without_states_it_begins_with_the_constructor_and_ends_when_it_is_full() {
        let log = CallLog::default();
        log.begins(GENERATION, None, &[]);
        for n in 1..=MOST_CALLS as u64 + 10 {
            log.add(GENERATION, n, call(n, 1), None);
        }
        assert_eq!(log.len(), MOST_CALLS);
        assert_eq!(story(&log, 1), Some((0, 1)));
        assert_eq!(story(&log, 700), Some((0, 700)));
        assert_eq!(story(&log, MOST_CALLS as u64 + 1), None);
    }

    #[test]
    fn with_states_the_last_calls_are_kept_and_the_oldest_go() {
        let log = CallLog::default();
        log.begins(GENERATION, state(40), &[]);
        let last = 10 * MOST_CALLS as u64;
        for n in 1..=last {
            // States come a little later than the calls that they are of.
            log.add(GENERATION, n, call(n, 1), state(40 + n.saturating_sub(3)));
        }
        assert!(log.len() <= MOST_CALLS);
        assert_eq!(story(&log, 1), None);
        for n in last - MOST_CALLS as u64 / 4..=last {
            let (number, count) = story(&log, n).expect("it is among the last");
            assert_eq!(number - 40 + count as u64, n, "no call is missing");
        }
    }

    #[test]
    fn what_is_missing_ends_a_segment_and_a_state_after_it_begins_another() {
        let log = CallLog::default();
        log.begins(GENERATION, None, &[]);
        log.add(GENERATION, 1, call(1, 1), state(1));
        log.add(GENERATION, 2, None, state(1));
        // The state that is known is not of after the gap.
        log.add(GENERATION, 3, call(3, 1), state(2));
        assert_eq!((story(&log, 1), story(&log, 3)), (Some((0, 1)), None));
        log.add(GENERATION, 4, call(4, 1), state(4));
        log.add(GENERATION, 5, call(5, 1), state(4));
        assert_eq!((story(&log, 4), story(&log, 5)), (None, Some((4, 1))));
        // Out of order, or of another generation.
        log.add(GENERATION, 5, call(6, 1), None);
        log.add(Attempt::new(0, 2), 6, call(6, 1), None);
        assert_eq!(story(&log, 6), None);
    }

    #[test]
    fn generations_follow_each_other_and_take_no_more_than_they_may() {
        let log = CallLog::default();
        for generation in 0..100u32 {
            let attempt = Attempt::new(0, generation + 1);
            log.begins(attempt, None, &[]);
            let n = u64::from(generation);
            log.add(attempt, 1, call(n, MOST_BYTES / 10), None);
        }
        assert_eq!(log.len(), 10);
        assert_eq!((story(&log, 89), story(&log, 90)), (None, Some((0, 1))));
        // One that is too large alone.
        log.begins(Attempt::new(0, 200), None, &[]);
        log.add(Attempt::new(0, 200), 1, call(200, MOST_BYTES + 1), None);
        log.add(Attempt::new(0, 200), 2, call(201, 1), None);
        assert_eq!((story(&log, 200), story(&log, 201)), (None, None));
    }
}
