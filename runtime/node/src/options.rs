//! What a task asks for in the end: flags before the module's manifest before defaults.

use std::time::Duration;

use wasmrun_engine::{Entry, Grants, Limits, Module};
use wasmrun_model::manifest::{Asked, FunctionSettings, PROGRAM};
use wasmrun_model::resource::{Amount, Request, RequestError, ResourceName, ResourceSet};

use crate::task::Job;

/// The CPU of a task that says nothing.
const DEFAULT_CPU: Amount = Amount::units(1);
/// The memory of a task that says nothing: 256 MiB.
const DEFAULT_MEMORY: Amount = Amount::units(256 << 20);

/// What the submitter says, over what the module declares.
#[derive(Debug, Clone)]
pub struct Overrides {
    /// Amounts in place of the declared ones.
    pub resources: Asked,
    /// A time limit in place of the declared one.
    pub time_limit: Option<Duration>,
    /// The most output, in bytes.
    pub output_bytes: u64,
    /// The largest arguments, in bytes.
    pub argument_bytes: u64,
    /// The largest result, in bytes.
    pub result_bytes: u64,
}

impl Default for Overrides {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            resources: Asked::default(),
            time_limit: None,
            output_bytes: limits.output,
            argument_bytes: limits.arguments,
            result_bytes: limits.result,
        }
    }
}

/// Why there can be no such job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No node could ever be asked for this.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Job {
    /// A job that runs `entry` of `module` with what the module declares, but for `overrides`.
    ///
    /// # Errors
    /// When it asks for what cannot be asked for, such as 1.5 CPUs.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        entry: Entry,
        overrides: &Overrides,
        grants: Grants,
    ) -> Result<Self, JobError> {
        let full_name = match entry {
            Entry::Program => PROGRAM.to_owned(),
            Entry::Function(index) => module.function(index).full_name(),
        };
        let declared: Vec<&FunctionSettings> = module.manifest().settings(&full_name).collect();
        let mut asked = ResourceSet::new()
            .with(ResourceName::CPU, DEFAULT_CPU)
            .with(ResourceName::MEMORY, DEFAULT_MEMORY);
        // From the general to the particular, so that the particular wins.
        declared
            .iter()
            .rev()
            .for_each(|settings| settings.resources.apply_to(&mut asked));
        overrides.resources.apply_to(&mut asked);
        let declared_time = declared.iter().find_map(|settings| settings.time_limit);
        let memory = asked.get(&ResourceName::MEMORY).whole_units();
        Ok(Self {
            name: name.into(),
            module: module.clone(),
            entry,
            request: Request::new(asked)?,
            limits: Limits {
                memory,
                output: overrides.output_bytes,
                arguments: overrides.argument_bytes,
                result: overrides.result_bytes,
                time: overrides
                    .time_limit
                    .or(declared_time.map(|limit| Duration::from_millis(limit.ms))),
            },
            grants,
        })
    }
}
