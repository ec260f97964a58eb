//! Mappings of objects that no guest has now, kept with all their page-table entries.
//!
//! To map 100 MiB the kernel makes 25,600 page-table entries, and takes them away again afterwards:
//! more time than it takes to read the bytes. So a mapping that a guest has left is moved to a place of
//! its own, and from there into the memory of the next guest that maps the same pages. Moving is some
//! microseconds, because the kernel moves whole tables of entries, 2 MiB each.
//!
//! Owns those mappings and their places. Must not: know guests or objects beyond a range of a file.
//!
//! Invariants: a mapping that is kept shows the file and nothing else: one that somebody wrote to is
//! not kept. There is no moment at which a part of a guest's memory or of a place is not mapped, or
//! another thread's mapping might land there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed, munmap};
use rustix::process::{Resource, getrlimit};

/// What the kernel moves at once, and what places are aligned to: a table of entries.
const TABLE_BYTES: usize = 2 << 20;
/// Below this a new mapping is about as quick.
const LEAST_BYTES: usize = 1 << 20;
/// How many mappings are kept in all: the kernel limits the mappings of a process.
const MOST_SPARES: usize = 256;
/// How many of one file, which has one tenant.
const MOST_OF_A_FILE: usize = 64;
/// How much all of them may show: a GiB takes 2 MiB of page tables.
const MOST_BYTES: usize = 8 << 30;

/// The kernel has refused to move a mapping.
static REFUSED: AtomicBool = AtomicBool::new(false);
static SPARES: AtomicUsize = AtomicUsize::new(0);
static SPARE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The mappings of one file that are kept. To be dropped with the file: as long as they are there, the
/// kernel does not give its memory back.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<Spare>>);

/// One that is kept, or the place that one comes back to.
#[derive(Debug)]
pub(super) struct Spare {
    at: usize,
    /// How many bytes are mapped: whole pages.
    len: usize,
    /// Where in the file it starts.
    offset: u64,
}

impl Spares {
    /// A mapping of this range of the file, if there is one whose tables fit to those at `window`.
    pub(super) fn take(&self, offset: u64, len: usize, window: usize) -> Option<Spare> {
        if !can_move() {
            return None;
        }
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = spares.iter().position(|it| {
            let is_aligned = it.at % TABLE_BYTES == window % TABLE_BYTES;
            it.offset == offset && it.len == len && is_aligned
        })?;
        Some(spares.remove(at))
    }

    /// A place for what is mapped at `window`. Where there is none the oldest mappings of this file go
    /// for it: nobody may want those any more. `None` when it is not worth it or cannot be had.
    pub(super) fn place(&self, offset: u64, len: usize, window: usize) -> Option<Spare> {
        // For what can never be kept nothing else has to go.
        if !(LEAST_BYTES..=MOST_BYTES).contains(&len) || !can_move() || pagemap().is_none() {
            return None;
        }
        loop {
            if let Some(spare) = Spare::place(offset, len, window) {
                return Some(spare);
            }
            drop(self.take_oldest(0)?);
        }
    }

    /// Keeps a mapping for the next guest, the oldest ones beyond the limit not.
    pub(super) fn keep(&self, spare: Spare) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.push(spare);
        drop(spares);
        while let Some(oldest) = self.take_oldest(MOST_OF_A_FILE) {
            drop(oldest);
        }
    }

    /// Its oldest mapping if there are more than so many. To be dropped without the lock.
    fn take_oldest(&self, but: usize) -> Option<Spare> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (spares.len() > but).then(|| spares.remove(0))
    }
}

impl Spare {
    /// A place for what is mapped at `window`: `None` when too much is kept already, or the system
    /// gives no addresses.
    fn place(offset: u64, len: usize, window: usize) -> Option<Self> {
        let number = SPARES.fetch_add(1, Ordering::Relaxed);
        let bytes = SPARE_BYTES.fetch_add(len, Ordering::Relaxed);
        // From here on `drop` counts it out.
        let mut spare = Self { at: 0, len, offset };
        if number >= MOST_SPARES || bytes.saturating_add(len) > MOST_BYTES {
            return None;
        }
        spare.at = reserve(len, window)?;
        Some(spare)
    }

