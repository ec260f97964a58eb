//! Properties of the run: random scenarios, and what never happens in any.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::run_tests::{parsed, trace};
use super::summary::Waits;

/// What a task of a random scenario is made of.
type Drawn = (
    (u32, u32, u64, u64, Json),
    (Option<Json>, i32, bool, Option<Json>),
    (Option<prop::sample::Index>, Option<u32>),
);

fn drawn() -> impl Strategy<Value = Drawn> {
    let amounts = || {
        let cpu = prop_oneof![
            Just(json!(0.5)),
            Just(json!(1)),
            Just(json!(2)),
            Just(json!(3))
        ];
        let gpu = prop_oneof![3 => Just(json!(0)), 1 => Just(json!("0.25")), 1 => Just(json!(1))];
        (cpu, gpu, 0..6u32)
            .prop_map(|(cpu, gpu, memory)| json!({"CPU": cpu, "GPU": gpu, "memory": memory}))
    };
    let affinity = (0..3u32, any::<bool>());
    let kinds = prop::sample::select(vec!["pack", "spread", "strict_pack", "strict_spread"]);
    // The first bundle can hold any task.
    let bundles = prop::collection::vec(amounts(), 0..3).prop_map(|mut bundles| {
        bundles.retain(|it| it["CPU"] != 0 || it["GPU"] != 0 || it["memory"] != 0);
        bundles.insert(0, json!({"CPU": 3, "GPU": 1, "memory": 5}));
        bundles
    });
    let groups = (kinds, bundles).prop_map(|(kind, bundles)| {
        Some(json!({"placement_group": {"kind": kind, "bundles": bundles}}))
    });
    let strategies = prop_oneof![
        4 => Just(None),
        1 => Just(Some(json!("random"))),
        1 => Just(Some(json!("spread"))),
        1 => affinity.prop_map(|(node, soft)| {
            Some(json!({"node_affinity": {"node": format!("n{node}"), "soft": soft}}))
        }),
        1 => groups,
    ];
    let other = prop::option::weighted(0.2, amounts());
    let after = prop::option::weighted(0.3, any::<prop::sample::Index>());
    (
        (0..3u32, 1..5u32, 0..40u64, 0..25u64, amounts()),
        (strategies, -1..2i32, prop::bool::weighted(0.2), other),
        (after, prop::option::weighted(0.3, 0..3u32)),
    )
}

fn task((number, drawn): (usize, Drawn)) -> Json {
    let ((tenant, count, submit, duration, amounts), rest, (after, retries)) = drawn;
    let (strategy, priority, has_label, other) = rest;
    let mut task = json!({
        "name": format!("t{number}"), "tenant": format!("T{tenant}"), "count": count,
        "submit_at_ms": submit, "duration_ms": duration, "resources": amounts,
        "priority": priority,
    });
    let after = after.filter(|_| number > 0);
    let mut strategy = strategy;
    let mut group = strategy
        .as_mut()
        .and_then(|it| it.get_mut("placement_group"));
    if let (Some(group), true) = (&mut group, has_label) {
        // What runs in a group has no labels; its bundles may.
        let bundles = group["bundles"].as_array().expect("bundles").len();
        group["label_selectors"] = json!(vec!["zone=a ; *"; bundles]);
    }
    let has_label = has_label && group.is_none();
    let optional = [
        ("strategy", strategy),
        ("labels", has_label.then(|| json!(["zone=a"]))),
        ("alternatives", other.map(|it| json!([it]))),
        ("retries", retries.map(|it| json!(it))),
        (
            "after",
            after.map(|it| json!([format!("t{}", it.index(number))])),
        ),
    ];
    for (field, value) in optional {
        value.into_iter().for_each(|value| task[field] = value);
    }
    task
}

/// What happens to a node of a random scenario.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Stays,
    /// It is there from this time on.
    Comes(u64),
    /// It has another number of CPUs from this time on.
    Changes(u64, u32),
    /// It is gone from the first to the second time.
    Leaves(u64, u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    let at = || 1..30u64;
    prop_oneof![
        Just(Fate::Stays),
        at().prop_map(Fate::Comes),
        (at(), 0..6u32).prop_map(|(at, cpus)| Fate::Changes(at, cpus)),
        (at(), 0..30u64).prop_map(|(at, until)| Fate::Leaves(at, at + until)),
    ]
}

