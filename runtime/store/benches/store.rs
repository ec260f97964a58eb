//! Putting and viewing objects of 1 KiB to 1 GiB.
//!
//! `cargo bench -p wasmrun-store`. `first`: into memory that was never touched. `warm`: into memory
//! that another object had before. `plain_first` and `plain_warm`: what a memcpy takes, into fresh
//! shared memory and into its own, to compare with.

use std::sync::OnceLock;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, ObjectId};
use wasmrun_store::{Form, Object, Store, StoreConfig};

fn main() {
    divan::main();
}

const SIZES: [u64; 4] = [1 << 10, 1 << 20, 100 << 20, 1 << 30];

/// A GiB of bytes, touched.
fn source() -> &'static [u8] {
    static SOURCE: OnceLock<Vec<u8>> = OnceLock::new();
    SOURCE.get_or_init(|| (0..1u64 << 30).map(|n| n as u8).collect())
}

fn open() -> Store {
    Store::open(StoreConfig::new(2 << 30)).unwrap()
}

fn put(store: &Store, len: u64) -> Object {
    let id = ObjectId::of(DriverId::from_bytes([1; 16]).task(0), 0);
    let tenant = TenantName::default();
    let mut writer = store.try_create(&tenant, id, len, Form::Postcard).unwrap();
    writer.copy_from(&source()[..len as usize]);
    writer.seal()
}

#[divan::bench(args = SIZES, sample_count = 10)]
fn put_warm(bencher: Bencher, len: u64) {
    let store = open();
    for _ in 0..3 {
        put(&store, len);
    }
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| drop(put(&store, len)));
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn put_first(bencher: Bencher, len: u64) {
    source();
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(open)
        .bench_local_refs(|store| put(store, len));
}

/// What [`put_warm`] cannot be better than.
#[divan::bench(args = SIZES, sample_count = 10)]
fn plain_warm(bencher: Bencher, len: u64) {
    let mut target = source().to_vec();
    let source = &source()[..len as usize];
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| black_box(&mut target[..len as usize]).copy_from_slice(source));
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn plain_first(bencher: Bencher, len: u64) {
    let source = source();
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(|| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let fd = rustix::fs::memfd_create("plain", flags).unwrap();
            rustix::fs::ftruncate(&fd, len).unwrap();
            // SAFETY: nobody else has the file.
            unsafe { memmap2::MmapOptions::new().map_mut(&fd).unwrap() }
        })
        .bench_local_refs(|map| map.copy_from_slice(&source[..len as usize]));
}

/// The second use of memory that was filled by a descriptor: it is not in the page table yet.
#[divan::bench(args = [100 << 20, 1 << 30], sample_count = 5, sample_size = 1)]
fn put_second(bencher: Bencher, len: u64) {
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(|| {
            let store = open();
            put(&store, len);
            store
        })
        .bench_local_refs(|store| put(store, len));
}

#[divan::bench(args = SIZES)]
fn view(bencher: Bencher, len: u64) {
    let store = open();
    let object = put(&store, len);
    bencher.bench_local(|| object.view().unwrap());
}

#[divan::bench(args = SIZES)]
fn get_and_view(bencher: Bencher, len: u64) {
    let store = open();
    let object = put(&store, len);
    let id = object.id();
    bencher.bench_local(|| store.get(black_box(&id)).unwrap().view().unwrap());
}
