//! Rows of lists as text and JSON, side by side: both have the same columns.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use wasmrun_client::wire::{
    ActorRow, Amounts, ClientRow, GroupBundle, GroupRow, JobRow, MemberRow, ModuleRow, NodeStatus,
    ObjectRow, Rows, ShareRow, Silent, TaskRow, TenantRow, TokenRow,
};
use wasmrun_model::fairness::TenantName;
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
    (units::age(ms), ms.into())
}

fn maybe_age(ms: Option<u64>) -> Cell {
    match ms {
        Some(ms) => age(ms),
        None => maybe(None),
    }
}

fn maybe(text: Option<&str>) -> Cell {
    (text.unwrap_or("-").to_owned(), text.into())
}

pub fn amounts(amounts: &Amounts) -> Cell {
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

/// What a list shows of one thing.
trait Row {
    /// The list's name.
    const LIST: &'static str;
    /// Its columns.
    const HEADER: &'static [&'static str];

    /// One for each column.
    fn cells(&self) -> Vec<Cell>;
}

/// A [`Row`]: its list, then each column with its cell.
macro_rules! columns {
    ($list:literal, |$row:ident: $type:ty| { $($column:literal: $cell:expr,)* }) => {
        impl Row for $type {
            const LIST: &'static str = $list;
            const HEADER: &'static [&'static str] = &[$($column),*];

            fn cells(&self) -> Vec<Cell> {
                let $row = self;
                vec![$($cell),*]
            }
        }
    };
}

columns!("tasks", |row: TaskRow| {
    "id": cell(row.id),
    "name": cell(&row.name),
    "state": cell(&row.state),
    "node": cell(&row.node),
    "tenant": cell(&row.tenant),
    "job": cell(row.job),
    "detached": flag(row.is_detached),
    "age_ms": age(row.age_ms),
});

columns!("actors", |row: ActorRow| {
    "id": cell(row.id),
    "name": maybe(row.name.as_deref()),
    "class": cell(&row.class),
    "state": cell(&row.state),
    "node": cell(&row.node),
    "tenant": cell(&row.tenant),
});

columns!("objects", |row: ObjectRow| {
    "id": cell(row.id),
    "size_bytes": bytes(row.size_bytes),
    "place": cell(&row.place),
    "node": cell(&row.node),
    "tenant": cell(&row.tenant),
    "kept": flag(row.is_kept),
});

columns!("jobs", |row: JobRow| {
    "id": cell(row.id),
    "node": cell(&row.node),
    "tasks": number(row.tasks),
});

columns!("modules", |row: ModuleRow| {
    "digest": cell(row.digest),
    "node": cell(&row.node),
    "exports": number(row.exports.into()),
    "program": flag(row.has_program),
});

columns!("nodes", |row: NodeStatus| {
    "name": cell(&row.name),
    "process": number(row.process.into()),
    "up_ms": age(row.up_ms),
    "sessions": number(row.sessions),
    "total": amounts(&row.total),
    "available": amounts(&row.available),
});

columns!("nodes", |row: MemberRow| {
    "name": cell(&row.name),
    "id": cell(row.id),
    "state": cell(&row.state),
    "incarnation": number(row.incarnation),
    "address": maybe(row.address.map(|address| address.to_string()).as_deref()),
    "head": flag(row.is_head),
    "total": amounts(&row.total),
    "available": amounts(&row.available),
    "since_ms": age(row.since_ms),
});

columns!("clients", |row: ClientRow| {
    "id": cell(&row.id),
    "name": maybe(row.name.as_deref()),
    "state": cell(&row.state),
    "age_ms": maybe_age(row.age_ms),
    "left_ms": maybe_age(row.left_ms),
});

columns!("tokens", |row: TokenRow| {
    "id": cell(&row.id),
    "kind": cell(&row.kind),
    "state": cell(&row.state),
    "many": flag(row.is_reusable),
    "joined": number(row.joined.into()),
    "left_ms": age(row.left_ms),
});

columns!("groups", |row: GroupRow| {
    "id": cell(row.id),
    "name": maybe(row.name.as_deref()),
    "kind": cell(row.kind),
    "state": cell(&row.state),
    "bundles": bundles(&row.bundles),
    "node": cell(&row.node),
    "tenant": cell(&row.tenant),
    "detached": flag(row.is_detached),
    "age_ms": age(row.age_ms),
    "why": maybe(row.why.as_deref()),
});

/// A tenant at one node, and what it is due at all of them.
struct TenantAt<'a> {
    row: &'a TenantRow,
    due: Option<&'a ShareRow>,
}

columns!("tenants", |it: TenantAt<'_>| {
    "name": cell(&it.row.name),
    "node": cell(&it.row.node),
    // Unknown of those beyond the longest list, which is not the default.
    "weight": it.due.map_or_else(|| maybe(None), |due| cell(due.weight)),
    "min": it.due.map_or_else(|| maybe(None), |due| minimum(&due.min)),
    "share": cell(&it.row.share),
    "used": amounts(&it.row.used),
    "submitted": number(it.row.submitted),
    "finished": number(it.row.finished),
    "failed": number(it.row.failed),
    "cancelled": number(it.row.cancelled),
});

columns!("tenants", |row: ShareRow| {
    "name": cell(&row.name),
    "weight": cell(row.weight),
    "min": minimum(&row.min),
    "share": cell(&row.share),
    "used": amounts(&row.used),
});

/// What is guaranteed.
pub fn minimum(min: &Amounts) -> Cell {
    match min.is_empty() {
        true => ("-".to_owned(), amounts_json(min)),
        false => amounts(min),
    }
}

type List = (&'static str, &'static [&'static str], Vec<Vec<Cell>>);

/// As [`of`], of tenants at nodes, with what they are due.
pub fn of_tenants(rows: &[TenantRow], shares: &[ShareRow]) -> List {
    let due: BTreeMap<&TenantName, &ShareRow> = shares.iter().map(|it| (&it.name, it)).collect();
    let at = |row| TenantAt {
        row,
        due: due.get(&row.name).copied(),
    };
    listed(&rows.iter().map(at).collect::<Vec<_>>())
}

fn listed<R: Row>(rows: &[R]) -> List {
    (R::LIST, R::HEADER, rows.iter().map(R::cells).collect())
}

/// The list's name, its columns and its rows.
pub fn of(rows: &Rows) -> List {
    match rows {
        Rows::Tasks(rows) => listed(rows),
        Rows::Actors(rows) => listed(rows),
        Rows::Objects(rows) => listed(rows),
        Rows::Jobs(rows) => listed(rows),
        Rows::Modules(rows) => listed(rows),
        Rows::Nodes(rows) => listed(rows),
        Rows::Members(rows) => listed(rows),
        Rows::Tokens(rows) => listed(rows),
        Rows::Clients(rows) => listed(rows),
        Rows::Groups(rows) => listed(rows),
        Rows::Tenants(rows) => of_tenants(rows, &[]),
        Rows::Shares(rows) => listed(rows),
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
