//! Lists of what the node has: tasks, actors, objects, jobs, modules, tenants.
//!
//! Owns which rows pass a list's filters. Must not: change anything, or hold the ledger's lock for longer than it takes to
//! copy rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use wasmrun_model::access::Tenants;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, IdPrefix};
use wasmrun_model::wire::{
    ActorRow, List, ModuleRow, ObjectRow, Refusal, RefusalKind, Request, Rows, TenantRow, What,
};
use wasmrun_store::{Copy, ObjectPlace};

use super::lookup::is_over;
use super::session::refusal;
use super::views::{Asker, amounts, status};
use super::{Inner, audit, cluster, groups, live, rows};
use crate::ledger::Ledger;
use crate::records::actor::ActorCell;
use crate::records::dead::{Dead, FAILED};
use crate::records::object::{Reference, Value};
use crate::records::task::{TaskCell, Work};

/// Refuses a request for a list that no row could be in.
pub(super) fn check(request: &Request) -> Result<(), Refusal> {
    let Request::List(list) = request else {
        return Ok(());
    };
    let mut filters = list.filters.iter();
    filters.try_for_each(|(field, value)| check_filter(list.what, field, value))?;
    let mut fields: Vec<&str> = list.filters.iter().map(|(field, _)| &**field).collect();
    fields.sort_unstable();
    if let Some(twice) = fields.windows(2).find(|it| it[0] == it[1]) {
        let why = format_args!(
            "the list is filtered by {} more than once: give one value of it",
            twice[0]
        );
        return Err(refusal(RefusalKind::Usage, why));
    }
    let Some(after) = &list.after else {
        return Ok(());
    };
    let after: String = after.chars().take(80).collect();
    let is_place = match list.what {
        What::Tasks | What::Attempts | What::Jobs => rows::parse_place(&after).is_some(),
        What::Audit => audit::parse_place(&after).is_some(),
        _ => {
            let why = "this list has one page, and nothing is after it: only those of tasks, attempts, jobs and the \
                       audit have more; leave `after` out";
            return Err(refusal(RefusalKind::Usage, why));
        }
    };
    if is_place {
        return Ok(());
    }
    let why =
        format_args!("'{after}' is no place in a list: give what `next` of the page before says");
    Err(refusal(RefusalKind::Usage, why))
}

fn check_filter(what: What, field: &str, value: &str) -> Result<(), Refusal> {
    let shown = |text: &str| text.chars().take(80).collect::<String>();
    let fields = what.fields();
    let why = match what.choices(field) {
        _ if !fields.contains(&field) => {
            let fields = match fields {
                [] => "there is nothing to filter by".to_owned(),
                fields => format!("it can be filtered by {}", fields.join(", ")),
            };
            format!("this list has no field '{}': {fields}", shown(field))
        }
        Some(choices) if !choices.contains(&value) => {
            let choices = choices.join(", ");
            format!(
                "'{}' is no value of {field}: choose from {choices}",
                shown(value)
            )
        }
        None if what.is_id(field) && IdPrefix::parse(value).is_none() => format!(
            "'{}' is no value of {field}: that is an id, or the beginning of one, in digits and the letters a to f",
            shown(value)
        ),
        _ => return Ok(()),
    };
    Err(refusal(RefusalKind::Usage, why))
}

/// Whether a row has all that is asked for.
pub(super) fn passes(list: &List, fields: &[(&str, &dyn Display)]) -> bool {
    let what = list.what;
    debug_assert!(
        fields.iter().all(|(name, field)| {
            let choices = what.choices(name);
            choices.is_none_or(|choices| choices.contains(&field.to_string().as_str()))
        }),
        "a row of {what:?} has a value that nobody could ask for"
    );
    debug_assert!(
        fields.len() == list.what.fields().len()
            && fields
                .iter()
                .all(|(name, _)| list.what.fields().contains(name)),
        "a list of {:?} is filtered by other fields than it says",
        list.what
    );
    list.filters.iter().all(|(key, value)| {
        let field = fields.iter().find(|(name, _)| name == key);
        let field = field.map(|(_, field)| field.to_string());
        field.is_some_and(|field| match what.is_id(key) {
            true => field.starts_with(value.as_str()),
            false => field == *value,
        })
    })
}

