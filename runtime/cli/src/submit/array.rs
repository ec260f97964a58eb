//! An array of tasks, from the first to the exit code.
//!
//! Owns how many are submitted ahead, their counts, and how the command ends. Must not: know where their elements come from.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use wasmrun_model::units;
use wasmrun_node::{Argument, Report};

use super::elements::Elements;
use super::report;
use super::stream::{Route, unwritten};
use super::target::{Ended, Handle};
use super::{Run, STOPPED, Streaming, has_run};
use crate::args::Output;
use crate::fail::{self, CommandResult, Exit, Failure};
use crate::signals::INTERRUPTED;

/// How many tasks of an array are submitted ahead of the oldest that has not ended.
pub const TASKS_AHEAD: usize = 10_000;
/// How many of them have to end before more are submitted, in one message: one at a time would wake the node each time.
const REFILL: usize = 1_000;
/// How many bytes of arguments these have together, if one alone does not have more.
const BYTES_AHEAD: u64 = 256 << 20;

/// What has come of the tasks so far.
struct Outcome<'a> {
    run: &'a Run<'a>,
    bar: Option<ProgressBar>,
    tally: Tally,
    /// Kept for JSON, in order.
    reports: Vec<Ended>,
    unwritten: Vec<Failure>,
    have_run: Vec<Option<u64>>,
}

impl Run<'_> {
    pub(super) fn array(&self, elements: &Elements) -> CommandResult {
        let started = Instant::now();
        let bar = self.bar(elements.len());
        let streaming = Streaming::start(self.array_route(bar.as_ref()), self.target.stopper())?;
        let mut outcome = Outcome {
            run: self,
            bar,
            tally: Tally::default(),
            reports: Vec::new(),
            unwritten: Vec::new(),
            have_run: Vec::new(),
        };
        let mut open: VecDeque<(u64, Handle, u64)> = VecDeque::new();
        let mut ahead = 0;
        for element in elements.iter() {
            let call = self.plan.call(Some(element))?;
            let bytes = call.values.iter().map(Argument::size_bytes).sum::<u64>();
            let most = match open.len() {
                TASKS_AHEAD => TASKS_AHEAD - REFILL,
                other => other,
            };
            while (open.len() > most || ahead + bytes > BYTES_AHEAD)
                && let Some((index, handle, bytes)) = open.pop_front()
            {
                ahead -= bytes;
                outcome.ended(index, handle)?;
            }
            if STOPPED.load(Ordering::SeqCst) {
                break;
            }
            let handle = self.send(call, &streaming.chunks)?;
            open.push_back((element.index, handle, bytes));
            ahead += bytes;
        }
        for (index, handle, _) in open {
            outcome.ended(index, handle)?;
        }
        outcome.finish(streaming, elements, started)
    }

    /// Where the output of an array's tasks goes.
    fn array_route(&self, bar: Option<&ProgressBar>) -> Route {
        match (self.printer.output, &self.submit.result_file) {
            (Output::Json, _) => Route::Keep,
            (_, Some(pattern)) if self.is_program() => {
                let pattern = pattern.clone();
                Route::Files {
                    path: Box::new(move |tag| report::file_of(&pattern, Some(tag))),
                    is_array: true,
                }
            }
            (Output::Quiet, _) => Route::Drop,
            (Output::Table, _) => Route::Lines {
                bar: bar.cloned(),
                aside: !self.is_program(),
            },
        }
    }
}

