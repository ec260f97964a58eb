//! A control store for tests that is the same from the same seed.
//!
//! Owns a store without a disk and without threads ([`Store`]), which is [`Embedded`] itself: its rules, its writer, its
//! leases and its watches; time that passes only when nothing else is left to do ([`Time`]); and the ways of clients to
//! the store, on which things go wrong ([`Way`]). Must not: be used by anything but tests.
//!
//! Invariants: what happens in a world that [`Time::run`] runs follows from its seeds alone, if its parts wait for
//! nothing but this time, each other, and this store. At each moment one thing happens: of two that are due at the same
//! time, one and all that follows from it come first.

mod time;
mod way;

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::embedded::{Disk, Place};
use crate::error::Error;
use crate::types::{Txn, TxnReply};
use crate::{Clock, Embedded, EmbeddedConfig};

pub use self::time::{Hand, Process, Time};
pub use self::way::{Faults, Line, Way};

/// Who looks on when a transaction was made: the process that sent it, the store as it is now, what was asked and what it
/// did.
pub type Observer = Box<dyn Fn(Process, &Embedded, &Txn, &TxnReply) + Send + Sync>;

/// A disk that is memory, and is always there.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Disk for Memory {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(self.clone()))
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let found = bytes.get(at..at + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.lock().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let place = bytes.get_mut(at..at + data.len());
        place
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(data);
        Ok(())
    }
}

/// The embedded store without a disk. It can be stopped, and started again on what it had.
pub struct Store {
    memory: Memory,
    config: EmbeddedConfig,
    clock: Arc<dyn Clock>,
    /// `None` while it is stopped.
    open: Mutex<Option<Arc<Embedded>>>,
    observer: Mutex<Option<Observer>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store, whose leases go by this clock. Must be called within a tokio runtime.
    pub async fn new(config: EmbeddedConfig, clock: Arc<dyn Clock>) -> Arc<Self> {
        let store = Arc::new(Self {
            memory: Memory::default(),
            config,
            clock,
            open: Mutex::default(),
            observer: Mutex::default(),
        });
        store.start().await;
        store
    }

    /// Starts it again: every lease has its full time from here on. Nothing happens to one that is not stopped.
    ///
    /// # Panics
    /// If what it had cannot be read, which is a bug.
    pub async fn start(&self) {
        if self.open.lock().is_some() {
            return;
        }
        let (disk, config) = (Arc::new(self.memory.clone()), self.config.clone());
        let opened = Embedded::open_disk(disk, config, self.clock.clone(), Place::Here).await;
        let opened = opened.unwrap_or_else(|error| panic!("memory is not damaged: {error}"));
        *self.open.lock() = Some(opened);
    }

    /// Stops it. What has come is made; the next ones are told that it is away.
    pub async fn stop(&self) {
        let open = self.open.lock().take();
        if let Some(open) = open {
            open.close().await;
        }
    }

    /// The store itself, without anything that could go wrong on the way.
    ///
    /// # Errors
    /// While it is stopped.
    pub fn itself(&self) -> Result<Arc<Embedded>, Error> {
        let open = self.open.lock().clone();
        open.ok_or_else(|| Error::unavailable("it was stopped"))
    }

    /// From now on this looks on whenever a transaction of a [`Way`] is made.
    pub fn observe(&self, observer: Observer) {
        *self.observer.lock() = Some(observer);
    }

    fn made(&self, process: Process, store: &Embedded, txn: &Txn, reply: &TxnReply) {
        if let Some(observer) = &*self.observer.lock() {
            observer(process, store, txn, reply);
        }
    }
}
