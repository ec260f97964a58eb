//! `cargo xtask test browser` and `cargo xtask screenshots`: the page of a node in a real browser.
//!
//! Owns the work of the node, the views that are opened, and the checks of each. The browser is headless Chromium, driven over
//! a pipe by the DevTools protocol: JSON messages that end with a zero byte. Requests are such that their answers can be
//! read without a JSON parser.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, root, target_dir};

/// What Chromium is called.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Where pictures go.
const PICTURES: &str = "docs/images";
/// How long the browser may take for all, in seconds: then it is ended.
const ALL_SECONDS: &str = "300";
/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// The sides of a window, and of a phone's.
const WINDOW: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);
/// A name that would be a script if it were not text.
const NAME: &str = "<script>document.title='bad'</script>";

/// Views, their headings, and the names of their pictures.
const VIEWS: [(&str, &str, &str); 10] = [
    ("/", "The cluster at a glance", "overview"),
    ("/nodes", "Nodes", "nodes"),
    ("/queue", "What waits", "queue"),
    ("/tenants", "Tenants", "tenants"),
    ("/jobs", "Jobs", "jobs"),
    ("/tasks", "Tasks", "tasks"),
    ("/actors", "Actors", "actors"),
    ("/services", "Services", "services"),
    ("/objects", "Objects", "objects"),
    ("/groups", "Placement groups", "groups"),
];

/// Why the page cannot be looked at here, if it cannot.
pub fn missing() -> Option<&'static str> {
    program().is_none().then_some("there is no chromium")
}

fn program() -> Option<String> {
    let named = env::var("WASMRUN_CHROMIUM").ok();
    let mut names = named.into_iter().chain(NAMES.map(str::to_owned));
    names.find(|name| shell::succeeds(shell::command(name).arg("--version")))
}

/// Looks at every view.
pub fn check() -> Result<()> {
    with_page(&debug_build()?, Node::work, |shown| {
        for (path, heading, _) in VIEWS {
            shown.look(path, heading)?;
        }
        shown.look(&format!("/jobs/{}", shown.job.clone()), "Job ")?;
        shown.look(&format!("/tasks/{}", shown.task.clone()), "Task ")?;
        let services = shown.node.says(&["list", "services", "-o", "json"])?;
        let service = quoted(&services, "job").context("there is no service")?;
        shown.look(&format!("/services/{service}"), "Service ")?;
        shown.follows()
    })
}

/// Makes the pictures of the documentation.
pub fn screenshots() -> Result<()> {
    let folder = root().join(PICTURES);
    fs::create_dir_all(&folder)?;
    with_page(&debug_build()?, Node::work, |shown| {
        let job = format!("/jobs/{}", shown.job);
        let task = format!("/tasks/{}", shown.task);
        let views = VIEWS.iter().map(|(path, _, name)| (*path, *name));
        for (path, name) in views.chain([(job.as_str(), "job"), (task.as_str(), "task")]) {
            shown.open(path)?;
            shown.browser.picture(&folder.join(format!("{name}.png")))?;
        }
        shown.browser.resize(PHONE)?;
        shown.open("/")?;
        shown.browser.picture(&folder.join("phone.png"))
    })
}

/// A page with some work behind it, in a browser.
pub struct Shown {
    pub browser: Browser,
    pub node: Node,
    url: String,
    pub job: String,
    pub task: String,
}

fn debug_build() -> Result<PathBuf> {
    let wasmrun = target_dir().join(format!("debug/wasmrun{}", env::consts::EXE_SUFFIX));
    ensure!(
        wasmrun.is_file(),
        "there is no {}; run `cargo xtask test guests build browser`",
        wasmrun.display()
    );
    Ok(wasmrun)
}

