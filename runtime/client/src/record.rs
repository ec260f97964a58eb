//! Scenarios for `wasmrun simulate` from what has run: the attempts of a history, as lists and the files of `--history-dir` have
//! them.
//!
//! Owns which attempts become which tasks of a scenario, and its text. Must not: ask a node, read a file, or simulate.
//!
//! A task runs for as long as it had its CPU: the times of all its attempts, without those in which it was blocked or paused. It
//! arrives when it was submitted, or when the last task that made one of its arguments had ended.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use wasmrun_model::fairness::{TenantName, Weight};

use crate::wire::{Amounts, DueRow, MemberRow, Scheduling};

/// The longest name of a function in a scenario; the number of its entry comes behind it.
const MOST_NAME: usize = 50;
/// How much of the id of an object is that of the task that made it.
const TASK_DIGITS: usize = 32;

/// An attempt that has ended, as the state API has it.
#[derive(Debug, Deserialize)]
struct Attempt {
    id: String,
    name: String,
    tenant: TenantName,
    job: String,
    actor: Option<String>,
    array_index: Option<u64>,
    attempt: u32,
    submitted_us: u64,
    ended_us: Option<u64>,
    duration_us: Option<u64>,
    phases: Option<Blocked>,
    held: Amounts,
    inputs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Blocked {
    blocked_us: u64,
    #[serde(default)]
    paused_us: u64,
}

impl Attempt {
    /// Whether it is a call of an actor, which runs in what the actor holds.
    fn is_call(&self) -> bool {
        self.actor.as_ref().is_some_and(|actor| *actor != self.id)
    }

    /// For how long it had its CPU, if it ran.
    fn ran_us(&self) -> Option<u64> {
        let phases = self.phases.as_ref();
        let without = phases.map_or(0, |it| it.blocked_us.saturating_add(it.paused_us));
        Some(self.duration_us?.saturating_sub(without))
    }
}

/// Which tasks are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Those submitted since then, in microseconds since 1970.
    pub since_us: u64,
    /// Those of this tenant and of all that are part of it.
    pub tenant: Option<TenantName>,
    /// Those of the job whose id begins so.
    pub job: Option<String>,
    /// Whether functions are called `f1`, `f2`, … instead of by their names.
    pub is_anonymous: bool,
}

impl Wanted {
    fn has(&self, attempt: &Attempt) -> bool {
        let above = |name: TenantName| std::iter::successors(Some(name), TenantName::parent);
        let is_part = |tenant: &TenantName| above(attempt.tenant.clone()).any(|it| it == *tenant);
        attempt.submitted_us >= self.since_us
            && self.tenant.as_ref().is_none_or(is_part)
            && self
                .job
                .as_ref()
                .is_none_or(|job| attempt.job.starts_with(job))
    }
}

/// The cluster that a scenario is for.
#[derive(Debug)]
pub struct Cluster<'a> {
    /// Its nodes. Those that are gone are left out.
    pub nodes: &'a [MemberRow],
    /// What its tenants are due and may have.
    pub tenants: &'a [DueRow],
    /// How it schedules.
    pub scheduling: &'a Scheduling,
}

/// A scenario, and what is to be known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The scenario.
    pub text: String,
    /// How many tasks it has,
    pub tasks: usize,
    /// of how many tenants.
    pub tenants: usize,
    /// From the first arrival to the last, in microseconds.
    pub span_us: u64,
    /// Calls of actors that were left out, since they run in what their actors hold.
    pub calls: usize,
    /// Tasks that were left out, since none of their attempts is known to have run.
    pub never_ran: usize,
}

/// Attempts from which a scenario is made.
#[derive(Debug, Default)]
pub struct Recorder {
    attempts: BTreeMap<(String, u32), Attempt>,
    missed: u64,
    unreadable: u64,
}

/// A task with all its attempts.
struct Task<'a> {
    last: &'a Attempt,
    held: &'a Amounts,
    ran_us: Option<u64>,
    arrival_us: u64,
}

