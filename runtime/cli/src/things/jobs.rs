//! `job`: what one session or one detached submission has started, as a whole.
//!
//! Owns how a job is found and shown. Must not: end a job, but by `cancel`.

use std::collections::BTreeSet;

use serde_json::json;
use wasmrun_client::blocking::Client;
use wasmrun_client::graph::is_creation;
use wasmrun_client::rows::Object;
use wasmrun_client::wire::{JobDetail, JobRow, List, RefusalKind, Rows, TaskRow, What};
use wasmrun_client::{Described, Error};
use wasmrun_model::id::DriverId;

use super::failures::Failures;
use super::get::{one, yes};
use super::rows::Table;
use super::{follow, graph, rerun, results, rows, wait, warn_of_silent};
use crate::args::{Global, JobCommand, JobId, JobIds, Output};
use crate::fail::{CommandResult, Failure};
use crate::printer::Printer;
use crate::remote;

/// `job`.
pub fn job(command: &JobCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        JobCommand::List(options) => {
            let list = List {
                filters: options.filters(),
                ..List::of(What::Jobs)
            };
            super::show_most(list, options.most(), global, printer)
        }
        JobCommand::Show(id) => {
            let (client, job) = one_found(id, global)?;
            show(&client, &job, printer)
        }
        JobCommand::Wait(options) => wait::wait(options, global, printer),
        JobCommand::Logs(logs) => {
            let (client, job) = one_found(&logs.job, global)?;
            follow::lines(
                &client,
                Described::Job(Box::new(job)),
                &logs.options,
                printer,
            )
        }
        JobCommand::Results(options) => {
            let (client, job) = one_found(&options.job, global)?;
            results::results(&client, &job.row, options.out.as_deref(), printer)
        }
        JobCommand::Cancel(ids) => cancel(ids, global, printer),
        JobCommand::Rerun(options) => rerun::rerun(options, global, printer),
        JobCommand::Graph(options) => {
            let (client, job) = one_found(&options.job, global)?;
            graph::graph(&client, &job.row, options.dot, printer)
        }
    }
}

/// `job cancel`. If one of the jobs is not there, none is cancelled.
fn cancel(ids: &JobIds, global: &Global, printer: &Printer) -> CommandResult {
    let (client, mut jobs) = found(ids, global)?;
    let mut seen = BTreeSet::new();
    jobs.retain(|job| seen.insert(job.id));
    let (mut cancelled, mut first) = (Vec::new(), None);
    for job in &jobs {
        let id = job.id.to_string();
        match client.wait(client.cancel(&id)).map_err(remote::failed) {
            Ok(()) => {
                if printer.output != Output::Json {
                    printer.note(format_args!(
                        "all tasks of job {id} that had not ended are cancelled"
                    ));
                }
                cancelled.push(id);
            }
            Err(failure) if first.is_none() => first = Some(failure),
            Err(failure) => printer.warn(failure),
        }
    }
    if printer.output == Output::Json && !cancelled.is_empty() {
        printer.json(&json!({ "version": 1, "cancelled": true, "jobs": cancelled }))?;
    }
    first.map_or(Ok(()), Err)
}

/// A job, and the connection through which it was found.
fn one_found(id: &JobId, global: &Global) -> Result<(Client, JobDetail), Failure> {
    let client = remote::connect(global, &id.tenant)?;
    let job = find(&client, &id.job)?;
    Ok((client, job))
}

/// Jobs in the order in which they were named, and the connection through which they were found.
pub fn found(ids: &JobIds, global: &Global) -> Result<(Client, Vec<JobRow>), Failure> {
    let client = remote::connect(global, &ids.tenant)?;
    let jobs = ids.jobs.iter().map(|text| find(&client, text));
    let jobs: Result<Vec<_>, Failure> = jobs.map(|job| job.map(|job| job.row)).collect();
    Ok((client, jobs?))
}

/// The job that a text stands for.
pub fn find(client: &Client, text: &str) -> Result<JobDetail, Failure> {
    let described = client.wait(client.describe(text));
    match described.map_err(|why| remote::failed(no_job(why)))? {
        Described::Job(job) => Ok(*job),
        Described::Task(task) => Err(Failure::usage(format!(
            "'{text}' is a task and not a job: name its job, {}",
            task.row.job
        ))),
        Described::Actor(actor) => Err(Failure::usage(format!(
            "'{text}' is an actor and not a job: name its job, {}",
            actor.row.job
        ))),
        Described::Object(_) => Err(Failure::usage(format!(
            "'{text}' is an object and not a job: `wasmrun list jobs` shows the jobs"
        ))),
    }
}

/// Nodes say of what they do not know that it is no task, actor or job, as a text may stand for each. Here a job is meant.
fn no_job(error: Error) -> Error {
    match error {
        Error::Refused(mut why) if why.kind == RefusalKind::NotFound => {
            let what = [
                ("no task, actor or job '", "no job '"),
                (
                    "`wasmrun list tasks`, `list actors` and `list jobs` show",
                    "`wasmrun job list` shows",
                ),
            ];
            for (said, meant) in what {
                why.message = why.message.replacen(said, meant, 1);
            }
            Error::Refused(why)
        }
        error => error,
    }
}

