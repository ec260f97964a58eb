//! Who may do what, and for whom: clients of other machines by their certificates, users of this one by a file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use wasmrun_tests::{Ended, Wasmrun, assert_says, binary, guest, skipped};

use crate::elsewhere::{Client, Cluster};
use crate::node::Node;

/// Somebody elsewhere, with a token that was made so.
fn client(cluster: &Cluster, args: &[&str]) -> Client {
    let client = Client::new(&cluster.address);
    let token = cluster.head.token(&[&["--client"][..], args].concat());
    client.command(&["login", &token]).ok();
    client
}

/// Who a node takes somebody for.
fn who(whoami: Wasmrun) -> (String, String, String) {
    let told = whoami.json(0);
    let text = |field: &str| told[field].as_str().expect(field).to_owned();
    (text("role"), text("tenants"), text("tenant"))
}

fn texts(all: [&str; 3]) -> (String, String, String) {
    let [role, tenants, tenant] = all.map(str::to_owned);
    (role, tenants, tenant)
}

/// The rows of a list that somebody gets.
fn rows(client: &Client, list: &[&str], name: &str) -> Vec<Json> {
    let listed = client.command(list).json(0);
    listed[name].as_array().expect("a list").clone()
}

/// How many tasks run, as far as somebody is told.
fn running(client: &Client) -> u64 {
    let status = client.command(&["status"]).json(0);
    status["tasks"]["running"].as_u64().expect("a number")
}

/// What is another's is refused in the words in which what is not there is.
#[track_caller]
fn is_hidden(client: &Client, args: &[&str], theirs: &str) {
    let nobodys = match theirs.len() {
        32.. => "ab".repeat(theirs.len() / 2),
        _ => "nobody".to_owned(),
    };
    let said = |id: &str| {
        let args: Vec<&str> = args
            .iter()
            .map(|it| if *it == "ID" { id } else { *it })
            .collect();
        let Ended { code, stderr, .. } = client.command(&args).run();
        (code, stderr.replace(id, "ID"))
    };
    let of_theirs = said(theirs);
    assert_ne!(of_theirs.0, Some(0), "{args:?}");
    assert_eq!(of_theirs, said(&nobodys), "{args:?}");
}

#[test]
fn what_is_another_tenants_does_not_exist() {
    let cluster = Cluster::new();
    let alice = client(&cluster, &["--name", "alice", "--tenant", "a"]);
    let bob = client(&cluster, &["--name", "bob", "--tenant", "b"]);
    let mine = texts(["submitter", "a", "a"]);
    assert_eq!(who(alice.command(&["whoami"])), mine);
    // What bob has: a task that runs, one that has ended and its result, an object, an actor.
    let spins = bob.submit("spin()").args(["--detach", "--cpus", "0"]).ok();
    let spins = spins.trim();
    let ended = bob
        .submit("add(40, 2)")
        .arg("--detach")
        .ok()
        .trim()
        .to_owned();
    while bob.command(&["get", &ended]).json(0)["state"] != "finished" {}
    let put = bob.command(&["put"]).arg(guest("graph")).ok();
    let put = put.trim();
    let create = bob.command(&["actor", "create"]).arg(guest("graph"));
    create
        .args(["counter", "10", "--name", "total", "--cpus", "0"])
        .ok();
    let actors = rows(&bob, &["list", "actors"], "actors");
    let actor = actors[0]["id"].as_str().expect("an id");
    let jobs = rows(&bob, &["list", "jobs"], "jobs");
    let job = jobs[0]["id"].as_str().expect("an id");

    for id in [spins, &ended, actor, job] {
        for command in ["get", "explain", "cancel", "logs"] {
            is_hidden(&alice, &[command, "ID"], id);
        }
    }
    for args in [&["object", "get", "ID"][..], &["object", "delete", "ID"]] {
        is_hidden(&alice, args, &ended);
        is_hidden(&alice, args, put);
    }
    is_hidden(&alice, &["get", "ID"], put);
    is_hidden(&alice, &["actor", "call", "ID", "add(1)"], "total");
    is_hidden(&alice, &["actor", "kill", "ID"], "total");
    is_hidden(&alice, &["actor", "kill", "ID"], actor);

    // She has something of her own, and sees that alone.
    assert_eq!(alice.submit("add(1, 2)").ok(), "3\n");
    for list in ["tasks", "attempts", "jobs", "actors", "objects"] {
        for row in rows(&alice, &["list", list], list) {
            assert_eq!(row["tenant"], "a", "{list}");
        }
        assert!(!rows(&bob, &["list", list], list).is_empty(), "{list}");
    }
    for list in [&["list", "tenants"][..], &["tenant", "list"]] {
        for row in rows(&alice, list, "tenants") {
            assert_eq!(row["name"], "a");
        }
    }
    assert!(rows(&alice, &["list", "modules"], "modules").is_empty());

    // Nor are bob's tasks counted for her.
    assert_eq!(running(&alice), 0);
    assert_ne!(running(&bob), 0);

    // A tenant that she does not have is none, whether there is such a one or not.
    let submit = |tenant: &str| {
        let submit = alice.submit("add(1, 2)").args(["--tenant", tenant]);
        submit.fails(2).replace(&format!("'{tenant}'"), "'T'")
    };
    assert_says(&submit("b"), &["no tenant 'T' for alice, submitter of a"]);
    assert_eq!(submit("b"), submit("nobodys"));
    let filtered = alice.command(&["list", "tasks", "-f", "tenant=b"]);
    filtered.fails_saying(2, &["no tenant 'b'"]);

    // The operator sees both, and nothing of bob's has ended.
    let state = cluster
        .head
        .command(&["get", "--tenant", "b", spins])
        .json(0);
    assert_eq!(state["state"], "running");
    assert_eq!(
        bob.command(&["actor", "call", "total", "add(5)"]).ok(),
        "15\n"
    );
    bob.command(&["cancel", spins]).ok();
}

