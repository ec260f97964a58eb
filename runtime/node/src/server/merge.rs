//! What several nodes say, as one answer.
//!
//! Owns which row of two counts, the order of rows, and what is said of nodes that have not answered. Must not: ask nodes.

use std::collections::BTreeMap;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, TaskId};
use wasmrun_model::wire::{
    ActorRow, Refusal, RefusalKind, Rows, ServiceRow, Silent, TaskRow, What,
};

use crate::server::{lookup, rows};

/// How much the state in a row says: the end most, that it is with another node least.
pub(super) fn weight(state: &str) -> u8 {
    match state {
        "finished" | "failed" | "cancelled" | "ending" => 2,
        "placeable" => 0,
        _ => 1,
    }
}

/// One row of two of the same task: what the one that is with it says, and of the other who waits for it.
pub(super) fn better(one: TaskRow, other: TaskRow) -> TaskRow {
    let (mut row, less) = match weight(&one.state) >= weight(&other.state) {
        true => (one, other),
        false => (other, one),
    };
    row.is_detached |= less.is_detached;
    // The node where it was submitted knows more of it than the one that runs it, and has had it for longer.
    if less.age_ms > row.age_ms {
        row.age_ms = less.age_ms;
        row.submitted_us = less.submitted_us;
    }
    row.parent = row.parent.or(less.parent);
    row.parent_attempt = row.parent_attempt.max(less.parent_attempt);
    row.trace = row.trace.or(less.trace);
    row.array_index = row.array_index.or(less.array_index);
    row.attempt = row.attempt.max(less.attempt);
    if row.inputs.is_empty() {
        row.inputs = less.inputs;
    }
    row
}

/// Each task once, the youngest first.
pub(super) fn merged(rows: Vec<TaskRow>) -> Vec<TaskRow> {
    let mut tasks: BTreeMap<TaskId, TaskRow> = BTreeMap::new();
    for row in rows {
        let row = match tasks.remove(&row.id) {
            Some(known) => better(known, row),
            None => row,
        };
        tasks.insert(row.id, row);
    }
    let mut rows: Vec<TaskRow> = tasks.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(rows::place(What::Tasks, row)));
    rows
}

/// Each actor once: at the node where it lives, and with the name that it has where it was created.
pub(super) fn merged_actors(rows: Vec<ActorRow>) -> Vec<ActorRow> {
    let mut actors: BTreeMap<ActorId, ActorRow> = BTreeMap::new();
    for row in rows {
        let row = match actors.remove(&row.id) {
            Some(known) => {
                // One that has failed somewhere may live elsewhere by now.
                let says = |row: &ActorRow| match lookup::is_over(&row.state) {
                    true => 0,
                    false => 1 + weight(&row.state),
                };
                let (mut row, less) = match says(&known) >= says(&row) {
                    true => (known, row),
                    false => (row, known),
                };
                row.name = row.name.or(less.name);
                row.generation = row.generation.max(less.generation);
                row.calls = row.calls.max(less.calls);
                row.state_bytes = row.state_bytes.or(less.state_bytes);
                row.failure = row.failure.or(less.failure);
                row
            }
            None => row,
        };
        actors.insert(row.id, row);
    }
    actors.into_values().collect()
}

pub(super) fn add(rows: &mut Rows, more: Rows) {
    match (rows, more) {
        (Rows::Tasks(rows), Rows::Tasks(more)) => rows.extend(more),
        (Rows::Actors(rows), Rows::Actors(more)) => rows.extend(more),
        (Rows::Objects(rows), Rows::Objects(more)) => rows.extend(more),
        (Rows::Jobs(rows), Rows::Jobs(more)) => rows.extend(more),
        (Rows::Modules(rows), Rows::Modules(more)) => rows.extend(more),
        (Rows::Nodes(rows), Rows::Nodes(more)) => rows.extend(more),
        (Rows::Tenants(rows), Rows::Tenants(more)) => rows.extend(more),
        (Rows::Groups(rows), Rows::Groups(more)) => rows.extend(more),
        (Rows::Services(rows), Rows::Services(more)) => rows.extend(more),
        (Rows::Audit(rows), Rows::Audit(more)) => rows.extend(more),
        // It is not what was asked for.
        (_, _) => {}
    }
}

