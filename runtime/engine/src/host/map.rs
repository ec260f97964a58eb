//! `map` and `unmap`: objects in a guest's memory, without a copy where pages of the store can be mapped (`windows`).

use std::io;
use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};

use super::bindings::wasmrun::runtime::objects::Error;
use super::objects::{INTERFACE, duration};
use crate::fault::HostFault;
use crate::handle::{ObjectHandle, slot};
use crate::services::HandleSlot;
use crate::state::TaskState;
use crate::windows::{TURN_BYTES, Window, WindowFault};

type MapArgs = (Resource<ObjectHandle>, Window, Option<u64>);

/// Puts `map` and `unmap` into a linker, in place of those that would copy the window.
pub(super) fn add_to_linker(linker: &mut Linker<TaskState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut objects = linker.instance(INTERFACE)?;
    objects.func_wrap_async(
        "[method]object.map",
        |store: StoreContextMut<'_, TaskState>, (object, window, timeout_ms): MapArgs| {
            Box::new(async move {
                match map(store, slot(&object), window, duration(timeout_ms)).await {
                    Ok(length) => Ok((Ok(length),)),
                    Err(Fault::Said(error)) => Ok((Err(error),)),
                    Err(Fault::Lost(error)) => Err(lost(&error)),
                }
            })
        },
    )?;
    objects.func_wrap_async(
        "unmap",
        |store: StoreContextMut<'_, TaskState>, (window,): (Window,)| {
            Box::new(async move {
                match unmap(store, window).await {
                    Ok(()) => Ok((Ok(()),)),
                    Err(Fault::Said(error)) => Ok((Err(error),)),
                    Err(Fault::Lost(error)) => Err(lost(&error)),
                }
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Why a window is not mapped, or not free.
#[derive(Debug)]
enum Fault {
    /// The guest hears of it.
    Said(Error),
    /// There may be no memory where the window is: nobody may touch it, so the guest cannot go on.
    Lost(io::Error),
}

impl Fault {
    fn refused(why: String) -> Self {
        Self::Said(Error::Refused(why))
    }
}

impl From<WindowFault> for Fault {
    fn from(fault: WindowFault) -> Self {
        match fault {
            WindowFault::Refused(why) => Self::refused(why),
            WindowFault::Lost(error) => Self::Lost(error),
        }
    }
}

fn lost(error: &io::Error) -> wasmtime::Error {
    HostFault(format!(
        "the system gives no memory back for a window: {error}"
    ))
    .into()
}

async fn map(
    mut store: StoreContextMut<'_, TaskState>,
    object: HandleSlot,
    window: Window,
    timeout: Option<Duration>,
) -> Result<u64, Fault> {
    let services = store.data().services();
    let value = services.get(object, timeout).await;
    let value = value.map_err(|error| Fault::Said(error.into()))?;
    let bytes = value.encoded().bytes();
    let length = bytes.len();
    window.check(length).map_err(Fault::refused)?;
    let state = store.data_mut();
    let is_apart = window.offset >= state.module.initial_memory();
    state.windows.check(&window).map_err(Fault::refused)?;
    let has_room = state.windows.has_room();
    let pages = value.pages();
    let pages = pages.filter(|_| is_apart && has_room && length > 0);
    let is_mapped = match pages {
        Some(pages) => state.windows.map(window, &value, &pages, length)?,
        None => false,
    };
    if !is_mapped {
        for (part, bytes) in window.turns().zip(bytes.chunks(TURN_BYTES)) {
            part.fill(bytes);
            others_first(part).await;
        }
    }
    Ok(length as u64)
}

async fn unmap(mut store: StoreContextMut<'_, TaskState>, window: Window) -> Result<(), Fault> {
    let state = store.data_mut();
    if state.windows.unmap(window)? {
        return Ok(());
    }
    // It was filled with a copy.
    let initial_memory = state.module.initial_memory();
    for part in window.turns() {
        part.wipe(initial_memory);
        others_first(part).await;
    }
    Ok(())
}

/// Lets another guest have a turn if that was a long piece of work.
async fn others_first(done: Window) {
    if done.len == TURN_BYTES {
        tokio::task::yield_now().await;
    }
}
