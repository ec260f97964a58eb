//! Who needs an object.
//!
//! Owns the search: among what sessions have handles of, what is kept, what tasks were given and wait for, what actors hold,
//! and what is kept for other nodes and for lineage. It is made for one object when somebody asks; nothing is counted before.
//! Must not: hold a lock while it looks into values; keep anything.
//!
//! What a guest has no handle to, and reads or has mapped at the moment, is not found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use wasmrun_model::access::Tenants;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, IdPrefix, ObjectId};
use wasmrun_model::value::Handle;
use wasmrun_model::wire::{
    Holder, List, Listed, ObjectDetail, Refusal, RefusalKind, Response, Rows, What,
};

use super::merge::with_silent;
use super::registry::Record;
use super::session::Session;
use super::views::Asker;
use super::{Inner, live, views};
use crate::guests::attempt::Attempt;
use crate::ledger::Ledger;
use crate::peers::ask::{Answer, Question};
use crate::records::actor::ActorCell;
use crate::records::job::Argument;
use crate::records::object::{Object, Reference};
use crate::records::reach::{Holds, Referent};
use crate::records::task::{TaskCell, Work};

/// How many holders one node names.
const MOST_NAMED: usize = 100;
/// Into how many values it looks for names of the object.
const MOST_VALUES: usize = 100_000;

/// Who needs an object, as far as this node knows, and how many others do: those of other tenants than the asker's, too.
pub(super) fn holders(inner: &Inner, asker: Asker<'_>, object: &ObjectId) -> (Vec<Holder>, u64) {
    let mut search = Search {
        inner,
        tenants: asker.tenants,
        object: *object,
        found: Vec::new(),
        more: 0,
        elsewhere: HashMap::new(),
    };
    search.sessions();
    search.detached_objects();
    search.tasks();
    search.nodes();
    search.lineage();
    (search.found, search.more)
}

struct Search<'a> {
    inner: &'a Inner,
    tenants: &'a Tenants,
    object: ObjectId,
    found: Vec<Holder>,
    more: u64,
    /// Values that do not lead to the object. They are kept meanwhile: no other gets their place in memory.
    elsewhere: HashMap<usize, Referent>,
}

/// Who holds something: its kind, its id, what people call it, and its state.
type Who = (&'static str, Option<String>, String, Option<&'static str>);

/// A task that may hold the object by what it was given, and what that is.
struct Suspect {
    tenant: TenantName,
    who: Who,
    given: Vec<Referent>,
    attempt: Option<Weak<dyn Holds>>,
}

