//! The audit of a node: what was done to it and its cluster, by whom, from where, and what came of it.
//!
//! Owns the queue of what is to be written, the thread that writes it, and its numbers. Must not: decide what is worth a line;
//! hold up who has something to say. What cannot be written is counted, said in the log, and noted in a line once one can be
//! written.

mod chain;
mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use wasmrun_model::id::DriverId;
use wasmrun_model::wire::AuditRow;

pub use self::chain::{AuditBreak, AuditCheck, verify_audit};
pub use self::files::{LineFiles, stamp};

use self::chain::Chain;
use crate::history::aside;

/// How many lines may wait to be written.
const MOST_WAITING: usize = 4096;
/// How many are written at once.
const MOST_AT_ONCE: usize = 1000;
/// How soon it is tried again to write where that has failed.
const AGAIN: Duration = Duration::from_secs(1);
/// How often the log says that lines are missing.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// How long who reads the audit waits for what is about to be written.
const SYNC: Duration = Duration::from_secs(2);
/// How many lines a minute there are of what one client was refused, and of all who are not let in. Of more it is counted how
/// many: they would take the room of others' lines.
const MOST_REFUSED: u64 = 100;
/// What is counted there.
const MINUTE: Duration = Duration::from_secs(60);
/// Of how many clients that was counted lately. Others take the places of those that were refused nothing for a minute.
const MOST_COUNTED: usize = 10_000;
/// All who are not let in: nobody is called so.
const STRANGERS: &str = "";
/// The longest text in a line, in bytes, but for the reason of a refusal.
const MOST_TEXT: usize = 120;
/// The longest of these.
const MOST_REASON: usize = 300;

/// Where a node keeps its audit.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    /// The folder.
    pub dir: PathBuf,
    /// How much all its files may come to.
    pub most_bytes: u64,
    /// Whether changes are refused while they cannot be written down.
    pub is_required: bool,
}

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
#[error("no audit can be kept in {}: give --audit-dir a folder that this user may write to", .dir.display())]
pub struct AuditError {
    dir: PathBuf,
    #[source]
    why: std::io::Error,
}

/// What is to be written.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: SystemTime,
    pub(crate) who: String,
    pub(crate) from: String,
    pub(crate) tenant: Option<String>,
    pub(crate) action: &'static str,
    pub(crate) subject: Option<String>,
    pub(crate) job: Option<DriverId>,
    pub(crate) details: BTreeMap<&'static str, String>,
    pub(crate) outcome: Outcome,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Refused {
        kind: String,
        why: String,
    },
    /// Who has asked was gone before the answer.
    Unknown,
}

impl Entry {
    /// That something was done just now.
    pub(crate) fn new(who: String, from: String, action: &'static str) -> Self {
        Self {
            at: SystemTime::now(),
            who,
            from,
            tenant: None,
            action,
            subject: None,
            job: None,
            details: BTreeMap::new(),
            outcome: Outcome::Done,
        }
    }

    /// That the node itself has done something.
    fn of_node(action: &'static str) -> Self {
        let who = format!("user {}", rustix::process::geteuid().as_raw());
        Self::new(who, format!("process {}", std::process::id()), action)
    }

    /// With texts that are not too long, and safe for terminals.
    fn bounded(mut self) -> Self {
        bound(&mut self.who, MOST_TEXT);
        bound(&mut self.from, MOST_TEXT);
        self.subject.iter_mut().for_each(|it| bound(it, MOST_TEXT));
        self.details
            .values_mut()
            .for_each(|it| bound(it, MOST_TEXT));
        if let Outcome::Refused { why, .. } = &mut self.outcome {
            bound(why, MOST_REASON);
        }
        self
    }
}

fn bound(text: &mut String, most: usize) {
    text.retain(|c| !c.is_control());
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
}

/// Lines in numbers, since the node was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditUsage {
    pub(crate) written: u64,
    pub(crate) missed: u64,
}

