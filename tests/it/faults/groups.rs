//! Detached placement groups whose owner is lost: another node takes them over, and what runs in their bundles goes on.

use rustix::process::Signal;
use serde_json::Value as Json;
use wasmrun_tests::{Running, Wasmrun, assert_says, guest};

use super::world::{Node, Three, eventually, wait_for_rest};

/// A detached group with a bundle for each node, if they have room. Its id.
fn create(at: &Node, name: &str) -> String {
    create_of(at, name, "cpus=0.3,memory=128MiB")
}

/// The same of bundles like this.
pub(super) fn create_of(at: &Node, name: &str, bundle: &str) -> String {
    let create = at.command(&["group", "create", "--detach", "--kind", "spread"]);
    let bundle = ["--bundle", bundle];
    let create = (0..3).fold(create.args(["--name", name]), |it, _| it.args(bundle));
    let ended = create.run();
    assert_eq!(ended.code, Some(0), "{ended}");
    // One that is kept says nothing.
    assert!(!ended.stderr.contains("is lost"), "{ended}");
    ended.stdout_text().trim().to_owned()
}

/// Waits until it is ready, by what a node says.
#[track_caller]
pub(super) fn ready(at: &Node, group: &str) {
    let ready = at.command(&["group", "ready", group, "--timeout", "90s"]);
    let ended = ready.run();
    assert_eq!(ended.code, Some(0), "{ended}");
}

/// The groups that a node lists.
pub(super) fn listed(at: &Node) -> Vec<Json> {
    let listed = at.command(&["group", "list"]).json(0);
    listed["groups"].as_array().expect("a list").clone()
}

/// The nodes of the bundles of the only group.
pub(super) fn places(at: &Node) -> Vec<String> {
    let groups = listed(at);
    let [group] = &groups[..] else {
        panic!("not one: {groups:?}");
    };
    let bundles = group["bundles"].as_array().expect("bundles").iter();
    let nodes = bundles.map(|it| it["node"].as_str().expect("it is ready").to_owned());
    nodes.collect()
}

/// Waits until a node lists the group once, with this owner or, if it must not be this one, any other.
#[track_caller]
pub(super) fn wait_for_owner(at: &Node, group: &str, is_it: impl Fn(&str) -> bool) -> String {
    eventually(&format!("owned, by {}", at.name), || {
        let groups = listed(at);
        let is_owned = |row: &Json| row["id"] == group && row["state"] != "unowned";
        match &groups[..] {
            [row] if is_owned(row) && is_it(row["node"].as_str().expect("a name")) => {
                Ok(row["node"].as_str().expect("a name").to_owned())
            }
            other => Err(format!("{other:?}")),
        }
    })
}

/// The number of the bundle that is on a node.
fn bundle_at(places: &[String], node: &str) -> usize {
    let at = places.iter().position(|place| place == node);
    at.unwrap_or_else(|| panic!("none on {node}: {places:?}"))
}

/// Something to run in a bundle.
pub(super) fn within(at: &Node, group: &str, bundle: usize, call: &str) -> Wasmrun {
    let submit = at.command(&["submit", "-q"]).arg(guest("fixture"));
    let submit = submit.args(["--invoke", call, "--cpus", "0.1", "--memory", "32MiB"]);
    submit.args(["--strategy", &format!("group:{group}:{bundle}")])
}

/// An actor in a bundle, which counts from 10 and does not begin again.
fn counter(at: &Node, group: &str, bundle: usize) {
    let create = at.command(&["actor", "create"]).arg(guest("graph"));
    let create = create.args(["counter", "10", "--name", "total", "--cpus", "0.1"]);
    let create = create.args(["--memory", "32MiB"]);
    let create = create.args(["--strategy", &format!("group:{group}:{bundle}")]);
    create.ok();
}

/// Calls it. What it has counted.
#[track_caller]
fn add(at: &Node, number: u32) -> String {
    let call = at.command(&["actor", "call", "total"]);
    let ended = call.arg(format!("add({number})")).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    ended.stdout_text().trim().to_owned()
}

/// A task that runs in a bundle until somebody ends it.
fn forever(at: &Node, group: &str, bundle: usize) -> Running {
    let running = within(at, group, bundle, "sleep-forever()").start();
    eventually("a task ran in the bundle", || {
        let list = [
            "list",
            "tasks",
            "-f",
            "name=sleep-forever",
            "-f",
            "state=running",
        ];
        let tasks = at.command(&list).json(0);
        match tasks["tasks"].as_array().expect("a list").is_empty() {
            true => Err(tasks.to_string()),
            false => Ok(()),
        }
    });
    running
}

/// Ends the group at a node, and the actor and task in it: all of them have gone on until now.
#[track_caller]
fn remove(at: &Node, group: &str, mut task: Running, left: &[&Node]) {
    assert!(task.is_running(), "{}", task.end());
    at.command(&["group", "remove", group]).ok();
    let ended = task.end();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(&ended.stderr, &["placement group ", " was removed"]);
    for node in left {
        node.wait_for_rest();
        eventually("the group was gone", || match listed(node) {
            groups if groups.is_empty() => Ok(()),
            groups => Err(format!("{groups:?}")),
        });
    }
}

