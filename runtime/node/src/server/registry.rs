//! What the server remembers beyond sessions: modules, tasks that ended, and what is kept for whoever
//! comes later.
//!
//! Must not: run or cancel anything. Invariants: each collection has a limit, and its oldest goes first;
//! nothing of a session's own is kept longer than the session, but for a few words about its tasks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, ObjectId, TaskId};
use wasmrun_model::wire::Refusal;

use super::again::Submissions;
use super::loaded::LoadedModules;
use super::stored::End;
use super::views::one;
use crate::records::log::Log;
use crate::records::object::Object;
use crate::records::task::{Notes, Report};

/// How many detached tasks that have ended are remembered.
const MOST_ENDED: usize = 10_000;
/// How many bytes of output and of errors are kept of them. Beyond that the oldest of who has most go.
const MOST_ENDED_BYTES: usize = 256 << 20;
/// How many modules are kept loaded.
const MOST_MODULES: usize = 256;

pub(super) struct Registry {
    pub(super) modules: LoadedModules,
    tasks: BTreeMap<TaskId, Record>,
    /// How many of them have not ended, of those tenants that have some.
    live: BTreeMap<TenantName, u64>,
    /// Who ended first is first.
    ended: VecDeque<Ended>,
    /// What is kept of them, by tenant that has some.
    ended_bytes: BTreeMap<TenantName, usize>,
    puts: BTreeMap<ObjectId, PutRecord>,
    /// What these tasks were given.
    pub(super) submissions: Submissions,
}

/// Ends of tasks that the registry has not seen yet: whoever ends a task does not wait for it.
#[derive(Default)]
pub(super) struct Ends(Mutex<Vec<(TaskId, End)>>);

impl Notes for Ends {
    fn ended(&self, report: &Report) {
        self.0.lock().push((report.id, End::of(report)));
    }
}

impl Ends {
    /// The registry, with all ends in it.
    pub(super) fn noted<'a>(&self, registry: &'a Mutex<Registry>) -> MutexGuard<'a, Registry> {
        // In this order: whoever has the registry sees all ends that there were before.
        let mut noted = registry.lock();
        let ends = std::mem::take(&mut *self.0.lock());
        let forgotten = ends
            .into_iter()
            .flat_map(|(id, end)| noted.end_task(id, end));
        let forgotten: Vec<Record> = forgotten.collect();
        if forgotten.is_empty() {
            return noted;
        }
        // What it holds must be dropped outside the lock.
        drop(noted);
        drop(forgotten);
        registry.lock()
    }
}

/// A detached task.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) id: TaskId,
    pub(super) name: String,
    pub(super) tenant: TenantName,
    pub(super) driver: DriverId,
    pub(super) submitted: Instant,
    /// What it makes and wrote, unless that was deleted.
    pub(super) detached: Option<Detached>,
    /// What came of it.
    pub(super) end: Option<End>,
}

/// A detached task that has ended, and how many bytes are kept of it.
struct Ended {
    id: TaskId,
    tenant: TenantName,
    bytes: usize,
}

#[derive(Clone)]
pub(super) struct Detached {
    pub(super) object: Object,
    pub(super) log: Arc<Log>,
    /// What its client was told, once it was: that it outlives this node, or why not.
    pub(super) lasting: Option<Result<(), String>>,
}

/// An object that stays until it is deleted.
#[derive(Clone)]
pub(super) struct PutRecord {
    pub(super) object: Object,
    pub(super) tenant: TenantName,
    pub(super) size_bytes: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            modules: LoadedModules::new(MOST_MODULES),
            tasks: BTreeMap::new(),
            live: BTreeMap::new(),
            ended: VecDeque::new(),
            ended_bytes: BTreeMap::new(),
            puts: BTreeMap::new(),
            submissions: Submissions::default(),
        }
    }
}

impl Registry {
    pub(super) fn add_task(&mut self, record: Record) {
        if record.end.is_none() {
            *self.live.entry(record.tenant.clone()).or_default() += 1;
        }
        match self.tasks.insert(record.id, record) {
            Some(before) if before.end.is_some() => self.leave_out(&before.id),
            Some(before) => self.is_over(&before.tenant),
            None => {}
        }
    }

    /// One of a tenant that had not ended has, or is gone.
    fn is_over(&mut self, tenant: &TenantName) {
        if let Some(live) = self.live.get_mut(tenant) {
            *live -= 1;
            if *live == 0 {
                self.live.remove(tenant);
            }
        }
    }

