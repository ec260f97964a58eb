//! The history of a node in files: each attempt of its tasks that ends is a line of JSON.
//!
//! Owns the files of one node in a folder: their names, what a line is, when the next one begins and which go. Must not: hold
//! up the node, or end it. What cannot be written is counted, said in the log, and noted in the files once that can be.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use wasmrun_client::rows::Object;
use wasmrun_client::wire::TaskRow;
use wasmrun_model::units;
use wasmrun_node::{EndedAttempts, Server};

use crate::args::WatchOptions;
use crate::fail::{Exit, Failure};
use crate::log;

/// How many attempts may wait to be written.
const MOST_WAITING: usize = 100_000;
/// How many are written at once.
const MOST_AT_ONCE: usize = 1000;
/// How large a file becomes, in bytes.
const FILE_BYTES: u64 = 64 << 20;
/// How many files there are room for at least: with little room, files are smaller.
const PART: u64 = 8;
/// How long one file is written.
const FILE_TIME: time::Duration = time::Duration::DAY;
/// The least that all files may have.
const LEAST_BYTES: u64 = 1 << 20;
/// How often the log says that attempts are missing.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// A folder for files, which can be written.
pub struct Folder {
    dir: PathBuf,
    most_bytes: u64,
}

impl Folder {
    /// The one that the options name, if they do. It is made if it is not there.
    ///
    /// # Errors
    /// When no files can be made in it.
    pub fn open(options: &WatchOptions) -> Result<Option<Self>, Failure> {
        let (Some(dir), most_bytes) = (options.history_dir.clone(), options.history_files) else {
            return Ok(None);
        };
        if most_bytes < LEAST_BYTES {
            return Err(Failure::usage(format!(
                "--history-files must be {} or more",
                units::bytes(LEAST_BYTES)
            )));
        }
        let checked = check(&dir).with_context(|| {
            format!(
                "no history can be written to {}: give --history-dir a folder that this user may write to",
                dir.display()
            )
        });
        checked.map_err(|error| Failure::new(Exit::Usage, error))?;
        Ok(Some(Self { dir, most_bytes }))
    }
}

/// Makes a folder, if there is none, and a file in it, which is deleted.
fn check(dir: &Path) -> io::Result<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(io::Error::other("it is a file"));
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    let file = tempfile::Builder::new()
        .prefix(".wasmrun-")
        .tempfile_in(dir);
    file.map(drop)
}

/// A history that is written until this is dropped, which writes what is left.
pub struct HistoryFiles {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryFiles {
    /// Begins to write what ends at this node from now on, if there is a folder.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn start(
        folder: Option<Folder>,
        node: &str,
        server: &Server,
    ) -> Result<Option<Self>, Failure> {
        let Some(folder) = folder else {
            return Ok(None);
        };
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.context("cannot start what writes to --history-dir")?;
        let attempts = server.ended_attempts(MOST_WAITING);
        let files = Files::new(folder, node);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("wasmrun-history".to_owned())
            .spawn(move || runtime.block_on(write(files, attempts, stopped)))
            .context("cannot start the thread that writes to --history-dir")?;
        Ok(Some(Self {
            stop: Some(stop),
            thread: Some(thread),
        }))
    }
}

impl Drop for HistoryFiles {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that has panicked writes nothing any more.
            let _ = thread.join();
        }
    }
}

/// Writes attempts until it is stopped, and then those that wait.
async fn write(mut files: Files, mut attempts: EndedAttempts, mut stopped: oneshot::Receiver<()>) {
    loop {
        let rows = tokio::select! {
            biased;
            rows = attempts.next(MOST_AT_ONCE) => rows,
            _ = &mut stopped => Vec::new(),
        };
        let missed = attempts.take_missed();
        if missed > 0 {
            files.miss(missed, &"they end faster than they are written");
        }
        files.append(&rows, OffsetDateTime::now_utc());
        if rows.is_empty() {
            return;
        }
    }
}

/// The files of a node.
struct Files {
    dir: PathBuf,
    /// What their names begin with.
    prefix: String,
    file_bytes: u64,
    most_bytes: u64,
    open: Option<Open>,
    /// Attempts that are in no file and that no line counts yet.
    missed: u64,
    said: Option<Instant>,
}

