//! Rules of the scheduler that a request meets on a real cluster, and how they are told.

use serde_json::Value as Json;
use wasmrun_tests::{Wasmrun, assert_says, guest};

use crate::anywhere::rows;
use crate::cluster::Member;
use crate::faults::eventually;
use crate::placing::nodes;
use crate::spread::Three;

fn text(value: &Json) -> &str {
    value.as_str().expect("a text")
}

/// A function of the guest, called at a node.
fn call(at: &Member, call: &str) -> Wasmrun {
    let submit = at.command(&["submit"]).arg(guest("spread"));
    submit.args(["--invoke", call])
}

/// The units that it names are that node's, and not those of the node that was asked.
#[test]
fn a_report_names_the_node_that_ran_the_task() {
    let [a, b, c] = nodes([("a", &[]), ("b", &["--node-gpus", "2"]), ("c", &[])]);
    let ended = call(&a, "place()").args(["--gpus", "1"]).json(0);
    assert_eq!((text(&ended["node"]), text(&ended["result"])), ("b", "b"));
    assert_eq!(ended["resource_ids"]["GPU"][0][1], "1", "{ended}");
    let many = call(&c, "place()").args(["--strategy", "spread", "--array", "0-8"]);
    let many = many.json(0);
    let tasks = many["tasks"].as_array().expect("a list");
    assert!(tasks.iter().all(|it| it["node"] == it["result"]), "{many}");
    assert!(tasks.iter().any(|it| it["node"] != "c"), "{many}");
    // One that fails, and a program, whose input is no stream of the node that is asked.
    let failed = call(&c, "fail()").args(["--strategy", "node:b"]).json(5);
    assert_eq!(failed["node"], "b", "{failed}");
    let program = a.command(&["submit"]).arg(guest("prog"));
    let program = program.args(["--retries", "1", "--gpus", "1"]);
    let ended = program.program(["args"]).json(0);
    assert_eq!(ended["node"], "b", "{ended}");
    b.wait_for_rest();
}

#[test]
fn a_report_names_the_last_node_that_ran_the_task() {
    let mut three = Three::new();
    let stay = call(&three.a, "stay(\"go\")");
    let stay = stay
        .args(["-o", "json", "--strategy", "node:b:soft"])
        .start();
    let runs = |at: &Member, is_there: &dyn Fn(&str) -> bool| {
        eventually("it ran", || {
            let list = ["list", "tasks", "-f", "state=running", "-f", "name=stay"];
            let listed = at.command(&list).json(0);
            let mut rows = listed["tasks"].as_array().expect("a list").iter();
            let is_seen = rows.any(|row| is_there(text(&row["node"])));
            is_seen.then_some(()).ok_or(listed)
        });
    };
    runs(&three.a, &|node| node == "b");
    three.b.kill();
    runs(&three.a, &|node| node != "b");
    let create = three.a.command(&["actor", "create"]).arg(guest("spread"));
    create.args(["tally", "0", "--name", "go"]).ok();
    let ended = stay.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let ended: Json = serde_json::from_slice(&ended.stdout).expect("an object");
    assert_eq!(ended["node"], ended["result"], "{ended}");
    assert_ne!(ended["node"], "b", "{ended}");
}

/// A group that stays, whose bundles are as these say.
fn group(at: &Member, args: &[&str]) -> String {
    let create = at.command(&["group", "create", "--detach"]).args(args);
    create.ok().trim().to_owned()
}

/// The nodes of its bundles, once all are there.
fn nodes_of(at: &Member, group: &str) -> Vec<String> {
    let ready = ["group", "ready", group, "--timeout", "90s"];
    at.command(&ready).ok();
    let row = rows(at, "groups", &[&format!("id={group}")]).remove(0);
    let bundles = row["bundles"].as_array().expect("bundles").iter();
    bundles.map(|it| text(&it["node"]).to_owned()).collect()
}

#[test]
fn bundles_are_on_nodes_with_the_labels_that_they_want() {
    let zone = |zone: &'static str| ["--node-label", zone];
    let (of_a, of_b, of_c) = (zone("zone=a"), zone("zone=b"), zone("zone=b"));
    let [a, mut b, mut c] = nodes([("a", &of_a), ("b", &of_b), ("c", &of_c)]);
    let own = [
        "--bundle",
        "cpus=0.1 @ zone=b",
        "--bundle",
        "cpus=0.1 @ zone=a",
    ];
    for kind in ["pack", "spread", "strict_spread"] {
        let made = group(&c, &[&["--kind", kind], &own[..]].concat());
        let places = nodes_of(&a, &made);
        assert!(places[0] != "a" && places[1] == "a", "{kind}: {places:?}");
        for (bundle, node) in places.iter().enumerate() {
            let strategy = format!("group:{made}:{bundle}");
            let place = call(&a, "place()").args(["--strategy", &strategy, "--cpus", "0.1"]);
            assert_eq!(place.json(0)["result"], **node);
        }
        a.command(&["group", "remove", &made]).ok();
    }
    // What runs in a group goes where that is, and may not say where else.
    let spec = r#"{"kind": "pack", "bundles": [{"CPU": "0.1", "memory": "300MiB"}], "label_selectors": ["zone=b,!spot"]}"#;
    let made = group(&a, &["--spec", spec]);
    let before = nodes_of(&a, &made).remove(0);
    assert_ne!(before, "a");
    let strategy = format!("group:{made}");
    let within = [
        "--strategy",
        &strategy,
        "--cpus",
        "0.1",
        "--label-selector",
        "zone=b",
    ];
    let says = [
        "a label selector has no meaning for what runs in it",
        "group create --label-selector",
    ];
    assert_says(&call(&c, "place()").args(within).fails(3), &says);
    assert_says(
        &call(&c, "place()").args(within).arg("--detach").fails(3),
        &says,
    );
    let create = a.command(&["actor", "create"]).arg(guest("spread"));
    assert_says(
        &create
            .args(["tally", "0", "--name", "t"])
            .args(within)
            .fails(3),
        &says,
    );
    // Its node is lost: the other one that has the label gets it.
    let (lost, after) = match &before[..] {
        "b" => (&mut b, "on node c"),
        _ => (&mut c, "on node b"),
    };
    lost.kill();
    eventually("it moved", || {
        let said = a.command(&["explain", &made]).ok();
        said.contains(after).then_some(()).ok_or(said)
    });
    let missing = [
        "--kind",
        "pack",
        "--bundle",
        "cpus=0.1",
        "--label-selector",
        "zone=z",
    ];
    let made = group(&a, &missing);
    let late = a.command(&["group", "ready", &made, "--timeout", "100ms"]);
    late.fails_saying(6, &["bundle 0: label zone=z matches none of "]);
}

