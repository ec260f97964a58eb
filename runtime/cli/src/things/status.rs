//! `status`: the node that is asked, or its whole cluster, on one screen.
//!
//! Owns what is on it. Must not: know where numbers come from.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use wasmrun_client::blocking::Client;
use wasmrun_client::rows::{self as state, Object};
use wasmrun_client::wire::{
    Amounts, DueRow, List, Listed, MemberRow, NodeStatus, Rows, TenantRow, What,
};
use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::units;

use super::{rows, warn_of_silent};
use crate::args::{Global, Output};
use crate::fail::{CommandResult, Failure};
use crate::printer::{Column, Printer, table};
use crate::remote;

/// How many tenants are shown: those that use most.
const MOST_TENANTS: usize = 10;

/// How often `--watch` shows it.
const AGAIN: Duration = Duration::from_secs(1);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// `status`, once or until Ctrl-C.
pub fn status(
    is_scheduler: bool,
    is_watched: bool,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let show = || match is_scheduler {
        true => scheduler(&client, printer),
        false => screen(&client, printer),
    };
    if !is_watched {
        return show();
    }
    if printer.output != Output::Table || !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "--watch is for a terminal: leave it out, and ask again when you want to know",
        ));
    }
    loop {
        printer.result(CLEAR)?;
        show()?;
        std::thread::sleep(AGAIN);
    }
}

fn screen(client: &Client, printer: &Printer) -> CommandResult {
    let own = client.wait(client.status()).map_err(remote::failed)?;
    let nodes = list(client, What::Nodes)?;
    let members = list(client, What::Members)?;
    let tenants = list(client, What::Tenants)?;
    let due = client.wait(client.due(&List::of(What::Tenants)));
    let due = due.map_err(remote::failed)?;
    let (Rows::Nodes(statuses), Rows::Members(members), Rows::Tenants(tenant_rows)) =
        (&nodes.rows, &members.rows, &tenants.rows)
    else {
        return Err(remote::unexpected("nodes or tenants"));
    };
    if printer.output == Output::Json {
        let mut object = Map::new();
        own.add_to(&mut object);
        nodes.silent.add_to(&mut object);
        let mut object = Json::Object(object);
        object["version"] = state::VERSION.into();
        object["tenants"] = state::tenants(tenant_rows, &due);
        object["nodes"] = statuses.iter().map(Object::object).collect();
        return printer.json(&object);
    }
    let is_alone = members.iter().all(|member| member.is_own);
    match is_alone {
        true => printer.result(node_text(&own))?,
        false => printer.result(cluster_text(&own, statuses, members))?,
    }
    if !tenant_rows.is_empty() {
        printer.result(format_args!("\n{}", tenants_text(tenant_rows, &due)))?;
    }
    warn_of_silent(&nodes.silent, printer);
    Ok(())
}

/// `status --scheduler`.
fn scheduler(client: &Client, printer: &Printer) -> CommandResult {
    let state = client.wait(client.scheduler_state());
    let state = state.map_err(remote::failed)?;
    match printer.output {
        Output::Json => printer.json(&serde_json::json!({ "version": 1, "scheduler": state })),
        _ => printer.result(state.trim_end()),
    }
}

fn list(client: &Client, what: What) -> Result<Listed, Failure> {
    client
        .wait(client.list(List::of(what)))
        .map_err(remote::failed)
}

/// What of an amount is not free.
fn used(total: &Amounts, free: &Amounts, resource: &ResourceName) -> Amount {
    let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or_default();
    Amount::from_steps(of(total).steps().saturating_sub(of(free).steps()))
}

/// `used/total`, as people write it.
fn part(total: &Amounts, free: &Amounts, resource: &ResourceName) -> String {
    match total.get(resource) {
        Some(all) => {
            let used = used(total, free, resource);
            format!(
                "{}/{}",
                used.display_for(resource),
                all.display_for(resource)
            )
        }
        None => "-".to_owned(),
    }
}

