//! Actors of a node: what they hold while they live, what they leave when they die, and many of them.

use std::fs;

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Stream, Wasmrun, assert_says, guest};

use crate::node::Node;

fn create<const N: usize>(node: &Node, class: [&str; N], name: &str) -> Wasmrun {
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create.args(class).args(["--name", name])
}

#[test]
fn a_class_that_is_not_there_is_refused_with_the_one_that_may_be_meant() {
    let node = Node::start();
    let said = create(&node, ["conter", "1"], "total").fails(2);
    assert_says(
        &said,
        &["exports no class 'conter'; did you mean wasmrun:graph/tests@0.1.0#counter?"],
    );
}

#[test]
fn what_an_actor_writes_is_kept_with_it() {
    let node = Node::start();
    let counter = ["counter", "10"];
    create(&node, counter, "total")
        .args(["--restarts", "2"])
        .ok();
    let crash = || node.wasmrun(["actor", "call", "total", "crash()"]).fails(5);
    for times in 1..=2 {
        crash();
        // Each panic of each generation, in the stream where the guest wrote it.
        let logs = node.wasmrun(["logs", "total"]).run();
        assert_eq!(logs.code, Some(0), "{logs}");
        assert_eq!(logs.stdout, b"");
        assert_eq!(
            logs.stderr.matches("as it was told to").count(),
            times,
            "{logs}"
        );
    }
    let json = node.wasmrun(["logs", "total"]).json(0);
    assert_says(json["stderr"].as_str().expect("text"), &["panicked at"]);
    assert_eq!(json["stdout"], "");
    // Also of one that is dead.
    crash();
    node.wasmrun(["actor", "call", "total", "add(1)"])
        .fails_saying(2, &["there is no actor 'total'"]);
    let logs = node.wasmrun(["logs", "total"]).run();
    assert_eq!(
        logs.stderr.matches("as it was told to").count(),
        3,
        "{logs}"
    );
}

#[test]
fn what_an_actor_of_a_task_writes_is_kept_under_its_name() {
    let node = Node::start();
    let keep = |name: &str| {
        let submit = node.wasmrun(["submit"]).arg(guest("spread"));
        submit.args(["--invoke", &format!("keep-named({name:?})")])
    };
    let mut attached = keep("kept").start();
    attached.wait_for(Stream::Err, "made at ");
    let logs = || node.wasmrun(["logs", "kept"]).ok();
    let kept = logs();
    assert!(kept.starts_with("sums at "), "{kept}");
    assert!(!kept.contains("made at "), "{kept}");
    attached.signal(Signal::INT);
    // The client that has submitted the task gets it, too.
    assert_says(&attached.end().stderr, &["sums at "]);
    // Also of one that has ended.
    assert_eq!(logs(), kept);
    let detached = keep("other").arg("--detach").json(0);
    let (task, job) = (&detached["task_id"], &detached["job"]);
    let (task, job) = (task.as_str().expect("an id"), job.as_str().expect("an id"));
    while !node.wasmrun(["logs", task]).ok().contains("made at ") {}
    assert_says(&node.wasmrun(["logs", "other"]).ok(), &["sums at "]);
    let all = node.wasmrun(["job", "logs", job]).ok();
    assert_eq!(all.matches("sums at ").count(), 1, "{all}");
}

#[test]
fn the_calls_of_an_actor_see_what_it_holds() {
    let mut node = Node::new();
    node.start_with(&["--node-gpus", "2"]);
    let create = node.wasmrun(["actor", "create"]).arg(guest("spread"));
    let create = create.args(["holder", "--name", "holder"]);
    create.args(["--gpus", "0.25", "--cpus", "0.5"]).ok();
    let held = |name: &str| {
        let call = format!("held({name:?})");
        node.wasmrun(["actor", "call", "holder", &call]).ok()
    };
    assert_eq!(held("GPU"), "some((2500, [0]))\n");
    assert_eq!(held("CPU"), "some((5000, [0]))\n");
    assert_eq!(held("tpu"), "none\n");
}

#[test]
fn to_give_its_state_an_actor_has_the_time_of_the_call() {
    let node = Node::start();
    let create = node.wasmrun(["actor", "create"]).arg(guest("spread"));
    create.args(["holder", "--name", "holder"]).ok();
    let call = |call: String| node.wasmrun(["actor", "call", "holder", &call]);
    let held = || call("held(\"tpu\")".into());
    // The call has ended well by then, and whoever made it hears that; that generation is over.
    let endless = || call(format!("grow({})", u64::MAX)).args(["--time-limit", "300ms"]);
    endless().ok();
    assert_eq!(held().ok(), "none\n", "another generation");
    endless().ok();
    held().fails_saying(2, &["there is no actor 'holder'"]);
}

#[test]
fn what_an_actor_holds_it_holds_until_it_dies() {
    let mut node = Node::new();
    node.start_with(&["--node-memory", "1GiB"]);
    for (asked, task, lacks) in [
        (["--cpus", "2"], ["--cpus", "1"], "CPU"),
        (["--memory", "900MiB"], ["--memory", "200MiB"], "memory"),
    ] {
        create(&node, ["counter", "10"], "holder").args(asked).ok();
        let call = || node.wasmrun(["actor", "call", "holder", "add(1)"]);
        assert_eq!(call().ok(), "11\n");
        // Between calls too: it waits, and it is said for what.
        let waiting = node.submit("add(1, 2)").args(task).arg("--detach").ok();
        let waiting = waiting.trim();
        assert_says(&node.wasmrun(["explain", waiting]).ok(), &[lacks]);
        assert_eq!(call().ok(), "12\n");
        let state = node.wasmrun(["get", waiting]).json(0)["state"].clone();
        assert_ne!(state, "finished", "{lacks}");
        node.wasmrun(["actor", "kill", "holder"]).ok();
        assert_eq!(node.wasmrun(["object", "get", waiting]).ok(), "3\n");
    }
    let status = node.wasmrun(["status"]).json(0);
    assert_eq!(status["available"], status["total"], "{status}");
}

