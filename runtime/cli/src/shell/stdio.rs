//! Standard input and standard output, with all their errors.
//!
//! The standard library takes a descriptor that cannot be read for an empty file, one that cannot be written for one
//! that takes everything, and opens `/dev/null` where one was closed. Guests and people are to hear of that.

use std::fs::{File, Metadata};
use std::io::{self, Read, StdoutLock, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, makedev, open};
use rustix::io::{Errno, dup, fcntl_getfd};
use rustix::stdio::{dup2_stdin, dup2_stdout, stdin, stdout};

/// Whether standard input and standard output were closed when the process began.
static WERE_CLOSED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Looks at the descriptors before the standard library does.
extern "C" fn look() {
    for (descriptor, was_closed) in [stdin(), stdout()].into_iter().zip(&WERE_CLOSED) {
        let is_closed = fcntl_getfd(descriptor) == Err(Errno::BADF);
        was_closed.store(is_closed, Ordering::Relaxed);
    }
}

// SAFETY: the loader calls what is in this section, once, before `main` and any other thread. `look` makes two system
// calls and sets two flags; it needs nothing that the standard library sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Makes descriptors that were closed fail, as they would have.
pub fn keep_closed() {
    let [input, output] = WERE_CLOSED.each_ref().map(|it| it.load(Ordering::Relaxed));
    let null = |flags| open("/dev/null", flags | OFlags::CLOEXEC, Mode::empty());
    // Where that is not possible, all is as the standard library has it.
    if input && let Ok(cannot_be_read) = null(OFlags::WRONLY) {
        let _ = dup2_stdin(cannot_be_read);
    }
    if output && let Ok(cannot_be_written) = null(OFlags::RDONLY) {
        let _ = dup2_stdout(cannot_be_written);
    }
}

/// Our standard input. It has no buffer.
///
/// # Errors
/// When there is none.
pub fn input() -> io::Result<File> {
    Ok(dup(stdin())?.into())
}

/// Whether this is `/dev/null`: nothing comes of it, and nobody has to wait for that to be seen.
pub fn is_null(file: &Metadata) -> bool {
    file.file_type().is_char_device() && file.rdev() == makedev(1, 3)
}

/// Whether our standard input can be read, and is empty.
pub fn is_input_null(input: &File) -> bool {
    let can_be_read = fcntl_getfl(input).is_ok_and(|it| !it.contains(OFlags::WRONLY));
    can_be_read && input.metadata().is_ok_and(|it| is_null(&it))
}

/// Reads what there is. Waits for it also where others have made the file one that does not wait.
pub fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(PollFd::new(file, PollFlags::IN))?;
            }
            other => return other,
        }
    }
}

fn wait_for(descriptor: PollFd<'_>) -> io::Result<()> {
    match poll(&mut [descriptor], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Our standard output. It has no buffer; what one thread writes stays together.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

/// See [`output`].
pub struct Output(#[expect(dead_code, reason = "held, not used")] StdoutLock<'static>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(stdout(), bytes) {
                Err(Errno::AGAIN) => wait_for(PollFd::new(&stdout(), PollFlags::OUT))?,
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
