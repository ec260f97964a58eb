//! What commands find and show of a node: without being told where it is, in lists, and values at the border
//! of what travels with its task.

use std::fs;

use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

#[test]
fn a_node_is_found_where_nobody_says_where_it_is() {
    let dir = scratch();
    let wasmrun = |args: &[&str]| Wasmrun::new(args).env("XDG_RUNTIME_DIR", dir.path());
    assert_says(&wasmrun(&["status"]).fails(4), &["no node is running here"]);
    let mut running = wasmrun(&["node", "start", "--node-cpus", "1"]).start();
    running.wait_for(Stream::Out, "listens at unix:");
    let status = wasmrun(&["status"]).json(0);
    assert_eq!(status["total"]["CPU"], "1", "{status}");
    // `submit` goes there too: the task is the node's.
    let submit = wasmrun(&["submit"]).arg(guest("graph"));
    assert_eq!(submit.args(["--invoke", "add(1, 2)"]).ok(), "3\n");
    let listed = wasmrun(&["list", "tasks"]).json(0);
    assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(1));
    wasmrun(&["node", "stop"]).ok();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_filter_that_no_row_can_pass_names_the_choices() {
    let node = Node::start();
    for (what, filter, says) in [
        (
            "tasks",
            "state=runing",
            "'runing' is no value of state: choose from placeable, ",
        ),
        (
            "objects",
            "kept=maybe",
            "'maybe' is no value of kept: choose from yes, no",
        ),
        (
            "tasks",
            "id=none",
            "'none' is no value of id: that is an id",
        ),
    ] {
        node.wasmrun(["list", what, "-f", filter])
            .fails_saying(2, &["error: ", says]);
    }
}

#[test]
fn jobs_nodes_and_tenants_are_listed() {
    let node = Node::start();
    let rows = |what: &str| node.wasmrun(["list", what]).json(0)[what].clone();
    assert_eq!(rows("jobs"), Json::Array(vec![]));
    let spin = |tenant: &str| {
        let spin = node.submit("spin()").args(["--tenant", tenant, "--detach"]);
        spin.ok().trim().to_owned()
    };
    let ids = [spin("red"), spin("red"), spin("blue")];
    node.wait_for("running", 2);
    // What is submitted at once is a job, the newest first.
    let jobs = rows("jobs");
    let all = jobs.as_array().expect("a list");
    assert_eq!(all.len(), 3, "{jobs}");
    assert_eq!(jobs[0]["tenant"], "blue", "{jobs}");
    for job in all {
        assert_eq!(
            (&job["name"], &job["state"]),
            (&"spin".into(), &"running".into())
        );
        let states = &job["states"];
        let live = states["running"].as_u64().zip(states["waiting"].as_u64());
        assert_eq!(
            live.map(|(running, waiting)| running + waiting),
            Some(1),
            "{job}"
        );
    }
    let job = jobs[0]["id"].as_str().expect("an id");
    // The beginning of an id will do.
    for begins in [job, &job[..12]] {
        let filter = format!("job={begins}");
        let tasks = node.wasmrun(["list", "tasks", "-f", &filter]).json(0);
        assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1));
        assert_eq!(tasks["tasks"][0]["id"], *ids[2], "{tasks}");
    }
    let nodes = rows("nodes");
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "{nodes}");
    let tenants = rows("tenants");
    let of = |name: &str| {
        let tenants = tenants.as_array().expect("a list").iter();
        let mut named = tenants.filter(|it| it["name"] == name);
        named.next().expect("it is listed").clone()
    };
    assert_eq!(of("red")["submitted"], 2);
    assert_eq!(of("blue")["submitted"], 1);
    // For people: the same columns.
    for (what, says) in [
        ("jobs", &["id", "tasks", job, "0/1", "spin"][..]),
        ("tenants", &["name", "blue", "red"]),
        ("nodes", &["CPU 2"]),
    ] {
        assert_says(&node.wasmrun(["list", what]).ok(), says);
    }
    for (id, tenant) in ids.iter().zip(["red", "red", "blue"]) {
        node.wasmrun(["cancel", id]).fails_saying(
            2,
            &["there is no task, actor or job", "of tenant 'default'"],
        );
        node.wasmrun(["cancel", id, "--tenant", tenant]).ok();
    }
    node.wait_for("cancelled", 3);
    for job in rows("jobs").as_array().expect("a list") {
        assert_eq!(
            (&job["state"], &job["states"]["cancelled"]),
            (&"cancelled".into(), &1.into())
        );
    }
}

#[test]
fn what_is_ended_is_named_as_a_whole() {
    let node = Node::start();
    let said = |args: &[&str]| {
        let ended = node.wasmrun([]).args(args).run();
        let is_good = ended.code == Some(0) && ended.stdout.is_empty();
        assert!(is_good, "{ended}");
        ended.stderr
    };
    let spin = || {
        let spin = node.submit("spin()").arg("--detach").ok();
        node.wait_for("running", 1);
        spin.trim().to_owned()
    };
    let task = spin();
    let expected = format!("task {task} (spin) is cancelled, and all that it has started\n");
    assert_eq!(said(&["cancel", &task[..20]]), expected);
    node.wait_for("cancelled", 1);
    assert_eq!(said(&["cancel", "-q", &spin()]), "");
    node.wait_for("cancelled", 2);
    let create = |name| {
        let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
        let id = create.args(["counter", "1", "--name", name]).ok();
        id.trim().to_owned()
    };
    for (name, command) in [("one", &["cancel"][..]), ("two", &["actor", "kill"])] {
        let id = create(name);
        let said = said(&[command, &[name]].concat());
        assert_eq!(said, format!("actor {name} ({id}) is ended\n"));
    }
    let file = node.dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let object = node.wasmrun(["put"]).arg(&file).ok();
    let object = object.trim();
    let deleted = format!("object {object} is deleted\n");
    assert_eq!(said(&["object", "delete", &object[..30]]), deleted);
    let create = ["group", "create", "--detach", "--kind", "pack"];
    let create = node
        .wasmrun(create)
        .args(["--bundle", "cpus=1", "--name", "g"]);
    let group = create.ok();
    let removed = format!(
        "placement group g ({}) is removed, and what ran in it has ended\n",
        group.trim()
    );
    assert_eq!(said(&["group", "remove", "g"]), removed);
}

#[test]
fn results_up_to_64_kib_stay_with_their_task() {
    let node = Node::start();
    let file = node.dir.path().join("argument");
    for (bytes, place) in [(65_536, "inline"), (65_537, "memory")] {
        let value: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
        fs::write(&file, &value).unwrap();
        let submit = node.wasmrun(["submit"]).arg(guest("sdk"));
        let submit = submit.args(["--invoke", "echo-bytes()", "--detach", "--arg-file"]);
        let id = submit.arg(format!("1={}", file.display())).ok();
        let (id, back) = (id.trim(), node.dir.path().join("back"));
        node.wasmrun(["object", "get", id, "-O"]).arg(&back).ok();
        assert!(fs::read(&back).unwrap() == value, "{bytes}");
        let objects = node.wasmrun(["object", "list"]).json(0);
        let objects = objects["objects"].as_array().expect("a list").iter();
        let is_it = |row: &&Json| row["id"].as_str().is_some_and(|it| it.starts_with(id));
        let found: Vec<_> = objects.filter(is_it).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["size_bytes"], bytes);
        assert_eq!(found[0]["place"], place, "{bytes}");
    }
}
