//! Preemption: tasks that run are paused, so that a tenant gets the CPU that it is due; or stopped, where it is guaranteed what
//! a pause does not free.
//!
//! Owns who is due something at once, which tasks are paused for it, and for how long each was. Must not: choose those that
//! stop (`stops.rs`); stop a task for good.
//!
//! A tenant is due CPU while it has less than its minimum, and when it has none at all, after [`PATIENCE`], while others
//! have more than their part by weights; and a task, after that time, from those of its tenant of lower priority. Then a
//! round begins: the tasks that stand in the way are told to pause, and when all have, their CPUs are given back in one step and
//! the task that waited gets them. To the scheduler a paused task is a blocked one that wants to go on, in the line of its tenant.
//!
//! Invariants: one round at a time; no tenant comes below its minimum by it; a task runs for [`RUN_MIN`] before it is told
//! to pause (again). So each task gets on, and the number of pauses is bounded by time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::class::{ClassIx, Gate, Wants};
use super::lane::Turn;
use super::record::TaskIx;
use super::victims::Holders;
use super::{Effect, Scheduler};
use crate::cluster::NodeIx;
use crate::fairness::{CpuParts, Policy, TenantIx, TenantName};
use crate::id::TaskId;
use crate::resource::{Amount, ResourceName};
use crate::task::{Attempt, BlockedOn, Phase, TaskKind, TaskState};
use crate::time::Instant;

/// How long a task runs before it is told to pause, since it was started or has gone on: some ten turns of a guest, so that
/// the cost of a pause is small beside what it got done.
pub(super) const RUN_MIN: Duration = Duration::from_millis(100);
/// How long a tenant without a minimum waits with no CPU at all, and a task for those of lower priority: most tasks end by
/// themselves before that.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long those of a round that have paused wait for the others, which may be in a call of the host.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// How often it is looked who is due CPU, at most.
const PAUSE: Duration = Duration::from_millis(10);
/// For how many of those who are due CPU something is looked for each time.
const CLAIMS: usize = 16;
/// For each so many tasks that are the first of their line, [`PAUSE`] is longer by as much again: a look costs some microseconds
/// for each of them. After a look in vain also for so many that run: each was looked at.
const HEADS: u32 = 100;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Preemption {
    /// Those that were told to pause and have their CPU yet.
    asked: BTreeMap<TaskIx, Asked>,
    round: Option<Round>,
    /// Since when tenants without CPU have waited for their share.
    waiting: BTreeMap<TenantIx, Instant>,
    /// Those that have been paused and not ended.
    paused: BTreeMap<TaskIx, Pauses>,
    /// When it is looked next.
    look_at: Instant,
    /// At how many tasks that are the first of their line it was looked last.
    heads: u32,
    /// At which claim the next look begins.
    from: usize,
    /// At how many claims it was looked in vain since anything has changed.
    in_vain: usize,
    deadline: Option<Instant>,
    /// Whether a task was ever submitted that has a priority.
    has_priorities: bool,
}

#[derive(Debug)]
struct Asked {
    why: PausedFor,
    /// Whether it has paused, and waits for the others of its round.
    has_paused: bool,
}

/// Tasks that pause, or stop, together for one that waits.
#[derive(Debug)]
struct Round {
    class: ClassIx,
    /// By its id: its slot may be another's by the end.
    task: TaskId,
    victims: BTreeSet<TaskIx>,
    until: Instant,
    /// Whether something is kept for the class because of it.
    keeps: bool,
}

/// The pauses of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    /// How many.
    pub times: u32,
    /// How long all were that are over.
    pub in_all: Duration,
    /// Since when it is paused, if it is.
    pub since: Option<Instant>,
    /// Why it was paused last.
    pub why: PausedFor,
}

/// For whom a task is paused, or stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PausedFor {
    /// A tenant with less of a resource than it is guaranteed.
    Minimum {
        /// The tenant.
        tenant: TenantName,
        /// The resource: CPU where it is a pause.
        resource: ResourceName,
        /// What it used by then.
        used: Amount,
        /// What it is guaranteed.
        minimum: Amount,
    },
    /// A tenant that had no CPU.
    Share {
        /// The tenant.
        tenant: TenantName,
        /// The tenant of the task, which had more than its part.
        above: TenantName,
    },
    /// A task of the same tenant, of higher priority.
    Priority {
        /// The tenant.
        tenant: TenantName,
        /// The priority of that task.
        priority: i32,
    },
}

