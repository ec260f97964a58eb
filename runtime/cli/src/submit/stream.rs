//! The guest's output on its way to ours.
//!
//! One thread takes chunks off the channel that all tasks of a submission share and brings them
//! where they belong. It ends when the last task has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use indicatif::ProgressBar;
use tokio::sync::mpsc::Receiver;
use wasmrun_engine::{OutputChunk, OutputSource};

use crate::fail::{Exit, Failure};
use crate::{outfile, stdio};

/// What to do with output.
pub enum Route {
    /// As it comes, to our own standard output and error.
    Through,
    /// Both to standard error, since standard output is for the result; line by line, since others that
    /// the task has started write there too.
    Aside,
    /// Line by line, each with its task's index before it.
    Lines {
        /// Hidden while lines are printed.
        bar: Option<ProgressBar>,
        /// Whether standard output is for results.
        aside: bool,
    },
    /// Standard output into a file per task; standard error as it comes.
    Files {
        path: Box<dyn Fn(u64) -> PathBuf + Send>,
        /// Whether others go on when one cannot be written.
        is_array: bool,
    },
    /// Kept, for JSON.
    Keep,
    /// Nowhere.
    Drop,
}

/// What was kept, by the tasks' tags.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    /// Standard output and standard error. Of those with files it says which have begun, or could not.
    pub printed: BTreeMap<u64, [Vec<u8>; 2]>,
    /// Those of an array whose files could not be written.
    pub unwritten: BTreeMap<u64, io::Error>,
}

/// Starts the thread. An error is one of writing: `failed` is called, and the guests see a closed
/// stream.
pub fn pump(
    route: Route,
    mut chunks: Receiver<OutputChunk>,
    failed: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<io::Result<CapturedOutput>>> {
    std::thread::Builder::new()
        .name("wasmrun-output".into())
        .spawn(move || {
            let mut sink = Sink {
                route,
                captured: CapturedOutput::default(),
                pipes: BTreeMap::new(),
                open: BTreeMap::new(),
            };
            while let Some(chunk) = chunks.blocking_recv() {
                if let Err(error) = sink.take(chunk).and_then(|()| sink.bound()) {
                    failed();
                    return Err(error);
                }
            }
            sink.finish()
        })
}

/// The command's failure where guests' output could not be written.
pub fn unwritten(error: io::Error) -> Failure {
    match exit_of(&error) {
        Exit::BrokenPipe => Failure::new(Exit::BrokenPipe, error),
        exit => {
            let error = anyhow::Error::new(error);
            Failure::new(exit, error.context("cannot write the guest's output"))
        }
    }
}

/// The exit code where something could not be written.
pub fn exit_of(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::BrokenPipe,
        io::ErrorKind::Interrupted => Exit::Interrupted,
        _ => Exit::Usage,
    }
}

struct Sink {
    route: Route,
    /// What was kept.
    captured: CapturedOutput,
    /// What of the files is none, by tag.
    pipes: BTreeMap<u64, File>,
    /// For lines, what has no end yet.
    open: BTreeMap<Stream, Vec<u8>>,
}

/// One of the two outputs of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stream {
    tag: u64,
    attempt: u32,
    writer: u64,
    is_stderr: bool,
}

impl Sink {
    fn take(&mut self, chunk: OutputChunk) -> io::Result<()> {
        let OutputChunk {
            tag,
            writer,
            attempt,
            source,
            bytes,
        } = chunk;
        let stream = Stream {
            tag,
            attempt,
            writer,
            is_stderr: source == OutputSource::Stderr,
        };
        match &self.route {
            Route::Through if source == OutputSource::Stdout => stdio::output().write_all(&bytes),
            Route::Through => io::stderr().lock().write_all(&bytes),
            Route::Aside => match whole_lines(&mut self.open, stream, &bytes) {
                Some(lines) => io::stderr().lock().write_all(&lines),
                None => Ok(()),
            },
            Route::Files { .. } if source == OutputSource::Stderr => {
                io::stderr().lock().write_all(&bytes)
            }
            Route::Files { .. } if self.captured.unwritten.contains_key(&tag) => Ok(()),
            Route::Files { path, is_array } => {
                let (path, is_array) = (path(tag), *is_array);
                let written = self.write_to(tag, &path, &bytes);
                let written = written.map_err(|error| match error.kind() {
                    // Who reads a pipe no more wants no words.
                    io::ErrorKind::BrokenPipe => error,
                    kind => io::Error::new(kind, format!("{}: {error}", path.display())),
                });
                match written {
                    Err(error) if is_array && error.kind() != io::ErrorKind::BrokenPipe => {
                        self.captured.printed.entry(tag).or_default();
                        self.captured.unwritten.insert(tag, error);
                        Ok(())
                    }
                    written => written,
                }
            }
            Route::Keep => {
                self.captured.printed.entry(tag).or_default()[source as usize]
                    .extend_from_slice(&bytes);
                Ok(())
            }
            Route::Lines { bar, aside } => match whole_lines(&mut self.open, stream, &bytes) {
                Some(lines) => print_lines(stream, &lines, bar.as_ref(), *aside),
                None => Ok(()),
            },
            Route::Drop => Ok(()),
        }
    }

