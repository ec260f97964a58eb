//! Many threads at once, under pressure.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use common::{KIB, MIB, assert_contents, block_on, contents, id, open_with_spill, put, tenant};
use wasmrun_store::{Copy, Form, ReadError, Store};

const THREADS: u64 = 4;
const OBJECTS: u64 = 150;

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn contents_survive_pressure_from_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(2 * MIB, dir.path(), 256 * MIB);
    let restored = AtomicU64::new(0);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (store, restored) = (store.clone(), &restored);
            scope.spawn(move || busy(&store, t, restored));
        }
    });
    store.check();
    let usage = store.usage();
    assert_eq!(
        (usage.used_bytes, usage.spilled_bytes, usage.objects),
        (0, 0, 0)
    );
    assert!(restored.into_inner() > 0, "there was no pressure");
}

/// Makes, keeps, reads and drops objects, always at most 16 at a time and one of them pinned.
fn busy(store: &Store, t: u64, restored: &AtomicU64) {
    let mut dice = Dice(t);
    let mut kept = Vec::new();
    let who = tenant(["red", "blue"][t as usize % 2]);
    for n in t * OBJECTS..(t + 1) * OBJECTS {
        let len = [100, 3_000, 70 * KIB, 150 * KIB, 300 * KIB][dice.throw(5) as usize];
        let mut writer = block_on(store.create(&who, id(n), len, Form::Postcard)).unwrap();
        writer.copy_from(&contents(n, len));
        let is_copy = dice.throw(4) == 0;
        let copy = if is_copy {
            Copy::Secondary
        } else {
            Copy::Primary
        };
        kept.push((n, is_copy, writer.seal_as(copy)));
        if kept.len() > 16 {
            kept.swap_remove(dice.throw(16) as usize);
        }
        let (n, is_copy, object) = &kept[dice.throw(kept.len() as u64) as usize];
        if !object.is_resident() {
            restored.fetch_add(1, Ordering::Relaxed);
        }
        match block_on(object.restore()) {
            Ok(view) => assert!(
                *view == *contents(*n, object.len()),
                "object {n} has other bytes"
            ),
            Err(ReadError::Dropped { .. }) => assert!(is_copy, "object {n} was lost"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn many_wait_for_one_restore() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_spill(MIB, dir.path(), 16 * MIB);
    let objects = [put(&store, 0, 700 * KIB), put(&store, 1, 700 * KIB)];
    thread::scope(|scope| {
        for t in 0..8 {
            let objects = &objects;
            scope.spawn(move || {
                for round in 0..10 {
                    let n = (t + round) % 2;
                    let view = block_on(objects[n].restore()).unwrap();
                    assert_eq!(view[..64], contents(n as u64, 64)[..]);
                }
            });
        }
    });
    (0..)
        .zip(&objects)
        .for_each(|(n, object)| assert_contents(object, n));
    store.check();
}

#[test]
fn an_id_whose_last_reference_is_going_can_be_used_again() {
    let store = common::open(MIB);
    let who = tenant("red");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    match store.try_create(&who, id(1), 64, Form::Postcard) {
                        Ok(mut writer) => {
                            writer.copy_from(&contents(1, 64));
                            drop(writer.seal());
                        }
                        Err(_) => {
                            if let Some(object) = store.get(&id(1)) {
                                assert_contents(&object, 1);
                            }
                        }
                    }
                }
            });
        }
    });
    store.check();
    assert_eq!(store.usage().objects, 0);
}
