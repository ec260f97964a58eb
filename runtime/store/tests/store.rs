//! The rules, one by one: creating, sealing, references, room, waiting, errors.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use common::{
    KIB, MIB, Polled, assert_contents, block_on, contents, id, open, open_with_spill, put, tenant,
    try_put,
};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::value::NumberKind;
use wasmrun_store::{
    Backing, Copy, CreateError, Form, Object, ObjectPlace, OpenError, ReadError, SpillConfig,
    Store, StoreConfig, Writer,
};

fn default() -> TenantName {
    TenantName::default()
}

#[test]
fn objects_of_all_sizes_come_back() {
    let store = open(64 * MIB);
    let sizes = [
        0,
        1,
        63,
        64,
        65,
        4096,
        64 * KIB - 1,
        64 * KIB,
        64 * KIB + 1,
        5 * MIB + 3,
    ];
    let objects: Vec<_> = (0..)
        .zip(sizes)
        .map(|(n, len)| put(&store, n, len))
        .collect();
    for (n, object) in (0..).zip(&objects) {
        assert_contents(object, n);
        assert_contents(&store.get(&id(n)).unwrap(), n);
        assert_eq!(object.view().unwrap().as_ptr() as usize % 64, 0);
    }
    store.check();
    drop(objects);
    store.check();
    assert_eq!(store.usage().used_bytes, 0);
    assert_eq!(store.usage().objects, 0);
}

#[test]
fn an_object_is_known_once_it_is_sealed_and_until_it_is_dropped() {
    let store = open(MIB);
    let mut writer = store
        .try_create(&default(), id(1), 5, Form::Buffer(NumberKind::U8))
        .unwrap();
    assert!(store.get(&id(1)).is_none());
    assert_eq!(store.objects()[0].place, ObjectPlace::Writing);
    let again = store.try_create(&default(), id(1), 5, Form::Postcard);
    assert!(matches!(again, Err(CreateError::Exists { .. })));
    writer.copy_from(b"hello");
    let object = writer.seal();
    assert_eq!(
        (object.len(), object.form()),
        (5, Form::Buffer(NumberKind::U8))
    );
    assert_eq!(object.tenant(), &default());
    assert!(try_put(&store, &default(), 1, 5).is_err());
    let view = object.view().unwrap();
    drop(object);
    assert!(store.get(&id(1)).is_some(), "a view is a reference");
    assert_eq!(&*view, b"hello");
    drop(view);
    assert!(store.get(&id(1)).is_none());
    assert_eq!(store.usage().used_bytes, 0);
}

#[test]
fn an_abandoned_writer_leaves_nothing() {
    let store = open(MIB);
    let writer = store
        .try_create(&default(), id(1), MIB, Form::Postcard)
        .unwrap();
    assert_eq!(store.usage().unsealed_bytes, MIB);
    drop(writer);
    assert_eq!(store.usage().used_bytes, 0);
    assert_contents(&put(&store, 1, MIB), 1);
}

#[test]
fn parts_can_be_written_in_any_order() {
    let store = open(8 * MIB);
    let whole = contents(9, 3 * MIB + 5);
    for round in 0..2 {
        let len = whole.len() as u64;
        let mut writer = store
            .try_create(&default(), id(round), len, Form::Postcard)
            .unwrap();
        for start in (0..whole.len())
            .step_by(700_001)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let end = (start + 700_001).min(whole.len());
            writer.write_at(start as u64, &whole[start..end]);
        }
        assert!(*writer.seal().view().unwrap() == *whole);
    }
}

#[test]
fn memory_is_touched_ahead_of_the_writer_and_not_after_it() {
    let store = open(64 * MIB);
    let create = |n, len| {
        let created = store.try_create(&default(), id(n), len, Form::Postcard);
        created.unwrap()
    };
    assert!(
        create(1, MIB).ahead().is_none(),
        "it is not worth the while"
    );
    let whole = contents(9, 5 * MIB + 3);
    let mut writer = create(2, whole.len() as u64);
    let mut ahead = writer.ahead().expect("nobody has touched it");
    let (begun, beginning) = std::sync::mpsc::channel();
    let touching = std::thread::spawn(move || {
        while ahead.touch_more() {
            let _ = begun.send(());
        }
        ahead
    });
    beginning.recv().unwrap();
    writer.copy_from(&whole);
    let object = writer.seal();
    let mut ahead = touching.join().unwrap();
    assert!(!ahead.touch_more());
    assert!(*object.view().unwrap() == *whole);
    drop(object);
    // As much of it as the capacity allows goes to somebody else, so it is given back first.
    let writer = create(3, 40 * MIB);
    let mut ahead = writer.ahead().expect("nobody has touched it");
    assert!(ahead.touch_more());
    drop(writer);
    assert!(!ahead.touch_more(), "it is somebody else's by now");
    store.check();
}

