//! From what was typed, and the module, to a job and its calls.
//!
//! Everything about the arguments is checked here, before anything runs.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use wasmrun_engine::{Entry, FunctionIndex, Grants, Input, Module, NetGrant};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::wave::Invocation;
use wasmrun_model::value::{Encoded, FunctionType, NumberKind, NumberList, Value, ValueType};
use wasmrun_node::{Call, Job, JobError, Overrides, Policy};

use crate::args::{ArgFile, Submit};
use crate::fail::{Exit, Failure};
use crate::local;
use crate::names::Names;

/// The largest file that is read into memory, in bytes.
pub const FILE_BYTES: u64 = 1 << 30;

/// What to run, once or per index.
pub struct Plan {
    pub job: Arc<Job>,
    /// The program's name as its guest sees it.
    program: String,
    invoke: Option<String>,
    files: Vec<(usize, Encoded)>,
    args: Vec<String>,
    input: Option<Bytes>,
    /// What the arguments name, until we go.
    names: Names,
}

impl Plan {
    /// `policy`: of the node, where we know it; a node elsewhere has its own.
    pub fn new(
        submit: &Submit,
        module: &Module,
        policy: Arc<Policy>,
        names: Names,
    ) -> Result<Self, Failure> {
        let entry = entry(submit, module)?;
        let program = submit
            .module
            .file_name()
            .map_or("program".into(), |name| name.to_string_lossy().into_owned());
        let what = match entry {
            Entry::Program => program.clone(),
            Entry::Function(index) => module.function(index).name.clone(),
        };
        let scheduling = &submit.task.scheduling;
        // It may run on any node, where nothing is to be had as it comes.
        let is_grouped = matches!(scheduling.strategy, Strategy::PlacementGroup { .. });
        let overrides = Overrides {
            resources: submit.task.request.asked()?,
            tenant: scheduling.tenant.clone(),
            priority: scheduling.priority,
            retries: scheduling.retries,
            retry_on_error: scheduling.retry_on_error,
            selectors: scheduling.label_selector.clone().unwrap_or_default(),
            strategy: scheduling.strategy.clone(),
            time_limit: submit.task.limits.time_limit,
            output_bytes: submit.task.limits.max_output,
            argument_bytes: submit.task.limits.max_arguments,
            result_bytes: submit.task.limits.max_result,
            policy,
        };
        let name = submit.name.clone().unwrap_or(what);
        let job =
            Job::new(name, module, entry, &overrides, grants(submit)?).map_err(
                |error| match error {
                    JobError::TooMuch(_) => Failure::new(Exit::Unschedulable, error),
                    error => Failure::new(Exit::Usage, error),
                },
            )?;
        let files = submit.arg_file.iter();
        let files = files
            .map(|file| file_argument(file, module, entry, submit))
            .collect();
        // One task reads it as it comes; many read the same bytes, and so do many attempts.
        let is_read_often = submit.array.is_some() || job.terms.retries > 0 || is_grouped;
        let shared = submit.stdin.as_deref().filter(|_| is_read_often);
        let input = shared.map(|path| {
            let bytes = local::read_file(path, FILE_BYTES, "a smaller file, or --dir");
            bytes.with_context(|| format!("cannot read {} for --stdin", path.display()))
        });
        let reads_ours = entry == Entry::Program && submit.array.is_none();
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
            invoke: submit.invoke.clone(),
            files: Result::<_, Failure>::from_iter::<Vec<_>>(files)?,
            args: submit.args.clone(),
            input: input.transpose()?.map(Bytes::from),
            names,
        })
    }

    /// The call for one index, or for a task that is not one of an array.
    pub fn call(&self, index: Option<u64>) -> Result<Call, Failure> {
        let input = self.input.clone().map_or(Input::Empty, Input::Bytes);
        let call = Call {
            array_index: index,
            input,
            ..Call::default()
        };
        let fill = |text: &str| match index {
            Some(index) => substitute(text, index),
            None => text.to_owned(),
        };
        match (self.job.entry, &self.invoke) {
            (Entry::Function(function), Some(invoke)) => {
                let ty = &self.job.module.function(function).ty;
                Ok(Call {
                    values: self
                        .values(&fill(invoke), ty)?
                        .into_iter()
                        .map(Into::into)
                        .collect(),
                    ..call
                })
            }
            _ => {
                let args = self.args.iter().map(|arg| fill(arg));
                Ok(Call {
                    args: [self.program.clone()].into_iter().chain(args).collect(),
                    ..call
                })
            }
        }
    }

    /// The arguments of a call: those from files at their positions, the others in order.
    fn values(&self, invoke: &str, ty: &FunctionType) -> Result<Vec<Encoded>, Failure> {
        let invocation = Invocation::parse(invoke)
            .with_context(|| format!("cannot read the call '{}'", shorten(invoke)))?;
        let from_file = |at: usize| self.files.iter().find(|(position, _)| *position == at);
        let written = ty
            .params()
            .iter()
            .enumerate()
            .filter(|(at, _)| from_file(*at).is_none());
        let written = written.map(|(_, param)| param.clone());
        let written = FunctionType::new(written, ty.result().cloned())?;
        let mut values = self
            .names
            .arguments(&invocation, &written, ty)?
            .into_iter()
            .zip(written.params());
        let at = |at: usize| match from_file(at) {
            Some((_, encoded)) => Ok(encoded.clone()),
            None => {
                let (value, (_, ty)) = values.next().expect("as many as were asked for");
                self.names.encode(ty, &value)
            }
        };
        (0..ty.params().len()).map(at).collect()
    }
}

