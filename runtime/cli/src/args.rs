//! What can be typed: commands and their options.
//!
//! Everything is checked here as far as it can be without a module: what comes out is typed.

#![allow(
    rustdoc::invalid_html_tags,
    reason = "these comments are the command's help, where list<u8> is no tag"
)]

mod amount;
mod array;
mod audit;
mod bench;
mod clients;
mod dashboard;
mod global;
mod grants;
mod groups;
mod hints;
mod jobs;
mod json;
mod mcp;
mod new;
mod policy;
mod scheduling;
mod scripts;
mod secrets;
mod serve;
mod simulate;
mod tenants;
mod things;
mod trace;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use wasmrun_engine::CompileTask;
use wasmrun_model::cluster::{NodeName, Selectors, Strategy};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};

use crate::fail::Failure;

pub use self::array::ArrayOptions;
pub use self::audit::{Audit, AuditCommand, AuditOptions};
pub use self::bench::{Bench, IdleNode};
pub use self::clients::ClientCommand;
pub use self::dashboard::{Dashboard, PageOptions};
pub use self::global::{Global, Output};
pub use self::grants::GrantOptions;
pub use self::groups::{GroupCommand, GroupCreate, SpecArg};
pub use self::hints::{are_addresses, hint};
pub use self::jobs::{JobCommand, JobId, JobIds, JobRerun, JobWait, LogOptions, Logs, Timeline};
pub use self::json::{JsonArg, check_json, is_json};
pub use self::mcp::Mcp;
pub use self::new::{New, ProjectLanguage};
pub use self::policy::PolicyOptions;
pub use self::scheduling::{SchedulingCommand, SettingArg};
pub use self::scripts::{Language, RunScript, Stubs};
pub use self::secrets::SecretCommand;
pub use self::serve::{Serve, ServiceCommand};
pub use self::simulate::Simulate;
pub use self::tenants::{AllowArg, TenantCommand, TenantSet};
pub use self::things::{
    ActorCommand, ActorCreate, COLLECTOR, ClusterOptions, Doctor, FilterArg, Id, ListOptions,
    ListThings, Login, NodeCommand, NodeStart, ObjectCommand, Put, ResourceCommand, Things,
    TokenCommand, WatchOptions,
};
pub use self::trace::TraceOptions;
pub use self::words::{ArgFile, DirArg, EnvArg, Indices, LabelArg, MAX_ARRAY, NetArg, ResourceArg};

use self::words::{amount, duration, memory, size};

