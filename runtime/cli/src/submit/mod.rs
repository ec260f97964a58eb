//! `wasmrun submit`: one task or an array of them, from start to exit code.

mod input;
mod plan;
mod printing;
mod report;
mod script;
mod stream;
mod target;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;
use serde_json::json;
use tokio::sync::mpsc;
use wasmrun_engine::{Entry, Input, Listener, OutputChunk};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::failure::TaskError;
use wasmrun_node::{Call, Report};

use crate::args::{Global, Indices, NodeOptions, Output, PolicyOptions, RunPython, Submit};
use crate::fail::{CommandResult, Exit, Failure};
use crate::local;
use crate::names::Names;
use crate::outfile;
use crate::printer::Printer;
use crate::remote;
use crate::submit::plan::Plan;
use crate::submit::stream::{Kept, Route};
use crate::submit::target::{Handle, Stopper, Target};

pub use crate::submit::plan::shorten;
pub use crate::submit::report::{exit_of, with_frames};
pub use crate::submit::script::{interpreter, stubs};
pub use crate::submit::target::{
    grants as wire_grants, limits as wire_limits, milliseconds, terms as wire_terms,
};

/// How many chunks of output may be under way before guests wait.
const CHUNKS_IN_FLIGHT: usize = 64;
/// How many tasks of an array are submitted ahead of the oldest that has not ended.
const ARRAY_WINDOW: usize = 10_000;

pub fn run_python(run: &RunPython, global: &Global, printer: &Printer) -> CommandResult {
    submit(&script::program(run)?, global, printer)
}

pub fn submit(submit: &Submit, global: &Global, printer: &Printer) -> CommandResult {
    let submit = &script::interpreted(submit)?;
    check_result_files(submit)?;
    let tenant = &submit.task.scheduling.tenant;
    let found = match submit.detach {
        true => Some(remote::connect(global, tenant)?),
        // Who says what the node should have wants one of their own.
        false if wants_own_node(&submit.node) => None,
        false => remote::find(global, tenant)?,
    };
    let (target, plan) = match found {
        None => {
            if let Strategy::PlacementGroup { group, .. } = &submit.task.scheduling.strategy {
                return Err(Failure::usage(format!(
                    "there is no placement group {group}: groups live in a running node; start one with \
                     `wasmrun node start`, or use another --strategy"
                )));
            }
            let node = local::start(&submit.node, printer)?;
            let module = local::load(node.engine(), &submit.module, &submit.node, printer)?;
            let client = node.client();
            let plan = Plan::new(submit, &module, node.policy(), Names::of(None))?;
            let node = Box::new(node);
            (Target::Local { node, client }, plan)
        }
        Some(client) => {
            let bytes = local::read_module(&submit.module, &submit.node)?;
            // The node compiles it, and first: then its code is in the cache, where we share one, when we
            // load it for its types, which say whether the arguments fit.
            client.wait(client.load(&bytes)).map_err(remote::failed)?;
            let engine = local::engine(&submit.node, printer)?;
            let module = local::load_bytes(&engine, &submit.module, &bytes, printer)?;
            let client = Arc::new(client);
            let names = Names::of(Some(client.clone()));
            let plan = Plan::new(submit, &module, Arc::default(), names)?;
            let wants_places = printer.output == Output::Json;
            let target = Target::remote(client, submit, &module, &plan.job, wants_places)?;
            (target, plan)
        }
    };
    let run = Run {
        submit,
        plan,
        target,
        printer,
    };
    if submit.detach {
        return run.detach();
    }
    cancel_on_interrupt(&run.target.stopper())?;
    let _waiting = waiting::Watch::start(run.target.source(), printer);
    match &submit.array {
        None => run.one(),
        Some(indices) => run.array(indices),
    }
}