impl Search<'_> {
    /// One of a tenant's is named if the asker has that tenant.
    fn add_of(&mut self, tenant: &TenantName, who: Who, how: &str) {
        match self.tenants.covers(tenant) {
            true => self.add(who, how),
            false => self.more += 1,
        }
    }

    fn add(&mut self, (kind, id, name, state): Who, how: &str) {
        if self.found.len() >= MOST_NAMED {
            self.more += 1;
            return;
        }
        self.found.push(Holder {
            kind: kind.to_owned(),
            id,
            name,
            state: state.map(ToOwned::to_owned),
            how: how.to_owned(),
            node: self.inner.name(),
        });
    }

    /// How these hold the object, if they do: `is_held` where it is one of them.
    fn how(&mut self, held: Vec<Referent>, is_held: &'static str) -> Option<&'static str> {
        let is_it = |it: &Referent| it.object() == Some(self.object);
        match held.iter().any(is_it) {
            true => Some(is_held),
            false => self.is_inside(held).then_some("inside"),
        }
    }

    /// Whether one of these is a value that names the object, or one that names such a value, and so on.
    fn is_inside(&mut self, held: Vec<Referent>) -> bool {
        let mut open = held;
        let mut seen: HashMap<usize, Referent> = HashMap::new();
        while let Some(held) = open.pop() {
            // What an actor holds is the actor's.
            if matches!(held, Referent::Actor(_)) {
                continue;
            }
            let key = held.key();
            if self.elsewhere.contains_key(&key) || seen.contains_key(&key) {
                continue;
            }
            if self.elsewhere.len() + seen.len() >= MOST_VALUES {
                // For those that follow, too: who asks does not wait for more.
                self.elsewhere.extend(seen);
                return false;
            }
            let keeps = held.keeps();
            if keeps.iter().any(|it| it.object() == Some(self.object)) {
                return true;
            }
            open.extend(keeps);
            seen.insert(key, held);
        }
        self.elsewhere.extend(seen);
        false
    }

    fn sessions(&mut self) {
        let sessions: Vec<Arc<Session>> = {
            let sessions = self.inner.sessions.lock();
            sessions.values().filter_map(Weak::upgrade).collect()
        };
        for session in sessions {
            let driver = session.client.driver().job().to_string();
            let who: Who = ("driver", Some(driver), session.by.clone(), None);
            let is_mapped = {
                let pins = session.pins.lock();
                pins.values().any(|view| view.object().id() == self.object)
            };
            if is_mapped {
                self.add_of(&session.tenant, who.clone(), "mapped");
            }
            let held = {
                let objects = session.objects.lock();
                match objects.get(&self.object) {
                    Some(object) => vec![Referent::from(&object.0)],
                    None => {
                        let objects = objects.values().filter(|it| may_lead(&it.0));
                        objects.map(|it| Referent::from(&it.0)).collect()
                    }
                }
            };
            if let Some(how) = self.how(held, "handle") {
                self.add_of(&session.tenant, who, how);
            }
        }
    }

    /// What stays until it is deleted, and results of detached tasks.
    fn detached_objects(&mut self) {
        let (kept, made) = {
            let registry = self.inner.registry();
            let may = |object: &Object| object.id() == self.object || may_lead(&object.0);
            let kept = registry.puts().filter(|it| may(&it.object));
            let kept: Vec<(Object, TenantName)> = kept
                .map(|it| (it.object.clone(), it.tenant.clone()))
                .collect();
            let made = registry.tasks().filter_map(|record| {
                let object = &record.detached.as_ref()?.object;
                may(object).then(|| (object.clone(), record.clone()))
            });
            let made: Vec<(Object, Record)> = made.collect();
            (kept, made)
        };
        for (object, tenant) in kept {
            match self.how(vec![Referent::from(&object.0)], "kept") {
                Some("kept") => {
                    let who = ("tenant", None, tenant.to_string(), None);
                    self.add_of(&tenant, who, "kept");
                }
                Some(how) => {
                    let id = object.id().to_string();
                    self.add_of(&tenant, ("object", Some(id), String::new(), None), how);
                }
                None => {}
            }
        }
        for (object, record) in made {
            if let Some(how) = self.how(vec![Referent::from(&object.0)], "result") {
                let who = ("task", Some(record.id.to_string()), record.name, None);
                self.add_of(&record.tenant, who, how);
            }
        }
    }

    /// Tasks that live, and actors.
    fn tasks(&mut self) {
        let named = self.inner.shared.names.all();
        let (mut actors, mut holders, mut suspects) = (Vec::new(), Vec::new(), Vec::new());
        let mut more = 0;
        live::each_cell(self.inner, IdPrefix::ANY, |ledger, cell| {
            if let Work::Create(actor) = &cell.work
                && actor.is_here()
            {
                actors.push(actor.clone());
            }
            match relation(ledger, cell, &self.object) {
                Some(how) if holders.len() < MOST_NAMED => {
                    let tenant = cell.work.terms().tenant.clone();
                    holders.push((tenant, who(ledger, cell, &named), how));
                }
                Some(_) => more += 1,
                None => {
                    let listed = || self.inner.shared.with_handles.get(&cell.id);
                    let listed = cell.is_running().then(listed).flatten();
                    suspects.extend(suspect(ledger, cell, listed, &named));
                }
            }
        });
        self.more += more;
        for (tenant, who, how) in holders {
            self.add_of(&tenant, who, how);
        }
        for Suspect {
            tenant,
            who,
            given,
            attempt,
        } in suspects
        {
            let attempt = attempt.and_then(|it| it.upgrade());
            let holds = attempt.map(|it| it.holds()).unwrap_or_default();
            let mut held = given;
            held.extend(holds.into_iter().map(|(held, _)| held));
            if let Some(how) = self.how(held, "handle") {
                self.add_of(&tenant, who, how);
            }
        }
        for actor in actors {
            if let Some(how) = self.how(actor.handles.referents(), "handle") {
                self.add_of(actor.tenant(), of_actor(&actor, &named), how);
            }
        }
    }

    /// Nodes that borrow it from this one, or own it and have this one keep it.
    fn nodes(&mut self) {
        let Some(exchange) = self.inner.exchange() else {
            return;
        };
        for (node, how) in exchange.needed_by(&self.object) {
            let name = match self.inner.cluster() {
                Some(cluster) => cluster.name_of(node),
                None => node.to_string(),
            };
            self.add(("node", Some(node.to_string()), name, None), how);
        }
    }

    /// Results that can be made of it again.
    fn lineage(&mut self) {
        let (tasks, calls) = self
            .inner
            .shared
            .ask(|ledger| ledger.lineage().uses(&self.object));
        for (count, what) in [(tasks, "results of tasks"), (calls, "calls of actors")] {
            if count > 0 {
                self.add(("lineage", None, format!("{count} {what}"), None), "recipe");
            }
        }
    }
}

/// Whether something may name others.
fn may_lead(reference: &Reference) -> bool {
    match reference {
        Reference::Task(cell) => cell.has_ended(),
        Reference::Put(object) => !object.value.references().is_empty(),
        Reference::Actor(_) => false,
    }
}

