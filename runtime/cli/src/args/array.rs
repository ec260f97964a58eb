//! Options that make an array of tasks.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Indices;

/// The elements of an array. At most one of these is given; without any there is one task.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct ArrayOptions {
    /// Run one task per index: '0-31', '1-9:2', '3,5,8-10'.
    ///
    /// The index is $i in --invoke, in the program's arguments and in --result-file ($$ is a dollar sign), and
    /// WASMRUN_ARRAY_INDEX in the environment.
    #[arg(long, value_name = "INDICES", help_heading = "Arrays")]
    pub array: Option<Indices>,
    /// Run one task per line of a text; - is standard input.
    ///
    /// The line is $line, an argument of its own in --invoke; a program that does not name it gets it as its last
    /// argument.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Arrays")]
    pub from_lines: Option<PathBuf>,
    /// Run one task per JSON value of a file.
    ///
    /// It has a JSON array, or JSON values, one a line; - is standard input. The value is $json, an argument of its own
    /// in --invoke; where that is a name alone, the value is all arguments. A program that does not name it gets it as its
    /// last argument.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Arrays")]
    pub from_json: Option<PathBuf>,
    /// Run one task per file that matches: 'data/**/*.csv'. Repeatable.
    ///
    /// $file in --invoke is what the file contains, $path, $name and $stem are its path, name, and name without
    /// extension; for a program $file is the path, too.
    #[arg(long, value_name = "GLOB", help_heading = "Arrays")]
    pub each: Vec<String>,
}

impl ArrayOptions {
    /// Whether there is an array.
    pub fn is_any(&self) -> bool {
        let files = [&self.from_lines, &self.from_json];
        self.array.is_some() || !self.each.is_empty() || files.iter().any(|it| it.is_some())
    }
}
