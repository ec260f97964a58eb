//! Results of detached tasks that no node has any more: who goes on with the record makes them again when somebody needs
//! them.

use std::ffi::OsString;

use serde_json::Value as Json;
use wasmrun_tests::{assert_says, guest};

use super::stops::{detached, has_numbers, occupied, wait_for};
use super::world::{Node, Three, eventually, wait_for_rest};
use crate::metrics::get;

/// How many numbers the results here have: too many for a record.
const COUNT: usize = 100_000;
/// How many bytes are kept to make results again.
const LINEAGE: &str = "wasmrun_detached_lineage_bytes";

/// One of the numbers of a node.
#[track_caller]
fn number(node: &Node, name: &str) -> u64 {
    let (_, text) = get(node.metrics(), "/metrics");
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(it, _)| *it == name);
    let (_, value) = found.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.parse().expect("a number")
}

/// Has numbers made at a node, where that lives, of a task of which the control store knows the end. Its id.
fn ramp(owner: &Node, at: &str) -> String {
    let before = number(owner, LINEAGE);
    let strategy = format!("node:{at}:soft");
    let call = format!("ramp({COUNT})");
    let task = detached(owner, &call, &["--cpus", "1", "--strategy", &strategy]);
    assert_eq!(wait_for(owner, &task, "finished"), at);
    eventually("what it was made of is kept", || {
        match number(owner, LINEAGE) {
            bytes if bytes > before => Ok(()),
            bytes => Err(bytes),
        }
    });
    is_written(owner);
    task
}

/// Waits until the ends of tasks that a node has seen are written down: that is done in their order.
fn is_written(owner: &Node) {
    let next = detached(owner, "place()", &[]);
    wait_for(owner, &next, "finished");
}

/// Waits until a node has a module of the tests here: to make something again takes one.
fn has_module(node: &Node) {
    let folder = node.state().join("modules");
    eventually("the module was there", || {
        let files = folder.read_dir().into_iter().flatten().flatten();
        let is_whole = |name: &OsString| name.to_string_lossy().ends_with(".wasm");
        match files
            .map(|file| file.file_name())
            .any(|name| is_whole(&name))
        {
            true => Ok(()),
            false => Err("nothing is there"),
        }
    });
}

/// What a task made, as a node lists it, once it does.
#[track_caller]
fn object(at: &Node, task: &str) -> Json {
    eventually("the object was listed", || {
        let listed = at.command(&["list", "objects"]).json(0);
        let rows = listed["objects"].as_array().expect("a list");
        let is_it = |row: &&Json| row["id"].as_str().is_some_and(|id| id.starts_with(task));
        match rows.iter().find(is_it) {
            Some(row) => Ok(row.clone()),
            None => Err(listed),
        }
    })
}

/// Three nodes, and a task whose owner `b` is lost, and `c`, which had the result.
fn lost() -> (Three, String) {
    let mut three = Three::new();
    let task = ramp(&three.b, "c");
    has_module(&three.a);
    three.b.kill();
    three.c.kill();
    for name in ["b", "c"] {
        three.a.wait_for(name, "dead");
    }
    (three, task)
}

/// How many results a node has made again.
#[track_caller]
fn made_again(node: &Node) -> u64 {
    number(node, "wasmrun_objects_reconstructed_total")
}

/// Lets go of a result at the only node that is left, which then has nothing.
fn delete(task: &str, at: &Node) {
    at.command(&["object", "delete", task]).ok();
    at.wait_for_rest();
}

#[test]
fn what_is_lost_with_its_owner_and_who_had_it_is_made_again_when_it_is_read() {
    let (three, task) = lost();
    let row = object(&three.a, &task);
    assert_eq!(
        (&row["place"], &row["kept"]),
        (&"lost".into(), &true.into())
    );
    assert_eq!(made_again(&three.a), 0, "nobody needs it yet");
    has_numbers(&three.a, &task, COUNT);
    assert_eq!(made_again(&three.a), 1);
    assert_eq!(object(&three.a, &task)["place"], "memory");
    has_numbers(&three.a, &task, COUNT);
    assert_eq!(made_again(&three.a), 1, "it is there now");
    delete(&task, &three.a);
}

#[test]
fn what_is_lost_is_made_again_for_a_task_that_is_given_it() {
    let (three, task) = lost();
    let row = object(&three.a, &task);
    let id = row["id"].as_str().expect("an id");
    let submit = three.a.command(&["submit", "-q"]).arg(guest("spread"));
    let call = format!("sum-of([\"{id}\"])");
    let ended = submit.args(["--invoke", &call]).run();
    assert_eq!(ended.stdout_text(), "ok(4999950000)\n", "{ended}");
    assert_eq!(made_again(&three.a), 1);
    delete(&task, &three.a);
}

