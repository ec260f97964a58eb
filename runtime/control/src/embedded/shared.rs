//! What the handles, the writer and the watches of an embedded store share.
//!
//! Owns the open database, how it is opened again after a failure, and what is kept in memory: the last
//! changes, the leases, how far the history goes. Invariant: what is in memory was committed before.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::apply::{Answer, HistoryLimit, LeaseChange, Mutation, Outcome, RequestId};
use super::disk::{Backend, SharedDisk};
use super::leases::Leases;
use super::tables::{
    ANSWERS, CLIENT_ORDER, CLIENTS, ENTRIES, FORMAT, LEASE_KEYS, LEASES, LOG, META, Meta,
};
use crate::clock::Clock;
use crate::error::Error;
use crate::types::{Changes, Event, Lease, LeaseId};

/// How many revisions are kept in memory for watches that are up to date.
const RECENT_REVISIONS: usize = 1_024;

/// How many bytes of them, but never fewer than one revision.
const RECENT_BYTES: usize = 8 << 20;

/// How often a read tries again after the file has failed under it.
const READ_ATTEMPTS: usize = 3;

/// What the writer is asked.
#[derive(Debug)]
pub enum Command {
    /// To change something.
    Change {
        request: Option<RequestId>,
        mutation: Mutation,
        answer: oneshot::Sender<Result<Answer, Error>>,
    },
    /// To end a lease whose time is over.
    Expire(LeaseId),
    /// To open the database again if it has failed.
    Heal { done: oneshot::Sender<()> },
    /// To answer all that came before this, and end.
    Stop,
}

/// How far the history goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The last revision.
    pub revision: u64,
    /// The last one that is no longer kept.
    pub compacted: u64,
    /// Whether there will be no more.
    pub is_closed: bool,
}

/// The last revisions, without gaps.
#[derive(Debug, Default)]
pub struct Recent {
    changes: VecDeque<(Arc<Changes>, usize)>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, changes: Changes) {
        let bytes = size(&changes);
        self.bytes += bytes;
        self.changes.push_back((Arc::new(changes), bytes));
        while self.changes.len() > RECENT_REVISIONS
            || (self.bytes > RECENT_BYTES && self.changes.len() > 1)
        {
            let (_, bytes) = self.changes.pop_front().expect("there is one");
            self.bytes -= bytes;
        }
    }

    pub fn get(&self, revision: u64) -> Option<Arc<Changes>> {
        let first = self.changes.front()?.0.revision.0;
        let at = usize::try_from(revision.checked_sub(first)?).ok()?;
        Some(Arc::clone(&self.changes.get(at)?.0))
    }
}

fn size(changes: &Changes) -> usize {
    let bytes = changes.events.iter().map(|event| match event {
        Event::Put(entry) => entry.key.len() + entry.value.len() + 64,
        Event::Delete { key } => key.len() + 64,
    });
    bytes.sum()
}

/// Where what may have to wait for the disk is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On threads of its own.
    Threads,
    /// Where it is asked for, one thing after the other: there is no disk, and all is to happen in an order that can
    /// be had again.
    Here,
}

impl Place {
    /// Does something there.
    pub async fn run<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(f).await,
            Self::Here => Ok(f()),
        }
    }
}

#[derive(Debug)]
pub struct Shared {
    pub commands: mpsc::Sender<Command>,
    pub extent: watch::Sender<Extent>,
    pub recent: Mutex<Recent>,
    pub leases: Mutex<Leases>,
    /// Somebody waits for the next deadline, which has changed.
    pub leases_changed: Notify,
    pub clock: Arc<dyn Clock>,
    pub limit: HistoryLimit,
    pub place: Place,
    cache_bytes: usize,
    file: RwLock<File>,
}

/// The database, and what it can be opened from.
#[derive(Debug)]
struct File {
    /// `None` while it cannot be opened.
    database: Option<Database>,
    /// `None` after the end: others may have it.
    disk: Option<SharedDisk>,
}

impl Shared {
    /// Opens the database and what is remembered of it.
    pub fn open(
        disk: SharedDisk,
        clock: Arc<dyn Clock>,
        limit: HistoryLimit,
        (place, cache_bytes): (Place, usize),
        commands: mpsc::Sender<Command>,
    ) -> Result<(Self, Meta), redb::Error> {
        let database = open_database(&disk, cache_bytes)?;
        let (meta, leases) = read_start(&database)?;
        let now = clock.now();
        let mut living = Leases::default();
        leases
            .into_iter()
            .for_each(|lease| living.insert(lease, now));
        let extent = Extent {
            revision: meta.revision,
            compacted: meta.compacted,
            is_closed: false,
        };
        let shared = Self {
            commands,
            extent: watch::Sender::new(extent),
            recent: Mutex::default(),
            leases: Mutex::new(living),
            leases_changed: Notify::new(),
            clock,
            limit,
            place,
            cache_bytes,
            file: RwLock::new(File {
                database: Some(database),
                disk: Some(disk),
            }),
        };
        Ok((shared, meta))
    }

    /// Does something with the database, unless it is closed.
    pub fn with_database<T>(&self, f: impl FnOnce(&Database) -> T) -> Option<T> {
        self.file.read().database.as_ref().map(f)
    }

    /// Opens the database again, after a failure. Waits until nobody reads.
    pub fn reopen(&self) -> Result<(), redb::Error> {
        let mut file = self.file.write();
        // The old one first: two must never use one file.
        file.database = None;
        let disk = file.disk.clone().ok_or(redb::Error::DatabaseClosed)?;
        file.database = Some(open_database(&disk, self.cache_bytes)?);
        Ok(())
    }

