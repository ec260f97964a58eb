//! `job results`: what the tasks of a job have made, as an attached `submit` would have printed it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{JobRow, RefusalKind, TaskRow};
use wasmrun_client::{Error, GetError, Value as Bytes};
use wasmrun_model::id::ObjectId;
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, EncodedRef, Value, ValueType, json, wave};

use super::jobs::{is_top_level, named, order, tasks_of};
use super::{rows, wait};
use crate::args::Output;
use crate::fail::{CommandResult, Exit, Failure};
use crate::outfile;
use crate::printer::Printer;
use crate::remote;
use crate::submit::file_of;

/// How many tasks an error names.
const NAMED: usize = 20;

/// A result that is kept.
struct Made {
    bytes: Bytes,
    ty: Option<ValueType>,
}

/// `job results`.
pub fn results(
    client: &Client,
    job: &JobRow,
    out: Option<&str>,
    printer: &Printer,
) -> CommandResult {
    let mut tasks = tasks_of(client, job.id, &[])?;
    tasks.retain(is_top_level);
    tasks.sort_by_key(order);
    let is_single = matches!(&tasks[..], [one] if one.array_index.is_none());
    check_out(out, is_single)?;
    let (mut gone, mut live, mut reports) = (Vec::new(), 0_u64, Vec::new());
    for row in &tasks {
        let label = format!("[{}]", rows::label(row));
        let mut report = json!({
            "task_id": row.id.to_string(),
            "name": row.name,
            "array_index": row.array_index,
            "state": row.state,
        });
        match row.state.as_str() {
            "finished" => match made(client, row)? {
                Some(made) => {
                    let before = (!is_single).then_some(&*label);
                    let path = out.map(|out| path_of(out, row));
                    give(&made, before, path.as_deref(), &mut report, printer)?;
                }
                None => gone.push(label),
            },
            "failed" => {
                let why = rows::error(row);
                report["error"] = why.into();
                if printer.output != Output::Json {
                    printer.stderr(format_args!("{label} failed: {why}"));
                }
            }
            "cancelled" => {}
            _ => live += 1,
        }
        reports.push(report);
    }
    if printer.output == Output::Json {
        let id = job.id.to_string();
        printer.json(&json!({ "version": 1, "job": id, "tasks": reports }))?;
    }
    if job.state != "running" {
        wait::outcome(client, job)?;
    }
    match gone.len() {
        0 if job.state == "running" => Err(Failure::new(Exit::TimedOut, unfinished(job, live))),
        0 => Ok(()),
        many => Err(none_of(job, &gone, many)),
    }
}

/// That there may be more results, where so many tasks have not ended.
fn unfinished(job: &JobRow, live: u64) -> anyhow::Error {
    let (id, named) = (job.id.to_string(), named(job));
    let what = match live {
        0 => format!("{named} has not ended"),
        1 => format!("1 task of {named} has not ended"),
        _ => format!("{live} tasks of {named} have not ended"),
    };
    let id = rows::short(&id);
    anyhow::anyhow!("{what}: ask again after `wasmrun job wait {id}`")
}

/// The failure where results of these tasks are not kept.
fn none_of(job: &JobRow, gone: &[String], many: usize) -> Failure {
    let shown = gone[..many.min(NAMED)].join(", ");
    let more = match many.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let id = job.id.to_string();
    Failure::usage(format!(
        "no result is kept of {shown}{more}: only those of functions are kept that were submitted with --detach, until they \
         are deleted or too many other tasks have ended; submit these again with --detach. What programs wrote is in \
         `wasmrun job logs {}`",
        rows::short(&id)
    ))
}

/// Checks that each result has a file of its own, and that it can be written, as far as that is known.
fn check_out(out: Option<&str>, is_single: bool) -> CommandResult {
    let Some(out) = out else {
        return Ok(());
    };
    if Path::new(out).is_dir() {
        return Ok(());
    }
    if !is_single && file_of(out, Some(0)) == file_of(out, Some(1)) {
        return Err(Failure::usage(format!(
            "all results would go to {out}: name a folder that is there, or put $i into the name, in single quotes so that \
             the shell leaves it alone"
        )));
    }
    match is_single {
        true => outfile::check(Path::new(out)),
        false => Ok(()),
    }
}

/// Where a task's result goes.
fn path_of(out: &str, row: &TaskRow) -> PathBuf {
    if Path::new(out).is_dir() {
        let name = row.array_index.map(|index| index.to_string());
        return Path::new(out).join(name.unwrap_or_else(|| row.id.to_string()));
    }
    file_of(out, row.array_index)
}

/// What a task has made, if that is kept.
fn made(client: &Client, row: &TaskRow) -> Result<Option<Made>, Failure> {
    let id = ObjectId::of(row.id, 0).to_string();
    let incoming = match client.wait(client.get_kept(&id, None)) {
        Ok(incoming) => incoming,
        Err(GetError::Request(Error::Refused(why))) if why.kind == RefusalKind::NotFound => {
            return Ok(None);
        }
        // Its task is forgotten, or the node that had it is lost.
        Err(GetError::Failed { .. }) => return Ok(None),
        Err(error) => return Err(remote::no_value(error)),
    };
    let ty = incoming.ty.clone();
    let bytes = client.wait(incoming.value()).map_err(remote::failed)?;
    Ok(Some(Made { bytes, ty }))
}

/// Prints a result, or writes it to its file; for programs it goes into the report.
fn give(
    made: &Made,
    label: Option<&str>,
    path: Option<&Path>,
    report: &mut serde_json::Value,
    printer: &Printer,
) -> CommandResult {
    if made.is_nothing() {
        // As an attached `submit`, which writes no file either.
        return Ok(());
    }
    let value = made.value()?;
    if let Some(path) = path {
        let written = outfile::replace(path, &made.file(value.as_ref())?);
        written.with_context(|| format!("cannot write the result to {}", path.display()))?;
    }
    let Some((ty, value)) = value else {
        return Ok(());
    };
    match printer.output {
        Output::Json => report["result"] = json::to_json(ty, &value)?,
        Output::Table if path.is_none() => {
            let line = wave::print(ty, &value)?;
            match label {
                Some(label) => printer.result(format_args!("{label} {line}"))?,
                None => printer.result(line)?,
            }
        }
        _ => {}
    }
    Ok(())
}

impl Made {
    /// Whether it is of a function that returns nothing.
    fn is_nothing(&self) -> bool {
        self.ty.is_none() && matches!(self.bytes.encoded(), EncodedRef::Postcard([]))
    }

    /// The value, if its type is known.
    fn value(&self) -> Result<Option<(&ValueType, Value)>, Failure> {
        let Some(ty) = &self.ty else {
            return Ok(None);
        };
        let limits = DecodeLimits {
            memory_bytes: usize::MAX,
        };
        Ok(Some((ty, decode(ty, &self.bytes, limits)?)))
    }

    /// What a file has of it: bytes and text as they are, else WAVE.
    fn file(&self, value: Option<&(&ValueType, Value)>) -> Result<Vec<u8>, Failure> {
        if let EncodedRef::Buffer { bytes, .. } = self.bytes.encoded() {
            return Ok(bytes.to_vec());
        }
        match value {
            Some((_, Value::String(text))) => Ok(text.as_bytes().to_vec()),
            Some((ty, value)) => Ok(format!("{}\n", wave::print(ty, value)?).into_bytes()),
            None => Err(Failure::usage(
                "the type of a result is not known, so it cannot be written as text",
            )),
        }
    }
}
