//! Objects: stored, copied and mapped; what is left in memory after a window; handles and their names;
//! a store that is full.

use std::fs;

use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assert_says, scratch};

use crate::node::Node;

/// A call of one of the graph's functions.
fn graph(call: &str) -> Wasmrun {
    Wasmrun::submit("graph").args(["--invoke", call])
}

/// The sum of the first bytes of the guest's pattern.
fn pattern_sum(count: u64) -> u64 {
    (0..count).map(|at| at % 251).sum()
}

/// Sizes around what stays inline (64 KiB), around pages, and some of many pages.
const SIZES: [u64; 9] = [
    0,
    1,
    65_535,
    65_536,
    65_537,
    131_072,
    1_000_000,
    4 << 20,
    20_000_001,
];

#[test]
fn what_is_stored_comes_back_as_it_was() {
    for size in SIZES {
        let run = graph(&format!("put-and-get({size})"));
        assert_eq!(run.ok(), format!("{size}\n"));
    }
}

#[test]
fn a_window_is_the_tasks_own() {
    // The first byte, which is 0, is made 200 in the window alone.
    for size in &SIZES[1..] {
        let stored = pattern_sum(*size);
        let run = graph(&format!("put-and-map({size})"));
        assert_eq!(
            run.ok(),
            format!("({}, {stored})\n", stored + 200),
            "{size}"
        );
    }
}

#[test]
fn another_task_copies_or_maps_the_same_bytes() {
    for mapped in [false, true] {
        for size in &SIZES[1..] {
            let run = graph(&format!("sum-through({size}, {mapped})"));
            assert_eq!(
                run.ok(),
                format!("{}\n", pattern_sum(*size)),
                "{size} {mapped}"
            );
        }
    }
}

#[test]
fn nothing_is_left_where_an_object_was_mapped() {
    for how in ["return", "trap", "memory", "time", "cancelled", "killed"] {
        // One sandbox each for the test, the actor it is signalled by, and all others in turn. More rounds
        // would only show the same, and `time` takes as long as its limit.
        let rounds = if how == "time" { 4 } else { 30 };
        for size in [70_000, 3_000_000] {
            let run = graph(&format!("dirt-after(\"{how}\", {size}, {rounds})"));
            assert_eq!(
                run.args(["--max-sandboxes", "3"]).ok(),
                "0\n",
                "{how} {size}"
            );
        }
    }
}

#[test]
fn windows_that_are_none_are_refused() {
    for what in ["unaligned", "short", "long"] {
        let said = graph(&format!("bad-window(\"{what}\")")).ok();
        let why =
            "a window for 131072 bytes must start at a multiple of 65536 and be 131072 bytes long";
        assert_says(&said, &["\"refused: ", why]);
    }
    assert_says(
        &graph("bad-window(\"twice\")").ok(),
        &["\"refused: the window overlaps one that an object is mapped to"],
    );
}

#[test]
fn handles_pass_through_values() {
    assert_eq!(graph("handles(7)").ok(), "7\n");
    assert_eq!(
        graph("handles(18446744073709551615)").ok(),
        "18446744073709551615\n"
    );
}

#[test]
fn a_name_alone_opens_nothing() {
    let why = "\"refused: these bytes do not name an object that this task was given or has made";
    // Made up, and a real one that reached the task in a value whose type does not say so.
    for call in ["forge()", "smuggle()"] {
        assert_says(&graph(call).ok(), &[why]);
    }
    let id = format!("{}@{}", "7".repeat(40), "0".repeat(32));
    // Nor does one that a driver names: a node of its own knows no objects.
    for function in ["pass-on", "sum-mapped"] {
        for name in [&*id, "7"] {
            let stderr = graph(&format!("{function}(\"{name}\")")).fails(2);
            let said = format!("there is no object '{name}'");
            assert_says(&stderr, &[&said, "no node is running here"]);
        }
    }
}