    /// Closes the database. Watches learn that there is no more to come.
    pub fn close(&self) {
        let mut file = self.file.write();
        // The database first: it writes once more.
        file.database = None;
        file.disk = None;
        drop(file);
        self.extent.send_modify(|extent| extent.is_closed = true);
    }

    /// What a batch has come to, now that it is on the disk.
    pub fn committed(&self, outcome: Outcome) {
        let now = self.clock.now();
        if !outcome.lease_changes.is_empty() {
            let mut leases = self.leases.lock();
            for change in outcome.lease_changes {
                match change {
                    LeaseChange::Granted(lease) => leases.insert(lease, now),
                    LeaseChange::Ended(lease) => leases.remove(lease),
                }
            }
            drop(leases);
            self.leases_changed.notify_one();
        }
        let mut recent = self.recent.lock();
        outcome.changes.into_iter().for_each(|c| recent.push(c));
        drop(recent);
        self.extent.send_if_modified(|extent| {
            let old = *extent;
            extent.revision = outcome.meta.revision;
            extent.compacted = outcome.meta.compacted;
            old != *extent
        });
    }

    /// The numbers as they are in the file now.
    pub fn read_meta(&self) -> Result<Meta, redb::Error> {
        let read = self.with_database(|database| {
            let mut meta = Meta::default();
            let numbers = database.begin_read()?.open_table(META)?;
            fill(&mut meta, &numbers)?;
            Ok(meta)
        });
        read.unwrap_or(Err(redb::Error::DatabaseClosed))
    }

    /// Reads from one state of the database, on a thread that may wait for the disk.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        f: impl Fn(&ReadTransaction) -> Result<T, ReadError> + Send + Sync + 'static,
    ) -> Result<T, Error> {
        let f = Arc::new(f);
        let mut why = String::new();
        for _ in 0..READ_ATTEMPTS {
            let shared = Arc::clone(self);
            let f = Arc::clone(&f);
            let read = move || {
                shared.with_database(|database| {
                    let transaction = database.begin_read().map_err(redb::Error::from)?;
                    f(&transaction)
                })
            };
            match self.place.run(read).await {
                Ok(Some(Ok(value))) => return Ok(value),
                Ok(Some(Err(ReadError::Error(error)))) => return Err(error),
                Ok(Some(Err(ReadError::Disk(error)))) => why = error.to_string(),
                Ok(None) => why = "it is closed, or its file cannot be opened".to_owned(),
                Err(join) => return Err(Error::corrupt(join)),
            }
            let (done, healed) = oneshot::channel();
            if self.commands.send(Command::Heal { done }).await.is_err() {
                break;
            }
            let _ = healed.await;
        }
        Err(Error::unavailable(why))
    }
}

/// Why a read failed.
#[derive(Debug)]
pub enum ReadError {
    /// What is there is wrong.
    Error(Error),
    /// The file cannot be read.
    Disk(redb::Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<redb::Error> for ReadError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Corrupted(why) => Self::Error(Error::corrupt(why)),
            error => Self::Disk(error),
        }
    }
}

impl From<redb::StorageError> for ReadError {
    fn from(error: redb::StorageError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::TableError> for ReadError {
    fn from(error: redb::TableError) -> Self {
        redb::Error::from(error).into()
    }
}

fn open_database(disk: &SharedDisk, cache_bytes: usize) -> Result<Database, redb::Error> {
    let backend = Backend(disk.open()?);
    Ok(Builder::new()
        .set_cache_size(cache_bytes)
        .create_with_backend(backend)?)
}

/// Reads the numbers.
fn fill(
    meta: &mut Meta,
    numbers: &impl ReadableTable<&'static str, u64>,
) -> Result<(), redb::Error> {
    for (name, number) in meta.fields() {
        let row = numbers.get(name)?;
        *number = row
            .ok_or_else(|| redb::Error::Corrupted(format!("the number '{name}' is missing")))?
            .value();
    }
    Ok(())
}

/// Makes a new file's tables, or reads what an old one begins with.
fn read_start(database: &Database) -> Result<(Meta, Vec<Lease>), redb::Error> {
    let mut meta = Meta::default();
    let transaction = database.begin_write()?;
    {
        let mut numbers = transaction.open_table(META)?;
        let format = numbers.get("format")?.map(|row| row.value());
        match format {
            None => {
                numbers.insert("format", FORMAT)?;
                for (name, number) in meta.fields() {
                    numbers.insert(name, *number)?;
                }
            }
            Some(FORMAT) => fill(&mut meta, &numbers)?,
            Some(other) => {
                return Err(redb::Error::Corrupted(format!(
                    "it has format {other}, and this wasmrun knows {FORMAT}; use the wasmrun that wrote it"
                )));
            }
        }
    }
    let mut leases = Vec::new();
    {
        for row in transaction.open_table(LEASES)?.iter()? {
            let (id, ttl_s) = row?;
            leases.push(Lease {
                id: LeaseId(id.value()),
                ttl: std::time::Duration::from_secs(ttl_s.value()),
            });
        }
        // Reads expect all tables to be there.
        transaction.open_table(ENTRIES)?;
        transaction.open_table(LOG)?;
        transaction.open_table(LEASE_KEYS)?;
        transaction.open_table(CLIENTS)?;
        transaction.open_table(CLIENT_ORDER)?;
        transaction.open_table(ANSWERS)?;
    }
    transaction.commit()?;
    Ok((meta, leases))
}
