//! What ready tasks need of which nodes, and who has it.

use super::*;

const MEMORY: &str = r#"{"CPU": 1, "memory": 64}"#;

#[test]
fn a_ready_task_could_start_on_every_node_that_could_ever_serve_it() {
    let mut it = Harness::local(r#"{"CPU": 1, "memory": 100}"#);
    it.peer(1, 1, r#"{"CPU": 1, "memory": 64}"#);
    it.peer(2, 1, r#"{"CPU": 1, "memory": 63}"#);
    it.submit(task(1, MEMORY));
    it.submit(task(2, MEMORY));
    it.submit(task(3, MEMORY));
    let nodes = |it: &Harness, at: u8| {
        let demands = it.scheduler.demands(&task_id(at), None);
        demands.into_iter().map(|it| it.node).collect::<Vec<_>>()
    };
    assert_eq!(it.phase(3), Phase::Ready);
    assert_eq!(nodes(&it, 3), [node_id(0), node_id(1)]);
    // One that is bound to a node waits for that, and one that runs for none.
    it.submit(task(4, MEMORY).strategy("node:n0"));
    assert_eq!(nodes(&it, 4), [node_id(0)]);
    assert_eq!(nodes(&it, 1), []);
    let elsewhere = |at: u8| it.scheduler.may_start_elsewhere(&task_id(at));
    assert!(elsewhere(3) && !elsewhere(4) && !elsewhere(1));
    let only = |node| it.scheduler.demands(&task_id(3), Some(node_id(node))).len();
    assert_eq!((only(0), only(1), only(2)), (1, 1, 0));
}

#[test]
fn as_long_as_a_node_joins_nobody_is_said_to_lack_room() {
    let mut it = Harness::local(r#"{"CPU": 1, "memory": 100}"#);
    it.submit(task(1, MEMORY));
    it.submit(task(2, MEMORY));
    let lacks = |it: &Harness| !it.scheduler.demands(&task_id(2), None).is_empty();
    let elsewhere = |it: &Harness| it.scheduler.may_start_elsewhere(&task_id(2));
    assert!(lacks(&it) && !elsewhere(&it));
    it.event(Event::NodeExpected(info(1, 1, "")));
    assert!(!lacks(&it) && elsewhere(&it));
    it.peer(1, 1, r#"{"CPU": 1, "memory": 63}"#);
    assert!(lacks(&it) && !elsewhere(&it));
}

#[test]
fn who_waits_holds_all_but_its_cpu_and_who_ends_nothing() {
    let mut it = Harness::local(r#"{"CPU": 1, "memory": 100}"#);
    it.submit(task(1, MEMORY));
    it.accept(1);
    it.block(1);
    it.submit(task(2, MEMORY));
    let asked = request(MEMORY);
    let lacks = |it: &Harness, stays: bool| {
        let room = it.scheduler.room().expect("a node");
        room.beside(|_| stays).lacking(asked.amounts())
    };
    assert_eq!(it.phase(2), Phase::Ready);
    assert_eq!(lacks(&it, true), ["memory (needs 64, 36 free)"]);
    assert!(lacks(&it, false).is_empty());
    let room = it.scheduler.room().expect("a node");
    assert_eq!(room.holders.len(), 1);
    assert_eq!(room.holders[0].task, task_id(1));
    it.unblock(1);
    it.finish(1);
    let room = it.scheduler.room().expect("a node");
    assert_eq!(room.holders[0].task, task_id(2));
}

#[test]
fn sandboxes_are_something_that_is_lacked_too() {
    let config = Config {
        max_running: 1,
        ..local_config()
    };
    let mut it = Harness::with(config, &[r#"{"CPU": 4}"#]);
    let one = r#"{"CPU": 1}"#;
    it.submit(task(1, one));
    it.submit(task(2, one));
    let room = it.scheduler.room().expect("a node");
    let asked = request(one);
    let all = room.beside(|_| true);
    assert_eq!(all.lacking(asked.amounts()), ["one of 1 sandboxes"]);
    assert!(!all.serves(asked.amounts()));
    assert!(room.beside(|_| false).serves(asked.amounts()));
}
