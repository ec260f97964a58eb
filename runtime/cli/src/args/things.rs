//! What can be typed about a running node: itself, and the tasks, objects and actors it has.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use wasmrun_model::cluster::{Selectors, Strategy};
use wasmrun_model::fairness::TenantName;

use super::{GrantOptions, NodeOptions, Request};

/// What to do with the node of this machine.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Run a node in the foreground. Ctrl-C lets what runs end; a second one ends it at once.
    Start(Box<NodeOptions>),
    /// End the running node, when what runs has ended.
    Stop {
        /// Cancel what runs.
        #[arg(long)]
        now: bool,
    },
    /// Show the nodes that can be reached.
    List,
}

/// What to list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Things {
    Tasks,
    Actors,
    Objects,
    Jobs,
    Modules,
    Nodes,
    Tenants,
}

#[derive(Debug, Args)]
pub struct ListThings {
    /// What.
    pub what: Things,
    /// Only those whose field has this value, such as state=running. Repeatable.
    #[arg(long, short, value_name = "FIELD=VALUE")]
    pub filter: Vec<FilterArg>,
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
    /// Its id, or as much of the beginning as is its alone.
    pub id: String,
}

#[derive(Debug, Args)]
pub struct Put {
    /// The file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The tenant that pays for it.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
    /// How long to wait for room in the object store, such as 5s [default: as the node says].
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
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// List objects.
    List,
    /// Delete an object that is kept.
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
    /// How often it is started again after it died [default: the module's, or 0].
    #[arg(long, value_name = "N")]
    pub restarts: Option<u32>,
    /// How often a call that was under way then is made again [default: the module's, or 0].
    #[arg(long, value_name = "N")]
    pub call_retries: Option<u32>,
    /// Stop its constructor after this time, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub time_limit: Option<Duration>,
    /// Higher goes first among the tenant's tasks and actors.
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
}
