//! What a task asks for in the end: flags before the module's manifest before defaults.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::{Entry, Grants, Limits, Module};
use wasmrun_model::cluster::{Selectors, Strategy};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::manifest::{Asked, FunctionSettings, HTTP, PROGRAM};
use wasmrun_model::resource::{Request, RequestError, ResourceName, ResourceSet};
use wasmrun_model::task::{Rule, Terms, alternative};

use crate::records::job::{Derived, Job};
use crate::records::policy::{Policy, TooMuch};

/// What the submitter says, over what the module declares.
#[derive(Debug, Clone)]
pub struct Overrides {
    /// Amounts in place of the declared ones.
    pub resources: Asked,
    /// Whose share pays for it.
    pub tenant: TenantName,
    /// Higher goes first among the tasks of the tenant.
    pub priority: i32,
    /// How often it is tried again after a trap, an exit code or a limit, in place of what is
    /// declared.
    pub retries: Option<u32>,
    /// Whether it is tried again, too, after an error that its function returns, in place of what is declared.
    pub retry_on_error: Option<bool>,
    /// Whether it is not to be paused or stopped for others.
    pub no_preempt: bool,
    /// What labels the node must have.
    pub selectors: Selectors,
    /// How the node is chosen.
    pub strategy: Strategy,
    /// A time limit in place of the declared one.
    pub time_limit: Option<Duration>,
    /// The most output, in bytes.
    pub output_bytes: u64,
    /// The largest arguments, in bytes.
    pub argument_bytes: u64,
    /// The largest result, in bytes.
    pub result_bytes: u64,
    /// What the node gives and allows: see [`crate::Node::policy`].
    pub policy: Arc<Policy>,
}

impl Default for Overrides {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            resources: Asked::default(),
            tenant: TenantName::default(),
            priority: 0,
            retries: None,
            retry_on_error: None,
            no_preempt: false,
            selectors: Selectors::default(),
            strategy: Strategy::default(),
            time_limit: None,
            output_bytes: limits.output,
            argument_bytes: limits.arguments,
            result_bytes: limits.result,
            policy: Arc::default(),
        }
    }
}

/// Why there can be no such job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// No node could ever be asked for this.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The node gives no task that much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

impl Job {
    /// A job that runs `entry` of `module` with what the module declares, but for `overrides`.
    ///
    /// # Errors
    /// When it asks for what cannot be asked for, such as 1.5 CPUs, or for more than the node gives a task.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        entry: Entry,
        overrides: &Overrides,
        grants: Grants,
    ) -> Result<Self, JobError> {
        let full_name = match entry {
            Entry::Program => PROGRAM.to_owned(),
            Entry::Http => HTTP.to_owned(),
            Entry::Function(index) => module.function(index).full_name(),
        };
        let declared: Vec<&FunctionSettings> = module.manifest().settings(&full_name).collect();
        let policy = overrides.policy.clone();
        let mut asked = policy.task();
        // From the general to the particular, so that the particular wins.
        declared
            .iter()
            .rev()
            .for_each(|settings| settings.resources.apply_to(&mut asked));
        let declared_alternatives = declared.iter().find(|it| !it.alternatives.is_empty());
        let mut alternatives = vec![asked];
        if let Some(settings) = declared_alternatives
            && !overrides.resources.names_units()
        {
            let variants = settings.alternatives.iter();
            let variants: Vec<ResourceSet> = variants
                .map(|variant| alternative(&alternatives[0], variant))
                .collect();
            alternatives.extend(variants);
        }
        for asked in &mut alternatives {
            overrides.resources.apply_to(asked);
            policy.check("task", asked)?;
        }
        let memory = alternatives[0].get(&ResourceName::MEMORY).whole_units();
        let requests: Result<Vec<Request>, RequestError> =
            alternatives.into_iter().map(Request::new).collect();
        let declared_retries = declared.iter().find_map(|settings| settings.retries);
        let declared_on_error = declared.iter().find_map(|settings| settings.retry_on_error);
        let retry_on_error = overrides.retry_on_error.or(declared_on_error);
        let declared_time = declared.iter().find_map(|settings| settings.time_limit);
        let declared_time = declared_time.map(|limit| Duration::from_millis(limit.ms));
        let time = policy.task_time(overrides.time_limit.or(declared_time))?;
        let terms = Terms {
            tenant: overrides.tenant.clone(),
            priority: overrides.priority,
            retries: overrides.retries.or(declared_retries).unwrap_or(0),
            retry_on_error: retry_on_error.unwrap_or(false),
            no_preempt: overrides.no_preempt,
            rule: Arc::new(Rule {
                alternatives: requests?,
                selectors: overrides.selectors.clone(),
                strategy: overrides.strategy.clone(),
                // Matters only where there are several nodes.
                module: None,
            }),
        };
        Ok(Self {
            name: name.into(),
            module: module.clone(),
            entry,
            terms: Arc::new(terms),
            limits: Limits {
                memory,
                output: overrides.output_bytes,
                arguments: overrides.argument_bytes,
                result: overrides.result_bytes,
                time,
            },
            grants,
            policy,
            derived: Derived::default(),
        })
    }
}