#[test]
fn what_a_head_had_itself_is_made_again_when_it_is_back() {
    let mut three = Three::new();
    let (here, there) = (ramp(&three.a, "a"), ramp(&three.a, "c"));
    three.a.kill();
    three.c.kill();
    three.a.start(&["--head"]);
    three.a.wait_for("b", "alive");
    three.a.wait_for("c", "dead");
    for task in [&here, &there] {
        has_numbers(&three.a, task, COUNT);
        has_numbers(&three.b, task, COUNT);
        three.b.command(&["object", "delete", task]).ok();
    }
    wait_for_rest([&three.a, &three.b]);
}

#[test]
fn what_another_node_has_is_found_there_by_a_head_that_is_back() {
    let mut three = Three::new();
    let task = ramp(&three.a, "c");
    three.a.kill();
    three.a.start(&["--head"]);
    three.meet();
    has_numbers(&three.a, &task, COUNT);
    assert_eq!(made_again(&three.a), 0, "c has it");
    three.c.command(&["object", "delete", &task]).ok();
    wait_for_rest(three.all());
}

#[test]
fn what_was_taken_over_and_is_lost_later_is_made_again() {
    let mut three = Three::new();
    let task = ramp(&three.b, "c");
    has_module(&three.a);
    three.b.kill();
    three.a.wait_for("b", "dead");
    // By somebody. Where it is read there would be a copy.
    wait_for_any(&three.a, &task);
    assert_ne!(object(&three.a, &task)["place"], "lost", "c has it");
    three.c.kill();
    three.a.wait_for("c", "dead");
    has_numbers(&three.a, &task, COUNT);
    assert_eq!(made_again(&three.a), 1);
    delete(&task, &three.a);
}

#[test]
fn what_was_made_again_is_found_where_it_is_then_when_its_owner_is_lost_too() {
    let mut three = Three::new();
    let task = ramp(&three.b, "c");
    three.c.kill();
    three.b.wait_for("c", "dead");
    // It has no CPU for it.
    occupied(&three.b, "b");
    has_numbers(&three.b, &task, COUNT);
    assert_eq!(made_again(&three.b), 1);
    is_written(&three.b);
    three.b.kill();
    three.a.wait_for("b", "dead");
    has_numbers(&three.a, &task, COUNT);
    assert_eq!(made_again(&three.a), 0, "it was there");
    delete(&task, &three.a);
}

#[test]
fn what_there_was_no_room_to_remember_is_lost_and_the_error_says_so() {
    // With their arguments their records have more bytes than a node keeps.
    const TASKS: usize = 150;
    let mut three = Three::new();
    let call = format!("join(\"{}\", 2, none)", "x".repeat(60_000));
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", &call, "--detach", "--strategy", "node:b:soft"]);
    let said = submit.args(["--array", &format!("0-{}", TASKS - 1)]).ok();
    let tasks: Vec<&str> = said.lines().collect();
    assert_eq!(tasks.len(), TASKS);
    for task in &tasks {
        wait_for(&three.b, task, "finished");
    }
    is_written(&three.b);
    assert!(number(&three.b, LINEAGE) <= 8 << 20);
    let dropped = number(&three.b, "wasmrun_detached_lineage_dropped_total");
    assert!(dropped > 0);
    has_module(&three.a);
    three.b.kill();
    three.a.wait_for("b", "dead");
    let (first, last) = (tasks[0], tasks[TASKS - 1]);
    wait_for_any(&three.a, first);
    let lost = three.a.command(&["object", "get", first]).run();
    assert_ne!(lost.code, Some(0), "{lost}");
    let parts = [
        "it had 1200",
        "was let go",
        "8388608 bytes",
        "submit it again",
    ];
    assert_says(&lost.stderr, &parts);
    let got = three.a.command(&["object", "get", last]).run();
    assert_eq!(got.stdout_text().len(), 120_003, "{got}");
    for task in tasks {
        three.a.command(&["object", "delete", task]).ok();
    }
    wait_for_rest([&three.a, &three.c]);
}

/// Waits until a task that has ended was taken over by somebody.
#[track_caller]
fn wait_for_any(at: &Node, task: &str) {
    eventually("it was taken over", || {
        let got = at.command(&["get", task, "-o", "json"]).run();
        let seen: Json = serde_json::from_str(&got.stdout_text()).unwrap_or_default();
        match seen["state"] == "finished" {
            true => Ok(()),
            false => Err(got.to_string()),
        }
    });
}
