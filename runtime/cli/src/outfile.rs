//! Files that people name for what a command makes.
//!
//! Owns what is checked before the work starts, and how a file is replaced whole. Must not: decide what is written.
//!
//! What is behind a name is written to: a link stays a link, a pipe or device gets the bytes, a file keeps its mode. A
//! regular file is replaced in one step, so that a full disk or a crash leaves no half of it.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::fail::Failure;

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
    error.to_string()
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
    let whole = match fs::metadata(path) {
        // What is behind a link is replaced, not the link.
        Ok(about) if about.is_file() && about.nlink() == 1 => {
            fs::canonicalize(path).and_then(|target| replace_whole(&target, Some(&about), bytes))
        }
        // Links that lead nowhere are followed when they are written through.
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            replace_whole(path, None, bytes)
        }
        _ => Ok(false),
    };
    match whole {
        Ok(true) => Ok(()),
        // The disk, and not the folder: in place there would be no more room, and half of a file.
        Err(error) if is_full(&error) => Err(error),
        Ok(false) | Err(_) => File::create(path)?.write_all(bytes),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

/// Puts a new file in the place of one. Whether it could have the owner of the old one.
fn replace_whole(path: &Path, old: Option<&Metadata>, bytes: &[u8]) -> io::Result<bool> {
    let mode = old.map_or(0o666, |old| old.permissions().mode());
    let mut beside = tempfile::Builder::new()
        .prefix(".wasmrun-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(folder_of(path))?;
    if let Some(old) = old {
        let new = beside.as_file().metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            return Ok(false);
        }
        // Without what the umask takes away.
        beside.as_file().set_permissions(old.permissions())?;
    }
    beside.write_all(bytes)?;
    beside.persist(path)?;
    Ok(true)
}
