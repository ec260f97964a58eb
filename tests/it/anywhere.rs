//! What is asked at one node and answered for the whole cluster.

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::cluster::Member;

/// Nodes that see each other.
pub(crate) fn cluster<const N: usize>(names: [&'static str; N]) -> [Member; N] {
    let mut members = names.map(Member::new);
    let (head, others) = members.split_first_mut().expect("a cluster has a head");
    head.start(&["--head", "--listen", "127.0.0.1:0"]);
    let token = head.token(&["--many"]);
    for member in others {
        member.start(&["--join", &token]);
    }
    for one in &members {
        for other in names {
            one.wait_for_incarnation(other, 1);
        }
    }
    members
}

/// A function of the guest, left to the cluster at a node.
pub(crate) fn detached(at: &Member, call: &str, args: &[&str]) -> String {
    let submit = at
        .command(&["submit", "-q", "--detach"])
        .arg(guest("spread"));
    let id = submit.args(["--invoke", call]).args(args).ok();
    id.trim().to_owned()
}

/// The rows of a list, as a node gives it.
#[track_caller]
pub(crate) fn rows(at: &Member, what: &str, filters: &[&str]) -> Vec<Json> {
    let list = at.command(&["list", what]);
    let list = filters
        .iter()
        .fold(list, |list, filter| list.args(["-f", filter]));
    let listed = list.json(0);
    assert_eq!(listed.get("silent"), None, "{listed}");
    listed[what].as_array().expect("a list").clone()
}

/// Waits until a node sees a task in this state. Each look is a command, which takes its time.
pub(crate) fn wait_for(at: &Member, task: &str, state: &str) -> Json {
    loop {
        let seen = at.command(&["get", task]).json(0);
        if seen["state"] == state {
            return seen;
        }
    }
}

#[test]
fn lists_and_the_status_are_of_all_nodes() {
    let members = cluster(["a", "b", "c"]);
    let [a, b, c] = &members;
    let task = detached(a, "spin()", &["--strategy", "node:b", "--tenant", "red"]);
    let dir = scratch();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 100_000]).expect("there is room");
    let object = c.command(&["put"]).arg(&file).ok().trim().to_owned();
    let create = b.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "1", "--name", "total", "--cpus", "0"]);
    create.args(["--strategy", "node:b"]).ok();
    // One that lives elsewhere than where it was created.
    let create = a.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "1", "--name", "afar", "--cpus", "0"]);
    create.args(["--strategy", "node:c"]).ok();
    assert_eq!(a.command(&["actor", "call", "afar", "add(1)"]).ok(), "2\n");
    while rows(a, "tasks", &["state=running", "name=spin"]).is_empty() {}
    for at in &members {
        let tasks = rows(at, "tasks", &["name=spin"]);
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        assert_eq!(
            (&tasks[0]["id"], &tasks[0]["node"]),
            (&task.clone().into(), &"b".into())
        );
        assert_eq!(tasks[0]["detached"], true, "{tasks:?}");
        let objects = rows(at, "objects", &[]);
        assert_eq!(objects.len(), 1, "{objects:?}");
        assert_eq!(
            (&objects[0]["id"], &objects[0]["node"]),
            (&object.clone().into(), &"c".into())
        );
        let actors = rows(at, "actors", &[]);
        let mut places: Vec<_> = actors
            .iter()
            .map(|it| (it["name"].as_str(), it["node"].as_str()))
            .collect();
        places.sort_unstable();
        assert_eq!(
            places,
            [(Some("afar"), Some("c")), (Some("total"), Some("b"))],
            "{actors:?}"
        );
        let nodes = rows(at, "nodes", &[]);
        assert_eq!(nodes.len(), 3, "{nodes:?}");
        let held = rows(at, "tenants", &["name=red", "node=b"]);
        assert_ne!(held[0]["used"]["CPU"], Json::Null, "{held:?}");
        // The session that submitted it is known where it runs, too.
        let jobs = rows(at, "jobs", &["node=a", "name=spin"]);
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        assert!(rows(at, "tasks", &["node=c", "name=spin"]).is_empty());
        let status = at.command(&["status"]).json(0);
        let names = status["nodes"].as_array().expect("a list").iter();
        let names: Vec<_> = names.filter_map(|node| node["node"].as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let screen = at.command(&["status"]).ok();
        assert_says(&screen, &["cluster of 3 nodes", "all", "red"]);
        assert!(screen.lines().count() < 24, "one screen:\n{screen}");
    }
    // For people: the same columns.
    assert_says(&a.command(&["list", "tasks"]).ok(), &["node", &task]);
}

