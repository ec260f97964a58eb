//! The audit: who has changed what in a cluster, from where, and what came of it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest};

use crate::cluster::Member;
use crate::elsewhere::{Client, Cluster};
use crate::metrics::{self, Scrape};
use crate::node::Node;

/// Its lines as a node lists them, the last one first.
#[track_caller]
fn lines(at: &Member, filters: &[&str]) -> Vec<Json> {
    let listed = at.command(&[&["audit"], filters].concat()).json(0);
    listed["audit"].as_array().expect("a list").clone()
}

/// The one line of an action with this outcome.
#[track_caller]
fn line(at: &Member, action: &str, outcome: &str) -> Json {
    let found = lines(at, &["--action", action, "--outcome", outcome]);
    let [line] = &found[..] else {
        panic!("{action}: {found:?}")
    };
    line.clone()
}

fn text<'a>(line: &'a Json, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

/// All files in a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the node has made it");
    let mut files: Vec<_> = entries.map(|it| it.expect("listed").path()).collect();
    files.sort();
    files
}

/// What the user is called that runs the tests.
fn own_name() -> String {
    let said = std::process::Command::new("id").arg("-un").output();
    String::from_utf8(said.expect("there is id").stdout).expect("it is a name")
}

#[test]
fn any_node_says_who_has_changed_what() {
    let cluster = Cluster::new();
    let head = &cluster.head;
    let token = head.token(&["--many"]);
    let other = Member::joined("n2", &token);
    let ci = cluster.client();
    let submit = other.command(&["submit", "--detach"]).arg(guest("graph"));
    let task = submit.args(["--invoke", "spin()"]).ok();
    let job = other.command(&["get", task.trim()]).json(0);
    let job = text(&job, "job").to_owned();
    other.command(&["job", "cancel", &job]).ok();
    head.command(&["tenant", "set", "blue", "--weight", "2"])
        .ok();
    let set = ci.command(&["tenant", "set", "blue", "--weight", "9"]);
    set.fails_saying(2, &["this needs the role operator"]);
    head.command(&["node", "drain", "n2"]).ok();

    let user = own_name();
    for at in [head, &other] {
        let submitted = line(at, "task submit", "done");
        assert_eq!(
            [text(&submitted, "node"), text(&submitted, "who")],
            ["n2", user.trim()]
        );
        assert!(text(&submitted, "from").starts_with("socket, process "));
        assert_eq!(text(&submitted, "job"), job);
        assert_says(text(&submitted["details"], "function"), &["spin"]);
        assert_eq!(text(&submitted["details"], "module").len(), 64);
        assert_eq!(text(&line(at, "job cancel", "done"), "subject"), job);
        let of_job = lines(at, &["--job", &job[..12]]);
        assert_eq!(of_job.len(), 2, "{of_job:?}");
        let set = line(at, "tenant set", "done");
        assert_eq!(
            (text(&set, "subject"), &set["details"]["weight"]),
            ("blue", &"2".into())
        );
        let refused = line(at, "tenant set", "refused");
        assert!(text(&refused, "who").starts_with("client "), "{refused}");
        assert!(
            text(&refused, "from").starts_with("127.0.0.1:"),
            "{refused}"
        );
        assert_eq!(text(&refused, "kind"), "usage");
        assert_says(text(&refused, "error"), &["this needs the role operator"]);
        let drained = line(at, "node drain", "done");
        assert_eq!(
            [text(&drained, "node"), text(&drained, "subject")],
            ["n1", "n2"]
        );
        assert_says(text(&line(at, "node join", "done"), "who"), &["token "]);
        assert_eq!(text(&line(at, "client login", "done"), "node"), "n1");
    }
    // The last one first, over all nodes.
    let all = lines(&other, &["--since", "1h"]);
    let times: Vec<_> = all.iter().map(|it| it["time_us"].as_u64()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(lines(&other, &["--limit", "1"])[0], all[0]);
    assert_says(
        &ci.command(&["audit"]).fails(2),
        &["this needs the role operator"],
    );
    // Tokens let others in: their ids alone are in it.
    let dir = head.state().join("audit");
    for file in files(&dir) {
        let written = fs::read_to_string(file).expect("it is ours");
        assert!(!written.contains(token.trim()), "{written}");
    }
    let verified = Wasmrun::new(["audit", "verify"]).arg(&dir).ok();
    assert_says(&verified, &["node n1: lines 1 to ", "as they were written"]);
}

#[test]
fn who_is_not_let_in_is_in_it() {
    let cluster = Cluster::new();
    let head = &cluster.head;
    let ci = cluster.client();
    let login = line(head, "client login", "done");
    head.command(&["client", "revoke", text(&login, "subject")])
        .ok();
    ci.command(&["status"]).fails(4);
    let used = head.token(&["--client"]);
    let login = || {
        Client::new(&cluster.address)
            .command(&["login", &used])
            .run()
    };
    assert_eq!(login().code, Some(0));
    assert_eq!(login().code, Some(4));
    // Each look is a command, which takes its time.
    let is_said = |action: &str, kind: &str| {
        let refused = lines(head, &["--action", action, "--outcome", "refused"]);
        refused.iter().any(|line| text(line, "kind") == kind)
    };
    while !is_said("connect", "certificate") {}
    while !is_said("join", "token") {}
}

#[test]
fn a_restart_goes_on_with_the_chain_and_cuts_off_half_a_line() {
    let mut node = Node::new();
    let dir = node.dir.path().join("kept/audit");
    let folder = dir.display().to_string();
    let start = ["--node-name", "n1", "--audit-dir", folder.as_str()];
    node.start_with(&start);
    node.wasmrun(["tenant", "set", "blue", "--weight", "2"])
        .ok();
    node.wasmrun(["node", "stop"]).ok();
    node.running.take().expect("it runs").end();
    let last = files(&dir).pop().expect("there is one");
    let mut written = fs::read_to_string(&last).expect("it is ours");
    written.push_str("{\"ver");
    fs::write(&last, written).expect("it is ours");

    node.start_with(&[&start[..], &["--metrics=127.0.0.1:0"]].concat());
    let metrics = metrics::address(node.running.as_mut().expect("it runs"));
    let listed = node.wasmrun(["audit"]).json(0);
    let listed = listed["audit"].as_array().expect("a list");
    let actions: Vec<_> = listed.iter().rev().map(|it| text(it, "action")).collect();
    let expected = [
        "node start",
        "tenant set",
        "node stop",
        "node end",
        "node start",
    ];
    assert_eq!(actions, expected);
    let scraped = Scrape::new(metrics);
    assert_eq!(scraped.value("wasmrun_audit_lines_total"), 1.0);
    assert_eq!(scraped.value("wasmrun_audit_missed_total"), 0.0);
    assert_eq!(listed[0]["sequence"], 5);
    assert_eq!(listed[0]["details"]["cut_off_bytes"], "5");
    let verify = || Wasmrun::new(["audit", "verify", folder.as_str()]);
    assert_says(&verify().ok(), &["node n1: lines 1 to 5 are as they were"]);

    let is_it = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|it| it.contains("blue"));
    let file = files(&dir).into_iter().find(is_it).expect("it is there");
    let written = fs::read_to_string(&file).expect("it is ours");
    fs::write(&file, written.replace("blue", "grey")).expect("it is ours");
    let verified = verify().run();
    assert_eq!(verified.code, Some(5), "{verified}");
    let said = verified.stdout_text();
    assert_says(
        &said,
        &["NOT as they were written", ":3: the line before it"],
    );
    let nodes = verify().json(5);
    assert_eq!(nodes["nodes"][0]["breaks"][0]["line"], 3);
}

