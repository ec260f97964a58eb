//! `job`, `logs` and `timeline`, with their options.

use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use wasmrun_model::fairness::TenantName;

use super::{Id, ListOptions, duration};

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, the newest first.
    List(ListOptions),
    /// Show a job: how far it is, its tasks, and what of them has failed.
    Show(JobId),
    /// Wait until jobs have ended; end with the exit code that `submit` would have had. Ctrl-C leaves them alone.
    Wait(JobWait),
    /// Print what is kept of the output of a job's detached tasks.
    Logs(JobLogs),
    /// Print the results of a job's tasks that are kept, in the order of the indices.
    Results(JobResults),
    /// Cancel all tasks of jobs.
    Cancel(JobIds),
    /// Submit the tasks of a detached job again, as a new job with the same name.
    Rerun(JobRerun),
    /// Show which task started which, what they gave each other, and which calls followed each other in an actor.
    Graph(JobGraph),
}

#[derive(Debug, Args)]
pub struct JobId {
    /// Its name, its id, or as much of the beginning as is its alone.
    pub job: String,
    /// The tenant whose it is.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
}

#[derive(Debug, Args)]
pub struct JobIds {
    /// Their names, their ids, or as much of the beginnings as is theirs alone.
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// The tenant whose they are.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
}

#[derive(Debug, Args)]
pub struct JobWait {
    #[command(flatten)]
    pub ids: JobIds,
    /// How long to wait for all of them, such as 30s [default: for ever].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct JobLogs {
    #[command(flatten)]
    pub job: JobId,
    #[command(flatten)]
    pub options: LogOptions,
}

#[derive(Debug, Args)]
pub struct Logs {
    #[command(flatten)]
    pub id: Id,
    #[command(flatten)]
    pub options: LogOptions,
}

/// What of logs is printed.
#[derive(Debug, Default, Args)]
pub struct LogOptions {
    /// Go on until it has ended, and print what comes.
    #[arg(long, short)]
    pub follow: bool,
    /// Print only the lines that contain this text.
    #[arg(long, value_name = "TEXT")]
    pub grep: Option<String>,
}

#[derive(Debug, Args)]
pub struct JobResults {
    #[command(flatten)]
    pub job: JobId,
    /// Write each result to a file of its own instead: a folder, or a name with $i for the index.
    #[arg(long, short = 'O', value_name = "DIR|PATTERN", value_hint = ValueHint::AnyPath)]
    pub out: Option<String>,
}

#[derive(Debug, Args)]
pub struct JobRerun {
    #[command(flatten)]
    pub job: JobId,
    /// Only those that have failed.
    #[arg(long)]
    pub failed: bool,
}

#[derive(Debug, Args)]
pub struct JobGraph {
    #[command(flatten)]
    pub job: JobId,
    /// For Graphviz: `wasmrun job graph JOB --dot | dot -Tsvg`.
    #[arg(long)]
    pub dot: bool,
}

#[derive(Debug, Args)]
pub struct Timeline {
    /// The job: its name, its id, or as much of the beginning as is its alone [default: all that is remembered].
    pub job: Option<String>,
    /// The file to write to; `-` is standard output.
    #[arg(long, short = 'O', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: String,
    /// Only what has ended within this time, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub since: Option<Duration>,
    /// The tenant whose job it is.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub tenant: TenantName,
}
