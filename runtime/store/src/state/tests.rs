//! What may happen while the disk is busy, with a disk that is this test: it gets the jobs and
//! finishes them when it likes.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::task::{Context, Poll, Waker};

use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::id::{DriverId, ObjectId};

use crate::config::{SpillConfig, StoreConfig};
use crate::create::{CreateFuture, Writer};
use crate::object::Object;
use crate::segment::Extent;
use crate::store::Store;

use super::disk::OnDisk;
use super::{Form, Job, ReadError, State};

const CAPACITY: u64 = 1 << 20;

fn id(n: u64) -> ObjectId {
    ObjectId::of(DriverId::from_bytes([1; 16]).task(n), 0)
}

/// A store, and the jobs of its disk.
struct World {
    store: Store,
    jobs: Receiver<Job>,
}

impl World {
    fn new() -> Self {
        Self::with_disk(2 * CAPACITY)
    }

    fn with_disk(capacity_bytes: u64) -> Self {
        let spill = Some(SpillConfig {
            dir: PathBuf::new(),
            capacity_bytes,
        });
        let (store, jobs) = Store::with_jobs(&StoreConfig {
            spill,
            ..StoreConfig::new(CAPACITY)
        });
        Self { store, jobs }
    }

    fn create(&self, n: u64) -> CreateFuture {
        self.create_of(n, CAPACITY)
    }

    fn create_of(&self, n: u64, len: u64) -> CreateFuture {
        self.create_for(&TenantName::default(), n, len)
    }

    fn create_for(&self, tenant: &TenantName, n: u64, len: u64) -> CreateFuture {
        self.store.create(tenant, id(n), len, Form::Postcard)
    }

    /// Objects of a tenant that may have one of them in memory: all but the last are on disk.
    fn under_a_quota(&self, numbers: std::ops::Range<u64>, len: u64) -> Vec<Object> {
        let tenant = "b".parse().unwrap();
        self.store.set_tenant(&tenant, Weight::ONE, Some(len));
        let put = |n| {
            let mut create = pin!(self.create_for(&tenant, n, len));
            let writer = match poll(create.as_mut()) {
                Poll::Ready(writer) => writer,
                Poll::Pending => {
                    self.spilled(self.spilling(), Ok(()));
                    let Poll::Ready(writer) = poll(create) else {
                        panic!("there is room")
                    };
                    writer
                }
            };
            write(writer.unwrap(), n)
        };
        numbers.map(put).collect()
    }

    fn put(&self, n: u64) -> Object {
        self.put_of(n, CAPACITY)
    }

    fn put_of(&self, n: u64, len: u64) -> Object {
        let created = self
            .store
            .try_create(&TenantName::default(), id(n), len, Form::Postcard);
        write(created.unwrap(), n)
    }

    /// An object for which another one goes to disk.
    fn put_instead(&self, n: u64, len: u64) -> Object {
        let mut create = pin!(self.create_of(n, len));
        assert!(poll(create.as_mut()).is_pending());
        self.spilled(self.spilling(), Ok(()));
        let Poll::Ready(Ok(writer)) = poll(create) else {
            panic!("there is room")
        };
        write(writer, n)
    }

    /// The job that the disk has been given.
    fn spilling(&self) -> (OnDisk, Arc<Extent>) {
        match self.jobs.try_recv() {
            Ok(Job::Spill { it, extent }) => (it, extent),
            other => panic!("{other:?}"),
        }
    }

    fn is_removing(&self) -> bool {
        matches!(self.jobs.try_recv(), Ok(Job::Remove(_)))
    }

    fn spilled(&self, (it, extent): (OnDisk, Arc<Extent>), result: io::Result<()>) {
        self.store
            .shared()
            .with(|state| state.spilled(it, extent, result));
        self.store.check();
    }

    /// Object 1 on disk, and object 2 in its place.
    fn with_one_on_disk() -> (Self, Object, Object) {
        Self::new().one_on_disk()
    }

    fn one_on_disk(self) -> (Self, Object, Object) {
        let first = self.put(1);
        let second = self.put_instead(2, CAPACITY);
        (self, first, second)
    }
}

