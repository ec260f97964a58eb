//! The graph of a job: which task started which, which read what another one made, and which calls of an actor followed
//! each other.
//!
//! Owns the edges. Must not: ask a node, or know how a graph is drawn.

use std::collections::{BTreeMap, BTreeSet};

use wasmrun_model::id::{ActorId, TaskId};

use crate::timeline::start_us;
use crate::wire::TaskRow;

/// An edge from one task to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// From which.
    pub from: TaskId,
    /// To which.
    pub to: TaskId,
    /// Why.
    pub kind: EdgeKind,
}

/// Why there is an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// The second task was started by the first.
    Control,
    /// The second task was given what the first made.
    Data,
    /// Both are calls of one actor, and the second is the next one.
    State,
}

impl EdgeKind {
    /// What programs call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Data => "data",
            Self::State => "state",
        }
    }
}

/// All edges between these tasks, each once.
pub fn edges(tasks: &[TaskRow]) -> BTreeSet<Edge> {
    let known: BTreeSet<TaskId> = tasks.iter().map(|row| row.id).collect();
    let mut edges = BTreeSet::new();
    let mut calls: BTreeMap<ActorId, Vec<&TaskRow>> = BTreeMap::new();
    for row in tasks {
        let edge = |kind| {
            move |from| Edge {
                from,
                to: row.id,
                kind,
            }
        };
        let is_other = |it: &TaskId| known.contains(it) && *it != row.id;
        let makers = row.inputs.iter().map(|object| object.task());
        edges.extend(makers.filter(is_other).map(edge(EdgeKind::Data)));
        edges.extend(row.parent.filter(is_other).map(edge(EdgeKind::Control)));
        if let Some(actor) = row.actor {
            calls.entry(actor).or_default().push(row);
        }
    }
    for mut calls in calls.into_values() {
        // The creation comes first, whatever the clocks say.
        calls.sort_by_key(|row| (!is_creation(row), began_us(row), row.id));
        edges.extend(calls.windows(2).map(|pair| Edge {
            from: pair[0].id,
            to: pair[1].id,
            kind: EdgeKind::State,
        }));
    }
    edges
}

/// Whether it is the creation of an actor, which runs as long as the actor lives.
pub fn is_creation(row: &TaskRow) -> bool {
    row.actor.is_some_and(|actor| actor.task() == row.id)
}

/// When a task began, or was submitted if it has not ended yet.
fn began_us(row: &TaskRow) -> u64 {
    row.run.as_ref().map_or(row.submitted_us, start_us)
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::ObjectId;

    use super::*;

    fn id(id: u8) -> TaskId {
        TaskId::from_bytes([id; 16])
    }

    fn task(at: u8) -> TaskRow {
        TaskRow::example(id(at))
    }

    #[test]
    fn edges_are_of_control_data_and_state() {
        let call = |at: u8, submitted_us: u64| TaskRow {
            actor: Some(id(4).actor()),
            submitted_us,
            ..task(at)
        };
        let tasks = [
            task(1),
            TaskRow {
                parent: Some(id(1)),
                ..task(2)
            },
            TaskRow {
                inputs: [1, 2, 9].map(|at| ObjectId::of(id(at), 0)).into(),
                ..task(3)
            },
            call(4, 7),
            call(6, 6),
            call(5, 5),
        ];
        let expected = [
            (1, 2, EdgeKind::Control),
            (1, 3, EdgeKind::Data),
            (2, 3, EdgeKind::Data),
            (4, 5, EdgeKind::State),
            (5, 6, EdgeKind::State),
        ];
        let expected = expected.map(|(from, to, kind)| Edge {
            from: id(from),
            to: id(to),
            kind,
        });
        assert_eq!(edges(&tasks), BTreeSet::from(expected));
    }
}