impl PausedFor {
    /// Who got what it held.
    pub fn tenant(&self) -> &TenantName {
        let (Self::Minimum { tenant, .. }
        | Self::Share { tenant, .. }
        | Self::Priority { tenant, .. }) = self;
        tenant
    }
}

impl fmt::Display for PausedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minimum {
                tenant,
                resource,
                used,
                minimum,
            } => {
                let (used, minimum) = (used.display_for(resource), minimum.display_for(resource));
                write!(
                    f,
                    "tenant {tenant} is below its guaranteed {resource}: {used} of {minimum}"
                )
            }
            Self::Share { tenant, above } => write!(
                f,
                "tenant {tenant} had no CPU, and tenant {above} more than its share"
            ),
            Self::Priority { priority, .. } => {
                write!(f, "a task of priority {priority} of the same tenant waited")
            }
        }
    }
}

/// What a tenant is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// CPU, as this one is below its minimum of that: the tenant, or one that it is part of.
    Minimum(TenantIx),
    /// Whatever one of these is below its minimum of, where CPU alone does not do.
    Back,
    /// The tenant has no CPU.
    Share,
    /// CPU of tasks of the same tenant of lower priority than this.
    Priority(i32),
}

/// A task that waits, of a tenant that is due something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) tenant: TenantIx,
    pub(super) due: Due,
    pub(super) turn: Turn,
    pub(super) class: ClassIx,
    pub(super) task: TaskIx,
}

impl Preemption {
    /// Whether a task was told to pause, and has its CPU yet.
    pub(super) fn is_asked(&self, ix: TaskIx) -> bool {
        self.asked.contains_key(&ix)
    }

    /// A task of this priority was submitted.
    #[inline]
    pub(super) fn note_priority(&mut self, priority: i32) {
        self.has_priorities |= priority != 0;
    }

    /// Something has happened: a claim that could not be served may be by now.
    #[inline]
    pub(super) fn has_news(&mut self) {
        self.in_vain = 0;
    }

    /// Then, or sooner, there may be something to do.
    fn come_back_at(&mut self, at: Instant) {
        self.has_news();
        self.look_again_at(at);
    }

    fn look_again_at(&mut self, at: Instant) {
        self.deadline = Some(self.deadline.map_or(at, |before| before.min(at)));
    }

    /// How much longer than [`PAUSE`] it waits between two looks.
    fn longer(&self) -> Duration {
        PAUSE.saturating_mul(self.heads / HEADS)
    }

    /// Nobody is due anything.
    fn rest(&mut self) {
        self.waiting.clear();
        self.deadline = self.round.as_ref().map(|round| round.until);
    }
}

impl Scheduler {
    /// When somebody may be due CPU, or a round is over: then comes [`Event::Tick`](super::Event::Tick), if nothing else
    /// happens before.
    pub fn preempts_at(&self) -> Option<Instant> {
        self.preemption.deadline
    }

    /// How often a live task was paused, if it was.
    pub fn pauses(&self, task: &TaskId) -> Option<&Pauses> {
        self.pauses_of(self.tasks.find(task)?)
    }

    pub(super) fn pauses_of(&self, ix: TaskIx) -> Option<&Pauses> {
        self.preemption.paused.get(&ix)
    }