/// The beginning of a text, where it is long.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn entry(submit: &Submit, module: &Module) -> Result<Entry, Failure> {
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
    let first = submit
        .array
        .as_ref()
        .and_then(|indices| indices.iter().next());
    let invoke = first.map_or(invoke.clone(), |first| substitute(invoke, first));
    let invocation = Invocation::parse(&invoke)
        .with_context(|| format!("cannot read the call '{}'", shorten(&invoke)))?;
    Ok(Entry::Function(module.find(invocation.name())?))
}

fn grants(submit: &Submit) -> Result<Grants, Failure> {
    submit.task.grants.check_dirs()?;
    let grants = Grants {
        env: submit
            .task
            .grants
            .env
            .iter()
            .map(|e| (e.0.clone(), e.1.clone()))
            .collect(),
        dirs: submit
            .task
            .grants
            .dir
            .iter()
            .map(|dir| dir.0.clone())
            .collect(),
        net: submit
            .task
            .grants
            .net
            .as_ref()
            .map_or(NetGrant::None, |net| net.0.clone()),
    };
    grants
        .check()
        .context("cannot give that to the guest (--dir)")?;
    Ok(grants)
}

fn file_argument(
    file: &ArgFile,
    module: &Module,
    entry: Entry,
    submit: &Submit,
) -> Result<(usize, Encoded), Failure> {
    let Entry::Function(index) = entry else {
        return Err(Failure::usage("--arg-file gives a function's argument"));
    };
    let (at, function) = (file.position - 1, module.function(index));
    let flag = format!("--arg-file {}={}", file.position, file.path.display());
    let Some((name, ty)) = function.ty.params().get(at) else {
        return Err(Failure::usage(format!(
            "{flag}: {} takes {} arguments: {}",
            function.name,
            function.ty.params().len(),
            function.ty
        )));
    };
    if submit
        .arg_file
        .iter()
        .filter(|other| other.position == file.position)
        .count()
        > 1
    {
        return Err(Failure::usage(format!(
            "{flag}: argument {} is given twice",
            file.position
        )));
    }
    // What is too large for an argument, the engine says better; but a device may have no end.
    let bytes = local::read_file(&file.path, FILE_BYTES, "a smaller file, or --dir")
        .with_context(|| format!("{flag}: cannot read the file"))?;
    Ok((at, encode(ty, &file_value(ty, bytes, &flag, name)?)?))
}

fn file_value(ty: &ValueType, bytes: Vec<u8>, flag: &str, name: &str) -> Result<Value, Failure> {
    match (ty.buffer_kind(), ty) {
        (Some(NumberKind::U8), _) => {
            let list = NumberList::from_le_bytes(NumberKind::U8, bytes);
            Ok(Value::Numbers(list.expect("bytes are whole elements")))
        }
        (Some(kind), _) => {
            let length = bytes.len();
            NumberList::from_le_bytes(kind, bytes)
                .map(Value::Numbers)
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "{flag}: the file has {length} bytes, not a whole number of {kind} \
                     (little-endian, {} bytes each)",
                        kind.width_bytes()
                    ))
                })
        }
        (None, ValueType::String) => String::from_utf8(bytes).map(Value::String).map_err(|_| {
            Failure::usage(format!(
                "{flag}: the file is not UTF-8 text, and {name} is a string"
            ))
        }),
        (None, ty) => Err(Failure::usage(format!(
            "{flag}: {name} is {ty}; only strings and lists of numbers can come from a file"
        ))),
    }
}

/// The text with `$i` and `${i}` replaced by the index. `$$` is a dollar sign.
pub fn substitute(text: &str, index: u64) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len() + 8), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let goes_on = |after: &str| after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let taken = if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest.len() - after.len()
        } else if rest.starts_with("${i}") {
            out.push_str(&index.to_string());
            "${i}".len()
        } else if rest.starts_with("$i") && !goes_on(&rest[2..]) {
            out.push_str(&index.to_string());
            "$i".len()
        } else {
            out.push('$');
            1
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

/// The function whose result type tells how to print a report's result.
pub fn result_type(module: &Module, entry: Entry) -> Option<&ValueType> {
    match entry {
        Entry::Function(index) => function_result(module, index),
        Entry::Program => None,
    }
}

fn function_result(module: &Module, index: FunctionIndex) -> Option<&ValueType> {
    module.function(index).ty.result()
}

#[cfg(test)]
mod tests {
    use super::substitute;

    #[test]
    fn indices_are_filled_in() {
        assert_eq!(substitute("f($i, \"$i\", ${i}0)", 7), "f(7, \"7\", 70)");
        assert_eq!(substitute("$index $$i $", 7), "$index $i $");
        assert_eq!(substitute("part-$i.bin", 7), "part-7.bin");
    }
}
