//! Links between nodes that fail: cut for a while, or bad all the time.
//!
//! Hosts are network namespaces, each joined to each by a wire of its own, so that any two can be parted. Who
//! may not make namespaces skips these tests, unless `WASMRUN_REQUIRE_NETNS` says that they must not be.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wasmrun_tests::{Stream, assert_says, guest, skipped};

use super::detached::{Detached, answers};
use super::proxy::Proxy;
use super::world::{Node, Three, Tree, eventually, rest_without_failures, wait_for_rest};

/// Says that tests without namespaces must fail.
pub(super) const REQUIRED: &str = "WASMRUN_REQUIRE_NETNS";

/// How long two nodes are parted: longer than a lease lives, and less than a connection does.
pub(super) const PARTED: Duration = Duration::from_secs(10);
/// Longer than a lease lives, and less than a transfer waits for bytes.
const PARTED_BRIEFLY: Duration = Duration::from_secs(6);
/// Longer than a connection lives.
pub(super) const PARTED_LONG: Duration = Duration::from_secs(14);

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new(wasmrun_tests::ip())
        .args(args.split(' '))
        .output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn done(args: &str) {
    ip(args).unwrap_or_else(|error| panic!("ip {args}: {error}"));
}

/// Three hosts, `a`, `b` and `c`, each with a wire to each of the others.
pub(super) struct Hosts {
    prefix: String,
}

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

impl Hosts {
    /// `None` where nobody lets us.
    pub(super) fn new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("wasmrun-{}-{number}", std::process::id());
        let hosts = Self { prefix };
        for name in NAMES {
            if let Err(why) = ip(&format!("netns add {}", hosts.namespace(name))) {
                let why = format!("network namespaces cannot be made here: {why}");
                skipped(REQUIRED, &why);
                return None;
            }
            // Whoever listens at it is there whatever becomes of the wires.
            hosts.within(name, "link set lo up");
            hosts.within(name, &format!("addr add {}/32 dev lo", ip_of(name)));
        }
        for (one, other) in [("a", "b"), ("b", "c"), ("a", "c")] {
            let (here, there) = (hosts.namespace(one), hosts.namespace(other));
            done(&format!(
                "link add to-{other} netns {here} address {} type veth peer name to-{one} netns {there} \
                 address {}",
                mac(one),
                mac(other)
            ));
            for (at, to) in [(one, other), (other, one)] {
                hosts.wire_up(at, to);
            }
        }
        Some(hosts)
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn within(&self, name: &str, args: &str) {
        done(&format!("-n {} {args}", self.namespace(name)));
    }

    fn wire_up(&self, at: &str, to: &str) {
        self.within(at, &format!("link set to-{to} up"));
        let (here, there) = (ip_of(at), ip_of(to));
        self.within(at, &format!("route add {there} dev to-{to} src {here}"));
        self.address(at, to, mac(to));
    }

    /// Whom what is sent to a host is meant for on the wire.
    fn address(&self, at: &str, to: &str, mac: &str) {
        let there = ip_of(to);
        let neighbour = format!("neigh replace {there} lladdr {mac} dev to-{to} nud permanent");
        self.within(at, &neighbour);
    }

    /// What two hosts send each other gets lost, and nobody tells them: or, with the wire unplugged, they are
    /// told that there is no way.
    pub(super) fn part(&self, one: &str, other: &str, is_unplugged: bool) {
        match is_unplugged {
            true => self.within(one, &format!("link set to-{other} down")),
            false => {
                self.address(one, other, "02:00:00:00:00:99");
                self.address(other, one, "02:00:00:00:00:99");
            }
        }
    }

    pub(super) fn heal(&self, one: &str, other: &str, is_unplugged: bool) {
        match is_unplugged {
            true => self.wire_up(one, other),
            false => {
                self.address(one, other, mac(other));
                self.address(other, one, mac(one));
            }
        }
    }

    pub(super) fn node(&self, name: &str) -> Node {
        let address = SocketAddr::new(ip_of(name).into(), 7461);
        let node = Node::new(name).at(address);
        node.in_namespace(&self.namespace(name))
    }

    pub(super) fn three(&self) -> Three {
        Three::with(NAMES.map(|name| self.node(name)))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in NAMES {
            // Its wires go with it.
            let _ = ip(&format!("netns del {}", self.namespace(name)));
        }
    }
}

/// Removes the namespaces of processes that are gone.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("wasmrun-") else {
            continue;
        };
        let process = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip_of(name: &str) -> Ipv4Addr {
    let number = NAMES.iter().position(|it| *it == name).expect("a host");
    Ipv4Addr::new(10, 99, 0, number as u8 + 1)
}

