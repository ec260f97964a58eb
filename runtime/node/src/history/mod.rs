//! What has run on this node: the attempts of its own tasks that have ended, the last ones first to be found.
//!
//! Owns the records, in chunks of encoded bytes ([`chunk`]), and their limit: when it is reached the oldest chunk is dropped,
//! and its records are counted. Must not: know tasks that live; decide anything. The thread that ends a task adds the record,
//! so adding takes some hundred nanoseconds. A search copies the open chunk at most and holds no lock while it looks; a long
//! one does not keep other work of its thread waiting.

mod chunk;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmrun_model::id::TaskId;
use wasmrun_model::units::us;

pub(crate) use self::chunk::{Failure, Head, Kin, Outcome, Record};

use self::chunk::Chunk;

/// How many bytes it has if the node's configuration does not say.
pub const DEFAULT_HISTORY_BYTES: u64 = 64 << 20;

/// How many chunks are searched at once: that takes less than a millisecond.
const QUICK_CHUNKS: usize = 16;
/// How many tasks are remembered that other nodes have taken over.
const MOST_TAKEN: usize = 10_000;

/// The place of a record in the order of submission: when it was submitted, in microseconds since 1970, its task, and which
/// attempt it is.
pub(crate) type Place = (u64, TaskId, u32);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct History {
    limit_bytes: u64,
    /// A moment by both clocks.
    origin: Instant,
    origin_us: u64,
    chunks: Mutex<Chunks>,
    taken: RwLock<Taken>,
    /// Most nodes have none.
    followers: RwLock<Vec<Follower>>,
}

/// Tasks that other nodes have taken over, which tell what came of them.
#[derive(Debug, Default)]
struct Taken {
    /// Until when what was submitted here is no longer shown.
    until_us: BTreeMap<TaskId, u64>,
    /// The first one is the first to be forgotten.
    order: VecDeque<TaskId>,
}

/// A reader of all records from some time on, as far as there is room in its queue.
#[derive(Debug)]
struct Follower {
    queue: mpsc::Sender<Record<'static>>,
    missed: Arc<AtomicU64>,
}

/// Records as they are added.
#[derive(Debug)]
pub(crate) struct Following {
    queue: mpsc::Receiver<Record<'static>>,
    missed: Arc<AtomicU64>,
}

impl Following {
    /// The next ones, at most so many; none when there will be no more.
    pub(crate) async fn next(&mut self, most: usize) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        self.queue.recv_many(&mut records, most).await;
        records
    }

    /// How many were left out since this was asked last: nobody read them in time.
    pub(crate) fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Chunks {
    /// The oldest first.
    sealed: VecDeque<Arc<Chunk>>,
    sealed_bytes: u64,
    open: Chunk,
    dropped: u64,
}

/// A history in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryUsage {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) limit_bytes: u64,
    /// Records that were dropped because of the limit.
    pub(crate) dropped: u64,
}

