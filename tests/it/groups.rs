//! Placement groups on three nodes: where their bundles are, who runs in them, and what becomes of both.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest};

use crate::cluster::{Member, wait_for_rest};
use crate::node::Node;
use crate::spread::{Three, call};

/// What creates a group that stays, at a node.
fn creating(at: &Member, kind: &str, bundles: &[&str]) -> Wasmrun {
    let create = at.command(&["group", "create", "--detach", "--kind", kind]);
    let bundles = bundles.iter();
    bundles.fold(create, |create, bundle| create.args(["--bundle", bundle]))
}

/// A group that stays, created at a node. Its id.
fn create(at: &Member, kind: &str, bundles: &[&str]) -> String {
    creating(at, kind, bundles).ok().trim().to_owned()
}

fn ready(at: &Member, group: &str) {
    at.command(&["group", "ready", group, "--timeout", "90s"])
        .ok();
}

fn remove(at: &Member, group: &str) {
    at.command(&["group", "remove", group]).ok();
}

/// What is listed of a group, as some node says.
fn row(at: &Member, group: &str) -> Option<Json> {
    let listed = at.command(&["list", "groups"]).json(0);
    let groups = listed["groups"].as_array().expect("a list");
    groups.iter().find(|row| row["id"] == group).cloned()
}

/// The nodes of its bundles.
fn nodes(at: &Member, group: &str) -> Vec<String> {
    let row = row(at, group).expect("it is listed");
    let bundles = row["bundles"].as_array().expect("bundles").iter();
    let nodes = bundles.map(|it| it["node"].as_str().expect("it is ready").to_owned());
    nodes.collect()
}

fn strategy(group: &str, bundle: usize) -> String {
    format!("group:{group}:{bundle}")
}

/// The node where a task ran by a strategy, submitted at this one.
fn place(at: &Member, strategy: &str) -> String {
    let place = call(at, "place()").args(["--strategy", strategy]).ok();
    place.trim().trim_matches('"').to_owned()
}

/// Something that runs until it is stopped, in a bundle.
fn spin(at: &Member, strategy: &str) -> wasmrun_tests::Running {
    let spinning = || {
        let list = ["list", "tasks", "-f", "state=running", "-f", "name=spin"];
        let tasks = at.command(&list).json(0);
        tasks["tasks"].as_array().expect("a list").len()
    };
    let before = spinning();
    let running = call(at, "spin()").args(["--strategy", strategy]).start();
    while spinning() == before {}
    running
}

#[test]
fn each_bundle_of_a_strict_spread_is_on_a_node_of_its_own() {
    let three = Three::new();
    let group = create(
        &three.a,
        "strict_spread",
        &["cpus=0.5", "cpus=0.5", "cpus=0.5"],
    );
    ready(&three.b, &group);
    let nodes = nodes(&three.c, &group);
    let distinct: BTreeSet<&String> = nodes.iter().collect();
    assert_eq!(distinct.len(), 3, "{nodes:?}");
    // From any node to any bundle.
    for at in [&three.a, &three.b, &three.c] {
        for (bundle, node) in nodes.iter().enumerate() {
            assert_eq!(place(at, &strategy(&group, bundle)), *node);
        }
    }
    // Any bundle will do; a guest names them as a driver does, also one that runs in the group itself.
    assert!(nodes.contains(&place(&three.b, &format!("group:{group}"))));
    let by: Vec<String> = (0..3)
        .map(|it| format!("\"{}\"", strategy(&group, it)))
        .collect();
    let by = call(&three.b, &format!("places-by([{}])", by.join(", ")));
    let want = format!(
        "ok([{}])\n",
        nodes
            .iter()
            .map(|it| format!("\"{it}\""))
            .collect::<Vec<_>>()
            .join(", ")
    );
    assert_eq!(by.args(["--strategy", &strategy(&group, 1)]).ok(), want);
    // An actor lives in a bundle.
    let actor = three.a.command(&["actor", "create"]).arg(guest("spread"));
    let actor = actor.args(["tally", "0", "--name", "t", "--cpus", "0.1"]);
    actor.args(["--strategy", &strategy(&group, 2)]).ok();
    let lives = three.a.command(&["actor", "call", "t", "place()"]).ok();
    assert_eq!(lives, format!("\"{}\"\n", nodes[2]));
    // Its tenant's alone.
    let other = call(&three.a, "place()").args(["--tenant", "other"]);
    let refused = other.args(["--strategy", &strategy(&group, 0)]).run();
    assert_says(&refused.stderr, &["the tenant has no placement group"]);
    let other = three.a.command(&["group", "remove", &group]);
    other
        .args(["--tenant", "other"])
        .fails_saying(2, &["there is no placement group"]);
    remove(&three.b, &group);
    wait_for_rest([&three.a, &three.b, &three.c]);
    let dead = three.a.command(&["actor", "call", "t", "place()"]).run();
    assert_ne!(dead.code, Some(0), "{dead}");
}

