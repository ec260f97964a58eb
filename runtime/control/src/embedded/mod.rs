//! The control store in one file (redb), in the process of the head.
//!
//! Owns the handle, its settings and the task that ends leases. From the bottom: `disk` is the file, `tables`
//! its bytes, `apply` the rules, `writer` the one thread that changes anything, `shared` what is in memory,
//! `watch` who looks on.
//!
//! Invariants: nothing is answered before it is on the disk. What was answered is there after any crash.
//! One process at a time uses a folder. A lease ends only by a change, made by the writer.

mod apply;
mod disk;
mod leases;
mod shared;
mod tables;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::apply::HistoryLimit;
pub use self::apply::{Answer, CLIENT_WINDOW, ClientId, MAX_CLIENTS, Mutation, RequestId};
pub(crate) use self::disk::Disk;
use self::disk::{Folder, FolderError, SharedDisk};
pub(crate) use self::shared::Place;
use self::shared::{Command, ReadError, Shared};
use self::tables::{ENTRIES, META, decode_entry};
pub(crate) use self::watch::EmbeddedWatch;
use self::writer::Writer;
use crate::clock::{Clock, MonotonicClock};
use crate::error::Error;
use crate::store::{ControlStore, Watch};
use crate::types::{
    Entry, Lease, LeaseId, MAX_PAGE_BYTES, Page, Range, Revision, Txn, TxnReply, after_key,
    check_key, check_prefix, ttl_seconds,
};

/// How many changes may wait for the writer. Whoever comes then waits until there is room.
const QUEUE: usize = 4_096;

/// How often the keeper of leases looks at the clock at least.
const TICK: Duration = Duration::from_millis(500);

/// When the keeper comes so much later than it wanted to, the process was stopped, and nobody could
/// renew a lease meanwhile.
const STALL: Duration = Duration::from_secs(1);

/// Settings of the embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// How many revisions of history are kept for watches that come back. At least 1.
    pub history_revisions: u64,
    /// How many bytes of history are kept. Less than 4 MiB counts as 4 MiB.
    pub history_bytes: u64,
    /// How much of the file is kept in memory, in bytes.
    pub cache_bytes: usize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            history_revisions: 10_000,
            history_bytes: 64 << 20,
            cache_bytes: 32 << 20,
        }
    }
}

/// Why the embedded store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder open.
    #[error(
        "another process uses the control store in {path}; is a head already running here? Stop it, or give this one another folder"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The file is damaged, or none of ours.
    #[error(
        "the control store's file {file} is damaged or was not written by wasmrun: {why}; restore it from a backup, or move it away to start a new cluster"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The system does not let us.
    #[error(
        "the control store in {path} cannot be opened; check that the folder is ours and the disk has room"
    )]
    Io {
        /// The folder or file.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// The control store in a folder of this machine.
///
/// Dropping it waits for the changes that are under way, up to some syncs of the disk.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Mutex<Option<Working>>,
    keeper: tokio::task::JoinHandle<()>,
}

/// The writer, to be waited for.
#[derive(Debug)]
enum Working {
    Thread(JoinHandle<()>),
    Task(tokio::task::JoinHandle<()>),
}

impl Embedded {
    /// Opens the store in this folder; makes it if it is not there. Every lease has its full time
    /// from here on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When another process has it open, when the file is damaged, and when the system does not let us.
    pub async fn open(path: &Path, config: EmbeddedConfig) -> Result<Arc<Self>, OpenError> {
        Self::open_with_clock(path, config, Arc::new(MonotonicClock::default())).await
    }

    /// As [`Self::open`], with a clock of the caller's.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub async fn open_with_clock(
        path: &Path,
        config: EmbeddedConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, OpenError> {
        let path = path.to_path_buf();
        let folder = tokio::task::spawn_blocking(move || match Folder::lock(&path) {
            Ok(folder) => Ok(folder),
            Err(FolderError::InUse) => Err(OpenError::InUse { path }),
            Err(FolderError::Io(source)) => Err(OpenError::Io {
                path: path.display().to_string(),
                source,
            }),
        });
        let folder = folder.await.expect("locking a folder does not panic")?;
        Self::open_disk(Arc::new(folder), config, clock, Place::Threads).await
    }

