//! A node that stays: commands that find it, what outlives them, and what does not.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value as Json;
use tempfile::TempDir;
use wasmrun_tests::{Running, Stream, Wasmrun, assert_says, guest, scratch};

/// A node with a socket of its own.
pub struct Node {
    pub dir: TempDir,
    pub running: Option<Running>,
}

impl Node {
    /// One that is not started yet.
    pub fn new() -> Self {
        Self {
            dir: scratch(),
            running: None,
        }
    }

    pub fn start() -> Self {
        let mut node = Self::new();
        node.start_again();
        node
    }

    fn start_again(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, args: &[&str]) {
        let start = self.wasmrun(["node", "start", "--node-cpus", "2"]);
        let mut running = start.args(args).start();
        running.wait_for(Stream::Out, "listens at unix:");
        self.running = Some(running);
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("own/node.sock")
    }

    /// A command that finds it.
    pub fn wasmrun<const N: usize>(&self, args: [&str; N]) -> Wasmrun {
        let address = format!("unix:{}", self.socket().display());
        Wasmrun::new(args).env("WASMRUN_ADDRESS", address)
    }

    pub fn submit(&self, call: &str) -> Wasmrun {
        self.wasmrun(["submit"])
            .arg(guest("graph"))
            .args(["--invoke", call])
    }

    /// How many tasks are in this state.
    pub fn count(&self, state: &str) -> usize {
        let filter = format!("state={state}");
        let listed = self.wasmrun(["list", "tasks", "-f", &filter]).json(0);
        listed["tasks"].as_array().expect("a list").len()
    }

    /// Waits until so many tasks are in this state. Each look is a command, which takes its time.
    pub fn wait_for(&self, state: &str, count: usize) {
        while self.count(state) != count {}
    }

    fn kill(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(Signal::KILL);
        assert_eq!(running.end().code, None);
    }
}

#[test]
fn without_a_node_commands_say_how_to_start_one() {
    let dir = scratch();
    let address = format!("unix:{}/none.sock", dir.path().display());
    for args in [
        &["status"][..],
        &["list", "tasks"],
        &["get", "00"],
        &["object", "list"],
        &["actor", "kill", "x"],
        &["node", "stop"],
        &["node", "list"],
    ] {
        Wasmrun::new(args)
            .env("WASMRUN_ADDRESS", &address)
            .fails_saying(4, &["no node is running here", "`wasmrun node start`"]);
    }
    let detached = Wasmrun::submit("graph").args(["--invoke", "noop()", "--detach"]);
    detached
        .env("WASMRUN_ADDRESS", &address)
        .fails_saying(4, &["no node is running here"]);
    Wasmrun::new(["status", "--address", "10.0.0.1:6379"])
        .env("WASMRUN_IDENTITY", dir.path().join("none"))
        .fails_saying(4, &["certificate", "`wasmrun login TOKEN`"]);
}

