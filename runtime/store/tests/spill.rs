//! Under pressure: spilling, restoring, disks that are full or broken.

mod common;

use std::ffi::CString;
use std::path::Path;
use std::task::Poll;

use common::{
    KIB, MIB, Polled, assert_contents, block_on, contents, id, open, open_with_spill, put,
};
use wasmrun_model::fairness::TenantName;
use wasmrun_store::{Copy, Form, ReadError, Store};

/// The only subfolder of a spill folder.
fn subfolder(dir: &Path) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    entries.find(|path| path.is_dir()).unwrap()
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(subfolder(dir)).unwrap().count() - 1 // The lock.
}

fn create(store: &Store, n: u64, len: u64) -> wasmrun_store::CreateFuture {
    store.create(&TenantName::default(), id(n), len, Form::Postcard)
}

#[test]
fn nothing_referenced_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let sizes = [100 * KIB, 333 * KIB, 64 * KIB, 5 * KIB, 800 * KIB, 7];
    let objects: Vec<_> = (0..60)
        .map(|n| put(&store, n, sizes[n as usize % 6]))
        .collect();
    store.check();
    for (n, object) in objects.iter().enumerate().rev() {
        assert_contents(object, n as u64);
    }
    store.check();
    drop(objects);
    // The thread does one thing after the other: once this is restored all files before are removed.
    let last = [put(&store, 100, MIB), put(&store, 101, MIB)];
    assert_contents(&last[0], 100);
    assert_eq!(store.usage().spilled_bytes, MIB);
    assert!(files(dir.path()) <= 2, "its own file may be the next to go");
    drop(last);
    assert_eq!(store.usage().spilled_bytes, 0);
    drop(store);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "only the folder's lock stays"
    );
}

#[test]
fn what_is_on_disk_can_go_before_the_last_reference() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let kept = put(&store, 1, 768 * KIB);
    let second = put(&store, 2, 768 * KIB);
    assert!(!kept.is_resident());
    store.end_spilling();
    let entries = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(entries, 1, "only the folder's lock stays");
    assert_contents(&second, 2);
    drop(second);
    let error = kept.view().unwrap_err();
    assert!(matches!(error, ReadError::Disk { .. }), "{error}");
    // There is nothing left, or there was no disk.
    store.end_spilling();
    open(MIB).end_spilling();
}

#[test]
fn the_least_recently_used_goes_and_the_pinned_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let objects: Vec<_> = (0..4).map(|n| put(&store, n, 256 * KIB)).collect();
    let pinned = objects[0].view().unwrap();
    assert_contents(&objects[1], 1);
    let _new = put(&store, 4, 256 * KIB);
    let resident: Vec<_> = objects.iter().map(|it| it.is_resident()).collect();
    assert_eq!(resident, [true, true, false, true]);
    let all = put(&store, 5, 768 * KIB);
    let resident: Vec<_> = objects.iter().map(|it| it.is_resident()).collect();
    assert_eq!(resident, [true, false, false, false]);
    assert_eq!(store.usage().pinned_bytes, 256 * KIB);
    assert!(*pinned == *contents(0, 256 * KIB));
    drop(all);
}

#[test]
fn large_objects_are_spilled_before_small_ones_and_copies_are_dropped_before_either() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let small = put(&store, 1, 32 * KIB);
    let large = put(&store, 2, 256 * KIB);
    let copy = put(&store, 3, 256 * KIB);
    copy.set_copy(Copy::Secondary);
    let fill = put(&store, 4, 700 * KIB);
    assert_eq!((small.is_resident(), large.is_resident()), (true, true));
    assert!(matches!(copy.view(), Err(ReadError::Dropped { .. })));
    let _more = put(&store, 5, 700 * KIB);
    assert_eq!((large.is_resident(), fill.is_resident()), (false, false));
    assert!(
        small.is_resident(),
        "although it was used before the others"
    );
}

