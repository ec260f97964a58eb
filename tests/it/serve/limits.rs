//! What is refused, and what is waited for.

use std::io::Write;
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wasmrun_tests::assert_says;

use super::{Answer, Connection, Service};
use crate::faults::eventually;
use crate::node::Node;

/// Connections that ask nothing.
const IDLE: u64 = 2000;

#[test]
fn a_service_that_is_busy_says_so() {
    let service = Service::web(&["--concurrency", "1", "--queue", "0"]);
    let mut slow = Connection::slow(service.address);
    let busy = service.get("/hello");
    busy.problem(503);
    assert_eq!(busy.header("retry-after"), Some("1"), "{busy:?}");
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    // The place is free soon after its client has all.
    while service.get("/hello").status == 503 {}
    service.is_well();
}

#[test]
fn requests_wait_for_their_turn() {
    let service = Service::web(&["--concurrency", "1", "--queue", "2"]);
    let mut slow = Connection::slow(service.address);
    let mut waiting = [(); 2].map(|()| service.open());
    for connection in &mut waiting {
        connection.begin("GET /hello", "Connection: close\r\n");
    }
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    for connection in waiting {
        let answer = connection.answer();
        assert_eq!((answer.status, &*answer.body), (200, "hello\n"));
    }
}

#[test]
fn requests_do_not_wait_for_ever() {
    let service = Service::web(&["--concurrency", "1", "--queue-wait", "1ms"]);
    let _slow = Connection::slow(service.address);
    let gone = service.get("/hello");
    gone.problem(503);
    assert!(gone.header("retry-after").is_some(), "{gone:?}");
}

#[test]
fn a_flood_is_refused_and_what_waits_is_answered() {
    let node = Node::start();
    let few = ["--concurrency", "1", "--queue", "4", "--queue-wait", "100s"];
    let service = Service::of_node(&node, &few);
    let mut slow = Connection::slow(service.address);
    let flood: Vec<Connection> = (0..100)
        .map(|_| {
            let mut client = service.open();
            client.begin("GET /hello", "Connection: close\r\n");
            client
        })
        .collect();
    eventually("all but those that wait are refused", || {
        let listed = node.wasmrun(["list", "services"]).json(0);
        match &listed["services"][0]["refused"] {
            refused if refused == 96 => Ok(()),
            refused => Err(refused.clone()),
        }
    });
    slow.last_piece();
    let statuses = flood.into_iter().map(|client| client.answer().status);
    let mut statuses: Vec<u16> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 4].as_slice(), &[503; 96]].concat());
}

#[test]
fn handlers_have_limits() {
    let options = ["--time-limit", "1s", "--memory", "64MiB"];
    let service = Service::web(&options);
    let late = service.get("/hang").problem(504);
    assert!(late["task"].is_string(), "{late}");
    service.get("/grow").problem(500);
    service.is_well();
}

#[test]
fn what_is_no_request_is_refused() {
    let service = Service::web(&[]);
    let says = |text: &str| {
        let mut client = service.open();
        client.send(text);
        client.answer()
    };
    let get = "GET /hello HTTP/1.1\r\n";
    for (headers, detail) in [
        ("Host: a\r\nHost: b\r\n", "several Host headers"),
        ("Host: a\r\nHost: a\r\n", "several Host headers"),
        ("X: y\r\n", "no Host header"),
        ("Host:\r\n", "names no host"),
        ("Host: a/b\r\n", "names no host"),
        ("Host: user@a\r\n", "names no host"),
    ] {
        let answer = says(&format!("{get}{headers}Connection: close\r\n\r\n"));
        let problem = answer.problem(400);
        assert_says(&problem["detail"].to_string(), &[detail]);
    }
    let lengths = "Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy";
    for text in [
        format!("{get}{lengths}"),
        format!("{get}Host: a\r\nContent-Length: -1\r\n\r\n"),
        format!("{get}Host: a\r\n no: name\r\n\r\n"),
        "GET /hello\r\n\r\n".to_owned(),
        "\0\x01\x02\r\n\r\n".to_owned(),
        "GET /hello HTTP/9.9\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        let answer = says(&text);
        assert!(
            answer.status == 400 || answer.status == 505,
            "{text:?}: {answer:?}"
        );
    }
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    assert_eq!(says(&format!("{get}Host: a\r\n{many}\r\n")).status, 431);
    service.is_well();
}

