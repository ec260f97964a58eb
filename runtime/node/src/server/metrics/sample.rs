//! Which numbers there are, and where each comes from.
//!
//! Owns their names and meaning, but for those of the cluster ([`nodes`]): `docs/operations.md` lists what to watch.
//! Must not: count anything itself, or hold the ledger's lock for longer than it takes to copy numbers of which there
//! are few.
//!
//! Invariants: a name stays what it is; no label has more than [`MOST_TENANTS`] values, whoever submits what.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use wasmrun_engine::Engine;
use wasmrun_model::fairness::{TenantCounters, TenantName};
use wasmrun_model::task::Phase;
use wasmrun_store::Usage;

use super::super::Inner;
use super::text::{Text, buckets};
use super::{nodes, process, services};
use crate::guests::counters::Times;
use crate::server::metrics::ledger::Ledger;

/// How many tenants have numbers of their own: the first that came. The others are one.
pub(super) const MOST_TENANTS: u32 = 100;
/// What those are called; no tenant can be called so.
const OTHERS: &str = "_others";

/// Why the node is not fit for new work; nothing if it is.
pub(super) fn unready(inner: &Inner) -> Option<&'static str> {
    if inner.is_draining.load(Ordering::Acquire) {
        return Some("the node is stopping\n");
    }
    let cluster = inner.cluster()?;
    match cluster.own_state() {
        Some("alive") => None,
        Some("draining") => Some("the node is drained and takes no new work\n"),
        Some(_) => Some("the node cannot confirm its lease\n"),
        None => Some("the node is not registered in its cluster yet\n"),
    }
}

/// All numbers, in Prometheus' text format.
pub(super) fn sample(inner: &Inner) -> String {
    let mut text = Text::default();
    about(&mut text, inner);
    let ledger = inner.shared.ask(|ledger| Ledger::read(ledger));
    tasks(&mut text, inner, &ledger);
    resources(&mut text, &ledger);
    tenants(&mut text, &ledger);
    let usage = inner.shared.store.usage();
    store(&mut text, &usage);
    spilled(&mut text, inner, &usage);
    history(&mut text, inner);
    audit(&mut text, inner);
    tenants_stores(&mut text, &ledger, &usage);
    transfers(&mut text, inner);
    times(&mut text, inner);
    sandboxes(&mut text, inner);
    services::add(&mut text, &inner.services.stats());
    if let Some(cluster) = inner.cluster() {
        nodes::in_cluster(&mut text, inner, cluster);
    }
    if let Some(durable) = inner.durable.get() {
        nodes::records(&mut text, durable.counts());
        nodes::lineage(&mut text, durable.lineage());
    }
    process::add(&mut text);
    text.into_string()
}