    pub(crate) async fn open_disk(
        disk: SharedDisk,
        config: EmbeddedConfig,
        clock: Arc<dyn Clock>,
        place: Place,
    ) -> Result<Arc<Self>, OpenError> {
        let limit = HistoryLimit {
            revisions: config.history_revisions.max(1),
            bytes: config.history_bytes.max(4 << 20),
        };
        let name = disk.name();
        let (commands, receiver) = mpsc::channel(QUEUE);
        let how = (place, config.cache_bytes);
        let opened = place.run(move || Shared::open(disk, clock, limit, how, commands));
        let (shared, meta) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(open_error(name, error)),
            // redb asserts what it finds in its file.
            Err(panic) => {
                let why = panic.to_string();
                return Err(OpenError::Corrupt { file: name, why });
            }
        };
        let shared = Arc::new(shared);
        let writer = Writer::new(Arc::clone(&shared), receiver, meta);
        let writer = match place {
            Place::Here => Working::Task(tokio::spawn(writer.run_here())),
            Place::Threads => {
                let thread = std::thread::Builder::new().name("wasmrun-store".to_owned());
                let thread = thread.spawn(move || writer.run());
                Working::Thread(thread.map_err(|source| OpenError::Io { path: name, source })?)
            }
        };
        let keeper = tokio::spawn(keep_leases(Arc::clone(&shared)));
        Ok(Arc::new(Self {
            shared,
            writer: Mutex::new(Some(writer)),
            keeper,
        }))
    }

    /// Ends: changes that came before are made and answered, later ones are refused, watches end.
    /// When it returns, the folder can be opened again.
    pub async fn close(&self) {
        self.keeper.abort();
        // If it no longer listens it is about to end by itself.
        let _ = self.shared.commands.send(Command::Stop).await;
        let writer = self.writer.lock().take();
        let is_well = match writer {
            Some(Working::Thread(thread)) => {
                let joined = tokio::task::spawn_blocking(move || thread.join()).await;
                matches!(joined, Ok(Ok(())))
            }
            Some(Working::Task(task)) => task.await.is_ok(),
            None => true,
        };
        if !is_well {
            tracing::error!("the control store's thread has panicked");
        }
    }

    /// Makes a change. With a request id, the same request is done once however often it comes.
    ///
    /// # Errors
    /// As for the methods of [`ControlStore`].
    pub async fn change(
        &self,
        request: Option<RequestId>,
        mutation: Mutation,
    ) -> Result<Answer, Error> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Change {
            request,
            mutation,
            answer,
        };
        let closed = || Error::unavailable("it was closed");
        let queued = self.shared.commands.send(command).await;
        queued.map_err(|_| closed())?;
        match answered.await {
            Ok(answer) => answer,
            // The writer ends with the commands that came too late unanswered.
            Err(_) => Err(closed()),
        }
    }

    pub(crate) fn open_watch(&self, prefix: &[u8], from: Revision) -> Result<EmbeddedWatch, Error> {
        check_prefix(prefix)?;
        let prefix = Bytes::copy_from_slice(prefix);
        EmbeddedWatch::new(Arc::clone(&self.shared), prefix, from)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.keeper.abort();
        let writer = match self.writer.lock().take() {
            Some(Working::Thread(thread)) => thread,
            Some(Working::Task(task)) => return task.abort(),
            None => return,
        };
        // Nobody else has a handle, so a full queue is being emptied.
        let mut stop = Command::Stop;
        while let Err(mpsc::error::TrySendError::Full(back)) = self.shared.commands.try_send(stop) {
            stop = back;
            std::thread::yield_now();
        }
        let _ = writer.join();
    }
}

