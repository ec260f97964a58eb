//! Objects in a guest's memory without a copy: pages of the store, mapped over a window of it.
//!
//! The mapping is private and writable: what the guest writes there goes to pages of its own, and the
//! object never changes. (A read-only mapping would let a guest crash the node, by making the host
//! lower a result into it.)
//!
//! Invariant, which the sandbox of the next task depends on: nothing mapped here outlives the sandbox.
//! [`Windows::clear`] puts anonymous memory, all zeros, back before the memory is given to anybody
//! else; the pool's own resetting skips pages of files. And a window never touches what a module's
//! memory starts with, because a pool may restore that without looking.
//!
//! Where pages cannot be mapped, the bytes are copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};
use wasmrun_model::id::ObjectName;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext};
use wasmtime::component::{ComponentType, Lift, Linker, Resource};
use wasmtime::{StoreContextMut, ValRaw};

use super::bindings::wasmrun::runtime::objects::Error;
use super::objects::duration;
use crate::handle::ObjectHandle;
use crate::services::{Pages, Readable};
use crate::state::TaskState;

/// What a window's start and length must be a multiple of: a page of wasm.
const WINDOW_ALIGN: usize = 64 << 10;
/// How many windows a sandbox may have at a time.
const MOST_WINDOWS: usize = 256;
/// How many windows all sandboxes together may have: the kernel limits the mappings of a process, each
/// window takes up to two, and one that cannot be taken out again is the end of the process.
const MOST_WINDOWS_IN_ALL: usize = 4_096;

/// How many windows all sandboxes have.
static WINDOWS: AtomicUsize = AtomicUsize::new(0);

const INTERFACE: &str = "wasmrun:runtime/objects@0.1.0";

type MapArgs = (Resource<ObjectHandle>, Window, Option<u64>);

/// Puts `map` and `unmap` into a linker, in place of those that would copy the window.
pub(super) fn add_to_linker(linker: &mut Linker<TaskState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut objects = linker.instance(INTERFACE)?;
    objects.func_wrap_async(
        "[method]object.map",
        |mut store: StoreContextMut<'_, TaskState>, (object, window, timeout_ms): MapArgs| {
            Box::new(async move {
                let name = store.data_mut().object(&object)?;
                Ok((map(store, &name, window, duration(timeout_ms)).await,))
            })
        },
    )?;
    objects.func_wrap(
        "unmap",
        |mut store: StoreContextMut<'_, TaskState>, (window,): (Window,)| {
            let windows = &mut store.data_mut().windows;
            Ok((windows.unmap(window).map_err(Error::Refused),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn map(
    mut store: StoreContextMut<'_, TaskState>,
    object: &ObjectName,
    window: Window,
    timeout: Option<Duration>,
) -> Result<u64, Error> {
    let services = store.data().services();
    let value = services.get(object, timeout).await?;
    let bytes = value.encoded().bytes();
    let length = bytes.len();
    window.check(length).map_err(Error::Refused)?;
    let state = store.data_mut();
    let is_apart = window.offset >= state.module.initial_memory();
    match value.pages() {
        Some(pages)
            if is_apart
                && state.windows.0.len() < MOST_WINDOWS
                && WINDOWS.load(Ordering::Relaxed) < MOST_WINDOWS_IN_ALL =>
        {
            state
                .windows
                .map(window, &value, &pages)
                .map_err(Error::Refused)?;
        }
        _ => window.fill(bytes),
    }
    Ok(length as u64)
}

/// A part of a guest's memory, where it lies in ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// Its start in our address space. Memories of the pool never move.
    at: usize,
    /// Its start in the guest's memory.
    offset: usize,
    len: usize,
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
    fn check(&self, bytes: usize) -> Result<(), String> {
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

    /// Copies bytes to its start.
    fn fill(&self, bytes: &[u8]) {
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
    /// Keeps the pages what they are.
    _value: Pinned,
}

/// What keeps an object's pages in place while they are mapped.
struct Pinned(Arc<dyn Readable>);

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.encoded())
    }
}

impl Windows {
    fn map(
        &mut self,
        window: Window,
        value: &Arc<dyn Readable>,
        pages: &Pages<'_>,
    ) -> Result<(), String> {
        if self.0.iter().any(|mapped| mapped.window.overlaps(&window)) {
            return Err(
                "the window overlaps one that an object is mapped to; unmap that first".into(),
            );
        }
        let length = usize::try_from(pages.len).expect("it fits into the window");
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the window is whole pages in the memory of the instance that makes this call (see
        // `fill`), which nothing of the host points into. The mapping is private.
        let mapped = unsafe {
            mmap(
                window.at as *mut _,
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                pages.file,
                pages.offset,
            )
        };
        WINDOWS.fetch_add(1, Ordering::Relaxed);
        // Whatever came of it, the window must be cleared.
        self.0.push(Mapped {
            window,
            _value: Pinned(value.clone()),
        });
        match mapped {
            Ok(at) => {
                // All at once costs less than a fault for each page. Not by a flag of the mapping: that
                // would make a copy of each page, as for writing. What the kernel does not do now, faults do.
                // SAFETY: it only reads pages of the mapping made above.
                let _ = unsafe { madvise(at, length, Advice::LinuxPopulateRead) };
                Ok(())
            }
            Err(error) => {
                self.unmap(window)?;
                Err(format!(
                    "the object's pages cannot be mapped: {error}; use `get`"
                ))
            }
        }
    }

    fn unmap(&mut self, window: Window) -> Result<(), String> {
        let Some(at) = self.0.iter().position(|mapped| mapped.window == window) else {
            if self.0.iter().any(|mapped| mapped.window.overlaps(&window)) {
                return Err(
                    "the window is another one than an object was mapped to; pass that".into(),
                );
            }
            // It was filled with a copy.
            window.wipe();
            return Ok(());
        };
        restore(&self.0[at].window);
        self.0.swap_remove(at);
        Ok(())
    }

    /// Takes everything out of the guest's memory.
    pub(crate) fn clear(&mut self) {
        for Mapped { window, .. } in self.0.drain(..) {
            restore(&window);
        }
    }
}

impl Window {
    /// Writes zeros.
    fn wipe(&self) {
        // SAFETY: as in `fill`.
        unsafe { std::ptr::write_bytes(self.at as *mut u8, 0, self.len) }
    }
}

/// Puts anonymous memory, all zeros, in place of a window.
///
/// Ends the process when the kernel refuses: the memory could not be given to anybody again.
fn restore(window: &Window) {
    // SAFETY: as in `Windows::map`.
    let restored = unsafe {
        mmap_anonymous(
            window.at as *mut _,
            window.len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )
    };
    WINDOWS.fetch_sub(1, Ordering::Relaxed);
    if let Err(error) = restored {
        // Going on would show one task's object to another.
        eprintln!("wasmrun: cannot take an object out of a sandbox's memory: {error}");
        std::process::abort();
    }
}
