//! What `mcp` takes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{NodeOptions, TaskOptions};

#[derive(Debug, Clone, Args)]
pub struct Mcp {
    /// Modules, whose functions become tools.
    #[arg(value_name = "MODULE", value_hint = ValueHint::FilePath)]
    pub modules: Vec<PathBuf>,
    /// Leave out the tool that runs Python code.
    #[arg(long)]
    pub no_python: bool,
    /// Serve over HTTP at this address, such as 127.0.0.1:7464.
    ///
    /// Without it, on standard input and output.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Demand the token in this file of clients over HTTP.
    ///
    /// It has at least 16 characters.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    pub token_file: Option<PathBuf>,

    #[command(flatten)]
    pub task: TaskOptions,
    #[command(flatten)]
    pub node: NodeOptions,
}