    /// Moves the mapping over a guest's memory.
    ///
    /// # Safety
    /// `window` is so many whole pages of memory that the caller may replace, and nothing refers to.
    pub(super) unsafe fn lend(&self, window: usize) -> io::Result<()> {
        // SAFETY: the place is ours; the window is the caller's promise.
        unsafe { transfer(self.at, window, self.len) }
    }

    /// Moves what is mapped at `window` here if it shows nothing but the file. Otherwise the place is
    /// given up. Either way the window has to be filled with something else.
    ///
    /// # Safety
    /// As for [`Spare::lend`]; and a mapping of this range of the file lies there.
    pub(super) unsafe fn take_back(self, window: usize) -> Option<Self> {
        if !shows_a_file_only(window, self.len) {
            return None;
        }
        // SAFETY: as above.
        if unsafe { transfer(window, self.at, self.len) }.is_ok() {
            return Some(self);
        }
        // A kernel before 5.13: no use in trying again.
        REFUSED.store(true, Ordering::Relaxed);
        // It may have taken the place away, and somebody else may have it by now.
        self.forget();
        None
    }

    /// Counts it out, but leaves its place alone.
    fn forget(mut self) {
        self.at = 0;
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.at != 0 {
            // SAFETY: the place is ours: it was reserved, and only whoever owns this knows of it.
            let _ = unsafe { munmap(self.at as *mut _, self.len) };
        }
        SPARES.fetch_sub(1, Ordering::Relaxed);
        SPARE_BYTES.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Moves page-table entries; what they showed is not mapped at `from` afterwards, but its addresses are
/// still taken.
///
/// # Safety
/// Both ranges are the caller's: what lies at `to` is lost.
unsafe fn transfer(from: usize, to: usize, len: usize) -> io::Result<()> {
    let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
    // SAFETY: the caller's promise.
    let moved = unsafe { mremap_fixed(from as *mut _, len, len, flags, to as *mut _) };
    Ok(moved.map(drop)?)
}

/// Addresses for so many bytes whose tables fit to those at `window`.
fn reserve(len: usize, window: usize) -> Option<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let whole = len.checked_add(TABLE_BYTES)?;
    // SAFETY: a new mapping, where the kernel likes.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags) };
    let start = start.ok()? as usize;
    let before = (window % TABLE_BYTES + TABLE_BYTES - start % TABLE_BYTES) % TABLE_BYTES;
    let at = start + before;
    // SAFETY: what is cut off is of the mapping that was just made. If that fails, it stays reserved.
    unsafe {
        if before > 0 {
            let _ = munmap(start as *mut _, before);
        }
        if before < TABLE_BYTES {
            let _ = munmap((at + len) as *mut _, TABLE_BYTES - before);
        }
    }
    Some(at)
}

/// Whether moving cannot fail half-way. The kernel clears the target before it counts the moved pages
/// against two limits, and against all memory where that is not overcommitted; it looks at the number of
/// mappings before that.
fn can_move() -> bool {
    static IS_UNLIMITED: OnceLock<bool> = OnceLock::new();
    static OVERCOMMIT: OnceLock<Option<File>> = OnceLock::new();
    let is_unlimited = || {
        let is_unlimited = |resource| getrlimit(resource).current.is_none();
        is_unlimited(Resource::As) && is_unlimited(Resource::Data)
    };
    let open = || File::open("/proc/sys/vm/overcommit_memory").ok();
    !REFUSED.load(Ordering::Relaxed)
        && *IS_UNLIMITED.get_or_init(is_unlimited)
        // Somebody may set it at any time.
        && overcommits(OVERCOMMIT.get_or_init(open).as_ref())
}

/// Whether the kernel gives out memory that it may not have, as its setting says. When in doubt, it does
/// not.
fn overcommits(setting: Option<&File>) -> bool {
    let mut mode = [0];
    let read = setting.map(|it| it.read_exact_at(&mut mode, 0));
    matches!(read, Some(Ok(()))) && matches!(mode, [b'0' | b'1'])
}

/// What the kernel tells about our pages, 8 bytes each.
fn pagemap() -> Option<&'static File> {
    static PAGEMAP: OnceLock<Option<File>> = OnceLock::new();
    let open = || File::open("/proc/self/pagemap").ok();
    PAGEMAP.get_or_init(open).as_ref()
}

