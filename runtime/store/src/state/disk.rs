//! The spill folder, as far as rules go: what is on disk, and what its thread is asked to do.
//!
//! Owns the account of the disk. Must not: touch files; the thread does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use crate::arena::Room;
use crate::segment::Extent;

/// The spill folder, as far as rules go.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(super) jobs: Sender<Job>,
    pub(super) dir: PathBuf,
    pub(super) capacity: u64,
    /// Of files, and of those that are being written. May be more than the capacity by the longest object on disk: what
    /// makes room for that one's return is written before its file goes. So a return that has begun is completed, even if
    /// its readers leave.
    pub(super) used: u64,
    /// Objects that were written, ever, and their bytes.
    pub(super) spills: u64,
    pub(super) spill_bytes: u64,
    /// Objects that were read back, ever, and their bytes.
    pub(super) restores: u64,
    pub(super) restore_bytes: u64,
    pub(super) errors: u64,
    /// Why the last write failed, if it did.
    pub(super) fault: Option<Arc<io::Error>>,
    /// The last write failed, and nothing has happened since that would make another one succeed.
    pub(super) has_failed: bool,
    pub(super) files: u64,
}

/// A file in the spill folder: never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileNumber(pub(crate) u64);

/// What the thread is asked to do. It does one after the other.
#[derive(Debug)]
pub(crate) enum Job {
    Spill {
        it: OnDisk,
        extent: Arc<Extent>,
    },
    Restore {
        it: OnDisk,
        room: Room,
    },
    Remove(FileNumber),
    /// All files go, and nothing is written or read from then on. The sender goes when that is done.
    End(Sender<()>),
}

/// An object that the disk's thread was working on.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) tenant: TenantName,
    pub(crate) id: ObjectId,
    pub(crate) serial: u64,
    pub(crate) file: FileNumber,
    pub(crate) len: u64,
}

/// The thread that does the jobs. Dropping this waits for its end.
pub(crate) struct DiskThread(Option<JoinHandle<()>>);

impl Disk {
    /// A folder with nothing in it yet, and the way to its thread.
    pub(crate) fn new(dir: PathBuf, capacity: u64, jobs: Sender<Job>) -> Self {
        Self {
            jobs,
            dir,
            capacity,
            used: 0,
            spills: 0,
            spill_bytes: 0,
            restores: 0,
            restore_bytes: 0,
            errors: 0,
            fault: None,
            has_failed: false,
            files: 0,
        }
    }

    /// What more may be written there, once so much of what is there goes.
    pub(super) fn left(&self, going: u64) -> u64 {
        (self.capacity.saturating_add(going)).saturating_sub(self.used)
    }

    pub(super) fn is_overdrawn(&self) -> bool {
        self.used > self.capacity
    }
}

impl DiskThread {
    pub(crate) fn new(thread: JoinHandle<()>) -> Self {
        Self(Some(thread))
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        // A waker that the thread calls may hold the last reference to the store.
        if let Some(thread) = self.0.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there has been reported; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
