//! `node start --local N`: a cluster on one machine, for development.
//!
//! Owns the other nodes: processes of this same program, each with a folder of its own that goes with us. They
//! are tied to our end of their standard input, so that none stays when we are killed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use wasmrun_model::resource::Amount;
use wasmrun_node::{JoinToken, Machine, Node, NodeConfig};

use super::cluster::TOKEN;
use crate::args::COLLECTOR;
use crate::fail::Failure;
use crate::printer::Printer;

/// How long all nodes may take to find each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked whether one has died before.
const LOOK: Duration = Duration::from_millis(100);

/// Options of ours that the others do not get, and how many values they have.
const OURS: [(&str, usize); 15] = [
    ("--local", 1),
    ("--head", 0),
    ("--listen", 1),
    ("--address", 1),
    ("--output", 1),
    ("-o", 1),
    // Only the first node prints.
    ("--quiet", 0),
    ("-q", 0),
    // Each has its own.
    ("--metrics", 0),
    // One node writes and sends what ended.
    ("--history-dir", 1),
    ("--history-files", 1),
    ("--otlp", 1),
    // One page shows them all.
    ("--dashboard", 0),
    ("--dashboard-cert", 1),
    ("--dashboard-key", 1),
];

/// A cluster on one machine, before it is started.
pub struct Several {
    count: u16,
    dir: TempDir,
}

/// The other nodes of it.
pub struct Others {
    nodes: Vec<Arc<Other>>,
    watching: Mutex<Vec<JoinHandle<()>>>,
    is_stopping: Arc<AtomicBool>,
    count: usize,
    /// Goes with the last of them: what keeps us for a signal is never dropped.
    dir: Mutex<Option<TempDir>>,
}

struct Other {
    name: String,
    /// Of its socket.
    address: String,
    /// Gone when the process is.
    process: Mutex<Option<Pid>>,
    /// Closing it ends the node at once.
    input: Mutex<Option<ChildStdin>>,
}

impl Several {
    pub fn new(count: u16) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("wasmrun-").tempdir();
        let dir = dir.context("cannot make a folder for the nodes' state")?;
        Ok(Self { count, dir })
    }

    /// Where node `number`, from 1, keeps who it is.
    pub fn state_dir(&self, number: u16) -> PathBuf {
        self.dir.path().join(format!("n{number}"))
    }

    /// The part of the machine that each node has, where nothing is said.
    pub fn share(&self, config: &mut NodeConfig) {
        config.name = Some("n1".to_owned());
        let machine = Machine::detect();
        let count = u64::from(self.count);
        let units = |n: u64| Amount::from_units(n).unwrap_or(Amount::MAX);
        let cpus = units((machine.cpus / count).max(1));
        config.cpus.get_or_insert(cpus);
        let memory = (machine.task_memory_bytes() / count) >> 20 << 20;
        config.memory.get_or_insert(units(memory));
        let objects = (machine.object_memory_bytes() / count) >> 20 << 20;
        config.object_memory.get_or_insert(objects.max(1 << 20));
    }

    /// Starts the other nodes. `metrics`: where the first serves its own; the others do so at the ports after that.
    pub fn start(
        self,
        token: &JoinToken,
        metrics: Option<SocketAddr>,
        printer: Printer,
    ) -> Result<Others, Failure> {
        let mut config = NodeConfig::default();
        self.share(&mut config);
        let dir = self.dir.path().to_owned();
        let mut others = Others {
            nodes: Vec::new(),
            watching: Mutex::default(),
            is_stopping: Arc::default(),
            count: self.count.into(),
            dir: Mutex::new(Some(self.dir)),
        };
        for number in 2..=self.count {
            let name = format!("n{number}");
            let state = dir.join(&name);
            let socket = format!("unix:{}/node.sock", state.display());
            let mut args = inherited(std::env::args_os().skip(1));
            if !printer.is_verbose() {
                args.push("-q".into());
            }
            let mut unless_given = |option: &str, value: Option<String>| {
                let is_given = args.iter().any(|arg| {
                    let arg = arg.to_string_lossy();
                    arg == option || arg.starts_with(&format!("{option}="))
                });
                if let (false, Some(value)) = (is_given, value) {
                    args.extend([option.into(), value.into()]);
                }
            };
            let text = |amount: &Amount| amount.to_string();
            unless_given("--node-cpus", config.cpus.as_ref().map(text));
            unless_given("--node-memory", config.memory.as_ref().map(text));
            let objects = config.object_memory.map(|bytes| bytes.to_string());
            unless_given("--object-memory", objects);
            if let Some(mut metrics) = metrics {
                let port = match metrics.port() {
                    0 => 0,
                    first => first.saturating_add(number - 1),
                };
                metrics.set_port(port);
                args.push(format!("--metrics={metrics}").into());
            }
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(args)
                .args(["--tied", "--node-name", &name, "--address", &socket])
                .arg("--state-dir")
                .arg(&state)
                // Every user of this machine can read the command line. Last, or what follows would be its value.
                .arg("--join")
                .env(TOKEN, token.to_string())
                // Only we are somebody's service.
                .env_remove("NOTIFY_SOCKET")
                .env_remove(COLLECTOR)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // Ctrl-C is for us: we tell them.
                .process_group(0);
            let child = command.spawn();
            let child = child.with_context(|| format!("cannot start node {name}"))?;
            others.watch(name, socket, child, printer);
        }
        Ok(others)
    }
}

