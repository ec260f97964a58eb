//! Answers to requests: paths for what tests want of a server, good and bad.

use std::hint::black_box;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    Fields, IncomingBody, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};
use wasip2::io::streams::{OutputStream, StreamError};
use wasmrun_guest::context;

/// What `/version` answers. A test that needs a second version of this module replaces the digit in its bytes.
const VERSION: &str = "version 1 of web";
/// How much of a body is written at a time.
const PIECE_BYTES: usize = 64 << 10;
/// How long `/ticks` pauses before each line.
const PAUSE: Duration = Duration::from_millis(50);
/// What `/page` answers: a page that reads the beginning of `/ticks` while that goes on, and then asks for a path that has
/// what it has read.
const PAGE: &str = r#"<!doctype html><title>ticks</title><script type="module">
const response = await fetch("/ticks?n=1000000");
let lines = "";
for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
  lines += piece;
  if (lines.split("\n").length > 3) break;
}
await fetch("/hello?read=" + lines.split("\n").slice(0, 3));
</script>
"#;

/// What answers.
pub struct Server;

impl Guest for Server {
    fn handle(request: IncomingRequest, response: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let number = |name| parameter(query, name).parse::<u64>().unwrap_or(0);
        match path {
            "/hello" => say(response, 200, "hello\n"),
            "/echo" => echo(request, response),
            "/headers" => say(response, 200, &described(&request)),
            "/trace" => {
                let parent = context::trace_parent().unwrap_or_default();
                say(response, 200, &format!("{parent}\n"));
            }
            "/sized" => sized(response),
            "/nothing" => {
                let (body, stream) = begin(response, 204, &[]);
                finish(body, stream);
            }
            "/interim" => {
                let (body, stream) = begin(response, 103, &[]);
                finish(body, stream);
            }
            "/trailers" => trailers(response),
            "/short" => {
                let (body, mut stream) = begin(response, 200, &[("content-length", "12")]);
                write(&mut stream, b"short\n");
                drop(stream);
                std::mem::forget(body);
            }
            "/page" => {
                let html = [("content-type", "text/html")];
                let (body, mut stream) = begin(response, 200, &html);
                write(&mut stream, PAGE.as_bytes());
                finish(body, stream);
            }
            "/count" => count(response, number("n")),
            "/ticks" => ticks(response, number("n")),
            "/trap" => panic!("asked to, before the answer"),
            "/late-trap" => {
                let (_body, mut stream) = begin(response, 200, &[]);
                write(&mut stream, b"the beginning\n");
                panic!("asked to, in the middle of the answer");
            }
            "/never" => drop(response),
            "/twice" => twice(response),
            "/hang" => loop {
                black_box(());
            },
            "/grow" => loop {
                std::mem::forget(black_box(vec![1_u8; 1 << 20]));
            },
            "/sleep" => {
                thread::sleep(Duration::from_millis(number("ms")));
                say(response, 200, "slept\n");
            }
            "/goes-on" => {
                say(response, 200, "answered\n");
                thread::sleep(Duration::from_millis(number("ms")));
            }
            "/env" => match std::env::var(parameter(query, "name")) {
                Ok(value) => say(response, 200, &format!("{value}\n")),
                Err(_) => say(response, 404, "not set\n"),
            },
            "/log" => {
                println!("to standard output");
                eprintln!("to standard error");
                say(response, 200, "logged\n");
            }
            "/who" => {
                let who = format!("{} {}\n", context::task_id(), context::node());
                say(response, 200, &who);
            }
            "/version" => say(response, 200, &format!("{}\n", black_box(VERSION))),
            _ => say(response, 404, "there is no such path\n"),
        }
    }
}

/// Two answers to one request.
fn twice(response: ResponseOutparam) {
    let given = response.handle();
    let (_body, mut stream) = begin(response, 200, &[]);
    write(&mut stream, b"the first\n");
    // SAFETY: it is a number. The host sees that it stands for nothing any more.
    let again = unsafe { ResponseOutparam::from_handle(given) };
    ResponseOutparam::set(again, Ok(OutgoingResponse::new(Fields::new())));
}

