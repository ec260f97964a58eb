//! What must hold after every [`Scheduler::handle`], as one function.
//!
//! Owns the checks, for `fuzz`, the seeded simulation and the tests beside it. Must not: change anything that it checks.

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use super::class::{Gate, Wants};
use super::record::TaskIx;
use crate::cluster::{Basis, NodeFit, NodeIx, Strategy};
use crate::fairness::Policy;
use crate::id::ObjectId;
use crate::resource::{Allocation, Amount, Load, ResourceId, ResourceName, ResourceSet};
use crate::task::{BlockedOn, Phase, Place, TaskKind, TaskState};

/// Checks what must hold whenever [`Scheduler::handle`] has returned.
///
/// # Panics
/// If something does not hold.
pub fn check(scheduler: &Scheduler) {
    check_classes(scheduler);
    check_resources(scheduler);
    check_arguments(scheduler);
    check_calls(scheduler);
    check_tenants(scheduler);
    scheduler.check_pauses();
    scheduler.check_stops();
    scheduler.check_tasks_of_peers();
    scheduler.check_calls_of_actors();
    check_nothing_idles(scheduler);
}

pub(super) fn live(scheduler: &Scheduler) -> impl Iterator<Item = TaskIx> {
    let phases = Phase::ALL[..Phase::LIVE].iter();
    phases.flat_map(|phase| scheduler.tasks.in_phase(*phase))
}

/// Each ready task is in the queue of its class; of an actor's calls, the next one.
fn check_classes(scheduler: &Scheduler) {
    let mut counts: BTreeMap<_, [u32; Phase::LIVE]> = BTreeMap::new();
    let mut in_line: BTreeMap<_, u32> = BTreeMap::new();
    let mut resuming = 0;
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        counts.entry(task.class).or_default()[task.phase().index()] += 1;
        let is_call = matches!(task.kind, TaskKind::Call { .. });
        match task.state() {
            TaskState::Ready if is_call => {}
            TaskState::Ready => assert!(task.is_in_line, "ready task {} is in no line", task.id),
            TaskState::Blocked { on, .. } => {
                let wants_cpu = *on != BlockedOn::Others;
                assert_eq!(task.is_in_line, wants_cpu && task.doom.is_none());
            }
            other => assert!(!task.is_in_line, "task {} is in line: {other:?}", task.id),
        }
        match task.state() {
            TaskState::Blocked { .. } => resuming += u32::from(task.is_in_line),
            _ if task.is_in_line => *in_line.entry(task.class).or_default() += 1,
            _ => {}
        }
    }
    let (mut gated, mut open, mut resuming_in_line) = (0, 0, 0);
    for (ix, class) in scheduler.classes.iter() {
        let expected = counts.remove(&ix).unwrap_or_default();
        assert_eq!(class.counts, expected, "the counts of {ix:?}");
        if class.key.wants.is_to_go_on() {
            resuming_in_line += class.in_line;
        } else {
            let expected = in_line.remove(&ix).unwrap_or_default();
            assert_eq!(class.in_line, expected, "the lines of {ix:?}");
        }
        let is_idle = matches!(class.gate, Gate::Idle);
        assert_eq!(is_idle, class.in_line == 0, "the gate of {ix:?}");
        gated += usize::from(!is_idle);
        if class.gate == Gate::Open {
            assert!(scheduler.open.contains(&ix), "{ix:?} is open, unlisted");
            open += 1;
        }
    }
    assert!(counts.is_empty() && in_line.is_empty(), "a class is gone");
    assert_eq!((gated, open), (scheduler.gated, scheduler.open.len()));
    assert_eq!(resuming, resuming_in_line);
    let members = |(_, class): &(_, &super::class::Class)| class.in_line > 0;
    for node in &scheduler.own {
        if let Some(cpu) = scheduler.cluster[*node].kept_cpu() {
            let mut waiting = scheduler.classes.iter().filter(members);
            let is_for = |class: &super::class::Class| {
                let key = &class.key;
                key.wants == Wants::Resume
                    && key.bound == Some(*node)
                    && key.rule.preferred() == cpu
            };
            assert!(
                waiting.any(|(_, class)| is_for(class)),
                "{cpu:?} is kept for nobody to go on"
            );
        }
        let Some(kept) = scheduler.cluster[*node].kept() else {
            continue;
        };
        let mut waiting = scheduler.classes.iter().filter(members);
        let is_for = |class: &super::class::Class| class.rule().alternatives.contains(kept);
        assert!(
            waiting.any(|(_, class)| is_for(class)) && scheduler.cluster[*node].is_feasible(kept),
            "{kept:?} is kept for nobody"
        );
    }
}

