//! `wasmrun simulate`: what a scheduler would do, in virtual time.

mod record;

use std::convert::Infallible;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use anyhow::Context;
use wasmrun_model::simulate::{self, Scenario, Summary, scenario::limits::FILE_BYTES_MAX};

use crate::args::{Global, Output, Simulate};
use crate::fail::{CommandResult, Failure};
use crate::local;
use crate::printer::{Printer, written};
use crate::stdio;

/// What is written at a time.
const WRITE_BYTES: usize = 64 << 10;

pub fn simulate(options: &Simulate, global: &Global, printer: &Printer) -> CommandResult {
    if let Some(file) = &options.record {
        return record::record(file, options, global, printer);
    }
    let Some(path) = &options.scenario else {
        return Err(Failure::usage("name a scenario, or a file with --record"));
    };
    let scenario = parse(path)?;
    let mut changed = scenario.clone();
    for change in &options.set_tenant {
        change.change(changed.tenant_mut(&change.tenant)?);
    }
    if printer.output == Output::Json {
        return written(write_trace(&changed));
    }
    let table = match options.set_tenant.is_empty() {
        true => summary(&scenario).to_table(),
        false => summary(&scenario).beside(&summary(&changed)),
    };
    printer.result(table.trim_end())
}

fn summary(scenario: &Scenario) -> Summary {
    let Ok(summary) = simulate::run(scenario, |_| Ok::<(), Infallible>(()));
    summary
}

fn parse(path: &Path) -> Result<Scenario, Failure> {
    let text = read(path)?;
    Scenario::parse(&text).map_err(|error| {
        let name = local::shown(path);
        Failure::usage(match error.line_and_column() {
            Some((line, column)) => format!("{name}:{line}:{column}: {error}"),
            None => format!("{name}: {error}"),
        })
    })
}

/// A line for each event, then one with the summary.
fn write_trace(scenario: &Scenario) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, stdio::output());
    let mut text = Vec::new();
    let summary = simulate::run(scenario, |line| {
        text.clear();
        line.write_to(&mut text);
        out.write_all(&text)
    })?;
    out.write_all(summary.to_json_line().as_bytes())?;
    out.flush()
}

fn read(path: &Path) -> anyhow::Result<String> {
    let name = local::shown(path);
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that too many are noticed.
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = local::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read the scenario {name}"))?;
    String::from_utf8(bytes).with_context(|| format!("the scenario {name} is not text in UTF-8"))
}
