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
use crate::stdio::{CHUNK_BYTES, NoRoom};

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
                let written = match check(table, &to, bytes.len()) {
                    Ok(()) => Streams::write(table, again(&to), bytes),
                    Err(error) => Err(error),
                };
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

/// Whether a stream may have been written so much at all. WASI's streams of files take whatever they are given: each
/// would have as much of the host's memory as a guest's call may, until it is on disk.
fn check(table: &ResourceTable, to: &To, len: usize) -> StreamResult<()> {
    table.get(to)?;
    if len > CHUNK_BYTES {
        return Err(StreamError::trap(&format!(
            "it wrote {len} bytes to an output stream where `check-write` permits {CHUNK_BYTES} at most"
        )));
    }
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

#[cfg(test)]
mod tests {
    use wasmtime_wasi::p2::pipe::MemoryOutputPipe;

    use super::*;

    #[test]
    fn no_stream_takes_more_than_any_permits() {
        let mut table = ResourceTable::new();
        let stream: DynOutputStream = Box::new(MemoryOutputPipe::new(1 << 20));
        let to = table.push(stream).unwrap();
        assert!(check(&table, &to, CHUNK_BYTES).is_ok());
        let StreamError::Trap(why) = check(&table, &to, CHUNK_BYTES + 1).unwrap_err() else {
            panic!("it is the guest's fault");
        };
        assert!(
            why.to_string()
                .contains("it wrote 65537 bytes to an output stream"),
            "{why}"
        );
        let gone = again(&to);
        table.delete(to).unwrap();
        assert!(matches!(check(&table, &gone, 0), Err(StreamError::Trap(_))));
    }
}
