//! What `run` and `stubs` take.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{NodeOptions, Submit, TaskOptions};

#[derive(Debug, Clone, Args)]
pub struct RunPython {
    /// The script.
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "code")]
    pub script: Option<PathBuf>,
    /// Run this code instead of a script.
    #[arg(short = 'c', value_name = "CODE", conflicts_with = "script")]
    pub code: Option<String>,
    /// Arguments of the program.
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    #[command(flatten)]
    pub task: TaskOptions,

    /// A name for people, shown in progress and errors [default: the script's].
    #[arg(long, help_heading = "What to run")]
    pub name: Option<String>,
    /// Leave it to the running node, which keeps the end of its output; print its id.
    #[arg(long, help_heading = "What to run")]
    pub detach: bool,
    /// Give the program this file as standard input [default: ours].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "What to run")]
    pub stdin: Option<PathBuf>,

    #[command(flatten)]
    pub node: NodeOptions,
}

impl RunPython {
    /// The same of this module, as `submit` takes it.
    pub fn of(&self, module: PathBuf) -> Submit {
        let run = self.clone();
        Submit {
            module,
            invoke: None,
            arg_file: Vec::new(),
            args: run.args,
            task: run.task,
            array: None,
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
    /// The file to write [default: the module's name with .pyi, beside it].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}
