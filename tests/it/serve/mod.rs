//! HTTP services, as their clients see them: raw connections where each byte counts, curl and a browser where it is about
//! what people use.
//!
//! A handler is under way for as long as a test wants by [`Connection::slow`]: it sends back a body that the test has not ended.

mod answers;
mod clients;
mod ends;
mod everywhere;
mod limits;
mod p3;
mod page;
mod service;
mod typed;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Ended, Running, Stream, Wasmrun, guest};

use crate::node::Node;

/// How long a client waits for more: far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(100);
/// The same where a server would give up by itself later.
const SOON: Duration = Duration::from_secs(10);

/// `wasmrun serve` of a guest, with these options, at a port of its own.
fn serve(name: &str, options: &[&str]) -> Wasmrun {
    let serve = Wasmrun::new(["serve"]).arg(guest(name));
    serve.args(["--listen", "127.0.0.1:0"]).args(options)
}

/// A service in a command.
struct Service {
    running: Running,
    address: SocketAddr,
}

impl Service {
    /// The guest `web`, with these options.
    fn web(options: &[&str]) -> Self {
        Self::start(serve("web", options))
    }

    /// The same, in this node.
    fn of_node(node: &Node, options: &[&str]) -> Self {
        let serve = node.wasmrun(["serve"]).arg(guest("web"));
        Self::start(serve.args(["--listen", "127.0.0.1:0"]).args(options))
    }

    fn start(command: Wasmrun) -> Self {
        let mut running = command.start();
        running.wait_until(Stream::Out, "where it is", |it| it.contains('\n'));
        let address = address(&running.written(Stream::Out));
        Self { running, address }
    }

    fn open(&self) -> Connection {
        Connection::open(self.address)
    }

    /// The answer to one request, on a connection of its own.
    fn ask(&self, line: &str) -> Answer {
        self.open().ask(line, "")
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"))
    }

    /// Asserts that it answers.
    #[track_caller]
    fn is_well(&self) {
        let answer = self.get("/hello");
        assert_eq!((answer.status, &*answer.body), (200, "hello\n"));
    }

    /// Waits for a line of the access log, or of what comes before it.
    fn wait_for(&mut self, text: &str) {
        self.running.wait_for(Stream::Out, text);
    }

    /// Tells it to end, as Ctrl-C does.
    fn interrupt(&self) {
        self.running.signal(Signal::INT);
    }

    fn end(self) -> Ended {
        self.interrupt();
        self.running.end()
    }
}

/// The address in what a service says first.
fn address(said: &str) -> SocketAddr {
    let after = said.split_once("://").map(|(_, after)| after);
    let after = after.unwrap_or_else(|| panic!("it says where it is: {said}"));
    let end = after.find(|it: char| !(it.is_ascii_digit() || ".:".contains(it)));
    let address = &after[..end.unwrap_or(after.len())];
    address.parse().expect("it is an address")
}

/// A client's connection.
struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("it listens"))
    }

    fn of(stream: TcpStream) -> Self {
        let connection = Self {
            stream: BufReader::new(stream),
        };
        connection.waits_for(PATIENCE);
        connection
    }

    /// How long it waits for more.
    fn waits_for(&self, patience: Duration) {
        let set = self.stream.get_ref().set_read_timeout(Some(patience));
        set.expect("it is a time");
    }

    fn send(&mut self, text: &str) {
        let sent = self.stream.get_mut().write_all(text.as_bytes());
        sent.expect("it is taken");
    }

    /// Sends a head with these headers, a line each.
    fn begin(&mut self, line: &str, headers: &str) {
        self.send(&format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        ));
    }

    /// One piece of a chunked body.
    fn piece(&mut self, text: &str) {
        self.send(&format!("{:x}\r\n{text}\r\n", text.len()));
    }

    /// The last, empty piece.
    fn last_piece(&mut self) {
        self.send("0\r\n\r\n");
    }

    /// Begins a request whose handler goes on until [`Connection::last_piece`], and waits until it has begun.
    fn slow(address: SocketAddr) -> Self {
        let mut slow = Self::open(address);
        slow.begin("POST /echo", "Transfer-Encoding: chunked\r\n");
        slow.piece("begun");
        slow.read_until("begun");
        slow
    }

    /// Reads on up to this text: what came until then.
    #[track_caller]
    fn read_until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(text.as_bytes()) {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(1) => read.push(byte[0]),
                // A process that another test has started has ended.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                end => panic!("{end:?} after {:?}", String::from_utf8_lossy(&read)),
            }
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Sends the only request of this connection.
    #[track_caller]
    fn ask(mut self, line: &str, headers: &str) -> Answer {
        self.begin(line, &format!("Connection: close\r\n{headers}"));
        self.answer()
    }

    /// Reads the last answer of this connection.
    #[track_caller]
    fn answer(mut self) -> Answer {
        let head = self.read_until("\r\n\r\n");
        let rest = self.rest();
        Answer::new(head, &rest)
    }

    /// Everything up to the end, however that comes.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // An end without ceremony is one, too.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Whether the other side has closed it.
    fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => {
                error.kind() != ErrorKind::WouldBlock && error.kind() != ErrorKind::TimedOut
            }
        }
    }
}

/// What comes back.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    /// Whether all of the body came.
    is_whole: bool,
}

impl Answer {
    #[track_caller]
    fn new(head: String, rest: &[u8]) -> Self {
        let status = head.split(' ').nth(1).expect("there is a status");
        let mut answer = Self {
            status: status.parse().expect("it is a number"),
            head,
            body: String::new(),
            is_whole: true,
        };
        let (body, is_whole) = match answer.header("content-length") {
            Some(length) => (rest.to_vec(), rest.len().to_string() == length),
            None if answer.header("transfer-encoding").is_some() => unchunked(rest),
            None => (rest.to_vec(), true),
        };
        answer.body = String::from_utf8(body).expect("it is text");
        answer.is_whole = is_whole;
        answer
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = pairs.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The body of one that must have this status and be JSON.
    #[track_caller]
    fn json(&self, status: u16, kind: &str) -> Json {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some(kind), "{self:?}");
        serde_json::from_str(&self.body).expect("it is JSON")
    }

    /// The same of an error of the server's own.
    #[track_caller]
    fn problem(&self, status: u16) -> Json {
        let problem = self.json(status, "application/problem+json");
        assert_eq!(problem["status"], status, "{problem}");
        for text in ["title", "detail"] {
            assert!(problem[text].is_string(), "{problem}");
        }
        problem
    }
}

/// The pieces of a chunked body, and whether the last was among them.
fn unchunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n");
        let size = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        let size = size.and_then(|it| usize::from_str_radix(it, 16).ok());
        let (Some(end), Some(size)) = (end, size) else {
            return (body, false);
        };
        rest = &rest[end + 2..];
        match rest.get(..size) {
            _ if size == 0 => return (body, true),
            Some(piece) => body.extend(piece),
            None => {
                body.extend(rest);
                return (body, false);
            }
        }
        rest = rest.get(size + 2..).unwrap_or_default();
    }
}

/// What curl prints, and its exit code.
fn curl<'a>(args: impl IntoIterator<Item = &'a str>) -> (String, Option<i32>) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*"]);
    curl.args(["--max-time", &PATIENCE.as_secs().to_string()]);
    let ended = curl.args(args).output().expect("there is curl");
    let printed = [&ended.stdout[..], &ended.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    (printed, ended.status.code())
}
