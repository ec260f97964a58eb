//! The state API: the lists and descriptions of a node as JSON, the same from the command line, the web page and here.
//!
//! Owns the fields of each list and description; `docs/state-api.md` documents them. Must not: ask a node, or know how anything
//! looks to people.
//!
//! Invariant: within a [`VERSION`] fields are added; none goes, is renamed, or gets another type or meaning.
//!
//! ```no_run
//! use wasmrun_client::wire::{List, Rows, What};
//! use wasmrun_client::{Client, rows};
//!
//! # async fn failed(client: &Client) -> Result<(), wasmrun_client::Error> {
//! let list = List::of(What::Tasks).with("state", "failed");
//! let listed = client.list_pages(list, Rows::MAX).await?;
//! println!("{}", rows::list(What::Tasks, &listed, &[])["tasks"][0]["error"]);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::Amount;

use crate::wire::{
    AccessRow, ActorDetail, ActorRow, Amounts, AuditRow, DueRow, GroupRow, HeldResource, Holder,
    JobDetail, JobRow, Listed, MemberRow, ModuleRow, NodeStatus, ObjectDetail, ObjectRow, Rows,
    ServiceRow, Silent, TaskDetail, TaskRow, TenantRow, TokenRow, What,
};

/// The version of the state API: `version` of each answer.
pub const VERSION: u32 = 1;

/// What is an object in the state API.
pub trait Object {
    /// The names of its fields, without those of the object that it extends, as a detail extends its row.
    const FIELDS: &'static [&'static str];

    /// Adds all its fields to an object.
    fn add_to(&self, object: &mut Map<String, Json>);

    /// The object. Sizes are in bytes, times in the unit that ends the field's name, amounts of resources decimals as text.
    fn object(&self) -> Json {
        let mut object = Map::new();
        self.add_to(&mut object);
        Json::Object(object)
    }
}

/// Types that are an [`Object`], each with the object that it extends and its other fields.
macro_rules! objects {
    ($(|$it:ident: $type:ty| $(of $base:expr;)* { $($field:literal: $value:expr,)* })*) => { $(
        impl Object for $type {
            const FIELDS: &'static [&'static str] = &[$($field),*];

            fn add_to(&self, object: &mut Map<String, Json>) {
                let $it = self;
                $($base.add_to(object);)*
                $(object.insert($field.to_owned(), json!($value));)*
            }
        }
    )* };
}

/// A tenant at one node, and its due at all of them.
struct Tenant<'a> {
    row: &'a TenantRow,
    due: Option<&'a DueRow>,
}

