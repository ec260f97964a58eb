//! Segments: mapped memory, and, with [`copy`] and [`huge`], the only `unsafe` code of this crate.
//!
//! Owns the mapping, the descriptor and its seals. Must not: know objects or who is using what.
//!
//! Invariant: the extents of a segment never overlap, by construction: [`Segment::create`] gives
//! one extent that is the whole segment, others come only from splitting one and joining two, and
//! an extent can be neither copied nor made up. So an extent is to its bytes what a `Box` is:
//! whoever has it, has them. A segment is unmapped when its last extent goes.

use std::any::Any;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::{Advice, Mmap, MmapMut, MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};

mod copy;
pub(crate) mod folder;
mod huge;
mod listeners;
mod pages;

pub(crate) use listeners::Listeners;
pub(crate) use pages::{HUGE_PAGE_BYTES, page_bytes};

/// Where the memory of segments comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory files of the kernel, sealed before another process sees them.
    Memfd,
    /// Nameless files in this folder, such as one on a huge-page or persistent-memory file system, or on a
    /// disk that has more room than memory. It is made, for us alone, if it is missing. These files cannot
    /// be sealed: another process gets a descriptor that only reads.
    Dir(PathBuf),
}

/// Which segment of a store: never used twice by one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

/// Which pages to ask the kernel for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// What it likes.
    Usual,
    /// Huge ones, if it has any.
    Huge,
}

/// What is remembered about page tables, at this grain.
const GRANULE_BYTES: u64 = HUGE_PAGE_BYTES;
/// Below this a page fault costs no more than a system call that avoids it.
const BULK_BYTES: usize = 4 << 10;

/// Memory of one tenant: a file without a name, mapped shared and writable.
#[derive(Debug)]
pub(crate) struct Segment {
    number: SegmentNumber,
    file: File,
    map: MmapRaw,
    sharing: Sharing,
    fill: Fill,
    /// The granules whose pages are all in our page table.
    mapped: Box<[AtomicBool]>,
    /// Of whoever reads the objects: it goes when the segment goes.
    companion: OnceLock<Companion>,
    /// Who is told when it is closed.
    listeners: Arc<Mutex<Listeners>>,
}

/// Something of somebody else's.
type Companion = Box<dyn Any + Send + Sync>;

/// How other processes are kept from writing.
#[derive(Debug)]
enum Sharing {
    /// A seal forbids any new way to write. It also forbids to give pages back, and forces writes
    /// to take page faults, so it is set when another process is about to see the segment.
    Seal { sealed: Mutex<bool> },
    /// A second descriptor only reads.
    ReadOnly { reader: OnceLock<File> },
}

/// How memory that was never touched is filled fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// By a write to the descriptor, which neither clears pages before it fills them nor takes a fault
    /// for each. A seal forbids it; then the mapping must do.
    Write,
    /// Through the mapping: only there does the kernel hear that huge pages are wanted.
    Touch,
    /// By a write; but first the file system is asked for the room.
    ReserveAndWrite,
}

/// A range of a segment that is owned: nobody else has any of its bytes.
#[derive(Debug)]
pub(crate) struct Extent {
    segment: Arc<Segment>,
    range: Range<u64>,
    /// The file system has promised the room for all of it.
    is_reserved: bool,
}

/// What is still to be touched of an extent. Must go before the extent is given to anybody else.
#[derive(Debug)]
pub(crate) struct Untouched {
    segment: Arc<Segment>,
    range: Range<u64>,
}

impl Untouched {
    /// Has the kernel make pages up to the end of a granule; false if there is nothing more to touch. Their bytes stay
    /// as they are, so others may write meanwhile.
    pub(crate) fn touch_more(&mut self) -> bool {
        if self.range.is_empty() {
            return false;
        }
        let next = (self.range.start / GRANULE_BYTES + 1) * GRANULE_BYTES;
        let end = next.min(self.range.end);
        let now = self.range.start..end;
        if self.segment.touch(now.clone()) {
            let whole = self.segment.granules(&now);
            whole
                .iter()
                .for_each(|it| it.store(true, Ordering::Relaxed));
        }
        self.range.start = end;
        true
    }
}