#[test]
fn what_is_submitted_runs_in_the_node() {
    let node = Node::start();
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
    let report = node.submit("fib(5)").json(0);
    assert_eq!(report["result"], 5);
    node.submit("crash()")
        .fails_saying(5, &["crash: the guest trapped"]);
    node.submit("add(1)").fails_saying(2, &["add"]);
    let program = || node.wasmrun(["submit"]).arg(guest("prog"));
    assert_eq!(program().program(["args", "a", "b"]).ok(), "a\nb\n");
    let array = node.submit("add($i, 1)").args(["--array", "1-20"]).ok();
    assert_says(&array, &["[1] 2\n", "[20] 21\n"]);
    let status = node.wasmrun(["status"]).json(0);
    assert!(status["tasks"]["finished"].as_u64() > Some(20), "{status}");
    assert_says(
        &node.wasmrun(["status"]).ok(),
        &["CPU", "0", "2", "finished", "objects", "default"],
    );
    let modules = node.wasmrun(["list", "modules"]).json(0);
    assert_eq!(modules["modules"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_detached_task_goes_on_and_keeps_its_result() {
    let node = Node::start();
    let id = node.submit("add(40, 2)").arg("--detach").ok();
    let id = id.trim();
    node.wait_for("finished", 1);
    let task = node.wasmrun(["get", &id[..12]]).json(0);
    assert_eq!(
        (&task["state"], &task["detached"]),
        (&"finished".into(), &true.into())
    );
    assert_eq!(node.wasmrun(["object", "get", &id[..12]]).ok(), "42\n");
    let spin = node.submit("spin()").arg("--detach").json(0);
    let spin = spin["task_id"].as_str().expect("an id");
    node.wait_for("running", 1);
    assert_says(&node.wasmrun(["explain", spin]).ok(), &["has been running"]);
    node.wasmrun(["cancel", spin]).ok();
    node.wait_for("cancelled", 1);
    let printing = node.wasmrun(["submit"]).arg(guest("prog")).arg("--detach");
    let printing = printing.program(["args", "printed"]).ok();
    node.wait_for("finished", 2);
    assert_eq!(node.wasmrun(["logs", printing.trim()]).ok(), "printed\n");
    node.wasmrun(["get", "ffffffffffffffffffff"]).fails_saying(
        2,
        &[
            "there is no task, actor or job 'ffff",
            "`wasmrun list tasks`",
            "`wasmrun list objects`",
        ],
    );
}

#[test]
fn files_become_objects_and_come_back() {
    let node = Node::start();
    let (large, back) = (node.dir.path().join("large"), node.dir.path().join("back"));
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&large, &bytes).unwrap();
    let id = node.wasmrun(["put"]).arg(&large).ok();
    let id = id.trim();
    node.wasmrun(["object", "get", &id[..30], "-O"])
        .arg(&back)
        .ok();
    assert!(std::fs::read(&back).unwrap() == bytes);
    // What was there before stays when it cannot be had whole.
    std::fs::write(&back, "before").unwrap();
    let get = node.wasmrun(["object", "get", id, "-O"]).arg(&back);
    let said = get.before("ulimit -f 1000; trap '' XFSZ").fails(2);
    assert_says(&said, &["cannot write to ", "File too large"]);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), "before");
    assert!(node.wasmrun(["object", "get", id]).run().stdout == bytes);
    let listed = node.wasmrun(["object", "list"]).json(0);
    assert_eq!(listed["objects"][0]["id"], id);
    assert_eq!(listed["objects"][0]["size_bytes"], bytes.len());
    node.wasmrun(["object", "delete", id]).ok();
    node.wasmrun(["object", "get", id])
        .fails_saying(2, &["there is no object"]);
    assert_eq!(
        node.wasmrun(["object", "list"]).json(0)["objects"],
        Json::Array(vec![])
    );
    node.wasmrun(["put", "/nowhere/at/all"])
        .fails_saying(2, &["cannot read"]);
}

#[test]
fn an_actor_lives_between_commands() {
    let node = Node::start();
    let create = || node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create().args(["counter", "10", "--name", "total"]).ok();
    let call = |call: &str| node.wasmrun(["actor", "call", "total", call]);
    assert_eq!(call("add(5)").ok(), "15\n");
    assert_eq!(call("add(1)").json(0)["result"], 16);
    create()
        .args(["counter", "0", "--name", "total"])
        .fails_saying(2, &["the name 'total' belongs to actor "]);
    call("subtract(1)").fails_saying(2, &["no method 'subtract'", "add"]);
    call("add(\"x\")").fails_saying(2, &["add"]);
    create()
        .args(["clock", "--name", "x"])
        .fails_saying(2, &["'clock'", "counter"]);
    assert_says(
        &node.wasmrun(["actor", "list"]).ok(),
        &["total", "counter", "running"],
    );
    // What it writes is kept with the actor; a call of it is a task like others.
    let listed = node.wasmrun(["list", "tasks"]).json(0);
    let mut tasks = listed["tasks"].as_array().expect("a list").iter();
    let is_call = |task: &&Json| task["name"].as_str().is_some_and(|it| it.ends_with(".add"));
    let call_of_it = tasks.find(is_call).expect("it is listed");
    let id = call_of_it["id"].as_str().expect("an id");
    assert_eq!(node.wasmrun(["get", id]).json(0)["state"], "finished");
    assert_says(
        &node.wasmrun(["explain", id]).ok(),
        &["has ended: finished"],
    );
    node.wasmrun(["logs", id])
        .fails_saying(2, &["a call's is its actor's"]);
    assert_eq!(node.wasmrun(["logs", "total"]).ok(), "");
    call("crash()").fails_saying(5, &["the guest trapped"]);
    call("add(1)").fails_saying(2, &["there is no actor 'total'"]);
    create().args(["counter", "1", "--name", "total"]).ok();
    node.wasmrun(["actor", "kill", "total"]).ok();
    call("add(1)").fails_saying(2, &["there is no actor 'total'"]);
}