fn write(mut writer: Writer, n: u64) -> Object {
    writer.fill(n as u8);
    writer.seal()
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn whoever_looks_at_an_object_that_is_being_spilled_keeps_it() {
    let world = World::new();
    let object = world.put(1);
    let mut create = pin!(world.create(2));
    assert!(poll(create.as_mut()).is_pending());
    let job = world.spilling();
    assert!(object.is_resident());
    let view = object.view().unwrap();
    world.spilled(job, Ok(()));
    assert!(object.is_resident() && world.is_removing());
    assert!(poll(create.as_mut()).is_pending());
    assert!(view.iter().all(|byte| *byte == 1));
    assert_eq!(world.store.usage().spilled_bytes, 0);

    // The create still waits: as soon as nobody looks, it is tried again.
    drop(view);
    world.spilled(world.spilling(), Ok(()));
    assert!(!object.is_resident());
    assert!(matches!(poll(create), Poll::Ready(Ok(_))));
}

#[test]
fn an_object_that_goes_while_it_is_being_spilled_leaves_nothing() {
    let world = World::new();
    let object = world.put(1);
    let mut create = pin!(world.create(1));
    assert!(
        matches!(poll(create.as_mut()), Poll::Ready(Err(_))),
        "the id is taken"
    );
    let mut create = pin!(world.create(2));
    assert!(poll(create.as_mut()).is_pending());
    let job = world.spilling();
    drop(object);
    world.store.check();
    assert!(
        poll(create.as_mut()).is_pending(),
        "the disk still reads from its room"
    );
    // The id is free at once.
    let mut again = pin!(world.create(1));
    assert!(poll(again.as_mut()).is_pending());
    world.spilled(job, Ok(()));
    assert!(world.is_removing());
    let Poll::Ready(Ok(writer)) = poll(create) else {
        panic!("there is room")
    };
    drop(writer);
    assert!(matches!(poll(again), Poll::Ready(Ok(_))));
}

#[test]
fn a_disk_that_takes_nothing_is_not_asked_again_until_something_changes() {
    let world = World::new();
    let object = world.put(1);
    let mut create = pin!(world.create(2));
    assert!(poll(create.as_mut()).is_pending());
    world.spilled(world.spilling(), Err(io::ErrorKind::StorageFull.into()));
    assert!(world.is_removing(), "what there is of the file");
    assert!(world.jobs.try_recv().is_err());
    assert!(object.view().unwrap().iter().all(|byte| *byte == 1));
    assert!(
        world.jobs.try_recv().is_err(),
        "nothing has changed for the disk"
    );
    let mut another = pin!(world.create(3));
    assert!(poll(another.as_mut()).is_pending());
    world.spilled(world.spilling(), Ok(()));
    assert!(matches!(poll(create), Poll::Ready(Ok(_))));
    assert_eq!(world.store.usage().disk_errors, 1);
}

#[test]
fn all_who_wait_for_a_restore_get_it_or_its_error() {
    let (world, first, second) = World::with_one_on_disk();
    drop(second);
    let mut restores = [pin!(first.restore()), pin!(first.restore())];
    for restore in &mut restores {
        assert!(poll(restore.as_mut()).is_pending());
    }
    let Ok(Job::Restore { it, room }) = world.jobs.try_recv() else {
        panic!("it is wanted")
    };
    let error = io::Error::from(io::ErrorKind::InvalidData);
    world
        .store
        .shared()
        .with(|state| state.restored(it, room.extent, Err(error)));
    world.store.check();
    for restore in &mut restores {
        let result = poll(restore.as_mut());
        assert!(matches!(result, Poll::Ready(Err(ReadError::Disk { .. }))));
    }
    let usage = world.store.usage();
    assert_eq!(
        (usage.used_bytes, usage.spilled_bytes, usage.disk_errors),
        (0, CAPACITY, 1)
    );

    // It is still there, and the next attempt may succeed.
    let mut restore = pin!(first.restore());
    assert!(poll(restore.as_mut()).is_pending());
    let Ok(Job::Restore { it, mut room }) = world.jobs.try_recv() else {
        panic!("it is wanted")
    };
    room.extent.write(0, &[9; CAPACITY as usize], room.fresh);
    world
        .store
        .shared()
        .with(|state| state.restored(it, room.extent, Ok(())));
    let Poll::Ready(Ok(view)) = poll(restore) else {
        panic!("it is there")
    };
    assert!(view.iter().all(|byte| *byte == 9));
    assert!(world.is_removing());
    world.store.check();
}

#[test]
fn an_object_that_goes_while_it_is_being_restored_leaves_nothing() {
    let (world, first, second) = World::with_one_on_disk();
    drop(second);
    let mut restore = Box::pin(first.restore());
    assert!(poll(restore.as_mut()).is_pending());
    let Ok(Job::Restore { it, room }) = world.jobs.try_recv() else {
        panic!("it is wanted")
    };
    drop((restore, first));
    world.store.check();
    assert_eq!(world.store.usage().objects, 0);
    world
        .store
        .shared()
        .with(|state| state.restored(it, room.extent, Ok(())));
    assert!(world.is_removing());
    world.store.check();
    let usage = world.store.usage();
    assert_eq!((usage.used_bytes, usage.spilled_bytes), (0, 0));
}

#[test]
fn restores_go_before_creates() {
    let (world, first, second) = World::with_one_on_disk();
    let pin = second.view().unwrap();
    let mut create = pin!(world.create(3));
    let mut restore = Box::pin(first.restore());
    assert!(poll(create.as_mut()).is_pending());
    assert!(poll(restore.as_mut()).is_pending());
    drop(pin);
    world.spilled(world.spilling(), Ok(()));
    assert!(!second.is_resident());
    let Ok(Job::Restore { it, room }) = world.jobs.try_recv() else {
        panic!("it is wanted")
    };
    assert!(poll(create.as_mut()).is_pending());
    let restored = |state: &mut State| state.restored(it, room.extent, Ok(()));
    world.store.shared().with(restored);
    // It stays for the one who wanted it, although the create still waits.
    assert!(first.is_resident() && world.is_removing() && world.jobs.try_recv().is_err());
    assert!(matches!(poll(restore.as_mut()), Poll::Ready(Ok(_))));
    world.spilled(world.spilling(), Ok(()));
    assert!(matches!(poll(create), Poll::Ready(Ok(_))));
}

#[test]
fn an_exchange_with_a_full_disk_is_completed_when_its_readers_leave() {
    let (world, first, second) = World::with_disk(CAPACITY).one_on_disk();
    for is_written in [false, true] {
        let mut restore = Box::pin(first.restore());
        assert!(poll(restore.as_mut()).is_pending());
        let job = world.spilling();
        drop(restore);
        assert_eq!(world.store.usage().spilled_bytes, 2 * CAPACITY);
        if !is_written {
            world.spilled(job, Err(io::ErrorKind::StorageFull.into()));
            assert!(world.is_removing());
            assert!(world.jobs.try_recv().is_err(), "nobody wants it");
            continue;
        }
        world.spilled(job, Ok(()));
        let Ok(Job::Restore { it, room }) = world.jobs.try_recv() else {
            panic!("there is more on disk than may be")
        };
        let restored = |state: &mut State| state.restored(it, room.extent, Ok(()));
        world.store.shared().with(restored);
        assert!(first.is_resident() && !second.is_resident() && world.is_removing());
    }
    world.store.check();
    assert_eq!(world.store.usage().spilled_bytes, CAPACITY);
}

#[test]
fn a_restore_that_nothing_makes_room_for_lets_others_pass() {
    let world = World::new();
    let (long, short) = (
        world.put_of(1, 3 * CAPACITY / 4),
        world.put_of(2, CAPACITY / 4),
    );
    let pinned = world.put_instead(3, 3 * CAPACITY / 4);
    let view = pinned.view().unwrap();
    let parked = world.put_instead(4, CAPACITY / 4);
    assert!(!long.is_resident() && !short.is_resident());

    let mut first = Box::pin(long.restore());
    assert!(poll(first.as_mut()).is_pending());
    assert!(matches!(long.view(), Err(ReadError::Full { .. })));
    let mut second = Box::pin(short.restore());
    assert!(poll(second.as_mut()).is_pending());
    world.spilled(world.spilling(), Ok(()));
    assert!(!parked.is_resident());
    let Ok(Job::Restore { it, room }) = world.jobs.try_recv() else {
        panic!("there is room for the short one")
    };
    assert_eq!(it.id, id(2));
    let restored = |state: &mut State| state.restored(it, room.extent, Ok(()));
    world.store.shared().with(restored);
    assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(_))));
    assert!(poll(first.as_mut()).is_pending());
    drop(view);
    world.store.check();
}

