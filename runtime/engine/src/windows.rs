//! Objects in a guest's memory without a copy: pages of the store, mapped over a window of it.
//!
//! The mapping is private and writable: what the guest writes there goes to pages of its own, and the
//! object never changes. (A read-only mapping would let a guest crash the node, by making the host
//! lower a result into it.)
//!
//! Invariant, which the sandbox of the next task depends on: nothing mapped here outlives the sandbox.
//! [`Windows::clear`] puts anonymous memory, all zeros, back before the memory is given to anybody
//! else; the pool's own resetting skips pages of files. When the kernel refuses that, the sandbox's
//! memory is never used again. And a window never touches what a module's memory starts with, because
//! a pool may restore that without looking.
//!
//! Where pages cannot be mapped, or the kernel refuses, the bytes are copied.
//!
//! A window counts as the task's memory, whether it was written to or not: the guest grows its memory
//! before it maps anything there, and nobody hears of its first write to a page. To not count it would
//! let a guest with a limit of 256 MiB have another 256 MiB for each object that it maps and overwrites.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect,
};
use wasmtime::ValRaw;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext};
use wasmtime::component::{ComponentType, Lift};

use crate::services::{Pages, Readable};
use crate::spare::Spare;

/// What a window's start and length must be a multiple of: a page of wasm.
const WINDOW_ALIGN: usize = 64 << 10;
/// How many windows a sandbox may have at a time.
const MOST_WINDOWS: usize = 256;
/// How many windows all sandboxes together may have: the kernel limits the mappings of a process, and
/// each window takes up to two.
const MOST_WINDOWS_IN_ALL: usize = 4_096;
/// How much is copied or wiped before another guest may have a turn: a few milliseconds.
pub(crate) const TURN_BYTES: usize = 32 << 20;

/// How many windows all sandboxes have.
static WINDOWS: AtomicUsize = AtomicUsize::new(0);

/// A part of a guest's memory, where it lies in ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its start in our address space. Memories of the pool never move.
    at: usize,
    /// Its start in the guest's memory.
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

// SAFETY: every list is a pointer and a length.
unsafe impl ComponentType for Window {
    type Lower = [ValRaw; 2];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::POINTER_PAIR;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <[u8] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: pointer and length are checked against the guest's memory.
unsafe impl Lift for Window {
    fn linear_lift_from_flat(
        cx: &mut LiftContext<'_>,
        _: InterfaceType,
        src: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        let (offset, len) = (src[0].get_u32() as usize, src[1].get_u32() as usize);
        let memory = cx.memory();
        let window = offset
            .checked_add(len)
            .and_then(|end| memory.get(offset..end));
        let Some(window) = window else {
            wasmtime::bail!("list pointer/length out of bounds of memory")
        };
        Ok(Self {
            at: window.as_ptr() as usize,
            offset,
            len,
        })
    }

    fn linear_lift_from_memory(
        _: &mut LiftContext<'_>,
        _: InterfaceType,
        _: &[u8],
    ) -> wasmtime::Result<Self> {
        wasmtime::bail!("a window is passed flat")
    }
}

impl Window {
    /// Whether it is where and as long as a window for so many bytes must be.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), String> {
        let needed = bytes.next_multiple_of(WINDOW_ALIGN);
        if !self.offset.is_multiple_of(WINDOW_ALIGN) || self.len != needed {
            return Err(format!(
                "a window for {bytes} bytes must start at a multiple of {WINDOW_ALIGN} and be {needed} \
                 bytes long; this one starts at {} and is {} bytes long",
                self.offset, self.len
            ));
        }
        Ok(())
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.at < other.at + other.len && other.at < self.at + self.len
    }

    /// Its parts, each of as many bytes as one turn may take.
    pub(crate) fn turns(self) -> impl Iterator<Item = Self> {
        (0..self.len).step_by(TURN_BYTES).map(move |at| Self {
            at: self.at + at,
            offset: self.offset + at,
            len: TURN_BYTES.min(self.len - at),
        })
    }

    /// Copies bytes to its start.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "checked before");
        // SAFETY: the window lies in the memory of the instance that makes this call: it was in bounds
        // when the call began, memories neither move nor shrink, and no other thread runs the
        // instance. `bytes` are the host's, or pages of the store.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at as *mut u8, bytes.len());
        }
    }
}

/// The windows of one sandbox that have pages of objects mapped over them.
#[derive(Debug, Default)]
pub(crate) struct Windows(Vec<Mapped>);

/// A window with pages in it.
#[derive(Debug)]
struct Mapped {
    window: Window,
    /// How much of it is mapped: whole pages.
    len: usize,
    /// Where the mapping came from and can go back to.
    place: Option<Spare>,
    /// Keeps the pages what they are.
    value: Pinned,
}

