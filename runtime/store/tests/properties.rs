//! Anything that callers may do, in any order, against a model that knows what must come of it.
//!
//! After each step the store accounts for every byte, and every view still shows what was written.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use common::{KIB, Polled, contents, id, tenant};
use proptest::prelude::*;
use wasmrun_store::{
    Copy, CreateError, CreateFuture, Form, Object, ReadError, SpillConfig, Store, StoreConfig,
    View, Writer,
};

const CAPACITY: u64 = 512 * KIB;
const SIZES: [u64; 9] = [
    0,
    100,
    5_000,
    40 * KIB,
    64 * KIB,
    100 * KIB + 1,
    200 * KIB,
    CAPACITY,
    CAPACITY + 1,
];

/// What a caller does. Objects go by number; whatever makes no sense at the time does nothing.
#[derive(Debug, Clone)]
enum Step {
    Create { n: u64, tenant: u8, len: u64 },
    Wait { n: u64, tenant: u8, len: u64 },
    Cancel,
    Seal { n: u64, copy: Copy },
    Abort { n: u64 },
    Get { n: u64 },
    Clone { n: u64 },
    Drop { n: u64 },
    View { n: u64 },
    CloneView { n: u64 },
    DropView { n: u64 },
    SetCopy { n: u64, copy: Copy },
    SetTenant { tenant: u8, max: Option<u64> },
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0..8u64;
    let new = || (n(), 0..2u8, prop::sample::select(&SIZES[..]));
    let copy = || prop_oneof![Just(Copy::Primary), Just(Copy::Secondary)];
    prop_oneof![
        4 => new().prop_map(|(n, tenant, len)| Step::Create { n, tenant, len }),
        2 => new().prop_map(|(n, tenant, len)| Step::Wait { n, tenant, len }),
        1 => Just(Step::Cancel),
        6 => (n(), copy()).prop_map(|(n, copy)| Step::Seal { n, copy }),
        1 => n().prop_map(|n| Step::Abort { n }),
        1 => n().prop_map(|n| Step::Get { n }),
        1 => n().prop_map(|n| Step::Clone { n }),
        3 => n().prop_map(|n| Step::Drop { n }),
        4 => n().prop_map(|n| Step::View { n }),
        1 => n().prop_map(|n| Step::CloneView { n }),
        4 => n().prop_map(|n| Step::DropView { n }),
        1 => (n(), copy()).prop_map(|(n, copy)| Step::SetCopy { n, copy }),
        1 => (0..2u8, prop::option::of(prop::sample::select(&SIZES[..])))
            .prop_map(|(tenant, max)| Step::SetTenant { tenant, max }),
    ]
}

/// What must be true of one id.
enum Known {
    Writing {
        writer: Writer,
        bytes: Arc<Vec<u8>>,
    },
    Sealed {
        bytes: Arc<Vec<u8>>,
        copy: Copy,
        objects: Vec<Object>,
        views: Vec<View>,
    },
}

struct World {
    store: Store,
    known: BTreeMap<u64, Known>,
    /// Who waits to create something, and whether there was one of that id when they were last asked.
    waiting: Vec<(u64, u64, Polled<CreateFuture>, bool)>,
    /// References to secondary copies that were dropped.
    dropped: Vec<Object>,
    serial: u64,
    /// Whether a tenant had a quota at some time.
    has_quotas: bool,
}

impl World {
    fn new(spill: Option<SpillConfig>) -> Self {
        let config = StoreConfig {
            spill,
            segment_bytes: 256 * KIB,
            ..StoreConfig::new(CAPACITY)
        };
        Self {
            store: Store::open(config).unwrap(),
            known: BTreeMap::new(),
            waiting: Vec::new(),
            dropped: Vec::new(),
            serial: 0,
            has_quotas: false,
        }
    }