impl History {
    /// An empty one that takes at most so many bytes, or one chunk.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let origin_us = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            limit_bytes,
            origin: Instant::now(),
            origin_us: us(origin_us.unwrap_or_default()),
            chunks: Mutex::default(),
            taken: RwLock::default(),
            followers: RwLock::default(),
        }
    }

    /// Follows what is added from now on. So many records may wait to be read; of more it is counted that they were missed.
    pub(crate) fn follow(&self, waiting: usize) -> Following {
        let (sender, receiver) = mpsc::channel(waiting);
        let missed = Arc::<AtomicU64>::default();
        self.followers.write().push(Follower {
            queue: sender,
            missed: missed.clone(),
        });
        Following {
            queue: receiver,
            missed,
        }
    }

    /// A moment in microseconds since 1970, by the clock as it was when the node started.
    pub(crate) fn unix_us(&self, at: Instant) -> u64 {
        match at.checked_duration_since(self.origin) {
            Some(after) => self.origin_us.saturating_add(us(after)),
            None => self.origin_us.saturating_sub(us(self.origin - at)),
        }
    }

    /// The moment of such a time: now at the latest, by which it counts if it is out of what moments there are.
    pub(crate) fn at_us(&self, unix_us: u64) -> Instant {
        let at = match unix_us.checked_sub(self.origin_us) {
            Some(after) => self.origin.checked_add(Duration::from_micros(after)),
            None => {
                let before = Duration::from_micros(self.origin_us - unix_us);
                self.origin.checked_sub(before)
            }
        };
        let now = Instant::now();
        at.map_or(now, |at| at.min(now))
    }

    /// Adds an attempt that has ended.
    pub(crate) fn add(&self, record: &Record<'_>) {
        for follower in self.followers.read().iter() {
            if follower.queue.try_send(record.to_static()).is_err() {
                follower.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.limit_bytes == 0 {
            return;
        }
        let mut chunks = self.chunks.lock();
        if chunks.open.is_full() {
            let sealed = Arc::new(std::mem::take(&mut chunks.open).sealed());
            chunks.sealed_bytes += sealed.bytes();
            chunks.sealed.push_back(sealed);
        }
        chunks.open.add(record);
        while chunks.sealed_bytes + chunks.open.bytes() > self.limit_bytes
            && let Some(oldest) = chunks.sealed.pop_front()
        {
            chunks.sealed_bytes -= oldest.bytes();
            chunks.dropped += oldest.len() as u64;
        }
    }

    pub(crate) fn usage(&self) -> HistoryUsage {
        let chunks = self.chunks.lock();
        let sealed = chunks.sealed.iter().map(|chunk| chunk.len() as u64);
        HistoryUsage {
            records: sealed.sum::<u64>() + chunks.open.len() as u64,
            bytes: chunks.sealed_bytes + chunks.open.bytes(),
            limit_bytes: self.limit_bytes,
            dropped: chunks.dropped,
        }
    }

    /// Another node has taken a task over, and tells what came of it.
    pub(crate) fn give_up(&self, task: TaskId) {
        let now_us = self.unix_us(Instant::now());
        let mut taken = self.taken.write();
        if taken.until_us.insert(task, now_us).is_some() {
            return;
        }
        taken.order.push_back(task);
        if taken.order.len() > MOST_TAKEN
            && let Some(oldest) = taken.order.pop_front()
        {
            taken.until_us.remove(&oldest);
        }
    }

    fn is_taken(&self, (submitted_us, task, _): &Place) -> bool {
        let taken = self.taken.read();
        let until_us = taken.until_us.get(task);
        until_us.is_some_and(|until_us| submitted_us <= until_us)
    }

    /// All chunks as they are now, the youngest first.
    fn chunks(&self) -> Vec<Arc<Chunk>> {
        let chunks = self.chunks.lock();
        let open = Arc::new(chunks.open.clone());
        let sealed = chunks.sealed.iter().rev().cloned();
        std::iter::once(open).chain(sealed).collect()
    }

    /// The records that `fits` says yes to by their heads, and `is_meant` by what they name, submitted before `before`: at
    /// most `limit`, submitted last first. Only those are read as a whole.
    pub(crate) fn find(
        &self,
        before: Option<Place>,
        limit: usize,
        fits: impl Fn(&Head<'_>) -> bool,
        is_meant: impl Fn(&Kin) -> bool,
    ) -> Vec<Record<'static>> {
        let chunks = self.chunks();
        aside(chunks.len() > QUICK_CHUNKS, || {
            // The places that were submitted last, of which the first is the first to go.
            let mut best: BinaryHeap<Reverse<(Place, usize, usize)>> = BinaryHeap::new();
            for (chunk_ix, chunk) in chunks.iter().enumerate() {
                let Some((first, last)) = chunk.span() else {
                    continue;
                };
                if is_late(&best, limit, last) || before.is_some_and(|before| first >= before) {
                    continue;
                }
                // Most are in the order of submission: the best come first.
                for at in (0..chunk.len()).rev() {
                    let head = chunk.head(at);
                    let place = head.place();
                    if is_late(&best, limit, place)
                        || before.is_some_and(|before| place >= before)
                        || !fits(&head)
                    {
                        continue;
                    }
                    if is_meant(&chunk.kin(at)) && !self.is_taken(&place) {
                        best.push(Reverse((place, chunk_ix, at)));
                        if best.len() > limit {
                            best.pop();
                        }
                    }
                }
            }
            let best = best.into_sorted_vec().into_iter();
            best.map(|Reverse((_, chunk, at))| chunks[chunk].record(at))
                .collect()
        })
    }

    /// The last attempt of a task: quick if it has ended a short while ago.
    pub(crate) fn last(&self, task: &TaskId) -> Option<Record<'static>> {
        let of_chunk = |chunk: &Arc<Chunk>| {
            let mut places = (0..chunk.len()).rev();
            let at = places.find(|at| {
                chunk.id(*at) == task.as_bytes() && !self.is_taken(&chunk.head(*at).place())
            })?;
            Some(chunk.record(at))
        };
        let chunks = self.chunks();
        let (young, old) = chunks.split_at(chunks.len().min(QUICK_CHUNKS));
        young
            .iter()
            .find_map(of_chunk)
            .or_else(|| aside(!old.is_empty(), || old.iter().find_map(of_chunk)))
    }

    /// The attempts of a task, the last one first.
    pub(crate) fn attempts(&self, task: &TaskId) -> Vec<Record<'static>> {
        /// More of one task nobody reads.
        const MOST_ATTEMPTS: usize = 100;
        self.find(None, MOST_ATTEMPTS, |head| head.id == *task, |_| true)
    }
}

