//! Why a task does not run, in words; and the whole, in numbers.

use super::*;

const ONE: &str = r#"{"CPU": 1}"#;

#[test]
fn the_reasons_of_nodes() {
    let mut it = Harness::new(&[r#"{"CPU": 2, "GPU": 1}"#]);
    it.join(1, r#"{"CPU": 4, "GPU": 4}"#, "zone=b");
    let spec = task(1, r#"{"GPU": 2}"#).labels("zone=a");
    it.submit(spec);
    it.now_ms = 1_250;
    it.event(Event::Tick);
    assert_eq!(
        it.explain(1),
        "task t1 has been infeasible for 1.25s: it waits for a node that can run it: none that is \
         there ever can\n  \
         node n0: infeasible: label zone=a does not match\n  \
         node n1: infeasible: label zone=a does not match"
    );
    it.submit(task(2, r#"{"CPU": 1, "GPU": 2}"#).strategy("node:n1"));
    it.submit(task(3, r#"{"CPU": 4}"#));
    assert_eq!(
        it.explain(3),
        "task t3 has been ready for 0s: it waits for resources\n  \
         node n0: infeasible: CPU: needs 4, node has 2 in total\n  \
         node n1: unavailable: CPU: needs 4, node has 3 whole units free"
    );
    it.submit(task(4, r#"{"GPU": 9}"#));
    assert!(
        it.explain(4)
            .contains("node n0: infeasible: GPU: needs 9, node has 1 in total")
    );
}

#[test]
fn what_can_never_run_is_known_before_there_is_a_task() {
    let mut it = Harness::new(&[r#"{"CPU": 2}"#]);
    let mut why = |spec: TaskSpec| {
        let why = it.scheduler.why_never(&spec.terms.rule);
        why.map_or(String::new(), |why| why.to_string())
    };
    assert_eq!(why(task(1, r#"{"CPU": 2}"#)), "");
    assert_eq!(why(task(1, ONE).strategy("spread")), "");
    let large = why(task(1, r#"{"CPU": 3}"#));
    let says = "no node can ever run this task: CPU: needs 3, node has 2 in total (node n0)";
    assert!(large.starts_with(says), "{large}");
    assert!(why(task(1, ONE).labels("zone=a")).contains("label zone=a does not match"));
    assert!(why(task(1, ONE).strategy("node:n7")).contains("n7"));
}

#[test]
fn another_tenant_is_ahead() {
    let mut it = Harness::local(r#"{"CPU": 6}"#);
    it.submit(task(1, r#"{"CPU": 4}"#).tenant("A"));
    it.submit(task(2, r#"{"CPU": 2}"#).tenant("B"));
    it.submit(task(3, r#"{"CPU": 2}"#).tenant("A"));
    it.submit(task(4, r#"{"CPU": 2}"#).tenant("B"));
    it.submit(task(5, r#"{"CPU": 2}"#).tenant("B"));
    let text = it.explain(3);
    assert!(
        text.contains("it waits for its turn: tenant B is ahead: share 0.33 < 0.66"),
        "{text}"
    );
    // Who does not have B hears only that it is another's turn.
    let explanation = it.scheduler.explain(&task_id(3)).expect("a live task");
    assert_eq!(explanation.clone().seen_by(|_| true), explanation);
    // Also who has B, and not the one that stands for the task: another may, of which its tenant is part.
    for seen in ["A", "B"] {
        let seen = explanation.clone().seen_by(|it| it.as_str() == seen);
        let text = seen.to_string();
        assert!(
            text.contains("it waits for its turn: another tenant is ahead"),
            "{text}"
        );
        assert!(!text.contains('B') && !text.contains("0.33"), "{text}");
    }
    let text = it.explain(5);
    assert!(
        text.contains("it waits for resources\n  1 of the same kind come before it"),
        "{text}"
    );
}

#[test]
fn the_other_states() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    assert!(
        it.explain(1)
            .ends_with("dispatching for 0s: it waits for nothing: it is with node n0")
    );
    it.accept(1);
    it.block(1);
    assert!(
        it.explain(1)
            .contains("others, on node n0; its CPU is given back")
    );
    it.submit(task(2, ONE));
    it.unblock(1);
    assert!(it.explain(1).contains("its CPU on node n0, to go on"));
    it.submit(task(3, ONE).arg(1, false));
    let object = object_id(1);
    assert!(
        it.explain(3)
            .contains(&format!("an argument, object {object}"))
    );
    it.submit(task(4, ONE).arg(1, false).arg(2, false));
    assert!(it.explain(4).contains("2 arguments that are not here"));
    let actor = actor_id(1);
    it.submit(TaskSpec {
        kind: TaskKind::Call {
            actor,
            caller: None,
        },
        ..task(5, ONE)
    });
    assert!(
        it.explain(5)
            .contains(&format!("actor {actor} to be created"))
    );
    it.peer(1, 1, r#"{"CPU": 2}"#);
    it.submit(task(6, r#"{"CPU": 2}"#));
    let node = "n1";
    assert!(it.explain(6).contains(&format!("node {node} to take it")));
    let (task, attempt) = (task_id(6), Attempt::FIRST);
    it.message(1, Message::Placed { task, attempt });
    assert!(
        it.explain(6)
            .contains(&format!("node {node}, which has it"))
    );
    assert!(it.scheduler.explain(&task_id(99)).is_none());
}

#[test]
fn sums() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    for at in 1..=5 {
        it.submit(task(at, ONE));
    }
    it.submit(task(6, r#"{"CPU": 2}"#));
    it.submit(task(7, r#"{"CPU": 3}"#));
    it.finish(1);
    it.cancel(4);
    let status = it.scheduler.status();
    let found: Vec<_> = status
        .phases
        .iter()
        .filter(|phase| phase.tasks > 0)
        .map(|phase| format!("{} {} {}", phase.phase, phase.tasks, phase.asks))
        .collect();
    assert_eq!(
        found,
        [
            "ready 2 {CPU: 3}",
            "dispatching 2 {CPU: 2}",
            "infeasible 1 {CPU: 3}",
            "finished 1 {}",
            "cancelled 1 {}"
        ]
    );
    assert_eq!(
        (status.drivers, status.classes, status.parked_classes),
        (1, 3, 2)
    );
    let text = it.scheduler.to_string();
    for says in [
        "5 live tasks, 1 driver, ",
        "  ready: 2 tasks, which ask for CPU 3\n",
        "  finished: 1 task\n",
        ", patience ",
        ": free CPU 0 of 2",
        "uses CPU 2\n",
        "class",
    ] {
        assert!(text.contains(says), "{text}");
    }
    for debug in ["Some", "None", "{", "1 tasks", "true"] {
        assert!(!text.contains(debug), "{text}");
    }
}