objects! {
    |row: TaskRow| {
        "id": row.id.to_string(),
        "name": row.name,
        "state": row.state,
        "node": row.node,
        "tenant": row.tenant.as_str(),
        "job": row.job.to_string(),
        "parent": row.parent.map(|id| id.to_string()),
        "parent_attempt": Some(row.parent_attempt).filter(|attempt| *attempt > 0),
        "actor": row.actor.map(|id| id.to_string()),
        "array_index": row.array_index,
        "attempt": row.attempt,
        "detached": row.is_detached,
        "submitted_us": row.submitted_us,
        "age_ms": row.age_ms,
        "waited_us": row.run.as_ref().map(|run| run.waited_us),
        "duration_us": row.run.as_ref().and_then(|run| run.ran_us),
        "ended_us": row.run.as_ref().map(|run| run.ended_us),
        "phases": row.run.as_ref().filter(|run| run.ran_us.is_some()).map(|run| run.phases),
        "memory_peak_bytes": row.run.as_ref().map(|run| run.memory_peak_bytes),
        "held": amounts_held(&row.held),
        "resource_ids": units_held(&row.held),
        "inputs": row.inputs.iter().map(ToString::to_string).collect::<Json>(),
        "error": row.error,
    }
    |row: JobRow| {
        "id": row.id.to_string(),
        "name": row.name,
        "state": row.state,
        "node": row.node,
        "tenant": row.tenant.as_str(),
        "by": row.by,
        "detached": row.is_detached,
        "submitted_us": row.submitted_us,
        "age_ms": row.age_ms,
        "took_ms": row.took_ms,
        "states": row.tasks,
        "failed": row.tasks.failed,
    }
    |row: ActorRow| {
        "id": row.id.to_string(),
        "name": row.name,
        "class": row.class,
        "state": row.state,
        "node": row.node,
        "tenant": row.tenant.as_str(),
        "job": row.job.to_string(),
        "generation": row.generation,
        "calls": row.calls,
        "state_bytes": row.state_bytes,
        "failure": row.failure,
    }
    |row: ObjectRow| {
        "id": row.id.to_string(),
        "size_bytes": row.size_bytes,
        "place": row.place,
        "node": row.node,
        "tenant": row.tenant.as_str(),
        "kept": row.is_kept,
        "copy": row.copy,
        "references": row.references,
        "pins": row.pins,
    }
    |row: ModuleRow| {
        "digest": row.digest.to_string(),
        "node": row.node,
        "exports": row.exports,
        "program": row.has_program,
    }
    |row: ServiceRow| {
        "name": row.name,
        "tenant": row.tenant.as_str(),
        "url": row.url,
        "node": row.node,
        "module": row.module.to_string(),
        "job": row.job.to_string(),
        "detached": row.is_detached,
        "age_ms": row.age_ms,
        "requests": row.requests,
        "failed": row.failed,
        "refused": row.refused,
        "mean_us": row.mean_us,
        "running": row.running,
        "waiting": row.waiting,
        "connections": row.connections,
        "state": row.state,
        "why": row.why,
        "generation": row.generation,
        "all_requests": row.all_requests,
    }
    |row: MemberRow| {
        "name": row.name,
        "id": row.id.to_string(),
        "state": row.state,
        "incarnation": row.incarnation,
        "address": row.address.map(|address| address.to_string()),
        "head": row.is_head,
        "total": row.total,
        "available": row.available,
        "since_ms": row.since_ms,
        "wasmrun": row.version,
    }
    |row: GroupRow| {
        "id": row.id.to_string(),
        "name": row.name,
        "kind": row.kind.name(),
        "state": row.state,
        "bundles": row.bundles.iter().map(|it| json!({ "node": it.node, "resources": it.amounts })).collect::<Json>(),
        "node": row.node,
        "tenant": row.tenant.as_str(),
        "job": row.job.to_string(),
        "detached": row.is_detached,
        "age_ms": row.age_ms,
        "why": row.why,
    }
    |row: TenantRow| {
        "name": row.name.as_str(),
        "node": row.node,
        "share": row.share,
        "used": row.used,
        "objects_bytes": row.objects_bytes,
        "submitted": row.submitted,
        "finished": row.finished,
        "failed": row.failed,
        "cancelled": row.cancelled,
    }
    |it: Tenant<'_>| of it.row; {
        "weight": it.due.map(|due| due.weight.to_string()),
        "min": it.due.map(|due| &due.min),
    }
    |row: DueRow| {
        "name": row.name.as_str(),
        "weight": row.weight.to_string(),
        "min": row.min,
        "share": row.share,
        "used": row.used,
        "max": row.quota.max,
        "max_tasks": row.quota.max_tasks,
        "max_waiting": row.quota.max_waiting,
        "max_objects_bytes": row.quota.max_objects,
        "max_detached": row.quota.max_detached,
        "no_preempt": row.quota.no_preempt,
        "tasks": row.tasks,
        "waiting": row.waiting,
    }
    |row: TokenRow| {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "many": row.is_reusable,
        "joined": row.joined,
        "left_ms": row.left_ms,
    }
    |row: AccessRow| {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "age_ms": row.age_ms,
        "left_ms": row.left_ms,
        "role": row.role.name(),
        "tenants": row.tenants,
    }
    |row: AuditRow| {
        "sequence": row.sequence,
        "time": row.time,
        "time_us": row.time_us,
        "node": row.node,
        "who": row.who,
        "from": row.from,
        "tenant": row.tenant,
        "action": row.action,
        "subject": row.subject,
        "job": row.job.map(|id| id.to_string()),
        "details": row.details,
        "outcome": row.outcome,
        "kind": row.kind,
        "error": row.error,
    }
    |status: NodeStatus| {
        "node": status.name,
        "wasmrun": status.version,
        "process": status.process,
        "up_ms": status.up_ms,
        "stopping": status.is_draining,
        "sessions": status.sessions,
        "total": status.total,
        "available": status.available,
        "tasks": status.tasks.iter().cloned().collect::<BTreeMap<String, u64>>(),
        "store": status.store,
    }
    |task: TaskDetail| of task.row; {
        "version": VERSION,
        "kind": "task",
        "object": task.object.map(|id| id.to_string()),
        "error": task.error.clone().map(|it| error(&it.into())),
        "stderr_tail": task.stderr_tail,
        "explanation": task.explanation,
        "retried": all(&task.retried),
    }
    |actor: ActorDetail| of actor.row; {
        "version": VERSION,
        "kind": "actor",
        "detached": actor.is_detached,
        "age_ms": actor.age_ms,
        "explanation": actor.explanation,
    }
    |job: JobDetail| of job.row; of job.silent[..]; {
        "version": VERSION,
        "kind": "job",
        "tasks": all(&job.tasks),
    }
    |holder: Holder| {
        "kind": holder.kind,
        "id": holder.id,
        "name": holder.name,
        "state": holder.state,
        "how": holder.how,
        "node": holder.node,
    }
    |it: ObjectDetail| of it.copies[0]; of it.silent[..]; {
        "version": VERSION,
        "kind": "object",
        "task": it.copies[0].id.task().to_string(),
        "copies": all(&it.copies),
        "holders": all(&it.holders),
        "more_holders": it.more_holders,
    }
}

