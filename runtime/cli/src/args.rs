//! What can be typed: commands, options, and the small languages inside them.
//!
//! Everything is checked here as far as it can be without a module: what comes out is typed.

#![allow(
    rustdoc::invalid_html_tags,
    reason = "these comments are the command's help, where list<u8> is no tag"
)]

mod amount;
mod clients;
mod groups;
mod policy;
mod tenants;
mod things;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use wasmrun_engine::{CompileTask, DirGrant, NetGrant};
use wasmrun_model::cluster::{LabelKey, LabelValue, NodeName, Selectors, Strategy};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::units;
use wasmrun_model::wire::Address;

pub use self::clients::ClientCommand;
pub use self::groups::{GroupCommand, GroupCreate, SpecArg};
pub use self::policy::PolicyOptions;
pub use self::tenants::{TenantCommand, TenantSet};
pub use self::things::{
    ActorCommand, ActorCreate, ClusterOptions, FilterArg, Id, ListThings, Login, NodeCommand,
    NodeStart, ObjectCommand, Put, Things, TokenCommand,
};

/// Run sandboxed WebAssembly tasks with the resources they declare.
///
/// Without a cluster, a command starts a node inside its own process: `wasmrun submit x.wasm`
/// just works.
#[derive(Debug, Parser)]
#[command(
    name = "wasmrun",
    version,
    max_term_width = 100,
    propagate_version = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Clone, Args)]
pub struct Global {
    /// How to print results.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub output: Output,
    /// The node to talk to: unix:PATH, or HOST:PORT from elsewhere, once `wasmrun login` was run
    /// [default: the one that runs on this machine, if one does].
    #[arg(long, global = true, env = "WASMRUN_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<Address>,
    /// Where `login` keeps our certificate for nodes of other machines
    /// [default: wasmrun/client in the user's folder for settings].
    #[arg(long, global = true, env = "WASMRUN_IDENTITY", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub identity: Option<PathBuf>,
    /// Say more about what happens.
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print no progress and no notes, only results and errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people: text and tables.
    Table,
    /// For programs: JSON with a version.
    Json,
    /// Nothing but errors; the exit code tells.
    Quiet,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a module: stream its output, print its result.
    Submit(Box<Submit>),
    /// Show what a module exports, imports and declares.
    Inspect(Inspect),
    /// Write into a module what its functions need.
    Annotate(Annotate),
    /// Plan a cluster: run a scenario of nodes and tasks in virtual time.
    Simulate(Simulate),
    /// Measure this machine: tasks per second, latencies, start-up.
    Bench(Bench),
    /// Check whether this machine is fit to run tasks, and fast.
    Doctor(NodeOptions),
    /// Start and stop the node of this machine that other commands find, and see to its cluster.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Get a certificate with a token, to use a cluster from another machine with --address.
    Login(Login),
    /// Show the running node: resources, tasks, objects.
    Status,
    /// List what a running node has.
    List(ListThings),
    /// Show all about one task, job or actor.
    Get(Id),
    /// Say where a task, a job, an actor or a placement group stands, and why it does not run or is not ready.
    Explain(Id),
    /// Cancel a task and all that it has started, or all tasks of a job, or end an actor.
    Cancel(Id),
    /// Print what is kept of the output of a detached task, of those of a job, or of an actor.
    Logs(Id),
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
    /// Say what tenants are due of the cluster: weights and guaranteed minima.
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
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
    /// Memory that the node offers to tasks [default: most of this machine's].
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub node_memory: Option<Amount>,
    /// Memory for objects [default: 30 % of this machine's].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub object_memory: Option<u64>,
    /// Keep objects in files in this folder, on disk or huge pages [default: in memory].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub object_dir: Option<PathBuf>,
    /// Send objects to other nodes of this machine, instead of sharing their memory.
    #[arg(long)]
    pub no_sharing: bool,
    /// How long a value waits for room for it before whoever makes it fails [default: 30s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub put_wait: Option<Duration>,
    /// Where objects go when that is full [default: they stay, and who makes more waits].
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,
    /// How much may go there.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64GiB", requires = "spill_dir")]
    pub spill_size: u64,
    /// Another resource that the node offers: NAME=COUNT (with ids) or NAME=sum:AMOUNT.
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub node_resource: Vec<String>,
    /// What the node is called [default: the host's name].
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<NodeName>,
    /// A label of the node, for --label-selector.
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<LabelArg>,
    /// Where compiled code is kept; `none` keeps none [env: WASMRUN_CACHE_DIR]
    /// [default: the user's cache folder].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// How much compiled code to keep; the least recently used goes first.
    #[arg(long, env = "WASMRUN_CACHE_SIZE", value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub cache_size: u64,
    /// How much stack a guest's calls may use.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    pub max_stack: u64,
    /// The largest module to accept.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub max_module: u64,
    /// How much processor time compiling a module may take.
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

#[derive(Debug, Args)]
pub struct Submit {
    /// The module: a component, or a core WASI program.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// Call a function: 'name(1, "a", {x: 2})', in WAVE [default: run the program].
    #[arg(long, short, value_name = "CALL")]
    pub invoke: Option<String>,
    /// Take argument number N (from 1) from a file: its bytes for list<u8>, its text for string.
    #[arg(long, value_name = "N=PATH")]
    pub arg_file: Vec<ArgFile>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub grants: GrantOptions,
    #[command(flatten)]
    pub limits: LimitOptions,
    #[command(flatten)]
    pub scheduling: SchedulingOptions,