#[test]
fn a_viewer_looks_and_changes_nothing() {
    let cluster = Cluster::new();
    let viewer = client(
        &cluster,
        &["--role", "viewer", "--tenant", "a", "--tenant", "c"],
    );
    let theirs = ["submit", "--tenant", "a", "--detach"];
    let submit = cluster.head.command(&theirs).arg(guest("graph"));
    let task = submit.args(["--invoke", "add(40, 2)"]).ok();
    let task = task.trim();
    while viewer.command(&["get", task]).json(0)["state"] != "finished" {}
    assert_eq!(viewer.command(&["object", "get", task]).ok(), "42\n");
    viewer.command(&["explain", task]).ok();
    assert_eq!(rows(&viewer, &["list", "tasks"], "tasks").len(), 1);
    viewer.command(&["status"]).ok();
    let says = &["the role submitter", "viewer of a,c"];
    assert_says(&viewer.submit("add(1, 2)").fails(2), says);
    for args in [&["cancel", task][..], &["object", "delete", task]] {
        assert_says(&viewer.command(args).fails(2), says);
    }
    let drain = viewer.command(&["node", "drain", "n1"]).fails(2);
    assert_says(&drain, &["the role operator", "--role operator"]);
    // A further certificate says the same.
    let before = who(viewer.command(&["whoami"]));
    assert_eq!(before, texts(["viewer", "a,c", "a"]));
    viewer.command(&["login", "--renew"]).ok();
    assert_eq!(who(viewer.command(&["whoami"])), before);
    assert_says(&viewer.submit("add(1, 2)").fails(2), says);
}

#[test]
fn an_operator_runs_the_cluster_from_elsewhere() {
    let cluster = Cluster::new();
    let operator = client(&cluster, &["--role", "operator", "--name", "op"]);
    let other = client(&cluster, &[]);
    assert_eq!(
        who(operator.command(&["whoami"])),
        texts(["operator", "*", "default"])
    );
    assert_eq!(
        who(other.command(&["whoami"])),
        texts(["submitter", "default", "default"])
    );
    operator.command(&["node", "drain", "n1"]).ok();
    cluster.head.wait_for("n1", "draining");
    operator.command(&["node", "drain", "n1", "--undo"]).ok();
    cluster.head.wait_for("n1", "alive");
    operator
        .command(&["tenant", "set", "red", "--weight", "2"])
        .ok();
    operator.command(&["scheduling", "set", "policy=fifo"]).ok();
    let token = operator.command(&["node", "token", "create", "--client", "--role", "viewer"]);
    let token = token.run();
    assert_says(&token.stderr, &["viewer of default"]);
    let viewer = Client::new(&cluster.address);
    viewer.command(&["login", token.stdout_text().trim()]).ok();
    let clients = rows(
        &operator,
        &["client", "list", "-f", "role=viewer"],
        "clients",
    );
    let [row] = &clients[..] else {
        panic!("{clients:?}")
    };
    assert_eq!(
        (&row["role"], &row["tenants"]),
        (&"viewer".into(), &"default".into())
    );
    operator
        .command(&["client", "revoke", row["id"].as_str().expect("an id")])
        .ok();
    assert_says(&viewer.command(&["status"]).fails(4), &["it was revoked"]);
    // What acts as the user of the node, or cannot be undone from here, stays there.
    let stop = operator.command(&["node", "stop"]).fails(2);
    assert_says(&stop, &["is stopped on its own machine"]);
    let dir = operator
        .command(&["submit", "--dir", "/tmp::/t"])
        .arg(guest("prog"));
    let dir = dir.program(["args"]).fails(2);
    assert_says(&dir, &["opens a directory of the node's machine"]);
    for args in [
        &["--role", "operator", "--tenant", "a"][..],
        &["--tenant", "a", "--tenant", "*"],
        &["--role", "root"],
    ] {
        let create = operator.command(&["node", "token", "create", "--client"]);
        create.args(args).fails(2);
    }
}