/// In an order that does not depend on who has answered first, and not too many.
pub(super) fn truncate(rows: &mut Rows, most: usize) {
    match rows {
        Rows::Tasks(rows) => rows.truncate(most),
        Rows::Actors(rows) => {
            rows.sort_by_key(|row| (lookup::is_over(&row.state), row.id));
            rows.truncate(most);
        }
        Rows::Objects(rows) => {
            rows.sort_by(|one, other| (one.id, &one.node).cmp(&(other.id, &other.node)));
            rows.truncate(most);
        }
        Rows::Jobs(rows) => rows.truncate(most),
        Rows::Modules(rows) => {
            rows.sort_by(|one, other| (one.digest, &one.node).cmp(&(other.digest, &other.node)));
            rows.truncate(most);
        }
        Rows::Tenants(rows) => {
            rows.sort_by(|one, other| (&one.name, &one.node).cmp(&(&other.name, &other.node)));
            rows.truncate(most);
        }
        Rows::Nodes(rows) => {
            rows.sort_by(|one, other| one.name.cmp(&other.name));
            rows.truncate(most);
        }
        Rows::Services(rows) => {
            rows.sort_by(|one, other| {
                (&one.tenant, &one.name, &one.node).cmp(&(&other.tenant, &other.name, &other.node))
            });
            rows.truncate(most);
        }
        Rows::Groups(rows) => {
            rows.sort_by_key(|row| row.id);
            rows.truncate(most);
        }
        // Some are of one node, and the audit is in its own order.
        Rows::Members(_) | Rows::Tokens(_) | Rows::Access(_) | Rows::Due(_) | Rows::Audit(_) => {}
    }
}

/// Each service of the cluster knows how many requests all nodes have had.
pub(super) fn sum_services(rows: &mut [ServiceRow]) {
    let mut sums: BTreeMap<(TenantName, String), u64> = BTreeMap::new();
    let of = |row: &ServiceRow| (row.tenant.clone(), row.name.clone());
    for row in rows.iter().filter(|row| row.generation > 0) {
        *sums.entry(of(row)).or_default() += row.requests;
    }
    for row in rows.iter_mut().filter(|row| row.generation > 0) {
        row.all_requests = sums[&of(row)];
    }
}

/// Of what nodes have refused, at least one of them: a node that knows the task, and why nothing is kept of it, knows best.
pub(super) fn best_of(mut refused: Vec<Refusal>, silent: &[Silent]) -> Refusal {
    let known = refused
        .iter()
        .position(|why| why.kind != RefusalKind::NotFound);
    with_silent(refused.swap_remove(known.unwrap_or(0)), silent)
}

/// That there is no such thing is only known of nodes that have answered.
pub(super) fn with_silent(mut why: Refusal, silent: &[Silent]) -> Refusal {
    if why.kind == RefusalKind::NotFound && !silent.is_empty() {
        let names: Vec<&str> = silent.iter().map(|it| it.node.as_str()).take(10).collect();
        let (count, names) = (silent.len(), names.join(", "));
        let nodes = if count == 1 { "node" } else { "nodes" };
        why.message
            .push_str(&format!("; {count} {nodes} did not answer: {names}"));
    }
    why
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::*;
    use crate::server::everywhere;
    use crate::server::session::refusal;

    fn row(task: u64, state: &str, node: &str) -> TaskRow {
        TaskRow {
            state: state.into(),
            is_detached: node == "owner",
            submitted_us: if node == "owner" { 1 } else { 2 },
            age_ms: if node == "owner" { 10 } else { 5 },
            node: node.into(),
            ..TaskRow::example(DriverId::from_bytes([1; 16]).task(task))
        }
    }

    #[test]
    fn a_task_that_moved_is_shown_once() {
        let at = |rows: Vec<TaskRow>| {
            let rows = merged(rows);
            assert_eq!(rows.len(), 1);
            (
                rows[0].state.clone(),
                rows[0].node.clone(),
                rows[0].is_detached,
                rows[0].age_ms,
            )
        };
        let owner = |state| row(1, state, "owner");
        let other = |state| row(1, state, "other");
        let there = ("running".to_owned(), "other".to_owned(), true, 10);
        assert_eq!(at(vec![owner("placeable"), other("running")]), there);
        assert_eq!(at(vec![other("running"), owner("placeable")]), there);
        let ended = ("cancelled".to_owned(), "owner".to_owned(), true, 10);
        assert_eq!(at(vec![other("running"), owner("cancelled")]), ended);
    }

    #[test]
    fn the_youngest_tasks_come_first() {
        let rows = merged(vec![row(1, "ready", "owner"), row(2, "ready", "other")]);
        assert_eq!(rows[0].node, "other");
    }

    #[test]
    fn who_is_silent_is_named_where_something_is_missing() {
        let silent = [Silent {
            node: "b".into(),
            why: "w".into(),
        }];
        let missing = refusal(RefusalKind::NotFound, "there is none");
        let said = with_silent(missing, &silent).message;
        assert_eq!(said, "there is none; 1 node did not answer: b");
        let wrong = with_silent(refusal(RefusalKind::Usage, "wrong"), &silent);
        assert_eq!(wrong.message, "wrong");
    }

    #[test]
    fn requests_of_a_service_are_those_of_all_its_nodes() {
        let row = |node: &str, generation, requests| ServiceRow {
            requests,
            all_requests: requests,
            ..everywhere::tests::row(node, generation, "listening")
        };
        // The last is a node's own, of the same name.
        let mut rows = [row("a", 1, 2), row("b", 1, 3), row("c", 0, 7)];
        sum_services(&mut rows);
        assert_eq!(rows.map(|row| row.all_requests), [5, 5, 7]);
    }
}
