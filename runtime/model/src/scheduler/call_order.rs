//! The order of an actor's calls: the calls of one caller start in the order in which they were made.
//!
//! Owns which call is next at an actor ([`Mailbox`]), and which calls may not be placed yet because earlier ones are
//! still where the actor lived before ([`Strays`]). Must not: know where the actor lives, or place a call.
//!
//! Every operation costs O(log n) of the calls in the table.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Sequence, TaskIx};
use crate::id::{DriverId, TaskId};

/// Who makes calls: a driver, or a task of it.
pub(super) type Caller = (DriverId, Option<TaskId>);

/// The calls that are placed at an actor and have not had their turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mailbox {
    /// One for each caller that has calls here.
    lines: BTreeMap<Caller, Line>,
    /// The first call of each line, where it lacks no argument.
    turn: BTreeMap<Sequence, Caller>,
}

/// The calls of one caller.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    calls: BTreeMap<Sequence, TaskIx>,
    /// Those that lack an argument: they hold up the later ones.
    lacking: BTreeSet<Sequence>,
}

impl Line {
    /// The call that may start, if there is one.
    fn ready(&self) -> Option<Sequence> {
        let (first, _) = self.calls.first_key_value()?;
        (!self.lacking.contains(first)).then_some(*first)
    }
}

impl Mailbox {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a call, or says anew whether it lacks an argument.
    pub(super) fn put(
        &mut self,
        caller: Caller,
        sequence: Sequence,
        ix: TaskIx,
        lacks_argument: bool,
    ) {
        self.change(caller, |line| {
            line.calls.insert(sequence, ix);
            match lacks_argument {
                true => line.lacking.insert(sequence),
                false => line.lacking.remove(&sequence),
            };
        });
    }

    /// Takes a call out, if it is here.
    pub(super) fn remove(&mut self, caller: Caller, sequence: Sequence) {
        if self.lines.contains_key(&caller) {
            self.change(caller, |line| {
                line.calls.remove(&sequence);
                line.lacking.remove(&sequence);
            });
        }
    }

    /// Takes the next call out: the earliest that waits for no argument, and for no earlier call of its caller.
    pub(super) fn pop(&mut self) -> Option<TaskIx> {
        let (_, caller) = self.turn.first_key_value()?;
        let mut first = None;
        self.change(*caller, |line| first = line.calls.pop_first());
        first.map(|(_, ix)| ix)
    }

    /// The last call of a caller before this one that lacks an argument.
    pub(super) fn last_lacking(&self, caller: Caller, before: Sequence) -> Option<TaskIx> {
        let line = self.lines.get(&caller)?;
        let last = line.lacking.range(..before).next_back()?;
        Some(line.calls[last])
    }

    fn change(&mut self, caller: Caller, change: impl FnOnce(&mut Line)) {
        let line = self.lines.entry(caller).or_default();
        let before = line.ready();
        change(line);
        let after = line.ready();
        if line.calls.is_empty() {
            self.lines.remove(&caller);
        }
        if before != after {
            before.and_then(|before| self.turn.remove(&before));
            after.and_then(|after| self.turn.insert(after, caller));
        }
    }
}

/// The calls that are still where an actor lived before, and the later ones of their callers that wait for them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strays {
    by_caller: BTreeMap<Caller, Detour>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Detour {
    /// Where the actor lived before. Never empty.
    away: BTreeSet<Sequence>,
    /// Not placed yet. Each comes after one that is away.
    held: BTreeMap<Sequence, TaskIx>,
}

impl Strays {
    /// Holds a call, which is nowhere, if an earlier one of its caller is away. False if it may be placed.
    pub(super) fn hold(&mut self, caller: Caller, sequence: Sequence, ix: TaskIx) -> bool {
        let Some(detour) = self.by_caller.get_mut(&caller) else {
            return false;
        };
        let is_behind = detour.away.first() < Some(&sequence);
        if is_behind {
            detour.away.remove(&sequence);
            detour.held.insert(sequence, ix);
        }
        is_behind
    }

