//! Tests of the run: what happens when, and what never does.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::run::run;
use super::scenario::Scenario;
use super::summary::Summary;
use super::trace::TraceLine;

/// Runs a scenario. Its trace as text, and its summary.
fn trace(scenario: &Json) -> (String, Summary) {
    let scenario = Scenario::parse(&scenario.to_string()).unwrap();
    let mut text = String::new();
    let summary = run(&scenario, |line| {
        line.write_to(&mut text);
        Ok::<(), Infallible>(())
    });
    (text, summary.unwrap())
}

/// The trace in short: `0 start a-0 n1`.
fn short(scenario: &Json) -> Vec<String> {
    let lines: Vec<Json> = parsed(&trace(scenario).0);
    let field = |line: &Json, field: &str| match &line[field] {
        Json::Null => String::new(),
        Json::String(text) => format!(" {text}"),
        other => format!(" {other}"),
    };
    let short = |line: &Json| {
        let fields = ["event", "task", "node", "attempt"].map(|name| field(line, name));
        format!("{}{}", line["t_ms"], fields.concat())
    };
    lines.iter().map(short).collect()
}

fn parsed(text: &str) -> Vec<Json> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn with(event: &str, lines: &[String]) -> Vec<String> {
    let has = |line: &&String| line.contains(&format!(" {event} "));
    lines.iter().filter(has).cloned().collect()
}

#[test]
fn the_worked_case_of_drf() {
    let (text, summary) = trace(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 9, "memory": "18GB"}}],
        "tasks": [{"name": "a", "tenant": "A", "count": 10, "duration_ms": 1000,
                   "resources": {"CPU": 1, "memory": "4GB"}},
                  {"name": "b", "tenant": "B", "count": 10, "duration_ms": 1000,
                   "resources": {"CPU": 3, "memory": "1GB"}}],
    }));
    let started = |name: &str| {
        let start = format!("{{\"t_ms\":0,\"event\":\"start\",\"task\":\"{name}-");
        text.lines().filter(|line| line.starts_with(&start)).count()
    };
    assert_eq!((started("a"), started("b")), (3, 2));
    let shares = summary
        .tenants
        .iter()
        .map(|it| it.dominant_share_max.to_string());
    assert_eq!(shares.collect::<Vec<_>>(), ["0.6666", "0.6666"]);
}

#[test]
fn at_one_instant_finishes_come_first_then_events_then_submissions() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}],
        "tasks": [{"name": "late", "submit_at_ms": 5, "duration_ms": 1, "resources": {"CPU": 3}},
                  {"name": "a", "count": 2, "duration_ms": 5, "resources": {"CPU": 1}},
                  {"name": "c", "submit_at_ms": 5, "duration_ms": 1, "resources": {"CPU": 1}},
                  {"name": "b", "submit_at_ms": 0, "duration_ms": 0, "resources": {"CPU": 4}}],
        "events": [{"at_ms": 5, "set_resource": {"node": "n1", "name": "CPU", "capacity": 4}}],
    });
    let expected = [
        "0 submit a-0",
        "0 submit a-1",
        "0 submit b-0",
        "0 infeasible b-0",
        "0 start a-0 n1",
        "0 start a-1 n1",
        "5 finish a-0",
        "5 finish a-1",
        // The event makes b feasible; it came first.
        "5 submit late-0",
        "5 submit c-0",
        "5 start b-0 n1",
        // It takes no time: the instant begins anew.
        "5 finish b-0",
        "5 start late-0 n1",
        "5 start c-0 n1",
        "6 finish late-0",
        "6 finish c-0",
    ];
    assert_eq!(short(&scenario), expected);
}

