//! A tenant that wants all of a node, by each way that a guest or its client has: others' tasks end as ever, and when the tenant is
//! stopped, all that it used is free again.
//!
//! How long the others wait is measured by `wasmrun bench`, not here.

use std::io::{PipeReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value as Json, json};
use wasmrun_model::wire;
use wasmrun_tests::{Running, Wasmrun, assemble, guest};

use crate::node::Node;

/// Whose attacks these are, and who is beside it.
const HOSTILE: &str = "hostile";
const NEIGHBOUR: &str = "neighbour";
/// How many tasks the neighbour has while it goes on.
const TASKS: u32 = 8;
/// How many sessions are opened at a time.
const SESSIONS: usize = 100;
/// How many modules are compiled at a time.
const MODULES: usize = 6;

/// What an attack holds at the client's side. Dropping it kills the commands.
#[derive(Default)]
struct Attack {
    _commands: Vec<Running>,
    /// Nobody reads them.
    _outputs: Vec<PipeReader>,
    _sockets: Vec<UnixStream>,
}

/// What a node has for all, and who is connected.
fn state(node: &Node) -> Json {
    let status = node.wasmrun(["status"]).json(0);
    let tasks = status["tasks"].as_object().expect("states");
    let has_ended = |state: &str| ["finished", "failed", "cancelled"].contains(&state);
    let live = tasks.iter().filter(|(state, _)| !has_ended(state));
    let live: u64 = live
        .map(|(_, count)| count.as_u64().expect("a number"))
        .sum();
    json!({
        "live": live,
        "sessions": status["sessions"],
        "available": status["available"],
        "store": status["store"],
    })
}

fn add(node: &Node, number: u32) {
    let submit = node.submit(&format!("add({number}, 2)"));
    let result = submit.args(["--tenant", NEIGHBOUR]).ok();
    assert_eq!(result, format!("{}\n", number + 2));
}

/// A command of the hostile tenant that submits a call.
fn submit(node: &Node, module: &str, call: &str) -> Wasmrun {
    let submit = node
        .wasmrun(["submit", "--tenant", HOSTILE])
        .arg(guest(module));
    submit.args(["--invoke", call])
}

/// Leaves calls to the node, as many as an array has.
fn detached(node: &Node, module: &str, call: &str, array: &str) -> Attack {
    let submit = submit(node, module, call).args(["--array", array, "--detach", "-q"]);
    submit.ok();
    Attack::default()
}

/// Has a node attacked, and its neighbour go on meanwhile.
fn attacked(attack: impl FnOnce(&Node) -> Attack) {
    let mut node = Node::new();
    node.start_with(&["--object-memory", "64MiB"]);
    // The module stays compiled, and what there is once is there.
    add(&node, 0);
    let before = state(&node);
    let attack = attack(&node);
    for number in 1..=TASKS {
        add(&node, number);
    }
    drop(attack);
    let filter = format!("tenant={HOSTILE}");
    let listed = node.wasmrun(["list", "jobs", "-f", &filter]).json(0);
    for job in listed["jobs"].as_array().expect("a list") {
        let job = job["id"].as_str().expect("an id");
        // Some have ended.
        node.wasmrun(["cancel", "--tenant", HOSTILE, job]).run();
    }
    // Each look is a command, which takes its time.
    while state(&node) != before {}
    add(&node, 0);
}

/// Waits until the node has something of the attack.
fn begun(node: &Node, attack: Attack) -> Attack {
    while state(node)["live"] == 0 {}
    attack
}

#[test]
fn who_starts_tasks_for_ever() {
    attacked(|node| {
        let waves = detached(node, "graph", "waves(2000, 1000000)", "1-2");
        begun(node, waves)
    });
}

#[test]
fn who_fills_the_store_again_and_again() {
    attacked(|node| {
        let hoards = detached(node, "graph", "hoard(100, 256)", "1-500");
        begun(node, hoards)
    });
}

#[test]
fn who_takes_as_much_memory_as_it_may() {
    attacked(|node| detached(node, "fixture", "allocate(120)", "1-500"));
}

#[test]
fn who_writes_more_than_its_client_reads() {
    attacked(|node| {
        let (output, written) = std::io::pipe().expect("a pipe");
        let flood = submit(node, "fixture", "flood()").args(["--array", "1-4"]);
        let attack = Attack {
            _commands: vec![flood.stdout_to(written).start()],
            _outputs: vec![output],
            ..Attack::default()
        };
        begun(node, attack)
    });
}

#[test]
fn who_has_large_modules_compiled() {
    attacked(|node| {
        let commands = (0..MODULES).map(|at| {
            // Each is another one.
            let sum = format!(
                "{}(local.get 0){}",
                "(i64.add ".repeat(40),
                format!(" (i64.const {at}))").repeat(40)
            );
            let function = format!("(func (param i64) (result i64) {sum})");
            let functions = function.repeat(1000);
            let text = format!(
                r#"(module (memory (export "memory") 1) {functions} (func (export "_start")))"#
            );
            let module = assemble(node.dir.path(), &format!("large-{at}"), &text);
            node.wasmrun(["submit", "--tenant", HOSTILE])
                .arg(module)
                .start()
        });
        Attack {
            _commands: commands.collect(),
            ..Attack::default()
        }
    });
}

#[test]
fn who_takes_handles_for_ever() {
    attacked(|node| {
        let handles = detached(node, "graph", "many-handles(1000000)", "1-200");
        begun(node, handles)
    });
}

#[test]
fn who_opens_one_session_after_the_other() {
    attacked(|node| {
        let hello = wire::Hello {
            magic: wire::MAGIC,
            protocol: wire::PROTOCOL,
            version: "hostile".into(),
            tenant: HOSTILE.parse().expect("a name"),
            job: String::new(),
        };
        let hello = wire::encode(&hello).expect("it is short");
        let open = || {
            let mut socket = UnixStream::connect(node.socket()).expect("the node listens");
            socket.write_all(&hello).expect("it is open");
            socket
        };
        let sockets: Vec<UnixStream> = (0..SESSIONS).map(|_| open()).collect();
        while state(node)["sessions"].as_u64() <= Some(SESSIONS as u64) {}
        Attack {
            _sockets: sockets,
            ..Attack::default()
        }
    });
}

#[test]
fn who_writes_logs_for_ever() {
    attacked(|node| {
        let floods = detached(node, "fixture", "flood()", "1-200");
        begun(node, floods)
    });
}
