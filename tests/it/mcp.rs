//! `wasmrun mcp`: tools for agents, over pipes and HTTP, as clients of the protocol see them.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::{Value as Json, json};
use wasmrun_tests::{Running, Stream, Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn mcp() -> Wasmrun {
    Wasmrun::new(["mcp", "--no-python"])
}

fn initialize() -> Json {
    json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "tests", "version": "1" },
    })
}

fn request(id: u64, method: &str, params: &Json) -> Json {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A client at the other end of pipes.
struct Session {
    running: Running,
    requests: u64,
}

impl Session {
    fn start(command: Wasmrun) -> Self {
        let mut session = Self {
            running: command.open_stdin().start(),
            requests: 0,
        };
        let begun = session.ask("initialize", &initialize());
        assert_eq!(begun["result"]["serverInfo"]["name"], "wasmrun", "{begun}");
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        session
    }

    fn of(guest_name: &str) -> Self {
        Self::start(mcp().arg(guest(guest_name)))
    }

    fn send(&mut self, message: &Json) {
        self.running.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request. Its id.
    fn begin(&mut self, method: &str, params: &Json) -> u64 {
        self.requests += 1;
        self.send(&request(self.requests, method, params));
        self.requests
    }

    /// The answer to the request with this id.
    #[track_caller]
    fn answer(&mut self, id: u64) -> Json {
        let of = |text: &str| {
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let mut answers = whole
                .lines()
                .map(|line| serde_json::from_str::<Json>(line).expect("a message a line"));
            answers.find(|answer| answer["id"] == id)
        };
        let what = format!("the answer to {id}");
        self.running
            .wait_until(Stream::Out, &what, |text| of(text).is_some());
        of(&self.running.written(Stream::Out)).expect("it has come")
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: &Json) -> Json {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// What a tool's call gives, with `isError` as expected.
    #[track_caller]
    fn call(&mut self, name: &str, arguments: &Json, is_error: bool) -> Json {
        let answer = self.ask(
            "tools/call",
            &json!({ "name": name, "arguments": arguments }),
        );
        assert_eq!(answer["result"]["isError"], is_error, "{answer}");
        answer["result"].clone()
    }

    #[track_caller]
    fn result(&mut self, name: &str, arguments: &Json) -> Json {
        let result = self.call(name, arguments, false);
        let text = result["content"][0]["text"].as_str().expect("a text");
        let text: Json = serde_json::from_str(text).expect("the same as JSON");
        assert_eq!(text, result["structuredContent"]);
        text["result"].clone()
    }

    /// What is said of a call that fails.
    #[track_caller]
    fn error(&mut self, name: &str, arguments: &Json) -> String {
        let result = self.call(name, arguments, true);
        let blocks = result["content"].as_array().expect("a list").iter();
        blocks
            .map(|block| block["text"].as_str().expect("a text"))
            .collect()
    }
}

#[test]
fn functions_are_tools_with_the_schemas_of_their_types() {
    let mut session =
        Session::start(mcp().args([guest("fixture"), guest("orders"), guest("primes")]));
    let listed = session.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"]
        .as_array()
        .expect("a list")
        .clone();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).cloned();
    let join = tool("join").expect("it is there");
    assert_eq!(join["inputSchema"]["required"], json!(["first", "times"]));
    assert_eq!(
        join["inputSchema"]["properties"]["times"]["maximum"],
        u32::MAX
    );
    assert_eq!(
        join["outputSchema"]["properties"]["result"]["type"],
        "string"
    );
    assert_says(
        join["description"].as_str().expect("a text"),
        &["`join`", "fixture.wasm", "times: u32"],
    );
    // Of two interfaces; and the error case is no result.
    assert!(tool("a_who").is_some() && tool("b_who").is_some() && tool("who").is_none());
    let price = tool("price").expect("it is there");
    assert!(
        price["outputSchema"]["properties"]["result"]["properties"]["total"].is_object(),
        "{price}"
    );
    // It takes an object.
    assert!(tool("sum").is_none() && tool("run_python").is_none());
    session.running.wait_for(
        Stream::Err,
        "primes.wasm: these take or return objects or actors",
    );

    assert_eq!(
        session.result("a_who", &json!({})),
        session.result("a_who", &Json::Null)
    );
    assert_eq!(
        session.result("join", &json!({ "first": "ab", "times": 2 })),
        "abab"
    );
    assert_eq!(
        session.result("echo-u64", &json!({ "v": u64::MAX })),
        u64::MAX
    );
    assert_eq!(
        session.result("echo-bytes", &json!({ "v": { "base64": "AQI=" } })),
        json!([1, 2])
    );
    let person =
        json!({ "full-name": "Ann", "age": 40, "tags": [], "role": "member", "rights": ["read"] });
    let same = session.result("echo-person", &json!({ "v": person }));
    assert_eq!(
        (&same["rights"], &same["home"]),
        (&json!(["read"]), &Json::Null)
    );
    assert_eq!(
        session.result("echo-result", &json!({ "v": { "ok": 3 } })),
        3
    );
    let printed = session.call("print", &json!({ "msg": "hello" }), false);
    assert_says(
        &printed.to_string(),
        &["Printed to standard output:\\nhello"],
    );
    session.running.close_stdin();
    session.running.wait_for_exit();
}

#[test]
fn what_is_wrong_with_a_call_is_told_to_the_model() {
    let mut session = Session::of("fixture");
    for (name, arguments, said) in [
        (
            "join",
            json!({ "first": "a", "times": -1 }),
            "argument `times`: -1 does not fit u32",
        ),
        (
            "join",
            json!({ "first": "a" }),
            "argument \"times\" is missing",
        ),
        (
            "join",
            json!({ "first": "a", "times": 1, "more": 1 }),
            "no argument \"more\"; the arguments are first, times, last",
        ),
        (
            "noop",
            json!({ "more": 1 }),
            "no argument \"more\": the function takes none",
        ),
        (
            "echo-list-record",
            json!({ "v": [{ "x": 1, "y": "b" }] }),
            "argument `v`[0].y: expected f32",
        ),
        (
            "fail",
            json!({ "msg": "no" }),
            "fail: the function returned an error: \"no\"",
        ),
        (
            "echo-result-empty",
            json!({ "v": { "err": null } }),
            "an error that carries nothing",
        ),
        ("panic", json!({ "msg": "why" }), "panic: the guest trapped"),
        (
            "panic",
            json!({ "msg": "why" }),
            "Printed to standard error:",
        ),
        (
            "allocate",
            json!({ "mib": 500 }),
            "memory limit of 128 MiB reached",
        ),
        (
            "read-file",
            json!({ "path": "/etc/passwd" }),
            "returned an error",
        ),
    ] {
        assert_says(&session.error(name, &arguments), &[said]);
    }
    // No call at all.
    let unknown = session.ask("tools/call", &json!({ "name": "nothing" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_says(&unknown.to_string(), &["there is no tool \\\"nothing\\\""]);
    // Lines that are no messages are nobody's.
    session
        .running
        .write(b"nonsense\n\xff\xfe\n[1]\n{\"jsonrpc\":\"2.0\"}\n");
    assert_eq!(session.result("echo-bool", &json!({ "v": true })), true);
}

#[test]
fn options_are_for_all_calls() {
    let dir = scratch();
    fs::write(dir.path().join("note"), "granted").expect("it can be written");
    let granted = format!("{}::/d:ro", dir.path().display());
    let command = mcp().args([
        "--time-limit",
        "100ms",
        "--dir",
        &granted,
        "--memory",
        "32MiB",
    ]);
    let mut session = Session::start(command.arg(guest("fixture")));
    assert_eq!(
        session.result("read-file", &json!({ "path": "/d/note" })),
        "granted"
    );
    assert_says(
        &session.error("spin", &json!({})),
        &["spin: time limit of 100ms reached"],
    );
    assert_says(
        &session.error("allocate", &json!({ "mib": 64 })),
        &["memory limit of 32 MiB reached"],
    );
}

#[test]
fn a_call_is_cancelled_with_its_request_and_others_go_on() {
    let node = Node::start();
    let mut session = Session::start(node.wasmrun(["mcp", "--no-python"]).arg(guest("fixture")));
    let sleep = json!({ "name": "sleep-forever" });
    let first = session.begin("tools/call", &sleep);
    session.begin("tools/call", &sleep);
    node.wait_for("running", 2);
    let params = json!({ "requestId": first, "reason": "enough" });
    session
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    node.wait_for("running", 1);
    // Beside the one that runs.
    assert_eq!(session.result("echo-u8", &json!({ "v": 7 })), 7);
    session.running.close_stdin();
    session.running.wait_for_exit();
    node.wait_for("running", 0);
}

#[test]
fn the_server_ends_well_when_told_and_says_when_its_node_has_gone() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut session = Session::of("fixture");
        session.begin("tools/call", &json!({ "name": "sleep-forever" }));
        assert_eq!(session.result("echo-u8", &json!({ "v": 7 })), 7);
        session.running.signal(signal);
        session.running.wait_for_exit();
    }
    // Before anybody has begun.
    mcp().arg(guest("fixture")).ok();
    let mut node = Node::start();
    let mut session = Session::start(node.wasmrun(["mcp", "--no-python"]).arg(guest("fixture")));
    let running = node.running.take().expect("it runs");
    running.signal(Signal::KILL);
    running.end();
    assert_says(
        &session.error("noop", &json!({})),
        &["the connection to the node has ended"],
    );
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    mcp().fails_saying(2, &["there is nothing to offer"]);
    mcp()
        .arg(guest("prog"))
        .fails_saying(2, &["prog.wasm", "exports no function that can be a tool"]);
    mcp()
        .args([guest("orders"), guest("orders")])
        .fails_saying(2, &["given twice"]);
    // Where the demo has been, there is a Python package beside the program. Not beside a copy.
    let elsewhere = scratch();
    let copy = elsewhere.path().join("wasmrun");
    let copy = copy.display();
    let elsewhere =
        format!("(ln \"$0\" {copy} 2>/dev/null || cp \"$0\" {copy}) && exec {copy} \"$@\"");
    let without = Wasmrun::new(["mcp"]).arg(guest("fixture"));
    let without = without.before(&elsewhere).run();
    assert_says(&without.stderr, &["no tool runs Python", "WASMRUN_PYTHON"]);
    let wrong = Wasmrun::new(["mcp"]).env("WASMRUN_PYTHON", guest("fixture"));
    wrong.fails_saying(2, &["it is not the Python interpreter"]);
    let open = mcp().args(["--listen", "0.0.0.0:0"]).arg(guest("fixture"));
    open.fails_saying(2, &["other machines can reach", "--token-file"]);
    let dir = scratch();
    let path = dir.path().join("token");
    fs::write(&path, "short").expect("it can be written");
    let short = mcp()
        .args(["--listen", "127.0.0.1:0", "--token-file"])
        .arg(&path)
        .arg(guest("fixture"));
    short.fails_saying(2, &["at least 16 characters"]);
    let nobody = mcp()
        .arg(guest("fixture"))
        .env("WASMRUN_ADDRESS", "unix:/nowhere/node.sock");
    nobody.fails_saying(4, &["no node is running"]);
}

/// A server over HTTP, and where.
fn over_http(command: Wasmrun) -> (Running, SocketAddr) {
    let mut running = command.start();
    running.wait_for(Stream::Out, "/mcp\n");
    let said = running.written(Stream::Out);
    let address = said
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.and_then(|it| it.parse().ok()).expect("an address");
    (running, address)
}

/// Sends a message.
fn send(address: SocketAddr, headers: &[(&str, &str)], message: &Json) -> TcpStream {
    let body = message.to_string();
    let mut head = String::from("POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "Accept: application/json, text/event-stream\r\nConnection: close\r\n";
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(head.as_bytes()).expect("it reads");
    // It need not read all of what is too long.
    let _ = stream.write_all(body.as_bytes());
    stream
}

/// What comes back: the head, and what is in the body.
fn answer(mut stream: TcpStream) -> (String, String) {
    let mut answer = Vec::new();
    // Who is refused may be cut off.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("it is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn post(address: SocketAddr, headers: &[(&str, &str)], message: &Json) -> (String, String) {
    answer(send(address, headers, message))
}

#[track_caller]
fn refused(status: &str, address: SocketAddr, headers: &[(&str, &str)]) {
    let (head, _) = post(address, headers, &request(1, "initialize", &initialize()));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
}

/// Begins a session. Its id.
fn begin(address: SocketAddr, headers: &[(&str, &str)]) -> String {
    let (head, body) = post(address, headers, &request(1, "initialize", &initialize()));
    assert_says(&body, &["\"serverInfo\""]);
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let id = lines.find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
    let (_, id) = id.expect("a session");
    let session = [headers, &[("Mcp-Session-Id", id)]].concat();
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_says(&post(address, &session, &begun).0, &["202"]);
    id.to_owned()
}

#[test]
fn over_http_pages_of_browsers_are_refused() {
    let command = mcp()
        .args(["--listen", "127.0.0.1:0"])
        .arg(guest("fixture"));
    let (running, address) = over_http(command);
    refused("403", address, &[("Host", "evil.example")]);
    refused("403", address, &[("Origin", "http://evil.example")]);
    refused("403", address, &[("Origin", "null")]);
    refused(
        "404",
        address,
        &[("Mcp-Session-Id", "00000000-0000-0000-0000-000000000000")],
    );
    let id = begin(address, &[("Origin", "http://localhost:3000")]);
    let session = [("Mcp-Session-Id", &*id)];
    let join = json!({ "name": "join", "arguments": { "first": "ab", "times": 2 } });
    let (_, body) = post(address, &session, &request(2, "tools/call", &join));
    assert_says(&body, &["\"structuredContent\":{\"result\":\"abab\"}"]);
    let (_, body) = post(
        address,
        &session,
        &request(3, "tools/call", &json!({ "name": "trap" })),
    );
    assert_says(&body, &["trap", "\"isError\":true"]);
    let large =
        json!({ "name": "join", "arguments": { "first": "x".repeat(17 << 20), "times": 0 } });
    let (head, _) = post(address, &session, &request(4, "tools/call", &large));
    assert_says(&head, &["HTTP/1.1 413"]);
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn over_http_a_call_is_cancelled_and_ends_with_the_server() {
    let node = Node::start();
    let command = node.wasmrun(["mcp", "--no-python", "--listen", "127.0.0.1:0"]);
    let (mut running, address) = over_http(command.arg(guest("fixture")));
    let id = begin(address, &[]);
    let calls: Vec<_> = [2, 3]
        .map(|number| {
            let id = id.clone();
            std::thread::spawn(move || {
                let sleep = request(number, "tools/call", &json!({ "name": "sleep-forever" }));
                post(address, &[("Mcp-Session-Id", &id)], &sleep);
            })
        })
        .into();
    node.wait_for("running", 2);
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    assert_says(
        &post(address, &[("Mcp-Session-Id", &id)], &cancelled).0,
        &["202"],
    );
    node.wait_for("running", 1);
    running.signal(Signal::INT);
    running.wait_for_exit();
    node.wait_for("running", 0);
    for call in calls {
        // Whether it was cut off or answered: it has ended.
        let _ = call.join();
    }
}

#[test]
fn clients_without_sessions_are_served_and_cancel_by_hanging_up() {
    let node = Node::start();
    let command = node.wasmrun(["mcp", "--no-python", "--listen", "127.0.0.1:0"]);
    let (_running, address) = over_http(command.arg(guest("fixture")));
    let call = |name: &str, arguments: Json| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        });
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", name),
        ];
        send(address, &headers, &request(1, "tools/call", &params))
    };
    let (_, body) = answer(call("join", json!({ "first": "ab", "times": 2 })));
    assert_says(&body, &["\"structuredContent\":{\"result\":\"abab\"}"]);
    let sleeping = call("sleep-forever", json!({}));
    node.wait_for("running", 1);
    drop(sleeping);
    node.wait_for("running", 0);
}

#[test]
fn over_http_a_token_is_demanded_if_there_is_one() {
    let dir = scratch();
    let path = dir.path().join("token");
    fs::write(&path, format!("{TOKEN}\n")).expect("it can be written");
    let command = mcp()
        .args(["--listen", "0.0.0.0:0", "--token-file"])
        .arg(&path);
    let (_running, address) = over_http(command.arg(guest("fixture")));
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    refused("401", address, &[]);
    refused(
        "401",
        address,
        &[("Authorization", "Bearer 0123456789abcdef0123456789abcdee")],
    );
    let bearer = format!("Bearer {TOKEN}");
    // By any name, as others reach it.
    let id = begin(
        address,
        &[("Authorization", &bearer), ("Host", "worker.example")],
    );
    let session = [("Mcp-Session-Id", &*id)];
    let noop = request(2, "tools/call", &json!({ "name": "noop" }));
    assert_says(&post(address, &session, &noop).0, &["HTTP/1.1 401"]);
    let session = [("Mcp-Session-Id", &*id), ("Authorization", &*bearer)];
    assert_says(&post(address, &session, &noop).1, &["{\"result\":null}"]);
}