/// The nodes that have not answered, if any.
impl Object for [Silent] {
    const FIELDS: &'static [&'static str] = &["silent"];

    fn add_to(&self, object: &mut Map<String, Json>) {
        if !self.is_empty() {
            let silent = self.iter();
            let silent = silent.map(|it| json!({ "node": it.node, "why": it.why }));
            object.insert("silent".to_owned(), silent.collect());
        }
    }
}

/// The amount of each resource that is held.
fn amounts_held(held: &[HeldResource]) -> Amounts {
    let held = held.iter();
    held.map(|it| (it.name.clone(), Amount::from_steps(it.steps)))
        .collect()
}

/// Which units of resources that have ids are held, and how much of each.
fn units_held(held: &[HeldResource]) -> Json {
    let with_ids = held.iter().filter(|held| !held.units.is_empty());
    let ids = with_ids.map(|held| {
        let units = held.units.iter();
        let units = units.map(|(id, steps)| json!([id, Amount::from_steps(*steps)]));
        (held.name.to_string(), units.collect::<Json>())
    });
    Json::Object(ids.collect())
}

fn error(error: &TaskError) -> Json {
    let frames: Vec<String> = error.frames().iter().map(ToString::to_string).collect();
    json!({ "kind": error.kind(), "message": error.to_string(), "backtrace": frames })
}

fn all<T: Object>(rows: &[T]) -> Json {
    rows.iter().map(Object::object).collect()
}

/// Tenants at nodes, each with what it is due: `weight` and `min` are null where `due` does not have it.
pub fn tenants(rows: &[TenantRow], due: &[DueRow]) -> Json {
    let due: BTreeMap<&TenantName, &DueRow> = due.iter().map(|it| (&it.name, it)).collect();
    let tenants = rows.iter().map(|row| {
        let due = due.get(&row.name).copied();
        Tenant { row, due }.object()
    });
    tenants.collect()
}