    /// Run one task per index: '0-31', '1-9:2', '3,5,8-10'. The index is $i in --invoke, in the
    /// program's arguments and in --result-file, and WASMRUN_ARRAY_INDEX in the environment.
    #[arg(long, value_name = "INDICES", help_heading = "What to run")]
    pub array: Option<Indices>,
    /// A name for people, shown in progress and errors [default: the function's or module's].
    #[arg(long, help_heading = "What to run")]
    pub name: Option<String>,
    /// Leave it to the running node, which keeps its result and the end of its output; print its id.
    #[arg(long, help_heading = "What to run", conflicts_with = "result_file")]
    pub detach: bool,
    /// Write the result to a file instead of standard output: bytes for list<u8>, text for
    /// string, else WAVE; for a program its standard output.
    #[arg(long, short = 'O', value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub result_file: Option<String>,
    /// Give the program this file as standard input [default: ours, where it runs once].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub stdin: Option<PathBuf>,

    #[command(flatten)]
    pub node: NodeOptions,
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
    /// Any other resource.
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub resource: Vec<ResourceArg>,
}

impl Request {
    /// The amounts that were given.
    pub fn asked(&self) -> Asked {
        let standard = [
            (ResourceName::CPU, self.cpus),
            (ResourceName::GPU, self.gpus),
            (ResourceName::MEMORY, self.memory),
        ];
        let standard = standard
            .into_iter()
            .filter_map(|(name, amount)| Some((name, amount?)));
        let others = self
            .resource
            .iter()
            .map(|other| (other.name.clone(), other.amount));
        Asked(standard.chain(others).collect())
    }
}

/// A label: `KEY=VALUE`.
#[derive(Debug, Clone)]
pub struct LabelArg {
    pub key: LabelKey,
    pub value: LabelValue,
}

impl FromStr for LabelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' must be KEY=VALUE, such as zone=a");
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        Ok(Self {
            key: key.parse().map_err(|error| format!("{error}"))?,
            value: value.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

/// What a task may reach. Nothing, unless granted here.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Grants")]
pub struct GrantOptions {
    /// Give the guest a directory: HOST::GUEST, or HOST alone, with :ro at the end to read only.
    #[arg(long, value_name = "HOST::GUEST")]
    pub dir: Vec<DirArg>,
    /// Let the guest use the network: all of it, or only --net=ADDRESS:PORT,… (port 0: any).
    #[arg(long, value_name = "ADDRESSES", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub net: Option<NetArg>,
    /// Set an environment variable in the guest: K=V, or K to pass ours on.
    #[arg(long, value_name = "K=V")]
    pub env: Vec<EnvArg>,
}

/// What a task may use besides its resources.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Stop the task after this time, such as 30s or 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// The most a task may write to standard output and standard error together.
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
    /// The tenant (team, queue) whose share pays for it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
    /// Higher goes first among the tasks of the tenant; may be negative.
    #[arg(long, value_name = "N", default_value_t, allow_negative_numbers = true)]
    pub priority: i32,
    /// How often to try again after a trap, an exit code or a limit [default: the module's, or 0].
    /// A program that may be tried again gets its standard input as a whole, not as it comes.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Try again after an error that the function returns, too, and do not take that for its answer.
    #[arg(long)]
    pub retry_on_error: bool,
    /// Run only where the labels match: 'zone=a,disk in (ssd,nvme)'; fallbacks after ';'.
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<Selectors>,
    /// How the node is chosen: default, random, spread, node:NAME, node:NAME:soft,
    /// or in a placement group: group:ID or group:ID:BUNDLE.
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
    /// Which function the settings are for: a function's name, `run` for the program, `*` for all.
    #[arg(long, short, value_name = "NAME", default_value = "*")]
    pub function: String,
    #[command(flatten)]
    pub request: Request,
    /// Stop the task after this time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// How often to try again after a trap, an exit code or a limit.
    #[arg(long)]
    pub retries: Option<u32>,
    /// Try again after an error that the function returns, too.
    #[arg(long)]
    pub retry_on_error: bool,
    /// Take the whole manifest from a JSON file instead.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["function", "cpus", "gpus", "memory", "resource", "time_limit", "retries",
                                "retry_on_error"])]
    pub manifest: Option<PathBuf>,
    /// Where to write the module; may be the same file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    #[command(flatten)]
    pub node: NodeOptions,
}