/// What keeps an object's pages in place while they are mapped.
struct Pinned(Arc<dyn Readable>);

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.encoded())
    }
}

/// Why a window is not mapped, or not free.
#[derive(Debug)]
pub(crate) enum WindowFault {
    /// The guest hears of it.
    Refused(String),
    /// There may be no memory where the window is: nobody may touch it, so the guest cannot go on.
    Lost(io::Error),
}

impl Windows {
    /// Whether one more may be mapped.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < MOST_WINDOWS && WINDOWS.load(Ordering::Relaxed) < MOST_WINDOWS_IN_ALL
    }

    /// Whether nothing is mapped where this window is.
    pub(crate) fn check(&self, window: &Window) -> Result<(), String> {
        match self.0.iter().any(|mapped| mapped.window.overlaps(window)) {
            true => {
                Err("the window overlaps one that an object is mapped to; unmap that first".into())
            }
            false => Ok(()),
        }
    }

    /// Maps the first `length` bytes, above zero, of an object over a window that is free. False if the
    /// kernel refuses: then the window is zeros.
    pub(crate) fn map(
        &mut self,
        window: Window,
        value: &Arc<dyn Readable>,
        pages: &Pages<'_>,
        length: usize,
    ) -> Result<bool, WindowFault> {
        assert!(length as u64 <= pages.len, "a value lies in its own pages");
        let len = length.next_multiple_of(rustix::param::page_size());
        let place = pages.spares.take(pages.offset, len, window.at);
        WINDOWS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the window is whole pages in the memory of the instance that makes this call (see
        // `fill`), which nothing of the host points into.
        let mapped = unsafe {
            match &place {
                Some(spare) => spare.lend(window.at),
                None => map_pages(&window, pages, len),
            }
        };
        // Whatever came of it, the window must be cleared.
        self.0.push(Mapped {
            window,
            len,
            place,
            value: Pinned(value.clone()),
        });
        if mapped.is_ok() {
            return Ok(true);
        }
        let failed = self.0.last_mut().expect("it has just been pushed");
        failed.place = None;
        // Nothing that could be kept is there.
        failed.len = 0;
        self.unmap(window)?;
        Ok(false)
    }

    /// Takes an object out of a window; `false` if there is none, and nothing of another window.
    pub(crate) fn unmap(&mut self, window: Window) -> Result<bool, WindowFault> {
        let Some(at) = self.0.iter().position(|mapped| mapped.window == window) else {
            if self.0.iter().any(|mapped| mapped.window.overlaps(&window)) {
                let why = "the window is another one than an object was mapped to; pass that";
                return Err(WindowFault::Refused(why.to_owned()));
            }
            return Ok(false);
        };
        // If that fails it stays in the list, and is tried again when the sandbox ends.
        self.0[at].take_out().map_err(WindowFault::Lost)?;
        self.0.swap_remove(at);
        Ok(true)
    }

    /// Takes everything out of the guest's memory.
    ///
    /// # Errors
    /// When the kernel refuses. Then objects are still there, and stay pinned: the memory must never be
    /// given to anybody else.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        while let Some(mapped) = self.0.last_mut() {
            mapped.take_out()?;
            self.0.pop();
        }
        Ok(())
    }
}