/// Run sandboxed WebAssembly tasks with the resources they declare.
///
/// Without a cluster, a command starts a node inside its own process: `wasmrun submit x.wasm`
/// just works.
#[derive(Debug, Parser)]
#[command(
    name = "wasmrun",
    version,
    max_term_width = 100,
    propagate_version = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a module: stream its output, print its result.
    Submit(Box<Submit>),
    /// Run a script in a sandbox: Python, JavaScript or TypeScript; or Python that is given with -c.
    Run(Box<RunScript>),
    /// Write a project that makes a module: tasks and an actor in a language, ready to build.
    New(New),
    /// Write a module's functions and types for type checkers of Python or for TypeScript, or as Rust code for drivers.
    Stubs(Stubs),
    /// Offer functions of modules, and Python, as tools to agents: a server of the Model Context Protocol.
    Mcp(Box<Mcp>),
    /// Answer HTTP requests with a module, each in a sandbox of its own.
    ///
    /// Unless the module or an option says otherwise, a request asks for 0.1 of a CPU and may take 60s.
    Serve(Box<Serve>),
    /// List and end services that a node serves.
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Show what a module exports, imports and declares.
    Inspect(Inspect),
    /// Write into a module what its functions need.
    Annotate(Annotate),
    /// Plan a cluster: run a scenario of nodes and tasks in virtual time, or record one of what has run.
    Simulate(Simulate),
    /// Measure this machine: tasks per second, latencies, start-up.
    Bench(Bench),
    /// Check whether this machine is fit to run tasks, and fast, and whether a node can listen here.
    Doctor(Doctor),
    /// Start and stop the node of this machine that other commands find, and see to its cluster.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Make a link to the page of the running node, and open it.
    ///
    /// The link lets one browser in, once, within ten minutes.
    Dashboard(Dashboard),
    /// Get a certificate with a token, to use a cluster from another machine with --address.
    Login(Login),
    /// Show who a node takes us for: name, role and tenants.
    Whoami {
        /// The tenant of the session.
        #[arg(long, value_name = "TENANT", default_value_t)]
        tenant: TenantName,
    },
    /// Show the running node: resources, tasks, objects.
    Status {
        /// Show what the schedulers of all nodes have instead: queues by state and by what is asked for, tenants, load.
        #[arg(long)]
        scheduler: bool,
        /// Show it anew every second, until Ctrl-C.
        #[arg(long, short)]
        watch: bool,
    },
    /// Watch the cluster live: jobs, tasks, nodes, tenants, actors and objects.
    Top,
    /// List what a running node has.
    List(ListThings),
    /// Show all about one task, job, actor or object.
    Get(Id),
    /// Say where a task, a job, an actor or a placement group stands, and why it does not run or is not ready.
    Explain(Id),
    /// Cancel a task and all that it has started, or all tasks of a job, or end an actor.
    Cancel(Id),
    /// Print what is kept of the output of a detached task, of those of a job, or of an actor.
    Logs(Logs),
    /// List jobs, wait for them, get their results and logs: what one session or one detached submission has started.
    Job {
        #[command(subcommand)]
        command: JobCommand,
    },
    /// Write what ran where and when as a trace, for Perfetto or chrome://tracing.
    Timeline(Timeline),
    /// Store a file as an object; print its id.
    Put(Put),
    /// Get, list and delete objects that are kept.
    Object {
        #[command(subcommand)]
        command: ObjectCommand,
    },
    /// Create, call and end actors.
    Actor {
        #[command(subcommand)]
        command: ActorCommand,
    },
    /// Reserve bundles of resources together, for tasks and actors to run in.
    Group {
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// List the clients of the cluster, and take their certificates back.
    Client {
        #[command(subcommand)]
        command: ClientCommand,
    },
    /// Set, list and remove secrets of a tenant: what its tasks get and nobody else is to read.
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// Show who has changed what in the cluster, from where and when.
    Audit(Audit),
    /// Say what tenants are due of the cluster, and what they may have: weights, guaranteed minima and quotas.
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// Show or change how the cluster schedules: the policy between tenants, and the numbers of the strategies.
    Scheduling {
        #[command(subcommand)]
        command: Option<SchedulingCommand>,
    },
    /// A node that does nothing, for `bench` to weigh.
    #[command(hide = true)]
    IdleNode(IdleNode),
    /// Compiles a module for another wasmrun, which has started this one to be limited.
    #[command(hide = true)]
    CompileModule { task: CompileTask },
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// Settings of the node that runs inside the command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Node options")]
pub struct NodeOptions {
    /// CPUs that the node offers [default: those of this machine].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub node_cpus: Option<Amount>,
    /// GPUs that the node offers [default: those the driver lists].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub node_gpus: Option<Amount>,
    /// Memory that it offers to tasks [default: most that there is].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub node_memory: Option<Amount>,
    /// Memory for objects [default: 30 % of this machine's].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub object_memory: Option<u64>,
    /// Keep objects in files in this folder [default: in memory].
    ///
    /// It may be on a disk or on huge pages.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub object_dir: Option<PathBuf>,
    /// How long a value waits for room [default: 30s].
    ///
    /// After that the task that makes it fails, or `put`.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub put_wait: Option<Duration>,
    /// Where objects go when memory for them is full.
    ///
    /// Without it they stay, and who makes more waits.
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,
    /// How much may go there.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64GiB", requires = "spill_dir")]
    pub spill_size: u64,
    /// Another resource: NAME=COUNT (with ids) or NAME=sum:AMOUNT.
    ///
    /// Repeatable.
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub node_resource: Vec<String>,
    /// What the node is called [default: the host's name].
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<NodeName>,
    /// A label of the node, for --label-selector.
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<LabelArg>,
    /// The folder of compiled code, or `none` [default: the user's].
    ///
    /// It may be in WASMRUN_CACHE_DIR instead. Without any it is wasmrun in the user's folder for caches.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// How much to keep.
    ///
    /// The least recently used goes first.
    #[arg(long, env = "WASMRUN_CACHE_SIZE", value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub cache_size: u64,
    /// How much stack a guest's calls may use.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    pub max_stack: u64,
    /// The largest module to accept.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub max_module: u64,
    /// How much CPU time compiling a module may take.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub max_compile_time: Duration,
    /// How much memory compiling a module may take.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub max_compile_memory: u64,
    /// How many sandboxes may exist at a time.
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub max_sandboxes: u32,
    #[command(flatten)]
    pub policy: PolicyOptions,
}

#[derive(Debug, Clone, Args)]
pub struct Submit {
    /// The module: a component or a core WASI program; or a Python script.
    ///
    /// A script needs the Python package.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// Call a function: 'name(1, "a", {x: 2})' [default: run the program].
    ///
    /// Arguments are written in WAVE.
    #[arg(long, short, value_name = "CALL", help_heading = "What to run")]
    pub invoke: Option<String>,
    /// The function's arguments as JSON: an array, or an object by their names.
    ///
    /// --invoke is the function's name alone then. @FILE has them in a file.
    #[arg(long, value_name = "JSON", requires = "invoke", help_heading = "What to run", conflicts_with_all = ["from_lines", "from_json", "each"])]
    pub json_args: Option<JsonArg>,
    /// Take argument number N of the call, from 1, from a file.
    ///
    /// Its bytes for a list of numbers, its text for a string. Leave that argument out of the call. Repeatable.
    #[arg(long, value_name = "N=PATH", help_heading = "What to run")]
    pub arg_file: Vec<ArgFile>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    /// Give the program this file as standard input [default: ours].
    ///
    /// A program that runs once has ours; tasks of an array and functions read nothing.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub stdin: Option<PathBuf>,
    /// Write the result to a file instead of standard output.
    ///
    /// The bytes of a list of numbers, the text of a string, else WAVE; for a program its standard output.
    #[arg(long, short = 'O', value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub result_file: Option<String>,
    /// Leave it to the running node; print its id.
    ///
    /// The node keeps its result and the end of its output.
    #[arg(long, help_heading = "What to run", conflicts_with = "result_file")]
    pub detach: bool,
    /// A name for people [default: the function's or module's].
    ///
    /// It is shown in progress and errors.
    #[arg(long, help_heading = "What to run")]
    pub name: Option<String>,
    #[command(flatten)]
    pub array: ArrayOptions,

    #[command(flatten)]
    pub task: TaskOptions,
    #[command(flatten)]
    pub node: NodeOptions,
}

/// What can be said of every task, whatever runs.
#[derive(Debug, Clone, Args)]
pub struct TaskOptions {
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub limits: LimitOptions,
    #[command(flatten)]
    pub grants: GrantOptions,
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    #[command(flatten)]
    pub trace: TraceOptions,
}

/// What a task asks for, and so what it gets. Overrides the module's manifest.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Resources")]
pub struct Request {
    /// CPUs: a whole number or a share below 1 [default: 1].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub cpus: Option<Amount>,
    /// GPUs: a whole number or a share below 1 [default: 0].
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub gpus: Option<Amount>,
    /// Memory, such as 64MiB: the sandbox's limit [default: 256MiB].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<Amount>,
    /// Any other resource. Repeatable.
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub resource: Vec<ResourceArg>,
}

impl Request {
    /// The amounts that were given.
    ///
    /// # Errors
    /// One resource has two.
    pub fn asked(&self) -> Result<Asked, Failure> {
        let standard = [
            (ResourceName::CPU, self.cpus),
            (ResourceName::GPU, self.gpus),
            (ResourceName::MEMORY, self.memory),
        ];
        asked_once(standard, &self.resource)
    }
}

/// The amounts of options of their own and of `--resource` or the like.
///
/// # Errors
/// One resource has two.
fn asked_once<const N: usize>(
    standard: [(ResourceName, Option<Amount>); N],
    others: &[ResourceArg],
) -> Result<Asked, Failure> {
    let standard = standard.into_iter();
    let standard = standard.filter_map(|(name, amount)| Some((name, amount?)));
    let others = others.iter();
    let others = others.map(|other| (other.name.clone(), other.amount));
    let mut asked = Asked::default();
    for (name, amount) in standard.chain(others) {
        if let Some(before) = asked.0.insert(name.clone(), amount) {
            return Err(Failure::usage(format!(
                "{name} is given twice, as {before} and as {amount}: give it once"
            )));
        }
    }
    Ok(asked)
}

/// What a task may use besides its resources.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Stop the task after this time, such as 30s or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// The most it may write to standard output and error.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub max_output: u64,
    /// The largest arguments of a call, together.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub max_arguments: u64,
    /// The largest result of a call.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub max_result: u64,
}

