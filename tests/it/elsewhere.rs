//! Clients of other machines: how they get a certificate, what they can do with it, and what they cannot.
//!
//! They run on this machine, and reach the node over the network all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value as Json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::Digest;
use wasmrun_model::wire::{self, Frame, Request, Response};
use wasmrun_net::{Authority, ClientId, Identity, Role, Session, Timing};
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest, scratch};

use crate::cluster::Member;

/// A cluster of one node.
pub(crate) struct Cluster {
    pub(crate) head: Member,
    pub(crate) address: String,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let (head, _) = Member::head("n1");
        let seen = head.wait_for("n1", "alive");
        let address = seen["address"].as_str().expect("it listens").to_owned();
        Self { head, address }
    }

    /// Who has logged in.
    pub(crate) fn client(&self) -> Client {
        let client = Client::new(&self.address);
        let token = self.head.token(&["--client"]);
        let said = client.command(&["login", &token]).ok();
        assert_says(&said, &["client ", " of cluster ", "for 90 days"]);
        client
    }

    /// Who is connected to the node, and what it holds.
    fn state(&self) -> Json {
        let status = self.head.command(&["status"]).json(0);
        let seen = self.head.wait_for("n1", "alive");
        serde_json::json!([status["sessions"], status["store"], seen["available"]])
    }

    /// Waits until the node has nothing of anybody else's any more. Each look is a command, which takes its time.
    fn is_again(&self, before: &Json) {
        while self.state() != *before {}
    }

    pub(crate) fn running(&self) -> usize {
        let args = ["list", "tasks", "-f", "state=running"];
        let listed = self.head.command(&args).json(0);
        listed["tasks"].as_array().expect("a list").len()
    }
}

/// Somebody elsewhere, with a folder for a certificate.
pub(crate) struct Client {
    dir: TempDir,
    address: String,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            dir: scratch(),
            address: address.to_owned(),
        }
    }

    fn identity(&self) -> PathBuf {
        self.dir.path().join("identity")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Wasmrun {
        let command = Wasmrun::new(args).env("WASMRUN_ADDRESS", &self.address);
        command.env("WASMRUN_IDENTITY", self.identity())
    }

    pub(crate) fn submit(&self, call: &str) -> Wasmrun {
        let submit = self.command(&["submit"]).arg(guest("graph"));
        submit.args(["--invoke", call])
    }

    /// A session of its own, as one who speaks by hand.
    async fn session(&self) -> Session {
        let identity = Identity::load(&self.identity()).expect("it has logged in");
        let address = self.address.parse().expect("an address");
        let opened = Session::open(&identity, address, &Timing::default()).await;
        opened.expect("a session")
    }
}

#[test]
fn tasks_and_their_output() {
    let cluster = Cluster::new();
    let client = cluster.client();
    assert_eq!(client.submit("add(1, 2)").ok(), "3\n");
    client
        .submit("crash()")
        .fails_saying(5, &["the guest trapped"]);
    let array = client.submit("add($i, 1)").args(["--array", "1-20"]).ok();
    assert_says(&array, &["[1] 2\n", "[20] 21\n"]);
    // Both ways as it is written.
    let cat = client.command(&["submit"]).arg(guest("prog"));
    let mut cat = cat.open_stdin().program(["cat"]).start();
    for line in ["one\n", "two\n"] {
        cat.write(line.as_bytes());
        cat.wait_for(Stream::Out, line);
    }
    let ended = cat.end();
    assert_eq!(ended.stdout_text(), "one\ntwo\n", "{ended}");
    // More than all windows and queues hold.
    let much = vec![b'x'; 24 << 20];
    let cat = client.command(&["submit"]).arg(guest("prog"));
    let cat = cat.stdin(much.clone()).program(["cat"]).run();
    assert!(cat.stdout == much, "{} bytes", cat.stdout.len());
}

