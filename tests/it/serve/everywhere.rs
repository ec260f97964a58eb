//! Services that every node of a cluster serves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use super::clients::certificate;
use super::service::second_version;
use super::{Answer, Connection, address, curl};
use crate::cluster::Member;
use crate::faults::eventually;

/// The port of all services here: each node has an address of its own.
const PORT: u16 = 8080;

/// An address of this machine that no other node has.
fn own_ip() -> IpAddr {
    static GIVEN: AtomicU8 = AtomicU8::new(1);
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, number, high, low).into()
}

/// A node with an address of its own.
pub(super) struct Host {
    pub(super) member: Member,
    listen: String,
    pub(super) at: SocketAddr,
}

impl Host {
    pub(super) fn new(name: &'static str) -> Self {
        let ip = own_ip();
        Self {
            member: Member::new(name),
            // The same when it comes back.
            listen: format!("{ip}:7471"),
            at: SocketAddr::new(ip, PORT),
        }
    }

    fn start(&mut self, part: &[&str]) {
        let options = [part, &["--listen", &self.listen]].concat();
        self.member.start(&options);
    }

    fn get(&self, path: &str) -> Answer {
        Connection::open(self.at).ask(&format!("GET {path}"), "")
    }

    fn version(&self) -> String {
        self.get("/version").body
    }

    fn listens(&self) -> bool {
        TcpStream::connect(self.at).is_ok()
    }

    /// The command that has all nodes serve a module as `shop`.
    fn serve(&self, module: &Path) -> Wasmrun {
        let serve = self
            .member
            .command(&["serve", "--name", "shop", "--detach"]);
        serve.args(["--listen", ":8080"]).arg(module)
    }

    fn services(&self) -> Vec<Json> {
        let listed = self.member.command(&["service", "list"]).json(0);
        listed["services"].as_array().expect("a list").clone()
    }

    /// What it says of its own service.
    fn own_row(&self) -> Json {
        let name = self.member.name();
        let rows = self.services();
        let own = rows.into_iter().find(|row| row["node"] == name);
        own.expect("it serves")
    }

    /// Waits until it knows what the others have.
    fn waits_for_views(&self) {
        for name in ["a", "b", "c"] {
            while self.member.wait_for(name, "alive")["available"]["CPU"].is_null() {}
        }
    }

    /// Waits until the services are in these states, by the names of their nodes.
    #[track_caller]
    fn wait_for(&self, states: &[(&str, &str)]) {
        eventually("the services are so", || {
            let rows = self.services();
            let own = rows
                .iter()
                .map(|row| (row["node"].as_str(), row["state"].as_str()));
            let wanted = states
                .iter()
                .map(|(node, state)| (Some(*node), Some(*state)));
            match own.eq(wanted) {
                true => Ok(()),
                false => Err(json!(rows)),
            }
        });
    }
}

/// What a client of this node gets that trusts these certificates alone, and curl's exit code.
fn https(at: SocketAddr, trusted: &str, path: &str) -> (String, Option<i32>) {
    let resolve = format!("localhost:{PORT}:{}", at.ip());
    let url = format!("https://localhost:{PORT}{path}");
    curl(["--cacert", trusted, "--resolve", &resolve, &url])
}

/// Three nodes that know each other.
fn three() -> [Host; 3] {
    let mut all = ["a", "b", "c"].map(Host::new);
    all[0].start(&["--head"]);
    let token = all[0].member.token(&["--many"]);
    for host in &mut all[1..] {
        host.start(&["--join", &token]);
    }
    for host in &all {
        for name in ["a", "b", "c"] {
            host.member.wait_for(name, "alive");
        }
    }
    all
}

