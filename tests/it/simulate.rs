//! `wasmrun simulate`: scenarios in virtual time.

use std::io::Read;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

/// A scenario on standard input.
fn simulate(scenario: &Json) -> Wasmrun {
    Wasmrun::new(["simulate", "-"]).stdin(scenario.to_string())
}

fn example(name: &str) -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.join("../examples/scenarios").join(name)
}

/// What `-o json` says of a scenario: the events, and the summary.
fn events(scenario: &Json) -> (Vec<Json>, Json) {
    let out = simulate(scenario).args(["-o", "json"]).ok();
    let mut lines: Vec<Json> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let last = lines.pop().expect("a summary at the end");
    (lines, last["summary"].clone())
}

/// Events in short: `0 start a-0 n1`.
fn short(lines: &[Json]) -> Vec<String> {
    let text = |value: &Json| value.as_str().map(|text| format!(" {text}"));
    let short = |line: &Json| {
        let fields = ["event", "task", "node"].map(|field| text(&line[field]).unwrap_or_default());
        format!("{}{}", line["t_ms"], fields.concat())
    };
    lines.iter().map(short).collect()
}

#[test]
fn two_tenants_get_equal_dominant_shares() {
    let drf = example("drf.json");
    let out = Wasmrun::new(["simulate"])
        .arg(&drf)
        .args(["-o", "json"])
        .ok();
    let count = |start: &str| out.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(count(r#"{"t_ms":0,"event":"start","task":"a-"#), 3);
    assert_eq!(count(r#"{"t_ms":0,"event":"start","task":"b-"#), 2);
    let summary: Json = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    for tenant in ["A", "B"] {
        // As it is written, so that nothing is rounded on the way.
        let share = &summary["summary"]["tenants"][tenant]["dominant_share_max"];
        assert_eq!(share.to_string(), "0.6666", "{tenant}");
    }
    let expected = "\
50 of 50 tasks finished in 10s

tenant  started  finished  share max  wait mean  wait p99
A            30        30     0.6666       4.5s        9s
B            20        20     0.6666       4.5s        9s

node  resource  utilisation
n1    CPU       [####################]  100 %
      memory    [###############·····]   77 %
";
    assert_eq!(Wasmrun::new(["simulate"]).arg(&drf).ok(), expected);
    assert_eq!(Wasmrun::new(["simulate", "-o", "quiet"]).arg(&drf).ok(), "");
}

#[test]
fn the_examples_run_to_their_end() {
    for (name, starts) in [
        ("drf.json", "50 of 50 tasks finished in 10s\n"),
        ("gpus.json", "2069 of 2069 tasks finished in 20m45s\n"),
        (
            "growth.json",
            "204 of 204 tasks finished in 41s, 8 retried\n",
        ),
    ] {
        let out = Wasmrun::new(["simulate"]).arg(example(name)).ok();
        assert!(out.starts_with(starts), "{name}:\n{out}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let scenario = |seed: u64, strategy: &str| {
        simulate(&json!({
            "seed": seed, "strategy": strategy,
            "nodes": [{"name": "n", "count": 20, "resources": {"CPU": 4, "GPU": 1}}],
            "tasks": [{"name": "a", "tenant": "A", "count": 200, "duration_ms": 70,
                       "resources": {"CPU": 1}},
                      {"name": "b", "tenant": "B", "count": 100, "submit_at_ms": 30,
                       "duration_ms": 50, "resources": {"CPU": 0.5, "GPU": "0.25"}}],
            "events": [{"at_ms": 60, "remove_node": "n-3"}],
        }))
        .args(["-o", "json"])
        .ok()
    };
    for strategy in ["default", "random", "spread"] {
        assert_eq!(scenario(7, strategy), scenario(7, strategy), "{strategy}");
    }
    // Random choices do follow from the seed.
    assert_ne!(scenario(7, "random"), scenario(8, "random"));
    assert_ne!(scenario(7, "default"), scenario(8, "default"));
    let gpus = || {
        Wasmrun::new(["simulate", "-o", "json"])
            .arg(example("gpus.json"))
            .ok()
    };
    assert_eq!(gpus(), gpus());
}

#[test]
fn the_order_at_one_instant() {
    let (lines, _) = events(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "second", "submit_at_ms": 10, "duration_ms": 5, "resources": {"CPU": 1}},
                  {"name": "first", "duration_ms": 10, "resources": {"CPU": 1}},
                  {"name": "third", "submit_at_ms": 10, "duration_ms": 5, "resources": {"CPU": 1},
                   "after": ["first"]},
                  {"name": "new", "duration_ms": 5, "resources": {"GPU": 1}}],
        "events": [{"at_ms": 10, "add_node": {"name": "n2", "resources": {"CPU": 1}}},
                   {"at_ms": 10, "set_resource": {"node": "n2", "name": "GPU", "capacity": 1}}],
    }));
    let expected = [
        "0 submit first-0",
        "0 submit new-0",
        "0 infeasible new-0",
        "0 start first-0 n1",
        "10 finish first-0",
        "10 submit second-0",
        "10 submit third-0",
        "10 start new-0 n2",
    ];
    let lines = short(&lines);
    assert_eq!(lines[..8], expected);
    let mut rest = lines[8..10].to_vec();
    rest.sort();
    assert!(rest[0].starts_with("10 start second-0 "), "{lines:?}");
    assert!(rest[1].starts_with("10 start third-0 "), "{lines:?}");
}

#[test]
fn a_task_on_a_removed_node_is_retried() {
    let (lines, summary) = events(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "a", "duration_ms": 10, "resources": {"CPU": 1}},
                  {"name": "b", "submit_at_ms": 1, "duration_ms": 10, "resources": {"CPU": 1},
                   "strategy": {"node_affinity": {"node": "n1"}}}],
        "events": [{"at_ms": 4, "add_node": {"name": "n2", "resources": {"CPU": 1}}},
                   {"at_ms": 7, "remove_node": "n1"}],
    }));
    let expected = [
        "0 submit a-0",
        "0 start a-0 n1",
        "1 submit b-0",
        "7 retry a-0 n1",
        "7 unschedulable b-0",
        "7 start a-0 n2",
        "17 finish a-0",
    ];
    assert_eq!(short(&lines), expected);
    assert_eq!(lines[3]["attempt"], 1);
    let reason = lines[4]["reason"].as_str().unwrap();
    assert_says(reason, &["n1", "is not in the cluster"]);
    assert_eq!(summary["makespan_ms"], 17);
    let tenant = &summary["tenants"]["default"];
    for (field, value) in [
        ("started", 2),
        ("finished", 1),
        ("retried", 1),
        ("unschedulable", 1),
    ] {
        assert_eq!(
            (&summary[field], &tenant[field]),
            (&json!(value), &json!(value)),
            "{field}"
        );
    }
}

