//! What guests may import: WASI, and the interfaces of `wit/`.
//!
//! Everything a guest can reach of the host is put into a linker here and nowhere else. What the
//! interfaces of `wit/` do is in `context`, `objects` (with `tasks` and `actors`) and `map`; writes of `wasi:io` are in `streams`.

use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use wasmtime::StoreContextMut;
use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
};

use crate::flavor::Runtime;
use crate::state::TaskState;

mod context;
mod map;
mod objects;
mod streams;

pub(crate) mod bindings {
    #![allow(missing_docs, reason = "generated from wit/, which has the docs")]

    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "task",
        imports: {
            "wasmrun:runtime/objects.[method]object.size": async | trappable,
            "wasmrun:runtime/objects.[method]object.get": async | trappable,
            "wasmrun:runtime/objects.[method]object.map": async | trappable,
            "wasmrun:runtime/objects.wait": async | trappable,
            "wasmrun:runtime/objects.put": async | trappable,
            "wasmrun:runtime/objects.put-with": async | trappable,
            "wasmrun:runtime/actors.create": async | trappable,
            "wasmrun:runtime/actors.find": async | trappable,
            default: trappable,
        },
        with: {
            "wasmrun:runtime/objects.object": crate::handle::ObjectHandle,
            "wasmrun:runtime/actors.actor": crate::handle::ActorHandle,
        },
    });
}

use bindings::wasmrun::runtime::{actors, context as context_bindings, objects as bound, tasks};

impl Runtime {
    /// What components may import.
    pub(crate) fn components(&self) -> &Linker<TaskState> {
        self.components.get_or_init(|| {
            let mut linker = Linker::new(&self.engine);
            add_to_component_linker(&mut linker, self.concurrent)
                .expect("the host's own interfaces don't clash");
            linker
        })
    }

    /// What core modules may import.
    pub(crate) fn core(&self) -> &wasmtime::Linker<TaskState> {
        self.core.get_or_init(|| {
            let mut linker = wasmtime::Linker::new(&self.engine);
            add_to_core_linker(&mut linker).expect("the host's own functions don't clash");
            linker
        })
    }
}

/// Everything that a component may import.
///
/// `concurrent`: with the interfaces of WASI 0.3, which need the component model's async.
fn add_to_component_linker(
    linker: &mut Linker<TaskState>,
    concurrent: bool,
) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    streams::add_to_linker(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    if concurrent {
        wasmtime_wasi::p3::add_to_linker(linker)?;
        wasmtime_wasi_http::p3::add_to_linker(linker)?;
    } else {
        guard_open(linker)?;
    }
    context_bindings::add_to_linker::<TaskState, HasSelf<TaskState>>(linker, |state| state)?;
    bound::add_to_linker::<TaskState, HasSelf<TaskState>>(linker, |state| state)?;
    tasks::add_to_linker::<TaskState, HasSelf<TaskState>>(linker, |state| state)?;
    actors::add_to_linker::<TaskState, HasSelf<TaskState>>(linker, |state| state)?;
    objects::add_to_linker(linker)?;
    map::add_to_linker(linker)
}

/// Everything that a core module may import.
fn add_to_core_linker(linker: &mut wasmtime::Linker<TaskState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p1::add_to_linker_async(linker, |state| state.wasi.get())?;
    // WASI's own keeps to codes below 126; a program may have meant any of eight bits.
    linker.allow_shadowing(true);
    linker.func_wrap(PREVIEW1, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(I32Exit(code).into())
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

const PREVIEW1: &str = "wasi_snapshot_preview1";
const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";
const OPEN_AT: &str = "[method]descriptor.open-at";

type OpenAt = (
    Resource<Descriptor>,
    PathFlags,
    String,
    OpenFlags,
    DescriptorFlags,
);

/// Puts a check in front of WASI's `open-at`: what can block a thread for ever is refused.
///
/// Opening or reading a FIFO, a terminal or another device may never return, and no epoch stops
/// a thread inside the kernel. With those out of the way, file calls are made on the guest's own
/// thread, which is several times faster than handing each to a thread pool.
fn guard_open(linker: &mut Linker<TaskState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(FILESYSTEM)?.func_wrap_async(
        OPEN_AT,
        |mut store: StoreContextMut<'_, TaskState>, args: OpenAt| {
            Box::new(async move {
                let (dir, path_flags, path, open_flags, flags) = args;
                if let Descriptor::Dir(dir) = store.data_mut().table().get(&dir)?
                    && blocks(dir.dir.as_fd(), &path, path_flags)
                {
                    return Ok((Err(ErrorCode::NotPermitted),));
                }
                let mut files = store.data_mut().filesystem();
                let opened = files
                    .open_at(dir, path_flags, path, open_flags, flags)
                    .await;
                Ok((match opened {
                    Ok(descriptor) => Ok(descriptor),
                    Err(error) => Err(error.downcast()?),
                },))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Whether there is something at `path` that is neither a file nor a directory. Looks at it
/// without opening it, and never leaves `dir`.
fn blocks(dir: impl AsFd, path: &str, flags: PathFlags) -> bool {
    let mut open = OFlags::PATH | OFlags::CLOEXEC;
    if !flags.contains(PathFlags::SYMLINK_FOLLOW) {
        open |= OFlags::NOFOLLOW;
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(dir, path, open, Mode::empty(), resolve).and_then(fstat) {
        Ok(stat) => !matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        ),
        // Where it cannot be looked at, it cannot be opened either: WASI has the better error.
        // But a kernel that does not know the call has not looked at all.
        Err(error) => error == Errno::NOSYS,
    }
}
