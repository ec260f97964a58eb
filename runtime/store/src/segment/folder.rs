//! The folder whose files segments are, where memory is not the kernel's own.
//!
//! Owns making the files, which have no names: nothing is left of them when the process ends, however it
//! ends. Where a file system cannot make such, a file has a name for a moment, and what a process that
//! was killed in that moment has left is removed when the next store opens the folder. Must not: map them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use memmap2::MmapOptions;
use rustix::fs::{Mode, OFlags};

use super::page_bytes;

/// What names begin with, where files have names for a moment.
const PREFIX: &str = "wasmrun-objects-";

/// Makes the folder if it is missing, removes what others left there, and sees whether files there can be
/// mapped.
pub(crate) fn open(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.file_type()?.is_file() {
            // One that a store is just making goes by itself: it needs no name.
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    let file = file(dir, page_bytes())?;
    MmapOptions::new().map_raw(&file).map(drop)
}

/// A file without a name, which only we can read.
pub(crate) fn file(dir: &Path, len: u64) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file.into(),
        // What file systems and kernels say that do not know such files.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
            let named = tempfile::Builder::new().prefix(PREFIX).tempfile_in(dir)?;
            // Its name goes here.
            named.into_file()
        }
        Err(error) => return Err(error.into()),
    };
    file.set_len(len)?;
    Ok(file)
}