/// Whether no page of a private mapping of a file was written to. When in doubt, one was.
fn shows_a_file_only(at: usize, len: usize) -> bool {
    let Some(pagemap) = pagemap() else {
        return false;
    };
    // A huge page is one step of the scan, and 512 entries of what is read.
    match scan(pagemap, at, len) {
        Some(is_file_only) => is_file_only,
        None => read(pagemap, at, len),
    }
}

/// Asks the kernel for the first page that is not the file's. `None` if it knows no such question: before 6.7.
fn scan(pagemap: &File, at: usize, len: usize) -> Option<bool> {
    const IS_FILE: u64 = 1 << 2;
    const IS_PRESENT: u64 = 1 << 3;
    const IS_SWAPPED: u64 = 1 << 4;
    const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
    /// `struct pm_scan_arg` of the kernel.
    #[repr(C)]
    #[derive(Default)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        found: u64,
        found_len: u64,
        max_pages: u64,
        inverted: u64,
        all_of: u64,
        any_of: u64,
        told: u64,
    }
    // `struct page_region`: start, end, what it is.
    let mut found = [0_u64; 3];
    let mut question = Scan {
        size: size_of::<Scan>() as u64,
        start: at as u64,
        end: (at + len) as u64,
        found: found.as_mut_ptr() as u64,
        found_len: 1,
        max_pages: 1,
        inverted: IS_FILE,
        all_of: IS_FILE,
        any_of: IS_PRESENT | IS_SWAPPED,
        told: IS_FILE | IS_PRESENT | IS_SWAPPED,
        ..Scan::default()
    };
    // SAFETY: the kernel writes to the question, and to `found` as many regions as it is told fit there: one. Both
    // outlive the call.
    let asked = unsafe { ioctl(pagemap, Updater::<SCAN, Scan>::new(&mut question)) };
    asked.is_ok().then_some(found[1] == 0)
}