/// A file that is written.
struct Open {
    file: File,
    bytes: u64,
    since: OffsetDateTime,
}

impl Files {
    fn new(folder: Folder, node: &str) -> Self {
        Self {
            dir: folder.dir,
            prefix: format!("wasmrun-{node}-"),
            file_bytes: FILE_BYTES.min(folder.most_bytes / PART),
            most_bytes: folder.most_bytes,
            open: None,
            missed: 0,
            said: None,
        }
    }

    /// Writes attempts, or counts them as missed.
    fn append(&mut self, rows: &[TaskRow], now: OffsetDateTime) {
        let missed = (self.missed > 0).then(|| json!({ "version": 1, "missed": self.missed }));
        let lines = missed.into_iter().chain(rows.iter().map(line));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        if text.is_empty() {
            return;
        }
        match self.write(text.as_bytes(), now) {
            Ok(()) => self.missed = 0,
            Err(error) => self.miss(rows.len() as u64, &error),
        }
    }

    /// Writes whole lines, or nothing.
    fn write(&mut self, lines: &[u8], now: OffsetDateTime) -> io::Result<()> {
        let bytes = lines.len() as u64;
        let goes_on =
            |open: &Open| open.bytes + bytes <= self.file_bytes && now - open.since < FILE_TIME;
        let mut open = match self.open.take().filter(goes_on) {
            Some(open) => open,
            None => self.begin(now)?,
        };
        if let Err(error) = open.file.write_all(lines) {
            // A part of it may be there, which ends within a line.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.bytes += bytes;
        self.open = Some(open);
        Ok(())
    }

    /// Begins a file. The oldest ones go, so that there is room for it.
    fn begin(&self, now: OffsetDateTime) -> io::Result<Open> {
        let mut files = self.files()?;
        let mut bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        files.sort();
        for (path, size) in files {
            if bytes + self.file_bytes <= self.most_bytes {
                break;
            }
            std::fs::remove_file(path)?;
            bytes -= size;
        }
        let name = format!("{}{}.jsonl", self.prefix, second(now));
        // A node that has been started twice in this second goes on with the same one.
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600);
        let file = options.open(self.dir.join(name))?;
        Ok(Open {
            bytes: file.metadata()?.len(),
            file,
            since: now,
        })
    }

    /// This node's files, and how large they are.
    fn files(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let rest = name.to_str().and_then(|it| it.strip_prefix(&self.prefix));
            let time = rest.and_then(|it| it.strip_suffix(".jsonl"));
            if time.is_some_and(is_second) {
                files.push((entry.path(), entry.metadata()?.len()));
            }
        }
        Ok(files)
    }

    /// Counts attempts that are in no file, and says so now and then.
    fn miss(&mut self, count: u64, error: &dyn std::fmt::Display) {
        self.missed += count;
        if self.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            self.said = Some(Instant::now());
            let (missed, dir) = (self.missed, self.dir.display());
            tracing::warn!(missed, %dir, %error, "attempts that have ended are missing in the history's files");
        }
    }
}

/// An attempt as programs get it in lists, with the time of its end. Its age would be that of when the line was written.
fn line(row: &TaskRow) -> Json {
    let mut line = row.object();
    line["version"] = 1.into();
    // One that did not run has just ended.
    let now_us = || {
        row.submitted_us
            .saturating_add(row.age_ms.saturating_mul(1000))
    };
    let ended_us = row.run.as_ref().map_or_else(now_us, |run| run.ended_us);
    line["time"] = time_of(ended_us).into();
    if let Some(fields) = line.as_object_mut() {
        fields.remove("age_ms");
    }
    line
}

/// A time in microseconds since 1970, as RFC 3339 has it.
fn time_of(us: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(us) * 1000);
    time.ok().map(log::stamp)
}

/// A time to the second, as names of files have it: `20260102T030405Z`.
fn second(time: OffsetDateTime) -> String {
    let text = log::stamp(time);
    let (second, _) = text.split_once('.').unwrap_or((&*text, ""));
    second.replace(['-', ':'], "") + "Z"
}

fn is_second(text: &str) -> bool {
    let is_its = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'T' | b'Z');
    text.len() == "20260102T030405Z".len() && text.bytes().all(is_its)
}

