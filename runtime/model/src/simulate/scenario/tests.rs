//! Tests of reading scenarios.

use proptest::prelude::*;

use super::limits::*;
use super::*;
use crate::simulate::fuzz_scenario;

const EXAMPLES: [&str; 3] = [
    include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/scenarios/drf.json"
    )),
    include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/scenarios/gpus.json"
    )),
    include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/scenarios/growth.json"
    )),
];

/// Every field that there is.
const FULL: &str = r#"{ "seed": 7, "policy": "fair", "strategy": "spread",
  "nodes": [{"name":"n1","count":1,
             "resources":{"CPU":9,"memory":"18GiB","GPU":2,"bw":"sum:2.5","tpu":4},
             "labels":{"zone":"a"}},
            {"name":"m","count":2,"resources":{"CPU":4}}],
  "tenants": [{"name":"A","weight":1.5,"min_share":{"CPU":2},"resource_weights":{"CPU":"0.5"},
               "max":{"CPU":8,"memory":"1GiB","GPU":0},"max_tasks":9}],
  "tasks": [{"name":"a","tenant":"A","count":100,"submit_at_ms":3,"duration_ms":1000,
             "resources":{"CPU":1,"memory":"4GiB","bw":0.0001},"priority":-2,"retries":3,
             "strategy":"default","labels":["zone=a","gpu, !spot"],
             "args":[{"bytes":104857600,"on":"n2"},{"bytes":"1kB","on":"m-1"}],
             "alternatives":[{"GPU":0.5}],"after":["b","c"]},
            {"name":"b","duration_ms":0,"resources":{},
             "strategy":{"node_affinity":{"node":"m-0","soft":true}},
             "labels":[["zone=a"],["zone=b","x"]]},
            {"name":"c","duration_ms":5,"resources":{"CPU":1},
             "strategy":{"placement_group":{"kind":"strict_spread","bundles":[{"CPU":1},{"GPU":1}]}}},
            {"name":"d","duration_ms":5,"resources":{"CPU":0}}],
  "events": [{"at_ms":900,"remove_node":"n1"},
             {"at_ms":500,"add_node":{"name":"n2","resources":{"CPU":4}}},
             {"at_ms":950,"set_resource":{"node":"n2","name":"GPU","capacity":1}},
             {"at_ms":950,"add_node":{"name":"n1","resources":{"CPU":1}}}] }"#;

fn error(text: &str) -> String {
    Scenario::parse(text).unwrap_err().to_string()
}

/// The error of a scenario with this task.
fn task_error(fields: &str) -> String {
    error(&format!(
        r#"{{"nodes":[{{"name":"n1","resources":{{"CPU":4}}}},
                      {{"name":"m","count":3,"resources":{{}}}}],
            "tasks":[{{"name":"first","duration_ms":1,"resources":{{}}}},
                     {{{fields}}}]}}"#
    ))
}

/// The error of a scenario whose task has these fields besides the required ones.
fn more_error(fields: &str) -> String {
    task_error(&format!(
        r#""name":"t","duration_ms":1,"resources":{{"CPU":1}},{fields}"#
    ))
}

/// The error of a scenario with these nodes and events.
fn node_error(nodes: &str, events: &str) -> String {
    error(&format!(
        r#"{{"nodes":[{nodes}],"tasks":[],"events":[{events}]}}"#
    ))
}

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

