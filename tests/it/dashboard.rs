//! The page of a node, as browsers and scripts see it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;
use wasmrun_tests::{Stream, assert_says, guest};

use crate::node::Node;

/// How long an event may take: far more than any does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Views and their headings.
const VIEWS: [(&str, &str); 10] = [
    ("/", "The cluster at a glance"),
    ("/nodes", "Nodes"),
    ("/queue", "What waits"),
    ("/tenants", "Tenants"),
    ("/jobs", "Jobs"),
    ("/tasks", "Tasks"),
    ("/actors", "Actors"),
    ("/services", "Services"),
    ("/objects", "Objects"),
    ("/groups", "Placement groups"),
];

/// A node with a page, and where that is.
fn with_page() -> (Node, SocketAddr) {
    let mut node = Node::new();
    node.start_with(&["--dashboard=127.0.0.1:0"]);
    let running = node.running.as_mut().expect("it runs");
    running.wait_for(Stream::Out, ": wasmrun dashboard opens it\n");
    let said = running.written(Stream::Out);
    let address = said.split("the page is at http://").nth(1);
    let address = address.and_then(|it| it.split(": ").next());
    let address = address.expect("an address").parse();
    (node, address.expect("it is one"))
}

/// What comes back.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        let mut pairs = lines.filter_map(|line| line.split_once(": "));
        let found = pairs.find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// Sends a request with these headers, and stays connected.