    /// Writes what a program has printed to its file, which begins anew with the first of it: what was there before stays
    /// until then.
    fn write_to(&mut self, tag: u64, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Some(pipe) = self.pipes.get_mut(&tag) {
            return pipe.write_all(bytes);
        }
        let mut file = match self.captured.printed.contains_key(&tag) {
            true => File::options().append(true).open(path)?,
            false => outfile::begin(path)?,
        };
        self.captured.printed.entry(tag).or_default();
        file.write_all(bytes)?;
        // Not kept open: an array may have more tasks than we may have files. Who reads a pipe would take that for its end.
        let about = file.metadata()?;
        if !about.is_file() || outfile::is_own(&about) {
            self.pipes.insert(tag, file);
        }
        Ok(())
    }

    /// Keeps lines open for so many writers only: nobody says when one has ended.
    fn bound(&mut self) -> io::Result<()> {
        match self.open.len() > MOST_OPEN {
            true => self.end_lines(),
            false => Ok(()),
        }
    }

    fn finish(mut self) -> io::Result<CapturedOutput> {
        // What has no end is the last of its writer.
        self.end_lines()?;
        Ok(self.captured)
    }

    /// What has no end gets one.
    fn end_lines(&mut self) -> io::Result<()> {
        let open = std::mem::take(&mut self.open);
        for (stream, rest) in &open {
            match &self.route {
                _ if rest.is_empty() => {}
                Route::Lines { bar, aside } => {
                    print_lines(*stream, rest, bar.as_ref(), *aside)?;
                }
                _ => {
                    // Another one's would go on in the middle of this line.
                    let end: &[u8] = if open.len() > 1 { b"\n" } else { b"" };
                    io::stderr().lock().write_all(&[rest, end].concat())?;
                }
            }
        }
        Ok(())
    }
}

/// How many lines may be open at a time.
const MOST_OPEN: usize = 1000;

/// The longest line that is held back until it ends, in bytes.
const LINE_BYTES: usize = 64 << 10;

/// Adds to what a stream has written, and takes what of it is whole lines.
fn whole_lines(
    open: &mut BTreeMap<Stream, Vec<u8>>,
    stream: Stream,
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let rest = open.entry(stream).or_default();
    rest.extend_from_slice(bytes);
    let end = match rest.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if rest.len() > LINE_BYTES => rest.len(),
        None => return None,
    };
    let lines = rest.drain(..end).collect();
    if rest.is_empty() {
        // Writers come and go.
        open.remove(&stream);
    }
    Some(lines)
}

/// Whose lines these are: the task's, by its index, and which attempt's if it is not the first.
fn label(stream: Stream) -> String {
    match (stream.tag, stream.attempt) {
        (tag, ..=1) => format!("[{tag}] "),
        (tag, attempt) => format!("[{tag} attempt {attempt}] "),
    }
}

fn print_lines(
    stream: Stream,
    lines: &[u8],
    bar: Option<&ProgressBar>,
    aside: bool,
) -> io::Result<()> {
    let (mut text, label) = (Vec::with_capacity(lines.len() + 16), label(stream));
    for line in lines
        .strip_suffix(b"\n")
        .unwrap_or(lines)
        .split(|byte| *byte == b'\n')
    {
        text.extend_from_slice(label.as_bytes());
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    let print = || match stream.is_stderr || aside {
        false => stdio::output().write_all(&text),
        true => io::stderr().lock().write_all(&text),
    };
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(writer: u64, attempt: u32) -> Stream {
        Stream {
            tag: 3,
            attempt,
            writer,
            is_stderr: true,
        }
    }

    #[test]
    fn a_retried_attempt_says_so_and_its_lines_are_its_own() {
        // At another node it may have the same number.
        let mut open = BTreeMap::new();
        assert_eq!(whole_lines(&mut open, of(1, 1), b"cut"), None);
        let lines = whole_lines(&mut open, of(1, 2), b"again\n");
        assert_eq!(lines.as_deref(), Some(&b"again\n"[..]));
        assert_eq!(label(of(1, 1)), "[3] ");
        assert_eq!(label(of(1, 2)), "[3 attempt 2] ");
    }

    #[test]
    fn lines_are_open_for_so_many_writers_only() {
        let mut sink = Sink {
            route: Route::Lines {
                bar: None,
                aside: true,
            },
            captured: CapturedOutput::default(),
            pipes: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        for writer in 0..3 * MOST_OPEN as u64 {
            let stream = of(writer, 1);
            // Nothing, so that the test prints nothing.
            assert_eq!(whole_lines(&mut sink.open, stream, b""), None);
            sink.bound().unwrap();
            assert!(sink.open.len() <= MOST_OPEN);
        }
    }

    #[test]
    fn lines_of_two_writers_stay_whole() {
        let mut open = BTreeMap::new();
        let (one, other) = (of(1, 1), of(2, 1));
        assert_eq!(whole_lines(&mut open, one, b"half a "), None);
        let whole = whole_lines(&mut open, other, b"whole\nand a part");
        assert_eq!(whole.as_deref(), Some(&b"whole\n"[..]));
        let rest = whole_lines(&mut open, one, b"line\n");
        assert_eq!(rest.as_deref(), Some(&b"half a line\n"[..]));
        assert_eq!(open, BTreeMap::from([(other, b"and a part".to_vec())]));
        // What never ends is not held for ever.
        assert!(whole_lines(&mut open, one, &[b'x'; LINE_BYTES + 1]).is_some());
    }
}
