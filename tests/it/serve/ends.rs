//! How requests end: handlers that fail, clients that go, services that stop.

use std::io::{BufRead as _, BufReader, pipe};
use std::net::TcpStream;

use wasmrun_tests::{Stream, assert_says};

use super::{Connection, SOON, Service, address, curl, serve};
use crate::node::Node;

#[test]
fn a_handler_that_fails_fails_its_request_alone() {
    let mut service = Service::web(&[]);
    let slow = Connection::slow(service.address);
    let trap = service.get("/trap").problem(500);
    let task = trap["task"].as_str().expect("it names its task");
    // Why it failed is for those who run the service.
    assert!(!trap.to_string().contains("asked to"), "{trap}");
    service.wait_for(task);
    service
        .running
        .wait_for(Stream::Err, "asked to, before the answer");
    let never = service.get("/never").problem(500);
    assert_says(&never["detail"].to_string(), &["without an answer"]);
    service.is_well();
    assert_eq!(finished(slow), "");
}

/// Ends a slow request: what came since it began.
fn finished(mut slow: Connection) -> String {
    slow.last_piece();
    let rest = slow.read_until("0\r\n\r\n");
    rest.trim_end_matches("0\r\n\r\n").trim().to_owned()
}

#[test]
fn an_answer_that_fails_in_the_middle_is_cut_off() {
    let service = Service::web(&[]);
    let answer = service.get("/late-trap");
    assert_eq!((answer.status, &*answer.body), (200, "the beginning\n"));
    assert!(!answer.is_whole, "{answer:?}");
    let short = service.get("/short");
    assert_eq!((short.status, &*short.body), (200, "short\n"));
    assert!(!short.is_whole, "{short:?}");
    let url = format!("http://{}/late-trap", service.address);
    let (printed, code) = curl(["--http1.1", &url]);
    assert_says(&printed, &["the beginning\n"]);
    assert_ne!(code, Some(0), "{printed}");
    // A stream that is reset may lose what was sent before.
    let (printed, code) = curl(["--http2-prior-knowledge", &url]);
    assert_ne!(code, Some(0), "{printed}");
    service.is_well();
}

#[test]
fn a_second_answer_fails_its_handler_and_is_not_sent() {
    let service = Service::web(&[]);
    let twice = service.get("/twice");
    assert_eq!((twice.status, &*twice.body), (200, "the first\n"));
    assert!(!twice.is_whole, "{twice:?}");
    service.is_well();
}

#[test]
fn a_client_that_goes_cancels_its_handler() {
    let node = Node::start();
    let service = Service::of_node(&node, &[]);
    // Before there is an answer, and in the middle of one.
    let mut hangs = service.open();
    hangs.begin("GET /hang", "");
    node.wait_for("running", 1);
    drop(hangs);
    node.wait_for("cancelled", 1);
    let mut ticks = service.open();
    ticks.begin("GET /ticks?n=1000000", "");
    ticks.read_until("0\n");
    drop(ticks);
    node.wait_for("cancelled", 2);
    service.is_well();
    // The command goes, and so does its service.
    let mut hangs = service.open();
    hangs.begin("GET /hang", "");
    node.wait_for("running", 1);
    service.running.signal(rustix::process::Signal::KILL);
    node.wait_for("cancelled", 3);
    assert!(hangs.is_closed());
}

#[test]
fn the_access_log_says_that_a_client_was_gone() {
    let mut service = Service::web(&["--concurrency", "1"]);
    let slow = Connection::slow(service.address);
    let mut waits = service.open();
    waits.begin("GET /hello", "");
    // Of one that is gone before it was read nobody knows. One that came later was read, and needs no place.
    let mut later = service.open();
    later.send("GET /hello HTTP/1.1\r\nHost: other.example\r\n\r\n");
    later.read_until("HTTP/1.1 421 ");
    drop(waits);
    service.wait_for("GET /hello 499 0 ");
    drop(slow);
    service.wait_for("POST /echo 200 5 ");
    service.wait_for(" cut off\n");
}

#[test]
fn ctrl_c_lets_requests_under_way_end() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let service = Service::web(&[]);
        let mut half = service.open();
        half.send("GET /hello HTTP/1.1\r\nHo");
        let mut idle = service.open();
        idle.begin("GET /hello", "");
        idle.read_until("0\r\n\r\n");
        let slow = Connection::slow(service.address);
        service.running.signal(signal);
        assert!(idle.is_closed());
        half.waits_for(SOON);
        assert!(half.is_closed());
        while TcpStream::connect(service.address).is_ok() {}
        assert_eq!(finished(slow), "");
        let ended = service.running.end();
        assert_eq!(ended.code, Some(0), "{ended}");
        assert_says(&ended.stdout_text(), &["POST /echo 200 5 "]);
    }
}

#[test]
fn requests_do_not_keep_a_service_for_longer_than_it_drains() {
    let service = Service::web(&["--drain", "1ms"]);
    let mut slow = Connection::slow(service.address);
    let ended = service.end();
    let rest = slow.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}: {ended}");
}

#[test]
fn a_service_whose_log_nobody_reads_ends_all_the_same() {
    let (reader, writer) = pipe().expect("there are pipes");
    let running = serve("web", &[]).stdout_to(writer).start();
    let mut reader = BufReader::new(reader);
    let mut first = String::new();
    let read = reader.read_line(&mut first);
    read.expect("it says where it is");
    let address = address(&first);
    let service = Service { running, address };
    // More lines than the pipe holds.
    let line = format!("GET /hello?{}", "x".repeat(8 << 10));
    for _ in 0..20 {
        assert_eq!(service.ask(&line).status, 200);
    }
    let ended = service.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    drop(reader);
}

#[test]
fn a_service_that_cannot_write_what_handlers_print_fails() {
    let service = Service::start(serve("web", &[]).redirected("2>/dev/full"));
    // The handler may see that its output is closed, and fail.
    assert!([200, 500].contains(&service.get("/log").status));
    let ended = service.running.end();
    assert_eq!(ended.code, Some(2), "{ended}");
}