#[test]
fn when_memory_is_pinned_and_disk_is_full_creates_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 512 * KIB);
    let a = put(&store, 1, 512 * KIB);
    let b = put(&store, 2, 512 * KIB);
    let c = put(&store, 3, 512 * KIB); // `a` is on disk now, which is full.
    assert!(!a.is_resident());
    let mut waiting = Polled::new(create(&store, 4, 512 * KIB));
    assert!(waiting.poll().is_pending());
    let text = waiting.future().error().to_string();
    for part in [
        "1 MiB of 1 MiB",
        "512 KiB of 512 KiB on disk",
        "--object-memory",
        "--spill-size",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    drop(a); // Its file goes, so the disk has room for `b`.
    let writer = block_on(waiting.into_future()).unwrap();
    assert!(!b.is_resident());
    drop(writer);
    assert_contents(&b, 2);
    assert_contents(&c, 3);
    store.check();
}

#[test]
fn a_restore_that_nothing_makes_room_for_fails_or_waits() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 4 * MIB);
    let first = put(&store, 1, 768 * KIB);
    let second = put(&store, 2, 768 * KIB);
    let pin = second.view().unwrap();
    assert!(!first.is_resident());
    let error = first.view().unwrap_err();
    assert!(matches!(error, ReadError::Full { .. }));
    assert!(
        error
            .to_string()
            .contains("768 KiB of that by tasks and clients"),
        "{error}"
    );
    let mut patient = Polled::new(first.restore());
    assert!(patient.poll().is_pending());
    assert_eq!(store.usage().waiting_restores, 1);
    // It may wait for ever, so others don't wait with it.
    let third = put(&store, 3, 200 * KIB);
    drop(pin);
    let view = block_on(first.restore()).unwrap();
    assert!(*view == *contents(1, 768 * KIB));
    drop(patient);
    drop(view);
    assert_contents(&third, 3);
    store.check();
}

#[test]
fn a_cancelled_restore_leaves_the_object_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 4 * MIB);
    let first = put(&store, 1, 768 * KIB);
    let second = put(&store, 2, 768 * KIB);
    let pin = second.view().unwrap();
    let mut restore = Polled::new(first.restore());
    assert!(restore.poll().is_pending());
    drop(restore);
    assert_eq!(store.usage().waiting_restores, 0);
    drop(pin);
    assert!(second.is_resident() && !first.is_resident());
    assert_contents(&first, 1);
    // All that refers to it goes while it is wanted.
    let pin = first.view().unwrap();
    let mut restore = Polled::new(second.restore());
    assert!(restore.poll().is_pending());
    drop(second);
    drop(restore);
    drop(pin);
    store.check();
    assert_eq!(store.usage().objects, 1);
}

#[test]
fn a_disk_that_fails_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let kept = put(&store, 1, 768 * KIB);
    // The folder vanishes: as good as a disk that takes nothing.
    let (path, aside) = (subfolder(dir.path()), dir.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    let mut waiting = Polled::new(create(&store, 2, 768 * KIB));
    assert!(waiting.poll().is_pending());
    while store.usage().disk_errors == 0 {
        std::thread::yield_now();
    }
    assert!(kept.is_resident() && waiting.poll().is_pending());
    assert_contents(&kept, 1);
    assert_eq!(store.usage().spilled_bytes, 0);
    store.check();
    drop(waiting);

    // The disk is back: the next create tries again.
    std::fs::rename(&aside, &path).unwrap();
    let _second = put(&store, 2, 768 * KIB);
    assert!(!kept.is_resident());

    // A file that cannot be read: the error says so, and the object stays for a better day.
    drop(_second);
    std::fs::rename(&path, &aside).unwrap();
    let error = kept.view().unwrap_err();
    assert!(matches!(error, ReadError::Disk { .. }));
    std::fs::rename(&aside, &path).unwrap();
    assert_contents(&kept, 1);
    store.check();
}

/// Changes one bit of the spilled object of this length: its file, and what was in it.
fn spoil(dir: &Path, len: u64) -> (std::path::PathBuf, Vec<u8>) {
    let mut files = std::fs::read_dir(subfolder(dir)).unwrap();
    let is_file_of_it = |path: &std::path::PathBuf| path.metadata().unwrap().len() == len;
    let path = files.find_map(|it| Some(it.unwrap().path()).filter(is_file_of_it));
    let path = path.expect("it is on disk");
    let right = std::fs::read(&path).unwrap();
    let mut wrong = right.clone();
    wrong[700_000] ^= 1;
    std::fs::write(&path, wrong).unwrap();
    (path, right)
}