#[test]
fn what_was_submitted_later_waits_for_what_it_comes_after() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}],
        "tasks": [{"name": "last", "duration_ms": 1, "resources": {"CPU": 1}, "after": ["b", "a"]},
                  {"name": "a", "count": 3, "duration_ms": 10, "resources": {"CPU": 1}},
                  {"name": "b", "submit_at_ms": 25, "duration_ms": 10, "resources": {"CPU": 1},
                   "after": ["a"]},
                  {"name": "none", "duration_ms": 1, "resources": {"tpu": 1}},
                  {"name": "never", "duration_ms": 1, "resources": {"CPU": 1}, "after": ["none"]}],
    });
    let expected = [
        "0 submit last-0",
        "0 submit a-0",
        "0 submit a-1",
        "0 submit a-2",
        "0 submit none-0",
        "0 infeasible none-0",
        "0 submit never-0",
        "0 start a-0 n1",
        "0 start a-1 n1",
        "10 finish a-0",
        "10 finish a-1",
        "10 start a-2 n1",
        "20 finish a-2",
        "25 submit b-0",
        "25 start b-0 n1",
        "35 finish b-0",
        "35 start last-0 n1",
        "36 finish last-0",
    ];
    assert_eq!(short(&scenario), expected);
    let (_, summary) = trace(&scenario);
    let counts = summary.counts;
    assert_eq!(
        (counts.submitted, counts.finished, counts.unfinished()),
        (7, 5, 2)
    );
    assert_eq!((counts.infeasible, summary.makespan_ms), (1, 36));
    // Of the waits 0, 0, 10 and 0: `last` waited for others, not for a node.
    assert_eq!(summary.tenants[0].waits.unwrap().max_ms, 10);
    assert_eq!(summary.tenants[0].waits.unwrap().mean_ms.to_string(), "2");
}

#[test]
fn a_task_on_a_removed_node_is_tried_again() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "a", "duration_ms": 10, "resources": {"CPU": 1}, "retries": 2},
                  {"name": "pinned", "duration_ms": 10, "resources": {},
                   "strategy": {"node_affinity": {"node": "n1"}}},
                  {"name": "soft", "duration_ms": 10, "resources": {},
                   "strategy": {"node_affinity": {"node": "n1", "soft": true}}}],
        "events": [{"at_ms": 4, "add_node": {"name": "n2", "resources": {"CPU": 1}}},
                   {"at_ms": 5, "remove_node": "n1"},
                   {"at_ms": 6, "add_node": {"name": "n1", "resources": {"CPU": 1}}},
                   {"at_ms": 7, "remove_node": "n2"},
                   {"at_ms": 8, "remove_node": "n1"}],
    });
    let expected = [
        "0 submit a-0",
        "0 submit pinned-0",
        "0 submit soft-0",
        "0 start a-0 n1",
        "0 start pinned-0 n1",
        "0 start soft-0 n1",
        "5 retry a-0 n1 1",
        "5 retry pinned-0 n1 1",
        "5 unschedulable pinned-0",
        "5 retry soft-0 n1 1",
        "5 start a-0 n2",
        "5 start soft-0 n2",
        "7 retry a-0 n2 2",
        "7 retry soft-0 n2 2",
        "7 start a-0 n1",
        "7 start soft-0 n1",
        "8 unschedulable a-0",
        "8 retry soft-0 n1 3",
        "8 infeasible soft-0",
    ];
    assert_eq!(short(&scenario), expected);
    let (text, summary) = trace(&scenario);
    let why = "node n1 was removed while it ran, and its 2 retries are used up";
    assert!(text.contains(why), "{text}");
    let counts = summary.counts;
    assert_eq!(
        (counts.retried, counts.unschedulable, counts.infeasible),
        (6, 2, 1)
    );
    assert_eq!(
        (counts.started, counts.finished, summary.makespan_ms),
        (7, 0, 8)
    );
}

#[test]
fn infeasible_tasks_wait_for_a_node_that_can() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "gpu", "count": 2, "duration_ms": 10, "resources": {"GPU": "0.5"}},
                  {"name": "zone", "duration_ms": 10, "resources": {}, "labels": ["zone=a"]},
                  {"name": "big", "duration_ms": 10, "resources": {"CPU": 8}}],
        "events": [{"at_ms": 3, "add_node": {"name": "n2", "resources": {"CPU": 1},
                                             "labels": {"zone": "a"}}},
                   {"at_ms": 7, "set_resource": {"node": "n1", "name": "GPU", "capacity": 1}}],
    });
    let lines = short(&scenario);
    assert_eq!(
        with("infeasible", &lines),
        [
            "0 infeasible gpu-0",
            "0 infeasible gpu-1",
            "0 infeasible zone-0",
            "0 infeasible big-0"
        ]
    );
    assert_eq!(
        with("start", &lines),
        ["3 start zone-0 n2", "7 start gpu-0 n1", "7 start gpu-1 n1"]
    );
    let (text, summary) = trace(&scenario);
    assert_eq!(text.matches(r#""ids":{"GPU":[[0,"0.5"]]}"#).count(), 2);
    assert!(text.contains("no node can ever run this task"), "{text}");
    assert_eq!((summary.counts.infeasible, summary.counts.finished), (1, 3));
}

#[test]
fn a_task_that_is_not_infeasible_any_more_does_not_count_so() {
    // The second node comes and can serve it, but what is there goes on too long.
    let (_, summary) = trace(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "b", "duration_ms": 10, "resources": {"GPU": 1},
                   "retries": 0},
                  {"name": "a", "submit_at_ms": 1, "duration_ms": 10, "resources": {"GPU": 1},
                   "after": []}],
        "events": [{"at_ms": 3, "add_node": {"name": "n2", "resources": {"GPU": 1}}},
                   {"at_ms": 5, "remove_node": "n2"}],
    }));
    // b started and was given up; a was infeasible, then ready, then infeasible again.
    let counts = summary.counts;
    assert_eq!(
        (counts.infeasible, counts.unschedulable, counts.started),
        (1, 1, 1)
    );
}