#[test]
fn touched_memory_is_used_again() {
    let store = open(64 * MIB);
    let first = put(&store, 1, 4 * MIB);
    let place = first.view().unwrap().as_ptr();
    drop(first);
    assert_eq!(store.usage().warm_bytes, 4 * MIB);
    let second = put(&store, 2, 3 * MIB);
    assert_eq!(second.view().unwrap().as_ptr(), place);
    assert_eq!(store.usage().warm_bytes, MIB);
}

#[test]
fn warm_memory_makes_way_for_another_size() {
    // 16 holes between objects that stay: no extent is long enough, yet there is room.
    let store = open(4 * MIB);
    let mut objects: Vec<_> = (0..32).map(|n| put(&store, n, 128 * KIB)).collect();
    let mut n = 0;
    objects.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    let large = try_put(&store, &default(), 100, 2 * MIB).unwrap();
    assert_contents(&large, 100);
    objects.iter().for_each(|it| assert!(it.is_resident()));
    let usage = store.usage();
    assert_eq!(
        (usage.used_bytes, usage.warm_bytes, usage.free_bytes),
        (4 * MIB, 0, 0)
    );
    store.check();
    // The holes were really given back.
    let view = large.view().unwrap();
    let segment = rustix::fs::fstat(view.pages().unwrap().fd).unwrap();
    assert_eq!(segment.st_blocks as u64 * 512, 4 * MIB);
}

