//! `get`: all about one task, job, actor or object.

use serde_json::Value as Json;
use wasmrun_client::Described;
use wasmrun_client::rows::Object;
use wasmrun_client::wire::{
    ActorDetail, HeldResource, Holder, ObjectDetail, ObjectRow, Run, TaskDetail, TaskRow,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::resource::Amount;
use wasmrun_model::units;

use super::{jobs, rows, warn_of_silent};
use crate::args::{Global, Id, Output};
use crate::fail::{CommandResult, with_frames};
use crate::printer::{Column, Printer, table};
use crate::remote;

/// `get`.
pub fn get(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    let found = client.wait(client.describe(&id.id));
    match found.map_err(remote::failed)? {
        Described::Task(task) => one(printer, task.object(), &task_lines(&task)),
        Described::Actor(actor) => one(printer, actor.object(), &actor_lines(&actor)),
        Described::Job(job) => jobs::show(&client, &job, printer),
        Described::Object(object) => {
            one(printer, object.object(), &object_lines(&object))?;
            warn_of_silent(&object.silent, printer);
            Ok(())
        }
    }
}

/// All about one thing, as `get` prints it for people.
pub fn text(of: &Described) -> String {
    match of {
        Described::Task(task) => task_lines(task).join("\n"),
        Described::Actor(actor) => actor_lines(actor).join("\n"),
        Described::Job(job) => jobs::header(&job.row).join("\n"),
        Described::Object(object) => object_lines(object).join("\n"),
    }
}

/// One thing, as programs or people want it.
pub fn one(printer: &Printer, json: Json, lines: &[String]) -> CommandResult {
    match printer.output {
        Output::Json => printer.json(&json),
        _ => printer.result(lines.join("\n")),
    }
}

pub fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
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
    lines.extend(row.parent.map(|id| format!("parent    {id}")));
    lines.extend(row.actor.map(|id| format!("actor     {id}")));
    lines.extend(row.array_index.map(|index| format!("index     {index}")));
    lines.push(format!("attempt   {}", row.attempt));
    lines.push(format!("submitted {} ago", rows::ms_text(row.age_ms)));
    if let Some(run) = &row.run {
        lines.extend(run_lines(run));
    }
    if !row.held.is_empty() {
        lines.push(format!("held      {}", held_resources(&row.held)));
    }
    lines.extend(inputs(row));
    lines.extend(task.object.map(|id| format!("object    {id}")));
    if let Some(error) = task.error.clone().map(TaskError::from) {
        let error = with_frames(error.to_string(), &error);
        lines.push(format!("error     {error}"));
    }
    let tail = task.stderr_tail.trim_end();
    if !tail.is_empty() {
        lines.push(format!(
            "\nthe end of what it wrote to standard error:\n{tail}"
        ));
    }
    if !task.retried.is_empty() {
        lines.push(format!(
            "\nattempts before that:\n{}",
            attempts(&task.retried)
        ));
    }
    lines.extend(task.explanation.iter().map(|why| format!("\n{why}")));
    lines
}

/// How long it took, and what of that went where.
fn run_lines(run: &Run) -> Vec<String> {
    let phases = &run.phases;
    let took = |us: u32| rows::took_text(us.into());
    let mut lines = vec![format!("waited    {}", rows::took_text(run.waited_us))];
    let paused = match phases.paused_us {
        0 => String::new(),
        us => format!(", paused {} for other tenants", took(us)),
    };
    lines.extend(run.ran_us.map(|ran_us| {
        format!(
            "ran       {}: arguments {}, sandbox {}, blocked {}{paused}, result {}; guest thread {}",
            rows::took_text(ran_us),
            took(phases.arguments_us),
            took(phases.sandbox_us),
            took(phases.blocked_us),
            took(phases.result_us),
            phases.thread
        )
    }));
    if run.memory_peak_bytes > 0 {
        let peak = units::bytes(run.memory_peak_bytes);
        lines.push(format!("memory    {peak} at most"));
    }
    lines
}

