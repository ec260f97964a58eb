//! What a running node and its cluster have: `list`, `get`, `explain`, `cancel`, `logs`.

pub mod actors;
pub mod audit;
pub mod clients;
pub mod ends;
mod failures;
mod follow;
mod get;
mod graph;
pub mod groups;
pub mod jobs;
pub mod objects;
mod rerun;
mod results;
mod rows;
pub mod scheduling;
pub mod secrets;
pub mod services;
mod status;
pub mod tenants;
pub mod timeline;
pub mod top;
mod wait;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value as Json, json};
use wasmrun_client::Described;
use wasmrun_client::wire::{List, Output as Said, Rows, Silent, TaskRow, What};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;

use self::rows::Table;
use crate::args::{Global, Id, ListThings, Logs, Output, Things};
use crate::fail::CommandResult;
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;

pub use self::get::get;
pub use self::status::status;

/// Waits between two looks at something: ever longer, up to a second.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(Duration::from_millis(50))
    }
}

impl Backoff {
    /// The longest that is waited at a time.
    const MOST: Duration = Duration::from_secs(1);

    /// Waits, `most` if that is shorter.
    fn sleep(&mut self, most: Option<Duration>) {
        std::thread::sleep(most.map_or(self.0, |most| most.min(self.0)));
        self.0 = (self.0 * 2).min(Self::MOST);
    }
}

/// `list`.
pub fn list(list: &ListThings, global: &Global, printer: &Printer) -> CommandResult {
    let what = match list.what {
        Things::Tasks => What::Tasks,
        Things::Attempts => What::Attempts,
        Things::Actors => What::Actors,
        Things::Objects => What::Objects,
        Things::Jobs => What::Jobs,
        Things::Modules => What::Modules,
        Things::Nodes => What::Members,
        Things::Tenants => What::Tenants,
        Things::Groups => What::Groups,
        Things::Services => What::Services,
    };
    let wanted = List {
        filters: list.options.filters(),
        ..List::of(what)
    };
    show_most(wanted, list.options.most(), global, printer)
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
    let list = List {
        filters,
        ..List::of(what)
    };
    show_most(list, None, global, printer)
}

/// Shows `most` rows of a list; one page without a number.
fn show_most(list: List, most: Option<usize>, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let what = list.what;
    let due = client.wait(client.due(&list)).map_err(remote::failed)?;
    let listed = client.wait(client.list_pages(list, most.unwrap_or(Rows::MAX)));
    let listed = listed.map_err(remote::failed)?;
    let object = wasmrun_client::rows::list(what, &listed, &due);
    let table = Table::of(what, &object);
    match printer.output {
        Output::Json => printer.json(&object)?,
        _ => printer.result(table.text(printer.width()))?,
    }
    warn_of_silent(&listed.silent, printer);
    if most.is_none() && table.rows.len() >= Rows::MAX {
        printer.warn(format_args!(
            "only {} are shown; use --all, --limit N or -f FIELD=VALUE",
            Rows::MAX
        ));
    }
    Ok(())
}

/// Says what is missing in an answer.
pub fn warn_of_silent(silent: &[Silent], printer: &Printer) {
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
    let is_json = printer.output == Output::Json;
    let what = match is_json {
        true => None,
        false => ends::described(&client, &id.id, printer),
    };
    client.wait(client.cancel(&id.id)).map_err(remote::failed)?;
    if is_json {
        return printer.json(&json!({ "version": 1, "cancelled": true }));
    }
    printer.note(ends::ended(what.as_ref(), &id.id));
    Ok(())
}

/// `logs`: to standard output and standard error, as it was written; or as lines.
pub fn logs(logs: &Logs, global: &Global, printer: &Printer) -> CommandResult {
    let Logs { id, options } = logs;
    let client = remote::connect(global, &id.tenant)?;
    if options.follow || options.grep.is_some() {
        let named = client.wait(client.describe(&id.id));
        return follow::lines(&client, named.map_err(remote::failed)?, options, printer);
    }
    let outputs = client.wait(client.logs(&id.id)).map_err(remote::failed)?;
    // What wrote it may be forgotten by now.
    let described = client.wait(client.describe(&id.id)).ok();
    let failure = described.and_then(|it| failure(&it));
    if printer.output == Output::Json {
        return printer.json(&logs_json(&outputs, failure));
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

/// Output as JSON: all of it, and that of each attempt.
fn logs_json(outputs: &[Said], failure: Option<String>) -> Json {
    let of = |attempt: Option<u32>, is_stderr: bool| {
        let is_meant = |it: &&Said| {
            it.is_stderr == is_stderr && attempt.is_none_or(|attempt| it.attempt == attempt)
        };
        let parts = outputs.iter().filter(is_meant);
        let bytes: Vec<u8> = parts.flat_map(|it| it.bytes.0.iter().copied()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let attempts: BTreeSet<u32> = outputs.iter().map(|it| it.attempt).collect();
    let attempts = attempts.into_iter().map(|attempt| {
        let (stdout, stderr) = (of(Some(attempt), false), of(Some(attempt), true));
        json!({ "attempt": attempt, "stdout": stdout, "stderr": stderr })
    });
    json!({
        "version": 1, "stdout": of(None, false), "stderr": of(None, true),
        "attempts": attempts.collect::<Json>(), "failure": failure,
    })
}

/// How a task or an actor has failed, if it has.
fn failure(of: &Described) -> Option<String> {
    match of {
        Described::Task(task) => {
            let error = TaskError::from(task.error.clone()?);
            let is_cancelled = error == TaskError::Cancelled;
            let TaskRow { id, name, node, .. } = &task.row;
            (!is_cancelled)
                .then(|| format!("task {id} ({name}) has failed at node {node}: {error}"))
        }
        Described::Actor(actor) if actor.row.state == "failed" => {
            let why = actor.explanation.as_deref().unwrap_or_default();
            Some(format!("actor {} has failed: {why}", actor.row.id))
        }
        Described::Actor(_) | Described::Job(_) | Described::Object(_) => None,
    }
}
