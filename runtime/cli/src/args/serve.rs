//! What `serve` and `service` take.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::http::Route;
use wasmrun_model::wire::Listen;

use super::{NodeOptions, TaskOptions, duration};

/// Where clients find a service by default: only this machine reaches it.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

#[derive(Debug, Clone, Args)]
#[command(mut_arg("cpus", |cpus| {
    cpus.help("CPUs of each request: a whole number or a share below 1 [default: 0.1]")
}))]
pub struct Serve {
    /// The module: a component that handles HTTP requests, or whose functions --route names.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// Where clients find it. Port 0 is one that the system chooses; `:8080` is that port of the address at which other nodes
    /// reach each node.
    #[arg(
        long,
        value_name = "[ADDRESS]:PORT",
        default_value = DEFAULT_ADDRESS,
        help_heading = "Service"
    )]
    pub listen: Listen,
    /// At an address of loopback: answer to this name, too. Repeatable; '*' is all names.
    ///
    /// There a service without a certificate answers to addresses and localhost alone, so that a page of another site cannot
    /// use it by a name that leads here. A proxy that passes its clients' Host on needs their name here.
    #[arg(long, value_name = "NAME", help_heading = "Service")]
    pub host: Vec<String>,
    /// What people call it [default: the module's file].
    #[arg(long, help_heading = "Service")]
    pub name: Option<String>,
    /// Answer by a function instead of the module's own handler: 'POST /price=price', 'GET /orders/{id}=find'.
    ///
    /// JSON and the query become its arguments, its result becomes JSON. GET /openapi.json describes all routes.
    /// 'POST /add=actor:NAME.METHOD' calls a method of a named actor. Repeatable.
    #[arg(long, value_name = "METHOD /PATH=FUNCTION", help_heading = "Service")]
    pub route: Vec<Route>,
    /// How many requests may be under way at a time.
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "256",
        value_parser = super::words::at_least_one,
        help_heading = "Service"
    )]
    pub concurrency: NonZeroU32,
    /// How many more may wait for that. Others get 503.
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1024",
        help_heading = "Service"
    )]
    pub queue: u32,
    /// How long a request may wait. Then it gets 503.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, help_heading = "Service")]
    pub queue_wait: Duration,
    /// The certificate for HTTPS, and those between it and a root, as PEM.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key", help_heading = "Service")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, as PEM.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert", help_heading = "Service")]
    pub tls_key: Option<PathBuf>,
    /// How long requests under way may take once the service is to end.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, help_heading = "Service")]
    pub drain: Duration,
    /// Leave it to the running node, and to every node of its cluster.
    ///
    /// It goes on until `service stop`. To serve another module under the same name replaces it, without a failed request.
    #[arg(long, help_heading = "Service")]
    pub detach: bool,

    #[command(flatten)]
    pub task: TaskOptions,
    #[command(flatten)]
    pub node: NodeOptions,
}

/// What to do with services.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// List services.
    List,
    /// End a service, once its requests have ended.
    Stop {
        /// Its name.
        name: String,
        /// How long requests under way may take.
        #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
        drain: Duration,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
}