/// The nodes of the start, and the events.
fn with_fates(drawn: Vec<(Json, bool, Fate)>) -> (Vec<Json>, Vec<Json>) {
    let (mut nodes, mut events) = (Vec::new(), Vec::new());
    for (number, (resources, has_label, fate)) in drawn.into_iter().enumerate() {
        let name = format!("n{number}");
        let mut node = json!({"name": name, "resources": resources});
        if has_label {
            node["labels"] = json!({"zone": "a"});
        }
        if let Fate::Comes(at) = fate {
            events.push(json!({"at_ms": at, "add_node": node}));
            continue;
        }
        nodes.push(node.clone());
        match fate {
            Fate::Stays | Fate::Comes(_) => {}
            Fate::Changes(at, cpus) => {
                let set = json!({"node": name, "name": "CPU", "capacity": cpus});
                events.push(json!({"at_ms": at, "set_resource": set}));
            }
            Fate::Leaves(at, until) => {
                events.push(json!({"at_ms": at, "remove_node": name}));
                events.push(json!({"at_ms": until, "add_node": node}));
            }
        }
    }
    (nodes, events)
}

/// Scenarios with a little of everything.
fn scenarios() -> impl Strategy<Value = Json> {
    let tasks = prop::collection::vec(drawn(), 1..8)
        .prop_map(|tasks| tasks.into_iter().enumerate().map(task).collect::<Vec<_>>());
    let resources = (1..5u32, 0..3u32, 0..8u32)
        .prop_map(|(cpu, gpu, memory)| json!({"CPU": cpu, "GPU": gpu, "memory": memory}));
    let nodes = prop::collection::vec((resources, any::<bool>(), fate()), 3).prop_map(with_fates);
    let policy = prop::sample::select(vec!["drf", "fair", "fifo"]);
    (any::<u32>(), policy, tasks, nodes).prop_map(|(seed, policy, tasks, (nodes, events))| {
        json!({
            "seed": seed, "policy": policy, "nodes": nodes, "tasks": tasks, "events": events,
        })
    })
}

/// What the trace says of a task.
#[derive(Default)]
struct TaskHistory {
    submits: u32,
    starts: u32,
    retries: u32,
    /// Since when it could have started.
    since: u64,
    waits: Vec<u64>,
    running: Option<(u64, String, Json)>,
    finished_at: Option<u64>,
    is_given_up: bool,
    is_infeasible: bool,
}

