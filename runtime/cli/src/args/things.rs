//! What can be typed about a running node: itself, and the tasks, objects and actors it has.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use wasmrun_client::identity::Fingerprint;
use wasmrun_model::access::{Role, Tenants};
use wasmrun_model::cluster::{Selectors, Strategy};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::ResourceName;
use wasmrun_node::JoinToken;
use wasmrun_telemetry::Endpoint;

use super::{GrantOptions, NodeOptions, Request, ResourceArg, TraceOptions, size};
use crate::log::{Filter, Format};

/// What to do with the node of this machine, and its cluster.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Run a node in the foreground. Ctrl-C lets what runs end; a second one ends it at once.
    Start(Box<NodeStart>),
    /// End the running node, when what runs has ended.
    Stop {
        /// Cancel what runs.
        #[arg(long)]
        now: bool,
    },
    /// Show the nodes of the cluster.
    List,
    /// Let a node of the cluster take no new work.
    Drain {
        /// Its name, or as much of the beginning of its id as is its alone.
        node: String,
        /// Let it take work again.
        #[arg(long)]
        undo: bool,
    },
    /// Change what a node has of a resource, while it runs.
    Resource {
        #[command(subcommand)]
        command: ResourceCommand,
    },
    /// Take a node out of the cluster for good: nobody talks to it any more, whatever certificate it has.
    Remove {
        /// Its name, its id, or as much of the beginning of that as is its alone.
        node: String,
        /// Though it lives: its work begins elsewhere, and what only it has is lost.
        #[arg(long)]
        force: bool,
    },
    /// Make, list and take back tokens, with which nodes join the cluster and clients log in to it.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
}

/// What to do with the resources of a node.
#[derive(Debug, Subcommand)]
pub enum ResourceCommand {
    /// Let a node have so much of a resource: NAME=AMOUNT. Tasks keep what they hold.
    Set {
        /// Such as tpu=4, CPU=8 or memory=8GiB.
        #[arg(value_name = "NAME=AMOUNT")]
        resource: ResourceArg,
        #[command(flatten)]
        at: ResourceAt,
    },
    /// Let a node have a resource no more. Tasks keep what they hold of it until they end.
    Delete {
        /// The resource.
        name: ResourceName,
        #[command(flatten)]
        at: ResourceAt,
    },
}

