//! What the tests share: ids, contents that tell objects apart, a way to poll by hand.

#![allow(dead_code)] // Each test program uses a part.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, ObjectId};
use wasmrun_store::{CreateError, Form, Object, SpillConfig, Store, StoreConfig};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

pub fn id(n: u64) -> ObjectId {
    ObjectId::of(DriverId::from_bytes([1; 16]).task(n), 0)
}

pub fn tenant(name: &str) -> TenantName {
    name.parse().unwrap()
}

/// Bytes that no other number gives.
pub fn contents(n: u64, len: u64) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

pub fn open(capacity_bytes: u64) -> Store {
    Store::open(StoreConfig::new(capacity_bytes)).unwrap()
}

pub fn open_with_spill(capacity_bytes: u64, dir: &Path, spill_bytes: u64) -> Store {
    let spill = SpillConfig {
        dir: dir.into(),
        capacity_bytes: spill_bytes,
    };
    Store::open(StoreConfig {
        spill: Some(spill),
        ..StoreConfig::new(capacity_bytes)
    })
    .unwrap()
}

pub fn try_put(store: &Store, who: &TenantName, n: u64, len: u64) -> Result<Object, CreateError> {
    let mut writer = store.try_create(who, id(n), len, Form::Postcard)?;
    writer.copy_from(&contents(n, len));
    Ok(writer.seal())
}

/// Puts an object of the default tenant, and waits for room if need be.
pub fn put(store: &Store, n: u64, len: u64) -> Object {
    let create = store.create(&TenantName::default(), id(n), len, Form::Postcard);
    let mut writer = block_on(create).unwrap();
    writer.copy_from(&contents(n, len));
    writer.seal()
}

#[track_caller]
pub fn assert_contents(object: &Object, n: u64) {
    let view = object.view().unwrap();
    assert!(
        *view == *contents(n, object.len()),
        "object {n} has other bytes"
    );
}

/// Drives a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A future that is polled by hand, and how often it was woken.
pub struct Polled<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
}

struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<F: Future> Polled<F> {
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            wakes: Arc::new(Wakes(AtomicUsize::new(0))),
        }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// Goes on elsewhere.
    pub fn into_future(self) -> Pin<Box<F>> {
        self.future
    }

    pub fn future(&self) -> &F {
        &self.future
    }
}