impl Segment {
    /// Makes a segment of so many bytes, a multiple of the page size. It takes no memory yet.
    pub(crate) fn create(
        number: SegmentNumber,
        len: u64,
        backing: &Backing,
        pages: PageSize,
    ) -> io::Result<Extent> {
        let (file, sharing, fill) = open(len, backing, pages)?;
        let len_usize = usize::try_from(len).map_err(io::Error::other)?;
        let map = MmapOptions::new().len(len_usize).map_raw(&file)?;
        if pages == PageSize::Huge {
            // Where there are none it does nothing.
            let _ = map.advise(Advice::HugePage);
        }
        let granules = len.div_ceil(GRANULE_BYTES);
        let segment = Self {
            number,
            file,
            map,
            sharing,
            fill,
            mapped: (0..granules).map(|_| AtomicBool::new(false)).collect(),
            companion: OnceLock::new(),
            listeners: Arc::default(),
        };
        Ok(Extent {
            segment: Arc::new(segment),
            range: 0..len,
            is_reserved: false,
        })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether pages can be given back one by one. Not once another process has the descriptor.
    fn can_release_pages(&self) -> bool {
        match &self.sharing {
            Sharing::Seal { sealed } => !*sealed.lock(),
            Sharing::ReadOnly { .. } => true,
        }
    }

    /// Has the kernel make pages for the whole range, a huge page at a time if it has any. What it does not do now,
    /// faults do: then this is false.
    fn touch(&self, range: Range<u64>) -> bool {
        let start = range.start / page_bytes() * page_bytes();
        let len = (range.end - start) as usize;
        let map = &self.map;
        map.advise_range(Advice::PopulateWrite, start as usize, len)
            .is_ok()
    }

    /// The granules that lie wholly within a range.
    fn granules(&self, range: &Range<u64>) -> &[AtomicBool] {
        let first = range.start.div_ceil(GRANULE_BYTES) as usize;
        let end = (range.end / GRANULE_BYTES) as usize;
        self.mapped.get(first..end).unwrap_or(&[])
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        Listeners::tell(&self.listeners);
    }
}

impl Extent {
    pub(crate) fn segment_listeners(&self) -> &Arc<Mutex<Listeners>> {
        &self.segment.listeners
    }

    pub(crate) fn segment_number(&self) -> SegmentNumber {
        self.segment.number
    }

    pub(crate) fn segment_len(&self) -> u64 {
        self.segment.len()
    }

    /// Where it starts in its segment, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.range.start
    }

    /// Where it ends in its segment.
    pub(crate) fn end(&self) -> u64 {
        self.range.end
    }