#[test]
fn an_actor_that_somebody_else_may_kill_is_no_deadlock() {
    let node = Node::start();
    let crowd = node.submit("crowd(\"named\", 2)").arg("--detach").ok();
    let crowd = crowd.trim();
    node.wait_for("blocked", 1);
    node.wait_for("ready", 1);
    // Longer than the node looks before it calls that a deadlock: each is a process of its own.
    for _ in 0..20 {
        assert_says(&node.wasmrun(["explain", crowd]).ok(), &["wait"]);
    }
    node.wasmrun(["actor", "kill", "holder-0"]).ok();
    assert_eq!(node.wasmrun(["object", "get", crowd]).ok(), "4\n");
}

#[test]
fn a_driver_that_dies_takes_its_work_with_it() {
    let node = Node::start();
    let driver = node.submit("spin()").start();
    node.wait_for("running", 1);
    driver.signal(Signal::KILL);
    node.wait_for("running", 0);
    node.wait_for("cancelled", 1);
    drop(driver);
    let driver = node.submit("spin()").start();
    node.wait_for("running", 1);
    driver.signal(Signal::INT);
    assert_eq!(driver.end().code, Some(130));
    node.wait_for("running", 0);
}

#[test]
fn a_node_that_is_killed_is_replaced() {
    let mut node = Node::start();
    let driver = node.submit("spin()").start();
    node.wait_for("running", 1);
    node.kill();
    let ended = driver.end();
    assert_eq!(ended.code, Some(4), "{ended}");
    assert_says(&ended.stderr, &["the connection to the node has ended"]);
    assert!(node.socket().exists());
    node.wasmrun(["status"])
        .fails_saying(4, &["no node is running here"]);
    node.start_again();
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
}

#[test]
fn a_node_killed_in_the_middle_of_everything_leaves_nothing_behind() {
    let mut node = Node {
        dir: scratch(),
        running: None,
    };
    let path = |name: &str| node.dir.path().join(name);
    let (spill, file) = (path("spill"), path("file"));
    let options = [
        "--object-memory",
        "64MiB",
        "--spill-dir",
        spill.to_str().unwrap(),
    ];
    let spilled = || {
        std::fs::read_dir(&spill)
            .unwrap()
            .flatten()
            .map(|it| walk(&it.path()))
            .sum::<u64>()
    };
    node.start_with(&options);
    // Objects on disk, one that a client has open, an actor, tasks that run, wait and start others.
    std::fs::write(&file, vec![7; 24 << 20]).unwrap();
    for _ in 0..4 {
        node.wasmrun(["put"]).arg(&file).ok();
    }
    assert!(spilled() > 24 << 20, "some are on disk");
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "10", "--name", "total"]).ok();
    node.submit("spin()").arg("--detach").ok();
    let drivers: Vec<Running> = (0..3)
        .map(|_| {
            let pi = node.wasmrun(["submit"]).arg(guest("sdk"));
            pi.args(["--invoke", "pi(8, 800000000000)"]).start()
        })
        .collect();
    // One waits for others, and something runs beside the one that spins.
    while node.count("blocked") == 0 || node.count("running") < 2 {}
    node.kill();
    for driver in drivers {
        let ended = driver.end();
        assert_eq!(ended.code, Some(4), "{ended}");
        assert_says(&ended.stderr, &["the connection to the node has ended"]);
    }
    node.start_with(&options);
    assert_eq!(spilled(), 0, "what nobody can name any more is not kept");
    let listed = |what: &str| node.wasmrun(["list", what]).json(0)[what].clone();
    for what in ["tasks", "actors", "objects"] {
        assert_eq!(listed(what), Json::Array(vec![]), "{what}");
    }
    // All of it is there again for others.
    let sum = node.wasmrun(["submit"]).arg(guest("sdk"));
    assert_eq!(sum.args(["--invoke", "fib(12)"]).ok(), "ok(144)\n");
    for _ in 0..4 {
        node.wasmrun(["put"]).arg(&file).ok();
    }
}

