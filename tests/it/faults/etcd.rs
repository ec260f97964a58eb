//! Nodes with their control store in etcd: it goes away and comes back, and so does the head.
//!
//! Where there is no etcd these tests say so and do nothing, unless `WASMRUN_REQUIRE_ETCD` is set, as in CI.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;
use wasmrun_tests::{assert_says, guest, scratch, skipped};

use super::detached::{Detached, answers, ask};
use super::durable::{detached, result, rows, wait_for};
use super::way::{State, Way};
use super::world::{Node, Three, Tree, address, eventually, rest_without_failures, wait_for_rest};

/// How long it is away: several times what a lease lives.
const AWAY: Duration = Duration::from_secs(10);

/// An etcd server of a test's own.
pub(super) struct Etcd {
    folder: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Etcd {
    pub(super) fn new() -> Option<Self> {
        let (folder, mut address) = (scratch(), address());
        address.set_port(2379);
        let child = match spawn(&folder, address) {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = "there is no etcd server here: install Debian's etcd-server";
                skipped("WASMRUN_REQUIRE_ETCD", why);
                return None;
            }
            Err(error) => panic!("cannot start etcd: {error}"),
        };
        let etcd = Self {
            folder,
            address,
            child,
        };
        etcd.wait();
        Some(etcd)
    }

