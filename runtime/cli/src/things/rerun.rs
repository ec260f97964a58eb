//! `job rerun`: submits the tasks of a detached job again, as a new job.
//!
//! Owns which tasks are meant. Must not: submit any where what one of them was given is not kept.

use serde_json::{Value as Json, json};
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{JobRow, TaskRow};
use wasmrun_client::{Error, Submit};

use super::jobs::{find, is_top_level, named, order, tasks_of};
use super::{follow, rows};
use crate::args::{Global, JobRerun, Output};
use crate::fail::{CommandResult, Failure};
use crate::printer::Printer;
use crate::remote;

/// `job rerun`.
pub fn rerun(options: &JobRerun, global: &Global, printer: &Printer) -> CommandResult {
    let tenant = &options.job.tenant;
    let client = remote::connect(global, tenant)?;
    let row = find(&client, &options.job.job)?.row;
    let tasks = meant(&client, &row, options.failed, printer)?;
    let given = submissions(&client, &row, &tasks)?;
    // A session has one name for all that it submits.
    let client = remote::connect_for(global, tenant, &row.name)?;
    client.expect_tasks(tasks.len() as u64);
    let job = client.detached_job().to_string();
    let mut submitted: Vec<Json> = Vec::new();
    for (at, (task, submit)) in tasks.iter().zip(given).enumerate() {
        let new = client.wait(client.submit(submit)).map_err(|why| {
            if at > 0 {
                printer.warn(format_args!(
                    "{at} of {} tasks were submitted before this: `wasmrun job cancel {job}` ends them",
                    tasks.len()
                ));
            }
            remote::failed(why)
        })?;
        let id = new.id();
        if let Some(why) = new.why_not_durable() {
            printer.warn(format_args!(
                "task {id} is lost if node {} is, and not kept elsewhere: {why}",
                client.node()
            ));
        }
        match printer.output {
            Output::Json => submitted.push(json!({
                "task_id": id.to_string(),
                "array_index": task.array_index,
                "rerun_of": task.id.to_string(),
            })),
            _ => printer.result(id)?,
        }
    }
    if printer.output == Output::Json {
        let rerun_of = row.id.to_string();
        return printer
            .json(&json!({ "version": 1, "job": job, "rerun_of": rerun_of, "tasks": submitted }));
    }
    let short = rows::short(&job);
    printer.note(format_args!("job {short}: wasmrun job show {short}"));
    Ok(())
}

/// The tasks of a job that are to be submitted again.
fn meant(
    client: &Client,
    row: &JobRow,
    is_failed: bool,
    printer: &Printer,
) -> Result<Vec<TaskRow>, Failure> {
    let (named, is_over) = (named(row), row.state != "running");
    if !is_over && !is_failed {
        return Err(Failure::usage(format!(
            "{named} has not ended: wait for it with `wasmrun job wait`, or end it with `wasmrun job cancel`; --failed submits \
             those again that have failed so far"
        )));
    }
    let mut tasks = tasks_of(client, row.id, &[])?;
    tasks.retain(is_top_level);
    let (known, all) = (tasks.len() as u64, row.tasks.expected);
    let are_forgotten = is_over && known < all;
    if are_forgotten && !is_failed {
        return Err(Failure::usage(format!(
            "only {known} of {all} tasks of {named} are remembered: submit it as it was submitted first; --failed submits \
             those again that are known to have failed"
        )));
    }
    if are_forgotten {
        printer.warn(format_args!(
            "only {known} of {all} tasks of {named} are remembered: others may have failed, too"
        ));
    }
    tasks.retain(|task| match is_failed {
        true => task.state == "failed",
        false => follow::has_ended(&task.state),
    });
    tasks.sort_by_key(order);
    match tasks.is_empty() {
        false => Ok(tasks),
        true if is_failed => Err(Failure::usage(format!(
            "no task of {named} has failed, of those that its driver has submitted"
        ))),
        true => Err(Failure::usage(format!(
            "no task of {named} is remembered: submit it as it was submitted first"
        ))),
    }
}

/// What each of these tasks was submitted with.
fn submissions(client: &Client, row: &JobRow, tasks: &[TaskRow]) -> Result<Vec<Submit>, Failure> {
    let (mut given, mut refused, mut first) = (Vec::with_capacity(tasks.len()), 0, None);
    for task in tasks {
        match client.wait(client.submission(task.id)) {
            Ok(submit) => given.push(submit),
            Err(Error::Refused(why)) => {
                refused += 1;
                first.get_or_insert(why);
            }
            Err(error) => return Err(remote::failed(error)),
        }
    }
    match first {
        None => Ok(given),
        Some(why) => Err(Failure::usage(format!(
            "{refused} of {} tasks of {} cannot be submitted again, so none was: {why}",
            tasks.len(),
            named(row)
        ))),
    }
}