#[test]
fn bytes_that_changed_on_disk_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let kept = put(&store, 1, 768 * KIB);
    let second = put(&store, 2, 768 * KIB);
    assert!(!kept.is_resident());
    drop(second);
    let (path, right) = spoil(dir.path(), 768 * KIB);
    let error = kept.view().unwrap_err();
    let ReadError::Disk { source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(source.to_string(), "the file changed its bytes");
    assert!(!kept.is_resident() && store.usage().disk_errors > 0);
    // It can be read once the bytes are what they were.
    std::fs::write(&path, right).unwrap();
    assert_contents(&kept, 1);
    store.check();
}

#[test]
fn what_somebody_waits_for_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let kept = put(&store, 1, 768 * KIB);
    drop(put(&store, 2, 768 * KIB));
    spoil(dir.path(), 768 * KIB);
    let mut waiting = [kept.restore(), kept.restore()].map(Polled::new);
    for reader in &mut waiting {
        assert!(reader.poll().is_pending());
    }
    // It cannot be read, and neither has heard so yet.
    while waiting.iter().any(|reader| reader.wakes() == 0) {
        std::thread::yield_now();
    }
    for mut reader in waiting {
        assert!(!kept.give_up(), "somebody waits for it");
        let Poll::Ready(Err(error)) = reader.poll() else {
            panic!("it was read");
        };
        assert!(matches!(error, ReadError::Disk { .. }), "{error}");
    }
    assert!(kept.give_up());
    store.check();
    assert_contents(&put(&store, 1, KIB), 1);
}

#[test]
fn checksums_of_parts_are_kept_with_the_object() {
    let store = Store::open(wasmrun_store::StoreConfig::new(MIB)).unwrap();
    let object = put(&store, 1, 100 * KIB);
    assert_eq!(object.sum(0, KIB), None);
    object.set_sum(0, KIB, 7);
    object.set_sum(0, KIB, 8);
    object.set_sum(0, 2 * KIB, 9);
    assert_eq!(
        (object.sum(0, KIB), object.sum(0, 2 * KIB)),
        (Some(7), None)
    );
    // All references share them.
    assert_eq!(store.get(&id(1)).unwrap().sum(0, KIB), Some(7));
}

#[test]
fn what_is_given_up_leaves_its_id_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let first = put(&store, 1, 600 * KIB);
    let view = first.view().unwrap();
    assert!(!first.give_up(), "somebody looks at it");
    assert!(matches!(
        block_on(create(&store, 1, KIB)),
        Err(wasmrun_store::CreateError::Exists { .. })
    ));
    drop(view);
    assert!(first.give_up() && first.give_up());
    let second = put(&store, 1, 700 * KIB);
    assert!(matches!(first.view(), Err(ReadError::Dropped { .. })));
    // Nor has the one that is gone anything to do with the one that is there.
    drop(first);
    assert_contents(&second, 1);
    // Also from disk.
    let other = put(&store, 2, 800 * KIB);
    while store.usage().spilled_bytes == 0 {
        std::thread::yield_now();
    }
    assert!(second.give_up());
    assert_eq!(store.usage().spilled_bytes, 0);
    store.check();
    let third = put(&store, 1, KIB);
    drop(second);
    assert_contents(&third, 1);
    assert_contents(&other, 2);
    store.check();
}

/// A file system of so many bytes in a folder, which only this thread and those that it starts see;
/// `false` if this process may not mount.
fn mount_small(dir: &Path, bytes: u64) -> bool {
    let path = CString::new(dir.as_os_str().as_encoded_bytes()).unwrap();
    let options = CString::new(format!("size={bytes}")).unwrap();
    let (nothing, tmpfs) = (std::ptr::null(), c"tmpfs".as_ptr());
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: all pointers are C strings or null; the calls change what this thread sees of the files.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, private, nothing.cast()) == 0
            && libc::mount(tmpfs, path.as_ptr(), tmpfs, 0, options.as_ptr().cast()) == 0
    }
}

