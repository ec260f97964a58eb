//! The lines of a node's audit, each with a number and the hash of the line before.
//!
//! Owns what a line is, where a chain goes on after a restart, and checking one. Must not: decide what is written.
//!
//! Invariant: a line that was written is changed by nobody here. What a crash has left of a line without an end is cut off.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};
use wasmrun_model::id::Digest;
use wasmrun_model::wire::AuditRow;

use super::files::{LineFiles, prefix_of, stamp};
use super::{Entry, Outcome};

/// What names of files begin with, before the node's.
const PREFIX: &str = "audit-";
/// How large a file becomes, in bytes. A search has one in memory.
const FILE_BYTES: u64 = 16 << 20;
/// How many breaks of a chain are told.
const MOST_BREAKS: usize = 20;
/// The action of a line that counts what is missing.
const MISSED: &str = "audit missed";

/// A line. Fields are only added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    version: u32,
    sequence: u64,
    time: String,
    node: String,
    who: String,
    from: String,
    tenant: Option<String>,
    action: String,
    subject: Option<String>,
    job: Option<String>,
    details: BTreeMap<String, String>,
    outcome: String,
    kind: Option<String>,
    error: Option<String>,
    /// The BLAKE3 hash of the line before, without its end; of the first one nothing.
    previous: String,
}

impl Line {
    fn row(self) -> AuditRow {
        AuditRow {
            sequence: self.sequence,
            time_us: time_us(&self.time).unwrap_or(0),
            time: self.time,
            node: self.node,
            who: self.who,
            from: self.from,
            tenant: self.tenant,
            action: self.action,
            subject: self.subject,
            job: self.job.and_then(|id| id.parse().ok()),
            details: self.details,
            outcome: self.outcome,
            kind: self.kind,
            error: self.error,
        }
    }
}

/// Where a chain is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    sequence: u64,
    hash: String,
}

/// The chain of a node, to be written.
#[derive(Debug)]
pub(super) struct Chain {
    node: String,
    files: LineFiles,
    last: Place,
}

impl Chain {
    /// Goes on with what is in a folder. How many bytes of a line without an end were cut off.
    pub(super) fn open(dir: &Path, node: &str, most_bytes: u64) -> io::Result<(Self, u64)> {
        LineFiles::make(dir)?;
        let files = files(dir, node, most_bytes).synced();
        let (mut last, mut cut) = (Place::default(), 0);
        for (path, _) in files.files()?.into_iter().rev() {
            let bytes = std::fs::read(&path)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |at| at + 1);
            if whole < bytes.len() {
                let file = std::fs::OpenOptions::new().write(true).open(&path)?;
                file.set_len(whole as u64)?;
                file.sync_data()?;
                cut += (bytes.len() - whole) as u64;
            }
            if whole > 0 {
                last = last_of(&bytes[..whole]);
                break;
            }
        }
        let node = node.to_owned();
        Ok((Self { node, files, last }, cut))
    }

    /// Writes all of these, or none; before them how many are missing, if any are.
    pub(super) fn append(&mut self, entries: &[Entry], missed: u64) -> io::Result<()> {
        let now = OffsetDateTime::now_utc();
        let missing = (missed > 0).then(|| Entry {
            details: BTreeMap::from([("missed", missed.to_string())]),
            ..Entry::of_node(MISSED)
        });
        let (mut last, mut text) = (self.last.clone(), String::new());
        for entry in missing.iter().chain(entries) {
            let line = self.line(entry, &last);
            let line = serde_json::to_string(&line).map_err(io::Error::other)?;
            last = Place {
                sequence: last.sequence + 1,
                hash: hash(line.as_bytes()),
            };
            text.push_str(&line);
            text.push('\n');
        }
        if text.is_empty() {
            return Ok(());
        }
        self.files.write(text.as_bytes(), now)?;
        self.last = last;
        Ok(())
    }

    fn line(&self, entry: &Entry, last: &Place) -> Line {
        let (outcome, kind, error) = match &entry.outcome {
            Outcome::Done => ("done", None, None),
            Outcome::Unknown => ("unknown", None, None),
            Outcome::Refused { kind, why } => ("refused", Some(kind.clone()), Some(why.clone())),
        };
        let details = entry.details.iter();
        Line {
            version: 1,
            sequence: last.sequence + 1,
            time: stamp(entry.at.into()),
            node: self.node.clone(),
            who: entry.who.clone(),
            from: entry.from.clone(),
            tenant: entry.tenant.clone(),
            action: entry.action.to_owned(),
            subject: entry.subject.clone(),
            job: entry.job.map(|id| id.to_string()),
            details: details
                .map(|(key, it)| ((*key).to_owned(), it.clone()))
                .collect(),
            outcome: outcome.to_owned(),
            kind,
            error,
            previous: last.hash.clone(),
        }
    }
}