/// A list as a whole: `version`, the rows under its [`name`], `next`, and `silent` if nodes have not answered. `due` is of
/// [`Client::due`](crate::Client::due); of other lists than that of tenants it is empty.
pub fn list(what: What, listed: &Listed, due: &[DueRow]) -> Json {
    let rows = match &listed.rows {
        Rows::Tasks(rows) => all(rows),
        Rows::Actors(rows) => all(rows),
        Rows::Objects(rows) => all(rows),
        Rows::Jobs(rows) => all(rows),
        Rows::Modules(rows) => all(rows),
        Rows::Nodes(rows) => all(rows),
        Rows::Tenants(rows) => tenants(rows, due),
        Rows::Members(rows) => all(rows),
        Rows::Tokens(rows) => all(rows),
        Rows::Groups(rows) => all(rows),
        Rows::Access(rows) => all(rows),
        Rows::Services(rows) => all(rows),
        Rows::Audit(rows) => all(rows),
        Rows::Due(rows) => all(rows),
    };
    let mut object = Map::new();
    listed.silent.add_to(&mut object);
    object.insert("version".to_owned(), VERSION.into());
    object.insert(name(what).to_owned(), rows);
    object.insert("next".to_owned(), json!(listed.next));
    Json::Object(object)
}

/// The name of a list: the field of its rows.
pub const fn name(what: What) -> &'static str {
    match what {
        What::Tasks => "tasks",
        What::Attempts => "attempts",
        What::Actors => "actors",
        What::Objects => "objects",
        What::Jobs => "jobs",
        What::Modules => "modules",
        What::Nodes | What::Members => "nodes",
        What::Tenants | What::Due => "tenants",
        What::Tokens => "tokens",
        What::Groups => "groups",
        What::Access => "clients",
        What::Services => "services",
        What::Audit => "audit",
    }
}