impl Others {
    fn watch(&mut self, name: String, address: String, mut child: Child, printer: Printer) {
        let other = Arc::new(Other {
            name,
            address,
            process: Mutex::new(Some(Pid::from_child(&child))),
            input: Mutex::new(child.stdin.take()),
        });
        self.nodes.push(other.clone());
        let is_stopping = self.is_stopping.clone();
        let watching = std::thread::spawn(move || {
            let ended = child.wait();
            *lock(&other.process) = None;
            if !is_stopping.load(Ordering::SeqCst) {
                let how = ended.map_or_else(|error| error.to_string(), |it| it.to_string());
                printer.warn(format_args!("node {} has ended: {how}", other.name));
            }
        });
        lock(&self.watching).push(watching);
    }

    /// The names of the nodes, and where they listen for commands.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes.iter().map(|it| (&*it.name, &*it.address))
    }

    /// Waits until all nodes are in the cluster. Whether they are: they may be told to stop before.
    pub fn wait_until_there(&self, node: &Node) -> Result<bool, Failure> {
        let mut left = PATIENCE;
        while !node.wait_for_members(self.count, LOOK) {
            left = left.saturating_sub(LOOK);
            let dead = self.nodes.iter().find(|it| lock(&it.process).is_none());
            let why = match dead {
                Some(dead) => format!("node {} did not start", dead.name),
                None if left.is_zero() => "the nodes do not find each other".to_owned(),
                None => continue,
            };
            if self.is_stopping.load(Ordering::SeqCst) {
                return Ok(false);
            }
            self.stop(true);
            self.wait();
            return Err(Failure::usage(why));
        }
        Ok(true)
    }

    /// Lets all of them end what runs, or end at once.
    pub fn stop(&self, is_now: bool) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for other in &self.nodes {
            if is_now {
                drop(lock(&other.input).take());
            } else if let Some(process) = *lock(&other.process) {
                // If it has just ended, so much the better.
                let _: Result<(), rustix::io::Errno> =
                    rustix::process::kill_process(process, Signal::TERM);
            }
        }
    }

    /// Waits until none is left.
    pub fn wait(&self) {
        let watching = std::mem::take(&mut *lock(&self.watching));
        for watching in watching {
            // A thread that has panicked watches nobody any more.
            let _ = watching.join();
        }
    }
}

/// Ends the other nodes, and removes the folder of all, when this one ends.
pub struct StopOnDrop(pub Arc<Others>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(true);
        self.0.wait();
        drop(lock(&self.0.dir).take());
    }
}

/// The arguments of ours that the others get too.
fn inherited(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut skip = 0;
    for arg in args {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        let text = arg.to_string_lossy();
        let ours = OURS.iter().find(|(option, _)| {
            text == *option
                || text.starts_with(&format!("{option}="))
                || option.len() == 2 && text.starts_with(option)
        });
        match ours {
            Some((option, values)) if text == *option => skip = *values,
            Some(_) => {}
            None => kept.push(arg),
        }
    }
    kept
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_get_what_is_not_ours_alone() {
        let given = [
            "-o",
            "json",
            "node",
            "start",
            "--local",
            "3",
            "--node-cpus",
            "2",
            "--address=unix:/x",
            "-ojson",
            "-v",
            "-q",
            "--head",
            "--metrics=127.0.0.1:1",
            "--history-dir",
            "/x",
            "--otlp=http://localhost:4317",
            "--dashboard",
            "--dashboard-cert",
            "cert.pem",
            "--dashboard-key=key.pem",
        ];
        let kept = inherited(given.iter().map(OsString::from));
        assert_eq!(kept, ["node", "start", "--node-cpus", "2", "-v"]);
    }
}