/// Each tenant has as many uses as it has tasks and groups, so that none is forgotten before they have ended.
fn check_tenants(scheduler: &Scheduler) {
    let tenants = &scheduler.tenants;
    let tasks = live(scheduler).map(|ix| tenants.get(scheduler.tasks[ix].tenant).name());
    let groups = scheduler.groups.owned.values().map(|owned| &owned.tenant);
    let mut uses: BTreeMap<_, u32> = BTreeMap::new();
    for tenant in tasks.chain(groups) {
        *uses.entry(tenant).or_default() += 1;
    }
    for (_, tenant) in tenants.iter() {
        let expected = uses.remove(tenant.name()).unwrap_or_default();
        assert_eq!(tenant.uses(), expected, "uses of {}", tenant.name());
    }
    assert!(uses.is_empty(), "{uses:?} are not in the table");
}

/// No unit twice, nothing lost, load is that of the tasks, and usage that of the tasks outside of groups and of groups.
fn check_resources(scheduler: &Scheduler) {
    let mut held_on: BTreeMap<NodeIx, ResourceSet> = BTreeMap::new();
    let mut ids = Ids::new();
    let mut usage: BTreeMap<_, ResourceSet> = BTreeMap::new();
    let mut held_in: BTreeMap<_, ResourceSet> = BTreeMap::new();
    let mut loads: BTreeMap<NodeIx, Load> = BTreeMap::new();
    let mut with_executors = 0;
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        if matches!(task.phase(), Phase::Ready | Phase::Waiting) {
            let class = &scheduler.classes[task.class].key;
            let is_grouped = matches!(class.rule.strategy, Strategy::PlacementGroup { .. });
            let local = scheduler
                .local
                .filter(|_| !is_grouped && scheduler.counts_local);
            if let Some(node) = class.bound.or(local) {
                loads
                    .entry(node)
                    .or_default()
                    .add(&task.terms.rule.alternatives[usize::from(task.counts_as)]);
            }
        }
        let Some(assignment) = task.state().assignment() else {
            continue;
        };
        with_executors += u32::from(Wants::of(task.kind) == Wants::Start);
        let amounts = assignment.allocation.amounts();
        let mut asked = task.terms.rule.alternatives[usize::from(assignment.alternative)]
            .amounts()
            .clone();
        if task.phase() == Phase::Blocked || assignment.lacks_cpu {
            asked.remove(&ResourceName::CPU);
        }
        assert_eq!(amounts, asked, "what task {} holds", task.id);
        if assignment.bundle.is_none() {
            let tenant = scheduler.tenants.get(task.tenant).name().clone();
            let used = usage.entry(tenant).or_default();
            used.add(&amounts).expect("small amounts");
        }
        if let Some(bundle) = assignment.bundle {
            if amounts.is_empty() {
                // Its bundle may be gone while an executor stops it.
                continue;
            }
            let inside = held_in.entry((assignment.node, bundle)).or_default();
            inside.add(&amounts).expect("small amounts");
            continue;
        }
        held_on
            .entry(assignment.node)
            .or_default()
            .add(&amounts)
            .expect("small amounts");
        count_ids(&mut ids, assignment.node, &assignment.allocation);
    }
    assert_eq!(with_executors, scheduler.with_executors);
    for owned in scheduler.groups.owned.values() {
        let used = usage.entry(owned.tenant.clone()).or_default();
        for bundle in owned.coordinator.reserved() {
            let bundle = &owned.coordinator.spec().bundles()[bundle as usize];
            used.add(bundle.amounts()).expect("small amounts");
        }
    }
    usage.retain(|_, usage| !usage.is_empty());
    assert_eq!(scheduler.tenants.own_usage(), usage);
    for node in &scheduler.own {
        let own = scheduler.cluster.own(*node).expect("an own node");
        let mut held = held_on.remove(node).unwrap_or_default();
        for (at, bundle) in scheduler.groups.bundles(*node) {
            let reserved = bundle.allocation();
            held.add(&reserved.amounts()).expect("small amounts");
            count_ids(&mut ids, *node, reserved);
            let mut inside = held_in.remove(&(*node, at)).unwrap_or_default();
            inside.add(&bundle.available()).expect("small amounts");
            assert_eq!(inside, bundle.total(), "bundle {at:?}");
        }
        assert_eq!(own.held(), held, "what tasks hold of a node");
        let plus = |mut one: ResourceSet, other: ResourceSet| {
            one.add(&other).expect("small amounts");
            one
        };
        assert_eq!(
            plus(own.total(), own.backlog()),
            plus(own.available(), own.held()),
            "total = available + held - backlog"
        );
        assert_eq!(*own.load(), loads.remove(node).unwrap_or_default());
    }
    assert!(
        held_on.is_empty() && held_in.is_empty() && loads.is_empty(),
        "of nodes that are gone"
    );
}

