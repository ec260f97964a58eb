//! `simulate --record`: a scenario of what has run in the cluster.
//!
//! Owns what is asked for and read; `wasmrun_client::record` makes the scenario of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use wasmrun_client::blocking::Client;
use wasmrun_client::record::{Cluster, Recorder, Recording, Wanted};
use wasmrun_client::rows::Object;
use wasmrun_client::wire::{DueRow, List, Listed, MemberRow, Rows, What};
use wasmrun_model::simulate::Scenario;
use wasmrun_model::units;

use crate::args::{Global, Simulate};
use crate::fail::{CommandResult, Failure};
use crate::outfile;
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;
use crate::things::{jobs, warn_of_silent};

/// `simulate --record`.
pub fn record(
    file: &Path,
    options: &Simulate,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let path = (file != Path::new("-")).then_some(file);
    path.map_or(Ok(()), outfile::check)?;
    let client = remote::connect(global, &options.tenant.clone().unwrap_or_default())?;
    let wanted = wanted(&client, options)?;
    let mut recorder = Recorder::new();
    for folder in &options.from {
        read(folder, &mut recorder)?;
    }
    ask(&client, &mut recorder, printer)?;
    let (nodes, tenants) = (nodes(&client)?, tenants(&client)?);
    let scheduling = client.wait(client.scheduling(Vec::new()));
    let scheduling = scheduling.map_err(remote::failed)?;
    let cluster = Cluster {
        nodes: &nodes,
        tenants: &tenants,
        scheduling: &scheduling,
    };
    let recording = recorder.scenario(&cluster, &wanted);
    if recording.tasks == 0 {
        return Err(Failure::usage(
            "there is nothing to record: of what was asked for no task has run and ended, as far as the nodes remember; \
             folders of --history-dir go further back (--from)",
        ));
    }
    if let Err(error) = Scenario::parse(&recording.text) {
        return Err(Failure::usage(format!(
            "what was recorded is no scenario: {error}; record less, with --since, --tenant or --job"
        )));
    }
    match path {
        None => written(stdio::output().write_all(recording.text.as_bytes()))?,
        Some(path) => {
            let replaced = outfile::replace(path, recording.text.as_bytes());
            replaced.with_context(|| format!("cannot write to {}", path.display()))?;
        }
    }
    say(&recorder, &recording, file, printer);
    Ok(())
}

/// Says what was recorded, and what is missing.
fn say(recorder: &Recorder, recording: &Recording, file: &Path, printer: &Printer) {
    let Recording {
        text: _,
        tasks,
        tenants,
        span_us,
        calls,
        never_ran,
    } = recording;
    let span = units::milliseconds(span_us / 1000);
    let (shown, of) = (
        file.display(),
        if *tenants == 1 { "tenant" } else { "tenants" },
    );
    printer.note(format_args!(
        "{tasks} tasks of {tenants} {of}, submitted over {span}, are in {shown}: wasmrun simulate {shown}"
    ));
    printer.note(
        "priorities, retries, strategies, labels, placement groups and sizes of arguments are in no history: all tasks have the defaults",
    );
    if calls + never_ran > 0 {
        let (call, task) = (
            if *calls == 1 { "call" } else { "calls" },
            if *never_ran == 1 { "task" } else { "tasks" },
        );
        printer.note(format_args!(
            "left out: {calls} {call} of actors, which run in what these hold, and {never_ran} {task} that never ran"
        ));
    }
    let (missed, unreadable) = (recorder.missed(), recorder.unreadable());
    if missed + unreadable > 0 {
        printer.warn(format_args!(
            "attempts are missing: not written to the files: {missed}; lines that are no attempt: {unreadable}"
        ));
    }
}

fn wanted(client: &Client, options: &Simulate) -> Result<Wanted, Failure> {
    let job = options.job.as_ref().map(|text| {
        let is_id = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match jobs::find(client, text) {
            Ok(job) => Ok(job.row.id.to_string()),
            // Nodes have forgotten the jobs that are only in files.
            Err(_) if is_id && !options.from.is_empty() => Ok(text.to_ascii_lowercase()),
            Err(failure) => Err(failure),
        }
    });
    let since_us = options.since.map_or(0, |since| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let first = now.unwrap_or_default().saturating_sub(since);
        units::us(first)
    });
    Ok(Wanted {
        since_us,
        tenant: options.tenant.clone(),
        job: job.transpose()?,
        is_anonymous: options.anonymous,
    })
}

/// Adds what nodes remember.
fn ask(client: &Client, recorder: &mut Recorder, printer: &Printer) -> Result<(), Failure> {
    let listed = client.wait(client.list_pages(List::of(What::Attempts), usize::MAX));
    let Listed { rows, silent, .. } = listed.map_err(remote::failed)?;
    let Rows::Tasks(rows) = rows else {
        return Err(remote::unexpected("attempts"));
    };
    rows.iter().for_each(|row| recorder.add(row.object()));
    warn_of_silent(&silent, printer);
    Ok(())
}

fn nodes(client: &Client) -> Result<Vec<MemberRow>, Failure> {
    let listed = client.wait(client.list(List::of(What::Members)));
    match listed.map_err(remote::failed)?.rows {
        Rows::Members(rows) => Ok(rows),
        _ => Err(remote::unexpected("nodes")),
    }
}

fn tenants(client: &Client) -> Result<Vec<DueRow>, Failure> {
    let listed = client.wait(client.list(List::of(What::Due)));
    match listed.map_err(remote::failed)?.rows {
        Rows::Due(rows) => Ok(rows),
        _ => Err(remote::unexpected("tenants")),
    }
}

/// Adds what is in the files of a folder, or in a file.
fn read(path: &Path, recorder: &mut Recorder) -> anyhow::Result<()> {
    let (mut count, before) = (0, recorder.unreadable());
    for file in files(path)? {
        let name = file.display();
        let cannot = || format!("cannot read the history in {name}");
        let lines = BufReader::new(File::open(&file).with_context(cannot)?).lines();
        for line in lines {
            recorder.add_line(&line.with_context(cannot)?);
            count += 1;
        }
    }
    // In a folder the files have the names of histories: one may be of a node that was killed in its first line.
    let is_other = count > 0 && recorder.unreadable() - before == count;
    ensure!(
        path.is_dir() || !is_other,
        "{} is no file of a history: none of its lines is an attempt; name a folder that a node was given as \
         --history-dir, or a file in it",
        path.display()
    );
    Ok(())
}

/// The files of histories in a folder, or the file that is named.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = path.display();
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read the folder {shown}"))? {
        let file = entry.with_context(|| format!("cannot read the folder {shown}"))?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("wasmrun-") && name.ends_with(".jsonl") {
            files.push(file.path());
        }
    }
    ensure!(
        !files.is_empty(),
        "there is no history in {shown}: name a folder that a node was given as --history-dir"
    );
    Ok(files)
}
