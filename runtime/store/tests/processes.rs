//! With real second processes: this program starts itself again, with `STORE_TEST_ROLE` set.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{KIB, MIB, contents, open, open_with_spill, put};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use wasmrun_store::{
    Backing, Beside, Place, SegmentNumber, Segments, Store, StoreConfig, receive, send,
};

const ROLE: &str = "STORE_TEST_ROLE";
const PLACE: &str = "STORE_TEST_PLACE";

/// Runs one test of this program as another process.
fn start(test: &str, role: &str, place: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What this process is to do, if it is not the test itself.
fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(PLACE)?.into()))
}

fn wait_for_line(child: &mut Child, line: &str) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.map_while(Result::ok).any(|it| it.contains(line)),
        "{line} was not said"
    );
}

#[test]
fn a_client_reads_in_place_and_cannot_write() {
    if let Some((role, place)) = role() {
        return client(&role, &place);
    }
    let dir = tempfile::tempdir().unwrap();
    share(&open(64 * MIB), "sealed", &dir.path().join("socket"));
    let backing = Backing::Dir(dir.path().into());
    let store = Store::open(StoreConfig {
        backing,
        ..StoreConfig::new(64 * MIB)
    })
    .unwrap();
    share(&store, "read-only", &dir.path().join("socket2"));
}

fn share(store: &Store, role: &str, place: &Path) {
    let listener = UnixListener::bind(place).unwrap();
    let mut child = start("a_client_reads_in_place_and_cannot_write", role, place);
    let (mut socket, _) = listener.accept().unwrap();
    let objects = [put(store, 1, 3 * MIB + 1), put(store, 2, 100 * KIB)];
    let views = objects.each_ref().map(|it| it.view().unwrap());
    let small = put(store, 3, 10);
    let small = small.view().unwrap();
    assert_eq!(small.place(), None, "it shares a page with others");
    assert!(send(&socket, b"x", &small).is_err());
    for view in &views {
        let place = view.place().unwrap();
        let numbers = [
            place.segment.0,
            place.segment_bytes,
            place.offset_bytes,
            place.len_bytes,
        ];
        let message: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(send(&socket, &message, view).unwrap(), message.len());
    }
    let mut answer = [0; 2];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ok");
    assert!(child.wait().unwrap().success());
    // The segment still serves, sealed as it is: new and used memory.
    drop((views, objects));
    for n in 10..14 {
        common::assert_contents(&put(store, n, 7 * MIB), n);
    }
    store.check();
}

fn client(role: &str, place: &Path) {
    let mut socket = UnixStream::connect(place).unwrap();
    let received = [place_from(&socket), place_from(&socket)];
    let mut segments = Segments::default();
    assert!(segments.view(&received[0].0).is_err(), "nothing is mapped");
    segments.add(&received[0].0, &received[0].1).unwrap();
    for (n, (place, _)) in (1..).zip(&received) {
        let view = segments.view(place).unwrap();
        assert!(
            *view == *contents(n, place.len_bytes),
            "object {n} has other bytes"
        );
    }
    let views = received.each_ref().map(|it| segments.view(&it.0).unwrap());
    let distance = views[1].as_ptr() as isize - views[0].as_ptr() as isize;
    let offsets = received.each_ref().map(|it| it.0.offset_bytes as isize);
    assert_eq!(distance, offsets[1] - offsets[0], "one mapping serves both");

    // Nothing lets it write: no shared mapping, no write, no cut.
    let (place, fd) = &received[0];
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, and the mapping is not used.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, both, MapFlags::SHARED, fd, 0) };
    let refused = match role {
        "sealed" => Errno::PERM,
        _ => Errno::ACCESS,
    };
    assert_eq!(mapped.unwrap_err(), refused);
    assert!(rustix::io::pwrite(fd, b"no", place.offset_bytes).is_err());
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
    // A private one is its own affair.
    // SAFETY: as above.
    let private =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, both, MapFlags::PRIVATE, fd, 0) };
    assert!(private.is_ok());
    for view in &views {
        let mut own = view.private().unwrap();
        assert!(*own == **view);
        own[0] ^= 1;
        assert_ne!(own[0], view[0], "what is written is not the object's");
    }

    // What does not lie in the segment is refused.
    let wrong = Place {
        offset_bytes: place.segment_bytes - 1,
        ..*place
    };
    assert!(segments.view(&wrong).is_err());
    // What is seen stays, though the segment is forgotten.
    segments.forget(place.segment);
    assert!(segments.is_empty() && segments.view(place).is_err());
    assert!(*views[0] == *contents(1, place.len_bytes));
    socket.write_all(b"ok").unwrap();
}

/// One message of the test's own: a place, and the descriptor beside it.
fn place_from(socket: &UnixStream) -> (Place, OwnedFd) {
    let mut message = [0; 32];
    let (len, beside) = receive(socket, &mut message).unwrap();
    let Beside::Descriptor(fd) = beside else {
        panic!("a descriptor comes beside it: {beside:?}");
    };
    assert_eq!(len, message.len());
    let number = |at: usize| u64::from_le_bytes(message[at * 8..][..8].try_into().unwrap());
    let place = Place {
        segment: SegmentNumber(number(0)),
        segment_bytes: number(1),
        offset_bytes: number(2),
        len_bytes: number(3),
    };
    (place, fd)
}