#[test]
fn what_can_never_fit_is_told_apart_from_what_does_not_fit_now() {
    let store = open(MIB);
    let error = store
        .try_create(&default(), id(1), MIB + 1, Form::Postcard)
        .unwrap_err();
    assert!(matches!(error, CreateError::TooLarge { .. }));
    let text = error.to_string();
    assert!(
        text.contains("1 MiB") && text.contains("--object-memory"),
        "{text}"
    );
    assert!(
        store
            .try_create(&default(), id(1), u64::MAX, Form::Postcard)
            .is_err()
    );

    let object = put(&store, 1, 768 * KIB);
    let view = object.view().unwrap();
    let error = try_put(&store, &default(), 2, 512 * KIB).unwrap_err();
    assert!(matches!(error, CreateError::Full { .. }));
    let text = error.to_string();
    for part in [
        "512 KiB",
        "768 KiB of 1 MiB",
        "768 KiB of that",
        "--spill-dir",
        "--object-memory",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    drop((view, object));
    assert!(try_put(&store, &default(), 2, 512 * KIB).is_ok());
}

#[test]
fn creates_wait_their_turn() {
    let store = open(MIB);
    let object = put(&store, 1, MIB);
    let create = |n, len| Polled::new(store.create(&default(), id(n), len, Form::Postcard));
    let (mut large, mut small, mut cancelled) = (create(2, MIB), create(3, KIB), create(4, KIB));
    assert!(large.poll().is_pending());
    assert!(cancelled.poll().is_pending());
    assert!(small.poll().is_pending());
    assert_eq!(store.usage().waiting_creates, 3);
    let text = small.future().error().to_string();
    assert!(text.contains("2 others wait"), "{text}");
    drop(cancelled);
    let text = small.future().error().to_string();
    assert!(text.contains("another one waits"), "{text}");

    drop(object);
    assert_eq!(
        (large.wakes(), small.wakes()),
        (1, 0),
        "there is room for the first only"
    );
    // Nobody overtakes, not even what would fit.
    assert!(matches!(
        try_put(&store, &default(), 5, 1),
        Err(CreateError::Full { .. })
    ));
    let Poll::Ready(Ok(writer)) = large.poll() else {
        panic!("its turn has come")
    };
    drop(writer);
    assert_eq!(small.wakes(), 1);
    assert!(matches!(small.poll(), Poll::Ready(Ok(_))));
    store.check();
}

#[test]
fn a_cancelled_waiter_lets_the_next_one_go_first() {
    let store = open(MIB);
    let object = put(&store, 1, MIB / 2);
    let create = |n, len| Polled::new(store.create(&default(), id(n), len, Form::Postcard));
    let (mut first, mut second) = (create(2, MIB), create(3, MIB / 2));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(first);
    assert_eq!(second.wakes(), 1);

    // Cancelled after it was served, before it knows.
    drop(second);
    assert_eq!(store.usage().used_bytes, MIB / 2);
    assert_eq!(store.usage().objects, 1);
    drop(object);
    store.check();
}

#[test]
fn of_two_waiting_creates_of_one_id_the_second_fails() {
    let store = open(MIB);
    let object = put(&store, 1, MIB);
    let create = || Polled::new(store.create(&default(), id(2), KIB, Form::Postcard));
    let (mut first, mut second) = (create(), create());
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(object);
    assert!(matches!(first.poll(), Poll::Ready(Ok(_))));
    assert!(matches!(
        second.poll(),
        Poll::Ready(Err(CreateError::Exists { .. }))
    ));
}

#[test]
fn secondary_copies_go_first_and_readers_are_told() {
    let store = open(MIB);
    let old = put(&store, 1, 256 * KIB);
    let young = put(&store, 2, 256 * KIB);
    let primary = put(&store, 3, 256 * KIB);
    let pinned = put(&store, 4, 256 * KIB);
    for object in [&old, &young, &pinned] {
        object.set_copy(Copy::Secondary);
    }
    assert_eq!(store.usage().droppable_bytes, 768 * KIB);
    let view = pinned.view().unwrap();
    assert_contents(&old, 1); // Now `young` was used least recently.
    let new = try_put(&store, &default(), 5, 256 * KIB).unwrap();
    assert!(matches!(young.view(), Err(ReadError::Dropped { .. })));
    assert!(store.get(&id(2)).is_none());
    assert_eq!((old.is_resident(), young.is_resident()), (true, false));
    // Even all that may go would not be enough, so nothing goes.
    assert!(try_put(&store, &default(), 6, 512 * KIB).is_err());
    assert!(old.is_resident());

    // It is fetched again, beside a reference to what was dropped.
    drop(new);
    let mut writer = store
        .try_create(&default(), id(2), 256 * KIB, Form::Postcard)
        .unwrap();
    writer.copy_from(&contents(2, 256 * KIB));
    let again = writer.seal_as(Copy::Secondary);
    assert_eq!(again.copy(), Copy::Secondary);
    assert!(young.view().is_err());
    drop(young);
    assert_contents(&store.get(&id(2)).unwrap(), 2);
    old.set_copy(Copy::Primary);
    drop((view, primary));
    store.check();
}

#[test]
fn a_store_needs_a_page() {
    let error = Store::open(StoreConfig::new(100)).unwrap_err();
    assert!(matches!(error, OpenError::TooSmall { .. }));
    assert!(error.to_string().contains("100 bytes"), "{error}");
}

#[test]
fn files_in_a_folder_serve_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let backing = Backing::Dir(dir.path().into());
    let store = Store::open(StoreConfig {
        backing,
        ..StoreConfig::new(16 * MIB)
    })
    .unwrap();
    let objects: Vec<_> = (0..8).map(|n| put(&store, n, n * 300 * KIB)).collect();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the files have no names"
    );
    (0..)
        .zip(&objects)
        .for_each(|(n, object)| assert_contents(object, n));
    drop(objects);
    assert_contents(&put(&store, 50, 16 * MIB), 50);
    store.check();
}