/// Where and for how long a resource is changed.
#[derive(Debug, clap::Args)]
pub struct ResourceAt {
    /// The node, by its name or the beginning of its id [default: the one that is asked].
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Let the node begin with it when it is started again, too.
    #[arg(long)]
    pub persist: bool,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a new token, which lets one node join or one client log in.
    Create {
        /// Make it for a client, which runs `wasmrun login` with it, and not for a node.
        #[arg(long)]
        client: bool,
        /// What `wasmrun client` calls the client that comes with it, or all that do.
        #[arg(long, value_name = "NAME", requires = "client")]
        name: Option<String>,
        /// What the client may do: viewer, submitter or operator [default: submitter].
        ///
        /// A viewer looks at what its tenants have. A submitter also runs and ends work for them. An operator also runs
        /// the cluster, and has all tenants.
        #[arg(long, value_name = "ROLE", requires = "client")]
        role: Option<Role>,
        /// A tenant that the client has, or '*' for all. Repeatable [default: default, of an operator all].
        #[arg(long = "tenant", value_name = "TENANT", requires = "client")]
        tenants: Vec<Tenants>,
        /// Let it serve any number of them.
        #[arg(long)]
        many: bool,
        /// How long it serves.
        #[arg(long, value_name = "DURATION", value_parser = super::duration, default_value = "24h")]
        lifetime: Duration,
    },
    /// List the tokens that are remembered.
    List,
    /// Take a token back. Who has joined with it stays.
    Revoke {
        /// Its id, or as much of the beginning as is its alone.
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct Login {
    /// The token, as `wasmrun node token create --client` prints it [env: WASMRUN_JOIN_TOKEN].
    pub token: Option<JoinToken>,
    /// Get a further certificate by the one that is there, before it ends.
    #[arg(long, conflicts_with = "token")]
    pub renew: bool,
    /// Log in as a person, in a browser, at the provider that this head names.
    ///
    /// The head was started with --oidc. The certificate is valid for hours, and another login follows it.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["token", "renew"])]
    pub oidc: Option<String>,
    /// Believe only a head with this authority, as the log of the head has it.
    ///
    /// Without it the first head that is found at the address is believed, and only its cluster from then on.
    #[arg(long, value_name = "HASH", value_parser = authority, requires = "oidc")]
    pub authority: Option<Fingerprint>,
}

fn authority(text: &str) -> Result<Fingerprint, String> {
    let wrong = || {
        format!(
            "'{text}' is no authority: it has 64 hexadecimal digits, as the log of the head has it"
        )
    };
    Fingerprint::parse(text).ok_or_else(wrong)
}

#[derive(Debug, Args)]
pub struct NodeStart {
    /// Let other users of this machine use the node, as this file says.
    ///
    /// A line for each: USER ROLE TENANT[,TENANT…], such as `ann submitter research,web`. A user is a name, a number or
    /// @GROUP; the first line that names somebody holds. The socket must lie in a folder that others can enter: see
    /// --address.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub users: Option<PathBuf>,
    #[command(flatten)]
    pub node: NodeOptions,
    #[command(flatten)]
    pub cluster: ClusterOptions,
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub page: super::PageOptions,
}

/// How a node can be watched.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Log and metrics")]
pub struct WatchOptions {
    /// What to log: a level, or TARGET=LEVEL,….
    ///
    /// off, error, warn, info, debug or trace for wasmrun's own events, TARGET=LEVEL for others, with commas between
    /// [default: info; debug with -v, warn with -q or --local]. The log is on standard error.
    #[arg(long, env = "WASMRUN_LOG", value_name = "LEVELS")]
    pub log: Option<Filter>,
    /// The form of lines.
    ///
    /// text is for people, json for programs.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: Format,
    /// Serve metrics over HTTP [default address: 127.0.0.1:7462].
    ///
    /// For Prometheus, and /healthz and /readyz for probes.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = METRICS,
        value_parser = listening(METRICS))]
    pub metrics: Option<SocketAddr>,
    /// Let other machines read the metrics, without a password.
    ///
    /// Needed where --metrics is no address of this machine alone.
    #[arg(long, requires = "metrics")]
    pub metrics_open: bool,
    /// Memory for the history of tasks that have ended.
    ///
    /// Those that ended first are forgotten first. With 0 none are remembered. With --local each node has as much.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64MiB")]
    pub history_memory: u64,
    /// Write each attempt of a task that ends to files in this folder.
    ///
    /// One JSON object a line. With --local only the first node does.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub history_dir: Option<PathBuf>,
    /// How much all these files of the node may come to: the oldest go first.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB", requires = "history_dir")]
    pub history_files: u64,
    /// Where the audit is kept: who has changed what, from where [default in a cluster: audit in --state-dir].
    ///
    /// One JSON object a line. A node that is in no cluster keeps one if this is given.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub audit_dir: Option<PathBuf>,
    /// How much all files of the node's audit may come to: the oldest go first.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB")]
    pub audit_files: u64,
    /// Refuse all changes while they cannot be written to the audit.
    #[arg(long)]
    pub audit_required: bool,
    /// Tell an OpenTelemetry collector of each attempt that ends: http://HOST:PORT, OTLP over gRPC.
    ///
    /// A span for each, and numbers of them. With --local only the first node does.
    #[arg(long, env = COLLECTOR, value_name = "ENDPOINT")]
    pub otlp: Option<Endpoint>,
}

/// What OpenTelemetry calls the address of a collector in the environment.
pub const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Where metrics are served if nobody says where: only this machine reaches it.
const METRICS: &str = "127.0.0.1:7462";
/// Where a head listens if nobody says where.
const NODES: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wasmrun_node::DEFAULT_PORT);

/// What to check.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Where a node is to listen for other nodes (UDP).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening(NODES), default_value_t = NODES)]
    pub listen: SocketAddr,
    /// Where it is to serve metrics (TCP).
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening(METRICS), default_value = METRICS)]
    pub metrics: SocketAddr,
    #[command(flatten)]
    pub node: super::NodeOptions,
}

