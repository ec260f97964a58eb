//! `wasmrun simulate`: what a scheduler would do, in virtual time.

use std::convert::Infallible;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use anyhow::Context;
use wasmrun_model::simulate::{self, Scenario, scenario::limits::FILE_BYTES_MAX};

use crate::args::{Output, Simulate};
use crate::fail::{CommandResult, Failure};
use crate::local;
use crate::printer::{Printer, written};
use crate::stdio;

/// What is written at a time.
const WRITE_BYTES: usize = 64 << 10;

pub fn simulate(simulate: &Simulate, printer: &Printer) -> CommandResult {
    let text = read(&simulate.scenario)?;
    let scenario = Scenario::parse(&text).map_err(|error| {
        let name = local::shown(&simulate.scenario);
        Failure::usage(match error.line_and_column() {
            Some((line, column)) => format!("{name}:{line}:{column}: {error}"),
            None => format!("{name}: {error}"),
        })
    })?;
    if printer.output == Output::Json {
        return written(write_trace(&scenario));
    }
    let Ok(summary) = simulate::run(&scenario, |_| Ok::<(), Infallible>(()));
    printer.result(summary.to_table().trim_end())
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