/// Three nodes, a group with a bundle on each, and what runs in two of them: an actor, and a task for ever.
struct Scene {
    three: Three,
    group: String,
    /// The nodes of its bundles.
    before: Vec<String>,
    running: Running,
}

impl Scene {
    /// `at`: where the group is created, and where the task is submitted. The others are the nodes of their bundles.
    fn new(at: impl Fn(&Three) -> [&Node; 2], actor_on: &str, task_on: &str) -> Self {
        let three = Three::new();
        let [creator, submitter] = at(&three);
        let group = create(creator, "kept");
        ready(&three.b, &group);
        let before = places(&three.b);
        counter(&three.c, &group, bundle_at(&before, actor_on));
        let running = forever(submitter, &group, bundle_at(&before, task_on));
        Self {
            three,
            group,
            before,
            running,
        }
    }
}

#[test]
fn a_detached_group_outlives_the_node_that_created_it() {
    let scene = Scene::new(|three| [&three.b, &three.a], "a", "c");
    let Scene {
        mut three,
        group,
        before,
        running,
    } = scene;
    let at_b = bundle_at(&before, "b");
    assert_eq!(add(&three.c, 5), "15");
    three.b.kill();
    // It waits for its bundle, whoever owns that.
    let waiting = within(&three.c, &group, at_b, "join(\"ab\", 2, none)").start();
    let owner = wait_for_owner(&three.c, &group, |node| node != "b");
    assert_eq!(waiting.end().stdout_text(), "\"abab\"\n");
    for node in [&three.a, &three.c] {
        ready(node, "kept");
        let after = places(node);
        assert_ne!(after[at_b], "b");
        for (bundle, place) in after.iter().enumerate() {
            assert!(
                bundle == at_b || *place == before[bundle],
                "{before:?}, {after:?}"
            );
        }
        let explained = node.command(&["explain", &group]).ok();
        assert!(explained.contains("(spread) has been ready"), "{explained}");
    }
    assert_eq!(add(&three.a, 5), "20");
    let other = match &*owner {
        "a" => &three.c,
        _ => &three.a,
    };
    remove(other, &group, running, &[&three.a, &three.c]);
}

#[test]
fn a_group_of_a_head_that_was_killed_is_there_when_that_is_back() {
    let scene = Scene::new(|three| [&three.a, &three.b], "b", "c");
    let Scene {
        mut three,
        group,
        before,
        running,
    } = scene;
    three.a.kill();
    three.a.start(&["--head"]);
    three.meet();
    for node in three.all() {
        ready(node, &group);
    }
    assert_eq!(add(&three.b, 5), "15");
    let at_a = bundle_at(&before, "a");
    let ended = within(&three.c, &group, at_a, "join(\"ab\", 2, none)").run();
    assert_eq!(ended.stdout_text(), "\"abab\"\n", "{ended}");
    remove(&three.c, &group, running, &three.all());
}

#[test]
fn a_node_that_was_killed_and_started_again_finds_its_group_as_it_was() {
    let scene = Scene::new(|three| [&three.b, &three.c], "c", "a");
    let Scene {
        mut three,
        group,
        running,
        ..
    } = scene;
    three.b.kill();
    // Perhaps another has it by now.
    three.b.start(&["--join"]);
    three.meet();
    for node in three.all() {
        ready(node, &group);
        assert_eq!(places(node).len(), 3);
    }
    assert_eq!(add(&three.c, 5), "15");
    remove(&three.b, &group, running, &three.all());
}

#[test]
fn a_node_that_stops_leaves_its_group_to_another() {
    let scene = Scene::new(|three| [&three.b, &three.a], "a", "c");
    let Scene {
        mut three,
        group,
        running,
        ..
    } = scene;
    three.b.running().signal(Signal::TERM);
    let ended = three.b.stopped();
    assert_eq!(ended.code, Some(0), "{ended}");
    wait_for_owner(&three.c, &group, |node| node != "b");
    ready(&three.a, &group);
    assert!(places(&three.a).iter().all(|node| node != "b"));
    assert_eq!(add(&three.c, 5), "15");
    remove(&three.c, &group, running, &[&three.a, &three.c]);
}

#[test]
fn a_node_that_was_frozen_gives_up_a_group_that_another_one_has_taken_over() {
    let scene = Scene::new(|three| [&three.b, &three.a], "a", "c");
    let Scene {
        mut three,
        group,
        running,
        ..
    } = scene;
    three.b.running().signal(Signal::STOP);
    three.a.wait_for("b", "dead");
    let owner = wait_for_owner(&three.a, &group, |node| node != "b");
    ready(&three.a, &group);
    let after = places(&three.a);
    three.b.running().signal(Signal::CONT);
    three.a.wait_for_incarnation("b", 2);
    three.meet();
    for node in three.all() {
        wait_for_owner(node, &group, |node| node == owner);
        ready(node, &group);
        assert_eq!(places(node), after);
    }
    // It has nothing of the group any more.
    three.b.wait_for_rest();
    assert_eq!(add(&three.b, 5), "15");
    remove(&three.b, &group, running, &three.all());
}