type Ids = BTreeMap<(NodeIx, ResourceName, ResourceId), Amount>;

fn count_ids(ids: &mut Ids, node: NodeIx, allocation: &Allocation) {
    for (name, part) in allocation.iter() {
        for (id, amount) in part.ids() {
            let sum = ids.entry((node, name.clone(), id)).or_default();
            *sum = sum.checked_add(amount).expect("small amounts");
            assert!(*sum <= Amount::ONE, "{name} {id:?} of {node:?} twice");
        }
    }
}

/// Who has which arguments is known to whom it concerns.
fn check_arguments(scheduler: &Scheduler) {
    let mut dependents: BTreeMap<ObjectId, BTreeSet<TaskIx>> = BTreeMap::new();
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        let lacking = task.args.iter().filter(|arg| !arg.is_local).count();
        match task.state() {
            TaskState::Waiting { missing } => {
                assert!(
                    lacking > 0 && *missing as usize == lacking,
                    "{missing} != {lacking}"
                );
            }
            TaskState::Ready => assert_eq!(lacking, 0, "task {} is ready", task.id),
            _ => {}
        }
        for arg in &task.args {
            dependents.entry(arg.object).or_default().insert(ix);
        }
    }
    assert_eq!(scheduler.dependents, dependents);
}

/// A ready call that is in no line waits for another one; who waits for a decision is a call, or was handed to and fro.
fn check_calls(scheduler: &Scheduler) {
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        let TaskKind::Call { actor, .. } = task.kind else {
            let is_undecided = matches!(task.state(), TaskState::Placeable(Place::Undecided));
            let rests = task.hops >= scheduler.config.max_hops;
            assert!(!is_undecided || rests, "task {} waits for nothing", task.id);
            continue;
        };
        if task.phase() != Phase::Ready || task.is_in_line {
            continue;
        }
        let mut calls = scheduler.tasks.of_actor(&actor);
        let holds_up = calls.any(|other| {
            let call = &scheduler.tasks[other];
            let is_current = call.is_in_line || call.phase().holds();
            let is_before = call.driver == task.driver && call.sequence < task.sequence;
            other != ix
                && matches!(call.kind, TaskKind::Call { .. })
                && (is_current || is_before && call.phase() == Phase::Waiting)
        });
        let is_leaving = scheduler.actors.is_leaving(&actor);
        assert!(holds_up || is_leaving, "nothing holds up call {}", task.id);
    }
}

/// No task is ready that some node could run now.
fn check_nothing_idles(scheduler: &Scheduler) {
    if scheduler.tenants.policy() == Policy::Fifo && scheduler.tenants.has_quotas() {
        // Who is at a quota holds up who stands behind it in the one line.
        return;
    }
    let is_full = scheduler.with_executors >= scheduler.config.max_running;
    let mut seen = BTreeSet::new();
    for ix in live(scheduler) {
        let task = &scheduler.tasks[ix];
        if !task.is_in_line {
            continue;
        }
        if let TaskState::Blocked { assignment, .. } = task.state() {
            let cpu = scheduler.request_of(ix, assignment).cpu_part();
            if scheduler.lacks_quota(ix, assignment, &cpu) {
                continue;
            }
            let own = scheduler.cluster.own(assignment.node).expect("an own node");
            let is_free = match assignment.bundle {
                Some(at) => scheduler.groups.can_acquire(assignment.node, at, &cpu),
                None => own.can_acquire(&cpu),
            };
            let is_free = is_free || !scheduler.may_get(assignment, &cpu);
            assert!(!is_free, "task {} could go on", task.id);
            continue;
        }
        let wants = Wants::of(task.kind);
        let needs_slot = wants == Wants::Start;
        let at_quota = |request| scheduler.at_quota(task.tenant, &task.terms.rule, wants, request);
        if task
            .terms
            .rule
            .alternatives
            .iter()
            .any(|it| at_quota(it).is_some())
        {
            continue;
        }
        if is_full && needs_slot || !seen.insert((task.class, task.actor().is_some())) {
            continue;
        }
        let rule = &task.terms.rule;
        if let Strategy::PlacementGroup { group, bundle } = rule.strategy {
            let spot = |request| scheduler.groups.spot(&group, bundle, request);
            let spot = rule.alternatives.iter().find_map(spot);
            assert!(spot.is_none(), "task {} could run in {spot:?}", task.id);
            continue;
        }
        let bound = scheduler.classes[task.class].key.bound;
        for node in scheduler
            .own
            .iter()
            .filter(|node| bound.is_none_or(|bound| bound == **node))
        {
            let fit = scheduler.fit_on(*node, ix, Basis::Acquirable);
            let fits = fit == Some(NodeFit::Available);
            assert!(!fits, "task {} could run on {node:?}: {scheduler}", task.id);
        }
    }
}