#[derive(Debug, Args)]
pub struct Simulate {
    /// The scenario, in JSON; `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,
}

#[derive(Debug, Args)]
pub struct Bench {
    /// Which cases to run [default: all].
    pub names: Vec<String>,
    /// Name the cases and leave.
    #[arg(long)]
    pub list: bool,
    /// How often to run each case; the median counts.
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Do a few things of each case, and those on little memory: for tests. The figures mean nothing.
    #[arg(long, hide = true)]
    pub short: bool,
    /// The guest to measure with: a component that exports `noop` and `busy-iterations`
    /// [default: a small one that is built in].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,
    /// The guest that starts tasks and actors of its own, for the cases that need one; `cargo xtask
    /// bench` gives it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub flow_module: Option<PathBuf>,
    #[command(flatten)]
    pub node: NodeOptions,
}

#[derive(Debug, Args)]
pub struct IdleNode {
    pub module: PathBuf,
    #[arg(long)]
    pub flow_module: Option<PathBuf>,
    /// How many actors idle in it.
    #[arg(long, default_value_t = 0)]
    pub actors: u32,
    #[command(flatten)]
    pub node: NodeOptions,
}

fn amount(text: &str) -> Result<Amount, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn memory(text: &str) -> Result<Amount, String> {
    Amount::parse_memory(text).map_err(|error| format!("{error}"))
}

/// A number of bytes: `4096`, `64KiB`, `1.5GB`.
fn size(text: &str) -> Result<u64, String> {
    let bytes = memory(text)?;
    Ok(bytes.whole_units())
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_milliseconds(text)
        .map(Duration::from_millis)
        .map_err(|error| error.to_string())
}

/// `NAME=AMOUNT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceArg {
    pub name: ResourceName,
    pub amount: Amount,
}

impl FromStr for ResourceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' must be NAME=AMOUNT, such as tpu=1"))?;
        let name: ResourceName = name.parse().map_err(|error| format!("{error}"))?;
        let amount = Amount::parse_for(&name, value).map_err(|error| format!("{error}"))?;
        Ok(Self { name, amount })
    }
}

/// `N=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgFile {
    /// Which argument, from 1.
    pub position: usize,
    pub path: PathBuf,
}

impl FromStr for ArgFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' must be N=PATH, where N counts the arguments from 1");
        let (position, path) = text.split_once('=').ok_or_else(bad)?;
        let position = position.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
        Ok(Self {
            position,
            path: path.into(),
        })
    }
}

/// `HOST::GUEST[:ro]` or `HOST[:ro]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirArg(pub DirGrant);