/// What this node has, of what the asker may see.
pub(super) fn list(inner: &Inner, asker: Asker<'_>, list: &List) -> Rows {
    let tenants = asker.tenants;
    match list.what {
        What::Tasks | What::Attempts => Rows::Tasks(rows::tasks(inner, tenants, list)),
        What::Actors => Rows::Actors(actors(inner, tenants, list)),
        What::Objects => Rows::Objects(objects(inner, tenants, list)),
        What::Jobs => Rows::Jobs(rows::jobs(inner, tenants, list)),
        What::Modules => Rows::Modules(modules(inner, tenants, list)),
        What::Nodes => Rows::Nodes(vec![status(inner, tenants)]),
        What::Tenants => Rows::Tenants(tenant_rows(inner, tenants, list)),
        What::Members => Rows::Members(cluster::members(inner, list)),
        What::Groups => Rows::Groups(groups::groups(inner, asker, list)),
        What::Services => Rows::Services(inner.service_rows(tenants, list)),
        What::Due => Rows::Due(super::tenants::due(inner, tenants, list)),
        What::Audit => Rows::Audit(audit::rows(inner, list)),
        What::Tokens | What::Access => unreachable!("the session has taken these"),
    }
}

/// What the ids in a field of a list must begin with; `None` if no id does.
fn prefix_of(list: &List, field: &str) -> Option<IdPrefix> {
    match list.filters.iter().find(|(name, _)| name == field) {
        Some((_, text)) => IdPrefix::parse(text),
        None => Some(IdPrefix::ANY),
    }
}

