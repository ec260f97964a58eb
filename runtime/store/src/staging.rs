//! Memory that a client and its node both map: the client writes the bytes of a large object there, part by part, and the
//! node copies them into its store. Nothing goes through a socket but who may use which part.
//!
//! Owns both mappings. Must not: know the protocol, or how the descriptor gets to the client ([`crate::send_beside`]).
//!
//! It is never part of an object: a client that writes when it is not its turn spoils only what it sends itself.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::segment::memfd;

/// The node's side: it reads.
#[derive(Debug)]
pub struct Staging {
    fd: OwnedFd,
    bytes: Mmap,
}

/// The client's side: it writes.
#[derive(Debug)]
pub struct StagingWriter(MmapMut);

impl Staging {
    /// Memory of this length, in bytes.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn new(len: u64) -> io::Result<Self> {
        let file = memfd(len)?;
        // SAFETY: seals keep the length as it is. The other side may change the bytes at any time: they are numbers of any
        // value, and are copied and not looked at.
        let bytes = unsafe { MmapOptions::new().populate().map(&file)? };
        let fd = file.into();
        Ok(Self { fd, bytes })
    }

    /// How long it is, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A part of it; `None` if that is not within it.
    pub fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.bytes.get(start..end)
    }
}

impl AsFd for Staging {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl StagingWriter {
    /// Maps what a node has sent, of this length.
    ///
    /// # Errors
    /// When it is not that long, or there is no address space.
    pub fn new(fd: OwnedFd, len: u64) -> io::Result<Self> {
        // A mapping beyond the end of a file would be a bus error when it is written.
        if rustix::fs::fstat(&fd)?.st_size != i64::try_from(len).map_err(io::Error::other)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the node has sealed its length, and only reads.
        let bytes = unsafe { MmapOptions::new().populate().map_mut(&fd)? };
        Ok(Self(bytes))
    }
}

impl Deref for StagingWriter {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for StagingWriter {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let staging = Staging::new(8192).unwrap();
        let fd = staging.as_fd().try_clone_to_owned().unwrap();
        let mut writer = StagingWriter::new(fd, 8192).unwrap();
        writer[4096..4099].copy_from_slice(b"abc");
        assert_eq!(staging.bytes(4095, 4), Some(&b"\0abc"[..]));
        assert_eq!(staging.bytes(8190, 3), None);
        assert_eq!(staging.bytes(u64::MAX, 2), None);
    }

    #[test]
    fn memory_of_another_length_is_refused() {
        let staging = Staging::new(4096).unwrap();
        for said in [4095, 4097, u64::MAX] {
            let fd = staging.as_fd().try_clone_to_owned().unwrap();
            assert!(StagingWriter::new(fd, said).is_err(), "{said}");
        }
        // Nor can the client shorten it under the node.
        assert!(rustix::fs::ftruncate(&staging, 0).is_err());
    }
}
