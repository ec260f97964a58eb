//! What `bench` takes, and the node that it weighs.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::NodeOptions;

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
    /// The guest to measure with [default: one that is built in].
    ///
    /// A component that exports `noop` and `busy-iterations`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,
    /// The guest for cases of tasks that start others.
    ///
    /// `cargo xtask bench` gives it.
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