#[test]
fn a_service_is_at_every_node_and_outlives_the_one_where_it_was_started() {
    let [a, mut b, c] = three();
    assert_eq!(address(&b.serve(&guest("web")).ok()), b.at);
    for host in [&a, &b, &c] {
        assert_eq!(host.version(), "version 1 of web\n");
    }
    let rows = c.services();
    assert_eq!(rows.len(), 3, "{rows:?}");
    for row in &rows {
        assert_eq!(row["state"], "listening", "{row}");
        assert_eq!(
            (&row["requests"], &row["all_requests"]),
            (&json!(1), &json!(3)),
            "{row}"
        );
    }
    b.member.kill();
    for host in [&a, &c] {
        assert_eq!(host.version(), "version 1 of web\n");
    }
    // One that joins later serves, too.
    let mut d = Host::new("d");
    let token = a.member.token(&[]);
    d.start(&["--join", &token]);
    a.member.wait_for("b", "dead");
    c.wait_for(&[("a", "listening"), ("c", "listening"), ("d", "listening")]);
    assert_eq!(d.version(), "version 1 of web\n");
    // Each ends it for all, and what is under way ends well.
    let mut slow = Connection::slow(a.at);
    let stop = c.member.command(&["service", "stop", "shop"]).start();
    while [&a, &c, &d].iter().any(|host| host.listens()) {}
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
    let ended = stop.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(d.services(), Vec::<Json>::new());
    a.member
        .command(&["service", "stop", "shop"])
        .fails_saying(2, &["no service 'shop'"]);
}

#[test]
fn a_service_is_there_again_when_all_nodes_were_stopped() {
    let [mut a, mut b, mut c] = three();
    a.serve(&guest("web")).ok();
    for host in [&mut b, &mut c, &mut a] {
        host.member.stop();
    }
    a.start(&["--head"]);
    for host in [&mut b, &mut c] {
        host.start(&["--join"]);
    }
    b.wait_for(&[("a", "listening"), ("b", "listening"), ("c", "listening")]);
    for host in [&a, &b, &c] {
        assert_eq!(host.version(), "version 1 of web\n");
    }
}

#[test]
fn a_service_is_replaced_at_all_nodes_without_a_failed_request() {
    let [a, b, c] = three();
    a.serve(&guest("web")).ok();
    let dir = scratch();
    let second = dir.path().join("second.wasm");
    std::fs::write(&second, second_version()).expect("there is room");
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = [a.at, b.at, c.at].map(|at| {
            scope.spawn(move || {
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let answer = Connection::open(at).ask("GET /version", "");
                    assert_eq!(answer.status, 200, "{answer:?}");
                    asked += 1;
                }
                asked
            })
        });
        let replaced = b.serve(&second).run();
        let versions = [&a, &b, &c].map(Host::version);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(replaced.code, Some(0), "{replaced}");
        assert!(!replaced.stderr.contains("warning"), "{replaced}");
        assert_eq!(versions, ["version 2 of web\n"; 3]);
        for asking in asking {
            assert!(asking.join().expect("no request fails") > 0);
        }
    });
    let rows = c.services();
    assert!(rows.iter().all(|row| row["generation"] == 2), "{rows:?}");
    let elsewhere = [
        "serve",
        "--name",
        "shop",
        "--detach",
        "--listen",
        "127.0.0.1:1",
    ];
    a.member
        .command(&elsewhere)
        .arg(&second)
        .fails_saying(2, &["listens at :8080", "stop it first"]);
}

/// The options of a certificate and its key.
fn tls<'a>(cert: &'a str, key: &'a str) -> [&'a str; 4] {
    ["--tls-cert", cert, "--tls-key", key]
}

/// Whether a file in a folder holds this text.
fn holds(folder: &Path, text: &str) -> bool {
    let mut grep = Command::new("grep");
    let grep = grep.args(["-rqaF", "-e", text]).arg(folder);
    let code = grep.status().expect("there is grep").code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    code == Some(0)
}