#[test]
fn a_node_refuses_more_than_it_allows() {
    let mut node = Node {
        dir: scratch(),
        running: None,
    };
    let maxima = [
        "--max-cpus",
        "1",
        "--max-memory",
        "64MiB",
        "--max-time-limit",
        "1h",
    ];
    node.start_with(&[&maxima[..], &["--default-actor-memory", "32MiB"]].concat());
    let say = "ask for less, or start the node with --max-";
    let refused = [
        node.submit("noop()").args(["--cpus", "2"]),
        node.submit("noop()").args(["--time-limit", "2h"]),
        node.wasmrun(["actor", "create"])
            .arg(guest("graph"))
            .args(["counter", "1", "--memory", "1GiB", "--name", "x"]),
    ];
    for command in refused {
        command.fails_saying(3, &["limit of", "on this node", say]);
    }
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "1", "--name", "one"]).ok();
    let call = |limit: &str| {
        let call = node.wasmrun(["actor", "call", "one", "add(1)"]);
        call.args(["--time-limit", limit])
    };
    call("2h").fails_saying(3, &["time limit of 1h for one call", say]);
    assert_eq!(call("1m").ok(), "2\n");
}

#[test]
fn objects_in_a_folder_leave_nothing_behind() {
    let mut node = Node {
        dir: scratch(),
        running: None,
    };
    let (objects, file) = (
        node.dir.path().join("objects"),
        node.dir.path().join("file"),
    );
    let options = ["--object-dir", objects.to_str().unwrap()];
    let names = || {
        let entries = std::fs::read_dir(&objects).unwrap().flatten();
        entries.map(|it| it.file_name()).collect::<Vec<_>>()
    };
    let bytes: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    for _ in 0..2 {
        node.start_with(&options);
        let mode = std::os::unix::fs::PermissionsExt::mode;
        assert_eq!(
            mode(&objects.metadata().unwrap().permissions()) & 0o777,
            0o700
        );
        let id = node.wasmrun(["put"]).arg(&file).ok();
        // A client maps it, a guest too.
        assert!(node.wasmrun(["object", "get", id.trim()]).run().stdout == bytes);
        assert_eq!(
            node.submit("sum-through(3000000, true)").ok(),
            "374995128\n"
        );
        assert!(
            maps(&node).contains(objects.to_str().unwrap()),
            "{}",
            maps(&node)
        );
        assert!(names().is_empty(), "{:?}", names());
        node.kill();
        assert!(names().is_empty(), "{:?}", names());
        // What a node leaves that is killed while it makes a file where that needs a name.
        std::fs::write(objects.join("wasmrun-objects-left"), "left").unwrap();
    }
    node.start_with(&options);
    assert!(names().is_empty(), "{:?}", names());
    let refused = Wasmrun::submit("graph").args(["--invoke", "noop()", "--object-dir"]);
    refused
        .arg(&file)
        .fails_saying(2, &["object folder", "file cannot be used", "--object-dir"]);
}

/// What a node has mapped.
fn maps(node: &Node) -> String {
    let process = node.running.as_ref().expect("it runs").process();
    std::fs::read_to_string(format!("/proc/{}/maps", process.as_raw_nonzero())).unwrap()
}

/// How many bytes of files there are in a folder, or in a file.
fn walk(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| walk(&entry.path())).sum(),
        Err(_) => path.metadata().map_or(0, |it| it.len()),
    }
}