fn mac(name: &str) -> &'static str {
    let number = NAMES.iter().position(|it| *it == name).expect("a host");
    [
        "02:00:00:00:00:01",
        "02:00:00:00:00:02",
        "02:00:00:00:00:03",
    ][number]
}

/// Two nodes that are parted for a while, as a driver's tree of tasks is under way.
struct Parting {
    driver: &'static str,
    between: (&'static str, &'static str),
    is_unplugged: bool,
    time: Duration,
}

impl Parting {
    fn run(self) {
        let Some(hosts) = Hosts::new() else { return };
        let three = hosts.three();
        let nodes = three.all();
        let (one, other) = self.between;
        let mut tree = Tree::start_large(three.node(self.driver));
        for name in NAMES {
            tree.wait_until_at(name, 20);
        }
        hosts.part(one, other, self.is_unplugged);
        let cut = Instant::now();
        if one == "a" {
            three.a.wait_for(other, "dead");
        }
        // How long a fault lasts is what this test is about; nothing is waited for so.
        thread::sleep(self.time.saturating_sub(cut.elapsed()));
        hosts.heal(one, other, self.is_unplugged);
        let begun_again = tree.ends_well();
        if one != "a" {
            assert_eq!(begun_again, 0, "nobody was dead");
        }
        three.meet();
        for node in nodes {
            node.wait_for_rest();
            assert_eq!(node.ended("failed"), 0);
        }
        let incarnation = three.a.sees(other).expect("it is back")["incarnation"].clone();
        assert_eq!(incarnation, if one == "a" { 2 } else { 1 });
    }
}

#[test]
fn two_workers_that_cannot_hear_each_other() {
    Parting {
        driver: "a",
        between: ("b", "c"),
        is_unplugged: false,
        time: PARTED_LONG,
    }
    .run();
}

#[test]
fn a_worker_that_its_driver_cannot_hear() {
    // Both hear the head: nobody is dead. What one fetches from the other breaks, and is there nevertheless.
    Parting {
        driver: "b",
        between: ("b", "c"),
        is_unplugged: false,
        time: PARTED_LONG,
    }
    .run();
}

#[test]
fn a_worker_that_the_head_cannot_hear() {
    // It counts as dead, and begins a new incarnation.
    Parting {
        driver: "c",
        between: ("a", "b"),
        is_unplugged: false,
        time: PARTED,
    }
    .run();
}

#[test]
fn a_driver_that_the_head_cannot_hear() {
    // It counts as dead, goes on with what it can, and begins a new incarnation.
    Parting {
        driver: "b",
        between: ("a", "b"),
        is_unplugged: true,
        time: PARTED,
    }
    .run();
}

#[test]
fn a_driver_that_comes_back_while_its_objects_are_still_being_fetched() {
    // Whoever fetches them gives up later than that, and must not take the new incarnation's for those of the old.
    Parting {
        driver: "b",
        between: ("a", "b"),
        is_unplugged: false,
        time: PARTED_BRIEFLY,
    }
    .run();
}

/// Its node is cut off, where it was created, and where somebody calls it: another has it live on meanwhile.
#[test]
fn a_detached_actor_whose_node_nobody_can_hear_lives_once() {
    let Some(hosts) = Hosts::new() else { return };
    let nodes = NAMES.map(|name| hosts.node(name).with(&["--log", "info,wasmrun_node=debug"]));
    let mut three = Three::with(nodes);
    let create = three.b.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "10", "--name", "total", "--cpus", "0"]);
    let created = create.args(["--restarts", "2", "--strategy", "node:b:soft"]);
    let created = created.run();
    assert_eq!(created.code, Some(0), "{created}");
    let add = |at: &Node, number: u32| {
        let call = at.command(&["actor", "call", "total"]);
        call.arg(format!("add({number})"))
    };
    assert_eq!(add(&three.c, 5).ok(), "15\n");
    let kept = "the state of a detached actor is kept";
    three.b.running().wait_for(Stream::Err, kept);
    for other in ["a", "c"] {
        hosts.part("b", other, true);
    }
    three.a.wait_for("b", "dead");
    three.b.wait_for("b", "unconfirmed");
    let there = eventually("the actor lived on", || {
        let ended = add(&three.c, 1).run();
        let is_answer = ended.code == Some(0);
        is_answer
            .then(|| ended.stdout_text())
            .ok_or(ended.to_string())
    });
    assert_eq!(there, "16\n");
    // Where it lived before it does not answer.
    let mut call = add(&three.b, 100).start();
    let why = three.b.wait_for_why("add", "does not confirm");
    assert_says(&why, &["another node may have live elsewhere"]);
    assert!(call.is_running());
    assert_eq!(add(&three.a, 1).ok(), "17\n");
    for other in ["a", "c"] {
        hosts.heal("b", other, true);
    }
    three.a.wait_for_incarnation("b", 2);
    three.meet();
    // The actor of which it was a call is another node's now: it counts there, or its caller hears that it does not.
    let ended = call.end();
    let sum = match ended.code {
        Some(0) => {
            assert_eq!(ended.stdout_text(), "117\n");
            118
        }
        _ => 18,
    };
    for (node, more) in three.all().into_iter().zip(0..) {
        let sum = format!("{}\n", sum + more);
        let said = eventually("the actor answered", || {
            let ended = add(node, 1).run();
            let is_answer = ended.code == Some(0);
            is_answer
                .then(|| ended.stdout_text())
                .ok_or(ended.to_string())
        });
        assert_eq!(said, sum);
    }
    three.b.command(&["actor", "kill", "total"]).ok();
    wait_for_rest(three.all());
}

