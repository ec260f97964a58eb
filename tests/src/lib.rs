//! What the end-to-end tests stand on: the real `wasmrun`, run with a clean environment, a bound
//! on its time, and its output at hand.
//!
//! Owns: finding the binary and the guests, starting commands and judging how they ended. Must
//! not: know what any single test is about. Nothing here sleeps: a command's end, or a line of
//! its output, is waited for, and a command that takes too long is killed and fails its test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value as Json;

mod skipped;

pub use skipped::skipped;

/// How long any command may take. Far more than any needs, even on a busy machine: it is there
/// so that a hung one fails its test instead of hanging the run.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it is waited for more of what a command wrote that was killed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The folder of this build's binaries: `target/debug` or the like.
fn profile_dir() -> PathBuf {
    let ourselves = std::env::current_exe().expect("a test knows its own path");
    let deps = ourselves.parent().expect("an executable is in a folder");
    deps.parent()
        .expect("cargo's deps folder is in one")
        .to_owned()
}

/// The `wasmrun` that is tested.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let path = profile_dir().join("wasmrun");
        assert!(
            path.is_file(),
            "{} is not there: build it with `cargo build -p wasmrun` (`cargo xtask test` does)",
            path.display()
        );
        path
    })
}

/// The module of a guest, by its name in `target/guests` without `.wasm`.
///
/// # Panics
/// When it has not been built.
pub fn guest(name: &str) -> PathBuf {
    let path = guests_dir().join(name).with_extension("wasm");
    assert!(
        path.is_file(),
        "{} is not there: build it with `cargo xtask guests` (`cargo xtask test` does)",
        path.display()
    );
    path
}

fn guests_dir() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.parent().expect("the package is in the checkout");
    root.join("target/guests")
}

/// A folder that is not there: no node listens in it.
fn nowhere() -> PathBuf {
    profile_dir().join("no-node-here")
}

/// A folder of compiled code that this test process shares, since compiling takes longest.
fn shared_cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let tmp = profile_dir().join("../tmp");
        let prefix = "e2e-cache-";
        // Those of processes that are gone.
        for entry in fs::read_dir(&tmp).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(process) = name.strip_prefix(prefix)
                && !Path::new("/proc").join(process).exists()
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = tmp.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the target folder can be written");
        dir.canonicalize().expect("it has just been made")
    })
}

/// The program that makes and enters network namespaces: not on everybody's path.
pub fn ip() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut programs = folders.map(|folder| folder.join("ip"));
    programs.find(|ip| ip.is_file()).unwrap_or("ip".into())
}

/// A folder of a test's own, removed when the test ends.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is room for temporary files")
}

/// Assembles a module from WebAssembly text into a file in `dir`.
pub fn assemble(dir: &Path, name: &str, text: &str) -> PathBuf {
    let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let path = dir.join(name).with_extension("wasm");
    fs::write(&path, bytes).expect("the scratch folder can be written");
    path
}

/// A `wasmrun` command that is being put together.
#[derive(Debug)]
pub struct Wasmrun {
    args: Vec<OsString>,
    program: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    dir: Option<PathBuf>,
    stdin: Option<Vec<u8>>,
    keep_stdin_open: bool,
    stdout: Option<PipeWriter>,
    address_space_kib: Option<u64>,
    namespace: Option<String>,
    redirections: Option<String>,
    before: Option<String>,
    user: Option<u32>,
}

