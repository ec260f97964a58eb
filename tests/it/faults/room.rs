//! Objects that cannot come to where they are needed: no room there, or nobody has them any more.

use wasmrun_tests::{assert_says, guest};

use super::world::{Node, Three, eventually, rest_without_failures, wait_for_rest};

/// How many numbers make an object of 12 MiB, of which two do not fit into a store of 20 MiB.
const LARGE: usize = 12 << 17;

fn three() -> Three {
    let small = Node::new("b").with_store("20MiB");
    Three::with([Node::new("a"), small, Node::new("c")])
}

#[test]
fn who_needs_an_object_waits_until_there_is_room_for_it() {
    let three = three();
    // Three tasks at `b`, each with an object of its own from `a`: one after the other has room.
    let all = three.a.call(&format!(r#"pressed("b", 3, {LARGE})"#)).run();
    assert_eq!(all.stdout_text(), format!("ok({})\n", 3 * LARGE), "{all}");
    rest_without_failures(three.all());
}

#[test]
fn an_object_that_will_never_fit_is_not_called_lost() {
    let three = three();
    let large = 4 * LARGE;
    let failed = three.a.call(&format!(r#"pressed("b", 1, {large})"#)).run();
    assert_says(
        &failed.stderr,
        &["it is at another node", "can never fit", "--object-memory"],
    );
    assert!(!failed.stderr.contains("lost"), "{failed}");
    wait_for_rest(three.all());
}

#[test]
fn nodes_with_full_stores_give_each_other_tasks_with_long_arguments() {
    let three = Three::with([
        Node::new("a").with_store("20MiB"),
        Node::new("b").with_store("20MiB"),
        Node::new("c"),
    ]);
    // 1 MiB is left of each store: less than all arguments take that are under way.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("most");
    std::fs::write(&file, vec![7; 19 << 20]).expect("a file");
    let fill = |node: &Node| node.command(&["put"]).arg(&file).ok();
    let kept = [&three.a, &three.b].map(|node| (node, fill(node)));
    let (lists, count) = (8, 32 << 10);
    let calls = [(&three.a, "b"), (&three.b, "a")].map(|(at, to)| {
        at.call(&format!(r#"sent("{to}", {lists}, {count})"#))
            .start()
    });
    for call in calls {
        let sum = call.end();
        assert_eq!(
            sum.stdout_text(),
            format!("ok({})\n", lists * count),
            "{sum}"
        );
    }
    for (node, id) in kept {
        node.command(&["object", "delete", id.trim()]).ok();
    }
    rest_without_failures(three.all());
}

#[test]
fn what_a_task_stores_is_not_taken_for_what_it_was_given() {
    let three = Three::new();
    let count = 100_000;
    let call = format!(r#"stored-beside("b", {count})"#);
    let sum = three.a.call(&call).run();
    assert_eq!(sum.stdout_text(), format!("ok({})\n", 2 * count), "{sum}");
    wait_for_rest(three.all());
}

/// Has something made that stays at a node, and gives its id when it is there.
fn make(at: &Node, call: &str, strategy: &str) -> String {
    let made = at
        .command(&["submit", "-q", "--detach"])
        .arg(guest("faults"));
    let made = made.args(["--invoke", call, "--strategy", strategy]).ok();
    let id = made.trim().to_owned();
    eventually("finished", || {
        let task = at.command(&["get", &id]).json(0);
        match task["state"] == "finished" {
            true => Ok(()),
            false => Err(task),
        }
    });
    id
}

#[test]
fn a_lost_result_that_cannot_be_made_again_says_why() {
    let mut three = Three::new();
    let id = make(&three.a, "once(100000)", "node:c:soft");
    three.c.kill();
    three.a.wait_for("c", "dead");
    three
        .a
        .command(&["object", "get", &id])
        .fails_saying(5, &["the guest trapped"]);
    three.a.command(&["object", "delete", &id]).ok();
    wait_for_rest([&three.a, &three.b]);
}

#[test]
fn a_lost_result_is_made_again_where_it_was() {
    let mut three = Three::new();
    let id = make(&three.a, "leaf(7, 20000, 0)", "node:c");
    // Its next incarnation has the same name, and nothing else of it.
    three.c.kill();
    three.c.start(&["--join"]);
    three.a.wait_for_incarnation("c", 2);
    let made = three.a.command(&["object", "get", &id]).ok();
    assert_eq!(made.matches('7').count(), 20_000);
    three.a.command(&["object", "delete", &id]).ok();
    three.meet();
    wait_for_rest(three.all());
}
