//! `put` and `object`: values that stay in the node until they are deleted.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Form, List, RefusalKind, What};
use wasmrun_client::{Error, GetError, Incoming, PutOptions};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, NumberKind, Value, json, wave};

use super::ends;
use crate::args::{Global, ObjectCommand, Output, Put};
use crate::fail::{CommandResult, Failure};
use crate::local;
use crate::outfile::{self, OutFile};
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;

/// How long to wait for a value before a note says so.
const SOON: Duration = Duration::from_secs(1);

/// `put`.
pub fn put(put: &Put, global: &Global, printer: &Printer) -> CommandResult {
    local::check_path(&put.file)?;
    let shown = put.file.display();
    let cannot = || format!("cannot read {shown}");
    // To open a pipe waits for who writes to it.
    let about = std::fs::metadata(&put.file).with_context(cannot)?;
    if about.is_dir() {
        return Err(Failure::usage(format!(
            "{shown} is not a file but a folder: give a file in it"
        )));
    }
    if !about.is_file() {
        return Err(Failure::usage(format!(
            "{shown} is not a file, and has no length as an object must: write what comes out of it to a file first"
        )));
    }
    let file = File::open(&put.file).with_context(cannot)?;
    let meta = file.metadata().with_context(cannot)?;
    let client = remote::connect(global, &put.tenant)?;
    let options = PutOptions {
        is_kept: true,
        room_patience: put.wait,
    };
    let stored = client.put_from(Form::Buffer(NumberKind::U8), meta.len(), options, file);
    let id = client.wait(stored).map_err(remote::failed)?.id();
    match printer.output {
        Output::Json => {
            let (id, bytes) = (id.to_string(), meta.len());
            printer.json(&json!({ "version": 1, "object": id, "size_bytes": bytes }))
        }
        _ => printer.result(id),
    }
}

/// `object`.
pub fn object(command: &ObjectCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        ObjectCommand::List => super::show(What::Objects, Vec::new(), global, printer),
        ObjectCommand::Get {
            id,
            out,
            timeout,
            tenant,
        } => {
            if let Some(out) = out {
                outfile::check(out)?;
            }
            let client = remote::connect(global, tenant)?;
            get(&client, id, out.as_deref(), *timeout, printer)
        }
        ObjectCommand::Delete { id, tenant } => {
            let client = remote::connect(global, tenant)?;
            // A task's stands for its result.
            let is_whole = id.parse::<ObjectId>().is_ok() || id.parse::<TaskId>().is_ok();
            let list = List::of(What::Objects).with("tenant", tenant);
            let shown = match is_whole {
                true => id.clone(),
                false => ends::named(&client, list, id, printer),
            };
            client.wait(client.delete(id)).map_err(remote::failed)?;
            printer.note(format_args!("object {shown} is deleted"));
            Ok(())
        }
    }
}

fn get(
    client: &Client,
    id: &str,
    out: Option<&Path>,
    timeout: Option<Duration>,
    printer: &Printer,
) -> CommandResult {
    let soon = timeout.map_or(SOON, |timeout| timeout.min(SOON));
    let incoming = match client.wait(client.get_kept(id, Some(soon))) {
        Err(GetError::TimedOut) if timeout != Some(soon) => {
            printer.note(format_args!(
                "{id} is not there yet, and is waited for; `wasmrun explain {id}` says why"
            ));
            client.wait(client.get_kept(id, timeout.map(|timeout| timeout - soon)))
        }
        incoming => incoming,
    };
    let incoming = incoming.map_err(|error| {
        let why = failure(client, id, &error);
        remote::no_value(why.unwrap_or(error))
    })?;
    let is_bytes = incoming.form == Form::Buffer(NumberKind::U8);
    let failed = |path: &Path, error: io::Error| {
        let error = anyhow::Error::new(error);
        Failure::from(error.context(format!("cannot write to {}", path.display())))
    };
    if let (Some(path), true) = (out, is_bytes) {
        let mut file = OutFile::create(path).map_err(|error| failed(path, error))?;
        copy(client, incoming, |bytes| {
            file.write_all(bytes).map_err(|error| failed(path, error))
        })?;
        return file.finish().map_err(|error| failed(path, error));
    }
    if is_bytes && printer.output == Output::Table {
        return copy(client, incoming, |bytes| {
            written(stdio::output().write_all(bytes))
        });
    }
    let ty = incoming.ty.clone();
    let value = client.wait(incoming.value()).map_err(remote::failed)?;
    let Some(ty) = ty else {
        return Err(Failure::usage(
            "the type of this object is not known, so it cannot be shown; get it with -O FILE if it \
             is bytes",
        ));
    };
    let value = decode(&ty, &value, DecodeLimits::default())?;
    match (out, &value, printer.output) {
        (Some(path), Value::String(text), _) => {
            outfile::replace(path, text.as_bytes()).map_err(|error| failed(path, error))
        }
        (Some(path), value, _) => {
            let text = format!("{}\n", wave::print(&ty, value)?);
            outfile::replace(path, text.as_bytes()).map_err(|error| failed(path, error))
        }
        (None, value, Output::Json) => {
            printer.json(&json!({ "version": 1, "value": json::to_json(&ty, value)? }))
        }
        (None, value, _) => printer.result(wave::print(&ty, value)?),
    }
}

/// How the task has failed that was to make an object, if that is why there is none.
fn failure(client: &Client, id: &str, error: &GetError) -> Option<GetError> {
    let GetError::Request(Error::Refused(why)) = error else {
        return None;
    };
    if why.kind != RefusalKind::NotFound {
        return None;
    }
    let object = id.parse::<ObjectId>();
    let task = object.map_or_else(|_| id.to_owned(), |it| it.task().to_string());
    let task = client.wait(client.describe(&task)).ok()?.task()?;
    Some(GetError::Failed {
        origin: task.row.id,
        error: TaskError::from(task.error?),
    })
}

fn copy(
    client: &Client,
    mut incoming: Incoming,
    mut write: impl FnMut(&[u8]) -> CommandResult,
) -> CommandResult {
    while let Some(chunk) = client.wait(incoming.chunk()).map_err(remote::failed)? {
        write(&chunk)?;
    }
    Ok(())
}
