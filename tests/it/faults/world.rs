//! Nodes that can be killed, cut off and started again, and what is asked of those that are left.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value as Json;
use tempfile::TempDir;
use wasmrun_tests::{Ended, Running, Stream, Wasmrun, guest, scratch};

use super::rest::{self, Files};
use crate::metrics;

/// How long something may take that is waited for. Far more than it needs, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `look` finds what it looks for. What it has seen is shown if that takes too long.
#[track_caller]
pub(crate) fn eventually<T, S: fmt::Display>(
    what: &str,
    mut look: impl FnMut() -> Result<T, S>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "never {what}: {seen}"),
        }
        // Others need the CPU more than this look does.
        thread::sleep(PAUSE);
    }
}

/// An address of this machine that no other test has.
pub(super) fn address() -> SocketAddr {
    static GIVEN: AtomicU8 = AtomicU8::new(1);
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    // Several runs may be under way; few have ids that are so much alike.
    SocketAddr::new(Ipv4Addr::new(127, number, high, low).into(), 7461)
}

/// A node with a socket, an address and a state folder of its own.
pub(super) struct Node {
    pub(super) name: String,
    dir: TempDir,
    state: PathBuf,
    listen: SocketAddr,
    namespace: Option<String>,
    store: &'static str,
    options: Vec<String>,
    running: Option<Running>,
    metrics: Option<SocketAddr>,
    /// What it had open when it had just been started.
    files: Files,
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        let dir = scratch();
        Self {
            name: name.to_owned(),
            state: dir.path().join("state"),
            dir,
            listen: address(),
            namespace: None,
            store: "256MiB",
            options: Vec::new(),
            running: None,
            metrics: None,
            files: Files::default(),
        }
    }

    /// Listens there.
    pub(super) fn at(mut self, listen: SocketAddr) -> Self {
        self.listen = listen;
        self
    }

    /// Runs in this network namespace.
    pub(super) fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Keeps its state there.
    pub(super) fn with_state(mut self, state: &Path) -> Self {
        self.state = state.to_owned();
        self
    }

    /// Has a store of this size.
    pub(super) fn with_store(mut self, store: &'static str) -> Self {
        self.store = store;
        self
    }

    /// More options of `node start`.
    pub(super) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(ToString::to_string));
        self
    }

    /// The options that it was given besides.
    pub(super) fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Where its process tells its numbers.
    pub(super) fn metrics(&self) -> SocketAddr {
        self.metrics.expect("it runs")
    }

    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// A command to it.
    pub(super) fn command(&self, args: &[&str]) -> Wasmrun {
        let address = format!("unix:{}/own/node.sock", self.dir.path().display());
        Wasmrun::new(args).env("WASMRUN_ADDRESS", address)
    }

    /// `node start` with these options, which has not been started.
    pub(super) fn starting(&self, part: &[&str]) -> Wasmrun {
        let start = self.command(&["node", "start", "--node-cpus", "1", "--node-name"]);
        let start = start
            .args([&self.name, "--object-memory", self.store, "--state-dir"])
            .arg(&self.state);
        let start = start.args(["--listen", &self.listen.to_string()]);
        let start = start.arg("--metrics=127.0.0.1:0");
        let start = start.args(part).args(&self.options);
        match &self.namespace {
            Some(namespace) => start.in_namespace(namespace),
            None => start,
        }
    }

    pub(super) fn start(&mut self, part: &[&str]) {
        let mut running = self.starting(part).start();
        running.wait_for(Stream::Out, "listens at unix:");
        self.metrics = Some(metrics::address(&mut running));
        self.files = Files::of(running.process());
        self.running = Some(running);
    }

    /// Its process.
    pub(super) fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("it runs")
    }

    /// Waits until a line of what it logs has all of this, in this order.
    #[track_caller]
    pub(super) fn wait_for_log(&mut self, parts: &[&str]) {
        let name = self.name.clone();
        let running = self.running();
        eventually(&format!("{name} logged {parts:?}"), || {
            // It takes what has been written since.
            running.is_running();
            let written = running.written(Stream::Err);
            let is_it = |line: &str| {
                let rest = parts.iter().try_fold(line, |rest, part| {
                    let (_, after) = rest.split_once(part)?;
                    Some(after)
                });
                rest.is_some()
            };
            let is_there = written.lines().any(is_it);
            is_there.then_some(()).ok_or(written)
        });
    }

    /// Ends it as a crash of its machine would. What it has written.
    pub(super) fn kill(&mut self) -> Ended {
        let running = self.running.take().expect("it runs");
        running.signal(Signal::KILL);
        let ended = running.end();
        assert_eq!(ended.code, None);
        ended
    }

    /// Its end, which somebody has asked for.
    pub(super) fn stopped(&mut self) -> Ended {
        self.running.take().expect("it runs").end()
    }

    pub(super) fn token(&self, args: &[&str]) -> String {
        let create = self.command(&["node", "token", "create"]);
        create.args(args).ok().trim().to_owned()
    }

    /// What it says of a node.
    pub(super) fn sees(&self, name: &str) -> Option<Json> {
        let listed = self.command(&["node", "list"]).json(0);
        let nodes = listed["nodes"].as_array().expect("a list");
        nodes.iter().find(|node| node["name"] == name).cloned()
    }

    /// Waits until it sees a node in this state.
    #[track_caller]
    pub(super) fn wait_for(&self, name: &str, state: &str) -> Json {
        let what = format!("was {name} {state} for {}", self.name);
        eventually(&what, || match self.sees(name) {
            Some(node) if node["state"] == state => Ok(node),
            other => Err(format!("{other:?}")),
        })
    }

    /// Waits until it sees this incarnation of a node, or a later one.
    #[track_caller]
    pub(super) fn wait_for_incarnation(&self, name: &str, incarnation: u64) {
        let what = format!("was {name} in incarnation {incarnation} for {}", self.name);
        eventually(&what, || match self.sees(name) {
            Some(node)
                if node["state"] == "alive"
                    && node["incarnation"].as_u64() >= Some(incarnation) =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        });
    }

    /// Waits until a task of this name runs on it.
    #[track_caller]
    pub(super) fn wait_for_running(&self, task: &str) {
        eventually(&format!("{task} ran at {}", self.name), || {
            let list = self.command(&["list", "tasks"]).json(0);
            let tasks = list["tasks"].as_array().expect("a list");
            let is_it = |it: &Json| it["name"] == *task && it["state"] == "running";
            if tasks.iter().any(is_it) {
                Ok(())
            } else {
                Err(list.to_string())
            }
        });
    }

    /// Waits until it says, with these words, why a task of this name does not go on. All that it says of that.
    #[track_caller]
    pub(super) fn wait_for_why(&self, task: &str, words: &str) -> String {
        eventually(&format!("{task} did not go on at {}", self.name), || {
            let list = self.command(&["list", "tasks"]).json(0);
            let tasks = list["tasks"].as_array().expect("a list");
            let is_it = |it: &&Json| it["name"].as_str().is_some_and(|name| name.contains(task));
            let id = tasks.iter().find(is_it).and_then(|it| it["id"].as_str());
            let why = self.command(&["explain", id.ok_or(list.to_string())?]).ok();
            match why.contains(words) {
                true => Ok(why),
                false => Err(why),
            }
        })
    }

    pub(super) fn status(&self) -> Json {
        self.command(&["status"]).json(0)
    }

    /// How many of its tasks have ended so.
    pub(super) fn ended(&self, state: &str) -> u64 {
        self.status()["tasks"][state].as_u64().unwrap_or(0)
    }

    /// No task that it knows has failed, of whichever node. One that comes back may say so for a moment of what others
    /// have taken over.
    #[track_caller]
    pub(super) fn none_has_failed(&self) {
        eventually(&format!("none failed for {}", self.name), || {
            let list = self.command(&["list", "tasks", "--filter", "state=failed"]);
            let listed = list.json(0);
            let failed = listed["tasks"].as_array().expect("a list").iter();
            let shown = failed.map(|task| {
                let id = task["id"].as_str().expect("an id");
                self.command(&["get", id]).run().to_string()
            });
            let shown = shown.collect::<String>();
            shown.is_empty().then_some(()).ok_or(shown)
        });
    }

    /// Waits until it has nothing left of anybody: see [`rest`].
    #[track_caller]
    pub(super) fn wait_for_rest(&self) {
        let process = self.running.as_ref().expect("it runs").process();
        eventually(&format!("at rest: {}", self.name), || {
            rest::says_so(&self.name, |args| self.command(args))?;
            rest::measures_so(self.metrics(), self.namespace.as_deref())?;
            self.files.are_all_of(process)
        });
    }

    /// A function of the guest, called at it, to run there.
    pub(super) fn call(&self, call: &str) -> Wasmrun {
        self.call_on(&self.name, call)
    }

    /// A function of the guest, called at it, to run on this node.
    pub(super) fn call_on(&self, node: &str, call: &str) -> Wasmrun {
        let submit = self.command(&["submit", "-q"]).arg(guest("faults"));
        submit.args(["--invoke", call, "--strategy", &format!("node:{node}")])
    }
}

