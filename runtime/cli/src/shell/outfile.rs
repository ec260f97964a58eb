//! Files that people name for what a command makes.
//!
//! Owns what is checked before the work starts, and how a file is replaced whole. Must not: decide what is written.
//!
//! What is behind a name is written to: a link stays a link, a pipe or device gets the bytes, a file keeps its mode. A
//! regular file is replaced in one step, so that a full disk or a crash leaves no half of it. A pipe that nobody reads is
//! waited for until Ctrl-C.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags, access, fcntl_setfl, fstat, open};
use rustix::io::{Errno, dup};
use rustix::stdio::{stderr, stdout};
use tempfile::NamedTempFile;

use crate::fail::Failure;
use crate::signals::INTERRUPTED;

/// How often it is tried whether somebody reads a pipe.
const PIPE_LOOK: Duration = Duration::from_millis(20);

/// Whether a file could be written under this name, as far as that can be told beforehand.
///
/// # Errors
/// It names a folder, its own folder is not there, or one of them may not be written to.
pub fn check(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let refused = |why: String| Failure::usage(format!("cannot write to {shown}: {why}"));
    if path.as_os_str().is_empty() {
        return Err(Failure::usage("the name of the file to write to is empty"));
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") && !path.is_dir() {
        return Err(refused(
            "it is the name of a folder; name a file in it".into(),
        ));
    }
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(refused("it is a folder; name a file in it".into())),
        Ok(_) => access(path, Access::WRITE_OK).map_err(|error| refused(explain(error.into()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = folder_of(path);
            let shown = folder.display();
            match fs::metadata(folder) {
                Ok(about) if !about.is_dir() => Err(refused(format!("{shown} is no folder"))),
                Ok(_) => access(folder, Access::WRITE_OK | Access::EXEC_OK)
                    .map_err(|error| refused(format!("folder {shown}: {}", explain(error.into())))),
                Err(error) if error.kind() == ErrorKind::NotFound => Err(refused(format!(
                    "there is no folder {shown}; make it first, or name another file"
                ))),
                Err(error) => Err(refused(format!("folder {shown}: {}", explain(error)))),
            }
        }
        Err(error) => Err(refused(explain(error))),
    }
}

fn explain(error: io::Error) -> String {
    match error.kind() {
        ErrorKind::NotADirectory => {
            format!("{error}: a part of its path is a file; name another file")
        }
        _ => error.to_string(),
    }
}

/// The folder that a name is in.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().unwrap_or(path);
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}

/// Writes a file whole: readers see the old one or the new one, wherever that can be had.
///
/// # Errors
/// Those of the file system. What was there is still there then, unless it had to be written in place.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = OutFile::create(path)?;
    out.write_all(bytes)?;
    out.finish()
}

/// A file that is being written. Dropped without [`OutFile::finish`], what was there before is still there, unless it had
/// to be written in place.
pub enum OutFile {
    /// A new file that takes the place of the one with this name.
    Beside(NamedTempFile, PathBuf),
    /// What is behind the name.
    InPlace(File),
}

impl OutFile {
    /// Begins it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let beside = match fs::metadata(path) {
            // What is behind a link is replaced, not the link.
            Ok(about) if about.is_file() && about.nlink() == 1 && !is_own(&about) => {
                fs::canonicalize(path).and_then(|target| Self::beside(target, Some(&about)))
            }
            // Links that lead nowhere are followed when they are written through.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                Self::beside(path.to_owned(), None)
            }
            _ => Ok(None),
        };
        match beside {
            Ok(Some(beside)) => Ok(beside),
            // The disk, and not the folder: in place there would be no more room, and half of a file.
            Err(error) if is_full(&error) => Err(error),
            Ok(None) | Err(_) => begin(path).map(Self::InPlace),
        }
    }

    /// A new file for the place of one. `None` if it could not have the owner of the old one.
    fn beside(path: PathBuf, old: Option<&Metadata>) -> io::Result<Option<Self>> {
        let mode = old.map_or(0o666, |old| old.permissions().mode());
        let beside = tempfile::Builder::new()
            .prefix(".wasmrun-")
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(folder_of(&path))?;
        if let Some(old) = old {
            let new = beside.as_file().metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                return Ok(None);
            }
            // Without what the umask takes away.
            beside.as_file().set_permissions(old.permissions())?;
        }
        Ok(Some(Self::Beside(beside, path)))
    }

    /// All is written.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Beside(beside, path) => Ok(beside.persist(path).map(drop)?),
            Self::InPlace(_) => Ok(()),
        }
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(beside, _) => beside.write(bytes),
            Self::InPlace(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to write what is behind a name anew. Where that is our own standard output or error, as `/dev/stdout` is, it is
/// gone on with.
///
/// # Errors
/// Those of the file system; `Interrupted` of a pipe that nobody has read until Ctrl-C.
pub fn begin(path: &Path) -> io::Result<File> {
    match fs::metadata(path).ok() {
        Some(about) if let Some(descriptor) = own(&about) => Ok(dup(descriptor)?.into()),
        Some(about) if about.file_type().is_fifo() => {
            begin_pipe(path, || INTERRUPTED.load(Ordering::SeqCst))
        }
        _ => File::create(path),
    }
}

/// Opens a named pipe as soon as somebody reads it.
fn begin_pipe(path: &Path, is_over: impl Fn() -> bool) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    loop {
        // Without this flag it waits in the kernel, which Ctrl-C does not end where it is handled.
        match open(path, flags | OFlags::NONBLOCK, Mode::empty()) {
            Ok(pipe) => {
                fcntl_setfl(&pipe, OFlags::empty())?;
                return Ok(pipe.into());
            }
            Err(Errno::NXIO) if is_over() => {
                let why = "nobody has read from this pipe; start its reader, too";
                return Err(io::Error::new(ErrorKind::Interrupted, why));
            }
            // Nothing tells when a reader comes.
            Err(Errno::NXIO) => std::thread::sleep(PIPE_LOOK),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a file is our own standard output or error.
pub fn is_own(about: &Metadata) -> bool {
    own(about).is_some()
}

fn own(about: &Metadata) -> Option<BorrowedFd<'static>> {
    [stdout(), stderr()].into_iter().find(|descriptor| {
        fstat(descriptor).is_ok_and(|it| (it.st_dev, it.st_ino) == (about.dev(), about.ino()))
    })
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_waited_for_until_it_has_a_reader_or_all_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let over = begin_pipe(&path, || true).unwrap_err();
        assert_eq!(over.kind(), ErrorKind::Interrupted);
        assert!(over.to_string().contains("start its reader"), "{over}");
        let reading = path.clone();
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = File::open(reading).and_then(|mut it| it.read_to_end(&mut bytes));
            read.map(|_| bytes)
        });
        let mut pipe = begin_pipe(&path, || false).unwrap();
        pipe.write_all(b"all").unwrap();
        drop(pipe);
        assert_eq!(reading.join().unwrap().unwrap(), b"all");
    }
}