    /// How many tasks of a tenant, and of those that are part of it, have not ended.
    pub(super) fn live_of(&self, tenant: &TenantName) -> u64 {
        let is_of = |name: &TenantName| {
            let rest = name.as_str().strip_prefix(tenant.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let live = self.live.iter().filter(|(name, _)| is_of(name));
        live.map(|(_, live)| live).sum()
    }

    /// A task that has ended elsewhere. What must be dropped outside the registry's lock.
    #[must_use]
    pub(super) fn add_ended(&mut self, mut record: Record) -> Vec<Record> {
        let id = record.id;
        let Some(end) = record.end.take() else {
            return Vec::new();
        };
        self.add_task(record);
        self.end_task(id, end)
    }

    /// A task is nothing of this node's any more. What must be dropped outside the registry's lock.
    #[must_use]
    pub(super) fn forget(&mut self, id: &TaskId) -> Option<Record> {
        let record = self.tasks.remove(id)?;
        self.submissions.remove(id);
        match record.end.is_some() {
            true => self.leave_out(id),
            false => self.is_over(&record.tenant),
        }
        Some(record)
    }

    /// A task has ended. What must be dropped outside the registry's lock.
    #[must_use]
    fn end_task(&mut self, id: TaskId, end: End) -> Vec<Record> {
        let Some(record) = self.tasks.get_mut(&id) else {
            return Vec::new();
        };
        let log = record.detached.as_ref().map_or(0, |it| it.log.size_bytes());
        let bytes = end.error_bytes + log;
        if record.end.replace(end).is_some() {
            return Vec::new();
        }
        let tenant = record.tenant.clone();
        self.is_over(&tenant);
        if bytes > 0 {
            *self.ended_bytes.entry(tenant.clone()).or_default() += bytes;
        }
        self.ended.push_back(Ended { id, tenant, bytes });
        let mut forgotten = Vec::new();
        while let Some(it) = self.one_too_many().and_then(|at| self.ended.remove(at)) {
            self.let_go(&it.tenant, it.bytes);
            self.submissions.remove(&it.id);
            forgotten.extend(self.tasks.remove(&it.id));
        }
        forgotten
    }

    /// Which of those that have ended is to be forgotten next: never the one that was the last to end.
    fn one_too_many(&self) -> Option<usize> {
        if self.ended.len() > MOST_ENDED {
            return Some(0);
        }
        if self.ended_bytes.values().sum::<usize>() <= MOST_ENDED_BYTES {
            return None;
        }
        let (most, _) = self.ended_bytes.iter().max_by_key(|it| it.1)?;
        let older = || self.ended.iter().take(self.ended.len().saturating_sub(1));
        let of_most = older().position(|it| it.bytes > 0 && it.tenant == *most);
        of_most.or_else(|| older().position(|it| it.bytes > 0))
    }

    /// So much is not kept any more.
    fn let_go(&mut self, tenant: &TenantName, bytes: usize) {
        if let Some(all) = self.ended_bytes.get_mut(tenant) {
            *all -= bytes;
            if *all == 0 {
                self.ended_bytes.remove(tenant);
            }
        }
    }

    /// A task is not one of those that have ended, if it was.
    fn leave_out(&mut self, id: &TaskId) {
        let at = self.ended.iter().position(|it| it.id == *id);
        if let Some(it) = at.and_then(|at| self.ended.remove(at)) {
            self.let_go(&it.tenant, it.bytes);
        }
    }

    pub(super) fn task(&self, id: &TaskId) -> Option<&Record> {
        self.tasks.get(id)
    }

    pub(super) fn tasks(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.tasks.values()
    }

    /// Remembers what the client of a detached task was told.
    pub(super) fn set_lasting(&mut self, id: &TaskId, lasting: Result<(), String>) {
        let detached = self.tasks.get_mut(id).and_then(|it| it.detached.as_mut());
        if let Some(detached) = detached {
            detached.lasting = Some(lasting);
        }
    }

    pub(super) fn keep(&mut self, put: PutRecord) {
        self.puts.insert(put.object.id(), put);
    }

    pub(super) fn delete(&mut self, id: &ObjectId) -> Option<Object> {
        if let Some(put) = self.puts.remove(id) {
            return Some(put.object);
        }
        let record = self.tasks.get_mut(&id.task())?;
        // Its value goes with it, if it has ended.
        record.end.as_ref()?;
        let object = record.detached.take()?.object;
        self.submissions.remove(&id.task());
        // Its output is gone, too.
        if let Some(it) = self.ended.iter_mut().find(|it| it.id == id.task()) {
            let (tenant, bytes) = (it.tenant.clone(), std::mem::take(&mut it.bytes));
            self.let_go(&tenant, bytes);
        }
        Some(object)
    }

    pub(super) fn puts(&self) -> impl Iterator<Item = &PutRecord> {
        self.puts.values()
    }

    /// The one object of a tenant that outlives sessions and whose id begins so.
    pub(super) fn kept_by_prefix(
        &self,
        tenant: &TenantName,
        prefix: &str,
    ) -> Result<&Object, Refusal> {
        let own = self.objects().filter(|(_, of)| *of == tenant);
        let found = one(tenant, prefix, "object", own, |(it, _)| it.id());
        found.map(|(object, _)| object)
    }

    /// An object that outlives sessions, and whose it is.
    pub(super) fn object(&self, id: &ObjectId) -> Option<(&Object, &TenantName)> {
        if let Some(put) = self.puts.get(id) {
            return Some((&put.object, &put.tenant));
        }
        let record = self.tasks.get(&id.task())?;
        let made = &record.detached.as_ref()?.object;
        (made.id() == *id).then_some((made, &record.tenant))
    }

    /// All objects that outlive sessions, and whose they are.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&Object, &TenantName)> {
        let made = self.tasks.values().filter_map(|record| {
            let detached = record.detached.as_ref()?;
            Some((&detached.object, &record.tenant))
        });
        let puts = self.puts.values();
        puts.map(|put| (&put.object, &put.tenant)).chain(made)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(number: u8, tenant: &str) -> Record {
        let driver = DriverId::from_bytes([1; 16]);
        Record {
            id: driver.task(number.into()),
            name: "task".into(),
            tenant: tenant.parse().unwrap(),
            driver,
            submitted: Instant::now(),
            detached: None,
            end: None,
        }
    }

    fn end() -> End {
        End {
            error: None,
            error_bytes: 0,
            waited: Duration::ZERO,
            ran: Duration::ZERO,
            ran_at: None,
        }
    }

    #[test]
    fn of_those_that_have_ended_so_many_bytes_are_kept() {
        let mut registry = Registry::default();
        let half = || End {
            error_bytes: MOST_ENDED_BYTES / 2,
            ..end()
        };
        let ids = [0, 1, 2, 3].map(|number| {
            registry.add_task(record(number, "t"));
            record(number, "t").id
        });
        assert!(registry.end_task(ids[0], half()).is_empty());
        assert!(registry.end_task(ids[1], half()).is_empty());
        // One that has ended twice counts once.
        assert!(registry.end_task(ids[1], half()).is_empty());
        assert!(
            registry
                .add_ended(Record {
                    end: Some(half()),
                    ..record(1, "t")
                })
                .is_empty()
        );
        let forgotten = registry.end_task(ids[2], half());
        assert_eq!(forgotten.len(), 1);
        assert_eq!(forgotten[0].id, ids[0]);
        // Room is there again where one is forgotten.
        assert!(registry.forget(&ids[2]).is_some());
        assert!(registry.end_task(ids[3], half()).is_empty());
        let kept = |registry: &Registry| registry.ended_bytes.values().sum::<usize>();
        assert_eq!(kept(&registry), MOST_ENDED_BYTES);
        // One alone may have more.
        registry.add_task(record(4, "t"));
        let large = End {
            error_bytes: MOST_ENDED_BYTES + 1,
            ..end()
        };
        assert_eq!(registry.end_task(record(4, "t").id, large).len(), 2);
        assert_eq!(
            (kept(&registry), registry.tasks.len()),
            (MOST_ENDED_BYTES + 1, 1)
        );
    }

    #[test]
    fn who_has_most_loses_the_oldest() {
        let mut registry = Registry::default();
        let part = || End {
            error_bytes: MOST_ENDED_BYTES / 4,
            ..end()
        };
        let mut add = |number, tenant| {
            let record = record(number, tenant);
            let id = record.id;
            registry.add_task(record);
            let forgotten = registry.end_task(id, part());
            forgotten.iter().map(|it| it.id).collect::<Vec<_>>()
        };
        for (number, tenant) in [(0, "a"), (1, "b"), (2, "b"), (3, "b")] {
            assert!(add(number, tenant).is_empty());
        }
        assert_eq!(add(4, "b"), [record(1, "b").id]);
        assert_eq!(add(5, "c"), [record(2, "b").id]);
    }

    #[test]
    fn tasks_that_have_not_ended_are_counted_with_those_of_all_below() {
        let mut registry = Registry::default();
        let all = ["org", "org/x", "org/x/1", "org-2", "org/x"];
        let records: Vec<Record> = (0..)
            .zip(all)
            .map(|(at, tenant)| record(at, tenant))
            .collect();
        for record in &records {
            registry.add_task(record.clone());
        }
        // The same once more is no other.
        registry.add_task(records[1].clone());
        let live = |registry: &Registry| {
            ["org", "org/x", "org-2", "o"].map(|of| registry.live_of(&of.parse().unwrap()))
        };
        assert_eq!(live(&registry), [4, 3, 1, 0]);
        assert!(registry.end_task(records[2].id, end()).is_empty());
        assert!(registry.end_task(records[2].id, end()).is_empty());
        assert_eq!(live(&registry), [3, 2, 1, 0]);
        for at in [1, 2] {
            assert!(registry.forget(&records[at].id).is_some());
        }
        assert_eq!(live(&registry), [2, 1, 1, 0]);
        let ended = Record {
            end: Some(end()),
            ..record(9, "org")
        };
        assert!(registry.add_ended(ended).is_empty());
        assert_eq!(live(&registry), [2, 1, 1, 0]);
    }
}