    /// All has started that fits: tells tasks to pause or stop if somebody who waits is due what they have.
    pub(super) fn preempt(&mut self) {
        // With one tenant without priorities, and where nobody waits for resources, it ends here.
        let are_equal = self.tenants.len() < 2 && !self.preemption.has_priorities;
        if self.gated == self.open.len() || are_equal {
            return self.preemption.rest();
        }
        let look_at = self.preemption.look_at;
        if self.now < look_at {
            // Whatever there is to do, it is not done before that.
            self.preemption.deadline = Some(look_at);
            return;
        }
        self.preemption.look_at = self.now + PAUSE;
        if !self.preempts() {
            return self.preemption.rest();
        }
        let round = self.preemption.round.as_ref().map(|round| round.until);
        self.preemption.deadline = round;
        if round.is_some() {
            return;
        }
        let claims = self.claims();
        self.preemption.look_at = self.now + PAUSE + self.preemption.longer();
        if claims.is_empty() {
            return;
        }
        let holders = self.holders();
        let tenants = self.tenants.iter().map(|(ix, _)| ix);
        let active = tenants.filter(|ix| !self.tenants.cpu_of_own_work(*ix).is_zero());
        let waiting = claims.iter().map(|claim| claim.tenant);
        let waiting = waiting.chain(self.preemption.waiting.keys().copied());
        let parts = self.tenants.cpu_parts(&active.chain(waiting).collect());
        // By turns: those whom no pause helps must not hide those behind them.
        let (all, some) = (claims.len(), claims.len().min(CLAIMS));
        let from = match all > some {
            true => self.preemption.from % all,
            false => 0,
        };
        for claim in claims.iter().cycle().skip(from).take(some) {
            if self.serve(claim, &holders, &parts) {
                self.preemption.from = 0;
                return;
            }
        }
        self.preemption.from = from + some;
        self.preemption.in_vain += some;
        let longer = PAUSE.saturating_mul(self.with_executors / HEADS);
        self.preemption.look_at = self.preemption.look_at + longer;
        if self.preemption.in_vain < all {
            self.preemption.look_again_at(self.preemption.look_at);
        }
    }

    /// Whether anybody is told to pause or stop for others.
    pub(super) fn preempts(&self) -> bool {
        self.config.settings.preemption && self.tenants.policy() != Policy::Fifo
    }

    /// The tasks that are the first of their line, of tenants that are due something and have waited long enough.
    fn claims(&mut self) -> Vec<Claim> {
        let mut dues: BTreeMap<TenantIx, SmallVec<[Due; 3]>> = BTreeMap::new();
        let (mut claims, mut heads) = (Vec::new(), 0);
        let lowest = self.lowest_priorities();
        for (class, it) in self.classes.iter() {
            if it.gate != Gate::Parked || it.is_grouped() || it.key.wants == Wants::Call {
                continue;
            }
            let starts = it.key.wants == Wants::Start;
            for (_, turn, task) in it.heads() {
                let tenant = self.tasks[task].tenant;
                heads += 1;
                let dues = dues.entry(tenant).or_insert_with(|| self.dues(tenant));
                let priority = turn.priority.0;
                let is_higher = lowest.get(&tenant).is_some_and(|it| *it < priority);
                let priority = (is_higher && starts).then_some(Due::Priority(priority));
                claims.extend(dues.iter().copied().chain(priority).map(|due| Claim {
                    tenant,
                    due,
                    turn,
                    class,
                    task,
                }));
            }
        }
        let now = self.now;
        let preemption = &mut self.preemption;
        preemption.heads = heads;
        preemption.waiting.retain(|tenant, _| {
            let dues = dues.get(tenant);
            dues.is_some_and(|dues| dues.contains(&Due::Share))
        });
        let tasks = &self.tasks;
        claims.retain(|claim| {
            let since = match claim.due {
                Due::Minimum(_) | Due::Back => return true,
                Due::Share => *preemption.waiting.entry(claim.tenant).or_insert(now),
                Due::Priority(_) => tasks[claim.task].since,
            };
            let is_long = since + PATIENCE <= now;
            if !is_long {
                preemption.come_back_at(since + PATIENCE);
            }
            is_long
        });
        // Minima come first, and all else in the order in which they came to wait for it.
        let since = |claim: &Claim| match claim.due {
            Due::Minimum(_) | Due::Back => None,
            Due::Share => self.preemption.waiting.get(&claim.tenant).copied(),
            Due::Priority(_) => Some(self.tasks[claim.task].since),
        };
        claims.sort_by(|one, other| {
            let keys = self.tenants.order(one.tenant, other.tenant);
            let waited = since(one).cmp(&since(other));
            waited.then(keys).then(one.turn.cmp(&other.turn))
        });
        claims
    }

