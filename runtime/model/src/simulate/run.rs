//! The run: the scheduler in virtual time.
//!
//! Owns the order in which things happen, and what stands in for the world around the scheduler:
//! nodes that come and go, tasks that take as long as they say. Must not: decide which task starts,
//! or where.
//!
//! Invariants: at one instant come first the finishes, in the order of the starts; then the events
//! and then the submissions, in the order of the file; then tasks start until no more can. Where a
//! task takes no time its finish begins the same instant anew. Everything that comes out follows
//! from the scenario alone.

mod pauses;
mod quotas;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::scenario::{Change, EntryNo, NodeEntry, NodeNo, Placement, Scenario};
use super::statistics::Statistics;
use super::summary::Summary;
use super::trace::{HeldIds, TraceEvent, TraceLine};
use super::work::{Stage, TaskKey, Work, node_id};
use crate::cluster::NodeIx;
use crate::id::{Incarnation, NodeId, TaskId};
use crate::resource::{ResourceName, ResourceSet};
use crate::scheduler::{Config, Effect, Event, NodeInfo, Reason, Scheduler, Setting, Settings};
use crate::task::{Attempt, FailureKind, Phase};
use crate::time::Instant;

/// Runs a scenario to its end: until nothing can happen any more. Tells `trace` every event, in the
/// order of time.
///
/// Takes some microseconds per task, and some hundred bytes of memory per task that is there.
///
/// # Errors
/// The first error of `trace`, which ends the run.
pub fn run<E>(
    scenario: &Scenario,
    trace: impl FnMut(&TraceLine<'_>) -> Result<(), E>,
) -> Result<Summary, E> {
    let mut run = Run::new(scenario, trace);
    let ended = run.play();
    if ended.is_ok() {
        run.count_feasible();
    }
    run.give_all_back();
    ended.map(|()| run.statistics.summary(scenario))
}

struct Run<'a, T> {
    scenario: &'a Scenario,
    trace: T,
    scheduler: Scheduler,
    statistics: Statistics,
    work: Work,
    now_ms: u64,
    /// When the running tasks finish. One whose task has been lost since stays behind.
    finishes: BinaryHeap<Reverse<Finish>>,
    /// How many tasks have started or gone on.
    starts: u64,
    /// The tasks that are paused.
    paused: BTreeSet<TaskKey>,
    /// Whether one has paused, so that another may start.
    has_paused: bool,
    /// Whether tenants may use more than their tasks hold.
    has_groups: bool,
    /// The entries by the time of their submission.
    submissions: Vec<EntryNo>,
    /// How many of them have been submitted.
    submitted: usize,
    /// The entries that are submitted, or whose last wait is over, at this instant.
    due: BTreeSet<EntryNo>,
    /// The entries that have begun to wait for nodes at this instant.
    fresh: Vec<EntryNo>,
    /// How many of the events have happened.
    happened: usize,
    /// By number of the node: in which of its incarnations it is or will be next.
    incarnations: Vec<Incarnation>,
}

/// The end of a task, in the order in which ends are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Finish {
    at_ms: u64,
    start: u64,
    task: TaskKey,
}

