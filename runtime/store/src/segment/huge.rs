//! Huge pages for memory files: what the system says about them, and a way to them.
//!
//! Most systems give no huge pages to memory files (`shmem_enabled` is `never`), but to files of a tmpfs
//! that was mounted with the option `huge`. A process that may mount makes such a file system for
//! itself: it is attached nowhere, so nobody else can name what is in it, and it goes with its last
//! file. All others get pages of the usual size, unless an administrator sets `shmem_enabled`.
//!
//! Owns those system calls. Must not: fail where small pages would do; its caller falls back.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What the system does about huge pages for memory files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// It gives them to all files in memory.
    Always,
    /// It gives them to mappings that ask.
    OnAdvice,
    /// It gives none to memory files; to those of a tmpfs as its mount options say.
    NotForMemfds,
    /// It gives none to anybody, or has none.
    Denied,
}

const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// What holds now. An administrator may change it at any time.
pub(super) fn policy() -> Policy {
    let text = std::fs::read_to_string(SHMEM_ENABLED).unwrap_or_default();
    parse(&text)
}

/// The kernel shows all words there are, with the one that holds in brackets.
fn parse(text: &str) -> Policy {
    let chosen = text
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    match chosen {
        Some("always" | "within_size" | "force") => Policy::Always,
        Some("advise") => Policy::OnAdvice,
        Some("never") => Policy::NotForMemfds,
        _ => Policy::Denied,
    }
}

/// A file without a name in a file system of its own, with huge pages wherever its length allows.
///
/// # Errors
/// When this process may not mount, or the kernel is older than 5.2 or has no huge pages.
pub(super) fn file(len: u64) -> io::Result<File> {
    // No limits but those on memory: the store has its own.
    let options = [(c"huge", c"always"), (c"size", c"0"), (c"nr_inodes", c"0")];
    let root = mount(&options)?;
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, and nothing is kept of it.
    let file = unsafe { libc::openat(root.as_raw_fd(), c".".as_ptr(), flags, 0o600) };
    let file = File::from(owned(file.into())?);
    file.set_len(len)?;
    Ok(file)
}

/// A new tmpfs, attached nowhere: its root.
fn mount(options: &[(&CStr, &CStr)]) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const SET_STRING: libc::c_uint = 1;
    const CREATE: libc::c_uint = 6;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the name is a C string, and nothing is kept of it.
    let context =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let configure =
        |command: libc::c_uint, key: *const libc::c_char, value: *const libc::c_char| {
            let (call, fd) = (libc::SYS_fsconfig, context.as_raw_fd());
            // SAFETY: key and value are C strings or null, as the command wants them.
            match unsafe { libc::syscall(call, fd, command, key, value, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
    for (key, value) in options {
        configure(SET_STRING, key.as_ptr(), value.as_ptr())?;
    }
    configure(CREATE, none, none)?;
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let (call, fd) = (libc::SYS_fsmount, context.as_raw_fd());
    // SAFETY: only numbers are passed.
    owned(unsafe { libc::syscall(call, fd, FSMOUNT_CLOEXEC, attributes) })
}

/// What a system call returned, as a descriptor.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(returned) {
        // SAFETY: the call has just made it, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_holds() {
        let words = |chosen: &str| {
            "always within_size advise never deny force\n".replace(chosen, &format!("[{chosen}]"))
        };
        assert_eq!(parse(&words("always")), Policy::Always);
        assert_eq!(parse(&words("advise")), Policy::OnAdvice);
        assert_eq!(parse(&words("never")), Policy::NotForMemfds);
        assert_eq!(parse(&words("deny")), Policy::Denied);
        assert_eq!(parse(""), Policy::Denied);
    }
}
