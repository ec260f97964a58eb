//! What a store is opened with, and why opening fails.
//!
//! Owns the settings and their checks. Must not: touch memory or disk.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use wasmrun_model::units::bytes;

pub use crate::segment::Backing;

use crate::segment::page_bytes;

/// Settings of a [`crate::Store`].
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The most memory that objects take, in bytes, with rounding: whole pages for large objects,
    /// multiples of 64 for small ones. Rounded down to whole pages; at least one page.
    pub capacity_bytes: u64,
    /// Where the memory comes from.
    pub backing: Backing,
    /// Where objects go when memory is full. `None`: they stay, and creates wait.
    pub spill: Option<SpillConfig>,
    /// The address space that a segment takes, in bytes, unless one object needs more. A tenant has
    /// at least one segment for small objects and one for large ones. Costs no memory until it is
    /// used.
    pub segment_bytes: u64,
    /// How long whoever reads an object should wait for room for it. The store has no clock: it only says so
    /// ([`crate::Object::patience`]).
    pub patience: Duration,
}

/// Where objects are spilled to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillConfig {
    /// A folder, made if it is missing. Several stores may share one. Each works in a subfolder of
    /// its own, which goes with the store, or when a later store finds that its owner died.
    pub dir: PathBuf,
    /// The most that is spilled, in bytes.
    pub capacity_bytes: u64,
}

impl StoreConfig {
    /// Sealed memory files, no spilling, segments of 1 GiB, half a minute of patience.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            backing: Backing::Memfd,
            spill: None,
            segment_bytes: 1 << 30,
            patience: Duration::from_secs(30),
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.capacity_bytes < page_bytes() {
            return Err(OpenError::TooSmall {
                capacity_bytes: self.capacity_bytes,
            });
        }
        Ok(())
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The capacity is less than one page.
    #[error(
        "an object store of {} is too small: it needs at least {}; raise --object-memory",
        bytes(*capacity_bytes), bytes(page_bytes())
    )]
    TooSmall {
        /// What was asked for.
        capacity_bytes: u64,
    },
    /// The folder for the memory of segments cannot be used.
    #[error(
        "the object folder {} cannot be used: name one with --object-dir that is yours and on a file system \
         whose files can be mapped, or leave that out to have objects in memory",
        dir.display()
    )]
    ObjectDir {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The spill folder cannot be used.
    #[error(
        "the spill folder {} cannot be used: make it writable, or name another with --spill-dir",
        dir.display()
    )]
    SpillDir {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The thread that reads and writes spilled objects did not start.
    #[error("no thread could be started for spilling: raise the limit on threads")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}