#[test]
fn a_body_ends_where_its_head_says_for_all_or_the_request_is_refused() {
    let service = Service::web(&[]);
    let says = |line: &str, rest: &str| {
        let mut client = service.open();
        client.send(&format!("{line}\r\nHost: localhost\r\n{rest}"));
        String::from_utf8(client.rest()).expect("it is text")
    };
    let post = "POST /echo HTTP/1.1";
    let (chunked, length) = ("Transfer-Encoding: chunked\r\n", "Content-Length: 5\r\n");
    // What stands behind the shorter of two bodies is no request.
    let hidden = "\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for both in [[chunked, length], [length, chunked]] {
        let said = says(post, &format!("{}{hidden}", both.concat()));
        assert!(!said.contains("hello"), "{said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    }
    for header in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Content-Length: +5",
        "Content-Length: 5, 6",
        "X: a\rb",
        "X: a\0b",
    ] {
        let said = says(post, &format!("{header}\r\n{hidden}"));
        assert!(said.starts_with("HTTP/1.1 400 "), "{header:?}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{header:?}: {said}");
    }
    let old = says("POST /echo HTTP/1.0", &format!("{chunked}{hidden}"));
    assert!(old.contains(" 400 ") && !old.contains("hello"), "{old}");
    // A piece of no length or of one that no number has.
    for length in ["xyz", "-1", "fffffffffffffffff"] {
        let said = says(post, &format!("{chunked}\r\n{length}\r\nabc\r\n0\r\n\r\n"));
        assert!(!said.ends_with("0\r\n\r\n"), "{length}: {said}");
    }
    service.is_well();
}

#[test]
fn a_service_on_loopback_answers_to_its_names_alone() {
    let service = Service::web(&["--host", "shop.test"]);
    let asked = |host: &str| {
        let mut client = service.open();
        let head = format!("GET /hello HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        client.send(&head);
        client.answer()
    };
    // A name that somebody has pointed at this machine.
    let other = asked("evil.example").problem(421);
    assert_says(&other["detail"].to_string(), &["--host NAME"]);
    for host in ["shop.test", "localhost:80", "127.0.0.1"] {
        assert_eq!(asked(host).status, 200, "{host}");
    }
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let service = Service::web(&[]);
    let mut client = service.open();
    let head = format!(
        "GET /hello HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "y".repeat(100 << 10)
    );
    // It may be refused before all of it is sent, and what was said of that is lost then.
    let _ = client.stream.get_mut().write_all(head.as_bytes());
    let said = String::from_utf8(client.rest()).expect("it is text");
    if !said.is_empty() {
        assert_eq!(Answer::new(said, b"").status, 431);
    }
    service.is_well();
}

#[test]
fn a_body_without_end_that_nobody_reads_ends() {
    let service = Service::web(&[]);
    let mut client = service.open();
    client.begin("POST /hello", "Transfer-Encoding: chunked\r\n");
    client.read_until("hello\n");
    let piece = format!("10000\r\n{}\r\n", "y".repeat(0x10000));
    let mut stream: &TcpStream = client.stream.get_ref();
    while stream.write_all(piece.as_bytes()).is_ok() {}
    service.is_well();
}

#[test]
fn idle_connections_keep_nobody_from_being_served() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    // The service inherits it.
    setrlimit(Resource::Nofile, raised).expect("anybody may go up to the most");
    let most = limits.maximum.map_or(IDLE, |most| IDLE.min(most / 4));
    let node = Node::start();
    let service = Service::of_node(&node, &[]);
    let other = Service::of_node(&node, &["--tenant", "other"]);
    let idle: Vec<Connection> = (0..most).map(|_| service.open()).collect();
    service.is_well();
    other.is_well();
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
    // Each of them may still ask.
    for mut connection in idle.into_iter().step_by(100) {
        connection.begin("GET /hello", "");
        connection.read_until("hello\n");
    }
}
