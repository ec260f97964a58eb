//! What a node may have left when nobody wants anything of it: nothing. It says so itself, by what it lists and by what it
//! measures, and the kernel says so of its process.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Pid;
use wasmrun_tests::Wasmrun;

use crate::metrics;

/// By how many files and sockets a node at rest may have more open than when it was started. Connections to other nodes
/// are no files: all of them go over the sockets that it listens at, which a new incarnation replaces. What may come is
/// a connection to etcd, segments that the store keeps for later, and what the engine looks at memory with: two in most
/// tests. What each task, object, client or connection left would be more: there are dozens of them in each test.
const MOST_MORE_FILES: usize = 6;

/// What is measured and is 0 at rest.
const NOTHING: [&str; 10] = [
    "wasmrun_actors",
    "wasmrun_sandboxes",
    "wasmrun_placement_group_bundles",
    "wasmrun_scheduler_drivers",
    "wasmrun_scheduler_parked_classes",
    "wasmrun_lineage_bytes",
    "wasmrun_detached_lineage_bytes",
    "wasmrun_detached_records_waiting",
    "wasmrun_store_unsealed_bytes",
    "wasmrun_store_waiting",
];

/// Whether by what a node says no task is left at it, no client but the one that asks, nothing of it is taken, and its
/// store is empty. Else what it says.
pub(crate) fn says_so(name: &str, command: impl Fn(&[&str]) -> Wasmrun) -> Result<(), String> {
    let status = command(&["status"]).json(0);
    let tasks = status["tasks"].as_object().expect("by state");
    let is_over = |state: &str| ["finished", "failed", "cancelled"].contains(&state);
    let is_idle = tasks
        .iter()
        .all(|(state, count)| is_over(state) || *count == 0);
    let store = &status["store"];
    let is_empty = ["objects", "pinned_bytes", "used_bytes", "spilled_bytes"]
        .iter()
        .all(|it| store[it] == 0);
    let nodes = command(&["node", "list"]).json(0);
    let nodes = nodes["nodes"].as_array().expect("a list");
    let own = nodes.iter().find(|node| node["name"] == name);
    let own = own.expect("itself");
    let is_free = own["available"] == own["total"];
    if is_idle && is_empty && is_free && status["sessions"] == 1 {
        return Ok(());
    }
    let [objects, tasks, actors] =
        ["objects", "tasks", "actors"].map(|it| command(&["list", it]).json(0));
    Err(format!("{own}\n{objects}\n{status}\n{tasks}\n{actors}"))
}

/// Whether by what a node measures nothing is left of anybody. Else what is.
pub(super) fn measures_so(at: SocketAddr, namespace: Option<&str>) -> Result<(), String> {
    let text = match namespace {
        None => metrics::get(at, "/metrics").1,
        Some(namespace) => metrics_within(namespace, at),
    };
    let measured: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let value = |name: &str| {
        let value = measured.get(name);
        *value.unwrap_or_else(|| panic!("there is no {name}: {text}"))
    };
    let left = NOTHING.map(|name| (name, value(name)));
    let left: Vec<_> = left.iter().filter(|(_, value)| *value != "0").collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("{left:?}")),
    }
}

/// The numbers of a node whose loopback addresses are another network's.
fn metrics_within(namespace: &str, at: SocketAddr) -> String {
    let (ip, port) = (at.ip(), at.port());
    let ask = format!(
        r"exec 3<>/dev/tcp/{ip}/{port} && printf 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' >&3 && cat <&3"
    );
    let asked = Command::new(wasmrun_tests::ip())
        .args(["netns", "exec", namespace, "bash", "-c", &ask])
        .output()
        .expect("it has made the namespace");
    let answer = String::from_utf8_lossy(&asked.stdout);
    assert!(answer.starts_with("HTTP/1.1 200"), "{asked:?}");
    answer.into_owned()
}

/// Files and sockets that a process has open: how many of each kind.
#[derive(Debug, Default)]
pub(crate) struct Files(BTreeMap<String, usize>);

impl Files {
    pub(crate) fn of(process: Pid) -> Self {
        let folder = format!("/proc/{}/fd", process.as_raw_nonzero());
        let mut files = BTreeMap::new();
        for file in fs::read_dir(folder).expect("it runs").flatten() {
            // It may have been closed by now.
            if let Ok(target) = fs::read_link(file.path()) {
                let target = target.to_string_lossy();
                // The code of each module that it has run stays mapped, also where the cache has another file of it by now.
                if target.trim_end_matches(" (deleted)").ends_with(".code") {
                    continue;
                }
                // Sockets and pipes have numbers behind that.
                let kind = target.split(":[").next().unwrap_or_default();
                *files.entry(kind.to_owned()).or_default() += 1;
            }
        }
        Self(files)
    }

    fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// Whether the process, of which these were the files at first, has no more by now than a node at rest may. Else what
    /// it has.
    pub(crate) fn are_all_of(&self, process: Pid) -> Result<(), String> {
        let now = Self::of(process);
        match now.count() <= self.count() + MOST_MORE_FILES {
            true => Ok(()),
            false => Err(format!("{} files, at first {self:?}: {now:?}", now.count())),
        }
    }
}
