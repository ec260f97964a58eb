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
    // What is detached is all of one job.
    let jobs = rows("jobs");
    assert_eq!(jobs[0]["tasks"], 3, "{jobs}");
    let job = jobs[0]["id"].as_str().expect("an id");
    let filter = format!("job={job}");
    let tasks = node.wasmrun(["list", "tasks", "-f", &filter]).json(0);
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(3));
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
        ("jobs", &["id", "tasks", job, "3"][..]),
        ("tenants", &["name", "blue", "red"]),
        ("nodes", &["CPU 2"]),
    ] {
        assert_says(&node.wasmrun(["list", what]).ok(), says);
    }
    for (id, tenant) in ids.iter().zip(["red", "red", "blue"]) {
        let other = node.wasmrun(["cancel", id]).fails(2);
        assert_says(
            &other,
            &["there is no task, actor or job", "of tenant 'default'"],
        );
        node.wasmrun(["cancel", id, "--tenant", tenant]).ok();
    }
    node.wait_for("cancelled", 3);
    assert_eq!(rows("jobs"), Json::Array(vec![]), "nothing of it is left");
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
