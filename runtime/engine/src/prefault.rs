//! Prefaulting: the pages that every call of a module dirties are copied before it runs.
//!
//! Owns which pages these are. The image of a module's memory is mapped copy-on-write: each page that a sandbox writes to costs a
//! fault, two if it was read before, and the second has the kernel shoot down the page's TLB entries on all other CPUs that run
//! sandboxes. An interpreter dirties hundreds of scattered pages, and that is most of a call. The pages are nearly the same in all
//! calls: the first calls say which, and before each later one the kernel copies them in one go (`MADV_POPULATE_WRITE`, Linux 5.14).
//! The contents of the memory are the same with and without.
//!
//! A component does not show where its memory is: its arguments and results do, as wasmtime lowers and lifts them. Must not: read or
//! write memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{Advice, madvise};
use wasmtime::component::__internal::{
    CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext, LowerContext,
};
use wasmtime::component::{ComponentType, Lift, Lower};

/// How many calls say which pages are written to: those that all of them have.
const CALLS: u32 = 4;
/// With fewer there is nothing to gain.
const FEWEST_PAGES: usize = 32;
/// The most memory that is looked at, in bytes.
const MOST_BYTES: usize = 256 << 20;
/// So many pages between two that are written to are copied along with them, rather than asked for apart.
const GAP_PAGES: usize = 2;

/// The pages that each call of a module dirties.
#[derive(Debug, Default)]
pub(crate) struct DirtyPages {
    /// In bytes from the beginning of the memory, once they are known.
    ranges: OnceLock<Vec<Range<usize>>>,
    learning: Mutex<Learning>,
}

#[derive(Debug, Default)]
struct Learning {
    calls: u32,
    pages: BTreeSet<usize>,
}

impl DirtyPages {
    /// Copies them, as far as they are in this memory, which is fresh.
    fn prefault(&self, memory: &mut [u8]) {
        for range in self.ranges.get().into_iter().flatten() {
            let Some(pages) = memory.get_mut(range.clone()) else {
                continue;
            };
            // SAFETY: it changes no byte, only where they are; and it is memory that we may write to.
            let done = unsafe {
                madvise(
                    pages.as_mut_ptr().cast(),
                    pages.len(),
                    Advice::LinuxPopulateWrite,
                )
            };
            if done.is_err() {
                // An older kernel, or no memory: faults tell in their time.
                return;
            }
        }
    }

    /// Takes in what a call has written to: `memory` is the addresses of its memory, which is still there.
    pub(crate) fn learn(&self, memory: &Range<usize>) {
        if self.ranges.get().is_some() {
            return;
        }
        let written = if memory.len() <= MOST_BYTES {
            written(memory).unwrap_or_default()
        } else {
            BTreeSet::new()
        };
        let mut learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        learning.pages = match learning.calls {
            0 => written,
            _ => &learning.pages & &written,
        };
        learning.calls += 1;
        if learning.calls == CALLS {
            let pages = std::mem::take(&mut learning.pages);
            let is_worth_it = pages.len() >= FEWEST_PAGES;
            // Only the last of these calls comes here.
            let _ = self.ranges.set(if is_worth_it {
                ranges(&pages)
            } else {
                Vec::new()
            });
        }
    }
}

/// The pages of a mapping that are copies of this process's own, by number.
fn written(memory: &Range<usize>) -> std::io::Result<BTreeSet<usize>> {
    // Documentation/admin-guide/mm/pagemap.rst
    const ENTRY_BYTES: usize = 8;
    const IS_PRESENT: u64 = 1 << 63;
    const IS_OF_A_FILE: u64 = 1 << 61;
    let page = rustix::param::page_size();
    let mut entries = vec![0; memory.len() / page * ENTRY_BYTES];
    let at = memory.start / page * ENTRY_BYTES;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, at as u64)?;
    let entries = entries
        .chunks_exact(ENTRY_BYTES)
        .map(|entry| u64::from_le_bytes(entry.try_into().expect("that many bytes")));
    let own = |entry: u64| entry & (IS_PRESENT | IS_OF_A_FILE) == IS_PRESENT;
    Ok(entries
        .enumerate()
        .filter(|(_, entry)| own(*entry))
        .map(|(at, _)| at)
        .collect())
}