    /// A call is away no more, or is not held any more. Returns those that need not be held now, in their order.
    pub(super) fn leave(&mut self, caller: Caller, sequence: Sequence) -> Vec<TaskIx> {
        let Some(detour) = self.by_caller.get_mut(&caller) else {
            return Vec::new();
        };
        detour.held.remove(&sequence);
        detour.away.remove(&sequence);
        let still_held = match detour.away.first() {
            Some(first) => detour.held.split_off(first),
            None => BTreeMap::new(),
        };
        let freed = std::mem::replace(&mut detour.held, still_held);
        if detour.away.is_empty() {
            self.by_caller.remove(&caller);
        }
        freed.into_values().collect()
    }
}

impl FromIterator<(Caller, Sequence)> for Strays {
    fn from_iter<T: IntoIterator<Item = (Caller, Sequence)>>(away: T) -> Self {
        let mut by_caller: BTreeMap<Caller, Detour> = BTreeMap::new();
        for (caller, sequence) in away {
            by_caller.entry(caller).or_default().away.insert(sequence);
        }
        Self { by_caller }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// All calls in one list that is searched from its start.
    #[derive(Default)]
    struct Scan(BTreeMap<Sequence, (Caller, TaskIx, bool)>);

    impl Scan {
        fn next(&self) -> Option<Sequence> {
            let mut held_up = BTreeSet::new();
            let mut calls = self.0.iter();
            let next = calls.find(|(_, (caller, _, lacks_argument))| {
                let is_next = !lacks_argument && !held_up.contains(caller);
                if !is_next {
                    held_up.insert(*caller);
                }
                is_next
            });
            next.map(|(sequence, _)| *sequence)
        }

        fn last_lacking(&self, of: Caller, before: Sequence) -> Option<TaskIx> {
            let mut calls = self.0.range(..before).rev();
            let is_it = |(caller, lacks_argument)| caller == of && lacks_argument;
            let last = calls.find(|(_, (caller, _, lacks))| is_it((*caller, *lacks)));
            last.map(|(_, (_, ix, _))| *ix)
        }
    }

    fn caller(at: u8) -> Caller {
        let task = (at > 1).then(|| TaskId::from_bytes([at; 16]));
        (DriverId::from_bytes([at % 2; 16]), task)
    }

    proptest! {
        #[test]
        fn a_mailbox_finds_what_a_scan_finds(
            steps in vec((0..6_u8, 0..12_u64, 0..4_u8), 0..200)
        ) {
            let (mut mailbox, mut scan) = (Mailbox::default(), Scan::default());
            for (step, at, by) in steps {
                let (sequence, ix) = (Sequence(at), TaskIx(at as u32));
                // A call keeps its caller.
                let known = scan.0.get(&sequence).map(|(caller, ..)| *caller);
                let by = known.unwrap_or_else(|| caller(by));
                match step {
                    0 => {
                        let next = scan.next().and_then(|next| scan.0.remove(&next));
                        prop_assert_eq!(mailbox.pop(), next.map(|(_, ix, _)| ix));
                    }
                    1 => {
                        scan.0.remove(&sequence);
                        mailbox.remove(by, sequence);
                    }
                    _ => {
                        let lacks_argument = step < 4;
                        scan.0.insert(sequence, (by, ix, lacks_argument));
                        mailbox.put(by, sequence, ix, lacks_argument);
                    }
                }
                prop_assert_eq!(mailbox.turn.keys().next().copied(), scan.next());
                prop_assert_eq!(mailbox.is_empty(), scan.0.is_empty());
                for by in (0..4).map(caller) {
                    let found = mailbox.last_lacking(by, sequence);
                    prop_assert_eq!(found, scan.last_lacking(by, sequence));
                }
            }
        }
    }

    #[test]
    fn a_call_is_held_until_none_before_it_is_away() {
        let (one, other) = (caller(0), caller(2));
        let away = [(one, Sequence(1)), (one, Sequence(3)), (other, Sequence(2))];
        let mut strays: Strays = away.into_iter().collect();
        for at in [4, 6] {
            assert!(strays.hold(one, Sequence(at), TaskIx(at as u32)));
        }
        assert!(!strays.hold(caller(1), Sequence(5), TaskIx(5)));
        // It is back, and the first still is not.
        assert!(strays.hold(one, Sequence(3), TaskIx(3)));
        // One that is held ends.
        assert!(strays.leave(one, Sequence(4)).is_empty());
        assert_eq!(strays.leave(one, Sequence(1)), [TaskIx(3), TaskIx(6)]);
        assert!(strays.leave(other, Sequence(2)).is_empty());
        assert_eq!(strays, Strays::default());
    }
}