#[test]
fn what_stays_is_found_again() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let id = client.submit("add(40, 2)").arg("--detach").ok();
    let id = id.trim();
    while client.command(&["get", id]).json(0)["state"] != "finished" {}
    assert_eq!(client.command(&["object", "get", id]).ok(), "42\n");
    let printing = client.command(&["submit", "--detach"]).arg(guest("prog"));
    let printing = printing.program(["args", "printed"]).ok();
    let printing = printing.trim();
    while client.command(&["get", printing]).json(0)["state"] != "finished" {}
    assert_eq!(client.command(&["logs", printing]).ok(), "printed\n");
    let spin = client.submit("spin()").arg("--detach").ok();
    let spin = spin.trim();
    while cluster.running() == 0 {}
    assert_says(
        &client.command(&["explain", spin]).ok(),
        &["has been running"],
    );
    client.command(&["cancel", spin]).ok();
    while client.command(&["get", spin]).json(0)["state"] != "cancelled" {}

    let create = client.command(&["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "10", "--name", "total"]).ok();
    let call = |call: &str| client.command(&["actor", "call", "total", call]);
    assert_eq!(call("add(5)").ok(), "15\n");
    // The machine's own user sees the same.
    let here = cluster.head.command(&["actor", "call", "total", "add(1)"]);
    assert_eq!(here.ok(), "16\n");
    client.command(&["actor", "kill", "total"]).ok();

    for what in ["tasks", "modules", "nodes", "tenants"] {
        client.command(&["list", what]).ok();
    }
}

#[test]
fn objects_come_in_pieces() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let path = |name: &str| client.dir.path().join(name);
    for size in [0, 65_537, 9_000_001_u32] {
        let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        fs::write(path("file"), &bytes).expect("there is room");
        let id = client.command(&["put"]).arg(path("file")).ok();
        let get = client.command(&["object", "get", id.trim(), "-O"]);
        get.arg(path("back")).ok();
        assert!(fs::read(path("back")).expect("written") == bytes, "{size}");
        // A node's own user reads the same object in place.
        let here = cluster.head.command(&["object", "get", id.trim()]).run();
        assert!(here.stdout == bytes, "{size}");
        client.command(&["object", "delete", id.trim()]).ok();
    }
    // A result that a client of the machine would map.
    let sum = client.submit("put-and-get(20000001)");
    assert_eq!(sum.ok(), "20000001\n");
}

#[test]
fn a_client_that_goes_takes_its_work_along() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.submit("add(1, 2)").ok();
    let before = cluster.state();
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let driver = client.submit("spin()").start();
        while cluster.running() == 0 {}
        driver.signal(signal);
        assert_eq!(driver.end().code, code);
        while cluster.running() > 0 {}
        cluster.is_again(&before);
    }
}

#[test]
fn a_client_hears_that_its_node_has_ended() {
    let mut cluster = Cluster::new();
    let client = cluster.client();
    // What has come to its end is told before the node is gone.
    let mut cat = client.command(&["submit"]).arg(guest("prog"));
    cat = cat.open_stdin().program(["cat"]);
    let mut cat = cat.start();
    cat.write(b"before\n");
    cat.wait_for(Stream::Out, "before\n");
    let stopping = cluster.head.command(&["node", "stop"]).start();
    cat.write(b"after\n");
    let cat = cat.end();
    assert_eq!(
        (cat.code, cat.stdout_text().as_str()),
        (Some(0), "before\nafter\n"),
        "{cat}"
    );
    assert_eq!(stopping.end().code, Some(0));
    assert_says(
        &client.command(&["status"]).fails(4),
        &["cannot connect to", "does not answer"],
    );

    cluster = Cluster::new();
    let client = cluster.client();
    let spin = client.submit("spin()").start();
    while cluster.running() == 0 {}
    cluster.head.command(&["node", "stop", "--now"]).ok();
    let ended = spin.end();
    assert_ne!(ended.code, Some(0), "{ended}");
}