impl Wasmrun {
    /// `wasmrun` with these arguments, the shared cache of compiled code, no other environment
    /// and nothing on standard input.
    pub fn new<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let cache = shared_cache();
        let env = [
            ("WASMRUN_CACHE_DIR", cache),
            ("HOME", Path::new("/nowhere")),
        ];
        Self {
            args: Vec::new(),
            program: Vec::new(),
            env: env
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            dir: None,
            stdin: None,
            keep_stdin_open: false,
            stdout: None,
            address_space_kib: None,
            namespace: None,
            redirections: None,
            before: None,
            user: None,
        }
        .args(args)
    }

    /// `wasmrun submit` of a guest.
    pub fn submit(name: &str) -> Self {
        Self::new(["submit"]).arg(guest(name))
    }

    /// `wasmrun submit` of any module.
    pub fn submit_file(module: impl AsRef<OsStr>) -> Self {
        Self::new(["submit"]).arg(module)
    }

    /// A call of one of the fixture's functions.
    pub fn call(call: &str) -> Self {
        Self::submit("fixture").args(["--invoke", call])
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more argument, before the last.
    ///
    /// # Panics
    /// When there is none yet.
    pub fn args_before_last(mut self, arg: impl AsRef<OsStr>) -> Self {
        let last = self.args.len().checked_sub(1).expect("there is a last one");
        self.args.insert(last, arg.as_ref().to_owned());
        self
    }

    /// More arguments of the program: they come after `--`, whatever is added later.
    pub fn program<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.program
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the command.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .insert(key.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Leaves an environment variable out that commands have otherwise.
    pub fn without_env(mut self, key: impl AsRef<OsStr>) -> Self {
        self.env.remove(key.as_ref());
        self
    }

    /// A cache folder of its own instead of the shared one.
    pub fn cache(self, dir: &Path) -> Self {
        self.env("WASMRUN_CACHE_DIR", dir)
    }

    /// Runs in this folder.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// What comes on standard input, which then ends.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Standard input stays open: [`Running::write`] adds to it.
    pub fn open_stdin(mut self) -> Self {
        self.keep_stdin_open = true;
        self
    }

    /// Standard output goes into this pipe, whose other end the test holds.
    pub fn stdout_to(mut self, pipe: PipeWriter) -> Self {
        self.stdout = Some(pipe);
        self
    }

    /// May have only so much address space: for what should not get far enough to need more.
    pub fn address_space_kib(mut self, most: u64) -> Self {
        self.address_space_kib = Some(most);
        self
    }

    /// Runs in this network namespace, which has been made by `ip netns add`.
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// With these redirections of a shell, such as `<&-`.
    pub fn redirected(mut self, redirections: &str) -> Self {
        self.redirections = Some(redirections.to_owned());
        self
    }

    /// Started by a shell that does this first, such as `ulimit -Sn 64`.
    pub fn before(mut self, command: &str) -> Self {
        self.before = Some(command.to_owned());
        self
    }

    /// Runs as this user, and in the group of that number. Only root can have it so.
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        if !self.program.is_empty() {
            self.args.push("--".into());
            self.args.append(&mut self.program);
        }
        let args = self.args.iter().map(|arg| arg.to_string_lossy());
        let shown = args.fold("wasmrun".to_owned(), |line, arg| line + " " + &arg);
        let shell = |script: String| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &script]).arg(binary());
            shell
        };
        let mut command = match (self.address_space_kib, &self.namespace) {
            (None, None) if let Some(redirections) = &self.redirections => {
                shell(format!("exec \"$0\" \"$@\" {redirections}"))
            }
            (None, None) if let Some(before) = &self.before => {
                shell(format!("{before} && exec \"$0\" \"$@\""))
            }
            (None, None) => Command::new(binary()),
            (None, Some(namespace)) => {
                // It becomes the command: no process stands between.
                let mut ip = Command::new(ip());
                ip.args(["netns", "exec", namespace]).arg(binary());
                ip
            }
            (Some(most), _) => shell(format!("ulimit -v {most} && exec \"$0\" \"$@\"")),
        };
        command
            .args(&self.args)
            .env_clear()
            // Whatever node a developer has running is none of a test's business.
            .env("XDG_RUNTIME_DIR", nowhere())
            .envs(&self.env)
            .stderr(Stdio::piped())
            .stdin(match self.stdin.is_some() || self.keep_stdin_open {
                true => Stdio::piped(),
                false => Stdio::null(),
            })
            .stdout(match self.stdout {
                Some(pipe) => pipe.into(),
                None => Stdio::piped(),
            });
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        // Ours of its pipe, if there is one: only the child must hold it.
        drop(command);
        Running::watch(shown, child, self.stdin, self.keep_stdin_open)
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Ended {
        self.start().end()
    }

    /// Runs it to its end, which must be a good one. Its standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        let ended = self.run();
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.stdout_text()
    }

    /// Runs it to its end, which must have this exit code. Its standard error.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        let ended = self.run();
        assert_eq!(ended.code, Some(code), "{ended}");
        ended.stderr
    }

    /// As [`Wasmrun::fails`]; its standard error must say these things, in this order.
    #[track_caller]
    pub fn fails_saying(self, code: i32, parts: &[&str]) {
        assert_says(&self.fails(code), parts);
    }

    /// Runs it with `-o json` to its end, which must have this exit code. Its standard output.
    #[track_caller]
    pub fn json(self, code: i32) -> Json {
        let ended = self.args_first(["-o", "json"]).run();
        assert_eq!(ended.code, Some(code), "{ended}");
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    fn args_first<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.splice(0..0, args.map(OsString::from));
        self
    }
}

