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

impl Row for TaskRow {
    const LIST: &'static str = "tasks";
    const HEADER: &'static [&'static str] = &[
        "id", "name", "state", "node", "tenant", "job", "detached", "age_ms",
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(self.id),
            cell(&self.name),
            cell(&self.state),
            cell(&self.node),
            cell(&self.tenant),
            cell(self.job),
            flag(self.is_detached),
            age(self.age_ms),
        ]
    }
}

impl Row for ActorRow {
    const LIST: &'static str = "actors";
    const HEADER: &'static [&'static str] = &["id", "name", "class", "state", "node", "tenant"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(self.id),
            maybe(self.name.as_deref()),
            cell(&self.class),
            cell(&self.state),
            cell(&self.node),
            cell(&self.tenant),
        ]
    }
}

impl Row for ObjectRow {
    const LIST: &'static str = "objects";
    const HEADER: &'static [&'static str] =
        &["id", "size_bytes", "place", "node", "tenant", "kept"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(self.id),
            bytes(self.size_bytes),
            cell(&self.place),
            cell(&self.node),
            cell(&self.tenant),
            flag(self.is_kept),
        ]
    }
}

impl Row for JobRow {
    const LIST: &'static str = "jobs";
    const HEADER: &'static [&'static str] = &["id", "node", "tasks"];

    fn cells(&self) -> Vec<Cell> {
        vec![cell(self.id), cell(&self.node), number(self.tasks)]
    }
}

impl Row for ModuleRow {
    const LIST: &'static str = "modules";
    const HEADER: &'static [&'static str] = &["digest", "node", "exports", "program"];

    fn cells(&self) -> Vec<Cell> {
        let exports = number(self.exports.into());
        vec![
            cell(self.digest),
            cell(&self.node),
            exports,
            flag(self.has_program),
        ]
    }
}

impl Row for NodeStatus {
    const LIST: &'static str = "nodes";
    const HEADER: &'static [&'static str] =
        &["name", "process", "up_ms", "sessions", "total", "available"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(&self.name),
            number(self.process.into()),
            age(self.up_ms),
            number(self.sessions),
            amounts(&self.total),
            amounts(&self.available),
        ]
    }
}

impl Row for MemberRow {
    const LIST: &'static str = "nodes";
    const HEADER: &'static [&'static str] = &[
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

    fn cells(&self) -> Vec<Cell> {
        let address = self.address.map(|address| address.to_string());
        vec![
            cell(&self.name),
            cell(self.id),
            cell(&self.state),
            number(self.life),
            maybe(address.as_deref()),
            flag(self.is_head),
            amounts(&self.total),
            amounts(&self.available),
            age(self.since_ms),
        ]
    }
}

impl Row for ClientRow {
    const LIST: &'static str = "clients";
    const HEADER: &'static [&'static str] = &["id", "name", "state", "age_ms", "left_ms"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(&self.id),
            maybe(self.name.as_deref()),
            cell(&self.state),
            maybe_age(self.age_ms),
            maybe_age(self.left_ms),
        ]
    }
}

impl Row for TokenRow {
    const LIST: &'static str = "tokens";
    const HEADER: &'static [&'static str] = &["id", "kind", "state", "many", "joined", "left_ms"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(&self.id),
            cell(&self.kind),
            cell(&self.state),
            flag(self.is_reusable),
            number(self.joined.into()),
            age(self.left_ms),
        ]
    }
}

impl Row for GroupRow {
    const LIST: &'static str = "groups";
    const HEADER: &'static [&'static str] = &[
        "id", "name", "kind", "state", "bundles", "node", "tenant", "detached", "age_ms", "why",
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(self.id),
            maybe(self.name.as_deref()),
            cell(self.kind),
            cell(&self.state),
            bundles(&self.bundles),
            cell(&self.node),
            cell(&self.tenant),
            flag(self.is_detached),
            age(self.age_ms),
            maybe(self.why.as_deref()),
        ]
    }
}

/// A tenant at one node, and what it is due at all of them.
struct TenantAt<'a>(&'a TenantRow, Option<&'a ShareRow>);

impl Row for TenantAt<'_> {
    const LIST: &'static str = "tenants";
    const HEADER: &'static [&'static str] = &[
        "name",
        "node",
        "weight",
        "min",
        "share",
        "used",
        "submitted",
        "finished",
        "failed",
        "cancelled",
    ];

    fn cells(&self) -> Vec<Cell> {
        let Self(row, due) = self;
        vec![
            cell(&row.name),
            cell(&row.node),
            // Unknown of those beyond the longest list, which is not the default.
            due.map_or_else(|| maybe(None), |due| cell(due.weight)),
            due.map_or_else(|| maybe(None), |due| minimum(&due.min)),
            cell(&row.share),
            amounts(&row.used),
            number(row.submitted),
            number(row.finished),
            number(row.failed),
            number(row.cancelled),
        ]
    }
}

impl Row for ShareRow {
    const LIST: &'static str = "tenants";
    const HEADER: &'static [&'static str] = &["name", "weight", "min", "share", "used"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            cell(&self.name),
            cell(self.weight),
            minimum(&self.min),
            cell(&self.share),
            amounts(&self.used),
        ]
    }
}

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
    let rows = rows
        .iter()
        .map(|row| TenantAt(row, due.get(&row.name).copied()));
    listed(&rows.collect::<Vec<_>>())
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
