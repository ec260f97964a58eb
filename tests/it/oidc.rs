//! People who log in by OpenID Connect, at a real provider: node-oidc-provider, from npm.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use wasmrun_tests::{Running, Stream, Wasmrun, assert_says, scratch, skipped};

use crate::cluster::Member;
use crate::elsewhere::{Client, Cluster};

/// The last one for Node 20.
const PACKAGE: &str = "oidc-provider@8.8.1";

struct Provider {
    process: Child,
    issuer: String,
    /// It may say more, and would end if nobody could read it.
    _said: BufReader<ChildStdout>,
    _dir: TempDir,
}

impl Provider {
    /// `None` where npm does not have it: the test is skipped.
    fn start() -> Option<Self> {
        let dir = scratch();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/oidc/provider.mjs");
        fs::copy(script, dir.path().join("provider.mjs")).unwrap();
        fs::write(dir.path().join("package.json"), "{}").unwrap();
        let install = Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", PACKAGE])
            .current_dir(dir.path())
            .output();
        if !install.is_ok_and(|it| it.status.success()) {
            skipped("WASMRUN_REQUIRE_JS", "npm does not install oidc-provider");
            return None;
        }
        let mut process = Command::new("node")
            .arg("provider.mjs")
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut issuer = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut issuer).unwrap();
        Some(Self {
            process,
            issuer: issuer.trim().to_owned(),
            _said: said,
            _dir: dir,
        })
    }

    /// What a person does in a browser. Nobody says no.
    fn answer(&self, code: &str, person: &str) {
        let address = self.issuer.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "POST /answer?code={code}&person={person} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: \
             close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file for a head.
fn file(dir: &Path, issuer: &str, rules: &Json) -> PathBuf {
    let path = dir.join("oidc.json");
    let settings = json!({
        "issuer": issuer, "client_id": "wasmrun", "scopes": ["openid", "email", "groups"], "rules": rules,
    });
    fs::write(&path, settings.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A head that lets the provider's ml-team in, and its authority.
fn head(dir: &Path, provider: &Provider) -> (Cluster, String) {
    let rules =
        json!([{"claim": "groups", "value": "ml-team", "role": "submitter", "tenants": ["ml"]}]);
    let file = file(dir, &provider.issuer, &rules);
    let args = ["--head", "--listen", "127.0.0.1:0", "--oidc"];
    let args = [&args[..], &[file.to_str().unwrap()]].concat();
    let mut head = Member::new("n1");
    let authority = head.watched(&args, |running| {
        let is_there = |said: &str| behind(said, "--authority ", 64).is_some();
        running.wait_until(Stream::Err, "an authority", is_there);
        behind(&running.written(Stream::Err), "--authority ", 64).unwrap()
    });
    let seen = head.wait_for("n1", "alive");
    let address = seen["address"].as_str().unwrap().to_owned();
    (Cluster { head, address }, authority)
}

/// So many bytes behind a text.
fn behind(said: &str, text: &str, bytes: usize) -> Option<String> {
    let (_, rest) = said.split_once(text)?;
    rest.get(..bytes).map(str::to_owned)
}

/// A login that waits for a person, and the code for them.
fn begin(client: &Client, cluster: &Cluster, args: &[&str]) -> (Running, String) {
    let login = client.command(&["login", "--oidc", &cluster.address]);
    let mut login = login.args(args).start();
    let code = |said: &str| behind(said, " and enter ", "ABCD-EFGH".len());
    login.wait_until(Stream::Err, "a code", |said| code(said).is_some());
    let code = code(&login.written(Stream::Err)).unwrap();
    (login, code)
}

#[test]
fn a_person_logs_in_and_others_do_not() {
    let Some(provider) = Provider::start() else {
        return;
    };
    let dir = scratch();
    let (cluster, authority) = head(dir.path(), &provider);
    let [ann, eve, bob] = [(); 3].map(|()| Client::new(&cluster.address));
    // All at a time, since each asks only every five seconds.
    let (ann_logs_in, ann_code) = begin(&ann, &cluster, &["--authority", &authority]);
    let (eve_logs_in, eve_code) = begin(&eve, &cluster, &[]);
    let (bob_logs_in, bob_code) = begin(&bob, &cluster, &[]);
    provider.answer(&ann_code, "ann");
    provider.answer(&eve_code, "eve");
    provider.answer(&bob_code, "");

    let ended = ann_logs_in.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let page = format!("open {}/device and enter {ann_code}", provider.issuer);
    assert_says(&ended.stderr, &[&page]);
    assert_says(&ended.stdout_text(), &["client ", "for 12 hours"]);
    let who = ann.command(&["whoami"]).json(0);
    assert_eq!(who["name"], "ann@example.com");
    assert_eq!(
        (&who["role"], &who["tenants"]),
        (&json!("submitter"), &json!("ml"))
    );
    assert_eq!(ann.submit("add(1, 2)").ok(), "3\n");
    let listed = cluster.head.command(&["client", "list"]).json(0);
    let row = &listed["clients"][0];
    assert_eq!(
        (&row["name"], &row["state"]),
        (&json!("ann@example.com"), &json!("valid"))
    );
    assert!(row["left_ms"].as_u64().unwrap() <= 12 * 3_600_000, "{row}");
    ann.command(&["login", "--renew"])
        .fails_saying(4, &["came of a login", "wasmrun login --oidc"]);

    let ended = eve_logs_in.end();
    assert_eq!(ended.code, Some(4), "{ended}");
    assert_says(&ended.stderr, &["its authority is", &authority]);
    assert_says(&ended.stderr, &["does not let eve@example.com in"]);
    assert!(!ended.stderr.contains("ml-team"), "{ended}");
    let ended = bob_logs_in.end();
    assert_eq!(ended.code, Some(2), "{ended}");
    assert_says(&ended.stderr, &["denied at the provider"]);
    // Only whom it lets in is a client.
    let listed = cluster.head.command(&["client", "list"]).json(0);
    assert_eq!(listed["clients"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_head_that_is_another_or_lets_nobody_log_in() {
    let cluster = Cluster::new();
    let client = Client::new(&cluster.address);
    let login = ["login", "--oidc", &cluster.address];
    client
        .command(&login)
        .fails_saying(4, &["people cannot log in", "--oidc FILE"]);
    let other = "0".repeat(64);
    let pinned = client.command(&login).args(["--authority", &other]);
    pinned.fails_saying(4, &["no member of our cluster"]);
    let wrong = client.command(&login).args(["--authority", "0"]);
    wrong.fails_saying(2, &["64 hexadecimal digits"]);
}

#[test]
fn a_file_that_is_wrong_and_one_for_a_node_that_is_no_head() {
    let dir = scratch();
    let start = |part: &str, file: &Path| {
        let start = Wasmrun::new(["node", "start", part, "--oidc"]).arg(file);
        let address = format!("unix:{}/node.sock", dir.path().display());
        let start = start.arg("--state-dir").arg(dir.path().join("state"));
        start.env("WASMRUN_ADDRESS", address).fails(2)
    };
    let rules = json!([{"claim": "a", "value": "b", "role": "viewer"}]);
    let path = file(dir.path(), "https://op.example.com", &rules);
    assert_says(
        &start("--head", &path),
        &["oidc.json", "rules[0]", "tenants are missing"],
    );
    let path = file(dir.path(), "http://op.example.com", &rules);
    assert_says(&start("--head", &path), &["issuer: ", "loopback"]);
    assert_says(&start("--join", &path), &["for the head"]);
}
