//! Reading a scenario: the whole, its nodes, tenants and events.
//!
//! Owns the fields of these and their defaults. Must not: read tasks (`task`), or check what
//! concerns several tasks (`check`).

use std::collections::BTreeMap;

use super::error::{Fault, ScenarioError, nearest};
use super::json::{Fields, Value};
use super::limits::{EVENTS_MAX, FILE_BYTES_MAX, IDS_MAX, NODES_MAX, TIME_MS_MAX};
use super::names::{NodeNames, check_name};
use super::{
    Capacity, Change, Event, NodeEntry, Placement, Scenario, Tenant, TenantNo, check, task,
};
use crate::cluster::{LabelKey, Labels};
use crate::fairness::{MAX_TENANTS, Policy, TenantConfig, TenantName, Weight};
use crate::resource::{
    Amount, CapacityError, MAX_RESOURCES, ParsePoolError, Pool, PoolKind, ResourceName, ResourceSet,
};

const SCENARIO: &[&str] = &[
    "seed", "policy", "strategy", "nodes", "tenants", "tasks", "events",
];
const NODE: &[&str] = &["name", "count", "resources", "labels"];
const TENANT: &[&str] = &[
    "name",
    "weight",
    "min_share",
    "resource_weights",
    "max",
    "max_tasks",
];
const EVENT: &[&str] = &["at_ms", "add_node", "remove_node", "set_resource"];
const CHANGES: &[&str] = &["add_node", "remove_node", "set_resource"];
const SET_RESOURCE: &[&str] = &["node", "name", "capacity"];

/// How resources look in an error about something else.
const RESOURCES_EXAMPLE: &str = "{\"CPU\": 4, \"memory\": \"8GiB\"}";

/// Reads a scenario from its JSON.
pub fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ScenarioError::TooLarge { bytes: text.len() });
    }
    // Some editors put a byte order mark before the text.
    let root = Value::root(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let fields = root.fields(SCENARIO)?;
    let seed = match fields.get("seed") {
        Some(value) => value.count(0, i64::MAX as u64, "")?,
        None => 0,
    };
    let policy = match fields.get("policy") {
        Some(value) => word::<Policy>(&value, "the name of a policy", "\"drf\"")?,
        None => Policy::default(),
    };
    let strategy = match fields.get("strategy") {
        Some(value) => simple_strategy(&value)?,
        None => Placement::Default,
    };

    let mut reader = Reader::default();
    let nodes = fields.required(
        "nodes",
        "\"nodes\": [{\"name\": \"n1\", \"resources\": {}}]",
    )?;
    let node_list = nodes.list(NODES_MAX, "entries of nodes", "[{\"name\": \"n1\", …}]")?;
    let nodes = node_list
        .map(|value| reader.node(&value))
        .collect::<Result<_, _>>()?;
    let events = match fields.get("events") {
        Some(value) => reader.events(&value)?,
        None => Vec::new(),
    };
    let mut tenants = Tenants::default();
    if let Some(value) = fields.get("tenants") {
        for value in value.list(
            MAX_TENANTS as u64,
            "tenants",
            "[{\"name\": \"A\", \"weight\": 2}]",
        )? {
            tenants.read(&value)?;
        }
    }
    let list = fields.required("tasks", "\"tasks\": [{\"name\": \"a\", …}]")?;
    let tasks = task::tasks(&list, &strategy, &reader.names, &mut tenants)?;
    let latest_event_ms = events.last().map_or(0, |event: &Event| event.at_ms);
    check::horizon(&list, &tasks, latest_event_ms)?;
    Ok(Scenario {
        seed,
        policy,
        node_names: reader.names.into_names(),
        nodes,
        tenants: tenants.all,
        tasks,
        events,
    })
}

/// Reads nodes and what happens to them.
#[derive(Default)]
struct Reader {
    names: NodeNames,
    ids: u64,
}

