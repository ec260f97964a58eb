//! Options of every command: the form of its output, and where the node is. In help they stand behind the command's own
//! options.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, ValueEnum, ValueHint};
use wasmrun_model::wire::Address;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output and connection", args = help_and_version())]
pub struct Global {
    /// How results look.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub output: Output,
    /// The node to talk to: unix:PATH or HOST:PORT.
    ///
    /// HOST:PORT is a node of a cluster, from another machine, once `wasmrun login` was run
    /// [default: the one that runs on this machine, if one does].
    #[arg(long, global = true, env = "WASMRUN_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<Address>,
    /// The folder of our certificate for other machines.
    ///
    /// `login` keeps it there [default: wasmrun/client in the user's folder for settings].
    #[arg(long, global = true, env = "WASMRUN_IDENTITY", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub identity: Option<PathBuf>,
    /// Say more about what happens.
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print no progress and no notes, only results and errors.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// `--help` and `--version`, which clap has in front of all other options by itself.
fn help_and_version() -> [Arg; 2] {
    let flag = |name: &'static str, short: char, action: ArgAction| {
        Arg::new(name).long(name).short(short).action(action)
    };
    let help = flag("help", 'h', ArgAction::Help)
        .help("Print help (see more with '--help')")
        .long_help("Print help (see a summary with '-h')");
    let version = flag("version", 'V', ArgAction::Version).help("Print version");
    [help, version].map(|flag| flag.global(true))
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
