//! What is kept of the output of detached tasks and of actors: the end of it.
//!
//! Owns how much that is, and of how many actors. Must not: know who may read it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use wasmrun_engine::{OutputChunk, OutputLog, OutputSource};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId};

/// How many actors' output is remembered.
const MOST_LOGGED: usize = 1000;
/// How much of a detached task's or an actor's output is kept: its end.
const LOG_BYTES: usize = 256 << 10;
/// What a chunk of it counts beside its bytes: a guest may write a byte here and a byte there.
const CHUNK_OVERHEAD: usize = 64;

/// The end of what a task wrote.
#[derive(Debug, Default)]
pub(crate) struct Log {
    chunks: Mutex<Chunks>,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Chunks {
    queue: VecDeque<Logged>,
    /// What all of them count.
    size: usize,
}

/// Some output, and which task wrote it where, in which attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) writer: u64,
    pub(crate) attempt: u32,
    pub(crate) source: OutputSource,
    pub(crate) bytes: Vec<u8>,
}

/// What an actor wrote: one that a client has created, or one that has a name.
#[derive(Debug, Clone)]
pub(crate) struct ActorLog {
    pub(crate) id: ActorId,
    pub(crate) tenant: TenantName,
    pub(crate) driver: DriverId,
    /// Its name within its tenant, if it has one.
    pub(crate) name: Option<String>,
    pub(crate) log: Arc<Log>,
}

impl Log {
    /// More was written, by this attempt of a writer.
    pub(crate) fn add(&self, by: (u64, u32), source: OutputSource, bytes: &[u8]) {
        let mut chunks = self.chunks.lock();
        let Chunks { queue, size } = &mut *chunks;
        *size += bytes.len();
        match queue.back_mut() {
            Some(last)
                if (last.writer, last.attempt) == by
                    && last.source == source
                    && last.bytes.len() < 4096 =>
            {
                last.bytes.extend_from_slice(bytes);
            }
            _ => {
                *size += CHUNK_OVERHEAD;
                queue.push_back(Logged {
                    writer: by.0,
                    attempt: by.1,
                    source,
                    bytes: bytes.to_vec(),
                });
            }
        }
        while *size > LOG_BYTES && queue.len() > 1 {
            let oldest = queue.pop_front();
            *size -= oldest.map_or(0, |chunk| chunk.bytes.len() + CHUNK_OVERHEAD);
        }
    }

    /// How many bytes it counts.
    pub(crate) fn size_bytes(&self) -> usize {
        self.chunks.lock().size
    }

    pub(crate) fn chunks(&self) -> Vec<Logged> {
        self.chunks.lock().queue.iter().cloned().collect()
    }

    /// Its task has ended, and all that it wrote is here.
    pub(crate) fn close(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

impl OutputLog for Log {
    fn keep(&self, chunk: &OutputChunk) {
        self.add((chunk.writer, chunk.attempt), chunk.source, &chunk.bytes);
    }
}

/// What actors wrote, the last ones of them.
#[derive(Debug, Default)]
pub(crate) struct ActorLogs(Mutex<ByActor>);

#[derive(Debug, Default)]
struct ByActor {
    all: BTreeMap<ActorId, ActorLog>,
    /// The oldest first.
    order: VecDeque<ActorId>,
}

impl ActorLogs {
    /// Remembers what an actor writes. The oldest of its tenant is forgotten, or the oldest of all if it is the tenant's only one.
    pub(crate) fn add(&self, actor: ActorLog) {
        let logs = &mut *self.0.lock();
        let (id, tenant) = (actor.id, actor.tenant.clone());
        if logs.all.insert(id, actor).is_none() {
            logs.order.push_back(id);
        }
        if logs.order.len() <= MOST_LOGGED {
            return;
        }
        let is_its = |it: &ActorId| *it != id && logs.all[it].tenant == tenant;
        let oldest = logs.order.iter().position(is_its).unwrap_or(0);
        if let Some(gone) = logs.order.remove(oldest) {
            logs.all.remove(&gone);
        }
    }

    /// What an actor wrote.
    pub(crate) fn get(&self, id: &ActorId) -> Option<ActorLog> {
        self.0.lock().all.get(id).cloned()
    }

    /// Those that are meant, the youngest first.
    pub(crate) fn find(&self, is_meant: impl Fn(&ActorLog) -> bool) -> Vec<ActorLog> {
        let logs = self.0.lock();
        let youngest_first = logs.order.iter().rev();
        let all = youngest_first.filter_map(|id| logs.all.get(id));
        all.filter(|it| is_meant(it)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_the_end() {
        let log = Log::default();
        log.add((1, 1), OutputSource::Stdout, b"a");
        log.add((1, 1), OutputSource::Stdout, b"b");
        log.add((1, 1), OutputSource::Stderr, b"c");
        log.add((2, 1), OutputSource::Stderr, b"d");
        log.add((2, 2), OutputSource::Stderr, b"e");
        let bytes: Vec<Vec<u8>> = log.chunks().into_iter().map(|it| it.bytes).collect();
        assert_eq!(bytes, [&b"ab"[..], b"c", b"d", b"e"]);
        for _ in 0..100 {
            log.add((1, 1), OutputSource::Stdout, &[0; 8192]);
        }
        let total: usize = log.chunks().iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(total <= LOG_BYTES);
        assert_eq!(log.chunks().last().unwrap().bytes, [0; 8192]);
    }

    #[test]
    fn a_log_of_short_chunks_has_a_limit_too() {
        let log = Log::default();
        let most = LOG_BYTES / (CHUNK_OVERHEAD + 1);
        for _ in 0..most {
            log.add((1, 1), OutputSource::Stdout, b"a");
            log.add((1, 1), OutputSource::Stderr, b"b");
        }
        assert_eq!(log.chunks().len(), most);
        assert_eq!(log.chunks().last().unwrap().bytes, b"b");
        // What is dropped does not count any more.
        log.add((2, 1), OutputSource::Stdout, &[0; LOG_BYTES]);
        assert_eq!(log.chunks().len(), 1);
        log.add((3, 1), OutputSource::Stdout, b"c");
        assert_eq!(log.chunks().len(), 1);
        assert_eq!(log.chunks.lock().size, CHUNK_OVERHEAD + 1);
    }
}
