//! Tenants that are due something get it from tasks and actors of others that run, and those go on afterwards, or begin again.

use wasmrun_tests::{Wasmrun, assert_says, guest};

use crate::anywhere::{cluster, detached, rows};
use crate::faults::eventually;
use crate::node::Node;

/// A command that submits a task of a tenant, of one CPU.
fn submit(node: &Node, tenant: &str, module: &str, call: &str) -> Wasmrun {
    let submit = node.wasmrun(["submit", "--tenant", tenant, "--cpus", "1"]);
    submit.args(["--invoke", call]).arg(guest(module))
}

/// Leaves a task to the node that is busy for ever.
fn spin(node: &Node, tenant: &str) {
    let spin = submit(node, tenant, "fixture", "spin()");
    spin.args(["--time-limit", "1h", "-q", "--detach"]).ok();
}

#[test]
fn a_tenant_below_its_minimum_has_others_paused_and_they_lose_nothing() {
    let node = Node::start();
    node.wasmrun(["tenant", "set", "blue", "--min", "CPU=1"])
        .ok();
    spin(&node, "red");
    node.wait_for("running", 1);
    let work = submit(&node, "red", "bench", "busy-iterations(2000000000)").start();
    node.wait_for("running", 2);
    // A task runs for 100 ms before it is paused.
    let age_ms = || {
        let listed = node.wasmrun(["list", "tasks", "-f", "name=busy-iterations"]);
        listed.json(0)["tasks"][0]["age_ms"].as_u64()
    };
    let began = age_ms().expect("it runs");
    eventually("may it be paused", || {
        let age = age_ms();
        (age >= Some(began + 200))
            .then_some(())
            .ok_or_else(|| format!("{age:?}"))
    });
    let forever = submit(&node, "blue", "fixture", "sleep-forever()");
    let forever = forever.args(["-q", "--detach"]).ok();

    // The one that started last.
    node.wait_for("blocked", 1);
    let listed = node.wasmrun(["list", "tasks", "-f", "state=blocked"]);
    let listed = listed.json(0);
    let id = listed["tasks"][0]["id"].as_str().expect("an id");
    let told = node.wasmrun(["explain", id, "--tenant", "red"]).ok();
    assert_says(
        &told,
        &[
            "to go on; paused: tenant blue is below its guaranteed CPU: 0 of 1",
            "it was paused once, for ",
        ],
    );
    node.wasmrun(["cancel", forever.trim(), "--tenant", "blue"])
        .ok();
    let ended = work.end();
    assert_eq!(ended.stdout_text(), "15237887915360077582\n", "{ended}");
    let attempts = node.wasmrun(["list", "attempts", "-f", "name=busy-iterations"]);
    let attempts = attempts.json(0);
    let phases = &attempts["attempts"][0]["phases"];
    assert!(phases["paused_us"].as_u64() > Some(0), "{attempts}");
}

#[test]
fn a_tenant_without_cpu_gets_its_share_after_a_while() {
    let node = Node::start();
    spin(&node, "red");
    spin(&node, "red");
    node.wait_for("running", 2);
    // It would wait for ever.
    submit(&node, "blue", "fixture", "noop()").ok();
    node.wait_for("running", 2);

    node.wasmrun(["scheduling", "set", "preemption=off"]).ok();
    let shown = node.wasmrun(["scheduling"]).json(0);
    assert_eq!(shown["preemption"], false);
}

#[test]
fn a_tenant_below_its_minimum_of_a_resource_has_tasks_stopped_that_are_tried_again() {
    let mut node = Node::new();
    node.start_with(&["--node-resource", "slot=1"]);
    node.wasmrun(["tenant", "set", "blue", "--min", "slot=1"])
        .ok();
    let slot = ["--resource", "slot=1", "-q"];
    let spin = submit(&node, "red", "fixture", "spin()");
    let spin = spin.args(slot).args(["--time-limit", "1h", "--detach"]);
    let id = spin.args(["--retries", "1"]).ok();
    node.wait_for("running", 1);

    submit(&node, "blue", "fixture", "noop()").args(slot).ok();
    node.wait_for("running", 1);
    let told = node.wasmrun(["explain", id.trim(), "--tenant", "red"]).ok();
    let why = "tenant blue is below its guaranteed slot: 0 of 1";
    assert_says(&told, &["it was stopped once and begun again, after ", why]);
    let attempts = node.wasmrun(["list", "attempts", "-f", "name=spin"]);
    let attempts = attempts.json(0);
    let first = &attempts["attempts"][0];
    assert_eq!(first["state"], "retried", "{attempts}");
    let error = first["error"].as_str().expect("why it was stopped");
    assert_eq!(error, format!("it was stopped, to be tried again: {why}"));
}