/// When and where a task runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scheduling")]
pub struct SchedulingOptions {
    /// The tenant whose share pays for it.
    ///
    /// That is a team, a queue, or whoever has a part of the cluster.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
    /// Higher goes first among the tasks of the tenant.
    ///
    /// It may be negative.
    #[arg(long, value_name = "N", default_value_t, allow_negative_numbers = true)]
    pub priority: i32,
    /// How often to try again [default: the module's, or 0].
    ///
    /// After a trap, an exit code or a limit. A program that may be tried again gets its standard input as a whole, not as
    /// it comes.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Try again after an error that the function returns, too.
    ///
    /// It is then not taken for the function's answer [default: the module's, or false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          hide_possible_values = true)]
    pub retry_on_error: Option<bool>,
    /// Neither pause nor stop it for others.
    ///
    /// Its tenant may ask for that where an operator has said `wasmrun tenant set NAME --no-preempt allow`.
    #[arg(long)]
    pub no_preempt: bool,
    /// Run only where labels match: 'zone=a,disk in (ssd,nvme)'.
    ///
    /// Fallbacks stand behind ';'.
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<Selectors>,
    /// How the node is chosen: spread, node:NAME, ….
    ///
    /// default, random, spread, node:NAME, node:NAME:soft; or in a placement group, group:ID or group:ID:BUNDLE.
    #[arg(long, value_name = "STRATEGY", default_value_t)]
    pub strategy: Strategy,
}

