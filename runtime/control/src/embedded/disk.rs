//! The file under the embedded store.
//!
//! Owns the folder's lock and how the file grows: room is reserved before redb counts on it, so that a
//! full disk is found out while nothing is half written, and what is there can still be changed and
//! read. Must not: know what is in the file.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;
use rustix::fs::{FallocateFlags, fallocate};

/// Where the bytes are: something that can be opened again after it has failed.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// A new way to the same bytes. The one before is no longer in use.
    fn open(&self) -> io::Result<Box<dyn StorageBackend>>;

    /// What to call it in errors.
    fn name(&self) -> String;
}

/// A folder with the store's file and a lock that says that somebody uses it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked for as long as it is open.
    _lock: File,
}

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another process has it.
    InUse,
    /// The system does not let us.
    Io(io::Error),
}

impl Folder {
    /// Makes the folder if need be, for us alone, and locks it.
    pub fn lock(path: &Path) -> Result<Self, FolderError> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(FolderError::Io)?;
        let lock = open(&path.join("lock")).map_err(FolderError::Io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse),
            Err(TryLockError::Error(error)) => return Err(FolderError::Io(error)),
        }
        Ok(Self {
            path: path.to_path_buf(),
            _lock: lock,
        })
    }

    fn file(&self) -> PathBuf {
        self.path.join("control.redb")
    }
}

impl Disk for Folder {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        let is_new = !self.file().exists();
        let file = open(&self.file())?;
        if is_new {
            // The name too must survive.
            File::open(&self.path)?.sync_all()?;
        }
        Ok(Box::new(ReservedFile { file }))
    }

    fn name(&self) -> String {
        self.file().display().to_string()
    }
}

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// A file all of whose bytes have a place on the disk.
#[derive(Debug)]
struct ReservedFile {
    file: File,
}

impl StorageBackend for ReservedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        if len > old {
            match fallocate(&self.file, FallocateFlags::empty(), old, len - old) {
                // Not every file system can; there a full disk shows later.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => {
                    // What was reserved before it failed goes back.
                    let _ = self.file.set_len(old);
                    return Err(error.into());
                }
            }
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}

/// A backend as redb wants to own it.
#[derive(Debug)]
pub struct Backend(pub Box<dyn StorageBackend>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// What all parts of a store share to get at its bytes.
pub type SharedDisk = Arc<dyn Disk>;
