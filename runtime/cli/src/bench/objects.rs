//! The cases of `wasmrun bench` about the object store: bytes in, and views of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use wasmrun_model::fairness::TenantName;
use wasmrun_model::value::{Encoded, NumberKind};
use wasmrun_node::{Node, NodeConfig, Readable};

use super::Sample;
use super::cases::Setting;
use crate::fail::Failure;

/// How many small objects one run puts, or how often it looks at one.
const MANY: usize = 2_000;
/// How far apart memory is touched: no page is smaller.
const PAGE_BYTES: usize = 4096;

/// Has this machine have so much free memory, in bytes. A virtual one gives its host back what is free for some seconds,
/// and the host may find it at half a gigabyte a second: whoever touches it first then would be measured by that, and
/// whoever comes next not.
pub(super) fn have_free(bytes: usize) {
    let Ok(mut memory) = memmap2::MmapMut::map_anon(bytes) else {
        return;
    };
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory
        .iter_mut()
        .step_by(PAGE_BYTES)
        .for_each(|byte| *byte = 1);
    black_box(&memory[..]);
}

impl Setting {
    /// Puts objects of this size, one after the other, into memory that has been used: GB/s, and the
    /// time of each.
    pub(super) fn put(&self, bytes: usize) -> Result<Sample, Failure> {
        let bytes = self.bytes(bytes);
        let value = buffer(&[7].repeat(bytes));
        let times = self.count((MANY * 1024 / bytes.max(1024)).clamp(3, MANY));
        // Twice, because a large object may at first lie beside the one before.
        for _ in 0..2 {
            self.client().put(&TenantName::default(), &value)?;
        }
        let mut latencies = Vec::with_capacity(times);
        for _ in 0..times {
            let started = Instant::now();
            let object = self.client().put(&TenantName::default(), &value)?;
            latencies.push(started.elapsed());
            drop(object);
        }
        Ok(rate(bytes, latencies))
    }

    /// Puts objects of this size into a store that is new, and keeps them, so that each goes to memory that nobody has
    /// touched: GB/s, and the time of each.
    pub(super) fn put_first(&self, bytes: usize) -> Result<Sample, Failure> {
        let bytes = self.bytes(bytes);
        let value = buffer(&[7].repeat(bytes));
        let times = self.count((MANY * 1024 / bytes.max(1024)).clamp(1, MANY));
        let node = Node::start(NodeConfig {
            object_memory: Some((2 * bytes * times) as u64 + (64 << 20)),
            ..NodeConfig::default()
        })?;
        let (mut latencies, mut kept) = (Vec::with_capacity(times), Vec::with_capacity(times));
        have_free(bytes * times);
        for _ in 0..times {
            let started = Instant::now();
            kept.push(node.client().put(&TenantName::default(), &value)?);
            latencies.push(started.elapsed());
        }
        Ok(rate(bytes, latencies))
    }

    /// Copies 1 GiB to memory that nobody has touched: GB/s.
    pub(super) fn memcpy_1g_first(&self) -> Result<Sample, Failure> {
        let bytes = self.bytes(1 << 30);
        let value = vec![7_u8; bytes];
        have_free(bytes);
        let started = Instant::now();
        let copy = black_box(value.clone());
        let took = started.elapsed();
        drop(copy);
        Ok(Sample::from(gigabytes_per_second(bytes, took)))
    }

    /// Copies 1 GiB to memory that has been used, with one thread: GB/s.
    pub(super) fn memcpy_1g(&self) -> Result<Sample, Failure> {
        let bytes = self.bytes(1 << 30);
        let value = vec![7_u8; bytes];
        let mut copy = value.clone();
        let mut latencies = Vec::new();
        for _ in 0..3 {
            let started = Instant::now();
            copy.copy_from_slice(black_box(&value));
            black_box(&mut copy);
            latencies.push(started.elapsed());
        }
        Ok(rate(bytes, latencies))
    }

    /// Makes a stored object of this size readable: us.
    pub(super) fn get(&self, bytes: usize) -> Result<Sample, Failure> {
        let (bytes, times) = (self.bytes(bytes), self.count(MANY));
        let object = self
            .client()
            .put(&TenantName::default(), buffer(&[7].repeat(bytes)))?;
        let mut latencies = Vec::with_capacity(times);
        for _ in 0..times {
            let started = Instant::now();
            let value = self.client().get(&object, None)?;
            let loaded = value.load().map_err(anyhow::Error::new)?;
            black_box(loaded.encoded().bytes().first());
            latencies.push(started.elapsed());
        }
        latencies.sort_unstable();
        Ok(Sample {
            value: latencies[latencies.len() / 2].as_secs_f64() * 1e6,
            latencies,
        })
    }
}

fn buffer(bytes: &[u8]) -> Encoded {
    Encoded::Buffer {
        kind: NumberKind::U8,
        bytes: bytes.to_vec(),
    }
}

fn rate(bytes: usize, mut latencies: Vec<Duration>) -> Sample {
    latencies.sort_unstable();
    Sample {
        value: gigabytes_per_second(bytes, latencies[latencies.len() / 2]),
        latencies,
    }
}

pub(super) fn gigabytes_per_second(bytes: usize, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e9
}
