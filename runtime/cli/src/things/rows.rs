//! Rows of lists as text and JSON, side by side: both have the same columns.

use serde_json::{Value as Json, json};
use wasmrun_client::wire::{Amounts, NodeStatus, Rows};
use wasmrun_model::units;

/// A cell as people and as programs see it.
type Cell = (String, Json);

fn text(text: impl ToString) -> Cell {
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

/// The list's name, its columns and its rows.
pub fn of(rows: &Rows) -> (&'static str, Vec<&'static str>, Vec<Vec<Cell>>) {
    match rows {
        Rows::Tasks(rows) => {
            let header = vec!["id", "name", "state", "tenant", "job", "detached", "age_ms"];
            let cells = rows.iter().map(|row| {
                vec![
                    text(row.id),
                    text(&row.name),
                    text(&row.state),
                    text(&row.tenant),
                    text(row.job),
                    flag(row.is_detached),
                    age(row.age_ms),
                ]
            });
            ("tasks", header, cells.collect())
        }
        Rows::Actors(rows) => {
            let header = vec!["id", "name", "class", "state", "tenant"];
            let cells = rows.iter().map(|row| {
                vec![
                    text(row.id),
                    maybe(row.name.as_deref()),
                    text(&row.class),
                    text(&row.state),
                    text(&row.tenant),
                ]
            });
            ("actors", header, cells.collect())
        }
        Rows::Objects(rows) => {
            let header = vec!["id", "size_bytes", "place", "tenant", "kept"];
            let cells = rows.iter().map(|row| {
                vec![
                    text(row.id),
                    bytes(row.size_bytes),
                    text(&row.place),
                    text(&row.tenant),
                    flag(row.is_kept),
                ]
            });
            ("objects", header, cells.collect())
        }
        Rows::Jobs(rows) => {
            let cells = rows.iter().map(|row| vec![text(row.id), number(row.tasks)]);
            ("jobs", vec!["id", "tasks"], cells.collect())
        }
        Rows::Modules(rows) => {
            let cells = rows.iter().map(|row| {
                let exports = number(row.exports.into());
                vec![text(row.digest), exports, flag(row.has_program)]
            });
            (
                "modules",
                vec!["digest", "exports", "program"],
                cells.collect(),
            )
        }
        Rows::Nodes(rows) => {
            let header = vec!["name", "process", "up_ms", "sessions", "total", "available"];
            let cells = rows.iter().map(|row| {
                vec![
                    text(&row.name),
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
                    text(&row.name),
                    text(row.id),
                    text(&row.state),
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
                    text(&row.id),
                    text(&row.state),
                    flag(row.is_reusable),
                    number(row.joined.into()),
                    age(row.left_ms),
                ]
            });
            ("tokens", header, cells.collect())
        }
        Rows::Tenants(rows) => {
            let header = vec![
                "name",
                "share",
                "used",
                "submitted",
                "finished",
                "failed",
                "cancelled",
            ];
            let cells = rows.iter().map(|row| {
                vec![
                    text(&row.name),
                    text(&row.share),
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
