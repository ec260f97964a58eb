//! `wasmrun bench`: what this machine can do, one row per case.
//!
//! Every figure is the median of several runs after a warm-up, on real sandboxes. The cases are
//! in [`cases`]; this file picks, repeats and prints.

mod cases;
mod dataflow;
mod history;
mod hostile;
mod nodes;
mod objects;
mod processes;
mod serve;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value as Json, json};
use wasmrun_engine::{Entry, Grants};
use wasmrun_model::units;
use wasmrun_node::{Call, Job, Machine, Node, Overrides};

use crate::args::{Bench, IdleNode, Output};
use crate::bench::cases::{CASES, Case, Setting};
use crate::fail::{CommandResult, Failure};
use crate::printer::{Column, Printer, table};

/// The guest that is built in.
const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.wasm"));

/// What a case measured in one run.
pub struct Sample {
    pub value: f64,
    /// The latency of each operation, where the case takes them one by one.
    pub latencies: Vec<Duration>,
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self {
            value,
            latencies: Vec::new(),
        }
    }
}

/// What several runs of a case came to.
struct Measured {
    name: &'static str,
    unit: &'static str,
    median: f64,
    runs: Vec<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

pub fn bench(bench: &Bench, printer: &Printer) -> CommandResult {
    if bench.list {
        let rows = CASES
            .iter()
            .map(|case| vec![case.name.into(), case.what.into()]);
        return printer.result(table(
            &["name", "what"].map(Column::text),
            &rows.collect::<Vec<_>>(),
        ));
    }
    let chosen = choose(&bench.names)?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let module = match &bench.module {
        Some(path) => path.clone(),
        None => {
            let path = scratch.path().join("guest.wasm");
            std::fs::write(&path, GUEST).context("cannot write the bench guest")?;
            path
        }
    };
    let mut options = bench.node.clone();
    if options.cache_dir.is_none() {
        // Measurements neither fill the user's cache nor depend on it.
        options.cache_dir = Some(scratch.path().join("code"));
    }
    let mut setting = Setting::new(
        &options,
        &module,
        bench.flow_module.as_deref(),
        scratch.path(),
        printer,
    )?;
    if bench.short {
        setting.shorten();
    }
    let mut results = Vec::new();
    for case in chosen {
        if case.needs_flow && setting.flow().is_none() {
            let why = "it needs --flow-module, which `cargo xtask bench` gives";
            if bench.names.is_empty() {
                printer.note(format_args!("left out {}: {why}", case.name));
                continue;
            }
            return Err(Failure::usage(format!("{}: {why}", case.name)));
        }
        printer.detail(format_args!(
            "{}: {} runs after a warm-up",
            case.name, bench.runs
        ));
        results.push(measure(case, &setting, bench.runs)?);
    }
    let machine = machine(&module);
    match printer.output {
        Output::Json => printer.json(&json!({
            "version": 1,
            "machine": machine,
            "results": results.iter().map(Measured::to_json).collect::<Json>(),
        })),
        _ => {
            let rows = results.iter().map(Measured::to_row).collect::<Vec<_>>();
            let header = [
                Column::text("case"),
                Column::number("median"),
                Column::text("unit"),
                Column::number("least"),
                Column::number("most"),
                Column::number("p50 us"),
                Column::number("p99 us"),
            ];
            printer.result(table(&header, &rows))?;
            let text = |name: &str| machine[name].as_str().unwrap_or_default().to_owned();
            printer.note(format_args!(
                "{} CPUs, {}, Linux {}, guest {}",
                machine["cpus"],
                text("cpu_model"),
                text("kernel"),
                text("guest")
            ));
            Ok(())
        }
    }
}

fn choose(names: &[String]) -> Result<Vec<&'static Case>, Failure> {
    let find = |name: &String| {
        CASES.iter().find(|case| case.name == name).ok_or_else(|| {
            let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
            Failure::usage(format!(
                "there is no case '{name}'; there are {}",
                known.join(", ")
            ))
        })
    };
    match names {
        [] => Ok(CASES.iter().collect()),
        names => names.iter().map(find).collect(),
    }
}

fn measure(case: &'static Case, setting: &Setting, runs: u32) -> Result<Measured, Failure> {
    (case.run)(setting)?;
    let samples: Vec<Sample> = (0..runs)
        .map(|_| (case.run)(setting))
        .collect::<Result<_, _>>()?;
    setting.end_case();
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    sorted.sort_by(f64::total_cmp);
    let mut latencies: Vec<Duration> = samples.iter().flat_map(|s| s.latencies.clone()).collect();
    latencies.sort_unstable();
    let percentile = |percent: usize| {
        let at = (latencies.len().checked_sub(1)?) * percent / 100;
        Some(latencies[at].as_secs_f64() * 1e6)
    };
    Ok(Measured {
        name: case.name,
        unit: case.unit,
        median: sorted[sorted.len() / 2],
        runs: samples.iter().map(|sample| sample.value).collect(),
        p50_us: percentile(50),
        p99_us: percentile(99),
    })
}

/// A figure with as many digits as it can bear.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        1000.0.. => format!("{value:.0}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

impl Measured {
    fn to_row(&self) -> Vec<String> {
        let least = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let optional = |value: Option<f64>| value.map_or("-".into(), figure);
        vec![
            self.name.into(),
            figure(self.median),
            self.unit.into(),
            figure(least),
            figure(most),
            optional(self.p50_us),
            optional(self.p99_us),
        ]
    }

    fn to_json(&self) -> Json {
        let mut object = json!({
            "name": self.name,
            "value": self.median,
            "unit": self.unit,
            "runs": self.runs,
        });
        for (name, value) in [("p50_us", self.p50_us), ("p99_us", self.p99_us)] {
            if let Some(value) = value {
                object[name] = value.into();
            }
        }
        object
    }
}

fn machine(module: &Path) -> Json {
    let machine = Machine::detect();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    json!({
        "cpus": machine.cpus,
        "cpu_model": model.unwrap_or("unknown CPU"),
        "memory": units::bytes(machine.memory_bytes),
        "kernel": kernel,
        "wasmrun": env!("CARGO_PKG_VERSION"),
        "guest": module.file_name().map(|name| name.to_string_lossy()),
    })
}

/// Runs the built-in guest once on `node`: for `doctor`.
pub fn run_once(node: &Node) -> Result<Duration, Failure> {
    let started = Instant::now();
    let module = node.engine().load(GUEST)?;
    let entry = Entry::Function(module.find("noop")?);
    let job = Job::new(
        "noop",
        &module,
        entry,
        &Overrides::default(),
        Grants::default(),
    )?;
    node.client()
        .submit(&Arc::new(job), Call::default())?
        .wait()
        .result?;
    Ok(started.elapsed())
}

/// A node that has run some tasks and now has nothing to do, until standard input ends.
pub fn idle_node(idle: &IdleNode, printer: &Printer) -> CommandResult {
    let setting = Setting::new(
        &idle.node,
        &idle.module,
        idle.flow_module.as_deref(),
        Path::new("/"),
        printer,
    )?;
    setting.warm_up()?;
    if idle.actors > 0 {
        setting.populate(idle.actors)?;
    }
    printer.result("ready")?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Our own program.
fn ourselves() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().context("cannot find the wasmrun program itself")?)
}
