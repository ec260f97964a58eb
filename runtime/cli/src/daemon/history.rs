//! The history of a node in files: each attempt of its tasks that ends is a line of JSON.
//!
//! Owns what a line is, and the thread that writes it; [`LineFiles`] has the files. Must not: hold up the node, or end it. What cannot be written is counted, said in the log, and noted in the files once that can be.

use std::io;
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
use wasmrun_node::{EndedAttempts, LineFiles, Server, stamp};

use crate::args::WatchOptions;
use crate::fail::{Exit, Failure};

/// How many attempts may wait to be written.
const MOST_WAITING: usize = 100_000;
/// How many are written at once.
const MOST_AT_ONCE: usize = 1000;
/// How large a file becomes, in bytes.
const FILE_BYTES: u64 = 64 << 20;
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
    LineFiles::make(dir)?;
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
    lines: LineFiles,
    /// Attempts that are in no file and that no line counts yet.
    missed: u64,
    said: Option<Instant>,
}

impl Files {
    fn new(folder: Folder, node: &str) -> Self {
        let prefix = format!("wasmrun-{node}-");
        Self {
            lines: LineFiles::new(folder.dir.clone(), prefix, FILE_BYTES, folder.most_bytes),
            dir: folder.dir,
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
        match self.lines.write(text.as_bytes(), now) {
            Ok(()) => self.missed = 0,
            Err(error) => self.miss(rows.len() as u64, &error),
        }
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
    time.ok().map(stamp)
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
    fn what_could_not_be_written_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let history = dir.path().join("history");
        let folder = Folder {
            dir: history.clone(),
            most_bytes: LEAST_BYTES,
        };
        let mut files = Files::new(folder, "n1");
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