/// A head and two that have joined it, which see each other.
pub(super) struct Three {
    pub(super) a: Node,
    pub(super) b: Node,
    pub(super) c: Node,
}

impl Three {
    pub(super) fn new() -> Self {
        Self::with([Node::new("a"), Node::new("b"), Node::new("c")])
    }

    /// Starts these. The first is the head.
    pub(super) fn with([mut a, mut b, mut c]: [Node; 3]) -> Self {
        a.start(&["--head"]);
        let token = a.token(&["--many"]);
        b.start(&["--join", &token]);
        c.start(&["--join", &token]);
        let three = Self { a, b, c };
        three.meet();
        three
    }

    /// Waits until each sees all.
    pub(super) fn meet(&self) {
        for one in self.all() {
            for other in self.all() {
                one.wait_for(&other.name, "alive");
            }
        }
    }

    pub(super) fn node(&self, name: &str) -> &Node {
        let mut all = self.all().into_iter();
        all.find(|node| node.name == name)
            .expect("one of the three")
    }

    pub(super) fn node_mut(&mut self, name: &str) -> &mut Node {
        let mut all = [&mut self.a, &mut self.b, &mut self.c].into_iter();
        all.find(|node| node.name == name)
            .expect("one of the three")
    }

    pub(super) fn all(&self) -> [&Node; 3] {
        [&self.a, &self.b, &self.c]
    }
}

