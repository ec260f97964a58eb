//! Detached tasks whose node is lost: they go on elsewhere, under the same ids, and are counted once.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Running, Stream, assert_says, guest};

use super::world::{Node, Three, eventually, wait_for_rest};

/// Submits a function of the fixture so that it outlives its client. Its id.
pub(super) fn detached(at: &Node, call: &str) -> String {
    let submit = at.command(&["submit"]).arg(guest("fixture"));
    let ended = submit.args(["--invoke", call, "--detach"]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    // A node that keeps it says nothing.
    assert!(!ended.stderr.contains("is lost if"), "{ended}");
    ended.stdout_text().trim().to_owned()
}

/// What a node knows of a task, once it is in this state.
#[track_caller]
pub(super) fn wait_for(at: &Node, task: &str, state: &str) -> Json {
    eventually(&format!("was {task} {state} for {}", at.name), || {
        let got = at.command(&["get", task, "-o", "json"]).run();
        let seen: Json = serde_json::from_str(&got.stdout_text()).unwrap_or_default();
        match seen["state"] == state {
            true => Ok(seen),
            false => Err(got.to_string()),
        }
    })
}

/// The rows of all tasks of this name, as a node lists them.
pub(super) fn rows(at: &Node, name: &str) -> Vec<Json> {
    let list = at.command(&["list", "tasks", "-f", &format!("name={name}")]);
    let list = list.json(0);
    list["tasks"].as_array().expect("a list").clone()
}

/// The result of a task, from whichever of these nodes has it.
#[track_caller]
pub(super) fn result(nodes: [&Node; 2], task: &str) -> String {
    let got = nodes.map(|node| node.command(&["object", "get", task]).run());
    let found = got.iter().find(|ended| ended.code == Some(0));
    let found = found.unwrap_or_else(|| panic!("nobody has it: {} {}", got[0], got[1]));
    found.stdout_text()
}

/// Keeps the only CPU of a node.
fn busy(node: &Node) -> Running {
    let mut running = node.call("spin(\"x\")").start();
    running.wait_for(Stream::Err, "spins");
    running
}

#[test]
fn what_was_queued_running_and_done_at_a_node_that_is_killed_is_there_afterwards() {
    let mut three = Three::new();
    let done = detached(&three.b, "join(\"ab\", 2, none)");
    let printed = detached(&three.b, "print(\"hello\")");
    let failed = detached(&three.b, "fail(\"so\")");
    for (task, state) in [
        (&done, "finished"),
        (&printed, "finished"),
        (&failed, "failed"),
    ] {
        wait_for(&three.c, task, state);
    }
    // Nobody has a CPU for more than what runs.
    let spinning = [busy(&three.a), busy(&three.c)];
    let running = detached(&three.b, "sleep(2000)");
    wait_for(&three.b, &running, "running");
    let queued = detached(&three.b, "join(\"cd\", 3, some(\"e\"))");
    assert_ne!(wait_for_any(&three.b, &queued)["state"], "finished");
    // What ended is written down behind its end: this is answered after that.
    three.b.kill();
    three.a.wait_for("b", "dead");
    for spinning in spinning {
        spinning.signal(Signal::INT);
        spinning.end();
    }
    for node in [&three.a, &three.c] {
        wait_for(node, &running, "finished");
        wait_for(node, &queued, "finished");
        wait_for(node, &done, "finished");
        let seen = wait_for(node, &failed, "failed");
        assert_says(&seen["error"].to_string(), &["so"]);
        assert_eq!(
            node.command(&["logs", &printed]).run().stdout_text(),
            "hello\n"
        );
        assert_eq!(rows(node, "join").len(), 2);
    }
    // What it was given is in its record, and so the node that has the record knows it.
    let job = wait_for_any(&three.c, &failed)["job"].clone();
    let job = job.as_str().expect("an id");
    let again = three.c.command(&["job", "rerun", "--failed", job]).run();
    assert_eq!(again.code, Some(0), "{again}");
    let again = wait_for(&three.c, again.stdout_text().trim(), "failed");
    assert_says(&again["error"].to_string(), &["so"]);
    let others = [&three.a, &three.c];
    assert_eq!(result(others, &done), "\"abab\"\n");
    assert_eq!(result(others, &queued), "\"cdcdcde\"\n");
    for node in others {
        node.wait_for_rest();
    }
}

/// What a node says of a task.
fn wait_for_any(at: &Node, task: &str) -> Json {
    at.command(&["get", task]).json(0)
}

#[test]
fn a_node_that_was_frozen_gives_up_what_another_one_has_taken_over() {
    let mut three = Three::new();
    let task = detached(&three.b, "sleep-forever()");
    wait_for(&three.c, &task, "running");
    three.b.running().signal(Signal::STOP);
    three.a.wait_for("b", "dead");
    // It is another node's now: b says nothing of it.
    let seen = eventually("it ran elsewhere", || {
        match rows(&three.c, "sleep-forever").pop() {
            Some(row) if row["state"] == "running" => Ok(row),
            other => Err(format!("{other:?}")),
        }
    });
    assert_ne!(seen["node"], "b");
    three.b.running().signal(Signal::CONT);
    three.a.wait_for_incarnation("b", 2);
    three.meet();
    // Its own attempt is cancelled, and nothing is taken by it any more.
    three.b.wait_for_rest();
    for node in three.all() {
        let rows = rows(node, "sleep-forever");
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(
            (&rows[0]["state"], &rows[0]["node"]),
            (&seen["state"], &seen["node"])
        );
    }
    three.b.command(&["cancel", &task]).ok();
    for node in three.all() {
        assert_eq!(wait_for(node, &task, "cancelled")["id"], *task);
        node.wait_for_rest();
    }
}

#[test]
fn a_head_that_was_killed_goes_on_with_what_was_submitted_there() {
    let mut three = Three::new();
    let done = detached(&three.a, "join(\"ab\", 2, none)");
    wait_for(&three.a, &done, "finished");
    let forever = detached(&three.a, "sleep-forever()");
    wait_for(&three.a, &forever, "running");
    three.a.kill();
    three.a.start(&["--head"]);
    three.meet();
    wait_for(&three.c, &forever, "running");
    wait_for(&three.c, &done, "finished");
    for node in three.all() {
        assert_eq!(rows(node, "sleep-forever").len(), 1);
    }
    three.c.command(&["cancel", &forever]).ok();
    for node in three.all() {
        wait_for(node, &forever, "cancelled");
        node.wait_for_rest();
    }
}

#[test]
fn a_thousand_tasks_end_once_each_when_their_node_is_killed() {
    const TASKS: usize = 1000;
    let mut three = Three::new();
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", "sleep(20)", "--detach"]);
    let said = submit.args(["--array", &format!("0-{}", TASKS - 1)]).ok();
    let ids: Vec<&str> = said.lines().collect();
    assert_eq!(ids.len(), TASKS);
    three.b.kill();
    three.a.wait_for("b", "dead");
    for node in [&three.a, &three.c] {
        let ended = eventually("all ended", || {
            let rows = rows(node, "sleep");
            let is_over = |it: &Json| it["state"] == "finished";
            match rows.len() >= TASKS && rows.iter().all(is_over) {
                true => Ok(rows),
                false => {
                    let mut states = BTreeMap::<String, usize>::new();
                    for row in &rows {
                        *states.entry(row["state"].to_string()).or_default() += 1;
                    }
                    Err(format!("{states:?}"))
                }
            }
        });
        assert_eq!(ended.len(), TASKS);
        let listed: BTreeMap<&str, &Json> = ended
            .iter()
            .map(|row| (row["id"].as_str().expect("an id"), row))
            .collect();
        assert!(ids.iter().all(|id| listed.contains_key(id)));
    }
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn what_is_submitted_while_the_control_store_is_away_is_kept_when_it_is_back() {
    let mut three = Three::new();
    // The module is elsewhere before, and the node knows it.
    detached(&three.b, "noop()");
    three.a.running().signal(Signal::STOP);
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", "sleep-forever()", "--detach"]);
    let ended = submit.run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let parts = ["is lost if node b is", "the control store does not answer"];
    assert_says(&ended.stderr, &parts);
    let task = ended.stdout_text().trim().to_owned();
    three.a.running().signal(Signal::CONT);
    three.meet();
    // Records are written one after the other.
    eventually("the store was back", || {
        let submit = three.b.command(&["submit"]).arg(guest("fixture"));
        let ended = submit.args(["--invoke", "noop()", "--detach"]).run();
        match ended.stderr.contains("is lost if") {
            true => Err(ended.to_string()),
            false => Ok(()),
        }
    });
    three.b.kill();
    three.a.wait_for("b", "dead");
    wait_for(&three.c, &task, "running");
    three.c.command(&["cancel", &task]).ok();
    for node in [&three.a, &three.c] {
        wait_for(node, &task, "cancelled");
        node.wait_for_rest();
    }
}

#[test]
fn a_client_whose_node_is_restarted_before_it_answers_submits_once_more() {
    // On a busy machine the node may answer, with a warning, before it is killed.
    let is_seen = (0..5).any(|_| restarted_before_it_answers());
    assert!(is_seen, "it has answered in time, again and again");
}

/// Whether a node was killed before it had answered, and all came of that which should.
fn restarted_before_it_answers() -> bool {
    let b = Node::new("b").with(&["--log", "info,wasmrun_node=debug"]);
    let mut three = Three::with([Node::new("a"), b, Node::new("c")]);
    wait_for(&three.b, &detached(&three.b, "noop()"), "finished");
    // Nothing is durable as long as the store is silent, so nothing is answered for a while.
    three.a.running().signal(Signal::STOP);
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let submitting = submit
        .args(["--invoke", "sleep-forever()", "--detach"])
        .start();
    let is_under_way = |written: &str| written.matches("is under way").count() > 1;
    let running = three.b.running();
    running.wait_until(Stream::Err, "its record", is_under_way);
    three.b.kill();
    three.a.running().signal(Signal::CONT);
    three.b.start(&["--join"]);
    let ended = submitting.end();
    assert_eq!(ended.code, Some(0), "{ended}");
    if ended.stderr.contains("is lost if") {
        return false;
    }
    let task = ended.stdout_text().trim().to_owned();
    three.meet();
    for node in three.all() {
        wait_for(node, &task, "running");
        assert_eq!(rows(node, "sleep-forever").len(), 1);
    }
    three.c.command(&["cancel", &task]).ok();
    for node in three.all() {
        wait_for(node, &task, "cancelled");
        node.wait_for_rest();
    }
    true
}

/// Three nodes, an actor with restarts that was created at b, and was called once, which is known elsewhere.
fn counted() -> Three {
    let b = Node::new("b").with(&["--log", "info,wasmrun_node=debug"]);
    let mut three = Three::with([Node::new("a"), b, Node::new("c")]);
    let create = three.b.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "10", "--name", "total", "--cpus", "0"]);
    let create = create.args(["--restarts", "2", "--strategy", "node:b:soft"]);
    let ended = create.run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(add(&three.c, 5), "15\n");
    let kept = "the state of a detached actor is kept";
    three.b.running().wait_for(Stream::Err, kept);
    three
}

