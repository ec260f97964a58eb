//! What guests make wait: their threads are lost, and nobody else waits for them. And what the process itself may have.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assemble};

use crate::node::Node;

/// Opens the file `f` of its first directory to read.
const OPENS: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "f")
  (func (export "_start")
    (call $exit (call $open (i32.const 3) (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 8)))))"#;

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// A submission of this module with this directory.
fn with_dir(node: &Node, module: &Path, dir: &Path) -> Wasmrun {
    let grant = format!("{}::/d", dir.display());
    let submit = node.wasmrun(["submit"]).arg(module);
    submit.args(["--dir", &grant, "--cpus", "0.001", "--memory", "4MiB"])
}

#[test]
fn guests_that_block_threads_stop_nobody_else() {
    let mut node = Node::new();
    node.start_with(&["--node-memory", "4GiB"]);
    let dir = node.dir.path().to_owned();
    let (blocking, files) = (dir.join("blocking"), dir.join("files"));
    std::fs::create_dir_all(&blocking).unwrap();
    std::fs::create_dir_all(&files).unwrap();
    fifo(&blocking.join("f"));
    std::fs::write(files.join("f"), "x").unwrap();
    let opens = assemble(&dir, "opens", OPENS);
    let other = assemble(&dir, "other", r#"(module (func (export "_start")))"#);
    // More than a runtime's pool has by default, each lost to a task that has ended.
    let blocked = with_dir(&node, &opens, &blocking);
    let blocked = blocked.args(["--array", "1-520", "--time-limit", "300ms"]);
    assert_eq!(blocked.run().code, Some(6));
    with_dir(&node, &opens, &files).ok();
    // A module that is not loaded yet, for which the node itself needs a thread.
    node.wasmrun(["submit"]).arg(&other).ok();
    let running = node.running.take().unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn a_task_whose_thread_is_stuck_is_cancelled_and_its_node_stops() {
    let mut node = Node::start();
    let dir = node.dir.path().to_owned();
    fifo(&dir.join("f"));
    let opens = assemble(&dir, "opens", OPENS);
    let id = with_dir(&node, &opens, &dir).arg("--detach").ok();
    node.wait_for("running", 1);
    node.wasmrun(["cancel", id.trim()]).ok();
    node.wait_for("running", 0);
    with_dir(&node, &opens, &dir).arg("--detach").ok();
    node.wait_for("running", 1);
    node.wasmrun(["node", "stop", "--now"]).ok();
    assert_eq!(node.running.take().unwrap().end().code, Some(0));
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let node = Node::new();
    let dir = node.dir.path();
    let opens = assemble(dir, "opens", OPENS);
    std::fs::write(dir.join("f"), "x").unwrap();
    let start = node.wasmrun(["node", "start", "--node-cpus", "1"]);
    let mut sleeping = start.before("ulimit -Sn 64").start();
    sleeping.wait_for(Stream::Out, "listens at unix:");
    let limits = format!("/proc/{}/limits", sleeping.process().as_raw_nonzero());
    let limits = std::fs::read_to_string(limits).unwrap();
    let open = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = open.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "{words:?}");
    sleeping.signal(Signal::TERM);
    assert_eq!(sleeping.end().code, Some(0));
    // Two directories of each of many tasks that run together.
    let grant = |name| format!("{}::/{name}", dir.display());
    Wasmrun::submit_file(&opens)
        .args([
            "--dir",
            &grant("a"),
            "--dir",
            &grant("b"),
            "--array",
            "1-100",
        ])
        .args([
            "--cpus",
            "0.001",
            "--memory",
            "4MiB",
            "--node-memory",
            "4GiB",
        ])
        .before("ulimit -Sn 64")
        .ok();
}