impl Mapped {
    /// Puts anonymous memory, all zeros, in place of the window.
    fn take_out(&mut self) -> io::Result<()> {
        if let Some(pages) = self.value.0.pages()
            && self.len > 0
        {
            let place = self.place.take();
            let place =
                place.or_else(|| pages.spares.place(pages.offset, self.len, self.window.at));
            // SAFETY: as in `Windows::map`. The window is filled below, by `restore`.
            let kept = place.and_then(|place| unsafe { place.take_back(self.window.at) });
            // Should this be called again, there is nothing left to be kept.
            self.len = 0;
            if let Some(spare) = kept {
                pages.spares.keep(spare);
            }
        }
        // SAFETY: as in `Windows::map`.
        unsafe { restore(&self.window) }?;
        WINDOWS.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Window {
    /// Makes it zeros: by new memory where it is not what the module's memory starts with.
    pub(crate) fn wipe(&self, initial_memory: usize) {
        let page = rustix::param::page_size();
        let is_whole_pages = self.at.is_multiple_of(page) && self.len.is_multiple_of(page);
        if self.offset >= initial_memory && is_whole_pages {
            // SAFETY: as in `fill`. It is anonymous memory: zeros come back, if it comes back at all.
            let given_back = unsafe { madvise(self.at as *mut _, self.len, Advice::LinuxDontNeed) };
            if given_back.is_ok() {
                return;
            }
        }
        // SAFETY: as in `fill`.
        unsafe { std::ptr::write_bytes(self.at as *mut u8, 0, self.len) }
    }
}

/// Maps pages over the start of a window, private and writable.
///
/// # Safety
/// Nothing refers to what is there.
unsafe fn map_pages(window: &Window, pages: &Pages<'_>, len: usize) -> io::Result<()> {
    // The entries of the page table are made when the guest comes to them, 16 at a time: no slower than
    // all at once, and who reads a part of an object pays for a part.
    // Not writable at once: where memory is not overcommitted, writable pages are counted, and kernels take
    // away what was there before they do.
    // SAFETY: the caller's promise. The mapping is private.
    unsafe {
        mmap(
            window.at as *mut _,
            len,
            ProtFlags::READ,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            pages.file,
            pages.offset,
        )?;
        mprotect(window.at as *mut _, len, WRITABLE)?;
    }
    Ok(())
}

const WRITABLE: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::WRITE);

/// Puts anonymous memory, all zeros, in place of a window, whatever is there. Where the kernel refuses, it
/// may be memory that nobody can read or write, but its addresses are still taken.
///
/// # Safety
/// Nothing refers to what is there.
unsafe fn restore(window: &Window) -> io::Result<()> {
    // In two steps, as in `map_pages`.
    // SAFETY: the caller's promise.
    unsafe {
        mmap_anonymous(
            window.at as *mut _,
            window.len,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )?;
        mprotect(window.at as *mut _, window.len, WRITABLE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use wasmrun_model::value::{Encoded, EncodedRef};

    use super::*;
    use crate::spare::Spares;

    #[test]
    fn what_cannot_be_taken_out_stays_known() {
        // The kernel maps nothing at an odd address.
        let window = Window {
            at: 1,
            offset: 0,
            len: WINDOW_ALIGN,
        };
        let value: Arc<dyn Readable> = Arc::new(Encoded::Postcard(Vec::new()));
        let mapped = Mapped {
            window,
            len: 0,
            place: None,
            value: Pinned(value.clone()),
        };
        let mut windows = Windows(vec![mapped]);
        assert!(matches!(windows.unmap(window), Err(WindowFault::Lost(_))));
        assert!(windows.clear().is_err());
        assert_eq!(Arc::strong_count(&value), 2, "its pages stay what they are");
        assert!(
            windows.check(&window).is_err(),
            "nothing else is mapped there"
        );
    }

    /// A value that is said to lie in the pages of a file that cannot be mapped.
    struct Unmappable(Encoded, std::fs::File, Spares);

    impl Readable for Unmappable {
        fn encoded(&self) -> EncodedRef<'_> {
            (&self.0).into()
        }

        fn pages(&self) -> Option<Pages<'_>> {
            Some(Pages {
                file: self.1.as_fd(),
                offset: 0,
                len: WINDOW_ALIGN as u64,
                spares: &self.2,
            })
        }
    }

    #[test]
    fn what_cannot_be_mapped_leaves_zeros_to_be_filled() {
        let mut memory = memmap2::MmapMut::map_anon(2 * WINDOW_ALIGN).unwrap();
        memory.fill(7);
        let at = memory.as_ptr() as usize;
        let window = Window {
            at: at.next_multiple_of(rustix::param::page_size()),
            offset: 0,
            len: WINDOW_ALIGN,
        };
        let folder = std::fs::File::open("/").unwrap();
        let value = Encoded::Postcard(vec![9; 1000]);
        let value: Arc<dyn Readable> = Arc::new(Unmappable(value, folder, Spares::default()));
        let mut windows = Windows::default();
        let pages = value.pages().unwrap();
        assert!(!windows.map(window, &value, &pages, 1000).unwrap());
        assert!(windows.0.is_empty(), "the window is free");
        assert_eq!(Arc::strong_count(&value), 1);
        let start = window.at - at;
        let (of_it, after) = memory[start..].split_at(WINDOW_ALIGN);
        assert!(of_it.iter().all(|byte| *byte == 0) && after.iter().all(|byte| *byte == 7));
        window.fill(value.encoded().bytes());
        assert!(memory[start..start + 1000].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_wiped_window_is_zeros_and_its_neighbours_are_not() {
        let page = rustix::param::page_size();
        for initial_memory in [0, 2 * page, 100 * page] {
            // The window begins amid a page: as a guest may ask for.
            for offset in [page, page + 8] {
                let mut memory = memmap2::MmapMut::map_anon(8 * page).unwrap();
                memory.fill(7);
                let window = Window {
                    at: memory.as_ptr() as usize + offset,
                    offset,
                    len: 3 * page,
                };
                window.wipe(initial_memory);
                let wiped = offset..offset + 3 * page;
                let is_right =
                    |(at, byte): (usize, &u8)| *byte == if wiped.contains(&at) { 0 } else { 7 };
                assert!(
                    memory.iter().enumerate().all(is_right),
                    "{initial_memory} {offset}"
                );
            }
        }
    }
}