#[test]
fn a_service_with_tls_is_at_every_node_and_there_again_when_all_were_stopped() {
    let [mut a, mut b, mut c] = three();
    let dir = scratch();
    let (cert, key) = certificate(dir.path());
    // One file for both is common.
    let parts = [&key, &cert].map(|it| std::fs::read_to_string(it).expect("it is there"));
    let both = dir.path().join("both.pem").display().to_string();
    std::fs::write(&both, parts.concat()).expect("there is room");
    let served = b.serve(&guest("web"));
    let served = served.args(tls(&both, &both)).run();
    assert_eq!(served.code, Some(0), "{served}");
    let said = format!("serving shop at https://{}\n", b.at);
    assert_eq!(served.stdout_text(), said);
    assert!(!served.stderr.contains("warning"), "{served}");
    let version = ("version 1 of web\n".to_owned(), Some(0));
    for host in [&a, &b, &c] {
        assert_eq!(https(host.at, &cert, "/version"), version);
    }
    for row in a.services() {
        let url = row["url"].as_str().expect("it has one");
        assert!(url.starts_with("https://"), "{row}");
    }
    // The control store has the certificate as it is, and the key sealed.
    let second_line = |file: &str| {
        let pem = std::fs::read_to_string(file).expect("it is there");
        pem.lines().nth(2).expect("it has one").to_owned()
    };
    assert!(holds(&a.member.state(), &second_line(&cert)));
    assert!(!holds(&a.member.state(), &second_line(&key)));
    b.member.kill();
    for host in [&a, &c] {
        assert_eq!(https(host.at, &cert, "/version"), version);
    }
    for host in [&mut c, &mut a] {
        host.member.stop();
    }
    a.start(&["--head"]);
    for host in [&mut b, &mut c] {
        host.start(&["--join"]);
    }
    c.wait_for(&[("a", "listening"), ("b", "listening"), ("c", "listening")]);
    for host in [&a, &b, &c] {
        assert_eq!(https(host.at, &cert, "/version"), version);
    }
}

#[test]
fn a_certificate_is_renewed_at_all_nodes_without_a_failed_request() {
    let [a, b, c] = three();
    b.waits_for_views();
    let dirs = [scratch(), scratch()];
    let [(first, first_key), (next, next_key)] =
        [&dirs[0], &dirs[1]].map(|it| certificate(it.path()));
    let both = [&first, &next].map(|it| std::fs::read_to_string(it).expect("it is there"));
    let trusted = dirs[0].path().join("both.pem").display().to_string();
    std::fs::write(&trusted, both.concat()).expect("there is room");
    let second = dirs[1].path().join("second.wasm");
    std::fs::write(&second, second_version()).expect("there is room");
    a.serve(&guest("web")).args(tls(&first, &first_key)).ok();
    let is_over = &AtomicBool::new(false);
    let trusted = &*trusted;
    thread::scope(|scope| {
        let asking = [a.at, b.at, c.at].map(|at| {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let (printed, code) = https(at, trusted, "/version");
                    assert_eq!(code, Some(0), "{printed}");
                }
            })
        });
        let renewed = b.serve(&second).args(tls(&next, &next_key)).run();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(renewed.code, Some(0), "{renewed}");
        assert!(!renewed.stderr.contains("warning"), "{renewed}");
        for asking in asking {
            asking.join().expect("no request fails");
        }
    });
    let version = ("version 2 of web\n".to_owned(), Some(0));
    for host in [&a, &b, &c] {
        assert_eq!(https(host.at, &next, "/version"), version);
        // curl's code for a certificate that it does not trust.
        assert_eq!(https(host.at, &first, "/version").1, Some(60));
    }
    c.serve(&second)
        .args(tls(&next, &first_key))
        .fails_saying(2, &["it is not that of the certificate"]);
    c.serve(&second)
        .fails_saying(2, &["with TLS, which stays as it is"]);
    assert_eq!(https(c.at, &next, "/version"), version);
    // The scheme is the client's where another node answers, too.
    c.member.command(&["node", "drain", "b"]).ok();
    eventually("requests are answered elsewhere", || {
        let before = b.own_row()["requests"].clone();
        let (printed, code) = https(b.at, &next, "/headers");
        assert_eq!(code, Some(0), "{printed}");
        assert_says(&printed, &["scheme Some(Scheme::Https)\n"]);
        let after = b.own_row()["requests"].clone();
        match before == after {
            true => Ok(()),
            false => Err(after),
        }
    });
}

#[test]
fn a_node_whose_port_is_taken_says_so_and_tries_again() {
    let [a, b, c] = three();
    let taken = TcpListener::bind(b.at).expect("it is free");
    let ended = a.serve(&guest("web")).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(
        &ended.stderr,
        &[
            "not served everywhere: b:",
            "cannot listen at",
            "free address",
        ],
    );
    assert_eq!(a.version(), "version 1 of web\n");
    c.wait_for(&[("a", "listening"), ("b", "failed"), ("c", "listening")]);
    drop(taken);
    c.wait_for(&[("a", "listening"), ("b", "listening"), ("c", "listening")]);
    assert_eq!(b.version(), "version 1 of web\n");
}

