//! Nodes of one machine that share objects: one copy for all, and what becomes of it when the node that has it ends.

use std::fs;

use wasmrun_tests::{Running, Stream, guest};

use crate::cluster::Member;
use crate::spread::{Three, call};

/// How many numbers make 64 MiB.
const COUNT: u64 = 8 << 20;
const BYTES: u64 = COUNT * 8;

/// Where there are copies of the numbers, and where each is: by node.
fn places(at: &Member) -> Vec<(String, String)> {
    let listed = at.command(&["list", "objects"]).json(0);
    let rows = listed["objects"].as_array().expect("a list").clone();
    let numbers = rows.iter().filter(|row| row["size_bytes"] == BYTES);
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let mut places: Vec<_> = numbers
        .map(|row| (text(&row["node"]), text(&row["place"])))
        .collect();
    places.sort();
    places
}

/// Waits until they are there. Each look is a command, which takes its time.
fn wait_for_places(at: &Member, wanted: &[(&str, &str)]) {
    let is_same = |places: &[(String, String)]| {
        let places = places.iter().map(|(node, place)| (&**node, &**place));
        places.eq(wanted.iter().copied())
    };
    while !is_same(&places(at)) {}
}

/// Tasks at `a` and `c` that look at what `b` has made.
fn looking(three: &Three) -> Running {
    let what = format!(r#"looked-at("b", ["a", "c"], {COUNT}, "go")"#);
    let looking = call(&three.a, &what).start();
    let borrowed = [("a", "borrowed"), ("b", "memory"), ("c", "borrowed")];
    wait_for_places(&three.a, &borrowed);
    looking
}

/// Lets them go on, and says what they saw.
fn seen(at: &Member, looking: Running) {
    let create = at.command(&["actor", "create"]).arg(guest("spread"));
    let go = ["tally", "0", "--name", "go", "--strategy", "node:a"];
    create.args(go).ok();
    let ended = looking.end();
    let sum = COUNT * (COUNT - 1) / 2;
    assert_eq!(
        ended.stdout_text(),
        format!("ok([{sum}, {sum}])\n"),
        "{ended}"
    );
    at.command(&["actor", "kill", "go"]).ok();
}

fn used_bytes(at: &Member) -> u64 {
    let status = at.command(&["status"]).json(0);
    status["store"]["used_bytes"].as_u64().expect("a number")
}

/// What a process has of memory that is shared, its part of each page.
fn shared_bytes(at: &Member) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", at.process().as_raw_nonzero());
    let sums = fs::read_to_string(path).expect("it lives");
    let line = sums.lines().find(|line| line.starts_with("Pss_Shmem:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.map_or(0, |kib| kib.parse::<u64>().expect("a number") << 10)
}

#[test]
fn three_nodes_of_one_machine_have_one_copy() {
    let three = Three::sharing();
    let looking = looking(&three);
    let all = [&three.a, &three.b, &three.c];
    let used: Vec<u64> = all.iter().map(|node| used_bytes(node)).collect();
    assert!(used[1] >= BYTES, "{used:?}");
    assert!(used[0] + used[2] < BYTES / 8, "{used:?}");
    let shared: u64 = all.iter().map(|node| shared_bytes(node)).sum();
    assert!(shared < BYTES + BYTES / 2, "all have {shared} bytes");
    seen(&three.a, looking);
    for node in all {
        node.wait_for_rest();
    }
}

#[test]
fn what_is_looked_at_in_place_outlives_a_node_that_is_killed() {
    let mut three = Three::sharing();
    let looking = looking(&three);
    three.b.kill();
    wait_for_places(&three.a, &[("a", "memory"), ("c", "memory")]);
    seen(&three.a, looking);
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
    }
}

#[test]
fn what_is_looked_at_in_place_outlives_a_node_that_stops() {
    let mut three = Three::sharing();
    let looking = looking(&three);
    three.b.stop();
    wait_for_places(&three.a, &[("a", "memory"), ("c", "memory")]);
    seen(&three.a, looking);
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
    }
}

#[test]
fn what_a_neighbour_needs_of_a_node_that_stops_is_copied() {
    let mut three = Three::sharing();
    let mut reading = call(&three.a, "left-behind(\"b\")").start();
    reading.wait_for(Stream::Err, "made");
    three.b.stop();
    let ended = reading.end();
    assert_eq!(
        ended.stdout_text(),
        "ok([4999950000, 1249975000, 40000, 4])\n",
        "{ended}"
    );
    for node in [&three.a, &three.c] {
        node.wait_for_rest();
    }
}
