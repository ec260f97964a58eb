//! Tests of the run: what happens when.

use std::collections::BTreeSet;
use std::convert::Infallible;

use serde_json::{Value as Json, json};

use super::run::run;
use super::scenario::Scenario;
use super::summary::Summary;
use super::trace::TraceLine;

/// Runs a scenario. Its trace as text, and its summary.
pub(super) fn trace(scenario: &Json) -> (String, Summary) {
    let scenario = Scenario::parse(&scenario.to_string()).unwrap();
    let mut text = Vec::new();
    let summary = run(&scenario, |line| {
        line.write_to(&mut text);
        Ok::<(), Infallible>(())
    });
    (String::from_utf8(text).unwrap(), summary.unwrap())
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

pub(super) fn parsed(text: &str) -> Vec<Json> {
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
fn a_tree_of_tenants_under_a_quota() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 12}}],
        "tenants": [{"name": "org", "max": {"CPU": 8}}, {"name": "org/a", "weight": 3}],
        "tasks": [{"name": "a", "tenant": "org/a", "count": 9, "duration_ms": 10,
                   "resources": {"CPU": 1}},
                  {"name": "b", "tenant": "org/b", "count": 9, "duration_ms": 10,
                   "resources": {"CPU": 1}},
                  {"name": "c", "tenant": "web", "count": 3, "duration_ms": 10,
                   "resources": {"CPU": 1}},
                  {"name": "d", "tenant": "org/b", "duration_ms": 10,
                   "resources": {"CPU": 9}}],
    });
    let lines = short(&scenario);
    let at_first: Vec<String> = with("start", &lines)
        .into_iter()
        .filter(|line| line.starts_with("0 "))
        .collect();
    let of = |name: &str| at_first.iter().filter(|it| it.contains(name)).count();
    // Eight of the twelve, by weight.
    assert_eq!([" a-", " b-", " c-"].map(of), [6, 2, 3], "{at_first:?}");
    // What never fits is said at once.
    assert_eq!(with("unschedulable", &lines), ["0 unschedulable d-0"]);
    let reason = "the quota of tenant org is CPU 8 at once, and this asks for 9";
    let (text, summary) = trace(&scenario);
    assert!(text.contains(reason), "{text}");
    assert_eq!(summary.counts.finished, 21);
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
    for (cpus, after) in (1..=2).flat_map(|cpus| (0..15).map(move |after| (cpus, after))) {
        let scenario = json!({
            "nodes": [{"name": "n1", "resources": {"CPU": cpus}}],
            "tasks": [{"name": "a", "count": 5, "duration_ms": 10, "resources": {"CPU": 1}}],
        });
        let scenario = Scenario::parse(&scenario.to_string()).unwrap();
        let mut told = 0;
        let result = run(&scenario, |_: &TraceLine<'_>| {
            told += 1;
            if told > after { Err("enough") } else { Ok(()) }
        });
        // What tasks hold was given back: dropping it would panic.
        assert_eq!((result.unwrap_err(), told), ("enough", after + 1));
    }
}

/// What a group has reserved is what its tenant uses, though little runs in it.
#[test]
fn a_tenant_that_cycles_groups_of_the_whole_cluster_does_not_keep_others_waiting() {
    for policy in ["drf", "fair", "fifo"] {
        let bundles = json!([{"CPU": 4, "memory": 4}]);
        let group = |at: u64| {
            json!({"name": format!("g{at}"), "tenant": "greedy", "submit_at_ms": at, "duration_ms": 100,
                   "resources": {"CPU": 1, "memory": 1},
                   "strategy": {"placement_group": {"kind": "pack", "bundles": bundles}}})
        };
        let mut tasks: Vec<Json> = (0..20).map(group).collect();
        tasks.push(
            json!({"name": "other", "tenant": "other", "submit_at_ms": 1, "duration_ms": 10,
                          "resources": {"CPU": 1, "memory": 1}}),
        );
        let scenario = json!({
            "policy": policy,
            "nodes": [{"name": "n", "resources": {"CPU": 4, "memory": 4}}],
            "tasks": tasks,
        });
        let lines = short(&scenario);
        let start = with("start", &lines);
        let other = start.iter().find(|line| line.contains("other")).unwrap();
        // After the second group, which was there before it, at the latest.
        let at_ms: u64 = other.split(' ').next().unwrap().parse().unwrap();
        assert!(at_ms <= 200, "{policy}: {other}");
        let summary = trace(&scenario).1;
        let greedy = summary
            .tenants
            .iter()
            .find(|it| it.name.as_str() == "greedy");
        assert_eq!(greedy.unwrap().dominant_share_max.to_string(), "1");
    }
}