#[test]
fn a_shrunken_node_pays_its_debt_first() {
    let lines = short(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 4}}],
        "tasks": [{"name": "a", "count": 8, "duration_ms": 10, "resources": {"CPU": 1}}],
        "events": [{"at_ms": 5, "set_resource": {"node": "n1", "name": "CPU", "capacity": 1}},
                   {"at_ms": 35, "set_resource": {"node": "n1", "name": "CPU", "capacity": 3}}],
    }));
    let times = with("start", &lines);
    let times: Vec<&str> = times
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(times, ["0", "0", "0", "0", "10", "20", "30", "35"]);
}

#[test]
fn a_strategy_of_the_scenario_is_for_tasks_without_their_own() {
    let nodes = |scenario: &str, task: &str| {
        let mut tasks =
            json!([{"name": "a", "count": 4, "duration_ms": 1, "resources": {"CPU": 1}}]);
        if !task.is_empty() {
            tasks[0]["strategy"] = task.into();
        }
        let lines = short(&json!({
            "strategy": scenario, "tasks": tasks,
            "nodes": [{"name": "n", "count": 4, "resources": {"CPU": 16}}],
        }));
        let starts = with("start", &lines);
        starts
            .iter()
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(nodes("spread", "").len(), 4);
    assert_eq!(nodes("default", "spread").len(), 4);
    assert_eq!(nodes("default", "").len(), 1);
    assert_eq!(nodes("spread", "default").len(), 1);
}

#[test]
fn freed_resources_are_kept_for_who_waited_too_long() {
    // Small tasks overlap, so that there is never room for the large one by chance.
    let tasks = |until: u64| {
        let small = |at: u64| {
            json!({"name": format!("small{at}"), "submit_at_ms": at, "duration_ms": 2500,
                   "resources": {"CPU": 1}})
        };
        let mut tasks: Vec<Json> = (0..until).map(|at| small(at * 1000)).collect();
        tasks.insert(
            0,
            json!({"name": "large", "submit_at_ms": 500, "duration_ms": 1000,
                               "resources": {"CPU": 2}}),
        );
        tasks
    };
    let lines = short(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}], "tasks": tasks(100),
    }));
    let start = with("start", &lines);
    let large = start.iter().find(|line| line.contains("large")).unwrap();
    let at_ms: u64 = large.split(' ').next().unwrap().parse().unwrap();
    assert!((30_500..=36_000).contains(&at_ms), "{large}");
}

fn grouped(name: &str, kind: &str, bundles: &Json) -> Json {
    json!({"name": name, "duration_ms": 10, "resources": {"CPU": 1},
           "strategy": {"placement_group": {"kind": kind, "bundles": bundles}}})
}

#[test]
fn a_group_is_reserved_for_all_instances_and_given_back_after_the_last() {
    let mut group = grouped("g", "strict_spread", &json!([{"CPU": 2}, {"CPU": 2}]));
    group["count"] = 5.into();
    let lines = short(&json!({
        "nodes": [{"name": "n", "count": 2, "resources": {"CPU": 3}}],
        "tasks": [group, {"name": "a", "count": 6, "duration_ms": 4, "resources": {"CPU": 1}}],
    }));
    let of = |name: &str, node: &str| {
        let starts = with("start", &lines);
        let is_meant = |line: &&String| line.contains(name) && line.ends_with(node);
        starts
            .iter()
            .filter(is_meant)
            .map(|line| line.split(' ').next().unwrap().into())
            .collect::<Vec<String>>()
    };
    // Two bundles of two CPUs each: four instances at a time, then the fifth.
    assert_eq!((of(" g-", "n-0").len(), of(" g-", "n-1").len()), (3, 2));
    assert_eq!(
        [of(" g-", "n-0"), of(" g-", "n-1")].concat(),
        ["0", "0", "10", "0", "0"]
    );
    // One CPU is left on each node, and what a bundle does not use is nobody else's.
    assert_eq!(of(" a-", "").concat(), "004488");
    // What comes after finds all of both nodes.
    let lines = short(&json!({
        "nodes": [{"name": "n", "count": 2, "resources": {"CPU": 3}}],
        "tasks": [grouped("g", "pack", &json!([{"CPU": 3}, {"CPU": 3}])),
                  {"name": "a", "count": 2, "duration_ms": 4, "resources": {"CPU": 3}}],
    }));
    assert_eq!(
        with("start", &lines)[1..],
        ["10 start a-0 n-0", "10 start a-1 n-1"]
    );
}