#[async_trait]
impl ControlStore for Embedded {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let key = Bytes::copy_from_slice(key);
        let read = move |transaction: &redb::ReadTransaction| {
            let row = transaction.open_table(ENTRIES)?.get(key.as_ref())?;
            let entry = row.map(|row| decode_entry(&key, row.value()));
            Ok::<_, ReadError>(entry.transpose()?)
        };
        self.shared.read(read).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        range.check()?;
        self.shared.read(move |read| read_page(read, &range)).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        txn.check()?;
        match self.change(None, Mutation::Txn(txn)).await? {
            Answer::Txn(reply) => Ok(reply),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        let source = self.open_watch(prefix, from)?;
        Ok(Watch::new(Bytes::copy_from_slice(prefix), source))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let ttl_s = ttl_seconds(ttl)?;
        match self.change(None, Mutation::Grant { ttl_s }).await? {
            Answer::Granted(lease) => Ok(lease),
            other => Err(wrong_answer(&other)),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let now = self.shared.clock.now();
        self.shared.leases.lock().renew(lease, now)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let done = self.change(None, Mutation::Revoke(lease)).await;
        done.map(|_| ())
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        let done = self.change(None, Mutation::Compact(through)).await;
        done.map(|_| ())
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(Revision(self.shared.extent.borrow().revision))
    }
}

pub(crate) fn wrong_answer(answer: &Answer) -> Error {
    Error::invalid(format_args!(
        "the answer is of another kind than the question: {answer:?}"
    ))
}

fn read_page(transaction: &redb::ReadTransaction, range: &Range) -> Result<Page, ReadError> {
    let numbers = transaction.open_table(META)?;
    let revision = numbers.get("revision")?.map_or(0, |row| row.value());
    let mut page = Page {
        entries: Vec::new(),
        revision: Revision(revision),
        next: None,
    };
    let mut bytes = 0;
    let entries = transaction.open_table(ENTRIES)?;
    for row in entries.range(range.start().as_ref()..)? {
        let (key, value) = row?;
        let key = key.value();
        if !key.starts_with(&range.prefix) {
            break;
        }
        if page.entries.len() == range.limit() || bytes >= MAX_PAGE_BYTES {
            page.next = page.entries.last().map(|last| after_key(&last.key));
            break;
        }
        // A page is at most one entry larger than its limit, and still a message.
        let size = key.len() + value.value().len();
        if bytes + size > MAX_PAGE_BYTES && !page.entries.is_empty() {
            page.next = page.entries.last().map(|last| after_key(&last.key));
            break;
        }
        bytes += size;
        page.entries.push(decode_entry(key, value.value())?);
    }
    Ok(page)
}

fn open_error(name: String, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            OpenError::Corrupt {
                file: name,
                why: source.to_string(),
            }
        }
        redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            OpenError::Corrupt {
                file: name,
                why: "it ends too early".to_owned(),
            }
        }
        redb::Error::Io(source) => OpenError::Io { path: name, source },
        error => OpenError::Corrupt {
            file: name,
            why: error.to_string(),
        },
    }
}

/// Ends leases whose time is over. Never waits for the writer, so that a slow disk does not look like a
/// process that was stopped.
async fn keep_leases(shared: Arc<Shared>) {
    loop {
        let now = shared.clock.now();
        let (due, next) = {
            let mut leases = shared.leases.lock();
            (leases.take_due(now), leases.next_time())
        };
        for lease in due {
            // A full queue: it is asked again in a while.
            let _ = shared.commands.try_send(Command::Expire(lease));
        }
        let changed = shared.leases_changed.notified();
        let Some(next) = next else {
            changed.await;
            continue;
        };
        let wake = next.min(now + TICK);
        tokio::select! {
            biased;
            () = changed => {}
            () = shared.clock.sleep_until(wake) => {}
        }
        // Whichever it was: who was stopped may find both.
        let late = shared.clock.now().since(wake);
        if late > STALL {
            tracing::warn!(
                late_ms = late.as_millis(),
                "this process was stopped for a while; leases get that time back"
            );
            shared.leases.lock().extend(late);
        }
    }
}
