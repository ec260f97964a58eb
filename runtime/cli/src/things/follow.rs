//! `logs -f`, `logs --grep` and `job logs`: output as lines with the names of their writers, as it comes.
//!
//! Each answer of the node has all output that it keeps of a task or actor. Owns finding what is new in it. Must not: print
//! a part of a line while more of it may come.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use wasmrun_client::blocking::Client;
use wasmrun_client::graph::is_creation;
use wasmrun_client::wire::Output as Said;
use wasmrun_client::{Described, Error};
use wasmrun_model::id::{ActorId, DriverId, TaskId};

use super::{Backoff, failure, jobs, rows};
use crate::args::{LogOptions, Output};
use crate::fail::{CommandResult, Failure};
use crate::printer::{Printer, written};
use crate::remote;
use crate::stdio;

/// The longest line that is held back until it ends, in bytes.
const LINE_BYTES: usize = 64 << 10;
/// The colours of labels, as terminals number them.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// Prints the output that is kept of a task, an actor or a job, as lines; with `--follow` until it ends.
pub fn lines(
    client: &Client,
    named: Described,
    options: &LogOptions,
    printer: &Printer,
) -> CommandResult {
    if printer.output == Output::Json {
        return Err(Failure::usage(
            "--follow, --grep and `job logs` print lines for people: leave -o json out, or use `wasmrun -o json logs ID` \
             without them",
        ));
    }
    let thing = Thing::of(client, &named)?;
    let mut page = Page {
        grep: options.grep.clone(),
        colours: printer.colours_results(),
        is_quiet: printer.output == Output::Quiet,
        printer: *printer,
    };
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    let mut backoff = Backoff::default();
    let is_over = loop {
        // Before the logs: what was written until it ended is in them then.
        let now = thing.look(client)?;
        let has_several = thing.is_job();
        for (id, label, is_over) in now.speakers {
            let source = sources
                .entry(id.clone())
                .or_insert_with(|| Source::new(label, has_several));
            if source.is_over {
                continue;
            }
            match client.wait(client.logs(&id)) {
                Ok(mut outputs) => {
                    if thing.is_service() {
                        // Each request has a writer of its own, and there may be any number of them.
                        outputs
                            .iter_mut()
                            .for_each(|it| (it.writer, it.attempt) = (0, 1));
                    }
                    source.has_log = true;
                    if source.take(&outputs, &mut page)? {
                        backoff = Backoff::default();
                    }
                }
                // Nothing is kept of it, or it is forgotten.
                Err(Error::Refused(_)) if thing.is_job() => source.end(&mut page)?,
                Err(error) => return Err(remote::failed(error)),
            }
            if is_over {
                source.end(&mut page)?;
            }
        }
        if now.is_over || !options.follow {
            break now.is_over;
        }
        backoff.sleep(None);
    };
    for source in sources.values_mut() {
        source.end(&mut page)?;
    }
    let none_kept = sources.values().all(|source| !source.has_log);
    if let Thing::Job(id) = &thing
        && none_kept
        && (is_over || !sources.is_empty())
    {
        // The node says why.
        let why = client.wait(client.logs(&id.to_string()));
        why.map_err(remote::failed)?;
    }
    if let Some(why) = thing.failure(client) {
        printer.note(why);
    }
    Ok(())
}

/// What the output is of.
enum Thing {
    Task(TaskId),
    Actor(ActorId, String),
    Job(DriverId),
    /// What handlers print, by the service's job.
    Service(DriverId, String),
}

/// What has output now, and whether more of it may come.
struct Now {
    /// Ids of tasks and actors, their labels, and whether they have ended.
    speakers: Vec<(String, String, bool)>,
    is_over: bool,
}

impl Thing {
    fn of(client: &Client, named: &Described) -> Result<Self, Failure> {
        Ok(match named {
            Described::Task(task) => Self::Task(task.row.id),
            Described::Actor(actor) => {
                let row = &actor.row;
                let id = row.id.to_string();
                let name = row.name.clone();
                Self::Actor(row.id, name.unwrap_or_else(|| rows::short(&id).to_owned()))
            }
            Described::Job(job) => match service_of(client, job.row.id)? {
                Some(name) => Self::Service(job.row.id, name),
                None => Self::Job(job.row.id),
            },
            Described::Object(object) => Self::Task(object.copies[0].id.task()),
        })
    }