#[test]
fn one_task_is_found_from_anywhere() {
    let members = cluster(["a", "b", "c"]);
    let [a, b, c] = &members;
    let said = detached(a, "say(3)", &["--strategy", "node:b"]);
    let spinning = detached(a, "spin()", &["--strategy", "node:b"]);
    wait_for(c, &said, "finished");
    for at in &members {
        let logged = at.command(&["logs", &said]).run();
        assert_eq!(logged.stdout_text(), "0 at b\n1 at b\n2 at b\n", "{logged}");
        // Where it ran, not where it was submitted.
        let ended = rows(at, "tasks", &["name=say"]);
        assert_eq!(ended[0]["node"], "b", "{ended:?}");
        let seen = wait_for(at, &spinning[..12], "running");
        assert_eq!(seen["node"], "b", "{seen}");
        assert_eq!(seen["id"], *spinning, "{seen}");
        // What both of them say.
        let why = at.command(&["explain", &spinning]).ok();
        // Where it is, and since when it runs there.
        let parts = [
            "it waits for node b, which has it",
            "at node b: ",
            "has been running for ",
            "it is with node b",
        ];
        assert_says(&why, &parts);
        at.command(&["get", "0123456789abcdef"])
            .fails_saying(2, &["there is no task, actor or job '0123456789abcdef'"]);
    }
    // Neither where it was submitted nor where it runs.
    c.command(&["cancel", &spinning]).ok();
    wait_for(b, &spinning, "cancelled");
    while !rows(c, "tasks", &["state=running"]).is_empty() {}
    c.command(&["cancel", &spinning])
        .fails_saying(2, &["there is no live task"]);
}

/// With what the ids of two things begin that are at different nodes. `make` makes one at each.
fn shared_digit(make: impl Fn() -> (String, String)) -> String {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    loop {
        let (one, other) = make();
        of_a.push(one);
        of_b.push(other);
        let begins_another = |one: &&String| of_b.iter().any(|other| one[..1] == other[..1]);
        if let Some(both) = of_a.iter().find(begins_another) {
            return both[..1].to_owned();
        }
    }
}

#[test]
fn beginnings_of_ids_are_unique_in_the_cluster() {
    let members = cluster(["a", "b"]);
    let [a, b] = &members;
    let of = |at: &Member, name| detached(at, "place()", &["--strategy", name]);
    let digit = shared_digit(|| (of(a, "node:a"), of(b, "node:b")));
    for at in &members {
        for command in ["get", "explain", "logs"] {
            let said = at.command(&[command, &digit]).fails(2);
            let candidate = format!("task {digit}");
            assert_says(
                &said,
                &[
                    "begins the id of more than one: ",
                    &candidate,
                    ", task ",
                    "give more of it",
                ],
            );
        }
    }
    // Nothing is cancelled by half a name.
    let spinning = detached(a, "spin()", &["--strategy", "node:b"]);
    let also = loop {
        let also = detached(b, "spin()", &["--strategy", "node:a", "--cpus", "0"]);
        if also[..1] == spinning[..1] {
            break also;
        }
        a.command(&["cancel", &also]).ok();
    };
    b.command(&["cancel", &spinning[..1]])
        .fails_saying(2, &["more than one"]);
    for task in [&also, &spinning] {
        a.command(&["cancel", task]).ok();
        wait_for(a, task, "cancelled");
    }
}