/// Whether the options say what the node should have.
pub fn wants_own_node(options: &NodeOptions) -> bool {
    let NodeOptions {
        node_cpus,
        node_gpus,
        node_memory,
        object_memory,
        object_dir,
        spill_dir,
        put_wait,
        node_resource,
        node_name,
        node_label,
        policy,
        ..
    } = options;
    node_cpus.is_some()
        || node_gpus.is_some()
        || node_memory.is_some()
        || object_memory.is_some()
        || object_dir.is_some()
        || spill_dir.is_some()
        || put_wait.is_some()
        || node_name.is_some()
        || !node_resource.is_empty()
        || !node_label.is_empty()
        || *policy != PolicyOptions::default()
}

/// Results can be written where they are wanted, as far as can be told before the work is done, and all tasks of an array
/// do not write to one file.
fn check_result_files(submit: &Submit) -> Result<(), Failure> {
    let Some(pattern) = &submit.result_file else {
        return Ok(());
    };
    let Some(indices) = &submit.array else {
        return outfile::check(Path::new(pattern));
    };
    if plan::substitute(pattern, 0) == plan::substitute(pattern, 1) {
        return Err(Failure::usage(format!(
            "all tasks of the array would write to {pattern}: put $i into its name, in single \
             quotes so that the shell leaves it alone"
        )));
    }
    let mut folder = None;
    for index in indices.iter().take(ARRAY_WINDOW) {
        let path = report::file_of(pattern, Some(index));
        // Most are new files in one folder.
        if folder.as_deref() != path.parent() || path.exists() {
            outfile::check(&path)?;
            folder = path.parent().map(Path::to_owned);
        }
    }
    Ok(())
}

/// Whether Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether no task is to run any more: Ctrl-C, or nobody takes their output. Set before the tasks
/// are cancelled, and looked at after each is submitted, so that none slips through in between.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends all tasks, those that are just being submitted included.
fn stop(tasks: &Stopper) {
    STOPPED.store(true, Ordering::SeqCst);
    tasks.cancel_all();
}

/// The first Ctrl-C cancels all tasks, which ends the command in order; the second ends it.
fn cancel_on_interrupt(tasks: &Stopper) -> Result<(), Failure> {
    let tasks = tasks.clone();
    ctrlc::set_handler(move || {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted.code());
        }
        stop(&tasks);
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(())
}

struct Run<'a> {
    submit: &'a Submit,
    plan: Plan,
    target: Target,
    printer: &'a Printer,
}

/// A channel for output, and the thread that empties it.
struct Streaming {
    tasks: Stopper,
    chunks: mpsc::Sender<OutputChunk>,
    pump: JoinHandle<io::Result<Kept>>,
}

impl Streaming {
    fn start(route: Route, tasks: Stopper) -> Result<Self, Failure> {
        let (chunks, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let stopping = tasks.clone();
        Ok(Self {
            tasks,
            chunks,
            // A guest may not care that its output is closed, and go on for ever.
            pump: stream::pump(route, receiver, move || stop(&stopping))?,
        })
    }

    /// Waits until everything is written. All tasks that were submitted must have ended; what they
    /// started and left behind, tasks and actors, ends here.
    fn finish(self) -> Result<Kept, Failure> {
        self.tasks.cancel_all();
        drop(self.chunks);
        let written = self.pump.join().expect("the output thread does not panic");
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::BrokenPipe, error),
            _ => {
                Failure::from(anyhow::Error::new(error).context("cannot write the guest's output"))
            }
        })
    }
}

/// Whether a program has come to its end.
fn has_run(report: &Report) -> bool {
    matches!(&report.result, Ok(_) | Err(TaskError::Exit { .. }))
}

