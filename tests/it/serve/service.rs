//! Services that do not come to be, and services that stay.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest, scratch};

use super::{Connection, Service, address, serve};
use crate::faults::eventually;
use crate::node::Node;

#[test]
fn what_cannot_be_served_says_why() {
    let service = Service::web(&[]);
    let taken = service.address.to_string();
    let fails = |name: &str, options: &[&str]| {
        let ended = serve(name, options).run();
        assert_ne!(ended.code, Some(0), "{ended}");
        ended.stderr
    };
    let again = Wasmrun::new(["serve"]).arg(guest("web"));
    let again = again.args(["--listen", &taken]).run();
    assert_ne!(again.code, Some(0), "{again}");
    assert_says(
        &again.stderr,
        &["cannot listen at", &taken, "name a free address"],
    );
    let said = fails("fixture", &[]);
    assert_says(&said, &["exports no handler of HTTP requests", "--route"]);
    let said = fails("fixture", &["--route", "GET /x=nothing-such"]);
    assert_says(&said, &["GET /x=nothing-such"]);
    let said = fails("fixture", &["--route", "GET x"]);
    assert_says(&said, &["GET x"]);
    assert_says(&fails("web", &["--concurrency", "0"]), &["0"]);
    assert_says(&fails("web", &["--detach"]), &["no node is running here"]);
    let never = ["no node can ever run this task: CPU: needs 5000"];
    assert_says(&fails("web", &["--cpus", "5000"]), &never);
    let route = [
        "--route",
        "POST /nothing=noop",
        "--label-selector",
        "zone=a",
    ];
    assert_says(&fails("fixture", &route), &["no node can ever run", "zone"]);
    // Who does not know that it is to be served is told.
    Wasmrun::submit("hello").fails_saying(2, &["it answers HTTP requests: `wasmrun serve "]);
    let shown = Wasmrun::new(["inspect"]).arg(guest("hello")).ok();
    assert_says(&shown, &["handler\n  http: answers HTTP requests"]);
    let ended = Wasmrun::new(["serve", "--listen", "localhost:80"]).arg(guest("web"));
    ended.fails_saying(2, &["must be the IP address of an interface"]);
    for name in ["", "a\nb"] {
        assert_says(&fails("web", &["--name", name]), &["a service's name"]);
    }
    // A node says it as well, and goes on.
    let node = Node::start();
    for listen in [&*taken, "192.0.2.1:80"] {
        let again = node.wasmrun(["serve", "--detach"]).arg(guest("web"));
        let again = again.args(["--listen", listen]).run();
        assert_ne!(again.code, Some(0), "{again}");
        assert_says(&again.stderr, &["cannot listen at", listen]);
    }
    let listed = node.wasmrun(["list", "services"]).json(0);
    assert_eq!(listed["services"], serde_json::json!([]));
    service.is_well();
}

#[test]
fn a_detached_service_stays_and_is_replaced_without_a_failed_request() {
    let node = Node::start();
    let dir = scratch();
    let second = dir.path().join("second.wasm");
    std::fs::write(&second, second_version()).expect("there is room");
    let at = detached(&node, &guest("web"), "127.0.0.1:0");
    let version = || Connection::open(at).ask("GET /version", "").body;
    assert_eq!(version(), "version 1 of web\n");
    let listed = node.wasmrun(["list", "services"]).json(0);
    assert_eq!(listed["services"][0]["name"], "shop", "{listed}");
    // What is under way goes on with what it has.
    let mut slow = Connection::slow(at);
    assert_eq!(detached(&node, &second, &at.to_string()), at);
    assert_eq!(version(), "version 2 of web\n");
    slow.piece("on the first");
    slow.read_until("on the first");
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    let stopped = node.wasmrun(["service", "stop", "shop"]).json(0);
    assert_eq!(stopped["service"], "shop", "{stopped}");
    while TcpStream::connect(at).is_ok() {}
    let listed = node.wasmrun(["list", "services"]).json(0);
    assert_eq!(listed["services"], serde_json::json!([]));
}

/// Leaves a service called `shop` to a node.
fn detached(node: &Node, module: &Path, listen: &str) -> SocketAddr {
    let serve = node.wasmrun(["serve"]).arg(module);
    let options = ["--name", "shop", "--detach", "--listen", listen];
    address(&serve.args(options).ok())
}

