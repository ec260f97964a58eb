//! What a running node and its cluster have: `list`, `get`, `explain`, `cancel`, `logs`.

pub mod actors;
pub mod clients;
mod get;
pub mod groups;
pub mod objects;
mod rows;
pub mod scheduling;
mod status;
pub mod tenants;

use std::io::Write;

use serde_json::json;
use wasmrun_client::Described;
use wasmrun_client::wire::{List, Listed, Rows, Silent, What};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;

use crate::args::{Global, Id, ListThings, Output, Things};
use crate::fail::CommandResult;
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;

pub use self::get::get;
pub use self::status::{scheduler, status};

/// `list`.
pub fn list(list: &ListThings, global: &Global, printer: &Printer) -> CommandResult {
    let what = match list.what {
        Things::Tasks => What::Tasks,
        Things::Actors => What::Actors,
        Things::Objects => What::Objects,
        Things::Jobs => What::Jobs,
        Things::Modules => What::Modules,
        Things::Nodes => What::Members,
        Things::Tenants => What::Tenants,
        Things::Groups => What::Groups,
    };
    let filters = list.filter.iter().map(|it| (it.0.clone(), it.1.clone()));
    show(what, filters.collect(), global, printer)
}

/// `node list`.
pub fn nodes(global: &Global, printer: &Printer) -> CommandResult {
    show(What::Members, Vec::new(), global, printer)
}

/// `node token list`.
pub fn tokens(global: &Global, printer: &Printer) -> CommandResult {
    show(What::Tokens, Vec::new(), global, printer)
}

fn show(
    what: What,
    filters: Vec<(String, String)>,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let named = filters.iter().filter(|(field, _)| field == "name");
    let named: Vec<_> = named.cloned().collect();
    let listed = client.wait(client.list(List { what, filters }));
    let Listed { rows, silent } = listed.map_err(remote::failed)?;
    let (name, header, rows) = match &rows {
        Rows::Tenants(rows) => {
            let of_named = List {
                what: What::Shares,
                filters: named,
            };
            let shares = client.wait(client.list(of_named));
            match shares.map_err(remote::failed)?.rows {
                Rows::Shares(shares) => rows::of_tenants(rows, &shares),
                _ => rows::of_tenants(rows, &[]),
            }
        }
        rows => rows::of(rows),
    };
    match printer.output {
        Output::Json => {
            let mut object = json!({ "version": 1, name: rows::json(header, &rows) });
            rows::add_silent(&mut object, &silent);
            printer.json(&object)?;
        }
        _ => printer.result(rows::text(header, &rows))?,
    }
    warn_of_silent(&silent, printer);
    if rows.len() >= Rows::MAX {
        printer.warn(format_args!(
            "only {} are shown; use -f FIELD=VALUE",
            Rows::MAX
        ));
    }
    Ok(())
}

/// Says what is missing in an answer.
fn warn_of_silent(silent: &[Silent], printer: &Printer) {
    for Silent { node, why } in silent {
        printer.warn(format_args!("node {node} did not answer: {why}"));
    }
}

/// `explain`.
pub fn explain(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    let why = client
        .wait(client.explain(&id.id))
        .map_err(remote::failed)?;
    match printer.output {
        Output::Json => printer.json(&json!({ "version": 1, "explanation": why })),
        _ => printer.result(why),
    }
}

/// `cancel`.
pub fn cancel(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    client.wait(client.cancel(&id.id)).map_err(remote::failed)?;
    match printer.output {
        Output::Json => printer.json(&json!({ "version": 1, "cancelled": true })),
        _ => Ok(()),
    }
}

/// `logs`: to standard output and standard error, as it was written.
pub fn logs(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    let outputs = client.wait(client.logs(&id.id)).map_err(remote::failed)?;
    // What wrote it may be forgotten by now.
    let described = client.wait(client.describe(&id.id)).ok();
    let failure = described.and_then(|it| failure(&it));
    if printer.output == Output::Json {
        let of = |is_stderr: bool| {
            let parts = outputs.iter().filter(|it| it.is_stderr == is_stderr);
            let bytes: Vec<u8> = parts.flat_map(|it| it.bytes.0.iter().copied()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        return printer.json(&json!({
            "version": 1, "stdout": of(false), "stderr": of(true), "failure": failure,
        }));
    }
    for output in outputs {
        match output.is_stderr {
            true => written(std::io::stderr().lock().write_all(&output.bytes.0))?,
            false => written(stdio::output().write_all(&output.bytes.0))?,
        }
    }
    if let Some(why) = failure {
        printer.note(why);
    }
    Ok(())
}

/// How a task or an actor has failed, if it has.
fn failure(of: &Described) -> Option<String> {
    match of {
        Described::Task(task) => {
            let error = TaskError::from(task.error.clone()?);
            let is_cancelled = error == TaskError::Cancelled;
            (!is_cancelled).then(|| format!("task {} has failed: {error}", task.row.id))
        }
        Described::Actor(actor) if actor.row.state == "failed" => {
            let why = actor.explanation.as_deref().unwrap_or_default();
            Some(format!("actor {} has failed: {why}", actor.row.id))
        }
        Described::Actor(_) | Described::Job(_) => None,
    }
}
