//! Services that do not come to be, and services that stay.

use std::net::TcpStream;

use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

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
    let serve = |module: &std::path::Path, listen: &str| {
        let serve = node.wasmrun(["serve"]).arg(module);
        let options = ["--name", "shop", "--detach", "--listen", listen];
        address(&serve.args(options).ok())
    };
    let at = serve(&guest("web"), "127.0.0.1:0");
    let version = || Connection::open(at).ask("GET /version", "").body;
    assert_eq!(version(), "version 1 of web\n");
    let listed = node.wasmrun(["list", "services"]).json(0);
    assert_eq!(listed["services"][0]["name"], "shop", "{listed}");
    // What is under way goes on with what it has.
    let mut slow = Connection::slow(at);
    assert_eq!(serve(&second, &at.to_string()), at);
    assert_eq!(version(), "version 2 of web\n");
    slow.piece("on the first");
    slow.read_until("on the first");
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    node.wasmrun(["service", "stop", "shop"]).ok();
    while TcpStream::connect(at).is_ok() {}
    let listed = node.wasmrun(["list", "services"]).json(0);
    assert_eq!(listed["services"], serde_json::json!([]));
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
fn second_version() -> Vec<u8> {
    let (first, second) = (b"version 1 of web", b"version 2 of web");
    let mut module = std::fs::read(guest("web")).expect("it is there");
    let found = module.windows(first.len()).position(|it| it == first);
    let at = found.expect("it has its version");
    module[at..at + second.len()].copy_from_slice(second);
    module
}
