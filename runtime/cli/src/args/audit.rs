//! What can be typed about the audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use wasmrun_model::fairness::TenantName;

use super::{FilterArg, duration};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    #[command(flatten)]
    pub options: AuditOptions,
}

/// What else to do with it.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no line of the audits in a folder was changed, taken out or put in. Needs no node.
    Verify {
        /// The folder: --audit-dir of the nodes, or audit in their --state-dir.
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// Which lines.
#[derive(Debug, Args)]
pub struct AuditOptions {
    /// Only those whose field has this value: subject=web. Repeatable.
    #[arg(long, short, value_name = "FIELD=VALUE")]
    pub filter: Vec<FilterArg>,
    /// Only those of this time, such as 1h.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub since: Option<Duration>,
    /// Only what this one has asked for: 'user 1000', or 'client ID'.
    #[arg(long, value_name = "WHO")]
    pub who: Option<String>,
    /// Only what was asked for in the name of this tenant.
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<TenantName>,
    /// Only this action, such as 'tenant set'.
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// Only what belongs to this job: its id, or the beginning of it.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Only what came to this: done, refused or unknown.
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Option<String>,
    /// So many lines at most, the last ones [default: 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Go on, and print what comes, the first one first, until Ctrl-C.
    #[arg(long)]
    pub follow: bool,
}