/// How a task has to do with the object, as far as a look at it says.
fn relation(ledger: &Ledger, cell: &TaskCell, object: &ObjectId) -> Option<&'static str> {
    let mut values = ledger.call(&cell.id).into_iter().flat_map(|it| &it.values);
    let is_it = |value: &Argument| match value {
        Argument::Object(it) => match it.0.handle() {
            Handle::Object(name) => name.id == *object,
            Handle::Actor(_) => false,
        },
        Argument::Value(_) => false,
    };
    let inputs = ledger.input_summary(&cell.id);
    if inputs.is_some_and(|it| it.inputs.contains(object)) || values.any(is_it) {
        return Some("argument");
    }
    let blocked = ledger.blocked.get(&cell.id);
    if blocked.is_some_and(|it| {
        it.reads == Some(*object) || it.needs.iter().any(|it| it.object().id == *object)
    }) {
        return Some("waits");
    }
    let is_made = matches!(cell.work, Work::Task(_) | Work::Call(..)) && object.task() == cell.id;
    is_made.then_some("makes")
}

/// What of a task may lead to the object, if anything may.
fn suspect(
    ledger: &Ledger,
    cell: &TaskCell,
    listed: Option<Weak<Attempt>>,
    named: &BTreeMap<ActorId, String>,
) -> Option<Suspect> {
    let values = ledger.call(&cell.id).into_iter().flat_map(|it| &it.values);
    let values = values.filter(|value| match value {
        Argument::Value(value) => !value.references().is_empty(),
        Argument::Object(object) => may_lead(&object.0),
    });
    let given: Vec<Referent> = values.map(Referent::from).collect();
    let blocked = || ledger.blocked.get(&cell.id).map(|it| it.attempt.clone());
    let attempt = listed.map(|it| it as Weak<dyn Holds>).or_else(blocked);
    (attempt.is_some() || !given.is_empty()).then(|| Suspect {
        tenant: cell.work.terms().tenant.clone(),
        who: who(ledger, cell, named),
        given,
        attempt,
    })
}

/// Who a task is: an actor, if it creates one.
fn who(ledger: &Ledger, cell: &TaskCell, named: &BTreeMap<ActorId, String>) -> Who {
    match &cell.work {
        Work::Create(actor) => of_actor(actor, named),
        work => (
            "task",
            Some(cell.id.to_string()),
            work.name().into_owned(),
            Some(live::state(ledger, cell)),
        ),
    }
}

fn of_actor(actor: &ActorCell, named: &BTreeMap<ActorId, String>) -> Who {
    let name = named.get(&actor.id).unwrap_or(&actor.face.class);
    ("actor", Some(actor.id.to_string()), name.clone(), None)
}

impl Session {
    /// Everything about the one object whose id begins so.
    pub(super) async fn describe_object(&self, text: &str) -> Result<Response, Refusal> {
        let missing = || views::missing(&self.tenant, "object", text);
        if IdPrefix::parse(text).is_none() {
            return Err(missing());
        }
        let list = List::of(What::Objects).with("id", text);
        let listed = self.list_all(list.with("tenant", &self.tenant)).await;
        let Listed {
            rows: Rows::Objects(mut copies),
            mut silent,
            ..
        } = listed
        else {
            unreachable!("objects were asked for");
        };
        let ids: BTreeSet<ObjectId> = copies.iter().map(|row| row.id).collect();
        let Some(id) = ids.first().copied() else {
            return Err(with_silent(missing(), &silent));
        };
        if ids.len() > 1 {
            return Err(views::ambiguous(text, "object", ids));
        }
        copies.sort_by_key(|row| row.copy.as_deref() != Some("primary"));
        let (mut holders, mut more_holders) = holders(&self.inner, self.asker(), &id);
        let mut all = self.others(&self.asked(Question::Holders(id))).await;
        for (_, answer) in all.answers {
            if let Answer::Holders { named, more } = answer {
                holders.extend(named);
                more_holders += more;
            }
        }
        all.silent.retain(|it| !silent.contains(it));
        silent.extend(all.silent);
        Ok(Response::ObjectDetail(Box::new(ObjectDetail {
            copies,
            holders,
            more_holders,
            silent,
        })))
    }

    /// The same, where nothing else is called so, as `why` says.
    pub(super) async fn describe_object_or(
        &self,
        text: &str,
        mut why: Refusal,
    ) -> Result<Response, Refusal> {
        let described = self.describe_object(text).await;
        described.map_err(|of_object| match of_object.kind {
            RefusalKind::NotFound => {
                if IdPrefix::parse(text).is_some() {
                    why.message
                        .push_str("; no object has such an id either: see `wasmrun list objects`");
                }
                why
            }
            _ => of_object,
        })
    }
}
