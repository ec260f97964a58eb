//! `wasmrun submit`: one task or an array of them, from start to exit code.

mod arguments;
mod array;
mod elements;
mod input;
mod plan;
mod printing;
mod report;
mod script;
mod stream;
mod target;
mod template;
mod waiting;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use wasmrun_engine::{Entry, Input, Listener, OutputChunk};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::failure::TaskError;
use wasmrun_node::{Call, Report};

use crate::args::{Global, NodeOptions, Output, PolicyOptions, RunScript, Submit};
use crate::fail::{CommandResult, Exit, Failure};
use crate::local;
use crate::names::Names;
use crate::outfile;
use crate::printer::Printer;
use crate::remote;
use crate::signals::INTERRUPTED;
use crate::submit::array::TASKS_AHEAD;
use crate::submit::elements::{Element, Elements, Kind};
use crate::submit::plan::Plan;
use crate::submit::stream::CapturedOutput;
use crate::submit::target::{Handle, Stopper, Target};

pub use crate::submit::plan::{grants, needs_no_secret, overrides};
pub use crate::submit::report::{file_of, with_place};
pub use crate::submit::script::{interpreter, python_stubs};
pub use crate::submit::stream::{Route, pump, unwritten};
pub use crate::submit::target::{
    grants as wire_grants, limits as wire_limits, terms as wire_terms,
};

/// How many chunks of output may be under way before guests wait.
const CHUNKS_IN_FLIGHT: usize = 64;

pub fn run_script(run: &RunScript, global: &Global, printer: &Printer) -> CommandResult {
    execute(&script::program(run)?, global, printer)
}

pub fn submit(submit: &Submit, global: &Global, printer: &Printer) -> CommandResult {
    let texts = submit.invoke.iter().chain(&submit.args);
    let mut texts = texts.chain(&submit.result_file);
    if !submit.array.is_any() && texts.any(|it| template::has_index(it)) {
        printer.warn(
            "$i is the index of a task of an array, and stays as it is without one: add --array INDICES, where $$ is a \
             dollar sign",
        );
    }
    execute(submit, global, printer)
}

fn execute(submit: &Submit, global: &Global, printer: &Printer) -> CommandResult {
    let submit = &script::interpreted(submit)?;
    let elements = Elements::read(&submit.array)?;
    warn_of_slip(submit, elements.as_ref(), printer);
    check_result_files(submit, elements.as_ref())?;
    let tenant = &submit.task.scheduling.tenant;
    let name = job_name(submit);
    let found = match submit.detach {
        true => Some(remote::connect_for(global, tenant, &name)?),
        // Who says what the node should have wants one of their own.
        false if wants_own_node(&submit.node) => None,
        false => remote::find(global, tenant, &name)?,
    };
    let (target, plan) = match found {
        None => {
            if let Strategy::PlacementGroup { group, .. } = &submit.task.scheduling.strategy {
                return Err(Failure::usage(format!(
                    "there is no placement group {group}: groups live in a running node; start one with \
                     `wasmrun node start`, or use another --strategy"
                )));
            }
            plan::needs_no_secret(&submit.task.grants)?;
            let node = local::start(&submit.node, printer)?;
            let module = local::load(node.engine(), &submit.module, &submit.node, printer)?;
            let client = node.client();
            let names = Names::of(None);
            let plan = Plan::new(submit, elements.as_ref(), &module, node.policy(), names)?;
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
            let policy = Arc::default();
            let plan = Plan::new(submit, elements.as_ref(), &module, policy, names)?;
            let wants_places = printer.output == Output::Json;
            let target = Target::remote(client, submit, &module, &plan.job, wants_places)?;
            (target, plan)
        }
    };
    if let Some(elements) = &elements {
        plan.check(elements)?;
    }
    let run = Run {
        submit,
        elements,
        plan,
        target,
        printer,
    };
    if submit.detach {
        return run.detach();
    }
    cancel_on_interrupt(&run.target.stopper())?;
    let _waiting = waiting::Watch::start(run.target.source(), printer);
    match &run.elements {
        None => run.one(),
        Some(elements) => run.array(elements),
    }
}