fn node_text(status: &NodeStatus) -> String {
    let NodeStatus {
        name,
        version,
        process,
        up_ms,
        store,
        ..
    } = status;
    let state = if status.is_draining { ", stopping" } else { "" };
    let up = units::duration(Duration::from_secs(up_ms / 1000));
    let mut text = format!("node {name}: wasmrun {version}, process {process}, up {up}{state}\n\n");
    let resources = status.total.iter().map(|(resource, total)| {
        let used = used(&status.total, &status.available, resource);
        vec![
            resource.to_string(),
            used.display_for(resource).to_string(),
            total.display_for(resource).to_string(),
        ]
    });
    let resources: Vec<Vec<String>> = resources.collect();
    let header = [
        Column::text("resource"),
        Column::number("used"),
        Column::number("total"),
    ];
    text.push_str(&table(&header, &resources));
    let tasks = status.tasks.iter().filter(|(_, count)| *count > 0);
    let tasks: Vec<String> = tasks
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let tasks = if tasks.is_empty() {
        "none yet".to_owned()
    } else {
        tasks.join(", ")
    };
    let (used, capacity) = (
        units::bytes(store.used_bytes),
        units::bytes(store.capacity_bytes),
    );
    let (objects, spilled) = (store.objects, units::bytes(store.spilled_bytes));
    let pinned = units::bytes(store.pinned_bytes);
    text.push_str(&format!(
        "\n\ntasks    {tasks}\nobjects  {objects} in {used} of {capacity}, {pinned} of that being read; \
         {spilled} on disk"
    ));
    text
}