#[test]
fn an_actor_with_checkpoints_leaves_and_goes_on_where_it_was() {
    let mut node = Node::new();
    node.start_with(&["--node-resource", "slot=1"]);
    node.wasmrun(["tenant", "set", "blue", "--min", "slot=1"])
        .ok();
    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "10", "--name", "total", "--tenant", "red"]);
    create
        .args(["--resource", "slot=1", "--restarts", "1"])
        .ok();
    let call = || node.wasmrun(["actor", "call", "total", "add(5)", "--tenant", "red"]);
    assert_eq!(call().ok(), "15\n");

    let slot = ["--resource", "slot=1", "-q", "--detach"];
    let forever = submit(&node, "blue", "fixture", "sleep-forever()");
    let forever = forever.args(slot).ok();
    eventually("has it the slot", || {
        let listed = node.wasmrun(["list", "tasks", "-f", "name=sleep-forever"]);
        let listed = listed.json(0);
        let is_there = listed["tasks"][0]["state"] == "running";
        is_there.then_some(()).ok_or(listed)
    });
    let waits = call().start();
    node.wait_for("waiting-for-actor", 1);
    let told = node.wasmrun(["explain", "total", "--tenant", "red"]).ok();
    let why = "tenant blue is below its guaranteed slot: 0 of 1";
    assert_says(&told, &["it was stopped once and begun again, after ", why]);
    node.wasmrun(["cancel", forever.trim(), "--tenant", "blue"])
        .ok();
    // The call that waited is answered by the next generation.
    let answered = waits.end();
    assert_eq!(answered.stdout_text(), "20\n", "{answered}");

    let attempts = node.wasmrun(["list", "attempts", "-f", "state=retried"]);
    let attempts = attempts.json(0);
    let error = attempts["attempts"][0]["error"].as_str().expect("why");
    assert_eq!(error, format!("it was stopped, to be tried again: {why}"));
    // It is no restart, and no failure.
    let actors = node.wasmrun(["list", "actors"]).json(0);
    let actor = &actors["actors"][0];
    assert_eq!(actor["generation"], 1, "{actors}");
    assert_eq!(actor["failure"], serde_json::Value::Null, "{actors}");
}

#[test]
fn an_actor_leaves_a_node_that_does_not_own_it_and_its_owner_has_its_state() {
    let [a, b] = &cluster(["a", "b"]);
    a.command(&["tenant", "set", "blue", "--min", "CPU=1"]).ok();
    let there = ["--cpus", "1", "--strategy", "node:b"];
    let create = a.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "10", "--name", "total", "--tenant", "red"]);
    create.args(there).args(["--restarts", "1"]).ok();
    let call = || a.command(&["actor", "call", "total", "add(5)", "--tenant", "red"]);
    assert_eq!(call().ok(), "15\n");

    // Its CPU cannot be paused.
    let spin = detached(b, "spin()", &[&there[..], &["--tenant", "blue"]].concat());
    while rows(b, "tasks", &["state=running", "name=spin"]).is_empty() {}
    let waits = call().start();
    b.command(&["cancel", &spin, "--tenant", "blue"]).ok();
    let answered = waits.end();
    assert_eq!(answered.stdout_text(), "20\n", "{answered}");
    let attempts = rows(a, "attempts", &["state=retried"]);
    let error = attempts[0]["error"].as_str().expect("why");
    assert_says(error, &["tenant blue is below its guaranteed CPU: 0 of 1"]);
}

#[test]
fn who_may_ask_not_to_be_preempted_is_refused_at_first() {
    let node = Node::start();
    let submit = || submit(&node, "red", "fixture", "noop()").arg("--no-preempt");
    let refused = submit().fails(3);
    let says = "`wasmrun tenant set red --no-preempt allow`";
    assert_says(&refused, &["tasks of tenant red may not ask", says]);
    let allow = ["tenant", "set", "red", "--no-preempt", "allow"];
    let set = node.wasmrun(allow).ok();
    assert_says(&set, &["no minimum, may ask for --no-preempt"]);
    submit().ok();
}
