//! Reading the tasks of a scenario.
//!
//! Owns the fields of a task and their defaults. Must not: read anything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{Fault, ScenarioError, clip, nearest};
use super::json::{Fields, Value};
use super::limits::{
    ALTERNATIVES_MAX, ARG_BYTES_MAX, ARGS_MAX, PRIORITY_MAX, RETRIES_MAX, TASKS_MAX, TIME_MS_MAX,
};
use super::names::{NodeNames, check_name};
use super::read::{Tenants, amount, amounts, simple_strategy, word};
use super::{Argument, EntryNo, NodeNo, Placement, TaskEntry, check};
use crate::cluster::{Selector, Selectors};
use crate::fairness::TenantName;
use crate::group::{GroupKind, GroupSpecError, MAX_BUNDLES};
use crate::resource::{Amount, Request, ResourceName, ResourceSet};
use crate::task::alternative;

const TASK: &[&str] = &[
    "name",
    "tenant",
    "count",
    "submit_at_ms",
    "duration_ms",
    "resources",
    "alternatives",
    "priority",
    "strategy",
    "labels",
    "args",
    "after",
    "retries",
];
const ARG: &[&str] = &["bytes", "on"];
const STRATEGY: &[&str] = &["node_affinity", "placement_group"];
const AFFINITY: &[&str] = &["node", "soft"];
const GROUP: &[&str] = &["kind", "bundles", "label_selectors"];

const SELECTORS_EXAMPLE: &str = "[\"zone=a\"], or as fallbacks [[\"zone=a\"], [\"zone=b\"]]";

/// Reads the list of tasks.
pub fn tasks(
    list: &Value<'_, '_>,
    strategy: &Placement,
    nodes: &NodeNames,
    tenants: &mut Tenants,
) -> Result<Vec<TaskEntry>, ScenarioError> {
    let values: Vec<_> = list
        .list(TASKS_MAX, "entries of tasks", "[{\"name\": \"a\", …}]")?
        .collect();
    let mut tasks = Vec::with_capacity(values.len());
    let mut by_name = BTreeMap::new();
    let mut total = 0;
    let mut waiting = Vec::new();
    for (number, value) in values.iter().enumerate() {
        let fields = value.fields(TASK)?;
        if fields.get("after").is_some() {
            waiting.push(number);
        }
        let task = Reader { fields, nodes }.read(strategy, tenants)?;
        total += u64::from(task.count);
        value.check_count(total, TASKS_MAX, "instances of tasks in all")?;
        let number = EntryNo(number as u32);
        if by_name.insert(task.name.clone(), number).is_some() {
            let name = task.name.to_string();
            let by = "a task listed before".into();
            return Err(value.fault_in("name", Fault::NameTaken { name, by }));
        }
        tasks.push(task);
    }
    // Only now are all names known that a task can wait for.
    for number in waiting {
        tasks[number].after = after(&values[number], &by_name)?;
    }
    check::no_cycle(&values, &tasks)?;
    Ok(tasks)
}

fn after(
    value: &Value<'_, '_>,
    by_name: &BTreeMap<Arc<str>, EntryNo>,
) -> Result<Vec<EntryNo>, ScenarioError> {
    let fields = value.fields(TASK)?;
    let list = fields.get("after").expect("only such tasks come here");
    let mut after = Vec::new();
    for value in list.list(TASKS_MAX, "tasks to wait for", "[\"other\"]")? {
        let name = value.string("the name of a task", "\"other\"")?;
        let Some(entry) = by_name.get(&*name) else {
            return Err(value.fault(unknown_task(&name, by_name)));
        };
        after.push((*entry, value));
    }
    let mut sorted: Vec<_> = after.iter().map(|(entry, _)| *entry).collect();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let twice = after.iter().rfind(|(entry, _)| *entry == pair[0]);
        let (_, value) = twice.expect("it comes from this list");
        let name = value.string("the name of a task", "\"other\"")?.into();
        return Err(value.fault(Fault::ListedTwice { name }));
    }
    Ok(after.into_iter().map(|(entry, _)| entry).collect())
}

fn unknown_task(name: &str, by_name: &BTreeMap<Arc<str>, EntryNo>) -> Fault {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once('-') {
        Some((task, index)) if by_name.contains_key(task) && is_number(index) => {
            Fault::InstanceOfTask {
                name: clip(name),
                task: task.into(),
            }
        }
        _ => Fault::UnknownName {
            what: "task",
            name: clip(name),
            nearest: nearest(name, by_name.keys().map(AsRef::as_ref)).map(Into::into),
            advice: "write the name of an entry of `tasks`",
        },
    }
}

/// Reads one task.
struct Reader<'a, 'p, 'n> {
    fields: Fields<'a, 'p>,
    nodes: &'n NodeNames,
}