/// The head, at which the driver is, is cut off from all others.
fn a_head_alone(is_unplugged: bool, time: Duration) {
    let Some(hosts) = Hosts::new() else { return };
    let three = hosts.three();
    let mut tree = Tree::start_large(&three.a);
    for name in NAMES {
        tree.wait_until_at(name, 20);
    }
    let others = [&three.b, &three.c];
    for other in others {
        hosts.part("a", &other.name, is_unplugged);
    }
    let cut = Instant::now();
    for other in others {
        three.a.wait_for(&other.name, "dead");
    }
    // How long a fault lasts is what this test is about; nothing is waited for so.
    thread::sleep(time.saturating_sub(cut.elapsed()));
    for other in others {
        hosts.heal("a", &other.name, is_unplugged);
    }
    tree.ends_well();
    // Those who could not hear it begin anew, and it goes on.
    for other in others {
        three.a.wait_for_incarnation(&other.name, 2);
    }
    three.meet();
    rest_without_failures(three.all());
    assert_eq!(three.b.sees("a").expect("the head")["incarnation"], 1);
    // All three work for each other again.
    Tree::start(&three.a).ends_well();
}

#[test]
fn a_head_with_its_driver_that_nobody_can_hear() {
    a_head_alone(false, PARTED);
}

#[test]
fn a_head_with_its_driver_whose_wires_are_unplugged() {
    a_head_alone(true, PARTED_LONG);
}

#[test]
fn an_object_that_cannot_be_fetched_from_its_owner_now_is_fetched_later() {
    let Some(hosts) = Hosts::new() else { return };
    let three = hosts.three();
    let mut reading = three.a.call(r#"lately("b", "c", 100000)"#).start();
    reading.wait_for(Stream::Err, "ready");
    // Before it is read.
    hosts.part("b", "c", true);
    thread::sleep(PARTED);
    hosts.heal("b", "c", true);
    let read = reading.end();
    assert_eq!(read.stdout_text(), "ok(100000)\n", "{read}");
    wait_for_rest(three.all());
}

#[test]
fn links_that_lose_double_delay_and_reorder() {
    let nodes = ["a", "b", "c"].map(Node::new);
    let seeds = [11, 12, 13];
    let proxies = [0, 1, 2].map(|at| Proxy::new(nodes[at].listen(), seeds[at]));
    let mut addresses = proxies.iter().map(|proxy| proxy.address.to_string());
    let nodes = nodes.map(|node| {
        let address = addresses.next().expect("one each");
        node.with(&["--advertise", &address])
    });
    let three = Three::with(nodes);
    // Whatever else goes over such links goes on meanwhile: detached tasks, a group with what runs in it, actors.
    let detached = Detached::begin(&three, &[]);
    Tree::start(&three.b).ends_well();
    // Objects of one and two MiB, from node to node.
    let shuttle = three.a.call(r#"shuttle(["a", "b", "c"], 131072, 2)"#).run();
    assert_eq!(shuttle.stdout_text(), "ok(524288)\n", "{shuttle}");
    for node in three.all() {
        for actor in ["of-a", "of-b", "of-c"] {
            answers(node, actor);
        }
        assert_eq!(node.ended("failed"), 0);
    }
    detached.ends_well(&three);
    for proxy in &proxies {
        let (passed, lost) = proxy.counts();
        assert!(lost * 100 > passed && lost * 10 < passed, "{passed} {lost}");
    }
}
