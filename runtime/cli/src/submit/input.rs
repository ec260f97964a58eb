//! What a program reads from standard input: ours, or a file.
//!
//! Owns the thread that reads. Must not: read what no program has asked for.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use wasmrun_engine::{Input, intake};

use crate::fail::Failure;
use crate::printer::Printer;
use crate::stdio;

/// Our own standard input.
pub fn ours(printer: Printer) -> Result<Input, Failure> {
    match stdio::input() {
        // Nothing comes, so nothing ties it to the node that is asked.
        Ok(file) if stdio::is_input_null(&file) => Ok(Input::Empty),
        input => stream_of(|| input, printer),
    }
}

/// A file as standard input, as it comes: it may be a pipe that somebody is still writing to.
pub fn of_file(path: &Path, printer: Printer) -> Result<Input, Failure> {
    let cannot = || format!("cannot read {} for --stdin", path.display());
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    if stdio::is_null(&metadata) {
        return Ok(Input::Empty);
    }
    if metadata.is_file() {
        let file = File::open(path).with_context(cannot)?;
        return stream_of(|| Ok(file), printer);
    }
    // Opening a pipe waits for who writes to it: not here, where Ctrl-C would go unheard.
    let path = path.to_owned();
    stream_of(move || File::open(path), printer)
}

/// What a file gives, when the guest wants it. The guest hears of a read that fails, and so does who looks at the command.
fn stream_of(
    open: impl FnOnce() -> io::Result<File> + Send + 'static,
    printer: Printer,
) -> Result<Input, Failure> {
    let (feed, intake) = intake(1);
    let pass_on = move || {
        let (mut buffer, mut file) = (Vec::new(), open());
        // What nobody asks for is left to whom it belongs: a loop of the shell's, or who has the terminal.
        while feed.blocking_wanted() {
            buffer.resize(64 << 10, 0);
            let read = match &mut file {
                Ok(file) => stdio::read(file, &mut buffer),
                Err(error) => Err(std::mem::replace(error, io::ErrorKind::Other.into())),
            };
            if let Err(error) = &read
                // Who has none has closed it on purpose.
                && error.raw_os_error() != Some(rustix::io::Errno::BADF.raw_os_error())
            {
                printer.warn(format_args!("standard input cannot be read: {error}"));
            }
            let read = read.map(|n| Bytes::copy_from_slice(&buffer[..n]));
            let is_last = read.as_ref().map_or(true, Bytes::is_empty);
            if !feed.blocking_send(read) || is_last {
                return;
            }
        }
    };
    // It may block in read(2) for ever: nobody waits for this thread.
    std::thread::Builder::new()
        .name("wasmrun-stdin".into())
        .spawn(pass_on)?;
    Ok(Input::Stream(intake))
}