#[test]
fn an_actor_is_found_by_its_name_or_id_at_any_node() {
    let members = cluster(["a", "b", "c"]);
    let [a, b, c] = &members;
    // Owned by one node, alive on another, asked for at all.
    let create = a.command(&["actor", "create"]).arg(guest("spread"));
    let tally = ["tally", "0", "--name", "total", "--strategy", "node:b"];
    let actor = create.args(tally).ok().trim().to_owned();
    let sum = c.command(&["actor", "call", "total", "sum([1, 2])"]).ok();
    assert_eq!(sum, "3\n");
    for at in &members {
        for id in ["total", &actor, &actor[..20]] {
            let seen = at.command(&["get", id]).json(0);
            for (key, value) in [("kind", "actor"), ("id", &actor), ("name", "total")] {
                assert_eq!(seen[key], *value, "{seen}");
            }
            assert_eq!(
                (&seen["node"], &seen["state"]),
                (&"b".into(), &"running".into())
            );
            assert_says(
                &at.command(&["get", id]).ok(),
                &["actor     ", "name      total"],
            );
            let why = at.command(&["explain", id]).ok();
            assert_says(&why, &[&actor, "is running at node b"]);
            let logged = at.command(&["logs", id]).run();
            assert_eq!(logged.stdout_text(), "sums at b\n", "{logged}");
        }
        at.command(&["get", "total", "--tenant", "blue"])
            .fails_saying(
                2,
                &["there is no task, actor or job 'total' of tenant 'blue'"],
            );
    }
    // To cancel an actor is to end it.
    c.command(&["cancel", "total"]).ok();
    while !rows(a, "actors", &[]).is_empty() || !rows(b, "actors", &[]).is_empty() {}
    b.command(&["actor", "call", "total", "next()"])
        .fails_saying(2, &["there is no actor 'total'"]);
    for at in &members {
        at.command(&["get", "total"])
            .fails_saying(2, &["actor 'total'", &actor, "has ended", "wasmrun logs"]);
        assert_eq!(at.command(&["logs", "total"]).ok(), "sums at b\n");
    }
}

#[test]
fn a_job_is_all_that_a_session_has_submitted() {
    let members = cluster(["a", "b", "c"]);
    let [a, b, c] = &members;
    let mut running = a.command(&["submit", "-q"]).arg(guest("spread"));
    let hold = [
        "--invoke",
        "hold()",
        "--strategy",
        "spread",
        "--array",
        "0-5",
    ];
    running = running.args(hold);
    let running = running.start();
    let held = loop {
        let held = rows(c, "tasks", &["state=running", "name=hold"]);
        if held.len() == 6 {
            break held;
        }
    };
    let job = held[0]["job"].as_str().expect("an id").to_owned();
    for at in &members {
        for id in [&job, &job[..20]] {
            let seen = at.command(&["get", id]).json(0);
            assert_eq!(
                (&seen["kind"], &seen["id"]),
                (&"job".into(), &job.clone().into())
            );
            assert_eq!(seen["states"]["running"], 6, "{seen}");
            let nodes = seen["tasks"].as_array().expect("a list").iter();
            let nodes: std::collections::BTreeSet<_> =
                nodes.map(|row| row["node"].to_string()).collect();
            assert_eq!(nodes.len(), 3, "{seen}");
            let why = at.command(&["explain", id]).ok();
            assert_says(&why, &[&job, "6 running"]);
        }
        let said = at.command(&["logs", &job]).fails(2);
        assert_says(&said, &["nothing is kept of what job", "--detach"]);
        at.command(&["cancel", &job, "--tenant", "blue"])
            .fails_saying(2, &["there is no task, actor or job", "of tenant 'blue'"]);
    }
    b.command(&["cancel", &job]).ok();
    let ended = running.end();
    assert_ne!(ended.code, Some(0), "{ended}");
    while !rows(c, "tasks", &["state=running"]).is_empty() {}
    c.command(&["cancel", &job])
        .fails_saying(2, &["there is nothing to cancel"]);
    // What is left to a node at once is one job, and its output is kept.
    let first = detached(a, "say(1)", &["--strategy", "node:b"]);
    let first = wait_for(c, &first, "finished")["job"].clone();
    let second = detached(a, "say(2)", &["--strategy", "node:c"]);
    let second = wait_for(c, &second, "finished")["job"].clone();
    for (job, said) in [(first, "0 at b\n"), (second, "0 at c\n1 at c\n")] {
        let logged = b.command(&["logs", job.as_str().expect("an id")]).ok();
        assert_eq!(logged, said);
    }
}

