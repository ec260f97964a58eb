//! `job graph`: the graph of a job's tasks for Graphviz, as JSON, and for people as a tree.
//!
//! Must not: find the edges, which `wasmrun_client::graph` does; lay out a graph.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::graph::{Edge, EdgeKind, edges};
use wasmrun_client::rows::Object;
use wasmrun_client::wire::{JobRow, TaskRow};
use wasmrun_model::id::TaskId;

use super::jobs::{named, order, tasks_of};
use super::rows;
use crate::args::Output;
use crate::fail::CommandResult;
use crate::printer::Printer;

/// `job graph`.
pub fn graph(client: &Client, job: &JobRow, is_dot: bool, printer: &Printer) -> CommandResult {
    let mut tasks = tasks_of(client, job.id, &[])?;
    tasks.sort_by_key(order);
    let edges = edges(&tasks);
    if is_dot {
        return printer.result(dot(&named(job), &tasks, &edges).trim_end());
    }
    if printer.output == Output::Json {
        let edges = edges.iter().map(|Edge { from, to, kind }| {
            json!({ "from": from.to_string(), "to": to.to_string(), "kind": kind.name() })
        });
        let tasks: Json = tasks.iter().map(Object::object).collect();
        return printer.json(&json!({
            "version": 1,
            "job": job.id.to_string(),
            "tasks": tasks,
            "edges": edges.collect::<Json>(),
        }));
    }
    printer.result(tree(&tasks).join("\n"))
}

/// How Graphviz is to draw an edge.
fn style(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Control => "color=\"#555555\"",
        EdgeKind::Data => "color=\"#1a66cc\", penwidth=1.5",
        EdgeKind::State => "color=\"#b06000\", style=dashed",
    }
}

/// The graph as Graphviz reads it.
fn dot(name: &str, tasks: &[TaskRow], edges: &BTreeSet<Edge>) -> String {
    let mut text = format!(
        "digraph {} {{\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
        quoted(name)
    );
    for row in tasks {
        let id = row.id.to_string();
        let ran = row.run.as_ref().and_then(|run| run.ran_us);
        let ran = ran.map_or_else(String::new, |us| format!(" {}", rows::took_text(us)));
        let label = format!(
            "{}\n{} at {}\n{}{ran}",
            rows::title(row),
            rows::short(&id),
            row.node,
            row.state
        );
        let fill = match row.state.as_str() {
            "finished" => "#e3f4e3",
            "failed" => "#fadcdc",
            "cancelled" => "#eeeeee",
            _ => "#e4ecfa",
        };
        text.push_str(&format!(
            "  {} [label={}, fillcolor=\"{fill}\"];\n",
            quoted(&id),
            quoted(&label)
        ));
    }
    for Edge { from, to, kind } in edges {
        let (from, to) = (quoted(&from.to_string()), quoted(&to.to_string()));
        text.push_str(&format!("  {from} -> {to} [{}];\n", style(*kind)));
    }
    text.push_str("}\n");
    text
}

/// A string of Graphviz.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Who started whom, as lines with indents. The depth of the tasks may be anything: no recursion.
fn tree(tasks: &[TaskRow]) -> Vec<String> {
    let known: BTreeSet<TaskId> = tasks.iter().map(|row| row.id).collect();
    let mut children: BTreeMap<Option<TaskId>, Vec<&TaskRow>> = BTreeMap::new();
    for row in tasks {
        let parent = row.parent.filter(|it| known.contains(it));
        children.entry(parent).or_default().push(row);
    }
    let below = |parent: Option<TaskId>, depth: usize| {
        let rows = children.get(&parent).into_iter().flatten().rev();
        rows.map(move |row| (*row, depth))
    };
    let mut open: Vec<(&TaskRow, usize)> = below(None, 0).collect();
    let mut lines = Vec::with_capacity(tasks.len());
    while let Some((row, depth)) = open.pop() {
        let id = row.id.to_string();
        let error = row.error.as_ref().map(|why| format!(": {why}"));
        lines.push(format!(
            "{:indent$}{} {} {} at {}{}",
            "",
            rows::short(&id),
            rows::title(row),
            row.state,
            row.node,
            error.unwrap_or_default(),
            indent = 2 * depth.min(40),
        ));
        open.extend(below(Some(row.id), depth + 1));
    }
    lines
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::ObjectId;

    use super::super::jobs::tests::task;
    use super::*;

    fn id(id: u8) -> TaskId {
        TaskId::from_bytes([id; 16])
    }

    /// A driver's task, one that it started, one that got what both made, an actor and two calls.
    fn tasks() -> Vec<TaskRow> {
        let actor = Some(id(4).actor());
        vec![
            task(1),
            TaskRow {
                parent: Some(id(1)),
                ..task(2)
            },
            TaskRow {
                inputs: [1, 2, 9].map(|it| ObjectId::of(id(it), 0)).into(),
                ..task(3)
            },
            TaskRow {
                actor,
                submitted_us: 7,
                ..task(4)
            },
            TaskRow {
                actor,
                submitted_us: 6,
                ..task(6)
            },
            TaskRow {
                actor,
                submitted_us: 5,
                ..task(5)
            },
        ]
    }

    #[test]
    fn graphviz_gets_strings_that_it_can_read() {
        let mut tasks = tasks();
        tasks[0].name = "a \"b\"\\".into();
        let text = dot("job", &tasks, &edges(&tasks));
        assert!(text.starts_with("digraph \"job\" {\n"), "{text}");
        assert!(
            text.contains("label=\"a \\\"b\\\"\\\\\\n01010101 at n1\\nready\""),
            "{text}"
        );
        assert_eq!(text.matches(" -> ").count(), 5);
        assert_eq!(text.matches("style=dashed").count(), 2);
    }

    #[test]
    fn the_tree_shows_who_started_whom() {
        let lines = tree(&tasks());
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "01010101 f ready at n1");
        assert_eq!(lines[1], "  02020202 f ready at n1");
        assert_eq!(lines[2], "03030303 f ready at n1");
    }
}
