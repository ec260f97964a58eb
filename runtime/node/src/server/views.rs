//! What the node tells about itself: single things, and the status.
//!
//! Must not: change anything, or hold the ledger's lock for longer than it takes to copy rows. Invariant:
//! single things are looked for among those of whoever asks; others' are neither found nor in the way.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use wasmrun_engine::Module;
use wasmrun_model::access::Tenants;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, IdPrefix, ObjectId, TaskId};
use wasmrun_model::resource::{NodeResources, ResourceSet};
use wasmrun_model::units::{ms, us};
use wasmrun_model::wire::{
    self, Amounts, NodeStatus, Refusal, RefusalKind, Response, StoreStatus, TaskDetail, TaskRow,
};

use super::registry::Record;
use super::session::refusal;
use super::{Inner, live, rows};
use crate::actor::Actor;
use crate::history::{Failure, Outcome, Record as Attempt};
use crate::ledger::Ledger;
use crate::ledger::deadlock::Place;
use crate::records::actor::ActorCell;
use crate::records::task::Work;

/// Who asks: a tenant, the session that may have submitted for others, and all tenants that its client has.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) tenant: &'a TenantName,
    pub(super) driver: DriverId,
    /// Whose things it may see in lists, and hear of in explanations.
    pub(super) tenants: &'a Tenants,
}

impl Asker<'_> {
    /// Whether something is its own.
    pub(super) fn owns(&self, tenant: &TenantName, driver: DriverId) -> bool {
        tenant == self.tenant || driver == self.driver
    }

    /// The one of its own things whose id begins so.
    pub(super) fn one<T: Copy, I: Display + AsRef<[u8]>>(
        &self,
        prefix: &str,
        what: &str,
        own: impl Iterator<Item = T>,
        id: impl Fn(T) -> I,
    ) -> Result<T, Refusal> {
        one(self.tenant, prefix, what, own, id)
    }
}

/// The one whose id begins so, of those of a tenant.
pub(super) fn one<T: Copy, I: Display + AsRef<[u8]>>(
    tenant: &TenantName,
    prefix: &str,
    what: &str,
    all: impl Iterator<Item = T>,
    id: impl Fn(T) -> I,
) -> Result<T, Refusal> {
    let begins = IdPrefix::parse(prefix);
    let mut fit = all.filter(|it| begins.is_some_and(|begins| begins.begins(&id(*it))));
    match (fit.next(), fit.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(missing(tenant, what, prefix)),
        (Some(one), Some(other)) => {
            let all = [one, other].into_iter().chain(fit);
            Err(ambiguous(prefix, what, all.map(&id)))
        }
    }
}

/// That a tenant has no such thing.
pub(super) fn missing(tenant: &TenantName, what: &str, id: impl Display) -> Refusal {
    let shown: String = id.to_string().chars().take(80).collect();
    refusal(
        RefusalKind::NotFound,
        format_args!(
            "there is no {what} '{shown}' of tenant '{tenant}'; `wasmrun list {}` shows what there is, and whose",
            list_of(what)
        ),
    )
}

/// The list in which people find such a thing.
fn list_of(what: &str) -> &'static str {
    match what {
        "actor" => "actors",
        "object" => "objects",
        "placement group" => "groups",
        _ => "tasks",
    }
}

/// That several things are meant, and which.
pub(super) fn ambiguous(
    prefix: &str,
    what: &str,
    ids: impl IntoIterator<Item = impl Display>,
) -> Refusal {
    let shown: String = prefix.chars().take(80).collect();
    let mut ids = ids.into_iter();
    let named: Vec<String> = ids.by_ref().take(SHOWN).map(|id| id.to_string()).collect();
    let more = match ids.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let why = format_args!(
        "'{shown}' begins the id of more than one {what}: {}{more}; give more of it",
        named.join(", ")
    );
    refusal(RefusalKind::Ambiguous, why)
}

pub(super) fn amounts(set: &ResourceSet) -> Amounts {
    set.iter()
        .map(|(name, amount)| (name.clone(), amount))
        .collect()
}

pub(super) fn module(module: &Module) -> wire::Module {
    let functions = module.functions().iter();
    let classes = module.classes().iter();
    wire::Module {
        digest: module.digest(),
        has_program: module.program().is_some(),
        functions: functions
            .map(|it| (it.full_name(), it.ty.clone()))
            .collect(),
        classes: classes
            .map(|it| (it.full_name(), it.constructor.ty.clone()))
            .collect(),
    }
}