#[test]
fn the_output_of_many_tasks_comes_from_any_node() {
    /// More than are asked for at a time, several times.
    const TASKS: usize = 300;
    let [a, b] = &cluster(["a", "b"]);
    let many = format!("1-{TASKS}");
    let array = ["--array", &many, "--strategy", "node:b"];
    detached(a, "say(2)", &array);
    let mut finished = rows(b, "tasks", &["state=finished"]);
    while finished.len() < TASKS {
        finished = rows(b, "tasks", &["state=finished"]);
    }
    let job = finished[0]["job"].as_str().expect("an id").to_owned();
    for at in [a, b] {
        let logged = at.command(&["logs", &job]).ok();
        assert_eq!(logged, "0 at b\n1 at b\n".repeat(TASKS));
    }
    // Where nothing is kept, that is said.
    let spins = b.command(&["submit"]).arg(guest("spread"));
    let spins = spins.args(["--invoke", "spin()"]).start();
    let running = || rows(a, "tasks", &["state=running"]);
    while running().is_empty() {}
    let job = running()[0]["job"].as_str().expect("an id").to_owned();
    a.command(&["logs", &job])
        .fails_saying(2, &["nothing is kept", "--detach"]);
    spins.signal(Signal::INT);
    spins.end();
}

#[test]
fn a_node_that_has_died_is_called_by_its_name() {
    let [a, b] = &mut cluster(["a", "b"]);
    let task = detached(a, "place()", &["--strategy", "node:b"]);
    wait_for(a, &task, "finished");
    b.kill();
    a.wait_for("b", "dead");
    assert_eq!(rows(a, "tasks", &["name=place"])[0]["node"], "b");
    assert_eq!(a.command(&["get", &task]).json(0)["node"], "b");
}

#[test]
fn an_object_that_is_kept_is_read_and_deleted_at_any_node() {
    let members = cluster(["a", "b", "c"]);
    let [a, b, c] = &members;
    let dir = scratch();
    let (file, out) = (dir.path().join("file"), dir.path().join("out"));
    // One that goes with a message, and one that is brought.
    for (len, deletes, named) in [(1_000_usize, a, 20), (3_000_000, b, 32)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        std::fs::write(&file, &bytes).expect("there is room");
        let put = c.command(&["put", "--tenant", "red"]).arg(&file);
        let object = put.ok().trim().to_owned();
        let get = |at: &Member, id: &str, tenant: &str| {
            let get = at.command(&["object", "get", id, "--tenant", tenant, "-O"]);
            get.arg(&out)
        };
        for at in &members {
            for id in [&object, &object[..20]] {
                get(at, id, "red").ok();
                assert!(std::fs::read(&out).expect("it was written") == bytes);
                std::fs::remove_file(&out).expect("it is there");
            }
            let as_blue = get(at, &object, "blue").run();
            assert_ne!(as_blue.code, Some(0), "{as_blue}");
        }
        // Nobody else keeps it. Each look is a command, which takes its time.
        for at in [a, b] {
            while at.command(&["status"]).json(0)["store"]["objects"] != 0 {}
        }
        let delete = |tenant: &str| {
            let id = &object[..named];
            deletes.command(&["object", "delete", id, "--tenant", tenant])
        };
        let as_blue = delete("blue").run();
        assert_ne!(as_blue.code, Some(0), "{as_blue}");
        get(a, &object, "red").ok();
        delete("red").ok();
        delete("red").fails_saying(2, &["there is no object"]);
        get(b, &object, "red").fails_saying(2, &["there is no object"]);
        while c.command(&["status"]).json(0)["store"]["objects"] != 0 {}
    }
    // The result of a task that was left to the cluster, with its type.
    let task = detached(a, "sum([1, 2])", &[]);
    for at in &members {
        wait_for(at, &task, "finished");
        assert_eq!(at.command(&["object", "get", &task]).ok(), "3\n");
    }
    // One that has not ended is cancelled first.
    let spinning = detached(a, "spin()", &[]);
    c.command(&["object", "delete", &spinning])
        .fails_saying(2, &["has not ended", "cancel that first"]);
    a.command(&["cancel", &spinning]).ok();
    wait_for(a, &spinning, "cancelled");
    b.command(&["object", "delete", &task]).ok();
    a.command(&["object", "get", &task])
        .fails_saying(2, &["there is no object"]);
    // Half a name of two objects at different nodes is none.
    let put = |at: &Member| at.command(&["put"]).arg(&file).ok().trim().to_owned();
    let digit = shared_digit(|| (put(a), put(b)));
    for at in &members {
        at.command(&["object", "get", &digit])
            .fails_saying(2, &["begins the id of more than one object"]);
    }
}

