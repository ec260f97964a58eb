//! What came of a task, for people and for programs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value as Json, json};
use wasmrun_engine::{Entry, HeldResource};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::resource::Amount;
use wasmrun_model::units::us;
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, EncodedRef, Value, ValueType, json, wave};
use wasmrun_node::{Job, Readable, Report};

use crate::fail::{Failure, with_frames};
use crate::outfile;
use crate::submit::plan::result_type;
use crate::submit::target::Ended;
use crate::submit::template;

/// What is said of an error and where the guest was; and which task it was, at which node if that is known, where the guest trapped.
pub fn with_place(text: String, error: &TaskError, task: TaskId, node: Option<&str>) -> String {
    let text = with_frames(text, error);
    match (error, node) {
        (TaskError::Trap { .. }, Some(node)) => {
            format!("{text}\n    in task {task} at node {node}")
        }
        (TaskError::Trap { .. }, None) => format!("{text}\n    in task {task}"),
        _ => text,
    }
}

/// The result as a value, where the function has one. It may be on a disk that does not give it back.
fn value<'a>(job: &'a Job, report: &Report) -> anyhow::Result<Option<(&'a ValueType, Value)>> {
    let loaded;
    let encoded = match &report.result {
        Ok(Some(value)) => {
            loaded = value.load().context("cannot read the result")?;
            loaded.encoded()
        }
        Err(TaskError::Guest { value, .. }) => value.into(),
        Ok(None) | Err(_) => return Ok(None),
    };
    let Some(ty) = result_type(&job.module, job.entry) else {
        return Ok(None);
    };
    let limits = DecodeLimits {
        memory_bytes: usize::MAX,
    };
    Ok(Some((
        ty,
        decode(ty, encoded, limits).expect("the engine has encoded it by this type"),
    )))
}

/// The result as a line of WAVE.
pub fn line(job: &Job, report: &Report) -> anyhow::Result<Option<String>> {
    let value = value(job, report)?;
    Ok(value.map(|(ty, value)| wave::print(ty, &value).expect("it is of this type")))
}

/// Writes the result to a file.
pub fn to_file(job: &Job, report: &Report, path: &Path) -> Result<(), Failure> {
    with_bytes(job, report, |bytes| {
        let written = outfile::replace(path, bytes);
        written.with_context(|| format!("cannot write the result to {}", path.display()))
    })
}

/// The result, if there is one, as a file has it: bytes and text as they are, else WAVE.
pub fn with_bytes(
    job: &Job,
    report: &Report,
    mut write: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    if let Ok(Some(value)) = &report.result
        && let loaded = value.load().context("cannot read the result")?
        && let EncodedRef::Buffer { bytes, .. } = loaded.encoded()
    {
        return Ok(write(bytes)?);
    }
    match value(job, report)? {
        Some((_, Value::String(text))) => write(text.as_bytes())?,
        Some((ty, value)) => {
            let text = wave::print(ty, &value).expect("it is of this type");
            write(format!("{text}\n").as_bytes())?;
        }
        None => {}
    }
    Ok(())
}

/// Where the result of the task with this index goes.
pub fn file_of(pattern: &str, index: Option<u64>) -> PathBuf {
    match index {
        Some(index) => template::with_index(pattern, index).into(),
        None => pattern.into(),
    }
}

/// The report as JSON. `printed` is what a program wrote, if it was kept.
pub fn to_json(
    job: &Job,
    Ended { report, node }: &Ended,
    index: Option<u64>,
    printed: Option<&[Vec<u8>; 2]>,
) -> Json {
    let state = match &report.result {
        Ok(_) => "finished",
        Err(TaskError::Cancelled) => "cancelled",
        Err(_) => "failed",
    };
    let mut object = json!({
        "task_id": report.id.to_string(),
        "name": job.name,
        "state": state,
        "attempt": report.attempt,
        "waited_us": us(report.waited),
        "duration_us": us(report.ran),
        "node": node,
        "resource_ids": resource_ids(&report.held),
    });
    let fields = object.as_object_mut().expect("it was made an object");
    if let Some(index) = index {
        fields.insert("array_index".into(), index.into());
    }
    match value(job, report) {
        Ok(Some((ty, value))) => {
            let result = json::to_json(ty, &value).expect("it is of this type");
            fields.insert("result".into(), result);
        }
        Ok(None) => {}
        Err(why) => drop(fields.insert("result_error".into(), format!("{why:#}").into())),
    }
    if report.result.is_ok() {
        fields.insert("memory_peak_bytes".into(), report.memory_peak.into());
    }
    if job.entry == Entry::Program {
        let code = match &report.result {
            Ok(_) => Some(0),
            Err(TaskError::Exit { code, .. }) => Some(*code),
            Err(_) => None,
        };
        fields.insert("exit_code".into(), code.into());
    }
    if let Some([stdout, stderr]) = printed {
        fields.insert("stdout".into(), String::from_utf8_lossy(stdout).into());
        fields.insert("stderr".into(), String::from_utf8_lossy(stderr).into());
    }
    if let Err(error) = &report.result {
        let frames: Vec<String> = error.frames().iter().map(ToString::to_string).collect();
        let mut error = json!({
            "kind": error.kind(),
            "message": error.to_string(),
            "backtrace": frames,
        });
        if !report.stderr_tail.is_empty() {
            error["stderr_tail"] = report.stderr_tail.clone().into();
        }
        fields.insert("error".into(), error);
    }
    object
}

/// `{"GPU":[[0,"0.5"]]}`: for each resource with ids, which and how much of each.
fn resource_ids(held: &[HeldResource]) -> Json {
    let ids = |held: &HeldResource| {
        let units = held.units.iter();
        let units = units.map(|(id, steps)| json!([id, Amount::from_steps(*steps).to_string()]));
        (held.name.to_string(), units.collect::<Json>())
    };
    Json::Object(
        held.iter()
            .filter(|held| !held.units.is_empty())
            .map(ids)
            .collect(),
    )
}

/// What a task held, in a few words: `CPU 1 (0), memory 64MiB`.
pub fn held_resources(held: &[HeldResource]) -> String {
    let one = |held: &HeldResource| {
        let ids: Vec<String> = held.units.iter().map(|(id, _)| id.to_string()).collect();
        let amount = Amount::from_steps(held.amount);
        let amount = amount.display_for(&held.name);
        match ids[..] {
            [] => format!("{} {amount}", held.name),
            _ => format!("{} {amount} ({})", held.name, ids.join(",")),
        }
    };
    held.iter().map(one).collect::<Vec<_>>().join(", ")
}
