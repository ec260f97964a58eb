//! Clients on another host than any node: all goes over a wire, which can be cut.

use std::fs;

use rustix::process::Signal;
use tempfile::TempDir;
use wasmrun_tests::{Stream, Wasmrun, guest, scratch};

use super::durable::{rows, wait_for};
use super::links::Hosts;
use super::world::{Node, eventually};

/// A head on host `a`, and a client on host `b`.
struct Elsewhere {
    head: Node,
    dir: TempDir,
    hosts: Hosts,
}

impl Elsewhere {
    fn new() -> Option<Self> {
        let hosts = Hosts::new()?;
        let mut head = hosts.node("a");
        head.start(&["--head"]);
        let it = Self {
            head,
            dir: scratch(),
            hosts,
        };
        let token = it.head.token(&["--client"]);
        it.command(&["login", &token]).ok();
        Some(it)
    }

    fn command(&self, args: &[&str]) -> Wasmrun {
        let address = self.head.listen().to_string();
        let command = Wasmrun::new(args).env("WASMRUN_ADDRESS", address);
        let command = command.env("WASMRUN_IDENTITY", self.dir.path().join("identity"));
        command.in_namespace(&self.hosts.namespace("b"))
    }

    fn submit(&self, call: &str) -> Wasmrun {
        let submit = self.command(&["submit", "-q"]).arg(guest("graph"));
        submit.args(["--invoke", call])
    }

    fn wait_until_it_spins(&self) {
        eventually("something ran", || {
            let list = self.head.command(&["list", "tasks", "-f", "state=running"]);
            let list = list.json(0);
            match list["tasks"].as_array().is_some_and(|it| !it.is_empty()) {
                true => Ok(()),
                false => Err(list),
            }
        });
    }

    /// A task that does not end.
    fn spin(&self) -> Wasmrun {
        let submit = self.command(&["submit", "-q"]).arg(guest("faults"));
        submit.args(["--invoke", r#"spin("here")"#])
    }
}

#[test]
fn a_client_on_another_host_works_with_a_node() {
    let Some(it) = Elsewhere::new() else { return };
    assert_eq!(it.submit("add(1, 2)").ok(), "3\n");
    let file = it.dir.path().join("file");
    let bytes: Vec<u8> = (0..9_000_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(&file, &bytes).expect("there is room");
    let id = it.command(&["put"]).arg(&file).ok();
    let back = it.command(&["object", "get", id.trim()]).run();
    assert!(back.stdout == bytes);
    it.command(&["object", "delete", id.trim()]).ok();
    let create = it.command(&["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "10", "--name", "total"]).ok();
    assert_eq!(
        it.command(&["actor", "call", "total", "add(5)"]).ok(),
        "15\n"
    );
    it.command(&["actor", "kill", "total"]).ok();
    let cat = it.command(&["submit"]).arg(guest("prog"));
    let mut cat = cat.open_stdin().program(["cat"]).start();
    cat.write(b"line\n");
    cat.wait_for(Stream::Out, "line\n");
    assert_eq!(cat.end().code, Some(0));
    let spin = it.spin().arg("--detach").ok();
    it.wait_until_it_spins();
    it.command(&["cancel", spin.trim()]).ok();
    it.head.wait_for_rest();
}

#[test]
fn a_client_that_is_cut_off_has_gone() {
    let Some(it) = Elsewhere::new() else { return };
    let spin = it.spin().start();
    it.wait_until_it_spins();
    it.hosts.part("a", "b", false);
    // The node gives it up, with what it had started; and so does the client.
    it.head.wait_for_rest();
    let ended = spin.end();
    assert_eq!(ended.code, Some(4), "{ended}");
    it.hosts.heal("a", "b", false);
    eventually("in touch", || match it.submit("add(1, 2)").run() {
        ended if ended.code == Some(0) => Ok(()),
        ended => Err(ended),
    });
}

#[test]
fn what_a_client_submits_again_when_its_connection_broke_runs_once() {
    let Some(hosts) = Hosts::new() else { return };
    let (mut a, b) = (hosts.node("a"), hosts.node("b"));
    let mut b = b.with(&["--log", "info,wasmrun_node=debug"]);
    a.start(&["--head"]);
    b.start(&["--join", &a.token(&[])]);
    b.wait_for("a", "alive");
    let dir = scratch();
    let address = b.listen().to_string();
    let client = |args: &[&str]| {
        let command = Wasmrun::new(args).env("WASMRUN_ADDRESS", &address);
        let command = command.env("WASMRUN_IDENTITY", dir.path().join("identity"));
        command.in_namespace(&hosts.namespace("c"))
    };
    client(&["login", &a.token(&["--client"])]).ok();
    let detached = |call: &str| {
        let submit = client(&["submit", "--detach"]).arg(guest("fixture"));
        submit.args(["--invoke", call])
    };
    // The module is there, and compiled.
    let before = detached("noop()").ok();
    wait_for(&b, before.trim(), "finished");
    // As long as the control store is silent nothing is durable, so what is submitted is not answered.
    a.running().signal(Signal::STOP);
    let submitting = detached("sleep-forever()").start();
    let is_under_way = |written: &str| written.matches("is under way").count() > 1;
    b.running()
        .wait_until(Stream::Err, "its record", is_under_way);
    // Before the answer, and until both sides have given the connection up.
    hosts.part("b", "c", false);
    a.running().signal(Signal::CONT);
    eventually("the client was given up", || {
        let status = b.command(&["status"]).json(0);
        // The one that asks.
        match status["sessions"] == 1 {
            true => Ok(()),
            false => Err(status),
        }
    });
    hosts.heal("b", "c", false);
    let ended = submitting.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let task = ended.stdout_text().trim().to_owned();
    for node in [&a, &b] {
        wait_for(node, &task, "running");
        assert_eq!(rows(node, "sleep-forever").len(), 1);
    }
    client(&["cancel", &task]).ok();
    for node in [&a, &b] {
        wait_for(node, &task, "cancelled");
        node.wait_for_rest();
    }
}