#[test]
fn a_full_node_passes_requests_on_and_their_bodies_go_both_ways_as_they_come() {
    let [a, b, c] = three();
    a.waits_for_views();
    let serve = a.serve(&guest("web"));
    serve.args(["--concurrency", "1", "--queue", "1"]).ok();
    let running = |host: &Host| {
        let row = host.own_row();
        row["running"].as_u64().expect("a number")
    };
    // Each goes on until its client has sent all, and is begun: all come in at one node.
    let [one, mut other, third] = [(); 3].map(|()| Connection::slow(a.at));
    for host in [&a, &b, &c] {
        assert_eq!(running(host), 1);
    }
    other.piece("more");
    other.read_until("more");
    other.last_piece();
    other.read_until("0\r\n\r\n");
    let is_free = |host: &&Host| running(host) == 0;
    eventually("the other one has ended", || {
        match [&a, &b, &c].iter().filter(|it| is_free(it)).count() {
            1 => Ok(()),
            count => Err(count),
        }
    });
    // Whose clients go is cancelled where it runs.
    drop((one, third));
    eventually("all have ended", || {
        match [&a, &b, &c].iter().all(is_free) {
            true => Ok(()),
            false => Err("some run"),
        }
    });
    let rows = a.services();
    // Each is counted where it ran.
    assert!(rows.iter().all(|row| row["requests"] == 1), "{rows:?}");
}

#[test]
fn a_node_that_is_drained_passes_all_requests_on() {
    let [a, b, c] = three();
    b.waits_for_views();
    a.serve(&guest("web")).ok();
    let mut slow = Connection::slow(b.at);
    c.member.command(&["node", "drain", "b"]).ok();
    eventually("requests are answered elsewhere", || {
        let before = b.own_row()["requests"].clone();
        assert_eq!(b.version(), "version 1 of web\n");
        let after = b.own_row()["requests"].clone();
        match before == after {
            true => Ok(()),
            false => Err(after),
        }
    });
    slow.piece("on");
    slow.read_until("on");
    slow.last_piece();
    slow.read_until("0\r\n\r\n");
}

#[test]
fn a_path_leads_to_an_actor_at_whichever_node_it_is() {
    let [a, b, c] = three();
    let create = a.member.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "5", "--name", "total", "--strategy", "node:b"]);
    create.ok();
    let serve = a.serve(&guest("graph"));
    serve.args(["--route", "POST /add=actor:total.add"]).ok();
    let add = |host: &Host, body: &str| {
        let mut client = Connection::open(host.at);
        let length = body.len();
        let headers = format!(
            "Connection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
        );
        client.begin("POST /add", &headers);
        client.send(body);
        client.answer()
    };
    for (host, sum) in [(&a, 8), (&b, 11), (&c, 14)] {
        assert_eq!(add(host, "3").json(200, "application/json"), sum);
    }
    add(&c, "\"x\"").problem(400);
    a.member.command(&["actor", "kill", "total"]).ok();
    // Who has called it sees that it is gone, and then that nobody has its name.
    eventually("nobody has its name", || match add(&c, "3").status {
        404 => Ok(()),
        status => Err(status),
    });
    for (route, why) in [
        (
            "POST /x=actor:total",
            "must be the name of an actor and a method",
        ),
        (
            "POST /x=actor:total.nothing-such",
            "has a method 'nothing-such'",
        ),
    ] {
        let serve = a.member.command(&["serve", "--detach", "--route", route]);
        serve.arg(guest("graph")).fails_saying(2, &[why]);
    }
}

#[test]
fn what_no_node_can_serve_is_refused_and_what_only_one_can_is_served_there() {
    let [a, b, _c] = three();
    let nowhere = [
        "serve",
        "--name",
        "shop",
        "--detach",
        "--listen",
        "192.0.2.1:80",
    ];
    a.member
        .command(&nowhere)
        .arg(guest("web"))
        .fails_saying(2, &["cannot listen at 192.0.2.1:80"]);
    b.wait_for(&[]);
    let here = [
        "serve",
        "--name",
        "shop",
        "--detach",
        "--listen",
        "127.0.0.1:0",
    ];
    let ended = a.member.command(&here).arg(guest("web")).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(&ended.stderr, &["not served everywhere", "its port"]);
    b.wait_for(&[("a", "listening")]);
    a.member.command(&["service", "stop", "shop"]).ok();
    assert_eq!(b.services(), Vec::<Json>::new());
}