impl Reader<'_, '_, '_> {
    /// All but `after`.
    fn read(
        &self,
        strategy: &Placement,
        tenants: &mut Tenants,
    ) -> Result<TaskEntry, ScenarioError> {
        let fields = &self.fields;
        let name_value = fields.required("name", "\"name\": \"a\"")?;
        let name = name_value.string("the name of a task", "\"a\"")?;
        check_name(&name, "task").map_err(|fault| name_value.fault(fault))?;
        let tenant = match fields.get("tenant") {
            Some(value) => word(&value, "the name of a tenant", "\"A\"")?,
            None => TenantName::default(),
        };
        let tenant = tenants.intern(tenant);
        let tenant = tenant.map_err(|fault| name_value.fault(fault))?;
        let count = match fields.get("count") {
            Some(value) => value.count(1, TASKS_MAX, " instances")? as u32,
            None => 1,
        };
        let submit_at_ms = match fields.get("submit_at_ms") {
            Some(value) => value.count(0, TIME_MS_MAX, " ms (100 years)")?,
            None => 0,
        };
        let duration = fields.required("duration_ms", "\"duration_ms\": 1000")?;
        let duration_ms = duration.count(0, TIME_MS_MAX, " ms (100 years)")?;
        let priority = match fields.get("priority") {
            Some(value) => value.integer(-PRIORITY_MAX, PRIORITY_MAX, "")? as i32,
            None => 0,
        };
        let retries = match fields.get("retries") {
            Some(value) => Some(value.count(0, RETRIES_MAX, " retries")? as u32),
            None => None,
        };
        let requests = self.requests()?;
        let placement = match fields.get("strategy") {
            Some(value) => self.placement(&value, &requests)?,
            None => strategy.clone(),
        };
        let selectors = self.selectors()?;
        if let (Placement::PlacementGroup { .. }, Some(value), false) =
            (&placement, fields.get("labels"), selectors.is_any())
        {
            let why = "labels have no meaning for what runs in a placement group, whose bundles decide where that is; \
                       give the group `label_selectors`";
            return Err(value.fault(Fault::refused(why)));
        }
        Ok(TaskEntry {
            name: (*name).into(),
            tenant,
            count,
            submit_at_ms,
            duration_ms,
            requests,
            priority,
            placement,
            selectors,
            args: self.args()?,
            after: Vec::new(),
            retries,
        })
    }

    fn requests(&self) -> Result<Vec<Request>, ScenarioError> {
        let example = "\"resources\": {\"CPU\": 1}";
        let mut requests = vec![request(&self.fields.required("resources", example)?)?];
        if let Some(value) = self.fields.get("alternatives") {
            for value in value.list(ALTERNATIVES_MAX, "alternatives", "[{\"CPU\": 16}]")? {
                let declared = request(&value)?;
                let asked = alternative(requests[0].amounts(), declared.amounts());
                requests.push(Request::new(asked).expect("each amount was checked"));
            }
        }
        Ok(requests)
    }

    fn placement(
        &self,
        value: &Value<'_, '_>,
        requests: &[Request],
    ) -> Result<Placement, ScenarioError> {
        if !value.is_object() {
            return simple_strategy(value);
        }
        let fields = value.fields(STRATEGY)?;
        match (fields.get("node_affinity"), fields.get("placement_group")) {
            (Some(value), None) => self.affinity(&value),
            (None, Some(value)) => group(&value, requests),
            (affinity, group) => Err(value.fault(Fault::NotOneOf {
                found: usize::from(affinity.is_some()) + usize::from(group.is_some()),
                known: STRATEGY,
            })),
        }
    }

    fn affinity(&self, value: &Value<'_, '_>) -> Result<Placement, ScenarioError> {
        let fields = value.fields(AFFINITY)?;
        let node = self.node(&fields.required("node", "\"node\": \"n1\"")?)?;
        let soft = match fields.get("soft") {
            Some(value) => value.boolean()?,
            None => false,
        };
        Ok(Placement::NodeAffinity { node, soft })
    }

    fn selectors(&self) -> Result<Selectors, ScenarioError> {
        let Some(value) = self.fields.get("labels") else {
            return Ok(Selectors::default());
        };
        let items: Vec<_> = value
            .list(Selector::MAX as u64, "selectors", SELECTORS_EXAMPLE)?
            .collect();
        let selectors = match items.first() {
            None => Vec::new(),
            Some(first) if first.is_list() => items
                .iter()
                .map(fallback)
                .collect::<Result<Vec<Selector>, _>>()?,
            Some(_) => vec![selector(&value, &items)?],
        };
        Selectors::new(selectors).map_err(|error| value.fault(Fault::refused(error)))
    }

    fn args(&self) -> Result<Vec<Argument>, ScenarioError> {
        let Some(value) = self.fields.get("args") else {
            return Ok(Vec::new());
        };
        let example = "[{\"bytes\": \"100MiB\", \"on\": \"n1\"}]";
        value
            .list(ARGS_MAX, "arguments", example)?
            .map(|value| {
                let fields = value.fields(ARG)?;
                let bytes = argument_bytes(&fields.required("bytes", "\"bytes\": \"100MiB\"")?)?;
                let on = self.node(&fields.required("on", "\"on\": \"n1\"")?)?;
                Ok(Argument { bytes, on })
            })
            .collect()
    }

    fn node(&self, value: &Value<'_, '_>) -> Result<NodeNo, ScenarioError> {
        let name = value.string("the name of a node", "\"n1\"")?;
        self.nodes.find(&name).map_err(|fault| value.fault(fault))
    }
}