    /// The lowest priority of the tasks of each tenant that run, where there may be several.
    fn lowest_priorities(&self) -> BTreeMap<TenantIx, i32> {
        let mut lowest = BTreeMap::new();
        if !self.preemption.has_priorities {
            return lowest;
        }
        for ix in self.tasks.in_phase(Phase::Running) {
            let task = &self.tasks[ix];
            if task.kind == TaskKind::Task {
                let priority = task.terms.priority;
                let least = lowest.entry(task.tenant).or_insert(priority);
                *least = priority.min(*least);
            }
        }
        lowest
    }

    /// What a tenant is due. One that has no CPU is due its share, too: it may be others of the tenant below its minimum who
    /// have all, and they make that one no larger.
    fn dues(&self, tenant: TenantIx) -> SmallVec<[Due; 3]> {
        let minimum = self.tenants.below_min(tenant, &ResourceName::CPU);
        let minimum = minimum.map(Due::Minimum);
        // After that: to pause costs less.
        let back = self.tenants.is_below_some_min(tenant);
        let back = back.then_some(Due::Back);
        let used = self.tenants.cpu_of_own_work(tenant);
        let share = used.is_zero().then_some(Due::Share);
        minimum.into_iter().chain(back).chain(share).collect()
    }

    /// Begins a round for a task, if there are tasks that can pause or stop for it.
    fn serve(
        &mut self,
        claim: &Claim,
        holders: &BTreeMap<NodeIx, Holders>,
        parts: &CpuParts,
    ) -> bool {
        let bound = self.classes[claim.class].key.bound;
        for (node, on) in holders {
            if bound.is_some_and(|bound| bound != *node) {
                continue;
            }
            if claim.due == Due::Back {
                match self.to_stop(claim, *node, on) {
                    Ok(to_stop) => {
                        self.begin_stops(claim, *node, to_stop);
                        return true;
                    }
                    Err(Some(later)) => self.preemption.come_back_at(later),
                    Err(None) => {}
                }
                continue;
            }
            let Some(needs) = self.needs(claim, *node) else {
                continue;
            };
            match self.victims(claim, on, &needs, parts) {
                Ok(victims) => {
                    self.begin_round(claim, victims);
                    return true;
                }
                Err(Some(later)) => self.preemption.come_back_at(later),
                Err(None) => {}
            }
        }
        false
    }

    fn begin_round(&mut self, claim: &Claim, victims: Vec<TaskIx>) {
        for ix in &victims {
            let task = &self.tasks[*ix];
            let why = match claim.due {
                Due::Minimum(below) => self.below(below, &ResourceName::CPU),
                Due::Priority(priority) => PausedFor::Priority {
                    tenant: task.terms.tenant.clone(),
                    priority,
                },
                Due::Share | Due::Back => PausedFor::Share {
                    tenant: self.tenants.get(claim.tenant).name().clone(),
                    above: task.terms.tenant.clone(),
                },
            };
            let has_paused = false;
            self.preemption.asked.insert(*ix, Asked { why, has_paused });
            self.effects.push_back(Effect::Pause {
                task: task.id,
                attempt: task.attempt,
            });
        }
        self.open_round(claim, victims, false);
    }

    /// Waits for tasks that were told to pause or stop for a claim.
    pub(super) fn open_round(&mut self, claim: &Claim, victims: Vec<TaskIx>, keeps: bool) {
        let until = self.now + ROUND_MAX;
        self.preemption.come_back_at(until);
        self.preemption.round = Some(Round {
            class: claim.class,
            task: self.tasks[claim.task].id,
            victims: victims.into_iter().collect(),
            until,
            keeps,
        });
    }

    /// An executor has paused a task.
    pub(super) fn paused(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        let task = &self.tasks[ix];
        let may_pause = task.kind == TaskKind::Task && task.phase() == Phase::Running;
        if !may_pause || task.doom.is_some() {
            self.stale += 1;
            return;
        }
        let round = self.preemption.round.as_ref();
        let is_in_round = round.is_some_and(|round| round.victims.contains(&ix));
        match self.preemption.asked.get_mut(&ix) {
            Some(asked) if is_in_round => asked.has_paused = true,
            Some(_) => self.pause(ix),
            None => self.stale += 1,
        }
    }