#[test]
fn an_object_larger_than_the_store_is_refused_at_once() {
    graph("put-and-get(20000000)")
        .args(["--object-memory", "4MiB"])
        .fails_saying(
            5,
            &[
                "of 19 MiB can never fit into the object store of 4 MiB",
                "--object-memory",
            ],
        );
}

#[test]
fn who_waits_for_room_can_be_stopped() {
    let full = ["--object-memory", "20MiB", "--put-wait", "1h"];
    let late = graph("hoard(100, 1024)").args(full);
    let late = late.args(["--time-limit", "1s"]).fails(6);
    assert_says(&late, &["time limit of 1s reached"]);
    let mut node = Node::new();
    node.start_with(&full);
    let used = || node.wasmrun(["status"]).json(0)["store"]["used_bytes"].clone();
    let hoard = node.submit("hoard(100, 1024)").args(["--detach"]).ok();
    // It wants one more then, for which nobody makes room.
    while used() != 20 << 20 {}
    node.wasmrun(["cancel", hoard.trim()]).ok();
    node.wait_for("cancelled", 1);
    while used() != 0 {}
}

#[test]
fn a_store_that_is_full_says_so() {
    let dir = scratch();
    let full = ["--object-memory", "20MiB", "--put-wait", "100ms"];
    // Both wait for room first.
    let memory = graph("hoard(100, 1024)").args(full).start();
    let disk = graph("hoard(100, 1024)")
        .args(full)
        .arg("--spill-dir")
        .arg(dir.path());
    let disk = disk.args(["--spill-size", "30MiB"]).run();
    let memory = memory.end();
    assert_eq!(
        (memory.code, disk.code),
        (Some(5), Some(5)),
        "{memory} {disk}"
    );
    let fits_not = "of 1 MiB does not fit into the object store now: 20 MiB of 20 MiB are in use";
    assert_says(
        &memory.stderr,
        &[fits_not, "--object-memory", "--spill-dir"],
    );
    assert_says(
        &disk.stderr,
        &[fits_not, "30 MiB of 30 MiB on disk", "--spill-size"],
    );
}

#[test]
fn what_is_on_disk_comes_back_though_the_disk_is_nearly_full() {
    let mut node = Node::new();
    let (dir, files) = (scratch(), scratch());
    let spill = dir.path().to_str().unwrap();
    node.start_with(&[
        "--object-memory",
        "1500kB",
        "--spill-dir",
        spill,
        "--spill-size",
        "1500kB",
        "--put-wait",
        "300ms",
    ]);
    let put = |name: &str, len: usize| {
        let path = files.path().join(name);
        fs::write(&path, name.repeat(len)).unwrap();
        node.wasmrun(["put"]).arg(path).ok().trim().to_owned()
    };
    let get = |id: &str| node.wasmrun(["object", "get", id]).run();
    // Memory and disk take one each: reading one exchanges them.
    let ids = [put("a", 1_000_000), put("b", 1_000_000)];
    for round in 0..4 {
        let ended = get(&ids[round % 2]);
        assert!(
            ended.code == Some(0) && ended.stdout.len() == 1_000_000,
            "{ended}"
        );
        assert_eq!(ended.stdout[0], b"ab"[round % 2]);
    }
    // What is in memory is too long to go to disk instead, so the others cannot come: that is said in time.
    ids.iter().for_each(|id| {
        node.wasmrun(["object", "delete", id]).ok();
    });
    let short = [put("c", 500_000), put("d", 900_000)];
    let long = put("e", 1_400_000);
    node.wasmrun(["object", "get", &short[1]]).fails_saying(
        5,
        &[
            "cannot be read back from disk now",
            "on disk",
            "--spill-size",
        ],
    );
    // Nothing is lost by that.
    assert_eq!(get(&long).stdout.len(), 1_400_000);
    node.wasmrun(["object", "delete", &long]).ok();
    for (id, len) in short.iter().zip([500_000, 900_000]) {
        assert_eq!(get(id).stdout.len(), len);
    }
}