#[test]
fn tokens_serve_whom_they_are_for() {
    let cluster = Cluster::new();
    let client = Client::new(&cluster.address);
    let login = |token: &str| client.command(&["login", token]);
    let tokens = |kind: &str| {
        let list = cluster.head.command(&["node", "token", "list"]).json(0);
        let tokens = list["tokens"].as_array().expect("a list").clone();
        let mut of_kind = tokens.into_iter().filter(|it| it["kind"] == kind);
        of_kind.next_back().expect("it is listed")
    };
    // Each for its own, and none is used up by the other.
    let for_nodes = cluster.head.token(&["--many"]);
    assert_says(
        &login(&for_nodes).fails(2),
        &["lets a node join", "--client"],
    );
    assert_eq!(tokens("node")["joined"], 0);
    let once = cluster.head.token(&["--client"]);
    let node = Member::new("n2");
    assert_says(
        &node.refused_with_env(&["--join"], ("WASMRUN_JOIN_TOKEN", &once)),
        &["is for a client", "wasmrun login"],
    );
    assert_eq!(tokens("client")["joined"], 0);
    assert!(!node.state().join("identity.pem").exists());

    login(&once).ok();
    let file = client.identity().join("identity.pem");
    let mode = fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_says(&login(&once).fails(4), &["used already"]);
    assert_eq!(
        client.submit("add(1, 2)").ok(),
        "3\n",
        "it keeps what it has"
    );
    let expired = cluster.head.token(&["--client", "--lifetime", "1ms"]);
    assert_says(&login(&expired).fails(4), &["has expired"]);
    let revoked = cluster.head.token(&["--client", "--many"]);
    let list = cluster.head.command(&["node", "token", "list"]).json(0);
    let row = list["tokens"].as_array().expect("a list").iter();
    let mut row = row.filter(|it| it["kind"] == "client" && it["many"] == true);
    let id = row.next().expect("it is listed")["id"].clone();
    let id = id.as_str().expect("an id");
    cluster.head.command(&["node", "token", "revoke", id]).ok();
    assert_says(&login(&revoked).fails(4), &["was revoked"]);
    login("wasmrun-join-1-abc").fails_saying(2, &["typing error"]);

    // One for many, where nobody sees it, and a further certificate for the same client.
    let many = cluster.head.token(&["--client", "--many"]);
    let named = |client: &Client| {
        let login = client.command(&["login"]).env("WASMRUN_JOIN_TOKEN", &many);
        login.json(0)["client"].clone()
    };
    let (one, other) = (Client::new(&cluster.address), Client::new(&cluster.address));
    let id = named(&one);
    assert_ne!(id, named(&other));
    assert_eq!(one.command(&["login", "--renew"]).json(0)["client"], id);
    assert_eq!(one.submit("add(1, 2)").ok(), "3\n");
    let nobody = Client::new(&cluster.address);
    assert_says(
        &nobody.command(&["login", "--renew"]).fails(2),
        &["to renew"],
    );
    assert_says(&nobody.command(&["login"]).fails(2), &["a token is needed"]);
}

#[test]
fn who_has_no_certificate_of_the_cluster_gets_nothing() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let nobody = Client::new(&cluster.address);
    let says = &["takes clients with a certificate", "wasmrun login TOKEN"];
    assert_says(&nobody.command(&["status"]).fails(4), says);
    // Another cluster's.
    let mut stranger = other.client();
    stranger.address.clone_from(&cluster.address);
    stranger
        .command(&["status"])
        .fails_saying(4, &["is not of the cluster that your certificate is for"]);
    let token = cluster.head.token(&["--client"]);
    stranger
        .command(&["login", &token])
        .fails_saying(2, &["a certificate of another cluster", "--identity"]);
    // A node's.
    let own = nobody
        .command(&["status"])
        .env("WASMRUN_IDENTITY", cluster.head.state());
    own.fails_saying(4, &["it is a node's"]);
    // One whose key others could have read.
    let client = cluster.client();
    let file = client.identity().join("identity.pem");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert_says(&client.command(&["status"]).fails(4), &["chmod 600"]);
}

#[test]
fn what_only_operators_and_the_machine_of_a_node_may_ask_for() {
    let cluster = Cluster::new();
    let client = cluster.client();
    let says_role = &["this needs the role operator"];
    for args in [&["stop"][..], &["stop", "--now"]] {
        let stop = client.command(&["node"]).args(args).fails(2);
        assert_says(&stop, says_role);
    }
    for args in [&["set", "red", "--weight", "9"][..], &["remove", "red"]] {
        let tenant = client.command(&["tenant"]).args(args).fails(2);
        assert_says(&tenant, says_role);
    }
    client.command(&["tenant", "list"]).ok();
    for args in [
        &["scheduling", "set", "policy=fifo"][..],
        &["node", "resource", "set", "tpu=1"],
        &["node", "drain", "n1"],
    ] {
        let refused = client.command(args).fails(2);
        assert_says(&refused, says_role);
    }
    client.command(&["scheduling"]).ok();
    for args in [
        &["create"][..],
        &["create", "--client"],
        &["list"],
        &["revoke", "ab"],
    ] {
        let token = client.command(&["node", "token"]).args(args).fails(2);
        assert_says(&token, says_role);
    }
    let program = || {
        client
            .command(&["submit", "--dir", "/tmp::/t"])
            .arg(guest("prog"))
    };
    let says = &["opens a directory of the node's machine"];
    assert_says(&program().program(["args"]).fails(2), says);
    assert_says(&program().arg("--detach").program(["args"]).fails(2), says);
    let actor = client.command(&["actor", "create", "--dir", "/tmp::/t"]);
    let actor = actor
        .arg(guest("graph"))
        .args(["counter", "1", "--name", "x"]);
    assert_says(&actor.fails(2), says);
    // The session goes on being of use, and the node as well.
    assert_eq!(client.submit("add(1, 2)").ok(), "3\n");
    // A node is not started at an address of the network.
    let start = client.command(&["node", "start"]).fails(2);
    assert_says(&start, &["use --address unix:PATH"]);
}