#[test]
fn bundles_want_labels_in_scenarios_too() {
    let mut group = grouped("g", "spread", &json!([{"CPU": 1}, {"CPU": 1}]));
    group["count"] = 2.into();
    group["strategy"]["placement_group"]["label_selectors"] = json!(["zone=c ; zone=b", "zone=b"]);
    let node = |name: &str, zone: &str| json!({"name": name, "labels": {"zone": zone}, "resources": {"CPU": 2}});
    let lines = short(&json!({
        "nodes": [node("n1", "a"), node("n2", "b")],
        "tasks": [group],
    }));
    let starts = with("start", &lines);
    assert!(
        starts.len() == 2 && starts.iter().all(|it| it.ends_with("n2")),
        "{lines:?}"
    );
}

#[test]
fn a_task_that_is_paused_runs_as_long_as_without() {
    let scenario = |min: u32, submit_ms: u64| {
        json!({
            "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
            "tenants": [{"name": "B", "min_share": {"CPU": min}}],
            "tasks": [{"name": "a", "tenant": "A", "duration_ms": 10000, "resources": {"CPU": 1}},
                      {"name": "b", "tenant": "B", "submit_at_ms": submit_ms, "duration_ms": 500,
                       "resources": {"CPU": 1}}],
        })
    };
    let guaranteed = scenario(1, 1_000);
    let expected = [
        "0 submit a-0",
        "0 start a-0 n1",
        "1000 submit b-0",
        "1000 pause a-0",
        "1000 start b-0 n1",
        "1500 finish b-0",
        "1500 resume a-0",
        "10500 finish a-0",
    ];
    assert_eq!(short(&guaranteed), expected);
    let summary = trace(&guaranteed).1;
    assert_eq!(summary.utilisation[0].1.to_string(), "1");
    // Without a minimum it waits for its share.
    let lines = short(&scenario(0, 0));
    assert_eq!(with("pause", &lines), ["1000 pause a-0"]);
    assert_eq!(lines.last().unwrap(), "10500 finish a-0");
}

#[test]
fn a_task_that_is_stopped_for_a_minimum_runs_again_from_its_start() {
    let scenario = json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2, "memory": 2}}],
        "tenants": [{"name": "B", "min_share": {"memory": 2}}],
        "tasks": [{"name": "a", "tenant": "A", "duration_ms": 10000, "resources": {"CPU": 1, "memory": 2}},
                  {"name": "b", "tenant": "B", "submit_at_ms": 3_000, "duration_ms": 500,
                   "resources": {"CPU": 1, "memory": 1}}],
    });
    let expected = [
        "0 submit a-0",
        "0 start a-0 n1",
        "3000 submit b-0",
        "3000 preempt a-0",
        "3000 retry a-0 n1 1",
        "3000 start b-0 n1",
        "3500 finish b-0",
        "3500 start a-0 n1",
        "13500 finish a-0",
    ];
    assert_eq!(short(&scenario), expected);
    let counts = trace(&scenario).1.counts;
    assert_eq!((counts.preempted, counts.repeated_ms), (1, 3_000));
    assert_eq!((counts.retried, counts.started), (1, 3));
    let mut scenario = scenario;
    scenario["tasks"][0]["retries"] = 0.into();
    assert_eq!(trace(&scenario).1.counts.preempted, 0);
}