/// How a node is part of a cluster.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterOptions {
    /// Make a new cluster, or go on with the one that was made here.
    ///
    /// Others can join it.
    #[arg(long, conflicts_with = "join")]
    pub head: bool,
    /// Join a cluster with a token; without one, come back to it.
    ///
    /// The token may be in WASMRUN_JOIN_TOKEN instead. Without one the node comes back to the cluster that it has joined
    /// before.
    #[arg(long, value_name = "TOKEN", num_args = 0..=1)]
    pub join: Option<Option<JoinToken>>,
    /// Where to listen for other nodes (UDP).
    ///
    /// [default: 127.0.0.1:7461, or the address that reaches the head]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening(NODES))]
    pub listen: Option<SocketAddr>,
    /// Where others reach it, if that is not where it listens.
    ///
    /// Repeatable.
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = advertised)]
    pub advertise: Vec<SocketAddr>,
    /// Where it keeps who it is [default: the user's state folder].
    ///
    /// It may be in WASMRUN_STATE_DIR instead.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,
    /// Keep the cluster's truth in etcd: http://HOST:PORT,….
    ///
    /// Without it the head has it. It is to be said to every node.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// Who has signed etcd's certificate: a PEM file.
    ///
    /// For https.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// Our certificate for etcd: a PEM file.
    ///
    /// If it asks for one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["etcd", "etcd_key"])]
    pub etcd_cert: Option<PathBuf>,
    /// Its key: a PEM file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Let people log in without a token, as this file says: a provider of OpenID Connect, and rules.
    ///
    /// For the head. `wasmrun login --oidc` is for them.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub oidc: Option<PathBuf>,
    /// How long a node that says nothing is alive.
    ///
    /// 1s to 24h.
    #[arg(long, value_name = "DURATION", value_parser = super::words::lease_time,
          default_value = "3s")]
    pub lease_time: Duration,
    /// Run so many nodes on this machine, for development.
    ///
    /// They are a cluster, of which n1 is the head.
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u16).range(1..=64),
          conflicts_with_all = ["join", "state_dir", "advertise", "node_name"])]
    pub local: Option<u16>,
    /// Stop at once when standard input ends: whoever started us is gone.
    #[arg(long, hide = true)]
    pub tied: bool,
}

/// Reads `ADDRESS:PORT`, without names: where to listen is not to be a matter of who answers for a name. `example`: for errors.
pub(super) fn listening(
    example: impl Display + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<SocketAddr, String> + Clone + Send + Sync + 'static {
    move |text: &str| {
        let why = |_| {
            format!(
                "'{text}' must be the IP address of an interface and a port, such as {example}; the address 0.0.0.0 is \
                 all interfaces"
            )
        };
        text.parse().map_err(why)
    }
}

/// `ADDRESS` or `ADDRESS:PORT`; a port of 0 is the one where the node listens.
fn advertised(text: &str) -> Result<SocketAddr, String> {
    let alone = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    let address = alone.or_else(|_| text.parse());
    address.map_err(|_| format!("'{text}' must be ADDRESS or ADDRESS:PORT, such as 10.0.0.5"))
}

/// What to list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Things {
    Tasks,
    /// Of tasks that have ended, those that others followed included.
    Attempts,
    Actors,
    Objects,
    Jobs,
    Modules,
    Nodes,
    Tenants,
    Groups,
    Services,
}

#[derive(Debug, Args)]
pub struct ListThings {
    /// What.
    pub what: Things,
    #[command(flatten)]
    pub options: ListOptions,
}

/// Which rows of a list.
#[derive(Debug, Default, Args)]
pub struct ListOptions {
    /// Only those whose field has this value: state=running. Repeatable.
    #[arg(long, short, value_name = "FIELD=VALUE")]
    pub filter: Vec<FilterArg>,
    /// So many rows at most, the youngest [default: 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// All rows, however many there are.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
}