#[derive(Debug)]
enum Message {
    Entry(Box<Entry>),
    /// Somebody waits until all before it is written.
    Sync(SyncSender<()>),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Audit {
    /// None of a node that keeps no audit.
    config: Option<AuditConfig>,
    /// The node's name, once it is known.
    node: OnceLock<String>,
    queue: Mutex<Option<SyncSender<Message>>>,
    /// What is not written yet, until there is somebody who does.
    unread: Mutex<Option<Receiver<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counts: Arc<Counts>,
    refused: Mutex<BTreeMap<String, Refusals>>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    missed: AtomicU64,
    /// Those of the missed that no line counts yet.
    unsaid: AtomicU64,
    said: Mutex<Option<Instant>>,
    /// Whether the last attempt to write has failed.
    is_failing: AtomicBool,
}

/// What somebody was refused within the last minute.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    since: Instant,
    count: u64,
}

impl Audit {
    /// Of a node that is about to start. What is said of it waits until [`Self::begin`].
    pub(crate) fn new(config: Option<AuditConfig>) -> Self {
        let (queue, unread) = match &config {
            Some(_) => Some(sync_channel(MOST_WAITING)).unzip(),
            None => (None, None),
        };
        Self {
            config,
            node: OnceLock::new(),
            queue: Mutex::new(queue),
            unread: Mutex::new(unread),
            thread: Mutex::default(),
            counts: Arc::default(),
            refused: Mutex::default(),
        }
    }

    /// Begins to write, as this node.
    ///
    /// # Errors
    /// When nothing can be kept in its folder.
    pub(crate) fn begin(&self, node: &str) -> Result<(), AuditError> {
        let (Some(config), Some(queue)) = (&self.config, self.unread.lock().take()) else {
            return Ok(());
        };
        let AuditConfig {
            dir, most_bytes, ..
        } = config;
        let failed = |why| AuditError {
            dir: dir.clone(),
            why,
        };
        let (chain, cut) = Chain::open(dir, node, *most_bytes).map_err(failed)?;
        let mut started = Entry::of_node("node start");
        started
            .details
            .insert("version", env!("CARGO_PKG_VERSION").to_owned());
        if cut > 0 {
            tracing::warn!(bytes = cut, dir = %dir.display(), "the audit ended within a line, which was cut off");
            started.details.insert("cut_off_bytes", cut.to_string());
        }
        let mut writer = Writer {
            chain,
            dir: dir.clone(),
            counts: self.counts.clone(),
        };
        writer.write(&[started.bounded()]);
        let thread = std::thread::Builder::new()
            .name("wasmrun-audit".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(failed)?;
        *self.thread.lock() = Some(thread);
        let _ = self.node.set(node.to_owned());
        Ok(())
    }

    /// Whether there is one.
    pub(crate) fn is_kept(&self) -> bool {
        self.config.is_some()
    }

    /// Whether changes are to be refused: they could not be written down.
    pub(crate) fn refuses(&self) -> bool {
        let is_required = self.config.as_ref().is_some_and(|it| it.is_required);
        is_required && self.counts.is_failing.load(Ordering::Acquire)
    }

    /// Adds a line, if there is room for it.
    pub(crate) fn add(&self, entry: Entry) {
        let queue = self.queue.lock();
        let Some(queue) = &*queue else {
            return;
        };
        let entry = Message::Entry(Box::new(entry.bounded()));
        if queue.try_send(entry).is_err() {
            self.counts
                .miss(1, &"they come faster than they are written");
        }
    }

    /// Adds a line about somebody who was not let in.
    pub(crate) fn add_stranger(&self, entry: Entry) {
        self.add_limited(STRANGERS, entry);
    }

    /// Adds a line about what a client was refused.
    pub(crate) fn add_refused(&self, entry: Entry) {
        self.add_limited(&entry.who.clone(), entry);
    }

    /// Adds a line of a kind that its author could repeat without end, within its limit.
    fn add_limited(&self, whose: &str, mut entry: Entry) {
        let Some(left_out) = self.count_refused(whose) else {
            return;
        };
        if left_out > 0 {
            entry
                .details
                .insert("left_out_before", left_out.to_string());
        }
        self.add(entry);
    }

    /// Counts what somebody was refused. How many lines were left out before, if there is to be one of it.
    fn count_refused(&self, whose: &str) -> Option<u64> {
        let mut refused = self.refused.lock();
        let new = Refusals {
            since: Instant::now(),
            count: 0,
        };
        if refused.len() >= MOST_COUNTED && !refused.contains_key(whose) {
            refused.retain(|_, it| it.since.elapsed() < MINUTE);
        }
        let known = refused.entry(whose.to_owned()).or_insert(new);
        let mut left_out = 0;
        if known.since.elapsed() >= MINUTE {
            left_out = known.count.saturating_sub(MOST_REFUSED);
            *known = new;
        }
        known.count += 1;
        (known.count <= MOST_REFUSED).then_some(left_out)
    }

    /// The last lines that are wanted, the last one first.
    pub(crate) fn rows(&self, most: usize, is_wanted: impl Fn(&AuditRow) -> bool) -> Vec<AuditRow> {
        let (Some(config), Some(node)) = (&self.config, self.node.get()) else {
            return Vec::new();
        };
        aside(true, || {
            self.sync();
            let rows = chain::last_rows(&config.dir, node, most, is_wanted);
            rows.unwrap_or_else(|error| {
                tracing::warn!(dir = %config.dir.display(), %error, "the audit cannot be read");
                Vec::new()
            })
        })
    }

    /// Waits until what was added is written.
    fn sync(&self) {
        let (done, is_done) = sync_channel(1);
        let queue = self.queue.lock().clone();
        if queue.is_some_and(|queue| queue.try_send(Message::Sync(done)).is_ok()) {
            // The files have what they have.
            let _ = is_done.recv_timeout(SYNC);
        }
    }

    pub(crate) fn usage(&self) -> AuditUsage {
        AuditUsage {
            written: self.counts.written.load(Ordering::Relaxed),
            missed: self.counts.missed.load(Ordering::Relaxed),
        }
    }

    /// The node ends. Writes what is left.
    pub(crate) fn end(&self) {
        if self.thread.lock().is_some() {
            self.add(Entry::of_node("node end"));
        }
        drop(self.queue.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // One that has panicked writes nothing any more.
            let _ = thread.join();
        }
    }
}

impl Counts {
    /// Counts lines that are in no file, and says so now and then.
    fn miss(&self, count: u64, error: &dyn std::fmt::Display) {
        self.missed.fetch_add(count, Ordering::Relaxed);
        self.unsaid.fetch_add(count, Ordering::Relaxed);
        self.is_failing.store(true, Ordering::Release);
        let mut said = self.said.lock();
        if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            *said = Some(Instant::now());
            let missed = self.missed.load(Ordering::Relaxed);
            tracing::error!(missed, %error, "lines are missing in the audit");
        }
    }
}