impl Outcome<'_> {
    /// Waits for a task, and gives what came of it to who asked for it.
    fn ended(&mut self, index: u64, handle: Handle) -> CommandResult {
        let ended = self.run.target.wait(handle)?;
        let (report, bar) = (&ended.report, self.bar.as_ref());
        if has_run(report) {
            self.have_run.push(Some(index));
        }
        self.tally.count(report);
        self.run.detail(report, bar);
        let printed = match &report.result {
            Ok(_) => self.run.print_array_result(report, index, bar),
            Err(error) => {
                self.run.print_array_failure(error, &ended, index, bar);
                Ok(())
            }
        };
        if self.run.printer.output == Output::Json {
            self.reports.push(ended);
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        match printed {
            // The others may well have theirs written.
            Err(failure) if failure.exit != Exit::BrokenPipe => {
                self.not_written(index, failure);
                Ok(())
            }
            printed => printed,
        }
    }

    fn not_written(&mut self, index: u64, failure: Failure) {
        let printer = self.run.printer;
        let print = || printer.stderr(format_args!("[{index}] {failure}"));
        let bar = self.bar.as_ref();
        bar.map_or_else(print, |bar| bar.suspend(print));
        self.unwritten.push(failure);
    }

    /// Brings what is left where it belongs, when all tasks have ended.
    fn finish(
        mut self,
        streaming: Streaming,
        elements: &Elements,
        started: Instant,
    ) -> CommandResult {
        let run = self.run;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let mut kept = streaming.finish()?;
        for (index, error) in std::mem::take(&mut kept.unwritten) {
            self.not_written(index, unwritten(error));
        }
        if run.printer.output == Output::Json {
            let tasks = elements.iter().zip(&self.reports);
            let tasks = tasks.map(|(element, ended)| {
                let mut task = run.json(ended, Some(element.index), &kept);
                if let Some(item) = element.item {
                    task["input"] = item.json();
                }
                task
            });
            let tasks: Vec<_> = tasks.collect();
            run.print_json(&json!({ "version": 1, "tasks": tasks }))?;
            for (index, written) in run.keep_stdout(&kept) {
                let failed = written.err();
                failed
                    .into_iter()
                    .for_each(|it| self.not_written(index, it));
            }
        }
        let have_run = std::mem::take(&mut self.have_run);
        for (index, made) in run.make_empty_files(&kept, &have_run) {
            let failed = made.err();
            failed
                .into_iter()
                .for_each(|it| self.not_written(index, it));
        }
        let (name, took) = (&run.plan.job.name, units::duration(started.elapsed()));
        let Tally {
            finished, failed, ..
        } = &self.tally;
        run.printer.note(format_args!(
            "{name}: {finished} finished, {failed} failed in {took}"
        ));
        self.exit(elements)
    }

    /// How the command ends.
    fn exit(self, elements: &Elements) -> CommandResult {
        let Tally {
            finished,
            failed,
            first_failure,
        } = self.tally;
        match first_failure {
            None if let Some(first) = self.unwritten.first() => {
                let (count, exit) = (self.unwritten.len(), first.exit);
                let error = match self.run.is_program() {
                    true => anyhow::anyhow!(
                        "cannot write the output of {count} of {finished} tasks, such as this: {first}; submit the \
                         indices above again, to files that can be written"
                    ),
                    false => anyhow::anyhow!(
                        "cannot write {count} of {finished} results, such as this: {first}; above is where each is"
                    ),
                };
                Err(Failure::new(exit, error))
            }
            None if INTERRUPTED.load(Ordering::SeqCst) && finished < elements.len() => {
                Err(Failure::silent(Exit::Interrupted))
            }
            None => Ok(()),
            Some(exit) if self.run.printer.output == Output::Json => Err(Failure::silent(exit)),
            Some(exit) => Err(Failure::new(
                exit,
                anyhow::anyhow!("{failed} of {} tasks did not finish", finished + failed),
            )),
        }
    }
}

/// How the tasks of an array ended.
#[derive(Default)]
struct Tally {
    finished: u64,
    failed: u64,
    first_failure: Option<Exit>,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        match &report.result {
            Ok(_) => self.finished += 1,
            Err(error) => {
                self.failed += 1;
                // A program's own code says nothing about the whole array.
                let exit = match fail::exit_of(error) {
                    Exit::Program(_) => Exit::TaskFailed,
                    exit => exit,
                };
                self.first_failure.get_or_insert(exit);
            }
        }
    }
}