/// What tasks have in common that differ in when they come and how long they run.
type Kind<'a> = (&'a TenantName, &'a str, &'a Amounts);

impl Recorder {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an attempt of a list of attempts or of a file of a history. The same attempt counts once.
    pub fn add(&mut self, attempt: Json) {
        if let Some(missed) = attempt["missed"].as_u64() {
            self.missed = self.missed.saturating_add(missed);
            return;
        }
        match serde_json::from_value::<Attempt>(attempt) {
            Ok(attempt) => {
                let key = (attempt.id.clone(), attempt.attempt);
                self.attempts.insert(key, attempt);
            }
            Err(_) => self.unreadable += 1,
        }
    }

    /// Adds a line of a file of a history.
    pub fn add_line(&mut self, line: &str) {
        // What is no JSON is no attempt either.
        self.add(serde_json::from_str(line).unwrap_or_default());
    }

    /// How many attempts are in no file, as lines of these say.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// How many lines were no attempts.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The scenario.
    pub fn scenario(&self, cluster: &Cluster<'_>, wanted: &Wanted) -> Recording {
        let mut tasks = self.tasks();
        arrive(&mut tasks);
        tasks.retain(|task| wanted.has(task.last));
        let all = tasks.len();
        tasks.retain(|task| !task.last.is_call());
        let calls = all - tasks.len();
        tasks.retain(|task| task.ran_us.is_some());
        let never_ran = all - calls - tasks.len();
        tasks.sort_by_key(|task| {
            let last = task.last;
            (task.arrival_us, last.array_index, &last.id)
        });
        let first_us = tasks.first().map_or(0, |task| task.arrival_us);
        let last_us = tasks.last().map_or(0, |task| task.arrival_us);
        let tenants: BTreeSet<&TenantName> = tasks.iter().map(|task| &task.last.tenant).collect();
        let text = format!(
            "{{\n\"policy\": {},\n{},\n{},\n{}\n}}\n",
            json!(cluster.scheduling.settings.policy.to_string()),
            list("nodes", &nodes(cluster.nodes)),
            list("tenants", &tenants_due(cluster)),
            list("tasks", &entries(&tasks, first_us, wanted.is_anonymous)),
        );
        Recording {
            text,
            tasks: tasks.len(),
            tenants: tenants.len(),
            span_us: last_us - first_us,
            calls,
            never_ran,
        }
    }

    /// The attempts of each task together.
    fn tasks(&self) -> Vec<Task<'_>> {
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for attempt in self.attempts.values() {
            let ran_us = attempt.ran_us();
            match tasks.last_mut() {
                Some(task) if task.last.id == attempt.id => {
                    task.last = attempt;
                    if let Some(ran_us) = ran_us {
                        task.held = &attempt.held;
                        task.ran_us = Some(task.ran_us.unwrap_or(0).saturating_add(ran_us));
                    }
                }
                _ => tasks.push(Task {
                    last: attempt,
                    held: &attempt.held,
                    ran_us,
                    arrival_us: attempt.submitted_us,
                }),
            }
        }
        tasks
    }
}

