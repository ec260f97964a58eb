//! What a node tells those who watch it: numbers, probes, and what becomes of requests that are none.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use wasmrun_tests::{Stream, assert_says, guest};

use crate::cluster::Member;
use crate::deploy;
use crate::faults::eventually;
use crate::node::Node;

/// A node whose metrics can be asked for, and where.
fn watched(args: &[&str]) -> (Node, SocketAddr) {
    let mut node = Node::new();
    node.start_with(&[&["--metrics=127.0.0.1:0"], args].concat());
    let address = address(node.running.as_mut().expect("it runs"));
    (node, address)
}

pub(crate) fn address(running: &mut wasmrun_tests::Running) -> SocketAddr {
    running.wait_for(Stream::Out, "/metrics\n");
    let said = running.written(Stream::Out);
    let address = said.split("http://").nth(1).expect("an address");
    let address = address.split('/').next().expect("before its path");
    address.parse().expect("it is one")
}

/// Whatever comes back for these bytes. Who is cut off hears less.
fn talk(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    // It may be cut off before all is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the body of an answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let answer = talk(address, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// All values by what stands before them.
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Asks, and checks the form of what comes back.
    #[track_caller]
    pub(crate) fn new(address: SocketAddr) -> Self {
        let (status, text) = get(address, "/metrics");
        assert_eq!(status, 200, "{text}");
        read_as_prometheus_does(&text);
        let (mut values, mut families) = (BTreeMap::new(), BTreeSet::new());
        let mut family = "";
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().expect("a name");
                assert!(families.insert(family), "{family} comes twice");
                continue;
            }
            if line.starts_with("# TYPE ") {
                assert!(line.contains(&format!(" {family} ")), "{line}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').expect("a value");
            assert!(name.starts_with(family), "{name} is not of {family}");
            let value = value
                .parse()
                .unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(
                values.insert(name.to_owned(), value).is_none(),
                "{name} comes twice"
            );
        }
        Self(values)
    }

    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> f64 {
        let value = self.0.get(name);
        *value.unwrap_or_else(|| panic!("there is no {name}: {:#?}", self.0))
    }

    /// How many values a family has.
    fn count(&self, family: &str) -> usize {
        let of_it = self.0.keys().filter(|name| name.starts_with(family));
        of_it.count()
    }
}