#[test]
fn a_folder_is_made_for_us_alone_and_cleaned() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("made/objects");
    let open = || {
        Store::open(StoreConfig {
            backing: Backing::Dir(dir.clone()),
            ..StoreConfig::new(MIB)
        })
    };
    assert_contents(&put(&open().unwrap(), 1, 300 * KIB), 1);
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // Of a store that was killed while it made a file, and of somebody else.
    let (left, other) = (dir.join("wasmrun-objects-x1y2"), dir.join("notes"));
    std::fs::write(&left, "left").unwrap();
    std::fs::write(&other, "mine").unwrap();
    drop(open().unwrap());
    assert!(!left.exists() && other.exists());
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let error = Store::open(StoreConfig {
        backing: Backing::Dir("/proc/nonexistent".into()),
        ..StoreConfig::new(MIB)
    })
    .unwrap_err();
    assert!(error.to_string().contains("--object-dir"), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig {
        backing: Backing::Dir(dir.path().into()),
        ..StoreConfig::new(MIB)
    })
    .unwrap();
    dir.close().unwrap();
    let error = try_put(&store, &default(), 1, 10).unwrap_err();
    assert!(matches!(error, CreateError::Memory { .. }));
    store.check();

    let dir = "/proc/nonexistent".into();
    let spill = Some(SpillConfig {
        dir,
        capacity_bytes: MIB,
    });
    let error = Store::open(StoreConfig {
        spill,
        ..StoreConfig::new(MIB)
    })
    .unwrap_err();
    assert!(error.to_string().contains("--spill-dir"), "{error}");
}

#[test]
fn nothing_of_one_tenant_reaches_another() {
    let dir = tempfile::tempdir().unwrap();
    for backing in [Backing::Memfd, Backing::Dir(dir.path().into())] {
        for len in [100, 60 * KIB, 64 * KIB, 300 * KIB, MIB] {
            let config = StoreConfig::new(MIB);
            keep_apart(
                &Store::open(StoreConfig {
                    backing: backing.clone(),
                    ..config
                })
                .unwrap(),
                len,
            );
        }
    }
}

/// One tenant fills the store, then lets go of every second object, then of all. Each time another
/// one takes all it can get.
fn keep_apart(store: &Store, len: u64) {
    let (red, blue) = (tenant("red"), tenant("blue"));
    let mut secrets = fill_store(store, &red, 0, len, |writer| writer.fill(0xaa));
    let mut n = 0;
    secrets.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    for round in 0..2 {
        let others = fill_store(store, &blue, 1_000_000, len, |writer| {
            assert!(writer.iter().all(|byte| *byte == 0), "{len} bytes, {round}");
        });
        // Holes without a whole page stay with their tenant.
        assert_eq!(others.is_empty(), len == 100 && round == 0);
        store.check();
        drop(others);
        secrets.clear();
        assert_eq!(store.usage().tenants.get(&red), None);
    }
}

fn fill_store(
    store: &Store,
    who: &TenantName,
    first: u64,
    len: u64,
    write: impl Fn(&mut Writer),
) -> Vec<Object> {
    let mut objects = Vec::new();
    while let Ok(mut writer) =
        store.try_create(who, id(first + objects.len() as u64), len, Form::Postcard)
    {
        write(&mut writer);
        objects.push(writer.seal());
    }
    objects
}

#[test]
fn memory_that_others_may_see_never_changes_its_tenant() {
    let store = open(2 * MIB);
    let (red, blue) = (tenant("red"), tenant("blue"));
    let shared = try_put(&store, &red, 1, MIB).unwrap();
    let neighbour = try_put(&store, &red, 2, MIB).unwrap();
    let segment = |object: &Object| object.view().unwrap().pages().unwrap().segment;
    let red_segment = segment(&shared);
    assert_eq!(red_segment, segment(&neighbour));
    let fd = {
        let view = shared.view().unwrap();
        view.shareable_pages()
            .unwrap()
            .unwrap()
            .fd
            .try_clone_to_owned()
            .unwrap()
    };
    drop(shared);
    // The pages cannot be given back one by one any more: the neighbour keeps all of them.
    assert!(matches!(
        try_put(&store, &blue, 3, MIB),
        Err(CreateError::Full { .. })
    ));
    let again = try_put(&store, &red, 4, MIB).unwrap();
    assert_eq!(segment(&again), red_segment);
    drop((again, neighbour));
    let other = try_put(&store, &blue, 3, MIB).unwrap();
    assert_ne!(segment(&other), red_segment);
    store.check();

    // Whoever still has the descriptor sees what was there before.
    let mut bytes = [0; 64];
    use std::os::unix::fs::FileExt;
    std::fs::File::from(fd)
        .read_exact_at(&mut bytes, 0)
        .unwrap();
    assert_eq!(bytes, contents(4, MIB)[..64]);
}