/// A job as it is now, if a node that has answered knows it; and whether all nodes have answered.
pub fn now(client: &Client, id: DriverId) -> Result<(Option<JobRow>, bool), Failure> {
    let listed = client.wait(client.list(List::of(What::Jobs).with("id", id)));
    let listed = listed.map_err(remote::failed)?;
    match listed.rows {
        Rows::Jobs(rows) => Ok((rows.into_iter().next(), listed.silent.is_empty())),
        _ => Err(remote::unexpected("jobs")),
    }
}

/// The tasks of a job with these values in these fields, all pages of them.
pub fn tasks_of(
    client: &Client,
    job: DriverId,
    filters: &[(&str, &str)],
) -> Result<Vec<TaskRow>, Failure> {
    let of_job = List::of(What::Tasks).with("job", job);
    let list = filters
        .iter()
        .fold(of_job, |list, (field, value)| list.with(field, value));
    let listed = client.wait(client.list_pages(list, usize::MAX));
    match listed.map_err(remote::failed)?.rows {
        Rows::Tasks(rows) => Ok(rows),
        _ => Err(remote::unexpected("tasks")),
    }
}

/// Whether the job's driver has submitted it and it makes a result: nested tasks and the creation of actors do not count.
pub fn is_top_level(row: &TaskRow) -> bool {
    row.parent.is_none() && !is_creation(row)
}

/// The order in which people expect the tasks of a job: by index, then in the order of submission.
pub fn order(row: &TaskRow) -> (u64, u64) {
    (row.array_index.unwrap_or(u64::MAX), row.submitted_us)
}

/// A job as lines for people, without its tasks.
pub fn header(row: &JobRow) -> Vec<String> {
    let (done, total) = rows::progress(&row.tasks);
    let tasks = &row.tasks;
    let mut lines = vec![
        format!("job       {}", row.id),
        format!("name      {}", row.name),
        format!("state     {}", row.state),
        format!("by        {}", row.by),
        format!("node      {}", row.node),
        format!("tenant    {}", row.tenant),
        format!("detached  {}", yes(row.is_detached)),
        format!("submitted {} ago", rows::ms_text(row.age_ms)),
    ];
    lines.extend(
        row.took_ms
            .map(|ms| format!("took      {}", rows::ms_text(ms))),
    );
    lines.push(format!(
        "tasks     {done} of {total} have ended: {} finished, {} failed, {} cancelled; {} running, {} waiting",
        tasks.finished, tasks.failed, tasks.cancelled, tasks.running, tasks.waiting
    ));
    lines
}

/// All about a job: what it is, what failed of it, and its tasks.
pub fn show(client: &Client, job: &JobDetail, printer: &Printer) -> CommandResult {
    let failures = match job.row.tasks.failed {
        0 => Failures::default(),
        _ => Failures::of(tasks_of(client, job.row.id, &[("state", "failed")])?),
    };
    // Of a job that has too many tasks for one answer, these are the youngest.
    let listed = job.tasks.len();
    let mut object = job.object();
    object["failures"] = failures.json();
    let mut lines = header(&job.row);
    lines.extend(failures.lines());
    if listed > 0 {
        let table = Table::of(What::Tasks, &object);
        lines.push(format!("\n{}", table.text(printer.width())));
    }
    one(printer, object, &lines)?;
    warn_of_silent(&job.silent, printer);
    let (done, _) = rows::progress(&job.row.tasks);
    let known = done + job.row.tasks.running + job.row.tasks.waiting;
    if (listed as u64) < known {
        let id = job.row.id;
        printer.warn(format_args!(
            "only {listed} of {known} tasks are shown: the others are in `wasmrun list tasks --all -f job={id}`, as far as \
             they are remembered"
        ));
    }
    Ok(())
}

/// A job in a few words, for notes.
pub fn named(row: &JobRow) -> String {
    let id = row.id.to_string();
    format!("job {} ({})", rows::short(&id), row.name)
}

#[cfg(test)]
pub mod tests {
    use wasmrun_model::id::TaskId;

    use super::*;

    /// A task that has not begun.
    pub fn task(id: u8) -> TaskRow {
        TaskRow {
            state: "ready".into(),
            attempt: 0,
            ..TaskRow::example(TaskId::from_bytes([id; 16]))
        }
    }

    #[test]
    fn what_makes_results_is_neither_nested_nor_the_creation_of_an_actor() {
        let plain = task(1);
        assert!(is_top_level(&plain));
        let nested = TaskRow {
            parent: Some(TaskId::from_bytes([2; 16])),
            ..task(1)
        };
        assert!(!is_top_level(&nested));
        let creation = TaskRow {
            actor: Some(plain.id.actor()),
            ..task(1)
        };
        assert!(!is_top_level(&creation));
        let call = TaskRow {
            actor: Some(nested.id.actor()),
            ..task(3)
        };
        assert!(is_top_level(&call));
    }
}