#[test]
fn all_bundles_of_a_strict_pack_are_on_one_node() {
    let three = Three::new();
    let group = create(
        &three.b,
        "strict_pack",
        &["cpus=0.3", "cpus=0.3", "cpus=0.3"],
    );
    ready(&three.b, &group);
    let nodes = nodes(&three.a, &group);
    assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    for bundle in 0..3 {
        assert_eq!(place(&three.c, &strategy(&group, bundle)), nodes[0]);
    }
    let said = three.a.command(&["explain", &group]).ok();
    let on = format!("bundle 2: CPU 0.3, memory 256MiB: on node {}", nodes[0]);
    assert_says(&said, &["(strict_pack) has been ready for ", &on]);
    // What asks for more than a bundle has never runs in it.
    let much = call(&three.c, "place()").args(["--cpus", "0.5"]);
    let much = much
        .args(["--strategy", &format!("group:{group}")])
        .fails(3);
    assert_says(&much, &["can ever hold this task", "one bundle has"]);
    remove(&three.c, &group);
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn a_group_that_cannot_be_had_says_why_and_what_waits_for_it_does_too() {
    let three = Three::new();
    let spec = r#"{"kind": "pack", "bundles": [{"CPU": 2, "memory": "1GiB"}]}"#;
    let create_spec = three
        .b
        .command(&["group", "create", "--detach", "--name", "big"]);
    let group = create_spec.args(["--spec", spec]).json(0)["group"].clone();
    let group = group.as_str().expect("an id").to_owned();
    let late = three.a.command(&["group", "ready", "big", "--timeout"]);
    let late = late.arg("100ms").fails(6);
    let why =
        "bundle 0 fits none of 3 nodes, not even an empty one (CPU: needs 2, node has 1 in total)";
    assert_says(
        &late,
        &["timed out: placement group ", "is not ready: ", why],
    );
    let said = three.c.command(&["explain", "big"]).ok();
    assert_says(
        &said,
        &["(pack) has been pending for ", why, "on no node yet"],
    );
    // A task of it waits, at a node that is not its owner, and says why.
    let task = call(&three.c, "place()").args(["--detach", "--strategy"]);
    let task = task.arg(strategy(&group, 0)).ok().trim().to_owned();
    loop {
        let said = three.a.command(&["explain", &task]).ok();
        if said.contains(why) {
            assert_says(&said, &["it waits for placement group ", &group]);
            break;
        }
    }
    // It ends with its group, and says so.
    remove(&three.c, "big");
    loop {
        let ended = three.c.command(&["get", &task]).json(0);
        if ended["state"] == "failed" {
            let error = ended["error"]["message"].as_str().expect("a text");
            assert_says(error, &["placement group ", " was removed"]);
            break;
        }
    }
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn what_runs_in_a_group_that_is_removed_is_killed() {
    let three = Three::new();
    let group = create(&three.a, "strict_spread", &["cpus=1", "cpus=1", "cpus=1"]);
    ready(&three.a, &group);
    // Its owner's, and another node's.
    let first = spin(&three.a, &strategy(&group, 0));
    let second = spin(&three.b, &strategy(&group, 2));
    remove(&three.c, &group);
    for running in [first, second] {
        let ended = running.end();
        assert_eq!(ended.code, Some(5), "{ended}");
        assert_says(&ended.stderr, &["placement group ", " was removed"]);
    }
    wait_for_rest([&three.a, &three.b, &three.c]);
    assert!(row(&three.b, &group).is_none());
    // Nobody finds it any more.
    three
        .b
        .command(&["group", "ready", &group])
        .fails_saying(2, &["there is no placement group"]);
    let late = call(&three.b, "place()").args(["--strategy", &strategy(&group, 0)]);
    late.fails_saying(5, &["has no placement group"]);
}

#[test]
fn a_bundle_of_a_lost_node_is_reserved_on_another() {
    let mut three = Three::new();
    let group = create(&three.a, "strict_spread", &["cpus=0.5", "cpus=0.5"]);
    ready(&three.a, &group);
    let before = nodes(&three.a, &group);
    let lost = before.iter().position(|node| node != "a").expect("one");
    let (victim, left) = match &*before[lost] {
        "b" => (&mut three.b, &three.c),
        _ => (&mut three.c, &three.b),
    };
    // It runs there when the node is lost, and again in its bundle's new place.
    let running = spin(left, &strategy(&group, lost));
    victim.kill();
    let name = left.name().to_owned();
    loop {
        let row = row(left, &group).expect("it is there");
        let nodes: Vec<&Json> = row["bundles"].as_array().expect("bundles").iter().collect();
        if nodes
            .iter()
            .all(|it| it["node"] == "a" || it["node"] == *name)
            && row["state"] == "ready"
        {
            break;
        }
    }
    ready(left, &group);
    let after = nodes(left, &group);
    assert_eq!(BTreeSet::from_iter(&after).len(), 2, "{after:?}");
    assert_eq!(after[1 - lost], before[1 - lost], "the other one stays");
    assert_eq!(place(left, &strategy(&group, lost)), after[lost]);
    running.signal(Signal::INT);
    running.end();
    remove(left, &group);
    wait_for_rest([&three.a, left]);
}

#[test]
fn the_bundles_of_a_lost_owner_are_given_back() {
    let mut three = Three::new();
    // One that is detached would be taken over.
    let keep = three.b.command(&["group", "create", "--kind"]);
    let keep = keep.args(["strict_spread", "--name", "mine"]);
    let bundle = ["--bundle", "cpus=1"];
    let mut keep = (0..3).fold(keep, |keep, _| keep.args(bundle)).start();
    keep.wait_for(Stream::Err, "until Ctrl-C");
    ready(&three.a, "mine");
    let listed = three.a.command(&["list", "groups"]).json(0);
    let group = listed["groups"][0]["id"].as_str().expect("an id");
    let group = group.to_owned();
    let nodes = nodes(&three.a, &group);
    let at_c = nodes.iter().position(|node| node == "c").expect("one");
    let running = spin(&three.a, &strategy(&group, at_c));
    three.b.kill();
    assert_ne!(keep.end().code, Some(0));
    let ended = running.end();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(
        &ended.stderr,
        &["placement group ", "the node that owned it is lost"],
    );
    wait_for_rest([&three.a, &three.c]);
    assert!(row(&three.a, &group).is_none());
}

#[test]
fn of_two_groups_that_do_not_fit_together_one_waits_for_the_other() {
    let three = Three::new();
    let all = ["cpus=1", "cpus=1", "cpus=1"];
    // Planned at two nodes, neither of which knows of the other's plan.
    let begun = [&three.b, &three.c].map(|at| creating(at, "strict_spread", &all).start());
    let [one, other] = begun.map(|it| it.end().stdout_text().trim().to_owned());
    let (first, second) = loop {
        let state = |group: &str| row(&three.a, group).expect("it is there")["state"].clone();
        match (state(&one) == "ready", state(&other) == "ready") {
            (true, true) => panic!("nobody has that much"),
            (true, false) => break (&one, &other),
            (false, true) => break (&other, &one),
            (false, false) => {}
        }
    };
    let waits = row(&three.a, second).expect("it is there");
    assert!(waits["why"].is_string(), "{waits}");
    let running = spin(&three.a, &strategy(first, 0));
    remove(&three.a, first);
    running.end();
    ready(&three.a, second);
    remove(&three.a, second);
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn a_group_ends_with_the_command_that_keeps_it() {
    let three = Three::new();
    let keep = three
        .a
        .command(&["group", "create", "--kind", "spread", "--bundle", "cpus=1"]);
    let mut keep = keep.args(["--name", "mine"]).start();
    keep.wait_for(Stream::Err, "until Ctrl-C");
    three.b.command(&["group", "ready", "mine"]).ok();
    keep.signal(Signal::INT);
    assert_eq!(keep.end().code, Some(130));
    loop {
        let listed = three.b.command(&["group", "list"]).json(0);
        if listed["groups"].as_array().expect("a list").is_empty() {
            break;
        }
    }
    wait_for_rest([&three.a, &three.b, &three.c]);
}

#[test]
fn what_cannot_be_a_group_is_refused() {
    let alone = Node::start();
    let create = |args: &[&str]| alone.wasmrun(["group", "create", "--detach"]).args(args);
    let refused = |args: &[&str], says: &[&str]| assert_says(&create(args).fails(2), says);
    refused(&[], &["--kind <KIND>", "--bundle <AMOUNTS>"]);
    refused(&["--kind", "pack"], &["--bundle <AMOUNTS>"]);
    refused(
        &["--kind", "tight", "--bundle", "cpus=1"],
        &["'tight' is no kind of placement group: use pack, "],
    );
    refused(
        &["--kind", "pack", "--bundle", "cpus"],
        &["for '--bundle <AMOUNTS>'", "'cpus' must be NAME=AMOUNT"],
    );
    refused(&["--kind", "pack", "--bundle", "cpus=1.5"], &["CPU"]);
    refused(
        &["--kind", "pack", "--bundle", "memory=0"],
        &["bundle 0 asks for nothing"],
    );
    refused(
        &["--kind", "pack", "--bundle", "cpus=1", "--name", "a b"],
        &["'a b' is no name for a placement group"],
    );
    refused(
        &["--kind", "pack", "--bundle", "cpus=1", "--tenant", "a b"],
        &["for '--tenant <NAME>'"],
    );
    refused(
        &["--spec", "{\"kind\": \"pack\"}"],
        &["cannot read --spec", "missing field `bundles`"],
    );
    refused(&["--spec", "/no/such/file"], &["cannot read /no/such/file"]);
    refused(
        &["--spec", "{}", "--kind", "pack"],
        &["cannot be used with"],
    );
    let command = |args: &[&str]| alone.wasmrun(["group"]).args(args);
    assert_says(
        &command(&["remove", "x"]).fails(2),
        &["no placement group 'x'"],
    );
    assert_says(
        &command(&["ready", "x"]).fails(2),
        &["no placement group 'x'"],
    );
    command(&["ready", "x", "--timeout", "soon"]).fails_saying(2, &["for '--timeout <DURATION>'"]);
    // Where no node runs there are no groups.
    let id = "000102030405060708090a0b0c0d0e0f";
    let nowhere = Wasmrun::call("noop()").args(["--strategy", &strategy(id, 0)]);
    nowhere.fails_saying(2, &["groups live in a running node"]);
}

#[test]
fn a_node_that_is_alone_has_groups_too() {
    let alone = Node::start();
    let create = |bundle| {
        let create = alone.wasmrun(["group", "create", "--detach", "--kind", "pack"]);
        create.args(["--bundle", bundle])
    };
    // Nobody can come to help.
    let never = create("cpus=3").fails(3);
    let why = "can never reserve the placement group: bundle 0 fits none";
    assert_says(&never, &[why]);
    let group = create("cpus=2").ok().trim().to_owned();
    alone.wasmrun(["group", "ready", &group]).ok();
    let waits = create("cpus=2").ok().trim().to_owned();
    let late = alone.wasmrun(["group", "ready", &waits, "--timeout", "1ms"]);
    late.fails_saying(6, &["is not ready: bundle 0: no node has room"]);
    let submit = |strategy: &str| {
        let submit = alone.wasmrun(["submit", "-q"]).arg(guest("spread"));
        submit.args(["--invoke", "sum([1, 2])", "--strategy", strategy])
    };
    assert_eq!(submit(&strategy(&group, 0)).ok(), "3\n");
    // Where there is one node only, a folder is there too.
    let folder = submit(&strategy(&group, 0)).args(["--dir", "/::/all:ro"]);
    assert_eq!(folder.ok(), "3\n");
    submit(&strategy(&group, 1)).fails_saying(3, &["can ever hold this task"]);
    submit(&strategy("000102030405060708090a0b0c0d0e0f", 0))
        .fails_saying(3, &["has no placement group"]);
    // What is given back goes to who waits.
    alone.wasmrun(["group", "remove", &group]).ok();
    alone.wasmrun(["group", "ready", &waits]).ok();
    assert_eq!(submit(&format!("group:{waits}")).ok(), "3\n");
    alone.wasmrun(["group", "remove", &waits]).ok();
    loop {
        let nodes = alone.wasmrun(["node", "list"]).json(0);
        if nodes["nodes"][0]["available"] == nodes["nodes"][0]["total"] {
            break;
        }
    }
}