    /// Its length in bytes, above zero.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Keeps the first `at` bytes and gives the rest.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        assert!(
            0 < at && at < self.len(),
            "both parts of an extent have bytes"
        );
        let middle = self.range.start + at;
        let rest = middle..self.range.end;
        self.range.end = middle;
        Self {
            segment: self.segment.clone(),
            range: rest,
            is_reserved: self.is_reserved,
        }
    }

    /// Whether `next` begins where this one ends.
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.segment, &next.segment) && self.range.end == next.range.start
    }

    /// Takes in the extent that follows.
    pub(crate) fn join(&mut self, next: Self) {
        assert!(self.is_followed_by(&next), "only neighbours join");
        self.range.end = next.range.end;
        self.is_reserved &= next.is_reserved;
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, len) = (self.range.start as usize, self.len() as usize);
        // SAFETY: the range lies in the mapping, which lives as long as the segment, which we hold.
        // Mapped bytes are always initialised. Nobody writes to them while we are borrowed: this
        // process writes only through a borrowed `&mut Extent` of the same bytes, of which there is
        // none, and other processes have read-only access.
        unsafe { std::slice::from_raw_parts(self.segment.map.as_ptr().add(start), len) }
    }

    /// The bytes, to be written. Untouched memory reads as zeros.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.range.start as usize, self.len() as usize);
        // SAFETY: as above; and we are borrowed mutably, and no other extent has these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.segment.map.as_mut_ptr().add(start), len) }
    }

    /// Writes bytes at an offset within the extent. The fastest way that there is: `fresh` says
    /// that the extent was never touched.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], fresh: bool) {
        let end = offset.checked_add(bytes.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "bytes were written beyond their object"
        );
        if bytes.len() >= BULK_BYTES {
            let at = self.range.start + offset;
            let written = match (fresh, self.segment.fill) {
                (true, Fill::Write | Fill::ReserveAndWrite) => {
                    self.segment.file.write_all_at(bytes, at).is_ok()
                }
                (true, Fill::Touch) => {
                    self.segment.touch(at..at + bytes.len() as u64);
                    false
                }
                (false, _) => false,
            };
            if written {
                return;
            }
            self.map_pages(at..at + bytes.len() as u64);
        }
        let start = offset as usize;
        copy::copy(bytes, &mut self.bytes_mut()[start..start + bytes.len()]);
    }

    /// Clears what comes after the first `len` bytes, to the end of the page: what is mapped elsewhere
    /// is whole pages.
    pub(crate) fn clear_from(&mut self, len: u64) {
        let end = len.next_multiple_of(page_bytes()).min(self.len());
        self.bytes_mut()[len as usize..end as usize].fill(0);
    }

    /// What is to be touched of it, for another thread. `None` if it was touched before, and is in the page table.
    pub(crate) fn untouched(&self, fresh: bool) -> Option<Untouched> {
        let granules = self.segment.granules(&self.range);
        if !fresh && granules.iter().all(|it| it.load(Ordering::Relaxed)) {
            return None;
        }
        Some(Untouched {
            segment: self.segment.clone(),
            range: self.range.clone(),
        })
    }

    /// Makes sure, once for each granule, that pages which have been touched are in the page table,
    /// at a fraction of what a fault for each of them costs.
    fn map_pages(&self, range: Range<u64>) {
        let granules = self.segment.granules(&range);
        if granules.iter().all(|it| it.load(Ordering::Relaxed)) {
            return;
        }
        let start = range.start / page_bytes() * page_bytes();
        let len = (range.end - start) as usize;
        if self
            .segment
            .map
            .advise_range(Advice::PopulateRead, start as usize, len)
            .is_ok()
        {
            granules
                .iter()
                .for_each(|it| it.store(true, Ordering::Relaxed));
        }
    }

    /// Takes from the file system what is needed to write here, so that a full disk is an error
    /// now and not a bus error later. Memory files have nothing to reserve. Does nothing the second time.
    pub(crate) fn reserve(&mut self) -> io::Result<()> {
        if self.is_reserved {
            return Ok(());
        }
        if self.segment.fill == Fill::ReserveAndWrite {
            let (file, flags) = (&self.segment.file, FallocateFlags::empty());
            let reserved = rustix::fs::fallocate(file, flags, self.start(), self.len());
            if let Err(error) = reserved {
                // Some file systems keep what they found before they ran out.
                let _ = self.release_pages();
                return Err(error.into());
            }
        }
        self.is_reserved = true;
        Ok(())
    }

    /// Whether [`Extent::reserve`] has succeeded for all of it. Only then may it be touched.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Whether [`Extent::release_pages`] has a chance.
    pub(crate) fn can_release_pages(&self) -> bool {
        self.segment.can_release_pages()
    }

    /// Gives the memory back to the system; the bytes are zeros afterwards. Whole pages only.
    pub(crate) fn release_pages(&mut self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.segment.file, flags, self.start(), self.len())?;
        self.is_reserved = false;
        let page_table = self.segment.granules(&self.range);
        page_table
            .iter()
            .for_each(|it| it.store(false, Ordering::Relaxed));
        Ok(())
    }

    /// What is kept with the segment, made now if there is nothing.
    pub(crate) fn companion(&self, make: impl FnOnce() -> Companion) -> &(dyn Any + Send + Sync) {
        &**self.segment.companion.get_or_init(make)
    }

    /// The segment's descriptor, for this process: whoever has it can write.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.segment.file.as_fd()
    }

    /// The segment's descriptor, for others: with it nothing can be written.
    pub(crate) fn shared_fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.segment.sharing {
            Sharing::Seal { sealed } => {
                let mut sealed = sealed.lock();
                if !*sealed {
                    let seals = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
                    rustix::fs::fcntl_add_seals(&self.segment.file, seals)?;
                    *sealed = true;
                }
                Ok(self.segment.file.as_fd())
            }
            Sharing::ReadOnly { reader } => {
                if reader.get().is_none() {
                    // Two threads may get here: one of the two descriptors is closed again.
                    let _ = reader.set(reopen_read_only(&self.segment.file)?);
                }
                Ok(reader.get().expect("it has just been set").as_fd())
            }
        }
    }
}