    fn is_job(&self) -> bool {
        matches!(self, Self::Job(_))
    }

    fn is_service(&self) -> bool {
        matches!(self, Self::Service(..))
    }

    fn look(&self, client: &Client) -> Result<Now, Failure> {
        let one = |id: String, label: String, is_over: bool| Now {
            speakers: vec![(id, label, is_over)],
            is_over,
        };
        match self {
            Self::Task(id) => {
                let id = id.to_string();
                let described = client.wait(client.describe(&id)).map_err(remote::failed)?;
                let row = described.task().map(|task| task.row);
                let is_over = row.as_ref().is_none_or(|row| has_ended(&row.state));
                let label = row.as_ref().map(rows::label);
                let label = label.unwrap_or_else(|| rows::short(&id).to_owned());
                Ok(one(id, label, is_over))
            }
            Self::Actor(id, name) => {
                let id = id.to_string();
                let is_over = match client.wait(client.describe(&id)) {
                    Ok(Described::Actor(actor)) => has_ended(&actor.row.state),
                    Ok(_) | Err(Error::Refused(_)) => true,
                    Err(error) => return Err(remote::failed(error)),
                };
                Ok(one(id, name.clone(), is_over))
            }
            Self::Job(id) => of_job(client, *id),
            Self::Service(id, name) => Ok(match service_of(client, *id)? {
                Some(_) => one(id.to_string(), name.clone(), false),
                // Its log is gone with it.
                None => Now {
                    speakers: Vec::new(),
                    is_over: true,
                },
            }),
        }
    }

    /// How it has failed, if it has.
    fn failure(&self, client: &Client) -> Option<String> {
        let id = match self {
            Self::Task(id) => id.to_string(),
            Self::Actor(id, _) => id.to_string(),
            Self::Job(_) | Self::Service(..) => return None,
        };
        failure(&client.wait(client.describe(&id)).ok()?)
    }
}

/// The name of the service whose requests are the tasks of this job, if there is one.
fn service_of(client: &Client, job: DriverId) -> Result<Option<String>, Failure> {
    let services = client.wait(client.services()).map_err(remote::failed)?;
    let mut services = services.into_iter();
    Ok(services.find(|it| it.job == job).map(|it| it.name))
}

/// The tasks of a job that have a log of their own: those that its driver has submitted, if they have begun, and actors. What
/// actors of detached tasks write is in the logs of those.
fn of_job(client: &Client, id: DriverId) -> Result<Now, Failure> {
    let (job, is_whole) = jobs::now(client, id)?;
    let mut tasks = jobs::tasks_of(client, id, &[])?;
    tasks.retain(|row| match row.actor {
        Some(_) => is_creation(row) && !(row.is_detached && row.parent.is_some()),
        None => row.parent.is_none(),
    });
    tasks.retain(|row| row.attempt > 0 || has_ended(&row.state));
    tasks.sort_by_key(jobs::order);
    let speakers = tasks.iter().map(|row| {
        let is_over = has_ended(&row.state);
        (row.id.to_string(), rows::label(row), is_over)
    });
    Ok(Now {
        speakers: speakers.collect(),
        // The node that knows it may come back, or another one may adopt the job.
        is_over: job.map_or(is_whole, |job| job.state != "running"),
    })
}

pub fn has_ended(state: &str) -> bool {
    ["finished", "failed", "cancelled"].contains(&state)
}

/// A task or actor that writes, by its number, and which attempt of it.
type Writer = (u64, u32);

/// A log, and what of it has been printed.
struct Source {
    label: String,
    /// Whether it is one of several tasks or actors that write.
    is_one_of_several: bool,
    streams: BTreeMap<(Writer, bool), Stream>,
    /// Its writers, in the order in which they were first seen.
    writers: Vec<Writer>,
    has_log: bool,
    is_over: bool,
}