/// Prometheus' own tool reads it, and has nothing to say about names and types.
#[track_caller]
fn read_as_prometheus_does(text: &str) {
    let Some(promtool) = deploy::promtool() else {
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("promtool reads");
    drop(stdin);
    let ended = child.wait_with_output().expect("promtool ends");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn numbers_follow_what_happens() {
    let (node, address) = watched(&["--object-memory", "64MiB"]);
    let before = Scrape::new(address);
    assert_eq!(before.value("wasmrun_node_ready"), 1.0);
    assert_eq!(
        before.value("wasmrun_resource_capacity{resource=\"CPU\"}"),
        2.0
    );
    assert_eq!(before.value("wasmrun_resource_free{resource=\"CPU\"}"), 2.0);
    assert_eq!(
        before.value("wasmrun_store_capacity_bytes"),
        f64::from(64 << 20)
    );
    node.submit("add(1, 2)").args(["--tenant", "red"]).ok();
    node.submit("crash()").args(["--tenant", "red"]).run();
    node.submit("spin()")
        .args(["--tenant", "blue", "--detach"])
        .ok();
    node.wait_for("running", 1);
    let file = guest("graph");
    node.wasmrun(["put"]).arg(&file).ok();
    let module = guest("graph");
    let create = node.wasmrun(["actor", "create"]).arg(module);
    create
        .args(["counter", "1", "--name", "one", "--cpus", "0"])
        .ok();
    // It lives when it has answered, and the call is one more that has ended.
    node.wasmrun(["actor", "call", "one", "add(1)"]).ok();
    let after = Scrape::new(address);
    let tenant = |name: &str, event: &str| {
        after.value(&format!(
            "wasmrun_tenant_tasks_total{{tenant=\"{name}\",event=\"{event}\"}}"
        ))
    };
    assert_eq!(
        (tenant("red", "submitted"), tenant("red", "finished")),
        (2.0, 1.0)
    );
    assert_eq!(
        (tenant("red", "failed"), tenant("blue", "started")),
        (1.0, 1.0)
    );
    assert_eq!(
        after.value("wasmrun_tenant_used{tenant=\"blue\",resource=\"CPU\"}"),
        1.0
    );
    assert_eq!(after.value("wasmrun_resource_free{resource=\"CPU\"}"), 1.0);
    assert_eq!(
        after.value("wasmrun_tasks_ended_total{outcome=\"finished\"}"),
        2.0
    );
    assert_eq!(
        after.value("wasmrun_tasks_ended_total{outcome=\"failed\"}"),
        1.0
    );
    assert_eq!(after.value("wasmrun_actors"), 1.0);
    assert_eq!(after.value("wasmrun_actors_started_total"), 1.0);
    // The actor, and the task.
    assert_eq!(after.value("wasmrun_tasks{state=\"running\"}"), 2.0);
    assert_eq!(after.value("wasmrun_sandboxes"), 2.0);
    assert!(after.value("wasmrun_guest_memory_bytes") >= f64::from(2 << 16));
    assert_eq!(after.value("wasmrun_store_objects"), 1.0);
    let bytes = std::fs::metadata(&file).expect("it is there").len() as f64;
    assert!(after.value("wasmrun_store_used_bytes") >= bytes);
    assert!(after.value("process_resident_memory_bytes") > 0.0);
    // Two tasks have ended that ran, and a call; one runs.
    for name in ["wait", "run"] {
        let part =
            |part: &str| after.value(&format!("wasmrun_task_{name}_duration_seconds_{part}"));
        assert_eq!(part("count"), 3.0);
        assert_eq!(part("bucket{le=\"+Inf\"}"), 3.0);
        assert!(part("bucket{le=\"0.00001\"}") <= part("bucket{le=\"1\"}"));
        assert!(part("sum") > 0.0);
    }
    // Alone, it has no lease and no peers.
    assert_eq!(after.count("wasmrun_lease_confirmed"), 0);
    node.wasmrun(["node", "stop", "--now"]).ok();
}

#[test]
fn who_goes_to_disk_is_counted() {
    let dir = wasmrun_tests::scratch();
    let spill = dir.path().to_str().expect("text");
    let (node, address) = watched(&["--object-memory", "1MiB", "--spill-dir", spill]);
    let file = dir.path().join("big");
    std::fs::write(&file, vec![7; 700 << 10]).expect("there is room");
    let put = || node.wasmrun(["put"]).arg(&file).ok().trim().to_owned();
    let (first, _second) = (put(), put());
    let spilled = Scrape::new(address);
    assert_eq!(spilled.value("wasmrun_store_spills_total"), 1.0);
    assert_eq!(
        spilled.value("wasmrun_store_spill_bytes_total"),
        f64::from(700 << 10)
    );
    assert_eq!(
        spilled.value("wasmrun_tenant_store_bytes{tenant=\"default\",place=\"disk\"}"),
        f64::from(700 << 10)
    );
    node.wasmrun(["object", "get", &first]).ok();
    let restored = Scrape::new(address);
    assert_eq!(restored.value("wasmrun_store_restores_total"), 1.0);
    assert_eq!(restored.value("wasmrun_store_disk_errors_total"), 0.0);
}

#[test]
fn objects_of_a_tenant_within_its_part_stay_in_memory() {
    const BYTES: u32 = 700 << 10;
    let dir = wasmrun_tests::scratch();
    let spill = dir.path().to_str().expect("text");
    let (node, address) = watched(&["--object-memory", "4MiB", "--spill-dir", spill]);
    let [file, large] = [("one", BYTES), ("large", 2 << 20)].map(|(name, bytes)| {
        let path = dir.path().join(name);
        std::fs::write(&path, vec![7; bytes as usize]).expect("there is room");
        path
    });
    let put = |tenant, count| {
        for _ in 0..count {
            node.wasmrun(["put", "--tenant", tenant]).arg(&file).ok();
        }
    };
    let objects = |tenant, place| {
        let name = format!("wasmrun_tenant_store_bytes{{tenant=\"{tenant}\",place=\"{place}\"}}");
        Scrape::new(address).value(&name) / f64::from(BYTES)
    };
    // Five fit. Two are less than half.
    put("greedy", 5);
    assert_eq!(objects("greedy", "memory"), 5.0);
    put("modest", 2);
    put("greedy", 6);
    assert_eq!(objects("modest", "memory"), 2.0);
    assert_eq!(objects("modest", "disk"), 0.0);
    assert_eq!(objects("greedy", "memory"), 3.0);
    assert_eq!(objects("greedy", "disk"), 8.0);

    // A quota is for one tenant, whatever room there is.
    let set = ["tenant", "set", "modest", "--max-objects", "1MiB"];
    assert_eq!(
        node.wasmrun(set).ok(),
        "tenant modest: weight 1, no minimum, quota 1 MiB of objects at a node\n"
    );
    put("modest", 1);
    assert_eq!(objects("modest", "memory"), 1.0);
    let listed = node.wasmrun(["list", "tenants"]).json(0);
    let mut rows = listed["tenants"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["name"] == "modest").expect("it is set");
    assert_eq!(row["objects_bytes"], BYTES);
    let refused = node
        .wasmrun(["put", "--tenant", "modest"])
        .arg(&large)
        .run();
    let says = "under the quota of tenant modest, 1 MiB of memory for objects at a node";
    assert_says(&refused.stderr, &[says]);
    let set = ["tenant", "set", "modest", "--max-objects", "none"];
    assert_eq!(
        node.wasmrun(set).ok(),
        "tenant modest: weight 1, no minimum, no quota\n"
    );
    put("modest", 1);
    assert_eq!(objects("modest", "memory"), 2.0);
}

#[test]
fn however_many_tenants_there_are_the_answer_stays_short() {
    let (node, address) = watched(&[]);
    for tenant in 0..120 {
        let name = format!("t{tenant}");
        node.submit("noop()").args(["--tenant", &name]).ok();
    }
    let scrape = Scrape::new(address);
    assert_eq!(scrape.count("wasmrun_tenant_tasks_total"), 101 * 7);
    let others = "wasmrun_tenant_tasks_total{tenant=\"_others\",event=\"finished\"}";
    assert_eq!(scrape.value(others), 20.0);
}

#[test]
fn what_comes_from_another_node_is_counted_and_how_fast_it_came() {
    let mut head = Member::new("a");
    let start = ["--head", "--listen", "127.0.0.1:0", "--metrics=127.0.0.1:0"];
    let head_at = head.watched(&start, address);
    let mut b = Member::new("b");
    let token = head.token(&["--many"]);
    let b_at = b.watched(&["--join", &token, "--metrics=127.0.0.1:0"], address);
    head.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    let module = std::fs::metadata(guest("spread")).expect("it is built");
    let fetched = |at| {
        let scrape = Scrape::new(at);
        let names = ["fetches_total", "fetch_bytes_total"];
        names.map(|name| scrape.value(&format!("wasmrun_module_{name}")))
    };
    assert_eq!(fetched(b_at), [0.0, 0.0]);
    // It is to keep the module of what outlives the other, and to run it, at the same time.
    let at_b = |args: &[&str]| {
        let submit = head.command(&["submit", "-q"]).arg(guest("spread"));
        submit.args(["--strategy", "node:b"]).args(args).ok()
    };
    let detached = at_b(&["--invoke", "place()", "--detach"]);
    at_b(&["--invoke", "place()", "--array", "1-20"]);
    eventually("it ended", || {
        let task = head.command(&["get", detached.trim()]).json(0);
        let is_over = task["state"] == "finished";
        is_over.then_some(()).ok_or(task)
    });
    assert_eq!(fetched(b_at), [1.0, module.len() as f64]);
    assert_eq!(fetched(head_at), [0.0, 0.0]);
    // Numbers that it makes are read by the other: the scheduler there takes from it how fast it sends.
    let bandwidth = |at, peer: &str| {
        let name = format!("wasmrun_peer_bandwidth_bytes_per_second{{peer=\"{peer}\"}}");
        Scrape::new(at).value(&name)
    };
    let unseen = 100e6;
    assert_eq!(bandwidth(head_at, "b"), unseen);
    let read = head.command(&["submit", "-q"]).arg(guest("spread"));
    let read = read.args(["--strategy", "node:a"]);
    let sums = read.args(["--invoke", r#"there-and-back("b", "b", 200000)"#]);
    assert_says(&sums.ok(), &["19999900000"]);
    let seen = bandwidth(head_at, "b");
    assert!(seen > 0.0 && seen != unseen, "{seen}");
}

#[test]
fn probes_and_numbers_say_how_it_is_in_the_cluster() {
    let mut head = Member::new("a");
    let start = ["--head", "--listen", "127.0.0.1:0", "--metrics=127.0.0.1:0"];
    let head_at = head.watched(&start, address);
    let token = head.token(&["--many"]);
    let at_head = Scrape::new(head_at);
    assert!(at_head.value("wasmrun_control_store_bytes") > 0.0);
    assert!(at_head.value("wasmrun_control_store_free_bytes") > 0.0);
    let mut b = Member::new("b");
    let b_at = b.watched(&["--join", &token, "--metrics=127.0.0.1:0"], address);
    head.wait_for_incarnation("b", 1);
    b.wait_for_incarnation("a", 1);
    assert_eq!(get(b_at, "/readyz"), (200, "ready\n".into()));
    let spread = b.command(&["submit", "-q"]).arg(guest("spread"));
    spread
        .args(["--invoke", "place()", "--strategy", "node:a"])
        .ok();
    let scrape = Scrape::new(b_at);
    assert_eq!(scrape.value("wasmrun_nodes{state=\"alive\"}"), 2.0);
    assert_eq!(scrape.value("wasmrun_peer_connected{peer=\"a\"}"), 1.0);
    assert_eq!(scrape.value("wasmrun_lease_confirmed"), 1.0);
    assert_eq!(scrape.value("wasmrun_node_incarnation"), 1.0);
    assert_eq!(scrape.value("wasmrun_tasks_sent_total"), 1.0);
    assert!(scrape.value("wasmrun_control_request_duration_seconds_count") > 0.0);
    assert_eq!(
        scrape.value("wasmrun_peer_connections_total{peer=\"a\"}"),
        1.0
    );
    for direction in ["in", "out"] {
        let peer = format!("{{peer=\"a\",direction=\"{direction}\"}}");
        let messages = scrape.value(&format!("wasmrun_peer_messages_total{peer}"));
        assert!(messages >= 1.0);
        assert!(scrape.value(&format!("wasmrun_peer_bytes_total{peer}")) > messages);
        let gossip = format!("wasmrun_gossip_messages_total{{direction=\"{direction}\"}}");
        let gossip = scrape.value(&gossip);
        assert!((1.0..=messages).contains(&gossip), "{gossip} of {messages}");
    }
    // The control store is the head's.
    assert_eq!(scrape.count("wasmrun_control_store_"), 0);
    // What outlives the node is written down before it is answered.
    let records = |event: &str| format!("wasmrun_detached_records_total{{event=\"{event}\"}}");
    assert_eq!(scrape.value(&records("written")), 0.0);
    let submit = b.command(&["submit"]).arg(guest("spread"));
    submit.args(["--invoke", "place()", "--detach"]).ok();
    let after = Scrape::new(b_at);
    assert!(after.value(&records("written")) >= 1.0);
    assert_eq!(
        (
            after.value(&records("failed")),
            after.value(&records("taken_over"))
        ),
        (0.0, 0.0)
    );
    assert!(after.value("wasmrun_detached_records_waiting") <= 1.0);
    // One group that has its bundles, one at each node, and one that waits for a larger node.
    let create = |bundles: [&str; 2]| {
        let create = b.command(&["group", "create", "--detach", "--kind", "strict_spread"]);
        let [one, other] = bundles;
        let create = create.args(["--bundle", one, "--bundle", other]);
        create.ok().trim().to_owned()
    };
    let group = create(["cpus=0.5", "cpus=0.5"]);
    b.command(&["group", "ready", &group]).ok();
    create(["cpus=1000", "cpus=0.5"]);
    let scrape = Scrape::new(b_at);
    let groups =
        |state: &str| scrape.value(&format!("wasmrun_placement_groups{{state=\"{state}\"}}"));
    assert_eq!(
        ["pending", "preparing", "committing", "ready", "removing"].map(groups),
        [1.0, 0.0, 0.0, 1.0, 0.0]
    );
    assert_eq!(scrape.value("wasmrun_placement_group_bundles"), 1.0);
    head.command(&["node", "drain", "b"]).ok();
    b.wait_for("b", "draining");
    let (status, why) = get(b_at, "/readyz");
    assert_eq!(status, 503);
    assert_says(&why, &["drained"]);
    assert_eq!(Scrape::new(b_at).value("wasmrun_node_ready"), 0.0);
    // It lives, and whoever asks that hears so.
    assert_eq!(get(b_at, "/healthz"), (200, "ok\n".into()));
}

#[test]
fn metrics_are_served_to_other_machines_only_if_that_is_said() {
    let node = Node::new();
    let open = "--metrics=0.0.0.0:0";
    node.wasmrun(["node", "start", open])
        .fails_saying(2, &["no password", "0.0.0.0:0", "--metrics-open"]);
    node.wasmrun(["node", "start", "--metrics-open"])
        .fails_saying(2, &["--metrics"]);
    let mut node = Node::new();
    node.start_with(&[open, "--metrics-open"]);
    let running = node.running.as_mut().expect("it runs");
    running.wait_for(Stream::Out, "metrics are at http://0.0.0.0:");
}

#[test]
fn a_node_that_stops_is_not_ready() {
    let (mut node, address) = watched(&[]);
    let spinning = node.submit("spin()").args(["--detach"]).ok();
    node.wait_for("running", 1);
    let running = node.running.as_mut().expect("it runs");
    running.signal(Signal::TERM);
    running.wait_for(Stream::Err, "stopping when what runs has ended");
    loop {
        let (status, why) = get(address, "/readyz");
        if status == 503 {
            assert_says(&why, &["stopping"]);
            break;
        }
    }
    node.wasmrun(["cancel", spinning.trim()]).ok();
    let ended = node.running.take().expect("it runs").end();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn requests_that_are_none_hurt_nobody() {
    let (_node, address) = watched(&[]);
    assert_eq!(get(address, "/").0, 404);
    assert_eq!(get(address, "/metrics/../etc/passwd").0, 404);
    assert_eq!(get(address, "/metrics?x=1").0, 200);
    let head = talk(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for method in ["POST", "DELETE", "CONNECT", "PRI"] {
        let request =
            format!("{method} /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nwhatever!");
        let answer = talk(address, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{method}: {answer}");
    }
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    for nonsense in [
        &b"\0\x01\x02\xff\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ] {
        let answer = talk(address, nonsense);
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(is_refused, "{answer}");
    }
    // Who says nothing, or half of it, holds places, and loses them.
    let mut stuck: Vec<TcpStream> = Vec::new();
    for at in 0..100 {
        let mut stream = TcpStream::connect(address).expect("the system takes it");
        if at % 2 == 0 {
            stream.write_all(b"GET /met").expect("the system takes it");
        }
        stuck.push(stream);
    }
    assert_eq!(get(address, "/healthz").0, 200);
    assert!(Scrape::new(address).value("wasmrun_node_ready") > 0.0);
}

#[test]
fn requests_of_services_are_counted_by_route() {
    let (node, address) = watched(&[]);
    let serve = node.wasmrun(["serve"]).arg(guest("fixture"));
    let options = ["--name", "shop", "--detach", "--listen", "127.0.0.1:0"];
    let said = serve
        .args(options)
        .args(["--route", "GET /numbers/{v}=echo-u32"])
        .ok();
    let service = said.trim().rsplit('/').next().expect("an address");
    let service: SocketAddr = service.parse().expect("it is one");
    for path in ["/numbers/1", "/numbers/2", "/numbers/x", "/nothing"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        talk(service, request.as_bytes());
    }
    for (route, status, count) in [
        ("GET /numbers/{v}", "2xx", 2.0),
        ("GET /numbers/{v}", "4xx", 1.0),
        ("*", "4xx", 1.0),
        ("*", "2xx", 0.0),
    ] {
        let labels = format!("service=\"shop\",tenant=\"default\",route=\"{route}\"");
        let name = format!("wasmrun_service_requests_total{{{labels},status=\"{status}\"}}");
        // A request counts when its connection has let go of it.
        eventually("they are counted", || {
            match Scrape::new(address).value(&name) {
                counted if counted == count => Ok(()),
                counted => Err(format!("{name} {counted}")),
            }
        });
    }
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let (node, address) = watched(&[]);
    let taken = format!("--metrics={address}");
    let other = Node::new();
    other
        .wasmrun(["node", "start", &taken])
        .fails_saying(2, &["metrics cannot be served at", "name a free address"]);
    node.wasmrun(["node", "start", "--metrics=here"])
        .fails_saying(2, &["--metrics"]);
}
