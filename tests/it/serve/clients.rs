//! What people use: HTTP/2, TLS, a browser.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{CertificateParams, DnType, KeyPair};
use wasmrun_tests::{assert_says, scratch, skipped};

use super::{SOON, Service, curl, serve};

/// What Chromium is called.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

#[test]
fn one_connection_has_many_requests_at_once() {
    // Over TLS: without, curl 7.88 opens a connection for each and then uses one of them for all.
    let dir = scratch();
    let (cert, key) = certificate(dir.path());
    let options = ["--tls-cert", &cert, "--tls-key", &key];
    let service = Service::start(serve("web", &options));
    let at = format!("localhost:{}", service.address.port());
    let url = format!("https://{at}/ticks?n=2&i=[1-50]");
    let resolve = format!("{at}:127.0.0.1");
    let at_once = [
        "--cacert",
        &*cert,
        "--resolve",
        &*resolve,
        "--parallel",
        "--parallel-max",
        "50",
    ];
    let format = ["--write-out", "%{http_version} %{http_code}\n"];
    let (printed, code) = curl(at_once.into_iter().chain(format).chain([&*url]));
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("2 200\n").count(), 50, "{printed}");
    // Lines of several responses come between each other.
    let ticks = |tick: &str| printed.lines().filter(|line| *line == tick).count();
    assert_eq!((ticks("0"), ticks("1")), (50, 50), "{printed}");
    let service = Service::web(&[]);
    let url = format!("http://{}/headers", service.address);
    let (printed, _) = curl(["--http2-prior-knowledge", &url]);
    assert_says(
        &printed,
        &[&format!("authority Some(\"{}\")", service.address)],
    );
}

#[test]
fn a_certificate_makes_it_https() {
    let dir = scratch();
    let (cert, key) = certificate(dir.path());
    let options = ["--tls-cert", &cert, "--tls-key", &key];
    let service = Service::start(serve("web", &options));
    let at = format!("localhost:{}", service.address.port());
    let url = format!("https://{at}/headers");
    let resolve = format!("{at}:127.0.0.1");
    let get = |version: &str| {
        let trusted = ["--cacert", &*cert, "--resolve", &*resolve];
        let format = ["--write-out", "%{http_version}\n"];
        let (printed, code) = curl(trusted.into_iter().chain(format).chain([version, &url]));
        assert_eq!(code, Some(0), "{printed}");
        assert_says(&printed, &[&at, "scheme Some(Scheme::Https)\n"]);
        printed
    };
    // Which of them it is, is agreed on with TLS.
    assert!(get("--http2").ends_with("\n2\n"));
    assert!(get("--http1.1").ends_with("\n1.1\n"));
    // Who speaks without TLS gets nothing, and keeps nobody from being served. Who says nothing does not keep it either.
    let mut silent = service.open();
    let mut plain = service.open();
    plain.begin("GET /hello", "");
    assert!(!plain.rest().starts_with(b"HTTP/1.1 200"));
    get("--http2");
    silent.waits_for(SOON);
    service.interrupt();
    assert!(silent.is_closed());
    assert_eq!(service.running.end().code, Some(0));
    let half = serve("web", &["--tls-cert", &cert]).run();
    assert_ne!(half.code, Some(0), "{half}");
    assert_says(&half.stderr, &["--tls-key"]);
    let none = serve("web", &["--tls-cert", "/nowhere.pem", "--tls-key", &key]).run();
    assert_ne!(none.code, Some(0), "{none}");
    assert_says(&none.stderr, &["/nowhere.pem"]);
}

/// The files of a certificate for localhost and of its key.
pub(super) fn certificate(dir: &Path) -> (String, String) {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("it is a name");
    // Two in one file are told apart by their names.
    let name = dir.display().to_string();
    params.distinguished_name.push(DnType::CommonName, name);
    let cert = params.self_signed(&key).expect("it is ours");
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("there is room");
        path.display().to_string()
    };
    (
        write("cert.pem", cert.pem()),
        write("key.pem", key.serialize_pem()),
    )
}

/// A browser, until this is dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_page_reads_an_answer_as_it_comes() {
    let is_there = |name: &&str| {
        let mut version = Command::new(name);
        let version = version.arg("--version").stdout(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let Some(browser) = BROWSERS.into_iter().find(is_there) else {
        return skipped("WASMRUN_REQUIRE_CHROMIUM", "there is no chromium");
    };
    let dir = scratch();
    let mut service = Service::web(&[]);
    let mut command = Command::new(browser);
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
        .args(["--no-first-run", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", dir.path().display()))
        .arg(format!("http://{}/page", service.address))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _browser = Browser(command.spawn().expect("it can be started"));
    // The page has read this while the answer went on.
    service.wait_for("GET /hello?read=0,1,2 200 ");
}