#[test]
fn an_actor_of_a_node_lives_again_as_often_as_was_said() {
    let node = Node::start();
    let busy = |name: &str, restarts: &str, retries: &str| {
        let create = create(&node, ["busy"], name);
        create
            .args(["--restarts", restarts, "--call-retries", retries])
            .ok();
    };
    let call = |name: &str, call: &str| node.wasmrun(["actor", "call", name, call]);
    // The call that crashed it is made again, in its third generation.
    busy("twice", "2", "2");
    assert_eq!(call("twice", "crash-before(2)").ok(), "2\n");
    // There are generations left, and none for the call: a later one meets the next generation.
    busy("generations", "5", "0");
    call("generations", "crash-before(1)").fails_saying(5, &["the guest trapped"]);
    // It is that call's first attempt.
    assert_eq!(call("generations", "crash-before(0)").ok(), "0\n");
    // The call could be made again, and there is no generation left.
    busy("calls", "0", "5");
    call("calls", "crash-before(1)").fails(5);
    call("calls", "crash-before(0)").fails_saying(2, &["there is no actor 'calls'"]);
}

#[test]
fn the_next_generation_has_the_state_after_a_call_that_returned_its_error() {
    let node = Node::start();
    for (at, module) in ["sdk", "sdk-p1"].into_iter().enumerate() {
        let name = format!("purse-{at}");
        let create = node.wasmrun(["actor", "create"]).arg(guest(module));
        let create = create.args(["counter", "5", "--name", &name]);
        create.args(["--restarts", "1"]).ok();
        let call = |call: &str| node.wasmrun(["actor", "call", &name, call]);
        assert_eq!(call("incr(2)").ok(), "7\n");
        // It fails, and what it has changed stays changed.
        call("take(9)").fails_saying(5, &["there were only 7"]);
        call("panic(\"told to\")").fails_saying(5, &["the guest trapped"]);
        assert_eq!(call("value()").ok(), "0\n", "{module}");
    }
}

#[test]
fn thousands_of_actors_idle_on_one_node() {
    const ACTORS: u64 = 3000;
    /// What each may take. It is some 60 KiB, and what debug builds need besides.
    const MOST_KIB: u64 = 256;
    let mut node = Node::new();
    node.start_with(&["--max-sandboxes", "3100", "--node-memory", "64GiB"]);
    let count_with = |actors: u64| {
        let call = format!("count-with({actors})");
        node.wasmrun(["submit", "--invoke", &call])
            .arg(guest("graph"))
            .ok()
    };
    assert_eq!(count_with(1), "2\n");
    let before = peak_kib(&node);
    // All of them live when the first is called again, each in a sandbox of its own.
    assert_eq!(count_with(ACTORS), format!("{}\n", 2 * ACTORS));
    let more = peak_kib(&node) - before;
    assert!(
        more < ACTORS * MOST_KIB,
        "{ACTORS} idle actors took {more} KiB"
    );
}

/// The most memory that a node has had so far.
fn peak_kib(node: &Node) -> u64 {
    let process = &node.wasmrun(["status"]).json(0)["process"];
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let amount = line.expect("it has memory").trim().trim_end_matches(" kB");
    amount.parse().expect("a number")
}

#[test]
fn a_cancelled_actor_does_not_live_again() {
    let mut node = Node::new();
    node.start_with(&["--node-name", "here"]);
    let actor = node.wasmrun(["actor", "create"]).arg(guest("faults"));
    let actor = actor.args(["tally", "--name", "worker", "--restarts", "5"]);
    let actor = actor.args(["--call-retries", "5"]).ok();
    let actor = actor.trim();
    // One call runs, and one waits behind it.
    let call = |call: &str| node.wasmrun(["actor", "call", "worker", call]);
    let live = |what: &str| {
        let list = node.wasmrun(["list", "tasks"]).json(0);
        let tasks = list["tasks"].as_array().expect("a list").clone();
        let word = |it: &Json, field: &str| it[field].as_str().expect("a word").to_owned();
        let is_live = |it: &&Json| {
            let is_over = ["finished", "failed", "cancelled"].contains(&&*word(it, "state"));
            !is_over && word(it, "name").contains(what)
        };
        tasks.iter().filter(is_live).count()
    };
    // Each look is a command, which takes its time.
    let hangs = call(r#"hang(1, "here")"#).start();
    while live("#tally.hang") == 0 {}
    let waits = call("add(1)").start();
    while live("#tally.add") == 0 {}
    let calls = [hangs, waits];
    node.wasmrun(["cancel", "worker"]).ok();
    for call in calls {
        let ended = call.end();
        assert_eq!(ended.code, Some(5), "{ended}");
        assert_says(&ended.stderr, &["actor", "was ended"]);
    }
    call("add(1)").fails_saying(2, &["there is no actor 'worker'"]);
    node.wasmrun(["get", actor])
        .fails_saying(2, &["has ended", "wasmrun logs"]);
    // No generation of it is left or comes.
    assert_eq!(live(""), 0);
    let status = node.wasmrun(["status"]).json(0);
    assert_eq!(status["available"], status["total"], "{status}");
    node.wasmrun(["cancel", "worker"])
        .fails_saying(2, &["worker"]);
}