impl FromStr for DirArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, read_only) = match text.strip_suffix(":ro") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (host, guest) = rest.split_once("::").unwrap_or((rest, rest));
        if host.is_empty() || guest.is_empty() {
            return Err(format!(
                "'{text}' must be HOST::GUEST, such as ./data::/data"
            ));
        }
        Ok(Self(DirGrant {
            host: host.into(),
            guest: guest.into(),
            read_only,
        }))
    }
}

/// `all`, or addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetArg(pub NetGrant);

impl FromStr for NetArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(NetGrant::All));
        }
        let parse = |address: &str| {
            address.parse().map_err(|_| {
                format!(
                    "'{address}' must be an IP address and a port, such as 10.0.0.1:80 or [::1]:0"
                )
            })
        };
        text.split(',')
            .map(parse)
            .collect::<Result<_, _>>()
            .map(|only| Self(NetGrant::Only(only)))
    }
}

/// `K=V`, or `K` for the value that we have ourselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg(pub String, pub String);

impl FromStr for EnvArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            None => {
                let value = std::env::var(text).map_err(|_| {
                    format!("there is no variable {text} to pass on; use {text}=VALUE")
                })?;
                (text, value)
            }
        };
        if key.is_empty() || text.contains('\0') {
            return Err(format!("'{text}' must be K=V"));
        }
        Ok(Self(key.into(), value))
    }
}

/// The most tasks in one array.
const MAX_ARRAY: u64 = 10_000_000;

/// Indices of an array: ranges with steps, in the order written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indices(Vec<(u64, u64, u64)>);

impl Indices {
    pub fn len(&self) -> u64 {
        self.0
            .iter()
            .map(|(first, last, step)| (last - first) / step + 1)
            .sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0
            .iter()
            .flat_map(|&(first, last, step)| (first..=last).step_by(step as usize))
    }
}

impl FromStr for Indices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let bad = || format!("'{part}' is not a range: write 0-31, 1-9:2 or 7");
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if step == 0 {
                return Err(format!("'{part}' has a step of 0: use 1 or more"));
            }
            if first > last {
                return Err(format!("'{part}' runs backwards: write {last}-{first}"));
            }
            ranges.push((first, last, step));
        }
        let tasks = ranges.iter().try_fold(0u64, |sum, (first, last, step)| {
            sum.checked_add(((last - first) / step).checked_add(1)?)
        });
        match tasks {
            Some(..=MAX_ARRAY) => Ok(Self(ranges)),
            _ => Err(format!(
                "'{text}' has more than {MAX_ARRAY} indices: submit it in parts"
            )),
        }
    }
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
    fn indices() {
        let all = |text: &str| {
            text.parse::<Indices>()
                .map(|i| i.iter().collect::<Vec<_>>())
        };
        assert_eq!(all("1-3"), Ok(vec![1, 2, 3]));
        assert_eq!(all("1-9:4,7"), Ok(vec![1, 5, 9, 7]));
        assert_eq!("0-31".parse::<Indices>().unwrap().len(), 32);
        for bad in [
            "",
            "3-1",
            "1-5:0",
            "a-b",
            "1-",
            "0-18446744073709551615",
            "-1",
        ] {
            assert!(all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn grants() {
        let dir = |text: &str| text.parse::<DirArg>().unwrap().0;
        assert_eq!(
            dir("./a::/b:ro"),
            DirGrant {
                host: "./a".into(),
                guest: "/b".into(),
                read_only: true
            }
        );
        assert_eq!(
            dir("/data"),
            DirGrant {
                host: "/data".into(),
                guest: "/data".into(),
                read_only: false
            }
        );
        assert!("::/b".parse::<DirArg>().is_err());
        assert!("example.com:80".parse::<NetArg>().is_err());
        assert!(
            matches!("[::1]:0".parse::<NetArg>().unwrap().0, NetGrant::Only(a) if a.len() == 1)
        );
        assert_eq!(
            "A=b=c".parse::<EnvArg>(),
            Ok(EnvArg("A".into(), "b=c".into()))
        );
        assert!("=x".parse::<EnvArg>().is_err());
        assert_eq!(
            "2=x=y".parse::<ArgFile>().unwrap().path,
            PathBuf::from("x=y")
        );
        assert!("0=x".parse::<ArgFile>().is_err());
    }
}
