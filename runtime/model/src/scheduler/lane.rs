//! Lanes: the ready tasks of one class and one tenant, in the order in which they may start.
//!
//! Owns that order (priority, then submission). Must not: know resources or other tenants.
//!
//! A task that leaves out of turn (it is cancelled, or loses an argument) leaves its entry behind,
//! which is skipped later: entries are numbered per task, and only the last one counts.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use super::record::{Sequence, TaskIx};
use super::table::Table;

/// Where in the order of its tenant a task stands; smaller goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// Tasks that were blocked and only need their CPU again come before new ones.
    pub is_new: bool,
    /// The priority, turned round.
    pub priority: std::cmp::Reverse<i32>,
    /// Of equal priority those that were paused come before new ones.
    pub is_fresh: bool,
    pub sequence: Sequence,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// By priority, the highest first.
    lines: SmallVec<[(std::cmp::Reverse<i32>, Line); 1]>,
    /// How many tasks are in it.
    len: u32,
}

/// Tasks of one priority. New ones go to the end of `queue`; one that comes back (its argument was
/// lost, a node refused it) is older than that and goes to `early`.
#[derive(Debug, Default)]
struct Line {
    queue: VecDeque<Entry>,
    early: BTreeMap<Sequence, Entry>,
    /// Entries of `queue` that may be of tasks that have left.
    stale: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    sequence: Sequence,
    task: TaskIx,
    number: u32,
}

impl Entry {
    fn is_valid(self, tasks: &Table) -> bool {
        tasks.get(self.task).is_some_and(|task| {
            task.is_in_line && task.sequence == self.sequence && task.entry == self.number
        })
    }
}

impl Lane {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a task, which is in no line.
    pub(crate) fn push(&mut self, tasks: &mut Table, ix: TaskIx) {
        let task = &mut tasks[ix];
        assert!(!task.is_in_line, "task {} is in line already", task.id);
        task.entry = task.entry.wrapping_add(1);
        task.is_in_line = true;
        let priority = std::cmp::Reverse(task.terms.priority);
        let entry = Entry {
            sequence: task.sequence,
            task: ix,
            number: task.entry,
        };
        if self.len == 0 {
            // What stayed of another priority would stand before it.
            self.lines.retain(|(of, _)| *of == priority);
        }
        let at = match self.lines.binary_search_by_key(&priority, |(of, _)| *of) {
            Ok(at) => at,
            Err(at) => {
                self.lines.insert(at, (priority, Line::default()));
                at
            }
        };
        self.lines[at].1.push(entry);
        self.len += 1;
    }

    /// Takes a task out of turn.
    pub(crate) fn remove(&mut self, tasks: &mut Table, ix: TaskIx) {
        let task = &mut tasks[ix];
        assert!(task.is_in_line, "task {} is in no line", task.id);
        task.is_in_line = false;
        let (priority, sequence) = (std::cmp::Reverse(task.terms.priority), task.sequence);
        self.len -= 1;
        let at = self.lines.binary_search_by_key(&priority, |(of, _)| *of);
        let line = &mut self.lines[at.expect("the line of its priority")].1;
        if line.early.remove(&sequence).is_none() {
            line.stale += 1;
        }
        self.tidy(tasks);
    }

    /// Who is next, and where in its tenant's order it stands.
    pub(crate) fn head(&self) -> Option<(Turn, TaskIx)> {
        let (priority, line) = self.lines.first()?;
        let entry = line.first()?;
        let turn = Turn {
            is_new: true,
            priority: *priority,
            is_fresh: true,
            sequence: entry.sequence,
        };
        Some((turn, entry.task))
    }

    /// Takes the next one out.
    pub(crate) fn pop(&mut self, tasks: &mut Table) -> Option<TaskIx> {
        let entry = self.lines.first_mut()?.1.pop()?;
        tasks[entry.task].is_in_line = false;
        self.len -= 1;
        self.tidy(tasks);
        Some(entry.task)
    }

    /// The tasks in the order in which they may start.
    pub(crate) fn iter<'a>(&'a self, tasks: &'a Table) -> impl Iterator<Item = TaskIx> + 'a {
        self.lines.iter().flat_map(move |(_, line)| {
            let mut early = line.early.values().peekable();
            let mut queue = line
                .queue
                .iter()
                .filter(|entry| entry.is_valid(tasks))
                .peekable();
            std::iter::from_fn(move || {
                let is_early = match (early.peek(), queue.peek()) {
                    (Some(early), Some(queued)) => early.sequence < queued.sequence,
                    (early, _) => early.is_some(),
                };
                let entry = if is_early { early.next() } else { queue.next() };
                entry.map(|entry| entry.task)
            })
        })
    }

    /// Sees to it that the first entry of the first line is valid.
    fn tidy(&mut self, tasks: &Table) {
        while let Some((_, line)) = self.lines.first_mut() {
            line.tidy(tasks);
            // The last line stays: the next task usually has the same priority.
            if line.first().is_some() || self.lines.len() == 1 {
                return;
            }
            self.lines.remove(0);
        }
    }
}

impl Line {
    fn push(&mut self, entry: Entry) {
        match self.queue.back() {
            Some(last) if last.sequence >= entry.sequence => {
                self.early.insert(entry.sequence, entry);
            }
            _ => self.queue.push_back(entry),
        }
    }

    fn first(&self) -> Option<Entry> {
        let early = self.early.first_key_value().map(|(_, entry)| *entry);
        match (early, self.queue.front().copied()) {
            (Some(early), Some(queued)) if early.sequence < queued.sequence => Some(early),
            (early, None) => early,
            (_, queued) => queued,
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let first = self.first()?;
        match self.early.first_key_value() {
            Some((sequence, _)) if *sequence == first.sequence => {
                self.early.pop_first().map(|(_, entry)| entry)
            }
            _ => self.queue.pop_front(),
        }
    }

    fn tidy(&mut self, tasks: &Table) {
        if self.stale == 0 {
            return;
        }
        while let Some(entry) = self.queue.front().filter(|entry| !entry.is_valid(tasks)) {
            debug_assert!(entry.sequence.0 > 0);
            self.queue.pop_front();
            self.stale -= 1;
        }
        if self.stale > 32 + self.queue.len() / 2 {
            self.queue.retain(|entry| entry.is_valid(tasks));
            self.stale = 0;
        }
        if self.queue.is_empty() {
            self.stale = 0;
        }
    }
}