#[cfg(test)]
mod tests {
    use wasmrun_client::wire::{Phases, Run};
    use wasmrun_model::id::DriverId;

    use super::*;

    const JOB: DriverId = DriverId::from_bytes([2; 16]);

    fn row(number: u64) -> TaskRow {
        TaskRow {
            array_index: Some(number),
            run: Some(Run {
                waited_us: 3,
                ran_us: Some(4),
                ended_us: 1_700_000_000_000_001,
                phases: Phases::default(),
                memory_peak_bytes: 5,
            }),
            ..TaskRow::example(JOB.task(number))
        }
    }

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_700_000_000 + second).unwrap()
    }

    fn files_in(dir: &Path, file_bytes: u64, most_bytes: u64) -> Files {
        let folder = Folder {
            dir: dir.to_owned(),
            most_bytes,
        };
        Files {
            file_bytes,
            ..Files::new(folder, "n1")
        }
    }

    /// The names of all files, and the lines in them.
    fn read(dir: &Path) -> Vec<(String, Vec<Json>)> {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut files: Vec<(String, Vec<Json>)> = entries
            .map(|entry| {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
                let name = entry.file_name().into_string().unwrap();
                (name, lines.collect())
            })
            .collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        files
    }

    fn names(dir: &Path) -> Vec<String> {
        read(dir).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn an_attempt_is_a_line() {
        let line = line(&row(7));
        assert_eq!(line["version"], 1);
        assert_eq!(line["time"], "2023-11-14T22:13:20.000001Z");
        assert_eq!(line["id"], JOB.task(7).to_string());
        assert_eq!(line["array_index"], 7);
        assert_eq!(line.get("age_ms"), None);
        assert_eq!(time_of(u64::MAX), None);
    }

    #[test]
    fn what_never_ran_has_a_time() {
        let row = TaskRow {
            run: None,
            submitted_us: 1_700_000_000_000_001,
            age_ms: 2000,
            ..row(7)
        };
        assert_eq!(line(&row)["time"], "2023-11-14T22:13:22.000001Z");
    }

    #[test]
    fn a_file_ends_when_it_is_full_or_old() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = line(&row(0)).to_string().len() as u64 + 1;
        let mut files = files_in(dir.path(), 2 * bytes, 1 << 20);
        for second in 0..3 {
            files.append(&[row(0)], at(second));
        }
        files.append(&[row(0)], at(2 + 86_400));
        let read = read(dir.path());
        let found: Vec<_> = read.iter().map(|(name, it)| (&**name, it.len())).collect();
        let expected = [
            ("wasmrun-n1-20231114T221320Z.jsonl", 2),
            ("wasmrun-n1-20231114T221322Z.jsonl", 1),
            ("wasmrun-n1-20231115T221322Z.jsonl", 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_oldest_files_of_the_node_go() {
        let dir = tempfile::tempdir().unwrap();
        let others = ["wasmrun-n1-b-20231114T221300Z.jsonl", "wasmrun-n1-x.jsonl"];
        for other in others {
            std::fs::write(dir.path().join(other), "{}\n").unwrap();
        }
        let bytes = line(&row(0)).to_string().len() as u64 + 1;
        let mut files = files_in(dir.path(), bytes, 3 * bytes);
        for second in 0..5 {
            files.append(&[row(0)], at(second));
        }
        let own = [
            "wasmrun-n1-20231114T221322Z.jsonl",
            "wasmrun-n1-20231114T221323Z.jsonl",
            "wasmrun-n1-20231114T221324Z.jsonl",
        ];
        assert_eq!(names(dir.path()), [&own[..], &others[..]].concat());
    }

    #[test]
    fn what_could_not_be_written_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let history = dir.path().join("history");
        let mut files = files_in(&history, 1 << 20, 1 << 20);
        files.append(&[row(0), row(1)], at(0));
        files.append(&[row(2)], at(1));
        check(&history).unwrap();
        files.append(&[row(3)], at(2));
        files.append(&[], at(3));
        let read = read(&history);
        let [(_, lines)] = &read[..] else {
            panic!("{read:?}")
        };
        assert_eq!(lines[0], json!({ "version": 1, "missed": 3 }));
        assert_eq!((lines.len(), &lines[1]["array_index"]), (2, &3.into()));
    }
}