pub(super) fn actor(actor: &Actor) -> wire::Actor {
    let face = &actor.actor.face;
    wire::Actor {
        name: actor.actor.name(),
        class: face.class.clone(),
        methods: face.methods.clone(),
    }
}

/// Cancels a live task.
///
/// # Errors
/// When there is none, or it is a call that an actor is in the middle of.
pub(super) fn cancel(inner: &Inner, asker: Asker<'_>, task: &TaskId) -> Result<(), Refusal> {
    let found = inner.shared.ask(|ledger| {
        let cell = ledger.cell(task)?;
        Some((cell, ledger.is_running_call(task)))
    });
    let found = found.filter(|(it, _)| asker.owns(&it.work.terms().tenant, it.driver));
    let (cell, is_running_call) = found.ok_or_else(|| missing(asker.tenant, "live task", task))?;
    if let Work::Create(actor) = &cell.work {
        inner.shared.kill(actor);
        return Ok(());
    }
    if let Work::Call(actor, _) = &cell.work
        && is_running_call
    {
        let (name, actor) = (cell.work.name(), actor.id);
        let why = format_args!(
            "call {name} ({}) runs, and no actor can go on from the middle of a call: it comes to its own end; to stop \
             it with its actor, `wasmrun actor kill {actor}`",
            cell.id
        );
        return Err(refusal(RefusalKind::Usage, why));
    }
    inner.shared.cancel(cell.id);
    Ok(())
}

/// Cancels all live tasks of a job that were submitted here, but for calls that actors are in the middle of. How many
/// those are.
pub(super) fn cancel_job(inner: &Inner, asker: Asker<'_>, job: DriverId) -> u64 {
    let cells: Vec<_> = inner.shared.ask(|ledger| {
        let scheduler = ledger.scheduler();
        let drivers = scheduler.drivers().filter(|driver| driver.job() == job);
        let all = drivers.flat_map(|driver| scheduler.of_driver(&driver).collect::<Vec<_>>());
        let own = all.filter(|task| {
            scheduler.task(task).is_some_and(|it| it.is_own) && !ledger.is_running_call(task)
        });
        let own = own.filter_map(|task| ledger.cell(&task));
        own.filter(|cell| asker.owns(&cell.work.terms().tenant, job))
            .collect()
    });
    for cell in &cells {
        match &cell.work {
            Work::Create(actor) => inner.shared.kill(actor),
            _ => inner.shared.cancel(cell.id),
        }
    }
    cells.len() as u64
}

/// An actor that is not dead, by its id's beginning.
pub(super) fn live_actor(
    inner: &Inner,
    asker: Asker<'_>,
    prefix: &str,
) -> Result<Arc<ActorCell>, Refusal> {
    inner.shared.ask(|ledger| {
        let fit = IdPrefix::parse(prefix).into_iter();
        let fit = fit.flat_map(|it| ledger.cells_with(it));
        let own = fit.filter_map(|cell| match &cell.work {
            Work::Create(actor) if asker.owns(&cell.work.terms().tenant, cell.driver) => {
                Some(actor)
            }
            _ => None,
        });
        let found = asker.one(prefix, "actor", own, |actor| actor.id);
        found.cloned()
    })
}

/// Where a task stands and why, in words.
pub(super) fn explained(detail: TaskDetail) -> String {
    let TaskRow { id, state, .. } = &detail.row;
    match (detail.explanation, detail.error.map(TaskError::from)) {
        (Some(why), _) => why,
        (None, None | Some(TaskError::Cancelled)) => format!("task {id} has ended: {state}"),
        (None, Some(error)) => format!("task {id} has ended: {state}: {error}"),
    }
}

/// The node where a task ran that has ended, for its driver.
pub(super) fn ran_at(inner: &Inner, asker: Asker<'_>, task: &TaskId) -> Result<Response, Refusal> {
    let record = ended(inner, task).filter(|it| asker.owns(&it.tenant, it.job));
    let record = record.ok_or_else(|| {
        let why = format_args!("no task {task} is remembered that has ended");
        refusal(RefusalKind::NotFound, why)
    })?;
    let row = rows::ended_rows(inner, asker.tenants, &[record]).swap_remove(0);
    Ok(Response::Text(row.node))
}