#[test]
fn what_no_node_can_serve_waits_for_one_that_can() {
    let (lines, summary) = events(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 2}, "labels": {"zone": "a"}}],
        "tasks": [{"name": "big", "duration_ms": 10, "resources": {"CPU": 8}},
                  {"name": "zone", "duration_ms": 10, "resources": {"CPU": 1}, "labels": ["zone=b"]},
                  {"name": "gpu", "duration_ms": 10, "resources": {"GPU": "0.5"}},
                  {"name": "never", "duration_ms": 10, "resources": {"tpu": 1}},
                  {"name": "next", "duration_ms": 10, "resources": {}, "after": ["never"]}],
        "events": [{"at_ms": 5, "add_node": {"name": "n2", "resources": {"CPU": 8},
                                             "labels": {"zone": "b"}}},
                   {"at_ms": 20, "set_resource": {"node": "n1", "name": "GPU", "capacity": 2}}],
    }));
    let of = |event: &str| {
        let lines = lines.iter().filter(|line| line["event"] == event);
        short(&lines.cloned().collect::<Vec<_>>())
    };
    assert_eq!(
        of("infeasible"),
        [
            "0 infeasible big-0",
            "0 infeasible zone-0",
            "0 infeasible gpu-0",
            "0 infeasible never-0"
        ]
    );
    assert_eq!(
        of("start"),
        [
            "5 start big-0 n2",
            "15 start zone-0 n2",
            "20 start gpu-0 n1"
        ]
    );
    let reason = |task: &str| {
        let line = lines
            .iter()
            .find(|line| line["event"] == "infeasible" && line["task"] == task);
        line.unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert_says(
        &reason("big-0"),
        &["no node can ever run this task: CPU: needs 8, node has 2 in total (node n1)"],
    );
    assert_says(&reason("zone-0"), &["zone=b"]);
    assert_says(&reason("never-0"), &["tpu"]);
    let start = lines
        .iter()
        .find(|line| line["event"] == "start" && line["task"] == "gpu-0");
    assert_eq!(start.unwrap()["ids"], json!({"GPU": [[0, "0.5"]]}));
    let counts = ["submitted", "finished", "unfinished", "infeasible"].map(|it| &summary[it]);
    assert_eq!(counts, [5, 3, 2, 1]);
}

