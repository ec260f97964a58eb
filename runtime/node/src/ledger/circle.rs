//! Tasks of this node that wait for each other in a circle.
//!
//! Owns who waits for whom here, and the search. It walks from the tasks that have begun to wait since the last search that
//! found nothing (see [`wasmrun_model::scheduler::NewWaiters`]): a circle that has formed since has one of them in it. Must
//! not: look at other nodes.

use std::collections::BTreeSet;

use wasmrun_model::id::{NodeId, ObjectName, TaskId};
use wasmrun_model::scheduler::NewWaiters;
use wasmrun_model::task::Phase as State;

use super::deadlock::{Place, describe};
use super::graph::{self, Graph, Needs};
use crate::ledger::Ledger;
use crate::records::actor::object_of;
use crate::records::job::Argument;
use crate::records::object::{Object, Reference};
use crate::records::task::Work;

/// What a walk through the graph of waits has found.
#[derive(Default)]
struct Walk {
    /// Those that wait for others that do.
    graph: Graph<TaskId>,
    /// Those of them that can never go on.
    stuck: BTreeSet<TaskId>,
    /// At how many tasks it has looked.
    looked_at: usize,
}

impl Ledger {
    /// A circle within this node: the task whose wait is to end, and why. The same is found again until that wait has
    /// ended.
    pub(crate) fn find_circle(&mut self) -> Option<(TaskId, String)> {
        let new = self.take_new_waiters();
        self.blocked.add_new(new);
        let mut walk = match self.blocked.new_ones() {
            NewWaiters::These(tasks) => self.walk(tasks.iter().copied()),
            NewWaiters::TooMany => self.walk(self.blocked.tasks()),
        };
        if !walk.stuck.is_empty() && !walk.stuck.iter().any(|it| self.blocked.contains(it)) {
            // None of its waits can be ended, but that of a task which waits for it, perhaps since before.
            walk = self.walk(self.blocked.tasks());
        }
        #[cfg(test)]
        {
            self.blocked.looked_at += walk.looked_at;
        }
        let found = self.circle_in(&walk);
        if found.is_none() {
            self.blocked.forget_new();
        }
        found
    }

    fn circle_in(&self, walk: &Walk) -> Option<(TaskId, String)> {
        let Walk { graph, stuck, .. } = walk;
        let from = *stuck.iter().find(|it| self.blocked.contains(it))?;
        let circle = graph::circle(graph, stuck, from);
        let waits = circle.iter().filter_map(|it| {
            let blocked = self.blocked.get(it)?;
            Some((blocked.wait.number, *it))
        });
        // If none of its waits can be ended, that of a task which waits for it is.
        let last = waits.max().map_or(from, |(_, task)| task);
        let names = circle.iter().map(|task| {
            let name = self.work(task).map(Work::name).unwrap_or_default();
            format!("{name} ({task})")
        });
        Some((last, describe(names)))
    }

    /// Those whom these wait for, those whom those wait for, and so on.
    fn walk(&self, from: impl Iterator<Item = TaskId>) -> Walk {
        let mut walk = Walk::default();
        let mut next: Vec<TaskId> = from.collect();
        let mut seen: BTreeSet<TaskId> = next.iter().copied().collect();
        walk.looked_at = next.len();
        while let Some(task) = next.pop() {
            let (mut of, mut free) = (Vec::new(), 0);
            let count = self.each_wait(&task, |place| {
                walk.looked_at += 1;
                match place.node == self.id() && self.may_wait(&place.task) {
                    true => of.push(place.task),
                    // As far as is known here it goes on.
                    false => free += 1,
                }
            });
            // Those that go on are most, and are not kept.
            let count = count.saturating_sub(free);
            if count > 0 {
                next.extend(of.iter().filter(|it| seen.insert(**it)));
                walk.graph.insert(task, Needs { of, count });
            }
        }
        walk.stuck = graph::stuck(&walk.graph);
        walk
    }