/// Follows the lines and checks each against those before it.
fn check(scenario: &Json, lines: &[Json]) -> BTreeMap<String, TaskHistory> {
    let tasks: BTreeMap<&str, &Json> = scenario["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| (task["name"].as_str().unwrap(), task))
        .collect();
    let mut seen: BTreeMap<String, TaskHistory> = BTreeMap::new();
    let mut held: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    let mut last_ms = 0;
    for line in lines {
        let at_ms = line["t_ms"].as_u64().unwrap();
        assert!(at_ms >= last_ms, "{line} goes back");
        last_ms = at_ms;
        let name = line["task"].as_str().unwrap();
        let (entry, _) = name.rsplit_once('-').unwrap();
        let of_file = tasks[entry];
        // When the last of those that it comes after finished; `None` if one has not.
        let free_at = |seen: &BTreeMap<String, TaskHistory>| {
            let Some(before) = of_file["after"][0].as_str() else {
                return Some(0);
            };
            let mut last_ms = 0;
            for index in 0..tasks[before]["count"].as_u64().unwrap() {
                let other = seen.get(&format!("{before}-{index}"))?;
                last_ms = last_ms.max(other.finished_at?);
            }
            Some(last_ms)
        };
        let free_at = free_at(&seen);
        let task = seen.entry(name.into()).or_default();
        let is_over = task.finished_at.is_some() || task.is_given_up;
        assert!(!is_over, "{line} after its end");
        let mut units = |node: &str, ids: &Json, takes: bool| {
            for (resource, ids) in ids.as_object().unwrap() {
                for id in ids.as_array().unwrap() {
                    let key = (node.to_owned(), resource.clone(), id[0].as_u64().unwrap());
                    let amount: f64 = id[1].as_str().unwrap().parse().unwrap();
                    let amount = (amount * 10_000.0).round() as u64;
                    let sum = held.entry(key).or_default();
                    *sum = if takes { *sum + amount } else { *sum - amount };
                    assert!(*sum <= 10_000, "{line}: a unit given twice");
                }
            }
        };
        match line["event"].as_str().unwrap() {
            "submit" => {
                assert_eq!(
                    (task.submits, of_file["submit_at_ms"].as_u64()),
                    (0, Some(at_ms))
                );
                (task.submits, task.since) = (1, at_ms);
            }
            "start" => {
                assert!(task.submits == 1 && task.running.is_none(), "{line}");
                let free_at = free_at.expect("it starts after what it waits for");
                task.waits.push(at_ms - task.since.max(free_at));
                let node = line["node"].as_str().unwrap();
                units(node, &line["ids"], true);
                task.running = Some((at_ms, node.into(), line["ids"].clone()));
                (task.starts, task.is_infeasible) = (task.starts + 1, false);
            }
            "finish" => {
                let (since, node, ids) = task.running.take().expect("it runs");
                assert_eq!(
                    Some(at_ms - since),
                    of_file["duration_ms"].as_u64(),
                    "{line}"
                );
                units(&node, &ids, false);
                task.finished_at = Some(at_ms);
            }
            "retry" => {
                let (_, node, ids) = task.running.take().expect("it runs");
                units(&node, &ids, false);
                (task.retries, task.since) = (task.retries + 1, at_ms);
                assert_eq!(line["attempt"], task.retries);
                let most = of_file["retries"].as_u64().unwrap_or(u64::MAX);
                assert!(u64::from(task.retries) <= most, "{line}");
            }
            "infeasible" => task.is_infeasible = true,
            "unschedulable" => {
                if let Some((_, node, ids)) = task.running.take() {
                    assert_eq!(of_file["retries"].as_u64(), Some(task.retries.into()));
                    units(&node, &ids, false);
                }
                task.is_given_up = true;
            }
            other => panic!("{other}"),
        }
    }
    assert!(
        held.values().all(|amount| *amount == 0),
        "something is held in the end"
    );
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_run_is_a_possible_one(scenario in scenarios()) {
        let (text, summary) = trace(&scenario);
        prop_assert_eq!(&trace(&scenario).0, &text);
        let seen = check(&scenario, &parsed(&text));

        let count = |of: fn(&TaskHistory) -> u32| -> u64 {
            seen.values().map(|task| u64::from(of(task))).sum()
        };
        let counts = summary.counts;
        prop_assert_eq!(counts.submitted, count(|it| it.submits));
        prop_assert_eq!(counts.started, count(|it| it.starts));
        prop_assert_eq!(counts.finished, count(|it| it.finished_at.is_some().into()));
        prop_assert_eq!(counts.retried, count(|it| it.retries));
        prop_assert_eq!(counts.unschedulable, count(|it| it.is_given_up.into()));

        for tenant in &summary.tenants {
            let of_tenant = |name: &str| {
                let (entry, _) = name.rsplit_once('-').unwrap();
                let mut tasks = scenario["tasks"].as_array().unwrap().iter();
                tasks.any(|it| it["name"] == entry && it["tenant"] == tenant.name.as_str())
            };
            let tasks = seen.iter().filter(|(name, _)| of_tenant(name));
            let waits = tasks.flat_map(|(_, task)| task.waits.clone());
            prop_assert_eq!(Waits::of(waits.collect()), tenant.waits);
        }

        // Who has not ended is infeasible, comes after one that has not finished, or waits for a
        // group, of which it is not known beforehand whether it can be reserved.
        let (mut infeasible, mut grouped) = (0, 0);
        for task in scenario["tasks"].as_array().unwrap() {
            let before = task["after"][0].as_str();
            let is_unfinished = |(name, other): (&String, &TaskHistory)| {
                let of_entry = name.rsplit_once('-').map(|(entry, _)| entry);
                of_entry == before && other.finished_at.is_none()
            };
            let waits = before.is_some() && seen.iter().any(is_unfinished);
            let is_grouped = task["strategy"]["placement_group"].is_object();
            for index in 0..task["count"].as_u64().unwrap() {
                let it = &seen[&format!("{}-{index}", task["name"].as_str().unwrap())];
                prop_assert_eq!(it.submits, 1);
                if it.finished_at.is_none() && !it.is_given_up {
                    infeasible += u64::from(it.is_infeasible);
                    grouped += u64::from(is_grouped);
                    let is_explained = it.is_infeasible || waits || is_grouped;
                    prop_assert!(is_explained, "{}-{index}:\n{text}", task["name"]);
                }
            }
        }
        prop_assert!(counts.infeasible <= infeasible);
        prop_assert!(counts.infeasible + grouped >= infeasible);
    }
}
