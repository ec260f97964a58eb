//! What `run` and `stubs` take.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{ArrayOptions, NodeOptions, Submit, TaskOptions};

#[derive(Debug, Clone, Args)]
pub struct RunScript {
    /// The script: its name ends with .py, .js or .ts.
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "code")]
    pub script: Option<PathBuf>,
    /// Run this Python code instead of a script.
    #[arg(
        short = 'c',
        value_name = "CODE",
        conflicts_with = "script",
        help_heading = "What to run"
    )]
    pub code: Option<String>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    /// Give the program this file as standard input [default: ours].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub stdin: Option<PathBuf>,
    /// Leave it to the running node; print its id.
    ///
    /// The node keeps the end of its output.
    #[arg(long, help_heading = "What to run")]
    pub detach: bool,
    /// A name for people [default: the script's].
    ///
    /// It is shown in progress and errors.
    #[arg(long, help_heading = "What to run")]
    pub name: Option<String>,

    #[command(flatten)]
    pub task: TaskOptions,
    #[command(flatten)]
    pub node: NodeOptions,
}

impl RunScript {
    /// The same of this module, as `submit` takes it.
    pub fn of(&self, module: PathBuf) -> Submit {
        let run = self.clone();
        Submit {
            module,
            invoke: None,
            json_args: None,
            arg_file: Vec::new(),
            args: run.args,
            task: run.task,
            array: ArrayOptions::default(),
            name: run.name,
            detach: run.detach,
            result_file: None,
            stdin: run.stdin,
            node: run.node,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct Stubs {
    /// The module.
    #[arg(value_hint = ValueHint::FilePath)]
    pub module: PathBuf,
    /// For which language.
    #[arg(long, value_name = "LANGUAGE", default_value = "python")]
    pub lang: Language,
    /// The file to write; - is standard output [default: the module's name with .pyi, .rs or .d.ts, beside it].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// What stubs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Type checkers and editors.
    Python,
    /// Programs that use wasmrun-client.
    Rust,
    /// TypeScript that uses the npm package.
    Ts,
}