fn send(address: SocketAddr, request: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let patience = stream.set_read_timeout(Some(PATIENCE));
    patience.expect("it is a time");
    let mut text = format!("{request} HTTP/1.1\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("Content-Length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("it reads");
    stream
}

fn ask(address: SocketAddr, request: &str, headers: &[(&str, &str)]) -> Answer {
    let mut answer = String::new();
    let mut stream = send(address, request, headers);
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).expect("a status");
    Answer {
        status: status.parse().expect("a number"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// A browser that has been let in.
struct Browser {
    address: SocketAddr,
    cookie: String,
}

impl Browser {
    fn new(node: &Node, address: SocketAddr) -> Self {
        let entered = enter(node, address);
        assert_eq!(entered.status, 200, "{entered:?}");
        let cookie = entered.header("set-cookie").expect("there is one");
        assert_says(cookie, &["HttpOnly", "SameSite=Strict"]);
        assert!(!cookie.contains("Secure"), "{cookie}");
        let cookie = cookie.split(';').next().expect("its value");
        Self {
            address,
            cookie: cookie.to_owned(),
        }
    }

    fn headers<'a>(&'a self, host: &'a str) -> [(&'a str, &'a str); 2] {
        [("Host", host), ("Cookie", &self.cookie)]
    }

    fn get(&self, path: &str) -> Answer {
        let host = self.address.to_string();
        ask(self.address, &format!("GET {path}"), &self.headers(&host))
    }

    fn json(&self, path: &str) -> Json {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).expect("it is JSON")
    }

    fn post(&self, path: &str, origin: Option<&str>) -> Answer {
        let host = self.address.to_string();
        let mut headers = self.headers(&host).to_vec();
        headers.extend(origin.map(|origin| ("Origin", origin)));
        ask(self.address, &format!("POST {path}"), &headers)
    }
}

/// Starts the service `shop`.
fn serve(node: &Node) {
    let serve = node.wasmrun(["serve"]).arg(guest("web"));
    let options = ["--name", "shop", "--detach", "--listen", "127.0.0.1:0"];
    serve.args(options).ok();
}

/// The names of the fields of an object.
#[track_caller]
fn fields(object: &Json) -> Vec<&str> {
    let fields = object.as_object().expect("an object").keys();
    fields.map(String::as_str).collect()
}

/// Opens a new link.
fn enter(node: &Node, address: SocketAddr) -> Answer {
    let link = node.wasmrun(["dashboard"]).json(0);
    let link = link["link"].as_str().expect("it is text").to_owned();
    follow(address, &link)
}

fn follow(address: SocketAddr, link: &str) -> Answer {
    let host = address.to_string();
    let path = link.strip_prefix(&format!("http://{host}"));
    let path = path.unwrap_or_else(|| panic!("{link} leads elsewhere"));
    ask(address, &format!("GET {path}"), &[("Host", &host)])
}

/// The id of a task that goes on by itself.
fn detached(node: &Node, call: &str, name: &str) -> String {
    let said = node.submit(call).args(["--detach", "--name", name]).json(0);
    said["task_id"].as_str().expect("it has one").to_owned()
}

#[test]
fn a_link_lets_one_browser_in() {
    let (node, address) = with_page();
    let printed = node.wasmrun(["dashboard", "--no-open"]).ok();
    let link = printed.trim();
    let entered = follow(address, link);
    assert_eq!(entered.status, 200, "{entered:?}");
    assert_says(&entered.body, &[r#"content="0; url=/""#]);
    let again = follow(address, link);
    assert_eq!(again.status, 403, "{again:?}");
    assert_says(&again.body, &["wasmrun dashboard"]);
    assert!(again.header("set-cookie").is_none(), "{again:?}");
    // A link leads to a view of this page only.
    for (to, url) in [("/jobs", "url=/jobs"), ("//evil.example", "url=/\"")] {
        let link = node.wasmrun(["dashboard", "--no-open"]).ok();
        let entered = follow(address, &format!("{}&to={to}", link.trim()));
        assert_says(&entered.body, &[url]);
    }
}

#[test]
fn others_are_not_let_in() {
    let (node, address) = with_page();
    let browser = Browser::new(&node, address);
    let host = address.to_string();
    for path in ["/", "/jobs", "/nothing", "/events?view=/", "/api/v1/tasks"] {
        let without = ask(address, &format!("GET {path}"), &[("Host", &host)]);
        assert_eq!(without.status, 403, "{path}: {without:?}");
        assert_says(&without.body, &["wasmrun dashboard"]);
        let rebound = browser.headers("evil.example");
        let rebound = ask(address, &format!("GET {path}"), &rebound);
        assert_eq!(rebound.status, 403, "{path}: {rebound:?}");
    }
    let spinning = detached(&node, "spin()", "spins");
    node.wait_for("running", 1);
    let cancel = format!("/tasks/{spinning}/cancel");
    let own = format!("http://{address}");
    for origin in [None, Some("null"), Some("http://evil.example")] {
        assert_eq!(browser.post(&cancel, origin).status, 403, "{origin:?}");
    }
    assert_eq!(node.count("running"), 1);
    let cancelled = browser.post(&cancel, Some(&own));
    assert_eq!(cancelled.status, 303, "{cancelled:?}");
    let back = format!("/tasks/{spinning}");
    assert_eq!(cancelled.header("location"), Some(&*back));
    node.wait_for("cancelled", 1);
    assert_eq!(browser.post("/jobs", Some(&own)).status, 405);
}

#[test]
fn every_view_is_there_and_what_guests_have_named_is_text() {
    let (node, address) = with_page();
    let browser = Browser::new(&node, address);
    let looks = |views: &[(&str, &str)]| {
        for (path, heading) in views {
            let page = browser.get(path);
            assert_eq!(page.status, 200, "{path}: {page:?}");
            let heading = format!("<h1 id=\"title\">{heading}");
            assert_says(&page.body, &["aria-current=\"page\"", &heading]);
            assert!(!page.body.contains("<script>"), "{path}: {}", page.body);
            let policy = page.header("content-security-policy");
            assert_says(policy.expect("it has one"), &["default-src 'none'"]);
            assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        }
    };
    // First there is nothing.
    looks(&VIEWS);
    let task = detached(&node, "add(1, 2)", "<script>alert(1)</script>");
    node.wait_for("finished", 1);
    let waiting = node.submit("noop()").args(["--detach", "--cpus", "2"]);
    detached(&node, "spin()", "spins");
    node.wait_for("running", 1);
    waiting.ok();
    node.wait_for("ready", 1);
    serve(&node);
    looks(&VIEWS);
    let shown = "&lt;script&gt;alert(1)&lt;/script&gt;";
    assert_says(&browser.get("/tasks").body, &[shown]);
    let tasks = browser.json("/api/v1/tasks?state=finished");
    assert_eq!(tasks["tasks"][0]["id"], task, "{tasks}");
    let job = tasks["tasks"][0]["job"].as_str().expect("it has one");
    let (of_task, of_job) = (format!("/tasks/{task}"), format!("/jobs/{job}"));
    looks(&[(of_task.as_str(), "Task "), (of_job.as_str(), "Job ")]);
    assert_says(&browser.get(&of_task).body, &[shown, job]);
    let services = browser.json("/api/v1/services");
    let service = services["services"][0]["job"].as_str();
    let of_service = format!("/services/{}", service.expect("it has one"));
    looks(&[(of_service.as_str(), "Service shop")]);
    assert_says(&browser.get("/services").body, &[&of_service, "shop"]);
    for path in ["/tasks/00", "/services/00"] {
        let missing = browser.get(path);
        assert_eq!(missing.status, 404, "{missing:?}");
    }
    assert_eq!(browser.get("/nothing").status, 404);
}

#[test]
fn lists_are_there_for_scripts() {
    let (node, address) = with_page();
    let browser = Browser::new(&node, address);
    node.submit("add(1, 2)").args(["--tenant", "red"]).ok();
    detached(&node, "add(1, 2)", "kept");
    node.wait_for("finished", 2);
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "10", "--name", "total"]).ok();
    let group = node.wasmrun(["group", "create", "--detach", "--kind", "pack"]);
    group.args(["--bundle", "cpus=1"]).ok();
    serve(&node);
    let same = |address: &str, args: [&str; 2], list: &str| {
        let said = browser.json(&format!("/api/v1/{address}"));
        let printed = node.wasmrun(args).json(0);
        assert_eq!(said["version"], 1, "{said}");
        assert_eq!(fields(&said), fields(&printed), "{address}");
        let (said, printed) = (&said[list][0], &printed[list][0]);
        assert_eq!(fields(said), fields(printed), "{address}");
    };
    for list in [
        "nodes", "tasks", "attempts", "jobs", "actors", "objects", "modules", "tenants", "groups",
        "services",
    ] {
        same(list, ["list", list], list);
    }
    same("due", ["tenant", "list"], "tenants");
    let of = |tenant: &str| browser.json(&format!("/api/v1/tasks?tenant={tenant}&limit=1"));
    assert_eq!(of("red")["tasks"][0]["state"], "finished");
    assert_eq!(of("blue")["tasks"].as_array().map(Vec::len), Some(0));
    let wrong = browser.get("/api/v1/tasks?nonsense=1");
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert_says(&wrong.body, &["nonsense", "state"]);
    assert_eq!(browser.get("/api/v1/nothing").status, 404);
    let elsewhere = browser.get("/api/tasks");
    assert_eq!(elsewhere.status, 404, "{elsewhere:?}");
    assert_says(&elsewhere.body, &["\"error\"", "/api/v1/LIST"]);
}

#[test]
fn a_page_follows_what_happens() {
    let (node, address) = with_page();
    let browser = Browser::new(&node, address);
    let host = address.to_string();
    let request = "GET /events?view=%2Fjobs";
    let mut events = send(address, request, &browser.headers(&host));
    let mut seen = String::new();
    read_until(&mut events, &mut seen, "There are no such jobs");
    assert_says(&seen, &["text/event-stream", "event: main"]);
    detached(&node, "add(1, 2)", "follow-me");
    read_until(&mut events, &mut seen, "follow-me");
    // Who stays connected does not keep the node from stopping.
    node.wasmrun(["node", "stop"]).ok();
}

/// Reads on until this comes.
fn read_until(stream: &mut TcpStream, seen: &mut String, text: &str) {
    let mut bytes = [0; 4096];
    while !seen.contains(text) {
        let count = match stream.read(&mut bytes) {
            // A process that another test has started has ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.expect("it comes in time"),
        };
        assert_ne!(count, 0, "it has ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn other_machines_are_served_only_with_a_certificate() {
    let node = Node::new();
    let open = "--dashboard=0.0.0.0:0";
    let state = node.dir.path().join("state");
    let head = node.wasmrun(["node", "start", open, "--head", "--state-dir"]);
    head.arg(&state)
        .fails_saying(2, &["0.0.0.0:0", "--dashboard-cert"]);
    assert!(!state.exists(), "the node has not been started before");
    let cert = ["node", "start", open, "--dashboard-cert", "/nowhere.pem"];
    let said = node.wasmrun(cert).args(["--dashboard-key", "/nowhere.pem"]);
    said.fails_saying(2, &["/nowhere.pem cannot be used"]);
    let (_node, address) = with_page();
    let taken = format!("--dashboard={address}");
    node.wasmrun(["node", "start", &taken])
        .fails_saying(2, &["cannot be served at", "name a free address"]);
}

#[test]
fn a_node_without_a_page_says_how_to_have_one() {
    let node = Node::start();
    node.wasmrun(["dashboard"])
        .fails_saying(2, &["--dashboard"]);
}
