//! Several nodes: how they meet, what they see of each other, and what is refused.

use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde_json::Value as Json;
use tempfile::TempDir;
use wasmrun_tests::{Ended, Running, Stream, Wasmrun, assert_says, scratch};

use crate::faults::{Files, eventually, says_so};

/// A node with a socket and a state folder of its own.
pub(crate) struct Member {
    name: &'static str,
    cpus: &'static str,
    dir: TempDir,
    running: Option<Running>,
    /// What it had open when it had just been started.
    files: Files,
}

impl Member {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            cpus: "1",
            dir: scratch(),
            running: None,
            files: Files::default(),
        }
    }

    /// One that offers so many CPUs.
    pub(crate) fn with_cpus(name: &'static str, cpus: &'static str) -> Self {
        Self {
            cpus,
            ..Self::new(name)
        }
    }

    /// A head, and a token of it.
    pub(crate) fn head(name: &'static str) -> (Self, String) {
        let mut head = Self::new(name);
        head.start(&["--head", "--listen", "127.0.0.1:0"]);
        let token = head.token(&["--many"]);
        (head, token)
    }

    /// A node that has joined.
    pub(crate) fn joined(name: &'static str, token: &str) -> Self {
        let mut member = Self::new(name);
        member.start(&["--join", token]);
        member
    }

    pub(crate) fn name(&self) -> &str {
        self.name
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}/own/node.sock", self.dir.path().display())
    }

    pub(crate) fn command(&self, args: &[&str]) -> Wasmrun {
        Wasmrun::new(args).env("WASMRUN_ADDRESS", self.address())
    }

    fn starting(&self, args: &[&str]) -> Wasmrun {
        let start = self.command(&["node", "start", "--node-cpus", self.cpus]);
        let state = start.arg("--state-dir").arg(self.state());
        state.args(["--node-name", self.name]).args(args)
    }

    /// Starts it with a variable in its environment.
    pub(crate) fn start_with_env(&mut self, args: &[&str], (name, value): (&str, &str)) {
        let running = self.starting(args).env(name, value).start();
        self.is_started(running);
    }

    /// What it says when it cannot be used so.
    pub(crate) fn refused_with_env(&self, args: &[&str], (name, value): (&str, &str)) -> String {
        self.starting(args).env(name, value).fails(2)
    }

    /// What it says when it cannot start so.
    pub(crate) fn unreached_with_env(&self, args: &[&str], (name, value): (&str, &str)) -> String {
        self.starting(args).env(name, value).fails(4)
    }

    pub(crate) fn start(&mut self, args: &[&str]) {
        let running = self.starting(args).start();
        self.is_started(running);
    }

    fn is_started(&mut self, mut running: Running) {
        running.wait_for(Stream::Out, "listens at unix:");
        self.files = Files::of(running.process());
        self.running = Some(running);
    }

    /// Starts it, and looks at what it says about itself.
    pub(crate) fn watched<T>(&mut self, args: &[&str], look: impl Fn(&mut Running) -> T) -> T {
        self.start(args);
        look(self.running.as_mut().expect("it runs"))
    }

    /// What it says when it cannot start.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        self.starting(args).fails(4)
    }

    /// Ends it well.
    pub(crate) fn stop(&mut self) -> Ended {
        self.command(&["node", "stop"]).ok();
        self.running.take().expect("it runs").end()
    }

    /// Its process.
    pub(crate) fn process(&self) -> Pid {
        self.running.as_ref().expect("it runs").process()
    }

    /// Says nothing until it is told to go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    pub(crate) fn kill(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal(Signal::KILL);
        assert_eq!(running.end().code, None);
    }

    pub(crate) fn token(&self, args: &[&str]) -> String {
        let create = self.command(&["node", "token", "create"]);
        create.args(args).ok().trim().to_owned()
    }

    /// What it says of a node.
    fn sees(&self, name: &str) -> Option<Json> {
        let listed = self.command(&["node", "list"]).json(0);
        let nodes = listed["nodes"].as_array().expect("a list");
        nodes.iter().find(|node| node["name"] == name).cloned()
    }

    /// Waits until it sees a node in this state. Each look is a command, which takes its time.
    pub(crate) fn wait_for(&self, name: &str, state: &str) -> Json {
        loop {
            match self.sees(name) {
                Some(node) if node["state"] == state => return node,
                _ => {}
            }
        }
    }

    /// Waits until it has nothing left of anybody, and no actor lives in the cluster.
    #[track_caller]
    pub(crate) fn wait_for_rest(&self) {
        eventually(&format!("at rest: {}", self.name), || {
            says_so(self.name, |args| self.command(args))?;
            let actors = self.command(&["list", "actors"]).json(0);
            let mut all = actors["actors"].as_array().expect("a list").iter();
            match all.all(|it| it["state"] == "failed") {
                true => self.files.are_all_of(self.process()),
                false => Err(actors.to_string()),
            }
        });
    }

    /// Waits until it sees this incarnation of a node.
    pub(crate) fn wait_for_incarnation(&self, name: &str, incarnation: u64) {
        while self.wait_for(name, "alive")["incarnation"] != incarnation {}
    }
}