#[test]
fn what_comes_is_followed() {
    let mut node = Node::new();
    let dir = node.dir.path().join("audit").display().to_string();
    node.start_with(&["--audit-dir", &dir]);
    let mut follower = node.wasmrun(["audit", "--follow"]).start();
    follower.wait_for(Stream::Out, "node start");
    for tenant in ["blue", "green"] {
        node.wasmrun(["tenant", "set", tenant, "--weight", "2"])
            .ok();
        follower.wait_for(Stream::Out, tenant);
    }
    let said = follower.written(Stream::Out);
    assert_eq!(said.matches("tenant set").count(), 2, "{said}");
}

#[test]
fn it_is_filtered_as_other_lists_are() {
    let mut node = Node::new();
    let dir = node.dir.path().join("audit").display().to_string();
    node.start_with(&["--audit-dir", &dir]);
    for tenant in ["blue", "green"] {
        node.wasmrun(["tenant", "set", tenant, "--weight", "2"])
            .ok();
    }
    let said = node.wasmrun(["audit", "-f", "subject=blue"]).json(0);
    let lines = said["audit"].as_array().expect("a list");
    let subjects: Vec<_> = lines.iter().map(|it| text(it, "subject")).collect();
    assert_eq!(subjects, ["blue"]);
    let both = ["audit", "--action", "tenant set", "-f", "subject=green"];
    let said = node.wasmrun(both).json(0);
    assert_eq!(said["audit"].as_array().map(Vec::len), Some(1), "{said}");
    for (filters, says) in [
        ("-f by=me", "no field 'by': it can be filtered by"),
        ("-f who=a --who b", "filtered by who more than once"),
        ("-f subject", "'subject' must be FIELD=VALUE"),
    ] {
        let audit = node.wasmrun(["audit"]).args(filters.split(' '));
        assert_says(&audit.fails(2), &[says]);
    }
}

#[test]
fn an_audit_that_cannot_be_kept_is_refused() {
    let node = Node::new();
    let file = node.dir.path().join("file");
    fs::write(&file, "").expect("the scratch folder can be written");
    let start = || node.wasmrun(["node", "start", "--audit-dir"]);
    start().arg(&file).fails_saying(
        2,
        &["no audit can be kept in", "--audit-dir", "it is a file"],
    );
    let small = start().arg(node.dir.path()).args(["--audit-files", "1KiB"]);
    small.fails_saying(2, &["--audit-files must be 1 MiB or more"]);
    let alone = node.wasmrun(["node", "start", "--audit-required"]);
    alone.fails_saying(2, &["--audit-required", "--audit-dir"]);
    let nothing = Wasmrun::new(["audit", "verify"]).arg(node.dir.path());
    nothing.fails_saying(2, &["there is no audit in"]);
}
