//! Lists of tasks in pages, of several nodes.

use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{List, Rows, What};

use crate::anywhere::{cluster, detached, wait_for};
use crate::cluster::Member;

/// All tasks in pages of one: their ids.
fn one_by_one(at: &Member) -> Vec<String> {
    let address = at.address().parse().expect("an address");
    let client = Client::connect(&address, Default::default()).expect("a node");
    let mut list = List {
        limit: 1,
        ..List::of(What::Tasks)
    };
    let mut all = Vec::new();
    loop {
        let listed = client.wait(client.list(list.clone())).expect("a list");
        let Rows::Tasks(rows) = listed.rows else {
            panic!("tasks were asked for");
        };
        all.extend(rows.iter().map(|row| row.id.to_string()));
        if listed.next.is_none() {
            return all;
        }
        assert_ne!(list.after, listed.next, "{all:?}");
        list.after = listed.next;
    }
}

#[test]
fn a_task_is_on_one_page_wherever_and_since_whenever_it_runs() {
    let (a, token) = Member::head("a");
    let waits = detached(&a, "spin()", &["--label-selector", "zone=b"]);
    let young = [(); 2].map(|()| detached(&a, "place()", &[]));
    for task in &young {
        wait_for(&a, task, "finished");
    }
    // It comes to the other node when the others have ended.
    let mut b = Member::new("b");
    b.start(&["--join", &token, "--node-label", "zone=b"]);
    wait_for(&a, &waits, "running");
    b.wait_for_incarnation("a", 1);
    for at in [&a, &b] {
        assert_eq!(one_by_one(at), [&*young[1], &*young[0], &*waits]);
    }
}

#[test]
fn a_page_of_one_nodes_tasks_is_full_though_all_younger_ones_ran_elsewhere() {
    let members = cluster(["a", "b"]);
    let a = &members[0];
    let run = |node: &str| {
        let task = detached(a, "place()", &["--strategy", &format!("node:{node}")]);
        wait_for(a, &task, "finished");
        task
    };
    let there = run("b");
    run("a");
    run("a");
    let list = a.command(&["list", "tasks", "-f", "node=b", "--limit", "1"]);
    let listed = list.json(0);
    assert_eq!(listed["tasks"][0]["id"], *there, "{listed}");
}