impl ListOptions {
    /// The fields and values that are asked for.
    pub fn filters(&self) -> Vec<(String, String)> {
        let filters = self.filter.iter();
        filters.map(|it| (it.0.clone(), it.1.clone())).collect()
    }

    /// How many rows there may be, if it is given.
    pub fn most(&self) -> Option<usize> {
        match self.all {
            true => Some(usize::MAX),
            false => self.limit.map(|limit| limit as usize),
        }
    }
}

/// `FIELD=VALUE`.
#[derive(Debug, Clone)]
pub struct FilterArg(pub String, pub String);

impl FromStr for FilterArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' must be FIELD=VALUE, such as state=running");
        let (field, value) = text.split_once('=').ok_or_else(form)?;
        Ok(Self(field.into(), value.into()))
    }
}

#[derive(Debug, Args)]
pub struct Id {
    /// Its id, or as much of the beginning as is its alone; the name of an actor or a placement group.
    pub id: String,
    /// The tenant whose it is.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
}

#[derive(Debug, Args)]
pub struct Put {
    /// The file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The tenant that pays for it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
    /// How long to wait for room, such as 5s [default: as the node says].
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub wait: Option<Duration>,
}

/// What to do with objects.
#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// Write an object's bytes, or its value as WAVE where its type is known.
    Get {
        /// Its id or its task's, or as much of the beginning as is its alone.
        id: String,
        /// Write it to a file instead of standard output.
        #[arg(long, short = 'O', value_name = "FILE", value_hint = ValueHint::FilePath)]
        out: Option<PathBuf>,
        /// How long to wait for it [default: as long as it takes].
        #[arg(long, value_name = "DURATION", value_parser = super::duration)]
        timeout: Option<Duration>,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// List objects.
    List,
    /// Delete an object that is kept, at any node of the cluster.
    Delete {
        /// Its id, or as much of the beginning as is its alone.
        id: String,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
}

/// What to do with actors.
#[derive(Debug, Subcommand)]
pub enum ActorCommand {
    /// Create an actor that lives until it is killed.
    Create(Box<ActorCreate>),
    /// Call a method: NAME 'method(1, "a")'.
    Call {
        /// The actor's name, or the beginning of its id.
        actor: String,
        /// The call, in WAVE.
        call: String,
        /// The tenant that the name belongs to.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
        /// Stop the call after this time, such as 30s. What stops in the middle of a call has died.
        #[arg(long, value_name = "DURATION", value_parser = super::duration)]
        time_limit: Option<Duration>,
        #[command(flatten)]
        trace: TraceOptions,
    },
    /// End an actor.
    Kill {
        /// The actor's name, or the beginning of its id.
        actor: String,
        /// The tenant that the name belongs to.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// List actors.
    List,
}

#[derive(Debug, Args)]
pub struct ActorCreate {
    /// The module.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// The class: an exported resource.
    pub class: String,
    /// The arguments of its constructor, in WAVE: '1, "a"'.
    #[arg(default_value = "", hide_default_value = true)]
    pub arguments: String,
    /// What it is called from now on.
    #[arg(long)]
    pub name: String,
    /// The tenant whose share pays for it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
    /// How often it is started again [default: the module's, or 0].
    ///
    /// After it died.
    #[arg(long, value_name = "N")]
    pub restarts: Option<u32>,
    /// How often a call is retried [default: the module's, or 0].
    ///
    /// One that was under way when the actor died.
    #[arg(long, value_name = "N")]
    pub call_retries: Option<u32>,
    /// Stop its constructor after this time, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub time_limit: Option<Duration>,
    /// How long to wait until it lives.
    ///
    /// It comes to be later, too.
    #[arg(long, value_name = "DURATION", value_parser = super::duration, default_value = "10s")]
    pub wait: Duration,
    /// Do not wait until it lives.
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
    /// Higher goes first among what the tenant has.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    pub priority: i32,
    /// The labels that its node must have, as of `submit`.
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<Selectors>,
    /// How its node is chosen, as of `submit`.
    #[arg(long, value_name = "STRATEGY", default_value_t)]
    pub strategy: Strategy,
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub grants: GrantOptions,
    #[command(flatten)]
    pub trace: TraceOptions,
}
