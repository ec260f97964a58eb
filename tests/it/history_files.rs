//! Attempts that a node writes to files: `node start --history-dir`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value as Json;
use wasmrun_tests::{assert_says, guest};

use crate::node::Node;

/// All lines of all files in a folder.
fn lines(dir: &Path) -> Vec<Json> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the node has made it") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("it has one").to_string_lossy();
        assert!(name.starts_with("wasmrun-n1-") && name.ends_with("Z.jsonl"));
        let text = std::fs::read_to_string(&path).expect("it is ours");
        assert!(text.ends_with('\n'), "{text}");
        let parsed = text.lines().map(serde_json::from_str::<Json>);
        lines.extend(parsed.map(|line| line.expect("each line is JSON")));
    }
    lines
}

fn keys(object: &Json) -> BTreeSet<&str> {
    let fields = object.as_object().expect("an object");
    fields.keys().map(String::as_str).collect()
}

#[test]
fn attempts_are_known_when_the_node_is_gone() {
    let mut node = Node::new();
    let dir = node.dir.path().join("kept/history");
    let text = dir.display().to_string();
    node.start_with(&["--node-name", "n1", "--history-dir", &text]);
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
    // It starts `crash`, and ends well.
    node.submit("error-of(\"trap\")").ok();
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "1", "--name", "total", "--cpus", "0.5"]);
    create.ok();
    node.wasmrun(["actor", "kill", "total"]).ok();
    // It ends because the node does.
    node.submit("spin()").arg("--detach").ok();
    node.wait_for("running", 1);
    let listed = node.wasmrun(["list", "attempts"]).json(0);
    node.wasmrun(["node", "stop", "--now"]).ok();
    let ended = node.running.take().expect("it runs").end();
    assert_eq!(ended.code, Some(0), "{ended}");

    let lines = lines(&dir);
    let states = lines.iter().map(|line| {
        let text = |key: &str| line[key].as_str().unwrap_or_default();
        (text("name"), text("state"))
    });
    let expected = [
        ("add", "finished"),
        ("wasmrun:graph/tests@0.1.0#counter", "cancelled"),
        ("crash", "failed"),
        ("error-of", "finished"),
        ("spin", "cancelled"),
    ];
    assert_eq!(states.collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    let named = |name: &str| lines.iter().find(|line| line["name"] == name);
    let (parent, crash) = (named("error-of"), named("crash"));
    let (parent, crash) = (parent.expect("it is there"), crash.expect("it is there"));
    assert_eq!(
        (&crash["parent"], &crash["job"]),
        (&parent["id"], &parent["job"])
    );
    let actor = lines.iter().find(|line| !line["actor"].is_null());
    let actor = actor.expect("it is there");
    // The resources that it held while it lived.
    assert_eq!(actor["held"]["CPU"], "0.5", "{actor}");
    let error = crash["error"].as_str().expect("it failed");
    assert_says(error, &["the guest trapped"]);
    for line in &lines {
        assert_eq!(line["version"], 1, "{line}");
        let time = line["time"].as_str().expect("text");
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
    let mut row = keys(&listed["attempts"][0]);
    row.extend(["version", "time"]);
    row.remove("age_ms");
    assert_eq!(keys(crash), row);
    let mode = std::fs::metadata(&dir).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let node = Node::new();
    let file = node.dir.path().join("file");
    std::fs::write(&file, "").expect("the scratch folder can be written");
    let start = || node.wasmrun(["node", "start", "--history-dir"]);
    start().arg(&file).fails_saying(
        2,
        &[
            "no history can be written to",
            "--history-dir",
            "it is a file",
        ],
    );
    let small = start()
        .arg(node.dir.path())
        .args(["--history-files", "1KiB"]);
    small.fails_saying(2, &["--history-files must be 1 MiB or more"]);
    let alone = node.wasmrun(["node", "start", "--history-files", "1GiB"]);
    alone.fails_saying(2, &["--history-dir"]);
}
