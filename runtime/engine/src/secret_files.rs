//! Secrets as files of one sandbox.
//!
//! Owns the folder that they are in: in memory (tmpfs), for the node's user alone, removed with the sandbox. WASI opens folders
//! of the machine and no others, so the files have to be somewhere; on a disk they could be read later. What a process has left
//! that was killed is removed by [`sweep`]. Must not: fall back to a disk where there is no such memory.
//!
//! Invariant: each folder is locked as long as its sandbox lives, by the process that has made it.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

const PREFIX: &str = "wasmrun-secrets-";
/// How Linux numbers tmpfs.
const TMPFS: u64 = 0x0102_1994;
/// How often the creation of a folder is retried that another process has taken for an orphan.
const TRIES: usize = 16;

/// A file that a guest finds in `/run/secrets`.
#[derive(Clone)]
pub struct SecretFile {
    /// Its name there.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretFile({})", self.name)
    }
}

/// The folder of one sandbox. Removed when dropped.
pub(crate) struct Folder {
    path: PathBuf,
    /// Held, never used.
    _lock: File,
}

impl Folder {
    pub(crate) fn create(files: &[SecretFile]) -> io::Result<Self> {
        let Some(base) = bases().into_iter().next() else {
            let why = "neither XDG_RUNTIME_DIR nor /dev/shm is in memory (tmpfs), and on a disk they would stay";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        Self::create_in(&base, files)
    }

    fn create_in(base: &Path, files: &[SecretFile]) -> io::Result<Self> {
        let folder = Self::empty(base)?;
        for file in files {
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o600);
            options
                .open(folder.path.join(&file.name))?
                .write_all(&file.bytes)?;
        }
        Ok(folder)
    }

    fn empty(base: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..TRIES {
            let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = base.join(format!("{PREFIX}{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of a process with our number that is no more, and which nobody has swept yet.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Before it is locked, a sweep takes it for an orphan.
            if let Some(lock) = lock(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other(
            "other processes remove the folder as soon as it is made",
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is swept later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a folder. None if another process has, or it is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let folder = match File::open(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // It may have been removed between the two.
    Ok(path.exists().then_some(folder))
}

/// Removes what processes of this user have left that are no more.
pub fn sweep() {
    for base in bases() {
        sweep_in(&base);
    }
}

fn sweep_in(base: &Path) {
    let ours = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = |meta: fs::Metadata| meta.is_dir() && meta.uid() == ours;
        // Of the entry itself: a link is not followed.
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(is_ours);
        let path = entry.path();
        if is_one && let Ok(Some(_lock)) = lock(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Folders in memory, the best first: the user's own, then the machine's.
fn bases() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = own.into_iter().chain([PathBuf::from("/dev/shm")]);
    all.filter(|it| it.is_absolute() && is_in_memory(it))
        .collect()
}

fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|it| u64::try_from(it.f_type) == Ok(TMPFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<SecretFile> {
        let file = |name: &str, bytes: &[u8]| SecretFile {
            name: name.into(),
            bytes: bytes.into(),
        };
        vec![file("a", b"one\0\xff\n"), file("b", b"")]
    }

    #[test]
    fn files_are_there_as_long_as_the_folder_is_and_for_us_alone() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create_in(base.path(), &files()).unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"one\0\xff\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(path.join("b")).unwrap().mode() & 0o777, 0o600);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_left_is_swept_and_what_is_used_is_not() {
        let base = tempfile::tempdir().unwrap();
        let used = Folder::create_in(base.path(), &files()).unwrap();
        let left = base.path().join(format!("{PREFIX}1-x"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("a"), "one").unwrap();
        let other = base.path().join("other");
        fs::create_dir(&other).unwrap();
        sweep_in(base.path());
        assert!(!left.exists());
        assert!(other.exists() && used.path().join("a").exists());
    }

    #[test]
    fn a_file_is_not_shown() {
        assert!(!format!("{:?}", files()).contains("one"));
        assert!(!is_in_memory(Path::new("/proc")));
    }
}