/// How a task ended: from the history, or from what is kept of detached tasks and of actors that have failed.
fn ended(inner: &Inner, task: &TaskId) -> Option<Attempt<'static>> {
    let last = inner.shared.history.last(task);
    last.or_else(|| {
        let registry = inner.registry();
        last_of(inner, registry.task(task)?)
    })
    .or_else(|| {
        let dead = inner
            .shared
            .ask(|ledger| ledger.dead.get(&task.actor()).cloned())?;
        let submitted_us = inner.shared.history.unix_us(dead.submitted);
        Some(Attempt {
            id: *task,
            outcome: Outcome::Failed,
            job: dead.driver.job(),
            tenant: dead.tenant,
            name: dead.class.into(),
            actor: Some(dead.id),
            submitted_us,
            ended_us: submitted_us,
            failure: Some(Failure::of(&dead.why, String::new())),
            ..Attempt::default()
        })
    })
}

/// The last attempt of a detached task that has ended, as far as its record says.
pub(super) fn last_of(inner: &Inner, record: &Record) -> Option<Attempt<'static>> {
    let end = record.end.as_ref()?;
    let submitted_us = inner.shared.history.unix_us(record.submitted.into());
    Some(Attempt {
        id: record.id,
        outcome: match &end.error {
            None => Outcome::Finished,
            Some(TaskError::Cancelled) => Outcome::Cancelled,
            Some(_) => Outcome::Failed,
        },
        job: record.driver.job(),
        tenant: record.tenant.clone(),
        name: record.name.clone().into(),
        submitted_us,
        ended_us: submitted_us + us(end.waited + end.ran),
        waited_us: us(end.waited),
        ran_us: us(end.ran),
        ran_at: end.ran_at,
        failure: end
            .error
            .as_ref()
            .map(|error| Failure::of(error, String::new())),
        ..Attempt::default()
    })
}

/// Whether this node has, or had, a task of its own with this id, as far as it remembers.
pub(super) fn is_own(inner: &Inner, task: &TaskId) -> bool {
    let live = inner
        .shared
        .ask(|ledger| ledger.scheduler().task(task).map(|task| task.is_own));
    live.unwrap_or_else(|| ended(inner, task).is_some())
}

/// Everything about one task.
pub(super) fn describe(
    inner: &Inner,
    asker: Asker<'_>,
    task: &TaskId,
) -> Result<TaskDetail, Refusal> {
    let unknown = || missing(asker.tenant, "task", task);
    let (live, dead) = inner.shared.ask(|ledger| {
        let live = ledger.cell(task).map(|cell| {
            let row = live::live_row(inner, ledger, &cell);
            let explanation = ledger.explain(task);
            let explanation = explanation.map(|it| {
                let it = it.seen_by(|tenant| asker.tenants.covers(tenant));
                it.to_string() + &whom(inner, ledger, &row)
            });
            (row, explanation, ledger.reads(task))
        });
        (live, ledger.dead.get(&task.actor()).cloned())
    });
    let object = inner.registry().task(task).and_then(|record| {
        let detached = record.detached.as_ref()?;
        Some(detached.object.id())
    });
    let earlier = |number: u32, last: usize| {
        // Of most tasks there are none, and to know that takes a look at the whole history.
        if number <= 1 {
            return Vec::new();
        }
        let attempts = inner.shared.history.attempts(task).into_iter().skip(last);
        // Clients draw ids of detached tasks: another's task may have had this one.
        let own = attempts.filter(|it| asker.owns(&it.tenant, it.job));
        let mut rows = rows::ended_rows(inner, asker.tenants, &own.collect::<Vec<_>>());
        rows.reverse();
        rows
    };
    if let Some((row, explanation, reads)) = live {
        if !asker.owns(&row.tenant, row.job) {
            return Err(unknown());
        }
        let more = || stalled(inner, &reads) + held_up(inner, task);
        return Ok(TaskDetail {
            retried: earlier(row.attempt, 0),
            error: None,
            stderr_tail: String::new(),
            object,
            explanation: explanation.map(|text| text + &more()),
            row,
        });
    }
    let record = ended(inner, task).filter(|it| asker.owns(&it.tenant, it.job));
    let record = record.ok_or_else(unknown)?;
    let retried = earlier(record.attempt, 1);
    let row = rows::ended_rows(inner, asker.tenants, std::slice::from_ref(&record)).swap_remove(0);
    let failure = record.failure;
    Ok(TaskDetail {
        row,
        retried,
        error: failure.as_ref().map(|it| {
            let error = it.seen_by(|tenant| asker.tenants.covers(tenant));
            (&error).into()
        }),
        stderr_tail: failure.map(|it| it.stderr_tail).unwrap_or_default(),
        object,
        explanation: dead.map(|dead| dead.describe()),
    })
}