#[test]
fn a_group_waits_until_all_of_it_can_be_reserved() {
    let lines = short(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}, {"name": "n2", "resources": {"CPU": 2}}],
        "tasks": [{"name": "a", "duration_ms": 7, "resources": {"CPU": 2}},
                  with_submit(grouped("later", "strict_spread", &json!([{"CPU": 2}, {"CPU": 1}]))),
                  grouped("never", "strict_spread", &json!([{"CPU": 3}, {"CPU": 1}])),
                  grouped("grown", "spread", &json!([{"CPU": 4}]))],
        "events": [{"at_ms": 20, "set_resource": {"node": "n2", "name": "CPU", "capacity": 4}}],
    }));
    assert_eq!(
        with("infeasible", &lines),
        ["0 infeasible never-0", "0 infeasible grown-0"]
    );
    // Both are feasible then; the one that was submitted first goes first. It starts in whichever
    // of its bundles holds it.
    let starts = with("start", &lines);
    let starts: Vec<&str> = starts
        .iter()
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let expected = [
        "0 start a-0",
        "7 start later-0",
        "20 start never-0",
        "30 start grown-0",
    ];
    assert_eq!(starts, expected);
}

/// Groups come before tasks at one instant; so this one comes later.
fn with_submit(mut task: Json) -> Json {
    task["submit_at_ms"] = 1.into();
    task
}

#[test]
fn a_group_that_loses_a_node_is_reserved_anew() {
    let lines = short(&json!({
        "nodes": [{"name": "n", "count": 3, "resources": {"CPU": 1}}],
        "tasks": [{"name": "g", "count": 2, "duration_ms": 10, "resources": {"CPU": 1},
                   "strategy": {"placement_group": {"kind": "strict_spread",
                                                    "bundles": [{"CPU": 1}, {"CPU": 1}]}}}],
        "events": [{"at_ms": 5, "remove_node": "n-0"}, {"at_ms": 6, "remove_node": "n-1"},
                   {"at_ms": 9, "add_node": {"name": "n3", "resources": {"CPU": 1}}}],
    }));
    let retried = ["5 retry g-0 n-0 1", "5 start g-0 n-2", "6 retry g-1 n-1 1"];
    let rest = &lines[4..];
    assert_eq!(rest[..3], retried, "{lines:#?}");
    assert_eq!(with("start", rest)[1], "9 start g-1 n3");
    assert_eq!(with("finish", rest), ["15 finish g-0", "19 finish g-1"]);
}

#[test]
fn time_does_not_go_on_after_the_end() {
    // Something is passed over, so the scheduler wants to be woken again and again.
    let (text, summary) = trace(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}],
        "tasks": [{"name": "a", "count": 2, "duration_ms": 10, "resources": {"CPU": 1}},
                  {"name": "never", "duration_ms": 10, "resources": {"CPU": 3}}],
    }));
    assert_eq!(summary.makespan_ms, 10);
    assert!(text.ends_with("{\"t_ms\":10,\"event\":\"finish\",\"task\":\"a-1\"}\n"));
}

#[test]
fn a_run_can_be_broken_off() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}}],
        "tasks": [{"name": "a", "count": 5, "duration_ms": 10, "resources": {"CPU": 1}}],
    });
    let scenario = Scenario::parse(&scenario.to_string()).unwrap();
    for after in 0..15 {
        let mut told = 0;
        let result = run(&scenario, |_: &TraceLine<'_>| {
            told += 1;
            if told > after { Err("enough") } else { Ok(()) }
        });
        // What tasks hold was given back: dropping it would panic.
        assert_eq!((result.unwrap_err(), told), ("enough", after + 1));
    }
}

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
        let of = |(cpu, gpu, memory): (Json, Json, u32)| json!({"CPU": cpu, "GPU": gpu, "memory": memory});
        (cpu, gpu, 0..6u32).prop_map(of)
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