#[test]
fn tenants_do_not_find_each_others_things_at_any_node() {
    let [a, b] = &cluster(["a", "b"]);
    let red = detached(a, "spin()", &["--tenant", "red"]);
    for at in [a, b] {
        for command in ["get", "explain", "logs", "cancel"] {
            at.command(&[command, &red, "--tenant", "blue"])
                .fails_saying(2, &["of tenant 'blue'"]);
        }
        let seen = at.command(&["get", &red, "--tenant", "red"]).json(0);
        assert_eq!(seen["tenant"], "red");
    }
    b.command(&["cancel", &red, "--tenant", "red"]).ok();
}

#[test]
fn what_each_node_lacks_is_said_at_any() {
    let [a, _, c] = &cluster(["a", "b", "c"]);
    let asks = detached(a, "place()", &["--gpus", "1", "--memory", "1GiB"]);
    wait_for(c, &asks, "infeasible");
    let why = c.command(&["explain", &asks]).ok();
    for node in ["a", "b", "c"] {
        assert_says(&why, &[&format!("node {node}: infeasible"), "GPU"]);
    }
    c.command(&["cancel", &asks]).ok();
}

#[test]
fn who_does_not_answer_is_named() {
    let (a, token) = Member::head("a");
    let b = Member::joined("b", &token);
    let mut c = Member::new("c");
    // It lives on for everybody while it says nothing.
    c.start(&["--join", &token, "--lease-time", "10m"]);
    for one in [&a, &b] {
        one.wait_for_incarnation("c", 1);
    }
    b.wait_for_incarnation("a", 1);
    a.wait_for_incarnation("b", 1);
    let task = detached(&b, "spin()", &["--strategy", "node:b"]);
    c.signal(Signal::STOP);
    let listed = a.command(&["list", "tasks"]).json(0);
    assert_eq!(listed["tasks"][0]["id"], *task, "{listed}");
    assert_eq!(listed["silent"][0]["node"], "c", "{listed}");
    let shown = a.command(&["list", "tasks"]).run();
    assert_eq!(shown.code, Some(0), "{shown}");
    assert_says(&shown.stderr, &["warning: node c did not answer: "]);
    let status = a.command(&["status"]).json(0);
    assert_eq!(status["silent"][0]["node"], "c", "{status}");
    // What is there is found, and what is not may be where nobody answers.
    assert_eq!(a.command(&["get", &task]).json(0)["node"], "b");
    a.command(&["get", "0123456789abcdef"])
        .fails_saying(2, &["there is no task", "1 node did not answer: c"]);
    a.command(&["cancel", &task]).ok();
    c.signal(Signal::CONT);
    loop {
        let listed = a.command(&["list", "tasks"]).json(0);
        if listed.get("silent").is_none() {
            break;
        }
    }
}

#[test]
fn a_node_that_is_alone_answers_for_itself() {
    let dir = scratch();
    let address = format!("unix:{}/own/node.sock", dir.path().display());
    let wasmrun = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_ADDRESS", &address);
    let mut node = wasmrun(&["node", "start", "--node-name", "n"]).start();
    node.wait_for(wasmrun_tests::Stream::Out, "listens at unix:");
    let submit = wasmrun(&["submit", "--detach"]).arg(guest("spread"));
    submit.args(["--invoke", "place()"]).ok();
    let tasks = wasmrun(&["list", "tasks"]).json(0);
    assert_eq!(tasks["tasks"][0]["node"], "n", "{tasks}");
    assert_says(&wasmrun(&["status"]).ok(), &["node n: wasmrun"]);
}