fn ranges(pages: &BTreeSet<usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for &page in pages {
        match ranges.last_mut() {
            Some(last) if page <= last.end + GAP_PAGES => last.end = page + 1,
            _ => ranges.push(page..page + 1),
        }
    }
    let size = rustix::param::page_size();
    let in_bytes = |range: Range<usize>| range.start * size..range.end * size;
    ranges.into_iter().map(in_bytes).collect()
}

/// The name of what is called in a fresh sandbox: the first of its arguments. Before it goes in, the pages are prefaulted.
pub(crate) struct Name<'a>(pub(crate) &'a str, pub(crate) &'a DirtyPages);

// SAFETY: it is lowered as the text that it has.
unsafe impl ComponentType for Name<'_> {
    type Lower = <str as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <str as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        str::typecheck(ty, types)
    }
}

// SAFETY: as above.
unsafe impl Lower for Name<'_> {
    fn linear_lower_to_flat<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        dst: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        self.1.prefault(cx.as_slice_mut());
        self.0.linear_lower_to_flat(cx, ty, dst)
    }

    fn linear_lower_to_memory<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        self.0.linear_lower_to_memory(cx, ty, offset)
    }
}

/// Bytes that a call has returned, and the addresses of the memory that they come from.
pub(crate) struct Bytes(pub(crate) Vec<u8>, pub(crate) Range<usize>);

// SAFETY: it is lifted as a list of bytes.
unsafe impl ComponentType for Bytes {
    type Lower = <Vec<u8> as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <Vec<u8> as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <Vec<u8> as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: as above.
unsafe impl Lift for Bytes {
    fn linear_lift_from_flat(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        src: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        let bytes = Vec::linear_lift_from_flat(cx, ty, src)?;
        Ok(Self(bytes, addresses(cx.memory())))
    }

    fn linear_lift_from_memory(
        cx: &mut LiftContext<'_>,
        ty: InterfaceType,
        bytes: &[u8],
    ) -> wasmtime::Result<Self> {
        let bytes = Vec::linear_lift_from_memory(cx, ty, bytes)?;
        Ok(Self(bytes, addresses(cx.memory())))
    }
}

fn addresses(memory: &[u8]) -> Range<usize> {
    let range = memory.as_ptr_range();
    range.start.addr()..range.end.addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of a file, of which some pages were written to.
    fn mapping(pages: &[usize]) -> memmap2::MmapMut {
        let size = rustix::param::page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(200 * size as u64).unwrap();
        // SAFETY: nobody else has the file.
        let mut mapping = unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        pages.iter().for_each(|page| mapping[page * size] = 1);
        mapping
    }

    fn learned(calls: &[&[usize]]) -> DirtyPages {
        let pages = DirtyPages::default();
        for call in calls {
            pages.learn(&addresses(&mapping(call)));
        }
        pages
    }

    #[test]
    fn pages_that_all_calls_write_to_are_there_before_the_next() {
        let always: Vec<_> = (10..60).chain([90, 92, 150]).collect();
        let once: Vec<_> = always.iter().copied().chain([70]).collect();
        let pages = learned(&[&always, &once, &always, &once]);
        let mut fresh = mapping(&[]);
        pages.prefault(&mut fresh);
        // 91 comes along.
        let ready: Vec<_> = written(&addresses(&fresh)).unwrap().into_iter().collect();
        let expected: Vec<_> = (10..60).chain(90..93).chain([150]).collect();
        assert_eq!(ready, expected);
        assert!(fresh.iter().all(|byte| *byte == 0));
        // A shorter memory has some of them.
        pages.prefault(&mut fresh[..100]);
    }

    #[test]
    fn a_few_pages_are_left_alone() {
        let few: &[usize] = &[1, 2, 3];
        let pages = learned(&[few; 5]);
        assert_eq!(pages.ranges.get(), Some(&Vec::new()));
    }
}