/// What is held, in a few words: `CPU 1 (0), memory 64MiB`.
fn held_resources(held: &[HeldResource]) -> String {
    let one = |held: &HeldResource| {
        let ids: Vec<String> = held.units.iter().map(|(id, _)| id.to_string()).collect();
        let amount = Amount::from_steps(held.steps);
        let amount = amount.display_for(&held.name);
        match ids.is_empty() {
            true => format!("{} {amount}", held.name),
            false => format!("{} {amount} ({})", held.name, ids.join(",")),
        }
    };
    held.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What it was given or waits for, an object a line.
fn inputs(row: &TaskRow) -> Vec<String> {
    let inputs = row.inputs.iter().enumerate();
    let mut lines: Vec<String> = inputs
        .map(|(at, id)| match at {
            0 => format!("inputs    {id}"),
            _ => format!("          {id}"),
        })
        .collect();
    if row.inputs.len() >= TaskRow::MOST_INPUTS {
        lines.push("          …".to_owned());
    }
    lines
}

/// Attempts that others followed.
fn attempts(retried: &[TaskRow]) -> String {
    let took = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), rows::took_text);
    let cells = retried.iter().map(|row| {
        let run = row.run.as_ref();
        vec![
            row.attempt.to_string(),
            row.node.clone(),
            took(run.map(|run| run.waited_us)),
            took(run.and_then(|run| run.ran_us)),
            row.error.clone().unwrap_or_default(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    table(
        &[
            Column::number("attempt"),
            Column::text("node"),
            Column::number("waited"),
            Column::number("ran"),
            Column::text("error"),
        ],
        &cells,
    )
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
        format!("job       {}", row.job),
        format!("detached  {}", yes(actor.is_detached)),
        format!("created   {} ago", rows::ms_text(actor.age_ms)),
        format!("restarts  {}", row.generation.saturating_sub(1)),
        format!("calls     {} under way", row.calls),
    ];
    let state = row.state_bytes.map(units::bytes);
    lines.extend(state.map(|bytes| format!("kept      {bytes} at its last checkpoint")));
    lines.extend(row.failure.iter().map(|why| format!("failure   {why}")));
    lines.extend(actor.explanation.iter().map(|why| format!("\n{why}")));
    lines
}

fn object_lines(object: &ObjectDetail) -> Vec<String> {
    let row = &object.copies[0];
    let is_kept = object.copies.iter().any(|copy| copy.is_kept);
    let mut lines = vec![
        format!("object    {}", row.id),
        format!("size      {}", units::bytes(row.size_bytes)),
        format!("tenant    {}", row.tenant),
        format!("kept      {}", yes(is_kept)),
        format!("made by   {}", row.id.task()),
        format!("\ncopies:\n{}", copies(&object.copies)),
    ];
    lines.push(match object.holders.is_empty() {
        true => "\nnobody is known who needs it: what runs may, or it is on its way".to_owned(),
        false => format!("\nwho needs it:\n{}", holders(&object.holders)),
    });
    if object.more_holders > 0 {
        lines.push(format!("and {} more", object.more_holders));
    }
    lines
}

/// The copies of an object, one a line.
fn copies(copies: &[ObjectRow]) -> String {
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let cells = copies.iter().map(|copy| {
        vec![
            copy.node.clone(),
            copy.place.clone(),
            copy.copy.clone().unwrap_or_else(|| "-".to_owned()),
            count(copy.references),
            count(copy.pins),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    table(
        &[
            Column::text("node"),
            Column::text("place"),
            Column::text("copy"),
            Column::number("references"),
            Column::number("pins"),
        ],
        &cells,
    )
}

/// Those who need an object, one a line.
fn holders(holders: &[Holder]) -> String {
    let cells = holders.iter().map(|holder| {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            holder.kind.clone(),
            or_dash(&holder.id),
            holder.name.clone(),
            or_dash(&holder.state),
            holder.how.clone(),
            holder.node.clone(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let columns = ["kind", "id", "name", "state", "how", "node"];
    table(&columns.map(Column::text), &cells)
}
