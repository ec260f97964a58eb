//! The graph of a job's tasks as boxes and arrows. Must not: find the edges, which `wasmrun_client::graph` does.

use std::collections::{BTreeMap, BTreeSet};

use wasmrun_client::graph::edges;
use wasmrun_client::wire::TaskRow;
use wasmrun_model::id::{ActorId, TaskId};

use super::parts;
use crate::picture::{Edge, Node};

/// Beyond so many boxes, tasks that are alike share one.
const MOST_NODES: usize = 300;

/// The boxes and arrows of these tasks, and how many tasks there was no room for.
pub fn of(tasks: &[TaskRow]) -> (Vec<Node>, Vec<Edge>, usize) {
    let edges = edges(tasks);
    // The oldest first: what comes later is put behind what was there.
    let mut tasks: Vec<&TaskRow> = tasks.iter().collect();
    tasks.sort_by_key(|it| (it.submitted_us, it.id));
    let is_many = tasks.len() > MOST_NODES;
    let mut nodes = Vec::<Node>::new();
    let mut groups = BTreeMap::<Alike<'_>, usize>::new();
    let mut places = BTreeMap::<TaskId, usize>::new();
    let mut left_out = 0;
    for task in &tasks {
        let group = is_many.then(|| groups.get(&alike(task)).copied()).flatten();
        let place = match group {
            Some(place) => {
                nodes[place].count += 1;
                nodes[place].href = None;
                place
            }
            None if nodes.len() < MOST_NODES => {
                nodes.push(node(task));
                groups.insert(alike(task), nodes.len() - 1);
                nodes.len() - 1
            }
            None => {
                left_out += 1;
                continue;
            }
        };
        places.insert(task.id, place);
    }
    // Tasks that share a box may have the same edges, or edges to each other.
    let edges = edges.into_iter().filter_map(|edge| {
        let (from, to) = (*places.get(&edge.from)?, *places.get(&edge.to)?);
        let kind = edge.kind;
        (from != to).then_some(Edge { from, to, kind })
    });
    let edges: BTreeSet<Edge> = edges.collect();
    (nodes, edges.into_iter().collect(), left_out)
}

/// What tasks have in common that share a box.
type Alike<'a> = (Option<TaskId>, &'a str, &'a str, Option<ActorId>);

fn alike(task: &TaskRow) -> Alike<'_> {
    (task.parent, &task.name, &task.state, task.actor)
}

fn node(task: &TaskRow) -> Node {
    let label = match task.array_index {
        Some(index) => format!("{} [{index}]", task.name),
        None => task.name.clone(),
    };
    Node {
        label,
        state: task.state.clone(),
        class: parts::class_of(&task.state),
        href: Some(format!("/tasks/{}", task.id)),
        count: 1,
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_client::graph::EdgeKind;
    use wasmrun_model::id::{DriverId, ObjectId};

    use super::*;

    #[test]
    fn edges_are_data_control_and_state() {
        let id = |at| DriverId::from_bytes([1; 16]).task(at);
        let mut made = TaskRow::example(id(0));
        made.submitted_us = 1;
        let mut reads = TaskRow::example(id(1));
        reads.inputs = vec![ObjectId::of(id(0), 0)];
        reads.submitted_us = 2;
        let mut started = TaskRow::example(id(2));
        started.parent = Some(id(1));
        started.submitted_us = 3;
        let actor = id(3).actor();
        let calls = [(3, 4), (4, 5), (5, 6)].map(|(at, submitted_us)| TaskRow {
            actor: Some(actor),
            submitted_us,
            ..TaskRow::example(id(at))
        });
        let all = [&[started, reads, made][..], &calls].concat();
        let (nodes, edges, left_out) = of(&all);
        assert_eq!((nodes.len(), left_out), (6, 0));
        let edge = |from, to, kind| Edge { from, to, kind };
        assert_eq!(
            edges,
            [
                edge(0, 1, EdgeKind::Data),
                edge(1, 2, EdgeKind::Control),
                edge(3, 4, EdgeKind::State),
                edge(4, 5, EdgeKind::State),
            ]
        );
    }

    #[test]
    fn siblings_that_are_alike_share_a_box_where_there_are_many() {
        let id = |at| DriverId::from_bytes([1; 16]).task(at);
        let parent = TaskRow::example(id(0));
        let mut all = vec![parent];
        all.extend((1..=400).map(|at| TaskRow {
            parent: Some(id(0)),
            submitted_us: at,
            ..TaskRow::example(id(at))
        }));
        let (nodes, edges, left_out) = of(&all);
        assert_eq!((nodes.len(), nodes[1].count, left_out), (2, 400, 0));
        assert_eq!(edges.len(), 1);
        // Each has another name: there is no room for all.
        for (at, task) in all.iter_mut().enumerate() {
            task.name = at.to_string();
        }
        let (nodes, _, left_out) = of(&all);
        assert_eq!((nodes.len(), left_out), (MOST_NODES, 401 - MOST_NODES));
    }
}