#[test]
fn a_disk_that_is_full_before_its_time_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    if !mount_small(dir.path(), 768 * KIB) {
        // `files_that_may_not_grow_lose_nothing` needs no such right.
        eprintln!("left out: this process may not mount");
        return;
    }
    // By its limit it could take 64 MiB.
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let a = put(&store, 1, 512 * KIB);
    let b = put(&store, 2, 512 * KIB);
    let c = put(&store, 3, 512 * KIB);
    assert!(!a.is_resident());
    let mut waiting = Polled::new(create(&store, 4, 512 * KIB));
    assert!(waiting.poll().is_pending());
    while store.usage().disk_errors == 0 {
        std::thread::yield_now();
    }
    assert!(waiting.poll().is_pending());
    assert!(b.is_resident() && c.is_resident());
    let why = waiting.future().error().to_string();
    let full = format!("the disk is full ({}: ", dir.path().display());
    assert!(why.contains(&full), "{why}");
    assert_eq!(files(dir.path()), 1, "no half of a file is kept");
    store.check();
    // What goes makes room on both.
    drop(a);
    drop(c);
    drop(block_on(waiting.into_future()).unwrap());
    assert_contents(&b, 2);
    store.check();
}

/// Set for a process in which no file may be longer than some bytes.
const LIMITED: &str = "SPILL_TEST_LIMITED";

/// As a disk that is full, where nothing may be mounted: the same writes fail, with another word for it.
#[test]
fn files_that_may_not_grow_lose_nothing() {
    if std::env::var_os(LIMITED).is_none() {
        // The limit is one of a whole process.
        let test = "files_that_may_not_grow_lose_nothing";
        let limited = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(LIMITED, "1")
            .status();
        assert!(limited.unwrap().success());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 64 * MIB);
    let (a, b) = (put(&store, 1, 512 * KIB), put(&store, 2, 512 * KIB));
    may_not_grow_beyond(256 * KIB);
    let mut waiting = Polled::new(create(&store, 3, 512 * KIB));
    assert!(waiting.poll().is_pending());
    while store.usage().disk_errors == 0 {
        std::thread::yield_now();
    }
    assert!(waiting.poll().is_pending());
    assert!(a.is_resident() && b.is_resident());
    assert_contents(&a, 1);
    assert_contents(&b, 2);
    assert_eq!(store.usage().spilled_bytes, 0);
    assert_eq!(files(dir.path()), 0, "no half of a file is kept");
    store.check();
    // What goes makes room, and what fits a file can go to disk.
    drop(a);
    drop(block_on(waiting.into_future()).unwrap());
    assert_contents(&b, 2);
    drop(b);
    let small: Vec<_> = (4..12).map(|n| put(&store, n, 200 * KIB)).collect();
    assert!(store.usage().spilled_bytes > 0);
    (4..).zip(&small).for_each(|(n, it)| assert_contents(it, n));
    store.check();
}

/// No file that this process writes may grow beyond so many bytes; a write that would is an error.
fn may_not_grow_beyond(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is a value of ours; the signal would end the process instead.
    unsafe {
        assert_ne!(libc::signal(libc::SIGXFSZ, libc::SIG_IGN), libc::SIG_ERR);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn stores_share_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let stores: Vec<_> = (0..3)
        .map(|_| open_with_spill(MIB, dir.path(), 8 * MIB))
        .collect();
    let fill = |store| (0..4).map(|n| put(store, n, 512 * KIB)).collect::<Vec<_>>();
    let objects: Vec<_> = stores.iter().map(fill).collect();
    for objects in &objects {
        (0..)
            .zip(objects)
            .for_each(|(n, object)| assert_contents(object, n));
    }
}

#[test]
fn memory_and_disk_exchange_what_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    // Either takes one of the two, and half of the other.
    let store = open_with_spill(3 * MIB / 2, dir.path(), 3 * MIB / 2);
    let objects = [put(&store, 0, MIB), put(&store, 1, MIB)];
    for round in 0..6 {
        assert_contents(&objects[round % 2], round as u64 % 2);
        store.check();
        assert_eq!(store.usage().spilled_bytes, MIB);
    }
    // One that somebody looks at stays: then there is no room, which is said.
    let view = objects[1].view().unwrap();
    let mut restoring = Polled::new(objects[0].restore());
    assert!(restoring.poll().is_pending());
    let lacking = restoring.future().lacks_room().expect("it waits for room");
    let says = "1 MiB of 1.5 MiB are in use, 1 MiB of that by tasks and clients, and 1 MiB of 1.5 MiB on disk";
    assert!(lacking.to_string().contains(says), "{lacking}");
    drop(view);
    drop(restoring);
    assert_contents(&objects[0], 0);
}