    /// Whether a task may wait for others, and for ever: a quick look.
    fn may_wait(&self, task: &TaskId) -> bool {
        if let Some(blocked) = self.blocked.get(task) {
            return !blocked.is_bounded;
        }
        match self.phase(task) {
            Some(State::Waiting) => true,
            Some(State::WaitingForActorCreation | State::Placeable | State::Ready) => {
                matches!(self.work(task), Some(Work::Call(..)))
            }
            _ => false,
        }
    }

    pub(super) fn here(&self, task: TaskId) -> Place {
        Place {
            node: self.id(),
            task,
        }
    }

    /// Where it is known what becomes of an object.
    fn maker(&self, name: &ObjectName) -> Place {
        let task = name.id.task();
        let is_here = name.owner == self.id() || self.work(&task).is_some();
        let node: NodeId = if is_here { self.id() } else { name.owner };
        Place { node, task }
    }

    /// Of which others some must end before a task goes on. `None` if it does not wait, or not for ever.
    pub(crate) fn waits_for(&self, task: &TaskId) -> Option<Needs<Place>> {
        let mut of = Vec::new();
        let count = self.each_wait(task, |place| of.push(place));
        (count > 0).then_some(Needs { of, count })
    }

    /// Of which others some must end before a task goes on, or time is up. `None` if it does not wait for any.
    pub(crate) fn needs_of(&self, task: &TaskId) -> Option<Needs<Place>> {
        let mut of = Vec::new();
        let count = self.each_need(task, |place| of.push(place));
        (count > 0).then_some(Needs { of, count })
    }

    /// Visits those of whom some must end before a task goes on. How many; 0 if it does not wait, or not for ever.
    fn each_wait(&self, task: &TaskId, mut visit: impl FnMut(Place)) -> usize {
        let blocked = self.blocked.get(task);
        if blocked.is_some_and(|it| it.is_bounded) {
            return 0;
        }
        let count = self.each_need(task, &mut visit);
        if blocked.is_some() || self.phase(task) != Some(State::Waiting) {
            return count;
        }
        // When a call has its arguments, it is still held up by those before it. So all of those are found one by one: what
        // was said of one before does not change when another has its arguments.
        let before = self.scheduler().held_up_by(task);
        before.into_iter().for_each(|it| visit(self.here(it)));
        count + usize::from(before.is_some())
    }

    /// Visits those of whom some must end before a task goes on, or time is up. How many; 0 if it does not wait for any.
    fn each_need(&self, task: &TaskId, mut visit: impl FnMut(Place)) -> usize {
        if let Some(blocked) = self.blocked.get(task) {
            let mut ended = 0;
            for cell in &*blocked.needs {
                match cell.has_ended() {
                    true => ended += 1,
                    false => visit(self.maker(&cell.object())),
                }
            }
            let count = blocked.count.min(blocked.needs.len());
            return count.saturating_sub(ended);
        }
        let mut count = 0;
        let mut visit = |place| {
            count += 1;
            visit(place);
        };
        match self.phase(task) {
            Some(State::Waiting) => {
                let values = self.call(task).into_iter().flat_map(|call| &call.values);
                for value in values {
                    if let Argument::Object(Object(Reference::Task(cell))) = value
                        && !cell.has_ended()
                    {
                        visit(self.maker(&cell.object()));
                    }
                }
            }
            Some(State::WaitingForActorCreation | State::Placeable) => {
                match (self.scheduler().peer(task), self.work(task)) {
                    (Some(node), _) => visit(Place { node, task: *task }),
                    (None, Some(Work::Call(actor, _))) => {
                        visit(self.maker(&object_of(actor.name())));
                    }
                    (None, _) => {}
                }
            }
            Some(State::Ready) => {
                if let Some(Work::Call(actor, _)) = self.work(task) {
                    let current = actor.current().map(|call| call.id);
                    let held_up_by = self.scheduler().held_up_by(task);
                    let before = current.into_iter().chain(held_up_by);
                    before.for_each(|task| visit(self.here(task)));
                }
            }
            _ => {}
        }
        count
    }
}