/// The names of the fields that each row of a list has.
pub fn fields(what: What) -> Vec<&'static str> {
    match what {
        What::Tasks | What::Attempts => TaskRow::FIELDS.to_vec(),
        What::Actors => ActorRow::FIELDS.to_vec(),
        What::Objects => ObjectRow::FIELDS.to_vec(),
        What::Jobs => JobRow::FIELDS.to_vec(),
        What::Modules => ModuleRow::FIELDS.to_vec(),
        What::Nodes => NodeStatus::FIELDS.to_vec(),
        What::Members => MemberRow::FIELDS.to_vec(),
        What::Tenants => [TenantRow::FIELDS, Tenant::FIELDS].concat(),
        What::Tokens => TokenRow::FIELDS.to_vec(),
        What::Groups => GroupRow::FIELDS.to_vec(),
        What::Access => AccessRow::FIELDS.to_vec(),
        What::Services => ServiceRow::FIELDS.to_vec(),
        What::Audit => AuditRow::FIELDS.to_vec(),
        What::Due => DueRow::FIELDS.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wasmrun_model::id::TaskId;

    use super::*;
    use crate::wire::{Phases, Run};

    const PAGE: &str = include_str!("../../../docs/state-api.md");

    /// What stands in backquotes.
    fn quoted(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    /// The text of the page under a heading.
    fn section(heading: &str) -> &'static str {
        let mut sections = PAGE.split("\n## ");
        let found = sections.find(|it| it.lines().next() == Some(heading));
        found.unwrap_or_else(|| panic!("docs/state-api.md has no section '{heading}'"))
    }

    /// The fields of its table, with their descriptions.
    fn table(heading: &str) -> BTreeMap<&'static str, &'static str> {
        let lines = section(heading).lines();
        let lines = lines.filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        lines.collect()
    }

    fn has(heading: &str, fields: &[&str]) {
        let table = table(heading);
        let documented: BTreeSet<&str> = table.keys().copied().collect();
        let fields: BTreeSet<&str> = fields.iter().copied().collect();
        assert_eq!(documented, fields, "{heading}");
    }

    #[test]
    fn each_field_of_each_list_is_documented_with_its_values() {
        let lists = [
            ("Tasks and attempts", What::Tasks),
            ("Tasks and attempts", What::Attempts),
            ("Jobs", What::Jobs),
            ("Actors", What::Actors),
            ("Objects", What::Objects),
            ("Modules", What::Modules),
            ("Nodes", What::Members),
            ("Nodes in numbers", What::Nodes),
            ("Placement groups", What::Groups),
            ("Tenants", What::Tenants),
            ("What tenants are due", What::Due),
            ("Tokens", What::Tokens),
            ("Clients", What::Access),
            ("Services", What::Services),
            ("Audit", What::Audit),
        ];
        for (heading, what) in lists {
            has(heading, &fields(what));
            let mut lines = section(heading).lines();
            let filters = lines.find(|it| it.starts_with("Filters"));
            let filters = filters.map(quoted).unwrap_or_default();
            assert_eq!(filters, what.fields(), "{heading}");
            let table = table(heading);
            for field in what.fields() {
                let said = quoted(table[field]);
                let mut choices = what.choices(field).unwrap_or_default().iter();
                let missing = choices.find(|it| !said.contains(it));
                assert_eq!(missing, None, "{heading}: {field}");
            }
        }
    }

    #[test]
    fn each_field_of_one_thing_is_documented() {
        has("One task", TaskDetail::FIELDS);
        has("One actor", ActorDetail::FIELDS);
        has("One job", &[JobDetail::FIELDS, <[Silent]>::FIELDS].concat());
        let object = [ObjectDetail::FIELDS, <[Silent]>::FIELDS].concat();
        has("One object", &object);
        has("Who needs an object", Holder::FIELDS);
    }

    #[test]
    fn what_did_not_run_has_waited_and_has_no_running_time() {
        let row = TaskRow {
            run: Some(Run {
                waited_us: 5,
                ran_us: None,
                ended_us: 9,
                phases: Phases::default(),
                memory_peak_bytes: 0,
            }),
            ..TaskRow::example(TaskId::from_bytes([1; 16]))
        };
        let object = row.object();
        assert_eq!(
            (&object["waited_us"], &object["ended_us"]),
            (&json!(5), &json!(9))
        );
        assert_eq!(
            (&object["duration_us"], &object["phases"]),
            (&Json::Null, &Json::Null)
        );
    }

    #[test]
    fn a_list_has_its_rows_by_its_name() {
        let due = DueRow {
            name: TenantName::default(),
            weight: Default::default(),
            min: [(wasmrun_model::resource::ResourceName::CPU, Amount::ONE)].into(),
            share: "0.5000".into(),
            used: Amounts::new(),
            quota: Default::default(),
            tasks: 0,
            waiting: 0,
        };
        let row = TenantRow {
            name: due.name.clone(),
            used: Amounts::new(),
            objects_bytes: 0,
            share: due.share.clone(),
            submitted: 1,
            finished: 0,
            failed: 0,
            cancelled: 0,
            node: "a".into(),
        };
        let mut listed = Listed {
            rows: Rows::Tenants(vec![row]),
            next: None,
            silent: Vec::new(),
        };
        let object = list(What::Tenants, &listed, &[due]);
        let row = object["tenants"][0].as_object().expect("an object");
        let keys: BTreeSet<&str> = row.keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from_iter(fields(What::Tenants)));
        assert_eq!(row["weight"], "1");
        assert_eq!(row["min"]["CPU"], "1");
        assert_eq!(object.get("silent"), None);
        listed.silent.push(Silent {
            node: "b".into(),
            why: "no answer".into(),
        });
        let object = list(What::Tenants, &listed, &[]);
        assert_eq!(object["tenants"][0]["weight"], Json::Null);
        assert_eq!(object["silent"][0]["node"], "b");
    }
}