/// Whether commands can be run as other users here.
fn has_other_users() -> bool {
    const REQUIRED: &str = "WASMRUN_REQUIRE_ROOT";
    if !rustix::process::geteuid().is_root() {
        skipped(REQUIRED, "only root can run commands as other users");
        return false;
    }
    let mut can_use = Command::new("/bin/sh");
    can_use
        .uid(4242)
        .args(["-c", "test -x \"$0\" && test -r \"$1\""]);
    let can_use = can_use.arg(binary()).arg(guest("graph")).status();
    if !can_use.is_ok_and(|it| it.success()) {
        skipped(REQUIRED, "other users cannot run the binary that is tested");
        return false;
    }
    true
}

/// A node that others can reach, which is not started yet, and the path of its file of users.
fn node_of_users() -> (Node, PathBuf) {
    let node = Node::new();
    let open = Permissions::from_mode(0o711);
    fs::set_permissions(node.dir.path(), open).expect("it is ours");
    let file = node.dir.path().join("users");
    (node, file)
}

fn write_users(file: &Path, text: &str) {
    fs::write(file, text).expect("there is room");
    fs::set_permissions(file, Permissions::from_mode(0o644)).expect("it is ours");
}

#[test]
fn a_user_of_the_machine_leaves_connections_to_others() {
    if !has_other_users() {
        return;
    }
    let (mut node, file) = node_of_users();
    write_users(&file, "4242 submitter a\n4243 viewer a\n");
    node.start_with(&["--users", file.to_str().expect("it is text")]);
    let sleep = node.wasmrun(["submit", "--detach", "--cpus", "0"]);
    let sleep = sleep.user(4242).arg(guest("fixture"));
    let task = sleep.args(["--invoke", "sleep-forever()"]).ok();
    let follow = || node.wasmrun(["logs", "--follow"]).user(4242);
    let mut following: Vec<_> = (0..64).map(|_| follow().arg(task.trim()).start()).collect();
    // This one, too.
    while node.wasmrun(["status"]).json(0)["sessions"] != 65 {}
    let whoami = |user| node.wasmrun(["whoami"]).user(user);
    whoami(4242).fails_saying(4, &["user 4242 has 64 connections", "close some of them"]);
    whoami(4243).ok();
    following.pop();
    while whoami(4242).run().code != Some(0) {}
}

#[test]
fn other_users_of_the_machine_have_what_a_file_gives_them() {
    if !has_other_users() {
        return;
    }
    let (mut node, file) = node_of_users();
    let write = |text: &str| write_users(&file, text);
    let path = file.to_str().expect("it is text").to_owned();
    write("4242 submitter a\n4243 view a\n");
    let wrong = node.wasmrun(["node", "start", "--users", &path]).fails(2);
    assert_says(&wrong, &["wrong in line 2", "'view' is not a role"]);
    write("4242 submitter a\n4243 viewer a # looks\n");
    node.start_with(&["--users", &path]);
    assert_eq!(
        who(node.wasmrun(["whoami"])),
        texts(["operator", "*", "default"])
    );
    let whoami = || node.wasmrun(["whoami"]).user(4242);
    assert_eq!(who(whoami()), texts(["submitter", "a", "a"]));
    assert_says(
        &whoami().ok(),
        &["name      4242", "this machine, user 4242"],
    );
    assert_eq!(node.submit("add(1, 2)").user(4242).ok(), "3\n");
    let viewer = node.submit("add(1, 2)").user(4243).fails(2);
    assert_says(&viewer, &["the role submitter", "--users"]);
    let dir = node.wasmrun(["submit", "--dir", "/tmp::/t"]).user(4242);
    let dir = dir.arg(guest("prog")).program(["args"]).fails(2);
    assert_says(
        &dir,
        &["opens a directory", "the user that the node runs as"],
    );
    let stop = node.wasmrun(["node", "stop"]).user(4242).fails(2);
    assert_says(&stop, &["the role operator"]);
    let stranger = || node.wasmrun(["status"]).user(4244);
    stranger().fails_saying(4, &["does not name 4244", "adds a line"]);
    // It is read again; what it said holds on while it is wrong.
    write("4244 viewer a\n4242 submitter b\n");
    stranger().ok();
    assert_eq!(who(whoami()), texts(["submitter", "b", "b"]));
    write("nonsense\n");
    stranger().ok();
}
