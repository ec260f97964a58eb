//! `job wait`: until jobs have ended, and how an attached `submit` would have ended.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value as Json, json};
use wasmrun_client::Described;
use wasmrun_client::blocking::Client;
use wasmrun_client::rows::Object;
use wasmrun_client::wire::{JobRow, TaskDetail, TaskRow};
use wasmrun_model::failure::TaskError;

use super::jobs::{found, is_top_level, named, now, order, tasks_of};
use super::rows;
use crate::args::{Global, JobWait, Output};
use crate::fail::{CommandResult, Exit, Failure, exit_of};
use crate::printer::Printer;
use crate::submit::with_place;
use crate::things::Backoff;

/// `job wait`.
pub fn wait(options: &JobWait, global: &Global, printer: &Printer) -> CommandResult {
    let (client, found) = found(&options.ids, global)?;
    leave_alone_on_interrupt(&found, printer)?;
    let deadline = options
        .timeout
        .and_then(|timeout| Instant::now().checked_add(timeout));
    let mut ended = Vec::with_capacity(found.len());
    for row in found {
        let row = until_ended(&client, row, deadline)?;
        let took = rows::ms_text(row.took_ms.unwrap_or(row.age_ms));
        let named = named(&row);
        printer.note(format_args!("{named}: {} in {took}", row.state));
        ended.push(row);
    }
    if printer.output == Output::Json {
        let jobs: Json = ended.iter().map(Object::object).collect();
        printer.json(&json!({ "version": 1, "jobs": jobs }))?;
    }
    // The first that was named and has failed decides.
    ended.iter().try_for_each(|row| outcome(&client, row))
}

/// Ctrl-C ends this command, and nothing else.
fn leave_alone_on_interrupt(jobs: &[JobRow], printer: &Printer) -> CommandResult {
    let (printer, names) = (*printer, jobs.iter().map(named).collect::<Vec<_>>());
    ctrlc::set_handler(move || {
        printer.note(format_args!(
            "interrupted: {} goes on; `wasmrun job cancel` would end it",
            names.join(", ")
        ));
        std::process::exit(Exit::Interrupted.code());
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(())
}

/// The job once it has ended.
fn until_ended(
    client: &Client,
    mut row: JobRow,
    deadline: Option<Instant>,
) -> Result<JobRow, Failure> {
    let mut backoff = Backoff::default();
    while row.state == "running" {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            let id = row.id.to_string();
            return Err(Failure::new(
                Exit::TimedOut,
                anyhow::anyhow!(
                    "{} has not ended in time: it goes on, wait again or see `wasmrun job show {}`",
                    named(&row),
                    rows::short(&id)
                ),
            ));
        }
        backoff.sleep(left);
        match now(client, row.id)? {
            (Some(now), _) => row = now,
            // The node that knows it may come back, or another one may adopt the job.
            (None, false) => {}
            (None, true) => {
                return Err(Failure::new(
                    Exit::Unreachable,
                    anyhow::anyhow!(
                        "no node knows {} any more: the node where it was submitted is lost, or has forgotten it; what \
                         nodes write with --history-dir has its attempts",
                        named(&row)
                    ),
                ));
            }
        }
    }
    Ok(row)
}

/// How a job has ended, as an attached `submit` of it would have.
pub fn outcome(client: &Client, row: &JobRow) -> CommandResult {
    if row.state == "finished" {
        return Ok(());
    }
    let mut bad = tasks_of(client, row.id, &[("state", "failed")])?;
    bad.extend(tasks_of(client, row.id, &[("state", "cancelled")])?);
    bad.retain(is_top_level);
    bad.sort_by_key(order);
    let Some(first) = bad.first() else {
        let exit = match row.state.as_str() {
            "cancelled" => Exit::Interrupted,
            _ => Exit::TaskFailed,
        };
        return Err(Failure::new(
            exit,
            anyhow::anyhow!("{} {}", named(row), row.state),
        ));
    };
    let detail = detail_of(client, first);
    let error = detail.as_ref().and_then(|it| it.error.clone());
    let error = error.map(TaskError::from);
    let exit = error.as_ref().map_or(Exit::TaskFailed, exit_of);
    let total = submitted(client, row)?;
    if first.array_index.is_some() || total > 1 {
        let exit = match exit {
            // A program's own code says nothing about the whole.
            Exit::Program(_) => Exit::TaskFailed,
            exit => exit,
        };
        let (id, many) = (row.id.to_string(), bad.len());
        return Err(Failure::new(
            exit,
            anyhow::anyhow!(
                "{many} of {total} tasks of {} did not finish; `wasmrun job show {}` shows which",
                named(row),
                rows::short(&id)
            ),
        ));
    }
    match error {
        // The program has said why itself.
        Some(TaskError::Exit { limit: None, .. }) => Err(Failure::silent(exit)),
        Some(error) => {
            let text = format!("{}: {error}", first.name);
            let mut text = with_place(text, &error, first.id, Some(&first.node));
            // Nothing of it was shown here, and a panic is told there.
            let tail = detail.map(|it| it.stderr_tail).unwrap_or_default();
            if matches!(error, TaskError::Trap { .. }) && !tail.is_empty() {
                let tail = tail.trim_end();
                text.push_str("\nthe end of what it wrote to standard error:\n");
                text.push_str(tail);
            }
            Err(Failure::new(exit, anyhow::anyhow!(text)))
        }
        None => {
            let text = format!("{}: {}", first.name, rows::error(first));
            Err(Failure::new(exit, anyhow::anyhow!(text)))
        }
    }
}

/// How many tasks the driver has submitted, as far as they are remembered if it has not said so.
fn submitted(client: &Client, row: &JobRow) -> Result<u64, Failure> {
    match row.tasks.expected {
        0 => {
            let tasks = tasks_of(client, row.id, &[])?;
            Ok(tasks.iter().filter(|it| is_top_level(it)).count() as u64)
        }
        expected => Ok(expected),
    }
}

/// All about a task, if it is remembered.
fn detail_of(client: &Client, row: &TaskRow) -> Option<TaskDetail> {
    let described = client.wait(client.describe(&row.id.to_string()));
    described.ok().and_then(Described::task)
}