impl Reader {
    fn node(&mut self, value: &Value<'_, '_>) -> Result<NodeEntry, ScenarioError> {
        let fields = value.fields(NODE)?;
        let name_value = fields.required("name", "\"name\": \"n1\"")?;
        let name = name_value.string("the name of a node", "\"n1\"")?;
        check_name(&name, "node").map_err(|fault| name_value.fault(fault))?;
        let count = match fields.get("count") {
            Some(value) => value.count(1, NODES_MAX, " nodes")? as u32,
            None => 1,
        };
        let resources_example = "\"resources\": {\"CPU\": 4, \"memory\": \"8GiB\"}";
        let resources_value = fields.required("resources", resources_example)?;
        let resources = self.capacities(&resources_value, count)?;
        let labels = match fields.get("labels") {
            Some(value) => labels(&value)?,
            None => Labels::default(),
        };
        let joined = self.names.join(&name, count, &resources);
        Ok(NodeEntry {
            instances: joined.map_err(|fault| name_value.fault(fault))?,
            resources,
            labels,
        })
    }

    fn capacities(
        &mut self,
        value: &Value<'_, '_>,
        count: u32,
    ) -> Result<Vec<Capacity>, ScenarioError> {
        let mut capacities = Vec::new();
        for (key, text) in value.map(MAX_RESOURCES as u64, "resources", RESOURCES_EXAMPLE)? {
            let value = value.entry(&key, text);
            let name: ResourceName = key
                .parse()
                .map_err(|error| value.fault(Fault::from(error)))?;
            let pool = pool(&value, &name)?;
            let capacity = Capacity {
                name,
                kind: pool.kind(),
                amount: pool.capacity(),
            };
            self.count_ids(&value, &capacity, count)?;
            capacities.push(capacity);
        }
        capacities.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(capacities)
    }

    fn count_ids(
        &mut self,
        value: &Value<'_, '_>,
        capacity: &Capacity,
        count: u32,
    ) -> Result<(), ScenarioError> {
        if capacity.kind == PoolKind::Indexed {
            self.ids += capacity.amount.whole_units() * u64::from(count);
        }
        value.check_count(self.ids, IDS_MAX, "units with ids on all nodes together")
    }

    /// Reads the events in the order of time, so that names are judged by who is there then.
    fn events(&mut self, value: &Value<'_, '_>) -> Result<Vec<Event>, ScenarioError> {
        let list = value.list(
            EVENTS_MAX,
            "events",
            "[{\"at_ms\": 500, \"remove_node\": \"n1\"}]",
        )?;
        let mut values = Vec::with_capacity(list.len());
        for value in list {
            let at = |fields: Fields<'_, '_>| {
                let at = fields.required("at_ms", "\"at_ms\": 500")?;
                at.count(0, TIME_MS_MAX, " ms (100 years)")
            };
            values.push((at(value.fields(EVENT)?)?, value));
        }
        values.sort_by_key(|(at_ms, _)| *at_ms);
        let read = |(at_ms, value): &(u64, Value<'_, '_>)| {
            let change = self.change(value, *at_ms)?;
            let at_ms = *at_ms;
            Ok(Event { at_ms, change })
        };
        values.iter().map(read).collect()
    }