/// What people call all that is submitted here: as they say, else as the function or the module's file is called.
fn job_name(submit: &Submit) -> String {
    let function = || submit.invoke.as_ref()?.split('(').next().map(str::trim);
    let file = || Some(submit.module.file_name()?.to_string_lossy().into_owned());
    let named = submit.name.clone();
    let named = named.or_else(|| function().map(ToOwned::to_owned));
    named.or_else(file).unwrap_or_default()
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
fn check_result_files(submit: &Submit, elements: Option<&Elements>) -> Result<(), Failure> {
    let Some(pattern) = &submit.result_file else {
        return Ok(());
    };
    let Some(elements) = elements else {
        return outfile::check(Path::new(pattern));
    };
    if template::names_one(pattern, Kind::names_of(elements.kind())) {
        return Err(Failure::usage(format!(
            "--result-file {pattern}: only $i stands for something in it, since nothing else is sure to be another name \
             for each task"
        )));
    }
    if !template::has_index(pattern) {
        return Err(Failure::usage(format!(
            "all tasks of the array would write to {pattern}: put $i into its name, in single \
             quotes so that the shell leaves it alone"
        )));
    }
    let mut folder = None;
    for element in elements.iter().take(TASKS_AHEAD) {
        let path = report::file_of(pattern, Some(element.index));
        // Most are new files in one folder.
        if folder.as_deref() != path.parent() || path.exists() {
            outfile::check(&path)?;
            folder = path.parent().map(Path::to_owned);
        }
    }
    Ok(())
}

/// Warns of a program's argument that has a mistyped placeholder. In a call it is an error.
fn warn_of_slip(submit: &Submit, elements: Option<&Elements>, printer: &Printer) {
    let names = Kind::names_of(elements.and_then(Elements::kind));
    let mut args = submit.args.iter();
    if let Some((wrong, meant)) = args.find_map(|arg| template::mistyped(arg, names)) {
        printer.warn(format_args!(
            "${wrong} stands for nothing, and stays as it is: did you mean ${meant}? If not, write $${wrong}"
        ));
    }
}

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
    /// What there are tasks for, if they are an array.
    elements: Option<Elements>,
    plan: Plan,
    target: Target,
    printer: &'a Printer,
}

/// A channel for output, and the thread that empties it.
struct Streaming {
    tasks: Stopper,
    chunks: mpsc::Sender<OutputChunk>,
    pump: JoinHandle<io::Result<CapturedOutput>>,
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
    fn finish(self) -> Result<CapturedOutput, Failure> {
        self.tasks.cancel_all();
        drop(self.chunks);
        let written = self.pump.join().expect("the output thread does not panic");
        written.map_err(stream::unwritten)
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
        call.listener = Some(Listener::new(tag, chunks.clone()));
        let handle = self.target.submit(&self.plan.job, call)?;
        if STOPPED.load(Ordering::SeqCst) {
            self.target.cancel(&handle);
        }
        Ok(handle)
    }

    /// Leaves the tasks to the node.
    fn detach(&self) -> CommandResult {
        let mut tasks = Vec::new();
        let count = self.elements.as_ref().map_or(1, Elements::len);
        let job = self.target.detached_job(count).to_string();
        match &self.elements {
            None => self.detach_one(None, &mut tasks)?,
            Some(elements) => {
                let mut elements = elements.iter();
                elements.try_for_each(|element| self.detach_one(Some(element), &mut tasks))?;
            }
        }
        match (self.printer.output, &self.elements, tasks.pop()) {
            (Output::Json, None, Some(mut one)) => {
                one["version"] = 1.into();
                one["job"] = job.into();
                self.printer.json(&one)
            }
            (Output::Json, _, last) => {
                tasks.extend(last);
                self.printer
                    .json(&json!({ "version": 1, "job": job, "tasks": tasks }))
            }
            _ => {
                let short = &job[..8];
                self.printer
                    .note(format_args!("job {short}: wasmrun job show {short}"));
                Ok(())
            }
        }
    }

    /// Leaves one task to the node, and prints its id; for JSON it is kept until all have theirs.
    fn detach_one(&self, element: Option<Element<'_>>, tasks: &mut Vec<Json>) -> CommandResult {
        let mut call = self.plan.call(element)?;
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
        if self.printer.output != Output::Json {
            return self.printer.result(id);
        }
        let index = element.map(|element| element.index);
        let mut task = json!({ "task_id": id.to_string(), "array_index": index });
        if let Some(item) = element.and_then(|element| element.item) {
            task["input"] = item.json();
        }
        tasks.push(task);
        Ok(())
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
                Route::Files {
                    path: Box::new(move |_| path.clone()),
                    is_array: false,
                }
            }
            (Output::Quiet, _) => Route::Drop,
            (Output::Table, _) if self.is_program() => Route::Through,
            (Output::Table, _) => Route::Aside,
        };
        let streaming = Streaming::start(route, self.target.stopper())?;
        let handle = self.send(call, &streaming.chunks)?;
        let ended = self.target.wait(handle)?;
        let report = &ended.report;
        let captured = streaming.finish()?;
        self.detail(report, None);
        if self.printer.output == Output::Json {
            let mut object = self.json(&ended, None, &captured);
            object["version"] = 1.into();
            self.print_json(&object)?;
            self.keep_stdout(&captured)
                .try_for_each(|(_, written)| written)?;
        }
        if has_run(report) {
            self.make_empty_files(&captured, &[None])
                .try_for_each(|(_, made)| made)?;
        }
        match &report.result {
            Ok(_) => self.print_result(report, None),
            Err(error) => Err(self.failed(error, &ended)),
        }
    }
}