    /// A secondary copy may have gone, but nothing else.
    fn sync(&mut self, n: u64) {
        if let Some(Known::Sealed {
            copy,
            views,
            objects,
            ..
        }) = self.known.get(&n)
            && self.store.get(&id(n)).is_none()
        {
            assert_eq!(*copy, Copy::Secondary, "a primary copy was lost");
            assert!(views.is_empty(), "a pinned object was lost");
            assert!(matches!(objects[0].view(), Err(ReadError::Dropped { .. })));
            let Some(Known::Sealed { objects, .. }) = self.known.remove(&n) else {
                unreachable!()
            };
            self.dropped.extend(objects);
        }
    }

    fn begin(&mut self, n: u64, len: u64, mut writer: Writer) {
        assert_eq!(writer.len() as u64, len);
        self.serial += 1;
        let bytes = Arc::new(contents(self.serial, len));
        writer.copy_from(&bytes);
        let before = self.known.insert(n, Known::Writing { writer, bytes });
        assert!(before.is_none(), "an object was created twice");
    }

    /// `was_known`: whether there was one when the answer may have been given.
    fn created(&mut self, n: u64, len: u64, result: Result<Writer, CreateError>, was_known: bool) {
        // What was there when this was said may have gone since: the disk has threads of its own.
        let was_known = was_known || self.known.contains_key(&n);
        self.sync(n);
        let is_known = self.known.contains_key(&n);
        match result {
            Ok(writer) => self.begin(n, len, writer),
            Err(CreateError::Exists { .. }) => {
                let is_awaited = self.waiting.iter().any(|it| it.0 == n);
                assert!(was_known || is_awaited, "there is no such object");
            }
            Err(CreateError::TooLarge { .. }) => assert!(len > CAPACITY),
            Err(CreateError::AboveQuota { .. }) => assert!(self.has_quotas),
            Err(CreateError::Full { .. }) => {
                assert!(!is_known && len <= CAPACITY);
                let usage = self.store.usage();
                let untouched = usage.capacity_bytes - usage.used_bytes - usage.warm_bytes;
                let nobody_waits = self.waiting.is_empty() && usage.waiting_restores == 0;
                let nobody_waits = nobody_waits && !self.has_quotas;
                assert!(
                    untouched < len.max(1) || !nobody_waits || usage.spill_capacity_bytes > 0,
                    "there is room: {usage:?}"
                );
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create { n, tenant: t, len } => {
                let result = self.store.try_create(
                    &tenant(["a", "b"][t as usize]),
                    id(n),
                    len,
                    Form::Postcard,
                );
                self.created(n, len, result, false);
            }
            Step::Wait { n, tenant: t, len } => {
                let name = tenant(["a", "b"][t as usize]);
                let future = self.store.create(&name, id(n), len, Form::Postcard);
                let is_known = self.known.contains_key(&n);
                self.waiting.push((n, len, Polled::new(future), is_known));
            }
            Step::Cancel => drop(self.waiting.pop()),
            Step::SetTenant { tenant: t, max } => {
                let weight = if max.is_some() { "2" } else { "1" };
                let (name, weight) = (tenant(["a", "b"][t as usize]), weight.parse().unwrap());
                self.store.set_tenant(&name, weight, max);
                self.has_quotas |= max.is_some();
            }
            Step::Seal { n, copy } => match self.known.remove(&n) {
                Some(Known::Writing { writer, bytes }) => {
                    let objects = vec![writer.seal_as(copy)];
                    self.known.insert(
                        n,
                        Known::Sealed {
                            bytes,
                            copy,
                            objects,
                            views: Vec::new(),
                        },
                    );
                }
                Some(other) => drop(self.known.insert(n, other)),
                None => {}
            },
            Step::Abort { n } => {
                if matches!(self.known.get(&n), Some(Known::Writing { .. })) {
                    self.known.remove(&n);
                }
            }
            _ => self.step_sealed(step),
        }
        self.poll_waiting();
    }

    fn step_sealed(&mut self, step: Step) {
        let (Step::Get { n }
        | Step::Clone { n }
        | Step::Drop { n }
        | Step::View { n }
        | Step::CloneView { n }
        | Step::DropView { n }
        | Step::SetCopy { n, .. }) = step
        else {
            unreachable!("the others are done")
        };
        self.sync(n);
        let Some(Known::Sealed {
            bytes,
            copy,
            objects,
            views,
        }) = self.known.get_mut(&n)
        else {
            assert!(self.store.get(&id(n)).is_none(), "it is not sealed");
            return;
        };
        match step {
            Step::Get { .. } => objects.push(self.store.get(&id(n)).expect("it is referred to")),
            Step::Clone { .. } => objects.push(objects[0].clone()),
            Step::Drop { .. } if objects.len() == 1 && views.is_empty() => {
                self.known.remove(&n);
                assert!(self.store.get(&id(n)).is_none(), "nobody refers to it");
            }
            // The last one stays while there are views, to keep the model simple.
            Step::Drop { .. } if objects.len() > 1 => drop(objects.pop()),
            Step::View { .. } => match objects[0].view() {
                Ok(view) => {
                    assert!(*view == **bytes, "object {n} has other bytes");
                    views.push(view);
                }
                // Between `sync` and now a create that waits may have had its way.
                Err(ReadError::Dropped { .. }) => assert_eq!(*copy, Copy::Secondary),
                Err(ReadError::Full { .. }) => assert!(!objects[0].is_resident()),
                Err(error) => panic!("{error:?}"),
            },
            Step::CloneView { .. } => views.extend(views.last().cloned()),
            Step::DropView { .. } => drop(views.pop()),
            Step::SetCopy { copy: new, .. } => {
                objects[0].set_copy(new);
                // The same race: what has gone stays gone.
                if objects[0].copy() == new {
                    *copy = new;
                }
            }
            _ => {}
        }
    }

    /// Whoever waited and has got it, writes.
    fn poll_waiting(&mut self) {
        // Who begins to wait may have others served, who are before it. What they hear must be true now: an object
        // that was there then may be gone by the next step.
        while self.poll_waiting_once() || self.poll_waiting_once() {}
    }

    /// Whether somebody has waited for long enough.
    fn poll_waiting_once(&mut self) -> bool {
        let before = self.waiting.len();
        let mut at = 0;
        while at < self.waiting.len() {
            match self.waiting[at].2.poll() {
                Poll::Pending => {
                    let n = self.waiting[at].0;
                    self.waiting[at].3 = self.known.contains_key(&n);
                    at += 1;
                }
                Poll::Ready(result) => {
                    let (n, len, _, was_known) = self.waiting.remove(at);
                    self.created(n, len, result, was_known);
                }
            }
        }
        self.waiting.len() < before
    }

    fn check(&self) {
        self.store.check();
        let usage = self.store.usage();
        assert_eq!(usage.used_bytes + usage.free_bytes, usage.capacity_bytes);
        assert!(usage.used_bytes + usage.warm_bytes <= usage.capacity_bytes);
        for known in self.known.values() {
            if let Known::Sealed { bytes, views, .. } = known {
                assert!(views.iter().all(|view| **view == **bytes), "a view changed");
            }
        }
    }

    /// Everything goes; nothing stays.
    fn end(mut self) {
        self.waiting.clear();
        self.dropped.clear();
        self.known.clear();
        // The disk may be busy with something that nobody wants any more.
        while self.store.usage().used_bytes > 0 {
            std::thread::yield_now();
        }
        self.store.check();
        let usage = self.store.usage();
        assert_eq!(
            (usage.objects, usage.spilled_bytes, usage.disk_errors),
            (0, 0, 0)
        );
        assert!(usage.tenants.is_empty());
    }
}

fn run(mut world: World, steps: Vec<Step>) {
    for step in steps {
        world.step(step);
        world.check();
    }
    world.end();
}

proptest! {
    #[test]
    fn without_a_disk(steps in prop::collection::vec(step(), 1..120)) {
        run(World::new(None), steps);
    }

    #[test]
    fn with_a_disk(steps in prop::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let spill = SpillConfig { dir: dir.path().into(), capacity_bytes: 1 << 30 };
        run(World::new(Some(spill)), steps);
    }

    #[test]
    fn with_a_small_disk(steps in prop::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let spill = SpillConfig { dir: dir.path().into(), capacity_bytes: 300 * KIB };
        run(World::new(Some(spill)), steps);
    }
}