/// Starts a node, gives it work, which returns a job and a task, opens its page and does something with it.
pub fn with_page(
    wasmrun: &Path,
    work: impl FnOnce(&Node) -> Result<(String, String)>,
    act: impl FnOnce(&mut Shown) -> Result<()>,
) -> Result<()> {
    let program =
        program().context("there is no chromium: install it, or name it in WASMRUN_CHROMIUM")?;
    // Paths of sockets must be short.
    let dir = env::temp_dir().join(format!("wasmrun-page-{}", std::process::id()));
    shell::private_dir(&dir)?;
    let acted = Node::start(wasmrun, &dir).and_then(|(node, url)| {
        let (job, task) = work(&node)?;
        let browser = Browser::start(&program, &dir.join("profile"))?;
        let mut shown = Shown {
            browser,
            node,
            url,
            job,
            task,
        };
        let link = shown.node.says(&["dashboard", "--no-open"])?;
        shown.browser.navigate(link.trim())?;
        shown.browser.wait_for("location.pathname", "/")?;
        act(&mut shown)
    });
    let _ = fs::remove_dir_all(&dir);
    acted
}

impl Shown {
    /// Opens a view, and waits until it is kept up to date.
    pub fn open(&mut self, path: &str) -> Result<()> {
        let url = format!("{}{path}", self.url);
        self.browser.navigate(&url)?;
        self.browser.wait_for("location.pathname", path)?;
        let live = "document.documentElement.dataset.live";
        self.browser
            .wait_for(live, "on")
            .with_context(|| format!("{path} is not kept up to date"))
    }

    /// A view has its heading, in a window and on a phone, its script has run, and nothing in it is wider than it.
    fn look(&mut self, path: &str, heading: &str) -> Result<()> {
        for size in [WINDOW, PHONE] {
            self.browser.resize(size)?;
            self.open(path)?;
            let script = "document.documentElement.dataset.script";
            self.browser.wait_for(script, "on")?;
            let begins =
                format!("String(document.querySelector('h1').textContent.startsWith('{heading}'))");
            self.browser
                .wait_for(&begins, "true")
                .with_context(|| format!("the heading of {path}"))?;
            let is_text = "String(document.title.endsWith('wasmrun'))";
            self.browser
                .wait_for(is_text, "true")
                .with_context(|| format!("a name was run as a script at {path}"))?;
            let fits = "String(document.documentElement.scrollWidth <= innerWidth)";
            self.browser
                .wait_for(fits, "true")
                .with_context(|| format!("{path} is wider than a window of {}", size.0))?;
        }
        Ok(())
    }

    /// A new task appears without a reload, and what the user did to the page stays.
    fn follows(&mut self) -> Result<()> {
        self.browser.resize(WINDOW)?;
        self.open("/tasks")?;
        let mark = "(window.isSame = 'yes', document.querySelector('input[name=name]').focus(), window.isSame)";
        self.browser.wait_for(mark, "yes")?;
        self.node.submit("noop()", &["--name", "seen-live"])?;
        let is_seen = "String(document.querySelector('main').textContent.includes('seen-live'))";
        self.browser.wait_for(is_seen, "true")?;
        self.browser.wait_for("window.isSame", "yes")?;
        self.browser.wait_for("document.activeElement.name", "name")
    }
}

/// A node that runs until this is dropped.
pub struct Node {
    process: Child,
    wasmrun: PathBuf,
    address: String,
}

impl Node {
    /// A node, and where its page is.
    fn start(wasmrun: &Path, dir: &Path) -> Result<(Self, String)> {
        let address = format!("unix:{}", dir.join("node.sock").display());
        let mut start = shell::command(wasmrun);
        start
            .args([
                "node",
                "start",
                "--node-name",
                "n1",
                "--node-cpus",
                "4",
                "--node-gpus",
                "2",
            ])
            .args(["--dashboard=127.0.0.1:0", "--log", "error"])
            .env("WASMRUN_ADDRESS", &address)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = start
            .spawn()
            .with_context(|| format!("cannot start {}", wasmrun.display()))?;
        let said = process.stdout.take().expect("it is piped");
        let node = Self {
            process,
            wasmrun: wasmrun.to_owned(),
            address,
        };
        for line in BufReader::new(said).lines() {
            let line = line?;
            if let Some(page) = line.strip_prefix("the page is at ") {
                let url = page.split(": ").next().unwrap_or(page);
                return Ok((node, url.to_owned()));
            }
        }
        bail!("the node ended before it had a page")
    }

