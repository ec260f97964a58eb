//! Where text goes: results to standard output, everything else to standard error.
//!
//! Nothing else in the program prints, but for what guests write (`submit::stream`). Colour only on a terminal, and never with `NO_COLOR`.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::args::{Global, Output};
use crate::fail::{Exit, Failure};
use crate::stdio;

/// Whether this command has printed JSON.
static HAS_ANSWERED: AtomicBool = AtomicBool::new(false);

/// Prints for one command.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    pub output: Output,
    verbose: bool,
    quiet: bool,
    colour: bool,
    terminal: bool,
}

impl Printer {
    pub fn new(global: &Global) -> Self {
        let terminal = io::stderr().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            output: global.output,
            verbose: global.verbose,
            quiet: global.quiet || global.output == Output::Quiet,
            colour: terminal && !no_colour,
            terminal,
        }
    }

    /// The same, but for notes and warnings: standard error is for something else.
    pub fn without_notes(self) -> Self {
        Self {
            quiet: true,
            ..self
        }
    }

    /// Whether a person watches standard error and wants to see progress.
    pub fn shows_progress(&self) -> bool {
        self.terminal && !self.quiet
    }

    /// Whether nothing but errors is to be said.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether results and all else are for a terminal that shows colours.
    pub fn colours_results(&self) -> bool {
        self.colour && io::stdout().is_terminal()
    }

    /// How many characters a line of the terminal has that results go to, if they go to one.
    pub fn width(&self) -> Option<usize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let (columns, _) = ratatui::crossterm::terminal::size().ok()?;
        (columns > 0).then_some(columns.into())
    }

    /// A line of the result.
    pub fn result(&self, line: impl fmt::Display) -> Result<(), Failure> {
        if self.output == Output::Quiet {
            return Ok(());
        }
        written(stdio::output().write_all(format!("{line}\n").as_bytes()))
    }

    /// A result as JSON, whatever the format asked for.
    pub fn json(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.result(format_args!("{value:#}"))?;
        HAS_ANSWERED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The same on a line of its own: one of several that come.
    pub fn json_line(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.result(value)?;
        HAS_ANSWERED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A warning: something is not as it should be, but we go on.
    pub fn warn(&self, message: impl fmt::Display) {
        if !self.quiet {
            self.labelled("warning", "33", message);
        }
    }

    /// An error, always shown: for people, and as JSON for programs that expect JSON. These read one document: where they
    /// have their answer, the exit code says that something went wrong behind it.
    pub fn error(&self, error: &anyhow::Error, exit: Exit) {
        if self.output == Output::Json && !HAS_ANSWERED.load(Ordering::Relaxed) {
            let causes = causes(error);
            let error = json!({
                "message": error.to_string(),
                "because": causes,
                "exit_code": exit.code(),
            });
            // If nobody reads it, there is still standard error.
            let _ = self.json(&json!({ "version": 1, "error": error }));
        }
        self.error_text(error);
    }

    /// An error for people alone, where a program has been told already.
    pub fn error_text(&self, error: &anyhow::Error) {
        self.labelled("error", "31", error);
        for cause in causes(error) {
            self.stderr(format_args!("  because: {cause}"));
        }
    }

    /// Something that only those want who asked for more.
    pub fn detail(&self, message: impl fmt::Display) {
        if self.verbose {
            self.stderr(message);
        }
    }

    /// A line for people, not for programs.
    pub fn note(&self, message: impl fmt::Display) {
        if !self.quiet {
            self.stderr(message);
        }
    }

    /// A line that belongs to an error.
    pub fn stderr(&self, message: impl fmt::Display) {
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(io::stderr().lock(), "{message}");
    }

    fn labelled(&self, label: &str, colour: &str, message: impl fmt::Display) {
        if self.colour {
            self.stderr(format_args!("\x1b[1;{colour}m{label}\x1b[0m: {message}"));
        } else {
            self.stderr(format_args!("{label}: {message}"));
        }
    }
}

/// Turns a failed write to standard output into the command's failure.
pub fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::BrokenPipe, error),
        _ => {
            let error = anyhow::Error::new(error);
            Failure::new(
                Exit::Usage,
                error.context("cannot write to standard output"),
            )
        }
    })
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<'a> {
    pub name: &'a str,
    /// Whether its cells are compared by how much they are, and so stand on the right. It does not follow from them: an
    /// id may have nothing but digits.
    pub is_number: bool,
}

impl<'a> Column<'a> {
    /// Of names, ids and other words.
    pub const fn text(name: &'a str) -> Self {
        Self {
            name,
            is_number: false,
        }
    }

    /// Of numbers, sizes and times.
    pub const fn number(name: &'a str) -> Self {
        Self {
            name,
            is_number: true,
        }
    }
}

/// Lines up columns: each as wide as its widest cell.
pub fn table(columns: &[Column<'_>], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells
            .chain([columns[at].name.chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(columns.iter().zip(&widths))
            .map(|(cell, (column, &width))| match column.is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut columns.iter().map(|column| column.name))];
    lines.extend(
        rows.iter()
            .map(|row| line(&mut row.iter().map(String::as_str))),
    );
    lines.join("\n")
}

/// The causes of an error, but for those whose text the one above has already.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let chain: Vec<_> = error.chain().collect();
    let pairs = chain.windows(2);
    let causes = pairs.map(|pair| (pair[0].to_string(), advised(pair[1])));
    let causes = causes.filter(|(above, cause)| !above.contains(cause.as_str()));
    causes.map(|(_, cause)| cause).collect()
}

/// A cause of an error. The system's own texts do not say what to do about a file: this does.
fn advised(cause: &(dyn Error + 'static)) -> String {
    let of_system = cause.downcast_ref::<io::Error>();
    match of_system.filter(|error| error.raw_os_error().is_some()) {
        Some(error) if error.kind() == ErrorKind::NotFound => {
            let here = std::env::current_dir().unwrap_or_default();
            let here = here.display();
            format!("{error}; check the path: a relative one begins at {here}")
        }
        Some(error) if error.kind() == ErrorKind::IsADirectory => {
            format!("{error}; give a file in it")
        }
        Some(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("{error}; check the permissions of the file and its folders")
        }
        Some(error) if error.kind() == ErrorKind::NotADirectory => {
            format!("{error}; check the path: a part of it is a file, and no folder")
        }
        _ => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_has_been_said_is_not_said_twice() {
        let error = anyhow::anyhow!("the disk is full");
        let error = error.context("no room: the disk is full");
        let error = error.context("cannot start");
        assert_eq!(causes(&error), ["no room: the disk is full"]);
    }

    #[test]
    fn columns_line_up() {
        let columns = [
            Column::text("name"),
            Column::number("value"),
            Column::text("unit"),
        ];
        let rows = vec![
            vec!["tasks_sync".into(), "20000".into(), "1/s".into()],
            vec!["x".into(), "7".into(), "ratio".into()],
        ];
        let expected = "name        value  unit\ntasks_sync  20000  1/s\nx               7  ratio";
        assert_eq!(table(&columns, &rows), expected);
        // Whatever stands in it.
        let rows = vec![vec!["12".into(), "-".into(), "34".into()]];
        let expected = "name  value  unit\n12        -  34";
        assert_eq!(table(&columns, &rows), expected);
    }
}