/// The value of a query's parameter, as it stands there.
fn parameter<'a>(query: &'a str, name: &str) -> &'a str {
    let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
    pairs
        .find(|(own, _)| *own == name)
        .map_or("", |(_, value)| value)
}

/// The request but for its body, a line for each part.
fn described(request: &IncomingRequest) -> String {
    let mut text = format!(
        "method {:?}\npath {:?}\nauthority {:?}\nscheme {:?}\n",
        request.method(),
        request.path_with_query(),
        request.authority(),
        request.scheme()
    );
    for (name, value) in request.headers().entries() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(&value));
    }
    text
}

/// The request's body, as it comes.
fn echo(request: IncomingRequest, response: ResponseOutparam) {
    let incoming = request.consume().expect("nobody has taken it yet");
    let from = incoming.stream().expect("nobody has taken it yet");
    let (body, mut to) = begin(response, 200, &[]);
    loop {
        match from.blocking_read(PIECE_BYTES as u64) {
            Ok(piece) => write(&mut to, &piece),
            Err(StreamError::Closed) => break,
            Err(error) => panic!("the request's body broke off: {error:?}"),
        }
    }
    drop(from);
    IncomingBody::finish(incoming);
    finish(body, to);
}

/// A body of that many bytes.
fn count(response: ResponseOutparam, bytes: u64) {
    let (body, mut stream) = begin(response, 200, &[]);
    let piece = [b'.'; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let next = left.min(PIECE_BYTES as u64);
        write(&mut stream, &piece[..next as usize]);
        left -= next;
    }
    finish(body, stream);
}

/// That many lines, each when it is due.
fn ticks(response: ResponseOutparam, lines: u64) {
    let (body, mut stream) = begin(response, 200, &[]);
    for line in 0..lines {
        thread::sleep(PAUSE);
        write(&mut stream, format!("{line}\n").as_bytes());
    }
    finish(body, stream);
}

/// A body whose length the head says.
fn sized(response: ResponseOutparam) {
    let text = b"of a length\n";
    let length = text.len().to_string();
    let (body, mut stream) = begin(response, 200, &[("content-length", &length)]);
    write(&mut stream, text);
    finish(body, stream);
}

/// A body with a header behind it.
fn trailers(response: ResponseOutparam) {
    let (body, mut stream) = begin(response, 200, &[]);
    write(&mut stream, b"text\n");
    drop(stream);
    let trailers = Fields::new();
    let set = trailers.set("x-behind", &[b"1".to_vec()]);
    set.expect("it is a header");
    OutgoingBody::finish(body, Some(trailers)).expect("it is a whole body");
}

fn say(response: ResponseOutparam, status: u16, text: &str) {
    let (body, mut stream) = begin(response, status, &[]);
    write(&mut stream, text.as_bytes());
    finish(body, stream);
}

/// The head of an answer, with these headers. What is written goes out from then on.
fn begin(
    response: ResponseOutparam,
    status: u16,
    with: &[(&str, &str)],
) -> (OutgoingBody, OutputStream) {
    let headers = Fields::new();
    for (name, value) in [&[("content-type", "text/plain")], with].concat() {
        let set = headers.set(name, &[value.as_bytes().to_vec()]);
        set.expect("it is a header");
    }
    let outgoing = OutgoingResponse::new(headers);
    outgoing.set_status_code(status).expect("it is a status");
    let body = outgoing.body().expect("nobody has taken it yet");
    ResponseOutparam::set(response, Ok(outgoing));
    let stream = body.write().expect("nobody has taken it yet");
    (body, stream)
}

/// Writes a piece and waits until it has gone.
fn write(stream: &mut OutputStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("somebody reads it");
    stream.blocking_flush().expect("somebody reads it");
}

fn finish(body: OutgoingBody, stream: OutputStream) {
    drop(stream);
    OutgoingBody::finish(body, None).expect("it is a whole body");
}