/// What one writer has written to standard output or standard error.
#[derive(Default)]
struct Stream {
    /// All that the node's last answer had of it.
    seen: Vec<u8>,
    /// The beginning of a line that has not ended.
    open: Vec<u8>,
}

impl Source {
    fn new(label: String, is_one_of_several: bool) -> Self {
        Self {
            label,
            is_one_of_several,
            streams: BTreeMap::new(),
            writers: Vec::new(),
            has_log: false,
            is_over: false,
        }
    }

    /// Prints what is new in an answer of the node. Whether anything was.
    fn take(&mut self, outputs: &[Said], page: &mut Page) -> Result<bool, Failure> {
        let mut kept: BTreeMap<(Writer, bool), Vec<u8>> = BTreeMap::new();
        for said in outputs {
            let writer = (said.writer, said.attempt);
            let stream = kept.entry((writer, said.is_stderr)).or_default();
            stream.extend_from_slice(&said.bytes.0);
            if !self.writers.contains(&writer) {
                self.writers.push(writer);
            }
        }
        let mut known: BTreeMap<(Writer, bool), usize> = BTreeMap::new();
        let mut has_lost = BTreeSet::new();
        for (key, now) in kept {
            let stream = self.streams.entry(key).or_default();
            let overlap = overlap(&stream.seen, &now);
            if overlap == 0 && !stream.seen.is_empty() {
                has_lost.insert(key);
            }
            known.insert(key, overlap);
            stream.seen = now;
        }
        let mut is_new = false;
        for said in outputs {
            let key = ((said.writer, said.attempt), said.is_stderr);
            let skipped = known.entry(key).or_default();
            let from = (*skipped).min(said.bytes.0.len());
            *skipped -= from;
            let new = &said.bytes.0[from..];
            if new.is_empty() {
                continue;
            }
            is_new = true;
            if has_lost.remove(&key) {
                self.end_line(key, page)?;
                page.lost(&self.label);
            }
            let who = self.who(key.0);
            let stream = self.streams.entry(key).or_default();
            stream.open.extend_from_slice(new);
            let end = match stream.open.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None if stream.open.len() > LINE_BYTES => stream.open.len(),
                None => continue,
            };
            let lines: Vec<u8> = stream.open.drain(..end).collect();
            page.print(who.as_ref(), said.is_stderr, &lines)?;
        }
        Ok(is_new)
    }

    /// The label before a writer's lines where several write, and a number for its colour. A first attempt says nothing of
    /// that.
    fn who(&self, writer: Writer) -> Option<(String, usize)> {
        let at = self.writers.iter().position(|it| *it == writer)?;
        if self.writers.len() <= 1 && !self.is_one_of_several {
            return None;
        }
        let colour = self.label.bytes().map(usize::from).sum::<usize>() + at;
        let (_, attempt) = writer;
        let before = self.writers[..at].iter();
        let mut label = match before.filter(|(_, its)| *its == attempt).count() {
            0 => self.label.clone(),
            nth => format!("{}.{}", self.label, nth + 1),
        };
        if attempt > 1 {
            label.push_str(&format!(" attempt {attempt}"));
        }
        Some((label, colour))
    }

    fn end_line(&mut self, key: (Writer, bool), page: &mut Page) -> CommandResult {
        let rest = self.streams.get_mut(&key);
        let rest = rest.map(|it| std::mem::take(&mut it.open));
        match rest {
            Some(rest) if !rest.is_empty() => page.print(self.who(key.0).as_ref(), key.1, &rest),
            _ => Ok(()),
        }
    }

    /// Prints the lines that have not ended: no more output comes.
    fn end(&mut self, page: &mut Page) -> CommandResult {
        self.is_over = true;
        let keys: Vec<_> = self.streams.keys().copied().collect();
        for key in keys {
            self.end_line(key, page)?;
        }
        // An array may have many tasks.
        self.streams.clear();
        Ok(())
    }
}

