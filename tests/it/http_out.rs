//! HTTP requests that guests send: to servers that are granted, and to no others. The servers are the tests'.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

/// A request as it came.
struct Asked {
    /// `GET /path?query`.
    line: String,
    /// The headers, a line each, names in lower case.
    head: String,
    body: Vec<u8>,
}

impl Asked {
    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head: Vec<u8> = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            from.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).map_err(io::Error::other)?;
        let (line, head) = head.split_once("\r\n").expect("it has an end");
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |it| it.parse::<usize>().expect("it is a number"));
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        let line = line.strip_suffix(" HTTP/1.1").expect("of this version");
        Ok(Self {
            line: line.to_owned(),
            head,
            body,
        })
    }
}

/// A server on loopback, for as long as the test runs. What it answers with are bytes as they are sent.
struct Server {
    scheme: &'static str,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer)
    }

    /// One that answers everything with 200 and its line.
    fn plain() -> Self {
        Self::start(|asked| ok(asked.line.as_bytes()))
    }

    fn start_with(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let server = Self {
            scheme: if tls.is_some() { "https" } else { "http" },
            address: listener.local_addr().expect("it has one"),
            asked: Arc::default(),
        };
        let (asked, answer) = (server.asked.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("somebody connects");
                let (asked, answer) = (asked.clone(), answer.clone());
                let tls = tls.clone().map(|it| ServerConnection::new(it).unwrap());
                // An error is a client that has gone.
                thread::spawn(move || match tls {
                    None => serve(stream, &asked, &*answer),
                    Some(tls) => serve(StreamOwned::new(tls, stream), &asked, &*answer),
                });
            }
        });
        server
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// The same at the name `localhost`.
    fn url_by_name(&self) -> String {
        format!("{}://localhost:{}/", self.scheme, self.address.port())
    }

    /// The lines of all requests that have come.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: impl Read + Write,
    seen: &Mutex<Vec<String>>,
    answer: &dyn Fn(&Asked) -> Vec<u8>,
) -> io::Result<()> {
    let asked = Asked::read(&mut stream)?;
    seen.lock().unwrap().push(asked.line.clone());
    stream.write_all(&answer(&asked))?;
    stream.flush()
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// A call of the guest that sends, with these servers granted.
fn call(call: &str, granted: &[&str]) -> Wasmrun {
    let grants = granted.iter().flat_map(|it| ["--http", it]);
    Wasmrun::submit("web").args(grants).args(["--invoke", call])
}

fn fetch(url: &str, granted: &[&str]) -> Wasmrun {
    call(&format!("fetch(\"GET\", \"{url}\", [])"), granted)
}

/// What a function returned that did not fail.
#[track_caller]
fn returned(run: Wasmrun) -> Json {
    run.json(0)["result"]["ok"].clone()
}

/// What standard error says of a call that was answered with this error of WASI.
#[track_caller]
fn refused(run: Wasmrun, error: &str) -> String {
    let said = run.fails(5);
    let error = format!(": the function returned an error: \"{error}");
    assert_says(&said, &[&error]);
    said
}

#[test]
fn a_server_that_is_granted_is_reached() {
    let server = Server::start(|asked| match &asked.line[..] {
        "POST /echo" => ok(&asked.body),
        "GET /kind" => {
            b"HTTP/1.1 204 Nothing\r\nkind: of tests\r\nconnection: close\r\n\r\n".to_vec()
        }
        _ => ok(asked.head.as_bytes()),
    });
    let address = server.address.to_string();
    let post = format!("fetch(\"POST\", \"{}\", [1, 2, 255])", server.url("/echo"));
    let echoed = returned(call(&post, &[&address]));
    assert_eq!(echoed, json!([200, [1, 2, 255]]));
    let seen = returned(fetch(&server.url("/a/b?c=d"), &["example.com", &address]));
    let bytes: Vec<u8> = serde_json::from_value(seen[1].clone()).unwrap();
    let head = String::from_utf8(bytes).unwrap();
    assert_says(&head, &[&format!("host: {address}\r\n")]);
    assert_eq!(server.asked(), ["POST /echo", "GET /a/b?c=d"]);
    let headers = format!("headers(\"{}\")", server.url("/kind"));
    let headers = returned(call(&headers, &[&address]));
    let headers = headers.as_array().expect("a list");
    assert!(
        headers.contains(&json!(["kind", "of tests"])),
        "{headers:?}"
    );
}

#[test]
fn a_large_body_goes_in_pieces() {
    let server = Server::start(|asked| ok(asked.body.len().to_string().as_bytes()));
    let upload = format!("upload(\"{}\", 300000)", server.url("/"));
    let counted = returned(call(&upload, &[&server.address.to_string()]));
    assert_eq!(counted, json!([200, b"300000"]));
}

#[test]
fn no_requests_by_default() {
    let server = Server::plain();
    let (url, address) = (server.url("/"), server.address);
    let line = format!(
        "wasmrun: a request to {address} was refused: it was not granted; grant it with --http {address}\n"
    );
    // Not by sockets either, at another port, or as one of all names: it has none.
    let all_names = format!("*:{}", address.port());
    let grants: [&[&str]; 4] = [&[], &["127.0.0.1"], &["127.0.0.1:1"], &["*", &all_names]];
    for granted in grants {
        let run = fetch(&url, granted).arg("--net");
        let said = refused(run, "HttpRequestDenied\"");
        assert_says(&said, &[&line]);
    }
    assert_eq!(server.asked(), [""; 0]);
    // Who asks without end is told of ten.
    let said = call(&format!("fetch-many(\"{url}\", 100)"), &[]).fails(5);
    let lines = said.matches(" was refused: ").count();
    assert!((1..=10).contains(&lines), "{said}");
}

#[test]
fn a_module_that_could_send_runs_without_a_grant() {
    let run = call("fetch-many(\"http://example.com/\", 0)", &[]);
    assert_eq!(run.ok(), "ok([])\n");
}

#[test]
fn the_log_of_a_task_says_what_to_grant() {
    let (node, server) = (Node::start(), Server::plain());
    let run = |granted: &[&str]| {
        let grants = granted.iter().flat_map(|it| ["--http", it]);
        let submit = node.wasmrun(["submit", "--detach"]).arg(guest("web"));
        let submit = submit.args(grants).arg("--invoke");
        let submitted = submit.arg(format!("fetch-many(\"{}\", 2)", server.url("/")));
        submitted.json(0)["job"].as_str().expect("an id").to_owned()
    };
    let job = run(&[]);
    node.wasmrun(["job", "wait", &job]).fails(5);
    let logged = node.wasmrun(["job", "logs", &job]).run();
    let hint = format!("grant it with --http {}\n", server.address);
    assert_says(&logged.stderr, &["was refused: it was not granted", &hint]);
    let job = run(&[&server.address.to_string()]);
    node.wasmrun(["job", "wait", &job]).ok();
    assert_eq!(server.asked(), ["GET /"; 2]);
}

#[test]
fn a_name_does_not_lead_to_this_machine() {
    let server = Server::plain();
    let (url, port) = (server.url_by_name(), server.address.port());
    let name = format!("localhost:{port}");
    for granted in [&name, &format!("*:{port}")] {
        let said = refused(fetch(&url, &[granted]), "DestinationIpProhibited\"");
        assert_says(
            &said,
            &[
                "wasmrun: a request to localhost was refused: it is at ",
                "which is not on the public internet",
                "grant it with --http ",
                &format!(":{port} besides\n"),
            ],
        );
    }
    // The address alone is none of a name.
    let address = server.address.to_string();
    refused(fetch(&url, &[&address]), "HttpRequestDenied\"");
    assert_eq!(server.asked(), [""; 0]);
    let answered = returned(fetch(&url, &[&name, &address]));
    assert_eq!(answered[0], 200);
    // A name without a port covers those of http and https.
    refused(fetch(&url, &["localhost", &address]), "HttpRequestDenied\"");
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_redirection_is_a_request_like_others() {
    let last = Server::plain();
    let to = last.url("/there");
    let first = Server::start(move |_| redirect(&to));
    let (first_at, last_at) = (first.address.to_string(), last.address.to_string());
    let follow = format!("follow(\"{}\")", first.url("/"));
    let said = refused(call(&follow, &[&first_at]), "HttpRequestDenied\"");
    assert_says(&said, &[&format!("grant it with --http {last_at}\n")]);
    assert_eq!((first.asked().len(), last.asked().len()), (1, 0));
    let followed = returned(call(&follow, &[&first_at, &last_at]));
    assert_eq!(followed[0], json!([first.url("/"), last.url("/there")]));
    assert_eq!(last.asked(), ["GET /there"]);
}

#[test]
fn servers_that_cannot_be_granted() {
    for (grant, why) in [
        ("https://example.com", "it is a URL"),
        ("example.com/path", "a name has letters"),
        ("example.com:http", "its port is no number"),
        ("example.com:0", "no server has port 0"),
        ("[127.0.0.1]:80", "what is in brackets is no IPv6 address"),
        ("0x7f.1", "it looks like an address, and is none"),
        ("*.*.example.com", "a name has letters"),
    ] {
        let given = format!("--http={grant}");
        let said = Wasmrun::call("noop()").arg(given).fails(2);
        let what = format!("'{grant}' is no HTTP server: {why}");
        let forms = "api.example.com, *.example.com:8443, 127.0.0.1:8080 or [::1]:8080";
        assert_says(&said, &["--http", &what, forms]);
    }
}

/// An authority, in a file, and a server's configuration for a name or address that it vouches for.
fn certified(name: &str, ca_file: &std::path::Path) -> Arc<ServerConfig> {
    let params = |names: &[&str], common_name: &str| {
        let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("they are names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params
    };
    let key = || KeyPair::generate().expect("a key can be made");
    let mut authority = params(&[], "an authority of tests");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (authority_key, server_key) = (key(), key());
    let root = authority.self_signed(&authority_key).expect("it is ours");
    std::fs::write(ca_file, root.pem()).expect("it can be written");
    let issuer = Issuer::new(authority, authority_key);
    let server = params(&[name], "a server of tests");
    let server = server.signed_by(&server_key, &issuer).expect("it is ours");
    let key = PrivateKeyDer::Pkcs8(server_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], key);
    Arc::new(config.expect("they belong together"))
}

#[test]
fn servers_prove_who_they_are() {
    let dir = scratch();
    let start = |name: &str, file: &str| {
        let config = certified(name, &dir.path().join(file));
        Server::start_with(Some(config), |asked| ok(asked.line.as_bytes()))
    };
    let get = |server: &Server, ca: &str| {
        let run = fetch(&server.url("/"), &[&server.address.to_string()]);
        run.env("SSL_CERT_FILE", dir.path().join(ca))
    };
    let server = start("127.0.0.1", "ca.pem");
    assert_eq!(returned(get(&server, "ca.pem"))[0], 200);
    // By the authorities of the machine, and by another's.
    let (url, address) = (server.url("/"), server.address.to_string());
    refused(fetch(&url, &[&address]), "TlsCertificateError\"");
    let elsewhere = start("example.com", "other.pem");
    refused(get(&server, "other.pem"), "TlsCertificateError\"");
    // A certificate for somebody else.
    refused(get(&elsewhere, "other.pem"), "TlsCertificateError\"");
    assert_eq!((server.asked().len(), elsewhere.asked().len()), (1, 0));
}

#[test]
fn a_server_that_does_not_answer_holds_nobody_for_ever() {
    let silent = Server::start(|_| {
        loop {
            thread::park();
        }
    });
    let (url, address) = (silent.url("/"), silent.address.to_string());
    let within = format!("fetch-within(\"{url}\", 100, 60000)");
    refused(call(&within, &[&address]), "HttpResponseTimeout\"");
    fetch(&url, &[&address])
        .args(["--time-limit", "300ms"])
        .fails_saying(6, &["time limit of 300ms reached"]);
}

#[test]
fn a_body_that_stops_is_an_error() {
    let begins = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nthe beginning";
    let cut = Server::start(move |_| begins.to_vec());
    let cut_at = cut.address.to_string();
    refused(fetch(&cut.url("/"), &[&cut_at]), "connection terminated");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stops = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        Asked::read(&mut stream).unwrap();
        stream.write_all(begins).unwrap();
        // Open until the guest has given up.
        stream
    });
    let within = format!("fetch-within(\"http://{address}/\", 60000, 100)");
    refused(call(&within, &[&address]), "connection read timeout");
    drop(stops.join().unwrap());
}

