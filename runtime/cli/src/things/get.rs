//! `get`: all about one task, job or actor.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use wasmrun_client::Described;
use wasmrun_client::wire::{ActorDetail, JobDetail, Rows, TaskDetail};
use wasmrun_model::failure::TaskError;

use super::{rows, warn_of_silent};
use crate::args::{Global, Id, Output};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

/// `get`.
pub fn get(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    let found = client.wait(client.describe(&id.id));
    match found.map_err(remote::failed)? {
        Described::Task(task) => one(printer, task_json(&task), &task_lines(&task)),
        Described::Actor(actor) => one(printer, actor_json(&actor), &actor_lines(&actor)),
        Described::Job(job) => show_job(*job, printer),
    }
}

/// One thing, as programs or people want it.
fn one(printer: &Printer, json: Json, lines: &[String]) -> CommandResult {
    match printer.output {
        Output::Json => printer.json(&json),
        _ => printer.result(lines.join("\n")),
    }
}

fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

fn task_json(task: &TaskDetail) -> Json {
    let row = &task.row;
    let error = task.error.clone().map(TaskError::from);
    let error = error.map(|error| json!({ "kind": error.kind(), "message": error.to_string() }));
    json!({
        "version": 1,
        "kind": "task",
        "id": row.id.to_string(),
        "name": row.name,
        "state": row.state,
        "node": row.node,
        "tenant": row.tenant.to_string(),
        "job": row.job.to_string(),
        "detached": row.is_detached,
        "age_ms": row.age_ms,
        "waited_us": task.took_us.map(|(waited, _)| waited),
        "duration_us": task.took_us.map(|(_, ran)| ran),
        "object": task.object.map(|id| id.to_string()),
        "error": error,
        "explanation": task.explanation,
    })
}

fn task_lines(task: &TaskDetail) -> Vec<String> {
    let row = &task.row;
    let mut lines = vec![
        format!("task      {}", row.id),
        format!("name      {}", row.name),
        format!("state     {}", row.state),
        format!("node      {}", row.node),
        format!("tenant    {}", row.tenant),
        format!("job       {}", row.job),
        format!("detached  {}", yes(row.is_detached)),
    ];
    if let Some((waited, ran)) = task.took_us {
        lines.push(format!("waited    {waited} us"));
        lines.push(format!("ran       {ran} us"));
    }
    let error = task.error.clone().map(TaskError::from);
    lines.extend(task.object.map(|id| format!("object    {id}")));
    lines.extend(error.map(|error| format!("error     {error}")));
    lines.extend(task.explanation.iter().map(|why| format!("\n{why}")));
    lines
}

fn actor_json(actor: &ActorDetail) -> Json {
    let row = &actor.row;
    json!({
        "version": 1,
        "kind": "actor",
        "id": row.id.to_string(),
        "name": row.name,
        "class": row.class,
        "state": row.state,
        "node": row.node,
        "tenant": row.tenant.to_string(),
        "job": actor.job.to_string(),
        "detached": actor.is_detached,
        "age_ms": actor.age_ms,
        "explanation": actor.explanation,
    })
}

fn actor_lines(actor: &ActorDetail) -> Vec<String> {
    let row = &actor.row;
    let mut lines = vec![
        format!("actor     {}", row.id),
        format!("name      {}", row.name.as_deref().unwrap_or("-")),
        format!("class     {}", row.class),
        format!("state     {}", row.state),
        format!("node      {}", row.node),
        format!("tenant    {}", row.tenant),
        format!("job       {}", actor.job),
        format!("detached  {}", yes(actor.is_detached)),
    ];
    lines.extend(actor.explanation.iter().map(|why| format!("\n{why}")));
    lines
}

/// A job: how many of its tasks are in which state, and which those are.
fn show_job(job: JobDetail, printer: &Printer) -> CommandResult {
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for row in &job.tasks {
        *states.entry(row.state.clone()).or_default() += 1;
    }
    let counts = states
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let (_, header, rows) = rows::of(&Rows::Tasks(job.tasks));
    let mut json = json!({
        "version": 1,
        "kind": "job",
        "id": job.id.to_string(),
        "states": states,
        "tasks": rows::json(header, &rows),
    });
    rows::add_silent(&mut json, &job.silent);
    let lines = [
        format!("job    {}", job.id),
        format!("tasks  {counts}"),
        format!("\n{}", rows::text(header, &rows)),
    ];
    one(printer, json, &lines)?;
    warn_of_silent(&job.silent, printer);
    Ok(())
}