/// How much of the beginning of `now` was seen before: the longest one that `seen` ends with. The node drops the oldest
/// of what it keeps, and adds to its end.
fn overlap(seen: &[u8], now: &[u8]) -> usize {
    if now.starts_with(seen) {
        return seen.len();
    }
    // As Knuth, Morris and Pratt search: for each beginning of `now`, the longest shorter one that it ends with.
    let mut shorter = vec![0; now.len()];
    let mut length = 0;
    for at in 1..now.len() {
        while length > 0 && now[at] != now[length] {
            length = shorter[length - 1];
        }
        length += usize::from(now[at] == now[length]);
        shorter[at] = length;
    }
    let mut length = 0;
    for byte in seen {
        while length > 0 && now.get(length) != Some(byte) {
            length = shorter[length - 1];
        }
        length += usize::from(now.get(length) == Some(byte));
    }
    length
}

/// Where lines go.
struct Page {
    grep: Option<String>,
    colours: bool,
    is_quiet: bool,
    printer: Printer,
}

impl Page {
    fn print(
        &mut self,
        who: Option<&(String, usize)>,
        is_stderr: bool,
        lines: &[u8],
    ) -> CommandResult {
        if self.is_quiet {
            return Ok(());
        }
        let before = match who {
            None => String::new(),
            Some((label, at)) if self.colours => {
                format!("\x1b[{}m[{label}]\x1b[0m ", COLOURS[at % COLOURS.len()])
            }
            Some((label, _)) => format!("[{label}] "),
        };
        let mut text = Vec::with_capacity(lines.len() + before.len());
        let whole = lines.strip_suffix(b"\n").unwrap_or(lines);
        for line in whole.split(|byte| *byte == b'\n') {
            if is_wanted(self.grep.as_deref(), line) {
                text.extend_from_slice(before.as_bytes());
                text.extend_from_slice(line);
                text.push(b'\n');
            }
        }
        match is_stderr {
            true => written(io::stderr().lock().write_all(&text)),
            false => written(stdio::output().write_all(&text)),
        }
    }

    /// Warns that output is missing here.
    fn lost(&self, label: &str) {
        self.printer.warn(format_args!(
            "[{label}] has written more since the last look than the node keeps: some of it is lost here"
        ));
    }
}

/// Whether a line is to be printed.
fn is_wanted(grep: Option<&str>, line: &[u8]) -> bool {
    grep.is_none_or(|text| String::from_utf8_lossy(line).contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_found_in_a_window_that_moves() {
        for (seen, now, expected) in [
            ("", "abc", 0),
            ("abc", "abcdef", 3),
            ("abc", "abc", 3),
            // The oldest was dropped.
            ("abcdef", "defghi", 3),
            ("aabaab", "aabx", 3),
            ("abc", "xyz", 0),
            ("abcabc", "abcd", 3),
            ("abc", "", 0),
        ] {
            let found = overlap(seen.as_bytes(), now.as_bytes());
            assert_eq!(found, expected, "{seen} {now}");
        }
    }

    #[test]
    fn lines_are_labelled_where_several_speak() {
        let mut source = Source::new("3".into(), false);
        let who = |source: &Source, writer| source.who(writer).map(|it| it.0);
        source.writers = vec![(7, 1)];
        assert_eq!(who(&source, (7, 1)), None);
        source.writers.extend([(8, 2), (9, 1), (8, 3), (10, 3)]);
        for (writer, label) in [
            ((7, 1), "3"),
            ((8, 2), "3 attempt 2"),
            ((9, 1), "3.2"),
            ((8, 3), "3 attempt 3"),
            ((10, 3), "3.2 attempt 3"),
        ] {
            assert_eq!(who(&source, writer).as_deref(), Some(label));
        }
        let alone = Source {
            writers: vec![(7, 1)],
            ..Source::new("3".into(), true)
        };
        assert_eq!(who(&alone, (7, 1)).as_deref(), Some("3"));
    }

    #[test]
    fn only_lines_with_the_text_are_wanted() {
        assert!(is_wanted(Some("err"), b"an error") && is_wanted(None, b"fine"));
        assert!(!is_wanted(Some("err"), b"fine"));
    }
}
