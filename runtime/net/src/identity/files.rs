//! Files with secrets: written whole or not at all, readable by their owner only.
//!
//! Owns the rules for such files. Must not: know what is in them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MAX_BYTES: u64 = 256 << 10;

/// Why a file with a secret could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Others may read it.
    #[error(
        "{} holds a private key, and others than its owner may use it (mode {mode:o}): \
         make a new identity, or `chmod 600` it if nobody has read it", path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("{} belongs to another user, who could change it: make one of your own", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// There is one already.
    #[error("{} exists already and is not overwritten: load it, or use another folder", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{} cannot be {doing}: check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Reads a file that only its owner may read.
pub(super) fn read_private(path: &Path) -> Result<String, FileError> {
    let io = |source| FileError::Io {
        path: path.into(),
        doing: "read",
        source,
    };
    let file = File::open(path).map_err(io)?;
    // Of the open file, so that nobody can put another one in its place in between.
    let meta = file.metadata().map_err(io)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(FileError::NotOurs { path: path.into() });
    }
    if meta.mode() & 0o077 != 0 {
        return Err(FileError::Exposed {
            path: path.into(),
            mode: meta.mode() & 0o777,
        });
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(io)?;
    Ok(text)
}

/// Writes such a file: all of it under its name, or nothing. Makes the folder if there is none.
pub(super) fn write_private(path: &Path, text: &str, replace: bool) -> Result<(), FileError> {
    let io = |source| FileError::Io {
        path: path.into(),
        doing: "written",
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io)?;
    let random = u64::from_le_bytes(super::random());
    let temporary = path.with_extension(format!("{random:016x}"));
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        if replace {
            fs::rename(&temporary, path)?;
        } else {
            // Unlike a rename, a link never replaces what somebody else has just made.
            fs::hard_link(&temporary, path)?;
            fs::remove_file(&temporary)?;
        }
        File::open(folder)?.sync_all()
    })();
    written.map_err(|source| {
        // It is ours alone; if it cannot be removed either, the first error says more.
        let _ = fs::remove_file(&temporary);
        match source.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: path.into() },
            _ => io(source),
        }
    })
}