/// How many of those are named that a task waits for, or that an id begins.
const SHOWN: usize = 8;

/// For which others a task waits, in words.
fn whom(inner: &Inner, ledger: &Ledger, row: &TaskRow) -> String {
    let Some(needs) = ledger.needs_of(&row.id) else {
        return String::new();
    };
    // Where it is is said already.
    let others = needs.of.iter().filter(|it| it.task != row.id);
    let others: Vec<&Place> = others.collect();
    let name_of = |node| match inner.cluster() {
        Some(cluster) if node != ledger.id() => cluster.name_of(node),
        _ => inner.name(),
    };
    let named = others.iter().take(SHOWN).map(|place| {
        let task = place.task;
        match (ledger.work(&task), ledger.tenant(&task)) {
            (Some(work), Some(tenant)) if *tenant == row.tenant => {
                let node = ledger.scheduler().peer(&task).unwrap_or(place.node);
                format!("{} ({task}) at node {}", work.name(), name_of(node))
            }
            (Some(_), _) => "a task of another tenant".to_owned(),
            (None, _) if place.node == ledger.id() => format!("{task}, which has ended"),
            (None, _) => format!("{task} of node {}", name_of(place.node)),
        }
    });
    let named: Vec<String> = named.collect();
    let named = named.join(", ");
    let more = match others.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match (needs.count, others.len()) {
        (_, 0) => String::new(),
        (_, 1) => format!("\nthat is {named}"),
        (count, all) if count == all => format!("\nthose are {named}{more}"),
        (count, all) => format!("\nthat is {count} of these {all}: {named}{more}"),
    }
}

/// Which of these objects cannot be had now because nodes do not answer, in words.
fn stalled(inner: &Inner, reads: &[ObjectId]) -> String {
    let (Some(exchange), Some(cluster)) = (inner.exchange(), inner.cluster()) else {
        return String::new();
    };
    let mut text = String::new();
    for object in reads {
        let Some(nodes) = exchange.stalled_by(object) else {
            continue;
        };
        let names: Vec<String> = nodes.iter().map(|it| cluster.name_of(*it)).collect();
        let names = names.join(", ");
        text.push_str(&format!(
            "\nit needs object {object}, which can be had at {names} only: there is no answer from there, and it \
             waits for that as long as nobody counts {names} as dead"
        ));
    }
    text
}

/// Why a call of an actor that may live elsewhere by now does not begin, if it could.
fn held_up(inner: &Inner, task: &TaskId) -> &'static str {
    match inner.exchange() {
        Some(exchange) if exchange.is_held_back(task) => {
            "\nit has not begun: the control store does not confirm that this node lives, and until it does no call \
             begins here of an actor that another node may have live elsewhere"
        }
        _ => "",
    }
}

/// The node in numbers: tasks and sessions of these tenants, and what it has for all.
pub(super) fn status(inner: &Inner, tenants: &Tenants) -> NodeStatus {
    let (available, total, tasks) = inner.shared.ask(|ledger| {
        let scheduler = ledger.scheduler();
        let own = ledger.own_resources();
        let available = own.map(NodeResources::available).unwrap_or_default();
        let total = own.map(NodeResources::total).unwrap_or_default();
        let tasks: Vec<_> = match tenants {
            Tenants::All => {
                let phases = scheduler.status().phases.into_iter();
                phases.map(|it| (it.phase, it.tasks)).collect()
            }
            some => scheduler.counts_of(|tenant| some.covers(tenant)),
        };
        (available, total, tasks)
    });
    let usage = inner.shared.store.usage();
    // The last of a session is not dropped under the lock.
    let sessions = inner.sessions.lock().values().cloned().collect::<Vec<_>>();
    let sessions = sessions.iter().filter_map(Weak::upgrade);
    let sessions = sessions.filter(|it| tenants.covers(&it.tenant)).count();
    NodeStatus {
        name: inner.shared.name.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        up_ms: ms(inner.started.elapsed()),
        is_draining: inner.is_draining.load(Ordering::Acquire),
        sessions: sessions as u64,
        total: amounts(&total),
        available: amounts(&available),
        tasks: tasks
            .into_iter()
            .map(|(phase, tasks)| (phase.to_string(), tasks))
            .collect(),
        store: StoreStatus {
            capacity_bytes: usage.capacity_bytes,
            used_bytes: usage.used_bytes,
            pinned_bytes: usage.pinned_bytes,
            spilled_bytes: usage.spilled_bytes,
            objects: usage.objects,
        },
    }
}