fn request(value: &Value<'_, '_>) -> Result<Request, ScenarioError> {
    let set = amounts(value, |name, amount| {
        Request::new(ResourceSet::new().with(name.clone(), amount))?;
        Ok(())
    })?;
    Ok(Request::new(set).expect("each amount was checked"))
}

fn group(value: &Value<'_, '_>, requests: &[Request]) -> Result<Placement, ScenarioError> {
    let fields = value.fields(GROUP)?;
    let kind = fields.required("kind", "\"kind\": \"pack\"")?;
    let kind: GroupKind = word(&kind, "the kind of a placement group", "\"pack\"")?;
    let bundles_value = fields.required("bundles", "\"bundles\": [{\"CPU\": 1}]")?;
    let mut bundles = Vec::new();
    for value in bundles_value.list(
        MAX_BUNDLES as u64,
        "bundles",
        "[{\"CPU\": 1}, {\"CPU\": 1}]",
    )? {
        let bundle = request(&value)?;
        if bundle.amounts().is_empty() {
            let what = "a bundle";
            return Err(value.fault(Fault::Empty { what }));
        }
        bundles.push(bundle);
    }
    if bundles.is_empty() {
        let what = "a list of bundles";
        return Err(bundles_value.fault(Fault::Empty { what }));
    }
    let fits = |request: &Request, bundle: &Request| request.amounts().is_subset(bundle.amounts());
    if !requests
        .iter()
        .any(|request| bundles.iter().any(|bundle| fits(request, bundle)))
    {
        return Err(bundles_value.fault(Fault::NoBundleFits {
            bundles: bundles.len(),
        }));
    }
    let mut selectors = Vec::new();
    if let Some(value) = fields.get("label_selectors") {
        let example = "[\"zone=a\", \"zone=b ; *\"]";
        for value in value.list(MAX_BUNDLES as u64, "selectors", example)? {
            selectors.push(word(&value, "a label selector", "\"zone=a ; *\"")?);
        }
        if selectors.len() != bundles.len() {
            return Err(value.fault(Fault::refused(GroupSpecError::Selectors {
                count: selectors.len(),
                bundles: bundles.len(),
            })));
        }
    }
    Ok(Placement::PlacementGroup {
        kind,
        bundles,
        selectors,
    })
}

/// A number of bytes, or a size. Parts of a byte are none.
fn argument_bytes(value: &Value<'_, '_>) -> Result<u64, ScenarioError> {
    let bytes: Amount = amount(value, &ResourceName::MEMORY)?;
    match bytes.whole_units() {
        whole if bytes.is_whole() && whole <= ARG_BYTES_MAX => Ok(whole),
        _ => Err(value.fault(Fault::Number {
            number: clip(&value.amount_text()?),
            min: 0,
            max: ARG_BYTES_MAX as i64,
            unit: " bytes, or a size such as 100MiB",
        })),
    }
}

/// One of several selectors.
fn fallback(value: &Value<'_, '_>) -> Result<Selector, ScenarioError> {
    let terms: Vec<_> = value
        .list(Selector::MAX as u64, "terms", SELECTORS_EXAMPLE)?
        .collect();
    match terms.is_empty() {
        true => Err(value.fault(Fault::Empty { what: "a selector" })),
        false => selector(value, &terms),
    }
}

/// One selector of several texts, all of which must hold.
fn selector(list: &Value<'_, '_>, terms: &[Value<'_, '_>]) -> Result<Selector, ScenarioError> {
    let mut selector = Selector::any();
    for term in terms {
        let more: Selector = word(term, "the text of a selector", "\"zone=a\"")?;
        let both = selector.and(more);
        selector = both.map_err(|error| list.fault(Fault::refused(error)))?;
    }
    Ok(selector)
}
