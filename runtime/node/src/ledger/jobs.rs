//! Jobs: what one driver submits, with all that its tasks start here.
//!
//! Owns what is known of each ([`About`]) and how many of its tasks ended how; drivers are taken for their
//! [jobs](DriverId::job). Must not: know single tasks, or tasks of other nodes, which count there: so the numbers of all nodes
//! add up. Invariant: at most [`MOST_OVER`] jobs that are over are remembered, and the one that ended first is forgotten first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tokio::time::Instant;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::DriverId;
use wasmrun_model::task::Phase;

/// How many jobs that are over are remembered.
const MOST_OVER: usize = 10_000;

/// What a job is, as its driver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// What people call it.
    pub(crate) name: String,
    pub(crate) tenant: TenantName,
    /// Who submitted it, for people.
    pub(crate) by: String,
    /// How many tasks the driver is to submit; 0 if that is not known.
    pub(crate) expected: u64,
}

/// How many tasks ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
}

impl Ends {
    fn count(&mut self, phase: Phase) {
        *self.of(phase) += 1;
    }

    fn uncount(&mut self, phase: Phase) {
        let count = self.of(phase);
        *count = count.saturating_sub(1);
    }

    fn of(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Finished => &mut self.finished,
            Phase::Failed => &mut self.failed,
            _ => &mut self.cancelled,
        }
    }

    fn all(&self) -> u64 {
        self.finished + self.failed + self.cancelled
    }
}

/// A job, as far as it is this node's.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Unknown where another node's job has tasks that started others here.
    pub(crate) about: Option<About>,
    pub(crate) submitted: Instant,
    pub(crate) ended: Option<Instant>,
    /// When the last of its tasks that have ended did.
    latest: Instant,
    /// Whether its driver may submit more.
    is_open: bool,
    /// Its tasks that live.
    pub(crate) live: u64,
    pub(crate) ends: Ends,
    /// Those of the driver itself.
    driven: u64,
    driven_ends: Ends,
}

impl Job {
    fn new(now: Instant) -> Self {
        Self {
            about: None,
            submitted: now,
            ended: None,
            latest: now,
            is_open: false,
            live: 0,
            ends: Ends::default(),
            driven: 0,
            driven_ends: Ends::default(),
        }
    }

    /// `running`, or how it ended.
    pub(crate) fn state(&self) -> &'static str {
        match (self.ended, self.driven_ends) {
            (None, _) => "running",
            (Some(_), Ends { failed: 1.., .. }) => "failed",
            (Some(_), Ends { cancelled: 1.., .. }) => "cancelled",
            (Some(_), _) => "finished",
        }
    }

    /// Whether nothing of it lives and nothing is to come: its driver has ended, or has submitted all that it was to.
    fn is_over(&self) -> bool {
        let expected = self.about.as_ref().map_or(0, |about| about.expected);
        let is_whole = expected > 0 && self.driven_ends.all() >= expected;
        self.live == 0 && (!self.is_open || is_whole)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    all: BTreeMap<DriverId, Job>,
    /// Those that are over, in the order in which they ended.
    over: BTreeSet<(Instant, DriverId)>,
}

impl Jobs {
    /// A driver says what its job is, and may submit. Where another node takes it over it was submitted before.
    pub(crate) fn open(&mut self, id: DriverId, about: About, submitted: Instant) {
        let id = id.job();
        let job = self.all.entry(id).or_insert_with(|| Job::new(submitted));
        job.submitted = job.submitted.min(submitted);
        let before = job.about.get_or_insert_with(|| about.clone());
        before.expected = before.expected.max(about.expected);
        job.is_open = true;
        self.revive(id);
    }

    /// A driver submits nothing more.
    pub(crate) fn close(&mut self, id: &DriverId, now: Instant) {
        let id = &id.job();
        if let Some(job) = self.all.get_mut(id) {
            job.is_open = false;
        }
        self.may_be_over(id, now);
    }

    /// A task was submitted here: by the driver itself, or by another task.
    pub(crate) fn submitted(&mut self, id: DriverId, is_driven: bool, now: Instant) {
        let id = id.job();
        let job = self.all.entry(id).or_insert_with(|| Job::new(now));
        job.live += 1;
        job.driven += u64::from(is_driven);
        if job.ended.is_some() {
            self.revive(id);
        }
    }

    /// It is none of this node's after all: it was not taken, or another node has taken it over.
    pub(super) fn refused(&mut self, id: &DriverId, is_driven: bool, now: Instant) {
        let id = &id.job();
        if let Some(job) = self.all.get_mut(id) {
            job.live = job.live.saturating_sub(1);
            job.driven = job.driven.saturating_sub(u64::from(is_driven));
        }
        self.may_be_over(id, now);
    }

    /// It has ended.
    pub(crate) fn ended(&mut self, id: &DriverId, is_driven: bool, phase: Phase, now: Instant) {
        let id = &id.job();
        let Some(job) = self.all.get_mut(id) else {
            return;
        };
        job.live = job.live.saturating_sub(1);
        job.latest = job.latest.max(now);
        job.ends.count(phase);
        if is_driven {
            job.driven_ends.count(phase);
        }
        if job.live == 0 {
            self.may_be_over(id, now);
        }
    }

