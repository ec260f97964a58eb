//! What a running node has: `status`, `list`, `get`, `explain`, `cancel`, `logs`.

pub mod actors;
pub mod objects;
mod rows;

use std::io::Write;

use serde_json::{Value as Json, json};
use wasmrun_client::wire::{List, NodeStatus, Rows, What};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::units;

use crate::args::{Global, Id, ListThings, Output, Things};
use crate::fail::CommandResult;
use crate::printer::{Printer, table, written};
use crate::remote;

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
    let listed = client.wait(client.list(List { what, filters }));
    let listed = listed.map_err(remote::failed)?;
    let (name, header, rows) = rows::of(&listed);
    match printer.output {
        Output::Json => {
            let objects = rows.iter().map(|row| {
                let fields = header.iter().zip(row);
                let fields = fields.map(|(key, (_, value))| ((*key).to_owned(), value.clone()));
                Json::Object(fields.collect())
            });
            let objects: Vec<Json> = objects.collect();
            printer.json(&json!({ "version": 1, name: objects }))?;
        }
        _ => {
            let cells = rows
                .iter()
                .map(|row| row.iter().map(|(text, _)| text.clone()).collect());
            let cells: Vec<Vec<String>> = cells.collect();
            // Cells for people have units.
            let without_unit =
                |name: &'static str| name.trim_end_matches("_ms").trim_end_matches("_bytes");
            let header: Vec<&str> = header.into_iter().map(without_unit).collect();
            printer.result(table(&header, &cells))?;
        }
    }
    if rows.len() >= Rows::MAX {
        printer.warn(format_args!(
            "only {} are shown; use -f FIELD=VALUE",
            Rows::MAX
        ));
    }
    Ok(())
}

/// `status`.
pub fn status(global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &TenantName::default())?;
    let status = client.wait(client.status()).map_err(remote::failed)?;
    let tenants = List {
        what: What::Tenants,
        filters: Vec::new(),
    };
    let tenants = client.wait(client.list(tenants)).map_err(remote::failed)?;
    if printer.output == Output::Json {
        let mut object = rows::node_json(&status);
        object["version"] = 1.into();
        let (name, header, rows) = rows::of(&tenants);
        let rows = rows.into_iter().map(|row| {
            let fields = header.iter().zip(row);
            Json::Object(
                fields
                    .map(|(key, (_, value))| ((*key).to_owned(), value))
                    .collect(),
            )
        });
        object[name] = rows.collect();
        return printer.json(&object);
    }
    printer.result(status_text(&status))?;
    let (_, header, rows) = rows::of(&tenants);
    let cells = rows
        .into_iter()
        .map(|row| row.into_iter().map(|(text, _)| text).collect());
    let cells: Vec<Vec<String>> = cells.collect();
    match cells.is_empty() {
        true => Ok(()),
        false => printer.result(format_args!("\n{}", table(&header, &cells))),
    }
}

fn status_text(status: &NodeStatus) -> String {
    let NodeStatus {
        name,
        version,
        process,
        up_ms,
        store,
        ..
    } = status;
    let state = if status.is_draining { ", stopping" } else { "" };
    let up = units::milliseconds(up_ms / 1000 * 1000);
    let mut text = format!("node {name}: wasmrun {version}, process {process}, up {up}{state}\n\n");
    let mut resources = Vec::new();
    for (resource, total) in &status.total {
        let free = status.available.get(resource).copied().unwrap_or_default();
        let used = total.steps().saturating_sub(free.steps());
        let used = wasmrun_model::resource::Amount::from_steps(used);
        resources.push(vec![
            resource.to_string(),
            used.display_for(resource).to_string(),
            total.display_for(resource).to_string(),
        ]);
    }
    text.push_str(&table(&["resource", "used", "total"], &resources));
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

/// `get`.
pub fn get(id: &Id, global: &Global, printer: &Printer) -> CommandResult {
    let client = remote::connect(global, &id.tenant)?;
    let task = client
        .wait(client.describe(&id.id))
        .map_err(remote::failed)?;
    let error = task.error.map(TaskError::from);
    let row = &task.row;
    if printer.output == Output::Json {
        let error = error
            .as_ref()
            .map(|error| json!({ "kind": error.kind(), "message": error.to_string() }));
        return printer.json(&json!({
            "version": 1,
            "id": row.id.to_string(),
            "name": row.name,
            "state": row.state,
            "tenant": row.tenant.to_string(),
            "job": row.job.to_string(),
            "detached": row.is_detached,
            "age_ms": row.age_ms,
            "waited_us": task.took_us.map(|(waited, _)| waited),
            "duration_us": task.took_us.map(|(_, ran)| ran),
            "object": task.object.map(|id| id.to_string()),
            "error": error,
            "explanation": task.explanation,
        }));
    }
    let mut lines = vec![
        format!("task      {}", row.id),
        format!("name      {}", row.name),
        format!("state     {}", row.state),
        format!("tenant    {}", row.tenant),
        format!("job       {}", row.job),
        format!("detached  {}", if row.is_detached { "yes" } else { "no" }),
    ];
    if let Some((waited, ran)) = task.took_us {
        lines.push(format!("waited    {waited} us"));
        lines.push(format!("ran       {ran} us"));
    }
    lines.extend(task.object.map(|id| format!("object    {id}")));
    lines.extend(error.map(|error| format!("error     {error}")));
    lines.extend(task.explanation.map(|why| format!("\n{why}")));
    printer.result(lines.join("\n"))
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
    if printer.output == Output::Json {
        let of = |is_stderr: bool| {
            let parts = outputs.iter().filter(|it| it.is_stderr == is_stderr);
            let bytes: Vec<u8> = parts.flat_map(|it| it.bytes.0.iter().copied()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        return printer.json(&json!({ "version": 1, "stdout": of(false), "stderr": of(true) }));
    }
    for output in outputs {
        match output.is_stderr {
            true => written(std::io::stderr().lock().write_all(&output.bytes.0))?,
            false => written(std::io::stdout().lock().write_all(&output.bytes.0))?,
        }
    }
    Ok(())
}
