//! What can be typed about what the node gives and allows each task and actor.

use std::time::Duration;

use clap::Args;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_node::PolicyConfig;

use super::{ResourceArg, amount, asked_once, duration, memory};
use crate::fail::Failure;

/// Defaults and maxima of the node for each task and actor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Node options: defaults and maxima")]
pub struct PolicyOptions {
    /// CPUs of a task that says nothing [default: 1].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub default_cpus: Option<Amount>,
    /// Memory of a task that says nothing [default: 256MiB].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub default_memory: Option<Amount>,
    /// Time limit of a task that says nothing.
    ///
    /// [default: --max-time-limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub default_time_limit: Option<Duration>,
    /// CPUs of an actor that says nothing [default: 0].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub default_actor_cpus: Option<Amount>,
    /// Memory of an actor that says nothing [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub default_actor_memory: Option<Amount>,
    /// The most CPUs that a task or actor may ask for.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub max_cpus: Option<Amount>,
    /// The most GPUs that a task or actor may ask for.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub max_gpus: Option<Amount>,
    /// The most memory that a task or actor may ask for.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_memory: Option<Amount>,
    /// The most of any other resource that one may ask for.
    ///
    /// Repeatable.
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub max_resource: Vec<ResourceArg>,
    /// The longest time limit that one may ask for.
    ///
    /// That is for tasks, constructors and calls; those that ask for none get it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_time_limit: Option<Duration>,
    /// How many tasks of one may be in flight [default: 1000000].
    ///
    /// Tasks, calls and actors that one task has started, and that have not ended.
    #[arg(long, value_name = "COUNT")]
    pub max_nested: Option<u64>,
}

impl PolicyOptions {
    /// What they say.
    ///
    /// # Errors
    /// One resource has two limits.
    pub fn config(&self) -> Result<PolicyConfig, Failure> {
        let (cpu, memory) = (ResourceName::CPU, ResourceName::MEMORY);
        let most = [
            (cpu.clone(), self.max_cpus),
            (ResourceName::GPU, self.max_gpus),
            (memory.clone(), self.max_memory),
        ];
        let most = asked_once(most, &self.max_resource)?;
        let tasks = [
            (cpu.clone(), self.default_cpus),
            (memory.clone(), self.default_memory),
        ];
        let actors = [
            (cpu, self.default_actor_cpus),
            (memory, self.default_actor_memory),
        ];
        Ok(PolicyConfig {
            task: asked_once(tasks, &[])?,
            actor: asked_once(actors, &[])?,
            task_time: self.default_time_limit,
            most,
            most_time: self.max_time_limit,
            most_nested: self.max_nested,
        })
    }
}