fn actors(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<ActorRow> {
    let Some(id) = prefix_of(list, "id") else {
        return Vec::new();
    };
    let named = inner.shared.names.all();
    let mut rows = Vec::new();
    live::each_cell(inner, id, |ledger, cell| {
        if let Work::Create(actor) = &cell.work {
            rows.push(actor_row(inner, ledger, cell, actor, &named));
        }
    });
    let known: BTreeSet<ActorId> = rows.iter().map(|row| row.id).collect();
    let dead = inner.shared.ask(|ledger| {
        let dead = ledger.dead.iter().filter(|it| !known.contains(&it.id));
        dead.map(|it| dead_row(inner.name(), it))
            .collect::<Vec<_>>()
    });
    rows.extend(dead);
    rows.retain(|row| {
        let name = row.name.clone().unwrap_or_default();
        let fields: [(&str, &dyn Display); 6] = [
            ("node", &row.node),
            ("id", &row.id),
            ("name", &name),
            ("class", &row.class),
            ("state", &row.state),
            ("tenant", &row.tenant),
        ];
        tenants.covers(&row.tenant) && passes(list, &fields)
    });
    // Those that have failed are the first to be left out.
    rows.sort_by_key(|row| (is_over(&row.state), row.id));
    rows.truncate(Rows::MAX);
    rows
}

/// Which generation of an actor lives, or is about to, from 1; 0 where it is not counted: its owner does.
fn generation(actor: &ActorCell) -> u64 {
    if actor.is_foreign() {
        return 0;
    }
    let begun = actor.job().restarts - actor.restarts_left();
    u64::from(begun) + 1
}

fn actor_row(
    inner: &Inner,
    ledger: &Ledger,
    creation: &TaskCell,
    actor: &ActorCell,
    named: &BTreeMap<ActorId, String>,
) -> ActorRow {
    let scheduler = ledger.scheduler();
    let death = actor.death().filter(|why| *why != TaskError::Cancelled);
    ActorRow {
        id: actor.id,
        name: named.get(&actor.id).cloned(),
        class: actor.face.class.clone(),
        state: live::state(ledger, creation).to_owned(),
        tenant: actor.tenant().clone(),
        job: creation.driver.job(),
        node: inner.name(),
        generation: generation(actor),
        // Its creation is a task of it, too.
        calls: scheduler.of_actor(&actor.id).count() as u64 - 1,
        state_bytes: actor.checkpoint().map(|it| it.state.len() as u64),
        failure: death.map(|why| rows::first_line(&why.to_string())),
    }
}

/// An actor that has failed, as `here` remembers it.
fn dead_row(here: String, dead: &Dead) -> ActorRow {
    ActorRow {
        id: dead.id,
        name: dead.name.clone(),
        class: dead.class.clone(),
        state: FAILED.to_owned(),
        tenant: dead.tenant.clone(),
        job: dead.driver.job(),
        node: dead.node.clone().unwrap_or(here),
        generation: 0,
        calls: 0,
        state_bytes: None,
        failure: Some(rows::first_line(&dead.why.to_string())),
    }
}

fn objects(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<ObjectRow> {
    let stored = inner.shared.store.objects().into_iter().map(|info| {
        let place = match info.place {
            ObjectPlace::Writing => "writing",
            ObjectPlace::Memory => "memory",
            ObjectPlace::Disk => "disk",
        };
        let copy = match info.copy {
            Copy::Primary => "primary",
            Copy::Secondary => "secondary",
        };
        let row = ObjectRow {
            id: info.id,
            size_bytes: info.len_bytes,
            place: place.into(),
            tenant: info.tenant,
            is_kept: false,
            node: inner.name(),
            copy: Some(copy.into()),
            references: Some(info.references),
            pins: Some(info.pins),
        };
        (row.id, row)
    });
    let mut rows: BTreeMap<_, ObjectRow> = stored.collect();
    let registry = inner.registry();
    for put in registry.puts() {
        let inline = || ObjectRow {
            id: put.object.id(),
            size_bytes: put.size_bytes,
            place: "inline".into(),
            tenant: put.tenant.clone(),
            is_kept: true,
            node: inner.name(),
            copy: None,
            references: None,
            pins: None,
        };
        rows.entry(put.object.id()).or_insert_with(inline).is_kept = true;
    }
    for record in registry.tasks() {
        let Some(detached) = &record.detached else {
            continue;
        };
        let Reference::Task(cell) = &detached.object.0 else {
            continue;
        };
        if let Some(Ok(Some(value))) = cell.result() {
            let inline = || ObjectRow {
                id: detached.object.id(),
                size_bytes: value.size_bytes(),
                place: place_of(inner, &value).into(),
                tenant: record.tenant.clone(),
                is_kept: true,
                node: inner.name(),
                copy: None,
                references: None,
                pins: None,
            };
            rows.entry(detached.object.id())
                .or_insert_with(inline)
                .is_kept = true;
        }
    }
    drop(registry);
    let passing = rows.into_values().filter(|row| {
        let kept = if row.is_kept { "yes" } else { "no" };
        let fields: [(&str, &dyn Display); 5] = [
            ("node", &row.node),
            ("id", &row.id),
            ("place", &row.place),
            ("tenant", &row.tenant),
            ("kept", &kept),
        ];
        tenants.covers(&row.tenant) && passes(list, &fields)
    });
    passing.take(Rows::MAX).collect()
}

/// Where a value is that is not in the store here.
fn place_of(inner: &Inner, value: &Value) -> &'static str {
    if value.as_inline().is_some() {
        return "inline";
    }
    let exchange = inner.exchange();
    match exchange.is_some_and(|exchange| exchange.is_somewhere(value)) {
        true => "elsewhere",
        // Unless it can be reconstructed, and is when it is read.
        false => "lost",
    }
}

/// Modules are no tenant's: who knows of one can run it. So those alone see them who have all tenants.
fn modules(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<ModuleRow> {
    if *tenants != Tenants::All {
        return Vec::new();
    }
    let registry = inner.registry();
    let rows = registry.modules.iter().map(|module| ModuleRow {
        digest: module.digest(),
        exports: u32::try_from(module.functions().len() + module.classes().len())
            .unwrap_or(u32::MAX),
        has_program: module.program().is_some(),
        node: inner.name(),
    });
    let mut rows: Vec<_> = rows
        .filter(|row| passes(list, &[("digest", &row.digest), ("node", &row.node)]))
        .collect();
    rows.sort_by_key(|row| row.digest);
    rows
}

fn tenant_rows(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<TenantRow> {
    let stored = inner.shared.store.usage().tenants;
    inner.shared.ask(|ledger| {
        let all = ledger.scheduler().tenants().iter();
        let seen = all.filter(|(_, tenant)| tenants.covers(tenant.name()));
        let rows = seen.map(|(_, tenant)| {
            let counters = tenant.counters();
            TenantRow {
                name: tenant.name().clone(),
                used: amounts(&tenant.own_usage()),
                objects_bytes: stored.get(tenant.name()).map_or(0, |it| it.used_bytes),
                share: tenant.dominant_share().to_string(),
                submitted: counters.submitted,
                finished: counters.finished,
                failed: counters.failed,
                cancelled: counters.cancelled,
                node: inner.name(),
            }
        });
        let rows = rows.filter(|row| passes(list, &[("name", &row.name), ("node", &row.node)]));
        rows.take(Rows::MAX).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wasmrun_engine::{Engine, EngineConfig, Wishes};
    use wasmrun_model::id::{DriverId, NodeId};

    use super::*;
    use crate::actor::ActorOptions;
    use crate::records::class::ActorJob;

    #[test]
    fn an_actor_has_as_many_generations_as_it_has_used_restarts_and_one() {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let bytes = wat::parse_str(crate::testing::COUNTER).unwrap();
        let module = engine.load(&bytes).unwrap();
        let class = module.find_class("counter").unwrap();
        let options = ActorOptions {
            wishes: Wishes {
                restarts: Some(1),
                ..Wishes::default()
            },
            ..ActorOptions::default()
        };
        let job = ActorJob::new(&module, class, options).unwrap();
        let (here, there) = (NodeId::from_bytes([1; 16]), NodeId::from_bytes([2; 16]));
        let id = DriverId::from_bytes([3; 16]).task(0).actor();
        let actor = ActorCell::new(id, here, Arc::new(job), None);
        // The last one is followed by none.
        for expected in [1, 2, 2] {
            assert_eq!(generation(&actor), expected);
            actor.lives_at(there);
            drop(actor.dies(None, here));
        }
    }

    #[test]
    fn of_a_long_failure_an_actor_shows_as_much_as_a_task() {
        let driver = DriverId::from_bytes([3; 16]);
        let why = format!("{}\nand more", "é".repeat(1 << 20));
        let dead = Dead {
            id: driver.task(0).actor(),
            name: None,
            class: "c".into(),
            tenant: Default::default(),
            driver,
            submitted: tokio::time::Instant::now(),
            has_lived: true,
            node: Some("n2".into()),
            why: TaskError::Sandbox(why),
        };
        let row = dead_row("n1".into(), &dead);
        assert_eq!(row.node, "n2");
        let failure = row.failure.unwrap();
        assert!(failure.len() < 600 && failure.ends_with("é…"), "{failure}");
    }

    fn said(what: What, field: &str, value: &str) -> Option<String> {
        let checked = check(&Request::List(List::of(what).with(field, value)));
        checked.err().map(|why| why.message)
    }

    #[test]
    fn what_no_row_can_have_is_refused() {
        for (what, field, value, says) in [
            (What::Tasks, "stat", "running", "no field 'stat': it can be"),
            (What::Nodes, "x", "y", "there is nothing to filter by"),
            (What::Tasks, "state", "runing", "dispatching, running,"),
            (
                What::Objects,
                "kept",
                "maybe",
                "'maybe' is no value of kept: choose from yes, no",
            ),
            (What::Tokens, "kind", "nodes", "choose from node, client"),
            (
                What::Groups,
                "job",
                "mine",
                "'mine' is no value of job: that is an id",
            ),
            (What::Modules, "digest", "", "the beginning of one"),
        ] {
            let said = said(what, field, value).expect("it is refused");
            assert!(said.contains(says), "{said}");
        }
        for (what, field, value) in [
            (What::Tasks, "state", "running"),
            (What::Actors, "state", "failed"),
            (What::Objects, "kept", "no"),
            (What::Members, "id", "0a"),
            (What::Tasks, "name", "anything"),
        ] {
            assert_eq!(said(what, field, value), None);
        }
        let twice = List::of(What::Tasks).with("job", "a").with("job", "ab");
        let why = check(&Request::List(twice)).expect_err("it is refused");
        assert!(why.message.contains("job more than once"), "{why}");
        let after = |what: What, text: &str| {
            let list = List {
                after: Some(text.into()),
                ..List::of(what)
            };
            check(&Request::List(list)).map_err(|why| why.message)
        };
        let place = format!("7-{}-1", "0a".repeat(16));
        for what in [What::Tasks, What::Attempts, What::Jobs] {
            let why = after(what, "7").expect_err("it is no place");
            assert!(why.contains("'7' is no place in a list"), "{why}");
            assert_eq!(after(what, &place), Ok(()));
        }
        let why = after(What::Actors, &place).expect_err("it has one page");
        assert!(why.contains("leave `after` out"), "{why}");
    }
}
