//! Spilled objects on disk: the folder, the files, and the one thread that reads and writes them.
//!
//! Owns the folder. Must not: decide what is spilled, or hold the store's lock while it works.
//!
//! Every store works in a subfolder of its own and holds a lock in it for as long as it lives; the
//! kernel lets go of the lock when the process ends, however it ends. So a later store knows which
//! subfolders nobody owns, and removes them. A lock on the folder itself orders stores that open at
//! the same time. Files need not survive a crash, so nothing is synced or renamed. What is read back has the checksum
//! of what was written, or is an error.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::mpsc::Receiver;

use rustix::fs::FlockOperation;

use crate::arena::Room;
use crate::state::{Core, FileNumber, Job};

/// The subfolder of one store. Removed when dropped.
#[derive(Debug)]
pub(crate) struct SpillDir {
    path: PathBuf,
    /// Held, never used.
    _lock: File,
}

const LOCK_FILE: &str = "lock";
const SUBFOLDER_PREFIX: &str = "wasmrun-spill-";
/// How much is read before it is copied into its extent: fits into a cache.
const CHUNK_BYTES: usize = 512 << 10;

impl SpillDir {
    /// Makes a subfolder, and removes those of stores that are no more.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let folder_lock = lock_file(&dir.join(LOCK_FILE))?;
        rustix::fs::flock(&folder_lock, FlockOperation::LockExclusive)?;
        remove_orphans(dir)?;
        for n in 0.. {
            let path = dir.join(format!("{SUBFOLDER_PREFIX}{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => {
                    result?;
                    let lock = lock_file(&path.join(LOCK_FILE))?;
                    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
                    return Ok(Self { path, _lock: lock });
                }
            }
        }
        unreachable!("some number is free")
    }

    fn file(&self, file: FileNumber) -> PathBuf {
        self.path.join(file.0.to_string())
    }

    /// Writes a file. The checksum of its bytes.
    fn write(&self, file: FileNumber, bytes: &[u8]) -> io::Result<u32> {
        let path = self.file(file);
        let mut options = OpenOptions::new();
        let written = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut it| it.write_all(bytes));
        if written.is_err() {
            // The disk is probably full: don't keep half a file.
            let _ = fs::remove_file(&path);
        }
        written.map(|()| crc32fast::hash(bytes))
    }

    fn read(
        &self,
        file: FileNumber,
        len: u64,
        sum: Option<u32>,
        room: &mut Room,
    ) -> io::Result<()> {
        let mut file = File::open(self.file(file))?;
        if file.metadata()?.len() != len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file changed its length",
            ));
        }
        let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
        let (mut offset, mut hasher) = (0, crc32fast::Hasher::new());
        while offset < len {
            let part = &mut chunk[..CHUNK_BYTES.min((len - offset) as usize)];
            file.read_exact(part)?;
            hasher.update(part);
            room.extent.write(offset, part, room.fresh);
            offset += part.len() as u64;
        }
        if Some(hasher.finalize()) != sum {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file changed its bytes",
            ));
        }
        room.extent.clear_from(len);
        Ok(())
    }
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        // What stays is removed by the next store that opens the folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What the thread does: jobs, until the store is gone.
pub(crate) fn run(dir: SpillDir, jobs: &Receiver<Job>, store: &Weak<Core>) {
    let mut dir = Some(dir);
    // CRC-32 of each file that there is.
    let mut sums = HashMap::new();
    for job in jobs {
        if store.strong_count() == 0 {
            return; // What is left to do is of no use to anybody.
        }
        match job {
            Job::Remove(file) => {
                sums.remove(&file);
                if let Some(dir) = &dir {
                    let _ = fs::remove_file(dir.file(file));
                }
            }
            Job::Spill { it, extent } => {
                let dir = there(dir.as_ref());
                let written =
                    dir.and_then(|dir| dir.write(it.file, &extent.bytes()[..it.len as usize]));
                let result = written.map(|sum| {
                    sums.insert(it.file, sum);
                });
                if let Some(store) = store.upgrade() {
                    store.with(|state| state.spilled(it, extent, result));
                }
            }
            Job::Restore { it, mut room } => {
                let reserved = room.extent.reserve();
                let sum = sums.get(&it.file).copied();
                let dir = reserved.and_then(|()| there(dir.as_ref()));
                let result = dir.and_then(|dir| dir.read(it.file, it.len, sum, &mut room));
                if let Some(store) = store.upgrade() {
                    store.with(|state| state.restored(it, room.extent, result));
                }
            }
            Job::End(ended) => {
                dir = None;
                drop(ended);
            }
        }
    }
}

/// The folder, if it has not been removed.
fn there(dir: Option<&SpillDir>) -> io::Result<&SpillDir> {
    dir.ok_or_else(|| io::Error::other("the node has ended, and its spill folder is gone"))
}

fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Removes subfolders whose lock nobody holds. Their owners may be removing them, too.
fn remove_orphans(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(SUBFOLDER_PREFIX) || !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        match File::open(path.join(LOCK_FILE)) {
            Ok(lock) => match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => remove_folder(&path)?,
                Err(rustix::io::Errno::WOULDBLOCK) => {} // Its owner lives.
                Err(error) => return Err(error.into()),
            },
            // Its owner died between two steps of making or removing it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove_folder(&path)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