/// A line for each node, and one for all of them.
fn cluster_text(own: &NodeStatus, statuses: &[NodeStatus], members: &[MemberRow]) -> String {
    let living: Vec<&MemberRow> = members.iter().filter(|it| it.state != "dead").collect();
    let mut resources: Vec<&ResourceName> = Vec::new();
    for resource in living.iter().flat_map(|member| member.total.keys()) {
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    resources.sort();
    let amounts = resources.iter().map(|it| it.as_str());
    let amounts = amounts.chain(["running", "queued", "objects", "in memory", "on disk"]);
    let mut header = ["node", "state"].map(Column::text).to_vec();
    header.extend(amounts.map(Column::number));
    let by_name: BTreeMap<&str, &NodeStatus> =
        statuses.iter().map(|it| (it.name.as_str(), it)).collect();
    let mut lines = Vec::new();
    let (mut totals, mut frees) = (Amounts::new(), Amounts::new());
    for member in &living {
        let status = by_name.get(member.name.as_str());
        let free = status.map_or(&member.available, |status| &status.available);
        let mut line = vec![member.name.clone(), member.state.clone()];
        for resource in &resources {
            line.push(part(&member.total, free, resource));
            add(&mut totals, resource, member.total.get(*resource));
            add(&mut frees, resource, free.get(*resource));
        }
        line.extend(status.map_or_else(|| vec!["-".to_owned(); 5], |status| load(status)));
        lines.push(line);
    }
    let mut all = vec!["all".to_owned(), String::new()];
    all.extend(
        resources
            .iter()
            .map(|resource| part(&totals, &frees, resource)),
    );
    all.extend(load_of_all(statuses));
    lines.push(all);
    let (count, dead) = (living.len(), members.len() - living.len());
    let gone = match dead {
        0 => String::new(),
        dead => format!(", {dead} gone"),
    };
    format!(
        "cluster of {count} nodes{gone}, asked at {}: wasmrun {}\n\n{}",
        own.name,
        own.version,
        table(&header, &lines)
    )
}

fn add(sums: &mut Amounts, resource: &ResourceName, more: Option<&Amount>) {
    let sum = sums.entry(resource.clone()).or_default();
    let more = more.copied().unwrap_or_default();
    *sum = Amount::from_steps(sum.steps().saturating_add(more.steps()));
}

/// How many tasks are in states where a node has work with them, and in those where they wait there.
fn tasks(status: &NodeStatus) -> (u64, u64) {
    let count = |states: &[&str]| {
        let of_them = status
            .tasks
            .iter()
            .filter(|(state, _)| states.contains(&state.as_str()));
        of_them.map(|(_, count)| count).sum()
    };
    let running = count(&["running", "dispatching", "blocked"]);
    // Those that are with another node are queued or run there.
    (
        running,
        count(&["ready", "waiting", "waiting-for-actor", "infeasible"]),
    )
}

/// The cells of what a node has to do.
fn load(status: &NodeStatus) -> Vec<String> {
    load_of_all(std::slice::from_ref(status))
}

fn load_of_all(statuses: &[NodeStatus]) -> Vec<String> {
    let (mut running, mut queued, mut objects) = (0, 0, 0);
    let (mut used, mut capacity, mut spilled) = (0_u64, 0_u64, 0_u64);
    for status in statuses {
        let (more_running, more_queued) = tasks(status);
        running += more_running;
        queued += more_queued;
        objects += status.store.objects;
        used = used.saturating_add(status.store.used_bytes);
        capacity = capacity.saturating_add(status.store.capacity_bytes);
        spilled = spilled.saturating_add(status.store.spilled_bytes);
    }
    vec![
        running.to_string(),
        queued.to_string(),
        objects.to_string(),
        format!("{}/{}", units::bytes(used), units::bytes(capacity)),
        units::bytes(spilled),
    ]
}

/// Each tenant once, with what it holds at all nodes; and what they are due, where that is not the default.
fn tenants_text(tenants: &[TenantRow], due: &[DueRow]) -> String {
    let mut sums: BTreeMap<&TenantName, (String, Amounts, u64)> = BTreeMap::new();
    for row in tenants {
        let (share, held, objects) = sums.entry(&row.name).or_default();
        *objects += row.objects_bytes;
        // Decimals with the same number of digits: the longer one is the larger one.
        if (row.share.len(), &row.share) > (share.len(), share) {
            share.clone_from(&row.share);
        }
        for (resource, amount) in &row.used {
            add(held, resource, Some(amount));
        }
    }
    let due: BTreeMap<&TenantName, &DueRow> = due.iter().map(|it| (&it.name, it)).collect();
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, (one, ..)), (_, (other, ..))| (other.len(), other).cmp(&(one.len(), one)));
    let more = sums.len().saturating_sub(MOST_TENANTS);
    sums.truncate(MOST_TENANTS);
    let is_default = |it: &DueRow| it.weight == Weight::ONE && it.min.is_empty();
    let is_plain = sums
        .iter()
        .filter_map(|(name, _)| due.get(name))
        .all(|due| is_default(due));
    let lines = sums.into_iter().map(|(name, (share, mut held, objects))| {
        held.retain(|_, amount| !amount.is_zero());
        let amounts = (!held.is_empty()).then(|| rows::amounts(&held));
        let objects = (objects > 0).then(|| format!("objects {}", units::bytes(objects)));
        let used: Vec<String> = amounts.into_iter().chain(objects).collect();
        let mut line = vec![name.to_string(), share, used.join(", ")];
        if !is_plain {
            let due = due.get(name);
            let cells = due.map(|due| [due.weight.to_string(), rows::minimum(&due.min)]);
            line.extend(cells.unwrap_or_else(|| ["-"; 2].map(ToOwned::to_owned)));
        }
        line
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let header = [
        Column::text("tenant"),
        Column::number("share"),
        Column::text("used"),
        Column::number("weight"),
        Column::text("min"),
    ];
    let shown = if is_plain { 3 } else { header.len() };
    let mut text = table(&header[..shown], &lines);
    if more > 0 {
        text.push_str(&format!("\nand {more} more; see `wasmrun tenant list`"));
    }
    text
}