/// Lets each task arrive once its arguments are made.
fn arrive(tasks: &mut [Task<'_>]) {
    let ends = tasks.iter().filter_map(|task| {
        let last = task.last;
        Some((last.id.as_str(), last.ended_us?))
    });
    let ends: BTreeMap<&str, u64> = ends.collect();
    for task in tasks {
        let makers = task
            .last
            .inputs
            .iter()
            .filter_map(|it| it.get(..TASK_DIGITS));
        let made = makers.filter_map(|maker| ends.get(maker).copied());
        task.arrival_us = made.fold(task.arrival_us, u64::max);
    }
}

/// The nodes that are there.
fn nodes(rows: &[MemberRow]) -> Vec<Json> {
    let is_there = |row: &&MemberRow| !matches!(&*row.state, "dead" | "removed" | "stopping");
    let node = |row: &MemberRow| {
        let resources = row.total.iter().map(|(name, amount)| {
            // Whether units of a resource that operators have made up have ids is in no list.
            let amount = match name.is_user() {
                true => format!("sum:{amount}"),
                false => amount.to_string(),
            };
            (name.to_string(), Json::from(amount))
        });
        json!({ "name": row.name, "resources": Json::Object(resources.collect()) })
    };
    rows.iter().filter(is_there).map(node).collect()
}

/// The tenants for which something is set.
fn tenants_due(cluster: &Cluster<'_>) -> Vec<Json> {
    let weights = cluster.scheduling.resource_weights.iter();
    let mut all: BTreeMap<&TenantName, Json> = weights
        .filter(|(_, weights)| !weights.is_empty())
        .map(|(name, weights)| (name, json!({ "name": name, "resource_weights": weights })))
        .collect();
    for row in cluster.tenants {
        let mut set = Vec::new();
        if row.weight != Weight::default() {
            set.push(("weight", json!(row.weight.to_string())));
        }
        if !row.min.is_empty() {
            set.push(("min_share", json!(row.min)));
        }
        let quota = &row.quota;
        if !quota.max.is_empty() {
            set.push(("max", json!(quota.max)));
        }
        set.extend(quota.max_tasks.map(|most| ("max_tasks", json!(most))));
        if !set.is_empty() {
            let tenant = all
                .entry(&row.name)
                .or_insert_with(|| json!({ "name": row.name }));
            for (field, value) in set {
                tenant[field] = value;
            }
        }
    }
    all.into_values().collect()
}

/// The entries of tasks, in the order of arrival: equal tasks that arrive in the same millisecond are one.
fn entries(tasks: &[Task<'_>], first_us: u64, is_anonymous: bool) -> Vec<Json> {
    let mut rest_us: BTreeMap<Kind<'_>, u64> = BTreeMap::new();
    let mut counts: BTreeMap<(u64, Kind<'_>, u64), u64> = BTreeMap::new();
    let mut labels: BTreeMap<&str, String> = BTreeMap::new();
    for task in tasks {
        let name = task.last.name.as_str();
        let label = labels.len() + 1;
        labels.entry(name).or_insert_with(|| match is_anonymous {
            true => format!("f{label}"),
            false => label_of(name),
        });
        let kind = (&task.last.tenant, name, task.held);
        // What is below a millisecond is carried over, so that of many short tasks the sum is right.
        let rest_us = rest_us.entry(kind).or_default();
        *rest_us = rest_us.saturating_add(task.ran_us.unwrap_or(0));
        let duration_ms = *rest_us / 1000;
        *rest_us %= 1000;
        let arrival_ms = (task.arrival_us - first_us) / 1000;
        *counts.entry((arrival_ms, kind, duration_ms)).or_default() += 1;
    }
    let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
    let counts = counts.into_iter();
    let entries = counts.map(|((arrival_ms, (tenant, name, held), duration_ms), count)| {
        let label = labels[name].as_str();
        let number = numbers.entry(label).or_default();
        *number += 1;
        json!({
            "name": format!("{label}.{number}"),
            "tenant": tenant,
            "count": count,
            "submit_at_ms": arrival_ms,
            "duration_ms": duration_ms,
            "resources": held,
        })
    });
    entries.collect()
}

/// The name of a function as a scenario may have it, without that of its interface.
fn label_of(name: &str) -> String {
    let own = name.rsplit('#').next().unwrap_or(name);
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let label: String = own
        .chars()
        .map(|c| if is_inner(c) { c } else { '-' })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(MOST_NAME)
        .collect();
    match label.is_empty() {
        true => "task".to_owned(),
        false => label,
    }
}

/// A field with a list, a line for each item.
fn list(field: &str, items: &[Json]) -> String {
    let lines: Vec<String> = items.iter().map(|item| format!("\n  {item}")).collect();
    format!("\"{field}\": [{}\n]", lines.join(","))
}

#[cfg(test)]
mod tests;