/// Which of a command's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

enum Event {
    Output(Stream, Vec<u8>),
    Exit(ExitStatus),
    Closed,
}

/// A command that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    shown: String,
    process: Pid,
    stdin: Option<std::process::ChildStdin>,
    events: Receiver<Event>,
    outputs_open: usize,
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    deadline: Instant,
}

impl Running {
    fn watch(shown: String, mut child: Child, input: Option<Vec<u8>>, keep: bool) -> Self {
        let (sender, events) = mpsc::channel();
        let process = Pid::from_child(&child);
        let mut stdin = child.stdin.take();
        if let Some(bytes) = input {
            let pipe = stdin.take();
            let write = move |mut pipe: std::process::ChildStdin| {
                // A command may leave without reading everything.
                let _ = pipe.write_all(&bytes);
            };
            thread::spawn(move || pipe.map(write));
        }
        assert_eq!(keep, stdin.is_some(), "{shown}: either given or kept open");
        let mut outputs_open = 0;
        let mut pump = |stream: Stream, pipe: Option<Box<dyn Read + Send>>| {
            let Some(mut pipe) = pipe else { return };
            outputs_open += 1;
            let sender = sender.clone();
            thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                    let _ = sender.send(Event::Output(stream, buffer[..n].to_vec()));
                }
                let _ = sender.send(Event::Closed);
            });
        };
        pump(Stream::Out, child.stdout.take().map(|p| Box::new(p) as _));
        pump(Stream::Err, child.stderr.take().map(|p| Box::new(p) as _));
        thread::spawn(move || {
            let status = child.wait().expect("a child of ours can be waited for");
            let _ = sender.send(Event::Exit(status));
        });
        Self {
            shown,
            process,
            stdin,
            events,
            outputs_open,
            status: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            deadline: Instant::now() + PATIENCE,
        }
    }

    /// Its process.
    pub fn process(&self) -> Pid {
        self.process
    }

    /// Adds to its standard input.
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("standard input is kept open");
        stdin.write_all(bytes).expect("the command reads");
    }

    /// Ends its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.process, signal).expect("it still runs");
    }

    /// Waits until what it has written contains `text`.
    ///
    /// # Panics
    /// When it ends, or time is up, before that.
    #[track_caller]
    pub fn wait_for(&mut self, stream: Stream, text: &str) {
        self.wait_until(stream, &format!("{text:?}"), |written| {
            written.contains(text)
        });
    }

    /// Waits until what it has written is `what`, which `is_there` tells.
    ///
    /// # Panics
    /// When it ends, or time is up, before that.
    #[track_caller]
    pub fn wait_until(&mut self, stream: Stream, what: &str, is_there: impl Fn(&str) -> bool) {
        loop {
            let written = match stream {
                Stream::Out => &self.stdout,
                Stream::Err => &self.stderr,
            };
            if is_there(&String::from_utf8_lossy(written)) {
                return;
            }
            assert!(self.step(), "it ended without writing {what}: {self}");
        }
    }

    /// What it has written so far, as far as was waited for.
    pub fn written(&self, stream: Stream) -> String {
        let written = match stream {
            Stream::Out => &self.stdout,
            Stream::Err => &self.stderr,
        };
        String::from_utf8_lossy(written).into_owned()
    }

    /// Waits for its end while its standard input stays open.
    ///
    /// # Panics
    /// When it does not end well, or in time.
    #[track_caller]
    pub fn wait_for_exit(&mut self) {
        while self.status.is_none() && self.step() {}
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
    }

    /// Whether it still runs, as far as is known by now.
    pub fn is_running(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        self.status.is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        self.stdin = None;
        // What has run for long may take a while to end all the same.
        self.deadline = self.deadline.max(Instant::now() + PATIENCE / 4);
        while self.step() {}
        let status = self.status.expect("it has ended");
        Ended {
            shown: std::mem::take(&mut self.shown),
            code: status.code(),
            status,
            stdout: std::mem::take(&mut self.stdout),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
        }
    }

    /// Waits for something to happen; `false` if nothing will any more.
    fn step(&mut self) -> bool {
        if self.status.is_some() && self.outputs_open == 0 {
            return false;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                panic!("killed after {PATIENCE:?}: {self}");
            }
        }
        true
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Output(Stream::Out, bytes) => self.stdout.extend(bytes),
            Event::Output(Stream::Err, bytes) => self.stderr.extend(bytes),
            Event::Closed => self.outputs_open -= 1,
            Event::Exit(status) => self.status = Some(status),
        }
    }

    fn kill(&mut self) {
        if self.is_running() {
            let _ = rustix::process::kill_process(self.process, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            // What it wrote may say why.
            while let Ok(event) = self.events.recv_timeout(LAST_WORDS) {
                self.take(event);
            }
            println!("at the end of a test that failed: {self}");
        }
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stderr = String::from_utf8_lossy(&self.stderr);
        show(f, &self.shown, &self.status, &self.stdout, &stderr)
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    shown: String,
    status: ExitStatus,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Ended {
    /// What it wrote to standard output, which must be text.
    #[track_caller]
    pub fn stdout_text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(
            f,
            &self.shown,
            &Some(self.status),
            &self.stdout,
            &self.stderr,
        )
    }
}

fn show(
    f: &mut fmt::Formatter<'_>,
    shown: &str,
    status: &Option<ExitStatus>,
    stdout: &[u8],
    stderr: &str,
) -> fmt::Result {
    /// How much of the beginning and of the end is shown of what is long, in bytes.
    const MOST: [usize; 2] = [2000, 10_000];
    writeln!(f, "\n$ {shown}")?;
    match status {
        Some(status) => writeln!(f, "{status}")?,
        None => writeln!(f, "it still runs")?,
    }
    let stdout = String::from_utf8_lossy(stdout);
    for (name, text) in [("stdout", &*stdout), ("stderr", stderr)] {
        writeln!(f, "--- {name} ({} bytes)", text.len())?;
        match text.len() {
            len if len <= MOST[0] + MOST[1] => writeln!(f, "{text}")?,
            len => {
                let start = &text[..text.floor_char_boundary(MOST[0])];
                let end = &text[text.ceil_char_boundary(len - MOST[1])..];
                writeln!(f, "{start}\n…\n{end}")?;
            }
        }
    }
    Ok(())
}

/// Asserts that a text contains others, in this order.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => panic!("this should say {part:?} (after what comes before it):\n{text}"),
        }
    }
}