    fn change(&mut self, value: &Value<'_, '_>, at_ms: u64) -> Result<Change, ScenarioError> {
        let fields = value.fields(EVENT)?;
        let given: Vec<_> = CHANGES
            .iter()
            .filter_map(|field| fields.get(field))
            .collect();
        let [change] = given[..] else {
            return Err(value.fault(Fault::NotOneOf {
                found: given.len(),
                known: CHANGES,
            }));
        };
        if fields.get("add_node").is_some() {
            return self.node(&change).map(Change::AddNode);
        }
        if fields.get("remove_node").is_some() {
            let node = self.node_there(&change, at_ms)?;
            self.names.leave(node);
            return Ok(Change::RemoveNode(node));
        }
        let fields = change.fields(SET_RESOURCE)?;
        let node = self.node_there(&fields.required("node", "\"node\": \"n1\"")?, at_ms)?;
        let name_value = fields.required("name", "\"name\": \"GPU\"")?;
        let name = name_value.string("the name of a resource", "\"GPU\"")?;
        let name: ResourceName = name
            .parse()
            .map_err(|error| name_value.fault(Fault::from(error)))?;
        let declared = self.names.declare_resource(&name);
        declared.map_err(|fault| name_value.fault(fault))?;
        let value = fields.required("capacity", "\"capacity\": 1")?;
        let amount = amount(&value, &name)?;
        let kind = self.names.kind(node, &name);
        if kind == PoolKind::Indexed {
            Pool::for_name(&name, amount).map_err(|error| value.fault(Fault::from(error)))?;
        }
        let capacity = Capacity { name, kind, amount };
        self.count_ids(&value, &capacity, 1)?;
        Ok(Change::SetResource {
            node,
            name: capacity.name,
            capacity: amount,
        })
    }

    fn node_there(
        &self,
        value: &Value<'_, '_>,
        at_ms: u64,
    ) -> Result<super::NodeNo, ScenarioError> {
        let name = value.string("the name of a node", "\"n1\"")?;
        let found = self.names.find_there(&name, at_ms);
        found.map_err(|fault| value.fault(fault))
    }
}

/// What a node has of a resource: a number, of the default kind, or text as on the command line.
fn pool(value: &Value<'_, '_>, name: &ResourceName) -> Result<Pool, ScenarioError> {
    let text = value.amount_text()?;
    let parsed = match value.is_string() {
        true => Pool::parse(name, &text),
        false => Amount::parse_for(name, &text)
            .map_err(ParsePoolError::from)
            .and_then(|amount| Ok(Pool::for_name(name, amount)?)),
    };
    parsed.map_err(|error| {
        value.fault(match error {
            ParsePoolError::Capacity(
                CapacityError::NotWhole { capacity, .. }
                | CapacityError::TooManyIds { capacity, .. },
            ) if name.is_user() => Fault::NeedsSum {
                name: name.clone(),
                capacity,
            },
            other => other.into(),
        })
    })
}

fn labels(value: &Value<'_, '_>) -> Result<Labels, ScenarioError> {
    let mut labels = Labels::default();
    for (key, text) in value.map(Labels::MAX as u64, "labels", "{\"zone\": \"a\"}")? {
        let value = value.entry(&key, text);
        let key: Result<LabelKey, _> = key.parse();
        let key = key.map_err(|error| value.fault(Fault::refused(error)))?;
        let label = word(&value, "the value of a label", "\"a\"")?;
        let set = labels.set(key, label);
        set.map_err(|error| value.fault(Fault::refused(error)))?;
    }
    Ok(labels)
}

/// The tenants so far.
#[derive(Default)]
pub struct Tenants {
    all: Vec<Tenant>,
    by_name: BTreeMap<TenantName, TenantNo>,
}

impl Tenants {
    /// The number of the tenant with this name, who gets the defaults if it is new.
    pub fn intern(&mut self, name: TenantName) -> Result<TenantNo, Fault> {
        if let Some(tenant) = self.by_name.get(&name) {
            return Ok(*tenant);
        }
        if self.all.len() == MAX_TENANTS {
            return Err(Fault::TooMany {
                found: MAX_TENANTS as u64 + 1,
                what: "tenants, with those that only tasks name,",
                limit: MAX_TENANTS as u64,
            });
        }
        Ok(self.add(name, TenantConfig::default()))
    }

    fn add(&mut self, name: TenantName, config: TenantConfig) -> TenantNo {
        let number = TenantNo(self.all.len() as u32);
        self.by_name.insert(name.clone(), number);
        self.all.push(Tenant { name, config });
        number
    }