#[test]
fn the_tail_of_the_last_page_is_cleared() {
    let store = open(MIB);
    let mut writer = store
        .try_create(&default(), id(1), MIB, Form::Postcard)
        .unwrap();
    writer.fill(0xff);
    drop(writer);
    let object = put(&store, 2, 64 * KIB + 1);
    let view = object.view().unwrap();
    let pages = view.pages().unwrap();
    assert_eq!(pages.offset_bytes % 4096, 0);
    let file = std::fs::File::from(pages.fd.try_clone_to_owned().unwrap());
    let mut page = [1; 4096];
    use std::os::unix::fs::FileExt;
    file.read_exact_at(&mut page, pages.offset_bytes + 64 * KIB)
        .unwrap();
    assert_eq!(page[0], contents(2, 64 * KIB + 1)[64 * KIB as usize]);
    assert!(page[1..].iter().all(|byte| *byte == 0));
    assert!(
        put(&store, 3, 100).view().unwrap().pages().is_none(),
        "small ones share pages"
    );
}

#[test]
fn the_kinds_of_spilled_and_waiting_work_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 4 * MIB);
    let first = put(&store, 1, 512 * KIB);
    let _second = put(&store, 2, 512 * KIB);
    let _third = put(&store, 3, 512 * KIB);
    let usage = store.usage();
    assert_eq!((usage.used_bytes, usage.spilled_bytes), (MIB, 512 * KIB));
    assert_eq!(usage.tenants[&default()].spilled_bytes, 512 * KIB);
    let places: Vec<_> = store
        .objects()
        .into_iter()
        .filter(|it| it.id == id(1))
        .collect();
    assert_eq!(places[0].place, ObjectPlace::Disk);
    assert!(!first.is_resident() && first.try_view().is_none());
    assert_contents(&first, 1);
    let view = block_on(first.restore()).unwrap();
    assert_eq!(view.len() as u64, first.len());
    store.check();
}

#[test]
fn the_largest_objects_own_huge_pages() {
    const HUGE: u64 = 2 * MIB;
    let store = open(100 * MIB);
    let (red, blue) = (tenant("red"), tenant("blue"));
    let first = try_put(&store, &red, 1, 33 * MIB).unwrap();
    let second = try_put(&store, &red, 2, 32 * MIB + 1).unwrap();
    assert_eq!(store.usage().used_bytes, 68 * MIB);
    for (n, object) in [(1, &first), (2, &second)] {
        let view = object.view().unwrap();
        assert_eq!(view.pages().unwrap().offset_bytes % HUGE, 0);
        assert_contents(object, n);
    }
    // A descriptor for others cannot write, wherever the pages come from.
    let view = first.view().unwrap();
    let shared = view.shareable_pages().unwrap().unwrap();
    assert!(rustix::io::pwrite(shared.fd, b"x", shared.offset_bytes).is_err());
    drop(view);
    store.check();
    // Another tenant needs memory that was theirs: it comes back as zeros, in whole huge pages.
    drop(second);
    let writer = store
        .try_create(&blue, id(3), 66 * MIB, Form::Postcard)
        .unwrap();
    assert!(writer.iter().all(|byte| *byte == 0));
    store.check();
    drop(writer);
    // The same memory again: what was there before does not show.
    let again = try_put(&store, &red, 4, 33 * MIB).unwrap();
    assert_contents(&again, 4);
    assert_contents(&first, 1);
    store.check();
}

#[test]
fn whoever_watches_a_segment_hears_that_it_is_closed() {
    let told = Arc::new(AtomicU64::new(0));
    let tell = |times: u64| {
        let told = told.clone();
        move || {
            told.fetch_add(times, Ordering::SeqCst);
        }
    };
    let store = open(64 * MIB);
    let object = put(&store, 1, MIB);
    let view = object.view().unwrap();
    let watch = view.watch_segment(tell(1));
    drop(view.watch_segment(tell(100)));
    drop(view);
    drop(object);
    assert_eq!(
        told.load(Ordering::SeqCst),
        0,
        "it is kept to be used again"
    );
    drop(store);
    assert_eq!(told.load(Ordering::SeqCst), 1);
    // When nobody is left to hear of it, that is no matter.
    drop(watch);
}
