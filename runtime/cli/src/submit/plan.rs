//! From what was typed, and the module, to a job and its calls.
//!
//! Everything about the arguments is checked here, before anything runs.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use wasmrun_engine::{Entry, FunctionIndex, Grants, Input, Module, NetGrant};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::trace::TraceContext;
use wasmrun_model::value::ValueType;
use wasmrun_node::{Call, Job, JobError, Overrides, Policy};

use crate::args::{GrantOptions, Submit, TaskOptions};
use crate::fail::{Exit, Failure};
use crate::local;
use crate::names::Names;
use crate::submit::arguments::{Arguments, function_of};
use crate::submit::elements::{Element, Elements};
use crate::submit::template;

/// The largest file that is read into memory, in bytes.
pub const FILE_BYTES: u64 = 1 << 30;

/// What to run, once or per index.
pub struct Plan {
    pub job: Arc<Job>,
    /// The program's name as its guest sees it.
    program: String,
    /// A function's.
    arguments: Option<Arguments>,
    /// A program's.
    args: Vec<String>,
    /// Whether the item of each element is the last argument: none of these names it.
    appends: bool,
    input: Option<Bytes>,
    trace: Option<TraceContext>,
    /// What the arguments name, until we go.
    names: Names,
}

impl Plan {
    /// `policy`: of the node, where we know it; a node elsewhere has its own.
    pub fn new(
        submit: &Submit,
        elements: Option<&Elements>,
        module: &Module,
        policy: Arc<Policy>,
        names: Names,
    ) -> Result<Self, Failure> {
        let entry = entry(submit, elements, module)?;
        let kind = elements.and_then(Elements::kind);
        let program = submit
            .module
            .file_name()
            .map_or("program".into(), |name| name.to_string_lossy().into_owned());
        let what = match entry {
            Entry::Program | Entry::Http => program.clone(),
            Entry::Function(index) => module.function(index).name.clone(),
        };
        // It may run on any node, where nothing is to be had as it comes.
        let is_grouped = matches!(
            submit.task.scheduling.strategy,
            Strategy::PlacementGroup { .. }
        );
        let overrides = overrides(&submit.task, policy)?;
        let name = submit.name.clone().unwrap_or(what);
        let job = Job::new(
            name,
            module,
            entry,
            &overrides,
            grants(&submit.task.grants)?,
        )
        .map_err(|error| match error {
            JobError::TooMuch(_) => Failure::new(Exit::Unschedulable, error),
            error => Failure::new(Exit::Usage, error),
        })?;
        let arguments = match (entry, &submit.invoke) {
            (Entry::Function(index), Some(invoke)) => {
                let function = module.function(index);
                Some(Arguments::new(submit, invoke, kind, function)?)
            }
            _ => None,
        };
        // One task reads it as it comes; many read the same bytes, and so do many attempts.
        let is_read_often = elements.is_some() || job.terms.retries > 0 || is_grouped;
        let shared = submit.stdin.as_deref().filter(|_| is_read_often);
        let input = shared.map(|path| {
            let bytes = local::read_file(path, FILE_BYTES, "a smaller file, or --dir");
            bytes.with_context(|| format!("cannot read {} for --stdin", path.display()))
        });
        let reads_ours = entry == Entry::Program && elements.is_none();
        let input = match input {
            None if reads_ours
                && submit.stdin.is_none()
                && (job.terms.retries > 0 || is_grouped) =>
            {
                Some(local::read_stdin(FILE_BYTES))
            }
            input => input,
        };
        Ok(Self {
            job: Arc::new(job),
            program,
            arguments,
            appends: kind.is_some_and(|kind| {
                let mut args = submit.args.iter();
                !args.any(|arg| template::names_one(arg, kind.names()))
            }),
            args: submit.args.clone(),
            input: input.transpose()?.map(Bytes::from),
            trace: submit.task.trace.context(),
            names,
        })
    }

    /// The call for one element of an array, or for a task that is not one of an array.
    pub fn call(&self, element: Option<Element<'_>>) -> Result<Call, Failure> {
        let call = Call {
            array_index: element.map(|element| element.index),
            input: self.input.clone().map_or(Input::Empty, Input::Bytes),
            trace: self.trace.clone(),
            ..Call::default()
        };
        if let (Entry::Function(function), Some(arguments)) = (self.job.entry, &self.arguments) {
            let function = self.job.module.function(function);
            let values = arguments.values(function, element, &self.names)?;
            return Ok(Call {
                values: values.into_iter().map(Into::into).collect(),
                ..call
            });
        }
        let args = self.args.iter().map(|arg| match element {
            Some(element) => template::fill(arg, |name| element.text_of(name)),
            None => arg.clone(),
        });
        let item = element.and_then(|element| element.item);
        let last = item.filter(|_| self.appends);
        let last = last.and_then(|item| item.text_of(item.kind.name()));
        let program = [self.program.clone()].into_iter();
        Ok(Call {
            args: program.chain(args).chain(last).collect(),
            ..call
        })
    }