/// The files of a node.
fn files(dir: &Path, node: &str, most_bytes: u64) -> LineFiles {
    LineFiles::new(
        dir.to_owned(),
        format!("{PREFIX}{node}-"),
        FILE_BYTES,
        most_bytes,
    )
}

/// The last lines of a node that are wanted, the last one first.
pub(super) fn last_rows(
    dir: &Path,
    node: &str,
    most: usize,
    is_wanted: impl Fn(&AuditRow) -> bool,
) -> io::Result<Vec<AuditRow>> {
    let mut rows = Vec::new();
    for (path, _) in files(dir, node, 0).files()?.into_iter().rev() {
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            // It was the oldest, and has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // One that is being written has no end yet.
        let lines = text.lines().rev();
        let found = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let found = found.map(Line::row).filter(|row| is_wanted(row));
        rows.extend(found.take(most - rows.len()));
        if rows.len() >= most {
            break;
        }
    }
    Ok(rows)
}

/// Where a chain is at the end of whole lines.
fn last_of(lines: &[u8]) -> Place {
    let mut lines = lines[..lines.len() - 1].rsplit(|byte| *byte == b'\n');
    let last = lines.next().unwrap_or_default();
    // A line that cannot be read has a number, too.
    let numbers = std::iter::once(last).chain(lines);
    let read = |line: &[u8]| serde_json::from_slice::<Line>(line).ok();
    let mut numbers = numbers.enumerate();
    let number = numbers.find_map(|(behind, line)| Some(read(line)?.sequence + behind as u64));
    Place {
        sequence: number.unwrap_or(0),
        hash: hash(last),
    }
}

fn hash(line: &[u8]) -> String {
    Digest::of(line).to_string()
}

/// A time that [`stamp`] has made, in microseconds since 1970.
fn time_us(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok();
    let small = |from: usize| u8::try_from(number(from, from + 2)?).ok();
    let year = i32::try_from(number(0, 4)?).ok()?;
    let month = Month::try_from(small(5)?).ok()?;
    let date = Date::from_calendar_date(year, month, small(8)?).ok()?;
    let clock = Time::from_hms_micro(small(11)?, small(14)?, small(17)?, number(20, 26)?).ok()?;
    let nanos = PrimitiveDateTime::new(date, clock).assume_utc();
    u64::try_from(nanos.unix_timestamp_nanos() / 1000).ok()
}

/// What came of checking the audit of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCheck {
    /// The node.
    pub node: String,
    /// The number of the first line that is there,
    pub first: u64,
    /// and of the last.
    pub last: u64,
    /// The hash of that.
    pub hash: String,
    /// How many lines there are.
    pub lines: u64,
    /// How many lines these say are missing, as they could not be written.
    pub missed: u64,
    /// Where the chain does not hold: the first ones.
    pub breaks: Vec<AuditBreak>,
}

/// Where the chain of an audit does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditBreak {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1.
    pub line: u64,
    /// Why not.
    pub why: String,
}

