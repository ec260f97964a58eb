//! Rows of lists as text and JSON, side by side: both have the same columns.

use serde_json::{Value as Json, json};
use wasmrun_client::wire::{Amounts, GroupBundle, NodeStatus, Rows, Silent};
use wasmrun_model::units;

use crate::printer::table;

/// A cell as people and as programs see it.
pub type Cell = (String, Json);

fn cell(text: impl ToString) -> Cell {
    let text = text.to_string();
    (text.clone(), text.into())
}

fn number(number: u64) -> Cell {
    (number.to_string(), number.into())
}

fn flag(flag: bool) -> Cell {
    (if flag { "yes" } else { "no" }.to_owned(), flag.into())
}

fn bytes(bytes: u64) -> Cell {
    (units::bytes(bytes), bytes.into())
}

fn age(ms: u64) -> Cell {
    (units::milliseconds(ms), ms.into())
}

fn maybe(text: Option<&str>) -> Cell {
    (text.unwrap_or("-").to_owned(), text.into())
}

fn amounts(amounts: &Amounts) -> Cell {
    let parts = amounts.iter();
    let shown = parts.map(|(name, amount)| format!("{name} {}", amount.display_for(name)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    (shown, amounts_json(amounts))
}

fn amounts_json(amounts: &Amounts) -> Json {
    let fields = amounts
        .iter()
        .map(|(name, amount)| (name.to_string(), amount.to_string().into()));
    Json::Object(fields.collect())
}

/// Where each bundle is: for people by node, for programs with what it has.
fn bundles(bundles: &[GroupBundle]) -> Cell {
    let nodes = bundles
        .iter()
        .map(|it| it.node.as_deref().unwrap_or("-").to_owned());
    let json = bundles
        .iter()
        .map(|it| json!({ "node": it.node, "resources": amounts_json(&it.amounts) }));
    (nodes.collect::<Vec<_>>().join(","), json.collect())
}

/// The list's name, its columns and its rows.
pub fn of(rows: &Rows) -> (&'static str, Vec<&'static str>, Vec<Vec<Cell>>) {
    match rows {
        Rows::Tasks(rows) => {
            let header = vec![
                "id", "name", "state", "node", "tenant", "job", "detached", "age_ms",
            ];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(row.id),
                    cell(&row.name),
                    cell(&row.state),
                    cell(&row.node),
                    cell(&row.tenant),
                    cell(row.job),
                    flag(row.is_detached),
                    age(row.age_ms),
                ]
            });
            ("tasks", header, cells.collect())
        }
        Rows::Actors(rows) => {
            let header = vec!["id", "name", "class", "state", "node", "tenant"];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(row.id),
                    maybe(row.name.as_deref()),
                    cell(&row.class),
                    cell(&row.state),
                    cell(&row.node),
                    cell(&row.tenant),
                ]
            });
            ("actors", header, cells.collect())
        }
        Rows::Objects(rows) => {
            let header = vec!["id", "size_bytes", "place", "node", "tenant", "kept"];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(row.id),
                    bytes(row.size_bytes),
                    cell(&row.place),
                    cell(&row.node),
                    cell(&row.tenant),
                    flag(row.is_kept),
                ]
            });
            ("objects", header, cells.collect())
        }
        Rows::Jobs(rows) => {
            let cells = rows
                .iter()
                .map(|row| vec![cell(row.id), cell(&row.node), number(row.tasks)]);
            ("jobs", vec!["id", "node", "tasks"], cells.collect())
        }
        Rows::Modules(rows) => {
            let cells = rows.iter().map(|row| {
                let exports = number(row.exports.into());
                vec![
                    cell(row.digest),
                    cell(&row.node),
                    exports,
                    flag(row.has_program),
                ]
            });
            (
                "modules",
                vec!["digest", "node", "exports", "program"],
                cells.collect(),
            )
        }
        Rows::Nodes(rows) => {
            let header = vec!["name", "process", "up_ms", "sessions", "total", "available"];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(&row.name),
                    number(row.process.into()),
                    age(row.up_ms),
                    number(row.sessions),
                    amounts(&row.total),
                    amounts(&row.available),
                ]
            });
            ("nodes", header, cells.collect())
        }
        Rows::Members(rows) => {
            let header = vec![
                "name",
                "id",
                "state",
                "life",
                "address",
                "head",
                "total",
                "available",
                "since_ms",
            ];
            let cells = rows.iter().map(|row| {
                let address = row.address.map(|address| address.to_string());
                vec![
                    cell(&row.name),
                    cell(row.id),
                    cell(&row.state),
                    number(row.life),
                    maybe(address.as_deref()),
                    flag(row.is_head),
                    amounts(&row.total),
                    amounts(&row.available),
                    age(row.since_ms),
                ]
            });
            ("nodes", header, cells.collect())
        }
        Rows::Tokens(rows) => {
            let header = vec!["id", "state", "many", "joined", "left_ms"];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(&row.id),
                    cell(&row.state),
                    flag(row.is_reusable),
                    number(row.joined.into()),
                    age(row.left_ms),
                ]
            });
            ("tokens", header, cells.collect())
        }
        Rows::Groups(rows) => {
            let header = vec![
                "id", "name", "kind", "state", "bundles", "node", "tenant", "detached", "age_ms",
                "why",
            ];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(row.id),
                    maybe(row.name.as_deref()),
                    cell(row.kind),
                    cell(&row.state),
                    bundles(&row.bundles),
                    cell(&row.node),
                    cell(&row.tenant),
                    flag(row.is_detached),
                    age(row.age_ms),
                    maybe(row.why.as_deref()),
                ]
            });
            ("groups", header, cells.collect())
        }
        Rows::Tenants(rows) => {
            let header = vec![
                "name",
                "node",
                "share",
                "used",
                "submitted",
                "finished",
                "failed",
                "cancelled",
            ];
            let cells = rows.iter().map(|row| {
                vec![
                    cell(&row.name),
                    cell(&row.node),
                    cell(&row.share),
                    amounts(&row.used),
                    number(row.submitted),
                    number(row.finished),
                    number(row.failed),
                    number(row.cancelled),
                ]
            });
            ("tenants", header, cells.collect())
        }
    }
}