/// Calls the actor, which may be between two generations.
#[track_caller]
fn add(at: &Node, number: u32) -> String {
    eventually("the actor answered", || {
        let call = at.command(&["actor", "call", "total"]);
        let ended = call.arg(format!("add({number})")).run();
        match ended.code {
            Some(0) => Ok(ended.stdout_text()),
            _ => Err(ended.to_string()),
        }
    })
}

/// What a node says of the job of the actor but for where it is and how old.
fn job_of_actor(at: &Node) -> Vec<Json> {
    let list = at.command(&["list", "actors"]).json(0);
    let id = list["actors"][0]["job"].as_str().expect("an id").to_owned();
    let list = at.command(&["list", "jobs", "-f", &format!("id={id}")]);
    let job = &list.json(0)["jobs"][0];
    let fields = ["id", "name", "by", "tenant", "submitted_us", "state"];
    fields.iter().map(|field| job[*field].clone()).collect()
}

/// Where the actor lives, by what a node lists.
fn home_of_actor(at: &Node) -> String {
    let list = at.command(&["list", "actors"]).json(0);
    let actors = list["actors"].as_array().expect("a list");
    assert_eq!(actors.len(), 1, "{actors:?}");
    assert_eq!(actors[0]["name"], "total");
    actors[0]["node"].as_str().expect("a name").to_owned()
}