    /// A task that has paused gives its CPU back, and gets in line for one.
    fn pause(&mut self, ix: TaskIx) {
        let Asked { why, .. } = self.preemption.asked.remove(&ix).expect("it was told to");
        if self.tasks[ix].doom.is_some() {
            // Its executor is about to let go of it.
            return;
        }
        let (now, tenant) = (self.now, self.tasks[ix].tenant);
        self.give_cpu_back(ix, BlockedOn::Pause);
        let pauses = self.preemption.paused.entry(ix).or_insert(Pauses {
            times: 0,
            in_all: Duration::ZERO,
            since: None,
            why: why.clone(),
        });
        pauses.times = pauses.times.saturating_add(1);
        pauses.since = Some(now);
        pauses.why = why;
        self.tenants.note_paused(tenant);
        let class = self.resuming_class(ix);
        self.enqueue(ix, class);
    }

    /// Once all of a round have paused or stopped, or some were waited for in vain, the one for whom they did has its turn.
    pub(super) fn end_round(&mut self) {
        let Some(round) = &self.preemption.round else {
            return;
        };
        let asked = &self.preemption.asked;
        let is_out = |ix: &TaskIx| {
            let has_paused = asked.get(ix).is_none_or(|asked| asked.has_paused);
            has_paused && !self.stops.is_due(*ix)
        };
        if self.now < round.until && !round.victims.iter().all(is_out) {
            return;
        }
        let Some(round) = self.preemption.round.take() else {
            return;
        };
        for ix in &round.victims {
            let asked = self.preemption.asked.get(ix);
            if asked.is_some_and(|asked| asked.has_paused) {
                self.pause(*ix);
            }
        }
        // There may be another who is due something.
        self.preemption.look_at = self.now + self.preemption.longer();
        if let Some(task) = self.tasks.find(&round.task) {
            self.start_first(round.class, task);
        }
        // Else an actor would have left in vain: it is kept until the others have ended their calls, as long as patience lasts.
        let is_over = round.keeps && !self.are_leaving(&round.victims);
        if is_over && self.classes.get(round.class).is_some() {
            self.stop_keeping_for(round.class);
        }
    }

    /// Notes that a task goes on.
    pub(super) fn note_resumed(&mut self, ix: TaskIx) {
        let now = self.now;
        if let Some(pauses) = self.preemption.paused.get_mut(&ix)
            && let Some(since) = pauses.since.take()
        {
            pauses.in_all += now - since;
        }
    }

    /// Only tasks that run are told to pause; of those that were, no more is known than of live ones, and each that is
    /// paused stands in line.
    pub(super) fn check_pauses(&self) {
        let preemption = &self.preemption;
        for ix in preemption.asked.keys() {
            assert_eq!(self.tasks[*ix].phase(), Phase::Running, "told to pause");
        }
        for (ix, pauses) in &preemption.paused {
            let task = &self.tasks[*ix];
            assert!(task.phase().holds(), "{} has been paused", task.id);
            let is_paused = pauses.since.is_some();
            assert_eq!(is_paused, self.is_paused(*ix), "{} is paused", task.id);
        }
    }

    /// Whether a task is paused.
    fn is_paused(&self, ix: TaskIx) -> bool {
        let state = self.tasks[ix].state();
        matches!(state, TaskState::Blocked { on, .. } if *on == BlockedOn::Pause)
    }

    /// A task has come to this state: it is not about to pause any more unless it runs, or to stop unless an executor has it.
    #[inline]
    pub(super) fn forget_pause(&mut self, ix: TaskIx, to: Phase) {
        if !to.holds() && !self.stops.is_empty() {
            self.stops.left(ix, to);
        }
        let preemption = &mut self.preemption;
        if preemption.asked.is_empty() && preemption.paused.is_empty() {
            return;
        }
        if to != Phase::Running {
            preemption.asked.remove(&ix);
        }
        if !to.holds() {
            preemption.paused.remove(&ix);
        }
    }
}