    fn wait(&self) {
        eventually("etcd was there", || TcpStream::connect(self.address));
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Nothing is put in order.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    fn start_again(&mut self) {
        self.child = spawn(&self.folder, self.address).expect("it could be started before");
        self.wait();
    }

    pub(super) fn three(&self) -> Three {
        Three::with(["a", "b", "c"].map(|name| Node::new(name).with(&["--etcd", &self.url()])))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &TempDir, address: SocketAddr) -> std::io::Result<Child> {
    let program = std::env::var_os("WASMRUN_ETCD").unwrap_or_else(|| "etcd".into());
    let clients = format!("http://{address}");
    let peers = format!("http://{}:2380", address.ip());
    Command::new(program)
        .args(["--name", "test", "--data-dir"])
        .arg(folder.path().join("data"))
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("test={peers}")])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        // On hosts other than amd64, Debian's etcd wants to be told that this is meant.
        .env("ETCD_UNSUPPORTED_ARCH", "arm64")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

#[test]
fn etcd_that_is_away_for_ten_seconds_is_not_missed_by_work() {
    let Some(mut etcd) = Etcd::new() else { return };
    let three = etcd.three();
    let mut tree = Tree::start(&three.b);
    for name in ["a", "b", "c"] {
        tree.wait_until_at(name, 20);
    }
    etcd.kill();
    // What was begun ends without it, and so does what begins now.
    tree.ends_well();
    let second = Tree::start(&three.c);
    three
        .b
        .command(&["node", "token", "create"])
        .fails_saying(5, &["etcd"]);
    // How long it is away is what this test is about.
    thread::sleep(AWAY);
    second.ends_well();
    etcd.start_again();
    three.meet();
    rest_without_failures(three.all());
    // Nobody was counted as dead.
    for name in ["a", "b", "c"] {
        assert_eq!(three.a.sees(name).expect("it lives")["incarnation"], 1);
    }
    three.c.token(&[]);
}

#[test]
fn once_etcd_is_back_who_dies_is_missed_and_who_comes_gets_work() {
    let Some(mut etcd) = Etcd::new() else { return };
    let mut three = etcd.three();
    let submit = three.c.command(&["submit"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", "sleep-forever()", "--cpus", "0.1"]);
    let kept = submit.arg("--detach").ok().trim().to_owned();
    wait_for(&three.b, &kept, "running");
    etcd.kill();
    for node in three.all() {
        node.wait_for(&node.name, "unconfirmed");
    }
    etcd.start_again();
    three.meet();
    let mut tree = Tree::start_large(&three.b);
    tree.wait_until_at("c", 20);
    three.c.kill();
    let mut new = Node::new("d").with(&["--etcd", &etcd.url()]);
    new.start(&["--join", &three.a.token(&[])]);
    let left = [&three.a, &three.b, &new];
    for node in left {
        node.wait_for("c", "dead");
        for other in left {
            node.wait_for(&other.name, "alive");
        }
    }
    tree.ends_well();
    // What it had submitted goes on, once.
    for node in left {
        wait_for(node, &kept, "running");
        assert_eq!(rows(node, "sleep-forever").len(), 1);
    }
    // Work of the newcomer is done by all, and it does that of others.
    for driver in [&new, &three.a] {
        let mut tree = Tree::start(driver);
        for node in left {
            tree.wait_until_at(&node.name, 0);
        }
        tree.ends_well();
    }
    new.command(&["cancel", &kept]).ok();
    for node in left {
        wait_for(node, &kept, "cancelled");
        node.wait_for_rest();
        assert_eq!(node.ended("failed"), 0);
    }
}

/// One node that etcd cannot be reached from, while it can from the others and all nodes hear each other.
fn only_one_is_cut_off(how: State) {
    let Some(etcd) = Etcd::new() else { return };
    let way = Way::to(etcd.address);
    let three = Three::with(["a", "b", "c"].map(|name| {
        let url = match name {
            "b" => format!("http://{}", way.address),
            _ => etcd.url(),
        };
        Node::new(name).with(&["--etcd", &url])
    }));
    let Three { a, b, c } = &three;
    let mut detached = Detached::begin(&three, &[]);
    // It works for another, and another works for it.
    let mut trees = [a, b].map(Tree::start_large);
    for (tree, node) in trees.iter_mut().zip(["b", "c"]) {
        tree.wait_until_at(node, 20);
    }
    way.set(how);
    // It counts as dead for all others, and cannot know.
    for node in [a, c] {
        node.wait_for("b", "dead");
    }
    b.wait_for("b", "unconfirmed");
    // What was kept of it is another's now, so its own actors do nothing.
    let mut paused = ask(b, "of-b").start();
    let why = b.wait_for_why("add", "does not confirm");
    assert_says(&why, &["another node may have live elsewhere"]);
    for node in [a, c] {
        answers(node, "of-b");
    }
    b.command(&["node", "drain", "c"])
        .fails_saying(5, &["the control store", "etcd"]);
    // Others go on with all of it, and it takes what it cannot have written down.
    detached.submit_anyhow(a, false);
    detached.submit_anyhow(b, true);
    assert!(paused.is_running());
    way.set(State::Open);
    // It finds that it was counted as dead.
    a.wait_for_incarnation("b", 2);
    three.meet();
    // The actor is another's, and may have answered this once.
    paused.end();
    for tree in trees {
        tree.ends_well();
    }
    Tree::start(b).ends_well();
    for name in ["a", "c"] {
        assert_eq!(b.sees(name).expect("it lives")["incarnation"], 1);
    }
    detached.ends_well(&three);
}

#[test]
fn a_node_that_hears_nothing_of_etcd_is_dead_to_those_who_do_and_comes_back() {
    only_one_is_cut_off(State::Silent);
}

#[test]
fn a_node_that_etcd_refuses_is_dead_to_those_whom_it_serves_and_comes_back() {
    only_one_is_cut_off(State::Broken);
}

#[test]
fn with_etcd_the_head_may_die_for_good() {
    let Some(etcd) = Etcd::new() else { return };
    let mut three = etcd.three();
    let mut tree = Tree::start(&three.b);
    tree.wait_until_at("a", 30);
    three
        .b
        .command(&["tenant", "set", "red", "--weight", "3"])
        .ok();
    three.a.kill();
    tree.ends_well();
    three.b.wait_for("a", "dead");
    rest_without_failures([&three.b, &three.c]);
    three
        .b
        .command(&["node", "token", "create"])
        .fails_saying(5, &["the head is not there now"]);
    // What tenants are due needs no head.
    three
        .c
        .command(&["tenant", "set", "red", "--min", "CPU=1"])
        .ok();
    for node in [&three.b, &three.c] {
        eventually(&format!("did {} know what red is due", node.name), || {
            let listed = node.command(&["tenant", "list"]).json(0);
            let mut tenants = listed["tenants"].as_array().expect("a list").iter();
            let is_red = |it: &&Json| it["name"] == "red" && it["weight"] == "3";
            match tenants.find(is_red) {
                Some(red) if red["min"]["CPU"] == "1" => Ok(()),
                _ => Err(listed),
            }
        });
    }
}

#[test]
fn with_etcd_a_detached_group_outlives_the_head_that_created_it() {
    let Some(etcd) = Etcd::new() else { return };
    let mut three = etcd.three();
    let create = three.a.command(&["group", "create", "--detach"]);
    let create = create.args(["--kind", "spread", "--bundle", "cpus=0.5"]);
    let create = create.args(["--bundle", "cpus=0.5", "--bundle", "cpus=0.5"]);
    let group = create.ok().trim().to_owned();
    three.b.command(&["group", "ready", &group]).ok();
    three.a.kill();
    three.b.wait_for("a", "dead");
    for node in [&three.b, &three.c] {
        let ready = node.command(&["group", "ready", &group, "--timeout", "90s"]);
        ready.ok();
    }
    three.c.command(&["group", "remove", &group]).ok();
    wait_for_rest([&three.b, &three.c]);
}

#[test]
fn with_etcd_detached_tasks_outlive_the_head_where_they_were_submitted() {
    let Some(etcd) = Etcd::new() else { return };
    let mut three = etcd.three();
    let done = detached(&three.a, "join(\"ab\", 2, none)");
    wait_for(&three.a, &done, "finished");
    // Only that node has it.
    let large = detached(
        &three.a,
        &format!("join(\"{}\", 2, none)", "x".repeat(40_000)),
    );
    wait_for(&three.a, &large, "finished");
    let forever = detached(&three.a, "sleep-forever()");
    wait_for(&three.a, &forever, "running");
    three.a.kill();
    three.b.wait_for("a", "dead");
    for node in [&three.b, &three.c] {
        wait_for(node, &done, "finished");
        wait_for(node, &forever, "running");
        assert_eq!(rows(node, "sleep-forever").len(), 1);
    }
    assert_eq!(result([&three.b, &three.c], &done), "\"abab\"\n");
    // It is made again.
    assert_eq!(result([&three.b, &three.c], &large).len(), 80_003);
    three.b.command(&["object", "delete", &large]).ok();
    three.c.command(&["cancel", &forever]).ok();
    for node in [&three.b, &three.c] {
        wait_for(node, &forever, "cancelled");
        node.wait_for_rest();
    }
}