    /// Makes each call of an array once, so that an element that does not fit is found before anything runs. Of indices
    /// alone nothing was read that could be wrong.
    pub fn check(&self, elements: &Elements) -> Result<(), Failure> {
        if elements.kind().is_none() {
            return Ok(());
        }
        let mut elements = elements.iter();
        elements.try_for_each(|element| self.call(Some(element)).map(drop))
    }
}

fn entry(submit: &Submit, elements: Option<&Elements>, module: &Module) -> Result<Entry, Failure> {
    let path = submit.module.display();
    let Some(invoke) = &submit.invoke else {
        if !submit.arg_file.is_empty() {
            return Err(Failure::usage(
                "--arg-file gives a function's argument: name the function with --invoke",
            ));
        }
        if module.program().is_some() {
            return Ok(Entry::Program);
        }
        let functions = module.functions();
        let hint = match functions {
            _ if module.is_http_handler() => {
                format!("it answers HTTP requests: `wasmrun serve {path}`")
            }
            [] => "it has no function that can be a task either".to_owned(),
            [first, ..] => format!(
                "call one of its functions, for example --invoke '{}({})'",
                first.full_name(),
                first
                    .ty
                    .params()
                    .iter()
                    .map(|(name, _)| &**name)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        };
        return Err(Failure::usage(format!(
            "{path} has no program to run; {hint}"
        )));
    };
    if !submit.args.is_empty() {
        return Err(Failure::usage(
            "arguments after -- are for a program: write a function's into --invoke 'f(…)'",
        ));
    }
    // Any index will do to see which function is meant.
    let first = elements.and_then(|elements| elements.iter().next());
    let kind = elements.and_then(Elements::kind);
    let name = function_of(invoke, first.map(|element| element.index), kind)?;
    Ok(Entry::Function(module.find(&name)?))
}

/// What was typed of tasks, over what their module declares.
pub fn overrides(task: &TaskOptions, policy: Arc<Policy>) -> Result<Overrides, Failure> {
    let (scheduling, limits) = (&task.scheduling, &task.limits);
    Ok(Overrides {
        resources: task.request.asked()?,
        tenant: scheduling.tenant.clone(),
        priority: scheduling.priority,
        retries: scheduling.retries,
        retry_on_error: scheduling.retry_on_error,
        // In a node of its own there is nobody to be paused for.
        no_preempt: false,
        selectors: scheduling.label_selector.clone().unwrap_or_default(),
        strategy: scheduling.strategy.clone(),
        time_limit: limits.time_limit,
        output_bytes: limits.max_output,
        argument_bytes: limits.max_arguments,
        result_bytes: limits.max_result,
        policy,
    })
}

/// Refuses secrets for the node inside this command.
pub fn needs_no_secret(options: &GrantOptions) -> Result<(), Failure> {
    match options.secret.first() {
        None => Ok(()),
        Some(secret) => Err(Failure::usage(format_args!(
            "there is no secret {}: the node inside this command has none; start one with `wasmrun node start`, and set it with \
             `wasmrun secret set`",
            secret.name
        ))),
    }
}

/// What was granted, but for secrets.
pub fn grants(options: &GrantOptions) -> Result<Grants, Failure> {
    options.check_dirs()?;
    let grants = Grants {
        env: options
            .env
            .iter()
            .map(|e| (e.0.clone(), e.1.clone()))
            .collect(),
        dirs: options.dir.iter().map(|dir| dir.0.clone()).collect(),
        net: options
            .net
            .as_ref()
            .map_or(NetGrant::None, |net| net.0.clone()),
        http: options.http.clone(),
        ..Grants::default()
    };
    grants
        .check()
        .context("cannot give that to the guest (--dir)")?;
    Ok(grants)
}

/// The function whose result type tells how to print a report's result.
pub fn result_type(module: &Module, entry: Entry) -> Option<&ValueType> {
    match entry {
        Entry::Function(index) => function_result(module, index),
        Entry::Program | Entry::Http => None,
    }
}

fn function_result(module: &Module, index: FunctionIndex) -> Option<&ValueType> {
    module.function(index).ty.result()
}