#[test]
fn an_actor_with_restarts_lives_on_with_its_state_when_the_node_that_created_it_is_killed() {
    let mut three = counted();
    let job = job_of_actor(&three.a);
    three.b.kill();
    three.a.wait_for("b", "dead");
    for (node, sum) in [(&three.a, "16\n"), (&three.c, "17\n")] {
        assert_eq!(add(node, 1), sum);
        assert_ne!(home_of_actor(node), "b");
        assert_eq!(job_of_actor(node), job);
    }
    three.c.command(&["actor", "kill", "total"]).ok();
    wait_for_rest([&three.a, &three.c]);
    // Its name is free.
    let create = three.c.command(&["actor", "create"]).arg(guest("graph"));
    create
        .args(["counter", "1", "--name", "total", "--cpus", "0"])
        .ok();
    assert_eq!(add(&three.a, 1), "2\n");
}

#[test]
fn what_an_actor_came_to_is_kept_when_its_node_stops() {
    let mut three = counted();
    // Sooner than states are looked at.
    assert_eq!(add(&three.b, 1), "16\n");
    three.b.running().signal(Signal::TERM);
    assert_eq!(three.b.stopped().code, Some(0));
    assert_eq!(add(&three.a, 1), "17\n");
    three.a.command(&["actor", "kill", "total"]).ok();
    wait_for_rest([&three.a, &three.c]);
}