/// Whether there are as many as are wanted, all submitted later than what has this place.
fn is_late(best: &BinaryHeap<Reverse<(Place, usize, usize)>>, limit: usize, place: Place) -> bool {
    let first = best.peek().filter(|_| best.len() >= limit);
    first.is_some_and(|Reverse((first, ..))| place <= *first)
}

/// Does what may take long. Where the thread has other work of a runtime to do, another thread does that meanwhile.
pub(crate) fn aside<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) if is_long => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use wasmrun_engine::HeldResource;
    use wasmrun_model::failure::TaskError;
    use wasmrun_model::fairness::TenantName;
    use wasmrun_model::id::{DriverId, NodeId};
    use wasmrun_model::resource::ResourceName;
    use wasmrun_model::trace::{TraceContext, TraceState};
    use wasmrun_model::value::Encoded;

    use super::*;

    const JOB: DriverId = DriverId::from_bytes([2; 16]);

    fn record(number: u64) -> Record<'static> {
        Record {
            id: JOB.task(number),
            attempt: 1,
            outcome: Outcome::Finished,
            job: JOB,
            tenant: TenantName::default(),
            name: "n".into(),
            parent: None,
            parent_attempt: 0,
            trace: None,
            actor: None,
            array_index: None,
            submitted_us: 1000 + number,
            ended_us: 2000 + number,
            waited_us: 3,
            ran_us: 4,
            phases: Default::default(),
            memory_peak_bytes: 5,
            held: Vec::new().into(),
            inputs: Vec::new().into(),
            ran_at: None,
            failure: None,
        }
    }

    #[test]
    fn a_time_is_a_moment_of_this_clock() {
        let history = History::new(0);
        for before_us in [0, 7, 3_600_000_000] {
            let us = history.origin_us - before_us;
            assert_eq!(history.unix_us(history.at_us(us)), us);
        }
        // A clock of another node may be ahead.
        assert!(history.at_us(u64::MAX) <= Instant::now());
    }

    #[test]
    fn what_was_added_is_found_the_youngest_first() {
        let history = History::new(1 << 20);
        for number in [1, 0, 2, 3] {
            history.add(&record(number));
        }
        let all = history.find(None, 10, |_| true, |_| true);
        let ids: Vec<u64> = all.iter().map(|it| it.submitted_us - 1000).collect();
        assert_eq!(ids, [3, 2, 1, 0]);
        assert_eq!(all[3], record(0));
        // A page, and the next.
        let page = history.find(None, 2, |_| true, |_| true);
        assert_eq!(page, [record(3), record(2)]);
        let before = (page[1].submitted_us, page[1].id, page[1].attempt);
        let page = history.find(Some(before), 2, |_| true, |_| true);
        assert_eq!(page, [record(1), record(0)]);
        let child = Record {
            parent: Some(record(0).id),
            parent_attempt: 2,
            actor: Some(record(0).id.actor()),
            ran_at: Some(NodeId::from_bytes([9; 16])),
            ..record(4)
        };
        history.add(&child);
        let is_meant = |it: &Kin| {
            (it.parent, it.actor, it.ran_at) == (child.parent, child.actor, child.ran_at)
        };
        let meant = history.find(None, 9, |_| true, is_meant);
        assert_eq!(meant, [child]);
        assert_eq!(history.last(&record(2).id), Some(record(2)));
        assert_eq!(history.last(&record(5).id), None);
    }

    #[test]
    fn a_page_takes_as_many_looks_as_it_has_records_where_all_ended_in_order() {
        let history = History::new(1 << 20);
        for number in 0..3000 {
            history.add(&record(number));
        }
        let looks = Cell::new(0);
        let page = |before| {
            let found = history.find(
                before,
                10,
                |_| {
                    looks.set(looks.get() + 1);
                    true
                },
                |_| true,
            );
            let ids: Vec<u64> = found.iter().map(|it| it.submitted_us - 1000).collect();
            (ids, looks.take())
        };
        let numbers = |from: u64| (from..from + 10).rev().collect::<Vec<u64>>();
        assert_eq!(page(None), (numbers(2990), 10));
        let before = record(100);
        let before = (before.submitted_us, before.id, before.attempt);
        assert_eq!(page(Some(before)), (numbers(90), 10));
    }

    #[test]
    fn attempts_of_one_task_are_told_apart() {
        let history = History::new(1 << 20);
        let failure = Failure::of(&TaskError::Sandbox("s".into()), "e".into());
        let parent = format!("00-{}-{}-01", "1".repeat(32), "2".repeat(16));
        let parent = parent.parse().unwrap();
        let first = Record {
            outcome: Outcome::Retried,
            failure: Some(failure),
            trace: Some(TraceContext::new(parent, TraceState::default())),
            ..record(7)
        };
        let second = Record {
            attempt: 2,
            ..record(7)
        };
        history.add(&first);
        history.add(&record(8));
        history.add(&second);
        assert_eq!(history.attempts(&first.id), [second, first]);
    }

    #[test]
    fn what_another_node_has_taken_over_is_hidden() {
        let history = History::new(1 << 20);
        let late = Record {
            submitted_us: u64::MAX,
            ended_us: u64::MAX,
            attempt: 2,
            ..record(7)
        };
        history.add(&record(7));
        history.give_up(record(7).id);
        assert_eq!(history.last(&record(7).id), None);
        // It has come back since.
        history.add(&late);
        assert_eq!(history.attempts(&late.id), [late]);
        for number in 0..=MOST_TAKEN {
            history.give_up(JOB.task(10 + number as u64));
        }
        let taken = history.taken.read();
        assert_eq!(
            (taken.until_us.len(), taken.order.len()),
            (MOST_TAKEN, MOST_TAKEN)
        );
    }

    #[test]
    fn of_a_long_error_the_beginning_is_kept() {
        let error = TaskError::Guest {
            text: "é".repeat(1 << 20),
            value: Encoded::Postcard(vec![0; 2 << 20]),
            passed: None,
        };
        let cause = Box::new(error);
        let error = TaskError::Dependency {
            index: 0,
            task: JOB.task(1),
            name: "n".into(),
            cause,
        };
        let history = History::new(1 << 20);
        history.add(&Record {
            failure: Some(Failure::of(&error, String::new())),
            ..record(7)
        });
        assert!(history.usage().bytes < 64 << 10);
        let failure = history.last(&record(7).id).and_then(|it| it.failure);
        let kept = TaskError::from(failure.expect("it has failed").error);
        assert_eq!(kept.kind(), "dependency");
        assert!(kept.to_string().contains("éé"));
    }

    #[test]
    fn long_names_and_many_units_count() {
        let history = History::new(1 << 20);
        let units: Vec<(u32, u64)> = (0..1000).map(|unit| (unit, 1)).collect();
        for number in 0..100_u64 {
            history.add(&Record {
                name: number.to_string().repeat(20_000).into(),
                held: vec![HeldResource {
                    name: ResourceName::CPU,
                    amount: number,
                    units: units.clone(),
                }]
                .into(),
                ..record(number)
            });
        }
        let usage = history.usage();
        assert!(usage.bytes <= (1 << 20) + (128 << 10), "{usage:?}");
        assert!((10..40).contains(&usage.records), "{usage:?}");
        assert_eq!(usage.records + usage.dropped, 100);
    }

    #[test]
    fn who_may_not_know_of_a_tenant_does_not_hear_of_it() {
        let error = TaskError::Preempted {
            tenant: Some("b".parse().unwrap()),
            why: "tenant b".into(),
        };
        let failure = Failure::of(&error, String::new());
        assert_eq!(failure.seen_by(|tenant| tenant.as_str() == "b"), error);
        let seen = failure.seen_by(|_| false).to_string();
        assert!(
            seen.ends_with("another tenant was due what it held"),
            "{seen}"
        );
    }

    #[test]
    fn the_oldest_go_when_it_is_full() {
        let history = History::new(300 << 10);
        for number in 0..20_000 {
            history.add(&record(number));
            assert!(history.usage().bytes <= 300 << 10);
        }
        let usage = history.usage();
        assert!(usage.dropped > 0 && usage.records + usage.dropped == 20_000);
        assert!(history.attempts(&record(0).id).is_empty());
        assert_eq!(history.attempts(&record(19_999).id).len(), 1);
        let none = History::new(0);
        none.add(&record(0));
        assert_eq!(none.usage().records, 0);
    }
}
