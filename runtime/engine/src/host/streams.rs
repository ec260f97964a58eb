//! `wasi:io/streams`: writes that wait where the room that a guest asked for has gone to somebody else.
//!
//! `check-write` permits a write and takes no room for it: a guest that asks and does not write would take it from
//! all other tasks. So a write may find that there is none, and then it waits. WASI's own functions cannot.

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::io::streams::{self, Host as _, HostOutputStream as Streams};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, StreamError, StreamResult};

use crate::state::TaskState;
use crate::stdio::NoRoom;

const INTERFACE: &str = "wasi:io/streams@0.2.12";

type Answer<T> = wasmtime::Result<(Result<T, streams::StreamError>,)>;
type To = Resource<DynOutputStream>;

/// Puts all that writes without saying that it blocks into a linker, in place of WASI's.
pub(super) fn add_to_linker(linker: &mut Linker<TaskState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut streams = linker.instance(INTERFACE)?;
    streams.func_wrap_async(
        "[method]output-stream.write",
        |mut store: StoreContextMut<'_, TaskState>, (to, bytes): (To, Vec<u8>)| {
            Box::new(async move {
                let table = store.data_mut().table();
                let written = Streams::write(table, again(&to), bytes);
                finish(table, &to, written, |_| ()).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.write-zeroes",
        |mut store: StoreContextMut<'_, TaskState>, (to, len): (To, u64)| {
            Box::new(async move {
                let table = store.data_mut().table();
                let written = Streams::write_zeroes(table, again(&to), len);
                finish(table, &to, written, |_| ()).await
            })
        },
    )?;
    streams.func_wrap_async(
        "[method]output-stream.splice",
        |mut store: StoreContextMut<'_, TaskState>,
         (to, from, len): (To, Resource<DynInputStream>, u64)| {
            Box::new(async move {
                let table = store.data_mut().table();
                let written = Streams::splice(table, again(&to), from, len);
                finish(table, &to, written, |bytes| bytes.len() as u64).await
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn again(stream: &To) -> To {
    Resource::new_borrow(stream.rep())
}

/// Writes what there was no room for when there is some; `answer` is what the guest gets for it.
async fn finish<T>(
    table: &mut ResourceTable,
    to: &To,
    written: StreamResult<T>,
    answer: impl FnOnce(&Bytes) -> T,
) -> Answer<T> {
    let written = match written {
        Err(StreamError::Trap(error)) => match error.downcast::<NoRoom>() {
            Ok(NoRoom(bytes)) => {
                let answer = answer(&bytes);
                let stream = table.get_mut(to)?;
                stream
                    .blocking_write_and_flush(bytes)
                    .await
                    .map(|()| answer)
            }
            Err(error) => Err(StreamError::Trap(error)),
        },
        written => written,
    };
    Ok((match written {
        Ok(answer) => Ok(answer),
        Err(error) => Err(table.convert_stream_error(error)?),
    },))
}
