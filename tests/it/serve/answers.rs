//! What handlers get, and what clients get of them.

use serde_json::{Value as Json, json};
use wasmrun_tests::{Stream, assert_says, scratch};

use super::{Connection, Service, address, curl, serve};
use crate::node::Node;

#[test]
fn a_module_answers() {
    let mut service = Service::web(&["--name", "shop"]);
    let first = format!("serving shop at http://{}\n", service.address);
    assert_eq!(service.running.written(Stream::Out), first);
    let answer = service.get("/hello");
    assert_eq!((answer.status, &*answer.body), (200, "hello\n"));
    assert!(answer.is_whole, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(service.get("/nowhere").status, 404);
    let mut seen = service.open();
    seen.begin("DELETE /headers?a=b%20c", "X-Two: 1\r\nX-Two: 2\r\n");
    let seen = seen.read_until("x-two: 2\n");
    assert_says(
        &seen,
        &[
            "method Method::Delete\n",
            "path Some(\"/headers?a=b%20c\")\n",
            "authority Some(\"localhost\")\n",
            "scheme Some(Scheme::Http)\n",
            "x-two: 1\n",
        ],
    );
    service.wait_for("DELETE /headers?a=b%20c 200 ");
}

#[test]
fn trailers_are_a_part_of_an_answer_and_an_interim_status_is_none() {
    let mut service = Service::web(&[]);
    service.get("/interim").problem(502);
    let answer = service.get("/trailers");
    assert_eq!((&*answer.body, answer.is_whole), ("text\n", true));
    service.is_well();
    service.wait_for("GET /interim 502 ");
    service.wait_for("GET /trailers 200 5 ");
    service.wait_for("GET /hello 200 6 ");
    let said = service.running.written(Stream::Out);
    assert!(!said.contains("cut off"), "{said}");
}

#[test]
fn several_requests_of_one_connection_are_answered_in_order() {
    let service = Service::web(&[]);
    let mut connection = service.open();
    // The second comes before the first is answered.
    connection.begin("GET /sleep?ms=1", "");
    connection.begin("GET /sized", "");
    connection.read_until("slept\n");
    connection.read_until("of a length\n");
    connection.begin("GET /nothing", "");
    let head = connection.read_until("\r\n\r\n");
    assert_says(&head, &["HTTP/1.1 204 "]);
    let last = connection.ask("GET /hello", "");
    assert_eq!((last.status, &*last.body), (200, "hello\n"));
}

#[test]
fn bodies_are_streams_both_ways() {
    let service = Service::web(&[]);
    let mut client = Connection::slow(service.address);
    // What came back until now came before the client's body had its end.
    client.piece("second");
    client.read_until("second");
    client.last_piece();
    client.read_until("0\r\n\r\n");
    let mut ticks = service.open();
    ticks.begin("GET /ticks?n=1000000", "");
    for line in ["0\n", "1\n", "2\n"] {
        ticks.read_until(line);
    }
}

#[test]
fn a_large_body_needs_little_memory() {
    let service = Service::web(&[]);
    let dir = scratch();
    let (file, back) = (dir.path().join("body"), dir.path().join("back"));
    let block: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    let bytes = block.repeat(64);
    std::fs::write(&file, &bytes).expect("there is room");
    service.is_well();
    let before = peak_mib(&service);
    let url = format!("http://{}/echo", service.address);
    let (file, back_to) = (file.display().to_string(), back.display().to_string());
    // It says `Expect: 100-continue` by itself.
    let (said, code) = curl(["--upload-file", &file, "--output", &back_to, &url]);
    assert_eq!(code, Some(0), "{said}");
    assert!(std::fs::read(&back).expect("it is there") == bytes);
    let more = peak_mib(&service) - before;
    assert!(more < 32, "a body of 64 MiB took {more} MiB");
}

/// The most memory that the process has had, in MiB.
fn peak_mib(service: &Service) -> u64 {
    let process = service.running.process().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("it has one").parse::<u64>().expect("a number") >> 10
}

#[test]
fn a_client_is_told_when_its_body_is_wanted() {
    let service = Service::web(&[]);
    let mut client = service.open();
    client.begin(
        "POST /echo",
        "Expect: 100-continue\r\nContent-Length: 4\r\n",
    );
    // The handler asks for the body and answers at once: whichever of both was first is said.
    let told = client.read_until("\r\n\r\n");
    let is_told = ["HTTP/1.1 100 ", "HTTP/1.1 200 "].map(|it| told.starts_with(it));
    assert!(is_told.contains(&true), "{told}");
    client.send("body");
    client.read_until("body");
    let unwanted = service.open().ask(
        "POST /hello",
        "Expect: 100-continue\r\nContent-Length: 4\r\n",
    );
    assert_eq!((unwanted.status, &*unwanted.body), (200, "hello\n"));
}

#[test]
fn no_handler_is_cancelled_for_a_body_that_its_client_does_not_get() {
    let node = Node::start();
    let service = Service::of_node(&node, &[]);
    let mut client = service.open();
    for path in ["/hello", "/count?n=1000000", "/sized"] {
        client.begin(&format!("HEAD {path}"), "");
        assert_says(&client.read_until("\r\n\r\n"), &["HTTP/1.1 200 "]);
    }
    client.begin("GET /nothing", "");
    assert_says(&client.read_until("\r\n\r\n"), &["HTTP/1.1 204 "]);
    client.begin("GET /sized", "");
    let sized = client.read_until("of a length\n");
    assert_says(&sized, &["content-length: 12\r\n"]);
    // In HTTP/2 there is no body either.
    let url = format!("http://{}/sized", service.address);
    let format = "%{http_version} %{http_code} %{size_download}";
    let http_2 = ["--http2-prior-knowledge", "--head", "--output", "/dev/null"];
    let (printed, _) = curl(http_2.into_iter().chain(["--write-out", format, &url]));
    assert_eq!(printed, "2 200 0");
    // That none was cut short is said of each, when all have ended.
    node.wait_for("finished", 6);
    assert_eq!(node.count("cancelled") + node.count("failed"), 0);
}

#[test]
fn grants_reach_handlers_and_prints_do_not_reach_clients() {
    let mut service = Service::web(&["--env", "GREETING=hello there"]);
    let granted = service.get("/env?name=GREETING");
    assert_eq!((granted.status, &*granted.body), (200, "hello there\n"));
    assert_eq!(service.get("/env?name=HOME").status, 404);
    assert_eq!(service.get("/log").body, "logged\n");
    let running = &mut service.running;
    running.wait_for(Stream::Err, "to standard output");
    running.wait_for(Stream::Err, "to standard error");
    assert!(!running.written(Stream::Out).contains("to standard"));
}

#[test]
fn a_trace_goes_on_in_the_handler() {
    let service = Service::web(&[]);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let span = "b7ad6b7169203331";
    let header = format!("traceparent: 00-{trace}-{span}-01\r\n");
    let seen = service.open().ask("GET /headers", &header);
    assert_says(&seen.body, &[&*header.replace('\r', "")]);
    let own = service.open().ask("GET /trace", &header).body;
    assert_says(&own, &["00-", trace, "-"]);
    assert!(
        !own.contains(span),
        "the attempt has a span of its own: {own}"
    );
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let mut service = Service::web(&[]);
    service.get("/hello?x=%0Aforged");
    service.get("/trap");
    service.wait_for("GET /hello?x=%0Aforged 200 6 ");
    service.wait_for("GET /trap 500 ");
    let mut service = Service::start(serve("web", &["-o", "json", "--name", "shop"]));
    let answer = service.get("/who");
    service.wait_for("/who");
    service
        .running
        .wait_until(Stream::Out, "two lines", |it| it.matches('\n').count() == 2);
    let said = service.running.written(Stream::Out);
    let lines: Vec<Json> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("each is JSON"))
        .collect();
    assert_eq!(lines[0]["version"], 1, "{said}");
    assert_eq!(lines[0]["name"], "shop", "{said}");
    assert_eq!(lines[0]["url"], format!("http://{}", service.address));
    let (line, bytes) = (&lines[1], answer.body.len());
    let said_of_it = json!([
        line["method"],
        line["target"],
        line["status"],
        line["bytes"]
    ]);
    assert_eq!(said_of_it, json!(["GET", "/who", 200, bytes]));
    let task = lines[1]["task"].as_str().expect("it has one");
    assert!(answer.body.starts_with(task), "{answer:?}: {said}");
    let quiet = Service::web(&["--quiet"]);
    quiet.is_well();
    let ended = quiet.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let said = ended.stdout_text();
    assert!(
        !said.contains("/hello") && address(&said).port() != 0,
        "{said}"
    );
}