#[test]
fn an_actor_without_restarts_left_is_explained_when_its_node_is_gone() {
    let mut three = Three::new();
    let create = three.b.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "1", "--name", "total", "--restarts", "1"]);
    create.args(["--strategy", "node:b:soft"]).ok();
    // That takes the one that it has.
    let crash = ["actor", "call", "total", "crash()"];
    three.b.command(&crash).fails(5);
    assert_eq!(add(&three.b, 1), "2\n");
    three.b.running().signal(Signal::TERM);
    assert_eq!(three.b.stopped().code, Some(0));
    for node in [&three.a, &three.c] {
        eventually("it was known to be over", || {
            let said = node.command(&["explain", "total"]).run();
            let is_over = said.stdout_text().contains("it has no restarts left");
            is_over.then_some(()).ok_or(said)
        });
        node.command(&["actor", "call", "total", "add(1)"])
            .fails_saying(
                2,
                &[
                    "there is no actor 'total' any more",
                    "node b, which owned it, is lost",
                ],
            );
        node.wait_for_rest();
    }
}

#[test]
fn an_actor_whose_creator_was_frozen_lives_once() {
    let mut three = counted();
    three.b.running().signal(Signal::STOP);
    three.a.wait_for("b", "dead");
    assert_eq!(add(&three.c, 1), "16\n");
    three.b.running().signal(Signal::CONT);
    three.a.wait_for_incarnation("b", 2);
    three.meet();
    three.b.wait_for_rest();
    for (node, sum) in [(&three.a, "17\n"), (&three.b, "18\n"), (&three.c, "19\n")] {
        assert_eq!(add(node, 1), sum);
        assert_ne!(home_of_actor(node), "b");
    }
    three.b.command(&["actor", "kill", "total"]).ok();
    wait_for_rest(three.all());
}

#[test]
fn who_submits_what_cannot_be_kept_is_told_why() {
    let three = Three::new();
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", "noop()", "--detach", "--dir", "/tmp::/tmp"]);
    let ended = submit.run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(
        &ended.stderr,
        &["is lost if node b is", "a folder of this machine"],
    );
    let with_folder = ended.stdout_text();
    let large = format!("echo-string(\"{}\")", "x".repeat(100_000));
    let submit = three.b.command(&["submit"]).arg(guest("fixture"));
    let ended = submit.args(["--invoke", &large, "--detach"]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(
        &ended.stderr,
        &["is lost if node b is", "kept at this node"],
    );
    let large = ended.stdout_text();
    for task in [with_folder.trim(), large.trim()] {
        wait_for(&three.b, task, "finished");
    }
    three.b.command(&["object", "delete", large.trim()]).ok();
    wait_for_rest(three.all());
}