/// A frame with this payload.
fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short");
    [&length.to_le_bytes()[..], payload].concat()
}

#[test]
fn nonsense_in_a_session_hurts_nobody() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.submit("add(1, 2)").ok();
    let before = cluster.state();
    let runtime = Runtime::new().expect("threads");
    // As `wire::Hello` lays it out.
    let hello =
        |protocol: u8| frame(&[&b"wasmrun\0"[..], &[protocol, 1, b'x', 7], b"default"].concat());
    let giant = [&u32::MAX.to_le_bytes()[..], b"x"].concat();
    runtime.block_on(async {
        for nonsense in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            giant.clone(),
            frame(&[0xff; 100]),
            hello(99),
            [hello(4), frame(&[0xff; 100])].concat(),
            [hello(4), giant.clone()].concat(),
        ] {
            let mut session = client.session().await;
            let _ = session.writer.write_all(&nonsense).await;
            // It is closed by the node: after a few words at most.
            let mut words = Vec::new();
            let _ = session.reader.read_to_end(&mut words).await;
            assert!(words.len() < 4096, "{words:?}");
        }
        // Gone in the middle: of a greeting, of a frame, of a value that was announced.
        let put = frame(&[1, 6, 0, 0x80, 0x80, 0x80, 4, 0, 0]);
        for half in [
            hello(4)[..9].to_vec(),
            [hello(4), frame(&[0; 100])[..50].to_vec()].concat(),
            [hello(4), put].concat(),
        ] {
            let mut session = client.session().await;
            let _ = session.writer.write_all(&half).await;
            if half.len() > 20 {
                let mut welcome = [0; 4];
                let _ = session.reader.read_exact(&mut welcome).await;
            }
        }
    });
    // The last ones without a word, with their sockets.
    drop(runtime);
    cluster.is_again(&before);
    assert_eq!(client.submit("add(1, 2)").ok(), "3\n");
}

/// A session that says what it likes.
struct Raw(Session);

impl Raw {
    async fn open(client: &Client) -> Self {
        let mut raw = Self(client.session().await);
        let hello = wire::Hello {
            magic: wire::MAGIC,
            protocol: wire::PROTOCOL,
            version: "raw".into(),
            tenant: TenantName::default(),
            job: String::new(),
        };
        let hello = wire::encode(&hello).expect("it is short");
        raw.0.writer.write_all(&hello).await.expect("it is open");
        raw.frame().await.expect("a welcome");
        raw
    }

    async fn say(&mut self, id: u64, message: Request) {
        let frame = wire::encode(&Frame { id, message }).expect("it is short enough");
        self.0.writer.write_all(&frame).await.expect("it is open");
    }

    /// The next frame; none at the end.
    async fn frame(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; wire::HEADER_BYTES];
        self.0.reader.read_exact(&mut header).await.ok()?;
        let mut bytes = vec![0; wire::frame_len(header).expect("a length")];
        self.0.reader.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    }

    async fn hear(&mut self) -> Option<(u64, Response)> {
        let frame: Frame<Response> = wire::decode(&self.frame().await?).expect("a frame");
        Some((frame.id, frame.message))
    }
}