/// What writes.
struct Writer {
    chain: Chain,
    dir: PathBuf,
    counts: Arc<Counts>,
}

impl Writer {
    /// Writes what comes, until nobody can send more.
    fn run(mut self, queue: &Receiver<Message>) {
        let (mut entries, mut waiting) = (Vec::new(), Vec::new());
        let mut is_open = true;
        while is_open {
            self.write(&entries);
            entries.clear();
            waiting.drain(..).for_each(|it: SyncSender<()>| {
                // Who has waited for too long is gone.
                let _ = it.try_send(());
            });
            let next = match self.counts.is_failing.load(Ordering::Acquire) {
                true => queue.recv_timeout(AGAIN),
                false => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            is_open = !matches!(next, Err(RecvTimeoutError::Disconnected));
            for message in next.into_iter().chain(queue.try_iter().take(MOST_AT_ONCE)) {
                match message {
                    Message::Entry(entry) => entries.push(*entry),
                    Message::Sync(done) => waiting.push(done),
                }
            }
        }
    }

    /// Writes these, or counts them as missed; and how many were missed before.
    fn write(&mut self, entries: &[Entry]) {
        let unsaid = self.counts.unsaid.swap(0, Ordering::Relaxed);
        match self.chain.append(entries, unsaid) {
            Ok(()) => {
                let count = entries.len() as u64;
                self.counts.written.fetch_add(count, Ordering::Relaxed);
                self.counts.is_failing.store(false, Ordering::Release);
            }
            Err(error) => {
                self.counts.unsaid.fetch_add(unsaid, Ordering::Relaxed);
                let why = format!("{}: {error}", self.dir.display());
                self.counts.miss(entries.len() as u64, &why);
            }
        }
    }
}

/// The folder of the audit in the state folder of a node.
pub fn audit_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("audit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> AuditConfig {
        AuditConfig {
            dir: dir.to_owned(),
            most_bytes: 1 << 20,
            is_required: true,
        }
    }

    fn entry(action: &'static str) -> Entry {
        Entry::new("user 1".into(), "socket".into(), action)
    }