    /// A task of the driver's that has ended so is another node's now.
    pub(crate) fn taken(&mut self, id: &DriverId, phase: Phase) {
        let id = &id.job();
        let Some(job) = self.all.get_mut(id) else {
            return;
        };
        job.driven = job.driven.saturating_sub(1);
        job.ends.uncount(phase);
        job.driven_ends.uncount(phase);
        if !job.is_open && job.driven == 0 && job.live == 0 && job.ends == Ends::default() {
            if let Some(ended) = job.ended {
                self.over.remove(&(ended, *id));
            }
            self.all.remove(id);
        }
    }

    fn may_be_over(&mut self, id: &DriverId, now: Instant) {
        let Some(job) = self.all.get_mut(id).filter(|job| job.is_over()) else {
            return;
        };
        // When it ended is known already.
        if job.ended.is_some() {
            return;
        }
        // A session that has submitted nothing is no job.
        if job.driven == 0 && job.ends == Ends::default() {
            self.all.remove(id);
            return;
        }
        // Those that are taken over are not told of in the order in which they ended.
        let ended = now.max(job.latest);
        job.ended = Some(ended);
        self.over.insert((ended, *id));
        if self.over.len() > MOST_OVER
            && let Some((_, oldest)) = self.over.pop_first()
        {
            self.all.remove(&oldest);
        }
    }

    /// It is not over after all.
    fn revive(&mut self, id: DriverId) {
        let ended = self.all.get_mut(&id).and_then(|job| job.ended.take());
        if let Some(ended) = ended {
            self.over.remove(&(ended, id));
        }
    }

    pub(crate) fn get(&self, id: &DriverId) -> Option<&Job> {
        self.all.get(&id.job())
    }

    /// All of them, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DriverId, &Job)> {
        self.all.iter()
    }

    /// Those behind this one, if one is given, in that order.
    pub(crate) fn after(&self, id: Option<DriverId>) -> impl Iterator<Item = (&DriverId, &Job)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.all.range((from, Bound::Unbounded))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: DriverId = DriverId::session([1; 16]);

    fn about(expected: u64) -> About {
        About {
            name: "n".into(),
            tenant: TenantName::default(),
            by: "b".into(),
            expected,
        }
    }

    fn state(jobs: &Jobs) -> Option<&'static str> {
        jobs.get(&ID).map(Job::state)
    }

    #[test]
    fn a_job_is_over_when_its_driver_is_and_nothing_lives() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        jobs.open(ID, about(0), now);
        jobs.submitted(ID, true, now);
        jobs.submitted(ID, false, now);
        jobs.ended(&ID, true, Phase::Finished, now);
        jobs.close(&ID, now);
        assert_eq!(state(&jobs), Some("running"));
        // What others started decides nothing.
        jobs.ended(&ID, false, Phase::Failed, now);
        assert_eq!(state(&jobs), Some("finished"));
        // What goes on after its driver has ended, as a call of an actor may.
        jobs.submitted(ID, true, now);
        assert_eq!(state(&jobs), Some("running"));
        jobs.ended(&ID, true, Phase::Cancelled, now);
        assert_eq!(state(&jobs), Some("cancelled"));
        assert_eq!(jobs.over.len(), 1);
    }

    #[test]
    fn an_array_is_over_when_all_of_it_has_ended() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        jobs.open(ID, about(2), now);
        for phase in [Phase::Failed, Phase::Finished] {
            assert_eq!(state(&jobs), Some("running"));
            jobs.submitted(ID, true, now);
            jobs.ended(&ID, true, phase, now);
        }
        assert_eq!(state(&jobs), Some("failed"));
        // That its session ends later changes nothing, and it is forgotten in its turn.
        jobs.close(&ID, now + Duration::from_secs(1));
        assert_eq!(jobs.get(&ID).and_then(|job| job.ended), Some(now));
        assert_eq!(jobs.over, BTreeSet::from([(now, ID)]));
    }

    #[test]
    fn a_job_that_is_taken_over_was_submitted_and_has_ended_before() {
        let (mut jobs, began) = (Jobs::default(), Instant::now());
        let second = Duration::from_secs(1);
        for (submitted, ended) in [(1_u32, 5_u32), (0, 9), (2, 4)] {
            let ended = began + ended * second;
            jobs.open(ID, about(3), began + submitted * second);
            jobs.submitted(ID, true, ended);
            jobs.ended(&ID, true, Phase::Finished, ended);
            jobs.close(&ID, ended);
        }
        let job = jobs.get(&ID).unwrap();
        assert_eq!(
            (job.submitted, job.ended),
            (began, Some(began + 9 * second))
        );
        assert_eq!(jobs.over.len(), 1);
    }

    #[test]
    fn a_job_whose_tasks_another_node_has_is_none() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        jobs.open(ID, about(0), now);
        jobs.submitted(ID, true, now);
        jobs.ended(&ID, true, Phase::Finished, now);
        jobs.taken(&ID, Phase::Finished);
        // Its driver may still submit more.
        assert_eq!(state(&jobs), Some("running"));
        jobs.close(&ID, now);
        assert_eq!(state(&jobs), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_what_submits_nothing_at_once() {
        let (mut jobs, now) = (Jobs::default(), Instant::now());
        jobs.open(ID, about(0), now);
        jobs.close(&ID, now);
        assert_eq!(state(&jobs), None);
        let id = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            DriverId::session(bytes)
        };
        for number in 0..=MOST_OVER {
            let now = now + Duration::from_micros(number as u64);
            jobs.submitted(id(number), true, now);
            jobs.ended(&id(number), true, Phase::Finished, now);
        }
        assert!(jobs.get(&id(0)).is_none() && jobs.get(&id(1)).is_some());
        assert_eq!(jobs.iter().count(), MOST_OVER);
    }
}