/// A segment of another process, mapped to be read.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    map: Mmap,
    /// For private mappings of parts of it.
    file: OwnedFd,
}

impl SharedMapping {
    /// Maps the first `len` bytes of a descriptor that a store has handed out.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // A mapping beyond the end of a file would be a bus error when it is read.
        if rustix::fs::fstat(fd)?.st_size < i64::try_from(len).map_err(io::Error::other)? {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the segment is too short",
            ));
        }
        let file = fd.try_clone_to_owned()?;
        // SAFETY: the store never changes the length of a segment, and seals keep others from it.
        // The bytes of an object do not change while the store has it pinned for us; those of
        // others may, and `bytes` is only called for pinned ones (see `share`).
        let map = unsafe { MmapOptions::new().len(len).map(&file)? };
        Ok(Self { map, file })
    }

    /// The same bytes in a mapping of their own, in which pages that are written to are copied first.
    pub(crate) fn private(&self, offset: u64, len: u64) -> io::Result<MmapMut> {
        let inside = self.bytes(offset, len).ok_or(io::ErrorKind::InvalidInput)?;
        let mut options = MmapOptions::new();
        options.offset(offset).len(inside.len()).no_reserve_swap();
        // SAFETY: as of `new`; what is written here is seen by nobody else.
        unsafe { options.map_copy(&self.file) }
    }

    /// Bytes of the segment; `None` if they are not all within it.
    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.map.get(start..end)
    }
}

/// A file for a segment, how it is shared and how it is filled.
fn open(len: u64, backing: &Backing, pages: PageSize) -> io::Result<(File, Sharing, Fill)> {
    let seal = Sharing::Seal {
        sealed: Mutex::new(false),
    };
    let read_only = Sharing::ReadOnly {
        reader: OnceLock::new(),
    };
    match (backing, pages) {
        (Backing::Dir(dir), _) => Ok((folder::file(dir, len)?, read_only, Fill::ReserveAndWrite)),
        (Backing::Memfd, PageSize::Usual) => Ok((memfd(len)?, seal, Fill::Write)),
        (Backing::Memfd, PageSize::Huge) => match huge::policy() {
            huge::Policy::OnAdvice => Ok((memfd(len)?, seal, Fill::Touch)),
            huge::Policy::Always | huge::Policy::Denied => Ok((memfd(len)?, seal, Fill::Write)),
            huge::Policy::NotForMemfds => match huge::file(len) {
                Ok(file) => Ok((file, read_only, Fill::Write)),
                Err(_) => Ok((memfd(len)?, seal, Fill::Write)),
            },
        },
    }
}

/// A memory file whose length is final.
pub(crate) fn memfd(len: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let name = "wasmrun-objects";
    // Kernels before 6.3 do not know that a memory file is not to be executed.
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        result => result?,
    };
    rustix::fs::ftruncate(&fd, len)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd.into())
}

fn reopen_read_only(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