#[test]
fn starts_name_the_units() {
    let (lines, _) = events(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 4, "GPU": 2, "memory": "1GiB", "bw": "sum:2.5"}}],
        "tasks": [{"name": "a", "count": 2, "duration_ms": 1,
                   "resources": {"CPU": 2, "GPU": 0.5, "memory": "1MiB", "bw": 1.25}},
                  {"name": "b", "duration_ms": 1, "resources": {"GPU": 1}},
                  {"name": "c", "duration_ms": 1, "resources": {"memory": "1MiB"}}],
    }));
    let ids: Vec<&Json> = lines
        .iter()
        .filter(|line| line["event"] == "start")
        .map(|line| &line["ids"])
        .collect();
    let expected = [
        json!({"CPU": [[0, "1"], [1, "1"]], "GPU": [[0, "0.5"]]}),
        json!({"CPU": [[2, "1"], [3, "1"]], "GPU": [[0, "0.5"]]}),
        json!({"GPU": [[1, "1"]]}),
        json!({}),
    ];
    assert_eq!(ids, expected.iter().collect::<Vec<_>>());
}

#[test]
fn a_placement_group_is_all_or_nothing() {
    let (lines, summary) = events(&json!({
        "nodes": [{"name": "n", "count": 2, "resources": {"CPU": 2}}],
        "tasks": [{"name": "a", "duration_ms": 10, "resources": {"CPU": 2}},
                  {"name": "g", "count": 2, "submit_at_ms": 1, "duration_ms": 10,
                   "resources": {"CPU": 2},
                   "strategy": {"placement_group": {"kind": "strict_spread",
                                                    "bundles": [{"CPU": 2}, {"CPU": 2}]}}},
                  {"name": "h", "submit_at_ms": 1, "duration_ms": 10, "resources": {"CPU": 2},
                   "strategy": {"placement_group": {"kind": "strict_spread",
                                "bundles": [{"CPU": 2}, {"CPU": 2}, {"CPU": 2}]}}}],
    }));
    let starts: Vec<String> = short(&lines)
        .into_iter()
        .filter(|it| it.contains("start"))
        .collect();
    assert!(starts[0].starts_with("0 start a-0"), "{starts:?}");
    assert!(starts[1].starts_with("10 start g-0"), "{starts:?}");
    assert!(starts[2].starts_with("10 start g-1"), "{starts:?}");
    assert_ne!(
        lines
            .iter()
            .filter(|it| it["task"] == "g-0")
            .nth(1)
            .unwrap()["node"],
        lines
            .iter()
            .filter(|it| it["task"] == "g-1")
            .nth(1)
            .unwrap()["node"]
    );
    assert_eq!(
        (&summary["finished"], &summary["infeasible"]),
        (&json!(3), &json!(1))
    );
}