#[test]
fn a_session_outlives_its_certificate_and_is_refused_what_it_asks_for() {
    let cluster = Cluster::new();
    let client = Client::new(&cluster.address);
    let authority = Authority::load(&cluster.head.state()).expect("the head has it");
    let role = Role::Client(ClientId::from_bytes([7; 16]));
    let issued = authority.issue(role, Duration::from_secs(10));
    fs::create_dir_all(client.identity()).expect("a folder");
    let saved = issued.expect("an identity").save(&client.identity());
    saved.expect("it is written");
    Runtime::new().expect("threads").block_on(async {
        let mut raw = Raw::open(&client).await;
        let mut answered = 1;
        let refused = loop {
            raw.say(answered, Request::WhoAmI).await;
            match raw.hear().await.expect("the session goes on").1 {
                Response::Refused(why) => break why.message,
                _ => answered += 1,
            }
            // It is a command, which takes its time.
            assert_eq!(cluster.running(), 0);
        };
        assert!(answered > 1, "{refused}");
        assert_says(&refused, &["has ended", "wasmrun login", "connect again"]);
        raw.say(answered, Request::CancelMine).await;
        let heard = raw.hear().await.expect("the session goes on").1;
        assert!(matches!(heard, Response::Done), "{heard:?}");
    });
}

#[test]
fn who_is_hung_up_on_hears_why() {
    let cluster = Cluster::new();
    let client = cluster.client();
    Runtime::new().expect("threads").block_on(async {
        // While it still sends, too.
        for more in [0, 1, 1 << 20].repeat(10) {
            let mut raw = Raw::open(&client).await;
            let nonsense = [frame(&[0xff; 100]), vec![0; more]].concat();
            // It need not be taken.
            let _ = raw.0.writer.write_all(&nonsense).await;
            let said = raw.hear().await.expect("the reason");
            assert!(matches!(&said, (0, Response::Refused(_))), "{said:?}");
            assert_eq!(raw.hear().await, None, "it is the last word");
        }
    });
    assert_eq!(client.submit("add(1, 2)").ok(), "3\n");
}

#[test]
fn few_modules_come_from_elsewhere_at_a_time() {
    let cluster = Cluster::new();
    let client = cluster.client();
    client.submit("add(1, 2)").ok();
    let before = cluster.state();
    let digest = |n| Digest::from_bytes([n; 32]);
    let upload = |n, len| Request::Upload {
        digest: digest(n),
        len,
    };
    Runtime::new().expect("threads").block_on(async {
        let mut sending = Vec::new();
        for n in 0..4 {
            let mut raw = Raw::open(&client).await;
            raw.say(1, upload(n, 1 << 20)).await;
            assert_eq!(raw.hear().await, Some((1, Response::Continue)));
            sending.push(raw);
        }
        // Another one waits for one of these, with all that it has to send; what else it asks for is answered.
        let mut fifth = Raw::open(&client).await;
        fifth.say(1, upload(9, 1000)).await;
        fifth.say(2, Request::Module(digest(9))).await;
        assert_eq!(fifth.hear().await, Some((2, Response::Unknown)));
        // What is never taken need not wait to hear so.
        fifth.say(3, upload(9, 1 << 50)).await;
        match fifth.hear().await {
            Some((3, Response::Refused(why))) => assert_says(&why.message, &["--max-module"]),
            other => panic!("{other:?}"),
        }
        // Nor does anybody on the node's own machine.
        let here = cluster
            .head
            .command(&["submit", "-q"])
            .arg(guest("fixture"));
        here.args(["--invoke", "noop()"]).ok();
        // Who breaks the rules is let go, and its place is free.
        let mut first = sending.remove(0);
        let long = Request::Chunk(wire::Bytes(vec![0; wire::CHUNK_BYTES + 1]));
        first.say(1, long).await;
        // It may hear why before the end.
        while let Some((_, said)) = first.hear().await {
            assert!(matches!(said, Response::Refused(_)), "{said:?}");
        }
        assert_eq!(fifth.hear().await, Some((1, Response::Continue)));
        // A module that is none: its place is free, too, and nothing of it is kept.
        fifth
            .say(1, Request::Chunk(wire::Bytes(vec![0; 1000])))
            .await;
        match fifth.hear().await {
            Some((1, Response::Refused(why))) => assert_says(&why.message, &["its digest"]),
            other => panic!("{other:?}"),
        }
        let mut sixth = Raw::open(&client).await;
        sixth.say(1, upload(6, 1000)).await;
        assert_eq!(sixth.hear().await, Some((1, Response::Continue)));
    });
    cluster.is_again(&before);
}
