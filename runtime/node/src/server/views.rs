//! What the node tells about itself: single things, the rows of tasks, the status.
//!
//! Must not: change anything, or hold the ledger's lock for longer than it takes to copy rows. Invariant:
//! single things are looked for among those of whoever asks; others' are neither found nor in the way.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wasmrun_engine::Module;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId, IdPrefix, ObjectId, TaskId};
use wasmrun_model::resource::{NodeResources, ResourceSet};
use wasmrun_model::task::Phase;
use wasmrun_model::wire::{
    self, Amounts, NodeStatus, Refusal, RefusalKind, Response, StoreStatus, TaskDetail, TaskRow,
};

use super::Inner;
use super::registry::Record;
use super::session::refusal;
use crate::actor::Actor;
use crate::ledger::Ledger;
use crate::ledger::deadlock::Place;
use crate::records::actor::ActorCell;
use crate::records::dead::{Dead, FAILED};
use crate::records::task::{TaskCell, Work};

/// Who asks: a tenant, and the session that may have submitted for others.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) tenant: &'a TenantName,
    pub(super) driver: DriverId,
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

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
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
        let own = scheduler.of_driver(&job).filter(|task| {
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

/// What tasks are told apart by.
pub(super) struct TaskKey<'a> {
    id: TaskId,
    pub(super) tenant: &'a TenantName,
    pub(super) driver: DriverId,
    /// The actor that it creates, or is a call of.
    pub(super) actor: Option<ActorId>,
}

/// The tasks whose ids begin so and that fit, in the order of their ids: live ones, and those that ended.
pub(super) fn find(
    inner: &Inner,
    prefix: IdPrefix,
    fits: impl Fn(&TaskKey<'_>) -> bool,
) -> Vec<TaskId> {
    let mut found = Vec::new();
    let mut look_at = |key: TaskKey<'_>| {
        if fits(&key) {
            found.push(key.id);
        }
    };
    for record in inner.registry().tasks_with(prefix) {
        look_at(TaskKey {
            id: record.id,
            tenant: &record.tenant,
            driver: record.driver,
            actor: record.actor,
        });
    }
    inner.shared.ask(|ledger| {
        for cell in ledger.cells_with(prefix) {
            look_at(TaskKey {
                id: cell.id,
                tenant: &cell.work.terms().tenant,
                driver: cell.driver,
                actor: cell.work.actor(),
            });
        }
        for dead in ledger.dead.iter().filter(|it| prefix.begins(&it.id)) {
            look_at(TaskKey {
                id: dead.id.task(),
                tenant: &dead.tenant,
                driver: dead.driver,
                actor: Some(dead.id),
            });
        }
    });
    found.sort_unstable();
    found.dedup();
    found
}

/// For how many rows the ledger is locked at a time.
const ROWS_AT_A_TIME: usize = 1000;

/// What there is to tell of these tasks. Those of which nothing is known by now are left out.
pub(super) fn rows(inner: &Inner, tasks: &[TaskId]) -> Vec<TaskRow> {
    let mut rows = Vec::new();
    for tasks in tasks.chunks(ROWS_AT_A_TIME) {
        let registry = inner.registry();
        let records = tasks.iter().map(|id| registry.task(id).cloned());
        let records: Vec<Option<Record>> = records.collect();
        drop(registry);
        let known = tasks.iter().zip(&records);
        inner.shared.ask(|ledger| {
            rows.extend(known.filter_map(|(id, record)| row(inner, ledger, id, record.as_ref())));
        });
    }
    rows
}

/// The same of one task. Its record was looked for before: it may have ended since.
fn row(inner: &Inner, ledger: &Ledger, id: &TaskId, record: Option<&Record>) -> Option<TaskRow> {
    if let Some(dead) = ledger.dead.get(&id.actor()) {
        return Some(dead_row(inner, dead));
    }
    if let Some(cell) = ledger.cell(id) {
        let phase = ledger.phase(id).map_or("ended", Phase::name);
        let is_detached = cell.driver == inner.detached.driver();
        return Some(live_row(inner, &cell, phase, is_detached));
    }
    record.map(|record| ended_row(record, home(inner, ledger, record)))
}

/// The name of the node at which a task ran that has ended.
fn home(inner: &Inner, ledger: &Ledger, record: &Record) -> String {
    let Some(node) = record.end.as_ref().and_then(|end| end.ran_at) else {
        return inner.name();
    };
    let cluster = ledger.scheduler().cluster();
    match (cluster.by_id(node), inner.cluster()) {
        (Some(ix), _) => cluster[ix].name().to_string(),
        // It has left, and may be remembered.
        (None, Some(cluster)) => cluster.name_of(node),
        (None, None) => node.to_string(),
    }
}

/// The same of one task, for who has submitted it.
pub(super) fn ran_at(inner: &Inner, asker: Asker<'_>, task: &TaskId) -> Result<Response, Refusal> {
    let record = inner.registry().task(task).cloned();
    let record = record.filter(|it| it.end.is_some() && asker.owns(&it.tenant, it.driver));
    let record = record.ok_or_else(|| {
        let why = format_args!("no task {task} is remembered that has ended");
        refusal(RefusalKind::NotFound, why)
    })?;
    let home = inner.shared.ask(|ledger| home(inner, ledger, &record));
    Ok(Response::Text(home))
}

fn live_row(inner: &Inner, cell: &TaskCell, phase: &str, is_detached: bool) -> TaskRow {
    TaskRow {
        id: cell.id,
        name: cell.work.name(),
        state: phase.to_owned(),
        tenant: cell.work.terms().tenant.clone(),
        job: cell.driver,
        is_detached,
        age_ms: ms(cell.submitted.elapsed()),
        node: inner.name(),
    }
}

/// The creation of an actor that has failed.
fn dead_row(inner: &Inner, dead: &Dead) -> TaskRow {
    TaskRow {
        id: dead.id.task(),
        name: dead.class.clone(),
        state: FAILED.to_owned(),
        tenant: dead.tenant.clone(),
        job: dead.driver,
        is_detached: dead.driver == inner.detached.driver(),
        age_ms: ms(dead.submitted.elapsed()),
        node: inner.name(),
    }
}

fn ended_row(record: &Record, node: String) -> TaskRow {
    TaskRow {
        id: record.id,
        name: record.name.clone(),
        // Between its end and the note of it there is a moment.
        state: record
            .end
            .as_ref()
            .map_or("ending", |end| end.state())
            .to_owned(),
        tenant: record.tenant.clone(),
        job: record.driver,
        is_detached: record.detached.is_some(),
        age_ms: ms(record.submitted.elapsed()),
        node,
    }
}

/// Everything about one task.
pub(super) fn describe(
    inner: &Inner,
    asker: Asker<'_>,
    task: &TaskId,
) -> Result<TaskDetail, Refusal> {
    let record = inner.registry().task(task).cloned();
    let end = record.as_ref().and_then(|record| record.end.as_ref());
    let described = inner.shared.ask(|ledger| {
        let row = row(inner, ledger, task, record.as_ref());
        let row = row.filter(|row| asker.owns(&row.tenant, row.job))?;
        let explanation = ledger.explain(&row.id);
        let explanation = explanation.map(|it| it.to_string() + &whom(inner, ledger, &row));
        let dead = ledger.dead.get(&row.id.actor()).cloned();
        let reads = ledger.reads(&row.id);
        Some((row, explanation, reads, dead))
    });
    let (row, explanation, reads, dead) =
        described.ok_or_else(|| missing(asker.tenant, "task", task))?;
    let explanation =
        explanation.map(|text| text + &stalled(inner, &reads) + held_up(inner, &row.id));
    let detached = record.as_ref().and_then(|record| record.detached.as_ref());
    let error = end.and_then(|end| end.error.as_ref());
    let error = error.or(dead.as_ref().map(|dead| &dead.why));
    Ok(TaskDetail {
        took_us: end.map(|end| (us(end.waited), us(end.ran))),
        error: error.map(Into::into),
        object: detached.map(|detached| detached.object.id()),
        explanation: explanation.or(dead.map(|dead| dead.told())),
        row,
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

/// The node in numbers.
pub(super) fn status(inner: &Inner) -> NodeStatus {
    let (available, total, status) = inner.shared.ask(|ledger| {
        let scheduler = ledger.scheduler();
        let own = ledger.own_resources();
        let available = own.map(NodeResources::available).unwrap_or_default();
        let total = amounts(scheduler.cluster().total());
        (available, total, scheduler.status())
    });
    let usage = inner.shared.store.usage();
    let tasks = status.phases.iter();
    NodeStatus {
        name: inner.shared.name.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        up_ms: ms(inner.started.elapsed()),
        is_draining: inner.is_draining.load(Ordering::Acquire),
        sessions: inner.sessions.load(Ordering::Acquire),
        total,
        available: amounts(&available),
        tasks: tasks.map(|it| (it.phase.to_string(), it.tasks)).collect(),
        store: StoreStatus {
            capacity_bytes: usage.capacity_bytes,
            used_bytes: usage.used_bytes,
            pinned_bytes: usage.pinned_bytes,
            spilled_bytes: usage.spilled_bytes,
            objects: usage.objects,
        },
    }
}