#[test]
fn every_field_is_read() {
    let scenario = Scenario::parse(FULL).unwrap();
    assert_eq!((scenario.seed, scenario.policy), (7, Policy::Fair));
    let names: Vec<&str> = scenario.node_names.iter().map(AsRef::as_ref).collect();
    assert_eq!(names, ["n1", "m-0", "m-1", "n2"]);
    assert_eq!(scenario.nodes[1].instances, [NodeNo(1), NodeNo(2)]);
    let node = &scenario.nodes[0];
    let total = "{CPU: 9, GPU: 2, memory: 18GiB, bw: 2.5, tpu: 4}";
    assert_eq!(node.total().to_string(), total);
    assert_eq!(node.node_resources().total().to_string(), total);
    let kinds: Vec<PoolKind> = node.resources.iter().map(|it| it.kind).collect();
    use PoolKind::{Indexed, Sum};
    assert_eq!(kinds, [Indexed, Indexed, Sum, Sum, Indexed]);
    assert_eq!(node.labels.to_string(), "zone=a");

    let tenants: Vec<&str> = scenario.tenants.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(tenants, ["A", "default"]);
    let config = &scenario.tenants[0].config;
    assert_eq!(config.weight.to_string(), "1.5");
    assert_eq!(config.min_share.to_string(), "{CPU: 2}");
    let max = |name| config.quota.max[&name].to_string();
    assert_eq!(max(ResourceName::CPU), "8");
    assert_eq!(max(ResourceName::GPU), "0");
    assert_eq!(max(ResourceName::MEMORY), (1u64 << 30).to_string());
    assert_eq!(config.quota.max_tasks, Some(9));
    assert_eq!(
        config.resource_weights[&ResourceName::CPU].to_string(),
        "0.5"
    );

    let a = &scenario.tasks[0];
    assert_eq!((a.tenant, a.count, a.submit_at_ms), (TenantNo(0), 100, 3));
    assert_eq!((a.duration_ms, a.priority, a.retries), (1000, -2, Some(3)));
    assert_eq!(a.requests.len(), 2);
    let bw = a.requests[0].amounts().get(&"bw".parse().unwrap());
    assert_eq!(bw, Amount::from_steps(1));
    assert_eq!(
        a.requests[1].amounts().get(&ResourceName::GPU),
        amount("0.5")
    );
    assert_eq!(a.placement, Placement::Default);
    assert_eq!(a.selectors.to_string(), "zone=a,gpu,!spot");
    assert_eq!(a.args.iter().map(|arg| arg.bytes).sum::<u64>(), 104_858_600);
    assert_eq!(a.args[0].on, NodeNo(3));
    assert_eq!(a.after, [EntryNo(1), EntryNo(2)]);
    assert_eq!(a.instance(7).to_string(), "a-7");
    let b = &scenario.tasks[1];
    let (node, soft) = (NodeNo(1), true);
    assert_eq!(b.placement, Placement::NodeAffinity { node, soft });
    assert_eq!(b.selectors.as_slice().len(), 2);
    assert_eq!((b.count, b.retries, b.tenant), (1, None, TenantNo(1)));
    let Placement::PlacementGroup { kind, bundles, .. } = &scenario.tasks[2].placement else {
        panic!("{:?}", scenario.tasks[2].placement)
    };
    assert_eq!((*kind, bundles.len()), (GroupKind::StrictSpread, 2));
    assert_eq!(scenario.tasks[3].placement, Placement::Spread);
    assert_eq!(scenario.tasks.iter().map(|it| it.count).sum::<u32>(), 103);
}

#[test]
fn events_are_in_the_order_of_time_then_of_the_file() {
    let scenario = Scenario::parse(FULL).unwrap();
    let times: Vec<u64> = scenario.events.iter().map(|event| event.at_ms).collect();
    assert_eq!(times, [500, 900, 950, 950]);
    assert_eq!(scenario.events[1].change, Change::RemoveNode(NodeNo(0)));
    let set = Change::SetResource {
        node: NodeNo(3),
        name: ResourceName::GPU,
        capacity: Amount::ONE,
    };
    assert_eq!(scenario.events[2].change, set);
    // It comes back, under its number.
    let Change::AddNode(entry) = &scenario.events[3].change else {
        panic!("{:?}", scenario.events[3])
    };
    assert_eq!(entry.instances, [NodeNo(0)]);
}

#[test]
fn little_is_required() {
    let scenario = Scenario::parse("\u{feff} {\"nodes\":[],\"tasks\":[]}\n").unwrap();
    assert_eq!((scenario.seed, scenario.policy), (0, Policy::Drf));
    assert!(scenario.tenants.is_empty() && scenario.events.is_empty());
}

#[test]
fn the_examples_are_scenarios() {
    for example in EXAMPLES {
        Scenario::parse(example).unwrap();
    }
}

