//! Where tasks run on several nodes: what selectors, strategies, arguments, room and tenants make of it.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use wasmrun_tests::{Stream, assert_says, guest};

use crate::anywhere::{cluster, detached, rows, wait_for};
use crate::cluster::{Member, wait_for_rest};
use crate::faults::eventually;
use crate::spread::call;

/// Nodes with options of their own that see each other. The first is the head.
pub(crate) fn nodes<const N: usize>(all: [(&'static str, &[&str]); N]) -> [Member; N] {
    let mut token = String::new();
    let members = all.map(|(name, options)| {
        let mut member = Member::new(name);
        if token.is_empty() {
            member.start(&[&["--head", "--listen", "127.0.0.1:0"], options].concat());
            token = member.token(&["--many"]);
        } else {
            member.start(&[&["--join", &token], options].concat());
        }
        member
    });
    for one in &members {
        for other in &members {
            one.wait_for_incarnation(other.name(), 1);
        }
    }
    members
}

/// The node where a task ran that was submitted at this one.
#[track_caller]
fn place(at: &Member, args: &[&str]) -> String {
    let place = call(at, "place()").args(args).ok();
    place.trim().trim_matches('"').to_owned()
}

/// What holds a CPU until it is cancelled, once it does.
pub(crate) fn hog(at: &Member, args: &[&str]) -> String {
    let task = detached(at, "hold()", &[&["--cpus", "1"], args].concat());
    wait_for(at, &task, "running");
    task
}

fn cancel(at: &Member, task: &str) {
    at.command(&["cancel", task]).ok();
    wait_for(at, task, "cancelled");
}

/// Tasks of this name that run, by a field of theirs.
fn running(at: &Member, name: &str, field: &str) -> BTreeMap<String, usize> {
    let name = format!("name={name}");
    let mut counts = BTreeMap::new();
    for row in rows(at, "tasks", &["state=running", &name]) {
        let value = row[field].as_str().expect("a text").to_owned();
        *counts.entry(value).or_default() += 1;
    }
    counts
}

/// Waits until so many of them run, and gives them.
#[track_caller]
fn wait_for_running(at: &Member, field: &str, count: usize) -> BTreeMap<String, usize> {
    eventually(&format!("{count} ran"), || {
        let seen = running(at, "hold", field);
        match seen.values().sum::<usize>() == count {
            true => Ok(seen),
            false => Err(format!("{seen:?}")),
        }
    })
}

#[test]
fn labels_of_nodes_decide_where_a_task_runs() {
    let [a, b, c] = nodes([
        ("a", &["--node-label", "zone=a"]),
        ("b", &["--node-label", "zone=b"]),
        ("c", &["--node-label", "zone=c", "--node-label", "disk=ssd"]),
    ]);
    for at in [&a, &b, &c] {
        for (selector, node) in [
            ("zone=b", "b"),
            ("zone in (b,c), disk", "c"),
            ("zone notin (a,c)", "b"),
            ("zone!=a, !disk", "b"),
            ("disk=ssd", "c"),
            ("wasmrun.io/hostname=a", "a"),
            // The first that some node has.
            ("zone=x; disk=hdd; zone=a", "a"),
        ] {
            assert_eq!(
                place(at, &["--label-selector", selector]),
                node,
                "{selector}"
            );
        }
    }
    // What nobody has yet is said, with what each has instead.
    let waits = detached(&a, "place()", &["--label-selector", "zone=d"]);
    wait_for(&c, &waits, "infeasible");
    for at in [&a, &b, &c] {
        let why = at.command(&["explain", &waits]).ok();
        for node in ["a", "b", "c"] {
            let verdict = format!("node {node}: infeasible: label zone=d does not match");
            assert!(why.contains(&verdict), "{why}");
        }
    }
    // Whoever joins with it gets the task.
    let mut d = Member::new("d");
    d.start(&["--join", &a.token(&[]), "--node-label", "zone=d"]);
    assert_eq!(wait_for(&b, &waits, "finished")["node"], "d");
}

#[test]
fn whoever_waits_for_a_node_that_is_not_there_is_told() {
    let [a, b] = nodes([("a", &[]), ("b", &[])]);
    let selector = ["--label-selector", "disk=ssd"];
    // Who asked for quiet has it; and it has waited longer than the other when that is told.
    let quiet = call(&b, "place()").args(selector).start();
    let loud = b.command(&["submit"]).arg(guest("spread"));
    let mut loud = loud.args(["--invoke", "place()"]).args(selector).start();
    loud.wait_for(Stream::Err, "node b: infeasible: label disk=ssd");
    assert_says(
        &loud.written(Stream::Err),
        &["warning: task ", "it waits for a node that can run it"],
    );
    let mut c = Member::new("c");
    let token = a.token(&[]);
    c.start(&["--join", &token, "--node-label", "disk=ssd"]);
    for mut running in [loud, quiet] {
        running.wait_for_exit();
        let ended = running.end();
        assert_eq!(ended.stdout_text(), "\"c\"\n", "{ended}");
        let is_told = ended.stderr.contains("warning");
        assert_eq!(is_told, !ended.to_string().contains(" -q "), "{ended}");
    }
}

#[test]
fn a_list_is_filtered_by_its_own_fields_only() {
    let [a] = nodes([("a", &[])]);
    for what in [
        "tasks", "attempts", "actors", "objects", "jobs", "modules", "nodes", "tenants", "groups",
    ] {
        let error = a.command(&["list", what, "-f", "colour=red"]).fails(2);
        let says = ["this list has no field 'colour'", "can be filtered by"];
        assert_says(&error, &says);
        // Each that it names can be asked for.
        let (_, fields) = error.trim().split_once("filtered by ").expect("a list");
        for field in fields.split(", ") {
            let ask = |value: &str| a.command(&["list", what, "-f", &format!("{field}={value}")]);
            let value = match field {
                "id" | "job" | "parent" | "digest" => "0".to_owned(),
                "state" | "place" | "kept" | "kind" | "detached" => {
                    let error = ask("red").fails(2);
                    let (_, choices) = error.split_once("choose from ").expect("choices");
                    let first = choices.trim().split(", ").next();
                    first.expect("there are some").to_owned()
                }
                _ => "red".to_owned(),
            };
            ask(&value).ok();
        }
    }
}

#[test]
fn a_newcomer_takes_what_waits() {
    let [a] = nodes([("a", &[])]);
    let hog = hog(&a, &[]);
    let asks = ["--cpus", "1"];
    let waiting: Vec<String> = (0..8).map(|_| detached(&a, "place()", &asks)).collect();
    assert_eq!(rows(&a, "tasks", &["state=ready"]).len(), 8);
    let mut b = Member::new("b");
    b.start(&["--join", &a.token(&[])]);
    // All of them: what was kept is on its way out as soon as there is room.
    for task in &waiting {
        assert_eq!(wait_for(&a, task, "finished")["node"], "b");
    }
    cancel(&a, &hog);
}

#[test]
fn a_task_goes_where_its_large_arguments_are() {
    let members = cluster(["a", "b", "c"]);
    for at in &members {
        for maker in ["a", "b", "c"] {
            // 160 KB, wherever it was submitted.
            let what = format!(r#"follows("{maker}", 20000, false)"#);
            assert_eq!(call(at, &what).ok(), format!("ok(\"{maker}\")\n"));
        }
        // Less than that does not count: the node where it is submitted has room.
        let home = call(at, r#"follows("b", 100, false)"#).args(["--strategy", "node:a"]);
        assert_eq!(home.ok(), "ok(\"a\")\n");
        // Nor is a node waited for that is full.
        let full = call(at, r#"follows("b", 20000, true)"#).args(["--strategy", "node:a"]);
        assert_eq!(full.ok(), "ok(\"a\")\n");
    }
    wait_for_rest(&members);
}

#[test]
fn what_finds_no_room_at_a_node_goes_elsewhere_or_says_what_it_waits_for() {
    let [a, b] = &cluster(["a", "b"]);
    let at_a = hog(a, &["--strategy", "node:a"]);
    assert_eq!(place(a, &["--cpus", "1"]), "b");
    let at_b = hog(a, &[]);
    assert_eq!(wait_for(a, &at_b, "running")["node"], "b");
    let waits = detached(a, "place()", &["--cpus", "0.5"]);
    for at in [a, b] {
        let why = eventually("both were full", || {
            let why = at.command(&["explain", &waits]).ok();
            let lacks = "unavailable: CPU: needs 0.5 of one unit, node has at most 0";
            let is_said = |node| why.contains(&format!("node {node}: {lacks}"));
            match is_said("a") && is_said("b") {
                true => Ok(why),
                false => Err(why),
            }
        });
        assert_says(&why, &["it waits for resources"]);
    }
    cancel(a, &at_b);
    assert_eq!(wait_for(a, &waits, "finished")["node"], "b");
    cancel(b, &at_a);
}

#[test]
fn a_tenant_s_share_is_of_all_nodes() {
    let [a, b] = &cluster(["a", "b"]);
    let submit = |at: &Member, tenant: &str, node: &str| {
        let strategy = format!("node:{node}");
        let args = [
            "--cpus",
            "0.25",
            "--tenant",
            tenant,
            "--strategy",
            &strategy,
        ];
        detached(at, "hold()", &args)
    };
    // One half of the cluster is red's, and nobody's turn has come at the other.
    let reds: Vec<String> = (0..4).map(|_| submit(a, "red", "a")).collect();
    let hold = ["--cpus", "1", "--strategy", "node:b", "--tenant", "green"];
    let hog = detached(a, "hold()", &hold);
    eventually("green had b", || {
        let seen = running(a, "hold", "tenant");
        if seen.contains_key("green") {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(("red", submit(a, "red", "b")));
        waiting.push(("blue", submit(b, "blue", "b")));
    }
    eventually("b knew what red has", || {
        let ready = rows(b, "tasks", &["state=ready", "node=b"]).len();
        let red = rows(b, "tenants", &["name=red", "node=b"]);
        let share = red.first().map_or(&Json::Null, |row| &row["share"]);
        match ready == 8 && share == "0.5000" {
            true => Ok(()),
            false => Err(format!("{ready} {red:?}")),
        }
    });
    a.command(&["cancel", &hog, "--tenant", "green"]).ok();
    // All of b is blue's now: red has as much elsewhere.
    let tenants = eventually("eight ran", || {
        let tenants = running(a, "hold", "tenant");
        match tenants.values().sum::<usize>() == 8 && !tenants.contains_key("green") {
            true => Ok(tenants),
            false => Err(format!("{tenants:?}")),
        }
    });
    assert_eq!(tenants["blue"], 4, "{tenants:?}");
    for task in &reds {
        b.command(&["cancel", task, "--tenant", "red"]).ok();
    }
    for (tenant, task) in &waiting {
        a.command(&["cancel", task, "--tenant", tenant]).ok();
    }
    wait_for_rest([a, b]);
}

/// What tasks hold that run: of each GPU of each node, in ten-thousandths.
fn gpus(at: &Member) -> BTreeMap<(String, u32), u32> {
    let mut held = BTreeMap::new();
    for row in rows(at, "tasks", &["state=running", "name=hold"]) {
        let id = row["id"].as_str().expect("an id");
        // It says so as soon as it has begun.
        let said = eventually("it said what it holds", || {
            let said = at.command(&["logs", id]).ok();
            match said.contains("holds") {
                true => Ok(said),
                false => Err(said),
            }
        });
        for line in said.lines().filter(|line| *line != "holds") {
            let [node, unit, amount] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert_eq!(row["node"], node);
            let key = (node.to_owned(), unit.parse().expect("a number"));
            *held.entry(key).or_default() += amount.parse::<u32>().expect("a number");
        }
    }
    held
}

#[test]
fn no_part_of_a_gpu_is_given_twice_on_several_nodes() {
    let [a, b] = nodes([("a", &["--node-gpus", "2"]), ("b", &["--node-gpus", "2"])]);
    // In eighths: they are packed so that all four are full, and more wait.
    let mut waiting = BTreeMap::new();
    for (gpus, count) in [("1", 2), ("0.5", 4), ("0.25", 8)] {
        for at in 0..count {
            let at = if at % 2 == 0 { &a } else { &b };
            let args = ["--cpus", "0", "--gpus", gpus];
            waiting.insert(detached(at, "hold()", &args), gpus);
        }
    }
    // Round after round, those that run end, and others begin.
    while !waiting.is_empty() {
        let total: f64 = waiting
            .values()
            .map(|gpus| gpus.parse::<f64>().expect("a number"))
            .sum();
        let begun = eventually("all GPUs were in use", || {
            let begun = rows(&a, "tasks", &["state=running", "name=hold"]);
            let ids = begun.iter().map(|row| row["id"].as_str().expect("an id"));
            let used: f64 = ids
                .clone()
                .map(|id| waiting[id].parse::<f64>().expect("a number"))
                .sum();
            let ids: Vec<String> = ids.map(str::to_owned).collect();
            match used == total.min(4.0) {
                true => Ok(ids),
                false => Err(format!("{used} of {total}: {begun:?}")),
            }
        });
        let held = gpus(&a);
        assert!(held.values().all(|amount| *amount <= 10_000), "{held:?}");
        assert!(held.keys().all(|(_, unit)| *unit < 2), "{held:?}");
        for id in begun {
            cancel(&b, &id);
            waiting.remove(&id);
        }
    }
    wait_for_rest([&a, &b]);
}

#[test]
fn a_node_that_drains_begins_nothing_and_ends_what_runs() {
    let [a, b, c] = &cluster(["a", "b", "c"]);
    let stays = detached(a, r#"stay("go")"#, &["--strategy", "node:b"]);
    wait_for(a, &stays, "running");
    c.command(&["node", "drain", "b"]).ok();
    for at in [a, b, c] {
        at.wait_for("b", "draining");
    }
    for at in [a, b, c] {
        let places = call(at, "place()").args(["--strategy", "spread", "--array", "0-8"]);
        let places = places.ok();
        assert!(!places.contains("\"b\""), "{places}");
        assert_ne!(place(at, &["--strategy", "node:b:soft"]), "b");
        assert_ne!(place(at, &[]), "b");
    }
    // What may run nowhere else waits, and says so.
    let bound = detached(a, "place()", &["--strategy", "node:b"]);
    let why = eventually("it waited", || {
        let why = c.command(&["explain", &bound]).ok();
        match why.contains("node b: ") {
            true => Ok(why),
            false => Err(why),
        }
    });
    assert_says(&why, &["node b: ", "drain"]);
    assert_eq!(wait_for(c, &stays, "running")["node"], "b");
    let create = a.command(&["actor", "create"]).arg(guest("spread"));
    let go = ["tally", "0", "--name", "go", "--strategy", "node:a"];
    create.args(go).ok();
    wait_for(a, &stays, "finished");
    assert_eq!(a.command(&["object", "get", &stays]).ok(), "\"b\"\n");
    a.command(&["actor", "kill", "go"]).ok();
    assert_ne!(a.command(&["get", &bound]).json(0)["state"], "finished");
    a.command(&["node", "drain", "b", "--undo"]).ok();
    assert_eq!(wait_for(c, &bound, "finished")["node"], "b");
}

#[test]
fn whoever_wants_a_node_waits_for_it_as_long_as_it_is_there() {
    let [a, b, c] = &mut cluster(["a", "b", "c"]);
    hog(b, &["--strategy", "node:b"]);
    let asks = |strategy| detached(a, "place()", &["--cpus", "1", "--strategy", strategy]);
    let (hard, soft) = (asks("node:b"), asks("node:b:soft"));
    for task in [&hard, &soft] {
        let seen = wait_for(a, task, "ready");
        assert_eq!(seen["node"], "b", "{seen}");
    }
    // There are others that could.
    assert_ne!(place(a, &["--cpus", "1"]), "b");
    b.kill();
    let seen = wait_for(c, &hard, "failed");
    assert_says(
        seen["error"]["message"].as_str().expect("a text"),
        &["unschedulable", "node b is not in the cluster"],
    );
    let seen = wait_for(c, &soft, "finished");
    assert_ne!(seen["node"], "b", "{seen}");
    call(a, "place()")
        .args(["--strategy", "node:b"])
        .fails_saying(
            3,
            &["node b is not in the cluster", "make the affinity soft"],
        );
    assert_ne!(place(a, &["--strategy", "node:b:soft"]), "b");
}

#[test]
fn spread_is_even() {
    let members = cluster(["a", "b", "c"]);
    for at in &members {
        let hold = |_| detached(at, "hold()", &["--strategy", "spread"]);
        let tasks: Vec<String> = (0..9).map(hold).collect();
        let places = wait_for_running(at, "node", 9);
        assert!(places.values().all(|count| *count == 3), "{places:?}");
        tasks.iter().for_each(|task| cancel(at, task));
    }
    wait_for_rest(&members);
}

/// Also though each has memory, as every sandbox has.
#[test]
fn actors_that_ask_for_nothing_do_not_gather_where_they_are_created() {
    let members = cluster(["a", "b", "c"]);
    let (a, of_class) = (&members[0], guest("spread"));
    let create = |name: &str, args: &[&str]| {
        let create = a.command(&["actor", "create"]).arg(&of_class);
        create.args(["tally", "0", "--name", name]).args(args).ok();
    };
    let places = || {
        let mut counts = BTreeMap::new();
        for row in rows(a, "actors", &[]) {
            let node = row["node"].as_str().expect("a name").to_owned();
            *counts.entry(node).or_insert(0) += 1;
        }
        counts
    };
    (0..12).for_each(|at| create(&format!("idle-{at}"), &[]));
    let seen = places();
    assert!(seen.len() > 1, "{seen:?}");
    assert_eq!(seen.values().sum::<usize>(), 12);
    (0..12).for_each(|at| drop(a.command(&["actor", "kill", &format!("idle-{at}")]).ok()));
    a.wait_for_rest();
    // What asks for something goes to the node where it is created, while that is nearly idle.
    for (at, args) in [["--cpus", "0.01"], ["--memory", "65MiB"]]
        .iter()
        .enumerate()
    {
        (0..6).for_each(|it| create(&format!("busy-{at}-{it}"), args));
    }
    // So does what is told where to go.
    create("told", &["--strategy", "node:b"]);
    let wanted = BTreeMap::from([("a".to_owned(), 12), ("b".to_owned(), 1)]);
    assert_eq!(places(), wanted);
}

/// It can never serve them, and the other node and its own owner are of one mind about that.
#[test]
fn a_soft_node_that_can_never_serve_a_task_is_in_nobodys_way() {
    let [a, b] = nodes([
        ("a", &[]),
        ("b", &["--node-gpus", "1", "--node-label", "disk=ssd"]),
    ]);
    let soft = ["--strategy", "node:a:soft"];
    for at in [&a, &b] {
        for asked in [["--gpus", "1"], ["--label-selector", "disk=ssd"]] {
            let args = [soft, asked].concat();
            assert_eq!(place(at, &args), "b", "{asked:?} at {}", at.name());
        }
        let name = format!("of-{}", at.name());
        let create = at.command(&["actor", "create"]).arg(guest("spread"));
        let create = create.args(["tally", "0", "--name", &name, "--gpus", "1"]);
        create.args(soft).ok();
        let sum = at.command(&["actor", "call", &name, "sum([1, 2])"]).ok();
        assert_eq!(sum, "3\n");
        at.command(&["actor", "kill", &name]).ok();
    }
}