#[test]
fn a_restore_that_waits_for_a_quota_holds_up_no_other_tenant() {
    const LEN: u64 = CAPACITY / 4;
    let world = World::new();
    let of_b = world.under_a_quota(1..3, LEN);
    let view = of_b[1].view().unwrap();
    let mut restore = pin!(of_b[0].restore());
    assert!(poll(restore.as_mut()).is_pending());
    let mut others: Vec<_> = (3..6).map(|n| world.put_of(n, LEN)).collect();
    let mut create = pin!(world.create_of(6, LEN));
    assert!(poll(create.as_mut()).is_pending());
    let job = world.spilling();
    assert_eq!(job.0.id, id(3));
    // While something goes to disk there is room.
    drop(others.pop());
    let Poll::Ready(Ok(writer)) = poll(create) else {
        panic!("there is room")
    };
    drop(writer);
    assert!(matches!(of_b[0].view(), Err(ReadError::Full { .. })));
    world.spilled(job, Ok(()));
    drop(view);
    world.spilled(world.spilling(), Ok(()));
    assert!(matches!(world.jobs.try_recv(), Ok(Job::Restore { .. })));
}

#[test]
fn many_restores_of_one_tenant_hold_up_none_of_another() {
    let world = World::new();
    let of_b = world.under_a_quota(10..110, 1024);
    let _view = of_b.last().unwrap().view().unwrap();
    let long = world.put_of(1, CAPACITY / 2);
    let instead = world.put_instead(2, CAPACITY / 2);
    assert!(!long.is_resident());
    drop(instead);
    let mut restores: Vec<_> = of_b[..99].iter().map(|it| Box::pin(it.restore())).collect();
    let all = restores.iter_mut();
    assert!(all.map(|it| poll(it.as_mut())).all(|it| it.is_pending()));
    let mut restore = pin!(long.restore());
    assert!(poll(restore.as_mut()).is_pending());
    let Ok(Job::Restore { it, .. }) = world.jobs.try_recv() else {
        panic!("there is room")
    };
    assert_eq!(it.id, id(1));
}