#[test]
fn a_wrong_scenario_is_an_error_that_names_the_place() {
    let task = |fields: &str| {
        format!(
            r#"{{"nodes":[{{"name":"n1","resources":{{"CPU":1}}}}],"tasks":[{{"name":"a","duration_ms":1,{fields}}}]}}"#
        )
    };
    let cases: Vec<(String, &[&str])> = vec![
        (
            task(r#""resources":{"CPU":1.5}"#),
            &["1:104: tasks[0].resources.CPU: ", "1.5"],
        ),
        (
            task(r#""resources":{},"cuont":2"#),
            &["tasks[0]", "cuont", "did you mean count?"],
        ),
        (
            task(r#""resources":{},"count":0"#),
            &["tasks[0].count: 0 is not possible"],
        ),
        (
            task(r#""resources":{},"priority":0.5"#),
            &["tasks[0].priority: 0.5"],
        ),
        (
            task(r#""resources":{},"after":["b"]"#),
            &["tasks[0].after[0]: there is no task b"],
        ),
        (
            task(r#""resources":{},"after":["a"]"#),
            &["tasks[0].after", "a after a"],
        ),
        (
            task(r#""resources":{},"labels":["=a"]"#),
            &["tasks[0].labels[0]: "],
        ),
        (
            task(r#""resources":{},"strategy":"fast""#),
            &["tasks[0].strategy: 'fast'"],
        ),
        (
            task(r#""resources":{},"strategy":{"node_affinity":{"node":"n2"}}"#),
            &[
                "tasks[0].strategy.node_affinity.node: there is no node n2",
                "did you mean n1?",
            ],
        ),
        (
            r#"{"nodes":[],"tasks":[],"policy":"unfair"}"#.into(),
            &["1:33: policy: ", "unfair"],
        ),
        (
            r#"{"nodes":[{"name":"n1","resources":{"CPU":1.5}}],"tasks":[]}"#.into(),
            &["nodes[0].resources.CPU: ", "1.5"],
        ),
        (
            r#"{"nodes":[],"tasks":[],"events":[{"at_ms":1,"remove_node":"n1"}]}"#.into(),
            &["events[0].remove_node: there is no node n1"],
        ),
        (r#"{"nodes":[]}"#.into(), &["the field `tasks` is missing"]),
        (
            "{\"nodes\":[],\n\"tasks\":]}".into(),
            &["2:9: it is not JSON"],
        ),
        (String::new(), &["it is not JSON"]),
    ];
    for (text, says) in cases {
        let run = Wasmrun::new(["simulate", "-"]).stdin(text.clone());
        let says: Vec<&str> = ["error: <stdin>:"]
            .into_iter()
            .chain(says.iter().copied())
            .collect();
        let stderr = run.fails(2);
        assert_says(&stderr, &says);
    }
    let dir = scratch();
    let path = dir.path().join("plan.json");
    std::fs::write(&path, task("\n  \"resources\": {\"CPU\": \"x\"}")).unwrap();
    Wasmrun::new(["simulate", "plan.json"])
        .dir(dir.path())
        .fails_saying(2, &["error: plan.json:2:24: tasks[0].resources.CPU: "]);
    let error = Wasmrun::new(["simulate"]).arg(&path).json(2);
    assert_says(
        error["error"]["message"].as_str().unwrap(),
        &["plan.json:2:24: tasks[0]"],
    );
}

#[test]
fn a_scenario_that_cannot_be_read() {
    let dir = scratch();
    Wasmrun::new(["simulate", "none.json"])
        .dir(dir.path())
        .fails_saying(
            2,
            &[
                "error: cannot read the scenario none.json",
                "because: ",
                "check the path: a relative one begins at /",
            ],
        );
    let stderr = Wasmrun::new(["simulate", "-"])
        .stdin([b'{', 0xff, b'}'])
        .fails(2);
    assert_says(
        &stderr,
        &["error: the scenario <stdin> is not text in UTF-8"],
    );
    Wasmrun::new(["simulate"]).fails(2);
}

#[test]
fn whoever_reads_may_leave() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let run = simulate(&json!({
        "nodes": [{"name": "n1", "resources": {"CPU": 1}}],
        "tasks": [{"name": "a", "count": 100_000, "duration_ms": 1, "resources": {"CPU": 1}}],
    }));
    let running = run.args(["-o", "json"]).stdout_to(writer).start();
    let mut first = [0; 10];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(&first, br#"{"t_ms":0,"#);
    drop(reader);
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(141), ""),
        "{ended}"
    );
}

/// What `simulate` says in the end.
fn summary(run: Wasmrun) -> Json {
    let out = run.args(["-o", "json"]).ok();
    let last = out.lines().last().expect("a summary at the end");
    let mut line: Json = serde_json::from_str(last).expect("a line of JSON");
    line["summary"].take()
}

#[test]
fn what_has_run_is_recorded_and_tried_with_a_quota() {
    let mut node = Node::new();
    let history = node.dir.path().join("history");
    let folder = history.display().to_string();
    let options = ["--node-name", "n1", "--history-dir", &folder];
    node.start_with(&options);
    for tenant in ["red", "org/blue"] {
        let submit = node.wasmrun(["submit", "--tenant", tenant]);
        let call = ["--invoke", "sleep(200)", "--array", "1-6"];
        submit.arg(guest("fixture")).args(call).ok();
    }
    // From here on only its files know what has run.
    node.wasmrun(["node", "stop"]).ok();
    let ended = node.running.take().expect("it runs").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    node.start_with(&options);
    node.wasmrun(["tenant", "set", "red", "--weight", "2"]).ok();

    let file = node.dir.path().join("load.json");
    let record = || node.wasmrun(["simulate", "--record"]).arg(&file);
    record().fails_saying(2, &["nothing to record", "--from"]);
    let said = record().arg("--from").arg(&history).run();
    assert_eq!(said.code, Some(0), "{said}");
    assert_says(&said.stderr, &["12 tasks of 2 tenants", "priorities"]);
    let read = || -> Json {
        let text = std::fs::read_to_string(&file).expect("it was written");
        serde_json::from_str(&text).expect("it is JSON")
    };
    let other = record().arg("--from").arg(&file).fails(2);
    assert_says(
        &other,
        &[
            "load.json is no file of a history: none of its lines is an attempt",
            "--history-dir",
        ],
    );
    let recorded = read();
    let expected = json!([{ "name": "red", "weight": "2" }]);
    assert_eq!(recorded["tenants"], expected);
    assert_eq!(recorded["nodes"][0]["name"], "n1");
    assert_eq!(recorded["nodes"][0]["resources"]["CPU"], "2");
    assert_eq!(recorded["tasks"][0]["name"], "sleep.1");

    let simulate = || Wasmrun::new(["simulate"]).arg(&file);
    let change = "red:max=CPU=1";
    let before = summary(simulate());
    let after = summary(simulate().args(["--set-tenant", change]));
    for summary in [&before, &after] {
        assert_eq!(summary["finished"], 12, "{summary}");
        assert_eq!(summary["tenants"]["red"]["finished"], 6, "{summary}");
    }
    let red = |summary: &Json, field: &str| summary["tenants"]["red"][field].as_u64();
    let longest = |summary: &Json| red(summary, "wait_max_ms");
    assert!(longest(&after) > longest(&before), "{before}\n{after}");
    assert_eq!(red(&before, "at_quota"), Some(0));
    assert!(red(&after, "at_quota") > Some(0), "{after}");
    let table = simulate().args(["--set-tenant", change]).ok();
    assert_says(
        &table,
        &["before: 12 of 12", "after:  12 of 12", "at quota"],
    );

    let part = ["--tenant", "org", "--anonymous", "--since", "1h"];
    record().arg("--from").arg(&history).args(part).ok();
    let recorded = read();
    let tasks = recorded["tasks"].as_array().expect("a list");
    let count = tasks.iter().filter_map(|it| it["count"].as_u64());
    assert_eq!(count.sum::<u64>(), 6);
    assert_eq!(
        (&tasks[0]["name"], &tasks[0]["tenant"]),
        (&json!("f1.1"), &json!("org/blue"))
    );
}

#[test]
fn changes_and_recordings_that_make_no_sense() {
    let both = Wasmrun::new(["simulate", "a.json", "--record", "b.json"]);
    both.fails_saying(2, &["cannot be used with"]);
    let alone = Wasmrun::new(["simulate", "a.json", "--since", "7d"]);
    alone.fails_saying(2, &["cannot be used with"]);
    Wasmrun::new(["simulate", "a.json", "--set-tenant", "web:wieght=2"])
        .fails_saying(2, &["'wieght=2' must be weight=2"]);
}