#[test]
fn a_group_that_nobody_owns_just_now_is_listed_as_such() {
    let mut three = Three::new();
    let group = create(&three.b, "kept");
    ready(&three.c, &group);
    // Those that are left are about to stop, and take nothing over.
    let before = places(&three.c);
    let running = ["a", "c"].map(|name| {
        let bundle = bundle_at(&before, name);
        forever(three.node(name), &group, bundle)
    });
    for name in ["a", "c"] {
        let filter = format!("node={name}");
        eventually("a task ran there", || {
            let list = ["list", "tasks", "-f", "state=running", "-f", &filter];
            let tasks = three.c.command(&list).json(0);
            match tasks["tasks"].as_array().expect("a list").len() {
                1 => Ok(()),
                _ => Err(tasks.to_string()),
            }
        });
        three.node_mut(name).running().signal(Signal::TERM);
        three.node(name).wait_for(name, "stopping");
    }
    three.b.kill();
    three.a.wait_for("b", "dead");
    let unowned = eventually("listed", || match &listed(&three.a)[..] {
        [row] if row["state"] == "unowned" => Ok(row.clone()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(
        [&unowned["id"], &unowned["name"], &unowned["kind"]],
        [&*group, "kept", "spread"]
    );
    assert_eq!(
        (&unowned["node"], &unowned["detached"]),
        (&"b".into(), &true.into())
    );
    let why = unowned["why"].as_str().expect("why");
    assert_says(why, &["node b, which owned it, is lost", "takes it over"]);
    let bundles = unowned["bundles"].as_array().expect("bundles");
    assert_eq!(bundles.len(), 3);
    for bundle in bundles {
        assert!(bundle["node"].is_null(), "{bundle}");
        assert_eq!(bundle["resources"]["CPU"], "0.3");
    }
    let filter = ["list", "groups", "-f", "state=unowned", "-f", "name=kept"];
    let filtered = three.a.command(&filter).json(0);
    assert_eq!(filtered["groups"].as_array().map(Vec::len), Some(1));
    let filtered = three.a.command(&["list", "groups", "-f", "state=ready"]);
    assert_eq!(filtered.json(0)["groups"], serde_json::json!([]));
    let explained = three.a.command(&["explain", &group]).run();
    assert_says(&explained.stderr, &["has no owner that answers just now"]);
    // Whoever had it takes it up again.
    three.b.start(&["--join"]);
    wait_for_owner(&three.a, &group, |node| node == "b");
    three.b.command(&["group", "remove", &group]).ok();
    // It is not said to be without an owner because its record is still there.
    assert_eq!(
        listed(&three.b)
            .iter()
            .filter(|it| it["state"] == "unowned")
            .count(),
        0
    );
    // What the others have waited for has ended with the group. They are gone then, and have nothing to be asked for.
    for running in running {
        let ended = running.end();
        assert_eq!(ended.code, Some(5), "{ended}");
    }
    for name in ["c", "a"] {
        let ended = three.node_mut(name).stopped();
        assert_eq!(ended.code, Some(0), "{ended}");
    }
    three.b.wait_for_rest();
}

#[test]
fn a_group_that_was_removed_is_not_taken_over() {
    let mut three = Three::new();
    let group = create(&three.b, "kept");
    ready(&three.c, &group);
    three.c.command(&["group", "remove", &group]).ok();
    three.b.kill();
    // What is created afterwards is taken over, so this one would have been.
    let other = create(&three.c, "other");
    ready(&three.a, &other);
    three.a.wait_for("b", "dead");
    three.c.kill();
    wait_for_owner(&three.a, &other, |node| node == "a");
    ready(&three.a, "other");
    three.a.command(&["group", "remove", "other"]).ok();
    three.a.wait_for_rest();
}

#[test]
fn a_group_that_is_created_while_the_control_store_is_away_says_so() {
    let mut three = Three::new();
    three.a.running().signal(Signal::STOP);
    let create = three.b.command(&["group", "create", "--detach"]);
    let create = create.args(["--kind", "pack", "--name", "kept"]);
    let ended = create.args(["--bundle", "cpus=0.3"]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let parts = [
        "ends if node b is lost",
        "the control store does not answer",
    ];
    assert_says(&ended.stderr, &parts);
    let group = ended.stdout_text().trim().to_owned();
    three.a.running().signal(Signal::CONT);
    three.meet();
    // Records are written one after the other.
    let second = eventually("the store was back", || {
        let create = three.b.command(&["group", "create", "--detach"]);
        let create = create.args(["--kind", "pack", "--bundle", "cpus=0.1"]);
        let ended = create.run();
        let id = ended.stdout_text().trim().to_owned();
        match ended.stderr.contains("is lost") {
            true => Err(ended.to_string()),
            false => Ok(id),
        }
    });
    three.b.kill();
    three.a.wait_for("b", "dead");
    for group in [&group, &second] {
        ready(&three.c, group);
    }
    for row in listed(&three.a) {
        let id = row["id"].as_str().expect("an id");
        three.a.command(&["group", "remove", id]).ok();
    }
    wait_for_rest([&three.a, &three.c]);
}