    fn read(&mut self, value: &Value<'_, '_>) -> Result<(), ScenarioError> {
        let fields = value.fields(TENANT)?;
        let name_value = fields.required("name", "\"name\": \"A\"")?;
        let name: TenantName = word(&name_value, "the name of a tenant", "\"A\"")?;
        if self.by_name.contains_key(&name) {
            return Err(name_value.fault(Fault::NameTaken {
                name: name.to_string(),
                by: "a tenant listed before".into(),
            }));
        }
        let mut config = TenantConfig::default();
        if let Some(value) = fields.get("weight") {
            config.weight = weight(&value)?;
        }
        if let Some(value) = fields.get("min_share") {
            config.min_share = amounts(&value, |_, _| Ok(()))?;
        }
        if let Some(value) = fields.get("resource_weights") {
            for (key, text) in value.map(MAX_RESOURCES as u64, "resources", "{\"CPU\": 2}")? {
                let value = value.entry(&key, text);
                let name = key
                    .parse()
                    .map_err(|error| value.fault(Fault::ResourceName(error)))?;
                config.resource_weights.insert(name, weight(&value)?);
            }
        }
        if let Some(value) = fields.get("max") {
            for (key, text) in value.map(MAX_RESOURCES as u64, "resources", RESOURCES_EXAMPLE)? {
                let value = value.entry(&key, text);
                let name: ResourceName = key
                    .parse()
                    .map_err(|error| value.fault(Fault::ResourceName(error)))?;
                // None of something is a bound, too.
                let most = amount(&value, &name)?;
                config.quota.max.insert(name, most);
            }
        }
        if let Some(value) = fields.get("max_tasks") {
            let most = value.count(0, u64::from(u32::MAX), " sandboxes")?;
            config.quota.max_tasks = Some(most as u32);
        }
        self.add(name, config);
        Ok(())
    }
}

fn weight(value: &Value<'_, '_>) -> Result<Weight, ScenarioError> {
    let text = value.amount_text()?;
    text.parse()
        .map_err(|error| value.fault(Fault::refused(error)))
}

/// An amount of a resource: a number as it is written, or text.
pub fn amount(value: &Value<'_, '_>, name: &ResourceName) -> Result<Amount, ScenarioError> {
    let text = value.amount_text()?;
    Amount::parse_for(name, &text).map_err(|error| value.fault(error))
}

/// An amount for each of some resources, all of which pass a check.
pub fn amounts(
    value: &Value<'_, '_>,
    check: impl Fn(&ResourceName, Amount) -> Result<(), Fault>,
) -> Result<ResourceSet, ScenarioError> {
    let mut set = ResourceSet::new();
    for (key, text) in value.map(MAX_RESOURCES as u64, "resources", RESOURCES_EXAMPLE)? {
        let value = value.entry(&key, text);
        let name: ResourceName = key
            .parse()
            .map_err(|error| value.fault(Fault::from(error)))?;
        let amount = amount(&value, &name)?;
        check(&name, amount).map_err(|fault| value.fault(fault))?;
        set.set(name, amount);
    }
    Ok(set)
}

/// A string that another part of the model reads.
pub fn word<T: std::str::FromStr<Err: std::fmt::Display>>(
    value: &Value<'_, '_>,
    expected: &'static str,
    example: &'static str,
) -> Result<T, ScenarioError> {
    let text = value.string(expected, example)?;
    text.parse()
        .map_err(|error| value.fault(Fault::refused(error)))
}

/// A strategy that is a word.
pub fn simple_strategy(value: &Value<'_, '_>) -> Result<Placement, ScenarioError> {
    let word = value.string("the name of a strategy", "\"default\"")?;
    Ok(match &*word {
        "default" => Placement::Default,
        "random" => Placement::Random,
        "spread" => Placement::Spread,
        other => return Err(value.fault(unknown_strategy(other))),
    })
}

fn unknown_strategy(word: &str) -> Fault {
    Fault::Word {
        word: super::error::clip(word),
        nearest: nearest(word, ["default", "random", "spread"].into_iter()),
        advice: "write \"default\", \"random\" or \"spread\", or in a task an object such as \
                 {\"node_affinity\": {\"node\": \"n1\"}} or {\"placement_group\": {…}}",
    }
}