/// Waits until these nodes have nothing left of anybody.
#[track_caller]
pub(crate) fn wait_for_rest<'a>(members: impl IntoIterator<Item = &'a Member>) {
    for member in members {
        member.wait_for_rest();
    }
}

#[test]
fn nodes_find_each_other_and_see_who_dies_and_comes_back() {
    let (head, token) = Member::head("a");
    let b = Member::joined("b", &token);
    let mut c = Member::joined("c", &token);
    for one in [&head, &b, &c] {
        for other in ["a", "b", "c"] {
            one.wait_for_incarnation(other, 1);
        }
    }
    let seen = b.wait_for("a", "alive");
    assert_eq!(seen["head"], true);
    assert_eq!(seen["total"]["CPU"], "1");
    c.kill();
    for one in [&head, &b] {
        one.wait_for("c", "dead");
    }
    // The folder has all that it takes.
    c.start(&["--join"]);
    for one in [&head, &b] {
        one.wait_for_incarnation("c", 2);
    }
    // Who is stopped leaves at once.
    c.command(&["node", "stop"]).ok();
    b.wait_for("c", "dead");
}

#[test]
fn a_node_that_was_counted_as_dead_comes_back_by_itself() {
    let (head, token) = Member::head("a");
    let b = Member::joined("b", &token);
    let c = Member::joined("c", &token);
    b.wait_for_incarnation("c", 1);
    let process = c.running.as_ref().expect("it runs");
    // As if it were cut off: it says nothing until its lease has ended.
    process.signal(Signal::STOP);
    for one in [&head, &b] {
        one.wait_for("c", "dead");
    }
    process.signal(Signal::CONT);
    for one in [&head, &b] {
        one.wait_for_incarnation("c", 2);
    }
    c.wait_for_incarnation("c", 2);
    for other in ["a", "b"] {
        c.wait_for_incarnation(other, 1);
    }
}

#[test]
fn a_head_that_is_killed_comes_back_and_nobody_dies_of_it() {
    let (mut head, token) = Member::head("a");
    let b = Member::joined("b", &token);
    let c = Member::joined("c", &token);
    b.wait_for_incarnation("c", 1);
    let address = b.wait_for("a", "alive")["address"].clone();
    let address = address.as_str().expect("an address");
    head.kill();
    head.start(&["--head", "--listen", address]);
    for one in [&b, &c] {
        one.wait_for_incarnation("a", 2);
    }
    for other in ["b", "c"] {
        head.wait_for_incarnation(other, 1);
    }
    b.wait_for_incarnation("c", 1);
    // The store goes on, with what was in it.
    let d = Member::joined("d", &token);
    b.wait_for_incarnation("d", 1);
    d.wait_for_incarnation("b", 1);
}

#[test]
fn a_node_that_drains_is_seen_by_all() {
    let (head, token) = Member::head("a");
    let b = Member::joined("b", &token);
    head.wait_for_incarnation("b", 1);
    let drained = head.command(&["node", "drain", "b"]).run();
    assert_eq!(drained.code, Some(0), "{drained}");
    let seen = head.wait_for("b", "draining");
    let id = seen["id"].as_str().expect("an id");
    let said = format!("node b ({id}) takes no new work\n");
    assert_eq!(drained.stderr, said);
    b.wait_for("b", "draining");
    b.command(&["node", "drain", "b", "--undo"]).ok();
    head.wait_for("b", "alive");
    b.command(&["node", "drain", "nobody"])
        .fails_saying(2, &["there is no node 'nobody'"]);
}