#[test]
fn what_handlers_print_is_kept_by_their_service() {
    let node = Node::start();
    let at = detached(&node, &guest("web"), "127.0.0.1:0");
    let logs = || node.wasmrun(["logs", "shop"]).run();
    assert_eq!(logs().stdout_text(), "");
    let mut follow = node.wasmrun(["logs", "shop", "--follow"]).start();
    for n in 1..=2 {
        Connection::open(at).ask("GET /log", "");
        let is_there = |it: &str| it.matches("to standard output\n").count() == n;
        follow.wait_until(Stream::Out, "what came", is_there);
    }
    let ended = logs();
    assert_eq!(ended.stdout_text(), "to standard output\n".repeat(2));
    assert_eq!(ended.stderr, "to standard error\n".repeat(2));
    let job = node.wasmrun(["list", "services"]).json(0)["services"][0]["job"].clone();
    let job = job.as_str().expect("it has one");
    let found = node.wasmrun(["logs", job, "--grep", "output"]).ok();
    assert_eq!(found, "to standard output\n".repeat(2));
    node.wasmrun(["service", "stop", "shop"]).ok();
    let ended = follow.end();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_service_that_is_told_to_stop_lets_its_requests_end_though_nobody_waits() {
    let node = Node::start();
    let at = detached(&node, &guest("web"), "127.0.0.1:0");
    let mut slow = Connection::slow(at);
    let stop = node.wasmrun(["service", "stop", "shop"]).start();
    while TcpStream::connect(at).is_ok() {}
    stop.signal(Signal::KILL);
    stop.end();
    let jobs = || node.wasmrun(["list", "jobs"]).json(0)["jobs"].clone();
    assert_eq!(jobs()[0]["state"], "running");
    slow.piece("more");
    slow.read_until("more");
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    while jobs()[0]["state"] != "finished" {}
}

#[test]
fn a_handler_that_has_answered_comes_to_its_end_when_its_service_stops() {
    let node = Node::start();
    let at = detached(&node, &guest("web"), "127.0.0.1:0");
    let answer = Connection::open(at).ask("GET /goes-on?ms=300", "");
    assert_eq!(answer.body, "answered\n");
    node.wasmrun(["service", "stop", "shop"]).ok();
    let jobs = node.wasmrun(["list", "jobs"]).json(0);
    assert_eq!(jobs["jobs"][0]["state"], "finished", "{jobs}");
}

#[test]
fn a_command_ends_when_somebody_stops_its_service() {
    let node = Node::start();
    let service = Service::of_node(&node, &["--name", "shop"]);
    service.is_well();
    let again = node.wasmrun(["serve", "--detach", "--name", "shop"]);
    again
        .arg(guest("web"))
        .fails_saying(2, &["ends with the command that has started it"]);
    node.wasmrun(["service", "stop", "shop"]).ok();
    let ended = service.running.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(&ended.stderr, &["somebody has stopped service shop"]);
    detached(&node, &guest("web"), "127.0.0.1:0");
    let again = node.wasmrun(["serve", "--name", "shop"]);
    again
        .arg(guest("web"))
        .fails_saying(2, &["is detached", "--detach"]);
}

#[test]
fn what_handlers_print_is_the_log_of_their_service_by_its_name_and_by_its_job() {
    let node = Node::start();
    let serve = node.wasmrun(["serve"]).arg(guest("web"));
    let options = ["--name", "shop", "--detach", "--listen", "127.0.0.1:0"];
    let at = address(&serve.args(options).ok());
    assert_eq!(Connection::open(at).ask("GET /log", "").body, "logged\n");
    let listed = node.wasmrun(["list", "services"]).json(0);
    let job = listed["services"][0]["job"].as_str().expect("it has one");
    for what in ["shop", job] {
        eventually("all is in the log", || {
            let logs = node.wasmrun(["logs", what]).run();
            let said = format!("{}{}", logs.stdout_text(), logs.stderr);
            let lines = ["to standard output\n", "to standard error\n"];
            match lines.iter().all(|line| said.contains(line)) {
                true => Ok(()),
                false => Err(said),
            }
        });
    }
}

#[test]
fn the_example_of_a_service_answers_as_its_rows_come() {
    let service = Service::start(serve("csv-to-json", &[]));
    assert_says(&service.get("/").body, &["POST CSV"]);
    let mut client = service.open();
    client.begin("POST /", "Transfer-Encoding: chunked\r\n");
    client.piece("name,made\nmug,2019\nbo");
    client.read_until("{\"name\":\"mug\",\"made\":\"2019\"}\n");
    client.piece("wl,2020");
    client.last_piece();
    client.read_until("{\"name\":\"bowl\",\"made\":\"2020\"}\n");
    client.read_until("0\r\n\r\n");
    // What is no table.
    let mut client = service.open();
    client.begin("POST /", "Connection: close\r\nContent-Length: 6\r\n");
    client.send("a\n1,2\n");
    // A head that is not on its way yet may not come at all.
    assert!(!client.rest().ends_with(b"0\r\n\r\n"));
}

/// The guest `web` with another digit.
pub(super) fn second_version() -> Vec<u8> {
    let (first, second) = (b"version 1 of web", b"version 2 of web");
    let mut module = std::fs::read(guest("web")).expect("it is there");
    let found = module.windows(first.len()).position(|it| it == first);
    let at = found.expect("it has its version");
    module[at..at + second.len()].copy_from_slice(second);
    module
}