fn about(text: &mut Text, inner: &Inner) {
    let version = env!("CARGO_PKG_VERSION");
    text.family(
        "wasmrun_build_info",
        "Always 1; its label says which wasmrun this is.",
    )
    .add(&[("version", &version)], 1);
    let (name, id) = (&inner.shared.name, inner.shared.home.node);
    text.family(
        "wasmrun_node_info",
        "Always 1; its labels say which node this is.",
    )
    .add(&[("node", name), ("node_id", &id)], 1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let started = now
        .unwrap_or_default()
        .saturating_sub(inner.started.elapsed());
    text.one(
        "wasmrun_node_start_time_seconds",
        "When the node was started, in seconds since 1970.",
        format_args!("{:.3}", started.as_secs_f64()),
    );
    text.one(
        "wasmrun_node_ready",
        "Whether the node takes new work: what /readyz says.",
        u8::from(unready(inner).is_none()),
    );
    text.one(
        "wasmrun_client_connections",
        "Clients on this machine that are connected.",
        inner.sessions.lock().len(),
    );
}

fn tasks(text: &mut Text, inner: &Inner, ledger: &Ledger) {
    let phases = &ledger.status.phases;
    let (ended, live): (Vec<_>, Vec<_>) = phases.iter().partition(|it| it.phase.is_terminal());
    let mut family = text.family(
        "wasmrun_tasks",
        "Tasks, actors and calls that this node's scheduler has, by state; an actor is running as long as it lives.",
    );
    for it in live {
        family.add(&[("state", &it.phase)], it.tasks);
    }
    let mut family = text.family(
        "wasmrun_tasks_ended_total",
        "Tasks, actors and calls that have ended for good, by how.",
    );
    for it in ended {
        family.add(&[("outcome", &it.phase)], it.tasks);
    }
    let mut family = text.family(
        "wasmrun_placement_groups",
        "Placement groups that this node owns, by state.",
    );
    for (state, count) in &ledger.groups {
        family.add(&[("state", state)], *count);
    }
    happened(text, inner, ledger);
    scheduler(text, ledger);
    let mut family = text.family(
        "wasmrun_queued_requests",
        "What ready tasks ask for, by resource: CPUs and GPUs, bytes of memory.",
    );
    let ready = phases.iter().find(|it| it.phase == Phase::Ready);
    for (resource, amount) in ready.iter().flat_map(|it| it.asks.iter()) {
        family.add(&[("resource", resource)], amount);
    }
}

/// What tasks and actors went through since the node started.
fn happened(text: &mut Text, inner: &Inner, ledger: &Ledger) {
    let counters = &inner.shared.counters;
    text.all([
        (
            "wasmrun_tasks_started_total",
            "Attempts that were given their resources and started.",
            ledger.started,
        ),
        (
            "wasmrun_tasks_paused_total",
            "Pauses of tasks that ran, because another tenant was due their CPU.",
            ledger.paused,
        ),
        (
            "wasmrun_tasks_preempted_total",
            "Attempts that were stopped, to be tried again, because another tenant was due what they held.",
            ledger.preempted,
        ),
        (
            "wasmrun_tasks_retried_total",
            "Attempts after whose failure or loss the task was tried again.",
            ledger.counts.retried,
        ),
        (
            "wasmrun_tasks_sent_total",
            "Attempts that were given to other nodes.",
            counters.tasks_sent.get(),
        ),
        (
            "wasmrun_tasks_taken_total",
            "Attempts that other nodes gave to this one.",
            counters.tasks_taken.get(),
        ),
        (
            "wasmrun_tasks_returned_total",
            "Attempts that other nodes gave back unbegun (spillback).",
            counters.tasks_returned.get(),
        ),
        (
            "wasmrun_scheduler_stale_events_total",
            "Events and messages that came too late and changed nothing.",
            ledger.status.stale,
        ),
        (
            "wasmrun_actors_started_total",
            "Generations of actors that began here.",
            ledger.counts.born,
        ),
        (
            "wasmrun_actor_restarts_total",
            "Generations of actors that ended and were followed by another.",
            ledger.counts.restarted,
        ),
        (
            "wasmrun_objects_reconstructed_total",
            "Objects that were lost and made again from their lineage.",
            counters.objects_reconstructed.get(),
        ),
        (
            "wasmrun_recipes_dropped_total",
            "Results that cannot be made again, because what they were made of takes too much memory.",
            ledger.recipes_dropped,
        ),
    ]);
    text.one(
        "wasmrun_tasks_repeated_seconds_total",
        "How long those had run that were stopped for another tenant: what is done again.",
        ledger.repeated_us as f64 / 1e6,
    );
}

/// What the scheduler holds.
fn scheduler(text: &mut Text, ledger: &Ledger) {
    text.all([
        ("wasmrun_actors", "Actors that live here.", ledger.living),
        (
            "wasmrun_placement_group_bundles",
            "Bundles of placement groups, of any node's, that are reserved here.",
            ledger.bundles,
        ),
        (
            "wasmrun_scheduler_drivers",
            "Sessions that have live tasks here.",
            ledger.status.drivers,
        ),
        (
            "wasmrun_scheduler_classes",
            "Groups of tasks that are alike for the scheduler.",
            ledger.status.classes,
        ),
        (
            "wasmrun_scheduler_parked_classes",
            "Of these, those whose ready tasks do not fit now.",
            ledger.status.parked_classes,
        ),
    ]);
    text.one(
        "wasmrun_lineage_bytes",
        "What is kept of arguments to make results again that may be lost with other nodes.",
        ledger.lineage_bytes,
    );
}

fn resources(text: &mut Text, ledger: &Ledger) {
    for (name, help, set) in [
        (
            "wasmrun_resource_capacity",
            "What the node offers, by resource: CPUs and GPUs, bytes of memory.",
            &ledger.total,
        ),
        (
            "wasmrun_resource_free",
            "What of that no task holds.",
            &ledger.free,
        ),
    ] {
        let mut family = text.family(name, help);
        // What is all taken is not in the set of what is free.
        for (resource, _) in ledger.total.iter() {
            family.add(&[("resource", resource)], set.get(resource));
        }
    }
}

fn tenants(text: &mut Text, ledger: &Ledger) {
    let mut family = text.family(
        "wasmrun_tenant_tasks_total",
        "Tasks that this node's scheduler was given, started and ended, by tenant and event.",
    );
    let own = ledger
        .tenants
        .iter()
        .map(|it| (&it.name as &dyn Display, it.counters));
    let others = (ledger.others != TenantCounters::default()).then_some(&ledger.others);
    let others = others.map(|it| (&OTHERS as &dyn Display, *it));
    for (tenant, counters) in own.chain(others) {
        for (event, count) in [
            ("submitted", counters.submitted),
            ("started", counters.started),
            ("finished", counters.finished),
            ("failed", counters.failed),
            ("cancelled", counters.cancelled),
            ("paused", counters.paused),
            ("preempted", counters.preempted),
        ] {
            family.add(&[("tenant", tenant), ("event", &event)], count);
        }
    }
    let mut family = text.family(
        "wasmrun_tenant_used",
        "What tasks of a tenant hold at this node, by resource.",
    );
    for tenant in &ledger.tenants {
        for (resource, amount) in tenant.used.iter() {
            family.add(&[("tenant", &tenant.name), ("resource", resource)], amount);
        }
    }
    let mut family = text.family(
        "wasmrun_tenant_dominant_share",
        "The largest part of a resource of the cluster that a tenant uses, as far as this node knows.",
    );
    for tenant in &ledger.tenants {
        family.add(&[("tenant", &tenant.name)], &tenant.share);
    }
}

fn store(text: &mut Text, usage: &Usage) {
    text.all([
        (
            "wasmrun_store_capacity_bytes",
            "What objects may take in memory.",
            usage.capacity_bytes,
        ),
        (
            "wasmrun_store_used_bytes",
            "What objects take in memory.",
            usage.used_bytes,
        ),
        (
            "wasmrun_store_pinned_bytes",
            "What of that somebody reads, and so stays.",
            usage.pinned_bytes,
        ),
        (
            "wasmrun_store_unsealed_bytes",
            "What of that is being written or read back.",
            usage.unsealed_bytes,
        ),
        (
            "wasmrun_store_spill_capacity_bytes",
            "What objects may take on disk; 0 without spilling.",
            usage.spill_capacity_bytes,
        ),
        (
            "wasmrun_store_spilled_bytes",
            "What objects take on disk.",
            usage.spilled_bytes,
        ),
        (
            "wasmrun_store_objects",
            "Objects, in memory and on disk.",
            usage.objects,
        ),
        (
            "wasmrun_store_waiting",
            "Objects that wait for room in memory.",
            usage.waiting_creates + usage.waiting_restores,
        ),
    ]);
}

/// Objects that went to disk and came back, and those that found no room.
fn spilled(text: &mut Text, inner: &Inner, usage: &Usage) {
    text.all([
        (
            "wasmrun_store_spills_total",
            "Objects that were written to disk to make room.",
            usage.spills,
        ),
        (
            "wasmrun_store_spill_bytes_total",
            "Their bytes.",
            usage.spill_bytes,
        ),
        (
            "wasmrun_store_restores_total",
            "Objects that were read back from disk.",
            usage.restores,
        ),
        (
            "wasmrun_store_restore_bytes_total",
            "Their bytes.",
            usage.restore_bytes,
        ),
        (
            "wasmrun_store_disk_errors_total",
            "Writes and reads of spilled objects that failed.",
            usage.disk_errors,
        ),
        (
            "wasmrun_store_no_room_total",
            "Objects that found no room in time.",
            inner.shared.counters.no_room.get(),
        ),
    ]);
}

/// Attempts that have ended, as far as they are remembered.
fn history(text: &mut Text, inner: &Inner) {
    let history = inner.shared.history.usage();
    text.all([
        (
            "wasmrun_history_records",
            "Attempts that have ended and are in the history.",
            history.records,
        ),
        (
            "wasmrun_history_bytes",
            "What the history takes.",
            history.bytes,
        ),
        (
            "wasmrun_history_limit_bytes",
            "What it may take.",
            history.limit_bytes,
        ),
    ]);
    text.one(
        "wasmrun_history_dropped_total",
        "Attempts that the history has forgotten for lack of room.",
        history.dropped,
    );
}

/// Lines of the audit, where one is kept.
fn audit(text: &mut Text, inner: &Inner) {
    if !inner.audit.is_kept() {
        return;
    }
    let audit = inner.audit.usage();
    text.one(
        "wasmrun_audit_lines_total",
        "Lines that were written to the audit.",
        audit.written,
    );
    text.one(
        "wasmrun_audit_missed_total",
        "Lines that could not be written to the audit.",
        audit.missed,
    );
}

fn tenants_stores(text: &mut Text, ledger: &Ledger, usage: &Usage) {
    let own: BTreeSet<&TenantName> = ledger.tenants.iter().map(|it| &it.name).collect();
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (tenant, usage) in &usage.tenants {
        // Who has only put objects has no place in the scheduler's table.
        let is_own = own.contains(tenant) || own.len() < MOST_TENANTS as usize;
        let name = match is_own && (sums.len() < MOST_TENANTS as usize) {
            true => tenant.as_str(),
            false => OTHERS,
        };
        let sum = sums.entry(name).or_default();
        sum.0 += usage.used_bytes;
        sum.1 += usage.spilled_bytes;
    }
    let mut family = text.family(
        "wasmrun_tenant_store_bytes",
        "What objects of a tenant take at this node, by place: memory or disk.",
    );
    for (tenant, (memory, disk)) in sums {
        family.add(&[("tenant", &tenant), ("place", &"memory")], memory);
        family.add(&[("tenant", &tenant), ("place", &"disk")], disk);
    }
}

fn transfers(text: &mut Text, inner: &Inner) {
    let counters = &inner.shared.counters;
    let mut both = |name, help, values: [u64; 2]| {
        let mut family = text.family(name, help);
        for (direction, value) in ["in", "out"].into_iter().zip(values) {
            family.add(&[("direction", &direction)], value);
        }
    };
    both(
        "wasmrun_transfers_total",
        "Objects, and parts of them, that came from other nodes and went to them.",
        [counters.transfers_in.get(), counters.transfers_out.get()],
    );
    both(
        "wasmrun_transfer_bytes_total",
        "Their bytes.",
        [counters.bytes_in.get(), counters.bytes_out.get()],
    );
    text.one(
        "wasmrun_transfer_failures_total",
        "Transfers to this node that broke or were refused.",
        counters.transfers_failed.get(),
    );
    text.all([
        (
            "wasmrun_module_fetches_total",
            "Modules that were brought here from other nodes: each comes once, and stays in the state folder.",
            counters.modules_in.get(),
        ),
        (
            "wasmrun_module_fetch_bytes_total",
            "Their bytes.",
            counters.module_bytes_in.get(),
        ),
    ]);
    text.one(
        "wasmrun_transfer_changed_total",
        "Pieces of objects that came from another node with bytes that have changed since they were made.",
        counters.transfers_changed.get(),
    );
}

fn sandboxes(text: &mut Text, inner: &Inner) {
    let engine = &inner.shared.engine;
    let pool = engine.pool_usage();
    text.all([
        ("wasmrun_sandboxes", "Sandboxes that exist.", pool.stacks),
        (
            "wasmrun_sandboxes_limit",
            "How many may exist at a time.",
            engine.config().max_sandboxes.into(),
        ),
        (
            "wasmrun_sandbox_memories",
            "Linear memories that they have.",
            pool.memories,
        ),
        (
            "wasmrun_sandbox_tables",
            "Tables that they have.",
            pool.tables,
        ),
        (
            "wasmrun_pool_warm_memories",
            "Memories that nobody has and that keep their pages for the next sandbox.",
            pool.warm_memories,
        ),
        (
            "wasmrun_guest_memory_bytes",
            "Memory that guests have as they see it, touched or not.",
            Engine::guest_memory_bytes(),
        ),
    ]);
}

fn times(text: &mut Text, inner: &Inner) {
    let times = &inner.shared.counters.times;
    for (name, help, (counts, sum_us)) in [
        (
            "wasmrun_task_wait_duration_seconds",
            "How long attempts that ran here had been at this node before they began: queues and arguments.",
            times.waited(),
        ),
        (
            "wasmrun_task_run_duration_seconds",
            "How long they ran, waiting for others included.",
            times.ran(),
        ),
    ] {
        let mut family = text.histogram(name, help);
        buckets(&mut family, &Times::BOUNDS_US, &counts, sum_us);
    }
}
