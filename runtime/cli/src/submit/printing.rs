//! What `wasmrun submit` prints and writes of tasks that have ended.
//!
//! Owns results, reports and failures on their way out, and keeping what cannot be written. Must not: submit or wait.

use std::io;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use wasmrun_model::failure::TaskError;
use wasmrun_model::units;
use wasmrun_node::Report;

use super::Run;
use super::report;
use super::stream::{CapturedOutput, exit_of};
use super::target::Ended;
use crate::args::Output;
use crate::fail::{self, CommandResult, Exit, Failure};
use crate::outfile;

impl Run<'_> {
    /// Makes the files of programs that have run and printed nothing, as far as they are taken from here. What was there
    /// before stays until then.
    pub(super) fn make_empty_files(
        &self,
        captured: &CapturedOutput,
        have_run: &[Option<u64>],
    ) -> impl Iterator<Item = (u64, CommandResult)> {
        let silent = have_run.iter().map(|index| (*index, index.unwrap_or(0)));
        let silent = silent.filter(move |(_, tag)| !captured.printed.contains_key(tag));
        silent.filter_map(move |(index, tag)| {
            let path = self.output_file(index)?;
            Some((tag, written(&path, outfile::begin(&path).map(drop))))
        })
    }

    /// Writes what programs printed to files, where it was kept for JSON and files were asked for
    /// as well, as far as they are taken from here.
    pub(super) fn keep_stdout(
        &self,
        captured: &CapturedOutput,
    ) -> impl Iterator<Item = (u64, CommandResult)> {
        captured
            .printed
            .iter()
            .filter_map(move |(tag, [stdout, _])| {
                let path = self.output_file(self.elements.is_some().then_some(*tag))?;
                Some((*tag, written(&path, outfile::replace(&path, stdout))))
            })
    }

    /// Where what a program prints goes, if that is a file.
    fn output_file(&self, index: Option<u64>) -> Option<PathBuf> {
        let pattern = self.submit.result_file.as_ref();
        let pattern = pattern.filter(|_| self.is_program());
        Some(report::file_of(pattern?, index))
    }

    pub(super) fn bar(&self, length: u64) -> Option<ProgressBar> {
        let style = "{msg} {bar:30} {pos}/{len} tasks, {elapsed}, {eta} left";
        self.printer.shows_progress().then(|| {
            let bar = ProgressBar::new(length);
            bar.set_style(
                ProgressStyle::with_template(style).expect("the template is well formed"),
            );
            bar.set_message(self.plan.job.name.clone());
            bar
        })
    }

    pub(super) fn json(
        &self,
        ended: &Ended,
        index: Option<u64>,
        captured: &CapturedOutput,
    ) -> serde_json::Value {
        static NOTHING: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
        let printed = captured
            .printed
            .get(&index.unwrap_or(0))
            .unwrap_or(&NOTHING);
        let printed = (self.is_program() || printed != &NOTHING).then_some(printed);
        report::to_json(&self.plan.job, ended, index, printed)
    }

    /// Gives a result to who asked for it. One that cannot be written is kept, and where is said.
    pub(super) fn print_result(&self, report: &Report, index: Option<u64>) -> CommandResult {
        let printed = self.try_print_result(report, index);
        printed.map_err(|failure| {
            let mut bytes = None;
            let found = report::with_bytes(&self.plan.job, report, |it| {
                bytes = Some(it.to_vec());
                Ok(())
            });
            self.keep(failure, found.map(|()| bytes))
        })
    }

    /// Gives reports to who asked for them, as a result.
    pub(super) fn print_json(&self, reports: &serde_json::Value) -> CommandResult {
        let printed = self.printer.json(reports);
        printed.map_err(|failure| {
            let text = format!("{reports:#}\n");
            self.keep(failure, Ok(Some(text.into_bytes())))
        })
    }

    /// The failure to write these bytes, once they are kept elsewhere.
    fn keep(&self, failure: Failure, bytes: Result<Option<Vec<u8>>, Failure>) -> Failure {
        let Failure { exit, error } = failure;
        // Who does not read our output wants no more of it.
        let Some(error) = error.filter(|_| exit != Exit::BrokenPipe) else {
            return Failure::silent(exit);
        };
        let source = error.downcast_ref::<io::Error>();
        let exit = match source.map(io::Error::kind) {
            Some(io::ErrorKind::Interrupted) => Exit::Interrupted,
            _ => exit,
        };
        let kept = bytes.and_then(|bytes| Ok(bytes.map(|it| self.target.keep(it)).transpose()?));
        let error = match kept {
            Ok(Some(kept)) => anyhow::anyhow!("{error:#}; {kept}"),
            Ok(None) => error,
            Err(why) => anyhow::anyhow!("{error:#}; it cannot be kept elsewhere either: {why}"),
        };
        Failure::new(exit, error)
    }

    fn try_print_result(&self, report: &Report, index: Option<u64>) -> CommandResult {
        if let Some(pattern) = self
            .submit
            .result_file
            .as_ref()
            .filter(|_| !self.is_program())
        {
            return report::to_file(&self.plan.job, report, &report::file_of(pattern, index));
        }
        match report::line(&self.plan.job, report)? {
            Some(line) if self.printer.output == Output::Table => match index {
                None => self.printer.result(line),
                Some(index) => self.printer.result(format_args!("[{index}] {line}")),
            },
            _ => Ok(()),
        }
    }

    pub(super) fn print_array_result(
        &self,
        report: &Report,
        index: u64,
        bar: Option<&ProgressBar>,
    ) -> CommandResult {
        match bar {
            Some(bar) => bar.suspend(|| self.print_result(report, Some(index))),
            None => self.print_result(report, Some(index)),
        }
    }

    pub(super) fn print_array_failure(
        &self,
        error: &TaskError,
        ended: &Ended,
        index: u64,
        bar: Option<&ProgressBar>,
    ) {
        if *error == TaskError::Cancelled {
            return;
        }
        let text = placed(format!("failed: {error}"), error, ended);
        let print = || {
            for line in text.lines() {
                self.printer.stderr(format_args!("[{index}] {line}"));
            }
        };
        match bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(super) fn detail(&self, report: &Report, bar: Option<&ProgressBar>) {
        if !self.printer.is_verbose() {
            return;
        }
        let Report {
            id,
            waited,
            ran,
            held,
            ..
        } = report;
        let peak = units::bytes(report.memory_peak);
        let [waited, ran] = [*waited, *ran].map(units::duration);
        let held = report::held_resources(held);
        let line =
            format!("task {id}: waited {waited}, ran {ran}, held {held}, memory at most {peak}");
        match bar {
            Some(bar) => bar.suspend(|| self.printer.detail(line)),
            None => self.printer.detail(line),
        }
    }

    /// The command's failure for a task's, with the guest's backtrace shown.
    pub(super) fn failed(&self, error: &TaskError, ended: &Ended) -> Failure {
        let exit = match fail::exit_of(error) {
            // Only a program's code is meant for us.
            Exit::Program(_) if !self.is_program() => Exit::TaskFailed,
            exit => exit,
        };
        let name = &self.plan.job.name;
        let text = match error {
            // The program has said why itself.
            TaskError::Exit { code, .. } if !self.is_program() => {
                format!("{name}: the guest exited with code {code} before it returned a result")
            }
            TaskError::Exit { limit, .. } => {
                if let Some(hit) = limit {
                    self.printer
                        .note(format_args!("note: before it exited: {hit}"));
                }
                return Failure::silent(exit);
            }
            error => format!("{name}: {error}"),
        };
        let error = anyhow::anyhow!(placed(text, error, ended));
        match self.printer.output {
            // The report has it all.
            Output::Json => {
                self.printer.error_text(&error);
                Failure::silent(exit)
            }
            _ => Failure::new(exit, error),
        }
    }
}

fn written(path: &Path, result: io::Result<()>) -> CommandResult {
    let failed = |error: io::Error| {
        let exit = exit_of(&error);
        let error = anyhow::Error::new(error);
        Failure::new(
            exit,
            error.context(format!("cannot write to {}", path.display())),
        )
    };
    result.map_err(failed)
}

/// What is said of an error of a task that has ended.
fn placed(text: String, error: &TaskError, Ended { report, node }: &Ended) -> String {
    report::with_place(text, error, report.id, node.as_deref())
}
