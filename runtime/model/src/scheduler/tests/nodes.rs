//! Nodes that come, go and change, and what strategies make of them.

use super::*;
use crate::resource::{Amount, ResourceName};

const ONE: &str = r#"{"CPU": 1}"#;

fn resize(it: &mut Harness, at: u8, cpus: u32) -> Vec<String> {
    it.event(Event::SetCapacity {
        node: node_id(at),
        name: ResourceName::CPU,
        capacity: Amount::units(cpus),
    })
}

fn drain(it: &mut Harness, at: u8, is_draining: bool) -> Vec<String> {
    let node = node_id(at);
    it.event(Event::SetDraining { node, is_draining })
}

#[test]
fn no_node_at_all() {
    let mut it = Harness::new(&[]);
    assert_eq!(it.submit(task(1, "{}")), ["t1 infeasible"]);
    assert_eq!(it.join(0, ONE, ""), ["start t1 on n0"]);
}

#[test]
fn capacity_shrinks_and_grows_while_tasks_run_and_wait() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(1, r#"{"CPU": 2}"#));
    it.submit(task(2, r#"{"CPU": 2}"#));
    it.submit(task(3, ONE));
    // What runs keeps what it holds; what can never run any more says so.
    assert_eq!(resize(&mut it, 0, 1), ["t2 infeasible"]);
    assert_eq!(it.finish(1), ["t1 finished", "start t3 on n0"]);
    assert_eq!(resize(&mut it, 0, 3), ["start t2 on n0"]);
    it.finish(2);
    let (node, name) = (node_id(0), ResourceName::CPU);
    assert!(it.event(Event::DeleteResource { node, name }).is_empty());
    assert_eq!(it.finish(3), ["t3 finished"]);
    assert_eq!(it.submit(task(4, ONE)), ["t4 infeasible"]);
    assert_eq!(resize(&mut it, 0, 1), ["start t4 on n0"]);
}

#[test]
fn an_own_node_is_lost() {
    let mut it = Harness::new(&[ONE, ONE]);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    it.submit(task(3, ONE));
    let on_n1 = (1..=2).find(|at| {
        it.phase(*at) == Phase::Dispatching
            && it.scheduler.cluster()[it.scheduler.assignment(&task_id(*at)).expect("held").node]
                .id()
                == node_id(1)
    });
    let lost = on_n1.expect("one of them is on n1");
    // It is tried again, without costing one of its retries, and stands before the later one.
    assert_eq!(it.lose(1), [format!("retry t{lost} as 2")]);
    let other = 3 - lost;
    assert_eq!(
        it.finish(other),
        [
            format!("t{other} finished"),
            format!("start t{lost} on n0, attempt 2")
        ]
    );
    assert_eq!(
        it.lose(0),
        [
            format!("retry t{lost} as 3"),
            format!("t{lost} infeasible"),
            "t3 infeasible".to_owned()
        ]
    );
}

#[test]
fn losses_have_a_limit() {
    let mut it = Harness::new(&[]);
    it.submit(task(1, ONE));
    for number in 1..=4 {
        let node = info(0, number, "");
        it.event(Event::OwnNode {
            node,
            resources: resources(ONE).into(),
        });
        let incarnation = Incarnation(number);
        let effects = it.event(Event::NodeLost {
            node: node_id(0),
            incarnation,
        });
        match number {
            4 => assert_eq!(effects, ["t1 failed"]),
            _ => assert_eq!(effects[0], format!("retry t1 as {}", number + 1)),
        }
    }
}

#[test]
fn hard_affinity() {
    let mut it = Harness::new(&[ONE, ONE]);
    assert_eq!(
        it.submit(task(1, ONE).strategy("node:n1")),
        ["start t1 on n1"]
    );
    // Busy: it waits, though another is free.
    assert!(it.submit(task(2, ONE).strategy("node:n1")).is_empty());
    assert_eq!(it.finish(1), ["t1 finished", "start t2 on n1"]);
    it.submit(task(3, ONE).strategy("node:n1"));
    let effects = it.lose(1);
    assert!(
        effects
            .iter()
            .any(|it| it.starts_with("t3 failed: unschedulable: node n1"))
    );
    let effects = it.submit(task(4, r#"{"CPU": 2}"#).strategy("node:n0"));
    let expected =
        "t4 failed: unschedulable: node n0: infeasible: CPU: needs 2, node has 1 in total";
    assert!(effects[0].starts_with(expected), "{effects:?}");
}

#[test]
fn soft_affinity() {
    let mut it = Harness::new(&[r#"{"CPU": 2}"#, ONE]);
    let soft = |at, asks| task(at, asks).strategy("node:n1:soft");
    assert_eq!(it.submit(soft(1, ONE)), ["start t1 on n1"]);
    assert!(
        it.submit(soft(2, ONE)).is_empty(),
        "busy is no reason to go elsewhere"
    );
    // The node can never serve it, so any other will do.
    assert_eq!(it.submit(soft(3, r#"{"CPU": 2}"#)), ["start t3 on n0"]);
    it.finish(3);
    assert!(it.lose(1).contains(&"start t2 on n0".to_owned()));
}

#[test]
fn labels() {
    let mut it = Harness::new(&[ONE]);
    assert_eq!(it.submit(task(1, ONE).labels("zone=a")), ["t1 infeasible"]);
    let labels = |text: &str| Event::SetLabels {
        node: node_id(0),
        labels: text.parse().expect("labels"),
    };
    assert_eq!(it.event(labels("zone=a")), ["start t1 on n0"]);
    it.submit(task(2, ONE).labels("zone=a"));
    assert_eq!(it.event(labels("zone=b")), ["t2 infeasible"]);
    // Fallbacks in their order.
    it.join(1, ONE, "zone=c");
    assert_eq!(
        it.submit(task(3, ONE).labels("zone=c;zone=b")),
        ["start t3 on n1"]
    );
}

#[test]
fn draining() {
    for mut it in [Harness::local(ONE), Harness::new(&[ONE])] {
        it.submit(task(1, ONE));
        it.submit(task(2, ONE));
        it.submit(task(3, ONE).strategy("node:n0"));
        assert_eq!(drain(&mut it, 0, true), ["t2 infeasible"]);
        assert_eq!(it.finish(1), ["t1 finished"]);
        assert_eq!(drain(&mut it, 0, false), ["start t2 on n0"]);
        assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    }
}

/// Under `random` a task is bound at once, to a node that is truly free, and counts there.
#[test]
fn random_is_chosen_at_once() {
    let mut it = Harness::new(&[ONE, ONE]);
    let random = |at| task(at, ONE).strategy("random");
    it.submit(random(1).arg(1, false));
    it.submit(random(2).arg(1, false));
    let loads: Vec<String> = it
        .scheduler
        .cluster()
        .iter()
        .map(|(ix, _)| {
            it.scheduler
                .cluster()
                .own(ix)
                .expect("own")
                .load()
                .amounts()
                .to_string()
        })
        .collect();
    assert_eq!(loads, ["{CPU: 1}", "{CPU: 1}"]);
    assert_eq!(it.event(Event::ArgumentReady(object_id(1))).len(), 2);
    it.submit(random(3));
    it.submit(random(4));
    assert_eq!(it.phase(3), Phase::Ready);
    it.refuse(1);
    it.cancel(3);
    it.cancel(4);
    for at in [1, 2] {
        it.finish(at);
    }
}

#[test]
fn spread_goes_round() {
    let mut it = Harness::new(&[r#"{"CPU": 4}"#; 3]);
    let nodes: Vec<String> = (1..=6)
        .flat_map(|at| it.submit(task(at, ONE).strategy("spread")))
        .map(|text| text[text.len() - 2..].to_owned())
        .collect();
    assert_eq!(nodes, ["n0", "n1", "n2", "n0", "n1", "n2"]);
}

/// A kept node's own classes are not mixed up with those of a node that takes its place.
#[test]
fn a_scheduler_that_serves_one_node_takes_no_other() {
    let mut it = Harness::local(ONE);
    it.join(1, ONE, "");
    assert_eq!(it.scheduler.own_nodes().len(), 1);
}