    /// The id of its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = shell::command(&self.wasmrun);
        command.env("WASMRUN_ADDRESS", &self.address).args(args);
        command
    }

    pub fn says(&self, args: &[&str]) -> Result<String> {
        shell::read(&mut self.command(args))
    }

    /// Submits a call of a guest, and returns what `submit` prints as JSON.
    pub fn submit(&self, call: &str, args: &[&str]) -> Result<String> {
        let submit = [
            "submit",
            "target/guests/graph.wasm",
            "--detach",
            "-o",
            "json",
            "--invoke",
            call,
        ];
        self.says(&[&submit[..], args].concat())
    }

    /// Gives it work of all kinds: a job with a graph, and a task with a bad name.
    fn work(&self) -> Result<(String, String)> {
        let graph = self.submit("count(4)", &["--name", "counts"])?;
        self.submit("spawn-many(12)", &["--name", "fan-out", "--tenant", "red"])?;
        let bad = self.submit("add(1, 2)", &["--name", NAME])?;
        self.submit("crash()", &["--name", "crashes"])?;
        self.submit(
            "spin()",
            &["--name", "trains", "--gpus", "0.5", "--tenant", "red"],
        )?;
        self.submit("spin()", &["--name", "serves", "--gpus", "1"])?;
        let counter = [
            "actor",
            "create",
            "target/guests/graph.wasm",
            "counter",
            "1",
            "--name",
            "one",
            "--cpus",
            "0",
        ];
        self.says(&counter)?;
        self.says(&["actor", "call", "one", "add(1)"])?;
        self.says(&["put", "README.md"])?;
        let shop = [
            "serve",
            "target/guests/web.wasm",
            "--name",
            "shop",
            "--detach",
            "--listen",
            "127.0.0.1:0",
        ];
        self.says(&shop)?;
        let group = [
            "group", "create", "--detach", "--kind", "pack", "--bundle", "cpus=1", "--name", "pair",
        ];
        self.says(&group)?;
        // Last, or it would come before some of the others.
        self.submit("noop()", &["--name", "waits", "--cpus", "4"])?;
        let (job, task) = (quoted(&graph, "job"), quoted(&bad, "task_id"));
        let (job, task) = job.zip(task).context("submit has not said the ids")?;
        Ok((job.to_owned(), task.to_owned()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !shell::succeeds(&mut self.command(&["node", "stop", "--now", "--quiet"])) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// The text that follows a key in JSON, if it has nothing that is escaped.
pub fn quoted<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let rest = json.split_once(&format!("\"{key}\":"))?.1;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

/// A browser that runs until this is dropped.
pub struct Browser {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    /// With the tab; empty before there is one.
    session: String,
}

impl Browser {
    fn start(program: &str, profile: &Path) -> Result<Self> {
        let mut start = shell::command("timeout");
        start
            // It speaks on descriptors 3 and 4.
            .args([
                ALL_SECONDS,
                "sh",
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .args([
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = start.spawn().context("cannot start the browser")?;
        let input = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        let mut browser = Self {
            process,
            input,
            output: BufReader::new(output),
            calls: 0,
            session: String::new(),
        };
        let made = browser.call("Target.createTarget", r#"{"url":"about:blank"}"#)?;
        let target = quoted(&made, "targetId").context("the browser has no tab")?;
        let attach = format!(r#"{{"targetId":"{target}","flatten":true}}"#);
        let attached = browser.call("Target.attachToTarget", &attach)?;
        let session = quoted(&attached, "sessionId").context("the browser has no session")?;
        browser.session = session.to_owned();
        // A page is followed only while it is looked at.
        browser.call("Page.bringToFront", "{}")?;
        browser.resize(WINDOW)?;
        Ok(browser)
    }

    /// Asks for something, and waits for the answer.
    fn call(&mut self, method: &str, params: &str) -> Result<String> {
        self.calls += 1;
        let id = self.calls;
        let session = match self.session.is_empty() {
            true => String::new(),
            false => format!(r#","sessionId":"{}""#, self.session),
        };
        let asked = format!(r#"{{"id":{id},"method":"{method}","params":{params}{session}}}"#);
        self.input.write_all(asked.as_bytes())?;
        self.input.write_all(&[0])?;
        self.input.flush()?;
        loop {
            let mut answer = Vec::new();
            self.output.by_ref().read_until(0, &mut answer)?;
            ensure!(
                !answer.is_empty(),
                "the browser has ended, or took too long, at {method}"
            );
            answer.pop();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            // All others are events.
            if answer.starts_with(&format!("{{\"id\":{id},")) {
                let is_error = answer.starts_with(&format!("{{\"id\":{id},\"error\""));
                ensure!(!is_error, "{method}: {answer}");
                return Ok(answer);
            }
        }
    }

    pub fn navigate(&mut self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", &format!(r#"{{"url":"{url}"}}"#))?;
        ensure!(!answer.contains("errorText"), "{url}: {answer}");
        Ok(())
    }

    fn resize(&mut self, (width, height): (u32, u32)) -> Result<()> {
        let size = format!(
            r#"{{"width":{width},"height":{height},"deviceScaleFactor":1,"mobile":false}}"#
        );
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        Ok(())
    }

    /// Waits until an expression, which has no double quotes, has this text as its value.
    fn wait_for(&mut self, expression: &str, value: &str) -> Result<()> {
        self.wait_until(expression, |said| said == value)
            .with_context(|| format!("'{value}' was expected"))?;
        Ok(())
    }

    /// Waits until the text that an expression has as its value is as it should be, and returns it.
    pub fn wait_until(&mut self, expression: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        let params = format!(r#"{{"expression":"{expression}","returnByValue":true}}"#);
        let start = Instant::now();
        loop {
            // Between two pages there is nothing to ask.
            let answer = self.call("Runtime.evaluate", &params);
            let said = answer.as_deref().ok().and_then(|it| quoted(it, "value"));
            if let Some(said) = said.filter(|said| is(said)) {
                return Ok(said.to_owned());
            }
            if start.elapsed() > PATIENCE {
                bail!("{expression} is {said:?}: {answer:?}");
            }
            thread::sleep(LOOK);
        }
    }

    /// A picture of what is in the window.
    fn picture(&mut self, path: &Path) -> Result<()> {
        let answer = self.call("Page.captureScreenshot", r#"{"format":"png"}"#)?;
        let data = quoted(&answer, "data").context("the browser made no picture")?;
        let bytes = decoded(data).context("the browser's picture is no base64")?;
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This is for the browser and not for its tab.
        self.session.clear();
        let _ = self.call("Browser.close", "{}");
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Base64, of which each character has six bits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = DIGITS.iter().position(|it| *it == digit)?;
        bits = (bits << 6) | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        assert_eq!(decoded("aGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(decoded("aGVsbG8h"), Some(b"hello!".to_vec()));
        assert_eq!(decoded("a!"), None);
    }

    #[test]
    fn quoted_text_is_found() {
        assert_eq!(quoted(r#"{"a":1,"job": "x"}"#, "job"), Some("x"));
        assert_eq!(
            quoted(r#"{"id":3,"result":{"value":"on"}}"#, "value"),
            Some("on")
        );
        assert_eq!(quoted("{}", "value"), None);
    }
}
