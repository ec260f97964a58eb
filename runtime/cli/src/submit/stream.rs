//! The guest's output on its way to ours.
//!
//! One thread takes chunks off the channel that all tasks of a submission share and brings them
//! where they belong. It ends when the last task has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread::JoinHandle;

use indicatif::ProgressBar;
use tokio::sync::mpsc::Receiver;
use wasmrun_engine::{OutputChunk, OutputSource};

/// What to do with output.
pub enum Route {
    /// As it comes, to our own standard output and error.
    Through,
    /// Both to standard error, since standard output is for the result.
    Aside,
    /// Line by line, each with its task's index before it.
    Lines {
        /// Hidden while lines are printed.
        bar: Option<ProgressBar>,
        /// Whether standard output is for results.
        aside: bool,
    },
    /// Standard output into a file per task; standard error as it comes.
    Files(Box<dyn Fn(u64) -> PathBuf + Send>),
    /// Kept, for JSON.
    Keep,
    /// Nowhere.
    Drop,
}

/// What was kept of each task: standard output and standard error.
pub type Kept = BTreeMap<u64, [Vec<u8>; 2]>;

/// Starts the thread. An error is one of writing: `failed` is called, and the guests see a closed
/// stream.
pub fn pump(
    route: Route,
    mut chunks: Receiver<OutputChunk>,
    failed: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<io::Result<Kept>>> {
    std::thread::Builder::new()
        .name("wasmrun-output".into())
        .spawn(move || {
            let mut sink = Sink {
                route,
                kept: Kept::new(),
            };
            while let Some(chunk) = chunks.blocking_recv() {
                if let Err(error) = sink.take(chunk) {
                    failed();
                    return Err(error);
                }
            }
            sink.finish()
        })
}

struct Sink {
    route: Route,
    /// For lines, what has no end yet.
    kept: Kept,
}

impl Sink {
    fn take(&mut self, chunk: OutputChunk) -> io::Result<()> {
        let OutputChunk { tag, source, bytes } = chunk;
        match &self.route {
            Route::Through if source == OutputSource::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&bytes)?;
                stdout.flush()
            }
            Route::Through | Route::Aside => io::stderr().lock().write_all(&bytes),
            Route::Files(_) if source == OutputSource::Stderr => {
                io::stderr().lock().write_all(&bytes)
            }
            Route::Files(path) => {
                // Not kept open: an array may have more tasks than we may have files.
                File::options()
                    .append(true)
                    .open(path(tag))?
                    .write_all(&bytes)
            }
            Route::Keep => {
                self.kept.entry(tag).or_default()[source as usize].extend_from_slice(&bytes);
                Ok(())
            }
            Route::Lines { bar, aside } => {
                let rest = &mut self.kept.entry(tag).or_default()[source as usize];
                rest.extend_from_slice(&bytes);
                let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
                    return Ok(());
                };
                let lines: Vec<u8> = rest.drain(..=end).collect();
                print_lines(tag, source, &lines, bar.as_ref(), *aside)
            }
            Route::Drop => Ok(()),
        }
    }

    fn finish(self) -> io::Result<Kept> {
        if let Route::Lines { bar, aside } = &self.route {
            for (tag, rests) in &self.kept {
                for (source, rest) in [OutputSource::Stdout, OutputSource::Stderr]
                    .iter()
                    .zip(rests)
                {
                    if !rest.is_empty() {
                        print_lines(*tag, *source, rest, bar.as_ref(), *aside)?;
                    }
                }
            }
        }
        Ok(self.kept)
    }
}

fn print_lines(
    tag: u64,
    source: OutputSource,
    lines: &[u8],
    bar: Option<&ProgressBar>,
    aside: bool,
) -> io::Result<()> {
    let mut text = Vec::with_capacity(lines.len() + 16);
    for line in lines
        .strip_suffix(b"\n")
        .unwrap_or(lines)
        .split(|byte| *byte == b'\n')
    {
        write!(text, "[{tag}] ")?;
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    let print = || match source {
        OutputSource::Stdout if !aside => io::stdout().lock().write_all(&text),
        _ => io::stderr().lock().write_all(&text),
    };
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