/// Waits until these nodes have nothing left of anybody.
#[track_caller]
pub(super) fn wait_for_rest<'a>(nodes: impl IntoIterator<Item = &'a Node>) {
    for node in nodes {
        node.wait_for_rest();
    }
}

/// The same, of nodes of whose tasks none may have failed.
#[track_caller]
pub(super) fn rest_without_failures<'a>(nodes: impl IntoIterator<Item = &'a Node>) {
    for node in nodes {
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
}

/// A tree of tasks that depend on each other and keep three nodes busy for some seconds, at a driver.
pub(super) struct Tree {
    leaves: usize,
    running: Running,
}

impl Tree {
    /// Whose results, in its lower half, go with messages.
    pub(super) fn start(driver: &Node) -> Self {
        Self::of(driver, 120, 2048)
    }

    /// Whose results all stay in the store of the node that made them, and are lost with it.
    pub(super) fn start_large(driver: &Node) -> Self {
        Self::of(driver, 80, 10_000)
    }

    fn of(driver: &Node, leaves: usize, copies: usize) -> Self {
        let running = driver
            .call(&format!("tree({leaves}, {copies}, 60)"))
            .start();
        Self { leaves, running }
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.running.is_running()
    }

    /// Waits until a task of it has begun at a node, and so many leaves have.
    #[track_caller]
    pub(super) fn wait_until_at(&mut self, node: &str, leaves: usize) {
        let running = &mut self.running;
        running.wait_for(Stream::Err, &format!(" at {node}\n"));
        self.wait_until_begun(leaves);
    }

    #[track_caller]
    fn wait_until_begun(&mut self, leaves: usize) {
        let what = format!("{leaves} times that a leaf begins");
        let running = &mut self.running;
        running.wait_until(Stream::Err, &what, |written| begun(written) >= leaves);
    }

    /// Waits until so many more leaves have begun, wherever that is.
    #[track_caller]
    pub(super) fn goes_on(&mut self, leaves: usize) {
        let before = begun(&self.running.written(Stream::Err));
        self.wait_until_begun(before + leaves);
    }

    /// Its end: everything was counted once, and no attempt was made twice. How many leaves were begun again.
    #[track_caller]
    pub(super) fn ends_well(self) -> usize {
        let ended = self.running.end();
        let want = format!("ok([{}, 0])\n", self.leaves);
        assert_eq!(ended.stdout_text(), want, "{ended}");
        begun_again(&ended, self.leaves)
    }

    /// Its end, which cannot be a good one.
    #[track_caller]
    pub(super) fn fails_saying(self, what: &str) {
        let ended = self.running.end();
        assert_ne!(ended.code, Some(0), "{ended}");
        assert!(ended.stderr.contains(what), "{ended}");
    }
}

/// How often a leaf has begun.
fn begun(written: &str) -> usize {
    written.matches("leaf ").count()
}

/// How many attempts there were besides the first ones. Each leaf has begun, and each attempt once.
#[track_caller]
fn begun_again(ended: &Ended, leaves: usize) -> usize {
    let attempts = ended.stderr.lines().filter_map(|line| {
        let mut words = line.strip_prefix("leaf ")?.split(' ');
        let leaf: usize = words.next()?.parse().ok()?;
        let attempt: u32 = words.nth(1)?.parse().ok()?;
        Some((leaf, attempt))
    });
    let attempts: Vec<_> = attempts.collect();
    let distinct: BTreeSet<_> = attempts.iter().collect();
    assert_eq!(
        attempts.len(),
        distinct.len(),
        "one was made twice: {ended}"
    );
    let begun: BTreeSet<_> = attempts.iter().map(|(leaf, _)| *leaf).collect();
    assert_eq!(
        begun.len(),
        leaves,
        "a leaf never said that it began: {ended}"
    );
    attempts.len() - leaves
}

/// Marsaglia's xorshift64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Seeds that are alike give numbers that are not, and never a zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }
}