impl Run<'_> {
    /// Whether it runs in a placement group.
    fn is_grouped(&self) -> bool {
        let strategy = &self.submit.task.scheduling.strategy;
        matches!(strategy, Strategy::PlacementGroup { .. })
    }

    fn is_program(&self) -> bool {
        self.plan.job.entry == Entry::Program
    }

    fn send(&self, mut call: Call, chunks: &mpsc::Sender<OutputChunk>) -> Result<Handle, Failure> {
        let tag = call.array_index.unwrap_or(0);
        call.listener = Some(Listener {
            tag,
            chunks: chunks.clone(),
        });
        let handle = self.target.submit(&self.plan.job, call)?;
        if STOPPED.load(Ordering::SeqCst) {
            self.target.cancel(&handle);
        }
        Ok(handle)
    }

    /// Leaves the tasks to the node.
    fn detach(&self) -> CommandResult {
        let indices: Vec<Option<u64>> = match &self.submit.array {
            None => vec![None],
            Some(indices) => indices.iter().map(Some).collect(),
        };
        let mut ids = Vec::new();
        for index in indices {
            let mut call = self.plan.call(index)?;
            if let (Some(path), Input::Empty) = (&self.submit.stdin, &call.input) {
                let bytes = local::read_file(path, plan::FILE_BYTES, "a smaller file, or --dir");
                let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
                call.input = Input::Bytes(bytes.into());
            }
            let (id, why_not_durable) = self.target.detach(call)?;
            if let Some(why) = why_not_durable {
                self.printer.warn(format_args!(
                    "task {id} is lost if node {} is, and not kept elsewhere: {why}",
                    self.target.node()
                ));
            }
            match self.printer.output {
                Output::Json => {
                    ids.push(json!({ "task_id": id.to_string(), "array_index": index }))
                }
                _ => self.printer.result(id)?,
            }
        }
        match (self.printer.output, &self.submit.array, ids.pop()) {
            (Output::Json, None, Some(mut one)) => {
                one["version"] = 1.into();
                self.printer.json(&one)
            }
            (Output::Json, _, last) => {
                ids.extend(last);
                self.printer.json(&json!({ "version": 1, "tasks": ids }))
            }
            _ => Ok(()),
        }
    }

    fn one(&self) -> CommandResult {
        let mut call = self.plan.call(None)?;
        call.input = match &self.submit.stdin {
            // It may be read more than once: the plan has it all.
            _ if self.plan.job.terms.retries > 0 || self.is_grouped() => call.input,
            Some(path) => input::of_file(path, *self.printer)?,
            None if self.is_program() => input::ours(*self.printer)?,
            None => Input::Empty,
        };
        let route = match (self.printer.output, &self.submit.result_file) {
            (Output::Json, _) => Route::Keep,
            (_, Some(pattern)) if self.is_program() => {
                let path = report::file_of(pattern, None);
                Route::Files(Box::new(move |_| path.clone()))
            }
            (Output::Quiet, _) => Route::Drop,
            (Output::Table, _) if self.is_program() => Route::Through,
            (Output::Table, _) => Route::Aside,
        };
        let streaming = Streaming::start(route, self.target.stopper())?;
        let handle = self.send(call, &streaming.chunks)?;
        let ended = self.target.wait(handle)?;
        let report = &ended.report;
        let kept = streaming.finish()?;
        self.detail(report, None);
        if self.printer.output == Output::Json {
            let mut object = self.json(&ended, None, &kept);
            object["version"] = 1.into();
            self.print_json(&object)?;
            self.keep_stdout(&kept)?;
        }
        if has_run(report) {
            self.make_empty_files(&kept, &[None])?;
        }
        match &report.result {
            Ok(_) => self.print_result(report, None),
            Err(error) => Err(self.failed(error, None)),
        }
    }

    fn array(&self, indices: &Indices) -> CommandResult {
        let started = Instant::now();
        let bar = self.bar(indices.len());
        let streaming = Streaming::start(self.array_route(bar.as_ref()), self.target.stopper())?;
        let mut tally = Tally::default();
        let mut open: VecDeque<(u64, Handle)> = VecDeque::new();
        let mut reports = Vec::new();
        let mut unwritten = Vec::new();
        let mut have_run = Vec::new();
        let mut ended = |index, handle: Handle, tally: &mut Tally| -> CommandResult {
            let ended = self.target.wait(handle)?;
            let report = &ended.report;
            if has_run(report) {
                have_run.push(Some(index));
            }
            tally.count(report);
            self.detail(report, bar.as_ref());
            let outcome = match &report.result {
                Ok(_) => self.print_array_result(report, index, bar.as_ref()),
                Err(error) => {
                    self.print_array_failure(error, index, bar.as_ref());
                    Ok(())
                }
            };
            if self.printer.output == Output::Json {
                reports.push((index, ended));
            }
            if let Some(bar) = &bar {
                bar.inc(1);
            }
            match outcome {
                // The others may well have theirs written.
                Err(failure) if failure.exit != Exit::BrokenPipe => {
                    let print = || self.printer.stderr(format_args!("[{index}] {failure}"));
                    bar.as_ref().map_or_else(print, |bar| bar.suspend(print));
                    unwritten.push(failure);
                    Ok(())
                }
                outcome => outcome,
            }
        };
        for index in indices.iter() {
            if open.len() == ARRAY_WINDOW
                && let Some((index, handle)) = open.pop_front()
            {
                ended(index, handle, &mut tally)?;
            }
            if STOPPED.load(Ordering::SeqCst) {
                break;
            }
            open.push_back((
                index,
                self.send(self.plan.call(Some(index))?, &streaming.chunks)?,
            ));
        }
        for (index, handle) in open {
            ended(index, handle, &mut tally)?;
        }
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        let kept = streaming.finish()?;
        if self.printer.output == Output::Json {
            let tasks = reports
                .iter()
                .map(|(i, ended)| self.json(ended, Some(*i), &kept));
            let tasks: Vec<_> = tasks.collect();
            self.print_json(&json!({ "version": 1, "tasks": tasks }))?;
            self.keep_stdout(&kept)?;
        }
        self.make_empty_files(&kept, &have_run)?;
        let (name, took) = (&self.plan.job.name, started.elapsed());
        let Tally {
            finished, failed, ..
        } = &tally;
        self.printer.note(format_args!(
            "{name}: {finished} finished, {failed} failed in {took:.2?}"
        ));
        self.array_outcome(tally, &unwritten, indices)
    }

    /// Where the output of an array's tasks goes.
    fn array_route(&self, bar: Option<&ProgressBar>) -> Route {
        match (self.printer.output, &self.submit.result_file) {
            (Output::Json, _) => Route::Keep,
            (_, Some(pattern)) if self.is_program() => {
                let pattern = pattern.clone();
                Route::Files(Box::new(move |tag| report::file_of(&pattern, Some(tag))))
            }
            (Output::Quiet, _) => Route::Drop,
            (Output::Table, _) => Route::Lines {
                bar: bar.cloned(),
                aside: !self.is_program(),
            },
        }
    }

    /// How the command ends.
    fn array_outcome(
        &self,
        tally: Tally,
        unwritten: &[Failure],
        indices: &Indices,
    ) -> CommandResult {
        let Tally {
            finished,
            failed,
            first_failure,
        } = tally;
        match first_failure {
            None if let Some(first) = unwritten.first() => Err(Failure::usage(format!(
                "cannot write {} of {finished} results, such as this: {first}; above is where each is",
                unwritten.len()
            ))),
            None if INTERRUPTED.load(Ordering::SeqCst) && finished < indices.len() => {
                Err(Failure::silent(Exit::Interrupted))
            }
            None => Ok(()),
            Some(exit) if self.printer.output == Output::Json => Err(Failure::silent(exit)),
            Some(exit) => Err(Failure::new(
                exit,
                anyhow::anyhow!("{failed} of {} tasks did not finish", finished + failed),
            )),
        }
    }
}

/// How the tasks of an array ended.
#[derive(Default)]
struct Tally {
    finished: u64,
    failed: u64,
    first_failure: Option<Exit>,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        match &report.result {
            Ok(_) => self.finished += 1,
            Err(error) => {
                self.failed += 1;
                // A program's own code says nothing about the whole array.
                let exit = match report::exit_of(error) {
                    Exit::Program(_) => Exit::TaskFailed,
                    exit => exit,
                };
                self.first_failure.get_or_insert(exit);
            }
        }
    }
}