#[test]
fn who_does_not_belong_here_is_told_why() {
    let (head, token) = Member::head("a");
    let new = || Member::new("x");
    // No token, and none at all.
    new()
        .starting(&["--join", "hello"])
        .fails_saying(2, &["this is no join token"]);
    let mut cut = token.clone();
    cut.pop();
    new()
        .starting(&["--join", &cut])
        .fails_saying(2, &["typing error or is cut off"]);
    new()
        .starting(&["--join"])
        .fails_saying(2, &["is not the folder of a node that has joined"]);
    // A token that serves once, twice.
    let once = head.token(&[]);
    let b = Member::joined("b", &once);
    new()
        .starting(&["--join", &once])
        .fails_saying(4, &["this token was used already"]);
    // One that was taken back.
    let taken = head.token(&[]);
    let listed = b.command(&["node", "token", "list", "-o", "json"]).ok();
    let listed: Json = serde_json::from_str(&listed).expect("JSON");
    let tokens = listed["tokens"].as_array().expect("a list");
    let used = tokens.iter().find(|it| it["state"] == "used");
    assert!(used.is_some(), "{listed}");
    let valid = tokens.iter().filter(|it| it["state"] == "valid");
    for token in valid.filter(|it| it["many"] == false) {
        let id = token["id"].as_str().expect("an id");
        let revoked = b.command(&["node", "token", "revoke", &id[..12]]).run();
        assert_eq!(revoked.code, Some(0), "{revoked}");
        assert_says(&revoked.stderr, &[id, "lets nobody join any more"]);
    }
    new()
        .starting(&["--join", &taken])
        .fails_saying(4, &["this token was revoked"]);
    // A name that somebody has.
    let mut same = Member::new("b");
    same.starting(&["--join", &token])
        .fails_saying(2, &["another node of the cluster is called 'b'"]);
    same.name = "c";
    same.start(&["--join", &token]);
    head.wait_for_incarnation("c", 2);
    // One folder, two processes; and another cluster's folder.
    let second = b.command(&["node", "start", "--join", "--state-dir"]);
    second
        .arg(b.state())
        .fails_saying(2, &["another node uses the state folder"]);
    let (other, others) = Member::head("z");
    b.command(&["node", "stop"]).ok();
    b.starting(&["--join", &others])
        .fails_saying(2, &["of another cluster than the token's"]);
    b.starting(&["--head"])
        .fails_saying(2, &["is the folder of a node that joined a cluster"]);
    other.command(&["node", "stop"]).ok();
    other
        .starting(&["--join", &token])
        .fails_saying(2, &["is the folder of a cluster's head"]);
    // A node that is alone has no tokens, and a folder alone says nothing.
    new()
        .starting(&[])
        .fails_saying(2, &["begin one with --head"]);
}

#[test]
fn one_command_makes_a_cluster_of_this_machine() {
    let dir = scratch();
    let address = format!("unix:{}/own/node.sock", dir.path().display());
    let wasmrun = |args: &[&str]| Wasmrun::new(args).env("WASMRUN_ADDRESS", &address);
    let temporary = scratch();
    let start = wasmrun(&["node", "start", "--local", "3"]);
    let mut cluster = start.env("TMPDIR", temporary.path()).start();
    cluster.wait_for(Stream::Out, "3 nodes are there");
    let listed = wasmrun(&["node", "list"]).json(0);
    let nodes = listed["nodes"].as_array().expect("a list");
    let names: Vec<_> = nodes.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3"]);
    // Every user of this machine can read these.
    let folder = temporary.path().to_string_lossy();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    let others: Vec<String> = lines.filter(|line| line.contains(&*folder)).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    assert!(!others.concat().contains("wasmrun-join-"), "{others:?}");
    cluster.signal(Signal::INT);
    let ended = cluster.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    // Little, and no token.
    let said = ended.stdout_text();
    let n1 = format!("node n1 listens at {address}\n");
    let others = ["node n2 listens at unix:", "node n3 listens at unix:"];
    let rest = "3 nodes are there\nto use them: wasmrun submit MODULE\nto end them: Ctrl-C, or wasmrun node stop\n";
    assert_says(&said, &[&n1, others[0], others[1], rest]);
    assert_eq!(said.lines().count(), 6, "{ended}");
    assert!(!ended.stderr.contains(" INFO "), "{ended}");
    let left = std::fs::read_dir(temporary.path()).unwrap().count();
    assert_eq!(left, 0, "the key of the cluster's authority, for one");
}