/// Scenarios with a little of everything.
fn scenarios() -> impl Strategy<Value = Json> {
    let tasks = prop::collection::vec(drawn(), 1..8)
        .prop_map(|tasks| tasks.into_iter().enumerate().map(task).collect::<Vec<_>>());
    // Each node is there from a time on, or to a time, or twice.
    let node = (
        1..5u32,
        0..3u32,
        0..8u32,
        any::<bool>(),
        0..4u8,
        1..30u64,
        1..30u64,
        0..6u32,
    );
    let policy = prop_oneof![Just("drf"), Just("fair"), Just("fifo")];
    (any::<u32>(), policy, tasks, prop::collection::vec(node, 3)).prop_map(
        |(seed, policy, tasks, drawn)| {
            let (mut nodes, mut events) = (Vec::new(), Vec::new());
            for (number, (cpu, gpu, memory, label, fate, at, more, set)) in drawn.into_iter().enumerate() {
                let name = format!("n{number}");
                let node = json!({
                    "name": name, "resources": {"CPU": cpu, "GPU": gpu, "memory": memory},
                    "labels": if label { json!({"zone": "a"}) } else { json!({}) },
                });
                match fate {
                    0 => events.push(json!({"at_ms": at, "add_node": node})),
                    _ => nodes.push(node.clone()),
                }
                let from = at + if fate == 0 { more } else { 0 };
                if fate < 3 {
                    events.push(json!({"at_ms": from, "set_resource":
                        {"node": name, "name": "CPU", "capacity": set}}));
                }
                if fate == 2 {
                    events.push(json!({"at_ms": from, "remove_node": name}));
                    events.push(json!({"at_ms": from + more, "add_node": node}));
                }
            }
            json!({"seed": seed, "policy": policy, "nodes": nodes, "tasks": tasks, "events": events})
        },
    )
}

/// What the trace says of a task.
#[derive(Default)]
struct Seen {
    submits: u32,
    starts: u32,
    retries: u32,
    running: Option<(u64, String, Json)>,
    finished_at: Option<u64>,
    is_given_up: bool,
    is_infeasible: bool,
}

/// Follows the lines and checks each against those before it.
fn check(scenario: &Json, lines: &[Json]) -> BTreeMap<String, Seen> {
    let tasks: BTreeMap<&str, &Json> = scenario["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| (task["name"].as_str().unwrap(), task))
        .collect();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let mut held: BTreeMap<(String, String, u64), u64> = BTreeMap::new();
    let mut last_ms = 0;
    for line in lines {
        let at_ms = line["t_ms"].as_u64().unwrap();
        assert!(at_ms >= last_ms, "{line} goes back");
        last_ms = at_ms;
        let name = line["task"].as_str().unwrap();
        let (entry, _) = name.rsplit_once('-').unwrap();
        let of_file = tasks[entry];
        let before = of_file["after"].as_array().into_iter().flatten();
        let is_free = before.clone().all(|before| {
            let count = tasks[before.as_str().unwrap()]["count"].as_u64().unwrap();
            (0..count).all(|index| {
                let other = seen.get(&format!("{}-{index}", before.as_str().unwrap()));
                other.is_some_and(|other| other.finished_at.is_some())
            })
        });
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
                task.submits = 1;
            }
            "start" => {
                assert!(
                    task.submits == 1 && task.running.is_none() && is_free,
                    "{line}"
                );
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
                task.retries += 1;
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

        let count = |of: fn(&Seen) -> u32| seen.values().map(|task| u64::from(of(task))).sum::<u64>();
        let counts = summary.counts;
        prop_assert_eq!(counts.submitted, count(|it| it.submits));
        prop_assert_eq!(counts.started, count(|it| it.starts));
        prop_assert_eq!(counts.finished, count(|it| it.finished_at.is_some().into()));
        prop_assert_eq!(counts.retried, count(|it| it.retries));
        prop_assert_eq!(counts.unschedulable, count(|it| it.is_given_up.into()));

        // Who has not ended is infeasible, comes after one that has not finished, or waits for a
        // group, of which it is not known beforehand whether it can be reserved.
        let (mut infeasible, mut grouped) = (0, 0);
        for task in scenario["tasks"].as_array().unwrap() {
            let before = task["after"][0].as_str();
            let is_unfinished = |(name, other): (&String, &Seen)| {
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
