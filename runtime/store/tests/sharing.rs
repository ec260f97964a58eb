//! Tenants that share the memory: parts by weight, quotas, who is served first.

mod common;

use common::{MIB, Polled, assert_contents, block_on, contents, id, open_with_spill, tenant};
use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_store::{CreateError, CreateFuture, Form, Object, Store};

const CAPACITY: u64 = 8 * MIB;

struct World {
    store: Store,
    a: TenantName,
    b: TenantName,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            store: open_with_spill(CAPACITY, dir.path(), 1 << 30),
            a: tenant("a"),
            b: tenant("b/x"),
            _dir: dir,
        }
    }

    fn create(&self, who: &TenantName, n: u64, len: u64) -> CreateFuture {
        self.store.create(who, id(n), len, Form::Postcard)
    }

    /// Objects of 1 MiB, with numbers from this one on.
    fn put(&self, who: &TenantName, from: u64, count: u64) -> Vec<Object> {
        let put = |n| self.put_one(who, n, MIB);
        (from..from + count).map(put).collect()
    }

    fn put_one(&self, who: &TenantName, n: u64, len: u64) -> Object {
        let mut writer = block_on(self.create(who, n, len)).unwrap();
        writer.copy_from(&contents(n, len));
        writer.seal()
    }

    /// What both have in memory, in MiB.
    fn in_memory(&self) -> (u64, u64) {
        let usage = self.store.usage();
        let of = |who: &TenantName| usage.tenants.get(who).map_or(0, |it| it.used_bytes / MIB);
        (of(&self.a), of(&self.b))
    }
}

#[test]
fn a_tenant_within_its_part_loses_nothing_to_another() {
    let world = World::new();
    let (a, b) = (&world.a, &world.b);
    let _first = world.put(a, 0, 8);
    assert_eq!(world.in_memory(), (8, 0), "what nobody else wants is used");
    let kept = world.put(b, 100, 4);
    assert_eq!(world.in_memory(), (4, 4));
    let _more = world.put(a, 8, 20);
    assert!(kept.iter().all(Object::is_resident));
    assert_eq!(world.store.usage().tenants[b].spilled_bytes, 0);
    // Beyond its part it pays for itself.
    let _last = world.put(b, 104, 3);
    assert_eq!(world.in_memory(), (4, 4));
    assert_eq!(world.store.usage().tenants[b].spilled_bytes, 3 * MIB);
    world.store.check();
}

#[test]
fn parts_are_by_weight() {
    let world = World::new();
    let (a, b) = (&world.a, &world.b);
    world.store.set_tenant(a, "3".parse().unwrap(), None);
    let _of_b = world.put(b, 100, 8);
    let _of_a = world.put(a, 0, 8);
    assert_eq!(world.in_memory(), (6, 2));
    world.store.set_tenant(a, Weight::ONE, None);
    let _more = world.put(b, 108, 8);
    assert_eq!(world.in_memory(), (4, 4));
}

#[test]
fn what_is_larger_than_a_part_can_be_read_again() {
    let world = World::new();
    let large = world.put_one(&world.a, 0, 6 * MIB);
    let kept = world.put(&world.b, 100, 4);
    assert!(!large.is_resident());
    assert_contents(&large, 0);
    for (n, object) in (100..).zip(&kept) {
        assert_contents(object, n);
    }
    world.store.check();
}

#[test]
fn under_a_quota_a_tenant_makes_room_itself_and_holds_up_nobody() {
    let world = World::new();
    let (a, b) = (&world.a, &world.b);
    // Of `b`, so of all that are part of it.
    world
        .store
        .set_tenant(&tenant("b"), Weight::ONE, Some(2 * MIB));
    let objects = world.put(b, 100, 4);
    assert_eq!(world.in_memory(), (0, 2));
    let error = block_on(world.create(b, 104, 3 * MIB)).unwrap_err();
    assert!(matches!(error, CreateError::AboveQuota { .. }));
    let says = "the quota of tenant b, 2 MiB of memory for objects at a node";
    assert!(error.to_string().contains(says), "{error}");

    let views = [objects[2].view().unwrap(), objects[3].view().unwrap()];
    let mut waiting = Polled::new(world.create(b, 105, MIB));
    assert!(waiting.poll().is_pending());
    let says = waiting.future().error().to_string();
    assert!(
        says.contains("wasmrun tenant set b --max-objects"),
        "{says}"
    );
    let _of_a = world.put(a, 0, 8);
    assert!(waiting.poll().is_pending());
    world.store.set_tenant(&tenant("b"), Weight::ONE, None);
    assert!(block_on(waiting.into_future()).is_ok());
    drop(views);
    world.store.check();
}

#[test]
fn who_has_least_of_its_part_is_served_first() {
    let world = World::new();
    let (a, b) = (&world.a, &world.b);
    let objects = world.put(a, 0, 8);
    let mut views: Vec<_> = objects.iter().map(|it| it.view().unwrap()).collect();
    let mut of_a = Polled::new(world.create(a, 8, MIB));
    let mut of_b = Polled::new(world.create(b, 100, MIB));
    assert!(of_a.poll().is_pending() && of_b.poll().is_pending());
    drop(views.pop());
    let of_b = block_on(of_b.into_future());
    assert!(of_b.is_ok() && of_a.poll().is_pending());
}

#[test]
fn what_waits_for_a_quota_is_not_overtaken_by_who_has_more_of_it() {
    let world = World::new();
    let (big, small) = (tenant("org/a"), tenant("org/b"));
    world
        .store
        .set_tenant(&tenant("org"), Weight::ONE, Some(4 * MIB));
    let write = |n| block_on(world.create(&small, n, MIB)).unwrap();
    let mut writers: Vec<_> = (0..4).map(write).collect();
    let mut waiting = Polled::new(world.create(&big, 10, 3 * MIB));
    assert!(waiting.poll().is_pending());
    let mut next = Polled::new(world.create(&small, 11, MIB));
    assert!(next.poll().is_pending());
    let error = waiting.future().error().to_string();
    assert!(error.contains("tenant org is at its quota"), "{error}");
    assert!(
        !error.contains("MiB of"),
        "what others have is not said: {error}"
    );
    writers.pop();
    assert!(next.poll().is_pending(), "it has the most of the quota");
    let error = next.future().error().to_string();
    assert!(error.contains("tenant org is at its quota"), "{error}");
    // Others are held up by neither.
    assert!(block_on(world.create(&world.a, 12, MIB)).is_ok());
    writers.truncate(1);
    assert!(block_on(waiting.into_future()).is_ok());
    assert!(block_on(next.into_future()).is_ok());
    world.store.check();
}

#[test]
fn many_objects_of_several_tenants_go_for_one() {
    let world = World::new();
    let (a, b, c) = (&world.a, &world.b, tenant("c"));
    let small = |who: &TenantName, from: u64, count: u64| -> Vec<Object> {
        let put = |n| world.put_one(who, n, 64 << 10);
        (from..from + count).map(put).collect()
    };
    let _of_a = small(a, 1_000, 70);
    let _of_c = small(&c, 2_000, 58);
    let _of_b = world.put_one(b, 0, 2 * MIB);
    let usage = world.store.usage();
    // The parts of a and c are 3 MiB each.
    let of = |who: &TenantName| usage.tenants[who].used_bytes / (64 << 10);
    assert_eq!([of(a), of(b), of(&c)], [48, 32, 48]);
    world.store.check();
}