/// `/proc` opens the file of a descriptor anew, and asks only what the opener may do with that file.
#[test]
fn a_descriptor_that_is_opened_again_gives_nobody_else_more() {
    let test = "a_descriptor_that_is_opened_again_gives_nobody_else_more";
    if let Some((_, place)) = role() {
        return reopen(&place);
    }
    let dir = tempfile::tempdir().unwrap();
    let in_files = Store::open(StoreConfig {
        backing: Backing::Dir(dir.path().into()),
        ..StoreConfig::new(64 * MIB)
    })
    .unwrap();
    let in_memory = open(128 * MIB);
    let cases = [
        (&in_memory, 3 * MIB, Some(SEALED)),
        (&in_files, 3 * MIB, Some(OWN)),
        // In huge pages, if the system has them. Whether those can be sealed is the system's affair.
        (&in_memory, 32 * MIB, None),
    ];
    for (n, (store, len, is)) in (0..).zip(cases) {
        let place = dir.path().join(format!("socket{n}"));
        let listener = UnixListener::bind(&place).unwrap();
        let mut child = start(test, "reopen", &place);
        let (mut socket, _) = listener.accept().unwrap();
        let object = put(store, n, len);
        send(&socket, &[0; 32], &object.view().unwrap()).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert!(is.is_none_or(|is| is == answer[0]), "case {n}: {answer:?}");
        assert!(child.wait().unwrap().success());
        common::assert_contents(&object, n);
    }
}

/// A seal keeps everybody from writing.
const SEALED: u8 = b's';
/// It is a file of this user, who may do with it what a user may.
const OWN: u8 = b'o';

fn reopen(place: &Path) {
    let mut socket = UnixStream::connect(place).unwrap();
    let (_, fd) = place_from(&socket);
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let open = |flags| rustix::fs::open(&path, flags, Mode::empty());
    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
    let is_sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE);
    let again = open(OFlags::RDWR).unwrap();
    if is_sealed {
        assert_sealed(&again);
    }
    if rustix::process::geteuid().is_root() {
        // Of this thread alone, which is all that opens something here.
        // SAFETY: only numbers are passed.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
        assert_eq!(changed, 0);
        match is_sealed {
            true => assert_sealed(&open(OFlags::RDWR).unwrap()),
            false => {
                for flags in [OFlags::RDWR, OFlags::WRONLY, OFlags::RDONLY] {
                    assert_eq!(open(flags).unwrap_err(), Errno::ACCESS);
                }
                assert_eq!(rustix::fs::fchmod(&fd, Mode::RWXU), Err(Errno::PERM));
            }
        }
    }
    socket
        .write_all(&[if is_sealed { SEALED } else { OWN }])
        .unwrap();
}

/// A user that owns nothing.
const OTHER: libc::uid_t = 65534;

/// What can be written through cannot be written through.
fn assert_sealed(fd: &OwnedFd) {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::io::pwrite(fd, b"no", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::fallocate(fd, punch, 0, 4096), Err(Errno::PERM));
}

#[test]
fn what_a_killed_process_has_spilled_is_removed() {
    if let Some((_, place)) = role() {
        return spill_for_ever(&place);
    }
    let dir = tempfile::tempdir().unwrap();
    let alive = open_with_spill(MIB, dir.path(), 16 * MIB);
    let objects: Vec<_> = (0..4).map(|n| put(&alive, n, 512 * KIB)).collect();
    let mut child = start(
        "what_a_killed_process_has_spilled_is_removed",
        "spill",
        dir.path(),
    );
    wait_for_line(&mut child, "spilling");
    child.kill().unwrap();
    child.wait().unwrap();
    let subfolders = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries
            .filter(|it| it.as_ref().unwrap().path().is_dir())
            .count()
    };
    assert_eq!(subfolders(), 2, "the dead one leaves its files");
    // One that died before it had its lock.
    std::fs::create_dir(dir.path().join("wasmrun-spill-1-0")).unwrap();

    let next = open_with_spill(MIB, dir.path(), 16 * MIB);
    assert_eq!(subfolders(), 2, "those of the living, and the new one");
    (0..)
        .zip(&objects)
        .for_each(|(n, object)| common::assert_contents(object, n));
    drop((alive, objects, next));
    assert_eq!(subfolders(), 0);
}

/// Is killed in the middle of this.
fn spill_for_ever(dir: &Path) {
    let store = open_with_spill(MIB, dir, 256 * MIB);
    let mut objects = std::collections::VecDeque::new();
    for n in 0.. {
        objects.push_back(put(&store, n, 300 * KIB));
        if objects.len() > 100 {
            objects.pop_front();
        }
        if n == 20 {
            println!("spilling");
        }
    }
}