#[test]
fn one_socket_is_one_nodes() {
    let node = Node::start();
    node.wasmrun(["node", "start"])
        .fails_saying(2, &["a node is running already", "`wasmrun node stop`"]);
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
    let open = scratch();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(open.path(), mode).unwrap();
    let address = format!("unix:{}/node.sock", open.path().display());
    node.wasmrun(["node", "start", "--address", &address])
        .fails_saying(2, &["can be used by others"]);
}

#[test]
fn stopping_waits_for_what_runs_unless_told_otherwise() {
    let mut node = Node::start();
    let id = node.submit("spin()").arg("--detach").ok();
    node.wait_for("running", 1);
    let stopping = node.wasmrun(["node", "stop"]).start();
    while node.wasmrun(["status"]).json(0)["stopping"] != true {}
    node.submit("add(1, 2)")
        .fails_saying(4, &["the node is stopping"]);
    node.wasmrun(["cancel", id.trim()]).ok();
    assert_eq!(stopping.end().code, Some(0));
    let ended = node.running.take().expect("it ran").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!node.socket().exists());
    node.start_again();
    node.submit("spin()").arg("--detach").ok();
    node.wait_for("running", 1);
    node.wasmrun(["node", "stop", "--now"]).ok();
    assert_eq!(node.running.take().expect("it ran").end().code, Some(0));
    // The same by signals: the first waits, the second does not.
    node.start_again();
    node.submit("spin()").arg("--detach").ok();
    node.wait_for("running", 1);
    let mut running = node.running.take().expect("it runs");
    running.signal(Signal::TERM);
    running.wait_for(Stream::Err, "once more stops at once");
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn nonsense_on_the_socket_hurts_nobody() {
    let node = Node::start();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 100],
        b"\x10\0\0\0wasmrun\0",
        b"",
    ] {
        let mut socket = UnixStream::connect(node.socket()).unwrap();
        socket.write_all(bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        // It hangs up, with or without a word.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
}

#[test]
fn an_actors_flags_are_those_of_tasks() {
    let node = Node::start();
    let create = |name| {
        let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
        create.args(["counter", "10", "--name", name])
    };
    create("a")
        .args(["--label-selector", "zone=moon"])
        .fails_saying(3, &["zone=moon"]);
    create("b")
        .args(["--strategy", "spread", "--priority", "3"])
        .ok();
    assert_eq!(node.wasmrun(["actor", "call", "b", "add(1)"]).ok(), "11\n");
    let timely = ["actor", "call", "b", "add(1)", "--time-limit", "1m"];
    assert_eq!(node.wasmrun(timely).ok(), "12\n");
}

#[test]
fn an_object_is_its_tenants() {
    let node = Node::start();
    let file = node.dir.path().join("file");
    std::fs::write(&file, [7; 100_000]).unwrap();
    let id = node.wasmrun(["put", "--tenant", "red"]).arg(&file).ok();
    let id = id.trim();
    node.wasmrun(["object", "get", id])
        .fails_saying(2, &["belongs to tenant 'red'", "say --tenant red"]);
    let got = node.wasmrun(["object", "get", id, "--tenant", "red"]).run();
    assert!(got.stdout == [7; 100_000]);
    node.wasmrun(["object", "delete", id]).fails(2);
    node.wasmrun(["object", "delete", id, "--tenant", "red"])
        .ok();
}

#[test]
fn a_put_waits_as_long_as_the_node_or_the_command_says() {
    let mut node = Node {
        dir: scratch(),
        running: None,
    };
    let small = [
        "node",
        "start",
        "--object-memory",
        "1MiB",
        "--put-wait",
        "10ms",
    ];
    let mut running = node.wasmrun(small).start();
    running.wait_for(Stream::Out, "listens at unix:");
    node.running = Some(running);
    let file = node.dir.path().join("file");
    std::fs::write(&file, [7; 700_000]).unwrap();
    node.wasmrun(["put"]).arg(&file).ok();
    let full = ["fit into the object store now", "--object-memory"];
    assert_says(&node.wasmrun(["put"]).arg(&file).fails(5), &full);
    let said = node.wasmrun(["put", "--wait", "1ms"]).arg(&file).fails(5);
    assert_says(&said, &full);
}