/// Reads what the kernel knows of each page.
fn read(pagemap: &File, at: usize, len: usize) -> bool {
    const ENTRY_BYTES: usize = 8;
    /// The page is in memory, or on a swap device.
    const EXISTS: u64 = 0b11 << 62;
    /// It is a page of a file.
    const OF_FILE: u64 = 1 << 61;
    let page = rustix::param::page_size();
    let mut entries = vec![0; (len / page * ENTRY_BYTES).min(32 << 10)];
    let (mut next, end) = (at / page * ENTRY_BYTES, (at + len) / page * ENTRY_BYTES);
    while next < end {
        let count = entries.len().min(end - next);
        if pagemap
            .read_exact_at(&mut entries[..count], next as u64)
            .is_err()
        {
            return false;
        }
        let is_private = |entry: &[u8]| {
            let entry = u64::from_ne_bytes(entry.try_into().expect("8 bytes"));
            entry & EXISTS != 0 && entry & OF_FILE == 0
        };
        if entries[..count].chunks_exact(ENTRY_BYTES).any(is_private) {
            return false;
        }
        next += count;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::mm::mmap;

    use super::*;

    const LEN: usize = 3 << 20;

    /// A file in memory, each page full of a byte of its own.
    fn file() -> (OwnedFd, Vec<u8>) {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096 % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file.into(), bytes)
    }

    /// Memory as a guest has it, `at` bytes after the start of a table.
    fn memory(at: usize) -> usize {
        reserve(LEN, at).unwrap()
    }

    fn map(file: &OwnedFd, window: usize) {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: it was reserved by this test.
        unsafe { mmap(window as *mut _, LEN, access, flags, file, 0) }.unwrap();
    }

    fn bytes(window: usize) -> &'static mut [u8] {
        // SAFETY: it was mapped by this test, and stays.
        unsafe { std::slice::from_raw_parts_mut(window as *mut u8, LEN) }
    }

    #[test]
    fn a_mapping_goes_from_one_memory_to_the_next() {
        let (file, expected) = file();
        for misaligned in [0, 64 << 10] {
            let windows = [memory(misaligned), memory(misaligned)];
            let spares = Spares::default();
            map(&file, windows[0]);
            assert!(bytes(windows[0]) == expected);
            let place = spares.place(0, LEN, windows[0]).expect("there is room");
            // SAFETY: the windows are this test's.
            spares.keep(unsafe { place.take_back(windows[0]) }.expect("nobody wrote there"));
            assert!(
                spares.take(4096, LEN, windows[1]).is_none(),
                "another range"
            );
            assert!(
                spares.take(0, LEN, windows[1] + 4096).is_none(),
                "other tables"
            );
            let spare = spares.take(0, LEN, windows[1]).expect("it was kept");
            assert!(spares.take(0, LEN, windows[1]).is_none(), "it is lent once");
            // SAFETY: as above.
            unsafe { spare.lend(windows[1]) }.unwrap();
            assert!(bytes(windows[1]) == expected);
            // SAFETY: as above.
            assert!(unsafe { spare.take_back(windows[1]) }.is_some());
        }
    }

    #[test]
    fn what_was_written_to_is_not_kept() {
        let (file, expected) = file();
        for at in [0, LEN / 2, LEN - 1] {
            let window = memory(0);
            map(&file, window);
            bytes(window)[at] ^= 1;
            let place = Spare::place(0, LEN, window).expect("there is room");
            // SAFETY: the window is this test's.
            assert!(unsafe { place.take_back(window) }.is_none(), "{at}");
            map(&file, window);
            assert!(bytes(window) == expected, "the file is what it was");
        }
    }

    #[test]
    fn both_ways_to_look_at_pages_see_one_that_was_written_to() {
        let (file, window) = (file().0, memory(0));
        map(&file, window);
        let pagemap = pagemap().expect("the kernel has one");
        // Where the kernel cannot scan there is one way.
        let look = || [scan(pagemap, window, LEN), Some(read(pagemap, window, LEN))];
        let all_say = |expected| look().iter().flatten().all(|said| *said == expected);
        assert!(all_say(true), "nobody has looked there: {:?}", look());
        assert!(bytes(window).iter().any(|byte| *byte != 0));
        assert!(all_say(true), "it was read: {:?}", look());
        bytes(window)[LEN / 2] ^= 1;
        assert!(all_say(false), "it was written to: {:?}", look());
    }

    #[test]
    fn nothing_is_moved_where_memory_is_not_overcommitted() {
        for (setting, expected) in [("0\n", true), ("1\n", true), ("2\n", false), ("", false)] {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, setting.as_bytes()).unwrap();
            assert_eq!(overcommits(Some(&file)), expected, "{setting:?}");
        }
        assert!(!overcommits(None));
    }

    #[test]
    fn for_what_is_too_large_nothing_goes() {
        let spares = Spares::default();
        let window = memory(0);
        spares.keep(spares.place(0, LEN, window).expect("there is room"));
        for len in [MOST_BYTES + 4096, usize::MAX / 4096 * 4096] {
            assert!(spares.place(0, len, window).is_none());
        }
        assert!(reserve(usize::MAX - 4095, window).is_none());
        assert!(spares.take(0, LEN, window).is_some(), "it is still kept");
    }

    #[test]
    fn little_is_not_kept_and_the_oldest_go() {
        let spares = Spares::default();
        let window = memory(0);
        assert!(spares.place(0, LEAST_BYTES - 4096, window).is_none());
        for n in 0..MOST_OF_A_FILE as u64 + 2 {
            spares.keep(spares.place(n, LEN, window).expect("there is room"));
        }
        let is_kept = |n| spares.take(n, LEN, window).is_some();
        assert!(!is_kept(0) && !is_kept(1));
        assert!(is_kept(2) && is_kept(MOST_OF_A_FILE as u64 + 1));
    }
}