/// Checks all audits in a folder. None are there if it gives nothing.
///
/// # Errors
/// When files cannot be read.
pub fn verify_audit(dir: &Path) -> io::Result<Vec<AuditCheck>> {
    let mut nodes = BTreeMap::<String, Vec<PathBuf>>::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let prefix = name.to_str().and_then(prefix_of);
        let node = prefix.and_then(|it| it.strip_prefix(PREFIX)?.strip_suffix('-'));
        if let Some(node) = node {
            nodes.entry(node.to_owned()).or_default().push(entry.path());
        }
    }
    let checks = nodes.into_iter().map(|(node, mut files)| {
        files.sort();
        check(node, files)
    });
    checks.collect()
}

fn check(node: String, files: Vec<PathBuf>) -> io::Result<AuditCheck> {
    let mut checked = AuditCheck {
        node,
        first: 0,
        last: 0,
        hash: String::new(),
        lines: 0,
        missed: 0,
        breaks: Vec::new(),
    };
    for file in files {
        let bytes = std::fs::read(&file)?;
        for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            if let Err(why) = checked.take(line)
                && checked.breaks.len() < MOST_BREAKS
            {
                let (file, line) = (file.clone(), number);
                checked.breaks.push(AuditBreak { file, line, why });
            }
        }
    }
    Ok(checked)
}