impl<'a, E, T: FnMut(&TraceLine<'_>) -> Result<(), E>> Run<'a, T> {
    fn new(scenario: &'a Scenario, trace: T) -> Self {
        let config = Config {
            settings: Settings::default().with(Setting::Policy(scenario.policy)),
            seed: scenario.seed,
            local: None,
            // Every loss of a node counts as one of a task's own retries.
            max_losses: 0,
            ..Config::default()
        };
        let mut submissions: Vec<EntryNo> = (0..scenario.tasks.len() as u32).map(EntryNo).collect();
        submissions.sort_by_key(|entry| scenario.tasks[entry.0 as usize].submit_at_ms);
        Self {
            scenario,
            trace,
            scheduler: Scheduler::new(config),
            statistics: Statistics::new(scenario),
            work: Work::new(scenario),
            now_ms: 0,
            finishes: BinaryHeap::new(),
            starts: 0,
            paused: BTreeSet::new(),
            has_paused: false,
            has_groups: scenario
                .tasks
                .iter()
                .any(|entry| matches!(entry.placement, Placement::PlacementGroup { .. })),
            submissions,
            submitted: 0,
            due: BTreeSet::new(),
            fresh: Vec::new(),
            happened: 0,
            incarnations: vec![Incarnation(0); scenario.node_names.len()],
        }
    }

    /// From instant to instant. But for pauses, the scheduler's own deadlines are met at the first instant that is
    /// not before them: nothing changes in between, so it would come to the same sooner.
    fn play(&mut self) -> Result<(), E> {
        for tenant in &self.scenario.tenants {
            let (tenant, config) = (tenant.name.clone(), tenant.config.clone());
            self.note(Event::SetTenant {
                tenant,
                config: config.into(),
            })?;
        }
        for entry in &self.scenario.nodes {
            self.add_nodes(entry)?;
        }
        while let Some(next_ms) = self.next_ms() {
            self.now_ms = next_ms;
            self.finish_tasks()?;
            self.happen()?;
            self.submit_tasks()?;
            self.scheduler.handle(self.now(), Event::Tick);
            self.follow()?;
            while std::mem::take(&mut self.has_paused) {
                self.scheduler.dispatch();
                self.follow()?;
            }
            self.count_at_quota();
        }
        Ok(())
    }

    /// When the next thing happens.
    fn next_ms(&mut self) -> Option<u64> {
        while let Some(Reverse(finish)) = self.finishes.peek() {
            if self.is_running(finish) {
                break;
            }
            self.finishes.pop();
        }
        let finish = self.finishes.peek().map(|Reverse(finish)| finish.at_ms);
        let event = self.scenario.events.get(self.happened).map(|it| it.at_ms);
        let submission = self.submissions.get(self.submitted);
        let submission = submission.map(|entry| self.scenario.tasks[entry.0 as usize].submit_at_ms);
        // Only what runs can pause.
        let pause = self.scheduler.preempts_at().filter(|_| finish.is_some());
        let pause = pause.map(|at| at.as_micros().div_ceil(1_000).max(self.now_ms));
        let all = [finish, event, submission, pause];
        all.into_iter().flatten().min()
    }

    fn is_running(&self, finish: &Finish) -> bool {
        let stage = self.work.stage(finish.task);
        matches!(stage, Stage::Running { start, .. } if *start == finish.start)
    }

    fn now(&self) -> Instant {
        Instant::from_micros(self.now_ms * 1_000)
    }

    /// Tells the scheduler, and does what it says.
    fn note(&mut self, event: Event) -> Result<(), E> {
        self.scheduler.note(self.now(), event);
        self.follow()
    }

    fn tell(&mut self, task: TaskKey, event: TraceEvent<'_>) -> Result<(), E> {
        (self.trace)(&TraceLine {
            t_ms: self.now_ms,
            task: self.scenario.tasks[task.entry.0 as usize].instance(task.index),
            event,
        })
    }

    fn finish_tasks(&mut self) -> Result<(), E> {
        while let Some(Reverse(finish)) = self.finishes.peek().copied() {
            if finish.at_ms > self.now_ms {
                return Ok(());
            }
            self.finishes.pop();
            if self.is_running(&finish) {
                self.finish(finish.task)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, task: TaskKey) -> Result<(), E> {
        let (node, attempt, held) = self.running(task);
        let entry = &self.scenario.tasks[task.entry.0 as usize];
        self.statistics
            .finished(self.now_ms, entry.tenant, node, held);
        self.tell(task, TraceEvent::Finish)?;
        *self.work.stage_mut(task) = Stage::Ended;
        let task_id = task.id();
        self.note(Event::Finished {
            task: task_id,
            attempt,
        })?;
        if self.work.finished(task.entry) {
            for follower in self.work.followers(task.entry) {
                if self.work.wait_is_over(follower) {
                    self.due.insert(follower);
                }
            }
        }
        self.ended(task)
    }

    /// Where a running task runs, as which attempt, and how much it holds.
    fn running(&self, task: TaskKey) -> (NodeNo, Attempt, &'a ResourceSet) {
        let Stage::Running {
            node,
            attempt,
            alternative,
            ..
        } = self.work.stage(task)
        else {
            panic!("task {task:?} does not run: {:?}", self.work.stage(task));
        };
        (*node, *attempt, self.request(task, *alternative))
    }

    /// What a task asks for by one of its alternatives.
    fn request(&self, task: TaskKey, alternative: u16) -> &'a ResourceSet {
        let entry = &self.scenario.tasks[task.entry.0 as usize];
        entry.requests[usize::from(alternative)].amounts()
    }

    /// A task has ended in one way or another.
    fn ended(&mut self, task: TaskKey) -> Result<(), E> {
        match self.work.ended(task.entry) {
            Some(group) => self.note(Event::RemoveGroup(group)),
            None => Ok(()),
        }
    }

    fn happen(&mut self) -> Result<(), E> {
        let scenario = self.scenario;
        while let Some(event) = scenario.events.get(self.happened) {
            if event.at_ms > self.now_ms {
                return Ok(());
            }
            self.happened += 1;
            match &event.change {
                Change::AddNode(entry) => self.add_nodes(entry)?,
                Change::RemoveNode(node) => self.remove_node(*node)?,
                Change::SetResource {
                    node,
                    name,
                    capacity,
                } => {
                    self.statistics
                        .node_changed(self.now_ms, *node, name, *capacity);
                    self.note(Event::SetCapacity {
                        node: node_id(*node),
                        name: name.clone(),
                        capacity: *capacity,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn add_nodes(&mut self, entry: &NodeEntry) -> Result<(), E> {
        let total = entry.total();
        for node in &entry.instances {
            self.statistics.node_joined(self.now_ms, *node, &total);
            let name = self.scenario.node_name(*node).parse();
            self.note(Event::OwnNode {
                node: NodeInfo {
                    id: node_id(*node),
                    incarnation: self.incarnations[node.0 as usize],
                    name: name.expect("checked when the scenario was read"),
                    labels: entry.labels.clone(),
                },
                resources: entry.node_resources().into(),
            })?;
        }
        Ok(())
    }

    fn remove_node(&mut self, node: NodeNo) -> Result<(), E> {
        let running = self.finishes.iter().map(|Reverse(finish)| finish);
        let running = running.filter(|finish| self.is_running(finish));
        let lost = running.filter(|finish| self.running(finish.task).0 == node);
        let is_there = |task: &&TaskKey| matches!(self.work.stage(**task), Stage::Paused { node: at, .. } if *at == node);
        let paused = self.paused.iter().filter(is_there).copied();
        let lost: Vec<TaskKey> = lost.map(|finish| finish.task).chain(paused).collect();
        lost.into_iter().for_each(|task| self.lose(task));
        let incarnation = self.incarnations[node.0 as usize];
        self.incarnations[node.0 as usize] = Incarnation(incarnation.0 + 1);
        self.note(Event::NodeLost {
            node: node_id(node),
            incarnation,
        })?;
        self.statistics.node_left(self.now_ms, node);
        Ok(())
    }

    /// A task that runs or is paused stops before its end.
    fn lose(&mut self, task: TaskKey) {
        let (node, held) = match *self.work.stage(task) {
            Stage::Paused {
                node, alternative, ..
            } => {
                let mut rest = self.request(task, alternative).clone();
                rest.remove(&ResourceName::CPU);
                (node, rest)
            }
            _ => {
                let (node, _, held) = self.running(task);
                (node, held.clone())
            }
        };
        self.paused.remove(&task);
        let tenant = self.scenario.tasks[task.entry.0 as usize].tenant;
        self.statistics.lost(self.now_ms, tenant, node, &held);
        *self.work.stage_mut(task) = Stage::Lost { node };
    }

    fn submit_tasks(&mut self) -> Result<(), E> {
        while let Some(entry) = self.submissions.get(self.submitted) {
            if self.scenario.tasks[entry.0 as usize].submit_at_ms > self.now_ms {
                break;
            }
            self.submitted += 1;
            self.due.insert(*entry);
        }
        while let Some(entry) = self.due.pop_first() {
            let is_new = self.work.submit(entry);
            let is_free = self.work.is_free(entry);
            self.fresh.extend(is_free.then_some(entry));
            if let Some(group) = self.work.group(entry).filter(|_| is_free) {
                self.note(Event::CreateGroup {
                    group: group.id,
                    spec: group.spec.clone(),
                    tenant: self.scenario.tenants
                        [self.scenario.tasks[entry.0 as usize].tenant.0 as usize]
                        .name
                        .clone(),
                })?;
            }
            let of_file = &self.scenario.tasks[entry.0 as usize];
            for index in 0..of_file.count {
                let task = TaskKey { entry, index };
                if is_new {
                    self.statistics.submitted(of_file.tenant);
                    self.tell(task, TraceEvent::Submit)?;
                }
                if is_free {
                    *self.work.since_mut(task) = self.now_ms;
                    self.note(Event::Submit(self.work.spec(task)))?;
                }
            }
        }
        Ok(())
    }

    /// Does what the scheduler says.
    fn follow(&mut self) -> Result<(), E> {
        while let Some(effect) = self.scheduler.poll_effect() {
            match effect {
                Effect::Dispatch {
                    task,
                    attempt,
                    node,
                    ..
                } => self.start(TaskKey::of(&task), attempt, node)?,
                Effect::Ended {
                    phase: Phase::Finished,
                    ..
                }
                | Effect::GroupChanged(_) => {}
                Effect::Ended { task, why, .. } => {
                    self.give_up(TaskKey::of(&task), why.map(|why| *why))?;
                }
                Effect::Retried { task, attempt } => self.retry(TaskKey::of(&task), attempt)?,
                Effect::Infeasible { task, why } => self.infeasible(TaskKey::of(&task), &why)?,
                Effect::Stop { task, attempt, .. } => {
                    self.lose(TaskKey::of(&task));
                    let kind = FailureKind::Final;
                    self.scheduler.note(
                        self.now(),
                        Event::Failed {
                            task,
                            attempt,
                            kind,
                        },
                    );
                }
                Effect::Pause { task, .. } => self.pause(task)?,
                Effect::Preempt { task, attempt } => self.preempt(task, attempt)?,
                Effect::Resume { task, .. } => self.go_on(TaskKey::of(&task))?,
                // All arguments are there, and no node is elsewhere.
                Effect::Fetch { .. } | Effect::Send { .. } => {
                    panic!("this cannot be asked for here: {effect:?}")
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, task: TaskKey, attempt: Attempt, node: NodeIx) -> Result<(), E> {
        let id = task.id();
        let node = node_no(self.scheduler.cluster()[node].id());
        let entry = &self.scenario.tasks[task.entry.0 as usize];
        let assignment = self.scheduler.assignment(&id);
        let assignment = assignment.expect("a dispatched task holds something");
        let request = &entry.requests[usize::from(assignment.alternative)];
        if matches!(self.work.stage(task), Stage::Infeasible) {
            self.statistics.feasible_again(entry.tenant);
        }
        let wait_ms = self.now_ms - *self.work.since_mut(task);
        self.statistics
            .started(self.now_ms, entry.tenant, node, request.amounts(), wait_ms);
        if self.has_groups {
            let tenants = self.scheduler.tenants();
            let name = &self.scenario.tenants[entry.tenant.0 as usize].name;
            let tenant = tenants.find(name).expect("it has a task");
            let usage = tenants.get(tenant).own_usage();
            self.statistics.used(entry.tenant, &usage);
        }
        (self.trace)(&TraceLine {
            t_ms: self.now_ms,
            task: entry.instance(task.index),
            event: TraceEvent::Start {
                node: self.scenario.node_name(node),
                ids: HeldIds::Allocation(&assignment.allocation),
            },
        })?;
        self.starts += 1;
        *self.work.stage_mut(task) = Stage::Running {
            start: self.starts,
            node,
            attempt,
            alternative: assignment.alternative,
            ends_ms: self.now_ms + entry.duration_ms,
        };
        self.finishes.push(Reverse(Finish {
            at_ms: self.now_ms + entry.duration_ms,
            start: self.starts,
            task,
        }));
        self.scheduler
            .note(self.now(), Event::Accepted { task: id, attempt });
        Ok(())
    }

    fn retry(&mut self, task: TaskKey, attempt: Attempt) -> Result<(), E> {
        let Stage::Lost { node } = *self.work.stage(task) else {
            panic!("only a task that was lost is tried again: {task:?}");
        };
        let tenant = self.scenario.tasks[task.entry.0 as usize].tenant;
        self.statistics.retried(tenant);
        *self.work.stage_mut(task) = Stage::Waiting;
        *self.work.since_mut(task) = self.now_ms;
        self.tell(
            task,
            TraceEvent::Retry {
                node: self.scenario.node_name(node),
                attempt: attempt.number() - Attempt::FIRST.number(),
            },
        )
    }

    fn infeasible(&mut self, task: TaskKey, why: &Reason) -> Result<(), E> {
        let stage = self.work.stage_mut(task);
        if !matches!(stage, Stage::Infeasible) {
            *stage = Stage::Infeasible;
            let tenant = self.scenario.tasks[task.entry.0 as usize].tenant;
            self.statistics.infeasible(tenant);
        }
        let reason = &why.to_string();
        self.tell(task, TraceEvent::Infeasible { reason })
    }

    /// A task has ended, but not by itself.
    fn give_up(&mut self, task: TaskKey, why: Option<Reason>) -> Result<(), E> {
        let entry = &self.scenario.tasks[task.entry.0 as usize];
        let stage = std::mem::replace(self.work.stage_mut(task), Stage::Ended);
        if matches!(stage, Stage::Infeasible) {
            self.statistics.feasible_again(entry.tenant);
        }
        self.statistics.unschedulable(entry.tenant);
        let reason = &match (why, stage) {
            (Some(why), _) => why.to_string(),
            (None, Stage::Lost { node }) => format!(
                "node {} was removed while it ran, and its {} retries are used up",
                self.scenario.node_name(node),
                entry.retries.unwrap_or(u32::MAX)
            ),
            (None, stage) => panic!("task {task:?} was given up without a reason: {stage:?}"),
        };
        self.tell(task, TraceEvent::Unschedulable { reason })?;
        self.ended(task)
    }

    /// Gives back what is still held, so that nothing is held when the scheduler goes: by tasks of
    /// a run that was broken off, and by groups whose tasks never ended.
    fn give_all_back(&mut self) {
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            let held: Vec<TaskId> = self.scheduler.in_phase(phase).collect();
            for task in held {
                let attempt = self
                    .scheduler
                    .task(&task)
                    .expect("it holds something")
                    .attempt;
                let now = self.now();
                self.scheduler.note(now, Event::Finished { task, attempt });
            }
        }
        let open = (0..).map(EntryNo).take(self.scenario.tasks.len());
        for entry in open.filter(|entry| self.work.is_open(*entry)) {
            if let Some(group) = self.work.group(entry) {
                let group = group.id;
                self.scheduler.note(self.now(), Event::RemoveGroup(group));
            }
        }
        // Nobody starts any more who could have what the last of them held.
        self.scheduler.note(self.now(), Event::Tick);
    }

    /// A task that was reported as infeasible may be feasible by now, and wait for something else.
    fn count_feasible(&mut self) {
        let entries = (0..).map(EntryNo).zip(&self.scenario.tasks);
        for (entry, of_file) in entries.filter(|(entry, _)| self.work.is_open(*entry)) {
            for index in 0..of_file.count {
                let task = TaskKey { entry, index };
                if matches!(self.work.stage(task), Stage::Infeasible) {
                    let view = self.scheduler.task(&task.id());
                    let view = view.expect("what has not ended is live");
                    if view.phase != Phase::Infeasible {
                        self.statistics.feasible_again(of_file.tenant);
                    }
                }
            }
        }
    }
}

fn node_no(id: NodeId) -> NodeNo {
    let [.., a, b, c, d] = *id.as_bytes();
    NodeNo(u32::from_be_bytes([a, b, c, d]))
}
