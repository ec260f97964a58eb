//! `cargo xtask bench --page`: what lists and views of a long history take, and what an open page costs its node.
//!
//! Owns the load and the table. The node is the release build; the browser is the one of [`browser`], on the same machine, so
//! what is compared with and without a page is the CPU time of the node's process and not the time that passes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::browser::{self, Node, Shown};

/// Jobs of one task each, and the tasks of the job that makes the history long.
const JOBS: usize = 1_000;
const TASKS: &str = "0-99999";
/// How often each thing is measured. The median counts.
const ROUNDS: usize = 7;
/// What a browser has open when it has no page of the node open.
const NOTHING: &str = "about:blank";

pub fn run(wasmrun: &Path) -> Result<()> {
    browser::with_page(wasmrun, work, |shown| {
        let job = format!("/jobs/{}", shown.job);
        let task = format!("/tasks/{}", shown.task);
        for path in ["/", "/jobs", "/tasks", &job, &task] {
            let painted = median(|| paint(shown, path))?;
            println!("first paint of {path}: {painted:.0} ms");
        }
        for path in ["/", "/tasks", &job] {
            let ratio = median(|| {
                shown.browser.navigate(NOTHING)?;
                let without = load(&shown.node)?;
                shown.open(path)?;
                Ok(load(&shown.node)? / without)
            })?;
            println!(
                "CPU time of the node for tasks {TASKS}, with {path} open by without: {ratio:.3}"
            );
        }
        Ok(())
    })
}

fn work(node: &Node) -> Result<(String, String)> {
    for _ in 0..JOBS {
        node.submit("noop()", &[])?;
    }
    let array = node.submit("noop()", &["--array", TASKS])?;
    let job = browser::quoted(&array, "job").context("submit has not said the job")?;
    node.says(&["job", "wait", job])?;
    let one = node.submit("noop()", &[])?;
    let task = browser::quoted(&one, "task_id").context("submit has not said the task")?;
    // Before there is a browser, which starts on the same cores.
    let list = median(|| {
        let begun = Instant::now();
        let said = node.says(&["job", "list", "--all", "-o", "json"])?;
        anyhow::ensure!(
            said.matches("\"by\"").count() >= JOBS,
            "not all jobs are listed"
        );
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    })?;
    println!("job list, {JOBS} jobs: {list:.1} ms");
    Ok((job.to_owned(), task.to_owned()))
}

/// How long a view takes to be seen, from when it was asked for, in milliseconds.
fn paint(shown: &mut Shown, path: &str) -> Result<f64> {
    shown.open(path)?;
    let painted =
        "String((performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime)";
    let said = shown
        .browser
        .wait_until(painted, |said| said.parse::<f64>().is_ok())?;
    Ok(said.parse()?)
}

/// The CPU time that a node takes for many tasks, in ticks of the kernel.
fn load(node: &Node) -> Result<f64> {
    let before = ticks(node.process())?;
    let array = [
        "submit",
        "target/guests/graph.wasm",
        "--quiet",
        "--invoke",
        "noop()",
        "--array",
        TASKS,
    ];
    node.says(&array)?;
    Ok(ticks(node.process())? - before)
}

/// The CPU time of a process so far, of all its threads (`man 5 proc_pid_stat`, utime and stime).
fn ticks(process: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the program, in parentheses, may have blanks.
    let fields = stat
        .rsplit_once(") ")
        .context("/proc/PID/stat has no name")?
        .1;
    let mut times = fields.split(' ').skip(11).map(str::parse::<f64>);
    let mut next = || times.next().context("/proc/PID/stat is too short");
    Ok(next()?? + next()??)
}

fn median(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut measured = (0..ROUNDS).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    measured.sort_by(f64::total_cmp);
    Ok(measured[ROUNDS / 2])
}