impl AuditCheck {
    /// Goes on with a line, or says why it does not follow.
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err("it has no end: the node cuts it off when it starts".to_owned());
        };
        let before = Place {
            sequence: self.last,
            hash: std::mem::replace(&mut self.hash, hash(line)),
        };
        self.lines += 1;
        let Ok(read) = serde_json::from_slice::<Line>(line) else {
            self.last += 1;
            return Err("it is no line of an audit".to_owned());
        };
        self.last = read.sequence;
        if read.action == MISSED {
            let missed = read
                .details
                .get("missed")
                .and_then(|it| it.parse::<u64>().ok());
            self.missed += missed.unwrap_or(0);
        }
        // What was before has gone with the oldest files.
        if self.lines == 1 && (read.sequence > 1 || read.previous.is_empty()) {
            self.first = read.sequence;
            return Ok(());
        }
        match () {
            () if read.sequence != before.sequence + 1 => Err(format!(
                "it has the number {}, and {} comes here: lines were taken out or put in",
                read.sequence,
                before.sequence + 1
            )),
            () if read.previous != before.hash => {
                Err("the line before it is not the one that it was written after".to_owned())
            }
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 20;

    fn entry(subject: &str) -> Entry {
        Entry {
            subject: Some(subject.into()),
            ..Entry::of_node("tenant set")
        }
    }

    fn opened(dir: &Path) -> Chain {
        Chain::open(dir, "n1", MOST).unwrap().0
    }

    fn subjects(dir: &Path, most: usize) -> Vec<String> {
        let rows = last_rows(dir, "n1", most, |row| row.subject.is_some()).unwrap();
        rows.into_iter().filter_map(|row| row.subject).collect()
    }

    fn only_file(dir: &Path) -> PathBuf {
        let mut files = std::fs::read_dir(dir).unwrap();
        files.next().unwrap().unwrap().path()
    }

    /// What checking says of the one node, and where it breaks.
    fn checked(dir: &Path) -> (AuditCheck, Vec<u64>) {
        let mut nodes = verify_audit(dir).unwrap();
        let node = nodes.pop().unwrap();
        assert_eq!((nodes.len(), &*node.node), (0, "n1"));
        let breaks = node.breaks.iter().map(|it| it.line).collect();
        (node, breaks)
    }

    #[test]
    fn a_restart_goes_on_with_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        opened(dir.path())
            .append(&[entry("a"), entry("b")], 0)
            .unwrap();
        let mut again = opened(dir.path());
        again.append(&[entry("c")], 5).unwrap();
        let (node, breaks) = checked(dir.path());
        assert_eq!(
            (node.first, node.last, node.lines, node.missed),
            (1, 4, 4, 5)
        );
        assert_eq!((node.hash, breaks), (again.last.hash, vec![]));
        assert_eq!(subjects(dir.path(), 2), ["c", "b"]);
        assert_eq!(subjects(dir.path(), 9), ["c", "b", "a"]);
    }

    #[test]
    fn a_line_without_an_end_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        opened(dir.path()).append(&[entry("a")], 0).unwrap();
        let file = only_file(dir.path());
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("{\"version\":1,\"seq");
        std::fs::write(&file, text).unwrap();
        assert_eq!(checked(dir.path()).1, [2]);
        let (mut chain, cut) = Chain::open(dir.path(), "n1", MOST).unwrap();
        assert_eq!(cut, 17);
        chain.append(&[entry("b")], 0).unwrap();
        let (node, breaks) = checked(dir.path());
        assert_eq!((node.last, breaks), (2, vec![]));
    }

    #[test]
    fn a_change_is_found_where_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["a", "b", "c", "d"].map(entry);
        opened(dir.path()).append(&all, 0).unwrap();
        let file = only_file(dir.path());
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let with = |lines: &[&str]| {
            std::fs::write(&file, lines.join("\n") + "\n").unwrap();
            checked(dir.path()).1
        };
        assert_eq!(with(&lines), [0; 0]);
        // Changed: the line behind it says so.
        let changed = lines[1].replace("\"b\"", "\"x\"");
        assert_eq!(with(&[lines[0], &changed, lines[2], lines[3]]), [3]);
        // Taken out, and put in the place of another.
        assert_eq!(with(&[lines[0], lines[2], lines[3]]), [2]);
        assert_eq!(with(&[lines[0], lines[2], lines[1], lines[3]]), [2, 3, 4]);
        assert_eq!(with(&[lines[0], "nonsense", lines[2]]), [2, 3]);
        // What has gone with the oldest files is no break.
        assert_eq!(with(&lines[2..]), [0; 0]);
        assert_eq!(checked(dir.path()).0.first, 3);
    }

    #[test]
    fn what_cannot_be_read_has_a_number() {
        let dir = tempfile::tempdir().unwrap();
        opened(dir.path()).append(&[entry("a")], 0).unwrap();
        let file = only_file(dir.path());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + "nonsense\n").unwrap();
        let chain = opened(dir.path());
        assert_eq!(
            chain.last,
            Place {
                sequence: 2,
                hash: hash(b"nonsense")
            }
        );
    }

    #[test]
    fn what_could_not_be_written_leaves_the_chain_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        let mut chain = opened(&folder);
        std::fs::remove_dir(&folder).unwrap();
        assert!(chain.append(&[entry("a")], 0).is_err());
        LineFiles::make(&folder).unwrap();
        chain.append(&[entry("b")], 1).unwrap();
        let (node, breaks) = checked(&folder);
        assert_eq!((node.last, node.missed, breaks), (2, 1, vec![]));
    }

    #[test]
    fn the_chain_goes_on_in_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut chain = opened(dir.path());
        // Each file has room for nothing, and begins a second later than the one before.
        chain.files = LineFiles::new(dir.path().to_owned(), "audit-n1-".into(), 0, MOST);
        for second in 0..3 {
            let line = chain.line(&entry("a"), &chain.last);
            let line = serde_json::to_string(&line).unwrap();
            let at = OffsetDateTime::from_unix_timestamp(1_700_000_000 + second).unwrap();
            chain
                .files
                .write(format!("{line}\n").as_bytes(), at)
                .unwrap();
            chain.last = Place {
                sequence: chain.last.sequence + 1,
                hash: hash(line.as_bytes()),
            };
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
        assert_eq!(checked(dir.path()).1, [0; 0]);
        assert_eq!(opened(dir.path()).last, chain.last);
        assert_eq!(subjects(dir.path(), 9).len(), 3);
    }

    #[test]
    fn times_are_read_as_they_were_written() {
        let time = OffsetDateTime::from_unix_timestamp_nanos(1_700_000_000_000_001_000).unwrap();
        assert_eq!(time_us(&stamp(time)), Some(1_700_000_000_000_001));
        assert_eq!(time_us("2026"), None);
    }
}