#[test]
fn what_does_not_fit_goes_to_disk_and_comes_back() {
    let dir = scratch();
    let run = graph("hoard(60, 1024)").args(["--object-memory", "8MiB"]);
    assert_eq!(run.arg("--spill-dir").arg(dir.path()).ok(), "ok(60)\n");
    // One that is read in place, too.
    let run = graph("sum-through(3000000, true)").args(["--object-memory", "4MiB"]);
    let sum = format!("{}\n", pattern_sum(3_000_000));
    assert_eq!(run.arg("--spill-dir").arg(dir.path()).ok(), sum);
    assert_eq!(files_below(dir.path()), 0, "no bytes are left behind");
}

#[test]
fn the_next_node_clears_away_what_a_crash_left_on_disk() {
    let dir = scratch();
    let spilling = |call: &str| {
        let run = graph(call).args(["--object-memory", "8MiB"]);
        run.arg("--spill-dir").arg(dir.path())
    };
    let mut running = spilling("hoard-and-spin(30, 1024)").start();
    running.wait_for(Stream::Err, "all is stored");
    assert!(files_below(dir.path()) > 10 << 20, "it has spilled");
    running.signal(Signal::KILL);
    let ended = running.end();
    assert_eq!(ended.code, None, "{ended}");
    spilling("noop()").ok();
    assert_eq!(files_below(dir.path()), 0, "no bytes are left behind");
}

#[test]
fn a_task_that_holds_what_another_one_has_made_is_named_while_it_runs() {
    let node = Node::start();
    let mut spins = node.submit("map-and-spin(400000)").start();
    spins.wait_for(Stream::Err, "mapped");
    let objects = node.wasmrun(["list", "objects"]).json(0);
    let id = objects["objects"][0]["id"].as_str().expect("an id");
    let told = node.wasmrun(["get", id]).json(0);
    let [holder] = &told["holders"].as_array().expect("a list")[..] else {
        panic!("{told}");
    };
    assert_eq!(
        ["kind", "how", "name"].map(|field| &holder[field]),
        ["task", "handle", "map-and-spin"]
    );
    spins.signal(Signal::INT);
    spins.end();
}

/// How many bytes all files below a folder have.
fn files_below(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => files_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

#[test]
fn memory_that_is_let_go_is_used_again() {
    // Forty times what the store has room for.
    let run = Wasmrun::submit("sdk").args(["--invoke", "churn(160, 1024)"]);
    let sum = (0..160).sum::<u64>();
    assert_eq!(
        run.args(["--object-memory", "4MiB"]).ok(),
        format!("ok({sum})\n")
    );
}

#[test]
fn where_a_task_failed_the_failure_is_shown() {
    let node = Node::start();
    node.submit("crash()").fails(5);
    let listed = node.wasmrun(["list", "tasks"]).json(0);
    let id = listed["tasks"][0]["id"].as_str().expect("it is remembered");
    let get = |id: &str| node.wasmrun(["object", "get", id]);
    get(id).fails_saying(5, &["the guest trapped"]);
    let detached = node.submit("crash()").arg("--detach").json(0);
    let id = detached["task_id"].as_str().expect("it has one");
    get(id).fails_saying(5, &["the guest trapped"]);
}

#[test]
fn what_was_spilled_goes_with_its_node() {
    let dir = scratch();
    let (spill, file) = (dir.path().join("spill"), dir.path().join("big"));
    fs::write(&file, vec![7; 700 << 10]).unwrap();
    let mut node = Node::new();
    let spill_dir = spill.to_str().unwrap();
    node.start_with(&["--object-memory", "1MiB", "--spill-dir", spill_dir]);
    for _ in 0..2 {
        node.wasmrun(["put"]).arg(&file).ok();
    }
    let folders = || {
        let entries = fs::read_dir(&spill).unwrap().flatten();
        entries.filter(|it| it.path().is_dir()).count()
    };
    assert_eq!(folders(), 1, "one is on disk");
    node.wasmrun(["node", "stop"]).ok();
    node.running.take().expect("it runs").end();
    assert_eq!(folders(), 0);
}