#[derive(Debug, Args)]
pub struct Inspect {
    /// The module.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// Print the WIT of the whole component.
    #[arg(long)]
    pub wit: bool,
    #[command(flatten)]
    pub node: NodeOptions,
}

#[derive(Debug, Args)]
pub struct Annotate {
    /// The module.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// Which function the settings are for.
    ///
    /// A function's name, `run` for the program, `*` for all.
    #[arg(long, short, value_name = "NAME", default_value = "*")]
    pub function: String,
    /// Stop the task after this time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// How often to try again after a trap, an exit code or a limit.
    #[arg(long)]
    pub retries: Option<u32>,
    /// Try again after an error that the function returns, too.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub retry_on_error: Option<bool>,
    /// Take the whole manifest from a JSON file instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["function", "cpus", "gpus", "memory", "resource", "time_limit", "retries",
                                "retry_on_error"])]
    pub manifest: Option<PathBuf>,
    /// Where to write the module; may be the same file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub node: NodeOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn help_of_serve_has_the_defaults_of_requests() {
        use clap::CommandFactory;
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").expect("it is there");
        let cpus = serve.get_arguments().find(|it| it.get_id() == "cpus");
        let help = cpus.and_then(|it| it.get_help()).expect("it has one");
        assert!(help.to_string().ends_with("[default: 0.1]"), "{help}");
    }
}