    fn actions(audit: &Audit) -> Vec<String> {
        let mut rows = audit.rows(1000, |_| true);
        rows.reverse();
        rows.into_iter().map(|row| row.action).collect()
    }

    #[test]
    fn what_was_said_before_the_node_had_a_name_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(Some(config(dir.path())));
        audit.add(entry("client login"));
        audit.begin("n1").unwrap();
        assert_eq!(actions(&audit), ["node start", "client login"]);
        audit.end();
        let check = verify_audit(dir.path()).unwrap();
        assert_eq!((check.len(), check[0].last), (1, 3));
        let missing = Audit::new(None);
        missing.begin("n1").unwrap();
        missing.add(entry("tenant set"));
        assert_eq!(
            (missing.is_kept(), missing.rows(9, |_| true)),
            (false, vec![])
        );
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_changes_are_refused_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        let (chain, _) = Chain::open(&folder, "n1", 1 << 20).unwrap();
        let audit = Audit::new(Some(config(&folder)));
        let mut writer = Writer {
            chain,
            dir: folder.clone(),
            counts: audit.counts.clone(),
        };
        // As on a disk without room for a file.
        std::fs::remove_dir(&folder).unwrap();
        writer.write(&[entry("tenant set"), entry("node drain")]);
        assert!(audit.refuses());
        writer.write(&[]);
        assert!(audit.refuses());
        LineFiles::make(&folder).unwrap();
        // Nobody asks for changes meanwhile.
        writer.write(&[]);
        assert!(!audit.refuses());
        assert_eq!((audit.usage().written, audit.usage().missed), (0, 2));
        let check = verify_audit(&folder).unwrap();
        assert_eq!((check[0].lines, check[0].missed), (1, 2));
    }

    #[test]
    fn who_is_full_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        // The line that counts them is the first, and stays.
        let audit = Audit::new(Some(AuditConfig {
            most_bytes: 1 << 26,
            ..config(dir.path())
        }));
        for _ in 0..MOST_WAITING + 3 {
            audit.add(entry("tenant set"));
        }
        assert_eq!(audit.usage().missed, 3);
        audit.begin("n1").unwrap();
        while audit.usage().written <= MOST_WAITING as u64 {
            std::thread::yield_now();
        }
        audit.end();
        let check = verify_audit(dir.path()).unwrap();
        assert_eq!((check[0].missed, check[0].breaks.len()), (3, 0));
    }

    #[test]
    fn who_is_refused_does_not_fill_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(Some(config(dir.path())));
        for _ in 0..2 * MOST_REFUSED {
            audit.add_stranger(entry("connect"));
            audit.add_refused(entry("cancel"));
        }
        for refused in audit.refused.lock().values_mut() {
            refused.since -= MINUTE;
        }
        audit.add_stranger(entry("connect"));
        audit.add_refused(entry("cancel"));
        // Another has its own.
        audit.add_refused(Entry::new("user 2".into(), "socket".into(), "cancel"));
        audit.begin("n1").unwrap();
        for (action, who) in [("connect", "user 1"), ("cancel", "user 1")] {
            let rows = audit.rows(1000, |row| row.action == action && row.who == who);
            assert_eq!(rows.len() as u64, MOST_REFUSED + 1, "{action}");
            assert_eq!(rows[0].details["left_out_before"], MOST_REFUSED.to_string());
        }
        let others = audit.rows(1000, |row| row.who == "user 2");
        assert_eq!(others.len(), 1);
        audit.end();
    }

    #[test]
    fn texts_are_bounded_and_safe() {
        let mut entry = entry("cancel");
        entry.subject = Some("a\u{1b}[2J\n".repeat(100));
        entry.outcome = Outcome::Refused {
            kind: "usage".into(),
            why: "é".repeat(1000),
        };
        let entry = entry.bounded();
        let subject = entry.subject.unwrap();
        assert!(subject.len() < MOST_TEXT + 4 && !subject.contains('\u{1b}'));
        let Outcome::Refused { why, .. } = entry.outcome else {
            panic!("it is as it was")
        };
        assert!(why.len() < MOST_REASON + 4 && why.ends_with('…'));
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Audit::new(Some(config(&file))).begin("n1").unwrap_err();
        assert!(error.to_string().contains("--audit-dir"), "{error}");
    }
}