#[test]
fn amounts_are_those_of_the_text() {
    // 0.1 + 0.2 and the like: no float comes near them.
    let of = |text: &str| {
        let text = format!(
            r#"{{"nodes":[],"tasks":[{{"name":"a","duration_ms":1,"resources":{{"x":{text}}}}}]}}"#
        );
        let scenario = Scenario::parse(&text);
        scenario.map(|it| it.tasks[0].requests[0].amounts().get(&"x".parse().unwrap()))
    };
    assert_eq!(of("0.3").unwrap(), Amount::from_steps(3_000));
    assert_eq!(
        of("9007199254740.9931").unwrap(),
        amount("9007199254740.9931")
    );
    assert_eq!(of("\"1.50\"").unwrap(), amount("1.5"));
    assert_eq!(of("\"\\u0031\"").unwrap(), amount("1"));
    for bad in [
        "1e3",
        "1E-2",
        "NaN",
        "null",
        "[]",
        "\"\"",
        "-1",
        "1.00005",
        "\"\\ud800\"",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
}

#[test]
fn wrong_json_names_line_and_column() {
    let expected = "it is not JSON: key must be a string, at line 2, column 13; correct it there";
    assert_eq!(error("{\n \"nodes\":[],}"), expected);
    assert!(error("").contains("EOF while parsing a value, at line 1, column 0"));
    assert!(error("{\"nodes\":[NaN]}").starts_with("it is not JSON: expected value"));
    assert!(error("{} x").starts_with("it is not JSON: trailing characters"));
    assert_eq!(
        error("[]"),
        "the scenario: this is a list, and an object with fields belongs here; write {\"name\": …}"
    );
    // Deep nesting costs no stack.
    let deep = format!(
        "{{\"nodes\":{}{}}}",
        "[".repeat(1 << 20),
        "]".repeat(1 << 20)
    );
    assert!(error(&deep).starts_with("nodes[0]: this is a list"));
}

#[test]
fn the_position_is_that_of_the_value() {
    let text = "{\"nodes\": [],\n  \"tasks\": [{\"name\": \"a\",\n    \"resources\": {\"CPU\": 1.5},\n  \"duration_ms\":1}]}";
    let error = Scenario::parse(text).unwrap_err();
    assert_eq!(error.line_and_column(), Some((3, 26)));
    assert_eq!(
        error.to_string(),
        "tasks[0].resources.CPU: 1.5 is not possible: a resource with ids is asked for in whole \
         units (1, 2, …) or as a share below 1 of one unit; ask for 1 or 2, or for 0.5"
    );
    let error = Scenario::parse("  {\"nodes\": 3}").unwrap_err();
    assert_eq!(error.line_and_column(), Some((1, 13)));
}

#[test]
fn unknown_and_missing_fields() {
    let unknown = more_error(r#""duration_s":1"#);
    assert!(
        unknown.starts_with(
            "tasks[1]: there is no field `duration_s` here (did you mean duration_ms?); known are \
             name, tenant, count,"
        ),
        "{unknown}"
    );
    assert!(error(r#"{"version":1}"#).contains("there is no field `version` here; known are seed"));
    assert_eq!(
        task_error(r#""name":"a","resources":{}"#),
        "tasks[1]: the field `duration_ms` is missing; add it, for example \"duration_ms\": 1000"
    );
    assert!(error("{\"tasks\":[]}").starts_with("the scenario: the field `nodes` is missing"));
    assert_eq!(
        more_error(r#""count":1,"count":2"#),
        "tasks[1]: `count` is given twice in one object; keep one"
    );
    assert_eq!(
        task_error(r#""name":"a","duration_ms":1,"resources":{"CPU":1,"CPU":1}"#),
        "tasks[1].resources: `CPU` is given twice in one object; keep one"
    );
    assert!(
        node_error("", r#"{"at_ms":1}"#)
            .starts_with("events[0]: 0 of add_node, remove_node, set_resource are given")
    );
    assert!(
        node_error("", r#"{"at_ms":1,"remove_node":"a","add_node":{}}"#)
            .starts_with("events[0]: 2 of")
    );
    assert!(node_error("", r#"{"remove_node":"a"}"#).contains("events[0]: the field `at_ms`"));
}

#[test]
fn wrong_types_and_numbers() {
    let cases = [
        (
            r#""count":"3""#,
            "tasks[1].count: this is a string, and a whole number belongs here",
        ),
        (
            r#""count":1.0"#,
            "tasks[1].count: 1.0 is not possible: this is a whole number from 1 to",
        ),
        (r#""count":0"#, "tasks[1].count: 0 is not possible"),
        (
            r#""count":10000001"#,
            "tasks[1].count: 10000001 is not possible",
        ),
        (
            r#""submit_at_ms":-1"#,
            "tasks[1].submit_at_ms: -1 is not possible: this is a whole number from 0 to 3155760000000 ms (100 years)",
        ),
        (
            r#""submit_at_ms":1e3"#,
            "tasks[1].submit_at_ms: 1e3 is not possible",
        ),
        (
            r#""priority":99999999999999999999"#,
            "tasks[1].priority: 99999999999999999999 is not",
        ),
        (
            r#""tenant":null"#,
            "tasks[1].tenant: this is null, and the name of a tenant belongs",
        ),
        (
            r#""tenant":"a b""#,
            "tasks[1].tenant: 'a b' is not a tenant name",
        ),
        (
            r#""tenant":"\udc00""#,
            "tasks[1].tenant: this string stands for no text",
        ),
        (
            r#""labels":"zone=a""#,
            "tasks[1].labels: this is a string, and a list belongs here",
        ),
        (r#""labels":["zone=a","=x"]"#, "tasks[1].labels[1]: "),
        (
            r#""labels":[["zone=a"],"x"]"#,
            "tasks[1].labels[1]: this is a string, and a list",
        ),
        (
            r#""labels":["x",["zone=a"]]"#,
            "tasks[1].labels[1]: this is a list, and the text of",
        ),
        (
            r#""labels":[[]]"#,
            "tasks[1].labels[0]: a selector of nothing is none",
        ),
        (
            r#""strategy":"sprad""#,
            "tasks[1].strategy: 'sprad' means nothing here (did you mean spread?)",
        ),
        (r#""strategy":7"#, "tasks[1].strategy: this is a number"),
        (
            r#""strategy":{}"#,
            "tasks[1].strategy: 0 of node_affinity, placement_group are given",
        ),
        (
            r#""strategy":{"node_affinity":{}}"#,
            "tasks[1].strategy.node_affinity: the field `node`",
        ),
        (
            r#""strategy":{"node_affinity":{"node":"n1","soft":0}}"#,
            "tasks[1].strategy.node_affinity.soft: this is a number, and true or false",
        ),
        (
            r#""args":[{"bytes":1.5,"on":"n1"}]"#,
            "tasks[1].args[0].bytes: 1.5 is not possible",
        ),
        (
            r#""args":[{"bytes":"2PiB","on":"n1"}]"#,
            "tasks[1].args[0].bytes: '2PiB' is too large",
        ),
        (
            r#""args":[{"bytes":"1.5PiB","on":"n1"}]"#,
            "tasks[1].args[0].bytes: 1.5PiB is not possible",
        ),
        (
            r#""args":[{"bytes":1}]"#,
            "tasks[1].args[0]: the field `on` is missing",
        ),
        (
            r#""alternatives":[{"GPU":1.5}]"#,
            "tasks[1].alternatives[0].GPU: 1.5 is not possible",
        ),
        (
            r#""alternatives":[{"1x":1}]"#,
            "tasks[1].alternatives[0].1x: '1x' is not a resource name",
        ),
        (
            r#""alternatives":[{"a b":1}]"#,
            "tasks[1].alternatives[0].\"a b\": 'a b' is not a",
        ),
        (r#""retries":-1"#, "tasks[1].retries: -1 is not possible"),
    ];
    for (fields, expected) in cases {
        let found = more_error(fields);
        assert!(found.starts_with(expected), "{fields}: {found}");
    }
    assert!(error(r#"{"policy":"drff"}"#).starts_with("policy: "));
    assert!(
        error(r#"{"strategy":{"node_affinity":{"node":"n1"}}}"#)
            .starts_with("strategy: this is an object")
    );
    assert!(error(r#"{"seed":-1}"#).starts_with("seed: -1 is not possible"));
}

#[test]
fn amounts_of_tasks_and_nodes() {
    let of = |amounts: &str| {
        task_error(&format!(
            r#""name":"a","duration_ms":1,"resources":{{{amounts}}}"#
        ))
    };
    assert!(
        of(r#""CPU":1.00005"#).starts_with("tasks[1].resources.CPU: '1.00005' has more precision")
    );
    assert!(of(r#""CPU":-1"#).starts_with("tasks[1].resources.CPU: '-1' is negative"));
    assert!(of(r#""CPU":"4GiB""#).starts_with("tasks[1].resources.CPU: '4GiB' has a suffix"));
    assert!(of(r#""memory":"4GX""#).starts_with("tasks[1].resources.memory: '4GX' ends in an"));
    assert!(of(r#""x":"sum:2""#).starts_with("tasks[1].resources.x: 'sum:2' is not an amount"));
    assert!(of(r#""CPU":true"#).starts_with("tasks[1].resources.CPU: this is true or false"));
    let node =
        |amounts: &str| node_error(&format!(r#"{{"name":"n","resources":{{{amounts}}}}}"#), "");
    assert_eq!(
        node(r#""bw":2.5"#),
        "nodes[0].resources.bw: a capacity of 2.5 is not possible: units of bw have ids, so it is \
         a whole number of at most 1048576; write \"sum:2.5\" if they need no ids"
    );
    assert!(node(r#""bw":1048577"#).contains("write \"sum:1048577\""));
    assert!(node(r#""CPU":0.5"#).starts_with("nodes[0].resources.CPU: a capacity of 0.5 is not"));
    assert!(
        node(r#""CPU":"sum:1""#).starts_with("nodes[0].resources.CPU: CPU=sum:1 is not possible")
    );
    let many: Vec<_> = (0..=256).map(|i| format!("\"r{i}\":1")).collect();
    assert!(node(&many.join(",")).starts_with("nodes[0].resources: 257 resources are more than"));
    let set = |capacity: &str, name: &str| {
        node_error(
            r#"{"name":"n","resources":{"bw":"sum:1"}}"#,
            &format!(
                r#"{{"at_ms":1,"set_resource":{{"node":"n","name":"{name}","capacity":{capacity}}}}}"#
            ),
        )
    };
    assert!(set("2.5", "GPU").starts_with("events[0].set_resource.capacity: a capacity of 2.5"));
    assert!(set("2.5", "tpu").starts_with("events[0].set_resource.capacity: a capacity of 2.5"));
    assert!(set("\"sum:2\"", "bw").starts_with("events[0].set_resource.capacity: 'sum:2' is not"));
    assert!(set("1", "a b").starts_with("events[0].set_resource.name: 'a b' is not"));
    // What is a sum takes parts.
    let ok = r#"{"nodes":[{"name":"n","resources":{"bw":"sum:1"}}],"tasks":[],
        "events":[{"at_ms":1,"set_resource":{"node":"n","name":"bw","capacity":2.5}}]}"#;
    assert!(Scenario::parse(ok).is_ok());
}

#[test]
fn tenants() {
    let of = |tenants: &str| {
        error(&format!(
            r#"{{"nodes":[],"tasks":[],"tenants":[{tenants}]}}"#
        ))
    };
    assert!(of(r#"{"name":"A","weight":0}"#).starts_with("tenants[0].weight: "));
    assert!(of(r#"{"name":"A","weight":-2}"#).starts_with("tenants[0].weight: "));
    assert!(
        of(r#"{"name":"A","resource_weights":{"CPU":0}}"#)
            .starts_with("tenants[0].resource_weights.CPU: ")
    );
    assert!(
        of(r#"{"name":"A","min_share":{"CPU":-1}}"#)
            .starts_with("tenants[0].min_share.CPU: '-1' is negative")
    );
    assert!(
        of(r#"{"name":"A","max":{"CPU":-1}}"#).starts_with("tenants[0].max.CPU: '-1' is negative")
    );
    assert!(of(r#"{"name":"A","max_tasks":-1}"#).starts_with("tenants[0].max_tasks: "));
    assert!(of(r#"{"name":"A//B"}"#).starts_with("tenants[0].name: "));
    assert!(of(r#"{"name":""}"#).starts_with("tenants[0].name: "));
    assert_eq!(
        of(r#"{"name":"A"},{"name":"A"}"#),
        "tenants[1].name: the name A is taken by a tenant listed before; choose another one"
    );
    // More than there is may be guaranteed: the cluster may grow.
    let ok = r#"{"nodes":[],"tasks":[],"tenants":[{"name":"A","min_share":{"CPU":1000}}]}"#;
    assert!(Scenario::parse(ok).is_ok());
}

#[test]
fn names_are_unique() {
    let node = |nodes: &str| node_error(nodes, "");
    let bare = |name: &str| format!(r#"{{"name":"{name}","resources":{{}}}}"#);
    let counted = |name: &str| format!(r#"{{"name":"{name}","count":2,"resources":{{}}}}"#);
    let both = |a: String, b: String| format!("{a},{b}");
    assert_eq!(
        node(&both(bare("n"), bare("n"))),
        "nodes[1].name: the name n is taken by a node that is there already; choose another one"
    );
    for (first, second) in [
        (bare("n-1"), counted("n")),
        (counted("n"), bare("n-1")),
        (counted("n"), bare("n")),
        (bare("n"), counted("n")),
        (counted("n"), counted("n")),
    ] {
        let found = node(&both(first.clone(), second.clone()));
        assert!(
            found.starts_with("nodes[1].name: the name n"),
            "{first} {second}: {found}"
        );
        assert!(found.contains("taken by"), "{found}");
    }
    assert!(
        node_error(
            &bare("n"),
            r#"{"at_ms":5,"add_node":{"name":"n","resources":{}}}"#
        )
        .starts_with("events[0].add_node.name: the name n is taken by a node that is there")
    );
    for name in ["", "-a", "a b", "é", "a/b", &"x".repeat(64)] {
        assert!(node(&bare(name)).starts_with("nodes[0].name: "), "{name}");
        let task = task_error(&format!(
            r#""name":"{name}","duration_ms":1,"resources":{{}}"#
        ));
        assert!(task.starts_with("tasks[1].name: "), "{task}");
    }
    assert_eq!(
        task_error(r#""name":"first","duration_ms":1,"resources":{}"#),
        "tasks[1].name: the name first is taken by a task listed before; choose another one"
    );
}

#[test]
fn names_that_nothing_has() {
    assert_eq!(
        more_error(r#""args":[{"bytes":1,"on":"n2"}]"#),
        "tasks[1].args[0].on: there is no node n2 (did you mean n1?); name one of `nodes`, or one \
         that an event adds"
    );
    assert_eq!(
        more_error(r#""strategy":{"node_affinity":{"node":"m"}}"#),
        "tasks[1].strategy.node_affinity.node: m stands for 3 nodes, m-0 to m-2; name one of them"
    );
    assert!(
        more_error(r#""after":["firts"]"#)
            .starts_with("tasks[1].after[0]: there is no task firts (did you mean first?)")
    );
    assert_eq!(
        more_error(r#""after":["first-0"]"#),
        "tasks[1].after[0]: first-0 is one instance of first; write first, which means all of them"
    );
    assert_eq!(
        more_error(r#""after":["first","first"]"#),
        "tasks[1].after[1]: first stands in this list twice; keep one"
    );
    assert!(more_error(r#""after":[3]"#).starts_with("tasks[1].after[0]: this is a number"));
    let n = r#"{"name":"n","resources":{}}"#;
    assert!(
        node_error(n, r#"{"at_ms":5,"remove_node":"x"}"#)
            .starts_with("events[0].remove_node: there is no node x")
    );
    assert_eq!(
        node_error(
            n,
            r#"{"at_ms":5,"remove_node":"n"},{"at_ms":5,"remove_node":"n"}"#
        ),
        "events[1].remove_node: the node n is not there at 5 ms; name one that is, or change the \
         time"
    );
    // In the order of time, not of the file.
    assert!(
        node_error(
            n,
            r#"{"at_ms":9,"remove_node":"n"},{"at_ms":3,"remove_node":"n"}"#
        )
        .starts_with("events[0].remove_node: the node n is not there at 9 ms")
    );
}

#[test]
fn circles_are_named() {
    let tasks = |after: &[(&str, &str)]| {
        let task = |(name, after): &(&str, &str)| {
            format!(r#"{{"name":"{name}","duration_ms":1,"resources":{{}},"after":[{after}]}}"#)
        };
        let tasks: Vec<_> = after.iter().map(task).collect();
        format!(r#"{{"nodes":[],"tasks":[{}]}}"#, tasks.join(","))
    };
    assert_eq!(
        error(&tasks(&[
            ("x", "\"a\""),
            ("a", "\"b\""),
            ("b", "\"c\""),
            ("c", "\"a\"")
        ])),
        "tasks[3].after: these tasks wait for each other, so none can start: a after b after c \
         after a; take one `after` out"
    );
    assert!(error(&tasks(&[("a", "\"a\"")])).contains("start: a after a;"));
    let diamond = [
        ("a", "\"b\",\"c\""),
        ("b", "\"d\""),
        ("c", "\"d\""),
        ("d", ""),
    ];
    assert!(Scenario::parse(&tasks(&diamond)).is_ok());
    // A chain as long as this would overflow a stack, and a circle of it is shortened.
    let chain = |last: &str| {
        let tasks = (0..100_000).map(|i| {
            let next = if i == 99_999 {
                last.into()
            } else {
                format!("\"t{}\"", i + 1)
            };
            format!(r#"{{"name":"t{i}","duration_ms":1,"resources":{{}},"after":[{next}]}}"#)
        });
        let tasks: Vec<_> = tasks.collect();
        format!(r#"{{"nodes":[],"tasks":[{}]}}"#, tasks.join(","))
    };
    assert!(Scenario::parse(&chain("")).is_ok());
    let found = error(&chain("\"t0\""));
    assert!(found.contains("t9 after (99990 more) after t0;"), "{found}");
}

#[test]
fn groups() {
    let of = |group: &str| more_error(&format!(r#""strategy":{{"placement_group":{group}}}"#));
    let at = "tasks[1].strategy.placement_group";
    let cases = [
        (r#"{"kind":"pack"}"#, ": the field `bundles` is missing"),
        (r#"{"bundles":[]}"#, ": the field `kind` is missing"),
        (
            r#"{"kind":"packed","bundles":[]}"#,
            ".kind: 'packed' is no kind of placement group",
        ),
        (
            r#"{"kind":"pack","bundles":[]}"#,
            ".bundles: a list of bundles of nothing is none",
        ),
        (
            r#"{"kind":"pack","bundles":[{}]}"#,
            ".bundles[0]: a bundle of nothing is none",
        ),
        (
            r#"{"kind":"pack","bundles":[{"CPU":1.5}]}"#,
            ".bundles[0].CPU: 1.5 is not possible",
        ),
        (
            r#"{"kind":"pack","bundles":[{"CPU":0.5},{"GPU":1}]}"#,
            ".bundles: none of the 2 bundles",
        ),
        (
            r#"{"kind":"pack","bundles":[{"CPU":1},{"CPU":1}],"label_selectors":["zone=a"]}"#,
            ".label_selectors: 1 label selectors are given for 2 bundles",
        ),
        (
            r#"{"kind":"pack","bundles":[{"CPU":1}],"label_selectors":["=x"]}"#,
            ".label_selectors[0]: ",
        ),
    ];
    let labelled =
        r#""labels":["a"],"strategy":{"placement_group":{"kind":"pack","bundles":[{"CPU":1}]}}"#;
    let found = more_error(labelled);
    assert!(
        found.starts_with("tasks[1].labels: labels have no meaning"),
        "{found}"
    );
    for (group, expected) in cases {
        let found = of(group);
        assert!(
            found.starts_with(&format!("{at}{expected}")),
            "{group}: {found}"
        );
    }
}

#[test]
fn sizes_have_limits() {
    let two = r#"{"nodes":[],"tasks":[
        {"name":"a","count":6000000,"duration_ms":1,"resources":{}},
        {"name":"b","count":4000001,"duration_ms":1,"resources":{}}]}"#;
    assert_eq!(
        error(two),
        "tasks[1]: 10000001 instances of tasks in all are more than the limit of 10000000; use \
         fewer"
    );
    assert!(Scenario::parse(&two.replace("4000001", "4000000")).is_ok());
    let nodes =
        r#"{"name":"a","count":60000,"resources":{}},{"name":"b","count":40001,"resources":{}}"#;
    assert!(node_error(nodes, "").starts_with("nodes[1].name: 100001 nodes, with those that"));
    let ids = r#"{"name":"a","count":101,"resources":{"tpu":1000000}}"#;
    assert!(node_error(ids, "").starts_with("nodes[0].resources.tpu: 101000000 units with ids"));
    let long = format!(
        r#"{{"nodes":[],"tasks":[{{"name":"a","count":10000,"duration_ms":{TIME_MS_MAX},"resources":{{}}}}]}}"#
    );
    assert!(
        error(&long).starts_with("tasks: all tasks together run for up to 31557600000000000 ms")
    );
    assert!(Scenario::parse(&long.replace("10000,", "5000,")).is_ok());
    let bundles = vec![r#"{"CPU":1}"#; 257].join(",");
    assert!(
        more_error(&format!(
            r#""strategy":{{"placement_group":{{"kind":"pack","bundles":[{bundles}]}}}}"#
        ))
        .contains("bundles: 257 bundles are more than the limit of 256")
    );
    let huge = " ".repeat(FILE_BYTES_MAX + 1);
    assert!(error(&huge).starts_with("the scenario has 67108865 bytes, more than the 67108864"));
    // Different resources on many nodes: together no more than one node may have.
    let nodes: Vec<_> = (0..257)
        .map(|i| format!(r#"{{"name":"n{i}","resources":{{"r{i}":1}}}}"#))
        .collect();
    let found = node_error(&nodes.join(","), "");
    assert!(
        found.starts_with("nodes[256].name: 257 different resources"),
        "{found}"
    );
}

#[test]
fn limits_are_what_the_documentation_says() {
    assert_eq!(TIME_MS_MAX, 100 * 365 * 86_400_000 + 25 * 86_400_000);
    assert!(HORIZON_MS_MAX.checked_mul(1_000).is_some());
    assert!(ARG_BYTES_MAX.checked_mul(ARGS_MAX).is_some());
}

/// Pieces of scenarios: spliced into a scenario they make something near the border between right
/// and wrong.
const PIECES: [&str; 24] = [
    "0",
    "-1",
    "1.5",
    "1e9",
    "null",
    "{}",
    "[]",
    "\"\"",
    "\"n1\"",
    "\"a\"",
    "{\"CPU\":1}",
    "[{}]",
    "\"count\":2,",
    "\"tasks\"",
    "\"after\":[\"a\"],",
    ",",
    "}",
    "]",
    "\"\\ud800\"",
    "\"sum:1\"",
    "99999999999999999999",
    "\"m\"",
    "true",
    "\"strategy\":{\"node_affinity\":{\"node\":\"m-1\"}},",
];

proptest! {
    /// Scenarios with a few bytes changed, cut out or put in.
    #[test]
    fn damaged_scenarios_do_no_harm(
        which in 0..4usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 32..127u8), 0..4),
        pieces in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0..20usize), 0..3),
    ) {
        let text = EXAMPLES.get(which).copied().unwrap_or(FULL);
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        for (at, piece, cut) in pieces {
            let at = at.index(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, PIECES[piece].bytes());
        }
        fuzz_scenario(&bytes);
    }

    /// Whole values replaced, so that what is left is JSON: every error names the place.
    #[test]
    fn wrong_values_are_errors_with_a_place(at: prop::sample::Index, piece in 0..PIECES.len()) {
        let starts: Vec<usize> = FULL.match_indices(':').map(|(at, _)| at + 1).collect();
        let start = starts[at.index(starts.len())];
        let value = FULL[start..].trim_start();
        let start = FULL.len() - value.len();
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<&serde_json::value::RawValue>();
        let Some(Ok(old)) = values.next() else { return Ok(()) };
        let text = format!("{}{}{}", &FULL[..start], PIECES[piece], &value[old.get().len()..]);
        fuzz_scenario(text.as_bytes());
        match Scenario::parse(&text) {
            Err(ScenarioError::Invalid { place, .. }) => prop_assert!(place.len() > 2, "{}", place),
            Err(ScenarioError::NotJson { .. }) | Ok(_) => {}
            Err(ScenarioError::TooLarge { .. }) => prop_assert!(false),
        }
    }
}