#[test]
fn heads_have_a_limit() {
    let server = Server::start(|asked| {
        let value = "x".repeat(match &asked.line[..] {
            "GET /large" => 64 << 10,
            _ => 256 << 10,
        });
        let head = format!("HTTP/1.1 200 OK\r\nlong: {value}\r\n");
        format!("{head}content-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
    });
    let address = server.address.to_string();
    let large = returned(fetch(&server.url("/large"), &[&address]));
    assert_eq!(large, json!([200, []]));
    let too_large = fetch(&server.url("/too-large"), &[&address]);
    refused(too_large, "HttpResponseHeaderSectionSize(Some(131072))\"");
}

#[test]
fn a_sandbox_has_only_so_many_headers_on_the_host() {
    assert_eq!(call("hoard(16000)", &[]).ok(), "16000\n");
    let said = call("hoard(17000)", &[]).fails(5);
    let what = "the guest trapped: it has 16384 handles, as many as a sandbox may; drop those";
    assert_says(&said, &[what]);
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let run = fetch(&format!("http://{address}/"), &[&address]);
    refused(run, "ConnectionRefused\"");
}

#[test]
fn a_sandbox_has_so_many_requests_under_way() {
    const MOST: usize = 100;
    /// How many are being answered, and the most that were.
    #[derive(Default)]
    struct Open(usize, usize);
    let open = Arc::<(Mutex<Open>, Condvar)>::default();
    let seen = open.clone();
    let server = Server::start(move |_| {
        let (counts, has_changed) = &*open;
        let mut counts = counts.lock().unwrap();
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        has_changed.notify_all();
        // All that may be under way are, before any is answered.
        let mut counts = has_changed.wait_while(counts, |it| it.1 < MOST).unwrap();
        counts.0 -= 1;
        ok(b"")
    });
    let many = format!("fetch-many(\"{}\", 150)", server.url("/"));
    let statuses = returned(call(&many, &[&server.address.to_string()]));
    assert_eq!(statuses, json!(vec![200; 150]));
    assert_eq!(seen.0.lock().unwrap().1, MOST);
}
