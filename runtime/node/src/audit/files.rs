//! Files of lines in a folder: one after the other, each up to a size and an age, within a limit of all of them.
//!
//! Owns their names, when the next one begins and which go. Must not: know what a line is.
//!
//! Invariant: the names of one writer's files are in the order of their lines, also where the clock was set back.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use time::OffsetDateTime;

/// How many files there is room for at least: with little room, files are smaller.
const PART: u64 = 8;
/// How long one file is written.
const FILE_TIME: time::Duration = time::Duration::DAY;
/// What names end with.
const SUFFIX: &str = ".jsonl";

/// Lines in files of one folder, the newest of which is written to.
#[derive(Debug)]
pub struct LineFiles {
    dir: PathBuf,
    prefix: String,
    file_bytes: u64,
    most_bytes: u64,
    is_synced: bool,
    open: Option<Open>,
}

/// A file that is written.
#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
    since: OffsetDateTime,
}

impl LineFiles {
    /// Those whose names begin with `prefix`: each of `file_bytes` at most, all of them of `most_bytes`.
    pub fn new(dir: PathBuf, prefix: String, file_bytes: u64, most_bytes: u64) -> Self {
        Self {
            dir,
            prefix,
            file_bytes: file_bytes.min(most_bytes / PART),
            most_bytes,
            is_synced: false,
            open: None,
        }
    }

    /// What is written is on the disk then, and not only on its way there.
    #[must_use]
    pub fn synced(self) -> Self {
        Self {
            is_synced: true,
            ..self
        }
    }

    /// Makes a folder for them, for this user alone, if there is none.
    ///
    /// # Errors
    /// When the system refuses, or it is a file.
    pub fn make(dir: &Path) -> io::Result<()> {
        if dir.exists() && !dir.is_dir() {
            return Err(io::Error::other("it is a file"));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Writes whole lines, or nothing.
    ///
    /// # Errors
    /// When the system refuses. The next lines begin a file.
    pub fn write(&mut self, lines: &[u8], now: OffsetDateTime) -> io::Result<()> {
        let bytes = lines.len() as u64;
        let goes_on =
            |open: &Open| open.bytes + bytes <= self.file_bytes && now - open.since < FILE_TIME;
        let mut open = match self.open.take().filter(goes_on) {
            Some(open) => open,
            None => self.begin(now)?,
        };
        let written = open
            .file
            .write_all(lines)
            .and_then(|()| match self.is_synced {
                true => open.file.sync_data(),
                false => Ok(()),
            });
        if let Err(error) = written {
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
        let files = self.files()?;
        let mut bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        let path = self
            .dir
            .join(format!("{}{}{SUFFIX}", self.prefix, second(now)));
        // One that has begun in this second goes on, or that is from later: the clock was set back.
        let last = files.last().map(|(last, _)| last.clone());
        let path = last.filter(|last| *last >= path).unwrap_or(path);
        for (path, size) in files {
            if bytes + self.file_bytes <= self.most_bytes {
                break;
            }
            std::fs::remove_file(path)?;
            bytes -= size;
        }
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(Open {
            bytes: file.metadata()?.len(),
            file,
            since: now,
        })
    }

    /// The files and how large they are, in the order of their lines.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn files(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let prefix = name.to_str().and_then(prefix_of);
            if prefix == Some(&*self.prefix) {
                files.push((entry.path(), entry.metadata()?.len()));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// What the name of a file begins with, if it is one of a [`LineFiles`].
pub(super) fn prefix_of(name: &str) -> Option<&str> {
    let rest = name.strip_suffix(SUFFIX)?;
    let (prefix, second) = rest.split_at_checked(rest.len().checked_sub(SECOND.len())?)?;
    is_second(second).then_some(prefix)
}

/// A time as RFC 3339 has it, in UTC, to the microsecond.
pub fn stamp(time: OffsetDateTime) -> String {
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.microsecond()
    )
}

/// A time to the second, as names of files have it.
const SECOND: &str = "20260102T030405Z";

fn second(time: OffsetDateTime) -> String {
    let text = stamp(time);
    let (second, _) = text.split_once('.').unwrap_or((&*text, ""));
    second.replace(['-', ':'], "") + "Z"
}

fn is_second(text: &str) -> bool {
    let is_its = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'T' | b'Z');
    text.len() == SECOND.len() && text.bytes().all(is_its)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_700_000_000 + second).unwrap()
    }

    /// The names of all files in a folder, and what is in them.
    fn read(dir: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    }

    fn files(dir: &Path, file_bytes: u64, most_bytes: u64) -> LineFiles {
        let files = LineFiles::new(dir.to_owned(), "n1-".into(), 0, most_bytes);
        LineFiles {
            file_bytes,
            ..files
        }
    }

    #[test]
    fn a_file_ends_when_it_is_full_or_old() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = files(dir.path(), 4, 1 << 20).synced();
        for second in 0..3 {
            files.write(b"a\n", at(second)).unwrap();
        }
        files.write(b"b\n", at(2 + 86_400)).unwrap();
        let expected = [
            ("n1-20231114T221320Z.jsonl", "a\na\n"),
            ("n1-20231114T221322Z.jsonl", "a\n"),
            ("n1-20231115T221322Z.jsonl", "b\n"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(dir.path()), expected);
    }

    #[test]
    fn the_oldest_files_go_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let others = ["n1-b-20231114T221300Z.jsonl", "n1-x.jsonl"];
        for other in others {
            std::fs::write(dir.path().join(other), "").unwrap();
        }
        let mut files = files(dir.path(), 2, 6);
        for second in 0..5 {
            files.write(b"a\n", at(second)).unwrap();
        }
        let names: Vec<_> = read(dir.path()).into_iter().map(|(name, _)| name).collect();
        let own = [2, 3, 4].map(|second| format!("n1-20231114T22132{second}Z.jsonl"));
        let others = others.map(str::to_owned);
        assert_eq!(names, [&own[..], &others[..]].concat());
    }

    #[test]
    fn files_stay_in_order_when_the_clock_is_set_back() {
        let dir = tempfile::tempdir().unwrap();
        files(dir.path(), 100, 1000).write(b"a\n", at(60)).unwrap();
        files(dir.path(), 100, 1000).write(b"b\n", at(0)).unwrap();
        let expected = ("n1-20231114T221420Z.jsonl".into(), "a\nb\n".into());
        assert_eq!(read(dir.path()), [expected]);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let mut files = files(&missing, 100, 1000);
        assert!(files.write(b"a\n", at(0)).is_err());
        LineFiles::make(&missing).unwrap();
        files.write(b"b\n", at(1)).unwrap();
        assert_eq!(read(&missing)[0].1, "b\n");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(LineFiles::make(&file).is_err());
    }
}