/// Rows as a table for people, who read units in the cells.
pub fn text(header: &[&'static str], rows: &[Vec<Cell>]) -> String {
    let cells = rows
        .iter()
        .map(|row| row.iter().map(|(text, _)| text.clone()).collect());
    let cells: Vec<Vec<String>> = cells.collect();
    let without_unit =
        |name: &&'static str| name.trim_end_matches("_ms").trim_end_matches("_bytes");
    let header: Vec<&str> = header.iter().map(without_unit).collect();
    table(&header, &cells)
}

/// Rows as JSON: an object each.
pub fn json(header: &[&'static str], rows: &[Vec<Cell>]) -> Json {
    let objects = rows.iter().map(|row| {
        let fields = header.iter().zip(row);
        let fields = fields.map(|(key, (_, value))| ((*key).to_owned(), value.clone()));
        Json::Object(fields.collect())
    });
    objects.collect()
}

/// Which nodes have not answered, where there are such.
pub fn add_silent(object: &mut Json, silent: &[Silent]) {
    if !silent.is_empty() {
        let silent = silent.iter();
        let silent = silent.map(|it| json!({ "node": it.node, "why": it.why }));
        object["silent"] = silent.collect();
    }
}

/// A node as JSON.
pub fn node_json(status: &NodeStatus) -> Json {
    let tasks = status
        .tasks
        .iter()
        .map(|(state, count)| (state.clone(), (*count).into()));
    json!({
        "node": status.name,
        "wasmrun": status.version,
        "process": status.process,
        "up_ms": status.up_ms,
        "stopping": status.is_draining,
        "sessions": status.sessions,
        "total": amounts_json(&status.total),
        "available": amounts_json(&status.available),
        "tasks": Json::Object(tasks.collect()),
        "store": {
            "capacity_bytes": status.store.capacity_bytes,
            "used_bytes": status.store.used_bytes,
            "pinned_bytes": status.store.pinned_bytes,
            "spilled_bytes": status.store.spilled_bytes,
            "objects": status.store.objects,
        },
    })
}