#[test]
fn what_a_group_has_reserved_is_used_by_its_tenant() {
    let [a, b] = nodes([("a", &[]), ("b", &[])]);
    let made = group(
        &a,
        &[
            "--kind",
            "strict_spread",
            "--bundle",
            "cpus=0.5",
            "--bundle",
            "cpus=0.5",
            "--tenant",
            "red",
        ],
    );
    a.command(&[
        "group",
        "ready",
        &made,
        "--tenant",
        "red",
        "--timeout",
        "90s",
    ])
    .ok();
    let used = |at: &Member| {
        let listed = at.command(&["tenant", "list"]).json(0);
        let mut rows = listed["tenants"].as_array().expect("a list").iter();
        let red = rows.find(|row| row["name"] == "red").cloned();
        red.map_or(Json::Null, |row| row["used"]["CPU"].clone())
    };
    for at in [&a, &b] {
        eventually("its share counts", || {
            let used = used(at).to_string();
            used.contains('1').then_some(()).ok_or(used)
        });
    }
    a.command(&["group", "remove", &made, "--tenant", "red"])
        .ok();
    for at in [&a, &b] {
        eventually("it was given back", || {
            let used = used(at).to_string();
            (!used.contains('1')).then_some(()).ok_or(used)
        });
    }
}

#[test]
fn a_program_that_reads_a_stream_is_told_what_ties_it_to_its_node() {
    let program = |at: &Member| {
        let submit = at.command(&["submit", "--gpus", "1"]).arg(guest("prog"));
        submit.stdin("line").program(["cat"])
    };
    let [a, b] = nodes([("a", &[]), ("b", &[])]);
    let said = program(&a).fails(3);
    let says = [
        "no node can ever run this task: GPU: needs 1",
        "and one other cannot either",
    ];
    assert_says(&said, &says);
    assert!(!said.contains("affinity"), "{said}");
    let token = a.token(&[]);
    let mut c = Member::new("c");
    c.start(&["--join", &token, "--node-gpus", "1"]);
    b.wait_for_incarnation("c", 1);
    let said = program(&b).fails(3);
    let says = [
        "node b can never run this task: GPU: needs 1",
        "its standard input comes to node b and to no other",
        "submit it at node c, which can",
    ];
    assert_says(&said, &says);
    assert_eq!(program(&c).ok(), "line");
    // Given as a whole it goes there, and so does nothing.
    let submit = || b.command(&["submit", "--gpus", "1"]);
    let whole = submit().args(["--retries", "1"]).arg(guest("prog"));
    assert_eq!(whole.stdin("line").program(["cat"]).ok(), "line");
    let nothing = submit().args(["--stdin", "/dev/null"]).arg(guest("prog"));
    assert_eq!(nothing.program(["cat"]).ok(), "");
}

#[test]
fn a_group_that_nobody_has_made_is_told_as_such() {
    let [a, b] = nodes([("a", &[]), ("b", &[])]);
    let strategy = "group:000102030405060708090a0b0c0d0e0f";
    call(&a, "place()")
        .args(["--strategy", strategy])
        .fails_saying(
            5,
            &["the tenant has no placement group 000102030405060708090a0b0c0d0e0f"],
        );
    let made = group(&a, &["--kind", "pack", "--bundle", "cpus=0.1"]);
    // Known to another node only, and at once.
    let place = call(&b, "place()").args(["--strategy", &format!("group:{made}"), "--cpus", "0.1"]);
    place.ok();
    let strategy = format!("group:{made}:1");
    let said = call(&b, "place()").args(["--strategy", &strategy]).run();
    assert_says(
        &said.stderr,
        &["has no bundle 1 that can ever hold this task: it has 1, numbered from 0"],
    );
    a.command(&["group", "remove", &made]).ok();
    for at in [&a, &b] {
        let gone = call(at, "place()")
            .args(["--strategy", &format!("group:{made}")])
            .run();
        assert_says(&gone.stderr, &["the tenant has no placement group"]);
    }
}

#[test]
fn no_memory_is_a_limit_like_any_other_of_tasks_and_actors_alike() {
    let [a] = nodes([("a", &[])]);
    let says = ["memory limit of 0 bytes reached: the guest asked for "];
    let said = call(&a, "place()").args(["--memory", "0"]).fails(5);
    assert_says(&said, &says);
    let create = a.command(&["actor", "create"]).arg(guest("spread"));
    let create = create.args(["tally", "0", "--name", "t", "--memory", "0"]);
    assert_says(&create.fails(5), &says);
    assert_says(&a.command(&["explain", "t"]).ok(), &says);
}
