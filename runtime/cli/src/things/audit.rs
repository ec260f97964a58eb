//! `audit`: who has changed what, and whether that was tampered with.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use serde_json::{Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::rows;
use wasmrun_client::wire::{AuditRow, List, Listed, Rows, What};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::units;
use wasmrun_node::AuditCheck;

use super::rows::Table;
use super::warn_of_silent;
use crate::args::{Audit, AuditCommand, AuditOptions, Global, Output};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::remote;

/// How many lines are shown if nobody says otherwise.
const MOST: usize = 1000;
/// How often is looked for more.
const LOOK: Duration = Duration::from_secs(1);

/// `audit`.
pub fn audit(audit: &Audit, global: &Global, printer: &Printer) -> CommandResult {
    match &audit.command {
        Some(AuditCommand::Verify { dir }) => verify(dir, printer),
        None => show(&audit.options, global, printer),
    }
}

fn show(options: &AuditOptions, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let list = wanted(options);
    let most = options.limit.map_or(MOST, |limit| limit as usize);
    let listed = newest(&client, &list, since_us(options), most)?;
    if options.follow {
        return follow(&client, list, listed, printer);
    }
    let object = rows::list(What::Audit, &listed, &[]);
    match printer.output {
        Output::Json => printer.json(&object)?,
        _ => printer.result(Table::of(What::Audit, &object).text(printer.width()))?,
    }
    warn_of_silent(&listed.silent, printer);
    if options.limit.is_none() && lines(listed).len() >= MOST {
        printer.warn(format_args!(
            "only {MOST} are shown; use --limit N or --since"
        ));
    }
    Ok(())
}

/// What is asked for.
fn wanted(options: &AuditOptions) -> List {
    let named = [
        ("who", options.who.clone()),
        ("tenant", options.tenant.as_ref().map(ToString::to_string)),
        ("action", options.action.clone()),
        ("job", options.job.clone()),
        ("outcome", options.outcome.clone()),
    ];
    let named = named.into_iter();
    let named = named.filter_map(|(field, value)| Some((field.to_owned(), value?)));
    let others = options.filter.iter();
    let others = others.map(|it| (it.0.clone(), it.1.clone()));
    List {
        filters: named.chain(others).collect(),
        ..List::of(What::Audit)
    }
}

/// From when on, in microseconds since 1970.
fn since_us(options: &AuditOptions) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = options
        .since
        .map(|it| now.unwrap_or_default().saturating_sub(it));
    since.map_or(0, units::us)
}

fn lines(listed: Listed) -> Vec<AuditRow> {
    match listed.rows {
        Rows::Audit(rows) => rows,
        _ => Vec::new(),
    }
}

/// The last lines, the last one first: page after page, as long as they are new enough.
fn newest(client: &Client, list: &List, since_us: u64, most: usize) -> Result<Listed, Failure> {
    let (mut list, mut all, mut silent) = (list.clone(), Vec::new(), Vec::new());
    let next = loop {
        let left = most - all.len();
        list.limit = u32::try_from(left.min(Rows::MAX)).unwrap_or(0);
        let mut page = client
            .wait(client.list(list.clone()))
            .map_err(remote::failed)?;
        let next = page.next.take();
        silent.append(&mut page.silent);
        let more = lines(page);
        let is_old = more.last().is_some_and(|row| row.time_us < since_us);
        all.extend(more.into_iter().filter(|row| row.time_us >= since_us));
        if is_old || next.is_none() || next == list.after || all.len() >= most {
            break next.filter(|_| !is_old);
        }
        list.after = next;
    };
    silent.dedup();
    Ok(Listed {
        rows: Rows::Audit(all),
        next,
        silent,
    })
}

/// Prints what there is and what comes, the first one first.
fn follow(client: &Client, list: List, first: Listed, printer: &Printer) -> CommandResult {
    let mut said: BTreeMap<String, u64> = BTreeMap::new();
    warn_of_silent(&first.silent, printer);
    let mut more = lines(first);
    loop {
        // A line of one node may come after a later one of another.
        more.retain(|row| said.get(&row.node).is_none_or(|last| row.sequence > *last));
        more.reverse();
        for row in &more {
            said.insert(row.node.clone(), row.sequence);
        }
        print_lines(more, printer)?;
        std::thread::sleep(LOOK);
        more = lines(
            client
                .wait(client.list(list.clone()))
                .map_err(remote::failed)?,
        );
    }
}

fn print_lines(lines: Vec<AuditRow>, printer: &Printer) -> CommandResult {
    let listed = Listed {
        rows: Rows::Audit(lines),
        next: None,
        silent: Vec::new(),
    };
    let object = rows::list(What::Audit, &listed, &[]);
    let table = Table::of(What::Audit, &object);
    match printer.output {
        Output::Json => table.rows.iter().try_for_each(|row| printer.json_line(row)),
        _ => {
            let mut lines = table.lines().into_iter();
            lines.try_for_each(|cells| printer.result(cells.join("  ").trim_end()))
        }
    }
}

/// `audit verify`.
fn verify(dir: &Path, printer: &Printer) -> CommandResult {
    let checked = wasmrun_node::verify_audit(dir);
    let checked = checked.with_context(|| format!("cannot read {}", dir.display()))?;
    if checked.is_empty() {
        return Err(Failure::usage(format!(
            "there is no audit in {}: give --audit-dir of a node, or audit in its --state-dir",
            dir.display()
        )));
    }
    match printer.output {
        Output::Json => {
            let nodes: Json = checked.iter().map(object).collect();
            printer.json(&json!({ "version": 1, "nodes": nodes }))?;
        }
        _ => checked
            .iter()
            .try_for_each(|node| printer.result(text(node)))?,
    }
    let broken = checked.iter().filter(|it| !it.breaks.is_empty());
    let broken: Vec<&str> = broken.map(|it| it.node.as_str()).collect();
    match broken.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::TaskFailed,
            anyhow!(
                "the audit of {} is not as it was written: compare it with a copy elsewhere",
                broken.join(", ")
            ),
        )),
    }
}

fn object(checked: &AuditCheck) -> Json {
    let breaks = checked.breaks.iter();
    let breaks = breaks.map(|it| json!({ "file": it.file, "line": it.line, "why": it.why }));
    json!({
        "node": checked.node, "first": checked.first, "last": checked.last, "lines": checked.lines,
        "missed": checked.missed, "hash": checked.hash, "breaks": breaks.collect::<Json>(),
    })
}

fn text(checked: &AuditCheck) -> String {
    let AuditCheck {
        node, first, last, ..
    } = checked;
    let mut text = match checked.breaks.is_empty() {
        true => format!("node {node}: lines {first} to {last} are as they were written"),
        false => format!("node {node}: lines {first} to {last} are NOT as they were written"),
    };
    if checked.missed > 0 {
        text.push_str(&format!("; {} more could not be written", checked.missed));
    }
    text.push_str(&format!("; the last one has the hash {}", checked.hash));
    for it in &checked.breaks {
        text.push_str(&format!(
            "\n  {}:{}: {}",
            it.file.display(),
            it.line,
            it.why
        ));
    }
    text
}
